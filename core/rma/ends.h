/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a link: its memory is unregistered, then freed. */
#ifndef EXI_CORE_RMA_ENDS_H
#define EXI_CORE_RMA_ENDS_H

struct exi_rma_link;

/* Unregisters a link's memory. The queue pair must be gone: no device uses the
 * memory, unless the net lingers. */
void exi_rma_link_unpin(struct exi_rma_link *l);
/* Frees a link whose queue pair is gone. The service lock is held. */
void exi_rma_link_free(struct exi_rma_link *l);

#endif
