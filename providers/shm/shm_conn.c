/* SPDX-License-Identifier: BSD-2-Clause */
/* The data path: records in a ring, one cache line for a small message.
 *
 *	ring	| word,payload | word,payload | 0 |   free   | word,payload |
 *		  ^ rx.pos                      ^ tx.head      not yet taken
 *
 * The producer zeroes the word after a new record before it publishes the
 * record's own word, so the consumer polls one word, finds the payload in the
 * same line, and nothing needs clearing. The consumer says how far it is only
 * every quarter of the ring. Who pairs with whom is in the table of
 * docs/design/wire-shm.md, section 4. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/futex.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

/* A record that finds no room makes the ring larger when it is at least this
 * part of it: smaller ones are quicker where the ring stays warm. */
#define GROW_SHARE 64u
/* And then so many times as large. */
#define GROW_TIMES 16u

/* Room for less counts as none, see least_room(). */
#define LEAST_ROOM 2048

/* Copies of at least this go in blocks, and the lines of the ring that the next
 * block needs are asked for ahead: they lie in the other core's cache, and
 * fetched one by one they set the pace. */
#define FAR_MIN	  8192u
#define FAR_BLOCK 4096u

static inline __attribute__((always_inline)) void
copy_far(unsigned char *to, const unsigned char *from, size_t n, bool to_ring)
{
	size_t i;

	for (; n > FAR_BLOCK; n -= FAR_BLOCK) {
		for (i = FAR_BLOCK; i < 2 * FAR_BLOCK; i += 64) {
			if (to_ring)
				__builtin_prefetch(to + i, 1);
			else
				__builtin_prefetch(from + i, 0);
		}
		memcpy(to, from, FAR_BLOCK);
		to += FAR_BLOCK;
		from += FAR_BLOCK;
	}
	memcpy(to, from, n);
}

static inline void copy_out(unsigned char *ring, const void *from, size_t n)
{
	if (n < FAR_MIN)
		exi_copy(ring, from, n);
	else
		copy_far(ring, from, n, true);
}

static inline void copy_in(void *to, const unsigned char *ring, size_t n)
{
	if (n < FAR_MIN)
		exi_copy(to, ring, n);
	else
		copy_far(to, ring, n, false);
}

/* Out of line, so that what is frequent saves no registers for it. */
#define RARE __attribute__((noinline))

static uint32_t *plain(const _Atomic uint32_t *w)
{
	return (uint32_t *)(uintptr_t)w;
}

/* Position pos was just passed: wakes who waits for that. Who waits for a
 * later one is rung then; who waited for an earlier one was. */
static RARE void ring_peer(struct exi_conn *c, uint32_t wait, uint64_t pos,
			   const _Atomic uint32_t *word, uint64_t sleep)
{
	if ((wait & ~SHMP_WAIT_MASK) != SHMP_WAIT_AT(pos))
		return;
	if (wait & SHMP_WAIT_WORD) {
		exi_futex_wake(plain(word), INT_MAX);
		__atomic_fetch_add(c->bells, 1, __ATOMIC_RELAXED);
	}
	if (wait & SHMP_WAIT_BELL)
		atomic_fetch_add_explicit(&shmp_priv(c)->rang,
					  exi_conn_ring(c, sleep),
					  memory_order_relaxed);
}

/* --- sending ------------------------------------------------------------ */

/* Bytes of free ring, after looking at what the peer took, whether or not its pages
 * exist yet. */
static int64_t refresh_limit(struct shmp_tx *tx, struct shmp_priv *p)
{
	uint64_t end;
	/* Acquire: pairs with the release in publish_taken(). The peer's
	 * copies of what lies before are done. */
	uint64_t taken =
		atomic_load_explicit(&p->theirs->taken, memory_order_acquire);

	/* It cannot have taken what we did not write, nor a part of a record:
	 * a limit between two alignments would let a record pass it. What it
	 * says of a time before the last switch does not count. */
	if (taken > tx->head || taken % SHMP_ALIGN)
		return -EPROTO;
	if (taken > tx->taken)
		tx->taken = taken;
	if (exi_likely(tx->taken >= tx->grown_at))
		end = tx->taken + tx->bytes;
	else /* what was the ring before is still being read */
		end = tx->grown_at + tx->bytes - tx->before;
	tx->limit = end < tx->there ? end : tx->there;
	return (int64_t)(end - tx->head);
}

/* Records from head on are of another epoch. A reader loads the three in this order,
 * and takes epoch_before for what lies before epoch_at: so what it takes is right also
 * while they change. */
static RARE void begin_epoch(struct shmp_priv *p, struct shmp_tx *tx,
			     uint32_t epoch)
{
	atomic_store_explicit(&p->mine->epoch_before, tx->epoch,
			      memory_order_relaxed);
	/* Pair with the acquires in conn_first(). */
	atomic_store_explicit(&p->mine->epoch_at, tx->head,
			      memory_order_release);
	atomic_store_explicit(&p->mine->epoch, epoch, memory_order_release);
	tx->epoch = epoch;
}

/* The same of what its process had sent by the kernel. */
static RARE void sent_by_kernel(struct shmp_priv *p, struct shmp_tx *tx,
				uint64_t when)
{
	atomic_store_explicit(&p->mine->kernel_before, tx->kernel,
			      memory_order_relaxed);
	/* Pair with the acquires in by_kernel(). */
	atomic_store_explicit(&p->mine->kernel_at, tx->head,
			      memory_order_release);
	atomic_store_explicit(&p->mine->kernel, when, memory_order_release);
	tx->kernel = when;
}

static RARE uint64_t time_now(struct shmp_priv *p, struct shmp_tx *tx)
{
	uint64_t now = exi_ticks(),
		 sent = atomic_load_explicit(&exi_conn_sent,
					     memory_order_relaxed);

	if (exi_unlikely(shmp_epoch(now) != tx->epoch))
		begin_epoch(p, tx, shmp_epoch(now));
	if (exi_unlikely(sent != tx->kernel))
		sent_by_kernel(p, tx, sent);
	return now;
}

/* Of the record that is published next. To tell the time takes longer than all the
 * rest. */
static inline uint32_t made_now(struct shmp_priv *p, struct shmp_tx *tx)
{
	uint32_t timed =
		atomic_load_explicit(&p->theirs->timed, memory_order_relaxed);
	uint32_t rings =
		atomic_load_explicit(&exi_conn_rings, memory_order_relaxed) -
		atomic_load_explicit(&p->rang, memory_order_relaxed);

	return shmp_made(exi_unlikely(timed) ? time_now(p, tx) : 0, rings,
			 (uint32_t)exi_cpu());
}

/* Publishes r, the record at head. */
static inline __attribute__((always_inline)) void
publish(struct exi_conn *c, struct shmp_record *r, uint32_t kind, uint32_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint32_t wait;

	r->made = made_now(p, tx);
	/* Pairs with the acquire in look(): payload, made and the next zero
	 * before this word. The load of data_wait stays behind it, against
	 * request(): one sees the other. */
	exi_publish(&r->word, shmp_word(kind, len, tx->head, tx->bytes));
	wait = atomic_load_explicit(&p->theirs->data_wait,
				    memory_order_seq_cst);
	if (exi_unlikely(wait & SHMP_WAIT_MASK))
		ring_peer(c, wait, tx->head, &r->word,
			  atomic_load_explicit(&p->theirs->sleep,
					       memory_order_relaxed));
	tx->head += shmp_record_bytes(len);
}

/* So a short send goes whole or not at all, and records that several threads
 * write stay in one piece, as in the kernel's larger buffers. */
static int64_t least_room(const struct shmp_tx *tx)
{
	return tx->bytes / 8 < LEAST_ROOM ? tx->bytes / 8 : LEAST_ROOM;
}

/* Ends the ring after a record of len bytes at a position. */
static void zero_behind(struct shmp_priv *p, struct shmp_tx *tx, uint64_t pos,
			uint32_t len)
{
	struct shmp_record *next =
		shmp_out(p, tx, pos + shmp_record_bytes(len));

	atomic_store_explicit(&next->word, 0, memory_order_relaxed);
}

/* The same at head. */
static void zero_next(struct shmp_priv *p, struct shmp_tx *tx, uint32_t len)
{
	zero_behind(p, tx, tx->head, len);
}

static bool can_grow(const struct shmp_priv *p, const struct shmp_tx *tx)
{
	return tx->bytes < p->out_bytes && !p->small;
}

/* Nothing was taken since a record found no room: what nobody reads gets a
 * place, as in the kernel's buffers. */
static bool stalled(const struct shmp_tx *tx)
{
	return tx->full_at == tx->taken;
}

/* A larger ring from here on. Room for the record is always kept. Once the reader
 * is done with the ring before this one; to the whole also sooner, so that there
 * are never more than two before it in which something lies. */
static bool grow(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx, to;
	uint32_t bytes = p->out_bytes;
	uint64_t at;

	if (!can_grow(p, tx) || (tx->taken < tx->grown_at && !stalled(tx)))
		return false;
	if (!stalled(tx) && tx->bytes < bytes / GROW_TIMES)
		bytes = tx->bytes * GROW_TIMES;
	at = shmp_grown_at(tx->head + shmp_record_bytes(0), tx->bytes, bytes);
	to = *tx;
	to.grown_at = to.there = at;
	to.bytes = bytes;
	if (shmp_segment_grow(p, bytes) ||
	    shmp_segment_make(p, &to, at + SHMP_RESERVE)) {
		p->small = true;
		return false;
	}
	atomic_store_explicit(
		&((struct shmp_record *)(p->out + tx->bytes))->word, 0,
		memory_order_relaxed);
	publish(c, shmp_out(p, tx, tx->head), SHMP_GROW,
		(uint32_t)__builtin_ctz(bytes));
	tx->first = tx->before;
	tx->before_at = tx->grown_at;
	tx->before = tx->bytes;
	tx->bytes = bytes;
	tx->head = tx->grown_at = tx->limit = at;
	tx->there = to.there;
	return true;
}

/* What most sends are: one small record, and room for it is known. */
static inline bool send_small(struct exi_conn *c, const void *buf, size_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint32_t mask = tx->bytes - 1; /* head is never before a growth */
	uint32_t at = (uint32_t)tx->head & mask;
	uint32_t bytes = shmp_record_bytes((uint32_t)len);
	struct shmp_record *r, *next;

	if (len == 0 || len >= SHMP_LARGE || at + bytes > mask + 1 ||
	    (int64_t)(tx->limit - tx->head) < (int64_t)(bytes + SHMP_RESERVE))
		return false;
	next = (struct shmp_record *)(p->out + ((at + bytes) & mask));
	atomic_store_explicit(&next->word, 0, memory_order_relaxed);
	r = (struct shmp_record *)(p->out + at);
	exi_copy(r->rest, buf, len);
	publish(c, r, SHMP_DATA, (uint32_t)len);
	return true;
}

/* There is room for what takes so many bytes of the ring: makes their pages. n, or
 * -ENOBUFS. */
static inline ssize_t on_pages(struct shmp_priv *p, struct shmp_tx *tx,
			       int64_t need, uint32_t n)
{
	uint64_t end = tx->head + (uint64_t)need + SHMP_RESERVE;
	int err;

	if (exi_likely(end <= tx->there))
		return n;
	err = shmp_segment_make(p, tx, end);
	if (err)
		return err;
	return refresh_limit(tx, p) < 0 ? -EPROTO : n;
}

/* The payload of the next record, for up to len bytes: how many; 0: there is no
 * room. -ENOBUFS: nor memory for it. */
static ssize_t find_room(struct exi_conn *c, size_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;

	for (;;) {
		int64_t room = (int64_t)(tx->limit - tx->head) - SHMP_RESERVE;
		uint32_t bytes = tx->bytes;
		uint32_t offset = (uint32_t)tx->head & (bytes - 1);
		uint32_t fits = shmp_fits(bytes - offset);
		/* In pieces, so that the reader's copy overlaps ours. */
		uint32_t n =
			len > SHMP_PIECE_MAX ? SHMP_PIECE_MAX : (uint32_t)len;
		int64_t need = shmp_record_bytes(n);

		if (n > fits) { /* the rest lies at the ring's beginning */
			need = shmp_record_bytes(fits);
			if (n <= least_room(tx))
				need += shmp_record_bytes(n - fits);
			n = fits;
		}
		if (room >= need)
			return n;
		room = refresh_limit(tx, p);
		if (room < 0)
			return -EPROTO;
		room -= SHMP_RESERVE;
		if (room >= need)
			return on_pages(p, tx, need, n);
		if ((n >= tx->bytes / GROW_SHARE || stalled(tx)) && grow(c))
			continue;
		if (room >= least_room(tx)) {
			fits = shmp_fits((uint32_t)room);
			n = n < fits ? n : fits;
			return on_pages(p, tx, shmp_record_bytes(n), n);
		}
		tx->full_at = tx->taken;
		return 0;
	}
}

/* There was no room; again: nor any sooner. */
static int no_room(struct shmp_priv *p, bool again)
{
	if (!p->small || p->gave_up || !again)
		return -EAGAIN;
	p->gave_up = true;
	return -ENOBUFS;
}

/* What find_room() said, which is no room: -ENOBUFS once. */
static ssize_t failed(struct shmp_priv *p, ssize_t err)
{
	if (err != -ENOBUFS || !p->starved) {
		p->starved = p->starved || err == -ENOBUFS;
		return err;
	}
	return -EAGAIN;
}

/* A small send that the ring's end parts after n bytes, and there is room for
 * both: who reads the first part finds the other. */
static bool is_parted(struct shmp_tx *tx, uint32_t n, size_t len)
{
	uint64_t end = tx->head + shmp_record_bytes(n);

	return n < len && len <= least_room(tx) && !(end & (tx->bytes - 1)) &&
	       (int64_t)(tx->limit - end) >=
		       (int64_t)shmp_record_bytes((uint32_t)len - n) +
			       SHMP_RESERVE;
}

/* The second part first: nobody looks at it before the first one's word is
 * there, whose store releases it. */
static void send_parted(struct exi_conn *c, const unsigned char *buf,
			uint32_t n, uint32_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint64_t at = tx->head + shmp_record_bytes(n);
	struct shmp_record *r = shmp_out(p, tx, at);
	uint32_t rest = len - n;

	zero_behind(p, tx, at, rest);
	copy_out(shmp_payload(r, rest), buf + n, rest);
	r->made = made_now(p, tx);
	atomic_store_explicit(&r->word,
			      shmp_word(SHMP_DATA, rest, at, tx->bytes),
			      memory_order_relaxed);
	r = shmp_out(p, tx, tx->head);
	copy_out(shmp_payload(r, n), buf, n);
	publish(c, r, SHMP_DATA, n);
	tx->head += shmp_record_bytes(rest);
}

static RARE ssize_t send_large(struct exi_conn *c, const void *buf, size_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	bool again = stalled(tx);
	size_t done = 0;

	while (done < len) {
		ssize_t n = find_room(c, len - done);
		struct shmp_record *r;

		if (n < 0 && (!done || n != -ENOBUFS))
			return failed(p, n);
		if (n <= 0)
			break;
		if (!done && is_parted(tx, (uint32_t)n, len)) {
			send_parted(c, buf, (uint32_t)n, (uint32_t)len);
			return (ssize_t)len;
		}
		zero_next(p, tx, (uint32_t)n);
		r = shmp_out(p, tx, tx->head);
		copy_out(shmp_payload(r, (uint32_t)n), (const char *)buf + done,
			 (size_t)n);
		publish(c, r, SHMP_DATA, (uint32_t)n);
		done += (size_t)n;
	}
	return exi_likely(done || !len) ? (ssize_t)done : no_room(p, again);
}

static ssize_t conn_send(struct exi_conn *c, const void *buf, size_t len,
			 int flags)
{
	return exi_likely(send_small(c, buf, len)) ? (ssize_t)len
						   : send_large(c, buf, len);
}

static int conn_end(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;

	if (tx->ended)
		return 0;
	tx->ended = 1;
	zero_next(p, tx, 0);
	publish(c, shmp_out(p, tx, tx->head), SHMP_END, 0);
	return 0;
}

/* --- receiving ---------------------------------------------------------- */

static RARE void publish_taken(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	uint64_t before = rx->published;
	uint32_t wait;

	rx->published = rx->pos;
	/* Release: pairs with refresh_limit(). */
	atomic_store_explicit(&p->mine->taken, rx->pos, memory_order_release);
	/* Read-modify-write: before the load of space_wait, against
	 * arm_tx(). */
	atomic_fetch_add_explicit(&p->mine->taken_seq, 1, memory_order_seq_cst);
	wait = atomic_load_explicit(&p->theirs->space_wait,
				    memory_order_seq_cst);
	if (exi_unlikely(wait & SHMP_WAIT_MASK))
		ring_peer(c, wait, before, &p->mine->taken_seq, 0);
}

/* Where the word ends that follows a record of len bytes at pos. */
static inline uint64_t record_end(const struct shmp_rx *rx, uint32_t len)
{
	return rx->pos + shmp_record_bytes(len) + SHMP_HEAD;
}

/* So many bytes of payload can be read, and the next word. */
static inline int admit(const struct shmp_priv *p, struct shmp_rx *rx,
			uint32_t len)
{
	uint64_t end = record_end(rx, len);

	return exi_likely(end <= rx->there) ? 0
					    : shmp_segment_admit(p, rx, end);
}

/* Reading goes on at another position, in a ring of other size. The word there
 * can be read. */
static RARE int begin_at(struct shmp_priv *p, struct shmp_rx *rx, uint64_t pos,
			 uint32_t before, uint32_t bytes)
{
	struct shmp_rx to = *rx;
	int err;

	to.pos = to.grown_at = to.there = pos;
	to.before = before;
	to.bytes = bytes;
	err = shmp_segment_admit(p, &to, pos + SHMP_HEAD);
	if (err)
		return err;
	/* Senders look at `cpu` without the lock: only what changed is stored. */
	rx->pos = pos;
	rx->grown_at = pos;
	rx->there = to.there;
	rx->before = before;
	rx->bytes = bytes;
	return 0;
}

/* The record at pos, when it is neither data nor nothing. 0: look again. */
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
		at = shmp_grown_at(rx->pos + shmp_record_bytes(0), rx->bytes,
				   1u << len);
		return begin_at(p, rx, at, rx->bytes, 1u << len);
	default:
		return -EPROTO;
	}
}

/* 1: a record with unread bytes is open. 0: the end. -EAGAIN, -EPROTO. */
static int look(struct shmp_priv *p, struct shmp_rx *rx)
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
		/* One of the other lap is none, look_special() says. */
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

/* Moves a copy of the reader's state behind all that is there now; how many
 * bytes that is. */
static size_t pass_all(struct shmp_priv *p, struct shmp_rx *rx)
{
	size_t bytes = 0, passed = 0;

	/* What lies further than the ring is this lap's tail. */
	while (passed < p->in_bytes && look(p, rx) > 0) {
		bytes += rx->len - rx->used;
		passed += shmp_record_bytes(rx->len);
		rx->pos += shmp_record_bytes(rx->len);
		rx->len = 0;
	}
	return bytes;
}

/* Copies up to len unread bytes, over several records, leaving them. */
static RARE ssize_t peek(struct shmp_priv *p, const struct shmp_rx *at,
			 void *buf, size_t len)
{
	struct shmp_rx rx = *at;
	size_t done = 0, passed = 0;
	int ret = 0;

	/* What lies further than the ring is this lap's tail. */
	while (done < len && passed < p->in_bytes && (ret = look(p, &rx)) > 0) {
		size_t n = rx.len - rx.used;

		if (n > len - done)
			n = len - done;
		memcpy((char *)buf + done, shmp_unread(p, &rx), n);
		done += n;
		passed += shmp_record_bytes(rx.len);
		rx.pos += shmp_record_bytes(rx.len);
		rx.len = 0;
	}
	if (!len && (ret = look(p, &rx)) > 0)
		ret = 0;
	return done ? (ssize_t)done : ret;
}

/* The record at pos was read. */
static inline void pass(struct exi_conn *c, uint32_t len)
{
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	rx->pos += shmp_record_bytes(len);
	rx->len = 0;
	atomic_store_explicit(&shmp_priv(c)->mine->read, rx->pos,
			      memory_order_relaxed);
	if (rx->pos - rx->published >= rx->bytes / 4)
		publish_taken(c);
}

/* What most receives are: one small record, wanted whole. 0: anything else. */
static inline size_t recv_small(struct exi_conn *c, void *buf, size_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	uint32_t bytes = rx->bytes;
	uint32_t at = (uint32_t)rx->pos & (bytes - 1);
	const struct shmp_record *r = (const void *)(p->in + at);
	/* As in look(). */
	uint32_t word = atomic_load_explicit(&r->word, memory_order_acquire) ^
			shmp_lap(rx->pos, bytes);
	uint32_t n = word & SHMP_LEN_MASK;

	if (word >> SHMP_KIND_SHIFT != SHMP_DATA || n == 0 || n > len ||
	    n >= SHMP_LARGE || shmp_record_bytes(n) > bytes - at ||
	    record_end(rx, n) > rx->there || (rx->len | rx->ended))
		return 0;
	__atomic_store_n(&rx->cpu, (int32_t)(r->made & SHMP_CPU_MASK),
			 __ATOMIC_RELAXED);
	exi_copy(buf, r->rest, n);
	pass(c, n);
	return n;
}

/* What follows what was done. */
static RARE ssize_t recv_large(struct exi_conn *c, void *buf, size_t len,
			       size_t done)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	int ret = 0;

	while (done < len && (ret = look(p, rx)) > 0) {
		size_t n = rx->len - rx->used;

		if (n > len - done)
			n = len - done;
		copy_in((char *)buf + done, shmp_unread(p, rx), n);
		done += n;
		rx->used += (uint32_t)n;
		if (rx->used == rx->len)
			pass(c, rx->len);
	}
	if (exi_likely(done))
		return (ssize_t)done;
	if (!len && (ret = look(p, rx)) > 0)
		ret = 0;
	return ret;
}

static ssize_t conn_recv(struct exi_conn *c, void *buf, size_t len, int flags)
{
	size_t done;

	if (exi_unlikely(flags & MSG_PEEK))
		return peek(shmp_priv(c), &shmp_shared(c)->rx, buf, len);
	done = recv_small(c, buf, len);
	return exi_likely(done && done == len) ? (ssize_t)done
					       : recv_large(c, buf, len, done);
}

/* --- loans -------------------------------------------------------------- */

static size_t loan_look(struct exi_conn *c, const void **ret)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	if (look(p, rx) <= 0)
		return 0;
	*ret = shmp_unread(p, rx);
	return rx->len - rx->used;
}

static void loan_took(struct exi_conn *c, size_t n)
{
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	rx->used += (uint32_t)n;
	if (rx->used == rx->len)
		pass(c, rx->len);
}

/* The next record's, as if it had all these bytes. The ring stays as it is. */
static ssize_t loan_room(struct exi_conn *c, size_t len, void **ret)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	bool again = stalled(tx);
	ssize_t n = find_room(c, len);

	if (n <= 0)
		return n ? failed(p, n) : no_room(p, again);
	p->loaned = (uint32_t)n;
	*ret = shmp_payload(shmp_out(p, tx, tx->head), p->loaned);
	return n;
}

static void loan_put(struct exi_conn *c, size_t n)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	struct shmp_record *r = shmp_out(p, tx, tx->head);
	uint32_t len = (uint32_t)n;

	/* The head of fewer bytes may be shorter. */
	if (shmp_head_bytes(len) != shmp_head_bytes(p->loaned))
		memmove(shmp_payload(r, len), shmp_payload(r, p->loaned), n);
	zero_next(p, tx, len);
	publish(c, r, SHMP_DATA, len);
}

/* --- waiting ------------------------------------------------------------ */

static bool readable(struct shmp_priv *p, struct shmp_rx *rx)
{
	return look(p, rx) != -EAGAIN;
}

/* Where there is room for more than a little, as in the kernel's buffers: programs
 * that write some KB when they are told so, and would wait, may be waited for by
 * their peer. Also where the ring can grow, or is to be left: who asks before each
 * send never finds that there is no room, so the question counts as that. */
static bool writable(struct shmp_priv *p, struct shmp_tx *tx)
{
	int64_t room = refresh_limit(tx, p);

	/* It goes to TCP. */
	if (exi_unlikely(p->starved) && room >= 0)
		return false;
	/* Sleepers are woken for a quarter of the ring. */
	if (exi_likely(room - (int64_t)SHMP_RESERVE >= tx->bytes / 8))
		return true;
	if (!can_grow(p, tx) && (!p->small || p->gave_up))
		return false;
	tx->full_at = tx->taken;
	return true;
}

/* Asks to be rung when pos is passed; keeps other requests for it. */
static void request(_Atomic uint32_t *word, uint64_t pos, uint32_t bits)
{
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

	if ((now & ~SHMP_WAIT_MASK) == SHMP_WAIT_AT(pos))
		bits |= now & SHMP_WAIT_MASK;
	/* Read-modify-write: before the look that follows. Pairs with
	 * publish() and the add in publish_taken(). */
	atomic_exchange_explicit(word, SHMP_WAIT_AT(pos) | bits,
				 memory_order_seq_cst);
}

/* 0: the peer rings when it takes something, from what it has taken now. */
static int request_space(struct shmp_priv *p, struct shmp_tx *tx, uint32_t bits)
{
	uint64_t taken;

	do {
		if (writable(p, tx))
			return -EBUSY;
		taken = tx->taken;
		request(&p->mine->space_wait, taken, bits);
		if (writable(p, tx))
			return -EBUSY;
	} while (taken != tx->taken);
	return 0;
}

/* Before the request that it is of. A bell that was asked for without a sleep
 * is for somebody else, too. */
static void name_sleep(struct exi_conn *c, uint64_t pos)
{
	struct shmp_segment *mine = shmp_priv(c)->mine;
	uint32_t now =
		atomic_load_explicit(&mine->data_wait, memory_order_relaxed);
	bool others = (now & SHMP_WAIT_BELL) &&
		      (now & ~SHMP_WAIT_MASK) == SHMP_WAIT_AT(pos) &&
		      !atomic_load_explicit(&mine->sleep, memory_order_relaxed);

	atomic_store_explicit(&mine->sleep, others ? 0 : c->sleep,
			      memory_order_relaxed);
}

static int request_data(struct exi_conn *c, uint32_t bits)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	uint64_t pos;

	do {
		if (readable(p, rx))
			return -EBUSY;
		/* The peer may wait for the rest of what we took. */
		if (rx->published != rx->pos)
			publish_taken(c);
		pos = rx->pos;
		if (bits & SHMP_WAIT_BELL)
			name_sleep(c, pos);
		request(&p->mine->data_wait, pos, bits);
		if (readable(p, rx))
			return -EBUSY;
		/* A GROW came just then: the next record is elsewhere. */
	} while (pos != rx->pos);
	return 0;
}

/* What comes after all that is there. -EBUSY: something came just now. */
static int request_next(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx, end;
	uint64_t pos;

	if (rx->published != rx->pos) /* as in request_data() */
		publish_taken(c);
	end = *rx;
	do {
		pass_all(p, &end);
		if (end.ended)
			return 0;
		pos = end.pos;
		name_sleep(c, pos);
		request(&p->mine->data_wait, pos, SHMP_WAIT_BELL);
		if (look(p, &end) != -EAGAIN)
			return -EBUSY;
	} while (pos != end.pos); /* as in request_data() */
	return 0;
}

static int conn_arm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	struct shmp_shared *s = shmp_shared(c);
	uint32_t bits = how == EXI_WAKE_WORD ? SHMP_WAIT_WORD : SHMP_WAIT_BELL;
	int ret;

	if (how == EXI_WAKE_NEXT)
		return request_next(c);
	ret = dir == EXI_RX ? request_data(c, bits)
			    : request_space(shmp_priv(c), &s->tx, bits);

	/* A request that is left behind costs at most one needless ring. */
	if (ret == 0 && how == EXI_WAKE_WORD)
		++*(dir == EXI_RX ? &s->rx.sleepers : &s->tx.sleepers);
	return ret;
}

static void conn_disarm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_shared *s = shmp_shared(c);
	uint32_t *sleepers = dir == EXI_RX ? &s->rx.sleepers : &s->tx.sleepers;
	_Atomic uint32_t *word =
		dir == EXI_RX ? &p->mine->data_wait : &p->mine->space_wait;

	if (how != EXI_WAKE_WORD)
		atomic_fetch_and_explicit(word, ~SHMP_WAIT_BELL,
					  memory_order_relaxed);
	else if (*sleepers && --*sleepers == 0)
		atomic_fetch_and_explicit(word, ~SHMP_WAIT_WORD,
					  memory_order_relaxed);
}

static int conn_word(struct exi_conn *c, enum exi_dir dir, struct exi_word *ret)
{
	struct shmp_priv *p = shmp_priv(c);

	if (dir == EXI_RX) {
		ret->addr = plain(&shmp_in(p, &shmp_shared(c)->rx)->word);
		ret->value = 0;
	} else {
		ret->addr = plain(&p->theirs->taken_seq);
		ret->value = atomic_load_explicit(&p->theirs->taken_seq,
						  memory_order_relaxed);
	}
	return 0;
}

static bool conn_ready(struct exi_conn *c, enum exi_dir dir)
{
	struct shmp_shared *s = shmp_shared(c);

	return dir == EXI_RX ? readable(shmp_priv(c), &s->rx)
			     : writable(shmp_priv(c), &s->tx);
}

static bool conn_over(struct exi_conn *c)
{
	struct shmp_rx rx = shmp_shared(c)->rx;

	pass_all(shmp_priv(c), &rx);
	return rx.ended;
}

static size_t conn_unread(struct exi_conn *c)
{
	struct shmp_rx rx = shmp_shared(c)->rx;

	return pass_all(shmp_priv(c), &rx);
}

/* The sender's sum, of what we took. Where its ring can grow it does so, or it
 * leaves it. */
static bool conn_full(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx, end = *rx;
	uint64_t limit = rx->pos;

	if (rx->published != rx->pos)
		publish_taken(c);
	pass_all(p, &end);
	if (rx->pos < end.grown_at)
		limit = end.grown_at - end.before;
	return end.bytes == p->in_bytes &&
	       (int64_t)(limit + end.bytes - end.pos) <= end.bytes / 4;
}

/* Its kernel has told us that it is no more, so what it wrote is there. What
 * it says of a time before the last switch does not count. */
static bool conn_left_unread(struct exi_conn *c)
{
	const struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint64_t end = tx->head - (tx->ended ? shmp_record_bytes(0) : 0);
	uint64_t read = atomic_load_explicit(&shmp_priv(c)->theirs->read,
					     memory_order_relaxed);

	return read < end && tx->taken < end;
}

static int conn_peer_cpu(struct exi_conn *c)
{
	int cpu = __atomic_load_n(&shmp_shared(c)->rx.cpu, __ATOMIC_RELAXED);

	/* The same number as this thread's CPU if the low bits are. */
	return cpu < 0 ? cpu : (exi_cpu() & ~(int)SHMP_CPU_MASK) | cpu;
}

/* When the peer's process had sent something by the kernel, before the record at pos. */
static uint64_t by_kernel(const struct shmp_segment *theirs, uint64_t pos)
{
	/* Pair with the releases in sent_by_kernel(). */
	uint64_t ret =
		atomic_load_explicit(&theirs->kernel, memory_order_acquire);
	uint64_t at =
		atomic_load_explicit(&theirs->kernel_at, memory_order_acquire);

	return pos < at ? atomic_load_explicit(&theirs->kernel_before,
					       memory_order_relaxed)
			: ret;
}

static void conn_first(struct exi_conn *c, uint64_t now, struct exi_first *ret)
{
	const struct shmp_segment *theirs = shmp_priv(c)->theirs;
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	uint32_t made, epoch;
	uint64_t at;

	*ret = (struct exi_first){ 0 };
	if (look(shmp_priv(c), rx) < 0)
		return;
	made = __atomic_load_n(&shmp_in(shmp_priv(c), rx)->made,
			       __ATOMIC_RELAXED);
	ret->rings = (made >> SHMP_RINGS_SHIFT & SHMP_RINGS_MASK) + 1;
	if (!(made >> SHMP_TIME_SHIFT))
		return;
	/* Pair with the releases in begin_epoch(). */
	epoch = atomic_load_explicit(&theirs->epoch, memory_order_acquire);
	at = atomic_load_explicit(&theirs->epoch_at, memory_order_acquire);
	if (rx->pos < at)
		epoch = atomic_load_explicit(&theirs->epoch_before,
					     memory_order_relaxed);
	if (epoch)
		ret->sent = shmp_made_at(made, epoch, now);
	ret->kernel = by_kernel(theirs, rx->pos);
}

static void conn_want_times(struct exi_conn *c)
{
	atomic_store_explicit(&shmp_priv(c)->mine->timed, 1,
			      memory_order_relaxed);
}

/* --- switching ---------------------------------------------------------- */

/* What lies in the ring is nobody's, and it is small again. */
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
	if (begin_at(p, rx, head, p->in_start, p->in_start))
		return -EPROTO;
	rx->len = 0;
	rx->used = 0;
	publish_taken(c);
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

	if (pos > tx->head || tx->head - pos > span(p->out_bytes) ||
	    pos % SHMP_ALIGN || used > SHMP_LEN_MASK ||
	    (used && pos == tx->head))
		return -EPROTO;
	tx->drain = pos;
	tx->drain_used = used;
	return 0;
}

static size_t switch_drain(struct exi_conn *c, const void **ret)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;

	while (tx->drain < tx->head) {
		struct shmp_record *r = shmp_out(p, tx, tx->drain);
		uint32_t bytes = shmp_out_bytes(tx, tx->drain);
		uint32_t offset = (uint32_t)tx->drain & (bytes - 1);
		uint32_t word =
			atomic_load_explicit(&r->word, memory_order_relaxed) &
			~SHMP_LAP;
		uint32_t len = word & SHMP_LEN_MASK;

		if (word >> SHMP_KIND_SHIFT == SHMP_GROW &&
		    tx->drain < tx->grown_at) {
			tx->drain = tx->drain < tx->before_at ? tx->before_at
							      : tx->grown_at;
			continue;
		}
		/* Our own memory, but the peer chose where to begin. */
		if (shmp_record_bytes(len) > bytes - offset) {
			tx->drain = tx->head;
			break;
		}
		if (tx->drain_used < len) {
			*ret = shmp_payload(r, len) + tx->drain_used;
			return len - tx->drain_used;
		}
		tx->drain += shmp_record_bytes(len);
		tx->drain_used = 0;
	}
	/* Empty: the receiver starts at head next time, so all is free. */
	tx->drain = tx->head;
	return 0;
}

static void switch_drained(struct exi_conn *c, size_t n)
{
	shmp_shared(c)->tx.drain_used += n;
}

/* --- the table ---------------------------------------------------------- */

static int post(struct exi_conn *c, struct exi_xfer *x)
{
	return -EOPNOTSUPP;
}

static void cancel(struct exi_conn *c, struct exi_xfer *x)
{
}

static void conn_close(struct exi_conn *c)
{
}

static void conn_stop(struct exi_conn *c)
{
}

static void conn_fini(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);

	shmp_segment_unmap(p);
	memset(p, 0, sizeof(*p));
}

const struct exi_conn_ops shmp_conn_ops = {
	.priv_size = sizeof(struct shmp_priv),
	.shared_size = sizeof(struct shmp_shared),
	.send = conn_send,
	.recv = conn_recv,
	.end = conn_end,
	.post_send = post,
	.post_recv = post,
	.cancel = cancel,
	.arm = conn_arm,
	.disarm = conn_disarm,
	.word = conn_word,
	.ready = conn_ready,
	.unread = conn_unread,
	.full = conn_full,
	.over = conn_over,
	.left_unread = conn_left_unread,
	.peer_cpu = conn_peer_cpu,
	.first = conn_first,
	.want_times = conn_want_times,
	.close = conn_close,
	.stop = conn_stop,
	.fini = conn_fini,
};

const struct exi_switch_ops shmp_switch_ops = {
	.head = switch_head,
	.start = switch_start,
	.cursor = switch_cursor,
	.takeback = switch_takeback,
	.drain = switch_drain,
	.drained = switch_drained,
};

const struct exi_loan_ops shmp_loan_ops = {
	.look = loan_look,
	.took = loan_took,
	.room = loan_room,
	.put = loan_put,
};
