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
/* Reserves a slot of the queue for a send or receive of one buffer, and takes
 * the operation, as exi_queue_reserve_one() and exi_flow_submit_plain() do, but
 * the slot under the direction's lock: if the operation is over at once, its
 * slot and its event take one lock of the queue. 0 or -errno. */
int exi_flow_submit_send(exs_qhandle_t h, const exs_x_op_t *o);
int exi_flow_submit_recv(exs_qhandle_t h, const exs_x_op_t *o);

#endif
