/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream beneath a connection where it is a UNIX socket. The bytes of a
 * send are in the receiver's queue before the call returns: nothing is on its
 * way, and the unread bytes there determine where a switch begins. See
 * docs/design/unix.md. */
#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/proof_unix.h"
#include "core/fabric/provider.h"
#include "core/sock/base.h"
#include "core/sock/table.h"

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif

static bool is_unix(int domain, int type, int protocol)
{
	return domain == AF_UNIX && type == SOCK_STREAM &&
	       exi_config()->unix_streams;
}

static bool is_packets(int domain, int type, int protocol)
{
	return domain == AF_UNIX && type == SOCK_SEQPACKET &&
	       exi_config()->unix_packets;
}

static bool option_set(int fd, int name)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, SOL_SOCKET, name, &v, &len) == 0 && v != 0;
}

/* The kernel alone gives credentials with each message. */
static int forbidden(int fd)
{
	if (option_set(fd, SO_PASSCRED) || option_set(fd, SO_PASSPIDFD) ||
	    option_set(fd, SO_PASSSEC))
		return EXS_X_REASON_ANCILLARY;
	return exi_base_forbidden(fd);
}

/* Neither the inode numbers nor the names show which end connected: accept(2)
 * makes its end before a client connects. */
static enum exi_role role_of(int fd)
{
	return EXI_ROLE_NONE;
}

static int bytes_written(struct exi_sock *sk, uint64_t *ret)
{
	const struct exi_half *h = &sk->sh->half[EXI_TX];

	*ret = h->bytes - h->fabric_bytes + h->drained;
	return 0;
}

static int bytes_read(struct exi_sock *sk, uint64_t written, uint64_t *ret)
{
	int unread;

	if (ioctl(sk->tcp->fd, SIOCINQ, &unread) < 0)
		return -errno;
	*ret = written - (uint64_t)unread;
	return 0;
}

/* SIOCINQ leaves out messages of no bytes: what was read is counted here. */
static int packets_read(struct exi_sock *sk, uint64_t written, uint64_t *ret)
{
	const struct exi_half *h = &sk->sh->half[EXI_RX];

	*ret = h->bytes - h->fabric_bytes;
	return 0;
}

/* The kernel has none. */
static int counts(struct exi_sock *sk, uint64_t *ret_rx, uint64_t *ret_tx)
{
	return -EOPNOTSUPP;
}

/* Nothing is held back. */
static int push(int fd)
{
	return 0;
}

/* The largest SO_SNDBUF without privilege. */
static uint32_t room(void)
{
	static _Atomic uint32_t known;
	uint32_t ret = atomic_load(&known);
	int size = INT_MAX / 2, fd;
	socklen_t len = sizeof(size);

	if (ret)
		return ret;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 1; /* a ring as small as it can be */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &len) < 0 || size < 1)
		size = 1;
	close(fd);
	atomic_store(&known, (uint32_t)size);
	return (uint32_t)size;
}

/* A program may send all that its socket has room for usually, half of what is
 * the most, before the peer reads: so the ring is no smaller, or a send that
 * never waits in the kernel would. */
uint32_t exi_unix_ring(uint32_t most_room)
{
	uint32_t ret = 1;

	while (ret <= most_room / 16 * 5)
		ret *= 2;
	return ret;
}

#define LAST 16640 /* what the last message may be charged for a byte */

/* For the bytes of a ring, the kernel charges a sixteenth more (drain.c makes
 * messages so), and the bytes in the queue it has charged already. */
int64_t exi_unix_beside(uint32_t most_room, uint32_t ring)
{
	return (int64_t)most_room - ring - ring / 16 - LAST;
}

/* At least what the socket has room for: the usual SO_SNDBUF, or what the
 * program asked for. More would hold a sender up later than the kernel does,
 * where the host allows more. */
static uint32_t most(int fd)
{
	uint32_t limit = exi_unix_ring(room()), ret = 1;
	int own = 0;
	socklen_t len = sizeof(own);

	if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &own, &len) < 0 || own < 1)
		return limit;
	while (ret < (uint32_t)own && ret < limit)
		ret *= 2;
	return ret;
}

static int64_t beside(uint32_t ring)
{
	return exi_unix_beside(room(), ring);
}

static bool disconnect(int fd)
{
	return shutdown(fd, SHUT_RDWR) == 0;
}

static int option_reason(int level, int name)
{
	return level == SOL_SOCKET &&
			       (name == SO_PASSCRED || name == SO_PASSPIDFD ||
				name == SO_PASSSEC)
		       ? EXS_X_REASON_ANCILLARY
		       : EXS_X_REASON_NONE;
}

const struct exi_base exi_base_unix = {
	.is = is_unix,
	.forbidden = forbidden,
	.role = role_of,
	.same = exi_sock_current,
	.written = bytes_written,
	.read = bytes_read,
	.counts = counts,
	.push = push,
	.most = most,
	.beside = beside,
	.disconnect = disconnect,
	.sign = exi_unix_sign,
	.sign_used = exi_unix_sign_used,
	.unsign = exi_unix_unsign,
	.sign_waits = true,
	.ends_both = true,
	.counted_here = true,
	.early = true,
	.messages = true,
	.option = option_reason,
};

static uint32_t admits(int fd)
{
	int own = 0;
	socklen_t len = sizeof(own);

	return getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &own, &len) < 0 || own < 1
		       ? 1
		       : (uint32_t)own;
}

/* One message more than is admitted, as large as the kernel takes it. */
static uint32_t packets_most(int fd)
{
	uint64_t want = 2 * (uint64_t)admits(fd) + LAST;
	uint32_t ret = 1;

	while (ret < want && ret < 1u << 30)
		ret *= 2;
	return ret;
}

/* The kernel admits the last message, however large, while there is room. */
static int64_t packets_beside(uint32_t ring)
{
	return (int64_t)room() - ring / 2;
}

const struct exi_base exi_base_packets = {
	.is = is_packets,
	.forbidden = forbidden,
	.role = role_of,
	.same = exi_sock_current,
	.written = bytes_written,
	.read = packets_read,
	.counts = counts,
	.push = push,
	.most = packets_most,
	.beside = packets_beside,
	.disconnect = disconnect,
	.sign = exi_unix_sign,
	.sign_used = exi_unix_sign_used,
	.unsign = exi_unix_unsign,
	.sign_waits = true,
	.ends_both = true,
	.counted_here = true,
	.early = true,
	.messages = true,
	.packets = true,
	.admits = admits,
	.option = option_reason,
};
