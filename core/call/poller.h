/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread that sleeps on descriptors of its own, one of which is an eventfd
 * that wakes it.
 *
 * If all that the thread waits for is on fabrics, it sleeps on an epoll set,
 * which also has the links of the connections, in front of the service's watch.
 * So a peer's doorbell wakes the thread at once, and the service only if no
 * thread sleeps there; otherwise the service would wake first, to wake the
 * thread. It does not matter which thread a doorbell wakes: that thread reads
 * the link, and wakes the waiters. */
#ifndef EXI_CORE_CALL_POLLER_H
#define EXI_CORE_CALL_POLLER_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "core/base/util.h"
#include "core/sock/table.h"

/* A waiter (core/sock/table.h) of such a thread. */
struct exi_poller {
	struct exi_waiter w; /* wake is exi_poller_wake() */
	int event_fd;
};
EXI_SHIM void exi_poller_wake(struct exi_waiter *w);

/* This thread's eventfd, made at first need and again after a fork; -errno. */
EXI_SHIM int exi_poller_fd(void);
/* Reads the eventfd, and counts that. A call in a signal handler may thus take
 * the wake-up of the call that it interrupted; exi_poller_rouse() then wakes
 * that call again. */
void exi_poller_drain(void);
EXI_SHIM extern _Thread_local unsigned int exi_poller_drains;
EXI_SHIM void exi_poller_rouse(void);
/* The interval at which a thread without an eventfd looks again. */
#define EXI_UNKICKED_NS 10000000u
/* Makes fd, which other threads know, too, the thread's eventfd. */
void exi_poller_adopt(int fd);

/* Makes the thread hear the connection's doorbell; true if it does. Returns
 * false if the service must hear it: there is no link, another process has the
 * link, too, or too few sleeps on it make this worth its cost. No lock held. */
bool exi_poller_hears(struct exi_sock *sk);

/* Called in a forked child, before exi_poller_forked(), for a link that threads
 * of the parent heard: otherwise the link would continue to wake the parent's
 * sets, in front of the child's own. */
void exi_poller_inherited(struct exi_sock *sk, int link);
void exi_poller_forked(void);

/* Sleeps as ppoll() does. 0: the thread was woken or, with hears, one of its
 * doorbells rang; hears: all events that can come are doorbells. 1: one of the
 * n descriptors is ready. -ETIMEDOUT, -EINTR. p has space for one more entry.
 * The doorbells that rang are still to be served. */
int exi_poller_sleep(struct pollfd *p, nfds_t n, bool hears,
		     const struct timespec *timeout, const sigset_t *mask);
/* Reads the links whose doorbell rang. Not while the thread is a waiter, which
 * this would wake; no lock held. */
void exi_poller_serve(void);

#endif
