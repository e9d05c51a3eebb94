/* SPDX-License-Identifier: BSD-2-Clause */
/* The wait of a synchronous call: lock, attempt, look, sleep, repeat. "Locked":
 * the direction's lock is held. */
#ifndef EXI_CORE_CALL_PATIENCE_H
#define EXI_CORE_CALL_PATIENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/config.h"
#include "core/base/list.h"
#include "core/base/util.h"
#include "core/call/wait.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

/* Whether the call may not wait. */
bool exi_flow_nonblocking(struct exi_sock *sk, int fd, int flags);
/* The time at which SO_RCVTIMEO or SO_SNDTIMEO ends a wait; 0: never. */
uint64_t exi_flow_deadline(struct exi_sock *sk, int fd, enum exi_dir dir);

/* The loop of a synchronous call: exi_call_lock(), an attempt, and if that
 * returned -EAGAIN, exi_call_pause_locked(), unlock and exi_call_wait().
 * exi_call_wait() returns 0 to try again, beginning with exi_call_lock(), else
 * the result of the call. seen: the number of bytes that are there and are not
 * enough. */
void exi_call_pause_locked(struct exi_call *c);
int exi_call_wait(struct exi_call *c, size_t seen);

/* Sends SIGPIPE, unless quiet, before a call returns -EPIPE. */
void exi_flow_broken(bool quiet);

/* Takes TCP's pending error, which TCP returns once; 0: none. */
EXI_SHIM int exi_flow_error(int fd);
/* Whether TCP has a pending error that the next attempt would take: a call that
 * has moved bytes must end before that. */
EXI_SHIM bool exi_flow_error_waits(int fd, enum exi_dir dir);

/* Whether a call may wait, by its flags and the descriptor's mode as last seen:
 * a hint, without a system call, that decides on a spin. exi_flow_nonblocking()
 * decides on a sleep. */
static inline bool exi_patience_may_wait(const struct exi_sock *sk, int flags)
{
	return !(flags & MSG_DONTWAIT) &&
	       atomic_load_explicit(&sk->blocks, memory_order_relaxed);
}

/* Moves a buffer by a call that waits for its turn behind queued operations.
 * Returns bytes or -errno. No lock is held. */
ssize_t exi_patience_in_turn(int fd, int type, void *buf, size_t len,
			     int flags);

/* Keeps an error that came after bytes had moved, for the next call, because
 * the kernel returns it only once. No lock is held. */
void exi_patience_keep_error(struct exi_call *c, int err);

/* The fast path: locks the direction and returns its state, if the connection
 * is a stream on a fabric and nothing must be checked or must go first. Null:
 * take the long way. */
static inline struct exi_shared *exi_enter_ring(struct exi_sock *sk, int fd,
						enum exi_dir dir, size_t len)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *h = &sh->half[dir];
	const struct exi_conn *fab;

	/* A hint without the lock, which spares other calls a second
	 * locking. */
	if (atomic_load_explicit(&h->mode, memory_order_relaxed) !=
	    EXI_MODE_RING)
		return NULL;
	/* As in exi_sock_lock(): whether sk is still fd's is checked below. */
	exi_lock(&h->lock);
	fab = __atomic_load_n(&sk->fab,
			      __ATOMIC_RELAXED); /* perhaps not of fd */
	if (exi_likely(
		    exi_half_rings_locked(h) && fab && exi_sock_is(sk, fd) &&
		    exi_sock_shared(sk) == sh &&
		    exi_list_empty(&sk->ops[dir]) && !sk->framed &&
		    atomic_load_explicit(&h->meet_at, memory_order_relaxed) ==
			    UINT64_MAX &&
		    !(dir == EXI_TX && fab->pops &&
		      len >= exi_config()->zcopy_threshold)))
		return sh;
	exi_half_unlock(h);
	return NULL;
}

#endif
