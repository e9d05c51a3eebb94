/* SPDX-License-Identifier: BSD-2-Clause */
/* An end of the provider shm without a socket, for fuzz targets that play its
 * peer. */
#ifndef FUZZ_SEGMENT_H
#define FUZZ_SEGMENT_H

#include <stdlib.h>
#include <string.h>

#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "fuzz/fuzz.h"
#include "providers/shm/shm_int.h"

static inline struct exi_conn *fuzz_segment_new(void)
{
	static struct exi_shared counted;
	size_t size = sizeof(struct exi_conn) + shmp_conn_ops.priv_size;
	struct exi_conn *c = aligned_alloc(64, (size + 63) & ~(size_t)63);

	FUZZ_TRUE(c);
	memset(c, 0, size);
	c->provider = &exi_provider_shm;
	c->ops = &shmp_conn_ops;
	c->wops = &shmp_wait_ops;
	c->rops = &shmp_ready_ops;
	c->swops = &shmp_switch_ops;
	c->lops = &shmp_loan_ops;
	c->sh = &counted;
	c->fd = c->bell = -1;
	c->shared = aligned_alloc(EXI_LINE, sizeof(struct shmp_shared));
	FUZZ_TRUE(c->shared);
	memset(c->shared, 0, sizeof(struct shmp_shared));
	return c;
}

static inline void fuzz_segment_free(struct exi_conn *c)
{
	c->ops->fini(c);
	free(c->shared);
	free(c);
}

#endif
