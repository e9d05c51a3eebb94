/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations on several buffers, over the fabric: the buffers are moved as if
 * they were one, and each operation yields one event. */
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define DEEP   16
#define ROOM   60000
#define VOLUME ((uint64_t)(24 << 20) / t_slow())

/* A message whose pieces lie apart in a buffer of its own. */
struct message {
	exs_msghdr_t h;
	exs_iovec_t v[12];
	char *buf;
	size_t len;
};

/* Cuts len bytes into pieces, some of them empty. */
static void cut(struct message *m, size_t len, struct t_rng *r, exs_mhandle_t h)
{
	char *at = m->buf;
	int n = 1 + (int)t_below(r, T_COUNT(m->v));

	m->len = len;
	for (int i = 0; i < n; i++) {
		size_t part = i == n - 1 ? len : t_below(r, len + 1);

		m->v[i] = (exs_iovec_t){ at, part, t_below(r, 2) ? h : 0 };
		at += part + 1;
		len -= part;
	}
	m->h = (exs_msghdr_t){ .exs_msg_iov = m->v, .exs_msg_iovlen = n };
}

static void fill(struct message *m, uint64_t pos)
{
	for (int i = 0; i < m->h.exs_msg_iovlen; i++) {
		t_fill(m->v[i].exs_iov_base, m->v[i].exs_iov_len, 1, pos);
		pos += m->v[i].exs_iov_len;
	}
}

static void check(struct message *m, size_t len, uint64_t pos)
{
	for (int i = 0; i < m->h.exs_msg_iovlen && len; i++) {
		size_t part = m->v[i].exs_iov_len;

		if (part > len)
			part = len;
		t_check_bytes(m->v[i].exs_iov_base, part, 1, pos);
		pos += part;
		len -= part;
	}
	T_EQ(len, 0);
}

static void post_sendmsg(int s, struct message *m, int flags, exs_qhandle_t q,
			 long a)
{
	T_EQ(T_OK(exs_sendmsg(s, &m->h, flags, q, (exs_ahandle_t)a)), 0);
}

static void post_recvmsg(int s, struct message *m, int flags, exs_qhandle_t q,
			 long a)
{
	T_EQ(T_OK(exs_recvmsg(s, &m->h, flags, q, (exs_ahandle_t)a)), 0);
}

/* The next event is of this message. */
static size_t event_of(exs_qhandle_t q, int type, struct message *m, long a)
{
	exs_event_t e = t_event(q);

	T_EQ(e.exs_evt_type, type);
	T_EQ((long)e.exs_evt_ahandle, a);
	T_EQ(e.exs_errno, 0);
	T(e.exs_evt_un.exs_evt_xfermsg.exs_evt_msg == &m->h);
	T_EQ(e.exs_evt_un.exs_evt_xfermsg.exs_evt_flags, 0);
	return e.exs_evt_un.exs_evt_xfermsg.exs_evt_length;
}

static struct message *messages(exs_mhandle_t *ret)
{
	struct message *m = calloc(DEEP, sizeof(*m));
	size_t room = ROOM + T_COUNT(m->v);
	char *all = malloc(DEEP * room);

	for (int i = 0; i < DEEP; i++)
		m[i].buf = all + (size_t)i * room;
	*ret = T_OK(exs_mregister(all, DEEP * room, 0));
	return m;
}

static void forget(struct message *m, exs_mhandle_t h)
{
	T_OK(exs_mderegister(h, 0));
	free(m[0].buf);
	free(m);
}

static void random_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));
	struct t_rng r = { 4711 };
	uint64_t pos = 0, next, done = 0;
	exs_mhandle_t h;
	struct message *m = messages(&h);

	for (next = 0; pos < VOLUME; next++) {
		struct message *one = &m[next % DEEP];

		if (next >= DEEP) {
			T_EQ(event_of(q, EXS_EVT_SENDMSG, one, (long)done++),
			     one->len);
		}
		cut(one, t_chunk(&r, ROOM), &r, h);
		fill(one, pos);
		pos += one->len;
		post_sendmsg(s, one, 0, q, (long)next);
	}
	for (; done < next; done++)
		T_EQ(event_of(q, EXS_EVT_SENDMSG, &m[done % DEEP], (long)done),
		     m[done % DEEP].len);
	t_no_event(q);
	T_OK(exs_shutdown(s, SHUT_WR, T_SYNC));
	t_recv_end(s);
	forget(m, h);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void random_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));
	struct t_rng r = { 815 };
	uint64_t pos = 0, done;
	exs_mhandle_t h;
	struct message *m = messages(&h);

	for (long i = 0; i < DEEP; i++) {
		cut(&m[i], t_chunk(&r, ROOM), &r, h);
		post_recvmsg(s, &m[i], i % 3 ? 0 : MSG_WAITALL, q, i);
	}
	for (done = 0;; done++) {
		struct message *one = &m[done % DEEP];
		size_t n = event_of(q, EXS_EVT_RECVMSG, one, (long)done);

		T(n <= one->len);
		check(one, n, pos);
		pos += n;
		if (!n)
			break;
		if (done % DEEP % 3 == 0 && pos < VOLUME)
			T(n == one->len);
		cut(one, t_chunk(&r, ROOM), &r, h);
		post_recvmsg(s, one, done % DEEP % 3 ? 0 : MSG_WAITALL, q,
			     (long)(done + DEEP));
	}
	T(pos >= VOLUME);
	for (int i = 1; i < DEEP; i++)
		T_EQ(t_event(q).exs_evt_un.exs_evt_xfermsg.exs_evt_length, 0);
	t_no_event(q);
	forget(m, h);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(pieces_are_moved_as_one_buffer, random_a, random_b)

/* Not waiting for all, a receive completes with what is there: within a piece,
 * at its end, or in a later one. */
static void there_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	static const size_t sizes[] = { 3, 10, 14, 20 };
	static char buf[20];
	exs_iovec_t v[] = { { buf, 10, 0 },
			    { NULL, 0, 0 },
			    { buf + 10, 10, 0 } };
	struct message m = { .h = { .exs_msg_iov = v, .exs_msg_iovlen = 3 } };
	size_t got;

	for (size_t i = 0; i < T_COUNT(sizes); i++) {
		memset(buf, 0, sizeof(buf));
		t_expect(ctl, i);
		/* They may arrive in several pieces. */
		for (got = 0; got < sizes[i];) {
			v[0] = (exs_iovec_t){ buf + got, 10, 0 };
			v[2] = (exs_iovec_t){ buf + got + 10, 10 - got, 0 };
			if (got > 10) {
				v[0].exs_iov_len = 0;
				v[2] = (exs_iovec_t){ buf + got, 20 - got, 0 };
			}
			post_recvmsg(s, &m, 0, q, 7);
			got += event_of(q, EXS_EVT_RECVMSG, &m, 7);
		}
		T_EQ(got, sizes[i]);
		t_check_bytes(buf, got, 1, 100 * i);
		t_tell(ctl, i);
	}
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void there_b(int s, int ctl)
{
	static const size_t sizes[] = { 3, 10, 14, 20 };
	char buf[20];

	for (size_t i = 0; i < T_COUNT(sizes); i++) {
		t_fill(buf, sizes[i], 1, 100 * i);
		t_send_all(s, buf, sizes[i], 0);
		t_tell(ctl, i);
		t_expect(ctl, i);
	}
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_receive_completes_with_what_is_there, there_a, there_b)

/* The synchronous forms. */
static void now_a(int s, int ctl)
{
	struct t_rng r = { 99 };
	struct message m = { .buf = malloc(ROOM + T_COUNT(m.v)) };
	uint64_t pos = 0;

	while (pos < VOLUME / 4) {
		cut(&m, t_chunk(&r, ROOM), &r, 0);
		fill(&m, pos);
		T_EQ(T_OK(exs_sendmsg(s, &m.h, 0, T_SYNC)), m.len);
		pos += m.len;
	}
	t_tell(ctl, pos);
	free(m.buf);
	t_recv_end(s);
	t_close(s);
}

static void now_b(int s, int ctl)
{
	struct t_rng r = { 98 };
	struct message m = { .buf = malloc(ROOM + T_COUNT(m.v)) };
	uint64_t pos = 0, end = 0;

	while (!end || pos < end) {
		size_t n;

		if (!end && pos >= VOLUME / 4)
			end = t_ask(ctl);
		if (end && pos == end)
			break;
		cut(&m, t_chunk(&r, ROOM), &r, 0);
		m.h.exs_msg_flags = -1;
		n = T_OK(exs_recvmsg(s, &m.h, MSG_PEEK, T_SYNC));
		T(n > 0 && n <= m.len);
		check(&m, n, pos);
		n = T_OK(exs_recvmsg(s, &m.h, 0, T_SYNC));
		T(n > 0 && n <= m.len);
		T_EQ(m.h.exs_msg_flags, 0);
		check(&m, n, pos);
		pos += n;
	}
	T_ERR(exs_recvmsg(s, &m.h, MSG_DONTWAIT, T_SYNC), EAGAIN);
	free(m.buf);
	t_close(s);
}

CONF_DUO(synchronous_calls_take_pieces_too, now_a, now_b)

/* Waiting for all fills every piece. */
static void all_a(int s, int ctl)
{
	t_send_stream(s, 1, 0, 30000, 700);
	t_expect(ctl, 1);
	t_send_stream(s, 1, 30000, 30000, 700);
	t_expect(ctl, 2);
	t_close(s);
}

static void all_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	struct message m = { .buf = malloc(ROOM + T_COUNT(m.v)) };
	struct t_rng r = { 5 };

	cut(&m, 30000, &r, 0);
	T_EQ(T_OK(exs_recvmsg(s, &m.h, MSG_WAITALL, T_SYNC)), 30000);
	check(&m, 30000, 0);
	cut(&m, 30000, &r, 0);
	post_recvmsg(s, &m, MSG_WAITALL, q, 1);
	t_tell(ctl, 1);
	T_EQ(event_of(q, EXS_EVT_RECVMSG, &m, 1), 30000);
	check(&m, 30000, 30000);
	/* The end comes first. */
	cut(&m, 30000, &r, 0);
	post_recvmsg(s, &m, MSG_WAITALL, q, 2);
	t_tell(ctl, 2);
	T_EQ(event_of(q, EXS_EVT_RECVMSG, &m, 2), 0);
	T_OK(exs_qdelete(q));
	free(m.buf);
	t_close(s);
}

CONF_DUO(waiting_for_all_fills_every_piece, all_a, all_b)

#define WRITERS 4
#define ROUNDS	200

struct writer {
	int s;
	char id;
};

/* Messages of ten pieces that all have the writer's letter. */
static void *write_letters(void *arg)
{
	struct writer *w = arg;
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	exs_iovec_t v[10];
	struct message m = { .h = { .exs_msg_iov = v, .exs_msg_iovlen = 10 } };
	char buf[100];

	memset(buf, w->id, sizeof(buf));
	for (int i = 0; i < 10; i++)
		v[i] = (exs_iovec_t){ buf + 10 * i, 10, 0 };
	for (int i = 0; i < ROUNDS; i++) {
		if (i % 2) {
			post_sendmsg(w->s, &m, 0, q, i);
			T_EQ(event_of(q, EXS_EVT_SENDMSG, &m, i), 100);
		} else {
			T_EQ(T_OK(exs_sendmsg(w->s, &m.h, 0, T_SYNC)), 100);
		}
	}
	T_OK(exs_qdelete(q));
	return NULL;
}

static void together_a(int s, int ctl)
{
	struct writer w[WRITERS];
	pthread_t t[WRITERS];

	for (int i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ s, (char)('a' + i) };
		t[i] = t_thread(write_letters, &w[i]);
	}
	for (int i = 0; i < WRITERS; i++)
		t_thread_join(t[i]);
	t_recv_end(s);
	t_close(s);
}

static void together_b(int s, int ctl)
{
	char buf[100];

	for (int i = 0; i < WRITERS * ROUNDS; i++) {
		t_recv_all(s, buf, sizeof(buf));
		for (size_t k = 1; k < sizeof(buf); k++)
			T_EQ(buf[k], buf[0]);
	}
	t_close(s);
}

CONF_DUO(messages_of_several_threads_stay_together, together_a, together_b)

#define CYCLE 251 /* byte i of the stream is i % CYCLE */

static void check_run(const unsigned char *p, int n)
{
	for (int i = 1; i < n; i++)
		T_EQ(p[i], (p[0] + i) % CYCLE);
}

/* Receives messages of ten pieces until the end of the stream. */
static void *read_in_pieces(void *arg)
{
	int s = *(int *)arg, n;
	unsigned char buf[100];
	exs_iovec_t v[10];
	exs_msghdr_t m = { .exs_msg_iov = v, .exs_msg_iovlen = 10 };

	for (int i = 0; i < 10; i++)
		v[i] = (exs_iovec_t){ buf + 10 * i, 10, 0 };
	while ((n = T_OK(exs_recvmsg(s, &m, 0, T_SYNC))) > 0)
		check_run(buf, n);
	return NULL;
}

/* The first calls wait behind an operation, the next ones beside each other. */
static void readers_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	unsigned char first[CYCLE];
	pthread_t t[WRITERS];

	t_post_recv(s, first, sizeof(first), MSG_WAITALL, q, 1);
	for (int i = 0; i < WRITERS; i++)
		t[i] = t_thread(read_in_pieces, &s);
	t_tell(ctl, 1);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), CYCLE);
	check_run(first, CYCLE);
	for (int i = 0; i < WRITERS; i++)
		t_thread_join(t[i]);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void readers_b(int s, int ctl)
{
	char buf[CYCLE];

	for (int i = 0; i < CYCLE; i++)
		buf[i] = (char)i;
	t_expect(ctl, 1);
	for (int i = 0; i < WRITERS * ROUNDS; i++)
		t_send_all(s, buf, sizeof(buf), 0);
	t_close(s);
}

CONF_DUO(pieces_are_consecutive_for_several_readers, readers_a, readers_b)

/* Each gets its event from a cancel and from a close, and took nothing. */
static void ends_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(8));
	static char room[40];
	exs_iovec_t v[] = { { room, 20, 0 }, { room + 20, 20, 0 } };
	struct message m = { .h = { .exs_msg_iov = v, .exs_msg_iovlen = 2 } };
	exs_event_t e;

	post_recvmsg(s, &m, MSG_WAITALL, q, 1);
	T_EQ(exs_cancel(s, (exs_ahandle_t)1, EXS_CAF_FILDES | EXS_CAF_AHANDLE),
	     1);
	e = t_event(q);
	T_EQ(e.exs_evt_type, EXS_EVT_RECVMSG);
	T_EQ(e.exs_errno, ECANCELED);
	T_EQ(e.exs_evt_un.exs_evt_xfermsg.exs_evt_length, 0);
	t_tell(ctl, 1);
	t_recv_all(s, room, 40);
	t_check_bytes(room, 40, 1, 0);
	post_recvmsg(s, &m, 0, q, 2);
	t_close(s);
	e = t_event(q);
	T_EQ((long)e.exs_evt_ahandle, 2);
	T_EQ(e.exs_errno, ECANCELED);
	t_no_event(q);
	T_OK(exs_qdelete(q));
}

static void ends_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_stream(s, 1, 0, 40, 40);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(cancelled_and_closed_messages_say_so, ends_a, ends_b)

/* As many pieces as there may be, of a byte each. */
static void many_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	exs_iovec_t *v = calloc(IOV_MAX, sizeof(*v));
	struct message m = { .h = { .exs_msg_iov = v,
				    .exs_msg_iovlen = IOV_MAX } };
	char buf[2 * IOV_MAX];

	for (int i = 0; i < IOV_MAX; i++)
		v[i] = (exs_iovec_t){ buf + 2 * i, 1, 0 };
	for (int i = 0; i < IOV_MAX; i++)
		t_fill(v[i].exs_iov_base, 1, 1, (uint64_t)i);
	post_sendmsg(s, &m, 0, q, 1);
	/* The array was copied. */
	free(v);
	T_EQ(event_of(q, EXS_EVT_SENDMSG, &m, 1), IOV_MAX);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void many_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	exs_iovec_t *v = calloc(IOV_MAX, sizeof(*v));
	struct message m = { .h = { .exs_msg_iov = v,
				    .exs_msg_iovlen = IOV_MAX } };
	char buf[2 * IOV_MAX];

	for (int i = 0; i < IOV_MAX; i++)
		v[i] = (exs_iovec_t){ buf + 2 * i, 1, 0 };
	post_recvmsg(s, &m, MSG_WAITALL, q, 1);
	T_EQ(event_of(q, EXS_EVT_RECVMSG, &m, 1), IOV_MAX);
	for (int i = 0; i < IOV_MAX; i++)
		t_check_bytes(buf + 2 * i, 1, 1, (uint64_t)i);
	free(v);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(as_many_pieces_as_there_may_be, many_a, many_b)

#define BATCH 300

/* Many operations by few calls: each has its event, and the bytes are in the
 * order of all. Sizes change from nothing to more than is sent together. */
static void batch_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(BATCH));
	static exs_x_op_t o[BATCH];
	struct t_rng r = { 77 };
	char *buf = malloc(VOLUME);
	uint64_t pos = 0;
	long next = 0;

	t_fill(buf, VOLUME, 1, 0);
	while (pos < VOLUME / 4) {
		int n = 1 + (int)t_below(&r, BATCH);

		for (int i = 0; i < n; i++) {
			size_t len = t_below(&r, 8) ? t_below(&r, 20)
						    : t_below(&r, 4000);

			o[i] = (exs_x_op_t){
				.exs_x_type = EXS_EVT_SEND,
				.exs_x_socket = s,
				.exs_x_buffer = buf + pos,
				.exs_x_length = len,
				.exs_x_flags = t_below(&r, 10) ? 0 : MSG_MORE,
				.exs_x_ahandle = (exs_ahandle_t)(next + i),
			};
			pos += len;
		}
		o[n - 1].exs_x_flags = 0;
		T_EQ(exs_x_submit(q, o, n), n);
		for (int i = 0; i < n; i++)
			T_EQ(t_event_is(q, EXS_EVT_SEND, next + i),
			     o[i].exs_x_length);
		next += n;
	}
	t_no_event(q);
	t_tell(ctl, pos);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	free(buf);
	t_close(s);
}

static void batch_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(BATCH));
	static exs_x_op_t o[BATCH];
	static char buf[BATCH][100];
	uint64_t pos = 0, end = 0;

	for (int i = 0; i < BATCH; i++)
		o[i] = (exs_x_op_t){ .exs_x_type = EXS_EVT_RECV,
				     .exs_x_socket = s,
				     .exs_x_buffer = buf[i],
				     .exs_x_length = sizeof(buf[i]),
				     .exs_x_ahandle = (exs_ahandle_t)(long)i };
	T_EQ(exs_x_submit(q, o, BATCH), BATCH);
	for (long i = 0; !end || pos < end; i = (i + 1) % BATCH) {
		size_t n;

		if (!end && pos >= VOLUME / 4)
			end = t_ask(ctl);
		if (end && pos == end)
			break;
		n = t_event_is(q, EXS_EVT_RECV, i);
		T(n > 0);
		t_check_bytes(buf[i], n, 1, pos);
		pos += n;
		T_EQ(exs_x_submit(q, &o[i], 1), 1);
	}
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), BATCH);
	for (int i = 0; i < BATCH; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(a_batch_is_as_its_operations, batch_a, batch_b)

#define SHORT 64

/* Short sends of a batch come as one: who waits for the first has all. */
static void once_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SHORT));
	exs_x_op_t o[SHORT];
	char buf[8 * SHORT];

	t_fill(buf, sizeof(buf), 1, 0);
	for (int i = 0; i < SHORT; i++)
		o[i] = (exs_x_op_t){ .exs_x_type = EXS_EVT_SEND,
				     .exs_x_socket = s,
				     .exs_x_buffer = buf + 8 * i,
				     .exs_x_length = 8 };
	for (int i = 0; i < 20; i++) {
		exs_event_t ev[SHORT];

		T_EQ(exs_x_submit(q, o, SHORT), SHORT);
		T_EQ(exs_qdequeue(q, ev, -SHORT, NULL), SHORT);
		t_expect(ctl, sizeof(buf));
	}
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void once_b(int s, int ctl)
{
	char buf[16 * SHORT];

	for (int i = 0; i < 20; i++) {
		T_EQ(T_OK(t_recv(s, buf, sizeof(buf), 0)), 8 * SHORT);
		t_check_bytes(buf, 8 * SHORT, 1, 0);
		t_tell(ctl, 8 * SHORT);
	}
	t_close(s);
}

CONF_DUO(short_sends_of_a_batch_come_at_once, once_a, once_b)

/* Sockets, directions and kinds in one call. */
static void a_batch_may_be_of_several_sockets(void)
{
	static char in[4][10], hello[] = "hello", there[] = "there";
	int fd[4][2], n = 0;
	exs_x_op_t o[12];
	exs_iovec_t v[4][2];
	exs_msghdr_t m[4];
	exs_qhandle_t q;

	t_init();
	q = T_OK(exs_qcreate(12));
	for (int i = 0; i < 4; i++) {
		t_pair(T_IPV4, fd[i]);
		t_settle_pair(fd[i][0], fd[i][1], conf_here());
		v[i][0] = (exs_iovec_t){ in[i], 3, 0 };
		v[i][1] = (exs_iovec_t){ in[i] + 3, 7, 0 };
		m[i] = (exs_msghdr_t){ .exs_msg_iov = v[i],
				       .exs_msg_iovlen = 2 };
	}
	for (int i = 0; i < 4; i++) {
		o[n++] = (exs_x_op_t){ .exs_x_type = EXS_EVT_RECVMSG,
				       .exs_x_socket = fd[i][1],
				       .exs_x_buffer = &m[i],
				       .exs_x_flags = MSG_WAITALL };
		o[n++] = (exs_x_op_t){ .exs_x_type = EXS_EVT_SEND,
				       .exs_x_socket = fd[i][0],
				       .exs_x_buffer = hello,
				       .exs_x_length = 5 };
		o[n++] = (exs_x_op_t){ .exs_x_type = EXS_EVT_SEND,
				       .exs_x_socket = fd[i][0],
				       .exs_x_buffer = there,
				       .exs_x_length = 5 };
	}
	T_EQ(exs_x_submit(q, o, n), n);
	for (int i = 0; i < n; i++)
		T_EQ(t_event(q).exs_errno, 0);
	t_no_event(q);
	for (int i = 0; i < 4; i++) {
		T(!memcmp(in[i], "hellothere", 10));
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
	T_OK(exs_qdelete(q));
}

static const struct t_row rows[] = {
	CONF_ROWS(pieces_are_moved_as_one_buffer),
	CONF_ROWS(a_receive_completes_with_what_is_there),
	CONF_ROWS(synchronous_calls_take_pieces_too),
	CONF_ROWS(waiting_for_all_fills_every_piece),
	CONF_ROWS(messages_of_several_threads_stay_together),
	CONF_ROWS(pieces_are_consecutive_for_several_readers),
	CONF_ROWS(cancelled_and_closed_messages_say_so),
	CONF_ROWS(as_many_pieces_as_there_may_be),
	CONF_ROWS(a_batch_is_as_its_operations),
	CONF_ROWS(short_sends_of_a_batch_come_at_once),
	T_ROW(a_batch_may_be_of_several_sockets),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "messages", rows, T_COUNT(rows));
}
