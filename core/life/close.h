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

/* Whether both directions ended in the ring: the kernel's own socket would then
 * no longer be connected. */
EXI_SHIM bool exi_over(struct exi_sock *sk, int fd);
/* Half-closes the connection, after the sends accepted before. */
EXI_SHIM int exi_shutdown(int fd, int how);
/* Called when the end that was to follow queued sends has been sent. */
void exi_lifecycle_ended(struct exi_sock *sk);
EXI_SHIM int exi_close(int fd);

/* Closes fd by dup3(2): from then on, without a gap, the number names the file
 * of `from`. Returns the number, or -errno; the number is closed then. */
EXI_SHIM int exi_close_over(int fd, int from, int flags);

/* Takes an EXS_EVT_CLOSE operation without waiting. -EBADF: not taken. */
int exi_close_submit(struct exi_op *op);

/* Frees a socket that has left the table: the providers' state is freed, the
 * memory goes back to the pool. The descriptor stays the caller's. All
 * operations must be done. Called with the locks of the link and of both halves
 * held; releases them. */
void exi_sock_drop_locked(struct exi_sock *sk);

/* The descriptor whose file replaces the closed number's. */
struct exi_close_heir {
	int fd, flags; /* of dup3(2) */
};

/* Whether the application set SO_LINGER with a time of 0, so that the close is
 * a reset. */
bool exi_close_resets(int fd);

/* Whether no other process has the connection when the close begins. A process
 * that is forked later gets it closed. */
bool exi_close_is_last(struct exi_sock *sk);

/* Ends the library's part of a connection, in the order that the peer should
 * see; with close_fd, also closes its descriptor. last: no other process has
 * the connection. p limits the wait. 0, or the error of closing the number. No
 * lock is held. */
int exi_close_leave(struct exi_sock *sk, bool close_fd, bool last,
		    const struct exi_close_heir *heir, struct exi_patience *p);

/* close(2) of a number, or, if heir is not null, its replacement by heir. p
 * limits the wait. 0 or -errno. No lock is held. */
int exi_close_with(int fd, const struct exi_close_heir *heir,
		   struct exi_patience *p);

#endif
