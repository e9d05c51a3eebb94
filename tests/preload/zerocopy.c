/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends with MSG_ZEROCOPY: the reports in the error queue, and the waits that
 * notice them. Ranges of reports are merged at random, so rows print the union
 * of all reports. */
#include "behave.h"

#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SENDS 64 /* at most, in a row */

static char bytes[20000];

static void turn_on(int fd)
{
	int one = 1;

	is("on", setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)));
}

static void asked(int fd)
{
	int on = -1;
	socklen_t len = sizeof(on);

	getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, &len);
	say("option=%d", on);
}

/* A send, whose bytes the peer takes. */
static void put(size_t n)
{
	if (send(here, bytes, n, MSG_ZEROCOPY) != (ssize_t)n)
		die("send");
	get_all(peer, bytes, n);
}

/* One word of the queue; false: there is none. Counts what it tells of. */
static bool word(int told[SENDS])
{
	_Alignas(struct cmsghdr) char room[256];
	struct msghdr m = { .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct sock_extended_err ee;
	struct cmsghdr *c;

	if (recvmsg(here, &m, MSG_ERRQUEUE) < 0)
		return false;
	c = CMSG_FIRSTHDR(&m);
	if (!c || m.msg_flags != MSG_ERRQUEUE)
		die("a word with flags or without a head");
	memcpy(&ee, CMSG_DATA(c), sizeof(ee));
	if (ee.ee_errno || ee.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
		die("a word of something else");
	for (uint32_t i = ee.ee_info; i <= ee.ee_data && i < SENDS; i++)
		told[i]++;
	return true;
}

/* All of n sends, each once, in a second. */
static void all_told(int n)
{
	int64_t end = now_ns() + 1000000000;
	int told[SENDS] = { 0 }, i, good = 0;

	while (good < n && now_ns() < end) {
		settle(here, POLLERR);
		while (word(told))
			;
		for (i = good = 0; i < SENDS; i++)
			good += told[i] == (i < n);
		good -= SENDS - n;
	}
	say("told");
	for (i = 0; i < SENDS; i++)
		if (told[i] != (i < n))
			say("%d:%d", i, told[i]);
}

static void nothing(const char *what)
{
	char c;

	is(what, recv(here, &c, 1, MSG_ERRQUEUE));
}

ROW(zerocopy_each_call)
{
	struct iovec v[2] = { { bytes, 300 }, { bytes, 700 } };
	struct mmsghdr m[3] = { 0 };

	pair();
	turn_on(here);
	asked(here);
	for (int i = 0; i < 3; i++)
		m[i].msg_hdr = (struct msghdr){ .msg_iov = v, .msg_iovlen = 2 };
	is("send", send(here, bytes, 1000, MSG_ZEROCOPY));
	is("sendto", sendto(here, bytes, 1000, MSG_ZEROCOPY, NULL, 0));
	is("sendmsg", sendmsg(here, &m->msg_hdr, MSG_ZEROCOPY));
	is("sendmmsg", sendmmsg(here, m, 3, MSG_ZEROCOPY));
	is("plain", send(here, bytes, 1000, 0));
	get_all(peer, bytes, 7000);
	all_told(6);
	nothing("more");
}

ROW(zerocopy_many)
{
	pair();
	turn_on(here);
	for (int i = 0; i < SENDS; i++)
		put((size_t)(1 + i * 300));
	all_told(SENDS);
}

ROW(zerocopy_without_the_option)
{
	pair();
	asked(here);
	put(1000);
	nothing("queue");
	poll_one("poll", here, 0, 0);
}

ROW(zerocopy_switched_off)
{
	int off = 0;

	pair();
	turn_on(here);
	put(1000);
	setsockopt(here, SOL_SOCKET, SO_ZEROCOPY, &off, sizeof(off));
	asked(here);
	put(1000);
	all_told(1);
	turn_on(here);
	put(1000);
	settle(here, POLLERR);
	poll_one("poll", here, 0, 0);
}

ROW(zerocopy_of_nothing)
{
	struct iovec none = { bytes, 0 };
	struct msghdr m = { .msg_iov = &none, .msg_iovlen = 1 };

	pair();
	turn_on(here);
	is("send", send(here, bytes, 0, MSG_ZEROCOPY));
	is("sendmsg", sendmsg(here, &m, MSG_ZEROCOPY));
	nothing("queue");
	put(1000);
	all_told(1);
}

ROW(zerocopy_inherited)
{
	struct sockaddr_storage at;
	socklen_t len;
	int one = 1, l = listener(AF_INET, &at, &len);

	setsockopt(l, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one));
	peer = socket(stream_family, stream_type, 0);
	is("connect", connect(peer, (struct sockaddr *)&at, len));
	here = accept(l, NULL, NULL);
	close(l);
	warm(here, peer);
	asked(here);
	put(5000);
	all_told(1);
}

ROW(zerocopy_polled)
{
	pair();
	turn_on(here);
	poll_one("before", here, 0, 0);
	put(1000);
	settle(here, POLLERR);
	poll_one("after", here, 0, 0);
	poll_one("asked", here, POLLIN | POLLOUT, 0);
	all_told(1);
	poll_one("told", here, 0, 0);
}

static void put_late(void)
{
	put(1000);
}

ROW(zerocopy_awaited)
{
	pair();
	turn_on(here);
	later(40, put_late);
	poll_one("poll", here, 0, 2000);
	later_end();
	all_told(1);
	later(40, put_late);
	poll_one("poll", here, POLLIN, 2000);
	later_end();
}

static int set_of(uint32_t what)
{
	struct epoll_event e = { .events = what };
	int set = epoll_create1(0);

	epoll_ctl(set, EPOLL_CTL_ADD, here, &e);
	return set;
}

static void ask(const char *what, int set, int ms)
{
	struct epoll_event e = { 0 };
	long n = is(what, epoll_wait(set, &e, 1, ms));

	if (n > 0)
		events("events", e.events);
}

ROW(zerocopy_epoll_level)
{
	int set;

	pair();
	turn_on(here);
	set = set_of(EPOLLIN);
	ask("before", set, 0);
	put(1000);
	ask("after", set, 2000);
	ask("again", set, 0);
	all_told(1);
	ask("told", set, 0);
	later(40, put_late);
	ask("late", set, 2000);
	later_end();
}

/* Each word is an edge, whether the one before was read or not. */
ROW(zerocopy_epoll_edge)
{
	int set;

	pair();
	turn_on(here);
	set = set_of(EPOLLIN | EPOLLET);
	ask("before", set, 0);
	put(1000);
	ask("after", set, 2000);
	ask("again", set, 40);
	all_told(1);
	put(1000);
	ask("after", set, 2000);
	put(1000);
	ask("after", set, 2000);
	ask("again", set, 40);
}

/* What is told in no room is gone, and the flags say so. */
ROW(zerocopy_small_room)
{
	_Alignas(struct cmsghdr) char room[64];
	struct msghdr m = { .msg_control = room };

	pair();
	turn_on(here);
	for (size_t n = 0; n <= 64; n += 8) {
		put(100);
		settle(here, POLLERR);
		m.msg_controllen = n;
		m.msg_flags = 0;
		is("recvmsg", recvmsg(here, &m, MSG_ERRQUEUE));
		say("%zu:%zu%s", n, m.msg_controllen,
		    m.msg_flags & MSG_CTRUNC ? "-" : "");
	}
	m.msg_control = NULL;
	put(100);
	settle(here, POLLERR);
	is("recvmsg", recvmsg(here, &m, MSG_ERRQUEUE));
	say("%zu%s", m.msg_controllen, m.msg_flags & MSG_CTRUNC ? "-" : "");
	nothing("queue");
}

ROW(zerocopy_each_receive)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	struct iovec v = { bytes, 10 };
	struct mmsghdr m[2] = { { .msg_hdr = { .msg_iov = &v,
					       .msg_iovlen = 1 } } };
	char c[10];

	pair();
	turn_on(here);
	for (int i = 0; i < 3; i++) {
		put(1000);
		settle(here, POLLERR);
		is("receive",
		   i == 0   ? recv(here, c, sizeof(c), MSG_ERRQUEUE)
		   : i == 1 ? recvfrom(here, c, sizeof(c), MSG_ERRQUEUE,
				       (struct sockaddr *)&a, &len)
			    : recvmmsg(here, m, 1, MSG_ERRQUEUE, NULL));
		nothing("more");
	}
	say("%u %u", len, m[0].msg_len);
}

static void six(bool mapped)
{
	_Alignas(struct cmsghdr) char room[256];
	struct msghdr m = { .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct cmsghdr *c;

	cold_pair(AF_INET6, mapped);
	warm(here, peer);
	turn_on(here);
	put(1000);
	settle(here, POLLERR);
	is("recvmsg", recvmsg(here, &m, MSG_ERRQUEUE));
	c = CMSG_FIRSTHDR(&m);
	if (c)
		say("%d %d %zu", c->cmsg_level, c->cmsg_type,
		    (size_t)c->cmsg_len);
}

ROW(zerocopy_ipv6)
{
	six(false);
}

ROW(zerocopy_mapped)
{
	six(true);
}

/* What moves a connection, while words wait to be read. */
static void move(void)
{
	char buf[1024] = { 0 };

	for (int i = 0; i < 18; i++) {
		put_all(here, buf, sizeof(buf));
		get_all(peer, buf, sizeof(buf));
		put_all(peer, buf, sizeof(buf));
		get_all(here, buf, sizeof(buf));
		pass_ms(i % 2);
	}
}

/* One sequence, wherever the connection is: it moves when it is warm, and back
 * with the flag. */
ROW(zerocopy_numbers)
{
	int fl;

	cold_pair(AF_INET, false);
	turn_on(here);
	for (int i = 0; i < 4; i++)
		put(700);
	move();
	for (int i = 0; i < 4; i++)
		put(700);
	fl = fcntl(here, F_GETFL);
	is("async", fcntl(here, F_SETFL, fl | O_ASYNC));
	for (int i = 0; i < 4; i++)
		put(700);
	all_told(12);
	nothing("more");
	for (int i = 0; i < 4; i++)
		put(700);
	settle(here, POLLERR);
	poll_one("poll", here, 0, 0);
}

/* Parts of one call are one send. */
ROW(zerocopy_waits_for_room)
{
	static char large[1 << 20]; /* may be locked: RLIMIT_MEMLOCK */

	pair();
	turn_on(here);
	nonblock(here, true);
	is("first", send(here, large, sizeof(large), MSG_ZEROCOPY) > 0);
	while (send(here, large, sizeof(large), MSG_ZEROCOPY) > 0)
		; /* how many is the buffers' affair */
	is("full", send(here, large, 1, MSG_ZEROCOPY));
	drain(peer);
	settle(here, POLLERR);
	poll_one("poll", here, 0, 0);
}
