/* SPDX-License-Identifier: BSD-2-Clause */
/* Which end of a connection connected, told from the kernel's counters while
 * bytes and acknowledgements are on their way. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/sock/table.h"
#include "core/sock/tcp.h"
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

static void the_role_is_told_at_any_moment(void **state)
{
	pthread_t thread;
	int i;

	t_plain_pair(ends);
	T_EQ(pthread_create(&thread, NULL, traffic, NULL), 0);
	for (i = 0; i < LOOKS / t_slow(); i++) {
		T_EQ(exi_switch_role(ends[0]), EXI_ROLE_CONNECT);
		T_EQ(exi_switch_role(ends[1]), EXI_ROLE_ACCEPT);
	}
	over = true;
	pthread_join(thread, NULL);
	close(ends[0]);
	close(ends[1]);
}

static void what_is_not_connected_has_none(void **state)
{
	int s = T_OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

	T_EQ(exi_switch_role(s), EXI_ROLE_NONE);
	T_EQ(exi_switch_role(-1), EXI_ROLE_NONE);
	close(s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_role_is_told_at_any_moment),
		cmocka_unit_test(what_is_not_connected_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
