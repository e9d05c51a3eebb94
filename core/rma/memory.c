/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of a link, and its registration: rings, and those that outlive
 * their link. */
#include "core/rma/memory.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/list.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"

uint32_t exi_rma_ring_bytes(void)
{
	uint32_t bytes = exi_rma_host->config()->ring_kb * 1024;

	return bytes < EXI_RMA_RING_MAX ? bytes : EXI_RMA_RING_MAX;
}

size_t exi_rma_footprint(void)
{
	return 2 * exi_rma_ring_bytes() + 2 * EXI_RMA_CREDITS * EXI_RMA_MSG_MAX;
}

void *exi_rma_map(size_t len)
{
	void *ret = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (ret == MAP_FAILED)
		return NULL;
	/* A forked child must not see, nor have copied, what a device
	 * writes. */
	madvise(ret, len, MADV_DONTFORK);
	return ret;
}

int exi_rma_ring_make(struct exi_rma_link *l, struct exi_rma_mem *m,
		      uint32_t bytes, enum exi_rma_access access)
{
	m->bytes = bytes;
	m->at = exi_rma_map(bytes);
	if (!m->at)
		return -ENOMEM;
	return exi_rma_fabric.reg(l->net, m->at, bytes, access, &m->mr);
}

void exi_rma_mem_unpin(struct exi_rma_mem *m)
{
	if (m->mr.handle)
		exi_rma_fabric.dereg(&m->mr);
	m->mr.handle = NULL;
}

/* LINGER_NS is longer than any request is under way; but if the other end has
 * stopped, a request lasts until its own end closes what carries it. */
#define LINGER_NS 10000000000u

struct grave {
	struct exi_list node;
	struct exi_rma_net *net; /* where the memory is registered; null */
	struct exi_rma_mem mem;
	uint64_t until;
};

/* Memory that lingers; under the service lock. */
static struct exi_list graves = EXI_LIST_INIT(graves);

/* Keeps memory mapped and registered for a while: a peer that writes to memory
 * that is gone may lose the queue that it shares with other links. */
static void bury(struct exi_rma_net *n, struct exi_rma_mem *m)
{
	struct grave *g = calloc(1, sizeof(*g));

	if (!g) { /* without memory for a grave the ring stays mapped */
		exi_rma_mem_unpin(m);
		return;
	}
	g->net = n;
	g->mem = *m;
	g->until = exi_now_ns() + LINGER_NS;
	exi_list_add_tail(&graves, &g->node);
	exi_rma_tick_at(g->until);
}

void exi_rma_links_tick(uint64_t now)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &graves) {
		struct grave *g = exi_container(pos, struct grave, node);

		if (g->until > now) {
			exi_rma_tick_at(g->until);
			break;
		}
		exi_list_del(&g->node);
		exi_rma_mem_unpin(&g->mem);
		munmap(g->mem.at, g->mem.bytes);
		free(g);
	}
}

void exi_rma_links_net_ends(struct exi_rma_net *n)
{
	struct exi_list *pos;

	exi_list_del(&n->reminder);
	exi_list_for_each (pos, &graves) {
		struct grave *g = exi_container(pos, struct grave, node);

		if (g->net == n)
			exi_rma_mem_unpin(&g->mem);
	}
}

void exi_rma_ring_drop(struct exi_rma_link *l, struct exi_rma_mem *m,
		       bool lingers)
{
	if (m->at && lingers) {
		bury(l->net, m);
	} else {
		exi_rma_mem_unpin(m);
		if (m->at)
			munmap(m->at, m->bytes);
	}
	*m = (struct exi_rma_mem){ 0 };
}
