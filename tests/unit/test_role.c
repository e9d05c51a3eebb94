/* SPDX-License-Identifier: BSD-2-Clause */
/* The streams on which connections begin: what is one, and which end of it
 * connected, told from the kernel's counters while bytes and acknowledgements
 * are on their way. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/sock/base.h"
#include "core/sock/table.h"
#include "tests/support/check.h"
#include "tests/support/net.h"

#define LOOKS 20000

static int ends[2];
static atomic_bool over;

/* Both ways, in turns. */
static void *traffic(void *arg)
{
	static char block[3000];

	for (int i = 0; !over; i = !i) {
		T_EQ(send(ends[i], block, sizeof(block), 0), sizeof(block));
		T_EQ(recv(ends[!i], block, sizeof(block), MSG_WAITALL),
		     sizeof(block));
	}
	return NULL;
}

static bool has_tcp_info(int fd)
{
	char info[256];
	socklen_t len = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0 &&
	       len > sizeof(int);
}

static void the_role_is_told_at_any_moment(void **state)
{
	pthread_t thread;
	int i;

	t_plain_pair(ends);
	if (!t_can(has_tcp_info(ends[0]), "TCP_INFO"))
		skip();
	T_EQ(pthread_create(&thread, NULL, traffic, NULL), 0);
	for (i = 0; i < LOOKS / t_slow(); i++) {
		T_EQ(exi_base_tcp.role(ends[0]), EXI_ROLE_CONNECT);
		T_EQ(exi_base_tcp.role(ends[1]), EXI_ROLE_ACCEPT);
	}
	over = true;
	pthread_join(thread, NULL);
	close(ends[0]);
	close(ends[1]);
}

/* A FIN counts as a byte that was written. */
static void the_role_is_told_after_a_fin(void **state)
{
	struct exi_sock a = { .role = EXI_ROLE_CONNECT },
			b = { .role = EXI_ROLE_ACCEPT };
	int first;

	for (first = 0; first < 2; first++) {
		t_plain_pair(ends);
		if (!t_can(has_tcp_info(ends[0]), "TCP_INFO"))
			skip();
		T_OK(shutdown(ends[first], SHUT_WR));
		T_EQ(exi_base_tcp.role(ends[0]), EXI_ROLE_CONNECT);
		T_EQ(exi_base_tcp.role(ends[1]), EXI_ROLE_ACCEPT);
		T(exi_base_tcp.same(&a, ends[0]));
		T(exi_base_tcp.same(&b, ends[1]));
		T(!exi_base_tcp.same(&b, ends[0]));
		/* A closed connection may have been either. */
		T_OK(shutdown(ends[!first], SHUT_WR));
		T(exi_base_tcp.same(&a, ends[0]));
		T(exi_base_tcp.same(&b, ends[1]));
		close(ends[0]);
		close(ends[1]);
	}
}

static void what_is_not_connected_has_none(void **state)
{
	int s = T_OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

	T_EQ(exi_base_tcp.role(s), EXI_ROLE_NONE);
	T_EQ(exi_base_tcp.role(-1), EXI_ROLE_NONE);
	close(s);
}

/* The base of a socket, which is closed again. */
static const struct exi_base *base_of(int domain, int type)
{
	int s = T_OK(socket(domain, type | SOCK_CLOEXEC, 0));
	const struct exi_base *ret = exi_base_of(s);

	close(s);
	return ret;
}

static void streams_are_told_from_other_sockets(void **state)
{
	T_EQ(base_of(AF_INET, SOCK_STREAM), &exi_base_tcp);
	T_EQ(base_of(AF_INET6, SOCK_STREAM), &exi_base_tcp);
	T_EQ(base_of(AF_INET, SOCK_DGRAM), NULL);
	T_EQ(base_of(AF_UNIX, SOCK_STREAM), &exi_base_unix);
	T_EQ(base_of(AF_UNIX, SOCK_SEQPACKET), NULL);
	T_EQ(base_of(AF_UNIX, SOCK_DGRAM), NULL);
	T_EQ(exi_base_of(-1), NULL);
	T_EQ(exi_base_for(AF_INET, SOCK_STREAM, 0), &exi_base_tcp);
	T_EQ(exi_base_for(AF_INET, SOCK_STREAM, IPPROTO_MPTCP), NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_role_is_told_at_any_moment),
		cmocka_unit_test(the_role_is_told_after_a_fin),
		cmocka_unit_test(what_is_not_connected_has_none),
		cmocka_unit_test(streams_are_told_from_other_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
