/* SPDX-License-Identifier: BSD-2-Clause */
/* Counting and timing.
 *
 * Reading the clock costs a good part of the fastest round trips. So only every
 * other block of iterations times single round trips, with one read for each
 * (an end is the start of the next); the blocks between are timed as a whole.
 * The difference is the cost of the clock in place, and is subtracted from the
 * single timings. */
#ifndef EXS_TOOLS_PERF_METER_H
#define EXS_TOOLS_PERF_METER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "tools/perf.h"

/* A histogram of values up to 2^41 whose buckets are at most 1/128 wide. */
#define HIST_SUB_BITS 7
#define HIST_BUCKETS  ((41 - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct hist {
	uint64_t n;
	uint64_t min;
	uint64_t max;
	uint64_t count[HIST_BUCKETS];
};

static inline void hist_add(struct hist *h, uint64_t v)
{
	uint64_t last = (UINT64_C(1) << 41) - 1;
	unsigned int shift;

	if (v < h->min || !h->n)
		h->min = v;
	if (v > h->max)
		h->max = v;
	h->n++;
	v = v > last ? last : v;
	shift = v >> HIST_SUB_BITS ? 63 - HIST_SUB_BITS - __builtin_clzll(v)
				   : 0;
	h->count[(shift << HIST_SUB_BITS) + (v >> shift)]++;
}

void hist_merge(struct hist *into, const struct hist *from);
/* The value that a share q of all values do not exceed; 0 if there are none. */
double hist_quantile(const struct hist *h, double q);

struct perf_meter {
	uint64_t iters;
	uint64_t ns;	      /* for all of them */
	uint64_t block_iters; /* in blocks timed as a whole */
	uint64_t block_ns;
	struct hist rtt;
	/* Mean round trip of each block, in 1/16 ns: of blocks timed as a
	 * whole, and of those timed singly. */
	struct hist mean[2];
};

/* When to end: after a number of iterations, or a time. */
struct perf_goal {
	uint64_t iters; /* 0: no limit */
	uint64_t ns;	/* 0: no limit */
};

void perf_meter_merge(struct perf_meter *into, const struct perf_meter *from);
/* How much reading the clock added to a round trip; at most the time of one
 * reading. */
double perf_meter_overhead(const struct perf_meter *m);
/* Iterations per second, without that overhead. */
double perf_meter_rate(const struct perf_meter *m);

static inline uint64_t perf_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define PERF_BLOCK 64

static inline __attribute__((always_inline)) int
perf_meter_block(struct perf_meter *m, uint64_t n, bool single,
		 int (*once)(void *), void *arg)
{
	uint64_t start = perf_now();
	uint64_t last = start, now;
	int ret = 0;

	for (uint64_t i = 0; i < n && !ret; i++) {
		ret = once(arg);
		if (single) {
			now = perf_now();
			hist_add(&m->rtt, now - last);
			last = now;
		}
	}
	if (!single) {
		last = perf_now();
		m->block_iters += n;
		m->block_ns += last - start;
	}
	hist_add(&m->mean[single], (last - start) * 16 / n);
	return ret;
}

/* Calls once() repeatedly. Inlined, so that once() can be, too. */
static inline __attribute__((always_inline)) int
perf_meter_run(struct perf_meter *m, struct perf_goal goal, int (*once)(void *),
	       void *arg)
{
	uint64_t start = perf_now();
	uint64_t left = goal.iters ? goal.iters : UINT64_MAX;
	bool single = true;
	int ret = 0;

	do {
		uint64_t n = left < PERF_BLOCK ? left : PERF_BLOCK;

		ret = perf_meter_block(m, n, single, once, arg);
		single = !single;
		left -= n;
		m->iters += n;
		m->ns = perf_now() - start;
	} while (!ret && left && (!goal.ns || m->ns < goal.ns));
	return ret;
}

#endif
