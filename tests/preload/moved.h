/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection between two processes, moved to shared memory. The first process
 * sends orders to the second. */
#ifndef EXI_TESTS_PRELOAD_MOVED_H
#define EXI_TESTS_PRELOAD_MOVED_H

#include <arpa/inet.h>
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SKIP  77
#define BLOCK 4096
#define LIMIT 60000 /* ms, after which something counts as never */

/* The two ends are processes: orders to the second come through a pipe. */
enum order {
	ECHO = 'e',
	SEND = 's',
	TAKE = 't',
	CHECK = 'c',
	AT_END = 'd',
	LEAVE = 'l'
};

static int orders[2], answers[2];
static void must(bool right, const char *what)
{
	if (!right)
		err(1, "%s", what);
}

static void put(int fd, const char *buf, size_t n)
{
	for (ssize_t k; n; buf += k, n -= (size_t)k)
		must((k = send(fd, buf, n, MSG_NOSIGNAL)) > 0, "send");
}

static void get(int fd, char *buf, size_t n)
{
	for (ssize_t k; n; buf += k, n -= (size_t)k) {
		k = recv(fd, buf, n, 0);
		if (k < 0 && errno == EAGAIN) {
			struct pollfd p = { .fd = fd, .events = POLLIN };

			must(poll(&p, 1, LIMIT) == 1, "poll");
			k = 0;
			continue;
		}
		must(k > 0, "recv");
	}
}

/* --- the other end ------------------------------------------------------ */

static void obey(int fd, char order)
{
	char buf[BLOCK] = { 0 };
	ssize_t n = 1;

	switch (order) {
	case ECHO:
		get(fd, buf, sizeof(buf));
		put(fd, buf, sizeof(buf));
		break;
	case SEND:
		put(fd, "event", 5);
		break;
	case CHECK: /* blocks, in the order in which they were sent */
		for (char i = 1; i <= 3; i++) {
			get(fd, buf, sizeof(buf));
			if (buf[0] != i || buf[sizeof(buf) - 1] != i)
				errx(1, "block %d comes as number %d", buf[0],
				     i);
		}
		break;
	case AT_END:
		must(recv(fd, buf, 1, 0) == 0, "the end");
		break;
	case TAKE: /* all that there is */
		while (n > 0)
			n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		break;
	default:
		exit(0);
	}
}

static void serve(int fd)
{
	char order;

	while (read(orders[0], &order, 1) == 1) {
		obey(fd, order);
		must(write(answers[1], &order, 1) == 1, "answer");
	}
	exit(0);
}

static void tell(enum order order)
{
	char c = (char)order;

	must(write(orders[1], &c, 1) == 1, "order");
}

static void told(enum order order)
{
	char c = 0;

	must(read(answers[0], &c, 1) == 1 && c == (char)order, "its answer");
}

/* --- the connection ----------------------------------------------------- */

static int listener(struct sockaddr_in *a)
{
	socklen_t len = sizeof(*a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	*a = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	must(bind(l, (void *)a, len) == 0 && listen(l, 1) == 0, "listen");
	must(getsockname(l, (void *)a, &len) == 0, "getsockname");
	return l;
}

static int meet(void)
{
	struct sockaddr_in a;
	int l = listener(&a), fd;

	must(pipe(orders) == 0 && pipe(answers) == 0, "pipe");
	if (fork() == 0) {
		close(l);
		close(orders[1]);
		close(answers[0]);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		must(connect(fd, (void *)&a, sizeof(a)) == 0, "connect");
		serve(fd);
	}
	close(orders[0]);
	close(answers[1]);
	fd = accept(l, NULL, NULL);
	must(fd >= 0, "accept");
	close(l);
	return fd;
}

static void trip(int fd)
{
	char buf[BLOCK] = { 0 };

	tell(ECHO);
	put(fd, buf, sizeof(buf));
	get(fd, buf, sizeof(buf));
	told(ECHO);
}

static exs_x_sockinfo_t about(int fd)
{
	static int (*sockinfo)(int, exs_x_sockinfo_t *);
	exs_x_sockinfo_t ret;

	if (!sockinfo)
		*(void **)&sockinfo = dlsym(RTLD_DEFAULT, "exs_x_sockinfo");
	if (!sockinfo)
		errx(1, "this is for exs run");
	must(sockinfo(fd, &ret) == 0, "exs_x_sockinfo");
	return ret;
}

static bool on_shm(int fd)
{
	exs_x_sockinfo_t i = about(fd);

	return strcmp(i.exs_x_rx_fabric, "shm") == 0 &&
	       strcmp(i.exs_x_tx_fabric, "shm") == 0;
}

static int moved(void)
{
	int fd = meet();
	time_t end = time(NULL) + LIMIT / 1000;

	while (!on_shm(fd)) {
		trip(fd);
		if (time(NULL) > end)
			errx(1, "it does not move");
	}
	return fd;
}

static int finish(int fd)
{
	char buf[5];

	get(fd, buf, sizeof(buf));
	if (memcmp(buf, "event", 5) != 0)
		errx(1, "other bytes came");
	told(SEND);
	/* Both ends continue, wherever the connection is. */
	for (int i = 0; i < 20; i++)
		trip(fd);
	tell(LEAVE);
	wait(NULL);
	return 0;
}

struct row {
	const char *name;
	int (*run)(void);
};

/* main() of a program of rows: lists them, or runs one. */
static int run_row(const struct row *rows, size_t n, int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(2 * LIMIT / 1000);
	for (size_t i = 0; argc == 2 && i < n; i++) {
		if (strcmp(argv[1], "--list") == 0)
			puts(rows[i].name);
		else if (strcmp(argv[1], rows[i].name) == 0)
			return rows[i].run();
	}
	return argc == 2 && strcmp(argv[1], "--list") == 0 ? 0 : 2;
}
#endif
