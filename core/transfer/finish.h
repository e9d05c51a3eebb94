/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a transfer: finished, or cancelled. */
#ifndef EXI_CORE_TRANSFER_FINISH_H
#define EXI_CORE_TRANSFER_FINISH_H

#include "core/fabric/provider.h"

struct exi_op;
struct exi_sock;

/* Takes the operation off the list and reports it, err after what moved. The
 * direction's lock is held. */
void exi_flow_finish_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err);

/* A cancelled operation is finished or, within a message, goes on. The
 * direction's lock is held. */
void exi_flow_cancelled_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op);

/* Finishes a send whose bytes have all moved, or marks it as sent where sends
 * before it are lent still: events come in the order of the calls. The
 * direction's lock is held. */
void exi_finish_in_turn_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op);

#endif
