/* SPDX-License-Identifier: BSD-2-Clause */
/* A victim by the Extended Sockets API: operations that a queue tells of, calls
 * that wait, loans, messages. */
#include <string.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>
#include <sys/time.h>

#include "tests/fault/victim.h"
#include "tests/support/net.h"
#include "tests/support/run.h"

#define BUF   9000
#define ROOMS 3

/* The receives and sends of a connection that are under way. */
struct queue {
	exs_qhandle_t q;
	int s;
	int n;
	bool over;
	char room[ROOMS][BUF];
};

static void receive(struct queue *on, long room)
{
	/* From a byte to all of a room. */
	size_t len = 1 + (size_t)room * (BUF - 1) / (ROOMS - 1);

	on->n += !exs_recv(on->s, on->room[room], len, 0, on->q,
			   (exs_ahandle_t)room, EXS_MHANDLE_UNREGISTERED);
}

static void take_event(struct queue *on, const exs_event_t *e)
{
	long room = (long)e->exs_evt_ahandle;
	size_t len = e->exs_evt_un.exs_evt_xfer.exs_evt_length;

	on->n--;
	on->over |= e->exs_errno || !len;
	if (on->over)
		return;
	if (e->exs_evt_type == EXS_EVT_SEND)
		receive(on, room);
	else
		on->n += !exs_send(on->s, on->room[room], len, MSG_NOSIGNAL,
				   on->q, (exs_ahandle_t)room,
				   EXS_MHANDLE_UNREGISTERED);
}

static void queue(int s)
{
	struct queue on = { .q = exs_qcreate(2 * ROOMS), .s = s };
	exs_event_t e;

	for (long room = 0; room < ROOMS; room++)
		receive(&on, room);
	while (on.n) {
		if (exs_qdequeue(on.q, &e, 1, NULL) == 1)
			take_event(&on, &e);
		/* Sends to a peer that does not read must end, too. */
		if (on.over)
			exs_shutdown(s, SHUT_RDWR, T_SYNC);
	}
	exs_qdelete(on.q);
}

/* All of a receive, or the end. */
static void wait_all(int s)
{
	char buf[1000];
	ssize_t n;

	while ((n = t_recv(s, buf, sizeof(buf), MSG_WAITALL)) > 0)
		if (t_send(s, buf, (size_t)n, MSG_NOSIGNAL) < 0)
			break;
}

static void echo(int s)
{
	char buf[BUF];
	ssize_t n;

	while ((n = t_recv(s, buf, sizeof(buf), 0)) > 0)
		if (t_send(s, buf, (size_t)n, MSG_NOSIGNAL) < 0)
			break;
}

static bool send_loan(int s, const char *from, size_t len)
{
	void *to;
	ssize_t n;

	while (len) {
		n = exs_x_send_loan(s, &to, len, 0);
		if (n <= 0)
			return false;
		memcpy(to, from, (size_t)n);
		if (exs_x_send_commit(s, (size_t)n, MSG_NOSIGNAL))
			return false;
		from += n;
		len -= (size_t)n;
	}
	return true;
}

static void loans(int s)
{
	char buf[BUF];
	const void *at;
	ssize_t n;

	do {
		n = exs_x_recv_loan(s, &at, 0);
		if (n > BUF)
			n = BUF;
		if (n > 0)
			memcpy(buf, at, (size_t)n);
	} while (n > 0 && !exs_x_recv_return(s, (size_t)n) &&
		 send_loan(s, buf, (size_t)n));
}

static int accept_one(int s)
{
	return exs_accept(s, NULL, SOCK_CLOEXEC, T_SYNC);
}

static int connect_to(int s, const struct sockaddr *to, socklen_t len)
{
	return exs_connect(s, to, len, 0, T_SYNC);
}

static int close_one(int s)
{
	return exs_close(s, T_SYNC);
}

int main(int argc, char **argv)
{
	static const struct victim_calls calls = {
		exs_socket, exs_bind,	exs_listen, exs_getsockname,
		accept_one, connect_to, close_one,
	};
	static const struct victim_face faces[] = {
		{ queue, SOCK_STREAM, true },
		{ queue, SOCK_STREAM, false },
		{ wait_all, SOCK_STREAM, false },
		{ loans, SOCK_STREAM, false },
		{ echo, SOCK_STREAM, false },
		{ echo, SOCK_SEQPACKET, false },
		{ echo, SOCK_STREAM, false },
	};

	t_init();
	return victim(argc, argv, &calls, faces, T_COUNT(faces));
}
