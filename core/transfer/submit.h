/* SPDX-License-Identifier: BSD-2-Clause */
/* Taking asynchronous transfers. */
#ifndef EXI_CORE_TRANSFER_SUBMIT_H
#define EXI_CORE_TRANSFER_SUBMIT_H

#include <sys/exs_ext.h>

struct exi_op;

/* Takes an operation that sends or receives. 0: it will be completed once. */
int exi_flow_submit(struct exi_op *op);
/* Takes all of the operations, or none; all are of one descriptor and
 * direction. */
int exi_flow_submit_all(struct exi_op **ops, int n);
/* exi_flow_submit_all() for transfers of one buffer each, of which only the
 * slots are set up. */
int exi_flow_submit_plain(const exs_x_op_t *o, struct exi_op **ops, int n);
/* exi_flow_submit_plain() for one. */
int exi_flow_submit_one(const exs_x_op_t *o, struct exi_op *op);

#endif
