/* SPDX-License-Identifier: BSD-2-Clause */
/* Epoll sets whose own descriptors are waited on, by poll() or in another set:
 * such a descriptor is readable when one of the set's items has an event. */
#include <stdlib.h>

#include "core/base/cancel.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/ready.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "preload/epoll.h"
#include "preload/shim.h"

/* Requests wake-ups for all that comes from now on. The item belongs to this
 * thread. */
static void arm_next(struct item *it)
{
	shim_item_disarm(it);
	it->armed_for = (short)shim_item_interest(it);
	it->armed = !it->disabled && exi_ready_arm(it->sk, shim_item_number(it),
						   it->armed_for, true, 0);
}

#define SETTLES 3

/* came: something may have come since the set was settled, and is an edge for
 * the set outside, even if the nudge is readable already. */
static bool settle(struct set *s, bool came)
{
	int left, tries = 0;
	uint32_t stirs;
	bool ret;

	if (exi_unlikely(s->lost))
		shim_set_find_lost(s);
	exi_lock(&s->settling);
	exi_lock(&s->lock);
	do {
		stirs = s->stirs;
		ret = false;
		for (left = s->n_active; left > 0; left--) {
			struct item *it = shim_set_pop_locked(s);
			struct saw saw;
			uint32_t now;
			bool has;

			if (!it)
				break;
			it->counted = false;
			exi_unlock(&s->lock);
			arm_next(it);
			now = shim_item_look(it, &saw);
			exi_lock(&s->lock);
			has = shim_item_event_locked(it, now, &saw);
			shim_item_release_locked(it, has);
			ret = ret || has;
		}
	} while (s->stirs != stirs && ++tries < SETTLES);
	ret = ret || s->stirs != stirs;
	if (ret && (came || !s->nudged))
		shim_set_nudge_locked(s);
	else if (!ret && s->nudged)
		shim_set_calm_locked(s);
	exi_unlock(&s->lock);
	exi_unlock(&s->settling);
	return ret;
}

bool shim_set_settle(struct set *s)
{
	return settle(s, false);
}

/* The sets that the service thread settles before it waits again; its own. The
 * last one is its own next. */
static struct set *unsettled;

static struct set *take_unsettled(void)
{
	struct set *s = unsettled;

	if (s)
		unsettled = s->settles_next == s ? NULL : s->settles_next;
	return s;
}

static void settle_them(void)
{
	struct set *s;

	while ((s = take_unsettled())) {
		exi_lock(&s->lock);
		s->settles_next = NULL;
		exi_unlock(&s->lock);
		settle(s, true);
	}
}

void shim_set_settle_forked(void)
{
	struct set *s;

	while ((s = take_unsettled()))
		s->settles_next = NULL;
}

void shim_set_settle_later_locked(struct set *s)
{
	EXI_LOCKED(&s->lock);
	if (s->settles_next)
		return;
	s->settles_next = unsettled ? unsettled : s;
	unsettled = s;
	exi_service_later(settle_them);
}

#define NESTS 5 /* as in the kernel */

void shim_set_settle_inner(const struct set *s, int depth, bool waits)
{
	for (struct nest *n = s->nests; n && depth < NESTS; n = n->next) {
		if (waits && !n->inner->attended)
			shim_set_attend(n->inner);
		shim_set_settle_inner(n->inner, depth + 1, waits);
		if (n->inner->outer)
			shim_set_settle(n->inner);
	}
}

/* Called when the set's own descriptor is waited on: the kernel's entry of an
 * item must match what the set reports outside. */
static void turn_item(struct set *s, int fd)
{
	struct exi_sock *sk = exi_sock_peek(fd);
	struct epoll_event ev;
	struct item *it;

	if (!sk)
		return;
	exi_lock(&sk->link_lock);
	exi_lock(&shim_epoll_structure);
	it = shim_set_live_item(s->fd, fd, sk);
	if (it && it->managed) {
		/* The service thread reports it. */
		if (it->link >= 0 &&
		    it->link == exi_ready_bell(sk, shim_item_number(it)))
			native.epoll_ctl(s->fd, EPOLL_CTL_DEL, it->link, NULL);
		it->link = -1;
		ev = shim_item_tagged(it);
		native.epoll_ctl(s->fd, EPOLL_CTL_MOD, fd, &ev);
	}
	exi_unlock(&shim_epoll_structure);
	exi_unlock(&sk->link_lock);
}

/* Called when the set is in another set or, with waits, when a thread waits for
 * its own descriptor. */
static void turn_outside(struct set *s, bool waits)
{
	if (waits && !s->attended)
		shim_set_attend(s);
	if (!atomic_exchange(&s->outer, true))
		for (int i = 0; i < s->size; i++)
			turn_item(s, i);
	shim_set_settle_inner(s, 0, waits);
	shim_set_settle(s);
}

void shim_set_nest(int epfd, int fd)
{
	struct set *s, *inner;
	struct nest *n;

	if (!shim_set_is(fd, epfd))
		return;
	exi_lock(&shim_epoll_structure);
	s = shim_set_make(epfd);
	inner = shim_set_make(fd);
	for (n = s ? s->nests : NULL; n && n->inner != inner; n = n->next)
		;
	if (s && inner && !n) {
		n = malloc(sizeof(*n));
		if (n) {
			*n = (struct nest){ inner, s->nests };
			s->nests = n; /* never freed, as sets are not */
		}
	}
	exi_unlock(&shim_epoll_structure);
	if (inner)
		turn_outside(inner, false);
}

bool shim_epoll_outer(int fd)
{
	EXI_CANCEL_OFF(false);
	struct set *s = shim_set_of(fd);

	if (exi_likely(!s))
		return false;
	turn_outside(s, true);
	return s->n_managed > 0;
}
