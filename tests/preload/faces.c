/* SPDX-License-Identifier: BSD-2-Clause */
/* Both interfaces work on one connection, in one program under exs run: plain
 * calls and those of the library, by any of the descriptor's numbers. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/meet/find.h"
#include "core/sock/table.h"
#include "tests/preload/raw.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/wait.h"

static void plain_calls_made_it(int fd[2])
{
	t_init();
	t_plain_pair(fd);
	T_OK(exs_x_adopt(fd[0]));
	T_OK(exs_x_adopt(fd[1]));
	t_settle_pair(fd[0], fd[1], T_SHM);
}

static void plain_says(int from, int to, const char *text)
{
	char buf[32] = "";

	T_EQ(send(from, text, strlen(text), 0), strlen(text));
	T_EQ(t_recv(to, buf, strlen(text), MSG_WAITALL), strlen(text));
	T(strcmp(buf, text) == 0);
}

static void library_says(int from, int to, const char *text)
{
	char buf[32] = "";

	T_EQ(t_send(from, text, strlen(text), 0), strlen(text));
	T_EQ(recv(to, buf, strlen(text), MSG_WAITALL), strlen(text));
	T(strcmp(buf, text) == 0);
}

static void one_connection_has_both_faces(void **state)
{
	int fd[2];

	plain_calls_made_it(fd);
	for (int i = 0; i < 100; i++) {
		plain_says(fd[0], fd[1], "plain");
		library_says(fd[1], fd[0], "library");
	}
	T(t_is(fd[0], T_SHM));
	t_close(fd[0]);
	T_OK(close(fd[1]));
}

/* Passes it to this process itself; its other number. */
static int pass(int fd)
{
	struct iovec iov = { .iov_base = &(char){ 0 }, .iov_len = 1 };
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c = { .room = { 0 } };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	int line[2], ret;

	T_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, line));
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	T_EQ(sendmsg(line[0], &m, 0), 1);
	T_EQ(recvmsg(line[1], &m, 0), 1);
	memcpy(&ret, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(ret));
	close(line[0]);
	close(line[1]);
	return ret;
}

/* What was on loan was not received, nor sent. */
static void a_loan_ends_when_its_descriptor_is_passed(void **state)
{
	uint64_t start;
	const void *at;
	char buf[32];
	int fd[2], s;
	void *to;

	plain_calls_made_it(fd);
	T_EQ(send(fd[0], "on loan", 7, 0), 7);
	T_EQ(exs_x_recv_loan(fd[1], &at, 0), 7);
	T_ERR(recv(fd[1], buf, 1, MSG_DONTWAIT), EAGAIN);
	T_EQ(exs_x_send_loan(fd[1], &to, 5, 0), 5);
	T_ERR(send(fd[1], "x", 1, MSG_DONTWAIT), EAGAIN);
	start = exi_now_ns();
	s = pass(fd[1]);
	T_MSG(exi_now_ns() - start < 4000000000u, "its end was waited for");
	T_ERR(exs_x_recv_return(fd[1], 7), EINVAL);
	T_ERR(exs_x_send_commit(fd[1], 5, 0), EINVAL);
	T_EQ(recv(s, buf, sizeof(buf), 0), 7);
	T(memcmp(buf, "on loan", 7) == 0);
	plain_says(s, fd[0], "goes on");
	T_OK(close(s));
	T_OK(close(fd[1]));
	t_close(fd[0]);
}

static void each_number_has_both_faces(void **state)
{
	int fd[2], two;
	exs_qhandle_t q;
	exs_event_t e;
	char buf[32];

	plain_calls_made_it(fd);
	two = T_OK(dup(fd[0]));
	for (int i = 0; i < 100; i++) {
		plain_says(two, fd[1], "by the second");
		library_says(two, fd[1], "by the second, too");
		plain_says(fd[0], fd[1], "by the first");
		library_says(fd[1], two, "back");
	}
	/* Events name the number that was used. */
	q = T_OK(exs_qcreate(4));
	t_post_recv(two, buf, sizeof(buf), 0, q, 7);
	plain_says(fd[0], fd[1], "first");
	T_EQ(send(fd[1], "posted", 6, 0), 6);
	e = t_event(q);
	T_EQ(e.exs_evt_socket, two);
	T(memcmp(buf, "posted", 6) == 0);
	T_OK(exs_qdelete(q));
	T(t_is(fd[0], T_SHM));
	T(t_is(two, T_SHM));
	/* Closed by either, known by the other. */
	t_close(fd[0]);
	library_says(two, fd[1], "still");
	T_OK(fcntl(two, F_GETFD));
	T_OK(close(two));
	t_recv_end(fd[1]);
	t_close(fd[1]);
}

static void what_is_queued_keeps_its_number(void **state)
{
	exs_qhandle_t q;
	int fd[2], two;
	char buf[32];

	plain_calls_made_it(fd);
	q = T_OK(exs_qcreate(4));
	t_post_recv(fd[0], buf, 5, 0, q, 1);
	two = T_OK(dup(fd[0]));
	T_EQ(send(fd[1], "event", 5, 0), 5);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 5);
	library_says(fd[1], fd[0], "on");
	library_says(two, fd[1], "back");
	T_OK(exs_qdelete(q));
	T_OK(close(two));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Ended in both directions, a connection is as good as closed for its peer,
 * when what was queued has gone. */
static void an_end_after_queued_sends_is_of_both_directions(void **state)
{
	static char much[8 << 20];
	uint64_t end;
	exs_qhandle_t q;
	ssize_t n;
	int fd[2];

	plain_calls_made_it(fd);
	q = T_OK(exs_qcreate(4));
	T_OK(shutdown(fd[0], SHUT_RD));
	t_post_send(fd[0], much, sizeof(much), 0, q, 1);
	T_OK(shutdown(fd[0], SHUT_WR));
	while ((n = recv(fd[1], much, sizeof(much), 0)) > 0)
		;
	T_EQ(n, 0);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 1), sizeof(much));
	end = exi_now_ns() + 5000000000u;
	do {
		n = send(fd[1], "deaf", 4, MSG_NOSIGNAL | MSG_DONTWAIT);
		sched_yield();
	} while ((n == 4 || errno == EAGAIN) && exi_now_ns() < end);
	T_MSG(n == -1 && (errno == EPIPE || errno == ECONNRESET),
	      "nobody told who sends that nobody reads");
	T_OK(exs_qdelete(q));
	T_OK(close(fd[0]));
	T_OK(close(fd[1]));
}

#define ROUNDS 1000
#define MANY   32

/* All but the last connection keep the other end awake; the last one has been
 * silent for so long that its peer was asked to ring, and speaks when the other
 * end is about to sleep. */
static void *silent_one(void *arg)
{
	const int *far = arg;
	char c = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t end;

		poll(NULL, 0, 2);
		for (int k = 0; k < MANY; k++)
			T_EQ(send(far[k], &c, 1, 0), 1);
		for (int k = 0; k < MANY; k++)
			T_EQ(recv(far[k], &c, 1, MSG_WAITALL), 1);
		end = exi_now_ns() + (unsigned int)(i * 7919 % 100) * 1000u;
		while (exi_now_ns() < end)
			;
		T_EQ(send(far[MANY], &c, 1, 0), 1);
		T_EQ(recv(far[MANY], &c, 1, MSG_WAITALL), 1);
	}
	return NULL;
}

static void a_bell_between_the_look_and_the_sleep_is_heard(void **state)
{
	int fd[MANY + 1][2], far[MANY + 1];
	int i, ep = T_OK(epoll_create1(EPOLL_CLOEXEC));
	pthread_t thread;
	struct epoll_event none;
	char c = 0;

	t_init();
	/* It is to be a set that somebody is seen to wait for. */
	T_EQ(T_OK(epoll_wait(ep, &none, 1, 0)), 0);
	for (i = 0; i <= MANY; i++) {
		struct epoll_event ev = { .events = EPOLLIN };

		/* In the set before it meets: rung through our thread. */
		t_plain_pair(fd[i]);
		ev.data.fd = fd[i][0];
		far[i] = fd[i][1];
		T_OK(epoll_ctl(ep, EPOLL_CTL_ADD, fd[i][0], &ev));
		T_OK(exs_x_adopt(fd[i][0]));
		T_OK(exs_x_adopt(fd[i][1]));
		t_settle_pair(fd[i][0], fd[i][1], T_SHM);
	}
	thread = t_thread(silent_one, far);
	for (i = 0; i < ROUNDS * (MANY + 1); i++) {
		uint64_t start = exi_now_ns();
		struct epoll_event ev;

		/* At the end of its time it looks once more. */
		T_EQ(T_OK(epoll_wait(ep, &ev, 1, 5000)), 1);
		T_MSG(exi_now_ns() - start < 4000000000u,
		      "nobody was woken in round %d", i / (MANY + 1));
		T_EQ(recv(ev.data.fd, &c, 1, 0), 1);
		T_EQ(send(ev.data.fd, &c, 1, 0), 1);
	}
	t_thread_join(thread);
	T_OK(close(ep));
	for (i = 0; i <= MANY; i++) {
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
}

/* What the kernel has in a set. */
static int in_set(int ep)
{
	char path[64], line[256];
	FILE *f;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", ep);
	f = fopen(path, "re");
	T(f != NULL);
	while (fgets(line, sizeof(line), f))
		n += strncmp(line, "tfd:", 4) == 0;
	fclose(f);
	return n;
}

/* The end that accepted has a link, which is not up: the other end cannot read
 * what it says. */
static void begin_to_meet(const int fd[2], struct exi_sock *a,
			  struct exi_sock *b)
{
	struct t_deadline d = t_deadline_ms(10000);
	char block[4096] = { 0 };

	t_send_all(fd[0], block, sizeof(block), 0);
	/* It looks for the other end when it receives, at the earliest. */
	exi_lock(&a->link_lock);
	t_recv_all(fd[1], block, sizeof(block));
	while (!atomic_load(&b->sh->linked)) {
		T(t_tick(&d));
		t_send_all(fd[1], block, sizeof(block), 0);
		t_recv_all(fd[0], block, sizeof(block));
	}
}

static void a_set_has_the_link_of_what_came_before_it(void **state)
{
	struct t_deadline d = t_deadline_ms(10000);
	int fd[2], ep = T_OK(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event ev = { .events = EPOLLIN }, none;
	struct exi_sock *a, *b;

	t_init();
	/* It is to be a set that somebody is seen to wait for. */
	T_EQ(T_OK(epoll_wait(ep, &none, 1, 0)), 0);
	t_plain_pair(fd);
	T_OK(exs_x_adopt(fd[0]));
	T_OK(exs_x_adopt(fd[1]));
	a = exi_sock_find(fd[0]);
	b = exi_sock_find(fd[1]);
	begin_to_meet(fd, a, b);
	T_OK(epoll_ctl(ep, EPOLL_CTL_ADD, fd[1], &ev));
	T_EQ(in_set(ep), 2); /* the connection, and what ends sleeps */
	exi_unlock(&a->link_lock);
	while (in_set(ep) != 3)
		T_MSG(t_tick(&d), "the link is not in the set");
	t_settle_pair(fd[0], fd[1], T_SHM);
	T_OK(close(ep));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Not by a call of the library's, which would look at a lock that is held. */
static void send_one_unseen(int fd)
{
	static const char c;

	T_EQ(t_raw(SYS_sendto, fd, (long)&c, 1, 0, 0), 1);
}

/* Two connections that meet, and so are on TCP still: bytes come to the second
 * one first. */
static void room_is_no_place_for_bytes_that_come_later(void **state)
{
	int fd[2][2], ep = T_OK(epoll_create1(EPOLL_CLOEXEC));
	struct exi_sock *a[2];
	struct epoll_event ev[4];
	struct t_deadline d;
	int told = 0;

	if (!T_HAVE_RAW)
		skip();
	t_init();
	T_EQ(T_OK(epoll_wait(ep, ev, 1, 0)), 0);
	for (int i = 0; i < 2; i++) {
		t_plain_pair(fd[i]);
		T_OK(exs_x_adopt(fd[i][0]));
		T_OK(exs_x_adopt(fd[i][1]));
		a[i] = exi_sock_find(fd[i][0]);
		begin_to_meet(fd[i], a[i], exi_sock_find(fd[i][1]));
	}
	for (int i = 0; i < 2; i++) {
		ev[0] = (struct epoll_event){ EPOLLIN, { .u32 = i } };
		T_OK(epoll_ctl(ep, EPOLL_CTL_ADD, fd[i][1], &ev[0]));
	}
	send_one_unseen(fd[1][0]);
	send_one_unseen(fd[0][0]);
	d = t_deadline_ms(10000);
	while (told < 2) {
		T(t_tick(&d));
		told = T_OK(epoll_wait(ep, ev, 4, 0));
	}
	T_EQ(ev[0].data.u32, 1);
	T_EQ(ev[1].data.u32, 0);
	T_OK(close(ep));
	for (int i = 0; i < 2; i++) {
		exi_unlock(&a[i]->link_lock);
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_connection_has_both_faces),
		cmocka_unit_test(a_loan_ends_when_its_descriptor_is_passed),
		cmocka_unit_test(each_number_has_both_faces),
		cmocka_unit_test(what_is_queued_keeps_its_number),
		cmocka_unit_test(
			an_end_after_queued_sends_is_of_both_directions),
		cmocka_unit_test(
			a_bell_between_the_look_and_the_sleep_is_heard),
		cmocka_unit_test(a_set_has_the_link_of_what_came_before_it),
		cmocka_unit_test(room_is_no_place_for_bytes_that_come_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
