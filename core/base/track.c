/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of track.h: all changes of them. */
#include "core/base/track.h"

#include <stdatomic.h>
#include <stdint.h>

_Atomic uint32_t *exi_track;

void exi_track_put(int fd, uint32_t bits)
{
	uint32_t was;

	if (!exi_track || (uint32_t)fd >= EXI_TRACKED)
		return;
	was = atomic_load(&exi_track[fd]);
	while (!atomic_compare_exchange_weak(&exi_track[fd], &was,
					     (was + EXI_TRACK_COUNT) | bits))
		;
}

void exi_track_clear(int fd, uint32_t was, uint32_t bits)
{
	if (was)
		atomic_compare_exchange_strong(&exi_track[fd], &was,
					       was & ~bits);
}
