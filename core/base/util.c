/* SPDX-License-Identifier: BSD-2-Clause */
/* Small utilities. */
#include "core/base/util.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/rseq.h>

#include "core/base/fds.h"

ptrdiff_t exi_cpu_at;
static _Thread_local uint32_t asked = UINT32_MAX; /* no CPU */

/* Both are at the same offset from every thread's pointer. */
static __attribute__((constructor)) void find_cpu(void)
{
	exi_cpu_at = __rseq_size > 0
			     ? __rseq_offset +
				       (ptrdiff_t)offsetof(struct rseq, cpu_id)
			     : (const char *)&asked -
				       (const char *)__builtin_thread_pointer();
}

int exi_cpu_ask(void)
{
	int cpu = sched_getcpu();

	asked = (uint32_t)cpu;
	return cpu;
}

void exi_fds_join(void)
{
	if (!exi_fds_depth++)
		atomic_fetch_add(&exi_fds_makers, 1);
}

void exi_fds_lent(void)
{
	atomic_fetch_add(&exi_fds_makers, 1);
}

void exi_fds_returned(void)
{
	atomic_fetch_sub(&exi_fds_makers, 1);
}

#define HELD_MAX 8

/* The descriptor whose duplicates hold the other numbers; fd + 1. */
static _Atomic int blank;
static _Atomic int held[HELD_MAX];

/* At most an eighth of the library's share. */
static unsigned int held_most(void)
{
	unsigned int most = exi_fds_soft_limit() / 32;

	return most < HELD_MAX ? most : HELD_MAX;
}

static int find_blank(void)
{
	int fd, none = 0;

	if (!atomic_load(&blank)) {
		exi_fds_begin();
		fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC));
		exi_fds_end();
		if (fd >= 0 &&
		    !atomic_compare_exchange_strong(&blank, &none, fd + 1))
			exi_fd_close(fd);
	}
	return atomic_load(&blank) - 1;
}

static bool hold(int fd)
{
	unsigned int i, most = held_most();

	for (i = 0; fd >= 0 && i < most; i++) {
		int none = 0;

		if (atomic_compare_exchange_strong(&held[i], &none, fd + 1))
			return true;
	}
	return false;
}

static unsigned int held_now(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < HELD_MAX; i++)
		n += atomic_load_explicit(&held[i], memory_order_relaxed) != 0;
	return n;
}

/* Numbers that a call has just asked for are left to the program. */
#define AGAIN_NS 100000000u
static _Atomic uint64_t asked_at;

void exi_fds_hold_some(void)
{
	int from, fd;

	if (exi_now_ns() - atomic_load(&asked_at) < AGAIN_NS)
		return;
	while (held_now() < held_most() && (from = find_blank()) >= 0) {
		exi_fds_begin();
		fd = exi_fd_keep(fcntl(from, F_DUPFD_CLOEXEC, 0));
		exi_fds_end();
		if (fd < 0)
			return;
		if (!hold(fd))
			exi_fd_close(fd);
	}
}

unsigned int exi_fds_let_go(void)
{
	unsigned int i, n = 0;

	atomic_store(&asked_at, exi_now_ns());
	for (i = 0; i < HELD_MAX; i++) {
		int fd = atomic_exchange(&held[i], 0) - 1;

		n += fd >= 0;
		exi_fd_close(fd);
	}
	return n;
}
