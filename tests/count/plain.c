/* SPDX-License-Identifier: BSD-2-Clause */
/* Plain calls under exs run, on a connection over shared memory with both ends
 * in this thread, on one that stays on TCP, and on a file, which passes
 * through: a function each, whose instructions count.py counts. */
#include <dlfcn.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <time.h>
#include <unistd.h>

#include "count.h"

#define MANY 16 /* connections in a set, of which one has something */

static int ends[1 + MANY][2], file, ep, many, kernels, listener;
static struct sockaddr_in at;
static char buf[SIZE];

static void must(ssize_t n, ssize_t wanted, const char *what)
{
	if (n != wanted)
		err(1, "%s: %zd, not %zd", what, n, wanted);
}

OP(run_write)
{
	must(write(ends[0][0], buf, SIZE), SIZE, "write");
}

OP(run_read)
{
	must(read(ends[0][1], buf, SIZE), SIZE, "read");
}

OP(run_epoll_wait)
{
	struct epoll_event ev;

	must(epoll_wait(ep, &ev, 1, -1), 1, "epoll_wait");
}

OP(run_epoll_wait_many)
{
	struct epoll_event ev;

	must(epoll_wait(many, &ev, 1, -1), 1, "epoll_wait of many");
}

OP(run_read_file)
{
	must(read(file, buf, SIZE), SIZE, "read of a file");
}

OP(run_epoll_add_tcp)
{
	struct epoll_event ev = { .events = EPOLLOUT };

	must(epoll_ctl(ep, EPOLL_CTL_ADD, kernels, &ev), 0, "epoll_ctl");
}

OP(run_epoll_del_tcp)
{
	must(epoll_ctl(ep, EPOLL_CTL_DEL, kernels, NULL), 0, "epoll_ctl");
}

/* Both ends of a connection for one request and its answer. */
OP(run_short)
{
	int c = socket(AF_INET, SOCK_STREAM, 0), s;

	must(connect(c, (struct sockaddr *)&at, sizeof(at)), 0, "connect");
	s = accept(listener, NULL, NULL);
	must(write(c, buf, SIZE), SIZE, "write");
	must(read(s, buf, SIZE), SIZE, "read");
	must(write(s, buf, SIZE), SIZE, "write");
	must(read(c, buf, SIZE), SIZE, "read");
	must(close(c), 0, "close");
	must(read(s, buf, SIZE), 0, "read of the end");
	must(close(s), 0, "close");
}

/* What was sent just now is looked for twice where there are several: what came
 * before it may be found only then. Not where some microseconds have passed, as
 * on a slow host they have anyway; and then each wait asks the kernel first. */
static void let_pass(void)
{
	struct timespec t;
	long long began = 0, now;

	do {
		if (clock_gettime(CLOCK_MONOTONIC, &t))
			err(1, "clock_gettime");
		now = t.tv_sec * 1000000000LL + t.tv_nsec;
		began = began ? began : now;
	} while (now - began < 20000);
}

/* A socket that is connected to itself does not move. */
static void open_kernels(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(a);
	char more[4096] = "";

	kernels = socket(AF_INET, SOCK_STREAM, 0);
	must(bind(kernels, (struct sockaddr *)&a, len), 0, "bind");
	must(getsockname(kernels, (struct sockaddr *)&a, &len), 0,
	     "getsockname");
	must(connect(kernels, (struct sockaddr *)&a, len), 0, "connect");
	for (int i = 0; i < 4; i++) {
		must(write(kernels, more, sizeof(more)), sizeof(more), "write");
		must(recv(kernels, more, sizeof(more), MSG_WAITALL),
		     sizeof(more), "recv");
	}
}

static void open_ends(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	socklen_t len = sizeof(at);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	listener = l;
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(bind(l, (struct sockaddr *)&at, len), 0, "bind");
	must(listen(l, 1), 0, "listen");
	must(getsockname(l, (struct sockaddr *)&at, &len), 0, "getsockname");
	ep = epoll_create1(0);
	many = epoll_create1(0);
	for (int i = 0; i <= MANY; i++) {
		int *e = ends[i];

		e[0] = socket(AF_INET, SOCK_STREAM, 0);
		must(connect(e[0], (struct sockaddr *)&at, len), 0, "connect");
		e[1] = accept(l, NULL, NULL);
		if (e[1] < 0)
			err(1, "accept");
		must(epoll_ctl(i ? many : ep, EPOLL_CTL_ADD, e[1], &ev), 0,
		     "epoll_ctl");
	}
	/* A connection whose set nobody was seen to wait for does not move. */
	must(epoll_wait(ep, &ev, 1, 0), 0, "epoll_wait");
	must(epoll_wait(many, &ev, 1, 0), 0, "epoll_wait");
	file = open("/dev/zero", O_RDONLY);
	if (file < 0)
		err(1, "/dev/zero");
}

static int on_shm(const int *e)
{
	int (*ask)(int, exs_x_sockinfo_t *) =
		(int (*)(int, exs_x_sockinfo_t *))dlsym(RTLD_DEFAULT,
							"exs_x_sockinfo");
	exs_x_sockinfo_t there, back;

	if (!ask)
		errx(1, "not under exs run");
	must(ask(e[0], &there), 0, "exs_x_sockinfo");
	must(ask(e[1], &back), 0, "exs_x_sockinfo");
	return !strcmp(there.exs_x_tx_fabric, "shm") &&
	       !strcmp(back.exs_x_rx_fabric, "shm");
}

static void move(const int *e)
{
	for (int i = 0; !on_shm(e); i++) {
		char more[512] = "";

		if (i == MOVES_AFTER)
			errx(1, "the connection stays on TCP");
		must(write(e[0], more, sizeof(more)), sizeof(more), "write");
		must(recv(e[1], more, sizeof(more), MSG_WAITALL), sizeof(more),
		     "recv");
	}
}

int main(void)
{
	open_ends();
	open_kernels();
	for (int i = 0; i <= MANY; i++)
		move(ends[i]);
	for (int i = 0; i < TIMES; i++) {
		run_write();
		let_pass();
		run_epoll_wait();
		run_read();
		run_read_file();
	}
	for (int i = 0; i < TIMES; i++) {
		run_epoll_add_tcp();
		run_epoll_del_tcp();
	}
	for (int i = 0; i < TIMES; i++) {
		const int *e = ends[1 + i * 7 % MANY];

		must(write(e[0], buf, SIZE), SIZE, "write");
		let_pass();
		run_epoll_wait_many();
		must(read(e[1], buf, SIZE), SIZE, "read");
	}
	for (int i = 0; i < TIMES; i++)
		run_short();
	return 0;
}
