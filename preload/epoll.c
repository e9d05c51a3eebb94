/* SPDX-License-Identifier: BSD-2-Clause */
/* epoll sets with connections of the library in them.
 *
 * The kernel's set stays what sleepers sleep in. A connection is registered
 * there as the application asked until it has met its peer's library; from
 * then on its registration is edge-triggered and carries a tag, and the
 * application is told what the connection's state says ("managed"). An eventfd
 * in the set, the nudge, ends sleeps when a fabric has something.
 *
 * A managed item is either active: looked at by each epoll_wait, or armed: its
 * peer rings when there is something, which makes it active. Who is about to
 * sleep arms what is active, so the cost of a call follows what was active
 * since the last sleep, not the number of items.
 *
 * No wake-up is lost: a ring comes as a call of wake(), which makes the item
 * active under the set's lock and then, if somebody sleeps, writes the nudge.
 * Who goes to sleep arms (what came before is seen by arming), then counts
 * himself as a sleeper under the same lock if nothing is active.
 *
 * Connections are told in the order in which they were written to. A record that is
 * written before another (by the same thread, or by one that tells the other) is
 * stored before it, with a full fence between. So a search that found a record, by an
 * acquire of its word, finds all that were written before it when it looks again; and
 * it looks again at all that had nothing, until a pass finds nothing more. Each record
 * says when it was made: nothing later than the last of the first pass is taken from
 * later passes, or there would be no end, and what was found is told by these times. A
 * pass is left out if what was found was made before the pass before it began, which is
 * what a busy server finds. The place of what is told again is when it was told last, so
 * that a peer who lies about times moves none but itself, and never before one that was
 * told less lately. What had no room waits in line, and goes first.
 *
 * What rests has a ring on its way, which the kernel or the service has: a record says
 * how much its process had sent by the kernel before, so who finds a new count looks at
 * what rests (at few: they are looked at one by one), and asks the kernel.
 *
 * What the kernel tells, of a connection that is on TCP or of any other descriptor, has
 * no time but this: the kernel had nothing of it when it was asked before. A record that
 * was made before that is told first. So is one whose process had sent nothing by the
 * kernel since then: a record says when that was (after the call, so what the kernel
 * got before the record is noted by then; but for two threads that ask at once). One
 * whose process had is told behind all that the kernel has. Where no connection is on
 * TCP, the kernel tells of other things, of whose making nothing is known: these are
 * first.
 *
 * Locks, in their order: a socket's link lock, `structure` (which items there
 * are), a socket's halves, a set's lock. */
#include <alloca.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "core/base/cancel.h"
#include "core/base/fds.h"
#include "core/base/heed.h"
#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/signals.h"
#include "core/base/spin.h"
#include "core/base/util.h"
#include "core/call/ready.h"
#include "core/call/unseen.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/meet/latent.h"
#include "core/meet/marker.h"
#include "core/sock/holders.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "preload/shim.h"

/* How long an item is looked at that has nothing, until its peer is asked to
 * ring: in exi_ticks(), and in looks where there are many. */
#define IDLE_TICKS 2000000
#define IDLE_LOOKS 16
#define MANY	   256
/* Where the kernel told nothing so often, it is not asked again for so many
 * exi_ticks() while fabrics have events. */
#define QUIET_ASKS   16
#define KERNEL_TICKS 50000

/* In a tag the low bits are the descriptor, whether it is its link that tells,
 * or an item for one shot which is not managed, and which of its shots; the
 * others the set's prefix. */
#define TAG_BITS  34
#define TAG_MASK  ((UINT64_C(1) << TAG_BITS) - 1)
#define TAG_FD	  ((UINT64_C(1) << 24) - 1)
#define TAG_LINK  (UINT64_C(1) << 24)
#define TAG_SHOT  (UINT64_C(1) << 25)
#define TAG_NTH	  26
#define TAG_NUDGE TAG_FD
#define TAG_SPENT (TAG_SHOT | (TAG_FD - 1)) /* no descriptor's: never told */

#define RX_EVENTS  (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLPRI)
#define TX_EVENTS  (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)
#define OVER	   (EPOLLERR | EPOLLHUP | EPOLLRDHUP)
#define MODE_FLAGS (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP)

/* An item before a look: what comes after the look is told next time. */
struct saw {
	uint64_t came;	  /* edge: bytes that had come */
	uint32_t cramped; /* edge: of the socket */
};

struct item {
	struct exi_list node; /* among the active, those in line, or at rest */
	struct exi_waiter waiter[2];
	bool waits[2]; /* by direction, under its lock */
	struct set *set;
	struct exi_sock *sk;
	uint32_t generation; /* of sk: which socket of its place it is */
	int fd;
	int link; /* its peer's bell, in the kernel's set too; -1 */
	bool listens;
	/* Under the set's lock: */
	uint32_t events;
	epoll_data_t data;
	int refs; /* threads that look at it, and its place in the set */
	bool managed;
	bool dormant; /* managed, and not in the application's set now */
	bool active;  /* also when it is in line */
	bool in_line; /* it had something when looked at last, and was not told */
	bool rests;   /* its peer rings */
	bool held;    /* by a thread that looks at it: no other may */
	bool again;   /* something came meanwhile */
	bool fresh;   /* something came, and no wait has looked since */
	bool counted; /* what came made the set readable, see settle() */
	bool dead;
	uint8_t shots; /* how often it was loaded */
	uint32_t nth;  /* of those that came to be managed, see `met` */
	uint32_t rung; /* edge: who asks for these is told, again if need be */
	/* Its holder looks at these without it: in another word than what others
	 * change then, for compilers read several at once. */
	bool armed; /* its peer was asked to ring, for these: */
	short armed_for;
	bool disabled;	   /* one shot, and shot */
	bool told;	   /* edge: since it was added or changed */
	bool blocked;	   /* edge: could not send when looked at last */
	uint32_t cramped;  /* edge: of the socket, when it was told */
	uint32_t over;	   /* edge: of OVER, when it was told */
	unsigned int idle; /* looks in vain */
	uint64_t busy;	   /* exi_ticks() when it had something */
	uint64_t arrived;  /* edge: bytes that had come when it was told */
	/* And these, in exi_ticks(), and of its peer: */
	uint64_t place;	  /* in the order of what has something; 0: none */
	uint64_t told_at; /* when it was told last */
	int behind;	  /* as many of the kernel's events, and one; or 0: */
	uint64_t since;	  /* and then: see emptied_before */
	uint32_t rings;	  /* that the peer's process had sent, see exi_first */
	uint64_t sent;	  /* and when by the kernel last, */
	uint64_t kernel;  /* of what was found; UINT64_MAX: it does not say */
	bool on_tcp;	  /* when looked at last: the kernel has what it has */
	/* Found in a search: */
	struct item *next;
	struct saw saw;
	uint32_t now;
};

#define SPARES 16 /* items whose memory is kept for the next of a set */

struct set {
	struct exi_lock lock;
	int fd;	   /* one of its numbers */
	int names; /* how many it has; under structure */
	struct item **by_fd;
	int size;
	struct exi_list active;
	struct exi_list line; /* of the active: in the order of their places */
	struct exi_list resting;
	int n_resting;
	/* Read without the lock as hints: */
	_Atomic int n_managed;
	_Atomic int n_active;
	_Atomic int n_fresh;
	uint32_t stirs;	      /* changes whenever something comes */
	_Atomic uint32_t met; /* how many came to be managed */
	int sleepers;
	int arming; /* threads that arm for a sleep */
	int nudge;
	bool nudged; /* the nudge is readable */
	_Atomic int
		n_conns; /* that have bytes, latent ones too; under structure */
	bool timed;	 /* its connections' peers say when they send */
	_Atomic bool lost;  /* what the kernel told of items, see left() */
	_Atomic bool outer; /* its own descriptor is waited on */
	bool inherited;	    /* made before a fork: others may have it */
	_Atomic(struct nest *) nests;
	uint64_t prefix;
	/* Looks at the kernel; hints, the last one wins: */
	_Atomic uint64_t asked; /* exi_ticks() */
	/* Before this it had nothing more than was told; and so at the look before. */
	_Atomic uint64_t emptied;
	_Atomic uint64_t emptied_before;
	_Atomic int quiet;   /* how many in a row told nothing */
	_Atomic bool filled; /* it had more than there was room for */
	struct exi_spin spin;
	struct item *spares[SPARES];
	int n_spares;
};

/* A set that is, or was, in another. */
struct nest {
	struct set *inner;
	struct nest *next;
};

static struct exi_lock structure;

/* Where a latent connection is; under structure. The kernel tells of it, and it is
 * an item from when it wakes. */
struct latent {
	struct set *set; /* null: in none */
	uint64_t prefix; /* which set of this memory */
	uint32_t events;
	epoll_data_t data;
};
static struct latent *latents;
static _Atomic(struct set *) *sets;
static struct set **closed_sets; /* by their last numbers, to be used again */
static uint32_t n_sets;		 /* descriptors that may have one */
static uint32_t high;		 /* above the highest that ever had one */

static struct set *set_of(int epfd)
{
	if ((uint32_t)epfd >= n_sets || !shim_heeds(epfd, EXI_HEED_ANY))
		return NULL;
	return atomic_load_explicit(&sets[epfd], memory_order_acquire);
}

static void unref_locked(struct item *it)
{
	struct set *s = it->set;

	if (--it->refs)
		return;
	if (s->n_spares < SPARES)
		s->spares[s->n_spares++] = it;
	else
		free(it);
}

/* All zero; null. */
static struct item *item_new(struct set *s)
{
	struct item *it = NULL;

	exi_lock(&s->lock);
	if (s->n_spares)
		it = s->spares[--s->n_spares];
	exi_unlock(&s->lock);
	if (!it)
		return calloc(1, sizeof(*it));
	memset(it, 0, sizeof(*it));
	return it;
}

/* The lock is held, which does the rest. */
static void count_locked(_Atomic int *n, int change)
{
	atomic_store_explicit(
		n, atomic_load_explicit(n, memory_order_relaxed) + change,
		memory_order_relaxed);
}

/* --- active items ------------------------------------------------------- */

static void nudge_locked(struct set *s)
{
	if (s->nudge >= 0)
		eventfd_write(s->nudge, 1);
	s->nudged = true;
}

static void calm_locked(struct set *s)
{
	eventfd_t drained;

	if (s->nudge >= 0)
		eventfd_read(s->nudge, &drained);
	s->nudged = false;
}

/* Threads that sleep in it as if it had no connections: not counted among the
 * sleepers of a set, for there may be none. */
static _Atomic int *strangers_of(int epfd)
{
	return &shim_near.strangers[(uint32_t)epfd % SHIM_STRANGERS];
}

static bool others_sleep(const struct set *s)
{
	return s->sleepers > 0 || (s->sleepers == 0 && s->fd >= 0 &&
				   atomic_load(strangers_of(s->fd)));
}

static void stale_locked(struct item *it)
{
	count_locked(&it->set->n_fresh, -it->fresh);
	it->fresh = false;
}

static void off_the_resting_locked(struct item *it)
{
	if (!it->rests)
		return;
	exi_list_del(&it->node);
	it->set->n_resting--;
	it->rests = false;
}

/* Nobody looks at it: its peer rings. */
static void rest_locked(struct item *it)
{
	struct set *s = it->set;

	if (it->dead || it->dormant || it->disabled || !it->managed)
		return;
	exi_list_add_tail(&s->resting, &it->node);
	s->n_resting++;
	it->rests = true;
}

static inline void make_active_locked(struct item *it, struct exi_list *where)
{
	it->active = true;
	it->in_line = where == &it->set->line;
	exi_list_add_tail(where, &it->node);
	count_locked(&it->set->n_active, 1);
}

static void activate_locked(struct item *it)
{
	struct set *s = it->set;

	if (it->dead || it->dormant || !it->managed)
		return;
	s->stirs++;
	it->idle = 0;
	it->busy = exi_ticks();
	count_locked(&s->n_fresh, !it->fresh);
	it->fresh = true;
	if (it->held) { /* its holder makes it active */
		it->again = true;
	} else if (!it->active) {
		off_the_resting_locked(it);
		make_active_locked(it, &s->active);
	}
	if (others_sleep(s) || (s->outer && !it->counted))
		nudge_locked(s);
	it->counted = true;
}

/* A ring may have come that is not heard: it was for all that are active. */
static void unheard_locked(struct set *s)
{
	s->stirs++;
	if (s->n_active && others_sleep(s))
		nudge_locked(s);
}

static void off_the_active_locked(struct item *it)
{
	stale_locked(it);
	unheard_locked(it->set);
	off_the_resting_locked(it);
	if (!it->active)
		return;
	exi_list_del(&it->node);
	count_locked(&it->set->n_active, -1);
	it->active = it->in_line = false;
}

/* The first of a list becomes this thread's; null: it is empty. */
static inline struct item *pop_from_locked(struct set *s, struct exi_list *list)
{
	struct exi_list *node = exi_list_pop(list);
	struct item *it;

	if (!node)
		return NULL;
	it = exi_container(node, struct item, node);
	count_locked(&s->n_active, -it->active);
	s->n_resting -= it->rests;
	it->active = it->in_line = it->rests = false;
	it->refs++;
	it->held = true;
	it->again = false;
	return it;
}

static struct item *pop_locked(struct set *s)
{
	struct item *it = pop_from_locked(s, &s->line);

	return it ? it : pop_from_locked(s, &s->active);
}

/* The lock of direction d is held. */
static void wake(struct item *it, enum exi_dir d)
{
	/* Gone: let go of it, or its memory could not be another's. */
	if (atomic_load(&it->sk->generation) != it->generation ||
	    atomic_load(&it->sk->fd) < 0) {
		it->waits[d] = false;
		exi_sock_unwait(it->sk, d, &it->waiter[d]);
		exi_lock(&it->set->lock);
		unheard_locked(it->set);
		exi_unlock(&it->set->lock);
		return;
	}
	exi_lock(&it->set->lock);
	/* A ring is for both directions; bytes are never counted already. */
	if (d == EXI_RX)
		it->counted = false;
	activate_locked(it);
	exi_unlock(&it->set->lock);
}

static void wake_rx(struct exi_waiter *w)
{
	wake(exi_container(w, struct item, waiter[EXI_RX]), EXI_RX);
}

static void wake_tx(struct exi_waiter *w)
{
	wake(exi_container(w, struct item, waiter[EXI_TX]), EXI_TX);
}

void shim_epoll_rung(struct exi_sock *sk, int fd, uint32_t events)
{
	struct exi_waiter *w, *next;
	struct exi_shared *sh;

	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return;
	for (w = sk->waiters[EXI_RX]; w; w = next) {
		struct item *it = exi_container(w, struct item, waiter[EXI_RX]);

		next = w->next;
		if (w->wake != wake_rx)
			continue;
		exi_lock(&it->set->lock);
		it->rung |= events;
		exi_unlock(&it->set->lock);
		wake_rx(w);
	}
	exi_half_unlock(&sh->half[EXI_RX]);
}

/* --- items -------------------------------------------------------------- */

/* The number by which its connection is known: its own may have been closed,
 * while the connection has another. */
static int number(const struct item *it)
{
	return atomic_load(&it->sk->generation) == it->generation
		       ? atomic_load(&it->sk->fd)
		       : -1;
}

/* Whether its own is still one of the connection's. */
static bool named(const struct item *it)
{
	return number(it) >= 0 && exi_sock_is(it->sk, it->fd);
}

static uint32_t interest(const struct item *it)
{
	return it->events & ~(uint32_t)MODE_FLAGS;
}

static void listen_to(struct item *it)
{
	static void (*const calls[])(struct exi_waiter *) = { wake_rx,
							      wake_tx };
	struct exi_shared *sh;

	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		it->waiter[d].wake = calls[d];
		if (!exi_sock_lock(it->sk, number(it), d, &sh))
			continue;
		exi_sock_wait(it->sk, d, &it->waiter[d]);
		it->waits[d] = true;
		exi_half_unlock(&sh->half[d]);
	}
}

static void stop_listening(struct item *it)
{
	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		/* Kept while we are among its waiters. */
		struct exi_half *h = &exi_sock_shared(it->sk)->half[d];

		exi_lock(&h->lock);
		if (it->waits[d])
			exi_sock_unwait(it->sk, d, &it->waiter[d]);
		it->waits[d] = false;
		exi_half_unlock(h);
	}
}

static bool room_for(struct set *s, int fd)
{
	int size = s->size ? s->size : 64;
	struct item **by_fd;

	while (size <= fd)
		size *= 2;
	if (size == s->size)
		return true;
	by_fd = calloc((size_t)size, sizeof(*by_fd));
	if (!by_fd)
		return false;
	exi_lock(&s->lock);
	if (s->size)
		memcpy(by_fd, s->by_fd, (size_t)s->size * sizeof(*by_fd));
	free(s->by_fd);
	s->by_fd = by_fd;
	s->size = size;
	exi_unlock(&s->lock);
	return true;
}

static struct item *item_of(struct set *s, int fd)
{
	return s && fd >= 0 && fd < s->size ? s->by_fd[fd] : NULL;
}

static int add_nudge(struct set *s)
{
	struct epoll_event ev = { .events = EPOLLIN,
				  .data.u64 = s->prefix | TAG_NUDGE };

	if (s->nudge >= 0)
		return 0;
	s->nudge = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (s->nudge >= 0 &&
	    native.epoll_ctl(s->fd, EPOLL_CTL_ADD, s->nudge, &ev) < 0) {
		exi_fd_close(s->nudge);
		s->nudge = -1;
	}
	return s->nudge < 0 ? -EMFILE : 0;
}

/* The peer of a connection that is alone in its set need not say when it sends;
 * structure is held. */
static void want_times(struct set *s)
{
	if (s->timed || s->n_conns < 2 || !s->n_managed)
		return;
	s->timed = true;
	for (int i = 0; i < s->size; i++)
		if (s->by_fd[i] && s->by_fd[i]->managed)
			exi_ready_want_times(s->by_fd[i]->sk,
					     number(s->by_fd[i]));
}

/* What the kernel tells of a managed item, whatever the application wants to
 * know of it: that something changed on TCP. Not in a set that is itself waited
 * on, for the kernel tells of the set what it tells of its items. */
static struct epoll_event tagged(const struct item *it)
{
	uint32_t events = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLOUT;

	if (it->set->outer)
		events &= it->dormant ? 0 : interest(it);
	return (struct epoll_event){
		.events = events | EPOLLET,
		.data.u64 = it->set->prefix | (uint32_t)it->fd,
	};
}

/* And of one that is not managed: what the application wants. That the only
 * shot of one was fired must be known when it comes to be managed, so it has a
 * tag, too. */
static struct epoll_event wanted(const struct item *it)
{
	struct epoll_event ret = { .events = it->events, .data = it->data };

	if (it->events & EPOLLONESHOT)
		ret.data.u64 = it->set->prefix | TAG_SHOT |
			       (uint64_t)it->shots << TAG_NTH |
			       (uint32_t)it->fd;
	return ret;
}

static int watch_link(int fd, void *arg)
{
	const struct item *it = arg;
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLET | EPOLLEXCLUSIVE,
		.data.u64 = it->set->prefix | TAG_LINK | (uint32_t)it->fd,
	};

	return native.epoll_ctl(it->set->fd, EPOLL_CTL_ADD, fd, &ev) < 0
		       ? -errno
		       : 0;
}

/* epoll_ctl(2) on an item whose number may have been closed, while the kernel
 * keeps it: it has the number for a moment, unless something else has. */
static int control(const struct item *it, int op, struct epoll_event *ev)
{
	int ret = -1, fd;

	if (exi_likely(named(it)))
		return native.epoll_ctl(it->set->fd, op, it->fd, ev);
	fd = native.fcntl64(number(it), F_DUPFD_CLOEXEC, it->fd);
	if (fd == it->fd)
		ret = native.epoll_ctl(it->set->fd, op, fd, ev);
	if (fd >= 0)
		native.close(fd);
	return ret;
}

/* Also of one that cannot be changed, being exclusive, and of one whose number
 * got another file. */
static void renew(const struct item *it, struct epoll_event *ev)
{
	if (control(it, EPOLL_CTL_MOD, ev) == 0)
		return;
	control(it, EPOLL_CTL_DEL, NULL);
	control(it, EPOLL_CTL_ADD, ev);
}

/* structure is held, and the link lock. */
static void manage(struct item *it)
{
	struct set *s = it->set;
	struct epoll_event ev = tagged(it);

	if (it->managed || add_nudge(s))
		return;
	renew(it, &ev);
	/* A ring wakes the thread here without a detour; where that is refused,
	 * the service is the detour. */
	it->link = s->outer ? -1 : exi_link_share(it->sk, watch_link, it);
	exi_lock(&s->lock);
	it->managed = true;
	s->met++;
	it->nth = s->met;
	it->rung = RX_EVENTS;
	count_locked(&s->n_managed, 1);
	activate_locked(it);
	nudge_locked(s); /* who sleeps as if there were none looks again */
	exi_unlock(&s->lock);
	if (s->timed)
		exi_ready_want_times(it->sk, number(it));
	else
		want_times(s);
}

/* structure is held; with linked, the link lock, and the link is there. */
static void remove_item(struct item *it, bool linked)
{
	struct set *s = it->set;

	/* Unless it closed, and the number is another's. */
	if (linked && it->link >= 0 &&
	    it->link == exi_ready_bell(it->sk, number(it)))
		native.epoll_ctl(s->fd, EPOLL_CTL_DEL, it->link, NULL);
	stop_listening(it);
	exi_lock(&s->lock);
	s->by_fd[it->fd] = NULL;
	s->n_conns -= !it->listens;
	it->dead = true;
	off_the_active_locked(it);
	count_locked(&s->n_managed, -it->managed);
	unref_locked(it);
	exi_unlock(&s->lock);
}

/* The first item of a connection in any set; structure is held. */
static struct item *first_item(struct exi_sock *sk, int fd, bool unmanaged)
{
	struct item *ret = NULL;
	struct exi_waiter *w;
	struct exi_shared *sh;

	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return NULL;
	for (w = sk->waiters[EXI_RX]; w && !ret; w = w->next) {
		struct item *it;

		if (w->wake != wake_rx)
			continue;
		it = exi_container(w, struct item, waiter[EXI_RX]);
		if (!unmanaged || !it->managed)
			ret = it;
	}
	exi_half_unlock(&sh->half[EXI_RX]);
	return ret;
}

/* Where no nudge could be made, the connection stays on TCP; and where a
 * process has the set that was forked before, and would not know. */
static void met(struct exi_sock *sk)
{
	bool shared = atomic_load(&sk->sh->holders.n) > 1;
	int fd = atomic_load(&sk->fd);
	struct item *it;

	exi_lock(&structure);
	while ((it = first_item(sk, fd, true))) {
		if (!shared)
			manage(it);
		if (!it->managed) {
			atomic_store(&sk->sh->hold_here, 1);
			break;
		}
	}
	exi_unlock(&structure);
}

void shim_epoll_forget(struct exi_sock *sk, int fd)
{
	bool alone = exi_holders_alone(&sk->sh->holders);
	struct item *it;

	exi_lock(&sk->link_lock);
	exi_lock(&structure);
	while ((it = first_item(sk, fd, false))) {
		/* What remains is the kernel's, as the application wants it. */
		struct epoll_event ev = { .events = it->events,
					  .data = it->data };

		/* To who has both, too, the kernel would tell what it should not:
		 * of room where a ring is full, and all else twice. */
		if (it->set->inherited && !alone) {
			remove_item(it, false);
			continue;
		}
		if (it->disabled)
			ev.events &= MODE_FLAGS;
		/* The kernel tells of its end, and absorb() does not. */
		if (it->disabled && !atomic_load(&shim_leaves))
			ev.data.u64 = it->set->prefix | TAG_SPENT;
		/* The kernel's own shot was fired: it tells nothing of the item,
		 * and after a change would tell of an end. */
		if (it->dormant)
			control(it, EPOLL_CTL_DEL, NULL);
		else if (it->managed)
			renew(it, &ev);
		else if ((it->events & EPOLLONESHOT) && !it->disabled)
			control(it, EPOLL_CTL_MOD, &ev);
		remove_item(it, true);
	}
	exi_unlock(&structure);
	exi_unlock(&sk->link_lock);
}

/* --- epoll_ctl ---------------------------------------------------------- */

static void number_locked(int epfd, struct set *s)
{
	if ((uint32_t)epfd >= high)
		high = (uint32_t)epfd + 1;
	atomic_store_explicit(&sets[epfd], s, memory_order_release);
	exi_heed_put(epfd, EXI_HEED_ALL);
}

/* Memory of sets is never given back: somebody may be in one that was closed,
 * and finds another with the same number, as in the kernel. */
static struct set *make_set(int epfd)
{
	struct set *s = set_of(epfd);

	if (s || (uint32_t)epfd >= n_sets)
		return s;
	s = closed_sets[epfd];
	if (!s)
		s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	exi_lock(&s->lock);
	s->fd = epfd;
	s->names = 1;
	s->nudge = -1;
	s->outer = false;
	s->inherited = false;
	s->lost = false;
	s->timed = false;
	s->n_conns = 0;
	s->n_managed = 0;
	s->quiet = 0;
	s->filled = false;
	s->prefix = exi_random() << TAG_BITS;
	exi_list_init(&s->active);
	exi_list_init(&s->line);
	exi_list_init(&s->resting);
	s->n_active = 0;
	s->n_fresh = 0;
	s->n_resting = 0;
	exi_unlock(&s->lock);
	closed_sets[epfd] = NULL;
	number_locked(epfd, s);
	return s;
}

static void put_item(struct item *it, struct set *s, struct exi_sock *sk,
		     int fd, const struct epoll_event *ev)
{
	exi_list_init(&it->node);
	it->set = s;
	it->sk = sk;
	it->generation = atomic_load(&sk->generation);
	it->fd = fd;
	it->link = -1;
	it->listens = sk->role == EXI_ROLE_LISTEN;
	it->events = ev->events;
	it->data = ev->data;
	it->refs = 1;
	exi_lock(&s->lock);
	s->by_fd[fd] = it;
	exi_unlock(&s->lock);
	s->n_conns += !it->listens;
	listen_to(it);
	want_times(s);
}

static int add(int epfd, int fd, struct exi_sock *sk, struct epoll_event *ev)
{
	/* For one shot it is loaded when the item is there to know of it. */
	bool once = ev->events & EPOLLONESHOT;
	struct epoll_event first = *ev;
	struct set *s;
	struct item *it;

	if (once) /* two flags that the kernel does not take together */
		first.events &= EPOLLONESHOT | EPOLLEXCLUSIVE;
	if (native.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &first) < 0)
		return -errno;
	s = make_set(epfd);
	it = s && fd < (int)TAG_FD - 1 && room_for(s, fd) ? item_new(s) : NULL;
	if (!it) {
		/* Nobody would tell of a fabric. */
		atomic_store(&sk->sh->hold_here, 1);
		if (once)
			native.epoll_ctl(epfd, EPOLL_CTL_MOD, fd, ev);
		return 0;
	}
	put_item(it, s, sk, fd, ev);
	if (exi_ready_ours(sk))
		manage(it);
	if (once && !it->managed) {
		first = wanted(it);
		native.epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &first);
	}
	return 0;
}

static void wants_locked(struct item *it, const struct epoll_event *ev)
{
	it->events = ev->events;
	it->data = ev->data;
	it->disabled = it->told = it->blocked = it->dormant = false;
	it->over = 0;
	it->shots++;
	activate_locked(it);
}

/* What the kernel takes together with EPOLLEXCLUSIVE. */
#define EXCLUSIVE_OK                                                           \
	(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET |    \
	 EPOLLEXCLUSIVE)

/* A managed item stays in the kernel's set; the rest is here. */
static int change_managed(struct item *it, int op, const struct epoll_event *ev)
{
	uint32_t had = it->dormant ? 0 : it->events;
	uint32_t flags = op == EPOLL_CTL_MOD   ? ev->events | had
			 : op == EPOLL_CTL_ADD ? ev->events
					       : 0;
	int ret = 0;

	if ((flags & EPOLLEXCLUSIVE) &&
	    (op == EPOLL_CTL_MOD || (flags & ~(uint32_t)EXCLUSIVE_OK)))
		return -EINVAL;
	if (op == EPOLL_CTL_ADD ? !it->dormant : it->dormant)
		return op == EPOLL_CTL_ADD ? -EEXIST : -ENOENT;
	exi_lock(&it->set->lock);
	if (op == EPOLL_CTL_DEL) {
		it->dormant = true;
		off_the_active_locked(it);
	} else {
		wants_locked(it, ev);
	}
	exi_unlock(&it->set->lock);
	if (it->set->outer) {
		struct epoll_event kernels = tagged(it);

		native.epoll_ctl(it->set->fd, EPOLL_CTL_MOD, it->fd, &kernels);
	}
	return ret;
}

/* Of an item that is a level it changes nothing: the kernel knows all of it, and
 * no other process has the descriptor to tell it something else. */
static bool as_it_is(const struct item *it, const struct epoll_event *ev)
{
	return it->events == ev->events && it->data.u64 == ev->data.u64 &&
	       !(it->events & MODE_FLAGS) && exi_sock_unforked(it->sk);
}

static int change_native(struct item *it, int op, struct epoll_event *ev)
{
	struct epoll_event kernels,
		before = { .events = it->events, .data = it->data };
	struct set *s = it->set;
	int ret;

	if (op != EPOLL_CTL_MOD) {
		if (native.epoll_ctl(s->fd, op, it->fd, ev) < 0)
			return -errno;
		if (op == EPOLL_CTL_DEL)
			remove_item(it, true);
		return 0;
	}
	if (as_it_is(it, ev))
		return 0;
	/* First, for the kernel may tell of it at once. */
	exi_lock(&s->lock);
	wants_locked(it, ev);
	kernels = wanted(it);
	exi_unlock(&s->lock);
	if (native.epoll_ctl(s->fd, op, it->fd, &kernels) == 0)
		return 0;
	ret = -errno;
	exi_lock(&s->lock);
	it->events = before.events;
	it->data = before.data;
	exi_unlock(&s->lock);
	return ret;
}

/* Not one of a socket that had the number before, which closed unseen. */
static struct item *live_item(int epfd, int fd, const struct exi_sock *sk)
{
	struct item *it = item_of(set_of(epfd), fd);

	if (!it ||
	    (it->sk == sk && it->generation == atomic_load(&sk->generation)))
		return it;
	remove_item(it, false);
	return NULL;
}

/* What no set is has nothing taken out, and says so otherwise. */
static bool is_set(int fd, int other)
{
	int saved = errno;
	bool ret = set_of(fd) ||
		   (native.epoll_ctl(fd, EPOLL_CTL_DEL, other, NULL) < 0 &&
		    errno == ENOENT);

	errno = saved;
	return ret;
}

/* Something that is no connection came into a set: perhaps another set. */
static void nest(int epfd, int fd)
{
	struct set *s, *inner;
	struct nest *n;

	if (!is_set(fd, epfd))
		return;
	exi_lock(&structure);
	s = make_set(epfd);
	inner = make_set(fd);
	for (n = s ? s->nests : NULL; n && n->inner != inner; n = n->next)
		;
	if (s && inner && !n) {
		n = malloc(sizeof(*n));
		if (n) {
			*n = (struct nest){ inner, s->nests };
			s->nests = n; /* for ever, as sets are */
		}
	}
	exi_unlock(&structure);
	shim_epoll_outer(fd);
}

static int change(int epfd, int op, int fd, struct exi_sock *sk,
		  struct epoll_event *ev)
{
	struct item *it;
	int ret;

	/* Without the link's lock, where that is all there is to it. */
	if (exi_ready_ours(sk)) {
		exi_lock(&structure);
		it = live_item(epfd, fd, sk);
		if (it && it->managed) {
			ret = change_managed(it, op, ev);
			exi_unlock(&structure);
			return ret;
		}
		exi_unlock(&structure);
	}
	/* It may be met any moment. */
	exi_lock(&sk->link_lock);
	exi_lock(&structure);
	it = live_item(epfd, fd, sk);
	if (it)
		ret = it->managed ? change_managed(it, op, ev)
				  : change_native(it, op, ev);
	else if (op == EPOLL_CTL_ADD)
		ret = add(epfd, fd, sk, ev);
	else
		ret = native.epoll_ctl(epfd, op, fd, ev) < 0 ? -errno : 0;
	exi_unlock(&structure);
	exi_unlock(&sk->link_lock);
	return ret;
}

/* A latent connection is in no set any more; structure is held. */
static void latent_out(struct latent *l)
{
	if (l->set && l->set->prefix == l->prefix)
		l->set->n_conns--;
	l->set = NULL;
}

/* A latent connection's life begins; nobody else knows the number yet. */
static void latent_begun(int fd)
{
	if ((uint32_t)fd >= n_sets || !latents[fd].set)
		return;
	exi_lock(&structure);
	latent_out(&latents[fd]);
	exi_unlock(&structure);
}

/* The item that it is now. Its link lock is held: it meets nobody before. */
static void latent_woke(struct exi_sock *sk, int fd)
{
	struct epoll_event ev;
	struct latent *l;
	struct item *it;
	struct set *s;

	if ((uint32_t)fd >= n_sets)
		return;
	exi_lock(&structure);
	l = &latents[fd];
	s = l->set;
	latent_out(l);
	if (s && s->prefix == l->prefix && set_of(s->fd) == s) {
		live_item(s->fd, fd, sk);
		it = room_for(s, fd) ? item_new(s) : NULL;
		ev = (struct epoll_event){ .events = l->events,
					   .data = l->data };
		if (it)
			put_item(it, s, sk, fd, &ev);
		else /* nobody would tell of a fabric */
			atomic_store(&sk->sh->hold_here, 1);
	}
	exi_unlock(&structure);
}

/* False: it is to wake first. */
static bool latent_change_locked(int epfd, int op, int fd,
				 struct epoll_event *ev, int *ret)
{
	struct latent *l = &latents[fd];
	struct set *s = set_of(epfd);

	if (op == EPOLL_CTL_ADD ? l->set != NULL
				: !s || l->set != s || l->prefix != s->prefix)
		return false;
	if (op == EPOLL_CTL_MOD && l->events == ev->events &&
	    l->data.u64 == ev->data.u64 && !(ev->events & EPOLLET)) {
		*ret = 0; /* of a level it changes nothing */
		return true;
	}
	*ret = native.epoll_ctl(epfd, op, fd, ev);
	if (*ret < 0)
		return true;
	latent_out(l);
	if (op == EPOLL_CTL_DEL)
		return true;
	s = make_set(epfd);
	if (s) {
		s->n_conns++;
		want_times(s);
	}
	*l = (struct latent){ .set = s,
			      .prefix = s ? s->prefix : 0,
			      .events = ev->events,
			      .data = ev->data };
	return true;
}

static __attribute__((noinline)) bool
latent_change(int epfd, int op, int fd, struct epoll_event *ev, int *ret)
{
	struct exi_sock *sk;
	bool done, lost;

	if ((uint32_t)fd >= n_sets ||
	    (op != EPOLL_CTL_DEL &&
	     ((op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD) || !ev ||
	      (ev->events & (EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP)))))
		return false;
	exi_lock(&structure);
	/* Who wakes it comes for what is said here later. */
	done = exi_latent(fd) && latent_change_locked(epfd, op, fd, ev, ret);
	lost = done && *ret == 0 && op != EPOLL_CTL_DEL && !latents[fd].set;
	exi_unlock(&structure);
	if (exi_unlikely(lost) && (sk = exi_sock_find(fd)))
		atomic_store(&sk->sh->hold_here, 1); /* see add() */
	return done;
}

HOOK int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	EXI_CANCEL_OFF(false);
	struct exi_sock *sk;
	int was;

	if (exi_latent(fd) && latent_change(epfd, op, fd, ev, &was))
		return was;
	sk = exi_sock_find(fd);
	bool known = op == EPOLL_CTL_DEL ||
		     (ev && (op == EPOLL_CTL_ADD || op == EPOLL_CTL_MOD));
	int ret;

	/* It will accept: who connects is to find it before. */
	if (op == EPOLL_CTL_ADD && sk && sk->role == EXI_ROLE_LISTEN)
		exi_marker_reach(fd);
	if (exi_likely(sk && sk->adopted && known))
		return (int)shim_result(change(epfd, op, fd, sk, ev));
	ret = native.epoll_ctl(epfd, op, fd, ev);
	if (op == EPOLL_CTL_ADD && ret == 0)
		nest(epfd, fd);
	return ret;
}

/* --- epoll_wait --------------------------------------------------------- */

/* Bytes that were received, and those that could be. */
static uint64_t arrived(const struct item *it)
{
	int unread = exi_ready_unread(it->sk, number(it));

	return __atomic_load_n(&exi_sock_shared(it->sk)->half[EXI_RX].bytes,
			       __ATOMIC_RELAXED) +
	       (uint64_t)(unread > 0 ? unread : 0);
}

/* Edge-triggered: is this worth telling? Something came; room after there was
 * none, or a send found none; an end. */
static bool edge(const struct item *it, uint32_t now, const struct saw *saw)
{
	return !it->told || (now & OVER & ~it->over) ||
	       (it->rung & (interest(it) | EPOLLERR | EPOLLHUP)) ||
	       ((now & RX_EVENTS) && saw->came != it->arrived) ||
	       ((now & TX_EVENTS) &&
		(it->blocked || saw->cramped != it->cramped));
}

/* Of what is so now, the event; 0: none. */
static uint32_t event_locked(const struct item *it, uint32_t now,
			     const struct saw *saw)
{
	uint32_t ret = now & (interest(it) | EPOLLERR | EPOLLHUP);

	if ((now & POLLNVAL) || it->disabled || it->dormant || it->dead)
		return 0;
	/* An end is an edge, whether it is asked for by name or not. */
	return ret && (it->events & EPOLLET) &&
			       !edge(it, ret | (now & OVER), saw)
		       ? 0
		       : ret;
}

/* After a look: the event, or 0. */
static inline uint32_t seen_locked(struct item *it, uint32_t now,
				   const struct saw *saw)
{
	uint32_t ret = event_locked(it, now, saw);
	bool cannot = (interest(it) & TX_EVENTS) && !(now & TX_EVENTS);

	/* That it can send again is told before it is forgotten. */
	it->blocked = cannot || (it->blocked && ret);
	if (!ret && !(now & EPOLLIN)) /* what had come was taken */
		it->arrived = saw->came;
	return ret;
}

/* The same, told. */
static inline bool tell_locked(struct item *it, uint32_t now,
			       const struct saw *saw, struct epoll_event *ev)
{
	uint32_t event = seen_locked(it, now, saw);

	if (!event)
		return false;
	ev->events = event;
	ev->data = it->data;
	it->blocked = it->blocked && !(now & TX_EVENTS);
	it->told = true;
	it->rung = 0;
	it->over = now & OVER;
	it->arrived = saw->came;
	it->cramped = saw->cramped;
	if (it->events & EPOLLONESHOT)
		it->disabled = true;
	return true;
}

static inline uint32_t before_look(const struct item *it, struct saw *ret)
{
	*ret = (struct saw){ 0 };
	if (!(it->events & EPOLLET))
		return interest(it);
	*ret = (struct saw){ arrived(it), atomic_load(&it->sk->cramped) };
	return interest(it) | EPOLLRDHUP;
}

/* No lock is held, and the item is this thread's. */
static inline uint32_t look(const struct item *it, struct saw *ret)
{
	short events = (short)before_look(it, ret);

	return (uint16_t)exi_ready_events(it->sk, number(it), events);
}

/* Edge-triggered: something that is worth telling came since the last look. */
static bool missed(const struct item *it, uint32_t events)
{
	struct exi_ready r;

	if ((events & RX_EVENTS) &&
	    (arrived(it) != it->arrived ||
	     !exi_ready_look(it->sk, number(it), EPOLLIN | EPOLLRDHUP, &r) ||
	     (r.now & EPOLLRDHUP & ~it->over)))
		return true;
	/* Room, for who found none. */
	return (events & TX_EVENTS) &&
	       (it->blocked || atomic_load(&it->sk->cramped) != it->cramped) &&
	       (!exi_ready_look(it->sk, number(it), EPOLLOUT, &r) ||
		(r.now & EPOLLOUT));
}

/* The peer rings from now on, until disarm(); false when it need not. No lock
 * is held, and the item is not among the active: it is this thread's. */
static bool arm(struct item *it, uint64_t sleep)
{
	short events = (short)interest(it);

	if (it->armed || it->disabled)
		return true;
	if (!exi_ready_arm(it->sk, number(it), events, it->events & EPOLLET,
			   sleep))
		return false;
	it->armed = true;
	it->armed_for = events;
	/* What came since the last look is there already: no ring tells. */
	return !(it->events & EPOLLET) || !missed(it, (uint32_t)events);
}

static void disarm(struct item *it)
{
	if (it->armed)
		exi_ready_disarm(it->sk, number(it), it->armed_for);
	it->armed = false;
}

/* The end of a hold: active again, or not if nothing came meanwhile. */
static inline void release_to_locked(struct item *it, struct exi_list *list)
{
	struct set *s = it->set;

	it->held = false;
	if (list == &s->resting && it->again)
		list = &s->active;
	if (list == &s->resting)
		rest_locked(it);
	else if (!it->dead && !it->dormant && !it->disabled)
		make_active_locked(it, list);
	if (!it->active)
		stale_locked(it);
	unref_locked(it);
}

static void release_locked(struct item *it, bool keep)
{
	release_to_locked(it, keep ? &it->set->active : &it->set->resting);
}

/* The kernel told of an item for one shot. Not the application, if it was told
 * since, when the item had come to be managed. */
static bool take_shot(struct set *s, struct epoll_event *ev)
{
	uint64_t tag = ev->data.u64;
	struct item *it;
	bool ret;

	exi_lock(&s->lock);
	it = item_of(s, (int)(tag & TAG_FD));
	ret = it && !(it->managed && it->told);
	if (ret) {
		ev->data = it->data;
		if (it->shots == (uint8_t)(tag >> TAG_NTH)) /* no later one */
			it->told = it->disabled = true;
	}
	exi_unlock(&s->lock);
	return ret;
}

/* Its link's bell. Other processes are told of it, for which this one has to be
 * known to use it. */
static void hear(const struct item *it)
{
	if (exi_unlikely(!exi_sock_used_here(it->sk)))
		exi_sock_inherit(it->sk);
	exi_link_event(it->sk, EPOLLIN);
}

/* Takes the tagged events out; how many remain. */
static int absorb(struct set *s, struct epoll_event *ev, int n)
{
	int i, kept = 0;

	for (i = 0; i < n; i++) {
		uint64_t tag = ev[i].data.u64;
		struct item *it;

		if (exi_likely((tag & ~TAG_MASK) != s->prefix)) {
			if (kept < i)
				ev[kept] = ev[i];
			kept++;
			continue;
		}
		if (tag & TAG_SHOT) {
			if (take_shot(s, &ev[i]))
				ev[kept++] = ev[i];
			continue;
		}
		if ((tag & TAG_MASK) == TAG_NUDGE) {
			if (!s->outer) { /* else see settle() */
				exi_lock(&s->lock);
				calm_locked(s);
				exi_unlock(&s->lock);
			}
			continue;
		}
		exi_lock(&s->lock);
		it = item_of(s, (int)(tag & TAG_FD));
		if (it) {
			int sleepers = s->sleepers;

			/* Bytes and ends are counted; urgent ones not. */
			if (!(tag & TAG_LINK) && (ev[i].events & EPOLLPRI))
				it->rung = RX_EVENTS;
			if (!it->behind)
				it->since = s->emptied_before;
			it->behind = kept + 1;
			s->sleepers = -1; /* this one is awake */
			activate_locked(it);
			s->sleepers = sleepers;
			it->refs++;
		}
		exi_unlock(&s->lock);
		if (!it)
			continue;
		if (tag & TAG_LINK)
			hear(it);
		exi_lock(&s->lock);
		unref_locked(it);
		exi_unlock(&s->lock);
	}
	return kept;
}

/* A call to the kernel that is under way. */
struct asking {
	struct set *s;
	bool sleeps; /* this thread is among the sleepers */
};

/* The thread was cancelled, or a handler jumped away. What the kernel told is
 * lost then, and of an edge it tells once. */
static void left(void *arg)
{
	const struct asking *a = arg;
	struct set *s = a->s;

	exi_lock(&s->lock);
	s->sleepers -= a->sleeps;
	s->stirs++; /* who is about to sleep looks at what was lost */
	s->lost = true;
	if (others_sleep(s))
		nudge_locked(s);
	exi_unlock(&s->lock);
}

/* As if the kernel told of each item anew. */
static void find_lost(struct set *s)
{
	exi_lock(&s->lock);
	s->lost = false;
	for (int i = 0; i < s->size; i++) {
		struct item *it = s->by_fd[i];

		if (!it || !it->managed)
			continue;
		if (interest(it) & EPOLLPRI)
			it->rung = RX_EVENTS;
		it->refs++;
		exi_unlock(&s->lock);
		hear(it);
		exi_lock(&s->lock);
		activate_locked(it);
		unref_locked(it);
	}
	exi_unlock(&s->lock);
}

/* Events that are taken from the kernel at a time, on the stack: few programs ask
 * for more. */
#define AT_A_TIME 1024

/* Without a mask it is less for the kernel to do. */
static inline int ask(int fd, struct epoll_event *ev, int max, int ms,
		      const sigset_t *mask)
{
	return mask ? native.epoll_pwait(fd, ev, max, ms, mask)
		    : native.epoll_wait(fd, ev, max, ms);
}

/* All that the kernel had was told. Of a sleep this is known of its end. */
static void emptied(struct set *s, uint64_t when)
{
	atomic_store_explicit(
		&s->emptied_before,
		atomic_load_explicit(&s->emptied, memory_order_relaxed),
		memory_order_relaxed);
	atomic_store_explicit(&s->emptied, when, memory_order_relaxed);
}

/* What the kernel has for the application: -ETIMEDOUT when it had nothing, 0
 * when nothing remains of what it had. The caller's memory gets no tags. With
 * sleeps the thread is among the sleepers, and is not when this returns. */
static __attribute__((noinline)) int take(struct set *s, int fd,
					  struct epoll_event *ev, int max,
					  int ms, const sigset_t *mask,
					  bool sleeps)
{
	struct epoll_event *came;
	struct asking a = { s, sleeps };
	struct exi_rest ends;
	uint64_t began;
	bool full;
	int n;

	max = max < AT_A_TIME ? max : AT_A_TIME;
	came = alloca((size_t)max * sizeof(*came));
	do {
		began = exi_ticks();
		if (!ms)
			atomic_store_explicit(&s->asked, began,
					      memory_order_relaxed);
		exi_rest_begin(&ends, left, &a);
		if (sleeps)
			exi_cancel_rest();
		n = ask(fd, came, max, ms, mask);
		if (n <= 0)
			n = n < 0 ? -errno : -ETIMEDOUT;
		if (sleeps)
			exi_cancel_rested();
		exi_rest_over(&ends, false);
		if (sleeps) {
			exi_lock(&s->lock);
			s->sleepers--;
			exi_unlock(&s->lock);
		}
		full = n == max;
		if (!full)
			emptied(s, sleeps ? exi_ticks() : began);
		if (n > 0)
			n = absorb(s, came, n);
		/* Behind tags that took all the room there may be something.
		 * None comes twice, but for the nudge of a set in another. */
	} while (n == 0 && full && !sleeps && !ms && !s->outer);
	if (n > 0)
		memcpy(ev, came, (size_t)n * sizeof(*ev));
	return n;
}

static int ask_kernel(struct set *s, struct epoll_event *ev, int max)
{
	int n = take(s, s->fd, ev, max, 0, NULL, false);
	int quiet = atomic_load_explicit(&s->quiet, memory_order_relaxed);

	quiet = n > 0 ? 0 : quiet < QUIET_ASKS ? quiet + 1 : quiet;
	atomic_store_explicit(&s->quiet, quiet, memory_order_relaxed);
	atomic_store_explicit(&s->filled, n == max, memory_order_relaxed);
	return n == -ETIMEDOUT ? 0 : n;
}

/* --- in order of arrival ------------------------------------------------- */

/* A look at what is active. What had something is kept out of the lists until the
 * caller knows the order. */
struct search {
	struct set *s;
	/* Null, or not at those that came to be managed after this: of them the
	 * kernel may have told just now. */
	const uint32_t *met;
	bool spins;
	bool asked;	/* the kernel told something just now */
	uint64_t began; /* exi_ticks() of the wait; no other has it */
	uint64_t until; /* what came later is for the next wait */
	uint64_t last;	/* when the last came that this pass found */
	bool rang;	/* for one at rest, perhaps: see look_at_resting() */
	bool may_move;	/* one that was looked at is on TCP, */
	bool hears;	/* and its peer may have said that it is not */
	struct item *found; /* the last one first */
	int n;
	int n_on_tcp; /* of the found */
	int base;     /* where the kernel's last events begin, */
	int kernels;  /* and where they end */
};

/* Its peer says when what it has was sent; without that it came when it was
 * seen. None is before what it told already: what tells most often comes last. */
static inline void place_locked(struct search *c, struct item *it,
				const struct exi_first *first)
{
	uint64_t at = first->sent, now;

	/* Nothing came later than now. */
	if (at > c->began) {
		now = exi_ticks();
		at = at < now ? at : now;
	}
	/* Found after another, perhaps as the kernel had it before that one. */
	if (!at)
		at = it->place		      ? it->place
		     : c->until != UINT64_MAX ? c->until - 1
					      : exi_ticks();
	it->place = at > it->told_at ? at : it->told_at;
	it->kernel = first->sent ? first->kernel : UINT64_MAX;
	if ((it->now & RX_EVENTS) && at > c->last)
		c->last = at;
}

static inline void look_in_search(struct search *c, struct item *it,
				  struct exi_first *ret)
{
	short events;

	if (exi_unlikely(it->on_tcp && c->hears))
		hear(it);
	events = (short)before_look(it, &it->saw);
	*ret = (struct exi_first){ 0 };
	it->now = (uint16_t)exi_ready_first(it->sk, number(it), events,
					    c->began, ret);
	it->on_tcp = ret->on_tcp;
	c->may_move |= it->on_tcp;
}

/* True: the item's number was still one of its connection's. */
static bool valid(const struct item *it)
{
	return !(it->now & POLLNVAL);
}

/* The look is over, and it has something: true when that is for this wait. */
static inline bool find_locked(struct search *c, struct item *it,
			       const struct exi_first *first)
{
	place_locked(c, it, first);
	/* What is left keeps its news of rings for the wait that tells it. */
	if (it->place > c->until)
		return false;
	/* A number of few bits may have come round. */
	if ((first->rings && first->rings != it->rings) ||
	    (first->sent && first->kernel != it->sent)) {
		c->rang = true;
		it->rings = first->rings;
		it->sent = first->kernel;
	}
	it->next = c->found;
	c->found = it;
	c->n++;
	c->n_on_tcp += it->on_tcp;
	return true;
}

/* The look is over, and it has nothing: true when its peer rings from now on. */
static inline bool idles_locked(struct search *c, struct item *it)
{
	struct set *s = c->s;
	bool ret;

	it->place = 0;
	it->behind = 0;
	if (c->spins || c->until != UINT64_MAX || ++it->idle <= IDLE_LOOKS ||
	    (c->began - it->busy <= IDLE_TICKS && s->n_active <= MANY))
		return false;
	exi_unlock(&s->lock);
	ret = arm(it, 0);
	exi_lock(&s->lock);
	return ret;
}

static void look_at_active(struct search *c)
{
	struct set *s = c->s;

	for (int left = s->n_active; left > 0; left--) {
		struct item *it = pop_from_locked(s, &s->active);
		struct exi_first first;
		bool has;

		if (!it)
			break;
		if (it->told_at == c->began ||
		    (c->met && (int32_t)(it->nth - *c->met) > 0)) {
			release_locked(it, true);
			continue;
		}
		stale_locked(it);
		exi_unlock(&s->lock);
		disarm(it);
		look_in_search(c, it, &first);
		exi_lock(&s->lock);
		has = seen_locked(it, it->now, &it->saw);
		if (has && find_locked(c, it, &first))
			continue;
		release_locked(it, has || (!idles_locked(c, it) && valid(it)));
	}
}

/* A look at more takes longer than what it is for may. */
#define FEW_REST 64

/* What rests may have something, whose ring is still on its way: it is looked at
 * where it lies. */
static void look_at_resting(struct search *c)
{
	struct set *s = c->s;
	int left = s->n_resting;

	if (left > FEW_REST)
		return;
	for (; left > 0; left--) {
		struct item *it = pop_from_locked(s, &s->resting);
		struct exi_first first;

		if (!it)
			break;
		exi_unlock(&s->lock);
		look_in_search(c, it, &first);
		if (it->now)
			disarm(it);
		exi_lock(&s->lock);
		if (!event_locked(it, it->now, &it->saw) ||
		    !find_locked(c, it, &first))
			release_locked(it, it->now && valid(it));
	}
}

/* The clocks of two CPUs differ by less, and so long before a store a processor may
 * read its clock. */
#define CLOCK_TICKS 4096
#define PASSES	    4

static void search(struct search *c)
{
	uint64_t began = c->began;
	int had, passes = 0;

	do {
		if (passes)
			began = exi_ticks();
		had = c->n;
		c->last = 0;
		look_at_active(c);
		if (c->n == had)
			return;
		if (c->until == UINT64_MAX)
			c->until = c->last;
	} while (c->last + CLOCK_TICKS > began && c->s->n_active &&
		 ++passes < PASSES);
}

/* The peer's process sent something by the kernel before what was found: bytes on TCP,
 * a ring for what rests, or that it sends on the fabric from now on. The kernel has it,
 * or the service, which may come late. Not asked twice, or it would tell twice. How many events there are then. */
static int find_rung(struct search *c, struct epoll_event *ev, int n, int max)
{
	struct set *s = c->s;
	uint32_t met = s->met;
	int k = 0;

	c->hears = true;
	look_at_resting(c);
	if (!c->asked) {
		exi_unlock(&s->lock);
		k = ask_kernel(s, ev + n, max - n);
		exi_lock(&s->lock);
		c->met = &met;
		c->base = n;
	}
	/* A ring that was heard meanwhile took its item from those at rest. */
	if (s->n_fresh || c->may_move)
		look_at_active(c);
	if (k <= 0)
		return n;
	c->asked = true;
	return n + k;
}

/* Takes n of a chain, and gives them in order. */
static struct item *in_order(struct item **chain, int n)
{
	struct item *a, *b, *ret, **end = &ret;

	if (n == 1) {
		ret = *chain;
		*chain = ret->next;
		ret->next = NULL;
		return ret;
	}
	/* The chain has the last one first. */
	b = in_order(chain, n / 2);
	a = in_order(chain, n - n / 2);
	while (a && b) {
		struct item **first = a->place <= b->place ? &a : &b;

		*end = *first;
		end = &(*first)->next;
		*first = *end;
	}
	*end = a ? a : b;
	return ret;
}

static inline bool tell_this_locked(struct search *c, struct item *it,
				    struct epoll_event *ev)
{
	if (!tell_locked(it, it->now, &it->saw, ev))
		return false;
	it->idle = 0;
	it->busy = it->told_at = c->began;
	it->place = 0;
	it->behind = 0;
	return true;
}

static void insert(const struct epoll_event *e, int at, struct epoll_event *ev,
		   int n)
{
	memmove(&ev[at + 1], &ev[at], (size_t)(n - at) * sizeof(*ev));
	ev[at] = *e;
}

/* What an earlier wait had no room for goes first: it came before all that is found
 * now, and before the n events that the kernel has now. How many there are then. */
static int tell_line(struct search *c, struct epoll_event *ev, int n, int max)
{
	struct set *s = c->s;
	struct item *it;

	while (n < max && (it = pop_from_locked(s, &s->line))) {
		struct exi_first first;
		struct epoll_event e;

		stale_locked(it);
		exi_unlock(&s->lock);
		disarm(it);
		look_in_search(c, it, &first);
		exi_lock(&s->lock);
		if (tell_this_locked(c, it, &e))
			insert(&e, c->base++, ev, n++);
		release_locked(it, valid(it));
	}
	return n;
}

/* What comes first of it was sent before all that the kernel told just now: when the
 * kernel had nothing of it yet; or, where others of the peer's connections may be on
 * TCP, its process has sent nothing by the kernel in between. */
static bool precedes(const struct item *it, uint64_t emptied, bool mixed)
{
	return it->kernel != UINT64_MAX &&
	       (it->place <= emptied || (mixed && it->kernel <= emptied));
}

/* Among the found are some that the kernel has, or it told something just now, at
 * ev[base] and on. What is on TCP came after what precedes all of the kernel's. Each
 * goes before an event of the kernel's if the kernel had something of it before that
 * one, or if it precedes them, or another does that comes after it; else behind all of
 * them. In order of their places, `behind` has where then. */
static struct item *line_up(struct search *c)
{
	struct set *s = c->s;
	uint64_t emptied = atomic_load_explicit(
		c->kernels > c->base ? &s->emptied_before : &s->emptied,
		memory_order_relaxed);
	bool mixed = c->n_on_tcp || s->n_conns > s->n_managed;
	uint64_t edge;
	struct item *it, *next, *ret = NULL, *last = NULL;
	int at = c->kernels;

	for (it = c->found; it; it = it->next)
		if (it->on_tcp && it->behind && it->since < emptied)
			emptied = it->since;
	edge = emptied;
	for (it = c->found; it; it = it->next) {
		bool first = precedes(it, emptied, mixed);

		it->behind = it->behind ? c->base + it->behind - 1
			     : first	? c->base
					: c->kernels;
		if (first && it->place > edge)
			edge = it->place;
	}
	for (it = c->found; it; it = it->next)
		if (it->on_tcp && c->n > c->n_on_tcp && it->place > it->told_at)
			it->place = edge > it->told_at ? edge : it->told_at;
	for (it = in_order(&c->found, c->n); it; it = next) {
		next = it->next;
		it->next = last;
		last = it;
	}
	for (it = last; it; it = next) {
		next = it->next;
		at = it->behind < at ? it->behind : at;
		it->behind = at;
		it->next = ret;
		ret = it;
	}
	return ret;
}

/* How many events there are then. */
static int tell_found(struct search *c, struct epoll_event *ev, int n, int max)
{
	struct item *it = NULL, *next;
	struct exi_list *list;
	bool lines_up = n > c->base || c->n_on_tcp;
	int passed = c->base;

	c->kernels = n;
	if (c->n)
		it = lines_up ? line_up(c) : in_order(&c->found, c->n);
	for (; it; it = next) {
		int at = lines_up ? it->behind : c->kernels;
		struct epoll_event e;

		next = it->next;
		passed = at > passed ? at : passed;
		list = n < max ? &c->s->active : &c->s->line;
		if (n < max && tell_this_locked(c, it, &e)) {
			insert(&e, passed + n - c->kernels, ev, n);
			n++;
		}
		release_to_locked(it, list);
	}
	return n;
}

/* One that is alone in its set needs no order. */
static int tell_alone(struct search *c, struct epoll_event *ev, int n, int max)
{
	struct set *s = c->s;

	for (int left = s->n_active; left > 0 && n < max; left--) {
		struct item *it = pop_locked(s);
		bool told;

		if (!it)
			break;
		if (c->met && (int32_t)(it->nth - *c->met) > 0) {
			release_locked(it, true);
			continue;
		}
		stale_locked(it);
		exi_unlock(&s->lock);
		disarm(it);
		it->now = look(it, &it->saw);
		exi_lock(&s->lock);
		told = tell_this_locked(c, it, &ev[n]);
		n += told;
		release_locked(it, told || (!idles_locked(c, it) && valid(it)));
	}
	return n;
}

/* Tells what has something, in the order in which it came; see the head of the
 * file. ev has n events of the kernel's already; how many there are then. *ret_asked:
 * some are the kernel's, which would tell of its levels again. */
static int collect(struct set *s, struct epoll_event *ev, int n, int max,
		   bool spins, const uint32_t *met, bool *ret_asked)
{
	struct search c = { .s = s,
			    .met = met,
			    .spins = spins,
			    .asked = n > 0,
			    .began = exi_ticks(),
			    .until = UINT64_MAX };

	exi_lock(&s->lock);
	if (!s->timed) {
		n = tell_alone(&c, ev, n, max);
		goto unlock;
	}
	n = tell_line(&c, ev, n, max);
	if (n < max) {
		search(&c);
		if (exi_unlikely(c.rang))
			n = find_rung(&c, ev, n, max);
		n = tell_found(&c, ev, n, max);
	}
unlock:
	exi_unlock(&s->lock);
	*ret_asked = c.asked;
	return n;
}

struct spun {
	struct set *s;
	struct epoll_event *ev;
	int max;
	int n;
	bool asked;
};

static bool look_again(void *arg)
{
	struct spun *p = arg;

	p->n = collect(p->s, p->ev, 0, p->max, true, NULL, &p->asked);
	return p->n > 0;
}

static int first_peer_cpu(struct set *s)
{
	struct item *it;
	int ret = -1;

	exi_lock(&s->lock);
	it = pop_locked(s);
	exi_unlock(&s->lock);
	if (!it)
		return -1;
	ret = exi_ready_peer_cpu(it->sk, number(it));
	exi_lock(&s->lock);
	release_locked(it, true);
	exi_unlock(&s->lock);
	return ret;
}

static int spin(struct set *s, struct epoll_event *ev, int max,
		uint64_t deadline, bool *ret_asked)
{
	struct spun p = { .s = s, .ev = ev, .max = max };
	struct exi_spinner spinner;
	uint64_t budget;
	bool hit, good;

	if (!s->n_active)
		return 0;
	budget = exi_spin_budget(&s->spin, first_peer_cpu(s));
	if (!budget)
		return 0;
	if (budget == EXI_SPIN_YIELD) {
		good = exi_spin_yield(look_again, &p, &hit);
		exi_spin_result(&s->spin, good && hit);
		*ret_asked = p.asked;
		return p.n;
	}
	exi_spin_begin(&spinner);
	while (!look_again(&p) && exi_spin_goes_on(&spinner, budget, deadline))
		spinner.looks |= 7; /* a look takes a while here */
	exi_spin_result(&s->spin, p.n > 0);
	*ret_asked = p.asked;
	return p.n;
}

/* The kernel's level, of which its set told once: another thread than the one that
 * was told is to know of it. */
static bool there_on_tcp(struct item *it)
{
	const struct exi_shared *sh = exi_sock_shared(it->sk);
	struct saw saw;

	if (it->disabled || (it->events & EPOLLET) ||
	    (sh->half[EXI_RX].mode == EXI_MODE_RING &&
	     sh->half[EXI_TX].mode == EXI_MODE_RING))
		return false;
	return look(it, &saw) & (interest(it) | EPOLLERR | EPOLLHUP);
}

/* Arms what is active: false when there is something already. What had something
 * lately stays among the active, to be looked at when a sleep ends: then its peer
 * need not ring any more, and a peer of several rings for one of them. The sleep is
 * a new one each time. Who hears its ring and looks before all are armed would not
 * have looked at all: so nothing may have come meanwhile. looked: at each of them,
 * by this thread, and the kernel tells of what came to TCP since. */
static bool arm_all_locked(struct set *s, bool looked)
{
	uint32_t stirs = s->stirs;
	uint64_t ticks = exi_ticks(), sleep = exi_ready_sleep();
	bool ret = true, stays;
	int left;

	s->arming++;
	for (left = s->n_active; ret && left > 0; left--) {
		struct item *it = pop_locked(s);

		if (!it)
			break;
		stays = ticks - it->busy < IDLE_TICKS;
		exi_unlock(&s->lock);
		/* Armed and active, it rang since it was looked at. */
		disarm(it);
		ret = arm(it, stays ? sleep : 0) &&
		      (looked || !there_on_tcp(it));
		exi_lock(&s->lock);
		release_locked(it, !ret || stays);
	}
	s->arming--;
	return ret && s->stirs == stirs;
}

/* What is active was looked at since the set's stirs were those. True: its peers
 * ring, and this thread counts as a sleeper now. */
static bool prepare(struct set *s, uint32_t stirs)
{
	bool ret;

	exi_lock(&s->lock);
	/* What was added or changed meanwhile was not looked at, and what is there
	 * already rings nobody. */
	ret = s->stirs == stirs && arm_all_locked(s, true);
	s->sleepers += ret;
	exi_unlock(&s->lock);
	return ret;
}

/* This thread leaves while others sleep. What it looked at rings from now on, and
 * what it did not look at, or is there, is for one of them. */
static void pass_on(struct set *s)
{
	exi_lock(&s->lock);
	s->stirs += s->arming > 0; /* it did not find what this one held */
	if (others_sleep(s) && s->n_active &&
	    (s->n_fresh || !arm_all_locked(s, false) || s->n_fresh))
		nudge_locked(s);
	exi_unlock(&s->lock);
}

static int ms_between(uint64_t now, uint64_t deadline)
{
	uint64_t ms = now < deadline ? (deadline - now + 999999) / 1000000 : 0;

	return ms > INT_MAX ? INT_MAX : (int)ms;
}

static int until(uint64_t deadline)
{
	return deadline ? ms_between(exi_now_ns(), deadline) : -1;
}

static bool asked_lately(const struct set *s)
{
	return exi_ticks() -
		       atomic_load_explicit(&s->asked, memory_order_relaxed) <=
	       KERNEL_TICKS;
}

/* What the kernel has belongs to what a wait returns: unless it has had nothing for
 * long, when what it has now may as well have come a moment later. */
static bool kernel_is_due(const struct set *s)
{
	return atomic_load_explicit(&s->quiet, memory_order_relaxed) <
		       QUIET_ASKS ||
	       !asked_lately(s);
}

/* Nothing: all that was active was looked at since the set's stirs were those. The
 * kernel goes first, for it may tell of what fabrics have, but not twice in a row
 * where it leaves no room. Before a sleep it need not be asked. */
static int wait_once(struct set *s, struct epoll_event *ev, int max,
		     uint64_t deadline, bool at_once, uint32_t *ret_stirs)
{
	bool first = (at_once || s->n_active) && kernel_is_due(s) &&
		     !(s->filled && s->n_active);
	uint32_t met = s->met;
	bool told = false;
	int n = 0, k;

	if (s->filled)
		s->filled = false;
	if (first) {
		n = ask_kernel(s, ev, max);
		if (n < 0)
			return n;
	}
	n = collect(s, ev, n, max, false, n ? &met : NULL, &told);
	if (n == 0 && !at_once) {
		n = spin(s, ev, max, deadline, &told);
		first = first && asked_lately(s);
	}
	if (n == max || (n > 0 && (first || told || !kernel_is_due(s))))
		return n;
	if (!first && (n > 0 || at_once)) {
		k = ask_kernel(s, ev + n, max - n);
		if (k < 0)
			return n ? n : k;
		n += k;
	}
	if (n)
		return n;
	exi_lock(&s->lock);
	*ret_stirs = s->stirs;
	exi_unlock(&s->lock);
	return collect(s, ev, 0, max, true, NULL, &told);
}

static int sleep_once(struct set *s, struct epoll_event *ev, int max,
		      uint64_t deadline, const sigset_t *mask, uint32_t stirs)
{
	if (!prepare(s, stirs))
		return -EAGAIN;
	return take(s, s->fd, ev, max, until(deadline), mask, true);
}

/* Peers ring for whatever comes from now on. The item is this thread's. */
static void arm_next(struct item *it)
{
	disarm(it);
	it->armed_for = (short)interest(it);
	it->armed = !it->disabled &&
		    exi_ready_arm(it->sk, number(it), it->armed_for, true, 0);
}

#define SETTLES 3

/* Whether the set has an event now. Its own descriptor is readable then, and
 * else it is not, until something comes. */
static bool settle(struct set *s)
{
	int left, tries = 0;
	uint32_t stirs;
	bool ret;

	if (exi_unlikely(s->lost))
		find_lost(s);
	exi_lock(&s->lock);
	do {
		stirs = s->stirs;
		ret = false;
		for (left = s->n_active; left > 0; left--) {
			struct item *it = pop_locked(s);
			struct saw saw;
			uint32_t now;
			bool has;

			if (!it)
				break;
			it->counted = false;
			exi_unlock(&s->lock);
			arm_next(it);
			now = look(it, &saw);
			exi_lock(&s->lock);
			has = event_locked(it, now, &saw);
			release_locked(it, has);
			ret = ret || has;
		}
	} while (s->stirs != stirs && ++tries < SETTLES);
	ret = ret || s->stirs != stirs;
	if (ret && !s->nudged)
		nudge_locked(s);
	else if (!ret && s->nudged)
		calm_locked(s);
	exi_unlock(&s->lock);
	return ret;
}

#define NESTS 5 /* as in the kernel */

/* Who waits on the set is told of what is in the sets in it. */
static void settle_inner(const struct set *s, int depth)
{
	for (struct nest *n = s->nests; n && depth < NESTS; n = n->next) {
		settle_inner(n->inner, depth + 1);
		if (n->inner->outer)
			settle(n->inner);
	}
}

static __attribute__((noinline)) int
wait_managed(struct set *s, struct epoll_event *ev, int max, uint64_t deadline,
	     bool at_once, const sigset_t *mask)
{
	EXI_CANCEL_OFF(true);
	uint32_t stirs = 0, met;
	bool told;
	int n;

	exi_signals_begin();
	for (;;) {
		if (exi_unlikely(s->lost))
			find_lost(s);
		n = wait_once(s, ev, max, deadline, at_once, &stirs);
		if (n || at_once)
			break;
		met = s->met;
		n = s->outer && settle(s) ? -EAGAIN
		    : exi_signals_came(false)
			    ? -EINTR
			    : sleep_once(s, ev, max, deadline, mask, stirs);
		/* What rang beside it, or what it followed. */
		if (n > 0 && n < max && s->n_active)
			n = collect(s, ev, n, max, true, &met, &told);
		if (n > 0 || (n < 0 && n != -EAGAIN && n != -ETIMEDOUT))
			break;
		at_once = n == -ETIMEDOUT ||
			  until(deadline) == 0; /* a last look */
	}
	if (s->outer)
		settle(s);
	else if (s->n_active)
		pass_on(s);
	return n;
}

/* Inline: where the kernel was asked, each return costs twenty times a test. */
static inline __attribute__((always_inline)) int
any_wait(int epfd, struct epoll_event *ev, int max,
	 const struct timespec *timeout, const sigset_t *mask)
{
	struct set *s = set_of(epfd);
	bool at_once = timeout && !timeout->tv_sec && !timeout->tv_nsec;
	uint64_t now, deadline = 0;
	int n, ms = at_once ? 0 : -1;

	if (timeout && !at_once) {
		now = exi_now_ns();
		deadline = now + (uint64_t)timeout->tv_sec * 1000000000u +
			   (uint64_t)timeout->tv_nsec;
		ms = ms_between(now, deadline);
	}
	if (s && exi_unlikely(s->nests))
		settle_inner(s, 0);
	/* Until a connection has met its peer's library, the kernel's alone. */
	while (!s || s->n_managed == 0) {
		bool counts = !at_once && (uint32_t)epfd < n_sets;

		if (counts)
			atomic_fetch_add(strangers_of(epfd), 1);
		s = set_of(epfd);
		if (s && s->n_managed)
			n = 0; /* since it looked */
		else if (s)
			n = take(s, epfd, ev, max, ms, mask, false);
		else if ((n = ask(epfd, ev, max, ms, mask)) <= 0)
			n = n < 0 ? -errno : -ETIMEDOUT;
		else if ((s = set_of(epfd))) /* its first connection */
			n = absorb(s, ev, n);
		if (counts)
			atomic_fetch_sub(strangers_of(epfd), 1);
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
	return wait_managed(s, ev, max, deadline, at_once, mask);
}

/* More at a time than the kernel takes. */
#define EVENTS_MAX (INT_MAX / (int)sizeof(struct epoll_event))

static inline __attribute__((always_inline)) int
any_pwait(int epfd, struct epoll_event *ev, int max, int ms,
	  const sigset_t *mask)
{
	struct timespec t = { .tv_sec = ms / 1000,
			      .tv_nsec = ms % 1000 * 1000000 };

	/* Also where the library knows nothing of the set: that may change
	 * while this thread sleeps. */
	if (max <= 0 || max > EVENTS_MAX || !ev)
		return native.epoll_pwait(epfd, ev, max, ms, mask);
	return (int)shim_result(
		any_wait(epfd, ev, max, ms < 0 ? NULL : &t, mask));
}

HOOK int epoll_pwait(int epfd, struct epoll_event *ev, int max, int ms,
		     const sigset_t *mask)
{
	if (exi_unlikely(
		    atomic_load_explicit(&shim_left, memory_order_relaxed)))
		return native.epoll_pwait(epfd, ev, max, ms, mask);
	return any_pwait(epfd, ev, max, ms, mask);
}

HOOK int epoll_wait(int epfd, struct epoll_event *ev, int max, int ms)
{
	if (exi_unlikely(
		    atomic_load_explicit(&shim_left, memory_order_relaxed)))
		return native.epoll_wait(epfd, ev, max, ms);
	return any_pwait(epfd, ev, max, ms, NULL);
}

HOOK int epoll_pwait2(int epfd, struct epoll_event *ev, int max,
		      const struct timespec *t, const sigset_t *mask)
{
	if (exi_unlikely(
		    atomic_load_explicit(&shim_left, memory_order_relaxed)))
		return native.epoll_pwait2(epfd, ev, max, t, mask);
	if (max <= 0 || max > EVENTS_MAX || !ev ||
	    (t &&
	     (t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec >= 1000000000)))
		return (int)shim_result(-EINVAL);
	return (int)shim_result(any_wait(epfd, ev, max, t, mask));
}

/* --- the ends of sets --------------------------------------------------- */

/* What the kernel knows of an item is what its set tells outside. */
static void turn_outside(struct set *s, int fd)
{
	struct exi_sock *sk = exi_sock_peek(fd);
	struct epoll_event ev;
	struct item *it;

	if (!sk)
		return;
	exi_lock(&sk->link_lock);
	exi_lock(&structure);
	it = live_item(s->fd, fd, sk);
	if (it && it->managed) {
		/* The service tells of it. */
		if (it->link >= 0 && it->link == exi_ready_bell(sk, number(it)))
			native.epoll_ctl(s->fd, EPOLL_CTL_DEL, it->link, NULL);
		it->link = -1;
		ev = tagged(it);
		native.epoll_ctl(s->fd, EPOLL_CTL_MOD, fd, &ev);
	}
	exi_unlock(&structure);
	exi_unlock(&sk->link_lock);
}

bool shim_epoll_outer(int fd)
{
	EXI_CANCEL_OFF(false);
	struct set *s = set_of(fd);

	if (exi_likely(!s))
		return false;
	if (!atomic_exchange(&s->outer, true))
		for (int i = 0; i < s->size; i++)
			turn_outside(s, i);
	settle_inner(s, 0);
	settle(s);
	return s->n_managed > 0;
}

/* Another number of the same set. */
static int other_name(const struct set *s, int fd)
{
	for (uint32_t i = 0; i < high; i++)
		if ((int)i != fd && atomic_load(&sets[i]) == s)
			return (int)i;
	return -1;
}

void shim_epoll_closed(int fd)
{
	struct set *s = set_of(fd);

	if (exi_likely(!s))
		return;
	EXI_CANCEL_OFF(false);
	exi_lock(&structure);
	s = set_of(fd);
	if (s) {
		atomic_store(&sets[fd], NULL);
		if (s->names > 1) {
			s->names--;
			s->fd = other_name(s, fd);
		} else {
			for (int i = 0; i < s->size; i++)
				if (s->by_fd[i])
					remove_item(s->by_fd[i], false);
			exi_fd_close(s->nudge);
			s->nudge = -1;
			closed_sets[fd] = s;
		}
	}
	exi_unlock(&structure);
}

bool shim_epoll_known(int fd)
{
	return set_of(fd);
}

/* A second number of it must be known when its first connection comes. */
static int made(int epfd)
{
	exi_heed_put(epfd, EXI_HEED_NAMES);
	return epfd;
}

HOOK int epoll_create(int size)
{
	return made(native.epoll_create(size));
}

HOOK int epoll_create1(int flags)
{
	return made(native.epoll_create1(flags));
}

/* That no connection ever was in it does not matter: one may come. Few numbers are
 * of files without a type, and for these a descriptor is made that is in no set. */
static bool is_set_yet(int fd)
{
	struct stat st;
	int other;
	bool ret;

	if (set_of(fd))
		return true;
	if (fstat(fd, &st) < 0 || (st.st_mode & S_IFMT))
		return false;
	other = eventfd(0, EFD_CLOEXEC);
	ret = other >= 0 && is_set(fd, other);
	if (other >= 0)
		native.close(other);
	return ret;
}

void shim_epoll_named(int fd, int also)
{
	int saved = errno;
	struct set *s;

	/* A process that the library has left may not be let ask. */
	if (also < 0 || (uint32_t)also >= n_sets || atomic_load(&shim_left))
		return;
	if (!is_set_yet(fd)) {
		errno = saved;
		return;
	}
	EXI_CANCEL_OFF(false);
	exi_lock(&structure);
	s = make_set(fd);
	if (s) {
		s->names++;
		number_locked(also, s);
	}
	exi_unlock(&structure);
	errno = saved;
}

/* The items of other threads' hands and of a list that another thread may have been
 * changing: all are looked at anew, by nobody yet. */
static void begin_anew(struct set *s)
{
	atomic_store(&s->lock.word, 0);
	s->inherited = true;
	s->sleepers = s->arming = 0;
	exi_list_init(&s->active);
	exi_list_init(&s->line);
	exi_list_init(&s->resting);
	s->n_active = s->n_fresh = s->n_managed = s->n_resting = 0;
	for (int i = 0; i < s->size; i++) {
		struct item *it = s->by_fd[i];

		if (!it)
			continue;
		exi_list_init(&it->node);
		it->held = it->again = it->active = it->fresh = it->counted =
			it->in_line = it->rests = false;
		it->refs = 1;
		listen_to(it);
		s->n_managed += it->managed;
		activate_locked(it);
	}
}

/* The child has the sets, and its connections know of no waiters. */
void shim_epoll_forked(void)
{
	atomic_store(&structure.word, 0);
	for (int i = 0; i < (int)SHIM_STRANGERS; i++)
		atomic_store(strangers_of(i), 0);
	for (uint32_t i = 0; i < high; i++) {
		struct set *s = set_of((int)i);

		if (s && s->fd == (int)i) /* one of its numbers */
			begin_anew(s);
	}
}

void shim_epoll_leave(void)
{
	exi_lock(&structure);
	for (uint32_t i = 0; i < n_sets; i++) {
		struct set *s = set_of((int)i);

		if (!s)
			continue;
		atomic_store(&sets[i], NULL);
		if (s->nudge >= 0)
			native.epoll_ctl((int)i, EPOLL_CTL_DEL, s->nudge, NULL);
		if (--s->names > 0)
			continue;
		exi_fd_close(s->nudge);
		s->nudge = -1;
		closed_sets[i] = s;
	}
	exi_unlock(&structure);
}

/* Where it was put by another number, which is closed, it stays. */
static void owes(int fd)
{
	uint32_t end = high;

	for (uint32_t i = 0; i < end; i++)
		if (set_of((int)i))
			native.epoll_ctl((int)i, EPOLL_CTL_DEL, fd, NULL);
}

static bool knows(int epfd)
{
	return set_of(epfd) != NULL;
}

void shim_epoll_init(void)
{
	n_sets = 1u << 16;
	sets = calloc(n_sets, sizeof(*sets));
	closed_sets = calloc(n_sets, sizeof(*closed_sets));
	latents = calloc(n_sets, sizeof(*latents));
	if (!sets || !closed_sets || !latents)
		n_sets = 0;
	exi_ready_met = met;
	exi_ready_owes = owes;
	exi_unseen_begin(knows);
	exi_latent_begun = latent_begun;
	exi_latent_woke = latent_woke;
}
