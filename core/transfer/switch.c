/* SPDX-License-Identifier: BSD-2-Clause */
/* Switch points: the kernel counts the bytes of each direction for us, so both
 * ends agree on the byte at which the fabric begins. */
#include "core/transfer/switch.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/probe.h"
#include "core/base/reason.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/meet/again.h"
#include "core/meet/pair.h"
#include "core/meet/remote.h"
#include "core/sock/base.h"
#include "core/sock/holders.h"
#include "core/sock/keepalive.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "core/sock/wake.h"
#include "core/sock/watch.h"
#include "core/transfer/place.h"

/* See exi_switch_patience(). */
#define LOCAL_NS  1000000000u
#define REMOTE_NS 15000000000u

static uint32_t position(struct exi_sock *sk, enum exi_dir dir)
{
	return exi_sock_remote(sk)
		       ? sk->fab->provider->remote_ops->position(sk->fab, dir)
		       : 0;
}

/* A peer takes its direction back as often as it likes, and each time the
 * ring's bytes go to TCP, which gets room for them. So that this does not grow
 * for ever, a direction that came back goes up again only when TCP holds at
 * most a ring. Where the room is bounded, this holds for each direction, for
 * while it is in the ring nothing comes to the queue. */
static bool is_crowded_locked(struct exi_sock *sk)
{
	const struct exi_half *h = &sk->sh->half[EXI_TX];
	uint32_t ring = exi_config()->ring_kb * 1024, most = sk->fab->most;
	int64_t limit = ring;
	int queued;

	EXI_LOCKED(&h->lock);
	if (sk->base->beside)
		limit = sk->base->beside(most && most < ring ? most : ring);
	else if (!h->downs)
		return false;
	return ioctl(sk->tcp->fd, SIOCOUTQ, &queued) == 0 && queued > limit;
}

int exi_switch_up_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	struct exi_half *h = &sh->half[EXI_TX];
	uint64_t written, head;
	int ret;

	EXI_LOCKED(&h->lock);
	if (!sk->fab || sk->fab->bell < 0 || h->mode != EXI_MODE_TCP ||
	    !exi_switch_wanted(sh) || atomic_load(&sh->gone) || h->in_kernel ||
	    exi_loan_in_place(sk, EXI_TX) || exi_sock_idlers_locked(sk, EXI_TX))
		return -EAGAIN;
	/* The posted operation continues when the kernel has given the transfer
	 * back, and switches first. */
	if (sk->posted[EXI_TX]) {
		sk->tcp->kops->cancel(sk->tcp, &sk->xfer[EXI_TX]);
		return -EAGAIN;
	}
	if (h->ended || h->fin) {
		exi_sock_reason(sk, EXS_X_REASON_HALF_CLOSED);
		return -EPIPE;
	}
	if (h->urgent) {
		exi_sock_reason(sk, EXS_X_REASON_URGENT);
		return -EOPNOTSUPP;
	}
	if (is_crowded_locked(sk))
		return -EAGAIN;
	ret = sk->base->forbidden(sk->tcp->fd);
	if (sk->base->packets && !(sk->fab->lops && sk->fab->lops->whole))
		ret = EXS_X_REASON_NO_PROVIDER;
	if (ret) {
		exi_sock_reason(sk, ret);
		atomic_store(&sh->hold_here, 1);
		return -EOPNOTSUPP;
	}
	ret = sk->fab->swops->head(sk->fab, &head);
	if (ret) {
		exi_sock_reason(sk, EXS_X_REASON_MEMORY);
		atomic_store(&sh->hold_here, 1);
		return ret;
	}
	ret = sk->base->push(sk->tcp->fd);
	if (ret)
		return ret;
	ret = sk->base->written(sk, &written);
	if (ret)
		return ret;
	ret = exi_link_send(sk, EXI_PAIR_SWITCH, h->epoch + 1, written, head);
	if (ret)
		return ret;
	h->epoch++;
	h->ups++;
	EXI_PROBE3(move, sk->tcp->fd, EXI_TX, sk->fab->provider->name);
	h->origin = position(sk, EXI_TX);
	exi_half_mode_locked(h, EXI_MODE_RING);
	exi_keepalive_settle_locked(sk);
	exi_debug("%s: sends on %s after byte %llu", EXI_CONN(sk->tcp->fd),
		  sk->fab->provider->name, (unsigned long long)written);
	return 0;
}

static void set_left_locked(struct exi_sock *sk, uint64_t left)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	h->left = left;
	exi_half_mode_locked(h, left ? EXI_MODE_LEFT : EXI_MODE_RING);
	if (left)
		return;
	atomic_store(&sk->guarded, false);
	sk->awaited = atomic_load(&sk->lookers[EXI_RX]) >
		      exi_sock_idlers_locked(sk, EXI_RX);
	exi_unseen_restart();
}

int exi_switch_refuse_locked(struct exi_sock *sk, int reason)
{
	int ret;

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	exi_sock_reason(sk, reason);
	exi_switch_giveback_locked(sk);
	atomic_store(&sk->sh->hold_here, 1);
	atomic_fetch_add(&sk->sh->down_wait, 1);
	ret = exi_link_send(sk, EXI_PAIR_DOWN, 0, 0, 0);
	if (ret)
		atomic_fetch_sub(&sk->sh->down_wait, 1);
	return ret;
}

/* A direction that has just arrived goes back, and stays there. */
static int send_back_locked(struct exi_sock *sk, enum exi_mode mode, int reason)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	exi_half_mode_locked(&sk->sh->half[EXI_RX], mode);
	return exi_switch_refuse_locked(sk, reason);
}

/* At the first switch both ends have counted all that was written and read
 * since the connection began, unless calls did so that the library did not see,
 * or the two ends are not of one connection. Later the counts differ by the
 * bytes that were taken back. Bytes that the kernel reads for a posted receive
 * are counted when the receive is given back. */
static bool was_unseen_locked(struct exi_sock *sk, uint64_t got)
{
	const struct exi_half *h = &sk->sh->half[EXI_RX];
	struct pollfd p = { .fd = sk->tcp->fd, .events = POLLIN };

	EXI_LOCKED(&h->lock);
	/* What is counted as unread must be there. */
	if (sk->base->packets)
		return h->left ? poll(&p, 1, 0) <= 0 : got > h->target;
	return sk->base->counted_here && h->epoch == 1 && !sk->posted[EXI_RX] &&
	       got != h->bytes - h->fabric_bytes;
}

int exi_switch_arrived_locked(struct exi_sock *sk, uint64_t epoch,
			      uint64_t offset, uint64_t head)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	uint64_t got;
	int ret;

	EXI_LOCKED(&h->lock);
	if ((h->mode != EXI_MODE_TCP && h->mode != EXI_MODE_BACK) ||
	    epoch != h->epoch + 1)
		return -EPROTO;
	ret = sk->fab->swops->start(sk->fab, head);
	if (ret)
		return ret;
	h->epoch++;
	h->target = offset;
	h->origin = position(sk, EXI_RX);
	if (exi_tcp_urgent_pending(sk->tcp->fd)) {
		h->urgent = 1;
		return send_back_locked(sk, EXI_MODE_LEFT, EXS_X_REASON_URGENT);
	}
	ret = sk->base->read(sk, offset, &got);
	if (ret) /* it is unknown where the ring begins */
		return send_back_locked(sk, EXI_MODE_RING,
					EXS_X_REASON_NO_PROOF);
	if (got > offset)
		return -EPROTO;
	h->ups++;
	EXI_PROBE3(move, sk->tcp->fd, EXI_RX, sk->fab->provider->name);
	set_left_locked(sk, offset - got);
	exi_keepalive_settle_locked(sk);
	/* Held by a process that has no link, and could not inform the peer. */
	if (atomic_load(&sk->sh->hold_here) && !atomic_load(&sk->sh->down_wait))
		return send_back_locked(sk, h->mode,
					(int)atomic_load(&sk->sh->reason));
	if (was_unseen_locked(sk, got))
		return send_back_locked(sk, h->mode, EXS_X_REASON_UNSEEN_WAIT);
	exi_resume_watch_locked(sk);
	/* No byte of TCP follows: a receive that waits for one must move. It
	 * must not take what follows on TCP if the fabric fails, either. */
	if ((h->mode == EXI_MODE_RING || exi_sock_remote(sk)) &&
	    sk->posted[EXI_RX])
		sk->tcp->kops->cancel(sk->tcp, &sk->xfer[EXI_RX]);
	return 0;
}

static void left_is_locked(struct exi_sock *sk, uint64_t left)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	set_left_locked(sk, left);
	if (left)
		return;
	exi_resume_watch_locked(sk);
	exi_sock_wake_all_locked(sk, EXI_RX);
}

void exi_switch_read_locked(struct exi_sock *sk, size_t n)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	left_is_locked(sk, sk->sh->half[EXI_RX].left - n);
}

void exi_switch_recount_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	uint64_t got;

	EXI_LOCKED(&h->lock);
	if (sk->base->read(sk, h->target, &got) == 0 && got <= h->target)
		left_is_locked(sk, h->target - got);
}

int exi_switch_came_locked(struct exi_sock *sk, int64_t *ret)
{
	uint64_t target = sk->sh->half[EXI_RX].target, got;
	int err = sk->base->read(sk, target, &got);

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (!err)
		*ret = (int64_t)(got - target);
	return err;
}

void exi_switch_giveback_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	uint64_t pos, used;

	EXI_LOCKED(&h->lock);
	if ((h->mode != EXI_MODE_LEFT && h->mode != EXI_MODE_RING) || !sk->fab)
		return;
	h->leaving =
		!exi_place_quiet_locked(sk) || exi_loan_in_place(sk, EXI_RX);
	if (h->leaving)
		/* The last receive or loan that comes back continues here. */
		return;
	sk->fab->swops->cursor(sk->fab, &pos, &used);
	if (h->mode == EXI_MODE_RING)
		h->left = 0;
	h->back = 0;
	h->downs++;
	EXI_PROBE3(back, sk->tcp->fd, EXI_RX, atomic_load(&sk->sh->reason));
	exi_half_mode_locked(h, EXI_MODE_BACK);
	exi_keepalive_settle_locked(sk);
	atomic_store(&h->untaken, 1);
	exi_resume_watch_locked(sk);
	exi_link_send(sk, EXI_PAIR_TAKEBACK, h->epoch, pos, used);
}

/* The value of SO_SNDBUF for a size without privilege: net.core.wmem_max bounds
 * it, and may be less than what the kernel has given a socket of TCP by itself.
 * A fresh socket shows the value; the file in /proc may be out of reach. */
static int unprivileged_room(int size)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), room = 0;
	socklen_t len = sizeof(room);

	if (fd < 0)
		return 0;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &len) < 0)
		room = 0;
	close(fd);
	return room;
}

/* The rest of the ring must fit into TCP though the peer's program may not
 * read: else two ends that leave could wait for each other. The buffer never
 * shrinks. */
static void make_room(struct exi_sock *sk)
{
	int fd = sk->tcp->fd, queued = 0, room = 0, want;
	socklen_t len = sizeof(room);

	if (ioctl(fd, SIOCOUTQ, &queued) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &len) < 0)
		return;
	/* The kernel charges overhead; twice the bytes covers it. */
	want = 2 * (queued + (int)exi_config()->ring_kb * 1024);
	if (room >= want)
		return;
	want /= 2; /* it doubles what it is given */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &want, sizeof(want)) <
		    0 &&
	    unprivileged_room(want) > room)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &want, sizeof(want));
}

/* While the rest is on its way, dying must look like a reset to a reader of
 * TCP, not like an orderly end. */
static void linger_locked(struct exi_sock *sk, struct exi_half *h)
{
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	socklen_t len = sizeof(h->linger);

	EXI_LOCKED(&h->lock);
	if (h->lingers || getsockopt(sk->tcp->fd, SOL_SOCKET, SO_LINGER,
				     &h->linger, &len) < 0)
		return;
	h->lingers = 1;
	setsockopt(sk->tcp->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

void exi_switch_drain_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];

	EXI_LOCKED(&h->lock);
	h->downs++;
	EXI_PROBE3(back, sk->tcp->fd, EXI_TX, atomic_load(&sk->sh->reason));
	exi_half_mode_locked(h, EXI_MODE_DRAIN);
	exi_keepalive_settle_locked(sk);
	make_room(sk);
	linger_locked(sk, h);
}

int exi_switch_takeback_locked(struct exi_sock *sk, uint64_t epoch,
			       uint64_t pos, uint64_t used)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	int ret;

	EXI_LOCKED(&h->lock);
	if (epoch > h->epoch)
		return -EPROTO;
	if (epoch < h->epoch || h->mode != EXI_MODE_RING)
		return 0;
	ret = sk->fab->swops->takeback(sk->fab, pos, used);
	if (ret)
		return ret;
	exi_switch_drain_locked(sk);
	return 0;
}

/* --- leaving and coming back -------------------------------------------- */

bool exi_switch_on_tcp(struct exi_shared *sh, bool drains)
{
	struct exi_half *rx = &sh->half[EXI_RX];
	uint32_t tx = sh->half[EXI_TX].mode;

	return (tx == EXI_MODE_TCP || (drains && tx == EXI_MODE_DRAIN)) &&
	       (rx->mode == EXI_MODE_TCP || rx->mode == EXI_MODE_BACK) &&
	       !atomic_load(&rx->untaken);
}

bool exi_switch_done(struct exi_shared *sh)
{
	return atomic_load(&sh->down_wait) == 0 && exi_switch_on_tcp(sh, false);
}

/* A wish for TCP does not replace a lasting reason. The reason of a connection
 * on a fabric is an old one. */
static bool has_reason(struct exi_shared *sh, int wish)
{
	return exi_reason_lasts(wish) == EXI_REASON_ASKED &&
	       atomic_load(&sh->hold_here) != EXI_HOLD_UNTIL_SEEN &&
	       exi_reason_lasts((int)atomic_load(&sh->reason)) >=
		       EXI_REASON_STAYS &&
	       exi_switch_on_tcp(sh, true);
}

/* False: the connection is held for good, and stays so with its reason. */
static bool hold_until_seen(struct exi_shared *sh)
{
	uint32_t held = EXI_HOLD_NOT;

	return atomic_compare_exchange_strong(&sh->hold_here, &held,
					      EXI_HOLD_UNTIL_SEEN);
}

static int say_down_locked(struct exi_sock *sk, int reason)
{
	struct exi_shared *sh = sk->sh;
	int ret;

	EXI_LOCKED(&sh->half[EXI_TX].lock);
	if (!sk->fab || sk->fab->bell < 0)
		return 0;
	/* An answer to that one is an answer to this. */
	if (sh->half[EXI_TX].told && atomic_load(&sh->down_wait))
		return 0;
	atomic_fetch_add(&sh->down_wait, 1);
	ret = exi_link_send(sk, EXI_PAIR_DOWN, exi_again_by_another(reason), 0,
			    0);
	if (ret)
		atomic_fetch_sub(&sh->down_wait, 1);
	else
		sh->half[EXI_TX].told = 1;
	return ret;
}

int exi_switch_leave_locked(struct exi_sock *sk, int reason)
{
	struct exi_shared *sh = sk->sh;

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (reason & EXI_UNTIL_SEEN) {
		if (hold_until_seen(sh))
			exi_sock_reason(sk, reason & ~EXI_UNTIL_SEEN);
	} else {
		if (!has_reason(sh, reason))
			exi_sock_reason(sk, reason);
		atomic_store(&sh->hold_here, EXI_HOLD);
	}
	return say_down_locked(sk, reason);
}

void exi_switch_held_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (atomic_load(&sk->sh->hold_here) && !sk->sh->half[EXI_TX].told)
		say_down_locked(sk, (int)atomic_load(&sk->sh->reason));
}

/* generation: null, or only if it is that one still. */
static int leave(struct exi_sock *sk, const uint32_t *generation, int reason)
{
	struct exi_shared *sh;
	int ret;

	if (!exi_sock_lock(sk, atomic_load(&sk->fd), EXI_TX, &sh))
		return -EBADF;
	ret = generation && atomic_load(&sk->generation) != *generation
		      ? -EBADF
		      : exi_switch_leave_locked(sk, reason);
	exi_half_unlock(&sh->half[EXI_TX]);
	return ret;
}

int exi_switch_leave(struct exi_sock *sk, int reason)
{
	return leave(sk, NULL, reason);
}

int exi_switch_leave_of(struct exi_sock *sk, uint32_t generation, int reason)
{
	return leave(sk, &generation, reason);
}

void exi_switch_unawaited(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return;
	atomic_store(&sh->half[EXI_RX].meet_at, UINT64_MAX);
	atomic_store(&sh->half[EXI_TX].meet_at, UINT64_MAX);
	if (exi_sock_idlers_locked(sk, EXI_TX))
		exi_switch_leave_locked(sk, EXS_X_REASON_UNSEEN_WAIT |
						    EXI_UNTIL_SEEN);
	exi_half_unlock(&sh->half[EXI_TX]);
}

void exi_switch_allow_locked(struct exi_sock *sk, enum exi_hold held)
{
	struct exi_shared *sh = sk->sh;
	uint32_t was = held;
	int ret = 0;

	EXI_LOCKED(&sh->half[EXI_TX].lock);
	if (held && !sh->half[EXI_TX].urgent && !sh->half[EXI_RX].urgent &&
	    atomic_compare_exchange_strong(&sh->hold_here, &was,
					   EXI_HOLD_NOT)) {
		sh->half[EXI_TX].told = 0;
		exi_sock_reason(sk, EXS_X_REASON_UNDECIDED);
		if (sk->fab && sk->fab->bell >= 0)
			ret = exi_link_send(sk, EXI_PAIR_UP, 0, 0, 0);
	}
	if (ret == 0)
		exi_switch_up_locked(sk);
	if (!exi_registry_wire_ids() && !exi_remote_possible())
		exi_sock_reason(sk, EXS_X_REASON_NO_PROVIDER);
	exi_sock_wake_all_locked(sk, EXI_TX);
}

/* The connection is this process's alone, as are the sets that it is in. */
static bool is_own(struct exi_sock *sk)
{
	return atomic_load(&sk->sh->owner) == sk->process &&
	       exi_holders_alone(&sk->sh->holders);
}

void exi_switch_awaited(struct exi_sock *sk)
{
	int fd = atomic_load(&sk->fd);
	struct exi_shared *sh;
	uint32_t idlers;

	if (exi_likely(atomic_load(&exi_sock_shared(sk)->hold_here) !=
		       EXI_HOLD_UNTIL_SEEN) ||
	    !exi_sock_lock(sk, fd, EXI_RX, &sh))
		return;
	idlers = exi_sock_idlers_locked(sk, EXI_RX);
	exi_half_unlock(&sh->half[EXI_RX]);
	if (idlers || !exi_sock_lock(sk, fd, EXI_TX, &sh))
		return;
	/* A downgrade under way comes first: its answer leads here again. */
	if (atomic_load(&sh->hold_here) == EXI_HOLD_UNTIL_SEEN && is_own(sk) &&
	    !atomic_load(&sh->down_wait) && !exi_sock_idlers_locked(sk, EXI_TX))
		exi_switch_allow_locked(sk, EXI_HOLD_UNTIL_SEEN);
	exi_half_unlock(&sh->half[EXI_TX]);
}

uint64_t exi_switch_patience(const struct exi_sock *sk, struct exi_patience *p)
{
	uint64_t since = p ? p->since : 0;

	if (!since)
		since = exi_now_ns();
	if (p)
		p->since = since;
	return since + (exi_sock_remote(sk) ? REMOTE_NS : LOCAL_NS);
}

void exi_resume_watch_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	bool watches = h->mode == EXI_MODE_RING || h->resume;

	EXI_LOCKED(&h->lock);
	if (exi_sock_remote(sk) && sk->watched)
		exi_service_rewatch(sk, sk->tcp->fd, EXI_WATCH_TCP,
				    (watches ? EPOLLIN : 0) | EPOLLRDHUP |
					    EPOLLET);
}
