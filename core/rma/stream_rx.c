/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiver of the stream engine; see stream_tx.c for how the two ends
 * agree. */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/rma/stream.h"
#include "core/rma/stream_int.h"

uint32_t exi_stream_rx_unread(const struct exi_stream_rx *rx)
{
	return rx->state == EXI_STREAM_GIVEN || rx->placed < rx->taken
		       ? 0
		       : (uint32_t)(rx->placed - rx->taken);
}

/* The invariants of a sender, for assertions only. */
__attribute__((unused)) static bool rx_sane(const struct exi_stream_rx *rx)
{
	return rx->told <= rx->taken && rx->told <= rx->placed &&
	       rx->placed - rx->told <= rx->ring && rx->live <= rx->posted &&
	       rx->live <= EXI_STREAM_ADVERTS &&
	       rx->posted + rx->n_done <= EXI_STREAM_RECVS &&
	       !(rx->live && (exi_stream_odd(rx->phase) || rx->ended ||
			      rx->placed != rx->taken ||
			      rx->state > EXI_STREAM_STOPPING)) &&
	       !(rx->revoking && (exi_stream_odd(rx->phase) || rx->ended)) &&
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

	/* A receive that is lent is over when the sender has left it, full or
	 * not. */
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

/* Whether the first receive that is not advertised may be. */
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
		.phase = rx->phase + exi_stream_odd(rx->phase),
		.seq = exi_stream_odd(rx->phase) ? rx->seq : rx->began,
		.addr = r->addr + r->filled,
		.key = r->key,
		.len = r->len - r->filled,
		.waitall = r->waitall,
	};
}

/* The byte up to which the ring is free: read or given back, and come. */
static uint64_t freed(const struct exi_stream_rx *rx)
{
	return rx->placed < rx->taken ? rx->placed : rx->taken;
}

uint32_t exi_stream_rx_untold(const struct exi_stream_rx *rx)
{
	return (uint32_t)(freed(rx) - rx->told);
}

/* Whether an ACK is due: enough was freed since the last one, or some and the
 * sender may wait for it. */
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
		/* Bytes in the ring come before bytes that go past it. */
		assert(may_advertise(rx) && !exi_stream_rx_unread(rx));
		if (exi_stream_odd(rx->phase)) {
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
		/* The wish to revoke came to nothing. */
		rx->wants_revoke = false;
	return 0;
}

static int got_indirect(struct exi_stream_rx *rx, uint32_t len)
{
	if (len > rx->ring - (rx->placed - rx->told) || (!len && !rx->revoking))
		return -EPROTO;
	if (!exi_stream_odd(rx->phase)) {
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
	uint32_t at = exi_stream_place(rx->taken + skip, rx->ring);

	if (skip >= unread)
		return 0;
	*ret_at = at;
	return exi_stream_min(unread - skip, rx->ring - at);
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
	return exi_stream_min(n, r->len - r->filled);
}

void exi_stream_rx_copied(struct exi_stream_rx *rx, uint32_t n)
{
	struct exi_stream_recv *r = recv_at(rx, 0);

	assert(rx->posted && !rx->live && n <= r->len - r->filled &&
	       n <= exi_stream_rx_unread(rx));
	rx->taken += n;
	r->filled += n;
	/* The ring may have more at its beginning when its end was reached. */
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
	/* The bytes that were given back and those that came since fit the
	 * ring. The end may have overtaken this. */
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
