/* SPDX-License-Identifier: BSD-2-Clause */
/* When the end that accepted looks for its peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/config.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/life/close.h"
#include "core/life/core.h"
#include "core/link/ending.h"
#include "core/meet/find.h"
#include "core/meet/look.h"
#include "core/meet/meet.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "core/transfer/lookup.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define MB (1024u * 1024)

static struct exi_sock *sk;
static int ends[2];

/* It has sent so much, for long enough, and is at this mark. */
static void sent(uint64_t bytes, uint64_t mark)
{
	struct exi_half *half = sk->sh->half;

	atomic_store(&sk->mark_since, 1);
	__atomic_store_n(&half[EXI_TX].bytes, bytes, __ATOMIC_RELAXED);
	atomic_store(&half[EXI_TX].meet_at, mark);
}

static bool looks_later(void)
{
	bool ret;

	exi_lock(&sk->link_lock);
	ret = sk->link && sk->link->state == EXI_LINK_LOOK;
	exi_unlock(&sk->link_lock);
	return ret;
}

/* A server offers all of a large answer, again and again, and the kernel takes
 * a little each time. */
static void a_mark_is_not_passed_by_what_is_only_offered(void **state)
{
	sent(2 * MB, 4 * MB);
	exi_flow_before_send(sk, ends[0], 60 * MB);
	T_EQ(atomic_load(&sk->sh->half[EXI_TX].meet_at), 4 * MB);
	sent(4 * MB - 1000, 4 * MB);
	exi_flow_before_send(sk, ends[0], 60 * MB);
	T_EQ(atomic_load(&sk->sh->half[EXI_TX].meet_at), 16 * MB);
	T_EQ(atomic_load(&sk->sh->reason), EXS_X_REASON_UNDECIDED);
	T_UNTIL(!looks_later());
}

/* A download that has just begun may be over before a look is. */
static void what_has_just_begun_is_not_looked_for(void **state)
{
	sent(2 * MB, MB);
	atomic_store(&sk->mark_since, 0);
	exi_flow_before_send(sk, ends[0], 1000);
	T_EQ(atomic_load(&sk->sh->half[EXI_TX].meet_at), MB);
	T(!looks_later());
	T_UNTIL((exi_flow_before_send(sk, ends[0], 1000),
		 atomic_load(&sk->sh->half[EXI_TX].meet_at) == 4 * MB));
	T_UNTIL(!looks_later());
}

static void after_the_last_mark_it_looks_by_time(void **state)
{
	sent(17 * MB, 16 * MB);
	exi_flow_before_send(sk, ends[0], 1000);
	T(atomic_load(&sk->sh->half[EXI_TX].meet_at) == UINT64_MAX);
	T_UNTIL(atomic_load(&sk->sh->reason) == EXS_X_REASON_PLAIN_PEER);
	T(looks_later());
}

/* Where a whole series of looks found nobody. */
static void it_looks_by_time_once(void **state)
{
	sk->looked = true;
	sent(17 * MB, 16 * MB);
	exi_flow_before_send(sk, ends[0], 1000);
	T_UNTIL(atomic_load(&sk->sh->reason) == EXS_X_REASON_PLAIN_PEER);
	T_UNTIL(!looks_later());
}

/* Before a short connection is over. */
static void an_eager_end_looks_again_within_a_millisecond(void **state)
{
	exi_lock(&sk->link_lock);
	exi_look_first_locked(sk, false);
	T(sk->link && sk->link->state == EXI_LINK_LOOK);
	T(sk->link->delay < 1000000);
	exi_unlock(&sk->link_lock);
}

/* A service thread that is held up. */
static _Atomic bool held, go_on;
static struct exi_timer holder;

static void hold(struct exi_sock *s)
{
	atomic_store(&held, true);
	T_UNTIL(atomic_load(&go_on));
	exi_service_untimed(&holder);
}

static void hold_service(void)
{
	atomic_store(&held, false);
	atomic_store(&go_on, false);
	holder = (struct exi_timer){ .sk = sk, .expired = hold };
	atomic_store(&holder.deadline, 1);
	T_EQ(exi_service_start(), 0);
	exi_service_timed(&holder);
	T_UNTIL(atomic_load(&held));
}

/* The call of the program that passes a mark notes that a look is due, and the
 * service looks. */
static void the_service_looks_for_a_call_that_passes_a_mark(void **state)
{
	hold_service();
	sent(MB, MB / 2);
	exi_flow_before_send(sk, ends[0], 1000);
	T(looks_later());
	T_EQ(atomic_load(&sk->sh->half[EXI_TX].meet_at), 4 * MB);
	/* One more on the way. */
	sent(4 * MB, 4 * MB);
	exi_flow_before_send(sk, ends[0], 1000);
	T(looks_later());
	T_EQ(atomic_load(&sk->sh->half[EXI_TX].meet_at), 16 * MB);
	atomic_store(&go_on, true);
	T_UNTIL(!looks_later());
	T_EQ(atomic_load(&sk->sh->reason), EXS_X_REASON_UNDECIDED);
}

/* Closed before the service came to it. */
static void a_look_that_is_due_ends_with_its_connection(void **state)
{
	hold_service();
	sent(MB, MB / 2);
	exi_flow_before_send(sk, ends[0], 1000);
	T_EQ(dup2(ends[1], ends[0]), ends[0]);
	atomic_store(&go_on, true);
	T_UNTIL(!looks_later());
	T_EQ(atomic_load(&sk->sh->reason), EXS_X_REASON_UNDECIDED);
}

/* --- the reason in the end ----------------------------------------------- */

static int last_reason(void)
{
	int ret;

	exi_lock(&sk->link_lock);
	ret = exi_link_last_reason_locked(sk, ends[0]);
	exi_unlock(&sk->link_lock);
	return ret;
}

/* This end has received enough to meet, and its meeting fails since the link
 * hung up. */
static void loses_its_peer(void)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	__atomic_store_n(&rx->bytes, 4 * EXI_UPGRADE_BYTES, __ATOMIC_RELAXED);
	atomic_store(&rx->meet_at, UINT64_MAX);
	exi_lock(&sk->link_lock);
	exi_meet_give_up_locked(sk, EXS_X_REASON_PEER_LOST);
	exi_unlock(&sk->link_lock);
}

static void peer_closes(void)
{
	T_EQ(shutdown(ends[1], SHUT_RDWR), 0);
	T_UNTIL(exi_tcp_ended(sk));
}

static void a_peer_that_closed_as_they_met_is_not_plain(void **state)
{
	peer_closes();
	loses_its_peer();
	T_EQ(last_reason(), EXS_X_REASON_UNDECIDED);
}

/* The end of the link came first. */
static void nor_is_it_lost(void **state)
{
	loses_its_peer();
	T_EQ(last_reason(), EXS_X_REASON_PEER_LOST);
	peer_closes();
	T_EQ(last_reason(), EXS_X_REASON_UNDECIDED);
}

static void received(uint64_t bytes)
{
	__atomic_store_n(&sk->sh->half[EXI_RX].bytes, bytes, __ATOMIC_RELAXED);
}

static bool has_looked_after(uint64_t bytes)
{
	bool ret;

	exi_lock(&sk->link_lock);
	ret = sk->vain_in >= bytes;
	exi_unlock(&sk->link_lock);
	return ret;
}

static void set_upgrade(uint64_t bytes)
{
	((struct exi_config *)(uintptr_t)exi_config())->upgrade_bytes = bytes;
}

/* The service gets no CPU from the accept on until the connection ends: nobody
 * knows whether the peer waited. */
static void who_was_not_looked_for_is_not_plain(void **state)
{
	set_upgrade(0);
	hold_service();
	exi_lock(&sk->link_lock);
	exi_look_first_locked(sk, false);
	exi_unlock(&sk->link_lock);
	T(looks_later());
	received(4 * MB);
	T_EQ(last_reason(), EXS_X_REASON_UNDECIDED);
	atomic_store(&go_on, true);
	T_UNTIL(has_looked_after(4 * MB));
	T_EQ(last_reason(), EXS_X_REASON_PLAIN_PEER);
}

/* By the default settings, too. */
static void nor_who_is_to_be_looked_for_at_a_mark(void **state)
{
	hold_service();
	received(4 * MB);
	atomic_store(&sk->sh->half[EXI_RX].meet_at, EXI_UPGRADE_BYTES);
	exi_flow_after_recv(sk, ends[0]);
	T(looks_later());
	T_EQ(last_reason(), EXS_X_REASON_UNDECIDED);
	atomic_store(&go_on, true);
	T_UNTIL(!looks_later());
	T_EQ(last_reason(), EXS_X_REASON_PLAIN_PEER);
}

/* An end that meets at once looked before its peer had a reason to be there,
 * and looks no more: a child has the connection since. */
static void nor_who_was_looked_for_too_early(void **state)
{
	set_upgrade(0);
	exi_lock(&sk->link_lock);
	exi_look_first_locked(sk, true);
	T(sk->link && sk->link->state == EXI_LINK_LOOK);
	exi_link_drop_locked(sk);
	exi_unlock(&sk->link_lock);
	received(MB);
	T_EQ(last_reason(), EXS_X_REASON_UNDECIDED);
}

static int begin(void **state)
{
	int pair[2];

	t_plain_pair(pair);
	ends[0] = pair[1]; /* the end that accepted */
	ends[1] = pair[0];
	T_EQ(exi_core_init(), 0);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_ACCEPT, true, &sk), 0);
	return 0;
}

static int end(void **state)
{
	set_upgrade(EXI_UPGRADE_BYTES);
	T_EQ(exi_close(ends[0]), 0);
	close(ends[1]);
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_mark_is_not_passed_by_what_is_only_offered, begin,
			end),
		cmocka_unit_test_setup_teardown(
			after_the_last_mark_it_looks_by_time, begin, end),
		cmocka_unit_test_setup_teardown(it_looks_by_time_once, begin,
						end),
		cmocka_unit_test_setup_teardown(
			what_has_just_begun_is_not_looked_for, begin, end),
		cmocka_unit_test_setup_teardown(
			an_eager_end_looks_again_within_a_millisecond, begin,
			end),
		cmocka_unit_test_setup_teardown(
			the_service_looks_for_a_call_that_passes_a_mark, begin,
			end),
		cmocka_unit_test_setup_teardown(
			a_look_that_is_due_ends_with_its_connection, begin,
			end),
		cmocka_unit_test_setup_teardown(
			a_peer_that_closed_as_they_met_is_not_plain, begin,
			end),
		cmocka_unit_test_setup_teardown(nor_is_it_lost, begin, end),
		cmocka_unit_test_setup_teardown(
			nor_who_is_to_be_looked_for_at_a_mark, begin, end),
		cmocka_unit_test_setup_teardown(
			who_was_not_looked_for_is_not_plain, begin, end),
		cmocka_unit_test_setup_teardown(
			nor_who_was_looked_for_too_early, begin, end),
	};

	if (!t_can(t_has_sock_diag(), "sock_diag"))
		return T_SKIP;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
