/* SPDX-License-Identifier: BSD-2-Clause */
/* Between inbox and stream engine: passes the messages that arrived to the
 * engine, and sends the engine's messages. Every function needs the core's lock
 * of the direction. */
#ifndef EXI_CORE_RMA_ENGINE_H
#define EXI_CORE_RMA_ENGINE_H

#include <stdbool.h>

#include "core/fabric/provider.h"
#include "core/rma/rma.h"
#include "core/rma/stream.h"

/* Passes what arrived to the direction's engine. 0 or -EPROTO. */
int exi_rma_link_take_some(struct exi_rma_link *l, enum exi_dir dir);
static inline int exi_rma_link_take(struct exi_rma_link *l, enum exi_dir dir)
{
	/* Most often nothing arrived. */
	if (exi_rma_inbox_empty(&l->inbox[dir]) &&
	    (dir == EXI_RX || !exi_stream_tx_due(&l->tx)))
		return 0;
	return exi_rma_link_take_some(l, dir);
}
/* Copies the bytes in the ring into the posted receives. RX lock. */
void exi_rma_link_copy(struct exi_rma_link *l);
/* Sends the sender's messages that carry no bytes. TX lock. */
void exi_rma_link_answer(struct exi_rma_link *l);
/* Sends the receiver's messages; idle as in exi_stream_rx_next(). RX lock. */
void exi_rma_link_report(struct exi_rma_link *l, bool idle);

#endif
