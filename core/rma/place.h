/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers without a copy. */
#ifndef EXI_CORE_RMA_PLACE_H
#define EXI_CORE_RMA_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/fabric/provider.h"

struct exi_rma_link;
struct exi_rma_net;

/* No link has it: what of the program's memory it knows is forgotten, and of links
 * that were. The service lock is held. */
void exi_rma_net_fini(struct exi_rma_net *n);

extern const struct exi_place_ops exi_rma_place_ops;

/* The first of the sends that are under way was received, or one that waits for
 * an advert does not any more; if not, what is armed is woken for it. TX
 * lock. */
bool exi_rma_place_over(struct exi_rma_link *l);
/* Links that waited long enough. The service lock is held. */
void exi_rma_place_look(uint64_t now);
/* The queue pair is gone, and what was sent before is not repeated by it: memory
 * that was registered for transfers. */
void exi_rma_place_unpin(struct exi_rma_link *l);
void exi_rma_place_free(struct exi_rma_link *l);
/* The same: sends that were not received are drained before what the mirror holds,
 * l->held bytes. -ECONNRESET: others are between them. TX lock. */
int exi_rma_place_hold(struct exi_rma_link *l);
/* A run of what is held; 0: nothing is, any more. So many of its bytes were sent. */
size_t exi_rma_place_drain(struct exi_rma_link *l, const void **ret);
void exi_rma_place_drained(struct exi_rma_link *l, size_t n);

#endif
