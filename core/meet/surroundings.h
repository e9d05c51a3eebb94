/* SPDX-License-Identifier: BSD-2-Clause */
/* Other things in the program that make upgrades unsafe: io_uring rings, whose
 * calls the library does not see, and filters of system calls that the program
 * put on itself since the library started. Earlier filters are the container's,
 * and do not count. Also the program's epoll sets, some of which the shim may
 * not know (core/call/unseen.h). */
#ifndef EXI_CORE_MEET_SURROUNDINGS_H
#define EXI_CORE_MEET_SURROUNDINGS_H

#include <stdbool.h>

#include "core/base/util.h"

/* Stores the filters that are there at the start. */
void exi_surroundings_init(void);

/* EXS_X_REASON_IO_URING, EXS_X_REASON_SECCOMP or EXS_X_REASON_NONE;
 * EXS_X_REASON_NO_PROOF if it is unknown. Looks at most once in a tenth of a
 * second. */
int exi_surroundings_reason(void);

/* The same for the filters alone. A thread may be under filters that another
 * thread does not see, so a thread of the program calls this before it leaves a
 * look for the peer to the service. */
int exi_surroundings_filters(void);

/* The program's epoll sets that the last look found; returns how many. */
#define EXI_SETS 16
int exi_surroundings_sets(int ret[EXI_SETS]);

/* Set by the shim: returns whether it examines each request of this ring before
 * the kernel may see it, so that connections in requests are on TCP by then,
 * and no request waits for an epoll set. */
EXI_SHIM extern bool (*exi_surroundings_ring_seen)(int fd);

/* Whether a ring of the program may be for a connection on a fabric, by
 * EXS_IO_URING and by what the shim sees; fd -1: a ring without a
 * descriptor. */
bool exi_surroundings_ring_matters(int fd);

/* Calls f for each ring and each epoll set that the program has now. */
void exi_surroundings_each(void (*f)(int fd, bool ring, void *arg), void *arg);

/* Marks the number, below EXI_FD_MARKS, as that of a stranger's file. It is not
 * examined, because examining a ring or a set waits for a lock that a thread of
 * the stranger may hold. Nor does it count as a ring or a set of the
 * program. */
void exi_surroundings_foreign(int fd);
bool exi_surroundings_is_foreign(int fd);
/* closed: the number is closed, or about to be. named: it has a duplicate. */
EXI_SHIM void exi_surroundings_closed(int fd);
EXI_SHIM void exi_surroundings_named(int fd, int also);

/* Called in the child after fork: frees the lock, which another thread of the
 * parent may have held. */
void exi_surroundings_forked(void);

#endif
