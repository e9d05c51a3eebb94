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

/* A child may be forked that uses a fabric of this process: makes the
 * descriptor by which all of them are told, while there are descriptors. Link
 * locks may be held. */
void exi_family_expect(void);
/* Makes other processes that wait for the connection look again. Any locks of
 * the socket may be held. */
void exi_family_tell_all(struct exi_sock *sk);
static inline void exi_family_tell(struct exi_sock *sk)
{
	if (exi_unlikely(atomic_load_explicit(&exi_sock_shared(sk)->several,
					      memory_order_relaxed)))
		exi_family_tell_all(sk);
}

/* Resets the connection and hangs up, where bytes would be missing otherwise,
 * and says why. One of the socket's locks is held, any of them: without one
 * another thread may close it meanwhile, and the number, and the place, be
 * another connection's. */
EXI_SHIM void exi_link_reset(struct exi_sock *sk, int reason, const char *what);
/* exi_link_reset() because the peer broke the protocol. */
void exi_link_violation(struct exi_sock *sk, const char *what);

/* Puts a waiter onto the list, and takes it off; the direction's lock is held.
 * The socket is kept meanwhile. */
EXI_SHIM void exi_sock_wait_locked(struct exi_sock *sk, enum exi_dir dir,
				   struct exi_waiter *w);
EXI_SHIM void exi_sock_unwait_locked(struct exi_sock *sk, enum exi_dir dir,
				     struct exi_waiter *w);
/* exi_sock_wait_locked() for a waiter by which nobody was seen to wait yet: it
 * is idle until the caller clears that, with the direction's lock held. */
EXI_SHIM void exi_sock_idle_locked(struct exi_sock *sk, enum exi_dir dir,
				   struct exi_waiter *w);
/* How many idle waiters the direction has, of which each is among its lookers,
 * too; its lock is held. */
uint32_t exi_sock_idlers_locked(const struct exi_sock *sk, enum exi_dir dir);

/* Keeps a thread from being told of what the process has ended, where the
 * process ends: the thread sleeps for ever. */
void exi_sock_outlive(void);

/* Changes of state: wakes every sleeper of the direction, in any process. */
void exi_sock_wake_all(struct exi_sock *sk, enum exi_dir dir);

/* The peer's doorbell was heard: wakes the waiters of the direction, and not
 * threads that sleep on words. */
EXI_SHIM void exi_sock_wake_waiters(struct exi_sock *sk, enum exi_dir dir);

/* exi_sock_wake_all() with the direction's lock held. */
void exi_sock_wake_all_locked(struct exi_sock *sk, enum exi_dir dir);

/* Resets the connection and leaves its descriptor open. False: plain calls
 * closed it, and the number is another's. */
bool exi_wake_disconnect(struct exi_sock *sk);

#endif
