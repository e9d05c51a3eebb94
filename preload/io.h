/* SPDX-License-Identifier: BSD-2-Clause */
/* What the hooks that read and write share: io.c has one buffer, io_vector.c
 * several and messages, io_file.c files. */
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

/* In a hook, whose descriptor is fd: call served a latent connection, and its
 * result is in ret. */
#define LATENT(call) (exi_unlikely(exi_latent(fd)) && (call))

struct exi_beside;

/* io.c */

/* The kernel's call was done, with that result. False where the word was of a
 * connection that closed unseen, and the number is another's: the call is to be
 * served anew. */
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

/* Sends so many bytes, not none, with MSG_ZEROCOPY among the flags; reads the
 * error queue, with MSG_ERRQUEUE among them. Results as of put(). */
ssize_t shim_put_zerocopy(int fd, const struct iovec *v, size_t n, size_t bytes,
			  int flags);
ssize_t shim_get_error(int fd, struct msghdr *m, int flags);

/* The address that a message of the peer has, any: it has bytes. None where the
 * peer has none. */
int shim_io_address(int fd, bool any, void *addr, socklen_t *len);

/* The flags of a receive that mean something on such a connection. */
static inline int shim_io_flags(const struct exi_sock *sk, int flags)
{
	if (exi_likely(!(flags & (MSG_ERRQUEUE | MSG_TRUNC | MSG_PEEK))) ||
	    !sk || sk->base->tcp_flags)
		return flags;
	/* A peek does not wait for all. */
	if (flags & MSG_PEEK)
		flags &= ~MSG_WAITALL;
	return flags & ~(MSG_ERRQUEUE | MSG_TRUNC);
}

/* The kernel serves a receive with these flags: urgent data is on TCP always,
 * and the error queue comes before it. */
static inline bool shim_io_kernels(int flags)
{
	return (flags & (MSG_ERRQUEUE | MSG_OOB)) == MSG_OOB;
}

#endif
