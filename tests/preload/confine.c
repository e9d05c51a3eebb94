/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes under filters of system calls, and in their own namespaces. */
#include "behave.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void answer(const char *what, int fd)
{
	settle(fd, POLLIN);
	get_now(what, fd, 64);
}

/* --- filters ------------------------------------------------------------ */

#define FEW_MAX 24

/* Whatever else is called ends the process. */
static struct sock_fprog *only(const int *calls, size_t n)
{
	static struct sock_filter code[2 * FEW_MAX + 8];
	static struct sock_fprog prog = { .filter = code };
	struct sock_filter *c = code;

	*c++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					    offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < n; i++) {
		*c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
						    (unsigned int)calls[i], 0,
						    1);
		*c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
						    SECCOMP_RET_ALLOW);
	}
	*c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
					    SECCOMP_RET_KILL_PROCESS);
	prog.len = (unsigned short)(c - code);
	return &prog;
}

#define ONLY(...)                                                              \
	only((const int[]){ __VA_ARGS__ },                                     \
	     sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))

/* What the C library calls for poll(). */
#ifdef SYS_poll
#define POLLS SYS_poll
#else
#define POLLS SYS_ppoll
#endif

static void few(void)
{
	is("privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

/* Both ends are here; what was unread is there. */
static void read_and_write(void)
{
	char buf[16];

	got("read", read(here, buf, sizeof(buf)), buf);
	is("write", write(here, "confined", 8));
	got("peer", read(peer, buf, sizeof(buf)), buf);
	is("write", write(peer, "back", 4));
	got("read", read(here, buf, sizeof(buf)), buf);
}

static void with_bytes(void)
{
	pair();
	put_text(peer, "unread");
	settle(here, POLLIN);
}

ROW(confine_filter)
{
	with_bytes();
	few();
	is("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
			   ONLY(SYS_read, SYS_write, SYS_exit_group), 0, 0));
	read_and_write();
	_exit(0);
}

/* What gives a second number makes no call of its own there. */
ROW(confine_dup)
{
	with_bytes();
	few();
	is("filter",
	   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
		 ONLY(SYS_read, SYS_write, SYS_exit_group, SYS_dup, SYS_fcntl),
		 0, 0));
	say("dup %d", dup(here) >= 0);
	say("dup %d", fcntl(here, F_DUPFD_CLOEXEC, 0) >= 0);
	read_and_write();
	_exit(0);
}

/* Nor does what may give up a user. */
ROW(confine_user)
{
	uid_t user = getuid();

	with_bytes();
	few();
	is("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
			   ONLY(SYS_read, SYS_write, SYS_exit_group, SYS_setuid,
				SYS_setreuid, SYS_setresuid),
			   0, 0));
	is("setuid", setuid(user));
	is("seteuid", seteuid(user));
	is("setreuid", setreuid(user, user));
	is("setresuid", setresuid(user, user, user));
	is("by number", (int)syscall(SYS_setuid, user));
	read_and_write();
	_exit(0);
}

ROW(confine_filter_by_number)
{
	with_bytes();
	few();
	is("filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			     SECCOMP_FILTER_FLAG_TSYNC,
			     ONLY(SYS_read, SYS_write, SYS_exit_group)));
	read_and_write();
	_exit(0);
}

ROW(confine_strict)
{
	with_bytes();
	is("strict", prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0));
	read_and_write();
	syscall(SYS_exit, 0);
}

ROW(confine_asked)
{
	char name[16] = "";

	with_bytes();
	is("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0L, 0, 0));
	is("mode", prctl(PR_SET_SECCOMP, 77, 0L, 0, 0));
	is("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
	is("name", prctl(PR_SET_NAME, "another"));
	is("name", prctl(PR_GET_NAME, name));
	say("%s", name);
	read_and_write();
	warm(here, peer);
	say("works");
}

/* A program that the kernel refuses. */
ROW(confine_refused)
{
	struct sock_fprog none = { .len = 0 };

	with_bytes();
	is("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &none, 0, 0));
	read_and_write();
	pair();
	put_text(here, "new");
	answer("peer", peer);
}

ROW(confine_child)
{
	pid_t pid;

	with_bytes();
	pid = fork();
	if (pid == 0) {
		char buf[16];

		few();
		is("filter",
		   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
			 ONLY(SYS_read, SYS_write, SYS_exit_group), 0, 0));
		got("read", read(here, buf, sizeof(buf)), buf);
		is("write", write(here, "child", 5));
		_exit(0);
	}
	child("child", pid);
	answer("peer", peer);
	put_text(here, "parent");
	answer("peer", peer);
}

/* What the program itself needs, and no more. */
ROW(confine_new_connections)
{
	few();
	is("filter",
	   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
		 ONLY(SYS_read, SYS_write, SYS_exit_group, SYS_socket, SYS_bind,
		      SYS_listen, SYS_getsockname, SYS_connect, SYS_accept,
		      SYS_close, SYS_setsockopt, SYS_sendto, SYS_recvfrom,
		      POLLS),
		 0, 0));
	pair();
	put_text(peer, "unread");
	read_and_write();
	_exit(0);
}

#ifdef SYS_epoll_wait
ROW(confine_epoll)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 7 };
	int set = epoll_create1(0), two = epoll_create1(0);

	pair();
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &e));
	is("add", epoll_ctl(two, EPOLL_CTL_ADD, here, &e));
	is("wait", epoll_wait(set, &e, 1, 1));
	put_text(peer, "unread");
	settle(here, POLLIN);
	few();
	is("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
			   ONLY(SYS_read, SYS_write, SYS_exit_group,
				SYS_epoll_wait, SYS_epoll_ctl),
			   0, 0));
	e.data.u64 = 0;
	is("wait", epoll_wait(set, &e, 1, -1));
	say("%d", (int)e.data.u64);
	read_and_write();
	is("wait", epoll_wait(set, &e, 1, 0));
	is("wait", epoll_wait(two, &e, 1, 0));
	is("del", epoll_ctl(set, EPOLL_CTL_DEL, here, NULL));
	_exit(0);
}
#endif

/* --- namespaces --------------------------------------------------------- */

static void still_there(void)
{
	answer("here", here);
	put_text(here, "still");
	answer("peer", peer);
	warm(here, peer);
	say("works");
}

ROW(apart_user)
{
	with_bytes();
	is("unshare", unshare(CLONE_NEWUSER));
	still_there();
	pair();
	say("again");
}

ROW(apart_user_and_more)
{
	pid_t pid;

	with_bytes();
	is("unshare", unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET));
	still_there();
	pid = fork();
	if (pid == 0) {
		say("%s", getpid() == 1 ? "the first" : "one more");
		put_text(here, "child");
		_exit(0);
	}
	child("child", pid);
	answer("peer", peer);
}

ROW(apart_descriptors)
{
	with_bytes();
	is("unshare", unshare(CLONE_FILES));
	still_there();
	close(here);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
	pair();
	put_text(peer, "new");
	answer("here", here);
}

static void *with_its_own(void *arg)
{
	is("unshare", unshare(CLONE_FILES));
	is("close", close(here));
	is("here", fcntl(here, F_GETFD));
	return NULL;
}

/* What a thread closes in a table of its own stays open in the others'. */
static void thread_apart(void *(*run)(void *))
{
	pthread_t t;

	with_bytes();
	pthread_create(&t, NULL, run, NULL);
	pthread_join(t, NULL);
	is("here", fcntl(here, F_GETFD));
	answer("here", here);
	put_text(here, "still");
	answer("peer", peer);
	close(here);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

ROW(apart_descriptors_of_a_thread)
{
	thread_apart(with_its_own);
}

ROW(apart_close_range)
{
	with_bytes();
	is("close_range", close_range(900, ~0u, CLOSE_RANGE_UNSHARE));
	still_there();
	is("wrong", close_range(9, 3, CLOSE_RANGE_UNSHARE));
	is("close_range", close_range((unsigned int)here, (unsigned int)here,
				      CLOSE_RANGE_UNSHARE));
	is("here", fcntl(here, F_GETFD));
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
	pair();
	put_text(peer, "new");
	answer("here", here);
}

static void *closes_its_own(void *arg)
{
	is("close_range", close_range((unsigned int)here, (unsigned int)here,
				      CLOSE_RANGE_UNSHARE));
	is("here", fcntl(here, F_GETFD));
	return NULL;
}

ROW(apart_close_range_of_a_thread)
{
	thread_apart(closes_its_own);
}

ROW(apart_network)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l;

	with_bytes();
	is("unshare", unshare(CLONE_NEWNET));
	still_there();
	l = socket(stream_family, stream_type, 0);
	len = sizeof(at);
	getsockname(peer, (struct sockaddr *)&at, &len);
	is("connect", connect(l, (struct sockaddr *)&at, len));
}

ROW(apart_setns)
{
	int mnt = open("/proc/self/ns/mnt", O_RDONLY),
	    net = open("/proc/self/ns/net", O_RDONLY),
	    user = open("/proc/self/ns/user", O_RDONLY);

	with_bytes();
	is("mnt", setns(mnt, 0));
	is("mnt", setns(mnt, CLONE_NEWNS));
	is("net", setns(net, CLONE_NEWNET));
	is("wrong", setns(net, CLONE_NEWNS));
	is("user", setns(user, 0));
	is("none", setns(999, 0));
	is("file", setns(here, 0));
	still_there();
}
