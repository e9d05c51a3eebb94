/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous calls on several buffers, and on files. */
#include "core/call/vector.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/pieces.h"
#include "core/call/patience.h"
#include "core/fabric/provider.h"
#include "core/transfer/packet.h"
#include "core/transfer/parts.h"
#include "core/transfer/progress.h"

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

/* The bytes of one call stay together if they fit: other threads send, too. */
static ssize_t put_gathered(exi_send_one *put, int fd, const struct iovec *v,
			    size_t n, size_t bytes, int flags)
{
	char small[4096], *buf = small, *to;
	ssize_t ret;

	if (bytes > sizeof(small))
		buf = malloc(bytes);
	if (!buf)
		return -ENOMEM;
	*buf = '\0'; /* for a send of no bytes */
	to = buf;
	for (size_t i = 0; i < n; i++)
		if (v[i].iov_len) /* for no bytes the base may be null */
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

static ssize_t get_message(exi_recv_one *get, int fd, const struct iovec *v,
			   size_t n, size_t bytes, int flags)
{
	struct exi_pieces p = { .v = v, .n = n, .left = bytes };
	char *buf = malloc(bytes + 1);
	ssize_t ret = -ENOMEM;

	if (!buf)
		return ret;
	ret = get(fd, buf, bytes, flags);
	if (ret > 0)
		exi_pieces_scatter(&p, buf, (size_t)ret);
	free(buf);
	return ret;
}

ssize_t exi_parts_recv(const struct exi_parts_get *get, int fd,
		       const struct iovec *v, size_t n, int flags)
{
	ssize_t bytes = exi_parts_total(v, n);

	if (bytes < 0)
		return bytes;
	if (n > 1 && exi_packet_is(fd))
		return get_message(get->one, fd, v, n, (size_t)bytes, flags);
	if (!bytes)
		return 0;
	return n == 1 ? get->one(fd, v->iov_base, v->iov_len, flags)
		      : get->all(fd, v, n, (size_t)bytes, flags);
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
