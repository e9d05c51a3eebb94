/* SPDX-License-Identifier: BSD-2-Clause */
/* How long a connection lasts before it meets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/config.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/life/close.h"
#include "core/life/core.h"
#include "core/meet/begin.h"
#include "core/meet/find.h"
#include "core/meet/meet.h"
#include "core/meet/worth.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/transfer/lookup.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define KB   1024u
#define MB   (1024u * KB)
#define MANY 8

static struct exi_sock *sk;
static int ends[2];

static void make(enum exi_role role)
{
	int pair[2];

	t_plain_pair(pair);
	ends[0] = pair[role == EXI_ROLE_ACCEPT];
	ends[1] = pair[role != EXI_ROLE_ACCEPT];
	T_EQ(exi_sock_make(ends[0], role, true, &sk), 0);
	exi_link_expect(sk, false);
}

static void finish(void)
{
	T_EQ(exi_close(ends[0]), 0);
	close(ends[1]);
}

/* Connections that met and ended: soon, or with so many bytes moved. */
static void end_after(int n, uint64_t bytes)
{
	for (; n > 0; n--) {
		make(EXI_ROLE_CONNECT);
		exi_lock(&sk->link_lock);
		exi_worth_paid_locked(sk);
		/* However busy the host is. */
		if (!bytes)
			sk->paid_at += UINT64_C(1) << 40;
		exi_unlock(&sk->link_lock);
		sk->sh->half[EXI_TX].fabric_bytes = bytes;
		finish();
	}
}

static uint64_t mark(enum exi_dir dir)
{
	return atomic_load(&sk->sh->half[dir].meet_at);
}

static bool is_later(size_t len)
{
	return exi_worth_later(sk, ends[0], EXI_TX, mark(EXI_TX), len);
}

/* As if it had passed its first mark at this time. */
static void since(uint64_t ticks)
{
	atomic_store(&sk->mark_since, ticks);
}

static void the_first_ones_meet_at_once(void **state)
{
	make(EXI_ROLE_CONNECT);
	T(!is_later(2 * KB));
	finish();
	end_after(2, 0);
	make(EXI_ROLE_CONNECT);
	T(!is_later(2 * KB));
	finish();
}

static void after_meetings_in_vain_it_waits_for_a_while(void **state)
{
	end_after(MANY, 0);
	make(EXI_ROLE_CONNECT);
	exi_flow_before_send(sk, ends[0], 2 * KB);
	T_EQ(mark(EXI_TX), 64 * KB);
	T_EQ(mark(EXI_RX), 32 * KB);
	T(!sk->link);
	/* Until it has lasted. */
	since(1);
	T(!is_later(64 * KB));
	finish();
}

/* B looks when it has received more than a mark, so A's next mark is behind all
 * that it sends. */
static void the_next_mark_is_behind_what_is_sent(void **state)
{
	end_after(MANY, 0);
	make(EXI_ROLE_CONNECT);
	T(is_later(300 * KB));
	T_EQ(mark(EXI_TX), MB);
	finish();
}

static void who_sends_much_meets_at_once(void **state)
{
	end_after(MANY, 0);
	make(EXI_ROLE_CONNECT);
	T(!is_later(9 * MB));
	finish();
}

static void the_peer_sees_that_it_will_meet(void **state)
{
	struct exi_tuple t;

	end_after(MANY, 0);
	make(EXI_ROLE_CONNECT);
	T_EQ(exi_tuple_of(ends[1], &t), 0);
	T_EQ(exi_proof_signed(&t), 0);
	T(is_later(2 * KB));
	T_EQ(exi_proof_signed(&t), 1);
	finish();
}

static void meetings_that_pay_bring_the_time_back(void **state)
{
	end_after(MANY, 0);
	end_after(MANY, 2 * MB);
	make(EXI_ROLE_CONNECT);
	T(!is_later(2 * KB));
	finish();
}

static bool has_looked(void)
{
	bool ret;

	exi_lock(&sk->link_lock);
	ret = sk->vain_in == 2 * KB;
	exi_unlock(&sk->link_lock);
	return ret;
}

/* The service looks for its peer then, or not at all if it has ended. */
static void the_other_end_looks_later(void **state)
{
	uint64_t later;

	end_after(MANY, 0);
	T_EQ(exi_service_start(), 0);
	make(EXI_ROLE_ACCEPT);
	__atomic_store_n(&sk->sh->half[EXI_RX].bytes, 2 * KB, __ATOMIC_RELAXED);
	later = exi_now_ns() + 5000000;
	exi_flow_after_recv(sk, ends[0]);
	T_EQ(mark(EXI_RX), 64 * KB);
	exi_lock(&sk->link_lock);
	T(exi_now_ns() >= later ||
	  (sk->link && sk->link->state == EXI_LINK_LOOK &&
	   atomic_load(&sk->link->timer.deadline) >= later));
	exi_unlock(&sk->link_lock);
	T_UNTIL(has_looked());
	finish();
}

/* It was to meet at its first byte. */
static void who_asks_for_it_meets_at_once(void **state)
{
	struct exi_config *c = (struct exi_config *)(uintptr_t)exi_config();

	end_after(MANY, 0);
	c->upgrade_bytes = 0;
	make(EXI_ROLE_CONNECT);
	T(!is_later(2 * KB));
	finish();
	c->upgrade_bytes = EXI_UPGRADE_BYTES;
}

static int begin(void **state)
{
	T_EQ(exi_core_init(), 0);
	return 0;
}

static int forget(void **state)
{
	end_after(MANY, 2 * MB);
	return 0;
}

#define ROW(f) cmocka_unit_test_teardown(f, forget)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		ROW(the_first_ones_meet_at_once),
		ROW(after_meetings_in_vain_it_waits_for_a_while),
		ROW(the_next_mark_is_behind_what_is_sent),
		ROW(who_sends_much_meets_at_once),
		ROW(the_peer_sees_that_it_will_meet),
		ROW(meetings_that_pay_bring_the_time_back),
		ROW(the_other_end_looks_later),
		ROW(who_asks_for_it_meets_at_once),
	};

	if (!t_can(t_has_sock_diag(), "sock_diag"))
		return T_SKIP;
	return cmocka_run_group_tests(tests, begin, NULL);
}
