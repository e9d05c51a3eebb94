/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving bytes of a socket, whatever fabric each direction is on. */
#ifndef EXI_CORE_TRANSFER_PROGRESS_H
#define EXI_CORE_TRANSFER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

struct exi_half;
struct exi_op;
struct exi_sock;

/* Whether the direction is on no fabric, as far as can be seen without its
 * lock: then calls with several pieces are worth it. */
EXI_SHIM bool exi_flow_on_tcp(int fd, enum exi_dir dir);

/* Meets the peer where the direction has passed a mark. Called by the service;
 * no lock is held. */
void exi_flow_meet(struct exi_sock *sk, enum exi_dir dir);

/* Moves what can be moved of the operations queued in a direction. */
void exi_flow_progress(struct exi_sock *sk, enum exi_dir dir);
void exi_flow_progress_locked(struct exi_sock *sk, enum exi_dir dir);
/* exi_flow_progress_locked() for a caller that has just polled the fabric, and
 * will again before it waits. */
void exi_flow_progress_polled_locked(struct exi_sock *sk, enum exi_dir dir);

/* exi_flow_progress_locked() for a caller that made the first attempt for the
 * first of the operations itself, with this result. Nothing is lent. */
void exi_progress_tried_locked(struct exi_sock *sk, enum exi_dir dir,
			       ssize_t n);

/* Asks for wake-ups for the direction's operations: true when that is sure,
 * false when there was something to do at once. The lock is held. */
bool exi_flow_arm_locked(struct exi_sock *sk, enum exi_dir dir);

/* Null without the shim. Called when a send of a call that may not wait found
 * no room; true: it is worth another try (unseen.h). Set before the first
 * connection. No lock is held. */
extern bool (*exi_flow_no_room)(struct exi_sock *sk, int fd);

/* A receiver that wants to leave the fabric gives the direction back, when
 * nothing of it is on loan. RX is locked. */
void exi_flow_give_back_locked(struct exi_sock *sk);

/* Short sends that wait together go together: one look at the peer, one call
 * of the kernel, for all of them. */
#define EXI_PROGRESS_TOGETHER 2048

/* Whether a direction on TCP may leave TCP still: its connection has not
 * decided, or is about to meet. No lock is needed: a hint. */
bool exi_progress_may_move(const struct exi_sock *sk, const struct exi_half *h);

/* Copies n bytes. Most copies are short, and a short copy does not call
 * memcpy(). */
void exi_progress_copy(char *to, const char *from, size_t n);

/* The operation to move next; null: none may be moved. While an operation is
 * lent, receives and a drain wait, and sends continue behind it. The
 * direction's lock is held, and its list is not empty. */
struct exi_op *exi_progress_next_locked(struct exi_sock *sk, enum exi_dir dir);

/* Whether the kernel's own send does all that this call is to do, its sleep and
 * errors included. TX lock held. */
bool exi_progress_kernel_sends_locked(struct exi_sock *sk, struct exi_half *h,
				      int flags);

#endif
