/* SPDX-License-Identifier: BSD-2-Clause */
/* What else the program does that makes upgrades unsafe: rings of io_uring,
 * whose calls the library does not see, and filters of system calls that the
 * program put on itself since the library started (those it was started under
 * are its container's, and do not count). And the program's epoll sets, of
 * which the shim may not know some (core/call/unseen.h). */
#ifndef EXI_CORE_MEET_SURROUNDINGS_H
#define EXI_CORE_MEET_SURROUNDINGS_H

#include <stdbool.h>

#include "core/base/util.h"

/* Remembers the filters that are there at the start. */
void exi_surroundings_init(void);

/* EXS_X_REASON_IO_URING, EXS_X_REASON_SECCOMP or EXS_X_REASON_NONE;
 * EXS_X_REASON_NO_PROOF where it cannot be told. Looks at most once in a tenth
 * of a second. */
int exi_surroundings_reason(void);

/* The filters alone: which of them the calling thread is under another thread
 * may not see, so a thread of the program asks before it leaves a look for the
 * peer to the service. */
int exi_surroundings_filters(void);

/* The program's epoll sets, as that look found them: how many. */
#define EXI_SETS 16
int exi_surroundings_sets(int ret[EXI_SETS]);

/* Set by the shim: whether it looks at each request of this ring before the
 * kernel may see it, so that a connection that one names is on TCP by then, and
 * none waits for an epoll set. */
EXI_SHIM extern bool (*exi_surroundings_ring_seen)(int fd);

/* Whether a ring of the program's may be for a connection on a fabric, by
 * EXS_IO_URING and by what the shim sees; fd -1: a ring that has no
 * descriptor. */
bool exi_surroundings_ring_matters(int fd);

/* Calls f for each ring and each epoll set of the program's, now. */
void exi_surroundings_each(void (*f)(int fd, bool ring, void *arg), void *arg);

/* What is at the number came from a stranger: it is not looked at, for a look
 * at a ring or a set waits for a lock that a thread of the stranger may keep.
 * Nor is it a ring or a set of the program's. Of numbers below EXI_FD_MARKS. */
void exi_surroundings_foreign(int fd);
bool exi_surroundings_is_foreign(int fd);
/* The number is closed, or is about to be; it got another one. */
EXI_SHIM void exi_surroundings_closed(int fd);
EXI_SHIM void exi_surroundings_named(int fd, int also);

/* The child after fork: frees the lock, which a thread of the parent may have
 * held. */
void exi_surroundings_forked(void);

#endif
