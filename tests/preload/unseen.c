/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits that the library cannot see, on a connection that moved before they
 * began, or by a set that had it from its first byte: each ends when the peer
 * has done what it waits for. unseen ROW; unseen --list. Exits with 0 if right,
 * with 77 if it cannot run here. unseen.py knows on which fabric each row's
 * connection must be. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef HAVE_URING
#include <liburing.h>
#endif

#include "moved.h"
#include "raw.h"

static long raw(long nr, long a, long b, long c, long d, long e)
{
	if (!T_HAVE_RAW)
		exit(SKIP);
	return t_raw(nr, a, b, c, d, e);
}

/* --- epoll -------------------------------------------------------------- */

static int raw_set(void)
{
	long ret = raw(SYS_epoll_create1, 0, 0, 0, 0, 0);

	if (ret < 0)
		errx(1, "epoll_create1: %ld", ret);
	return (int)ret;
}

static void raw_ctl(int set, int op, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.fd = fd };

	if (raw(SYS_epoll_ctl, set, op, fd, (long)&e, 0))
		errx(1, "epoll_ctl");
}

/* Others may come before it: an edge of room, as TCP is used again. */
static void raw_wait(int set, int fd, uint32_t events)
{
	struct epoll_event e;
	long n;

	do {
		n = raw(SYS_epoll_pwait, set, (long)&e, 1, LIMIT, 0);
		if (n != 1 || e.data.fd != fd)
			errx(1, "epoll_pwait: %ld", n);
	} while (!(e.events & events));
}

static int epoll_late(uint32_t flags)
{
	int fd = moved(), set = raw_set();

	raw_ctl(set, EPOLL_CTL_ADD, fd, EPOLLIN | flags);
	tell(SEND);
	raw_wait(set, fd, EPOLLIN);
	return finish(fd);
}

static int epoll_level(void)
{
	return epoll_late(0);
}

static int epoll_edge(void)
{
	int fd = moved(), set = raw_set();

	raw_ctl(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET);
	raw_wait(set, fd, EPOLLOUT);
	tell(SEND);
	raw_wait(set, fd, EPOLLIN);
	return finish(fd);
}

static int epoll_once(void)
{
	return epoll_late(EPOLLONESHOT);
}

/* The bytes were there before anybody waited. */
static int epoll_after(void)
{
	int fd = moved(), set = raw_set();
	char buf[5];

	tell(SEND);
	told(SEND);
	raw_ctl(set, EPOLL_CTL_ADD, fd, EPOLLIN);
	raw_wait(set, fd, EPOLLIN);
	get(fd, buf, sizeof(buf));
	tell(SEND);
	return finish(fd);
}

/* The connection is in the set before it could have moved, but for
 * EXS_UPGRADE=connect: then it may move, and comes back. */
static int epoll_early(void)
{
	int fd = meet(), set = raw_set();
	time_t end = time(NULL) + LIMIT / 1000;
	char buf[BLOCK] = { 0 };

	raw_ctl(set, EPOLL_CTL_ADD, fd, EPOLLIN);
	for (int i = 0;
	     i < 100 || about(fd).exs_x_reason != EXS_X_REASON_UNSEEN_WAIT;
	     i++) {
		tell(ECHO);
		put(fd, buf, sizeof(buf));
		raw_wait(set, fd, EPOLLIN);
		get(fd, buf, sizeof(buf));
		told(ECHO);
		if (time(NULL) > end)
			errx(1, "it is not noticed");
	}
	tell(SEND);
	raw_wait(set, fd, EPOLLIN);
	return finish(fd);
}

/* A set that a parent made, and the number by which the connection is added is
 * closed then. */
static int epoll_inherited(void)
{
	int set = raw_set(), status, fd, also;
	pid_t pid = fork();

	if (pid) {
		must(waitpid(pid, &status, 0) == pid, "waitpid");
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	fd = moved();
	also = dup(fd);
	raw_ctl(set, EPOLL_CTL_ADD, also, EPOLLIN);
	close(also);
	tell(SEND);
	raw_wait(set, also, EPOLLIN);
	return finish(fd);
}

static int seen_set(int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.fd = fd };
	int set = epoll_create1(0);

	must(set >= 0, "epoll_create1");
	must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
	return set;
}

/* A set that nobody sees, around one that is seen, and not waited for. */
static int epoll_outer(void)
{
	int fd = moved(), set = seen_set(fd, EPOLLIN), outer = raw_set();

	raw_ctl(outer, EPOLL_CTL_ADD, set, EPOLLIN);
	tell(SEND);
	raw_wait(outer, set, EPOLLIN);
	return finish(fd);
}

/* An edge of room: the kernel tells one only after it refused. */
static int room_of(int fd, int set)
{
	static char buf[65536];
	ssize_t n = 1;

	must(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
	raw_wait(set, fd, EPOLLOUT);
	while (n > 0)
		n = send(fd, buf, sizeof(buf), MSG_NOSIGNAL);
	must(errno == EAGAIN, "send");
	tell(TAKE);
	raw_wait(set, fd, EPOLLOUT);
	told(TAKE);
	tell(LEAVE);
	wait(NULL);
	return 0;
}

static int epoll_room(void)
{
	int fd = moved(), set = raw_set();

	raw_ctl(set, EPOLL_CTL_ADD, fd, EPOLLOUT | EPOLLET);
	return room_of(fd, set);
}

/* --- sets that are seen, and waits that are not -------------------------- */

static int known_of(int fd, uint32_t flags)
{
	int set = seen_set(fd, EPOLLIN | flags);

	tell(SEND);
	raw_wait(set, fd, EPOLLIN);
	return finish(fd);
}

static int known_level(void)
{
	return known_of(moved(), 0);
}

static int known_edge(void)
{
	return known_of(moved(), EPOLLET);
}

static int known_once(void)
{
	return known_of(moved(), EPOLLONESHOT);
}

static int known_exclusive(void)
{
	return known_of(moved(), EPOLLEXCLUSIVE);
}

static int known_room(void)
{
	int fd = moved();

	return room_of(fd, seen_set(fd, EPOLLOUT | EPOLLET));
}

/* In the set before it moves: then it does not. */
static int known_early_with(uint32_t flags)
{
	int fd = meet(), set = seen_set(fd, EPOLLIN | flags);
	struct epoll_event e = { .events = EPOLLIN | flags, .data.fd = fd };
	time_t end = time(NULL) + LIMIT / 1000;
	char buf[BLOCK] = { 0 };

	while (about(fd).exs_x_reason != EXS_X_REASON_UNSEEN_WAIT) {
		tell(ECHO);
		put(fd, buf, sizeof(buf));
		raw_wait(set, fd, EPOLLIN);
		get(fd, buf, sizeof(buf));
		told(ECHO);
		must(epoll_ctl(set, EPOLL_CTL_MOD, fd, &e) == 0, "epoll_ctl");
		if (time(NULL) > end)
			errx(1, "it is not noticed");
	}
	tell(SEND);
	raw_wait(set, fd, EPOLLIN);
	return finish(fd);
}

static int known_early(void)
{
	return known_early_with(0);
}

static int known_early_once(void)
{
	return known_early_with(EPOLLONESHOT);
}

/* A shot is told once, and with what the application gave. */
static int known_shot(void)
{
	int fd = meet(), set = seen_set(fd, EPOLLIN | EPOLLONESHOT);
	time_t end = time(NULL) + LIMIT / 1000;
	struct epoll_event e;

	while (about(fd).exs_x_reason != EXS_X_REASON_UNSEEN_WAIT) {
		trip(fd);
		if (time(NULL) > end)
			errx(1, "it is not noticed");
	}
	tell(SEND);
	raw_wait(set, fd, EPOLLIN);
	if (raw(SYS_epoll_pwait, set, (long)&e, 1, 50, 0))
		errx(1, "a second shot");
	return finish(fd);
}

/* The first wait that is seen lets the connection move, and is told of the
 * shot. */
static int known_waited(void)
{
	int fd = meet(), set = seen_set(fd, EPOLLIN | EPOLLONESHOT);
	struct epoll_event e = { .events = 0 };
	time_t end = time(NULL) + LIMIT / 1000;

	trip(fd); /* with EXS_UPGRADE=connect it has met, perhaps */
	while (!on_shm(fd)) {
		must(epoll_wait(set, &e, 1, 0) == 0, "no event");
		trip(fd);
		if (time(NULL) > end)
			errx(1, "it does not move");
	}
	tell(SEND);
	must(epoll_wait(set, &e, 1, LIMIT) == 1, "one event");
	must(e.data.fd == fd && e.events == EPOLLIN, "the shot");
	must(epoll_wait(set, &e, 1, 50) == 0, "no second shot");
	return finish(fd);
}

/* With trips nothing lies unread, so a connection that was moved before it came
 * into the set, as with EXS_UPGRADE=connect, stays where it is. */
static void is_noticed(int fd, bool trips)
{
	time_t end = time(NULL) + LIMIT / 1000;

	while (about(fd).exs_x_reason != EXS_X_REASON_UNSEEN_WAIT) {
		if (trips && strcmp(about(fd).exs_x_rx_fabric, "shm") == 0)
			return;
		if (trips)
			trip(fd);
		else
			poll(NULL, 0, 1);
		if (time(NULL) > end)
			errx(1, "it is not noticed");
	}
}

static int comes_back(int fd)
{
	time_t end = time(NULL) + LIMIT / 1000;

	while (!on_shm(fd)) {
		trip(fd);
		if (time(NULL) > end)
			errx(1, "it does not move again");
	}
	tell(SEND);
	return finish(fd);
}

/* The program moves many bytes before it waits for the first time. */
static int known_waited_late(void)
{
	int fd = meet(), set = seen_set(fd, EPOLLIN);
	struct epoll_event e;

	is_noticed(fd, true);
	must(epoll_wait(set, &e, 1, 0) == 0, "no event");
	return comes_back(fd);
}

/* It never waits for that set. */
static int known_removed(void)
{
	int fd = meet(), set = seen_set(fd, EPOLLIN);

	is_noticed(fd, true);
	must(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0, "epoll_ctl");
	return comes_back(fd);
}

/* The bytes of a connection that has moved lie there for long before the
 * program waits for them. */
static int known_found(void)
{
	int fd = moved(), set = seen_set(fd, EPOLLIN | EPOLLET);
	struct epoll_event e = { .events = 0 };
	char buf[5];

	tell(SEND);
	is_noticed(fd, false);
	must(epoll_wait(set, &e, 1, LIMIT) == 1, "one event");
	must(e.data.fd == fd && e.events == EPOLLIN, "the event");
	get(fd, buf, sizeof(buf));
	told(SEND);
	return comes_back(fd);
}

/* --- threads asleep in the kernel --------------------------------------- */

static int read_late(void)
{
	int fd = moved();
	char buf[5] = "";

	tell(SEND);
	for (long n, done = 0; done < 5; done += n)
		must((n = raw(SYS_read, fd, (long)buf + done, 5 - done, 0, 0)) >
			     0,
		     "read");
	if (memcmp(buf, "event", 5) != 0)
		errx(1, "other bytes came");
	told(SEND);
	tell(SEND);
	return finish(fd);
}

static int poll_late(void)
{
	int fd = moved();
	struct pollfd p[2] = { { .fd = -1, .events = POLLIN },
			       { .fd = fd, .events = POLLIN } };

	tell(SEND);
	if (raw(SYS_ppoll, (long)p, 2, 0, 0, 0) != 1 ||
	    !(p[1].revents & POLLIN))
		errx(1, "ppoll");
	return finish(fd);
}

static int select_late(void)
{
	int fd = moved();
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	tell(SEND);
	if (raw(SYS_pselect6, fd + 1, (long)&set, 0, 0, 0) != 1)
		errx(1, "pselect6");
	return finish(fd);
}

/* No wait is ever seen, and none found asleep. */
static int never_asleep(bool (*there)(int fd))
{
	int fd = meet();
	time_t end = time(NULL) + LIMIT / 1000;
	char buf[BLOCK] = { 0 };

	while (about(fd).exs_x_reason != EXS_X_REASON_UNSEEN_WAIT) {
		tell(ECHO);
		put(fd, buf, sizeof(buf));
		while (!there(fd))
			poll(NULL, 0, 1);
		get(fd, buf, sizeof(buf));
		told(ECHO);
		if (time(NULL) > end)
			errx(1, "it is not noticed");
	}
	tell(SEND);
	while (!there(fd))
		poll(NULL, 0, 1);
	return finish(fd);
}

static bool polled(int fd)
{
	struct timespec now = { 0 };
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return raw(SYS_ppoll, (long)&p, 1, (long)&now, 0, 0) == 1;
}

static int poll_awake(void)
{
	return never_asleep(polled);
}

static bool peeked(int fd)
{
	char c;

	return raw(SYS_recvfrom, fd, (long)&c, 1, MSG_DONTWAIT | MSG_PEEK, 0) ==
	       1;
}

static int recv_awake(void)
{
	return never_asleep(peeked);
}

/* --- rings -------------------------------------------------------------- */

#ifdef HAVE_URING
static void ring_of(struct io_uring *ring, unsigned int flags)
{
	int ret = io_uring_queue_init(8, ring, flags);

	if (ret == -ENOSYS || ret == -EPERM)
		exit(SKIP);
	if (ret)
		errx(1, "io_uring_queue_init: %d", ret);
}

static int completed(struct io_uring *ring)
{
	struct __kernel_timespec t = { .tv_sec = LIMIT / 1000 };
	struct io_uring_cqe *cqe;
	int ret = io_uring_wait_cqe_timeout(ring, &cqe, &t);

	if (ret)
		errx(1, "no completion: %d", ret);
	ret = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

static int ring_polls(unsigned int flags)
{
	int fd = moved();
	struct io_uring ring;

	ring_of(&ring, flags);
	io_uring_prep_poll_add(io_uring_get_sqe(&ring), fd, POLLIN);
	io_uring_submit(&ring);
	tell(SEND);
	if (!(completed(&ring) & POLLIN))
		errx(1, "another event");
	return finish(fd);
}

static int ring_poll(void)
{
	return ring_polls(0);
}

static int ring_sqpoll(void)
{
	return ring_polls(IORING_SETUP_SQPOLL);
}

/* Its descriptor is registered, and closed. */
static int ring_unlisted(void)
{
	int fd = moved();
	struct io_uring ring;

	ring_of(&ring, 0);
	if (io_uring_register_ring_fd(&ring) != 1)
		return SKIP;
	io_uring_prep_poll_add(io_uring_get_sqe(&ring), fd, POLLIN);
	io_uring_submit(&ring);
	close(ring.ring_fd);
	tell(SEND);
	if (!(completed(&ring) & POLLIN))
		errx(1, "another event");
	return finish(fd);
}

static int ring_recv(void)
{
	int fd = moved();
	struct io_uring ring;
	char buf[5] = "";

	ring_of(&ring, 0);
	io_uring_prep_recv(io_uring_get_sqe(&ring), fd, buf, 5, MSG_WAITALL);
	io_uring_submit(&ring);
	tell(SEND);
	if (completed(&ring) != 5 || memcmp(buf, "event", 5) != 0)
		errx(1, "other bytes came");
	told(SEND);
	tell(SEND);
	return finish(fd);
}

/* With EXS_IO_URING=files: the ring is there before the connection moves, and
 * for longer than it takes until a wait is searched for. */
static int files(void)
{
	struct __kernel_timespec t = { .tv_sec = 1, .tv_nsec = 500000000 };
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), fd;
	struct io_uring ring;
	char buf[4] = "";

	ring_of(&ring, 0);
	fd = moved();
	io_uring_prep_read(io_uring_get_sqe(&ring), file, buf, 4, 0);
	io_uring_submit(&ring);
	if (completed(&ring) != 4 || memcmp(buf, "\177ELF", 4) != 0)
		errx(1, "another file");
	tell(SEND);
	io_uring_prep_timeout(io_uring_get_sqe(&ring), &t, 0, 0);
	io_uring_submit(&ring);
	if (completed(&ring) != -ETIME)
		errx(1, "no timeout");
	return finish(fd);
}
#else
static int ring_poll(void)
{
	return SKIP;
}
#define files	      ring_poll
#define ring_sqpoll   ring_poll
#define ring_recv     ring_poll
#define ring_unlisted ring_poll
#endif

/* --- nobody waits ------------------------------------------------------- */

/* The program has a set of its own with something else in it, of which nothing
 * comes for longer than it takes until a wait is searched for. */
static int elsewhere(void)
{
	int fd = moved(), set = raw_set(), other[2];
	struct epoll_event e;

	must(pipe(other) == 0, "pipe");
	raw_ctl(set, EPOLL_CTL_ADD, other[0], EPOLLIN);
	tell(SEND);
	if (raw(SYS_epoll_pwait, set, (long)&e, 1, 1500, 0))
		errx(1, "epoll_pwait");
	return finish(fd);
}

static const struct row rows[] = {
	{ "epoll_level", epoll_level },
	{ "epoll_edge", epoll_edge },
	{ "epoll_once", epoll_once },
	{ "epoll_after", epoll_after },
	{ "epoll_early", epoll_early },
	{ "epoll_inherited", epoll_inherited },
	{ "epoll_outer", epoll_outer },
	{ "epoll_room", epoll_room },
	{ "known_level", known_level },
	{ "known_edge", known_edge },
	{ "known_once", known_once },
	{ "known_exclusive", known_exclusive },
	{ "known_room", known_room },
	{ "known_early", known_early },
	{ "known_early_once", known_early_once },
	{ "known_shot", known_shot },
	{ "known_waited", known_waited },
	{ "known_waited_late", known_waited_late },
	{ "known_removed", known_removed },
	{ "known_found", known_found },
	{ "read_late", read_late },
	{ "poll_late", poll_late },
	{ "select_late", select_late },
	{ "poll_awake", poll_awake },
	{ "recv_awake", recv_awake },
	{ "ring_poll", ring_poll },
	{ "ring_sqpoll", ring_sqpoll },
	{ "ring_recv", ring_recv },
	{ "ring_unlisted", ring_unlisted },
	{ "files", files },
	{ "elsewhere", elsewhere },
};

int main(int argc, char **argv)
{
	return run_row(rows, sizeof(rows) / sizeof(rows[0]), argc, argv);
}
