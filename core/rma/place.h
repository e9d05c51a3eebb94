/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers without a copy: from the program's memory, and into it. */
#ifndef EXI_CORE_RMA_PLACE_H
#define EXI_CORE_RMA_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/fabric/provider.h"

struct exi_rma_link;
struct exi_rma_net;

/* Forgets the program's memory that a net knows, and the lingering memory of
 * its links. No link has the net any more. The service lock is held. */
void exi_rma_net_fini(struct exi_rma_net *n);

/* The table through which the core lends buffers to the device. */
extern const struct exi_place_ops exi_rma_place_ops;

/* True: the first of the sends under way was received, or a send no longer
 * waits for an advert. Otherwise an armed waiter is woken when that happens. TX
 * lock. */
bool exi_rma_place_over(struct exi_rma_link *l);
/* Wakes the links whose sends have waited long enough for an advert. The
 * service lock is held. */
void exi_rma_place_tick(uint64_t now);
/* Unregisters memory that was registered for single transfers. The queue pair
 * is gone, and repeats nothing. */
void exi_rma_place_unpin(struct exi_rma_link *l);
void exi_rma_place_free(struct exi_rma_link *l);
/* Counts in l->held the bytes of sends that were not received: they are drained
 * before what the mirror holds. The queue pair is gone. 0, or -ECONNRESET:
 * other bytes are between them. TX lock. */
int exi_rma_place_hold(struct exi_rma_link *l);
/* A run of the held bytes, into *ret; 0: none is left. exi_rma_place_drained():
 * n of them were sent. TX lock. */
size_t exi_rma_place_drain(struct exi_rma_link *l, const void **ret);
void exi_rma_place_drained(struct exi_rma_link *l, size_t n);

#endif
