/* SPDX-License-Identifier: BSD-2-Clause */
/* A stream behaves like that of a TCP socket, with the synchronous calls:
 * order, short transfers, would-block, half-close, end, reset, time-outs,
 * signals. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

enum {
	SEED_AB = 1,
	SEED_BA = 2,
};

static uint64_t scaled(uint64_t n)
{
	return n / t_slow();
}

/* A bound port that nobody listens on. */
static int closed_port(struct t_addr *at)
{
	struct t_addr want = t_loopback(T_IPV4, 0);
	int s = T_OK(exs_socket(want.domain, SOCK_STREAM | SOCK_CLOEXEC, 0));

	T_OK(exs_bind(s, (struct sockaddr *)&want.ss, want.len));
	*at = t_loopback(T_IPV4, t_port_of(s));
	return s;
}

static void connecting_where_nobody_listens_is_refused(void)
{
	struct t_addr at;
	exs_event_t e;
	exs_qhandle_t q;
	int hole, s;

	t_init();
	hole = closed_port(&at);
	s = T_OK(exs_socket(at.domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_ERR(exs_connect(s, (struct sockaddr *)&at.ss, at.len, 0, T_SYNC),
	      ECONNREFUSED);
	q = T_OK(exs_qcreate(4));
	T_EQ(exs_connect(s, (struct sockaddr *)&at.ss, at.len, 0, q,
			 (exs_ahandle_t)7),
	     0);
	e = t_event(q);
	T_EQ(e.exs_evt_type, EXS_EVT_CONNECT);
	T_EQ(e.exs_errno, ECONNREFUSED);
	T_EQ(e.exs_evt_socket, s);
	T_EQ((long)e.exs_evt_ahandle, 7);
	T_OK(exs_qdelete(q));
	t_close(s);
	t_close(hole);
}

static void send_chunks(int s, uint64_t seed, uint64_t len, size_t max)
{
	struct t_rng r = { seed };
	char *buf = malloc(max);
	uint64_t at = 0;

	while (at < len) {
		size_t n = t_chunk(&r, max);

		if (n > len - at)
			n = len - at;
		t_fill(buf, n, seed, at);
		t_send_all(s, buf, n, 0);
		at += n;
	}
	free(buf);
}

static void recv_chunks(int s, uint64_t seed, uint64_t len, size_t max)
{
	struct t_rng r = { ~seed };
	char *buf = malloc(max);
	uint64_t at = 0;

	while (at < len) {
		size_t want = t_chunk(&r, max);
		ssize_t n;

		if (want > len - at)
			want = len - at;
		n = T_OK(t_recv(s, buf, want, 0));
		T(n > 0 && n <= want);
		t_check_bytes(buf, n, seed, at);
		at += n;
	}
	free(buf);
}

#define ORDER_BYTES scaled(24 << 20)

static void order_a(int s, int ctl)
{
	send_chunks(s, SEED_AB, ORDER_BYTES, 40000);
	recv_chunks(s, SEED_BA, ORDER_BYTES, 90000);
	t_close(s);
}

static void order_b(int s, int ctl)
{
	recv_chunks(s, SEED_AB, ORDER_BYTES, 90000);
	send_chunks(s, SEED_BA, ORDER_BYTES, 40000);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(bytes_arrive_in_order_in_chunks_of_any_size, order_a, order_b)

#define HUGE_SEND (64 << 20)

/* A receive takes what is there; a send that must not wait takes what there
 * is room for. */
static void short_a(int s, int ctl)
{
	char *buf = malloc(HUGE_SEND);
	ssize_t n;

	t_fill(buf, 10000, SEED_AB, 0);
	t_send_all(s, buf, 10000, 0);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	t_fill(buf, HUGE_SEND, SEED_BA, 0);
	n = T_OK(t_send(s, buf, HUGE_SEND, MSG_DONTWAIT));
	T_MSG(n > 0 && n < HUGE_SEND, "took %zd bytes", n);
	t_tell(ctl, n);
	t_expect(ctl, 3);
	free(buf);
	t_close(s);
}

static void short_b(int s, int ctl)
{
	char *buf = malloc(HUGE_SEND);
	uint64_t len;
	ssize_t n;

	t_expect(ctl, 1);
	T_EQ(T_OK(t_recv(s, buf, 7, 0)), 7);
	T_EQ(T_OK(t_recv(s, buf + 7, 2, MSG_PEEK)), 2);
	n = T_OK(t_recv(s, buf + 7, HUGE_SEND - 7, 0));
	T(n > 0 && n <= 10000 - 7);
	t_recv_all(s, buf + 7 + n, 10000 - 7 - n);
	t_check_bytes(buf, 10000, SEED_AB, 0);
	t_tell(ctl, 2);
	len = t_ask(ctl);
	t_recv_stream(s, SEED_BA, 0, len, 1 << 20);
	T_ERR(t_recv(s, buf, 1, MSG_DONTWAIT), EAGAIN);
	t_tell(ctl, 3);
	free(buf);
	t_close(s);
}

CONF_DUO(transfers_may_be_short, short_a, short_b)

static void peek_a(int s, int ctl)
{
	char buf[5000];

	t_fill(buf, sizeof(buf), SEED_AB, 0);
	t_send_all(s, buf, sizeof(buf), 0);
	t_tell(ctl, 1);
	t_recv_end(s);
	t_close(s);
}

static void peek_b(int s, int ctl)
{
	char buf[5000];
	ssize_t n;

	t_expect(ctl, 1);
	n = T_OK(t_recv(s, buf, 3000, MSG_PEEK));
	t_check_bytes(buf, n, SEED_AB, 0);
	n = T_OK(t_recv(s, buf, 100, MSG_PEEK));
	t_check_bytes(buf, n, SEED_AB, 0);
	t_recv_all(s, buf, sizeof(buf));
	t_check_bytes(buf, sizeof(buf), SEED_AB, 0);
	T_ERR(t_recv(s, buf, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
	t_close(s);
}

CONF_DUO(peeking_leaves_the_bytes, peek_a, peek_b)

static void waitall_a(int s, int ctl)
{
	int i;

	for (i = 0; i < 10; i++) {
		t_send_stream(s, SEED_AB, i * 3000, 3000, 3000);
		t_expect(ctl, i);
	}
	t_send_stream(s, SEED_AB, 30000, 10, 10);
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
}

static void *pace(void *arg)
{
	int ctl = *(int *)arg, i;

	for (i = 0; i < 10; i++)
		t_tell(ctl, i);
	return NULL;
}

static void waitall_b(int s, int ctl)
{
	char buf[30000];
	pthread_t t = t_thread(pace, &ctl);

	T_EQ(T_OK(t_recv(s, buf, sizeof(buf), MSG_WAITALL)), sizeof(buf));
	t_check_bytes(buf, sizeof(buf), SEED_AB, 0);
	t_thread_join(t);
	T_EQ(T_OK(t_recv(s, buf, sizeof(buf), MSG_WAITALL)), 10);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(waiting_for_all_fills_the_buffer, waitall_a, waitall_b)

/* Sends without waiting until there is no room; returns how many bytes. */
static uint64_t fill_up(int s, uint64_t seed)
{
	char buf[10000];
	uint64_t at = 0;
	ssize_t n;

	for (;;) {
		t_fill(buf, sizeof(buf), seed, at);
		n = t_send(s, buf, sizeof(buf), MSG_DONTWAIT);
		if (n < 0)
			break;
		T(n > 0);
		at += n;
	}
	T_EQ(errno, EAGAIN);
	return at;
}

#define AFTER_FULL (1 << 20)

static void again_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(2));
	char *buf = malloc(AFTER_FULL);
	uint64_t at;

	t_expect(ctl, 1);
	t_send_all(s, "hello", 5, 0);
	at = fill_up(s, SEED_AB);
	T(at > 0);
	t_fill(buf, AFTER_FULL, SEED_AB, at);
	t_post_send(s, buf, AFTER_FULL, 0, q, 9);
	t_tell(ctl, at + AFTER_FULL);
	T(t_readable(exs_x_qfd(q), 20000 * t_slow()));
	T_EQ(t_event_is(q, EXS_EVT_SEND, 9), AFTER_FULL);
	t_expect(ctl, 2);
	T_OK(exs_qdelete(q));
	free(buf);
	t_close(s);
}

static void again_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(2));
	char buf[16] = { 0 };
	uint64_t len;

	T_ERR(t_recv(s, buf, sizeof(buf), MSG_DONTWAIT), EAGAIN);
	t_post_recv(s, buf, 5, MSG_WAITALL, q, 8);
	t_no_event(q);
	t_tell(ctl, 1);
	T(t_readable(exs_x_qfd(q), 20000 * t_slow()));
	T_EQ(t_event_is(q, EXS_EVT_RECV, 8), 5);
	T(!memcmp(buf, "hello", 5));
	len = t_ask(ctl);
	t_recv_stream(s, SEED_AB, 0, len, 50000);
	t_tell(ctl, 2);
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(would_block_is_followed_by_readiness, again_a, again_b)

static void nonblock_a(int s, int ctl)
{
	ssize_t n;
	char byte;

	T_OK(exs_fcntl(s, F_SETFL, O_NONBLOCK));
	T(T_OK(exs_fcntl(s, F_GETFL)) & O_NONBLOCK);
	T_ERR(t_recv(s, &byte, 1, 0), EAGAIN);
	/* The move to a fabric makes room once more. */
	do {
		fill_up(s, SEED_AB);
		n = t_send(s, "x", 1, 0);
	} while (n == 1);
	T(n == -1 && errno == EAGAIN);
	T_OK(exs_fcntl(s, F_SETFL, 0));
	t_tell(ctl, 1);
	t_recv_all(s, &byte, 1);
	t_close(s);
}

static void nonblock_b(int s, int ctl)
{
	char buf[65536];
	ssize_t n;

	t_expect(ctl, 1);
	t_send_all(s, "y", 1, 0);
	do
		n = T_OK(t_recv(s, buf, sizeof(buf), 0));
	while (n > 0);
	t_close(s);
}

CONF_DUO(a_non_blocking_descriptor_never_waits, nonblock_a, nonblock_b)

static void half_first(int s)
{
	t_send_stream(s, SEED_AB, 0, 100000, 7000);
	T_OK(t_shutdown(s, SHUT_WR));
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_recv_stream(s, SEED_BA, 0, 300000, 9000);
	t_recv_end(s);
	t_close(s);
}

static void half_second(int s)
{
	t_recv_stream(s, SEED_AB, 0, 100000, 9000);
	t_recv_end(s);
	t_send_stream(s, SEED_BA, 0, 300000, 7000);
	T_OK(t_shutdown(s, SHUT_WR));
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_recv_end(s);
	t_close(s);
}

static void half_by_a_a(int s, int ctl)
{
	half_first(s);
}

static void half_by_a_b(int s, int ctl)
{
	half_second(s);
}

static void half_by_b_a(int s, int ctl)
{
	half_second(s);
}

static void half_by_b_b(int s, int ctl)
{
	half_first(s);
}

CONF_DUO(half_close_by_the_end_that_connected, half_by_a_a, half_by_a_b)
CONF_DUO(half_close_by_the_end_that_accepted, half_by_b_a, half_by_b_b)

static void both_down_a(int s, int ctl)
{
	char byte;

	T_OK(t_shutdown(s, SHUT_RDWR));
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	T_EQ(T_OK(t_recv(s, &byte, 1, 0)), 0);
	t_expect(ctl, 1);
	t_close(s);
}

static void both_down_b(int s, int ctl)
{
	t_recv_end(s);
	t_tell(ctl, 1);
	t_close(s);
}

CONF_DUO(shutting_both_ways_ends_both, both_down_a, both_down_b)

struct blocked {
	int s;
	_Atomic pid_t tid;
	_Atomic bool over;
	ssize_t result;
	int err;
	int64_t end_ns;
};

static void *blocked_recv(void *arg)
{
	struct blocked *b = arg;
	char byte;

	b->tid = syscall(SYS_gettid);
	b->result = t_recv(b->s, &byte, 1, 0);
	b->err = errno;
	b->end_ns = t_now_ns();
	b->over = true;
	return NULL;
}

static void no_reading_a(int s, int ctl)
{
	struct blocked b = { .s = s };
	pthread_t t = t_thread(blocked_recv, &b);

	T_UNTIL(b.tid != 0);
	t_until_asleep(b.tid);
	T_OK(t_shutdown(s, SHUT_RD));
	t_thread_join(t);
	T_EQ(b.result, 0);
	t_send_all(s, "on", 2, 0);
	t_expect(ctl, 1);
	t_close(s);
}

static void no_reading_b(int s, int ctl)
{
	char buf[2];

	t_recv_all(s, buf, 2);
	t_tell(ctl, 1);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(shutting_the_reading_side_wakes_its_reader, no_reading_a, no_reading_b)

static void leave_a(int s, int ctl)
{
	t_send_stream(s, SEED_AB, 0, 50000, 5000);
	t_close(s);
	t_tell(ctl, 1);
}

static void leave_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_recv_stream(s, SEED_AB, 0, 50000, 9000);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(bytes_sent_before_a_close_stay_readable, leave_a, leave_b)

/* Sends until it fails: EPIPE, or ECONNRESET and then EPIPE. */
static void send_until_broken(int s)
{
	struct t_deadline d = t_deadline_ms(20000);

	while (t_send(s, "x", 1, MSG_NOSIGNAL) == 1)
		T(t_tick(&d));
	T_MSG(errno == EPIPE || errno == ECONNRESET, "send says %s",
	      t_errname(errno));
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
}

static void pipe_a(int s, int ctl)
{
	t_expect(ctl, 1);
	t_recv_end(s);
	send_until_broken(s);
	t_close(s);
}

static void pipe_b(int s, int ctl)
{
	t_close(s);
	t_tell(ctl, 1);
}

CONF_DUO(sending_to_a_closed_peer_gives_epipe, pipe_a, pipe_b)

static _Atomic int pipes;

static void count_pipe(int sig)
{
	pipes++;
}

static void sigpipe_a(int s, int ctl)
{
	signal(SIGPIPE, count_pipe);
	T_OK(t_shutdown(s, SHUT_WR));
	pipes = 0;
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	T_EQ(pipes, 0);
	T_ERR(t_send(s, "x", 1, 0), EPIPE);
	T_EQ(pipes, 1);
	signal(SIGPIPE, SIG_IGN);
	t_close(s);
}

static void sigpipe_b(int s, int ctl)
{
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(epipe_raises_sigpipe_unless_told_not_to, sigpipe_a, sigpipe_b)

/* Close with unread bytes. */
static void reset_a(int s, int ctl)
{
	char byte;

	t_send_stream(s, SEED_AB, 0, 100, 100);
	t_tell(ctl, 1);
	T_ERR(t_recv(s, &byte, 1, 0), ECONNRESET);
	T_EQ(T_OK(t_recv(s, &byte, 1, 0)), 0);
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_close(s);
}

/* The bytes have arrived: Nagle may have held them back for a while. */
static void reset_b(int s, int ctl)
{
	char byte;

	t_expect(ctl, 1);
	T_EQ(T_OK(t_recv(s, &byte, 1, MSG_PEEK)), 1);
	t_close(s);
}

CONF_DUO(closing_with_unread_bytes_resets_the_peer_once, reset_a, reset_b)

static void linger_b(int s, int ctl)
{
	struct linger zero = { .l_onoff = 1 };
	char buf[100];

	t_expect(ctl, 1);
	t_recv_all(s, buf, sizeof(buf));
	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_LINGER, &zero, sizeof(zero)));
	t_close(s);
}

/* SO_LINGER is nothing to a UNIX socket: the end comes. */
static void linger_a(int s, int ctl)
{
	if (!t_is_unix()) {
		reset_a(s, ctl);
		return;
	}
	t_send_stream(s, SEED_AB, 0, 100, 100);
	t_tell(ctl, 1);
	t_recv_end(s);
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_close(s);
}

CONF_DUO(closing_with_linger_zero_resets_the_peer_once, linger_a, linger_b)

#define SINGLE_BYTES scaled(50000)

static void one_byte_a(int s, int ctl)
{
	int on = 1;

	if (!t_is_unix())
		T_OK(exs_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on,
				    sizeof(on)));
	t_send_stream(s, SEED_AB, 0, SINGLE_BYTES, 1);
	t_recv_stream(s, SEED_BA, 0, SINGLE_BYTES, 1);
	t_recv_end(s);
	t_close(s);
}

static void one_byte_b(int s, int ctl)
{
	t_recv_stream(s, SEED_AB, 0, SINGLE_BYTES, 1);
	t_send_stream(s, SEED_BA, 0, SINGLE_BYTES, 1);
	t_close(s);
}

CONF_DUO(transfers_of_one_byte, one_byte_a, one_byte_b)

#define FLOOD scaled(64 << 20)

struct flood {
	int s;
	uint64_t seed;
	uint64_t pos;
};

static void *flood_on(void *arg)
{
	struct flood *f = arg;

	t_send_stream(f->s, f->seed, f->pos, FLOOD, 70000);
	T_OK(t_shutdown(f->s, SHUT_WR));
	return NULL;
}

static void full_side(int s, int ctl, uint64_t mine, uint64_t theirs)
{
	struct flood f = { .s = s, .seed = mine };
	uint64_t len;
	pthread_t t;

	f.pos = fill_up(s, mine);
	T(f.pos > 0);
	t_tell(ctl, f.pos);
	len = t_ask(ctl);
	t = t_thread(flood_on, &f);
	t_recv_stream(s, theirs, 0, len + FLOOD, 80000);
	t_recv_end(s);
	t_thread_join(t);
	t_close(s);
}

static void full_a(int s, int ctl)
{
	full_side(s, ctl, SEED_AB, SEED_BA);
}

static void full_b(int s, int ctl)
{
	full_side(s, ctl, SEED_BA, SEED_AB);
}

CONF_DUO(both_directions_full_at_once, full_a, full_b)

/* Imitated devices are slow. */
#define BULK scaled(conf_between() ? 16 << 20 : 1 << 30)

static void bulk_a(int s, int ctl)
{
	t_send_stream(s, SEED_AB, 0, BULK, 1 << 18);
	t_recv_end(s);
	t_close(s);
}

static void bulk_b(int s, int ctl)
{
	t_recv_stream(s, SEED_AB, 0, BULK, 1 << 18);
	t_close(s);
}

static void a_gibibyte_through_a_small_ring_in_one_process(void)
{
	setenv("EXS_RING_KB", "16", 1);
	conf_duo(CONF_HERE, bulk_a, bulk_b);
}

static void a_gibibyte_through_a_small_ring_in_two_processes(void)
{
	setenv("EXS_RING_KB", "16", 1);
	conf_duo(CONF_APART, bulk_a, bulk_b);
}

static void rcvtimeo_a(int s, int ctl)
{
	struct timeval tv = { .tv_usec = 60000 };
	int64_t start;
	char byte;

	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	start = t_now_ns();
	T_ERR(t_recv(s, &byte, 1, 0), EAGAIN);
	T(t_now_ns() - start >= 50000000);
	t_tell(ctl, 1);
	T_UNTIL(t_recv(s, &byte, 1, 0) == 1);
	t_close(s);
}

static void rcvtimeo_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_all(s, "x", 1, 0);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_receive_times_out_as_the_option_says, rcvtimeo_a, rcvtimeo_b)

static void sndtimeo_a(int s, int ctl)
{
	struct timeval tv = { .tv_usec = 60000 };
	char buf[1000];
	int64_t start;

	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	memset(buf, 0, sizeof(buf));
	do {
		start = t_now_ns();
		errno = 0;
	} while (t_send(s, buf, sizeof(buf), 0) > 0);
	T_EQ(errno, EAGAIN);
	T(t_now_ns() - start >= 50000000);
	t_tell(ctl, 1);
	t_close(s);
}

static void sndtimeo_b(int s, int ctl)
{
	char buf[65536];

	t_expect(ctl, 1);
	while (T_OK(t_recv(s, buf, sizeof(buf), 0)) > 0)
		;
	t_close(s);
}

CONF_DUO(a_send_times_out_as_the_option_says, sndtimeo_a, sndtimeo_b)

static void nothing(int sig)
{
}

static void eintr_a(int s, int ctl)
{
	struct sigaction act = { .sa_handler = nothing };
	struct blocked b = { .s = s };
	pthread_t t;

	sigaction(SIGUSR1, &act, NULL);
	t = t_thread(blocked_recv, &b);
	T_UNTIL(b.tid != 0);
	t_interrupt(b.tid, &b.over);
	t_thread_join(t);
	T_EQ(b.result, -1);
	T_EQ(b.err, EINTR);

	act.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &act, NULL);
	b.tid = 0;
	t = t_thread(blocked_recv, &b);
	T_UNTIL(b.tid != 0);
	t_until_asleep(b.tid);
	pthread_kill(t, SIGUSR1);
	t_until_asleep(b.tid);
	t_tell(ctl, 1);
	t_thread_join(t);
	T_EQ(b.result, 1);
	t_close(s);
}

CONF_DUO(a_signal_ends_a_blocked_receive_unless_it_restarts, eintr_a,
	 rcvtimeo_b)

#define SHARERS	     4
#define SHARER_BYTES scaled(20000)

struct sharer {
	int s;
	char value;
};

static void *send_own_bytes(void *arg)
{
	struct sharer *me = arg;
	uint64_t i;

	for (i = 0; i < SHARER_BYTES; i++)
		t_send_all(me->s, &me->value, 1, 0);
	return NULL;
}

static void sharers_a(int s, int ctl)
{
	struct sharer all[SHARERS];
	pthread_t t[SHARERS];
	int i;

	for (i = 0; i < SHARERS; i++) {
		all[i] = (struct sharer){ .s = s, .value = i };
		t[i] = t_thread(send_own_bytes, &all[i]);
	}
	for (i = 0; i < SHARERS; i++)
		t_thread_join(t[i]);
	t_recv_end(s);
	t_close(s);
}

struct taker {
	int s;
	uint64_t seen[SHARERS];
	_Atomic uint64_t *total;
};

static void *take_bytes(void *arg)
{
	struct taker *me = arg;
	unsigned char buf[100];
	ssize_t n, i;

	while ((n = T_OK(t_recv(me->s, buf, sizeof(buf), 0))) > 0) {
		for (i = 0; i < n; i++) {
			T(buf[i] < SHARERS);
			me->seen[buf[i]]++;
		}
		/* One of them does: later the peer may have closed. */
		if (atomic_fetch_add(me->total, (uint64_t)n) + (uint64_t)n ==
		    SHARERS * SHARER_BYTES)
			T_OK(t_shutdown(me->s, SHUT_RDWR));
	}
	return NULL;
}

static void sharers_b(int s, int ctl)
{
	_Atomic uint64_t total = 0;
	struct taker one = { .s = s, .total = &total }, two = one;
	pthread_t t = t_thread(take_bytes, &two);
	int i;

	take_bytes(&one);
	t_thread_join(t);
	for (i = 0; i < SHARERS; i++)
		T_EQ(one.seen[i] + two.seen[i], SHARER_BYTES);
	t_close(s);
}

CONF_DUO(threads_share_a_socket_without_losing_bytes, sharers_a, sharers_b)

static void counters_add_up(void)
{
	exs_x_sockinfo_t a, b;
	char buf[5000] = { 0 };
	int fd[2];

	conf_pair(fd);
	a = t_info(fd[0]);
	t_send_all(fd[0], buf, 5000, 0);
	t_recv_all(fd[1], buf, 5000);
	T_EQ(t_info(fd[0]).exs_x_tx_bytes - a.exs_x_tx_bytes, 5000);
	b = t_info(fd[1]);
	T_EQ(b.exs_x_rx_bytes, t_info(fd[0]).exs_x_tx_bytes);
	if (!strcmp(conf_here().fabric, "tcp")) {
		T_EQ(b.exs_x_rx_fabric_bytes, 0);
		T_EQ(b.exs_x_upgrades, 0);
	} else {
		T(b.exs_x_rx_fabric_bytes >= 5000);
		T_EQ(b.exs_x_upgrades, 2);
		T_EQ(b.exs_x_paired, 1);
	}
	T_EQ(b.exs_x_downgrades, 0);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* By exs_fcntl(): the connection is where it was, under both numbers, until
 * both are closed. */
static void a_second_number_is_the_same_connection(void)
{
	exs_qhandle_t q;
	int fd[2], also;
	char c[3];

	conf_pair(fd);
	q = T_OK(exs_qcreate(4));
	also = T_OK(exs_fcntl(fd[0], F_DUPFD_CLOEXEC, 100));
	T(also >= 100);
	t_send_all(also, "one", 3, 0);
	t_send_all(fd[0], "two", 3, 0);
	t_recv_all(fd[1], c, 3);
	T(!memcmp(c, "one", 3));
	t_recv_all(fd[1], c, 3);
	T(!memcmp(c, "two", 3));
	T(t_is(also, conf_here()));
	T(t_is(fd[0], conf_here()));
	t_post_recv(also, c, 3, MSG_WAITALL, q, 5);
	t_send_all(fd[1], "for", 3, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 5), 3);
	t_close(fd[0]);
	t_send_all(also, "six", 3, 0);
	t_recv_all(fd[1], c, 3);
	T(!memcmp(c, "six", 3));
	T_OK(exs_x_downgrade(also));
	T_EQ(T_OK(send(also, "tcp", 3, 0)), 3);
	t_recv_all(fd[1], c, 3);
	T(!memcmp(c, "tcp", 3));
	t_close(also);
	t_recv_end(fd[1]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

static void many_connections(int n)
{
	int fd[2], i;

	for (i = 0; i < n; i++) {
		t_pair(T_IPV4, fd);
		t_settle_pair(fd[0], fd[1], conf_here());
		t_close(fd[i % 2]);
		t_recv_end(fd[!(i % 2)]);
		t_close(fd[!(i % 2)]);
	}
}

static void connections_leave_no_descriptor_behind(void)
{
	int start;

	t_init();
	many_connections(5);
	start = t_fd_count();
	many_connections(scaled(400));
	/* The eventfd of this thread, if it did not sleep before. */
	T_UNTIL(t_fd_count() <= start + 1);
}

/* Though libraries beneath a fabric would take them. */
static void signals_are_the_programs(void)
{
	struct sigaction before[NSIG], now;
	int fd[2];

	for (int i = 1; i < NSIG; i++)
		sigaction(i, NULL, &before[i]);
	conf_pair(fd);
	for (int i = 1; i < NSIG; i++)
		if (!sigaction(i, NULL, &now))
			T_MSG(now.sa_handler == before[i].sa_handler,
			      "signal %d", i);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* The mask of a thread of this process, if it is the library's. */
static bool blocked(const char *tid, uint64_t *ret)
{
	char path[300], line[128];
	bool ours = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		ours = ours || !strcmp(line, "Name:\tlibexs\n");
		if (sscanf(line, "SigBlk:\t%" SCNx64, ret) == 1)
			break;
	}
	if (f)
		fclose(f);
	return ours;
}

/* But for a fault of its own, of which the program's handler is to tell. */
static void the_librarys_thread_takes_no_signals(void)
{
	const uint64_t faults =
		UINT64_C(1) << (SIGSEGV - 1) | UINT64_C(1) << (SIGBUS - 1) |
		UINT64_C(1) << (SIGILL - 1) | UINT64_C(1) << (SIGFPE - 1);
	const uint64_t never = UINT64_C(1) << (SIGKILL - 1) |
			       UINT64_C(1) << (SIGSTOP - 1) |
			       UINT64_C(3) << 31; /* the C library's */
	unsigned int threads = 0;
	struct dirent *e;
	uint64_t mask;
	int fd[2];
	DIR *d;

	conf_pair(fd);
	d = opendir("/proc/self/task");
	T(d);
	while ((e = readdir(d)))
		if (blocked(e->d_name, &mask)) {
			T_MSG((mask | never) == ~faults, "%" PRIx64, mask);
			threads++;
		}
	closedir(d);
	T(threads || conf_is("tcp"));
	t_close(fd[0]);
	t_close(fd[1]);
}

static const struct t_row rows[] = {
	T_ROW(connecting_where_nobody_listens_is_refused),
	T_ROW(signals_are_the_programs),
	T_ROW(the_librarys_thread_takes_no_signals),
	CONF_ROWS(bytes_arrive_in_order_in_chunks_of_any_size),
	CONF_ROWS(transfers_may_be_short),
	CONF_ROWS(peeking_leaves_the_bytes),
	CONF_ROWS(waiting_for_all_fills_the_buffer),
	CONF_ROWS(would_block_is_followed_by_readiness),
	CONF_ROWS(a_non_blocking_descriptor_never_waits),
	CONF_ROWS(half_close_by_the_end_that_connected),
	CONF_ROWS(half_close_by_the_end_that_accepted),
	CONF_ROWS(shutting_both_ways_ends_both),
	CONF_ROWS(shutting_the_reading_side_wakes_its_reader),
	CONF_ROWS(bytes_sent_before_a_close_stay_readable),
	CONF_ROWS(sending_to_a_closed_peer_gives_epipe),
	CONF_ROWS(epipe_raises_sigpipe_unless_told_not_to),
	CONF_ROWS(closing_with_unread_bytes_resets_the_peer_once),
	CONF_ROWS(closing_with_linger_zero_resets_the_peer_once),
	CONF_ROWS(transfers_of_one_byte),
	CONF_ROWS_LONG(both_directions_full_at_once, 90),
	T_ROW_LONG(a_gibibyte_through_a_small_ring_in_one_process, 120),
	T_ROW_LONG(a_gibibyte_through_a_small_ring_in_two_processes, 120),
	CONF_ROWS(a_receive_times_out_as_the_option_says),
	CONF_ROWS(a_send_times_out_as_the_option_says),
	CONF_ROWS(a_signal_ends_a_blocked_receive_unless_it_restarts),
	CONF_ROWS(threads_share_a_socket_without_losing_bytes),
	T_ROW(counters_add_up),
	T_ROW(a_second_number_is_the_same_connection),
	T_ROW_LONG(connections_leave_no_descriptor_behind, 90),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "stream", rows, T_COUNT(rows));
}
