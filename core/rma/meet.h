/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake with a peer on another host, whatever fabric carries its
 * messages. A is the end that connects, B the end that accepts. */
#ifndef EXI_CORE_RMA_MEET_H
#define EXI_CORE_RMA_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/fabric/provider.h"

struct exi_auth_payload;
struct exi_auth_proof;
struct exi_auth_request;
struct exi_rma_link;

/* The table through which the core asks for connections between hosts. */
extern const struct exi_remote_ops exi_rma_remote_ops;

/* Asks again for the links whose time has come. The service lock is held. */
void exi_rma_meet_tick(uint64_t now);

/* A: the fabric's addresses of the connection are known; makes the REQUEST.
 * -errno: the handshake has failed, and the core knows. The service lock is
 * held, as for the next three calls. */
int exi_rma_meet_ask(struct exi_rma_link *l, const struct sockaddr *local,
		     const struct sockaddr *peer, struct exi_auth_request *ret);
/* A: no listener is there. Asks again later, or fails. */
void exi_rma_meet_nobody(struct exi_rma_link *l);
/* A: the address of this end was taken. Asks again, soon, from another one. */
void exi_rma_meet_taken(struct exi_rma_link *l);
/* A: the other end refused, with these bytes. If the refusal is not the
 * library's and something listens there (listens), the listener had no time to
 * look: asks again later. */
void exi_rma_meet_rejected(struct exi_rma_link *l, const void *data, size_t len,
			   bool listens);
/* B: a REQUEST came at a listener; exi_rma_door_port() gave port and front.
 * Calls the fabric's accept or reject. The service lock is released
 * meanwhile. */
void exi_rma_meet_request(void *asker, uint16_t port, bool front,
			  const struct sockaddr *local,
			  const struct sockaddr *peer, const void *data,
			  size_t len);

/* Make the proof that states where our memory is, and check the other end's
 * proof; for either end. Net's lock. 0 or -errno. */
int exi_rma_meet_prove(struct exi_rma_link *l,
		       const struct exi_auth_payload *place,
		       struct exi_auth_proof *ret);
int exi_rma_meet_proved(struct exi_rma_link *l, const void *proof, size_t len,
			struct exi_auth_payload *ret);
/* Both ends are up: frees the handshake's state and informs the core. Net's
 * lock. */
void exi_rma_meet_done(struct exi_rma_link *l);
/* The handshake has failed: reports the reason to the core. Any lock. */
void exi_rma_meet_fail(struct exi_rma_link *l, int reason, const char *why);
/* The fabric reports that the other end is gone. Takes first what came before;
 * a link that is up then ends, and the core sees no failed handshake. The net's
 * lock is not held. */
void exi_rma_meet_lost(struct exi_rma_link *l, int reason, const char *why);
/* The handshake has failed with err, the error of a message that was not
 * accepted. Any lock. */
void exi_rma_meet_untaken(struct exi_rma_link *l, int err);
/* Logs a warning, once: every later connection may meet the same. */
void exi_rma_meet_complain(const char *why);

#endif
