/* SPDX-License-Identifier: BSD-2-Clause */
/* How much other programs used the CPUs during a measurement. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tools/perf.h"

/* The kernel counts in ticks: for a shorter time the counts mean nothing. */
#define LEAST_S 0.1
/* Below this share the load is that of any host. */
#define BUSY 0.25

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool measured_on(const struct perf_host *h, const cpu_set_t *mine,
			unsigned int cpu)
{
	if (h->cpu[PERF_CLIENT] != PERF_ANY_CPU)
		return (int)cpu == h->cpu[PERF_CLIENT] ||
		       (int)cpu == h->cpu[PERF_SERVER];
	return cpu < CPU_SETSIZE && CPU_ISSET(cpu, mine);
}

/* Seconds that the CPUs have worked since the host was started, for any
 * process; and how many CPUs. Time that other hosts' programs took of a virtual
 * CPU counts. */
static double worked(const struct perf_host *h, unsigned int *ret_n)
{
	FILE *f = fopen("/proc/stat", "re");
	uint64_t t[8], sum = 0;
	unsigned int cpu;
	char line[512];
	cpu_set_t mine;

	*ret_n = 0;
	if (!f)
		return 0;
	if (sched_getaffinity(0, sizeof(mine), &mine))
		CPU_ZERO(&mine);
	while (fgets(line, sizeof(line), f)) {
		/* user nice system idle iowait irq softirq steal */
		if (sscanf(line,
			   "cpu%u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
			   " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
			   &cpu, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5],
			   &t[6], &t[7]) != 9 ||
		    !measured_on(h, &mine, cpu))
			continue;
		sum += t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
		++*ret_n;
	}
	fclose(f);
	return (double)sum / (double)sysconf(_SC_CLK_TCK);
}

static double of(const struct timeval *t)
{
	return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

/* The CPU time of this process and of the children that it waited for. */
static double used(void)
{
	struct rusage self, others;

	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &others);
	return of(&self.ru_utime) + of(&self.ru_stime) + of(&others.ru_utime) +
	       of(&others.ru_stime);
}

void perf_host_begin(struct perf_host *h, const int cpu[2])
{
	unsigned int n;

	h->cpu[PERF_CLIENT] = cpu[PERF_CLIENT];
	h->cpu[PERF_SERVER] = cpu[PERF_SERVER];
	h->used = used();
	h->worked = worked(h, &n);
	h->at = seconds();
}

double perf_host_others(const struct perf_host *h)
{
	double wall = seconds() - h->at;
	unsigned int n;
	double share = worked(h, &n) - h->worked - (used() - h->used);

	if (!n || wall < LEAST_S)
		return -1;
	share /= wall * n;
	return share < 0 ? 0 : share > 1 ? 1 : share;
}

void perf_host_print(double others)
{
	if (others >= BUSY)
		printf("The host is busy: other programs used %.0f%% of these "
		       "CPUs, and the times include waits for a CPU.\n",
		       100 * others);
}
