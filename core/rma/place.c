/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers without a copy: receives that the peer may write to, and sends from
 * the program's memory.
 *
 * A send is over when the other end's library reports that it received the note
 * of its bytes (credits), not when the device reports completion: bytes that a
 * device took may be lost with it. By then the bytes were placed, so a
 * repetition by the device is not placed again, and the buffer may change.
 * Memory that was registered for the send alone stays registered until the
 * device is done, too. */
#include "core/rma/place.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

#include "core/base/config.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/rma/engine.h"
#include "core/rma/memory.h"
#include "core/rma/post.h"
#include "core/rma/rma.h"
#include "core/rma/stream.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"

/* OWN_TIMES is how many times larger a transfer must be if its memory is not
 * registered: registering memory for one transfer costs system calls and page
 * tables. */
#define OWN_TIMES 4
/* How long a send waits for an advert while the other end reads nothing. An
 * advert needs a round trip, and a program that posts its next receive. */
#define HOPE_NS 10000000u
/* How long forget() waits until a device is done with received requests. */
#define SETTLE_NS 1000000000u

struct in {
	void *owner;	      /* null: the place is free */
	struct exi_rma_mr mr; /* made for the receive, or none */
};

struct out {
	void *owner;
	struct exi_rma_mr mr; /* made for the send, or none */
	const unsigned char *buf;
	uint32_t len;
	uint32_t drained; /* bytes of buf, after the queue pair failed */
	uint32_t seq;	  /* the position in the stream of the first byte */
	struct exi_rma_sent sent;
};

struct late {
	struct exi_rma_mr mr;
	uint32_t posted;
};

struct exi_rma_places {
	struct in in[EXI_STREAM_RECVS];
	struct out out[EXI_RMA_CREDITS];
	unsigned int first, n_out;
	struct late late[EXI_RMA_CREDITS];
	unsigned int n_late;
	/* The time until which a send waits for an advert, 0: none does; and
	 * what had been sent and acknowledged when the wait began. */
	uint64_t hope;
	uint32_t sent;
	uint64_t heard;
};

/* Links of which a send waits for an advert; under the service lock. */
static struct exi_list hoping = EXI_LIST_INIT(hoping);

/* The places of a link, made when they are first used. Both directions may do
 * so at once. */
static struct exi_rma_places *places_of(struct exi_rma_link *l)
{
	struct exi_rma_places *there = l->places, *made;

	if (there)
		return there;
	made = calloc(1, sizeof(*made));
	if (!made || atomic_compare_exchange_strong(&l->places, &there, made))
		return made;
	free(made);
	return there;
}

/* --- memory ------------------------------------------------------------- */

struct known {
	struct exi_list node;
	uint64_t serial;
	struct exi_rma_mr mr; /* none: the device refused the memory */
	bool writable;	      /* by the peer */
};

static int make(struct exi_rma_net *n, void *addr, size_t len,
		struct exi_rma_mr *ret, bool *writable)
{
	*writable = true;
	if (!exi_rma_fabric.reg(n, addr, len, EXI_RMA_REMOTE, ret))
		return 0;
	/* Read-only memory can still be sent. */
	*writable = false;
	return exi_rma_fabric.reg(n, addr, len, EXI_RMA_READ, ret);
}

static void drop(struct exi_rma_mr *m)
{
	if (m->handle)
		exi_rma_fabric.dereg(m);
	m->handle = NULL;
}

static struct known *find_locked(struct exi_rma_net *n, uint64_t serial)
{
	struct exi_list *pos;

	EXI_MUTEX_LOCKED(&n->memory_lock);
	exi_list_for_each (pos, &n->memory) {
		struct known *k = exi_container(pos, struct known, node);

		if (k->serial == serial)
			return k;
	}
	return NULL;
}

static struct known *learn_locked(struct exi_rma_net *n,
				  const struct exi_memory *m)
{
	struct known *k = calloc(1, sizeof(*k));
	int err;

	EXI_MUTEX_LOCKED(&n->memory_lock);
	if (!k)
		return NULL;
	k->serial = m->serial;
	err = make(n, m->addr, m->len, &k->mr, &k->writable);
	if (err)
		exi_rma_log(EXI_LOG_WARN,
			    "%zu bytes of registered memory are copied: "
			    "the device refuses them (%s)",
			    m->len, strerror(-err));
	/* A refusal is kept, too: the memory is not tried at each transfer. */
	exi_list_add_head(&n->memory, &k->node);
	return k;
}

/* The registration of the program's registered memory, made at its first use
 * here. False: the device refuses it. */
static bool known_mr(struct exi_rma_net *n, const struct exi_memory *m,
		     bool write, struct exi_rma_mr *ret)
{
	struct known *k;
	bool has;

	pthread_mutex_lock(&n->memory_lock);
	k = find_locked(n, m->serial);
	if (!k)
		k = learn_locked(n, m);
	has = k && k->mr.handle && (k->writable || !write);
	if (has)
		*ret = k->mr;
	pthread_mutex_unlock(&n->memory_lock);
	return has;
}

/* The registration of a transfer's memory. *own: made for this transfer
 * alone. */
static bool mr_of(struct exi_rma_net *n, const struct exi_lent *t, size_t len,
		  bool write, struct exi_rma_mr *ret, struct exi_rma_mr *own)
{
	bool writable;

	own->handle = NULL;
	if (t->memory)
		return known_mr(n, t->memory, write, ret);
	if (len / OWN_TIMES < exi_rma_host->config()->zcopy_threshold ||
	    make(n, t->buf, len, own, &writable)) {
		own->handle = NULL;
		return false;
	}
	if (write && !writable)
		drop(own);
	*ret = *own;
	return own->handle != NULL;
}

/* Requests of the device are over up to this one. */
static bool done(struct exi_rma_link *l, uint32_t posted)
{
	return (int32_t)(atomic_load(&l->done) - posted) >= 0;
}

static uint64_t settle_by; /* the core's lock */

static void settle_link(struct exi_rma_link *l)
{
	while (!atomic_load(&l->err) && !done(l, atomic_load(&l->placed)) &&
	       exi_now_ns() < settle_by) {
		exi_rma_fabric.reap(l->net);
		sched_yield();
	}
}

/* Waits for the requests whose bytes the peers received and which are not yet
 * done here. The net's lock keeps the links. */
static void settle(struct exi_rma_net *n)
{
	settle_by = exi_now_ns() + SETTLE_NS;
	exi_rma_fabric.each_link(n, settle_link);
}

static const struct exi_memory *forgotten; /* the core's lock */

static void forget_one(struct exi_rma_net *n)
{
	struct known *k;

	pthread_mutex_lock(&n->memory_lock);
	k = find_locked(n, forgotten->serial);
	if (k)
		exi_list_del(&k->node);
	pthread_mutex_unlock(&n->memory_lock);
	if (!k)
		return;
	settle(n);
	drop(&k->mr);
	free(k);
}

static void place_forget(const struct exi_memory *m)
{
	forgotten = m;
	exi_rma_fabric.each_net(forget_one);
}

void exi_rma_net_fini(struct exi_rma_net *n)
{
	struct exi_list *pos, *tmp;

	exi_rma_links_net_ends(n);
	exi_list_for_each_safe (pos, tmp, &n->memory) {
		struct known *k = exi_container(pos, struct known, node);

		exi_list_del(&k->node);
		drop(&k->mr);
		free(k);
	}
}

/* --- receiving ---------------------------------------------------------- */

static struct in *free_in(struct exi_rma_places *p)
{
	for (unsigned int i = 0; i < EXI_STREAM_RECVS; i++)
		if (!p->in[i].owner)
			return &p->in[i];
	return NULL;
}

static int place_lend(struct exi_conn *c, const struct exi_lent *r)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	struct exi_rma_places *p = places_of(l);
	struct exi_rma_mr mr, own;
	struct in *in;
	int err;

	if (!p || exi_rma_link_take(l, EXI_RX) || atomic_load(&l->err) ||
	    r->len > EXI_STREAM_LEN_MAX)
		return -EOPNOTSUPP;
	in = free_in(p);
	if (!in)
		return -EAGAIN;
	if (!mr_of(l->net, r, r->len, true, &mr, &own))
		return -EOPNOTSUPP;
	err = exi_stream_rx_post(
		&l->rx,
		&(struct exi_stream_recv){ .buf = r->buf,
					   .addr = (uintptr_t)r->buf + mr.shift,
					   .key = mr.key,
					   .len = (uint32_t)r->len,
					   .waitall = r->waitall,
					   .may_advertise = true,
					   .owner = in });
	if (err) {
		drop(&own);
		return -EAGAIN;
	}
	*in = (struct in){ .owner = r->owner, .mr = own };
	exi_rma_link_copy(l);
	exi_rma_link_report(l, false);
	return 0;
}

static void *reap_in(struct exi_rma_link *l, ssize_t *ret)
{
	struct exi_stream_done d;
	struct in *in;
	void *owner;

	if (!exi_stream_rx_done(&l->rx, &d)) {
		exi_rma_link_take(l, EXI_RX);
		exi_rma_link_report(l, false);
		if (!exi_stream_rx_done(&l->rx, &d))
			return NULL;
	}
	in = d.owner;
	owner = in->owner;
	drop(&in->mr);
	*in = (struct in){ 0 };
	*ret = d.filled;
	return owner;
}

static void place_recall(struct exi_conn *c, void *owner)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	for (unsigned int i = 0; i < EXI_STREAM_RECVS; i++)
		if (l->places->in[i].owner == owner)
			exi_stream_rx_cancel(&l->rx, &l->places->in[i]);
	exi_rma_link_report(l, false);
}

static bool place_quiet(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	if (l->rx.state == EXI_STREAM_OPEN)
		exi_stream_rx_stop(&l->rx);
	exi_rma_link_report(l, false);
	return exi_stream_rx_quiet(&l->rx);
}

/* --- sending ------------------------------------------------------------ */

static bool give_up_hope(struct exi_rma_link *l, uint64_t now)
{
	if (now < l->places->hope)
		return false;
	l->places->hope = 0;
	exi_stream_tx_in_vain(&l->tx);
	return true;
}

/* Waits for an advert. -EALREADY: there is time left, and more whenever the
 * other end reads. -EAGAIN: the time is over. */
static int hope(struct exi_rma_link *l)
{
	struct exi_rma_places *p = l->places;
	uint32_t sent = exi_stream_tx_position(&l->tx);
	uint64_t now = exi_now_ns();

	if (!p->hope || p->sent != sent || p->heard != l->tx.heard) {
		p->hope = now + HOPE_NS;
		p->sent = sent;
		p->heard = l->tx.heard;
	}
	return give_up_hope(l, now) ? -EAGAIN : -EALREADY;
}

/* Looks for an advert, into *ret. 0, or -EAGAIN, or -EALREADY: wait. */
static int find_advert(struct exi_rma_link *l, size_t len,
		       struct exi_stream_msg *ret)
{
	switch (exi_stream_tx_next(&l->tx, len, EXI_STREAM_PATIENT, ret)) {
	case EXI_STREAM_DIRECT:
		l->places->hope = 0;
		return 0;
	case EXI_STREAM_WAIT:
		return hope(l);
	default:
		return -EAGAIN;
	}
}

static bool place_welcome(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	return exi_rma_link_take(l, EXI_TX) == 0 && !atomic_load(&l->err) &&
	       exi_stream_tx_welcome(&l->tx);
}

static ssize_t place_give(struct exi_conn *c, const struct exi_lent *s)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	struct exi_rma_places *p = places_of(l);
	struct exi_stream_msg m;
	struct exi_rma_mr mr;
	struct out *o;
	int err;

	if (!p || exi_rma_link_take(l, EXI_TX) || atomic_load(&l->err) ||
	    p->n_out == EXI_RMA_CREDITS)
		return -EAGAIN;
	err = find_advert(l, s->len, &m);
	if (err)
		return err;
	o = &p->out[(p->first + p->n_out) % EXI_RMA_CREDITS];
	if (m.len > l->net->write_max)
		m.len = l->net->write_max;
	if (!mr_of(l->net, s, m.len, false, &mr, &o->mr))
		return -EOPNOTSUPP;
	err = exi_rma_link_write(l, s->buf, &mr, m.addr, m.key, m.len,
				 EXI_RMA_NOTE_DIRECT, &o->sent);
	if (err) {
		drop(&o->mr);
		return err == -EAGAIN ? err : -EOPNOTSUPP;
	}
	o->seq = exi_stream_tx_position(&l->tx);
	exi_stream_tx_sent(&l->tx, &m, m.len);
	o->owner = s->owner;
	o->buf = s->buf;
	o->len = m.len;
	o->drained = 0;
	atomic_store(&l->placed, o->sent.posted);
	p->n_out++;
	return m.len;
}

static bool out_over(struct exi_rma_link *l, const struct out *o)
{
	return (int32_t)(atomic_load(&l->credited) - o->sent.number) >= 0;
}

/* Whether the wait for an advert is over, which is reported once; if not, the
 * service will look when it is to end. */
static bool hope_is_over(struct exi_rma_link *l)
{
	struct exi_rma_places *p = l->places;

	if (!p->hope)
		return false;
	if (give_up_hope(l, exi_now_ns()))
		return true;
	if (l->tx.adverts) {
		p->hope = 0;
		return true;
	}
	pthread_mutex_lock(&exi_rma_service_lock);
	exi_list_del(&l->hoping);
	l->hope = p->hope;
	exi_list_add_tail(&hoping, &l->hoping);
	exi_rma_tick_at(l->hope);
	pthread_mutex_unlock(&exi_rma_service_lock);
	return false;
}

bool exi_rma_place_over(struct exi_rma_link *l)
{
	const struct exi_rma_places *p = l->places;

	return p && ((p->n_out && out_over(l, &p->out[p->first])) ||
		     hope_is_over(l));
}

void exi_rma_place_tick(uint64_t now)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &hoping) {
		struct exi_rma_link *l =
			exi_container(pos, struct exi_rma_link, hoping);

		if (l->hope > now) {
			exi_rma_tick_at(l->hope);
			continue;
		}
		exi_list_del(&l->hoping);
		exi_rma_link_wake(l, EXI_TX);
	}
}

static void drop_late(struct exi_rma_link *l)
{
	struct exi_rma_places *p = l->places;
	unsigned int i, left = 0;

	if (!p->n_late)
		return;
	exi_rma_fabric.reap(l->net);
	for (i = 0; i < p->n_late; i++) {
		if (done(l, p->late[i].posted))
			drop(&p->late[i].mr);
		else
			p->late[left++] = p->late[i];
	}
	p->n_late = left;
}

static struct out *pop(struct exi_rma_places *p)
{
	struct out *o = &p->out[p->first];

	p->first = (p->first + 1) % EXI_RMA_CREDITS;
	p->n_out--;
	if (o->mr.handle)
		p->late[p->n_late++] =
			(struct late){ .mr = o->mr, .posted = o->sent.posted };
	return o;
}

static void *reap_out(struct exi_rma_link *l, ssize_t *ret)
{
	struct exi_rma_places *p = l->places;
	struct out *o;

	drop_late(l);
	exi_rma_link_take(l, EXI_TX);
	if (!p->n_out || p->n_late == EXI_RMA_CREDITS)
		return NULL;
	o = &p->out[p->first];
	if (out_over(l, o) || o->drained == o->len) {
		pop(p);
		*ret = o->len;
		return o->owner;
	}
	if (!l->forsaken)
		return NULL;
	*ret = -ECONNRESET;
	for (o = pop(p); p->n_out && p->out[p->first].owner == o->owner;)
		pop(p);
	return o->owner;
}

static void place_answer(struct exi_conn *c)
{
	exi_rma_link_take(exi_rma_link_of(c), EXI_TX);
}

/* --- both --------------------------------------------------------------- */

static void *place_reap(struct exi_conn *c, enum exi_dir dir, ssize_t *ret)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	if (!l->places)
		return NULL;
	return dir == EXI_RX ? reap_in(l, ret) : reap_out(l, ret);
}

static void place_cut(struct exi_conn *c, enum exi_dir dir)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	l->forsaken = true;
	exi_rma_link_kill(l);
	exi_rma_net_poll(l->net);
	exi_rma_link_take(l, dir);
	if (dir == EXI_RX)
		exi_stream_rx_cut(&l->rx);
}

static uint64_t place_placed(struct exi_conn *c, enum exi_dir dir)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	return dir == EXI_RX ? l->rx.stats.direct_bytes
			     : l->tx.stats.direct_bytes;
}

void exi_rma_place_unpin(struct exi_rma_link *l)
{
	struct exi_rma_places *p = l->places;

	while (p && p->n_late)
		drop(&p->late[--p->n_late].mr);
}

static struct out *out_at(struct exi_rma_places *p, unsigned int i)
{
	return &p->out[(p->first + i) % EXI_RMA_CREDITS];
}

/* Counts what is held: sends from the program's memory that were not received.
 * An advert acknowledges what the ring had before it, so these bytes come
 * first. */
int exi_rma_place_hold(struct exi_rma_link *l)
{
	struct exi_rma_places *p = l->places;
	uint32_t next = l->tx.seq - (uint32_t)(l->tx.head - l->tx.acked);

	l->held = 0;
	for (unsigned int n = p ? p->n_out : 0; n; n--) {
		struct out *o = out_at(p, n - 1);

		drop(&o->mr);
		if (out_over(l, o))
			continue;
		if (o->seq + o->len != next)
			return -ECONNRESET;
		next = o->seq;
		l->held += o->len;
	}
	return 0;
}

/* The first send that is held. */
static struct out *held(struct exi_rma_link *l)
{
	struct out *o;
	unsigned int i = 0;

	do
		o = out_at(l->places, i++);
	while (out_over(l, o) || o->drained == o->len);
	return o;
}

size_t exi_rma_place_drain(struct exi_rma_link *l, const void **ret)
{
	const struct out *o;

	if (!l->held)
		return 0;
	o = held(l);
	*ret = o->buf + o->drained;
	return o->len - o->drained;
}

void exi_rma_place_drained(struct exi_rma_link *l, size_t n)
{
	held(l)->drained += (uint32_t)n;
	l->held -= (uint32_t)n;
}

void exi_rma_place_free(struct exi_rma_link *l)
{
	exi_rma_place_unpin(l);
	free(l->places);
	l->places = NULL;
}

const struct exi_place_ops exi_rma_place_ops = {
	.lend = place_lend,
	.give = place_give,
	.welcome = place_welcome,
	.reap = place_reap,
	.recall = place_recall,
	.quiet = place_quiet,
	.answer = place_answer,
	.cut = place_cut,
	.placed = place_placed,
	.forget = place_forget,
};
