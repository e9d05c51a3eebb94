/* SPDX-License-Identifier: BSD-2-Clause */
/* The marks of traffic at which a connection looks for its peer. */
#include "core/meet/marks.h"

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

static const uint64_t sent_marks[] = { 64u << 10, 256u << 10, 1u << 20,
				       4u << 20, 16u << 20 };

uint64_t exi_marks_next(uint64_t bytes)
{
	unsigned int i;

	for (i = 0; i < sizeof(sent_marks) / sizeof(sent_marks[0]); i++)
		if (sent_marks[i] > bytes)
			return sent_marks[i];
	return UINT64_MAX;
}

void exi_marks_none(struct exi_shared *sh)
{
	atomic_store(&sh->half[EXI_RX].meet_at, UINT64_MAX);
	atomic_store(&sh->half[EXI_TX].meet_at, UINT64_MAX);
}

void exi_marks_later_locked(struct exi_sock *sk)
{
	struct exi_half *half = sk->sh->half;
	uint64_t tx = __atomic_load_n(&half[EXI_TX].bytes, __ATOMIC_RELAXED);
	uint64_t rx = __atomic_load_n(&half[EXI_RX].bytes, __ATOMIC_RELAXED);
	uint64_t mark = exi_marks_next(tx > rx ? tx : rx);

	EXI_LOCKED(&sk->link_lock);
	if (mark == UINT64_MAX)
		return;
	atomic_store(&sk->sh->met, 0);
	atomic_store(&half[EXI_TX].meet_at, mark);
	atomic_store(&half[EXI_RX].meet_at, mark);
}
