/* SPDX-License-Identifier: BSD-2-Clause */
/* Single attempts to move bytes, under the lock of the direction. */
#include "core/sock/capture.h"
#include "core/transfer/attempt.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/ancillary.h"
#include "core/base/pieces.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/pair.h"
#include "core/sock/base.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/drain.h"
#include "core/transfer/half.h"
#include "core/transfer/parts.h"
#include "core/transfer/resume.h"
#include "core/transfer/ring_io.h"
#include "core/transfer/switch.h"

ssize_t exi_attempt_send_unheard_locked(struct exi_sock *sk, struct exi_half *h,
					const void *buf, size_t len, ssize_t n)
{
	EXI_LOCKED(&h->lock);
	if (exi_flow_unheard_locked(sk))
		return exi_attempt_send_tcp_locked(sk, h, buf, len, 0);
	if (n <= 0)
		return exi_attempt_send_failed_locked(sk, h, n);
	exi_half_account_locked(h, n, true);
	return n;
}

ssize_t exi_attempt_send_barred_locked(struct exi_sock *sk, struct exi_half *h,
				       const void *buf, size_t len)
{
	EXI_LOCKED(&h->lock);
	return atomic_load(&sk->sh->gone) && exi_flow_bereft_locked(sk)
		       ? exi_attempt_send_tcp_locked(sk, h, buf, len, 0)
		       : exi_half_send_refused_locked(sk, h);
}

ssize_t exi_attempt_send_failed_locked(struct exi_sock *sk, struct exi_half *h,
				       ssize_t n)
{
	EXI_LOCKED(&h->lock);
	if (n == -EPROTO)
		return exi_flow_fabric_failed_locked(sk, h);
	if (n == -ENOBUFS) {
		exi_switch_leave_locked(sk, EXS_X_REASON_MEMORY);
		return -EAGAIN;
	}
	return n;
}

ssize_t exi_attempt_recv_failed_locked(struct exi_sock *sk, struct exi_half *h,
				       size_t len, ssize_t n)
{
	EXI_LOCKED(&h->lock);
	if (n == 0 && len)
		return exi_half_end_read_locked(sk, h);
	if (n == -EPROTO)
		return exi_flow_fabric_failed_locked(sk, h);
	return n == -ENOBUFS ? exi_attempt_recv_unfit_locked(sk, h) : n;
}

ssize_t exi_attempt_recv_over_locked(struct exi_sock *sk, struct exi_half *h,
				     void *buf, size_t len, int flags)
{
	/* Before the look at the ring, as in exi_recv_ring_locked(). */
	uint32_t over =
		atomic_load_explicit(&sk->sh->gone, memory_order_acquire) |
		atomic_load_explicit(&sk->sh->rx_fin, memory_order_acquire);
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (h->broken)
		return exi_half_tell_broken_locked(sk, h);
	if (over && h->deaf && len) {
		len = exi_half_heard_locked(h, len);
		if (!len && h->deaf == EXI_DEAF_END)
			return exi_half_end_read_locked(sk, h);
		if (!len)
			return exi_half_recv_ended_locked(sk, h);
	}
	if (over)
		/* Bytes that came before that are read first. */
		flags &= ~EXI_MSG_POLLED;
	n = sk->fab->ops->recv(sk->fab, buf, len, flags);
	if (n > 0 && !(flags & MSG_PEEK))
		exi_half_account_locked(h, n, true);
	if (n > 0)
		return n;
	return n == -EAGAIN && over
		       ? exi_half_recv_ended_locked(sk, h)
		       : exi_attempt_recv_failed_locked(sk, h, len, n);
}

ssize_t exi_attempt_send_ring_locked(struct exi_sock *sk, struct exi_half *h,
				     const void *buf, size_t len)
{
	EXI_LOCKED(&h->lock);
	return exi_send_ring_locked(sk, h, buf, len);
}

size_t exi_attempt_together_locked(const struct exi_sock *sk,
				   const struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	return sk->fab->lops && sk->fab->lops->room ? EXI_ATTEMPT_TOGETHER
						    : EXI_ATTEMPT_COPIED;
}

/* The first of them, as many bytes as there is room for. */
static void gather(char *to, size_t room, const struct iovec *v)
{
	for (size_t len; room; room -= len, to += len, v++) {
		len = v->iov_len < room ? v->iov_len : room;
		if (len)
			exi_copy(to, v->iov_base, len);
	}
}

static ssize_t send_in_room_locked(struct exi_sock *sk, struct exi_half *h,
				   const struct iovec *v, size_t len)
{
	struct exi_conn *fab = sk->fab;
	void *at;
	ssize_t n = fab->lops->room(fab, len, &at);

	EXI_LOCKED(&h->lock);
	if (n <= 0)
		return exi_attempt_send_failed_locked(sk, h, n);
	gather(at, (size_t)n, v);
	fab->lops->put(fab, (size_t)n);
	if (exi_unlikely(
		    atomic_load_explicit(&fab->unheard, memory_order_relaxed)))
		return exi_attempt_send_unheard_locked(sk, h, at, (size_t)n, n);
	exi_half_account_locked(h, n, true);
	return n;
}

ssize_t exi_attempt_send_together_locked(struct exi_sock *sk,
					 struct exi_half *h,
					 const struct iovec *v, size_t n)
{
	char buf[EXI_ATTEMPT_COPIED];
	size_t len = 0;

	EXI_LOCKED(&h->lock);
	for (size_t i = 0; i < n; i++)
		len += v[i].iov_len;
	if (n == 1)
		return exi_send_ring_locked(sk, h, v->iov_base, len);
	if (exi_likely(!exi_send_barred_locked(sk->sh, h)) &&
	    exi_attempt_together_locked(sk, h) > EXI_ATTEMPT_COPIED)
		return send_in_room_locked(sk, h, v, len);
	len = len < sizeof(buf) ? len : sizeof(buf);
	gather(buf, len, v);
	return exi_send_ring_locked(sk, h, buf, len);
}

int exi_attempt_before_tcp_locked(struct exi_sock *sk, struct exi_half *h,
				  int flags)
{
	int ret = exi_half_send_refused_locked(sk, h);

	EXI_LOCKED(&h->lock);
	if (ret)
		return ret;
	if (h->mode == EXI_MODE_DRAIN) {
		ret = exi_flow_drain_locked(sk);
		if (ret)
			return ret;
	}
	if (sk->posted[EXI_TX])
		return -EAGAIN;
	if (!(flags & (MSG_OOB | MSG_MORE)) && exi_switch_wanted(sk->sh) &&
	    exi_switch_up_locked(sk) == 0)
		return 0;
	if (flags & MSG_OOB)
		h->urgent = 1;
	return 0;
}

/* Bytes are about to go over TCP: a peer that has met this end, and wants to
 * know when, is informed before. */
static void say_when(struct exi_sock *sk, const struct exi_half *h)
{
	if (exi_unlikely(sk->fab && sk->fab->bell >= 0 &&
			 sk->fab->rops->tcp_sends))
		sk->fab->rops->tcp_sends(sk->fab, h->bytes);
}

ssize_t exi_attempt_send_tcp_locked(struct exi_sock *sk, struct exi_half *h,
				    const void *buf, size_t len, int flags)
{
	ssize_t n = exi_attempt_before_tcp_locked(sk, h, flags);
	uint64_t began;

	EXI_LOCKED(&h->lock);
	if (n)
		return n;
	if (h->mode == EXI_MODE_RING)
		return exi_attempt_send_ring_locked(sk, h, buf, len);
	say_when(sk, h);
	began = exi_link_sends();
	n = sk->tcp->ops->send(sk->tcp, buf, len, flags);
	exi_capture_tell_one(sk->tcp, EXI_TX, buf, n, 0);
	if (n > 0) {
		exi_half_account_locked(h, n, false);
		exi_link_by_kernel(began, n);
	}
	return n;
}

ssize_t exi_flow_try_send_locked(struct exi_sock *sk, struct exi_half *h,
				 const void *buf, size_t len, int flags)
{
	EXI_LOCKED(&h->lock);
	if (exi_half_elsewhere_locked(sk, h))
		return -EREMOTE;
	if (exi_likely(h->mode == EXI_MODE_RING))
		return exi_attempt_send_ring_locked(sk, h, buf, len);
	return exi_attempt_send_tcp_locked(sk, h, buf, len, flags);
}

/* Several pieces for the fabric, which takes one buffer: bytes that other
 * threads send do not come between the pieces of a short call. */
static ssize_t try_gathered_locked(struct exi_sock *sk, struct exi_half *h,
				   struct exi_pieces *p)
{
	size_t len;
	ssize_t ret;
	char *buf;
	void *from;

	EXI_LOCKED(&h->lock);
	len = exi_pieces_next(p, &from);
	buf = p->n > 1 && p->left <= EXI_PARTS_GATHER ? malloc(p->left) : NULL;
	if (!buf)
		return exi_attempt_send_ring_locked(sk, h, from, len);
	len = exi_pieces_gather(*p, buf, p->left);
	ret = exi_attempt_send_ring_locked(sk, h, buf, len);
	free(buf);
	return ret;
}

ssize_t exi_attempt_send_pieces_locked(struct exi_sock *sk, struct exi_half *h,
				       struct exi_pieces *p, int flags)
{
	struct iovec room[EXI_PIECES_COPIED];
	const struct iovec *v;
	void *from;
	uint64_t began;
	ssize_t ret;
	size_t n, len = exi_pieces_next(p, &from);

	EXI_LOCKED(&h->lock);
	if (p->n <= 1)
		return exi_flow_try_send_locked(sk, h, from, len, flags);
	if (exi_half_elsewhere_locked(sk, h))
		return -EREMOTE;
	ret = h->mode == EXI_MODE_RING
		      ? 0
		      : exi_attempt_before_tcp_locked(sk, h, flags);
	if (ret)
		return ret;
	if (h->mode == EXI_MODE_RING)
		return try_gathered_locked(sk, h, p);
	exi_pieces_cut(p, SSIZE_MAX, room, &v, &n);
	say_when(sk, h);
	began = exi_link_sends();
	ret = sk->tcp->kops->sendv(sk->tcp, v, n, flags);
	exi_capture_tell(sk->tcp, EXI_TX, p, ret, 0);
	if (ret > 0) {
		exi_half_account_locked(h, ret, false);
		exi_link_by_kernel(began, ret);
	}
	return ret;
}

ssize_t exi_attempt_recv_unfit_locked(struct exi_sock *sk, struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	if (!h->leaving) { /* it was not asked to, yet */
		exi_switch_refuse_locked(sk, EXS_X_REASON_MEMORY);
		exi_sock_wake_all_locked(sk, EXI_RX);
	}
	return -EAGAIN;
}

static ssize_t unread_end(const struct exi_half *h, ssize_t end)
{
	return atomic_load(&h->untaken) && !end ? -ECONNRESET : end;
}

ssize_t exi_attempt_recv_ring_locked(struct exi_sock *sk, struct exi_half *h,
				     void *buf, size_t len, int flags)
{
	EXI_LOCKED(&h->lock);
	return exi_recv_ring_locked(sk, h, buf, len, flags);
}

/* The kernel knows, including what other processes with the descriptor read,
 * except for one byte that may be a FIN. Where the kernel may not be asked any
 * more, or another host's bytes are between, the count is what was read here.
 * The kernel counts nothing on a UNIX socket: if other processes may have read
 * there, all of the rest counts as read, which is so unless the peer died while
 * it sent it. */
int64_t exi_attempt_came_back_locked(struct exi_sock *sk,
				     const struct exi_half *h)
{
	int64_t here = (int64_t)(h->back - h->left), n;

	EXI_LOCKED(&h->lock);
	if (sk->base->ends_both)
		return atomic_load(&sk->sh->several) ? INT64_MAX : here;
	return !exi_sock_remote(sk) && !exi_switch_came_locked(sk, &n) &&
			       n > here
		       ? n
		       : here;
}

bool exi_attempt_back_to_ring_locked(struct exi_sock *sk, struct exi_half *h,
				     ssize_t *end)
{
	char skipped[4096];
	int64_t skip = exi_attempt_came_back_locked(sk, h);
	ssize_t got;

	EXI_LOCKED(&h->lock);
	if (skip < 0) { /* TCP bytes are missing */
		*end = *end ? *end : -ECONNRESET;
		return false;
	}
	while (skip) {
		size_t n = skip < (int64_t)sizeof(skipped) ? (size_t)skip
							   : sizeof(skipped);

		/* A capture had these when they came over TCP. */
		got = sk->fab->provider->conn_ops->recv(sk->fab, skipped, n, 0);
		if (got == -ENOBUFS)
			*end = unread_end(h, *end);
		if (got <= 0)
			return false; /* all came, and more: TCP's own end */
		skip -= got;
	}
	got = sk->fab->ops->recv(sk->fab, skipped, 1, MSG_PEEK);
	if (got == -ENOBUFS)
		*end = unread_end(h, *end);
	if (got <= 0)
		return false; /* all came */
	exi_half_mode_locked(h, EXI_MODE_RING);
	exi_flow_deafen_locked(sk);
	atomic_store(&sk->sh->rx_fin, 1);
	h->err = *end < 0 && *end != -EAGAIN ? (int)-*end : 0;
	return true;
}

static ssize_t count_tcp_locked(struct exi_sock *sk, struct exi_half *h,
				ssize_t n)
{
	EXI_LOCKED(&h->lock);
	exi_half_account_locked(h, n, false);
	if (h->mode == EXI_MODE_LEFT)
		exi_switch_read_locked(sk, (size_t)n);
	if (h->mode == EXI_MODE_BACK)
		h->back += (uint64_t)n;
	return n;
}

/* A look at what the ring has for the pieces. */
static ssize_t peek_ring(struct exi_sock *sk, struct exi_pieces p)
{
	size_t most = p.left < EXI_PARTS_GATHER ? p.left : EXI_PARTS_GATHER;
	void *buf, *copy;
	size_t len = exi_pieces_next(&p, &buf);
	ssize_t n;

	copy = p.n > 1 ? malloc(most) : NULL;
	if (!copy)
		return sk->fab->ops->recv(sk->fab, buf, len, MSG_PEEK);
	n = sk->fab->ops->recv(sk->fab, copy, most, MSG_PEEK);
	if (n > 0)
		exi_pieces_scatter(&p, copy, (size_t)n);
	free(copy);
	return n;
}

/* n bytes were looked at, which lie on TCP: those in the ring follow. */
static ssize_t peek_on(struct exi_sock *sk, struct exi_half *h,
		       struct exi_pieces p, size_t n)
{
	ssize_t more = 0;

	if (h->mode == EXI_MODE_LEFT && n == h->left && n < p.left && sk->fab) {
		exi_pieces_moved(&p, n);
		more = peek_ring(sk, p);
	}
	return (ssize_t)n + (more > 0 ? more : 0);
}

/* Only the kernel itself gives what comes beside the bytes. */
static ssize_t get_beside(int fd, const struct exi_pieces *p, size_t most,
			  int flags)
{
	struct iovec room[EXI_PIECES_COPIED];
	struct msghdr m = { 0 };
	int saved = errno;
	ssize_t ret;

	exi_pieces_cut(p, most, room, (const struct iovec **)&m.msg_iov,
		       &m.msg_iovlen);
	exi_beside_give(p->beside, &m);
	ret = recvmsg(fd, &m, flags | p->beside->flags | MSG_DONTWAIT);
	if (ret < 0)
		ret = -errno;
	exi_beside_take(p->beside, &m, ret);
	errno = saved;
	return ret;
}

static ssize_t get_tcp(struct exi_sock *sk, struct exi_pieces *p, size_t most,
		       int flags)
{
	struct iovec room[EXI_PIECES_COPIED];
	const struct iovec *v;
	size_t n;
	void *buf;

	if (exi_unlikely(p->beside))
		return get_beside(sk->tcp->fd, p, most, flags);
	n = exi_pieces_next(p, &buf);
	if (exi_likely(p->n <= 1))
		return sk->tcp->ops->recv(sk->tcp, buf, n < most ? n : most,
					  flags);
	exi_pieces_cut(p, most, room, &v, &n);
	return sk->tcp->kops->recvv(sk->tcp, v, n, flags);
}

bool exi_attempt_is_cut_locked(struct exi_sock *sk, struct exi_half *h)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	struct pollfd p = { .fd = sk->tcp->fd };

	EXI_LOCKED(&h->lock);
	exi_lock(&tx->lock);
	if (!tx->fin && poll(&p, 1, 0) > 0 && (p.revents & POLLHUP))
		exi_flow_bereft_locked(sk);
	exi_unlock(&tx->lock);
	return exi_half_take_cut(h);
}

ssize_t exi_attempt_recv_tcp_locked(struct exi_sock *sk, struct exi_half *h,
				    struct exi_pieces *p, int flags)
{
	void *buf;
	size_t piece = exi_pieces_next(p, &buf);
	size_t len = p->left;
	ssize_t n = (ssize_t)len;

	EXI_LOCKED(&h->lock);
	if (h->broken)
		return exi_half_tell_broken_locked(sk, h);
	if (h->err)
		return -exi_half_take_err(h);
	if (h->ended)
		return exi_half_end(h);
	if (sk->posted[EXI_RX])
		return -EAGAIN;
	if (h->mode == EXI_MODE_LEFT && len > h->left)
		len = h->left;
	if (exi_unlikely(atomic_load(&h->untaken)) &&
	    h->mode == EXI_MODE_BACK && len)
		n = exi_resume_read_locked(sk, len);
	if (n == -ENODATA)
		return exi_attempt_recv_ring_locked(sk, h, buf, piece, flags);
	if (n >= 0)
		n = get_tcp(sk, p, h->mode == EXI_MODE_BACK ? (size_t)n : len,
			    flags & ~MSG_WAITALL);
	if (n > 0 && (flags & (MSG_PEEK | MSG_OOB | MSG_TRUNC)) == MSG_PEEK)
		return peek_on(sk, h, *p, (size_t)n);
	if (n > 0 && !(flags & (MSG_PEEK | MSG_OOB))) {
		exi_capture_tell(sk->tcp, EXI_RX, p, n, flags);
		return count_tcp_locked(sk, h, n);
	}
	if (n > 0)
		return n;
	if (n == -EAGAIN && h->mode == EXI_MODE_LEFT) {
		exi_switch_recount_locked(sk);
		if (h->mode == EXI_MODE_RING)
			return exi_attempt_recv_ring_locked(sk, h, buf, piece,
							    flags);
	}
	if (n == -EAGAIN || n == -EINTR || !len || (flags & MSG_OOB))
		return n;
	if (h->broken)
		return exi_half_tell_broken_locked(sk, h);
	/* A SWITCH that was sent before it may still lie in the link, or, from
	 * another host, be on its way: the service asks the peer. */
	h->end_seen = 1;
	if (n == 0 && exi_resume_early_end_locked(sk))
		return -EAGAIN;
	if (!exi_resume_end_counts_locked(sk)) {
		/* The kernel reports an error once: the error is kept. */
		h->err = n < 0 ? (int)-n : 0;
		return -ESTALE;
	}
	if (h->mode == EXI_MODE_BACK && !h->fin && sk->fab &&
	    exi_attempt_back_to_ring_locked(sk, h, &n))
		return exi_attempt_recv_ring_locked(sk, h, buf, piece, flags);
	if (n == 0 && sk->base->ends_both && exi_attempt_is_cut_locked(sk, h))
		n = -ECONNRESET;
	if ((h->mode == EXI_MODE_LEFT || h->resume) && n == 0 && !h->fin)
		n = -ECONNRESET; /* bytes of TCP are missing */
	h->fin = 1;
	return n;
}

/* What an attempt met behind bytes that are returned first, unless the next one
 * meets it again. */
static void keep_error_locked(struct exi_half *h, ssize_t n)
{
	EXI_LOCKED(&h->lock);
	if (n < 0 && n != -EAGAIN && n != -ESTALE && n != -EREMOTE)
		h->err = (int)-n;
}

/* One look, or the second piece would get the first bytes again. */
static ssize_t peek_pieces_locked(struct exi_sock *sk, struct exi_half *h,
				  struct exi_pieces p, int flags)
{
	size_t most = p.left < EXI_PARTS_GATHER ? p.left : EXI_PARTS_GATHER;
	char *copy = malloc(most);
	ssize_t n = -ENOMEM;

	EXI_LOCKED(&h->lock);
	if (!copy)
		return n;
	n = exi_recv_ring_locked(sk, h, copy, most, flags);
	if (n > 0)
		exi_pieces_scatter(&p, copy, (size_t)n);
	free(copy);
	return n;
}

/* Bytes that another thread receives do not come between the pieces. */
static ssize_t recv_ring_pieces_locked(struct exi_sock *sk, struct exi_half *h,
				       struct exi_pieces p, int flags)
{
	void *buf;
	size_t len = exi_pieces_next(&p, &buf);
	ssize_t n, done;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(flags & MSG_PEEK))
		return peek_pieces_locked(sk, h, p, flags);
	n = exi_recv_ring_locked(sk, h, buf, len, flags);
	for (done = n; n == (ssize_t)len && n > 0; done += n) {
		exi_pieces_moved(&p, (size_t)n);
		len = exi_pieces_next(&p, &buf);
		if (!len || h->mode != EXI_MODE_RING || !sk->fab ||
		    exi_half_error_waits_locked(sk, EXI_RX))
			break;
		n = exi_recv_ring_locked(sk, h, buf, len,
					 flags & ~EXI_MSG_POLLED);
		if (n <= 0) {
			keep_error_locked(h, n);
			break;
		}
	}
	return done;
}

/* The last bytes of TCP were read: the next ones are in the ring. */
static ssize_t recv_behind_locked(struct exi_sock *sk, struct exi_half *h,
				  struct exi_pieces p, ssize_t n, int flags)
{
	ssize_t more;

	EXI_LOCKED(&h->lock);
	exi_pieces_moved(&p, (size_t)n);
	more = recv_ring_pieces_locked(sk, h, p, flags);
	keep_error_locked(h, more);
	return more > 0 ? n + more : n;
}

ssize_t exi_attempt_recv_pieces_locked(struct exi_sock *sk, struct exi_half *h,
				       struct exi_pieces *p, int flags)
{
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(h->gathered))
		return -EAGAIN;
	if (exi_likely(h->mode == EXI_MODE_RING && sk->fab)) {
		void *buf;
		size_t len = exi_pieces_next(p, &buf);

		if (p->n > 1)
			return recv_ring_pieces_locked(sk, h, *p, flags);
		return exi_recv_ring_locked(sk, h, buf, len, flags);
	}
	if (exi_half_elsewhere_locked(sk, h))
		return -EREMOTE;
	flags &= ~EXI_MSG_POLLED;
	n = exi_attempt_recv_tcp_locked(sk, h, p, flags);
	if (n > 0 && (flags & MSG_PEEK) && h->mode == EXI_MODE_RING && sk->fab)
		return recv_ring_pieces_locked(sk, h, *p, flags);
	if (n > 0 && n < (ssize_t)p->left && h->mode == EXI_MODE_RING &&
	    sk->fab && !exi_beside_came(p->beside) &&
	    !exi_half_error_waits_locked(sk, EXI_RX))
		n = recv_behind_locked(sk, h, *p, n, flags);
	return n;
}

ssize_t exi_flow_try_recv_locked(struct exi_sock *sk, struct exi_half *h,
				 void *buf, size_t len, int flags)
{
	struct iovec v = { .iov_base = buf, .iov_len = len };
	struct exi_pieces p = { .v = &v, .n = 1, .left = len };

	EXI_LOCKED(&h->lock);
	if (exi_likely(h->mode == EXI_MODE_RING && !h->gathered && sk->fab))
		return exi_recv_ring_locked(sk, h, buf, len, flags);
	return exi_attempt_recv_pieces_locked(sk, h, &p, flags);
}
