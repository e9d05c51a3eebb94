/* SPDX-License-Identifier: BSD-2-Clause */
/* A result for people, and as JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/exs_ext.h>

#include "tools/perf.h"
#include "tools/tool.h"

static const char *const quantile_names[PERF_N_QUANTILES] = {
	[PERF_MIN] = "min",	[PERF_P50] = "p50", [PERF_P75] = "p75",
	[PERF_P90] = "p90",	[PERF_P99] = "p99", [PERF_P999] = "p999",
	[PERF_P9999] = "p9999", [PERF_MAX] = "max",
};

static const char *const test_words[PERF_N_TESTS] = {
	[PERF_LAT] = "round trips",
	[PERF_BW] = "stream",
	[PERF_RATE] = "stream",
	[PERF_CONN] = "transactions",
};

static const char *const api_words[PERF_N_APIS] = {
	[PERF_EXS] = "ES-API",
	[PERF_SOCK] = "plain sockets",
	[PERF_EPOLL] = "plain sockets, epoll server",
	[PERF_UNIX] = "UNIX socket pair",
	[PERF_RAW] = "bare shared memory",
};

static void print_head(const struct perf_result *r)
{
	const struct perf_plan *p = &r->plan;
	char size[TOOL_TEXT];

	printf("%s %s over %s: %s%s", tool_text_bytes(size, p->size),
	       test_words[p->test], r->fabric, api_words[p->api],
	       r->shim ? " under exs run" : "");
	if (p->api == PERF_EXS)
		printf(", %s calls%s%s",
		       p->mode == PERF_ASYNC ? "asynchronous" : "synchronous",
		       p->messages ? " of messages" : "",
		       p->unregistered ? " on unregistered memory" : "");
	if (p->own)
		printf(" of each end's own memory");
	if (p->depth > 1)
		printf(", depth %" PRIu64, p->depth);
	if (p->receives)
		printf(", %" PRIu64 " receive%s", p->receives,
		       p->receives == 1 ? "" : "s");
	if (p->connections > 1)
		printf(", %" PRIu64 " connections", p->connections);
	if (p->idle)
		printf(", %" PRIu64 " idle", p->idle);
	printf("\n\n");
}

static void print_times(const struct perf_result *r)
{
	char t[PERF_N_QUANTILES][TOOL_TEXT];

	if (r->rtt_ns[0] < 0)
		return;
	for (int i = 0; i < PERF_N_QUANTILES; i++)
		tool_text_ns(t[i], r->rtt_ns[i]);
	printf("  %-12s %s    (min %s, 90%% %s, 99%% %s, 99.9%% %s, max %s)\n",
	       r->plan.test == PERF_CONN ? "transaction" : "round trip",
	       t[PERF_P50], t[PERF_MIN], t[PERF_P90], t[PERF_P99], t[PERF_P999],
	       t[PERF_MAX]);
	if (r->rtt_ns[0] == 0)
		puts("  -: " PERF_TOO_SHORT);
}

static void print_rate(const char *what, double rate, const char *unit)
{
	char t[TOOL_TEXT];

	if (rate >= 0)
		printf("  %-12s %s%s/s\n", what, tool_text_count(t, rate),
		       unit);
}

static void print_rates(const struct perf_result *r)
{
	print_rate("throughput", r->bytes_per_s, "B");
	print_rate(r->plan.test == PERF_LAT ? "round trips" : "messages",
		   r->msgs_per_s, "");
	print_rate("connections", r->conns_per_s, "");
}

double perf_bells_per_message(const struct perf_result *r)
{
	uint64_t n = r->plan.test == PERF_LAT ? 2 * r->iters : r->iters;

	return r->bells < 0 || !n ? -1 : (double)r->bells / (double)n;
}

static void print_costs(const struct perf_result *r)
{
	double wall = r->wall_ns / 1e9;

	printf("  %-12s client %.0f%%, server %.0f%% of %.2f s\n", "CPU",
	       100 * r->cpu_s[PERF_CLIENT] / wall,
	       100 * r->cpu_s[PERF_SERVER] / wall, wall);
	if (r->bells >= 0)
		printf("  %-12s %" PRId64 ", %.3g for each message\n", "bells",
		       r->bells, perf_bells_per_message(r));
	if (r->direct > 0)
		printf("  %-12s %.1f%% of the bytes\n", "not copied",
		       100 * r->direct);
	/* A connection that carries one request is not meant to move. */
	if (r->reason > EXS_X_REASON_UNDECIDED ||
	    (r->reason == EXS_X_REASON_UNDECIDED && r->plan.test != PERF_CONN))
		printf("  %-12s %s: %s\n", "why not",
		       exs_x_reason_name(r->reason),
		       exs_x_reason_text(r->reason));
}

void perf_print(const struct perf_result *r)
{
	print_head(r);
	print_times(r);
	print_rates(r);
	print_costs(r);
	perf_host_print(r->others);
}

static json_t *number_or_null(double v)
{
	return v < 0 ? json_null() : json_real(v);
}

static json_t *times_json(const struct perf_result *r)
{
	json_t *o;

	if (r->rtt_ns[0] < 0)
		return json_null();
	o = json_object();
	for (int i = 0; i < PERF_N_QUANTILES; i++)
		json_object_set_new(o, quantile_names[i],
				    r->rtt_ns[i] > 0 ? json_real(r->rtt_ns[i])
						     : json_null());
	return o;
}

void perf_print_json(const struct perf_result *r)
{
	const struct perf_plan *p = &r->plan;
	json_t *o = json_pack(
		"{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o,"
		" s:{s:f, s:f}, s:{s:f, s:f}, s:o, s:o, s:o, s:n, s:s?, s:s, "
		"s:b, s:I, s:I, s:b, s:b, s:b, s:o}",
		"test", perf_test_names[p->test], "api", perf_api_names[p->api],
		"fabric", r->fabric, "size", (json_int_t)p->size, "depth",
		(json_int_t)p->depth, "connections", (json_int_t)p->connections,
		"iters", (json_int_t)r->iters, "rtt_ns", times_json(r),
		"bytes_per_s", number_or_null(r->bytes_per_s), "msgs_per_s",
		number_or_null(r->msgs_per_s), "conns_per_s",
		number_or_null(r->conns_per_s), "cpu_s", "client",
		r->cpu_s[PERF_CLIENT], "server", r->cpu_s[PERF_SERVER],
		"user_s", "client", r->user_s[PERF_CLIENT], "server",
		r->user_s[PERF_SERVER], "direct", number_or_null(r->direct),
		"bells", r->bells < 0 ? json_null() : json_integer(r->bells),
		"bells_per_message", number_or_null(perf_bells_per_message(r)),
		"syscalls", "reason",
		r->reason < 0 ? NULL : exs_x_reason_name(r->reason), "mode",
		perf_mode_names[p->mode], "exs_run", r->shim, "idle",
		(json_int_t)p->idle, "receives", (json_int_t)p->receives,
		"messages", p->messages, "unregistered", p->unregistered, "own",
		p->own, "others", number_or_null(r->others));

	json_dumpf(o, stdout, JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(o);
}
