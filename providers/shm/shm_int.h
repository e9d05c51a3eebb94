/* SPDX-License-Identifier: BSD-2-Clause */
/* State of a shm connection, private to the provider. */
#ifndef EXI_SHM_INT_H
#define EXI_SHM_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "providers/shm/shm_wire.h"

extern const struct exi_provider exi_provider_shm;
extern const struct exi_conn_ops shmp_conn_ops;
extern const struct exi_switch_ops shmp_switch_ops;
extern const struct exi_loan_ops shmp_loan_ops;
extern const struct exi_meet_ops shmp_meet_ops;

/* What a family of forked processes shares; each part is guarded by the lock
 * of its direction. The peer cannot write it. */
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
	uint32_t epoch; /* as the segment says */
	uint64_t
		there; /* the pages up to here exist, see shmp_segment_make() */
	uint64_t kernel; /* as the segment says */
};

struct shmp_rx {
	uint64_t pos;	    /* position of the record being read */
	uint32_t bytes;	    /* of the ring, now */
	uint32_t used;	    /* bytes of its payload that were read */
	uint32_t len;	    /* its length, copied once; 0: not looked at */
	uint64_t published; /* what `taken` says */
	uint32_t sleepers;  /* threads that wait for data */
	uint32_t ended;	    /* END was reached */
	int32_t cpu;	    /* the peer's, its low bits */
	uint32_t before;    /* as the sender has them */
	uint64_t grown_at;
	uint64_t there; /* what was admitted ends here */
};

struct shmp_shared {
	_Alignas(EXI_LINE) struct shmp_tx tx;
	_Alignas(EXI_LINE) struct shmp_rx rx;
};

/* Of this process: where the segments are mapped. */
struct shmp_priv {
	struct shmp_segment *mine;
	const struct shmp_segment *theirs;
	unsigned char *out;	 /* the ring we write */
	const unsigned char *in; /* the ring we read */
	uint32_t out_bytes;	 /* of it, what the peer takes */
	uint32_t out_start;
	size_t out_map; /* bytes mapped, and of the peer's: */
	size_t in_map;
	uint32_t in_bytes;
	uint32_t in_start;
	uint32_t takes;	       /* the peer, of our ring */
	uint64_t charged;      /* of EXS_MEMORY_LIMIT_MB, and for the peer's */
	uint64_t borrowed;     /* segment */
	bool small;	       /* there was no memory left for growing, */
	bool gave_up;	       /* and the reader stalled */
	bool starved;	       /* a page of our ring could not be made */
	uint32_t loaned;       /* bytes at the head that are being made there */
	_Atomic uint32_t rang; /* rings that this process sent for it */
};

#define SHMP_NEVER UINT64_MAX /* of full_at */

/* Counts so much of the ring against EXS_MEMORY_LIMIT_MB. -ENOMEM. */
int shmp_segment_grow(struct shmp_priv *p, uint32_t bytes);

/* The same for the peer's ring: an honest peer pays for what it wrote, but the
 * pages that a hostile one left out are made by the reader's first look, at the
 * expense of the reader's cgroup. -ENOBUFS. */
int shmp_segment_borrow(struct shmp_priv *p, uint32_t bytes);

/* Before the peer's ring is read up to position end, less than a lap from here:
 * makes sure that its pages are there, so that one that the kernel cannot make
 * yields -ENOBUFS and not SIGBUS. One that was there stays: the seals forbid to
 * punch a hole. */
int shmp_segment_admit(const struct shmp_priv *p, struct shmp_rx *rx,
		       uint64_t end);

/* Before our ring is written up to position end, less than a lap from head: makes its
 * pages, so that one that the kernel cannot make yields -ENOBUFS and not SIGBUS. */
int shmp_segment_make(const struct shmp_priv *p, struct shmp_tx *tx,
		      uint64_t end);

/* Unmaps what is mapped. */
void shmp_segment_unmap(struct shmp_priv *p);

static inline struct shmp_priv *shmp_priv(struct exi_conn *c)
{
	return (struct shmp_priv *)c->priv;
}

static inline struct shmp_shared *shmp_shared(struct exi_conn *c)
{
	return c->shared;
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

static inline unsigned char *shmp_payload(struct shmp_record *r, uint32_t len)
{
	return (unsigned char *)r + shmp_head_bytes(len);
}

/* Of the record that is open at rx->pos. */
static inline const unsigned char *shmp_unread(struct shmp_priv *p,
					       const struct shmp_rx *rx)
{
	return (const unsigned char *)shmp_in(p, rx) +
	       shmp_head_bytes(rx->len) + rx->used;
}

#endif
