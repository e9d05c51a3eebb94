/* SPDX-License-Identifier: BSD-2-Clause */
/* Fabrics between hosts: which one is used, and where it listens. */
#include "core/meet/remote.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/mman.h>

#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/sock/service.h"

/* Connections for which one asked, by a hash of their ends, each in the place
 * of an earlier one: a stranger who asks for many costs nothing more, and only
 * takes the notes of others away. No byte depends on them. Processes that were
 * forked since the first listen share them: one of them is asked for the
 * connections of all. Null: none is kept. */
#define STRANGERS 256u
static _Atomic(_Atomic uint64_t *) strangers;

static void share_strangers(void)
{
	size_t size = STRANGERS * sizeof(uint64_t);
	_Atomic uint64_t *none = NULL;
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page != MAP_FAILED &&
	    !atomic_compare_exchange_strong(&strangers, &none, page))
		munmap(page, size);
}

bool exi_remote_possible(void)
{
	static _Atomic int known; /* 0: not yet; 1: no; 2: yes */
	int k = atomic_load_explicit(&known, memory_order_relaxed);

	if (exi_unlikely(!k)) {
		k = exi_registry_remote_signs(NULL) ? 2 : 1;
		if (k == 2)
			share_strangers();
		atomic_store(&known, k);
	}
	return k == 2;
}

static _Atomic bool used;

const struct exi_provider *exi_remote_provider(int *ret_why)
{
	const struct exi_provider *p = NULL;
	int err = 0;

	if (exi_remote_possible())
		p = exi_registry_remote(&err);
	*ret_why = err == -ENOMEM   ? EXS_X_REASON_MEMORY
		   : err == -ENOKEY ? EXS_X_REASON_NO_KEY
				    : EXS_X_REASON_REMOTE;
	if (p)
		atomic_store(&used, true);
	return p;
}

bool exi_remote_used(void)
{
	return atomic_load(&used);
}

static int domain_of(const struct exi_provider *p, struct exi_domain **ret)
{
	int err = exi_registry_domain(p, ret);

	return err ? err : exi_service_domain(*ret);
}

void exi_remote_listen(const struct exi_listening *at)
{
	const struct exi_provider *p;
	struct exi_domain *d;
	int why, err;

	p = exi_remote_provider(&why);
	if (!p)
		return;
	err = domain_of(p, &d);
	if (!err)
		err = p->remote_ops->listen(d, at);
	if (err)
		exi_info("port %u cannot be reached over %s: %s", at->port,
			 p->name, strerror(-err));
}

void exi_remote_unlisten(const struct exi_listening *at)
{
	const struct exi_provider *p;
	struct exi_domain *d;
	int why;

	p = exi_remote_provider(&why);
	if (p && !exi_registry_domain(p, &d))
		p->remote_ops->unlisten(d, at);
}

/* --- strangers ----------------------------------------------------------- */

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len--)
		h = (h ^ *p++) * 0x100000001b3u; /* FNV-1a */
	return h;
}

static uint64_t hash_of(const struct exi_tuple *t)
{
	uint64_t h = 0xcbf29ce484222325u;

	h = mix(h, t->local, sizeof(t->local));
	h = mix(h, t->peer, sizeof(t->peer));
	h = mix(h, &t->local_port, sizeof(t->local_port));
	return mix(h, &t->peer_port, sizeof(t->peer_port));
}

/* One word each, which nothing else goes with: no order is needed. */
void exi_remote_stranger(const struct exi_tuple *t)
{
	_Atomic uint64_t *all = atomic_load(&strangers);
	uint64_t h = hash_of(t);

	if (all)
		atomic_store_explicit(&all[h % STRANGERS], h,
				      memory_order_relaxed);
}

bool exi_remote_claimed(const struct exi_tuple *t)
{
	_Atomic uint64_t *all = atomic_load(&strangers);
	uint64_t h = hash_of(t);

	return all && atomic_load_explicit(&all[h % STRANGERS],
					   memory_order_relaxed) == h;
}
