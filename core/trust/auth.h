/* SPDX-License-Identifier: BSD-2-Clause */
/* The meeting of two ends on different hosts, over whatever carries messages
 * between them. No descriptor can be shown there: both prove that they hold
 * one key, and mean one TCP connection and one pair of fabric addresses.
 *
 *   A: request, take_answer, confirm, take_grant     or take_reject
 *   B: look, take_request, answer, take_confirm, grant     or reject
 *
 * What each message proves, and what may travel:
 *
 *   REQUEST  that a holder of the key once wrote it for these ends; it may be
 *            a replay. B does nothing for it but answer.
 *   ANSWER   that B holds the key now: A's nonce is in its MAC. It carries
 *            terms that anybody may know, no addresses, no rkeys.
 *   CONFIRM  that A holds the key now: B's nonce is in its MAC. It carries
 *            where A's memory is, because B has proved itself.
 *   GRANT    carries where B's memory is, because A has.
 *   REJECT   with a MAC, that B holds the key and saw this REQUEST; without,
 *            nothing: A believes it only that it stays on TCP.
 *
 * Until CONFIRM was taken, what B has connected must not let the other side
 * into any memory: no remote access on the queue pair, receives alone. A does
 * the same until the ANSWER. docs/design/security.md has the argument.
 *
 * The order is kept here: a call out of turn is -EPROTO, and who fails to take
 * a message has ended the meeting, for which every further call is -EPROTO.
 * Another meeting of the same connection is another object, with other nonces.
 *
 * Threads: one at a time for an object. Nothing blocks or logs. Messages are
 * taken from bytes of any origin; they are copied once, then checked. */
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
	EXI_AUTH_WHY_UNKNOWN = 5, /* no such connection, or not any more */
	EXI_AUTH_WHY_BUSY = 6,	  /* too many meetings at once */
	/* The connection is in another process at B. */
	EXI_AUTH_WHY_REDIRECT = 7,
	EXI_AUTH_WHY_FABRIC = 8, /* B does not want this fabric */
};

/* The ends, as one of them sees them. Both must give the same of each other:
 * fabric addresses are compared as IP addresses and ports (IPv4 is v4-mapped
 * IPv6; a port that an end does not know is 0 at both), or, of another family,
 * byte by byte; at most 126 bytes. */
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

/* The payload of a message that was taken. */
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
	bool proved; /* out: B holds the key. Without it there is no redirect */
};

/* The words of a REQUEST before anything is proved. */
struct exi_auth_claim {
	uint16_t flags;
	uint8_t tag[8];
	uint8_t key_id[EXI_KEY_ID_BYTES];
};

/* The name of a TCP connection among holders of the key, the same at both
 * ends. */
void exi_auth_tag(const struct exi_key *key, enum exi_auth_side side,
		  const struct exi_tuple *tcp, uint8_t ret[8]);

/* The name of an address and a port among holders of the key, for processes of
 * one host to find each other by: nobody else can take it before it was
 * seen. */
void exi_auth_door(const struct exi_key *key, const uint8_t addr[16],
		   uint16_t port, uint8_t ret[16]);

/* Begins a handshake. -EINVAL: an address is too long. -EACCES: the key is
 * everybody's, and the fabric address is not the address of the TCP peer. */
int exi_auth_init(struct exi_auth *m, const struct exi_key *key,
		  enum exi_auth_side side, const struct exi_auth_ends *ends);
/* Wipes the handshake's state; a state of zeroes is fine. */
void exi_auth_fini(struct exi_auth *m);

/* Reads what a REQUEST says, before there is a handshake. 0, or an error, which
 * is one of these for every call that takes a message:
 * -EBADMSG: not this kind of message, or not of its length.
 * -EPROTONOSUPPORT: another version.
 * -EKEYREJECTED: under another key.
 * -EACCES: the MAC is wrong: other ends, another handshake, or a forgery.
 * -EPROTO: out of turn. */
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
/* Makes REJECT, and ends the handshake; m is null where none has begun. REJECT
 * has a proof for A if a REQUEST was taken. A redirect is written by the
 * process that has the connection, for the one that got the REQUEST: nothing
 * can be proved without knowing the ends. */
void exi_auth_reject(struct exi_auth *m, const struct exi_auth_refusal *why,
		     struct exi_auth_reject *ret);
/* Checks, after the REQUEST was taken, whether these bytes are a redirect for
 * that very REQUEST, written by a holder of the key: A will believe them,
 * whoever offers them. 0, or the errors of taking a message. The state does not
 * change. */
int exi_auth_check_redirect(const struct exi_auth *m, const void *buf,
			    size_t len);

/* What remains of a handshake that is done: a key of its own, the same at both
 * ends. */
struct exi_auth_bond {
	enum exi_auth_side side;
	uint8_t key[32];
};

/* Makes the bond. -EPROTO: the handshake is not done. */
int exi_auth_bond(const struct exi_auth *m, struct exi_auth_bond *ret);
/* Makes the record by which the sender of a direction says where it goes on.
 * sends: the direction in which this end sends, else the other; both ends make
 * the same record. The tag is the same for every position. */
void exi_auth_resume(const struct exi_auth_bond *b, bool sends, uint32_t epoch,
		     uint64_t position, struct exi_auth_resume *ret);

/* The enum exi_auth_why to reject with, for an error of taking a REQUEST or
 * CONFIRM; and the exs_x_reason of such a value. */
int exi_auth_why(int err);
int exi_auth_reason(int why);

#endif
