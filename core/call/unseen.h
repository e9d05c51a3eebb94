/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits that the library does not see: of a program that calls the kernel past
 * the C library's names (epoll, poll or recv by the system-call instruction, a
 * ring of io_uring that was made late). The kernel tells such a wait of TCP
 * only, so the connection it waits for must be on TCP.
 *
 * Before a direction may be moved here exi_unseen_waits() looks at the epoll
 * sets that the shim does not know. A set that it knows may be waited for by
 * the system-call instruction, too: while nobody was seen to wait for such a
 * set its waiters are idle (struct exi_waiter), and no direction of a
 * connection moves that has one. After some bytes such a connection tells its
 * peer, and says why it is on TCP (exi_switch_unawaited()). So does one that
 * was found to be in such sets and in no other; both move (again) when somebody
 * is seen to wait for the sets (exi_switch_awaited()). What begins to wait
 * later is found by the watch: where bytes lie in a ring for a tenth of a
 * second and nobody who is seen waits for them or takes them, it looks for a
 * wait that is not seen (rings, epoll sets, threads asleep in a call of the
 * kernel, all by /proc), and takes the connection back to TCP: its unread bytes
 * come over TCP then, and the kernel tells of them. A program that merely
 * computes is left alone, and looked at again, at the latest eight tenths of a
 * second later. Where nobody was ever seen to wait for bytes from the ring, the
 * connection goes back after three seconds without such a find: a program that
 * asks by its own calls and does not sleep is found by nothing else.
 *
 * models/unseen.pml searches what a set, its first wait, the mark, a search and
 * the messages of the link do in any order.
 *
 * The watch costs the calls that move bytes nothing, and an idle process
 * nothing: it is a timer of the service while connections are in use. It stops
 * when each direction that is received has a wait that is seen, or nothing
 * unread and its bell asked for. Whatever ends one of these states calls
 * exi_unseen_restart() after it changed the state under the direction's lock;
 * the watch says that it stops, and then looks at each direction under that
 * lock once more: so the one that comes second sees what the first has
 * written. */
#ifndef EXI_CORE_CALL_UNSEEN_H
#define EXI_CORE_CALL_UNSEEN_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_unseen_suspects;

/* One look of the watch at all connections; the service thread calls it when
 * exi_unseen_due() returns true. */
void exi_unseen_tick(void);

/* The shim is there, and this reports whether it knows the members of an epoll
 * set; with awaited, also that a thread was seen to wait for it. Without the
 * shim there is no search, because each call of such a program is one of the
 * library's. Nor is there one in the child of a fork, which has no service
 * thread yet. */
EXI_SHIM void exi_unseen_begin(bool (*knows)(int epfd, bool awaited));
void exi_unseen_forked(void);

/* Searches for waits on the suspects, and takes the connections that are waited
 * for back to TCP. The service calls it, without locks. */
void exi_unseen_search(struct exi_unseen_suspects *s);

#endif
