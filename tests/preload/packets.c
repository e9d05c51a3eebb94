/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections and pairs of SOCK_SEQPACKET: each send is a message, and each
 * receive takes one. All runs have these rows; by socketpair with --pair. */
#include "behave.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL_EVENTS (POLLIN | POLLPRI | POLLOUT | POLLRDHUP)
#define LARGEST	   200000

extern char **environ;

static unsigned char out[LARGEST + 64], in[LARGEST + 64];

/* pair(), of messages. */
static void packets(void)
{
	int family = stream_family, type = stream_type;

	stream_family = AF_UNIX;
	stream_type = SOCK_SEQPACKET;
	pair();
	stream_family = family;
	stream_type = type;
}

static long put(const char *text)
{
	return send(peer, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static long put_bytes(int fd, size_t n, int first)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (unsigned char)(first + (int)i * 7);
	return send(fd, out, n, MSG_NOSIGNAL);
}

/* Whether the n bytes are those of put_bytes(). */
static bool same_bytes(const unsigned char *p, size_t n, int first)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != (unsigned char)(first + (int)i * 7))
			return false;
	return true;
}

/* Says n, the length of the address, of the control data, and the flags. */
static long take(const char *what, struct msghdr *m, int flags)
{
	struct sockaddr_storage from;
	long n;

	if (m->msg_iovlen)
		memset(m->msg_iov[0].iov_base, 0, m->msg_iov[0].iov_len);
	m->msg_name = &from;
	m->msg_namelen = sizeof(from);
	m->msg_flags = -1;
	n = recvmsg(here, m, flags | MSG_DONTWAIT);
	got(what, n, m->msg_iovlen ? m->msg_iov[0].iov_base : "");
	if (n >= 0)
		say("name %d control %d flags %#x", (int)m->msg_namelen,
		    (int)m->msg_controllen, (unsigned int)m->msg_flags);
	return n;
}

static void take_one(const char *what, size_t room, int flags)
{
	char buf[64] = "";
	struct iovec v = { buf, room };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	take(what, &m, flags);
}

static void unread(const char *what, int fd)
{
	int n = -1;

	is(what, ioctl(fd, FIONREAD, &n));
	say("%d", n);
}

/* --- boundaries --------------------------------------------------------- */

ROW(packet_each)
{
	packets();
	put("one");
	put("three");
	put("x");
	for (int i = 0; i < 4; i++)
		get_now("recv", here, 64);
}

ROW(packet_cut)
{
	packets();
	put("a long one");
	put("next");
	get_now("recv", here, 4);
	get_now("recv", here, 64);
	get_now("recv", here, 64);
}

ROW(packet_cut_told)
{
	packets();
	put("a long one");
	put("next");
	take_one("cut", 4, 0);
	take_one("whole", 4, 0);
	take_one("none", 4, 0);
}

ROW(packet_cut_to_nothing)
{
	packets();
	put("a long one");
	put("next");
	take_one("cut", 0, 0);
	is("recv0", recv(here, in, 0, MSG_DONTWAIT));
	is("recv0", recv(here, in, 0, MSG_DONTWAIT));
}

ROW(packet_without_room)
{
	struct msghdr m = { 0 };

	packets();
	put("a long one");
	put("next");
	take("peek", &m, MSG_PEEK);
	take("take", &m, 0);
	get_now("recv", here, 64);
}

ROW(packet_length)
{
	packets();
	put("a long one");
	put("next");
	is("recv", recv(here, in, 4, MSG_TRUNC | MSG_DONTWAIT));
	got("of it", 6, in);
	take_one("msg", 2, MSG_TRUNC);
	get_now("recv", here, 64);
}

ROW(packet_length_peeked)
{
	packets();
	put("a long one");
	put("next");
	is("length", recv(here, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT));
	is("length", recv(here, in, 3, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT));
	take_one("peek", 3, MSG_PEEK);
	take_one("peek", 3, MSG_PEEK | MSG_TRUNC);
	get_now("recv", here, 64);
	is("length", recv(here, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT));
	get_now("recv", here, 64);
	is("length", recv(here, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT));
}

ROW(packet_peek)
{
	packets();
	put("one");
	put("two");
	for (int i = 0; i < 2; i++)
		take_one("peek", 64, MSG_PEEK);
	take_one("recv", 64, 0);
	take_one("peek", 64, MSG_PEEK);
	take_one("recv", 64, 0);
	take_one("peek", 64, MSG_PEEK);
}

ROW(packet_end_of_record)
{
	packets();
	is("eor", send(peer, "one", 3, MSG_EOR));
	take_one("recv", 64, 0);
	is("more", send(peer, "two", 3, MSG_MORE));
	take_one("recv", 64, 0);
	is("write", write(peer, "six", 3));
	take_one("recv", 64, 0);
	is("write", write(peer, "six", 3));
	take_one("cut", 2, 0);
}

ROW(packet_pieces)
{
	struct iovec v[] = { { (char[]){ "one" }, 3 },
			     { NULL, 0 },
			     { (char[]){ "three" }, 5 } };
	char a[4] = "", b[3] = "";
	struct iovec to[] = { { a, 2 }, { b, 2 } };
	struct msghdr m = { .msg_iov = to, .msg_iovlen = 2 };

	packets();
	is("writev", writev(peer, v, 3));
	is("writev", writev(peer, v, 3));
	is("writev", writev(peer, v, 3));
	get_now("recv", here, 64);
	is("readv", readv(here, to, 2));
	say("%s %s", a, b);
	take("recvmsg", &m, 0);
	say("%s %s", a, b);
	get_now("recv", here, 64);
}

ROW(packet_several_calls)
{
	struct iovec v[] = { { (char[]){ "one" }, 3 },
			     { (char[]){ "" }, 0 },
			     { (char[]){ "three" }, 5 } };
	struct mmsghdr m[4] = { 0 };
	char buf[4][4];
	struct iovec to[4];
	int n;

	packets();
	for (int i = 0; i < 3; i++) {
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	n = (int)is("sendmmsg", sendmmsg(peer, m, 3, 0));
	for (int i = 0; i < n; i++)
		say("%u", m[i].msg_len);
	memset(m, 0, sizeof(m));
	for (int i = 0; i < 4; i++) {
		to[i] = (struct iovec){ buf[i], sizeof(buf[i]) };
		m[i].msg_hdr.msg_iov = &to[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	n = (int)is("recvmmsg", recvmmsg(here, m, 4, MSG_DONTWAIT, NULL));
	for (int i = 0; i < n; i++) {
		got("message", m[i].msg_len, buf[i]);
		say("flags %#x", (unsigned int)m[i].msg_hdr.msg_flags);
	}
	is("again", recvmmsg(here, m, 4, MSG_DONTWAIT, NULL));
}

static void late_message(void)
{
	put("late");
}

ROW(packet_several_wait)
{
	char buf[2][8];
	struct iovec to[] = { { buf[0], 8 }, { buf[1], 8 } };
	struct mmsghdr m[] = {
		{ .msg_hdr = { .msg_iov = to, .msg_iovlen = 1 } },
		{ .msg_hdr = { .msg_iov = to + 1, .msg_iovlen = 1 } },
	};

	packets();
	later(60, late_message);
	TIMED("one", recvmmsg(here, m, 2, MSG_WAITFORONE, NULL));
	later_end();
	put("first");
	later(60, late_message);
	TIMED("two", recvmmsg(here, m, 2, 0, NULL));
	later_end();
	got("first", m[0].msg_len, buf[0]);
	got("second", m[1].msg_len, buf[1]);
}

ROW(packet_waitall)
{
	packets();
	put("one");
	put("two");
	got("recv", recv(here, in, 20, MSG_WAITALL), in);
	got("recv", recv(here, in, 2, MSG_WAITALL), in);
	get_now("recv", here, 64);
}

ROW(packet_low_water)
{
	int n = 100;

	packets();
	is("set", setsockopt(here, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
	poll_one("poll", here, POLLIN, 0);
	put("one");
	poll_one("poll", here, POLLIN, 0);
	got("recv", recv(here, in, sizeof(in), 0), in);
	later(60, late_message);
	TIMED("recv", recv(here, in, sizeof(in), 0));
	later_end();
}

static void row_size(void)
{
	static const size_t sizes[] = { 1,	15,	16,    17,    63,
					64,	65,	4095,  4096,  4097,
					24575,	24576,	24577, 65535, 65536,
					100000, LARGEST };
	size_t n = sizes[which_row];

	packets();
	for (int i = 0; i < 3; i++) {
		is("send", put_bytes(peer, n, i));
		is("recv", recv(here, in, sizeof(in), 0));
		say("%s", same_bytes(in, n, i) ? "same" : "different");
		is("send", put_bytes(here, n, i + 9));
		is("cut", recv(peer, in, n / 2 + 1, MSG_TRUNC));
		say("%s", same_bytes(in, n / 2 + 1, i + 9) || n == 1
				  ? "same"
				  : "different");
		is("none", recv(peer, in, sizeof(in), MSG_DONTWAIT));
	}
}

__attribute__((constructor)) static void add_sizes(void)
{
	static const char *const names[] = {
		"1",	 "15",	  "16",	   "17",     "63",    "64",
		"65",	 "4095",  "4096",  "4097",   "24575", "24576",
		"24577", "65535", "65536", "100000", "200000"
	};

	for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++)
		add_row("packet_of_", names[i], row_size, i);
}

/* --- messages of no bytes ----------------------------------------------- */

ROW(packet_empty)
{
	packets();
	is("send0", send(peer, "", 0, 0));
	put("one");
	is("write0", write(peer, "", 0));
	is("writev0", writev(peer, NULL, 0));
	put("two");
	for (int i = 0; i < 5; i++)
		take_one("recv", 64, 0);
}

ROW(packet_empty_polled)
{
	packets();
	poll_one("poll", here, ALL_EVENTS, 0);
	send(peer, "", 0, 0);
	send(peer, "", 0, 0);
	poll_one("poll", here, ALL_EVENTS, 0);
	get_now("recv", here, 64);
	poll_one("poll", here, ALL_EVENTS, 0);
	get_now("recv", here, 64);
	poll_one("poll", here, ALL_EVENTS, 0);
	get_now("recv", here, 64);
}

ROW(packet_empty_is_no_end)
{
	packets();
	send(peer, "", 0, 0);
	put("last");
	send(peer, "", 0, 0);
	shutdown(peer, SHUT_WR);
	settle(here, POLLRDHUP);
	for (int i = 0; i < 5; i++) {
		poll_one("poll", here, ALL_EVENTS, 0);
		get_now("recv", here, 64);
	}
}

ROW(packet_empty_peeked)
{
	packets();
	send(peer, "", 0, 0);
	put("one");
	take_one("peek", 64, MSG_PEEK);
	is("trunc", recv(here, in, 8, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT));
	take_one("recv", 64, 0);
	take_one("peek", 64, MSG_PEEK);
	take_one("recv", 64, 0);
}

ROW(packet_read_of_nothing)
{
	packets();
	nonblock(here, true);
	is("read0", read(here, in, 0));
	put("one");
	is("read0", read(here, in, 0));
	is("readv0", readv(here, NULL, 0));
	got("read", read(here, in, 64), in);
	send(peer, "", 0, 0);
	is("read", read(here, in, 64));
	is("read", read(here, in, 64));
}

ROW(packet_empty_awaited)
{
	static char c;

	packets();
	send(peer, "", 0, 0);
	TIMED("recv", recv(here, &c, 1, 0));
	later(60, late_message);
	TIMED("recv", recv(here, &c, 1, 0));
	later_end();
}

/* --- what waits --------------------------------------------------------- */

ROW(packet_room)
{
	bool some = false;

	packets();
	while (put("a message") > 0)
		some = true;
	is("full", put("a message"));
	say("%s", some ? "some" : "none");
	poll_one("poll", peer, POLLOUT, 0);
	while (recv(here, in, 64, MSG_DONTWAIT) > 0)
		;
	settle(peer, POLLOUT);
	poll_one("poll", peer, POLLOUT, 0);
	is("send", put("a message"));
	get_now("recv", here, 64);
}

static void read_all(void)
{
	while (recv(here, in, sizeof(in), MSG_DONTWAIT) >= 0)
		;
}

ROW(packet_waits_for_room)
{
	packets();
	while (send(peer, out, 4000, MSG_DONTWAIT) > 0)
		;
	later(60, read_all);
	TIMED("send", send(peer, out, 100000, 0));
	later_end();
	drain(here);
}

static void set_room(int fd, int size)
{
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)))
		die("set SO_SNDBUF");
}

static void count_room(const char *what)
{
	int n = 0;

	while (send(peer, out, 100, MSG_DONTWAIT) == 100)
		n++;
	is(what, n);
	while (n--)
		recv(here, in, sizeof(in), 0);
	n = (int)is("long", send(peer, out, 40000, MSG_DONTWAIT));
	if (n > 0)
		recv(here, in, sizeof(in), 0);
}

/* Smaller, larger than at first, smaller again. */
ROW(packet_room_follows)
{
	static const int sizes[] = { 8192, 16384, 65536, 4608, 90000, 8192 };

	packets();
	count_room("usual");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		set_room(peer, sizes[i]);
		count_room("set");
	}
}

/* What was admitted is received, whatever is set then. */
ROW(packet_room_shrinks)
{
	packets();
	is("long", put_bytes(peer, 60000, 1));
	is("more", put_bytes(peer, 50000, 2));
	set_room(peer, 4608);
	is("full", send(peer, "x", 1, MSG_DONTWAIT));
	is("recv", recv(here, in, sizeof(in), 0));
	is("same", same_bytes(in, 60000, 1));
	shutdown(here, SHUT_RD);
	is("recv", recv(here, in, sizeof(in), 0));
	is("same", same_bytes(in, 50000, 2));
	is("end", recv(here, in, sizeof(in), 0));
}

static void grow_room(void)
{
	set_room(peer, 65536);
}

ROW(packet_room_wakes)
{
	struct epoll_event e = { .events = EPOLLOUT | EPOLLET };
	int set = epoll_create1(EPOLL_CLOEXEC);

	packets();
	set_room(peer, 8192);
	while (send(peer, out, 100, MSG_DONTWAIT) > 0)
		;
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, peer, &e));
	is("wait", epoll_wait(set, &e, 1, 0));
	later(60, grow_room);
	TIMED("wait", epoll_wait(set, &e, 1, 5000));
	later_end();
	is("send", put("x"));
	set_room(peer, 8192);
	while (send(peer, out, 100, MSG_DONTWAIT) > 0)
		;
	later(60, grow_room);
	TIMED("send", send(peer, out, 100, MSG_NOSIGNAL));
	later_end();
	drain(here);
}

/* A message that finds too little room leaves nothing of itself. */
ROW(packet_all_or_nothing)
{
	long large = 0, n;

	packets();
	while (send(peer, out, 1000, MSG_DONTWAIT) > 0)
		;
	for (int i = 0; i < 20; i++)
		recv(here, in, sizeof(in), MSG_DONTWAIT);
	is("large", send(peer, out, 100000, MSG_DONTWAIT));
	is("small", put("small"));
	while ((n = recv(here, in, sizeof(in), MSG_DONTWAIT)) > 0)
		large += n != 1000 && n != 5;
	is("others", large);
	is("then", n);
}

ROW(packet_too_large)
{
	int size = 0, set = 20000;
	socklen_t len = sizeof(size);

	packets();
	getsockopt(peer, SOL_SOCKET, SO_SNDBUF, &size, &len);
	if (size < 1 || size > 1 << 24)
		die("find a usual size");
	for (int i = 0; i < 2; i++) {
		char *big = calloc(1, (size_t)size + 100);

		if (!big)
			die("have memory");
		is("fits", send(peer, big, (size_t)size - 32, MSG_DONTWAIT) ==
				   size - 32);
		is("recv", recv(here, big, (size_t)size + 100, MSG_DONTWAIT) ==
				   size - 32);
		is("more", send(peer, big, (size_t)size - 31, MSG_DONTWAIT));
		is("all", send(peer, big, (size_t)size + 100, 0));
		is("none", recv(here, big, 64, MSG_DONTWAIT));
		free(big);
		setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &set, sizeof(set));
		getsockopt(peer, SOL_SOCKET, SO_SNDBUF, &size, &len);
	}
}

ROW(packet_times_out)
{
	struct timeval t = { .tv_usec = 60000 };

	packets();
	setsockopt(here, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(here, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	TIMED("recv", recv(here, in, sizeof(in), 0));
	while (send(here, out, 5000, MSG_DONTWAIT) > 0)
		;
	TIMED("send", send(here, out, 5000, 0));
}

ROW(packet_one_end_waits)
{
	packets();
	nonblock(here, true);
	is("read", read(here, in, 64));
	put("one");
	got("read", read(here, in, 64), in);
	later(60, late_message);
	nonblock(here, false);
	TIMED("read", read(here, in, 64));
	later_end();
}

static void handle(int sig)
{
}

ROW(packet_interrupted)
{
	struct sigaction a = { .sa_handler = handle };
	struct itimerval t = { .it_value.tv_usec = 60000 };

	packets();
	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
	TIMED("recv", recv(here, in, sizeof(in), 0));
}

ROW(packet_epoll)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP }, ev[2];
	int ep = epoll_create1(0);

	packets();
	is("add", epoll_ctl(ep, EPOLL_CTL_ADD, here, &e));
	is("wait", epoll_wait(ep, ev, 2, 0));
	put("one");
	send(peer, "", 0, 0);
	for (int i = 0; i < 3; i++) {
		if (is("wait", epoll_wait(ep, ev, 2, 0)) > 0)
			events("events", ev[0].events);
		get_now("recv", here, 2);
	}
	shutdown(peer, SHUT_WR);
	if (is("wait", epoll_wait(ep, ev, 2, 1000)) > 0)
		events("events", ev[0].events);
}

ROW(packet_epoll_edge)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET }, ev[2];
	int ep = epoll_create1(0);

	packets();
	is("add", epoll_ctl(ep, EPOLL_CTL_ADD, here, &e));
	put("one");
	is("wait", epoll_wait(ep, ev, 2, 1000));
	is("wait", epoll_wait(ep, ev, 2, 0));
	send(peer, "", 0, 0);
	is("wait", epoll_wait(ep, ev, 2, 1000));
	is("wait", epoll_wait(ep, ev, 2, 0));
	get_now("recv", here, 64);
	is("wait", epoll_wait(ep, ev, 2, 0));
	get_now("recv", here, 64);
	put("three");
	is("wait", epoll_wait(ep, ev, 2, 1000));
	get_now("recv", here, 1);
	is("wait", epoll_wait(ep, ev, 2, 0));
}

ROW(packet_epoll_wakes)
{
	struct epoll_event e = { .events = EPOLLIN }, ev[2];
	int ep = epoll_create1(0);

	packets();
	is("add", epoll_ctl(ep, EPOLL_CTL_ADD, here, &e));
	later(60, late_message);
	TIMED("wait", epoll_wait(ep, ev, 2, 2000));
	later_end();
	get_now("recv", here, 64);
}

ROW(packet_select)
{
	struct timeval t = { 0 };
	fd_set r, w;

	packets();
	for (int i = 0; i < 3; i++) {
		FD_ZERO(&r);
		FD_SET(here, &r);
		w = r;
		is("select", select(here + 1, &r, &w, NULL, &t));
		say("%d %d", FD_ISSET(here, &r) != 0, FD_ISSET(here, &w) != 0);
		if (i == 0)
			send(peer, "", 0, 0);
		else
			get_now("recv", here, 64);
	}
}

/* --- what comes beside the bytes ---------------------------------------- */

static long put_fd(int fd, const char *text, size_t len)
{
	struct iovec v = { (char *)(uintptr_t)text, len };
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = "";
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(peer, &m, MSG_NOSIGNAL);
}

/* Receives with room for descriptors, and says whether one came. */
static void take_with_fd(size_t room, int flags)
{
	char buf[64] = "";
	struct iovec v = { buf, room };
	_Alignas(struct cmsghdr) char control[64];
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	int fd = -1;

	if (take("recv", &m, flags) < 0)
		return;
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	say("%s", fd < 0 ? "no descriptor" : "a descriptor");
	if (fd >= 0)
		is("write", write(fd, "x", 1));
	close(fd);
}

ROW(packet_descriptors)
{
	int p[2];

	packets();
	if (pipe(p))
		die("make a pipe");
	put("before");
	is("with", put_fd(p[1], "with", 4));
	put("after");
	is("alone", put_fd(p[1], "", 0));
	put("last");
	for (int i = 0; i < 6; i++)
		take_with_fd(64, 0);
	get_now("no socket", here, 1);
	got("pipe", read(p[0], in, 8), in);
}

ROW(packet_descriptor_cut)
{
	int p[2];

	packets();
	if (pipe(p))
		die("make a pipe");
	put_fd(p[1], "with", 4);
	put_fd(p[1], "with", 4);
	put_fd(p[1], "with", 4);
	put("after");
	take_one("plain", 64, 0);
	take_with_fd(2, MSG_PEEK);
	take_with_fd(2, 0);
	get_now("recv", here, 64);
	get_now("recv", here, 64);
	get_now("recv", here, 64);
}

ROW(packet_descriptors_among_many)
{
	int p[2], bad = 0, with = 0;
	char buf[64];

	packets();
	if (pipe(p))
		die("make a pipe");
	for (int i = 0; i < 40; i++) {
		int n = snprintf(buf, sizeof(buf), "%d", i);
		struct pollfd pl = { .fd = here, .events = POLLIN };
		struct iovec v = { in, 64 };
		_Alignas(struct cmsghdr) char control[64];
		struct msghdr m = { .msg_iov = &v,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };
		struct cmsghdr *c;

		if (i % 3 ? put(buf) != n : put_fd(p[1], buf, (size_t)n) != n)
			die("send");
		poll(&pl, 1, 1000);
		bad += recvmsg(here, &m, MSG_DONTWAIT) != n ||
		       memcmp(in, buf, (size_t)n) != 0;
		c = CMSG_FIRSTHDR(&m);
		with += c != NULL;
		if (c) {
			int fd;

			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
			close(fd);
		}
	}
	is("bad", bad);
	is("with", with);
}

ROW(packet_credentials)
{
	int on = 1;
	_Alignas(struct cmsghdr) char control[64];
	char buf[64];
	struct iovec v = { buf, sizeof(buf) };

	packets();
	put("before");
	is("set", setsockopt(here, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)));
	put("after");
	for (int i = 0; i < 2; i++) {
		struct msghdr m = { .msg_iov = &v,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };
		struct cmsghdr *c;

		take("recv", &m, 0);
		c = CMSG_FIRSTHDR(&m);
		say("%s", c && c->cmsg_type == SCM_CREDENTIALS ? "credentials"
							       : "none");
	}
}

ROW(packet_facts)
{
	static const struct {
		const char *name;
		int option;
	} asked[] = { { "type", SO_TYPE },	   { "protocol", SO_PROTOCOL },
		      { "domain", SO_DOMAIN },	   { "error", SO_ERROR },
		      { "size", SO_RCVBUF },	   { "room", SO_SNDBUF },
		      { "accepts", SO_ACCEPTCONN } };
	struct ucred who = { 0 };
	socklen_t len = sizeof(who);

	packets();
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		int n = -1;

		len = sizeof(n);
		getsockopt(here, SOL_SOCKET, asked[i].option, &n, &len);
		is(asked[i].name, n);
	}
	len = sizeof(who);
	is("who", getsockopt(here, SOL_SOCKET, SO_PEERCRED, &who, &len));
	say("%s", who.pid == getpid() ? "this" : "another");
}

ROW(packet_unread)
{
	int n = -1;

	packets();
	unread("none", here);
	put("one");
	put("three");
	unread("two", here);
	send(peer, "", 0, 0);
	unread("three", here);
	is("SIOCOUTQ", ioctl(peer, SIOCOUTQ, &n));
	say("%s", n > 0 ? "some" : "none");
	get_now("recv", here, 1);
	unread("two", here);
	get_now("recv", here, 64);
	unread("one", here);
	get_now("recv", here, 64);
	is("SIOCOUTQ", ioctl(peer, SIOCOUTQ, &n));
	say("%d", n);
}

/* To answer takes hardly any memory. */
ROW(packet_unread_in_little_memory)
{
	struct rlimit r;
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long pages;

	packets();
	put("three");
	put("fifteen");
	if (!f || fscanf(f, "%lu", &pages) != 1)
		die("read statm");
	fclose(f);
	r.rlim_cur = r.rlim_max = (pages + 8192) * 4096;
	if (setrlimit(RLIMIT_AS, &r))
		die("set a limit");
	unread("unread", here);
	get_now("recv", here, 64);
}

ROW(packet_urgent)
{
	packets();
	is("oob", send(peer, "u", 1, MSG_OOB));
	is("oob", recv(here, in, 1, MSG_OOB | MSG_DONTWAIT));
	put("one");
	is("oob", recv(here, in, 1, MSG_OOB | MSG_DONTWAIT));
	get_now("recv", here, 64);
}

ROW(packet_error_queue)
{
	packets();
	put("one");
	take_one("errors", 64, MSG_ERRQUEUE);
	take_one("recv", 64, 0);
}

ROW(packet_peek_offset)
{
	int n = 2;

	packets();
	put("abcdef");
	put("ghi");
	is("set", setsockopt(here, SOL_SOCKET, SO_PEEK_OFF, &n, sizeof(n)));
	for (int i = 0; i < 5; i++)
		take_one("peek", 3, MSG_PEEK);
	take_one("recv", 64, 0);
	take_one("peek", 3, MSG_PEEK);
}

/* --- addresses and states ----------------------------------------------- */

ROW(packet_address_given)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = "/none" };

	packets();
	is("sendto",
	   sendto(peer, "one", 3, 0, (struct sockaddr *)&to, sizeof(to)));
	get_now("recv", here, 64);
	is("connect", connect(here, (struct sockaddr *)&to, sizeof(to)));
}

ROW(packet_unconnected)
{
	int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	is("send", send(s, "one", 3, MSG_NOSIGNAL));
	is("send0", send(s, "", 0, MSG_NOSIGNAL));
	is("recv", recv(s, in, 3, MSG_DONTWAIT));
	poll_one("poll", s, ALL_EVENTS, 0);
	is("rd", shutdown(s, SHUT_RD));
	is("recv", recv(s, in, 3, MSG_DONTWAIT));
	is("listen", listen(s, 1));
}

ROW(packet_of_another_type)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(at);
	int l = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	is("bind", bind(l, (struct sockaddr *)&at, sizeof(at.sun_family)));
	is("listen", listen(l, 1));
	is("name", getsockname(l, (struct sockaddr *)&at, &len));
	is("connect", connect(s, (struct sockaddr *)&at, len));
	is("recv", recv(l, in, 1, MSG_DONTWAIT));
	is("send", send(l, in, 1, MSG_DONTWAIT));
}

/* A client with a name: its messages have it. */
ROW(packet_from_a_name)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX }, from;
	socklen_t len = sizeof(at);
	int l = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	peer = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	is("bind", bind(l, (struct sockaddr *)&at, sizeof(at.sun_family)));
	is("bind", bind(peer, (struct sockaddr *)&at, sizeof(at.sun_family)));
	is("listen", listen(l, 1));
	is("name", getsockname(l, (struct sockaddr *)&at, &len));
	is("connect", connect(peer, (struct sockaddr *)&at, len));
	put("early");
	here = accept(l, NULL, NULL);
	put("later");
	for (int i = 0; i < 3; i++) {
		len = sizeof(from);
		got("recvfrom",
		    recvfrom(here, in, 64, MSG_DONTWAIT,
			     (struct sockaddr *)&from, &len),
		    in);
		say("name %d", (int)len);
	}
}

/* --- ends --------------------------------------------------------------- */

ROW(packet_close_unread)
{
	packets();
	put("one");
	send(here, "unread", 6, 0);
	close(peer);
	settle(here, POLLHUP);
	poll_one("poll", here, ALL_EVENTS, 0);
	for (int i = 0; i < 3; i++)
		get_now("recv", here, 64);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

ROW(packet_close_empty_unread)
{
	packets();
	send(here, "", 0, 0);
	close(peer);
	settle(here, POLLHUP);
	for (int i = 0; i < 2; i++)
		get_now("recv", here, 64);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

ROW(packet_close_unread_told)
{
	int n = -1;
	socklen_t len = sizeof(n);

	packets();
	put("one");
	send(here, "unread", 6, 0);
	close(peer);
	settle(here, POLLHUP);
	is("error", getsockopt(here, SOL_SOCKET, SO_ERROR, &n, &len));
	say("%s", n ? strerrorname_np(n) : "none");
	for (int i = 0; i < 2; i++)
		get_now("recv", here, 64);
}

ROW(packet_close_unread_sent)
{
	packets();
	send(here, "unread", 6, 0);
	close(peer);
	settle(here, POLLHUP);
	for (int i = 0; i < 2; i++)
		is("send", send(here, "x", 1, MSG_NOSIGNAL));
	for (int i = 0; i < 2; i++)
		get_now("recv", here, 64);
}

ROW(packet_close_peeked)
{
	packets();
	put("one");
	send(here, "unread", 6, 0);
	close(peer);
	settle(here, POLLHUP);
	take_one("peek", 64, MSG_PEEK);
	take_one("peek", 64, MSG_PEEK);
	take_one("recv", 64, 0);
	take_one("recv", 64, 0);
}

static _Atomic int signals;

static void count_signal(int sig)
{
	signals++;
}

ROW(packet_signal)
{
	packets();
	signal(SIGPIPE, count_signal);
	close(peer);
	settle(here, POLLHUP);
	is("send", send(here, "x", 1, 0));
	is("signals", signals);
	is("write", write(here, "x", 1));
	is("signals", signals);
	shutdown(here, SHUT_WR);
	is("send", send(here, "x", 1, 0));
	is("signals", signals);
}

static void row_shut(void)
{
	static const int how[] = { SHUT_RD, SHUT_WR, SHUT_RDWR };
	bool there = which_row & 4;

	packets();
	put("unread");
	send(here, "unread", 6, 0);
	is("shutdown", shutdown(there ? peer : here, how[which_row & 3]));
	settle(here, POLLRDHUP);
	poll_one("here", here, ALL_EVENTS, 0);
	poll_one("peer", peer, ALL_EVENTS, 0);
	is("send", send(here, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
	is("send", send(peer, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
	for (int i = 0; i < 3; i++)
		get_now("here", here, 64);
	for (int i = 0; i < 3; i++)
		get_now("peer", peer, 64);
	close(peer);
	settle(here, POLLHUP);
	poll_one("here", here, ALL_EVENTS, 0);
	get_now("here", here, 64);
}

__attribute__((constructor)) static void add_shuts(void)
{
	static const char *const names[] = { "rd", "wr", "rdwr" };

	for (int i = 0; i < 3; i++) {
		add_row("packet_shut_", names[i], row_shut, i);
		add_row("packet_peer_shut_", names[i], row_shut, i | 4);
	}
}

static void shut_peer(void)
{
	shutdown(peer, SHUT_WR);
}

static void close_peer(void)
{
	close(peer);
}

ROW(packet_end_awaited)
{
	packets();
	later(60, shut_peer);
	TIMED("recv", recv(here, in, 64, 0));
	later_end();
	is("send", send(here, "unread", 6, 0));
	later(60, close_peer);
	poll_one("poll", here, 0, 2000);
	later_end();
	get_now("recv", here, 64);
	get_now("recv", here, 64);
}

ROW(packet_closed_while_full)
{
	packets();
	while (send(here, out, 5000, MSG_DONTWAIT) > 0)
		;
	later(60, close_peer);
	TIMED("send", send(here, out, 5000, MSG_NOSIGNAL));
	later_end();
	get_now("recv", here, 64);
	is("send", send(here, out, 5000, MSG_NOSIGNAL));
}

/* --- files -------------------------------------------------------------- */

static int a_file(size_t n)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	for (size_t i = 0; i < n; i++)
		out[i] = (unsigned char)('a' + i % 26);
	if (fd < 0 || write(fd, out, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET))
		die("make a file");
	return fd;
}

ROW(packet_sendfile)
{
	int fd = a_file(10000);
	off_t at = 100;

	packets();
	is("sendfile", sendfile(peer, fd, &at, 3000));
	is("at", (long)at);
	is("sendfile", sendfile(peer, fd, NULL, 0));
	is("sendfile", sendfile(peer, fd, NULL, 20000));
	for (long n = 1; n > 0;)
		n = is("recv", recv(here, in, sizeof(in), MSG_DONTWAIT));
}

ROW(packet_splice)
{
	int p[2];

	packets();
	if (pipe(p) || write(p[1], "spliced", 7) != 7)
		die("make a pipe");
	is("splice", splice(p[0], NULL, peer, NULL, 7, SPLICE_F_NONBLOCK));
	take_one("recv", 64, 0);
	put("one");
	put("two");
	is("splice", splice(here, NULL, p[1], NULL, 64, SPLICE_F_NONBLOCK));
	got("pipe", read(p[0], in, 64), in);
	get_now("recv", here, 64);
}

ROW(packet_bad_memory)
{
	packets();
	put("one");
	put("two");
	/* What the kernel took for it is gone. */
	is("recv", syscall(SYS_recvfrom, here, (void *)4096, 64, MSG_DONTWAIT,
			   NULL, NULL));
	get_now("recv", here, 64);
}

/* --- several threads and processes -------------------------------------- */

#define WRITERS	 3
#define MESSAGES 200

static void write_messages(int fd, int who)
{
	unsigned char buf[600];

	for (int i = 0; i < MESSAGES; i++) {
		size_t n = 2 + (size_t)(i * 37 + who * 11) % 590;

		memset(buf, who * 64 + i % 64, n);
		if (send(fd, buf, n, MSG_NOSIGNAL) != (ssize_t)n)
			exit(3);
	}
}

static void *be_writer(void *arg)
{
	write_messages(peer, (int)(intptr_t)arg);
	return NULL;
}

/* Every message is whole, and those of one writer are in order. */
static void read_messages(int writers)
{
	int next[WRITERS] = { 0 }, bad = 0;

	for (int k = 0; k < writers * MESSAGES; k++) {
		long n = recv(here, in, sizeof(in), 0);
		int who = in[0] / 64, i;

		if (n <= 0 || who >= writers) {
			bad++;
			break;
		}
		i = next[who]++;
		bad += in[0] % 64 != i % 64 ||
		       n != 2 + (i * 37 + who * 11) % 590;
		for (long b = 1; b < n; b++)
			bad += in[b] != in[0];
	}
	is("bad", bad);
}

ROW(packet_threads_send)
{
	pthread_t t[WRITERS];

	packets();
	for (int i = 0; i < WRITERS; i++)
		if (pthread_create(&t[i], NULL, be_writer, (void *)(intptr_t)i))
			die("start a thread");
	read_messages(WRITERS);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
}

ROW(packet_processes_send)
{
	pid_t pid[WRITERS];

	packets();
	for (int i = 0; i < WRITERS; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			write_messages(peer, i);
			_exit(0);
		}
	}
	read_messages(WRITERS);
	for (int i = 0; i < WRITERS; i++)
		child("child", pid[i]);
}

static int taken, spoilt;

static void *be_reader(void *arg)
{
	unsigned char buf[700];
	long n;

	while ((n = recv(here, buf, sizeof(buf), 0)) > 0) {
		for (long b = 1; b < n; b++)
			if (buf[b] != buf[0])
				__atomic_add_fetch(&spoilt, 1,
						   __ATOMIC_RELAXED);
		__atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

ROW(packet_threads_receive)
{
	pthread_t t[3];

	packets();
	for (int i = 0; i < 3; i++)
		if (pthread_create(&t[i], NULL, be_reader, NULL))
			die("start a thread");
	write_messages(peer, 0);
	shutdown(peer, SHUT_WR);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	is("taken", taken);
	is("spoilt", spoilt);
}

static void echo_messages(int fd)
{
	long n;

	while ((n = recv(fd, in, sizeof(in), 0)) > 0)
		if (send(fd, in, (size_t)n, MSG_NOSIGNAL) != n)
			_exit(2);
	_exit(n == 0 ? 0 : 1);
}

static void ask_messages(int fd)
{
	int good = 0;

	for (int i = 0; i < 40; i++) {
		size_t n = 1 + (size_t)i * 331;

		put_bytes(fd, n, i);
		good += recv(fd, in, sizeof(in), 0) == (ssize_t)n &&
			same_bytes(in, n, i);
	}
	is("good", good);
}

ROW(packet_child)
{
	pid_t pid;

	packets();
	pid = fork();
	if (pid == 0) {
		close(here);
		echo_messages(peer);
	}
	close(peer);
	ask_messages(here);
	shutdown(here, SHUT_WR);
	child("child", pid);
	settle(here, POLLHUP);
	get_now("recv", here, 64);
}

ROW(packet_passed)
{
	int over[2];
	pid_t pid;

	packets();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, over))
		die("make a pair");
	pid = fork();
	if (pid == 0) {
		int fd;

		close(here);
		close(peer);
		fd = take_fd(over[1]);
		echo_messages(fd);
	}
	pass_fd(over[0], peer);
	close(peer);
	ask_messages(here);
	shutdown(here, SHUT_WR);
	child("child", pid);
}

/* cat(1) reads and writes whole messages. */
ROW(packet_of_another_program)
{
	char *argv[] = { (char[]){ "cat" }, NULL };
	posix_spawn_file_actions_t a;
	pid_t pid;

	packets();
	posix_spawn_file_actions_init(&a);
	posix_spawn_file_actions_adddup2(&a, peer, 0);
	posix_spawn_file_actions_adddup2(&a, peer, 1);
	posix_spawn_file_actions_addclose(&a, here);
	if (posix_spawn(&pid, "/bin/cat", &a, NULL, argv, environ))
		die("start a program");
	close(peer);
	ask_messages(here);
	shutdown(here, SHUT_WR);
	child("child", pid);
}

ROW(packet_dup)
{
	int other;

	packets();
	other = dup(peer);
	is("send", send(other, "one", 3, 0));
	get_now("recv", here, 64);
	close(peer);
	is("send", send(other, "two", 3, 0));
	get_now("recv", here, 64);
	poll_one("poll", here, ALL_EVENTS, 0);
	close(other);
	settle(here, POLLHUP);
	poll_one("poll", here, ALL_EVENTS, 0);
	get_now("recv", here, 64);
}

/* --- walks -------------------------------------------------------------- */

static uint32_t state;

static uint32_t chance(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % n;
}

/* The lengths of the messages that are under way, and their first bytes. */
struct queue {
	size_t len[512];
	int first[512];
	unsigned int head, tail;
};

static size_t some_length(void)
{
	switch (chance(8)) {
	case 0:
		return 0;
	case 1:
		return chance(60000);
	case 2:
		return chance(5000);
	default:
		return chance(200);
	}
}

static bool step_send(struct queue *q, int fd)
{
	size_t n = some_length();
	unsigned int at = q->tail % 512;
	long ret;

	if (q->tail - q->head == 512)
		return true;
	q->first[at] = (int)chance(256);
	for (size_t i = 0; i < n; i++)
		out[i] = (unsigned char)(q->first[at] + (int)i * 7);
	if (chance(2)) {
		struct iovec v[2] = { { out, n / 3 },
				      { out + n / 3, n - n / 3 } };
		struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

		ret = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	} else {
		ret = send(fd, out, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (ret < 0)
		return errno == EAGAIN;
	q->len[at] = n;
	q->tail++;
	return ret == (long)n;
}

static bool step_recv(struct queue *q, int fd)
{
	size_t room = chance(3) ? sizeof(in) : chance(300), n, want;
	int flags = (chance(3) ? 0 : MSG_PEEK) | (chance(3) ? 0 : MSG_TRUNC);
	struct iovec v[2] = { { in, room / 2 },
			      { in + room / 2, room - room / 2 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	unsigned int at = q->head % 512;
	bool some = q->head != q->tail;
	long ret;

	if (some && poll(&p, 1, 2000) != 1)
		return false;
	ret = recvmsg(fd, &m, flags | MSG_DONTWAIT);
	if (!some)
		return ret < 0 && errno == EAGAIN;
	n = q->len[at];
	want = n < room ? n : room;
	if (ret != (long)(flags & MSG_TRUNC ? n : want) ||
	    !(m.msg_flags & MSG_TRUNC) != (n <= room) ||
	    !same_bytes(in, want, q->first[at]))
		return false;
	q->head += !(flags & MSG_PEEK);
	return true;
}

static void row_walk(void)
{
	static struct queue there, back;
	int steps = 0;

	state = (uint32_t)which_row * 2654435761u + 1;
	packets();
	while (steps < 3000) {
		uint32_t turn = chance(4);
		bool good = turn == 0	? step_send(&there, here)
			    : turn == 1 ? step_recv(&there, peer)
			    : turn == 2 ? step_send(&back, peer)
					: step_recv(&back, here);

		if (!good)
			break;
		steps++;
	}
	is("steps", steps);
	while (there.head != there.tail && step_recv(&there, peer))
		;
	shutdown(here, SHUT_WR);
	settle(peer, POLLRDHUP);
	is("left", (long)(there.tail - there.head));
	get_now("end", peer, 64);
}

__attribute__((constructor)) static void add_walks(void)
{
	static char names[12][4];

	for (int i = 0; i < 12; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i + 1);
		add_row("packet_walk_", names[i], row_walk, i + 1);
	}
}
