/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection that is still on TCP costs no more system calls than without the
 * library, whatever the number of buffers of a call: a parent traces its child
 * and counts the child's calls. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/pieces.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/wait.h"

#define PIECES 512
#define PIECE  64
#define TOTAL  (PIECES * PIECE)
/* Calls of the kernel for pieces that were copied. */
#define AGAIN (PIECES / EXI_PIECES_COPIED)

/* What the parent is to see: a call that no program makes. */
#define MARK -77777

#define MOST 64
struct counted {
	char name[40];
	int want;
	int calls;
};
static struct counted *counts; /* shared by both */
static _Atomic int *n_counts;

static char data[TOTAL], got[TOTAL];
static struct iovec out[PIECES], in[PIECES];
static struct mmsghdr many_out[8], many_in[8];

static void mark(void)
{
	int saved = errno;

	syscall(SYS_getpgid, MARK);
	errno = saved;
}

/* A call that is to move n bytes by so many calls of the kernel. */
#define COUNT(what, n, most)                                                   \
	do {                                                                   \
		struct counted *c_ = &counts[*n_counts];                       \
		ssize_t r_;                                                    \
                                                                               \
		snprintf(c_->name, sizeof(c_->name), "%.39s", #what);          \
		c_->want = most;                                               \
		mark();                                                        \
		r_ = (what);                                                   \
		mark();                                                        \
		(*n_counts)++;                                                 \
		T_EQ(r_, n);                                                   \
	} while (0)

/* All of it is there, or it would be counted how often one waited. */
static void await(int fd, int n)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int there = 0;

	while (there < n) {
		T_EQ(T_OK(poll(&p, 1, 5000)), 1);
		T_OK(ioctl(fd, FIONREAD, &there));
	}
}

static void check_got(void)
{
	T(memcmp(data, got, TOTAL) == 0);
	memset(got, 0, sizeof(got));
}

static void lay_out(void)
{
	t_fill(data, sizeof(data), 1, 0);
	for (int i = 0; i < PIECES; i++) {
		out[i] = (struct iovec){ data + i * PIECE, PIECE };
		in[i] = (struct iovec){ got + i * PIECE, PIECE };
	}
	for (int i = 0; i < 8; i++) {
		many_out[i].msg_hdr = (struct msghdr){ .msg_iov = out + i * 8,
						       .msg_iovlen = 8 };
		many_in[i].msg_hdr = (struct msghdr){ .msg_iov = in + i * 8,
						      .msg_iovlen = 8 };
	}
}

static void count_plain(const int fd[2])
{
	struct msghdr mo = { .msg_iov = out, .msg_iovlen = PIECES };
	struct msghdr mi = { .msg_iov = in, .msg_iovlen = PIECES };
	const int some = 64 * PIECE;

	COUNT(send(fd[0], data, TOTAL, 0), TOTAL, 1);
	await(fd[1], TOTAL);
	COUNT(recv(fd[1], got, TOTAL, MSG_WAITALL), TOTAL, 1);
	check_got();
	COUNT(write(fd[0], data, TOTAL), TOTAL, 1);
	await(fd[1], TOTAL);
	COUNT(read(fd[1], got, TOTAL), TOTAL, 1);
	check_got();
	COUNT(sendmsg(fd[0], &mo, 0), TOTAL, 1);
	await(fd[1], TOTAL);
	COUNT(recvmsg(fd[1], &mi, 0), TOTAL, 1);
	check_got();
	COUNT(writev(fd[0], out, PIECES), TOTAL, 1);
	await(fd[1], TOTAL);
	COUNT(readv(fd[1], in, PIECES), TOTAL, 1);
	check_got();
	COUNT(pwritev2(fd[0], out, PIECES, -1, 0), TOTAL, 1);
	await(fd[1], TOTAL);
	COUNT(preadv2(fd[1], in, PIECES, -1, 0), TOTAL, 1);
	check_got();
	COUNT(sendmsg(fd[0], &mo, MSG_DONTWAIT), TOTAL, 1);
	await(fd[1], TOTAL);
	COUNT(recvmsg(fd[1], &mi, MSG_WAITALL), TOTAL, 1);
	check_got();
	COUNT(sendmmsg(fd[0], many_out, 8, 0), 8, 1);
	await(fd[1], some);
	/* An error is told before the bytes: it is asked for. */
	COUNT(recvmmsg(fd[1], many_in, 8, 0, NULL), 8, 2);
	for (int i = 0; i < 8; i++)
		T_EQ(many_in[i].msg_len, some / 8);
	T(memcmp(data, got, (size_t)some) == 0);
	COUNT(recvmsg(fd[1], &mi, MSG_DONTWAIT), -1, 1);
	T_EQ(errno, EAGAIN);
}

/* Counts the system calls of exs_sendmsg(), synchronous and not. */
static void count_library(const int fd[2])
{
	exs_msghdr_t mo = { .exs_msg_iovlen = PIECES };
	exs_msghdr_t mi = { .exs_msg_iovlen = PIECES };
	static exs_iovec_t vo[PIECES], vi[PIECES];
	exs_qhandle_t q = exs_qcreate(4);

	for (int i = 0; i < PIECES; i++) {
		vo[i].exs_iov_base = out[i].iov_base;
		vi[i].exs_iov_base = in[i].iov_base;
		vo[i].exs_iov_len = vi[i].exs_iov_len = PIECE;
	}
	mo.exs_msg_iov = vo;
	mi.exs_msg_iov = vi;
	COUNT(exs_sendmsg(fd[0], &mo, 0, EXS_QHANDLE_INVALID, 0), TOTAL, 1);
	await(fd[1], TOTAL);
	COUNT(exs_recvmsg(fd[1], &mi, 0, EXS_QHANDLE_INVALID, 0), TOTAL, 1);
	check_got();
	COUNT(exs_sendmsg(fd[0], &mo, 0, q, (exs_ahandle_t)1), 0, AGAIN);
	T_EQ(t_event_is(q, EXS_EVT_SENDMSG, 1), TOTAL);
	await(fd[1], TOTAL);
	COUNT(exs_recvmsg(fd[1], &mi, 0, q, (exs_ahandle_t)2), 0, AGAIN);
	T_EQ(t_event_is(q, EXS_EVT_RECVMSG, 2), TOTAL);
	check_got();
}

/* More than the socket's buffer has room for, by one call. */
static void a_full_buffer(const int fd[2])
{
	static char much[64 << 10];
	struct iovec v[PIECES];
	struct msghdr m = { .msg_iov = v, .msg_iovlen = PIECES };
	ssize_t n;

	for (int i = 0; i < PIECES; i++)
		v[i] = (struct iovec){ much, sizeof(much) };
	mark();
	n = sendmsg(fd[0], &m, MSG_DONTWAIT);
	mark();
	T_MSG(n > 0 && n < (ssize_t)sizeof(much) * PIECES, "%zd were sent", n);
	snprintf(counts[*n_counts].name, sizeof(counts->name),
		 "sendmsg() of too much");
	/* A piece of a megabyte each, and a look for an error between two. */
	counts[(*n_counts)++].want = 1 + 2 * (int)(n >> 20);
}

/* The end that accepted sends first, and so much that it looks for a peer. */
static void count_answer(void)
{
	static char answer[80 << 10];
	const int room = 128 << 10;
	int fd[2];

	t_plain_pair(fd);
	T_OK(setsockopt(fd[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
	COUNT(send(fd[1], answer, sizeof(answer), MSG_DONTWAIT), sizeof(answer),
	      1);
	close(fd[0]);
	close(fd[1]);
}

/* Calls of an accept that leaves the meeting to the service thread: its own, a
 * look at what it accepted, and what wakes that thread. One that looks for the
 * peer itself makes thirty. */
#define ACCEPT 12

/* A connection that moves from the first byte on. The first accept looks around
 * in the process, which is not for each connection. */
static void eager_child(void)
{
	struct t_addr at;
	int listener, from, to = -1;

	T_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
	raise(SIGSTOP);
	t_init();
	listener = t_listener(T_IPV4, &at);
	for (int i = 0; i < 3; i++) {
		from = t_connect(&at);
		if (i == 0)
			to = T_OK(accept(listener, NULL, NULL));
		else
			COUNT((to = accept(listener, NULL, NULL)) > 0, 1,
			      ACCEPT);
		T_EQ(send(to, "x", 1, 0), 1);
		T_EQ(recv(from, got, 1, 0), 1);
		close(from);
		close(to);
	}
	_exit(0);
}

static bool is_moved(int fd)
{
	exs_x_sockinfo_t i = t_info(fd);

	return strcmp(i.exs_x_rx_fabric, "shm") == 0 &&
	       strcmp(i.exs_x_tx_fabric, "shm") == 0;
}

/* A server forks, and one of both processes closes the connection: the other
 * asks once more whether it blocks, and no more, as nobody else can change
 * that. */
static void forked_child(void)
{
	int fd[2];
	char c;
	pid_t pid;

	T_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
	raise(SIGSTOP);
	t_init();
	t_plain_pair(fd);
	T_UNTIL(({
		T_EQ(send(fd[0], "x", 1, 0), 1);
		T_EQ(recv(fd[1], &c, 1, 0), 1);
		T_EQ(send(fd[1], "x", 1, 0), 1);
		T_EQ(recv(fd[0], &c, 1, 0), 1);
		is_moved(fd[0]) && is_moved(fd[1]);
	}));
	T_OK(fcntl(fd[0], F_SETFL, O_NONBLOCK));
	pid = fork();
	if (pid == 0) {
		close(fd[0]);
		close(fd[1]);
		_exit(0);
	}
	T_EQ(waitpid(pid, NULL, 0), pid);
	T_ERR(recv(fd[0], &c, 1, 0), EAGAIN);
	for (int i = 0; i < 3; i++)
		COUNT(recv(fd[0], &c, 1, 0), -1, 0);
	/* While two processes have it, either may change it. */
	T_OK(fcntl(fd[0], F_SETFL, 0));
	pid = fork();
	if (pid == 0) {
		T_OK(fcntl(fd[0], F_SETFL, O_NONBLOCK));
		pause();
	}
	T_UNTIL(fcntl(fd[0], F_GETFL) & O_NONBLOCK);
	T_ERR(recv(fd[0], &c, 1, 0), EAGAIN);
	kill(pid, SIGKILL);
	T_EQ(waitpid(pid, NULL, 0), pid);
	_exit(0);
}

static int with_file(bool sends, int fd, int *file)
{
	char byte = 'x', room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int ret;

	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
			       .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS };
	if (sends) {
		memcpy(CMSG_DATA(c), file, sizeof(*file));
		return (int)sendmsg(fd, &m, 0);
	}
	ret = (int)recvmsg(fd, &m, 0);
	memcpy(file, CMSG_DATA(c), sizeof(*file));
	return ret;
}

/* The first makes both ends known to the library. */
static void pass_files(int from, int to)
{
	int file = STDERR_FILENO, came;

	T_EQ(with_file(true, from, &file), 1);
	T_EQ(with_file(false, to, &came), 1);
	close(came);
	COUNT(with_file(true, from, &file), 1, 1);
	COUNT(with_file(false, to, &came), 1, 2);
	close(came);
}

/* Where the library does not serve UNIX sockets, an accept asks for the
 * protocol. The receiver of a file asks whether it is a connection. */
static void unix_child(void)
{
	const char *set = getenv("EXS_UNIX");
	const bool on = !set || strcmp(set, "off") != 0;
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(at);
	int listener, from, to = -1;

	T_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
	raise(SIGSTOP);
	listener = T_OK(socket(AF_UNIX, SOCK_STREAM, 0));
	T_OK(bind(listener, (struct sockaddr *)&at, sizeof(at.sun_family)));
	T_OK(getsockname(listener, (struct sockaddr *)&at, &len));
	T_OK(listen(listener, 1));
	for (int i = 0; i < 3; i++) {
		from = T_OK(socket(AF_UNIX, SOCK_STREAM, 0));
		COUNT(connect(from, (struct sockaddr *)&at, len), 0, 1);
		if (i == 0)
			to = T_OK(accept(listener, NULL, NULL));
		else
			COUNT((to = accept(listener, NULL, NULL)) > 0, 1,
			      on ? 1 : 2);
		COUNT(send(from, "x", 1, 0), 1, 1);
		COUNT(recv(to, got, 1, 0), 1, 1);
		pass_files(from, to);
		COUNT(close(from), 0, 1);
		COUNT(close(to), 0, 1);
	}
	_exit(0);
}

static void child(bool latent)
{
	int fd[2];
	char c;

	T_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
	raise(SIGSTOP);
	t_init();
	lay_out();
	count_answer();
	t_plain_pair(fd);
	if (!latent) { /* a look wakes it */
		T_ERR(recv(fd[0], &c, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
		T_ERR(recv(fd[1], &c, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
	}
	count_plain(fd);
	if (!latent) {
		count_library(fd);
		a_full_buffer(fd);
	}
	_exit(0);
}

/* Between its marks it enters the kernel so often. */
static void count(pid_t pid)
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
	bool between = false;
	int status, calls = 0;

	T_EQ(waitpid(pid, &status, 0), pid);
	T_MSG(WIFSTOPPED(status), "the child cannot be traced");
	T_EQ(ptrace(PTRACE_SETOPTIONS, pid, NULL, options), 0);
	for (long sig = 0;;) {
		struct __ptrace_syscall_info i;

		T_EQ(ptrace(PTRACE_SYSCALL, pid, NULL, sig), 0);
		T_EQ(waitpid(pid, &status, 0), pid);
		if (!WIFSTOPPED(status))
			break;
		sig = WSTOPSIG(status);
		if (sig != (SIGTRAP | 0x80))
			continue;
		sig = 0;
		T(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(i), &i) > 0);
		if (i.op != PTRACE_SYSCALL_INFO_ENTRY)
			continue;
		if (i.entry.nr != SYS_getpgid || (int)i.entry.args[0] != MARK) {
			calls++;
			continue;
		}
		if (between)
			counts[*n_counts].calls = calls;
		between = !between;
		calls = 0;
	}
	T_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	      "the child ended with %#x", (unsigned int)status);
}

enum run {
	LATENT,
	PROMOTED,
	EAGER,
	FORKED,
	UNIX
};

static void run(enum run what)
{
	/* A latent connection that becomes a socket asks once of which kind it
	 * is. */
	const int asks = what == LATENT;
	int asked = 0;
	pid_t pid;

	counts =
		mmap(NULL, MOST * sizeof(*counts) + sizeof(*n_counts),
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(counts != MAP_FAILED);
	n_counts = (_Atomic int *)(counts + MOST);
	pid = fork();
	if (pid == 0 && what == EAGER)
		eager_child();
	if (pid == 0 && what == FORKED)
		forked_child();
	if (pid == 0 && what == UNIX)
		unix_child();
	if (pid == 0)
		child(what == LATENT);
	T_OK(pid);
	count(pid);
	T(*n_counts >= (what == EAGER	 ? 2
			: what == FORKED ? 3
					 : 10) &&
	  *n_counts < MOST);
	for (int i = 0; i < *n_counts; i++)
		T_MSG((counts[i].calls >= 1 || !counts[i].want) &&
			      counts[i].calls <= counts[i].want + asks &&
			      (counts[i].calls <= counts[i].want || !asked++),
		      "%s: %d calls of the kernel, not %d", counts[i].name,
		      counts[i].calls, counts[i].want);
}

static void a_connection_on_tcp_costs_the_kernels_calls(void **state)
{
	run(PROMOTED);
}

static void one_that_has_not_lasted_costs_them(void **state)
{
	run(LATENT);
}

static void an_accept_leaves_the_meeting_to_the_service(void **state)
{
	run(EAGER);
}

static void one_process_left_asks_nothing_again(void **state)
{
	run(FORKED);
}

static void a_short_connection_costs_the_kernels_calls(void **state)
{
	run(UNIX);
}

/* With an argument: EXS_UPGRADE=connect, or EXS_UNIX=on or off. */
int main(int argc, char **argv)
{
	static const struct CMUnitTest eager[] = {
		cmocka_unit_test(an_accept_leaves_the_meeting_to_the_service),
		cmocka_unit_test(one_process_left_asks_nothing_again),
	};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_connection_on_tcp_costs_the_kernels_calls),
		cmocka_unit_test(one_that_has_not_lasted_costs_them),
	};

	static const struct CMUnitTest unix_sockets[] = {
		cmocka_unit_test(a_short_connection_costs_the_kernels_calls),
	};

	if (argc > 1 && strcmp(argv[1], "unix") == 0)
		return cmocka_run_group_tests(unix_sockets, NULL, NULL);
	return argc > 1 ? cmocka_run_group_tests(eager, NULL, NULL)
			: cmocka_run_group_tests(tests, NULL, NULL);
}
