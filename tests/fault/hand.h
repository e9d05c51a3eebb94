/* SPDX-License-Identifier: BSD-2-Clause */
/* Anything that a peer may write. The peer is this process's own library, which
 * has met the victim honestly. */
#ifndef TESTS_FAULT_HAND_H
#define TESTS_FAULT_HAND_H

#include <stddef.h>
#include <stdint.h>

#include "providers/shm/shm_int.h"
#include "tests/support/bytes.h"

/* Sends any message on a link (link.h). Some of its numbers are near this
 * position. */
void t_lie(struct t_rng *r, int link, uint64_t near);

/* A hand on the segment of a connection: a second mapping, for the library
 * unmaps its own when the victim hangs up. */
struct t_hand {
	struct shmp_segment *seg;
	unsigned char *ring;
	size_t mapped;
	uint32_t bytes; /* of the ring, in use */
	uint32_t whole;
	uint64_t head; /* the record that the victim awaits */
	int link;
};

/* For the connection s, which is on shm, and its link. */
void t_hand_lay(struct t_hand *h, int s, int link);
void t_hand_lift(struct t_hand *h);

/* Writes anything into the segment, and wakes the victim. */
void t_hand_scribble(struct t_rng *r, struct t_hand *h);

/* Wakes whoever waits for data, or for room. */
void t_hand_wake(struct t_hand *h);

#endif
