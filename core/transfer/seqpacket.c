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
#include "core/sock/wake.h"
#include "core/transfer/attempt.h"
#include "core/transfer/half.h"
#include "core/transfer/resume.h"
#include "core/transfer/ring_io.h"
#include "core/transfer/switch.h"

#define HEAD sizeof(uint32_t)

/* What the kernel keeps of SO_SNDBUF beside the longest message. */
#define BESIDE 32

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
	if ((int64_t)len > (int64_t)sk->fab->whole - BESIDE)
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

void exi_seq_room_set(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return;
	if (!sk->fab)
		goto unlock;
	/* The other processes that have it, too, are not told. */
	if (sk->base->most(fd) > sk->fab->most || atomic_load(&sh->several))
		exi_switch_leave_locked(sk, EXS_X_REASON_MEMORY);
	atomic_store_explicit(&sk->fab->whole, sk->base->admits(fd),
			      memory_order_relaxed);
	exi_sock_wake_all_locked(sk, EXI_TX);
unlock:
	exi_half_unlock(&sh->half[EXI_TX]);
}

/* --- receiving ------------------------------------------------------------ */

static ssize_t invalid_locked(struct exi_sock *sk, struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	return exi_flow_fabric_failed_locked(sk, h);
}

/* The next buffers of a message that is received. */
struct room {
	const struct iovec *v;
	size_t at;
};

static void fill(struct room *to, const char *from, size_t n)
{
	while (n) {
		size_t part = to->v->iov_len - to->at;

		if (!part) {
			to->v++;
			to->at = 0;
			continue;
		}
		part = part < n ? part : n;
		memcpy((char *)to->v->iov_base + to->at, from, part);
		to->at += part;
		from += part;
		n -= part;
	}
}

/* The first message in the ring: its length, and where its first record's bytes
 * are, of which there are *ret_n. 1, or what a receive from the ring returns:
 * -EAGAIN, 0 at the end. -ENODATA: a part of it is missing. */
static ssize_t look_first(struct exi_sock *sk, const char **ret_at,
			  size_t *ret_n, uint32_t *ret_len)
{
	const void *at;
	size_t n = sk->fab->lops->look(sk->fab, &at), unit;

	if (!n) {
		char none;
		ssize_t got = sk->fab->ops->recv(sk->fab, &none, 1, MSG_PEEK);

		if (got <= 0)
			return got;
		n = sk->fab->lops->look(sk->fab, &at); /* it came just now */
	}
	if (n < HEAD)
		return -EPROTO;
	memcpy(ret_len, at, HEAD);
	if (*ret_len > EXI_SEQ_MAX)
		return -EPROTO;
	unit = exi_seq_unit(*ret_len);
	if (n > unit)
		return -EPROTO;
	if (n < unit && sk->fab->rops->unread(sk->fab) < unit)
		return -ENODATA;
	*ret_at = at;
	*ret_n = n;
	return 1;
}

/* Takes the first message: its first n bytes come into m's buffers. */
static bool take(struct exi_sock *sk, const struct msghdr *m, size_t n,
		 size_t unit)
{
	struct room to = { .v = m->msg_iov };
	size_t skip = HEAD;

	for (size_t left = unit, got; left; left -= got) {
		const void *at;
		size_t part;

		got = sk->fab->lops->look(sk->fab, &at);
		if (got <= skip || got > left)
			return false;
		part = got - skip < n ? got - skip : n;
		fill(&to, (const char *)at + skip, part);
		sk->fab->lops->took(sk->fab, got);
		n -= part;
		skip = 0;
	}
	return true;
}

/* The first n bytes of a message, which stays. Its first record has bytes
 * up to `there`. */
static int peek(struct exi_sock *sk, const struct msghdr *m, size_t n,
		const char *at, size_t there)
{
	struct room to = { .v = m->msg_iov };
	char *buf;

	if (HEAD + n <= there) {
		fill(&to, at + HEAD, n);
		return 0;
	}
	buf = malloc(HEAD + n);
	if (!buf)
		return -ENOMEM;
	if (sk->fab->ops->recv(sk->fab, buf, HEAD + n, MSG_PEEK) !=
	    (ssize_t)(HEAD + n)) {
		free(buf);
		return -EPROTO;
	}
	fill(&to, buf + HEAD, n);
	free(buf);
	return 0;
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
	const char *at;
	uint32_t len;
	size_t n, there;
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
	got = look_first(sk, &at, &there, &len);
	if (got == -ENODATA) /* it was published at once: memory is missing */
		return exi_attempt_recv_unfit_locked(sk, h);
	if (got == -EPROTO)
		return invalid_locked(sk, h);
	if (got <= 0)
		return no_message_locked(sk, h, got, left, ret);
	n = len < room ? len : room;
	m->msg_flags = n < len ? MSG_TRUNC : 0;
	m->msg_flags |= flags & MSG_CMSG_CLOEXEC;
	m->msg_controllen = 0;
	if (flags & MSG_PEEK) {
		int err = peek(sk, m, n, at, there);

		if (err)
			return err == -EPROTO ? invalid_locked(sk, h) : err;
	} else {
		if (!take(sk, m, n, exi_seq_unit(len)))
			return invalid_locked(sk, h);
		account_locked(h, len, true);
	}
	return (ssize_t)(flags & MSG_TRUNC ? len : n);
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
