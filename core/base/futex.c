/* SPDX-License-Identifier: BSD-2-Clause */
/* futex(2) and futex_waitv(2), and the lock's slow paths. */
#include "core/base/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* Laid out as the kernel's struct futex_waitv, which old headers lack. */
struct waiter {
	uint64_t value;
	uint64_t addr;
	uint32_t flags;
	uint32_t zero;
};
_Static_assert(sizeof(struct waiter) == 24, "struct futex_waitv");

#define WAITER_U32 2

static int wait_one(const struct exi_word *w, const struct timespec *deadline)
{
	/* FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time. */
	return (int)syscall(SYS_futex, w->addr, FUTEX_WAIT_BITSET, w->value,
			    deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

static int wait_many(const struct exi_word *words, unsigned int n,
		     const struct timespec *deadline)
{
	struct waiter v[EXI_FUTEX_WAIT_MAX];
	unsigned int i;

	for (i = 0; i < n; i++)
		v[i] = (struct waiter){ .value = words[i].value,
					.addr = (uintptr_t)words[i].addr,
					.flags = WAITER_U32 };
	return (int)syscall(SYS_futex_waitv, v, n, 0, deadline,
			    CLOCK_MONOTONIC);
}

int exi_futex_wait(const struct exi_word *words, unsigned int n,
		   const struct timespec *deadline)
{
	int saved = errno;
	int ret = n == 1 ? wait_one(words, deadline)
			 : wait_many(words, n, deadline);
	int err = errno;

	errno = saved;
	if (ret >= 0 || err == EAGAIN)
		return 0;
	return -err;
}

int exi_futex_wake(const uint32_t *addr, int count)
{
	int saved = errno;
	long ret = syscall(SYS_futex, addr, FUTEX_WAKE, count, NULL, NULL, 0);

	ret = ret < 0 ? -errno : ret;
	errno = saved;
	return (int)ret;
}

bool exi_futex_waitv_works(void)
{
	static _Atomic int known; /* 0 unknown, 1 yes, 2 no */
	int k = atomic_load_explicit(&known, memory_order_relaxed);
	int saved = errno;

	if (k == 0) {
		/* No waiters is EINVAL where the call exists. */
		syscall(SYS_futex_waitv, NULL, 0, 0, NULL, CLOCK_MONOTONIC);
		k = errno == EINVAL ? 1 : 2;
		atomic_store_explicit(&known, k, memory_order_relaxed);
		errno = saved;
	}
	return k == 1;
}

bool exi_futex_owner_is_dead(uint32_t tid)
{
	int saved = errno;
	bool dead = kill((pid_t)tid, 0) < 0 && errno == ESRCH;

	errno = saved;
	return dead;
}
