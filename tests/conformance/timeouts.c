/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of transfers that wait long, over the fabric: they come while one
 * waits, and change nothing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
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

static const struct t_row rows[] = {
	CONF_ROWS(a_waiting_receive_is_told_of),
	CONF_ROWS(a_waiting_send_is_told_of_once),
	T_ROW(only_what_waits_is_told_of),
	T_ROW(what_was_not_taken_stands_for_the_rest),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "timeouts", rows, T_COUNT(rows));
}
