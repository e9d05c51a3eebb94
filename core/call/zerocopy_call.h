/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends with MSG_ZEROCOPY, and their error queue. On TCP the kernel does both.
 * A fabric copies, and the library reports the completions in the kernel's
 * format (core/sock/zerocopy.h). */
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

/* exi_flow_sendv() with MSG_ZEROCOPY among the flags. Wakes the socket's
 * waiters if a completion is to be reported. */
EXI_SHIM ssize_t exi_zerocopy_send(int fd, const struct iovec *v, size_t n,
				   size_t bytes, int flags);

/* recvmsg(2) with MSG_ERRQUEUE among the flags: its result, or -errno. */
EXI_SHIM ssize_t exi_zerocopy_recv(int fd, struct msghdr *m, int flags);

/* Whether a completion is to be reported: poll returns POLLERR. */
static inline bool exi_zerocopy_due(const struct exi_sock *sk)
{
	return atomic_load(&exi_sock_shared(sk)->zerocopy.state) &
	       EXI_ZEROCOPY_DUE;
}

#endif
