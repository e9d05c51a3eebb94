/* SPDX-License-Identifier: BSD-2-Clause */
/* exs_poll over the fabric: each yields one event, when a descriptor is
 * ready. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define MANY 12

static exs_pollfd_t one(int s, short events)
{
	return (exs_pollfd_t){ .exs_fd = s, .exs_events = events };
}

static void post_poll(exs_pollfd_t *p, int n, exs_qhandle_t q, long a)
{
	T_EQ(T_OK(exs_poll(p, n, 0, q, (exs_ahandle_t)a)), 0);
}

/* The next event is of this poll; how many descriptors are ready. */
static int poll_event(exs_qhandle_t q, const exs_pollfd_t *p, int n, long a)
{
	exs_event_t e = t_event(q);
	int ready = 0;

	T_EQ(e.exs_evt_type, EXS_EVT_POLL);
	T_EQ((long)e.exs_evt_ahandle, a);
	T_EQ(e.exs_errno, 0);
	T(e.exs_evt_un.exs_evt_poll.exs_evt_fds == p);
	T_EQ(e.exs_evt_un.exs_evt_poll.exs_evt_nfds, n);
	for (int i = 0; i < n; i++)
		ready += p[i].exs_revents != 0;
	T_EQ(e.exs_evt_un.exs_evt_poll.exs_evt_ready, ready);
	T(ready > 0);
	return ready;
}

static void cycle_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	exs_pollfd_t p = one(s, EXS_POLLIN);
	char byte;

	for (long i = 0; i < 50; i++) {
		post_poll(&p, 1, q, i);
		if (i % 2) /* or it is there before */
			t_no_event(q);
		t_tell(ctl, 1);
		T_EQ(poll_event(q, &p, 1, i), 1);
		T_EQ(p.exs_revents, EXS_POLLIN);
		/* One shot: what comes next is not told of. */
		t_expect(ctl, 2);
		t_no_event(q);
		t_recv_all(s, &byte, 1);
		t_recv_all(s, &byte, 1);
	}
	post_poll(&p, 1, q, 99);
	t_tell(ctl, 3);
	T_EQ(poll_event(q, &p, 1, 99), 1);
	T(p.exs_revents & EXS_POLLIN);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void cycle_b(int s, int ctl)
{
	while (t_ask(ctl) == 1) {
		t_send_all(s, "x", 1, 0);
		t_send_all(s, "y", 1, 0);
		t_tell(ctl, 2);
	}
	t_close(s);
}

CONF_DUO(a_poll_tells_once_that_something_came, cycle_a, cycle_b)

/* No room: told when the peer makes some. */
static void room_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	exs_pollfd_t p = one(s, EXS_POLLIN | EXS_POLLOUT);
	static char buf[100000];
	uint64_t sent = 0;
	bool fabric;
	ssize_t n;

	post_poll(&p, 1, q, 1);
	T_EQ(poll_event(q, &p, 1, 1), 1);
	T_EQ(p.exs_revents, EXS_POLLOUT);
	for (int round = 0; round < 3; round++) {
		do {
			fabric = strcmp(t_info(s).exs_x_tx_fabric, "tcp");
			t_fill(buf, sizeof(buf), 1, sent);
			n = t_send(s, buf, sizeof(buf), MSG_DONTWAIT);
			if (n > 0)
				sent += (uint64_t)n;
		} while (n > 0 || T_OK(exs_poll(&p, 1, MSG_DONTWAIT, T_SYNC)));
		post_poll(&p, 1, q, 2);
		/* The kernel's TCP makes some by itself, and so does a
		 * switch. */
		if (fabric)
			t_no_event(q);
		t_tell(ctl, sent);
		T_EQ(poll_event(q, &p, 1, 2), 1);
		T_EQ(p.exs_revents, EXS_POLLOUT);
		t_expect(ctl, sent);
	}
	t_tell(ctl, 0);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void room_b(int s, int ctl)
{
	uint64_t got = 0, sent;

	while ((sent = t_ask(ctl)) != 0) {
		t_recv_stream(s, 1, got, sent - got, 60000);
		got = sent;
		t_tell(ctl, got);
	}
	t_close(s);
}

CONF_DUO(a_poll_tells_that_there_is_room, room_a, room_b)

/* A program that poll tells of room may write a little without checking whether
 * the write waits; the peer must not depend on that. */
static void little_a(int s, int ctl)
{
	exs_pollfd_t p = one(s, EXS_POLLOUT);
	static char buf[1000];
	uint64_t sent = 0;

	for (int round = 0; round < 3; round++) {
		while (T_OK(exs_poll(&p, 1, MSG_DONTWAIT, T_SYNC))) {
			t_fill(buf, sizeof(buf), 1, sent);
			T_EQ(t_send(s, buf, sizeof(buf), MSG_DONTWAIT),
			     (ssize_t)sizeof(buf));
			sent += sizeof(buf);
		}
		t_tell(ctl, sent);
		t_expect(ctl, sent);
		T_EQ(T_OK(exs_poll(&p, 1, 0, T_SYNC)), 1);
	}
	t_tell(ctl, 0);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(room_that_poll_tells_of_is_more_than_a_little, little_a, room_b)

/* Several that wait for the same thing, a descriptor twice, others beside. */
static void several_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	exs_pollfd_t a[2] = { one(s, EXS_POLLIN), one(s, EXS_POLLIN) }, b[3];
	int end[2], seen = 0;
	char byte;

	T_OK(pipe2(end, O_CLOEXEC));
	b[0] = one(-1, EXS_POLLIN);
	b[1] = one(end[0], EXS_POLLIN);
	b[2] = one(s, EXS_POLLIN);
	post_poll(a, 2, q, 1);
	post_poll(b, 3, q, 2);
	t_no_event(q);
	t_tell(ctl, 1);
	for (int i = 0; i < 2; i++) {
		exs_event_t e = t_event(q);

		T_EQ(e.exs_errno, 0);
		seen += (int)(long)e.exs_evt_ahandle;
	}
	T_EQ(seen, 3);
	/* One may be looked at before it comes, and the other after. */
	T((a[0].exs_revents | a[1].exs_revents) == EXS_POLLIN);
	T_EQ(T_OK(exs_poll(a, 2, MSG_DONTWAIT, T_SYNC)), 2);
	T(a[0].exs_revents == EXS_POLLIN && a[1].exs_revents == EXS_POLLIN);
	T_EQ(b[0].exs_revents, 0);
	T_EQ(b[1].exs_revents, 0);
	T_EQ(b[2].exs_revents, EXS_POLLIN);
	t_recv_all(s, &byte, 1);
	/* What the kernel serves. */
	post_poll(b, 3, q, 3);
	t_no_event(q);
	T_EQ(write(end[1], "x", 1), 1);
	T_EQ(poll_event(q, b, 3, 3), 1);
	T_EQ(b[1].exs_revents, EXS_POLLIN);
	close(end[0]);
	close(end[1]);
	t_tell(ctl, 2);
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

static void several_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_all(s, "x", 1, 0);
	t_expect(ctl, 2);
	t_close(s);
}

CONF_DUO(polls_wait_side_by_side, several_a, several_b)

/* Cancelled by the one or the other, and a descriptor that is closed. */
static void ends_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	exs_pollfd_t p = one(s, EXS_POLLIN), r = p;
	exs_event_t e;

	post_poll(&p, 1, q, 1);
	T_EQ(exs_cancel(s, (exs_ahandle_t)2, EXS_CAF_FILDES | EXS_CAF_AHANDLE),
	     0);
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), 1);
	e = t_event(q);
	T_EQ(e.exs_evt_type, EXS_EVT_POLL);
	T_EQ(e.exs_errno, ECANCELED);
	T_EQ(e.exs_evt_un.exs_evt_poll.exs_evt_ready, 0);
	post_poll(&p, 1, q, 2);
	post_poll(&r, 1, q, 3);
	T_EQ(exs_cancel(-1, (exs_ahandle_t)2, EXS_CAF_AHANDLE), 1);
	e = t_event(q);
	T_EQ((long)e.exs_evt_ahandle, 2);
	T_EQ(e.exs_errno, ECANCELED);
	T_ERR(exs_qdelete(q), EBUSY);
	t_tell(ctl, 1);
	T_EQ(poll_event(q, &r, 1, 3), 1);
	t_recv_all(s, &(char){ 0 }, 1);
	post_poll(&p, 1, q, 4);
	t_no_event(q);
	t_close(s);
	T_EQ(poll_event(q, &p, 1, 4), 1);
	T_EQ(p.exs_revents, EXS_POLLNVAL);
	t_no_event(q);
	T_OK(exs_qdelete(q));
}

static void ends_b(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_all(s, "x", 1, 0);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(cancelled_and_closed_polls_say_so, ends_a, ends_b)

/* Waits in the call. */
static void now_a(int s, int ctl)
{
	exs_pollfd_t p = one(s, EXS_POLLIN);

	T_EQ(T_OK(exs_poll(&p, 1, MSG_DONTWAIT, T_SYNC)), 0);
	T_EQ(p.exs_revents, 0);
	for (int i = 0; i < 20; i++) {
		t_tell(ctl, 1);
		T_EQ(T_OK(exs_poll(&p, 1, 0, T_SYNC)), 1);
		T_EQ(p.exs_revents, EXS_POLLIN);
		t_recv_all(s, &(char){ 0 }, 1);
	}
	t_tell(ctl, 2);
	t_recv_end(s);
	t_close(s);
}

static void now_b(int s, int ctl)
{
	while (t_ask(ctl) == 1)
		t_send_all(s, "x", 1, 0);
	t_close(s);
}

CONF_DUO(a_synchronous_poll_waits, now_a, now_b)

/* The right one of many connections is reported, and a listener, too. */
static void the_right_one_of_many_is_told(void)
{
	exs_pollfd_t p[MANY + 1];
	int fd[MANY][2], listener, c;
	struct t_addr at;
	exs_qhandle_t q;

	t_init();
	q = T_OK(exs_qcreate(4));
	for (int i = 0; i < MANY; i++) {
		t_pair(T_IPV4, fd[i]);
		t_settle_pair(fd[i][0], fd[i][1], conf_here());
		p[i] = one(fd[i][0], EXS_POLLIN);
	}
	listener = t_listener(T_IPV4, &at);
	p[MANY] = one(listener, EXS_POLLIN);
	for (int i = 0; i < MANY; i++) {
		post_poll(p, MANY + 1, q, i);
		t_no_event(q);
		t_send_all(fd[i][1], "x", 1, 0);
		T_EQ(poll_event(q, p, MANY + 1, i), 1);
		T_EQ(p[i].exs_revents, EXS_POLLIN);
		t_recv_all(fd[i][0], &(char){ 0 }, 1);
	}
	post_poll(p, MANY + 1, q, 100);
	c = t_connect(&at);
	T_EQ(poll_event(q, p, MANY + 1, 100), 1);
	T_EQ(p[MANY].exs_revents, EXS_POLLIN);
	t_close(T_OK(t_accept(listener)));
	t_close(c);
	t_close(listener);
	for (int i = 0; i < MANY; i++) {
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
	T_OK(exs_qdelete(q));
}

static void *post_many(void *arg)
{
	int s = *(int *)arg;
	exs_qhandle_t q = T_OK(exs_qcreate(8));
	exs_pollfd_t p[8];

	for (int i = 0; i < 3000 / t_slow(); i++) {
		for (long k = 0; k < 8; k++) {
			p[k] = one(s, EXS_POLLOUT);
			post_poll(&p[k], 1, q, k);
		}
		for (int k = 0; k < 8; k++)
			T_EQ(t_event(q).exs_errno, 0);
	}
	T_OK(exs_qdelete(q));
	return NULL;
}

/* Whatever the others do meanwhile. */
static void polls_of_many_threads_are_all_answered(void)
{
	pthread_t t[3];
	exs_qhandle_t q;
	exs_pollfd_t p;
	int fd[2];

	conf_pair(fd);
	q = T_OK(exs_qcreate(1));
	p = one(fd[0], EXS_POLLIN);
	post_poll(&p, 1, q, 1);
	for (int i = 0; i < 3; i++)
		t[i] = t_thread(post_many, &fd[i % 2]);
	for (int i = 0; i < 3; i++)
		t_thread_join(t[i]);
	t_no_event(q);
	t_send_all(fd[1], "x", 1, 0);
	T_EQ(poll_event(q, &p, 1, 1), 1);
	t_recv_all(fd[0], &(char){ 0 }, 1);
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

static void nothing(int sig)
{
}

/* More than one signal: the call may have slept for something else. */
static void *signal_when_asleep(void *arg)
{
	const _Atomic bool *over = arg;

	t_until_asleep(getpid());
	T_UNTIL(({
		T_OK(kill(getpid(), SIGUSR1));
		(bool)*over;
	}));
	return NULL;
}

static void a_signal_ends_a_synchronous_poll(void)
{
	struct sigaction act = { .sa_handler = nothing };
	_Atomic bool over = false;
	exs_pollfd_t p;
	sigset_t usr1;
	pthread_t t;
	int fd[2];

	conf_pair(fd);
	p = one(fd[0], EXS_POLLIN);
	T_OK(sigaction(SIGUSR1, &act, NULL));
	/* Only this thread is to get it. */
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	t = t_thread(signal_when_asleep, &over);
	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
	T_ERR(exs_poll(&p, 1, 0, T_SYNC), EINTR);
	over = true;
	t_thread_join(t);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* The thread that waits for polls, once it is there; 0. */
static pid_t poll_thread(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	pid_t ret = 0;

	T(d);
	while ((e = readdir(d))) {
		char path[300], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			 e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f) && strstr(name, "libexs-poll"))
			ret = atoi(e->d_name);
		fclose(f);
	}
	closedir(d);
	return ret;
}

/* A child has none of them, and makes its own. The thread sleeps when it is
 * forked: the address sanitizer's allocator would keep what the thread has
 * locked. */
/* SO_RCVLOWAT that is set on the fabric. */
static void a_poll_waits_for_as_much_as_is_asked_for(void)
{
	exs_pollfd_t p;
	int fd[2], n = 3;
	char buf[3];

	conf_pair(fd);
	T_OK(exs_setsockopt(fd[0], SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
	p = one(fd[0], EXS_POLLIN);
	t_send_all(fd[1], "tw", 2, 0);
	for (int i = 0; i < 20; i++)
		T_EQ(exs_poll(&p, 1, MSG_DONTWAIT, T_SYNC), 0);
	t_send_all(fd[1], "o", 1, 0);
	T_EQ(exs_poll(&p, 1, 0, T_SYNC), 1);
	T_EQ(t_recv(fd[0], buf, 3, 0), 3);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* The low-water mark may exceed the ring: the peer fills the ring and waits for
 * room. */
static void much_a(int s, int ctl)
{
	exs_pollfd_t p = one(s, EXS_POLLIN);
	uint64_t got = 0, all = t_ask(ctl);
	int most = 1 << 30, one_byte = 1;
	static char buf[1 << 20];
	ssize_t n;

	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &most, sizeof(most)));
	t_tell(ctl, 1);
	for (int round = 0; got < all; round++) {
		T_EQ(T_OK(exs_poll(&p, 1, 0, T_SYNC)), 1);
		T_EQ(p.exs_revents, EXS_POLLIN);
		n = t_recv(s, buf, sizeof(buf), MSG_DONTWAIT);
		T(n > 0 && got + (uint64_t)n <= all);
		t_check_bytes(buf, (size_t)n, 1, got);
		got += (uint64_t)n;
		/* The last of it is less. */
		if (round == 3)
			T_OK(exs_setsockopt(s, SOL_SOCKET, SO_RCVLOWAT,
					    &one_byte, sizeof(one_byte)));
	}
	t_tell(ctl, got);
	t_recv_end(s);
	t_close(s);
}

static void send_much(int s, int ctl, size_t piece, bool polls)
{
	exs_pollfd_t p = one(s, EXS_POLLOUT);
	static char buf[100000];
	uint64_t sent = 0;
	/* More than the kernel has room for, too. */
	const uint64_t all = 24 << 20;

	t_tell(ctl, all);
	t_expect(ctl, 1);
	while (sent < all) {
		size_t len = all - sent < piece ? (size_t)(all - sent) : piece;
		ssize_t n;

		if (polls)
			T_EQ(T_OK(exs_poll(&p, 1, 0, T_SYNC)), 1);
		t_fill(buf, len, 1, sent);
		n = t_send(s, buf, len, polls ? MSG_DONTWAIT : 0);
		T(n > 0);
		sent += (uint64_t)n;
	}
	t_expect(ctl, all);
	t_close(s);
}

static void much_b(int s, int ctl)
{
	send_much(s, ctl, 100000, false);
}

static void much_polled_b(int s, int ctl)
{
	send_much(s, ctl, 5000, true);
}

CONF_DUO(a_poll_for_more_than_there_can_be_ends, much_a, much_b)
CONF_DUO(a_poll_for_more_than_there_can_be_ends_beside_one, much_a,
	 much_polled_b)

static void a_child_polls_by_itself(void)
{
	exs_pollfd_t p, r;
	exs_qhandle_t q;
	int fd[2], end[2];
	pid_t pid;

	conf_pair(fd);
	q = T_OK(exs_qcreate(4));
	p = one(fd[0], EXS_POLLIN);
	post_poll(&p, 1, q, 1);
	T_OK(pipe2(end, O_CLOEXEC));
	T_UNTIL(poll_thread());
	t_until_asleep(poll_thread());
	pid = t_fork();
	if (pid == 0) {
		T_EQ(exs_cancel(-1, (exs_ahandle_t)1, EXS_CAF_AHANDLE), 0);
		r = one(end[0], EXS_POLLIN);
		post_poll(&r, 1, q, 2);
		t_no_event(q);
		T_EQ(write(end[1], "x", 1), 1);
		T_EQ(poll_event(q, &r, 1, 2), 1);
		_exit(0);
	}
	t_join(pid);
	t_no_event(q);
	t_send_all(fd[1], "x", 1, 0);
	T_EQ(poll_event(q, &p, 1, 1), 1);
	close(end[0]);
	close(end[1]);
	T_OK(exs_qdelete(q));
	t_recv_all(fd[0], &(char){ 0 }, 1);
	t_close(fd[0]);
	t_close(fd[1]);
}

static const struct t_row rows[] = {
	CONF_ROWS(a_poll_tells_once_that_something_came),
	CONF_ROWS(a_poll_tells_that_there_is_room),
	CONF_ROWS(room_that_poll_tells_of_is_more_than_a_little),
	CONF_ROWS(polls_wait_side_by_side),
	CONF_ROWS(cancelled_and_closed_polls_say_so),
	CONF_ROWS(a_synchronous_poll_waits),
	T_ROW(the_right_one_of_many_is_told),
	T_ROW(polls_of_many_threads_are_all_answered),
	T_ROW(a_signal_ends_a_synchronous_poll),
	T_ROW(a_poll_waits_for_as_much_as_is_asked_for),
	CONF_ROWS(a_poll_for_more_than_there_can_be_ends),
	CONF_ROWS(a_poll_for_more_than_there_can_be_ends_beside_one),
	T_ROW(a_child_polls_by_itself),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "polls", rows, T_COUNT(rows));
}
