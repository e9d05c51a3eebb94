/* SPDX-License-Identifier: BSD-2-Clause */
/* Sleeping on words of memory (futexes). All futexes are shared, because other
 * processes map the words. */
#ifndef EXI_CORE_BASE_FUTEX_H
#define EXI_CORE_BASE_FUTEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct exi_word;

#define EXI_FUTEX_WAIT_MAX 128

/* Sleeps while each word has its value. deadline is CLOCK_MONOTONIC; null:
 * none. 0: woken, or a word differs; -ETIMEDOUT; -EINTR. n > 1 needs
 * exi_futex_waitv_works(). */
int exi_futex_wait(const struct exi_word *words, unsigned int n,
		   const struct timespec *deadline);
/* Returns the number of threads woken; -EFAULT: the address has no page, and
 * none can be made. */
int exi_futex_wake(const uint32_t *addr, int count);
bool exi_futex_waitv_works(void);

/* A word in memory to sleep on while it has this value. */
struct exi_word {
	const uint32_t *addr;
	uint32_t value;
};

/* Whether no thread of this id exists in this pid namespace. Keeps errno. */
bool exi_futex_owner_is_dead(uint32_t tid);

#endif
