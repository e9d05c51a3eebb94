/* SPDX-License-Identifier: BSD-2-Clause */
/* REQUEST, the first message of a handshake: which connection it asks for, and
 * the refusal of it; addresses as bytes. */
#ifndef EXI_CORE_RMA_REQUEST_H
#define EXI_CORE_RMA_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/trust/pact.h"

struct exi_key;
struct exi_pact_reject;
struct exi_rma_asked;
struct exi_tuple;

/* The key of this user; null: none. The service lock is held. */
const struct exi_key *exi_rma_meet_key(void);
/* Checks that REQUEST was written by a holder of the key, and for which ends;
 * the pact is ready to answer it. 0, or the enum exi_pact_why to refuse
 * with. */
int exi_rma_meet_check(const struct exi_rma_asked *asked, struct exi_tuple *ret,
		       struct exi_pact *ret_pact);
/* Makes the message to reject with. The pact may be null. */
void exi_rma_meet_no(struct exi_pact *pact, int why,
		     struct exi_pact_reject *ret);
/* Rejects, and destroys the asker. The pact may be null. */
void exi_rma_meet_refuse(void *asker, struct exi_pact *pact, int why);

/* Addresses as bytes: IPv6, or IPv4 as v4-mapped. */
void exi_rma_sockaddr(const uint8_t ip[16], uint16_t port, uint32_t scope,
		      struct sockaddr_storage *ret);
void exi_rma_from_sockaddr(const struct sockaddr *a, uint8_t ret[16]);
bool exi_rma_is_four(const uint8_t ip[16]);

/* Begins a handshake between these addresses of the fabric and of TCP. 0 or
 * -errno, as of exi_pact_init(). */
int exi_rma_request_begin(struct exi_pact *p, const struct exi_key *key,
			  enum exi_pact_side side, const struct exi_tuple *t,
			  const uint8_t local_ip[16],
			  const uint8_t peer_ip[16]);

#endif
