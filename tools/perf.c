/* SPDX-License-Identifier: BSD-2-Clause */
/* exs perf: options. */
#include <argp.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf_io.h"
#include "tools/tool.h"

struct wishes {
	struct perf_plan plan;
	const char *host;
	const char *port;
	unsigned int rounds;
	bool server;
	bool once;
	bool pair;
	bool compare;
	bool json;
	bool pinned; /* --pin was given */
	bool test_given;
	uint64_t given; /* a bit for each option, see bit_of() */
};

enum {
	KEY_SERVER = 256,
	KEY_ONCE,
	KEY_PAIR,
	KEY_COMPARE,
	KEY_TEST,
	KEY_API,
	KEY_SIZE,
	KEY_ITERS,
	KEY_SECONDS,
	KEY_DEPTH,
	KEY_RECEIVES,
	KEY_CONNECTIONS,
	KEY_IDLE,
	KEY_PROVIDER,
	KEY_WARMUP,
	KEY_PIN,
	KEY_ASYNC,
	KEY_SYNC,
	KEY_MESSAGES,
	KEY_UNREGISTERED,
	KEY_OWN,
	KEY_ROUNDS,
	KEY_JSON,
};

static const struct argp_option options[] = {
	{ NULL, 0, NULL, 0, "Ends:", 1 },
	{ "server", KEY_SERVER, NULL, 0, "Serve tests until interrupted", 1 },
	{ "once", KEY_ONCE, NULL, 0, "With --server: serve one test and exit",
	  1 },
	{ "port", 'p', "N", 0, "Port of the server; it chooses one by default",
	  1 },
	{ "pair", KEY_PAIR, NULL, 0,
	  "Instead of HOST: also start the server here", 1 },
	{ "compare", KEY_COMPARE, NULL, 0,
	  "Instead of HOST: compare bare shared memory, UNIX sockets, TCP, "
	  "libexs, and plain calls under exs run",
	  1 },
	{ NULL, 0, NULL, 0, "What to measure:", 2 },
	{ "test", KEY_TEST, "NAME", 0,
	  "lat: round trips (default); bw: a stream; rate: a stream of small "
	  "messages; conn: connect, request, response, close",
	  2 },
	{ "api", KEY_API, "NAME", 0,
	  "exs (default); sock: plain calls; epoll: plain calls and an epoll "
	  "server; with --pair also unix and raw (bare shared memory)",
	  2 },
	{ "size", KEY_SIZE, "BYTES", 0,
	  "Size of a message, such as 8 or 64k (lat and rate 8, bw 64k, conn "
	  "64)",
	  2 },
	{ "iters", KEY_ITERS, "N", 0, "Number of messages", 2 },
	{ "seconds", KEY_SECONDS, "T", 0,
	  "Duration if --iters is not given (1 second)", 2 },
	{ "depth", KEY_DEPTH, "N", 0,
	  "Outstanding messages (lat 1, bw 16, rate 64; epoll lat: one on each "
	  "connection)",
	  2 },
	{ "receives", KEY_RECEIVES, "N", 0,
	  "Receives that the server of bw keeps posted, also with --sync (the "
	  "client's --depth)",
	  2 },
	{ "connections", KEY_CONNECTIONS, "N", 0, "Concurrent connections (1)",
	  2 },
	{ "idle", KEY_IDLE, "N", 0,
	  "Additional idle connections (0); with --compare, a row for an epoll "
	  "server with these in its set",
	  2 },
	{ "warmup", KEY_WARMUP, "N", 0,
	  "Messages before the measurement (1000); with 0 it does not wait for "
	  "the upgrade",
	  2 },
	{ NULL, 0, NULL, 0, "How to measure:", 3 },
	{ "provider", KEY_PROVIDER, "LIST", 0,
	  "EXS_PROVIDER at both ends, such as shm or tcp", 3 },
	{ "pin", KEY_PIN, "A,B", 0,
	  "CPUs of client and server; none: leave the choice to the system",
	  3 },
	{ "async", KEY_ASYNC, NULL, 0,
	  "Asynchronous calls on registered memory (default of bw and rate)",
	  3 },
	{ "sync", KEY_SYNC, NULL, 0, "Synchronous calls (default of lat)", 3 },
	{ "messages", KEY_MESSAGES, NULL, 0,
	  "Message sockets (SOCK_SEQPACKET) instead of streams", 3 },
	{ "unregistered", KEY_UNREGISTERED, NULL, 0,
	  "Asynchronous calls on memory that is not registered", 3 },
	{ "own", KEY_OWN, NULL, 0,
	  "Each end of lat and bw receives into one buffer and sends from "
	  "another, as fi_pingpong and ib_send_lat do",
	  3 },
	{ "rounds", KEY_ROUNDS, "N", 0, "Rounds of --compare (5)", 3 },
	{ "json", KEY_JSON, NULL, 0, "Print one JSON object", 3 },
	{ 0 },
};

static uint64_t bit_of(int key)
{
	return key == 'p' ? 1 : 2ull << (key - KEY_SERVER);
}

static void take_count(struct argp_state *state, const char *name,
		       const char *arg, uint64_t least, uint64_t *ret)
{
	if (tool_parse_count(arg, ret) || *ret < least)
		argp_error(state, "--%s takes a number%s, not \"%s\"", name,
			   least ? " from 1" : "", arg);
}

static const char *take_port(struct argp_state *state, const char *arg)
{
	char *end;
	unsigned long port = strtoul(arg, &end, 10);

	if (!isdigit(arg[0]) || *end || port < 1 || port > UINT16_MAX)
		argp_error(state, "a port is 1 to 65535, not %s", arg);
	return arg;
}

static int take_name(struct argp_state *state, const char *option,
		     const char *const *names, int n, const char *arg)
{
	int i = perf_find_name(names, n, arg);
	char all[128] = "";
	size_t at = 0;

	if (i >= 0)
		return i;
	for (int k = 0; k < n && at < sizeof(all); k++)
		at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s",
				       k == 0	    ? ""
				       : k == n - 1 ? " or "
						    : ", ",
				       names[k]);
	argp_error(state, "--%s takes %s, not \"%s\"", option, all, arg);
	return i;
}

static void take_pin(struct argp_state *state, const char *arg,
		     struct wishes *w)
{
	int end = 0;

	w->pinned = true;
	if (!strcmp(arg, "none"))
		return;
	if (sscanf(arg, "%d,%d%n", &w->plan.cpu[PERF_CLIENT],
		   &w->plan.cpu[PERF_SERVER], &end) != 2 ||
	    arg[end] || w->plan.cpu[PERF_CLIENT] < 0 ||
	    w->plan.cpu[PERF_SERVER] < 0)
		argp_error(state,
			   "--pin takes two CPUs, such as 0,1, or none, "
			   "not \"%s\"",
			   arg);
}

static void take_list(struct argp_state *state, const char *arg,
		      struct wishes *w)
{
	if (strlen(arg) >= sizeof(w->plan.providers) || !arg[0])
		argp_error(state, "--provider takes a list such as shm,tcp");
	else
		strcpy(w->plan.providers, arg);
}

static error_t parse_what(int key, char *arg, struct argp_state *state)
{
	struct wishes *w = state->input;
	struct perf_plan *p = &w->plan;

	switch (key) {
	case KEY_TEST:
		p->test = take_name(state, "test", perf_test_names,
				    PERF_N_TESTS, arg);
		w->test_given = true;
		return 0;
	case KEY_API:
		p->api = take_name(state, "api", perf_api_names, PERF_N_APIS,
				   arg);
		return 0;
	case KEY_SIZE:
		if (tool_parse_bytes(arg, &p->size) || !p->size)
			argp_error(state,
				   "--size takes bytes, such as 8 or "
				   "64k, not \"%s\"",
				   arg);
		return 0;
	case KEY_ITERS:
		take_count(state, "iters", arg, 1, &p->iters);
		return 0;
	case KEY_SECONDS:
		if (tool_parse_seconds(arg, &p->ns) || !p->ns)
			argp_error(state,
				   "--seconds takes a time, such as 2 "
				   "or 0.5, not \"%s\"",
				   arg);
		return 0;
	case KEY_DEPTH:
		take_count(state, "depth", arg, 1, &p->depth);
		return 0;
	case KEY_RECEIVES:
		take_count(state, "receives", arg, 0, &p->receives);
		return 0;
	case KEY_CONNECTIONS:
		take_count(state, "connections", arg, 1, &p->connections);
		return 0;
	case KEY_IDLE:
		take_count(state, "idle", arg, 0, &p->idle);
		return 0;
	case KEY_WARMUP:
		take_count(state, "warmup", arg, 0, &p->warmup);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void take_rounds(struct argp_state *state, const char *arg,
			struct wishes *w)
{
	uint64_t n = 0;

	if (tool_parse_count(arg, &n) || n < 1 || n > 99)
		argp_error(state, "--rounds must be 1 to 99");
	w->rounds = (unsigned int)n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wishes *w = state->input;

	if (key == 'p' || (key >= KEY_SERVER && key <= KEY_JSON))
		w->given |= bit_of(key);
	switch (key) {
	case KEY_SERVER:
		w->server = true;
		return 0;
	case KEY_ONCE:
		w->once = true;
		return 0;
	case 'p':
		w->port = take_port(state, arg);
		return 0;
	case KEY_PAIR:
		w->pair = true;
		return 0;
	case KEY_COMPARE:
		w->compare = true;
		return 0;
	case KEY_PROVIDER:
		take_list(state, arg, w);
		return 0;
	case KEY_PIN:
		take_pin(state, arg, w);
		return 0;
	case KEY_ASYNC:
		w->plan.mode = PERF_ASYNC;
		return 0;
	case KEY_SYNC:
		w->plan.mode = PERF_SYNC;
		return 0;
	case KEY_MESSAGES:
		w->plan.messages = true;
		return 0;
	case KEY_UNREGISTERED:
		w->plan.unregistered = true;
		return 0;
	case KEY_OWN:
		w->plan.own = true;
		return 0;
	case KEY_ROUNDS:
		take_rounds(state, arg, w);
		return 0;
	case KEY_JSON:
		w->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (w->host)
			argp_error(state,
				   "unexpected argument \"%s\" after HOST",
				   arg);
		w->host = arg;
		return 0;
	default:
		return parse_what(key, arg, state);
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "HOST --port N\n--pair\n--compare\n--server",
	.doc = "Measures connections, between two hosts or two processes of "
	       "this one.\v"
	       "On one host:   exs perf --pair --test lat --size 8\n"
	       "Between two:   exs perf --server, then, on the other,\n"
	       "               exs perf HOST --port N\n"
	       "At a glance:   exs perf --compare\n",
};

static int serve(const struct wishes *w)
{
	return perf_listen(w->port ? (uint16_t)atoi(w->port) : 0, w->once);
}

static int compare(const struct wishes *w)
{
	struct perf_compare c = {
		.size = w->plan.size,
		.ns = w->plan.ns,
		.rounds = w->rounds,
		.test = w->test_given ? (int)w->plan.test : -1,
		.cpu = { w->plan.cpu[0], w->plan.cpu[1] },
		.idle = w->plan.idle,
		.json = w->json,
	};

	if (perf_io_shim()) {
		tool_fail("--compare itself measures with and without exs run: "
			  "start it without exs run");
		return TOOL_USAGE;
	}
	if (w->test_given && w->plan.test > PERF_BW) {
		tool_fail("--compare supports --test lat and bw");
		return TOOL_USAGE;
	}
	if (!w->pinned && perf_two_cpus(c.cpu))
		tool_fail("note: one CPU only, so nothing runs side by side");
	return perf_compare(&c);
}

/* Shows, on a terminal, that a measurement takes long. */
static void show_wait(bool on, const struct wishes *w)
{
	if (!tool_is_screen(STDERR_FILENO) || w->plan.ns < 500000000)
		return;
	if (on)
		fprintf(stderr, "measuring for %.3g s ...", w->plan.ns / 1e9);
	else
		fprintf(stderr, "\r\033[K");
}

static int measure(struct wishes *w)
{
	struct perf_plan *p = &w->plan;
	struct perf_host host;
	struct perf_result r;
	const char *why;
	int ret;

	if (p->api == PERF_EXS && perf_io_shim()) {
		tool_fail("--api exs uses the library itself: start it without "
			  "exs run, or use --api sock");
		return TOOL_USAGE;
	}
	if (p->providers[0] && perf_io_shim()) {
		tool_fail("--provider comes too late under exs run: use exs "
			  "run --provider");
		return TOOL_USAGE;
	}
	if (p->api == PERF_RAW && !w->pinned && perf_two_cpus(p->cpu))
		return tool_fail("--api raw needs two CPUs");
	if (perf_plan_complete(p, &why)) {
		tool_fail("%s", why);
		return TOOL_USAGE;
	}
	if (w->pair) {
		show_wait(true, w);
		perf_host_begin(&host, p->cpu);
		ret = perf_pair(p, &r);
		r.others = perf_host_others(&host);
	} else {
		ret = perf_reach(w->host, w->port);
		if (ret < 0)
			return TOOL_FAILED;
		show_wait(true, w);
		ret = perf_client(ret, p, NULL, &r);
		r.others = -1; /* the server may be one of them */
	}
	show_wait(false, w);
	if (ret)
		return TOOL_FAILED;
	if (w->json)
		perf_print_json(&r);
	else
		perf_print(&r);
	return TOOL_OK;
}

/* An option that would have no effect; null: none. */
static const char *without_effect(const struct wishes *w)
{
	const uint64_t once = bit_of(KEY_ONCE), rounds = bit_of(KEY_ROUNDS);
	uint64_t useless = once | rounds;

	if (w->server)
		useless = ~(bit_of(KEY_SERVER) | bit_of('p') | once);
	else if (w->compare)
		useless = ~(bit_of(KEY_COMPARE) | bit_of(KEY_TEST) |
			    bit_of(KEY_SIZE) | bit_of(KEY_SECONDS) |
			    bit_of(KEY_IDLE) | bit_of(KEY_PIN) |
			    bit_of(KEY_JSON) | rounds);
	else if (w->pair)
		useless |= bit_of('p');
	for (const struct argp_option *o = options; o->name || o->doc; o++)
		if (o->name && (w->given & useless & bit_of(o->key)))
			return o->name;
	return NULL;
}

/* Whether the CPUs of a measurement within this host exist. */
static bool has_cpus(const int cpu[2])
{
	const long n = sysconf(_SC_NPROCESSORS_CONF);

	for (int i = 0; i < 2; i++)
		if (cpu[i] >= n) {
			tool_fail("there is no CPU %d", cpu[i]);
			return false;
		}
	return true;
}

int tool_perf(int argc, char **argv)
{
	struct wishes w = {
		.plan = { .warmup = 1000,
			  .cpu = { PERF_ANY_CPU, PERF_ANY_CPU } },
		.rounds = 5,
	};
	const char *useless;

	if (argp_parse(&argp, argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	if (w.server + w.pair + w.compare + !!w.host != 1) {
		tool_fail("give one of HOST, --pair, --compare and --server; "
			  "--help has examples");
		return TOOL_USAGE;
	}
	useless = without_effect(&w);
	if (useless) {
		tool_fail("--%s has no effect %s%s", useless,
			  w.host ? "with a " : "with --",
			  w.host      ? "host"
			  : w.server  ? "server"
			  : w.compare ? "compare"
				      : "pair");
		return TOOL_USAGE;
	}
	if (w.server)
		return serve(&w);
	if (!w.host && !has_cpus(w.plan.cpu))
		return TOOL_USAGE;
	if (w.compare)
		return compare(&w);
	if (w.host && perf_api_is_local(w.plan.api)) {
		tool_fail("--api unix and raw measure within one host: use "
			  "--pair");
		return TOOL_USAGE;
	}
	if (w.host && !w.port) {
		tool_fail("which --port? exs perf --server on %s prints it",
			  w.host);
		return TOOL_USAGE;
	}
	return measure(&w);
}
