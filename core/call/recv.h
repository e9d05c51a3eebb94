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

/* recv(2) on a socket of the library: bytes, 0 at the end, or -errno; -EBADF:
 * the library has no such socket. sk: the result of exi_sock_find() for fd,
 * which may be null. No lock is held. */
EXI_SHIM ssize_t exi_flow_recv_on(struct exi_sock *sk, int fd, void *buf,
				  size_t len, int flags);
static inline ssize_t exi_flow_recv(int fd, void *buf, size_t len, int flags)
{
	return exi_flow_recv_on(exi_sock_find(fd), fd, buf, len, flags);
}

/* exi_flow_recv() into n pieces of bytes in all. */
ssize_t exi_flow_recvv(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags);

/* The same, with a buffer for ancillary data (ancillary.h), which may be null;
 * if it is not, flags have neither MSG_PEEK nor MSG_WAITALL. */
EXI_SHIM ssize_t exi_flow_recv_beside(int fd, const struct iovec *v, size_t n,
				      size_t bytes, int flags,
				      struct exi_beside *beside);

/* A receive by a system call of its own: a thread that sleeps there costs
 * nothing more than without the library. */
struct exi_recv_kernel {
	struct exi_inside in;
	struct exi_sock *sk;
	uint32_t generation;	    /* of sk when the call began */
	const struct exi_pieces *p; /* given to the kernel */
	enum exi_dir dir;
	int flags;
	bool counts; /* counts the bytes */
	ssize_t n;
	bool go;
};

/* The most bytes that a call which waits in the kernel for all its bytes may
 * request at once, because a fabric may be met meanwhile. */
#define EXI_RECV_KERNEL_MAX ((size_t)1 << 20)

/* The cleanup of a receive by a system call; arg is a struct exi_recv_kernel.
 * Counts the bytes that moved, even if the thread was cancelled. go: this was
 * the direction's last such call. */
void exi_recv_kernel_end(void *arg);

#endif
