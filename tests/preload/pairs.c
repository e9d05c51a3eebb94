/* SPDX-License-Identifier: BSD-2-Clause */
/* Pairs of socketpair(): both ends start in one process, and go to others by
 * fork, exec and SCM_RIGHTS. */
#include "behave.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 40
#define SIZE   3000

static void make(int sv[2])
{
	if (socketpair(AF_UNIX, stream_type, 0, sv))
		die("make a pair");
}

/* Made, and moved by this process alone. */
static void make_warm(int sv[2])
{
	make(sv);
	warm(sv[0], sv[1]);
}

static pid_t start_child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	return pid;
}

/* Answers until the end. */
static _Noreturn void echo(int fd)
{
	char buf[SIZE];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		put_all(fd, buf, (size_t)n);
	_exit(n == 0 ? 0 : 1);
}

static void ask(int fd)
{
	char out[SIZE], in[SIZE];
	int good = 0;

	for (int i = 0; i < ROUNDS; i++) {
		memset(out, 'a' + i % 26, sizeof(out));
		put_all(fd, out, sizeof(out));
		get_all(fd, in, sizeof(in));
		good += memcmp(in, out, sizeof(in)) == 0;
	}
	is("rounds", good);
}

/* What comes until the end, or an error. */
static void rest(const char *what, int fd)
{
	char buf[SIZE];
	long all = 0;
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		all += n;
	is(what, all);
	is("then", n);
}

ROW(pair_facts)
{
	struct sockaddr_storage at;
	struct ucred who = { 0 };
	socklen_t len;
	int sv[2], v[2];

	is("pair", socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv));
	say("flags %d", fcntl(sv[1], F_GETFL) & O_NONBLOCK);
	say("%d", fcntl(sv[1], F_GETFD));
	for (int i = 0; i < 2; i++) {
		len = sizeof(at);
		is("name", getsockname(sv[i], (struct sockaddr *)&at, &len));
		say("of %d", (int)len);
		len = sizeof(at);
		is("peer", getpeername(sv[i], (struct sockaddr *)&at, &len));
		say("of %d", (int)len);
		len = sizeof(who);
		is("who",
		   getsockopt(sv[i], SOL_SOCKET, SO_PEERCRED, &who, &len));
		say("%s", who.pid == getpid() ? "this" : "another");
		len = sizeof(v[i]);
		is("size",
		   getsockopt(sv[i], SOL_SOCKET, SO_RCVBUF, &v[i], &len));
	}
	say("%s", v[0] == v[1] ? "the same" : "different");
	is("datagrams", socketpair(AF_UNIX, SOCK_DGRAM, 0, sv));
	is("packets", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv));
	is("inet", socketpair(AF_INET, SOCK_STREAM, 0, sv));
	is("nowhere", socketpair(AF_UNIX, SOCK_STREAM, 0, NULL));
}

ROW(pair_numbers_of_stdio)
{
	int sv[2], out = dup(1);

	close(0);
	close(1);
	make(sv);
	say("%d %d", sv[0], sv[1]);
	put_text(sv[1], "hello");
	get_now("read", 0, 16);
	dup2(out, 1);
}

static void with_child(int sv[2])
{
	pid_t pid = start_child();

	if (pid == 0) {
		close(sv[0]);
		echo(sv[1]);
	}
	close(sv[1]);
	ask(sv[0]);
	shutdown(sv[0], SHUT_WR);
	rest("rest", sv[0]);
	child("child", pid);
	is("after", send(sv[0], "x", 1, 0));
}

ROW(pair_child)
{
	int sv[2];

	make(sv);
	with_child(sv);
}

ROW(pair_child_of_a_moved)
{
	int sv[2];

	make_warm(sv);
	with_child(sv);
}

ROW(pair_child_has_the_first)
{
	int sv[2], turned[2];

	make(sv);
	turned[0] = sv[1];
	turned[1] = sv[0];
	with_child(turned);
}

ROW(pair_child_has_the_first_of_a_moved)
{
	int sv[2], turned[2];

	make_warm(sv);
	turned[0] = sv[1];
	turned[1] = sv[0];
	with_child(turned);
}

/* The parent's end is the child's, too: the parent's close is no end. */
static void kept_by_child(int sv[2])
{
	pid_t pid = start_child();
	char c;

	if (pid == 0) {
		struct pollfd p = { .fd = sv[1], .events = POLLIN };

		for (int i = 0; i < ROUNDS; i++) {
			char buf[SIZE];

			get_all(sv[1], buf, sizeof(buf));
			put_all(sv[1], buf, sizeof(buf));
		}
		get_all(sv[1], &c, 1); /* the parent is about to close */
		c = poll(&p, 1, 50) == 0 ? 0 : 2;
		close(sv[0]);
		_exit(c ? c : recv(sv[1], &c, 1, 0) == 0 ? 0 : 3);
	}
	ask(sv[0]);
	close(sv[1]);
	put_text(sv[0], "x");
	close(sv[0]);
	child("child", pid);
}

ROW(pair_kept_by_a_child)
{
	int sv[2];

	make(sv);
	kept_by_child(sv);
}

ROW(pair_kept_by_a_child_of_a_moved)
{
	int sv[2];

	make_warm(sv);
	kept_by_child(sv);
}

/* The child's part until the parent's last bytes, which it has not read. */
static void answer(int sv[2])
{
	static char buf[SIZE];

	close(sv[0]);
	for (int i = 0; i < ROUNDS; i++) {
		get_all(sv[1], buf, sizeof(buf));
		put_all(sv[1], buf, sizeof(buf));
	}
	settle(sv[1], POLLIN);
}

/* The child is gone with bytes of its own on their way, and perhaps with bytes
 * unread. */
static void child_ends(int sv[2], bool unread, bool killed)
{
	static char buf[SIZE];
	pid_t pid = start_child();

	if (pid == 0) {
		answer(sv);
		put_all(sv[1], buf, sizeof(buf));
		if (!unread)
			get_all(sv[1], buf, 6);
		if (killed)
			raise(SIGKILL);
		_exit(0);
	}
	close(sv[1]);
	ask(sv[0]);
	put_text(sv[0], "unread");
	child("child", pid);
	settle(sv[0], POLLHUP);
	poll_one("poll", sv[0], POLLIN | POLLRDHUP, 1000);
	rest("rest", sv[0]);
	rest("again", sv[0]);
	is("send", send(sv[0], "x", 1, 0));
}

/* The parent receives while the child ends. */
static void child_ends_unread(int sv[2])
{
	pid_t pid = start_child();

	if (pid == 0) {
		answer(sv);
		_exit(0);
	}
	close(sv[1]);
	ask(sv[0]);
	put_text(sv[0], "unread");
	rest("rest", sv[0]);
	rest("again", sv[0]);
	child("child", pid);
}

ROW(pair_child_ends_while_awaited)
{
	int sv[2];

	for (int i = 0; i < 4; i++) {
		if (i & 1)
			make_warm(sv);
		else
			make(sv);
		child_ends_unread(sv);
		close(sv[0]);
	}
}

static void row_child_ends(void)
{
	int sv[2];

	if (which_row & 4)
		make_warm(sv);
	else
		make(sv);
	child_ends(sv, which_row & 1, which_row & 2);
}

__attribute__((constructor)) static void add_child_ends(void)
{
	static const char *const ends[] = { "exits", "exits_unread", "killed",
					    "killed_unread" };

	for (int i = 0; i < 4; i++) {
		add_row("pair_child_", ends[i], row_child_ends, i);
		add_row("pair_of_a_moved_child_", ends[i], row_child_ends,
			i | 4);
	}
}

/* The child leaves its end to a child of its own. */
static void grandchild(int sv[2])
{
	pid_t pid = start_child();

	if (pid == 0) {
		close(sv[0]);
		if (start_child() == 0)
			echo(sv[1]);
		_exit(0);
	}
	close(sv[1]);
	child("child", pid);
	ask(sv[0]);
	shutdown(sv[0], SHUT_WR);
	rest("rest", sv[0]);
}

ROW(pair_grandchild)
{
	int sv[2];

	make(sv);
	grandchild(sv);
}

ROW(pair_grandchild_of_a_moved)
{
	int sv[2];

	make_warm(sv);
	grandchild(sv);
}

/* Parent and child send by one end, and the parent reads the other. */
static void two_senders(int sv[2])
{
	static char buf[SIZE];
	pid_t pid = start_child();

	if (pid == 0) {
		for (int i = 0; i < ROUNDS; i++)
			put_all(sv[0], buf, sizeof(buf));
		_exit(0);
	}
	for (int i = 0; i < ROUNDS; i++) {
		put_all(sv[0], buf, sizeof(buf));
		get_all(sv[1], buf, sizeof(buf));
	}
	for (int i = 0; i < ROUNDS; i++)
		get_all(sv[1], buf, sizeof(buf));
	child("child", pid);
	get_now("rest", sv[1], 1);
	close(sv[0]);
	rest("end", sv[1]);
}

ROW(pair_two_senders)
{
	int sv[2];

	make(sv);
	two_senders(sv);
}

ROW(pair_two_senders_of_a_moved)
{
	int sv[2];

	make_warm(sv);
	two_senders(sv);
}

/* --- other programs ----------------------------------------------------- */

static void with_program(int fd, pid_t pid)
{
	ask(fd);
	shutdown(fd, SHUT_WR);
	rest("rest", fd);
	child("program", pid);
}

/* A co-process, as a shell or an inetd starts it. */
static void coprocess(int sv[2])
{
	pid_t pid = start_child();

	if (pid == 0) {
		close(sv[0]);
		dup2(sv[1], 0);
		dup2(sv[1], 1);
		close(sv[1]);
		execlp("cat", "cat", (char *)NULL);
		_exit(9);
	}
	close(sv[1]);
	with_program(sv[0], pid);
}

ROW(pair_exec_coprocess)
{
	int sv[2];

	make(sv);
	coprocess(sv);
}

ROW(pair_exec_coprocess_of_a_moved)
{
	int sv[2];

	make_warm(sv);
	coprocess(sv);
}

static void say_sizes(const int sv[2])
{
	socklen_t len = sizeof(int);
	int v;

	for (int i = 0; i < 2; i++) {
		getsockopt(sv[i], SOL_SOCKET, SO_RCVBUF, &v, &len);
		say("%d", v);
	}
}

/* The size that the program set is that connection's: the next ones, which take
 * its memory, have the usual one. */
ROW(pair_sizes_in_turn)
{
	int sv[2], size = 20000;

	for (int i = 0; i < 6; i++) {
		make(sv);
		if (i % 3 == 0)
			is("set", setsockopt(sv[0], SOL_SOCKET, SO_RCVBUF,
					     &size, sizeof(size)));
		warm(sv[0], sv[1]);
		say_sizes(sv);
		close(sv[0]);
		close(sv[1]);
	}
}

/* Nothing was sent by it, and no fork has seen it: another program reads of it
 * what the kernel gives. */
ROW(pair_exec_unused)
{
	static const char script[] =
		"import socket, sys\n"
		"s, r = (socket.socket(fileno=int(a)) for a in sys.argv[1:])\n"
		"a, b = socket.socketpair()\n"
		"size = socket.SOL_SOCKET, socket.SO_RCVBUF\n"
		"r.send(b'%d' % (s.getsockopt(*size) == a.getsockopt(*size)))";
	char end[16], answer[16];
	int sv[2], result[2];
	pid_t pid;

	make(result);
	pid = start_child();
	if (pid == 0) {
		make(sv);
		snprintf(end, sizeof(end), "%d", sv[1]);
		snprintf(answer, sizeof(answer), "%d", result[1]);
		execlp("python3", "python3", "-c", script, end, answer,
		       (char *)NULL);
		_exit(9);
	}
	close(result[1]);
	settle(result[0], POLLIN);
	child("program", pid);
	get_now("the same", result[0], 16);
}

/* By its number, and the size that the program reads is the usual one. */
static void by_number(int sv[2])
{
	char number[16], command[64];
	pid_t pid;

	snprintf(number, sizeof(number), "%d", sv[1]);
	fcntl(sv[0], F_SETFD, FD_CLOEXEC);
	pid = start_child();
	if (pid == 0) {
		snprintf(command, sizeof(command), "exec cat <&%s >&%s", number,
			 number);
		execlp("bash", "bash", "-c", command, (char *)NULL);
		_exit(9);
	}
	close(sv[1]);
	with_program(sv[0], pid);
}

ROW(pair_exec_by_number)
{
	int sv[2];

	make(sv);
	by_number(sv);
}

ROW(pair_exec_by_number_of_a_moved)
{
	int sv[2];

	make_warm(sv);
	by_number(sv);
}

ROW(pair_exec_leaked)
{
	char name[] = "true", *const argv[] = { name, NULL };
	int sv[2];
	pid_t pid;

	make_warm(sv);
	pid = start_child();
	if (pid == 0) {
		execvp("true", argv);
		_exit(9);
	}
	child("program", pid);
	with_child(sv);
}

ROW(pair_spawn)
{
	char name[] = "cat", *const argv[] = { name, NULL };
	posix_spawn_file_actions_t a;
	int sv[2];
	pid_t pid;

	make_warm(sv);
	posix_spawn_file_actions_init(&a);
	posix_spawn_file_actions_addclose(&a, sv[0]);
	posix_spawn_file_actions_adddup2(&a, sv[1], 0);
	posix_spawn_file_actions_adddup2(&a, sv[1], 1);
	posix_spawn_file_actions_addclose(&a, sv[1]);
	if (posix_spawnp(&pid, "cat", &a, NULL, argv, environ))
		die("spawn");
	posix_spawn_file_actions_destroy(&a);
	close(sv[1]);
	with_program(sv[0], pid);
}

/* --- passed -------------------------------------------------------------- */

static void passed(int sv[2], int over[2])
{
	pid_t pid = start_child();

	if (pid == 0) {
		int fd;

		close(over[0]);
		fd = take_fd(over[1]);
		if (fd < 0)
			_exit(8);
		/* The copies of before the pass would keep it open. */
		for (int i = 0; sv[0] != sv[1] && i < 2; i++)
			if (sv[i] != fd)
				close(sv[i]);
		echo(fd);
	}
	close(over[1]);
	pass_fd(over[0], sv[1]);
	close(sv[1]);
	ask(sv[0]);
	shutdown(sv[0], SHUT_WR);
	rest("rest", sv[0]);
	child("child", pid);
}

ROW(pair_passed)
{
	int sv[2], over[2];

	make(over);
	make(sv);
	passed(sv, over);
}

ROW(pair_passed_over_a_moved)
{
	int sv[2], over[2];

	make_warm(over);
	make(sv);
	passed(sv, over);
}

ROW(pair_passed_moved_over_a_moved)
{
	int sv[2], over[2];

	make_warm(over);
	make_warm(sv);
	passed(sv, over);
}

/* Over itself: the end that is passed is in its own queue. */
ROW(pair_passed_over_itself)
{
	int sv[2], fd;

	make_warm(sv);
	pass_fd(sv[0], sv[0]);
	fd = take_fd(sv[1]);
	close(sv[0]);
	put_text(fd, "hello");
	get_now("peer", sv[1], 16);
	put_text(sv[1], "answer");
	get_now("here", fd, 16);
	close(fd);
	rest("rest", sv[1]);
}

/* The sender has gone when its message is received. */
static void passed_by_the_gone(int sv[2])
{
	int over[2], fd;

	make(over);
	pass_fd(sv[0], over[0]);
	close(sv[0]);
	close(over[0]);
	settle(sv[1], POLLIN);
	fd = take_fd(sv[1]);
	is("came", fd < 0 ? -1 : 0);
	put_text(over[1], "hello");
	get_now("over", fd, 16);
	get_now("end", sv[1], 1);
}

ROW(pair_passed_by_the_gone)
{
	int sv[2];

	make(sv);
	passed_by_the_gone(sv);
}

ROW(pair_passed_by_the_gone_of_a_moved)
{
	int sv[2];

	make_warm(sv);
	passed_by_the_gone(sv);
}

ROW(pair_passed_by_the_gone_over_a_connection)
{
	int sv[2];

	pair();
	sv[0] = here;
	sv[1] = peer;
	passed_by_the_gone(sv);
}

/* Seen by the library, and not moved yet. */
ROW(pair_passed_by_the_gone_of_an_asked_for)
{
	int sv[2];

	make(sv);
	nonblock(sv[1], true);
	nonblock(sv[1], false);
	setsockopt(sv[1], SOL_SOCKET, SO_RCVTIMEO,
		   &(struct timeval){ .tv_sec = 5 }, sizeof(struct timeval));
	put_text(sv[0], "x");
	get_now("byte", sv[1], 1);
	passed_by_the_gone(sv);
}

/* --- in one process ------------------------------------------------------ */

#define MUCH 200000

/* What the kernel has room for, nobody waits with. */
static void much(int sv[2])
{
	static char out[MUCH], in[MUCH];

	for (int i = 0; i < 4; i++) {
		memset(out, 'a' + i, sizeof(out));
		is("sent", send(sv[i % 2], out, MUCH, 0));
		get_all(sv[1 - i % 2], in, MUCH);
		say("%s", memcmp(in, out, MUCH) ? "different" : "the same");
	}
	for (int i = 0; i < 2; i++)
		is("crossing", send(sv[i], out, MUCH, 0));
	for (int i = 0; i < 2; i++)
		get_all(sv[i], in, MUCH);
}

ROW(pair_much)
{
	int sv[2];

	make(sv);
	much(sv);
}

ROW(pair_much_of_a_moved)
{
	int sv[2];

	make_warm(sv);
	much(sv);
}

static int thread_end;

static void *echo_there(void *arg)
{
	char buf[SIZE];
	ssize_t n;

	while ((n = recv(thread_end, buf, sizeof(buf), 0)) > 0)
		put_all(thread_end, buf, (size_t)n);
	close(thread_end);
	return NULL;
}

ROW(pair_threads)
{
	pthread_t t;
	int sv[2];

	make(sv);
	thread_end = sv[1];
	if (pthread_create(&t, NULL, echo_there, NULL))
		die("start a thread");
	ask(sv[0]);
	shutdown(sv[0], SHUT_WR);
	rest("rest", sv[0]);
	pthread_join(t, NULL);
}

#define SIGNS 3000

static void *wake_often(void *arg)
{
	for (int i = 0; i < SIGNS; i++)
		put_all(thread_end, "x", 1);
	return NULL;
}

/* A loop of events that other threads wake. */
ROW(pair_wakes_a_loop)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int sv[2], set = epoll_create1(0), all = 0;
	char buf[64];
	pthread_t t;
	ssize_t n;

	make(sv);
	nonblock(sv[0], true);
	thread_end = sv[1];
	epoll_ctl(set, EPOLL_CTL_ADD, sv[0], &ev);
	if (pthread_create(&t, NULL, wake_often, NULL))
		die("start a thread");
	while (all < SIGNS && epoll_wait(set, &ev, 1, 5000) == 1)
		while ((n = recv(sv[0], buf, sizeof(buf), 0)) > 0)
			all += (int)n;
	is("all", all);
	pthread_join(t, NULL);
}
