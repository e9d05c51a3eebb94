/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations that continue (EXS_X_MULTI): they make an event for each
 * connection, or for the bytes that came of a stream, in free slots and buffers
 * of the queue. The last event uses the operation's own slot, so a queue cannot
 * overflow. */
#ifndef EXI_CORE_TRANSFER_MULTI_H
#define EXI_CORE_TRANSFER_MULTI_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/exs.h>
#include <sys/types.h>

struct exi_half;
struct exi_op;
struct exi_queue;
struct exi_sock;

/* Gives the queue n buffers, side by side. -EINVAL: h is no longer the queue's
 * handle; -ENOMEM. */
int exi_multi_provide(struct exi_queue *q, exs_qhandle_t h, void *mem,
		      size_t len, int n);

/* Makes a receive that is not yet submitted one that continues. */
void exi_multi_receive(struct exi_op *op);

/* One attempt for such a receive, which is the first of its direction, whose
 * lock is held. True: all that follows is done; else *ret is as of an attempt
 * that moved nothing. */
bool exi_multi_try_locked(struct exi_sock *sk, struct exi_half *h,
			  struct exi_op *op, int flags, ssize_t *ret);

/* An accept has a connection, or an error. Returns whether it continues, and
 * then has made the event. */
bool exi_multi_accepted(struct exi_op *op);

#endif
