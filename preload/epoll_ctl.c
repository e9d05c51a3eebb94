/* SPDX-License-Identifier: BSD-2-Clause */
/* epoll_ctl(), on connections and on latent ones. */

#include "core/base/cancel.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/ready.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/meet/marker.h"
#include "core/sock/table.h"
#include "preload/epoll.h"
#include "preload/shim.h"

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
	it->waiter[EXI_RX].idle = it->waiter[EXI_TX].idle = !s->awaited;
	exi_lock(&s->lock);
	s->by_fd[fd] = it;
	exi_unlock(&s->lock);
	s->n_conns += !it->listens;
	shim_item_listen(it);
	shim_set_want_times(s);
}

static int add(int epfd, int fd, struct exi_sock *sk, struct epoll_event *ev)
{
	/* A one-shot registration gets its events only when the item exists,
	 * because the item must learn of the shot. */
	bool once = ev->events & EPOLLONESHOT;
	struct epoll_event first = *ev;
	struct set *s;
	struct item *it;

	if (once) /* two flags that the kernel does not take together */
		first.events &= EPOLLONESHOT | EPOLLEXCLUSIVE;
	if (native.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &first) < 0)
		return -errno;
	s = shim_set_make(epfd);
	it = s && fd < (int)TAG_FD - 1 && shim_set_room_for(s, fd)
		     ? shim_item_new(s)
		     : NULL;
	if (!it) {
		/* Without an item no wait would report what a fabric has. */
		atomic_store(&sk->sh->hold_here, 1);
		if (once)
			native.epoll_ctl(epfd, EPOLL_CTL_MOD, fd, ev);
		return 0;
	}
	put_item(it, s, sk, fd, ev);
	if (exi_ready_ours(sk) && !shim_item_idle(it))
		shim_item_manage(it);
	if (once && !it->managed) {
		first = shim_item_wanted(it);
		native.epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &first);
	}
	return 0;
}

static void wants_locked(struct item *it, const struct epoll_event *ev)
{
	EXI_LOCKED(&it->set->lock);
	it->events = ev->events;
	it->data = ev->data;
	it->disabled = it->told = it->blocked = it->dormant = false;
	it->over = 0;
	it->shots++;
	shim_item_activate_locked(it);
}

/* The events that the kernel takes together with EPOLLEXCLUSIVE. */
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
	bool room;

	if ((flags & EPOLLEXCLUSIVE) &&
	    (op == EPOLL_CTL_MOD || (flags & ~(uint32_t)EXCLUSIVE_OK)))
		return -EINVAL;
	if (op == EPOLL_CTL_ADD ? !it->dormant : it->dormant)
		return op == EPOLL_CTL_ADD ? -EEXIST : -ENOENT;
	exi_lock(&it->set->lock);
	if (op == EPOLL_CTL_DEL) {
		it->dormant = true;
		shim_item_off_active_locked(it);
	} else {
		wants_locked(it, ev);
	}
	exi_unlock(&it->set->lock);
	room = !it->room && (shim_item_interest(it) & TX_EVENTS);
	it->room |= room;
	if (room || it->set->outer) {
		struct epoll_event kernels = shim_item_tagged(it);

		native.epoll_ctl(it->set->fd, EPOLL_CTL_MOD, it->fd, &kernels);
	}
	return 0;
}

/* Whether a change changes nothing. For a level-triggered item it has no
 * effect: the kernel knows the whole state, and no other process has the
 * descriptor to change it. */
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
			shim_item_remove(it, true);
		return 0;
	}
	if (as_it_is(it, ev))
		return 0;
	/* The item changes first: the kernel may report it at once. */
	exi_lock(&s->lock);
	wants_locked(it, ev);
	kernels = shim_item_wanted(it);
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

static int change(int epfd, int op, int fd, struct exi_sock *sk,
		  struct epoll_event *ev)
{
	bool stays = atomic_load_explicit(&sk->settled, memory_order_relaxed);
	struct item *it;
	bool idle;
	int ret;

	/* The link's lock is not needed for a change of a managed item. What
	 * stays on TCP for good needs no item. */
	if (stays || exi_ready_ours(sk)) {
		exi_lock(&shim_epoll_structure);
		it = shim_set_live_item(epfd, fd, sk);
		if (it && it->managed) {
			ret = change_managed(it, op, ev);
			exi_unlock(&shim_epoll_structure);
			return ret;
		}
		exi_unlock(&shim_epoll_structure);
		if (stays && !it)
			return native.epoll_ctl(epfd, op, fd, ev) < 0 ? -errno
								      : 0;
	}
	/* The connection may meet its peer at any moment. */
	exi_lock(&sk->link_lock);
	exi_lock(&shim_epoll_structure);
	it = shim_set_live_item(epfd, fd, sk);
	idle = it && shim_item_idle(it);
	if (it)
		ret = it->managed ? change_managed(it, op, ev)
				  : change_native(it, op, ev);
	else if (op == EPOLL_CTL_ADD)
		ret = add(epfd, fd, sk, ev);
	else
		ret = native.epoll_ctl(epfd, op, fd, ev) < 0 ? -errno : 0;
	exi_unlock(&shim_epoll_structure);
	exi_unlock(&sk->link_lock);
	if (idle && op == EPOLL_CTL_DEL)
		exi_link_go(sk);
	return ret;
}

/* Removes a latent connection from its set; structure is held. */
static void latent_out(struct latent *l)
{
	if (l->set && l->set->prefix == l->prefix)
		l->set->n_conns--;
	l->set = NULL;
}

void shim_epoll_latent_begun(int fd)
{
	if ((uint32_t)fd >= shim_epoll_n || !shim_epoll_latents[fd].set)
		return;
	exi_lock(&shim_epoll_structure);
	latent_out(&shim_epoll_latents[fd]);
	exi_unlock(&shim_epoll_structure);
}

void shim_epoll_latent_promoted(struct exi_sock *sk, int fd)
{
	struct epoll_event ev;
	struct latent *l;
	struct item *it;
	struct set *s;

	if ((uint32_t)fd >= shim_epoll_n)
		return;
	exi_lock(&shim_epoll_structure);
	l = &shim_epoll_latents[fd];
	s = l->set;
	latent_out(l);
	if (s && s->prefix == l->prefix && shim_set_of(s->fd) == s) {
		shim_set_live_item(s->fd, fd, sk);
		it = shim_set_room_for(s, fd) ? shim_item_new(s) : NULL;
		ev = (struct epoll_event){ .events = l->events,
					   .data = l->data };
		if (it)
			put_item(it, s, sk, fd, &ev);
		else /* no wait would report a fabric's events */
			atomic_store(&sk->sh->hold_here, 1);
	}
	exi_unlock(&shim_epoll_structure);
}

/* Changes a latent connection in a set. False: the connection must be promoted
 * first. */
static bool latent_change_locked(int epfd, int op, int fd,
				 struct epoll_event *ev, int *ret)
{
	struct latent *l = &shim_epoll_latents[fd];
	struct set *s = shim_set_of(epfd);

	EXI_LOCKED(&shim_epoll_structure);
	if (op == EPOLL_CTL_ADD ? l->set != NULL
				: !s || l->set != s || l->prefix != s->prefix)
		return false;
	if (op == EPOLL_CTL_MOD && l->events == ev->events &&
	    l->data.u64 == ev->data.u64 && !(ev->events & EPOLLET)) {
		*ret = 0; /* a level: nothing changes */
		return true;
	}
	*ret = native.epoll_ctl(epfd, op, fd, ev);
	if (*ret < 0)
		return true;
	latent_out(l);
	if (op == EPOLL_CTL_DEL)
		return true;
	s = shim_set_make(epfd);
	if (s) {
		s->n_conns++;
		shim_set_want_times(s);
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

	if ((uint32_t)fd >= shim_epoll_n ||
	    (op != EPOLL_CTL_DEL &&
	     ((op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD) || !ev ||
	      (ev->events & (EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP)))))
		return false;
	exi_lock(&shim_epoll_structure);
	/* A thread that promotes the connection comes later for what is noted
	 * here. */
	done = exi_latent(fd) && latent_change_locked(epfd, op, fd, ev, ret);
	lost = done && *ret == 0 && op != EPOLL_CTL_DEL &&
	       !shim_epoll_latents[fd].set;
	exi_unlock(&shim_epoll_structure);
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

	/* A listener will accept: its marker must be there before a peer
	 * connects. */
	if (op == EPOLL_CTL_ADD && sk && sk->role == EXI_ROLE_LISTEN)
		exi_marker_reach(fd);
	if (exi_likely(sk && sk->adopted && known))
		return (int)shim_result(change(epfd, op, fd, sk, ev));
	ret = native.epoll_ctl(epfd, op, fd, ev);
	if (op == EPOLL_CTL_ADD && ret == 0)
		shim_set_nest(epfd, fd);
	return ret;
}
