/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends with MSG_ZEROCOPY, and the error queue that tells of them. What is on
 * TCP is the kernel's affair; a fabric copies, and the library tells of it in
 * the kernel's words (core/sock/zerocopy.h). */
#ifndef EXI_CORE_CALL_ZEROCOPY_CALL_H
#define EXI_CORE_CALL_ZEROCOPY_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/util.h"
#include "core/sock/table.h"

struct msghdr;

/* exi_flow_sendv() with MSG_ZEROCOPY among the flags. Whoever waits for the
 * socket's readiness is woken where the library has something to tell. */
EXI_SHIM ssize_t exi_zerocopy_send(int fd, const struct iovec *v, size_t n,
				   size_t bytes, int flags);

/* recvmsg(2) with MSG_ERRQUEUE among the flags: what it returns, or -errno. */
EXI_SHIM ssize_t exi_zerocopy_recv(int fd, struct msghdr *m, int flags);

/* The library has something to tell: poll says POLLERR. */
static inline bool exi_zerocopy_due(const struct exi_sock *sk)
{
	return atomic_load(&exi_sock_shared(sk)->zerocopy.state) &
	       EXI_ZEROCOPY_DUE;
}

#endif
