/* SPDX-License-Identifier: BSD-2-Clause */
/* Deadlines of operations.
 *
 * An operation carries its own. The service knows of each socket the earliest
 * that was noted, and at that time cancels what is late there and finds the
 * next: operations that end before cost it one look for many of them. */
#ifndef EXI_CORE_LIFE_DEADLINE_H
#define EXI_CORE_LIFE_DEADLINE_H

#include <stdint.h>
#include <time.h>

struct exi_sock;

/* Reads one that the program gave, and sees to it that it can be kept: 0 of a
 * null pointer. -EINVAL, or the service does not start. */
int exi_deadline_read(const struct timespec *until, uint64_t *ret);

/* After an operation of fd (-1: a poll) with this deadline was submitted, which
 * may be over by now; 0: it has none. No lock is held. */
void exi_deadline_note(int fd, uint64_t until);

/* From the service: cancels what is late; when to come again, UINT64_MAX:
 * not. */
uint64_t exi_deadline_tick(uint64_t now);

/* The socket goes away: it is closing. Locks of other sockets may be held. */
void exi_deadline_drop(struct exi_sock *sk);
void exi_deadline_forked(void);

#endif
