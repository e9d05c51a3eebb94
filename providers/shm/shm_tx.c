/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending: records are put into the ring. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <string.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

/* A record that finds no room makes the ring larger when it is at least this
 * part of it: smaller ones are quicker where the ring stays warm. */
#define GROW_SHARE 64u
/* GROW_TIMES is how many times larger the ring is made. */
#define GROW_TIMES 16u

/* A long send goes in pieces of this, so that the reader's copy overlaps the
 * sender's. The words of smaller ones take longer than the overlap saves. */
#define PIECE 24576u

#define SHMP_LINE 64u
/* Payload that is sent with its first line last, and what is asked for ahead:
 * more of it waits for itself. */
#define SHMP_LINES_MAX 4096u
#define SHMP_AHEAD_MAX 2048u

/* Room for less counts as none, see least_room(). */
#define LEAST_ROOM 2048

int64_t shmp_refresh_limit(struct shmp_tx *tx, struct shmp_priv *p)
{
	uint64_t end;
	/* Acquire: pairs with the release in shmp_publish_taken(). The peer's
	 * copies of what lies before are done. */
	uint64_t taken =
		atomic_load_explicit(&p->theirs->taken, memory_order_acquire);

	exi_cpu_refresh(); /* where the kernel would have to be asked */
	/* The peer cannot have taken what we did not write, nor a part of a
	 * record: a limit between two alignments would let a record pass it.
	 * What the peer published before the last switch does not count. */
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

/* Records from head on are of another epoch. A reader loads the three in this
 * order, and takes epoch_before for what lies before epoch_at: so what it takes
 * is right also while they change. */
static SHMP_RARE void begin_epoch(struct shmp_priv *p, struct shmp_tx *tx,
				  uint32_t epoch)
{
	atomic_store_explicit(&p->mine->epoch_before, tx->epoch,
			      memory_order_relaxed);
	/* Pair with the acquires in shmp_conn_first(). */
	atomic_store_explicit(&p->mine->epoch_at, tx->head,
			      memory_order_release);
	atomic_store_explicit(&p->mine->epoch, epoch, memory_order_release);
	tx->epoch = epoch;
}

/* Publishes in the segment when this process had sent something through the
 * kernel. */
static SHMP_RARE void sent_by_kernel(struct shmp_priv *p, struct shmp_tx *tx,
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

/* The time of this thread's next send: a unit or more after its send before, on
 * any connection. A processor reads its clock early, and two sends in a row may
 * read the same. The first unit of an epoch would mean that there is no time. A
 * clock that was set back by more than AHEAD counts. */
#define AHEAD 4096

static inline uint64_t later_than_before(uint64_t now)
{
	static _Thread_local uint64_t before;

	if (exi_unlikely(now + AHEAD - before < AHEAD + SHMP_UNIT))
		now = before + SHMP_UNIT;
	if (exi_unlikely(!shmp_made(now, 0, 0)))
		now += SHMP_UNIT;
	return before = now;
}

static SHMP_RARE uint64_t time_now(struct shmp_priv *p, struct shmp_tx *tx)
{
	uint64_t now = later_than_before(exi_ticks()),
		 sent = atomic_load_explicit(&exi_conn_sent,
					     memory_order_relaxed);

	if (exi_unlikely(shmp_epoch(now) != tx->epoch))
		begin_epoch(p, tx, shmp_epoch(now));
	if (exi_unlikely(sent != tx->kernel))
		sent_by_kernel(p, tx, sent);
	return now;
}

/* Rings that this process has sent for other connections. */
static inline uint32_t rings_now(struct shmp_priv *p)
{
	return atomic_load_explicit(&exi_conn_wakes, memory_order_relaxed) -
	       atomic_load_explicit(&p->rang, memory_order_relaxed);
}

/* The `made` of the record that is published next. Reading the clock takes
 * longer than all the rest. */
static inline uint32_t made_now(struct shmp_priv *p, struct shmp_tx *tx)
{
	uint32_t timed =
		atomic_load_explicit(&p->theirs->timed, memory_order_relaxed);

	return shmp_made(exi_unlikely(timed) ? time_now(p, tx) : 0,
			 rings_now(p), exi_cpu_lately());
}

/* Publishes r, the record at head. */
static inline __attribute__((always_inline)) void
publish(struct exi_conn *c, struct shmp_record *r, uint32_t kind, uint32_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint32_t wait;

	r->made = made_now(p, tx);
	/* Pairs with the acquire in shmp_look(): payload, made and the next
	 * zero before this word. The load of data_wait stays behind it, against
	 * request(): one sees the other. */
	exi_publish(&r->word, shmp_word(kind, len, tx->head, tx->bytes));
	wait = atomic_load_explicit(&p->theirs->data_wait,
				    memory_order_seq_cst);
	if (exi_unlikely(shmp_awaited(wait, tx->head)))
		shmp_wake_peer(c, wait, &r->word,
			       atomic_load_explicit(&p->theirs->sleep,
						    memory_order_relaxed));
	tx->head += shmp_record_bytes(len);
}

/* The least room that counts: a short send goes whole or not at all, and
 * records that several threads write stay in one piece, as in the kernel's
 * larger buffers. */
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

/* Ends the ring after a record of len bytes at head. */
static void zero_next(struct shmp_priv *p, struct shmp_tx *tx, uint32_t len)
{
	zero_behind(p, tx, tx->head, len);
}

bool shmp_can_grow(const struct shmp_priv *p, const struct shmp_tx *tx)
{
	return tx->bytes < p->out_bytes && !p->small;
}

/* Whether nothing was taken since a record found no room: unread bytes get a
 * place, as in the kernel's buffers. */
static bool stalled(const struct shmp_tx *tx)
{
	return tx->full_at == tx->taken;
}

/* A larger ring from here on. Room for the record is always kept. It grows once
 * the reader is done with the ring before this one; to the whole ring also
 * sooner, so that never more than two rings before it still have records. */
static bool grow(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx, to;
	uint32_t bytes = p->out_bytes;
	uint64_t at;

	if (!shmp_can_grow(p, tx) || (tx->taken < tx->grown_at && !stalled(tx)))
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

/* One small record, and room for it is known. */
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

/* There is room for what takes so many bytes of the ring: makes their pages. n,
 * or -ENOBUFS. */
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
	return shmp_refresh_limit(tx, p) < 0 ? -EPROTO : (ssize_t)n;
}

/* Room for less than least_room() counts as none, and yet has a short send: a
 * record of a long one is to leave none such. */
static inline bool leaves_scrap(const struct shmp_tx *tx, int64_t left,
				bool more)
{
	return more && left < least_room(tx);
}

static inline uint32_t smaller(size_t a, uint32_t b)
{
	return a < b ? (uint32_t)a : b;
}

/* The payload of the next record, for up to len bytes, and no more than most:
 * returns how many; 0: there is no room. -ENOBUFS: there is no memory for
 * it. */
static ssize_t find_room(struct exi_conn *c, size_t len, uint32_t most)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;

	for (;;) {
		int64_t room = (int64_t)(tx->limit - tx->head) - SHMP_RESERVE;
		uint32_t bytes = tx->bytes;
		uint32_t offset = (uint32_t)tx->head & (bytes - 1);
		uint32_t fits = shmp_fits(bytes - offset);
		uint32_t n = len > most ? most : (uint32_t)len;
		uint32_t whole =
			len > SHMP_PIECE_MAX ? SHMP_PIECE_MAX : (uint32_t)len;
		int64_t need = shmp_record_bytes(n);

		if (n > fits) { /* the rest lies at the ring's beginning */
			need = shmp_record_bytes(fits);
			if (n <= least_room(tx))
				need += shmp_record_bytes(n - fits);
			n = fits;
		}
		if (room >= need && !leaves_scrap(tx, room - need, len > n))
			return n;
		room = shmp_refresh_limit(tx, p);
		if (room < 0)
			return -EPROTO;
		room -= SHMP_RESERVE;
		if (room >= need && leaves_scrap(tx, room - need, len > n)) {
			fits = smaller(fits, shmp_fits((uint32_t)room));
			n = smaller(len, smaller(fits, SHMP_PIECE_MAX));
			need = shmp_record_bytes(n);
		}
		if (room >= need)
			return on_pages(p, tx, need, n);
		if ((whole >= tx->bytes / GROW_SHARE || stalled(tx)) && grow(c))
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

/* Prefetches the lines of the record after the one that ends at a position, if
 * it is as long: the reader has read them a lap ago, and the stores of the next
 * send would wait for each. Not the first line, which the reader looks at. */
static inline void own_ahead(struct shmp_priv *p, const struct shmp_tx *tx,
			     uint64_t end, uint32_t bytes)
{
	uint32_t mask = tx->bytes - 1;

	for (uint32_t i = SHMP_LINE; i <= bytes; i += SHMP_LINE)
		__builtin_prefetch(p->out + ((uint32_t)(end + i) & mask), 1);
}

/* One record of some lines, and room for it is known. Its first line, at which
 * the reader looks, is written last and at once: written before the others, the
 * reader would take it away in between. */
static inline bool send_lines(struct exi_conn *c, const unsigned char *buf,
			      size_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint32_t mask = tx->bytes - 1; /* head is never before a growth */
	uint32_t at = (uint32_t)tx->head & mask;
	uint32_t bytes = shmp_record_bytes((uint32_t)len);
	uint32_t first = SHMP_LINE - SHMP_LARGE_HEAD - at % SHMP_LINE;
	struct shmp_record *r;
	unsigned char *to;

	if (len - SHMP_LARGE > SHMP_LINES_MAX - SHMP_LARGE ||
	    at + bytes > mask + 1 ||
	    (int64_t)(tx->limit - tx->head) < (int64_t)(bytes + SHMP_RESERVE))
		return false;
	zero_next(p, tx, (uint32_t)len);
	r = (struct shmp_record *)(p->out + at);
	to = shmp_payload(r, (uint32_t)len);
	memcpy(to + first, buf + first, len - first);
	if (bytes <= SHMP_AHEAD_MAX)
		own_ahead(p, tx, tx->head + bytes, bytes);
	switch (first) {
	case 48:
		memcpy(to + 32, buf + 32, 16);
		/* fallthrough */
	case 32:
		memcpy(to + 16, buf + 16, 16);
		/* fallthrough */
	case 16:
		memcpy(to, buf, 16);
	}
	publish(c, r, SHMP_DATA, (uint32_t)len);
	return true;
}

/* What find_room() returned, which is no room: -ENOBUFS once. */
static ssize_t failed(struct shmp_priv *p, ssize_t err)
{
	if (err != -ENOBUFS || !p->starved) {
		p->starved = p->starved || err == -ENOBUFS;
		return err;
	}
	return -EAGAIN;
}

/* A small send that the ring's end splits after n bytes, and there is room for
 * both parts: a reader that reads the first part finds the other. */
static bool is_parted(struct shmp_tx *tx, uint32_t n, size_t len)
{
	uint64_t end = tx->head + shmp_record_bytes(n);

	return n < len && (int64_t)len <= least_room(tx) &&
	       !(end & (tx->bytes - 1)) &&
	       (int64_t)(tx->limit - end) >=
		       (int64_t)shmp_record_bytes((uint32_t)len - n) +
			       SHMP_RESERVE;
}

/* The payload of a record, its first line last, as in send_lines(). */
static void fill(struct shmp_record *r, const unsigned char *from, uint32_t n)
{
	unsigned char *to = shmp_payload(r, n);
	uint32_t first = -(uint32_t)(uintptr_t)to % SHMP_LINE;

	if (first < n) {
		memcpy(to + first, from + first, n - first);
		exi_forget();
		n = first;
	}
	exi_copy(to, from, n);
}

/* The second part first: the reader does not look at it before the first one's
 * word is there, whose store releases it. */
static void send_parted(struct exi_conn *c, const unsigned char *buf,
			uint32_t n, uint32_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint64_t at = tx->head + shmp_record_bytes(n);
	struct shmp_record *r = shmp_out(p, tx, at);
	uint32_t rest = len - n;

	zero_behind(p, tx, at, rest);
	exi_copy(shmp_payload(r, rest), buf + n, rest);
	r->made = made_now(p, tx);
	atomic_store_explicit(&r->word,
			      shmp_word(SHMP_DATA, rest, at, tx->bytes),
			      memory_order_relaxed);
	r = shmp_out(p, tx, tx->head);
	exi_copy(shmp_payload(r, n), buf, n);
	publish(c, r, SHMP_DATA, n);
	tx->head += shmp_record_bytes(rest);
}

static SHMP_RARE ssize_t send_large(struct exi_conn *c, const void *buf,
				    size_t len)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	bool again = stalled(tx);
	size_t done = 0;

	while (done < len) {
		ssize_t n = find_room(c, len - done, PIECE);
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
		fill(r, (const unsigned char *)buf + done, (uint32_t)n);
		publish(c, r, SHMP_DATA, (uint32_t)n);
		done += (size_t)n;
	}
	return exi_likely(done || !len) ? (ssize_t)done : no_room(p, again);
}

static SHMP_RARE ssize_t send_other(struct exi_conn *c, const void *buf,
				    size_t len)
{
	if (len >= SHMP_LARGE && send_lines(c, buf, len))
		return (ssize_t)len;
	return exi_likely(send_small(c, buf, len)) ? (ssize_t)len
						   : send_large(c, buf, len);
}

/* A thread may wait for r, the record at pos, which was published. */
static SHMP_RARE ssize_t sent_awaited(struct exi_conn *c, uint32_t wait,
				      struct shmp_record *r, uint64_t pos,
				      size_t len)
{
	exi_cpu_refresh();
	if (shmp_awaited(wait, pos))
		shmp_wake_peer(
			c, wait, &r->word,
			atomic_load_explicit(&shmp_priv(c)->theirs->sleep,
					     memory_order_relaxed));
	return (ssize_t)len;
}

/* The most frequent send, as send_small() with what it calls, but with no call
 * except at the end, so that no registers are saved. */
ssize_t shmp_conn_send(struct exi_conn *c, const void *buf, size_t len,
		       int flags)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	struct shmp_record *r, *next;
	uint32_t at, end, bytes, wait;

	if (exi_unlikely(!exi_copies(len)))
		return send_other(c, buf, len);
	at = (uint32_t)tx->head & (tx->bytes - 1);
	bytes = shmp_record_bytes((uint32_t)len);
	end = at + bytes;
	if (exi_unlikely(end > tx->bytes ||
			 (int64_t)(tx->limit - tx->head) <
				 (int64_t)(bytes + SHMP_RESERVE) ||
			 atomic_load_explicit(&p->theirs->timed,
					      memory_order_relaxed)))
		return send_other(c, buf, len);
	r = (struct shmp_record *)(p->out + at);
	next = (struct shmp_record *)(p->out + (end & (tx->bytes - 1)));
	exi_forget();
	atomic_store_explicit(&next->word, 0, memory_order_relaxed);
	exi_copy(r->rest, buf, len);
	r->made = shmp_made(0, rings_now(p), exi_cpu_lately());
	/* As in publish(). */
	exi_publish(&r->word,
		    shmp_word(SHMP_DATA, (uint32_t)len, tx->head, tx->bytes));
	wait = atomic_load_explicit(&p->theirs->data_wait,
				    memory_order_seq_cst);
	tx->head += bytes;
	return exi_likely(!(wait & SHMP_WAIT_MASK))
		       ? (ssize_t)len
		       : sent_awaited(c, wait, r, tx->head - bytes, len);
}

int shmp_conn_end(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;

	if (tx->ended)
		return 0;
	tx->ended = 1;
	atomic_store_explicit(&p->mine->ends, 1, memory_order_relaxed);
	zero_next(p, tx, 0);
	publish(c, shmp_out(p, tx, tx->head), SHMP_END, 0);
	return 0;
}

ssize_t shmp_loan_room(struct exi_conn *c, size_t len, void **ret)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	bool again = stalled(tx);
	ssize_t n = find_room(c, len, SHMP_PIECE_MAX);

	if (n <= 0)
		return n ? failed(p, n) : no_room(p, again);
	p->loaned = (uint32_t)n;
	*ret = shmp_payload(shmp_out(p, tx, tx->head), p->loaned);
	return n;
}

void shmp_loan_put(struct exi_conn *c, size_t n)
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

/* --- whole messages ------------------------------------------------------- */

/* The records of one message. */
#define PARTS 64

struct parts {
	struct {
		uint64_t at;
		uint32_t len;
	} part[PARTS];
	unsigned int n;
	uint64_t end;
};

/* Lays len bytes out from head on. */
static bool lay_out(const struct shmp_tx *tx, size_t len, struct parts *ret)
{
	ret->end = tx->head;
	for (ret->n = 0; len && ret->n < PARTS; ret->n++) {
		uint32_t offset = (uint32_t)ret->end & (tx->bytes - 1);
		uint32_t fits = shmp_fits(tx->bytes - offset);

		fits = smaller(len, smaller(fits, SHMP_PIECE_MAX));
		ret->part[ret->n].at = ret->end;
		ret->part[ret->n].len = fits;
		ret->end += shmp_record_bytes(fits);
		len -= fits;
	}
	return !len && ret->end - tx->head + SHMP_RESERVE <= tx->bytes;
}

/* Finds room for all of a message: 0, or -errno. */
static int find_whole(struct exi_conn *c, size_t len, struct parts *ret)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	bool fits = lay_out(tx, len, ret);
	int64_t room = shmp_refresh_limit(tx, p);
	int64_t need = (int64_t)(ret->end - tx->head);

	if (room < 0)
		return -EPROTO;
	if (tx->head - tx->taken >= shmp_whole(c)) {
		tx->full_at = tx->taken;
		return -EAGAIN;
	}
	if (!fits || room < need + (int64_t)SHMP_RESERVE)
		return -EMSGSIZE;
	return (int)on_pages(p, tx, need, 0);
}

/* Copies the next n bytes of the message, of which those behind *left have no
 * meaning, and stay what they are. */
static void copy_part(unsigned char *to, size_t n, const struct iovec **v,
		      size_t *at, size_t *left)
{
	while (n && *left) {
		size_t piece = (*v)->iov_len - *at;

		if (!piece) {
			++*v;
			*at = 0;
			continue;
		}
		piece = piece < n ? piece : n;
		memcpy(to, (const char *)(*v)->iov_base + *at, piece);
		to += piece;
		n -= piece;
		*at += piece;
		*left -= piece;
	}
}

/* The first record's word is stored last, and releases all others: as in
 * send_parted(). */
int shmp_send_whole(struct exi_conn *c, const void *head, const struct iovec *v,
		    size_t n, size_t unit)
{
	struct iovec first = { (void *)(uintptr_t)head, 4 };
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	const struct iovec *next = &first;
	size_t at = 0, left = 4, sum = 0;
	struct parts parts;
	uint32_t made;
	int err = find_whole(c, unit, &parts);

	if (err)
		return err == -ENOBUFS ? (int)failed(p, err) : err;
	for (size_t i = 0; i < n; i++)
		sum += v[i].iov_len;
	zero_behind(p, tx, parts.part[parts.n - 1].at,
		    parts.part[parts.n - 1].len);
	made = made_now(p, tx);
	for (unsigned int i = 0; i < parts.n; i++) {
		uint32_t len = parts.part[i].len;
		struct shmp_record *r = shmp_out(p, tx, parts.part[i].at);
		unsigned char *to = shmp_payload(r, len);

		if (i == 0) {
			copy_part(to, 4, &next, &at, &left);
			next = v;
			at = 0;
			left = sum;
			copy_part(to + 4, len - 4, &next, &at, &left);
			continue;
		}
		copy_part(to, len, &next, &at, &left);
		r->made = made;
		atomic_store_explicit(
			&r->word,
			shmp_word(SHMP_DATA, len, parts.part[i].at, tx->bytes),
			memory_order_relaxed);
	}
	publish(c, shmp_out(p, tx, tx->head), SHMP_DATA, parts.part[0].len);
	tx->head = parts.end;
	return 0;
}
