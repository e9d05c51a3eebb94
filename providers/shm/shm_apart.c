/* SPDX-License-Identifier: BSD-2-Clause */
/* A reader of its own: it has a mapping of the peer's segment and a position,
 * and publishes neither. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

struct apart {
	struct shmp_priv priv; /* of which only `in` is used */
	struct shmp_rx rx;
	uint64_t passed; /* bytes of records */
};

_Static_assert(sizeof(struct apart) <= sizeof(struct exi_apart), "too small");

static struct apart *apart_of(struct exi_apart *a)
{
	return (struct apart *)a->state;
}

static int apart_begin(struct exi_conn *c, struct exi_apart *ret)
{
	struct apart *a = apart_of(ret);
	struct shmp_priv *p = shmp_priv(c);
	/* An old size of 0 makes another mapping of the same memory. */
	void *at = mremap((void *)(uintptr_t)p->theirs, 0, p->in_map,
			  MREMAP_MAYMOVE);

	if (at == MAP_FAILED)
		return -errno;
	memset(a, 0, sizeof(*a));
	a->priv.theirs = at;
	a->priv.in = (const unsigned char *)at + SHMP_RING_OFFSET;
	a->priv.in_map = p->in_map;
	a->priv.in_bytes = p->in_bytes;
	a->priv.borrowed = UINT64_MAX; /* the connection's was counted */
	a->rx = shmp_shared(c)->rx;
	return 0;
}

static size_t apart_look(struct exi_apart *r, const void **ret)
{
	struct apart *a = apart_of(r);

	/* What lies further than the ring is this lap's tail. */
	if (a->passed >= a->priv.in_bytes || shmp_look(&a->priv, &a->rx) <= 0)
		return 0;
	*ret = shmp_unread(&a->priv, &a->rx);
	return a->rx.len - a->rx.used;
}

static void apart_took(struct exi_apart *r, size_t n)
{
	struct apart *a = apart_of(r);
	struct shmp_rx *rx = &a->rx;

	rx->used += (uint32_t)n;
	if (rx->used < rx->len)
		return;
	a->passed += shmp_record_bytes(rx->len);
	rx->pos += shmp_record_bytes(rx->len);
	rx->len = 0;
}

static size_t apart_size(const struct exi_apart *r)
{
	return ((const struct apart *)r->state)->rx.bytes;
}

static void apart_end(struct exi_apart *r)
{
	struct apart *a = apart_of(r);

	munmap((void *)(uintptr_t)a->priv.theirs, a->priv.in_map);
}

const struct exi_apart_ops shmp_apart_ops = {
	.begin = apart_begin,
	.look = apart_look,
	.took = apart_took,
	.size = apart_size,
	.end = apart_end,
};
