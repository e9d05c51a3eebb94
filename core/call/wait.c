/* SPDX-License-Identifier: BSD-2-Clause */
/* Spin, arm, recheck, sleep.
 *
 * On a fabric a sleeper watches two words at once (futex_waitv): the word that
 * the peer will change (the next record, or its count of freed space), and the
 * kick word of the socket, which every change of state in this process
 * increments. Under the direction's lock it (1) loads the kick word, (2) looks
 * at the state, (3) takes the address and value of the peer's word, (4) arms,
 * which publishes the request for a wake-up and looks at the ring once more;
 * then it releases the lock and sleeps while both words are unchanged.
 *
 *   peer publishes before (4)'s look   the look finds it: no sleep
 *   peer publishes after               its load of the request comes after its
 *                                      store, so it sees the request and
 *                                      wakes; if this thread does not sleep
 *                                      yet, the word is not what (3) saw,
 *                                      and the kernel does not sleep
 *   state changes before (2)           (2) sees it
 *   state changes after                the kick word differs from (1)
 *
 * On TCP the kernel wakes the thread; where a switch can come meanwhile
 * (linked), a poll on the descriptor and an eventfd of the thread replaces the
 * plain call.
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
#include <sys/socket.h>
#include <time.h>

#include "core/base/cancel.h"
#include "core/base/config.h"
#include "core/base/futex.h"
#include "core/base/lock.h"
#include "core/base/probe.h"
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

/* The access to a device takes as long as a look at its result, so each of many
 * looks after one access counts half. */
#define LOOKS_FAR 8

/* Looks at words that change only when the device is polled. */
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

/* Whether only the peer's word can end the wait in this state. A process that
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

/* For a stream whose ends both share their CPUs with other threads, but not the
 * same CPU: every byte comes from the other CPU's cache, and as neither end
 * sleeps, the scheduler leaves them where they are. A write to a UNIX socket
 * wakes its reader so that it may move to the writer's CPU; a futex does not.
 * So such an end sleeps until the doorbell for a while. Small messages would
 * lose more by the system calls. */
#define STREAM	16384 /* bytes between two waits */
#define CROSSED 16    /* sleeps */

void exi_look_begin_locked(struct exi_call *c)
{
	struct exi_sock *sk = c->sk;
	struct exi_shared *sh = sk->sh;
	struct exi_half *h = &sh->half[c->dir];
	struct exi_look *l = &c->look;
	int peer;

	EXI_LOCKED(&h->lock);
	if (h->mode != EXI_MODE_RING || !sk->fab)
		return;
	kick_word(sh, c->dir, &l->words[0]);
	if (!quiet(sh, c->dir))
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
	sk->fab->wops->word(sk->fab, c->dir, &l->words[1]);
	l->poll = sk->fab->wops->poll ? sk->fab : NULL;
	l->patience = l->poll ? l->poll->wops->patience(l->poll) : 0;
	if (l->poll && l->budget != EXI_SPIN_YIELD)
		l->budget *= l->patience;
	exi_sock_look_locked(sk, c->dir, 1);
	l->on = true;
}

/* A call that looks or sleeps without the lock. It undoes its state if its
 * thread is cancelled or a handler jumps out of it, or a close would wait for
 * the call for ever. The socket stays valid meanwhile. */
struct looker {
	struct exi_call *c;
	struct exi_half *h;
	int type; /* of the thread's cancellation, before a sleep */
};

static void look_left(void *arg)
{
	struct looker *l = arg;

	exi_lock(&l->h->lock);
	exi_sock_look_locked(l->c->sk, l->c->dir, -1);
	exi_half_unlock(l->h);
}

void exi_look_spin(struct exi_call *c)
{
	struct looker who = { .c = c, .h = &c->sk->sh->half[c->dir] };
	struct exi_look *l = &c->look;
	struct exi_section ends;

	exi_section_begin(&ends, look_left, &who);
	if (l->budget == EXI_SPIN_YIELD)
		l->good = exi_spin_yield(either_changed, l->words, &l->hit) &&
			  l->hit;
	else
		l->good = l->hit = spin(l);
	exi_section_end(&ends, false);
}

static void look_end_locked(struct exi_call *c, struct exi_half *h)
{
	struct exi_look *l = &c->look;

	EXI_LOCKED(&h->lock);
	exi_sock_look_locked(c->sk, c->dir, -1);
	exi_spin_result(&h->spin, l->good);
	if (exi_unlikely(l->away && l->stream))
		exi_spin_set(&h->crossed, CROSSED);
	h->spins += l->hit;
	l->on = false;
}

/* --- a sleep on words ----------------------------------------------------- */

/* Requests a wake-up: at the peer's word if a thread can sleep on two words,
 * else by the doorbell. */
static bool arm_words_locked(struct exi_call *c, struct exi_shared *sh)
{
	struct exi_half *h = &sh->half[c->dir];
	struct exi_sock *sk = c->sk;
	bool word = exi_futex_waitv_works();

	EXI_LOCKED(&h->lock);
	kick_word(sh, c->dir, &c->look.words[0]);
	if (!quiet(sh, c->dir) || !sk->fab)
		return false;
	sk->fab->wops->word(sk->fab, c->dir, &c->look.words[1]);
	if (sk->fab->wops->arm(sk->fab, c->dir,
			       word ? EXI_WAKE_WORD : EXI_WAKE_BELL))
		return false;
	exi_stats_sleeps_locked(h);
	EXI_PROBE2(sleep, sk->tcp->fd, c->dir);
	exi_sock_look_locked(sk, c->dir, 1);
	c->resting = true;
	c->armed = sk->fab;
	return true;
}

static void rest_end_locked(struct exi_call *c, struct exi_half *h)
{
	struct exi_conn *fab = c->sk->fab;

	EXI_LOCKED(&h->lock);
	exi_sock_look_locked(c->sk, c->dir, -1);
	/* A connection that met again has another fabric, which others
	 * armed. */
	if (exi_futex_waitv_works() && fab && fab == c->armed)
		fab->wops->disarm(fab, c->dir, EXI_WAKE_WORD);
	c->resting = false;
}

static void rest_left(void *arg)
{
	struct looker *l = arg;

	pthread_setcanceltype(l->type, NULL);
	exi_lock(&l->h->lock);
	rest_end_locked(l->c, l->h);
	exi_half_unlock(l->h);
	exi_unseen_restart();
}

/* exi_call_lock(), which the next attempt calls anyway, disarms. */
static int rest(struct exi_call *c)
{
	struct looker who = { .c = c, .h = &c->sk->sh->half[c->dir] };
	unsigned int words = exi_futex_waitv_works() ? 2 : 1;
	struct exi_section ends;
	int ret;

	exi_section_begin(&ends, rest_left, &who);
	exi_cancel_allow();
	/* For the C library this is no cancellation point. */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &who.type);
	ret = exi_futex_wait(c->look.words, words, NULL);
	pthread_setcanceltype(who.type, NULL);
	exi_cancel_forbid();
	exi_section_end(&ends, false);
	exi_unseen_restart();
	return ret;
}

static int wait_ring(struct exi_call *c)
{
	struct exi_shared *sh;
	bool armed;

	if (!c->resting) {
		if (!exi_call_lock(c, &sh))
			return -EBADF;
		armed = arm_words_locked(c, sh);
		exi_half_unlock(&sh->half[c->dir]);
		if (!armed)
			return 0;
	}
	return rest(c);
}

/* How many more sleeps must wait for the doorbell; 0: none. Between processes a
 * doorbell takes longer than a word. */
static uint32_t bell_sleeps(const struct exi_call *c, struct exi_half *h)
{
	return atomic_load_explicit(&c->sk->sh->several, memory_order_relaxed)
		       ? 0
		       : exi_spin_get(&h->crossed);
}

void exi_wait_arm_locked(struct exi_call *c)
{
	struct exi_shared *sh = c->sk->sh;
	struct exi_half *h = &sh->half[c->dir];

	EXI_LOCKED(&h->lock);
	/* A peek may wait for more bytes than are there. */
	if (c->known && !c->deadline && h->mode == EXI_MODE_RING &&
	    !(c->flags & (MSG_DONTWAIT | MSG_PEEK)) && !bell_sleeps(c, h))
		arm_words_locked(c, sh);
}

bool exi_call_lock(struct exi_call *c, struct exi_shared **ret)
{
	struct exi_sock *sk = c->sk;
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *h = &sh->half[c->dir];

	exi_lock(&h->lock);
	/* The socket may have been closed, and stays valid until this. */
	if (c->look.on)
		look_end_locked(c, h);
	if (c->resting)
		rest_end_locked(c, h);
	if (exi_likely(exi_sock_is(sk, c->fd) &&
		       exi_sock_lasts(sk, c->generation) &&
		       exi_sock_shared(sk) == sh)) {
		*ret = sh;
		return true;
	}
	exi_half_unlock(h);
	return false;
}

void exi_wait_quit(struct exi_call *c)
{
	struct exi_half *h = &c->sk->sh->half[c->dir];

	if (!c->resting)
		return;
	exi_lock(&h->lock);
	rest_end_locked(c, h);
	exi_half_unlock(h);
	exi_unseen_restart();
}

/* --- on TCP ------------------------------------------------------------- */

static short event_of(enum exi_dir dir)
{
	return dir == EXI_RX ? POLLIN : POLLOUT;
}

/* A sleeping thread causes no fault. */
static bool of_a_fault(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE ||
	       sig == SIGILL || sig == SIGTRAP || sig == SIGSYS;
}

/* The result after a signal ended a sleep in poll. Such a sleep is not
 * restarted, while a call without a time-out is restarted after handlers with
 * SA_RESTART: 0 then. It is unknown which handler ran, so all must have that
 * flag. */
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

/* Without an eventfd, the call looks again now and then. */
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
	/* The socket may have been forgotten; it stays valid until this. */
	exi_lock(&t->h->lock);
	exi_sock_unwait_locked(t->sk, t->dir, &t->w.w);
	exi_unlock(&t->h->lock);
}

static int wait_tcp(struct exi_call *c)
{
	struct exi_sock *sk = c->sk;
	enum exi_dir dir = c->dir;
	struct tcp_rest t = { .w = { .w.wake = exi_poller_wake,
				     .event_fd = exi_poller_fd() } };
	struct exi_section ends;
	struct pollfd p[2] = {
		{ .fd = c->fd, .events = event_of(dir) },
		{ .fd = t.w.event_fd, .events = POLLIN },
	};
	struct timespec left, *timeout = NULL;
	struct exi_shared *sh;
	bool kicked = true; /* when the state changes */
	uint64_t deadline = c->deadline;
	int ret, err;

	if (t.w.event_fd < 0)
		p[1].fd = -1;
	if (!exi_call_lock(c, &sh))
		return -EBADF;
	if (dir == EXI_RX && exi_resume_keeps_locked(sk))
		p[0].fd = -1;
	if (sh->half[dir].mode == EXI_MODE_RING || sh->half[dir].err) {
		exi_half_unlock(&sh->half[dir]);
		return 0;
	}
	sh->half[dir].sleeps++;
	EXI_PROBE2(sleep, sk->tcp->fd, dir);
	if (t.w.event_fd >= 0)
		exi_sock_wait_locked(sk, dir, &t.w.w);
	exi_half_unlock(&sh->half[dir]);
	/* Without an eventfd, it looks again now and then. */
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
		err = interrupted(c->deadline);
	exi_cancel_forbid();
	exi_section_end(&ends, true);
	if (p[1].revents)
		exi_poller_drain();
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

static void bell_rest_ends(void *arg)
{
	struct bell_rest *r = arg;

	if (r->armed)
		exi_ready_disarm(r->sk, r->fd, event_of(r->dir));
	exi_lock(&r->h->lock);
	exi_sock_unwait_locked(r->sk, r->dir, &r->w.w);
	exi_unlock(&r->h->lock);
}

/* Returns true if nothing new is there, and the peer will send a wake-up when
 * something is. */
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

/* A handler ends a call with a time-out even if it has SA_RESTART. The kernel
 * itself restarts a sleep on several words, but not poll. Bytes that are there
 * already change no word. */
static int wait_bell(struct exi_call *c, size_t seen)
{
	struct exi_sock *sk = c->sk;
	enum exi_dir dir = c->dir;
	uint64_t deadline = c->deadline;
	struct bell_rest r = {
		.w = { .w.wake = exi_poller_wake, .event_fd = exi_poller_fd() },
		.sk = sk,
		.fd = c->fd,
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
	if (!exi_call_lock(c, &sh))
		return -EBADF;
	r.h = &sh->half[dir];
	if (!quiet(sh, dir)) {
		exi_half_unlock(r.h);
		return 0;
	}
	exi_stats_sleeps_locked(r.h);
	EXI_PROBE2(sleep, r.sk->tcp->fd, r.dir);
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
	exi_poller_serve();
	return ret == -EINTR ? interrupted(deadline) : ret;
}

int exi_wait(struct exi_call *c)
{
	struct exi_half *h = &c->sk->sh->half[c->dir];
	uint32_t bells;

	if (c->resting)
		return wait_ring(c);
	if (h->mode != EXI_MODE_RING)
		return wait_tcp(c);
	bells = bell_sleeps(c, h);
	if (bells)
		exi_spin_set(&h->crossed, bells - 1);
	return c->deadline || bells ? wait_bell(c, 0) : wait_ring(c);
}

int exi_wait_more(struct exi_call *c, size_t seen)
{
	if (c->sk->sh->half[EXI_RX].mode == EXI_MODE_RING)
		return wait_bell(c, seen);
	/* On the way to the fabric or back the kernel only reports bytes that
	 * are there. */
	return nap(c->deadline);
}
