/* SPDX-License-Identifier: BSD-2-Clause */
/* exs perf --pair: the server is a child, the control connection a UNIX pair.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/perf_lane.h"
#include "tools/tool.h"

int perf_local_open(struct perf_local *l, const struct perf_plan *plan)
{
	*l = (struct perf_local){ .fds = { -1, -1 } };
	if (plan->api == PERF_RAW)
		return perf_raw_open(&l->raw);
	if (plan->api == PERF_UNIX &&
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, l->fds))
		return -errno;
	return 0;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void perf_local_close(struct perf_local *l)
{
	close_end(&l->fds[0]);
	close_end(&l->fds[1]);
	perf_raw_free(l->raw);
	l->raw = NULL;
}

static _Noreturn void be_server(pid_t client, int ctl[2], struct perf_local *l)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != client)
		_exit(EXIT_FAILURE);
	close_end(&ctl[PERF_CLIENT]);
	close_end(&l->fds[PERF_CLIENT]);
	perf_serve(ctl[PERF_SERVER], l);
}

static int split(const struct perf_plan *plan, struct perf_local *l,
		 struct perf_result *ret)
{
	pid_t pid, client = getpid();
	int ctl[2];
	int err;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ctl))
		return tool_fail("cannot make a UNIX socket pair: %s",
				 strerror(errno));
	fflush(NULL);
	pid = fork();
	if (!pid)
		be_server(client, ctl, l);
	close_end(&ctl[PERF_SERVER]);
	close_end(&l->fds[PERF_SERVER]);
	if (pid < 0) {
		close_end(&ctl[PERF_CLIENT]);
		return tool_fail("cannot start the server: %s",
				 strerror(errno));
	}
	err = perf_client(ctl[PERF_CLIENT], plan,
			  perf_api_is_local(plan->api) ? l : NULL, ret);
	close_end(&l->fds[PERF_CLIENT]);
	waitpid(pid, NULL, 0);
	return err;
}

int perf_pair(const struct perf_plan *plan, struct perf_result *ret)
{
	struct perf_local local;
	int err = perf_local_open(&local, plan);

	if (err) {
		tool_fail("cannot make shared memory: %s", strerror(-err));
		return err;
	}
	err = split(plan, &local, ret);
	perf_local_close(&local);
	return err;
}
