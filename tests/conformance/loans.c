/* SPDX-License-Identifier: BSD-2-Clause */
/* Loans: bytes that the program reads or writes in place. They arrive once and
 * in order, whatever else happens, and other calls wait until a loan ends. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

/* --- a stream ----------------------------------------------------------- */

#define VOLUME ((uint64_t)(12 << 20) / t_slow())
#define CHUNK  100000

/* Up to want bytes of the stream are made in place; how many. */
static size_t make(int s, struct t_rng *rng, uint64_t pos, size_t want)
{
	void *at;
	size_t n = (size_t)T_OK(exs_x_send_loan(s, &at, want, 0));

	T(n >= 1 && n <= want);
	memset(at, 0xee, n); /* all of it is ours */
	if (t_below(rng, 3) == 0)
		n = t_below(rng, n + 1);
	t_fill(at, n, 7, pos);
	T_OK(exs_x_send_commit(s, n, MSG_NOSIGNAL));
	return n;
}

static void stream_a(int s, int ctl)
{
	struct t_rng rng = { 3 };
	uint64_t pos = 0;

	while (pos < VOLUME) {
		size_t len = t_chunk(&rng, CHUNK);

		if (t_below(&rng, 4)) {
			pos += make(s, &rng, pos, len);
		} else {
			t_send_stream(s, 7, pos, len, len);
			pos += len;
		}
	}
	T_OK(t_shutdown(s, SHUT_WR));
	t_tell(ctl, pos);
	t_expect(ctl, 1);
	t_close(s);
}

/* What is looked at is right, and some of it, or all, is returned. */
static size_t look_at(int s, struct t_rng *rng, uint64_t pos)
{
	const void *at;
	size_t n = (size_t)T_OK(exs_x_recv_loan(s, &at, 0));

	t_check_bytes(at, n, 7, pos);
	if (n && t_below(rng, 3) == 0)
		n = t_below(rng, n + 1);
	else if (!n)
		return SIZE_MAX;
	T_OK(exs_x_recv_return(s, n));
	return n;
}

static void stream_b(int s, int ctl)
{
	struct t_rng rng = { 4 };
	unsigned char *buf = malloc(CHUNK);
	uint64_t pos = 0;

	for (;;) {
		size_t n;

		if (t_below(&rng, 4)) {
			n = look_at(s, &rng, pos);
			if (n == SIZE_MAX)
				break;
		} else {
			n = (size_t)T_OK(
				t_recv(s, buf, t_chunk(&rng, CHUNK), 0));
			if (!n)
				break;
			t_check_bytes(buf, n, 7, pos);
		}
		pos += n;
	}
	t_expect(ctl, pos);
	t_recv_end(s);
	free(buf);
	t_tell(ctl, 1);
	t_close(s);
}

CONF_DUO(loans_of_any_size_are_the_stream, stream_a, stream_b)

/* Each way at once, what came goes back. */
static void echo_a(int s, int ctl)
{
	struct t_rng rng = { 5 };
	uint64_t pos;

	for (pos = 0; pos < VOLUME / 8;) {
		size_t n = make(s, &rng, pos, t_chunk(&rng, 5000));
		size_t back = 0;

		while (back < n) {
			size_t got = look_at(s, &rng, pos + back);

			T(got != SIZE_MAX);
			back += got;
		}
		T_EQ(back, n);
		pos += n;
	}
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_expect(ctl, 1);
	t_close(s);
}

static void echo_b(int s, int ctl)
{
	const void *from;
	void *to;
	size_t n, room;

	while ((n = (size_t)T_OK(exs_x_recv_loan(s, &from, 0)))) {
		room = (size_t)T_OK(exs_x_send_loan(s, &to, n, 0));
		memcpy(to, from, room);
		T_OK(exs_x_send_commit(s, room, 0));
		T_OK(exs_x_recv_return(s, room));
	}
	t_tell(ctl, 1);
	t_close(s);
}

CONF_DUO(an_echo_copies_from_loan_to_loan, echo_a, echo_b)

/* --- one loan ----------------------------------------------------------- */

static const void *borrow(int s, size_t len, uint64_t pos)
{
	const void *at;

	/* Two sends may lie apart. */
	T_EQ(exs_x_recv_loan(s, &at, 0), len);
	t_check_bytes(at, len, 1, pos);
	return at;
}

static void what_is_not_returned_comes_again(void)
{
	int fd[2];

	conf_pair(fd);
	t_send_stream(fd[0], 1, 0, 1000, 1000);
	borrow(fd[1], 1000, 0);
	T_OK(exs_x_recv_return(fd[1], 0));
	borrow(fd[1], 1000, 0);
	T_OK(exs_x_recv_return(fd[1], 300));
	borrow(fd[1], 700, 300);
	T_OK(exs_x_recv_return(fd[1], 1));
	t_recv_stream(fd[1], 1, 301, 699, 699);
	T_EQ(t_info(fd[1]).exs_x_rx_bytes, t_info(fd[0]).exs_x_tx_bytes);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void what_is_not_committed_is_not_sent(void)
{
	int fd[2];
	size_t len;
	void *at;

	conf_pair(fd);
	/* Records of a ring have heads of two sizes. */
	for (len = 1; len < 600; len += 51) {
		T_EQ(exs_x_send_loan(fd[0], &at, 600, 0), 600);
		memset(at, 0xee, 600);
		T_OK(exs_x_send_commit(fd[0], 0, 0));
		T_EQ(exs_x_send_loan(fd[0], &at, 600, 0), 600);
		memset(at, 0xee, 600);
		t_fill(at, len, 1, 0);
		T_OK(exs_x_send_commit(fd[0], len, 0));
		t_recv_stream(fd[1], 1, 0, len, len);
	}
	T_ERR(t_recv(fd[1], &len, 1, MSG_DONTWAIT), EAGAIN);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void a_second_loan_is_ebusy(void)
{
	const void *at;
	void *to;
	int fd[2];

	conf_pair(fd);
	t_send_stream(fd[0], 1, 0, 100, 100);
	borrow(fd[1], 100, 0);
	T_ERR(exs_x_recv_loan(fd[1], &at, 0), EBUSY);
	T_OK(exs_x_send_loan(fd[1], &to, 10, 0)); /* the other way */
	T_ERR(exs_x_send_loan(fd[1], &to, 10, 0), EBUSY);
	T_OK(exs_x_send_commit(fd[1], 0, 0));
	T_OK(exs_x_recv_return(fd[1], 100));
	t_close(fd[0]);
	t_close(fd[1]);
}

static void more_than_was_loaned_is_einval(void)
{
	size_t n;
	int fd[2];
	void *at;

	conf_pair(fd);
	T_ERR(exs_x_recv_return(fd[1], 0), EINVAL);
	T_ERR(exs_x_send_commit(fd[0], 0, 0), EINVAL);
	n = (size_t)T_OK(exs_x_send_loan(fd[0], &at, 100, 0));
	T_ERR(exs_x_send_commit(fd[0], n + 1, 0), EINVAL);
	t_fill(at, n, 1, 0);
	T_OK(exs_x_send_commit(fd[0], n, 0)); /* it went on */
	T_ERR(exs_x_send_commit(fd[0], 1, 0), EINVAL);
	borrow(fd[1], n, 0);
	T_ERR(exs_x_recv_return(fd[1], n + 1), EINVAL);
	T_ERR(exs_x_recv_return(fd[1], SIZE_MAX), EINVAL);
	T_OK(exs_x_recv_return(fd[1], n));
	T_ERR(exs_x_recv_return(fd[1], n), EINVAL);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void bad_arguments_of_loans_are_refused(void)
{
	const void *at = NULL;
	void *to = NULL;
	int fd[2], p[2], u, l;
	struct t_addr a;

	conf_pair(fd);
	T_ERR(exs_x_recv_loan(fd[0], NULL, 0), EFAULT);
	T_ERR(exs_x_send_loan(fd[0], NULL, 1, 0), EFAULT);
	T_ERR(exs_x_send_loan(fd[0], &to, 0, 0), EINVAL);
	T_ERR(exs_x_recv_loan(fd[0], &at, MSG_PEEK), EINVAL);
	T_ERR(exs_x_send_loan(fd[0], &to, 1, MSG_OOB), EINVAL);
	T_ERR(exs_x_send_commit(fd[0], 0, MSG_DONTWAIT), EINVAL);
	T_ERR(exs_x_recv_loan(-1, &at, 0), EBADF);
	T_ERR(exs_x_send_loan(-1, &to, 1, 0), EBADF);
	T_ERR(exs_x_recv_return(-1, 0), EBADF);
	T_ERR(exs_x_send_commit(-1, 0, 0), EBADF);
	T_OK(pipe(p));
	T_ERR(exs_x_recv_loan(p[0], &at, 0), ENOTSOCK);
	T_ERR(exs_x_send_loan(p[1], &to, 1, 0), ENOTSOCK);
	T_ERR(exs_x_recv_return(p[0], 0), ENOTSOCK);
	T_ERR(exs_x_send_commit(p[1], 0, 0), ENOTSOCK);
	u = T_OK(socket(AF_INET, SOCK_DGRAM, 0));
	T_ERR(exs_x_recv_loan(u, &at, 0), EOPNOTSUPP);
	T_ERR(exs_x_send_loan(u, &to, 1, 0), EOPNOTSUPP);
	l = t_listener(T_IPV4, &a);
	T_ERR(exs_x_recv_loan(l, &at, 0), ENOTCONN);
	T_ERR(exs_x_send_loan(l, &to, 1, 0), EPIPE);
	T(!at && !to);
	t_close(l);
	close(u);
	close(p[0]);
	close(p[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void messages_have_no_loans(void)
{
	const void *at;
	int fd[2];
	void *to;

	t_init();
	t_type = SOCK_SEQPACKET;
	t_pair(T_IPV4, fd);
	T_ERR(exs_x_recv_loan(fd[0], &at, 0), EOPNOTSUPP);
	T_ERR(exs_x_recv_return(fd[0], 0), EOPNOTSUPP);
	T_ERR(exs_x_send_loan(fd[0], &to, 1, 0), EOPNOTSUPP);
	T_ERR(exs_x_send_commit(fd[0], 0, 0), EOPNOTSUPP);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* What the address is part of is mapped from a file, of memory, that others
 * map. */
static bool is_shared(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512], how[8];
	bool ret = false;

	T(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s", &from, &to, how) == 3 &&
		    (unsigned long)at >= from && (unsigned long)at < to)
			ret = how[3] == 's';
	fclose(f);
	return ret;
}

static void loans_lie_where_the_fabric_says(void)
{
	int fd[2];
	void *at;

	conf_pair(fd);
	T_OK(exs_x_send_loan(fd[0], &at, 5000, 0));
	T_EQ(is_shared(at), conf_is("shm"));
	t_fill(at, 5000, 1, 0);
	T_OK(exs_x_send_commit(fd[0], 5000, 0));
	T_EQ(is_shared(borrow(fd[1], 5000, 0)), conf_is("shm"));
	T_OK(exs_x_recv_return(fd[1], 5000));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* --- waiting ------------------------------------------------------------ */

static void limit(int s, int option, int ms)
{
	struct timeval tv = { .tv_sec = ms / 1000,
			      .tv_usec = ms % 1000 * 1000 };

	T_OK(exs_setsockopt(s, SOL_SOCKET, option, &tv, sizeof(tv)));
}

/* Until no loan is had: what was sent. */
static uint64_t fill(int s, int flags)
{
	uint64_t pos = 0;
	ssize_t n;
	void *at;

	while ((n = exs_x_send_loan(s, &at, 65536, flags)) > 0) {
		t_fill(at, (size_t)n, 1, pos);
		T_OK(exs_x_send_commit(s, (size_t)n, 0));
		pos += (uint64_t)n;
	}
	T_EQ(n, -1);
	T_EQ(errno, EAGAIN);
	return pos;
}

static void loans_that_may_not_wait_say_eagain(void)
{
	const void *at;
	uint64_t sent;
	int fd[2], fl;

	conf_pair(fd);
	T_ERR(exs_x_recv_loan(fd[1], &at, MSG_DONTWAIT), EAGAIN);
	sent = fill(fd[0], MSG_DONTWAIT);
	t_recv_stream(fd[1], 1, 0, sent, 65536);
	fl = T_OK(exs_fcntl(fd[0], F_GETFL));
	T_OK(exs_fcntl(fd[0], F_SETFL, fl | O_NONBLOCK));
	T_ERR(exs_x_recv_loan(fd[0], &at, 0), EAGAIN);
	sent = fill(fd[0], 0);
	t_recv_stream(fd[1], 1, 0, sent, 65536);
	t_send_stream(fd[1], 1, 0, 10, 10);
	T_UNTIL(exs_x_recv_loan(fd[0], &at, 0) == 10);
	T_ERR(t_recv(fd[0], &sent, 1, 0), EAGAIN); /* it waits for the loan */
	T_OK(exs_x_recv_return(fd[0], 10));
	t_close(fd[0]);
	t_close(fd[1]);
}

static void loans_give_up_after_the_sockets_time(void)
{
	int64_t start;
	const void *at;
	int fd[2];

	conf_pair(fd);
	limit(fd[1], SO_RCVTIMEO, 50);
	start = t_now_ns();
	T_ERR(exs_x_recv_loan(fd[1], &at, 0), EAGAIN);
	T(t_now_ns() - start >= 50000000);
	limit(fd[0], SO_SNDTIMEO, 50);
	fill(fd[0], 0);
	t_close(fd[0]);
	t_close(fd[1]);
}

struct other {
	int s;
	uint64_t pos;
	_Atomic pid_t tid;
	_Atomic bool over;
};

static void *loan_1000(void *arg)
{
	struct other *o = arg;

	o->tid = gettid();
	borrow(o->s, 1000, o->pos);
	o->over = true;
	T_OK(exs_x_recv_return(o->s, 1000));
	return NULL;
}

static void a_receive_loan_waits_for_bytes(void)
{
	struct other o = { 0 };
	pthread_t t;
	int fd[2];

	conf_pair(fd);
	o.s = fd[1];
	t = t_thread(loan_1000, &o);
	T_UNTIL(o.tid);
	t_until_asleep(o.tid);
	T(!o.over);
	t_send_stream(fd[0], 1, 0, 1000, 1000);
	t_thread_join(t);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* More than all buffers hold. */
#define MUCH ((uint64_t)(16 << 20))

static void *fill_on(void *arg)
{
	struct other *o = arg;
	void *at;
	size_t n;

	while (o->pos < MUCH) {
		o->tid = gettid();
		n = (size_t)T_OK(exs_x_send_loan(o->s, &at, 65536, 0));
		t_fill(at, n, 1, o->pos);
		T_OK(exs_x_send_commit(o->s, n, 0));
		o->pos += n;
	}
	o->over = true;
	return NULL;
}

static void a_send_loan_waits_for_room(void)
{
	struct other o = { 0 };
	pthread_t t;
	int fd[2];

	conf_pair(fd);
	o.s = fd[0];
	t = t_thread(fill_on, &o);
	T_UNTIL(o.tid);
	t_until_asleep(o.tid);
	t_recv_stream(fd[1], 1, 0, MUCH, 65536);
	t_thread_join(t);
	t_recv_stream(fd[1], 1, MUCH, o.pos - MUCH, 65536);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* --- others meanwhile --------------------------------------------------- */

static void *recv_1000(void *arg)
{
	struct other *o = arg;

	o->tid = gettid();
	t_recv_stream(o->s, 1, o->pos, 1000, 1000);
	o->over = true;
	return NULL;
}

static void a_receive_of_another_thread_waits_for_the_loan(void)
{
	struct other o = { .pos = 400 };
	pthread_t t;
	int fd[2];

	conf_pair(fd);
	o.s = fd[1];
	t_send_stream(fd[0], 1, 0, 1000, 1000);
	borrow(fd[1], 1000, 0);
	t_send_stream(fd[0], 1, 1000, 400, 400);
	t = t_thread(recv_1000, &o);
	T_UNTIL(o.tid);
	t_until_asleep(o.tid);
	T(!o.over);
	T_OK(exs_x_recv_return(fd[1], 400));
	t_thread_join(t);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void *recv_one(void *arg)
{
	struct other *o = arg;
	unsigned char c;

	o->tid = gettid();
	T_EQ(t_recv(o->s, &c, 1, 0), 1);
	o->pos = c;
	return NULL;
}

/* The receive that slept, perhaps in the kernel's call, may come first or
 * second; each byte is its position. */
static void a_sleeping_receive_and_a_loan_share_the_bytes(void)
{
	unsigned char out[101], first = 0;
	int fd[2], i;

	for (i = 0; i < 101; i++)
		out[i] = (unsigned char)i;
	conf_pair(fd);
	for (i = 0; i < 40; i++) {
		struct other o = { 0 };
		const unsigned char *p;
		const void *at;
		size_t got = 0, n;
		pthread_t t;

		o.s = fd[1];
		t = t_thread(recv_one, &o);
		T_UNTIL(o.tid);
		if (i % 2)
			t_until_asleep(o.tid);
		T_EQ(t_send(fd[0], out, sizeof(out), 0), sizeof(out));
		while (got < 100) {
			n = (size_t)T_OK(exs_x_recv_loan(fd[1], &at, 0));
			p = at;
			n = n < 100 - got ? n : 100 - got;
			if (!got)
				first = p[0];
			/* The other may come between two loans. */
			for (size_t k = 0; k < n; k++)
				T(p[k] == p[0] + k);
			T_OK(exs_x_recv_return(fd[1], n));
			got += n;
		}
		t_thread_join(t);
		T_MSG((first == 0) != (o.pos == 0), "%d first, and byte %d",
		      first, (int)o.pos);
		T_ERR(t_recv(fd[1], out, 1, MSG_DONTWAIT), EAGAIN);
	}
	t_close(fd[0]);
	t_close(fd[1]);
}

static void *send_1000(void *arg)
{
	struct other *o = arg;

	o->tid = gettid();
	t_send_stream(o->s, 1, o->pos, 1000, 1000);
	o->over = true;
	return NULL;
}

static void a_send_of_another_thread_waits_for_the_loan(void)
{
	struct other o = { .pos = 500 };
	pthread_t t;
	int fd[2];
	void *at;

	conf_pair(fd);
	o.s = fd[0];
	T_EQ(exs_x_send_loan(fd[0], &at, 500, 0), 500);
	t = t_thread(send_1000, &o);
	T_UNTIL(o.tid);
	t_until_asleep(o.tid);
	T(!o.over);
	t_fill(at, 500, 1, 0);
	T_OK(exs_x_send_commit(fd[0], 500, 0));
	t_recv_stream(fd[1], 1, 0, 1500, 1500);
	t_thread_join(t);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void asynchronous_operations_wait_for_the_loan(void)
{
	char in[300], out[300];
	exs_qhandle_t q;
	int fd[2];
	void *at;

	conf_pair(fd);
	q = T_OK(exs_qcreate(8));
	t_send_stream(fd[0], 1, 0, 200, 200);
	borrow(fd[1], 200, 0);
	t_post_recv(fd[1], in, 300, MSG_WAITALL, q, 1);
	T_EQ(exs_x_send_loan(fd[0], &at, 100, 0), 100);
	t_fill(out, 300, 1, 300);
	t_post_send(fd[0], out, 300, 0, q, 2);
	t_no_event(q);
	t_fill(at, 100, 1, 200);
	T_OK(exs_x_send_commit(fd[0], 100, 0));
	T_EQ(t_event_is(q, EXS_EVT_SEND, 2), 300);
	t_no_event(q);
	T_OK(exs_x_recv_return(fd[1], 150));
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 300);
	t_check_bytes(in, 300, 1, 150);
	t_recv_stream(fd[1], 1, 450, 150, 150);
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

static void async_limit(int s, exs_qhandle_t q)
{
	exs_timeout_t t = { .exs_to_time.tv_usec = 20000, .exs_to_queue = q };

	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &t,
			    sizeof(t)));
}

/* The other end's time-outs tell the time. */
static void a_loan_is_no_operation_that_takes_long(void)
{
	exs_qhandle_t q, clock;
	int fd[2], i;
	char in[10];

	conf_pair(fd);
	q = T_OK(exs_qcreate(8));
	clock = T_OK(exs_qcreate(8));
	t_send_stream(fd[0], 1, 0, 200, 200);
	borrow(fd[1], 200, 0);
	async_limit(fd[1], q);
	async_limit(fd[0], clock);
	t_post_recv(fd[0], in, sizeof(in), 0, clock, 1);
	for (i = 0; i < 5; i++)
		T_EQ(t_event(clock).exs_evt_type, EXS_EVT_RECVTIMEOUT);
	t_no_event(q);
	T_OK(exs_x_recv_return(fd[1], 200));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* They are before it. */
static void a_loan_waits_for_asynchronous_operations(void)
{
	struct other o = { .pos = 300 };
	exs_qhandle_t q;
	const void *at;
	char in[300];
	pthread_t t;
	int fd[2];

	conf_pair(fd);
	o.s = fd[1];
	q = T_OK(exs_qcreate(8));
	t_post_recv(fd[1], in, 300, MSG_WAITALL, q, 1);
	T_ERR(exs_x_recv_loan(fd[1], &at, MSG_DONTWAIT), EAGAIN);
	limit(fd[1], SO_RCVTIMEO, 20);
	T_ERR(exs_x_recv_loan(fd[1], &at, 0), EAGAIN);
	limit(fd[1], SO_RCVTIMEO, 0);
	t = t_thread(loan_1000, &o);
	T_UNTIL(o.tid);
	t_until_asleep(o.tid);
	t_send_stream(fd[0], 1, 0, 300, 300);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 300);
	t_check_bytes(in, 300, 1, 0);
	t_send_stream(fd[0], 1, 300, 1000, 1000);
	t_thread_join(t);
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

static void *send_a_byte(void *arg)
{
	struct other *o = arg;
	void *at;

	o->tid = gettid();
	T_EQ(exs_x_send_loan(o->s, &at, 1, 0), 1);
	t_fill(at, 1, 1, o->pos);
	T_OK(exs_x_send_commit(o->s, 1, 0));
	return NULL;
}

#define LARGE ((size_t)(16 << 20)) /* more than any fabric holds */

/* Short sends go to the peer together: not past a loan that is between them.
 * All wait behind one that no fabric has room for: what is full for a moment
 * may not be in the next. */
static void short_sends_go_before_a_loan_and_behind_it(void)
{
	char *large = malloc(LARGE), before[10], behind[10];
	struct other o = { .pos = LARGE + sizeof(before) };
	exs_qhandle_t q;
	pthread_t t;
	int fd[2];

	conf_pair(fd);
	q = T_OK(exs_qcreate(8));
	T(large);
	t_fill(large, LARGE, 1, 0);
	t_post_send(fd[0], large, LARGE, 0, q, 0);
	t_fill(before, sizeof(before), 1, LARGE);
	t_post_send(fd[0], before, sizeof(before), 0, q, 1);
	o.s = fd[0];
	t = t_thread(send_a_byte, &o);
	T_UNTIL(o.tid);
	t_until_asleep(o.tid);
	t_fill(behind, sizeof(behind), 1, o.pos + 1);
	t_post_send(fd[0], behind, sizeof(behind), 0, q, 2);
	t_recv_stream(fd[1], 1, 0, o.pos + 1 + sizeof(behind), 65536);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 0), LARGE);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 1), sizeof(before));
	t_thread_join(t);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 2), sizeof(behind));
	T_OK(exs_qdelete(q));
	free(large);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* The sender takes another, larger ring meanwhile. */
static void what_is_on_loan_stays_while_much_arrives(void)
{
	const void *at;
	uint64_t pos;
	int fd[2];

	conf_pair(fd);
	t_send_stream(fd[0], 1, 0, 3000, 3000);
	at = borrow(fd[1], 3000, 0);
	T_OK(exs_fcntl(fd[0], F_SETFL,
		       T_OK(exs_fcntl(fd[0], F_GETFL)) | O_NONBLOCK));
	for (pos = 3000;;) {
		char buf[7000];
		ssize_t n;

		t_fill(buf, sizeof(buf), 1, pos);
		n = t_send(fd[0], buf, sizeof(buf), 0);
		if (n < 0)
			break;
		pos += (uint64_t)n;
	}
	t_check_bytes(at, 3000, 1, 0);
	T_OK(exs_x_recv_return(fd[1], 3000));
	t_recv_stream(fd[1], 1, 3000, pos - 3000, 65536);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* --- ends --------------------------------------------------------------- */

static void the_end_is_0_and_no_loan(void)
{
	const void *at;
	int fd[2];
	void *to;

	conf_pair(fd);
	t_send_stream(fd[0], 1, 0, 10, 10);
	T_OK(t_shutdown(fd[0], SHUT_WR));
	T_ERR(exs_x_send_loan(fd[0], &to, 1, 0), EPIPE);
	borrow(fd[1], 10, 0);
	T_OK(exs_x_recv_return(fd[1], 10));
	T_EQ(exs_x_recv_loan(fd[1], &at, 0), 0);
	T_ERR(exs_x_recv_return(fd[1], 0), EINVAL);
	T_EQ(exs_x_recv_loan(fd[1], &at, 0), 0);
	t_recv_end(fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void the_end_of_sending_follows_the_loan(void)
{
	int fd[2];
	void *at;

	conf_pair(fd);
	T_EQ(exs_x_send_loan(fd[0], &at, 700, 0), 700);
	T_OK(t_shutdown(fd[0], SHUT_WR));
	t_fill(at, 700, 1, 0);
	T_OK(exs_x_send_commit(fd[0], 700, 0));
	t_recv_stream(fd[1], 1, 0, 700, 700);
	t_recv_end(fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void dies(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_send_stream(s, 1, 0, 5000, 5000);
	t_tell(ctl, 1);
	t_expect(ctl, 2); /* never told */
}

/* Commits a loan of len bytes and takes the next one, which may be shorter. */
static bool goes_on(int s, void **at, size_t *len, int flags)
{
	ssize_t n = exs_x_send_commit(s, *len, flags);

	if (n == 0)
		n = exs_x_send_loan(s, at, *len, 0);
	if (n > 0)
		*len = (size_t)n;
	return n > 0;
}

static void a_loan_outlives_a_killed_peer(void)
{
	struct t_peer p;
	const void *at;
	size_t room;
	void *to;
	int s;

	t_init();
	s = t_pair_fork(&p, T_A, dies);
	t_settle(s, conf_apart());
	t_expect(p.ctl, 1);
	T_UNTIL(exs_x_recv_loan(s, &at, 0) == 5000 ||
		exs_x_recv_return(s, 0) < 0);
	room = (size_t)T_OK(exs_x_send_loan(s, &to, 3000, 0));
	t_peer_kill(&p);
	t_check_bytes(at, 5000, 1, 0);
	memset(to, 1, room);
	/* At once, or when the kernel has heard of it. */
	T_UNTIL(!goes_on(s, &to, &room, MSG_NOSIGNAL));
	T(errno == EPIPE || errno == ECONNRESET);
	t_check_bytes(at, 5000, 1, 0);
	T_OK(exs_x_recv_return(s, 5000));
	t_close(s);
}

static void a_commit_to_nobody_raises_sigpipe(void)
{
	int fd[2], n = 0;
	size_t len = 100;
	void *at;

	conf_pair(fd);
	signal(SIGPIPE, SIG_IGN);
	T_OK(exs_x_send_loan(fd[0], &at, 100, 0));
	t_close(fd[1]);
	memset(at, 1, 100);
	/* The first may still be taken by the kernel. */
	T_UNTIL(!goes_on(fd[0], &at, &len, n++ ? 0 : MSG_NOSIGNAL));
	T(errno == EPIPE || errno == ECONNRESET);
	t_close(fd[0]);
	signal(SIGPIPE, SIG_DFL);
}

static void a_close_ends_loans(void)
{
	const void *at;
	void *to;
	int fd[2];

	conf_pair(fd);
	t_send_stream(fd[0], 1, 0, 100, 100);
	borrow(fd[1], 100, 0);
	T_OK(exs_x_send_loan(fd[1], &to, 100, 0));
	t_close(fd[1]);
	T_ERR(exs_x_recv_return(fd[1], 100), EBADF);
	T_ERR(exs_x_send_commit(fd[1], 100, 0), EBADF);
	T_ERR(exs_x_recv_loan(fd[1], &at, 0), EBADF);
	/* What was not received makes it a reset, as ever. */
	T_FAILS(t_recv(fd[0], &to, 1, 0), ECONNRESET);
	t_close(fd[0]);
}

static void *close_it(void *arg)
{
	struct other *o = arg;

	o->tid = gettid();
	t_close(o->s);
	o->over = true;
	return NULL;
}

/* Over TCP, whose buffers somebody filled meanwhile. */
static void a_commit_does_not_wait_but_a_close_does(void)
{
	struct other o = { 0 };
	uint64_t pos = 0;
	static char buf[65536];
	ssize_t n;
	pthread_t t;
	int fd[2];
	void *at;

	conf_pair(fd);
	T_OK(exs_x_downgrade(fd[0]));
	T_OK(exs_x_downgrade(fd[1]));
	T_EQ(exs_x_send_loan(fd[0], &at, 65536, 0), 65536);
	do {
		t_fill(buf, sizeof(buf), 1, pos);
		n = send(fd[0], buf, sizeof(buf), MSG_DONTWAIT);
		pos += n > 0 ? (uint64_t)n : 0;
	} while (n > 0);
	t_fill(at, 65536, 1, pos);
	T_OK(exs_x_send_commit(fd[0], 65536, 0));
	T_ERR(exs_x_send_loan(fd[0], &at, 1, MSG_DONTWAIT), EAGAIN);
	T_ERR(t_send(fd[0], buf, 1, MSG_DONTWAIT), EAGAIN);
	o.s = fd[0];
	t = t_thread(close_it, &o);
	T_UNTIL(o.tid);
	t_recv_stream(fd[1], 1, 0, pos + 65536, 65536);
	t_recv_end(fd[1]);
	t_thread_join(t);
	t_close(fd[1]);
}

static void *loan_until_closed(void *arg)
{
	struct other *o = arg;
	const void *at;

	o->tid = gettid();
	T_FAILS(exs_x_recv_loan(o->s, &at, 0), EBADF, ECANCELED);
	return NULL;
}

static void a_close_ends_a_wait_for_a_turn(void)
{
	struct other o = { 0 };
	exs_qhandle_t q;
	char in[300];
	pthread_t t;
	int fd[2];

	conf_pair(fd);
	o.s = fd[1];
	q = T_OK(exs_qcreate(8));
	t_post_recv(fd[1], in, 300, MSG_WAITALL, q, 1);
	t = t_thread(loan_until_closed, &o);
	T_UNTIL(o.tid);
	t_until_asleep(o.tid);
	t_close(fd[1]);
	t_thread_join(t);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
}

/* --- leaving the fabric ------------------------------------------------- */

static bool on_tcp(int s)
{
	exs_x_sockinfo_t i = t_info(s);

	return !strcmp(i.exs_x_tx_fabric, "tcp") &&
	       !strcmp(i.exs_x_rx_fabric, "tcp");
}

static void a_downgrade_with_a_loan_is_ebusy(void)
{
	int fd[2];
	void *at;

	conf_pair(fd);
	t_send_stream(fd[0], 1, 0, 100, 100);
	borrow(fd[1], 100, 0);
	T_ERR(exs_x_downgrade(fd[1]), EBUSY);
	T_OK(exs_x_recv_return(fd[1], 50));
	T_OK(exs_x_send_loan(fd[1], &at, 10, 0));
	T_ERR(exs_x_downgrade(fd[1]), EBUSY);
	T_OK(exs_x_send_commit(fd[1], 0, 0));
	T_OK(exs_x_downgrade(fd[1]));
	t_recv_stream(fd[1], 1, 50, 50, 50);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Receives are lent there. */
static bool in_a_ring(void)
{
	return conf_is("shm") || conf_between();
}

static void *downgrade(void *arg)
{
	struct other *o = arg;

	o->tid = gettid();
	T_OK(exs_x_downgrade(o->s));
	o->over = true;
	return NULL;
}

/* What lies in the ring is given back when it was looked at, once; what was
 * copied may come again over TCP before it is returned. */
static void the_peers_downgrade_takes_a_receive_loan_along(void)
{
	struct other o = { 0 };
	const void *at;
	pthread_t t;
	size_t n;
	int fd[2];

	conf_pair(fd);
	o.s = fd[0];
	t_send_stream(fd[0], 1, 0, 9000, 3000);
	n = (size_t)T_OK(exs_x_recv_loan(fd[1], &at, 0));
	t = t_thread(downgrade, &o);
	if (in_a_ring()) {
		T_UNTIL(o.tid);
		t_until_asleep(o.tid);
		T(!o.over);
	} else {
		t_thread_join(t);
	}
	t_check_bytes(at, n, 1, 0);
	T_OK(exs_x_recv_return(fd[1], n - 1));
	if (in_a_ring())
		t_thread_join(t);
	T_UNTIL(on_tcp(fd[0]) && on_tcp(fd[1]));
	t_recv_stream(fd[1], 1, n - 1, 9000 - (n - 1), 9000);
	t_send_stream(fd[0], 1, 9000, 1000, 1000);
	t_recv_stream(fd[1], 1, 9000, 1000, 1000);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* The peer sends on the fabric again, and lets this end. */
static void let_back(int s, int peer)
{
	char c;

	T_OK(exs_x_adopt(peer));
	T_UNTIL(t_send(peer, "", 1, 0) == 1 && t_recv(s, &c, 1, 0) == 1 &&
		!strcmp(t_info(s).exs_x_rx_fabric, conf_here().fabric));
	T_OK(exs_x_adopt(s));
}

/* What was made in the ring, which had grown, goes over TCP, behind what was
 * there before; this end does not go back to the fabric before that. */
static void downgrade_under_a_send_loan(bool back)
{
	static char buf[50000];
	uint64_t pos;
	size_t room;
	ssize_t n;
	int fd[2];
	void *at;

	conf_pair(fd);
	for (pos = 0, n = 1; n > 0 && pos < 1000000;) {
		t_fill(buf, sizeof(buf), 1, pos);
		n = t_send(fd[0], buf, sizeof(buf), MSG_DONTWAIT);
		pos += n > 0 ? (uint64_t)n : 0;
	}
	t_recv_stream(fd[1], 1, 0, pos, 65536);
	/* Beyond what the ring began with, nor at its end. */
	t_send_stream(fd[0], 1, pos, 100000, 50000);
	room = (size_t)T_OK(exs_x_send_loan(fd[0], &at, 4000, 0));
	T(room > 1000);
	t_fill(at, 1000, 1, pos + 100000);
	T_OK(exs_x_downgrade(fd[1]));
	t_recv_stream(fd[1], 1, pos, 100000, 65536);
	pos += 100000;
	if (back)
		let_back(fd[0], fd[1]);
	t_fill((char *)at + 1000, room - 1000, 1, pos + 1000);
	T_OK(exs_x_send_commit(fd[0], room, 0));
	t_recv_stream(fd[1], 1, pos, room, 4000);
	if (back)
		t_settle_pair(fd[0], fd[1], conf_here());
	t_close(fd[0]);
	t_close(fd[1]);
}

static void a_send_loan_outlives_the_peers_downgrade(void)
{
	downgrade_under_a_send_loan(false);
}

static void a_send_loan_outlives_the_peers_return(void)
{
	downgrade_under_a_send_loan(true);
}

/* One end sends by loans, and looks by loans; the other leaves and comes
 * back. */
static void *come_and_go(void *arg)
{
	struct other *o = arg;

	while (!o->over) {
		if (exs_x_downgrade(o->s))
			T(errno == EBUSY || errno == ETIMEDOUT);
		T_OK(exs_x_adopt(o->s));
	}
	return NULL;
}

static void *echo(void *arg)
{
	struct other *o = arg;
	char buf[20000];
	ssize_t n;

	while ((n = T_OK(t_recv(o->s, buf, sizeof(buf), 0))) > 0)
		t_send_all(o->s, buf, (size_t)n, 0);
	return NULL;
}

static void loans_go_on_while_the_peer_comes_and_goes(void)
{
	struct other o = { 0 };
	struct t_rng rng = { 9 };
	uint64_t pos;
	pthread_t t, e;
	int fd[2];

	conf_pair(fd);
	o.s = fd[1];
	t = t_thread(come_and_go, &o);
	e = t_thread(echo, &o);
	for (pos = 0; pos < VOLUME / 16;) {
		size_t n = make(fd[0], &rng, pos, t_chunk(&rng, 20000));
		size_t back = 0;

		while (back < n)
			back += look_at(fd[0], &rng, pos + back);
		T_EQ(back, n);
		pos += n;
	}
	o.over = true;
	t_thread_join(t);
	T_OK(t_shutdown(fd[0], SHUT_WR));
	t_thread_join(e);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* A child has no part in a loan of its parent's, and goes on behind it. Where
 * it lies in a ring the child waits for its end. */
static void a_child_reads_on_behind_the_loan(void)
{
	int fd[2], line[2];
	pid_t child;
	char c;

	conf_pair(fd);
	if (conf_is("loop")) /* which is of one process */
		T_OK(exs_x_downgrade(fd[1]));
	T_OK(pipe(line));
	t_send_stream(fd[0], 1, 0, 2000, 2000);
	borrow(fd[1], 2000, 0);
	child = T_OK(t_fork());
	if (child == 0) {
		T_ERR(exs_x_recv_return(fd[1], 1), EINVAL);
		if (!in_a_ring())
			T_EQ(read(line[0], &c, 1), 1);
		t_recv_stream(fd[1], 1, 700, 1300, 1300);
		_exit(0);
	}
	if (in_a_ring())
		T_UNTIL(t_info(fd[1]).exs_x_reason == EXS_X_REASON_SHARED ||
			t_info(fd[0]).exs_x_reason ==
				EXS_X_REASON_PEER_REQUEST);
	T_OK(exs_x_recv_return(fd[1], 700));
	T_EQ(write(line[1], "", 1), 1);
	t_join(child);
	close(line[0]);
	close(line[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void a_child_sends_before_the_loan(void)
{
	pid_t child;
	int fd[2];
	void *at;

	conf_pair(fd);
	if (conf_is("loop"))
		T_OK(exs_x_downgrade(fd[1]));
	T_EQ(exs_x_send_loan(fd[1], &at, 600, 0), 600);
	child = T_OK(t_fork());
	if (child == 0) {
		T_ERR(exs_x_send_commit(fd[1], 1, 0), EINVAL);
		t_send_stream(fd[1], 1, 0, 900, 900);
		_exit(0);
	}
	t_join(child);
	t_fill(at, 600, 1, 900);
	T_OK(exs_x_send_commit(fd[1], 600, 0));
	t_recv_stream(fd[0], 1, 0, 1500, 1500);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void *lend_and_close(void *arg)
{
	const _Atomic bool *over = arg;

	while (!*over) {
		const void *from;
		int fd[2];
		void *to;

		t_pair(T_IPV4, fd);
		T_EQ(exs_x_send_loan(fd[0], &to, 9, 0), 9);
		T_OK(exs_x_send_commit(fd[0], 9, 0));
		T_EQ(exs_x_recv_loan(fd[1], &from, 0), 9);
		t_close(fd[0]);
		t_close(fd[1]);
	}
	return NULL;
}

static void children_are_made_while_sockets_with_loans_close(void)
{
	_Atomic bool over = false;
	pthread_t t;

	t_init();
	t = t_thread(lend_and_close, (void *)&over);
	for (int i = 0; i < 100; i++) {
		pid_t child = T_OK(t_fork());

		if (child == 0)
			_exit(0);
		t_join(child);
	}
	over = true;
	t_thread_join(t);
}

/* Which never uses it. */
static void with_a_child_loans_are_copies(void)
{
	int fd[2], line[2], i;
	pid_t child;
	char c;

	conf_pair(fd);
	T_OK(pipe(line));
	child = T_OK(t_fork());
	if (child == 0) {
		T_EQ(read(line[0], &c, 1), 1);
		_exit(0);
	}
	for (i = 0; i < 100; i++) {
		void *at;

		T_EQ(exs_x_send_loan(fd[0], &at, 900, 0), 900);
		T(!is_shared(at));
		t_fill(at, 900, 1, (uint64_t)i * 900);
		T_OK(exs_x_send_commit(fd[0], 900, 0));
		T(!is_shared(borrow(fd[1], 900, (uint64_t)i * 900)));
		T_OK(exs_x_recv_return(fd[1], 900));
	}
	T_EQ(write(line[1], "", 1), 1);
	t_join(child);
	close(line[0]);
	close(line[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

int main(int argc, char **argv)
{
	static const struct t_row rows[] = {
		CONF_ROWS_LONG(loans_of_any_size_are_the_stream, 120),
		CONF_ROWS_LONG(an_echo_copies_from_loan_to_loan, 120),
		T_ROW(what_is_not_returned_comes_again),
		T_ROW(what_is_not_committed_is_not_sent),
		T_ROW(a_second_loan_is_ebusy),
		T_ROW(more_than_was_loaned_is_einval),
		T_ROW(bad_arguments_of_loans_are_refused),
		T_ROW(messages_have_no_loans),
		T_ROW(loans_lie_where_the_fabric_says),
		T_ROW(loans_that_may_not_wait_say_eagain),
		T_ROW(loans_give_up_after_the_sockets_time),
		T_ROW(a_receive_loan_waits_for_bytes),
		T_ROW(a_send_loan_waits_for_room),
		T_ROW(a_receive_of_another_thread_waits_for_the_loan),
		T_ROW(a_sleeping_receive_and_a_loan_share_the_bytes),
		T_ROW(a_send_of_another_thread_waits_for_the_loan),
		T_ROW(asynchronous_operations_wait_for_the_loan),
		T_ROW(a_loan_is_no_operation_that_takes_long),
		T_ROW(a_loan_waits_for_asynchronous_operations),
		T_ROW(short_sends_go_before_a_loan_and_behind_it),
		T_ROW(what_is_on_loan_stays_while_much_arrives),
		T_ROW(the_end_is_0_and_no_loan),
		T_ROW(the_end_of_sending_follows_the_loan),
		T_ROW(a_loan_outlives_a_killed_peer),
		T_ROW(a_commit_to_nobody_raises_sigpipe),
		T_ROW(a_close_ends_loans),
		T_ROW(a_close_ends_a_wait_for_a_turn),
		T_ROW(a_commit_does_not_wait_but_a_close_does),
		T_ROW(a_downgrade_with_a_loan_is_ebusy),
		T_ROW(the_peers_downgrade_takes_a_receive_loan_along),
		T_ROW(a_send_loan_outlives_the_peers_downgrade),
		T_ROW(a_send_loan_outlives_the_peers_return),
		T_ROW_LONG(loans_go_on_while_the_peer_comes_and_goes, 120),
		T_ROW(a_child_reads_on_behind_the_loan),
		T_ROW(a_child_sends_before_the_loan),
		T_ROW(children_are_made_while_sockets_with_loans_close),
		T_ROW(with_a_child_loans_are_copies),
	};

	return conf_main(argc, argv, "loans", rows, T_COUNT(rows));
}
