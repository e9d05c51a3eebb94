/* SPDX-License-Identifier: BSD-2-Clause */
/* What the hooks that read and write share: io.c has the calls on one buffer,
 * io_vector.c those on several buffers and on messages, io_file.c those on
 * files. */
#ifndef EXI_PRELOAD_IO_H
#define EXI_PRELOAD_IO_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/util.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/meet/latent.h"
#include "core/transfer/parts.h"

/* For a hook with a descriptor named fd: call served a latent connection, and
 * its result is in ret. */
#define LATENT(call) (exi_unlikely(exi_latent(fd)) && (call))

struct exi_beside;

/* io.c */

/* Called after the kernel's call, with its result. Returns false if the latent
 * connection was closed by a call that is not intercepted and its number now
 * belongs to another file: the hook must serve the call again. */
bool shim_latent_done(int fd, ssize_t ret);

/* put() and get() (io.c) of one buffer: bytes, or -errno. Hooks of several
 * buffers call these, or hand the tables to exi_parts_send() and
 * exi_parts_recv(). */
ssize_t shim_put_piece(int fd, const void *buf, size_t n, int flags);
ssize_t shim_get_piece(int fd, void *buf, size_t n, int flags);
/* shim_get_parts.all(), with room for what comes beside the bytes
 * (exi_flow_recv_beside()). */
ssize_t shim_get_beside(int fd, const struct iovec *v, size_t n, size_t bytes,
			int flags, struct exi_beside *beside);
extern const struct exi_parts_put shim_put_parts;
extern const struct exi_parts_get shim_get_parts;

/* recvmsg(2) of a socket of messages (base.h). Bytes, or -errno. */
ssize_t shim_get_packet(int fd, struct msghdr *m, int flags);

/* shim_put_zerocopy() sends with MSG_ZEROCOPY among the flags; bytes is not 0.
 * shim_get_error() reads the error queue, with MSG_ERRQUEUE among the flags.
 * Results are those of put(). */
ssize_t shim_put_zerocopy(int fd, const struct iovec *v, size_t n, size_t bytes,
			  int flags);
ssize_t shim_get_error(int fd, struct msghdr *m, int flags);

/* Stores the peer's address for a received message. any: the message has bytes.
 * Stores none if it has no bytes or if the peer has no address. */
int shim_io_address(int fd, bool any, void *addr, socklen_t *len);

/* The flags of a receive that have a meaning on such a connection. */
static inline int shim_io_flags(const struct exi_sock *sk, int flags)
{
	if (exi_likely(!(flags & (MSG_ERRQUEUE | MSG_TRUNC | MSG_PEEK))) ||
	    !sk || sk->base->tcp_flags)
		return flags;
	/* MSG_PEEK does not wait for all bytes. */
	if (flags & MSG_PEEK)
		flags &= ~MSG_WAITALL;
	return flags & ~(MSG_ERRQUEUE | MSG_TRUNC);
}

/* Whether the kernel serves a receive with these flags: urgent data is always
 * on TCP, and the error queue is read before it. */
static inline bool shim_io_kernels(int flags)
{
	return (flags & (MSG_ERRQUEUE | MSG_OOB)) == MSG_OOB;
}

#endif
