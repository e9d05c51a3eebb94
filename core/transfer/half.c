/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of one direction: its bytes, its errors, its end. */
#include "core/transfer/half.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/base.h"
#include "core/sock/keepalive.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/op.h"
#include "core/transfer/parts.h"

int exi_half_take_so_error(int fd)
{
	int err = 0;
	socklen_t len = sizeof(err);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		return 0;
	return err;
}

void exi_flow_account_locked(struct exi_sock *sk, enum exi_dir dir, size_t n)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	exi_half_account_locked(&sk->sh->half[dir], (ssize_t)n, true);
}

ssize_t exi_half_tell_broken_locked(struct exi_sock *sk, struct exi_half *h)
{
	uint32_t untold = EXI_BROKEN_UNTOLD;
	int err = atomic_exchange(&h->err, 0);

	EXI_LOCKED(&h->lock);
	if (atomic_compare_exchange_strong(&h->broken, &untold,
					   EXI_BROKEN_TOLD))
		return -ECONNRESET;
	if (err)
		return -err;
	return h == &sk->sh->half[EXI_TX] ? -EPIPE : 0;
}

/* The peer wrote nonsense into its segment. */
ssize_t exi_flow_fabric_failed_locked(struct exi_sock *sk, struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	exi_link_violation(sk, "an invalid record");
	return exi_half_tell_broken_locked(sk, h);
}

bool exi_half_error_waits_locked(struct exi_sock *sk, enum exi_dir dir)
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
	/* Bytes that TCP lacks may be in the ring. */
	if (!c || (h->mode == EXI_MODE_BACK && sk->fab) || poll(&p, 1, 0) <= 0)
		return false;
	return (p.revents & POLLERR) && (dir == EXI_TX || !c->rops->unread(c));
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

bool exi_half_take_cut(struct exi_half *h)
{
	uint32_t untold = EXI_CUT_UNTOLD;

	return exi_unlikely(atomic_load(&h->cut) == untold) &&
	       atomic_compare_exchange_strong(&h->cut, &untold, EXI_CUT_TOLD);
}

/* The kernel of a peer that closed saw no unread bytes: they lay in the
 * ring. */
static void cut_locked(struct exi_sock *sk)
{
	uint32_t whole = EXI_CUT_NOT;

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (sk->base->ends_both && sk->fab->rops->left_unread &&
	    sk->fab->rops->left_unread(sk->fab))
		atomic_compare_exchange_strong(&sk->sh->half[EXI_RX].cut,
					       &whole, EXI_CUT_UNTOLD);
}

/* Whether the peer closed: its kernel was told before it sent the end. If a
 * thread is sending, that thread finds out. */
static void look_for_cut_locked(struct exi_sock *sk)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	struct pollfd p = { .fd = sk->tcp->fd };

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (!sk->fab || !exi_trylock(&tx->lock))
		return;
	if (tx->mode == EXI_MODE_RING && !tx->fin && poll(&p, 1, 0) > 0 &&
	    (p.revents & POLLHUP))
		cut_locked(sk);
	exi_unlock(&tx->lock);
}

bool exi_half_cut_locked(struct exi_sock *sk, struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	if (sk->fab && sk->fab->rops->over(sk->fab))
		look_for_cut_locked(sk);
	return exi_half_take_cut(h);
}

ssize_t exi_half_end_read_locked(struct exi_sock *sk, struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	h->ended = 1;
	if (sk->base->ends_both)
		look_for_cut_locked(sk);
	return exi_half_end(h);
}

bool exi_flow_bereft_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	struct pollfd p = { .events = POLLRDHUP };

	EXI_LOCKED(&h->lock);
	if (h->mode != EXI_MODE_RING || !sk->fab)
		return h->mode == EXI_MODE_TCP;
	p.fd = sk->tcp->fd;
	/* Another process may still have the descriptor, and wait for what is
	 * lost. */
	if (!exi_sock_current(sk, p.fd) || poll(&p, 1, 0) <= 0)
		return false;
	cut_locked(sk);
	exi_half_mode_locked(h, EXI_MODE_TCP);
	exi_keepalive_settle_locked(sk);
	if (h->ended && !h->fin) {
		h->fin = 1;
		shutdown(p.fd, SHUT_WR);
	}
	return true;
}

bool exi_flow_unheard_locked(struct exi_sock *sk)
{
	bool bereft;

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (!sk->base->ends_both)
		atomic_store(&sk->sh->gone, 1);
	bereft = exi_flow_bereft_locked(sk);
	if (bereft)
		atomic_store(&sk->sh->gone, 1);
	return bereft;
}

int exi_half_take_err(struct exi_half *h)
{
	int err = atomic_load(&h->err);

	while (err && err != EPROTONOSUPPORT &&
	       !atomic_compare_exchange_weak(&h->err, &err, 0))
		;
	return err;
}

int exi_half_send_refused_locked(struct exi_sock *sk, struct exi_half *h)
{
	int err;

	EXI_LOCKED(&h->lock);
	if (atomic_load(&h->broken))
		return (int)exi_half_tell_broken_locked(sk, h);
	err = exi_half_take_err(h);
	/* The kernel has one error for both directions, including one that a
	 * receive met. */
	if (!err && h->mode == EXI_MODE_TCP && sk->sh->half[EXI_RX].err &&
	    !sk->base->ends_both)
		err = exi_half_take_err(&sk->sh->half[EXI_RX]);
	if (err)
		return -err;
	/* A process that closed may have sent the end on TCP, too. */
	if (__atomic_load_n(&h->ended, __ATOMIC_RELAXED) &&
	    (!h->fin ||
	     (h->mode == EXI_MODE_RING && !atomic_load(&sk->sh->gone))))
		return -EPIPE;
	if (h->mode == EXI_MODE_RING && atomic_load(&sk->sh->gone)) {
		err = sk->base->ends_both ? 0
					  : exi_half_take_so_error(sk->tcp->fd);
		return err ? -err : -EPIPE;
	}
	return 0;
}

bool exi_half_elsewhere_locked(const struct exi_sock *sk,
			       const struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	return exi_unlikely(!sk->fab) && h->mode != EXI_MODE_TCP &&
	       h->mode != EXI_MODE_BACK;
}

/* The error that a receive on TCP would report; it reports none after a FIN. */
static int tcp_error(struct exi_sock *sk)
{
	ssize_t n = sk->tcp->ops->recv(sk->tcp, &(char){ 0 }, 1, MSG_PEEK);

	return n >= 0 || n == -EAGAIN || n == -EINTR || n == -ENOTCONN
		       ? 0
		       : (int)-n;
}

ssize_t exi_half_recv_ended_locked(struct exi_sock *sk, struct exi_half *h)
{
	int err = h->err;

	EXI_LOCKED(&h->lock);
	h->err = 0;
	if (!err && !h->ended)
		err = tcp_error(sk);
	/* Bytes on the way are lost, and the end was not sent. */
	if (!err && !h->ended && !h->fin && exi_sock_remote(sk) &&
	    atomic_load(&sk->sh->gone))
		err = ECONNRESET;
	/* Nobody may have looked since the peer's stream ended. */
	if (sk->base->ends_both && !h->ended && !h->fin)
		look_for_cut_locked(sk);
	if (exi_half_take_cut(h) && !err)
		err = ECONNRESET;
	if (!h->ended)
		h->fin = 1;
	if (!err)
		return 0;
	/* Reset: nothing can be sent either. */
	atomic_store(&sk->sh->gone, 1);
	return -err;
}

/* Under the direction's lock; read without it as a hint. */
void exi_flow_count_ops_locked(struct exi_sock *sk, enum exi_dir dir,
			       int change)
{
	uint32_t n =
		atomic_load_explicit(&sk->n_ops[dir], memory_order_relaxed);

	EXI_LOCKED(&sk->sh->half[dir].lock);
	atomic_store_explicit(&sk->n_ops[dir], n + (uint32_t)change,
			      memory_order_release);
}

/* n of the next want bytes were moved. True: the operation is done. */
bool exi_flow_moved(struct exi_op *op, enum exi_dir dir, size_t n, size_t want)
{
	exi_parts_moved(op, n);
	return op->done == op->len || n == 0 ||
	       (dir == EXI_RX && n < want && !(op->flags & MSG_WAITALL));
}

void exi_flow_deafen_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	if (!sk->fab || exi_sock_remote(sk))
		return;
	h->deaf_after = h->fabric_bytes + sk->fab->rops->unread(sk->fab);
	h->deaf = sk->fab->rops->over(sk->fab) ? EXI_DEAF_END : EXI_DEAF_CUT;
}
