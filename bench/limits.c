/* SPDX-License-Identifier: BSD-2-Clause */
/* The speed of two processes that use the kernel without sockets, for
 * bench/compare:
 *
 *	limits WHAT SIZE SECONDS CPU CPU
 *
 * WHAT is pipe-lat, pipe-bw, or eventfd, whose round trip is two wake-ups. The
 * client measures as exs perf does; the result has the names of its JSON. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/perf_meter.h"

#define WARMUP 200
#define PIECE  65536 /* of what the receiver of a stream reads */

static struct ends {
	int in, out;
} ends;
static char *buf;
static size_t size;

static void put(size_t n)
{
	if (write(ends.out, buf, n) != (ssize_t)n)
		err(1, "write");
}

/* False at the end of the stream. */
static bool get(size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t one = read(ends.in, buf + got, n - got);

		if (one < 0)
			err(1, "read");
		if (!one)
			return false;
		got += (size_t)one;
	}
	return true;
}

static int trip(void *arg)
{
	put(size);
	return get(size) ? 0 : -EPIPE;
}

static void echo(void)
{
	while (get(size))
		put(size);
}

static void sink(void)
{
	while (read(ends.in, buf, PIECE) > 0)
		;
	put(1);
}

static void stream(struct perf_meter *m, uint64_t ns)
{
	uint64_t start = perf_now();

	do {
		put(size);
		m->iters++;
		m->ns = perf_now() - start;
	} while (m->ns < ns);
	close(ends.out);
	if (!get(1))
		errx(1, "the receiver is gone");
	m->ns = perf_now() - start;
}

static double cpu(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void print_times(const struct perf_meter *m)
{
	static const char *const names[] = { "min", "p50",  "p75",   "p90",
					     "p99", "p999", "p9999", "max" };
	static const double parts[] = { 0,    0.5,   0.75,   0.9,
					0.99, 0.999, 0.9999, 1 };
	double clock = perf_meter_overhead(m);

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		printf("%s\"%s\": %.1f", i ? ", " : "", names[i],
		       hist_quantile(&m->rtt, parts[i]) - clock);
}

/* Two descriptors each: of a pipe there is one for each end, of an eventfd the
 * same one is both. */
static void open_way(bool event, int way[2])
{
	if (!event && pipe2(way, O_CLOEXEC))
		err(1, "pipe2");
	if (event)
		way[0] = way[1] = eventfd(0, EFD_CLOEXEC);
	if (way[0] < 0)
		err(1, "eventfd");
}

static pid_t serve(bool stream_, int cpu, struct ends theirs, struct ends ours)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || perf_run_on(cpu))
		_exit(1);
	if (ours.out != theirs.in)
		close(ours.out);
	if (ours.in != theirs.out)
		close(ours.in);
	ends = theirs;
	stream_ ? sink() : echo();
	_exit(0);
}

int main(int argc, char **argv)
{
	static struct perf_meter m;
	bool event, bw;
	int there[2], back[2];
	double mine;
	uint64_t ns;
	pid_t pid;

	if (argc != 6)
		errx(2, "usage: limits pipe-lat|pipe-bw|eventfd SIZE SECONDS "
			"CPU CPU");
	event = !strcmp(argv[1], "eventfd");
	bw = !strcmp(argv[1], "pipe-bw");
	size = event ? sizeof(uint64_t) : strtoul(argv[2], NULL, 10);
	ns = (uint64_t)(atof(argv[3]) * 1e9);
	if (!size || !ns || (!event && !bw && strcmp(argv[1], "pipe-lat")))
		errx(2, "there is no such test");
	buf = malloc(size > PIECE ? size : PIECE);
	if (!buf)
		err(1, "memory");
	memset(buf, 1, size);
	open_way(event, there);
	open_way(event, back);
	ends = (struct ends){ back[0], there[1] };
	pid = serve(bw, atoi(argv[5]), (struct ends){ there[0], back[1] },
		    ends);
	if (perf_run_on(atoi(argv[4])))
		errx(1, "CPU %s is not ours", argv[4]);
	if (!event) {
		close(there[0]);
		close(back[1]);
	}
	for (int i = 0; i < WARMUP && !bw; i++)
		trip(NULL);
	mine = cpu(RUSAGE_SELF);
	if (bw)
		stream(&m, ns);
	else if (perf_meter_run(&m, (struct perf_goal){ .ns = ns }, trip, NULL))
		errx(1, "the server is gone");
	mine = cpu(RUSAGE_SELF) - mine;
	/* Nobody hangs up an eventfd. */
	if (event)
		kill(pid, SIGKILL);
	else if (!bw)
		close(ends.out);
	waitpid(pid, NULL, 0);
	printf("{\"rtt_ns\": ");
	if (bw)
		printf("null");
	else {
		printf("{");
		print_times(&m);
		printf("}");
	}
	printf(", \"msgs_per_s\": %.1f, \"bytes_per_s\": %.1f, "
	       "\"cpu_s\": {\"client\": %.6f, \"server\": %.6f}, "
	       "\"iters\": %llu}\n",
	       perf_meter_rate(&m), perf_meter_rate(&m) * (double)size, mine,
	       cpu(RUSAGE_CHILDREN), (unsigned long long)m.iters);
	return 0;
}
