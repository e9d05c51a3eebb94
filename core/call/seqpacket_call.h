/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous calls on a UNIX socket of SOCK_SEQPACKET. */
#ifndef EXI_CORE_CALL_SEQPACKET_CALL_H
#define EXI_CORE_CALL_SEQPACKET_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/util.h"

/* As sendmsg(2) without control data, and as recvmsg(2): return the bytes, or
 * -errno. The name is not set. *ret_over: the result is the end, not a message
 * of no bytes. -EBADF: the kernel serves the number. */
EXI_SHIM ssize_t exi_seq_send(int fd, const struct msghdr *m, int flags);
EXI_SHIM ssize_t exi_seq_recv(int fd, struct msghdr *m, int flags,
			      bool *ret_over);

/* The same of one buffer. */
ssize_t exi_seq_send_one(int fd, const void *buf, size_t len, int flags);
ssize_t exi_seq_recv_one(int fd, void *buf, size_t len, int flags);

#endif
