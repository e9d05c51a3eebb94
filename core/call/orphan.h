/* SPDX-License-Identifier: BSD-2-Clause */
/* Orphans: connections whose descriptor is one end of a UNIX pair now, because
 * the peer is gone and left unread bytes. The addresses of the last ones are
 * kept, in this process and in its forked children. */
#ifndef EXI_CORE_CALL_ORPHAN_H
#define EXI_CORE_CALL_ORPHAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/util.h"

struct exi_sock;

/* Replaces fd, and all other numbers of sk, by a UNIX stream pair, into which
 * the unread bytes and the end of the stream go; the peer of sk is gone. keep:
 * copies the bytes, because other processes have the connection and read them,
 * too. Bytes that the peer's kernel may still send are awaited until the
 * deadline; those that have not come by then are reported as lost. -errno:
 * without keep, bytes may be lost then. -EBADF: another thread closed the
 * socket of that generation. -EALREADY: another thread is replacing it, and
 * nothing was changed. */
int exi_orphan_make(struct exi_sock *sk, int fd, uint32_t generation, bool keep,
		    uint64_t deadline_ns);

/* getsockname(2) or getpeername(2) of an orphan: 0 or -errno as for the former
 * connection. 1: fd is no orphan. */
EXI_SHIM int exi_orphan_name(int fd, bool peer, struct sockaddr *addr,
			     socklen_t *len);

#endif
