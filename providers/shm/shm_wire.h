/* SPDX-License-Identifier: BSD-2-Clause */
/* The segment that one end of a shm connection shares with the other, as in
 * docs/design/wire-shm.md, section 4. The end that made it writes it; the peer
 * maps it read-only. */
#ifndef EXI_SHM_WIRE_H
#define EXI_SHM_WIRE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHMP_MAGIC   0x31535845u /* "EXS1" */
#define SHMP_VERSION 3u

#define SHMP_RING_OFFSET 384u /* a message fits into the first page, too */
#define SHMP_RING_MIN	 4096u
#define SHMP_RING_MAX	 (64u << 20)

/* Records. */
#define SHMP_PIECE_MAX	65536u /* bytes of payload */
#define SHMP_ALIGN	16u
#define SHMP_HEAD	8u
#define SHMP_LARGE	256u /* from here on the payload lies at 16, not 8: */
#define SHMP_LARGE_HEAD 16u  /* large copies are slow across that alignment */
#define SHMP_RESERVE	32u  /* the zero word after the last, and one END */
#define SHMP_LEN_MASK	0x0fffffffu
#define SHMP_KIND_SHIFT 28
#define SHMP_DATA	1u
#define SHMP_END	2u
#define SHMP_GROW	3u /* a ring of 1 << length bytes from here on */
/* Set in every second lap, see shmp_lap(). */
#define SHMP_LAP 0x80000000u

struct shmp_record {
	_Atomic uint32_t word; /* 0, or lap, kind, length: published last */
	uint32_t made;	       /* where and when, see shmp_made() */
	unsigned char rest[];  /* the payload, see shmp_head_bytes() */
};
_Static_assert(offsetof(struct shmp_record, rest) == SHMP_HEAD, "record head");

/* Wait words: the low bits state what is asked for; above them is the position
 * (in units of SHMP_ALIGN) at which the wait began: the record that is awaited,
 * or the `taken` that left too little room. The end that passes just that
 * position sends a wake-up; one for an earlier position would be taken for this
 * one's, and this one lost. */
#define SHMP_WAIT_WORD	  1u /* a thread sleeps on the word in our segment */
#define SHMP_WAIT_BELL	  2u /* send WAKE over the pair link */
#define SHMP_WAIT_MASK	  3u
#define SHMP_WAIT_AT(pos) ((uint32_t)((pos) / SHMP_ALIGN) << 2)

/* The process sent over TCP from this byte of the stream on, at the time
 * `when`, in exi_ticks(); 0: nothing is stated, or it is changing. */
struct shmp_tcp {
	_Atomic uint64_t from;
	_Atomic uint64_t when;
};
#define SHMP_TCP 4 /* the last this many, in any order */

struct shmp_segment {
	uint32_t magic;
	uint32_t version;
	uint32_t ring_offset;
	uint32_t ring_bytes;
	uint32_t start_bytes; /* the part that is used until a GROW record */
	unsigned char room0[44];
	/* 64: written by this end's receiver, read by the peer when this end is
	 * gone. */
	_Atomic uint64_t read;
	unsigned char room1[56];
	/* 128: written by this end's sender. */
	_Atomic uint32_t space_wait;
	/* The records from epoch_at on were made in this epoch or later ones,
	 * those before in epoch_before or earlier ones. */
	_Atomic uint32_t epoch;
	_Atomic uint64_t epoch_at;
	_Atomic uint32_t epoch_before;
	/* When its process had last sent something through the kernel, except
	 * WAKE: in exi_ticks(), for the records from kernel_at on, and for
	 * those before. */
	_Atomic uint64_t kernel;
	_Atomic uint64_t kernel_at;
	_Atomic uint64_t kernel_before;
	/* Not 0: this end has sent its end, or is about to. */
	_Atomic uint32_t ends;
	unsigned char room2[12];
	/* 192: the same. */
	struct shmp_tcp tcp[SHMP_TCP];
	/* 256: written by this end's receiver. */
	_Atomic uint64_t taken;
	_Atomic uint32_t taken_seq;
	_Atomic uint32_t data_wait;
	_Atomic uint64_t sleep; /* that a bell for data ends */
	_Atomic uint32_t timed; /* what is sent is to say when */
	unsigned char room3[100];
};
_Static_assert(offsetof(struct shmp_segment, read) == 64, "layout");
_Static_assert(offsetof(struct shmp_segment, space_wait) == 128, "layout");
_Static_assert(offsetof(struct shmp_segment, epoch) == 132, "layout");
_Static_assert(offsetof(struct shmp_segment, epoch_at) == 136, "layout");
_Static_assert(offsetof(struct shmp_segment, epoch_before) == 144, "layout");
_Static_assert(offsetof(struct shmp_segment, kernel) == 152, "layout");
_Static_assert(offsetof(struct shmp_segment, kernel_at) == 160, "layout");
_Static_assert(offsetof(struct shmp_segment, kernel_before) == 168, "layout");
_Static_assert(offsetof(struct shmp_segment, ends) == 176, "layout");
_Static_assert(offsetof(struct shmp_segment, tcp) == 192, "layout");
_Static_assert(offsetof(struct shmp_segment, taken) == 256, "layout");
_Static_assert(offsetof(struct shmp_segment, taken_seq) == 264, "layout");
_Static_assert(offsetof(struct shmp_segment, data_wait) == 268, "layout");
_Static_assert(offsetof(struct shmp_segment, sleep) == 272, "layout");
_Static_assert(offsetof(struct shmp_segment, timed) == 280, "layout");
_Static_assert(sizeof(struct shmp_segment) == SHMP_RING_OFFSET, "layout");

static inline uint32_t shmp_head_bytes(uint32_t len)
{
	return len < SHMP_LARGE ? SHMP_HEAD : SHMP_LARGE_HEAD;
}

/* Bytes a record takes in the ring. */
static inline uint32_t shmp_record_bytes(uint32_t len)
{
	return (shmp_head_bytes(len) + len + SHMP_ALIGN - 1) &
	       ~(SHMP_ALIGN - 1);
}

/* The lap bit in the words of a ring of this size, in the lap of pos. A record
 * of the lap before is no record, so what a writer left in its ring is read
 * once. */
static inline uint32_t shmp_lap(uint64_t pos, uint32_t bytes)
{
	return pos & bytes ? SHMP_LAP : 0;
}

/* The word of the record at pos. */
static inline uint32_t shmp_word(uint32_t kind, uint32_t len, uint64_t pos,
				 uint32_t bytes)
{
	return shmp_lap(pos, bytes) | kind << SHMP_KIND_SHIFT | len;
}

/* The largest payload of a record that takes no more than room, a multiple of
 * SHMP_ALIGN and not 0. */
static inline uint32_t shmp_fits(uint32_t room)
{
	return room - SHMP_HEAD < SHMP_LARGE ? room - SHMP_HEAD
					     : room - SHMP_LARGE_HEAD;
}

/* The record after GROW lies behind what was the ring before, at the first
 * position not before the end of GROW that is before modulo bytes. */
static inline uint64_t shmp_grown_at(uint64_t grow_end, uint32_t before,
				     uint32_t bytes)
{
	return ((grow_end + bytes - before - 1) & ~((uint64_t)bytes - 1)) +
	       before;
}

/* `made`: the low bits of the producer's CPU, of the number of wake-ups that
 * its process has sent for other connections, and of the time, in units of 32
 * exi_ticks(), which wraps in an epoch. Where the consumer does not ask for the
 * time, it is 0. */
#define SHMP_CPU_MASK	 0xffu
#define SHMP_RINGS_SHIFT 8
#define SHMP_RINGS_MASK	 0xfu
#define SHMP_TIME_SHIFT	 12
#define SHMP_UNIT_SHIFT	 5
#define SHMP_UNIT	 (1u << SHMP_UNIT_SHIFT)
#define SHMP_EPOCH_SHIFT (32 - SHMP_TIME_SHIFT + SHMP_UNIT_SHIFT)

static inline uint32_t shmp_made(uint64_t ticks, uint32_t rings, uint32_t cpu)
{
	uint32_t time = (uint32_t)(ticks >> SHMP_UNIT_SHIFT) << SHMP_TIME_SHIFT;

	return time | (rings & SHMP_RINGS_MASK) << SHMP_RINGS_SHIFT |
	       (cpu & SHMP_CPU_MASK);
}

/* Never 0, which means that there is none. */
static inline uint32_t shmp_epoch(uint64_t ticks)
{
	return (uint32_t)(ticks >> SHMP_EPOCH_SHIFT) | 0x80000000u;
}

/* The exi_ticks() at which a record was made; `now`, of about that time, has
 * what an epoch leaves out. */
static inline uint64_t shmp_made_at(uint32_t made, uint32_t epoch, uint64_t now)
{
	/* A difference of 31 bits, with its sign. */
	int32_t ahead = (int32_t)((epoch - shmp_epoch(now)) << 1) >> 1;

	return (((now >> SHMP_EPOCH_SHIFT) + (uint64_t)(int64_t)ahead)
		<< SHMP_EPOCH_SHIFT) +
	       ((uint64_t)(made >> SHMP_TIME_SHIFT) << SHMP_UNIT_SHIFT);
}

/* The blob of an offer or an answer; its descriptor is the segment. */
struct shmp_blob {
	uint32_t magic;
	uint32_t version;
	uint32_t ring_bytes;
	uint32_t start_bytes;
	uint32_t takes_bytes; /* the other end uses no more of its own ring */
};
_Static_assert(sizeof(struct shmp_blob) == 20, "blob");

#endif
