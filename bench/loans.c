/* SPDX-License-Identifier: BSD-2-Clause */
/* What loans gain: one process makes bytes and sends them, another receives
 * them and adds them up, by plain calls and by loans, in turns. Each byte is
 * written once by the program and read once; what is told is the median of the
 * rounds.
 *
 *	loans [ROUNDS [MEGABYTES]] */
#include <err.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT	   EXS_QHANDLE_INVALID, NULL
#define ROUNDS_MAX 99

static const size_t sizes[] = { 4096, 65536, 1 << 20 };

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static int rounds = 9;
static size_t volume = 512u << 20;
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

static void send_plain(int s, size_t size)
{
	memset(buf, 1, size);
	must(exs_send(s, buf, size, 0, WAIT, EXS_MHANDLE_UNREGISTERED),
	     "exs_send");
}

static void send_loaned(int s, size_t size)
{
	size_t n;
	void *at;

	for (; size; size -= n) {
		n = (size_t)must(exs_x_send_loan(s, &at, size, 0),
				 "exs_x_send_loan");
		memset(at, 1, n);
		must(exs_x_send_commit(s, n, 0), "exs_x_send_commit");
	}
}

static size_t recv_plain(int s, size_t size)
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

static double receive(int s, size_t size, int loaned)
{
	double start = now();
	size_t got = 0;

	while (got < volume)
		got += loaned ? recv_loaned(s) : recv_plain(s, size);
	if (got != volume)
		errx(1, "%zu bytes of %zu", got, volume);
	must(exs_send(s, "", 1, 0, WAIT, EXS_MHANDLE_UNREGISTERED), "exs_send");
	return now() - start;
}

static void serve(int s)
{
	for (size_t i = 0; i < SIZES; i++)
		for (int r = 0; r < 2 * rounds; r++) {
			for (size_t n = 0; n < volume; n += sizes[i])
				r % 2 ? send_loaned(s, sizes[i])
				      : send_plain(s, sizes[i]);
			must(exs_recv(s, buf, 1, 0, WAIT,
				      EXS_MHANDLE_UNREGISTERED),
			     "exs_recv");
		}
	exit(0);
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *t)
{
	qsort(t, (size_t)rounds, sizeof(*t), by_value);
	return t[rounds / 2];
}

static void measure(int s)
{
	double t[2][ROUNDS_MAX], per[2];
	exs_x_sockinfo_t info;

	printf("%9s %12s %12s %6s\n", "size", "plain MB/s", "loaned MB/s",
	       "ratio");
	for (size_t i = 0; i < SIZES; i++) {
		for (int r = 0; r < 2 * rounds; r++)
			t[r % 2][r / 2] = receive(s, sizes[i], r % 2);
		for (int k = 0; k < 2; k++)
			per[k] = (double)volume / 1e6 / median(t[k]);
		printf("%9zu %12.0f %12.0f %6.2f\n", sizes[i], per[0], per[1],
		       per[1] / per[0]);
	}
	must(exs_x_sockinfo(s, &info), "exs_x_sockinfo");
	printf("over %s\n", info.exs_x_rx_fabric);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int listener, status;
	pid_t child;

	if (argc > 1)
		rounds = atoi(argv[1]);
	if (argc > 2)
		volume = strtoul(argv[2], NULL, 10) << 20;
	if (rounds < 1 || rounds > ROUNDS_MAX || !volume)
		errx(2, "usage: loans [ROUNDS [MEGABYTES]]");
	buf = malloc(sizes[SIZES - 1]);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(exs_init(EXS_VERSION), "exs_init");
	listener = (int)must(exs_socket(AF_INET, SOCK_STREAM, 0), "exs_socket");
	must(exs_bind(listener, (struct sockaddr *)&at, len), "exs_bind");
	must(exs_listen(listener, 1), "exs_listen");
	must(exs_getsockname(listener, (struct sockaddr *)&at, &len),
	     "exs_getsockname");
	child = (pid_t)must(fork(), "fork");
	if (child == 0) {
		int s = (int)must(exs_socket(AF_INET, SOCK_STREAM, 0),
				  "exs_socket");

		must(exs_connect(s, (struct sockaddr *)&at, len, 0, WAIT),
		     "exs_connect");
		serve(s);
	}
	measure((int)must(exs_accept(listener, NULL, 0, WAIT), "exs_accept"));
	if (waitpid(child, &status, 0) < 0 || status)
		errx(1, "the sender failed");
	return 0;
}
