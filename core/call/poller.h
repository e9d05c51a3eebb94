/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread that sleeps on descriptors of its own: an eventfd wakes it.
 *
 * Where all that it waits for is on fabrics, the descriptors are an epoll set,
 * and the links of the connections are in it, in front of the service's watch:
 * a peer's doorbell wakes the thread at once, and the service only when no
 * thread sleeps there. Without that the service would be woken first, to wake
 * the thread. Nothing depends on which thread hears a doorbell: the thread that
 * is woken reads the link, and wakes the waiters. */
#ifndef EXI_CORE_CALL_POLLER_H
#define EXI_CORE_CALL_POLLER_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "core/base/util.h"
#include "core/sock/table.h"

/* A waiter (see sock.h) of a thread that sleeps so. */
struct exi_poller {
	struct exi_waiter w; /* wake is exi_poller_wake() */
	int event_fd;
};
EXI_SHIM void exi_poller_wake(struct exi_waiter *w);

/* This thread's eventfd, made at first need and again after a fork; -errno. */
EXI_SHIM int exi_poller_fd(void);
/* Reads the eventfd, and counts that: a handler's call that did may have taken
 * the wake-up of the call that it interrupted, to which exi_poller_rouse()
 * gives one. */
void exi_poller_drain(void);
EXI_SHIM extern _Thread_local unsigned int exi_poller_drains;
EXI_SHIM void exi_poller_rouse(void);
/* The interval at which a thread without an eventfd looks. */
#define EXI_UNKICKED_NS 10000000u
/* The thread's eventfd is fd, which others know, too. */
void exi_poller_adopt(int fd);

/* The thread is to hear the connection's bell, or does already: true. False
 * where the service must: there is no link, another process has it too, or too
 * few sleeps were on it for the pains. No lock held. */
bool exi_poller_hears(struct exi_sock *sk);

/* In a forked child: a link of the connection that threads of the parent heard.
 * It is the parent's sets that would go on being woken by it, in front of the
 * child's own. Before exi_poller_forked(). */
void exi_poller_inherited(struct exi_sock *sk, int link);
void exi_poller_forked(void);

/* Sleeps as ppoll() does, until the thread is woken (0) or, where it hears all
 * that can come, one of its doorbells is heard (0), else until one of n
 * descriptors has an answer (1); -ETIMEDOUT, -EINTR. There is room in p behind
 * them. What was heard is still to be served. */
int exi_poller_sleep(struct pollfd *p, nfds_t n, bool hears,
		     const struct timespec *timeout, const sigset_t *mask);
/* Reads the links whose doorbell was heard. Not while the thread is a waiter,
 * which it would wake; no lock held. */
void exi_poller_serve(void);

#endif
