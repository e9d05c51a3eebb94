/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations that go on (EXS_X_MULTI): an event for each connection, or for
 * what came of a stream, in slots and buffers that the queue has to spare. The
 * operation's own slot is that of its last event, so a queue cannot
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

/* Gives the queue n buffers, side by side. -EINVAL: it is not that of h any
 * more; -ENOMEM. */
int exi_multi_provide(struct exi_queue *q, exs_qhandle_t h, void *mem,
		      size_t len, int n);

/* A receive, not yet submitted, becomes one that goes on. */
void exi_multi_receive(struct exi_op *op);

/* One attempt for such a receive, which is the first of its direction, whose
 * lock is held. True: all that follows is done; else *ret is as of an attempt
 * that moved nothing. */
bool exi_multi_try_locked(struct exi_sock *sk, struct exi_half *h,
			  struct exi_op *op, int flags, ssize_t *ret);

/* An accept has a connection, or an error: whether it goes on, with the event
 * made. */
bool exi_multi_accepted(struct exi_op *op);

#endif
