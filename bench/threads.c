/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that each send messages of 8 bytes through their own connection, with
 * both ends in this process, and receive them, for bench/compare:
 *
 *	threads N own|shared SECONDS
 *
 * Each thread has a queue, or all share one: then a thread takes any events
 * that come. Prints the messages per second of all threads. */
#include <err.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>
#include <time.h>

#define THREADS_MAX 64
#define TOGETHER    64 /* messages that one call submits */
#define SIZE	    8
#define ROOM	    (TOGETHER * SIZE)

struct worker {
	pthread_t thread;
	exs_qhandle_t q;
	int from, to;
	char out[SIZE], in[ROOM];
	_Atomic long left; /* sends, and receives of all that was sent */
	_Atomic long received;
	long messages;
};

static struct worker workers[THREADS_MAX];
static pthread_barrier_t ready;
static atomic_bool over;

static int must(int ret, const char *what)
{
	if (ret < 0)
		err(1, "%s", what);
	return ret;
}

static void make_pair(int ends[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(a);
	exs_qhandle_t q = EXS_QHANDLE_INVALID;
	int l = must(exs_socket(AF_INET, SOCK_STREAM, 0), "exs_socket");

	must(exs_bind(l, (struct sockaddr *)&a, len), "exs_bind");
	must(exs_listen(l, 1), "exs_listen");
	must(exs_getsockname(l, (struct sockaddr *)&a, &len),
	     "exs_getsockname");
	ends[0] = must(exs_socket(AF_INET, SOCK_STREAM, 0), "exs_socket");
	must(exs_connect(ends[0], (struct sockaddr *)&a, len, 0, q, NULL),
	     "exs_connect");
	ends[1] = must(exs_accept(l, NULL, 0, q, NULL), "exs_accept");
	must(exs_close(l, q, NULL), "exs_close");
}

static void hear(struct worker *w)
{
	must((int)exs_recv(w->to, w->in, ROOM, 0, w->q, w,
			   EXS_MHANDLE_UNREGISTERED),
	     "exs_recv");
}

static void happened(const exs_event_t *e)
{
	struct worker *w = e->exs_evt_ahandle;
	size_t n = e->exs_evt_un.exs_evt_xfer.exs_evt_length;

	if (e->exs_errno)
		errx(1, "a message: %s", strerror(e->exs_errno));
	if (e->exs_evt_type == EXS_EVT_RECV &&
	    atomic_fetch_add(&w->received, (long)n) + (long)n < ROOM)
		hear(w);
	/* Last: with none left its thread goes on. */
	atomic_fetch_sub(&w->left,
			 e->exs_evt_type == EXS_EVT_RECV ? (long)n : SIZE);
}

/* Until everything of this thread has come, whoever takes the events. */
static void take_events(struct worker *w)
{
	struct timeval soon = { .tv_usec = 1000 };
	exs_event_t e[2 * TOGETHER];

	while (atomic_load(&w->left) > 0) {
		int n = exs_qdequeue(w->q, e, 2 * TOGETHER, &soon);

		for (int i = 0; i < must(n, "exs_qdequeue"); i++)
			happened(&e[i]);
	}
}

static void batch(struct worker *w, const exs_x_op_t *ops)
{
	atomic_store(&w->received, 0);
	atomic_store(&w->left, 2 * ROOM);
	hear(w);
	if (must(exs_x_submit(w->q, ops, TOGETHER), "exs_x_submit") != TOGETHER)
		errx(1, "the queue is full");
	take_events(w);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	exs_x_op_t ops[TOGETHER];

	for (int i = 0; i < TOGETHER; i++)
		ops[i] = (exs_x_op_t){ .exs_x_type = EXS_EVT_SEND,
				       .exs_x_socket = w->from,
				       .exs_x_buffer = w->out,
				       .exs_x_length = SIZE,
				       .exs_x_ahandle = w };
	for (int i = 0; i < 1000; i++) /* they leave the kernel */
		batch(w, ops);
	pthread_barrier_wait(&ready);
	for (; !atomic_load_explicit(&over, memory_order_relaxed);
	     w->messages += TOGETHER)
		batch(w, ops);
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	exs_qhandle_t q = EXS_QHANDLE_INVALID;
	struct timespec time = { 0 };
	double seconds, since;
	bool shared;
	long sum = 0;
	int i, n;

	if (argc != 4)
		errx(2, "usage: threads N own|shared SECONDS");
	n = atoi(argv[1]);
	shared = !strcmp(argv[2], "shared");
	seconds = strtod(argv[3], NULL);
	if (n < 1 || n > THREADS_MAX || seconds <= 0)
		errx(2, "threads go from 1 to %d, seconds from above 0",
		     THREADS_MAX);
	must(exs_init(EXS_VERSION), "exs_init");
	pthread_barrier_init(&ready, NULL, (unsigned int)n + 1);
	for (i = 0; i < n; i++) {
		int ends[2];

		make_pair(ends);
		if (i == 0 || !shared)
			q = must(exs_qcreate(THREADS_MAX * 4 * TOGETHER),
				 "exs_qcreate");
		workers[i].q = q;
		workers[i].from = ends[0];
		workers[i].to = ends[1];
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			errx(1, "no thread more");
	}
	pthread_barrier_wait(&ready);
	since = now();
	time.tv_sec = (time_t)seconds;
	time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
	nanosleep(&time, NULL);
	atomic_store(&over, true);
	for (i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
	since = now() - since;
	for (i = 0; i < n; i++) {
		exs_x_sockinfo_t info = { 0 };

		must(exs_x_sockinfo(workers[i].from, &info), "exs_x_sockinfo");
		if (strcmp(info.exs_x_tx_fabric, "shm"))
			errx(1, "on %s, not on shared memory",
			     info.exs_x_tx_fabric);
		sum += workers[i].messages;
	}
	printf("%.0f\n", (double)sum / since);
	return 0;
}
