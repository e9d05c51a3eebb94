/* SPDX-License-Identifier: BSD-2-Clause */
/* Epoll sets with connections of the library in them: what the files epoll_*.c
 * share. Each calls those before it in this list.
 *
 *   set      sets and their items: active ones, and the thread a doorbell wakes
 *   kernel   the kernel's events of a set
 *   look     looks at items, and reports them in order
 *   nest     sets that are waited on themselves
 *   wait     epoll_wait()
 *   ctl      epoll_ctl()
 *   end      the numbers of sets, fork, leaving the process
 *
 * Threads still sleep in the kernel's set. A connection is registered there as
 * the application asked until it has met its peer's library. From then on its
 * registration is edge-triggered and carries a tag, and the library reports the
 * connection's state to the application: the item is managed. An eventfd in the
 * set, the nudge, ends sleeps when a fabric has an event.
 *
 * A managed item is either active, and each epoll_wait() looks at it; or armed,
 * and its peer sends a wake-up with the next bytes, which makes the item
 * active. A thread that is about to sleep arms the active items, so the cost of
 * a call depends on the items that were active since the last sleep, not on the
 * number of items.
 *
 * A program may wait for a set by the system-call instruction, which the shim
 * does not intercept, although it called epoll_ctl() of the C library: the
 * kernel would return tags to it. So until a thread was seen to wait for a set
 * (by epoll_wait(), or for a descriptor that is, or contains, the set) its
 * items are idle: the kernel has them as the application asked, none is
 * managed, and the connections' peers do not get GO for a fabric
 * (exi_link_go()). A connection that is already on a fabric is watched as if it
 * were in no set (core/call/unseen.h). The first intercepted wait makes all
 * items not idle before it asks the kernel.
 *
 * No wake-up is lost. A doorbell calls wake() (epoll_set.c), which makes the
 * item active under the set's lock and then, if a thread sleeps, writes the
 * nudge. A thread that goes to sleep arms first (arming finds bytes that came
 * before), then counts itself as a sleeper under the same lock if nothing is
 * active.
 *
 * Locks, in their order: a set's `settling`, a socket's link lock,
 * shim_epoll_structure (which items there are), a socket's halves, a set's
 * lock. */
#ifndef EXI_PRELOAD_EPOLL_H
#define EXI_PRELOAD_EPOLL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/base/track.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/spin.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "preload/shim.h"

/* How long an item without events stays active, in exi_ticks(). After that the
 * library requests a doorbell from its peer. As long again for each IDLE_CROWD
 * active items, which take so much longer until each had its turn. */
#define IDLE_TICKS 2000000
#define IDLE_CROWD 256
/* How many looks an active item without events gets. A server that takes
 * IDLE_BATCH of its items at a time looks at each of them as often before it
 * has taken all: an item that rested meanwhile would cost a wake-up for each
 * message. */
#define IDLE_LOOKS 16
#define IDLE_BATCH 16
/* After QUIET_ASKS answers in a row without an event, and while fabrics have
 * events, the library does not ask the kernel again for KERNEL_TICKS, in
 * exi_ticks(). */
#define QUIET_ASKS   16
#define KERNEL_TICKS 50000

/* The low bits of a tag have the descriptor, and one of two flags: TAG_LINK,
 * the event is of the item's link; TAG_SHOT, the event is of a one-shot item
 * that is not managed, and the bits from TAG_NTH on have the number of the
 * shot. The other bits are the set's prefix. */
#define TAG_BITS  34
#define TAG_MASK  ((UINT64_C(1) << TAG_BITS) - 1)
#define TAG_FD	  ((UINT64_C(1) << 24) - 1)
#define TAG_LINK  (UINT64_C(1) << 24)
#define TAG_SHOT  (UINT64_C(1) << 25)
#define TAG_NTH	  26
#define TAG_NUDGE TAG_FD

#define RX_EVENTS  (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLPRI)
#define TX_EVENTS  (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)
#define OVER	   (EPOLLERR | EPOLLHUP | EPOLLRDHUP)
#define MODE_FLAGS (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP)

/* An item before a look: changes after the look are reported next time. */
struct saw {
	uint64_t came;	  /* bytes that had arrived; see `arrived` */
	uint32_t cramped; /* edge: `cramped` of the socket */
};

struct item {
	struct exi_list node; /* among the active, those in line, or at rest */
	/* The state at the last look, if the look found nothing. Belongs to the
	 * holder while the item is held. */
	struct exi_glance glance;
	struct exi_waiter waiter[2];
	bool waits[2]; /* by direction, under its lock and the set's */
	struct set *set;
	struct exi_sock *sk;
	uint32_t generation; /* which socket of sk's place this is */
	int fd;
	int link;      /* the peer's bell, in the kernel's set too; -1 */
	uint32_t life; /* the life of the connection when link was found */
	bool listens;
	bool room; /* the kernel reports space on TCP, too */
	/* Under the set's lock: */
	uint32_t events;
	epoll_data_t data;
	int refs; /* threads that look at it, and 1 while it is in the set */
	bool managed;
	bool dormant; /* managed, and not in the application's set now */
	bool active;  /* looked at by waits; also when in line */
	bool in_line; /* had an event at the last look, not reported yet */
	bool rests;   /* the peer rings when bytes come */
	bool held;    /* by the one thread that may look at it */
	bool again;   /* something came while it was held */
	bool fresh;   /* something came, and no wait has looked since */
	/* What came made the set readable, see shim_set_settle(). */
	bool counted;
	bool dead;
	uint8_t shots; /* how often the one-shot item was armed */
	uint32_t nth;  /* its number among managed items, see `met` */
	uint32_t rung; /* edge: events to report again if there is need */
	/* The holder reads these without the lock. They are not in the same
	 * word as fields that other threads change then, because a compiler may
	 * access several fields at once. */
	bool armed; /* the peer was asked to ring, for these: */
	short armed_for;
	bool disabled;	   /* one-shot, and the shot was fired */
	bool told;	   /* edge: reported since it was added or changed */
	bool blocked;	   /* edge: could not send at the last look */
	uint32_t cramped;  /* edge: of the socket, at the last report */
	uint32_t over;	   /* edge: events of OVER, at the last report */
	unsigned int idle; /* looks in a row that found nothing */
	uint64_t busy;	   /* exi_ticks() when it last had an event */
	/* Bytes that had arrived at the last report; level: 0 if they were not
	 * on TCP. */
	uint64_t arrived;
	/* The order of items with events, in exi_ticks() of the peer: */
	uint64_t place;	  /* place in that order; 0: none */
	uint64_t told_at; /* when it was last reported */
	/* The kernel's order: POSITION() of its first event for this item since
	 * the item was last reported: by_tcp for bytes on TCP, by_ring for a
	 * doorbell; 0: none. position is that of the event found in a
	 * search. */
	uint64_t by_tcp;
	uint64_t by_ring;
	uint64_t position;
	uint64_t since; /* emptied_before, when by_tcp was set */
	uint32_t said;	/* `said` of the socket, when its link was last read */
	uint32_t rings; /* doorbells of the peer's process, see exi_first */
	uint64_t sent;	/* when the peer's process last sent by the kernel */
	/* first->kernel of the bytes found; UINT64_MAX: unknown. */
	uint64_t kernel;
	uint64_t written;   /* on TCP: when, as the peer reports; 0: unknown */
	bool on_tcp;	    /* at the last look the kernel had its bytes */
	_Atomic bool moves; /* moves to a fabric soon: see exi_first */
	/* The kernel reported it on TCP since it was last reported here. */
	bool heard;
	/* `began` of the wait that left it out, see is_news_locked(); 0:
	 * none. */
	uint64_t left_out;
	/* Found in a search: */
	struct item *next;
	struct saw saw;
	uint32_t now;
	struct exi_first first;
};

/* A position behind so many events of the kernel, then by turns among items. */
#define POSITION(behind, turn) ((uint64_t)(behind) << 32 | (turn))

#define SPARES 16 /* items of which a set keeps the memory for reuse */

struct set {
	struct exi_lock lock;
	int fd;	   /* one of its numbers */
	int names; /* how many numbers it has; under structure */
	struct item **by_fd;
	int size;
	struct exi_list active;
	/* The active items in the order of their places. */
	struct exi_list line;
	struct exi_list resting;
	int n_resting;
	int n_moving;
	/* turns counts the items that the kernel reported. turns_before is its
	 * value when the kernel was last asked. */
	_Atomic uint32_t turns;
	_Atomic uint32_t turns_before;
	/* Read without the lock as hints: */
	_Atomic int n_managed;
	_Atomic int n_active;
	_Atomic int n_fresh;
	_Atomic bool attended; /* it is `awaited`, and no item is idle */
	uint32_t stirs;	       /* changes whenever something comes */
	_Atomic uint32_t met;  /* counts items that became managed */
	int sleepers;
	int arming; /* threads that arm for a sleep */
	int nudge;
	bool nudged; /* the nudge is readable */
	_Atomic int
		n_conns; /* connections, latent ones, too; under structure */
	bool awaited;	 /* a thread was seen to wait for it; under structure */
	bool timed;	 /* the peers report when they send */
	_Atomic bool
		/* The kernel's events of items were lost, see left() in
		 * epoll_kernel.c. */
		lost;
	_Atomic bool outer; /* the set's own descriptor is waited on */
	bool inherited;	    /* made before a fork: others may have it */
	_Atomic(struct nest *) nests;
	/* Held while the set is settled: it has the active items then, and a
	 * wait that finds none looks again. */
	struct exi_lock settling;
	struct set *settles_next; /* see shim_set_settle_later_locked() */
	uint64_t prefix;
	/* When the kernel was asked. Hints: the last writer wins. */
	_Atomic uint64_t asked; /* exi_ticks() */
	/* emptied: all events that the kernel had before this time were
	 * reported. emptied_before: the same, at the look before. */
	_Atomic uint64_t emptied;
	_Atomic uint64_t emptied_before;
	_Atomic int quiet;   /* answers in a row without an event */
	_Atomic bool filled; /* the kernel had more events than fitted */
	struct exi_spin spin;
	struct item *spares[SPARES];
	int n_spares;
};

/* A set that is, or was, in another. */
struct nest {
	struct set *inner;
	struct nest *next;
};

/* The set of a latent connection; under structure. The kernel reports the
 * connection until it is promoted and becomes an item. */
struct latent {
	struct set *set; /* null: in none */
	uint64_t prefix; /* which set of this memory */
	uint32_t events;
	epoll_data_t data;
};

/* The result of a look. */
struct looked {
	uint64_t began; /* when the last look began, in exi_ticks() */
	/* The kernel had events; it would report level-triggered ones again. */
	bool asked;
	bool alone; /* no thread slept in the set, or was about to */
};

/* epoll_set.c */

/* Which items there are in which set. */
extern struct exi_lock shim_epoll_structure;
/* Tables by number, of shim_epoll_n places each: latent connections; sets; and
 * closed sets, by their last numbers, for reuse. */
extern struct latent *shim_epoll_latents;
extern _Atomic(struct set *) *shim_epoll_sets;
extern struct set **shim_epoll_closed_sets;
/* A thread waited for this number, of a set that the library may not know
 * yet. */
extern _Atomic bool *shim_epoll_awaited;
extern uint32_t shim_epoll_n;
/* Above the highest number that ever had a set. */
extern uint32_t shim_epoll_high;

/* Frees the item, to which there is no reference any more. */
void shim_item_free_locked(struct item *it);

/* Returns a new item, filled with zeroes; null if there is no memory. */
struct item *shim_item_new(struct set *s);

/* Makes the nudge readable, and not readable again. */
void shim_set_nudge_locked(struct set *s);
void shim_set_calm_locked(struct set *s);

/* Activates a managed item when something has come: the next wait looks at it,
 * and a thread that sleeps in the set is nudged. */
void shim_item_activate_locked(struct item *it);

/* Requests doorbells from the peer, until shim_item_disarm(). Returns false if
 * none is needed. No lock is held; the item is not among the active items and
 * belongs to this thread. */
bool shim_item_arm(struct item *it, uint64_t sleep);

/* Takes the item off the active items: no wait looks at it, and no doorbell is
 * for it any more. */
void shim_item_off_active_locked(struct item *it);

/* Makes the item a waiter of both directions of its connection. */
void shim_item_listen(struct item *it);

/* Makes room in by_fd for the number; false without memory.
 * shim_epoll_structure is held. */
bool shim_set_room_for(struct set *s, int fd);

/* Has the peers of the set's connections report when they send; not needed if
 * the set has only one connection. shim_epoll_structure is held. */
void shim_set_want_times(struct set *s);

/* The event to register with the kernel for a managed item: any change on TCP,
 * whatever the application asked for. In a set that is itself waited on, only
 * events that the application asked for, because the kernel reports the set
 * when it reports its items. Space is part of the event only if the application
 * has asked for space once: the kernel queues an event for space at once, and
 * bytes that come later would get the place of that event. */
struct epoll_event shim_item_tagged(const struct item *it);

/* Called when a thread is seen to wait for the set: makes all its items not
 * idle. Two threads may call this at once; each returns only when no item is
 * idle. No lock is held. */
void shim_set_attend(struct set *s);

/* The event to register with the kernel for an item that is not managed: the
 * application's own event. A one-shot item that is not idle has a tag, too:
 * when it becomes managed, the library must know whether the shot was fired. */
struct epoll_event shim_item_wanted(const struct item *it);

/* Makes an item managed. shim_epoll_structure is held, and the link lock. */
void shim_item_manage(struct item *it);

/* Removes the item's link from the set while the link rests (link/watch.h). No
 * lock is held. */
void shim_item_unshare(struct item *it);

/* Removes an item. shim_epoll_structure is held; with linked, the link lock is
 * held and the link is up. */
void shim_item_remove(struct item *it, bool linked);

/* Called when a connection has met its peer: its items become managed, except
 * for idle ones. The connection stays on TCP if no nudge could be made, or if a
 * process that was forked before also has the set, because that process would
 * not learn of events on the fabric. */
void shim_epoll_met(struct exi_sock *sk, bool again);

/* Gives the set this number; shim_epoll_structure is held. */
void shim_set_number_locked(int epfd, struct set *s);

/* Makes a set. Memory of sets is never freed: a thread may be waiting in a set
 * that was closed, and then finds another set with the same number, as in the
 * kernel. */
struct set *shim_set_make(int epfd);

/* The item of this socket. The item of an earlier socket with the same number,
 * of which the close was not intercepted, does not count. */
struct item *shim_set_live_item(int epfd, int fd, const struct exi_sock *sk);

/* Whether fd is an epoll set: tries to remove `other` from it, for which the
 * kernel returns another error if fd is no set. */
bool shim_set_is(int fd, int other);

/* epoll_kernel.c */

/* Reads an item's link after its doorbell rang. The library then informs the
 * other processes that have the connection, so it first records that this
 * process uses the connection. */
void shim_item_hear(struct item *it);

/* Takes the tagged events out of ev; returns how many events remain. */
int shim_set_absorb(struct set *s, struct epoll_event *ev, int n);

/* Looks at every item, as if the kernel had just reported all of them. */
void shim_set_find_lost(struct set *s);

/* Takes the kernel's events for the application: -ETIMEDOUT if there were none,
 * 0 if none remain once the tagged ones are taken out. The caller's memory gets
 * no tags. With sleeps, the thread counts as a sleeper until this returns. */
__attribute__((noinline)) int shim_set_take(struct set *s, int fd,
					    struct epoll_event *ev, int max,
					    int ms, const sigset_t *mask,
					    bool sleeps);

/* Asks the kernel for events without sleeping; 0: none. Notes whether it is
 * worth asking again soon. */
int shim_set_ask_kernel(struct set *s, struct epoll_event *ev, int max);

/* epoll_look.c */

/* Ends a hold. The item becomes active again; with !keep, only if something
 * came meanwhile. */
void shim_item_release_locked(struct item *it, bool keep);

/* Reports the items with events, in the order in which the events came; see the
 * head of epoll_look.c. ev already has n events of the kernel; returns the new
 * number of events. began: exi_ticks() now or a moment ago, different for each
 * look; 0 in a spin, which reads the clock only if it must. *ret is unchanged
 * if a spin finds nothing new. */
int shim_set_collect(struct set *s, struct epoll_event *ev, int n, int max,
		     bool spins, const uint32_t *met, uint64_t began,
		     struct looked *ret);

/* epoll_nest.c */

/* Called when a descriptor that is no connection was added to a set: it may be
 * another set. */
void shim_set_nest(int epfd, int fd);

/* Returns whether the set has an event now, and makes its own descriptor
 * readable if so. Otherwise the descriptor stays unreadable until something
 * comes. */
bool shim_set_settle(struct set *s);

/* Has the service thread settle the set before it waits again. Called by the
 * service thread. */
void shim_set_settle_later_locked(struct set *s);
/* In the child after fork: no set waits for the service thread. */
void shim_set_settle_forked(void);

/* Settles the sets in this one. With waits, a thread waits for this set, and so
 * for those in it. */
void shim_set_settle_inner(const struct set *s, int depth, bool waits);

/* epoll_ctl.c */

/* Begins the life of a latent connection; no other thread knows the number
 * yet. */
void shim_epoll_latent_begun(int fd);

/* Makes the item of a latent connection that became a socket. The socket's link
 * lock is held, so it does not meet its peer before. */
void shim_epoll_latent_promoted(struct exi_sock *sk, int fd);

static inline struct set *shim_set_of(int epfd)
{
	if ((uint32_t)epfd >= shim_epoll_n || !shim_tracks(epfd, EXI_TRACK_ANY))
		return NULL;
	return atomic_load_explicit(&shim_epoll_sets[epfd],
				    memory_order_acquire);
}

/* Changes a count of the set that is read without its lock as a hint. */
static inline void shim_set_count_locked(struct set *s, _Atomic int *n,
					 int change)
{
	EXI_LOCKED(&s->lock);
	atomic_store_explicit(
		n, atomic_load_explicit(n, memory_order_relaxed) + change,
		memory_order_relaxed);
}

/* Counts threads that sleep in the set as if it had no connections. They are
 * not counted among the sleepers of a set, because there may be no set yet. */
static inline _Atomic int *shim_set_strangers(int epfd)
{
	return &shim_near.strangers[(uint32_t)epfd % SHIM_STRANGERS];
}

static inline bool shim_set_others_sleep(const struct set *s)
{
	return s->sleepers > 0 || (s->sleepers == 0 && s->fd >= 0 &&
				   atomic_load(shim_set_strangers(s->fd)));
}

/* Gives a reference back; the last one frees the item. */
static inline void shim_item_unref_locked(struct item *it)
{
	EXI_LOCKED(&it->set->lock);
	if (exi_unlikely(--it->refs == 0))
		shim_item_free_locked(it);
}

static inline void shim_item_stale_locked(struct item *it)
{
	EXI_LOCKED(&it->set->lock);
	shim_set_count_locked(it->set, &it->set->n_fresh, -it->fresh);
	it->fresh = false;
}

static inline void shim_item_moves_locked(struct item *it, bool moves)
{
	EXI_LOCKED(&it->set->lock);
	it->set->n_moving += moves - it->moves;
	it->moves = moves;
}

/* Lets the item rest: no wait looks at it, and its peer sends a wake-up. */
static inline void shim_item_idle_locked(struct item *it)
{
	struct set *s = it->set;

	EXI_LOCKED(&it->set->lock);
	if (it->dead || it->dormant || it->disabled || !it->managed)
		return;
	exi_list_add_tail(&s->resting, &it->node);
	s->n_resting++;
	it->rests = true;
}

static inline void shim_item_make_active_locked(struct item *it,
						struct exi_list *where)
{
	EXI_LOCKED(&it->set->lock);
	it->active = true;
	it->in_line = where == &it->set->line;
	exi_list_add_tail(where, &it->node);
	shim_set_count_locked(it->set, &it->set->n_active, 1);
}

/* An item that is in a list becomes this thread's. */
static inline void shim_item_hold_locked(struct item *it)
{
	struct set *s = it->set;

	EXI_LOCKED(&s->lock);
	exi_list_del(&it->node);
	shim_set_count_locked(s, &s->n_active, -it->active);
	s->n_resting -= it->rests;
	it->active = it->in_line = it->rests = false;
	it->refs++;
	it->held = true;
	it->again = false;
}

/* The first of a list becomes this thread's; null: it is empty. */
static inline struct item *shim_set_pop_from_locked(struct set *s,
						    struct exi_list *list)
{
	struct item *it;

	EXI_LOCKED(&s->lock);
	if (exi_list_empty(list))
		return NULL;
	it = exi_container(list->next, struct item, node);
	shim_item_hold_locked(it);
	return it;
}

static inline struct item *shim_set_pop_locked(struct set *s)
{
	struct item *it = shim_set_pop_from_locked(s, &s->line);

	EXI_LOCKED(&s->lock);
	return it ? it : shim_set_pop_from_locked(s, &s->active);
}

/* Whether no thread was seen to wait for the item's set, see the head of this
 * file. Under structure. */
static inline bool shim_item_idle(const struct item *it)
{
	return it->waiter[EXI_RX].idle;
}

/* The number by which the library knows the connection; -1: the item's socket
 * is gone. The item's own number may have been closed while the connection has
 * another. */
static inline int shim_item_number(const struct item *it)
{
	return atomic_load(&it->sk->generation) == it->generation
		       ? atomic_load(&it->sk->fd)
		       : -1;
}

static inline uint32_t shim_item_interest(const struct item *it)
{
	return it->events & ~(uint32_t)MODE_FLAGS;
}

/* Whether an edge-triggered item is to be reported: bytes arrived, there is
 * room after there was none or a send found none, or a direction ended. */
static inline bool shim_item_edge(const struct item *it, uint32_t now,
				  const struct saw *saw)
{
	return !it->told || (now & OVER & ~it->over) ||
	       (it->rung & (shim_item_interest(it) | EPOLLERR | EPOLLHUP)) ||
	       ((now & RX_EVENTS) && saw->came != it->arrived) ||
	       ((now & TX_EVENTS) &&
		(it->blocked || saw->cramped != it->cramped));
}

/* The event of an item that is in this state now; 0: none. */
static inline uint32_t shim_item_event_locked(const struct item *it,
					      uint32_t now,
					      const struct saw *saw)
{
	uint32_t ret = now & (shim_item_interest(it) | EPOLLERR | EPOLLHUP);

	EXI_LOCKED(&it->set->lock);
	if ((now & POLLNVAL) || it->disabled || it->dormant || it->dead)
		return 0;
	/* The end of a direction is an edge even if the application did not ask
	 * for it. */
	return ret && (it->events & EPOLLET) &&
			       !shim_item_edge(it, ret | (now & OVER), saw)
		       ? 0
		       : ret;
}

static inline struct item *shim_set_item(struct set *s, int fd)
{
	return s && fd >= 0 && fd < s->size ? s->by_fd[fd] : NULL;
}

static inline uint64_t shim_item_received(const struct item *it)
{
	return __atomic_load_n(&exi_sock_shared(it->sk)->half[EXI_RX].bytes,
			       __ATOMIC_RELAXED);
}

/* Bytes that were received, and those that can be received now. */
static inline uint64_t shim_item_arrived(const struct item *it)
{
	int unread = exi_ready_unread(it->sk, shim_item_number(it));

	return shim_item_received(it) + (uint64_t)(unread > 0 ? unread : 0);
}

static inline uint32_t shim_item_before_look(const struct item *it,
					     struct saw *ret)
{
	*ret = (struct saw){ 0 };
	if (!(it->events & EPOLLET))
		return shim_item_interest(it);
	*ret = (struct saw){ shim_item_arrived(it),
			     atomic_load(&it->sk->cramped) };
	return shim_item_interest(it) | EPOLLRDHUP;
}

/* Whether a look at an active item would find nothing, as the last look did: no
 * bytes have come since (their doorbell would have ended a rest), and
 * shim_item_activate_locked() was not called. If a doorbell was requested, a
 * look is still needed to withdraw the request. */
static inline bool shim_item_still_locked(const struct item *it)
{
	EXI_LOCKED(&it->set->lock);
	return exi_glance_same(&it->glance) && !it->armed &&
	       (exi_likely(!(shim_item_interest(it) & TX_EVENTS)) ||
		((it->events & EPOLLET) && it->told && !it->blocked &&
		 atomic_load_explicit(&it->sk->cramped, memory_order_relaxed) ==
			 it->cramped));
}

/* No lock is held, and the item is this thread's. */
static inline uint32_t shim_item_look(const struct item *it, struct saw *ret)
{
	short events = (short)shim_item_before_look(it, ret);

	return (uint16_t)exi_ready_events(it->sk, shim_item_number(it), events);
}

static inline void shim_item_disarm(struct item *it)
{
	if (it->armed)
		exi_ready_disarm(it->sk, shim_item_number(it), it->armed_for);
	it->armed = false;
}

/* Asks the kernel. A call without a mask is cheaper. */
static inline int shim_set_ask(int fd, struct epoll_event *ev, int max, int ms,
			       const sigset_t *mask)
{
	return mask ? native.epoll_pwait(fd, ev, max, ms, mask)
		    : native.epoll_wait(fd, ev, max, ms);
}

#endif
