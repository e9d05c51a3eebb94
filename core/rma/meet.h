/* SPDX-License-Identifier: BSD-2-Clause */
/* Meeting a peer on another host. */
#ifndef EXI_CORE_RMA_MEET_H
#define EXI_CORE_RMA_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/fabric/provider.h"

struct exi_pact_payload;
struct exi_pact_proof;
struct exi_pact_request;
struct exi_rma_link;

extern const struct exi_remote_ops exi_rma_remote_ops;

/* Links that are to ask again. */
void exi_rma_meet_look(uint64_t now);

/* A. The fabric's addresses of the connection are known: REQUEST. -errno: there
 * will be nothing. */
int exi_rma_meet_ask(struct exi_rma_link *l, const struct sockaddr *local,
		     const struct sockaddr *peer, struct exi_pact_request *ret);
/* A. Nobody is there. */
void exi_rma_meet_nobody(struct exi_rma_link *l);
/* The address of this end was taken: asks again, soon, from another one. */
void exi_rma_meet_taken(struct exi_rma_link *l);
/* It was refused, with these bytes. Nobody's are a listener's that had no time to
 * look, if somebody listens: asks again, later. */
void exi_rma_meet_rejected(struct exi_rma_link *l, const void *data, size_t len,
			   bool listens);
/* B. REQUEST came, at the listener that exi_rma_door_port() tells of: accept is
 * called, or reject. The service lock is let go meanwhile. */
void exi_rma_meet_request(void *asker, uint16_t port, bool front,
			  const struct sockaddr *local,
			  const struct sockaddr *peer, const void *data,
			  size_t len);

/* The proof that says where our memory is, and that of the other end; either end.
 * Net's lock. -errno. */
int exi_rma_meet_prove(struct exi_rma_link *l,
		       const struct exi_pact_payload *place,
		       struct exi_pact_proof *ret);
int exi_rma_meet_proved(struct exi_rma_link *l, const void *proof, size_t len,
			struct exi_pact_payload *ret);
/* Both ends are up. Net's lock. */
void exi_rma_meet_done(struct exi_rma_link *l);
/* There will be nothing, and why. Any lock. */
void exi_rma_meet_fail(struct exi_rma_link *l, int reason, const char *why);
/* The other end is gone, as the fabric tells: what came before is taken before, and
 * a link that is up ends, for it is not told that it was not met. The net's lock is
 * not held. */
void exi_rma_meet_lost(struct exi_rma_link *l, int reason, const char *why);
/* The same, for a message that was not taken. */
void exi_rma_meet_untaken(struct exi_rma_link *l, int err);
/* Aloud once: every connection after this one may meet the same. */
void exi_rma_meet_complain(const char *why);

#endif
