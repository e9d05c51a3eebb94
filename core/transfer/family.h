/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that share a connection by fork. The keeper is the process that met
 * the peer's library: it has the fabric mapped, and its service watches the
 * link. A process that was forked off before has neither. When such a process
 * uses the descriptor, it asks the keeper to take the connection back to TCP,
 * where it stays.
 *
 * A process that was forked off afterwards has both. Then only one of these
 * processes hears each message of the link, and so each bell of the peer, while
 * the thread that waits may be another process's, asleep in poll(2), which no
 * word in memory wakes. So the process that hears a bell, or changes the state,
 * notifies the others through an eventfd that all of them inherited and none
 * reads: each write is an edge for every process's service, which wakes the
 * threads that wait there. */
#ifndef EXI_CORE_TRANSFER_FAMILY_H
#define EXI_CORE_TRANSFER_FAMILY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/fabric/provider.h"
#include "core/sock/table.h"

/* This process met the peer for a connection that others share: from now on it
 * can be asked. Link and half locks may be held. */
void exi_family_keep(struct exi_sock *sk);

/* Whether the fabric is in use, and not mapped here: one look without locks,
 * which is then confirmed with them, since this process itself may have met the
 * peer between the two loads. No lock held. */
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
 * -ECONNRESET: the keeper is gone, or not done at the deadline because it or
 * its peer is silent; what it had is lost. No lock held. */
int exi_family_ask_until(struct exi_sock *sk, uint64_t deadline_ns);
/* exi_family_ask_until() for a call that waits for this connection alone. */
int exi_family_ask(struct exi_sock *sk);
/* The request to the keeper alone, without a wait. -ECONNRESET: there is no
 * keeper. */
int exi_family_request(struct exi_sock *sk);

/* The service thread calls this when a process of the family asks. */
void exi_family_event(void);

/* The child after fork: forgets the keeper's descriptor of the parent. */
void exi_family_forked(void);

#endif
