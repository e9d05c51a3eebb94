/* SPDX-License-Identifier: BSD-2-Clause */
/* Switching the directions of a connection between TCP and a fabric: section 3
 * of docs/design/wire-shm.md. */
#ifndef EXI_CORE_SWITCH_H
#define EXI_CORE_SWITCH_H

#include "core/sock.h"

/* May this end switch its sending direction now? A hint without locks. */
static inline bool exi_switch_wanted(struct exi_shared *sh)
{
	return atomic_load_explicit(&sh->may_switch, memory_order_relaxed) &&
	       !atomic_load_explicit(&sh->hold_here, memory_order_relaxed) &&
	       !atomic_load_explicit(&sh->hold_there, memory_order_relaxed);
}

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

/* Sender, TX lock held: what the fabric has ready for drain goes to TCP, with
 * the next send, or by the service. */
void exi_switch_drain_locked(struct exi_sock *sk);

/* Receiver in EXI_MODE_LEFT, RX lock held: n bytes of TCP were read; recomputes
 * what is left. Who reads the last of them wakes all who wait: they asked the
 * kernel, and what comes next is in the ring. */
void exi_switch_read_locked(struct exi_sock *sk, size_t n);
void exi_switch_left_locked(struct exi_sock *sk);

/* Of a direction that was given back, when TCP is at its end: how many bytes of
 * the ring's rest came over it; less than 0, when bytes from before the ring are
 * missing. -errno. */
int exi_switch_came_locked(struct exi_sock *sk, int64_t *ret);

/* Both directions to TCP: begun. The service does the rest. */
int exi_switch_leave(struct exi_sock *sk, int reason);
/* The same with the TX lock held. */
int exi_switch_leave_locked(struct exi_sock *sk, int reason);

/* This end sends on TCP, or with drains will, and what it has not read comes there:
 * as long as the peer does not switch. */
bool exi_switch_on_tcp(struct exi_shared *sh, bool drains);
/* The same, and the peer does not switch: this end is done. */
bool exi_switch_left(struct exi_shared *sh);

/* How long one call of the program waits for the libraries of peers, from its
 * first wait on and however many peers there are. Zero: it has not waited yet. */
struct exi_patience {
	uint64_t since;
};

/* Until when the call waits for an answer of this peer's library: a second; 15
 * where its messages come from another host and may be lost more than once on
 * their way. Null: the call waits for this peer alone. */
uint64_t exi_switch_patience(const struct exi_sock *sk, struct exi_patience *p);

/* Both directions to TCP, waiting until this end is done; DOWN is not said again
 * where exi_switch_leave() has said it. -ETIMEDOUT, -EBADF; -ECANCELED when
 * another thread has allowed the fabric again meanwhile. */
int exi_switch_down(struct exi_sock *sk, int fd, int reason,
		    uint64_t deadline_ns);

/* After that, of a connection that this process forgets and others have: where the
 * peer is gone with bytes unread, the others keep them, and the descriptor gets a
 * copy. */
EXI_SHIM void exi_switch_part(struct exi_sock *sk, int fd);

/* Lets the directions be switched (again). */
int exi_switch_allow(struct exi_sock *sk, int fd);

/* Sends what Nagle, a cork or MSG_MORE holds back, leaving the options as they
 * were. What the peer's window holds back flows when the peer reads. */
int exi_switch_push(int fd);

/* Bytes ever read from TCP and written to it, as the kernel counts; of one that
 * was reset after its FIN, one read too few. 0, -errno. */
int exi_switch_counts(struct exi_sock *sk, uint64_t *ret_rx, uint64_t *ret_tx);

/* Which end of a connection that plain calls made this is. */
enum exi_role exi_switch_role(int fd);

/* Why this kind of socket is never upgraded, or EXS_X_REASON_NONE. */
int exi_switch_forbidden(int fd);

#endif
