/* SPDX-License-Identifier: BSD-2-Clause */
/* Thread cancellation. A call that holds locks or is in a list must not end at
 * any of the C library's cancellation points. Where the call sleeps it must,
 * and a cleanup handler then undoes its state. So from the process's first
 * pthread_cancel() on, cancellation is off within calls except while they
 * sleep. */
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

/* Turns cancellation off for this thread, if it is on and this process has
 * cancelled a thread. Returns true if exi_cancel_on() is to turn it on again.
 * point: a pending request is acted on first. */
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

/* Undoes an exi_cancel_off() that returned *off. */
static inline void exi_cancel_on(const bool *off)
{
	if (exi_likely(!*off))
		return;
	pthread_setcancelstate(exi_cancel_was, NULL);
	exi_cancel_was = -1;
}

/* Turns cancellation off until the end of the block. point: the call is a
 * cancellation point, so a pending request is acted on first. */
#define EXI_CANCEL_OFF(point)                                                  \
	bool exi_cancel_is_off                                                 \
		__attribute__((cleanup(exi_cancel_on), unused)) =              \
			exi_cancel_off(point)

/* A section of code that a thread may leave in its middle: when the thread is
 * cancelled, or when a signal handler leaves it by longjmp(). Then end(arg)
 * undoes what the thread began. Of the C library's kinds of cleanup handlers,
 * this is the one that runs in both cases. */
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

/* Begins a section: end(arg) runs if the thread leaves it in its middle. r must
 * live until exi_section_end(). */
static inline void exi_section_begin(struct exi_section *r, void (*end)(void *),
				     void *arg)
{
	r->end = end;
	r->arg = arg;
	_pthread_cleanup_push(&r->buffer, exi_section_unwind, r);
}

/* Ends a section. ends: runs end(arg) now. */
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
