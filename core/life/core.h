/* SPDX-License-Identifier: BSD-2-Clause */
/* Starts the core in a process. */
#ifndef EXI_CORE_LIFE_CORE_H
#define EXI_CORE_LIFE_CORE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/util.h"

/* Idempotent and thread-safe. -ENOMEM; -EINVAL: the configuration is refused;
 * -ENODEV: the fabric of EXS_REQUIRE cannot be used; -EBUSY. The reason is
 * logged. */
EXI_SHIM int exi_core_init(void);

/* Called before and after a fork that runs no atfork handlers of the C
 * library. */
EXI_SHIM void exi_core_fork_begins(void);
EXI_SHIM void exi_core_forked(bool child);
/* Called with the result of a call that forks; less than 0: no child was
 * made. */
EXI_SHIM void exi_core_fork_over(long pid);

/* Whether the library has started in this process; read by exi_core_ready(). */
EXI_SHIM extern _Atomic bool exi_core_started;
static inline bool exi_core_ready(void)
{
	return exi_likely(
		atomic_load_explicit(&exi_core_started, memory_order_acquire));
}

#endif
