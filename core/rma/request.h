/* SPDX-License-Identifier: BSD-2-Clause */
/* REQUEST, the first message of a handshake: which connection it asks for, and
 * how it is refused; addresses as bytes. */
#ifndef EXI_CORE_RMA_REQUEST_H
#define EXI_CORE_RMA_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/trust/auth.h"

struct exi_key;
struct exi_auth_reject;
struct exi_rma_asked;
struct exi_tuple;

/* The key of this user; null: none. The service lock is held. */
const struct exi_key *exi_rma_meet_key(void);
/* Checks that a holder of the key wrote the REQUEST, and returns which ends it
 * is for; *ret_auth is then ready to answer it. 0, or the enum exi_auth_why to
 * refuse with; the core is told of a stranger. */
int exi_rma_meet_check(const struct exi_rma_asked *asked, struct exi_tuple *ret,
		       struct exi_auth *ret_auth);
/* Makes the message of a refusal. auth may be null. */
void exi_rma_meet_no(struct exi_auth *auth, int why,
		     struct exi_auth_reject *ret);
/* Rejects, and destroys the asker. auth may be null. */
void exi_rma_meet_refuse(void *asker, struct exi_auth *auth, int why);

/* Addresses as bytes: IPv6, or IPv4 as v4-mapped. */
void exi_rma_sockaddr(const uint8_t ip[16], uint16_t port, uint32_t scope,
		      struct sockaddr_storage *ret);
void exi_rma_from_sockaddr(const struct sockaddr *a, uint8_t ret[16]);
bool exi_rma_is_four(const uint8_t ip[16]);

/* Begins a handshake between these addresses of the fabric and of TCP. 0 or
 * -errno, as of exi_auth_init(). */
int exi_rma_request_begin(struct exi_auth *p, const struct exi_key *key,
			  enum exi_auth_side side, const struct exi_tuple *t,
			  const uint8_t local_ip[16],
			  const uint8_t peer_ip[16]);

#endif
