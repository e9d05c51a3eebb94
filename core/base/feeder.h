/* SPDX-License-Identifier: BSD-2-Clause */
/* A process that holds bytes for which a socket has no room yet. */
#ifndef EXI_CORE_BASE_FEEDER_H
#define EXI_CORE_BASE_FEEDER_H

#include <stddef.h>

/* Starts a process that writes n bytes into the stream socket as they are read,
 * and ends: the socket is closed then, if this process closes its own
 * descriptor. The feeder has no other descriptor, no signal but SIGKILL reaches
 * it, it ends when no reader is left, and no wait(2) of the program sees it.
 * -ENOBUFS: more than exi_feeder_room(); -errno of clone(2). */
int exi_feeder_start(int fd, const char *bytes, size_t n);

/* How many bytes the next feeder may hold. A peer decides how many feeders
 * there are and what they hold, so this program, and what it forked, has
 * sixteen, and all of them hold sixteen rings, or the limit of memory if that
 * is less. */
size_t exi_feeder_room(void);

/* Starts a feeder for a connection that is being closed, and is set to be reset
 * when its last descriptor closes: as the kernel sends on after close(2), and
 * TCP ends in order when all was sent. The connection is reset when the peer
 * takes nothing for a minute. -EAGAIN: sixteen feeders of this program, and of
 * what it forked, are under way. */
int exi_feeder_finish(int fd, const char *bytes, size_t n);

#endif
