/* SPDX-License-Identifier: BSD-2-Clause */
/* What travels between two ends over a queue pair: docs/design/wire-verbs.md.
 * Numbers are little-endian, but for the immediate, which verbs swaps. */
#ifndef EXI_PROVIDERS_VERBS_WIRE_H
#define EXI_PROVIDERS_VERBS_WIRE_H

#include <stdint.h>

/* Bytes of the stream tell of themselves in 32 bits: what kind, and how many.
 * On InfiniBand and RoCE in the immediate of the write that places them; on
 * iWARP, which has none, in the message that follows it. */
#define VERBSP_NOTE_SHIFT    30
#define VERBSP_NOTE_LEN	     ((1u << VERBSP_NOTE_SHIFT) - 1)
#define VERBSP_NOTE_INDIRECT 0u
#define VERBSP_NOTE_DIRECT   1u

enum verbsp_kind {
	VERBSP_CONFIRM = 1, /* the connecting end's proof, and its ring */
	VERBSP_READY,	    /* the accepting end's ring */
	VERBSP_NOTE,	    /* iWARP: note */
	VERBSP_END,	    /* seq */
	VERBSP_ADVERT,	    /* phase, seq, addr, key, note (len), flags */
	VERBSP_ACK,	    /* seq */
	VERBSP_REVOKE,	    /* phase */
	VERBSP_CREDIT,	    /* nothing but credits */
	VERBSP_TELL,	    /* a message of the pair link follows */
};

#define VERBSP_FLAG_WAITALL 1u

/* Every message but those of an immediate begins so. */
struct verbsp_msg {
	uint8_t kind;
	uint8_t flags;
	uint16_t extra;	  /* bytes that follow this header */
	uint32_t credits; /* messages that its sender has received, in all */
	uint32_t phase;
	uint32_t seq;
	uint32_t note; /* NOTE: as the immediate; ADVERT: len */
	uint32_t zero;
	uint64_t addr;
	uint64_t key;
};
_Static_assert(sizeof(struct verbsp_msg) == 40, "struct verbsp_msg");

/* What CONFIRM and READY prove: where the ring of their sender is. */
struct verbsp_ring {
	uint64_t addr;
	uint32_t rkey;
	uint32_t bytes; /* a power of two */
};
_Static_assert(sizeof(struct verbsp_ring) == 16, "struct verbsp_ring");

#define VERBSP_RING_MIN 16384u
#define VERBSP_RING_MAX (256u << 10)

/* The largest message, and of the buffers it is received in. */
#define VERBSP_MSG_MAX 512

/* iWARP: as many bytes come with their NOTE, instead of by a write before it. */
#define VERBSP_EAGER 256u

/* Messages that an end may have under way: the other has as many buffers ready.
 * What carries bytes leaves the reserve to what gives credits back. */
#define VERBSP_CREDITS 64u
#define VERBSP_RESERVE 16u
/* Received since credits were given back last, after which they are. */
#define VERBSP_GIVE 16u

/* Between processes of one host that serve a port, in packets of a UNIX socket,
 * in the host's order: the owner of the port asks for a connection, and who has
 * it writes what A is to be told. */
#define VERBSP_DOOR_MAGIC 0x31445345u /* changes with what follows */

struct verbsp_asked {
	uint8_t local[16]; /* addresses by rdma_cm: IPv6, IPv4 as v4-mapped */
	uint8_t peer[16];
	uint16_t port; /* of TCP, here */
	uint8_t request[56];
};
_Static_assert(sizeof(struct verbsp_asked) == 90, "struct verbsp_asked");

struct verbsp_ask {
	uint32_t magic;
	uint32_t zero;
	uint64_t number; /* grows */
	struct verbsp_asked asked;
	uint8_t rest[6];
};
_Static_assert(sizeof(struct verbsp_ask) == 112, "struct verbsp_ask");

struct verbsp_told {
	uint32_t magic;
	uint32_t found; /* 0: not here */
	uint64_t number;
	uint8_t reject[148]; /* a redirect */
	uint8_t rest[4];
};
_Static_assert(sizeof(struct verbsp_told) == 168, "struct verbsp_told");

#endif
