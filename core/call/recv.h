/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous receives. */
#ifndef EXI_CORE_CALL_RECV_H
#define EXI_CORE_CALL_RECV_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/util.h"
#include "core/meet/find.h"
#include "core/transfer/half.h"

struct exi_beside;

/* recv(2) of a socket of the library: bytes, 0 for the end, or -errno; -EBADF:
 * the library has no such socket. sk: what exi_sock_find() gave for fd, also
 * null. No lock is held. */
EXI_SHIM ssize_t exi_flow_recv_on(struct exi_sock *sk, int fd, void *buf,
				  size_t len, int flags);
static inline ssize_t exi_flow_recv(int fd, void *buf, size_t len, int flags)
{
	return exi_flow_recv_on(exi_sock_find(fd), fd, buf, len, flags);
}

/* exi_flow_recv() into n pieces of bytes in all. */
ssize_t exi_flow_recvv(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags);

/* The same, with room for what the kernel gives beside the bytes
 * (ancillary.h), unless null; flags have neither MSG_PEEK nor MSG_WAITALL
 * then. */
EXI_SHIM ssize_t exi_flow_recv_beside(int fd, const struct iovec *v, size_t n,
				      size_t bytes, int flags,
				      struct exi_beside *beside);

/* A thread asleep in the kernel's own call costs nothing more than without
 * the library. */
struct exi_recv_kernel {
	struct exi_inside in;
	struct exi_sock *sk;
	uint32_t generation;	    /* of sk, as the call began */
	const struct exi_pieces *p; /* that the kernel was given */
	enum exi_dir dir;
	int flags;
	bool counts; /* what came */
	ssize_t n;
	bool go;
};

/* A call that waits in the kernel for all of its bytes is given so many at
 * most: a fabric may be met meanwhile. */
#define EXI_RECV_KERNEL_MAX ((size_t)1 << 20)

/* The cleanup of a receive in the kernel's own call; arg is a struct
 * exi_recv_kernel. Counts what moved, also when the thread was cancelled; go:
 * the direction's last such call is over. */
void exi_recv_kernel_end(void *arg);

#endif
