/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous calls on several pieces, and on files. */
#ifndef EXI_CORE_CALL_VECTOR_H
#define EXI_CORE_CALL_VECTOR_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/util.h"
#include "core/transfer/parts.h"

/* Sends n pieces by the calls of put. Returns bytes or -errno. */
EXI_SHIM ssize_t exi_parts_send(const struct exi_parts_put *put, int fd,
				const struct iovec *v, size_t n, int flags);
EXI_SHIM ssize_t exi_parts_recv(const struct exi_parts_get *get, int fd,
				const struct iovec *v, size_t n, int flags);
/* Sends n bytes of a file from offset `at` on, through one buffer. Returns how
 * many were sent, fewer if the file ends or the call would wait; -errno. */
EXI_SHIM ssize_t exi_parts_send_file(exi_send_one *put, int fd, int from,
				     off_t at, size_t n, int flags);
/* The total length; -EMSGSIZE, -EINVAL. */
EXI_SHIM ssize_t exi_parts_total(const struct iovec *v, size_t n);

#endif
