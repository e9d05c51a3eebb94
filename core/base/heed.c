/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of heed.h: all changes of them. */
#include "core/base/heed.h"

#include <stdatomic.h>
#include <stdint.h>

_Atomic uint32_t *exi_heed;

void exi_heed_put(int fd, uint32_t bits)
{
	uint32_t was;

	if (!exi_heed || (uint32_t)fd >= EXI_HEEDED)
		return;
	was = atomic_load(&exi_heed[fd]);
	while (!atomic_compare_exchange_weak(&exi_heed[fd], &was,
					     (was + EXI_HEED_COUNT) | bits))
		;
}

void exi_heed_clear(int fd, uint32_t was, uint32_t bits)
{
	if (was)
		atomic_compare_exchange_strong(&exi_heed[fd], &was,
					       was & ~bits);
}
