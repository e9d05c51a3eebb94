/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls by number, through syscall(). */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "behave.h"

static void answer(const char *what, int fd)
{
	settle(fd, POLLIN);
	get_now(what, fd, 64);
}

static void hello(void)
{
	pair();
	put_text(peer, "hello, world");
	settle(here, POLLIN);
}

/* --- bytes -------------------------------------------------------------- */

ROW(syscall_reads)
{
	char buf[64] = "", two[4] = "";
	struct iovec v[] = { { buf, 2 }, { two, 1 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 1 };
	struct mmsghdr mm = { .msg_hdr = m };

	hello();
	got("read", syscall(SYS_read, here, buf, 2), buf);
	is("readv", syscall(SYS_readv, here, v, 2));
	say("%.2s%.1s", buf, two);
	got("recvfrom",
	    syscall(SYS_recvfrom, here, buf, 1, MSG_PEEK, NULL, NULL), buf);
	got("recvfrom", syscall(SYS_recvfrom, here, buf, 1, 0, NULL, NULL),
	    buf);
	got("recvmsg", syscall(SYS_recvmsg, here, &m, 0), buf);
	is("recvmmsg", syscall(SYS_recvmmsg, here, &mm, 1, 0, NULL));
	got("message", mm.msg_len, buf);
	got("preadv2", syscall(SYS_preadv2, here, v, 1, -1L, -1L, 0), buf);
	answer("rest", here);
	is("none", syscall(SYS_recvfrom, here, buf, 1, MSG_DONTWAIT, 0, 0));
	is("closed", syscall(SYS_read, 999, buf, 1));
}

ROW(syscall_writes)
{
	struct iovec v = { (char[]){ "v" }, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct mmsghdr mm = { .msg_hdr = m };
	char path[] = "/tmp/behave.XXXXXX";
	int f = mkstemp(path), p[2];
	off_t at = 1;

	unlink(path);
	pair();
	is("file", syscall(SYS_write, f, "-f-", 3));
	is("write", syscall(SYS_write, here, "w", 1));
	is("writev", syscall(SYS_writev, here, &v, 1));
	is("sendto", syscall(SYS_sendto, here, "t", 1, 0, NULL, 0));
	is("sendmsg", syscall(SYS_sendmsg, here, &m, 0));
	is("sendmmsg", syscall(SYS_sendmmsg, here, &mm, 1, 0));
	is("pwritev2", syscall(SYS_pwritev2, here, &v, 1, -1L, -1L, 0));
	is("sendfile", syscall(SYS_sendfile, here, f, &at, 1L));
	say("%d", (int)at);
	answer("peer", peer);
	is("pipe", pipe(p));
	is("write", syscall(SYS_write, p[1], "pipe", 4));
	is("splice", syscall(SYS_splice, p[0], NULL, here, NULL, 4L, 0));
	answer("peer", peer);
	is("shutdown", syscall(SYS_shutdown, here, SHUT_WR));
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

/* --- readiness ---------------------------------------------------------- */

ROW(syscall_ppoll)
{
	struct timespec t = { .tv_nsec = 5000000 };
	struct pollfd p = { .events = POLLIN };
	uint64_t mask = 0;

	pair();
	p.fd = here;
	is("ppoll", syscall(SYS_ppoll, &p, 1, &t, &mask, sizeof(mask)));
	say("left %d %d", (int)t.tv_sec, (int)t.tv_nsec);
	is("size", syscall(SYS_ppoll, &p, 1, &t, &mask, 3));
	put_text(peer, "hello");
	settle(here, POLLIN);
	t.tv_sec = 100;
	is("ppoll", syscall(SYS_ppoll, &p, 1, &t, NULL, 0));
	say("%s", t.tv_sec == 99 ? "less" : "as it was");
	is("time", syscall(SYS_ppoll, &p, 1,
			   &(struct timespec){ .tv_nsec = -1 }, NULL, 0));
}

ROW(syscall_pselect)
{
	struct timespec t = { .tv_nsec = 5000000 };
	uint64_t mask = 0;
	struct {
		uint64_t *mask;
		size_t size;
	} sixth = { &mask, sizeof(mask) };
	fd_set r;

	pair();
	FD_ZERO(&r);
	FD_SET(here, &r);
	is("pselect",
	   syscall(SYS_pselect6, here + 1, &r, NULL, NULL, &t, &sixth));
	say("left %d %d", (int)t.tv_sec, (int)t.tv_nsec);
	put_text(peer, "hello");
	settle(here, POLLIN);
	FD_SET(here, &r);
	t.tv_sec = 100;
	is("pselect", syscall(SYS_pselect6, here + 1, &r, NULL, NULL, &t, 0L));
	say("%s %s", FD_ISSET(here, &r) ? "set" : "not set",
	    t.tv_sec == 99 ? "less" : "as it was");
	sixth.size = 5;
	is("size", syscall(SYS_pselect6, here + 1, &r, NULL, NULL, &t, &sixth));
}

ROW(syscall_epoll)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 7 };
	struct timespec t = { .tv_nsec = 5000000 };
	int set = (int)syscall(SYS_epoll_create1, 0);
	uint64_t mask = 0;

	pair();
	is("ctl", syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, here, &e));
	is("pwait", syscall(SYS_epoll_pwait, set, &e, 1, 5, &mask, 8L));
	is("pwait2", syscall(SYS_epoll_pwait2, set, &e, 1, &t, NULL, 0L));
	put_text(peer, "hello");
	settle(here, POLLIN);
	e.data.u64 = 0;
	is("pwait", syscall(SYS_epoll_pwait, set, &e, 1, -1, NULL, 0L));
	say("%d", (int)e.data.u64);
	e.data.u64 = 0;
	is("pwait2", syscall(SYS_epoll_pwait2, set, &e, 1, &t, &mask, 8L));
	say("%d", (int)e.data.u64);
	is("size", syscall(SYS_epoll_pwait, set, &e, 1, 0, &mask, 4L));
	is("size", syscall(SYS_epoll_pwait2, set, &e, 1, &t, &mask, 4L));
}

#ifdef SYS_poll
ROW(syscall_old_numbers)
{
	struct epoll_event e = { .events = EPOLLIN };
	struct pollfd p = { .events = POLLIN };
	struct timeval t = { .tv_usec = 2000 };
	int set = (int)syscall(SYS_epoll_create, 1);
	pid_t pid;
	fd_set r;

	hello();
	p.fd = here;
	FD_ZERO(&r);
	FD_SET(here, &r);
	is("poll", syscall(SYS_poll, &p, 1, 0));
	is("select", syscall(SYS_select, here + 1, &r, NULL, NULL, &t));
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &e));
	is("wait", syscall(SYS_epoll_wait, set, &e, 1, 0));
	pid = (pid_t)syscall(SYS_fork);
	if (pid == 0) {
		put_text(here, "child");
		_exit(0);
	}
	child("fork", pid);
	answer("peer", peer);
	put_text(here, "parent");
	answer("peer", peer);
	is("dup2", syscall(SYS_dup2, here, 77));
	answer("two", 77);
}
#endif

/* --- beginnings, ends, names -------------------------------------------- */

ROW(syscall_life)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t len = sizeof(in);
	int l = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), on = 1;
	struct linger reset_it = { .l_onoff = 1 };

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	is("bind", syscall(SYS_bind, l, &in, sizeof(in)));
	is("listen", syscall(SYS_listen, l, 5));
	is("name", syscall(SYS_getsockname, l, &in, &len));
	here = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
	is("connect", syscall(SYS_connect, here, &in, len));
	peer = (int)syscall(SYS_accept4, l, NULL, NULL, SOCK_NONBLOCK);
	warm(here, peer);
	is("again", syscall(SYS_connect, here, &in, len));
	is("read", syscall(SYS_read, peer, &on, 4));
	is("FIONBIO", syscall(SYS_ioctl, here, FIONBIO, &on));
	is("read", syscall(SYS_read, here, &on, 4));
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("FIONREAD", syscall(SYS_ioctl, here, FIONREAD, &on));
	say("%d", on);
	is("linger", syscall(SYS_setsockopt, here, SOL_SOCKET, SO_LINGER,
			     &reset_it, sizeof(reset_it)));
	is("close", syscall(SYS_close, here));
	settle(peer, POLLHUP);
	is("reset", syscall(SYS_read, peer, &on, 4));
	here = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
	is("connect", syscall(SYS_connect, here, &in, len));
	peer = (int)syscall(SYS_accept, l, NULL, NULL);
	warm(here, peer);
	is("close", syscall(SYS_close_range, here, here, 0));
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

ROW(syscall_names)
{
	int two;

	hello();
	two = (int)syscall(SYS_dup, here);
	get_now("dup", two, 3);
	two = (int)syscall(SYS_dup3, two, 77, O_CLOEXEC);
	is("dup3", two);
	get_now("dup3", two, 3);
	two = (int)syscall(SYS_fcntl, two, F_DUPFD, 50);
	is("fcntl", two);
	get_now("fcntl", two, 3);
	is("flags", syscall(SYS_fcntl, 77, F_GETFD));
	is("set", syscall(SYS_fcntl, two, F_SETFL, O_NONBLOCK));
	put_text(two, "two");
	answer("peer", peer);
	answer("rest", here);
	is("none", read(here, &two, 1));
}

ROW(syscall_execve)
{
	char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" },
			 (char[]){ "read x <&$N; echo $x got >&$N" }, NULL };
	char number[] = "N=?", *env[] = { number, NULL };
	pid_t pid;

	pair();
	number[2] = (char)('0' + here);
	put_text(peer, "line\n");
	settle(here, POLLIN);
	pid = fork();
	if (pid == 0) {
		syscall(SYS_execve, "/bin/sh", argv, env);
		_exit(127);
	}
	child("child", pid);
	answer("peer", peer);
}

/* --- any other ---------------------------------------------------------- */

ROW(syscall_others)
{
	long size = sysconf(_SC_PAGESIZE);
	char path[] = "/tmp/behave.XXXXXX", *m;
	int f = mkstemp(path);

	unlink(path);
	is("none", syscall(100000, 1, 2, 3));
	is("file", pwrite(f, "x", 1, size));
	/* Six arguments, of which the last matters. */
	m = (char *)syscall(SYS_mmap, NULL, size, PROT_READ, MAP_PRIVATE, f,
			    size);
	say("%s", m != MAP_FAILED && *m == 'x' ? "mapped" : "not mapped");
	say("%s", syscall(SYS_getpid) == getpid() ? "same" : "different");
	is("pread", syscall(SYS_pread64, f, path, 1, size));
	is("wrong", syscall(SYS_pread64, 999, path, 1, 0));
}
