/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of a link, and its registration: rings, and those that outlive
 * their link. */
#ifndef EXI_CORE_RMA_MEMORY_H
#define EXI_CORE_RMA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "core/rma/rma.h"

/* The size of a ring, as configured, but not more than the largest. */
uint32_t exi_rma_ring_bytes(void);
/* The memory that one end of a connection locks, in bytes: its ring, the mirror
 * of the other end's ring, and buffers for messages sent and received. */
size_t exi_rma_footprint(void);
/* Maps memory for a device; a forked child does not have it. Null without
 * memory. */
void *exi_rma_map(size_t len);

/* Frees memory that has lingered long enough. The service lock is held. */
void exi_rma_links_tick(uint64_t now);

/* The net ends: memory that lingers is unregistered. The service lock is
 * held. */
void exi_rma_links_net_ends(struct exi_rma_net *n);

/* Maps and registers bytes for m. 0, -ENOMEM or the device's error; m must be
 * dropped after an error, too. */
int exi_rma_ring_make(struct exi_rma_link *l, struct exi_rma_mem *m,
		      uint32_t bytes, enum exi_rma_access access);

/* Unregisters the memory. Idempotent. */
void exi_rma_mem_unpin(struct exi_rma_mem *m);

/* Unregisters and frees the memory, or with lingers keeps it for a while: the
 * device may still write there. The service lock is held. */
void exi_rma_ring_drop(struct exi_rma_link *l, struct exi_rma_mem *m,
		       bool lingers);

#endif
