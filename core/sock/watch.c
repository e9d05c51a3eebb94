/* SPDX-License-Identifier: BSD-2-Clause */
/* When the watch for unseen waits is due. */
#include "core/sock/watch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/select.h>

#include "core/base/util.h"
#include "core/sock/service.h"
#include "core/sock/table.h"

/* True until the shim is there: nothing is to start the watch. */
_Atomic bool exi_unseen_watching = true;
_Atomic uint64_t exi_watch_due = UINT64_MAX;

void exi_unseen_watch(void)
{
	if (atomic_exchange(&exi_unseen_watching, true))
		return;
	atomic_store(&exi_watch_due, exi_now_ns() + EXI_WATCH_TICK_NS);
	if (exi_service_start() == 0 && !exi_service_self())
		exi_service_reschedule();
}

void exi_unseen_bell(struct exi_sock *sk)
{
	if (atomic_exchange_explicit(&sk->guarded, false, memory_order_relaxed))
		exi_unseen_restart();
}

uint64_t exi_unseen_due(void)
{
	return atomic_load(&exi_watch_due);
}
