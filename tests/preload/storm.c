/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that share one epoll set, and one or two processes with many
 * connections to it. Every request is answered while either end closes
 * connections, and connections are removed from the set and added again, at any
 * time; in each mode of epoll, on all CPUs and on one. Usage: storm [ANSWERS
 * [SEED]], of each process. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS	 4
#define CLIENTS	 2
#define CONNS	 24
#define FDS	 256
#define PATIENCE 20 /* seconds without an answer: CPUs may be busy */

static struct sockaddr_in at;
static int listener, set, room, threads;
static uint32_t mode;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool one_of(unsigned int n, unsigned int *seed)
{
	return (unsigned int)rand_r(seed) % n == 0;
}

/* Several threads may be told of one connection: one at a time answers, and
 * none when it was closed, though the number may be another's. */
static struct {
	pthread_mutex_t lock;
	uint32_t life;
} held[FDS];

static int ctl(int op, int fd, uint32_t how)
{
	struct epoll_event e = {
		.events = EPOLLIN | how,
		.data.u64 = (uint64_t)held[fd].life << 32 | (uint32_t)fd,
	};

	return epoll_ctl(set, op, fd, &e);
}

/* Once, or until there is nothing, as the mode asks for. */
static void answer(int fd, unsigned int *seed)
{
	char buf[64];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		/* What is armed for one shot is this thread's. */
		bool out = !(mode & EPOLLONESHOT) && one_of(16, seed);

		if (out)
			ctl(EPOLL_CTL_DEL, fd, 0);
		send(fd, buf, (size_t)n, MSG_NOSIGNAL);
		if (out)
			ctl(EPOLL_CTL_ADD, fd, mode);
		if (one_of(512, seed)) {
			n = 0;
			break;
		}
		if (!(mode & (EPOLLET | EPOLLONESHOT)))
			return;
	}
	if (n == 0 || errno != EAGAIN) {
		held[fd].life++;
		close(fd);
	} else if (mode & EPOLLONESHOT) {
		ctl(EPOLL_CTL_MOD, fd, mode);
	}
}

static void welcome(void)
{
	int s = accept4(listener, NULL, NULL, SOCK_NONBLOCK);

	if (s < 0)
		return;
	pthread_mutex_lock(&held[s].lock);
	ctl(EPOLL_CTL_ADD, s, mode);
	pthread_mutex_unlock(&held[s].lock);
}

static void *serve(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct epoll_event e[16];

	for (;;) {
		int n = epoll_wait(set, e, room, -1);

		for (int i = 0; i < n; i++) {
			int fd = (int)(uint32_t)e[i].data.u64;

			if (fd == listener) {
				welcome();
				continue;
			}
			pthread_mutex_lock(&held[fd].lock);
			if (held[fd].life == e[i].data.u64 >> 32)
				answer(fd, &seed);
			pthread_mutex_unlock(&held[fd].lock);
		}
	}
	return NULL; /* never: they end with the process */
}

struct conn {
	int fd;
	double asked; /* 0: nothing is */
};

static void open_conn(struct conn *c)
{
	c->asked = 0;
	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&at, sizeof(at)))
		err(1, "cannot reach the server");
}

static void close_conn(struct conn *c)
{
	close(c->fd);
	*c = (struct conn){ .fd = -1 };
}

/* 1: an answer came. */
static int take(struct conn *c)
{
	char buf[8];
	ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return 0;
	c->asked = 0;
	if (n <= 0)
		close_conn(c);
	return n > 0;
}

/* Rounds, in which all that was asked is answered before more is, or who was
 * closed comes anew: else one connection would wake who slept over
 * another's. */
static int ask(int answers, unsigned int seed)
{
	struct conn c[CONNS];
	struct pollfd p[CONNS];
	int done = 0, waits = 0;

	for (int i = 0; i < CONNS; i++)
		open_conn(&c[i]);
	while (done < answers) {
		for (int i = 0; !waits && i < CONNS; i++) {
			if (c[i].fd < 0)
				open_conn(&c[i]);
			if (one_of(4, &seed))
				continue;
			if (send(c[i].fd, "question", 8, MSG_NOSIGNAL) == 8)
				c[i].asked = now();
			else
				close_conn(&c[i]);
		}
		for (int i = 0; i < CONNS; i++)
			p[i] = (struct pollfd){ c[i].asked ? c[i].fd : -1,
						POLLIN, 0 };
		poll(p, CONNS, 1000);
		waits = 0;
		for (int i = 0; i < CONNS; i++) {
			if (p[i].revents) {
				done += take(&c[i]);
				if (c[i].fd >= 0 && one_of(100, &seed))
					close_conn(&c[i]);
			}
			waits += c[i].asked > 0;
			if (c[i].asked && now() - c[i].asked > PATIENCE) {
				printf("no answer after %d\n", done);
				return 1;
			}
		}
	}
	return 0;
}

static bool storm(int answers, unsigned int seed)
{
	pthread_t t[THREADS];
	pid_t clients[CLIENTS];
	socklen_t len = sizeof(at);
	int n = 1 + (int)(seed / 4 % CLIENTS), bad = 0, status;

	at = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, CLIENTS * CONNS) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		err(1, "no listener");
	for (int i = 0; i < n; i++) {
		clients[i] = fork();
		if (clients[i] < 0)
			err(1, "fork");
		if (clients[i] == 0)
			exit(ask(answers, seed + (unsigned int)i));
	}
	set = epoll_create1(0);
	ctl(EPOLL_CTL_ADD, listener, 0);
	for (int i = 0; i < threads; i++)
		pthread_create(
			&t[i], NULL, serve,
			(void *)(uintptr_t)(seed + 100 + (unsigned int)i));
	for (int i = 0; i < n; i++) {
		waitpid(clients[i], &status, 0);
		bad |= status;
	}
	return !bad;
}

/* In a process of its own, which leaves nothing behind. */
static bool run(const char *name, uint32_t how, bool one_cpu, int answers,
		unsigned int seed)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		cpu_set_t one;

		CPU_ZERO(&one);
		CPU_SET(sched_getcpu(), &one);
		if (one_cpu)
			sched_setaffinity(0, sizeof(one), &one);
		mode = how;
		for (int i = 0; i < FDS; i++)
			pthread_mutex_init(&held[i].lock, NULL);
		threads = 1 + (int)(seed % THREADS);
		room = 1 + (int)(seed * 7 % 16);
		exit(!storm(answers, seed));
	}
	waitpid(pid, &status, 0);
	if (status)
		printf("%s%s, seed %u: failed\n", name,
		       one_cpu ? ", one CPU" : "", seed);
	return !status;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint32_t mode;
	} modes[] = {
		{ "level", 0 },
		{ "edge", EPOLLET },
		{ "oneshot", EPOLLONESHOT },
		{ "edge oneshot", EPOLLET | EPOLLONESHOT },
	};
	int answers = argc > 1 ? atoi(argv[1]) : 5000;
	unsigned int seed = argc > 2 ? (unsigned int)atoi(argv[2])
				     : (unsigned int)time(NULL);
	bool good = true;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		for (int one = 0; one < 2; one++)
			good &= run(modes[i].name, modes[i].mode, one, answers,
				    seed++);
	return !good;
}
