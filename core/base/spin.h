/* SPDX-License-Identifier: BSD-2-Clause */
/* Spinning before sleeping: how long, and whether it is worth it. */
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

/* The results of recent waits, which decide whether to spin. */
struct exi_spin {
	uint32_t failed;  /* in a row */
	uint32_t skip;	  /* waits left that do not spin */
	uint32_t backoff; /* how many the last skip began with */
};

/* The time (ns) that the next wait may spin. 0: spins failed lately, or are
 * off. EXI_SPIN_YIELD: the peer shares this CPU, so yield instead. On a CPU
 * that other threads want (busy.h) a spin is short, and a peer that shares the
 * CPU gets it when this thread sleeps. */
#define EXI_SPIN_YIELD 1
EXI_SHIM uint64_t exi_spin_budget(struct exi_spin *s, int peer_cpu);
EXI_SHIM void exi_spin_result(struct exi_spin *s, bool success);
/* A spin that lasts at most for a budget (ns) and until the deadline (0: none).
 * Between looks exi_spin_goes_on() decides whether to look again. Every few
 * microseconds the spin yields to other threads, unless they are known to keep
 * the CPU for whole time slices (busy.h). The spin ends if it lost the CPU for
 * that long. */
struct exi_spinner {
	uint64_t end;
	uint64_t yield;
	uint64_t looked; /* at the clock */
	uint32_t looks;
	uint32_t weight; /* the cost of a look, a power of two up to 64 */
	uint32_t away;	 /* how often another thread took the CPU */
	/* Not 0: the spin polls a device, whose replies take this many times as
	 * long as replies within a host. If the spin loses the CPU, the kernel
	 * may have taken it to do the device's work that the spin waits for, so
	 * the spin continues. */
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
/* The number of looks between readings of the clock. The first reading comes
 * after the first look, because it takes as long as a quick reply. */
#define EXI_SPIN_BATCH 64
static inline bool exi_spin_goes_on(struct exi_spinner *s, uint64_t budget,
				    uint64_t deadline)
{
	/* A look at a device takes as long as a pause. */
	if (!s->patience)
		exi_pause();
	s->looks += s->weight;
	return exi_likely(s->looks % EXI_SPIN_BATCH) ||
	       exi_spin_clock(s, budget, deadline);
}

/* Looks, at least once, until look() returns true or the spin is over; returns
 * the last result. s was begun, and has the cost of a look. Inline together
 * with its look, which may be as short as the loop. */
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

/* Yields as long as it may help, and calls done(arg) in between. Returns false,
 * and records it, if the CPU came back so late that another thread wants it. */
EXI_SHIM bool exi_spin_yield(bool (*done)(void *arg), void *arg,
			     bool *ret_done);

/* The spin of a wait before it sleeps. budget: of exi_spin_budget(), or
 * UINT64_MAX; s was begun. Returns true if look() did. The result counts for
 * the next budget. */
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
