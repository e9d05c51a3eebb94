/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits for the events of a queue. */
#include "core/call/dequeue.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "core/base/busy.h"
#include "core/base/fds.h"
#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/probe.h"
#include "core/base/spin.h"
#include "core/base/util.h"
#include "core/call/wait.h"
#include "core/fabric/provider.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/transfer/place.h"
#include "core/transfer/progress.h"
#include "core/transfer/queue.h"

/* The number of ticks that find every direction attended before the ticks stop:
 * a restart costs a message as much as one tick. */
#define IDLE_TICKS 3
/* The most milliseconds between ticks; and how often per millisecond a thread
 * visits its queue that does so all the time. */
#define TICK_MAX 4
#define OFTEN	 32

/* A hot direction that a dequeuing thread looks at without its lock; the thread
 * counts among the lookers of its socket meanwhile. */
struct held {
	struct exi_hot hot;
	struct exi_shared *sh;
	struct exi_word word;  /* no address: look with the lock */
	struct exi_conn *poll; /* polled to change the word; null */
	bool armed;
	/* The queue receives from several directions, and the bytes of this one
	 * say when they were sent: they move in order only. */
	bool dated;
	bool found; /* dated, and bytes are there; */
	uint64_t sent;
};

static bool word_changed(const struct exi_word *w)
{
	return __atomic_load_n(w->addr, __ATOMIC_RELAXED) != w->value;
}

static bool is_dated_locked(struct exi_sock *sk, enum exi_dir dir)
{
	const struct exi_half *h = &sk->sh->half[dir];

	EXI_LOCKED(&h->lock);
	return dir == EXI_RX && h->mode == EXI_MODE_RING && sk->fab &&
	       sk->fab->rops->first && !h->err && !atomic_load(&sk->sh->gone) &&
	       !atomic_load(&sk->sh->rx_fin) && !exi_list_empty(&sk->ops[dir]);
}

/* Asks the socket's peer to state when it sends, from now on. */
static void date_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (atomic_load_explicit(&sk->times, memory_order_relaxed))
		return;
	atomic_store_explicit(&sk->times, true, memory_order_relaxed);
	exi_ready_times_locked(sk);
}

/* Returns whether bytes are there, and notes when they were sent. A direction
 * that is no longer dated moves in any order. */
static bool look_at(struct held *h, uint64_t now)
{
	struct exi_sock *sk = h->hot.sk;
	struct exi_first first = { 0 };
	struct exi_shared *sh;

	/* Pairs with the release of the word, see line_up(). */
	if (h->word.addr &&
	    __atomic_load_n(h->word.addr, __ATOMIC_ACQUIRE) == h->word.value)
		return false;
	h->dated = exi_sock_lock(sk, h->hot.fd, EXI_RX, &sh);
	if (!h->dated)
		return false;
	h->dated = is_dated_locked(sk, EXI_RX);
	if (h->dated) {
		date_locked(sk);
		h->found = sk->fab->rops->ready(sk->fab, EXI_RX);
	}
	if (h->found)
		sk->fab->rops->first(sk->fab, now, &first);
	exi_half_unlock(&sh->half[EXI_RX]);
	h->sent = first.sent;
	return h->found;
}

static void insert(const struct held *held, int which, int *order, int n)
{
	for (; n > 0 && held[order[n - 1]].sent > held[which].sent; n--)
		order[n] = order[n - 1];
	order[n] = which;
}

/* Finds which of the n directions have bytes, in the order in which they were
 * sent; returns how many. A record that is written before another one, by the
 * same thread or by one that informs the other, is stored before it. So a
 * thread that has found a record, and looks again, finds all records written
 * before it. It repeats that until it finds nothing more: this is the search of
 * models/order.pml, with at most as many passes as directions. Bytes without a
 * time are older than the request for times. */
static int line_up(struct held *held, int n, int *order)
{
	uint64_t now = exi_ticks();
	int had, pass = 0, found = 0;

	do {
		had = found;
		for (int i = 0; i < n; i++) {
			struct held *h = &held[i];

			if (!h->dated || h->found || !look_at(h, now))
				continue;
			if (!h->sent)
				h->sent = (uint64_t)(n - pass);
			insert(held, i, order, found++);
		}
		pass++;
	} while (found > had && found < n);
	return found;
}

static bool waits(const struct exi_hot *hot)
{
	return atomic_load_explicit(&hot->sk->n_ops[hot->dir],
				    memory_order_relaxed) &&
	       atomic_load(&hot->sk->fd) == hot->fd;
}

/* Whether there is more than one direction to receive from. */
static bool several(const struct exi_hot *hot, int n)
{
	int rx = 0;

	for (int i = 0; i < n; i++)
		rx += hot[i].dir == EXI_RX;
	return rx > 1;
}

/* Moves the bytes of the n directions in their order. */
static void move_in_order(const struct exi_hot *hot, int n)
{
	struct held held[EXI_QUEUE_HOT];
	int order[EXI_QUEUE_HOT];
	int i, found;

	for (i = 0; i < n; i++)
		held[i] = (struct held){ .hot = hot[i],
					 .dated = hot[i].dir == EXI_RX &&
						  waits(&hot[i]) };
	found = line_up(held, n, order);
	for (i = 0; i < found; i++)
		exi_flow_progress(hot[order[i]].sk, EXI_RX);
	for (i = 0; i < n; i++)
		if (!held[i].dated && waits(&hot[i]))
			exi_flow_progress(hot[i].sk, hot[i].dir);
}

static void poll_hot(struct exi_queue *q)
{
	struct exi_hot hot[EXI_QUEUE_HOT];
	int n = exi_queue_copy_hot(q, hot, false);

	if (exi_unlikely(several(hot, n))) {
		move_in_order(hot, n);
		return;
	}
	for (int i = 0; i < n; i++)
		if (waits(&hot[i]))
			exi_flow_progress(hot[i].sk, hot[i].dir);
}

/* Called when no thread polls any more: asks the peers for wake-ups. If the
 * order matters, it asks before the search, so that everything that the search
 * does not find causes a wake-up. */
static void leave_hot(struct exi_queue *q)
{
	struct exi_hot hot[EXI_QUEUE_HOT];
	int i, n = exi_queue_copy_hot(q, hot, true);
	struct exi_shared *sh;

	if (!several(hot, n)) {
		while (n-- > 0)
			exi_flow_progress(hot[n].sk, hot[n].dir);
		return;
	}
	for (i = 0; i < n; i++) {
		struct exi_sock *sk = hot[i].sk;

		if (!exi_sock_lock(sk, hot[i].fd, hot[i].dir, &sh))
			continue;
		if (is_dated_locked(sk, hot[i].dir))
			exi_flow_arm_locked(sk, hot[i].dir);
		exi_half_unlock(&sh->half[hot[i].dir]);
	}
	move_in_order(hot, n);
}

static int idle_ticks;
static int tick_ms = 1;

/* A tick takes tens of microseconds from a program that uses all CPUs, and
 * finds nothing while the program visits its queues all the time: then the time
 * until the next tick is doubled. If such a program then computes, its progress
 * is made after about as long, or twice TICK_MAX. On a CPU that other threads
 * want, each tick also ends a time slice early, so ticks are rare there:
 * progress has to wait for time slices anyway. */
int exi_queue_tick(void)
{
	bool active = false, seldom = false;
	int i, cpu = exi_cpu();
	uint32_t visits;

	for (i = 0; i < EXI_QUEUES_MAX; i++) {
		struct exi_queue *q = atomic_load(&exi_queues[i]);

		if (!q)
			break;
		if (atomic_load(&q->n_hot) == 0)
			continue;
		visits = atomic_load(&q->visits);
		/* A sleeper that did not return since the last tick does not
		 * count. */
		if (atomic_load(&q->attended)) {
			active = active || q->sleepers == 0 ||
				 visits != q->visits_ticked;
			q->visits_ticked = visits;
			continue;
		}
		active = true;
		seldom = seldom ||
			 visits - q->visits_seen < (uint32_t)(OFTEN * tick_ms);
		if (visits != q->visits_seen) {
			q->visits_seen = visits;
			continue;
		}
		leave_hot(q);
	}
	idle_ticks = active ? 0 : idle_ticks + 1;
	tick_ms = seldom || !active ? 1 : tick_ms * 2;
	if (tick_ms > TICK_MAX || exi_busy_wanted(cpu) || exi_busy_dear(cpu))
		tick_ms = TICK_MAX;
	return idle_ticks < IDLE_TICKS ? tick_ms : 0;
}

struct view {
	struct held held[EXI_QUEUE_HOT];
	int n;
	int idle; /* others, with nothing to wait for */
	int dated;
	int peer_cpu;
	unsigned int patience; /* of the farthest peer; 0: all are near */
	uint32_t changes;
};

/* Takes hold of the hot directions that wait on a fabric. */
static void hold(struct exi_queue *q, struct view *v)
{
	struct exi_hot hot[EXI_QUEUE_HOT];
	bool in_order;
	int i, n;

	v->changes = atomic_load(&q->hot_changes);
	v->peer_cpu = -1;
	v->patience = 0;
	v->n = v->idle = v->dated = 0;
	n = exi_queue_copy_hot(q, hot, false);
	in_order = several(hot, n);
	for (i = 0; i < n; i++) {
		struct held *h = &v->held[v->n];
		struct exi_sock *sk = hot[i].sk;
		enum exi_dir dir = hot[i].dir;

		if (!exi_sock_lock(sk, hot[i].fd, dir, &h->sh))
			continue;
		if (exi_list_empty(&sk->ops[dir])) {
			v->idle++;
		} else if (h->sh->half[dir].mode == EXI_MODE_RING && sk->fab) {
			exi_sock_look_locked(sk, dir, 1);
			sk->fab->wops->word(sk->fab, dir, &h->word);
			h->found = false;
			h->dated = in_order && is_dated_locked(sk, dir);
			if (h->dated)
				date_locked(sk);
			v->dated += h->dated;
			/* A thread that looks before it sleeps must see bytes
			 * that are there already, and so must one whose
			 * submission left them there. */
			if ((q->wait == EXS_WAIT_BUSY_POLL || h->dated) &&
			    sk->fab->rops->ready(sk->fab, dir))
				h->word.value = ~__atomic_load_n(
					h->word.addr, __ATOMIC_RELAXED);
			h->poll = sk->fab->wops->poll ? sk->fab : NULL;
			if (h->poll &&
			    sk->fab->wops->patience(sk->fab) > v->patience)
				v->patience = sk->fab->wops->patience(sk->fab);
			v->peer_cpu = sk->fab->wops->peer_cpu(sk->fab);
			h->hot = hot[i];
			h->armed = false;
			v->n++;
		}
		exi_half_unlock(&h->sh->half[dir]);
	}
}

/* Polls the words that change only when polled. The lookers keep them valid. */
static void poll_far(const struct view *v)
{
	for (int i = 0; i < v->n; i++)
		if (exi_unlikely(v->held[i].poll))
			v->held[i].poll->wops->poll(v->held[i].poll, 1);
}

/* Whether something is there, or the view is out of date. */
static bool stirred(struct exi_queue *q, const struct view *v, int need)
{
	int i;

	for (i = 0; i < v->n; i++)
		if (word_changed(&v->held[i].word))
			return true;
	/* hot_changes is behind `sleepers`, against view_changed(). */
	return atomic_load_explicit(&q->ready, memory_order_relaxed) >= need ||
	       atomic_load(&q->hot_changes) != v->changes ||
	       atomic_load_explicit(&q->deleted, memory_order_relaxed);
}

struct look {
	struct exi_queue *q;
	const struct view *v;
	int need;
};

/* Looks for a peer that shares this CPU, and runs between two looks: polls no
 * device. */
static bool look_again(void *arg)
{
	struct look *l = arg;

	return stirred(l->q, l->v, l->need);
}

static bool look_far(void *arg)
{
	struct look *l = arg;

	poll_far(l->v);
	return stirred(l->q, l->v, l->need);
}

/* In ns; UINT64_MAX: without a limit. */
static uint64_t spin_budget(struct exi_queue *q, const struct view *v)
{
	if (q->wait == EXS_WAIT_NOTIFY)
		return 0;
	if (q->wait == EXS_WAIT_BUSY_POLL)
		return UINT64_MAX;
	return v->n ? exi_spin_budget(&q->spin, v->peer_cpu) : 0;
}

static bool spin(struct exi_queue *q, const struct view *v, int need,
		 uint64_t deadline)
{
	struct look look = { .q = q, .v = v, .need = need };
	uint64_t budget = spin_budget(q, v);
	struct exi_spinner s;

	exi_spin_begin(&s);
	s.patience = v->patience;
	if (budget == EXI_SPIN_YIELD)
		return exi_spin_look(&q->spin, &s, budget, deadline, look_again,
				     &look);
	if (v->patience && budget != UINT64_MAX)
		budget *= v->patience;
	return exi_spin_look(&q->spin, &s, budget, deadline, look_far, &look);
}

/* Asks the peers for wake-ups. -EBUSY: something can move already. */
static int arm(struct view *v, struct exi_word *words)
{
	int i, ret = 0;

	for (i = 0; i < v->n && !ret; i++) {
		struct held *h = &v->held[i];
		struct exi_sock *sk = h->hot.sk;
		enum exi_dir dir = h->hot.dir;
		struct exi_shared *sh;

		words[i] = h->word;
		if (!exi_sock_lock(sk, h->hot.fd, dir, &sh))
			return -EBUSY;
		/* The direction may have left the fabric since. The next bytes
		 * there may then belong to its return, of which this thread
		 * does not know. */
		ret = sh != h->sh || !sk->fab ||
				      sh->half[dir].mode != EXI_MODE_RING
			      ? -EBUSY
			      : sk->fab->wops->arm(sk->fab, dir,
						   exi_place_waits(sk, dir)
							   ? EXI_WAKE_WORD_REAP
							   : EXI_WAKE_WORD);
		if (ret == 0) {
			h->armed = true;
			sh->half[dir].sleeps++;
			EXI_PROBE2(sleep, sk->tcp->fd, dir);
			if (atomic_load(&sh->gone) || atomic_load(&sh->rx_fin))
				ret = -EBUSY;
		}
		exi_half_unlock(&sh->half[dir]);
	}
	return ret;
}

static int sleep_once(struct exi_queue *q, struct view *v, int need,
		      uint64_t deadline)
{
	struct timespec until = exi_ns_timespec(deadline);
	struct exi_word words[EXI_QUEUE_HOT + 1];
	int ret;

	exi_lock(&q->lock);
	q->sleepers++;
	words[v->n].addr = (const uint32_t *)&q->word;
	/* Before the last looks: every completion, every new hot direction and
	 * every request to let go changes the word. */
	words[v->n].value =
		atomic_load_explicit(&q->word, memory_order_seq_cst);
	exi_unlock(&q->lock);
	ret = arm(v, words);
	if (ret == 0 && !stirred(q, v, need))
		ret = exi_futex_wait(words, (unsigned int)v->n + 1,
				     deadline ? &until : NULL);
	exi_lock(&q->lock);
	q->sleepers--;
	exi_unlock(&q->lock);
	return ret == -EBUSY ? 0 : ret;
}

static void let_go_of(struct held *h)
{
	struct exi_sock *sk = h->hot.sk;
	enum exi_dir dir = h->hot.dir;

	exi_lock(&h->sh->half[dir].lock);
	if (h->armed && sk->fab)
		sk->fab->wops->disarm(sk->fab, dir, EXI_WAKE_WORD);
	if ((h->dated ? h->found : word_changed(&h->word)) &&
	    atomic_load_explicit(&sk->fd, memory_order_relaxed) == h->hot.fd)
		exi_flow_progress_polled_locked(sk, dir);
	/* Last: the socket stays valid until here. */
	exi_sock_look_locked(sk, dir, -1);
	exi_unlock(&h->sh->half[dir].lock);
}

/* Lets go of the view, and makes progress on directions that changed. */
static void let_go(struct view *v)
{
	int order[EXI_QUEUE_HOT];
	int i, n = v->dated ? line_up(v->held, v->n, order) : 0;

	for (i = 0; i < n; i++)
		let_go_of(&v->held[order[i]]);
	for (i = 0; i < v->n; i++)
		if (!v->dated || !v->held[i].found)
			let_go_of(&v->held[i]);
}

/* Whether every hot direction is in the view, or idle: a new operation changes
 * that. */
static bool complete(struct exi_queue *q, const struct view *v)
{
	return v->n + v->idle ==
		       atomic_load_explicit(&q->n_hot, memory_order_relaxed) &&
	       v->changes == atomic_load(&q->hot_changes);
}

static int await(struct exi_queue *q, int need, uint64_t deadline)
{
	struct view v;
	bool hit;
	int ret = 0;

	for (;;) {
		if (exi_queue_taker.n >= need ||
		    atomic_load_explicit(&q->ready, memory_order_acquire) >=
			    need)
			return 0;
		if (atomic_load(&q->deleted))
			return -EINVAL;
		if (ret)
			return ret;
		if (deadline && exi_now_ns() >= deadline)
			return -ETIMEDOUT;
		hold(q, &v);
		hit = spin(q, &v, need, deadline);
		if (!hit)
			ret = sleep_once(q, &v, need, deadline);
		let_go(&v);
		if (!hit || !complete(q, &v))
			poll_hot(q);
	}
}

static bool is_zero(const struct timeval *timeout)
{
	return timeout && timeout->tv_sec == 0 && timeout->tv_usec == 0;
}

/* Takes events that are ready, with one lock; returns how many. 0: the call
 * needs more than that. A call that does not wait makes no progress, so it does
 * not count in `attended`: a hot direction stays with the service, or with
 * threads that count. `attended` keeps the queue from being reused; here the
 * handle, compared under the lock, does that. */
static int take_ready(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
		      int want, const struct timeval *timeout)
{
	if (want <= 0 || is_zero(timeout) ||
	    atomic_load_explicit(&q->ready, memory_order_relaxed) == 0)
		return 0;
	return exi_queue_take_events(q, h, ev, want);
}

/* Takes the event of bytes that a peer sends at once; returns how many; 0: more
 * must be done. A thread that waits for one direction looks with the lock held,
 * as a synchronous receive does, because the view would take longer. It does
 * not sleep, so it does not count in `attended`; a thread that counts, or has
 * the lock, goes first. */
static int take_at_once(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
			int want, const struct timeval *timeout)
{
	enum exi_dir dir;
	int fd;
	struct exi_sock *sk = exi_queue_lone_hot(q, &fd, &dir);
	struct exi_shared *sh;

	if (!sk || dir != EXI_RX || want <= 0 || is_zero(timeout) ||
	    q->wait == EXS_WAIT_NOTIFY || atomic_load(&q->attended) ||
	    !exi_trylock(&(sh = exi_sock_shared(sk))->half[EXI_RX].lock))
		return 0;
	exi_queue_taker = (struct exi_queue_taker){ q, h, ev, want, 0 };
	if (exi_likely(exi_sock_is(sk, fd) && exi_sock_shared(sk) == sh &&
		       !exi_list_empty(&sk->ops[EXI_RX]) && sk->fab &&
		       sh->half[EXI_RX].mode == EXI_MODE_RING &&
		       exi_look_held_locked(sk, EXI_RX)))
		exi_flow_progress_polled_locked(sk, EXI_RX);
	exi_queue_taker.q = NULL;
	exi_half_unlock(&sh->half[EXI_RX]);
	return exi_queue_taker.n;
}

static int attend(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
		  int want, const struct timeval *timeout)
{
	int need = want < 0 ? -want : 1, max = want < 0 ? -want : want;
	uint64_t deadline = 0;
	int ret;

	if (need > q->depth)
		return -EINVAL;
	if (max == 0)
		return 0;
	/* With several threads at once, each leaves events to the others,
	 * too. */
	exi_queue_taker = (struct exi_queue_taker){
		.q = need == 1 ? q : NULL, .handle = h, .ev = ev, .max = max
	};
	if (timeout)
		deadline = exi_now_ns() + 1 + exi_timeval_ns(timeout);
	if (is_zero(timeout)) {
		poll_hot(q);
		ret = atomic_load(&q->deleted) ? -EINVAL : 0;
	} else {
		ret = await(q, need, deadline);
	}
	exi_queue_taker.q = NULL;
	if (ret && ret != -ETIMEDOUT)
		return exi_queue_taker.n ? exi_queue_taker.n : ret;
	if (exi_queue_taker.n &&
	    atomic_load_explicit(&q->ready, memory_order_relaxed) == 0)
		return exi_queue_taker.n;
	return exi_queue_taker.n +
	       exi_queue_take_events(q, h, ev + exi_queue_taker.n,
				     max - exi_queue_taker.n);
}

int exi_queue_dequeue(exs_qhandle_t h, exs_event_t *ev, int want,
		      const struct timeval *timeout)
{
	struct exi_queue *q = exi_queue_at(h);
	int ret;

	if (!q || want > EXS_EVTVEC_MAX || want < -EXS_EVTVEC_MAX)
		return -EINVAL;
	if (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0 ||
			timeout->tv_usec >= 1000000))
		return -EINVAL;
	atomic_store_explicit(
		&q->visits,
		atomic_load_explicit(&q->visits, memory_order_relaxed) + 1,
		memory_order_relaxed);
	ret = take_ready(q, h, ev, want, timeout);
	if (!ret)
		ret = take_at_once(q, h, ev, want, timeout);
	if (ret)
		return ret;
	atomic_fetch_add(&q->attended, 1);
	ret = exi_likely(atomic_load(&q->handle) == h)
		      ? attend(q, h, ev, want, timeout)
		      : -EINVAL;
	/* Directions that stay hot are the service's from here on; pairs with
	 * exi_queue_heat_locked(). */
	if (atomic_fetch_sub(&q->attended, 1) == 1 && atomic_load(&q->n_hot))
		exi_service_tick();
	return ret;
}

int exi_queue_fd(struct exi_queue *q)
{
	int fd;

	exi_lock(&q->lock);
	if (q->qfd < 0) {
		fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		if (fd < 0) {
			exi_unlock(&q->lock);
			return fd;
		}
		q->qfd = fd;
		if (q->n_done)
			eventfd_write(fd, 1);
	}
	fd = q->qfd;
	exi_unlock(&q->lock);
	leave_hot(q);
	return fd;
}

/* The calling thread polls the queue's descriptor, which exists: it stays open
 * until the thread is done, even if the queue is deleted, which makes the
 * descriptor readable. The queue stays valid (exi_queue_get()) meanwhile. */
static int watch(struct exi_queue *q)
{
	int fd;

	exi_lock(&q->lock);
	fd = q->qfd;
	q->watchers++;
	exi_unlock(&q->lock);
	return fd;
}

static void watched(struct exi_queue *q)
{
	int fd = -1;

	exi_lock(&q->lock);
	if (--q->watchers == 0 && atomic_load(&q->deleted)) {
		fd = q->qfd;
		q->qfd = -1;
	}
	exi_unlock(&q->lock);
	exi_fd_close(fd);
}

/* Sleeps with the mask until the queue has events or is deleted; 0 or -errno. A
 * signal that the mask lets through, and that came before, is still pending, so
 * it ends the sleep at once. Only the kernel can change the mask and sleep in
 * one step, and of its sleeps only those on descriptors. */
static int sleep_masked(struct exi_queue *q, const struct timespec *until,
			const sigset_t *mask)
{
	struct timespec left = { 0 };
	struct pollfd p = { .events = POLLIN };
	int ret;

	p.fd = watch(q);
	if (until)
		left = exi_time_left(exi_timespec_ns(until));
	ret = atomic_load(&q->deleted)			     ? -EINVAL
	      : ppoll(&p, 1, until ? &left : NULL, mask) < 0 ? -errno
							     : 0;
	watched(q);
	return ret;
}

/* Events are taken as usual: the descriptor only shows whether there are
 * any. */
static int dequeue_masked(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
			  int want, const struct timespec *until,
			  const sigset_t *mask)
{
	int need = want < 0 ? -want : 1, max = want < 0 ? -want : want, n, ret;
	static const struct timeval no_time;

	n = exi_queue_dequeue(h, ev, want, &no_time);
	if (n < 0 || n >= need || !max)
		return n;
	ret = exi_queue_fd(q);
	if (ret >= 0)
		ret = 0;
	while (!ret && n < need) {
		int more = exi_queue_dequeue(h, ev + n, max - n, &no_time);

		if (more < 0) {
			ret = more;
		} else if (more) {
			n += more;
		} else if (until && exi_now_ns() >= exi_timespec_ns(until)) {
			break;
		} else {
			ret = sleep_masked(q, until, mask);
		}
	}
	return n ? n : ret;
}

int exi_queue_dequeue_until(exs_qhandle_t h, exs_event_t *ev, int want,
			    const struct timespec *until, const sigset_t *mask)
{
	struct exi_queue *q;
	struct timeval tv;
	uint64_t us;
	int ret;

	if (until && !exi_timespec_valid(until))
		return -EINVAL;
	if (mask) {
		q = exi_queue_get(h);
		if (!q)
			return -EINVAL;
		ret = dequeue_masked(q, h, ev, want, until, mask);
		exi_queue_put(q);
		return ret;
	}
	if (!until)
		return exi_queue_dequeue(h, ev, want, NULL);
	us = exi_ns_between(exi_now_ns(), exi_timespec_ns(until));
	us = us / 1000 + (us % 1000 != 0);
	tv = (struct timeval){ .tv_sec = (time_t)(us / 1000000),
			       .tv_usec = (suseconds_t)(us % 1000000) };
	return exi_queue_dequeue(h, ev, want, &tv);
}

int exi_queue_set(struct exi_queue *q, int attr, const void *val, size_t len)
{
	const exs_signal_t *sig = val;
	int v;

	if (!val)
		return -EFAULT;
	if (attr == EXS_QATTR_SIGNAL) {
		if (len != sizeof(*sig) ||
		    (sig->exs_enable != EXS_SIG_ENABLE &&
		     sig->exs_enable != EXS_SIG_DISABLE) ||
		    (sig->exs_enable &&
		     (sig->exs_signo <= 0 || sig->exs_signo > SIGRTMAX)))
			return -EINVAL;
		exi_lock(&q->lock);
		q->signal = *sig;
		exi_unlock(&q->lock);
		if (sig->exs_enable)
			leave_hot(q);
		return 0;
	}
	if (len != sizeof(int))
		return -EINVAL;
	memcpy(&v, val, sizeof(v));
	switch (attr) {
	case EXS_QATTR_DEPTH:
		return exi_queue_deepen(q, v);
	case EXS_QATTR_WAIT:
		if (v < EXS_WAIT_ADAPTIVE || v > EXS_WAIT_BUSY_POLL)
			return -EINVAL;
		q->wait = v;
		return 0;
	default:
		return -EINVAL;
	}
}
