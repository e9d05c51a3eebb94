/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls by each of their names, and calls that a socket refuses. */
#include "behave.h"

#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <locale.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include "raw.h"

static void answer(const char *what, int fd)
{
	settle(fd, POLLIN);
	get_now(what, fd, 64);
}

/* --- names that no header has ------------------------------------------- */

int __close(int fd);
int __connect(int fd, const struct sockaddr *a, socklen_t l);
int __dup2(int from, int to);
int __fcntl(int fd, int cmd, ...);
int __poll(struct pollfd *p, nfds_t n, int ms);
ssize_t __read(int fd, void *buf, size_t n);
int __select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *t);
#ifdef __aarch64__ /* whose C library has it for old programs only */
#define __send send
#else
ssize_t __send(int fd, const void *buf, size_t n, int flags);
#endif
pid_t __vfork(void);
ssize_t __write(int fd, const void *buf, size_t n);
FILE *_IO_fdopen(int fd, const char *mode);

ROW(names_underscore_io)
{
	char buf[64];

	pair();
	is("write", __write(here, "one", 3));
	is("send", __send(here, "two", 3, 0));
	settle(peer, POLLIN);
	got("read", __read(peer, buf, 3), buf);
	got("read", __read(peer, buf, 64), buf);
}

ROW(names_underscore_ready)
{
	struct pollfd p = { .events = POLLIN };
	struct timeval t = { .tv_usec = 1000 };
	fd_set r;

	pair();
	p.fd = here;
	is("poll", __poll(&p, 1, 0));
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("poll", __poll(&p, 1, 0));
	FD_ZERO(&r);
	FD_SET(here, &r);
	is("select", __select(here + 1, &r, NULL, NULL, &t));
	is("nonblocking", __fcntl(here, F_SETFL, O_NONBLOCK));
	answer("read", here);
	is("read", __read(here, (char[1]){ 0 }, 1));
}

ROW(names_underscore_ends)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l;

	pair();
	is("dup2", __dup2(here, 77));
	put_text(77, "two");
	answer("peer", peer);
	is("close", __close(77));
	is("close", __close(here));
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
	l = listener(AF_INET, &at, &len);
	here = socket(stream_family, stream_type, 0);
	is("connect", __connect(here, (struct sockaddr *)&at, len));
	peer = accept(l, NULL, NULL);
	warm(here, peer);
	put_text(here, "moved");
	answer("peer", peer);
}

ROW(names_underscore_fdopen)
{
	FILE *f;

	pair();
	put_text(peer, "line\n");
	settle(here, POLLIN);
	f = _IO_fdopen(here, "r+");
	fputs("answer", f);
	fflush(f);
	answer("peer", peer);
	fseek(f, 0, SEEK_CUR);
	say("%c", getc(f));
}

ROW(names_underscore_vfork)
{
	pid_t pid;

	pair();
	pid = __vfork();
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	child("child", pid);
	put_text(here, "hello");
	answer("peer", peer);
}

/* --- what fortified programs call --------------------------------------- */

int __dprintf_chk(int fd, int flag, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int __poll_chk(struct pollfd *p, nfds_t n, int ms, size_t size);
int __ppoll_chk(struct pollfd *p, nfds_t n, const struct timespec *t,
		const sigset_t *mask, size_t size);
ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);
ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t size, int flags,
		       struct sockaddr *addr, socklen_t *len);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));

static int print(int fd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static int print(int fd, const char *fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = __vdprintf_chk(fd, 1, fmt, ap);
	va_end(ap);
	return ret;
}

ROW(names_fortified)
{
	struct pollfd p = { .events = POLLIN };
	struct timespec t = { 0 };
	char buf[64];

	pair();
	p.fd = here;
	is("print", __dprintf_chk(peer, 1, "%s ", "one"));
	is("print", print(peer, "%d three and more", 2));
	settle(here, POLLIN);
	is("poll", __poll_chk(&p, 1, 0, sizeof(p)));
	is("poll", __ppoll_chk(&p, 1, &t, NULL, sizeof(p)));
	got("read", __read_chk(here, buf, 4, sizeof(buf)), buf);
	got("recv", __recv_chk(here, buf, 2, sizeof(buf), 0), buf);
	got("recvfrom",
	    __recvfrom_chk(here, buf, sizeof(buf), sizeof(buf), 0, NULL, NULL),
	    buf);
}

ROW(names_fortified_too_long)
{
	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	if (freopen("/dev/null", "w", stderr)) /* it says so there */
		__recv_chk(here, (char[8]){ 0 }, 8, 4, 0);
}

ROW(names_sixty_four)
{
	char path[] = "/tmp/behave.XXXXXX";
	off64_t at = 2;
	int f = mkstemp(path);

	unlink(path);
	pair();
	is("write", write(f, "bytes", 5));
	is("sendfile64", sendfile64(here, f, &at, 9));
	say("%d", (int)at);
	answer("peer", peer);
	is("fcntl64", fcntl64(here, F_SETFL, O_NONBLOCK));
	is("read", read(here, path, 1));
	is("fcntl64", fcntl64(here, F_SETFL, 0));
	say("%s", fcntl64(here, F_GETFL) & O_NONBLOCK ? "not set" : "set");
}

static int print_list(int fd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static int print_list(int fd, const char *fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = vdprintf(fd, fmt, ap);
	va_end(ap);
	return ret;
}

ROW(stdio_vdprintf)
{
	pair();
	is("vdprintf", print_list(here, "number %d", 5));
	answer("peer", peer);
}

static void names(const char *what, int fd, struct sockaddr_in *own,
		  struct sockaddr_in *other)
{
	socklen_t len = sizeof(*own), part = 3;

	is(what, getsockname(fd, (struct sockaddr *)own, &len));
	say("%d", (int)len);
	len = sizeof(*other);
	is(what, getpeername(fd, (struct sockaddr *)other, &len));
	say("%d", (int)len);
	is("part", getsockname(fd, (struct sockaddr *)own, &part));
	say("%d", (int)part);
	part = (socklen_t)-1;
	is("wrong", getpeername(fd, (struct sockaddr *)other, &part));
}

ROW(names_of_a_peer_that_reset)
{
	pair();
	put_text(here, "unread");
	put_text(peer, "last words");
	settle(peer, POLLIN);
	close(peer);
	settle(here, POLLERR);
	fdopen(here, "r");
	poll_one("poll", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", here, 4);
	get_now("recv", here, 64);
	poll_one("poll", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", here, 64);
	get_now("recv", here, 64);
}

ROW(names_of_a_gone_peer_polled)
{
	pair();
	put_text(peer, "last words");
	close(peer);
	settle(here, POLLRDHUP);
	fdopen(here, "r");
	poll_one("poll", here, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("recv", here, 64);
	get_now("recv", here, 64);
}

/* What it wrote is unread when the connection goes to stdio. */
ROW(names_of_a_gone_peer)
{
	struct sockaddr_in own[2] = { 0 }, other[2] = { 0 };
	char line[16];
	FILE *f;

	pair();
	names("before", here, &own[0], &other[0]);
	put_text(peer, "last\nwords\n");
	close(peer);
	settle(here, POLLRDHUP);
	f = fdopen(here, "r");
	names("after", here, &own[1], &other[1]);
	say("%s", own[0].sin_port == own[1].sin_port &&
				  other[0].sin_port == other[1].sin_port
			  ? "same"
			  : "different");
	say("%s", fgets(line, sizeof(line), f) ? strtok(line, "\n") : "end");
	say("%s", fgets(line, sizeof(line), f) ? strtok(line, "\n") : "end");
	say("%s", fgets(line, sizeof(line), f) ? strtok(line, "\n") : "end");
	here = dup(fileno(f));
	fclose(f);
	names("closed", here, &own[1], &other[1]);
	say("%s",
	    other[0].sin_port == other[1].sin_port ? "same" : "different");
	close(here);
	pair();
	names("another", here, &own[1], &other[1]);
	say("%s",
	    other[0].sin_port == other[1].sin_port ? "same" : "different");
}

/* Numbers that a server which closed its own gets for connections. */
ROW(stdio_number_of_stdout)
{
	fflush(stdout);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	pair();
	is("here", here);
	is("peer", peer);
	printf("printed\n");
	fflush(stdout);
	is("write", write(here, "written\n", 8));
	printf("again\n");
	fflush(stdout);
	pass_ms(5);
	answer("peer", peer);
	fputs("complaint\n", stderr);
	answer("here", here);
	warm(here, peer);
	say("works");
}

ROW(stdio_number_of_stdin)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len);
	char line[16];

	here = socket(stream_family, stream_type, 0);
	is("connect", connect(here, (struct sockaddr *)&at, len));
	close(0);
	peer = accept(l, NULL, NULL);
	is("accept", peer);
	warm(here, peer);
	put_text(here, "one\ntwo\n");
	say("%s",
	    fgets(line, sizeof(line), stdin) ? strtok(line, "\n") : "end");
	say("%s",
	    fgets(line, sizeof(line), stdin) ? strtok(line, "\n") : "end");
	put_text(here, "three\n");
	settle(peer, POLLIN);
	get_now("recv", peer, 64);
	shutdown(here, SHUT_WR);
	say("%s",
	    fgets(line, sizeof(line), stdin) ? strtok(line, "\n") : "end");
}

/* As inetd starts a server: this is one already, natively. */
ROW(stdio_of_a_server)
{
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len);
	char *argv[] = { (char[]){ "cat" }, NULL };
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		peer = accept(l, NULL, NULL);
		dup2(peer, 0);
		dup2(peer, 1);
		dup2(peer, 2);
		close(peer);
		execv("/bin/cat", argv);
		_exit(127);
	}
	here = socket(stream_family, stream_type, 0);
	is("connect", connect(here, (struct sockaddr *)&at, len));
	for (int i = 0; i < 40; i++) {
		char out[512], in[512];

		memset(out, 'a' + i % 26, sizeof(out));
		put_all(here, out, sizeof(out));
		get_all(here, in, sizeof(in));
		if (memcmp(in, out, sizeof(in)) != 0)
			die("get the same back");
	}
	shutdown(here, SHUT_WR);
	settle(here, POLLRDHUP);
	get_now("end", here, 4);
	child("child", pid);
}

/* --- ends and places ---------------------------------------------------- */

ROW(names_closefrom)
{
	int spare;

	pair();
	spare = dup2(0, 1000);
	put_text(here, "last");
	closefrom(here < peer ? here : peer);
	is("here", fcntl(here, F_GETFD));
	is("peer", fcntl(peer, F_GETFD));
	is("spare", fcntl(spare, F_GETFD));
	pair();
	put_text(here, "works");
	answer("peer", peer);
}

ROW(names_at_no_place)
{
	char buf[8] = "";
	struct iovec v = { buf, 2 };

	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	got("preadv2", preadv2(here, &v, 1, -1, RWF_NOWAIT), buf);
	got("preadv64v2", preadv64v2(here, &v, 1, -1, 0), buf);
	is("pwritev2", pwritev2(here, &v, 1, -1, 0));
	is("pwritev64v2", pwritev64v2(here, &v, 1, -1, RWF_NOWAIT));
	answer("peer", peer);
	v.iov_len = 8;
	answer("rest", here);
	is("none", preadv2(here, &v, 1, -1, RWF_NOWAIT));
}

/* --- other programs ----------------------------------------------------- */

static char *words[] = { (char[]){ "sh" }, (char[]){ "-c" }, NULL, NULL };
static char *environment[] = { (char[]){ "WORD=given" }, NULL };

static void by_execl(const char *sh)
{
	execl(sh, "sh", "-c", words[2], (char *)NULL);
}

static void by_execle(const char *sh)
{
	execle(sh, "sh", "-c", words[2], (char *)NULL, environment);
}

static void by_execlp(const char *sh)
{
	execlp("sh", "sh", "-c", words[2], (char *)NULL);
}

static void by_execv(const char *sh)
{
	execv(sh, words);
}

static void by_execve(const char *sh)
{
	execve(sh, words, environment);
}

static void by_execvp(const char *sh)
{
	execvp("sh", words);
}

static void by_execvpe(const char *sh)
{
	execvpe("sh", words, environment);
}

static void by_fexecve(const char *sh)
{
	fexecve(open(sh, O_RDONLY | O_CLOEXEC), words, environment);
}

static void by_execveat(const char *sh)
{
	execveat(open(sh, O_RDONLY | O_CLOEXEC), "", words, environment,
		 AT_EMPTY_PATH);
}

/* The program gets the connection by number, with bytes unread on it. */
static void exec_with(void (*f)(const char *sh))
{
	char script[64];
	pid_t pid;

	pair();
	put_text(peer, "line\n");
	settle(here, POLLIN);
	snprintf(script, sizeof(script), "read x <&%d; echo $x $WORD >&%d",
		 here, here);
	words[2] = script;
	setenv("WORD", "own", 1);
	pid = fork();
	if (pid == 0) {
		f("/bin/sh");
		_exit(127);
	}
	child("child", pid);
	answer("peer", peer);
	put_text(peer, "rest");
	answer("here", here);
}

ROW(exec_execl)
{
	exec_with(by_execl);
}

ROW(exec_execle)
{
	exec_with(by_execle);
}

ROW(exec_execlp)
{
	exec_with(by_execlp);
}

ROW(exec_execv)
{
	exec_with(by_execv);
}

ROW(exec_execve)
{
	exec_with(by_execve);
}

ROW(exec_execvp)
{
	exec_with(by_execvp);
}

ROW(exec_execvpe)
{
	exec_with(by_execvpe);
}

ROW(exec_fexecve)
{
	exec_with(by_fexecve);
}

ROW(exec_execveat)
{
	exec_with(by_execveat);
}

/* A shell that has the actions' descriptors runs the script, where $N is fd. */
static void spawn(posix_spawn_file_actions_t *actions, const char *script,
		  int fd)
{
	char number[16], *env[] = { number, NULL };
	pid_t pid = -1;

	snprintf(number, sizeof(number), "N=%d", fd);
	words[2] = strdup(script);
	is("spawn", posix_spawn(&pid, "/bin/sh", actions, NULL, words, env));
	child("child", pid);
}

static const char both_ways[] = "read x <&$N; echo $x got >&$N";

ROW(spawn_inherits_number)
{
	pair();
	put_text(peer, "line\n");
	settle(here, POLLIN);
	spawn(NULL, both_ways, here);
	answer("peer", peer);
	put_text(peer, "rest");
	answer("here", here);
}

ROW(spawn_not_inherited)
{
	pair();
	fcntl(here, F_SETFD, FD_CLOEXEC);
	fcntl(peer, F_SETFD, FD_CLOEXEC);
	spawn(NULL, "exec 2>/dev/null; echo lost >&$N", here);
	poll_one("peer", peer, POLLIN, 5);
	warm(here, peer);
	say("works");
}

ROW(spawn_given)
{
	posix_spawn_file_actions_t act;

	pair();
	fcntl(here, F_SETFD, FD_CLOEXEC);
	fcntl(peer, F_SETFD, FD_CLOEXEC);
	put_text(peer, "line\n");
	settle(here, POLLIN);
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_adddup2(&act, here, here);
	spawn(&act, both_ways, here);
	answer("peer", peer);
	posix_spawn_file_actions_destroy(&act);
}

/* The actions name numbers that are connections later. */
ROW(spawn_given_early)
{
	posix_spawn_file_actions_t act;
	int next = dup(0);

	close(next);
	posix_spawn_file_actions_init(&act);
	for (int i = 0; i < 4; i++)
		posix_spawn_file_actions_adddup2(&act, next + i, 6 + i);
	cold_pair(AF_INET, false);
	fcntl(here, F_SETFD, FD_CLOEXEC);
	fcntl(peer, F_SETFD, FD_CLOEXEC);
	for (int i = 0; i < 4; i++)
		if (next + i != here && next + i != peer)
			dup2(0, next + i);
	warm(here, peer);
	put_text(peer, "line\n");
	settle(here, POLLIN);
	spawn(&act, both_ways, 6 + here - next);
	answer("peer", peer);
	posix_spawn_file_actions_destroy(&act);
}

ROW(spawn_closed)
{
	posix_spawn_file_actions_t act;

	pair();
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_addclose(&act, here);
	posix_spawn_file_actions_addclose(&act, peer);
	spawn(&act, "exec 2>/dev/null; echo lost >&$N", here);
	poll_one("peer", peer, POLLIN, 5);
	posix_spawn_file_actions_destroy(&act);
	warm(here, peer);
	say("works");
	/* The same memory once more. */
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_addclose(&act, peer);
	spawn(&act, "echo word >&$N", here);
	answer("peer", peer);
	posix_spawn_file_actions_destroy(&act);
}

ROW(spawn_closed_from)
{
	posix_spawn_file_actions_t act;

	pair();
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_addclosefrom_np(&act, 3);
	spawn(&act, "exec 2>/dev/null; echo lost >&$N", here);
	poll_one("peer", peer, POLLIN, 5);
	warm(here, peer);
	say("works");
	posix_spawn_file_actions_destroy(&act);
}

ROW(spawn_opened_over)
{
	posix_spawn_file_actions_t act;

	pair();
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_addopen(&act, here, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&act, here, peer);
	spawn(&act, "echo lost >&$N", here);
	poll_one("peer", peer, POLLIN, 5);
	warm(here, peer);
	say("works");
	posix_spawn_file_actions_destroy(&act);
}

typedef int spawn_call(int *pidfd, const char *path,
		       const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attr, char *const *argv,
		       char *const *env);

static bool spawn_by(const char *name, const char *program, int fd)
{
	spawn_call *call = (spawn_call *)dlsym(RTLD_DEFAULT, name);
	char number[16], *env[] = { number, NULL };
	int pidfd = -1, ret;
	siginfo_t end;

	snprintf(number, sizeof(number), "N=%d", fd);
	words[2] = strdup(both_ways);
	ret = call ? call(&pidfd, program, NULL, NULL, words, env) : ENOSYS;
	is(name, ret);
	if (ret)
		return false;
	is("wait", waitid(P_ALL, 0, &end, WEXITED));
	is("status", end.si_status);
	return close(pidfd) == 0;
}

/* A C library before 2.39 has no such call. */
ROW(spawn_pidfd)
{
	pair();
	put_text(peer, "line\n");
	settle(here, POLLIN);
	if (spawn_by("pidfd_spawn", "/bin/sh", here))
		answer("peer", peer);
	pair();
	put_text(peer, "line\n");
	settle(here, POLLIN);
	if (spawn_by("pidfd_spawnp", "sh", here))
		answer("peer", peer);
}

ROW(spawn_fails)
{
	pid_t pid;

	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("spawn", posix_spawn(&pid, "/none", NULL, NULL, words, environment));
	is("spawnp",
	   posix_spawnp(&pid, "/none", NULL, NULL, words, environment));
	answer("here", here);
	put_text(here, "still");
	answer("peer", peer);
}

/* --- what a socket refuses ---------------------------------------------- */

off64_t __lseek(int fd, off64_t at, int whence);
ssize_t __pread64(int fd, void *buf, size_t n, off64_t at);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t size);
ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t size);
ssize_t __pwrite64(int fd, const void *buf, size_t n, off64_t at);

ROW(refused_places)
{
	struct iovec v = { (char[8]){ "x" }, 1 };
	char buf[8];

	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("pread", pread(here, buf, 8, 0));
	is("pread64", pread64(here, buf, 8, 5));
	is("pread64", __pread64(here, buf, 8, 5));
	is("pread", __pread_chk(here, buf, 8, 5, 8));
	is("pread64", __pread64_chk(here, buf, 8, 5, 8));
	is("pwrite", pwrite(here, "x", 1, 0));
	is("pwrite64", __pwrite64(here, "x", 1, 0));
	is("pwrite64", pwrite64(here, "x", 1, 5));
	is("preadv", preadv(here, &v, 1, 0));
	is("preadv64", preadv64(here, &v, 1, 0));
	is("pwritev", pwritev(here, &v, 1, 0));
	is("pwritev64", pwritev64(here, &v, 1, 0));
	is("preadv2", preadv2(here, &v, 1, 3, 0));
	is("pwritev2", pwritev2(here, &v, 1, 3, 0));
	is("lseek", lseek(here, 0, SEEK_CUR));
	is("lseek64", lseek64(here, 3, SEEK_SET));
	is("lseek", __lseek(here, 0, SEEK_CUR));
	is("ftruncate", ftruncate(here, 0));
	is("ftruncate64", ftruncate64(here, 0));
	is("fsync", fsync(here));
	is("fdatasync", fdatasync(here));
	is("readahead", readahead(here, 0, 4096));
	is("fallocate", fallocate(here, 0, 0, 10));
	answer("here", here);
	poll_one("peer", peer, POLLIN, 5);
}

/* Neither from nor to a socket. */
ROW(refused_pipe_calls)
{
	struct iovec v = { (char[8]){ "x" }, 1 };
	int p[2], f = open("/dev/null", O_RDWR);

	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("pipe", pipe(p));
	is("write", write(p[1], "p", 1));
	is("tee", tee(here, p[1], 5, SPLICE_F_NONBLOCK));
	is("tee", tee(p[0], here, 5, SPLICE_F_NONBLOCK));
	is("vmsplice", vmsplice(here, &v, 1, SPLICE_F_NONBLOCK));
	is("copy", copy_file_range(here, NULL, f, NULL, 5, 0));
	is("copy", copy_file_range(f, NULL, here, NULL, 5, 0));
	answer("here", here);
	poll_one("peer", peer, POLLIN, 5);
	warm(here, peer);
	say("works");
}

ROW(unread_mark)
{
	int n = -1;

	pair();
	is("sockatmark", sockatmark(here));
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("sockatmark", sockatmark(here));
	is("SIOCATMARK", ioctl(here, SIOCATMARK, &n));
	say("%d", n);
	send(peer, "u", 1, MSG_OOB);
	settle(here, POLLPRI);
	is("sockatmark", sockatmark(here));
	answer("here", here);
	is("sockatmark", sockatmark(here));
	say("%s", isfdtype(here, S_IFSOCK) ? "socket" : "other");
}

/* The C library makes these of others, which it calls inside. */
pid_t __fork(void);
int _IO_fclose(FILE *f);
FILE *_IO_popen(const char *command, const char *mode);

ROW(inside_bindresvport)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_storage at;
	socklen_t len;
	int l = listener(AF_INET, &at, &len);

	here = socket(stream_family, stream_type, 0);
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	is("bind", bindresvport(here, &in));
	is("connect", connect(here, (struct sockaddr *)&at, len));
	peer = accept(l, NULL, NULL);
	warm(here, peer);
	say("works");
}

ROW(inside_epoll_create)
{
	struct epoll_event e = { .events = EPOLLIN };
	int set = epoll_create(1);

	pair();
	is("add", epoll_ctl(set, EPOLL_CTL_ADD, here, &e));
	is("wait", epoll_wait(set, &e, 1, 5));
	put_text(peer, "hello");
	is("wait", epoll_wait(set, &e, 1, 2000));
}

static void end_stream(int (*f)(FILE *stream))
{
	FILE *stream;

	pair();
	stream = fdopen(here, "r+");
	fputs("last words", stream);
	is("close", f(stream));
	answer("peer", peer);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
	is("here", fcntl(here, F_GETFD));
}

static int reopen(FILE *stream)
{
	return freopen("/dev/null", "r", stream) ? 0 : -1;
}

static int reopen64(FILE *stream)
{
	return freopen64("/dev/null", "r", stream) ? 0 : -1;
}

ROW(inside_fclose)
{
	end_stream(_IO_fclose);
}

ROW(inside_freopen)
{
	end_stream(reopen);
}

ROW(inside_freopen64)
{
	end_stream(reopen64);
}

ROW(inside_fcloseall)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		close(peer);
		fputs("last words", fdopen(here, "w"));
		fcloseall();
		_exit(fcntl(here, F_GETFL) < 0 ? 3 : 0);
	}
	close(here);
	child("child", pid);
	answer("peer", peer);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

/* Their shells have what they inherit, and do nothing with it. */
ROW(inside_shells)
{
	char line[16] = "";
	wordexp_t words_of;
	FILE *f;

	pair();
	put_text(peer, "unread");
	settle(here, POLLIN);
	f = _IO_popen("echo popen", "r");
	say("%s", fgets(line, sizeof(line), f) ? strtok(line, "\n") : "end");
	is("close", pclose(f));
	is("wordexp", wordexp("$(echo a b)", &words_of, 0));
	say("%d %s", (int)words_of.we_wordc, words_of.we_wordv[1]);
	wordfree(&words_of);
	answer("here", here);
	warm(here, peer);
	say("works");
}

/* Where it is, and who has the terminal. */
ROW(spawn_elsewhere)
{
	posix_spawn_file_actions_t act;
	int root = open("/", O_RDONLY | O_DIRECTORY);
	pid_t pid;

	pair();
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_addchdir_np(&act, "/tmp");
	spawn(&act, "pwd >&$N", here);
	answer("peer", peer);
	posix_spawn_file_actions_addfchdir_np(&act, root);
	spawn(&act, "pwd >&$N", here);
	answer("peer", peer);
	posix_spawn_file_actions_addtcsetpgrp_np(&act, here);
	is("spawn",
	   posix_spawn(&pid, "/bin/true", &act, NULL, words, environment));
	posix_spawn_file_actions_destroy(&act);
	put_text(here, "still");
	answer("peer", peer);
}

/* --- ends of all kinds -------------------------------------------------- */

/* The peer is another process. */
static void end_by(void (*f)(int status))
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		close(peer);
		put_text(here, "last words");
		f(3);
		say("GOES ON");
	}
	close(here);
	child("child", pid);
	answer("peer", peer);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

static void by_number(int status)
{
	syscall(SYS_exit_group, status);
}

ROW(end_by_exit)
{
	end_by(exit);
}

ROW(end_by__exit)
{
	end_by(_exit);
}

ROW(end_by__Exit)
{
	end_by(_Exit);
}

ROW(end_by_quick_exit)
{
	end_by(quick_exit);
}

ROW(end_by_number)
{
	end_by(by_number);
}

static void leave(int sig)
{
	_exit(3);
}

static void in_malloc(int status)
{
	static const struct itimerval soon = { .it_value.tv_usec = 1000 };
	static void *_Atomic block;

	signal(SIGALRM, leave);
	setitimer(ITIMER_REAL, &soon, NULL);
	for (;; poll(NULL, 0, 0)) /* a sanitizer holds signals back till then */
		for (int i = 0; i < 10000; i++) {
			block = malloc(16384);
			free(block);
		}
}

/* A handler may end the process wherever it is. */
ROW(end_in_malloc)
{
	setlocale(LC_ALL, "C.UTF-8"); /* messages are looked up */
	for (int i = 0; i < 12; i++) {
		end_by(in_malloc);
		close(peer);
	}
}

/* The process that ends has not read what came, and has sent a word before. */
static void end_unread(int sig)
{
	int go[2];
	pid_t pid;

	pair();
	is("pipe", pipe(go));
	pid = fork();
	if (pid == 0) {
		close(peer);
		put_text(here, "last");
		if (read(go[0], &pid, 1) == 1 && sig)
			raise(sig);
		_exit(3);
	}
	close(here);
	put_text(peer, "unread");
	is("go", write(go[1], "", 1));
	child("child", pid);
	settle(peer, POLLHUP);
}

static void read_on(void)
{
	poll_one("ready", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	get_now("last", peer, 64);
	get_now("error", peer, 64);
	get_now("end", peer, 64);
	poll_one("after", peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	is("send", send(peer, "more", 4, MSG_NOSIGNAL));
}

ROW(end_by__exit_unread)
{
	end_unread(0);
	read_on();
}

ROW(end_by_a_signal_unread)
{
	end_unread(SIGKILL);
	read_on();
}

ROW(end_unread_then_send)
{
	end_unread(SIGKILL);
	is("first", send(peer, "one", 3, MSG_NOSIGNAL));
	is("second", send(peer, "two", 3, MSG_NOSIGNAL));
	read_on();
}

ROW(end_unread_then_so_error)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(int);
	int err = 0;

	end_unread(0);
	getsockopt(peer, SOL_SOCKET, SO_ERROR, &err, &len);
	say("error=%s", strerrorname_np(err));
	len = sizeof(a);
	is("peer", getpeername(peer, (struct sockaddr *)&a, &len));
	read_on();
}

/* The end of who lives and has not read yet is no reset. */
ROW(shutdown_inline_unread)
{
	struct pollfd p = { .events = POLLRDHUP };

	pair();
	p.fd = peer;
	put_text(peer, "unread");
	is("shutdown", T_HAVE_RAW ? t_raw(SYS_shutdown, here, SHUT_WR, 0, 0, 0)
				  : shutdown(here, SHUT_WR));
	is("poll", poll(&p, 1, 10000));
	get_now("end", peer, 64);
	get_now("here", here, 64);
}

/* --- forks of all kinds ------------------------------------------------- */

int __clone(int (*f)(void *), void *stack, int flags, void *arg, ...);

/* The child talks, makes a connection of its own, and ends. */
static int be_child(void *arg)
{
	char buf[8];
	int i;

	for (i = 0; i < 50; i++) {
		put_text(here, "child");
		get_all(here, buf, 5);
	}
	close(here);
	close(peer);
	pair();
	for (i = 0; i < 50; i++) {
		put_text(here, "grown");
		get_all(peer, buf, 5);
	}
	_exit(buf[0] == 'g' ? 0 : 1);
}

static void serve_child(pid_t pid)
{
	char buf[8];

	for (int i = 0; i < 50; i++) {
		get_all(peer, buf, 5);
		put_text(peer, "hello");
	}
	child("child", pid);
	put_text(here, "parent");
	answer("peer", peer);
	warm(here, peer);
	close(here);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

ROW(fork_by__Fork)
{
	pid_t pid;

	pair();
	pid = _Fork();
	if (pid == 0)
		be_child(NULL);
	serve_child(pid);
}

ROW(fork_by___fork)
{
	pid_t pid;

	pair();
	pid = __fork();
	if (pid == 0)
		be_child(NULL);
	serve_child(pid);
}

ROW(fork_by_forkpty)
{
	int terminal;
	pid_t pid;

	pair();
	pid = forkpty(&terminal, NULL, NULL, NULL);
	if (pid == 0)
		be_child(NULL);
	serve_child(pid);
}

/* The child of the child goes on, and ends when it has heard enough. */
ROW(fork_by_daemon)
{
	char buf[8];
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0) {
		close(peer);
		if (daemon(1, 1))
			_exit(1);
		for (int i = 0; i < 50; i++) {
			put_text(here, "devil");
			get_all(here, buf, 5);
		}
		_exit(0);
	}
	close(here);
	child("child", pid);
	for (int i = 0; i < 50; i++) {
		get_all(peer, buf, 5);
		put_text(peer, "hello");
	}
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

static char stack[256 << 10];

ROW(fork_by_clone)
{
	pair();
	serve_child(clone(be_child, stack + sizeof(stack), SIGCHLD, NULL));
}

ROW(fork_by___clone)
{
	pair();
	serve_child(__clone(be_child, stack + sizeof(stack), SIGCHLD, NULL));
}

ROW(fork_by_number)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	pid_t pid;

	pair();
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		be_child(NULL);
	serve_child(pid);
	pair();
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		be_child(NULL);
	serve_child(pid);
}

/* The library's thread is made anew, and had no time to begin. The C library
 * believes that the child has it. */
ROW(fork_by_number_then_set_user)
{
	cpu_set_t one;
	pid_t pid;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	pair();
	for (int i = 0; i < 20; i++) {
		is("unshare", unshare(CLONE_FILES));
		pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(setuid(getuid()) ? 1 : 0);
		child("child", pid);
	}
	answer("peer", peer);
}

/* The user stays. */
ROW(fork_then_set_user)
{
	pid_t pid;

	pair();
	pid = fork();
	if (pid == 0)
		_exit(setuid(getuid()) || seteuid(geteuid()) ||
		      setreuid(getuid(), geteuid()) ||
		      setresuid(getuid(), geteuid(), geteuid()));
	child("child", pid);
	answer("peer", peer);
}

static int share(void *arg)
{
	*(int *)arg = (int)write(here, "shared", 6);
	return 7;
}

/* With the same memory: no fork. */
ROW(clone_with_memory)
{
	int wrote = 0;
	pid_t pid;

	pair();
	pid = clone(share, stack + sizeof(stack),
		    CLONE_VM | CLONE_FILES | CLONE_VFORK | SIGCHLD, &wrote);
	child("child", pid);
	is("wrote", wrote);
	answer("peer", peer);
	is("wrong", clone(NULL, NULL, SIGCHLD, NULL));
}

static int close_and_become(void *arg)
{
	close(here);
	execl("/bin/true", "true", NULL);
	_exit(9);
}

/* The memory is the parent's until the child is another program; the table of
 * descriptors is the child's own. */
ROW(clone_like_vfork)
{
	pid_t pid;

	pair();
	warm(here, peer);
	pid = clone(close_and_become, stack + sizeof(stack),
		    CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	child("child", pid);
	put_text(here, "still");
	answer("peer", peer);
	warm(here, peer);
	close(here);
	settle(peer, POLLRDHUP);
	get_now("end", peer, 4);
}

/* --- asynchronous calls of the C library -------------------------------- */

static void finish(const char *what, struct aiocb *cb)
{
	const struct aiocb *list[] = { cb };

	is("suspend", aio_suspend(list, 1, NULL));
	is("error", aio_error(cb));
	is(what, aio_return(cb));
}

static void finish64(const char *what, struct aiocb64 *cb)
{
	const struct aiocb64 *list[] = { cb };

	is("suspend", aio_suspend64(list, 1, NULL));
	is("error", aio_error64(cb));
	is(what, aio_return64(cb));
}

ROW(aio_read)
{
	char buf[16] = "";
	struct aiocb cb = { .aio_buf = buf, .aio_nbytes = 5 };

	pair();
	cb.aio_fildes = here;
	put_text(peer, "hello, world");
	settle(here, POLLIN);
	is("start", aio_read(&cb));
	finish("read", &cb);
	say("%s", buf);
	aio_init(&(struct aioinit){ .aio_threads = 2, .aio_num = 8 });
	is("cancel", aio_cancel(here, &cb) == AIO_ALLDONE ? 0 : -1);
	answer("rest", here);
	is("start", aio_read(&cb));
	put_text(peer, "later");
	finish("read", &cb);
	say("%s", buf);
}

ROW(aio_read64)
{
	char buf[16] = "";
	struct aiocb64 cb = { .aio_buf = buf, .aio_nbytes = 5 };

	pair();
	cb.aio_fildes = here;
	put_text(peer, "hello, world");
	settle(here, POLLIN);
	is("start", aio_read64(&cb));
	finish64("read", &cb);
	say("%s", buf);
	is("cancel", aio_cancel64(here, &cb) == AIO_ALLDONE ? 0 : -1);
}

ROW(aio_write)
{
	struct aiocb cb = { .aio_buf = (char[]){ "after" }, .aio_nbytes = 5 };

	pair();
	cb.aio_fildes = here;
	put_text(here, "before ");
	is("start", aio_write(&cb));
	finish("write", &cb);
	put_text(here, " and more");
	pass_ms(5);
	answer("peer", peer);
}

ROW(aio_write64)
{
	struct aiocb64 cb = { .aio_buf = (char[]){ "after" }, .aio_nbytes = 5 };

	pair();
	cb.aio_fildes = here;
	put_text(here, "before ");
	is("start", aio_write64(&cb));
	finish64("write", &cb);
	pass_ms(5);
	answer("peer", peer);
}

ROW(aio_list)
{
	char buf[16] = "";
	struct aiocb r = { .aio_buf = buf,
			   .aio_nbytes = 5,
			   .aio_lio_opcode = LIO_READ },
		     w = { .aio_buf = (char[]){ "words" },
			   .aio_nbytes = 5,
			   .aio_lio_opcode = LIO_WRITE };
	struct aiocb *list[] = { &r, NULL, &w };

	pair();
	r.aio_fildes = w.aio_fildes = here;
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("list", lio_listio(LIO_WAIT, list, 3, NULL));
	say("%s", buf);
	answer("peer", peer);
}

ROW(aio_list64)
{
	struct aiocb64 w = { .aio_buf = (char[]){ "words" },
			     .aio_nbytes = 5,
			     .aio_lio_opcode = LIO_WRITE };
	struct aiocb64 *list[] = { &w };

	pair();
	w.aio_fildes = here;
	is("list", lio_listio64(LIO_WAIT, list, 1, NULL));
	answer("peer", peer);
}

ROW(aio_fsync)
{
	struct aiocb cb = { 0 };
	const struct aiocb *list[] = { &cb };

	pair();
	cb.aio_fildes = here;
	is("start", aio_fsync(O_SYNC, &cb));
	is("suspend", aio_suspend(list, 1, NULL));
	say("%s", strerrorname_np(aio_error(&cb)));
	is("start", aio_fsync64(O_SYNC, (struct aiocb64 *)&cb));
	is("suspend", aio_suspend(list, 1, NULL));
	say("%s", strerrorname_np(aio_error(&cb)));
	put_text(here, "works");
	answer("peer", peer);
}

/* --- what getsockopt does ----------------------------------------------- */

/* TCP_ZEROCOPY_RECEIVE returns how many bytes can be read. */
ROW(ask_zerocopy)
{
	struct tcp_zerocopy_receive z = { 0 };
	socklen_t len = sizeof(z);

	pair();
	put_text(peer, "hello");
	settle(here, POLLIN);
	is("zerocopy",
	   getsockopt(here, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &len));
	say("%u", z.recv_skip_hint);
	answer("rest", here);
	put_text(here, "works");
	answer("peer", peer);
}
