/* SPDX-License-Identifier: BSD-2-Clause */
/* The client of one test: connects, warms up, measures, and asks the server
 * what it used.
 */
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf_ctl.h"
#include "tools/perf_lane.h"
#include "tools/perf_server.h"
#include "tools/tool.h"

/* Limits of the warm-up besides its iterations: for slow connections, and for
 * connections about which the library has not decided yet, because a handshake
 * may take seconds on a busy host. */
#define WARM_NS	   UINT64_C(1000000000)
#define UPGRADE_NS UINT64_C(5000000000)

struct client {
	struct perf_ctl ctl;
	const struct perf_plan *plan;
	const struct perf_io *io;
	struct perf_local *local;
	struct sockaddr_storage to;
	socklen_t to_len;
	int *fds; /* the idle ones last */
	unsigned int n_fds;
	char *buf;
	char *last;
	struct perf_lane *lanes;
	struct perf_meter *meters; /* one for each */
	unsigned int n_lanes;
};

/* Prints an error message of the server, if the line is one; returns
 * whether. */
static bool told(const char *line)
{
	if (strncmp(line, "error ", 6))
		return false;
	tool_fail("%s", line + 6);
	return true;
}

static int ask_server(struct client *c)
{
	char line[PERF_LINE];
	unsigned int port;
	int ret;

	ret = perf_plan_print(c->plan, line, sizeof(line));
	if (!ret)
		ret = perf_say(&c->ctl, "%s", line);
	if (!ret)
		ret = perf_hear(&c->ctl, line);
	if (ret) {
		tool_fail("the server does not answer: %s", strerror(-ret));
		return ret;
	}
	if (told(line))
		return -EREMOTEIO;
	if (sscanf(line, "ready %u", &port) != 1 || port > UINT16_MAX) {
		tool_fail("the server is not exs perf, or has another version");
		return -EPROTO;
	}
	return perf_address(c->ctl.fd, true, (uint16_t)port, &c->to,
			    &c->to_len);
}

static int connect_one(struct client *c)
{
	int s = c->io->socket(c->to.ss_family);
	int ret;

	if (s < 0)
		return s;
	ret = c->io->connect(s, (struct sockaddr *)&c->to, c->to_len);
	if (!ret && c->plan->test == PERF_LAT)
		ret = c->io->set(s, IPPROTO_TCP, TCP_NODELAY, 1);
	if (!ret)
		return s;
	c->io->close(s);
	return ret;
}

static int connect_all(struct client *c)
{
	uint64_t n = c->plan->connections + c->plan->idle;
	int s;

	if (c->plan->test == PERF_CONN || c->plan->api == PERF_RAW)
		return 0;
	c->fds = calloc(n, sizeof(*c->fds));
	if (!c->fds)
		return -ENOMEM;
	if (c->plan->api == PERF_UNIX) {
		c->fds[c->n_fds++] = c->local->fds[PERF_CLIENT];
		return 0;
	}
	while (c->n_fds < n) {
		s = connect_one(c);
		if (s < 0)
			return s;
		c->fds[c->n_fds++] = s;
	}
	return 0;
}

static perf_drive *choose_drive(const struct perf_plan *p)
{
	bool async = p->mode == PERF_ASYNC;

	if (p->test == PERF_CONN)
		return perf_stream_conn;
	if (p->api == PERF_RAW)
		return p->test == PERF_LAT ? perf_raw_lat : perf_raw_bw;
	if (p->test != PERF_LAT)
		return async ? perf_async_bw : perf_stream_bw;
	if (p->api == PERF_EPOLL && p->depth > 1)
		return perf_epoll_lat;
	return async ? perf_async_lat : perf_stream_lat;
}

/* An epoll server's client drives all connections from one thread. */
static unsigned int lanes_wanted(const struct perf_plan *p)
{
	if (p->api == PERF_EPOLL && p->test == PERF_LAT)
		return 1;
	return (unsigned int)p->connections;
}

static int open_lanes(struct client *c)
{
	unsigned int n = lanes_wanted(c->plan);
	unsigned int each = c->plan->connections / n;
	int ret = 0;

	c->buf = perf_buffer(c->plan->size);
	c->last = perf_buffer(c->plan->size);
	c->lanes = calloc(n, sizeof(*c->lanes));
	c->meters = calloc(n, sizeof(*c->meters));
	if (!c->buf || !c->last || !c->lanes || !c->meters)
		return -ENOMEM;
	c->last[c->plan->size - 1] = PERF_LAST_BYTE;
	for (; c->n_lanes < n && !ret; c->n_lanes++) {
		struct perf_lane *l = &c->lanes[c->n_lanes];

		*l = (struct perf_lane){
			.drive = choose_drive(c->plan),
			.plan = c->plan,
			.io = c->io,
			.fds = c->fds ? c->fds + c->n_lanes * each : NULL,
			.n_fds = c->fds ? each : 0,
			.to = c->to,
			.to_len = c->to_len,
			.local = c->local,
			.buf = c->buf,
			.last = c->last,
			.q = EXS_QHANDLE_INVALID,
			.mem = { EXS_MHANDLE_INVALID, EXS_MHANDLE_INVALID },
			.meter = &c->meters[c->n_lanes],
		};
		if (c->plan->mode == PERF_ASYNC)
			ret = perf_async_open(l);
	}
	return ret;
}

static void close_all(struct client *c)
{
	for (unsigned int i = 0; i < c->n_lanes; i++) {
		if (c->plan->mode == PERF_ASYNC)
			perf_async_close(&c->lanes[i]);
	}
	for (unsigned int i = 0; i < c->n_fds; i++) {
		if (!c->local)
			c->io->close(c->fds[i]);
	}
	free(c->fds);
	free(c->lanes);
	free(c->meters);
	perf_buffer_free(c->buf, c->plan->size);
	perf_buffer_free(c->last, c->plan->size);
}

static void *lane_thread(void *arg)
{
	struct perf_lane *l = arg;

	l->result = l->drive(l);
	return NULL;
}

static int run_threads(struct client *c)
{
	pthread_t *threads = calloc(c->n_lanes, sizeof(*threads));
	unsigned int n = 0;
	int ret = threads ? 0 : -ENOMEM;

	for (; n < c->n_lanes && !ret; n++)
		ret = -pthread_create(&threads[n], NULL, lane_thread,
				      &c->lanes[n]);
	if (ret && n)
		n--;
	while (n--)
		pthread_join(threads[n], NULL);
	free(threads);
	return ret;
}

static int run_lanes(struct client *c, struct perf_goal goal)
{
	int ret = 0;

	for (unsigned int i = 0; i < c->n_lanes; i++)
		c->lanes[i].goal = goal;
	if (c->n_lanes == 1)
		return c->lanes[0].drive(&c->lanes[0]);
	ret = run_threads(c);
	for (unsigned int i = 0; i < c->n_lanes && !ret; i++)
		ret = c->lanes[i].result;
	return ret;
}

/* Whether the library has decided about every connection. */
static bool settled(const struct client *c)
{
	exs_x_sockinfo_t info;

	for (unsigned int i = 0; i < c->plan->connections; i++) {
		if (i < c->n_fds && !c->io->info(c->fds[i], &info) &&
		    info.exs_x_reason == EXS_X_REASON_UNDECIDED)
			return false;
	}
	return true;
}

static uint64_t warm_step(const struct perf_plan *p)
{
	uint64_t step = p->test == PERF_LAT ? 64 : (1 << 20) / p->size;

	if (p->test == PERF_CONN)
		return 10;
	if (p->api == PERF_EPOLL)
		step *= p->connections;
	return step < 1 ? 1 : step > 1000000 ? 1000000 : step;
}

static int warm_up(struct client *c)
{
	uint64_t slow = WARM_NS + c->plan->connections * 1000000;
	struct perf_goal step = { .iters = warm_step(c->plan) };
	uint64_t start = perf_now();
	uint64_t done = 0, spent = 0;
	int ret = 0;

	if (!c->plan->warmup)
		return 0;
	while (!ret) {
		bool enough = done >= c->plan->warmup || spent > slow;

		if (enough && (settled(c) || spent > UPGRADE_NS))
			break;
		ret = run_lanes(c, step);
		done += step.iters;
		spent = perf_now() - start;
	}
	for (unsigned int i = 0; i < c->n_lanes; i++)
		c->meters[i] = (struct perf_meter){ 0 };
	return ret;
}

static int tell(struct client *c, const char *word, char answer[PERF_LINE])
{
	int ret = perf_say(&c->ctl, "%s", word);

	if (!ret)
		ret = perf_hear(&c->ctl, answer);
	return !ret && told(answer) ? -EREMOTEIO : ret;
}

static int measure(struct client *c, struct perf_result *r)
{
	struct perf_goal goal = { c->plan->iters,
				  c->plan->iters ? 0 : c->plan->ns };
	struct perf_used before, after, there;
	char line[PERF_LINE];
	int ret;

	ret = tell(c, "start", line);
	if (ret)
		return ret;
	perf_used(c->io, c->fds, c->n_fds, &before);
	ret = run_lanes(c, goal);
	perf_used(c->io, c->fds, c->n_fds, &after);
	if (!ret)
		ret = tell(c, "stop", line);
	if (ret)
		return ret;
	if (sscanf(line,
		   "report %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
		   " %" SCNd64,
		   &there.cpu_us, &there.user_us, &there.bells, &there.sent,
		   &there.direct) != 5)
		return -EPROTO;
	r->cpu_s[PERF_CLIENT] = (after.cpu_us - before.cpu_us) / 1e6;
	r->cpu_s[PERF_SERVER] = there.cpu_us / 1e6;
	r->user_s[PERF_CLIENT] = (after.user_us - before.user_us) / 1e6;
	r->user_s[PERF_SERVER] = there.user_us / 1e6;
	if (!perf_io_knows(c->plan->api) || c->plan->test == PERF_CONN)
		return 0;
	r->bells = after.bells - before.bells + there.bells;
	there.sent += after.sent - before.sent;
	there.direct += after.direct - before.direct;
	if (there.sent > 0)
		r->direct = (double)there.direct / (double)there.sent;
	return 0;
}

static void name_fabric(struct client *c, struct perf_result *r)
{
	exs_x_sockinfo_t info = { .exs_x_reason = -1 };
	const char *tx = info.exs_x_tx_fabric, *rx = info.exs_x_rx_fabric;

	const char *kernel = perf_api_is_local(c->plan->api)
				     ? perf_api_names[c->plan->api]
				     : "tcp";

	snprintf(r->fabric, sizeof(r->fabric), "%s", kernel);
	if (!perf_io_knows(c->plan->api))
		return;
	if (c->plan->test == PERF_CONN)
		info = c->lanes[0].info;
	else if (c->io->info(c->fds[0], &info))
		return;
	r->reason = info.exs_x_reason;
	if (!strcmp(tx, "tcp")) /* of the kernel, of any kind */
		tx = kernel;
	if (!strcmp(rx, "tcp"))
		rx = kernel;
	if (!strcmp(tx, rx))
		snprintf(r->fabric, sizeof(r->fabric), "%s", tx);
	else
		snprintf(r->fabric, sizeof(r->fabric), "%s+%s", tx, rx);
}

/* Subtracts the clock's part, which is an estimate. 0: the time is too
 * short. */
static double less(double ns, double clock)
{
	return ns > clock ? ns - clock : 0;
}

static void take_quantiles(const struct perf_meter *m, struct perf_result *r)
{
	static const double parts[PERF_N_QUANTILES] = {
		[PERF_P50] = 0.5,  [PERF_P75] = 0.75,	[PERF_P90] = 0.9,
		[PERF_P99] = 0.99, [PERF_P999] = 0.999, [PERF_P9999] = 0.9999,
		[PERF_MAX] = 1,
	};
	double clock = perf_meter_overhead(m);

	if (!m->rtt.n)
		return;
	for (int i = 0; i < PERF_N_QUANTILES; i++)
		r->rtt_ns[i] = less(hist_quantile(&m->rtt, parts[i]), clock);
	r->rtt_ns[PERF_MIN] = less(m->rtt.min, clock);
}

static int sum_up(struct client *c, struct perf_result *r)
{
	struct perf_meter *all = calloc(1, sizeof(*all));
	double rate = 0;

	if (!all)
		return -ENOMEM;
	for (unsigned int i = 0; i < c->n_lanes; i++) {
		rate += perf_meter_rate(&c->meters[i]);
		perf_meter_merge(all, &c->meters[i]);
	}
	r->iters = all->iters;
	r->wall_ns = all->ns;
	take_quantiles(all, r);
	if (c->plan->test == PERF_CONN)
		r->conns_per_s = rate;
	else
		r->msgs_per_s = rate;
	if (c->plan->test == PERF_BW || c->plan->test == PERF_RATE)
		r->bytes_per_s = rate * c->plan->size;
	name_fabric(c, r);
	free(all);
	return 0;
}

static int run(struct client *c, struct perf_result *r)
{
	const char *what = "start the library";
	char line[PERF_LINE];
	int ret;

	ret = c->io->start();
	if (!ret) {
		what = "connect";
		ret = connect_all(c);
	}
	if (!ret) {
		what = "set up the test";
		ret = open_lanes(c);
	}
	if (!ret) {
		what = "warm up";
		ret = warm_up(c);
	}
	if (!ret) {
		what = "measure";
		ret = measure(c, r);
	}
	if (!ret)
		ret = sum_up(c, r);
	/* A server that failed sent the reason before its connections ended. */
	if (perf_is_end(ret) && !perf_heard(&c->ctl, line) && told(line))
		return -EREMOTEIO;
	if (ret && ret != -EREMOTEIO)
		tool_fail("cannot %s: %s%s", what, strerror(-ret),
			  ret == -EPIPE ? " (the server left)" : "");
	return ret;
}

int perf_client(int ctl, const struct perf_plan *plan, struct perf_local *local,
		struct perf_result *ret)
{
	struct client c = {
		.ctl.fd = ctl,
		.plan = plan,
		.io = perf_io(plan),
		.local = local,
	};
	struct perf_result r = {
		.plan = *plan,
		.shim = perf_io_shim(),
		.reason = -1,
		.bytes_per_s = -1,
		.msgs_per_s = -1,
		.conns_per_s = -1,
		.bells = -1,
		.direct = -1,
	};
	int err;

	for (int i = 0; i < PERF_N_QUANTILES; i++)
		r.rtt_ns[i] = -1;
	perf_raise_limits();
	if (plan->providers[0])
		setenv("EXS_PROVIDER", plan->providers, 1);
	err = perf_run_on(plan->cpu[PERF_CLIENT]);
	if (err)
		tool_fail("cannot run on CPU %d: %s", plan->cpu[PERF_CLIENT],
			  strerror(-err));
	else
		err = ask_server(&c);
	if (!err)
		err = run(&c, &r);
	close_all(&c);
	close(ctl);
	if (!err)
		*ret = r;
	return err;
}
