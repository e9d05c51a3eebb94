/* SPDX-License-Identifier: BSD-2-Clause */
/* A small lock that guards what arrives and what is posted. Each look at a
 * device takes one such lock, and each message two, so the overhead of the C
 * library's mutex would be a large part of the cost of both. */
#ifndef EXI_CORE_RMA_LOCK_H
#define EXI_CORE_RMA_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

/* The word is 0: free; 1: held; 2: held, and a thread may sleep on it. A lock
 * of zeroes is free. */
struct exi_rma_lock {
	_Atomic uint32_t word;
};

/* The slow paths, in lock.c: another thread has the lock; a thread may
 * sleep. */
void exi_rma_lock_slow(struct exi_rma_lock *l);
void exi_rma_unlock_slow(struct exi_rma_lock *l);

/* Takes the lock if it is free; returns whether it did. */
static inline bool exi_rma_trylock(struct exi_rma_lock *l)
{
	uint32_t zero = 0;

	return atomic_compare_exchange_strong_explicit(
		&l->word, &zero, 1, memory_order_acquire, memory_order_relaxed);
}

/* Takes the lock. Not recursive. */
static inline void exi_rma_lock(struct exi_rma_lock *l)
{
	if (exi_unlikely(!exi_rma_trylock(l)))
		exi_rma_lock_slow(l);
}

/* Releases the lock. */
static inline void exi_rma_unlock(struct exi_rma_lock *l)
{
	if (exi_unlikely(atomic_exchange_explicit(&l->word, 0,
						  memory_order_release) == 2))
		exi_rma_unlock_slow(l);
}

/* Asserts that some thread holds the lock, like EXI_LOCKED()
 * (core/base/lock.h); not which thread. */
#ifdef EXI_CHECK_LOCKS
#define EXI_RMA_LOCKED(l) assert(atomic_load(&(l)->word))
#else
#define EXI_RMA_LOCKED(l) ((void)(l))
#endif

#endif
