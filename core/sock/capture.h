/* SPDX-License-Identifier: BSD-2-Clause */
/* The capture: while exs trace asks for it, the bytes of this process's
 * connections are copied into a ring that exs trace reads. See
 * docs/design/stats.md.
 *
 * Without a capture, this costs nothing where a fabric carries the bytes: a
 * captured connection has other tables (exi_conn.ops, .lops), whose functions
 * call the fabric's. Bytes that the kernel carries, or that a device places,
 * are recorded by the code that counts them. */
#ifndef EXI_CORE_SOCK_CAPTURE_H
#define EXI_CORE_SOCK_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/pieces.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/stats_page.h"
#include "core/sock/table.h"

/* A capture is under way: connections begin as sockets, each of them
 * captured. */
extern _Atomic bool exi_capture_on;

/* A reader is about to ask for a capture. Returns the inode of a pipe that the
 * reader must open for writing first; the capture ends when no process has the
 * pipe open any more. -EBUSY: another reader has a capture. The service
 * thread. */
int64_t exi_capture_offer(void);
/* Begins the capture that was asked for. Returns the inode of the memfd, the
 * same one if a reader asks twice. -ESTALE: the pipe is another one now. The
 * service thread. */
int64_t exi_capture_start(const struct exi_control_ask *ask);
/* Ends the capture if its reader is gone. The service thread. */
void exi_capture_look(void);

/* Captures the socket, which is new or has met its peer, if a capture is under
 * way that selects it. link_lock is held. */
void exi_capture_add(struct exi_sock *sk);
/* The socket ends: link_lock and both halves' locks are held. */
void exi_capture_end(struct exi_sock *sk);

/* The child after fork: the capture is the parent's. */
void exi_capture_forked(void);

/* Records n bytes that are about to be counted; buf null: they are not known.
 * The lock of the direction is held, and c->capture is set. */
void exi_capture_bytes(struct exi_conn *c, enum exi_dir dir, const void *buf,
		       size_t n);
/* The same for the next n bytes of the pieces; p may be null. */
void exi_capture_pieces(struct exi_conn *c, enum exi_dir dir,
			const struct exi_pieces *p, size_t n);

/* For code that counts bytes; does nothing if the connection is not captured.
 * flags are those of the call: with MSG_TRUNC the bytes are not in the
 * buffer. */
static inline void exi_capture_tell(struct exi_conn *c, enum exi_dir dir,
				    const struct exi_pieces *p, ssize_t n,
				    int flags)
{
	if (exi_unlikely(c->capture && n > 0))
		exi_capture_pieces(c, dir, flags & MSG_TRUNC ? NULL : p,
				   (size_t)n);
}

static inline void exi_capture_tell_one(struct exi_conn *c, enum exi_dir dir,
					const void *buf, ssize_t n, int flags)
{
	if (exi_unlikely(c->capture && n > 0))
		exi_capture_bytes(c, dir, flags & MSG_TRUNC ? NULL : buf,
				  (size_t)n);
}

#endif
