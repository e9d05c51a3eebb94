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
 * no such socket. sk: the result of exi_sock_find() for fd, which may be null.
 * region: the registration of the memory, or null. No lock is held. */
EXI_SHIM ssize_t exi_flow_send_on(struct exi_sock *sk, int fd, const void *buf,
				  size_t len, int flags,
				  struct exi_region *region);
static inline ssize_t exi_flow_send(int fd, const void *buf, size_t len,
				    int flags)
{
	return exi_flow_send_on(exi_sock_find(fd), fd, buf, len, flags, NULL);
}

/* Sends n pieces with `bytes` bytes in all, at least one, on a stream; on TCP
 * by one system call. */
EXI_SHIM ssize_t exi_flow_sendv(int fd, const struct iovec *v, size_t n,
				size_t bytes, int flags);

/* Called before a call of the C library that sends up to *len bytes on the
 * descriptor itself (sendfile). Returns true if the direction is on TCP: it is
 * then not switched until exi_flow_native_sent(), which gets *in and the number
 * of bytes moved, or -1. Reduces *len if a fabric may be met meanwhile. Returns
 * false if the direction is on a fabric, or about to be. */
EXI_SHIM bool exi_flow_native_send(int fd, size_t *len, struct exi_inside *in);
EXI_SHIM void exi_flow_native_sent(const struct exi_inside *in, ssize_t moved);

#endif
