/* SPDX-License-Identifier: BSD-2-Clause */
/* The numbers of sends with MSG_ZEROCOPY. */
#include "core/sock/zerocopy.h"

#include <linux/errqueue.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

bool exi_zerocopy_served;

bool exi_zerocopy_on(int fd)
{
	int on = 0;
	socklen_t len = sizeof(on);

	return getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, &len) == 0 && on;
}

void exi_zerocopy_clear(struct exi_zerocopy *z)
{
	atomic_store_explicit(&z->state, 0, memory_order_relaxed);
	z->next = z->kernel = z->early = z->n_runs = 0;
	z->rests = false;
}

/* Removes the runs that were reported, and updates the state. */
static void tidy(struct exi_zerocopy *z)
{
	uint32_t state = z->rests ? EXI_ZEROCOPY_DUE : 0, i, n = 0;

	for (i = 0; i < z->n_runs; i++) {
		if (!z->runs[i].untold)
			continue;
		state |= z->runs[i].copied ? EXI_ZEROCOPY_DUE
					   : EXI_ZEROCOPY_KERNEL;
		z->runs[n++] = z->runs[i];
	}
	z->n_runs = n;
	atomic_store(&z->state, state);
}

/* Whether the next send of a kind continues the newest run. What came between
 * may have been reported, and be gone. */
static bool goes_on(const struct exi_zerocopy *z, bool copied)
{
	const struct exi_zerocopy_run *r;

	if (!z->n_runs)
		return false;
	r = &z->runs[z->n_runs - 1];
	return r->copied == copied && r->first + r->n == z->next;
}

bool exi_zerocopy_has_room(const struct exi_zerocopy *z)
{
	return z->n_runs <= EXI_ZEROCOPY_RUNS - 2 || goes_on(z, false);
}

/* n more sends of a kind. A copied one always has a place: the kernel's leave
 * one. Sends of the kernel's that find none were not intercepted, or made while
 * others were copied; they are reported as if they came last. */
static void add(struct exi_zerocopy *z, bool copied, uint32_t n)
{
	uint32_t most = EXI_ZEROCOPY_RUNS - !copied;
	struct exi_zerocopy_run *r;

	if (!goes_on(z, copied) && z->n_runs < most)
		z->runs[z->n_runs++] = (struct exi_zerocopy_run){
			.copied = copied,
			.first = z->next,
			.kernel = z->kernel,
		};
	if (goes_on(z, copied)) {
		r = &z->runs[z->n_runs - 1];
		r->n += n;
		r->untold += n;
	}
	z->next += n;
	z->kernel += copied ? 0 : n;
	tidy(z);
}

void exi_zerocopy_by_kernel(struct exi_zerocopy *z)
{
	if (z->early)
		z->early--;
	else
		add(z, false, 1);
}

void exi_zerocopy_copied(struct exi_zerocopy *z)
{
	add(z, true, 1);
}

static struct exi_zerocopy_run *run_of(struct exi_zerocopy *z, uint32_t kernel)
{
	for (uint32_t i = 0; i < z->n_runs; i++)
		if (!z->runs[i].copied &&
		    kernel - z->runs[i].kernel < z->runs[i].n)
			return &z->runs[i];
	return NULL;
}

struct exi_zerocopy_note exi_zerocopy_told(struct exi_zerocopy *z,
					   struct exi_zerocopy_note kernels)
{
	struct exi_zerocopy_note ret = kernels;
	uint32_t ahead = kernels.last + 1 - z->kernel;
	uint32_t n = kernels.last - kernels.first + 1, at;
	struct exi_zerocopy_run *r;

	/* The send is done, and has not returned to its thread. */
	if ((int32_t)ahead > 0) {
		add(z, false, ahead);
		z->early += ahead;
	}
	z->rests = false;
	r = run_of(z, kernels.first);
	if (!r) {
		ret.first = z->next - (z->kernel - kernels.first);
		ret.last = ret.first + n - 1;
		tidy(z);
		return ret;
	}
	at = kernels.first - r->kernel;
	ret.first = r->first + at;
	if (n > r->n - at) {
		z->rests = true;
		z->rest = kernels;
		n = r->n - at;
		z->rest.first += n;
	}
	ret.last = ret.first + n - 1;
	r->untold -= n < r->untold ? n : r->untold;
	tidy(z);
	return ret;
}

bool exi_zerocopy_take(struct exi_zerocopy *z, bool asked,
		       struct exi_zerocopy_note *ret)
{
	uint32_t i;

	if (z->rests && !(z->n_runs && z->runs[0].copied)) {
		*ret = exi_zerocopy_told(z, z->rest);
		return true;
	}
	for (i = 0; i < z->n_runs; i++) {
		struct exi_zerocopy_run *r = &z->runs[i];

		if (!r->copied && !asked)
			return false;
		if (!r->copied)
			continue;
		*ret = (struct exi_zerocopy_note){
			.first = r->first,
			.last = r->first + r->n - 1,
			.code = SO_EE_CODE_ZEROCOPY_COPIED,
		};
		r->untold = 0;
		tidy(z);
		return true;
	}
	return false;
}
