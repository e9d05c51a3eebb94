/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake with a peer on another host, whatever fabric carries its
 * messages. A is the end that connects, B the one that accepts. */
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

/* The table by which the core asks for connections between hosts. */
extern const struct exi_remote_ops exi_rma_remote_ops;

/* Asks again for the links whose time has come. The service lock is held. */
void exi_rma_meet_tick(uint64_t now);

/* A: the fabric's addresses of the connection are known; makes the REQUEST.
 * -errno: the handshake has failed, and the core was told. The service lock is
 * held, as for the next three. */
int exi_rma_meet_ask(struct exi_rma_link *l, const struct sockaddr *local,
		     const struct sockaddr *peer, struct exi_auth_request *ret);
/* A: nobody listens there. Asks again later, or fails. */
void exi_rma_meet_nobody(struct exi_rma_link *l);
/* A: the address of this end was taken. Asks again, soon, from another one. */
void exi_rma_meet_taken(struct exi_rma_link *l);
/* A: the other end refused, with these bytes. A refusal that is not of the
 * library comes from a listener that had no time to look, if somebody listens:
 * asks again, later. */
void exi_rma_meet_rejected(struct exi_rma_link *l, const void *data, size_t len,
			   bool listens);
/* B: a REQUEST came, at the listener that exi_rma_door_port() tells of. The
 * fabric's accept or reject is called. The service lock is let go meanwhile. */
void exi_rma_meet_request(void *asker, uint16_t port, bool front,
			  const struct sockaddr *local,
			  const struct sockaddr *peer, const void *data,
			  size_t len);

/* Make the proof that says where our memory is, and check the one of the other
 * end; for either end. Net's lock. 0 or -errno. */
int exi_rma_meet_prove(struct exi_rma_link *l,
		       const struct exi_auth_payload *place,
		       struct exi_auth_proof *ret);
int exi_rma_meet_proved(struct exi_rma_link *l, const void *proof, size_t len,
			struct exi_auth_payload *ret);
/* Both ends are up: frees the handshake's state and tells the core. Net's
 * lock. */
void exi_rma_meet_done(struct exi_rma_link *l);
/* The handshake has failed: tells the core the reason. Any lock. */
void exi_rma_meet_fail(struct exi_rma_link *l, int reason, const char *why);
/* The fabric tells that the other end is gone. What came before is taken first;
 * a link that is up ends, and the core is not told of a failed handshake. The
 * net's lock is not held. */
void exi_rma_meet_lost(struct exi_rma_link *l, int reason, const char *why);
/* The handshake has failed, by the error of a message that was not taken. Any
 * lock. */
void exi_rma_meet_untaken(struct exi_rma_link *l, int err);
/* Logs a warning, once: every later connection may meet the same. */
void exi_rma_meet_complain(const char *why);

#endif
