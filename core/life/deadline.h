/* SPDX-License-Identifier: BSD-2-Clause */
/* Deadlines of operations.
 *
 * Each operation has its deadline. The service keeps the earliest known
 * deadline of each socket; at that time it cancels the operations of the socket
 * that are late, and finds the next deadline. So many operations that end in
 * time cost it one look. */
#ifndef EXI_CORE_LIFE_DEADLINE_H
#define EXI_CORE_LIFE_DEADLINE_H

#include <stdint.h>
#include <time.h>

struct exi_sock;

/* Converts the program's deadline, and makes sure that it can be kept; null
 * gives 0. -EINVAL, or the service does not start. */
int exi_deadline_read(const struct timespec *until, uint64_t *ret);

/* Called after an operation of fd (-1: a poll) with this deadline was
 * submitted; 0: it has none. The operation may be done already. No lock is
 * held. */
void exi_deadline_note(int fd, uint64_t until);

/* Called by the service: cancels late operations. Returns when to call it next;
 * UINT64_MAX: not again. */
uint64_t exi_deadline_tick(uint64_t now);

/* Called when the socket is about to close. Locks of other sockets may be
 * held. */
void exi_deadline_drop(struct exi_sock *sk);
void exi_deadline_forked(void);

#endif
