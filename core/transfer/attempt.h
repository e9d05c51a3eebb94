/* SPDX-License-Identifier: BSD-2-Clause */
/* Single attempts to move bytes, under the lock of the direction. */
#ifndef EXI_CORE_TRANSFER_ATTEMPT_H
#define EXI_CORE_TRANSFER_ATTEMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct exi_half;
struct exi_pieces;
struct exi_sock;

/* One attempt, with the direction's lock held. Returns a number of bytes, 0 for
 * the end, or -errno. -EAGAIN: wait; -ESTALE: read the link; -EREMOTE: ask the
 * other processes for the connection; then try again. */
ssize_t exi_flow_try_send_locked(struct exi_sock *sk, struct exi_half *h,
				 const void *buf, size_t len, int flags);
ssize_t exi_flow_try_recv_locked(struct exi_sock *sk, struct exi_half *h,
				 void *buf, size_t len, int flags);

/* One attempt with several pieces; it moves as many as one attempt takes. Bytes
 * that other threads send do not come between the pieces of a short call. */
ssize_t exi_attempt_send_pieces_locked(struct exi_sock *sk, struct exi_half *h,
				       struct exi_pieces *p, int flags);
ssize_t exi_attempt_recv_pieces_locked(struct exi_sock *sk, struct exi_half *h,
				       struct exi_pieces *p, int flags);

/* The fabric has no memory for what comes next (-ENOBUFS): the receiver asks to
 * leave it. -EAGAIN. */
ssize_t exi_attempt_recv_unfit_locked(struct exi_sock *sk, struct exi_half *h);

/* A send that returned n found that the peer is gone: no process takes bytes
 * from the ring any more. Notes that, and sends the bytes over TCP if TCP knows
 * it, too. Returns the result of that send, otherwise n. TX lock held. */
ssize_t exi_attempt_send_unheard_locked(struct exi_sock *sk, struct exi_half *h,
					const void *buf, size_t len, ssize_t n);

/* What exi_send_ring_locked() does where something is in the way: the end, an
 * error, or a peer that is gone; and where the fabric returned n, which is no
 * bytes. Out of line, since most sends succeed. TX lock held. */
ssize_t exi_attempt_send_barred_locked(struct exi_sock *sk, struct exi_half *h,
				       const void *buf, size_t len);
ssize_t exi_attempt_send_failed_locked(struct exi_sock *sk, struct exi_half *h,
				       ssize_t n);

/* What exi_recv_ring_locked() does where the peer is gone, has sent the end
 * over TCP, or broke the direction; and where the fabric, asked for len bytes,
 * returned n, which is neither bytes nor -EAGAIN. RX lock held. */
ssize_t exi_attempt_recv_over_locked(struct exi_sock *sk, struct exi_half *h,
				     void *buf, size_t len, int flags);
ssize_t exi_attempt_recv_failed_locked(struct exi_sock *sk, struct exi_half *h,
				       size_t len, ssize_t n);

/* One attempt in the ring: exi_send_ring_locked() (ring_io.h), not inline. TX
 * lock held. */
ssize_t exi_attempt_send_ring_locked(struct exi_sock *sk, struct exi_half *h,
				     const void *buf, size_t len);

/* One attempt in the ring for several pieces, which are written side by side
 * into one record: one look at the peer for all. At most EXI_ATTEMPT_TOGETHER
 * bytes; exi_attempt_together_locked() returns fewer for a fabric that has no
 * room to write them into. TX lock held. */
#define EXI_ATTEMPT_TOGETHER 8192
#define EXI_ATTEMPT_COPIED   2048
ssize_t exi_attempt_send_together_locked(struct exi_sock *sk,
					 struct exi_half *h,
					 const struct iovec *v, size_t n);
size_t exi_attempt_together_locked(const struct exi_sock *sk,
				   const struct exi_half *h);

/* One attempt on TCP, with the flags of send(2). Sends what a drain owes first,
 * and moves to the ring if that is wanted and possible. Results as of
 * exi_flow_try_send_locked(). TX lock held. */
ssize_t exi_attempt_send_tcp_locked(struct exi_sock *sk, struct exi_half *h,
				    const void *buf, size_t len, int flags);

/* What must come before a send on TCP: the rest of a drain, a switch. 0; the
 * mode may be EXI_MODE_RING now. TX lock held. */
int exi_attempt_before_tcp_locked(struct exi_sock *sk, struct exi_half *h,
				  int flags);

/* TCP ended, with *end, while the peer was sending the ring's rest over it: the
 * bytes that did not come are still in the ring, behind those that did. True:
 * there are some, and the mode is EXI_MODE_RING now. RX lock held. */
bool exi_attempt_back_to_ring_locked(struct exi_sock *sk, struct exi_half *h,
				     ssize_t *end);

/* The peer has closed, and what it did not read may have been in a ring. A peer
 * that only ended its sending still reads there. If this end has shut the
 * stream down, too, the stream does not distinguish the two cases, but the link
 * does: it hangs up when the peer closes. RX lock held. */
bool exi_attempt_is_cut_locked(struct exi_sock *sk, struct exi_half *h);

/* One attempt in the ring: exi_recv_ring_locked() (ring_io.h), not inline. RX
 * lock held. */
ssize_t exi_attempt_recv_ring_locked(struct exi_sock *sk, struct exi_half *h,
				     void *buf, size_t len, int flags);

/* Returns how many bytes of a ring's rest were read from TCP, to which the
 * direction was given back. Negative: that many bytes that precede the ring
 * were not read. RX lock held. */
int64_t exi_attempt_came_back_locked(struct exi_sock *sk,
				     const struct exi_half *h);

/* One attempt on TCP, into the next pieces of p, with the flags of recv(2).
 * Results as of exi_flow_try_recv_locked(); -ESTALE: the link must be read
 * before the end can be reported. RX lock held. */
ssize_t exi_attempt_recv_tcp_locked(struct exi_sock *sk, struct exi_half *h,
				    struct exi_pieces *p, int flags);

#endif
