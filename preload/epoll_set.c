/* SPDX-License-Identifier: BSD-2-Clause */
/* Epoll sets and their items: which items are active, which thread a doorbell
 * wakes, and when an item is managed. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "core/base/cancel.h"
#include "core/base/fds.h"
#include "core/base/track.h"
#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/link/watch.h"
#include "core/sock/holders.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "preload/epoll.h"
#include "preload/shim.h"

#define TAG_SPENT (TAG_SHOT | (TAG_FD - 1)) /* no descriptor: dropped */

struct exi_lock shim_epoll_structure;

struct latent *shim_epoll_latents;
_Atomic(struct set *) *shim_epoll_sets;
struct set **shim_epoll_closed_sets;
_Atomic bool *shim_epoll_awaited;
uint32_t shim_epoll_n;
uint32_t shim_epoll_high;

void shim_item_free_locked(struct item *it)
{
	struct set *s = it->set;

	EXI_LOCKED(&it->set->lock);
	if (s->n_spares < SPARES)
		s->spares[s->n_spares++] = it;
	else
		free(it);
}

struct item *shim_item_new(struct set *s)
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

/* --- active items ------------------------------------------------------- */

void shim_set_nudge_locked(struct set *s)
{
	EXI_LOCKED(&s->lock);
	if (s->nudge >= 0)
		eventfd_write(s->nudge, 1);
	s->nudged = true;
}

void shim_set_calm_locked(struct set *s)
{
	eventfd_t drained;

	EXI_LOCKED(&s->lock);
	if (s->nudge >= 0)
		eventfd_read(s->nudge, &drained);
	s->nudged = false;
}

/* Something came to a set whose own descriptor is waited on. The service thread
 * may not look what it was here, where it has the lock of a direction: it looks
 * before it waits again. A doorbell also comes without bytes, when the
 * connection moves to a fabric. */
static void tell_outside_locked(struct set *s)
{
	EXI_LOCKED(&s->lock);
	if (exi_service_self())
		shim_set_settle_later_locked(s);
	else
		shim_set_nudge_locked(s);
}

static void off_the_resting_locked(struct item *it)
{
	EXI_LOCKED(&it->set->lock);
	if (!it->rests)
		return;
	exi_list_del(&it->node);
	it->set->n_resting--;
	it->rests = false;
}

void shim_item_activate_locked(struct item *it)
{
	struct set *s = it->set;

	EXI_LOCKED(&it->set->lock);
	if (it->dead || it->dormant || !it->managed)
		return;
	s->stirs++;
	it->idle = 0;
	it->busy = exi_ticks();
	shim_set_count_locked(s, &s->n_fresh, !it->fresh);
	it->fresh = true;
	if (it->held) /* the holder makes it active */
		it->again = true;
	else
		it->glance.kick = NULL;
	if (!it->held && !it->active) {
		off_the_resting_locked(it);
		shim_item_make_active_locked(it, &s->active);
	}
	if (shim_set_others_sleep(s))
		shim_set_nudge_locked(s);
	else if (s->outer && !it->counted)
		tell_outside_locked(s);
	it->counted = true;
}

/* Whether something came since the last look that an edge-triggered item must
 * report. */
static bool missed(const struct item *it, uint32_t events)
{
	struct exi_ready r;

	if ((events & RX_EVENTS) &&
	    (shim_item_arrived(it) != it->arrived ||
	     !exi_ready_look(it->sk, shim_item_number(it), EPOLLIN | EPOLLRDHUP,
			     &r) ||
	     (r.now & EPOLLRDHUP & ~it->over)))
		return true;
	/* Whether there is room, for a program that found none. */
	return (events & TX_EVENTS) &&
	       (it->blocked || atomic_load(&it->sk->cramped) != it->cramped) &&
	       (!exi_ready_look(it->sk, shim_item_number(it), EPOLLOUT, &r) ||
		(r.now & EPOLLOUT));
}

bool shim_item_arm(struct item *it, uint64_t sleep)
{
	short events = (short)shim_item_interest(it);

	if (it->armed || it->disabled)
		return true;
	if (!exi_ready_arm(it->sk, shim_item_number(it), events,
			   it->events & EPOLLET, sleep))
		return false;
	it->armed = true;
	it->armed_for = events;
	/* If something came since the last look, no doorbell will report it. */
	return !(it->events & EPOLLET) || !missed(it, (uint32_t)events);
}

/* A doorbell may have been missed; it was for all active items. */
static void unheard_locked(struct set *s)
{
	EXI_LOCKED(&s->lock);
	s->stirs++;
	if (s->n_active && shim_set_others_sleep(s))
		shim_set_nudge_locked(s);
}

void shim_item_off_active_locked(struct item *it)
{
	EXI_LOCKED(&it->set->lock);
	shim_item_stale_locked(it);
	unheard_locked(it->set);
	off_the_resting_locked(it);
	if (!it->active)
		return;
	exi_list_del(&it->node);
	shim_set_count_locked(it->set, &it->set->n_active, -1);
	it->active = it->in_line = false;
}

/* Removes the item from the waiters of direction d, whose lock is held. After
 * that, the memory that the item reads without that lock may go away. */
static void let_go_of(struct item *it, enum exi_dir d)
{
	exi_lock(&it->set->lock);
	it->waits[d] = false;
	if (!it->held) /* else the holder sees that it no longer waits */
		it->glance.kick = NULL;
	exi_unlock(&it->set->lock);
	exi_sock_unwait_locked(it->sk, d, &it->waiter[d]);
}

/* The lock of direction d is held. */
static void wake(struct item *it, enum exi_dir d)
{
	/* The item's socket is gone: the item lets go of it, so that its memory
	 * can serve another socket. */
	if (atomic_load(&it->sk->generation) != it->generation ||
	    atomic_load(&it->sk->fd) < 0) {
		let_go_of(it, d);
		exi_lock(&it->set->lock);
		unheard_locked(it->set);
		exi_unlock(&it->set->lock);
		return;
	}
	exi_lock(&it->set->lock);
	/* A doorbell is for both directions; bytes are never already
	 * counted. */
	if (d == EXI_RX)
		it->counted = false;
	shim_item_activate_locked(it);
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

/* Makes an edge of the events for each item, or for those that were not
 * reported `*came`, the bytes that have come. */
static void ring(struct exi_sock *sk, int fd, uint32_t events,
		 const uint64_t *came)
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
		if (!came || ((it->events & EPOLLET) && it->arrived != *came))
			it->rung |= events;
		exi_unlock(&it->set->lock);
		wake_rx(w);
	}
	exi_half_unlock(&sh->half[EXI_RX]);
}

void shim_epoll_bell(struct exi_sock *sk, int fd, uint32_t events)
{
	ring(sk, fd, events, NULL);
}

void shim_epoll_hides(struct exi_sock *sk, int fd)
{
	int unread;
	uint64_t came;

	if (!atomic_load(&sk->lookers[EXI_RX])) /* an item looks, too */
		return;
	unread = exi_ready_unread(sk, fd);
	if (unread <= 0)
		return;
	came = __atomic_load_n(&exi_sock_shared(sk)->half[EXI_RX].bytes,
			       __ATOMIC_RELAXED) +
	       (uint64_t)unread;
	ring(sk, fd, RX_EVENTS, &came);
}

/* Whether the item's own number still belongs to its connection. */
static bool named(const struct item *it)
{
	return shim_item_number(it) >= 0 && exi_sock_is(it->sk, it->fd);
}

void shim_item_listen(struct item *it)
{
	static void (*const calls[])(struct exi_waiter *) = { wake_rx,
							      wake_tx };
	struct exi_shared *sh;

	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		it->waiter[d].wake = calls[d];
		if (!exi_sock_lock(it->sk, shim_item_number(it), d, &sh))
			continue;
		if (it->waiter[d].idle)
			exi_sock_idle_locked(it->sk, d, &it->waiter[d]);
		else
			exi_sock_wait_locked(it->sk, d, &it->waiter[d]);
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
			let_go_of(it, d);
		exi_half_unlock(h);
	}
}

bool shim_set_room_for(struct set *s, int fd)
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

void shim_set_want_times(struct set *s)
{
	if (s->timed || s->n_conns < 2 || !s->n_managed)
		return;
	s->timed = true;
	for (int i = 0; i < s->size; i++)
		if (s->by_fd[i] && s->by_fd[i]->managed)
			exi_ready_want_times(s->by_fd[i]->sk,
					     shim_item_number(s->by_fd[i]));
}

struct epoll_event shim_item_tagged(const struct item *it)
{
	uint32_t events = EPOLLIN | EPOLLPRI | EPOLLRDHUP;

	if (it->room)
		events |= EPOLLOUT;
	if (it->set->outer)
		events &= it->dormant ? 0 : shim_item_interest(it);
	return (struct epoll_event){
		.events = events | EPOLLET,
		.data.u64 = it->set->prefix | (uint32_t)it->fd,
	};
}

static struct epoll_event shot(const struct item *it)
{
	return (struct epoll_event){
		.events = it->events,
		.data.u64 = it->set->prefix | TAG_SHOT |
			    (uint64_t)it->shots << TAG_NTH | (uint32_t)it->fd,
	};
}

struct epoll_event shim_item_wanted(const struct item *it)
{
	if ((it->events & EPOLLONESHOT) && !shim_item_idle(it))
		return shot(it);
	return (struct epoll_event){ .events = it->events, .data = it->data };
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

/* epoll_ctl(2) for an item. If its number was closed while the kernel keeps the
 * item, the connection gets that number for a moment, unless another file has
 * it. */
static int control(const struct item *it, int op, struct epoll_event *ev)
{
	int ret = -1, fd;

	if (exi_likely(named(it)))
		return native.epoll_ctl(it->set->fd, op, it->fd, ev);
	fd = native.fcntl64(shim_item_number(it), F_DUPFD_CLOEXEC, it->fd);
	if (fd == it->fd)
		ret = native.epoll_ctl(it->set->fd, op, fd, ev);
	if (fd >= 0)
		native.close(fd);
	return ret;
}

/* Changes an item's event in the kernel's set. An item that cannot be changed,
 * because it is exclusive or its number got another file, is removed and added
 * again. */
static void renew(const struct item *it, struct epoll_event *ev)
{
	if (control(it, EPOLL_CTL_MOD, ev) == 0)
		return;
	control(it, EPOLL_CTL_DEL, NULL);
	control(it, EPOLL_CTL_ADD, ev);
}

/* Adds the link to the set, so that a doorbell wakes the thread here directly.
 * If the kernel refuses, the service thread passes doorbells on. -ENOTCONN: the
 * link is not up yet, and shim_epoll_met() will be called when it is. The link
 * lock is held. */
static void share_link_locked(struct item *it)
{
	EXI_LOCKED(&it->sk->link_lock);
	it->life = it->sk->sh->lives;
	it->link = it->set->outer
			   ? -1
			   : exi_link_share_locked(it->sk, watch_link, it);
}

void shim_item_unshare(struct item *it)
{
	exi_lock(&it->sk->link_lock);
	exi_lock(&shim_epoll_structure);
	if (!it->dead && it->link >= 0 && atomic_load(&it->sk->link_rests)) {
		native.epoll_ctl(it->set->fd, EPOLL_CTL_DEL, it->link, NULL);
		it->link = -ENOTCONN; /* exi_ready_met() shares it again */
	}
	exi_unlock(&shim_epoll_structure);
	exi_unlock(&it->sk->link_lock);
}

void shim_item_manage(struct item *it)
{
	struct set *s = it->set;
	struct epoll_event ev;

	if (it->managed || add_nudge(s))
		return;
	it->room = shim_item_interest(it) & TX_EVENTS;
	ev = shim_item_tagged(it);
	renew(it, &ev);
	share_link_locked(it);
	exi_lock(&s->lock);
	it->managed = true;
	s->met++;
	it->nth = s->met;
	it->rung = RX_EVENTS;
	shim_item_moves_locked(it, true); /* until a look */
	shim_set_count_locked(s, &s->n_managed, 1);
	shim_item_activate_locked(it);
	/* A thread that sleeps as if nothing were active looks again. */
	if (s->outer && !shim_set_others_sleep(s))
		tell_outside_locked(s);
	else
		shim_set_nudge_locked(s);
	exi_unlock(&s->lock);
	if (s->timed)
		exi_ready_want_times(it->sk, shim_item_number(it));
	else
		shim_set_want_times(s);
}

static void idle_no_more(struct item *it, enum exi_dir d)
{
	/* Kept while we are among its waiters. */
	struct exi_half *h = &exi_sock_shared(it->sk)->half[d];

	exi_lock(&h->lock);
	it->waiter[d].idle = false;
	if (d == EXI_RX)
		it->sk->awaited = true;
	exi_half_unlock(h);
}

/* Makes an item that of a set with a waiting thread, and only then not idle, so
 * that a child that is forked in between does it again. From now on the kernel
 * reports a shot by the tag. The shot has not been fired, unless a thread
 * waited by a call that is not intercepted. */
static void attend_item(struct item *it)
{
	struct epoll_event ev = shot(it);

	if (shim_item_number(it) >= 0) {
		if (exi_ready_ours(it->sk))
			shim_item_manage(it);
		if ((it->events & EPOLLONESHOT) && !it->managed)
			control(it, EPOLL_CTL_MOD, &ev);
	}
	idle_no_more(it, EXI_TX);
	idle_no_more(it, EXI_RX);
}

/* Attends to the item of a number, with the connection's link lock taken first.
 * False: the number is beyond the table. */
static bool attend_number(struct set *s, int fd)
{
	struct exi_sock *sk = NULL;
	struct item *it;
	bool ret;

	exi_lock(&shim_epoll_structure);
	ret = fd < s->size;
	it = shim_set_item(s, fd);
	if (it && shim_item_idle(it))
		sk = it->sk;
	exi_unlock(&shim_epoll_structure);
	if (!sk)
		return ret;
	exi_lock(&sk->link_lock);
	exi_lock(&shim_epoll_structure);
	it = shim_set_item(s, fd);
	if (it && it->sk == sk && shim_item_idle(it))
		attend_item(it);
	exi_unlock(&shim_epoll_structure);
	exi_unlock(&sk->link_lock);
	exi_link_go(sk);
	return ret;
}

void shim_set_attend(struct set *s)
{
	EXI_CANCEL_OFF(false);

	exi_lock(&shim_epoll_structure);
	s->awaited = true; /* items added from now on are not idle */
	exi_unlock(&shim_epoll_structure);
	for (int fd = 0; attend_number(s, fd); fd++)
		;
	atomic_store(&s->attended, true);
}

void shim_item_remove(struct item *it, bool linked)
{
	struct set *s = it->set;

	/* Unless the link closed, and its number is another file's. */
	if (linked && it->link >= 0 &&
	    it->link == exi_ready_bell(it->sk, shim_item_number(it)))
		native.epoll_ctl(s->fd, EPOLL_CTL_DEL, it->link, NULL);
	stop_listening(it);
	exi_lock(&s->lock);
	s->by_fd[it->fd] = NULL;
	s->n_conns -= !it->listens;
	it->dead = true;
	shim_item_off_active_locked(it);
	shim_item_moves_locked(it, false);
	shim_set_count_locked(s, &s->n_managed, -it->managed);
	shim_item_unref_locked(it);
	exi_unlock(&s->lock);
}

static bool any(const struct item *it)
{
	return true;
}

/* Whether an item is to be managed, or to share its link, when its connection
 * meets: also one that was managed before its link was up, or that shared the
 * link of the connection's previous life; not one in a set for which no thread
 * was seen to wait. The link lock is held. */
static bool awaits_share(const struct item *it)
{
	return it->managed &&
	       (it->link == -ENOTCONN || it->life != it->sk->sh->lives);
}

static bool awaits_link(const struct item *it)
{
	return it->managed ? awaits_share(it) : !shim_item_idle(it);
}

/* The first such item of a connection in any set; structure is held. */
static struct item *first_item(struct exi_sock *sk, int fd,
			       bool (*such)(const struct item *it))
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
		if (such(it))
			ret = it;
	}
	exi_half_unlock(&sh->half[EXI_RX]);
	return ret;
}

void shim_epoll_met(struct exi_sock *sk, bool again)
{
	bool shared = atomic_load(&sk->sh->holders.n) > 1;
	int fd = atomic_load(&sk->fd);
	struct item *it;

	exi_lock(&shim_epoll_structure);
	while ((it = first_item(sk, fd, again ? awaits_share : awaits_link))) {
		if (it->managed) {
			share_link_locked(it);
			if (it->link == -ENOTCONN)
				break;
			continue;
		}
		if (!shared)
			shim_item_manage(it);
		if (!it->managed) {
			atomic_store(&sk->sh->hold_here, 1);
			break;
		}
	}
	exi_unlock(&shim_epoll_structure);
}

void shim_epoll_forget(struct exi_sock *sk, int fd)
{
	bool alone = exi_holders_alone(&sk->sh->holders);
	struct item *it;

	exi_lock(&sk->link_lock);
	exi_lock(&shim_epoll_structure);
	while ((it = first_item(sk, fd, any))) {
		/* From here on the kernel serves the item, as the application
		 * wants it. */
		struct epoll_event ev = { .events = it->events,
					  .data = it->data };

		/* The kernel would also report the item to a process that has
		 * both the set and the connection: space while a ring is full,
		 * and everything else twice. */
		if (it->set->inherited && !alone) {
			shim_item_remove(it, false);
			continue;
		}
		if (it->disabled)
			ev.events &= MODE_FLAGS;
		/* The kernel reports its end, which shim_set_absorb() drops. */
		if (it->disabled && !atomic_load(&shim_leaving))
			ev.data.u64 = it->set->prefix | TAG_SPENT;
		/* The kernel's own shot was fired: the kernel reports nothing
		 * of the item, but after a change would report an end. */
		if (it->dormant)
			control(it, EPOLL_CTL_DEL, NULL);
		else if (it->managed)
			renew(it, &ev);
		else if (shim_item_idle(it)) /* unless it is there already */
			control(it, EPOLL_CTL_ADD, &ev);
		else if ((it->events & EPOLLONESHOT) && !it->disabled)
			control(it, EPOLL_CTL_MOD, &ev);
		shim_item_remove(it, true);
	}
	exi_unlock(&shim_epoll_structure);
	exi_unlock(&sk->link_lock);
}

/* --- epoll_ctl ---------------------------------------------------------- */

void shim_set_number_locked(int epfd, struct set *s)
{
	EXI_LOCKED(&shim_epoll_structure);
	if ((uint32_t)epfd >= shim_epoll_high)
		shim_epoll_high = (uint32_t)epfd + 1;
	atomic_store_explicit(&shim_epoll_sets[epfd], s, memory_order_release);
	exi_track_put(epfd, EXI_TRACK_ALL);
}

struct set *shim_set_make(int epfd)
{
	struct set *s = shim_set_of(epfd);

	if (s || (uint32_t)epfd >= shim_epoll_n)
		return s;
	s = shim_epoll_closed_sets[epfd];
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
	s->awaited = false;
	s->attended = false;
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
	s->n_moving = 0;
	exi_unlock(&s->lock);
	shim_epoll_closed_sets[epfd] = NULL;
	shim_set_number_locked(epfd, s);
	/* A thread that begins to wait writes this word and then looks for the
	 * set, see any_wait(): one of the two threads sees what the other
	 * wrote. */
	atomic_thread_fence(memory_order_seq_cst);
	s->awaited = atomic_load(&shim_epoll_awaited[epfd]);
	s->attended = s->awaited;
	return s;
}

struct item *shim_set_live_item(int epfd, int fd, const struct exi_sock *sk)
{
	struct item *it = shim_set_item(shim_set_of(epfd), fd);

	if (!it ||
	    (it->sk == sk && it->generation == atomic_load(&sk->generation)))
		return it;
	shim_item_remove(it, false);
	return NULL;
}

bool shim_set_is(int fd, int other)
{
	int saved = errno;
	bool ret = shim_set_of(fd) ||
		   (native.epoll_ctl(fd, EPOLL_CTL_DEL, other, NULL) < 0 &&
		    errno == ENOENT);

	errno = saved;
	return ret;
}
