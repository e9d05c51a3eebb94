/* SPDX-License-Identifier: BSD-2-Clause */
/* Cancelling threads. A call that holds locks or is in somebody's list must not
 * end at any of the C library's cancellation points; where it sleeps it must,
 * and a cleanup handler sets right what it leaves. So from the first
 * pthread_cancel() of the process on, cancellation is off within calls but for
 * their sleeps. */
#ifndef EXI_CORE_BASE_CANCEL_H
#define EXI_CORE_BASE_CANCEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/util.h"

/* Set once a thread of this process has been cancelled. */
EXI_SHIM extern _Atomic bool exi_cancels;
/* The calling thread's state before its call turned cancellation off; -1: not
 * turned off. */
EXI_SHIM extern _Thread_local int exi_cancel_was;

/* Turns cancellation off for this thread, if anybody cancels threads here and
 * it is on. True: exi_cancel_on() is to turn it on. point: a pending request
 * acts first. */
static inline bool exi_cancel_off(bool point)
{
	if (exi_likely(!atomic_load_explicit(&exi_cancels,
					     memory_order_relaxed)) ||
	    exi_cancel_was >= 0)
		return false;
	if (point)
		pthread_testcancel();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &exi_cancel_was);
	return true;
}

/* Undoes exi_cancel_off(), which returned *off. */
static inline void exi_cancel_on(const bool *off)
{
	if (exi_likely(!*off))
		return;
	pthread_setcancelstate(exi_cancel_was, NULL);
	exi_cancel_was = -1;
}

/* Turns cancellation off to the end of the block. Where the call is a
 * cancellation point, a request that is pending acts before it. */
#define EXI_CANCEL_OFF(point)                                                  \
	bool exi_cancel_is_off                                                 \
		__attribute__((cleanup(exi_cancel_on), unused)) =              \
			exi_cancel_off(point)

/* A section that a thread may leave in its middle: when the thread is
 * cancelled, and when a signal handler jumps out of it with longjmp(). Then
 * end(arg) sets right what the thread leaves. Of the kinds of handlers that the
 * C library has, this is the one that it runs for both. */
struct exi_section {
	struct _pthread_cleanup_buffer buffer;
	void (*end)(void *);
	void *arg;
};

extern void _pthread_cleanup_push(struct _pthread_cleanup_buffer *buffer,
				  void (*routine)(void *), void *arg);
extern void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *buffer,
				 int run);
EXI_SHIM void exi_section_unwind(void *arg);

/* Begins what may be left in its middle: end(arg) runs then. r lives until
 * exi_section_end(). */
static inline void exi_section_begin(struct exi_section *r, void (*end)(void *),
				     void *arg)
{
	r->end = end;
	r->arg = arg;
	_pthread_cleanup_push(&r->buffer, exi_section_unwind, r);
}

/* Ends what exi_section_begin() began; ends: end(arg) runs now, too. */
static inline void exi_section_end(struct exi_section *r, bool ends)
{
	_pthread_cleanup_pop(&r->buffer, 0);
	if (ends)
		r->end(r->arg);
}

/* Turns cancellation on around a sleep within a call. */
static inline void exi_cancel_allow(void)
{
	if (exi_unlikely(exi_cancel_was == PTHREAD_CANCEL_ENABLE))
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

/* Ends exi_cancel_allow(). */
static inline void exi_cancel_forbid(void)
{
	if (exi_unlikely(exi_cancel_was == PTHREAD_CANCEL_ENABLE))
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

#endif
