/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake of two ends on different hosts, over anything that carries
 * messages between them. No descriptor can be shown there: both prove that they
 * hold one key, and mean one TCP connection and one pair of fabric addresses.
 *
 *   A: request, take_answer, confirm, take_grant     or take_reject
 *   B: read_claim, take_request, answer, take_confirm, grant     or reject
 *
 * What each message proves, and what it may carry:
 *
 *   REQUEST  proves that a holder of the key once wrote it for these ends; it
 *            may be a replay. B only answers it.
 *   ANSWER   proves that B holds the key now: A's nonce is in its MAC. It
 *            carries terms that anybody may know, no addresses, no rkeys.
 *   CONFIRM  proves that A holds the key now: B's nonce is in its MAC. It
 *            carries the place of A's memory, because B has proved itself.
 *   GRANT    carries the place of B's memory, because A has proved itself.
 *   REJECT   with a MAC, proves that B holds the key and saw this REQUEST;
 *            without one, nothing: all that A does then is to stay on TCP.
 *
 * Until CONFIRM was taken, B's queue pair must give the other side no access to
 * memory: no remote access, only receives. The same holds for A until it has
 * taken ANSWER. docs/design/security.md has the argument.
 *
 * The order is enforced here: a call out of turn returns -EPROTO. If a message
 * cannot be taken, the handshake is over, and every further call returns
 * -EPROTO. Another handshake for the same connection is another object, with
 * other nonces.
 *
 * Threads: one at a time per object. Nothing blocks or logs. Messages are taken
 * from bytes of any origin; they are copied once, then checked. */
#ifndef EXI_CORE_TRUST_AUTH_H
#define EXI_CORE_TRUST_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/trust/key.h"
#include "core/trust/auth_wire.h"

struct exi_tuple;

enum exi_auth_side {
	EXI_AUTH_A, /* called connect */
	EXI_AUTH_B, /* accepted */
};

/* Why B does not meet A. Values never change. */
enum exi_auth_why {
	/* The ends have other versions of the messages. */
	EXI_AUTH_WHY_VERSION = 1,
	EXI_AUTH_WHY_NO_KEY = 2,  /* B has no usable key */
	EXI_AUTH_WHY_KEY = 3,	  /* B has another key */
	EXI_AUTH_WHY_PROOF = 4,	  /* one key, but the MAC is wrong */
	EXI_AUTH_WHY_UNKNOWN = 5, /* no such connection any more, or ever */
	EXI_AUTH_WHY_BUSY = 6,	  /* too many meetings at once */
	/* The connection is in another process at B. */
	EXI_AUTH_WHY_REDIRECT = 7,
	EXI_AUTH_WHY_FABRIC = 8, /* B does not want this fabric */
};

/* The two ends, as one of them sees them. Both must describe each other alike.
 * Fabric addresses are compared as IP addresses and ports: IPv4 is v4-mapped
 * IPv6, and a port that one end does not know is 0 at both. Addresses of
 * another family are compared byte by byte; at most 126 bytes. */
struct exi_auth_ends {
	const struct exi_tuple *tcp;
	const struct sockaddr *fabric_local;
	socklen_t fabric_local_len;
	const struct sockaddr *fabric_peer;
	socklen_t fabric_peer_len;
};

struct exi_auth {
	const struct exi_key *key; /* the caller's; outlives this */
	enum exi_auth_side side;
	int state;
	uint8_t ends[32]; /* a MAC over the ends */
	uint8_t tag[8];
	uint8_t nonce_a[EXI_AUTH_NONCE];
	uint8_t nonce_b[EXI_AUTH_NONCE];
};

/* The payload of a message. */
struct exi_auth_payload {
	uint16_t flags;
	uint16_t len;
	uint8_t bytes[EXI_AUTH_PLACE];
};

struct exi_auth_refusal {
	int why; /* enum exi_auth_why, or a value not known here */
	uint16_t port;
	uint64_t token;
	uint8_t key_id[EXI_KEY_ID_BYTES];
	bool proved; /* out: B holds the key; else no redirect */
};

/* The words of a REQUEST before anything is proved. */
struct exi_auth_claim {
	uint16_t flags;
	uint8_t tag[8];
	uint8_t key_id[EXI_KEY_ID_BYTES];
};

/* A name of the TCP connection that only holders of the key can compute, the
 * same at both ends. */
void exi_auth_tag(const struct exi_key *key, enum exi_auth_side side,
		  const struct exi_tuple *tcp, uint8_t ret[8]);

/* A name of an address and a port that only holders of the key can compute, by
 * which processes of one host find each other: nobody else can take it before
 * it was seen. */
void exi_auth_door(const struct exi_key *key, const uint8_t addr[16],
		   uint16_t port, uint8_t ret[16]);

/* Begins a handshake. -EINVAL: an address is too long. -EACCES: everybody
 * has the key, and the fabric address is not the address of the TCP peer. */
int exi_auth_init(struct exi_auth *m, const struct exi_key *key,
		  enum exi_auth_side side, const struct exi_auth_ends *ends);
/* Wipes the handshake's state; a zeroed state is allowed. */
void exi_auth_fini(struct exi_auth *m);

/* Reads the claim in a REQUEST, before there is a handshake. 0, or an error;
 * every call that takes a message returns one of these errors:
 * - -EBADMSG: not this kind of message, or not of its length.
 * - -EPROTONOSUPPORT: another version.
 * - -EKEYREJECTED: under another key.
 * - -EACCES: the MAC is wrong: other ends, another handshake, or a forgery.
 * - -EPROTO: out of turn. */
int exi_auth_read_claim(const void *buf, size_t len,
			struct exi_auth_claim *ret);

/* A's calls. */
int exi_auth_request(struct exi_auth *m, uint16_t flags,
		     struct exi_auth_request *ret);
int exi_auth_take_answer(struct exi_auth *m, const void *buf, size_t len,
			 struct exi_auth_payload *ret);
/* Makes CONFIRM. -EMSGSIZE: more than EXI_AUTH_PLACE bytes. */
int exi_auth_confirm(struct exi_auth *m, const struct exi_auth_payload *place,
		     struct exi_auth_proof *ret);
int exi_auth_take_grant(struct exi_auth *m, const void *buf, size_t len,
			struct exi_auth_payload *ret);
/* Takes REJECT, and ends the handshake, also on error. -EACCES: the MAC is
 * wrong, or missing in a redirect. */
int exi_auth_take_reject(struct exi_auth *m, const void *buf, size_t len,
			 struct exi_auth_refusal *ret);

/* B's calls. */
int exi_auth_take_request(struct exi_auth *m, const void *buf, size_t len,
			  uint16_t *ret_flags);
/* Makes ANSWER. -EMSGSIZE: more than EXI_AUTH_TERMS bytes. */
int exi_auth_answer(struct exi_auth *m, const struct exi_auth_payload *terms,
		    struct exi_auth_answer *ret);
int exi_auth_take_confirm(struct exi_auth *m, const void *buf, size_t len,
			  struct exi_auth_payload *ret);
int exi_auth_grant(struct exi_auth *m, const struct exi_auth_payload *place,
		   struct exi_auth_proof *ret);
/* Makes REJECT, and ends the handshake; m is null if none has begun. REJECT has
 * a proof for A if a REQUEST was taken. The process that has the connection
 * writes a redirect, for the process that got the REQUEST, because a proof
 * requires the ends. */
void exi_auth_reject(struct exi_auth *m, const struct exi_auth_refusal *why,
		     struct exi_auth_reject *ret);
/* Checks, after the REQUEST was taken, whether these bytes are a redirect for
 * that REQUEST, written by a holder of the key: A will believe it, whichever
 * process sends it. 0, or the errors of taking a message. The state does not
 * change. */
int exi_auth_check_redirect(const struct exi_auth *m, const void *buf,
			    size_t len);

/* The result of a finished handshake: a key of its own, the same at both
 * ends. */
struct exi_auth_bond {
	enum exi_auth_side side;
	uint8_t key[32];
};

/* Makes the bond. -EPROTO: the handshake is not finished. */
int exi_auth_bond(const struct exi_auth *m, struct exi_auth_bond *ret);
/* Makes the record by which the sender of a direction states where it
 * continues. sends: this end is the sender; both ends make the same record. The
 * tag is the same for every position. */
void exi_auth_resume(const struct exi_auth_bond *b, bool sends, uint32_t epoch,
		     uint64_t position, struct exi_auth_resume *ret);

/* exi_auth_why: the enum exi_auth_why to reject with, for an error of taking a
 * REQUEST or CONFIRM. exi_auth_reason: the exs_x_reason of such a value. */
int exi_auth_why(int err);
int exi_auth_reason(int why);

#endif
