/* SPDX-License-Identifier: BSD-2-Clause */
/* The process is a copy of this one, made past the C library, whose locks other
 * threads may hold: it makes system calls and nothing else. */
#include "core/feeder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whose end is told by no signal. */
static pid_t copy_process(void)
{
	return (pid_t)syscall(SYS_clone, 0L, NULL, NULL, NULL, NULL);
}

static void close_all_but_first(void)
{
	struct rlimit limit;
	int fd;

	if (syscall(SYS_close_range, 1u, ~0u, 0u) == 0 ||
	    getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	/* Linux before 5.9 */
	for (fd = 1; fd < (int)limit.rlim_cur; fd++)
		close(fd);
}

static void feed(int fd, const char *bytes, size_t n)
{
	ssize_t ret;

	syscall(SYS_prctl, PR_SET_NAME, "exs-feeder", 0L, 0L, 0L);
	if (fd != 0)
		dup3(fd, 0, 0);
	close_all_but_first();
	while (n > 0) {
		ret = send(0, bytes, n, MSG_NOSIGNAL);
		if (ret < 0)
			break;
		bytes += ret;
		n -= (size_t)ret;
	}
}

int exi_feeder_start(int fd, const char *bytes, size_t n)
{
	sigset_t all, before;
	int ret, status = 0;
	pid_t pid;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler runs there */
	pid = copy_process();
	if (pid == 0) {
		pid = copy_process(); /* a stranger to the program */
		status = pid < 0 ? errno : 0;
		if (pid == 0)
			feed(fd, bytes, n);
		syscall(SYS_exit_group, (long)status);
	}
	ret = pid < 0 ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return ret;
	while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}
