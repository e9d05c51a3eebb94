/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream engine without a fabric. Random schedules of a small world: two
 * ends, a channel each way that delays, memory that knows who owns it, a ring,
 * and TCP beside it; then what a peer cannot say, and the policy.
 *
 * T_SEED=n runs one schedule alone. With the argument "control", in a build of
 * the engine that lacks a guard, schedules must fail. */
#include "core/rma/stream.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/run.h"

#define SCHEDULES 12000
#define LEN_MAX	  9  /* of a receive */
#define SLOTS	  80 /* of memory for one */
#define QUEUE	  64
#define RING_MAX  64

/* A byte is known by its place in the stream, from 1; 0 is nothing. */
typedef uint32_t cell;

struct packet {
	struct exi_stream_msg m;
	cell first; /* of the bytes */
	uint64_t pos;
	bool in_place;
};

struct channel {
	struct packet q[QUEUE];
	uint32_t first;
	uint32_t n;
};

struct slot {
	cell cell[LEN_MAX];
	uint32_t len;
	uint32_t key; /* changes with each use */
	bool lent;
	bool cancelled;
};

enum where {
	TCP,
	LEFT,
	RING,
	DRAIN,
	BACK
};
enum mix {
	NEVER,
	ALWAYS,
	MIXED,
	MIXES
};

struct world {
	struct t_rng rng;
	enum mix waitall;
	uint32_t cancels; /* of 100 */
	uint32_t downs;	  /* of 1000 */
	uint32_t hurry;
	uint32_t by_ring;
	struct exi_stream_tx tx;
	struct exi_stream_rx rx;
	struct channel s2r;
	struct channel r2s;
	struct slot slot[SLOTS];
	cell ring[RING_MAX];
	uint64_t ring_pos[RING_MAX]; /* which byte of the ring it is */
	cell mirror[RING_MAX];
	uint64_t freed;	   /* positions that were acked */
	uint64_t read_pos; /* the next to be read */
	/* The program's ends. */
	cell total;
	cell queued; /* by the sender's program */
	cell sent;   /* on either path */
	cell got;
	bool over;
	/* What the core does. */
	enum where s_mode;
	enum where r_mode;
	bool end_said;
	cell tcp[4096];
	uint32_t tcp_in;
	uint32_t tcp_out;
	bool tcp_fin;
	uint32_t left;
	bool switching; /* SWITCH is under way: */
	uint32_t switch_at;
	uint64_t switch_head;
	bool takeback;
	uint64_t takeback_pos;
};

static struct exi_stream_stats sum;
static uint64_t revoked, moves;
static struct world world;

/* A schedule that fails ends the test, but in a control, which counts it. */
static jmp_buf failed;
static bool control;

#define V(cond, ...)                                                           \
	do {                                                                   \
		bool good_ = (cond);                                           \
		if (!good_ && control)                                         \
			longjmp(failed, 1);                                    \
		T_MSG(good_, __VA_ARGS__);                                     \
	} while (0)

static uint32_t below(struct world *w, uint32_t n)
{
	return (uint32_t)t_below(&w->rng, n);
}

/* --- the fabric --------------------------------------------------------- */

static struct packet *push(struct channel *c, const struct exi_stream_msg *m)
{
	struct packet *p = &c->q[(c->first + c->n++) % QUEUE];

	p->m = *m;
	p->in_place = false;
	return p;
}

static void place_direct(struct world *w, const struct packet *p)
{
	struct slot *s = &w->slot[p->m.addr / LEN_MAX];
	uint32_t at = p->m.addr % LEN_MAX;
	uint32_t i;

	for (i = 0; i < p->m.len; i++, at++) {
		V(s->lent && s->key == p->m.key, "memory that was given back");
		V(at < s->len && !s->cell[at], "a byte written twice");
		s->cell[at] = p->first + i;
	}
}

static void place_indirect(struct world *w, const struct packet *p)
{
	uint32_t i;

	for (i = 0; i < p->m.len; i++) {
		uint32_t at = (uint32_t)p->m.addr + i;

		V(at < w->tx.ring, "beyond the ring");
		V(!w->ring[at] || w->ring_pos[at] < w->freed,
		  "a byte of the ring overwritten");
		w->ring[at] = p->first + i;
		w->ring_pos[at] = p->pos + i;
	}
}

/* The bytes of a message are written: at any moment before it is told, and in
 * no order. */
static void place(struct world *w, uint32_t i)
{
	struct packet *p = &w->s2r.q[(w->s2r.first + i) % QUEUE];

	if (p->in_place)
		return;
	p->in_place = true;
	if (p->m.kind == EXI_STREAM_DIRECT)
		place_direct(w, p);
	else if (p->m.kind == EXI_STREAM_INDIRECT)
		place_indirect(w, p);
}

static enum exi_stream_how how(struct world *w, bool fair)
{
	if (below(w, 100) < w->by_ring)
		return EXI_STREAM_RING;
	return fair || below(w, 100) < w->hurry ? EXI_STREAM_NOW
						: EXI_STREAM_PATIENT;
}

/* Sends as the sender's engine says; true when it did. */
static bool pump_tx(struct world *w, bool fair)
{
	uint32_t want = w->s_mode == RING ? w->queued - w->sent : 0, n, i;
	struct exi_stream_msg m;
	struct packet *p;

	if (want && !fair)
		want = below(w, want + 1);
	if (w->s2r.n == QUEUE || (want && w->end_said) ||
	    exi_stream_tx_next(&w->tx, want, how(w, fair), &m) <=
		    EXI_STREAM_WAIT)
		return false;
	n = m.len && !fair ? 1 + below(w, m.len) : m.len;
	p = push(&w->s2r, &m);
	p->m.len = n;
	p->first = w->sent + 1;
	p->pos = w->tx.head;
	if (m.kind == EXI_STREAM_INDIRECT)
		for (i = 0; i < n; i++)
			w->mirror[m.addr + i] = p->first + i;
	if (m.kind != EXI_STREAM_END)
		w->sent += n;
	exi_stream_tx_sent(&w->tx, &m, n);
	return true;
}

static bool pump_rx(struct world *w, bool idle)
{
	struct exi_stream_msg m;

	if (w->r2s.n == QUEUE ||
	    exi_stream_rx_next(&w->rx, idle, &m) == EXI_STREAM_NONE)
		return false;
	V(m.kind != EXI_STREAM_ADVERT || w->slot[m.addr / LEN_MAX].key == m.key,
	  "advert of what is not lent");
	push(&w->r2s, &m);
	exi_stream_rx_sent(&w->rx, &m);
	w->freed = w->rx.told;
	return true;
}

static bool deliver_s2r(struct world *w)
{
	struct channel *c = &w->s2r;

	if (!c->n)
		return false;
	place(w, 0);
	V(exi_stream_rx_got(&w->rx, &c->q[c->first].m) == 0,
	  "the receiver accuses the sender");
	c->first = (c->first + 1) % QUEUE;
	c->n--;
	return true;
}

static bool deliver_r2s(struct world *w)
{
	struct channel *c = &w->r2s;

	if (!c->n)
		return false;
	V(exi_stream_tx_got(&w->tx, &c->q[c->first].m) == 0,
	  "the sender accuses the receiver");
	c->first = (c->first + 1) % QUEUE;
	c->n--;
	return true;
}

/* --- the receiver's program --------------------------------------------- */

static void read_ring(struct world *w, uint32_t at, uint32_t n, cell *to)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		V(at + i < w->rx.ring && w->ring_pos[at + i] == w->read_pos,
		  "another lap of the ring");
		to[i] = w->ring[at + i];
		w->ring[at + i] = 0;
		w->read_pos++;
	}
}

static void expect(struct world *w, cell c)
{
	V(c == w->got + 1, "byte %u came as byte %u", c, w->got + 1);
	w->got++;
}

static bool post(struct world *w)
{
	struct exi_stream_recv r = { .len = 1 + below(w, LEN_MAX) };
	uint32_t i = 0;
	struct slot *s;
	int ret;

	while (i < SLOTS && w->slot[i].lent)
		i++;
	T(i < SLOTS);
	s = &w->slot[i];
	r.owner = s;
	r.buf = (char *)w->slot + i * LEN_MAX; /* an address, never used */
	r.addr = i * LEN_MAX;
	r.key = s->key;
	r.waitall = w->waitall == MIXED ? below(w, 2) : w->waitall == ALWAYS;
	r.may_advertise = below(w, 8) > 0;
	ret = exi_stream_rx_post(&w->rx, &r);
	T(ret == 0 || ret == -EAGAIN || ret == -EBUSY);
	if (ret)
		return false;
	memset(s->cell, 0, sizeof(s->cell));
	s->len = r.len;
	s->lent = true;
	s->cancelled = false;
	return true;
}

static bool copy(struct world *w)
{
	uint32_t at, n, id, off;
	cell bytes[RING_MAX];
	struct slot *s;
	void *to;

	n = exi_stream_rx_copy(&w->rx, &at, &to);
	if (!n)
		return false;
	n = 1 + below(w, n);
	id = (uint32_t)((char *)to - (char *)w->slot);
	off = id % LEN_MAX;
	s = &w->slot[id / LEN_MAX];
	V(s->lent && off + n <= s->len, "a copy beyond the receive");
	read_ring(w, at, n, bytes);
	for (id = 0; id < n; id++) {
		V(!s->cell[off + id], "a copy over a byte");
		s->cell[off + id] = bytes[id];
	}
	exi_stream_rx_copied(&w->rx, n);
	return true;
}

static bool done(struct world *w)
{
	struct exi_stream_done d;
	struct slot *s;
	uint32_t i;

	if (!exi_stream_rx_done(&w->rx, &d))
		return false;
	s = d.owner;
	V(s->lent && d.filled <= s->len, "over twice");
	s->lent = false;
	s->key++;
	for (i = 0; i < d.filled; i++)
		expect(w, s->cell[i]);
	if (d.why == EXI_STREAM_FILLED)
		V(d.filled, "filled with nothing");
	else if (d.why == EXI_STREAM_ENDED)
		V(w->got == w->total, "the end before the end");
	else
		V(s->cancelled, "nobody cancelled it");
	return true;
}

static void cancel(struct world *w)
{
	struct slot *s = &w->slot[below(w, SLOTS)];
	int ret;

	if (!s->lent)
		return;
	ret = exi_stream_rx_cancel(&w->rx, s);
	T(ret == 0 || ret == -ENOENT);
	s->cancelled |= ret == 0;
	revoked += ret == 0;
}

/* Reads without a receive, or looks. */
static bool take(struct world *w, bool peek)
{
	bool lent = w->rx.posted || w->rx.n_done;
	uint32_t n, at, i, skip = 0;
	cell bytes[RING_MAX];

	if (peek) {
		while ((n = exi_stream_rx_run(&w->rx, skip, &at)) > 0) {
			for (i = 0; i < n && !lent; i++)
				V(w->ring[at + i] == w->got + skip + i + 1,
				  "a look at another byte");
			skip += n;
		}
		V(skip == exi_stream_rx_unread(&w->rx), "unread");
		return false;
	}
	n = exi_stream_rx_run(&w->rx, 0, &at);
	if (w->rx.posted || !n)
		return false;
	while (done(w))
		;
	n = 1 + below(w, n);
	read_ring(w, at, n, bytes);
	exi_stream_rx_take(&w->rx, n);
	for (i = 0; i < n; i++)
		expect(w, bytes[i]);
	return true;
}

/* --- the core ----------------------------------------------------------- */

static void to_tcp(struct world *w, cell c)
{
	T(w->tcp_in < T_COUNT(w->tcp));
	w->tcp[w->tcp_in++] = c;
}

/* The sender's program queues, TCP takes, the direction goes up, the end is
 * said. */
static bool send_some(struct world *w)
{
	if (w->queued < w->total) {
		w->queued += 1 + below(w, 9);
		if (w->queued > w->total)
			w->queued = w->total;
		return true;
	}
	if (w->end_said || w->sent < w->total || w->s_mode == DRAIN)
		return false;
	w->end_said = true;
	if (w->s_mode == RING)
		exi_stream_tx_end(&w->tx);
	else
		w->tcp_fin = true;
	return true;
}

static bool send_tcp(struct world *w)
{
	if (w->s_mode != TCP || w->sent == w->queued)
		return false;
	to_tcp(w, ++w->sent);
	return true;
}

static bool go_up(struct world *w)
{
	if (w->s_mode != TCP || w->end_said || w->switching)
		return false;
	w->s_mode = RING;
	w->switching = true;
	w->switch_at = w->tcp_in;
	w->switch_head = exi_stream_tx_head(&w->tx);
	return true;
}

static bool recv_tcp(struct world *w)
{
	if (w->r_mode == RING || w->tcp_out == w->tcp_in)
		return false;
	expect(w, w->tcp[w->tcp_out++]);
	if (w->r_mode == LEFT && --w->left == 0)
		w->r_mode = RING;
	return true;
}

static bool link(struct world *w)
{
	if (w->switching && w->r_mode != RING && w->r_mode != LEFT &&
	    !w->takeback) {
		w->switching = false;
		V(exi_stream_rx_start(&w->rx, w->switch_head) == 0, "start");
		w->left = w->switch_at - w->tcp_out;
		w->r_mode = w->left ? LEFT : RING;
		w->read_pos = w->switch_head;
		return true;
	}
	if (w->takeback) {
		w->takeback = false;
		V(exi_stream_tx_takeback(&w->tx, w->takeback_pos) == 0,
		  "takeback");
		w->s_mode = DRAIN;
		return true;
	}
	return false;
}

static bool drain(struct world *w)
{
	uint32_t at, n, i;

	if (w->s_mode != DRAIN)
		return false;
	n = exi_stream_tx_drain(&w->tx, &at);
	if (n) {
		n = 1 + below(w, n);
		for (i = 0; i < n; i++)
			to_tcp(w, w->mirror[at + i]);
		exi_stream_tx_drained(&w->tx, n);
		return true;
	}
	w->s_mode = TCP;
	w->tcp_fin = w->end_said;
	return true;
}

static void go_down(struct world *w)
{
	uint32_t i;

	if (w->r_mode != RING || w->rx.state != EXI_STREAM_OPEN)
		return;
	exi_stream_rx_stop(&w->rx);
	for (i = 0; i < SLOTS; i++)
		w->slot[i].cancelled = true;
	moves++;
}

static bool give_back(struct world *w)
{
	if (!exi_stream_rx_quiet(&w->rx))
		return false;
	while (done(w))
		;
	w->takeback_pos = exi_stream_rx_cursor(&w->rx);
	w->takeback = true;
	w->r_mode = BACK;
	return true;
}

static bool see_end(struct world *w)
{
	if (w->over || w->rx.n_done ||
	    !(w->r_mode == RING ? exi_stream_rx_over(&w->rx)
				: w->tcp_fin && w->tcp_out == w->tcp_in &&
					  !w->switching && w->r_mode != LEFT))
		return false;
	V(w->got == w->total, "the end after %u of %u", w->got, w->total);
	w->over = true;
	return true;
}

/* --- schedules ---------------------------------------------------------- */

static struct exi_stream_policy some_policy(struct world *w)
{
	if (below(w, 2))
		return (struct exi_stream_policy){ .wait_min = UINT32_MAX };
	return (struct exi_stream_policy){ .direct_min = below(w, 6),
					   .small_run = below(w, 4),
					   .wait_min = 1 + below(w, 10),
					   .advert_min = below(w, 4),
					   .hold = below(w, 12) };
}

static void begin(struct world *w, uint64_t seed, enum mix waitall)
{
	struct exi_stream_policy p;
	uint32_t ring;

	memset(w, 0, sizeof(*w));
	w->rng.state = seed;
	w->waitall = waitall;
	p = some_policy(w);
	ring = below(w, 2) ? 1 + below(w, 8) : 1 + below(w, RING_MAX);
	exi_stream_tx_init(&w->tx, ring, &p);
	exi_stream_rx_init(&w->rx, ring, &p);
	w->total = 20 + below(w, 180);
	w->cancels = below(w, 2) ? below(w, 30) : 0;
	w->downs = below(w, 2) ? below(w, 4) * below(w, 100) : 0;
	w->hurry = below(w, 101);
	w->by_ring = below(w, 3) ? 0 : below(w, 101);
	if (below(w, 2)) {
		/* Near the wrap of everything. */
		uint64_t head = UINT32_MAX - below(w, 100);

		w->tx.phase = w->rx.phase = UINT32_MAX - 1 - 2 * below(w, 4);
		w->tx.seq = w->rx.seq = UINT32_MAX - below(w, 100);
		w->tx.began = w->rx.began = w->tx.seq;
		w->tx.head = w->tx.acked = w->tx.heard = head;
		w->rx.placed = w->rx.taken = w->rx.told = head;
		w->rx.hold_until = head;
	}
	w->freed = w->read_pos = w->tx.head;
}

static void step(struct world *w, uint32_t bias)
{
	switch (below(w, 20)) {
	case 0:
		if (below(w, 12) < bias)
			send_some(w);
		break;
	case 1 ... 3:
		pump_tx(w, false);
		break;
	case 4 ... 5:
		pump_rx(w, below(w, 2));
		break;
	case 6 ... 7:
		deliver_s2r(w);
		break;
	case 8 ... 9:
		deliver_r2s(w);
		break;
	case 10 ... 11:
		if (w->r_mode == RING && below(w, 8) >= bias &&
		    w->rx.posted < 6)
			post(w);
		break;
	case 12 ... 13:
		copy(w);
		break;
	case 14:
		done(w);
		break;
	case 15:
		if (w->r_mode == RING)
			take(w, below(w, 4) > 0);
		break;
	case 16:
		if (w->s2r.n)
			place(w, below(w, w->s2r.n));
		break;
	case 17:
		if (below(w, 100) < w->cancels)
			cancel(w);
		if (below(w, 1000) < w->downs)
			go_down(w);
		if (below(w, 100) < 30)
			go_up(w);
		break;
	case 18:
		send_tcp(w);
		recv_tcp(w);
		break;
	default:
		link(w);
		drain(w);
		give_back(w);
		if (below(w, 8) == 0)
			see_end(w);
	}
}

static bool pump_tx_all(struct world *w)
{
	return pump_tx(w, true);
}

static bool pump_rx_idle(struct world *w)
{
	return pump_rx(w, true);
}

/* Everything that needs no decision of a program; true when something moved. */
static bool settle(struct world *w)
{
	static bool (*const acts[])(struct world *) = {
		deliver_s2r, deliver_r2s, copy,		done,
		link,	     drain,	  give_back,	recv_tcp,
		send_tcp,    pump_tx_all, pump_rx_idle,
	};
	bool any = false, more;
	size_t i;

	do {
		more = false;
		for (i = 0; i < T_COUNT(acts); i++)
			more |= acts[i](w);
		any |= more;
	} while (more);
	return any;
}

static bool counters_agree(const struct world *w)
{
	const struct exi_stream_stats *t = &w->tx.stats, *r = &w->rx.stats;

	return t->direct == r->direct && t->direct_bytes == r->direct_bytes &&
	       t->indirect == r->indirect &&
	       t->indirect_bytes == r->indirect_bytes &&
	       t->adverts == r->adverts && t->dropped == r->dropped &&
	       t->revokes == r->revokes && t->acks == r->acks &&
	       (w->tx.phase == w->rx.phase || w->rx.ended) &&
	       w->tx.seq == w->rx.seq;
}

/* Bytes of the first receive, which wants more. */
static uint32_t partly(const struct world *w)
{
	return w->rx.posted ? w->rx.recv[w->rx.first].filled : 0;
}

/* All that was begun finishes without anybody's help but reading. */
static void finish(struct world *w)
{
	bool more;
	uint32_t i;

	do {
		settle(w);
		V(!(w->rx.posted && w->sent > w->got + partly(w) &&
		    w->r_mode == RING),
		  "a receive waits for bytes that were sent");
		for (i = 0; i < SLOTS; i++)
			V(!w->slot[i].lent || !w->slot[i].cancelled,
			  "a cancelled receive is never given back");
		V(w->s_mode != RING || w->sent == w->queued ||
			  (!w->rx.posted &&
			   exi_stream_rx_unread(&w->rx) == w->rx.ring),
		  "the sender waits for nothing");
		while (w->r_mode == RING && take(w, false))
			;
		more = settle(w);
		more |= send_some(w);
		more |= see_end(w);
	} while (more);
	V(w->over, "stuck after %u of %u", w->got, w->total);
	for (i = 0; i < SLOTS; i++)
		V(!w->slot[i].lent, "memory that is never given back");
	V(counters_agree(w), "counters");
}

static void schedule(uint64_t seed, enum mix waitall)
{
	struct world *w = &world;
	uint32_t bias, i;

	t_note("T_SEED=%llu", (unsigned long long)seed);
	begin(w, seed, waitall);
	bias = below(w, 9);
	for (i = 0; i < 2000 && !w->over; i++)
		step(w, bias);
	finish(w);
	sum.direct_bytes += w->tx.stats.direct_bytes;
	sum.indirect_bytes += w->tx.stats.indirect_bytes;
	sum.dropped += w->tx.stats.dropped;
	sum.revokes += w->tx.stats.revokes;
	sum.phases += w->rx.stats.phases;
}

/* Every schedule of its own seed; how many failed (a control counts them). */
static uint32_t schedules(enum mix waitall)
{
	const char *alone = getenv("T_SEED");
	uint64_t seed, n = SCHEDULES / t_slow();
	uint32_t bad = 0;

	if (alone) {
		schedule(strtoull(alone, NULL, 0), waitall);
		return 0;
	}
	for (seed = 1; seed <= n; seed++) {
		if (setjmp(failed) == 0)
			schedule(seed, waitall);
		else
			bad++;
	}
	fprintf(stderr,
		"%llu schedules, %u failed: %llu bytes direct, %llu indirect, "
		"%llu phases, %llu adverts dropped, %llu revokes for %llu "
		"cancels and %llu stops\n",
		(unsigned long long)n, bad,
		(unsigned long long)sum.direct_bytes,
		(unsigned long long)sum.indirect_bytes,
		(unsigned long long)sum.phases, (unsigned long long)sum.dropped,
		(unsigned long long)sum.revokes, (unsigned long long)revoked,
		(unsigned long long)moves);
	return bad;
}

/* The schedules reached what they are for. */
static void all_was_met(void)
{
	if (getenv("T_SEED"))
		return;
	T(sum.direct_bytes > 10000 && sum.indirect_bytes > 10000);
	T(sum.phases > 1000 && sum.dropped > 1000);
	T(sum.revokes > 100 && revoked > 100 && moves > 100);
}

static void streams_of_any_receives(void)
{
	schedules(NEVER);
	all_was_met();
}

static void streams_of_receives_that_want_all(void)
{
	schedules(ALWAYS);
	all_was_met();
}

static void streams_of_mixed_receives(void)
{
	schedules(MIXED);
	all_was_met();
}

/* --- what a peer cannot say --------------------------------------------- */

static const struct exi_stream_policy plain = { .wait_min = UINT32_MAX };
static struct exi_stream_tx tx;
static struct exi_stream_rx rx;
static struct exi_stream_msg m;
static char memory[64];

#define SAYS(k, ...)                                                           \
	((struct exi_stream_msg){ .kind = EXI_STREAM_##k, __VA_ARGS__ })

/* Both ends refuse it and stay what they were. */
static void tx_refuses(struct exi_stream_msg said)
{
	struct exi_stream_tx before = tx;

	T_EQ(exi_stream_tx_got(&tx, &said), -EPROTO);
	T(!memcmp(&before, &tx, sizeof(tx)));
}

static void rx_refuses(struct exi_stream_msg said)
{
	struct exi_stream_rx before = rx;

	T_EQ(exi_stream_rx_got(&rx, &said), -EPROTO);
	T(!memcmp(&before, &rx, sizeof(rx)));
}

static void tx_takes(struct exi_stream_msg said)
{
	T_EQ(exi_stream_tx_got(&tx, &said), 0);
}

static void rx_takes(struct exi_stream_msg said)
{
	T_EQ(exi_stream_rx_got(&rx, &said), 0);
}

static void tx_begin(uint32_t ring)
{
	exi_stream_tx_init(&tx, ring, &plain);
}

static void rx_begin(uint32_t ring)
{
	exi_stream_rx_init(&rx, ring, &plain);
	T_EQ(exi_stream_rx_start(&rx, 0), 0);
}

/* The sender says this about so many bytes. */
static void tx_sends(enum exi_stream_kind kind, size_t want, uint32_t len)
{
	T_EQ(exi_stream_tx_next(&tx, want, EXI_STREAM_PATIENT, &m), kind);
	T_EQ(m.len, len);
	exi_stream_tx_sent(&tx, &m, m.len);
}

static void rx_sends(enum exi_stream_kind kind, bool idle)
{
	T_EQ(exi_stream_rx_next(&rx, idle, &m), kind);
	if (kind != EXI_STREAM_NONE)
		exi_stream_rx_sent(&rx, &m);
}

static void posts(uint32_t at, uint32_t len, bool waitall, bool advertise)
{
	struct exi_stream_recv r = { .buf = memory + at,
				     .addr = at,
				     .len = len,
				     .waitall = waitall,
				     .may_advertise = advertise,
				     .owner = memory + at };

	T_EQ(exi_stream_rx_post(&rx, &r), 0);
}

static void is_done(uint32_t at, uint32_t filled, enum exi_stream_why why)
{
	struct exi_stream_done d;

	T(exi_stream_rx_done(&rx, &d));
	T(d.owner == memory + at);
	T_EQ(d.filled, filled);
	T_EQ(d.why, why);
}

static void none_is_done(void)
{
	struct exi_stream_done d;

	T(!exi_stream_rx_done(&rx, &d));
}

static void adverts_that_cannot_be_are_refused(void)
{
	uint32_t i;

	tx_begin(8);
	tx_refuses(SAYS(ADVERT, .len = 0));
	tx_refuses(SAYS(ADVERT, .len = EXI_STREAM_LEN_MAX + 1));
	tx_refuses(SAYS(ADVERT, .len = 2, .addr = UINT64_MAX));
	/* An ADVERT of another phase, or of this one with another beginning. */
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = 1));
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = 2));
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = UINT32_MAX - 1));
	tx_refuses(SAYS(ADVERT, .len = 1, .seq = 1));
	for (i = 0; i < EXI_STREAM_ADVERTS; i++)
		tx_takes(SAYS(ADVERT, .len = 1));
	tx_refuses(SAYS(ADVERT, .len = 1));

	tx_begin(8);
	tx_sends(EXI_STREAM_INDIRECT, 3, 3);
	/* Ahead of the sender; from before what was acked; two phases on. */
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = 2, .seq = 4));
	tx_takes(SAYS(ACK, .seq = 2));
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = 2, .seq = 1));
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = 4, .seq = 3));
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = UINT32_MAX - 1));
	tx_takes(SAYS(ADVERT, .len = 1, .phase = 0));
	tx_takes(SAYS(ADVERT, .len = 1, .phase = 2, .seq = 2));
	T_EQ(tx.phase, 3);
	T_EQ(tx.stats.dropped, 2);
	/* The same phase again, in time: it was dead. */
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = 1));
	tx_takes(SAYS(ADVERT, .len = 1, .phase = 2, .seq = 2));
	T_EQ(tx.adverts, 0);
}

static void a_phase_before_the_answer_is_refused(void)
{
	tx_begin(8);
	tx_takes(SAYS(ADVERT, .len = 4));
	tx_takes(SAYS(REVOKE));
	tx_refuses(SAYS(ADVERT, .len = 4, .phase = 2));
	tx_sends(EXI_STREAM_INDIRECT, 0, 0);
	tx_takes(SAYS(ADVERT, .len = 4, .phase = 2));
	tx_sends(EXI_STREAM_DIRECT, 9, 4);
}

static void acks_of_what_was_not_sent_are_refused(void)
{
	tx_begin(8);
	tx_refuses(SAYS(ACK, .seq = 1));
	tx_sends(EXI_STREAM_INDIRECT, 5, 5);
	tx_refuses(SAYS(ACK, .seq = 6));
	tx_takes(SAYS(ACK, .seq = 3));
	tx_refuses(SAYS(ACK, .seq = 2));
	tx_refuses(SAYS(ACK, .seq = 6));
	tx_takes(SAYS(ACK, .seq = 5));
	tx_sends(EXI_STREAM_INDIRECT, 9, 3); /* up to the end of the ring */
	tx_sends(EXI_STREAM_INDIRECT, 9, 5);
	T(!exi_stream_tx_ready(&tx));
	T_EQ(exi_stream_tx_next(&tx, 1, EXI_STREAM_NOW, &m), EXI_STREAM_NONE);
}

static void revokes_of_no_phase_are_refused(void)
{
	tx_begin(8);
	tx_refuses(SAYS(REVOKE, .phase = 1));
	tx_refuses(SAYS(REVOKE, .phase = 2));
	tx_refuses(SAYS(REVOKE, .phase = UINT32_MAX - 1));
	tx_sends(EXI_STREAM_INDIRECT, 1, 1);
	tx_takes(SAYS(REVOKE, .phase = 0));
	T_EQ(exi_stream_tx_next(&tx, 0, EXI_STREAM_PATIENT, &m),
	     EXI_STREAM_NONE);
	tx_refuses(SAYS(REVOKE, .phase = 1));
	tx_refuses(SAYS(REVOKE, .phase = 2));
}

static void messages_of_the_other_side_are_refused(void)
{
	enum exi_stream_kind k;

	tx_begin(8);
	rx_begin(8);
	for (k = EXI_STREAM_NONE; k <= EXI_STREAM_REVOKE + 1; k++) {
		struct exi_stream_msg said = { .kind = k, .len = 1 };

		if (k < EXI_STREAM_ADVERT || k > EXI_STREAM_REVOKE)
			tx_refuses(said);
		if (k < EXI_STREAM_DIRECT || k > EXI_STREAM_END)
			rx_refuses(said);
	}
}

static void direct_bytes_beyond_an_advert_are_refused(void)
{
	rx_begin(8);
	rx_refuses(SAYS(DIRECT, .len = 1));
	posts(0, 4, true, true);
	rx_refuses(SAYS(DIRECT, .len = 1)); /* not advertised yet */
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_refuses(SAYS(DIRECT, .len = 0));
	rx_refuses(SAYS(DIRECT, .len = 5));
	rx_takes(SAYS(DIRECT, .len = 3));
	rx_refuses(SAYS(DIRECT, .len = 2));
	rx_takes(SAYS(DIRECT, .len = 1));
	is_done(0, 4, EXI_STREAM_FILLED);
	rx_refuses(SAYS(DIRECT, .len = 1));
	/* After bytes of the ring no advert is left. */
	posts(8, 4, false, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_takes(SAYS(INDIRECT, .len = 1));
	rx_refuses(SAYS(DIRECT, .len = 1));
}

static void indirect_bytes_beyond_the_ring_are_refused(void)
{
	rx_begin(8);
	rx_refuses(SAYS(INDIRECT, .len = 9));
	rx_refuses(SAYS(INDIRECT, .len = UINT32_MAX));
	rx_takes(SAYS(INDIRECT, .len = 6));
	rx_refuses(SAYS(INDIRECT, .len = 3));
	T_EQ(exi_stream_rx_untold(&rx), 0);
	exi_stream_rx_take(&rx, 2);
	T_EQ(exi_stream_rx_untold(&rx), 2);
	rx_sends(EXI_STREAM_ACK, true);
	T_EQ(exi_stream_rx_untold(&rx), 0);
	rx_refuses(SAYS(INDIRECT, .len = 5));
	rx_takes(SAYS(INDIRECT, .len = 4));
	/* Read is not acked. */
	exi_stream_rx_take(&rx, 8);
	rx_refuses(SAYS(INDIRECT, .len = 1));
	rx_sends(EXI_STREAM_ACK, false);
	rx_takes(SAYS(INDIRECT, .len = 8));
}

static void answers_to_nothing_are_refused(void)
{
	rx_begin(8);
	rx_refuses(SAYS(INDIRECT, .len = 0));
	posts(0, 4, false, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_refuses(SAYS(INDIRECT, .len = 0));
	T_EQ(exi_stream_rx_cancel(&rx, memory), 0);
	rx_refuses(SAYS(INDIRECT, .len = 0)); /* not asked yet */
	rx_sends(EXI_STREAM_REVOKE, false);
	none_is_done();
	rx_takes(SAYS(INDIRECT, .len = 0));
	is_done(0, 0, EXI_STREAM_CANCELLED);
	rx_refuses(SAYS(INDIRECT, .len = 0));
}

static void what_comes_after_the_end_is_refused(void)
{
	rx_begin(8);
	rx_takes(SAYS(INDIRECT, .len = 2));
	rx_refuses(SAYS(END, .seq = 1));
	rx_refuses(SAYS(END, .seq = 3));
	rx_takes(SAYS(END, .seq = 2));
	rx_refuses(SAYS(END, .seq = 2));
	rx_refuses(SAYS(INDIRECT, .len = 1));
	rx_refuses(SAYS(DIRECT, .len = 1));
}

static void takebacks_that_cannot_be_are_refused(void)
{
	uint32_t at;

	tx_begin(8);
	tx_sends(EXI_STREAM_INDIRECT, 5, 5);
	tx_takes(SAYS(ACK, .seq = 2));
	T_EQ(exi_stream_tx_takeback(&tx, 1), -EPROTO);
	T_EQ(exi_stream_tx_takeback(&tx, 6), -EPROTO);
	T_EQ(exi_stream_tx_takeback(&tx, UINT64_MAX), -EPROTO);
	T_EQ(exi_stream_tx_takeback(&tx, 3), 0);
	T_EQ(exi_stream_tx_takeback(&tx, 3), -EPROTO);
	tx_refuses(SAYS(ACK, .seq = 4)); /* it does not read there now */
	tx_takes(SAYS(ACK, .seq = 3));	 /* it did */
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = 1));
	tx_refuses(SAYS(ADVERT, .len = 1, .phase = 2, .seq = 5));
	T_EQ(exi_stream_tx_drain(&tx, &at), 2);
	T_EQ(at, 3);
	exi_stream_tx_drained(&tx, 2);
	T_EQ(exi_stream_tx_drain(&tx, &at), 0);
	/* What was drained was given back before: not a second time. */
	T_EQ(exi_stream_tx_takeback(&tx, 4), -EPROTO);

	tx_begin(8);
	tx_takes(SAYS(ADVERT, .len = 1)); /* it would write there */
	T_EQ(exi_stream_tx_takeback(&tx, 0), -EPROTO);
}

static void beginnings_that_cannot_be_are_refused(void)
{
	rx_begin(8);
	T_EQ(exi_stream_rx_start(&rx, 0), -EPROTO); /* it is open */
	rx_takes(SAYS(INDIRECT, .len = 5));
	exi_stream_rx_take(&rx, 4);
	exi_stream_rx_stop(&rx);
	T(exi_stream_rx_quiet(&rx));
	T_EQ(exi_stream_rx_start(&rx, 5), -EPROTO); /* not given back */
	T_EQ(exi_stream_rx_cursor(&rx), 4);
	T_EQ(exi_stream_rx_start(&rx, 3), -EPROTO);
	T_EQ(exi_stream_rx_start(&rx, 9), -EPROTO);
	rx_takes(SAYS(INDIRECT, .len = 3));
	T_EQ(exi_stream_rx_start(&rx, 7), 0);
	T_EQ(exi_stream_rx_unread(&rx), 1);

	/* The end came, and bytes before it did not. */
	exi_stream_rx_init(&rx, 8, &plain);
	rx_takes(SAYS(END));
	T_EQ(exi_stream_rx_start(&rx, 1), -EPROTO);
	T_EQ(exi_stream_rx_start(&rx, 0), 0);
	T(exi_stream_rx_over(&rx));
}

static uint32_t accepted, refused;

/* Something near what could be said now. */
static void tx_hears(struct t_rng *r)
{
	struct exi_stream_msg said = {
		.kind = t_below(r, EXI_STREAM_REVOKE + 1),
		.phase = tx.phase + t_below(r, 5) - 2,
		.len = t_below(r, 8),
		.waitall = t_below(r, 2),
	};
	struct exi_stream_tx before = tx;

	said.seq = (said.kind == EXI_STREAM_ACK ? tx.head : tx.seq) + 2 -
		   t_below(r, 8);
	if (exi_stream_tx_got(&tx, &said) == 0) {
		accepted++;
		return;
	}
	refused++;
	T(!memcmp(&tx, &before, sizeof(tx)));
}

static void rx_hears(struct t_rng *r)
{
	struct exi_stream_msg said = {
		.kind = t_below(r, EXI_STREAM_REVOKE + 1),
		.seq = rx.seq + (t_below(r, 4) == 0),
		.len = t_below(r, 8),
	};
	struct exi_stream_rx before = rx;

	if (said.kind == EXI_STREAM_END && t_below(r, 16))
		return;
	if (exi_stream_rx_got(&rx, &said) == 0) {
		accepted++;
		return;
	}
	refused++;
	T(!memcmp(&rx, &before, sizeof(rx)));
}

static void tx_lives(struct t_rng *r)
{
	size_t want = tx.draining || tx.ending ? 0 : t_below(r, 9);
	uint32_t at;

	switch (t_below(r, 8)) {
	case 0:
		exi_stream_tx_takeback(&tx, tx.head + 1 - t_below(r, 9));
		break;
	case 1:
		if (t_below(r, 32) == 0)
			exi_stream_tx_end(&tx);
		break;
	case 2 ... 3:
		if (exi_stream_tx_drain(&tx, &at))
			exi_stream_tx_drained(&tx, 1);
		break;
	default:
		if (exi_stream_tx_next(&tx, want, EXI_STREAM_NOW, &m) >
		    EXI_STREAM_WAIT)
			exi_stream_tx_sent(&tx, &m, m.len);
	}
}

static void rx_moves(struct t_rng *r)
{
	if (rx.state == EXI_STREAM_OPEN && t_below(r, 16) == 0)
		exi_stream_rx_stop(&rx);
	else if (exi_stream_rx_quiet(&rx))
		exi_stream_rx_cursor(&rx);
	else
		exi_stream_rx_start(&rx, rx.taken + t_below(r, 12) - 2);
}

static void rx_lives(struct t_rng *r)
{
	struct exi_stream_done d;
	uint32_t at, n;
	void *to;

	switch (t_below(r, 8)) {
	case 0:
		rx_moves(r);
		break;
	case 1:
		exi_stream_rx_cancel(&rx, memory + t_below(r, 32));
		break;
	case 2 ... 3:
		if (rx.state == EXI_STREAM_OPEN &&
		    rx.posted + rx.n_done < EXI_STREAM_RECVS)
			posts(t_below(r, 32), 1 + t_below(r, 5), t_below(r, 2),
			      t_below(r, 4) > 0);
		break;
	case 4:
		while (exi_stream_rx_done(&rx, &d))
			T(d.filled <= 5);
		break;
	case 5:
		n = exi_stream_rx_copy(&rx, &at, &to);
		if (n)
			exi_stream_rx_copied(&rx, n);
		else if (!rx.posted)
			exi_stream_rx_take(&rx, exi_stream_rx_unread(&rx));
		break;
	default:
		if (exi_stream_rx_next(&rx, true, &m))
			exi_stream_rx_sent(&rx, &m);
	}
}

/* Whatever a peer says, this end stays sane: the engine's assertions hold, and
 * what it refuses changes nothing. */
static void nonsense_does_no_harm(void)
{
	static void (*const happens[])(struct t_rng *) = { tx_hears, rx_hears,
							   tx_lives, rx_lives };
	uint32_t i, n = 1000000 / t_slow();
	struct t_rng r = { 1 };

	for (i = 0; i < n; i++) {
		if (i % 400 == 0) {
			tx_begin(1 + t_below(&r, 9));
			rx_begin(1 + t_below(&r, 9));
		}
		happens[t_below(&r, T_COUNT(happens))](&r);
	}
	T(accepted > n / 50 && refused > n / 50);
}

/* --- what the schedules do not tell -------------------------------------- */

static void an_advertised_receive_is_ours_after_the_answer_only(void)
{
	rx_begin(8);
	posts(0, 4, true, true);
	posts(8, 4, true, true);
	posts(16, 4, true, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_sends(EXI_STREAM_ADVERT, false);
	/* The third is not lent: at once. The others wait, for one answer. */
	T_EQ(exi_stream_rx_cancel(&rx, memory + 16), 0);
	is_done(16, 0, EXI_STREAM_CANCELLED);
	T_EQ(exi_stream_rx_cancel(&rx, memory + 16), -ENOENT);
	T_EQ(exi_stream_rx_cancel(&rx, memory), 0);
	T_EQ(exi_stream_rx_cancel(&rx, memory + 8), 0);
	rx_sends(EXI_STREAM_REVOKE, false);
	posts(24, 4, true, true); /* no advert before the answer */
	rx_sends(EXI_STREAM_NONE, true);
	/* Data on the way: the first is filled, the second gets some. */
	rx_takes(SAYS(DIRECT, .len = 4));
	is_done(0, 4, EXI_STREAM_FILLED);
	rx_takes(SAYS(DIRECT, .len = 3));
	none_is_done();
	rx_takes(SAYS(INDIRECT, .len = 0));
	is_done(8, 3, EXI_STREAM_CANCELLED);
	rx_sends(EXI_STREAM_ADVERT, false);
	T_EQ(m.addr, 24);
}

static void a_receive_not_cancelled_is_advertised_anew(void)
{
	rx_begin(8);
	posts(0, 4, true, true);
	posts(8, 4, true, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_takes(SAYS(DIRECT, .len = 1));
	T_EQ(exi_stream_rx_cancel(&rx, memory + 8), 0);
	rx_sends(EXI_STREAM_REVOKE, false);
	rx_takes(SAYS(INDIRECT, .len = 0));
	is_done(8, 0, EXI_STREAM_CANCELLED);
	rx_sends(EXI_STREAM_ADVERT, false);
	T_EQ(m.phase, 2);
	T_EQ(m.seq, 1);
	T_EQ(m.addr, 1);
	T_EQ(m.len, 3);
}

static void bytes_of_the_ring_answer_a_revoke(void)
{
	rx_begin(8);
	posts(0, 4, true, true);
	posts(8, 4, true, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	T_EQ(exi_stream_rx_cancel(&rx, memory), 0);
	rx_sends(EXI_STREAM_REVOKE, false);
	rx_takes(SAYS(INDIRECT, .len = 2));
	is_done(0, 0, EXI_STREAM_CANCELLED);

	tx_begin(8);
	tx_takes(SAYS(ADVERT, .len = 4));
	tx_takes(SAYS(REVOKE));
	tx_sends(EXI_STREAM_INDIRECT, 2, 2); /* rather than one of none */
	T_EQ(exi_stream_tx_next(&tx, 0, EXI_STREAM_PATIENT, &m),
	     EXI_STREAM_NONE);
}

static void the_end_gives_back_what_was_lent(void)
{
	rx_begin(8);
	posts(0, 4, true, true);
	posts(8, 4, false, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_takes(SAYS(DIRECT, .len = 3));
	rx_takes(SAYS(END, .seq = 3));
	is_done(0, 3, EXI_STREAM_ENDED);
	is_done(8, 0, EXI_STREAM_ENDED);
	posts(16, 1, true, true);
	is_done(16, 0, EXI_STREAM_ENDED);
	rx_sends(EXI_STREAM_NONE, true);

	tx_begin(8);
	tx_takes(SAYS(ADVERT, .len = 4));
	exi_stream_tx_end(&tx);
	tx_sends(EXI_STREAM_END, 0, 0);
	T_EQ(tx.stats.dropped, 1);
	tx_takes(SAYS(REVOKE)); /* under way when it was said */
	tx_takes(SAYS(ADVERT, .len = 4));
	T_EQ(exi_stream_tx_next(&tx, 0, EXI_STREAM_PATIENT, &m),
	     EXI_STREAM_NONE);
	T(!exi_stream_tx_ready(&tx));
}

static void a_cut_gives_back_what_was_lent(void)
{
	void *to;
	uint32_t at;

	rx_begin(8);
	posts(0, 4, true, true);
	posts(8, 4, true, false);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_takes(SAYS(DIRECT, .len = 1));
	exi_stream_rx_cut(&rx);
	is_done(0, 1, EXI_STREAM_CANCELLED);
	is_done(8, 0, EXI_STREAM_CANCELLED);
	rx_refuses(SAYS(DIRECT, .len = 1));

	/* What was given back is read where the sender cannot send it again. */
	rx_begin(8);
	rx_takes(SAYS(INDIRECT, .len = 7));
	exi_stream_rx_take(&rx, 5);
	exi_stream_rx_stop(&rx);
	exi_stream_rx_cursor(&rx);
	T_EQ(exi_stream_rx_unread(&rx), 0);
	exi_stream_rx_cut(&rx);
	T_EQ(exi_stream_rx_unread(&rx), 2);
	T_EQ(exi_stream_rx_run(&rx, 0, &at), 2);
	T_EQ(at, 5);
	T_EQ(exi_stream_rx_copy(&rx, &at, &to), 0);
}

/* Its ring was read empty, ACK or not: only what follows is repeated. */
static void an_advert_acknowledges_what_came_before_it(void)
{
	uint32_t at;

	tx_begin(8);
	tx_sends(EXI_STREAM_INDIRECT, 6, 6);
	tx_takes(SAYS(ADVERT, .phase = 2, .seq = 6, .len = 4));
	tx_sends(EXI_STREAM_DIRECT, 4, 4);
	tx_sends(EXI_STREAM_INDIRECT, 2, 2);
	T_EQ(exi_stream_tx_cut(&tx), 10);
	T_EQ(exi_stream_tx_drain(&tx, &at), 2);
	T_EQ(at, 6);
}

/* Both ends count the stream alike, so the receiver knows how much of what is
 * repeated it has. */
static void a_cut_sender_repeats_what_was_not_acknowledged(void)
{
	uint32_t at, from;

	tx_begin(8);
	rx_begin(8);
	T_EQ(exi_stream_tx_position(&tx), 0);
	tx_sends(EXI_STREAM_INDIRECT, 6, 6);
	rx_takes(SAYS(INDIRECT, .len = 6));
	exi_stream_rx_take(&rx, 4);
	rx_sends(EXI_STREAM_ACK, true);
	tx_takes(m);
	tx_sends(EXI_STREAM_INDIRECT, 5, 2); /* to the end of the ring */
	tx_sends(EXI_STREAM_INDIRECT, 3, 3);
	rx_takes(SAYS(INDIRECT, .len = 2)); /* the last three are lost */
	exi_stream_rx_take(&rx, 1);
	T_EQ(exi_stream_tx_position(&tx), 11);
	T_EQ(exi_stream_rx_position(&rx), 5);

	exi_stream_rx_cut(&rx);
	from = exi_stream_tx_cut(&tx);
	T_EQ(from, 4);
	T_EQ(exi_stream_rx_position(&rx) - from, 1);
	T_EQ(exi_stream_tx_drain(&tx, &at), 4);
	T_EQ(at, 4);
	exi_stream_tx_drained(&tx, 4);
	T_EQ(exi_stream_tx_drain(&tx, &at), 3);
	T_EQ(at, 0);
	exi_stream_tx_drained(&tx, 3);
	T_EQ(exi_stream_tx_drain(&tx, &at), 0);

	/* Nor are adverts used any more, nor a REVOKE answered. */
	tx_begin(8);
	tx_takes(SAYS(ADVERT, .len = 4));
	T_EQ(exi_stream_tx_cut(&tx), 0);
	T_EQ(tx.stats.dropped, 1);
	T_EQ(exi_stream_tx_next(&tx, 0, true, &m), EXI_STREAM_NONE);
	tx_begin(8);
	tx_takes(SAYS(REVOKE));
	exi_stream_tx_cut(&tx);
	T_EQ(exi_stream_tx_next(&tx, 0, true, &m), EXI_STREAM_NONE);

	/* What was given back, and came after the next beginning, counts. */
	tx_begin(8);
	rx_begin(8);
	tx_sends(EXI_STREAM_INDIRECT, 6, 6);
	exi_stream_rx_stop(&rx);
	T_EQ(exi_stream_tx_takeback(&tx, exi_stream_rx_cursor(&rx)), 0);
	exi_stream_tx_drained(&tx, exi_stream_tx_drain(&tx, &at));
	T_EQ(exi_stream_rx_start(&rx, exi_stream_tx_head(&tx)), 0);
	T_EQ(exi_stream_rx_position(&rx), exi_stream_tx_position(&tx));
	rx_takes(SAYS(INDIRECT, .len = 6));
	T_EQ(exi_stream_rx_position(&rx), exi_stream_tx_position(&tx));
}

static void acks_are_saved_up_until_nothing_else_is_to_do(void)
{
	rx_begin(16);
	rx_takes(SAYS(INDIRECT, .len = 10));
	exi_stream_rx_take(&rx, 3);
	rx_sends(EXI_STREAM_NONE, false);
	exi_stream_rx_take(&rx, 1);
	rx_sends(EXI_STREAM_ACK, false);
	T_EQ(m.seq, 4);
	exi_stream_rx_take(&rx, 1);
	rx_sends(EXI_STREAM_NONE, false);
	rx_sends(EXI_STREAM_ACK, true);
	T_EQ(m.seq, 5);
	rx_sends(EXI_STREAM_NONE, true);
}

static void a_receive_gets_what_lies_on_both_sides_of_the_wrap(void)
{
	uint32_t at;
	void *to;

	rx_begin(8);
	rx_takes(SAYS(INDIRECT, .len = 6));
	exi_stream_rx_take(&rx, 6);
	rx_sends(EXI_STREAM_ACK, false);
	rx_takes(SAYS(INDIRECT, .len = 2));
	rx_takes(SAYS(INDIRECT, .len = 3));
	posts(0, 9, false, true);
	T_EQ(exi_stream_rx_copy(&rx, &at, &to), 2);
	T_EQ(at, 6);
	exi_stream_rx_copied(&rx, 2);
	none_is_done();
	T_EQ(exi_stream_rx_copy(&rx, &at, &to), 3);
	T_EQ(at, 0);
	T(to == memory + 2);
	exi_stream_rx_copied(&rx, 3);
	is_done(0, 5, EXI_STREAM_FILLED);
}

/* What was taken back may be on the way still. */
static void what_was_drained_is_free_when_it_came(void)
{
	uint32_t at;

	tx_begin(8);
	rx_begin(8);
	tx_sends(EXI_STREAM_INDIRECT, 6, 6);
	exi_stream_rx_stop(&rx);
	T_EQ(exi_stream_tx_takeback(&tx, exi_stream_rx_cursor(&rx)), 0);
	exi_stream_tx_drained(&tx, exi_stream_tx_drain(&tx, &at));
	T_EQ(exi_stream_rx_start(&rx, exi_stream_tx_head(&tx)), 0);
	rx_sends(EXI_STREAM_NONE, true);
	tx_sends(EXI_STREAM_INDIRECT, 6, 2);
	T(!exi_stream_tx_ready(&tx));
	rx_takes(SAYS(INDIRECT, .len = 6));
	T_EQ(exi_stream_rx_unread(&rx), 0);
	rx_sends(EXI_STREAM_ACK, true);
	tx_takes(m);
	tx_sends(EXI_STREAM_INDIRECT, 9, 6);
}

static void receives_are_bounded(void)
{
	struct exi_stream_recv r = { .buf = memory, .len = 1, .owner = memory };
	uint32_t i;

	rx_begin(8);
	for (i = 0; i < EXI_STREAM_RECVS; i++)
		posts(i, 1, true, true);
	T_EQ(exi_stream_rx_post(&rx, &r), -EAGAIN);
	for (i = 0; i < EXI_STREAM_ADVERTS; i++)
		rx_sends(EXI_STREAM_ADVERT, false);
	rx_sends(EXI_STREAM_NONE, true);
	rx_takes(SAYS(DIRECT, .len = 1));
	T_EQ(exi_stream_rx_post(&rx, &r), -EAGAIN); /* done has it still */
	is_done(0, 1, EXI_STREAM_FILLED);
	posts(0, 1, true, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	T_EQ(m.addr, EXI_STREAM_ADVERTS);
	exi_stream_rx_stop(&rx);
	T_EQ(exi_stream_rx_post(&rx, &r), -EBUSY);
}

static void a_receive_that_is_not_lent_holds_up_those_behind(void)
{
	rx_begin(8);
	posts(0, 4, false, true);
	posts(8, 4, false, false);
	posts(16, 4, false, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_sends(EXI_STREAM_NONE, true);
	rx_takes(SAYS(DIRECT, .len = 4));
	rx_sends(EXI_STREAM_NONE, true);
}

static void small_batches_leave_the_direct_phase_after_a_while(void)
{
	struct exi_stream_policy p = plain;

	p.direct_min = 10;
	p.small_run = 2;
	exi_stream_tx_init(&tx, 32, &p);
	tx_takes(SAYS(ADVERT, .len = 100, .waitall = true));
	tx_sends(EXI_STREAM_DIRECT, 9, 9);
	tx_sends(EXI_STREAM_DIRECT, 10, 10); /* no small one */
	tx_sends(EXI_STREAM_DIRECT, 1, 1);
	tx_sends(EXI_STREAM_DIRECT, 2, 2);
	tx_sends(EXI_STREAM_INDIRECT, 3, 3);
	tx_sends(EXI_STREAM_INDIRECT, 50, 29); /* the phase is over */
	T_EQ(tx.stats.dropped, 0);
	/* Where the ring is full, an advert is taken whatever is to be sent. */
	tx_takes(SAYS(ADVERT, .len = 100, .phase = 2, .seq = 54,
		      .waitall = true));
	T_EQ(tx.phase, 2);
	tx_sends(EXI_STREAM_DIRECT, 1, 1);
	tx_sends(EXI_STREAM_DIRECT, 1, 1);
	tx_takes(SAYS(REVOKE, .phase = 2));
	tx_sends(EXI_STREAM_INDIRECT, 0, 0);
}

static enum exi_stream_kind patiently(size_t want)
{
	return exi_stream_tx_next(&tx, want, EXI_STREAM_PATIENT, &m);
}

static void large_batches_wait_for_adverts_where_some_came(void)
{
	struct exi_stream_policy p = plain;

	p.wait_min = 10;
	exi_stream_tx_init(&tx, 32, &p);
	T_EQ(patiently(10), EXI_STREAM_INDIRECT); /* nobody else does */
	tx_sends(EXI_STREAM_INDIRECT, 9, 9);
	tx_takes(SAYS(ADVERT, .len = 100, .phase = 2, .seq = 5)); /* late */
	T_EQ(tx.stats.dropped, 1);
	T_EQ(patiently(9), EXI_STREAM_INDIRECT);
	T_EQ(patiently(10), EXI_STREAM_WAIT);
	tx_takes(SAYS(ADVERT, .len = 100, .phase = 4, .seq = 9));
	tx_sends(EXI_STREAM_DIRECT, 10, 10);
	T_EQ(patiently(10), EXI_STREAM_WAIT);
	T_EQ(exi_stream_tx_next(&tx, 10, EXI_STREAM_NOW, &m),
	     EXI_STREAM_INDIRECT);
	/* None comes: none is waited for before one does. */
	exi_stream_tx_in_vain(&tx);
	T_EQ(patiently(10), EXI_STREAM_INDIRECT);
	tx_takes(SAYS(ADVERT, .len = 100, .phase = 4, .seq = 9));
	tx_sends(EXI_STREAM_DIRECT, 10, 10);
	T_EQ(patiently(10), EXI_STREAM_WAIT);
}

/* The receiver holds the next one back that long. */
static void an_advert_is_not_waited_for_while_it_is_held_back(void)
{
	struct exi_stream_policy p = plain;

	p.wait_min = 1;
	p.hold = 10;
	exi_stream_tx_init(&tx, 32, &p);
	tx_sends(EXI_STREAM_INDIRECT, 9, 9);
	tx_takes(SAYS(ADVERT, .len = 100, .phase = 2, .seq = 5));
	tx_sends(EXI_STREAM_INDIRECT, 5, 5);
	T_EQ(patiently(10), EXI_STREAM_INDIRECT);
	tx_sends(EXI_STREAM_INDIRECT, 1, 1);
	T_EQ(patiently(10), EXI_STREAM_WAIT);
}

static void adverts_in_vain_are_held_back_for_a_while(void)
{
	struct exi_stream_policy p = plain;

	p.hold = 6;
	p.advert_min = 2;
	exi_stream_rx_init(&rx, 16, &p);
	T_EQ(exi_stream_rx_start(&rx, 0), 0);
	posts(0, 1, true, true);
	rx_sends(EXI_STREAM_NONE, true); /* too small */
	T_EQ(exi_stream_rx_cancel(&rx, memory), 0);
	is_done(0, 0, EXI_STREAM_CANCELLED);
	posts(0, 10, true, true);
	rx_sends(EXI_STREAM_ADVERT, false);
	rx_takes(SAYS(INDIRECT, .len = 5));
	exi_stream_rx_copied(&rx, 5);
	rx_sends(EXI_STREAM_ACK, true);
	rx_sends(EXI_STREAM_NONE, true);
	rx_takes(SAYS(INDIRECT, .len = 1));
	exi_stream_rx_copied(&rx, 1);
	rx_sends(EXI_STREAM_ADVERT, false);
	T_EQ(m.len, 4);
	T_EQ(m.seq, 6);
	/* One that was used is no reason. */
	rx_takes(SAYS(DIRECT, .len = 1));
	rx_takes(SAYS(INDIRECT, .len = 1));
	exi_stream_rx_copied(&rx, 1);
	rx_sends(EXI_STREAM_ADVERT, false);
	T_EQ(rx.stats.dropped, 1);
}

/* Without one of the sender's guards honest ends come to accuse each other, or
 * worse. */
static void the_missing_guard_is_missed(void)
{
	enum mix waitall;

	control = true;
	for (waitall = 0; waitall < MIXES; waitall++)
		T(schedules(waitall) > 0);
}

static const struct t_row controls[] = {
	T_ROW(the_missing_guard_is_missed),
};

static const struct t_row rows[] = {
	T_ROW(streams_of_any_receives),
	T_ROW(streams_of_receives_that_want_all),
	T_ROW(streams_of_mixed_receives),
	T_ROW(adverts_that_cannot_be_are_refused),
	T_ROW(a_phase_before_the_answer_is_refused),
	T_ROW(acks_of_what_was_not_sent_are_refused),
	T_ROW(revokes_of_no_phase_are_refused),
	T_ROW(messages_of_the_other_side_are_refused),
	T_ROW(direct_bytes_beyond_an_advert_are_refused),
	T_ROW(indirect_bytes_beyond_the_ring_are_refused),
	T_ROW(answers_to_nothing_are_refused),
	T_ROW(what_comes_after_the_end_is_refused),
	T_ROW(takebacks_that_cannot_be_are_refused),
	T_ROW(beginnings_that_cannot_be_are_refused),
	T_ROW(nonsense_does_no_harm),
	T_ROW(an_advertised_receive_is_ours_after_the_answer_only),
	T_ROW(a_receive_not_cancelled_is_advertised_anew),
	T_ROW(bytes_of_the_ring_answer_a_revoke),
	T_ROW(the_end_gives_back_what_was_lent),
	T_ROW(a_cut_gives_back_what_was_lent),
	T_ROW(an_advert_acknowledges_what_came_before_it),
	T_ROW(a_cut_sender_repeats_what_was_not_acknowledged),
	T_ROW(acks_are_saved_up_until_nothing_else_is_to_do),
	T_ROW(a_receive_gets_what_lies_on_both_sides_of_the_wrap),
	T_ROW(what_was_drained_is_free_when_it_came),
	T_ROW(receives_are_bounded),
	T_ROW(a_receive_that_is_not_lent_holds_up_those_behind),
	T_ROW(small_batches_leave_the_direct_phase_after_a_while),
	T_ROW(large_batches_wait_for_adverts_where_some_came),
	T_ROW(an_advert_is_not_waited_for_while_it_is_held_back),
	T_ROW(adverts_in_vain_are_held_back_for_a_while),
};

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL;

	if (only && !strcmp(only, "control"))
		return t_run("stream", controls, T_COUNT(controls), NULL);
	return t_run("stream", rows, T_COUNT(rows), only);
}
