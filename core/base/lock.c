/* SPDX-License-Identifier: BSD-2-Clause */
/* The slow paths of a lock that another thread has. */
#include "core/base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/futex.h"
#include "core/base/util.h"

_Thread_local struct exi_self exi_self;
void (*_Atomic exi_held_late)(void);

uint32_t exi_tid_fill(void)
{
	exi_self.tid = (uint32_t)syscall(SYS_gettid);
	return exi_self.tid;
}

void exi_held_end_slow(void)
{
	void (*late)(void);

	/* A jump that did not leave the code holding a lock was taken for one
	 * that did. */
	if (exi_unlikely(exi_self.held == UINT32_MAX))
		exi_self.held = 0;
	if (exi_self.held != EXI_HELD_LATE)
		return;
	late = atomic_load(&exi_held_late);
	if (late)
		late();
}

void exi_lock_slow(struct exi_lock *l)
{
	uint32_t self = exi_tid();
	unsigned int spin;
	uint32_t w;

	for (spin = 0; spin < 64; spin++) {
		w = 0;
		if (atomic_compare_exchange_strong_explicit(
			    &l->word, &w, self, memory_order_acquire,
			    memory_order_relaxed))
			return;
		exi_pause();
	}
	for (;;) {
		struct timespec deadline;
		struct exi_word word = { .addr = (const uint32_t *)&l->word };
		int ret;

		w = atomic_load_explicit(&l->word, memory_order_relaxed);
		if (w == 0) {
			/* Contended from here on: others may still sleep. */
			if (atomic_compare_exchange_strong_explicit(
				    &l->word, &w, self | EXI_LOCK_CONTENDED,
				    memory_order_acquire, memory_order_relaxed))
				return;
			continue;
		}
		if (!(w & EXI_LOCK_CONTENDED) &&
		    !atomic_compare_exchange_strong_explicit(
			    &l->word, &w, w | EXI_LOCK_CONTENDED,
			    memory_order_relaxed, memory_order_relaxed))
			continue;
		w |= EXI_LOCK_CONTENDED;
		deadline = exi_ns_timespec(exi_now_ns() + EXI_LOCK_SLEEP_NS);
		word.value = w;
		/* A thread that holds no other lock does not defer handlers for
		 * as long as the owner may have the lock, which in a stopped
		 * process is for ever. */
		exi_held_end();
		ret = exi_futex_wait(&word, 1, &deadline);
		exi_held_begin();
		if (ret == -ETIMEDOUT &&
		    exi_futex_owner_is_dead(w & ~EXI_LOCK_CONTENDED) &&
		    atomic_compare_exchange_strong_explicit(
			    &l->word, &w, self | EXI_LOCK_CONTENDED,
			    memory_order_acquire, memory_order_relaxed))
			return;
	}
}

void exi_unlock_slow(struct exi_lock *l)
{
	atomic_exchange_explicit(&l->word, 0, memory_order_release);
	exi_futex_wake((const uint32_t *)&l->word, 1);
}
