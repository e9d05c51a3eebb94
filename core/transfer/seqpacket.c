/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of a UNIX socket of SOCK_SEQPACKET, under the lock of the
 * direction. */
#include "core/transfer/seqpacket.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/pair.h"
#include "core/sock/base.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/transfer/attempt.h"
#include "core/transfer/half.h"
#include "core/transfer/resume.h"
#include "core/transfer/ring_io.h"
#include "core/transfer/switch.h"

#define HEAD sizeof(uint32_t)

/* The smallest SO_SNDBUF admits this, so that it is not asked for. */
#define SURELY_FITS 2048

/* A message of len bytes moved. */
static void account_locked(struct exi_half *h, size_t len, bool fabric)
{
	size_t unit = exi_seq_unit(len);

	EXI_LOCKED(&h->lock);
	__atomic_store_n(&h->beside, h->beside + unit - len, __ATOMIC_RELAXED);
	if (fabric)
		__atomic_store_n(&h->fabric_beside,
				 h->fabric_beside + unit - len,
				 __ATOMIC_RELAXED);
	exi_half_count_locked(h, (ssize_t)unit, fabric);
	exi_stats_moved_locked(h, h->bytes - h->beside,
			       h->fabric_bytes - h->fabric_beside, !fabric);
}

/* --- sending ------------------------------------------------------------- */

static bool is_too_long(int fd, size_t len)
{
	int room = 0;
	socklen_t n = sizeof(room);

	return len > SURELY_FITS &&
	       getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &n) == 0 &&
	       (int64_t)len > (int64_t)room - 32;
}

/* The peer is gone. -EREMOTE: not in the ring any more. */
static ssize_t send_bereft_locked(struct exi_sock *sk, struct exi_half *h)
{
	ssize_t ret = exi_flow_bereft_locked(sk)
			      ? -EREMOTE
			      : exi_half_send_refused_locked(sk, h);

	EXI_LOCKED(&h->lock);
	return exi_half_take_cut(&sk->sh->half[EXI_RX]) ? -ECONNRESET : ret;
}

/* The same. */
static ssize_t send_ring_locked(struct exi_sock *sk, struct exi_half *h,
				const struct msghdr *m, size_t len)
{
	size_t unit = exi_seq_unit(len);
	uint32_t head = (uint32_t)len;
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (exi_send_barred_locked(sk->sh, h))
		return atomic_load(&sk->sh->gone)
			       ? send_bereft_locked(sk, h)
			       : exi_half_send_refused_locked(sk, h);
	if (is_too_long(sk->tcp->fd, len))
		return -EMSGSIZE;
	n = sk->fab->lops->whole(sk->fab, &head, m->msg_iov, m->msg_iovlen,
				 unit);
	if (n == -EMSGSIZE) { /* no ring of this connection has so much room */
		exi_switch_leave_locked(sk, EXS_X_REASON_MEMORY);
		return -EAGAIN;
	}
	if (n < 0)
		return exi_attempt_send_failed_locked(sk, h, n);
	if (exi_unlikely(atomic_load_explicit(&sk->fab->unheard,
					      memory_order_relaxed))) {
		atomic_store(&sk->sh->gone, 1);
		return send_bereft_locked(sk, h);
	}
	account_locked(h, len, true);
	return (ssize_t)len;
}

ssize_t exi_seq_send_locked(struct exi_sock *sk, struct exi_half *h,
			    const struct msghdr *m, size_t len, int flags)
{
	uint64_t began;
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (exi_half_elsewhere_locked(sk, h))
		return -EREMOTE;
	if (exi_half_take_cut(&sk->sh->half[EXI_RX]))
		return -ECONNRESET;
	if (h->mode == EXI_MODE_RING && (flags & MSG_OOB))
		return -EOPNOTSUPP;
	if (h->mode == EXI_MODE_RING) {
		n = send_ring_locked(sk, h, m, len);
		if (n != -EREMOTE)
			return n;
	}
	n = exi_attempt_before_tcp_locked(sk, h, flags & ~MSG_OOB);
	if (n)
		return n;
	if (exi_half_take_cut(&sk->sh->half[EXI_RX]))
		return -ECONNRESET;
	if (h->mode == EXI_MODE_RING)
		return send_ring_locked(sk, h, m, len);
	began = exi_link_sends();
	n = sendmsg(sk->tcp->fd, m, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return -errno;
	account_locked(h, (size_t)n, false);
	exi_link_by_kernel(began, n ? n : 1);
	return n;
}

/* --- receiving ------------------------------------------------------------ */

static ssize_t invalid_locked(struct exi_sock *sk, struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	return exi_flow_fabric_failed_locked(sk, h);
}

/* Takes n bytes of the ring, which are there. */
static bool take(struct exi_sock *sk, void *to, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t ret = sk->fab->ops->recv(sk->fab, (char *)to + done,
						 n - done, 0);

		if (ret <= 0)
			return false;
		done += (size_t)ret;
	}
	return true;
}

static bool skip(struct exi_sock *sk, size_t n)
{
	char none[4096];

	for (size_t part; n; n -= part) {
		part = n < sizeof(none) ? n : sizeof(none);
		if (!take(sk, none, part))
			return false;
	}
	return true;
}

static bool take_into(struct exi_sock *sk, const struct msghdr *m, size_t n)
{
	for (size_t i = 0, part; n; i++, n -= part) {
		part = m->msg_iov[i].iov_len < n ? m->msg_iov[i].iov_len : n;
		if (part && !take(sk, m->msg_iov[i].iov_base, part))
			return false;
	}
	return true;
}

/* The first n bytes of a message, which stay. */
static int peek_into(struct exi_sock *sk, const struct msghdr *m, size_t n)
{
	char *buf = malloc(HEAD + n), *at = buf + HEAD;
	int ret = -ENOMEM;

	if (!buf)
		return ret;
	ret = sk->fab->ops->recv(sk->fab, buf, HEAD + n, MSG_PEEK) ==
			      (ssize_t)(HEAD + n)
		      ? 0
		      : -EPROTO;
	for (size_t i = 0, part; !ret && n; i++, n -= part, at += part) {
		part = m->msg_iov[i].iov_len < n ? m->msg_iov[i].iov_len : n;
		if (part)
			memcpy(m->msg_iov[i].iov_base, at, part);
	}
	free(buf);
	return ret;
}

/* Nothing is in the ring, or its end is. */
static ssize_t no_message_locked(struct exi_sock *sk, struct exi_half *h,
				 ssize_t n, bool left, struct exi_seq_end *ret)
{
	EXI_LOCKED(&h->lock);
	if (n == -EAGAIN && !left)
		return n;
	ret->over = true;
	n = n == -EAGAIN ? exi_half_recv_ended_locked(sk, h)
			 : exi_attempt_recv_failed_locked(sk, h, 1, n);
	return n;
}

static ssize_t recv_ring_locked(struct exi_sock *sk, struct exi_half *h,
				struct msghdr *m, size_t room, int flags,
				struct exi_seq_end *ret)
{
	/* Before the look at the ring, as in exi_recv_ring_locked(). */
	bool left = atomic_load(&sk->sh->gone) || atomic_load(&sk->sh->rx_fin);
	uint32_t head = 0;
	size_t n, unit;
	ssize_t got;

	EXI_LOCKED(&h->lock);
	if (h->broken)
		return exi_half_tell_broken_locked(sk, h);
	/* Before what is unread here, as in the kernel. */
	if (exi_half_cut_locked(sk, h))
		return -ECONNRESET;
	if (left && h->deaf && !exi_half_heard_locked(h, 1)) {
		ret->over = true;
		return h->deaf == EXI_DEAF_END
			       ? exi_half_end_read_locked(sk, h)
			       : exi_half_recv_ended_locked(sk, h);
	}
	got = sk->fab->ops->recv(sk->fab, &head, HEAD, MSG_PEEK);
	if (got <= 0)
		return no_message_locked(sk, h, got, left, ret);
	unit = exi_seq_unit(head);
	if (got != HEAD || head > EXI_SEQ_MAX)
		return invalid_locked(sk, h);
	/* All of it was published at once: what is missing is memory. */
	if (sk->fab->rops->unread(sk->fab) < unit)
		return exi_attempt_recv_unfit_locked(sk, h);
	n = head < room ? head : room;
	m->msg_flags = n < head ? MSG_TRUNC : 0;
	m->msg_flags |= flags & MSG_CMSG_CLOEXEC;
	m->msg_controllen = 0;
	if (flags & MSG_PEEK) {
		int err = peek_into(sk, m, n);

		if (err)
			return err == -EPROTO ? invalid_locked(sk, h) : err;
	} else {
		if (!take(sk, &head, HEAD) || !take_into(sk, m, n) ||
		    !skip(sk, unit - HEAD - n))
			return invalid_locked(sk, h);
		account_locked(h, head, true);
		/* The sender counts what was taken. */
		sk->fab->rops->full(sk->fab);
	}
	return (ssize_t)(flags & MSG_TRUNC ? head : n);
}

/* Whether a receive of no bytes in the kernel was the end. A message of no
 * bytes before the end looks the same: in LEFT it is known that a message was
 * due, elsewhere nothing follows. */
static bool is_end_locked(struct exi_sock *sk, const struct exi_half *h)
{
	struct pollfd p = { .fd = sk->tcp->fd, .events = POLLRDHUP };

	EXI_LOCKED(&h->lock);
	return !(h->mode == EXI_MODE_LEFT && h->left) && poll(&p, 1, 0) > 0 &&
	       (p.revents & (POLLRDHUP | POLLHUP));
}

static ssize_t ended_locked(struct exi_sock *sk, struct exi_half *h,
			    struct msghdr *m, size_t room, int flags,
			    struct exi_seq_end *ret)
{
	ssize_t n = 0;

	EXI_LOCKED(&h->lock);
	/* A SWITCH that was sent before may lie in the link. */
	h->end_seen = 1;
	if (!exi_resume_end_counts_locked(sk))
		return -ESTALE;
	if (h->mode == EXI_MODE_BACK && !h->fin && sk->fab &&
	    exi_attempt_back_to_ring_locked(sk, h, &n))
		return recv_ring_locked(sk, h, m, room, flags, ret);
	if (exi_attempt_is_cut_locked(sk, h))
		n = -ECONNRESET;
	ret->over = true;
	h->fin = 1;
	return n;
}

static ssize_t recv_kernel_locked(struct exi_sock *sk, struct exi_half *h,
				  struct msghdr *m, size_t room, int flags,
				  struct exi_seq_end *ret)
{
	struct msghdr to = *m;
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (h->broken)
		return exi_half_tell_broken_locked(sk, h);
	if (h->err)
		return -exi_half_take_err(h);
	if (exi_half_take_cut(h))
		return -ECONNRESET;
	if (h->ended) {
		ret->over = true;
		return 0;
	}
	to.msg_name = NULL;
	n = recvmsg(sk->tcp->fd, &to, flags | MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0)
		return -errno;
	if (n == 0 && is_end_locked(sk, h)) {
		n = ended_locked(sk, h, m, room, flags, ret);
		if (ret->over)
			m->msg_controllen = (size_t)(m->msg_flags = 0);
		return n;
	}
	if (!(flags & MSG_PEEK)) {
		size_t unit = exi_seq_unit((size_t)n);

		account_locked(h, (size_t)n, false);
		if (h->mode == EXI_MODE_LEFT)
			exi_switch_read_locked(sk,
					       unit < h->left ? unit : h->left);
		if (h->mode == EXI_MODE_BACK)
			h->back += unit;
	}
	m->msg_flags = to.msg_flags;
	m->msg_controllen = to.msg_controllen;
	return flags & MSG_TRUNC || n < (ssize_t)room ? n : (ssize_t)room;
}

ssize_t exi_seq_recv_locked(struct exi_sock *sk, struct exi_half *h,
			    struct msghdr *m, size_t room, int flags,
			    struct exi_seq_end *ret)
{
	EXI_LOCKED(&h->lock);
	ret->over = false;
	if (exi_unlikely(h->gathered))
		return -EAGAIN;
	if (exi_half_elsewhere_locked(sk, h))
		return -EREMOTE;
	return h->mode == EXI_MODE_RING
		       ? recv_ring_locked(sk, h, m, room, flags, ret)
		       : recv_kernel_locked(sk, h, m, room, flags, ret);
}
