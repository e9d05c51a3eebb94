/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks that read and write several buffers, and messages. */
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/uio.h>

#include "core/base/ancillary.h"
#include "core/base/track.h"
#include "core/base/pieces.h"
#include "core/base/util.h"
#include "core/call/latent_call.h"
#include "core/call/patience.h"
#include "core/call/ready.h"
#include "core/call/vector.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/meet/handed.h"
#include "core/meet/latent.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/transfer/packet.h"
#include "core/transfer/progress.h"
#include "core/transfer/switch.h"
#include "preload/handed.h"
#include "preload/io.h"
#include "preload/shim.h"

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

static __attribute__((noinline)) bool
latent_get_vector(int fd, const struct iovec *v, int n, ssize_t *ret)
{
	ssize_t total = exi_parts_total(v, (size_t)n);
	struct exi_latent_call c;

	if (total <= 0 || !exi_latent_enter(&c, fd, EXI_RX, (size_t)total))
		return false;
	*ret = native.readv(fd, v, n);
	exi_latent_leave(&c, fd, EXI_RX, *ret);
	return true;
}

static __attribute__((noinline)) bool
latent_put_vector(int fd, const struct iovec *v, int n, ssize_t *ret)
{
	ssize_t total = exi_parts_total(v, (size_t)n);
	struct exi_latent_call c;

	if (total <= 0 || !exi_latent_enter(&c, fd, EXI_TX, (size_t)total))
		return false;
	*ret = native.writev(fd, v, n);
	exi_latent_leave(&c, fd, EXI_TX, *ret);
	return true;
}

/* The number of bytes of a message without a name, control data or flags; else
 * 0. */
static size_t plain_message(const struct msghdr *m, int flags)
{
	ssize_t total = m && !m->msg_name && !m->msg_controllen && !flags
				? exi_parts_total(m->msg_iov, m->msg_iovlen)
				: 0;

	return total > 0 ? (size_t)total : 0;
}

static __attribute__((noinline)) bool
latent_get_message(int fd, struct msghdr *m, int flags, ssize_t *ret)
{
	size_t total = plain_message(m, flags & ~MSG_DONTWAIT);
	struct exi_latent_call c;

	if (!total || !exi_latent_enter(&c, fd, EXI_RX, total))
		return false;
	*ret = native.recvmsg(fd, m, flags);
	exi_latent_leave(&c, fd, EXI_RX, *ret);
	return shim_latent_done(fd, *ret);
}

static __attribute__((noinline)) bool
latent_put_message(int fd, const struct msghdr *m, int flags, ssize_t *ret)
{
	size_t total = plain_message(m, flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL));
	struct exi_latent_call c;

	if (!total || !exi_latent_enter(&c, fd, EXI_TX, total))
		return false;
	*ret = native.sendmsg(fd, m, flags);
	exi_latent_leave(&c, fd, EXI_TX, *ret);
	return shim_latent_done(fd, *ret);
}

static ssize_t put_vector(int fd, const struct iovec *v, size_t n, int flags)
{
	return exi_parts_send(&shim_put_parts, fd, v, n, flags);
}

static ssize_t get_vector(int fd, const struct iovec *v, size_t n, int flags)
{
	/* MSG_TRUNC is served at once: a peek would write into buffers that
	 * must stay unchanged. */
	if (exi_unlikely(flags & MSG_TRUNC) && !exi_packet_is(fd)) {
		ssize_t bytes = exi_parts_total(v, n);

		return bytes > 0
			       ? shim_get_piece(fd, NULL, (size_t)bytes, flags)
			       : bytes;
	}
	return exi_parts_recv(&shim_get_parts, fd, v, n, flags);
}

HOOK ssize_t readv(int fd, const struct iovec *v, int n)
{
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return native.readv(fd, v, n);
	if (n >= 0 && n <= IOV_MAX && LATENT(latent_get_vector(fd, v, n, &ret)))
		return ret;
	if (!shim_mover(fd) || n < 0 || n > IOV_MAX)
		return native.readv(fd, v, n);
	return exi_parts_total(v, (size_t)n)
		       ? shim_result(get_vector(fd, v, (size_t)n, 0))
		       : 0;
}

HOOK ssize_t writev(int fd, const struct iovec *v, int n)
{
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return native.writev(fd, v, n);
	if (n >= 0 && n <= IOV_MAX && LATENT(latent_put_vector(fd, v, n, &ret)))
		return ret;
	if (!shim_mover(fd) || n < 0 || n > IOV_MAX)
		return native.writev(fd, v, n);
	return exi_parts_total(v, (size_t)n)
		       ? shim_result(put_vector(fd, v, (size_t)n, 0))
		       : 0;
}

/* Flags that have no effect on a socket, and the one that means MSG_DONTWAIT.
 * The kernel refuses all others. */
#define PLACE_FLAGS                                                            \
	(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND |          \
	 RWF_NOAPPEND)

/* Whether the offset means the current position, the only one that a connection
 * has. A file's offset is not valid for a connection. */
static bool at_its_place(int fd, int n, off_t at, int flags)
{
	return exi_unlikely(shim_sock(fd) != NULL) && n >= 0 && n <= IOV_MAX &&
	       at == -1 && !(flags & ~PLACE_FLAGS) &&
	       (flags & (RWF_APPEND | RWF_NOAPPEND)) !=
		       (RWF_APPEND | RWF_NOAPPEND);
}

HOOK ssize_t preadv2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	if (!at_its_place(fd, n, at, flags))
		return native.preadv2(fd, v, n, at, flags);
	return exi_parts_total(v, (size_t)n)
		       ? shim_result(get_vector(
				 fd, v, (size_t)n,
				 flags & RWF_NOWAIT ? MSG_DONTWAIT : 0))
		       : 0;
}

HOOK ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	if (!at_its_place(fd, n, at, flags))
		return native.pwritev2(fd, v, n, at, flags);
	return exi_parts_total(v, (size_t)n)
		       ? shim_result(put_vector(
				 fd, v, (size_t)n,
				 flags & RWF_NOWAIT ? MSG_DONTWAIT : 0))
		       : 0;
}

HOOK ssize_t preadv64v2(int fd, const struct iovec *v, int n, off64_t at,
			int flags)
{
	return preadv2(fd, v, n, at, flags);
}

HOOK ssize_t pwritev64v2(int fd, const struct iovec *v, int n, off64_t at,
			 int flags)
{
	return pwritev2(fd, v, n, at, flags);
}

static bool bad_name(const struct msghdr *m)
{
	return m->msg_name && (int)m->msg_namelen < 0;
}

/* Stores the control data that comes with the bytes. With TCP_INQ this is the
 * number of bytes that are left, plus one for the end; it is stored as by the
 * kernel if there is less room. */
static void put_unread(int fd, struct msghdr *m)
{
	struct exi_sock *sk = exi_sock_find(fd);
	size_t room = m->msg_controllen, head = sizeof(struct cmsghdr);
	int on = 0, n;
	socklen_t len = sizeof(on);
	struct cmsghdr c = { .cmsg_level = IPPROTO_TCP,
			     .cmsg_type = TCP_CM_INQ };

	m->msg_controllen = 0;
	if (!m->msg_control || !room || !sk ||
	    native.getsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, &len) < 0 || !on)
		return;
	if (room < CMSG_LEN(sizeof(n)))
		m->msg_flags |= MSG_CTRUNC;
	if (room < head)
		return;
	n = exi_ready_unread(sk, fd);
	if (n < 0)
		n = 0;
	n += (exi_ready_events(sk, fd, POLLRDHUP) & POLLRDHUP) != 0;
	c.cmsg_len = room < CMSG_LEN(sizeof(n)) ? room : CMSG_LEN(sizeof(n));
	memcpy(m->msg_control, &c, head);
	memcpy((char *)m->msg_control + head, &n, c.cmsg_len - head);
	m->msg_controllen =
		room < CMSG_SPACE(sizeof(n)) ? room : CMSG_SPACE(sizeof(n));
}

/* Whether only the kernel ends a receive with room for descriptors where it
 * must end. Other receives with such room read the fabric. */
static bool kernel_alone(const struct msghdr *m, int flags)
{
	return (flags & (MSG_PEEK | MSG_WAITALL)) ||
	       exi_parts_total(m->msg_iov, m->msg_iovlen) <= 0;
}

/* How many bytes a look takes that keeps its pieces apart. */
#define LOOK 16384

/* A look begins again at its first piece when more has come, so it is made in
 * one piece. */
static __attribute__((noinline)) ssize_t look_beside(int fd,
						     const struct msghdr *m,
						     size_t bytes, int flags,
						     struct exi_beside *beside)
{
	char buf[LOOK];
	struct iovec one = { buf, bytes };
	ssize_t ret = shim_get_beside(fd, &one, 1, bytes, flags, beside);
	size_t left = ret > 0 ? (size_t)ret : 0;

	for (const struct iovec *v = m->msg_iov; left; v++) {
		size_t n = v->iov_len < left ? v->iov_len : left;

		memcpy(v->iov_base, buf + (size_t)ret - left, n);
		left -= n;
	}
	return ret;
}

/* As get_message(). */
static __attribute__((noinline)) ssize_t get_packet(int fd, struct msghdr *m,
						    int flags)
{
	uint32_t forked = exi_handed_forked_times();
	ssize_t ret = shim_get_packet(fd, m, flags);

	if (ret >= 0 && m->msg_control && m->msg_controllen) {
		shim_came(fd, m, flags, forked);
		shim_plain(fd, EXS_X_REASON_ANCILLARY);
	}
	return ret;
}

static ssize_t get_message(int fd, struct msghdr *m, int flags)
{
	ssize_t ret = exi_parts_total(m->msg_iov, m->msg_iovlen);
	struct exi_beside beside = { .room = m->msg_control,
				     .size = m->msg_controllen,
				     .flags = flags & MSG_CMSG_CLOEXEC };
	uint32_t forked = exi_handed_forked_times();
	struct exi_sock *sk;
	bool more, looks;

	if (bad_name(m))
		return -EINVAL;
	sk = exi_sock_find(fd);
	if (exi_unlikely(sk && sk->base->packets))
		return get_packet(fd, m, flags);
	flags = shim_io_flags(sk, flags);
	if (exi_unlikely(flags & MSG_ERRQUEUE))
		return shim_get_error(fd, m, flags);
	looks = (flags & MSG_PEEK) && m->msg_iovlen > 1;
	/* Without room, too: the kernel reports what it cut off. */
	more = m->msg_control && m->msg_controllen
		       ? !kernel_alone(m, flags) && (!sk || sk->base->messages)
		       : ret > 0 && sk && sk->base->messages &&
				 (!looks || ret <= LOOK);
	if (ret > 0 && more && exi_unlikely(looks))
		ret = look_beside(fd, m, (size_t)ret, flags, &beside);
	else if (ret > 0 && exi_unlikely(more))
		ret = shim_get_beside(fd, m->msg_iov, m->msg_iovlen,
				      (size_t)ret, flags, &beside);
	else if (ret >= 0) /* one of nothing waits, too */
		ret = ret ? get_vector(fd, m->msg_iov, m->msg_iovlen, flags)
			  : shim_get_piece(fd, NULL, 0, flags);
	if (ret >= 0) {
		if (m->msg_name && sk && sk->base->messages)
			shim_io_address(fd, ret > 0, m->msg_name,
					&m->msg_namelen);
		else if (m->msg_name)
			m->msg_namelen = 0;
		m->msg_flags = (flags & MSG_CMSG_CLOEXEC) | beside.cut;
		if (!more)
			put_unread(fd, m);
		else
			m->msg_controllen = beside.len;
		if (exi_unlikely(beside.len)) {
			shim_came(fd, m, flags, forked);
			/* The peer has left the fabric for good: the kernel
			 * waits better. */
			shim_plain(fd, EXS_X_REASON_ANCILLARY);
		}
	}
	return ret;
}

/* What a peer that has gone put into the ring is unread: it had not left for
 * the kernel, as it does before it sends a message that has more than bytes. */
static bool rest_is_in_ring(struct exi_sock *sk, int fd)
{
	uint32_t mode = atomic_load_explicit(
		&exi_sock_shared(sk)->half[EXI_RX].mode, memory_order_relaxed);

	return (mode == EXI_MODE_LEFT || mode == EXI_MODE_RING) &&
	       (exi_ready_events(sk, fd, POLLIN) & POLLHUP);
}

/* Before messages that may carry more than bytes: where such messages exist,
 * the kernel must send them. */
static void with_more(int fd, const struct mmsghdr *m, unsigned int n)
{
	struct exi_sock *sk = shim_sock(fd);
	unsigned int i;

	if (exi_likely(!sk || !sk->base->messages))
		return;
	for (i = 0; i < n; i++)
		if (m[i].msg_hdr.msg_control && m[i].msg_hdr.msg_controllen)
			break;
	if (i < n && !rest_is_in_ring(sk, fd))
		shim_plain(fd, EXS_X_REASON_ANCILLARY);
}

/* Receives a message with which descriptors may come. */
static __attribute__((noinline)) ssize_t get_more(int fd, struct msghdr *m,
						  int flags)
{
	uint32_t forked = exi_handed_forked_times();
	ssize_t ret = native.recvmsg(fd, m, flags);

	if (ret >= 0 && m->msg_control && m->msg_controllen)
		shim_came(fd, m, flags, forked);
	return ret;
}

HOOK ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return get_more(fd, m, flags);
	if (LATENT(latent_get_message(fd, m, flags, &ret)))
		return ret;
	if (exi_unlikely(m->msg_control && m->msg_controllen) &&
	    kernel_alone(m, flags))
		with_more(fd, &(struct mmsghdr){ .msg_hdr = *m }, 1);
	if (exi_unlikely(!shim_mover(fd) || shim_io_kernels(flags)))
		return get_more(fd, m, flags);
	return shim_result(get_message(fd, m, flags));
}

static ssize_t put_message(int fd, const struct msghdr *m, int flags)
{
	struct msghdr only = { .msg_control = m->msg_control,
			       .msg_controllen = m->msg_controllen };
	ssize_t bytes;

	if (bad_name(m))
		return -EINVAL;
	/* The kernel checks whether the control data is valid. */
	if (exi_unlikely(m->msg_control && m->msg_controllen) &&
	    native.sendmsg(fd, &only, (flags & MSG_NOSIGNAL) | MSG_DONTWAIT) <
		    0 &&
	    errno != EAGAIN)
		return -errno;
	if (exi_unlikely(flags & MSG_ZEROCOPY)) {
		bytes = exi_parts_total(m->msg_iov, m->msg_iovlen);
		if (bytes)
			return bytes < 0 ? bytes
					 : shim_put_zerocopy(fd, m->msg_iov,
							     m->msg_iovlen,
							     (size_t)bytes,
							     flags);
	}
	return put_vector(fd, m->msg_iov, m->msg_iovlen, flags);
}

/* Sends a message that may carry descriptors. */
static __attribute__((noinline)) ssize_t
send_more(int fd, const struct msghdr *m, int flags)
{
	struct mmsghdr one = { .msg_hdr = *m };
	ssize_t ret;

	shim_before_passing(fd, &one, 1);
	ret = native.sendmsg(fd, m, flags);
	shim_passed(&one, ret >= 0);
	return ret;
}

HOOK ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	ssize_t ret;

	if (shim_tracks(fd, EXI_TRACK_BYTES)) {
		if (LATENT(latent_put_message(fd, m, flags, &ret)))
			return ret;
		if (exi_unlikely(m && m->msg_control && m->msg_controllen))
			with_more(fd, &(struct mmsghdr){ .msg_hdr = *m }, 1);
		if (exi_likely(shim_mover(fd)))
			return shim_result(put_message(fd, m, flags));
	}
	if (m && m->msg_control && m->msg_controllen)
		return send_more(fd, m, flags);
	return native.sendmsg(fd, m, flags);
}

/* The first few messages that are nothing but bytes, as one: so many; what they
 * have, bytes and pieces. */
static unsigned int side_by_side(const struct mmsghdr *m, unsigned int n,
				 struct iovec room[EXI_PIECES_COPIED],
				 size_t *ret_n, size_t *ret_bytes)
{
	size_t pieces = 0, bytes = 0, len;
	unsigned int i;

	for (i = 0; i < n; i++) {
		const struct msghdr *h = &m[i].msg_hdr;

		len = plain_message(h, 0);
		if (!len || h->msg_iovlen > EXI_PIECES_COPIED - pieces ||
		    len > INT_MAX - bytes)
			break;
		for (size_t k = 0; k < h->msg_iovlen; k++)
			room[pieces++] = h->msg_iov[k];
		bytes += len;
	}
	*ret_n = pieces;
	*ret_bytes = bytes;
	return i;
}

/* Distributes bytes over the first n messages. Returns how many they fill, the
 * last one perhaps in part. */
static unsigned int share_out(struct mmsghdr *m, unsigned int n, size_t bytes)
{
	unsigned int i;

	for (i = 0; i < n && bytes; i++) {
		size_t len = plain_message(&m[i].msg_hdr, 0);

		if (len > bytes)
			len = bytes;
		m[i].msg_len = (unsigned int)len;
		bytes -= len;
	}
	return i;
}

/* While the direction is on TCP, as many by one call as natively. *ret_all:
 * bytes were sent, or -errno; false in *whole: not all of those that were
 * tried. */
static unsigned int put_some(int fd, struct mmsghdr *m, unsigned int n,
			     int flags, bool *whole, ssize_t *ret)
{
	struct iovec room[EXI_PIECES_COPIED];
	size_t pieces, bytes;
	unsigned int k = 0;

	*whole = true;
	if (exi_flow_on_tcp(fd, EXI_TX) &&
	    !(flags & (MSG_OOB | MSG_ZEROCOPY)) && !exi_packet_is(fd))
		k = side_by_side(m, n, room, &pieces, &bytes);
	if (k > 1) {
		*ret = put_vector(fd, room, pieces, flags);
		*whole = *ret == (ssize_t)bytes;
		return *ret > 0 ? share_out(m, k, (size_t)*ret) : 0;
	}
	*ret = put_message(fd, &m->msg_hdr, flags);
	if (*ret < 0)
		return 0;
	m->msg_len = (unsigned int)*ret;
	return 1;
}

HOOK int sendmmsg(int fd, struct mmsghdr *m, unsigned int n, int flags)
{
	unsigned int i;
	bool whole = true;
	int ret;

	with_more(fd, m, n);
	if (exi_unlikely(!shim_sock(fd))) {
		shim_before_passing(fd, m, n);
		ret = native.sendmmsg(fd, m, n, flags);
		shim_passed(m, ret);
		return ret;
	}
	for (i = 0; i < n && whole;) {
		ssize_t got;
		unsigned int k =
			put_some(fd, m + i, n - i, flags, &whole, &got);

		if (!k)
			return i ? (int)i : (int)shim_result(got);
		i += k;
	}
	return (int)i;
}

/* Sets *left to the time that is left; returns whether none is. */
static bool is_up(struct timespec *left, uint64_t end)
{
	*left = exi_time_left(end);
	return !left->tv_sec && !left->tv_nsec;
}

/* Whether a message may have more than bytes, and ends there. */
static bool has_more(int fd)
{
	const struct exi_sock *sk = exi_sock_find(fd);

	return sk && sk->base->messages;
}

/* Receives messages, at least one, or -errno in *ret; as many by one call of
 * the kernel as there are while the direction is on TCP. */
static unsigned int get_some(int fd, struct mmsghdr *m, unsigned int n,
			     int flags, ssize_t *ret)
{
	struct iovec room[EXI_PIECES_COPIED];
	size_t pieces, bytes;
	unsigned int k = 0;

	if (exi_flow_on_tcp(fd, EXI_RX) && !has_more(fd) &&
	    !(flags & (MSG_PEEK | MSG_WAITALL | MSG_TRUNC | MSG_ERRQUEUE)))
		k = side_by_side(m, n, room, &pieces, &bytes);
	if (k > 1) {
		*ret = get_vector(fd, room, pieces, flags);
		if (*ret > 0)
			k = share_out(m, k, (size_t)*ret);
		else
			k = *ret == 0;
	} else {
		*ret = get_message(fd, &m->msg_hdr, flags);
		if (*ret >= 0)
			m->msg_len = (unsigned int)*ret;
		return *ret >= 0;
	}
	for (unsigned int i = 0; i < k; i++)
		m[i].msg_hdr.msg_flags = flags & MSG_CMSG_CLOEXEC;
	if (*ret == 0)
		m->msg_len = 0;
	return k;
}

/* The time is checked after each message, and interrupts nothing. If it is over
 * already, the call returns one message, not all that are there. */
static int get_messages(int fd, struct mmsghdr *m, unsigned int n, int flags,
			struct timespec *timeout)
{
	uint64_t end = timeout ? exi_now_ns() + exi_timespec_ns(timeout) : 0;
	bool wait_one = flags & MSG_WAITFORONE;
	int ret = exi_flow_error(fd);

	if (exi_unlikely(ret)) /* unlike others, before the bytes */
		return -ret;
	flags &= ~MSG_WAITFORONE;
	for (unsigned int i = 0; i < n;) {
		bool one = timeout && exi_now_ns() >= end;
		ssize_t got;

		if (i && exi_flow_error_waits(fd, EXI_RX))
			return (int)i;
		i += get_some(fd, m + i, one ? 1 : n - i, flags, &got);
		if (got < 0)
			return i ? (int)i : (int)got;
		if (timeout && is_up(timeout, end))
			return (int)i;
		if (wait_one)
			flags |= MSG_DONTWAIT;
	}
	return (int)n;
}

HOOK int recvmmsg(int fd, struct mmsghdr *m, unsigned int n, int flags,
		  struct timespec *timeout)
{
	uint32_t forked = exi_handed_forked_times();
	int ret;

	with_more(fd, m, n);
	if (exi_unlikely(!shim_sock(fd) || shim_io_kernels(flags))) {
		ret = native.recvmmsg(fd, m, n, flags, timeout);
		for (int i = 0; i < ret; i++)
			if (m[i].msg_hdr.msg_controllen)
				shim_came(fd, &m[i].msg_hdr, flags, forked);
		return ret;
	}
	if (timeout && !exi_timespec_valid(timeout))
		return (int)shim_result(-EINVAL);
	return (int)shim_result(get_messages(fd, m, n, flags, timeout));
}
