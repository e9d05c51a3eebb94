/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for the events of a queue. */
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

/* Ticks without anything unattended until they stop: to begin again costs a
 * message as much as one of them. */
#define IDLE_TICKS 3
/* Milliseconds between ticks, at most; and how often in one who comes to his
 * queue all the time does. */
#define TICK_MAX 4
#define OFTEN	 32

/* A hot direction that a thread looks at: a dequeuer without its lock; its
 * socket's lookers count us then. */
struct held {
	struct exi_hot hot;
	struct exi_shared *sh;
	struct exi_word word;  /* without an address: look with the lock */
	struct exi_conn *poll; /* for the word to change; null */
	bool armed;
	/* The queue receives from several, and what comes here says when it was
	 * sent: it moves in order only. */
	bool dated;
	bool found; /* of those: something is there, */
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

/* The socket's peer says from now on when it sends. */
static void date_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (atomic_load_explicit(&sk->times, memory_order_relaxed))
		return;
	atomic_store_explicit(&sk->times, true, memory_order_relaxed);
	exi_ready_times_locked(sk);
}

/* Something is there, and this is when it was sent. What is not dated any more
 * moves in any order. */
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

/* Which of the n have something, in the order in which it was sent; how many. A
 * record that is written before another, by the same thread or by one that
 * tells the other, is stored before it. So who found a record finds all that
 * were written before it when he looks again, and he does so until he finds
 * nothing more: that is the search of models/order.pml, with no more passes
 * than there are directions. What does not say when it was sent is from before
 * it was asked to. */
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

/* More than one to receive from. */
static bool several(const struct exi_hot *hot, int n)
{
	int rx = 0;

	for (int i = 0; i < n; i++)
		rx += hot[i].dir == EXI_RX;
	return rx > 1;
}

/* What the n have moves, in its order. */
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

/* No thread polls any more: the peers are to send wake-ups. Where order matters
 * they are asked before the search, so that each thing that the search does not
 * find sends one. */
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

/* Each takes tens of microseconds from a program that uses all CPUs, and finds
 * nothing while it comes to its queues all the time: it is twice as long then
 * until the next. Who did so for a while, and computes then, has his progress
 * made after about that while, or twice TICK_MAX. On a CPU that others want
 * each tick also ends a turn before its time, so there are few: progress waits
 * for turns anyway. */
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
		/* A sleeper that was elsewhere since the last tick will be
		 * elsewhere again. */
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
	int idle; /* others that have nothing to wait for */
	int dated;
	int peer_cpu;
	unsigned int patience; /* of the farthest; 0: all are near */
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
			/* A thread that looks before it sleeps sees what is
			 * there, and so does one for which submission left
			 * it. */
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

/* Words that change only when they are polled. Kept by their lookers. */
static void poll_far(const struct view *v)
{
	for (int i = 0; i < v->n; i++)
		if (exi_unlikely(v->held[i].poll))
			v->held[i].poll->wops->poll(v->held[i].poll, 1);
}

/* Something is there, or the view is out of date. */
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

/* For a peer that shares our CPU, and runs between two looks: no device is
 * polled. */
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

/* ns; UINT64_MAX: as long as it takes. */
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

/* Asks the peers to wake us. -EBUSY: something can move already. */
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
		/* The direction may have left the fabric since; what lies next
		 * there can belong to its return, which this thread has not
		 * heard of. */
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
	/* Before the last looks: every completion, every new hot direction
	 * and every call to let go changes it. */
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
	/* Last: until here the socket is kept. */
	exi_sock_look_locked(sk, dir, -1);
	exi_unlock(&h->sh->half[dir].lock);
}

/* Lets go of the view; what changed there is progressed. */
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

/* Everything that is hot is in the view, or idle: an operation more changes
 * it. */
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

/* Takes events that are ready, with one lock; how many. 0: the call needs more
 * than that. A call that does not wait makes no progress, so it is not counted
 * in `attended`: a direction that is hot stays the service's, or that of the
 * threads that are counted. `attended` keeps the queue from being reused; here
 * the handle, compared with the lock held, does. */
static int take_ready(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
		      int want, const struct timeval *timeout)
{
	if (want <= 0 || is_zero(timeout) ||
	    atomic_load_explicit(&q->ready, memory_order_relaxed) == 0)
		return 0;
	return exi_queue_take_events(q, h, ev, want);
}

/* Takes the event of what a peer sends, if it comes at once; how many, 0: there
 * is more to do. A thread that waits for one direction looks with the lock held
 * as a synchronous receive does: the view would delay that. It does not sleep,
 * so it is not counted in `attended`; who is counted, or has the lock, goes
 * first. */
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
	/* Each of several threads at once leaves what comes to the others
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
	/* What stays hot is the service's from here on; pairs with
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

/* The calling thread polls the queue's descriptor, which is there: it stays
 * open until the thread is done, also if the queue is deleted, which makes it
 * readable. The queue is kept (exi_queue_get()) meanwhile. */
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

/* Sleeps with the mask until the queue has events or is deleted; 0, -errno. A
 * signal that the mask lets through and that came before is still pending, so
 * the kernel ends the sleep at once: only it can do both in one step, and of
 * the sleeps it has that for those on descriptors. */
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

/* Events are taken as they come: the descriptor only says whether there are
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
