/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a transfer: finished, or cancelled. */
#ifndef EXI_CORE_TRANSFER_FINISH_H
#define EXI_CORE_TRANSFER_FINISH_H

#include "core/fabric/provider.h"

struct exi_op;
struct exi_sock;

/* Removes the operation from the list and reports it, with err after the bytes
 * that moved. The direction's lock is held. */
void exi_flow_finish_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err);

/* Finishes a cancelled operation; within a message, it continues. The
 * direction's lock is held. */
void exi_flow_cancelled_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op);

/* Finishes a send whose bytes have all moved, or marks it as sent while sends
 * before it are still lent: events come in the order of the calls. The
 * direction's lock is held. */
void exi_finish_in_turn_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op);

#endif
