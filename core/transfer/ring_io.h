/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends and receives in the ring, as most of them are: inline, for speed. */
#ifndef EXI_CORE_TRANSFER_RING_IO_H
#define EXI_CORE_TRANSFER_RING_IO_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "core/transfer/attempt.h"
#include "core/transfer/half.h"
#include "core/transfer/switch.h"

/* Whether something is in the way of a send. */
static inline bool exi_send_barred_locked(const struct exi_shared *sh,
					  const struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	return atomic_load_explicit(&h->broken, memory_order_relaxed) |
	       (uint32_t)atomic_load_explicit(&h->err, memory_order_relaxed) |
	       atomic_load_explicit(&sh->gone, memory_order_relaxed) |
	       __atomic_load_n(&h->ended, __ATOMIC_RELAXED);
}

/* What follows the fabric's send, which returned n. */
static inline __attribute__((always_inline)) ssize_t
exi_sent_ring_locked(struct exi_sock *sk, struct exi_half *h, const void *buf,
		     size_t len, ssize_t n)
{
	EXI_LOCKED(&h->lock);
	if (exi_unlikely(atomic_load_explicit(&sk->fab->unheard,
					      memory_order_relaxed)))
		return exi_attempt_send_unheard_locked(sk, h, buf, len, n);
	if (exi_unlikely(n <= 0))
		return exi_attempt_send_failed_locked(sk, h, n);
	exi_half_account_locked(h, n, true);
	return n;
}

static inline __attribute__((always_inline)) ssize_t
exi_send_ring_locked(struct exi_sock *sk, struct exi_half *h, const void *buf,
		     size_t len)
{
	struct exi_shared *sh = exi_half_shared(h, EXI_TX);
	struct exi_conn *fab = sk->fab;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(exi_send_barred_locked(sh, h)))
		return exi_attempt_send_barred_locked(sk, h, buf, len);
	return exi_sent_ring_locked(sk, h, buf, len,
				    fab->ops->send(fab, buf, len, 0));
}
/* Whether something is in the way of a receive. Before the look at the ring:
 * what was written before the peer went is found. */
static inline bool exi_recv_barred_locked(const struct exi_shared *sh,
					  const struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	return atomic_load_explicit(&sh->gone, memory_order_acquire) |
	       atomic_load_explicit(&sh->rx_fin, memory_order_acquire) |
	       atomic_load_explicit(&h->broken, memory_order_relaxed);
}

/* What follows the fabric's recv, which returned n. */
static inline __attribute__((always_inline)) ssize_t
exi_recvd_ring_locked(struct exi_sock *sk, struct exi_half *h, size_t len,
		      int flags, ssize_t n)
{
	EXI_LOCKED(&h->lock);
	if (exi_unlikely(n <= 0))
		return n == -EAGAIN
			       ? n
			       : exi_attempt_recv_failed_locked(sk, h, len, n);
	if (!(flags & MSG_PEEK))
		exi_half_account_locked(h, n, true);
	return n;
}

static inline __attribute__((always_inline)) ssize_t
exi_recv_ring_locked(struct exi_sock *sk, struct exi_half *h, void *buf,
		     size_t len, int flags)
{
	struct exi_shared *sh = exi_half_shared(h, EXI_RX);
	struct exi_conn *fab = sk->fab;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(exi_recv_barred_locked(sh, h)))
		return exi_attempt_recv_over_locked(sk, h, buf, len, flags);
	return exi_recvd_ring_locked(sk, h, len, flags,
				     fab->ops->recv(fab, buf, len, flags));
}

#endif
