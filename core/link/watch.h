/* SPDX-License-Identifier: BSD-2-Clause */
/* Who watches a link that is up: the service thread, in front of it the epoll
 * sets of threads that wait, and for a while nobody, if its peer writes without
 * end. */
#ifndef EXI_CORE_LINK_WATCH_H
#define EXI_CORE_LINK_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_link;
struct exi_sock;

/* Adds a watch of the link in front of the service's own: an exclusive one in
 * the epoll set of a thread, which reads the link (exi_link_event()) when it is
 * woken there. The service is woken if no such thread sleeps. The link lock is
 * held. Returns the link's descriptor, or -errno; -ENOTCONN: not now, and
 * exi_ready_met() is called when it is possible. */
EXI_SHIM int exi_link_share_locked(struct exi_sock *sk,
				   int (*watch)(int fd, void *arg), void *arg);

/* A peer can write as fast as this end reads. So each link has a load, which
 * grows by what an honest peer rarely does: packets beyond the first that one
 * call reads, and messages. A link whose load passes EXI_WATCH_LOAD within a
 * millisecond rests until a millisecond later: nobody reads it for an event, so
 * the peer waits in its own full buffer. A call that must know what the peer
 * said (exi_link_event() with events 0) reads a link that rests, too. */
#define EXI_WATCH_LOAD	  64
#define EXI_WATCH_MESSAGE 4 /* the load of a message; a doorbell: 1 */
#define EXI_WATCH_REST_NS 1000000u

/* Adds what a call has read, for an event. The link lock is held. */
void exi_watch_loaded_locked(struct exi_sock *sk, unsigned int load);

/* Called at the end of a rest. No lock held. */
void exi_watch_rested(struct exi_sock *sk);

/* Whether the link rests. A set of a thread that has an event for it then
 * removes its watch. The link lock is held. */
bool exi_watch_rests_locked(const struct exi_sock *sk);

/* Leaves what is in the link to the service, which gets a new event for it. The
 * link lock is held. */
void exi_watch_leave_locked(struct exi_sock *sk);

#endif
