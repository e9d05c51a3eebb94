/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous sends. */
#ifndef EXI_CORE_CALL_SEND_H
#define EXI_CORE_CALL_SEND_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/util.h"
#include "core/meet/find.h"

struct exi_region;

/* send(2) on a socket of the library: bytes, or -errno; -EBADF: the library has
 * no such socket. sk: what exi_sock_find() gave for fd, also null. region: the
 * registration of the memory, or null. No lock is held. */
EXI_SHIM ssize_t exi_flow_send_on(struct exi_sock *sk, int fd, const void *buf,
				  size_t len, int flags,
				  struct exi_region *region);
static inline ssize_t exi_flow_send(int fd, const void *buf, size_t len,
				    int flags)
{
	return exi_flow_send_on(exi_sock_find(fd), fd, buf, len, flags, NULL);
}

/* Transfers of n pieces of so many bytes in all, not none, on a stream: on TCP
 * by one call of the kernel. A receive puts into the pieces behind the first
 * what is there. */
EXI_SHIM ssize_t exi_flow_sendv(int fd, const struct iovec *v, size_t n,
				size_t bytes, int flags);

/* Before a call of the C library that sends on the descriptor itself, of up to
 * *len bytes (sendfile): where the direction is on TCP nothing is switched
 * until the call is over, and how much it moved, or -1, is told with what this
 * gave. Of less than *len where a fabric may be met meanwhile. False: the
 * direction is on a fabric, or about to be. */
EXI_SHIM bool exi_flow_native_send(int fd, size_t *len, struct exi_inside *in);
EXI_SHIM void exi_flow_native_sent(const struct exi_inside *in, ssize_t moved);

#endif
