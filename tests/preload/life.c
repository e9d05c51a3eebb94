/* SPDX-License-Identifier: BSD-2-Clause */
/* How connections begin and end, and their options. */
#include "behave.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct sockaddr_storage at;
static socklen_t at_len;

static int tcp(int flags)
{
	return socket(stream_family, stream_type | flags, 0);
}

static long join(int fd)
{
	return connect(fd, (struct sockaddr *)&at, at_len);
}

static void option(const char *what, int fd, int level, int name)
{
	int n = -1;
	socklen_t len = sizeof(n);

	is(what, getsockopt(fd, level, name, &n, &len));
	say("%d", n);
}

static void set_option(const char *what, int fd, int level, int name, int n)
{
	is(what, setsockopt(fd, level, name, &n, sizeof(n)));
}

/* --- beginning ---------------------------------------------------------- */

ROW(life_unconnected)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	char c;

	here = tcp(0);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	is("recv", recv(here, &c, 1, 0));
	is("write", write(here, "x", 1));
	is("read", read(here, &c, 1));
	is("peer", getpeername(here, (struct sockaddr *)&name, &len));
	is("shutdown", shutdown(here, SHUT_WR));
	poll_one("poll", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	is("accept", accept(here, NULL, NULL));
	is("close", close(here));
	is("close", close(here));
}

ROW(life_listener_calls)
{
	char c;

	here = listener(AF_INET, &at, &at_len);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	is("recv", recv(here, &c, 1, 0));
	is("listen again", listen(here, 5));
	is("connect", join(here));
	option("accepts", here, SOL_SOCKET, SO_ACCEPTCONN);
	nonblock(here, true);
	is("accept", accept(here, NULL, NULL));
	is("shutdown", shutdown(here, SHUT_RDWR));
	is("accept", accept(here, NULL, NULL));
}

ROW(life_refused)
{
	here = listener(AF_INET, &at, &at_len);
	close(here);
	here = tcp(0);
	is("connect", join(here));
	is("again", join(here));
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

ROW(life_refused_later)
{
	here = listener(AF_INET, &at, &at_len);
	close(here);
	here = tcp(SOCK_NONBLOCK);
	is("connect", join(here));
	settle(here, POLLERR | POLLHUP);
	poll_one("poll", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	option("error", here, SOL_SOCKET, SO_ERROR);
	option("error", here, SOL_SOCKET, SO_ERROR);
	poll_one("poll", here, POLLIN | POLLOUT, 0);
}

ROW(life_connect_twice)
{
	int l = listener(AF_INET, &at, &at_len);

	here = tcp(0);
	is("connect", join(here));
	is("again", join(here));
	peer = accept(l, NULL, NULL);
	warm(here, peer);
	is("again", join(here));
	is("accepted", join(peer));
	is("listen", listen(here, 1));
	is("bind", bind(here, (struct sockaddr *)&at, at_len));
}

ROW(life_connect_nonblocking)
{
	int l = listener(AF_INET, &at, &at_len);

	here = tcp(SOCK_NONBLOCK);
	is("connect", join(here));
	settle(here, POLLOUT);
	poll_one("poll", here, POLLIN | POLLOUT, 0);
	option("error", here, SOL_SOCKET, SO_ERROR);
	is("again", join(here));
	peer = accept(l, NULL, NULL);
	warm(here, peer);
	get_now("recv", here, 4);
	say("%s", fcntl(here, F_GETFL) & O_NONBLOCK ? "nonblocking" : "blocks");
	say("%s", fcntl(peer, F_GETFL) & O_NONBLOCK ? "nonblocking" : "blocks");
}

ROW(life_connect_errors)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };

	listener(AF_INET, &at, &at_len);
	here = tcp(0);
	is("short", connect(here, (struct sockaddr *)&at, 4));
	is("family", connect(here, (struct sockaddr *)&in6, sizeof(in6)));
	is("null", connect(here, (void *)8, 16));
	is("closed", connect(999, (struct sockaddr *)&at, at_len));
	is("file",
	   connect(open("/dev/null", O_RDWR), (struct sockaddr *)&at, at_len));
	is("then", join(here));
}

ROW(life_disconnect)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	pair();
	is("disconnect", connect(here, &none, sizeof(none)));
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	settle(peer, POLLIN);
	get_now("peer", peer, 4);
	listener(AF_INET, &at, &at_len);
	is("connect", join(here));
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

ROW(life_send_before_accept)
{
	int l = listener(AF_INET, &at, &at_len);

	here = tcp(0);
	is("connect", join(here));
	put_text(here, "early");
	is("shutdown", shutdown(here, SHUT_WR));
	peer = accept(l, NULL, NULL);
	settle(peer, POLLIN);
	get_now("recv", peer, 64);
	get_now("recv", peer, 64);
	put_text(peer, "late");
	settle(here, POLLIN);
	get_now("recv", here, 64);
}

/* A reset, whether the bytes came before the connection moved or after. */
ROW(life_close_with_bytes_unread_soon)
{
	for (int i = 0; i < 12; i++) {
		cold_pair(AF_INET, false);
		put_text(here, "unread");
		pass_ms(i % 6);
		close(peer);
		settle(here, POLLERR);
		get_now("recv", here, 4);
		close(here);
	}
}

ROW(life_closed_before_accept)
{
	int l = listener(AF_INET, &at, &at_len);

	here = tcp(0);
	is("connect", join(here));
	put_text(here, "early");
	close(here);
	peer = accept(l, NULL, NULL);
	is("accept", peer < 0 ? -1 : 0);
	settle(peer, POLLRDHUP);
	get_now("recv", peer, 64);
	get_now("recv", peer, 64);
}

/* An error that a receive met behind its bytes is for the next call,
 * whichever. */
ROW(life_reset_met_by_a_receive)
{
	pair();
	put_text(peer, "hello");
	is("urgent", send(here, "u", 1, MSG_OOB));
	close(peer);
	settle(here, POLLERR);
	is("all", recv(here, (char[16]){ 0 }, 16, MSG_WAITALL));
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	is("again", send(here, "x", 1, MSG_NOSIGNAL));
	is("recv", recv(here, (char[16]){ 0 }, 16, 0));
}

ROW(life_reset_before_accept)
{
	int l = listener(AF_INET, &at, &at_len);

	here = tcp(0);
	is("connect", join(here));
	reset(here);
	pass_ms(5);
	peer = accept(l, NULL, NULL);
	is("accept", peer < 0 ? -1 : 0);
	get_now("recv", peer, 64);
	get_now("recv", peer, 64);
}

static void connect_late(void)
{
	here = tcp(0);
	join(here);
}

ROW(life_accept_waits)
{
	int l = listener(AF_INET, &at, &at_len);
	struct moment start = now();

	later(100, connect_late);
	peer = accept(l, NULL, NULL);
	is("accept", peer < 0 ? -1 : 0);
	pace(start);
	later_end();
}

ROW(life_accept_times_out)
{
	struct timeval t = { .tv_usec = 150000 };
	int l = listener(AF_INET, &at, &at_len);

	is("set", setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)));
	TIMED("accept", accept(l, NULL, NULL));
	later(50, connect_late);
	peer = accept(l, NULL, NULL);
	is("accept", peer < 0 ? -1 : 0);
	later_end();
	t = (struct timeval){ .tv_sec = -1 };
	is("set", setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)));
	TIMED("accept", accept(l, NULL, NULL));
}

ROW(life_accept_flags)
{
	int l = listener(AF_INET, &at, &at_len);
	struct sockaddr_in name = { 0 }, own = { 0 };
	socklen_t len = sizeof(name), own_len = sizeof(own);

	here = tcp(0);
	join(here);
	peer = accept4(l, (struct sockaddr *)&name, &len,
		       SOCK_NONBLOCK | SOCK_CLOEXEC);
	getsockname(here, (struct sockaddr *)&own, &own_len);
	say("%s %s",
	    fcntl(peer, F_GETFL) & O_NONBLOCK ? "nonblocking" : "blocks",
	    fcntl(peer, F_GETFD) & FD_CLOEXEC ? "cloexec" : "kept");
	say("name %d %s", (int)len,
	    name.sin_port == own.sin_port ? "right" : "wrong");
	is("flags", accept4(l, NULL, NULL, 1));
	get_now("recv", peer, 1);
	here = tcp(SOCK_NONBLOCK | SOCK_CLOEXEC);
	join(here);
	peer = accept(l, NULL, NULL);
	say("%s %s",
	    fcntl(peer, F_GETFL) & O_NONBLOCK ? "nonblocking" : "blocks",
	    fcntl(peer, F_GETFD) & FD_CLOEXEC ? "cloexec" : "kept");
}

ROW(life_accept_bad)
{
	int l = listener(AF_INET, &at, &at_len);

	is("closed", accept(999, NULL, NULL));
	is("file", accept(open("/dev/null", O_RDWR), NULL, NULL));
	pair();
	is("connection", accept(here, NULL, NULL));
	here = tcp(0);
	join(here);
	is("null", accept(l, (void *)8, &at_len));
	nonblock(l, true);
	peer = accept(l, NULL, NULL);
	is("none", peer < 0 ? -1 : 0);
	is("none", accept(l, NULL, NULL));
}

ROW(life_bind)
{
	int two = tcp(0), l;
	struct sockaddr_in in = { .sin_family = AF_INET };

	l = listener(AF_INET, &at, &at_len);
	is("in use", bind(two, (struct sockaddr *)&at, at_len));
	is("twice", bind(l, (struct sockaddr *)&at, at_len));
	in.sin_addr.s_addr = htonl(0xc0000201);
	is("elsewhere", bind(two, (struct sockaddr *)&in, sizeof(in)));
	is("short", bind(two, (struct sockaddr *)&in, 3));
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	is("bind", bind(two, (struct sockaddr *)&in, sizeof(in)));
	is("connect", join(two));
}

ROW(life_listen_unbound)
{
	int l = tcp(0);
	struct sockaddr_in *in = (struct sockaddr_in *)&at;

	is("listen", listen(l, 4));
	at_len = sizeof(at);
	is("name", getsockname(l, (struct sockaddr *)&at, &at_len));
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	here = tcp(0);
	is("connect", join(here));
	peer = accept(l, NULL, NULL);
	warm(here, peer);
	say("moved");
}

ROW(life_self_connect)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t len = sizeof(in);
	char buf[8];

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	here = tcp(0);
	bind(here, (struct sockaddr *)&in, sizeof(in));
	getsockname(here, (struct sockaddr *)&in, &len);
	is("connect", connect(here, (struct sockaddr *)&in, len));
	warm(here, here);
	is("send", send(here, "self", 4, 0));
	got("recv", recv(here, buf, 8, 0), buf);
	is("shutdown", shutdown(here, SHUT_WR));
	settle(here, POLLRDHUP);
	get_now("recv", here, 4);
}

ROW(life_ipv6)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);

	cold_pair(AF_INET6, false);
	warm(here, peer);
	is("name", getpeername(here, (struct sockaddr *)&name, &len));
	say("%d %s", (int)len, name.ss_family == AF_INET6 ? "v6" : "other");
	put_text(here, "hello");
	settle(peer, POLLIN);
	get_now("recv", peer, 64);
}

ROW(life_mapped)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);

	cold_pair(AF_INET6, true);
	warm(here, peer);
	is("name", getpeername(here, (struct sockaddr *)&name, &len));
	say("%d %s", (int)len, name.ss_family == AF_INET6 ? "v6" : "other");
	put_text(here, "hello");
	settle(peer, POLLIN);
	get_now("recv", peer, 64);
}

ROW(life_names)
{
	struct sockaddr_in a = { 0 }, b = { 0 };
	socklen_t la = sizeof(a), lb = sizeof(b);

	pair();
	is("sock", getsockname(here, (struct sockaddr *)&a, &la));
	is("peer", getpeername(peer, (struct sockaddr *)&b, &lb));
	say("%s", la == lb && memcmp(&a, &b, la) == 0 ? "same" : "different");
	is("null", getpeername(here, (void *)8, &la));
}

/* --- ending ------------------------------------------------------------- */

ROW(life_half_close)
{
	char buf[64];

	pair();
	put_text(here, "question");
	is("shutdown", shutdown(here, SHUT_WR));
	get_all(peer, buf, 8);
	get_now("end", peer, 4);
	put_text(peer, "answer");
	close(peer);
	settle(here, POLLRDHUP);
	get_now("recv", here, 64);
	get_now("end", here, 64);
}

ROW(life_shut_rd_then_bytes)
{
	pair();
	is("shutdown", shutdown(here, SHUT_RD));
	is("peer sends", send(peer, "x", 1, MSG_NOSIGNAL));
	pass_ms(5);
	get_now("recv", here, 4);
	get_now("recv", here, 4);
	is("peer sends", send(peer, "y", 1, MSG_NOSIGNAL));
	is("send", send(here, "z", 1, MSG_NOSIGNAL));
	settle(peer, POLLIN);
	get_now("peer", peer, 4);
}

ROW(life_bytes_before_close)
{
	static char buf[200000];
	size_t n = 0;
	ssize_t r;

	pair();
	memset(buf, 'x', sizeof(buf));
	nonblock(here, true);
	r = send(here, buf, sizeof(buf), 0);
	close(here);
	while (1) {
		ssize_t k = recv(peer, buf, 4096, 0);

		if (k <= 0) {
			is("end", k);
			break;
		}
		n += (size_t)k;
	}
	say("%s", n == (size_t)r ? "all came" : "bytes are missing");
}

ROW(life_linger_waits)
{
	struct linger l = { .l_onoff = 1, .l_linger = 5 };

	pair();
	setsockopt(here, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	put_text(here, "hello");
	TIMED("close", close(here));
	settle(peer, POLLRDHUP);
	get_now("recv", peer, 64);
	get_now("recv", peer, 64);
}

ROW(life_linger_reset_unread)
{
	pair();
	put_text(here, "hello");
	settle(peer, POLLIN);
	reset(here);
	settle(peer, POLLHUP);
	get_now("recv", peer, 64);
	get_now("recv", peer, 64);
	is("send", send(peer, "x", 1, MSG_NOSIGNAL));
	option("error", peer, SOL_SOCKET, SO_ERROR);
}

ROW(life_reset_error_by_option)
{
	pair();
	reset(peer);
	settle(here, POLLHUP);
	option("error", here, SOL_SOCKET, SO_ERROR);
	option("error", here, SOL_SOCKET, SO_ERROR);
	get_now("recv", here, 4);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

ROW(life_reset_error_by_send)
{
	pair();
	reset(peer);
	settle(here, POLLHUP);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	get_now("recv", here, 4);
}

ROW(life_write_after_close)
{
	pair();
	close(peer);
	pass_ms(5);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	pass_ms(5);
	option("error", here, SOL_SOCKET, SO_ERROR);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	get_now("recv", here, 4);
}

ROW(life_shutdown_bad)
{
	pair();
	is("how", shutdown(here, 3));
	is("how", shutdown(here, -1));
	is("closed", shutdown(999, SHUT_WR));
	is("file", shutdown(open("/dev/null", O_RDWR), SHUT_WR));
}

ROW(life_close_while_polled)
{
	pair();
	put_text(here, "x");
	close(here);
	here = tcp(0);
	poll_one("new", here, POLLIN | POLLOUT, 0);
	settle(peer, POLLRDHUP);
	get_now("peer", peer, 4);
	get_now("peer", peer, 4);
}

/* What the other thread's calls return: the two threads end in any order, and
 * their answers are said in one. */
static struct {
	long closed, sent;
	int error;
} late;

static void close_late(void)
{
	late.closed = close(here);
	late.sent = send(peer, "late", 4, MSG_NOSIGNAL);
	late.error = errno;
}

ROW(life_closed_while_waited_on)
{
	char b[8];

	pair();
	later(50, close_late);
	got("recv", recv(here, b, sizeof(b), 0), b);
	later_end();
	is("close", late.closed);
	errno = late.error;
	is("send", late.sent);
}

static _Atomic bool ends;

/* How many calls fail, on files whose numbers connections had a moment ago. */
static void *uses_files(void *failed)
{
	char byte;

	while (!ends) {
		int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

		*(int *)failed += read(fd, &byte, 1) != 1;
		*(int *)failed += close(fd) != 0;
	}
	return NULL;
}

ROW(life_number_used_again_at_once)
{
	int l = listener(AF_INET, &at, &at_len), failed = 0, ours = 0;
	pthread_t t;

	pthread_create(&t, NULL, uses_files, &failed);
	for (int i = 0; i < 300; i++) {
		int c = tcp(0), s;

		ours += connect(c, (struct sockaddr *)&at, at_len) < 0;
		s = accept(l, NULL, NULL);
		ours += write(c, "x", 1) != 1;
		ours += close(c) + close(s) != 0;
	}
	ends = true;
	pthread_join(t, NULL);
	is("of connections", ours);
	is("of files", failed);
}

/* There is no moment in which it is nobody's. */
ROW(life_number_put_over_by_a_file)
{
	int l = listener(AF_INET, &at, &at_len), failed = 0, ours = 0;
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	pthread_t t;
	char byte;

	pthread_create(&t, NULL, uses_files, &failed);
	for (int i = 0; i < 300; i++) {
		int c = tcp(0), s;

		ours += connect(c, (struct sockaddr *)&at, at_len) < 0;
		s = accept(l, NULL, NULL);
		if (i % 2) /* the library has it looked at */
			ours += setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &i,
					   sizeof(i)) < 0;
		if (i % 3 == 0)
			ours += write(c, "x", 1) != 1;
		ours += dup2(zero, c) != c || read(c, &byte, 1) != 1;
		ours += read(s, &byte, 1) != (i % 3 == 0);
		ours += close(c) + close(s) != 0;
	}
	ends = true;
	pthread_join(t, NULL);
	is("of connections", ours);
	is("of files", failed);
}

/* A reset answers what comes after. */
static void sends_to_deaf(void)
{
	settle(here, POLLRDHUP);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	settle(here, POLLHUP);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

ROW(life_peer_shut_both)
{
	pair();
	shutdown(peer, SHUT_RDWR);
	sends_to_deaf();
}

/* Also what is sent before the end is seen. */
ROW(life_peer_shut_both_unseen)
{
	pair();
	shutdown(peer, SHUT_RDWR);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	settle(here, POLLHUP);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

ROW(life_peer_shut_one_by_one)
{
	pair();
	shutdown(peer, SHUT_RD);
	shutdown(peer, SHUT_WR);
	sends_to_deaf();
}

ROW(life_peer_shut_one_by_one_back)
{
	pair();
	shutdown(peer, SHUT_WR);
	shutdown(peer, SHUT_RD);
	sends_to_deaf();
}

/* What comes after both directions were shut is not for those who read on. */
static void reads_on(void)
{
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
	settle(peer, POLLERR);
	poll_one("peer", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", peer, 4);
	get_now("recv", peer, 4);
	settle(here, POLLHUP);
	poll_one("here", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", here, 4);
	get_now("recv", here, 4);
	is("send", send(here, "x", 1, MSG_NOSIGNAL));
}

ROW(life_reads_on_after_shut_both)
{
	pair();
	shutdown(peer, SHUT_RDWR);
	settle(here, POLLRDHUP);
	reads_on();
}

/* Whoever sends before it hears of that: several, for chance decides. */
ROW(life_reads_on_after_shut_both_unseen)
{
	for (int i = 0; i < 10; i++) {
		pair();
		shutdown(peer, SHUT_RDWR);
		is("send", send(here, "x", 1, MSG_NOSIGNAL));
		settle(peer, POLLERR);
		is("unread", ioctl(peer, FIONREAD, &(int){ 0 }));
		get_now("recv", peer, 4);
		close(here);
		close(peer);
	}
}

ROW(life_reads_unread_after_shut_both)
{
	pair();
	put_text(here, "unread");
	settle(peer, POLLIN);
	shutdown(peer, SHUT_RDWR);
	settle(here, POLLRDHUP);
	poll_one("peer", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", peer, 4);
	reads_on();
}

ROW(life_urgent_after_shut_both)
{
	pair();
	shutdown(peer, SHUT_RDWR);
	settle(here, POLLRDHUP);
	is("urgent", send(here, "u", 1, MSG_OOB | MSG_NOSIGNAL));
	settle(peer, POLLERR);
	poll_one("peer", peer, POLLIN | POLLPRI | POLLRDHUP, 0);
	get_now("recv", peer, 4);
}

ROW(life_urgent_before_shut_both)
{
	pair();
	is("urgent", send(here, "u", 1, MSG_OOB));
	settle(peer, POLLPRI);
	shutdown(peer, SHUT_RDWR);
	settle(here, POLLRDHUP);
	poll_one("peer", peer, POLLIN | POLLPRI | POLLRDHUP, 0);
	get_now("recv", peer, 4);
	is("urgent", send(here, "u", 1, MSG_OOB | MSG_NOSIGNAL));
	settle(peer, POLLERR);
	poll_one("peer", peer, POLLIN | POLLPRI | POLLRDHUP, 0);
	get_now("recv", peer, 4);
}

/* Bytes lie unread from before a connection moved, and from after it. */
static void unread_of_both(void)
{
	cold_pair(AF_INET, false);
	put_text(here, "0123456789");
	settle(peer, POLLIN);
	for (int i = 0; i < 20; i++) {
		recv(here, &(char){ 0 }, 1, MSG_DONTWAIT);
		pass_ms(1);
	}
	put_text(here, "a");
}

static void poll_both(void)
{
	poll_one("here", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	poll_one("peer", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
}

ROW(life_shut_one_by_one_unread)
{
	unread_of_both();
	shutdown(peer, SHUT_WR);
	settle(here, POLLRDHUP);
	poll_both();
	shutdown(peer, SHUT_RD);
	poll_both();
	get_now("recv", peer, 16);
	get_now("recv", peer, 16);
	poll_both();
}

ROW(life_shut_rd_unread)
{
	unread_of_both();
	shutdown(peer, SHUT_RD);
	poll_both();
	put_text(here, "b");
	get_now("recv", peer, 16);
	get_now("recv", peer, 16);
	poll_both();
}

ROW(life_peer_ends_unread)
{
	unread_of_both();
	shutdown(here, SHUT_WR);
	settle(peer, POLLRDHUP);
	poll_both();
	shutdown(peer, SHUT_WR);
	settle(here, POLLHUP);
	poll_both();
	get_now("recv", peer, 16);
	get_now("recv", peer, 16);
	poll_both();
}

ROW(life_both_end_unread)
{
	unread_of_both();
	shutdown(peer, SHUT_WR);
	settle(here, POLLRDHUP);
	poll_both();
	shutdown(here, SHUT_WR);
	settle(peer, POLLHUP);
	poll_both();
	get_now("recv", peer, 16);
	poll_both();
}

ROW(life_peer_closes_unread)
{
	unread_of_both();
	close(here);
	settle(peer, POLLRDHUP);
	poll_one("peer", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	shutdown(peer, SHUT_WR);
	poll_one("peer", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", peer, 16);
	get_now("recv", peer, 16);
}

ROW(life_lowat_unread_of_both)
{
	unread_of_both();
	pass_ms(1);
	for (int i = 9; i < 14; i++) {
		is("lowat",
		   setsockopt(peer, SOL_SOCKET, SO_RCVLOWAT, &i, sizeof(i)));
		poll_one("peer", peer, POLLIN, 0);
	}
	is("unread", ioctl(peer, FIONREAD, &(int){ 0 }));
	put_text(here, "bc");
	settle(peer, POLLIN);
	poll_one("peer", peer, POLLIN, 0);
}

/* Bytes that nobody read are told of by a reset, whoever else had them. */
ROW(life_close_unread_forked)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0)
		_exit(0);
	child("child", pid);
	put_text(here, "unread");
	settle(peer, POLLIN);
	close(peer);
	settle(here, POLLHUP);
	get_now("recv", here, 8);
}

/* --- options ------------------------------------------------------------ */

ROW(life_options)
{
	pair();
	option("type", here, SOL_SOCKET, SO_TYPE);
	option("accepts", here, SOL_SOCKET, SO_ACCEPTCONN);
	option("domain", here, SOL_SOCKET, SO_DOMAIN);
	option("protocol", here, SOL_SOCKET, SO_PROTOCOL);
	set_option("keepalive", here, SOL_SOCKET, SO_KEEPALIVE, 1);
	option("keepalive", here, SOL_SOCKET, SO_KEEPALIVE);
	set_option("nodelay", here, IPPROTO_TCP, TCP_NODELAY, 1);
	option("nodelay", here, IPPROTO_TCP, TCP_NODELAY);
	set_option("cork", here, IPPROTO_TCP, TCP_CORK, 1);
	option("cork", here, IPPROTO_TCP, TCP_CORK);
	set_option("cork", here, IPPROTO_TCP, TCP_CORK, 0);
	set_option("quickack", here, IPPROTO_TCP, TCP_QUICKACK, 1);
	set_option("user timeout", here, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000);
	set_option("lowat", here, SOL_SOCKET, SO_RCVLOWAT, 3);
	option("lowat", here, SOL_SOCKET, SO_RCVLOWAT);
	set_option("wrong", here, SOL_SOCKET, 9999, 1);
	set_option("level", here, 9999, 1, 1);
	is("short", setsockopt(here, SOL_SOCKET, SO_KEEPALIVE, "", 1));
	set_option("buffer", here, SOL_SOCKET, SO_RCVBUF, 40000);
	set_option("buffer", here, SOL_SOCKET, SO_SNDBUF, 40000);
	option("buffer", here, SOL_SOCKET, SO_SNDBUF);
	warm(here, peer);
	say("works");
}

ROW(life_linger_option)
{
	struct linger l = { .l_onoff = 1, .l_linger = 7 };
	socklen_t len = sizeof(l);

	pair();
	is("set", setsockopt(here, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	warm(here, peer);
	memset(&l, 0, sizeof(l));
	is("get", getsockopt(here, SOL_SOCKET, SO_LINGER, &l, &len));
	say("%d %d", l.l_onoff, l.l_linger);
}

ROW(life_nonblocking_ways)
{
	int on = 1, off = 0;

	pair();
	is("fionbio", ioctl(here, FIONBIO, &on));
	say("%s", fcntl(here, F_GETFL) & O_NONBLOCK ? "nonblocking" : "blocks");
	is("read", read(here, &(char){ 0 }, 1));
	is("fionbio", ioctl(here, FIONBIO, &off));
	say("%s", fcntl(here, F_GETFL) & O_NONBLOCK ? "nonblocking" : "blocks");
	is("fcntl", fcntl(here, F_SETFL, O_RDWR | O_NONBLOCK));
	is("recv", recv(here, &(char){ 0 }, 1, 0));
	is("fcntl", fcntl(here, F_GETFL));
	is("fioclex", ioctl(here, FIOCLEX));
	is("getfd", fcntl(here, F_GETFD));
	is("fionclex", ioctl(here, FIONCLEX));
	is("wrong", ioctl(here, 0x12345678, &on));
}

ROW(life_async_flag)
{
	pair();
	is("async", fcntl(here, F_SETFL, O_RDWR | O_ASYNC));
	is("flags", fcntl(here, F_GETFL));
	warm(here, peer);
	say("works");
}

ROW(life_bytes_of_tcp_info)
{
	struct tcp_info i = { 0 };
	socklen_t len = sizeof(i);

	pair();
	is("info", getsockopt(here, IPPROTO_TCP, TCP_INFO, &i, &len));
	say("state %d", i.tcpi_state);
}

/* However far the two ends have come to know each other. */
ROW(life_close_at_any_moment)
{
	int came = 0;

	for (int i = 0; i < 300; i++) {
		char buf[8];

		cold_pair(AF_INET, false);
		for (int k = 0; k < i % 30; k++) {
			put_text(here, "ping");
			get_all(peer, buf, 4);
		}
		close(here);
		came += read(peer, buf, 1) == 0;
		close(peer);
	}
	say("%d ends", came);
}
