/* SPDX-License-Identifier: BSD-2-Clause */
/* What travels between two ends over a queue pair: docs/design/wire-verbs.md.
 * Numbers are little-endian, but for the immediate, which verbs swaps. */
#ifndef EXI_PROVIDERS_VERBS_WIRE_H
#define EXI_PROVIDERS_VERBS_WIRE_H

#include <stdint.h>

/* Bytes of the stream tell of themselves in 32 bits: what kind, and how many.
 * On InfiniBand and RoCE in the immediate of the write that places them; on
 * iWARP, which has none, in the message that follows it. */
#define VRB_NOTE_SHIFT	  30
#define VRB_NOTE_LEN	  ((1u << VRB_NOTE_SHIFT) - 1)
#define VRB_NOTE_INDIRECT 0u
#define VRB_NOTE_DIRECT	  1u

enum vrb_kind {
	VRB_CONFIRM = 1, /* the connecting end's proof, and its ring */
	VRB_READY,	 /* the accepting end's ring */
	VRB_NOTE,	 /* iWARP: note */
	VRB_END,	 /* seq */
	VRB_ADVERT,	 /* phase, seq, addr, key, note (len), flags */
	VRB_ACK,	 /* seq */
	VRB_REVOKE,	 /* phase */
	VRB_CREDIT,	 /* nothing but credits */
	VRB_TELL,	 /* a message of the pair link follows */
	VRB_KIND_MAX
};

#define VRB_FLAG_WAITALL 1u

/* Every message but those of an immediate begins so. */
struct vrb_msg {
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
_Static_assert(sizeof(struct vrb_msg) == 40, "struct vrb_msg");

/* What CONFIRM and READY prove: where the ring of their sender is. */
struct vrb_ring {
	uint64_t addr;
	uint32_t rkey;
	uint32_t bytes; /* a power of two */
};
_Static_assert(sizeof(struct vrb_ring) == 16, "struct vrb_ring");

#define VRB_RING_MIN 16384u
#define VRB_RING_MAX (256u << 10)

/* The largest message, and of the buffers it is received in. */
#define VRB_MSG_MAX 512

/* Messages that an end may have under way: the other has as many buffers ready.
 * What carries bytes leaves the reserve to what gives credits back. */
#define VRB_CREDITS 64u
#define VRB_RESERVE 16u
/* Received since credits were given back last, after which they are. */
#define VRB_GIVE 16u

#endif
