/* SPDX-License-Identifier: BSD-2-Clause */
/* Takes a connection back to TCP, and waits until it is there. */
#include "core/call/downgrade.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <time.h>

#include "core/base/futex.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/call/feed.h"
#include "core/call/orphan.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/link/control.h"
#include "core/meet/pair.h"
#include "core/sock/base.h"
#include "core/sock/holders.h"
#include "core/sock/keepalive.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/drain.h"
#include "core/transfer/family.h"
#include "core/transfer/half.h"
#include "core/transfer/progress.h"
#include "core/transfer/switch.h"

/* Looks once. 0: done. -ENOTCONN: never, because the peer is gone. -EAGAIN:
 * sleep on the kick word. -ENOBUFS: wait for room in TCP. -EBADF: another
 * thread closed the socket, and its memory may be another one's. */
static int look_left(struct exi_sock *sk, struct exi_shared *sh,
		     uint32_t generation)
{
	struct exi_half *tx = &sh->half[EXI_TX];
	int ret = 0;
	bool linked, resumes;

	exi_lock(&sh->half[EXI_RX].lock);
	resumes = sh->half[EXI_RX].resume;
	exi_unlock(&sh->half[EXI_RX].lock);
	exi_lock(&tx->lock);
	if (!exi_sock_lasts(sk, generation) || exi_sock_shared(sk) != sh) {
		exi_unlock(&tx->lock);
		return -EBADF;
	}
	if (tx->mode == EXI_MODE_DRAIN)
		ret = exi_flow_drain_locked(sk);
	/* A forked process has its own descriptor of the bell, and hears
	 * nothing from it. The process that watches the link informs the others
	 * that the peer is gone: it sets `gone` and then changes the kick word;
	 * await_tcp() reads the kick first. */
	linked = sk->fab && sk->fab->bell >= 0 && !atomic_load(&sh->gone);
	exi_unlock(&tx->lock);
	if (ret == -EAGAIN)
		return -ENOBUFS;
	if (exi_switch_done(sh))
		return 0;
	return ret || !(linked || resumes) ? -ENOTCONN : -EAGAIN;
}

/* Waits until the handshake is over. Each step of it kicks the TX side.
 * -ECANCELED: it was over, and then another thread allowed the fabric again;
 * exi_switch_allow() waits itself, then clears the hold, then kicks. */
static int await_tcp(struct exi_sock *sk, uint32_t generation,
		     uint64_t deadline)
{
	struct timespec until = exi_ns_timespec(deadline);
	struct exi_shared *sh = exi_sock_shared(sk);
	bool heard = false, heard_late = false, late;

	for (;;) {
		struct exi_word w = {
			.addr = (const uint32_t *)&sh->kick[EXI_TX],
			.value = atomic_load(&sh->kick[EXI_TX]),
		};
		struct pollfd p = { .fd = atomic_load(&sk->fd),
				    .events = POLLOUT };
		int ret = look_left(sk, sh, generation);

		if (ret == 0 || ret == -ENOTCONN || ret == -EBADF)
			return ret;
		if (!atomic_load(&sh->hold_here))
			return -ECANCELED;
		/* The peer's answer, or its loss, must be noticed even if the
		 * service thread gets no CPU. */
		late = exi_now_ns() >= deadline;
		if (!heard || (late && !heard_late)) {
			if (exi_sock_met(sk))
				exi_link_event(sk, 0);
			heard = true;
			heard_late = late;
			continue;
		}
		if (late) {
			exi_link_shun(sk, generation);
			return -ETIMEDOUT;
		}
		if (ret == -ENOBUFS)
			poll(&p, 1, 10);
		else
			exi_futex_wait(&w, 1, &until);
	}
}

/* Waits for another thread that gathers the unread bytes; 0: it has. orphan()
 * clears `gathered' with the lock held, then changes the kick word, which is
 * read here before the look: no sleep begins after the change. */
static int await_taker(struct exi_sock *sk, uint32_t generation,
		       uint64_t deadline)
{
	struct timespec until = exi_ns_timespec(deadline);
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *rx = &sh->half[EXI_RX];

	for (;;) {
		struct exi_word w = {
			.addr = (const uint32_t *)&sh->kick[EXI_RX],
			.value = atomic_load(&sh->kick[EXI_RX]),
		};
		bool gathered;

		exi_lock(&rx->lock);
		gathered = exi_sock_lasts(sk, generation) && rx->gathered;
		exi_unlock(&rx->lock);
		if (!gathered)
			return 0;
		if (exi_now_ns() >= deadline)
			return -ETIMEDOUT;
		exi_futex_wait(&w, 1, &until);
	}
}

static int orphan(struct exi_sock *sk, int fd, uint32_t generation,
		  uint64_t deadline)
{
	int ret = exi_orphan_make(sk, fd, generation, false, deadline);
	struct exi_shared *sh = exi_sock_shared(sk);

	if (ret == -EALREADY)
		return await_taker(sk, generation, deadline);
	exi_lock(&sh->half[EXI_RX].lock);
	exi_lock(&sh->half[EXI_TX].lock);
	if (!exi_sock_lasts(sk, generation)) {
		ret = -EBADF;
		goto unlock;
	}
	/* From here on the pair has the bytes and the end. */
	sh->half[EXI_RX].gathered = 0;
	exi_half_mode_locked(&sh->half[EXI_RX], EXI_MODE_TCP);
	exi_half_mode_locked(&sh->half[EXI_TX], EXI_MODE_TCP);
	sh->half[EXI_RX].ended = sh->half[EXI_RX].fin = 0;
	exi_sock_reason(sk, EXS_X_REASON_ORPHAN);
	/* Sleepers on the ring, or on `gathered'. */
	exi_sock_wake_all_locked(sk, EXI_RX);
	exi_sock_wake_all_locked(sk, EXI_TX);
unlock:
	exi_unlock(&sh->half[EXI_TX].lock);
	exi_unlock(&sh->half[EXI_RX].lock);
	if (ret != -EBADF)
		exi_flow_progress(sk, EXI_RX);
	return ret;
}

/* Whether the peer left bytes unread in the ring: its kernel reports an end and
 * no reset. */
static bool is_cut_locked(struct exi_sock *sk, struct exi_half *rx)
{
	struct exi_half *tx = &exi_sock_shared(sk)->half[EXI_TX];

	EXI_LOCKED(&rx->lock);
	if (!sk->base->ends_both)
		return false;
	exi_lock(&tx->lock);
	exi_flow_bereft_locked(sk);
	exi_unlock(&tx->lock);
	return atomic_load(&rx->cut) == EXI_CUT_UNTOLD;
}

/* Whether nothing is unread, and TCP itself reports the end. */
static bool tcp_says_all_locked(struct exi_sock *sk, struct exi_half *rx)
{
	struct pollfd p = { .fd = sk->tcp->fd, .events = POLLRDHUP };

	EXI_LOCKED(&rx->lock);
	return !is_cut_locked(sk, rx) && rx->mode == EXI_MODE_RING && sk->fab &&
	       !sk->n_kept && !rx->err && !rx->broken && !exi_sock_remote(sk) &&
	       sk->fab->rops->unread(sk->fab) == 0 && poll(&p, 1, 0) > 0;
}

/* Called when the peer left before the handshake was over. */
static int left_alone(struct exi_sock *sk, int fd, uint32_t generation,
		      uint64_t deadline)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *rx = &sh->half[EXI_RX], *tx = &sh->half[EXI_TX];
	bool orphaned;

	exi_lock(&rx->lock);
	if (!exi_sock_lasts(sk, generation)) {
		exi_unlock(&rx->lock);
		return -EBADF;
	}
	if (rx->gathered) {
		exi_unlock(&rx->lock);
		return await_taker(sk, generation, deadline);
	}
	if (tcp_says_all_locked(sk, rx))
		exi_half_mode_locked(rx, EXI_MODE_TCP);
	orphaned = rx->mode != EXI_MODE_TCP &&
		   !(rx->mode == EXI_MODE_BACK && !atomic_load(&rx->untaken));
	exi_unlock(&rx->lock);
	if (orphaned) /* unchanged for other processes that have it */
		return exi_holders_alone(&sh->holders)
			       ? orphan(sk, fd, generation, deadline)
			       : 0;
	/* The peer will never read its unread bytes. */
	exi_lock(&tx->lock);
	if (!exi_sock_lasts(sk, generation)) {
		exi_unlock(&tx->lock);
		return -EBADF;
	}
	if (!exi_flow_bereft_locked(sk) && tx->mode == EXI_MODE_RING)
		exi_half_mode_locked(tx, EXI_MODE_TCP);
	exi_keepalive_settle_locked(sk);
	exi_unlock(&tx->lock);
	return 0;
}

void exi_switch_part(struct exi_sock *sk, int fd, uint32_t generation)
{
	struct exi_half *rx = &exi_sock_shared(sk)->half[EXI_RX];
	bool unread;
	int ret;

	exi_lock(&rx->lock);
	unread = exi_sock_lasts(sk, generation) &&
		 (rx->mode == EXI_MODE_RING || rx->mode == EXI_MODE_LEFT) &&
		 sk->fab && atomic_load(&sk->sh->gone);
	exi_unlock(&rx->lock);
	ret = unread ? exi_orphan_make(sk, fd, generation, true, 0) : 0;
	if (ret)
		exi_error("%s: its unread bytes cannot be copied (%s); the "
			  "process that gets it does not receive them",
			  EXI_CONN(fd), strerror(-ret));
}

int exi_switch_down_until(struct exi_sock *sk, int fd, int reason,
			  uint64_t deadline)
{
	uint32_t generation = atomic_load(&sk->generation);
	int ret;

	if (exi_family_elsewhere(sk))
		return exi_family_ask_until(sk, deadline);
	if (!exi_sock_is(sk, fd) || exi_switch_leave(sk, reason) == -EBADF)
		return -EBADF;
	ret = await_tcp(sk, generation, deadline);
	/* Met since the last look; only visible now that it is held. */
	if (ret == -ENOTCONN && exi_family_elsewhere(sk))
		return exi_family_ask_until(sk, deadline);
	return ret == -ENOTCONN ? left_alone(sk, fd, generation, deadline)
				: ret;
}

int exi_switch_down(struct exi_sock *sk, int fd, int reason,
		    struct exi_patience *p)
{
	int ret = exi_switch_down_until(sk, fd, reason,
					exi_switch_patience(sk, p));

	if (!p)
		exi_feed_rest();
	return ret;
}

static int await_down(struct exi_sock *sk)
{
	int ret;

	if (atomic_load(&sk->sh->down_wait) == 0)
		return 0;
	ret = await_tcp(sk, atomic_load(&sk->generation),
			exi_switch_patience(sk, NULL));
	return ret == -ENOTCONN || ret == -ECANCELED ? 0 : ret;
}

static void allow_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	exi_switch_allow_locked(sk, atomic_load(&sk->sh->hold_here));
}

int exi_switch_allow(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	int ret = 0;

	/* A downgrade under way comes first: DOWN, then UP. */
	ret = await_down(sk);
	if (ret)
		return ret;
	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return -EBADF;
	allow_locked(sk);
	exi_half_unlock(&sh->half[EXI_TX]);
	return 0;
}

int exi_switch_allow_now(struct exi_sock *sk, int fd, int reason)
{
	struct exi_shared *sh;
	int ret = 0;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return -EBADF;
	if ((int)atomic_load(&sh->reason) != reason)
		ret = -EPERM;
	else if (atomic_load(&sh->down_wait))
		ret = -EAGAIN;
	else
		allow_locked(sk);
	exi_half_unlock(&sh->half[EXI_TX]);
	return ret;
}
