/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading and writing: order, short counts, limits of vectors, waiting. */
#include "behave.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <linux/sockios.h>
#include <unistd.h>

#ifndef RWF_NOAPPEND /* older headers */
#define RWF_NOAPPEND 0x00000020
#endif

static char big[1 << 20];

static void timeout_of(int fd, int name, int ms)
{
	struct timeval t = { .tv_usec = ms * 1000 };

	setsockopt(fd, SOL_SOCKET, name, &t, sizeof(t));
}

static void hello(void)
{
	put_text(peer, "hello");
}

static void bye(void)
{
	close(peer);
}

static void hello_world(void)
{
	put_text(peer, "hello, world");
}

/* --- order -------------------------------------------------------------- */

ROW(io_pieces_join)
{
	pair();
	for (int i = 0; i < 5; i++)
		put_text(here, "abc");
	pass_ms(5);
	get_now("recv", peer, 64);
}

ROW(io_pieces_split)
{
	pair();
	put_text(here, "abcdefghijkl");
	pass_ms(5);
	for (int i = 0; i < 6; i++)
		get_now("recv", peer, 5);
}

ROW(io_calls_in_order)
{
	struct iovec v[] = { { (char[]){ "cc" }, 2 }, { (char[]){ "dd" }, 2 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
	char buf[64] = "";

	pair();
	is("send", send(here, "aa", 2, 0));
	is("write", write(here, "bb", 2));
	is("writev", writev(here, v, 2));
	is("sendmsg", sendmsg(here, &m, 0));
	is("sendto", sendto(here, "ee", 2, 0, NULL, 0));
	is("more", send(here, "ff", 2, MSG_MORE));
	is("send", send(here, "gg", 2, 0));
	get_all(peer, buf, 18);
	got("read", 18, buf);
}

ROW(io_sendto_address_ignored)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	pair();
	is("sendto",
	   sendto(here, "x", 1, 0, (struct sockaddr *)&in, sizeof(in)));
	settle(peer, POLLIN);
	get_now("recv", peer, 4);
}

ROW(io_more_then_wait)
{
	pair();
	is("more", send(here, "ab", 2, MSG_MORE));
	settle(peer, POLLIN);
	get_now("recv", peer, 4);
}

ROW(io_more_then_push)
{
	pair();
	is("more", send(here, "ab", 2, MSG_MORE));
	is("send", send(here, "cd", 2, 0));
	settle(peer, POLLIN);
	pass_ms(5);
	get_now("recv", peer, 64);
}

ROW(io_cork)
{
	int on = 1, off = 0;

	pair();
	is("cork", setsockopt(here, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
	is("send", send(here, "ab", 2, 0));
	poll_one("corked", peer, POLLIN, 80);
	is("send", send(here, "cd", 2, 0));
	is("uncork",
	   setsockopt(here, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)));
	settle(peer, POLLIN);
	pass_ms(5);
	get_now("recv", peer, 64);
}

/* --- edges -------------------------------------------------------------- */

ROW(io_vector_counts)
{
	static struct iovec v[IOV_MAX + 1];
	struct msghdr m = { .msg_iov = v, .msg_iovlen = IOV_MAX + 1 };

	pair();
	for (int i = 0; i <= IOV_MAX; i++)
		v[i] = (struct iovec){ big + i, 1 };
	nonblock(here, true);
	is("writev", writev(here, v, IOV_MAX + 1));
	is("readv", readv(here, v, IOV_MAX + 1));
	is("writev", writev(here, v, which_row - 1));
	is("readv", readv(here, v, which_row - 1));
	is("sendmsg", sendmsg(here, &m, MSG_NOSIGNAL));
	is("recvmsg", recvmsg(here, &m, MSG_DONTWAIT));
	is("writev", writev(here, v, IOV_MAX));
	pass_ms(5);
	nonblock(peer, true);
	is("readv", readv(peer, v, IOV_MAX));
	v[0].iov_len = SSIZE_MAX;
	v[1].iov_len = SSIZE_MAX;
	is("too long", writev(here, v, 2));
}

ROW(io_bad_memory)
{
	struct iovec v[] = { { NULL, 4 } };

	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("recv", recv(here, (void *)8, 4, MSG_DONTWAIT));
	is("readv", readv(here, v, 1));
	is("recv0", recv(here, NULL, 0, MSG_DONTWAIT));
	get_now("recv", here, 64);
}

ROW(io_bad_memory_sent)
{
	pair();
	is("send", send(here, (void *)8, 4, MSG_DONTWAIT));
	is("send0", send(here, NULL, 0, MSG_DONTWAIT));
	is("send", send(here, "x", 1, MSG_DONTWAIT));
	settle(peer, POLLIN);
	get_now("recv", peer, 4);
}

static void send_control(const char *what, int type, size_t len)
{
	char control[CMSG_SPACE(sizeof(int))]
		__attribute__((aligned(sizeof(size_t)))) = { 0 };
	struct iovec v = { (char[]){ "x" }, 1 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = type;
	c->cmsg_len = len;
	is(what, sendmsg(here, &m, 0));
}

ROW(io_control_sent)
{
	pair();
	send_control("unknown", 12345, CMSG_LEN(sizeof(int)));
	send_control("short", SCM_RIGHTS, 3);
	send_control("long", SCM_RIGHTS, 300);
	send_control("rights", SCM_RIGHTS, CMSG_LEN(sizeof(int)));
	settle(peer, POLLIN);
	get_now("arrived", peer, 64);
}

ROW(io_message_fields)
{
	char b[16], name[128], control[64];
	struct iovec v = { b, sizeof(b) };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_namelen = 77,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };

	pair();
	put_text(peer, "abc");
	settle(here, POLLIN);
	is("recvmsg", recvmsg(here, &m, MSG_CMSG_CLOEXEC));
	say("%u %x %zu", m.msg_namelen, (unsigned int)m.msg_flags,
	    m.msg_controllen);
	put_text(peer, "abc");
	settle(here, POLLIN);
	m.msg_name = name;
	is("peek", recvmsg(here, &m, MSG_PEEK));
	say("%u %x", m.msg_namelen, (unsigned int)m.msg_flags);
	m.msg_namelen = (socklen_t)-5;
	is("no length", recvmsg(here, &m, 0));
	is("to no length", sendmsg(here, &m, 0));
	m.msg_namelen = 500;
	is("long", recvmsg(here, &m, 0));
}

static void with_unread(const char *what, size_t n, size_t room, int flags)
{
	char b[16];
	int unread = -1;
	struct iovec v = { b, n };
	union {
		struct cmsghdr h;
		char bytes[CMSG_SPACE(64)];
	} c = { 0 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = &c,
			    .msg_controllen = room };

	is(what, recvmsg(here, &m, flags));
	if (m.msg_controllen >= CMSG_LEN(sizeof(unread)))
		memcpy(&unread, CMSG_DATA(&c.h), sizeof(unread));
	say("%x %zu %zu %d %d: %d", (unsigned int)m.msg_flags, m.msg_controllen,
	    (size_t)c.h.cmsg_len, c.h.cmsg_level, c.h.cmsg_type, unread);
}

ROW(io_unread_with_each)
{
	pair();
	is("set",
	   setsockopt(here, IPPROTO_TCP, TCP_INQ, &(int){ 1 }, sizeof(int)));
	put_text(peer, "abcdefghijklmnop");
	settle(here, POLLIN);
	with_unread("part", 3, 64, 0);
	with_unread("peek", 3, 64, MSG_PEEK);
	with_unread("little room", 1, 20, 0);
	with_unread("less room", 1, 18, 0);
	with_unread("no room", 1, 8, 0);
	with_unread("only", 1, CMSG_LEN(sizeof(int)), 0);
	shutdown(peer, SHUT_WR);
	settle(here, POLLRDHUP);
	with_unread("before the end", 4, 64, 0);
	with_unread("rest", 9, 64, 0);
	with_unread("end", 9, 64, 0);
}

ROW(io_lengths_of_addresses)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = (socklen_t)-1;
	char b[4];

	pair();
	put_text(peer, "abcdef");
	settle(here, POLLIN);
	is("recvfrom", recvfrom(here, b, 2, 0, (struct sockaddr *)&a, &len));
	get_now("rest", here, 16);
	for (len = 128; len < 1 << 20; len *= 129)
		is("sendto", sendto(here, b, 1, 0, (struct sockaddr *)&a, len));
	is("nowhere", sendto(here, b, 1, 0, NULL, 129));
}

ROW(io_vectors_of_nothing)
{
	struct iovec v[3] = { { NULL, 0 }, { NULL, 0 }, { NULL, 0 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 3 }, none = { 0 };

	pair();
	is("recvmsg", recvmsg(here, &m, MSG_DONTWAIT));
	is("without", recvmsg(here, &none, MSG_DONTWAIT));
	is("readv", readv(here, v, 3));
	is("preadv2", preadv2(here, v, 3, -1, RWF_NOWAIT));
	put_text(peer, "ab");
	settle(here, POLLIN);
	is("recvmsg", recvmsg(here, &m, MSG_DONTWAIT));
	shutdown(here, SHUT_WR);
	is("writev", writev(here, v, 3));
	is("pwritev2", pwritev2(here, v, 3, -1, 0));
	is("sendmsg", sendmsg(here, &m, MSG_NOSIGNAL));
}

static void megabytes(void)
{
	put_all(peer, big, sizeof(big));
	put_all(peer, big, sizeof(big));
	put_text(peer, "rest");
}

ROW(io_much_thrown_away)
{
	pair();
	later(0, megabytes);
	is("recv", recv(here, NULL, 2 * sizeof(big), MSG_TRUNC | MSG_WAITALL));
	later_end();
	settle(here, POLLIN);
	get_now("rest", here, 16);
}

ROW(io_scattered_and_thrown_away)
{
	char one[] = "1", two[] = "two";
	struct iovec v[] = { { one, 1 }, { two, 3 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	pair();
	put_text(peer, "abcdef");
	settle(here, POLLIN);
	is("peek", recvmsg(here, &m, MSG_PEEK | MSG_TRUNC));
	say("%s %s", one, two);
	is("recvmsg", recvmsg(here, &m, MSG_TRUNC));
	say("%s %s", one, two);
	get_now("rest", here, 16);
}

/* Also when the peer has ended the stream, and waiting for all of it. */
static void peek_pieces(const char *name, int flags)
{
	char a[3] = "", b[7] = "";
	struct iovec v[] = { { a, 3 }, { b, 7 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	is(name, recvmsg(here, &m, MSG_PEEK | flags));
	got("first", 3, a);
	got("second", 7, b);
}

ROW(io_peek_scatters)
{
	pair();
	put_text(peer, "0123456789");
	pass_ms(5);
	peek_pieces("peek", 0);
	peek_pieces("all", MSG_WAITALL);
	shutdown(peer, SHUT_WR);
	pass_ms(20);
	peek_pieces("shut", 0);
	peek_pieces("shut, all", MSG_WAITALL);
	close(peer);
	pass_ms(20);
	peek_pieces("closed", 0);
	get_now("recv", here, 64);
}

ROW(io_readv_scatters)
{
	char one[2], two[1], three[10] = "";
	struct iovec v[] = {
		{ one, 2 }, { two, 1 }, { NULL, 0 }, { three, 9 }
	};

	pair();
	put_text(peer, "abcdef");
	settle(here, POLLIN);
	is("readv", readv(here, v, 4));
	got("one", 2, one);
	got("two", 1, two);
	got("three", 3, three);
}

ROW(io_recvmsg_peek_scatters)
{
	char one[2], two[10] = "";
	struct iovec v[] = { { one, 2 }, { two, 9 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	pair();
	put_text(peer, "abcdef");
	settle(here, POLLIN);
	is("peek", recvmsg(here, &m, MSG_PEEK));
	got("one", 2, one);
	got("two", 4, two);
	get_now("recv", here, 64);
}

/* What comes beside the bytes has no room, and a look says so, too. */
ROW(io_peek_tells_of_cut)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, one[4], two[16];
	struct iovec v[] = { { (char[]){ "abcdef" }, 6 }, { two, 16 } };
	struct msghdr m = { .msg_iov = v,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	struct mmsghdr mm[2];

	pair();
	*c = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(c), &(int){ 1 }, sizeof(int));
	is("send", sendmsg(peer, &m, 0));
	put_text(peer, "more");
	settle(here, POLLIN);
	m = (struct msghdr){ .msg_iov = v, .msg_iovlen = 2 };
	v[0] = (struct iovec){ one, 4 };
	is("two", recvmsg(here, &m, MSG_PEEK));
	say("%s", m.msg_flags & MSG_CTRUNC ? "cut" : "whole");
	got("first", 4, one);
	got("second", 2, two);
	v[0] = (struct iovec){ two, 16 };
	m.msg_iovlen = 1;
	is("one", recvmsg(here, &m, MSG_PEEK));
	say("%s", m.msg_flags & MSG_CTRUNC ? "cut" : "whole");
	mm[0].msg_hdr = mm[1].msg_hdr = m;
	is("many", recvmmsg(here, mm, 2, MSG_PEEK, NULL));
	say("%s", mm[1].msg_hdr.msg_flags & MSG_CTRUNC ? "cut" : "whole");
	is("recv", recvmsg(here, &m, 0));
	say("%s", m.msg_flags & MSG_CTRUNC ? "cut" : "whole");
	get_now("rest", here, 16);
}

ROW(io_sendmmsg)
{
	struct iovec v[] = { { (char[]){ "one" }, 3 },
			     { (char[]){ "two" }, 3 } };
	struct mmsghdr m[2] = { 0 };

	pair();
	for (int i = 0; i < 2; i++) {
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	is("sendmmsg", sendmmsg(here, m, 2, 0));
	say("%u %u", m[0].msg_len, m[1].msg_len);
	pass_ms(5);
	get_now("recv", peer, 64);
}

ROW(io_recvmmsg_waits)
{
	char buf[2][3];
	struct iovec v[2] = { { buf[0], 3 }, { buf[1], 3 } };
	struct mmsghdr m[2] = { 0 };
	struct timespec t = { .tv_nsec = 50000000 };

	pair();
	for (int i = 0; i < 2; i++) {
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	later(100, hello);
	TIMED("recvmmsg", recvmmsg(here, m, 2, MSG_WAITFORONE, NULL));
	later_end();
	say("%u %u", m[0].msg_len, m[1].msg_len);
	put_text(peer, "abc");
	settle(here, POLLIN);
	is("timeout", recvmmsg(here, m, 2, MSG_DONTWAIT, &t));
}

/* The time is looked at after each message, and what is left of it told. */
ROW(io_recvmmsg_time)
{
	static const struct timespec times[] = {
		{ 0, -1 }, { -1, 0 }, { 0, 1000000000 },
		{ 0, 0 },  { 0, 1 },  { 90, 0 },
	};
	char buf[3][2];
	struct iovec v[3] = { { buf[0], 2 }, { buf[1], 2 }, { buf[2], 2 } };
	struct mmsghdr m[3] = { 0 };

	pair();
	for (int i = 0; i < 3; i++) {
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		struct timespec t = times[i];

		put_text(peer, "abcdef");
		settle(here, POLLIN);
		is("recvmmsg", recvmmsg(here, m, 3, 0, &t));
		say("%s", t.tv_sec == 89	  ? "less"
			  : t.tv_sec || t.tv_nsec ? "some"
						  : "none");
		drain(here);
		t = times[i];
		is("nothing", recvmmsg(here, m, 3, MSG_DONTWAIT, &t));
		say("%s",
		    t.tv_sec == times[i].tv_sec && t.tv_nsec == times[i].tv_nsec
			    ? "as it was"
			    : "changed");
	}
}

ROW(io_unknown_flags)
{
	char buf[8];

	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	got("recv", recv(here, buf, 2, MSG_CMSG_CLOEXEC), buf);
	got("recv", recv(here, buf, 2, 0x80000), buf);
	is("errqueue", recv(here, buf, 2, MSG_ERRQUEUE | MSG_DONTWAIT));
	is("send", send(here, "x", 1, MSG_DONTROUTE));
	is("send", send(here, "x", 1, MSG_CONFIRM | MSG_EOR));
}

ROW(io_file_calls)
{
	char buf[4];

	pair();
	is("lseek", lseek(here, 0, SEEK_SET));
	is("pread", pread(here, buf, 4, 0));
	is("pwrite", pwrite(here, buf, 4, 0));
	is("fsync", fsync(here));
	is("ftruncate", ftruncate(here, 4));
}

ROW(io_preadv2)
{
	char buf[8];
	struct iovec v = { buf, 8 };

	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	got("preadv2", preadv2(here, &v, 1, -1, 0), buf);
	v.iov_len = 2;
	is("pwritev2", pwritev2(here, &v, 1, -1, 0));
	settle(peer, POLLIN);
	get_now("recv", peer, 8);
}

/* Flags that concern files alone are no other way. */
ROW(io_preadv2_flags)
{
	static const int flags[] = { RWF_HIPRI,
				     RWF_DSYNC,
				     RWF_SYNC | RWF_NOWAIT,
				     RWF_APPEND,
				     RWF_NOAPPEND | RWF_NOWAIT,
				     0x40,
				     0x40000000 };
	char buf[8];
	struct iovec v = { buf, 2 };

	pair();
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		say("%#x", (unsigned int)flags[i]);
		put_text(peer, "hello");
		settle(here, POLLIN);
		got("preadv2", preadv2(here, &v, 1, -1, flags[i]), buf);
		is("pwritev2", pwritev2(here, &v, 1, -1, flags[i]));
		pass_ms(2);
		get_now("there", peer, 8);
		get_now("rest", here, 8);
	}
}

/* --- waiting ------------------------------------------------------------ */

ROW(io_recv_waits)
{
	char buf[8];

	pair();
	later(100, hello);
	got("recv", TIMED("recv", recv(here, buf, 8, 0)), buf);
	later_end();
}

ROW(io_read_waits)
{
	char buf[8];

	pair();
	later(100, hello);
	got("read", TIMED("read", read(here, buf, 8)), buf);
	later_end();
}

ROW(io_recv_waits_for_the_end)
{
	char buf[8];

	pair();
	later(100, bye);
	TIMED("recv", recv(here, buf, 8, 0));
	later_end();
}

static void unblock_reset(void)
{
	reset(peer);
}

ROW(io_recv_waits_for_a_reset)
{
	char buf[8];

	pair();
	later(100, unblock_reset);
	TIMED("recv", recv(here, buf, 8, 0));
	TIMED("recv", recv(here, buf, 8, 0));
	later_end();
}

static void own_shutdown(void)
{
	shutdown(here, SHUT_RD);
}

ROW(io_recv_ended_by_shutdown)
{
	char buf[8];

	pair();
	later(100, own_shutdown);
	TIMED("recv", recv(here, buf, 8, 0));
	later_end();
}

static void two_halves(void)
{
	put_text(peer, "hello");
	pass_ms(100);
	put_text(peer, "world");
}

/* Its own end is told again and again, a reset after it once. */
ROW(io_reset_after_own_end)
{
	pair();
	is("shutdown", shutdown(here, SHUT_RDWR));
	get_now("recv", here, 4);
	settle(peer, POLLRDHUP);
	is("send", send(peer, "x", 1, MSG_NOSIGNAL));
	settle(here, POLLERR);
	poll_one("poll", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", here, 4);
	get_now("recv", here, 4);
}

ROW(io_waitall)
{
	char buf[16];

	pair();
	later(0, two_halves);
	got("recv", TIMED("recv", recv(here, buf, 10, MSG_WAITALL)), buf);
	later_end();
}

/* Each peek begins where the last one ended. */
static void peek_further(void)
{
	char buf[8];
	int off = 0;

	is("set", setsockopt(here, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
	put_text(peer, "abcdef");
	settle(here, POLLIN);
	for (int i = 0; i < 4; i++)
		got("peek", recv(here, buf, 2, MSG_PEEK | MSG_DONTWAIT), buf);
	got("recv", recv(here, buf, 3, 0), buf);
	got("peek", recv(here, buf, 2, MSG_PEEK | MSG_DONTWAIT), buf);
	got("recv", recv(here, buf, 3, 0), buf);
	put_text(here, "back");
	settle(peer, POLLIN);
	get_now("peer", peer, 8);
}

ROW(io_peek_offset)
{
	pair();
	peek_further();
}

ROW(io_peek_offset_from_the_start)
{
	cold_pair(AF_INET, false);
	peek_further();
	warm(here, peer);
	peek_further();
}

/* Beyond what is there a peek waits, though poll tells of bytes. */
static void peek_beyond(void)
{
	char buf[8];
	int off = 5;

	timeout_of(here, SO_RCVTIMEO, 100);
	is("set", setsockopt(here, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
	put_text(peer, "abcde");
	settle(here, POLLIN);
	poll_one("poll", here, POLLIN, 0);
	is("peek", recv(here, buf, 2, MSG_PEEK | MSG_DONTWAIT));
	TIMED("peek", recv(here, buf, 2, MSG_PEEK));
	TIMED("all", recv(here, buf, 2, MSG_PEEK | MSG_WAITALL));
	timeout_of(here, SO_RCVTIMEO, 10000);
	later(20, hello);
	got("peek", recv(here, buf, 8, MSG_PEEK), buf);
	later_end();
	get_now("recv", here, 16);
}

ROW(io_peek_offset_beyond)
{
	pair();
	peek_beyond();
}

ROW(io_peek_offset_beyond_from_the_start)
{
	cold_pair(AF_INET, false);
	peek_beyond();
}

/* One that wants more than is there has what is there when its time is over. */
ROW(io_peek_offset_of_all)
{
	char buf[16];
	int off = 0;

	pair();
	timeout_of(here, SO_RCVTIMEO, 100);
	is("set", setsockopt(here, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
	put_text(peer, "abcde");
	settle(here, POLLIN);
	got("all", TIMED("all", recv(here, buf, 16, MSG_PEEK | MSG_WAITALL)),
	    buf);
	timeout_of(here, SO_RCVTIMEO, 10000);
	later(20, hello);
	got("all", recv(here, buf, 4, MSG_PEEK | MSG_WAITALL), buf);
	later_end();
}

/* As the kernel's buffers let them, again and again. */
static char much[1800000];

static void send_polled(int fd)
{
	ssize_t n;

	for (size_t sent = 0; sent<sizeof(much); sent += n> 0 ? n : 0) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };

		poll(&p, 1, 4000);
		n = send(fd, much, sizeof(much) - sent, MSG_DONTWAIT);
		if (n < 0 && !p.revents)
			die("send");
	}
}

static void send_then_read(int fd, bool polls)
{
	timeout_of(fd, SO_SNDTIMEO, 4000);
	for (int i = 0; i < 5; i++) {
		if (polls)
			send_polled(fd);
		else
			put_all(fd, much, sizeof(much));
		get_all(fd, much, sizeof(much));
	}
}

static void two_that_send(bool polls)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		close(here);
		send_then_read(peer, polls);
		_exit(0);
	}
	close(peer);
	send_then_read(here, polls);
	child("child", pid);
}

ROW(io_two_that_send_before_they_read)
{
	two_that_send(false);
}

ROW(io_two_that_poll_for_room_before_they_read)
{
	two_that_send(true);
}

ROW(io_waitall_peek)
{
	char buf[16];

	pair();
	later(0, two_halves);
	got("peek", TIMED("peek", recv(here, buf, 10, MSG_WAITALL | MSG_PEEK)),
	    buf);
	later_end();
	get_now("recv", here, 16);
}

static void half_and_bye(void)
{
	put_text(peer, "hello");
	pass_ms(100);
	close(peer);
}

ROW(io_waitall_peek_cut_by_end)
{
	char buf[16];

	pair();
	later(0, half_and_bye);
	got("peek", TIMED("peek", recv(here, buf, 10, MSG_WAITALL | MSG_PEEK)),
	    buf);
	later_end();
	get_now("recv", here, 16);
}

ROW(io_waitall_peek_times_out)
{
	char buf[16];

	pair();
	timeout_of(here, SO_RCVTIMEO, 100);
	put_text(peer, "hello");
	got("peek", TIMED("peek", recv(here, buf, 10, MSG_WAITALL | MSG_PEEK)),
	    buf);
	get_now("recv", here, 16);
}

ROW(io_waitall_cut_by_end)
{
	char buf[16];

	pair();
	later(0, half_and_bye);
	got("recv", TIMED("recv", recv(here, buf, 10, MSG_WAITALL)), buf);
	later_end();
	get_now("recv", here, 4);
}

ROW(io_waitall_vector)
{
	char one[6], two[4];
	struct iovec v[] = { { one, 6 }, { two, 4 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	pair();
	later(0, two_halves);
	TIMED("recvmsg", recvmsg(here, &m, MSG_WAITALL));
	later_end();
	got("one", 6, one);
	got("two", 4, two);
}

ROW(io_waitall_times_out)
{
	char buf[16];

	pair();
	timeout_of(here, SO_RCVTIMEO, 100);
	put_text(peer, "hello");
	TIMED("recv", recv(here, buf, 10, MSG_WAITALL));
	TIMED("recv", recv(here, buf, 10, MSG_WAITALL));
}

ROW(io_recv_times_out)
{
	char buf[8];

	pair();
	timeout_of(here, SO_RCVTIMEO, 100);
	TIMED("recv", recv(here, buf, 8, 0));
	TIMED("read", read(here, buf, 8));
	timeout_of(here, SO_RCVTIMEO, 0);
	later(100, hello);
	TIMED("recv", recv(here, buf, 8, 0));
	later_end();
}

static void *set_in_a_thread(void *arg)
{
	timeout_of(here, SO_RCVTIMEO, 100);
	return NULL;
}

static void set_in_a_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		timeout_of(here, SO_RCVTIMEO, 100);
		_exit(0);
	}
	child("child", pid);
}

/* A time-out that is set after a wait without one counts, whoever sets it, by
 * whatever name. */
ROW(io_recv_times_out_after_a_wait_without)
{
	int also;
	char buf[8];
	pthread_t t;

	pair();
	also = dup(here);
	for (int i = 0; i < 4; i++) {
		timeout_of(here, SO_RCVTIMEO, 0);
		later(50, hello);
		TIMED("forever", recv(here, buf, 5, MSG_WAITALL));
		later_end();
		if (i == 0)
			timeout_of(here, SO_RCVTIMEO, 100);
		else if (i == 1)
			timeout_of(also, SO_RCVTIMEO, 100);
		else if (i == 3)
			set_in_a_child();
		else if (!pthread_create(&t, NULL, set_in_a_thread, NULL))
			pthread_join(t, NULL);
		TIMED("recv", recv(here, buf, 8, 0));
	}
	close(also);
}

ROW(io_send_times_out)
{
	pair();
	timeout_of(here, SO_SNDTIMEO, 100);
	fill(here);
	TIMED("send", send(here, "x", 1, 0));
	is("dontwait", send(here, "x", 1, MSG_DONTWAIT));
}

static void make_room(void)
{
	drain(peer);
}

static long seconds_of(int fd, int name, long s, long us)
{
	struct timeval t = { .tv_sec = s, .tv_usec = us };

	return setsockopt(fd, SOL_SOCKET, name, &t, sizeof(t));
}

/* As if the time were over. */
ROW(io_time_before_the_first)
{
	struct timeval t = { 9, 9 };
	socklen_t len = sizeof(t);
	char buf[8];

	pair();
	is("set", seconds_of(here, SO_RCVTIMEO, -1, 0));
	is("get", getsockopt(here, SOL_SOCKET, SO_RCVTIMEO, &t, &len));
	say("%ld %ld", (long)t.tv_sec, (long)t.tv_usec);
	TIMED("recv", recv(here, buf, sizeof(buf), 0));
	put_text(peer, "hello");
	settle(here, POLLIN);
	got("recv", TIMED("waitall", recv(here, buf, 8, MSG_WAITALL)), buf);
	is("set", seconds_of(here, SO_RCVTIMEO, 5, -1));
	is("set", seconds_of(here, SO_RCVTIMEO, -5, 1000000));
	TIMED("recv", recv(here, buf, sizeof(buf), 0));
	is("short", setsockopt(here, SOL_SOCKET, SO_RCVTIMEO, &t, 4));
	is("set", seconds_of(here, SO_RCVTIMEO, 0, 0));
	later(100, hello);
	TIMED("recv", recv(here, buf, sizeof(buf), 0));
	later_end();
	is("set", seconds_of(here, SO_SNDTIMEO, -1, 0));
	fill(here);
	TIMED("send", send(here, "x", 1, 0));
}

ROW(io_time_before_the_first_of_listener)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len);
	char c;

	is("set", seconds_of(l, SO_RCVTIMEO, -1, 0));
	here = socket(stream_family, stream_type, 0);
	is("connect", connect(here, (struct sockaddr *)&at, len));
	peer = accept(l, NULL, NULL);
	warm(here, peer);
	TIMED("recv", recv(peer, &c, 1, 0));
}

ROW(io_send_waits_for_room)
{
	pair();
	fill(here);
	later(100, make_room);
	TIMED("send", send(here, "x", 1, 0));
	later_end();
}

ROW(io_send_ended_by_reset)
{
	pair();
	fill(here);
	later(100, unblock_reset);
	TIMED("send", send(here, "x", 1, MSG_NOSIGNAL));
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	later_end();
}

/* What was sent before it is told first. */
static void cut_by_reset(size_t first)
{
	struct iovec v[] = { { big, first }, { big, sizeof(big) / 3 - first } };
	ssize_t n;

	pair();
	later(100, unblock_reset);
	do
		n = writev(here, first ? v : v + 1, first ? 2 : 1);
	while (n == sizeof(big) / 3);
	say("%s", n > 0 ? "some" : "none");
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	later_end();
}

ROW(io_send_cut_by_reset)
{
	cut_by_reset(0);
}

ROW(io_writev_cut_by_reset)
{
	cut_by_reset(sizeof(big) / 7);
}

ROW(io_send_all_or_wait)
{
	size_t n;

	pair();
	later(50, make_room);
	n = 0;
	for (int i = 0; i < 2; i++)
		n += (size_t)send(here, big, sizeof(big) / 2, 0);
	is("sent", (long)n);
	later_end();
}

ROW(io_full_and_room_again)
{
	size_t put, taken;

	pair();
	put = fill(here);
	is("send", send(here, "x", 1, MSG_DONTWAIT));
	poll_one("out", here, POLLOUT, 0);
	taken = drain(peer);
	say("%s", put == taken ? "all came" : "bytes are missing");
	poll_one("out", here, POLLOUT, 1000);
	is("send", send(here, "x", 1, MSG_DONTWAIT));
}

ROW(io_nonblocking_partial_write)
{
	ssize_t n;
	int i;

	pair();
	nonblock(here, true);
	for (i = 0; i < 100; i++) {
		n = write(here, big, sizeof(big));
		if (n < (ssize_t)sizeof(big))
			break;
	}
	say("%s", i == 100 ? "never full" : n > 0 ? "partly" : "not at all");
	n = write(here, big, sizeof(big));
	while (n > 0)
		n = write(here, big, sizeof(big));
	is("then", n);
}

ROW(io_lowat)
{
	int n = 6;
	char buf[16];

	pair();
	is("set", setsockopt(here, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
	put_text(peer, "hello");
	poll_one("poll", here, POLLIN, 80);
	later(100, hello_world);
	TIMED("recv", recv(here, buf, 16, 0));
	later_end();
	get_now("recv", here, 16);
}

ROW(io_waits_with_lowat_less)
{
	int n = 6;

	pair();
	is("set", setsockopt(here, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
	put_text(peer, "hello");
	pass_ms(5);
	get_now("dontwait", here, 16);
}

/* --- signals ------------------------------------------------------------ */

static _Atomic int signals;

static void count(int sig)
{
	signals++;
}

static void on_signal(int sig, int flags)
{
	struct sigaction sa = { .sa_handler = count, .sa_flags = flags };

	sigaction(sig, &sa, NULL);
}

static void alarm_in(int ms)
{
	struct itimerval t = { .it_value.tv_usec = ms * 1000 };

	setitimer(ITIMER_REAL, &t, NULL);
}

ROW(io_recv_interrupted)
{
	char buf[8];

	pair();
	on_signal(SIGALRM, 0);
	alarm_in(100);
	TIMED("recv", recv(here, buf, 8, 0));
	say("signals %d", signals);
}

ROW(io_recv_restarted)
{
	char buf[8];

	pair();
	on_signal(SIGALRM, SA_RESTART);
	alarm_in(50);
	later(120, hello);
	got("recv", TIMED("recv", recv(here, buf, 8, 0)), buf);
	say("signals %d", signals);
	later_end();
}

ROW(io_recv_restart_with_timeout)
{
	char buf[8];

	pair();
	timeout_of(here, SO_RCVTIMEO, 500);
	on_signal(SIGALRM, SA_RESTART);
	alarm_in(50);
	TIMED("recv", recv(here, buf, 8, 0));
}

ROW(io_recv_part_interrupted)
{
	char buf[16];

	pair();
	put_text(peer, "hello");
	on_signal(SIGALRM, 0);
	alarm_in(100);
	TIMED("waitall", recv(here, buf, 10, MSG_WAITALL));
}

ROW(io_send_interrupted)
{
	pair();
	fill(here);
	on_signal(SIGALRM, 0);
	alarm_in(100);
	TIMED("send", send(here, "x", 1, 0));
}

ROW(io_send_part_interrupted)
{
	const struct itimerval each = { { 0, 100000 }, { 0, 100000 } };
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };
	ssize_t n;
	int i = 0;

	pair();
	on_signal(SIGALRM, 0);
	/* Again, for a signal before the send that waits ends none. */
	setitimer(ITIMER_REAL, &each, NULL);
	do
		n = send(here, big, sizeof(big), 0);
	while (n == sizeof(big) && i++ < 100);
	setitimer(ITIMER_REAL, &never, NULL);
	say("%s", n > 0 ? "partly" : n < 0 ? strerrorname_np(errno) : "none");
}

ROW(io_sigpipe_handled)
{
	pair();
	on_signal(SIGPIPE, 0);
	shutdown(here, SHUT_WR);
	is("send", send(here, "x", 1, 0));
	is("write", write(here, "x", 1));
	say("signals %d", signals);
	is("nosignal", send(here, "x", 1, MSG_NOSIGNAL));
	say("signals %d", signals);
}

ROW(io_sigpipe_kills)
{
	pair();
	signal(SIGPIPE, SIG_DFL);
	shutdown(here, SHUT_WR);
	say("alive");
	is("send", send(here, "x", 1, 0));
}

ROW(io_sigpipe_after_close)
{
	pair();
	on_signal(SIGPIPE, 0);
	close(peer);
	pass_ms(5);
	is("write", write(here, "x", 1));
	pass_ms(5);
	is("write", write(here, "x", 1));
	say("signals %d", signals);
}

/* --- urgent data -------------------------------------------------------- */

static void put_urgent_between(void)
{
	put_text(peer, "ab");
	is("oob", send(peer, "u", 1, MSG_OOB));
	put_text(peer, "cd");
	settle(here, POLLPRI);
	pass_ms(5);
}

ROW(io_urgent_between)
{
	int at = -1;

	pair();
	put_urgent_between();
	get_now("recv", here, 64);
	ioctl(here, SIOCATMARK, &at);
	say("mark %d", at);
	get_now("recv", here, 64);
}

ROW(io_urgent_ends_waitall)
{
	char buf[64] = { 0 };

	pair();
	put_urgent_between();
	got("recv", recv(here, buf, 4, MSG_WAITALL), buf);
	got("recv", recv(here, buf, 2, MSG_WAITALL), buf);
}

ROW(io_urgent_inline)
{
	int on = 1;

	pair();
	is("inline",
	   setsockopt(here, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
	put_text(peer, "ab");
	is("oob", send(peer, "u", 1, MSG_OOB));
	put_text(peer, "cd");
	pass_ms(20);
	for (int i = 0; i < 3; i++)
		get_now("recv", here, 64);
}

ROW(io_urgent_signal)
{
	pair();
	on_signal(SIGURG, 0);
	is("owner", fcntl(here, F_SETOWN, getpid()));
	is("oob", send(peer, "u", 1, MSG_OOB));
	settle(here, POLLPRI);
	say("signals %d", signals);
}

ROW(io_after_urgent)
{
	pair();
	is("oob", send(peer, "u", 1, MSG_OOB));
	settle(here, POLLPRI);
	warm(here, peer);
	say("moved on");
}

/* --- counts ------------------------------------------------------------- */

ROW(io_unread_counts)
{
	int n = -1;

	pair();
	put_text(peer, "hello");
	put_text(peer, "world");
	settle(here, POLLIN);
	pass_ms(5);
	for (int i = 0; i < 4; i++) {
		ioctl(here, FIONREAD, &n);
		say("%d", n);
		get_now("recv", here, 4);
	}
}

ROW(io_unsent_goes_to_none)
{
	int n = -1;

	pair();
	put_text(here, "hello");
	for (int i = 0; i < 200; i++) {
		ioctl(here, SIOCOUTQ, &n);
		if (!n)
			break;
		pass_ms(1);
	}
	say("%s", n ? "stays" : "none");
}

/* What was not read counts; by how much is the buffers' affair. */
ROW(io_unsent_while_full)
{
	int n = -1;

	pair();
	fill(here);
	ioctl(here, SIOCOUTQ, &n);
	say("%s", n > 0 ? "some" : "none");
}

/* --- files -------------------------------------------------------------- */

static int a_file(size_t n)
{
	int fd = memfd_create("behave", 0);

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)('a' + i % 26);
	if (write(fd, big, n) != (ssize_t)n)
		die("write a file");
	lseek(fd, 0, SEEK_SET);
	return fd;
}

ROW(io_sendfile)
{
	int fd;
	off_t at = 3;

	pair();
	fd = a_file(100);
	is("sendfile", sendfile(here, fd, NULL, 10));
	is("at", lseek(fd, 0, SEEK_CUR));
	is("sendfile", sendfile(here, fd, &at, 10));
	is("at", lseek(fd, 0, SEEK_CUR));
	is("offset", at);
	at = 95;
	is("short", sendfile(here, fd, &at, 10));
	is("past", sendfile(here, fd, &at, 10));
	is("none", sendfile(here, fd, NULL, 0));
	pass_ms(5);
	get_now("recv", peer, 64);
}

ROW(io_sendfile_errors)
{
	int fd, p[2];

	pair();
	fd = a_file(10);
	is("closed", sendfile(here, -1, NULL, 10));
	is("pipe", pipe(p));
	is("pipe", sendfile(here, p[0], NULL, 10));
	is("before", sendfile(here, fd, &(off_t){ -1 }, 10));
	is("much", sendfile(here, fd, NULL, SIZE_MAX));
	shutdown(here, SHUT_WR);
	is("shut", sendfile(here, fd, NULL, 10));
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("from", sendfile(p[1], here, NULL, 5));
}

ROW(io_sendfile_full)
{
	int fd;
	ssize_t n;
	off_t at = 0;

	pair();
	fd = a_file(sizeof(big));
	nonblock(here, true);
	fill(here);
	is("sendfile", sendfile(here, fd, &at, 100));
	is("offset", at);
	drain(peer);
	n = sendfile(here, fd, &at, 100);
	is("sendfile", n);
}

ROW(io_splice)
{
	int p[2];

	pair();
	is("pipe", pipe(p));
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("in", splice(here, NULL, p[1], NULL, 64, SPLICE_F_NONBLOCK));
	is("out", splice(p[0], NULL, here, NULL, 64, 0));
	settle(peer, POLLIN);
	get_now("recv", peer, 64);
}

ROW(io_not_sockets)
{
	int p[2], fd, sv[2];
	char buf[8];

	pair();
	is("pipe", pipe(p));
	is("write", write(p[1], "ab", 2));
	got("read", read(p[0], buf, 8), buf);
	is("recv", recv(p[0], buf, 8, 0));
	fd = a_file(10);
	got("file", read(fd, buf, 5), buf);
	is("send", send(fd, buf, 5, 0));
	is("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, sv));
	is("send", send(sv[0], "abcdef", 6, 0));
	is("trunc", recv(sv[1], buf, 2, MSG_TRUNC));
	is("closed", recv(999, buf, 2, 0));
	is("negative", write(-1, buf, 2));
}

/* Errors are told by failures only: a call that works leaves errno alone. */
ROW(io_errno_stays)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int set = epoll_create1(0), bad = 0, l, c, s;
	struct sockaddr_storage at;
	socklen_t len;
	char buf[64];

#define STAYS(call)                                                            \
	do {                                                                   \
		if ((call) < 0)                                                \
			die(#call);                                            \
		if (errno && !bad++)                                           \
			say("%s leaves %s", #call, strerrorname_np(errno));    \
		errno = 0;                                                     \
	} while (0)
	l = listener(AF_INET, &at, &len);
	for (int i = 0; i < 20; i++) {
		errno = 0;
		STAYS(c = socket(stream_family, stream_type, 0));
		STAYS(connect(c, (struct sockaddr *)&at, len));
		STAYS(s = accept(l, NULL, NULL));
		STAYS(epoll_ctl(set, EPOLL_CTL_ADD, s, &ev));
		for (int k = 0; k < i * 10; k++) {
			struct pollfd p = { .fd = c, .events = POLLIN };

			STAYS(send(c, buf, sizeof(buf), 0));
			STAYS(epoll_wait(set, &ev, 1, -1));
			STAYS(recv(s, buf, sizeof(buf), MSG_WAITALL));
			STAYS(write(s, buf, sizeof(buf)));
			STAYS(poll(&p, 1, -1));
			STAYS(read(c, buf, sizeof(buf)));
		}
		STAYS(epoll_ctl(set, EPOLL_CTL_DEL, s, &ev));
		STAYS(shutdown(c, SHUT_WR));
		STAYS(read(s, buf, sizeof(buf)));
		STAYS(close(s));
		STAYS(close(c));
	}
	say("%d", bad);
#undef STAYS
}

static void drain_peer(void)
{
	drain(peer);
}

static void on_alarm(int sig)
{
}

/* Also where there is no ring yet. */
ROW(io_send_restarts_on_tcp)
{
	struct sigaction a = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval soon = { .it_value.tv_usec = 20000 };

	cold_pair(AF_INET, false);
	fill(here);
	nonblock(here, false);
	sigaction(SIGALRM, &a, NULL);
	a.sa_flags = 0; /* which tells of a crash has no say */
	sigaction(SIGSEGV, &a, NULL);
	later(100, drain_peer);
	setitimer(ITIMER_REAL, &soon, NULL);
	TIMED("send", send(here, "x", 1, 0));
	later_end();
}
