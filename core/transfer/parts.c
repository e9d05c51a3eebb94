/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations and calls on several pieces. */
#include "core/transfer/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/util.h"
#include "core/transfer/mem.h"
#include "core/transfer/op.h"

/* The bytes of a file that are read at once. */
#define CHUNK (64u << 10)

/* --- operations --------------------------------------------------------- */

/* The next part that has something, if there is one in memory. */
static void advance(struct exi_op *op)
{
	while (!op->run && op->next < op->n_parts) {
		const struct exi_part *p = &op->parts[op->next];

		if (p->fd >= 0 && p->len)
			return; /* is to be read */
		if (p->fd < 0) {
			op->buf = p->base;
			op->run = p->len;
		}
		op->next++;
	}
}

int exi_parts_read(struct exi_op *op)
{
	struct exi_part *p = &op->parts[op->next];
	ssize_t n;

	do
		n = pread(p->fd, op->chunk, p->len < CHUNK ? p->len : CHUNK,
			  p->at);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : -EIO;
	op->buf = op->chunk;
	op->run = (size_t)n;
	p->at += n;
	p->len -= (size_t)n;
	if (!p->len)
		op->next++;
	return 0;
}

/* Room for n parts. */
static int room(struct exi_op *op, const void *array, int n)
{
	if (n < 0)
		return -EINVAL;
	if (n > IOV_MAX)
		return -EMSGSIZE;
	if (!array && n)
		return -EFAULT;
	op->parts = n <= EXI_PARTS_FEW ? op->few
				       : calloc((size_t)n, sizeof(*op->parts));
	return op->parts ? 0 : -ENOMEM;
}

static int add(struct exi_op *op, const struct exi_part *p)
{
	if (p->len > (size_t)SSIZE_MAX - op->len) {
		exi_mem_put(p->region);
		return -EINVAL;
	}
	op->parts[op->n_parts++] = *p;
	op->len += p->len;
	return 0;
}

static int add_memory(struct exi_op *op, const exs_iovec_t *v)
{
	struct exi_part p = { .base = v->exs_iov_base,
			      .len = v->exs_iov_len,
			      .fd = -1 };
	int ret;

	if (!p.base && p.len)
		return -EFAULT;
	ret = exi_mem_get(v->exs_iov_mhandle, p.base, p.len, &p.region);
	return ret ? ret : add(op, &p);
}

static int add_file(struct exi_op *op, const exs_fdvec_t *v)
{
	struct exi_part p = { .at = v->exs_fd_offset,
			      .len = v->exs_fd_len,
			      .fd = v->exs_fd_fildes };
	int fl = fcntl(p.fd, F_GETFL);
	struct stat st;

	if (fl < 0 || (fl & O_PATH) || (fl & O_ACCMODE) == O_WRONLY)
		return -EBADF;
	if (fstat(p.fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || p.at < 0 || p.at > st.st_size ||
	    p.len > (size_t)(st.st_size - p.at))
		return -EINVAL;
	if (!p.len)
		p.len = (size_t)(st.st_size - p.at);
	if (p.len && !op->chunk)
		op->chunk = malloc(CHUNK);
	return p.len && !op->chunk ? -ENOMEM : add(op, &p);
}

static int taken(struct exi_op *op, int ret)
{
	if (ret)
		exi_parts_release(op);
	else
		advance(op);
	return ret;
}

int exi_parts_take(struct exi_op *op, const exs_iovec_t *iov, int n)
{
	int ret = room(op, iov, n);

	for (int i = 0; i < n && !ret; i++)
		ret = add_memory(op, &iov[i]);
	return taken(op, ret);
}

int exi_parts_take_files(struct exi_op *op, const exs_xferfile_t *xf, int n)
{
	int ret = room(op, xf, n);

	for (int i = 0; i < n && !ret; i++)
		ret = xf[i].exs_xf_type == EXS_IOVEC
			      ? add_memory(op, &xf[i].exs_xf_un.exs_xf_iovec)
		      : xf[i].exs_xf_type == EXS_FDVEC
			      ? add_file(op, &xf[i].exs_xf_un.exs_xf_fdvec)
			      : -EINVAL;
	return taken(op, ret);
}

void exi_parts_release(struct exi_op *op)
{
	struct exi_part *parts = op->parts;
	char *chunk = op->chunk;

	for (size_t i = 0; i < op->n_parts; i++)
		exi_mem_put(parts[i].region);
	op->n_parts = 0;
	op->parts = NULL;
	op->chunk = NULL;
	if (parts != op->few)
		free(parts);
	free(chunk);
}

void exi_parts_moved(struct exi_op *op, size_t n)
{
	op->done += n;
	while (exi_unlikely(n > op->run)) {
		n -= op->run;
		op->run = 0;
		advance(op);
	}
	op->run -= n;
	if (n)
		op->buf = (char *)op->buf + n;
	if (exi_unlikely(!op->run))
		advance(op);
}
