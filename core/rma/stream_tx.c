/* SPDX-License-Identifier: BSD-2-Clause */
/* The sender of the stream engine: two ends that agree, without asking, on
 * where each byte goes.
 *
 *	phase	 0         1           2           3
 *		 direct    indirect    direct      indirect
 *		 adverts   the ring    adverts     the ring
 *
 * The receiver begins a direct phase, by an advert, when it has read its ring
 * empty; every advert states at which byte of the stream its phase began. The
 * sender enters the phase if it has sent nothing since: then no byte in the
 * ring or on the way comes before those that it writes directly. If it has sent
 * something, the phase is dead, and the receiver learns this from the bytes
 * sent.
 *
 * The sender leaves a direct phase whenever it likes, by writing to the ring.
 * It then forgets its adverts. When the receiver learns of those bytes, it
 * knows by their order that no advert can be used any more: the memory is its
 * own. An advert is revoked in the same way: the receiver asks, and the answer
 * is a message about no bytes in the ring. */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/rma/stream.h"
#include "core/rma/stream_int.h"

/* The two guards of the sender. Tests build the engine without one of them, to
 * show that the tests would see it. */
#define GUARD_SEQ  1 /* a phase is entered at the byte where it began */
#define GUARD_DEAD 2 /* a phase that began elsewhere is left behind */
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

/* The invariants of a sender, for assertions only. */
__attribute__((unused)) static bool tx_sane(const struct exi_stream_tx *tx)
{
	return tx->heard <= tx->acked && tx->acked <= tx->head &&
	       tx->head - tx->heard <= tx->ring &&
	       tx->adverts <= EXI_STREAM_ADVERTS &&
	       !(tx->adverts && (exi_stream_odd(tx->phase) || tx->answer ||
				 tx->ended || tx->draining)) &&
	       !(tx->answer && !exi_stream_odd(tx->phase));
}

void exi_stream_tx_init(struct exi_stream_tx *tx, uint32_t ring,
			const struct exi_stream_policy *policy)
{
	assert(ring > 0 && ring <= EXI_STREAM_RING_MAX);
	memset(tx, 0, sizeof(*tx));
	tx->ring = ring;
	tx->policy = *policy;
}

/* The room in the ring. The room of drained bytes is not free before an ACK
 * reports that they came: they may still be on the way, and what is written
 * after them need not come after them. */
static uint32_t tx_room(const struct exi_stream_tx *tx)
{
	return tx->ring - (uint32_t)(tx->head - tx->heard);
}

bool exi_stream_tx_ready(const struct exi_stream_tx *tx)
{
	return !tx->ended && !tx->draining &&
	       (tx->adverts || tx_room(tx) > tx->ring / 8);
}

/* Whether a small batch prefers the ring: if it is not the first. */
static bool rather_ring(const struct exi_stream_tx *tx, size_t want)
{
	return want < tx->policy.direct_min &&
	       tx->small >= tx->policy.small_run;
}

static enum exi_stream_kind direct(const struct exi_stream_tx *tx, size_t want,
				   struct exi_stream_msg *ret)
{
	const struct exi_stream_advert *a = &tx->advert[tx->first];

	assert(!exi_stream_odd(tx->phase));
	*ret = (struct exi_stream_msg){ .kind = EXI_STREAM_DIRECT,
					.len = exi_stream_min(want, a->len),
					.addr = a->addr,
					.key = a->key };
	return ret->kind;
}

static enum exi_stream_kind indirect(const struct exi_stream_tx *tx,
				     size_t want, struct exi_stream_msg *ret)
{
	uint32_t at = exi_stream_place(tx->head, tx->ring);
	uint32_t len = exi_stream_min(want, tx_room(tx));

	len = exi_stream_min(len, tx->ring - at);
	*ret = (struct exi_stream_msg){ .kind = EXI_STREAM_INDIRECT,
					.len = exi_stream_min(
						len, EXI_STREAM_LEN_MAX),
					.addr = at };
	return ret->kind;
}

/* Whether an advert is likely to come: all that was sent was read. */
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
	if (!exi_stream_odd(tx->phase))
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
		tx->answer = false; /* the end is the answer */
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

/* Takes the first advert of the direct phase after this indirect one. */
static int begin_direct(struct exi_stream_tx *tx,
			const struct exi_stream_msg *m)
{
	/* Bytes of the ring that were sent since the phase began, and not
	 * acknowledged. */
	uint32_t since = tx->seq - m->seq;

	if (tx->answer || since > tx->head - tx->heard)
		return -EPROTO;
	if (since && (EXI_STREAM_GUARDS & GUARD_SEQ)) {
		/* From the bytes the receiver learns that the phase is dead. */
		if (EXI_STREAM_GUARDS & GUARD_DEAD)
			enter(tx, m->phase + 1);
		tx->stale = m->seq;
		tx->held = since < tx->policy.hold;
		tx->stats.dropped++;
		return 0;
	}
	if (tx->draining)
		return -EPROTO; /* the receiver does not read here */
	enter(tx, m->phase);
	tx->began = m->seq;
	/* The receiver has read the ring empty. */
	tx->acked = tx->head;
	keep_advert(tx, m);
	return 0;
}

static int got_advert(struct exi_stream_tx *tx, const struct exi_stream_msg *m)
{
	int32_t ahead = (int32_t)(m->phase - tx->phase);
	int ret = 0;

	if (exi_stream_odd(m->phase) || !m->len ||
	    m->len > EXI_STREAM_LEN_MAX || m->addr + m->len < m->addr)
		return -EPROTO;
	if (ahead == 0) {
		if (m->seq != tx->began || tx->adverts == EXI_STREAM_ADVERTS ||
		    tx->draining)
			return -EPROTO;
		keep_advert(tx, m);
	} else if (ahead == 1) {
		ret = begin_direct(tx, m);
	} else if (ahead == -1) {
		tx->stats.dropped++; /* the advert is of the phase before */
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

	/* Nothing is read while the ring is drained. */
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

	if (exi_stream_odd(m->phase) || (ahead != 0 && ahead != -1))
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
	uint32_t at = exi_stream_place(tx->acked, tx->ring);

	if (!tx->draining)
		return 0;
	*ret_at = at;
	return exi_stream_min(tx->head - tx->acked, tx->ring - at);
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
