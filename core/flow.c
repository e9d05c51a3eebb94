/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving bytes: the kernel's way when the direction is on TCP, the fabric's
 * when it was switched. One function per direction does a single attempt
 * under the direction's lock (exi_flow_try_send(), exi_flow_try_recv());
 * synchronous calls loop over it with exi_wait(), asynchronous ones queue. */
#include "core/flow_int.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/cancel.h"
#include "core/config.h"
#include "core/family.h"
#include "core/futex.h"
#include "core/latent.h"
#include "core/link.h"
#include "core/log.h"
#include "core/packet.h"
#include "core/parts.h"
#include "core/pieces.h"
#include "core/place.h"
#include "core/queue.h"
#include "core/ready.h"
#include "core/resume.h"
#include "core/service.h"
#include "core/signals.h"
#include "core/switch.h"
#include "core/timeout.h"
#include "core/wait.h"

/* The error that the kernel keeps for the connection, once. */
static int take_so_error(int fd)
{
	int err = 0;
	socklen_t len = sizeof(err);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		return 0;
	return err;
}

static void account(struct exi_half *h, ssize_t n, bool fabric)
{
	__atomic_store_n(&h->bytes, h->bytes + (uint64_t)n, __ATOMIC_RELAXED);
	if (fabric)
		h->fabric_bytes += (uint64_t)n;
}

void exi_flow_account(struct exi_sock *sk, enum exi_dir dir, size_t n)
{
	account(&sk->sh->half[dir], (ssize_t)n, true);
}

/* What is to be said of a direction that is broken. */
static ssize_t tell_broken(struct exi_sock *sk, struct exi_half *h)
{
	uint32_t untold = EXI_BROKEN_UNTOLD;
	int err = atomic_exchange(&h->err, 0);

	if (atomic_compare_exchange_strong(&h->broken, &untold,
					   EXI_BROKEN_TOLD))
		return -ECONNRESET;
	if (err)
		return -err;
	return h == &sk->sh->half[EXI_TX] ? -EPIPE : 0;
}

/* The peer wrote nonsense into its segment. */
ssize_t exi_flow_fabric_failed(struct exi_sock *sk, struct exi_half *h)
{
	exi_link_violation(sk, "a record that cannot be");
	return tell_broken(sk, h);
}

/* The next attempt would take the error that the kernel keeps, which is not for
 * a call that has bytes to tell of: they come first, and until the next call
 * poll(2) and SO_ERROR have it. The lock is held. */
static bool error_waits_locked(struct exi_sock *sk, enum exi_dir dir)
{
	const struct exi_half *h = &sk->sh->half[dir];
	struct pollfd p = { .fd = sk->tcp->fd };
	struct exi_conn *c = sk->tcp;

	EXI_LOCKED(&h->lock);
	if (h->mode == EXI_MODE_RING) {
		if (!atomic_load(&sk->sh->gone) &&
		    !(dir == EXI_RX && atomic_load(&sk->sh->rx_fin)))
			return false;
		c = sk->fab;
	}
	/* What TCP lacks may be in the ring. */
	if (!c || (h->mode == EXI_MODE_BACK && sk->fab) || poll(&p, 1, 0) <= 0)
		return false;
	return (p.revents & POLLERR) && (dir == EXI_TX || !c->ops->unread(c));
}

bool exi_flow_error_waits(int fd, enum exi_dir dir)
{
	struct exi_sock *sk = exi_sock_find(fd);
	struct exi_shared *sh;
	bool ret;

	if (!sk || !exi_sock_lock(sk, fd, dir, &sh))
		return false;
	ret = error_waits_locked(sk, dir);
	exi_half_unlock(&sh->half[dir]);
	return ret;
}

/* --- sending ------------------------------------------------------------ */

static int not_drained(struct exi_sock *sk, ssize_t err)
{
	if (err != -EAGAIN && err != -EINTR)
		exi_place_forsake(sk);
	return (int)err;
}

int exi_flow_drain_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	const void *run;
	size_t len;

	EXI_LOCKED(&h->lock);
	/* Not into what got the number when a plain call closed ours. */
	if (!exi_sock_current(sk, sk->tcp->fd))
		return not_drained(sk, -EBADF);
	while (sk->record_left) {
		ssize_t n = sk->tcp->ops->send(
			sk->tcp, sk->record + EXI_RESUME - sk->record_left,
			sk->record_left, 0);

		if (n < 0)
			return not_drained(sk, n);
		sk->record_left -= (uint32_t)n;
	}
	while ((len = sk->fab->swops->drain(sk->fab, &run)) > 0) {
		ssize_t n = sk->tcp->ops->send(sk->tcp, run, len, 0);

		if (n < 0)
			return not_drained(sk, n);
		sk->fab->swops->drained(sk->fab, (size_t)n);
		exi_place_reap(sk, EXI_TX);
	}
	h->mode = EXI_MODE_TCP;
	/* It had arrived, and does again: at once. */
	exi_switch_push(sk->tcp->fd);
	if (h->lingers)
		setsockopt(sk->tcp->fd, SOL_SOCKET, SO_LINGER, &h->linger,
			   sizeof(h->linger));
	h->lingers = 0;
	if (h->ended && !h->fin) {
		h->fin = 1;
		shutdown(sk->tcp->fd, SHUT_WR);
	}
	return 0;
}

/* Onto the end of what was gathered. */
static int append(char **bytes, size_t *n, const void *more, size_t len)
{
	char *p = len ? realloc(*bytes, *n + len) : *bytes;

	if (!len)
		return 0;
	if (!p)
		return -ENOMEM;
	memcpy(p + *n, more, len);
	*bytes = p;
	*n += len;
	return 0;
}

int exi_flow_owed_locked(struct exi_sock *sk, char **ret, size_t *ret_n)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	char *bytes = NULL;
	const void *run;
	size_t len, n = 0;
	int err = append(&bytes, &n, sk->record + EXI_RESUME - sk->record_left,
			 sk->record_left);

	EXI_LOCKED(&h->lock);
	while (!err && (len = sk->fab->swops->drain(sk->fab, &run)) > 0) {
		err = append(&bytes, &n, run, len);
		if (err)
			break;
		sk->fab->swops->drained(sk->fab, len);
		exi_place_reap(sk, EXI_TX);
	}
	if (err) {
		free(bytes);
		return err;
	}
	sk->record_left = 0;
	h->mode = EXI_MODE_TCP;
	*ret = bytes;
	*ret_n = n;
	return 0;
}

int exi_flow_end_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];

	EXI_LOCKED(&h->lock);
	h->end_wanted = 0;
	if (h->mode == EXI_MODE_RING) {
		/* TCP stays open: after a FIN nothing could be taken back. */
		if (!h->ended && !atomic_load(&sk->sh->gone))
			sk->fab->ops->end(sk->fab);
		__atomic_store_n(&h->ended, 1, __ATOMIC_RELAXED);
		return 0;
	}
	__atomic_store_n(&h->ended, 1, __ATOMIC_RELAXED);
	if (h->mode == EXI_MODE_DRAIN)
		return 0; /* the FIN follows the drain */
	h->fin = 1;
	return sk->tcp->ops->end(sk->tcp);
}

bool exi_flow_bereft_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	struct pollfd p = { .fd = sk->tcp->fd, .events = POLLRDHUP };

	EXI_LOCKED(&h->lock);
	if (h->mode != EXI_MODE_RING || !sk->fab)
		return h->mode == EXI_MODE_TCP;
	/* Another may still have the descriptor, and wait for what is lost. */
	if (!exi_sock_current(sk, p.fd) || poll(&p, 1, 0) <= 0)
		return false;
	h->mode = EXI_MODE_TCP;
	exi_keepalive_settle(sk);
	if (h->ended && !h->fin) {
		h->fin = 1;
		shutdown(p.fd, SHUT_WR);
	}
	return true;
}

void exi_flow_broken(bool quiet)
{
	exi_sock_outlive();
	if (!quiet)
		raise(SIGPIPE);
}

int exi_flow_error(int fd)
{
	struct exi_sock *sk = exi_sock_find(fd);

	return sk && (sk->sh->half[EXI_RX].mode != EXI_MODE_RING ||
		      atomic_load(&sk->sh->gone))
		       ? take_so_error(fd)
		       : 0;
}

/* What is to be said of the direction, once. But what EXS_REQUIRE forbids stays
 * forbidden. */
static int take_err(struct exi_half *h)
{
	int err = atomic_load(&h->err);

	return err == EPROTONOSUPPORT ? err : atomic_exchange(&h->err, 0);
}

/* Why nothing can be sent any more; 0 when it can, or the kernel is to say. */
static int send_refused(struct exi_sock *sk, struct exi_half *h)
{
	int err;

	if (atomic_load(&h->broken))
		return (int)tell_broken(sk, h);
	err = take_err(h);
	/* The kernel has one for both directions: what a receive met, too. */
	if (!err && h->mode == EXI_MODE_TCP && sk->sh->half[EXI_RX].err)
		err = take_err(&sk->sh->half[EXI_RX]);
	if (err)
		return -err;
	/* A process that closed may have said the end on TCP, too. */
	if (__atomic_load_n(&h->ended, __ATOMIC_RELAXED) &&
	    (!h->fin ||
	     (h->mode == EXI_MODE_RING && !atomic_load(&sk->sh->gone))))
		return -EPIPE;
	if (h->mode == EXI_MODE_RING && atomic_load(&sk->sh->gone)) {
		err = take_so_error(sk->tcp->fd);
		return err ? -err : -EPIPE;
	}
	return 0;
}

static ssize_t try_send_tcp(struct exi_sock *sk, struct exi_half *h,
			    const void *buf, size_t len, int flags);

/* n bytes are in the ring, and nobody is there to take them. */
static ssize_t send_unheard(struct exi_sock *sk, struct exi_half *h,
			    const void *buf, size_t len, ssize_t n)
{
	atomic_store(&sk->sh->gone, 1);
	return exi_flow_bereft_locked(sk) ? try_send_tcp(sk, h, buf, len, 0)
					  : n;
}

static inline __attribute__((always_inline)) ssize_t
send_ring(struct exi_sock *sk, struct exi_half *h, const void *buf, size_t len)
{
	ssize_t n;

	if (exi_unlikely(
		    __atomic_load_n(&h->ended, __ATOMIC_RELAXED) | h->broken |
		    (uint32_t)h->err |
		    atomic_load_explicit(&sk->sh->gone, memory_order_relaxed)))
		return atomic_load(&sk->sh->gone) && exi_flow_bereft_locked(sk)
			       ? try_send_tcp(sk, h, buf, len, 0)
			       : send_refused(sk, h);
	n = sk->fab->ops->send(sk->fab, buf, len, 0);
	if (exi_unlikely(atomic_load_explicit(&sk->fab->unheard,
					      memory_order_relaxed)))
		return send_unheard(sk, h, buf, len, n);
	if (exi_likely(n > 0))
		account(h, n, true);
	else if (n == -EPROTO)
		return exi_flow_fabric_failed(sk, h);
	else if (exi_unlikely(n == -ENOBUFS)) {
		exi_switch_leave_locked(sk, EXS_X_REASON_MEMORY);
		return -EAGAIN;
	}
	return n;
}

static ssize_t try_send_ring(struct exi_sock *sk, struct exi_half *h,
			     const void *buf, size_t len)
{
	return send_ring(sk, h, buf, len);
}

/* 0: TCP takes what comes next, or, where the mode is EXI_MODE_RING now, the
 * fabric. -errno. */
static int before_tcp(struct exi_sock *sk, struct exi_half *h, int flags)
{
	int ret = send_refused(sk, h);

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

static ssize_t try_send_tcp(struct exi_sock *sk, struct exi_half *h,
			    const void *buf, size_t len, int flags)
{
	ssize_t n = before_tcp(sk, h, flags);

	if (n)
		return n;
	if (h->mode == EXI_MODE_RING)
		return try_send_ring(sk, h, buf, len);
	n = sk->tcp->ops->send(sk->tcp, buf, len, flags);
	if (n > 0) {
		account(h, n, false);
		exi_link_by_kernel();
	}
	return n;
}

/* Another process of the family has the fabric, and switched since we asked:
 * nothing was sent for us there. */
static bool nowhere(const struct exi_sock *sk, const struct exi_half *h)
{
	return exi_unlikely(!sk->fab) && h->mode != EXI_MODE_TCP &&
	       h->mode != EXI_MODE_BACK;
}

ssize_t exi_flow_try_send(struct exi_sock *sk, struct exi_half *h,
			  const void *buf, size_t len, int flags)
{
	if (nowhere(sk, h))
		return -EREMOTE;
	if (exi_likely(h->mode == EXI_MODE_RING))
		return try_send_ring(sk, h, buf, len);
	return try_send_tcp(sk, h, buf, len, flags);
}

/* Several pieces for the fabric, which takes one buffer: what other threads
 * send does not come between those of a short call. */
static ssize_t try_gathered(struct exi_sock *sk, struct exi_half *h,
			    struct exi_pieces *p)
{
	struct exi_pieces rest = *p;
	size_t len, n = 0;
	ssize_t ret;
	char *buf;
	void *from;

	len = exi_pieces_next(&rest, &from);
	buf = p->n > 1 && p->left <= EXI_PARTS_GATHER ? malloc(p->left) : NULL;
	if (!buf)
		return try_send_ring(sk, h, from, len);
	for (; len; len = exi_pieces_next(&rest, &from)) {
		memcpy(buf + n, from, len);
		n += len;
		exi_pieces_moved(&rest, len);
	}
	ret = try_send_ring(sk, h, buf, n);
	free(buf);
	return ret;
}

/* The same of several pieces. */
static ssize_t try_send_pieces(struct exi_sock *sk, struct exi_half *h,
			       struct exi_pieces *p, int flags)
{
	struct iovec room[EXI_PIECES_COPIED];
	const struct iovec *v;
	void *from;
	ssize_t ret;
	size_t n, len = exi_pieces_next(p, &from);

	if (p->n <= 1)
		return exi_flow_try_send(sk, h, from, len, flags);
	if (nowhere(sk, h))
		return -EREMOTE;
	ret = h->mode == EXI_MODE_RING ? 0 : before_tcp(sk, h, flags);
	if (ret)
		return ret;
	if (h->mode == EXI_MODE_RING)
		return try_gathered(sk, h, p);
	exi_pieces_cut(p, SSIZE_MAX, room, &v, &n);
	ret = sk->tcp->ops->sendv(sk->tcp, v, n, flags);
	if (ret > 0) {
		account(h, ret, false);
		exi_link_by_kernel();
	}
	return ret;
}

/* --- receiving ---------------------------------------------------------- */

void exi_flow_deafen_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	if (!sk->fab || exi_sock_remote(sk))
		return;
	h->deaf_after = h->fabric_bytes + sk->fab->ops->unread(sk->fab);
	h->deaf = sk->fab->ops->over(sk->fab) ? EXI_DEAF_END : EXI_DEAF_CUT;
}

/* The error that a receive on TCP would tell; it tells none after a FIN. */
static int tcp_error(struct exi_sock *sk)
{
	ssize_t n = sk->tcp->ops->recv(sk->tcp, &(char){ 0 }, 1, MSG_PEEK);

	return n >= 0 || n == -EAGAIN || n == -EINTR || n == -ENOTCONN
		       ? 0
		       : (int)-n;
}

/* The ring is empty and nobody writes it any more. */
static ssize_t recv_ended(struct exi_sock *sk, struct exi_half *h)
{
	int err = h->err;

	h->err = 0;
	if (!err && !h->ended)
		err = tcp_error(sk);
	/* What was on its way is lost, and the end was not said. */
	if (!err && !h->ended && !h->fin && exi_sock_remote(sk) &&
	    atomic_load(&sk->sh->gone))
		err = ECONNRESET;
	if (!h->ended)
		h->fin = 1;
	if (!err)
		return 0;
	/* Reset: nothing can be sent either. */
	atomic_store(&sk->sh->gone, 1);
	return -err;
}

/* There is no memory for what comes next: the peer is to send it over TCP. */
static ssize_t recv_unfit(struct exi_sock *sk, struct exi_half *h)
{
	if (!h->leaving) { /* it was not asked to, yet */
		exi_switch_refuse_locked(sk, EXS_X_REASON_MEMORY);
		exi_sock_kick_locked(sk, EXI_RX);
	}
	return -EAGAIN;
}

static inline __attribute__((always_inline)) ssize_t
recv_ring(struct exi_sock *sk, struct exi_half *h, void *buf, size_t len,
	  int flags)
{
	/* Before the look at the ring: what was written before the peer went
	 * is found. */
	uint32_t over =
		atomic_load_explicit(&sk->sh->gone, memory_order_acquire) |
		atomic_load_explicit(&sk->sh->rx_fin, memory_order_acquire);
	ssize_t n;

	if (exi_unlikely(h->broken))
		return tell_broken(sk, h);
	if (exi_unlikely(over && h->deaf && len)) {
		len = exi_half_heard(h, len);
		if (!len && h->deaf == EXI_DEAF_END) {
			h->ended = 1;
			return 0;
		}
		if (!len)
			return recv_ended(sk, h);
	}
	if (exi_unlikely(over))
		flags &=
			~EXI_MSG_POLLED; /* what came before that is read first */
	n = sk->fab->ops->recv(sk->fab, buf, len, flags);
	if (exi_likely(n > 0)) {
		if (!(flags & MSG_PEEK))
			account(h, n, true);
		return n;
	}
	if (n == 0 && len) {
		h->ended = 1;
		return 0;
	}
	if (n == -EAGAIN && over)
		return recv_ended(sk, h);
	if (n == -EPROTO)
		return exi_flow_fabric_failed(sk, h);
	return exi_unlikely(n == -ENOBUFS) ? recv_unfit(sk, h) : n;
}

static ssize_t try_recv_ring(struct exi_sock *sk, struct exi_half *h, void *buf,
			     size_t len, int flags)
{
	return recv_ring(sk, h, buf, len, flags);
}

/* How much of the ring's rest came over TCP that is at its end. The kernel knows,
 * also of what others read who have the descriptor, but for one byte that may be a
 * FIN. Where it may not be asked any more, or another host's bytes are between, it
 * is what was read here. */
static int64_t came_back(struct exi_sock *sk, const struct exi_half *h)
{
	int64_t here = (int64_t)(h->back - h->left), n;

	return !exi_sock_remote(sk) && !exi_switch_came_locked(sk, &n) &&
			       n > here
		       ? n
		       : here;
}

/* The same where the ring cannot be read: the peer died before it had begun, or
 * had sent all, for in between its end is no orderly one. */
static ssize_t unread_end(const struct exi_half *h, ssize_t end)
{
	return atomic_load(&h->untaken) && !end ? -ECONNRESET : end;
}

/* TCP ended while the peer was sending the ring's rest over it: what did not
 * come is still in the ring, behind what did. */
static ssize_t back_to_ring(struct exi_sock *sk, struct exi_half *h, void *buf,
			    size_t len, int flags, ssize_t end)
{
	char skipped[4096];
	int64_t skip = came_back(sk, h);
	ssize_t got;

	if (skip < 0)
		return end ? end : -ECONNRESET; /* TCP bytes are missing */
	while (skip) {
		size_t n = skip < (int64_t)sizeof(skipped) ? (size_t)skip
							   : sizeof(skipped);

		got = sk->fab->ops->recv(sk->fab, skipped, n, 0);
		if (got == -ENOBUFS)
			return unread_end(h, end);
		if (got <= 0)
			return end; /* all came, and more: TCP's own end */
		skip -= got;
	}
	got = sk->fab->ops->recv(sk->fab, skipped, 1, MSG_PEEK);
	if (got == -ENOBUFS)
		return unread_end(h, end);
	if (got <= 0)
		return end; /* all came */
	h->mode = EXI_MODE_RING;
	exi_flow_deafen_locked(sk);
	atomic_store(&sk->sh->rx_fin, 1);
	h->err = end < 0 && end != -EAGAIN ? (int)-end : 0;
	return try_recv_ring(sk, h, buf, len, flags);
}

static ssize_t count_tcp(struct exi_sock *sk, struct exi_half *h, ssize_t n)
{
	account(h, n, false);
	if (h->mode == EXI_MODE_LEFT)
		exi_switch_read_locked(sk, (size_t)n);
	if (h->mode == EXI_MODE_BACK)
		h->back += (uint64_t)n;
	return n;
}

/* n of len bytes were looked at, which lie on TCP: those in the ring follow. */
static ssize_t peek_on(struct exi_sock *sk, struct exi_half *h, char *buf,
		       size_t n, size_t len)
{
	ssize_t more = 0;

	if (h->mode == EXI_MODE_LEFT && n == h->left && n < len && sk->fab)
		more = sk->fab->ops->recv(sk->fab, buf + n, len - n, MSG_PEEK);
	return (ssize_t)n + (more > 0 ? more : 0);
}

/* At most `most` bytes, by one call of the kernel. */
static ssize_t get_tcp(struct exi_sock *sk, struct exi_pieces *p, size_t most,
		       int flags)
{
	struct iovec room[EXI_PIECES_COPIED];
	const struct iovec *v;
	size_t n;
	void *buf;

	n = exi_pieces_next(p, &buf);
	if (exi_likely(p->n <= 1))
		return sk->tcp->ops->recv(sk->tcp, buf, n < most ? n : most,
					  flags);
	exi_pieces_cut(p, most, room, &v, &n);
	return sk->tcp->ops->recvv(sk->tcp, v, n, flags);
}

/* -ESTALE: the link must be read before the end can be told. */
static ssize_t try_recv_tcp(struct exi_sock *sk, struct exi_half *h,
			    struct exi_pieces *p, int flags)
{
	void *buf;
	size_t piece = exi_pieces_next(p, &buf);
	size_t len = p->left, want = len;
	ssize_t n = (ssize_t)len;

	if (h->broken)
		return tell_broken(sk, h);
	if (h->err)
		return -take_err(h);
	if (h->ended)
		return 0;
	if (sk->posted[EXI_RX])
		return -EAGAIN;
	if (h->mode == EXI_MODE_LEFT && len > h->left)
		len = h->left;
	if (exi_unlikely(atomic_load(&h->untaken)) &&
	    h->mode == EXI_MODE_BACK && len)
		n = exi_resume_look_locked(sk, len);
	if (n == -ENODATA)
		return try_recv_ring(sk, h, buf, piece, flags);
	if (n >= 0)
		n = get_tcp(sk, p, h->mode == EXI_MODE_BACK ? (size_t)n : len,
			    flags & ~MSG_WAITALL);
	if (n > 0 && (flags & (MSG_PEEK | MSG_OOB | MSG_TRUNC)) == MSG_PEEK)
		return peek_on(sk, h, buf, (size_t)n, want);
	if (n > 0)
		return flags & (MSG_PEEK | MSG_OOB) ? n : count_tcp(sk, h, n);
	if (n == -EAGAIN && h->mode == EXI_MODE_LEFT) {
		exi_switch_left_locked(sk);
		if (h->mode == EXI_MODE_RING)
			return try_recv_ring(sk, h, buf, piece, flags);
	}
	if (n == -EAGAIN || n == -EINTR || !len || (flags & MSG_OOB))
		return n;
	if (h->broken)
		return tell_broken(sk, h);
	/* A SWITCH that was sent before it may still lie in the link, or, from
	 * another host, be on its way: the service asks. */
	h->end_seen = 1;
	if (n == 0 && exi_resume_early_end_locked(sk))
		return -EAGAIN;
	if (!exi_resume_end_counts_locked(sk)) {
		/* An error is told once by the kernel: kept. */
		h->err = n < 0 ? (int)-n : 0;
		return -ESTALE;
	}
	if (h->mode == EXI_MODE_BACK && !h->fin && sk->fab) {
		n = back_to_ring(sk, h, buf, piece, flags, n);
		if (h->mode == EXI_MODE_RING)
			return n;
	}
	if ((h->mode == EXI_MODE_LEFT || h->resume) && n == 0 && !h->fin)
		n = -ECONNRESET; /* bytes of TCP are missing */
	h->fin = 1;
	return n;
}

/* The last bytes of TCP were read: what follows is in the ring. */
static ssize_t recv_behind(struct exi_sock *sk, struct exi_half *h,
			   struct exi_pieces p, ssize_t n, int flags)
{
	ssize_t more;
	size_t len;
	void *buf;

	exi_pieces_moved(&p, (size_t)n);
	len = exi_pieces_next(&p, &buf);
	more = try_recv_ring(sk, h, buf, len, flags);
	if (more > 0)
		n += more;
	else if (more < 0 && more != -EAGAIN)
		h->err = (int)-more;
	return n;
}

static ssize_t try_recv_pieces(struct exi_sock *sk, struct exi_half *h,
			       struct exi_pieces *p, int flags)
{
	ssize_t n;

	if (nowhere(sk, h))
		return -EREMOTE;
	if (exi_likely(h->mode == EXI_MODE_RING)) {
		void *buf;
		size_t len = exi_pieces_next(p, &buf);

		return try_recv_ring(sk, h, buf, len, flags);
	}
	flags &= ~EXI_MSG_POLLED;
	n = try_recv_tcp(sk, h, p, flags);
	if (n > 0 && n < (ssize_t)p->left && h->mode == EXI_MODE_RING &&
	    sk->fab && !error_waits_locked(sk, EXI_RX))
		n = recv_behind(sk, h, *p, n, flags);
	return n;
}

ssize_t exi_flow_try_recv(struct exi_sock *sk, struct exi_half *h, void *buf,
			  size_t len, int flags)
{
	struct iovec v = { .iov_base = buf, .iov_len = len };
	struct exi_pieces p = { .v = &v, .n = 1, .left = len };

	return try_recv_pieces(sk, h, &p, flags);
}

/* Under the direction's lock; read without it as a hint. */
void exi_flow_count_ops(struct exi_sock *sk, enum exi_dir dir, int change)
{
	uint32_t n =
		atomic_load_explicit(&sk->n_ops[dir], memory_order_relaxed);

	atomic_store_explicit(&sk->n_ops[dir], n + (uint32_t)change,
			      memory_order_release);
}

/* --- asynchronous ------------------------------------------------------- */

static void posted_done(struct exi_xfer *x, ssize_t result);

/* A short run is held back for the operation's next part. */
#define SHORT_RUN (16u << 10)

static int send_flags(const struct exi_op *op)
{
	bool more = op->next < op->n_parts && op->run < SHORT_RUN;

	return (op->flags & ~EXS_SHUT_WR) | (more ? MSG_MORE : 0);
}

/* The same of a message: what goes around it, too. */
static int message_run(struct exi_sock *sk, enum exi_dir dir, struct exi_op *op,
		       struct exi_xfer *x)
{
	ssize_t n;

	x->flags = 0;
	if (dir == EXI_TX) {
		x->len = exi_packet_run(sk, op, &x->buf);
		if (!exi_packet_headed(op) && op->len)
			x->flags = MSG_MORE;
		return 0;
	}
	n = exi_packet_want(sk, op, &x->buf);
	x->len = (size_t)n;
	return n > 0 ? 0 : n ? (int)n : -EAGAIN;
}

/* The direction is on TCP, and it is not known yet that it stays there. */
static bool may_move(const struct exi_sock *sk, const struct exi_half *h)
{
	const struct exi_shared *sh = sk->sh;

	return h->meet_at != UINT64_MAX || atomic_load(&sh->greeting) ||
	       atomic_load_explicit(&sh->reason, memory_order_relaxed) ==
		       EXS_X_REASON_UNDECIDED;
}

/* A transfer of the kernel's holds its direction on TCP until it is over, so one
 * that is long goes in pieces while the direction may move. */
#define POSTED_PIECE ((size_t)64 << 10)
/* The same for a call of the C library that the program made. */
#define NATIVE_PIECE ((size_t)256 << 10)

/* Hands what comes next of the first operation to the kernel. */
static int post_locked(struct exi_sock *sk, enum exi_dir dir, struct exi_op *op)
{
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_xfer *x = &sk->xfer[dir];
	int ret;

	EXI_LOCKED(&h->lock);
	x->buf = op->buf;
	x->len = op->run;
	x->flags = (dir == EXI_TX ? send_flags(op) : op->flags) &
		   ~(MSG_WAITALL | MSG_DONTWAIT);
	ret = sk->framed ? message_run(sk, dir, op, x) : 0;
	if (ret)
		return ret;
	if (dir == EXI_TX && x->len > POSTED_PIECE && may_move(sk, h))
		x->len = POSTED_PIECE;
	if (dir == EXI_RX && h->mode == EXI_MODE_LEFT && x->len > h->left)
		x->len = h->left;
	if (dir == EXI_RX && h->mode == EXI_MODE_BACK) {
		ssize_t n = exi_resume_look_locked(sk, x->len);

		if (n > 0)
			x->len = (size_t)n;
	}
	x->done = posted_done;
	x->conn = sk->tcp;
	x->owner = sk;
	x->dir = dir;
	ret = exi_service_domain(sk->tcp->domain);
	if (ret)
		return ret;
	sk->posted[dir] = op;
	ret = dir == EXI_RX ? sk->tcp->ops->post_recv(sk->tcp, x)
			    : sk->tcp->ops->post_send(sk->tcp, x);
	if (ret)
		sk->posted[dir] = NULL;
	return ret;
}

bool exi_flow_ring_locked(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &sk->sh->half[dir];
	enum exi_wake how = EXI_WAKE_BELL;

	EXI_LOCKED(&h->lock);
	if (!sk->fab || (h->mode != EXI_MODE_RING && !exi_place_lent(sk, dir)))
		return true;
	if (dir == EXI_TX && exi_place_waits(sk, dir))
		how = EXI_WAKE_BELL_REAP;
	if (sk->fab->ops->arm(sk->fab, dir, how))
		return false;
	/* After arming: a peer that left before it is seen here. */
	return !atomic_load(&sk->sh->gone) &&
	       !(dir == EXI_RX && atomic_load(&sk->sh->rx_fin));
}

/* The service goes on with the drain when TCP has room. */
int exi_flow_await_drain_locked(struct exi_sock *sk)
{
	int ret = exi_service_domain(sk->tcp->domain);

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (ret)
		return ret;
	ret = sk->tcp->ops->arm(sk->tcp, EXI_TX, EXI_WAKE_BELL);
	return ret == -EBUSY ? -EAGAIN : ret;
}

/* Somebody will call progress when op can move, or without one what is lent is
 * over: 0. -EAGAIN: now. */
static int expect_locked(struct exi_sock *sk, enum exi_dir dir,
			 struct exi_op *op)
{
	struct exi_half *h = &sk->sh->half[dir];

	EXI_LOCKED(&h->lock);
	if (h->mode == EXI_MODE_RING) {
		const struct exi_op *any =
			exi_container(sk->ops[dir].next, struct exi_op, node);

		if (any->queue &&
		    exi_queue_heat(any->queue, sk, atomic_load(&sk->fd), dir))
			return 0;
		return exi_flow_ring_locked(sk, dir) ? 0 : -EAGAIN;
	}
	if (h->mode == EXI_MODE_DRAIN) {
		int ret = exi_flow_await_drain_locked(sk);

		if (op || ret == 0 || ret == -EAGAIN)
			return ret;
		exi_place_forsake(sk);
		return -EAGAIN;
	}
	if (!op)
		return exi_flow_ring_locked(sk, dir) ? 0 : -EAGAIN;
	/* The service reads on, or TAKEN comes, or what tells of the end. */
	if (dir == EXI_RX && (exi_resume_keeps_locked(sk) ||
			      (atomic_load(&h->untaken) &&
			       exi_sock_remote(sk) && h->back >= h->left)))
		return 0;
	if (sk->tcp->domain->post_from_service && !exi_service_self())
		return exi_service_progress(sk, dir);
	return post_locked(sk, dir, op);
}

/* The last of finishing a message's operation. */
static void finish_message(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_op *op, int err)
{
	bool waits = !op->queue && !op->ours;

	if (exi_packet_over(sk, dir, op, err ? err : op->err) && !sk->closing)
		exi_flow_end_locked(sk);
	if (op->ours)
		free(op);
	else
		exi_op_complete(op);
	if (waits) /* its thread may sleep until bytes can move */
		exi_sock_kick_locked(sk, dir);
}

void exi_flow_finish_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	exi_list_del(&op->node);
	exi_flow_count_ops(sk, dir, -1);
	exi_timeout_begins(sk, dir);
	if ((op->flags & EXS_SHUT_WR) && (err || op->err || op->done < op->len))
		sk->sh->half[dir].end_wanted &= ~EXI_END_AFTER;
	if (exi_unlikely(op->ended)) {
		op->ended(sk, dir, op, err);
		return;
	}
	if (exi_unlikely(sk->framed)) {
		finish_message(sk, dir, op, err);
		return;
	}
	/* What moved before an error is reported; the error comes next, unless
	 * it is the operation's own. */
	op->err = op->done ? op->err : err;
	if (op->done && err && err != ECANCELED && err != EINTR)
		sk->sh->half[dir].err = err;
	exi_op_complete(op);
}

/* n of the want bytes that came next were moved. True: the operation is done. */
bool exi_flow_moved(struct exi_op *op, enum exi_dir dir, size_t n, size_t want)
{
	exi_parts_moved(op, n);
	return op->done == op->len || n == 0 ||
	       (dir == EXI_RX && n < want && !(op->flags & MSG_WAITALL));
}

/* A receive has something, and does not wait for more. */
static bool content(const struct exi_op *op, enum exi_dir dir)
{
	return dir == EXI_RX && op->done && !(op->flags & MSG_WAITALL);
}

/* Short sends that wait together go together: one look at the peer, one call
 * of the kernel, for all of them. */
#define TOGETHER 2048

/* A few bytes, which are the most frequent case, without a call. */
static inline void put(char *to, const char *from, size_t n)
{
	if (n >= 8 && n <= 16) {
		memcpy(to, from, 8);
		memcpy(to + n - 8, from + n - 8, 8);
	} else if (n) {
		memcpy(to, from, n);
	}
}

/* Puts the first few side by side; how many bytes, 0: there is only one. */
static size_t gather(const struct exi_list *ops, char *buf)
{
	const struct exi_list *pos;
	size_t n = 0;
	int count = 0;

	if (ops->next->next == ops)
		return 0;
	exi_list_for_each (pos, ops) {
		const struct exi_op *op =
			exi_container(pos, struct exi_op, node);

		if (op->run > TOGETHER - n || op->parts || op->holds ||
		    op->cancelled || (op->flags & MSG_MORE))
			break;
		put(buf + n, op->buf, op->run);
		n += op->run;
		count++;
	}
	return count > 1 ? n : 0;
}

/* n bytes of theirs were sent: their events come with one lock. */
static void finish_together(struct exi_sock *sk, size_t n)
{
	struct exi_list over = EXI_LIST_INIT(over);
	struct exi_list *pos;
	int count = 0;

	exi_list_for_each (pos, &sk->ops[EXI_TX]) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (!n)
			break;
		if (op->run > n) {
			exi_parts_moved(op, n);
			break;
		}
		n -= op->run;
		op->done += op->run;
		op->run = 0;
		count++;
	}
	if (!count)
		return;
	exi_list_move(&sk->ops[EXI_TX], pos->prev, &over);
	exi_flow_count_ops(sk, EXI_TX, -count);
	exi_timeout_begins(sk, EXI_TX);
	exi_op_complete_all(&over);
}

/* False: there is nothing to send together. *ret is as of an attempt for the
 * first, but that bytes which moved are accounted for. */
static bool send_together(struct exi_sock *sk, struct exi_half *h, ssize_t *ret)
{
	char buf[TOGETHER];
	size_t left;

	/* Of others it is not known that they are streams. */
	if (sk->role == EXI_ROLE_NONE || exi_place_lent(sk, EXI_TX))
		return false;
	left = gather(&sk->ops[EXI_TX], buf);
	if (!left)
		return false;
	*ret = exi_flow_try_send(sk, h, buf, left, 0);
	if (*ret > 0)
		finish_together(sk, (size_t)*ret);
	return true;
}

/* Events come in the order of the calls: where a send before it is lent, it
 * waits for that. */
static void finish_in_turn(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_op *op)
{
	op->sent = exi_place_lent(sk, dir);
	if (!op->sent)
		exi_flow_finish_locked(sk, dir, op, 0);
}

/* Receives are moved in order, and so is what is drained: those that are lent come
 * first. */
static struct exi_op *to_move(struct exi_sock *sk, enum exi_dir dir)
{
	if (exi_likely(!exi_place_lent(sk, dir)))
		return exi_container(sk->ops[dir].next, struct exi_op, node);
	return dir == EXI_RX || sk->sh->half[dir].mode == EXI_MODE_DRAIN
		       ? NULL
		       : exi_place_first(sk, dir);
}

/* What comes next of an operation on several pieces and lies in memory. */
static void pieces_of(const struct exi_op *op,
		      struct iovec room[EXI_PIECES_COPIED],
		      struct exi_pieces *ret)
{
	size_t n = 0, i;

	*ret = (struct exi_pieces){ .v = room, .left = op->run };
	room[n++] = (struct iovec){ .iov_base = op->buf, .iov_len = op->run };
	for (i = op->next; i < op->n_parts && n < EXI_PIECES_COPIED; i++) {
		const struct exi_part *p = &op->parts[i];

		if (p->fd >= 0)
			break;
		room[n++] = (struct iovec){ .iov_base = p->base,
					    .iov_len = p->len };
		ret->left += p->len;
	}
	ret->n = n;
}

/* One attempt for such an operation. *want: how many bytes it was for. */
static __attribute__((noinline)) ssize_t try_parts(struct exi_sock *sk,
						   enum exi_dir dir,
						   const struct exi_op *op,
						   int flags, size_t *want)
{
	struct iovec room[EXI_PIECES_COPIED];
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_pieces p;

	pieces_of(op, room, &p);
	*want = p.left;
	if (dir == EXI_RX)
		return try_recv_pieces(sk, h, &p, flags);
	flags &= ~EXS_SHUT_WR;
	if (op->done + p.left < op->len && p.left < SHORT_RUN)
		flags |= MSG_MORE;
	return try_send_pieces(sk, h, &p, flags);
}

/* Nothing more of it moves: n is why. */
static void give_up_op(struct exi_sock *sk, enum exi_dir dir, struct exi_op *op,
		       ssize_t n)
{
	int err = n == -EREMOTE ? ECONNRESET : (int)-n;

	if (!op->lent) {
		exi_flow_finish_locked(sk, dir, op, err);
		return;
	}
	/* What is under way ends it. */
	op->len = op->done + op->lent;
	op->run = 0;
	sk->sh->half[dir].err = err;
	if (sk->framed)
		op->err = err;
}

/* --- messages ----------------------------------------------------------- */

/* What came is not what a socket of messages sends: nothing is read any more,
 * nor sent. */
static void misread(struct exi_sock *sk, ssize_t err)
{
	exi_warn("descriptor %d: the peer sends %s", sk->tcp->fd,
		 err == -EPROTOTYPE ? "no messages: it is no SOCK_SEQPACKET"
				    : "a message that is too long");
	exi_sock_kick_locked(sk, EXI_RX);
	exi_sock_kick(sk, EXI_TX);
	exi_service_progress(sk, EXI_TX);
}

static ssize_t came(struct exi_sock *sk, struct exi_op *op, size_t n)
{
	int ret = exi_packet_came(sk, op, n);

	if (exi_unlikely(ret == -EPROTOTYPE || ret == -EPROTO))
		misread(sk, ret);
	return ret;
}

/* What did not fit, as far as it is there: what is left of it at the end would
 * be unread. */
static void skip_message(struct exi_sock *sk, struct exi_half *h,
			 struct exi_op *op)
{
	ssize_t n;
	void *to;

	while ((n = exi_packet_skip(sk, &to)) > 0) {
		n = exi_flow_try_recv(sk, h, to, (size_t)n, 0);
		if (n <= 0)
			break; /* for the next receive to find */
		exi_packet_came(sk, op, (size_t)n);
	}
	if (n < 0 && n != -EAGAIN && n != -ESTALE && n != -EREMOTE)
		h->err = (int)-n;
}

/* 1: the operation has its message, or the end. */
static ssize_t recv_message(struct exi_sock *sk, struct exi_half *h,
			    struct exi_op *op)
{
	ssize_t n;
	void *to;

	do {
		n = exi_packet_want(sk, op, &to);
		if (n == 0 && op->begun)
			skip_message(sk, h, op);
		if (n <= 0)
			return n ? n : 1;
		n = exi_flow_try_recv(sk, h, to, (size_t)n, 0);
		if (n < 0)
			return n;
		n = came(sk, op, (size_t)n);
	} while (n == 0);
	return n;
}

/* n bytes went of a message, and of those behind it. */
static ssize_t went(struct exi_sock *sk, struct exi_op *op, size_t n)
{
	struct exi_op *first = op;

	for (;;) {
		struct exi_list *next = op->node.next;

		n -= exi_packet_went(sk, op, n);
		exi_packet_note(sk, op);
		if (!n)
			break;
		finish_in_turn(sk, EXI_TX, op);
		op = exi_container(next, struct exi_op, node);
	}
	if (op == first)
		return exi_packet_sent(op);
	if (exi_packet_sent(op))
		finish_in_turn(sk, EXI_TX, op);
	return 0;
}

/* 1: the message was sent, 0: some of it. */
static ssize_t send_message(struct exi_sock *sk, struct exi_half *h,
			    struct exi_op *op)
{
	char room[EXI_PACKET_ROOM];
	bool more;
	ssize_t n = exi_packet_turn(sk);

	if (!n && exi_parts_wants(op))
		n = exi_parts_read(op);
	if (n)
		return n;
	if (!exi_packet_headed(op)) {
		size_t len = exi_packet_gather(sk, op, room, &more);

		n = exi_flow_try_send(sk, h, room, len, more ? MSG_MORE : 0);
	} else {
		n = exi_flow_try_send(sk, h, op->buf, op->run, 0);
	}
	return n > 0 ? went(sk, op, (size_t)n) : n;
}

static ssize_t move_message(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op)
{
	struct exi_half *h = &sk->sh->half[dir];

	return dir == EXI_RX ? recv_message(sk, h, op)
			     : send_message(sk, h, op);
}

/* The kernel moved n bytes of a message. */
static void posted_message(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_op *op, size_t n)
{
	ssize_t ret = dir == EXI_RX ? came(sk, op, n) : went(sk, op, n);

	if (ret < 0)
		exi_flow_finish_locked(sk, dir, op, (int)-ret);
	else if (ret)
		finish_in_turn(sk, dir, op);
}

/* Of a message that has begun, what came is kept for the next receive; what a
 * call has sent, the library completes; an operation of a queue goes on.
 * False: so it does. */
static bool leave_message(struct exi_sock *sk, enum exi_dir dir,
			  struct exi_op *op)
{
	int err = 0;

	if (dir == EXI_RX && !exi_packet_keep(sk, op))
		return false;
	if (dir == EXI_TX) {
		err = op->queue ? -ENOMEM : exi_packet_rest(op);
		if (err == -ENOMEM)
			return false;
		if (!err) {
			exi_op_complete(op);
			exi_sock_kick_locked(sk, dir);
			return true;
		}
	}
	exi_flow_finish_locked(sk, dir, op, err ? -err : ECANCELED);
	return true;
}

void exi_flow_cancelled_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (exi_likely(!op->begun) || sk->closing)
		exi_flow_finish_locked(sk, dir, op, ECANCELED);
	else if (!leave_message(sk, dir, op))
		op->cancelled = false;
}

static bool mark_passed(const struct exi_half *h)
{
	return __atomic_load_n(&h->bytes, __ATOMIC_RELAXED) >
	       atomic_load_explicit(&h->meet_at, memory_order_relaxed);
}

/* So many bytes of an operation at once, and the service hears what links say. */
#define AT_ONCE ((size_t)1 << 20)

/* An operation has come so far on TCP since it began at `from` bytes: whether the
 * service has something to do first, and then goes on with it. To meet, where it
 * passed a mark, for which no lock of a direction may be held; or, where it is the
 * service that moves so much, to hear that the direction may leave TCP. */
static bool stops_by(struct exi_sock *sk, enum exi_dir dir, uint64_t from)
{
	const struct exi_half *h = &sk->sh->half[dir];

	if (exi_likely(!mark_passed(h)) &&
	    (h->bytes - from < AT_ONCE || !may_move(sk, h) ||
	     !exi_service_self()))
		return false;
	return exi_service_progress(sk, dir) == 0;
}

void exi_flow_meet(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &exi_sock_shared(sk)->half[dir];

	if (exi_likely(!mark_passed(h)))
		return;
	exi_link_meet(sk, atomic_load(&sk->fd));
	/* A meeting is under way, or the end: neither needs a mark. */
	if (mark_passed(h))
		atomic_store(&h->meet_at, UINT64_MAX);
}

/* No operation moves: there is none, or the first one holds all. */
static bool idle(const struct exi_sock *sk, enum exi_dir dir)
{
	const struct exi_list *first = sk->ops[dir].next;

	return first == &sk->ops[dir] ||
	       exi_container(first, struct exi_op, node)->holds;
}

/* The last of what was lent came back. */
void exi_flow_give_back(struct exi_sock *sk)
{
	exi_switch_giveback_locked(sk);
	if (!sk->sh->half[EXI_RX].leaving)
		exi_sock_kick_locked(sk, EXI_RX);
}

static void progress_locked(struct exi_sock *sk, enum exi_dir dir, int flags)
{
	struct exi_half *h = &sk->sh->half[dir];
	uint64_t from = h->bytes;

	EXI_LOCKED(&h->lock);
	while (!exi_list_empty(&sk->ops[dir]) && !sk->posted[dir]) {
		ssize_t n = -EAGAIN;
		struct exi_op *op;
		size_t want = 0;

		if (exi_unlikely(h->mode == EXI_MODE_TCP) &&
		    stops_by(sk, dir, from))
			return;
		if (exi_unlikely(exi_place_lent(sk, dir))) {
			if (h->mode == EXI_MODE_DRAIN)
				exi_flow_drain_locked(sk);
			exi_place_reap(sk, dir);
			if (dir == EXI_RX && h->leaving)
				exi_flow_give_back(sk);
			if (exi_list_empty(&sk->ops[dir]))
				break;
		}
		op = to_move(sk, dir);
		if (op && exi_unlikely(op->holds)) {
			if (!op->ended && !op->finished)
				exi_op_complete(op); /* its thread's turn */
			break;
		}
		if (op && op->cancelled && !op->lent) {
			exi_flow_cancelled_locked(sk, dir, op);
			continue;
		}
		if (op && exi_unlikely(exi_parts_wants(op))) {
			op->err = -exi_parts_read(op);
			if (op->err) {
				give_up_op(sk, dir, op,
					   op->done ? 0 : -op->err);
				continue;
			}
		}
		if (op && dir == EXI_TX &&
		    (!sk->framed || exi_packet_headed(op))) {
			n = exi_place_give(sk, op);
			if (n > 0)
				continue;
			if (n == -EALREADY)
				op = NULL;
			n = -EAGAIN;
		}
		if (op)
			want = op->run;
		if (op && exi_unlikely(sk->framed)) {
			n = move_message(sk, dir, op);
			if (n == 1)
				finish_in_turn(sk, dir, op);
			if (n >= 0)
				continue;
		} else if (op && op->next < op->n_parts &&
			   h->mode != EXI_MODE_RING)
			n = try_parts(sk, dir, op, op->flags | flags, &want);
		else if (op && dir == EXI_RX)
			n = exi_flow_try_recv(sk, h, op->buf, want,
					      op->flags | flags);
		else if (op && !send_together(sk, h, &n))
			n = exi_flow_try_send(sk, h, op->buf, want,
					      send_flags(op));
		else if (n > 0)
			continue;
		if (n == -EAGAIN && op && content(op, dir)) {
			exi_flow_finish_locked(sk, dir, op, 0);
			continue;
		}
		if (n == -EAGAIN && dir == EXI_RX && exi_place_lend(sk))
			continue;
		if (n == -EAGAIN) {
			int ret = expect_locked(sk, dir, op);

			if (ret == 0)
				break;
			if (ret == -EAGAIN)
				continue;
			n = ret;
		}
		if (n == -EINTR)
			continue;
		if (n == -ESTALE && exi_service_progress(sk, dir) == 0)
			return; /* the service reads the link first */
		if (n < 0) {
			give_up_op(sk, dir, op, n);
			continue;
		}
		if (exi_flow_moved(op, dir, (size_t)n, want))
			finish_in_turn(sk, dir, op);
	}
	if (h->end_wanted && exi_list_empty(&sk->ops[dir])) {
		exi_flow_end_locked(sk);
		/* Of both: the service knows what follows. */
		if (atomic_load(&sk->sh->rx_fin))
			(void)exi_service_progress(sk, EXI_TX);
	}
	while (idle(sk, dir) && h->mode == EXI_MODE_DRAIN &&
	       exi_flow_drain_locked(sk) == -EAGAIN &&
	       exi_flow_await_drain_locked(sk) == -EAGAIN)
		;
}

void exi_flow_progress_locked(struct exi_sock *sk, enum exi_dir dir)
{
	progress_locked(sk, dir, 0);
}

void exi_flow_progress_polled_locked(struct exi_sock *sk, enum exi_dir dir)
{
	progress_locked(sk, dir, EXI_MSG_POLLED);
}

void exi_flow_progress(struct exi_sock *sk, enum exi_dir dir)
{
	int fd = atomic_load(&sk->fd);
	struct exi_shared *sh;

	if (fd < 0 || !exi_sock_lock(sk, fd, dir, &sh))
		return;
	exi_flow_progress_locked(sk, dir);
	exi_half_unlock(&sh->half[dir]);
}

void exi_flow_after_recv(struct exi_sock *sk, int fd)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	if (exi_unlikely(
		    __atomic_load_n(&h->bytes, __ATOMIC_RELAXED) >
		    atomic_load_explicit(&h->meet_at, memory_order_relaxed)))
		exi_link_meet(sk, fd);
}

/* The kernel moved what post_locked() gave it. */
static void posted_done(struct exi_xfer *x, ssize_t result)
{
	struct exi_sock *sk = x->owner;
	enum exi_dir dir = x->dir;
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_op *op;

	exi_lock(&h->lock);
	op = sk->posted[dir];
	sk->posted[dir] = NULL;
	if (result > 0) {
		account(h, result, false);
		if (dir == EXI_TX)
			exi_link_by_kernel();
		/* Counted anew: a switch that came meanwhile may have counted
		 * these bytes already. */
		if (dir == EXI_RX && h->mode == EXI_MODE_LEFT)
			exi_switch_left_locked(sk);
		if (dir == EXI_RX && h->mode == EXI_MODE_BACK)
			h->back += (uint64_t)result;
	}
	/* The end is found again, and judged, by the attempt below. */
	if (dir == EXI_RX && result == 0 && (op->len > op->done || sk->framed))
		result = -ECANCELED;
	if (result >= 0 && exi_unlikely(sk->framed))
		posted_message(sk, dir, op, (size_t)result);
	else if (result >= 0 && exi_flow_moved(op, dir, (size_t)result, x->len))
		finish_in_turn(sk, dir, op);
	else if (result < 0 && result != -ECANCELED)
		exi_flow_finish_locked(sk, dir, op, (int)-result);
	else if (op->cancelled)
		exi_flow_cancelled_locked(sk, dir, op);
	exi_flow_progress_locked(sk, dir);
	exi_unlock(&h->lock);
	if (dir == EXI_RX)
		exi_flow_after_recv(sk, atomic_load(&sk->fd));
}

void exi_conn_ready(struct exi_conn *c, enum exi_dir dir)
{
	struct exi_sock *sk = exi_sock_peek(c->fd);

	if (sk && (sk->tcp == c || sk->fab == c))
		exi_flow_progress(sk, dir);
}

/* Plain close(2) bypasses the table, and the number may be another socket's by
 * now: looked at on the first submission after a moment's rest, where bytes
 * would go into a ring. Between hosts a round trip is no rest. */
#define REST_TICKS	  20000
#define REST_TICKS_REMOTE 800000

static uint64_t was_used(struct exi_sock *sk)
{
	uint64_t now = exi_ticks();

	atomic_store_explicit(&sk->used, now, memory_order_relaxed);
	return now;
}

static struct exi_sock *look_anew(struct exi_sock *sk, int fd)
{
	uint64_t last = atomic_load_explicit(&sk->used, memory_order_relaxed);
	uint64_t rest = was_used(sk) - last;
	uint32_t generation;

	if (exi_likely(rest < REST_TICKS) ||
	    (rest < REST_TICKS_REMOTE && exi_sock_remote(sk)))
		return sk;
	generation = atomic_load(&sk->generation);
	if (exi_sock_current(sk, fd))
		return sk;
	exi_sock_forget(sk, fd, generation);
	/* The service may have been first, and is not done: until it is, the
	 * number leads to what it was. */
	while (exi_sock_is(sk, fd) &&
	       atomic_load(&sk->generation) == generation)
		sched_yield();
	return exi_sock_get(fd, &sk) ? NULL : sk;
}

/* The socket that a call on the descriptor is for. */
static inline int look_up(int fd, struct exi_sock **ret)
{
	struct exi_sock *sk = exi_sock_find(fd);

	if (exi_unlikely(!sk || !exi_sock_used_here(sk))) {
		int err = exi_sock_use(fd, ret);

		if (err)
			return err;
		sk = *ret;
	}
	*ret = exi_likely(exi_closes_seen) ? sk : look_anew(sk, fd);
	return exi_likely(*ret) ? 0 : -EBADF;
}

/* The rendezvous must come before the bytes that pass its mark. */
void exi_flow_before_send(struct exi_sock *sk, int fd, size_t len)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	uint64_t at = atomic_load_explicit(&h->meet_at, memory_order_relaxed);

	/* What the end that connected has queued will pass it, too; the other
	 * end only looks whether somebody is there, which each mark is worth
	 * once. */
	if (exi_unlikely(
		    at != UINT64_MAX &&
		    (__atomic_load_n(&h->bytes, __ATOMIC_RELAXED) + len > at ||
		     (sk->role == EXI_ROLE_CONNECT &&
		      atomic_load_explicit(&sk->n_ops[EXI_TX],
					   memory_order_relaxed)))))
		exi_link_meet(sk, fd);
}

int exi_flow_addressed(int fd, struct exi_sock **ret)
{
	int err = look_up(fd, ret);

	if (err)
		return err;
	if (exi_unlikely(exi_family_elsewhere(*ret)))
		exi_family_ask(*ret); /* a failure is told by the attempt */
	return 0;
}

/* Locks the direction, when it takes operations. */
static int enter(struct exi_sock *sk, int fd, enum exi_dir dir,
		 struct exi_shared **ret)
{
	int err;

	if (!exi_sock_lock(sk, fd, dir, ret))
		return -EBADF;
	err = sk->closing				      ? -EBADF
	      : dir == EXI_TX && (*ret)->half[dir].end_wanted ? -EPIPE
							      : 0;
	if (err)
		exi_half_unlock(&(*ret)->half[dir]);
	return err;
}

static void enlist_locked(struct exi_sock *sk, enum exi_dir dir,
			  struct exi_op **ops, int n)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	for (int i = 0; i < n; i++)
		exi_list_add_tail(&sk->ops[dir], &ops[i]->node);
	exi_flow_count_ops(sk, dir, n);
	/* Behind others they wait their turn, which all that is lent has had. */
	if (sk->ops[dir].next == &ops[0]->node) {
		exi_timeout_begins(sk, dir);
		exi_flow_progress_locked(sk, dir);
	} else if (exi_place_lent(sk, dir) && to_move(sk, dir) == ops[0]) {
		exi_flow_progress_locked(sk, dir);
	}
}

static int submit_to(struct exi_sock *sk, struct exi_op **ops, int n)
{
	enum exi_dir dir = exi_op_dir(ops[0]);
	struct exi_shared *sh;
	size_t len = 0;
	int fd = ops[0]->fd; /* an op is the queue's from when it is listed */
	int ret;

	for (int i = 0; i < n; i++) {
		ret = sk->framed ? exi_packet_check(sk, ops[i]) : 0;
		if (ret)
			return ret;
		len += ops[i]->len;
	}
	if (dir == EXI_TX)
		exi_flow_before_send(sk, fd, len);
	ret = enter(sk, fd, dir, &sh);
	if (ret)
		return ret;
	if (ops[0]->flags & EXS_SHUT_WR) /* which comes alone */
		sh->half[dir].end_wanted |= EXI_END_AFTER;
	enlist_locked(sk, dir, ops, n);
	exi_half_unlock(&sh->half[dir]);
	if (dir == EXI_RX)
		exi_flow_after_recv(sk, fd);
	return 0;
}

int exi_flow_submit_all(struct exi_op **ops, int n)
{
	struct exi_sock *sk;
	int ret = exi_flow_addressed(ops[0]->fd, &sk);

	return ret ? ret : submit_to(sk, ops, n);
}

/* Nothing is before what comes now, and the ring may take it. */
static bool straight_to_ring(struct exi_sock *sk, const struct exi_half *h)
{
	return h->mode == EXI_MODE_RING && sk->fab &&
	       exi_list_empty(&sk->ops[EXI_TX]) && !sk->posted[EXI_TX] &&
	       !(__atomic_load_n(&h->ended, __ATOMIC_RELAXED) | h->broken |
		 (uint32_t)h->err |
		 atomic_load_explicit(&sk->sh->gone, memory_order_relaxed));
}

/* The first few sends that are short go side by side, with no more of an
 * operation than its event needs. How many were sent whole, and in *ret_part how
 * many bytes of the next. */
static int send_at_once_locked(struct exi_sock *sk, const exs_x_op_t *o,
			       struct exi_op **ops, int n, size_t *ret_part)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	struct exi_list over = EXI_LIST_INIT(over);
	char together[TOGETHER];
	const char *from = n == 1 ? o->exs_x_buffer : together;
	size_t len = 0;
	ssize_t ret;
	int i;

	EXI_LOCKED(&h->lock);
	for (i = 0; i < n && o[i].exs_x_length <= TOGETHER - len &&
		    !(o[i].exs_x_flags & MSG_MORE);
	     i++) {
		if (n > 1)
			put(together + len, o[i].exs_x_buffer,
			    o[i].exs_x_length);
		len += o[i].exs_x_length;
	}
	ret = len ? try_send_ring(sk, h, from, len) : 0;
	if (ret < 0 && ret != -EAGAIN && ret != -EINTR)
		h->err = (int)-ret; /* the next attempt says it */
	*ret_part = ret > 0 ? (size_t)ret : 0;
	for (i = 0; i < n && *ret_part && o[i].exs_x_length <= *ret_part; i++) {
		exi_op_sent(ops[i], &o[i]);
		exi_list_add_tail(&over, &ops[i]->node);
		*ret_part -= o[i].exs_x_length;
	}
	if (i)
		exi_op_complete_all(&over);
	return i;
}

static void describe_all(struct exi_op **ops, const exs_x_op_t *o, int n)
{
	for (int i = 0; i < n; i++)
		exi_op_describe(ops[i], &o[i]);
}

static int submit_sends(struct exi_sock *sk, const exs_x_op_t *o,
			struct exi_op **ops, int n)
{
	struct exi_shared *sh;
	size_t part = 0, len = 0;
	int sent = 0, ret;

	for (int i = 0; i < n; i++)
		len += o[i].exs_x_length;
	exi_flow_before_send(sk, o->exs_x_socket, len);
	ret = enter(sk, o->exs_x_socket, EXI_TX, &sh);
	if (ret)
		return ret;
	if (straight_to_ring(sk, &sh->half[EXI_TX]))
		sent = send_at_once_locked(sk, o, ops, n, &part);
	if (sent < n) {
		describe_all(ops + sent, o + sent, n - sent);
		if (part)
			exi_parts_moved(ops[sent], part);
		enlist_locked(sk, EXI_TX, ops + sent, n - sent);
	}
	exi_half_unlock(&sh->half[EXI_TX]);
	return 0;
}

int exi_flow_submit_plain(const exs_x_op_t *o, struct exi_op **ops, int n)
{
	struct exi_sock *sk;
	int ret = exi_flow_addressed(o->exs_x_socket, &sk);

	if (ret)
		return ret;
	/* Of others it is not known that they are streams. */
	if (o->exs_x_type == EXS_EVT_SEND && !sk->framed &&
	    sk->role != EXI_ROLE_NONE)
		return submit_sends(sk, o, ops, n);
	describe_all(ops, o, n);
	return submit_to(sk, ops, n);
}

int exi_flow_submit(struct exi_op *op)
{
	return exi_flow_submit_all(&op, 1);
}

/* Which operations are meant. */
struct which {
	bool calls; /* also those of synchronous calls */
	bool any;   /* or of the handle a */
	exs_ahandle_t a;
};

static bool meant(const struct exi_op *op, const struct which *w)
{
	return !op->cancelled && !op->sent && (op->queue || w->calls) &&
	       (w->any || op->ahandle == w->a);
}

static int cancel_some(struct exi_sock *sk, enum exi_dir dir,
		       const struct which *w)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *h = &sh->half[dir];
	struct exi_list *pos, *tmp;
	bool waited = false;
	int n = 0;

	exi_lock(&h->lock);
	/* Acquire: pairs with exi_sock_make(). What is forgotten has none, and
	 * with its lock held no other comes in its place. */
	if (atomic_load_explicit(&sk->fd, memory_order_acquire) < 0 ||
	    exi_sock_shared(sk) != sh) {
		exi_unlock(&h->lock);
		return 0;
	}
	exi_list_for_each_safe (pos, tmp, &sk->ops[dir]) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (!meant(op, w))
			continue;
		n++;
		/* A message that has begun is sent. */
		if (dir == EXI_TX && op->begun && op->queue && !w->calls)
			continue;
		waited = waited || op->waits;
		op->cancelled = true;
		if (op->lent)
			exi_place_recall(sk, dir, op);
		else if (sk->posted[dir] != op)
			exi_flow_cancelled_locked(sk, dir, op);
		else
			sk->tcp->ops->cancel(sk->tcp, &sk->xfer[dir]);
	}
	if (exi_place_lent(sk, dir) || waited)
		exi_flow_progress_locked(sk, dir);
	exi_unlock(&h->lock);
	return n;
}

int exi_flow_cancel(struct exi_sock *sk, enum exi_dir dir, bool any,
		    exs_ahandle_t a)
{
	return cancel_some(sk, dir, &(struct which){ .any = any, .a = a });
}

static bool in_flight(struct exi_sock *sk)
{
	enum exi_dir d;
	bool ret = false;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_lock(&sk->sh->half[d].lock);
		ret = ret || sk->posted[d];
		exi_unlock(&sk->sh->half[d].lock);
	}
	return ret;
}

/* What a peer has to let go of, or to take. */
#define STOP_NS 5000000000u

void exi_flow_stop(struct exi_sock *sk)
{
	const struct which all = { .calls = true, .any = true };

	cancel_some(sk, EXI_RX, &all);
	cancel_some(sk, EXI_TX, &all);
	/* The kernel gives a cancelled transfer back at once or never had it:
	 * this ends. */
	while (in_flight(sk)) {
		struct exi_domain *d = sk->tcp->domain;
		struct pollfd p = { .events = POLLIN };

		p.fd = d->provider->domain_ops->event_fd(d);
		if (d->provider->domain_ops->progress(d) == 0)
			poll(&p, 1, 1); /* or another thread has it */
	}
	exi_place_stop(sk, STOP_NS);
}

/* --- synchronous -------------------------------------------------------- */

bool exi_flow_nonblocking(struct exi_sock *sk, int fd, int flags)
{
	uint32_t was =
		atomic_load_explicit(&sk->blocking, memory_order_relaxed);
	uint32_t known = was & EXI_BLOCKING_MASK;
	int fl;

	if (flags & MSG_DONTWAIT)
		return true;
	if (known == EXI_BLOCKING_YES || known == EXI_BLOCKING_NO)
		return known == EXI_BLOCKING_NO;
	fl = fcntl(fd, F_GETFL);
	/* Unless a change came meanwhile. */
	if (fl >= 0 && exi_closes_seen && known == EXI_BLOCKING_ASK)
		atomic_compare_exchange_strong(
			&sk->blocking, &was,
			was | (fl & O_NONBLOCK ? EXI_BLOCKING_NO
					       : EXI_BLOCKING_YES));
	return fl >= 0 && (fl & O_NONBLOCK);
}

/* When the wait must end by the socket's own time-out; 0: never. */
uint64_t exi_flow_deadline(struct exi_sock *sk, int fd, enum exi_dir dir)
{
	int option = dir == EXI_RX ? SO_RCVTIMEO : SO_SNDTIMEO;
	struct timeval tv = { 0 };
	socklen_t len = sizeof(tv);

	if (exi_unlikely(atomic_load(&sk->sh->no_time) & 1u << dir))
		return 1;
	if (getsockopt(fd, SOL_SOCKET, option, &tv, &len) < 0 ||
	    (tv.tv_sec == 0 && tv.tv_usec == 0))
		return 0;
	return exi_now_ns() + (uint64_t)tv.tv_sec * 1000000000u +
	       (uint64_t)tv.tv_usec * 1000u;
}

/* Takes the lock for the next attempt; a look ends. */
bool exi_flow_lock_half(struct exi_sock *sk, int fd, enum exi_dir dir,
			struct exi_flow_patience *p, struct exi_shared **ret)
{
	struct exi_half *h;

	if (!p->look.on)
		return exi_sock_lock(sk, fd, dir, ret);
	*ret = sk->sh;
	h = &sk->sh->half[dir];
	exi_lock(&h->lock);
	exi_look_end(sk, dir, &p->look);
	if (exi_likely(exi_sock_is(sk, fd)))
		return true;
	exi_half_unlock(h);
	return false;
}

/* Spinning comes before the system calls that tell whether the call may wait: they
 * take longer than most replies. What they said last decides whether to spin;
 * what they say now, whether to sleep. */
static bool may_wait(const struct exi_sock *sk, int flags)
{
	return !(flags & MSG_DONTWAIT) &&
	       atomic_load_explicit(&sk->blocks, memory_order_relaxed);
}

static void begin_waiting(struct exi_flow_patience *p)
{
	if (!p->begun)
		exi_signals_begin();
	p->begun = true;
}

/* An attempt found nothing. */
void exi_flow_look_locked(struct exi_sock *sk, enum exi_dir dir, int flags,
			  struct exi_flow_patience *p)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (p->spun || !may_wait(sk, flags))
		return;
	begin_waiting(p);
	exi_look_begin(sk, dir, &p->look);
}

/* Who waits for room tells what it has read: the peer may wait for just that, as
 * two do that send much before they read. Who has the lock reads, and will. */
static void tell_taken(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	if (!exi_trylock(&rx->lock))
		return;
	if (rx->mode == EXI_MODE_RING && sk->fab)
		sk->fab->ops->full(sk->fab);
	exi_unlock(&rx->lock);
}

bool (*exi_flow_no_room)(struct exi_sock *sk, int fd);

static int may_not_wait(struct exi_sock *sk, int fd, enum exi_dir dir)
{
	return dir == EXI_TX && exi_flow_no_room && exi_flow_no_room(sk, fd)
		       ? 0
		       : -EAGAIN;
}

/* seen: bytes that lie there and are not enough. */
int exi_flow_be_patient(struct exi_sock *sk, int fd, enum exi_dir dir,
			int flags, struct exi_flow_patience *p, size_t seen)
{
	int ret;

	if (flags & MSG_DONTWAIT)
		return may_not_wait(sk, fd, dir);
	if (p->look.on) {
		exi_look_spin(sk, dir, &p->look);
		p->spun = !p->look.hit;
		if (!exi_closes_seen) /* a call that spins is no rest */
			was_used(sk);
		return 0;
	}
	p->spun = false;
	if (!p->known) {
		bool blocks = !exi_flow_nonblocking(sk, fd, flags);

		if (atomic_load(&sk->blocks) != blocks)
			atomic_store(&sk->blocks, blocks);
		if (!blocks)
			return may_not_wait(sk, fd, dir);
		p->deadline = exi_flow_deadline(sk, fd, dir);
		p->known = true;
	}
	begin_waiting(p);
	if (dir == EXI_TX)
		tell_taken(sk);
	if (exi_signals_came(!p->deadline))
		return -EINTR;
	ret = seen ? exi_wait_more(sk, fd, seen, p->deadline)
		   : exi_wait(sk, fd, dir, p->deadline);
	return ret == -ETIMEDOUT ? -EAGAIN : ret;
}

/* Operations are queued before us: take a place behind them. */
static ssize_t in_turn(int fd, int type, void *buf, size_t len, int flags)
{
	struct exi_op op = { .type = type,
			     .fd = fd,
			     .buf = buf,
			     .run = len,
			     .len = len,
			     .flags = flags };
	enum exi_dir dir = exi_op_dir(&op);
	struct exi_word w = { .addr = (const uint32_t *)&op.finished };
	struct exi_sock *sk = exi_sock_find(fd);
	int ret;

	if (sk && exi_flow_nonblocking(sk, fd, flags))
		return -EAGAIN;
	exi_list_init(&op.node);
	ret = exi_flow_submit(&op);
	if (ret)
		return ret;
	while (!atomic_load_explicit(&op.finished, memory_order_acquire)) {
		ret = exi_futex_wait(&w, 1, NULL);
		if (ret == -EINTR && sk) {
			struct exi_half *h = &sk->sh->half[dir];

			exi_lock(&h->lock);
			if (!op.finished && sk->posted[dir] != &op)
				exi_flow_finish_locked(sk, dir, &op, EINTR);
			exi_unlock(&h->lock);
		}
	}
	return op.err ? -op.err : (ssize_t)op.done;
}

/* A synchronous call on a message. Its operation is in the list only while
 * others wait before it, or while it is within the message: then those that
 * come after it do. */
struct message {
	struct exi_op *op;
	struct exi_sock *sk;
	enum exi_dir dir;
	bool listed;
	bool follows; /* others move it */
	struct exi_flow_patience p;
};

static void list_message_locked(struct message *m)
{
	EXI_LOCKED(&m->sk->sh->half[m->dir].lock);
	exi_list_add_tail(&m->sk->ops[m->dir], &m->op->node);
	exi_flow_count_ops(m->sk, m->dir, 1);
	if (m->sk->ops[m->dir].next == &m->op->node)
		exi_timeout_begins(m->sk, m->dir);
	m->listed = true;
}

static void end_message_locked(struct message *m, int err)
{
	EXI_LOCKED(&m->sk->sh->half[m->dir].lock);
	if (m->listed)
		exi_flow_finish_locked(m->sk, m->dir, m->op, err);
	else if (exi_packet_over(m->sk, m->dir, m->op, err))
		exi_flow_end_locked(m->sk);
}

static ssize_t try_message_locked(struct message *m)
{
	ssize_t n;

	EXI_LOCKED(&m->sk->sh->half[m->dir].lock);
	if (m->op->finished)
		return 1;
	if (!m->listed && !exi_list_empty(&m->sk->ops[m->dir])) {
		m->follows = true;
		list_message_locked(m);
	}
	if (m->follows || m->sk->posted[m->dir])
		return -EAGAIN;
	do
		n = move_message(m->sk, m->dir, m->op);
	while (n == 0);
	if (n == -EAGAIN) {
		if (!m->listed && m->op->begun)
			list_message_locked(m);
		exi_flow_look_locked(m->sk, m->dir, m->op->flags, &m->p);
	} else if (n > 0 || (n != -ESTALE && n != -EREMOTE && n != -EINTR)) {
		end_message_locked(m, n < 0 ? (int)-n : 0);
		n = 1;
	}
	return n;
}

/* 1: it is over, and the operation has the result. */
static ssize_t try_message(struct message *m)
{
	struct exi_shared *sh;
	ssize_t n;

	if (!exi_flow_lock_half(m->sk, m->op->fd, m->dir, &m->p, &sh))
		return m->listed ? 1 : -EBADF;
	n = try_message_locked(m);
	if (n == 1 && m->listed)
		exi_flow_progress_locked(m->sk, m->dir);
	exi_half_unlock(&sh->half[m->dir]);
	return n;
}

static bool over(const struct message *m)
{
	return atomic_load_explicit(&m->op->finished, memory_order_acquire);
}

static int await_message(const struct message *m)
{
	struct exi_word w = { .addr = (const uint32_t *)&m->op->finished };
	uint64_t end = exi_flow_deadline(m->sk, m->op->fd, m->dir);
	struct timespec till = exi_ns_timespec(end);
	int ret = 0;

	if (exi_flow_nonblocking(m->sk, m->op->fd, m->op->flags))
		return -EAGAIN;
	while (!over(m) && ret == 0)
		ret = exi_futex_wait(&w, 1, end ? &till : NULL);
	return over(m) ? 0 : ret == -ETIMEDOUT ? -EAGAIN : ret;
}

/* The call ends before its message: err is why. */
static void quit_message(struct message *m, int err)
{
	struct exi_half *h = &m->sk->sh->half[m->dir];
	struct exi_op *op = m->op;
	struct exi_word w = { .addr = (const uint32_t *)&op->finished };

	if (!m->listed) {
		op->err = err;
		return;
	}
	exi_lock(&h->lock);
	if (!op->finished) {
		op->cancelled = true;
		if (m->sk->posted[m->dir] == op)
			m->sk->tcp->ops->cancel(m->sk->tcp,
						&m->sk->xfer[m->dir]);
		else
			exi_flow_cancelled_locked(m->sk, m->dir, op);
		exi_flow_progress_locked(m->sk, m->dir);
	}
	exi_unlock(&h->lock);
	while (!over(m))
		exi_futex_wait(&w, 1, NULL);
	if (op->err == ECANCELED)
		op->err = err;
}

/* The thread is cancelled: its stack goes. */
static void message_cancelled(void *arg)
{
	quit_message(arg, ECANCELED);
}

static ssize_t wait_message(struct message *m)
{
	struct exi_rest ends;
	ssize_t ret;

	exi_rest_begin(&ends, message_cancelled, m);
	ret = m->follows ? await_message(m)
			 : exi_flow_be_patient(m->sk, m->op->fd, m->dir,
					       m->op->flags, &m->p, 0);
	exi_rest_over(&ends, false);
	return ret;
}

static void move_whole(struct message *m)
{
	ssize_t n;

	while ((n = try_message(m)) != 1) {
		if (n == -ESTALE) {
			exi_link_read(m->sk);
			continue;
		}
		if (n == -EREMOTE) {
			exi_family_ask(m->sk);
			continue;
		}
		if (n == -EAGAIN)
			n = wait_message(m);
		if (n) {
			quit_message(m, (int)-n);
			return;
		}
	}
}

ssize_t exi_flow_message(struct exi_op *op)
{
	struct message m = { .op = op, .dir = exi_op_dir(op) };
	bool quiet = op->flags & MSG_NOSIGNAL;
	int fd = op->fd;
	int ret = exi_flow_addressed(fd, &m.sk);

	if (ret)
		return ret;
	if (!m.sk->framed || m.sk->closing)
		return -EBADF;
	ret = exi_packet_check(m.sk, op);
	if (ret)
		return ret;
	exi_list_init(&op->node);
	if (m.dir == EXI_TX)
		exi_flow_before_send(m.sk, fd, op->len);
	move_whole(&m);
	if (op->err == EPIPE && m.dir == EXI_TX)
		exi_flow_broken(quiet);
	if (m.dir == EXI_RX && !op->err && !(op->event_flags & MSG_EOR))
		exi_link_ended(m.sk, fd);
	if (m.dir == EXI_RX)
		exi_flow_after_recv(m.sk, fd);
	return op->err ? -op->err : (ssize_t)op->done;
}

/* The same of one buffer. */
static ssize_t one_message(int type, int fd, void *buf, size_t len, int flags)
{
	struct exi_op op = { .type = type,
			     .fd = fd,
			     .buf = buf,
			     .run = len,
			     .len = len,
			     .flags = flags };

	return exi_flow_message(&op);
}

/* A call that did not wait, or not long enough, was told that its message is
 * sent. */
bool exi_flow_flush(struct exi_sock *sk, uint64_t deadline)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	bool left = true;

	while (left && exi_now_ns() < deadline) {
		exi_lock(&h->lock);
		exi_flow_progress_locked(sk, EXI_TX);
		left = !exi_list_empty(&sk->ops[EXI_TX]) &&
		       exi_container(sk->ops[EXI_TX].next, struct exi_op, node)
			       ->ours;
		exi_unlock(&h->lock);
		if (left)
			poll(NULL, 0, 1); /* the service moves it, too */
	}
	if (left)
		exi_warn("descriptor %d: closed within a message that the "
			 "peer did not read",
			 atomic_load(&sk->fd));
	return !left;
}

/* --- synchronous, without a copy ---------------------------------------- */

/* It was taken out, and what is left of it moves as any other call's; or, told
 * why, it ends soon. */
static bool leave_locked(struct exi_sock *sk, struct exi_op *op, int err)
{
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (op->finished || sk->posted[EXI_TX] == op)
		return false;
	if (op->lent) {
		if (err)
			exi_place_recall(sk, EXI_TX, op);
		return false;
	}
	if (op->waits && !err)
		return false;
	exi_list_del(&op->node);
	exi_flow_count_ops(sk, EXI_TX, -1);
	exi_flow_progress_locked(sk, EXI_TX);
	return true;
}

/* Its bytes are taken from where they lie while the peer has places for them.
 * The socket may be closed meanwhile: that finishes it. */
static int await_whole(struct exi_sock *sk, int fd, struct exi_op *op,
		       uint64_t deadline)
{
	struct exi_word w = { .addr = (const uint32_t *)&op->finished };
	struct timespec until = exi_ns_timespec(deadline);
	struct exi_shared *sh;
	int err = 0;

	while (!atomic_load_explicit(&op->finished, memory_order_acquire)) {
		if (exi_sock_lock(sk, fd, EXI_TX, &sh)) {
			bool left = leave_locked(sk, op, err);

			exi_half_unlock(&sh->half[EXI_TX]);
			if (left)
				return err;
		}
		if (err) /* soon, and it is too late for others */
			exi_futex_wait(&w, 1, NULL);
		else
			err = exi_futex_wait(&w, 1, deadline ? &until : NULL);
	}
	return err;
}

/* Worth it, and the peer has posted receives. */
static bool may_go_whole(struct exi_sock *sk, int fd, size_t len, int flags)
{
	return len >= exi_config()->zcopy_threshold && exi_place_welcome(sk) &&
	       !exi_flow_nonblocking(sk, fd, flags);
}

/* A large blocking send, as an operation. *done: what it moved. 0: the rest
 * moves as any other call's. */
static int send_whole(struct exi_sock *sk, int fd, const void *buf, size_t len,
		      int flags, struct exi_region *region, size_t *done)
{
	struct exi_op op = { .type = EXS_EVT_SEND,
			     .fd = fd,
			     .region = region,
			     .buf = (void *)(uintptr_t)buf,
			     .run = len,
			     .len = len,
			     .flags = flags,
			     .whole = true };
	int ret;

	exi_list_init(&op.node);
	ret = exi_flow_submit(&op);
	if (ret)
		return ret;
	ret = await_whole(sk, fd, &op, exi_flow_deadline(sk, fd, EXI_TX));
	*done += op.done;
	return op.err ? -op.err : ret == -ETIMEDOUT ? -EAGAIN : ret;
}

/* Urgent data is TCP's: the direction goes back to it and stays. A silent peer's
 * connection is reset, unless it is there, and the send goes on. */
static int before_urgent(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	bool bereft;
	int ret;

	exi_link_ended(sk, fd);
	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return -EBADF;
	sh->half[EXI_TX].urgent = 1;
	bereft = atomic_load(&sh->gone) && exi_flow_bereft_locked(sk);
	exi_half_unlock(&sh->half[EXI_TX]);
	if (bereft) /* what it left unread stays where it is */
		return 0;
	ret = exi_switch_down(sk, fd, EXS_X_REASON_URGENT,
			      exi_switch_patience(sk, NULL));
	if (ret != -ETIMEDOUT)
		return ret;
	if (!exi_link_part(sk))
		exi_link_unanswered(sk);
	return 0;
}

/* What most calls find: a stream on a fabric, and nobody who is to be asked or
 * to go first. Its direction is locked then; null: the long way. */
static inline struct exi_shared *enter_ring(struct exi_sock *sk, int fd,
					    enum exi_dir dir, size_t len)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *h = &sh->half[dir];

	/* Without the lock: a hint, which spares others to take it twice. */
	if (h->mode != EXI_MODE_RING || !exi_sock_lock(sk, fd, dir, &sh))
		return NULL;
	if (exi_likely(h->mode == EXI_MODE_RING && sk->fab &&
		       exi_list_empty(&sk->ops[dir]) && !sk->framed &&
		       h->meet_at == UINT64_MAX &&
		       !(dir == EXI_TX && sk->fab->pops &&
			 len >= exi_config()->zcopy_threshold)))
		return sh;
	exi_half_unlock(h);
	return NULL;
}

static ssize_t send_failed(ssize_t n, int flags)
{
	if (n == -EPIPE)
		exi_flow_broken(flags & MSG_NOSIGNAL);
	return n;
}

/* A thread asleep in the kernel's own call costs nothing more than without
 * the library; the direction is not switched while one is there. */
struct bare {
	struct exi_half *h;
	bool counts; /* what came */
	ssize_t n;
	bool go;
};

static void bare_ends(void *arg)
{
	struct bare *b = arg;
	struct exi_half *h = b->h;

	exi_lock(&h->lock);
	if (h->bare) /* or the socket is gone, and this is another's */
		h->bare--;
	if (b->n > 0 && b->counts)
		account(h, b->n, false);
	else if (b->n == 0 && b->counts)
		h->fin = 1;
	b->go = h->bare == 0;
	exi_unlock(&h->lock);
}

/* A call that waits in the kernel for all of its bytes is given so many at most:
 * a fabric may be met meanwhile. */
#define BARE_MAX ((size_t)1 << 20)

/* The kernel's own call does all that this one is to do, its waits and their ends
 * included. The lock is held. */
static bool kernel_sends(struct exi_sock *sk, struct exi_half *h, int flags)
{
	return h->mode == EXI_MODE_TCP && !(flags & MSG_OOB) &&
	       !sk->posted[EXI_TX] && !exi_switch_wanted(sk->sh) &&
	       !__atomic_load_n(&h->ended, __ATOMIC_RELAXED) &&
	       !atomic_load(&h->broken) && !h->err && !sk->sh->half[EXI_RX].err;
}

/* *ret_len: the bytes that the kernel was given; with fewer moved the call is
 * over. The lock is held, and let go. */
static ssize_t bare_send(struct exi_sock *sk, struct exi_half *h, int fd,
			 struct exi_pieces *p, int flags, size_t *ret_len)
{
	struct bare b = { .h = h, .counts = p->left > 0, .n = -ECANCELED };
	struct iovec room[EXI_PIECES_COPIED];
	struct msghdr m = { 0 };
	struct exi_rest ends;
	void *buf;
	size_t len = exi_pieces_next(p, &buf);
	int err = sk->tcp->ops->error(sk->tcp);

	if (err) {
		exi_half_unlock(h);
		*ret_len = 1;
		return -err;
	}
	if (p->n > 1)
		len = exi_pieces_cut(p, BARE_MAX, room,
				     (const struct iovec **)&m.msg_iov,
				     &m.msg_iovlen);
	else if (len > BARE_MAX)
		len = BARE_MAX;
	*ret_len = len;
	h->bare++;
	exi_unlock(&h->lock);
	exi_rest_begin(&ends, bare_ends, &b);
	exi_cancel_rest();
	b.n = m.msg_iovlen ? sendmsg(fd, &m, flags | MSG_NOSIGNAL)
			   : send(fd, buf, len, flags | MSG_NOSIGNAL);
	if (b.n < 0)
		b.n = -errno;
	else
		exi_link_by_kernel();
	exi_cancel_rested();
	exi_rest_over(&ends, true);
	return b.n;
}

/* The long way of a send that did so much. */
static __attribute__((noinline)) ssize_t
send_on(struct exi_sock *sk, int fd, struct exi_pieces *from, int flags,
	struct exi_region *region, size_t done)
{
	const char *tried = NULL; /* a piece to be taken from where it lies */
	struct exi_flow_patience p = { 0 };
	struct exi_shared *sh;
	ssize_t n;

	for (;;) {
		struct exi_half *h;
		size_t len, moved = 0;
		void *buf;

		if (!exi_flow_lock_half(sk, fd, EXI_TX, &p, &sh))
			return done ? (ssize_t)done : -EBADF;
		h = &sh->half[EXI_TX];
		len = exi_pieces_next(from, &buf);
		if (exi_unlikely(!exi_list_empty(&sk->ops[EXI_TX]))) {
			exi_half_unlock(h);
			n = in_turn(fd, EXS_EVT_SEND, buf, len, flags);
			if (n < (ssize_t)len || from->left == len)
				break;
			done += len;
			exi_pieces_moved(from, len);
			continue;
		}
		if (exi_unlikely(sk->fab && sk->fab->pops) &&
		    tried != (char *)buf - from->at &&
		    may_go_whole(sk, fd, len, flags)) {
			exi_half_unlock(h);
			tried = (char *)buf - from->at;
			n = send_whole(sk, fd, buf, len, flags, region, &moved);
			done += moved;
			exi_pieces_moved(from, moved);
			if (n || !from->left)
				break;
			continue;
		}
		if (exi_unlikely(done) && error_waits_locked(sk, EXI_TX)) {
			exi_half_unlock(h);
			return (ssize_t)done;
		}
		if (kernel_sends(sk, h, flags)) {
			n = bare_send(sk, h, fd, from, flags, &len);
			if (n > 0)
				exi_pieces_moved(from, (size_t)n);
			if (n < (ssize_t)len || !from->left)
				break; /* it has waited */
			done += len;
			/* What goes next, not all: a mark is worth a look when
			 * the bytes pass it. */
			exi_flow_before_send(sk, fd,
					     from->left < BARE_MAX ? from->left
								   : BARE_MAX);
			continue;
		}
		n = try_send_pieces(sk, h, from, flags);
		if (n == -EAGAIN)
			exi_flow_look_locked(sk, EXI_TX, flags, &p);
		exi_half_unlock(h);
		if (n >= 0) {
			done += (size_t)n;
			exi_pieces_moved(from, (size_t)n);
			if (exi_likely(!from->left))
				return (ssize_t)done;
			exi_flow_before_send(sk, fd, 1);
			continue;
		}
		if (n == -EREMOTE) {
			exi_family_ask(sk);
			continue;
		}
		if (n != -EAGAIN)
			break;
		n = exi_flow_be_patient(sk, fd, EXI_TX, flags, &p, 0);
		if (n)
			break;
	}
	if (n > 0)
		done += (size_t)n;
	return done ? (ssize_t)done : send_failed(n, flags);
}

static ssize_t send_rest(struct exi_sock *sk, int fd, const void *buf,
			 size_t len, int flags, struct exi_region *region,
			 size_t done)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct exi_pieces p = {
		.v = &v, .n = 1, .at = done, .left = len - done
	};

	return send_on(sk, fd, &p, flags, region, done);
}

static int before_long_way(struct exi_sock *sk, int fd, size_t len, int flags)
{
	int ret = exi_unlikely(flags & MSG_OOB) ? before_urgent(sk, fd) : 0;

	if (ret)
		return ret;
	if (exi_unlikely(exi_family_elsewhere(sk)))
		exi_family_ask(sk); /* a failure is told by the attempt */
	exi_flow_before_send(sk, fd, len);
	return 0;
}

ssize_t exi_flow_send_from(int fd, const void *buf, size_t len, int flags,
			   struct exi_region *region)
{
	struct exi_shared *sh = NULL;
	struct exi_sock *sk;
	ssize_t n;
	int ret = look_up(fd, &sk);

	if (exi_unlikely(ret))
		return ret;
	if (exi_likely(!(flags & MSG_OOB)))
		sh = enter_ring(sk, fd, EXI_TX, len);
	if (exi_likely(sh)) {
		n = send_ring(sk, &sh->half[EXI_TX], buf, len);
		exi_half_unlock(&sh->half[EXI_TX]);
		if (exi_likely(n == (ssize_t)len))
			return n;
		if (n < 0 && n != -EAGAIN)
			return send_failed(n, flags);
		return send_rest(sk, fd, buf, len, flags, region,
				 n > 0 ? (size_t)n : 0);
	}
	if (exi_unlikely(sk->framed))
		return one_message(EXS_EVT_SEND, fd, (void *)(uintptr_t)buf,
				   len, flags);
	ret = before_long_way(sk, fd, len, flags);
	return ret ? ret : send_rest(sk, fd, buf, len, flags, region, 0);
}

ssize_t exi_flow_sendv(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags)
{
	struct exi_pieces p = { .v = v, .n = n, .left = bytes };
	struct exi_sock *sk;
	int ret = look_up(fd, &sk);

	if (!ret)
		ret = sk->framed ? -EBADF
				 : before_long_way(sk, fd, bytes, flags);
	return ret ? ret : send_on(sk, fd, &p, flags, NULL, 0);
}

bool exi_flow_on_tcp(int fd, enum exi_dir dir)
{
	struct exi_sock *sk = exi_sock_find(fd);

	return sk && exi_sock_shared(sk)->half[dir].mode != EXI_MODE_RING;
}

ssize_t exi_flow_send(int fd, const void *buf, size_t len, int flags)
{
	return exi_flow_send_from(fd, buf, len, flags, NULL);
}

struct exi_half *exi_flow_native_send(int fd, size_t *len)
{
	struct exi_half *h = NULL;
	struct exi_shared *sh;
	struct exi_sock *sk;
	size_t piece;

	if (exi_sock_use(fd, &sk))
		return NULL;
	if (sk->framed)
		return NULL;
	piece = *len < NATIVE_PIECE ? *len : NATIVE_PIECE;
	exi_flow_before_send(sk, fd, piece);
	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return NULL;
	if (sh->half[EXI_TX].mode == EXI_MODE_TCP &&
	    exi_list_empty(&sk->ops[EXI_TX]) && !sh->half[EXI_TX].ended &&
	    !exi_switch_wanted(sh)) {
		h = &sh->half[EXI_TX];
		h->bare++;
		if (*len > NATIVE_PIECE && may_move(sk, h))
			*len = NATIVE_PIECE;
	}
	exi_half_unlock(&sh->half[EXI_TX]);
	return h;
}

void exi_flow_native_sent(struct exi_half *h, ssize_t moved)
{
	exi_lock(&h->lock);
	if (h->bare) /* or the socket is gone, and this is another's */
		h->bare--;
	if (moved > 0)
		account(h, moved, false);
	exi_half_unlock(h);
}

/* A call that began when the connection was latent ended, and it is no more. */
void exi_flow_latent_over(struct exi_sock *sk, const struct exi_latent_call *c,
			  ssize_t n)
{
	struct exi_shared *sh;
	struct exi_half *h;
	bool go;

	if (!exi_sock_lock(sk, c->fd, c->dir, &sh))
		return;
	h = &sh->half[c->dir];
	if (sk->latent_life != c->life) { /* another's; ours was closed */
		exi_half_unlock(h);
		return;
	}
	if (h->bare)
		h->bare--;
	if (n > 0)
		account(h, n, false);
	else if (n == 0 && c->dir == EXI_RX)
		h->fin = 1;
	go = h->bare == 0;
	exi_half_unlock(h);
	if (c->dir == EXI_TX)
		return;
	if (go && atomic_load(&sh->greeting))
		exi_link_go(sk);
	if (n == 0)
		exi_link_ended(sk, c->fd);
	exi_flow_after_recv(sk, c->fd);
}

/* It has moved enough. */
void exi_flow_latent_woke(int fd)
{
	struct exi_sock *sk = exi_sock_wake(fd);

	if (sk)
		exi_flow_after_recv(sk, fd);
}

/* What came after bytes that are told first: the kernel told it once, the next
 * call tells it. */
static void keep_error(struct exi_sock *sk, int fd, enum exi_dir dir, int err)
{
	struct exi_shared *sh;

	if (err == EAGAIN || err == EINTR || err == EBADF ||
	    !exi_sock_lock(sk, fd, dir, &sh))
		return;
	sh->half[dir].err = err;
	exi_half_unlock(&sh->half[dir]);
}

static ssize_t bare_recv(struct exi_sock *sk, struct exi_half *h, int fd,
			 struct exi_pieces *p, int flags, size_t *ret_len)
{
	struct bare b = { .h = h,
			  .counts = p->left && !(flags & (MSG_PEEK | MSG_OOB)),
			  .n = -ECANCELED };
	struct iovec room[EXI_PIECES_COPIED];
	bool all = (flags & (MSG_PEEK | MSG_WAITALL)) == MSG_WAITALL;
	struct msghdr m = { 0 };
	struct exi_rest ends;
	void *buf;
	size_t len = exi_pieces_next(p, &buf);

	if (p->n > 1)
		len = exi_pieces_cut(p, all ? BARE_MAX : SSIZE_MAX, room,
				     (const struct iovec **)&m.msg_iov,
				     &m.msg_iovlen);
	else if (all && len > BARE_MAX)
		len = BARE_MAX;
	*ret_len = len;
	h->bare++;
	exi_unlock(&h->lock);
	exi_rest_begin(&ends, bare_ends, &b);
	exi_cancel_rest();
	b.n = m.msg_iovlen ? recvmsg(fd, &m, flags) : recv(fd, buf, len, flags);
	if (b.n < 0)
		b.n = -errno;
	exi_cancel_rested();
	exi_rest_over(&ends, true);
	if (b.go && atomic_load(&sk->sh->greeting))
		exi_link_go(sk);
	return b.n;
}

/* With fewer bytes a call waits on. */
static size_t enough(const struct exi_shared *sh, size_t len, int flags)
{
	uint32_t lowat = atomic_load_explicit(&sh->lowat, memory_order_relaxed);

	return flags & MSG_WAITALL || lowat > len ? len : lowat;
}

/* The kernel lets no call read past urgent data after other bytes. */
static bool at_mark(int fd)
{
	int at = 0;

	return ioctl(fd, SIOCATMARK, &at) == 0 && at;
}

/* Where a peek begins, by SO_PEEK_OFF; -1: at the first byte, each time. */
static int peek_offset(int fd)
{
	int off = -1;
	socklen_t len = sizeof(off);

	return getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) < 0 ? -1
								       : off;
}

/* It begins behind bytes of which poll(2) tells all the same: how many those are.
 */
static size_t passed_over(struct exi_sock *sk, int fd, int flags)
{
	int unread;

	if (exi_likely(!(flags & MSG_PEEK)) || peek_offset(fd) <= 0)
		return 0;
	unread = exi_ready_unread(sk, fd);
	return unread > 0 ? (size_t)unread : 0;
}

/* n bytes were seen, and are not enough: 0 to look again. */
static int look_for_more(struct exi_sock *sk, int fd, size_t n, int flags,
			 struct exi_flow_patience *p)
{
	return exi_ready_events(sk, fd, POLLRDHUP)
		       ? -ENODATA
		       : exi_flow_be_patient(sk, fd, EXI_RX, flags, p, n);
}

/* The long way of a receive that did so much. A look may have begun. */
static __attribute__((noinline)) ssize_t recv_on(struct exi_sock *sk, int fd,
						 struct exi_pieces *to,
						 int flags, size_t done,
						 const struct exi_look *look)
{
	const struct exi_pieces all = *to; /* of a peek, which begins anew */
	struct exi_flow_patience p = { 0 };
	size_t whole = to->left + done;
	struct exi_shared *sh;
	ssize_t n;

	if (look && look->on) {
		p.look = *look;
		p.begun = true;
		exi_flow_be_patient(sk, fd, EXI_RX, flags, &p, 0);
	}
	for (;;) {
		size_t len = SIZE_MAX; /* the kernel was given */
		struct exi_half *h;

		if (!exi_flow_lock_half(sk, fd, EXI_RX, &p, &sh))
			return done ? (ssize_t)done : -EBADF;
		h = &sh->half[EXI_RX];
		if (exi_unlikely(!exi_list_empty(&sk->ops[EXI_RX]))) {
			void *buf;

			len = exi_pieces_next(to, &buf);
			exi_half_unlock(h);
			n = in_turn(fd, EXS_EVT_RECV, buf, len, flags);
			if (n > 0)
				done += (size_t)n;
			if (n < (ssize_t)len || to->left == len)
				break;
			exi_pieces_moved(to, len);
			flags |= flags & MSG_WAITALL ? 0 : MSG_DONTWAIT;
			continue;
		}
		if (done && ((h->mode != EXI_MODE_RING && at_mark(fd)) ||
			     error_waits_locked(sk, EXI_RX))) {
			exi_half_unlock(h);
			n = (ssize_t)done;
			break;
		}
		if (h->mode == EXI_MODE_TCP && !atomic_load(&sh->greeting) &&
		    !h->err && !h->broken) {
			n = bare_recv(sk, h, fd, to, flags, &len);
		} else {
			n = try_recv_pieces(sk, h, to, flags);
			if (n == -EAGAIN)
				exi_flow_look_locked(sk, EXI_RX, flags, &p);
			exi_half_unlock(h);
			if (n == -ESTALE) {
				exi_link_read(sk);
				continue;
			}
			if (n == -EREMOTE) {
				exi_family_ask(sk);
				continue;
			}
			if (n == -EAGAIN) {
				n = exi_flow_be_patient(
					sk, fd, EXI_RX, flags, &p,
					passed_over(sk, fd, flags));
				if (n == 0)
					continue;
			}
		}
		if (n <= 0)
			break;
		done += (size_t)n;
		exi_pieces_moved(to, (size_t)n);
		if (exi_likely(done >= enough(sh, whole, flags))) {
			/* What lies there goes on into the next piece. */
			if (exi_likely(!to->left || to->at || len != SIZE_MAX))
				break;
			flags |= MSG_DONTWAIT;
			continue;
		}
		if (len != SIZE_MAX) {
			if ((size_t)n < len || (flags & MSG_PEEK))
				break; /* the kernel has waited for enough */
			exi_flow_after_recv(sk, fd);
		}
		if (!(flags & MSG_PEEK) || peek_offset(fd) >= 0)
			continue;
		if (look_for_more(sk, fd, done, flags, &p))
			break;
		done = 0;
		*to = all;
	}
	if (done && n < 0)
		keep_error(sk, fd, EXI_RX, (int)-n);
	if (exi_unlikely(n == 0 && whole))
		exi_link_ended(sk, fd);
	exi_flow_after_recv(sk, fd);
	return done ? (ssize_t)done : n;
}

ssize_t exi_flow_recvv(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags)
{
	struct exi_pieces p = { .v = v, .n = n, .left = bytes };
	struct exi_sock *sk;
	int ret = look_up(fd, &sk);

	if (ret || sk->framed)
		return ret ? ret : -EBADF;
	if (exi_unlikely(exi_family_elsewhere(sk)))
		exi_family_ask(sk); /* a failure is told by the attempt */
	return recv_on(sk, fd, &p, flags, 0, NULL);
}

static ssize_t recv_rest(struct exi_sock *sk, int fd, void *buf, size_t len,
			 int flags, size_t done, const struct exi_look *look)
{
	struct iovec v = { .iov_base = buf, .iov_len = len };
	struct exi_pieces p = {
		.v = &v, .n = 1, .at = done, .left = len - done
	};

	return recv_on(sk, fd, &p, flags, done, look);
}

ssize_t exi_flow_recv(int fd, void *buf, size_t len, int flags)
{
	struct exi_shared *sh = NULL;
	struct exi_look look;
	struct exi_sock *sk;
	ssize_t n;
	int ret = look_up(fd, &sk);

	if (exi_unlikely(ret))
		return ret;
	look.on = false;
	if (exi_likely(!(flags & (MSG_PEEK | MSG_OOB))))
		sh = enter_ring(sk, fd, EXI_RX, len);
	if (exi_likely(sh)) {
		n = recv_ring(sk, &sh->half[EXI_RX], buf, len, flags);
		if (n == -EAGAIN && may_wait(sk, flags)) {
			if (exi_look_held(sk, EXI_RX))
				n = recv_ring(sk, &sh->half[EXI_RX], buf, len,
					      flags);
			else {
				exi_signals_begin();
				exi_look_begin(sk, EXI_RX, &look);
			}
		}
		exi_half_unlock(&sh->half[EXI_RX]);
		if (exi_likely(n > 0 && (size_t)n >= enough(sh, len, flags)))
			return n;
		if (n > 0)
			return recv_rest(sk, fd, buf, len, flags, (size_t)n,
					 NULL);
		if (n == 0 && len)
			exi_link_ended(sk, fd);
		/* Who could wait last spins before it asks whether it may. */
		if (n != -EAGAIN || (!look.on && !may_wait(sk, flags) &&
				     exi_flow_nonblocking(sk, fd, flags)))
			return n;
		return recv_rest(sk, fd, buf, len, flags, 0, &look);
	}
	if (exi_unlikely(sk->framed))
		return one_message(EXS_EVT_RECV, fd, buf, len, flags);
	if (exi_unlikely(exi_family_elsewhere(sk)))
		exi_family_ask(sk); /* a failure is told by the attempt */
	return recv_rest(sk, fd, buf, len, flags, 0, NULL);
}
