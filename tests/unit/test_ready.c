/* SPDX-License-Identifier: BSD-2-Clause */
/* What changes where the next byte comes from wakes waiters. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "core/base/lock.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/wait.h"

static _Atomic bool woken;

static void wake(struct exi_waiter *w)
{
	woken = true;
}

static enum exi_mode mode(const struct exi_sock *sk)
{
	return atomic_load(&sk->sh->half[EXI_RX].mode);
}

/* A thread that began to wait while bytes lay on TCP asked the kernel and
 * requested no wake-up; another thread reads them, and the next bytes are in
 * the ring. */
static void the_last_byte_of_tcp_wakes_who_waits(void **state)
{
	struct exi_waiter waiter = { .wake = wake };
	struct exi_sock *sk;
	size_t unread = 0;
	char bytes[64] = { 0 }, byte;
	int fd[2];

	setenv("EXS_PROVIDER", "loop", 1);
	t_init();
	t_pair(T_IPV4, fd);
	sk = exi_sock_find(fd[1]);
	/* Both look for each other after some bytes; as many stay unread. */
	T_UNTIL(({
		t_send_all(fd[0], bytes, sizeof(bytes), 0);
		t_recv_all(fd[1], bytes, sizeof(bytes) / 2);
		unread += sizeof(bytes) / 2;
		mode(sk) == EXI_MODE_LEFT;
	}));
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_sock_wait_locked(sk, EXI_RX, &waiter);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	exi_ready_arm(sk, fd[1], POLLIN, false, 0);
	/* The service may still wake who waits, for the switch that it has just
	 * made known. */
	while (mode(sk) == EXI_MODE_LEFT) {
		woken = false;
		t_recv_all(fd[1], &byte, 1);
		unread--;
	}
	T(woken);
	T_EQ(mode(sk), EXI_MODE_RING);
	while (unread--)
		t_recv_all(fd[1], &byte, 1);
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_sock_unwait_locked(sk, EXI_RX, &waiter);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	t_close(fd[0]);
	t_close(fd[1]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_byte_of_tcp_wakes_who_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
