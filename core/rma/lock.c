/* SPDX-License-Identifier: BSD-2-Clause */
/* The slow paths of struct exi_rma_lock: waiting for another thread, and waking
 * it. */
#include "core/rma/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fabric/module.h"
#include "core/rma/watch.h"

void exi_rma_lock_slow(struct exi_rma_lock *l)
{
	int saved = errno;

	/* A thread that had to wait marks the lock as waited for again: there
	 * may be other waiters. */
	while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire))
		syscall(SYS_futex, &l->word, FUTEX_WAIT, 2, NULL, NULL, 0);
	errno = saved;
}

void exi_rma_unlock_slow(struct exi_rma_lock *l)
{
	exi_rma_host->futex_wake((const uint32_t *)&l->word, 1);
}
