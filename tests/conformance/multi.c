/* SPDX-License-Identifier: BSD-2-Clause */
/* Multishot operations over the fabric: one accept for many connections, one
 * receive for a stream, in buffers that the queue was given. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define DEPTH 8
#define ROOM  1000
#define ROOMS 4

static void receive(int s, exs_qhandle_t q, long a)
{
	T_OK(exs_recv(s, NULL, 0, EXS_X_MULTI, q, (exs_ahandle_t)a,
		      EXS_MHANDLE_UNREGISTERED));
}

static bool more(const exs_event_t *e)
{
	T(e->exs_evt_type == EXS_EVT_RECV || e->exs_evt_type == EXS_EVT_ACCEPT);
	return (e->exs_evt_type == EXS_EVT_RECV
			? e->exs_evt_un.exs_evt_xfer.exs_evt_flags
			: e->exs_evt_un.exs_evt_accept.exs_evt_flags) &
	       EXS_X_MORE;
}

/* All of a stream, by as few receives as can be; buffers go back one event
 * late, so that they run out now and then. */
static void stream_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEPTH));
	char *rooms = malloc(ROOMS * ROOM);
	uint64_t pos = 0, total = (uint64_t)t_ask(ctl);
	void *owed = NULL;

	T_OK(exs_x_provide(q, rooms, ROOM, ROOMS));
	receive(s, q, 7);
	for (;;) {
		exs_event_t e = t_event(q);
		size_t n = e.exs_evt_un.exs_evt_xfer.exs_evt_length;
		char *at = e.exs_evt_un.exs_evt_xfer.exs_evt_buffer;

		T_EQ((long)e.exs_evt_ahandle, 7);
		T_EQ(e.exs_evt_socket, s);
		if (!n && !e.exs_errno)
			break;
		if (n) {
			T(at >= rooms && at < rooms + (size_t)ROOMS * ROOM);
			T_EQ((at - rooms) % ROOM, 0);
			T(n <= ROOM);
			t_check_bytes(at, n, 5, pos);
			pos += n;
			if (owed)
				T_OK(exs_x_provide(q, owed, ROOM, 1));
			owed = at;
		} else {
			T_EQ(e.exs_errno, ENOBUFS);
			T(!more(&e));
		}
		if (!more(&e))
			receive(s, q, 7);
	}
	T_EQ(pos, total);
	t_no_event(q);
	t_close(s);
	T_OK(exs_qdelete(q));
	free(rooms);
}

static void stream_b(int s, int ctl)
{
	t_tell(ctl, 300000);
	t_send_stream(s, 5, 0, 300000, 3000);
	t_close(s);
}

CONF_DUO(one_receive_gets_a_stream, stream_a, stream_b)

/* The word comes, in pieces perhaps; their buffers go back. */
static void word_of(int s, exs_qhandle_t q, long a)
{
	size_t n = 0;

	while (n < 4) {
		exs_event_t e = t_event(q);
		size_t len = e.exs_evt_un.exs_evt_xfer.exs_evt_length;
		void *at = e.exs_evt_un.exs_evt_xfer.exs_evt_buffer;

		T_EQ(e.exs_errno, 0);
		T(len && len <= 4 - n && !memcmp(at, &"four"[n], len));
		n += len;
		T_OK(exs_x_provide(q, at, ROOM, 1));
		if (!more(&e))
			receive(s, q, a);
	}
}

/* Nothing comes before bytes do; then each batch of them once. */
static void quiet_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEPTH));
	char rooms[ROOMS][ROOM];

	T_OK(exs_x_provide(q, rooms, ROOM, ROOMS));
	receive(s, q, 1);
	for (int i = 0; i < 50; i++) {
		t_no_event(q);
		t_tell(ctl, 1);
		word_of(s, q, 1);
	}
	T_EQ(exs_cancel(s, (exs_ahandle_t)1, EXS_CAF_AHANDLE | EXS_CAF_FILDES),
	     1);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	/* What comes now is another receive's. */
	t_tell(ctl, 1);
	t_recv_all(s, rooms[0], 4);
	receive(s, q, 2);
	t_close(s);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	t_tell(ctl, 2);
	T_OK(exs_qdelete(q));
}

static void quiet_b(int s, int ctl)
{
	while (t_ask(ctl) == 1)
		t_send_all(s, "four", 4, 0);
	t_close(s);
}

CONF_DUO(a_receive_that_goes_on_waits_for_bytes, quiet_a, quiet_b)

/* Without a buffer it waits as well, and says so when bytes are there. */
static void bytes_without_a_buffer_end_it(void)
{
	exs_event_t e;
	exs_qhandle_t q;
	char room[4];
	int fd[2];

	conf_pair(fd);
	q = T_OK(exs_qcreate(DEPTH));
	receive(fd[0], q, 1);
	t_no_event(q);
	t_send_all(fd[1], "four", 4, 0);
	e = t_event(q);
	T_EQ(e.exs_errno, ENOBUFS);
	T(!more(&e));
	T_OK(exs_x_provide(q, room, sizeof(room), 1));
	receive(fd[0], q, 2);
	e = t_event(q);
	T_EQ(e.exs_errno, 0);
	T(more(&e));
	T(!memcmp(room, "four", e.exs_evt_un.exs_evt_xfer.exs_evt_length));
	t_close(fd[1]);
	e = t_event(q); /* no buffer is there: the end is bytes, too */
	T(e.exs_errno == ENOBUFS || e.exs_errno == 0);
	t_close(fd[0]);
	T_OK(exs_qdelete(q));
}

/* The last free slot is the operation's own. */
static void a_queue_without_a_free_slot_ends_it(void)
{
	char rooms[2][8];
	exs_event_t e;
	exs_qhandle_t q;
	int fd[2];

	conf_pair(fd);
	q = T_OK(exs_qcreate(1));
	T_OK(exs_x_provide(q, rooms, sizeof(rooms[0]), 2));
	t_send_all(fd[1], "fourfourfour", 12, 0);
	for (size_t n = 0; n < 12;) {
		receive(fd[0], q, 1);
		e = t_event(q);
		T_EQ(e.exs_errno, 0);
		T(!more(&e));
		/* Given last, it is taken first. */
		T(e.exs_evt_un.exs_evt_xfer.exs_evt_buffer == rooms[0]);
		T(!memcmp(rooms[0], &"fourfourfour"[n],
			  e.exs_evt_un.exs_evt_xfer.exs_evt_length));
		n += e.exs_evt_un.exs_evt_xfer.exs_evt_length;
		T_OK(exs_x_provide(q, rooms[0], sizeof(rooms[0]), 1));
	}
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

static void one_accept_serves_many_connections(void)
{
	exs_qhandle_t q;
	struct t_addr at;
	exs_event_t e;
	int l, c[6];

	t_init();
	q = T_OK(exs_qcreate(4));
	l = t_listener(T_IPV4, &at);
	T_OK(exs_accept(l, NULL, SOCK_CLOEXEC | EXS_X_MULTI, q,
			(exs_ahandle_t)3));
	for (int i = 0; i < 6; i++)
		c[i] = t_connect(&at);
	for (int i = 0; i < 6; i++) {
		e = t_event(q);
		T_EQ(e.exs_evt_type, EXS_EVT_ACCEPT);
		T_EQ((long)e.exs_evt_ahandle, 3);
		T_EQ(e.exs_errno, 0);
		t_close(e.exs_evt_un.exs_evt_accept.exs_evt_newfd);
		if (!more(&e)) /* the queue was full */
			T_OK(exs_accept(l, NULL, SOCK_CLOEXEC | EXS_X_MULTI, q,
					(exs_ahandle_t)3));
	}
	t_no_event(q);
	for (int i = 0; i < 6; i++)
		t_close(c[i]);
	t_close(l);
	e = t_event(q);
	T_EQ(e.exs_errno, ECANCELED);
	T(!more(&e));
	T_OK(exs_qdelete(q));
}

static void a_deadline_ends_it(void)
{
	struct timespec past = { 0 };
	exs_x_op_t o = { .exs_x_type = EXS_EVT_RECV,
			 .exs_x_flags = EXS_X_MULTI,
			 .exs_x_until = &past };
	exs_qhandle_t q;
	exs_event_t e;
	int fd[2];

	conf_pair(fd);
	q = T_OK(exs_qcreate(4));
	o.exs_x_socket = fd[0];
	T_EQ(exs_x_submit(q, &o, 1), 1);
	e = t_event(q);
	T_EQ(e.exs_errno, ETIMEDOUT);
	T(!more(&e));
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

static void what_makes_no_sense_is_refused(void)
{
	exs_acceptaddr_t a = { 0 };
	struct t_addr at;
	exs_qhandle_t q;
	char room[8];
	int fd[2], l;

	conf_pair(fd);
	q = T_OK(exs_qcreate(4));
	l = t_listener(T_IPV4, &at);
	T_ERR(exs_recv(fd[0], room, 8, EXS_X_MULTI, q, NULL, 0), EINVAL);
	T_ERR(exs_recv(fd[0], NULL, 0, EXS_X_MULTI | MSG_WAITALL, q, NULL, 0),
	      EINVAL);
	T_ERR(exs_recv(fd[0], NULL, 0, EXS_X_MULTI, T_SYNC, 0), EINVAL);
	T_ERR(exs_send(fd[0], room, 8, EXS_X_MULTI, q, NULL, 0), EINVAL);
	T_ERR(exs_accept(l, &a, EXS_X_MULTI, q, NULL), EINVAL);
	T_ERR(exs_accept(l, NULL, EXS_X_MULTI, T_SYNC), EINVAL);
	T_ERR(exs_x_provide(q, NULL, 8, 1), EFAULT);
	T_ERR(exs_x_provide(q, room, 0, 1), EINVAL);
	T_ERR(exs_x_provide(q, room, 8, -1), EINVAL);
	T_ERR(exs_x_provide(q + 1, room, 8, 1), EINVAL);
	T_EQ(exs_x_provide(q, room, 8, 0), 0);
	t_close(l);
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

/* --- one that has much, beside one that has a byte ----------------------- */

#define FEW   64
#define FIRST (1024 * FEW)
#define ALL   (32000 * FEW)

struct flood {
	int much, one;
};

/* Faster than a receive of FEW bytes after the other. */
static void *flood(void *arg)
{
	const struct flood *f = arg;
	static char bytes[FIRST];

	t_send_all(f->much, bytes, FIRST, 0);
	t_send_all(f->one, "x", 1, 0);
	for (int n = FIRST; n < ALL; n += FIRST)
		t_send_all(f->much, bytes, ALL - n < FIRST ? ALL - n : FIRST,
			   0);
	return NULL;
}

static uint64_t received(int s)
{
	exs_x_sockinfo_t i;

	T_OK(exs_x_sockinfo(s, &i));
	return i.exs_x_rx_bytes;
}

/* Both are the library's thread's to receive: nobody asks for events meanwhile,
 * and they come in the order in which the bytes were received. When the one
 * byte is there, no more than FIRST were sent of the others; half of all is
 * generous for what is received until it is looked at. */
static void a_stream_without_end_delays_no_other(void)
{
	exs_qhandle_t q;
	struct flood f;
	uint64_t start;
	long before = 0;
	int much[2], one[2];
	pthread_t t;
	char *rooms, x;

	conf_pair(much);
	conf_pair(one);
	start = received(much[0]);
	rooms = malloc(2 * ALL); /* some are not filled */
	q = T_OK(exs_qcreate(EXS_QDEPTH_MAX));
	T_OK(exs_x_qfd(q)); /* no thread is to ask for events */
	T_OK(exs_x_provide(q, rooms, FEW, 2 * ALL / FEW));
	receive(much[0], q, 1);
	T_OK(exs_recv(one[0], &x, 1, 0, q, (exs_ahandle_t)2,
		      EXS_MHANDLE_UNREGISTERED));
	f = (struct flood){ .much = much[1], .one = one[1] };
	t = t_thread(flood, &f);
	t_thread_join(t);
	T_UNTIL(received(much[0]) - start == ALL);
	for (;;) {
		exs_event_t e = t_event(q);

		T_EQ(e.exs_errno, 0);
		if ((long)e.exs_evt_ahandle == 2)
			break;
		before += e.exs_evt_un.exs_evt_xfer.exs_evt_length;
	}
	T(before < ALL / 2);
	t_close(much[0]);
	t_close(much[1]);
	t_close(one[0]);
	t_close(one[1]);
	T_OK(exs_qdelete(q));
	free(rooms);
}

static const struct t_row rows[] = {
	CONF_ROWS(one_receive_gets_a_stream),
	CONF_ROWS(a_receive_that_goes_on_waits_for_bytes),
	T_ROW(bytes_without_a_buffer_end_it),
	T_ROW(a_queue_without_a_free_slot_ends_it),
	T_ROW(one_accept_serves_many_connections),
	T_ROW(a_deadline_ends_it),
	T_ROW(a_stream_without_end_delays_no_other),
	T_ROW(what_makes_no_sense_is_refused),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "multi", rows, T_COUNT(rows));
}
