/* SPDX-License-Identifier: BSD-2-Clause */
/* Unique numbers: for processes, uses and secrets. */
#include "core/base/ids.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/rseq.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/base/util.h"

static _Atomic uint64_t process_token;

uint64_t exi_random(void)
{
	uint64_t r = 0;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = exi_now_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
	return r;
}

static _Atomic uint64_t numbers; /* the next one; 0: none was taken yet */
static _Atomic uint64_t secret;

/* The value of *v, which is first set to a random number other than 0 if it is
 * 0. */
static uint64_t seeded(_Atomic uint64_t *v)
{
	uint64_t ret = atomic_load_explicit(v, memory_order_relaxed), none = 0;

	if (exi_likely(ret))
		return ret;
	ret = exi_random() | 1;
	return atomic_compare_exchange_strong(v, &none, ret) ? ret : none;
}

uint64_t exi_number(void)
{
	uint64_t ret;

	seeded(&numbers);
	do
		ret = atomic_fetch_add_explicit(&numbers, 1,
						memory_order_relaxed);
	while (exi_unlikely(!ret));
	return ret;
}

uint64_t exi_secret(uint64_t n)
{
	n ^= seeded(&secret);
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
	n = (n ^ n >> 27) * 0x94d049bb133111ebu;
	return n ^ n >> 31;
}

uint64_t exi_process_token(void)
{
	return seeded(&process_token);
}

uint64_t exi_use_token_now = 1;

void exi_process_forked(bool child)
{
	__atomic_store_n(&exi_use_token_now, exi_random() | 1,
			 __ATOMIC_RELAXED);
	if (!child)
		return;
	exi_self.tid = 0; /* it can still release its locks */
	atomic_store(&process_token, 0);
	atomic_store(&numbers, 0);
}
