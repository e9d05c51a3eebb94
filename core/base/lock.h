/* SPDX-License-Identifier: BSD-2-Clause */
/* A lock in memory that forked processes share, robust against the death of its
 * owner.
 *
 * The word is 0 if the lock is free, else the owner's thread id, plus
 * EXI_LOCK_CONTENDED while a thread sleeps on the word. The lock is held for
 * copies and state changes, never over a sleep. A waiter that sees no progress
 * for a while checks whether the owner is alive, and takes over the lock of a
 * dead one. Thread ids are compared within one pid namespace; only this last
 * step is missing in a family of processes that spans several. */
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

/* A thread's own state. tid: the thread id; 0 before exi_tid_fill() reads it
 * from the kernel. held: the number of locks that it holds or is about to take,
 * plus EXI_HELD_LATE: exi_held_late is to be called when the number becomes
 * 0. */
struct exi_self {
	uint32_t tid;
	uint32_t held;
};

#define EXI_HELD_LATE 0x80000000u

EXI_SHIM extern _Thread_local struct exi_self exi_self;
EXI_SHIM uint32_t exi_tid_fill(void);

/* The calling thread's id, as in the word of a lock that it owns. */
static inline uint32_t exi_tid(void)
{
	return exi_self.tid ? exi_self.tid : exi_tid_fill();
}

/* --- handlers ----------------------------------------------------------- */

/* A signal handler that runs while its thread holds a lock, and calls the
 * library, would wait for its own thread. So the shim, which runs the program's
 * handlers, looks at `held`, which is raised before a lock is taken and lowered
 * after it is released. Signals that arrive meanwhile are deferred until the
 * thread releases its last lock. All of this is in one thread: a signal comes
 * between two instructions, and `held` is changed by single instructions, so
 * that the handler's own change is not lost. */
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

/* Called by a handler: requests a call of exi_held_late, or withdraws the
 * request after the call. */
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

/* The slow paths of exi_lock(), if another thread has the lock, and of
 * exi_unlock(), if a thread may sleep on it. */
EXI_SHIM void exi_lock_slow(struct exi_lock *l);
EXI_SHIM void exi_unlock_slow(struct exi_lock *l);

/* Takes the lock if it is free; returns true then. */
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

/* Takes the lock, if need be from an owner that died. Not recursive. */
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
/* EXI_LOCKED_ONE() is for functions for which one of several locks is enough;
 * held: whether one is held. */
#define EXI_LOCKED_ONE(held) assert(held)
/* EXI_MUTEX_LOCKED() is for a pthread_mutex_t, which does not store its
 * owner. */
#define EXI_MUTEX_LOCKED(m) assert(pthread_mutex_trylock(m) == EBUSY)
#else
#define EXI_LOCKED(l)	     ((void)(l))
#define EXI_LOCKED_ONE(held) ((void)0)
#define EXI_MUTEX_LOCKED(m)  ((void)(m))
#endif

#endif
