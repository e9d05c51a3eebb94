/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections whose descriptor is a UNIX pair now, because the peer was gone
 * with bytes unread. The addresses of the last ones are remembered, in this
 * process and in those that it forks. */
#ifndef EXI_CORE_CALL_ORPHAN_H
#define EXI_CORE_CALL_ORPHAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/util.h"

struct exi_sock;

/* The peer of sk is gone: what it left unread, and the end, go into a UNIX
 * stream pair that takes the place of fd and of all other numbers of sk. keep:
 * they are copied, for other processes have the connection and read them.
 * -errno: without keep, bytes may be lost then. What the peer's kernel may
 * still have is waited for until the deadline, and what has not come then is
 * told as lost. -EBADF: another thread has closed the socket of that
 * generation. -EALREADY: another thread does it, and nothing was changed. */
int exi_orphan_make(struct exi_sock *sk, int fd, uint32_t generation, bool keep,
		    uint64_t deadline_ns);

/* getsockname(2), or getpeername(2), of an orphan: 0 or -errno as for the
 * connection it was. 1: it is none. */
EXI_SHIM int exi_orphan_name(int fd, bool peer, struct sockaddr *addr,
			     socklen_t *len);

#endif
