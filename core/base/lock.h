/* SPDX-License-Identifier: BSD-2-Clause */
/* A lock in memory that forked processes share, robust against a dead owner.
 *
 * The word is 0, or the owner's thread id, plus EXI_LOCK_CONTENDED when
 * somebody sleeps on it. It is held for copies and state changes, never over a
 * sleep. A waiter that sees no progress for a while looks whether the owner
 * still lives, and takes the lock over if not. Thread ids are compared within
 * one pid namespace; a family that spans several only loses that last step. */
#ifndef EXI_CORE_BASE_LOCK_H
#define EXI_CORE_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

#define EXI_LOCK_CONTENDED 0x80000000u
#define EXI_LOCK_SLEEP_NS  2000000 /* until a waiter looks again */

struct exi_lock {
	_Atomic uint32_t word;
};

/* The calling thread's id; 0 before exi_tid_fill(), which reads it from the
 * kernel. */
EXI_SHIM extern _Thread_local uint32_t exi_tid_cache;
EXI_SHIM uint32_t exi_tid_fill(void);

/* The calling thread's id, which the owner of a lock is known by. */
static inline uint32_t exi_tid(void)
{
	return exi_tid_cache ? exi_tid_cache : exi_tid_fill();
}

/* The slow paths of exi_lock() and exi_unlock(): another thread has the lock; a
 * thread may sleep on it. */
EXI_SHIM void exi_lock_slow(struct exi_lock *l);
EXI_SHIM void exi_unlock_slow(struct exi_lock *l);

/* Takes the lock if it is free; whether it did. */
static inline bool exi_trylock(struct exi_lock *l)
{
	uint32_t zero = 0;

	return atomic_compare_exchange_strong_explicit(
		&l->word, &zero, exi_tid(), memory_order_acquire,
		memory_order_relaxed);
}

/* Takes the lock, over from an owner that died if need be. Not recursive. */
static inline void exi_lock(struct exi_lock *l)
{
	if (!exi_trylock(l))
		exi_lock_slow(l);
}

/* Unlocks without a read-modify-write, which costs more than what most locks
 * guard. A waiter that marks the word between the load and the store is not
 * woken; it finds the word free when it goes to sleep, or, if the owner lost
 * its CPU just there, when its sleep of EXI_LOCK_SLEEP_NS ends. */
static inline void exi_unlock(struct exi_lock *l)
{
	if (exi_unlikely(atomic_load_explicit(&l->word, memory_order_relaxed) &
			 EXI_LOCK_CONTENDED))
		exi_unlock_slow(l);
	else
		atomic_store_explicit(&l->word, 0, memory_order_release);
}

/* Whether the calling thread holds the lock. */
static inline bool exi_lock_held(const struct exi_lock *l)
{
	return (atomic_load_explicit(&l->word, memory_order_relaxed) &
		~EXI_LOCK_CONTENDED) == exi_tid();
}

/* EXI_LOCKED() asserts the lock that a function whose name ends in _locked
 * needs, in debug builds and those with a sanitizer: a round trip passes a
 * dozen of them. */
#ifdef EXI_CHECK_LOCKS
#define EXI_LOCKED(l) assert(exi_lock_held(l))
/* EXI_LOCKED_ONE() is for where one of several locks will do: held says that
 * one is held. */
#define EXI_LOCKED_ONE(held) assert(held)
/* EXI_MUTEX_LOCKED() is for a pthread_mutex_t, which does not say which thread
 * holds it. */
#define EXI_MUTEX_LOCKED(m) assert(pthread_mutex_trylock(m) == EBUSY)
#else
#define EXI_LOCKED(l)	     ((void)(l))
#define EXI_LOCKED_ONE(held) ((void)0)
#define EXI_MUTEX_LOCKED(m)  ((void)(m))
#endif

#endif
