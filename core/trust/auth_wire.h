/* SPDX-License-Identifier: BSD-2-Clause */
/* The messages of the handshake between hosts; A called connect, B accepted.
 * Numbers of several bytes are little-endian.
 *
 *   REQUEST  A to B  in the private data of rdma_connect()
 *   ANSWER   B to A  in that of rdma_accept()
 *   REJECT   B to A  in that of rdma_reject(), instead
 *   CONFIRM  A to B  the first message over the connection
 *   GRANT    B to A  the second
 *
 * The first three are as long as InfiniBand's private data, because InfiniBand
 * does not transmit how much of it is used. Each MAC is the first bytes of an
 * HMAC-SHA-256 under the key over: a label, the ends (both addresses and ports
 * of the TCP connection, both fabric addresses, A's before B's), A's nonce, B's
 * nonce (zero in REQUEST and REJECT), and the whole message with a zero MAC. */
#ifndef EXI_CORE_TRUST_AUTH_WIRE_H
#define EXI_CORE_TRUST_AUTH_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define EXI_AUTH_MAGIC_0 'x'
#define EXI_AUTH_MAGIC_1 's'
/* The version of these messages, and of those after the handshake
 * (core/rma/wire.h). */
#define EXI_AUTH_VERSION 2

enum exi_auth_kind {
	EXI_AUTH_REQUEST = 1,
	EXI_AUTH_ANSWER = 2,
	EXI_AUTH_CONFIRM = 3,
	EXI_AUTH_GRANT = 4,
	EXI_AUTH_REJECT = 5,
};

#define EXI_AUTH_NONCE 16
#define EXI_AUTH_MAC   16

/* The head of every message. Its layout is the same in every version, except
 * for flags and length. */
struct exi_auth_head {
	uint8_t magic[2];
	uint8_t version;
	uint8_t kind;
	uint16_t flags; /* the fabric's */
	uint16_t len;	/* the payload's */
};

_Static_assert(sizeof(struct exi_auth_head) == 8, "no padding");
_Static_assert(offsetof(struct exi_auth_head, kind) == 3, "for all time");

struct exi_auth_request {
	struct exi_auth_head head;
	uint8_t key_id[8]; /* A's key */
	uint8_t tag[8];	   /* the TCP connection's */
	uint8_t nonce[EXI_AUTH_NONCE];
	uint8_t mac[EXI_AUTH_MAC];
};

_Static_assert(sizeof(struct exi_auth_request) == 56,
	       "all that RDMA_PS_TCP leaves of InfiniBand's request");
_Static_assert(offsetof(struct exi_auth_request, mac) == 40, "no padding");

/* Terms: what anybody may know of B, such as sizes. No address, no rkey. */
#define EXI_AUTH_TERMS 156

struct exi_auth_answer {
	struct exi_auth_head head;
	uint8_t nonce[EXI_AUTH_NONCE];
	uint8_t mac[EXI_AUTH_MAC];
	uint8_t terms[EXI_AUTH_TERMS];
};

_Static_assert(sizeof(struct exi_auth_answer) == 196, "InfiniBand's reply");
_Static_assert(offsetof(struct exi_auth_answer, terms) == 40, "no padding");

/* The place of the sender's memory: addresses, rkeys, sizes. */
#define EXI_AUTH_PLACE 232

/* The message of CONFIRM and GRANT. */
struct exi_auth_proof {
	struct exi_auth_head head;
	uint8_t mac[EXI_AUTH_MAC];
	uint8_t place[EXI_AUTH_PLACE];
};

_Static_assert(sizeof(struct exi_auth_proof) == 256, "a power of two");
_Static_assert(offsetof(struct exi_auth_proof, place) == 24, "no padding");

struct exi_auth_reject {
	struct exi_auth_head head;
	uint8_t why; /* enum exi_auth_why */
	uint8_t zero[5];
	uint16_t port;		   /* REDIRECT: the port to ask */
	uint8_t token[8];	   /* REDIRECT: the process to ask */
	uint8_t key_id[8];	   /* B's key; zero if it has none */
	uint8_t mac[EXI_AUTH_MAC]; /* zero: no proof for A */
	uint8_t rest[100];
};

_Static_assert(sizeof(struct exi_auth_reject) == 148, "InfiniBand's reject");
_Static_assert(offsetof(struct exi_auth_reject, port) == 14 &&
		       offsetof(struct exi_auth_reject, token) == 16 &&
		       offsetof(struct exi_auth_reject, mac) == 32,
	       "no padding");

/* The record of a direction that continues over TCP after its fabric failed. It
 * is in the stream, and states the position of the next byte:
 * docs/design/wire-verbs.md. */
#define EXI_AUTH_TAG 16

struct exi_auth_resume {
	/* The tag of the handshake, the direction and its epoch; nobody else
	 * can compute it before it is sent. */
	uint8_t tag[EXI_AUTH_TAG];
	uint8_t position[8];
	uint8_t mac[EXI_AUTH_MAC];
};

_Static_assert(sizeof(struct exi_auth_resume) == 40, "no padding");

#endif
