/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks that read and write one buffer. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/ancillary.h"
#include "core/base/cancel.h"
#include "core/base/track.h"
#include "core/base/pieces.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/call/latent_call.h"
#include "core/call/recv.h"
#include "core/call/send.h"
#include "core/call/seqpacket_call.h"
#include "core/call/vector.h"
#include "core/call/zerocopy_call.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/meet/latent.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/parts.h"
#include "core/transfer/progress.h"
#include "preload/io.h"
#include "preload/shim.h"

#define SEND_FLAGS (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL | MSG_OOB)
#define RECV_FLAGS (MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_OOB)

/* --- connections that have not lasted yet -------------------------------- */

bool shim_latent_done(int fd, ssize_t ret)
{
	if (exi_likely(ret >= 0 || errno != ENOTSOCK))
		return true;
	exi_latent_end(fd, NULL);
	return false;
}

static __attribute__((noinline)) bool latent_get(int fd, void *buf, size_t n,
						 int flags, ssize_t *ret)
{
	struct exi_latent_call c;

	if (!n || (flags & ~MSG_DONTWAIT) ||
	    !exi_latent_enter(&c, fd, EXI_RX, n))
		return false;
	*ret = native.recv(fd, buf, n, flags);
	exi_latent_leave(&c, fd, EXI_RX, *ret);
	return shim_latent_done(fd, *ret);
}

static __attribute__((noinline)) bool
latent_put(int fd, const void *buf, size_t n, int flags, ssize_t *ret)
{
	struct exi_latent_call c;

	if (!n || (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) ||
	    !exi_latent_enter(&c, fd, EXI_TX, n))
		return false;
	*ret = native.send(fd, buf, n, flags);
	exi_latent_leave(&c, fd, EXI_TX, *ret);
	return shim_latent_done(fd, *ret);
}

/* --- one buffer --------------------------------------------------------- */

static uint64_t cookie_of(const struct exi_sock *sk)
{
	return sk ? atomic_load_explicit(&sk->cookie, memory_order_relaxed) : 0;
}

/* Whether the connection left the library while a call waited, for example
 * because another thread passed it to a process: the kernel serves it from now
 * on. */
static bool left_us(const struct exi_sock *sk, int fd, uint64_t cookie)
{
	/* shim_plain() left this mark: the number still belongs to the
	 * connection. */
	if (!cookie)
		cookie = cookie_of(sk);
	return cookie && !exi_sock_find(fd) && exi_sock_cookie(fd) == cookie;
}

/* Moves more of p by the kernel, for a call that has already moved `done`
 * bytes. */
static ssize_t move_rest(int fd, struct exi_pieces *p, bool tx, int flags,
			 size_t done)
{
	struct iovec room[EXI_PIECES_COPIED];
	struct msghdr m = { 0 };
	ssize_t ret;
	size_t len;

	exi_cancel_allow();
	do {
		if (tx && done)
			flags |= MSG_NOSIGNAL;
		len = exi_pieces_cut(p, SSIZE_MAX, room,
				     (const struct iovec **)&m.msg_iov,
				     &m.msg_iovlen);
		exi_beside_give(p->beside, &m);
		ret = tx ? native.sendmsg(fd, &m, flags)
			 : native.recvmsg(fd, &m, flags);
		exi_beside_take(p->beside, &m, ret);
		if (ret <= 0)
			break;
		done += (size_t)ret;
		exi_pieces_moved(p, (size_t)ret);
	} while (ret == (ssize_t)len && p->left && !exi_beside_came(p->beside));
	exi_cancel_forbid();
	return ret < 0 && !done ? -errno : (ssize_t)done;
}

/* Moves the rest for a call that returned ret: a count of bytes, or -EBADF. */
static __attribute__((noinline)) ssize_t
put_rest(const struct exi_sock *sk, int fd, uint64_t cookie,
	 const struct iovec *v, size_t n, size_t bytes, int flags, ssize_t ret)
{
	struct exi_pieces p = { .v = v, .n = n, .left = bytes };
	size_t done = ret > 0 ? (size_t)ret : 0;

	if (!left_us(sk, fd, cookie))
		return ret;
	exi_pieces_moved(&p, done);
	return move_rest(fd, &p, true, flags, done);
}

static __attribute__((noinline)) ssize_t get_rest(const struct exi_sock *sk,
						  int fd, uint64_t cookie,
						  struct exi_pieces p,
						  int flags, ssize_t ret)
{
	size_t done = ret > 0 && !(flags & MSG_PEEK) ? (size_t)ret : 0;

	if (!left_us(sk, fd, cookie))
		return ret;
	exi_pieces_moved(&p, done);
	return move_rest(fd, &p, false, flags, done);
}

/* An edge-triggered set must look for room from now on. */
static void cramped(struct exi_sock *sk, ssize_t ret, size_t n)
{
	if (ret < (ssize_t)n && (ret >= 0 || ret == -EAGAIN) && sk) {
		atomic_fetch_add(&sk->cramped, 1);
		exi_sock_wake_waiters(sk, EXI_TX);
	}
}

ssize_t shim_put_zerocopy(int fd, const struct iovec *v, size_t n, size_t bytes,
			  int flags)
{
	struct exi_sock *sk = exi_sock_find(fd);
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	ssize_t ret;

	flags &= SEND_FLAGS | MSG_ZEROCOPY;
	ret = exi_zerocopy_send(fd, v, n, bytes, flags);
	/* A send that has moved a part already has its number. */
	if (exi_unlikely(ret < (ssize_t)bytes && (ret >= 0 || ret == -EBADF)))
		ret = put_rest(sk, fd, cookie, v, n, bytes,
			       ret > 0 ? flags & ~MSG_ZEROCOPY : flags, ret);
	cramped(sk, ret, bytes);
	if (sk && exi_zerocopy_due(sk))
		shim_epoll_bell(sk, fd, EPOLLERR);
	return ret;
}

/* As the kernel's error queue does, this reports an event again while it has
 * more. */
ssize_t shim_get_error(int fd, struct msghdr *m, int flags)
{
	struct exi_sock *sk = exi_sock_find(fd);
	EXI_CANCEL_OFF(false);
	ssize_t ret = exi_zerocopy_recv(fd, m, flags);

	if (ret == -EBADF)
		return native.recvmsg(fd, m, flags) < 0 ? -errno : 0;
	if (sk && exi_zerocopy_due(sk))
		shim_epoll_bell(sk, fd, EPOLLERR);
	return ret;
}

/* Inline: after a system call, each return costs much. */
static inline __attribute__((always_inline)) ssize_t
put(struct exi_sock *sk, int fd, const void *buf, size_t n, int flags)
{
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	ssize_t ret;

	if (exi_unlikely(n > SSIZE_MAX))
		n = SSIZE_MAX;
	if (exi_unlikely((flags & MSG_ZEROCOPY) && n) && sk->base->tcp_flags)
		return shim_put_zerocopy(
			fd, &(struct iovec){ (void *)(uintptr_t)buf, n }, 1, n,
			flags);
	ret = exi_flow_send_on(sk, fd, buf, n, flags & SEND_FLAGS, NULL);
	if (exi_unlikely(ret < (ssize_t)n && (ret >= 0 || ret == -EBADF))) {
		struct iovec v = { .iov_base = (void *)(uintptr_t)buf,
				   .iov_len = n };

		ret = put_rest(sk, fd, cookie, &v, 1, n, flags & SEND_FLAGS,
			       ret);
	}
	cramped(sk, ret, n);
	return ret;
}

#define DISCARD_MAX    (1u << 20)
#define DISCARD_PIECES 64

/* MSG_TRUNC on TCP: the bytes are read and discarded. */
static ssize_t discard(int fd, size_t n, int flags)
{
	char few[4096], *scratch = n > sizeof(few) ? malloc(DISCARD_MAX) : few;
	struct iovec v[DISCARD_PIECES];
	size_t pieces = 0;
	ssize_t ret;

	if (!scratch)
		return -ENOMEM;
	do {
		v[pieces].iov_base = scratch;
		v[pieces].iov_len = n < DISCARD_MAX ? n : DISCARD_MAX;
		n -= v[pieces++].iov_len;
	} while (n && pieces < DISCARD_PIECES);
	ret = exi_parts_recv(&shim_get_parts, fd, v, pieces,
			     flags & ~MSG_TRUNC);
	if (scratch != few)
		free(scratch);
	return ret;
}

ssize_t shim_get_packet(int fd, struct msghdr *m, int flags)
{
	struct exi_sock *sk = exi_sock_find(fd);
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	bool over = false;
	ssize_t ret = exi_seq_recv(fd, m, flags & ~MSG_ERRQUEUE, &over);

	if (ret == -EBADF && left_us(sk, fd, cookie)) {
		exi_cancel_allow();
		ret = native.recvmsg(fd, m, flags);
		exi_cancel_forbid();
		return ret < 0 ? -errno : ret;
	}
	if (ret >= 0 && m->msg_name)
		shim_io_address(fd, !over, m->msg_name, &m->msg_namelen);
	return ret;
}

static inline __attribute__((always_inline)) ssize_t
get(struct exi_sock *sk, int fd, void *buf, size_t n, int flags)
{
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	ssize_t ret;

	if (exi_unlikely(n > SSIZE_MAX))
		n = SSIZE_MAX;
	if (exi_unlikely(!n ||
			 (flags & (MSG_TRUNC | MSG_ERRQUEUE | MSG_WAITALL))) &&
	    sk && sk->base->packets) {
		struct iovec v = { .iov_base = buf, .iov_len = n };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

		return shim_get_packet(fd, &m, flags);
	}
	flags = shim_io_flags(sk, flags);
	if (exi_unlikely(flags & MSG_ERRQUEUE))
		return shim_get_error(
			fd,
			&(struct msghdr){ .msg_iov = &(struct iovec){ buf, n },
					  .msg_iovlen = 1 },
			flags);
	if (exi_unlikely((flags & MSG_TRUNC) && n))
		return discard(fd, n, flags);
	if (exi_likely(n)) {
		ret = exi_flow_recv_on(sk, fd, buf, n, flags & RECV_FLAGS);
		if (exi_unlikely(ret == -EBADF ||
				 ((flags & MSG_WAITALL) && ret > 0 &&
				  ret < (ssize_t)n))) {
			struct iovec v = { .iov_base = buf, .iov_len = n };
			struct exi_pieces p = { .v = &v, .n = 1, .left = n };

			ret = get_rest(sk, fd, cookie, p, flags & RECV_FLAGS,
				       ret);
		}
		return ret;
	}
	/* A receive of no bytes waits like any other. */
	ret = exi_flow_recv_on(sk, fd, &(char){ 0 }, 1,
			       (flags & RECV_FLAGS) | MSG_PEEK);
	/* The kernel drops the descriptors of the message that it meets. */
	if (ret > 0 && exi_unlikely(sk->base->messages) &&
	    !(flags & MSG_PEEK) && exi_flow_on_tcp(fd, EXI_RX))
		native.recv(fd, NULL, 0, MSG_DONTWAIT);
	return ret > 0 ? 0 : ret;
}

HOOK ssize_t read(int fd, void *buf, size_t n)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return native.read(fd, buf, n);
	sk = shim_met(fd);
	if (exi_unlikely(!sk)) {
		if (LATENT(latent_get(fd, buf, n, 0, &ret)))
			return ret;
		sk = shim_mover(fd);
		if (!sk)
			return native.read(fd, buf, n);
	}
	if (exi_unlikely(!n)) /* unlike recv() */
		return 0;
	return shim_result(get(sk, fd, buf, n, 0));
}
ALIAS(__read, read);

HOOK ssize_t write(int fd, const void *buf, size_t n)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return native.write(fd, buf, n);
	sk = shim_met(fd);
	if (exi_unlikely(!sk)) {
		if (LATENT(latent_put(fd, buf, n, 0, &ret)))
			return ret;
		sk = shim_mover(fd);
		if (!sk)
			return native.write(fd, buf, n);
	}
	return shim_result(put(sk, fd, buf, n, 0));
}
ALIAS(__write, write);

HOOK ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return native.recv(fd, buf, n, flags);
	sk = shim_met(fd);
	if (exi_unlikely(!sk)) {
		if (LATENT(latent_get(fd, buf, n, flags, &ret)))
			return ret;
		sk = shim_mover(fd);
	}
	if (exi_unlikely(!sk || shim_io_kernels(flags)))
		return native.recv(fd, buf, n, flags);
	return shim_result(get(sk, fd, buf, n, flags));
}

HOOK ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return native.send(fd, buf, n, flags);
	sk = shim_met(fd);
	if (exi_unlikely(!sk)) {
		if (LATENT(latent_put(fd, buf, n, flags, &ret)))
			return ret;
		sk = shim_mover(fd);
	}
	if (exi_unlikely(!sk))
		return native.send(fd, buf, n, flags);
	return shim_result(put(sk, fd, buf, n, flags));
}
ALIAS(__send, send);

int shim_io_address(int fd, bool any, void *addr, socklen_t *len)
{
	struct sockaddr_storage peer;
	socklen_t n = sizeof(peer);

	if ((int)*len < 0) {
		errno = EINVAL;
		return -1;
	}
	/* An address without a name is not returned. */
	if (!any || native.getpeername(fd, (struct sockaddr *)&peer, &n) < 0 ||
	    n <= sizeof(peer.ss_family)) {
		*len = 0;
		return 0;
	}
	memcpy(addr, &peer, n < *len ? n : *len);
	*len = n;
	return 0;
}

HOOK ssize_t recvfrom(int fd, void *buf, size_t n, int flags,
		      struct sockaddr *addr, socklen_t *len)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return native.recvfrom(fd, buf, n, flags, addr, len);
	if (!addr && LATENT(latent_get(fd, buf, n, flags, &ret)))
		return ret;
	sk = shim_mover(fd);
	if (exi_unlikely(!sk || shim_io_kernels(flags)))
		return native.recvfrom(fd, buf, n, flags, addr, len);
	if (exi_unlikely(addr && sk->base->packets)) {
		struct iovec v = { .iov_base = buf, .iov_len = n };
		struct msghdr m = { .msg_iov = &v,
				    .msg_iovlen = 1,
				    .msg_name = addr,
				    .msg_namelen = len ? *len : 0 };

		if (len && (int)*len < 0)
			m.msg_name = NULL;
		ret = shim_get_packet(fd, &m, flags);
		if (ret >= 0 && len && (int)*len < 0)
			ret = -EINVAL;
		else if (ret >= 0 && len)
			*len = m.msg_namelen;
		return shim_result(ret);
	}
	ret = shim_result(get(sk, fd, buf, n, flags));
	/* TCP gives no address. */
	if (ret < 0 || !addr || !len)
		return ret;
	if (sk->base->messages)
		return shim_io_address(fd, ret > 0, addr, len) ? -1 : ret;
	if ((int)*len < 0)
		return shim_result(-EINVAL);
	*len = 0;
	return ret;
}

HOOK ssize_t sendto(int fd, const void *buf, size_t n, int flags,
		    const struct sockaddr *addr, socklen_t len)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_tracks(fd, EXI_TRACK_BYTES)))
		return native.sendto(fd, buf, n, flags, addr, len);
	if (!addr && LATENT(latent_put(fd, buf, n, flags, &ret)))
		return ret;
	sk = shim_mover(fd);
	if (exi_unlikely(!sk || (flags & MSG_FASTOPEN)))
		return native.sendto(fd, buf, n, flags, addr, len);
	if (exi_unlikely(addr && len > sizeof(struct sockaddr_storage)))
		return shim_result(-EINVAL);
	if (exi_unlikely(addr && sk->base->messages && !sk->base->packets))
		/* it is refused */
		return native.sendto(fd, buf, n, flags, addr, len);
	return shim_result(put(sk, fd, buf, n, flags));
}

/* --- several buffers ---------------------------------------------------- */

ssize_t shim_put_piece(int fd, const void *buf, size_t n, int flags)
{
	return put(exi_sock_find(fd), fd, buf, n, flags);
}

ssize_t shim_get_piece(int fd, void *buf, size_t n, int flags)
{
	return get(exi_sock_find(fd), fd, buf, n, flags);
}

/* Sends several buffers on TCP. */
static ssize_t put_all(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags)
{
	struct exi_sock *sk = exi_sock_find(fd);
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	ssize_t ret;

	flags &= SEND_FLAGS;
	ret = exi_flow_sendv(fd, v, n, bytes, flags);
	if (exi_unlikely(ret < (ssize_t)bytes && (ret >= 0 || ret == -EBADF)))
		ret = put_rest(sk, fd, cookie, v, n, bytes, flags, ret);
	cramped(sk, ret, bytes);
	return ret;
}

ssize_t shim_get_beside(int fd, const struct iovec *v, size_t n, size_t bytes,
			int flags, struct exi_beside *beside)
{
	struct exi_pieces p = {
		.v = v, .n = n, .left = bytes, .beside = beside
	};
	struct exi_sock *sk = exi_sock_find(fd);
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	ssize_t ret;

	flags = shim_io_flags(sk, flags) & RECV_FLAGS;
	ret = exi_flow_recv_beside(fd, v, n, bytes, flags, beside);
	if (exi_unlikely(ret == -EBADF || ((flags & MSG_WAITALL) && ret > 0 &&
					   ret < (ssize_t)bytes)))
		ret = get_rest(sk, fd, cookie, p,
			       flags | (beside ? beside->flags : 0), ret);
	return ret;
}

static ssize_t get_all(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags)
{
	return shim_get_beside(fd, v, n, bytes, flags, NULL);
}

const struct exi_parts_put shim_put_parts = { shim_put_piece, put_all };
const struct exi_parts_get shim_get_parts = { shim_get_piece, get_all };

/* --- formatted ---------------------------------------------------------- */

/* The C library would write by an internal call, past the fabric. */
HOOK int vdprintf(int fd, const char *fmt, va_list ap)
{
	char *text;
	int n, done = 0;

	if (exi_likely(!shim_sock(fd)))
		return native.vdprintf(fd, fmt, ap);
	n = vasprintf(&text, fmt, ap);
	if (n < 0)
		return n;
	while (done < n) {
		ssize_t ret = write(fd, text + done, (size_t)(n - done));

		if (ret < 0)
			break;
		done += (int)ret;
	}
	free(text);
	return done == n ? n : -1;
}

HOOK int dprintf(int fd, const char *fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = vdprintf(fd, fmt, ap);
	va_end(ap);
	return ret;
}

HOOK int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
HOOK int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
	return vdprintf(fd, fmt, ap);
}

HOOK int __dprintf_chk(int fd, int flag, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
HOOK int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = vdprintf(fd, fmt, ap);
	va_end(ap);
	return ret;
}

/* --- what fortified programs call --------------------------------------- */

extern void __chk_fail(void) __attribute__((noreturn));
HOOK ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);
HOOK ssize_t __read_chk(int fd, void *buf, size_t n, size_t size)
{
	if (n > size)
		__chk_fail();
	return read(fd, buf, n);
}

HOOK ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags);
HOOK ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags)
{
	if (n > size)
		__chk_fail();
	return recv(fd, buf, n, flags);
}

HOOK ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t size, int flags,
			    struct sockaddr *addr, socklen_t *len);
HOOK ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t size, int flags,
			    struct sockaddr *addr, socklen_t *len)
{
	if (n > size)
		__chk_fail();
	return recvfrom(fd, buf, n, flags, addr, len);
}
