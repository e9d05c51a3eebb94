/* SPDX-License-Identifier: BSD-2-Clause */
/* poll, select and epoll over connections and other descriptors. */
#include "behave.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int other_end; /* of whatever is not a connection */

static void hello(void)
{
	put_text(peer, "hello");
}

static void bye(void)
{
	close(peer);
}

static void to_other(void)
{
	if (write(other_end, "12345678", 8) != 8)
		die("write");
}

static void make_room(void)
{
	drain(peer);
}

static int timer_in(int ms)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	struct itimerspec t = { .it_value.tv_nsec = ms * 1000000 };

	timerfd_settime(fd, 0, &t, NULL);
	return fd;
}

static void a_pipe(int p[2])
{
	if (pipe(p))
		die("make a pipe");
	other_end = p[1];
}

/* --- poll --------------------------------------------------------------- */

ROW(poll_waits_for_data)
{
	pair();
	later(100, hello);
	poll_one("poll", here, POLLIN, 2000);
	later_end();
}

ROW(poll_waits_for_ever)
{
	pair();
	later(100, hello);
	poll_one("poll", here, POLLIN, -1);
	later_end();
}

ROW(poll_waits_for_end)
{
	pair();
	later(100, bye);
	poll_one("poll", here, POLLIN | POLLRDHUP, 2000);
	later_end();
}

ROW(poll_waits_for_rdhup_only)
{
	pair();
	later(100, bye);
	poll_one("poll", here, POLLRDHUP, 2000);
	later_end();
}

ROW(poll_rdhup_only_behind_bytes)
{
	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	poll_one("poll", here, POLLRDHUP, 80);
	later(100, bye);
	poll_one("poll", here, POLLRDHUP, 2000);
	later_end();
	get_now("recv", here, 64);
}

ROW(poll_nothing_but_bytes_wait)
{
	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	poll_one("none", here, 0, 80);
	poll_one("pri", here, POLLPRI, 80);
}

ROW(poll_nothing_waits_for_reset)
{
	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	later(100, bye);
	poll_one("none", here, 0, 300);
	later_end();
}

ROW(poll_waits_for_room)
{
	pair();
	fill(here);
	later(100, make_room);
	poll_one("poll", here, POLLOUT, 2000);
	later_end();
}

/* A sender that asks poll before each send fills the ring as far as one that
 * does not ask. */
ROW(poll_before_each_send)
{
	static char buf[1000];

	pair();
	for (int i = 0; i < 200; i++) {
		struct pollfd p = { .fd = here, .events = POLLOUT };

		if (poll(&p, 1, 1000) != 1 ||
		    send(here, buf, sizeof(buf), MSG_DONTWAIT) != sizeof(buf)) {
			say("after %d", i);
			break;
		}
	}
	say("%zu", drain(peer));
}

ROW(poll_out_while_in_waits)
{
	pair();
	fill(here);
	put_text(peer, "hello");
	settle(here, POLLIN);
	poll_one("out", here, POLLOUT, 80);
	poll_one("both", here, POLLIN | POLLOUT, 80);
}

ROW(poll_mixed)
{
	int p[2], e, t;

	pair();
	a_pipe(p);
	e = eventfd(0, EFD_NONBLOCK);
	t = timer_in(500);
	for (int turn = 0; turn < 4; turn++) {
		struct pollfd f[] = { { .fd = here,
					.events = POLLIN | POLLOUT },
				      { .fd = p[0], .events = POLLIN },
				      { .fd = e, .events = POLLIN | POLLOUT },
				      { .fd = t, .events = POLLIN },
				      { .fd = -5, .events = POLLIN },
				      { .fd = 999, .events = POLLIN },
				      { .fd = p[1], .events = POLLOUT } };

		if (turn == 1)
			put_text(peer, "hello");
		if (turn == 2)
			to_other();
		if (turn == 3)
			eventfd_write(e, 1);
		if (turn == 1)
			settle(here, POLLIN);
		is("poll", poll(f, COUNT(f), 0));
		for (size_t i = 0; i < COUNT(f); i++)
			events("", (unsigned short)f[i].revents);
	}
}

static void wake_mixed(void (*f)(void))
{
	int p[2], e, n;
	struct pollfd v[3];
	struct moment start;

	pair();
	a_pipe(p);
	e = eventfd(0, EFD_NONBLOCK);
	v[0] = (struct pollfd){ .fd = here, .events = POLLIN };
	v[1] = (struct pollfd){ .fd = p[0], .events = POLLIN };
	v[2] = (struct pollfd){ .fd = e, .events = POLLIN };
	later(100, f);
	start = now();
	n = poll(v, 3, 2000);
	is("poll", n);
	pace(start);
	for (int i = 0; i < 3; i++)
		events("", (unsigned short)v[i].revents);
	later_end();
}

ROW(poll_mixed_woken_by_connection)
{
	wake_mixed(hello);
}

ROW(poll_mixed_woken_by_pipe)
{
	wake_mixed(to_other);
}

ROW(poll_mixed_timer)
{
	struct pollfd v[2];
	struct moment start;

	pair();
	v[0] = (struct pollfd){ .fd = here, .events = POLLIN };
	v[1] = (struct pollfd){ .fd = timer_in(100), .events = POLLIN };
	start = now();
	is("poll", poll(v, 2, 2000));
	pace(start);
	events("", (unsigned short)v[0].revents);
	events("", (unsigned short)v[1].revents);
}

ROW(poll_mixed_unix)
{
	int sv[2];
	struct pollfd v[2];

	pair();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("make a pair");
	other_end = sv[1];
	later(100, to_other);
	v[0] = (struct pollfd){ .fd = here, .events = POLLIN };
	v[1] = (struct pollfd){ .fd = sv[0], .events = POLLIN };
	is("poll", poll(v, 2, 2000));
	events("", (unsigned short)v[0].revents);
	events("", (unsigned short)v[1].revents);
	later_end();
	close(sv[1]);
	is("poll", poll(v, 2, 0));
	events("", (unsigned short)v[1].revents);
}

ROW(poll_regular_file)
{
	struct pollfd v[2];

	pair();
	v[0] = (struct pollfd){ .fd = here, .events = POLLIN };
	v[1] = (struct pollfd){ .fd = open("/dev/null", O_RDWR),
				.events = POLLIN | POLLOUT };
	is("poll", poll(v, 2, 1000));
	events("", (unsigned short)v[1].revents);
}

ROW(poll_many)
{
	struct pollfd v[24];
	int a[4], b[4], p[2];

	for (int i = 0; i < 4; i++) {
		pair();
		a[i] = here;
		b[i] = peer;
	}
	a_pipe(p);
	for (int i = 0; i < 24; i++)
		v[i] = (struct pollfd){ .fd = i % 6 < 4	  ? a[i % 6]
					      : i % 6 < 5 ? p[0]
							  : -1,
					.events = POLLIN };
	is("none", poll(v, 24, 0));
	put_text(b[2], "x");
	settle(a[2], POLLIN);
	is("one", poll(v, 24, 0));
	for (int i = 0; i < 24; i++)
		if (v[i].revents)
			say("%d", i);
	to_other();
	is("two", poll(v, 24, 0));
	get_now("recv", a[2], 4);
	peer = b[0];
	if (read(p[0], (char[8]){ 0 }, 8) != 8)
		die("read");
	later(100, hello);
	is("late", poll(v, 24, 2000));
	for (int i = 0; i < 24; i++)
		if (v[i].revents)
			say("%d", i);
	later_end();
}

ROW(poll_closed_number)
{
	pair();
	close(here);
	poll_one("poll", here, POLLIN, 1000);
	poll_one("poll", here, 0, 1000);
}

ROW(poll_arguments)
{
	struct pollfd p = { .events = POLLIN };

	pair();
	p.fd = here;
	is("none", poll(&p, 0, 0));
	is("null", poll((void *)(intptr_t)which_row, 1, 0));
	is("many", poll(&p, (nfds_t)which_row + (1u << 30), 0));
	is("time",
	   ppoll(&p, 1, &(struct timespec){ .tv_nsec = 2000000000 }, NULL));
	is("time", ppoll(&p, 1, &(struct timespec){ .tv_sec = -1 }, NULL));
}

/* As many descriptors as the limit allows, and one more. */
ROW(poll_as_many_as_may_be)
{
	struct rlimit r = { .rlim_cur = 64, .rlim_max = 64 };
	struct pollfd p[65];

	pair();
	poll_one("poll", here, POLLIN, 40);
	for (size_t i = 0; i < COUNT(p); i++)
		p[i] = (struct pollfd){ .fd = here, .events = POLLIN };
	setrlimit(RLIMIT_NOFILE, &r);
	TIMED("all", poll(p, 64, 80));
	is("more", poll(p, 65, 0));
	later(100, hello);
	TIMED("woken", poll(p, 64, 2000));
	later_end();
	for (size_t i = 0; i < COUNT(p); i++)
		p[i].fd = i ? -1 : here;
	is("one", poll(p, 64, 80));
	is("more", poll(p, 65, 80));
}

static _Atomic int signals;

static void count(int sig)
{
	signals++;
}

static void alarm_in(int ms, int flags)
{
	struct itimerval t = { .it_value.tv_usec = ms * 1000 };
	struct sigaction sa = { .sa_handler = count, .sa_flags = flags };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}

ROW(poll_interrupted)
{
	pair();
	alarm_in(100, SA_RESTART);
	poll_one("poll", here, POLLIN, 2000);
	say("signals %d", signals);
}

static void closes(int sig)
{
	signals += close(here) == 0;
}

/* What a handler closes while the call that it interrupts waits on it. */
static void closed_in(int ms)
{
	struct sigaction sa = { .sa_handler = closes };

	alarm_in(ms, 0);
	sigaction(SIGALRM, &sa, NULL);
}

static void was_closed(void)
{
	say("signals %d", signals);
	settle(peer, POLLRDHUP);
	get_now("peer", peer, 4);
	close(peer);
	pair(); /* in its place */
	poll_one("new", here, POLLIN | POLLOUT, 0);
}

ROW(poll_closed_by_a_handler)
{
	pair();
	closed_in(100);
	poll_one("poll", here, POLLIN, 2000);
	was_closed();
}

ROW(select_closed_by_a_handler)
{
	fd_set in;

	pair();
	closed_in(100);
	FD_ZERO(&in);
	FD_SET(here, &in);
	is("select", select(here + 1, &in, NULL, NULL, NULL));
	was_closed();
}

ROW(recv_closed_by_a_handler)
{
	char buf[8];

	pair();
	closed_in(100);
	is("recv", recv(here, buf, sizeof(buf), 0));
	was_closed();
}

/* Seconds of which the nanoseconds fit no number: for ever. */
#define LONG_TIME                                                              \
	(&(struct timespec){ .tv_sec = sizeof(time_t) == 8 ? INT64_MAX         \
							   : INT32_MAX })

ROW(ppoll_long_time)
{
	struct pollfd p = { .events = POLLIN };

	pair();
	p.fd = here;
	later(100, hello);
	TIMED("ppoll", ppoll(&p, 1, LONG_TIME, NULL));
	later_end();
}

ROW(ppoll_mask)
{
	struct pollfd p = { .events = POLLIN };
	struct timespec t = { .tv_nsec = 200000000 };
	sigset_t none, alrm;

	pair();
	p.fd = here;
	sigemptyset(&none);
	sigemptyset(&alrm);
	sigaddset(&alrm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alrm, NULL);
	alarm_in(50, 0);
	is("blocked", ppoll(&p, 1, &t, NULL));
	say("signals %d", signals);
	TIMED("pending", ppoll(&p, 1, &t, &none));
	say("signals %d", signals);
}

/* What is ready wins over a signal that a mask would let in. */
ROW(ppoll_ready_and_signal)
{
	struct pollfd p = { .events = POLLIN };
	sigset_t none, alrm;

	pair();
	p.fd = here;
	put_text(peer, "x");
	settle(here, POLLIN);
	sigemptyset(&none);
	sigemptyset(&alrm);
	sigaddset(&alrm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alrm, NULL);
	alarm_in(1, 0);
	pass_ms(20);
	is("ppoll", ppoll(&p, 1, &(struct timespec){ .tv_sec = 1 }, &none));
	say("signals %d", signals);
}

/* --- select ------------------------------------------------------------- */

ROW(select_waits)
{
	struct timeval t = { .tv_sec = 2 };
	fd_set r;

	pair();
	FD_ZERO(&r);
	FD_SET(here, &r);
	later(100, hello);
	TIMED("select", select(here + 1, &r, NULL, NULL, &t));
	say("%s left", t.tv_sec == 1 ? "time" : "none");
	later_end();
}

ROW(select_times_out)
{
	struct timeval t = { .tv_usec = 100000 };
	fd_set r, w;

	pair();
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(here, &r);
	TIMED("select", select(here + 1, &r, &w, NULL, &t));
	say("%d %d", FD_ISSET(here, &r), (int)(t.tv_sec + t.tv_usec));
}

ROW(select_closed_number)
{
	struct timeval t = { .tv_usec = 1000 };
	fd_set r;
	int spare;

	pair();
	FD_ZERO(&r);
	FD_SET(here, &r);
	spare = dup(0);
	FD_SET(spare, &r);
	close(spare);
	is("select", select(spare + 1, &r, NULL, NULL, &t));
	say("%d", FD_ISSET(here, &r) != 0);
}

ROW(select_mixed)
{
	struct timeval t = { .tv_sec = 1 };
	fd_set r, w;
	int p[2], top;

	pair();
	a_pipe(p);
	to_other();
	FD_ZERO(&r);
	FD_SET(here, &r);
	FD_SET(p[0], &r);
	w = r;
	top = here > p[0] ? here : p[0];
	is("select", select(top + 1, &r, &w, NULL, &t));
	say("r %d %d w %d %d", FD_ISSET(here, &r) != 0, FD_ISSET(p[0], &r) != 0,
	    FD_ISSET(here, &w) != 0, FD_ISSET(p[0], &w) != 0);
}

ROW(select_urgent)
{
	struct timeval t = { .tv_sec = 1 };
	fd_set r, x;

	pair();
	send(peer, "u", 1, MSG_OOB);
	settle(here, POLLPRI);
	FD_ZERO(&r);
	FD_SET(here, &r);
	x = r;
	is("select", select(here + 1, &r, NULL, &x, &t));
	say("r %d x %d", FD_ISSET(here, &r) != 0, FD_ISSET(here, &x) != 0);
}

ROW(pselect_long_time)
{
	fd_set r;

	pair();
	FD_ZERO(&r);
	FD_SET(here, &r);
	later(100, hello);
	TIMED("pselect", pselect(here + 1, &r, NULL, NULL, LONG_TIME, NULL));
	later_end();
}

ROW(pselect_interrupted)
{
	fd_set r;
	struct timespec t = { .tv_sec = 2 };

	pair();
	FD_ZERO(&r);
	FD_SET(here, &r);
	alarm_in(100, 0);
	TIMED("pselect", pselect(here + 1, &r, NULL, NULL, &t, NULL));
	say("%d", FD_ISSET(here, &r) != 0);
}

ROW(select_arguments)
{
	fd_set r;
	struct timeval t = { .tv_usec = -1 };

	pair();
	FD_ZERO(&r);
	FD_SET(here, &r);
	is("negative", select(-1, &r, NULL, NULL, NULL));
	is("time", select(here + 1, &r, NULL, NULL, &t));
	t.tv_usec = 3000000;
	put_text(peer, "x");
	is("long", select(here + 1, &r, NULL, NULL, &t));
}

/* Programs ask for as many as there may be, with sets for as many as they
 * have; what is behind the set cannot be read. */
ROW(select_as_many_as_there_may_be)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *m = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fd_set *r = (fd_set *)(void *)(m + page - sizeof(fd_set));
	struct timeval none = { 0 };

	mprotect(m + page, page, PROT_NONE);
	pair();
	put_text(peer, "x");
	settle(here, POLLIN);
	FD_SET(here, r);
	is("all", select(INT_MAX, r, NULL, NULL, &none));
	is("here", FD_ISSET(here, r));
	is("many", select(1 << 16, r, NULL, NULL, &none));
	is("pselect",
	   pselect(1 << 20, r, NULL, NULL, &(struct timespec){ 0 }, NULL));
	FD_ZERO(r);
	FD_SET(STDERR_FILENO, r);
	is("others", select(INT_MAX, NULL, r, NULL, &none));
}

ROW(select_without_proc)
{
	unsigned long r[2048 / (8 * sizeof(long))] = { 0 };
	struct rlimit limit;
	int high;

	pair();
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
	setrlimit(RLIMIT_NOFILE, &limit);
	high = fcntl(here, F_DUPFD, 1500);
	/* A process that may not change its root keeps /proc. */
	if (chroot("/dev"))
		errno = 0;
	put_text(peer, "x");
	settle(here, POLLIN);
	r[(size_t)high / (8 * sizeof(long))] |=
		1ul << ((size_t)high % (8 * sizeof(long)));
	is("all", select(2048, (fd_set *)(void *)r, NULL, NULL, NULL));
}

/* --- epoll -------------------------------------------------------------- */

static int set, set2;

static int add_data(int s, int fd, uint32_t ev, uint64_t data)
{
	struct epoll_event e = { .events = ev, .data.u64 = data };

	return epoll_ctl(s, EPOLL_CTL_ADD, fd, &e);
}

static int add(int s, int fd, uint32_t ev)
{
	return add_data(s, fd, ev, 7);
}

static int mod(int s, int fd, uint32_t ev)
{
	struct epoll_event e = { .events = ev, .data.u64 = 8 };

	return epoll_ctl(s, EPOLL_CTL_MOD, fd, &e);
}

static void wait_said(const char *what, int s, int max, int ms)
{
	struct epoll_event e[32];
	struct moment start = now();
	int n = epoll_wait(s, e, max, ms);

	is(what, n);
	if (ms)
		pace(start);
	for (int i = 0; i < n; i++) {
		events("events", e[i].events);
		say("data %#llx", (unsigned long long)e[i].data.u64);
	}
}

static void a_set(uint32_t ev)
{
	pair();
	set = epoll_create1(0);
	if (set < 0 || add(set, here, ev))
		die("make a set");
}

ROW(epoll_waits)
{
	a_set(EPOLLIN);
	later(100, hello);
	wait_said("wait", set, 4, 2000);
	later_end();
}

ROW(epoll_waits_for_ever)
{
	a_set(EPOLLIN | EPOLLET);
	later(100, hello);
	wait_said("wait", set, 4, -1);
	later_end();
}

ROW(epoll_waits_for_end)
{
	a_set(EPOLLIN | EPOLLRDHUP);
	later(100, bye);
	wait_said("wait", set, 4, 2000);
	later_end();
}

ROW(epoll_waits_for_rdhup_behind_bytes)
{
	a_set(EPOLLRDHUP);
	put_text(peer, "hello");
	wait_said("wait", set, 4, 80);
	later(100, bye);
	wait_said("wait", set, 4, 2000);
	later_end();
}

ROW(epoll_waits_for_room)
{
	a_set(EPOLLOUT);
	fill(here);
	wait_said("full", set, 4, 80);
	later(100, make_room);
	wait_said("wait", set, 4, 2000);
	later_end();
}

ROW(epoll_edge_waits_for_room)
{
	a_set(EPOLLOUT | EPOLLET);
	wait_said("first", set, 4, 0);
	fill(here);
	wait_said("full", set, 4, 80);
	later(100, make_room);
	wait_said("wait", set, 4, 2000);
	later_end();
	wait_said("again", set, 4, 40);
}

ROW(epoll_edge_new_bytes_after_part)
{
	a_set(EPOLLIN | EPOLLET);
	put_text(peer, "hello");
	wait_said("wait", set, 4, 1000);
	get_now("recv", here, 2);
	wait_said("wait", set, 4, 80);
	put_text(peer, "more");
	wait_said("wait", set, 4, 1000);
	get_now("recv", here, 64);
	wait_said("wait", set, 4, 40);
}

ROW(epoll_edge_new_bytes_unread)
{
	a_set(EPOLLIN | EPOLLET);
	for (int i = 0; i < 3; i++) {
		put_text(peer, "x");
		wait_said("wait", set, 4, 1000);
		wait_said("wait", set, 4, 0);
	}
	get_now("recv", here, 64);
}

/* What a wait found nothing by may be as it was, though bytes are there: one
 * message less than a lap was read meanwhile, and the next one ends where the
 * last one did. So for each size that a ring may have. */
static void read_a_lap_unseen(uint32_t ev)
{
	char message[8] = "";
	int seen = 0, sizes = 0;

	a_set(ev);
	wait_said("wait", set, 4, 0);
	for (int lap = 4096; lap <= 1 << 20; lap *= 2) {
		struct epoll_event e;

		sizes++;
		epoll_wait(set, &e, 1, 0);
		for (int i = 0; i < lap / 16; i++)
			if (send(peer, message, 8, 0) != 8 ||
			    (i < lap / 16 - 1 &&
			     recv(here, message, 8, 0) != 8))
				die("move a message");
		seen += epoll_wait(set, &e, 1, 0);
		recv(here, message, 8, 0);
	}
	is("all", seen == sizes);
}

ROW(epoll_level_read_a_lap_unseen)
{
	read_a_lap_unseen(EPOLLIN);
}

ROW(epoll_edge_read_a_lap_unseen)
{
	read_a_lap_unseen(EPOLLIN | EPOLLET);
}

ROW(epoll_edge_mod_rearms)
{
	a_set(EPOLLIN | EPOLLET);
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	wait_said("wait", set, 4, 0);
	is("mod", mod(set, here, EPOLLIN | EPOLLET));
	wait_said("wait", set, 4, 1000);
	wait_said("wait", set, 4, 0);
}

/* A change to what it is: of a level nothing, of an edge it is another look. */
static void mod_to_the_same(void)
{
	set = epoll_create1(0);
	is("add", add_data(set, here, EPOLLIN, 8));
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	is("mod", mod(set, here, EPOLLIN));
	wait_said("wait", set, 4, 0);
	get_now("recv", here, 4);
	is("mod", mod(set, here, EPOLLIN));
	wait_said("wait", set, 4, 0);
	is("mod", mod(set, here, EPOLLIN | EPOLLET));
	is("mod", mod(set, here, EPOLLIN | EPOLLET));
	wait_said("wait", set, 4, 0);
	put_text(peer, "y");
	for (int i = 0; i < 2; i++) {
		wait_said("edge", set, 4, 1000);
		wait_said("edge", set, 4, 0);
		is("mod", mod(set, here, EPOLLIN | EPOLLET));
	}
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	is("mod", mod(set, here, EPOLLIN | EPOLLET));
}

ROW(epoll_mod_to_the_same)
{
	pair();
	mod_to_the_same();
}

ROW(epoll_mod_to_the_same_cold)
{
	cold_pair(AF_INET, false);
	mod_to_the_same();
}

/* What a child made of it meanwhile is the set's. */
ROW(epoll_mod_to_the_same_after_a_childs)
{
	pid_t pid;

	cold_pair(AF_INET, false);
	set = epoll_create1(0);
	is("add", add_data(set, here, EPOLLIN, 8));
	pid = fork();
	if (pid == 0)
		_exit(mod(set, here, 0));
	child("child", pid);
	put_text(peer, "x");
	wait_said("child's", set, 4, 0);
	is("mod", mod(set, here, EPOLLIN));
	wait_said("wait", set, 4, 1000);
}

/* The connection moves between the shot and the next load. */
ROW(epoll_oneshot_moves)
{
	cold_pair(AF_INET, false);
	set = epoll_create1(0);
	is("add", add(set, here, EPOLLIN | EPOLLONESHOT));
	put_text(peer, "x");
	wait_said("shot", set, 4, 1000);
	get_now("recv", here, 4);
	warm(here, peer);
	put_text(peer, "y");
	wait_said("spent", set, 4, 60);
	is("mod", mod(set, here, EPOLLIN | EPOLLONESHOT));
	wait_said("shot", set, 4, 1000);
	wait_said("spent", set, 4, 0);
	get_now("recv", here, 4);
}

ROW(epoll_oneshot)
{
	a_set(EPOLLIN | EPOLLONESHOT);
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	put_text(peer, "y");
	wait_said("wait", set, 4, 60);
	is("mod", mod(set, here, EPOLLIN | EPOLLONESHOT));
	wait_said("wait", set, 4, 1000);
	get_now("recv", here, 64);
	is("mod", mod(set, here, EPOLLIN | EPOLLONESHOT));
	wait_said("wait", set, 4, 40);
	later(60, hello);
	wait_said("wait", set, 4, 1000);
	later_end();
}

ROW(epoll_oneshot_end)
{
	a_set(EPOLLIN | EPOLLONESHOT);
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	reset(peer);
	wait_said("wait", set, 4, 60);
	is("mod", mod(set, here, EPOLLIN));
	wait_said("wait", set, 4, 1000);
}

static void reset_peer(void)
{
	reset(peer);
}

/* An item that asks for no events reports hang-ups and errors, on a fabric and
 * after the connection has left it. */
static void for_nothing(uint32_t flags, bool leaves)
{
	int off = 0;

	a_set(flags);
	if (leaves)
		setsockopt(here, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off));
	put_text(peer, "x");
	wait_said("bytes", set, 4, 20);
	later(20, reset_peer);
	wait_said("wait", set, 4, 1000);
	later_end();
	wait_said("again", set, 4, 0);
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	is("add", add(set, here, flags));
	wait_said("there", set, 4, 0);
	pair();
	if (leaves)
		setsockopt(here, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off));
	shutdown(here, SHUT_WR);
	shutdown(peer, SHUT_WR);
	settle(here, POLLHUP);
	is("add", add(set, here, flags));
	wait_said("both shut", set, 4, 0);
}

ROW(epoll_for_nothing)
{
	for_nothing(0, false);
}

ROW(epoll_for_nothing_edge)
{
	for_nothing(EPOLLET, false);
}

ROW(epoll_for_nothing_oneshot)
{
	for_nothing(EPOLLONESHOT, false);
}

ROW(epoll_for_nothing_left)
{
	for_nothing(0, true);
}

ROW(epoll_for_nothing_left_edge)
{
	for_nothing(EPOLLET, true);
}

ROW(epoll_for_nothing_left_oneshot)
{
	for_nothing(EPOLLONESHOT, true);
}

ROW(epoll_errors)
{
	struct epoll_event e = { .events = EPOLLIN };
	int fd = open("/proc/self/exe", O_RDONLY);

	a_set(EPOLLIN);
	is("twice", add(set, here, EPOLLIN));
	is("mod unknown", mod(set, peer, EPOLLIN));
	is("del unknown", epoll_ctl(set, EPOLL_CTL_DEL, peer, NULL));
	is("closed", add(set, 999, EPOLLIN));
	is("negative", add(set, -1, EPOLLIN));
	is("file", add(set, fd, EPOLLIN));
	is("itself", add(set, set, EPOLLIN));
	is("no set", add(here, peer, EPOLLIN));
	is("no set", add(999, here, EPOLLIN));
	is("operation", epoll_ctl(set, 77, here, &e));
	is("null", epoll_ctl(set, EPOLL_CTL_MOD, here, NULL));
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, &e));
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, &e));
	is("mod", mod(set, here, EPOLLIN));
	is("mod exclusive", mod(set, here, EPOLLIN | EPOLLEXCLUSIVE));
	is("add", add(set, here, EPOLLIN));
	is("wait", epoll_wait(set, &e, 0, 0));
	put_text(peer, "x");
	settle(here, POLLIN);
	is("too many", epoll_wait(set, &e, INT_MAX - which_row, 0));
	is("too many", epoll_pwait2(set, &e, INT_MAX - which_row, NULL, NULL));
	is("wait", epoll_wait(set, &e, which_row - 1, 0));
	is("wait", epoll_wait(here, &e, 1, 0));
	is("wait", epoll_wait(999, &e, 1, 0));
}

ROW(epoll_exclusive)
{
	a_set(EPOLLIN | EPOLLEXCLUSIVE);
	is("mod", mod(set, here, EPOLLIN));
	is("twice", add(set, here, EPOLLIN));
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	is("oneshot", add(set, here, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT));
	is("rdhup", add(set, here, EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP));
	is("set", add(epoll_create1(0), set, EPOLLIN | EPOLLEXCLUSIVE));
}

ROW(epoll_data_unchanged)
{
	pair();
	set = epoll_create1(0);
	is("add", add_data(set, here, EPOLLIN, UINT64_C(0xfedcba9876543210)));
	is("add", add_data(set, peer, EPOLLIN, UINT64_MAX));
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	get_now("recv", here, 4);
	put_text(here, "x");
	wait_said("wait", set, 4, 1000);
	is("mod", mod(set, peer, EPOLLIN));
	wait_said("wait", set, 4, 1000);
}

ROW(epoll_del_and_add)
{
	a_set(EPOLLIN);
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	wait_said("wait", set, 4, 40);
	is("add", add(set, here, EPOLLIN | EPOLLET));
	wait_said("wait", set, 4, 1000);
	wait_said("wait", set, 4, 0);
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	put_text(peer, "y");
	wait_said("wait", set, 4, 40);
}

ROW(epoll_two_sets)
{
	a_set(EPOLLIN);
	set2 = epoll_create1(0);
	is("add", add(set2, here, EPOLLIN | EPOLLET));
	put_text(peer, "x");
	wait_said("one", set, 4, 1000);
	wait_said("two", set2, 4, 1000);
	wait_said("one", set, 4, 0);
	wait_said("two", set2, 4, 0);
	get_now("recv", here, 4);
	wait_said("one", set, 4, 0);
	put_text(peer, "x");
	wait_said("two", set2, 4, 1000);
	wait_said("one", set, 4, 0);
}

ROW(epoll_nested_waits)
{
	int inner;

	a_set(EPOLLIN);
	inner = set;
	set2 = epoll_create1(0);
	is("add", add(set2, inner, EPOLLIN));
	later(100, hello);
	wait_said("outer", set2, 4, 2000);
	later_end();
	wait_said("inner", inner, 4, 0);
	get_now("recv", here, 64);
	wait_said("outer", set2, 4, 60);
	later(100, hello);
	poll_one("poll", inner, POLLIN, 2000);
	later_end();
	get_now("recv", here, 64);
	poll_one("poll", inner, POLLIN, 60);
	later(100, hello);
	poll_one("poll outer", set2, POLLIN, 2000);
	later_end();
}

static void world(void)
{
	put_text(peer, ", world");
}

static void set_lowat(int n)
{
	is("lowat", setsockopt(here, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
}

static void lowat(uint32_t flags)
{
	a_set(EPOLLIN | flags);
	set_lowat(8);
	put_text(peer, "hello");
	wait_said("few", set, 4, 60);
	later(100, world);
	wait_said("enough", set, 4, 2000);
	later_end();
	get_now("recv", here, 6);
	wait_said("rest", set, 4, 0);
	put_text(peer, "bye");
	shutdown(peer, SHUT_WR);
	wait_said("end", set, 4, 2000);
}

ROW(epoll_lowat)
{
	lowat(0);
}

ROW(epoll_lowat_edge)
{
	lowat(EPOLLET);
}

/* Lowering the mark is an edge if the bytes that lie there reach it. */
static void lowat_set(uint32_t ev)
{
	a_set(ev);
	wait_said("first", set, 4, 0);
	set_lowat(8);
	put_text(peer, "hello");
	wait_said("few", set, 4, 60);
	set_lowat(2);
	wait_said("lower", set, 4, 1000);
	wait_said("again", set, 4, 60);
	set_lowat(2);
	wait_said("same", set, 4, 1000);
	set_lowat(8);
	wait_said("higher", set, 4, 60);
	set_lowat(5);
	set_lowat(6);
	wait_said("lower and higher", set, 4, 60);
	set_lowat(5);
	wait_said("lower", set, 4, 1000);
	get_now("recv", here, 4);
	wait_said("rest", set, 4, 60);
	set_lowat(1);
	wait_said("lowest", set, 4, 1000);
	set_lowat(8);
	shutdown(peer, SHUT_WR);
	wait_said("end", set, 4, 1000);
	set_lowat(7);
	wait_said("after", set, 4, 60);
}

ROW(epoll_lowat_set)
{
	lowat_set(EPOLLIN);
}

ROW(epoll_lowat_set_edge)
{
	lowat_set(EPOLLIN | EPOLLET);
}

ROW(epoll_lowat_set_edge_both)
{
	lowat_set(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

ROW(epoll_lowat_set_edge_out)
{
	lowat_set(EPOLLOUT | EPOLLET);
}

/* The arrival of bytes that a higher mark hides is still an edge. */
ROW(epoll_lowat_hides)
{
	a_set(EPOLLIN | EPOLLWRNORM | EPOLLET);
	wait_said("first", set, 4, 0);
	put_text(peer, "hello");
	poll_one("come", here, POLLIN, 2000);
	set_lowat(262);
	wait_said("hidden", set, 4, 60);
	wait_said("again", set, 4, 60);
	set_lowat(300);
	wait_said("higher", set, 4, 60);
	get_now("recv", here, 5);
	wait_said("taken", set, 4, 60);
}

static void lower(void)
{
	setsockopt(here, SOL_SOCKET, SO_RCVLOWAT, &(int){ 1 }, sizeof(int));
}

static void lowat_while_asleep(uint32_t flags)
{
	a_set(EPOLLIN | flags);
	set_lowat(8);
	put_text(peer, "hello");
	later(100, lower);
	wait_said("wait", set, 4, -1);
	later_end();
}

ROW(epoll_lowat_while_asleep)
{
	lowat_while_asleep(0);
}

ROW(epoll_lowat_while_asleep_edge)
{
	lowat_while_asleep(EPOLLET);
}

ROW(poll_lowat_while_asleep)
{
	pair();
	set_lowat(8);
	put_text(peer, "hello");
	later(100, lower);
	poll_one("poll", here, POLLIN, -1);
	later_end();
}

static void lower_then_world(void)
{
	lower();
	pass_ms(40);
	world();
}

/* The call goes on with what it began with. */
ROW(recv_lowat_while_asleep)
{
	char b[8];

	pair();
	set_lowat(8);
	put_text(peer, "hello");
	later(40, lower_then_world);
	got("recv", recv(here, b, sizeof(b), 0), b);
	later_end();
}

/* The set is in the other when it gets its first connection. */
ROW(epoll_nested_empty)
{
	set = epoll_create1(0);
	set2 = epoll_create1(0);
	is("nest", add(set2, set, EPOLLIN));
	pair();
	is("add", add(set, here, EPOLLIN));
	later(100, hello);
	wait_said("outer", set2, 4, 2000);
	later_end();
	wait_said("inner", set, 4, 0);
	get_now("recv", here, 64);
	wait_said("outer", set2, 4, 60);
}

ROW(epoll_nested_edge)
{
	a_set(EPOLLIN);
	set2 = epoll_create1(0);
	is("add", add(set2, set, EPOLLIN | EPOLLET));
	put_text(peer, "x");
	wait_said("outer", set2, 4, 1000);
	wait_said("outer", set2, 4, 40);
	put_text(peer, "y");
	wait_said("outer", set2, 4, 1000);
}

ROW(epoll_set_polled_with_connection)
{
	struct pollfd v[2];
	int a;

	a_set(EPOLLIN);
	a = here;
	v[0] = (struct pollfd){ .fd = set, .events = POLLIN };
	pair();
	v[1] = (struct pollfd){ .fd = here, .events = POLLIN };
	later(100, hello);
	is("poll", poll(v, 2, 2000));
	events("set", (unsigned short)v[0].revents);
	events("connection", (unsigned short)v[1].revents);
	later_end();
	get_now("recv", a, 4);
}

ROW(epoll_close_removes)
{
	a_set(EPOLLIN);
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	close(here);
	wait_said("wait", set, 4, 40);
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	pair();
	is("add", add(set, here, EPOLLIN));
	wait_said("wait", set, 4, 0);
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
}

ROW(epoll_close_of_a_dup)
{
	int two;

	a_set(EPOLLIN);
	two = dup(here);
	close(two);
	put_text(peer, "x");
	wait_said("wait", set, 4, 1000);
	two = dup(here);
	close(here);
	wait_said("wait", set, 4, 0);
	close(two);
	wait_said("wait", set, 4, 0);
}

ROW(epoll_set_closed)
{
	a_set(EPOLLIN);
	close(set);
	put_text(peer, "x");
	is("wait", epoll_wait(set, &(struct epoll_event){ 0 }, 1, 0));
	settle(here, POLLIN);
	set = epoll_create1(0);
	wait_said("empty", set, 4, 0);
	is("add", add(set, here, EPOLLIN));
	wait_said("wait", set, 4, 1000);
}

ROW(epoll_fair)
{
	int a[6], seen[6] = { 0 };
	struct epoll_event e;

	set = epoll_create1(0);
	for (int i = 0; i < 6; i++) {
		pair();
		a[i] = here;
		add_data(set, a[i], EPOLLIN, (uint64_t)i);
		put_text(peer, "x");
		settle(a[i], POLLIN);
	}
	for (int i = 0; i < 12; i++)
		if (epoll_wait(set, &e, 1, 1000) == 1)
			seen[e.data.u64]++;
	for (int i = 0; i < 6; i++)
		say("%d", seen[i]);
	is("all", epoll_wait(set, (struct epoll_event[8]){ 0 }, 8, 1000));
}

ROW(epoll_fair_mixed)
{
	int a[3], seen[4] = { 0 }, p[2];
	struct epoll_event e;

	set = epoll_create1(0);
	for (int i = 0; i < 3; i++) {
		pair();
		a[i] = here;
		add_data(set, a[i], EPOLLIN, (uint64_t)i);
		put_text(peer, "x");
		settle(a[i], POLLIN);
	}
	a_pipe(p);
	to_other();
	add_data(set, p[0], EPOLLIN, 3);
	for (int i = 0; i < 20000; i++)
		if (epoll_wait(set, &e, 1, 1000) == 1)
			seen[e.data.u64]++;
	for (int i = 0; i < 4; i++)
		say("%s", seen[i] ? "seen" : "starved");
}

ROW(epoll_mixed)
{
	int p[2], e, t;

	a_set(EPOLLIN | EPOLLOUT);
	a_pipe(p);
	e = eventfd(0, 0);
	t = timer_in(100);
	is("pipe", add_data(set, p[0], EPOLLIN, 10));
	is("event", add_data(set, e, EPOLLIN | EPOLLET, 11));
	is("timer", add_data(set, t, EPOLLIN, 12));
	wait_said("wait", set, 8, 0);
	is("mod", mod(set, here, EPOLLIN));
	wait_said("timer", set, 8, 1000);
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, t, NULL));
	later(100, to_other);
	wait_said("pipe", set, 8, 1000);
	later_end();
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, p[0], NULL));
	eventfd_write(e, 1);
	wait_said("event", set, 8, 1000);
	wait_said("edge", set, 8, 0);
	later(100, hello);
	wait_said("connection", set, 8, 1000);
	later_end();
}

ROW(epoll_interrupted)
{
	a_set(EPOLLIN);
	alarm_in(100, SA_RESTART);
	wait_said("wait", set, 4, 2000);
	say("signals %d", signals);
}

ROW(epoll_closed_by_a_handler)
{
	a_set(EPOLLIN);
	closed_in(100);
	wait_said("wait", set, 4, 2000);
	was_closed();
}

ROW(epoll_pwait_mask)
{
	struct epoll_event e;
	sigset_t none, alrm;

	a_set(EPOLLIN);
	sigemptyset(&none);
	sigemptyset(&alrm);
	sigaddset(&alrm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alrm, NULL);
	alarm_in(50, 0);
	TIMED("blocked", epoll_wait(set, &e, 1, 150));
	TIMED("pending", epoll_pwait(set, &e, 1, 1000, &none));
	say("signals %d", signals);
}

ROW(epoll_pwait2)
{
	struct epoll_event e;
	struct timespec t = { .tv_nsec = 100000000 };

	a_set(EPOLLIN);
	TIMED("timeout", epoll_pwait2(set, &e, 1, &t, NULL));
	t.tv_nsec = 0;
	TIMED("at once", epoll_pwait2(set, &e, 1, &t, NULL));
	later(100, hello);
	TIMED("ever", epoll_pwait2(set, &e, 1, NULL, NULL));
	later_end();
	get_now("recv", here, 64);
	later(100, hello);
	TIMED("long", epoll_pwait2(set, &e, 1, LONG_TIME, NULL));
	later_end();
	t.tv_nsec = -1;
	is("wrong", epoll_pwait2(set, &e, 1, &t, NULL));
}

/* n were told: the rest of the memory is the caller's. */
static void untouched(const char *what, const struct epoll_event *e, size_t max,
		      int n)
{
	const unsigned char *p = (const unsigned char *)(e + (n > 0 ? n : 0)),
			    *end = (const unsigned char *)(e + max);

	is(what, n);
	while (p < end && *p == 0x5a)
		p++;
	is("untouched", p == end);
}

static void wait_each_way(void)
{
	struct epoll_event e[8];
	struct timespec t = { .tv_nsec = 20000000 };

	memset(e, 0x5a, sizeof(e));
	untouched("wait", e, 8, epoll_wait(set, e, 8, 0));
	memset(e, 0x5a, sizeof(e));
	untouched("wait", e, 8, epoll_wait(set, e, 8, 20));
	memset(e, 0x5a, sizeof(e));
	untouched("wait for one", e, 8, epoll_wait(set, e, 1, 20));
	memset(e, 0x5a, sizeof(e));
	untouched("pwait", e, 8, epoll_pwait(set, e, 8, 20, NULL));
	memset(e, 0x5a, sizeof(e));
	untouched("pwait2", e, 8, epoll_pwait2(set, e, 8, &t, NULL));
}

static void x_and_back(void)
{
	char b;

	for (int i = 0; i < 3; i++) {
		put_text(peer, "x");
		get_all(here, &b, 1);
	}
}

static void beyond_what_is_told(uint32_t ev)
{
	struct epoll_event e[8];
	int p[2];

	is("pipe", pipe(p));
	a_set(ev);
	add(set, p[0], EPOLLIN);
	wait_each_way();
	for (int i = 0; i < 3; i++) {
		x_and_back();
		wait_each_way();
	}
	later(40, x_and_back);
	memset(e, 0x5a, sizeof(e));
	untouched("late", e, 8, epoll_wait(set, e, 8, 120));
	later_end();
	is("write", write(p[1], "x", 1));
	for (int i = 0; i < 3; i++) {
		x_and_back();
		wait_each_way();
	}
	shutdown(peer, SHUT_WR);
	wait_each_way();
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	reset(peer);
	wait_each_way();
}

ROW(epoll_memory_beyond)
{
	beyond_what_is_told(EPOLLPRI);
}

ROW(epoll_memory_beyond_edge)
{
	beyond_what_is_told(EPOLLPRI | EPOLLET);
}

ROW(epoll_memory_beyond_oneshot)
{
	beyond_what_is_told(EPOLLPRI | EPOLLONESHOT);
}

/* What the connection was in the kernel's set is told of by nobody. */
ROW(epoll_memory_beyond_moved)
{
	struct epoll_event e[8];

	cold_pair(AF_INET, false);
	set = epoll_create1(0);
	add(set, here, EPOLLPRI | EPOLLONESHOT);
	warm(here, peer);
	wait_each_way();
	x_and_back();
	memset(e, 0x5a, sizeof(e));
	alarm_in(40, 0);
	untouched("interrupted", e, 8, epoll_wait(set, e, 8, 2000));
}

/* What else there is does not hide behind what is the library's. */
ROW(epoll_room_for_one)
{
	int p[2];

	is("pipe", pipe(p));
	a_set(EPOLLPRI);
	add(set, p[0], EPOLLIN);
	is("write", write(p[1], "x", 1));
	wait_said("wait", set, 1, 0);
	for (int i = 0; i < 3; i++) {
		wait_said("wait", set, 1, 40);
		x_and_back();
		wait_said("wait", set, 1, 0);
	}
}

ROW(epoll_times_out)
{
	a_set(EPOLLIN);
	wait_said("wait", set, 4, 100);
	wait_said("wait", set, 4, 0);
}

ROW(epoll_before_connect)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len);
	struct epoll_event e[4];
	int n;

	here = socket(stream_family, stream_type | SOCK_NONBLOCK, 0);
	set = epoll_create1(0);
	is("add", add(set, here, EPOLLIN | EPOLLOUT | EPOLLRDHUP));
	n = epoll_wait(set, e, 4, 0);
	is("unconnected", n);
	if (n > 0)
		events("events", e[0].events);
	is("connect", connect(here, (struct sockaddr *)&at, len));
	wait_said("connected", set, 4, 1000);
	peer = accept(l, NULL, NULL);
	warm(here, peer);
	wait_said("moved", set, 4, 0);
	put_text(peer, "x");
	settle(here, POLLIN);
	wait_said("bytes", set, 4, 0);
}

ROW(epoll_edge_before_connect)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len);

	here = socket(stream_family, stream_type | SOCK_NONBLOCK, 0);
	set = epoll_create1(0);
	is("add", add(set, here, EPOLLIN | EPOLLOUT | EPOLLET));
	is("connect", connect(here, (struct sockaddr *)&at, len));
	settle(here, POLLOUT);
	peer = accept(l, NULL, NULL);
	wait_said("connected", set, 4, 1000);
	wait_said("again", set, 4, 0);
	put_text(peer, "x");
	wait_said("bytes", set, 4, 1000);
	wait_said("again", set, 4, 0);
}

ROW(epoll_listener)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len);

	set = epoll_create1(0);
	is("add", add(set, l, EPOLLIN));
	wait_said("none", set, 4, 0);
	here = socket(stream_family, stream_type, 0);
	is("connect", connect(here, (struct sockaddr *)&at, len));
	wait_said("one", set, 4, 1000);
	peer = accept(l, NULL, NULL);
	wait_said("none", set, 4, 0);
	poll_one("poll", l, POLLIN | POLLOUT, 0);
}

static _Atomic int woken;

static void *wait_in_thread(void *arg)
{
	struct epoll_event e;

	if (epoll_wait(set, &e, 1, 400) == 1) {
		char buf[64];

		woken++;
		recv(here, buf, sizeof(buf), MSG_DONTWAIT);
	}
	return NULL;
}

/* Something comes to a set while three wait. */
static void come_to_three(void *(*wait)(void *))
{
	pthread_t t[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, wait, NULL);
	pass_ms(60);
	put_text(peer, "x");
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
}

static void several_threads(uint32_t flags)
{
	a_set(EPOLLIN | flags);
	come_to_three(wait_in_thread);
}

ROW(epoll_edge_wakes_one_thread)
{
	several_threads(EPOLLET);
	say("woken %d", woken);
}

ROW(epoll_oneshot_wakes_one_thread)
{
	several_threads(EPOLLONESHOT);
	say("woken %d", woken);
}

/* What is ready is told at once, wherever it comes from. */
ROW(epoll_all_that_is_ready)
{
	int p[2], bad = 0;

	a_set(EPOLLIN);
	is("pipe", pipe(p));
	is("add", add(set, p[0], EPOLLIN));
	for (int i = 0; i < 200 && !bad; i++) {
		struct epoll_event e[4];
		char buf[64];

		bad = epoll_wait(set, e, 4, 0) != 0;
		if (i % 2)
			bad += write(p[1], "x", 1) != 1;
		put_text(peer, "x");
		if (!(i % 2))
			bad += write(p[1], "x", 1) != 1;
		while (poll(&(struct pollfd){ here, POLLIN, 0 }, 1, 1000) != 1)
			;
		for (int again = 0; again < 2; again++)
			bad += epoll_wait(set, e, 4, 1000) != 2;
		bad += recv(here, buf, sizeof(buf), 0) != 1;
		bad += read(p[0], buf, sizeof(buf)) != 1;
	}
	say("bad %d", bad);
}

#define SEVERAL 4

static int ours[SEVERAL], theirs[SEVERAL];

/* The first ones are on TCP, as they are new. */
static void several_in_a_set(uint32_t flags, int cold)
{
	struct epoll_event e[SEVERAL];

	set = epoll_create1(0);
	for (int i = 0; i < SEVERAL; i++) {
		if (i < cold)
			cold_pair(AF_INET, false);
		else
			pair();
		ours[i] = here;
		theirs[i] = peer;
		e[0] = (struct epoll_event){ EPOLLIN | flags, { .u32 = i } };
		is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &e[0]));
	}
	/* An edge may be told when it is added, and when it moves. */
	while (epoll_wait(set, e, SEVERAL, 0) > 0)
		;
}

/* Which one is written to as the nth of a round: each goes first, last, and
 * before each other. */
static int nth_of(int round, int n)
{
	int step = round / SEVERAL % 2 ? SEVERAL - 1 : 1;

	return (round + n * step) % SEVERAL;
}

/* What came first is told first, and read; how often not. */
static int told_wrong(int round, int max)
{
	struct epoll_event e[SEVERAL];
	int told = 0, wrong = 0;

	for (int i = 0; i < SEVERAL; i++)
		put_text(theirs[nth_of(round, i)], "x");
	while (told < SEVERAL) {
		int n = epoll_wait(set, e, max, 1000);

		if (n <= 0)
			die("be told");
		for (int i = 0; i < n; i++, told++) {
			char c;

			wrong += (int)e[i].data.u32 != nth_of(round, told);
			wrong += recv(ours[e[i].data.u32], &c, 1, 0) != 1;
		}
	}
	/* The kernel looks at what it told, and forgets it. */
	return wrong + (epoll_wait(set, e, max, 0) != 0);
}

#define ROUNDS 400

/* What is to stay on TCP gets fewer bytes than those after which it moves. */
#define COLD_ROUNDS 1000

/* So many rounds in a row are right. On a busy host connections may move late,
 * after some rounds, which have no order then: it is begun again. */
static void told_in_order(uint32_t flags, int cold, int max)
{
	int right = 0, most = cold ? COLD_ROUNDS : 10 * ROUNDS;

	several_in_a_set(flags, cold);
	for (int round = 0; right < ROUNDS && round < most; round++)
		right = told_wrong(round, max) ? 0 : right + 1;
	say("right %d", right);
}

ROW(epoll_level_in_order)
{
	told_in_order(0, 0, SEVERAL);
}

ROW(epoll_edge_in_order)
{
	told_in_order(EPOLLET, 0, SEVERAL);
}

ROW(epoll_level_in_order_one_by_one)
{
	told_in_order(0, 0, 1);
}

ROW(epoll_edge_in_order_three_at_a_time)
{
	told_in_order(EPOLLET, 0, 3);
}

ROW(epoll_level_in_order_one_on_tcp)
{
	told_in_order(0, 1, SEVERAL);
}

ROW(epoll_edge_in_order_one_on_tcp)
{
	told_in_order(EPOLLET, 1, SEVERAL);
}

/* New connections that have sent enough to move, and do so by and by. */
static void some_that_move(int n)
{
	char much[1200] = { 0 };

	for (int i = 0; i < n; i++) {
		cold_pair(AF_INET, false);
		ours[i] = here;
		theirs[i] = peer;
		put_all(peer, much, sizeof(much));
		if (recv(here, much, sizeof(much), MSG_WAITALL) != sizeof(much))
			die("receive");
	}
}

static void close_some(int n)
{
	for (int i = 0; i < n; i++) {
		close(ours[i]);
		close(theirs[i]);
	}
}

#define MOVES 100

/* Whether of two the one that was written to first is told first. An edge may
 * be told once more when its connection moves. */
static bool told_right(int first)
{
	struct epoll_event e[4];
	int n, told = 0;
	bool right = true;

	while (epoll_wait(set, e, 4, 0) > 0)
		;
	put_text(theirs[first], "x");
	put_text(theirs[!first], "x");
	while (told < 2) {
		n = epoll_wait(set, e, 4, 1000);
		if (n <= 0)
			die("be told");
		for (int i = 0; i < n; i++) {
			int which = (int)e[i].data.u32;
			char c;

			if (recv(ours[which], &c, 1, MSG_DONTWAIT) != 1)
				continue;
			right &= which == (told ? !first : first);
			told++;
		}
	}
	return right;
}

static void told_while_moving(uint32_t flags)
{
	struct epoll_event e;
	int right = 0;

	for (int i = 0; i < MOVES; i++) {
		set = epoll_create1(0);
		some_that_move(2);
		for (int k = 0; k < 2; k++) {
			e = (struct epoll_event){ EPOLLIN | flags,
						  { .u32 = k } };
			if (epoll_ctl(set, EPOLL_CTL_ADD, ours[k], &e))
				die("add");
		}
		for (int round = 0; round < 8; round++)
			right += told_right(round & 1);
		close_some(2);
		close(set);
	}
	say("right %d", right);
}

ROW(epoll_level_in_order_while_moving)
{
	told_while_moving(0);
}

ROW(epoll_edge_in_order_while_moving)
{
	told_while_moving(EPOLLET);
}

/* What was sent is there, all of it, on TCP or behind that in the ring. */
static bool is_there(int pieces)
{
	int unread = 0, all = pieces * 10;
	char buf[1000];

	for (int i = 0; i < pieces; i++)
		put_text(theirs[0], "0123456789");
	return poll(&(struct pollfd){ ours[0], POLLIN, 0 }, 1, 0) == 1 &&
	       ioctl(ours[0], FIONREAD, &unread) == 0 && unread == all &&
	       recv(ours[0], buf, sizeof(buf), MSG_PEEK) == all &&
	       recv(ours[0], buf, sizeof(buf), MSG_DONTWAIT) == all;
}

ROW(whole_while_moving)
{
	int whole = 0;

	for (int i = 0; i < MOVES; i++) {
		some_that_move(1);
		for (int round = 0; round < 20; round++)
			whole += is_there(1 + round % 5);
		close_some(1);
	}
	say("whole %d", whole);
}

/* Also where the kernel, which had nothing for long, is asked in the middle. */
ROW(epoll_level_told_once)
{
	int wrong = 0;

	several_in_a_set(0, 1);
	for (int round = 0; round < 200; round++) {
		struct epoll_event e[8];
		char c;

		for (int i = 0; i < 40; i++) {
			put_text(theirs[1], "x");
			wrong += epoll_wait(set, e, 8, 1000) != 1;
			wrong += recv(ours[1], &c, 1, 0) != 1;
		}
		put_text(theirs[0], "x");
		put_text(theirs[1], "x");
		wrong += epoll_wait(set, e, 8, 1000) != 2;
		for (int i = 0; i < 2; i++)
			wrong += recv(ours[i], &c, 1, 0) != 1;
	}
	say("wrong %d", wrong);
}

/* What nobody reads is told again when the others were told. */
ROW(epoll_level_takes_turns)
{
	struct epoll_event e[3];

	several_in_a_set(0, 0);
	for (int i = 0; i < SEVERAL; i++)
		put_text(theirs[nth_of(6, i)], "x");
	for (int i = 0; i < 3 * SEVERAL; i++) {
		int n = epoll_wait(set, e, 1 + i % 3, 1000);

		is("told", n);
		for (int k = 0; k < n; k++)
			say("%u", e[k].data.u32);
	}
}

/* What nobody took of bytes on TCP is told by each wait, whatever else the
 * kernel has: an urgent byte took the connection there. */
ROW(epoll_level_rests_on_tcp)
{
	struct epoll_event e[4];
	int p[2];

	pair();
	is("send", send(here, "!", 1, MSG_OOB));
	set = epoll_create1(0);
	a_pipe(p);
	add(set, here, EPOLLIN);
	add(set, peer, EPOLLIN | EPOLLOUT);
	add(set, p[1], EPOLLOUT);
	put_text(peer, "abcdef");
	settle(here, POLLIN);
	for (int i = 0; i < 12; i++) {
		is("told", epoll_wait(set, e, 4, 0));
		if (i % 4 == 3)
			get_now("recv", here, 1);
	}
	get_now("rest", here, 8);
	is("told", epoll_wait(set, e, 4, 0));
}

static void *told_in_thread(void *arg)
{
	struct epoll_event e;
	int64_t end = now_ns() + 1500000000;

	woken += epoll_wait(set, &e, 1, 2000) == 1 && now_ns() < end;
	return NULL;
}

/* Nobody takes what they are told of. */
static void told_of_a_level(void)
{
	come_to_three(told_in_thread);
	say("told %d", woken);
}

ROW(epoll_level_tells_each_thread)
{
	a_set(EPOLLIN);
	told_of_a_level();
}

/* An urgent byte takes the connection to TCP, where the set knew it as
 * another. */
ROW(epoll_level_tells_each_thread_on_tcp)
{
	char c;

	a_set(EPOLLIN);
	is("urgent", send(peer, "!", 1, MSG_OOB));
	poll_one("poll", here, POLLPRI, 1000);
	is("take", recv(here, &c, 1, MSG_OOB));
	told_of_a_level();
}

/* Threads of which each goes on when all three have something. */
static int three[3][2];
static uint32_t three_flags;
static _Atomic int have, alone;

static void *one_of_three(void *arg)
{
	struct epoll_event e, again;
	char buf[64];

	while (!alone && epoll_wait(set, &e, 1, 2000) == 1) {
		int64_t end = now_ns() + 1000000000;
		int all;

		recv(three[e.data.u32][0], buf, sizeof(buf), MSG_DONTWAIT);
		all = (have++ / 3 + 1) * 3;
		while (have < all && now_ns() < end)
			pass_ms(1);
		if (have < all)
			alone = 1;
		again = (struct epoll_event){ .events = three_flags,
					      .data = e.data };
		if (three_flags & EPOLLONESHOT)
			epoll_ctl(set, EPOLL_CTL_MOD, three[e.data.u32][0],
				  &again);
	}
	return NULL;
}

static void three_add(void)
{
	for (int i = 0; i < 3; i++) {
		pair();
		three[i][0] = here;
		three[i][1] = peer;
		add_data(set, here, three_flags, (uint64_t)i);
	}
}

static void three_at_once(uint32_t flags, bool early)
{
	pthread_t t[3];

	set = epoll_create1(0);
	three_flags = EPOLLIN | flags;
	if (!early)
		three_add();
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, one_of_three, NULL);
	if (early) {
		pass_ms(30);
		three_add();
	}
	for (int k = 1; k <= 30 && !alone; k++) {
		int64_t end = now_ns() + 1500000000;

		pass_ms(k % 3 * 5);
		for (int i = 0; i < 3; i++)
			put_text(three[i][1], "x");
		while (have < 3 * k && now_ns() < end)
			pass_ms(1);
	}
	say("%s", alone ? "one alone" : "all");
}

ROW(epoll_edges_wake_each_a_thread)
{
	three_at_once(EPOLLET, false);
}

ROW(epoll_oneshots_wake_each_a_thread)
{
	three_at_once(EPOLLONESHOT, false);
}

ROW(epoll_oneshots_wake_each_a_thread_early)
{
	three_at_once(EPOLLONESHOT, true);
}

ROW(epoll_edge_oneshots_wake_each_a_thread)
{
	three_at_once(EPOLLET | EPOLLONESHOT, false);
}

ROW(epoll_edge_oneshots_wake_each_a_thread_early)
{
	three_at_once(EPOLLET | EPOLLONESHOT, true);
}

/* Threads that receive whatever a set tells them of, and peers that send on all
 * its connections at once. */
#define CROWD 8
static int crowd[CROWD][2];
static int crowd_room; /* events that a call asks for */
static _Atomic int crowd_has[CROWD], crowd_over;

static void *serve_crowd(void *arg)
{
	struct epoll_event e[CROWD];
	char buf[64];

	while (!crowd_over) {
		int n = epoll_wait(set, e, crowd_room, 2000);

		for (int i = 0; i < n; i++)
			if (recv(crowd[e[i].data.u32][0], buf, 1,
				 MSG_DONTWAIT) == 1)
				crowd_has[e[i].data.u32]++;
	}
	return NULL;
}

static bool crowd_comes_to(int i, int n)
{
	int64_t end = now_ns() + 1500000000;

	while (crowd_has[i] < n && now_ns() < end)
		sched_yield();
	return crowd_has[i] >= n;
}

static void crowd_add(int i)
{
	pair();
	crowd[i][0] = here;
	crowd[i][1] = peer;
	add_data(set, here, EPOLLIN, (uint64_t)i);
}

/* For a while shorter than that in which a connection counts as busy, or
 * not. */
static void linger(int k)
{
	int64_t end = now_ns() + k % 8 * 40000;

	while (now_ns() < end)
		sched_yield();
}

static void crowd_at_once(int threads, int room)
{
	bool all = true;
	pthread_t t[4];
	int k;

	set = epoll_create1(0);
	crowd_room = room;
	for (int i = 0; i < CROWD; i++)
		crowd_add(i);
	for (int i = 0; i < threads; i++) {
		pthread_create(&t[i], NULL, serve_crowd, NULL);
		pthread_detach(t[i]); /* it sleeps, or ends */
	}
	for (k = 1; all && k <= 200; k++) {
		linger(k);
		for (int i = 0; i < CROWD; i++)
			put_text(crowd[i][1], "x");
		for (int i = 0; all && i < CROWD; i++)
			all = crowd_comes_to(i, k);
	}
	say("%s", all ? "all" : "some");
	crowd_over = 1;
}

ROW(epoll_many_at_once)
{
	crowd_at_once(1, CROWD);
}

ROW(epoll_many_at_once_little_room)
{
	crowd_at_once(1, 1);
}

ROW(epoll_many_at_once_two_threads)
{
	crowd_at_once(2, 3);
}

/* Something comes for one that leaves the set just then, beside a sleeper,
 * which may not know, and then for one that stays. */
static void leaves_beside_a_sleeper(bool closes)
{
	struct epoll_event e = { .events = EPOLLIN };
	cpu_set_t one;
	pthread_t t;
	int k;

	/* The sleeper sleeps on while this thread goes on. */
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	set = epoll_create1(0);
	crowd_room = CROWD;
	crowd_add(0);
	crowd_add(1);
	pthread_create(&t, NULL, serve_crowd, NULL);
	for (k = 1; k <= 60; k++) {
		put_text(crowd[0][1], "x");
		put_text(crowd[1][1], "x");
		if (!crowd_comes_to(1, 2 * k - 1))
			break;
		linger(k);
		put_text(crowd[0][1], "x");
		if (closes)
			close(crowd[0][0]);
		else
			epoll_ctl(set, EPOLL_CTL_DEL, crowd[0][0], NULL);
		put_text(crowd[1][1], "x");
		if (!crowd_comes_to(1, 2 * k))
			break;
		if (closes) {
			close(crowd[0][1]);
			crowd_add(0);
		} else {
			drain(crowd[0][0]);
			epoll_ctl(set, EPOLL_CTL_ADD, crowd[0][0], &e);
		}
	}
	say("%s", k > 60 ? "all" : "some");
	crowd_over = 1;
}

ROW(epoll_taken_out_beside_a_sleeper)
{
	leaves_beside_a_sleeper(false);
}

ROW(epoll_closed_beside_a_sleeper)
{
	leaves_beside_a_sleeper(true);
}

static void *add_in_thread(void *arg)
{
	pass_ms(100);
	add(set, here, EPOLLIN);
	return NULL;
}

ROW(epoll_added_while_asleep)
{
	pthread_t t;

	pair();
	put_text(peer, "x");
	settle(here, POLLIN);
	set = epoll_create1(0);
	pthread_create(&t, NULL, add_in_thread, NULL);
	wait_said("wait", set, 4, 2000);
	pthread_join(t, NULL);
}

static void mod_to_in(void)
{
	mod(set, here, EPOLLIN);
}

ROW(epoll_changed_while_asleep)
{
	a_set(0);
	put_text(peer, "x");
	settle(here, POLLIN);
	later(100, mod_to_in);
	wait_said("wait", set, 4, 2000);
	later_end();
}

ROW(epoll_level_drains)
{
	a_set(EPOLLIN);
	put_text(peer, "abc");
	settle(here, POLLIN);
	for (int i = 0; i < 4; i++) {
		wait_said("wait", set, 4, 0);
		get_now("recv", here, 1);
	}
}

ROW(epoll_peer_and_self)
{
	a_set(EPOLLIN | EPOLLET);
	is("add", add_data(set, peer, EPOLLIN | EPOLLET, 9));
	for (int i = 0; i < 20; i++) {
		struct epoll_event e;
		int from = i % 2 ? peer : here, to = i % 2 ? here : peer;

		put_text(from, "x");
		if (epoll_wait(set, &e, 1, 1000) != 1)
			say("lost %d", i);
		get_now("", to, 4);
	}
}

ROW(epoll_set_dup)
{
	int two;

	a_set(EPOLLIN);
	two = dup(set);
	put_text(peer, "x");
	settle(here, POLLIN);
	wait_said("two", two, 4, 200);
	close(set);
	wait_said("two", two, 4, 200);
	is("del", epoll_ctl(two, EPOLL_CTL_DEL, here, NULL));
	wait_said("two", two, 4, 0);
}

/* The number that waits never saw a connection. */
ROW(epoll_set_dup_before)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 42 };
	int two, third;

	pair();
	set = epoll_create1(0);
	two = dup(set);
	third = fcntl(two, F_DUPFD_CLOEXEC, 0);
	is("add", epoll_ctl(third, EPOLL_CTL_ADD, here, &ev));
	poll_one("set", set, POLLIN, 0);
	wait_said("two", two, 4, 0);
	put_text(peer, "x");
	settle(here, POLLIN);
	wait_said("two", two, 4, 200);
	wait_said("set", set, 4, 200);
	poll_one("set", set, POLLIN, 0);
	is("add", epoll_ctl(two, EPOLL_CTL_ADD, here, &ev));
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	wait_said("three", third, 4, 0);
	poll_one("two", two, POLLIN, 0);
}

/* A program that learns that there is room writes some KB without checking
 * whether the write waits. */
ROW(room_for_what_poll_tells)
{
	static char buf[8192];
	struct pollfd p = { .events = POLLOUT };
	ssize_t n = sizeof(buf);
	int rounds = 0;

	pair();
	warm(here, peer);
	p.fd = here;
	while (n == (ssize_t)sizeof(buf) && rounds++ < 10000 &&
	       poll(&p, 1, 0) == 1)
		n = send(here, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL);
	is("full", rounds < 10000);
	is("whole", n == (ssize_t)sizeof(buf));
}
