/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous operations over the fabric: each accepted one yields exactly one
 * event, in every order of ends, closes and cancels. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define DEEP	 64
#define PIECE	 50000
#define VOLUME	 ((uint64_t)(96 << 20) / t_slow())
#define IDLERS	 5
#define OP_CLOSE 1000

/* Counts each event by its handle; each may come once. */
struct tally {
	int seen[OP_CLOSE + 1];
	int n;
};

static void count_event(struct tally *t, const exs_event_t *e)
{
	long a = (long)e->exs_evt_ahandle;

	T(a >= 0 && a <= OP_CLOSE);
	T_MSG(t->seen[a] == 0, "event %ld comes twice", a);
	t->seen[a]++;
	t->n++;
}

static void pipeline_send(int s, exs_qhandle_t q)
{
	char *bufs = malloc((size_t)DEEP * PIECE);
	uint64_t pos = 0, done = 0, count = VOLUME / PIECE, next = 0;

	while (done < count) {
		while (next < count && next - done < DEEP) {
			char *buf = bufs + next % DEEP * PIECE;

			t_fill(buf, PIECE, 1, pos);
			t_post_send(s, buf, PIECE, 0, q, next % DEEP);
			pos += PIECE;
			next++;
		}
		T_EQ(t_event_is(q, EXS_EVT_SEND, done % DEEP), PIECE);
		done++;
	}
	free(bufs);
}

static void deep_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));

	pipeline_send(s, q);
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

#define ROOM 70000

/* Receives are filled in the order of posting, each with at least a byte. */
static void deep_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));
	char *bufs = malloc((size_t)DEEP * ROOM);
	uint64_t pos = 0, len = VOLUME / PIECE * PIECE, done;
	long i;

	for (i = 0; i < DEEP; i++)
		t_post_recv(s, bufs + i * ROOM, ROOM, 0, q, i);
	for (done = 0; pos < len; done++) {
		char *buf = bufs + done % DEEP * ROOM;
		size_t n = t_event_is(q, EXS_EVT_RECV, done % DEEP);

		T(n > 0 && n <= ROOM);
		t_check_bytes(buf, n, 1, pos);
		pos += n;
		t_post_recv(s, buf, ROOM, 0, q, done % DEEP);
	}
	T_EQ(pos, len);
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), DEEP);
	for (i = 0; i < DEEP; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	t_no_event(q);
	T_OK(exs_qdelete(q));
	free(bufs);
	t_close(s);
}

CONF_DUO(deep_pipelines_keep_their_order, deep_a, deep_b)

static void mixed_b(int s, int ctl)
{
	t_recv_stream(s, 1, 0, VOLUME / PIECE * PIECE, 123456);
	t_close(s);
}

CONF_DUO(asynchronous_sends_meet_synchronous_receives, deep_a, mixed_b)

#define BATCHED	 256
#define MOST	 6000
#define SUBMITS	 4000
#define SHARE(n) (1 + (n) / 4)

/* Mostly short, often such that some go together, seldom longer. */
static size_t some_length(struct t_rng *r)
{
	uint64_t kind = t_below(r, 8);

	return t_below(r, kind > 3 ? 60 : kind ? 3000 : MOST);
}

/* Random lengths, none among them; more at once than is ever handled together.
 * In a slot's memory until its event. */
static void batches_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(BATCHED));
	char *bufs = malloc((size_t)BATCHED * MOST);
	size_t len[BATCHED];
	exs_x_op_t o[BATCHED];
	uint64_t next = 0, done = 0, pos = 0;
	struct t_rng r = { 5 };

	for (int i = 0; i < SUBMITS; i++) {
		int n = (int)t_below(&r, BATCHED - (next - done) + 1);

		for (int k = 0; k < n; k++) {
			uint64_t at = (next + (uint64_t)k) % BATCHED;

			len[at] = some_length(&r);
			t_fill(bufs + at * MOST, len[at], 3, pos);
			pos += len[at];
			o[k] = (exs_x_op_t){
				.exs_x_type = EXS_EVT_SEND,
				.exs_x_socket = s,
				.exs_x_buffer = bufs + at * MOST,
				.exs_x_length = len[at],
				.exs_x_flags = t_below(&r, 9) ? 0 : MSG_MORE,
				.exs_x_ahandle = (exs_ahandle_t)at,
			};
		}
		T_EQ(exs_x_submit(q, o, n), n);
		next += (uint64_t)n;
		for (n = (int)t_below(&r, SHARE(next - done)); n; n--, done++)
			T_EQ(t_event_is(q, EXS_EVT_SEND, done % BATCHED),
			     len[done % BATCHED]);
	}
	for (; done < next; done++)
		T_EQ(t_event_is(q, EXS_EVT_SEND, done % BATCHED),
		     len[done % BATCHED]);
	t_no_event(q);
	T_OK(exs_qdelete(q));
	free(bufs);
	T_EQ(write(ctl, &pos, sizeof(pos)), sizeof(pos));
	t_recv_end(s);
	t_close(s);
}

static void batches_b(int s, int ctl)
{
	char buf[20000];
	uint64_t pos = 0, all = UINT64_MAX;
	struct t_rng r = { 6 };

	while (pos < all) {
		struct pollfd p = { .fd = ctl, .events = POLLIN };
		ssize_t n =
			exs_recv(s, buf, t_chunk(&r, sizeof(buf)), MSG_DONTWAIT,
				 EXS_QHANDLE_INVALID, NULL, 0);

		if (n > 0) {
			t_check_bytes(buf, (size_t)n, 3, pos);
			pos += (uint64_t)n;
		} else if (all == UINT64_MAX && poll(&p, 1, 1) == 1) {
			T_EQ(read(ctl, &all, sizeof(all)), sizeof(all));
		}
	}
	T_EQ(pos, all);
	t_close(s);
}

CONF_DUO(batches_have_their_events_in_order, batches_a, batches_b)

/* Idle receives, and sends that have no room: a close gives each its event
 * and then its own. */
static void close_busy_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(64));
	static char room[IDLERS][100];
	struct tally t = { .n = 0 };
	size_t big = 16 << 20;
	char *buf = calloc(1, big);
	exs_event_t e;
	long i;

	for (i = 0; i < IDLERS; i++)
		t_post_recv(s, room[i], sizeof(room[i]), 0, q, i);
	for (i = 0; i < IDLERS; i++)
		t_post_send(s, buf, big, 0, q, 100 + i);
	T_EQ(exs_close(s, q, (exs_ahandle_t)OP_CLOSE), 0);
	do {
		e = t_event(q);
		count_event(&t, &e);
	} while (e.exs_evt_type != EXS_EVT_CLOSE);
	T_EQ((long)e.exs_evt_ahandle, OP_CLOSE);
	T_EQ(e.exs_errno, 0);
	T_EQ(t.n, 2 * IDLERS + 1);
	t_no_event(q);
	/* The libraries under a fabric open descriptors when they like. */
	T_EQ(t_send(s, "x", 1, MSG_NOSIGNAL), -1);
	T_EQ(errno == EBADF || errno == ENOTSOCK, 1);
	T_OK(exs_qdelete(q));
	free(buf);
	t_tell(ctl, 1);
}

static void close_busy_b(int s, int ctl)
{
	char buf[65536];

	t_expect(ctl, 1);
	while (t_recv(s, buf, sizeof(buf), 0) > 0)
		;
	t_close(s);
}

CONF_DUO(close_gives_each_outstanding_operation_one_event, close_busy_a,
	 close_busy_b)

static void idle_receives_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(IDLERS));
	static char room[IDLERS][100];
	long i;

	for (i = 0; i < IDLERS; i++)
		t_post_recv(s, room[i], sizeof(room[i]), 0, q, i);
	t_tell(ctl, 1);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 0), 4);
	T(!memcmp(room[0], "last", 4));
	for (i = 1; i < IDLERS; i++)
		T_EQ(t_event_is(q, EXS_EVT_RECV, i), 0);
	t_no_event(q);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void idle_receives_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_all(s, "last", 4, 0);
	t_close(s);
}

CONF_DUO(the_end_of_the_stream_completes_every_receive, idle_receives_a,
	 idle_receives_b)

/* A reset is one error; later receives see the end. */
static void reset_receives_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(IDLERS));
	static char room[IDLERS][100];
	int resets = 0;
	long i;

	for (i = 0; i < IDLERS; i++)
		t_post_recv(s, room[i], sizeof(room[i]), 0, q, i);
	t_send_all(s, "unread", 6, 0);
	t_tell(ctl, 1);
	for (i = 0; i < IDLERS; i++) {
		exs_event_t e = t_event(q);

		T_EQ((long)e.exs_evt_ahandle, i);
		T_EQ(e.exs_evt_un.exs_evt_xfer.exs_evt_length, 0);
		T(e.exs_errno == 0 || e.exs_errno == ECONNRESET);
		resets += e.exs_errno == ECONNRESET;
	}
	T_EQ(resets, 1);
	t_no_event(q);
	T_OK(exs_qdelete(q));
	t_close(s);
}

/* Closes with bytes unread. */
static void reset_receives_b(int s, int ctl)
{
	char byte;

	t_expect(ctl, 1);
	T_EQ(T_OK(t_recv(s, &byte, 1, MSG_PEEK)), 1);
	t_close(s);
}

CONF_DUO(a_reset_completes_every_receive_with_one_error, reset_receives_a,
	 reset_receives_b)

/* The first may have moved something before: then it says how much. */
static void broken_send_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(8));
	size_t big = 32 << 20;
	char *buf = calloc(1, big);
	long i;

	for (i = 0; i < 4; i++)
		t_post_send(s, buf, big, 0, q, i);
	t_tell(ctl, 1);
	for (i = 0; i < 4; i++) {
		exs_event_t e = t_event(q);

		T_EQ(e.exs_evt_type, EXS_EVT_SEND);
		T_EQ((long)e.exs_evt_ahandle, i);
		if (i == 0 && e.exs_errno == 0) {
			T(e.exs_evt_un.exs_evt_xfer.exs_evt_length < big);
			continue;
		}
		T_MSG(e.exs_errno == EPIPE || e.exs_errno == ECONNRESET,
		      "event %ld has %s", i, t_errname(e.exs_errno));
	}
	t_no_event(q);
	T_OK(exs_qdelete(q));
	free(buf);
	t_close(s);
}

CONF_DUO(a_closing_peer_fails_every_outstanding_send, broken_send_a,
	 reset_receives_b)

static void late_shutdown_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(8));
	size_t big = 8 << 20;
	char *buf = malloc(big);
	int i, shut = 0;

	t_fill(buf, big, 1, 0);
	for (i = 0; i < 4; i++)
		t_post_send(s, buf + i * (big / 4), big / 4, 0, q, i);
	T_EQ(exs_shutdown(s, SHUT_WR, q, (exs_ahandle_t)4), 0);
	t_tell(ctl, 1);
	for (i = 0; i < 5; i++) {
		exs_event_t e = t_event(q);

		T_EQ(e.exs_errno, 0);
		shut += e.exs_evt_type == EXS_EVT_SHUTDOWN;
	}
	T_EQ(shut, 1);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	free(buf);
	t_close(s);
}

static void late_shutdown_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_recv_stream(s, 1, 0, 8 << 20, 100000);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_shutdown_comes_after_the_sends_before_it, late_shutdown_a,
	 late_shutdown_b)

static void cancel_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(16));
	static char room[8][100];
	exs_event_t e;
	long i;

	for (i = 0; i < 8; i++)
		t_post_recv(s, room[i], 10, MSG_WAITALL, q, i % 4);
	T_EQ(exs_cancel(s, (exs_ahandle_t)2, EXS_CAF_FILDES | EXS_CAF_AHANDLE),
	     2);
	for (i = 0; i < 2; i++) {
		e = t_event(q);
		T_EQ(e.exs_errno, ECANCELED);
		T_EQ((long)e.exs_evt_ahandle, 2);
	}
	T_EQ(exs_cancel(s, (exs_ahandle_t)99, EXS_CAF_FILDES | EXS_CAF_AHANDLE),
	     0);
	t_tell(ctl, 1);
	for (i = 0; i < 4; i++) {
		static const long left[] = { 0, 1, 3, 0 };
		static const int at[] = { 0, 1, 3, 4 };

		T_EQ(t_event_is(q, EXS_EVT_RECV, left[i]), 10);
		t_check_bytes(room[at[i]], 10, 1, i * 10);
	}
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), 2);
	for (i = 0; i < 2; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	t_no_event(q);
	t_tell(ctl, 2);
	t_recv_stream(s, 2, 0, 1000, 100);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void cancel_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_stream(s, 1, 0, 40, 40);
	t_expect(ctl, 2);
	t_send_stream(s, 2, 0, 1000, 100);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(cancelled_receives_take_no_bytes, cancel_a, cancel_b)

/* A call that waits behind operations is none. */
struct behind {
	int s;
	_Atomic int tid;
	char room[10];
	ssize_t n;
};

static void *recv_behind(void *arg)
{
	struct behind *b = arg;

	b->tid = gettid();
	b->n = exs_recv(b->s, b->room, sizeof(b->room), MSG_WAITALL, T_SYNC,
			EXS_MHANDLE_UNREGISTERED);
	return NULL;
}

static void cancel_call_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct behind b = { .s = s };
	char room[10];
	pthread_t t;

	t_post_recv(s, room, sizeof(room), MSG_WAITALL, q, 0);
	T_EQ(pthread_create(&t, NULL, recv_behind, &b), 0);
	T_UNTIL(b.tid);
	t_until_asleep(b.tid);
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES | EXS_CAF_AHANDLE), 1);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), 0);
	t_tell(ctl, 1);
	T_EQ(pthread_join(t, NULL), 0);
	T_EQ(b.n, sizeof(b.room));
	t_check_bytes(b.room, sizeof(b.room), 1, 0);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void cancel_call_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_stream(s, 1, 0, 10, 10);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_cancel_leaves_synchronous_calls_alone, cancel_call_a, cancel_call_b)

/* A cancelled send says how much went out before, so the stream is known. */
static void cancel_send_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(16));
	size_t big = 32 << 20;
	uint64_t sent = 0;
	char *buf = malloc(big);
	int asked, i;

	t_fill(buf, big, 1, 0);
	t_post_send(s, buf, big, 0, q, 0);
	t_post_send(s, buf, big, 0, q, 1);
	asked = T_OK(exs_cancel(s, NULL, EXS_CAF_FILDES));
	T_EQ(asked, 2);
	for (i = 0; i < 2; i++) {
		exs_event_t e = t_event(q);

		T_EQ(e.exs_evt_type, EXS_EVT_SEND);
		T(e.exs_errno == 0 || e.exs_errno == ECANCELED);
		sent += e.exs_evt_un.exs_evt_xfer.exs_evt_length;
	}
	T(sent < 2 * big);
	t_tell(ctl, sent);
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	free(buf);
	t_close(s);
}

static void cancel_send_b(int s, int ctl)
{
	uint64_t sent = t_ask(ctl);

	t_recv_stream(s, 1, 0, sent, 100000);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_cancelled_send_says_what_went_out, cancel_send_a, cancel_send_b)

/* One queue, many sockets, several threads that submit and dequeue. */
#define CONNS	 8
#define CROWD	 4
#define PER_CONN (4000 / t_slow())

struct crowd {
	exs_qhandle_t q;
	int fd[CONNS];
	char room[CONNS][64];
	_Atomic int received[CONNS];
	_Atomic int open;
};

static void *dequeue_for_all(void *arg)
{
	struct crowd *c = arg;
	struct timeval tv = { .tv_usec = 50000 };
	exs_event_t e;

	while (c->open > 0) {
		int n = T_OK(exs_qdequeue(c->q, &e, 1, &tv));
		long i = (long)e.exs_evt_ahandle;

		if (n == 0)
			continue;
		T_EQ(e.exs_errno, 0);
		T_EQ(e.exs_evt_socket, c->fd[i]);
		n = e.exs_evt_un.exs_evt_xfer.exs_evt_length;
		if (n == 0) {
			c->open--;
			continue;
		}
		t_check_bytes(c->room[i], n, i, c->received[i]);
		c->received[i] += n;
		t_post_recv(c->fd[i], c->room[i], sizeof(c->room[i]), 0, c->q,
			    i);
	}
	return NULL;
}

static void one_queue_serves_many_sockets_and_threads(void)
{
	struct crowd c = { .open = CONNS };
	pthread_t t[CROWD];
	int far[CONNS], fd[2];
	long i;

	t_init();
	c.q = T_OK(exs_qcreate(CONNS));
	for (i = 0; i < CONNS; i++) {
		t_pair(i % 2 ? T_IPV4 : T_IPV6, fd);
		t_settle_pair(fd[0], fd[1], conf_here());
		c.fd[i] = fd[0];
		far[i] = fd[1];
		t_post_recv(c.fd[i], c.room[i], sizeof(c.room[i]), 0, c.q, i);
	}
	for (i = 0; i < CROWD; i++)
		t[i] = t_thread(dequeue_for_all, &c);
	for (i = 0; i < CONNS * PER_CONN; i++)
		t_send_stream(far[i % CONNS], i % CONNS, i / CONNS * 30, 30,
			      30);
	for (i = 0; i < CONNS; i++)
		t_close(far[i]);
	for (i = 0; i < CROWD; i++)
		t_thread_join(t[i]);
	for (i = 0; i < CONNS; i++) {
		T_EQ(c.received[i], PER_CONN * 30);
		t_close(c.fd[i]);
	}
	T_OK(exs_qdelete(c.q));
}

static void operations_end_while_the_program_computes(void)
{
	exs_qhandle_t q;
	struct t_deadline d;
	size_t big = 4 << 20;
	char *out = malloc(big), *in = malloc(big);
	int events = 0, fd[2];
	size_t len = sizeof(events);

	conf_pair(fd);
	q = T_OK(exs_qcreate(2));
	t_fill(out, big, 1, 0);
	t_post_recv(fd[1], in, big, MSG_WAITALL, q, 1);
	t_post_send(fd[0], out, big, 0, q, 2);
	d = t_deadline_ms(20000);
	while (events < 2) {
		T_OK(exs_qstatus(q, EXS_QATTR_EVENTS, &events, &len));
		T(t_tick(&d));
	}
	t_event(q);
	t_event(q);
	t_check_bytes(in, big, 1, 0);
	T_OK(exs_qdelete(q));
	free(out);
	free(in);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* An upgrade comes in the middle of posted operations, and loses none. */
static void posted_before_the_switch_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP)), ends = T_OK(exs_qcreate(1));
	char end;

	/* A queue of its own: the peer's end may be told before the last send's
	 * event, which the peer has long received. */
	t_post_recv(s, &end, 1, 0, ends, 500);
	pipeline_send(s, q);
	T_OK(t_shutdown(s, SHUT_WR));
	T_EQ(t_event_is(ends, EXS_EVT_RECV, 500), 0);
	T_OK(exs_qdelete(q));
	T_OK(exs_qdelete(ends));
	t_close(s);
}

CONF_DUO(operations_posted_long_before_complete, posted_before_the_switch_a,
	 mixed_b)

/* How often this process was put on a CPU in a third of a second in which it
 * has nothing to do. */
static long wakes(int quiet_fd)
{
	struct rusage before, after;

	T_OK(getrusage(RUSAGE_SELF, &before));
	T(!t_readable(quiet_fd, 300));
	T_OK(getrusage(RUSAGE_SELF, &after));
	return after.ru_nvcsw - before.ru_nvcsw;
}

/* Upgraded, with receives posted that nobody waits for, and a round trip
 * lately: after a moment of looking whether somebody comes, all threads
 * sleep. */
static void idle_connections_use_no_cpu(void)
{
	char buf[IDLERS][8];
	int quiet[2], fd[IDLERS][2], i;
	exs_qhandle_t q;

	t_init();
	q = T_OK(exs_qcreate(2 * IDLERS));
	T_OK(pipe2(quiet, O_CLOEXEC));
	for (i = 0; i < IDLERS; i++) {
		t_pair(T_IPV4, fd[i]);
		t_settle_pair(fd[i][0], fd[i][1], conf_here());
		t_post_recv(fd[i][1], buf[i], sizeof(buf[i]), 0, q, i);
	}
	t_send_all(fd[0][0], "wake", 4, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 0), 4);
	t_post_recv(fd[0][1], buf[0], sizeof(buf[0]), 0, q, 0);
	T_UNTIL(wakes(quiet[0]) <= 20);
	for (i = 0; i < IDLERS; i++) {
		t_send_all(fd[i][0], "more", 4, 0);
		T_EQ(t_event_is(q, EXS_EVT_RECV, i), 4);
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
	T_OK(exs_qdelete(q));
	close(quiet[0]);
	close(quiet[1]);
}

#define RARE	10
#define RARE_MS 25

struct rarely {
	int fd, quiet;
};

static void *send_rarely(void *arg)
{
	const struct rarely *r = arg;
	int i;

	for (i = 0; i < RARE; i++) {
		T(!t_readable(r->quiet, RARE_MS));
		t_send_all(r->fd, "x", 1, 0);
	}
	return NULL;
}

/* How often threads are put on a CPU for a message: those that send and receive
 * it, and the service a few times, but not each millisecond between. */
static long wakes_per_rare_message(exs_qhandle_t q, int from, int to, int quiet)
{
	struct rarely r = { .fd = from, .quiet = quiet };
	struct rusage before, after;
	pthread_t sender;
	char byte;
	int i;

	T_OK(getrusage(RUSAGE_SELF, &before));
	T_EQ(pthread_create(&sender, NULL, send_rarely, &r), 0);
	for (i = 0; i < RARE; i++) {
		t_post_recv(to, &byte, 1, 0, q, i);
		T_EQ(t_event_is(q, EXS_EVT_RECV, i), 1);
	}
	T_EQ(pthread_join(sender, NULL), 0);
	T_OK(getrusage(RUSAGE_SELF, &after));
	return (after.ru_nvcsw - before.ru_nvcsw) / RARE;
}

static void while_somebody_sleeps_in_a_queue_so_does_the_service(void)
{
	int quiet[2], fd[2];
	exs_qhandle_t q;

	t_init();
	q = T_OK(exs_qcreate(1));
	T_OK(pipe2(quiet, O_CLOEXEC));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
	T(wakes_per_rare_message(q, fd[0], fd[1], quiet[0]) <= 10);
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
	close(quiet[0]);
	close(quiet[1]);
}

#define IN_TURN 2000

/* Two that are written to, each by turns as the first. */
struct turns {
	int fd[2];
	_Atomic int round; /* that may begin */
	_Atomic int written;
};

static bool is_for_writer(int round)
{
	return !(round & 8);
}

static void write_turn(struct turns *t, int round)
{
	t_send_all(t->fd[round & 1], "x", 1, 0);
	t_send_all(t->fd[!(round & 1)], "x", 1, 0);
	atomic_store(&t->written, round + 1);
}

static void *write_by_turns(void *arg)
{
	struct turns *t = arg;

	for (int i = 0; i < IN_TURN; i++) {
		if (!is_for_writer(i))
			continue;
		while (atomic_load(&t->round) <= i)
			sched_yield();
		t_spin_ns(i % 50 * 100);
		write_turn(t, i);
	}
	return NULL;
}

/* How many of the rounds complete in another order. */
static int late_of(struct turns *t, const int s[2], exs_qhandle_t q)
{
	char got[2];
	int late = 0;

	for (int i = 0; i < IN_TURN; i++) {
		int posted = i >> 1 & 1;

		t_post_recv(s[posted], &got[0], 1, 0, q, posted);
		t_post_recv(s[!posted], &got[1], 1, 0, q, !posted);
		atomic_store(&t->round, i + 1);
		if (!is_for_writer(i))
			write_turn(t, i);
		while ((i & 4) && atomic_load(&t->written) <= i)
			sched_yield();
		late += (long)t_event(q).exs_evt_ahandle != (i & 1);
		t_event(q);
	}
	return late;
}

/* Both receives wait when the first of them is written to: it completes first,
 * whether somebody waits for it or looks when both are there. A kernel that is
 * busy has exceptions to its own order, and who is not asked yet does not say
 * when it sends. */
static void what_was_sent_first_completes_first(void)
{
	struct turns t = { { 0 } };
	exs_qhandle_t q;
	pthread_t writer;
	int fd[2], s[2], late;

	t_init();
	q = T_OK(exs_qcreate(2));
	for (int k = 0; k < 2; k++) {
		t_pair(T_IPV4, fd);
		t_settle_pair(fd[0], fd[1], conf_here());
		t.fd[k] = fd[0];
		s[k] = fd[1];
	}
	T_EQ(pthread_create(&writer, NULL, write_by_turns, &t), 0);
	late = late_of(&t, s, q);
	T_EQ(pthread_join(writer, NULL), 0);
	if (conf_is("shm") || conf_is("tcp"))
		T_MSG(late <= IN_TURN / 200, "%d of %d come in another order",
		      late, IN_TURN);
	for (int k = 0; k < 2; k++) {
		t_close(t.fd[k]);
		t_close(s[k]);
	}
	T_OK(exs_qdelete(q));
}

static const struct t_row rows[] = {
	CONF_ROWS(deep_pipelines_keep_their_order),
	CONF_ROWS(asynchronous_sends_meet_synchronous_receives),
	CONF_ROWS(batches_have_their_events_in_order),
	CONF_ROWS(close_gives_each_outstanding_operation_one_event),
	CONF_ROWS(the_end_of_the_stream_completes_every_receive),
	CONF_ROWS(a_reset_completes_every_receive_with_one_error),
	CONF_ROWS(a_closing_peer_fails_every_outstanding_send),
	CONF_ROWS(a_shutdown_comes_after_the_sends_before_it),
	CONF_ROWS(cancelled_receives_take_no_bytes),
	CONF_ROWS(a_cancel_leaves_synchronous_calls_alone),
	CONF_ROWS(a_cancelled_send_says_what_went_out),
	CONF_ROWS(operations_posted_long_before_complete),
	T_ROW(what_was_sent_first_completes_first),
	T_ROW(one_queue_serves_many_sockets_and_threads),
	T_ROW(operations_end_while_the_program_computes),
	T_ROW(idle_connections_use_no_cpu),
	T_ROW(while_somebody_sleeps_in_a_queue_so_does_the_service),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "events", rows, T_COUNT(rows));
}
