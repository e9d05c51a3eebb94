/* SPDX-License-Identifier: BSD-2-Clause */
/* How long a wait spins before it sleeps. */
#include "core/base/spin.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/busy.h"
#include "core/base/config.h"
#include "core/base/util.h"

/* How many waits do not spin after two failed spins; doubled while spins
 * fail. */
#define SKIP_MIN 16
#define SKIP_MAX 1024

uint64_t exi_spin_budget(struct exi_spin *s, int peer_cpu)
{
	uint64_t ns = exi_config()->spin_us * UINT64_C(1000);
	int cpu = exi_cpu();
	uint32_t skip;

	if (ns == 0)
		return 0;
	skip = exi_spin_get(&s->skip);
	if (skip) {
		exi_spin_set(&s->skip, skip - 1);
		return 0;
	}
	if (peer_cpu == cpu)
		return exi_busy_dear(cpu) ? 0 : EXI_SPIN_YIELD;
	return ns > EXI_BUSY_SPIN && exi_busy_wanted(cpu) ? EXI_BUSY_SPIN : ns;
}

/* Spins become rarer, never shorter: finding out that a peer that slept is
 * awake again takes a spin as long as its wake-up. */
void exi_spin_result(struct exi_spin *s, bool success)
{
	uint32_t backoff;

	if (success) {
		if (exi_spin_get(&s->failed))
			exi_spin_set(&s->failed, 0);
		if (exi_spin_get(&s->backoff))
			exi_spin_set(&s->backoff, 0);
		return;
	}
	if (exi_spin_get(&s->failed) == 0) {
		exi_spin_set(&s->failed, 1);
		return;
	}
	backoff = exi_spin_get(&s->backoff) ? exi_spin_get(&s->backoff) * 2
					    : SKIP_MIN;
	if (backoff > SKIP_MAX)
		backoff = SKIP_MAX;
	exi_spin_set(&s->backoff, backoff);
	exi_spin_set(&s->skip, backoff);
}

#define YIELDS 4

bool exi_spin_yield(bool (*done)(void *arg), void *arg, bool *ret_done)
{
	uint64_t before, now;
	int i = 0;

	*ret_done = done(arg);
	if (*ret_done)
		return true;
	now = exi_now_ns();
	do {
		before = now;
		sched_yield();
		*ret_done = done(arg);
		now = exi_now_ns();
		if (exi_busy_gave(exi_cpu(), now, now - before))
			return false;
	} while (++i < YIELDS && !*ret_done);
	return true;
}

/* How often (ns) a spin yields the CPU, and how late the CPU may come back: a
 * spin ends if a yield takes longer than on a CPU that no other thread wants.
 * Yields are rarer where replies take longer, because a reply that comes during
 * a yield waits for its end. */
#define YIELD_EVERY 5000u
#define AWAY_MAX    16u

/* The CPU was away for so long that other threads want it: the spin is over,
 * unless the program asked for it. */
static bool lost(const struct exi_spinner *s, uint64_t now, uint64_t loss,
		 uint64_t budget)
{
	return !s->patience && exi_busy_lost(exi_cpu(), now, loss) &&
	       budget != UINT64_MAX;
}

bool exi_spin_clock(struct exi_spinner *s, uint64_t budget, uint64_t deadline)
{
	uint64_t every = YIELD_EVERY * (s->patience ? s->patience : 1u);
	uint64_t now = exi_now_ns(), before = s->looked, back;

	if (!s->end) {
		s->end = budget < UINT64_MAX - now ? now + budget : UINT64_MAX;
		s->yield = now + every;
		before = now;
	}
	s->looked = now;
	if (lost(s, now, now - before, budget) || now >= s->end ||
	    (deadline && now >= deadline))
		return false;
	if (now < s->yield || (!s->patience && exi_busy_wanted(exi_cpu())))
		return true;
	sched_yield();
	s->looked = back = exi_now_ns();
	s->yield = back + every;
	if (lost(s, back, back - now, budget))
		return false;
	if (back - now < EXI_BUSY_RAN || budget == UINT64_MAX)
		return true;
	/* The time away does not count. */
	s->end += back - now;
	return s->patience || ++s->away <= AWAY_MAX;
}
