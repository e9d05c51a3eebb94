/* SPDX-License-Identifier: BSD-2-Clause */
/* Waking whoever waits for a socket. */
#ifndef EXI_CORE_SOCK_WAKE_H
#define EXI_CORE_SOCK_WAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

/* A child may be forked that uses a fabric of this process: what tells all of them
 * is made while there are descriptors. Link locks may be held. */
void exi_family_expect(void);
/* What waits for the connection in other processes looks again. Any locks of its
 * may be held. */
void exi_family_tell_all(struct exi_sock *sk);
static inline void exi_family_tell(struct exi_sock *sk)
{
	if (exi_unlikely(atomic_load_explicit(&exi_sock_shared(sk)->several,
					      memory_order_relaxed)))
		exi_family_tell_all(sk);
}

/* Resets the connection and hangs up, or bytes would be missing; says why. One of the
 * socket's locks is held, any of them: without one another thread may close it
 * meanwhile, and the number, and the place, be another connection's. */
EXI_SHIM void exi_link_reset(struct exi_sock *sk, int reason, const char *what);
/* The same, because the peer broke the protocol. */
void exi_link_violation(struct exi_sock *sk, const char *what);

/* Onto the list, and off it; the direction's lock is held. The socket is kept
 * meanwhile. */
EXI_SHIM void exi_sock_wait(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_waiter *w);
EXI_SHIM void exi_sock_unwait(struct exi_sock *sk, enum exi_dir dir,
			      struct exi_waiter *w);

/* Of what a process that ends has ended, another thread of it is not told. */
void exi_sock_outlive(void);

/* Changes of state: wakes every sleeper of the direction, in any process. */
void exi_sock_kick(struct exi_sock *sk, enum exi_dir dir);

/* The peer rang: wakes the waiters of the direction, and not who sleeps on
 * words. */
EXI_SHIM void exi_sock_ring(struct exi_sock *sk, enum exi_dir dir);

/* The same with the direction's lock held. */
void exi_sock_kick_locked(struct exi_sock *sk, enum exi_dir dir);

/* Resets the connection and leaves its descriptor open. False: plain calls
 * closed it, and the number is another's. */
bool exi_wake_disconnect(struct exi_sock *sk);

#endif
