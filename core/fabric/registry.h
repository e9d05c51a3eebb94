/* SPDX-License-Identifier: BSD-2-Clause */
/* The providers of this build, and the domains open in this process. */
#ifndef EXI_CORE_FABRIC_REGISTRY_H
#define EXI_CORE_FABRIC_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/config.h"
#include "core/fabric/provider.h"

/* The provider on which every connection begins, and to which it may return. */
extern const struct exi_provider exi_provider_tcp;

/* A fabric of this project, whether it is in this build or not. */
struct exi_registry_row {
	const char *name;
	const struct exi_provider *provider; /* null: not in this build */
	bool configured;		     /* EXS_PROVIDER lets it be used */
	bool usable;
	int err;       /* when not usable, -errno; else 0 */
	char why[256]; /* when not usable, why; else "" */
};

/* Fills row i: opens the fabric's module and probes it. Returns false if there
 * is no such row. For the tools. */
bool exi_registry_row(unsigned int i, struct exi_registry_row *ret);

/* The row of a name that the configuration knows. */
void exi_registry_find(const char *name, struct exi_registry_row *ret);

/* Checks a provider's tables. 0: they have every member that the core calls
 * without a check: those that the capabilities promise, and all of a group of
 * members if one of the group is there. Else -EINVAL. */
int exi_provider_check(const struct exi_provider *p);

/* The bit set of wire ids that are configured and usable here. */
uint64_t exi_registry_wire_ids(void);

/* The ids of those that a connection with these settings may use. */
uint64_t exi_registry_wire_ids_of(const struct exi_config_way *w);
/* Whether a connection with these settings may use this provider. */
bool exi_registry_allows(const struct exi_config_way *w,
			 const struct exi_provider *p);

/* The best provider of the mask for a connection within a host; null if there
 * is none. same_process: both ends are in this process. */
const struct exi_provider *exi_registry_choose(uint64_t mask,
					       bool same_process);
const struct exi_provider *exi_registry_by_wire_id(uint64_t wire_id);

/* Whether a provider between hosts is configured whose device seems to be here,
 * and a connection with these settings may use it; null: any connection. */
bool exi_registry_remote_signs(const struct exi_config_way *w);
/* The first usable fabric between hosts, with its module opened. Null: there is
 * none, and *ret_err is the error of the last one tried. -ENOKEY: without a key
 * no fabric is even opened. */
const struct exi_provider *exi_registry_remote(int *ret_err);

/* Opens the provider's domain at first use. Thread-safe. */
int exi_registry_domain(const struct exi_provider *p, struct exi_domain **ret);

/* Calls f for each open domain. */
void exi_registry_each_domain(void (*f)(struct exi_domain *d, void *arg),
			      void *arg);

/* Called in the child after fork: every domain forgets the parent's state. */
void exi_registry_forked(void);

#endif
