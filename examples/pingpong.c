/* SPDX-License-Identifier: BSD-2-Clause */
/* A message goes back and forth, and the time that takes is printed.
 *
 *	pingpong PORT           waits for the other; port 0 picks one
 *	pingpong HOST PORT      plays
 */
#include <err.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/exs_ext.h>
#include <time.h>

#define ROUNDS 100000

static char message[64] = "ping";

static int wait_for_player(const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int s = exs_socket(AF_INET, SOCK_STREAM, 0);

	a.sin_port = htons((uint16_t)atoi(port));
	if (exs_bind(s, (struct sockaddr *)&a, len) || exs_listen(s, 1) ||
	    exs_getsockname(s, (struct sockaddr *)&a, &len))
		err(1, "cannot listen on port %s", port);
	printf("listening on port %u\n", ntohs(a.sin_port));
	fflush(stdout);
	return exs_accept(s, NULL, 0, EXS_QHANDLE_INVALID, NULL);
}

static int reach(const char *host, const char *port)
{
	struct addrinfo *a, want = { .ai_family = AF_INET };
	int s = exs_socket(AF_INET, SOCK_STREAM, 0);

	if (getaddrinfo(host, port, &want, &a))
		errx(1, "cannot find %s port %s", host, port);
	if (exs_connect(s, a->ai_addr, a->ai_addrlen, 0, EXS_QHANDLE_INVALID,
			NULL))
		err(1, "cannot reach %s (is pingpong %s running there?)", host,
		    port);
	freeaddrinfo(a);
	return s;
}

static int catch_it(int s)
{
	return exs_recv(s, message, sizeof(message), MSG_WAITALL,
			EXS_QHANDLE_INVALID, NULL,
			EXS_MHANDLE_UNREGISTERED) == sizeof(message);
}

static int throw_it(int s)
{
	return exs_send(s, message, sizeof(message), 0, EXS_QHANDLE_INVALID,
			NULL, EXS_MHANDLE_UNREGISTERED) == sizeof(message);
}

int main(int argc, char **argv)
{
	struct timespec from, to;
	exs_x_sockinfo_t info;
	int s, n;

	if (argc < 2 || argc > 3)
		errx(2, "usage: pingpong PORT, or pingpong HOST PORT");
	if (exs_init(EXS_VERSION))
		err(1, "exs_init");
	s = argc == 2 ? wait_for_player(argv[1]) : reach(argv[1], argv[2]);
	if (argc == 2) {
		while (catch_it(s) && throw_it(s))
			;
		return 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (n = 0; n < ROUNDS && throw_it(s) && catch_it(s); n++)
		;
	clock_gettime(CLOCK_MONOTONIC, &to);
	if (n < ROUNDS || exs_x_sockinfo(s, &info))
		err(1, "the game broke off after %d rounds", n);
	printf("%d rounds over %s (%s), %.0f ns each\n", n,
	       info.exs_x_tx_fabric, exs_x_reason_name(info.exs_x_reason),
	       ((to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec) /
		       n);
	return exs_close(s, EXS_QHANDLE_INVALID, NULL) ? 1 : 0;
}
