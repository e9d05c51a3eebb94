/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection that meets once more. */
#include "core/meet/again.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/base.h"
#include "core/sock/holders.h"
#include "core/sock/memory.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"

/* Looks at one end of a handed connection: the first after some bytes, each
 * later one after twice as many as the one before. */
#define LOOKS	 14
#define LOOK_MIN 1024u

void exi_again_after(struct exi_sock *sk, uint64_t bytes)
{
	enum exi_dir d;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sk->sh->half[d];

		atomic_store(&h->meet_at,
			     __atomic_load_n(&h->bytes, __ATOMIC_RELAXED) +
				     bytes);
	}
}

bool exi_again_later_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	if (!sk->again || sk->looks >= LOOKS) {
		atomic_store(&sk->sh->half[EXI_RX].meet_at, UINT64_MAX);
		atomic_store(&sk->sh->half[EXI_TX].meet_at, UINT64_MAX);
		return false;
	}
	exi_again_after(sk, (uint64_t)LOOK_MIN << sk->looks++);
	atomic_store(&sk->sh->met, 0);
	return true;
}

/* The fabric has no bytes, and gets none. Threads may look at it, and sets may
 * be among its waiters: the memory that they see stays until the socket goes.
 * The halves are locked. */
static bool is_done_with_locked(const struct exi_sock *sk)
{
	const struct exi_half *rx = &sk->sh->half[EXI_RX];
	const struct exi_half *tx = &sk->sh->half[EXI_TX];
	enum exi_dir d;

	EXI_LOCKED(&rx->lock);
	EXI_LOCKED(&tx->lock);
	for (d = EXI_RX; d <= EXI_TX; d++) {
		const struct exi_half *h = &sk->sh->half[d];

		if (sk->n_lent[d] || sk->posted[d] ||
		    atomic_load(&sk->hot_in[d]) || exi_loan_in_place(sk, d) ||
		    h->broken || h->ended || h->fin || h->urgent ||
		    h->leaving || h->lingers)
			return false;
	}
	return tx->mode == EXI_MODE_TCP && !rx->gathered && !rx->resume &&
	       !atomic_load(&rx->untaken) &&
	       (rx->mode == EXI_MODE_TCP || rx->mode == EXI_MODE_BACK) &&
	       sk->base == &exi_base_tcp && !exi_sock_remote(sk) &&
	       !atomic_load(&sk->sh->gone) && sk->sh->lives < EXI_LIVES &&
	       exi_holders_sole(&sk->sh->holders);
}

/* The halves are locked. The peer wrote bytes that it took back from the ring
 * to TCP before it hung up: the ring has nothing that TCP lacks. */
static void forget_fabric_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	enum exi_dir d;

	EXI_LOCKED(&sk->link_lock);
	sk->spent[sh->lives] = sk->fab;
	exi_memory_no_fabric(sk);
	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sh->half[d];

		EXI_LOCKED(&h->lock);
		atomic_store(&h->mode, EXI_MODE_TCP);
		h->epoch = h->told = h->link_read = h->end_seen = 0;
		h->left = h->back = h->target = 0;
		/* The last look does not count. */
		exi_sock_wake_all_locked(sk, d);
	}
	atomic_store(&sh->may_switch, 0);
	atomic_store(&sh->hold_there, 0);
	atomic_store(&sh->down_wait, 0);
	atomic_store(&sh->rx_fin, 0);
	atomic_store(&sh->linked, 0);
	atomic_store(&sh->keeper, 0);
	atomic_store(&sh->met, 0);
	atomic_store(&sh->handed, 0);
	sh->lives++;
	atomic_store(&sk->guarded, false);
}

bool exi_again_begin_locked(struct exi_sock *sk)
{
	bool ret;

	EXI_LOCKED(&sk->link_lock);
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
	ret = is_done_with_locked(sk);
	if (ret)
		forget_fabric_locked(sk);
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	if (!ret)
		exi_again_later_locked(sk);
	return ret;
}
