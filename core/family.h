/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that share a connection by fork. The one that met the peer's
 * library, the keeper, has the fabric mapped, and its service watches the link;
 * one that was forked off before has neither. When such a process uses the
 * descriptor it asks the keeper, who takes the connection back to TCP, where
 * it stays. */
#ifndef EXI_CORE_FAMILY_H
#define EXI_CORE_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sock.h"

/* This process met the peer for a connection that others share: from now on it
 * can be asked. Link and half locks may be held. */
void exi_family_keep(struct exi_sock *sk);

/* Whether the fabric is in use, and not mapped here: one look without locks,
 * and what it takes for granted is looked at again with them. Between its two
 * loads this process itself may have met the peer. No lock held. */
bool exi_family_confirmed(struct exi_sock *sk);
static inline bool exi_family_elsewhere(struct exi_sock *sk)
{
	const struct exi_shared *sh = sk->sh;

	return !__atomic_load_n(&sk->fab, __ATOMIC_RELAXED) &&
	       (atomic_load_explicit(&sh->half[EXI_RX].mode,
				     memory_order_relaxed) |
		atomic_load_explicit(&sh->half[EXI_TX].mode,
				     memory_order_relaxed)) != EXI_MODE_TCP &&
	       exi_family_confirmed(sk);
}

/* Has the keeper take the connection back to TCP, and waits for it. 0;
 * -ECONNRESET when the keeper is no more, or does not answer in ten seconds:
 * what it had is lost. No lock held. */
int exi_family_ask(struct exi_sock *sk);

/* Somebody asks: for the service thread. */
void exi_family_event(void);

void exi_family_forked(void);

#endif
