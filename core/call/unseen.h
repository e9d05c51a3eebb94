/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits that the library does not see: a program calls the kernel without the C
 * library's functions (epoll, poll or recv by the system-call instruction, or
 * an io_uring ring that was made late). Only events on TCP end such a wait, so
 * the connection it waits for must be on TCP.
 *
 * Before a direction moves, exi_unseen_waits() looks at the epoll sets that the
 * shim does not know. A program may also wait for a set that the shim knows by
 * the system-call instruction. So while no thread was seen to wait for a set,
 * its waiters are idle (struct exi_waiter), and no direction of a connection
 * with an idle waiter moves. After some bytes such a connection informs its
 * peer, and reports why it is on TCP (exi_switch_unawaited()). So does a
 * connection that was found to be in such sets and in no other. Both move, or
 * move again, when a thread is seen to wait for the sets
 * (exi_switch_awaited()).
 *
 * The watch finds waits that begin later. If bytes lie in a ring for a tenth of
 * a second, and no thread that is seen waits for them or takes them, the watch
 * looks for a wait that is not seen (rings, epoll sets, threads asleep in a
 * system call, all by /proc), and takes the connection back to TCP: its unread
 * bytes then come over TCP, and the kernel reports them. A program that merely
 * computes is left alone, and the watch looks again, at the latest eight tenths
 * of a second later. If no thread was ever seen to wait for bytes from the
 * ring, the connection goes back after three seconds without such a find:
 * nothing else finds a program that polls by its own system calls and does not
 * sleep.
 *
 * models/unseen.pml checks a set, its first wait, the mark, a search and the
 * messages of the link in every order.
 *
 * The watch costs the calls that move bytes nothing, and an idle process
 * nothing: it is a timer of the service while connections are in use. It stops
 * when each direction that receives has a wait that is seen, or has nothing
 * unread and has requested a doorbell. Code that ends one of these states calls
 * exi_unseen_restart() after it has changed the state under the direction's
 * lock. The watch first marks itself as stopped, and then looks at each
 * direction under that lock once more: so whichever comes second sees what the
 * other has written. */
#ifndef EXI_CORE_CALL_UNSEEN_H
#define EXI_CORE_CALL_UNSEEN_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_unseen_suspects;

/* One look of the watch at all connections; the service thread calls it when
 * exi_unseen_due() returns true. */
void exi_unseen_tick(void);

/* Called by the shim. knows() returns whether the shim knows the members of an
 * epoll set; with awaited, also whether a thread was seen to wait for it.
 * Without the shim there is no search, because each call of such a program is
 * one of the library's. Nor is there one in a forked child, which has no
 * service thread yet. */
EXI_SHIM void exi_unseen_begin(bool (*knows)(int epfd, bool awaited));
void exi_unseen_forked(void);

/* Searches for waits on the suspects, and takes those connections back to TCP.
 * The service calls it, without locks. */
void exi_unseen_search(struct exi_unseen_suspects *s);

#endif
