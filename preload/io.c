/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading and writing. */
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

#include "core/base/cancel.h"
#include "core/base/heed.h"
#include "core/base/pieces.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/call/latent_call.h"
#include "core/call/patience.h"
#include "core/call/ready.h"
#include "core/call/recv.h"
#include "core/call/send.h"
#include "core/call/vector.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/meet/latent.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/parts.h"
#include "core/transfer/progress.h"
#include "core/transfer/switch.h"
#include "preload/shim.h"

#define SEND_FLAGS (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL | MSG_OOB)
#define RECV_FLAGS (MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_OOB)

/* --- connections that have not lasted yet -------------------------------- */

/* The kernel's call was done. Not where the word was of a connection that closed
 * unseen, and the number is another's. */
static bool was_done(int fd, ssize_t ret)
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
	exi_latent_leave(&c, *ret);
	return was_done(fd, *ret);
}

static __attribute__((noinline)) bool
latent_put(int fd, const void *buf, size_t n, int flags, ssize_t *ret)
{
	struct exi_latent_call c;

	if (!n || (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) ||
	    !exi_latent_enter(&c, fd, EXI_TX, n))
		return false;
	*ret = native.send(fd, buf, n, flags);
	exi_latent_leave(&c, *ret);
	return was_done(fd, *ret);
}

static __attribute__((noinline)) bool
latent_get_vector(int fd, const struct iovec *v, int n, ssize_t *ret)
{
	ssize_t total = exi_parts_total(v, (size_t)n);
	struct exi_latent_call c;

	if (total <= 0 || !exi_latent_enter(&c, fd, EXI_RX, (size_t)total))
		return false;
	*ret = native.readv(fd, v, n);
	exi_latent_leave(&c, *ret);
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
	exi_latent_leave(&c, *ret);
	return true;
}

/* Bytes of a message that is nothing but bytes; 0. */
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
	exi_latent_leave(&c, *ret);
	return was_done(fd, *ret);
}

static __attribute__((noinline)) bool
latent_put_message(int fd, const struct msghdr *m, int flags, ssize_t *ret)
{
	size_t total = plain_message(m, flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL));
	struct exi_latent_call c;

	if (!total || !exi_latent_enter(&c, fd, EXI_TX, total))
		return false;
	*ret = native.sendmsg(fd, m, flags);
	exi_latent_leave(&c, *ret);
	return was_done(fd, *ret);
}

static __attribute__((noinline)) bool
latent_put_file(int fd, int from, off_t *offset, size_t n, ssize_t *ret)
{
	struct exi_latent_call c;

	if (!n || !exi_latent_enter(&c, fd, EXI_TX, n))
		return false;
	*ret = native.sendfile(fd, from, offset, n);
	exi_latent_leave(&c, *ret);
	return true;
}

/* Served, with the result in ret. */
#define LATENT(call) (exi_unlikely(exi_latent(fd)) && (call))

/* --- one buffer --------------------------------------------------------- */

static uint64_t cookie_of(const struct exi_sock *sk)
{
	return sk ? atomic_load_explicit(&sk->cookie, memory_order_relaxed) : 0;
}

/* Another thread has passed it on, or the like, while a call waited: the kernel
 * serves it from now on. */
static bool left_us(const struct exi_sock *sk, int fd, uint64_t cookie)
{
	if (!cookie) /* shim_plain() asked, if it has not become another's */
		cookie = cookie_of(sk);
	return cookie && !exi_sock_find(fd) && exi_sock_cookie(fd) == cookie;
}

/* What the kernel moves of p, of a call that has done so much. */
static ssize_t move_rest(int fd, struct exi_pieces *p, bool tx, int flags,
			 size_t done)
{
	struct iovec room[EXI_PIECES_COPIED];
	struct msghdr m = { 0 };
	ssize_t ret;
	size_t len;

	exi_cancel_rest();
	do {
		if (tx && done)
			flags |= MSG_NOSIGNAL;
		len = exi_pieces_cut(p, SSIZE_MAX, room,
				     (const struct iovec **)&m.msg_iov,
				     &m.msg_iovlen);
		ret = tx ? native.sendmsg(fd, &m, flags)
			 : native.recvmsg(fd, &m, flags);
		if (ret <= 0)
			break;
		done += (size_t)ret;
		exi_pieces_moved(p, (size_t)ret);
	} while (ret == (ssize_t)len && p->left);
	exi_cancel_rested();
	return ret < 0 && !done ? -errno : (ssize_t)done;
}

/* What is left of a call that did so much, or -EBADF. */
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

static __attribute__((noinline)) ssize_t
get_rest(const struct exi_sock *sk, int fd, uint64_t cookie,
	 const struct iovec *v, size_t n, size_t bytes, int flags, ssize_t ret)
{
	struct exi_pieces p = { .v = v, .n = n, .left = bytes };
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
		exi_sock_ring(sk, EXI_TX);
	}
}

/* Inline: where the kernel was asked, each return costs much. */
static inline __attribute__((always_inline)) ssize_t
put(struct exi_sock *sk, int fd, const void *buf, size_t n, int flags)
{
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	ssize_t ret;

	if (n > SSIZE_MAX)
		n = SSIZE_MAX;
	ret = exi_flow_send(fd, buf, n, flags & SEND_FLAGS);
	if (exi_unlikely(ret < (ssize_t)n && (ret >= 0 || ret == -EBADF))) {
		struct iovec v = { .iov_base = (void *)(uintptr_t)buf,
				   .iov_len = n };

		ret = put_rest(sk, fd, cookie, &v, 1, n, flags & SEND_FLAGS,
			       ret);
	}
	cramped(sk, ret, n);
	return ret;
}

static const struct exi_parts_get get_parts;

#define DISCARD_MAX    (1u << 20)
#define DISCARD_PIECES 64

/* MSG_TRUNC on TCP: read, and thrown away. */
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
	ret = exi_parts_recv(&get_parts, fd, v, pieces, flags & ~MSG_TRUNC);
	if (scratch != few)
		free(scratch);
	return ret;
}

static inline __attribute__((always_inline)) ssize_t
get(const struct exi_sock *sk, int fd, void *buf, size_t n, int flags)
{
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	ssize_t ret;

	if (n > SSIZE_MAX)
		n = SSIZE_MAX;
	if (exi_unlikely((flags & MSG_TRUNC) && n))
		return discard(fd, n, flags);
	if (exi_likely(n)) {
		ret = exi_flow_recv(fd, buf, n, flags & RECV_FLAGS);
		if (exi_unlikely(ret == -EBADF ||
				 ((flags & MSG_WAITALL) && ret > 0 &&
				  ret < (ssize_t)n))) {
			struct iovec v = { .iov_base = buf, .iov_len = n };

			ret = get_rest(sk, fd, cookie, &v, 1, n,
				       flags & RECV_FLAGS, ret);
		}
		return ret;
	}
	/* Nothing is wanted, and waited for like something. */
	ret = exi_flow_recv(fd, &(char){ 0 }, 1,
			    (flags & RECV_FLAGS) | MSG_PEEK);
	return ret > 0 ? 0 : ret;
}

/* Errors and time stamps of TCP are in the kernel's queue, and urgent data is
 * on TCP always. */
static bool kernels(int flags)
{
	return flags & (MSG_ERRQUEUE | MSG_OOB);
}

HOOK ssize_t read(int fd, void *buf, size_t n)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
		return native.read(fd, buf, n);
	if (LATENT(latent_get(fd, buf, n, 0, &ret)))
		return ret;
	sk = shim_mover(fd);
	if (!sk)
		return native.read(fd, buf, n);
	if (exi_unlikely(!n)) /* not so recv() */
		return 0;
	return shim_result(get(sk, fd, buf, n, 0));
}
ALIAS(__read, read);

HOOK ssize_t write(int fd, const void *buf, size_t n)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
		return native.write(fd, buf, n);
	if (LATENT(latent_put(fd, buf, n, 0, &ret)))
		return ret;
	sk = shim_mover(fd);
	if (!sk)
		return native.write(fd, buf, n);
	return shim_result(put(sk, fd, buf, n, 0));
}
ALIAS(__write, write);

HOOK ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
		return native.recv(fd, buf, n, flags);
	if (LATENT(latent_get(fd, buf, n, flags, &ret)))
		return ret;
	sk = shim_mover(fd);
	if (exi_unlikely(!sk || kernels(flags)))
		return native.recv(fd, buf, n, flags);
	return shim_result(get(sk, fd, buf, n, flags));
}

HOOK ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
		return native.send(fd, buf, n, flags);
	if (LATENT(latent_put(fd, buf, n, flags, &ret)))
		return ret;
	sk = shim_mover(fd);
	if (exi_unlikely(!sk))
		return native.send(fd, buf, n, flags);
	return shim_result(put(sk, fd, buf, n, flags));
}
ALIAS(__send, send);

HOOK ssize_t recvfrom(int fd, void *buf, size_t n, int flags,
		      struct sockaddr *addr, socklen_t *len)
{
	struct exi_sock *sk;
	ssize_t ret;

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
		return native.recvfrom(fd, buf, n, flags, addr, len);
	if (!addr && LATENT(latent_get(fd, buf, n, flags, &ret)))
		return ret;
	sk = shim_mover(fd);
	if (exi_unlikely(!sk || kernels(flags)))
		return native.recvfrom(fd, buf, n, flags, addr, len);
	ret = shim_result(get(sk, fd, buf, n, flags));
	/* TCP names nobody. */
	if (ret < 0 || !addr || !len)
		return ret;
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

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
		return native.sendto(fd, buf, n, flags, addr, len);
	if (!addr && LATENT(latent_put(fd, buf, n, flags, &ret)))
		return ret;
	sk = shim_mover(fd);
	if (exi_unlikely(!sk || (flags & MSG_FASTOPEN)))
		return native.sendto(fd, buf, n, flags, addr, len);
	if (exi_unlikely(addr && len > sizeof(struct sockaddr_storage)))
		return shim_result(-EINVAL);
	return shim_result(put(sk, fd, buf, n, flags));
}

/* --- several buffers ---------------------------------------------------- */

/* Not inline, for calls on several. */
static ssize_t put_piece(int fd, const void *buf, size_t n, int flags)
{
	return put(exi_sock_find(fd), fd, buf, n, flags);
}

static ssize_t get_piece(int fd, void *buf, size_t n, int flags)
{
	return get(exi_sock_find(fd), fd, buf, n, flags);
}

/* On TCP. */
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

static ssize_t get_all(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags)
{
	struct exi_sock *sk = exi_sock_find(fd);
	uint64_t cookie = cookie_of(sk);
	EXI_CANCEL_OFF(true);
	ssize_t ret;

	flags &= RECV_FLAGS;
	ret = exi_flow_recvv(fd, v, n, bytes, flags);
	if (exi_unlikely(ret == -EBADF || ((flags & MSG_WAITALL) && ret > 0 &&
					   ret < (ssize_t)bytes)))
		ret = get_rest(sk, fd, cookie, v, n, bytes, flags, ret);
	return ret;
}

static const struct exi_parts_put put_parts = { put_piece, put_all };
static const struct exi_parts_get get_parts = { get_piece, get_all };

static ssize_t put_vector(int fd, const struct iovec *v, size_t n, int flags)
{
	return exi_parts_send(&put_parts, fd, v, n, flags);
}

static ssize_t get_vector(int fd, const struct iovec *v, size_t n, int flags)
{
	/* At once: a peek would put into the parts what nothing was read into. */
	if (exi_unlikely(flags & MSG_TRUNC)) {
		ssize_t bytes = exi_parts_total(v, n);

		return bytes > 0 ? get_piece(fd, NULL, (size_t)bytes, flags)
				 : bytes;
	}
	return exi_parts_recv(&get_parts, fd, v, n, flags);
}

HOOK ssize_t readv(int fd, const struct iovec *v, int n)
{
	ssize_t ret;

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
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

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
		return native.writev(fd, v, n);
	if (n >= 0 && n <= IOV_MAX && LATENT(latent_put_vector(fd, v, n, &ret)))
		return ret;
	if (!shim_mover(fd) || n < 0 || n > IOV_MAX)
		return native.writev(fd, v, n);
	return exi_parts_total(v, (size_t)n)
		       ? shim_result(put_vector(fd, v, (size_t)n, 0))
		       : 0;
}

/* Flags that say nothing to a socket, and the one that is MSG_DONTWAIT. What else
 * there is the kernel refuses. */
#define PLACE_FLAGS                                                            \
	(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND |          \
	 RWF_NOAPPEND)

/* At the connection's place only; a file's is not a connection's. */
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

/* What comes with the bytes: with TCP_INQ, how many are left, and one more for
 * the end. As the kernel puts it where there is less room. */
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

static ssize_t get_message(int fd, struct msghdr *m, int flags)
{
	ssize_t ret = exi_parts_total(m->msg_iov, m->msg_iovlen);

	if (bad_name(m))
		return -EINVAL;
	if (ret >= 0) /* one of nothing waits, too */
		ret = ret ? get_vector(fd, m->msg_iov, m->msg_iovlen, flags)
			  : get_piece(fd, NULL, 0, flags);
	if (ret >= 0) {
		if (m->msg_name)
			m->msg_namelen = 0;
		m->msg_flags = flags & MSG_CMSG_CLOEXEC;
		put_unread(fd, m);
	}
	return ret;
}

HOOK ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	ssize_t ret;

	if (exi_likely(!shim_heeds(fd, EXI_HEED_BYTES)))
		return native.recvmsg(fd, m, flags);
	if (LATENT(latent_get_message(fd, m, flags, &ret)))
		return ret;
	if (exi_unlikely(!shim_mover(fd) || kernels(flags)))
		return native.recvmsg(fd, m, flags);
	return shim_result(get_message(fd, m, flags));
}

static void each_passed(const struct msghdr *m, struct exi_patience *p)
{
	struct msghdr *w = (struct msghdr *)(uintptr_t)m;
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(w); c; c = CMSG_NXTHDR(w, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (p)
				shim_plain_of(fd, EXS_X_REASON_PASSED, p);
			else
				shim_tell(fd, EXS_X_REASON_PASSED);
		}
	}
}

/* Connections that are sent to another process leave the library first. */
static void before_passing(const struct mmsghdr *m, unsigned int n)
{
	struct exi_patience p = { 0 };
	unsigned int i;

	for (i = 0; i < n; i++)
		if (m[i].msg_hdr.msg_control)
			each_passed(&m[i].msg_hdr, NULL);
	for (i = 0; i < n; i++)
		if (m[i].msg_hdr.msg_control)
			each_passed(&m[i].msg_hdr, &p);
}

static ssize_t put_message(int fd, const struct msghdr *m, int flags)
{
	struct msghdr only = { .msg_control = m->msg_control,
			       .msg_controllen = m->msg_controllen };

	if (bad_name(m))
		return -EINVAL;
	/* The kernel says whether what comes with it makes sense. */
	if (exi_unlikely(m->msg_control && m->msg_controllen) &&
	    native.sendmsg(fd, &only, (flags & MSG_NOSIGNAL) | MSG_DONTWAIT) <
		    0 &&
	    errno != EAGAIN)
		return -errno;
	return put_vector(fd, m->msg_iov, m->msg_iovlen, flags);
}

HOOK ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	ssize_t ret;

	if (shim_heeds(fd, EXI_HEED_BYTES)) {
		if (LATENT(latent_put_message(fd, m, flags, &ret)))
			return ret;
		if (exi_likely(shim_mover(fd)))
			return shim_result(put_message(fd, m, flags));
	}
	if (m && m->msg_control && m->msg_controllen)
		before_passing(&(struct mmsghdr){ .msg_hdr = *m }, 1);
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

/* Those of them that `bytes` are of, the last perhaps in part. */
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

/* While the direction is on TCP, as many by one call as natively. *ret_all: bytes
 * were sent, or -errno; false in *whole: not all of those that were tried. */
static unsigned int put_some(int fd, struct mmsghdr *m, unsigned int n,
			     int flags, bool *whole, ssize_t *ret)
{
	struct iovec room[EXI_PIECES_COPIED];
	size_t pieces, bytes;
	unsigned int k = 0;

	*whole = true;
	if (exi_flow_on_tcp(fd, EXI_TX) && !(flags & MSG_OOB))
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

	if (exi_unlikely(!shim_sock(fd))) {
		before_passing(m, n);
		return native.sendmmsg(fd, m, n, flags);
	}
	for (i = 0; i < n && whole;) {
		ssize_t ret;
		unsigned int k =
			put_some(fd, m + i, n - i, flags, &whole, &ret);

		if (!k)
			return i ? (int)i : (int)shim_result(ret);
		i += k;
	}
	return (int)i;
}

/* Sets what is left of the time; whether nothing is. */
static bool is_up(struct timespec *left, uint64_t end)
{
	uint64_t now = exi_now_ns();

	*left = exi_ns_timespec(end > now ? end - now : 0);
	return end <= now;
}

/* At least one, or -errno in *ret; as many by one call of the kernel as there are
 * while the direction is on TCP. */
static unsigned int get_some(int fd, struct mmsghdr *m, unsigned int n,
			     int flags, ssize_t *ret)
{
	struct iovec room[EXI_PIECES_COPIED];
	size_t pieces, bytes;
	unsigned int k = 0;

	if (exi_flow_on_tcp(fd, EXI_RX) &&
	    !(flags & (MSG_PEEK | MSG_WAITALL | MSG_TRUNC)))
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

/* The time is looked at after each message, and nothing is cut short by it. */
static int get_messages(int fd, struct mmsghdr *m, unsigned int n, int flags,
			struct timespec *timeout)
{
	uint64_t end =
		timeout ? exi_now_ns() +
				  (uint64_t)timeout->tv_sec * 1000000000u +
				  (uint64_t)timeout->tv_nsec
			: 0;
	bool wait_one = flags & MSG_WAITFORONE;
	int ret = exi_flow_error(fd);

	if (exi_unlikely(ret)) /* unlike others, before the bytes */
		return -ret;
	flags &= ~MSG_WAITFORONE;
	for (unsigned int i = 0; i < n;) {
		ssize_t got;

		if (i && exi_flow_error_waits(fd, EXI_RX))
			return (int)i;
		i += get_some(fd, m + i, n - i, flags, &got);
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
	if (exi_unlikely(!shim_sock(fd) || kernels(flags)))
		return native.recvmmsg(fd, m, n, flags, timeout);
	if (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 ||
			timeout->tv_nsec >= 1000000000))
		return (int)shim_result(-EINVAL);
	return (int)shim_result(get_messages(fd, m, n, flags, timeout));
}

/* --- files -------------------------------------------------------------- */

static ssize_t send_file(int to, int from, off_t *offset, size_t n)
{
	off_t at = offset ? *offset : lseek(from, 0, SEEK_CUR);
	ssize_t ret;

	/* From a pipe: the kernel says so. */
	if (at < 0)
		return offset || errno == ESPIPE ? -EINVAL : -errno;
	ret = exi_parts_send_file(put_piece, to, from, at, n, 0);
	if (ret > 0 && offset)
		*offset = at + ret;
	else if (ret > 0)
		lseek(from, at + ret, SEEK_SET);
	return ret == -ESPIPE ? -EINVAL : ret;
}

/* Of *n bytes, which it makes less where a fabric may be met meanwhile. */
static ssize_t send_piece(int to, int from, off_t *offset, size_t *n)
{
	struct exi_half *h = exi_flow_native_send(to, n);
	ssize_t ret;
	int saved;

	if (!h)
		return shim_result(send_file(to, from, offset, *n));
	ret = native.sendfile(to, from, offset, *n);
	saved = errno;
	exi_flow_native_sent(h, ret);
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
	return native.splice(from, off_from, to, off_to, n, flags);
}

/* --- formatted ---------------------------------------------------------- */

/* The C library's own write by another way: it would go past the fabric. */
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
