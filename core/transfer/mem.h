/* SPDX-License-Identifier: BSD-2-Clause */
/* Registered memory. A registration says that a range stays mapped; fabrics
 * that place data remotely will pin it for their devices. */
#ifndef EXI_CORE_TRANSFER_MEM_H
#define EXI_CORE_TRANSFER_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/exs.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

struct exi_region;

/* Registers memory for exs_send() and exs_recv(); flags are EXS_MRF_*. 0,
 * -EINVAL, -ENOMEM (no handle is free), or the error of memory that is not
 * mapped. */
int exi_mem_register(void *addr, size_t len, int flags, exs_mhandle_t *ret);
/* Deregistration fails with -EBUSY while operations or calls use the region. */
int exi_mem_deregister(exs_mhandle_t m);

/* The region of a handle, if it covers the buffer; not kept. Null region for
 * EXS_MHANDLE_UNREGISTERED. -EINVAL. Called with a queue's lock held for an
 * operation of that queue: deregistration looks at the operations of every
 * queue after it took the handle away, and finds this one there. */
int exi_mem_find(exs_mhandle_t m, const void *buf, size_t len,
		 struct exi_region **ret);

/* Whether all of buf lies in the registered memory. */
static inline bool exi_mem_covers(const struct exi_memory *m, const void *buf,
				  size_t len)
{
	size_t at = (size_t)((const char *)buf - (const char *)m->addr);

	return (const char *)buf >= (const char *)m->addr && len <= m->len &&
	       at <= m->len - len;
}

/* The description of a region for fabrics; null for null. */
const struct exi_memory *exi_mem_of(const struct exi_region *r);

/* exi_mem_find() for a call without an operation; the region is kept until
 * exi_mem_put(). */
int exi_mem_keep(exs_mhandle_t m, const void *buf, size_t len,
		 struct exi_region **ret);
void exi_mem_let_go(struct exi_region *r);
static inline int exi_mem_get(exs_mhandle_t m, const void *buf, size_t len,
			      struct exi_region **ret)
{
	*ret = NULL;
	return exi_likely(m == EXS_MHANDLE_UNREGISTERED)
		       ? 0
		       : exi_mem_keep(m, buf, len, ret);
}
static inline void exi_mem_put(struct exi_region *r)
{
	if (exi_unlikely(r))
		exi_mem_let_go(r);
}

/* The registrations after a fork, in the child, after the queues: none is in
 * use. */
void exi_mem_forked(void);

#endif
