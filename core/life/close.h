/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a connection: shutdown and close. */
#ifndef EXI_CORE_LIFE_CLOSE_H
#define EXI_CORE_LIFE_CLOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_op;
struct exi_patience;
struct exi_sock;

/* Both directions ended in the ring: the kernel would say of its own that it is
 * not connected. */
EXI_SHIM bool exi_over(struct exi_sock *sk, int fd);
/* Half-closes after the sends that were accepted before. */
EXI_SHIM int exi_shutdown(int fd, int how);
/* An end that was to follow queued sends was said. */
void exi_lifecycle_ended(struct exi_sock *sk);
EXI_SHIM int exi_close(int fd);

/* The close by dup3(2): from then on, with no moment between, the number names
 * what from names. Returns the number, or -errno: the number is closed then. */
EXI_SHIM int exi_close_over(int fd, int from, int flags);

/* Takes an EXS_EVT_CLOSE operation, and does not wait. -EBADF: not taken. */
int exi_close_submit(struct exi_op *op);

/* Forgets the socket, which is in the table no more: providers' state freed,
 * memory to the pool. The descriptor is the caller's. All operations are done.
 * Takes no lock: call with link and both halves held; gives them back. */
void exi_sock_drop_locked(struct exi_sock *sk);

/* The descriptor whose file the number names from now on. */
struct exi_close_heir {
	int fd, flags; /* of dup3(2) */
};

/* Whether the application asked for a reset at close: SO_LINGER with no
 * time. */
bool exi_close_resets(int fd);

/* Whether no other process has the connection when the close begins. A process
 * that is forked later gets it closed. */
bool exi_close_is_last(struct exi_sock *sk);

/* Ends the library's part of a connection, in the order that the peer should
 * see, and with close_fd its descriptor. last: no other process has it. p says
 * how long it may wait. 0, or the error of closing the number. No lock is
 * held. */
int exi_close_leave(struct exi_sock *sk, bool close_fd, bool last,
		    const struct exi_close_heir *heir, struct exi_patience *p);

/* close(2) of a number, which heir, unless null, takes over. p says how long it
 * may wait. 0 or -errno. No lock is held. */
int exi_close_with(int fd, const struct exi_close_heir *heir,
		   struct exi_patience *p);

#endif
