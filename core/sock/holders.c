/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that hold a connection. Each is checked by kill(2) with signal 0: a
 * number that is another process's by now, or a zombie, continues to count. */
#include "core/sock/holders.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

static pid_t self;	    /* 0: not asked yet */
static _Atomic bool shared; /* there was a fork */
/* Our number means nothing to the others, nor theirs to us. */
static bool foreign;
static _Atomic uint32_t spawning; /* threads that spawn a program now */

static pid_t self_pid(void)
{
	pid_t pid = __atomic_load_n(&self, __ATOMIC_RELAXED);

	if (!pid) {
		pid = getpid();
		__atomic_store_n(&self, pid, __ATOMIC_RELAXED);
	}
	return pid;
}

/* The first name that is `was` becomes `is`. */
static bool rename_one(struct exi_holders *h, int32_t was, int32_t is)
{
	for (int i = 0; i < EXI_HOLDERS_NAMED; i++) {
		int32_t old = was;

		if (atomic_compare_exchange_strong(&h->pid[i], &old, is))
			return true;
	}
	return false;
}

static void name_self(struct exi_holders *h)
{
	if (!foreign)
		rename_one(h, 0, self_pid());
}

bool exi_holders_claim(struct exi_holders *h)
{
	uint32_t none = 0;

	if (!atomic_compare_exchange_strong(&h->n, &none, 1))
		return false;
	atomic_store(&h->strays, 0);
	atomic_store(&h->heir, 0);
	name_self(h);
	return true;
}

void exi_holders_leave(struct exi_holders *h)
{
	/* The name is another one while this child is at an exec that may
	 * fail. */
	if (!foreign && !rename_one(h, self_pid(), 0))
		rename_one(h, -self_pid(), 0);
	atomic_fetch_sub(&h->n, 1);
}

void exi_holders_prefork(struct exi_holders *h)
{
	self_pid(); /* for the child to compare */
	atomic_store(&shared, true);
	atomic_fetch_add(&h->n, 1);
}

void exi_holders_unfork(struct exi_holders *h)
{
	atomic_fetch_sub(&h->n, 1);
}

void exi_holders_forked(void)
{
	/* A process in a PID namespace of its own has no such parent. */
	foreign = foreign || (self && getppid() != self);
	self = 0;
	atomic_store(&shared, false);
	atomic_store(&spawning, 0);
}

void exi_holders_inherit(struct exi_holders *h)
{
	name_self(h);
}

static bool has_ended(pid_t pid)
{
	int saved = errno;
	bool ret = kill(pid < 0 ? -pid : pid, 0) < 0 && errno == ESRCH;

	errno = saved;
	return ret;
}

uint32_t exi_holders_count(struct exi_holders *h)
{
	uint32_t n = atomic_load(&h->n);

	if (!n || foreign)
		return n;
	for (int i = 0; i < EXI_HOLDERS_NAMED; i++) {
		int32_t pid = atomic_load(&h->pid[i]);

		if (pid && pid != self_pid() && has_ended(pid) &&
		    atomic_compare_exchange_strong(&h->pid[i], &pid, 0))
			atomic_fetch_sub(&h->n, 1);
	}
	return atomic_load(&h->n);
}

bool exi_holders_alone(struct exi_holders *h)
{
	return atomic_load(&h->n) == 1 || exi_holders_count(h) == 1;
}

void exi_holders_exec(struct exi_holders *h, bool leaves)
{
	if (!foreign)
		rename_one(h, leaves ? self_pid() : -self_pid(),
			   leaves ? -self_pid() : self_pid());
}

/* How many may use it. */
static uint32_t users(struct exi_holders *h)
{
	uint32_t n = exi_holders_count(h);

	for (int i = 0; i < EXI_HOLDERS_NAMED; i++)
		n -= atomic_load(&h->pid[i]) < 0;
	return n;
}

/* A process that becomes a stray counts as one before it leaves: so the strays
 * are looked at last. */
bool exi_holders_sole(struct exi_holders *h)
{
	return users(h) == 1 && !atomic_load(&h->strays);
}

void exi_holders_stray(struct exi_holders *h)
{
	if (atomic_load(&h->heir) != self_pid()) /* else it counts already */
		atomic_fetch_add(&h->strays, 1);
}

bool exi_holders_bequeath(struct exi_holders *h)
{
	atomic_fetch_add(&h->strays, 1);
	atomic_store(&h->heir, self_pid());
	return users(h) == 1 && atomic_load(&h->strays) == 1;
}

/* Whether only the heir uses it, which may be among the holders still. */
static bool has_heir_only(struct exi_holders *h, int32_t heir)
{
	uint32_t n = users(h);

	for (int i = 0; n && i < EXI_HOLDERS_NAMED; i++)
		if (atomic_load(&h->pid[i]) == heir)
			return n == 1;
	return !n;
}

int32_t exi_holders_heir(struct exi_holders *h)
{
	int32_t heir;

	if (foreign || !rename_one(h, self_pid(), -self_pid()))
		return 0;
	heir = atomic_load(&h->heir);
	return heir && has_heir_only(h, heir) && atomic_load(&h->strays) == 1
		       ? heir
		       : 0;
}

bool exi_holders_shared(void)
{
	return atomic_load(&shared);
}

void exi_holders_spawns(void)
{
	atomic_fetch_add(&spawning, 1);
	atomic_thread_fence(memory_order_seq_cst);
}

void exi_holders_spawned(void)
{
	atomic_fetch_sub(&spawning, 1);
}

uint32_t exi_holders_spawning(void)
{
	return atomic_load(&spawning);
}

void exi_holders_made(struct exi_holders *h)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (exi_unlikely(exi_holders_spawning()))
		exi_holders_stray(h);
}
