/* SPDX-License-Identifier: BSD-2-Clause */
/* When descriptors or memory run out the connection stays on TCP, says why,
 * and works; the application gets the descriptors that are left. */
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

static void limit(int which, rlim_t n)
{
	struct rlimit r = { .rlim_cur = n, .rlim_max = n };

	T_OK(setrlimit(which, &r));
}

static void exchange(int a, int b)
{
	t_send_stream(a, 1, 0, 50000, 9000);
	t_recv_stream(b, 1, 0, 50000, 9000);
	t_send_stream(b, 2, 0, 50000, 9000);
	t_recv_stream(a, 2, 0, 50000, 9000);
}

static bool reason_is(int s, int reason)
{
	return t_info(s).exs_x_reason == reason;
}

/* NONE when both ends say so; the given reason when one of them does, for the
 * other cannot know. */
static int settled_reason(int fd[2], int reason)
{
	struct t_deadline d = t_deadline_ms(20000);

	do {
		exchange(fd[0], fd[1]);
		if (reason_is(fd[0], reason) || reason_is(fd[1], reason))
			return reason;
		if (t_is(fd[0], T_SHM) && t_is(fd[1], T_SHM))
			return EXS_X_REASON_NONE;
	} while (t_tick(&d));
	t_fail(__FILE__, __LINE__, "is %s and %s", t_where(fd[0]),
	       t_where(fd[1]));
}

static void without_memory_a_connection_stays_on_tcp(void)
{
	int fd[2];

	setenv("EXS_MEMORY_LIMIT_MB", "0", 1);
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1],
		      (struct t_want){ "tcp", EXS_X_REASON_MEMORY });
	exchange(fd[0], fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

#define MANY 24

/* The rings of a connection grow to a mebibyte here, where both ends make a
 * ring and read one; so there is room for some, and when they are closed, for
 * others. */
static void with_little_memory_some_connections_stay_on_tcp(void)
{
	int fd[MANY][2], i, on_memory = 0, reason;

	setenv("EXS_MEMORY_LIMIT_MB", "8", 1);
	t_init();
	for (i = 0; i < MANY; i++) {
		t_pair(T_IPV4, fd[i]);
		reason = settled_reason(fd[i], EXS_X_REASON_MEMORY);
		on_memory += reason == EXS_X_REASON_MEMORY;
	}
	T(on_memory > 0 && on_memory < MANY);
	T_EQ(t_info(fd[0][0]).exs_x_reason, EXS_X_REASON_NONE);
	for (i = 0; i < MANY; i++)
		exchange(fd[i][1], fd[i][0]);
	for (i = 0; i < MANY; i++) {
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
	t_pair(T_IPV4, fd[0]);
	t_settle_pair(fd[0][0], fd[0][1], T_SHM);
	t_close(fd[0][0]);
	t_close(fd[0][1]);
}

static void no_memory_may_be_locked(void)
{
	int fd[2];

	limit(RLIMIT_MEMLOCK, 0);
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void no_file_may_grow(void)
{
	int fd[2];

	limit(RLIMIT_FSIZE, 0); /* no SIGXFSZ ends the program, either */
	t_init();
	t_pair(T_IPV4, fd);
	settled_reason(fd, EXS_X_REASON_MEMORY);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void exhausted_descriptors_are_emfile(void)
{
	struct t_addr at;
	exs_qhandle_t q = 0;
	int l, a, held[64], n = 0, free_one;

	t_init();
	limit(RLIMIT_NOFILE, 64);
	l = t_listener(T_IPV4, &at);
	a = t_connect(&at);
	while (n < 64 && (held[n] = dup(0)) >= 0)
		n++;
	T(n > 0 && n < 64);
	T_ERR(exs_socket(AF_INET, SOCK_STREAM, 0), EMFILE);
	T_ERR(exs_accept(l, NULL, 0, T_SYNC), EMFILE);
	q = exs_qcreate(4);
	T_MSG(q > 0 || errno == EMFILE, "exs_qcreate says %s",
	      t_errname(errno));
	if (q > 0)
		T_MSG(exs_x_qfd(q) >= 0 || errno == EMFILE, "exs_x_qfd says %s",
		      t_errname(errno));
	close(held[--n]);
	free_one = T_OK(exs_accept(l, NULL, 0, T_SYNC));
	exchange(a, free_one);
	while (n > 0)
		close(held[--n]);
	if (q > 0)
		T_OK(exs_qdelete(q));
	t_close(free_one);
	t_close(a);
	t_close(l);
}

/* The library has a quarter of them for itself, and its thread needs more. */
static void a_limit_too_low_for_the_library_is_that_reason(void)
{
	int fd[2];

	limit(RLIMIT_NOFILE, 16);
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_TCP(EXS_X_REASON_DESCRIPTORS));
	t_close(fd[0]);
	t_close(fd[1]);
}

static int open_pair(const struct t_addr *at, int l, int fd[2])
{
	fd[0] = exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd[0] < 0)
		return -1;
	T_OK(exs_connect(fd[0], (const struct sockaddr *)&at->ss, at->len, 0,
			 T_SYNC));
	fd[1] = exs_accept(l, NULL, SOCK_CLOEXEC, T_SYNC);
	if (fd[1] >= 0)
		return 0;
	t_close(fd[0]);
	return -1;
}

#define NOFILE 160

/* The library stops taking descriptors long before the limit; what is left is
 * the application's: at least five eighths of all. */
static void connections_do_without_fabric_when_descriptors_run_out(void)
{
	int fd[NOFILE][2], n, l, i, reason, short_of = 0;
	struct t_addr at;

	t_init();
	limit(RLIMIT_NOFILE, NOFILE);
	l = t_listener(T_IPV4, &at);
	for (n = 0; n < NOFILE && open_pair(&at, l, fd[n]) == 0; n++) {
		reason = settled_reason(fd[n], EXS_X_REASON_DESCRIPTORS);
		short_of += reason == EXS_X_REASON_DESCRIPTORS;
	}
	T_EQ(errno, EMFILE);
	T_EQ(t_info(fd[0][0]).exs_x_reason, EXS_X_REASON_NONE);
	T_MSG(short_of > 0, "%d connections", n);
	T_MSG(2 * n >= NOFILE * 5 / 8, "only %d connections", n);
	for (i = 0; i < n; i++)
		exchange(fd[i][1], fd[i][0]);
	for (i = 0; i < n; i++) {
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
	t_close(l);
}

/* Not for what cannot be looked at without one. */
static void without_any_descriptor_left_that_is_the_reason(void)
{
	int fd[2], held[64], n = 0;

	t_init();
	limit(RLIMIT_NOFILE, 64);
	t_pair(T_IPV4, fd);
	while (n < 64 && (held[n] = dup(0)) >= 0)
		n++;
	T(n > 0 && n < 64);
	t_settle_pair(fd[0], fd[1], T_TCP(EXS_X_REASON_DESCRIPTORS));
	while (n > 0)
		close(held[--n]);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* What the library opens for itself stays out of the low numbers, so that
 * the application's descriptors get those they would get without it. */
static void the_lowest_number_is_the_applications(void)
{
	int fd[2], before = T_OK(dup(0)), after;

	close(before);
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	after = T_OK(dup(0));
	T_MSG(after <= before + 3, "the next number is %d, was %d", after,
	      before);
	close(after);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void the_library_leaves_the_limit_alone(void)
{
	struct rlimit before, after;
	int fd[2];

	T_OK(getrlimit(RLIMIT_NOFILE, &before));
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	T_OK(getrlimit(RLIMIT_NOFILE, &after));
	T_EQ(before.rlim_cur, after.rlim_cur);
	T_EQ(before.rlim_max, after.rlim_max);
	t_close(fd[0]);
	t_close(fd[1]);
}

#define CROWD 100 /* connections where 128 descriptors are allowed */

static void crowd_talks(const int *s, bool first)
{
	for (int turn = 0; turn < 6; turn++)
		for (int i = 0; i < CROWD; i++) {
			if ((turn & 1) == first)
				t_recv_stream(s[i], i, turn * 3000, 3000, 700);
			else
				t_send_stream(s[i], i, turn * 3000, 3000, 700);
		}
}

static void crowd_connects(int ctl, void *arg)
{
	struct t_addr at;
	int s[CROWD], i;

	limit(RLIMIT_NOFILE, 128);
	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	for (i = 0; i < CROWD; i++)
		s[i] = t_connect(&at);
	crowd_talks(s, true);
	for (i = 0; i < CROWD; i++)
		t_close(s[i]);
}

/* Meetings that fail at any of their steps, at either end, for want of a
 * descriptor, do no harm to the connection. */
static void meetings_fail_for_want_of_descriptors(void)
{
	struct t_addr at;
	struct t_peer p;
	int s[CROWD], i, l;

	t_peer_start(&p, crowd_connects, NULL);
	limit(RLIMIT_NOFILE, 128);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(p.ctl, (uint64_t)t_port_of(l));
	for (i = 0; i < CROWD; i++)
		s[i] = t_accept(l);
	crowd_talks(s, false);
	for (i = 0; i < CROWD; i++) {
		t_recv_end(s[i]);
		t_close(s[i]);
	}
	t_close(l);
	t_peer_join(&p);
}

/* Whether this thread, and those that it starts, may administer the network.
 * False: it never may. */
static bool privileged(bool on)
{
	struct __user_cap_header_struct who = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct can[_LINUX_CAPABILITY_U32S_3];
	const int which = CAP_NET_ADMIN;

	T_OK(syscall(SYS_capget, &who, can));
	can[CAP_TO_INDEX(which)].effective &= ~CAP_TO_MASK(which);
	if (on)
		can[CAP_TO_INDEX(which)].effective |=
			can[CAP_TO_INDEX(which)].permitted & CAP_TO_MASK(which);
	T_OK(syscall(SYS_capset, &who, can));
	return can[CAP_TO_INDEX(which)].effective & CAP_TO_MASK(which);
}

static int buffer(int s)
{
	socklen_t len = sizeof(int);
	int size;

	T_OK(getsockopt(s, SOL_SOCKET, SO_SNDBUF, &size, &len));
	return size;
}

/* A buffer that is larger than net.core.wmem_max allows and smaller than the
 * ring is: the kernel makes one for a connection on a host by itself, or
 * privilege does. Its size. */
static int large_buffer(int s)
{
	int size = 5 << 20;

	if (privileged(true))
		T_OK(setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &size,
				sizeof(size)));
	privileged(false);
	return buffer(s);
}

/* The way back asks for room for the ring. */
static void a_way_back_shrinks_no_buffer(void)
{
	int fd[2], room;

	privileged(false);
	setenv("EXS_RING_KB", "8192", 1);
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	room = large_buffer(fd[0]);
	t_send_stream(fd[0], 3, 0, 30000, 3000);
	T_OK(exs_x_downgrade(fd[0]));
	T(buffer(fd[0]) >= room);
	t_recv_stream(fd[1], 3, 0, 30000, 3000);
	exchange(fd[0], fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

static const struct t_row rows[] = {
	T_ROW(without_memory_a_connection_stays_on_tcp),
	T_ROW(with_little_memory_some_connections_stay_on_tcp),
	T_ROW(no_memory_may_be_locked),
	T_ROW(no_file_may_grow),
	T_ROW(exhausted_descriptors_are_emfile),
	T_ROW(connections_do_without_fabric_when_descriptors_run_out),
	T_ROW(meetings_fail_for_want_of_descriptors),
	T_ROW(without_any_descriptor_left_that_is_the_reason),
	T_ROW(a_limit_too_low_for_the_library_is_that_reason),
	T_ROW(the_lowest_number_is_the_applications),
	T_ROW(the_library_leaves_the_limit_alone),
	T_ROW(a_way_back_shrinks_no_buffer),
};

int main(int argc, char **argv)
{
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	return t_run("limits", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
