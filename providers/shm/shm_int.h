/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the shm provider share: the state of a connection, and its
 * rings.
 *
 * The data path: records in a ring, one cache line for a small message.
 *
 *	ring	| word,payload | word,payload | 0 |   free   | word,payload |
 *		  ^ rx.pos                      ^ tx.head      not yet taken
 *
 * The producer zeroes the word after a new record before it publishes the
 * record's own word, so the consumer polls one word, finds the payload in the
 * same line, and nothing needs clearing. The consumer publishes its position
 * only every quarter of the ring. The table in section 4 of
 * docs/design/wire-shm.md lists which store pairs with which load. */
#ifndef EXI_SHM_INT_H
#define EXI_SHM_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/futex.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "providers/shm/shm_wire.h"

extern const struct exi_provider exi_provider_shm;
extern const struct exi_conn_ops shmp_conn_ops;
extern const struct exi_wait_ops shmp_wait_ops;
extern const struct exi_ready_ops shmp_ready_ops;
extern const struct exi_switch_ops shmp_switch_ops;
extern const struct exi_loan_ops shmp_loan_ops;
extern const struct exi_apart_ops shmp_apart_ops;
extern const struct exi_meet_ops shmp_meet_ops;

/* The state that a family of forked processes shares; each part is guarded by
 * the lock of its direction. The peer cannot write it. */
struct shmp_tx {
	uint64_t head;	     /* position of the next record */
	uint64_t limit;	     /* head may grow up to here, and not past there */
	uint64_t taken;	     /* what the peer had taken when limit was set */
	uint64_t grown_at;   /* from here on the ring is */
	uint32_t bytes;	     /* this long, and before */
	uint32_t before;     /* this, from before_at on */
	uint64_t full_at;    /* `taken` when a record found no room last */
	uint64_t drain;	     /* position of the record being sent again */
	uint64_t drain_used; /* bytes of it that are done */
	uint32_t sleepers;   /* threads that wait for space */
	uint32_t ended;
	uint64_t before_at;
	uint32_t first; /* the ring's size before that */
	uint32_t epoch; /* from the segment */
	uint64_t
		there; /* the pages up to here exist, see shmp_segment_make() */
	uint64_t kernel; /* from the segment */
	uint32_t n_tcp;	 /* its reports about TCP, in all */
};

struct shmp_rx {
	/* Position of the record being read; see shmp_move_to(). */
	uint64_t pos;
	uint32_t bytes; /* the ring's size, now */
	uint32_t used;	/* bytes of its payload that were read */
	uint32_t len;	/* the record's length, copied once; 0: not looked at */
	uint32_t ended; /* END was reached */
	uint64_t published; /* the value of `taken` */
	uint32_t sleepers;  /* threads that wait for data */
	int32_t cpu;	    /* the peer's, its low bits */
	uint32_t before;    /* as the sender has them */
	uint64_t grown_at;
	uint64_t there; /* the admitted part ends here */
};

struct shmp_shared {
	_Alignas(EXI_LINE) struct shmp_tx tx;
	_Alignas(EXI_LINE) struct shmp_rx rx;
};

/* A ring of the peer, and up to where its pages were found. */
struct shmp_found {
	uint64_t grown_at;
	uint64_t there;
	uint32_t bytes;
};

/* The state of this process: where the segments are mapped. */
struct shmp_priv {
	struct shmp_segment *mine;
	const struct shmp_segment *theirs;
	unsigned char *out;	 /* the ring we write */
	const unsigned char *in; /* the ring we read */
	uint32_t out_bytes;	 /* bytes of out that the peer takes */
	uint32_t out_start;
	size_t out_map; /* bytes mapped, and of the peer's: */
	size_t in_map;
	uint32_t in_bytes;
	uint32_t in_start;
	uint32_t takes; /* the peer, of our ring */
	/* Counted against EXS_MEMORY_LIMIT_MB, and the same. */
	uint64_t charged;
	uint64_t borrowed; /* for the peer's segment */
	bool small;	   /* there was no memory left for growing */
	bool gave_up;	   /* the ring could not grow, and the reader stalled */
	bool starved;	   /* a page of our ring could not be made */
	uint32_t loaned;   /* bytes at the head that are being made there */
	/* The reader's ring, and the two that may follow; under its lock. */
	struct shmp_found found[3];
	/* Rings that this process sent for the connection. */
	_Atomic uint32_t rang;
};

#define SHMP_NEVER UINT64_MAX /* a value of full_at */

/* Counts this many bytes of the ring against EXS_MEMORY_LIMIT_MB. 0 or
 * -ENOMEM. */
int shmp_segment_grow(struct shmp_priv *p, uint32_t bytes);

/* Counts this many bytes of the peer's ring: an honest peer pays for the pages
 * that it wrote, but the reader's first access makes the pages that a hostile
 * peer left out, at the expense of the reader's cgroup. 0 or -ENOBUFS. */
int shmp_segment_borrow(struct shmp_priv *p, uint32_t bytes);

/* Makes sure that the pages of the peer's ring are there up to position end,
 * less than a lap from here, before they are read: a page that the kernel
 * cannot make yields -ENOBUFS and not SIGBUS. A page that was there stays: the
 * seals forbid to punch a hole. */
int shmp_segment_admit(struct shmp_priv *p, struct shmp_rx *rx, uint64_t end);

/* Notes what a copy of the reader's state has found in its ring, so that nobody
 * looks for the same pages again. */
void shmp_segment_note(struct shmp_priv *p, const struct shmp_rx *rx);

/* Makes the pages of our ring up to position end, less than a lap from head,
 * before they are written: a page that the kernel cannot make yields -ENOBUFS
 * and not SIGBUS. */
int shmp_segment_make(const struct shmp_priv *p, struct shmp_tx *tx,
		      uint64_t end);

/* Unmaps the mapped parts. */
void shmp_segment_unmap(struct shmp_priv *p);

static inline struct shmp_priv *shmp_priv(struct exi_conn *c)
{
	return (struct shmp_priv *)c->priv;
}

static inline struct shmp_shared *shmp_shared(struct exi_conn *c)
{
	return c->shared;
}

/* exi_conn.whole */
static inline uint32_t shmp_whole(const struct exi_conn *c)
{
	return atomic_load_explicit(&c->whole, memory_order_relaxed);
}

/* The size of the ring that position pos lies in. */
static inline uint32_t shmp_out_bytes(const struct shmp_tx *tx, uint64_t pos)
{
	return exi_likely(pos >= tx->grown_at) ? tx->bytes
	       : pos >= tx->before_at	       ? tx->before
					       : tx->first;
}

static inline struct shmp_record *
shmp_out(struct shmp_priv *p, const struct shmp_tx *tx, uint64_t pos)
{
	return (struct shmp_record *)(p->out +
				      (pos & (shmp_out_bytes(tx, pos) - 1)));
}

/* The record at rx->pos. */
static inline const struct shmp_record *shmp_in(struct shmp_priv *p,
						const struct shmp_rx *rx)
{
	return (const struct shmp_record *)(p->in +
					    (rx->pos & (rx->bytes - 1)));
}

/* The length of the record r at rx->pos if it is a small one that can be read
 * now; 0: shmp_look() finds out. No record was opened. */
static inline uint32_t shmp_small(const struct shmp_record *r,
				  const struct shmp_rx *rx)
{
	/* Acquire: pairs with publish(). Copied once, checked, then used. */
	uint32_t word = atomic_load_explicit(&r->word, memory_order_acquire) ^
			shmp_lap(rx->pos, rx->bytes);
	uint32_t len = word & (SHMP_LARGE - 1), bytes = shmp_record_bytes(len);

	/* The kind, and from 1 to below SHMP_LARGE. */
	return word - ((SHMP_DATA << SHMP_KIND_SHIFT) + 1) < SHMP_LARGE - 1 &&
			       bytes <= rx->bytes - ((uint32_t)rx->pos &
						     (rx->bytes - 1)) &&
			       rx->pos + bytes + SHMP_HEAD <= rx->there &&
			       rx->ended == 0
		       ? len
		       : 0;
}

/* Moves a reader. Stored whole, and before the peer learns how much was taken:
 * see exi_nothing_still(). */
static inline void shmp_move_to(struct shmp_rx *rx, uint64_t pos)
{
	__atomic_store_n(&rx->pos, pos, __ATOMIC_RELAXED);
}

static inline unsigned char *shmp_payload(struct shmp_record *r, uint32_t len)
{
	return (unsigned char *)r + shmp_head_bytes(len);
}

/* The unread payload of the record that is open at rx->pos. */
static inline const unsigned char *shmp_unread(struct shmp_priv *p,
					       const struct shmp_rx *rx)
{
	return (const unsigned char *)shmp_in(p, rx) +
	       shmp_head_bytes(rx->len) + rx->used;
}

/* The word as the futex calls take it. */
static inline uint32_t *shmp_plain(const _Atomic uint32_t *w)
{
	return (uint32_t *)(uintptr_t)w;
}

/* Out of line, so that the frequent case saves no registers for it. */
#define SHMP_RARE __attribute__((noinline))

/* --- shm_conn.c --------------------------------------------------------- */

/* Whether the word of a waiter requests a wake-up when position pos is passed.
 * A thread that waits for a later position is woken then; a thread that waited
 * for an earlier one was woken before. */
static inline bool shmp_awaited(uint32_t wait, uint64_t pos)
{
	return (wait ^ SHMP_WAIT_AT(pos)) - 1 < SHMP_WAIT_MASK;
}

/* Wakes the thread that waits for that (shmp_awaited()). */
SHMP_RARE void shmp_wake_peer(struct exi_conn *c, uint32_t wait,
			      const _Atomic uint32_t *word, uint64_t sleep);

/* --- shm_tx.c ------------------------------------------------------------ */

/* Bytes of free ring, after a look at what the peer took, whether or not its
 * pages exist yet. -EPROTO: the peer's value is impossible. */
int64_t shmp_refresh_limit(struct shmp_tx *tx, struct shmp_priv *p);

/* Whether the ring is smaller than the peer allows, and there was memory so
 * far. */
bool shmp_can_grow(const struct shmp_priv *p, const struct shmp_tx *tx);

/* Members of shmp_conn_ops and shmp_loan_ops. */
ssize_t shmp_conn_send(struct exi_conn *c, const void *buf, size_t len,
		       int flags);
int shmp_conn_end(struct exi_conn *c);

/* loan_room: the room of the next record, as if it had all these bytes. The
 * ring stays as it is. */
int shmp_send_whole(struct exi_conn *c, const void *head, const struct iovec *v,
		    size_t n, size_t unit);
ssize_t shmp_loan_room(struct exi_conn *c, size_t len, void **ret);
void shmp_loan_put(struct exi_conn *c, size_t n);

/* --- shm_rx.c ------------------------------------------------------------ */

/* Publishes how far the reader is, and wakes a sender that waits for that. */
SHMP_RARE void shmp_publish_taken(struct exi_conn *c);

/* Reading continues at another position, in a ring of another size. The word
 * there can be read. 0, or -ENOBUFS: there is no memory for it. */
SHMP_RARE int shmp_begin_at(struct shmp_priv *p, struct shmp_rx *rx,
			    uint64_t pos, uint32_t before, uint32_t bytes);

/* 1: a record with unread bytes is open. 0: the end. -EAGAIN, -EPROTO. */
int shmp_look(struct shmp_priv *p, struct shmp_rx *rx);

/* Moves a copy of the reader's state behind all that is there now; returns how
 * many bytes that is. */
size_t shmp_pass_all(struct shmp_priv *p, struct shmp_rx *rx);

/* Members of shmp_conn_ops and shmp_loan_ops. */
ssize_t shmp_conn_recv(struct exi_conn *c, void *buf, size_t len, int flags);
size_t shmp_loan_look(struct exi_conn *c, const void **ret);
void shmp_loan_took(struct exi_conn *c, size_t n);

#endif
