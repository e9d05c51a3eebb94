/* SPDX-License-Identifier: BSD-2-Clause */
/* Thread cancellation: which threads may be cancelled, and how a sleeping call
 * cleans up then. */
#include "core/base/cancel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

_Atomic bool exi_cancels;
_Thread_local int exi_cancel_was = -1;

void exi_section_unwind(void *arg)
{
	struct exi_section *r = arg;

	r->end(r->arg);
	if (exi_cancel_was < 0)
		return;
	pthread_setcancelstate(exi_cancel_was, NULL);
	exi_cancel_was = -1;
}
