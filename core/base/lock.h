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

/* What a thread knows of itself. tid: 0 before exi_tid_fill(), which reads it
 * from the kernel. held: how many locks it holds, or is about to; plus
 * EXI_HELD_LATE: exi_held_late is to be called when it holds none. */
struct exi_self {
	uint32_t tid;
	uint32_t held;
};

#define EXI_HELD_LATE 0x80000000u

EXI_SHIM extern _Thread_local struct exi_self exi_self;
EXI_SHIM uint32_t exi_tid_fill(void);

/* The calling thread's id, which the owner of a lock is known by. */
static inline uint32_t exi_tid(void)
{
	return exi_self.tid ? exi_self.tid : exi_tid_fill();
}

/* --- handlers ----------------------------------------------------------- */

/* A signal handler that runs while its thread holds a lock, and calls the
 * library, would wait for itself. So whoever runs handlers (the shim) looks at
 * `held`, which is raised before a lock is taken and lowered after it was let
 * go, puts off what comes meanwhile, and is called back where the last lock is
 * let go. All is in one thread: a signal comes between two instructions, and a
 * change of `held` is one, or the handler's own change of it would be lost. */
EXI_SHIM extern void (*_Atomic exi_held_late)(void);
EXI_SHIM void exi_held_end_slow(void);

static inline void exi_held_begin(void)
{
#ifdef __x86_64__
	__asm__ __volatile__("addl $1, %0" : "+m"(exi_self.held) : : "memory");
#else
	__atomic_fetch_add(&exi_self.held, 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void exi_held_end(void)
{
	bool late;

#ifdef EXI_CHECK_LOCKS
	assert(exi_self.held & ~EXI_HELD_LATE);
#endif
#ifdef __x86_64__
	__asm__ __volatile__("subl $1, %0"
			     : "+m"(exi_self.held), "=@ccs"(late)
			     :
			     : "memory");
#else
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	late = __atomic_fetch_sub(&exi_self.held, 1, __ATOMIC_RELAXED) &
	       EXI_HELD_LATE;
#endif
	if (exi_unlikely(late))
		exi_held_end_slow();
}

/* For a handler: exi_held_late is to be called. And that it was. */
static inline void exi_held_mark(void)
{
	__atomic_fetch_or(&exi_self.held, EXI_HELD_LATE, __ATOMIC_RELAXED);
}

static inline void exi_held_unmark(void)
{
	__atomic_fetch_and(&exi_self.held, ~EXI_HELD_LATE, __ATOMIC_RELAXED);
}

/* How many locks the calling thread holds. */
static inline uint32_t exi_held(void)
{
	return exi_self.held & ~EXI_HELD_LATE;
}

/* --- locks -------------------------------------------------------------- */

/* The slow paths of exi_lock() and exi_unlock(): another thread has the lock; a
 * thread may sleep on it. */
EXI_SHIM void exi_lock_slow(struct exi_lock *l);
EXI_SHIM void exi_unlock_slow(struct exi_lock *l);

/* Takes the lock if it is free; whether it did. */
static inline bool exi_trylock(struct exi_lock *l)
{
	uint32_t zero = 0;

	exi_held_begin();
	if (exi_likely(atomic_compare_exchange_strong_explicit(
		    &l->word, &zero, exi_tid(), memory_order_acquire,
		    memory_order_relaxed)))
		return true;
	exi_held_end();
	return false;
}

/* Takes the lock, over from an owner that died if need be. Not recursive. */
static inline void exi_lock(struct exi_lock *l)
{
	uint32_t zero = 0;

	exi_held_begin();
	if (!atomic_compare_exchange_strong_explicit(&l->word, &zero, exi_tid(),
						     memory_order_acquire,
						     memory_order_relaxed))
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
	exi_held_end();
}

/* The same for locks of the C library, which are not held over a sleep
 * either. */
static inline void exi_mutex_lock(pthread_mutex_t *m)
{
	exi_held_begin();
	pthread_mutex_lock(m);
}

static inline bool exi_mutex_trylock(pthread_mutex_t *m)
{
	exi_held_begin();
	if (pthread_mutex_trylock(m) == 0)
		return true;
	exi_held_end();
	return false;
}

static inline void exi_mutex_unlock(pthread_mutex_t *m)
{
	pthread_mutex_unlock(m);
	exi_held_end();
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
