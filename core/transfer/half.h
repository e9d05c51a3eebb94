/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of one direction: its bytes, its errors, its end. */
#ifndef EXI_CORE_TRANSFER_HALF_H
#define EXI_CORE_TRANSFER_HALF_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/fabric/provider.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"

struct exi_op;

/* The peer is gone. True: TCP knows it, too, and refuses further sends, as for
 * any closed peer. Bytes that the peer did not take from the ring are lost. TX
 * lock held. */
bool exi_flow_bereft_locked(struct exi_sock *sk);

/* The same, of a send whose doorbell no process hears. A peer that ends may
 * have closed its link before its stream: while a stream that ends both
 * directions has not ended, sending goes on in the ring, as it does in the
 * kernel, and whoever reads the link notes that the peer is gone. TX lock
 * held. */
bool exi_flow_unheard_locked(struct exi_sock *sk);

/* Counts bytes that the fabric moved of an operation. The direction's lock is
 * held. */
void exi_flow_account_locked(struct exi_sock *sk, enum exi_dir dir, size_t n);

/* Sends the end behind the bytes that were sent; TX lock held. */
int exi_flow_end_locked(struct exi_sock *sk);

/* The error to report when the peer wrote invalid data into its segment. The
 * direction's lock is held. */
ssize_t exi_flow_fabric_failed_locked(struct exi_sock *sk, struct exi_half *h);

/* Operations were added to the direction's list, or removed. The direction's
 * lock is held. */
void exi_flow_count_ops_locked(struct exi_sock *sk, enum exi_dir dir,
			       int change);
/* Notes that n of the want bytes that were tried have moved; returns whether
 * the operation is complete. The direction's lock is held. */
bool exi_flow_moved(struct exi_op *op, enum exi_dir dir, size_t n, size_t want);

/* Takes the error (errno) that the kernel keeps for the connection; 0: none.
 * The kernel reports it once. */
int exi_half_take_so_error(int fd);

/* The result of a call on a direction that is broken: -ECONNRESET the first
 * time, then the direction's error, then -EPIPE of a send or 0 of a receive.
 * The direction's lock is held. */
ssize_t exi_half_tell_broken_locked(struct exi_sock *sk, struct exi_half *h);

/* Whether the next attempt would take the error that the kernel keeps. A call
 * that has moved bytes must not attempt again then: it returns its bytes, and
 * until the next call poll(2) and SO_ERROR have the error. The direction's lock
 * is held. */
bool exi_half_error_waits_locked(struct exi_sock *sk, enum exi_dir dir);

/* Takes the direction's error (errno, 0: none), which is reported once; but an
 * operation that EXS_REQUIRE forbids (EPROTONOSUPPORT) stays forbidden. Without
 * a lock: a send takes the other direction's error, too. */
int exi_half_take_err(struct exi_half *h);

/* Why nothing can be sent any more: -errno, or 0 if sending is possible or the
 * kernel is to decide. Takes the error, which is reported once. TX lock
 * held. */
int exi_half_send_refused_locked(struct exi_sock *sk, struct exi_half *h);

/* Whether another process of the family has the fabric that the direction is
 * on, and this one has none: nothing can be moved here. The direction's lock is
 * held. */
bool exi_half_elsewhere_locked(const struct exi_sock *sk,
			       const struct exi_half *h);

/* The result of a receive whose ring is empty and has no writer any more: 0 for
 * the end, or -errno once. RX lock held. */
ssize_t exi_half_recv_ended_locked(struct exi_sock *sk, struct exi_half *h);

/* The same, of a receive that has read the end in the ring. */
ssize_t exi_half_end_read_locked(struct exi_sock *sk, struct exi_half *h);

/* Counts n bytes that moved; fabric: by a fabric. The direction's lock is held;
 * both counts are read without it, so they are stored whole. Messages of
 * SOCK_SEQPACKET are not only counted so. */
static inline void exi_half_count_locked(struct exi_half *h, ssize_t n,
					 bool fabric)
{
	EXI_LOCKED(&h->lock);
	__atomic_store_n(&h->bytes, h->bytes + (uint64_t)n, __ATOMIC_RELAXED);
	if (fabric)
		__atomic_store_n(&h->fabric_bytes,
				 h->fabric_bytes + (uint64_t)n,
				 __ATOMIC_RELAXED);
	__atomic_store_n(&h->moves, h->moves + 1, __ATOMIC_RELAXED);
}

/* The same, and publishes the counts. */
static inline void exi_half_account_locked(struct exi_half *h, ssize_t n,
					   bool fabric)
{
	EXI_LOCKED(&h->lock);
	exi_half_count_locked(h, n, fabric);
	exi_stats_moved_locked(h, h->bytes, h->fabric_bytes, !fabric);
}

/* A call of the kernel's own begins. The direction's lock is held. */
static inline struct exi_inside exi_half_enter_locked(struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	h->in_kernel++;
	return (struct exi_inside){ .h = h, .life = h->life };
}

/* The call is over. Takes the direction's lock, which is held either way.
 * False: the direction is another connection's by now, to which nothing of the
 * call belongs. */
static inline bool exi_half_leave_lock(const struct exi_inside *in)
{
	exi_lock(&in->h->lock);
	if (in->h->life != in->life)
		return false;
	in->h->in_kernel--;
	return true;
}

/* Receiver, RX lock held: the peer is gone, and no bytes follow those that its
 * ring holds now, even if a process still writes there. */
void exi_flow_deafen_locked(struct exi_sock *sk);

/* Whether to report that error before what is unread, as the kernel does for
 * messages: the peer's end is in the ring, or was seen. RX lock held. */
bool exi_half_cut_locked(struct exi_sock *sk, struct exi_half *h);

/* The peer is gone, in a stream where that ends both directions: whether to
 * report one ECONNRESET now, which was not reported before. */
EXI_SHIM bool exi_half_take_cut(struct exi_half *h);

/* The result of a receive at the end: 0, or that error. */
static inline ssize_t exi_half_end(struct exi_half *h)
{
	return exi_half_take_cut(h) ? -ECONNRESET : 0;
}

#endif
