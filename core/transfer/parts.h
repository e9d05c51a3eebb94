/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations on several pieces, moved as if they were one buffer: buf and run
 * of the operation are what comes next, whatever it is made of. */
#ifndef EXI_CORE_TRANSFER_PARTS_H
#define EXI_CORE_TRANSFER_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/transfer/op.h"

/* Takes the pieces, and holds their registrations, until exi_parts_release().
 * The array is copied. -EFAULT, -EINVAL, -EMSGSIZE: there are too many;
 * -ENOMEM. Nothing is held then. */
int exi_parts_take(struct exi_op *op, const exs_iovec_t *iov, int n);
/* exi_parts_take() for pieces of memory and of files. -EBADF; -EINVAL: a file
 * is not regular, or is too short. */
int exi_parts_take_files(struct exi_op *op, const exs_xferfile_t *xf, int n);
/* Releases the pieces. Idempotent. */
void exi_parts_release(struct exi_op *op);

/* The next n bytes, which are in memory, were moved. */
void exi_parts_moved(struct exi_op *op, size_t n);

/* Whether exi_parts_read() must first read what comes next from a file. It
 * returns 0 or the file's error; -EIO: the file is shorter than it was. */
static inline bool exi_parts_wants(const struct exi_op *op)
{
	return !op->run && op->next < op->n_parts;
}
int exi_parts_read(struct exi_op *op);

/* Synchronous calls on several pieces. A receive of a stream uses `all`, which
 * takes what is there for all of them at once; so does a send while the
 * direction is on TCP. Otherwise `one`: pieces that fit a buffer of moderate
 * size are sent as one, so that they stay together, larger ones one by one. */
#define EXI_PARTS_GATHER (256u << 10)
typedef ssize_t exi_send_one(int fd, const void *buf, size_t len, int flags);
typedef ssize_t exi_recv_one(int fd, void *buf, size_t len, int flags);
typedef ssize_t exi_move_all(int fd, const struct iovec *v, size_t n,
			     size_t bytes, int flags);
struct exi_parts_put {
	exi_send_one *one;
	exi_move_all *all;
};
struct exi_parts_get {
	exi_recv_one *one;
	exi_move_all *all;
};

#endif
