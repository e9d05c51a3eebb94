/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream engine: two ends that agree, without asking, on where each byte
 * goes.
 *
 *	phase	 0         1           2           3
 *		 direct    indirect    direct      indirect
 *		 adverts   the ring    adverts     the ring
 *
 * The receiver begins a direct phase, by an advert, when it has read its ring
 * empty; every advert says at which byte of the stream its phase began. The
 * sender enters the phase if it has sent nothing since, and so knows that no
 * byte in the ring or on the way comes before those it writes directly; if it
 * has, the phase is dead, and what it sent is what tells the receiver so.
 *
 * The sender leaves a direct phase whenever it likes, by writing to the ring.
 * It forgets its adverts then, and the receiver, when it hears of those bytes,
 * knows by their order that no advert can be used any more: the memory is its
 * own. That is also how an advert is revoked: the receiver asks, and a message
 * about no bytes in the ring is the answer. */
#include "core/rma/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The two guards of the sender. Tests build the engine without one of them, to
 * show that they would see it. */
#define GUARD_SEQ  1 /* a phase is entered at the byte where it began */
#define GUARD_DEAD 2 /* one that is not is left behind */
#ifndef EXI_STREAM_GUARDS
#define EXI_STREAM_GUARDS (GUARD_SEQ | GUARD_DEAD)
#endif

const struct exi_stream_policy exi_stream_policy_default = {
	.direct_min = 4096,
	.small_run = 4,
	.wait_min = 4096,
	.advert_min = 4096,
	.hold = 65536,
};

static bool odd(uint32_t phase)
{
	return phase & 1;
}

static uint32_t min_u32(uint64_t a, uint32_t b)
{
	return a < b ? (uint32_t)a : b;
}

/* Where a byte of the ring is: at each that is sent, or read. A division takes as
 * long as all else, and rings are powers of two but in tests. */
static uint32_t place_of(uint64_t byte, uint32_t ring)
{
	return (uint32_t)(ring & (ring - 1) ? byte % ring : byte & (ring - 1));
}

/* --- sender ------------------------------------------------------------- */

/* For assertions only. */
__attribute__((unused)) static bool tx_sane(const struct exi_stream_tx *tx)
{
	return tx->heard <= tx->acked && tx->acked <= tx->head &&
	       tx->head - tx->heard <= tx->ring &&
	       tx->adverts <= EXI_STREAM_ADVERTS &&
	       !(tx->adverts &&
		 (odd(tx->phase) || tx->answer || tx->ended || tx->draining)) &&
	       !(tx->answer && !odd(tx->phase));
}

void exi_stream_tx_init(struct exi_stream_tx *tx, uint32_t ring,
			const struct exi_stream_policy *policy)
{
	assert(ring > 0 && ring <= EXI_STREAM_RING_MAX);
	memset(tx, 0, sizeof(*tx));
	tx->ring = ring;
	tx->policy = *policy;
}

/* What was drained is not free before an ACK says that it came: it may still be
 * on the way, and what is written after it need not come after it. */
static uint32_t tx_room(const struct exi_stream_tx *tx)
{
	return tx->ring - (uint32_t)(tx->head - tx->heard);
}

bool exi_stream_tx_ready(const struct exi_stream_tx *tx)
{
	return !tx->ended && !tx->draining &&
	       (tx->adverts || tx_room(tx) > tx->ring / 8);
}

/* A small batch would rather use the ring, if it is not the first. */
static bool rather_ring(const struct exi_stream_tx *tx, size_t want)
{
	return want < tx->policy.direct_min &&
	       tx->small >= tx->policy.small_run;
}

static enum exi_stream_kind direct(const struct exi_stream_tx *tx, size_t want,
				   struct exi_stream_msg *ret)
{
	const struct exi_stream_advert *a = &tx->advert[tx->first];

	assert(!odd(tx->phase));
	*ret = (struct exi_stream_msg){ .kind = EXI_STREAM_DIRECT,
					.len = min_u32(want, a->len),
					.addr = a->addr,
					.key = a->key };
	return ret->kind;
}

static enum exi_stream_kind indirect(const struct exi_stream_tx *tx,
				     size_t want, struct exi_stream_msg *ret)
{
	uint32_t at = place_of(tx->head, tx->ring);
	uint32_t len = min_u32(want, tx_room(tx));

	len = min_u32(len, tx->ring - at);
	*ret = (struct exi_stream_msg){ .kind = EXI_STREAM_INDIRECT,
					.len = min_u32(len, EXI_STREAM_LEN_MAX),
					.addr = at };
	return ret->kind;
}

/* An advert is likely to come, when all that was sent was read. */
static bool may_wait(const struct exi_stream_tx *tx, size_t want)
{
	return tx->hopes && !tx->held && !tx->adverts &&
	       want >= tx->policy.wait_min;
}

bool exi_stream_tx_welcome(const struct exi_stream_tx *tx)
{
	return tx->adverts || may_wait(tx, SIZE_MAX);
}

enum exi_stream_kind exi_stream_tx_next(struct exi_stream_tx *tx, size_t want,
					enum exi_stream_how how,
					struct exi_stream_msg *ret)
{
	assert(tx_sane(tx) && !(want && (tx->draining || tx->ending)));
	if (tx->ended)
		return EXI_STREAM_NONE;
	tx->want = want;
	if (!want && tx->ending && !tx->draining) {
		*ret = (struct exi_stream_msg){ .kind = EXI_STREAM_END,
						.seq = tx->seq };
		return ret->kind;
	}
	if (want && tx->adverts &&
	    !((how == EXI_STREAM_RING || rather_ring(tx, want)) && tx_room(tx)))
		return direct(tx, want, ret);
	if (!tx->answer) {
		if (!want || !tx_room(tx))
			return EXI_STREAM_NONE;
		if (how == EXI_STREAM_PATIENT && may_wait(tx, want))
			return EXI_STREAM_WAIT;
	}
	return indirect(tx, want, ret);
}

void exi_stream_tx_in_vain(struct exi_stream_tx *tx)
{
	tx->hopes = false;
}

/* None of the adverts at hand is used any more. */
static void forget_adverts(struct exi_stream_tx *tx)
{
	for (; tx->adverts; tx->adverts--) {
		tx->stats.dropped += !tx->advert[tx->first].used;
		tx->first = (tx->first + 1) % EXI_STREAM_ADVERTS;
	}
}

static void enter(struct exi_stream_tx *tx, uint32_t phase)
{
	forget_adverts(tx);
	tx->phase = phase;
	tx->small = 0;
	tx->stats.phases++;
}

static void sent_direct(struct exi_stream_tx *tx, uint32_t len)
{
	struct exi_stream_advert *a = &tx->advert[tx->first];

	a->used = true;
	a->addr += len;
	a->len -= len;
	if (!a->len || !a->waitall) {
		tx->first = (tx->first + 1) % EXI_STREAM_ADVERTS;
		tx->adverts--;
	}
	if (tx->want >= tx->policy.direct_min)
		tx->small = 0;
	else if (tx->small < UINT32_MAX)
		tx->small++;
	tx->stats.direct++;
	tx->stats.direct_bytes += len;
}

static void sent_indirect(struct exi_stream_tx *tx, uint32_t len)
{
	if (!odd(tx->phase))
		enter(tx, tx->phase + 1);
	tx->answer = false;
	tx->head += len;
	tx->held = tx->held && tx->seq - tx->stale < tx->policy.hold;
	tx->stats.indirect++;
	tx->stats.indirect_bytes += len;
}

void exi_stream_tx_sent(struct exi_stream_tx *tx,
			const struct exi_stream_msg *m, uint32_t len)
{
	assert(len <= m->len && (len || !m->len));
	tx->seq += len;
	switch (m->kind) {
	case EXI_STREAM_DIRECT:
		sent_direct(tx, len);
		break;
	case EXI_STREAM_INDIRECT:
		sent_indirect(tx, len);
		break;
	default:
		assert(m->kind == EXI_STREAM_END);
		forget_adverts(tx);
		tx->answer = false; /* the end is one */
		tx->ended = true;
	}
	assert(tx_sane(tx));
}

void exi_stream_tx_end(struct exi_stream_tx *tx)
{
	tx->ending = true;
}

static void keep_advert(struct exi_stream_tx *tx,
			const struct exi_stream_msg *m)
{
	uint32_t at = (tx->first + tx->adverts) % EXI_STREAM_ADVERTS;

	tx->advert[at] = (struct exi_stream_advert){ .addr = m->addr,
						     .key = m->key,
						     .len = m->len,
						     .waitall = m->waitall };
	tx->adverts++;
	if (tx->ended)
		forget_adverts(tx);
}

/* The first advert of the phase after this indirect one. */
static int begin_direct(struct exi_stream_tx *tx,
			const struct exi_stream_msg *m)
{
	/* Sent since it began: bytes of the ring, that it has not acked. */
	uint32_t since = tx->seq - m->seq;

	if (tx->answer || since > tx->head - tx->heard)
		return -EPROTO;
	if (since && (EXI_STREAM_GUARDS & GUARD_SEQ)) {
		/* They tell the receiver that the phase is dead. */
		if (EXI_STREAM_GUARDS & GUARD_DEAD)
			enter(tx, m->phase + 1);
		tx->stale = m->seq;
		tx->held = since < tx->policy.hold;
		tx->stats.dropped++;
		return 0;
	}
	if (tx->draining)
		return -EPROTO; /* it does not read here */
	enter(tx, m->phase);
	tx->began = m->seq;
	/* It has read the ring empty. */
	tx->acked = tx->head;
	keep_advert(tx, m);
	return 0;
}

static int got_advert(struct exi_stream_tx *tx, const struct exi_stream_msg *m)
{
	int32_t ahead = (int32_t)(m->phase - tx->phase);
	int ret = 0;

	if (odd(m->phase) || !m->len || m->len > EXI_STREAM_LEN_MAX ||
	    m->addr + m->len < m->addr)
		return -EPROTO;
	if (ahead == 0) {
		if (m->seq != tx->began || tx->adverts == EXI_STREAM_ADVERTS ||
		    tx->draining)
			return -EPROTO;
		keep_advert(tx, m);
	} else if (ahead == 1) {
		ret = begin_direct(tx, m);
	} else if (ahead == -1) {
		tx->stats.dropped++; /* of the phase before */
	} else {
		ret = -EPROTO;
	}
	tx->stats.adverts += !ret;
	tx->hopes = tx->hopes || !ret;
	return ret;
}

static int got_ack(struct exi_stream_tx *tx, const struct exi_stream_msg *m)
{
	uint32_t more = m->seq - (uint32_t)tx->heard;

	/* While it is drained nothing is read. */
	if (more > (tx->draining ? tx->acked : tx->head) - tx->heard)
		return -EPROTO;
	tx->heard += more;
	if (tx->acked < tx->heard)
		tx->acked = tx->heard;
	tx->stats.acks++;
	return 0;
}

static int got_revoke(struct exi_stream_tx *tx, const struct exi_stream_msg *m)
{
	int32_t ahead = (int32_t)(m->phase - tx->phase);

	if (odd(m->phase) || (ahead != 0 && ahead != -1))
		return -EPROTO;
	tx->stats.revokes++;
	if (ahead || tx->ended)
		return 0; /* what ended the phase is the answer */
	enter(tx, tx->phase + 1);
	tx->answer = true;
	return 0;
}

int exi_stream_tx_got(struct exi_stream_tx *tx, const struct exi_stream_msg *m)
{
	int ret;

	switch (m->kind) {
	case EXI_STREAM_ADVERT:
		ret = got_advert(tx, m);
		break;
	case EXI_STREAM_ACK:
		ret = got_ack(tx, m);
		break;
	case EXI_STREAM_REVOKE:
		ret = got_revoke(tx, m);
		break;
	default:
		ret = -EPROTO;
	}
	assert(tx_sane(tx));
	return ret;
}

uint64_t exi_stream_tx_head(const struct exi_stream_tx *tx)
{
	assert(!tx->draining && !tx->ending);
	return tx->head;
}

static void drained_to(struct exi_stream_tx *tx, uint64_t pos)
{
	tx->acked = pos;
	tx->draining = pos != tx->head;
}

int exi_stream_tx_takeback(struct exi_stream_tx *tx, uint64_t pos)
{
	if (pos < tx->acked || pos > tx->head || tx->adverts || tx->draining)
		return -EPROTO;
	drained_to(tx, pos);
	return 0;
}

uint32_t exi_stream_tx_drain(const struct exi_stream_tx *tx, uint32_t *ret_at)
{
	uint32_t at = place_of(tx->acked, tx->ring);

	if (!tx->draining)
		return 0;
	*ret_at = at;
	return min_u32(tx->head - tx->acked, tx->ring - at);
}

void exi_stream_tx_drained(struct exi_stream_tx *tx, uint32_t n)
{
	assert(tx->draining && n <= tx->head - tx->acked);
	drained_to(tx, tx->acked + n);
}

uint32_t exi_stream_tx_position(const struct exi_stream_tx *tx)
{
	return tx->seq;
}

uint32_t exi_stream_tx_cut(struct exi_stream_tx *tx)
{
	forget_adverts(tx);
	tx->answer = false;
	drained_to(tx, tx->acked);
	return tx->seq - (uint32_t)(tx->head - tx->acked);
}

/* --- receiver ----------------------------------------------------------- */

uint32_t exi_stream_rx_unread(const struct exi_stream_rx *rx)
{
	return rx->state == EXI_STREAM_GIVEN || rx->placed < rx->taken
		       ? 0
		       : (uint32_t)(rx->placed - rx->taken);
}

/* For assertions only. */
__attribute__((unused)) static bool rx_sane(const struct exi_stream_rx *rx)
{
	return rx->told <= rx->taken && rx->told <= rx->placed &&
	       rx->placed - rx->told <= rx->ring && rx->live <= rx->posted &&
	       rx->live <= EXI_STREAM_ADVERTS &&
	       rx->posted + rx->n_done <= EXI_STREAM_RECVS &&
	       !(rx->live &&
		 (odd(rx->phase) || rx->ended || rx->placed != rx->taken ||
		  rx->state > EXI_STREAM_STOPPING)) &&
	       !(rx->revoking && (odd(rx->phase) || rx->ended)) &&
	       !(rx->posted && rx->ended && !exi_stream_rx_unread(rx)) &&
	       !(rx->posted > rx->live && rx->state != EXI_STREAM_OPEN);
}

void exi_stream_rx_init(struct exi_stream_rx *rx, uint32_t ring,
			const struct exi_stream_policy *policy)
{
	assert(ring > 0 && ring <= EXI_STREAM_RING_MAX);
	memset(rx, 0, sizeof(*rx));
	rx->ring = ring;
	rx->policy = *policy;
	rx->state = EXI_STREAM_GIVEN;
}

static struct exi_stream_recv *recv_at(struct exi_stream_rx *rx, uint32_t i)
{
	return &rx->recv[(rx->first + i) % EXI_STREAM_RECVS];
}

static void finish(struct exi_stream_rx *rx, uint32_t i,
		   enum exi_stream_why why)
{
	uint32_t at = (rx->done_first + rx->n_done++) % EXI_STREAM_RECVS;
	const struct exi_stream_recv *r = recv_at(rx, i);

	/* One that is lent is over when the sender has left it, full or not. */
	assert(i >= rx->live || why == EXI_STREAM_FILLED);
	rx->done[at] = (struct exi_stream_done){ .owner = r->owner,
						 .filled = r->filled,
						 .why = why };
	if (i == 0) {
		rx->first = (rx->first + 1) % EXI_STREAM_RECVS;
	} else {
		for (; i + 1 < rx->posted; i++)
			*recv_at(rx, i) = *recv_at(rx, i + 1);
	}
	rx->posted--;
}

/* Nothing more will come for the receives that are left. */
static void finish_at_end(struct exi_stream_rx *rx)
{
	while (rx->ended && rx->posted && !exi_stream_rx_unread(rx))
		finish(rx, 0, EXI_STREAM_ENDED);
}

/* No advert can be used any more: every buffer is ours. */
static void reclaim(struct exi_stream_rx *rx)
{
	uint32_t i;

	for (i = 0; i < rx->live; i++)
		rx->stats.dropped += !recv_at(rx, i)->used;
	rx->live = 0;
	rx->revoking = false;
	rx->wants_revoke = false;
	for (i = 0; i < rx->posted;) {
		if (recv_at(rx, i)->cancelled)
			finish(rx, i, EXI_STREAM_CANCELLED);
		else
			i++;
	}
}

/* May the first receive that is not advertised be? */
static bool may_advertise(const struct exi_stream_rx *rx)
{
	const struct exi_stream_recv *r;

	if (rx->live == rx->posted || rx->live == EXI_STREAM_ADVERTS ||
	    rx->placed != rx->taken || rx->placed < rx->hold_until ||
	    rx->wants_revoke || rx->revoking || rx->state != EXI_STREAM_OPEN)
		return false;
	r = &rx->recv[(rx->first + rx->live) % EXI_STREAM_RECVS];
	return r->may_advertise && r->len - r->filled >= rx->policy.advert_min;
}

static void advert(const struct exi_stream_rx *rx, struct exi_stream_msg *ret)
{
	const struct exi_stream_recv *r =
		&rx->recv[(rx->first + rx->live) % EXI_STREAM_RECVS];

	*ret = (struct exi_stream_msg){
		.kind = EXI_STREAM_ADVERT,
		.phase = rx->phase + odd(rx->phase),
		.seq = odd(rx->phase) ? rx->seq : rx->began,
		.addr = r->addr + r->filled,
		.key = r->key,
		.len = r->len - r->filled,
		.waitall = r->waitall,
	};
}

/* Up to where the ring is free: read or given back, and come. */
static uint64_t freed(const struct exi_stream_rx *rx)
{
	return rx->placed < rx->taken ? rx->placed : rx->taken;
}

uint32_t exi_stream_rx_untold(const struct exi_stream_rx *rx)
{
	return (uint32_t)(freed(rx) - rx->told);
}

/* Enough was freed since the last ACK, or some and the sender may wait for it. */
static bool ack_due(const struct exi_stream_rx *rx, bool idle)
{
	uint32_t n = exi_stream_rx_untold(rx);

	return n && (idle || n >= rx->ring / 4);
}

enum exi_stream_kind exi_stream_rx_next(const struct exi_stream_rx *rx,
					bool idle, struct exi_stream_msg *ret)
{
	assert(rx_sane(rx));
	if (rx->ended || rx->state == EXI_STREAM_CUT)
		return EXI_STREAM_NONE;
	if (rx->wants_revoke && !rx->revoking)
		*ret = (struct exi_stream_msg){ .kind = EXI_STREAM_REVOKE,
						.phase = rx->phase };
	else if (!ack_due(rx, false) && may_advertise(rx))
		advert(rx, ret);
	else if (ack_due(rx, idle))
		*ret = (struct exi_stream_msg){ .kind = EXI_STREAM_ACK,
						.seq = (uint32_t)freed(rx) };
	else
		return EXI_STREAM_NONE;
	return ret->kind;
}

void exi_stream_rx_sent(struct exi_stream_rx *rx,
			const struct exi_stream_msg *m)
{
	switch (m->kind) {
	case EXI_STREAM_ADVERT:
		/* What is in the ring comes before what goes past it. */
		assert(may_advertise(rx) && !exi_stream_rx_unread(rx));
		if (odd(rx->phase)) {
			rx->phase++;
			rx->began = rx->seq;
			rx->used = false;
			rx->stats.phases++;
		}
		recv_at(rx, rx->live++)->used = false;
		rx->stats.adverts++;
		break;
	case EXI_STREAM_ACK:
		rx->told = freed(rx);
		rx->stats.acks++;
		break;
	default:
		assert(m->kind == EXI_STREAM_REVOKE && rx->wants_revoke);
		rx->revoking = true;
		rx->stats.revokes++;
	}
	assert(rx_sane(rx));
}

static int got_direct(struct exi_stream_rx *rx, uint32_t len)
{
	struct exi_stream_recv *r = recv_at(rx, 0);

	if (!rx->live || !len || len > r->len - r->filled)
		return -EPROTO;
	r->filled += len;
	r->used = true;
	rx->seq += len;
	rx->used = true;
	rx->stats.direct++;
	rx->stats.direct_bytes += len;
	if (r->filled < r->len && r->waitall)
		return 0;
	finish(rx, 0, EXI_STREAM_FILLED);
	rx->live--;
	if (!rx->live && !rx->revoking)
		rx->wants_revoke = false; /* it came to nothing */
	return 0;
}

static int got_indirect(struct exi_stream_rx *rx, uint32_t len)
{
	if (len > rx->ring - (rx->placed - rx->told) || (!len && !rx->revoking))
		return -EPROTO;
	if (!odd(rx->phase)) {
		if (rx->live && !rx->used && len)
			rx->hold_until = rx->placed + rx->policy.hold;
		reclaim(rx);
		rx->phase++;
		rx->stats.phases++;
	}
	rx->placed += len;
	rx->seq += len;
	rx->stats.indirect++;
	rx->stats.indirect_bytes += len;
	return 0;
}

static int got_end(struct exi_stream_rx *rx, uint32_t seq)
{
	if (seq != rx->seq)
		return -EPROTO;
	reclaim(rx);
	rx->ended = true;
	finish_at_end(rx);
	return 0;
}

int exi_stream_rx_got(struct exi_stream_rx *rx, const struct exi_stream_msg *m)
{
	int ret;

	if (rx->ended || rx->state == EXI_STREAM_CUT)
		return -EPROTO;
	switch (m->kind) {
	case EXI_STREAM_DIRECT:
		ret = got_direct(rx, m->len);
		break;
	case EXI_STREAM_INDIRECT:
		ret = got_indirect(rx, m->len);
		break;
	case EXI_STREAM_END:
		ret = got_end(rx, m->seq);
		break;
	default:
		ret = -EPROTO;
	}
	assert(rx_sane(rx));
	return ret;
}

int exi_stream_rx_post(struct exi_stream_rx *rx,
		       const struct exi_stream_recv *r)
{
	struct exi_stream_recv *at;

	assert(r->len > 0 && r->len <= EXI_STREAM_LEN_MAX);
	assert(!r->may_advertise || r->addr + r->len >= r->addr);
	if (rx->state != EXI_STREAM_OPEN)
		return -EBUSY;
	if (rx->posted + rx->n_done == EXI_STREAM_RECVS)
		return -EAGAIN;
	at = recv_at(rx, rx->posted++);
	*at = *r;
	at->filled = 0;
	at->cancelled = false;
	finish_at_end(rx);
	return 0;
}

static void cancel(struct exi_stream_rx *rx, uint32_t i)
{
	if (i >= rx->live) {
		finish(rx, i, EXI_STREAM_CANCELLED);
		return;
	}
	recv_at(rx, i)->cancelled = true;
	rx->wants_revoke = true;
}

int exi_stream_rx_cancel(struct exi_stream_rx *rx, const void *owner)
{
	uint32_t i;

	for (i = 0; i < rx->posted; i++) {
		if (recv_at(rx, i)->owner == owner) {
			cancel(rx, i);
			return 0;
		}
	}
	return -ENOENT;
}

bool exi_stream_rx_done(struct exi_stream_rx *rx, struct exi_stream_done *ret)
{
	if (!rx->n_done)
		return false;
	*ret = rx->done[rx->done_first];
	rx->done_first = (rx->done_first + 1) % EXI_STREAM_RECVS;
	rx->n_done--;
	return true;
}

uint32_t exi_stream_rx_run(const struct exi_stream_rx *rx, uint32_t skip,
			   uint32_t *ret_at)
{
	uint32_t unread = exi_stream_rx_unread(rx);
	uint32_t at = place_of(rx->taken + skip, rx->ring);

	if (skip >= unread)
		return 0;
	*ret_at = at;
	return min_u32(unread - skip, rx->ring - at);
}

uint32_t exi_stream_rx_copy(const struct exi_stream_rx *rx, uint32_t *ret_at,
			    void **ret_to)
{
	const struct exi_stream_recv *r = &rx->recv[rx->first];
	uint32_t at, n;

	if (!rx->posted)
		return 0;
	n = exi_stream_rx_run(rx, 0, &at);
	if (!n)
		return 0;
	assert(!rx->live);
	*ret_at = at;
	*ret_to = (char *)r->buf + r->filled;
	return min_u32(n, r->len - r->filled);
}

void exi_stream_rx_copied(struct exi_stream_rx *rx, uint32_t n)
{
	struct exi_stream_recv *r = recv_at(rx, 0);

	assert(rx->posted && !rx->live && n <= r->len - r->filled &&
	       n <= exi_stream_rx_unread(rx));
	rx->taken += n;
	r->filled += n;
	/* At the end of the ring there may be more at its beginning. */
	if (r->filled == r->len || (!r->waitall && !exi_stream_rx_unread(rx)))
		finish(rx, 0, EXI_STREAM_FILLED);
	finish_at_end(rx);
	assert(rx_sane(rx));
}

void exi_stream_rx_take(struct exi_stream_rx *rx, uint32_t n)
{
	assert(!rx->posted && n <= exi_stream_rx_unread(rx));
	rx->taken += n;
}

bool exi_stream_rx_over(const struct exi_stream_rx *rx)
{
	return rx->ended && !exi_stream_rx_unread(rx);
}

void exi_stream_rx_stop(struct exi_stream_rx *rx)
{
	assert(rx->state == EXI_STREAM_OPEN);
	rx->state = EXI_STREAM_STOPPING;
	while (rx->posted > rx->live)
		cancel(rx, rx->live);
	for (uint32_t i = 0; i < rx->live; i++)
		cancel(rx, i);
}

bool exi_stream_rx_quiet(const struct exi_stream_rx *rx)
{
	return rx->state == EXI_STREAM_STOPPING && !rx->live;
}

uint64_t exi_stream_rx_cursor(struct exi_stream_rx *rx)
{
	assert(exi_stream_rx_quiet(rx));
	rx->state = EXI_STREAM_GIVEN;
	return rx->taken;
}

int exi_stream_rx_start(struct exi_stream_rx *rx, uint64_t head)
{
	/* What was given back and what came since fit the ring. The end may
	 * have overtaken this. */
	if (rx->state != EXI_STREAM_GIVEN || head < rx->taken ||
	    head - rx->told > rx->ring || (rx->placed < head && rx->ended))
		return -EPROTO;
	rx->taken = head;
	rx->state = EXI_STREAM_OPEN;
	assert(rx_sane(rx));
	return 0;
}

void exi_stream_rx_cut(struct exi_stream_rx *rx)
{
	rx->state = EXI_STREAM_CUT;
	for (uint32_t i = 0; i < rx->posted; i++)
		recv_at(rx, i)->cancelled = true;
	reclaim(rx);
}

uint32_t exi_stream_rx_position(const struct exi_stream_rx *rx)
{
	return rx->seq - (uint32_t)(rx->placed - rx->taken);
}
