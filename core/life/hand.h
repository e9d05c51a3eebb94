/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that leave for another process, and those that come from one:
 * core/meet/handed.h. */
#ifndef EXI_CORE_LIFE_HAND_H
#define EXI_CORE_LIFE_HAND_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_handed_note;
struct exi_sock;

/* The giver: fd is about to go to TCP, for it will be passed by the socket
 * `by'. Nothing where fd is no connection of the library's, or another process
 * may use it. No lock held. */
EXI_SHIM void exi_hand_note(int fd, int by);

/* Whether an exec that is about to begin, and which fd is open after, can hand
 * the connection on: ALONE, when no other process uses it; LATER, when it can
 * be used once the others, which have the library, too, have closed it; or
 * not. fd is its only number. No lock held. */
enum exi_hand {
	EXI_HAND_NOT,
	EXI_HAND_ALONE,
	EXI_HAND_LATER
};
EXI_SHIM enum exi_hand exi_hand_by_exec(struct exi_sock *sk, int fd);

/* This process is about to close the last number of the connection. True: then
 * it is that of a child alone, which is another program by now, and
 * exi_handed_done() is to say so. No lock held. */
EXI_SHIM bool exi_hand_leaves(struct exi_sock *sk, int fd,
			      struct exi_handed_note *ret);

/* The receiver: fd came by a message on the socket `by', or as these say of the
 * giver before exec. Where it is a connection of TCP, the library has a socket
 * for it from now on. */
#define EXI_BY_ALONE (-1)
#define EXI_BY_LATER (-2)
EXI_SHIM void exi_hand_take(int fd, int by);

/* A spawn that exi_holders_spawns() began is over. Keeps errno. */
EXI_SHIM void exi_hand_spawned(void);

/* The descriptor, which is in the table now, was made by a call that began when
 * there were so many forks: a child may have got it before it was in the table.
 *
 * Pairing: exi_hand_spawned() counts, then promotes what is latent, then counts
 * the spawn no more; this looks at the first count when the descriptor is in
 * the table. All are in one order, so one of the two sees the other. */
EXI_SHIM void exi_hand_born(int fd, uint32_t forked);

#endif
