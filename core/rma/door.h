/* SPDX-License-Identifier: BSD-2-Clause */
/* The listener of a port, which processes share. */
#ifndef EXI_CORE_RMA_DOOR_H
#define EXI_CORE_RMA_DOOR_H

#include <stdbool.h>
#include <stdint.h>

struct exi_domain;
struct exi_listening;
struct exi_pact;
struct exi_rma_asked;

/* This process can be asked for connections to the port of TCP, by itself or
 * through who came first. Counted. */
int exi_rma_door_listen(struct exi_domain *domain,
			const struct exi_listening *at);
void exi_rma_door_unlisten(struct exi_domain *domain,
			   const struct exi_listening *at);

/* With the service lock held. Which port a listener of ours is for; 0. *ret_front:
 * A asked there by itself, and was not sent. */
uint16_t exi_rma_door_port(const void *listener, bool *ret_front);
/* Asks the other processes of the port for the connection of a REQUEST that was
 * taken. True: asker and pact are its own from here on. */
bool exi_rma_door_ask(void *asker, const struct exi_rma_asked *asked,
		      struct exi_pact *pact);
void exi_rma_doors_look(uint64_t now);

void exi_rma_doors_forked(void);

#endif
