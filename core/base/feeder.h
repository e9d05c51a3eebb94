/* SPDX-License-Identifier: BSD-2-Clause */
/* A feeder: a process that holds bytes until a socket has room for them. */
#ifndef EXI_CORE_BASE_FEEDER_H
#define EXI_CORE_BASE_FEEDER_H

#include <stddef.h>

/* A feeder's handle of itself. */
struct exi_feeder;

struct exi_feeder_work {
	/* Runs in the feeder, a copy of this process with only this thread: it
	 * must take no lock and allocate nothing. The feeder ends when it
	 * returns. */
	void (*run)(struct exi_feeder *self, const void *arg);
	const void *arg;
	const int *fds; /* the only descriptors that stay open; -1: none */
	size_t n_fds;
	size_t holds; /* bytes of memory that the feeder keeps in use */
};

/* Starts a process that writes into stream sockets as they are read. SIGKILL is
 * the only signal that reaches it, and no wait(2) of the program sees it.
 * -EAGAIN: sixteen feeders of this program and its forked children are running.
 * -errno of clone(2). */
int exi_feeder_start(const struct exi_feeder_work *w);

/* Called in the feeder at least every half minute: states that it is alive, and
 * how many bytes it holds. A feeder that was killed does not call it. */
void exi_feeder_lives(struct exi_feeder *self, size_t holds);

/* The number of bytes that the next feeder may hold. A peer decides how much
 * there is to hold, so all feeders of this program and its forked children
 * together hold no more than the memory limit. */
size_t exi_feeder_room(void);

/* Starts a feeder that sends the rest of a connection that is being closed, as
 * the kernel sends on after close(2), and then ends TCP in order. The
 * connection must be set to be reset when its last descriptor closes: it is
 * reset if the peer takes nothing for a minute. -EAGAIN: sixteen feeders are
 * running. */
int exi_feeder_finish(int fd, const char *bytes, size_t n);

#endif
