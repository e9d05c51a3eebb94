/* SPDX-License-Identifier: BSD-2-Clause */
/* What else the program does that makes upgrades unsafe: rings of io_uring,
 * whose calls the library does not see, and filters of system calls that the
 * program put on itself since the library started (those it was started under
 * are its container's, and do not count). And the program's epoll sets, of
 * which the shim may not know some (core/call/unseen.h). */
#ifndef EXI_CORE_MEET_SURROUNDINGS_H
#define EXI_CORE_MEET_SURROUNDINGS_H

#include <stdbool.h>

/* Remembers the filters that are there at the start. */
void exi_surroundings_init(void);

/* EXS_X_REASON_IO_URING, EXS_X_REASON_SECCOMP or EXS_X_REASON_NONE;
 * EXS_X_REASON_NO_PROOF where it cannot be told. Looks at most once in a tenth
 * of a second. */
int exi_surroundings_reason(void);

/* The program's epoll sets, as that look found them: how many. */
#define EXI_SETS 16
int exi_surroundings_sets(int ret[EXI_SETS]);

/* Whether a ring of the program's may be for a connection: EXS_IO_URING. */
bool exi_surroundings_rings_matter(void);

/* Calls f for each ring and each epoll set of the program's, now. */
void exi_surroundings_each(void (*f)(int fd, bool ring, void *arg), void *arg);

/* The child after fork: frees the lock, which a thread of the parent may have
 * held. */
void exi_surroundings_forked(void);

#endif
