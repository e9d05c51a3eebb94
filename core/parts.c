/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations and calls on several pieces. */
#include "core/parts.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/mem.h"
#include "core/util.h"

/* --- operations --------------------------------------------------------- */

static int take_one(struct exi_part *p, const exs_iovec_t *v)
{
	if (!v->exs_iov_base && v->exs_iov_len)
		return -EFAULT;
	p->base = v->exs_iov_base;
	p->len = v->exs_iov_len;
	return exi_mem_get(v->exs_iov_mhandle, p->base, p->len, &p->region);
}

/* The next part that has something, if there is one. */
static void advance(struct exi_op *op)
{
	while (!op->run && op->next < op->n_parts) {
		op->buf = op->parts[op->next].base;
		op->run = op->parts[op->next++].len;
	}
}

int exi_parts_take(struct exi_op *op, const exs_iovec_t *iov, int n)
{
	int ret = 0;

	if (n < 0)
		return -EINVAL;
	if (n > IOV_MAX)
		return -EMSGSIZE;
	if (!iov && n)
		return -EFAULT;
	op->parts = n <= EXI_PARTS_FEW ? op->few
				       : calloc((size_t)n, sizeof(*op->parts));
	if (!op->parts)
		return -ENOMEM;
	for (int i = 0; i < n && !ret; i++) {
		if (iov[i].exs_iov_len > (size_t)SSIZE_MAX - op->len)
			ret = -EINVAL;
		else
			ret = take_one(&op->parts[i], &iov[i]);
		if (ret)
			break;
		op->n_parts++;
		op->len += iov[i].exs_iov_len;
	}
	if (ret)
		exi_parts_release(op);
	else
		advance(op);
	return ret;
}

void exi_parts_release(struct exi_op *op)
{
	struct exi_part *parts = op->parts;

	for (size_t i = 0; i < op->n_parts; i++)
		exi_mem_put(parts[i].region);
	op->n_parts = 0;
	op->parts = NULL;
	if (parts != op->few)
		free(parts);
}

void exi_parts_moved(struct exi_op *op, size_t n)
{
	op->done += n;
	op->run -= n;
	if (n)
		op->buf = (char *)op->buf + n;
	if (exi_unlikely(!op->run))
		advance(op);
}

/* --- calls -------------------------------------------------------------- */

ssize_t exi_parts_total(const struct iovec *v, size_t n)
{
	size_t sum = 0;

	if (n > IOV_MAX)
		return -EMSGSIZE;
	for (size_t i = 0; i < n; i++) {
		if (v[i].iov_len > (size_t)SSIZE_MAX - sum)
			return -EINVAL;
		sum += v[i].iov_len;
	}
	return (ssize_t)sum;
}

/* One call's bytes stay together where they fit: other threads send, too. */
static ssize_t put_gathered(exi_send_one *put, int fd, const struct iovec *v,
			    size_t n, size_t bytes, int flags)
{
	char small[4096], *buf = small, *to;
	ssize_t ret;

	if (bytes > sizeof(small))
		buf = malloc(bytes);
	if (!buf)
		return -ENOMEM;
	*buf = '\0'; /* for the sender of nothing */
	to = buf;
	for (size_t i = 0; i < n; i++)
		if (v[i].iov_len) /* with none, the base may be null */
			to = mempcpy(to, v[i].iov_base, v[i].iov_len);
	ret = put(fd, buf, bytes, flags);
	if (buf != small)
		free(buf);
	return ret;
}

static ssize_t put_each(exi_send_one *put, int fd, const struct iovec *v,
			size_t n, int flags)
{
	ssize_t done = 0;

	for (size_t i = 0; i < n; i++) {
		ssize_t ret;

		if (!v[i].iov_len)
			continue;
		ret = put(fd, v[i].iov_base, v[i].iov_len, flags);
		if (ret > 0)
			done += ret;
		if (ret != (ssize_t)v[i].iov_len)
			return done ? done : ret;
	}
	return done;
}

ssize_t exi_parts_send(exi_send_one *put, int fd, const struct iovec *v,
		       size_t n, int flags)
{
	ssize_t bytes = exi_parts_total(v, n);

	if (bytes < 0)
		return bytes;
	if (n == 1)
		return put(fd, v[0].iov_base, v[0].iov_len, flags);
	return bytes <= (ssize_t)EXI_PARTS_GATHER
		       ? put_gathered(put, fd, v, n, (size_t)bytes, flags)
		       : put_each(put, fd, v, n, flags);
}

/* One look, or the second piece would be the first again. */
static ssize_t peek_vector(exi_recv_one *get, int fd, const struct iovec *v,
			   size_t n, size_t bytes, int flags)
{
	char *buf =
		malloc(bytes < EXI_PARTS_GATHER ? bytes + 1 : EXI_PARTS_GATHER);
	ssize_t ret = -ENOMEM, left;

	if (!buf)
		return ret;
	ret = get(fd, buf, bytes < EXI_PARTS_GATHER ? bytes : EXI_PARTS_GATHER,
		  flags);
	left = ret;
	for (size_t i = 0; i < n && left > 0; i++) {
		size_t part = v[i].iov_len < (size_t)left ? v[i].iov_len
							  : (size_t)left;

		memcpy(v[i].iov_base, buf + (ret - left), part);
		left -= (ssize_t)part;
	}
	free(buf);
	return ret;
}

/* The first wait is the call's; what lies there goes on into the next. */
ssize_t exi_parts_recv(exi_recv_one *get, int fd, const struct iovec *v,
		       size_t n, int flags)
{
	ssize_t bytes = exi_parts_total(v, n), done = 0;

	if (bytes < 0)
		return bytes;
	if ((flags & MSG_PEEK) && n > 1)
		return peek_vector(get, fd, v, n, (size_t)bytes, flags);
	for (size_t i = 0; i < n; i++) {
		ssize_t ret;

		if (!v[i].iov_len)
			continue;
		ret = get(fd, v[i].iov_base, v[i].iov_len, flags);
		if (ret > 0)
			done += ret;
		if (ret != (ssize_t)v[i].iov_len)
			return done ? done : ret;
		if (!(flags & MSG_WAITALL))
			flags |= MSG_DONTWAIT;
	}
	return done;
}
