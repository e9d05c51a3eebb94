/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages (SOCK_SEQPACKET) over the fabric: each send is one message, each
 * receive takes one whole message, whatever ends or moves meanwhile. */
#include <endian.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "core/sock/packet_wire.h"
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define DEEP  8
#define ROOM  300000
#define COUNT (4000 / t_slow())
#define LARGE ((size_t)(8 << 20)) /* more than any fabric holds */

/* What the message of that number is: its length, */
static size_t length_of(uint64_t seed, uint64_t i)
{
	struct t_rng r = { seed * 7919 + i };

	switch (t_below(&r, 8)) {
	case 0:
		return t_below(&r, 2);
	case 1:
		return t_below(&r, ROOM);
	case 2:
		return 4080 + t_below(&r, 32);
	default:
		return t_below(&r, 200);
	}
}

/* and its bytes. */
static void fill(void *buf, size_t len, uint64_t seed, uint64_t i)
{
	t_fill(buf, len, seed, i * ROOM);
}

static void check(const void *buf, size_t len, uint64_t seed, uint64_t i)
{
	t_check_bytes(buf, len, seed, i * ROOM);
}

static int flags_of(const exs_event_t *e)
{
	return e->exs_evt_type == EXS_EVT_RECVMSG
		       ? e->exs_evt_un.exs_evt_xfermsg.exs_evt_flags
		       : e->exs_evt_un.exs_evt_xfer.exs_evt_flags;
}

static size_t bytes_of(const exs_event_t *e)
{
	return e->exs_evt_un.exs_evt_xfer.exs_evt_length;
}

/* The next event is of a message that was received, or of the end. */
static size_t got(exs_qhandle_t q, long a, int flags)
{
	exs_event_t e = t_event(q);

	T_EQ(e.exs_errno, 0);
	T_EQ((long)e.exs_evt_ahandle, a);
	T_EQ(flags_of(&e), flags);
	return bytes_of(&e);
}

/* Sends without waiting; a large one is the library's from then on. */
static void send_unread(int s, size_t len, uint64_t seed)
{
	char *buf = malloc(len);

	t_fill(buf, len, seed, 0);
	T_EQ(T_OK(t_send(s, buf, len, MSG_DONTWAIT)), len);
	free(buf);
}

static void recv_large(int s, size_t len, uint64_t seed)
{
	char *buf = malloc(len + 1);

	T_EQ(T_OK(t_recv(s, buf, len + 1, 0)), len);
	t_check_bytes(buf, len, seed, 0);
	free(buf);
}

/* --- bounds ------------------------------------------------------------- */

static int pattern_file(const void *buf, size_t len)
{
	int fd = T_OK(memfd_create("pattern", MFD_CLOEXEC));

	T_EQ(T_OK(pwrite(fd, buf, len, 0)), len);
	return fd;
}

/* One message in one of the ways to send one; how many events follow. */
static int send_somehow(int s, char *buf, size_t len, uint64_t i,
			exs_qhandle_t q)
{
	size_t half = len / 2;
	exs_iovec_t v[] = { { buf, half, 0 },
			    { NULL, 0, 0 },
			    { buf + half, len - half, 0 } };
	exs_msghdr_t m = { .exs_msg_iov = v, .exs_msg_iovlen = 3 };
	exs_xferfile_t xf[2] = {
		{ EXS_IOVEC, { .exs_xf_iovec = { buf, half, 0 } } },
		{ .exs_xf_type = EXS_FDVEC },
	};

	switch (i % 5) {
	case 0:
		T_EQ(T_OK(t_send(s, buf, len, i % 2 ? MSG_EOR : 0)), len);
		return 0;
	case 1:
		T_EQ(T_OK(exs_sendmsg(s, &m, 0, T_SYNC)), len);
		return 0;
	case 2:
		if (len - half == 0)
			break;
		xf[1].exs_xf_un.exs_xf_fdvec =
			(exs_fdvec_t){ pattern_file(buf + half, len - half), 0,
				       0 };
		T_EQ(T_OK(exs_sendfile(s, xf, 2, 0, T_SYNC)), len);
		close(xf[1].exs_xf_un.exs_xf_fdvec.exs_fd_fildes);
		return 0;
	default:
		break;
	}
	t_post_send(s, buf, len, 0, q, (long)i);
	return 1;
}

static void bounds_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));
	char *buf = malloc(DEEP * ROOM);
	long asked[DEEP] = { 0 }, next = 0, over = 0;

	for (uint64_t i = 0; i < COUNT; i++) {
		size_t len = length_of(1, i);
		char *at;

		if (next - over == DEEP) {
			long done = asked[over++ % DEEP];

			T_EQ(t_event_is(q, EXS_EVT_SEND, done),
			     length_of(1, (uint64_t)done));
		}
		at = buf + next % DEEP * ROOM;
		fill(at, len, 1, i);
		if (send_somehow(s, at, len, i, q))
			asked[next++ % DEEP] = (long)i;
	}
	for (; over < next; over++)
		T_EQ(t_event_is(q, EXS_EVT_SEND, asked[over % DEEP]),
		     length_of(1, (uint64_t)asked[over % DEEP]));
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void bounds_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));
	exs_iovec_t v[2];
	exs_msghdr_t m = { .exs_msg_iov = v, .exs_msg_iovlen = 2 };
	char *buf = malloc(DEEP * ROOM);
	uint64_t i = 0;

	while (i < COUNT / 2) {
		size_t len = length_of(1, i);

		v[0] = (exs_iovec_t){ buf, len / 3, 0 };
		v[1] = (exs_iovec_t){ buf + len / 3, ROOM - len / 3, 0 };
		if (i % 2) {
			T_EQ(T_OK(t_recv(s, buf, ROOM, MSG_WAITALL)), len);
		} else {
			T_EQ(T_OK(exs_recvmsg(s, &m, 0, T_SYNC)), len);
			T_EQ(m.exs_msg_flags, MSG_EOR);
		}
		check(buf, len, 1, i++);
	}
	for (uint64_t k = i; k < i + DEEP; k++)
		t_post_recv(s, buf + k % DEEP * ROOM, ROOM, 0, q, (long)k);
	for (; i < COUNT; i++) {
		char *at = buf + i % DEEP * ROOM;

		T_EQ(got(q, (long)i, MSG_EOR), length_of(1, i));
		check(at, length_of(1, i), 1, i);
		t_post_recv(s, at, ROOM, 0, q, (long)(i + DEEP));
	}
	/* The end: nothing, and no message. */
	for (int k = 0; k < DEEP; k++, i++)
		T_EQ(got(q, (long)i, 0), 0);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(a_message_is_received_as_it_was_sent, bounds_a, bounds_b)

/* --- too small, and empty ----------------------------------------------- */

static const struct {
	size_t len;  /* of the message */
	size_t room; /* of the receive */
} fits[] = {
	{ 10, 10 },	{ 10, 9 },	{ 10, 0 },	    { 0, 0 },
	{ 0, 10 },	{ 5000, 4999 }, { 5000, 0 },	    { ROOM, 1 },
	{ ROOM, ROOM }, { ROOM, 100 },	{ ROOM, ROOM - 1 }, { 1, 0 },
};

static void cut_a(int s, int ctl)
{
	char *buf = malloc(ROOM);

	for (uint64_t i = 0; i < 4 * T_COUNT(fits); i++) {
		size_t len = fits[i % T_COUNT(fits)].len;

		fill(buf, len, 3, i);
		T_EQ(T_OK(t_send(s, buf, len, 0)), len);
	}
	free(buf);
	t_recv_end(s);
	t_close(s);
}

static bool whole(uint64_t i)
{
	return fits[i % T_COUNT(fits)].len <= fits[i % T_COUNT(fits)].room;
}

/* What the row says of a message that was received, or looked at. */
static void cut_check(uint64_t i, const char *buf, ssize_t n, int flags)
{
	size_t len = fits[i % T_COUNT(fits)].len;
	size_t room = fits[i % T_COUNT(fits)].room;

	T_EQ(n, whole(i) ? len : room);
	T_EQ(flags, MSG_EOR | (whole(i) ? 0 : MSG_TRUNC));
	check(buf, (size_t)n, 3, i);
	T_EQ(buf[room], 'x');
}

static void cut_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));
	char *buf = malloc(ROOM + 1);
	exs_iovec_t v[2];
	exs_msghdr_t m = { .exs_msg_iov = v, .exs_msg_iovlen = 2 };

	for (uint64_t i = 0; i < 4 * T_COUNT(fits); i++) {
		size_t room = fits[i % T_COUNT(fits)].room;
		exs_event_t e;
		ssize_t n;

		v[0] = (exs_iovec_t){ buf, room / 2, 0 };
		v[1] = (exs_iovec_t){ buf + room / 2, room - room / 2, 0 };
		buf[room] = 'x';
		switch (i / T_COUNT(fits)) {
		case 0:
			t_post_recv(s, buf, room, 0, q, 1);
			e = t_event(q);
			T_EQ(e.exs_errno, 0);
			cut_check(i, buf, (ssize_t)bytes_of(&e), flags_of(&e));
			break;
		case 1:
			T_EQ(exs_recvmsg(s, &m, 0, q, NULL), 0);
			e = t_event(q);
			cut_check(i, buf, (ssize_t)bytes_of(&e), flags_of(&e));
			T_EQ(m.exs_msg_flags, flags_of(&e));
			break;
		case 2: /* a look first */
			n = T_OK(exs_recvmsg(s, &m, MSG_PEEK, T_SYNC));
			cut_check(i, buf, n, m.exs_msg_flags);
			memset(buf, 0, room);
			n = T_OK(exs_recvmsg(s, &m, 0, T_SYNC));
			cut_check(i, buf, n, m.exs_msg_flags);
			break;
		default:
			cut_check(i, buf, T_OK(t_recv(s, buf, room, MSG_PEEK)),
				  MSG_EOR | (whole(i) ? 0 : MSG_TRUNC));
			memset(buf, 0, room);
			cut_check(i, buf, T_OK(t_recv(s, buf, room, 0)),
				  MSG_EOR | (whole(i) ? 0 : MSG_TRUNC));
		}
	}
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(what_does_not_fit_is_cut_off_and_told, cut_a, cut_b)

/* --- larger than the fabric --------------------------------------------- */

/* Nobody reads: the calls do not wait, and one message is taken whole. */
static void large_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	char *buf = malloc(LARGE);

	send_unread(s, LARGE, 1);
	T_ERR(t_send(s, "x", 1, MSG_DONTWAIT), EAGAIN);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	/* One that waits, and one of a queue. */
	t_fill(buf, LARGE, 2, 0);
	T_EQ(T_OK(t_send(s, buf, LARGE, 0)), LARGE);
	t_post_send(s, buf, LARGE, 0, q, 7);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 7), LARGE);
	t_recv_end(s);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void large_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	struct t_deadline d = t_deadline_ms(30000);
	char *buf = malloc(LARGE + 1);
	ssize_t n;

	t_expect(ctl, 1);
	/* The message arrives in pieces, and no receive returns a piece. */
	while ((n = t_recv(s, buf, LARGE + 1, MSG_DONTWAIT)) < 0) {
		T_EQ(errno, EAGAIN);
		T(t_tick(&d));
	}
	T_EQ(n, LARGE);
	t_check_bytes(buf, LARGE, 1, 0);
	t_tell(ctl, 2);
	recv_large(s, LARGE, 2);
	t_post_recv(s, buf, LARGE + 1, 0, q, 1);
	T_EQ(got(q, 1, MSG_EOR), LARGE);
	t_check_bytes(buf, LARGE, 2, 0);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(a_message_may_be_larger_than_the_fabric_holds, large_a, large_b)

/* Receives that are cancelled, early or late, lose nothing. */
static void cancel_in_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	char *buf = malloc(LARGE);

	t_fill(buf, LARGE, 4, 0);
	for (int i = 0; i < 3; i++) {
		t_post_send(s, buf, LARGE, 0, q, i);
		T_EQ(t_event_is(q, EXS_EVT_SEND, i), LARGE);
	}
	t_recv_end(s);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void cancel_in_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	struct t_rng r = { 99 };
	char *buf = malloc(LARGE);

	for (int i = 0, cancels = 0; i < 3; cancels++) {
		exs_event_t e;

		memset(buf, 0, LARGE);
		t_post_recv(s, buf, LARGE, 0, q, cancels);
		/* After some hundred, it may have all the time it needs. */
		if (cancels < 200) {
			t_spin_ns((int64_t)t_below(&r, 100000));
			T(exs_cancel(s, NULL, EXS_CAF_FILDES) <= 1);
		}
		e = t_event(q);
		T_EQ((long)e.exs_evt_ahandle, cancels);
		if (e.exs_errno) {
			T_EQ(e.exs_errno, ECANCELED);
			T_EQ(bytes_of(&e), 0);
			T_EQ(flags_of(&e), 0);
			continue;
		}
		T_EQ(bytes_of(&e), LARGE);
		t_check_bytes(buf, LARGE, 4, 0);
		i++;
	}
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(a_cancelled_receive_leaves_its_message, cancel_in_a, cancel_in_b)

/* Cancelling waiting sends ends those that have not begun; one that has begun
 * is sent. */
static void cancel_out_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(8));
	char *buf = malloc(LARGE);
	exs_event_t e;

	t_fill(buf, LARGE, 5, 0);
	for (int i = 0; i < 4; i++)
		t_post_send(s, buf, i ? 100 : LARGE, 0, q, i);
	t_expect(ctl, 1); /* some of it has come */
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), 4);
	for (int i = 1; i < 4; i++) {
		e = t_event(q);
		T_EQ((long)e.exs_evt_ahandle, i);
		T_EQ(e.exs_errno, ECANCELED);
		T_EQ(bytes_of(&e), 0);
	}
	t_no_event(q);
	t_tell(ctl, 2);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 0), LARGE);
	T_EQ(T_OK(t_send(s, "last", 4, 0)), 4);
	t_recv_end(s);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void cancel_out_b(int s, int ctl)
{
	char buf[8];

	T_EQ(T_OK(t_recv(s, buf, 1, MSG_PEEK)), 1);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	recv_large(s, LARGE, 5);
	T_EQ(T_OK(t_recv(s, buf, sizeof(buf), 0)), 4);
	T(!memcmp(buf, "last", 4));
	t_close(s);
}

CONF_DUO(a_send_that_has_begun_is_not_cancelled, cancel_out_a, cancel_out_b)

/* --- time --------------------------------------------------------------- */

static void set_time(int s, int name, int ms)
{
	struct timeval tv = { ms / 1000, ms % 1000 * 1000 };

	T_OK(exs_setsockopt(s, SOL_SOCKET, name, &tv, sizeof(tv)));
}

/* A send that runs out of time within its message has sent it; before it, not.
 * A receive that does, within one or before, has nothing. */
static void time_a(int s, int ctl)
{
	char *buf = malloc(LARGE);

	set_time(s, SO_SNDTIMEO, 50);
	t_fill(buf, LARGE, 8, 0);
	T_EQ(T_OK(t_send(s, buf, LARGE, 0)), LARGE);
	memset(buf, 0, LARGE); /* it is ours again */
	T_ERR(t_send(s, buf, 1, 0), EAGAIN);
	t_tell(ctl, 1);
	t_recv_end(s);
	free(buf);
	t_close(s);
}

static void time_b(int s, int ctl)
{
	char *buf = malloc(LARGE);
	struct t_deadline d = t_deadline_ms(30000);
	ssize_t n;

	set_time(s, SO_RCVTIMEO, 1);
	t_expect(ctl, 1);
	while ((n = t_recv(s, buf, LARGE, 0)) < 0) {
		T_EQ(errno, EAGAIN);
		T(t_tick(&d));
	}
	T_EQ(n, LARGE);
	t_check_bytes(buf, LARGE, 8, 0);
	T_ERR(t_recv(s, buf, LARGE, 0), EAGAIN);
	free(buf);
	t_close(s);
}

CONF_DUO(time_runs_out_between_messages, time_a, time_b)

static void on_signal(int sig)
{
}

struct caller {
	int s;
	bool sends;
	_Atomic pid_t tid;
	char *buf;
	ssize_t n;
	int err;
	_Atomic bool over;
};

static void *call(void *arg)
{
	struct caller *c = arg;

	atomic_store(&c->tid, gettid());
	c->n = c->sends ? t_send(c->s, c->buf, LARGE, 0)
			: t_recv(c->s, c->buf, LARGE, 0);
	c->err = errno;
	atomic_store(&c->over, true);
	return NULL;
}

/* Starts a call that waits, and interrupts it. */
static void interrupt(struct caller *c)
{
	struct sigaction act = { .sa_handler = on_signal };
	pthread_t t;

	T_OK(sigaction(SIGUSR1, &act, NULL));
	c->buf = malloc(LARGE);
	t_fill(c->buf, LARGE, 9, 0);
	t = t_thread(call, c);
	T_UNTIL(atomic_load(&c->tid));
	t_interrupt(atomic_load(&c->tid), &c->over);
	t_thread_join(t);
	free(c->buf);
}

static void signal_a(int s, int ctl)
{
	struct caller c = { .s = s, .sends = true };

	interrupt(&c);
	T_EQ(c.n, LARGE);
	t_tell(ctl, 1);
	c = (struct caller){ .s = s };
	interrupt(&c);
	T_EQ(c.n, -1);
	T_EQ(c.err, EINTR);
	t_tell(ctl, 2);
	t_recv_end(s);
	t_close(s);
}

static void signal_b(int s, int ctl)
{
	t_expect(ctl, 1);
	recv_large(s, LARGE, 9);
	t_expect(ctl, 2);
	t_close(s);
}

CONF_DUO(a_signal_comes_between_messages, signal_a, signal_b)

/* --- many hands --------------------------------------------------------- */

#define WRITERS 4
#define ROUNDS	(400 / t_slow())

struct writer {
	int s;
	char id;
	_Atomic int *left;
};

/* Messages of one letter, some longer than what is sent with one call. */
static void *write_letters(void *arg)
{
	struct writer *w = arg;
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct t_rng r = { (uint64_t)w->id };
	char *buf = malloc(ROOM);

	memset(buf, w->id, ROOM);
	for (int i = 0; i < ROUNDS; i++) {
		size_t len = 1 + t_below(&r, t_below(&r, 4) ? 300 : ROOM);

		if (t_below(&r, 2)) {
			T_EQ(T_OK(t_send(w->s, buf, len, 0)), len);
			continue;
		}
		t_post_send(w->s, buf, len, 0, q, i);
		T_EQ(t_event_is(q, EXS_EVT_SEND, i), len);
	}
	free(buf);
	T_OK(exs_qdelete(q));
	return NULL;
}

static void *read_letters(void *arg)
{
	struct writer *w = arg;
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	char *buf = malloc(ROOM);
	bool queued = w->id % 2;
	size_t n;

	for (;;) {
		if (queued) {
			exs_event_t e;

			t_post_recv(w->s, buf, ROOM, 0, q, 1);
			e = t_event(q);
			T_EQ(e.exs_errno, 0);
			n = bytes_of(&e);
		} else {
			n = (size_t)T_OK(t_recv(w->s, buf, ROOM, 0));
		}
		if (!n)
			break;
		for (size_t k = 1; k < n; k++)
			T_EQ(buf[k], buf[0]);
		atomic_fetch_sub(w->left, 1);
	}
	free(buf);
	T_OK(exs_qdelete(q));
	return NULL;
}

static void hands(int s, void *(*f)(void *), _Atomic int *left)
{
	struct writer w[WRITERS];
	pthread_t t[WRITERS];

	for (int i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ s, (char)('a' + i), left };
		t[i] = t_thread(f, &w[i]);
	}
	for (int i = 0; i < WRITERS; i++)
		t_thread_join(t[i]);
}

static void hands_a(int s, int ctl)
{
	hands(s, write_letters, NULL);
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
}

static void hands_b(int s, int ctl)
{
	_Atomic int left = WRITERS * ROUNDS;

	hands(s, read_letters, &left);
	T_EQ(left, 0);
	t_close(s);
}

CONF_DUO(messages_of_many_threads_are_whole, hands_a, hands_b)

/* --- batches, files, polls ---------------------------------------------- */

#define BATCH 100

static void batch_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(BATCH));
	static exs_x_op_t o[BATCH];
	char *buf = malloc((size_t)BATCH * 5000);

	for (uint64_t round = 0; round < 20; round++) {
		struct t_rng r = { round + 1 };

		for (uint64_t i = 0; i < BATCH; i++) {
			size_t len = t_below(&r, t_below(&r, 9) ? 20 : 5000);

			fill(buf + i * 5000, len, 11, round * BATCH + i);
			o[i] = (exs_x_op_t){
				.exs_x_type = EXS_EVT_SEND,
				.exs_x_socket = s,
				.exs_x_buffer = buf + i * 5000,
				.exs_x_length = len,
				.exs_x_ahandle = (exs_ahandle_t)(long)i,
			};
		}
		T_EQ(exs_x_submit(q, o, BATCH), BATCH);
		for (long i = 0; i < BATCH; i++)
			T_EQ(t_event_is(q, EXS_EVT_SEND, i), o[i].exs_x_length);
	}
	t_recv_end(s);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void batch_b(int s, int ctl)
{
	char buf[5000];

	for (uint64_t round = 0; round < 20; round++) {
		struct t_rng r = { round + 1 };

		for (uint64_t i = 0; i < BATCH; i++) {
			size_t len = t_below(&r, t_below(&r, 9) ? 20 : 5000);

			T_EQ(T_OK(t_recv(s, buf, sizeof(buf), 0)), len);
			check(buf, len, 11, round * BATCH + i);
		}
	}
	t_close(s);
}

CONF_DUO(a_batch_is_as_many_messages, batch_a, batch_b)

/* Head, file and tail are one; the end comes behind it. */
static void file_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	char *buf = malloc(ROOM);
	exs_xferfile_t xf[3] = {
		{ EXS_IOVEC, { .exs_xf_iovec = { buf, 10, 0 } } },
		{ .exs_xf_type = EXS_FDVEC },
		{ EXS_IOVEC, { .exs_xf_iovec = { buf + ROOM - 5, 5, 0 } } },
	};

	t_fill(buf, ROOM, 12, 0);
	xf[1].exs_xf_un.exs_xf_fdvec =
		(exs_fdvec_t){ pattern_file(buf, ROOM), 10, ROOM - 15 };
	for (long i = 0; i < 4; i++) {
		int flags = i == 3 ? EXS_SHUT_WR : 0;

		if (i % 2) {
			T_EQ(exs_sendfile(s, xf, 3, flags, q, NULL), 0);
			T_EQ(t_event_is(q, EXS_EVT_SENDFILE, 0), ROOM);
		} else {
			T_EQ(T_OK(exs_sendfile(s, xf, 3, flags, T_SYNC)), ROOM);
		}
	}
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_recv_end(s);
	close(xf[1].exs_xf_un.exs_xf_fdvec.exs_fd_fildes);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void file_b(int s, int ctl)
{
	for (int i = 0; i < 4; i++)
		recv_large(s, ROOM, 12);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(the_parts_of_a_file_are_one_message, file_a, file_b)

static short poll_now(int s, short events)
{
	exs_pollfd_t p = { .exs_fd = s, .exs_events = events };

	T_OK(exs_poll(&p, 1, MSG_DONTWAIT, T_SYNC));
	return p.exs_revents;
}

static void poll_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	exs_pollfd_t p = { .exs_fd = s, .exs_events = EXS_POLLIN };
	char buf[10];

	for (int i = 0; i < 20; i++) {
		T_EQ(poll_now(s, EXS_POLLIN), 0);
		T_EQ(exs_poll(&p, 1, 0, q, NULL), 0);
		t_tell(ctl, 1);
		T_EQ(t_event(q).exs_evt_type, EXS_EVT_POLL);
		T_EQ(p.exs_revents, EXS_POLLIN);
		/* Looked at, it is not on the fabric any more, and there. */
		T_EQ(T_OK(t_recv(s, buf, sizeof(buf), MSG_PEEK)), i % 3);
		T_EQ(poll_now(s, EXS_POLLIN), EXS_POLLIN);
		T_EQ(T_OK(t_recv(s, buf, sizeof(buf), MSG_DONTWAIT)), i % 3);
	}
	T_EQ(poll_now(s, EXS_POLLIN | EXS_POLLOUT), EXS_POLLOUT);
	t_tell(ctl, 2);
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

static void poll_b(int s, int ctl)
{
	for (int i = 0; t_ask(ctl) == 1; i++)
		T_EQ(T_OK(t_send(s, "yes", i % 3, 0)), i % 3);
	t_close(s);
}

CONF_DUO(a_poll_tells_of_a_message, poll_a, poll_b)

/* --- ends --------------------------------------------------------------- */

/* What a call that did not wait sent is delivered after the close. */
static void close_a(int s, int ctl)
{
	send_unread(s, LARGE, 13);
	t_tell(ctl, 1);
	t_close(s);
}

static void close_b(int s, int ctl)
{
	t_expect(ctl, 1);
	recv_large(s, LARGE, 13);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_close_waits_for_the_rest_of_a_message, close_a, close_b)

/* An asynchronous close leaves the wait to the library: the program, which has
 * both ends here, goes on meanwhile. */
static void a_close_with_a_queue_does_not_wait(void)
{
	exs_qhandle_t q;
	int fd[2], child;
	exs_event_t e;

	conf_pair(fd);
	q = T_OK(exs_qcreate(4));
	send_unread(fd[0], LARGE, 13);
	/* A child that only inherited it cannot send the rest. */
	child = T_OK(t_fork());
	if (!child)
		_exit(0);
	t_join(child);
	T_OK(exs_close(fd[0], q, (exs_ahandle_t)3));
	T_ERR(t_send(fd[0], "no", 2, MSG_NOSIGNAL), EBADF);
	T_ERR(exs_send(fd[0], "no", 2, 0, q, NULL, EXS_MHANDLE_UNREGISTERED),
	      EBADF);
	T_ERR(exs_close(fd[0], q, NULL), EBADF);
	T_ERR(exs_qdelete(q), EBUSY);
	t_no_event(q);
	/* To a child it is closed. */
	child = T_OK(t_fork());
	if (!child) {
		T_ERR(fcntl(fd[0], F_GETFD), EBADF);
		_exit(0);
	}
	t_join(child);
	recv_large(fd[1], LARGE, 13);
	e = t_event(q);
	T_EQ(e.exs_evt_type, EXS_EVT_CLOSE);
	T_EQ(e.exs_errno, 0);
	T(e.exs_evt_ahandle == (exs_ahandle_t)3);
	T_ERR(fcntl(fd[0], F_GETFD), EBADF);
	t_recv_end(fd[1]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

/* An operation of a queue is broken off, and half a message is none. */
static void broken_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	char *buf = calloc(1, LARGE);
	exs_event_t e;

	T_EQ(T_OK(t_send(s, "whole", 5, 0)), 5);
	t_post_send(s, buf, LARGE, 0, q, 1);
	t_expect(ctl, 1);
	t_close(s);
	e = t_event(q);
	T_EQ(e.exs_errno, ECANCELED);
	T_EQ(bytes_of(&e), 0);
	t_tell(ctl, 2);
	free(buf);
	T_OK(exs_qdelete(q));
}

static void broken_b(int s, int ctl)
{
	char *buf = malloc(LARGE);

	T_EQ(T_OK(t_recv(s, buf, LARGE, 0)), 5);
	T_EQ(T_OK(t_recv(s, buf, 1, MSG_PEEK)), 1);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	T_ERR(t_recv(s, buf, LARGE, 0), ECONNRESET);
	free(buf);
	t_close(s);
}

CONF_DUO(half_a_message_is_none, broken_a, broken_b)

/* A file gets shorter when its length was said: the message cannot be, and
 * nothing follows it. */
static void shorter_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	char *buf = calloc(1, LARGE);
	exs_xferfile_t xf = { .exs_xf_type = EXS_FDVEC };
	int file = pattern_file(buf, LARGE);
	exs_event_t e;

	xf.exs_xf_un.exs_xf_fdvec = (exs_fdvec_t){ file, 0, LARGE };
	T_EQ(exs_sendfile(s, &xf, 1, 0, q, NULL), 0);
	t_expect(ctl, 1);
	T_OK(ftruncate(file, 1));
	t_tell(ctl, 2);
	e = t_event(q);
	T_EQ(e.exs_errno, EIO);
	T_EQ(bytes_of(&e), 0);
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_expect(ctl, 3);
	close(file);
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void shorter_b(int s, int ctl)
{
	char *buf = malloc(LARGE);

	T_EQ(T_OK(t_recv(s, buf, 1, MSG_PEEK)), 1);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	T_ERR(t_recv(s, buf, LARGE, 0), ECONNRESET);
	t_recv_end(s);
	t_tell(ctl, 3);
	free(buf);
	t_close(s);
}

CONF_DUO(a_file_that_shrinks_breaks_its_message, shorter_a, shorter_b)

/* --- moves -------------------------------------------------------------- */

/* The connection goes to TCP and back between and within messages. */
static void moves_a(int s, int ctl)
{
	char *buf = malloc(ROOM);

	for (uint64_t i = 0; i < COUNT / 4; i++) {
		size_t len = length_of(14, i);

		if (i % 20 == 10)
			T_OK(exs_x_downgrade(s));
		if (i % 20 == 16)
			T_OK(exs_x_adopt(s));
		fill(buf, len, 14, i);
		T_EQ(T_OK(t_send(s, buf, len, 0)), len);
	}
	t_recv_end(s);
	free(buf);
	t_close(s);
}

static void moves_b(int s, int ctl)
{
	char *buf = malloc(ROOM);

	for (uint64_t i = 0; i < COUNT / 4; i++) {
		T_EQ(T_OK(t_recv(s, buf, ROOM, 0)), length_of(14, i));
		check(buf, length_of(14, i), 14, i);
	}
	free(buf);
	t_close(s);
}

CONF_DUO(messages_are_whole_wherever_they_go, moves_a, moves_b)

#define AHEAD (2 * DEEP + 184 / t_slow())

/* Registered memory, receives posted ahead. */
static void ahead_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));
	char *buf = malloc(DEEP * ROOM);
	exs_mhandle_t m = T_OK(exs_mregister(buf, DEEP * ROOM, 0));

	for (long i = 0; i < AHEAD; i++) {
		char *at = buf + i % DEEP * ROOM;
		size_t len = i % 5 ? ROOM - (size_t)i : 20;

		if (i >= DEEP)
			t_event_is(q, EXS_EVT_SEND, i - DEEP);
		fill(at, len, 15, (uint64_t)i);
		T_EQ(exs_send(s, at, len, 0, q, (exs_ahandle_t)i, m), 0);
	}
	for (long i = AHEAD - DEEP; i < AHEAD; i++)
		t_event_is(q, EXS_EVT_SEND, i);
	t_recv_end(s);
	T_OK(exs_mderegister(m, 0));
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void ahead_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(DEEP));
	char *buf = malloc(DEEP * ROOM);
	exs_mhandle_t m = T_OK(exs_mregister(buf, DEEP * ROOM, 0));

	for (long i = 0; i < AHEAD + DEEP; i++) {
		char *at = buf + i % DEEP * ROOM;

		if (i >= DEEP) {
			long k = i - DEEP;
			size_t len = k % 5 ? ROOM - (size_t)k : 20;

			T_EQ(got(q, k, MSG_EOR), len);
			check(at, len, 15, (uint64_t)k);
		}
		T_EQ(exs_recv(s, at, ROOM, 0, q, (exs_ahandle_t)i, m), 0);
	}
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), DEEP);
	for (int i = 0; i < DEEP; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	T_OK(exs_mderegister(m, 0));
	free(buf);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(messages_go_into_receives_that_wait, ahead_a, ahead_b)

/* --- what is refused ---------------------------------------------------- */

static int type_of(int s)
{
	int type = 0;
	socklen_t len = sizeof(type);

	T_OK(exs_getsockopt(s, SOL_SOCKET, SO_TYPE, &type, &len));
	return type;
}

/* With a deadline each has a way of its own. */
static void a_batch_ends_before_what_is_refused(const int fd[2],
						exs_qhandle_t q, char *p,
						size_t over)
{
	static const struct timespec never = { .tv_sec = INT32_MAX };

	for (int until = 0; until < 2; until++) {
		char c = 'x';
		exs_x_op_t o[3];

		for (int i = 0; i < 3; i++)
			o[i] = (exs_x_op_t){
				.exs_x_type = EXS_EVT_SEND,
				.exs_x_socket = fd[0],
				.exs_x_buffer = i == 1 ? p : &c,
				.exs_x_length = i == 1 ? over : 1,
				.exs_x_ahandle = (exs_ahandle_t)(long)i,
				.exs_x_until = until ? &never : NULL,
			};
		T_EQ(exs_x_submit(q, o, 3), 1);
		T_EQ(t_event_is(q, EXS_EVT_SEND, 0), 1);
		t_no_event(q);
		T_EQ(T_OK(t_recv(fd[1], &c, 1, 0)), 1);
		T_ERR(t_recv(fd[1], &c, 1, MSG_DONTWAIT), EAGAIN);
	}
}

static void what_makes_no_sense_is_refused(void)
{
	exs_qhandle_t q;
	exs_iovec_t v = { NULL, 0, 0 };
	exs_msghdr_t m = { .exs_msg_iov = &v, .exs_msg_iovlen = 1 };
	exs_x_op_t o = { .exs_x_type = EXS_EVT_SEND };
	char *p = mmap(NULL, EXS_X_MESSAGE_MAX + 1ul, PROT_READ,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t over = EXS_X_MESSAGE_MAX + 1ul;
	int fd[2], s, l, also;
	struct t_addr at;

	T(p != MAP_FAILED);
	conf_pair(fd);
	q = T_OK(exs_qcreate(4));
	T_EQ(type_of(fd[0]), SOCK_SEQPACKET);
	T_EQ(type_of(fd[1]), SOCK_SEQPACKET);
	/* Too long: nothing is sent, whichever the call. */
	v = (exs_iovec_t){ p, over, 0 };
	o.exs_x_socket = fd[0];
	o.exs_x_buffer = p;
	o.exs_x_length = over;
	T_ERR(t_send(fd[0], p, over, 0), EMSGSIZE);
	T_ERR(exs_send(fd[0], p, over, 0, q, NULL, 0), EMSGSIZE);
	T_ERR(exs_sendmsg(fd[0], &m, 0, T_SYNC), EMSGSIZE);
	T_ERR(exs_sendmsg(fd[0], &m, 0, q, NULL), EMSGSIZE);
	T_ERR(exs_x_submit(q, &o, 1), EMSGSIZE);
	a_batch_ends_before_what_is_refused(fd, q, p, over);
	/* Flags of streams. */
	T_ERR(t_send(fd[0], "x", 1, MSG_MORE), EOPNOTSUPP);
	T_ERR(t_send(fd[0], "x", 1, MSG_OOB), EOPNOTSUPP);
	T_ERR(exs_send(fd[0], "x", 1, MSG_MORE, q, NULL, 0), EOPNOTSUPP);
	T_ERR(exs_send(fd[0], "x", 1, MSG_OOB, q, NULL, 0), EOPNOTSUPP);
	T_ERR(t_recv(fd[0], p, 1, MSG_OOB), EOPNOTSUPP);
	T_ERR(exs_recv(fd[0], p, 1, MSG_OOB, q, NULL, 0), EOPNOTSUPP);
	o.exs_x_length = 1;
	o.exs_x_flags = MSG_OOB;
	T_ERR(exs_x_submit(q, &o, 1), EOPNOTSUPP);
	/* And of none. */
	T_ERR(t_recv(fd[0], p, 1, MSG_EOR), EINVAL);
	T_ERR(exs_recv(fd[0], p, 1, MSG_EOR, q, NULL, 0), EINVAL);
	T_ERR(exs_recvmsg(fd[0], &m, MSG_EOR, q, NULL), EINVAL);
	T_ERR(exs_send(fd[0], "x", 1, MSG_OOB | MSG_TRUNC, q, NULL, 0), EINVAL);
	T_ERR(t_send(fd[0], "x", 1, MSG_TRUNC), EINVAL);
	T_ERR(t_recv(fd[0], p, 1, MSG_ERRQUEUE), EINVAL);
	t_no_event(q);
	T_ERR(t_recv(fd[1], p, 1, MSG_DONTWAIT), EAGAIN);
	t_close(fd[0]);
	T_EQ(T_OK(t_recv(fd[1], p, 0, 0)), 0);
	t_close(fd[1]);
	/* What a second number of a listener accepts has messages, too. */
	l = t_listener(T_IPV4, &at);
	also = T_OK(exs_fcntl(l, F_DUPFD_CLOEXEC, 0));
	t_close(l);
	s = t_connect(&at);
	l = t_accept(also);
	T_EQ(type_of(l), SOCK_SEQPACKET);
	t_close(l);
	t_close(s);
	t_close(also);
	/* Only messages have ends that can be told of. */
	t_type = SOCK_STREAM;
	t_unlisten();
	t_pair(T_IPV4, fd);
	T_ERR(t_send(fd[0], "x", 1, MSG_EOR), EINVAL);
	T_EQ(type_of(fd[0]), SOCK_STREAM);
	t_close(fd[0]);
	t_close(fd[1]);
	/* Not connected. */
	s = T_OK(exs_socket(AF_INET, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	T_ERR(t_recv(s, &(char){ 0 }, 1, 0), ENOTCONN);
	t_close(s);
	T_OK(exs_qdelete(q));
	munmap(p, over);
}

/* --- peers that are something else -------------------------------------- */

/* A pair whose end 1 is a plain socket of the kernel's. */
static void raw_pair(int fd[2])
{
	struct t_addr at;
	int l;

	t_init();
	l = t_listener(T_IPV4, &at);
	fd[1] = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(connect(fd[1], (struct sockaddr *)&at.ss, at.len));
	fd[0] = t_accept(l);
	t_close(l);
}

static const struct {
	const char *bytes;
	size_t len;
	bool ends; /* and then the connection does */
	int err;   /* of a receive; 0: it waits */
} wrong[] = {
	{ "GET / HTTP/1.1\r\n\r\n", 18, false, EPROTOTYPE },
	{ "x", 1, false, EPROTOTYPE },
	{ "", 0, true, 0 },
	{ EXI_PACKET_HELLO, 7, false, EAGAIN },
	{ EXI_PACKET_HELLO, 1, true, ECONNRESET },
	{ EXI_PACKET_HELLO, 8, false, EAGAIN },
	{ EXI_PACKET_HELLO, 8, true, ECONNRESET },
	{ "\x89"
	  "EXSMSG\x02\x01\x00\x00\x00x",
	  13, false, EPROTOTYPE },
	{ EXI_PACKET_HELLO "\x00\x00\x00\x40", 12, false, EPROTO },
	{ EXI_PACKET_HELLO "\xff\xff\xff\xff", 12, false, EPROTO },
	{ EXI_PACKET_HELLO "\x01\x00\x00\x80x", 13, false, EPROTO },
	{ EXI_PACKET_HELLO "\xff\xff\xff\x3fx", 13, false, EAGAIN },
	{ EXI_PACKET_HELLO "\xff\xff\xff\x3fx", 13, true, ECONNRESET },
	{ EXI_PACKET_HELLO "\x02\x00\x00", 11, true, ECONNRESET },
	{ EXI_PACKET_HELLO "\x02\x00\x00\x00x", 13, true, ECONNRESET },
};

/* Every byte by itself, or all at once. */
static void say(int s, const char *bytes, size_t len, bool slowly)
{
	for (size_t at = 0; at < len;) {
		size_t n = slowly ? 1 : len - at;

		T_EQ(T_OK(send(s, bytes + at, n, MSG_NOSIGNAL)), n);
		at += n;
	}
}

static ssize_t receive_until(int s, int queued, exs_qhandle_t q, bool waits)
{
	static char buf[10];
	exs_event_t e;

	if (!queued)
		return t_recv(s, buf, sizeof(buf), waits ? MSG_DONTWAIT : 0);
	t_post_recv(s, buf, sizeof(buf), 0, q, 1);
	if (waits)
		T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), 1);
	e = t_event(q);
	errno = e.exs_errno == ECANCELED ? EAGAIN : e.exs_errno;
	return e.exs_errno ? -1 : (ssize_t)bytes_of(&e);
}

static void what_is_no_message_is_told(void)
{
	exs_qhandle_t q;

	t_init();
	q = T_OK(exs_qcreate(4));
	for (size_t i = 0; i < 4 * T_COUNT(wrong); i++) {
		size_t k = i % T_COUNT(wrong);
		bool waits = wrong[k].err == EAGAIN;
		int fd[2];

		t_note("row %zu", k);
		raw_pair(fd);
		say(fd[1], wrong[k].bytes, wrong[k].len, i & 1);
		if (wrong[k].ends)
			close(fd[1]);
		if (!wrong[k].err) {
			T_EQ(T_OK(receive_until(fd[0], i % 3, q, waits)), 0);
		} else {
			T_ERR(receive_until(fd[0], i % 3, q, waits),
			      wrong[k].err);
		}
		/* Said of both directions, again and again. */
		if (wrong[k].err == EPROTOTYPE || wrong[k].err == EPROTO) {
			T_ERR(t_recv(fd[0], &(char){ 0 }, 1, 0), wrong[k].err);
			T_ERR(t_send(fd[0], "x", 1, 0), wrong[k].err);
			T_EQ(poll_now(fd[0], EXS_POLLIN), EXS_POLLIN);
		}
		t_close(fd[0]);
		if (!wrong[k].ends)
			close(fd[1]);
	}
	t_note(NULL);
	T_OK(exs_qdelete(q));
}

/* A send that waits hears of it, too. */
static void a_send_that_waits_hears_what_the_peer_is(void)
{
	exs_qhandle_t q;
	char *buf = calloc(1, LARGE);
	exs_event_t e;
	int fd[2];

	raw_pair(fd);
	q = T_OK(exs_qcreate(4));
	t_post_send(fd[0], buf, LARGE, 0, q, 1);
	say(fd[1], "stream", 6, false);
	T_ERR(t_recv(fd[0], buf, 1, 0), EPROTOTYPE);
	/* What the kernel has already goes; nobody reads it. */
	T_OK(exs_cancel(fd[0], NULL, EXS_CAF_FILDES));
	close(fd[1]);
	e = t_event(q);
	T(e.exs_errno == EPROTOTYPE || e.exs_errno == ECONNRESET ||
	  e.exs_errno == EPIPE);
	T_EQ(bytes_of(&e), 0);
	t_close(fd[0]);
	free(buf);
	T_OK(exs_qdelete(q));
}

/* What a plain socket finds, byte for byte. */
static void the_bytes_are_as_documented(void)
{
	static const char want[] = "\x89"
				   "EXSMSG\x01"
				   "\x05\x00\x00\x00hello"
				   "\x00\x00\x00\x00"
				   "\x01\x00\x00\x00!";
	char buf[sizeof(want)];
	int fd[2];

	raw_pair(fd);
	T_EQ(T_OK(t_send(fd[0], "hello", 5, 0)), 5);
	T_EQ(T_OK(t_send(fd[0], "", 0, 0)), 0);
	T_EQ(T_OK(t_send(fd[0], "!", 1, 0)), 1);
	t_close(fd[0]);
	T_EQ(T_OK(recv(fd[1], buf, sizeof(buf), MSG_WAITALL)),
	     sizeof(want) - 1);
	T(!memcmp(buf, want, sizeof(want) - 1));
	close(fd[1]);
}

/* Whichever of the two connects. */
static void a_stream_of_the_library_is_told_apart(void)
{
	char buf[20];

	t_init();
	for (int way = 0; way < 2; way++) {
		struct t_addr at;
		int l, to, s;

		t_type = way ? SOCK_STREAM : SOCK_SEQPACKET;
		l = t_listener(T_IPV4, &at);
		t_type = way ? SOCK_SEQPACKET : SOCK_STREAM;
		to = t_connect(&at);
		s = t_accept(l);
		t_close(l);
		T_EQ(T_OK(t_send(way ? s : to, "a stream of bytes", 17, 0)),
		     17);
		T_ERR(t_recv(way ? to : s, buf, sizeof(buf), 0), EPROTOTYPE);
		T_ERR(t_send(way ? to : s, "x", 1, 0), EPROTOTYPE);
		t_close(to);
		t_close(s);
	}
}

/* --- processes ---------------------------------------------------------- */

/* A child goes on between messages. */
static void a_child_goes_on(void)
{
	char buf[10];
	int fd[2];

	conf_pair(fd);
	T_EQ(T_OK(t_send(fd[0], "one", 3, 0)), 3);
	T_EQ(T_OK(t_send(fd[0], "two", 3, 0)), 3);
	T_EQ(T_OK(t_recv(fd[1], buf, sizeof(buf), 0)), 3);
	if (conf_is("loop")) { /* which is of one process */
		T_OK(exs_x_downgrade(fd[0]));
		T_OK(exs_x_downgrade(fd[1]));
	}
	for (int i = 0; i < 2; i++) {
		pid_t pid = t_fork();

		if (pid == 0) {
			T_EQ(T_OK(t_recv(fd[1], buf, sizeof(buf), 0)),
			     i ? 4 : 3);
			T_EQ(T_OK(t_send(fd[0], "four", 4, 0)), 4);
			_exit(0);
		}
		t_join(pid);
	}
	T_EQ(T_OK(t_recv(fd[1], buf, sizeof(buf), 0)), 4);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void killed(int s, int ctl)
{
	T_EQ(T_OK(t_send(s, "whole", 5, 0)), 5);
	send_unread(s, LARGE, 1);
	t_tell(ctl, 1);
	pause();
}

static void the_last_half_of_the_dead_is_told(void)
{
	struct t_peer p;
	char *buf = malloc(LARGE);
	int s = t_pair_fork(&p, T_A, killed);

	t_expect(p.ctl, 1);
	T_EQ(T_OK(t_recv(s, buf, LARGE, 0)), 5);
	t_peer_kill(&p);
	T_ERR(t_recv(s, buf, LARGE, 0), ECONNRESET);
	T_EQ(T_OK(t_recv(s, buf, LARGE, 0)), 0);
	free(buf);
	t_close(s);
}

static const struct t_row rows[] = {
	CONF_ROWS(a_message_is_received_as_it_was_sent),
	CONF_ROWS(what_does_not_fit_is_cut_off_and_told),
	CONF_ROWS(a_message_may_be_larger_than_the_fabric_holds),
	CONF_ROWS(a_cancelled_receive_leaves_its_message),
	CONF_ROWS(a_send_that_has_begun_is_not_cancelled),
	CONF_ROWS(time_runs_out_between_messages),
	CONF_ROWS(a_signal_comes_between_messages),
	CONF_ROWS(messages_of_many_threads_are_whole),
	CONF_ROWS(a_batch_is_as_many_messages),
	CONF_ROWS(the_parts_of_a_file_are_one_message),
	CONF_ROWS(a_poll_tells_of_a_message),
	CONF_ROWS(a_close_waits_for_the_rest_of_a_message),
	T_ROW(a_close_with_a_queue_does_not_wait),
	CONF_ROWS(half_a_message_is_none),
	CONF_ROWS(a_file_that_shrinks_breaks_its_message),
	CONF_ROWS(messages_are_whole_wherever_they_go),
	CONF_ROWS(messages_go_into_receives_that_wait),
	T_ROW(what_makes_no_sense_is_refused),
	T_ROW(what_is_no_message_is_told),
	T_ROW(a_send_that_waits_hears_what_the_peer_is),
	T_ROW(the_bytes_are_as_documented),
	T_ROW(a_stream_of_the_library_is_told_apart),
	T_ROW(a_child_goes_on),
	T_ROW(the_last_half_of_the_dead_is_told),
};

int main(int argc, char **argv)
{
	t_type = SOCK_SEQPACKET;
	return conf_main(argc, argv, "packets", rows, T_COUNT(rows));
}
