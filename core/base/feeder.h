/* SPDX-License-Identifier: BSD-2-Clause */
/* A process that holds bytes for which a socket has no room yet. */
#ifndef EXI_CORE_BASE_FEEDER_H
#define EXI_CORE_BASE_FEEDER_H

#include <stddef.h>

/* A process writes n bytes into the stream socket as they are read, and ends:
 * the socket is closed then, if this process closes its own descriptor. It has
 * no other descriptor, no signal but SIGKILL reaches it, it ends when nobody is
 * left who could read, and no wait(2) of the program sees it. -ENOBUFS: more than
 * exi_feeder_room(); -errno of clone(2). */
int exi_feeder_start(int fd, const char *bytes, size_t n);

/* How much the next may hold. A peer decides how many there are and what they hold,
 * so there are sixteen of this program's, and of what it forked, and all of them
 * hold sixteen rings, or the limit of memory if that is less. */
size_t exi_feeder_room(void);

/* The same of a connection that is being closed, and is set to be reset when its
 * last descriptor closes: as the kernel sends on after close(2), and TCP ends in order
 * when all was sent. A peer that takes nothing for a minute has it reset. -EAGAIN:
 * sixteen of this program's, and of what it forked, are under way. */
int exi_feeder_finish(int fd, const char *bytes, size_t n);

#endif
