/* SPDX-License-Identifier: BSD-2-Clause */
/* A look at the active items of an epoll set, and the order in which it reports
 * them.
 *
 * Connections are reported in the order in which they were written to. A record
 * that is written before another (by the same thread, or by one that informs
 * the other) is stored before it, with a full fence between. So a search that
 * found a record, by an acquire of its word, finds all records that were
 * written before it when it looks again; and it looks again at all items that
 * had nothing, until a pass finds nothing more. Each record has the time at
 * which it was made. Later passes take nothing later than the last record of
 * the first pass, or there would be no end, and items are reported by these
 * times. A pass is left out if what was found was made before the previous pass
 * began, which is usual in a busy server. No item gets a place before the time
 * when it was last reported: so a peer that lies about times moves only itself,
 * and never before an item that was reported less recently. Items that did not
 * fit into the last answer wait in line, and go first.
 *
 * Most active items of a large set have nothing, and had nothing at the last
 * look. The state by which that look found nothing is kept (struct exi_glance).
 * While it is unchanged, a look would find nothing again, and is skipped. The
 * other items are taken out of the list, and looked at, in one go. Nothing is
 * missed: this process learns of a resting item, too, only by the item's ring,
 * whose word is compared (by an acquire, as in a look), or by a call of wake(),
 * which ends the glance. A glance is compared under the set's lock while the
 * item is among the waiters of its socket, and ended under that lock before the
 * item leaves them (let_go_of() in epoll_set.c). So the fabric still exists:
 * close.c waits for these waiters.
 *
 * A resting item with bytes has a doorbell on its way, which the kernel or the
 * service thread has. A record says how much its process had sent by the kernel
 * before, so a thread that finds a new count asks the kernel, and looks at the
 * resting items (if they are few: it looks at them one by one).
 *
 * Bytes on TCP are reported in the kernel's order: not before the kernel has
 * reported them, because it may have had other events before. A connection that
 * moves to a fabric may have sent SWITCH, and then a record, before these
 * bytes, while this end still looks on TCP. So a thread that finds bytes on
 * TCP, or an event of the kernel, while connections may move, reads the links
 * of those connections before it looks at them again: SWITCH was sent before
 * the record, and both before the bytes. A thread that is reading a link holds
 * its lock until the direction is in the ring.
 *
 * A record and an event of the kernel, of a connection on TCP or of any other
 * descriptor, are ordered as follows. The kernel did not have the event when it
 * was asked the time before. A record that was made before that time is
 * reported first. So is a record whose process has sent nothing by the kernel
 * since then: the record has the time of the last such call (taken after the
 * call, so it includes what the kernel got before the record; two threads at
 * once are an exception). A record whose doorbell rang has the doorbell's place
 * among the kernel's events, if the link carried nothing else meanwhile: the
 * kernel reports a link once, with the place of the first packet. Bytes on TCP
 * have the place of their own event, whatever is on the link. Any other record
 * is reported after all events of the kernel; but it goes before bytes on TCP
 * that, by the peer's report, were sent later. A peer that has met makes such
 * reports. If no connection is on TCP, the kernel's events are of other
 * descriptors, and it is unknown when these events were made: they go first. */
#include <string.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "preload/epoll.h"

/* Above how many active items IDLE_TICKS does not count. */
#define MANY 256

/* The event of an item after a look; 0: none. */
static inline uint32_t seen_locked(struct item *it, uint32_t now,
				   const struct saw *saw)
{
	uint32_t ret = shim_item_event_locked(it, now, saw);
	bool cannot =
		(shim_item_interest(it) & TX_EVENTS) && !(now & TX_EVENTS);

	EXI_LOCKED(&it->set->lock);
	/* The space after `blocked` is reported before `blocked` is cleared. */
	it->blocked = cannot || (it->blocked && ret);
	if (!ret && !(now & EPOLLIN)) /* what had come was taken */
		it->arrived = saw->came;
	return ret;
}

/* Reports an item's event, if it has one, after a look. */
static inline bool tell_locked(struct item *it, uint32_t now,
			       const struct saw *saw, struct epoll_event *ev)
{
	uint32_t event = seen_locked(it, now, saw);

	EXI_LOCKED(&it->set->lock);
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

/* Ends a hold: the item is active again, or not if nothing came meanwhile. */
static inline void release_to_locked(struct item *it, struct exi_list *list)
{
	struct set *s = it->set;

	EXI_LOCKED(&it->set->lock);
	it->held = false;
	if (it->again || !it->waits[EXI_RX])
		it->glance.kick = NULL;
	if (list == &s->resting && it->again)
		list = &s->active;
	if (list == &s->resting)
		shim_item_idle_locked(it);
	else if (!it->dead && !it->dormant && !it->disabled)
		shim_item_make_active_locked(it, list);
	if (!it->active)
		shim_item_stale_locked(it);
	shim_item_unref_locked(it);
}

void shim_item_release_locked(struct item *it, bool keep)
{
	EXI_LOCKED(&it->set->lock);
	release_to_locked(it, keep ? &it->set->active : &it->set->resting);
}

/* --- in order of arrival ------------------------------------------------- */

/* A look at the active items. Items that had something stay out of the lists
 * until the caller knows the order. */
struct search {
	struct set *s;
	/* If not null: among its first events, the kernel may just have
	 * reported items that became managed after this. */
	const uint32_t *met;
	const struct epoll_event *ev;
	int n_ev;
	bool spins;
	bool asked;	 /* the kernel just reported something */
	uint32_t met_at; /* `met` of the set, before it was asked */
	uint64_t began;	 /* exi_ticks() of the wait; no other has it */
	uint64_t until;	 /* what came later is for the next wait */
	uint64_t last;	 /* when the last came that this pass found */
	bool rang;	 /* the kernel may have what came before: find_rung() */
	bool hears;	 /* it was asked, and now links are read */
	struct item *found; /* the last one first */
	int n;
	int n_on_tcp; /* how many of the found */
	int base;     /* the index of the kernel's last events */
	int kernels;  /* the end of the kernel's events */
};

/* Places an item in the order. The peer says when it sent what the item has;
 * otherwise the time is that of the look. No place is before the item's last
 * report: an item that is reported most often comes last. */
static inline void place_locked(struct search *c, struct item *it)
{
	const struct exi_first *first = &it->first;
	uint64_t at = first->sent, now;

	EXI_LOCKED(&it->set->lock);
	/* Nothing can have come later than now. */
	if (at > c->began) {
		now = exi_ticks();
		at = at < now ? at : now;
	}
	/* An item without a time: found after another, perhaps as the kernel
	 * had it before that one. */
	if (!at)
		at = it->place		      ? it->place
		     : c->until != UINT64_MAX ? c->until - 1
					      : exi_ticks();
	it->place = at > it->told_at ? at : it->told_at;
	it->kernel = first->sent && !it->on_tcp ? first->kernel : UINT64_MAX;
	it->written = it->on_tcp && first->sent ? at : 0;
	if ((it->now & RX_EVENTS) && at > c->last)
		c->last = at;
}

/* Bytes that have arrived; 0: none is there. */
static uint64_t bytes_there(const struct item *it)
{
	int unread = exi_ready_unread(it->sk, shim_item_number(it));

	return unread > 0 ? shim_item_received(it) + (uint64_t)unread : 0;
}

static inline void look_in_search(struct search *c, struct item *it)
{
	short events;

	if (exi_unlikely(it->moves && c->hears))
		exi_link_hear(it->sk);
	events = (short)shim_item_before_look(it, &it->saw);
	it->first = (struct exi_first){ 0 };
	it->now =
		(uint16_t)exi_ready_first(it->sk, shim_item_number(it), events,
					  c->began, &it->first, &it->glance);
	it->on_tcp = it->first.on_tcp;
	if (it->on_tcp && (it->now & RX_EVENTS) && !(it->events & EPOLLET))
		it->saw.came = bytes_there(it);
}

/* After a look: notes whether the item is about to move. */
static inline void looked_locked(struct item *it)
{
	EXI_LOCKED(&it->set->lock);
	/* The event during the look may be that the link is up. */
	if (exi_unlikely(it->moves != it->first.moves) &&
	    (it->first.moves || !it->again))
		shim_item_moves_locked(it, it->first.moves);
	if (exi_likely(!it->on_tcp) || !(it->now & RX_EVENTS))
		it->heard = false;
}

/* Whether a level-triggered item has only bytes on TCP that it was reported for
 * before: the kernel says nothing more of them. */
static inline bool is_rest_locked(const struct item *it)
{
	EXI_LOCKED(&it->set->lock);
	return it->told && !(it->events & EPOLLET) && it->saw.came &&
	       it->saw.came == it->arrived;
}

/* Whether the item's bytes must wait for the kernel: they are on TCP, and the
 * kernel has not reported them; or they are in a ring, and their process has
 * sent something by the kernel since the kernel was asked. The kernel is then
 * asked, but not twice in a wait: otherwise the item is left for the next wait,
 * which asks the kernel first, because an item without a place among the
 * kernel's events would go before all of them. An item is left out of one wait
 * only: another process may have received the kernel's event; and if another
 * process has the set, too, an item is not left out for what may come after the
 * kernel was asked. */
static bool is_news_locked(struct search *c, struct item *it)
{
	const struct exi_first *first = &it->first;
	uint64_t asked =
		atomic_load_explicit(&c->s->emptied, memory_order_relaxed);
	bool ret = it->on_tcp ? (it->now & RX_EVENTS) && !it->heard &&
					!is_rest_locked(it)
			      : first->sent && first->kernel > asked;

	EXI_LOCKED(&it->set->lock);
	if (exi_likely(!ret))
		return false;
	if ((c->asked || (c->hears && !c->s->inherited)) &&
	    (!it->left_out || it->left_out == c->began)) {
		it->left_out = c->began;
		return true;
	}
	c->rang |= !c->asked;
	return false;
}

/* Whether the item's number still belongs to its connection. */
static bool valid(const struct item *it)
{
	return !(it->now & POLLNVAL);
}

/* The look found something; returns whether this wait reports it. */
static inline bool find_locked(struct search *c, struct item *it)
{
	const struct exi_first *first = &it->first;

	EXI_LOCKED(&it->set->lock);
	if (is_news_locked(c, it))
		return false;
	place_locked(c, it);
	/* An item that is left keeps its news of wake-ups for the wait that
	 * reports it. */
	if (it->place > c->until)
		return false;
	/* A number of few bits may have wrapped around. */
	if (!it->on_tcp && ((first->rings && first->rings != it->rings) ||
			    (first->sent && first->kernel != it->sent))) {
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

/* Whether an item without events is to rest. While few items are active, each
 * is looked at for long. */
static inline bool may_rest_locked(const struct search *c, struct item *it)
{
	EXI_LOCKED(&it->set->lock);
	return !c->spins && c->until == UINT64_MAX &&
	       ++it->idle >
		       IDLE_LOOKS + (uint32_t)c->s->n_active / IDLE_BATCH &&
	       (c->began - it->busy > IDLE_TICKS || c->s->n_active > MANY);
}

/* The look found nothing; returns true if the peer sends wake-ups from now
 * on. */
static inline bool idles_locked(struct search *c, struct item *it)
{
	struct set *s = c->s;
	bool ret;

	EXI_LOCKED(&it->set->lock);
	it->place = 0;
	it->by_tcp = it->by_ring = 0;
	if (!may_rest_locked(c, it))
		return false;
	exi_unlock(&s->lock);
	ret = shim_item_arm(it, 0);
	exi_lock(&s->lock);
	return ret;
}

/* Whether the events that the kernel just returned may include this item,
 * because the kernel was to report it. */
static inline bool told_by_kernel(const struct search *c, const struct item *it)
{
	if (exi_likely(!c->met) || (int32_t)(it->nth - *c->met) <= 0)
		return false;
	for (int i = 0; i < c->n_ev; i++)
		if (c->ev[i].data.u64 == it->data.u64)
			return true;
	return false;
}

/* Takes the active items that may have something, in the order of the list. */
static struct item *take_stirred_locked(struct search *c)
{
	struct exi_list *node, *next, *active = &c->s->active;
	struct item *it, *ret, **end = &ret;

	EXI_LOCKED(&c->s->lock);
	for (node = active->next; node != active; node = next) {
		next = node->next;
		it = exi_container(node, struct item, node);
		if (it->told_at == c->began || told_by_kernel(c, it) ||
		    (shim_item_still_locked(it) && !may_rest_locked(c, it)))
			continue;
		shim_item_hold_locked(it);
		shim_item_stale_locked(it);
		*end = it;
		end = &it->next;
	}
	*end = NULL;
	return ret;
}

static void look_at_active(struct search *c)
{
	struct item *it, *next, *chain = take_stirred_locked(c);
	struct set *s = c->s;

	if (!chain)
		return;
	exi_unlock(&s->lock);
	for (it = chain; it; it = it->next) {
		shim_item_disarm(it);
		look_in_search(c, it);
	}
	exi_lock(&s->lock);
	for (it = chain; it; it = next) {
		bool has;

		next = it->next;
		looked_locked(it);
		has = seen_locked(it, it->now, &it->saw);
		if (has && find_locked(c, it))
			continue;
		shim_item_release_locked(
			it, has || (!idles_locked(c, it) && valid(it)));
	}
}

/* A look at more items takes longer than it is worth. */
#define FEW_REST 64

/* Looks at resting items without taking them out: one may have bytes although
 * its doorbell is still on its way, or its link may have SWITCH. */
static void look_at_resting(struct search *c)
{
	struct set *s = c->s;
	int left = s->n_resting;

	if (left > FEW_REST)
		return;
	for (; left > 0; left--) {
		struct item *it = shim_set_pop_from_locked(s, &s->resting);

		if (!it)
			break;
		if (!c->rang && !it->moves) {
			shim_item_release_locked(it, false);
			continue;
		}
		exi_unlock(&s->lock);
		look_in_search(c, it);
		if (it->now)
			shim_item_disarm(it);
		exi_lock(&s->lock);
		looked_locked(it);
		if (!shim_item_event_locked(it, it->now, &it->saw) ||
		    !find_locked(c, it))
			shim_item_release_locked(it, it->now && valid(it));
	}
}

/* The clocks of two CPUs differ by less, and a processor may read its clock at
 * most this long before a store. */
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

/* Called if the peer's process sent something by the kernel before what was
 * found: bytes on TCP, a wake-up for a resting item, or a message that it sends
 * on the fabric from now on. The kernel has it, or the service thread, which
 * may be late. The kernel is not asked twice, because it would report events
 * twice. Returns the new number of events. */
static int find_rung(struct search *c, struct epoll_event *ev, int n, int max)
{
	struct set *s = c->s;
	uint32_t met = s->met;
	int k = 0;

	if (!c->asked) {
		exi_unlock(&s->lock);
		k = shim_set_ask_kernel(s, ev + n, max - n);
		exi_lock(&s->lock);
		k = k > 0 ? k : 0;
		c->met = &met;
		c->met_at = met;
		c->base = n;
		c->ev = ev + n;
		c->n_ev = k;
	}
	c->hears = true;
	/* One more look finds what was written before now. */
	if (c->until == UINT64_MAX)
		c->until = exi_ticks();
	look_at_resting(c);
	/* A wake-up that came meanwhile took its item from the resting ones. */
	if (s->n_fresh || s->n_moving)
		look_at_active(c);
	c->met = NULL;
	c->asked |= k > 0;
	return n + k;
}

/* Takes n items of a chain, and returns them in order. */
static struct item *in_order(struct item **chain, int n)
{
	struct item *a, *b, *ret, **end = &ret;

	if (n == 1) {
		ret = *chain;
		*chain = ret->next;
		ret->next = NULL;
		return ret;
	}
	/* The chain has the last item first. */
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
	EXI_LOCKED(&it->set->lock);
	if (!tell_locked(it, it->now, &it->saw, ev))
		return false;
	it->idle = 0;
	it->busy = it->told_at = c->began;
	it->place = 0;
	it->by_tcp = it->by_ring = 0;
	it->heard = false;
	it->left_out = 0;
	return true;
}

static void insert(const struct epoll_event *e, int at, struct epoll_event *ev,
		   int n)
{
	if (at < n)
		memmove(&ev[at + 1], &ev[at], (size_t)(n - at) * sizeof(*ev));
	ev[at] = *e;
}

/* Reports first what an earlier wait had no room for: it came before all that
 * is found now, and before the n events that the kernel has now. Returns the
 * new number of events. */
static int tell_line(struct search *c, struct epoll_event *ev, int n, int max)
{
	struct set *s = c->s;
	struct item *it;

	while (n < max && (it = shim_set_pop_from_locked(s, &s->line))) {
		struct epoll_event e;

		shim_item_stale_locked(it);
		exi_unlock(&s->lock);
		shim_item_disarm(it);
		look_in_search(c, it);
		exi_lock(&s->lock);
		looked_locked(it);
		if (tell_this_locked(c, it, &e))
			insert(&e, c->base++, ev, n++);
		shim_item_release_locked(it, valid(it));
	}
	return n;
}

/* Whether the item's first bytes were sent before all that the kernel just
 * reported: the kernel had none of it yet when they were sent; or, if other
 * connections of the peer may be on TCP, the peer's process has sent nothing by
 * the kernel in between. */
static bool precedes(const struct item *it, uint64_t emptied, bool mixed)
{
	return it->kernel != UINT64_MAX &&
	       (it->place <= emptied || (mixed && it->kernel <= emptied));
}

/* The place of an item among the events that the kernel reported last, as a
 * POSITION(); UINT64_MAX: behind all of them. */
static uint64_t position(const struct search *c, const struct item *it,
			 uint64_t emptied, bool mixed)
{
	uint64_t at = it->on_tcp ? it->by_tcp : it->by_ring;
	uint32_t turn = (uint32_t)at;

	/* The kernel reported it at an earlier call. */
	if (at && (int32_t)(turn - c->s->turns_before) <= 0)
		return POSITION(0, turn);
	if (at)
		return at;
	/* The rest of what was reported before. */
	if (it->on_tcp)
		return POSITION(0, 1);
	return precedes(it, emptied, mixed) ? 0 : UINT64_MAX;
}

/* An item behind all known events goes before the first bytes on TCP that, by
 * the peer's report, were sent later. */
static void before_later(struct item *it, const struct item *on_tcp)
{
	for (; on_tcp && it->position == UINT64_MAX; on_tcp = on_tcp->next)
		if (on_tcp->written > it->place)
			it->position = on_tcp->position;
}

/* Corrects the positions: in the order of places, no item goes behind a
 * position that a later item goes before. */
static void carry_positions(struct item *chain)
{
	struct item *it, *next, *last = NULL;
	uint64_t at = UINT64_MAX;

	for (it = chain; it; it = next) {
		next = it->next;
		it->next = last;
		last = it;
	}
	for (it = last, last = NULL; it; it = next) {
		next = it->next;
		at = it->position < at ? it->position : at;
		it->position = at;
		it->next = last;
		last = it;
	}
}

/* Orders the items found, if the kernel has some of them, or just reported
 * something from ev[base] on. Items on TCP are in the order of their positions,
 * the others in the order of their places, each before all that a later one is
 * before. */
static struct item *line_up(struct search *c)
{
	struct set *s = c->s;
	uint64_t emptied = atomic_load_explicit(
		c->kernels > c->base ? &s->emptied_before : &s->emptied,
		memory_order_relaxed);
	bool mixed =
		c->n_on_tcp || s->n_conns > s->n_managed || s->met != c->met_at;
	struct item *it, *next, *ret = NULL, **end = &ret;
	struct item *all[2] = { NULL, NULL }, **ends[] = { &all[0], &all[1] };
	struct item *on_tcp, *others;

	for (it = c->found; it; it = it->next)
		if (it->on_tcp && it->by_tcp && it->since < emptied)
			emptied = it->since;
	for (it = c->found; it; it = next) {
		next = it->next;
		it->position = position(c, it, emptied, mixed);
		if (it->on_tcp)
			it->place = it->position;
		it->next = NULL;
		*ends[it->on_tcp] = it;
		ends[it->on_tcp] = &it->next;
	}
	on_tcp = c->n_on_tcp ? in_order(&all[1], c->n_on_tcp) : NULL;
	others = c->n > c->n_on_tcp ? in_order(&all[0], c->n - c->n_on_tcp)
				    : NULL;
	for (it = others; it; it = it->next)
		before_later(it, on_tcp);
	carry_positions(others);
	while (on_tcp || others) {
		struct item **first =
			!on_tcp || (others &&
				    others->position <= on_tcp->position)
				? &others
				: &on_tcp;

		*end = *first;
		end = &(*first)->next;
		*first = *end;
	}
	*end = NULL;
	return ret;
}

/* The index in ev of the event with this position. */
static int index_of(const struct search *c, uint64_t position)
{
	uint64_t behind = position >> 32;

	return behind < (uint64_t)(c->kernels - c->base) ? c->base + (int)behind
							 : c->kernels;
}

/* Returns the new number of events. */
static int tell_found_locked(struct search *c, struct epoll_event *ev, int n,
			     int max)
{
	struct item *it = NULL, *next;
	struct exi_list *list;
	bool lines_up = n > c->base || c->n_on_tcp;
	int passed = c->base;

	EXI_LOCKED(&c->s->lock);
	c->kernels = n;
	if (c->n)
		it = lines_up ? line_up(c) : in_order(&c->found, c->n);
	for (; it; it = next) {
		int at = lines_up ? index_of(c, it->position) : c->kernels;
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

/* Reports the only item of a set, which needs no order. Inline, as are the
 * functions it calls, so that most of the search is never stored. */
static inline __attribute__((always_inline)) int
tell_alone(struct search *c, struct epoll_event *ev, int n, int max)
{
	struct set *s = c->s;

	for (int left = s->n_active; left > 0 && n < max; left--) {
		struct item *it = shim_set_pop_locked(s);
		bool told;

		if (!it)
			break;
		if (told_by_kernel(c, it)) {
			shim_item_release_locked(it, true);
			continue;
		}
		shim_item_stale_locked(it);
		exi_unlock(&s->lock);
		shim_item_disarm(it);
		it->now = shim_item_look(it, &it->saw);
		if (!c->began && it->now)
			c->began = exi_ticks();
		exi_lock(&s->lock);
		told = tell_this_locked(c, it, &ev[n]);
		n += told;
		shim_item_release_locked(
			it, told || (!idles_locked(c, it) && valid(it)));
	}
	return n;
}

/* Whether a look at the active items would find nothing, as the last one
 * did. */
static bool all_still_locked(const struct set *s)
{
	const struct exi_list *node;

	EXI_LOCKED(&s->lock);
	if (!exi_list_empty(&s->line))
		return false;
	for (node = s->active.next; node != &s->active; node = node->next)
		if (!shim_item_still_locked(
			    exi_container(node, struct item, node)))
			return false;
	return true;
}

static inline struct search search_of(struct set *s, struct epoll_event *ev,
				      int n, bool spins, const uint32_t *met,
				      uint64_t began)
{
	return (struct search){ .s = s,
				.met = met,
				.ev = ev,
				.n_ev = n,
				.spins = spins,
				.asked = n > 0,
				.began = began,
				.until = UINT64_MAX };
}

/* shim_set_collect() for several items, if something may have come. */
static __attribute__((noinline)) int
collect_locked(struct set *s, struct epoll_event *ev, int n, int max,
	       bool spins, const uint32_t *met, uint64_t began,
	       struct looked *ret)
{
	struct search c =
		search_of(s, ev, n, spins, met, began ? began : exi_ticks());

	EXI_LOCKED(&s->lock);
	ret->began = c.began;
	n = tell_line(&c, ev, n, max);
	c.n_ev = n;
	c.met_at = c.met ? *c.met : s->met;
	if (n < max) {
		search(&c);
		if (exi_unlikely(c.rang ||
				 (s->n_moving && (c.asked || c.n_on_tcp))))
			n = find_rung(&c, ev, n, max);
		n = tell_found_locked(&c, ev, n, max);
	}
	ret->asked = c.asked;
	return n;
}

int shim_set_collect(struct set *s, struct epoll_event *ev, int n, int max,
		     bool spins, const uint32_t *met, uint64_t began,
		     struct looked *ret)
{
	exi_lock(&s->lock);
	if (!s->timed) {
		struct search c = search_of(s, ev, n, spins, met, began);

		ret->asked = n > 0;
		n = tell_alone(&c, ev, n, max);
		ret->began = c.began;
		ret->alone = !s->arming && !shim_set_others_sleep(s);
	} else if (!spins || !all_still_locked(s)) {
		n = collect_locked(s, ev, n, max, spins, met, began, ret);
		ret->alone = !s->arming && !shim_set_others_sleep(s);
	}
	exi_unlock(&s->lock);
	return n;
}
