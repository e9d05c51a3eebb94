/* SPDX-License-Identifier: BSD-2-Clause */
/* Plain calls under exs run, on a connection over shared memory with both ends
 * in this thread, and on a file, which passes through: a function each, whose
 * instructions count.py counts. */
#include <dlfcn.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <unistd.h>

#include "count.h"

static int ends[2], file, ep;
static char buf[SIZE];

static void must(ssize_t n, ssize_t wanted, const char *what)
{
	if (n != wanted)
		err(1, "%s: %zd, not %zd", what, n, wanted);
}

OP(run_write)
{
	must(write(ends[0], buf, SIZE), SIZE, "write");
}

OP(run_read)
{
	must(read(ends[1], buf, SIZE), SIZE, "read");
}

OP(run_epoll_wait)
{
	struct epoll_event ev;

	must(epoll_wait(ep, &ev, 1, -1), 1, "epoll_wait");
}

OP(run_read_file)
{
	must(read(file, buf, SIZE), SIZE, "read of a file");
}

static void open_ends(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct epoll_event ev = { .events = EPOLLIN };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	must(bind(l, (struct sockaddr *)&a, len), 0, "bind");
	must(listen(l, 1), 0, "listen");
	must(getsockname(l, (struct sockaddr *)&a, &len), 0, "getsockname");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	must(connect(ends[0], (struct sockaddr *)&a, len), 0, "connect");
	ends[1] = accept(l, NULL, NULL);
	close(l);
	ep = epoll_create1(0);
	must(epoll_ctl(ep, EPOLL_CTL_ADD, ends[1], &ev), 0, "epoll_ctl");
	/* A connection whose set nobody was seen to wait for does not move. */
	must(epoll_wait(ep, &ev, 1, 0), 0, "epoll_wait");
	file = open("/dev/zero", O_RDONLY);
	if (ends[1] < 0 || file < 0)
		err(1, "a descriptor");
}

static int on_shm(void)
{
	int (*ask)(int, exs_x_sockinfo_t *) =
		(int (*)(int, exs_x_sockinfo_t *))dlsym(RTLD_DEFAULT,
							"exs_x_sockinfo");
	exs_x_sockinfo_t there, back;

	if (!ask)
		errx(1, "not under exs run");
	must(ask(ends[0], &there), 0, "exs_x_sockinfo");
	must(ask(ends[1], &back), 0, "exs_x_sockinfo");
	return !strcmp(there.exs_x_tx_fabric, "shm") &&
	       !strcmp(back.exs_x_rx_fabric, "shm");
}

int main(void)
{
	open_ends();
	for (int i = 0; !on_shm(); i++) {
		char more[512] = "";

		if (i == MOVES_AFTER)
			errx(1, "the connection stays on TCP");
		must(write(ends[0], more, sizeof(more)), sizeof(more), "write");
		must(recv(ends[1], more, sizeof(more), MSG_WAITALL),
		     sizeof(more), "recv");
	}
	for (int i = 0; i < TIMES; i++) {
		run_write();
		run_epoll_wait();
		run_read();
		run_read_file();
	}
	return 0;
}
