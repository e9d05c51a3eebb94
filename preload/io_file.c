/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks that send a file over a connection. */
#include <fcntl.h>
#include <limits.h>
#include <sys/exs_ext.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "core/base/util.h"
#include "core/call/feed.h"
#include "core/call/latent_call.h"
#include "core/call/send.h"
#include "core/call/vector.h"
#include "core/fabric/provider.h"
#include "core/meet/latent.h"
#include "core/sock/table.h"
#include "core/transfer/packet.h"
#include "core/transfer/switch.h"
#include "preload/io.h"
#include "preload/shim.h"

static __attribute__((noinline)) bool
latent_put_file(int fd, int from, off_t *offset, size_t n, ssize_t *ret)
{
	struct exi_latent_call c;

	if (!n || !exi_latent_enter(&c, fd, EXI_TX, n))
		return false;
	*ret = native.sendfile(fd, from, offset, n);
	exi_latent_leave(&c, fd, EXI_TX, *ret);
	return true;
}

/* --- files -------------------------------------------------------------- */

static ssize_t send_file(int to, int from, off_t *offset, size_t n)
{
	off_t at = offset ? *offset : lseek(from, 0, SEEK_CUR);
	ssize_t ret;

	/* A pipe has no position: the kernel says so. */
	if (at < 0)
		return offset || errno == ESPIPE ? -EINVAL : -errno;
	ret = exi_parts_send_file(shim_put_piece, to, from, at, n, 0);
	if (ret > 0 && offset)
		*offset = at + ret;
	else if (ret > 0)
		lseek(from, at + ret, SEEK_SET);
	return ret == -ESPIPE ? -EINVAL : ret;
}

/* Sends *n bytes of a file; reduces *n if the connection may meet a fabric
 * meanwhile. */
static ssize_t send_piece(int to, int from, off_t *offset, size_t *n)
{
	struct exi_inside in;
	ssize_t ret;
	int saved;

	if (!exi_flow_native_send(to, n, &in))
		return shim_result(send_file(to, from, offset, *n));
	ret = native.sendfile(to, from, offset, *n);
	saved = errno;
	exi_flow_native_sent(&in, ret);
	errno = saved;
	return ret;
}

HOOK ssize_t sendfile(int to, int from, off_t *offset, size_t n)
{
	size_t piece, done = 0;
	ssize_t ret;

	if (exi_unlikely(shim_sock(from)))
		shim_plain(from, EXS_X_REASON_SPLICE);
	if (exi_unlikely(n > SSIZE_MAX)) /* is refused */
		return native.sendfile(to, from, offset, n);
	if (exi_latent(to) && latent_put_file(to, from, offset, n, &ret))
		return ret;
	/* The kernel chooses the messages. */
	if (exi_unlikely(exi_packet_is(to)))
		shim_plain(to, EXS_X_REASON_SPLICE);
	if (exi_likely(!shim_sock(to)))
		return native.sendfile(to, from, offset, n);
	do {
		piece = n - done;
		ret = send_piece(to, from, offset, &piece);
		done += ret > 0 ? (size_t)ret : 0;
	} while (ret == (ssize_t)piece && done < n);
	return done ? (ssize_t)done : ret;
}

HOOK ssize_t sendfile64(int to, int from, off_t *offset, size_t n);
HOOK ssize_t sendfile64(int to, int from, off_t *offset, size_t n)
{
	return sendfile(to, from, offset, n);
}

HOOK ssize_t splice(int from, off64_t *off_from, int to, off64_t *off_to,
		    size_t n, unsigned int flags)
{
	struct exi_patience p = { 0 };

	shim_tell(from, EXS_X_REASON_SPLICE);
	shim_tell(to, EXS_X_REASON_SPLICE);
	shim_plain_of(from, EXS_X_REASON_SPLICE, &p);
	shim_plain_of(to, EXS_X_REASON_SPLICE, &p);
	exi_feed_rest();
	return native.splice(from, off_from, to, off_to, n, flags);
}
