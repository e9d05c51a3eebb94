/* SPDX-License-Identifier: BSD-2-Clause */
/* No wake-up is lost between the last look and the sleep: ping-pongs with tiny
 * random pauses, so that every order of publishing and arming happens, with and
 * without spinning. After a lost wake-up the row hangs until its time limit. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

/* The kernel's own wake-ups need no such proof, and those of loop are those of
 * shm. */
static uint32_t rounds(void)
{
	bool few = conf_is("tcp") || conf_is("loop");

	return (getenv("T_LONG") ? 200000 : few ? 4000 : 16000) / t_slow();
}

static void pause_a_little(struct t_rng *r)
{
	if (t_below(r, 3) == 0)
		t_spin_ns(t_below(r, 4000));
}

/* Now and then a longer pause than a spin lasts, so that the other end
 * sleeps. */
static void pause_now_and_then(struct t_rng *r)
{
	if (t_below(r, 64) == 0)
		t_spin_ns(t_below(r, 120000));
	else
		pause_a_little(r);
}

static void sync_a(int s, int ctl)
{
	struct t_rng r = { getpid() };
	uint32_t i, got, n = rounds();

	t_note("seed %d", getpid());
	for (i = 0; i < n; i++) {
		pause_now_and_then(&r);
		t_send_all(s, &i, sizeof(i), 0);
		t_recv_all(s, &got, sizeof(got));
		T_EQ(got, i);
	}
	t_close(s);
}

static void sync_b(int s, int ctl)
{
	struct t_rng r = { getpid() };
	uint32_t i, got, n = rounds();

	for (i = 0; i < n; i++) {
		t_recv_all(s, &got, sizeof(got));
		T_EQ(got, i);
		pause_now_and_then(&r);
		t_send_all(s, &i, sizeof(i), 0);
	}
	t_recv_end(s);
	t_close(s);
}

/* Waits for ever, so that a time-out cannot hide what was lost. */
static exs_event_t next_event(exs_qhandle_t q)
{
	exs_event_t e;

	T_EQ(exs_qdequeue(q, &e, 1, NULL), 1);
	T_EQ(e.exs_errno, 0);
	return e;
}

static void await_send_and_recv(exs_qhandle_t q, size_t len)
{
	int i, types = 0;

	for (i = 0; i < 2; i++) {
		exs_event_t e = next_event(q);

		types |= 1 << e.exs_evt_type;
		T_EQ(e.exs_evt_un.exs_evt_xfer.exs_evt_length, len);
	}
	T_EQ(types, 1 << EXS_EVT_SEND | 1 << EXS_EVT_RECV);
}

static void async_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	struct t_rng r = { getpid() };
	uint32_t i, got, n = rounds();

	for (i = 0; i < n; i++) {
		t_post_recv(s, &got, sizeof(got), MSG_WAITALL, q, 1);
		pause_now_and_then(&r);
		t_post_send(s, &i, sizeof(i), 0, q, 2);
		pause_a_little(&r);
		await_send_and_recv(q, sizeof(i));
		T_EQ(got, i);
	}
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void async_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	struct t_rng r = { getpid() };
	uint32_t i, got, n = rounds();

	for (i = 0; i < n; i++) {
		exs_event_t e;

		t_post_recv(s, &got, sizeof(got), MSG_WAITALL, q, 1);
		pause_a_little(&r);
		e = next_event(q);
		T_EQ(e.exs_evt_type, EXS_EVT_RECV);
		T_EQ(got, i);
		pause_now_and_then(&r);
		t_post_send(s, &i, sizeof(i), 0, q, 2);
		e = next_event(q);
		T_EQ(e.exs_evt_type, EXS_EVT_SEND);
	}
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

/* The queue's descriptor is what the program sleeps on. */
static exs_event_t next_event_by_descriptor(exs_qhandle_t q)
{
	struct timeval none = { 0 };
	exs_event_t e;
	int n;

	for (;;) {
		n = T_OK(exs_qdequeue(q, &e, 1, &none));
		if (n == 1)
			break;
		t_readable(exs_x_qfd(q), -1);
	}
	T_EQ(e.exs_errno, 0);
	return e;
}

static void qfd_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	struct t_rng r = { getpid() };
	uint32_t i, got, n = rounds();

	for (i = 0; i < n; i++) {
		t_post_recv(s, &got, sizeof(got), MSG_WAITALL, q, 1);
		pause_now_and_then(&r);
		t_send_all(s, &i, sizeof(i), 0);
		pause_a_little(&r);
		next_event_by_descriptor(q);
		T_EQ(got, i);
	}
	T_OK(exs_qdelete(q));
	t_close(s);
}

/* What poll says is there: no receive has to wait. */
static void poll_a(int s, int ctl)
{
	exs_pollfd_t p = { .exs_fd = s, .exs_events = EXS_POLLIN };
	struct t_rng r = { getpid() };
	uint32_t i, got, n = rounds();

	for (i = 0; i < n; i++) {
		pause_now_and_then(&r);
		t_send_all(s, &i, sizeof(i), 0);
		pause_a_little(&r);
		T_EQ(T_OK(exs_poll(&p, 1, 0, T_SYNC)), 1);
		T_EQ(T_OK(t_recv(s, &got, sizeof(got), MSG_DONTWAIT)), 4);
		T_EQ(got, i);
	}
	t_close(s);
}

/* A receive that would end some time sleeps otherwise than one that would
 * not. */
static void timed_a(int s, int ctl)
{
	struct timeval long_time = { .tv_sec = 100 };

	T_OK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &long_time,
			sizeof(long_time)));
	sync_a(s, ctl);
}

/* One end floods, the other drains in bursts: sleeping for space. */
#define BURST  200000
#define BURSTS (4000 / t_slow())

static void space_a(int s, int ctl)
{
	uint64_t len = (uint64_t)BURST * BURSTS;

	t_send_stream(s, 1, 0, len, 30000);
	t_recv_end(s);
	t_close(s);
}

static void space_b(int s, int ctl)
{
	struct t_rng r = { getpid() };
	int i;

	for (i = 0; i < BURSTS; i++) {
		pause_now_and_then(&r);
		t_recv_stream(s, 1, (uint64_t)i * BURST, BURST, 20000);
	}
	t_close(s);
}

static void without_spinning(void)
{
	setenv("EXS_SPIN_US", "0", 1);
}

#define WAKE(name, a, b)                                                       \
	static void name##_in_one_process(void)                                \
	{                                                                      \
		conf_duo(CONF_HERE, a, b);                                     \
	}                                                                      \
	static void name##_in_two_processes(void)                              \
	{                                                                      \
		conf_duo(CONF_APART, a, b);                                    \
	}                                                                      \
	static void name##_in_one_process_without_spinning(void)               \
	{                                                                      \
		without_spinning();                                            \
		conf_duo(CONF_HERE, a, b);                                     \
	}                                                                      \
	static void name##_in_two_processes_without_spinning(void)             \
	{                                                                      \
		without_spinning();                                            \
		conf_duo(CONF_APART, a, b);                                    \
	}

#define WAKE_ROWS(name)                                                        \
	T_ROW_LONG(name##_in_one_process, 120),                                \
		T_ROW_LONG(name##_in_two_processes, 120),                      \
		T_ROW_LONG(name##_in_one_process_without_spinning, 120),       \
		T_ROW_LONG(name##_in_two_processes_without_spinning, 120)

WAKE(blocked_receives_are_always_woken, sync_a, sync_b)
WAKE(dequeues_are_always_woken, async_a, async_b)
WAKE(the_queues_descriptor_always_wakes, qfd_a, sync_b)
WAKE(blocked_sends_are_always_woken, space_a, space_b)
WAKE(a_thread_in_poll_is_always_woken, poll_a, sync_b)
WAKE(receives_with_a_time_out_are_always_woken, timed_a, sync_b)

/* A sleep with a time-out on bells needs a new system call. */
static void polls_are_woken_where_epoll_pwait2_is_refused(void)
{
	without_spinning();
	t_refuse(SYS_epoll_pwait2);
	conf_duo(CONF_APART, poll_a, sync_b);
}

static const struct t_row rows[] = {
	WAKE_ROWS(blocked_receives_are_always_woken),
	WAKE_ROWS(dequeues_are_always_woken),
	WAKE_ROWS(the_queues_descriptor_always_wakes),
	WAKE_ROWS(blocked_sends_are_always_woken),
	WAKE_ROWS(a_thread_in_poll_is_always_woken),
	WAKE_ROWS(receives_with_a_time_out_are_always_woken),
	T_ROW_LONG(polls_are_woken_where_epoll_pwait2_is_refused, 120),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "wake", rows, T_COUNT(rows));
}
