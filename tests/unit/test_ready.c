/* SPDX-License-Identifier: BSD-2-Clause */
/* What changes where the next byte comes from wakes waiters. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "core/base/lock.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/meet/meet.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/switch.h"
#include "providers/shm/shm_int.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/run.h"
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

/* A pair whose first end is about to move its sending direction for the second
 * time; of the second end nobody reads the link. */
static struct exi_sock *pair_that_nobody_hears(int fd[2])
{
	struct exi_sock *sk;

	setenv("EXS_PROVIDER", "loop", 1);
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1],
		      (struct t_want){ "loop", EXS_X_REASON_NONE });
	sk = exi_sock_find(fd[1]);
	T_OK(exs_x_downgrade(fd[0]));
	T_UNTIL(exi_switch_on_tcp(sk->sh, false));
	exi_lock(&sk->link_lock);
	exi_service_unwatch(sk->link->fd);
	exi_unlock(&sk->link_lock);
	return sk;
}

/* The peer has said that it moves, and nobody has read that: what it sent since
 * is there all the same, as the kernel's would be. */
static void what_was_sent_since_an_unread_switch_is_there(void **state)
{
	exs_pollfd_t p = { .exs_events = POLLIN };
	struct exi_sock *sk;
	char got[8] = "";
	int fd[2];

	/* One receive gives what lies on TCP, and what is behind it. */
	sk = pair_that_nobody_hears(fd);
	t_send_all(fd[0], "abc", 3, 0);
	T_OK(exs_x_adopt(fd[0]));
	t_send_all(fd[0], "de", 2, 0);
	T_EQ(atomic_load(&exi_sock_find(fd[0])->sh->half[EXI_TX].mode),
	     EXI_MODE_RING);
	T(mode(sk) != EXI_MODE_RING);
	T_EQ(exs_recv(fd[1], got, sizeof(got), MSG_DONTWAIT,
		      EXS_QHANDLE_INVALID, NULL, EXS_MHANDLE_UNREGISTERED),
	     5);
	T(!memcmp(got, "abcde", 5));
	t_close(fd[0]);
	t_close(fd[1]);

	/* Nothing is on TCP. */
	sk = pair_that_nobody_hears(fd);
	T_OK(exs_x_adopt(fd[0]));
	t_send_all(fd[0], "f", 1, 0);
	T(mode(sk) != EXI_MODE_RING);
	p.exs_fd = fd[1];
	T_EQ(exs_poll(&p, 1, MSG_DONTWAIT, EXS_QHANDLE_INVALID, NULL), 1);
	T_EQ(p.exs_revents, POLLIN);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* A thread that wants to know when bytes were sent may come while the
 * connection's fabric is being made, and has no memory yet. */
static void times_are_wanted_before_the_fabric_is_made(void **state)
{
	struct exi_sock *sk;
	int fd[2];

	setenv("EXS_PROVIDER", "loop", 1);
	t_init();
	t_pair(T_IPV4, fd);
	sk = exi_sock_find(fd[1]);
	T_EQ(exi_meet_fabric_new(sk, &exi_provider_shm), 0);
	exi_ready_want_times(sk, fd[1]);
	T(atomic_load(&sk->times));
	t_close(fd[0]);
	t_close(fd[1]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_byte_of_tcp_wakes_who_waits),
		cmocka_unit_test(what_was_sent_since_an_unread_switch_is_there),
		cmocka_unit_test(times_are_wanted_before_the_fabric_is_made),
	};

	if (!t_can(t_has_sock_diag(), "sock_diag"))
		return T_SKIP;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
