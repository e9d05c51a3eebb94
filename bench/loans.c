/* SPDX-License-Identifier: BSD-2-Clause */
/* The gain of loans, for bench/compare: one process makes bytes and sends them,
 * another receives them and adds them up. The programs write and read each byte
 * once. Prints megabytes per second.
 *
 *	loans plain|loaned SIZE MEGABYTES */
#include <err.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT   EXS_QHANDLE_INVALID, NULL
#define WARMUP (8u << 20) /* bytes, after which the connection has moved */

static bool loaned;
static size_t size;
static char *buf;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static ssize_t must(ssize_t n, const char *what)
{
	if (n < 0)
		err(1, "%s", what);
	return n;
}

/* All bytes are 1; how many. */
static size_t look_at(const void *at, size_t n)
{
	const unsigned char *p = at;
	uint64_t sum = 0, word;
	size_t i;

	for (i = 0; i + sizeof(word) <= n; i += sizeof(word)) {
		memcpy(&word, p + i, sizeof(word));
		sum += word;
	}
	if (sum != n / sizeof(word) * 0x0101010101010101u)
		errx(1, "bytes that were not sent");
	for (; i < n; i++)
		if (p[i] != 1)
			errx(1, "a byte that was not sent");
	return n;
}

static void send_plain(int s)
{
	memset(buf, 1, size);
	must(exs_send(s, buf, size, 0, WAIT, EXS_MHANDLE_UNREGISTERED),
	     "exs_send");
}

static void send_loaned(int s)
{
	size_t n, left = size;
	void *at;

	for (; left; left -= n) {
		n = (size_t)must(exs_x_send_loan(s, &at, left, 0),
				 "exs_x_send_loan");
		memset(at, 1, n);
		must(exs_x_send_commit(s, n, 0), "exs_x_send_commit");
	}
}

static size_t recv_plain(int s)
{
	size_t n = (size_t)must(
		exs_recv(s, buf, size, 0, WAIT, EXS_MHANDLE_UNREGISTERED),
		"exs_recv");

	return look_at(buf, n);
}

static size_t recv_loaned(int s)
{
	const void *at;
	size_t n = (size_t)must(exs_x_recv_loan(s, &at, 0), "exs_x_recv_loan");

	look_at(at, n);
	must(exs_x_recv_return(s, n), "exs_x_recv_return");
	return n;
}

static void receive(int s, size_t volume)
{
	size_t got = 0;

	while (got < volume)
		got += loaned ? recv_loaned(s) : recv_plain(s);
	if (got != volume)
		errx(1, "%zu bytes of %zu", got, volume);
	must(exs_send(s, "", 1, 0, WAIT, EXS_MHANDLE_UNREGISTERED), "exs_send");
}

static void serve(int s, size_t volume)
{
	for (size_t n = 0; n < volume; n += size)
		loaned ? send_loaned(s) : send_plain(s);
	must(exs_recv(s, buf, 1, 0, WAIT, EXS_MHANDLE_UNREGISTERED),
	     "exs_recv");
}

static size_t whole(size_t volume)
{
	return (volume + size - 1) / size * size;
}

static void measure(int s, size_t volume)
{
	exs_x_sockinfo_t info;
	double start;

	receive(s, whole(WARMUP));
	start = now();
	receive(s, volume);
	start = now() - start;
	must(exs_x_sockinfo(s, &info), "exs_x_sockinfo");
	if (strcmp(info.exs_x_rx_fabric, "shm"))
		errx(1, "on %s, not on shared memory", info.exs_x_rx_fabric);
	printf("%.1f\n", (double)volume / 1e6 / start);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int listener, s, status;
	size_t volume;
	pid_t child;

	if (argc != 4)
		errx(2, "usage: loans plain|loaned SIZE MEGABYTES");
	loaned = !strcmp(argv[1], "loaned");
	size = strtoul(argv[2], NULL, 10);
	if (!size || (!loaned && strcmp(argv[1], "plain")))
		errx(2, "there is no such test");
	volume = whole(strtoul(argv[3], NULL, 10) << 20);
	buf = malloc(size);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(exs_init(EXS_VERSION), "exs_init");
	listener = (int)must(exs_socket(AF_INET, SOCK_STREAM, 0), "exs_socket");
	must(exs_bind(listener, (struct sockaddr *)&at, len), "exs_bind");
	must(exs_listen(listener, 1), "exs_listen");
	must(exs_getsockname(listener, (struct sockaddr *)&at, &len),
	     "exs_getsockname");
	child = (pid_t)must(fork(), "fork");
	if (child == 0) {
		s = (int)must(exs_socket(AF_INET, SOCK_STREAM, 0),
			      "exs_socket");
		must(exs_connect(s, (struct sockaddr *)&at, len, 0, WAIT),
		     "exs_connect");
		serve(s, whole(WARMUP));
		serve(s, volume);
		return 0;
	}
	s = (int)must(exs_accept(listener, NULL, 0, WAIT), "exs_accept");
	measure(s, volume);
	if (waitpid(child, &status, 0) < 0 || status)
		errx(1, "the sender failed");
	return 0;
}
