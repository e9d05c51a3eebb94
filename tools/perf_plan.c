/* SPDX-License-Identifier: BSD-2-Clause */
/* The plan of a measurement: its defaults, its limits, and the line of text by
 * which a client sends it to a server. */
#include "tools/perf.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/exs_ext.h>

#define WORD "exs-perf-5" /* changes with the line's members */

const char *const perf_test_names[PERF_N_TESTS] = { "lat", "bw", "rate",
						    "conn" };
const char *const perf_api_names[PERF_N_APIS] = { "exs", "sock", "epoll",
						  "unix", "raw" };
const char *const perf_mode_names[PERF_N_MODES] = { "default", "sync",
						    "async" };

int perf_find_name(const char *const *names, int n, const char *word)
{
	for (int i = 0; i < n; i++) {
		if (!strcmp(names[i], word))
			return i;
	}
	return -1;
}

static const uint64_t usual_size[PERF_N_TESTS] = {
	[PERF_LAT] = 8,
	[PERF_BW] = 65536,
	[PERF_RATE] = 8,
	[PERF_CONN] = 64,
};

static enum perf_mode usual_mode(const struct perf_plan *p)
{
	if (p->api != PERF_EXS || p->test == PERF_CONN)
		return PERF_SYNC;
	if (p->test == PERF_LAT && p->depth <= 1)
		return PERF_SYNC;
	return PERF_ASYNC;
}

static uint64_t usual_depth(const struct perf_plan *p)
{
	if (p->api == PERF_EPOLL && p->test == PERF_LAT)
		return p->connections;
	if (p->mode != PERF_ASYNC || p->test == PERF_LAT)
		return 1;
	return p->test == PERF_BW ? 16 : 64;
}

/* The memory of a server's buffers. The server accepts any client, so no plan
 * may make it use more than a host has. */
static uint64_t memory_of(const struct perf_plan *p)
{
	bool slots = p->test == PERF_LAT && p->mode == PERF_ASYNC && !p->own;

	return p->size * p->connections * (slots ? p->depth + 1 : 1);
}

/* Why the plan is invalid; null: it is valid. */
static const char *objection(const struct perf_plan *p)
{
	bool epoll_lat = p->api == PERF_EPOLL && p->test == PERF_LAT;
	uint64_t depth_max = epoll_lat ? p->connections : PERF_DEPTH_MAX;

	if (!p->size || p->size > PERF_SIZE_MAX)
		return "--size must be 1 to 1G";
	if (!p->connections || p->connections > PERF_CONNS_MAX ||
	    p->idle > PERF_CONNS_MAX)
		return "--connections must be 1 to 100000, and --idle 0 to "
		       "100000";
	if (p->api != PERF_EPOLL && p->connections + p->idle > PERF_LANES_MAX)
		return "more than 1024 connections need --api epoll";
	if (!p->depth || p->depth > depth_max)
		return epoll_lat ? "--depth must not exceed the connections: "
				   "an epoll server has one message on each"
				 : "--depth must be 1 to 4096";
	if (p->receives > PERF_DEPTH_MAX)
		return "--receives must be 1 to 4096";
	if (p->receives && (p->test != PERF_BW || p->api != PERF_EXS))
		return "--receives is for --test bw with --api exs";
	if (p->mode == PERF_ASYNC && p->api != PERF_EXS)
		return "only --api exs has --async";
	if (p->mode == PERF_ASYNC && p->test == PERF_CONN)
		return "--test conn makes synchronous calls only";
	if (p->unregistered && p->mode != PERF_ASYNC)
		return "--unregistered is for asynchronous calls; use --async";
	if (p->own &&
	    (p->test > PERF_BW || p->api == PERF_EPOLL || p->api == PERF_RAW))
		return "--own is for --test lat and bw with --api exs, sock "
		       "and unix";
	if (p->messages && p->api != PERF_EXS)
		return "only --api exs has --messages";
	if (p->messages && p->size > EXS_X_MESSAGE_MAX)
		return "--messages must be shorter than 1G";
	if (p->mode == PERF_SYNC && p->depth > 1 && !epoll_lat)
		return "synchronous calls have a --depth of 1; use --async";
	if (memory_of(p) > PERF_MEMORY_MAX) /* it is below 2^60 */
		return "--size, --depth and --connections together need more "
		       "than 4G of buffers";
	if (perf_api_is_local(p->api) &&
	    (p->connections + p->idle > 1 || p->test > PERF_BW))
		return "--api raw and unix support --test lat and bw, on one "
		       "connection";
	if (p->api == PERF_RAW && p->size > (64 << 20))
		return "--api raw supports sizes up to 64M";
	return NULL;
}

int perf_plan_complete(struct perf_plan *p, const char **ret_why)
{
	const char *why;

	if (!p->size)
		p->size = usual_size[p->test];
	if (!p->connections)
		p->connections = 1;
	if (!p->mode)
		p->mode = usual_mode(p);
	if (!p->depth)
		p->depth = usual_depth(p);
	if (!p->iters && !p->ns)
		p->ns = 1000000000;
	why = objection(p);
	if (why && ret_why)
		*ret_why = why;
	return why ? -EINVAL : 0;
}

int perf_plan_print(const struct perf_plan *p, char *line, size_t len)
{
	int n = snprintf(line, len,
			 WORD " %s %s %s %" PRIu64 " %" PRIu64 " %" PRIu64
			      " %" PRIu64 " %" PRIu64 " %d %d %d %d =%s",
			 perf_test_names[p->test], perf_api_names[p->api],
			 perf_mode_names[p->mode], p->size, p->depth,
			 p->receives, p->connections, p->idle, p->messages,
			 p->unregistered, p->own, p->cpu[PERF_SERVER],
			 p->providers);

	return n < 0 || (size_t)n >= len ? -EMSGSIZE : 0;
}

int perf_plan_parse(const char *line, struct perf_plan *ret)
{
	static const char list_bytes[] = "abcdefghijklmnopqrstuvwxyz_^,";
	struct perf_plan p = { .iters = 1, .cpu = { PERF_ANY_CPU } };
	char word[16], test[8], api[8], mode[8], list[PERF_LIST_MAX] = "";
	int n, t, a, m, messages, unregistered, own;

	n = sscanf(line,
		   "%15s %7s %7s %7s %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %" SCNu64 " %" SCNu64 " %d %d %d %d =%95s",
		   word, test, api, mode, &p.size, &p.depth, &p.receives,
		   &p.connections, &p.idle, &messages, &unregistered, &own,
		   &p.cpu[PERF_SERVER], list);
	if (n < 13 || strcmp(word, WORD))
		return -EPROTO;
	t = perf_find_name(perf_test_names, PERF_N_TESTS, test);
	a = perf_find_name(perf_api_names, PERF_N_APIS, api);
	m = perf_find_name(perf_mode_names, PERF_N_MODES, mode);
	if (t < 0 || a < 0 || m <= 0 || list[strspn(list, list_bytes)])
		return -EPROTO;
	p.test = t;
	p.api = a;
	p.mode = m;
	p.messages = messages;
	p.unregistered = unregistered;
	p.own = own;
	strcpy(p.providers, list);
	if (objection(&p))
		return -EPROTO;
	*ret = p;
	return 0;
}

int perf_run_on(int cpu)
{
	cpu_set_t set;

	if (cpu == PERF_ANY_CPU)
		return 0;
	if (cpu < 0 || cpu >= CPU_SETSIZE)
		return -EINVAL;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

int perf_two_cpus(int ret_cpu[2])
{
	cpu_set_t set;
	int found[2];
	int n = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -errno;
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++) {
		if (CPU_ISSET(i, &set))
			found[n++] = i;
	}
	if (n < 2)
		return -ENODEV;
	memcpy(ret_cpu, found, sizeof(found));
	return 0;
}
