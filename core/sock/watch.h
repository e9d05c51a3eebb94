/* SPDX-License-Identifier: BSD-2-Clause */
/* When the watch for unseen waits is due. */
#ifndef EXI_CORE_SOCK_WATCH_H
#define EXI_CORE_SOCK_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_sock;

/* True: the watch runs, or never will. */
extern _Atomic bool exi_unseen_watching;
void exi_unseen_watch(void);

/* A direction is now received from a fabric, or a wait for it ended. */
static inline void exi_unseen_restart(void)
{
	if (exi_unlikely(!atomic_load_explicit(&exi_unseen_watching,
					       memory_order_relaxed)))
		exi_unseen_watch();
}

/* The peer rang the doorbell. */
void exi_unseen_bell(struct exi_sock *sk);

/* When the service calls exi_unseen_tick() next (ns); UINT64_MAX: never. */
uint64_t exi_unseen_due(void);

/* The time between two looks of the watch. */
#define EXI_WATCH_TICK_NS 100000000u

/* When the next tick is due (CLOCK_MONOTONIC ns); UINT64_MAX: never. */
extern _Atomic uint64_t exi_watch_due;

#endif
