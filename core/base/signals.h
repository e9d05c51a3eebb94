/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts of signal handlers that ran in a thread. A call of the library that
 * waits spends longer on shared memory before it sleeps than the kernel does on
 * a socket, and a signal in that time interrupts no system call. So the shim,
 * which runs the handlers, counts them, and a waiting call compares the counts
 * before it sleeps. */
#ifndef EXI_CORE_BASE_SIGNALS_H
#define EXI_CORE_BASE_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_signals {
	unsigned int any;  /* handlers that ran */
	unsigned int hard; /* handlers without SA_RESTART */
};

/* The handlers that ran in this thread, and those that had run when its call
 * began to wait. */
EXI_SHIM extern _Thread_local struct exi_signals exi_signals_now,
	exi_signals_before;

/* The stack pointer when the thread's handler began; null: no handler runs. */
EXI_SHIM extern _Thread_local const char *exi_signals_frame;

#define EXI_SIGNALS_REACH (1u << 20)

/* Whether the caller runs in a handler, which may have interrupted the C
 * library's allocator: it must not allocate. A handler that was left by
 * siglongjmp() has a frame that is not near this stack, or looks like a running
 * one for a while. */
static inline bool exi_signals_within(void)
{
	const char *f = exi_signals_frame;

	return exi_unlikely(f) &&
	       (uintptr_t)f - (uintptr_t)__builtin_frame_address(0) <
		       EXI_SIGNALS_REACH;
}

/* A handler is about to run. */
static inline void exi_signals_count(bool hard)
{
	exi_signals_now.any++;
	exi_signals_now.hard += hard;
}

/* A call begins to wait. */
static inline void exi_signals_begin(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	exi_signals_before = exi_signals_now;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Whether the call, which is about to sleep, is to return -EINTR instead.
 * restarts: handlers with SA_RESTART do not end this call. */
static inline bool exi_signals_came(bool restarts)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return restarts ? exi_signals_now.hard != exi_signals_before.hard
			: exi_signals_now.any != exi_signals_before.any;
}

#endif
