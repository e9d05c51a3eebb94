/* SPDX-License-Identifier: BSD-2-Clause */
/* CPUs that other threads want. A thread notices that when it loses its CPU
 * while it spins, or when it offers the CPU (sched_yield(2)) and gets it back
 * late.
 *
 * On such a CPU a spin must be cheap. An offer costs whole time slices of the
 * other threads, milliseconds each. A long spin uses up the thread's share: the
 * scheduler lets a thread that has used less than its share preempt others when
 * it wakes, and makes a thread that has used its share wait. So spins there are
 * short, and do not offer the CPU. */
#ifndef EXI_CORE_BASE_BUSY_H
#define EXI_CORE_BASE_BUSY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

/* Losses are judged by their mean (ns) over the last few, at most twice as
 * many.
 *
 * A thread that waits for a peer on another CPU counts the losses in which
 * another thread ran: threads that wait for each other sleep again after some
 * microseconds, while a thread that computes keeps the CPU for its time slice.
 * One such slice is enough.
 *
 * A thread that waits for a peer on the same CPU counts all its offers: usually
 * the peer runs, which costs less than a sleep and a wake-up. Several pairs
 * that never sleep take time slices from each other now and then, which is no
 * reason to sleep; so the first slice is not enough. */
#define EXI_BUSY_RAN	    5000u /* shorter: no other thread ran */
#define EXI_BUSY_WANTED	    1000000u
#define EXI_BUSY_WANTED_OF  8u
#define EXI_BUSY_DEAR	    500000u
#define EXI_BUSY_DEAR_OF    64u
#define EXI_BUSY_DEAR_FIRST 8u	    /* offers assumed to be free */
#define EXI_BUSY_DEAR_LEAST 150000u /* a third party had it */
/* A finding holds for EXI_BUSY_TIMES times the loss, so that checking it again
 * costs a fiftieth of the time. Each time it is confirmed, it holds twice as
 * long, so that lasting neighbours cost less and less; at most EXI_BUSY_MAX
 * ns. */
#define EXI_BUSY_TIMES 50u
#define EXI_BUSY_MAX   1000000000u
/* The longest spin (ns) on a CPU that others want: about the CPU time of a
 * sleep and its wake-up. */
#define EXI_BUSY_SPIN 10000u

#define EXI_BUSY_CPUS 64 /* a power of two; entries may be shared */
/* Hints: the last writer wins. */
struct exi_losses {
	_Atomic uint64_t until; /* ns: losses are too high; 0: they are not */
	_Atomic uint64_t ended; /* the last value of `until`; 0: none */
	_Atomic uint64_t held;	/* for how long */
	_Atomic uint64_t lost;	/* ns, of so many: */
	_Atomic uint32_t n;
};
struct exi_busy {
	struct exi_losses wanted, dear;
};
extern struct exi_busy exi_busy_cpus[EXI_BUSY_CPUS];

/* The findings about a CPU; where there are very many CPUs, several share an
 * entry. */
static inline struct exi_busy *exi_busy_of(int cpu)
{
	return &exi_busy_cpus[(unsigned int)cpu % EXI_BUSY_CPUS];
}

/* Whether the finding still holds; clears it otherwise. */
bool exi_busy_still(struct exi_losses *l);

/* Reads the clock only if there was a finding lately. */
static inline bool exi_busy_is(struct exi_losses *l)
{
	return exi_unlikely(
		       atomic_load_explicit(&l->until, memory_order_relaxed)) &&
	       exi_busy_still(l);
}

/* Whether other threads want the CPU: a spin there is short, and does not offer
 * it. */
static inline bool exi_busy_wanted(int cpu)
{
	return exi_busy_is(&exi_busy_of(cpu)->wanted);
}

/* Whether a peer that shares the CPU gets it when this thread sleeps, not by an
 * offer. */
static inline bool exi_busy_dear(int cpu)
{
	return exi_busy_is(&exi_busy_of(cpu)->dear);
}

/* The calling thread lost the CPU for `loss` ns until now, while it waited for
 * a peer on another CPU. Returns true if other threads want the CPU. */
bool exi_busy_lost(int cpu, uint64_t now, uint64_t loss);

/* A spinning thread offered the CPU to its peer, and got it back now, after
 * `loss` ns. Returns true if a third thread had it meanwhile. */
bool exi_busy_gave(int cpu, uint64_t now, uint64_t loss);

#endif
