/* SPDX-License-Identifier: BSD-2-Clause */
/* Spin, arm, recheck, sleep.
 *
 * On a fabric a sleeper watches two words at once (futex_waitv): the word that
 * the peer will change (the next record, or its count of freed space), and the
 * kick word of the socket, which every change of state in this process
 * increments. Under the direction's lock it (1) loads the kick word, (2) looks
 * at the state, (3) takes the address and value of the peer's word, (4) arms,
 * which publishes the wish to be woken and looks at the ring once more; then
 * it lets the lock go and sleeps while both words are what they were.
 *
 *   peer publishes before (4)'s look   the look finds it: no sleep
 *   peer publishes after               its load of the wish comes after its
 *                                      store, so it sees the wish and wakes;
 *                                      if we are not asleep yet, the word is
 *                                      not what (3) saw and the kernel does
 *                                      not sleep
 *   state changes before (2)           we see it
 *   state changes after                the kick word differs from (1)
 *
 * On TCP the kernel wakes us; where a switch can come meanwhile (greeting), a
 * poll on the descriptor and an eventfd of the thread replaces the bare call.
 */
#include "core/call/wait.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>

#include "core/base/cancel.h"
#include "core/base/config.h"
#include "core/base/futex.h"
#include "core/base/lock.h"
#include "core/base/spin.h"
#include "core/base/util.h"
#include "core/call/poller.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/sock/watch.h"
#include "core/transfer/resume.h"

static bool changed(const struct exi_word *w)
{
	return __atomic_load_n(w->addr, __ATOMIC_RELAXED) != w->value;
}

static inline bool either_changed(void *arg)
{
	const struct exi_word *w = arg;

	return changed(&w[0]) || changed(&w[1]);
}

/* The way to a device takes as long as a look at it, so that many looks on one
 * way count as half as many. */
#define LOOKS_FAR 8

/* A look at words that the device changes when it is polled. */
static bool look_far(void *arg)
{
	struct exi_look *l = arg;

	l->poll->wops->poll(l->poll, LOOKS_FAR);
	return either_changed(l->words);
}

static bool spin(struct exi_look *l)
{
	struct exi_spinner s;
	bool ret;

	exi_spin_begin(&s);
	s.patience = l->patience;
	if (exi_unlikely(l->poll)) {
		s.weight = LOOKS_FAR / 2;
		ret = exi_spin_run(&s, l->budget, 0, look_far, l);
	} else {
		ret = exi_spin_run(&s, l->budget, 0, either_changed, l->words);
	}
	l->away = s.away;
	return ret || either_changed(l->words);
}

/* Nothing but the peer's word can end the wait in this state. A process that
 * ends sets `ended` without the lock. */
static bool quiet(struct exi_shared *sh, enum exi_dir dir)
{
	struct exi_half *h = &sh->half[dir];

	return h->mode == EXI_MODE_RING && !h->err && !h->broken &&
	       !__atomic_load_n(&h->ended, __ATOMIC_RELAXED) &&
	       !atomic_load(&sh->gone) &&
	       (dir == EXI_TX || !atomic_load(&sh->rx_fin));
}

static void kick_word(struct exi_shared *sh, enum exi_dir dir,
		      struct exi_word *ret)
{
	ret->addr = (const uint32_t *)&sh->kick[dir];
	/* Before the look at the state: pairs with exi_sock_wake_all(). */
	ret->value = atomic_load_explicit(&sh->kick[dir], memory_order_seq_cst);
}

/* As long as a copy of a few kilobytes. */
#define LOOKS_HELD 32

bool exi_look_held_locked(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_spin *s = &h->spin;
	struct exi_word w;

	EXI_LOCKED(&h->lock);
	if (exi_spin_get(&s->skip) || !exi_config()->spin_us ||
	    sk->fab->wops->poll ||
	    sk->fab->wops->peer_cpu(sk->fab) == exi_cpu())
		return false;
	sk->fab->wops->word(sk->fab, dir, &w);
	for (int i = 0; !changed(&w); i++) {
		if (i == LOOKS_HELD)
			return false;
		exi_pause();
	}
	h->looked = h->bytes;
	if (exi_unlikely(exi_spin_get(&s->failed) | exi_spin_get(&s->backoff)))
		exi_spin_result(s, true);
	h->spins++;
	return true;
}

/* The ends of a stream that both share their CPUs with others, but not the
 * same: every byte comes out of the other CPU's cache, and as nobody sleeps,
 * the system leaves them where they are. What is written to a UNIX socket wakes
 * its reader as one that may come to the writer's CPU; a futex does not. So
 * such an end sleeps until the bell for a while. Small messages would lose more
 * by the calls. */
#define STREAM	16384 /* bytes between two waits */
#define CROSSED 16    /* sleeps */

void exi_look_begin_locked(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_look *l)
{
	struct exi_shared *sh = sk->sh;
	struct exi_half *h = &sh->half[dir];
	int peer;

	EXI_LOCKED(&h->lock);
	if (h->mode != EXI_MODE_RING || !sk->fab)
		return;
	kick_word(sh, dir, &l->words[0]);
	if (!quiet(sh, dir))
		return;
	peer = sk->fab->wops->peer_cpu(sk->fab);
	if (exi_unlikely(exi_spin_get(&h->crossed))) {
		if (peer != exi_cpu())
			return;
		exi_spin_set(&h->crossed, 0);
	}
	l->stream = peer >= 0 && h->bytes - h->looked >= STREAM;
	h->looked = h->bytes;
	l->budget = exi_spin_budget(&h->spin, peer);
	if (!l->budget)
		return;
	l->away = false;
	sk->fab->wops->word(sk->fab, dir, &l->words[1]);
	l->poll = sk->fab->wops->poll ? sk->fab : NULL;
	l->patience = l->poll ? l->poll->wops->patience(l->poll) : 0;
	if (l->poll && l->budget != EXI_SPIN_YIELD)
		l->budget *= l->patience;
	exi_sock_look_locked(sk, dir, 1);
	l->on = true;
}

struct looker {
	struct exi_sock *sk;
	struct exi_half *h;
	enum exi_dir dir;
};

/* A close would wait for it for ever. */
static void look_left(void *arg)
{
	struct looker *l = arg;

	exi_lock(&l->h->lock);
	exi_sock_look_locked(l->sk, l->dir, -1);
	exi_half_unlock(l->h);
}

void exi_look_spin(struct exi_sock *sk, enum exi_dir dir, struct exi_look *l)
{
	struct looker who = { sk, &sk->sh->half[dir], dir };
	struct exi_section ends;

	exi_section_begin(&ends, look_left, &who);
	if (l->budget == EXI_SPIN_YIELD)
		l->good = exi_spin_yield(either_changed, l->words, &l->hit) &&
			  l->hit;
	else
		l->good = l->hit = spin(l);
	exi_section_end(&ends, false);
}

void exi_look_end_locked(struct exi_sock *sk, enum exi_dir dir,
			 struct exi_look *l)
{
	struct exi_half *h = &sk->sh->half[dir];

	EXI_LOCKED(&h->lock);
	exi_sock_look_locked(sk, dir, -1);
	exi_spin_result(&h->spin, l->good);
	if (exi_unlikely(l->away && l->stream))
		exi_spin_set(&h->crossed, CROSSED);
	h->spins += l->hit;
	l->on = false;
}

/* A sleep on words, and what ends with it, also when the thread is cancelled.
 */
struct rest {
	struct exi_sock *sk;
	struct exi_half *h;
	enum exi_dir dir;
	bool word; /* the provider's was armed */
	int type;  /* of the thread's cancellation, before */
};

static void rest_ends(void *arg)
{
	struct rest *r = arg;

	pthread_setcanceltype(r->type, NULL);
	exi_lock(&r->h->lock);
	exi_sock_look_locked(r->sk, r->dir, -1);
	if (r->word && r->sk->fab)
		r->sk->fab->wops->disarm(r->sk->fab, r->dir, EXI_WAKE_WORD);
	exi_half_unlock(r->h);
	exi_unseen_restart();
}

static int rest(struct rest *r, const struct exi_word *w)
{
	struct exi_section ends;
	int ret;

	exi_section_begin(&ends, rest_ends, r);
	exi_cancel_allow();
	/* The C library does not know that this sleeps. */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &r->type);
	ret = exi_futex_wait(w, r->word ? 2 : 1, NULL);
	exi_cancel_forbid();
	exi_section_end(&ends, true);
	return ret;
}

static int wait_ring(struct exi_sock *sk, int fd, enum exi_dir dir)
{
	struct rest r = { .sk = sk,
			  .dir = dir,
			  .word = exi_futex_waitv_works() };
	struct exi_word w[2];
	struct exi_shared *sh;
	struct exi_half *h;
	int ret = -EBUSY;

	if (!exi_sock_lock(sk, fd, dir, &sh))
		return -EBADF;
	r.h = h = &sh->half[dir];
	kick_word(sh, dir, &w[0]);
	if (quiet(sh, dir) && sk->fab) {
		sk->fab->wops->word(sk->fab, dir, &w[1]);
		ret = sk->fab->wops->arm(
			sk->fab, dir, r.word ? EXI_WAKE_WORD : EXI_WAKE_BELL);
		if (ret == 0)
			exi_stats_sleeps_locked(h);
	}
	if (ret == 0)
		exi_sock_look_locked(sk, dir, 1);
	exi_half_unlock(h);
	return ret ? 0 : rest(&r, w);
}

/* --- on TCP ------------------------------------------------------------- */

/* A thread that sleeps does none. */
static bool of_a_fault(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE ||
	       sig == SIGILL || sig == SIGTRAP || sig == SIGSYS;
}

/* No sleep in poll is restarted, as that of a call without a time-out is after
 * handlers that were installed so: 0 then. Which one ran is not known, so all
 * must be. */
static int interrupted(uint64_t deadline)
{
	bool restarts = false;
	struct sigaction a;

	for (int s = 1; s < NSIG && !deadline; s++) {
		if (of_a_fault(s) || sigaction(s, NULL, &a) < 0 ||
		    a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN)
			continue;
		if (!(a.sa_flags & SA_RESTART))
			return -EINTR;
		restarts = true;
	}
	return restarts ? 0 : -EINTR;
}

/* Without a descriptor to be woken by, one looks again now and then. */
static int nap(uint64_t deadline)
{
	uint64_t soon = exi_now_ns() + EXI_UNKICKED_NS;
	struct timespec t = { .tv_nsec = EXI_UNKICKED_NS };

	if (ppoll(NULL, 0, &t, NULL) < 0)
		return interrupted(deadline);
	return deadline && deadline <= soon ? -ETIMEDOUT : 0;
}

/* The state of a sleep in poll, for when the sleep is cancelled. */
struct tcp_rest {
	struct exi_poller w;
	struct exi_sock *sk;
	struct exi_half *h;
	enum exi_dir dir;
};

static void tcp_rest_ends(void *arg)
{
	struct tcp_rest *t = arg;

	if (t->w.event_fd < 0)
		return;
	/* The socket may have been forgotten; it is kept until this. */
	exi_lock(&t->h->lock);
	exi_sock_unwait_locked(t->sk, t->dir, &t->w.w);
	exi_unlock(&t->h->lock);
}

static int wait_tcp(struct exi_sock *sk, int fd, enum exi_dir dir,
		    uint64_t deadline)
{
	struct tcp_rest t = { .w = { .w.wake = exi_poller_wake,
				     .event_fd = exi_poller_fd() } };
	struct exi_section ends;
	struct pollfd p[2] = {
		{ .fd = fd, .events = dir == EXI_RX ? POLLIN : POLLOUT },
		{ .fd = t.w.event_fd, .events = POLLIN },
	};
	struct timespec left, *timeout = NULL;
	struct exi_shared *sh;
	bool kicked = true; /* when the state changes */
	uint64_t limit = deadline;
	eventfd_t drained;
	int ret, err;

	if (t.w.event_fd < 0)
		p[1].fd = -1;
	if (!exi_sock_lock(sk, fd, dir, &sh))
		return -EBADF;
	if (dir == EXI_RX && exi_resume_keeps_locked(sk))
		p[0].fd = -1;
	if (sh->half[dir].mode == EXI_MODE_RING || sh->half[dir].err) {
		exi_half_unlock(&sh->half[dir]);
		return 0;
	}
	sh->half[dir].sleeps++;
	if (t.w.event_fd >= 0)
		exi_sock_wait_locked(sk, dir, &t.w.w);
	exi_half_unlock(&sh->half[dir]);
	/* Without a descriptor to be kicked by, it looks again now and then. */
	if (t.w.event_fd < 0 &&
	    (!deadline || deadline > exi_now_ns() + EXI_UNKICKED_NS))
		kicked = false;
	if (!kicked)
		deadline = exi_now_ns() + EXI_UNKICKED_NS;
	if (deadline) {
		left = exi_time_left(deadline);
		timeout = &left;
	}
	t.sk = sk;
	t.h = &sh->half[dir];
	t.dir = dir;
	exi_section_begin(&ends, tcp_rest_ends, &t);
	exi_cancel_allow();
	ret = ppoll(p, 2, timeout, NULL);
	err = ret < 0 ? -errno : ret == 0 && kicked ? -ETIMEDOUT : 0;
	if (err == -EINTR)
		err = interrupted(limit);
	exi_cancel_forbid();
	exi_section_end(&ends, true);
	if (p[1].revents)
		eventfd_read(t.w.event_fd, &drained);
	return err;
}

/* A sleep in poll while the direction is on a fabric. */
struct bell_rest {
	struct exi_poller w;
	struct exi_sock *sk;
	struct exi_half *h;
	enum exi_dir dir;
	int fd;
	bool armed;
};

static short event_of(enum exi_dir dir)
{
	return dir == EXI_RX ? POLLIN : POLLOUT;
}

static void bell_rest_ends(void *arg)
{
	struct bell_rest *r = arg;

	if (r->armed)
		exi_ready_disarm(r->sk, r->fd, event_of(r->dir));
	exi_lock(&r->h->lock);
	exi_sock_unwait_locked(r->sk, r->dir, &r->w.w);
	exi_unlock(&r->h->lock);
}

/* Nothing new is there, and the peer sends a wake-up when something is. */
static bool arm_bell(struct bell_rest *r, size_t seen)
{
	struct exi_ready now;

	r->armed = exi_ready_arm(r->sk, r->fd, event_of(r->dir), seen > 0, 0);
	if (!r->armed)
		return false;
	if (!seen)
		return true;
	return exi_ready_look(r->sk, r->fd, POLLRDHUP, &now) && !now.now &&
	       exi_ready_unread(r->sk, r->fd) <= (int)seen;
}

/* A handler ends a call with a time-out though it was installed to restart
 * calls; the kernel restarts a sleep on several words by itself, but no poll.
 * Bytes that are there already change no word. */
static int wait_bell(struct exi_sock *sk, int fd, enum exi_dir dir, size_t seen,
		     uint64_t deadline)
{
	struct bell_rest r = {
		.w = { .w.wake = exi_poller_wake, .event_fd = exi_poller_fd() },
		.sk = sk,
		.fd = fd,
		.dir = dir,
	};
	struct timespec left, *timeout = NULL;
	struct exi_section ends;
	struct exi_shared *sh;
	struct pollfd p;
	bool hears;
	int ret = 0;

	if (r.w.event_fd < 0)
		return nap(deadline);
	if (!exi_sock_lock(sk, fd, dir, &sh))
		return -EBADF;
	r.h = &sh->half[dir];
	if (!quiet(sh, dir)) {
		exi_half_unlock(r.h);
		return 0;
	}
	exi_stats_sleeps_locked(r.h);
	exi_sock_wait_locked(sk, dir, &r.w.w);
	exi_half_unlock(r.h);
	if (deadline) {
		left = exi_time_left(deadline);
		timeout = &left;
	}
	hears = exi_poller_hears(sk);
	exi_section_begin(&ends, bell_rest_ends, &r);
	if (arm_bell(&r, seen)) {
		exi_cancel_allow();
		ret = exi_poller_sleep(&p, 0, hears, timeout, NULL);
		exi_cancel_forbid();
	}
	exi_section_end(&ends, true);
	exi_poller_heed();
	return ret == -EINTR ? interrupted(deadline) : ret;
}

int exi_wait(struct exi_sock *sk, int fd, enum exi_dir dir, uint64_t deadline)
{
	struct exi_half *h = &sk->sh->half[dir];
	uint32_t crossed = exi_spin_get(&h->crossed);

	if (h->mode != EXI_MODE_RING)
		return wait_tcp(sk, fd, dir, deadline);
	/* Between processes a bell has a longer way. */
	if (atomic_load_explicit(&sk->sh->several, memory_order_relaxed))
		crossed = 0;
	if (crossed)
		exi_spin_set(&h->crossed, crossed - 1);
	return deadline || crossed ? wait_bell(sk, fd, dir, 0, deadline)
				   : wait_ring(sk, fd, dir);
}

int exi_wait_more(struct exi_sock *sk, int fd, size_t seen, uint64_t deadline)
{
	if (sk->sh->half[EXI_RX].mode == EXI_MODE_RING)
		return wait_bell(sk, fd, EXI_RX, seen, deadline);
	/* On its way to the fabric or back: the kernel tells of what is there
	 * only. */
	return nap(deadline);
}
