/* SPDX-License-Identifier: BSD-2-Clause */
/* Switching the directions of a connection between TCP and a fabric: section 3
 * of docs/design/wire-shm.md. */
#ifndef EXI_CORE_TRANSFER_SWITCH_H
#define EXI_CORE_TRANSFER_SWITCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sock/table.h"

/* Whether this end may switch its sending direction now. A hint without
 * locks. */
static inline bool exi_switch_wanted(struct exi_shared *sh)
{
	return atomic_load_explicit(&sh->may_switch, memory_order_relaxed) &&
	       !atomic_load_explicit(&sh->hold_here, memory_order_relaxed) &&
	       !atomic_load_explicit(&sh->hold_there, memory_order_relaxed);
}

/* Receiver: whether the peer, on this host, may have sent a SWITCH that has not
 * been read: then the bytes that it sent since are in the ring, while this end
 * looks for them on TCP. A hint without locks; a thread that reads the link
 * (exi_link_hear()) and looks again misses nothing that was sent before. */
static inline bool exi_switch_may_come(const struct exi_sock *sk)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	uint32_t mode = atomic_load_explicit(&sh->half[EXI_RX].mode,
					     memory_order_relaxed);

	return (mode == EXI_MODE_TCP || mode == EXI_MODE_BACK) &&
	       exi_sock_met(sk) && !exi_sock_remote(sk) &&
	       (!atomic_load_explicit(&sh->hold_here, memory_order_relaxed) ||
		atomic_load_explicit(&sh->down_wait, memory_order_relaxed));
}

/* For calls that move bytes, when a connection that has met passed the mark
 * that was set while GO could not be sent: it stays on TCP while it is in an
 * epoll set for which no thread was seen to wait. No lock held. */
void exi_switch_unawaited(struct exi_sock *sk, int fd);

/* The obstacle to GO may be gone: the connection may move again if it stays on
 * TCP only for epoll sets for which no thread was seen to wait, and is in no
 * such set any more. No lock of a half is held. */
void exi_switch_awaited(struct exi_sock *sk);

/* The directions may be switched again, unless they are held for another cause
 * than `held`; TX lock held. */
void exi_switch_allow_locked(struct exi_sock *sk, enum exi_hold held);

/* Sender, TX lock held: onto the fabric. 0, or why not yet. */
int exi_switch_up_locked(struct exi_sock *sk);

/* The receiver's part of a SWITCH from the peer; RX lock held. -EPROTO. */
int exi_switch_arrived_locked(struct exi_sock *sk, uint64_t epoch,
			      uint64_t offset, uint64_t head);

/* Receiver, RX lock held: gives the direction back (TAKEBACK). */
void exi_switch_giveback_locked(struct exi_sock *sk);

/* Receiver, RX lock held: the direction goes back, and both stay on TCP. The
 * service does the rest. 0, -errno. */
int exi_switch_refuse_locked(struct exi_sock *sk, int reason);

/* Sender, TX lock held: the peer gave the direction back. -EPROTO. */
int exi_switch_takeback_locked(struct exi_sock *sk, uint64_t epoch,
			       uint64_t pos, uint64_t used);

/* Sender, TX lock held: the bytes that the fabric has ready for drain go to
 * TCP, with the next send, or by the service thread. */
void exi_switch_drain_locked(struct exi_sock *sk);

/* Receiver in EXI_MODE_LEFT, RX lock held: n bytes of TCP were read; recomputes
 * how many are left. The thread that reads the last of them wakes all waiters:
 * they asked the kernel, and the next bytes are in the ring. */
void exi_switch_read_locked(struct exi_sock *sk, size_t n);
void exi_switch_recount_locked(struct exi_sock *sk);

/* The bytes of the ring's rest that came over TCP, of a direction that was
 * given back and whose TCP is at its end. *ret < 0: bytes from before the ring
 * are missing. -errno. */
int exi_switch_came_locked(struct exi_sock *sk, int64_t *ret);

/* Begins to move both directions to TCP; the service does the rest. reason may
 * include EXI_UNTIL_SEEN. */
int exi_switch_leave(struct exi_sock *sk, int reason);
/* A result found earlier for the socket of this generation: -EBADF if it has
 * closed since, whichever socket has its memory now. */
int exi_switch_leave_of(struct exi_sock *sk, uint32_t generation, int reason);
/* exi_switch_leave() with the TX lock held. */
int exi_switch_leave_locked(struct exi_sock *sk, int reason);
/* The link has come up: if the connection was held before, informs the peer, as
 * it would of a hold that begins now. The TX lock is held. */
void exi_switch_held_locked(struct exi_sock *sk);

/* Whether this end sends on TCP, or with drains will, and its unread bytes come
 * there, as long as the peer does not switch. */
bool exi_switch_on_tcp(struct exi_shared *sh, bool drains);
/* Whether this end is done: it is on TCP, and the peer does not switch. */
bool exi_switch_done(struct exi_shared *sh);

/* How long one call of the program waits for the libraries of peers, from its
 * first wait on and however many peers there are. Zero: it has not waited
 * yet. */
struct exi_patience {
	uint64_t since;
};

/* Until when the call waits for an answer of this peer's library: a second; 15
 * where its messages come from another host and may be lost more than once on
 * their way. Null: the call waits for this peer alone. */
uint64_t exi_switch_patience(const struct exi_sock *sk, struct exi_patience *p);

/* Receiver, RX lock held: the ring is read from here on, so TCP is readable
 * only if the sender has left the fabric, and the service watches it; or the
 * ring is not read any more. */
void exi_resume_watch_locked(struct exi_sock *sk);

#endif
