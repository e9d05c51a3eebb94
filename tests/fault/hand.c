/* SPDX-License-Identifier: BSD-2-Clause */
/* Anything that a peer may write: messages on its link, its segment. */
#include "tests/fault/hand.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/futex.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "tests/fault/link.h"
#include "tests/support/check.h"
#include "tests/support/run.h"

/* Odd numbers, and such as are near a position. */
static uint64_t number(struct t_rng *r, uint64_t near)
{
	static const uint64_t odd[] = {
		0,	    1,		2,	    15,
		16,	    4096,	65536,	    1ull << 31,
		1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 15
	};

	switch (t_below(r, 4)) {
	case 0:
		return t_rand(r) >> t_below(r, 64);
	case 1:
		return t_chunk(r, 100000);
	case 2:
		return near + 16 * t_below(r, 9) - 64;
	default:
		return odd[t_below(r, T_COUNT(odd))];
	}
}

void t_lie(struct t_rng *r, int link, uint64_t near)
{
	struct exi_pair_msg m[2] = { { .magic = EXI_PAIR_MAGIC,
				       .version = EXI_PAIR_VERSION } };
	int fd = t_below(r, 8) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
	size_t len = sizeof(m[0]);

	m[0].type = (uint16_t)t_below(r, EXI_PAIR_TYPE_MAX + 2);
	m[0].a = number(r, near);
	m[0].b = number(r, near);
	m[0].c = number(r, near);
	switch (t_below(r, 12)) {
	case 0:
		len = t_below(r, sizeof(m));
		break;
	case 1:
		m[0].magic = (uint32_t)number(r, near);
		break;
	case 2:
		m[0].version = (uint16_t)number(r, near);
		break;
	case 3:
		m[0].type = (uint16_t)number(r, near);
		break;
	}
	t_link_put(link, m, len, fd);
	if (fd >= 0)
		close(fd);
}

void t_hand_lay(struct t_hand *h, int s, int link)
{
	struct exi_conn *c = exi_sock_find(s)->fab;
	struct shmp_priv *p = shmp_priv(c);

	h->mapped = p->out_map;
	h->seg = mremap(p->mine, 0, h->mapped, MREMAP_MAYMOVE);
	T(h->seg != MAP_FAILED);
	h->ring = (unsigned char *)h->seg + SHMP_RING_OFFSET;
	h->bytes = shmp_shared(c)->tx.bytes;
	h->whole = p->out_bytes;
	h->head = shmp_shared(c)->tx.head;
	h->link = link;
}

static struct shmp_record *at(struct t_hand *h, uint64_t pos)
{
	return (struct shmp_record *)(h->ring + (pos & (h->bytes - 1)));
}

static void put(struct t_hand *h, uint64_t pos, uint32_t kind, uint32_t len)
{
	atomic_store(&at(h, pos)->word, shmp_word(kind, len, pos, h->bytes));
}

/* Records of some length, as far as the ring has room. */
static void put_many(struct t_rng *r, struct t_hand *h)
{
	uint32_t len = (uint32_t)t_chunk(r, 9000);
	int k = (int)t_chunk(r, 400);

	while (k-- && (h->head & (h->bytes - 1)) + shmp_record_bytes(len) +
				      SHMP_RESERVE <=
			      h->bytes) {
		put(h, h->head, SHMP_DATA, len);
		h->head += shmp_record_bytes(len);
	}
}

/* The victim may look twice at these, while they change. */
static void change_fast(struct t_rng *r, struct t_hand *h)
{
	for (int k = 0; k < 2000; k++) {
		uint64_t v = t_rand(r);

		put(h, h->head, (uint32_t)v & 3, (uint32_t)(v >> 8) & 0x3fff);
		/* What may be and what cannot be, in turns. */
		atomic_store(&h->seg->taken, k & 1 ? v >> 20 & ~15ull : 0);
		atomic_store(&h->seg->data_wait, (uint32_t)v);
		atomic_store(&h->seg->space_wait, (uint32_t)(v >> 32));
		atomic_store(&h->seg->epoch_at, v >> 30);
	}
}

static void scribble_record(struct t_rng *r, struct t_hand *h)
{
	atomic_uint *anywhere;

	switch (t_below(r, 6)) {
	case 0:
		put(h, h->head, (uint32_t)t_below(r, 8),
		    (uint32_t)number(r, h->head) & SHMP_LEN_MASK);
		break;
	case 1:
		put(h, h->head, SHMP_GROW, (uint32_t)t_below(r, 34));
		break;
	case 2:
		put(h, h->head, SHMP_END, (uint32_t)t_below(r, 2));
		break;
	case 3:
		put_many(r, h);
		break;
	case 4:
		anywhere = (atomic_uint *)(h->ring +
					   (t_below(r, h->whole) & ~3ull));
		atomic_store(anywhere, (uint32_t)t_rand(r));
		break;
	default:
		atomic_store(&at(h, h->head)->word,
			     (uint32_t)number(r, h->head));
	}
	at(h, h->head)->made = (uint32_t)number(r, h->head);
}

/* Words of the segment's head, whole and in halves. */
static void scribble_head(struct t_rng *r, struct t_hand *h)
{
	for (int k = 1 + (int)t_below(r, 4); k; k--) {
		uint64_t at = t_below(r, SHMP_RING_OFFSET) & ~7ull;
		_Atomic uint64_t *word = (void *)((char *)h->seg + at);
		uint64_t v = number(r, h->head);

		if (t_below(r, 2))
			atomic_store(word, v);
		else
			atomic_store((atomic_uint *)word + t_below(r, 2),
				     (uint32_t)v);
	}
}

void t_hand_wake(struct t_hand *h)
{
	exi_futex_wake(shmp_plain(&at(h, h->head)->word), INT_MAX);
	atomic_fetch_add(&h->seg->taken_seq, 1);
	exi_futex_wake(shmp_plain(&h->seg->taken_seq), INT_MAX);
	t_link_put(h->link, "", 1, -1);
}

void t_hand_scribble(struct t_rng *r, struct t_hand *h)
{
	if (t_below(r, 8) == 0)
		change_fast(r, h);
	else if (t_below(r, 2) == 0)
		scribble_record(r, h);
	else
		scribble_head(r, h);
	t_hand_wake(h);
}

void t_hand_lift(struct t_hand *h)
{
	munmap(h->seg, h->mapped);
}
