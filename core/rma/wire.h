/* SPDX-License-Identifier: BSD-2-Clause */
/* The messages between two ends over a queue pair, or over what stands for one:
 * docs/design/wire-verbs.md. Numbers are little-endian, except immediate data,
 * which the device swaps. */
#ifndef EXI_CORE_RMA_WIRE_H
#define EXI_CORE_RMA_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* A note announces bytes of the stream in 32 bits: their kind and their number.
 * InfiniBand and RoCE carry it in the immediate data of the write that places
 * the bytes; iWARP, which has none, in the message that follows the write. */
#define EXI_RMA_NOTE_SHIFT    30
#define EXI_RMA_NOTE_LEN      ((1u << EXI_RMA_NOTE_SHIFT) - 1)
#define EXI_RMA_NOTE_INDIRECT 0u
#define EXI_RMA_NOTE_DIRECT   1u

enum exi_rma_kind {
	EXI_RMA_CONFIRM = 1, /* the connecting end's proof, and its ring */
	EXI_RMA_READY,	     /* the accepting end's ring */
	EXI_RMA_NOTE,	     /* note; bytes of the ring may follow */
	EXI_RMA_END,	     /* seq */
	EXI_RMA_ADVERT,	     /* phase, seq, addr, key, note (len), flags */
	EXI_RMA_ACK,	     /* seq */
	EXI_RMA_REVOKE,	     /* phase */
	EXI_RMA_CREDIT,	     /* nothing but credits */
	EXI_RMA_TELL,	     /* a message of the pair link follows */
	EXI_RMA_BYTES,	     /* bytes of the ring follow a brief header */
};

#define EXI_RMA_FLAG_WAITALL 1u /* ADVERT */
/* END, CREDIT: the sender leaves the connection. */
#define EXI_RMA_FLAG_CLOSES 2u

/* The header of every message, except notes in immediate data. */
struct exi_rma_msg {
	uint8_t kind;
	uint8_t flags;
	uint16_t extra;	  /* bytes that follow this header */
	uint32_t credits; /* messages that the sender has received, in all */
	uint32_t phase;
	uint32_t seq;
	uint32_t note; /* NOTE: as the immediate; ADVERT: len */
	uint32_t name; /* the link's, where no queue pair identifies it */
	uint64_t addr;
	uint64_t key;
};
_Static_assert(sizeof(struct exi_rma_msg) == 40, "struct exi_rma_msg");

/* BYTES has only kind, flags, extra and credits of the header, so that a few
 * bytes fit into the request itself on devices that take few inline. */
#define EXI_RMA_BRIEF 8u
_Static_assert(offsetof(struct exi_rma_msg, phase) == EXI_RMA_BRIEF,
	       "struct exi_rma_msg begins as BYTES do");

#define EXI_RMA_RING_MIN 16384u
#define EXI_RMA_RING_MAX (256u << 10)

/* The size of the largest message, and of the buffers for them. */
#define EXI_RMA_MSG_MAX 512

/* The most bytes that come with their NOTE, instead of by a write. */
#define EXI_RMA_EAGER 256u

/* Messages that an end may have under way: the other end has as many buffers
 * ready. Messages with bytes leave the reserve to messages that give credits
 * back. */
#define EXI_RMA_CREDITS 64u
#define EXI_RMA_RESERVE 16u
/* Credits are given back after this many received messages. */
#define EXI_RMA_GIVE 16u

/* Packets between the processes of one host that serve a port, over a UNIX
 * socket, in host byte order: the owner of the port asks for a connection, and
 * the process that has it writes the reply for A. */
#define EXI_RMA_DOOR_MAGIC 0x31445345u /* changes with what follows */

struct exi_rma_asked {
	uint8_t local
		[16]; /* addresses of the fabric: IPv6, IPv4 as v4-mapped */
	uint8_t peer[16];
	uint16_t port; /* TCP's, at this end */
	uint8_t request[56];
};
_Static_assert(sizeof(struct exi_rma_asked) == 90, "struct exi_rma_asked");

struct exi_rma_ask {
	uint32_t magic;
	uint32_t zero;
	uint64_t number; /* grows */
	struct exi_rma_asked asked;
	uint8_t rest[6];
};
_Static_assert(sizeof(struct exi_rma_ask) == 112, "struct exi_rma_ask");

struct exi_rma_told {
	uint32_t magic;
	uint32_t found; /* 0: the connection is not here */
	uint64_t number;
	uint8_t reject[148]; /* a redirect */
	uint8_t rest[4];
};
_Static_assert(sizeof(struct exi_rma_told) == 168, "struct exi_rma_told");

#endif
