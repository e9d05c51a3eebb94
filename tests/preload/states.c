/* SPDX-License-Identifier: BSD-2-Clause */
/* Every state of a connection, and every call in each of them. */
#include "behave.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <linux/sockios.h>
#include <unistd.h>

#define COUNT(a)   (sizeof(a) / sizeof((a)[0]))
#define ALL_EVENTS (POLLIN | POLLPRI | POLLOUT | POLLRDHUP)

/* --- states ------------------------------------------------------------- */

static void idle(void)
{
}

static void readable(void)
{
	put_text(peer, "hello");
	settle(here, POLLIN);
}

static void eof(void)
{
	shutdown(peer, SHUT_WR);
	settle(here, POLLRDHUP);
}

static void readable_eof(void)
{
	put_text(peer, "hello");
	shutdown(peer, SHUT_WR);
	settle(here, POLLRDHUP);
}

static void eof_read(void)
{
	char c;

	eof();
	if (recv(here, &c, 1, 0) != 0)
		die("read the end");
}

static void closed(void)
{
	close(peer);
	settle(here, POLLRDHUP);
}

static void readable_closed(void)
{
	put_text(peer, "hello");
	closed();
}

/* A close with unread bytes is a reset. */
static void closed_unread(void)
{
	put_text(here, "unread");
	settle(peer, POLLIN);
	close(peer);
	settle(here, POLLHUP);
}

static void was_reset(void)
{
	reset(peer);
	settle(here, POLLHUP);
}

static void readable_reset(void)
{
	put_text(peer, "hello");
	settle(here, POLLIN);
	reset(peer);
	settle(here, POLLHUP);
}

/* Then the reset is an EPIPE. */
static void eof_reset(void)
{
	eof();
	reset(peer);
	settle(here, POLLHUP);
}

static void readable_eof_reset(void)
{
	put_text(peer, "hello");
	eof_reset();
}

static void shut_wr_reset(void)
{
	shutdown(here, SHUT_WR);
	settle(peer, POLLRDHUP);
	was_reset();
}

static void shut_rd_reset(void)
{
	shutdown(here, SHUT_RD);
	was_reset();
}

static void full(void)
{
	if (!fill(here))
		die("fill it");
}

static void full_reset(void)
{
	full();
	was_reset();
}

static void full_drained(void)
{
	full();
	drain(peer);
	settle(here, POLLOUT);
}

static void shut_rd(void)
{
	shutdown(here, SHUT_RD);
}

static void readable_shut_rd(void)
{
	readable();
	shutdown(here, SHUT_RD);
}

static void shut_wr(void)
{
	shutdown(here, SHUT_WR);
	settle(peer, POLLRDHUP);
}

static void shut_rdwr(void)
{
	shutdown(here, SHUT_RDWR);
	settle(peer, POLLRDHUP);
}

static void both_shut(void)
{
	shutdown(here, SHUT_WR);
	settle(peer, POLLRDHUP);
	shutdown(peer, SHUT_WR);
	settle(here, POLLHUP);
}

static void shut_wr_closed(void)
{
	shutdown(here, SHUT_WR);
	settle(peer, POLLRDHUP);
	close(peer);
	settle(here, POLLHUP);
}

static void shut_wr_readable(void)
{
	shut_wr();
	readable();
}

static void peer_shut_rd(void)
{
	shutdown(peer, SHUT_RD);
	pass_ms(5);
}

static void urgent(void)
{
	put_text(peer, "ab");
	if (send(peer, "u", 1, MSG_OOB) != 1)
		die("send urgent data");
	settle(here, POLLPRI);
}

static void closed_written(void)
{
	closed();
	send(here, "x", 1, MSG_NOSIGNAL);
	settle(here, POLLHUP);
}

static const struct {
	const char *name;
	void (*bring)(void);
} states[] = {
	{ "idle", idle },
	{ "readable", readable },
	{ "eof", eof },
	{ "readable_eof", readable_eof },
	{ "eof_read", eof_read },
	{ "closed", closed },
	{ "readable_closed", readable_closed },
	{ "closed_unread", closed_unread },
	{ "closed_written", closed_written },
	{ "reset", was_reset },
	{ "readable_reset", readable_reset },
	{ "eof_reset", eof_reset },
	{ "readable_eof_reset", readable_eof_reset },
	{ "shut_wr_reset", shut_wr_reset },
	{ "shut_rd_reset", shut_rd_reset },
	{ "full_reset", full_reset },
	{ "full", full },
	{ "full_drained", full_drained },
	{ "shut_rd", shut_rd },
	{ "readable_shut_rd", readable_shut_rd },
	{ "shut_wr", shut_wr },
	{ "shut_wr_readable", shut_wr_readable },
	{ "shut_rdwr", shut_rdwr },
	{ "both_shut", both_shut },
	{ "shut_wr_closed", shut_wr_closed },
	{ "peer_shut_rd", peer_shut_rd },
	{ "urgent", urgent },
};

/* --- calls -------------------------------------------------------------- */

static void op_recv(void)
{
	for (int i = 0; i < 3; i++)
		get_now("recv", here, 64);
}

static void op_recv_short(void)
{
	for (int i = 0; i < 4; i++)
		get_now("recv2", here, 2);
}

static void op_recv_peek(void)
{
	char buf[64];

	for (int i = 0; i < 2; i++)
		got("peek",
		    recv(here, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT), buf);
	get_now("recv", here, 64);
	got("peek", recv(here, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT), buf);
}

static void op_recv_waitall(void)
{
	char buf[64];

	for (int i = 0; i < 2; i++)
		got("waitall", recv(here, buf, 20, MSG_WAITALL | MSG_DONTWAIT),
		    buf);
}

static void op_recv_none(void)
{
	char buf[4];

	for (int i = 0; i < 2; i++)
		is("recv0", recv(here, buf, 0, MSG_DONTWAIT));
	get_now("recv", here, 64);
}

static void op_recv_urgent(void)
{
	char buf[4];

	for (int i = 0; i < 2; i++)
		got("oob", recv(here, buf, sizeof(buf), MSG_OOB), buf);
	get_now("recv", here, 64);
}

static void op_recv_trunc(void)
{
	char buf[64];

	for (int i = 0; i < 2; i++)
		is("trunc",
		   recv(here, buf, sizeof(buf), MSG_TRUNC | MSG_DONTWAIT));
}

static void op_read(void)
{
	char buf[64];

	nonblock(here, true);
	got("read", read(here, buf, sizeof(buf)), buf);
	is("read0", read(here, buf, 0));
	got("read", read(here, buf, sizeof(buf)), buf);
}

static void op_readv(void)
{
	char one[3], two[64] = "";
	struct iovec v[] = { { one, sizeof(one) },
			     { NULL, 0 },
			     { two, sizeof(two) } };

	nonblock(here, true);
	is("readv", readv(here, v, 3));
	is("readv0", readv(here, v, 0));
	is("readv", readv(here, v, 3));
}

static void said_error(void)
{
	int n = -1;
	socklen_t len = sizeof(n);

	poll_one("poll", here, ALL_EVENTS, 0);
	is("SO_ERROR", getsockopt(here, SOL_SOCKET, SO_ERROR, &n, &len));
	say("%s", n ? strerrorname_np(n) : "none");
	get_now("recv", here, 4);
}

/* An error behind bytes is not taken with them. */
static void op_recv_waitall_then(void)
{
	char buf[64];

	got("waitall", recv(here, buf, 20, MSG_WAITALL | MSG_DONTWAIT), buf);
	said_error();
}

static void op_readv_then(void)
{
	char one[5], two[64] = "";
	struct iovec v[] = { { one, sizeof(one) }, { two, sizeof(two) } };

	nonblock(here, true);
	is("readv", readv(here, v, 2));
	said_error();
}

static void op_recvmmsg_then(void)
{
	char buf[2][5];
	struct iovec v[] = { { buf[0], 5 }, { buf[1], 5 } };
	struct mmsghdr m[] = {
		{ .msg_hdr = { .msg_iov = v, .msg_iovlen = 1 } },
		{ .msg_hdr = { .msg_iov = v + 1, .msg_iovlen = 1 } },
	};

	is("recvmmsg", recvmmsg(here, m, 2, MSG_DONTWAIT, NULL));
	said_error();
}

static void op_recvmsg(void)
{
	char buf[64], control[64];
	struct sockaddr_storage from;
	struct iovec v = { buf, sizeof(buf) };

	for (int i = 0; i < 2; i++) {
		struct msghdr m = { .msg_iov = &v,
				    .msg_iovlen = 1,
				    .msg_name = &from,
				    .msg_namelen = sizeof(from),
				    .msg_control = control,
				    .msg_controllen = sizeof(control),
				    .msg_flags = -1 };

		got("recvmsg", recvmsg(here, &m, MSG_DONTWAIT), buf);
		say("name %d control %d flags %#x", (int)m.msg_namelen,
		    (int)m.msg_controllen, (unsigned int)m.msg_flags);
	}
}

static void op_recvmmsg(void)
{
	char buf[3][4];
	struct iovec v[3];
	struct mmsghdr m[3] = { 0 };
	int n;

	for (int i = 0; i < 3; i++) {
		v[i] = (struct iovec){ buf[i], sizeof(buf[i]) };
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	n = (int)is("recvmmsg", recvmmsg(here, m, 3, MSG_DONTWAIT, NULL));
	for (int i = 0; i < n; i++)
		got("message", m[i].msg_len, buf[i]);
	is("again", recvmmsg(here, m, 3, MSG_DONTWAIT, NULL));
}

static void op_recvfrom(void)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	char buf[64];

	got("recvfrom",
	    recvfrom(here, buf, sizeof(buf), MSG_DONTWAIT,
		     (struct sockaddr *)&from, &len),
	    buf);
	say("name %d", (int)len);
	is("again", recvfrom(here, buf, sizeof(buf), MSG_DONTWAIT, NULL, NULL));
}

static void op_send(void)
{
	for (int i = 0; i < 3; i++) {
		is("send", send(here, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
		pass_ms(3);
	}
	get_now("peer", peer, 64);
}

static void op_send_none(void)
{
	for (int i = 0; i < 2; i++)
		is("send0", send(here, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL));
	is("send", send(here, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void op_write(void)
{
	nonblock(here, true);
	is("write0", write(here, "", 0));
	is("write", write(here, "xyz", 3));
	pass_ms(3);
	is("write", write(here, "xyz", 3));
}

static void op_writev(void)
{
	struct iovec v[] = { { (char[]){ "one" }, 3 },
			     { NULL, 0 },
			     { (char[]){ "two" }, 3 } };

	nonblock(here, true);
	is("writev0", writev(here, v, 0));
	is("writev", writev(here, v, 3));
	pass_ms(3);
	is("writev", writev(here, v, 3));
}

static void op_sendmsg(void)
{
	struct iovec v = { (char[]){ "msg" }, 3 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	is("sendmsg", sendmsg(here, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
	pass_ms(3);
	is("sendmsg", sendmsg(here, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
	m.msg_iovlen = 0;
	is("empty", sendmsg(here, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void op_send_urgent(void)
{
	is("oob", send(here, "u", 1, MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void op_options(void)
{
	struct sockaddr_storage name;
	int n;
	socklen_t len;

	for (int i = 0; i < 2; i++) {
		n = -1;
		len = sizeof(n);
		is("SO_ERROR",
		   getsockopt(here, SOL_SOCKET, SO_ERROR, &n, &len));
		say("%s", n ? strerrorname_np(n) : "none");
	}
	len = sizeof(name);
	is("getpeername", getpeername(here, (struct sockaddr *)&name, &len));
	len = sizeof(name);
	is("getsockname", getsockname(here, (struct sockaddr *)&name, &len));
	get_now("recv", here, 64);
	is("send", send(here, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void op_unread(void)
{
	int n = -1;

	is("FIONREAD", ioctl(here, FIONREAD, &n));
	say("%d", n);
	n = -1;
	is("SIOCATMARK", ioctl(here, SIOCATMARK, &n));
	say("%d", n);
	get_now("recv", here, 3);
	n = -1;
	is("FIONREAD", ioctl(here, FIONREAD, &n));
	say("%d", n);
}

static void op_tcp_info(void)
{
	static const char *const names[] = {
		"none",	      "ESTABLISHED", "SYN_SENT",  "SYN_RECV",
		"FIN_WAIT1",  "FIN_WAIT2",   "TIME_WAIT", "CLOSE",
		"CLOSE_WAIT", "LAST_ACK",    "LISTEN",	  "CLOSING"
	};
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	pass_ms(50); /* acknowledgements may be late */
	is("TCP_INFO", getsockopt(here, IPPROTO_TCP, TCP_INFO, &info, &len));
	say("%s",
	    info.tcpi_state < COUNT(names) ? names[info.tcpi_state] : "other");
}

static void op_shutdown(void)
{
	is("rd", shutdown(here, SHUT_RD));
	is("wr", shutdown(here, SHUT_WR));
	is("wr", shutdown(here, SHUT_WR));
	is("rdwr", shutdown(here, SHUT_RDWR));
	is("wrong", shutdown(here, 7));
	get_now("recv", here, 64);
	poll_one("poll", here, ALL_EVENTS, 0);
	is("send", send(here, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	poll_one("poll", here, ALL_EVENTS, 0);
}

/* What the other end sees of it. */
static void op_shutdown_wr(void)
{
	is("wr", shutdown(here, SHUT_WR));
	pass_ms(5);
	drain(peer);
	settle(peer, POLLRDHUP);
	poll_one("peer", peer, ALL_EVENTS, 0);
	get_now("peer", peer, 4);
	poll_one("here", here, ALL_EVENTS, 0);
}

static void op_close(void)
{
	is("close", close(here));
	pass_ms(5);
	poll_one("peer", peer, POLLIN, 0);
	drain(peer);
	settle(peer, POLLRDHUP);
	poll_one("peer", peer, POLLIN | POLLRDHUP, 0);
	get_now("peer", peer, 4);
	get_now("peer", peer, 4);
	is("send", send(peer, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	pass_ms(3);
	is("send", send(peer, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	is("here", send(here, "x", 1, MSG_NOSIGNAL));
}

static void op_reset(void)
{
	reset(here);
	settle(peer, POLLHUP);
	poll_one("peer", peer, POLLIN | POLLRDHUP, 0);
	drain(peer);
	is("send", send(peer, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	get_now("peer", peer, 4);
	is("send", send(peer, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void op_poll(void)
{
	static const struct {
		const char *name;
		short events;
	} asked[] = {
		{ "none", 0 },
		{ "in", POLLIN },
		{ "out", POLLOUT },
		{ "rdhup", POLLRDHUP },
		{ "pri", POLLPRI },
		{ "norm", POLLRDNORM | POLLWRNORM },
		{ "band", POLLRDBAND | POLLWRBAND },
		{ "all", ALL_EVENTS },
	};

	for (size_t i = 0; i < COUNT(asked); i++)
		poll_one(asked[i].name, here, asked[i].events, 0);
	poll_one("wait", here, POLLIN, 80);
	poll_one("wait", here, 0, 80);
}

static void op_poll_twice(void)
{
	struct pollfd p[] = { { .fd = here, .events = POLLIN },
			      { .fd = here, .events = POLLOUT },
			      { .fd = -1, .events = POLLIN } };

	is("poll", poll(p, 3, 0));
	for (int i = 0; i < 3; i++)
		events("revents", (unsigned short)p[i].revents);
}

static void select_once(const char *what, int ms)
{
	struct timeval t = { .tv_usec = ms * 1000 };
	fd_set r, w, x;
	struct moment start = now();

	FD_ZERO(&r);
	FD_SET(here, &r);
	w = x = r;
	if (ms)
		FD_ZERO(&w);
	is(what, select(here + 1, &r, &w, &x, &t));
	if (ms)
		pace(start);
	say("%s%s%s", FD_ISSET(here, &r) ? "r" : "-",
	    FD_ISSET(here, &w) ? "w" : "-", FD_ISSET(here, &x) ? "x" : "-");
}

static void op_select(void)
{
	select_once("select", 0);
	select_once("wait", 80);
}

static void epoll_say(const char *what, int set, int ms)
{
	struct epoll_event ev[4];
	struct moment start = now();
	int n = epoll_wait(set, ev, 4, ms);

	is(what, n);
	if (ms)
		pace(start);
	for (int i = 0; i < n; i++)
		events("events", ev[i].events);
}

/* Added when it is so; said three times. */
static void epoll_after(uint32_t flags)
{
	int set = epoll_create1(0);
	struct epoll_event ev = { .events = ALL_EVENTS | flags };

	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &ev));
	for (int i = 0; i < 3; i++)
		epoll_say("wait", set, 0);
	ev.events = EPOLLIN | flags;
	is("mod", epoll_ctl(set, EPOLL_CTL_MOD, here, &ev));
	epoll_say("wait", set, 40);
	epoll_say("wait", set, 0);
	ev.events = EPOLLOUT | flags;
	is("mod", epoll_ctl(set, EPOLL_CTL_MOD, here, &ev));
	epoll_say("wait", set, 0);
	ev.events = flags;
	is("mod", epoll_ctl(set, EPOLL_CTL_MOD, here, &ev));
	epoll_say("wait", set, 0);
}

static void op_epoll(void)
{
	epoll_after(0);
}

static void op_epoll_edge(void)
{
	epoll_after(EPOLLET);
}

static void op_epoll_oneshot(void)
{
	epoll_after(EPOLLONESHOT);
}

static void op_epoll_edge_oneshot(void)
{
	epoll_after(EPOLLET | EPOLLONESHOT);
}

/* The set is there before the state is. */
static int before_set = -1;

static void before(uint32_t flags)
{
	struct epoll_event ev = { .events = flags };

	before_set = epoll_create1(0);
	epoll_ctl(before_set, EPOLL_CTL_ADD, here, &ev);
	epoll_say("before", before_set, 0);
}

static void before_level(void)
{
	before(ALL_EVENTS);
}

static void before_edge(void)
{
	before(ALL_EVENTS | EPOLLET);
}

static void before_in(void)
{
	before(EPOLLIN);
}

static void before_edge_in(void)
{
	before(EPOLLIN | EPOLLET);
}

static void op_epoll_before(void)
{
	epoll_say("wait", before_set, 40);
	epoll_say("wait", before_set, 0);
	get_now("recv", here, 2);
	epoll_say("wait", before_set, 0);
	get_now("recv", here, 64);
	epoll_say("wait", before_set, 0);
	is("del", epoll_ctl(before_set, EPOLL_CTL_DEL, here, NULL));
	epoll_say("wait", before_set, 0);
}

/* An edge for each shutdown, whatever comes of it. */
static void op_epoll_edge_shutdown(void)
{
	static const uint32_t wants[] = { EPOLLIN, EPOLLOUT, EPOLLRDHUP, 0 };
	static const int hows[] = { SHUT_RD, SHUT_RD, SHUT_WR, SHUT_WR,
				    SHUT_RDWR };
	int sets[COUNT(wants)];

	for (size_t i = 0; i < COUNT(wants); i++) {
		struct epoll_event ev = { .events = wants[i] | EPOLLET };

		sets[i] = epoll_create1(0);
		epoll_ctl(sets[i], EPOLL_CTL_ADD, here, &ev);
		epoll_say("first", sets[i], 0);
	}
	for (size_t k = 0; k < COUNT(hows); k++) {
		is("shutdown", shutdown(here, hows[k]));
		pass_ms(3);
		for (size_t i = 0; i < COUNT(wants); i++) {
			epoll_say("wait", sets[i], 0);
			epoll_say("again", sets[i], 0);
		}
	}
}

/* A set inside a set, and poll on a set. */
static void op_epoll_nested(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int inner = epoll_create1(0), outer = epoll_create1(0);

	epoll_ctl(inner, EPOLL_CTL_ADD, here, &ev);
	epoll_ctl(outer, EPOLL_CTL_ADD, inner, &ev);
	poll_one("poll inner", inner, POLLIN, 40);
	poll_one("poll outer", outer, POLLIN, 40);
	epoll_say("outer", outer, 40);
	epoll_say("inner", inner, 0);
	get_now("recv", here, 64);
	epoll_say("inner", inner, 0);
	poll_one("poll inner", inner, POLLIN, 40);
	epoll_say("outer", outer, 40);
}

static void op_dup(void)
{
	int two = dup(here);

	poll_one("poll", two, ALL_EVENTS, 0);
	get_now("recv", two, 3);
	is("send", send(two, "d", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	is("close", close(here));
	pass_ms(3);
	get_now("recv", two, 64);
	is("send", send(two, "d", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void op_fork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		poll_one("poll", here, ALL_EVENTS, 0);
		get_now("recv", here, 3);
		is("send", send(here, "c", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
		_exit(0);
	}
	child("child", pid);
	poll_one("poll", here, ALL_EVENTS, 0);
	get_now("recv", here, 64);
	is("send", send(here, "p", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static const struct {
	const char *name;
	void (*call)(void);
	void (*first)(void); /* before the state comes */
} ops[] = {
	{ ".recv", op_recv },
	{ ".recv_short", op_recv_short },
	{ ".recv_peek", op_recv_peek },
	{ ".recv_waitall", op_recv_waitall },
	{ ".recv_none", op_recv_none },
	{ ".recv_urgent", op_recv_urgent },
	{ ".recv_trunc", op_recv_trunc },
	{ ".read", op_read },
	{ ".readv", op_readv },
	{ ".recv_waitall_then", op_recv_waitall_then },
	{ ".readv_then", op_readv_then },
	{ ".recvmmsg_then", op_recvmmsg_then },
	{ ".recvmsg", op_recvmsg },
	{ ".recvmmsg", op_recvmmsg },
	{ ".recvfrom", op_recvfrom },
	{ ".send", op_send },
	{ ".send_none", op_send_none },
	{ ".write", op_write },
	{ ".writev", op_writev },
	{ ".sendmsg", op_sendmsg },
	{ ".send_urgent", op_send_urgent },
	{ ".options", op_options },
	{ ".unread", op_unread },
	{ ".tcp_info", op_tcp_info },
	{ ".shutdown", op_shutdown },
	{ ".shutdown_wr", op_shutdown_wr },
	{ ".close", op_close },
	{ ".reset", op_reset },
	{ ".poll", op_poll },
	{ ".poll_twice", op_poll_twice },
	{ ".select", op_select },
	{ ".epoll", op_epoll },
	{ ".epoll_edge", op_epoll_edge },
	{ ".epoll_oneshot", op_epoll_oneshot },
	{ ".epoll_edge_oneshot", op_epoll_edge_oneshot },
	{ ".epoll_before", op_epoll_before, before_level },
	{ ".epoll_before_edge", op_epoll_before, before_edge },
	{ ".epoll_before_in", op_epoll_before, before_in },
	{ ".epoll_before_edge_in", op_epoll_before, before_edge_in },
	{ ".epoll_edge_shutdown", op_epoll_edge_shutdown },
	{ ".epoll_nested", op_epoll_nested },
	{ ".dup", op_dup },
	{ ".fork", op_fork },
};

static void in_state(void)
{
	size_t state = (size_t)which_row / COUNT(ops);
	size_t op = (size_t)which_row % COUNT(ops);

	pair();
	if (ops[op].first)
		ops[op].first();
	states[state].bring();
	ops[op].call();
}

__attribute__((constructor)) static void add_all(void)
{
	for (size_t s = 0; s < COUNT(states); s++)
		for (size_t o = 0; o < COUNT(ops); o++)
			add_row(states[s].name, ops[o].name, in_state,
				(int)(s * COUNT(ops) + o));
}
