/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations and calls on several pieces. */
#include "core/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/flow.h"
#include "core/mem.h"
#include "core/packet.h"
#include "core/util.h"

/* Of a file, at once. */
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

static ssize_t put_each(const struct exi_parts_put *put, int fd,
			const struct iovec *v, size_t n, size_t bytes,
			int flags)
{
	ssize_t done = 0;

	for (size_t i = 0; i < n; i++) {
		ssize_t ret;

		if (!v[i].iov_len)
			continue;
		if (done && exi_flow_error_waits(fd, EXI_TX))
			break;
		if (exi_flow_on_tcp(fd, EXI_TX)) {
			ret = put->all(fd, v + i, n - i, bytes - (size_t)done,
				       flags);
			return ret > 0 || !done ? done + ret : done;
		}
		ret = put->one(fd, v[i].iov_base, v[i].iov_len, flags);
		if (ret > 0)
			done += ret;
		if (ret != (ssize_t)v[i].iov_len)
			return done ? done : ret;
	}
	return done;
}

ssize_t exi_parts_send(const struct exi_parts_put *put, int fd,
		       const struct iovec *v, size_t n, int flags)
{
	ssize_t bytes = exi_parts_total(v, n);

	if (bytes < 0)
		return bytes;
	if (n == 1)
		return put->one(fd, v[0].iov_base, v[0].iov_len, flags);
	if (bytes && !exi_packet_is(fd) && exi_flow_on_tcp(fd, EXI_TX))
		return put->all(fd, v, n, (size_t)bytes, flags);
	if (bytes <= (ssize_t)EXI_PARTS_GATHER || exi_packet_is(fd))
		return put_gathered(put->one, fd, v, n, (size_t)bytes, flags);
	return put_each(put, fd, v, n, (size_t)bytes, flags);
}

/* One look, or the second piece would be the first again; and one message. */
static ssize_t get_at_once(exi_recv_one *get, int fd, const struct iovec *v,
			   size_t n, size_t bytes, int flags)
{
	char *buf = malloc(bytes + 1);
	ssize_t ret = -ENOMEM, left;

	if (!buf)
		return ret;
	ret = get(fd, buf, bytes, flags);
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
ssize_t exi_parts_recv(const struct exi_parts_get *get, int fd,
		       const struct iovec *v, size_t n, int flags)
{
	ssize_t bytes = exi_parts_total(v, n), done = 0;

	if (bytes < 0)
		return bytes;
	if (n > 1 && exi_packet_is(fd))
		return get_at_once(get->one, fd, v, n, (size_t)bytes, flags);
	if ((flags & MSG_PEEK) && n > 1)
		return get_at_once(get->one, fd, v, n,
				   bytes < (ssize_t)EXI_PARTS_GATHER
					   ? (size_t)bytes
					   : EXI_PARTS_GATHER,
				   flags);
	for (size_t i = 0; i < n; i++) {
		ssize_t ret;

		if (!v[i].iov_len)
			continue;
		if (done && exi_flow_error_waits(fd, EXI_RX))
			break;
		if (n - i > 1 && exi_flow_on_tcp(fd, EXI_RX)) {
			ret = get->all(fd, v + i, n - i, (size_t)(bytes - done),
				       flags);
			return ret > 0 || !done ? done + ret : done;
		}
		ret = get->one(fd, v[i].iov_base, v[i].iov_len, flags);
		if (ret > 0)
			done += ret;
		if (ret != (ssize_t)v[i].iov_len)
			return done ? done : ret;
		if (!(flags & MSG_WAITALL))
			flags |= MSG_DONTWAIT;
	}
	return done;
}

ssize_t exi_parts_send_file(exi_send_one *put, int fd, int from, off_t at,
			    size_t n, int flags)
{
	size_t most = n < EXI_PARTS_GATHER ? n : EXI_PARTS_GATHER, done = 0;
	char *buf = malloc(most ? most : 1);
	ssize_t ret = buf ? 0 : -ENOMEM;

	while (ret >= 0 && done < n) {
		ssize_t got =
			pread(from, buf, n - done < most ? n - done : most, at);

		if (got <= 0) {
			ret = got < 0 ? -errno : 0;
			break;
		}
		if (done && exi_flow_error_waits(fd, EXI_TX))
			break;
		ret = put(fd, buf, (size_t)got, flags);
		if (ret <= 0)
			break;
		at += ret;
		done += (size_t)ret;
		if (ret < got)
			break;
	}
	free(buf);
	return done ? (ssize_t)done : ret;
}
