/* SPDX-License-Identifier: BSD-2-Clause */
/* A transfer is over. */
#ifndef EXI_CORE_TRANSFER_FINISH_H
#define EXI_CORE_TRANSFER_FINISH_H

#include "core/fabric/provider.h"

struct exi_op;
struct exi_sock;

void exi_flow_finish_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err);

/* The same for one that was cancelled: ends it, or, within a message, lets it go
 * on. */
void exi_flow_cancelled_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op);

void exi_finish_in_turn(struct exi_sock *sk, enum exi_dir dir,
			struct exi_op *op);

#endif
