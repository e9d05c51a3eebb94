/* SPDX-License-Identifier: BSD-2-Clause */
/* What arrived, and the engine of the stream. */
#ifndef EXI_CORE_RMA_ENGINE_H
#define EXI_CORE_RMA_ENGINE_H

#include <stdbool.h>

#include "core/fabric/provider.h"
#include "core/rma/rma.h"
#include "core/rma/stream.h"

/* Under the core's lock of the direction: gives the engine what arrived. -EPROTO.
 */
int exi_rma_link_take_some(struct exi_rma_link *l, enum exi_dir dir);
static inline int exi_rma_link_take(struct exi_rma_link *l, enum exi_dir dir)
{
	/* Most often nothing did. */
	if (exi_rma_inbox_empty(&l->inbox[dir]) &&
	    (dir == EXI_RX || !exi_stream_tx_due(&l->tx)))
		return 0;
	return exi_rma_link_take_some(l, dir);
}
/* The same: what lies in the ring goes into the receives that are posted. */
void exi_rma_link_copy(struct exi_rma_link *l);
/* The sender's messages without bytes. */
void exi_rma_link_answer(struct exi_rma_link *l);
/* The receiver's. */
void exi_rma_link_report(struct exi_rma_link *l, bool idle);

#endif
