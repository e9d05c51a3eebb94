/* SPDX-License-Identifier: BSD-2-Clause */
/* The listener at a port of the fabric, which several processes may share; see
 * door.c. */
#ifndef EXI_CORE_RMA_DOOR_H
#define EXI_CORE_RMA_DOOR_H

#include <stdbool.h>
#include <stdint.h>

struct exi_domain;
struct exi_listening;
struct exi_auth;
struct exi_rma_asked;

/* Lets peers ask this process for connections to the TCP port, directly or
 * through the process that came first. Calls are counted: each one needs its
 * exi_rma_door_unlisten(). 0 or -ENOMEM. */
int exi_rma_door_listen(struct exi_domain *domain,
			const struct exi_listening *at);
void exi_rma_door_unlisten(struct exi_domain *domain,
			   const struct exi_listening *at);

/* The TCP port that a listener of ours is for; 0: none. *ret_front: A asked
 * there directly, without a redirect. The service lock is held. */
uint16_t exi_rma_door_port(const void *listener, bool *ret_front);
/* Asks the other processes of the port for the connection that a received
 * REQUEST is for. True: asker and auth belong to the door from here on. The
 * service lock is held. */
bool exi_rma_door_ask(void *asker, const struct exi_rma_asked *asked,
		      struct exi_auth *auth);
void exi_rma_doors_tick(uint64_t now);

/* The child after fork: closes the doors' descriptors, which are the
 * parent's. */
void exi_rma_doors_forked(void);

#endif
