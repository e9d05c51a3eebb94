/* SPDX-License-Identifier: BSD-2-Clause */
/* A measurement of exs perf: the plan and the result.
 *
 * Two processes take part. The client has the plan, sends it to the server over
 * a control connection, opens the connections under test, warms them up, sends
 * "start", measures, sends "stop" and receives what the server used. Calls
 * return 0 or -errno; the function that detects an error prints it. */
#ifndef EXS_TOOLS_PERF_H
#define EXS_TOOLS_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum perf_test {
	PERF_LAT,  /* round trips */
	PERF_BW,   /* one way, large messages */
	PERF_RATE, /* one way, small messages */
	PERF_CONN, /* connect, request, response, close */
	PERF_N_TESTS,
};

enum perf_api {
	PERF_EXS,   /* the ES-API */
	PERF_SOCK,  /* plain POSIX calls */
	PERF_EPOLL, /* plain calls, a server on epoll */
	PERF_UNIX,  /* a UNIX stream pair; one host only */
	PERF_RAW,   /* bare shared memory: the limit; one host only */
	PERF_N_APIS,
};

enum perf_mode {
	PERF_MODE_DEFAULT,
	PERF_SYNC,
	PERF_ASYNC,
	PERF_N_MODES,
};

#define PERF_ANY_CPU	(-1)
#define PERF_SIZE_MAX	(UINT64_C(1) << 30)
#define PERF_DEPTH_MAX	4096
#define PERF_LANES_MAX	1024 /* connections that each have a thread */
#define PERF_CONNS_MAX	100000
#define PERF_MEMORY_MAX (UINT64_C(4) << 30) /* an end's buffers together */
#define PERF_LIST_MAX	96
#define PERF_FABRIC_MAX 40

struct perf_plan {
	enum perf_test test;
	enum perf_api api;
	enum perf_mode mode;
	uint64_t size;	/* of a message; 0: the default of the test */
	uint64_t iters; /* 0: as many as fit into ns */
	uint64_t ns;
	uint64_t depth;	   /* messages outstanding; 0: the default */
	uint64_t receives; /* posted by a server of bw; 0: as many */
	uint64_t connections;
	uint64_t idle;	   /* further connections that carry nothing */
	bool messages;	   /* sockets of messages instead of streams */
	bool unregistered; /* asynchronous calls on any memory */
	bool own;	   /* receives in one place, sends from another */
	uint64_t warmup;   /* iterations */
	int cpu[2];	   /* of client and server */
	char providers[PERF_LIST_MAX]; /* EXS_PROVIDER; "" leaves it alone */
};

enum {
	PERF_CLIENT = 0,
	PERF_SERVER = 1,
};

enum perf_quantile {
	PERF_MIN,
	PERF_P50,
	PERF_P75,
	PERF_P90,
	PERF_P99,
	PERF_P999,
	PERF_P9999,
	PERF_MAX,
	PERF_N_QUANTILES,
};

/* Plain data: it is passed through pipes. A negative number does not apply. */
struct perf_result {
	struct perf_plan plan;
	bool shim;		      /* under exs run */
	char fabric[PERF_FABRIC_MAX]; /* "shm", "tcp", "tcp+shm" */
	int reason;		      /* exs_x_reason_t; -1: not asked */
	uint64_t iters;
	uint64_t wall_ns;
	double rtt_ns[PERF_N_QUANTILES];
	double bytes_per_s;
	double msgs_per_s;
	double conns_per_s;
	double cpu_s[2];
	double user_s[2]; /* of cpu_s, outside the kernel */
	int64_t bells;
	/* Share of the bytes that were not copied; -1: unknown. */
	double direct;
	double others; /* share of the CPUs that others used; -1: unknown */
};

/* perf_plan.c: names, defaults, and the plan as a line of text. */
extern const char *const perf_test_names[PERF_N_TESTS];
extern const char *const perf_api_names[PERF_N_APIS];
extern const char *const perf_mode_names[PERF_N_MODES];

/* The index of the word among n names; -1: it is none of them. */
int perf_find_name(const char *const *names, int n, const char *word);

/* Fills in the defaults. 0, or -EINVAL with the reason in *ret_why. */
int perf_plan_complete(struct perf_plan *p, const char **ret_why);
int perf_plan_print(const struct perf_plan *p, char *line, size_t len);
/* Parses a plan from an untrusted peer, with the checks of
 * perf_plan_complete(). */
int perf_plan_parse(const char *line, struct perf_plan *ret);

/* Whether the API works on one host only: both ends share memory or sockets
 * that exist before the fork. */
static inline bool perf_api_is_local(enum perf_api api)
{
	return api == PERF_UNIX || api == PERF_RAW;
}

/* perf_client.c. ctl is the control connection, which is closed; local is null
 * between hosts. Errors have been printed. */
struct perf_local;
int perf_client(int ctl, const struct perf_plan *plan, struct perf_local *local,
		struct perf_result *ret);

/* perf_server.c. Serves one test on the control connection, then ends the
 * process, which has threads and an environment of its own by then. */
_Noreturn void perf_serve(int ctl, struct perf_local *local);

/* perf_listen.c. Serves tests of remote clients until a signal ends it; returns
 * an exit code. Port 0 picks a free port. */
int perf_listen(uint16_t port, bool once);
/* Opens the control connection to a server; errors have been printed. */
int perf_reach(const char *host, const char *port);

/* perf_pair.c: client here, server in a child. */
int perf_pair(const struct perf_plan *plan, struct perf_result *ret);

/* perf_compare.c: returns an exit code. */
struct perf_compare {
	uint64_t size; /* 0: the usual of each test */
	uint64_t ns;   /* of each measurement */
	unsigned int rounds;
	int test; /* enum perf_test, or -1 for all of the table */
	int cpu[2];
	uint64_t idle; /* connections beside the busy one of an epoll server */
	bool json;
};
int perf_compare(const struct perf_compare *c);

/* perf_host.c: how much CPU time other programs use meanwhile, on the given
 * CPUs; with PERF_ANY_CPU, on all that this process may use. */
struct perf_host {
	int cpu[2];
	double at, worked, used; /* seconds */
};
void perf_host_begin(struct perf_host *h, const int cpu[2]);
/* The share that others have used since perf_host_begin(), valid once all
 * children were waited for; -1: unknown, or the time was too short. */
double perf_host_others(const struct perf_host *h);
/* Prints a line if the share is large enough to affect the figures. */
void perf_host_print(double others);

/* Why a time is "-". */
#define PERF_TOO_SHORT "too short to be told from a reading of the clock"

/* perf_print.c */
void perf_print(const struct perf_result *r);
void perf_print_json(const struct perf_result *r);
/* Wake-ups for each message; negative: they were not counted. */
double perf_bells_per_message(const struct perf_result *r);

/* Binds this process, and those that it starts, to one CPU. PERF_ANY_CPU is
 * allowed. */
int perf_run_on(int cpu);
/* Two CPUs that this process may use; -ENODEV: there is only one. */
int perf_two_cpus(int ret_cpu[2]);

#endif
