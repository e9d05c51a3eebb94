/* SPDX-License-Identifier: BSD-2-Clause */
/* Cancelling threads. A call that holds locks or is in somebody's list must not
 * end at any of the C library's cancellation points; where it sleeps it must,
 * and a cleanup handler sets right what it leaves. So from the first
 * pthread_cancel() of the process on, cancellation is off within calls but for
 * their sleeps. */
#ifndef EXI_CORE_CANCEL_H
#define EXI_CORE_CANCEL_H

#include <pthread.h>
#include <stdbool.h>

#include "core/util.h"

/* Somebody cancels threads in this process. */
EXI_SHIM extern _Atomic bool exi_cancels;
/* Of a thread within a call: what it was before; -1: not turned off. */
EXI_SHIM extern _Thread_local int exi_cancel_was;

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

static inline void exi_cancel_on(const bool *off)
{
	if (exi_likely(!*off))
		return;
	pthread_setcancelstate(exi_cancel_was, NULL);
	exi_cancel_was = -1;
}

/* To the end of the block. Where the call is a cancellation point, a request
 * that is pending acts before it. */
#define EXI_CANCEL_OFF(point)                                                  \
	bool exi_cancel_is_off                                                 \
		__attribute__((cleanup(exi_cancel_on), unused)) =              \
			exi_cancel_off(point)

/* Around a sleep within a call, its cleanup handler pushed. */
static inline void exi_cancel_rest(void)
{
	if (exi_unlikely(exi_cancel_was == PTHREAD_CANCEL_ENABLE))
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

static inline void exi_cancel_rested(void)
{
	if (exi_unlikely(exi_cancel_was == PTHREAD_CANCEL_ENABLE))
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

#endif
