/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings over pair links: one for a sleep. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/ids.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "tests/support/check.h"

static struct exi_conn conns[2];
static int links[2];
static struct exi_shared counted;

static int begin(void **state)
{
	for (int i = 0; i < 2; i++) {
		int ends[2];

		T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				ends));
		conns[i].bell = ends[0];
		conns[i].sh = &counted;
		conns[i].salt = exi_secret(1000);
		links[i] = ends[1];
	}
	return 0;
}

static int end(void **state)
{
	for (int i = 0; i < 2; i++) {
		close(conns[i].bell);
		close(links[i]);
	}
	return 0;
}

/* How many rings come, since it was asked last. */
static int came(int i)
{
	char c;
	int n = 0;

	while (recv(links[i], &c, 1, MSG_DONTWAIT) == 1)
		n++;
	return n;
}

static void one_is_enough_for_a_sleep(void **state)
{
	uint64_t sleep = exi_ready_sleep(), next = exi_ready_sleep();

	T(sleep && next && sleep != next);
	exi_conn_wake(&conns[0], sleep);
	exi_conn_wake(&conns[1], sleep);
	exi_conn_wake(&conns[0], sleep);
	T_EQ(came(0), 1);
	T_EQ(came(1), 0);
	exi_conn_wake(&conns[1], next);
	T_EQ(came(0), 0);
	T_EQ(came(1), 1);
}

static void without_a_sleep_each_rings(void **state)
{
	exi_conn_wake(&conns[0], 0);
	exi_conn_wake(&conns[1], 0);
	exi_conn_wake(&conns[1], 0);
	T_EQ(came(0), 1);
	T_EQ(came(1), 2);
}

/* The other user may have guessed our word. */
static void another_user_keeps_no_ring_back(void **state)
{
	uint64_t sleep = exi_ready_sleep();

	conns[0].salt = exi_secret(1001);
	T(conns[0].salt != conns[1].salt);
	exi_conn_wake(&conns[0], sleep);
	exi_conn_wake(&conns[1], sleep);
	T_EQ(came(0), 1);
	T_EQ(came(1), 1);
}

static void what_was_not_sent_does_not_count(void **state)
{
	uint64_t sleep = exi_ready_sleep();

	close(links[0]);
	exi_conn_wake(&conns[0], sleep);
	T(atomic_load(&conns[0].unheard));
	exi_conn_wake(&conns[1], sleep);
	T_EQ(came(1), 1);
	sleep = exi_ready_sleep();
	while (send(conns[1].bell, "x", 1, MSG_DONTWAIT) == 1)
		;
	T_EQ(errno, EAGAIN);
	exi_conn_wake(&conns[1], sleep);
	T(came(1) > 0);
	exi_conn_wake(&conns[1], sleep);
	T_EQ(came(1), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_is_enough_for_a_sleep,
						begin, end),
		cmocka_unit_test_setup_teardown(without_a_sleep_each_rings,
						begin, end),
		cmocka_unit_test_setup_teardown(another_user_keeps_no_ring_back,
						begin, end),
		cmocka_unit_test_setup_teardown(
			what_was_not_sent_does_not_count, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
