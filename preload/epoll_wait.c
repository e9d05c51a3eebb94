/* SPDX-License-Identifier: BSD-2-Clause */
/* epoll_wait(): looks, spins, and sleeps in the kernel's set. */
#include <limits.h>

#include "core/base/cancel.h"
#include "core/base/lock.h"
#include "core/base/signals.h"
#include "core/base/spin.h"
#include "core/base/util.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "preload/epoll.h"
#include "preload/shim.h"

struct spun {
	struct set *s;
	struct epoll_event *ev;
	int max;
	int n;
	struct looked looked;
};

static bool look_again(void *arg)
{
	struct spun *p = arg;

	p->n = shim_set_collect(p->s, p->ev, 0, p->max, true, NULL, 0,
				&p->looked);
	return p->n > 0;
}

/* The CPU of the peer of the connection that had an event last, if known. */
static int last_peer_cpu(struct set *s)
{
	struct item *it;
	int ret = -1;

	exi_lock(&s->lock);
	if (!exi_list_empty(&s->active)) {
		it = exi_container(s->active.prev, struct item, node);
		ret = it->glance.kick ? it->glance.peer_cpu : -1;
	}
	it = ret < 0 ? shim_set_pop_locked(s) : NULL;
	exi_unlock(&s->lock);
	if (!it)
		return ret;
	ret = exi_ready_peer_cpu(it->sk, shim_item_number(it));
	exi_lock(&s->lock);
	shim_item_release_locked(it, true);
	exi_unlock(&s->lock);
	return ret;
}

/* How many looks at one word take as long as a look at a set, and as a glance
 * at a few items. */
#define LOOK_WEIGHT   8
#define GLANCE_WEIGHT 2
#define FEW	      8

static int spin(struct set *s, struct epoll_event *ev, int max,
		uint64_t deadline, struct looked *ret_looked)
{
	struct spun p = { .s = s, .ev = ev, .max = max };
	struct exi_spinner spinner;

	if (!s->n_active)
		return 0;
	exi_spin_begin(&spinner);
	spinner.weight =
		s->timed && s->n_active < FEW ? GLANCE_WEIGHT : LOOK_WEIGHT;
	if (exi_spin_look(&s->spin, &spinner,
			  exi_spin_budget(&s->spin, last_peer_cpu(s)), deadline,
			  look_again, &p))
		*ret_looked = p.looked;
	return p.n;
}

/* Whether the kernel has a level-triggered event that its set reported only
 * once: threads other than the one that got the report must see it, too. */
static bool there_on_tcp(struct item *it)
{
	const struct exi_shared *sh = exi_sock_shared(it->sk);
	struct saw saw;

	if (it->disabled || (it->events & EPOLLET) ||
	    (sh->half[EXI_RX].mode == EXI_MODE_RING &&
	     sh->half[EXI_TX].mode == EXI_MODE_RING))
		return false;
	return shim_item_look(it, &saw) &
	       (shim_item_interest(it) | EPOLLERR | EPOLLHUP);
}

/* Arms the active items; false if there is an event already. An item that had
 * an event lately stays active, to be looked at when a sleep ends: then its
 * peer need not send another wake-up, and a peer of several connections sends
 * one wake-up for one of them. Each time counts as a new sleep. Nothing may
 * have come meanwhile: a thread that gets its wake-up and looks before all are
 * armed would miss some of them. looked: this thread has looked at each item,
 * and the kernel reports what came to TCP since. */
static bool arm_all_locked(struct set *s, bool looked)
{
	uint32_t stirs = s->stirs;
	uint64_t ticks = exi_ticks(), sleep = exi_ready_sleep();
	uint64_t lately = IDLE_TICKS * (1 + (uint64_t)s->n_active / IDLE_CROWD);
	bool ret = true, stays;
	int left;

	EXI_LOCKED(&s->lock);
	s->arming++;
	for (left = s->n_active; ret && left > 0; left--) {
		struct item *it = shim_set_pop_locked(s);

		if (!it)
			break;
		stays = ticks - it->busy < lately;
		exi_unlock(&s->lock);
		/* Armed and active: its wake-up came since the last look. */
		shim_item_disarm(it);
		ret = shim_item_arm(it, stays ? sleep : 0) &&
		      (looked || !there_on_tcp(it));
		exi_lock(&s->lock);
		shim_item_release_locked(it, !ret || stays);
	}
	s->arming--;
	return ret && s->stirs == stirs;
}

/* All active items were looked at since the set's stirs had this value. Returns
 * true if their peers send wake-ups and this thread now counts as a sleeper. */
static bool prepare(struct set *s, uint32_t stirs)
{
	bool ret;

	exi_lock(&s->lock);
	/* An item that was added or changed meanwhile was not looked at, and
	 * bytes that are already there send no wake-up. */
	ret = s->stirs == stirs && arm_all_locked(s, true);
	s->sleepers += ret;
	exi_unlock(&s->lock);
	return ret;
}

/* Passes on what is active: this thread leaves while others sleep. What it
 * looked at rings from now on, and what it did not look at, or is there, is for
 * one of the others. Where nobody slept as the look ended, there is nobody: the
 * look gave its last item back by the same hold of the lock, and whoever begins
 * to arm after that finds all of them. */
static void pass_on(struct set *s)
{
	exi_lock(&s->lock);
	/* A thread that arms did not find the items that this one held. */
	s->stirs += s->arming > 0;
	if (shim_set_others_sleep(s) && s->n_active &&
	    (s->n_fresh || !arm_all_locked(s, false) || s->n_fresh))
		shim_set_nudge_locked(s);
	exi_unlock(&s->lock);
}

static int until(uint64_t deadline)
{
	return deadline ? exi_ms_between(exi_now_ns(), deadline) : -1;
}

static bool asked_lately(const struct set *s, uint64_t now)
{
	return now - atomic_load_explicit(&s->asked, memory_order_relaxed) <=
	       KERNEL_TICKS;
}

/* Whether to ask the kernel: a wait returns the kernel's events, too. If the
 * kernel has had none for long, an event that it has now might as well have
 * come a moment later. */
static bool kernel_is_due(const struct set *s, uint64_t now)
{
	return atomic_load_explicit(&s->quiet, memory_order_relaxed) <
		       QUIET_ASKS ||
	       !asked_lately(s, now);
}

/* Looks once at the kernel and at the active items. If it finds nothing, all
 * active items were looked at since the set's stirs were *ret_stirs. The kernel
 * is asked first, because it may report an event of a fabric, but not twice in
 * a row if it leaves no room. Before a sleep it need not be asked. If there is
 * an event the clock is read only once, because to read it takes as long as a
 * look. seen: the active items were just looked at, and had nothing. */
static int wait_once(struct set *s, struct epoll_event *ev, int max,
		     uint64_t deadline, bool at_once, bool seen,
		     uint32_t *ret_stirs, struct looked *looked)
{
	uint64_t now = exi_ticks();
	bool due = kernel_is_due(s, now);
	bool first =
		(at_once || s->n_active) && due && !(s->filled && s->n_active);
	uint32_t met = s->met;
	int n = 0, k;

	if (s->filled)
		s->filled = false;
	if (first) {
		n = shim_set_ask_kernel(s, ev, max);
		if (n < 0)
			return n;
		now = exi_ticks();
	}
	if (first || !seen)
		n = shim_set_collect(s, ev, n, max, false, n ? &met : NULL, now,
				     looked);
	if (n == 0 && !at_once) {
		n = spin(s, ev, max, deadline, looked);
		now = n ? looked->began : exi_ticks();
		due = kernel_is_due(s, now);
		first = first && asked_lately(s, now);
	}
	if (n == max || (n > 0 && (first || looked->asked || !due)))
		return n;
	if (!first && (n > 0 || at_once)) {
		looked->alone = false;
		k = shim_set_ask_kernel(s, ev + n, max - n);
		if (k < 0)
			return n ? n : k;
		n += k;
	}
	if (n)
		return n;
	exi_lock(&s->lock);
	*ret_stirs = s->stirs;
	exi_unlock(&s->lock);
	return shim_set_collect(s, ev, 0, max, true, NULL, exi_ticks(), looked);
}

static int sleep_once(struct set *s, struct epoll_event *ev, int max,
		      uint64_t deadline, const sigset_t *mask, uint32_t stirs)
{
	if (!prepare(s, stirs))
		return -EAGAIN;
	return shim_set_take(s, s->fd, ev, max, until(deadline), mask, true);
}

/* Looks again where another thread may have had the items to settle the set. */
static int look_settled(struct set *s, struct epoll_event *ev, int max)
{
	struct looked looked;
	int n;

	exi_lock(&s->settling);
	n = shim_set_collect(s, ev, 0, max, false, NULL, exi_ticks(), &looked);
	exi_unlock(&s->settling);
	return n;
}

/* seen: as of wait_once(). */
static __attribute__((noinline)) int
wait_managed(struct set *s, struct epoll_event *ev, int max, uint64_t deadline,
	     bool at_once, const sigset_t *mask, bool seen)
{
	EXI_CANCEL_OFF(true);
	struct looked looked;
	uint32_t stirs = 0, met;
	int n;

	if (!seen) /* else that look called it */
		exi_signals_begin();
	for (;; seen = false) {
		looked = (struct looked){ 0 };
		if (exi_unlikely(s->lost))
			shim_set_find_lost(s);
		n = wait_once(s, ev, max, deadline, at_once, seen, &stirs,
			      &looked);
		if (exi_unlikely(!n && at_once && s->outer))
			n = look_settled(s, ev, max);
		if (n || at_once)
			break;
		looked.alone = false;
		met = s->met;
		n = s->outer && shim_set_settle(s) ? -EAGAIN
		    : exi_signals_came(false)
			    ? -EINTR
			    : sleep_once(s, ev, max, deadline, mask, stirs);
		/* Items with a wake-up that came together with this event, or
		 * before it. */
		if (n > 0 && n < max && s->n_active)
			n = shim_set_collect(s, ev, n, max, true, &met,
					     exi_ticks(), &looked);
		if (n > 0 || (n < 0 && n != -EAGAIN && n != -ETIMEDOUT))
			break;
		at_once = n == -ETIMEDOUT ||
			  until(deadline) == 0; /* a last look */
	}
	if (s->outer)
		shim_set_settle(s);
	else if (s->n_active && !looked.alone)
		pass_on(s);
	return n;
}

/* The time limit of a call: at once, none, or ns. */
struct limit {
	bool at_once;
	bool none;
	uint64_t ns; /* else */
};

static inline uint64_t deadline_of(const struct limit *l)
{
	return l->none || l->at_once ? 0 : exi_now_ns() + l->ns;
}

static inline struct limit limit_of(int ms)
{
	return (struct limit){ .at_once = ms == 0,
			       .none = ms < 0,
			       .ns = (uint64_t)(uint32_t)ms * 1000000u };
}

/* Looks, if nothing else is due first. In most waits this finds an event, and
 * no deadline is needed. 0: nothing found; *ret_seen: it has looked. */
static inline int look_first(struct set *s, struct epoll_event *ev, int max,
			     bool *ret_seen)
{
	struct looked looked;
	uint64_t now;
	int n;

	*ret_seen = false;
	if (exi_unlikely(
		    s->lost || s->filled || s->outer ||
		    atomic_load_explicit(&exi_cancels, memory_order_relaxed)))
		return 0;
	now = exi_ticks();
	if (exi_unlikely(kernel_is_due(s, now)))
		return 0;
	exi_signals_begin();
	n = shim_set_collect(s, ev, 0, max, false, NULL, now, &looked);
	/* The set may have been added to another set, or waited on by another
	 * call, during the look. Either `outer` is seen here, or the thread
	 * that settles the set after storing it sees the items that the look
	 * put back among the active ones, under the set's lock. */
	if (exi_likely(n > 0) && exi_unlikely(s->outer))
		shim_set_settle(s);
	else if (exi_likely(n > 0) && s->n_active &&
		 exi_unlikely(!looked.alone))
		pass_on(s);
	*ret_seen = true;
	return n;
}

/* The return value of a hook for a set with managed items. Not inline: the hook
 * then saves no registers for sets that the kernel serves. */
static __attribute__((noinline)) int wait_ready(struct set *s,
						struct epoll_event *ev, int max,
						int ms, const sigset_t *mask)
{
	struct limit limit;
	bool seen;

	return (int)shim_result(({
		int n = look_first(s, ev, max, &seen);

		if (exi_unlikely(!n)) {
			limit = limit_of(ms);
			n = wait_managed(s, ev, max, deadline_of(&limit),
					 limit.at_once, mask, seen);
		}
		n;
	}));
}

/* Notes a wait for a number before the sleep, for a set that is made meanwhile;
 * see shim_set_make(). */
static __attribute__((noinline)) void note_wait(int epfd)
{
	if ((uint32_t)epfd >= shim_epoll_n)
		return;
	atomic_store(&shim_epoll_awaited[epfd], true);
	atomic_thread_fence(memory_order_seq_cst);
}

static inline bool noted(int epfd)
{
	return (uint32_t)epfd >= shim_epoll_n ||
	       atomic_load_explicit(&shim_epoll_awaited[epfd],
				    memory_order_relaxed);
}

static inline bool attended(const struct set *s)
{
	return atomic_load_explicit(&s->attended, memory_order_acquire);
}

/* Inline: after a system call, each return costs twenty times as much as a
 * test. */
static inline __attribute__((always_inline)) int
any_wait(struct set *s, int epfd, struct epoll_event *ev, int max,
	 const struct limit *limit, const sigset_t *mask)
{
	bool at_once = limit->at_once;
	struct looked looked;
	uint64_t now, deadline = 0;
	int n, ms = at_once ? 0 : -1;

	if (!limit->none && !at_once) {
		now = exi_now_ns();
		deadline = now + limit->ns;
		ms = exi_ms_between(now, deadline);
	}
	if (exi_unlikely(s ? !attended(s) : !noted(epfd))) {
		note_wait(epfd);
		s = shim_set_of(epfd);
		if (s)
			shim_set_attend(s);
	}
	if (s && exi_unlikely(s->nests))
		shim_set_settle_inner(s, 0, true);
	/* The kernel alone serves the set until a connection has met its peer's
	 * library. */
	while (!s || s->n_managed == 0) {
		bool counts = !at_once && (uint32_t)epfd < shim_epoll_n;
		uint32_t met = s ? s->met : 0;

		if (counts)
			atomic_fetch_add(shim_set_strangers(epfd), 1);
		s = shim_set_of(epfd);
		if (s && s->n_managed)
			n = 0; /* since it looked */
		else if (s)
			n = shim_set_take(s, epfd, ev, max, ms, mask, false);
		else if ((n = shim_set_ask(epfd, ev, max, ms, mask)) <= 0)
			n = n < 0 ? -errno : -ETIMEDOUT;
		else if ((s = shim_set_of(epfd))) /* the first in the set */
			n = shim_set_absorb(s, ev, n);
		if (counts)
			atomic_fetch_sub(shim_set_strangers(epfd), 1);
		/* A connection met meanwhile, and has bytes that came before
		 * these events. */
		if (n > 0 && n < max && s && exi_unlikely(s->n_active))
			n = shim_set_collect(s, ev, n, max, true, &met,
					     exi_ticks(), &looked);
		if (n && s && exi_unlikely(s->n_active) && !s->outer)
			pass_on(s);
		if (n)
			return n == -ETIMEDOUT ? 0 : n;
		if (s->n_managed)
			break;
		if (!at_once)
			ms = until(deadline);
		if (ms == 0)
			return 0;
	}
	return wait_managed(s, ev, max, deadline, at_once, mask, false);
}

/* Whether there is a set with connections that only the library watches, and
 * nothing else is due first. */
static inline bool is_ready(const struct set *s)
{
	return s && attended(s) &&
	       !atomic_load_explicit(&s->nests, memory_order_acquire) &&
	       atomic_load_explicit(&s->n_managed, memory_order_seq_cst);
}

/* EVENTS_MAX: the most events that the kernel returns at a time. */
#define EVENTS_MAX (INT_MAX / (int)sizeof(struct epoll_event))

static inline __attribute__((always_inline)) int
any_pwait(int epfd, struct epoll_event *ev, int max, int ms,
	  const sigset_t *mask)
{
	struct limit limit;
	struct set *s;

	/* A set that the library does not know is waited for here, too: that
	 * may change while this thread sleeps. */
	if (max <= 0 || max > EVENTS_MAX || !ev)
		return native.epoll_pwait(epfd, ev, max, ms, mask);
	s = shim_set_of(epfd);
	if (is_ready(s))
		return wait_ready(s, ev, max, ms, mask);
	limit = limit_of(ms);
	return (int)shim_result(any_wait(s, epfd, ev, max, &limit, mask));
}

HOOK int epoll_pwait(int epfd, struct epoll_event *ev, int max, int ms,
		     const sigset_t *mask)
{
	if (exi_unlikely(
		    atomic_load_explicit(&shim_gone, memory_order_relaxed)))
		return native.epoll_pwait(epfd, ev, max, ms, mask);
	return any_pwait(epfd, ev, max, ms, mask);
}

HOOK int epoll_wait(int epfd, struct epoll_event *ev, int max, int ms)
{
	if (exi_unlikely(
		    atomic_load_explicit(&shim_gone, memory_order_relaxed)))
		return native.epoll_wait(epfd, ev, max, ms);
	return any_pwait(epfd, ev, max, ms, NULL);
}

HOOK int epoll_pwait2(int epfd, struct epoll_event *ev, int max,
		      const struct timespec *t, const sigset_t *mask)
{
	struct limit limit;

	if (exi_unlikely(
		    atomic_load_explicit(&shim_gone, memory_order_relaxed)))
		return native.epoll_pwait2(epfd, ev, max, t, mask);
	if (max <= 0 || max > EVENTS_MAX || !ev ||
	    (t && !exi_timespec_valid(t)))
		return (int)shim_result(-EINVAL);
	limit.at_once = t && !t->tv_sec && !t->tv_nsec;
	limit.none = !t;
	limit.ns = t ? exi_timespec_ns(t) : 0;
	return (int)shim_result(
		any_wait(shim_set_of(epfd), epfd, ev, max, &limit, mask));
}
