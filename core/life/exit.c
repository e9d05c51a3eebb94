/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens to connections when the process ends. */
#include "core/life/exit.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/downgrade.h"
#include "core/fabric/provider.h"
#include "core/meet/marker.h"
#include "core/meet/meet.h"
#include "core/meet/meetdir.h"
#include "core/meet/remote.h"
#include "core/sock/holders.h"
#include "core/sock/table.h"
#include "core/transfer/switch.h"

#define HAND_OVER_NS 5000000000u
#define TAKE_OVER_NS 1000000000u

/* Whether the connection sends to another host, and no other process here
 * continues it. */
static bool ends_here(struct exi_sock *sk)
{
	return exi_sock_remote(sk) && exi_sock_used_here(sk) &&
	       exi_holders_alone(&sk->sh->holders) &&
	       sk->sh->half[EXI_TX].mode == EXI_MODE_RING &&
	       !atomic_load(&sk->sh->gone);
}

/* Not for ever: this thread may have been interrupted while it held the lock,
 * or something that the lock's owner waits for. */
static bool take_over(struct exi_lock *l, uint64_t until)
{
	while (!exi_trylock(l)) {
		if (exi_lock_held(l) || exi_now_ns() >= until)
			return false;
		sched_yield();
	}
	return true;
}

static void end_one(struct exi_sock *sk, void *arg)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	uint32_t ended;

	if (!ends_here(sk))
		return;
	/* Without the lock: a thread that keeps sending finds it by its next
	 * send, and leaves the lock to this one. Release: pairs with the fence
	 * in outlive(). */
	ended = __atomic_exchange_n(&tx->ended, 1, __ATOMIC_RELEASE);
	if (!take_over(&tx->lock, *(uint64_t *)arg))
		return;
	if (ends_here(sk))
		sk->fab->provider->remote_ops->leave(sk->fab);
	if (ends_here(sk) && !ended)
		sk->fab->ops->end(sk->fab);
	/* The kernel ends TCP, too, but the fabric with the rest may end before
	 * it, which would look like a failure. */
	if (ends_here(sk) && exi_sock_current(sk, sk->tcp->fd))
		shutdown(sk->tcp->fd, SHUT_WR);
	exi_unlock(&tx->lock);
}

static void deliver_one(struct exi_sock *sk, void *arg)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];

	if (!exi_sock_remote(sk) || !take_over(&tx->lock, *(uint64_t *)arg))
		return;
	if (ends_here(sk) && sk->fab->ops->stop)
		sk->fab->ops->stop(sk->fab);
	exi_unlock(&tx->lock);
}

/* Hands over a connection that other processes continue, while its fabric ends
 * with this process. First without arg: informs every peer; then arg is the
 * time until which to wait for them. */
static void hand_over(struct exi_sock *sk, void *arg)
{
	struct exi_shared *sh = sk->sh;
	int fd = atomic_load(&sk->fd);
	enum exi_dir d;

	if (!exi_sock_remote(sk) || exi_holders_alone(&sh->holders) ||
	    atomic_load(&sh->gone) || exi_switch_done(sh))
		return;
	for (d = EXI_RX; d <= EXI_TX; d++) {
		if (!exi_trylock(&sh->half[d].lock))
			return;
		exi_unlock(&sh->half[d].lock);
	}
	if (arg)
		exi_switch_down_until(sk, fd, EXS_X_REASON_SHARED,
				      *(uint64_t *)arg);
	else
		exi_switch_leave(sk, EXS_X_REASON_SHARED);
}

void exi_sock_exit(void)
{
	uint64_t until;

	exi_marker_exit();
	if (exi_meetdir_state() == 0)
		exi_sock_each(exi_meet_exit, NULL);
	if (!exi_remote_used())
		return;
	exi_sock_each(hand_over, NULL);
	until = exi_now_ns() + HAND_OVER_NS;
	exi_sock_each(hand_over, &until);
	until = exi_now_ns() + TAKE_OVER_NS;
	/* Before the ends: a thread that finds an end finds this, too. */
	atomic_store(&exi_table_exit_tid, exi_tid());
	exi_sock_each(end_one, &until);
	exi_sock_each(deliver_one, &until);
}
