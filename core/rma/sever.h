/* SPDX-License-Identifier: BSD-2-Clause */
/* Cutting a connection off its device, and freeing its link. */
#ifndef EXI_CORE_RMA_SEVER_H
#define EXI_CORE_RMA_SEVER_H

struct exi_rma_link;

/* Destroys the queue pair, after which nothing can arrive. Idempotent. No lock
 * of core/rma is held. */
void exi_rma_meet_sever(struct exi_rma_link *l);
/* Severs the link and frees it: the connection is over. No lock of core/rma is
 * held. */
void exi_rma_meet_end(struct exi_rma_link *l);

#endif
