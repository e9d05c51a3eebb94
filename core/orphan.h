/* SPDX-License-Identifier: BSD-2-Clause */
/* The addresses of connections whose descriptor is a UNIX pair now, because the
 * peer was gone with bytes unread: the last ones are remembered, in this
 * process and in those that it forks. */
#ifndef EXI_CORE_ORPHAN_H
#define EXI_CORE_ORPHAN_H

#include <stdbool.h>
#include <sys/socket.h>

#include "core/util.h"

/* The connection of tcp_fd goes on as the pair. */
void exi_orphan_add(int tcp_fd, int pair_fd);

/* getsockname(2), or getpeername(2), of an orphan: 0 or -errno as for the
 * connection it was. 1: it is none. */
EXI_SHIM int exi_orphan_name(int fd, bool peer, struct sockaddr *addr,
			     socklen_t *len);

#endif
