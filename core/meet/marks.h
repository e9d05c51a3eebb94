/* SPDX-License-Identifier: BSD-2-Clause */
/* The marks of traffic at which a connection looks for its peer. */
#ifndef EXI_CORE_MEET_MARKS_H
#define EXI_CORE_MEET_MARKS_H

#include <stdint.h>

struct exi_shared;
struct exi_sock;

/* The mark that comes after so many bytes; UINT64_MAX: none. */
uint64_t exi_marks_next(uint64_t bytes);

/* No amount of traffic makes the connection meet from here on. */
void exi_marks_none(struct exi_shared *sh);

/* Meets again at the next mark of traffic, whichever way it goes, as B looks
 * again: the process that will serve the connection on another host may not
 * have come to it yet. link_lock held. */
void exi_marks_later_locked(struct exi_sock *sk);

#endif
