/* SPDX-License-Identifier: BSD-2-Clause */
/* The marks of traffic at which a connection looks for its peer. */
#ifndef EXI_CORE_MEET_MARKS_H
#define EXI_CORE_MEET_MARKS_H

#include <stdint.h>

struct exi_shared;
struct exi_sock;

/* The first mark after this many bytes; UINT64_MAX: none. */
uint64_t exi_marks_next(uint64_t bytes);

/* Where the sign waits (base.h): when this many bytes have moved, the peer has
 * made it, if it has the library. Fewer are in the kernel, unread. */
#define EXI_MARKS_SIGNED 524288u

/* From now on no amount of traffic makes the connection meet. */
void exi_marks_none(struct exi_shared *sh);

/* Makes the connection meet again at the next mark of traffic in either
 * direction, as B looks again: the process that will serve the connection on
 * another host may not have it yet. link_lock held. */
void exi_marks_later_locked(struct exi_sock *sk);

#endif
