/* SPDX-License-Identifier: BSD-2-Clause */
/* What a spin learns of others that want its CPU, and does about it. Time goes
 * only when this program says so. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "core/base/busy.h"
#include "core/base/config.h"
#include "core/base/spin.h"
#include "core/base/util.h"
#include "core/call/dequeue.h"
#include "core/transfer/queue.h"

#define US   UINT64_C(1000)
#define MS   UINT64_C(1000000)
#define TURN (4 * MS)

static uint64_t now = 1000 * MS;
static uint64_t yield_takes; /* ns */
static unsigned int yields;

int clock_gettime(clockid_t id, struct timespec *t)
{
	*t = exi_ns_timespec(now);
	return 0;
}

int sched_yield(void)
{
	yields++;
	now += yield_takes;
	return 0;
}

static int cpu, elsewhere;

static int begin(void **state)
{
	cpu_set_t set;

	cpu = sched_getcpu();
	elsewhere = cpu + 1;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return -1;
	memset(exi_busy_cpus, 0, sizeof(exi_busy_cpus));
	yield_takes = yields = 0;
	return 0;
}

static uint64_t budget(int peer)
{
	struct exi_spin s = { 0 };

	return exi_spin_budget(&s, peer);
}

static uint64_t longest(void)
{
	return exi_config()->spin_us * US;
}

/* A spin for a peer on another CPU that finds nothing; how long it took. A look
 * takes 50 ns. */
static uint64_t spin(uint64_t ns, unsigned int patience)
{
	uint64_t start = now;
	struct exi_spinner s;

	exi_spin_begin(&s);
	s.patience = patience;
	do
		now += 50;
	while (now - start < 100 * MS && exi_spin_goes_on(&s, ns, 0));
	return now - start;
}

static bool never(void *arg)
{
	return false;
}

/* An offer of the CPU to a peer that shares it. */
static void offer(uint64_t takes)
{
	bool done, good;

	yield_takes = takes;
	good = exi_spin_yield(never, NULL, &done);
	assert_int_equal(good, takes < EXI_BUSY_DEAR_LEAST);
}

static void a_spin_offers_the_cpu_to_others(void **state)
{
	assert_in_range(spin(budget(elsewhere), 0), longest(),
			longest() + 10 * US);
	assert_in_range(yields, 5, 12);
	assert_true(budget(elsewhere) == longest());
}

static void after_a_lost_turn_spins_are_short_and_offer_nothing(void **state)
{
	yield_takes = TURN;
	assert_in_range(spin(budget(elsewhere), 0), TURN, TURN + 20 * US);
	assert_int_equal(yields, 1);
	assert_true(budget(elsewhere) == EXI_BUSY_SPIN);
	assert_in_range(spin(budget(elsewhere), 0), EXI_BUSY_SPIN,
			EXI_BUSY_SPIN + 10 * US);
	assert_int_equal(yields, 1);
}

static void a_turn_lost_without_an_offer_counts_as_well(void **state)
{
	struct exi_spinner s;

	exi_spin_begin(&s);
	assert_true(exi_spin_clock(&s, longest(), 0));
	now += TURN;
	assert_false(exi_spin_clock(&s, longest(), 0));
	assert_true(budget(elsewhere) == EXI_BUSY_SPIN);
}

static void it_is_forgotten_in_proportion_to_the_loss(void **state)
{
	exi_busy_lost(cpu, now, TURN);
	now += EXI_BUSY_TIMES * TURN - 1;
	assert_true(budget(elsewhere) == EXI_BUSY_SPIN);
	now += 1;
	assert_true(budget(elsewhere) == longest());
	exi_busy_lost(cpu, now, 10000 * MS);
	now += EXI_BUSY_MAX;
	assert_true(budget(elsewhere) == longest());
}

static void what_is_found_out_again_holds_twice_as_long(void **state)
{
	uint64_t holds = EXI_BUSY_TIMES * MS;

	for (exi_busy_lost(cpu, now, MS); holds < EXI_BUSY_MAX; holds *= 2) {
		now += holds - 1;
		assert_true(budget(elsewhere) == EXI_BUSY_SPIN);
		now += 1;
		assert_true(budget(elsewhere) == longest());
		exi_busy_lost(cpu, now, MS);
	}
	now += EXI_BUSY_MAX;
	assert_true(budget(elsewhere) == longest());
	/* But not if it was not so meanwhile. */
	now += EXI_BUSY_MAX;
	exi_busy_lost(cpu, now, MS);
	now += EXI_BUSY_TIMES * MS;
	assert_true(budget(elsewhere) == longest());
}

static void another_cpu_is_not_concerned(void **state)
{
	exi_busy_lost(elsewhere, now, TURN);
	assert_true(budget(elsewhere) == longest());
}

static void threads_that_sleep_again_soon_change_nothing(void **state)
{
	yield_takes = 60 * US;
	for (int i = 0; i < 100; i++) {
		spin(budget(elsewhere), 0);
		assert_true(budget(elsewhere) == longest());
	}
	/* A single turn among them changes nothing, either. */
	exi_busy_lost(cpu, now, TURN);
	assert_true(budget(elsewhere) == longest());
}

/* Turns of two others, with waits all the time. */
static void finding_out_costs_a_twentieth_at_most(void **state)
{
	uint64_t start = now, lost = 0;

	yield_takes = 2 * TURN;
	while (now - start < 2000 * MS) {
		unsigned int before = yields;

		spin(budget(elsewhere), 0);
		lost += (yields - before) * yield_takes;
		now += 20 * US; /* a sleep */
	}
	assert_true(lost > 0);
	assert_true(lost * 20 <= now - start);
}

static void it_is_found_out_at_once_that_nobody_is_there_any_more(void **state)
{
	yield_takes = TURN;
	spin(budget(elsewhere), 0);
	now += EXI_BUSY_TIMES * TURN;
	yield_takes = 300;
	for (int i = 0; i < 10; i++)
		assert_in_range(spin(budget(elsewhere), 0), longest(),
				longest() + 10 * US);
}

static void who_asked_for_a_busy_poll_goes_on(void **state)
{
	yield_takes = TURN;
	assert_true(spin(UINT64_MAX, 0) >= 100 * MS);
	assert_int_equal(yields, 1);
}

/* The thread that takes the CPU may do the device's work. */
static void a_spin_for_a_device_neither_learns_nor_obeys(void **state)
{
	yield_takes = TURN;
	assert_true(spin(10 * MS, 4) > 10 * MS);
	assert_true(yields > 10);
	assert_true(budget(elsewhere) == longest());
	exi_busy_lost(cpu, now, TURN);
	yields = 0;
	spin(10 * MS, 4);
	assert_true(yields > 10);
}

static void a_peer_on_this_cpu_is_offered_it(void **state)
{
	for (int i = 0; i < 1000; i++) {
		offer(2 * US);
		assert_true(budget(cpu) == EXI_SPIN_YIELD);
	}
}

static void and_gets_it_by_a_sleep_where_others_keep_it(void **state)
{
	for (int i = 0; i < 1000; i++)
		offer(2 * US);
	for (int i = 0; i < 20 && budget(cpu) == EXI_SPIN_YIELD; i++)
		offer(TURN);
	assert_true(budget(cpu) == 0);
	/* Waits for peers elsewhere are judged by themselves. */
	assert_true(budget(elsewhere) == longest());
	now += EXI_BUSY_TIMES * TURN;
	assert_true(budget(cpu) == EXI_SPIN_YIELD);
	/* One more turn is enough to know it again. */
	offer(TURN);
	assert_true(budget(cpu) == 0);
}

static void at_its_beginning_two_turns_are_enough(void **state)
{
	offer(TURN);
	offer(TURN);
	assert_true(budget(cpu) == 0);
}

static void a_turn_now_and_then_is_what_several_pairs_cost(void **state)
{
	for (int i = 0; i < 2000; i++) {
		offer(i % 50 == 49 ? TURN : 2 * US);
		assert_true(budget(cpu) == EXI_SPIN_YIELD);
	}
}

/* A queue whose one thread sleeps in it. */
static struct exi_queue *attended_queue(void)
{
	struct exi_queue *q;
	exs_qhandle_t h;

	assert_int_equal(exi_queue_create(4, &h), 0);
	q = exi_queue_get(h);
	assert_non_null(q);
	atomic_store(&q->n_hot, 1);
	atomic_store(&q->attended, 1);
	atomic_store(&q->sleepers, 1);
	return q;
}

static void end_queue(struct exi_queue *q)
{
	exs_qhandle_t h = atomic_load(&q->handle);

	atomic_store(&q->n_hot, 0);
	atomic_store(&q->attended, 0);
	atomic_store(&q->sleepers, 0);
	exi_queue_put(q);
	assert_int_equal(exi_queue_delete(h), 0);
}

/* To stop and begin again would cost as much as several. */
static void ticks_go_on_while_a_sleeper_comes_again(void **state)
{
	struct exi_queue *q = attended_queue();
	int left;

	for (int i = 0; i < 20; i++) {
		atomic_fetch_add(&q->visits, 1);
		assert_true(exi_queue_tick() > 0);
	}
	for (left = 10; left > 0 && exi_queue_tick(); left--)
		;
	assert_true(left > 0);
	end_queue(q);
}

static void ticks_are_few_where_others_want_the_cpu(void **state)
{
	struct exi_queue *q = attended_queue();
	int usual, busy;

	atomic_store(&q->attended, 0);
	atomic_fetch_add(&q->visits, 1);
	usual = exi_queue_tick();
	exi_busy_lost(cpu, now, TURN);
	atomic_fetch_add(&q->visits, 1);
	busy = exi_queue_tick();
	assert_true(usual > 0 && busy > usual);
	end_queue(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_spin_offers_the_cpu_to_others, begin),
		cmocka_unit_test_setup(
			after_a_lost_turn_spins_are_short_and_offer_nothing,
			begin),
		cmocka_unit_test_setup(
			a_turn_lost_without_an_offer_counts_as_well, begin),
		cmocka_unit_test_setup(
			it_is_forgotten_in_proportion_to_the_loss, begin),
		cmocka_unit_test_setup(
			what_is_found_out_again_holds_twice_as_long, begin),
		cmocka_unit_test_setup(another_cpu_is_not_concerned, begin),
		cmocka_unit_test_setup(
			threads_that_sleep_again_soon_change_nothing, begin),
		cmocka_unit_test_setup(finding_out_costs_a_twentieth_at_most,
				       begin),
		cmocka_unit_test_setup(
			it_is_found_out_at_once_that_nobody_is_there_any_more,
			begin),
		cmocka_unit_test_setup(who_asked_for_a_busy_poll_goes_on,
				       begin),
		cmocka_unit_test_setup(
			a_spin_for_a_device_neither_learns_nor_obeys, begin),
		cmocka_unit_test_setup(a_peer_on_this_cpu_is_offered_it, begin),
		cmocka_unit_test_setup(
			and_gets_it_by_a_sleep_where_others_keep_it, begin),
		cmocka_unit_test_setup(at_its_beginning_two_turns_are_enough,
				       begin),
		cmocka_unit_test_setup(
			a_turn_now_and_then_is_what_several_pairs_cost, begin),
		cmocka_unit_test_setup(ticks_go_on_while_a_sleeper_comes_again,
				       begin),
		cmocka_unit_test_setup(ticks_are_few_where_others_want_the_cpu,
				       begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
