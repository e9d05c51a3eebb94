/* SPDX-License-Identifier: BSD-2-Clause */
/* How long a connection lasts before it meets, and what a process learns of
 * that. */
#include "core/meet/worth.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/marks.h"
#include "core/meet/meet.h"
#include "core/meet/way.h"
#include "core/sock/base.h"
#include "core/sock/table.h"

/* Times are in exi_ticks(), which are cheap to read, because each call reads
 * them while a mark remains passed. */
#define TICKS_PER_NS 3u
#define TICKS_MS     (1000000u * TICKS_PER_NS)

/* Meetings in vain, less those that paid. The first ones have no effect; each
 * of the others doubles the time. */
#define VAIN_FREE 3u
#define VAIN_MAX  6u
static _Atomic uint32_t vain;

/* When a meeting has paid: the connection lasted so long, or its messages or
 * bytes since then cost the kernel as much. */
#define PAID_TICKS (8u * TICKS_MS)
#define PAID_MOVES 256u
#define PAID_BYTES (1u << 20)

/* A that has moved so much meets, however young the connection is: before
 * B's last mark. */
#define MUCH (8u << 20)

static uint64_t learned(const struct exi_sock *sk)
{
	uint32_t n = atomic_load_explicit(&vain, memory_order_relaxed);

	return n < VAIN_FREE || !exi_way_of(sk).upgrade_bytes
		       ? 0
		       : (uint64_t)TICKS_MS << (n - VAIN_FREE);
}

/* B is later than A, so that A is there. */
static uint64_t lasts(const struct exi_sock *sk, uint64_t ticks)
{
	return sk->role == EXI_ROLE_ACCEPT ? ticks + ticks / 2 : ticks;
}

/* When the connection passed its first mark. */
static uint64_t since_of(const struct exi_sock *sk)
{
	return atomic_load_explicit(&sk->mark_since, memory_order_relaxed);
}

static bool is_younger(uint64_t since, uint64_t ticks)
{
	/* The counters of two CPUs may differ a little. */
	return (int64_t)(exi_ticks() - since) < (int64_t)ticks;
}

/* Makes A's sign, as when it waits for B: B, which finds nobody, sees that its
 * peer is not plain. */
static void show(struct exi_sock *sk, int fd)
{
	int before;

	exi_fds_begin();
	exi_lock(&sk->link_lock);
	if (atomic_load(&sk->fd) == fd && !sk->closing &&
	    sk->base->same(sk, fd)) {
		before = sk->base->sign_used(fd);
		if (before)
			atomic_store(&sk->sh->size, before);
	}
	exi_unlock(&sk->link_lock);
	exi_fds_end();
}

/* Sets A's next marks: before each of them B has not looked for the last
 * time. */
static void put_off(struct exi_sock *sk, int fd, uint64_t sent)
{
	struct exi_half *half = sk->sh->half;
	uint64_t download = exi_link_download(exi_way_of(sk).upgrade_bytes);

	show(sk, fd);
	atomic_store(&half[EXI_TX].meet_at, exi_marks_next(sent));
	if (atomic_load(&half[EXI_RX].meet_at) < download)
		atomic_store(&half[EXI_RX].meet_at, download);
}

bool exi_worth_later(struct exi_sock *sk, int fd, enum exi_dir dir, uint64_t at,
		     size_t len)
{
	const struct exi_half *half = sk->sh->half;
	const bool accepts = sk->role == EXI_ROLE_ACCEPT;
	/* Of bytes from B to A, more calls follow if more bytes do. */
	const bool download =
		(dir == EXI_TX) == accepts && at >= EXI_LINK_DOWNLOAD;
	uint64_t since = since_of(sk), ticks, sent;
	bool first = !since;

	/* A connection that another process had has its own marks. */
	if (atomic_load_explicit(&sk->again, memory_order_relaxed))
		return false;
	if (first) {
		uint64_t now = exi_ticks();

		if (atomic_compare_exchange_strong(&sk->mark_since, &since,
						   now))
			since = now;
	}
	ticks = learned(sk);
	/* A download of a few MB is over in this time. B looked at its first
	 * mark. */
	if ((download || (accepts && !first && at >= EXI_LINK_DOWNLOAD)) &&
	    ticks < TICKS_MS)
		ticks = TICKS_MS;
	/* The service looks when it is time. */
	if (accepts && first && !download)
		return false;
	if (!is_younger(since, lasts(sk, ticks)))
		return false;
	if (accepts)
		return true;
	sent = __atomic_load_n(&half[EXI_TX].bytes, __ATOMIC_RELAXED) + len;
	if (sent > MUCH ||
	    __atomic_load_n(&half[EXI_RX].bytes, __ATOMIC_RELAXED) > MUCH)
		return false;
	if (!download)
		put_off(sk, fd, sent);
	return true;
}

uint64_t exi_worth_left(const struct exi_sock *sk)
{
	uint64_t ticks = lasts(sk, learned(sk));
	int64_t left = (int64_t)(since_of(sk) + ticks - exi_ticks());

	return ticks && left > 0 ? (uint64_t)left / TICKS_PER_NS : 0;
}

static uint64_t moves(const struct exi_sock *sk)
{
	const struct exi_half *half = sk->sh->half;

	return __atomic_load_n(&half[EXI_RX].moves, __ATOMIC_RELAXED) +
	       __atomic_load_n(&half[EXI_TX].moves, __ATOMIC_RELAXED);
}

void exi_worth_paid_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	if (sk->paid_at)
		return;
	sk->paid_at = exi_ticks();
	sk->paid_moves = moves(sk);
}

void exi_worth_over_locked(struct exi_sock *sk)
{
	const struct exi_half *half = sk->sh->half;
	uint32_t n = atomic_load_explicit(&vain, memory_order_relaxed);
	bool paid;

	EXI_LOCKED(&sk->link_lock);
	if (!sk->paid_at)
		return;
	paid = !is_younger(sk->paid_at, PAID_TICKS) ||
	       moves(sk) - sk->paid_moves > PAID_MOVES ||
	       half[EXI_RX].fabric_bytes + half[EXI_TX].fabric_bytes >
		       PAID_BYTES;
	if (paid ? n > 0 : n < VAIN_MAX)
		atomic_compare_exchange_strong(&vain, &n, paid ? n - 1 : n + 1);
}
