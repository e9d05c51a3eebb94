/* SPDX-License-Identifier: BSD-2-Clause */
/* The providers of this build, and the domains open in this process. */
#ifndef EXI_CORE_FABRIC_REGISTRY_H
#define EXI_CORE_FABRIC_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/config.h"
#include "core/fabric/provider.h"

/* The one every connection begins and may end on. */
extern const struct exi_provider exi_provider_tcp;

/* A name this project knows, whether it is in this build or not. */
struct exi_registry_row {
	const char *name;
	const struct exi_provider *provider; /* null: not in this build */
	bool configured;		     /* EXS_PROVIDER lets it be used */
	bool usable;
	int err;       /* when not usable, -errno; else 0 */
	char why[256]; /* when not usable, why; else "" */
};

/* Fills row i, opening its module and probing; false when there is none. For
 * the tools. */
bool exi_registry_row(unsigned int i, struct exi_registry_row *ret);

/* The row of a name that the configuration knows. */
void exi_registry_find(const char *name, struct exi_registry_row *ret);

/* Checks a provider's tables: 0 when they have every member that the core calls
 * without a look whether it is there: those that the capabilities promise, and
 * where one of several that belong together is there, all of them. Else
 * -EINVAL. */
int exi_provider_check(const struct exi_provider *p);

/* The bit set of wire ids that are configured and usable here. */
uint64_t exi_registry_wire_ids(void);

/* Those of them that a connection of this way may use. */
uint64_t exi_registry_wire_ids_of(const struct exi_config_way *w);
/* Whether it may use this one. */
bool exi_registry_allows(const struct exi_config_way *w,
			 const struct exi_provider *p);

/* The best provider for a same-host connection among those of the mask; null
 * when none. same_process says that both ends are in this process. */
const struct exi_provider *exi_registry_choose(uint64_t mask,
					       bool same_process);
const struct exi_provider *exi_registry_by_wire_id(uint64_t wire_id);

/* Whether a provider between hosts is configured that has signs of a device,
 * and may be used by a connection of this way; null: of any. */
bool exi_registry_remote_signs(const struct exi_config_way *w);
/* The first fabric between hosts that is usable, its module opened; null, and
 * *ret_err of the last that was tried. -ENOKEY: it is not even opened without a
 * key. */
const struct exi_provider *exi_registry_remote(int *ret_err);

/* Opens the provider's domain at first use. Thread-safe. */
int exi_registry_domain(const struct exi_provider *p, struct exi_domain **ret);

/* Calls f for each open domain. */
void exi_registry_each_domain(void (*f)(struct exi_domain *d, void *arg),
			      void *arg);

/* The child after fork: every domain forgets what is the parent's. */
void exi_registry_forked(void);

#endif
