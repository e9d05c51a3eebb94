/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote calls with timeouts: a call without a timely answer is cancelled.
 *	rpc PORT, for one client; rpc ADDRESS PORT LIMIT MS..., of calls */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/exs_ext.h>
#include <time.h>

#define WAIT  EXS_QHANDLE_INVALID, NULL /* a call without a queue waits */
#define CALLS 64
static exs_qhandle_t q;
static unsigned int in[2]; /* a message: a call, and in how many ms; 0: not */
static long until[CALLS];  /* when a call is answered; 0: it is not there */

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1;
}

static void say(int s, int id, int ms)
{
	if (exs_send(s, (int[]){ id, ms }, sizeof(in), MSG_NOSIGNAL, WAIT, 0) <
	    0)
		err(1, "cannot send");
}

/* Waits until a time for a message; 0: in vain, -1: the end. */
static int next(int s, long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	static int posted;
	exs_event_t e;

	if (!posted && exs_recv(s, in, sizeof(in), 0, q, NULL, 0))
		err(1, "cannot receive");
	posted = exs_x_dequeue(q, &e, 1, ms ? &t : NULL, NULL) != 1;
	return posted ? 0 : e.exs_evt_un.exs_evt_xfer.exs_evt_length ? 1 : -1;
}

static void serve(int s)
{
	int i, ret, cancelled = 0;

	for (long first = 0; (ret = next(s, first)) >= 0;) {
		if (ret && in[0] < CALLS) {
			cancelled += !in[1] && until[in[0]];
			until[in[0]] = in[1] ? now() + in[1] : 0;
		}
		for (i = 0, first = 0; i < CALLS; i++)
			if (until[i] && until[i] <= now())
				say(s, i, until[i] = 0);
			else if (until[i] && (!first || until[i] < first))
				first = until[i];
	}
	printf("%d cancelled\n", cancelled);
}

static void call(int s, long end, char **ms)
{
	unsigned int i, left;

	for (left = 0; ms[left] && left < CALLS; left++)
		say(s, left, atoi(ms[left]));
	for (i = left; left && next(s, end) > 0 && in[0] < i; left--)
		until[in[0]] = printf("%s ms: answered\n", ms[in[0]]);
	for (i = 0; ms[i] && i < CALLS; i++)
		if (!until[i]) {
			say(s, i, 0);
			printf("%s ms: not in time, cancelled\n", ms[i]);
		}
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct sockaddr *a = (struct sockaddr *)&to;
	socklen_t len = sizeof(to);
	int s, client = argc > 4;

	if (argc < 2 || exs_init(EXS_VERSION))
		errx(2, "usage: rpc PORT, rpc ADDRESS PORT LIMIT MS...");
	to.sin_port = htons(atoi(argv[1 + client]));
	to.sin_addr.s_addr = client ? inet_addr(argv[1]) : INADDR_ANY;
	q = exs_qcreate(4);
	s = exs_socket(AF_INET, SOCK_SEQPACKET, 0);
	if (client ? exs_connect(s, a, len, 0, WAIT)
		   : exs_bind(s, a, len) || exs_listen(s, 1) ||
			     exs_getsockname(s, a, &len))
		err(1, "cannot use this address");
	if (!client)
		dprintf(1, "listening on port %u\n", ntohs(to.sin_port));
	client ? call(s, now() + atoi(argv[3]), argv + 4)
	       : serve(exs_accept(s, NULL, 0, WAIT));
	return 0;
}
