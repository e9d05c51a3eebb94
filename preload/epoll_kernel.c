/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's events of an epoll set: takes the tagged ones out. */
#include <alloca.h>
#include <string.h>

#include "core/base/cancel.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/sock/table.h"
#include "preload/epoll.h"

/* The kernel reported a one-shot item. The application does not get the event
 * if the item was already reported since it became managed. */
static bool take_shot(struct set *s, struct epoll_event *ev)
{
	uint64_t tag = ev->data.u64;
	struct item *it;
	bool ret;

	exi_lock(&s->lock);
	it = shim_set_item(s, (int)(tag & TAG_FD));
	ret = it && !(it->managed && it->told);
	if (ret) {
		ev->data = it->data;
		if (it->shots == (uint8_t)(tag >> TAG_NTH)) /* no later one */
			it->told = it->disabled = true;
	}
	exi_unlock(&s->lock);
	return ret;
}

void shim_item_hear(struct item *it)
{
	if (exi_unlikely(!exi_sock_used_here(it->sk)))
		exi_sock_inherit(it->sk);
	exi_link_event(it->sk, EPOLLIN);
	if (exi_unlikely(atomic_load_explicit(&it->sk->link_rests,
					      memory_order_relaxed)))
		shim_item_unshare(it);
}

/* The next position in the kernel's order, behind `behind` other events. */
static uint64_t next_position(struct set *s, int behind)
{
	return POSITION(behind,
			1 + atomic_fetch_add_explicit(&s->turns, 1,
						      memory_order_relaxed));
}

/* The kernel reported the item's descriptor. An event for space gives a place
 * to space that the application asked for, not to bytes. */
static void note_tcp_locked(struct item *it, uint32_t events, int behind)
{
	bool room_only = !(events & ~(uint32_t)TX_EVENTS);

	EXI_LOCKED(&it->set->lock);
	it->heard |= !room_only;
	if (it->by_tcp || (room_only && !(shim_item_interest(it) & TX_EVENTS)))
		return;
	it->by_tcp = next_position(it->set, behind);
	it->since = it->set->emptied_before;
}

/* The kernel reported the item's link, which was read since, here or by the
 * service thread. The event is as old as the first packet on the link. If that
 * packet may have been a message, such as one about a move of the connection,
 * the event does not show when the bytes in the ring were written. */
static void note_ring_locked(struct item *it, int behind)
{
	uint32_t said =
		atomic_load_explicit(&it->sk->said, memory_order_relaxed);

	EXI_LOCKED(&it->set->lock);
	if (said == it->said && !it->moves && !it->by_ring)
		it->by_ring = next_position(it->set, behind);
	it->said = said;
}

/* A tagged event of an item that another thread is about to manage: that thread
 * holds shim_epoll_structure until it has done so. Returns the item; null: it
 * is gone. */
static struct item *await_managed_locked(struct set *s, uint64_t tag)
{
	EXI_LOCKED(&s->lock);
	exi_unlock(&s->lock);
	exi_lock(&shim_epoll_structure);
	exi_unlock(&shim_epoll_structure);
	exi_lock(&s->lock);
	return shim_set_item(s, (int)(tag & TAG_FD));
}

/* shim_item_activate_locked(), by a thread that is awake. */
static void activate_awake_locked(struct item *it)
{
	struct set *s = it->set;
	int sleepers = s->sleepers;

	EXI_LOCKED(&s->lock);
	s->sleepers = -1;
	shim_item_activate_locked(it);
	s->sleepers = sleepers;
}

int shim_set_absorb(struct set *s, struct epoll_event *ev, int n)
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
			if (!s->outer) { /* else see shim_set_settle() */
				exi_lock(&s->lock);
				shim_set_calm_locked(s);
				exi_unlock(&s->lock);
			}
			continue;
		}
		exi_lock(&s->lock);
		it = shim_set_item(s, (int)(tag & TAG_FD));
		if (it && !it->managed)
			it = await_managed_locked(s, tag);
		if (it && (tag & TAG_LINK)) {
			it->refs++;
			exi_unlock(&s->lock);
			shim_item_hear(it);
			exi_lock(&s->lock);
			note_ring_locked(it, kept);
			activate_awake_locked(it);
			shim_item_unref_locked(it);
		} else if (it) {
			/* Bytes and ends are counted; urgent data and messages
			 * in the error queue are not. */
			if (ev[i].events & EPOLLPRI)
				it->rung = RX_EVENTS;
			it->rung |= ev[i].events & EPOLLERR;
			note_tcp_locked(it, ev[i].events, kept);
			activate_awake_locked(it);
		}
		exi_unlock(&s->lock);
	}
	return kept;
}

/* A call to the kernel in progress. */
struct asking {
	struct set *s;
	bool sleeps; /* this thread is among the sleepers */
};

/* Cleans up when the thread was cancelled, or a signal handler jumped away. The
 * kernel's events are then lost, and the kernel reports an edge only once. */
static void left(void *arg)
{
	const struct asking *a = arg;
	struct set *s = a->s;

	exi_lock(&s->lock);
	s->sleepers -= a->sleeps;
	s->stirs++; /* a thread that is about to sleep looks at what was lost */
	s->lost = true;
	if (shim_set_others_sleep(s))
		shim_set_nudge_locked(s);
	exi_unlock(&s->lock);
}

void shim_set_find_lost(struct set *s)
{
	exi_lock(&s->lock);
	s->lost = false;
	for (int i = 0; i < s->size; i++) {
		struct item *it = s->by_fd[i];

		if (!it || !it->managed)
			continue;
		if (shim_item_interest(it) & EPOLLPRI)
			it->rung = RX_EVENTS;
		it->refs++;
		exi_unlock(&s->lock);
		shim_item_hear(it);
		exi_lock(&s->lock);
		shim_item_activate_locked(it);
		shim_item_unref_locked(it);
	}
	exi_unlock(&s->lock);
}

/* The number of events to take from the kernel at a time, on the stack: few
 * programs ask for more. */
#define AT_A_TIME 1024

/* Notes that all the kernel's events up to `when` were reported; after a sleep,
 * `when` is its end. */
static void emptied(struct set *s, uint64_t when)
{
	atomic_store_explicit(
		&s->emptied_before,
		atomic_load_explicit(&s->emptied, memory_order_relaxed),
		memory_order_relaxed);
	atomic_store_explicit(&s->emptied, when, memory_order_relaxed);
}

__attribute__((noinline)) int shim_set_take(struct set *s, int fd,
					    struct epoll_event *ev, int max,
					    int ms, const sigset_t *mask,
					    bool sleeps)
{
	struct epoll_event *came;
	struct asking a = { s, sleeps };
	struct exi_section ends;
	uint64_t began;
	bool full;
	int n;

	max = max < AT_A_TIME ? max : AT_A_TIME;
	came = alloca((size_t)max * sizeof(*came));
	do {
		began = exi_ticks();
		atomic_store_explicit(
			&s->turns_before,
			atomic_load_explicit(&s->turns, memory_order_relaxed),
			memory_order_relaxed);
		if (!ms)
			atomic_store_explicit(&s->asked, began,
					      memory_order_relaxed);
		exi_section_begin(&ends, left, &a);
		if (sleeps)
			exi_cancel_allow();
		n = shim_set_ask(fd, came, max, ms, mask);
		if (n <= 0)
			n = n < 0 ? -errno : -ETIMEDOUT;
		if (sleeps)
			exi_cancel_forbid();
		exi_section_end(&ends, false);
		if (sleeps) {
			exi_lock(&s->lock);
			s->sleepers--;
			exi_unlock(&s->lock);
		}
		full = n == max;
		if (!full)
			emptied(s, sleeps ? exi_ticks() : began);
		if (n > 0)
			n = shim_set_absorb(s, came, n);
		/* Tags that took all the room may hide something. No event
		 * comes twice, but for the nudge of a set in another. */
	} while (n == 0 && full && !sleeps && !ms && !s->outer);
	if (n > 0)
		memcpy(ev, came, (size_t)n * sizeof(*ev));
	return n;
}

int shim_set_ask_kernel(struct set *s, struct epoll_event *ev, int max)
{
	int n = shim_set_take(s, s->fd, ev, max, 0, NULL, false);
	int quiet = atomic_load_explicit(&s->quiet, memory_order_relaxed);

	quiet = n > 0 ? 0 : quiet < QUIET_ASKS ? quiet + 1 : quiet;
	atomic_store_explicit(&s->quiet, quiet, memory_order_relaxed);
	atomic_store_explicit(&s->filled, n == max, memory_order_relaxed);
	return n == -ETIMEDOUT ? 0 : n;
}
