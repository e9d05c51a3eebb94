/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends and receives in the ring, as most are: inline, for speed. */
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

static inline __attribute__((always_inline)) ssize_t
exi_send_ring_locked(struct exi_sock *sk, struct exi_half *h, const void *buf,
		     size_t len)
{
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(
		    __atomic_load_n(&h->ended, __ATOMIC_RELAXED) | h->broken |
		    (uint32_t)h->err |
		    atomic_load_explicit(&sk->sh->gone, memory_order_relaxed)))
		return atomic_load(&sk->sh->gone) && exi_flow_bereft_locked(sk)
			       ? exi_attempt_send_tcp_locked(sk, h, buf, len, 0)
			       : exi_half_send_refused_locked(sk, h);
	n = sk->fab->ops->send(sk->fab, buf, len, 0);
	if (exi_unlikely(atomic_load_explicit(&sk->fab->unheard,
					      memory_order_relaxed)))
		return exi_attempt_send_unheard_locked(sk, h, buf, len, n);
	if (exi_likely(n > 0))
		exi_half_account_locked(h, n, true);
	else if (n == -EPROTO)
		return exi_flow_fabric_failed_locked(sk, h);
	else if (exi_unlikely(n == -ENOBUFS)) {
		exi_switch_leave_locked(sk, EXS_X_REASON_MEMORY);
		return -EAGAIN;
	}
	return n;
}

static inline __attribute__((always_inline)) ssize_t
exi_recv_ring_locked(struct exi_sock *sk, struct exi_half *h, void *buf,
		     size_t len, int flags)
{
	/* Before the look at the ring: what was written before the peer went
	 * is found. */
	uint32_t over =
		atomic_load_explicit(&sk->sh->gone, memory_order_acquire) |
		atomic_load_explicit(&sk->sh->rx_fin, memory_order_acquire);
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(h->broken))
		return exi_half_tell_broken_locked(sk, h);
	if (exi_unlikely(over && h->deaf && len)) {
		len = exi_half_heard_locked(h, len);
		if (!len && h->deaf == EXI_DEAF_END) {
			h->ended = 1;
			return exi_half_end(h);
		}
		if (!len)
			return exi_half_recv_ended_locked(sk, h);
	}
	if (exi_unlikely(over))
		flags &=
			/* What came before that is read first. */
			~EXI_MSG_POLLED;
	n = sk->fab->ops->recv(sk->fab, buf, len, flags);
	if (exi_likely(n > 0)) {
		if (!(flags & MSG_PEEK))
			exi_half_account_locked(h, n, true);
		return n;
	}
	if (n == 0 && len) {
		h->ended = 1;
		return exi_half_end(h);
	}
	if (n == -EAGAIN && over)
		return exi_half_recv_ended_locked(sk, h);
	if (n == -EPROTO)
		return exi_flow_fabric_failed_locked(sk, h);
	return exi_unlikely(n == -ENOBUFS)
		       ? exi_attempt_recv_unfit_locked(sk, h)
		       : n;
}

#endif
