/* SPDX-License-Identifier: BSD-2-Clause */
/* A link between two hosts. */
#ifndef EXI_CORE_RMA_LINK_H
#define EXI_CORE_RMA_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/rma/rma.h"

struct exi_rma_msg;
struct exi_stream_msg;

void exi_rma_net_init(struct exi_rma_net *n);

/* Without a queue pair; pair is its own from here on. Null. */
struct exi_rma_link *exi_rma_link_new(int pair);
/* With one: its ring. -errno. */
int exi_rma_link_open(struct exi_rma_link *l);
/* What the other end is to call our ring. */
struct exi_rma_ring exi_rma_link_ring(const struct exi_rma_link *l);
/* The other end's ring is known: bytes can move. -EPROTO, -errno. */
int exi_rma_link_up(struct exi_rma_link *l, const struct exi_rma_ring *theirs);
/* Without one: its memory is gone, for another queue pair. The service lock is
 * held. */
void exi_rma_link_close(struct exi_rma_link *l);
/* Waits until what was posted has arrived. */
void exi_rma_link_drain(struct exi_rma_link *l, uint64_t deadline);

/* What found no room is said again: there is some, or the device may have it. */
void exi_rma_link_retry(struct exi_rma_link *l);

/* From the net, with its lock held: a note; a message. */
void exi_rma_link_noted(struct exi_rma_link *l, uint32_t note);
void exi_rma_link_heard(struct exi_rma_link *l, const struct exi_rma_msg *m,
			uint32_t len);

bool exi_link_next(struct exi_rma_inbox *b, struct exi_stream_msg *ret);

#endif
