/* SPDX-License-Identifier: BSD-2-Clause */
/* Why a connection meets no peer: reasons (EXS_X_REASON_*). */
#ifndef EXI_CORE_MEET_WHY_H
#define EXI_CORE_MEET_WHY_H

#include <stdbool.h>
#include <stdint.h>

struct exi_link;
struct exi_tuple;

/* The reason if the peer is in no network namespace of this process. */
int exi_why_elsewhere(void);

/* The reason if no peer is there to meet for fd's connection. */
int exi_why_nobody(const struct exi_tuple *t, int fd);

/* The same, from the connection's descriptor alone. */
int exi_why_nobody_of(int fd);

/* The same for a connection that ends while this end waits for its peer, after
 * so many bytes in both directions. left: the peer has ended its direction.
 * UNDECIDED: too few bytes for a peer that meets, or it may have left before
 * this end waited. */
int exi_why_in_vain(const struct exi_link *l, uint64_t bytes, bool left);

/* The reason if the time of a meeting is over. */
int exi_why_nobody_came(const struct exi_link *l);

#endif
