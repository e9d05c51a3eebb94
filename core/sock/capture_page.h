/* SPDX-License-Identifier: BSD-2-Clause */
/* The capture of a process, as exs trace reads it: a ring of records in a
 * memfd. docs/design/stats.md has the argument of the order. */
#ifndef EXI_CORE_SOCK_CAPTURE_PAGE_H
#define EXI_CORE_SOCK_CAPTURE_PAGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXI_CAPTURE_NAME    "libexs-capture" /* of the memfd */
#define EXI_CAPTURE_MAGIC   0x5041435453584531u
#define EXI_CAPTURE_VERSION 1u
#define EXI_CAPTURE_RING    4096u /* where the ring begins */
/* The size of the ring, a power of two. */
#define EXI_CAPTURE_LEAST (256u << 10)
#define EXI_CAPTURE_MOST  (256u << 20)
/* A record has at most this many bytes of the stream: one packet of IPv4. */
#define EXI_CAPTURE_PIECE 64000u

/* Positions count the bytes of records without wrap. */
struct exi_capture_head {
	uint64_t magic;
	uint32_t version;
	int32_t pid; /* as its own namespace has it */
	uint64_t ring_bytes;
	/* The records from tail to head are whole; what lies before tail was,
	 * or is being, overwritten. */
	_Atomic uint64_t tail;
	_Atomic uint64_t head;
};

enum exi_capture_kind {
	EXI_CAPTURE_DATA,
	EXI_CAPTURE_END, /* the process closed the connection */
};

enum {
	/* No byte was moved before: the capture has all of the connection. */
	EXI_CAPTURE_FIRST = 1 << 0,
	/* The direction was on another fabric, or had another reason, before;
	 * or this is its first record. */
	EXI_CAPTURE_NEWS = 1 << 1,
	/* The peer had ended its direction. */
	EXI_CAPTURE_ENDED = 1 << 2,
};

/* Followed by what is stored of the bytes that moved. */
struct exi_capture_record {
	uint32_t bytes;	   /* of the record, a multiple of 8 */
	uint32_t stored;   /* bytes that follow */
	uint32_t length;   /* bytes that moved */
	uint32_t kind;	   /* enum exi_capture_kind */
	uint64_t number;   /* counts records, also those that are lost */
	uint64_t at;	   /* CLOCK_REALTIME ns */
	uint64_t position; /* of the first byte in its direction */
	uint64_t other;	   /* bytes that the other direction had moved */
	uint32_t dir;	   /* enum exi_dir */
	uint32_t flags;
	uint32_t reason;
	int32_t fd;
	uint32_t serial;  /* another one for each connection of a capture */
	uint32_t family;  /* AF_INET, AF_INET6, or another: no addresses */
	uint16_t port[2]; /* here, there; host order */
	uint32_t role;	  /* enum exi_role */
	char fabric[16];
	uint8_t addr[2][16]; /* here, there; IPv4: the first four bytes */
};

_Static_assert(sizeof(struct exi_capture_head) <= EXI_CAPTURE_RING, "layout");
_Static_assert(sizeof(struct exi_capture_record) % 8 == 0, "layout");
_Static_assert(4 * (EXI_CAPTURE_PIECE + sizeof(struct exi_capture_record)) <=
		       EXI_CAPTURE_LEAST + 65536,
	       "a ring has several records");

#endif
