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
#include "core/transfer/lanes.h"
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
/* Looks at the own events for each look at those of other threads. */
#define ASIDE 32

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
void exi_queue_leave_hot(struct exi_queue *q)
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

struct ticked {
	bool active, seldom;
};

static void tick_member(struct exi_queue *q, struct ticked *t)
{
	uint32_t visits;

	if (atomic_load(&q->n_hot) == 0)
		return;
	visits = atomic_load(&q->visits);
	/* A sleeper that did not return since the last tick does not
	 * count. */
	if (atomic_load(&q->attended)) {
		t->active = t->active || q->sleepers == 0 ||
			    visits != q->visits_ticked;
		q->visits_ticked = visits;
		return;
	}
	t->active = true;
	t->seldom = t->seldom ||
		    visits - q->visits_seen < (uint32_t)(OFTEN * tick_ms);
	if (visits != q->visits_seen) {
		q->visits_seen = visits;
		return;
	}
	exi_queue_leave_hot(q);
}

/* A tick takes tens of microseconds from a program that uses all CPUs, and
 * finds nothing while the program visits its queues all the time: then the time
 * until the next tick is doubled. If such a program then computes, its progress
 * is made after about as long, or twice TICK_MAX. On a CPU that other threads
 * want, each tick also ends a time slice early, so ticks are rare there:
 * progress has to wait for time slices anyway. */
int exi_queue_tick(void)
{
	struct ticked t = { 0 };
	struct exi_queue *m;
	int i, cpu = exi_cpu();

	for (i = 0; i < EXI_QUEUES_MAX; i++) {
		struct exi_queue *q = atomic_load(&exi_queues[i]);

		if (!q)
			break;
		for (int k = 0; (m = exi_lanes_member(q, k)); k++)
			tick_member(m, &t);
	}
	idle_ticks = t.active ? 0 : idle_ticks + 1;
	tick_ms = t.seldom || !t.active ? 1 : tick_ms * 2;
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

/* Whether threads have lanes of the queue. */
static bool shares(const struct exi_queue *q)
{
	return atomic_load_explicit(&q->root->family.n_lanes,
				    memory_order_relaxed) != 0;
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
	unsigned int n;
};

/* Looks at the events of other threads only now and then: those take them
 * soon, and their lines stay with them. */
static bool look_aside(struct look *l)
{
	return exi_unlikely(shares(l->q)) && ++l->n % ASIDE == 0 &&
	       exi_lanes_ready(l->q);
}

/* Looks for a peer that shares this CPU, and runs between two looks: polls no
 * device. */
static bool look_again(void *arg)
{
	struct look *l = arg;

	return stirred(l->q, l->v, l->need) || look_aside(l);
}

static bool look_far(void *arg)
{
	struct look *l = arg;

	poll_far(l->v);
	return stirred(l->q, l->v, l->need) || look_aside(l);
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

/* The thread is among the sleepers of each member of the queue. Returns how
 * many words it sleeps on for that. */
static int count_in(struct exi_queue *q, struct exi_word *words)
{
	struct exi_queue *m;
	int n;

	/* The root first, see lanes.h. */
	for (n = 0; (m = exi_lanes_member(q, n)); n++) {
		exi_lock(&m->lock);
		m->sleepers++;
		words[n].addr = (const uint32_t *)&m->word;
		/* Before the last looks: every completion, every new hot
		 * direction and every request to let go changes the word. */
		words[n].value =
			atomic_load_explicit(&m->word, memory_order_seq_cst);
		exi_unlock(&m->lock);
	}
	return n;
}

static void count_out(struct exi_queue *q, int n)
{
	while (n-- > 0) {
		struct exi_queue *m = exi_lanes_member(q, n);

		exi_lock(&m->lock);
		m->sleepers--;
		exi_unlock(&m->lock);
	}
}

static int sleep_once(struct exi_queue *q, struct view *v, int need,
		      uint64_t deadline)
{
	struct timespec until = exi_ns_timespec(deadline);
	struct exi_word words[EXI_QUEUE_HOT + 1 + EXI_LANES_MAX];
	int ret, n = count_in(q, words + v->n);

	ret = arm(v, words);
	if (ret == 0 && !stirred(q, v, need) &&
	    (need > 1 || n == 1 || !exi_lanes_ready(q)))
		ret = exi_futex_wait(words, (unsigned int)(v->n + n),
				     deadline ? &until : NULL);
	count_out(q, n);
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
	bool hit, looked = false;
	int ret = 0;

	for (;; looked = true) {
		if (exi_queue_taker.n >= need ||
		    atomic_load_explicit(&q->ready, memory_order_acquire) >=
			    need)
			return 0;
		if (exi_unlikely(shares(q))) {
			if (need > 1) /* of all together */
				exi_lanes_end(q->root);
			else if (looked && exi_lanes_ready(q))
				return 0;
		}
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

/* The events of this thread's queue, otherwise those of other threads. */
static int collect(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
		   int max)
{
	int n = exi_queue_taker.n;

	if (!n || atomic_load_explicit(&q->ready, memory_order_relaxed) != 0)
		n += exi_queue_take_events(q, h, ev + n, max - n);
	if (!n && exi_unlikely(shares(q)))
		n = exi_queue_take_others(q, h, ev, max, false);
	return n;
}

static int attend(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
		  int want, const struct timeval *timeout)
{
	int need = want < 0 ? -want : 1, max = want < 0 ? -want : want;
	uint64_t deadline = 0;
	int err, ret;

	if (need > q->depth)
		return -EINVAL;
	if (max == 0)
		return 0;
	if (timeout)
		deadline = exi_now_ns() + 1 + exi_timeval_ns(timeout);
	do {
		/* With several threads at once, each leaves events to the
		 * others, too. */
		exi_queue_taker =
			(struct exi_queue_taker){ .q = need == 1 ? q : NULL,
						  .handle = h,
						  .ev = ev,
						  .max = max };
		if (is_zero(timeout)) {
			poll_hot(q);
			err = atomic_load(&q->deleted) ? -EINVAL : -ETIMEDOUT;
		} else {
			err = await(q, need, deadline);
		}
		exi_queue_taker.q = NULL;
		if (err && err != -ETIMEDOUT)
			return exi_queue_taker.n ? exi_queue_taker.n : err;
		ret = collect(q, h, ev, max);
		/* Another thread may have taken what there was. */
	} while (!ret && !err);
	return ret;
}

/* At some visits: takes the events that nobody comes for. */
static int take_left(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
		     int want)
{
	return shares(q) && want > 0 &&
			       atomic_load_explicit(&q->visits,
						    memory_order_relaxed) %
					       EXI_LANES_LOOK ==
				       0
		       ? exi_queue_take_others(q, h, ev, want, true)
		       : 0;
}

static int visit(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
		 int want, const struct timeval *timeout)
{
	int ret;

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

static void count_visit(struct exi_queue *q)
{
	atomic_store_explicit(
		&q->visits,
		atomic_load_explicit(&q->visits, memory_order_relaxed) + 1,
		memory_order_relaxed);
}

/* exi_queue_dequeue() where threads have lanes. */
static __attribute__((noinline)) int
dequeue_shared(struct exi_queue *root, exs_qhandle_t h, exs_event_t *ev,
	       int want, const struct timeval *timeout)
{
	struct exi_queue *q = exi_lanes_own(root, h);
	int ret;

	count_visit(q);
	ret = take_left(q, h, ev, want);
	if (!ret)
		ret = take_ready(q, h, ev, want, timeout);
	if (!ret)
		ret = take_at_once(q, h, ev, want, timeout);
	if (ret)
		return ret;
	ret = visit(q, h, ev, want, timeout);
	/* A lane may end. */
	return ret == -EINVAL && q != root ? visit(root, h, ev, want, timeout)
					   : ret;
}

int exi_queue_dequeue(exs_qhandle_t h, exs_event_t *ev, int want,
		      const struct timeval *timeout)
{
	struct exi_queue *root = exi_queue_at(h);
	int ret;

	if (!root || want > EXS_EVTVEC_MAX || want < -EXS_EVTVEC_MAX)
		return -EINVAL;
	if (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0 ||
			timeout->tv_usec >= 1000000))
		return -EINVAL;
	if (exi_unlikely(shares(root)))
		return dequeue_shared(root, h, ev, want, timeout);
	count_visit(root);
	ret = take_ready(root, h, ev, want, timeout);
	if (!ret)
		ret = take_at_once(root, h, ev, want, timeout);
	return ret ? ret : visit(root, h, ev, want, timeout);
}
