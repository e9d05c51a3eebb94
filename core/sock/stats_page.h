/* SPDX-License-Identifier: BSD-2-Clause */
/* The page of counters of a process, as exs stat finds it. docs/design/stats.md
 * has its layout, and the argument of the order. */
#ifndef EXI_CORE_SOCK_STATS_PAGE_H
#define EXI_CORE_SOCK_STATS_PAGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXI_STATS_NAME	  "libexs-stats" /* of the memfds */
#define EXI_STATS_MAGIC	  0x5354415453584531u
#define EXI_STATS_VERSION 1u
#define EXI_STATS_LINE	  64u
#define EXI_STATS_AREAS	  16u
#define EXI_STATS_FIRST	  4096u /* entries of the first area */
/* A process that may have fewer descriptors than this has no page, and keeps
 * all its descriptors. */
#define EXI_STATS_FDS 128u

/* One direction of a connection: what the process that has the page knew when
 * it moved bytes there last. */
struct exi_stats_dir {
	_Atomic uint64_t bytes;
	_Atomic uint64_t fabric_bytes;
	_Atomic uint64_t direct_bytes;
	_Atomic uint64_t moves; /* transfers that moved bytes */
	_Atomic uint64_t moved; /* when: CLOCK_MONOTONIC ns, or 0 */
	_Atomic uint64_t bells; /* wake-ups given (TX), taken (RX) */
	_Atomic uint32_t sleeps;
	_Atomic uint32_t spins;
	_Atomic uint32_t mode; /* enum exi_mode */
	_Atomic uint16_t ups;
	_Atomic uint16_t downs;
};

/* One connection. `turn` changes before and after the entry becomes another
 * connection's, and is odd in between. */
struct exi_stats_entry {
	_Atomic uint32_t turn;
	_Atomic int32_t fd; /* -1: none */
	_Atomic uint32_t role;
	_Atomic uint32_t reason;
	_Atomic uint64_t born;	    /* CLOCK_MONOTONIC ns */
	_Atomic uint64_t fabric[2]; /* the name's characters; 0: none */
	unsigned char room[88];
	struct exi_stats_dir dir[2]; /* by enum exi_dir */
};

/* The beginning of the first area. Members are added at the end. */
struct exi_stats_head {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes; /* of this head */
	int32_t pid;	/* as its own namespace has it */
	uint32_t entry_bytes;
	uint64_t entries_at; /* in the first area */
	/* One byte for each descriptor: 0, or 1 and the role of a connection
	 * that the kernel still serves and that has no entry. */
	uint64_t young_at;
	uint64_t young_bytes;
	uint64_t born; /* CLOCK_MONOTONIC ns */
	/* Entries, and descriptors, from here on were never used. */
	_Atomic uint32_t entries_high;
	_Atomic uint32_t young_high;
	_Atomic uint32_t unlisted; /* connections for which there was no room */
	uint32_t ring_bytes;	   /* the size to which a ring may grow */
	uint64_t upgrade_bytes;	   /* of EXS_UPGRADE; UINT64_MAX: never */
	/* The inode of each area but the first; 0: there is none. Area n has as
	 * many entries as all before it. */
	_Atomic uint64_t areas[EXI_STATS_AREAS];
	char library[32]; /* the version of libexs */
	/* Totals of the connections that are over; by enum exi_dir. */
	_Atomic uint64_t ended;
	_Atomic uint64_t ended_bytes[2];
	_Atomic uint64_t ended_fabric_bytes[2];
	_Atomic uint64_t ended_moves[2];
	/* The inode of the pipe for requests, 0: there is none; and the last
	 * answer (exi_stats_answer()). */
	uint64_t control;
	_Atomic uint64_t answer_token;
	_Atomic int64_t answer;
	/* Room for the text of an answer, in the first area; 0: there is
	 * none. */
	uint64_t text_at;
	uint64_t text_bytes;
};

/* A request through the pipe: written at once, so that those of several
 * processes do not mix. */
struct exi_control_ask {
	uint64_t magic;
	uint64_t token; /* of the answer; not 0, never used before */
	uint32_t what;	/* enum exi_control */
	int32_t fd;	/* -1: all */
	int32_t value;
	uint32_t snap; /* of each packet, bytes that are kept */
	uint64_t life; /* the inode of the pipe that was offered */
	uint32_t ring; /* bytes, a power of two */
	uint32_t room[5];
};
#define EXI_CONTROL_MAGIC 0x4b53415453584531u

enum exi_control {
	EXI_CONTROL_LOG = 1, /* the level, value if it is not -1; answers it */
	EXI_CONTROL_DOWN,    /* to TCP; answers how many connections go */
	EXI_CONTROL_UP,	     /* not any more; answers how many */
	EXI_CONTROL_REPORT,  /* answers how many bytes of text there are */
	/* A capture (capture.h) is to begin; it begins: of connections with
	 * this descriptor, and with value as port, if it is not 0. */
	EXI_CONTROL_OFFER,
	EXI_CONTROL_CAPTURE,
};

_Static_assert(sizeof(struct exi_control_ask) == 64, "layout");
_Static_assert(sizeof(struct exi_stats_dir) == EXI_STATS_LINE, "layout");
_Static_assert(sizeof(struct exi_stats_entry) == 4 * EXI_STATS_LINE, "layout");
_Static_assert(offsetof(struct exi_stats_entry, dir) == 2 * EXI_STATS_LINE,
	       "layout");
_Static_assert(sizeof(struct exi_stats_head) <= 4096, "layout");

#endif
