/* SPDX-License-Identifier: BSD-2-Clause */
/* Readiness. Each direction is looked at under its own lock. */
#include "core/call/ready.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/futex.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "core/sock/wake.h"
#include "core/transfer/half.h"
#include "core/transfer/packet.h"
#include "core/transfer/progress.h"
#include "core/transfer/resume.h"
#include "core/transfer/seqpacket.h"
#include "core/transfer/switch.h"

#define READ_EVENTS  (POLLIN | POLLRDNORM | POLLRDHUP)
#define WRITE_EVENTS (POLLOUT | POLLWRNORM | POLLWRBAND)
#define RX_EVENTS    (READ_EVENTS | POLLPRI | POLLRDBAND)

void (*exi_ready_owes)(int fd);

/* Whether nothing comes after the unread bytes; the lock is held. */
static bool over(struct exi_sock *sk, struct exi_half *h)
{
	return h->ended || h->fin || h->broken || atomic_load(&sk->sh->gone) ||
	       atomic_load(&sk->sh->rx_fin) ||
	       (sk->fab && sk->fab->rops->over(sk->fab));
}

/* The unread bytes that may be read from TCP. */
static size_t tcp_unread_locked(struct exi_sock *sk, struct exi_half *h)
{
	ssize_t may = SSIZE_MAX;
	size_t n;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(atomic_load(&h->untaken)) && h->mode == EXI_MODE_BACK)
		may = exi_resume_read_locked(sk, (size_t)may);
	if (h->mode == EXI_MODE_RING || may <= 0)
		return 0;
	n = sk->tcp->rops->unread(sk->tcp);
	return n < (size_t)may ? n : (size_t)may;
}

/* Bytes on TCP and, if no bytes of TCP come before them, in the ring. The lock
 * is held. */
static size_t unread_locked(struct exi_sock *sk, struct exi_half *h)
{
	size_t n = tcp_unread_locked(sk, h);

	EXI_LOCKED(&h->lock);
	if (h->mode == EXI_MODE_LEFT && n > h->left)
		n = h->left;
	if ((h->mode == EXI_MODE_RING ||
	     (h->mode == EXI_MODE_LEFT && n == h->left)) &&
	    sk->fab)
		n += exi_half_heard_locked(h, sk->fab->rops->unread(sk->fab));
	return n;
}

/* The same, of messages: without what a ring has beside them. */
static size_t packets_unread_locked(struct exi_sock *sk, struct exi_half *h)
{
	size_t n = h->mode == EXI_MODE_RING ? 0 : tcp_unread_locked(sk, h);

	EXI_LOCKED(&h->lock);
	if (h->mode == EXI_MODE_RING || h->mode == EXI_MODE_LEFT)
		n += exi_seq_unread_locked(sk, h);
	return n;
}

/* SO_RCVLOWAT, as poll uses it. */
static uint32_t lowat_of(const struct exi_sock *sk)
{
	uint32_t ret = exi_tcp_lowat(sk);

	return exi_likely(ret <= 1) || !sk->base->lowat_polled ? 1 : ret;
}

/* Whether the bytes there are as many as SO_RCVLOWAT asks for, or as there can
 * be. The peer's next record sends a wake-up again, so the record that fills
 * the ring is seen. */
static bool sufficient_locked(struct exi_sock *sk, struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	return exi_likely(lowat_of(sk) <= 1) ||
	       unread_locked(sk, h) >= lowat_of(sk) ||
	       ((h->mode == EXI_MODE_RING || h->mode == EXI_MODE_LEFT) &&
		sk->fab && sk->fab->rops->full(sk->fab));
}

/* Reports an end that is in the ring, and of which the kernel does not know. */
static inline void look_end(struct exi_sock *sk, struct exi_half *h,
			    short events, struct exi_ready *ret)
{
	const struct exi_half *tx = &sk->sh->half[EXI_TX];
	bool ended = __atomic_load_n(&tx->ended, __ATOMIC_RELAXED) &&
		     tx->mode == EXI_MODE_RING;

	/* The end may be a close, which the kernel knows first. */
	if (sk->base->ends_both && over(sk, h))
		ret->error = true;
	if ((!ended && !(events & POLLRDHUP)) || !over(sk, h))
		return;
	ret->now |= POLLRDHUP;
	ret->hung_up = ended; /* both directions are over */
}

static inline __attribute__((always_inline)) void
look_rx_locked(struct exi_sock *sk, struct exi_half *h, short events,
	       struct exi_ready *ret)
{
	bool kept = exi_resume_keeps_locked(sk);
	/* Before the look at the ring, as in receiving. */
	bool left = atomic_load(&sk->sh->gone) || atomic_load(&sk->sh->rx_fin);

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(sk->framed) && exi_packet_there(sk))
		ret->now |= POLLIN | POLLRDNORM;
	if (h->mode != EXI_MODE_RING) {
		ret->kernel |= events & RX_EVENTS;
		if (kept)
			ret->kernel &= ~READ_EVENTS;
		if (h->mode == EXI_MODE_LEFT)
			look_end(sk, h, events, ret);
		/* As arm_next_locked(), or a waiter would look for ever. */
		if (h->err || h->broken ||
		    (h->mode == EXI_MODE_LEFT && lowat_of(sk) > 1 &&
		     (sufficient_locked(sk, h) || over(sk, h))))
			ret->now |= POLLIN | POLLRDNORM;
		return;
	}
	if (!sk->fab) { /* the call will ask for it */
		ret->now |= POLLIN | POLLRDNORM;
		return;
	}
	if (left || h->err ||
	    (sk->fab->rops->ready(sk->fab, EXI_RX) &&
	     (sufficient_locked(sk, h) || over(sk, h))))
		ret->now |= POLLIN | POLLRDNORM;
	ret->error = left;
	look_end(sk, h, events, ret);
	/* Bytes for an end that has shut both directions go over TCP. */
	if (exi_unlikely(left))
		ret->kernel |= events & (POLLPRI | POLLRDBAND);
}

static void look_tx_locked(struct exi_sock *sk, struct exi_half *h,
			   short events, struct exi_ready *ret)
{
	EXI_LOCKED(&h->lock);
	if (h->mode == EXI_MODE_RING && atomic_load(&sk->sh->gone))
		exi_flow_bereft_locked(sk);
	if (h->mode != EXI_MODE_RING) {
		ret->kernel |= events & WRITE_EVENTS;
		return;
	}
	if (!sk->fab || h->err || h->ended || h->broken ||
	    atomic_load(&sk->sh->gone) || sk->fab->rops->ready(sk->fab, EXI_TX))
		ret->now |= POLLOUT | POLLWRNORM |
			    (sk->base->messages ? POLLWRBAND : 0);
}

/* Reads when the first bytes were sent, as the peer states it. */
static void look_first(struct exi_sock *sk, struct exi_half *h, uint64_t now,
		       struct exi_ready *ret)
{
	if (h->mode != EXI_MODE_RING) {
		ret->first.on_tcp = true;
		ret->first.moves = exi_switch_may_come(sk);
		if (sk->fab && sk->fab->bell >= 0 && sk->fab->rops->tcp_sent)
			ret->first.sent =
				sk->fab->rops->tcp_sent(sk->fab, h->bytes);
	} else if (sk->fab && sk->fab->rops->first && (ret->now & POLLIN)) {
		sk->fab->rops->first(sk->fab, now, &ret->first);
	}
}

/* Reports an entry in the error queue, here or in the kernel. */
static void look_errors(const struct exi_shared *sh, struct exi_ready *ret)
{
	uint32_t state = atomic_load(&sh->zerocopy.state);

	if (exi_likely(!state))
		return;
	if (state & EXI_ZEROCOPY_DUE)
		ret->now |= POLLERR;
	if (state & EXI_ZEROCOPY_KERNEL)
		ret->error = true;
}

/* A look found nothing; kick: the kick word before that look. */
static void glance_locked(struct exi_sock *sk, struct exi_half *h,
			  uint32_t kick, struct exi_glance *ret)
{
	EXI_LOCKED(&h->lock);
	if (h->mode != EXI_MODE_RING || sk->framed || !sk->fab->rops->nothing ||
	    !sk->fab->rops->nothing(sk->fab, &ret->nothing))
		return;
	ret->kick = &sk->sh->kick[EXI_RX];
	ret->kicked = kick;
	ret->peer_cpu = sk->fab->wops->peer_cpu(sk->fab);
}

/* now: if not null, also reads what comes first. glance: may be null. */
static inline bool look_once(struct exi_sock *sk, int fd, short events,
			     const uint64_t *now, struct exi_ready *ret,
			     struct exi_glance *glance)
{
	struct exi_shared *sh;
	uint32_t kick = 0;

	*ret = (struct exi_ready){ 0 };
	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return false;
	/* Before the look at the state: pairs with exi_sock_wake_all(). */
	if (glance)
		kick = atomic_load_explicit(&sh->kick[EXI_RX],
					    memory_order_seq_cst);
	look_rx_locked(sk, &sh->half[EXI_RX], events, ret);
	if (now)
		look_first(sk, &sh->half[EXI_RX], *now, ret);
	if (glance && !ret->now && !ret->error && !ret->hung_up)
		glance_locked(sk, &sh->half[EXI_RX], kick, glance);
	exi_half_unlock(&sh->half[EXI_RX]);
	if (events & WRITE_EVENTS) {
		if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
			return false;
		look_tx_locked(sk, &sh->half[EXI_TX], events, ret);
		exi_half_unlock(&sh->half[EXI_TX]);
	}
	ret->now &= (short)events;
	if (exi_unlikely(ret->hung_up))
		ret->now |= POLLHUP;
	if (exi_unlikely(atomic_load(&sh->half[EXI_RX].cut) == EXI_CUT_UNTOLD))
		ret->now |= POLLERR;
	look_errors(sh, ret);
	return true;
}

static inline bool look(struct exi_sock *sk, int fd, short events,
			const uint64_t *now, struct exi_ready *ret,
			struct exi_glance *glance)
{
	if (!look_once(sk, fd, events, now, ret, glance))
		return false;
	/* A caller that sees the peer's end may ask whether the peer closed. */
	if (exi_likely(!(ret->now & (POLLRDHUP | POLLHUP))) || ret->error ||
	    !exi_link_ended(sk, fd))
		return true;
	return look_once(sk, fd, events, now, ret, NULL);
}

bool exi_ready_look(struct exi_sock *sk, int fd, short events,
		    struct exi_ready *ret)
{
	return look(sk, fd, events, NULL, ret, NULL);
}

short exi_ready_told(struct exi_sock *sk, short revents)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	bool cut;

	if (exi_likely(!(revents & POLLHUP)))
		return revents;
	if (!atomic_load(&sh->gone) && sh->half[EXI_TX].mode == EXI_MODE_RING)
		exi_link_tcp_event(sk);
	if (!exi_sock_base(sk)->ends_both)
		return revents;
	/* Whoever noted that the peer is gone has this lock until it has noted,
	 * too, whether the peer left bytes unread. */
	exi_lock(&sh->half[EXI_TX].lock);
	/* But the link of a process that ends may hang up before its stream
	 * does. Another thread may have closed the connection meanwhile. */
	if (exi_sock_shared(sk) == sh && atomic_load(&sh->gone))
		exi_flow_bereft_locked(sk);
	cut = atomic_load(&sh->half[EXI_RX].cut) == EXI_CUT_UNTOLD;
	exi_unlock(&sh->half[EXI_TX].lock);
	return revents | (cut ? POLLERR : 0);
}

/* The events in r and those of the kernel. */
static short with_kernel(struct exi_sock *sk, int fd, short events,
			 const struct exi_ready *r)
{
	struct pollfd p = { .fd = fd, .events = r->kernel };
	bool asks;

	/* A caller that asks for no events gets errors and hang-ups, too. */
	asks = r->kernel || r->error ||
	       (!events && sk->sh->half[EXI_RX].mode != EXI_MODE_RING);
	if (!asks || poll(&p, 1, 0) <= 0)
		return r->now;
	return r->now | exi_ready_told(sk, p.revents);
}

/* The fast path: a look for bytes only, of a connection that is in the ring,
 * open, not framed, of this process alone, and without a low-water mark. The
 * fabric alone decides there: as look() and with_kernel(), with fewer checks.
 * Returns false, without a result, if this is not so. now, first, glance: as in
 * exi_ready_first(), or all null. */
static inline __attribute__((always_inline)) bool
look_for_bytes(struct exi_sock *sk, int fd, short events, const uint64_t *now,
	       struct exi_first *first, struct exi_glance *glance, short *ret)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *h = &sh->half[EXI_RX];
	const struct exi_half *tx = &sh->half[EXI_TX];
	struct exi_conn *fab;
	uint32_t kick;
	bool there;

	if (!events || (events & (WRITE_EVENTS | POLLRDHUP)) ||
	    atomic_load_explicit(&h->mode, memory_order_relaxed) !=
		    EXI_MODE_RING)
		return false;
	exi_assume(fd >= 0);
	exi_lock(&h->lock);
	fab = __atomic_load_n(&sk->fab,
			      __ATOMIC_RELAXED); /* perhaps not of fd */
	/* Before the look at the ring, as in look_once() and in receiving. */
	kick = atomic_load_explicit(&sh->kick[EXI_RX], memory_order_seq_cst);
	if (exi_unlikely(
		    atomic_load_explicit(&sh->gone, memory_order_acquire) |
		    atomic_load_explicit(&sh->rx_fin, memory_order_acquire) |
		    atomic_load_explicit(&h->broken, memory_order_relaxed) |
		    atomic_load_explicit(&h->cut, memory_order_relaxed) |
		    (uint32_t)atomic_load_explicit(&h->err,
						   memory_order_relaxed) |
		    atomic_load_explicit(&sh->zerocopy.state,
					 memory_order_relaxed) |
		    __atomic_load_n(&tx->ended, __ATOMIC_RELAXED)) ||
	    exi_unlikely(!exi_half_rings_locked(h) || !fab ||
			 !exi_sock_is(sk, fd) || exi_sock_shared(sk) != sh ||
			 sk->framed || sk->base->ends_both ||
			 atomic_load_explicit(&sh->lowat,
					      memory_order_relaxed) > 1)) {
		exi_half_unlock(h);
		return false;
	}
	there = fab->rops->ready(fab, EXI_RX);
	if (there && now && fab->rops->first)
		fab->rops->first(fab, *now, first);
	if (!there && glance)
		glance_locked(sk, h, kick, glance);
	exi_half_unlock(h);
	*ret = there ? events & (POLLIN | POLLRDNORM) : 0;
	return true;
}

static __attribute__((noinline)) short events_of(struct exi_sock *sk, int fd,
						 short events)
{
	struct exi_ready r;

	return look(sk, fd, events, NULL, &r, NULL)
		       ? with_kernel(sk, fd, events, &r)
		       : POLLNVAL;
}

short exi_ready_events(struct exi_sock *sk, int fd, short events)
{
	short ret;

	return exi_likely(fd >= 0 && look_for_bytes(sk, fd, events, NULL, NULL,
						    NULL, &ret))
		       ? ret
		       : events_of(sk, fd, events);
}

static __attribute__((noinline)) short first_of(struct exi_sock *sk, int fd,
						short events, uint64_t now,
						struct exi_first *ret,
						struct exi_glance *ret_glance)
{
	struct exi_ready r;

	if (!look(sk, fd, events, &now, &r, ret_glance))
		return POLLNVAL;
	*ret = r.first;
	return with_kernel(sk, fd, events, &r);
}

short exi_ready_first(struct exi_sock *sk, int fd, short events, uint64_t now,
		      struct exi_first *ret, struct exi_glance *ret_glance)
{
	short events_now;

	ret_glance->kick = NULL;
	*ret = (struct exi_first){ 0 };
	return exi_likely(fd >= 0 && look_for_bytes(sk, fd, events, &now, ret,
						    ret_glance, &events_now))
		       ? events_now
		       : first_of(sk, fd, events, now, ret, ret_glance);
}

void exi_ready_want_times(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;

	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return;
	/* Now, or as soon as there is a fabric. */
	atomic_store_explicit(&sk->times, true, memory_order_relaxed);
	exi_ready_times_locked(sk);
	exi_half_unlock(&sh->half[EXI_RX]);
}

/* Asks the peer for a wake-up for bytes that come after those that are there,
 * which are not enough. */
static bool arm_next_locked(struct exi_sock *sk, struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	if (!sk->fab || (h->mode != EXI_MODE_RING && h->mode != EXI_MODE_LEFT))
		return true;
	if (sk->fab->wops->arm(sk->fab, EXI_RX, EXI_WAKE_NEXT))
		return false;
	return lowat_of(sk) <= 1 || !(sufficient_locked(sk, h) || over(sk, h));
}

/* Whether others than callers of exi_ready_arm() wait for a doorbell:
 * operations, other processes and, where a thread cannot sleep on two words,
 * all waiters. */
static bool others_wait(struct exi_sock *sk, enum exi_dir dir)
{
	return atomic_load_explicit(&sk->sh->several, memory_order_relaxed) ||
	       atomic_load_explicit(&sk->n_ops[dir], memory_order_relaxed) ||
	       !exi_futex_waitv_works();
}

static bool arm(struct exi_sock *sk, int fd, enum exi_dir dir, bool fresh,
		uint64_t sleep)
{
	struct exi_shared *sh;
	struct exi_half *h;
	bool ret = true;

	if (!exi_sock_lock(sk, fd, dir, &sh))
		return false;
	h = &sh->half[dir];
	if (dir == EXI_RX && sk->fab)
		sk->fab->sleep =
			sk->armed[dir] || others_wait(sk, dir) ? 0 : sleep;
	if (h->mode == EXI_MODE_RING &&
	    (!sk->fab || h->err || h->ended || h->broken))
		ret = false; /* an end, or an error, is there */
	else if (dir == EXI_RX && (fresh || lowat_of(sk) > 1))
		ret = arm_next_locked(sk, h);
	else
		ret = exi_flow_arm_locked(sk, dir);
	if (dir == EXI_RX && sk->fab)
		sk->fab->sleep = 0;
	ret = ret || fresh;
	sk->armed[dir] += ret;
	exi_half_unlock(h);
	return ret;
}

static void disarm(struct exi_sock *sk, int fd, enum exi_dir dir)
{
	struct exi_shared *sh;

	if (!exi_sock_lock(sk, fd, dir, &sh))
		return;
	if (sk->armed[dir] && --sk->armed[dir] == 0 &&
	    sh->half[dir].mode == EXI_MODE_RING && sk->fab &&
	    !others_wait(sk, dir)) {
		sk->fab->wops->disarm(sk->fab, dir, EXI_WAKE_BELL);
		if (dir == EXI_RX)
			atomic_store_explicit(&sk->guarded, false,
					      memory_order_relaxed);
	}
	exi_half_unlock(&sh->half[dir]);
}

bool exi_ready_lowat_set(struct exi_sock *sk, int fd)
{
	exi_ready_lowat(sk);
	if (!sk->base->lowat_polled || !exi_ready_ours(sk) ||
	    !(exi_ready_events(sk, fd, POLLIN) & POLLIN))
		return false;
	exi_sock_wake_all(sk, EXI_RX);
	return true;
}

bool exi_ready_arm(struct exi_sock *sk, int fd, short events, bool fresh,
		   uint64_t sleep)
{
	/* A waiter uses the socket: the service of a child must hear the
	 * doorbell, too. */
	if (exi_unlikely(!exi_sock_used_here(sk)))
		exi_sock_inherit(sk);
	/* Unread bytes do not help a waiter that does not ask for bytes. */
	if (!arm(sk, fd, EXI_RX, fresh || !(events & (POLLIN | POLLRDNORM)),
		 sleep))
		return false;
	if (!(events & WRITE_EVENTS) || arm(sk, fd, EXI_TX, fresh, 0))
		return true;
	disarm(sk, fd, EXI_RX);
	return false;
}

void exi_ready_disarm(struct exi_sock *sk, int fd, short events)
{
	disarm(sk, fd, EXI_RX);
	if (events & WRITE_EVENTS)
		disarm(sk, fd, EXI_TX);
}

int exi_ready_unread(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	struct exi_half *h;
	size_t n;

	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return -EBADF;
	h = &sh->half[EXI_RX];
	n = unread_locked(sk, h);
	exi_half_unlock(h);
	return n > INT_MAX ? INT_MAX : (int)n;
}

int exi_ready_inq(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	size_t n;

	if (!sk->base->packets)
		return exi_ready_unread(sk, fd);
	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return -EBADF;
	n = packets_unread_locked(sk, &sh->half[EXI_RX]);
	exi_half_unlock(&sh->half[EXI_RX]);
	return n > INT_MAX ? INT_MAX : (int)n;
}

int exi_ready_unsent(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	struct exi_half *h;
	size_t n = 0;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return 0;
	h = &sh->half[EXI_TX];
	if (h->mode == EXI_MODE_RING && sk->fab && sk->fab->rops->left_unread)
		n = sk->fab->rops->left_unread(sk->fab);
	exi_half_unlock(h);
	return (int)n;
}

int exi_ready_peer_cpu(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	int ret = -1;

	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return -1;
	if (sk->fab)
		ret = sk->fab->wops->peer_cpu(sk->fab);
	exi_half_unlock(&sh->half[EXI_RX]);
	return ret;
}

bool exi_ready_peer_ended(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	struct exi_half *h;
	bool ret;

	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return false;
	h = &sh->half[EXI_RX];
	ret = h->ended || atomic_load(&sh->gone) ||
	      (h->mode == EXI_MODE_RING && sk->fab &&
	       sk->fab->rops->over(sk->fab));
	exi_half_unlock(h);
	return ret;
}
