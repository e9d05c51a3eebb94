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
/* The release of the pieces may be repeated. */
void exi_parts_release(struct exi_op *op);

/* n of the bytes that came next were moved: of those in memory. */
void exi_parts_moved(struct exi_op *op, size_t n);

/* What comes next is to be read from a file first: exi_parts_read(), which
 * gives 0, or what the file says, -EIO: it is shorter than it was. */
static inline bool exi_parts_wants(const struct exi_op *op)
{
	return !op->run && op->next < op->n_parts;
}
int exi_parts_read(struct exi_op *op);

/* Synchronous calls on several pieces: while the direction is on TCP by `all`,
 * a call for several, as exi_flow_sendv(); else by `one`, a call for one, which
 * is given MSG_DONTWAIT where more is taken only if it is there. What fits a
 * buffer of moderate size is sent as one, so that it stays together. */
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
