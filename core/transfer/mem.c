/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of registrations. Objects are never freed, so a stale handle may
 * be looked at: the user is counted first, then the handle compared. */
#include "core/base/lock.h"
#include "core/transfer/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/transfer/queue.h"

#define REGIONS_MAX 65536
#define INDEX_BITS  16

struct exi_region {
	_Atomic int handle; /* 0: free */
	_Atomic int users;  /* calls that have no operation */
	int generation;
	struct exi_memory memory;
	struct exi_region *next_free;
};

static pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct exi_region *) regions[REGIONS_MAX];
static int n_regions;
static struct exi_region *free_regions;
static uint64_t serial;

/* Every page of the range is mapped. */
static int mapped(void *addr, size_t len)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)addr & ~(page - 1);
	uintptr_t end = (uintptr_t)addr + len;
	unsigned char in_core[1024];

	while (at < end) {
		size_t n = end - at;

		if (n > sizeof(in_core) * page)
			n = sizeof(in_core) * page;
		if (mincore((void *)at, n, in_core) < 0)
			return errno == ENOMEM ? -EFAULT : -errno;
		at += n;
	}
	return 0;
}

static struct exi_region *take(void)
{
	struct exi_region *r = free_regions;

	if (r) {
		free_regions = r->next_free;
		return r;
	}
	if (n_regions == REGIONS_MAX)
		return NULL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->generation = n_regions; /* holds the index until first used */
	atomic_store(&regions[n_regions++], r);
	return r;
}

int exi_mem_register(void *addr, size_t len, int flags, exs_mhandle_t *ret)
{
	struct exi_region *r;
	int err, index;

	if (!addr || !len || (flags & ~EXS_MRF_SHARED) ||
	    (uintptr_t)addr + len < (uintptr_t)addr)
		return -EINVAL;
	err = mapped(addr, len);
	if (err)
		return err;
	exi_mutex_lock(&mem_lock);
	r = take();
	if (r) {
		index = r->generation & (REGIONS_MAX - 1);
		/* The index stays in the low bits, the use count in the high
		 * ones. */
		r->generation =
			(r->generation + (1 << INDEX_BITS)) & 0x7fffffff;
		if (r->generation >> INDEX_BITS == 0)
			r->generation = 1 << INDEX_BITS | index;
		r->memory = (struct exi_memory){ .addr = addr,
						 .len = len,
						 .serial = ++serial };
		*ret = r->generation;
		atomic_store(&r->handle, r->generation);
	}
	exi_mutex_unlock(&mem_lock);
	return r ? 0 : -ENOMEM;
}

static struct exi_region *place_of(exs_mhandle_t m)
{
	return m > 0 ? atomic_load_explicit(&regions[m & (REGIONS_MAX - 1)],
					    memory_order_acquire)
		     : NULL;
}

int exi_mem_find(exs_mhandle_t m, const void *buf, size_t len,
		 struct exi_region **ret)
{
	struct exi_region *r;

	*ret = NULL;
	if (m == EXS_MHANDLE_UNREGISTERED)
		return 0;
	r = place_of(m);
	if (!r || atomic_load_explicit(&r->handle, memory_order_acquire) != m ||
	    !exi_mem_covers(&r->memory, buf, len))
		return -EINVAL;
	*ret = r;
	return 0;
}

int exi_mem_keep(exs_mhandle_t m, const void *buf, size_t len,
		 struct exi_region **ret)
{
	struct exi_region *r = place_of(m);
	int err;

	if (!r)
		return -EINVAL;
	atomic_fetch_add(&r->users, 1);
	err = exi_mem_find(m, buf, len, ret);
	if (err)
		exi_mem_let_go(r);
	return err;
}

const struct exi_memory *exi_mem_of(const struct exi_region *r)
{
	return r ? &r->memory : NULL;
}

void exi_mem_let_go(struct exi_region *r)
{
	atomic_fetch_sub(&r->users, 1);
}

static void forget(struct exi_domain *d, void *arg)
{
	if (d->provider->conn_ops->place_ops)
		d->provider->conn_ops->place_ops->forget(arg);
}

int exi_mem_deregister(exs_mhandle_t m)
{
	struct exi_region *r;
	int ret = -EINVAL;

	exi_mutex_lock(&mem_lock);
	r = place_of(m);
	if (!r || atomic_load(&r->handle) != m)
		goto unlock;
	/* No thread can find it from here on, unless it is in use. */
	atomic_store(&r->handle, 0);
	ret = atomic_load(&r->users) || exi_queue_uses(r) ? -EBUSY : 0;
	if (ret) {
		atomic_store(&r->handle, m);
		goto unlock;
	}
	exi_registry_each_domain(forget, &r->memory);
	r->next_free = free_regions;
	free_regions = r;
unlock:
	exi_mutex_unlock(&mem_lock);
	return ret;
}

void exi_mem_forked(void)
{
	pthread_mutex_init(&mem_lock, NULL);
	/* Calls of other threads do not exist in the child. */
	for (int i = 0; i < n_regions; i++)
		atomic_store(&regions[i]->users, 0);
}
