/* SPDX-License-Identifier: BSD-2-Clause */
/* The capture: what connections of this process carry is copied into a ring
 * that exs trace reads, while it asks for that. docs/design/stats.md.
 *
 * While there is none it costs nothing where a fabric carries the bytes: a
 * connection that is captured has other tables (exi_conn.ops, .lops), whose
 * functions call the fabric's. What the kernel carries, and what a device
 * places, is told by those who count it. */
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

/* One is under way: connections begin as sockets, each of them captured. */
extern _Atomic bool exi_capture_on;

/* A reader is about to ask: the inode of a pipe that it must open to write
 * before it does. The capture ends when nobody has that open any more. -EBUSY:
 * another reader has a capture. The service thread. */
int64_t exi_capture_offer(void);
/* Begins, as was asked for: the inode of the memfd. Asked for twice by one
 * reader it is the same. -ESTALE: the pipe is another one now. The service
 * thread. */
int64_t exi_capture_start(const struct exi_control_ask *ask);
/* Ends it if the reader is gone. The service thread. */
void exi_capture_look(void);

/* The socket is to be captured, if one is under way that has chosen it: a new
 * socket, or one that has met its peer. link_lock is held. */
void exi_capture_add(struct exi_sock *sk);
/* The socket ends: link_lock and both halves' locks are held. */
void exi_capture_end(struct exi_sock *sk);

/* The child after fork: the capture is the parent's. */
void exi_capture_forked(void);

/* Records n bytes that are about to be counted; null: they are not known. The
 * lock of the direction is held, and c->capture is set. */
void exi_capture_bytes(struct exi_conn *c, enum exi_dir dir, const void *buf,
		       size_t n);
/* The same of the next n bytes of the pieces; null. */
void exi_capture_pieces(struct exi_conn *c, enum exi_dir dir,
			const struct exi_pieces *p, size_t n);

/* For those who count: nothing where the connection is not captured. flags are
 * those of the call: what it looks at, or discards, is not in the buffer. */
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
