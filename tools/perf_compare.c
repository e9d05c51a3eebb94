/* SPDX-License-Identifier: BSD-2-Clause */
/* exs perf --compare: the same test over all fabrics and APIs, in turns.
 *
 * Figures of virtual machines drift within minutes, so only figures that were
 * measured side by side are compared: every round measures each contender once,
 * and a ratio is the median of the rounds' ratios. Each measurement has its own
 * process, because the library reads its settings once. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/perf.h"
#include "tools/tool.h"

#define ROUNDS_MAX 99
#define USUAL_NS   200000000

struct contender {
	const char *name; /* in the table */
	const char *key;  /* in JSON */
	enum perf_api api;
	const char *providers; /* EXS_PROVIDER */
	const char *fabric;    /* that it should reach; null: it cannot tell */
	bool shim;	       /* a command of its own, under exs run */
	bool idle;	       /* beside idle connections */
};

static const struct contender contenders[] = {
	{ "bare shared memory", "raw", PERF_RAW, "", NULL },
	{ "UNIX socket", "unix", PERF_UNIX, "", NULL },
	{ "TCP socket", "tcp", PERF_SOCK, "", NULL },
	{ "libexs over tcp", "exs-tcp", PERF_EXS, "tcp", "tcp" },
	{ "libexs over shm", "exs-shm", PERF_EXS, "shm,tcp", "shm" },
	{ "exs run", "run", PERF_SOCK, "shm,tcp", "shm", .shim = true },
	{ "exs run, UNIX socket", "run-unix", PERF_UNIX, "shm,tcp", "shm",
	  .shim = true },
	{ "exs run, epoll", "run-epoll", PERF_EPOLL, "shm,tcp", "shm",
	  .shim = true },
	{ "exs run, epoll, idle", "run-epoll-idle", PERF_EPOLL, "shm,tcp",
	  "shm", .shim = true, .idle = true },
};

#define N_CONTENDERS (sizeof(contenders) / sizeof(contenders[0]))

/* One line of a table: a contender in all rounds. */
struct row {
	const struct contender *who;
	double value[ROUNDS_MAX]; /* ns, or bytes/s */
	struct perf_result last;
};

struct table {
	enum perf_test test;
	uint64_t size;
	unsigned int n_rows;
	struct row rows[N_CONTENDERS];
};

static int measure_here(const struct perf_plan *plan, int out)
{
	struct perf_result r;
	int ret = perf_pair(plan, &r);

	if (!ret && write(out, &r, sizeof(r)) != sizeof(r))
		ret = -EIO;
	return ret;
}

/* Runs this command again, under its own exs run: the shim must be there from
 * the start of a program. */
static void become_shimmed(const struct perf_plan *p, int out)
{
	char size[24], seconds[32], idle[24], pin[32] = "none";
	static const char self[] = "/proc/self/exe";
	/* clang-format off */
	const char *argv[] = {
		self, "run", "--provider", p->providers,
		self, "perf", "--pair", "--json",
		"--test", perf_test_names[p->test],
		"--api", perf_api_names[p->api],
		"--size", size, "--seconds", seconds,
		"--idle", idle, "--pin", pin, NULL
	};
	/* clang-format on */

	snprintf(size, sizeof(size), "%" PRIu64, p->size);
	snprintf(seconds, sizeof(seconds), "%.9f", (double)p->ns / 1e9);
	snprintf(idle, sizeof(idle), "%" PRIu64, p->idle);
	if (p->cpu[0] != PERF_ANY_CPU)
		snprintf(pin, sizeof(pin), "%d,%d", p->cpu[0], p->cpu[1]);
	if (p->api == PERF_UNIX)
		setenv("EXS_UNIX", "on", 1);
	if (dup2(out, STDOUT_FILENO) >= 0)
		execv(self, (char *const *)(uintptr_t)argv);
	tool_fail("cannot run this command anew: %s", strerror(errno));
}

static int reason_of(const char *name)
{
	for (int i = 0; name && i < EXS_X_REASON_MAX_; i++)
		if (!strcmp(name, exs_x_reason_name(i)))
			return i;
	return -1;
}

/* Reads the result of such a command. */
static int read_result(FILE *f, const struct perf_plan *plan,
		       struct perf_result *ret)
{
	json_t *o = json_loadf(f, 0, NULL);
	const char *fabric = json_string_value(json_object_get(o, "fabric"));

	*ret = (struct perf_result){ .plan = *plan, .shim = true };
	if (fabric)
		snprintf(ret->fabric, sizeof(ret->fabric), "%s", fabric);
	ret->reason =
		reason_of(json_string_value(json_object_get(o, "reason")));
	ret->bytes_per_s = json_number_value(json_object_get(o, "bytes_per_s"));
	ret->rtt_ns[PERF_P50] = json_number_value(
		json_object_get(json_object_get(o, "rtt_ns"), "p50"));
	json_decref(o);
	return ret->fabric[0] ? 0 : -EIO;
}

static int measure_shimmed(const struct perf_plan *plan,
			   struct perf_result *ret)
{
	int fds[2], status = 0, err = -EIO;
	FILE *f;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		become_shimmed(plan, fds[1]);
		_exit(EXIT_FAILURE);
	}
	close(fds[1]);
	f = fdopen(fds[0], "r");
	if (pid > 0 && f)
		err = read_result(f, plan, ret);
	if (f)
		fclose(f);
	else
		close(fds[0]);
	if (pid > 0)
		waitpid(pid, &status, 0);
	return status ? -EIO : err;
}

/* Measures in a child, which prints its errors. */
static int measure(const struct perf_plan *plan, struct perf_result *ret)
{
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	if (pipe(fds))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (!pid)
		_exit(measure_here(plan, fds[1]) ? EXIT_FAILURE : EXIT_SUCCESS);
	close(fds[1]);
	n = pid < 0 ? -1 : read(fds[0], ret, sizeof(*ret));
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, &status, 0);
	return n == sizeof(*ret) ? 0 : -EIO;
}

static int measure_row(const struct perf_compare *c, const struct table *t,
		       struct row *row, unsigned int round)
{
	struct perf_plan p = {
		.test = t->test,
		.api = row->who->api,
		.size = t->size,
		.ns = c->ns ? c->ns : USUAL_NS,
		.idle = row->who->idle ? c->idle : 0,
		.warmup = 1000,
		.cpu = { c->cpu[0], c->cpu[1] },
	};
	const char *why;
	int ret;

	strcpy(p.providers, row->who->providers);
	if (p.api == PERF_RAW && c->cpu[0] == c->cpu[1])
		perf_two_cpus(p.cpu);
	ret = perf_plan_complete(&p, &why);
	if (ret) {
		tool_fail("%s: %s", row->who->name, why);
		return ret;
	}
	ret = row->who->shim ? measure_shimmed(&p, &row->last)
			     : measure(&p, &row->last);
	if (ret)
		return ret;
	row->value[round] = t->test == PERF_LAT ? row->last.rtt_ns[PERF_P50]
						: row->last.bytes_per_s;
	return 0;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct spread {
	double low, median, high;
};

static struct spread spread_of(const double *values, unsigned int n)
{
	double v[ROUNDS_MAX];

	memcpy(v, values, n * sizeof(*v));
	qsort(v, n, sizeof(*v), ascending);
	return (struct spread){
		.low = v[0],
		.median = (v[(n - 1) / 2] + v[n / 2]) / 2,
		.high = v[n - 1],
	};
}

/* The median of the rounds' ratios. */
static double ratio(const struct row *of, const struct row *to,
		    unsigned int rounds)
{
	double r[ROUNDS_MAX];

	for (unsigned int i = 0; i < rounds; i++)
		r[i] = of->value[i] / to->value[i];
	return spread_of(r, rounds).median;
}

/* Whether this contender can take part. */
static bool takes_part(const struct contender *who, enum perf_test test,
		       uint64_t idle)
{
	int cpu[2];

	if (who->api == PERF_EPOLL && test != PERF_LAT)
		return false;
	if (who->idle && !idle)
		return false;
	if (who->api != PERF_RAW)
		return true;
	return test == PERF_LAT && !perf_two_cpus(cpu);
}

static void table_init(struct table *t, enum perf_test test,
		       const struct perf_compare *c)
{
	*t = (struct table){
		.test = test,
		.size = c->size		   ? c->size
			: test == PERF_LAT ? 8
					   : 65536,
	};
	for (unsigned int i = 0; i < N_CONTENDERS; i++) {
		if (takes_part(&contenders[i], test, c->idle))
			t->rows[t->n_rows++].who = &contenders[i];
	}
}

/* The row of this API; null when it did not take part. */
static const struct row *find_row(const struct table *t, enum perf_api api)
{
	for (unsigned int i = 0; i < t->n_rows; i++) {
		if (t->rows[i].who->api == api)
			return &t->rows[i];
	}
	return NULL;
}

/* How many times the limit's time a round trip takes. */
static double times_the_limit(const struct table *t, const struct row *row,
			      unsigned int rounds)
{
	const struct row *raw = find_row(t, PERF_RAW);

	return raw ? ratio(row, raw, rounds) : -1;
}

/* How many times as fast as plain sockets of this kind. */
static double times_as_fast(const struct table *t, const struct row *row,
			    enum perf_api as, unsigned int rounds)
{
	const struct row *plain = find_row(t, as);

	return t->test == PERF_LAT ? ratio(plain, row, rounds)
				   : ratio(row, plain, rounds);
}

static int measure_round(const struct perf_compare *c, struct table *t,
			 unsigned int round)
{
	bool tell = tool_is_screen(STDERR_FILENO);
	int ret = 0;

	for (unsigned int i = 0; i < t->n_rows && !ret; i++) {
		if (tell)
			fprintf(stderr, "\r\033[Kround %u of %u: %s, %s",
				round + 1, c->rounds,
				t->test == PERF_LAT ? "round trips" : "stream",
				t->rows[i].who->name);
		ret = measure_row(c, t, &t->rows[i], round);
	}
	if (tell)
		fprintf(stderr, "\r\033[K");
	return ret;
}

static const char *text_value(char buf[TOOL_TEXT], const struct table *t,
			      double v)
{
	if (t->test == PERF_LAT)
		return tool_text_ns(buf, v);
	tool_text_count(buf, v);
	strcat(buf, "B/s");
	return buf;
}

static const char *text_times(char buf[TOOL_TEXT], double v)
{
	if (v < 0)
		return "";
	if (!isnormal(v)) /* if it could not be measured */
		return strcpy(buf, "-");
	snprintf(buf, TOOL_TEXT, v < 9.995 ? "%.2fx" : "%.0fx", v);
	return buf;
}

static void print_row(const struct table *t, const struct row *row,
		      unsigned int rounds)
{
	struct spread s = spread_of(row->value, rounds);
	char text[6][TOOL_TEXT];

	printf("  %-24s %9s %9s %9s", row->who->name,
	       text_value(text[0], t, s.median), text_value(text[1], t, s.low),
	       text_value(text[2], t, s.high));
	if (find_row(t, PERF_RAW))
		printf(" %8s",
		       text_times(text[3], times_the_limit(t, row, rounds)));
	printf(" %7s %7s\n",
	       text_times(text[4], times_as_fast(t, row, PERF_UNIX, rounds)),
	       text_times(text[5], times_as_fast(t, row, PERF_SOCK, rounds)));
}

/* Printed for a connection that did not reach the named fabric. */
static void print_surprise(const struct row *row)
{
	const struct perf_result *r = &row->last;

	if (!row->who->fabric || !strcmp(row->who->fabric, r->fabric))
		return;
	printf("  note: \"%s\" ran over %s: %s (%s)\n", row->who->name,
	       r->fabric, exs_x_reason_text(r->reason),
	       exs_x_reason_name(r->reason));
}

static void print_table(const struct table *t, unsigned int rounds)
{
	char size[TOOL_TEXT], head[64];

	snprintf(head, sizeof(head), "%s %s", tool_text_bytes(size, t->size),
		 t->test == PERF_LAT ? "round trip" : "messages, one way");
	printf("  %-24s %9s %9s %9s", head, "median", "lowest", "highest");
	if (find_row(t, PERF_RAW))
		printf(" %8s", "vs limit");
	printf(" %7s %7s\n", "vs UNIX", "vs TCP");
	for (unsigned int i = 0; i < t->n_rows; i++)
		print_row(t, &t->rows[i], rounds);
	for (unsigned int i = 0; i < t->n_rows; i++)
		print_surprise(&t->rows[i]);
	putchar('\n');
}

static bool has_gaps(const struct table *t, unsigned int n, unsigned int rounds)
{
	for (unsigned int i = 0; i < n; i++)
		for (unsigned int j = 0; j < t[i].n_rows; j++)
			for (unsigned int k = 0; k < rounds; k++)
				if (t[i].rows[j].value[k] <= 0)
					return true;
	return false;
}

static json_t *times_or_null(double v)
{
	return isnormal(v) && v > 0 ? json_real(v) : json_null();
}

static void print_all(const struct perf_compare *c, const struct table *t,
		      unsigned int n, double others)
{
	printf("%u round%s of %.3g s for each", c->rounds,
	       c->rounds == 1 ? "" : "s", (c->ns ? c->ns : USUAL_NS) / 1e9);
	if (c->cpu[0] != PERF_ANY_CPU)
		printf(", client on CPU %d, server on CPU %d", c->cpu[0],
		       c->cpu[1]);
	printf("\n\n");
	for (unsigned int i = 0; i < n; i++)
		print_table(&t[i], c->rounds);
	if (find_row(&t[0], PERF_RAW))
		puts("vs limit: times as long as two processes need that only "
		     "bounce a cache line");
	puts("vs UNIX:  times as fast as a UNIX stream socket");
	puts("vs TCP:   times as fast as a TCP socket");
	if (has_gaps(t, n, c->rounds))
		puts("-:        " PERF_TOO_SHORT);
	puts("exs run:  plain calls of a program that knows nothing of libexs");
	if (c->idle)
		printf("idle:     with %" PRIu64 " further connection%s in the "
		       "server's set\n",
		       c->idle, c->idle == 1 ? "" : "s");
	perf_host_print(others);
}

static json_t *row_json(const struct table *t, const struct row *row,
			unsigned int rounds)
{
	struct spread s = spread_of(row->value, rounds);
	double limit = times_the_limit(t, row, rounds);
	json_t *values = json_array();

	for (unsigned int i = 0; i < rounds; i++)
		json_array_append_new(values, json_real(row->value[i]));
	return json_pack(
		"{s:s, s:s, s:s?, s:s, s:f, s:f, s:f, s:o, s:o, s:o, s:o}",
		"name", row->who->key, "fabric", row->last.fabric, "reason",
		row->last.reason < 0 ? NULL
				     : exs_x_reason_name(row->last.reason),
		"mode", perf_mode_names[row->last.plan.mode], "median",
		s.median, "min", s.low, "max", s.high, "rounds", values,
		"vs_raw", times_or_null(limit), "vs_unix",
		times_or_null(times_as_fast(t, row, PERF_UNIX, rounds)),
		"vs_tcp",
		times_or_null(times_as_fast(t, row, PERF_SOCK, rounds)));
}

static void print_all_json(const struct perf_compare *c, const struct table *t,
			   unsigned int n, double others)
{
	json_t *list = json_array();
	json_t *rows, *all;

	for (unsigned int i = 0; i < n; i++) {
		rows = json_array();
		for (unsigned int j = 0; j < t[i].n_rows; j++)
			json_array_append_new(
				rows,
				row_json(&t[i], &t[i].rows[j], c->rounds));
		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:I, s:o}", "test",
				  perf_test_names[t[i].test], "unit",
				  t[i].test == PERF_LAT ? "rtt_ns"
							: "bytes_per_s",
				  "size", (json_int_t)t[i].size, "rows", rows));
	}
	all = json_pack("{s:i, s:f, s:I, s:o, s:o}", "rounds", c->rounds,
			"seconds", (c->ns ? c->ns : USUAL_NS) / 1e9, "idle",
			(json_int_t)c->idle, "others",
			others < 0 ? json_null() : json_real(others), "tables",
			list);
	json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(all);
}

int perf_compare(const struct perf_compare *c)
{
	static struct table tables[2];
	struct perf_host host;
	unsigned int n = 0;
	double others;
	int ret = 0;

	for (enum perf_test test = PERF_LAT; test <= PERF_BW; test++) {
		if (c->test < 0 || c->test == (int)test)
			table_init(&tables[n++], test, c);
	}
	perf_host_begin(&host, c->cpu);
	for (unsigned int round = 0; round < c->rounds && !ret; round++) {
		for (unsigned int i = 0; i < n && !ret; i++)
			ret = measure_round(c, &tables[i], round);
	}
	if (ret)
		return TOOL_FAILED;
	others = perf_host_others(&host);
	if (c->json)
		print_all_json(c, tables, n, others);
	else
		print_all(c, tables, n, others);
	return TOOL_OK;
}
