/* SPDX-License-Identifier: BSD-2-Clause */
/* Waking the threads and processes that wait for a socket. */
#ifndef EXI_CORE_SOCK_WAKE_H
#define EXI_CORE_SOCK_WAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

/* A child may be forked that uses a fabric of this process: makes the
 * descriptor that notifies all of them, while there are descriptors. Link locks
 * may be held. */
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

/* Resets the connection and hangs up, where bytes would otherwise be missing,
 * and logs why. Any one of the socket's locks is held: without one, another
 * thread may close the socket meanwhile, and its number and place be another
 * connection's. */
EXI_SHIM void exi_link_reset(struct exi_sock *sk, int reason, const char *what);
/* exi_link_reset() because the peer violated the protocol. */
void exi_link_violation(struct exi_sock *sk, const char *what);

/* Puts a waiter onto the list, and takes it off; the direction's lock is held.
 * The socket is kept meanwhile. */
EXI_SHIM void exi_sock_wait_locked(struct exi_sock *sk, enum exi_dir dir,
				   struct exi_waiter *w);
EXI_SHIM void exi_sock_unwait_locked(struct exi_sock *sk, enum exi_dir dir,
				     struct exi_waiter *w);
/* exi_sock_wait_locked() for a waiter by which no thread was seen to wait yet:
 * it is idle until the caller clears that, with the direction's lock held. */
EXI_SHIM void exi_sock_idle_locked(struct exi_sock *sk, enum exi_dir dir,
				   struct exi_waiter *w);
/* The number of the direction's idle waiters, each of which also counts as a
 * looker; its lock is held. */
uint32_t exi_sock_idlers_locked(const struct exi_sock *sk, enum exi_dir dir);

/* Keeps a thread from seeing what the process has ended while it exits: the
 * thread sleeps for ever. */
void exi_sock_outlive(void);

/* The state has changed: wakes every sleeper of the direction, in any
 * process. */
void exi_sock_wake_all(struct exi_sock *sk, enum exi_dir dir);

/* The peer rang the doorbell: wakes the waiters of the direction, but not
 * threads that sleep on words. */
EXI_SHIM void exi_sock_wake_waiters(struct exi_sock *sk, enum exi_dir dir);

/* exi_sock_wake_all() with the direction's lock held. */
void exi_sock_wake_all_locked(struct exi_sock *sk, enum exi_dir dir);

/* Resets the connection and leaves its descriptor open. False: plain calls
 * closed it, and the number is another's. */
bool exi_wake_disconnect(struct exi_sock *sk);

#endif
