/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving the bytes of one message. */
#ifndef EXI_CORE_TRANSFER_MESSAGE_H
#define EXI_CORE_TRANSFER_MESSAGE_H

#include <stddef.h>
#include <sys/types.h>

#include "core/fabric/provider.h"

struct exi_op;
struct exi_sock;

/* Describes in x the next run of bytes of a message, its header included, for
 * one call of the kernel. 0; -EAGAIN: nothing is to be moved now; another
 * error. The direction's lock is held. */
int exi_message_run_locked(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_op *op, struct exi_xfer *x);

/* Moves what can be moved of a message now; results as of
 * exi_flow_try_send_locked() and exi_flow_try_recv_locked(). The direction's
 * lock is held. */
ssize_t exi_message_move_locked(struct exi_sock *sk, enum exi_dir dir,
				struct exi_op *op);

/* The kernel moved n bytes of a message, by an operation that was given to it.
 * The direction's lock is held. */
void exi_message_posted_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op, size_t n);

#endif
