/* SPDX-License-Identifier: BSD-2-Clause */
/* Cutting a connection off its device. */
#ifndef EXI_CORE_RMA_SEVER_H
#define EXI_CORE_RMA_SEVER_H

struct exi_rma_link;

/* The queue pair goes, and with it all that could arrive. Twice is once. No lock
 * of these. */
void exi_rma_meet_sever(struct exi_rma_link *l);
/* The connection is over, and the link goes, too. The same. */
void exi_rma_meet_end(struct exi_rma_link *l);

#endif
