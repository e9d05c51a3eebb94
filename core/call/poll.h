/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for several descriptors, connections of the library and whatever
 * else.
 *
 * The kernel is asked about what it serves; directions on a fabric are looked
 * at here. Who must sleep first puts himself among the waiters of each
 * connection, then looks again, then asks the peers for wake-ups, and then
 * sleeps in the kernel (see poller.h). A change before the second look is seen
 * by it; a later one wakes the waiters. */
#ifndef EXI_CORE_CALL_POLL_H
#define EXI_CORE_CALL_POLL_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/exs.h>

#include "core/base/util.h"
#include "core/call/poller.h"

struct exi_op;
struct exi_sock;

/* What the library knows of a descriptor. */
struct exi_poll_slot {
	struct exi_sock *sk; /* null: the kernel's */
	struct exi_poller waiter[2];
	bool waits[2];
	short now;
};

struct exi_poll {
	struct pollfd *fds;
	nfds_t n;
	struct pollfd *kernel; /* n, and room for one */
	struct exi_poll_slot *slots;
	int on_fabric; /* of the last look: the index of one, or -1 */
	bool may_move; /* one's peer may have said SWITCH, unread */
};

/* Fills what the kernel is to be asked; how many are ready without it. */
EXI_SHIM int exi_poll_look(struct exi_poll *p);
/* Asks the kernel, without waiting; -errno. */
EXI_SHIM int exi_poll_ask(struct exi_poll *p);
/* The answer of both; how many descriptors have one. */
EXI_SHIM int exi_poll_gather(struct exi_poll *p);
/* 0: look again. 1: the kernel has answers. -errno, -ETIMEDOUT. */
EXI_SHIM int exi_poll_sleep(struct exi_poll *p, uint64_t deadline,
			    const sigset_t *mask);

/* For exs_poll: the answers in fds, how many there are; 0: none, and it was not
 * to wait. -EINTR, -ENOMEM, ... */
int exi_poll_now(exs_pollfd_t *fds, int n, bool wait);
/* Takes an EXS_EVT_POLL operation, of the op->len descriptors at op->arg, which
 * must not be none. Those of one process are served by a thread that is started
 * at first need: it may wait for what would keep the service from its work. */
int exi_poll_submit(struct exi_op *op);
/* Cancels those that name fd (-1: any) and (unless any) carry a; how many. */
int exi_poll_cancel(int fd, bool any, exs_ahandle_t a);

/* Those whose deadline is not after now; *next becomes when that of the others
 * comes, if it is sooner. */
void exi_poll_expire(uint64_t now, uint64_t *next);

/* The child after fork: forgets the parent's polls that wait. */
void exi_poll_forked(void);

#endif
