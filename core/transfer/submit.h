/* SPDX-License-Identifier: BSD-2-Clause */
/* Taking asynchronous transfers. */
#ifndef EXI_CORE_TRANSFER_SUBMIT_H
#define EXI_CORE_TRANSFER_SUBMIT_H

#include <sys/exs_ext.h>

struct exi_op;

/* Takes an operation that sends or receives. 0: it will be completed once. */
int exi_flow_submit(struct exi_op *op);
/* Takes all of them, or none; they are of one descriptor and direction. */
int exi_flow_submit_all(struct exi_op **ops, int n);
/* The same of transfers of one buffer each, which have nothing but their slots
 * yet. */
int exi_flow_submit_plain(const exs_x_op_t *o, struct exi_op **ops, int n);

#endif
