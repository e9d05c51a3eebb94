/* SPDX-License-Identifier: BSD-2-Clause */
/* Moves the unread bytes of peers that are gone into UNIX pairs. The call that
 * makes the pairs moves a bounded part, however many bytes there are; a feeder
 * (base/feeder.h), one process for all pairs of the call, moves the rest. */
#ifndef EXI_CORE_CALL_FEED_H
#define EXI_CORE_CALL_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

/* The unread bytes of one connection, in order: those in memory, those on TCP,
 * those in the ring. Nothing else reads them. */
struct exi_feed {
	int to; /* the end of the pair to write to */
	/* The TCP socket, or -1, and how many of its bytes to read. all: read
	 * until its end; the first `returned` bytes of the ring are then among
	 * those bytes, or have been read before. */
	int from;
	bool all;
	uint64_t left;
	int64_t returned;
	char *bytes; /* from malloc(3), or null */
	size_t n, done;
	const struct exi_apart_ops *ops; /* null: no ring */
	struct exi_apart ring;
	uint64_t heard; /* how many bytes of the ring count at most */
	bool reset;	/* ends with a reset, not an end of stream */
	bool asks;	/* TCP decides between the two */
	bool waits;	/* for TCP, not for room in the pair */
	uint64_t since; /* when bytes moved last */
};

/* Moves the part that the call may move. 0: everything has moved; -EAGAIN. */
int exi_feed_begin(struct exi_feed *f);
/* Closes the feed. Its reader then finds the end of the stream, or a reset if
 * not all bytes have moved. */
void exi_feed_end(struct exi_feed *f);

/* Takes over the feed, for exi_feed_rest(). Bytes beyond the limit are reported
 * as lost. */
void exi_feed_later(struct exi_feed *f);
/* Hands all waiting feeds to a feeder. Every call that takes connections back
 * to TCP ends with this. */
EXI_SHIM void exi_feed_rest(void);

/* Called in a forked child: forgets the waiting feeds, which are its
 * parent's. */
void exi_feed_forked(void);

#endif
