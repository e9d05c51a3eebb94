/* SPDX-License-Identifier: BSD-2-Clause */
/* CPUs that other threads want. */
#include "core/base/busy.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_busy exi_busy_cpus[EXI_BUSY_CPUS];

bool exi_busy_still(struct exi_losses *l)
{
	uint64_t end = atomic_load_explicit(&l->until, memory_order_relaxed);

	if (exi_now_ns() < end)
		return true;
	/* Unless another thread has just renewed the finding. */
	atomic_compare_exchange_strong_explicit(
		&l->until, &end, 0, memory_order_relaxed, memory_order_relaxed);
	return false;
}

/* Counts one more loss. The mean starts as if `first' free losses had been
 * counted, and covers the last `of' losses or more. Returns the mean. */
static uint64_t count(struct exi_losses *l, uint64_t loss, uint32_t first,
		      uint32_t of)
{
	uint64_t lost = atomic_load_explicit(&l->lost, memory_order_relaxed);
	uint32_t n = atomic_load_explicit(&l->n, memory_order_relaxed) + 1;

	lost += loss;
	if (exi_unlikely(n <= first))
		n = first + 1;
	if (exi_unlikely(n >= 2 * of)) {
		lost /= 2;
		n /= 2;
	}
	atomic_store_explicit(&l->lost, lost, memory_order_relaxed);
	atomic_store_explicit(&l->n, n, memory_order_relaxed);
	return lost / n;
}

static void found_out(struct exi_losses *l, uint64_t now, uint64_t loss)
{
	uint64_t ended = atomic_load_explicit(&l->ended, memory_order_relaxed);
	uint64_t held = atomic_load_explicit(&l->held, memory_order_relaxed);
	uint64_t holds = loss < EXI_BUSY_MAX / EXI_BUSY_TIMES
				 ? loss * EXI_BUSY_TIMES
				 : EXI_BUSY_MAX;

	/* The finding is confirmed: within its time, or soon after it. */
	if (now < ended + held) {
		held *= now < ended ? 1 : 2;
		if (holds < held)
			holds = held < EXI_BUSY_MAX ? held : EXI_BUSY_MAX;
	}
	atomic_store_explicit(&l->held, holds, memory_order_relaxed);
	atomic_store_explicit(&l->ended, now + holds, memory_order_relaxed);
	atomic_store_explicit(&l->until, now + holds, memory_order_relaxed);
}

bool exi_busy_lost(int cpu, uint64_t now, uint64_t loss)
{
	struct exi_losses *l = &exi_busy_of(cpu)->wanted;

	if (exi_likely(loss < EXI_BUSY_RAN) ||
	    count(l, loss, 0, EXI_BUSY_WANTED_OF) < EXI_BUSY_WANTED ||
	    loss < EXI_BUSY_WANTED)
		return false;
	found_out(l, now, loss);
	return true;
}

bool exi_busy_gave(int cpu, uint64_t now, uint64_t loss)
{
	struct exi_losses *l = &exi_busy_of(cpu)->dear;
	uint64_t mean = count(l, loss, EXI_BUSY_DEAR_FIRST, EXI_BUSY_DEAR_OF);

	if (exi_likely(loss < EXI_BUSY_DEAR_LEAST))
		return false;
	if (mean >= EXI_BUSY_DEAR)
		found_out(l, now, loss);
	return true;
}
