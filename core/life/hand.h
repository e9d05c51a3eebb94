/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections handed to another process, and those received from one:
 * core/meet/handed.h. */
#ifndef EXI_CORE_LIFE_HAND_H
#define EXI_CORE_LIFE_HAND_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_handed_note;
struct exi_sock;

/* Called in the giver when fd is about to go to TCP, because it will be passed
 * by the socket `by'. Does nothing if fd is no connection of the library, or if
 * another process may use it. No lock held. */
EXI_SHIM void exi_hand_note(int fd, int by);

/* Whether an exec that is about to begin, and keeps fd open, can hand the
 * connection on. ALONE: no other process uses it. LATER: it can be used once
 * the other processes, which have the library, too, have closed it. NOT: it
 * cannot. fd is its only number. No lock held. */
enum exi_hand {
	EXI_HAND_NOT,
	EXI_HAND_ALONE,
	EXI_HAND_LATER
};
EXI_SHIM enum exi_hand exi_hand_by_exec(struct exi_sock *sk, int fd);

/* Whether a spawn that is about to begin, exi_holders_spawns() was called for
 * it, can hand the connection on: no other process uses it, nor is another
 * spawn under way. fd is its only number. No lock held. */
EXI_SHIM bool exi_hand_by_spawn(struct exi_sock *sk, int fd);

/* Called when this process is about to close the last number of the connection.
 * Returns true if the connection then belongs to a single child, which is
 * another program by now; exi_handed_done() is to announce that. No lock
 * held. */
EXI_SHIM bool exi_hand_leaves(struct exi_sock *sk, int fd,
			      struct exi_handed_note *ret);

/* Called in the receiver: fd came by a message on the socket `by' or, with one
 * of these values, from before exec. If it is a TCP connection, the library has
 * a socket for it from now on, or a latent connection. False: neither. */
#define EXI_BY_ALONE (-1)
#define EXI_BY_LATER (-2)
EXI_SHIM bool exi_hand_take(int fd, int by);

/* Called when a spawn that exi_holders_spawns() began is over. Keeps errno. */
EXI_SHIM void exi_hand_spawned(void);

/* Called for a descriptor that is in the table now. forked: the count of forks
 * when the call that made the descriptor began. If the count has changed, a
 * child may have got the descriptor before it was in the table.
 *
 * Pairing: exi_hand_spawned() counts, then promotes latent connections, then
 * ends the count of the spawn; this function reads the first count when the
 * descriptor is in the table. All are in one order, so one of the two sees the
 * other. */
EXI_SHIM void exi_hand_born(int fd, uint32_t forked);

#endif
