/* SPDX-License-Identifier: BSD-2-Clause */
/* Starting the core of a process. */
#ifndef EXI_CORE_LIFE_CORE_H
#define EXI_CORE_LIFE_CORE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/util.h"

/* Idempotent, thread-safe. -ENOMEM; -EINVAL: the configuration refuses;
 * -ENODEV: what EXS_REQUIRE names cannot be used; -EBUSY. The reason was
 * logged. */
EXI_SHIM int exi_core_init(void);

/* Before and after a fork of which the C library tells nobody. */
EXI_SHIM void exi_core_fork_begins(void);
EXI_SHIM void exi_core_forked(bool child);
/* The result of a call that forks, or fails before it does: less than 0, no
 * child. */
EXI_SHIM void exi_core_fork_over(long pid);

/* The library has started in this process; read through exi_core_ready(). */
EXI_SHIM extern _Atomic bool exi_core_started;
static inline bool exi_core_ready(void)
{
	return exi_likely(
		atomic_load_explicit(&exi_core_started, memory_order_acquire));
}

#endif
