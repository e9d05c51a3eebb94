/* SPDX-License-Identifier: BSD-2-Clause */
/* Histograms, and results of the meters. */
#include "tools/perf_meter.h"

void hist_merge(struct hist *into, const struct hist *from)
{
	if (!from->n)
		return;
	if (!into->n || from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
	into->n += from->n;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++)
		into->count[i] += from->count[i];
}

/* The middle of a bucket. */
static double bucket_value(unsigned int i)
{
	unsigned int shift = i >> HIST_SUB_BITS;
	uint64_t low;

	if (shift)
		shift--;
	low = (uint64_t)(i - (shift << HIST_SUB_BITS)) << shift;
	return low + ((UINT64_C(1) << shift) - 1) / 2.0;
}

double hist_quantile(const struct hist *h, double q)
{
	uint64_t rank = (uint64_t)(q * h->n);
	uint64_t seen = 0;
	double v;

	for (unsigned int i = 0; i < HIST_BUCKETS; i++) {
		seen += h->count[i];
		if (seen <= rank)
			continue;
		v = bucket_value(i);
		if (v < h->min)
			return h->min;
		return v > h->max ? h->max : v;
	}
	return h->max;
}

void perf_meter_merge(struct perf_meter *into, const struct perf_meter *from)
{
	into->iters += from->iters;
	if (from->ns > into->ns)
		into->ns = from->ns;
	into->block_iters += from->block_iters;
	into->block_ns += from->block_ns;
	hist_merge(&into->rtt, &from->rtt);
	hist_merge(&into->mean[0], &from->mean[0]);
	hist_merge(&into->mean[1], &from->mean[1]);
}

/* The time of the fastest reading of the clock. */
static double clock_cost(void)
{
	uint64_t best = UINT64_MAX, start, last;

	for (int i = 0; i < 16; i++) {
		start = last = perf_now();
		for (int n = 0; n < PERF_BLOCK; n++)
			last = perf_now();
		if (last - start < best)
			best = last - start;
	}
	return (double)best / PERF_BLOCK;
}

double perf_meter_overhead(const struct perf_meter *m)
{
	double whole = hist_quantile(&m->mean[0], 0.5) / 16;
	double single = hist_quantile(&m->mean[1], 0.5) / 16;
	double most;

	/* Above a microsecond the noise is larger than the clock. */
	if (m->mean[0].n < 8 || whole > 1000 || single < whole)
		return 0;
	/* If other programs preempt the blocks, the difference is due to
	 * them. */
	most = clock_cost();
	return single - whole < most ? single - whole : most;
}

double perf_meter_rate(const struct perf_meter *m)
{
	if (m->block_ns)
		return m->block_iters * 1e9 / m->block_ns;
	return m->ns ? m->iters * 1e9 / m->ns : 0;
}
