/* SPDX-License-Identifier: BSD-2-Clause */
/* Loops of synchronous calls: client and server of each test. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf_lane.h"

/* The cost of reading the clock must be small beside small messages. */
#define MESSAGES_PER_LOOK 256
#define BYTES_PER_LOOK	  (1 << 20)
#define SINK_MIN	  65536
#define SINK_MAX	  (1 << 20)

static int round_trip(struct perf_lane *l, int s)
{
	char *back = l->plan->own ? l->last : l->buf;
	size_t size = l->plan->size;
	ssize_t n;
	int ret;

	ret = perf_send_all(l->io, s, l->buf, size);
	if (ret)
		return ret;
	n = perf_recv_all(l->io, s, back, size);
	if (n <= 0)
		return n ? (int)n : -EPIPE;
	return 0;
}

static int trip_on_the_only_one(void *arg)
{
	struct perf_lane *l = arg;

	return round_trip(l, l->fds[0]);
}

static int trip_on_any(void *arg)
{
	struct perf_lane *l = arg;

	return round_trip(l, l->fds[random() % l->n_fds]);
}

int perf_stream_lat(struct perf_lane *l)
{
	if (l->n_fds == 1)
		return perf_meter_run(l->meter, l->goal, trip_on_the_only_one,
				      l);
	return perf_meter_run(l->meter, l->goal, trip_on_any, l);
}

static int send_run(struct perf_lane *l, uint64_t n)
{
	int ret = 0;

	while (n-- && !ret)
		ret = perf_send_all(l->io, l->fds[0], l->buf, l->plan->size);
	return ret;
}

static int send_last(struct perf_lane *l)
{
	ssize_t n;
	char ack;
	int ret;

	ret = perf_send_all(l->io, l->fds[0], l->last, l->plan->size);
	if (ret)
		return ret;
	n = l->io->recv(l->fds[0], &ack, 1);
	if (n <= 0)
		return n ? (int)n : -EPIPE;
	return 0;
}

int perf_stream_bw(struct perf_lane *l)
{
	uint64_t start = perf_now();
	uint64_t left = l->goal.iters ? l->goal.iters : UINT64_MAX;
	uint64_t run = BYTES_PER_LOOK / l->plan->size;
	uint64_t sent = 1; /* the last one included */
	uint64_t n;
	int ret = 0;

	run = run < 1 ? 1 : run > MESSAGES_PER_LOOK ? MESSAGES_PER_LOOK : run;
	for (left--; left && !ret; left -= n) {
		if (l->goal.ns && perf_now() - start >= l->goal.ns)
			break;
		n = left < run ? left : run;
		ret = send_run(l, n);
		sent += n;
	}
	if (!ret)
		ret = send_last(l);
	l->meter->iters += sent;
	l->meter->ns += perf_now() - start;
	return ret;
}

static int transact(struct perf_lane *l, int s)
{
	char end;
	int ret;

	ret = l->io->connect(s, (struct sockaddr *)&l->to, l->to_len);
	if (!ret)
		ret = round_trip(l, s);
	if (ret)
		return ret;
	/* The server closes first, so that the client's ports do not run out
	 * waiting. */
	ret = (int)l->io->recv(s, &end, 1);
	if (ret > 0)
		return -EPROTO;
	/* This costs further system calls, so only some connections are
	 * asked. */
	if (l->asked++ % 64 == 0)
		l->io->info(s, &l->info);
	return ret;
}

static int transaction(void *arg)
{
	struct perf_lane *l = arg;
	int s = l->io->socket(l->to.ss_family);
	int ret;

	if (s < 0)
		return s;
	ret = transact(l, s);
	l->io->close(s);
	return ret;
}

int perf_stream_conn(struct perf_lane *l)
{
	return perf_meter_run(l->meter, l->goal, transaction, l);
}

int perf_stream_echo(const struct perf_io *io, int s,
		     const struct perf_plan *plan)
{
	char *buf = perf_buffer(plan->size);
	char *answer = plan->own ? perf_buffer(plan->size) : buf;
	ssize_t n = 0;
	int ret = buf && answer ? 0 : -ENOMEM;

	while (!ret && (n = perf_recv_all(io, s, buf, plan->size)) > 0)
		ret = perf_send_all(io, s, answer, plan->size);
	if (answer != buf)
		perf_buffer_free(answer, plan->size);
	perf_buffer_free(buf, plan->size);
	return ret ? ret : (int)n;
}

size_t perf_sink_size(const struct perf_plan *plan)
{
	if (plan->messages)
		return plan->size;
	if (plan->size < SINK_MIN)
		return SINK_MIN;
	return plan->size > SINK_MAX ? SINK_MAX : plan->size;
}

int perf_stream_sink(const struct perf_io *io, int s,
		     const struct perf_plan *plan)
{
	size_t len = perf_sink_size(plan);
	char *buf = perf_buffer(len);
	ssize_t n = 0;
	int ret = buf ? 0 : -ENOMEM;

	while (!ret && (n = io->recv(s, buf, len)) > 0) {
		if (buf[n - 1] == PERF_LAST_BYTE)
			ret = perf_send_all(io, s, buf, 1);
	}
	perf_buffer_free(buf, len);
	return ret ? ret : (int)n;
}

int perf_stream_respond(const struct perf_io *io, int listener,
			const struct perf_plan *plan)
{
	char *buf = perf_buffer(plan->size);
	int s;

	if (!buf)
		return -ENOMEM;
	for (;;) {
		s = io->accept(listener);
		if (s == -ECONNABORTED)
			continue;
		if (s < 0)
			break;
		if (perf_recv_all(io, s, buf, plan->size) > 0)
			perf_send_all(io, s, buf, plan->size);
		io->close(s);
	}
	perf_buffer_free(buf, plan->size);
	return s;
}
