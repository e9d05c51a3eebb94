/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking before sleeping: for how long, and whether it is worth it. */
#ifndef EXI_CORE_BASE_SPIN_H
#define EXI_CORE_BASE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

/* Reads a hint that several threads write at once. */
static inline uint32_t exi_spin_get(const uint32_t *hint)
{
	return __atomic_load_n(hint, __ATOMIC_RELAXED);
}

/* Writes such a hint; the last writer wins. */
static inline void exi_spin_set(uint32_t *hint, uint32_t v)
{
	__atomic_store_n(hint, v, __ATOMIC_RELAXED);
}

/* How waits went lately; decides whether to spin. */
struct exi_spin {
	uint32_t failed;  /* in a row */
	uint32_t skip;	  /* waits left that do not spin */
	uint32_t backoff; /* how many the last skip began with */
};

/* How long (ns) the next wait may spin: 0 when that failed lately or is off;
 * EXI_SPIN_YIELD when the peer shares our CPU: give it the CPU instead. Where
 * others want this CPU (busy.h) a spin is short, and a peer that shares it gets
 * it by our sleep. */
#define EXI_SPIN_YIELD 1
EXI_SHIM uint64_t exi_spin_budget(struct exi_spin *s, int peer_cpu);
EXI_SHIM void exi_spin_result(struct exi_spin *s, bool success);
/* A spin that may last for so long (ns) and until the deadline (0: none).
 * Between looks exi_spin_goes_on() says whether to look again. Whoever wants
 * this CPU gets it every few microseconds, unless it is known that some keep it
 * for whole turns (busy.h). A spin is over when it lost the CPU for that
 * long. */
struct exi_spinner {
	uint64_t end;
	uint64_t yield;
	uint64_t looked; /* at the clock */
	uint32_t looks;
	uint32_t weight; /* a look counts as so many: a power of two, to 64 */
	uint32_t away;	 /* how often another thread took the CPU */
	/* Not 0: a device is looked at, whose replies take so many times as
	 * long as those within a host. What took the CPU may be the kernel,
	 * which does the device's work that is waited for. Then the spin goes
	 * on. */
	unsigned int patience;
};
static inline void exi_spin_begin(struct exi_spinner *s)
{
	s->weight = 1;
	s->end = 0;
	s->looks = 0;
	s->away = 0;
	s->patience = 0;
}
EXI_SHIM bool exi_spin_clock(struct exi_spinner *s, uint64_t budget,
			     uint64_t deadline);
/* The number of looks between looks at the clock: the first look at the clock
 * comes after the first look, for it takes as long as a quick reply. */
#define EXI_SPIN_BATCH 64
static inline bool exi_spin_goes_on(struct exi_spinner *s, uint64_t budget,
				    uint64_t deadline)
{
	/* A look at a device takes as long. */
	if (!s->patience)
		exi_pause();
	s->looks += s->weight;
	return exi_likely(s->looks % EXI_SPIN_BATCH) ||
	       exi_spin_clock(s, budget, deadline);
}

/* Looks, at least once, until look() finds something or the spin is over;
 * whether it did. s was begun, and says what a look costs. Inline: with its
 * look, which for some is as short as the loop. */
static inline __attribute__((always_inline)) bool
exi_spin_run(struct exi_spinner *s, uint64_t budget, uint64_t deadline,
	     bool (*look)(void *arg), void *arg)
{
	bool hit;

	do
		hit = look(arg);
	while (!hit && exi_spin_goes_on(s, budget, deadline));
	return hit;
}

/* Lets other threads run, as often as it may help, and calls done(arg) in
 * between. False when it took so long that another thread wants this CPU, which
 * is known from then on. */
EXI_SHIM bool exi_spin_yield(bool (*done)(void *arg), void *arg,
			     bool *ret_done);

/* A wait's looks before it sleeps: budget is what exi_spin_budget() gave for
 * how, or UINT64_MAX; s was begun. True: look() found something. What came of
 * it counts for the next budget. */
static inline __attribute__((always_inline)) bool
exi_spin_look(struct exi_spin *how, struct exi_spinner *s, uint64_t budget,
	      uint64_t deadline, bool (*look)(void *arg), void *arg)
{
	bool hit, good;

	if (!budget)
		return false;
	if (budget == EXI_SPIN_YIELD)
		good = exi_spin_yield(look, arg, &hit) && hit;
	else
		good = hit = exi_spin_run(s, budget, deadline, look, arg);
	exi_spin_result(how, good);
	return hit;
}

#endif
