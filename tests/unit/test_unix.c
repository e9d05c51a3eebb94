/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel says of the two ends of a UNIX stream, and the table of a
 * connection that begins on one. */
#include <errno.h>
#include <linux/sockios.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/proof.h"
#include "core/base/proof_unix.h"
#include "core/base/util.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/run.h"

#define NOBODY 65534

/* A listener with an abstract name that the kernel chooses. */
static int listener(struct sockaddr_un *ret, socklen_t *ret_len)
{
	int l = T_OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	*ret_len = sizeof(*ret);
	T_OK(bind(l, (struct sockaddr *)ret, sizeof(ret->sun_family)));
	T_OK(getsockname(l, (struct sockaddr *)ret, ret_len));
	T_OK(listen(l, 1));
	return l;
}

static void connected(int ends[2])
{
	struct sockaddr_un name;
	socklen_t len;
	int l = listener(&name, &len);

	ends[0] = T_OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(connect(ends[0], (struct sockaddr *)&name, len));
	ends[1] = T_OK(accept4(l, NULL, NULL, SOCK_CLOEXEC));
	close(l);
}

static void part(int ends[2])
{
	close(ends[0]);
	close(ends[1]);
}

static struct exi_tuple tuple(int fd)
{
	struct exi_tuple t;

	T_EQ(exi_tuple_of(fd, &t), 0);
	return t;
}

static void each_end_names_the_other(void **state)
{
	struct exi_tuple a, b;
	int ends[2];

	connected(ends);
	a = tuple(ends[0]);
	b = tuple(ends[1]);
	T_EQ(a.family, AF_UNIX);
	T_EQ(memcmp(a.local, b.peer, sizeof(a.local)), 0);
	T_EQ(memcmp(a.peer, b.local, sizeof(a.peer)), 0);
	T_EQ(a.maker, getuid());
	T_EQ(b.maker, getuid());
	T_EQ(exi_tuple_is_self(&a), false);
	T_EQ(exi_proof_peer_here(&a), 0);
	T_EQ(exi_proof_peer_here(&b), 0);
	part(ends);
}

/* By which ends meet that have no numbers in common. */
static void an_end_finds_the_cookie_of_the_other(void **state)
{
	uint64_t cookie = 0;
	struct exi_tuple t;
	int ends[2], other[2];

	connected(ends);
	connected(other);
	t = tuple(ends[0]);
	T_EQ(exi_unix_peer_cookie(&t, &cookie), 0);
	T_EQ(cookie, exi_sock_cookie(ends[1]));
	memcpy(t.peer, tuple(other[0]).peer, sizeof(t.peer));
	T_EQ(exi_unix_peer_cookie(&t, &cookie), -ENOTCONN);
	t = tuple(ends[0]);
	close(ends[1]);
	T_EQ(exi_unix_peer_cookie(&t, &cookie), -ENOENT);
	close(ends[0]);
	part(other);
}

static void an_end_that_nobody_accepted_has_no_peer(void **state)
{
	struct sockaddr_un name;
	struct exi_tuple t;
	socklen_t len;
	int l = listener(&name, &len), s, b;

	s = T_OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_EQ(exi_tuple_of(s, &t), -ENOTCONN);
	T_OK(connect(s, (struct sockaddr *)&name, len));
	T_EQ(exi_tuple_of(s, &t), -ENOTCONN);
	b = T_OK(accept4(l, NULL, NULL, SOCK_CLOEXEC));
	T_EQ(exi_tuple_of(s, &t), 0);
	close(b);
	T_EQ(exi_proof_peer_here(&t), -ENOTCONN);
	close(s);
	close(l);
}

/* An inode's number that another connection has got since. */
static void a_peer_of_another_is_none(void **state)
{
	int one[2], other[2], link[2];
	struct exi_tuple t;

	connected(one);
	connected(other);
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link));
	t = tuple(one[0]);
	/* Nobody speaks for an end that has no sign. */
	exi_base_unix.sign(one[0]);
	T_EQ(exi_proof_same_user(&t, link[0]), -EOPNOTSUPP);
	exi_base_unix.sign(one[1]);
	T_EQ(exi_proof_same_user(&t, link[0]), 0);
	memcpy(t.peer, tuple(other[0]).peer, sizeof(t.peer));
	T_EQ(exi_proof_peer_here(&t), -ENOTCONN);
	T_EQ(exi_proof_same_user(&t, link[0]), -ENOTCONN);
	exi_proof_sign(other[1]);
	T_EQ(exi_proof_signed(&t), 0);
	part(one);
	part(other);
	part(link);
}

/* Runs in a child as another user, and gives back a descriptor that it made:
 * what SO_PEERCRED names is who made a pair. */
static void pair_of_another(int ends[2])
{
	pid_t pid;
	int status, way[2];
	char c = 'x', room[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec v = { .iov_base = &c, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };

	T_OK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, way));
	pid = T_OK(fork());
	if (pid == 0) {
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);

		if (setuid(NOBODY) ||
		    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
			_exit(1);
		*h = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
				       .cmsg_type = SCM_RIGHTS,
				       .cmsg_len = CMSG_LEN(2 * sizeof(int)) };
		memcpy(CMSG_DATA(h), ends, 2 * sizeof(int));
		_exit(sendmsg(way[1], &m, 0) != 1);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(recvmsg(way[0], &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC), 1);
	memcpy(ends, CMSG_DATA(CMSG_FIRSTHDR(&m)), 2 * sizeof(int));
	part(way);
}

static void a_link_of_another_user_is_refused(void **state)
{
	int ends[2], link[2];
	struct exi_tuple t;

	if (getuid())
		skip();
	connected(ends);
	t = tuple(ends[0]);
	exi_base_unix.sign(ends[1]);
	pair_of_another(link);
	T_EQ(exi_proof_same_user(&t, link[0]), -EOPNOTSUPP);
	part(link);
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link));
	T_EQ(exi_proof_same_user(&t, link[0]), 0);
	/* Another user made it, as where a listener was given: then the kernel
	 * is asked whether the answer is about the other end. */
	t.maker = NOBODY;
	T_EQ(exi_proof_same_user(&t, link[0]), 0);
	t.cookie = 0;
	T_EQ(exi_proof_same_user(&t, link[0]), -EOPNOTSUPP);
	part(link);
	part(ends);
}

static int buffer(int fd)
{
	int ret = 0;
	socklen_t len = sizeof(ret);

	T_OK(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &ret, &len));
	return ret;
}

static void the_sign_is_seen_by_the_other_end(void **state)
{
	int ends[2], usual, asked = 50000;
	struct exi_tuple a, b;

	connected(ends);
	a = tuple(ends[0]);
	b = tuple(ends[1]);
	usual = buffer(ends[1]);
	T_EQ(exi_proof_signed(&a), 0);
	exi_base_unix.sign(ends[1]);
	T_EQ(exi_proof_signed(&a), 1);
	T_EQ(exi_proof_signed(&b), 0);
	T_EQ(exi_unix_unsigned(buffer(ends[1]), 0), usual);
	exi_base_unix.unsign(ends[1], 0);
	T_EQ(exi_proof_signed(&a), 0);
	T_EQ(buffer(ends[1]), usual);
	/* A size that the program has set stays. */
	T_OK(setsockopt(ends[1], SOL_SOCKET, SO_RCVBUF, &asked, sizeof(asked)));
	exi_base_unix.unsign(ends[1], 0);
	T_EQ(buffer(ends[1]), 2 * asked);
	T_EQ(exi_unix_unsigned(2 * asked, 0), 2 * asked);
	/* And comes back. */
	T_EQ(exi_base_unix.sign_used(ends[1]), 2 * asked);
	T_EQ(exi_proof_signed(&a), 1);
	T_EQ(exi_base_unix.sign_used(ends[1]), 0);
	T_EQ(exi_unix_unsigned(buffer(ends[1]), 2 * asked), 2 * asked);
	exi_base_unix.unsign(ends[1], 2 * asked);
	T_EQ(buffer(ends[1]), 2 * asked);
	part(ends);
}

static const struct exi_base *base_of(int domain, int type)
{
	int s = T_OK(socket(domain, type | SOCK_CLOEXEC, 0));
	const struct exi_base *ret = exi_base_of(s);

	close(s);
	return ret;
}

static void streams_are_told_from_other_unix_sockets(void **state)
{
	T_EQ(base_of(AF_UNIX, SOCK_STREAM), &exi_base_unix);
	T_EQ(base_of(AF_UNIX, SOCK_DGRAM), NULL);
	T_EQ(base_of(AF_UNIX, SOCK_SEQPACKET), NULL);
	T_EQ(base_of(AF_INET, SOCK_STREAM), &exi_base_tcp);
}

static void credentials_with_each_message_forbid_it(void **state)
{
	int ends[2], on = 1;

	connected(ends);
	T_EQ(exi_base_unix.forbidden(ends[0]), EXS_X_REASON_NONE);
	T_OK(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)));
	T_EQ(exi_base_unix.forbidden(ends[0]), EXS_X_REASON_ANCILLARY);
	T_EQ(exi_base_unix.option(SOL_SOCKET, SO_PASSCRED),
	     EXS_X_REASON_ANCILLARY);
	T_EQ(exi_base_unix.option(SOL_SOCKET, SO_SNDBUF), EXS_X_REASON_NONE);
	part(ends);
}

/* Sends messages of this size until so many bytes are charged or the kernel
 * has no room. */
static bool put(int fd, size_t size, int64_t until)
{
	static char buf[65536];
	int queued = 0;

	while (queued < until && send(fd, buf, size, MSG_DONTWAIT) > 0)
		T_OK(ioctl(fd, SIOCOUTQ, &queued));
	return queued >= until;
}

/* A drain of a full ring, whatever its records are, into a queue that has as
 * much as it may have: all of it is taken, and nobody reads. */
static void what_is_taken_back_fits_beside_what_is_queued(void **state)
{
	/* A message of 512 runs, or of 16,000 bytes; and what it had in the
	 * ring. */
	static const struct {
		size_t bytes, in_ring;
	} shapes[] = { { 512, 8192 },	{ 4096, 8192 },	  { 4097, 12304 },
		       { 8192, 16384 }, { 12288, 16384 }, { 16000, 16000 } };
	static const int rooms[] = { 212992, 300000, 1 << 20, 4 << 20 };
	static char buf[16000];

	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
		for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]);
		     k++) {
			int ends[2], room = rooms[i];
			socklen_t len = sizeof(room);
			uint32_t ring;

			connected(ends);
			T_OK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room,
					sizeof(room)));
			T_OK(getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room,
					&len));
			ring = exi_unix_ring((uint32_t)room);
			T(put(ends[0], 1 + k * 3000,
			      exi_unix_beside((uint32_t)room, ring) - 20000));
			for (size_t at = 0; at < ring; at += shapes[k].in_ring)
				T_EQ(send(ends[0], buf, shapes[k].bytes,
					  MSG_DONTWAIT),
				     shapes[k].bytes);
			part(ends);
		}
	}
}

/* As much as a socket has room for usually, where SO_SNDBUF may become twice
 * that. */
static void a_ring_has_room_for_what_the_kernel_has(void **state)
{
	static char buf[1 << 20];
	int ends[2], room;
	socklen_t len = sizeof(room);
	ssize_t n, all = 0;

	connected(ends);
	T_OK(getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, &len));
	while ((n = send(ends[0], buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		all += n;
	T(exi_unix_ring(2 * (uint32_t)room) > all + 64 * 16);
	T(exi_unix_beside(2 * (uint32_t)room,
			  exi_unix_ring(2 * (uint32_t)room)) > 0);
	part(ends);
}

/* As where a stranger has made very many sockets. */
static void slow_looks_end_for_a_while(void **state)
{
	const uint64_t slow = 1000000, rest = 10000000000u;
	struct exi_tuple t;
	int ends[2];

	connected(ends);
	for (int i = 0; i < 6; i++) { /* one look is no reason */
		exi_unix_looked(i % 3 ? slow : 0, exi_now_ns());
		T(!exi_unix_rests());
	}
	T_OK(exi_tuple_of(ends[0], &t));
	for (int i = 0; i < 4; i++)
		exi_unix_looked(slow, exi_now_ns());
	T(exi_unix_rests());
	T_EQ(exi_tuple_of(ends[0], &t), -EACCES);
	for (int i = 0; i < 4; i++) /* it is over */
		exi_unix_looked(slow, exi_now_ns() - rest);
	T(!exi_unix_rests());
	T_OK(exi_tuple_of(ends[0], &t));
	part(ends);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_taken_back_fits_beside_what_is_queued),
		cmocka_unit_test(a_ring_has_room_for_what_the_kernel_has),
		cmocka_unit_test(each_end_names_the_other),
		cmocka_unit_test(an_end_finds_the_cookie_of_the_other),
		cmocka_unit_test(an_end_that_nobody_accepted_has_no_peer),
		cmocka_unit_test(a_peer_of_another_is_none),
		cmocka_unit_test(a_link_of_another_user_is_refused),
		cmocka_unit_test(the_sign_is_seen_by_the_other_end),
		cmocka_unit_test(streams_are_told_from_other_unix_sockets),
		cmocka_unit_test(credentials_with_each_message_forbid_it),
		cmocka_unit_test(slow_looks_end_for_a_while),
	};

	setenv("EXS_UNIX", "on", 1);
	if (!t_can(t_has_sock_diag(), "sock_diag"))
		return T_SKIP;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
