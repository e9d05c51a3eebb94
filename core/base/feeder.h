/* SPDX-License-Identifier: BSD-2-Clause */
/* A process that holds bytes for which a socket has no room yet. */
#ifndef EXI_CORE_BASE_FEEDER_H
#define EXI_CORE_BASE_FEEDER_H

#include <stddef.h>

/* What a feeder knows itself by. */
struct exi_feeder;

struct exi_feeder_work {
	/* In the feeder, a copy of this process with this thread alone: it
	 * takes no lock, allocates nothing, and ends the feeder when it
	 * returns. */
	void (*run)(struct exi_feeder *self, const void *arg);
	const void *arg;
	const int *fds; /* the only descriptors that are left; -1: none */
	size_t n_fds;
	size_t holds; /* bytes of memory that last because of it */
};

/* Starts a process that writes into stream sockets as they are read. No signal
 * but SIGKILL reaches it, and no wait(2) of the program sees it. -EAGAIN:
 * sixteen of this program, and of what it forked, are under way. -errno of
 * clone(2). */
int exi_feeder_start(const struct exi_feeder_work *w);

/* In the feeder, at least once in half a minute: it lives, and holds so much.
 * One that was killed does not say so. */
void exi_feeder_lives(struct exi_feeder *self, size_t holds);

/* How many bytes the next feeder may hold. A peer decides what there is to
 * hold, so all feeders of this program, and of what it forked, hold no more
 * than the limit of memory. */
size_t exi_feeder_room(void);

/* Starts a feeder for a connection that is being closed, and is set to be reset
 * when its last descriptor closes: as the kernel sends on after close(2), and
 * TCP ends in order when all was sent. The connection is reset when the peer
 * takes nothing for a minute. -EAGAIN: sixteen of them are under way. */
int exi_feeder_finish(int fd, const char *bytes, size_t n);

#endif
