/* SPDX-License-Identifier: BSD-2-Clause */
/* Round trips of plain programs, in pairs of a client, which writes and reads,
 * and a server, which waits in the given way. Each is a process.
 *
 *	echo FACE CPU CPU SECONDS SIZE PAIRS PAUSE
 *
 * FACE is block, poll, select, epoll or et (edge-triggered); a CPU of -1 leaves
 * the process unpinned. A client sleeps PAUSE microseconds between two round
 * trips, or computes for -PAUSE. Prints p50, p99 and mean in microseconds, and
 * the round trips per second of all pairs together. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WARMUP	  300
#define TRIPS	  2000000 /* of all pairs, at most */
#define SIZE_MAX_ 65536

static char buf[SIZE_MAX_];
static size_t size;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "CPU %d", cpu);
}

static void wait_block(int fd)
{
}

static void wait_poll(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (poll(&p, 1, -1) != 1)
		err(1, "poll");
}

static void wait_select(int fd)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	if (select(fd + 1, &set, NULL, NULL, NULL) != 1)
		err(1, "select");
}

static void wait_epoll_as(int fd, uint32_t flags)
{
	static int set = -1;
	struct epoll_event ev = { .events = EPOLLIN | flags, .data.fd = fd };

	if (set < 0) {
		set = epoll_create1(0);
		if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev))
			err(1, "epoll");
	}
	if (epoll_wait(set, &ev, 1, -1) != 1)
		err(1, "epoll_wait");
}

static void wait_epoll(int fd)
{
	wait_epoll_as(fd, 0);
}

static void wait_et(int fd)
{
	wait_epoll_as(fd, EPOLLET);
}

static const struct face {
	const char *name;
	void (*wait)(int fd);
	int flags;
} faces[] = {
	{ "block", wait_block, 0 },    { "poll", wait_poll, 0 },
	{ "select", wait_select, 0 },  { "epoll", wait_epoll, O_NONBLOCK },
	{ "et", wait_et, O_NONBLOCK },
};

static void put(int fd, size_t n)
{
	if (write(fd, buf, n) != (ssize_t)n)
		err(1, "write");
}

static void serve(const struct face *f, int listener)
{
	int fd = accept(listener, NULL, NULL), one = 1;
	ssize_t n;

	if (fd < 0 || fcntl(fd, F_SETFL, f->flags))
		err(1, "accept");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (;;) {
		f->wait(fd);
		/* Until there is nothing, as an edge demands. */
		while ((n = read(fd, buf, sizeof(buf))) > 0) {
			put(fd, (size_t)n);
			if (!(f->flags & O_NONBLOCK))
				break;
		}
		if (n == 0)
			return;
		if (n < 0 && errno != EAGAIN)
			err(1, "read");
	}
}

static void trip(int fd)
{
	size_t got = 0;

	put(fd, size);
	while (got < size) {
		ssize_t n = read(fd, buf, sizeof(buf));

		if (n <= 0)
			err(1, "read");
		got += (size_t)n;
	}
}

/* What a pair measured, in memory that processes share. */
struct result {
	size_t n, max;
	double us; /* in all */
	double *times;
};

static void rest(int pause)
{
	double end;

	if (pause > 0)
		usleep((useconds_t)pause);
	if (pause < 0)
		for (end = now_us() - pause; now_us() < end;)
			;
}

static void drive(const struct sockaddr_in *to, struct result *r, double us,
		  int pause)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	double begun, start, end;

	if (fd < 0 || connect(fd, (const void *)to, sizeof(*to)))
		err(1, "connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int i = 0; i < WARMUP; i++)
		trip(fd);
	begun = end = now_us();
	while (end - begun < us && r->n < r->max) {
		rest(pause);
		start = now_us();
		trip(fd);
		end = now_us();
		r->times[r->n++] = end - start;
	}
	r->us = end - begun;
	close(fd);
}

/* A child that dies with this process. */
static bool child(int cpu)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid)
		return false;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_TIMERSLACK, 1000);
	if (getppid() != parent)
		exit(1);
	pin(cpu);
	return true;
}

static void start(const struct face *f, const int *cpu, struct result *r,
		  double us, int pause)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);

	if (bind(listener, (void *)&a, sizeof(a)) || listen(listener, 1) ||
	    getsockname(listener, (void *)&a, &len))
		err(1, "listen");
	if (child(cpu[1])) {
		serve(f, listener);
		exit(0);
	}
	if (child(cpu[0])) {
		close(listener);
		drive(&a, r, us, pause);
		exit(0);
	}
	close(listener);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void *shared(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		err(1, "memory");
	return p;
}

static void print(const struct result *r, int pairs, double *all)
{
	double sum = 0, rate = 0;
	size_t n = 0;

	for (int i = 0; i < pairs; i++) {
		memmove(all + n, r[i].times, r[i].n * sizeof(*all));
		n += r[i].n;
		rate += (double)r[i].n * 1e6 / r[i].us;
	}
	for (size_t i = 0; i < n; i++)
		sum += all[i];
	qsort(all, n, sizeof(*all), ascending);
	printf("%.2f %.2f %.2f %.1f\n", all[n / 2], all[n * 99 / 100],
	       sum / (double)n, rate);
}

int main(int argc, char **argv)
{
	const struct face *f = NULL;
	int cpu[2], pairs, status, bad = 0;
	struct result *results;
	double *times, us;

	if (argc != 8)
		errx(2, "usage: echo FACE CPU CPU SECONDS SIZE PAIRS PAUSE");
	for (size_t i = 0; i < sizeof(faces) / sizeof(faces[0]); i++)
		if (!strcmp(argv[1], faces[i].name))
			f = &faces[i];
	cpu[0] = atoi(argv[2]);
	cpu[1] = atoi(argv[3]);
	us = atof(argv[4]) * 1e6;
	size = (size_t)atoi(argv[5]);
	pairs = atoi(argv[6]);
	if (!f || us <= 0 || !size || size > SIZE_MAX_ || pairs < 1)
		errx(2, "there is no such test");
	results = shared((size_t)pairs * sizeof(*results));
	times = shared(TRIPS * sizeof(*times));
	for (int i = 0; i < pairs; i++) {
		results[i].max = (size_t)(TRIPS / pairs);
		results[i].times = times + (size_t)i * results[i].max;
		start(f, cpu, &results[i], us, atoi(argv[7]));
	}
	while (wait(&status) > 0)
		bad |= status;
	if (bad)
		errx(1, "a process failed");
	print(results, pairs, times);
	return 0;
}
