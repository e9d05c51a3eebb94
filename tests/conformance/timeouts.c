/* SPDX-License-Identifier: BSD-2-Clause */
/* Time, over the fabric. Time-out events of transfers that wait long: they come
 * while a transfer waits, and change nothing. Deadlines: they end a transfer
 * that waits. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/wait.h"
#include "tests/support/bytes.h"

static void set(int s, int name, int ms, int flags, exs_qhandle_t q, long a)
{
	exs_timeout_t t = { .exs_to_time = { ms / 1000, ms % 1000 * 1000 },
			    .exs_to_flags = flags,
			    .exs_to_queue = q,
			    .exs_to_ahandle = (exs_ahandle_t)a };

	T_EQ(T_OK(exs_setsockopt(s, SOL_SOCKET, name, &t, sizeof(t))), 0);
}

static void timeout_event(exs_qhandle_t q, int s, int type, long a)
{
	exs_event_t e = t_event(q);

	T_EQ(e.exs_evt_type, type);
	T_EQ(e.exs_evt_socket, s);
	T_EQ((long)e.exs_evt_ahandle, a);
	T_EQ(e.exs_errno, 0);
}

static int events_of(exs_qhandle_t q)
{
	int n = -1;
	size_t len = sizeof(n);

	T_OK(exs_qstatus(q, EXS_QATTR_EVENTS, &n, &len));
	return n;
}

static void receive_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4)), tq = T_OK(exs_qcreate(1));
	char buf[8];

	set(s, SO_ASYNC_RECV_TIMEOUT, 20, 0, tq, 7);
	for (int i = 0; i < 3; i++) {
		t_post_recv(s, buf, 4, MSG_WAITALL, q, i);
		/* Again and again, as long as it waits. */
		for (int k = 0; k < 3; k++)
			timeout_event(tq, s, EXS_EVT_RECVTIMEOUT, 7);
		t_no_event(q);
		t_tell(ctl, 1);
		T_EQ(t_event_is(q, EXS_EVT_RECV, i), 4);
		T(!memcmp(buf, "four", 4));
	}
	t_tell(ctl, 2);
	/* Off: its slot is free again, but for what is there. */
	set(s, SO_ASYNC_RECV_TIMEOUT, 0, 0, tq, 0);
	while (events_of(tq))
		timeout_event(tq, s, EXS_EVT_RECVTIMEOUT, 7);
	T_OK(exs_qdelete(tq));
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

static void receive_b(int s, int ctl)
{
	while (t_ask(ctl) == 1)
		t_send_all(s, "four", 4, 0);
	t_close(s);
}

CONF_DUO(a_waiting_receive_is_told_of, receive_a, receive_b)

/* A send that finds no room; once. */
static void send_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4)), tq = T_OK(exs_qcreate(2));
	size_t big = 24 << 20;
	char *buf = malloc(big);

	t_fill(buf, big, 1, 0);
	set(s, SO_ASYNC_SEND_TIMEOUT, 10, EXS_TIMEOUT_ONCE, tq, 8);
	/* Beside it one that goes on, by which time is told. */
	set(s, SO_ASYNC_RECV_TIMEOUT, 10, 0, tq, 9);
	t_post_send(s, buf, big, 0, q, 1);
	t_post_recv(s, &(char){ 0 }, 1, 0, q, 2);
	for (int sends = 0, receives = 0; receives < 6 || !sends;) {
		exs_event_t e = t_event(tq);

		if (e.exs_evt_type == EXS_EVT_SENDTIMEOUT) {
			T_EQ((long)e.exs_evt_ahandle, 8);
			T_EQ(++sends, 1);
			receives = 0;
		} else {
			T_EQ(e.exs_evt_type, EXS_EVT_RECVTIMEOUT);
			receives++;
		}
	}
	t_no_event(q);
	t_tell(ctl, big);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 1), big);
	T_EQ(exs_cancel(s, (exs_ahandle_t)2, EXS_CAF_AHANDLE), 1);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	T_ERR(exs_qdelete(tq), EBUSY);
	t_close(s);
	T_OK(exs_qdelete(q));
	T_OK(exs_qdelete(tq));
	free(buf);
}

static void send_b(int s, int ctl)
{
	t_recv_stream(s, 1, 0, t_ask(ctl), 70000);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_waiting_send_is_told_of_once, send_a, send_b)

/* A socket without waiting transfers gets no event, nor does one whose option
 * was turned off. */
static void only_what_waits_is_told_of(void)
{
	int fd[2], more[2];
	exs_qhandle_t q;
	char byte;

	conf_pair(fd);
	t_pair(T_IPV4, more);
	t_settle_pair(more[0], more[1], conf_here());
	q = T_OK(exs_qcreate(8));
	set(fd[0], SO_ASYNC_RECV_TIMEOUT, 5, 0, q, 1);
	set(fd[0], SO_ASYNC_SEND_TIMEOUT, 5, 0, q, 2);
	set(fd[1], SO_ASYNC_RECV_TIMEOUT, 20, 0, q, 3);
	set(more[0], SO_ASYNC_RECV_TIMEOUT, 5, 0, q, 4);
	set(more[0], SO_ASYNC_RECV_TIMEOUT, 0, 0, EXS_QHANDLE_INVALID, 0);
	t_post_recv(more[0], &byte, 1, 0, q, 5);
	t_post_recv(fd[1], &byte, 1, 0, q, 6);
	for (int i = 0; i < 4; i++)
		timeout_event(q, fd[1], EXS_EVT_RECVTIMEOUT, 3);
	t_close(fd[0]);
	t_close(fd[1]);
	t_close(more[0]);
	t_close(more[1]);
	T_OK(exs_qdelete(q));
}

/* Events that were not dequeued coalesce into one, and every slot can be
 * used. */
static void what_was_not_taken_stands_for_the_rest(void)
{
	exs_timeout_t t, got;
	socklen_t len = sizeof(got);
	int fd[2], times = 0;
	exs_qhandle_t q, tq;
	char byte;

	conf_pair(fd);
	q = T_OK(exs_qcreate(2));
	tq = T_OK(exs_qcreate(4));
	set(fd[0], SO_ASYNC_RECV_TIMEOUT, 3, 0, q, 1);
	set(fd[1], SO_ASYNC_RECV_TIMEOUT, 15, 0, tq, 2);
	t = (exs_timeout_t){ .exs_to_time = { 0, 3000 }, .exs_to_queue = q };
	T_OK(exs_getsockopt(fd[0], SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &got,
			    &len));
	T_EQ(len, sizeof(got));
	T_EQ(got.exs_to_time.tv_usec, t.exs_to_time.tv_usec);
	T_EQ(got.exs_to_queue, q);
	T_OK(exs_getsockopt(fd[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &got,
			    &len));
	T_EQ(got.exs_to_time.tv_usec, 0);
	T_EQ(got.exs_to_queue, EXS_QHANDLE_INVALID);
	t_post_recv(fd[0], &byte, 1, 0, q, 5);
	t_post_recv(fd[1], &byte, 1, 0, tq, 6);
	T_ERR(exs_recv(fd[0], &byte, 1, 0, q, NULL, 0), EAGAIN);
	for (int i = 0; i < 4; i++)
		timeout_event(tq, fd[1], EXS_EVT_RECVTIMEOUT, 2);
	T_EQ(events_of(q), 1);
	t_send_all(fd[1], "x", 1, 0);
	while (times < 100) {
		exs_event_t e = t_event(q);

		if (e.exs_evt_type == EXS_EVT_RECV)
			break;
		T_EQ(e.exs_evt_type, EXS_EVT_RECVTIMEOUT);
		times++;
	}
	T(times >= 1 && times < 100);
	T_ERR(exs_setsockopt(fd[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT,
			     (t.exs_to_queue = q + 1, &t), sizeof(t)),
	      EINVAL);
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
	T_OK(exs_qdelete(tq));
}

/* --- deadlines ---------------------------------------------------------- */

/* So many milliseconds from now. */
static struct timespec in(int ms)
{
	int64_t at = t_now_ns() + (int64_t)ms * 1000000;

	return (struct timespec){ .tv_sec = at / 1000000000,
				  .tv_nsec = at % 1000000000 };
}

static bool passed(const struct timespec *t)
{
	return t_now_ns() >= t->tv_sec * (int64_t)1000000000 + t->tv_nsec;
}

static void submit(exs_qhandle_t q, int type, int s, void *buf, size_t len,
		   int flags, long a, const struct timespec *until)
{
	exs_x_op_t o = { .exs_x_type = type,
			 .exs_x_socket = s,
			 .exs_x_buffer = buf,
			 .exs_x_length = len,
			 .exs_x_flags = flags,
			 .exs_x_ahandle = (exs_ahandle_t)a,
			 .exs_x_until = until };

	T_EQ(T_OK(exs_x_submit(q, &o, 1)), 1);
}

/* The next event is of this, which is over because of its deadline. */
static exs_event_t late_event(exs_qhandle_t q, int type, int s, long a,
			      const struct timespec *until)
{
	exs_event_t e = t_event(q);

	T(passed(until));
	T_EQ(e.exs_evt_type, type);
	T_EQ(e.exs_evt_socket, s);
	T_EQ((long)e.exs_evt_ahandle, a);
	T_EQ(e.exs_errno, ETIMEDOUT);
	return e;
}

/* What came before is the event's, what comes later is the next receive's. */
static void late_receive_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	struct timespec never = in(3600 * 1000);
	char buf[8];

	for (int i = 0; i < 3; i++) {
		struct timespec until = in(10);

		submit(q, EXS_EVT_RECV, s, buf, 4, 0, 1, &until);
		submit(q, EXS_EVT_RECV, s, buf + 4, 4, MSG_WAITALL, 2, &never);
		late_event(q, EXS_EVT_RECV, s, 1, &until);
		t_no_event(q);
		t_tell(ctl, 1);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 4);
		T(!memcmp(buf + 4, "four", 4));
	}
	t_tell(ctl, 3);
	for (int i = 0; i < 3; i++) {
		struct timespec until;

		t_expect(ctl, 4); /* three bytes were sent */
		until = in(20);
		submit(q, EXS_EVT_RECV, s, buf, 4, MSG_WAITALL, 3, &until);
		/* Without error. They may come after the deadline. */
		for (size_t n = 0; n < 3;) {
			exs_event_t e = t_event(q);

			T(passed(&until));
			T(e.exs_errno == 0 || e.exs_errno == ETIMEDOUT);
			n += e.exs_evt_un.exs_evt_xfer.exs_evt_length;
			T(n <= 3 && !memcmp(buf, "thr", n));
			if (n < 3)
				submit(q, EXS_EVT_RECV, s, buf + n, 4 - n,
				       MSG_WAITALL, 3, &until);
		}
		t_tell(ctl, 5);
	}
	t_recv_end(s);
	t_close(s);
	T_OK(exs_qdelete(q));
}

static void late_receive_b(int s, int ctl)
{
	while (t_ask(ctl) == 1)
		t_send_all(s, "four", 4, 0);
	for (int i = 0; i < 3; i++) {
		t_send_all(s, "thr", 3, 0);
		t_tell(ctl, 4);
		t_expect(ctl, 5);
	}
	t_close(s);
}

CONF_DUO(a_receive_ends_at_its_deadline, late_receive_a, late_receive_b)

/* The event has how much of it is the peer's; what follows comes behind. */
static void late_send_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	size_t big = 24 << 20, done = 0;
	char *buf = malloc(big);
	struct timespec until = in(20);
	exs_x_op_t both[2];
	exs_event_t e;

	t_fill(buf, big, 1, 0);
	/* Together: the second one is never the first, and moves nothing. */
	for (long i = 0; i < 2; i++)
		both[i] = (exs_x_op_t){ .exs_x_type = EXS_EVT_SEND,
					.exs_x_socket = s,
					.exs_x_buffer = buf,
					.exs_x_length = big,
					.exs_x_ahandle = (exs_ahandle_t)(i + 1),
					.exs_x_until = &until };
	T_EQ(exs_x_submit(q, both, 2), 2);
	/* In any order: the kernel may have to give the first one back. */
	for (int i = 0; i < 2; i++) {
		e = t_event(q);
		T(passed(&until));
		if ((long)e.exs_evt_ahandle == 1)
			done = e.exs_evt_un.exs_evt_xfer.exs_evt_length;
		T_EQ(e.exs_errno,
		     (long)e.exs_evt_ahandle == 1 && done ? 0 : ETIMEDOUT);
	}
	T(done < big);
	t_post_send(s, buf + done, big - done, 0, q, 3);
	t_tell(ctl, big);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 3), big - done);
	t_close(s);
	T_OK(exs_qdelete(q));
	free(buf);
}

CONF_DUO(a_send_ends_at_its_deadline, late_send_a, send_b)

/* The listener serves those that come later. */
static void an_accept_ends_at_its_deadline(void)
{
	struct timespec until, never = in(3600 * 1000);
	exs_qhandle_t q;
	exs_event_t e;
	struct t_addr at;
	int l, c;

	t_init();
	q = T_OK(exs_qcreate(4));
	l = t_listener(T_IPV4, &at);
	until = in(10);
	submit(q, EXS_EVT_ACCEPT, l, NULL, 0, SOCK_CLOEXEC, 1, &never);
	submit(q, EXS_EVT_ACCEPT, l, NULL, 0, SOCK_CLOEXEC, 2, &until);
	e = late_event(q, EXS_EVT_ACCEPT, l, 2, &until);
	T_EQ(e.exs_evt_un.exs_evt_accept.exs_evt_newfd, -1);
	t_no_event(q);
	c = t_connect(&at);
	e = t_event(q);
	T_EQ((long)e.exs_evt_ahandle, 1);
	T_EQ(e.exs_errno, 0);
	t_close(e.exs_evt_un.exs_evt_accept.exs_evt_newfd);
	t_close(c);
	t_close(l);
	T_OK(exs_qdelete(q));
}

/* To a listener whose backlog is full the kernel's connect would take
 * minutes. */
static void a_connect_ends_at_its_deadline(void)
{
	struct timespec until;
	exs_qhandle_t q;
	struct t_addr at;
	exs_event_t e;
	int l, c[8], n = 0;

	t_init();
	q = T_OK(exs_qcreate(4));
	l = t_plain_listener(&at);
	T_OK(listen(l, 0));
	do {
		T(n < (int)T_COUNT(c));
		c[n] = T_OK(exs_socket(at.domain, SOCK_STREAM, 0));
		until = in(100);
		submit(q, EXS_EVT_CONNECT, c[n], &at.ss, at.len, 0, n, &until);
		e = t_event(q);
		T_EQ(e.exs_evt_type, EXS_EVT_CONNECT);
		T_EQ((long)e.exs_evt_ahandle, n);
		n++;
	} while (!e.exs_errno);
	T_EQ(e.exs_errno, ETIMEDOUT);
	T(passed(&until));
	while (n)
		t_close(c[--n]);
	T_OK(close(l));
	T_OK(exs_qdelete(q));
}

static void a_poll_ends_at_its_deadline(void)
{
	struct timespec until, never = in(3600 * 1000);
	exs_pollfd_t p, r;
	exs_qhandle_t q;
	exs_event_t e;
	int fd[2];

	conf_pair(fd);
	q = T_OK(exs_qcreate(4));
	p = r = (exs_pollfd_t){ .exs_fd = fd[0], .exs_events = EXS_POLLIN };
	until = in(10);
	submit(q, EXS_EVT_POLL, 0, &r, 1, 0, 2, &never);
	submit(q, EXS_EVT_POLL, 0, &p, 1, 0, 1, &until);
	e = late_event(q, EXS_EVT_POLL, -1, 1, &until);
	T_EQ(e.exs_evt_un.exs_evt_poll.exs_evt_ready, 0);
	t_no_event(q);
	t_send_all(fd[1], "x", 1, 0);
	e = t_event(q);
	T_EQ((long)e.exs_evt_ahandle, 2);
	T_EQ(r.exs_revents, EXS_POLLIN);
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

static void a_deadline_of_the_past_allows_one_attempt(void)
{
	struct timespec past = { 0 }, bad = { .tv_nsec = 1000000000 };
	exs_x_op_t o = { .exs_x_type = EXS_EVT_RECV, .exs_x_until = &bad };
	char byte = 'x', got;
	exs_pollfd_t p;
	exs_qhandle_t q;
	exs_event_t e;
	int fd[2];

	conf_pair(fd);
	p = (exs_pollfd_t){ .exs_fd = fd[0], .exs_events = EXS_POLLIN };
	q = T_OK(exs_qcreate(4));
	submit(q, EXS_EVT_RECV, fd[0], &got, 1, 0, 1, &past);
	late_event(q, EXS_EVT_RECV, fd[0], 1, &past);
	submit(q, EXS_EVT_SEND, fd[1], &byte, 1, 0, 2, &past);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 2), 1);
	t_recv_all(fd[0], &got, 1);
	submit(q, EXS_EVT_POLL, 0, &p, 1, 0, 3, &past);
	late_event(q, EXS_EVT_POLL, -1, 3, &past);
	t_send_all(fd[1], "x", 1, 0);
	T_EQ(exs_poll(&p, 1, 0, EXS_QHANDLE_INVALID, NULL), 1);
	submit(q, EXS_EVT_POLL, 0, &p, 1, 0, 4, &past);
	e = t_event(q);
	T_EQ((long)e.exs_evt_ahandle, 4);
	T_EQ(e.exs_errno, 0);
	T_EQ(e.exs_evt_un.exs_evt_poll.exs_evt_ready, 1);
	T_EQ(p.exs_revents, EXS_POLLIN);
	o.exs_x_socket = fd[0];
	o.exs_x_buffer = &got;
	o.exs_x_length = 1;
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	bad.tv_nsec = -1;
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

/* Sockets come and go with deadlines that are far, also across a fork. */
static void a_deadline_goes_with_its_socket(void)
{
	struct timespec never = { .tv_sec = LONG_MAX }, until;
	exs_qhandle_t q = EXS_QHANDLE_INVALID;
	int fd[2], status;
	char byte;
	pid_t child;

	for (int i = 0; i < 20; i++) {
		conf_pair(fd);
		if (!i)
			q = T_OK(exs_qcreate(4));
		submit(q, EXS_EVT_RECV, fd[0], &byte, 1, 0, i, &never);
		if (i < 19) {
			t_close(fd[0]);
			T_EQ(t_event(q).exs_errno, ECANCELED);
		}
		if (i < 19)
			t_close(fd[1]);
	}
	/* gcc's AddressSanitizer does not keep its allocator's locks over a
	 * fork: the child would wait for ever for one that another thread
	 * had. */
	t_until_all(getpid(), 'S');
	child = fork();
	if (!child) {
		exs_pollfd_t p = { .exs_events = EXS_POLLIN };
		int quiet[2];

		T_OK(pipe(quiet));
		p.exs_fd = quiet[0];
		q = T_OK(exs_qcreate(1));
		until = in(1);
		submit(q, EXS_EVT_POLL, 0, &p, 1, 0, 7, &until);
		late_event(q, EXS_EVT_POLL, -1, 7, &until);
		_exit(0);
	}
	T_EQ(T_OK(waitpid(child, &status, 0)), child);
	T_EQ(status, 0);
	t_send_all(fd[1], "x", 1, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 19), 1);
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

static const struct t_row rows[] = {
	CONF_ROWS(a_waiting_receive_is_told_of),
	CONF_ROWS(a_waiting_send_is_told_of_once),
	T_ROW(only_what_waits_is_told_of),
	T_ROW(what_was_not_taken_stands_for_the_rest),
	CONF_ROWS(a_receive_ends_at_its_deadline),
	CONF_ROWS(a_send_ends_at_its_deadline),
	T_ROW(an_accept_ends_at_its_deadline),
	T_ROW(a_connect_ends_at_its_deadline),
	T_ROW(a_poll_ends_at_its_deadline),
	T_ROW(a_deadline_of_the_past_allows_one_attempt),
	T_ROW(a_deadline_goes_with_its_socket),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "timeouts", rows, T_COUNT(rows));
}
