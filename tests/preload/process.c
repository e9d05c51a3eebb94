/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors with several numbers, processes, threads, and much load at
 * once. */
#include "behave.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void answer(const char *what, int fd)
{
	settle(fd, POLLIN);
	get_now(what, fd, 64);
}

/* --- several names ------------------------------------------------------ */

static void both_names(int two)
{
	is("two", two < 0 ? -1 : 0);
	put_text(here, "one");
	put_text(two, "two");
	pass_ms(3);
	answer("peer", peer);
	put_text(peer, "hello");
	settle(two, POLLIN);
	get_now("one", here, 2);
	get_now("two", two, 64);
	is("close", close(here));
	put_text(two, "still");
	answer("peer", peer);
	put_text(peer, "there");
	answer("two", two);
	is("close", close(two));
	settle(peer, POLLRDHUP);
	get_now("peer", peer, 4);
}

ROW(names_dup)
{
	pair();
	both_names(dup(here));
}

ROW(names_dup2)
{
	pair();
	is("dup2", dup2(here, 77));
	both_names(77);
}

ROW(names_dup3)
{
	pair();
	is("dup3", dup3(here, 77, O_CLOEXEC));
	is("flags", fcntl(77, F_GETFD));
	both_names(77);
}

ROW(names_dupfd)
{
	pair();
	both_names(fcntl(here, F_DUPFD, 50));
}

ROW(names_dupfd_cloexec)
{
	int two;

	pair();
	two = fcntl(here, F_DUPFD_CLOEXEC, 50);
	is("flags", fcntl(two, F_GETFD));
	both_names(two);
}

static int second;

static void read_second(void)
{
	char buf[16];

	got("second", recv(second, buf, sizeof(buf), 0), buf);
}

ROW(names_reader_stays)
{
	int closed;

	pair();
	second = dup(here);
	later(0, read_second);
	pass_ms(20);
	closed = close(here);
	/* Its number is another's while the reader waits. */
	here = open("/dev/null", O_RDWR | O_CLOEXEC);
	put_text(peer, "late");
	later_end();
	is("close", closed);
	put_text(second, "back");
	answer("peer", peer);
}

ROW(names_before_connect)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len), two;
	char six[6];

	here = socket(stream_family, stream_type, 0);
	two = dup(here);
	is("connect", connect(two, (struct sockaddr *)&at, len));
	peer = accept(l, NULL, NULL);
	close(l);
	warm(here, peer);
	put_text(here, "one");
	put_text(two, "two");
	get_all(peer, six, sizeof(six));
	got("peer", sizeof(six), six);
	is("close", close(two));
	warm(here, peer);
	put_text(peer, "hello");
	answer("here", here);
}

ROW(names_in_one_set)
{
	struct epoll_event e[4], ev = { .events = EPOLLIN };
	int set = epoll_create1(0), n;

	pair();
	second = dup(here);
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	is("again", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	ev.data.u64 = 1;
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, second, &ev));
	put_text(peer, "x");
	settle(here, POLLIN);
	n = (int)is("wait", epoll_wait(set, e, 4, 1000));
	say("%d", n == 2 ? (int)(e[0].data.u64 + e[1].data.u64) : -1);
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, second, &ev));
	is("wait", epoll_wait(set, e, 4, 1000));
	say("%d", (int)e[0].data.u64);
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, second, &ev));
	answer("second", second);
	is("wait", epoll_wait(set, e, 4, 0));
	/* Both sleep, and are told. */
	put_text(peer, "y");
	is("wait", epoll_wait(set, e, 4, 1000));
	answer("here", here);
}

/* The set keeps what was added by a number that is closed, as long as there is
 * another. */
static void told_by_closed(int set)
{
	struct epoll_event e[2] = { { 0 } };
	int n;

	for (int i = 0; i < 2; i++) {
		put_text(peer, "x");
		n = (int)is("wait", epoll_wait(set, e, 2, 1000));
		say("%d", n > 0 ? (int)e[0].data.u64 : -1);
		get_now("recv", here, 4);
		is("none", epoll_wait(set, e, 2, 0));
	}
}

static int set_by_closed(uint32_t mode)
{
	struct epoll_event ev = { .events = EPOLLIN | mode, .data.u64 = 7 };
	int set = epoll_create1(0), two = dup(here);

	is("add", epoll_ctl(set, EPOLL_CTL_ADD, two, &ev));
	is("close", close(two));
	return set;
}

ROW(names_closed_in_set_on_tcp)
{
	int set;

	pair();
	set = set_by_closed(0);
	told_by_closed(set);
	fdopen(here, "r");
	told_by_closed(set);
	close(here);
	is("wait", epoll_wait(set, &(struct epoll_event){ 0 }, 1, 0));
}

ROW(names_closed_in_set_edge)
{
	int set;

	pair();
	set = set_by_closed(EPOLLET);
	told_by_closed(set);
	fdopen(here, "r");
	told_by_closed(set);
}

/* A shot that was fired stays so, whatever the end. */
static void shot_then_passed_on(void)
{
	struct epoll_event ev = { .events = EPOLLOUT | EPOLLONESHOT }, e[4];
	int set = epoll_create1(0);

	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	is("wait", epoll_wait(set, e, 4, 1000));
	fdopen(here, "r");
	reset(peer);
	settle(here, POLLHUP);
	is("wait", epoll_wait(set, e, 4, 0));
	ev.events = EPOLLIN | EPOLLONESHOT;
	ev.data.u64 = 9;
	is("mod", epoll_ctl(set, EPOLL_CTL_MOD, here, &ev));
	is("wait", epoll_wait(set, e, 4, 0));
	is("data", (int)e[0].data.u64);
	reset(here);
}

ROW(names_shot_then_passed_on)
{
	cold_pair(AF_INET, false);
	shot_then_passed_on();
}

ROW(names_shot_moved_then_passed_on)
{
	pair();
	shot_then_passed_on();
}

/* What came after is told, whether what was there is told again or not. */
ROW(names_edge_then_passed_on)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET }, e[4];
	int set = epoll_create1(0);

	pair();
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	put_text(peer, "x");
	is("wait", epoll_wait(set, e, 4, 1000));
	is("wait", epoll_wait(set, e, 4, 0));
	fdopen(here, "r");
	is("passed on", epoll_wait(set, e, 4, 0));
	is("wait", epoll_wait(set, e, 4, 0));
	put_text(peer, "y");
	is("wait", epoll_wait(set, e, 4, 1000));
	is("wait", epoll_wait(set, e, 4, 0));
}

/* As the connection is, and when it has become the unread bytes of a peer that
 * is gone. */
static void passed_on_in_set(uint32_t flags)
{
	struct epoll_event ev = { .events = EPOLLIN | flags, .data.u64 = 5 }, e;
	int set = epoll_create1(0);
	bool mods = !(flags & EPOLLEXCLUSIVE);

	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	fdopen(here, "r");
	is("wait", epoll_wait(set, &e, 1, 1000));
	is("data", (int)e.data.u64);
	is("again", epoll_wait(set, &e, 1, 0));
	ev.data.u64 = 6;
	is("change",
	   epoll_ctl(set, mods ? EPOLL_CTL_MOD : EPOLL_CTL_DEL, here, &ev));
	is("wait", epoll_wait(set, &e, 1, 0));
	is("data", (int)e.data.u64);
}

static void passed_on_unread(void)
{
	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	if (which_row & 1)
		reset(peer);
	passed_on_in_set(which_row & 2	 ? EPOLLEXCLUSIVE
			 : which_row & 4 ? EPOLLONESHOT
					 : 0);
}

__attribute__((constructor)) static void add_passed_on(void)
{
	static const char *const names[] = { "",	   "_gone",
					     "_exclusive", "_exclusive_gone",
					     "_once",	   "_once_gone" };

	for (int i = 0; i < 6; i++)
		add_row("names_passed_on_in_set", names[i], passed_on_unread,
			i);
}

static void ended_in_set(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int set = epoll_create1(0);

	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	fdopen(here, "r");
	poll_one("here", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	is("wait", epoll_wait(set, &ev, 1, 0));
	is("mod", epoll_ctl(set, EPOLL_CTL_MOD, here, &ev));
	get_now("recv", here, 4);
}

/* With nothing unread it is the same connection, and in its sets. */
ROW(names_ended_then_passed_on)
{
	pair();
	shutdown(here, SHUT_RDWR);
	ended_in_set();
	settle(peer, POLLRDHUP);
	get_now("peer", peer, 4);
}

ROW(names_end_read_then_passed_on)
{
	pair();
	shutdown(peer, SHUT_RDWR);
	settle(here, POLLRDHUP);
	get_now("recv", here, 4);
	ended_in_set();
	close(peer);
}

ROW(names_closed_in_set_before)
{
	int set;

	cold_pair(AF_INET, false);
	set = set_by_closed(0);
	told_by_closed(set);
	warm(here, peer);
	told_by_closed(set);
	shutdown(peer, SHUT_WR);
	is("wait", epoll_wait(set, &(struct epoll_event){ 0 }, 1, 1000));
}

/* What a child closes, or gives away, stays in a set that both have as it
 * is. */
static void child_leaves_in_set(void (*leave)(void))
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT }, e[4];
	int set = epoll_create1(0);
	pid_t pid;

	pair();
	if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, here, &ev))
		die("make a set");
	is("wait", epoll_wait(set, e, 4, 0));
	pid = fork();
	if (pid == 0) {
		leave();
		_exit(0);
	}
	child("child", pid);
	fill(here);
	is("full", epoll_wait(set, e, 4, 0));
	put_text(peer, "x");
	is("readable", epoll_wait(set, e, 4, 1000));
	events("events", e[0].events);
	get_now("recv", here, 4);
	is("nothing", epoll_wait(set, e, 4, 20));
	drain(peer);
	is("room", epoll_wait(set, e, 4, 1000));
	close(peer);
	settle(here, POLLRDHUP);
	is("closed", epoll_wait(set, e, 4, 1000));
	events("events", e[0].events);
}

static void closes_here(void)
{
	close(here);
}

static void puts_over_here(void)
{
	dup2(peer, here);
}

ROW(names_closed_in_set_by_a_child)
{
	child_leaves_in_set(closes_here);
}

ROW(names_put_over_in_set_by_a_child)
{
	child_leaves_in_set(puts_over_here);
}

ROW(names_over_fork)
{
	int two;
	pid_t pid;

	pair();
	two = dup(here);
	warm(two, peer);
	pid = fork();
	if (pid == 0) {
		close(here);
		warm(two, peer);
		put_text(two, "child");
		_exit(0);
	}
	child("child", pid);
	close(two);
	answer("peer", peer);
	warm(here, peer);
	put_text(here, "parent");
	answer("peer", peer);
}

ROW(names_flags)
{
	int two;

	pair();
	two = fcntl(here, F_DUPFD_CLOEXEC, 50);
	is("first", fcntl(here, F_GETFD));
	is("second", fcntl(two, F_GETFD));
	nonblock(two, true);
	is("recv", recv(here, &(char){ 0 }, 1, 0));
	nonblock(here, false);
	is("blocks", !(fcntl(two, F_GETFL) & O_NONBLOCK));
	is("equal", getsockopt(two, SOL_SOCKET, SO_ERROR, &(int){ 0 },
			       &(socklen_t){ sizeof(int) }));
	is("shutdown", shutdown(two, SHUT_WR));
	settle(peer, POLLRDHUP);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	answer("peer", peer);
}

/* Streams on, by names alone. */
ROW(names_stream)
{
	int two, three;

	pair();
	two = dup(here);
	close(here);
	three = dup(peer);
	for (int i = 0; i < 20; i++)
		warm(two, three);
	close(three);
	here = dup(two);
	close(two);
	warm(here, peer);
	say("works");
}

ROW(names_dup_with_bytes)
{
	int two;

	pair();
	put_text(peer, "unread");
	put_text(here, "sent");
	two = dup(here);
	close(here);
	answer("two", two);
	answer("peer", peer);
	warm(two, peer);
	say("works");
}

ROW(names_dup_full)
{
	size_t n;
	int two;

	pair();
	n = fill(here);
	two = dup(here);
	/* Whether there is room for one more is the buffers' affair. */
	if (send(two, "x", 1, MSG_DONTWAIT) == 1)
		n++;
	say("%s", drain(peer) == n ? "all came" : "bytes are missing");
	settle(two, POLLOUT);
	is("send", send(two, "x", 1, MSG_DONTWAIT));
	answer("peer", peer);
}

ROW(names_dup2_errors)
{
	pair();
	is("itself", dup2(here, here) == here ? 0 : -1);
	is("dup3", dup3(here, here, 0));
	is("closed", dup2(999, here));
	is("negative", dup2(here, -1));
	is("flags", dup3(here, 88, 1));
	put_text(here, "still");
	answer("peer", peer);
}

ROW(names_dup2_over)
{
	int p[2];

	pair();
	is("pipe", pipe(p));
	is("dup2", dup2(p[0], here) == here ? 0 : -1);
	settle(peer, POLLRDHUP);
	get_now("peer", peer, 4);
	is("write", write(p[1], "pipe", 4));
	got("read", read(here, (char[8]){ 0 }, 8), "pipe");
	is("recv", recv(here, (char[8]){ 0 }, 8, 0));
}

ROW(names_dup2_over_another)
{
	int a, b;

	pair();
	a = here;
	b = peer;
	pair();
	is("dup2", dup2(a, here) == here ? 0 : -1);
	settle(peer, POLLRDHUP);
	get_now("peer", peer, 4);
	put_text(here, "hello");
	answer("peer", b);
	close(a);
	put_text(here, "again");
	answer("peer", b);
}

ROW(names_close_range)
{
	int spare;

	pair();
	spare = dup(0);
	put_text(here, "last");
	is("cloexec", close_range((unsigned int)here, (unsigned int)here,
				  CLOSE_RANGE_CLOEXEC));
	is("flags", fcntl(here, F_GETFD));
	put_text(here, "words");
	is("close", close_range((unsigned int)here, (unsigned int)here, 0));
	is("flags", fcntl(here, F_GETFD));
	is("spare", fcntl(spare, F_GETFD));
	pass_ms(5);
	answer("peer", peer);
	settle(peer, POLLRDHUP);
	get_now("peer", peer, 4);
	is("wrong", close_range(9, 3, 0));
}

static atomic_bool met_all;

static void *close_above(void *arg)
{
	while (!atomic_load(&met_all))
		close_range(600, ~0u, 0);
	return NULL;
}

ROW(names_close_range_beside_meetings)
{
	int64_t end = now_ns() + 1000000000;
	pthread_t t;

	pthread_create(&t, NULL, close_above, NULL);
	while (now_ns() < end) {
		pair();
		close(here);
		close(peer);
	}
	atomic_store(&met_all, true);
	pthread_join(t, NULL);
	say("all moved");
}

/* A program that closes a number to give it to a duplicate gets that number. */
ROW(names_lowest_beside_meetings)
{
	int low = dup(0), other, n, others = 0;
	int64_t end = now_ns() + 300000000;
	char buf[4096] = "";

	while (now_ns() < end) {
		cold_pair(AF_INET, false);
		put_all(peer, buf, sizeof(buf));
		put_all(here, buf, sizeof(buf));
		for (n = 0; n < 1000; n++) {
			close(low);
			other = n % 2 ? dup(0) : fcntl(0, F_DUPFD, 0);
			if (other == low)
				continue;
			others++;
			dup2(other, low);
			close(other);
		}
		close(here);
		close(peer);
	}
	is("others", others);
}

ROW(names_refused_close_nothing)
{
	pair();
	is("dup3", dup3(0, here, 0x1234));
	is("close_range",
	   close_range((unsigned int)here, (unsigned int)here, 0x1000));
	put_text(peer, "x");
	settle(here, POLLIN);
	get_now("recv", here, 4);
}

ROW(names_close_all)
{
	pair();
	is("close", close_range(3, ~0u, 0));
	is("here", fcntl(here, F_GETFD));
	is("peer", fcntl(peer, F_GETFD));
	pair();
	say("works");
}

ROW(names_reused)
{
	int old;

	pair();
	old = here;
	close(here);
	close(peer);
	pair();
	say("%s", here == old || peer == old ? "reused" : "other");
	put_text(here, "hello");
	answer("peer", peer);
}

/* --- streams ------------------------------------------------------------ */

ROW(stdio_both_ways)
{
	FILE *in, *out;
	char line[64];

	pair();
	in = fdopen(here, "r+");
	out = fdopen(peer, "r+");
	fprintf(in, "hello %d\n", 1);
	fflush(in);
	say("%s", fgets(line, sizeof(line), out) ? strtok(line, "\n") : "end");
	fputs("answer\nmore\n", out);
	fclose(out);
	say("%s", fgets(line, sizeof(line), in) ? strtok(line, "\n") : "end");
	say("%s", fgets(line, sizeof(line), in) ? strtok(line, "\n") : "end");
	say("%s", fgets(line, sizeof(line), in) ? strtok(line, "\n") : "end");
	is("close", fclose(in));
}

ROW(stdio_after_bytes)
{
	FILE *in;
	char line[64];

	pair();
	put_text(peer, "one\ntwo\n");
	settle(here, POLLIN);
	get_now("recv", here, 4);
	in = fdopen(here, "r");
	say("%s", fgets(line, sizeof(line), in) ? strtok(line, "\n") : "end");
	put_text(peer, "three\n");
	say("%s", fgets(line, sizeof(line), in) ? strtok(line, "\n") : "end");
}

ROW(stdio_dprintf)
{
	pair();
	is("dprintf", dprintf(here, "number %d", 5));
	answer("peer", peer);
}

ROW(stdio_dup2_to_stdout)
{
	pair();
	fflush(stdout);
	is("dup2", dup2(here, 1));
	printf("printed\n");
	fflush(stdout);
	if (puts("put") < 0 || fflush(stdout))
		die("print");
	pass_ms(5);
	answer("peer", peer);
}

/* --- processes ---------------------------------------------------------- */

ROW(fork_child_talks)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		char buf[8];

		put_text(here, "child");
		get_all(here, buf, 5);
		_exit(buf[0] == 'h' ? 0 : 1);
	}
	answer("peer", peer);
	put_text(peer, "hello");
	child("child", pid);
	put_text(here, "parent");
	answer("peer", peer);
}

ROW(fork_child_serves)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		char buf[8];

		close(here);
		for (int i = 0; i < 200; i++) {
			get_all(peer, buf, 5);
			put_all(peer, buf, 5);
		}
		_exit(0);
	}
	close(peer);
	for (int i = 0; i < 200; i++) {
		char buf[8];

		put_text(here, "hello");
		get_all(here, buf, 5);
	}
	child("child", pid);
	settle(here, POLLRDHUP);
	get_now("end", here, 4);
}

ROW(fork_accept_and_serve)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len);
	pid_t pid = fork();
	char buf[8];

	if (pid == 0) {
		peer = accept(l, NULL, NULL);
		for (int i = 0; i < 100; i++) {
			get_all(peer, buf, 5);
			put_all(peer, buf, 5);
		}
		exit(0);
	}
	close(l);
	here = socket(stream_family, stream_type, 0);
	is("connect", connect(here, (struct sockaddr *)&at, len));
	for (int i = 0; i < 100; i++) {
		put_text(here, "hello");
		get_all(here, buf, 5);
	}
	child("child", pid);
	settle(here, POLLRDHUP);
	get_now("end", here, 4);
}

ROW(fork_both_use_it)
{
	char buf[16];
	pid_t pid;
	int p[2];

	pair();
	is("pipe", pipe(p));
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 3; i++) {
			if (read(p[0], buf, 1) != 1)
				_exit(1);
			put_text(here, "c");
		}
		_exit(0);
	}
	for (int i = 0; i < 3; i++) {
		put_text(here, "p");
		is("tell", write(p[1], "x", 1));
		get_all(peer, buf, 2);
		got("both", 2, buf);
	}
	child("child", pid);
}

ROW(fork_exit_does_not_close)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0)
		exit(0);
	child("child", pid);
	poll_one("peer", peer, POLLIN | POLLRDHUP, 50);
	put_text(here, "still");
	answer("peer", peer);
	pid = fork();
	if (pid == 0) {
		close(here);
		_exit(0);
	}
	child("child", pid);
	poll_one("peer", peer, POLLIN | POLLRDHUP, 50);
	put_text(here, "there");
	answer("peer", peer);
}

ROW(fork_parent_closes)
{
	pid_t pid;
	int p[2];

	pair();
	is("pipe", pipe(p));
	pid = fork();
	if (pid == 0) {
		char c;

		close(p[1]);
		if (read(p[0], &c, 1) != 0)
			_exit(1);
		put_text(here, "child");
		_exit(0);
	}
	close(here);
	poll_one("peer", peer, POLLIN | POLLRDHUP, 50);
	close(p[1]);
	answer("peer", peer);
	child("child", pid);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

ROW(fork_shutdown_is_shared)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		shutdown(here, SHUT_WR);
		_exit(0);
	}
	child("child", pid);
	settle(peer, POLLRDHUP);
	get_now("peer", peer, 4);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

/* A reset answers what comes after, whoever else has the connection. */
static void shut_by_child(void (*shut)(void))
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		shut();
		_exit(0);
	}
	child("child", pid);
	settle(peer, POLLRDHUP);
	poll_one("peer", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	is("send", send(peer, "x", 1, MSG_NOSIGNAL));
	settle(peer, POLLHUP);
	poll_one("peer", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	is("send", send(peer, "x", 1, MSG_NOSIGNAL));
	settle(here, POLLERR);
	poll_one("here", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", here, 4);
	get_now("recv", here, 4);
}

static void shut_both(void)
{
	shutdown(here, SHUT_RDWR);
}

static void shut_one_by_one(void)
{
	shutdown(here, SHUT_WR);
	shutdown(here, SHUT_RD);
}

ROW(fork_child_shuts_both)
{
	shut_by_child(shut_both);
}

ROW(fork_child_shuts_one_by_one)
{
	shut_by_child(shut_one_by_one);
}

/* What the child does first is to look whether it has ended. */
static void look_by_poll(void)
{
	settle(here, POLLHUP);
}

static void look_by_epoll(void)
{
	struct epoll_event ev = { .events = EPOLLRDHUP };
	int set = epoll_create1(0);

	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	is("wait", epoll_wait(set, &ev, 1, 1000));
	events("events", ev.events);
}

static void child_looks(void (*look)(void))
{
	pid_t pid;
	int p[2];

	pair();
	is("pipe", pipe(p));
	pid = fork();
	if (pid == 0) {
		if (read(p[0], (char[1]){ 0 }, 1) != 1)
			_exit(1);
		look();
		poll_one("child", here, POLLIN | POLLRDHUP, 0);
		get_now("recv", here, 4);
		is("send", send(here, "x", 1, MSG_NOSIGNAL));
		_exit(0);
	}
	shutdown(peer, SHUT_RDWR);
	settle(here, POLLRDHUP);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	settle(here, POLLHUP);
	if (write(p[1], "x", 1) != 1)
		die("tell");
	child("child", pid);
}

ROW(fork_child_polls_the_end)
{
	child_looks(look_by_poll);
}

ROW(fork_child_epolls_the_end)
{
	child_looks(look_by_epoll);
}

/* While another process has the descriptor, and does nothing with it, or waits
 * for the same. False: in vain. */
#define LIMIT_S INT64_C(2)

static bool wait_by_poll(void)
{
	struct pollfd p = { .fd = here, .events = POLLIN };

	return poll(&p, 1, LIMIT_S * 1000) == 1;
}

static bool wait_by_select(void)
{
	struct timeval t = { .tv_sec = LIMIT_S };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(here, &set);
	return select(here + 1, &set, NULL, NULL, &t) == 1;
}

static bool wait_by_epoll(uint32_t flags)
{
	static struct epoll_event ev;
	static pid_t mine;
	static int set;

	if (mine != getpid()) {
		mine = getpid();
		set = epoll_create1(0);
		ev.events = EPOLLIN | flags;
		epoll_ctl(set, EPOLL_CTL_ADD, here, &ev);
	}
	return epoll_wait(set, &ev, 1, LIMIT_S * 1000) == 1;
}

static bool wait_by_level(void)
{
	return wait_by_epoll(0);
}

static bool wait_by_edge(void)
{
	return wait_by_epoll(EPOLLET);
}

static bool wait_by_time_limit(void)
{
	struct timeval t = { .tv_sec = LIMIT_S };

	setsockopt(here, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	return recv(here, &(char){ 0 }, 1, MSG_PEEK) == 1;
}

#define ASKED 60

/* On the connection that there is. */
static void child_waits_on_it(bool (*wait_for)(void))
{
	int64_t start;
	char buf[8];
	pid_t pid = fork();

	for (int i = 0; i < ASKED; i++) {
		if (pid) {
			get_all(peer, buf, 3);
			pass_ms(1);
			put_text(peer, "answer");
			continue;
		}
		put_text(here, "ask");
		start = now_ns();
		/* What ends by its limit looks once more, and finds it. */
		if (!wait_for() || now_ns() - start > LIMIT_S * 750000000)
			_exit(1);
		get_all(here, buf, 6);
	}
	if (pid == 0)
		_exit(0);
	child("child", pid);
}

static void child_waits(bool (*wait_for)(void))
{
	pair();
	child_waits_on_it(wait_for);
}

ROW(fork_child_waits_by_poll)
{
	child_waits(wait_by_poll);
}

/* As many connections as may use descriptors that the program does not see. */
ROW(fork_child_waits_where_descriptors_are_few)
{
	struct rlimit r;
	int first[2];

	is("limit", getrlimit(RLIMIT_NOFILE, &r));
	r.rlim_cur = 128;
	is("few", setrlimit(RLIMIT_NOFILE, &r));
	for (int i = 0; i < 24; i++) {
		pair();
		if (i == 0) {
			first[0] = here;
			first[1] = peer;
		}
	}
	here = first[0];
	peer = first[1];
	child_waits_on_it(wait_by_poll);
}

ROW(fork_child_waits_by_select)
{
	child_waits(wait_by_select);
}

ROW(fork_child_waits_by_epoll)
{
	child_waits(wait_by_level);
}

ROW(fork_child_waits_for_edges)
{
	child_waits(wait_by_edge);
}

ROW(fork_child_waits_so_long)
{
	child_waits(wait_by_time_limit);
}

/* A child waits on a set at which a thread of its parent looks all the time. */
static _Atomic bool looked_enough;

static void *look_at(void *set)
{
	struct epoll_event ev;

	while (!atomic_load(&looked_enough))
		epoll_wait(*(int *)set, &ev, 1, 0);
	return NULL;
}

ROW(fork_child_waits_on_a_set_that_is_looked_at)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int set = epoll_create1(0), missed = 0;
	pthread_t t;
	pid_t pid;
	char c;

	pair();
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	if (pthread_create(&t, NULL, look_at, &set))
		die("start a thread");
	for (int i = 0; i < ASKED; i++) {
		int status = 1;

		pid = fork();
		if (pid == 0) {
			put_text(peer, "x");
			if (epoll_wait(set, &ev, 1, LIMIT_S * 1000) != 1 ||
			    recv(here, &c, 1, 0) != 1)
				_exit(1);
			_exit(0);
		}
		waitpid(pid, &status, 0);
		missed += status != 0;
		/* What it did not take must not help the next. */
		while (recv(here, &c, 1, MSG_DONTWAIT) == 1)
			;
	}
	atomic_store(&looked_enough, true);
	pthread_join(t, NULL);
	is("missed", missed);
}

/* Both are told of each byte, and one takes it; both are told of the end. */
static bool take_some(bool (*wait_for)(void), int tell)
{
	ssize_t n;
	char c;

	while (wait_for()) {
		while ((n = recv(here, &c, 1, MSG_DONTWAIT)) == 1)
			if (write(tell, "x", 1) != 1)
				return false;
		if (n == 0)
			return true;
	}
	return false;
}

static void both_wait(bool (*wait_for)(void))
{
	pid_t pid[2];
	int p[2];
	char c;

	pair();
	is("pipe", pipe(p));
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (pid[i] == 0)
			_exit(take_some(wait_for, p[1]) ? 0 : 1);
	}
	for (int i = 0; i < ASKED; i++) {
		pass_ms(1);
		put_text(peer, "x");
		if (read(p[0], &c, 1) != 1)
			die("hear of it");
	}
	shutdown(peer, SHUT_WR);
	child("first", pid[0]);
	child("second", pid[1]);
}

ROW(fork_both_wait_by_poll)
{
	both_wait(wait_by_poll);
}

ROW(fork_both_wait_by_epoll)
{
	both_wait(wait_by_level);
}

ROW(fork_both_wait_for_edges)
{
	both_wait(wait_by_edge);
}

ROW(fork_child_killed)
{
	pid_t pid;
	int p[2];

	pair();
	is("pipe", pipe(p));
	pid = fork();
	if (pid == 0) {
		close(here);
		put_text(peer, "child");
		if (write(p[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	close(peer);
	is("read", read(p[0], (char[1]){ 0 }, 1));
	kill(pid, SIGKILL);
	child("child", pid);
	settle(here, POLLRDHUP);
	get_now("recv", here, 64);
	get_now("recv", here, 64);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

static int refused_child(void *arg)
{
	return *(int *)arg;
}

static void unread_is_reset(void)
{
	put_text(here, "unread");
	settle(peer, POLLIN);
	close(peer);
	settle(here, POLLHUP);
	get_now("recv", here, 8);
}

static void no_more_processes(void)
{
	struct rlimit none = { 0 };

	/* Root has no limit. */
	(void)!setresuid(65534, 65534, 65534);
	setrlimit(RLIMIT_NPROC, &none);
}

/* Nobody else has the connection: its end is a reset. */
ROW(fork_fails)
{
	pid_t pid;

	pair();
	no_more_processes();
	pid = fork();
	if (pid == 0)
		_exit(0);
	is("fork", pid < 0 ? pid : 0);
	unread_is_reset();
}

ROW(fork_by_forkpty_fails)
{
	int terminal;

	pair();
	no_more_processes();
	is("forkpty", forkpty(&terminal, NULL, NULL, NULL));
	unread_is_reset();
}

/* Before it forks, and after one that did not fail. */
ROW(fork_by_forkpty_without_terminal)
{
	struct rlimit was, none;
	int terminal;
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0)
		_exit(pause());
	getrlimit(RLIMIT_NOFILE, &was);
	none = was;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	is("forkpty", forkpty(&terminal, NULL, NULL, NULL));
	setrlimit(RLIMIT_NOFILE, &was);
	close(peer);
	poll_one("here", here, POLLIN, 50);
	kill(pid, SIGKILL);
	child("child", pid);
	settle(here, POLLRDHUP);
	get_now("end", here, 4);
}

ROW(fork_by_daemon_fails)
{
	pair();
	no_more_processes();
	is("daemon", daemon(1, 1));
	unread_is_reset();
}

ROW(fork_by_clone_fails)
{
	static char stack[65536];
	int arg = 0;

	pair();
	is("clone", clone(refused_child, stack + sizeof(stack),
			  CLONE_THREAD | SIGCHLD, &arg, NULL, NULL, NULL));
	unread_is_reset();
}

ROW(fork_child_epoll)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 5 };
	int set = epoll_create1(0);
	pid_t pid;

	pair();
	epoll_ctl(set, EPOLL_CTL_ADD, here, &e);
	pid = fork();
	if (pid == 0) {
		int n = epoll_wait(set, &e, 1, 2000);

		say("child %d %d", n, (int)e.data.u64);
		get_now("recv", here, 64);
		_exit(0);
	}
	pass_ms(30);
	put_text(peer, "hello");
	child("child", pid);
	is("wait", epoll_wait(set, &e, 1, 0));
}

static void exec_words(const char *how)
{
	char buf[8] = "";

	put_text(peer, "words\n");
	shutdown(peer, SHUT_WR);
	get_all(peer, buf, 6);
	got(how, 6, buf);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

ROW(exec_cat)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		dup2(here, 0);
		dup2(here, 1);
		close(here);
		close(peer);
		execl("/bin/cat", "cat", (char *)NULL);
		_exit(127);
	}
	close(here);
	exec_words("cat");
	child("child", pid);
}

ROW(exec_cat_with_bytes_there)
{
	pid_t pid;

	pair();
	put_text(peer, "first ");
	settle(here, POLLIN);
	pid = fork();
	if (pid == 0) {
		dup2(here, 0);
		dup2(here, 1);
		close(here);
		close(peer);
		execve("/bin/cat", (char *[]){ (char[]){ "cat" }, NULL },
		       environ);
		_exit(127);
	}
	close(here);
	exec_words("cat");
	child("child", pid);
}

ROW(spawn_cat)
{
	posix_spawn_file_actions_t act;
	char *argv[] = { (char[]){ "cat" }, NULL };
	pid_t pid = -1;

	pair();
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_adddup2(&act, here, 0);
	posix_spawn_file_actions_adddup2(&act, here, 1);
	posix_spawn_file_actions_addclose(&act, here);
	posix_spawn_file_actions_addclose(&act, peer);
	is("spawn", posix_spawn(&pid, "/bin/cat", &act, NULL, argv, environ));
	close(here);
	exec_words("cat");
	child("child", pid);
}

ROW(spawn_echo)
{
	posix_spawn_file_actions_t act;
	char *argv[] = { (char[]){ "echo" }, (char[]){ "hello" }, NULL };
	pid_t pid = -1;

	pair();
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_adddup2(&act, here, 1);
	is("spawn", posix_spawnp(&pid, "echo", &act, NULL, argv, environ));
	child("child", pid);
	answer("peer", peer);
	put_text(here, "after");
	answer("peer", peer);
}

ROW(exec_inherits_number)
{
	char script[64];
	pid_t pid;

	pair();
	snprintf(script, sizeof(script),
		 "echo shell >&%d; read x <&%d; echo $x >&%d", here, here,
		 here);
	pid = fork();
	if (pid == 0) {
		execl("/bin/bash", "bash", "-c", script, (char *)NULL);
		_exit(127);
	}
	answer("peer", peer);
	put_text(peer, "hello\n");
	answer("peer", peer);
	child("child", pid);
}

ROW(system_and_popen)
{
	char line[32] = "";
	FILE *f;

	pair();
	is("system", system("exit 3"));
	f = popen("echo popen", "r");
	say("%s",
	    f && fgets(line, sizeof(line), f) ? strtok(line, "\n") : "end");
	is("pclose", pclose(f));
	put_text(here, "hello");
	answer("peer", peer);
	warm(here, peer);
	say("works");
}

ROW(vfork_exec)
{
	pid_t pid;

	pair();
	pid = vfork();
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	child("child", pid);
	put_text(here, "hello");
	answer("peer", peer);
}

/* --- passing ------------------------------------------------------------ */

void pass_fd(int over, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec v = { (char[]){ "f" }, 1 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	is("pass", sendmsg(over, &m, 0));
}

int take_fd(int over)
{
	char control[CMSG_SPACE(sizeof(int))] = "", byte;
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	int fd = -1;

	if (recvmsg(over, &m, 0) == 1 && (c = CMSG_FIRSTHDR(&m)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static void pass_to_child(bool keep, const char *waiting)
{
	int sv[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("make a pair");
	pid = fork(); /* before the connection: it has only what is passed */
	if (pid == 0) {
		int fd = take_fd(sv[1]);
		char buf[16];

		put_text(fd, "child");
		get_all(fd, buf, 5 + strlen(waiting));
		_exit(buf[0] == (*waiting ? *waiting : 'h') ? 0 : 1);
	}
	pair();
	put_text(peer, waiting);
	if (*waiting)
		settle(here, POLLIN);
	pass_fd(sv[0], here);
	if (!keep)
		close(here);
	answer("peer", peer);
	put_text(peer, "hello");
	child("child", pid);
	if (keep) {
		put_text(here, "parent");
		answer("peer", peer);
	}
	settle(peer, keep ? 0 : POLLRDHUP);
	get_now("end", peer, 4);
}

ROW(pass_and_close)
{
	pass_to_child(false, "");
}

ROW(pass_with_bytes)
{
	pass_to_child(false, "unread");
}

ROW(pass_and_keep)
{
	pass_to_child(true, "");
}

ROW(pass_to_itself)
{
	int sv[2], fd;

	pair();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("make a pair");
	pass_fd(sv[0], here);
	fd = take_fd(sv[1]);
	close(here);
	put_text(fd, "hello");
	answer("peer", peer);
	put_text(peer, "answer");
	answer("here", fd);
}

/* --- and while a thread waits in a call ---------------------------------- */

static void read_some(void)
{
	char buf[16];

	got("read", recv(here, buf, sizeof(buf), 0), buf);
}

static void read_parts(void)
{
	char buf[16];
	struct iovec v[] = { { buf, 2 }, { buf + 2, sizeof(buf) - 2 } };

	got("read", readv(here, v, 2), buf);
}

static void read_all(void)
{
	char buf[8];

	got("read", recv(here, buf, sizeof(buf), MSG_WAITALL), buf);
}

static void pass_while(void (*waits)(void), const char *first)
{
	int sv[2];

	pair();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("make a pair");
	later(0, waits);
	put_text(peer, first);
	pass_ms(20);
	pass_fd(sv[0], here);
	put_text(peer, "hello");
	later_end();
	put_text(here, "there");
	answer("peer", peer);
}

ROW(pass_while_read)
{
	pass_while(read_some, "");
}

ROW(pass_while_read_in_parts)
{
	pass_while(read_parts, "");
}

ROW(pass_while_all_is_read)
{
	pass_while(read_all, "and");
}

#define ALL ((size_t)8 << 20)

static ssize_t all_sent;

static void send_all_of_it(void)
{
	char *buf = calloc(1, ALL);

	all_sent = buf ? send(here, buf, ALL, 0) : -1;
	free(buf);
}

ROW(pass_while_much_is_sent)
{
	static char buf[65536];
	size_t n = 0;
	ssize_t ret;
	int sv[2];

	pair();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("make a pair");
	later(0, send_all_of_it);
	pass_ms(20);
	pass_fd(sv[0], here);
	while (n < ALL && (ret = recv(peer, buf, sizeof(buf), 0)) > 0)
		n += (size_t)ret;
	later_end();
	is("sent", all_sent);
	is("came", (long)n);
}

#define ROUNDS	30
#define WAITING 30000

/* Warms up a connection between two processes; the other end does the same. */
static void warm_with(int fd, bool first)
{
	char buf[1000] = "";

	for (int i = 0; i < 16; i++) {
		if (first != i % 2) {
			pass_ms(1);
			put_all(fd, buf, sizeof(buf));
		} else {
			get_all(fd, buf, sizeof(buf));
		}
	}
}

static int unread(int fd)
{
	int n = 0;

	ioctl(fd, FIONREAD, &n);
	return n;
}

static void send_rounds(const struct sockaddr_storage *at, socklen_t len,
			int go)
{
	static char buf[WAITING];

	for (int i = 0; i < ROUNDS; i++) {
		int fd = socket(stream_family, stream_type, 0);

		if (connect(fd, (const struct sockaddr *)at, len))
			_exit(1);
		warm_with(fd, true);
		put_all(fd, buf, sizeof(buf));
		(void)!read(go, &(char){ 0 }, 1);
		close(fd);
	}
	_exit(0);
}

/* What had come from another process is there at once: who ended receiving
 * would take it for the end. */
ROW(splice_what_waits)
{
	struct sockaddr_storage at;
	int l, p[2], go[2], n = 0;
	socklen_t len;
	pid_t pid;

	if (pipe(go))
		die("make a pipe");
	l = listener(AF_INET, &at, &len);
	pid = fork();
	if (pid == 0)
		send_rounds(&at, len, go[0]);
	for (int i = 0; i < ROUNDS && pipe(p) == 0; i++) {
		here = accept(l, NULL, NULL);
		warm_with(here, false);
		for (int64_t end = now_ns() + 1000000000;
		     unread(here) < WAITING && now_ns() < end;)
			pass_ms(1);
		shutdown(here, SHUT_RD);
		if (splice(here, NULL, p[1], NULL, 1, SPLICE_F_NONBLOCK) == 1)
			n += unread(here) == WAITING - 1;
		close(here);
		(void)!write(go[1], "", 1);
		close(p[0]);
		close(p[1]);
	}
	is("whole", n);
	child("child", pid);
}

/* --- threads ------------------------------------------------------------ */

static _Atomic int total, bad;

static void *reader(void *arg)
{
	unsigned char buf[64];
	ssize_t n;

	while ((n = recv(peer, buf, sizeof(buf), 0)) > 0)
		total += (int)n;
	return NULL;
}

ROW(threads_two_readers)
{
	pthread_t t[2];
	static char buf[3000];

	pair();
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, reader, NULL);
	for (int i = 0; i < 30; i++)
		put_all(here, buf, sizeof(buf));
	shutdown(here, SHUT_WR);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	say("%d bytes", total);
}

static void *canceled(void *arg)
{
	char c;

	recv(here, &c, 1, 0);
	return NULL;
}

ROW(threads_cancel_recv)
{
	pthread_t t;
	void *ret = NULL;

	pair();
	pthread_create(&t, NULL, canceled, NULL);
	pass_ms(60);
	pthread_cancel(t);
	pthread_join(t, &ret);
	say("%s", ret == PTHREAD_CANCELED ? "canceled" : "returned");
	put_text(peer, "hello");
	answer("recv", here);
}

static void *canceled_poll(void *arg)
{
	struct pollfd p = { .fd = here, .events = POLLIN };

	poll(&p, 1, -1);
	return NULL;
}

ROW(threads_cancel_poll)
{
	pthread_t t;
	void *ret = NULL;

	pair();
	pthread_create(&t, NULL, canceled_poll, NULL);
	pass_ms(60);
	pthread_cancel(t);
	pthread_join(t, &ret);
	say("%s", ret == PTHREAD_CANCELED ? "canceled" : "returned");
	put_text(peer, "hello");
	poll_one("poll", here, POLLIN, 1000);
	answer("recv", here);
}

static void *canceled_epoll(void *arg)
{
	struct epoll_event e;

	epoll_wait(*(int *)arg, &e, 1, -1);
	return NULL;
}

ROW(threads_cancel_epoll)
{
	struct epoll_event e = { .events = EPOLLIN };
	int set = epoll_create1(0);
	void *ret = NULL;
	pthread_t t;

	pair();
	epoll_ctl(set, EPOLL_CTL_ADD, here, &e);
	pthread_create(&t, NULL, canceled_epoll, &set);
	pass_ms(60);
	pthread_cancel(t);
	pthread_join(t, &ret);
	say("%s", ret == PTHREAD_CANCELED ? "canceled" : "returned");
	put_text(peer, "hello");
	is("wait", epoll_wait(set, &e, 1, 1000));
}

static void *writer(void *arg)
{
	char head = *(char *)arg, body[99];
	struct iovec v[] = { { &head, 1 }, { body, sizeof(body) } };

	memset(body, head, sizeof(body));
	for (int i = 0; i < 200; i++)
		if (writev(here, v, 2) != 100)
			bad++;
	return NULL;
}

ROW(threads_writers_keep_records)
{
	static char names[] = "abcd";
	pthread_t t[4];
	char buf[100];
	int torn = 0;

	pair();
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, writer, &names[i]);
	for (int i = 0; i < 800; i++) {
		get_all(peer, buf, sizeof(buf));
		for (int k = 1; k < 100; k++)
			if (buf[k] != buf[0]) {
				torn++;
				break;
			}
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	say("torn %d bad %d", torn, bad);
}

static void close_it(void)
{
	shutdown(here, SHUT_RDWR);
}

ROW(threads_shutdown_wakes_poll)
{
	pair();
	later(100, close_it);
	poll_one("poll", here, POLLIN, 2000);
	later_end();
}

ROW(threads_shutdown_wakes_send)
{
	pair();
	fill(here);
	later(100, close_it);
	TIMED("send", send(here, "x", 1, MSG_NOSIGNAL));
	later_end();
}

static void *pinger(void *arg)
{
	int *fd = arg;
	char c = 0;

	for (int i = 0; i < 300; i++) {
		if (send(*fd, &c, 1, 0) != 1 || recv(*fd, &c, 1, 0) != 1)
			bad++;
	}
	return NULL;
}

static void *ponger(void *arg)
{
	int *fd = arg;
	char c;

	while (recv(*fd, &c, 1, 0) == 1)
		if (send(*fd, &c, 1, 0) != 1)
			bad++;
	return NULL;
}

ROW(threads_many_connections)
{
	pthread_t t[8];
	int end[8];

	for (int i = 0; i < 4; i++) {
		cold_pair(AF_INET, false);
		end[i] = here;
		end[i + 4] = peer;
		pthread_create(&t[i], NULL, pinger, &end[i]);
		pthread_create(&t[i + 4], NULL, ponger, &end[i + 4]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		shutdown(end[i], SHUT_WR);
		pthread_join(t[i + 4], NULL);
	}
	say("bad %d", bad);
}

/* --- much --------------------------------------------------------------- */

#define MUCH (16u << 20)

static uint64_t sum_of(uint64_t sum, const unsigned char *buf, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + buf[i];
	return sum;
}

static uint64_t sent[2], received[2];

static void *send_much(void *arg)
{
	int which = *(int *)arg, fd = which ? peer : here;
	unsigned char buf[30011];
	uint32_t state = 1 + (uint32_t)which;

	for (size_t n = 0; n < MUCH;) {
		size_t part = sizeof(buf);

		if (part > MUCH - n)
			part = MUCH - n;
		for (size_t i = 0; i < part; i++) {
			state = state * 1664525 + 1013904223;
			buf[i] = (unsigned char)(state >> 24);
		}
		sent[which] = sum_of(sent[which], buf, part);
		put_all(fd, buf, part);
		n += part;
	}
	shutdown(fd, SHUT_WR);
	return NULL;
}

static void *receive_much(void *arg)
{
	int which = *(int *)arg, fd = which ? here : peer;
	unsigned char buf[20021];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		received[which] = sum_of(received[which], buf, (size_t)n);
	return NULL;
}

static void much(int first, int last)
{
	static int which[] = { 0, 1 };
	pthread_t t[4];

	for (int i = first; i <= last; i++) {
		pthread_create(&t[2 * i], NULL, send_much, &which[i]);
		pthread_create(&t[2 * i + 1], NULL, receive_much, &which[i]);
	}
	for (int i = 2 * first; i <= 2 * last + 1; i++)
		pthread_join(t[i], NULL);
	for (int i = first; i <= last; i++)
		say("%s", sent[i] == received[i] ? "same" : "DIFFERENT");
}

ROW(bulk_up)
{
	cold_pair(AF_INET, false);
	much(0, 0);
}

ROW(bulk_down)
{
	cold_pair(AF_INET, false);
	much(1, 1);
}

ROW(bulk_both)
{
	cold_pair(AF_INET, false);
	much(0, 1);
}

ROW(bulk_both_moved)
{
	pair();
	much(0, 1);
}

/* Poll before each part, in one thread, both ways. */
ROW(bulk_by_poll)
{
	size_t out = 0, in = 0, all = 4u << 20;
	static char buf[10007];
	int64_t end = now_ns() + INT64_C(8000000000);

	pair();
	nonblock(here, true);
	nonblock(peer, true);
	while (in < all && now_ns() < end) {
		struct pollfd p[] = {
			{ .fd = here, .events = out < all ? POLLOUT : 0 },
			{ .fd = peer, .events = POLLIN },
		};
		ssize_t n;

		if (poll(p, 2, 1000) <= 0)
			break;
		if (p[0].revents & POLLOUT) {
			size_t part = sizeof(buf);

			if (part > all - out)
				part = all - out;
			n = write(here, buf, part);
			out += n > 0 ? (size_t)n : 0;
		}
		if (p[1].revents & POLLIN) {
			n = read(peer, buf, sizeof(buf));
			in += n > 0 ? (size_t)n : 0;
		}
	}
	say("%s", in == all ? "all" : "stuck");
}

ROW(bulk_by_edge)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLET };
	size_t out = 0, in = 0, all = 4u << 20;
	int set = epoll_create1(0), n;
	static char buf[10007];

	pair();
	nonblock(here, true);
	nonblock(peer, true);
	e.data.fd = here;
	epoll_ctl(set, EPOLL_CTL_ADD, here, &e);
	e.data.fd = peer;
	epoll_ctl(set, EPOLL_CTL_ADD, peer, &e);
	while (in < all) {
		ssize_t k;

		n = epoll_wait(set, &e, 1, 2000);
		if (n <= 0)
			break;
		if (e.data.fd == here && (e.events & EPOLLOUT)) {
			while (out < all) {
				size_t part = sizeof(buf);

				if (part > all - out)
					part = all - out;
				k = write(here, buf, part);
				if (k <= 0)
					break;
				out += (size_t)k;
			}
		}
		if (e.data.fd == peer && (e.events & EPOLLIN))
			while ((k = read(peer, buf, sizeof(buf))) > 0)
				in += (size_t)k;
	}
	say("%s", in == all ? "all" : "stuck");
}

/* --- jumps -------------------------------------------------------------- */

static sigjmp_buf before;

static void jump(int sig)
{
	siglongjmp(before, 1);
}

static void wait_in_recv(void)
{
	char b[8];

	recv(here, b, sizeof(b), 0);
}

static void wait_in_recv_all(void)
{
	char b[64];

	recv(here, b, sizeof(b), MSG_WAITALL);
}

static void wait_in_send(void)
{
	static char b[1 << 20];

	while (send(here, b, sizeof(b), 0) > 0)
		;
}

static void wait_in_poll(void)
{
	poll(&(struct pollfd){ .fd = here, .events = POLLIN }, 1, -1);
}

static void wait_in_epoll(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	int set = epoll_create1(0);

	epoll_ctl(set, EPOLL_CTL_ADD, here, &e);
	epoll_wait(set, &e, 1, -1);
}

static void write_over_the_stack(void)
{
	char over[8192];

	memset(over, 0x5a, sizeof(over));
	__asm__("" : : "r"(over) : "memory");
}

/* A handler that leaves the call, as programs time out with alarm(). */
static void jump_out_of(void (*wait)(void))
{
	struct itimerval soon = { .it_value.tv_usec = 40000 };
	static int round; /* not on the stack that is jumped over */

	pair();
	signal(SIGALRM, jump);
	for (round = 0; round < 3; round++) {
		if (sigsetjmp(before, 1) == 0) {
			setitimer(ITIMER_REAL, &soon, NULL);
			wait();
			say("not left");
		}
		write_over_the_stack();
		put_text(peer, "hello");
		settle(here, POLLIN);
		get_now("recv", here, 8);
	}
	drain(peer);
	put_text(here, "back");
	settle(peer, POLLIN);
	get_now("peer", peer, 8);
	is("close", close(here));
	settle(peer, POLLRDHUP);
	get_now("end", peer, 8);
}

ROW(jump_out_of_recv)
{
	jump_out_of(wait_in_recv);
}

ROW(jump_out_of_recv_all)
{
	jump_out_of(wait_in_recv_all);
}

ROW(jump_out_of_send)
{
	jump_out_of(wait_in_send);
}

ROW(jump_out_of_poll)
{
	jump_out_of(wait_in_poll);
}

ROW(jump_out_of_epoll)
{
	jump_out_of(wait_in_epoll);
}

static pthread_t sleeper;

static void byte_and_alarm(void)
{
	put_text(peer, "x");
	pthread_kill(sleeper, SIGALRM);
}

/* Bytes and the signal are there when the sleep ends: on one CPU the sleeper
 * does not run in between. */
ROW(jump_out_of_epoll_with_an_event)
{
	struct epoll_event e = { .events = EPOLLIN };
	static int set, told, round;
	cpu_set_t one;

	pair();
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 });
	sleeper = pthread_self();
	signal(SIGALRM, jump);
	set = epoll_create1(0);
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &e));
	for (round = 0; round < 10; round++) {
		told += epoll_wait(set, &e, 1, 20); /* it is quiet */
		if (sigsetjmp(before, 1) == 0) {
			later(10, byte_and_alarm);
			epoll_wait(set, &e, 1, 2000);
			for (;;) /* it comes */
				pause();
		}
		later_end();
		told += epoll_wait(set, &e, 1, 1000);
		get_all(here, (char[1]){ 0 }, 1);
	}
	is("told", told);
}

/* --- limits ------------------------------------------------------------- */

static void *wait_for_x(void *arg)
{
	struct timeval t = { .tv_sec = 2 };
	char b[4];

	poll_one("poll", here, POLLIN, 40);
	setsockopt(here, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	got("recv", recv(here, b, sizeof(b), 0), b);
	poll_one("poll", here, POLLIN, 2000);
	return NULL;
}

static void say_x(void)
{
	put_text(peer, "x");
	pass_ms(60);
	put_text(peer, "y");
}

/* A thread that waits for the first time has no descriptor to be woken by. */
ROW(threads_wait_without_descriptors)
{
	struct rlimit l = { .rlim_cur = 1, .rlim_max = 1024 };
	pthread_t t;

	pair();
	setrlimit(RLIMIT_NOFILE, &l);
	pthread_create(&t, NULL, wait_for_x, NULL);
	later(100, say_x);
	later_end();
	pthread_join(t, NULL);
}

/* --- the end of one that a child had, too -------------------------------- */

/* A child that has the connection, until it is told. */
static pid_t holder(int *go)
{
	int p[2];
	pid_t pid;

	if (pipe(p))
		die("make a pipe");
	pid = fork();
	if (pid == 0) {
		char c;

		close(p[1]);
		close(peer);
		_exit(read(p[0], &c, 1) != 0);
	}
	close(p[0]);
	*go = p[1];
	return pid;
}

static void tell_peer(void)
{
	int err = -1;
	socklen_t len = sizeof(err);

	poll_one("peer", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	is("error", getsockopt(peer, SOL_SOCKET, SO_ERROR, &err, &len));
	say("%s", strerrorname_np(err));
	get_now("recv", peer, 4);
	get_now("recv", peer, 4);
	is("send", send(peer, "x", 1, MSG_NOSIGNAL));
}

ROW(fork_held_reset_after_end)
{
	int go;
	pid_t pid;

	pair();
	pid = holder(&go);
	shutdown(here, SHUT_WR);
	settle(peer, POLLRDHUP);
	reset(here);
	close(go);
	child("child", pid);
	settle(peer, POLLHUP);
	tell_peer();
}

ROW(fork_held_reset)
{
	int go;
	pid_t pid;

	pair();
	pid = holder(&go);
	reset(here);
	close(go);
	child("child", pid);
	settle(peer, POLLHUP);
	tell_peer();
}

ROW(fork_held_unread)
{
	int go;
	pid_t pid;

	pair();
	pid = holder(&go);
	put_text(peer, "unread");
	settle(here, POLLIN);
	close(here);
	close(go);
	child("child", pid);
	settle(peer, POLLHUP);
	tell_peer();
}

ROW(fork_held_unread_put_over)
{
	int go, null = open("/dev/null", O_RDONLY);
	pid_t pid;

	pair();
	pid = holder(&go);
	put_text(peer, "unread");
	settle(here, POLLIN);
	dup2(null, here);
	close(go);
	child("child", pid);
	settle(peer, POLLHUP);
	tell_peer();
}

ROW(fork_held_unread_after_end)
{
	int go;
	pid_t pid;

	pair();
	pid = holder(&go);
	put_text(peer, "unread");
	settle(here, POLLIN);
	shutdown(here, SHUT_WR);
	settle(peer, POLLRDHUP);
	close(here);
	close(go);
	child("child", pid);
	settle(peer, POLLHUP);
	tell_peer();
}

/* Both ends, of a connection that a child has, too. */
ROW(fork_held_passed_to_itself)
{
	int go, sv[2], a, b;
	char buf[8];
	pid_t pid;

	pair();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("make a pair");
	pid = holder(&go);
	pass_fd(sv[0], here);
	pass_fd(sv[0], peer);
	a = take_fd(sv[1]);
	b = take_fd(sv[1]);
	put_text(a, "hello");
	answer("there", b);
	put_text(b, "back");
	answer("here", a);
	put_text(here, "again");
	got("peer", TIMED("peer", recv(peer, buf, sizeof(buf), 0)), buf);
	close(go);
	child("child", pid);
	put_text(here, "still");
	answer("peer", peer);
}

/* A child takes what a gone peer left unread to where the library does not see
 * it: it does not read it, and its parent does. */
static void left_to_parent(void (*f)(void))
{
	static char buf[300000];
	size_t n = 0;
	ssize_t ret;
	pid_t pid;

	pair();
	for (int i = 0; i < 300; i++)
		put_all(peer, "0123456789", 10);
	put_all(peer, buf, 100000);
	close(peer);
	settle(here, POLLRDHUP);
	pid = fork();
	if (pid == 0) {
		f();
		_exit(0);
	}
	child("child", pid);
	is("unread", ioctl(here, FIONREAD, &(int){ 0 }));
	while ((ret = recv(here, buf + n, sizeof(buf) - n, MSG_DONTWAIT)) > 0)
		n += (size_t)ret;
	say("%zu %.5s", n, buf);
	is("end", ret);
}

static void exec_true(void)
{
	execl("/bin/true", "true", (char *)NULL);
}

/* What a child took from TCP came, and is nobody's a second time. */
ROW(fork_spliced_by_a_child)
{
	int p[2];
	pid_t pid;

	pair();
	put_text(peer, "hello");
	if (pipe(p))
		die("make a pipe");
	pid = fork();
	if (pid == 0) {
		is("splice", splice(here, NULL, p[1], NULL, 3, 0));
		_exit(0);
	}
	child("child", pid);
	close(peer);
	settle(here, POLLRDHUP);
	get_now("here", here, 64);
	get_now("here", here, 64);
}

/* And one byte that came before a reset is read once. */
ROW(life_reset_behind_one_byte)
{
	pair();
	put_text(here, "unread");
	put_text(peer, "x");
	is("set", setsockopt(here, SOL_SOCKET, SO_PEEK_OFF, &(int){ -1 },
			     sizeof(int)));
	close(peer);
	settle(here, POLLERR);
	for (int i = 0; i < 3; i++)
		get_now("here", here, 64);
}

ROW(fork_left_unread_exec)
{
	left_to_parent(exec_true);
}

static void exec_cat(void)
{
	int null = open("/dev/null", O_WRONLY);

	dup2(here, 0);
	dup2(null, 1);
	execl("/bin/sh", "sh", "-c", "test $(wc -c) = 103000", (char *)NULL);
}

/* Which takes a copy, so that only its exit says what it got. */
ROW(fork_left_unread_to_stdin)
{
	left_to_parent(exec_cat);
}

static void pass_it(void)
{
	int sv[2], fd;
	char c = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("make a pair");
	pass_fd(sv[0], here);
	fd = take_fd(sv[1]);
	is("peek", recv(fd, &c, 1, MSG_PEEK));
	say("%c", c);
}

ROW(fork_left_unread_passed)
{
	left_to_parent(pass_it);
}

static void peek_behind(void)
{
	setsockopt(here, SOL_SOCKET, SO_PEEK_OFF, &(int){ 0 }, sizeof(int));
}

ROW(fork_left_unread_option)
{
	left_to_parent(peek_behind);
}

/* Bytes that a gone peer left, through a number that stdio may use. */
ROW(names_left_unread_to_stdin)
{
	char buf[16];

	pair();
	put_text(peer, "hello");
	close(peer);
	settle(here, POLLRDHUP);
	is("dup2", dup2(here, 0) != 0);
	got("read", read(0, buf, 3), buf);
	got("here", recv(here, buf, 8, 0), buf);
	got("end", read(0, buf, 8), buf);
}

/* The end is said by one of them, which closes then. */
ROW(fork_ended_by_a_child)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		shutdown(here, SHUT_WR);
		close(here);
		_exit(0);
	}
	child("child", pid);
	settle(peer, POLLRDHUP);
	poll_one("here", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	is("again", send(here, "x", 1, MSG_NOSIGNAL | MSG_MORE));
	get_now("end", peer, 4);
	is("answers", send(peer, "hello", 5, MSG_NOSIGNAL));
	settle(here, POLLIN);
	get_now("recv", here, 8);
	is("shutdown", shutdown(here, SHUT_WR));
	close(peer);
	settle(here, POLLHUP);
	poll_one("here", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	is("shutdown", shutdown(here, SHUT_RDWR));
}

/* A second number, which another call closes. */
ROW(names_dupfd_close_range)
{
	int also;

	pair();
	also = fcntl(here, F_DUPFD, 50);
	is("range", close_range((unsigned int)also, (unsigned int)also, 0));
	is("close", close(here));
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}
