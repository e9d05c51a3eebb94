/* SPDX-License-Identifier: BSD-2-Clause */
/* Switching a direction: where the ring begins, where its reading stopped, and
 * what the peer did not take. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/fabric/provider.h"

/* The ring's contents belong to no reader, and it is small again. */
static int switch_head(struct exi_conn *c, uint64_t *ret)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	int err;

	tx->grown_at = tx->before_at = tx->taken = tx->head;
	tx->bytes = tx->before = tx->first = p->out_start;
	tx->full_at = SHMP_NEVER;
	tx->there = tx->head;
	err = shmp_segment_make(p, tx, tx->head + SHMP_RESERVE);
	if (err)
		return err;
	tx->limit = tx->head + tx->bytes;
	if (tx->limit > tx->there)
		tx->limit = tx->there;
	p->starved = false;
	atomic_store_explicit(&shmp_out(p, tx, tx->head)->word, 0,
			      memory_order_relaxed);
	*ret = tx->head;
	return 0;
}

/* Positions that may lie between the ends of a ring: a part, a gap, the whole.
 */
static uint64_t span(uint32_t ring_bytes)
{
	return 3 * (uint64_t)ring_bytes;
}

static int switch_start(struct exi_conn *c, uint64_t head)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	if (head < rx->pos || head - rx->pos > span(p->in_bytes) ||
	    head % SHMP_ALIGN || rx->ended)
		return -EPROTO;
	/* An honest sender has just written there. */
	if (shmp_begin_at(p, rx, head, p->in_start, p->in_start))
		return -EPROTO;
	rx->len = 0;
	rx->used = 0;
	shmp_publish_taken(c);
	return 0;
}

static void switch_cursor(struct exi_conn *c, uint64_t *ret_pos,
			  uint64_t *ret_used)
{
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	*ret_pos = rx->pos;
	*ret_used = rx->len ? rx->used : 0;
}

static int switch_takeback(struct exi_conn *c, uint64_t pos, uint64_t used)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;

	/* The reader has read what it published as taken. */
	if (pos > tx->head || pos < tx->taken || pos % SHMP_ALIGN ||
	    used > SHMP_LEN_MASK || (used && pos == tx->head))
		return -EPROTO;
	tx->drain = pos;
	tx->drain_used = used;
	/* What goes over TCP now was sent before. */
	for (unsigned int i = 0; i < SHMP_TCP; i++)
		atomic_store_explicit(&p->mine->tcp[i].when, 0,
				      memory_order_relaxed);
	return 0;
}

/* The run of bytes at *pos, of which *used are gone; moves *pos to it. */
static size_t run_at(struct shmp_priv *p, struct shmp_tx *tx, uint64_t *pos,
		     uint64_t *used, const void **ret)
{
	while (*pos < tx->head) {
		struct shmp_record *r = shmp_out(p, tx, *pos);
		uint32_t bytes = shmp_out_bytes(tx, *pos);
		uint32_t offset = (uint32_t)*pos & (bytes - 1);
		uint32_t word =
			atomic_load_explicit(&r->word, memory_order_relaxed) &
			~SHMP_LAP;
		uint32_t len = word & SHMP_LEN_MASK;

		if (word >> SHMP_KIND_SHIFT == SHMP_GROW &&
		    *pos < tx->grown_at) {
			*pos = *pos < tx->before_at ? tx->before_at
						    : tx->grown_at;
			continue;
		}
		/* Our own memory, but the peer chose where to begin. */
		if (shmp_record_bytes(len) > bytes - offset)
			break;
		if (*used < len) {
			*ret = shmp_payload(r, len) + *used;
			return len - *used;
		}
		*pos += shmp_record_bytes(len);
		*used = 0;
	}
	/* Empty: the receiver starts at head next time, so all is free. */
	*pos = tx->head;
	return 0;
}

static size_t switch_drain(struct exi_conn *c, const void **ret)
{
	struct shmp_tx *tx = &shmp_shared(c)->tx;

	return run_at(shmp_priv(c), tx, &tx->drain, &tx->drain_used, ret);
}

static size_t switch_runs(struct exi_conn *c, struct iovec *v, size_t n,
			  size_t most)
{
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	const void *run;
	size_t len = switch_drain(c, &run), i = 0;
	uint64_t pos = tx->drain, used = tx->drain_used;

	while (len && i < n && most) {
		len = len < most ? len : most;
		v[i++] = (struct iovec){ .iov_base = (void *)(uintptr_t)run,
					 .iov_len = len };
		most -= len;
		used += len;
		len = run_at(shmp_priv(c), tx, &pos, &used, &run);
	}
	return i;
}

static void switch_drained(struct exi_conn *c, size_t n)
{
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	const void *run;
	size_t len;

	while (n && (len = switch_drain(c, &run)) > 0) {
		if (len > n)
			len = n;
		tx->drain_used += len;
		n -= len;
	}
}

const struct exi_switch_ops shmp_switch_ops = {
	.head = switch_head,
	.start = switch_start,
	.cursor = switch_cursor,
	.takeback = switch_takeback,
	.drain = switch_drain,
	.runs = switch_runs,
	.drained = switch_drained,
};
