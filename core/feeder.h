/* SPDX-License-Identifier: BSD-2-Clause */
/* A process that holds bytes for which a socket has no room yet. */
#ifndef EXI_CORE_FEEDER_H
#define EXI_CORE_FEEDER_H

#include <stddef.h>

/* A process writes n bytes into the stream socket as they are read, and ends:
 * the socket is closed then, if this process closes its own descriptor. It has
 * no other descriptor, no signal but SIGKILL reaches it, it ends when nobody is
 * left who could read, and no wait(2) of the program sees it. -errno of
 * clone(2). */
int exi_feeder_start(int fd, const char *bytes, size_t n);

#endif
