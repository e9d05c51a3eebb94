/* SPDX-License-Identifier: BSD-2-Clause */
/* What peers that are gone left unread, on its way into UNIX pairs. The call
 * that makes the pairs moves a bounded part of it, however much there is; a
 * feeder, one process for all pairs of the call, moves the rest. */
#ifndef EXI_CORE_CALL_FEED_H
#define EXI_CORE_CALL_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

/* The unread bytes of one connection, in their order: those in memory, those on
 * TCP, those in the ring. Nobody else reads these. */
struct exi_feed {
	int to; /* the end of the pair that is written */
	/* TCP, or -1; and how many of its bytes belong here. All: as many as
	 * come before its end; the first `returned` bytes of the ring are among
	 * them, or have been read before. */
	int from;
	bool all;
	uint64_t left;
	int64_t returned;
	char *bytes; /* malloc(3)ed, or null */
	size_t n, done;
	const struct exi_apart_ops *ops; /* null: there is no ring */
	struct exi_apart ring;
	uint64_t heard; /* at most so many bytes of the ring count */
	bool reset;	/* and not the end of the stream */
	bool asks;	/* TCP says which of these it is */
	bool waits;	/* for TCP, and not for room in the pair */
	uint64_t since; /* when something moved last */
};

/* Moves what the call may: 0 when all has moved, -EAGAIN. */
int exi_feed_begin(struct exi_feed *f);
/* The reader finds the end, or the reset if not all has moved. Closes what the
 * feed has. */
void exi_feed_end(struct exi_feed *f);

/* Takes the feed over, for exi_feed_rest(). What may not be held is told as
 * lost. */
void exi_feed_later(struct exi_feed *f);
/* Hands all feeds that wait to a feeder. The calls that take connections back
 * to TCP end so. */
EXI_SHIM void exi_feed_rest(void);

/* In a child: the feeds that wait are its parent's. */
void exi_feed_forked(void);

#endif
