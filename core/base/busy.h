/* SPDX-License-Identifier: BSD-2-Clause */
/* CPUs that others want. A thread learns of it by losing its CPU while it
 * spins, or by offering the CPU to others (sched_yield(2)) and getting it back
 * late.
 *
 * On such a CPU a spin must cost little. An offer costs whole turns of the
 * others, milliseconds each, and what a long spin burns is missing when the
 * thread wakes: the scheduler lets a thread that has used less than its share
 * preempt others, and lets one that has used it wait. So spins are short there,
 * and offer nothing. */
#ifndef EXI_CORE_BASE_BUSY_H
#define EXI_CORE_BASE_BUSY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

/* Losses are judged by their mean (ns) of the last few to twice as many.
 *
 * A thread that waits for a peer on another CPU counts the losses in which
 * somebody ran: threads that wait for each other sleep again after some
 * microseconds, a thread that computes keeps the CPU for its turn. One such
 * turn is enough.
 *
 * A thread that waits for a peer on the same CPU counts all its offers: mostly
 * the peer runs, which costs less than a sleep and a wake-up. Several pairs
 * that never sleep take turns from each other now and then, which is no reason
 * to sleep; so the first turn is not enough. */
#define EXI_BUSY_RAN	    5000u /* shorter, and nobody did */
#define EXI_BUSY_WANTED	    1000000u
#define EXI_BUSY_WANTED_OF  8u
#define EXI_BUSY_DEAR	    500000u
#define EXI_BUSY_DEAR_OF    64u
#define EXI_BUSY_DEAR_FIRST 8u	    /* as if so many had cost nothing */
#define EXI_BUSY_DEAR_LEAST 150000u /* a third party had it */
/* A finding holds for EXI_BUSY_TIMES times the loss, so that finding out
 * whether it still holds costs a fiftieth of the time; twice as long each time
 * that it still does, so that neighbours that stay cost less and less; and for
 * EXI_BUSY_MAX ns at most. */
#define EXI_BUSY_TIMES 50u
#define EXI_BUSY_MAX   1000000000u
/* The longest spin (ns) where others want the CPU: about as much CPU time as a
 * sleep and its wake-up take. */
#define EXI_BUSY_SPIN 10000u

#define EXI_BUSY_CPUS 64 /* a power of two; CPUs that share a place are one */
/* Hints: whoever writes last wins. */
struct exi_losses {
	_Atomic uint64_t until; /* CLOCK_MONOTONIC ns: too much; 0: not */
	_Atomic uint64_t ended; /* what `until` was last, 0: never, and */
	_Atomic uint64_t held;	/* for how long */
	_Atomic uint64_t lost;	/* ns, of so many: */
	_Atomic uint32_t n;
};
struct exi_busy {
	struct exi_losses wanted, dear;
};
extern struct exi_busy exi_busy_cpus[EXI_BUSY_CPUS];

/* What was found out about a CPU; one entry serves several CPUs where there are
 * very many. */
static inline struct exi_busy *exi_busy_of(int cpu)
{
	return &exi_busy_cpus[(unsigned int)cpu % EXI_BUSY_CPUS];
}

/* Whether what was found out holds still; forgets it otherwise. */
bool exi_busy_still(struct exi_losses *l);

/* Reads no clock where nothing was found out lately. */
static inline bool exi_busy_is(struct exi_losses *l)
{
	return exi_unlikely(
		       atomic_load_explicit(&l->until, memory_order_relaxed)) &&
	       exi_busy_still(l);
}

/* Others want the CPU: a spin is short there, and does not offer it. */
static inline bool exi_busy_wanted(int cpu)
{
	return exi_busy_is(&exi_busy_of(cpu)->wanted);
}

/* A peer that shares the CPU gets it by our sleep. */
static inline bool exi_busy_dear(int cpu)
{
	return exi_busy_is(&exi_busy_of(cpu)->dear);
}

/* The calling thread was without the CPU until now, for `loss` (ns), while it
 * waited for a peer on another CPU. True: others want it. */
bool exi_busy_lost(int cpu, uint64_t now, uint64_t loss);

/* A spinner offered the CPU to its peer, and got it back now, after `loss`
 * (ns). True: a third party had it meanwhile. */
bool exi_busy_gave(int cpu, uint64_t now, uint64_t loss);

#endif
