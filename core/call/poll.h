/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits for several descriptors, of the library's connections and others.
 *
 * The kernel reports on descriptors that it serves; directions on a fabric are
 * checked here. A thread that must sleep first joins the waiters of each
 * connection, then looks again, then asks the peers for wake-ups, and then
 * sleeps in the kernel (see poller.h). The second look finds a change that came
 * before it; a later change wakes the waiters. */
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

/* The library's state for one descriptor. */
struct exi_poll_slot {
	struct exi_sock *sk; /* null: only the kernel's */
	struct exi_poller waiter[2];
	bool waits[2];
	short now;
};

struct exi_poll {
	struct pollfd *fds;
	nfds_t n;
	struct pollfd *kernel; /* n, and space for one more */
	struct exi_poll_slot *slots;
	int on_fabric; /* the index of one, at the last look; or -1 */
	bool may_move; /* a peer may have sent SWITCH, unread */
};

/* Fills the array for the kernel; returns how many descriptors are ready
 * without it. */
EXI_SHIM int exi_poll_look(struct exi_poll *p);
/* Polls the kernel without waiting; -errno. */
EXI_SHIM int exi_poll_ask(struct exi_poll *p);
/* Merges both results; returns how many descriptors are ready. */
EXI_SHIM int exi_poll_gather(struct exi_poll *p);
/* Sleeps. 0: look again. 1: the kernel has results. -errno, -ETIMEDOUT. */
EXI_SHIM int exi_poll_sleep(struct exi_poll *p, uint64_t deadline,
			    const sigset_t *mask);

/* For exs_poll: fills fds, and returns how many are ready; 0: none, and wait is
 * not set. -EINTR, -ENOMEM, ... */
int exi_poll_now(exs_pollfd_t *fds, int n, bool wait);
/* Takes an EXS_EVT_POLL operation on the op->len descriptors at op->arg, at
 * least one. One thread, started at first need, serves all such operations of a
 * process, because it may wait where the service thread must not. */
int exi_poll_submit(struct exi_op *op);
/* Cancels the polls that name fd (-1: any) and, unless any is set, have the
 * handle a. Returns how many. */
int exi_poll_cancel(int fd, bool any, exs_ahandle_t a);

/* Ends the polls whose deadline is at or before now; sets *next to the earliest
 * other deadline if that is sooner. */
void exi_poll_expire(uint64_t now, uint64_t *next);

/* Called in the child after fork: forgets the parent's waiting polls. */
void exi_poll_forked(void);

#endif
