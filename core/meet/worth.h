/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a meeting is worth its cost: how long a connection lasts before it
 * meets.
 *
 * A meeting costs both processes as much as some hundred messages, and nobody
 * knows how long a connection will last. So a process learns from its
 * connections: while meetings turn out to be in vain, because the connections
 * end before the ring has saved as much, later ones meet only when they have
 * lasted for a while, at most some eight milliseconds, in which a meeting is a
 * small part. A connection that gained from its meeting makes that time
 * shorter. */
#ifndef EXI_CORE_MEET_WORTH_H
#define EXI_CORE_MEET_WORTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/fabric/provider.h"

struct exi_sock;

/* Called when the traffic of a direction passed its mark `at', or len bytes
 * that the program sends will pass it: whether the connection is too young to
 * meet, or to look for its peer. If so, the mark remains passed, or A has a
 * later one, before which it does not bind its name: B looks at each. No lock
 * held. */
bool exi_worth_later(struct exi_sock *sk, int fd, enum exi_dir dir, uint64_t at,
		     size_t len);

/* For B: for how many ns more its connection is too young. */
uint64_t exi_worth_left(const struct exi_sock *sk);

/* A waits for B, or B looks for A: what this costs is paid from here on.
 * link_lock held. */
void exi_worth_paid_locked(struct exi_sock *sk);

/* The connection ends in this process. All its locks held. */
void exi_worth_over_locked(struct exi_sock *sk);

#endif
