/* SPDX-License-Identifier: BSD-2-Clause */
/* The compatibility floor: the calls of netperf's EXS_TCP_STREAM, exactly as
 * it makes them, against a peer of plain TCP. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define QSIZE	128
#define PENDING 16
#define SENDS	(4000 / t_slow())

/* A plain server: takes everything, answers with the count when the client
 * half-closes. */
static void plain_server(int ctl, void *arg)
{
	size_t size = *(size_t *)arg;
	struct t_addr at;
	int l = t_plain_listener(&at), s;
	char *buf = malloc(size);
	uint64_t total = 0;
	ssize_t n;

	t_tell(ctl, t_port(&at));
	s = T_OK(accept(l, NULL, NULL));
	while ((n = T_OK(recv(s, buf, size, MSG_WAITALL))) > 0) {
		T_EQ(n, size);
		t_check_bytes(buf, size, 1, 0);
		total += n;
	}
	T_EQ(send(s, &total, sizeof(total), 0), sizeof(total));
	close(s);
	close(l);
	free(buf);
}

static int plain_connect(int port)
{
	struct t_addr to = t_loopback(T_IPV4, port);
	int s = T_OK(socket(AF_INET, SOCK_STREAM, 0));

	T_OK(connect(s, (struct sockaddr *)&to.ss, to.len));
	return s;
}

static int dequeued(exs_qhandle_t q, int count)
{
	exs_event_t evtvec[QSIZE];
	int n = exs_qdequeue(q, evtvec, count, NULL), i;

	T_MSG(n >= 0, "exs_qdequeue says %s", t_errname(errno));
	for (i = 0; i < n; i++) {
		T_EQ(evtvec[i].exs_errno, 0);
		T(evtvec[i].exs_evt_ahandle == (exs_ahandle_t)-1);
	}
	return n;
}

/* All sends are of one buffer of one registration, so they overlap. */
static void stream(size_t size)
{
	exs_mhandle_t mhandle;
	exs_qhandle_t qhandle;
	struct t_peer p;
	int s, pending = 0, sent = 0, again = 0;
	uint64_t total = 0;
	char *mem;

	t_peer_start(&p, plain_server, &size);
	T(exs_init(EXS_VERSION) != -1);
	qhandle = exs_qcreate(QSIZE);
	T(qhandle != EXS_QHANDLE_INVALID);
	mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(mem != MAP_FAILED);
	t_fill(mem, size, 1, 0);
	mhandle = exs_mregister((void *)mem, size, 0);
	T(mhandle != EXS_MHANDLE_INVALID);
	s = plain_connect(t_ask(p.ctl));
	while (sent < SENDS) {
		while (pending < PENDING && sent < SENDS) {
			int ret = exs_send(s, mem, size, 0, qhandle,
					   (exs_ahandle_t)-1, mhandle);

			if (ret != 0 && errno == EAGAIN && pending) {
				again++;
				break;
			}
			T_MSG(ret == 0, "exs_send says %s", t_errname(errno));
			pending++;
			sent++;
		}
		pending -= dequeued(qhandle, -(pending >> 1));
	}
	T_EQ(dequeued(qhandle, -pending), pending);
	T_OK(shutdown(s, SHUT_WR));
	T_EQ(recv(s, &total, sizeof(total), MSG_WAITALL), sizeof(total));
	T_EQ(total, (uint64_t)SENDS * size);
	T_EQ(recv(s, &total, 1, 0), 0);
	close(s);
	t_peer_join(&p);
}

static void sends_of_a_few_bytes_reach_a_plain_peer(void)
{
	stream(64);
}

static void sends_of_a_page_reach_a_plain_peer(void)
{
	stream(4096);
}

static void sends_larger_than_the_socket_buffer_reach_a_plain_peer(void)
{
	stream(300000);
}

static void handles_are_integers_and_zero_events_come_at_once(void)
{
	exs_event_t evtvec[QSIZE];
	exs_qhandle_t q;
	char text[32];

	T(exs_init(EXS_VERSION) != -1);
	q = exs_qcreate(QSIZE);
	T(snprintf(text, sizeof(text), "%d", q) > 0);
	T_EQ(exs_qdequeue(q, evtvec, -(1 >> 1), NULL), 0);
	T_EQ(exs_qdequeue(q, evtvec, 0, NULL), 0);
	T_OK(exs_qdelete(q));
}

static const struct t_row rows[] = {
	T_ROW(sends_of_a_few_bytes_reach_a_plain_peer),
	T_ROW(sends_of_a_page_reach_a_plain_peer),
	T_ROW(sends_larger_than_the_socket_buffer_reach_a_plain_peer),
	T_ROW(handles_are_integers_and_zero_events_come_at_once),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "netperf", rows, T_COUNT(rows));
}
