/* SPDX-License-Identifier: BSD-2-Clause */
/* A link to a process on another host: how it is made and ends, and what
 * arrives on it. */
#ifndef EXI_CORE_RMA_LINK_H
#define EXI_CORE_RMA_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/rma/rma.h"

struct exi_rma_msg;
struct exi_stream_msg;

/* Sets up the common part of a net, which is all zeroes before. */
void exi_rma_net_init(struct exi_rma_net *n);

/* A new link without a queue pair; null without memory. pair belongs to the
 * link from here on. */
struct exi_rma_link *exi_rma_link_new(int pair);
/* Makes the ring and the messages of a link that has joined a net. 0 or
 * -errno. */
int exi_rma_link_open(struct exi_rma_link *l);
/* The ring, as the other end addresses it. */
struct exi_rma_ring exi_rma_link_ring(const struct exi_rma_link *l);
/* Sets the other end's ring: from now on bytes can move. 0, -EPROTO or
 * -errno. */
int exi_rma_link_up(struct exi_rma_link *l, const struct exi_rma_ring *theirs);
/* Frees the memory of a link without a queue pair, and leaves its net; the link
 * can be opened again. The service lock is held. */
void exi_rma_link_close(struct exi_rma_link *l);
/* Waits until the posted requests have arrived, or until the deadline. */
void exi_rma_link_drain(struct exi_rma_link *l, uint64_t deadline);

/* Sends what found no room before: there is a credit now, or the device may
 * have room. */
void exi_rma_link_retry(struct exi_rma_link *l);

/* Called by the net, with its lock held, when a note or a message has come. */
void exi_rma_link_noted(struct exi_rma_link *l, uint32_t note);
void exi_rma_link_heard(struct exi_rma_link *l, const struct exi_rma_msg *m,
			uint32_t len);

/* Takes the next message out of the inbox. False: none. Only one thread at a
 * time takes; another may put meanwhile. */
bool exi_rma_inbox_next(struct exi_rma_inbox *b, struct exi_stream_msg *ret);

#endif
