/* SPDX-License-Identifier: BSD-2-Clause */
/* What libexs offers beyond the Extended Sockets API. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "core/call/loan.h"
#include "core/fabric/provider.h"
#include "core/life/plain.h"
#include "core/meet/find.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/transfer/place.h"

static const char *fabric(struct exi_sock *sk, enum exi_dir dir)
{
	uint32_t mode = sk->sh->half[dir].mode;

	if (mode == EXI_MODE_RING && sk->fab)
		return sk->fab->provider->name;
	return "tcp";
}

static void fill_half(struct exi_half *h, exs_x_sockinfo_t *i)
{
	i->exs_x_sleeps += h->sleeps;
	i->exs_x_spins += __atomic_load_n(&h->spins, __ATOMIC_RELAXED);
	i->exs_x_upgrades += h->ups;
	i->exs_x_downgrades += h->downs;
}

/* The reason of a direction on that fabric; `reason` is that of the
 * connection. */
static int reason_of(const char *fabric, int reason)
{
	return strcmp(fabric, "tcp") ? EXS_X_REASON_NONE : reason;
}

static int sockinfo(int s, exs_x_sockinfo_t *ret)
{
	exs_x_sockinfo_t i = { 0 };
	struct exi_shared *sh;
	struct exi_sock *sk;
	struct exi_half *h;
	uint64_t rx, tx;
	int err;

	if (!ret)
		return -EFAULT;
	err = exi_sock_get(s, &sk);
	if (err)
		return err;
	if (!exi_sock_lock(sk, s, EXI_RX, &sh))
		return -EBADF;
	h = &sh->half[EXI_RX];
	stpncpy(i.exs_x_rx_fabric, fabric(sk, EXI_RX),
		sizeof(i.exs_x_rx_fabric) - 1);
	i.exs_x_rx_bytes = h->bytes;
	i.exs_x_rx_fabric_bytes = h->fabric_bytes;
	i.exs_x_rx_direct_bytes = exi_place_bytes(sk, EXI_RX);
	fill_half(h, &i);
	exi_half_unlock(h);
	if (!exi_sock_lock(sk, s, EXI_TX, &sh))
		return -EBADF;
	h = &sh->half[EXI_TX];
	stpncpy(i.exs_x_tx_fabric, fabric(sk, EXI_TX),
		sizeof(i.exs_x_tx_fabric) - 1);
	i.exs_x_tx_bytes = h->bytes;
	i.exs_x_tx_fabric_bytes = h->fabric_bytes;
	i.exs_x_tx_direct_bytes = exi_place_bytes(sk, EXI_TX);
	fill_half(h, &i);
	i.exs_x_paired = sk->fab && sk->fab->bell >= 0;
	exi_half_unlock(h);
	if (atomic_load(&sk->settled) && sk->base->counts(sk, &rx, &tx) == 0) {
		i.exs_x_rx_bytes = rx;
		i.exs_x_tx_bytes = tx;
	}
	i.exs_x_bells_sent = __atomic_load_n(&sh->bells_sent, __ATOMIC_RELAXED);
	i.exs_x_bells_received =
		__atomic_load_n(&sh->bells_received, __ATOMIC_RELAXED);
	i.exs_x_reason = (int)atomic_load(&sh->reason);
	if (i.exs_x_reason == EXS_X_REASON_UNDECIDED ||
	    i.exs_x_reason == EXS_X_REASON_PLAIN_SOCKET)
		i.exs_x_reason = exi_basic_reason(s, i.exs_x_reason);
	i.exs_x_tx_reason = reason_of(i.exs_x_tx_fabric, i.exs_x_reason);
	i.exs_x_rx_reason = reason_of(i.exs_x_rx_fabric, i.exs_x_reason);
	if (!i.exs_x_tx_reason && !i.exs_x_rx_reason)
		i.exs_x_reason = EXS_X_REASON_NONE;
	*ret = i;
	return 0;
}

EXI_PUBLIC int exs_x_sockinfo(int s, exs_x_sockinfo_t *info)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(sockinfo(s, info));
}

EXI_PUBLIC int exs_x_adopt(int s)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_adopt(s));
}

EXI_PUBLIC int exs_x_downgrade(int s)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_downgrade(s));
}

EXI_PUBLIC ssize_t exs_x_recv_loan(int s, const void **at, int flags)
{
	void *bytes = NULL;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = !at ? -EFAULT
	      : flags & ~MSG_DONTWAIT
		      ? -EINVAL
		      : exi_loan_borrow(s, EXI_RX, SIZE_MAX, flags, &bytes);
	if (ret > 0)
		*at = bytes;
	return exi_result(ret);
}

EXI_PUBLIC int exs_x_recv_return(int s, size_t len)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_loan_repay(s, EXI_RX, len, 0));
}

EXI_PUBLIC ssize_t exs_x_send_loan(int s, void **at, size_t want, int flags)
{
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = !at ? -EFAULT
	      : !want || flags & ~MSG_DONTWAIT
		      ? -EINVAL
		      : exi_loan_borrow(s, EXI_TX, want, flags, at);
	return exi_result(ret);
}

EXI_PUBLIC int exs_x_send_commit(int s, size_t len, int flags)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(flags & ~MSG_NOSIGNAL
				       ? -EINVAL
				       : exi_loan_repay(s, EXI_TX, len, flags));
}
