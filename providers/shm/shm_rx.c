/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving: records of the peer's ring are read. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

SHMP_RARE void shmp_publish_taken(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	uint64_t before = rx->published;
	uint32_t wait;

	rx->published = rx->pos;
	/* Release: pairs with shmp_refresh_limit(). */
	atomic_store_explicit(&p->mine->taken, rx->pos, memory_order_release);
	/* Read-modify-write: `taken` and it are stored before the load of
	 * space_wait, against request(). */
	atomic_fetch_add_explicit(&p->mine->taken_seq, 1, memory_order_seq_cst);
	exi_fence_after_rmw();
	wait = atomic_load_explicit(&p->theirs->space_wait,
				    memory_order_seq_cst);
	if (exi_unlikely(shmp_awaited(wait, before)))
		shmp_wake_peer(c, wait, &p->mine->taken_seq, 0);
}

/* The end of the word that follows a record of len bytes at rx->pos. */
static inline uint64_t record_end(const struct shmp_rx *rx, uint32_t len)
{
	return rx->pos + shmp_record_bytes(len) + SHMP_HEAD;
}

/* Makes sure that this many bytes of payload can be read, and the next word. */
static inline int admit(struct shmp_priv *p, struct shmp_rx *rx, uint32_t len)
{
	uint64_t end = record_end(rx, len);

	return exi_likely(end <= rx->there) ? 0
					    : shmp_segment_admit(p, rx, end);
}

SHMP_RARE int shmp_begin_at(struct shmp_priv *p, struct shmp_rx *rx,
			    uint64_t pos, uint32_t before, uint32_t bytes)
{
	struct shmp_rx to = *rx;
	int err;

	to.pos = to.grown_at = to.there = pos;
	to.before = before;
	to.bytes = bytes;
	err = shmp_segment_admit(p, &to, pos + SHMP_HEAD);
	if (err)
		return err;
	/* Senders look at `cpu` without the lock: only what changed is
	 * stored. */
	shmp_move_to(rx, pos);
	rx->grown_at = pos;
	rx->there = to.there;
	rx->before = before;
	rx->bytes = bytes;
	return 0;
}

/* Handles the record at pos, which is neither data nor empty. 0: look again. */
static int look_special(struct shmp_priv *p, struct shmp_rx *rx, uint32_t word)
{
	uint32_t len = word & SHMP_LEN_MASK;
	uint64_t at;

	switch (word >> SHMP_KIND_SHIFT) {
	case SHMP_END:
		if (len)
			return -EPROTO;
		rx->ended = 1;
		return 0;
	case SHMP_GROW:
		if (len > 31 || 1u << len <= rx->bytes ||
		    1u << len > p->in_bytes)
			return -EPROTO;
		if (shmp_segment_borrow(p, 1u << len))
			return -ENOBUFS;
		shmp_segment_note(p, rx);
		at = shmp_grown_at(rx->pos + shmp_record_bytes(0), rx->bytes,
				   1u << len);
		return shmp_begin_at(p, rx, at, rx->bytes, 1u << len);
	default:
		return -EPROTO;
	}
}

/* shmp_look(), where there may be something. */
static SHMP_RARE int look_on(struct shmp_priv *p, struct shmp_rx *rx)
{
	const struct shmp_record *r;
	uint32_t word, len;
	int err;

	while (!rx->len) {
		if (rx->ended)
			return 0;
		r = shmp_in(p, rx);
		/* Acquire: pairs with publish(). Copied once, checked, then
		 * used. */
		word = atomic_load_explicit(&r->word, memory_order_acquire);
		if (word == 0)
			return -EAGAIN;
		/* A word of the other lap is no record, as look_special()
		 * finds. */
		word ^= shmp_lap(rx->pos, rx->bytes);
		if (exi_unlikely(word >> SHMP_KIND_SHIFT != SHMP_DATA)) {
			err = look_special(p, rx, word);
			if (err)
				return err;
			continue;
		}
		len = word & SHMP_LEN_MASK;
		if (len == 0 || len > SHMP_PIECE_MAX ||
		    shmp_record_bytes(len) >
			    rx->bytes - ((uint32_t)rx->pos & (rx->bytes - 1)))
			return -EPROTO;
		err = admit(p, rx, len);
		if (err)
			return err;
		/* A hint that senders read without our lock. */
		__atomic_store_n(&rx->cpu, (int32_t)(r->made & SHMP_CPU_MASK),
				 __ATOMIC_RELAXED);
		rx->used = 0;
		rx->len = len;
	}
	return 1;
}

int shmp_look(struct shmp_priv *p, struct shmp_rx *rx)
{
	/* Most looks are before a sleep, and find nothing. */
	if (exi_likely(!(rx->len | rx->ended) &&
		       !atomic_load_explicit(&shmp_in(p, rx)->word,
					     memory_order_acquire)))
		return -EAGAIN;
	return look_on(p, rx);
}

size_t shmp_pass_all(struct shmp_priv *p, struct shmp_rx *rx)
{
	size_t bytes = 0, passed = 0;

	/* What lies further than the ring is this lap's tail. */
	while (passed < p->in_bytes && shmp_look(p, rx) > 0) {
		bytes += rx->len - rx->used;
		passed += shmp_record_bytes(rx->len);
		rx->pos += shmp_record_bytes(rx->len);
		rx->len = 0;
	}
	shmp_segment_note(p, rx);
	return bytes;
}

/* Copies up to len unread bytes, over several records, leaving them. */
static SHMP_RARE ssize_t peek(struct shmp_priv *p, const struct shmp_rx *at,
			      void *buf, size_t len)
{
	struct shmp_rx rx = *at;
	size_t done = 0, passed = 0;
	int ret = 0;

	/* What lies further than the ring is this lap's tail. */
	while (done < len && passed < p->in_bytes &&
	       (ret = shmp_look(p, &rx)) > 0) {
		size_t n = rx.len - rx.used;

		if (n > len - done)
			n = len - done;
		memcpy((char *)buf + done, shmp_unread(p, &rx), n);
		done += n;
		passed += shmp_record_bytes(rx.len);
		rx.pos += shmp_record_bytes(rx.len);
		rx.len = 0;
	}
	if (!len && (ret = shmp_look(p, &rx)) > 0)
		ret = 0;
	shmp_segment_note(p, &rx);
	return done ? (ssize_t)done : ret;
}

/* Whether the peer must learn what was taken. */
static inline bool tells(const struct shmp_rx *rx, uint64_t pos)
{
	return pos - rx->published >= rx->bytes / 4;
}

/* The record at pos was read. */
static inline void pass(struct exi_conn *c, uint32_t len)
{
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	shmp_move_to(rx, rx->pos + shmp_record_bytes(len));
	rx->len = 0;
	atomic_store_explicit(&shmp_priv(c)->mine->read, rx->pos,
			      memory_order_relaxed);
	/* A sender of whole messages counts those that were not taken. */
	if (tells(rx, rx->pos) || shmp_whole(c))
		shmp_publish_taken(c);
}

/* What follows what was done: no more than the ring has at once, although the
 * peer may write as fast as this reads. */
static SHMP_RARE ssize_t recv_large(struct exi_conn *c, void *buf, size_t len,
				    size_t done)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	uint64_t from = rx->pos;
	int ret = 0;

	if (exi_unlikely(tells(rx, rx->pos)))
		shmp_publish_taken(c);
	while (done < len && rx->pos - from < p->in_bytes &&
	       (ret = shmp_look(p, rx)) > 0) {
		size_t n = rx->len - rx->used;

		if (n > len - done)
			n = len - done;
		exi_copy((char *)buf + done, shmp_unread(p, rx), n);
		done += n;
		rx->used += (uint32_t)n;
		if (rx->used == rx->len)
			pass(c, rx->len);
	}
	if (exi_likely(done))
		return (ssize_t)done;
	if (!len && (ret = shmp_look(p, rx)) > 0)
		ret = 0;
	return ret;
}

ssize_t shmp_conn_recv(struct exi_conn *c, void *buf, size_t len, int flags)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	const struct shmp_record *r = shmp_in(p, rx);
	uint32_t n;
	uint64_t pos;

	if (exi_unlikely(flags & MSG_PEEK))
		return peek(p, rx, buf, len);
	/* The most frequent receive: one small record, wanted whole. It makes
	 * no call except at the end, so that no registers are saved for it. */
	n = rx->len;
	if (n == 0)
		n = shmp_small(r, rx);
	else if (rx->used)
		n = 0;
	if (exi_unlikely(!exi_copies(n) || n > len))
		return recv_large(c, buf, len, 0);
	__atomic_store_n(&rx->cpu, (int32_t)(r->made & SHMP_CPU_MASK),
			 __ATOMIC_RELAXED);
	exi_copy(buf, r->rest, n);
	pos = rx->pos + shmp_record_bytes(n);
	shmp_move_to(rx, pos);
	rx->len = 0;
	atomic_store_explicit(&p->mine->read, pos, memory_order_relaxed);
	return exi_likely(n == len && !tells(rx, pos))
		       ? (ssize_t)n
		       : recv_large(c, buf, len, n);
}

/* --- loans -------------------------------------------------------------- */

size_t shmp_loan_look(struct exi_conn *c, const void **ret)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	if (shmp_look(p, rx) <= 0)
		return 0;
	*ret = shmp_unread(p, rx);
	return rx->len - rx->used;
}

void shmp_loan_took(struct exi_conn *c, size_t n)
{
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	rx->used += (uint32_t)n;
	if (rx->used == rx->len)
		pass(c, rx->len);
}
