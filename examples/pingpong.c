/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends a message back and forth, and prints the time of a round trip.
 *
 *	pingpong PORT					waits; port 0 picks one
 *	pingpong [-n ROUNDS] [-s BYTES] HOST PORT	plays
 */
#include <err.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/exs_ext.h>
#include <time.h>
#include <unistd.h>

#define WAIT EXS_QHANDLE_INVALID /* a call without a queue waits */

static struct {
	long rounds, bytes;
} game = { 100000, 64 };

static int wait_for_player(const char *port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 }; /* and IPv4 */
	socklen_t len = sizeof(a);
	int s = exs_socket(AF_INET6, SOCK_STREAM, 0);

	a.sin6_port = htons((uint16_t)atoi(port));
	if (exs_bind(s, (struct sockaddr *)&a, len) || exs_listen(s, 1) ||
	    exs_getsockname(s, (struct sockaddr *)&a, &len))
		err(1, "cannot listen on port %s", port);
	printf("listening on port %u\n", ntohs(a.sin6_port));
	fflush(stdout);
	return exs_accept(s, NULL, 0, WAIT, NULL);
}

static int reach(const char *host, const char *port)
{
	struct addrinfo *all, *a, want = { .ai_socktype = SOCK_STREAM };
	int s = -1;

	if (getaddrinfo(host, port, &want, &all))
		errx(1, "cannot find %s port %s", host, port);
	for (a = all; a; a = a->ai_next) {
		s = exs_socket(a->ai_family, SOCK_STREAM, 0);
		if (!exs_connect(s, a->ai_addr, a->ai_addrlen, 0, WAIT, NULL))
			break;
	}
	freeaddrinfo(all);
	if (!a)
		err(1, "cannot reach %s (is pingpong running there?)", host);
	return s;
}

static int catch_it(int s, void *to, long n, exs_mhandle_t m)
{
	return exs_recv(s, to, n, MSG_WAITALL, WAIT, NULL, m) == n;
}

static int throw_it(int s, void *from, long n, exs_mhandle_t m)
{
	return exs_send(s, from, n, 0, WAIT, NULL, m) == n;
}

int main(int argc, char **argv)
{
	struct timespec from, to;
	exs_x_sockinfo_t info;
	int c, s, plays;
	exs_mhandle_t m;
	char *ball;
	long n;

	while ((c = getopt(argc, argv, "n:s:")) != -1)
		*(c == 'n' ? &game.rounds : &game.bytes) = atol(optarg ?: "");
	plays = argc - optind == 2;
	if (argc - optind != 1 + plays || game.rounds < 1 || game.bytes < 1)
		errx(2, "usage: pingpong [-n ROUNDS] [-s BYTES] [HOST] PORT");
	if (exs_init(EXS_VERSION))
		err(1, "exs_init");
	s = plays ? reach(argv[optind], argv[argc - 1])
		  : wait_for_player(argv[optind]);
	if (!(plays ? throw_it : catch_it)(s, &game, sizeof(game), 0))
		err(1, "the other end broke off");
	ball = calloc(1, game.bytes);
	m = exs_mregister(ball, game.bytes, 0);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (n = 0; n < game.rounds; n++)
		if ((plays && !throw_it(s, ball, game.bytes, m)) ||
		    !catch_it(s, ball, game.bytes, m) ||
		    (!plays && !throw_it(s, ball, game.bytes, m)))
			err(1, "the game broke off after %ld rounds", n);
	clock_gettime(CLOCK_MONOTONIC, &to);
	exs_x_sockinfo(s, &info);
	printf("%ld rounds over %s (%s), %.0f ns each\n", n,
	       info.exs_x_tx_fabric, exs_x_reason_name(info.exs_x_tx_reason),
	       (to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) * 1e-9) *
		       1e9 / n);
	return exs_close(s, WAIT, NULL) ? 1 : 0;
}
