/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a link: what is unregistered and freed, in which order. */
#ifndef EXI_CORE_RMA_ENDS_H
#define EXI_CORE_RMA_ENDS_H

struct exi_rma_link;

/* Its queue pair is gone: no device uses its memory, unless the net lingers. */
void exi_rma_link_unpin(struct exi_rma_link *l);
/* The same. */
void exi_rma_link_free(struct exi_rma_link *l);

#endif
