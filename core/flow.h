/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving bytes of a socket, whatever fabric each direction is on. */
#ifndef EXI_CORE_FLOW_H
#define EXI_CORE_FLOW_H

#include "core/op.h"
#include "core/sock.h"

/* Synchronous transfers: as send(2) and recv(2), with -errno. */
EXI_SHIM ssize_t exi_flow_send(int fd, const void *buf, size_t len, int flags);
/* The same, from memory that is registered, or not: null. */
ssize_t exi_flow_send_from(int fd, const void *buf, size_t len, int flags,
			   struct exi_region *region);
EXI_SHIM ssize_t exi_flow_recv(int fd, void *buf, size_t len, int flags);
/* The same of n pieces of so many bytes in all, not none, on a stream: while it is
 * on TCP by one call of the kernel. A receive puts into the pieces behind the
 * first what is there. */
EXI_SHIM ssize_t exi_flow_sendv(int fd, const struct iovec *v, size_t n,
				size_t bytes, int flags);
EXI_SHIM ssize_t exi_flow_recvv(int fd, const struct iovec *v, size_t n,
				size_t bytes, int flags);
/* They are worth it: the direction is not on a fabric, as far as can be seen
 * without its lock. */
EXI_SHIM bool exi_flow_on_tcp(int fd, enum exi_dir dir);

/* The same of one message, on a socket of messages: the operation, on the
 * caller's stack, has its buffer or parts, and flags; it gets event_flags. */
ssize_t exi_flow_message(struct exi_op *op);

/* Waits until the rest of a message that a call left to the library went. False:
 * it did not. No lock is held. */
bool exi_flow_flush(struct exi_sock *sk, uint64_t deadline_ns);

/* Before a call of the C library that sends on the descriptor itself, of up to
 * *len bytes (sendfile): where the direction is on TCP nothing is switched until
 * the call is over, and how much it moved, or -1, is told with what this
 * returned. Of less than *len where a fabric may be met meanwhile. Null: the
 * direction is on a fabric, or about to be. */
EXI_SHIM struct exi_half *exi_flow_native_send(int fd, size_t *len);
EXI_SHIM void exi_flow_native_sent(struct exi_half *h, ssize_t moved);

/* Of a connection that was latent (latent.h) and is sk now: a call that began
 * before ended. And one of fd that is to wake, for it has received enough. */
struct exi_latent_call;
void exi_flow_latent_over(struct exi_sock *sk, const struct exi_latent_call *c,
			  ssize_t n);
void exi_flow_latent_woke(int fd);

/* Takes an operation that sends or receives. 0: it will be completed once. */
int exi_flow_submit(struct exi_op *op);
/* Takes all of them, or none; they are of one descriptor and direction. */
int exi_flow_submit_all(struct exi_op **ops, int n);
/* The same of transfers of one buffer each, which have nothing but their slots
 * yet. */
int exi_flow_submit_plain(const exs_x_op_t *o, struct exi_op **ops, int n);

/* Meets the peer where the direction has passed a mark. Of the service; no lock is
 * held. */
void exi_flow_meet(struct exi_sock *sk, enum exi_dir dir);

/* Moves what can be moved of the operations queued in a direction. */
void exi_flow_progress(struct exi_sock *sk, enum exi_dir dir);
void exi_flow_progress_locked(struct exi_sock *sk, enum exi_dir dir);
/* The same of who has just polled the fabric, and will before it waits. */
void exi_flow_progress_polled_locked(struct exi_sock *sk, enum exi_dir dir);

/* Marks operations of a direction (all, or those with the handle) to be
 * cancelled; returns how many. */
int exi_flow_cancel(struct exi_sock *sk, enum exi_dir dir, bool any,
		    exs_ahandle_t a);

/* Cancels everything and waits until no transfer is in flight. */
void exi_flow_stop(struct exi_sock *sk);

/* Asks to be rung for the direction's operations: true when that is sure,
 * false when there was something to do at once. The lock is held. */
bool exi_flow_ring_locked(struct exi_sock *sk, enum exi_dir dir);

/* Receiver, RX lock held: the peer is gone, and what its ring holds now is all that
 * comes of it, though somebody may still write there. */
void exi_flow_deafen_locked(struct exi_sock *sk);

/* The peer is gone: when TCP knows it, too, what is sent from here on is TCP's
 * to refuse, as it refuses what goes to any closed peer, and this is true. What
 * the peer did not take from the ring is lost. TX lock held. */
bool exi_flow_bereft_locked(struct exi_sock *sk);

/* Sender in EXI_MODE_DRAIN, TX lock held: what it has not sent goes into memory that
 * the caller frees, and the direction is on TCP; SO_LINGER stays what it is in a
 * drain. -ENOMEM: as before. */
int exi_flow_owed_locked(struct exi_sock *sk, char **ret, size_t *ret_n);

/* Before -EPIPE is returned. quiet: without the signal. */
void exi_flow_broken(bool quiet);

/* The error that TCP has to tell, and tells once; 0. */
EXI_SHIM int exi_flow_error(int fd);
/* The next attempt would take it: who has moved something is to end before. */
EXI_SHIM bool exi_flow_error_waits(int fd, enum exi_dir dir);

/* Null without the shim, or: a send of a call that may not wait found no room. True:
 * it is worth another try (unseen.h). Set before the first connection. No lock is
 * held. */
extern bool (*exi_flow_no_room)(struct exi_sock *sk, int fd);

/* Counts bytes that the fabric moved of an operation; takes it off the list and
 * reports it, err after what moved. The direction's lock is held. */
void exi_flow_account(struct exi_sock *sk, enum exi_dir dir, size_t n);
void exi_flow_finish_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err);

/* The same for one that was cancelled: ends it, or, within a message, lets it go
 * on. */
void exi_flow_cancelled_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op);

/* Says the end of what was sent; TX lock held. */
int exi_flow_end_locked(struct exi_sock *sk);

/* One step of sending over TCP what the fabric holds, sends that are lent included:
 * 0 when done, -EAGAIN, -errno. */
int exi_flow_drain_locked(struct exi_sock *sk);
/* After -EAGAIN: 0 when the service will go on, -EAGAIN to go on at once. */
int exi_flow_await_drain_locked(struct exi_sock *sk);

#endif
