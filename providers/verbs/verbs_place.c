/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers without a copy: receives that the peer may write to, and sends from
 * where they lie.
 *
 * A send is over when the other end's library says that it received the note of
 * its bytes (credits), not when the device does: bytes that a device took may be
 * lost with it. By then they were placed, so what the device might repeat is
 * not placed again, and the buffer may change; but memory that was registered for
 * the send alone stays so until the device is done, too. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

/* Memory that is not registered is for one transfer: that costs system calls
 * and page tables, so it must be so many times larger to be worth it. */
#define OWN_TIMES 4
/* How long forget() waits for a device to be done with what was received. */
#define SETTLE_NS 1000000000u

struct in {
	void *owner;	   /* null: free */
	struct ibv_mr *mr; /* made for it, or null */
};

struct out {
	void *owner;
	struct ibv_mr *mr; /* made for it, or null */
	uint32_t len;
	uint32_t seq; /* of the stream, its first byte */
	struct verbsp_sent sent;
};

struct late {
	struct ibv_mr *mr;
	uint32_t posted;
};

struct verbsp_places {
	struct in in[EXI_STREAM_RECVS];
	struct out out[VERBSP_CREDITS];
	unsigned int first, n_out;
	struct late late[VERBSP_CREDITS];
	unsigned int n_late;
};

static struct verbsp_link *link_of(struct exi_conn *c)
{
	return verbsp_conn(c)->link;
}

static struct verbsp_places *places_of(struct verbsp_link *l)
{
	if (!l->places)
		l->places = calloc(1, sizeof(*l->places));
	return l->places;
}

/* --- memory ------------------------------------------------------------- */

struct known {
	struct exi_list node;
	uint64_t serial;
	struct ibv_mr *mr;
	bool writable; /* by the peer */
};

static struct ibv_mr *make(struct verbsp_net *n, void *addr, size_t len,
			   bool *writable)
{
	struct ibv_mr *mr;

	*writable = true;
	mr = ibv_reg_mr(n->pd, addr, len,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (mr)
		return mr;
	/* Memory that is only read can be sent. */
	*writable = false;
	return ibv_reg_mr(n->pd, addr, len, 0);
}

static struct known *find_locked(struct verbsp_net *n, uint64_t serial)
{
	struct exi_list *pos;

	exi_list_for_each (pos, &n->memory) {
		struct known *k = exi_container(pos, struct known, node);

		if (k->serial == serial)
			return k;
	}
	return NULL;
}

static struct known *learn_locked(struct verbsp_net *n,
				  const struct exi_memory *m)
{
	struct known *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->serial = m->serial;
	k->mr = make(n, m->addr, m->len, &k->writable);
	if (!k->mr)
		verbsp_log(EXI_LOG_WARN,
			   "verbs: %zu bytes of registered memory are copied: "
			   "the device refuses them (%s)",
			   m->len, strerror(errno));
	/* Also when it failed: it is not tried at each transfer. */
	exi_list_add_head(&n->memory, &k->node);
	return k;
}

/* Of registered memory, made at its first use here. Null: the device will not
 * have it. */
static struct ibv_mr *known_mr(struct verbsp_net *n, const struct exi_memory *m,
			       bool write)
{
	struct ibv_mr *ret = NULL;
	struct known *k;

	pthread_mutex_lock(&n->memory_lock);
	k = find_locked(n, m->serial);
	if (!k)
		k = learn_locked(n, m);
	if (k && (k->writable || !write))
		ret = k->mr;
	pthread_mutex_unlock(&n->memory_lock);
	return ret;
}

/* The memory of a transfer. *own: made for it alone. */
static struct ibv_mr *mr_of(struct verbsp_net *n, const struct exi_lent *t,
			    size_t len, bool write, struct ibv_mr **own)
{
	bool writable;

	*own = NULL;
	if (t->memory)
		return known_mr(n, t->memory, write);
	if (len / OWN_TIMES < verbsp_host->config()->zcopy_threshold)
		return NULL;
	*own = make(n, t->buf, len, &writable);
	if (*own && write && !writable) {
		ibv_dereg_mr(*own);
		*own = NULL;
	}
	return *own;
}

/* Requests of the device are over up to this one. */
static bool done(struct verbsp_link *l, uint32_t posted)
{
	return (int32_t)(atomic_load(&l->done) - posted) >= 0;
}

/* Waits for what was received there and is not yet done here. The net's lock
 * keeps the links. */
static void settle(struct verbsp_net *n)
{
	uint64_t deadline = exi_now_ns() + SETTLE_NS;

	pthread_mutex_lock(&n->lock);
	for (unsigned int i = 0; i < VERBSP_SLOTS; i++) {
		struct verbsp_link *l = n->slot[i].link;

		while (l && !atomic_load(&l->err) &&
		       !done(l, atomic_load(&l->placed)) &&
		       exi_now_ns() < deadline) {
			verbsp_net_reap(n);
			sched_yield();
		}
	}
	pthread_mutex_unlock(&n->lock);
}

static const struct exi_memory *forgotten; /* the core's lock */

static void forget_one(struct verbsp_net *n)
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
	if (k->mr)
		ibv_dereg_mr(k->mr);
	free(k);
}

static void place_forget(const struct exi_memory *m)
{
	forgotten = m;
	verbsp_nets_each(forget_one);
}

/* --- receiving ---------------------------------------------------------- */

static struct in *free_in(struct verbsp_places *p)
{
	for (unsigned int i = 0; i < EXI_STREAM_RECVS; i++)
		if (!p->in[i].owner)
			return &p->in[i];
	return NULL;
}

static int place_lend(struct exi_conn *c, const struct exi_lent *r)
{
	struct verbsp_link *l = link_of(c);
	struct verbsp_places *p = places_of(l);
	struct ibv_mr *mr, *own;
	struct in *in;
	int err;

	if (!p || verbsp_link_take(l, EXI_RX) || atomic_load(&l->err) ||
	    r->len > EXI_STREAM_LEN_MAX)
		return -EOPNOTSUPP;
	in = free_in(p);
	if (!in)
		return -EAGAIN;
	mr = mr_of(l->net, r, r->len, true, &own);
	if (!mr)
		return -EOPNOTSUPP;
	err = exi_stream_rx_post(
		&l->rx, &(struct exi_stream_recv){ .buf = r->buf,
						   .addr = (uintptr_t)r->buf,
						   .key = mr->rkey,
						   .len = (uint32_t)r->len,
						   .waitall = r->waitall,
						   .may_advertise = true,
						   .owner = in });
	if (err) {
		if (own)
			ibv_dereg_mr(own);
		return -EAGAIN;
	}
	*in = (struct in){ .owner = r->owner, .mr = own };
	verbsp_link_copy(l);
	verbsp_link_report(l, false);
	return 0;
}

static void *reap_in(struct verbsp_link *l, ssize_t *ret)
{
	struct exi_stream_done d;
	struct in *in;
	void *owner;

	if (!exi_stream_rx_done(&l->rx, &d)) {
		verbsp_link_take(l, EXI_RX);
		verbsp_link_report(l, false);
		if (!exi_stream_rx_done(&l->rx, &d))
			return NULL;
	}
	in = d.owner;
	owner = in->owner;
	if (in->mr)
		ibv_dereg_mr(in->mr);
	*in = (struct in){ 0 };
	*ret = d.filled;
	return owner;
}

static void place_recall(struct exi_conn *c, void *owner)
{
	struct verbsp_link *l = link_of(c);

	for (unsigned int i = 0; i < EXI_STREAM_RECVS; i++)
		if (l->places->in[i].owner == owner)
			exi_stream_rx_cancel(&l->rx, &l->places->in[i]);
	verbsp_link_report(l, false);
}

static bool place_quiet(struct exi_conn *c)
{
	struct verbsp_link *l = link_of(c);

	if (l->rx.state == EXI_STREAM_OPEN)
		exi_stream_rx_stop(&l->rx);
	verbsp_link_report(l, false);
	return exi_stream_rx_quiet(&l->rx);
}

/* --- sending ------------------------------------------------------------ */

static ssize_t place_give(struct exi_conn *c, const struct exi_lent *s)
{
	struct verbsp_link *l = link_of(c);
	struct verbsp_places *p = places_of(l);
	struct exi_stream_msg m;
	struct ibv_mr *mr;
	struct out *o;
	int err;

	if (!p || verbsp_link_take(l, EXI_TX) || atomic_load(&l->err) ||
	    p->n_out == VERBSP_CREDITS ||
	    exi_stream_tx_next(&l->tx, s->len, EXI_STREAM_NOW, &m) !=
		    EXI_STREAM_DIRECT)
		return -EAGAIN;
	o = &p->out[(p->first + p->n_out) % VERBSP_CREDITS];
	if (m.len > l->net->write_max)
		m.len = l->net->write_max;
	mr = mr_of(l->net, s, m.len, false, &o->mr);
	if (!mr)
		return -EOPNOTSUPP;
	err = verbsp_link_write(l, s->buf, mr->lkey, m.addr, (uint32_t)m.key,
				m.len, VERBSP_NOTE_DIRECT, &o->sent);
	if (err) {
		if (o->mr)
			ibv_dereg_mr(o->mr);
		return err == -EAGAIN ? err : -EOPNOTSUPP;
	}
	o->seq = exi_stream_tx_position(&l->tx);
	exi_stream_tx_sent(&l->tx, &m, m.len);
	o->owner = s->owner;
	o->len = m.len;
	atomic_store(&l->placed, o->sent.posted);
	p->n_out++;
	return m.len;
}

static bool out_over(struct verbsp_link *l, const struct out *o)
{
	return (int32_t)(atomic_load(&l->credited) - o->sent.number) >= 0;
}

bool verbsp_place_over(struct verbsp_link *l)
{
	const struct verbsp_places *p = l->places;

	return p && p->n_out && out_over(l, &p->out[p->first]);
}

static void drop_late(struct verbsp_link *l)
{
	struct verbsp_places *p = l->places;
	unsigned int i, left = 0;

	if (!p->n_late)
		return;
	verbsp_net_reap(l->net);
	for (i = 0; i < p->n_late; i++) {
		if (done(l, p->late[i].posted))
			ibv_dereg_mr(p->late[i].mr);
		else
			p->late[left++] = p->late[i];
	}
	p->n_late = left;
}

static struct out *pop(struct verbsp_places *p)
{
	struct out *o = &p->out[p->first];

	p->first = (p->first + 1) % VERBSP_CREDITS;
	p->n_out--;
	if (o->mr)
		p->late[p->n_late++] =
			(struct late){ .mr = o->mr, .posted = o->sent.posted };
	return o;
}

static void *reap_out(struct verbsp_link *l, ssize_t *ret)
{
	struct verbsp_places *p = l->places;
	struct out *o;

	drop_late(l);
	verbsp_link_take(l, EXI_TX);
	if (!p->n_out || p->n_late == VERBSP_CREDITS)
		return NULL;
	if (verbsp_place_over(l)) {
		o = pop(p);
		*ret = o->len;
		return o->owner;
	}
	if (!l->dead)
		return NULL;
	*ret = -ECONNRESET;
	for (o = pop(p); p->n_out && p->out[p->first].owner == o->owner;)
		pop(p);
	return o->owner;
}

static void place_answer(struct exi_conn *c)
{
	verbsp_link_take(link_of(c), EXI_TX);
}

/* --- both --------------------------------------------------------------- */

static void *place_reap(struct exi_conn *c, enum exi_dir dir, ssize_t *ret)
{
	struct verbsp_link *l = link_of(c);

	if (!l->places)
		return NULL;
	return dir == EXI_RX ? reap_in(l, ret) : reap_out(l, ret);
}

static void place_cut(struct exi_conn *c, enum exi_dir dir)
{
	struct verbsp_link *l = link_of(c);

	verbsp_link_kill(l);
	verbsp_net_poll(l->net);
	verbsp_link_take(l, dir);
	if (dir == EXI_RX)
		exi_stream_rx_cut(&l->rx);
}

static uint64_t place_placed(struct exi_conn *c, enum exi_dir dir)
{
	struct verbsp_link *l = link_of(c);

	if (!l)
		return 0;
	return dir == EXI_RX ? l->rx.stats.direct_bytes
			     : l->tx.stats.direct_bytes;
}

void verbsp_place_unpin(struct verbsp_link *l)
{
	struct verbsp_places *p = l->places;

	while (p && p->n_late)
		ibv_dereg_mr(p->late[--p->n_late].mr);
}

int verbsp_place_forgo(struct verbsp_link *l)
{
	struct verbsp_places *p = l->places;
	uint32_t next = exi_stream_tx_position(&l->tx);

	l->held = 0;
	/* From the last back to what was received: one after another. */
	for (unsigned int n = p ? p->n_out : 0; n; n--) {
		const struct out *o =
			&p->out[(p->first + n - 1) % VERBSP_CREDITS];

		if (out_over(l, o))
			break;
		if (o->seq + o->len != next)
			return -ECONNRESET;
		next = o->seq;
		l->held += o->len;
	}
	while (p && p->n_out && l->held) {
		struct out *o =
			&p->out[(p->first + p->n_out - 1) % VERBSP_CREDITS];

		if (out_over(l, o))
			break;
		if (o->mr)
			ibv_dereg_mr(o->mr);
		p->n_out--;
	}
	return 0;
}

void verbsp_place_free(struct verbsp_link *l)
{
	verbsp_place_unpin(l);
	free(l->places);
	l->places = NULL;
}

const struct exi_place_ops verbsp_place_ops = {
	.lend = place_lend,
	.give = place_give,
	.reap = place_reap,
	.recall = place_recall,
	.quiet = place_quiet,
	.answer = place_answer,
	.cut = place_cut,
	.placed = place_placed,
	.forget = place_forget,
};
