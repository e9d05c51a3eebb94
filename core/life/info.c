/* SPDX-License-Identifier: BSD-2-Clause */
/* Information about a connection: its counters, fabrics and reasons. */
#include "core/life/info.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/fabric/provider.h"
#include "core/life/plain.h"
#include "core/link/ending.h"
#include "core/sock/base.h"
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

/* The reason of a direction on that fabric; `reason` is the connection's. A
 * broken direction uses no fabric, even if it has not left it. */
static int reason_of(const char *fabric, const struct exi_half *h, int reason)
{
	return strcmp(fabric, "tcp") && !atomic_load(&h->broken)
		       ? EXS_X_REASON_NONE
		       : reason;
}

int exi_info_of(struct exi_sock *sk, int fd, exs_x_sockinfo_t *ret)
{
	exs_x_sockinfo_t i = { 0 };
	struct exi_shared *sh;
	struct exi_half *h;
	uint64_t rx, tx;

	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return -EBADF;
	h = &sh->half[EXI_RX];
	stpncpy(i.exs_x_rx_fabric, fabric(sk, EXI_RX),
		sizeof(i.exs_x_rx_fabric) - 1);
	i.exs_x_rx_bytes = h->bytes - h->beside;
	i.exs_x_rx_fabric_bytes = h->fabric_bytes - h->fabric_beside;
	i.exs_x_rx_direct_bytes = exi_place_bytes(sk, EXI_RX);
	fill_half(h, &i);
	exi_half_unlock(h);
	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return -EBADF;
	h = &sh->half[EXI_TX];
	stpncpy(i.exs_x_tx_fabric, fabric(sk, EXI_TX),
		sizeof(i.exs_x_tx_fabric) - 1);
	i.exs_x_tx_bytes = h->bytes - h->beside;
	i.exs_x_tx_fabric_bytes = h->fabric_bytes - h->fabric_beside;
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
	i.exs_x_reason = exi_link_reason(sk);
	if (i.exs_x_reason == EXS_X_REASON_UNDECIDED ||
	    i.exs_x_reason == EXS_X_REASON_PLAIN_SOCKET)
		i.exs_x_reason = exi_basic_reason(fd, i.exs_x_reason);
	i.exs_x_tx_reason =
		reason_of(i.exs_x_tx_fabric, &sh->half[EXI_TX], i.exs_x_reason);
	i.exs_x_rx_reason =
		reason_of(i.exs_x_rx_fabric, &sh->half[EXI_RX], i.exs_x_reason);
	if (!i.exs_x_tx_reason && !i.exs_x_rx_reason)
		i.exs_x_reason = EXS_X_REASON_NONE;
	*ret = i;
	return 0;
}
