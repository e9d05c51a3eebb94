/* SPDX-License-Identifier: BSD-2-Clause */
/* How often two processes wake up whose connections are idle, for
 * bench/compare:
 *
 *	idle KIND CONNECTIONS TRIPS SETTLE SECONDS
 *
 * KIND is tcp or unix. All connections carry TRIPS round trips in turn; then
 * both ends wait in epoll_wait() without a time limit. After SETTLE seconds
 * the program counts, for SECONDS, how often a thread of either process has
 * run, and how long. Prints the times in a second, and the milliseconds of CPU
 * time in a second. */
#include <arpa/inet.h>
#include <dirent.h>
#include <err.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE 512

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_un un;
};

/* What the threads of a process have done. */
struct work {
	double runs, ms;
};

static void whole(int fd, ssize_t (*io)(int, void *, size_t, int))
{
	char buf[SIZE] = "";
	size_t done = 0;

	while (done < SIZE) {
		ssize_t n = io(fd, buf + done, SIZE - done, 0);

		if (!n)
			exit(0); /* the peer has ended */
		if (n < 0)
			err(1, "a connection");
		done += (size_t)n;
	}
}

static ssize_t put(int fd, void *p, size_t n, int flags)
{
	return send(fd, p, n, flags);
}

static void watch(int set, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev))
		err(1, "epoll_ctl");
}

static int new_set(void)
{
	int set = epoll_create1(0);

	if (set < 0)
		err(1, "epoll_create1");
	return set;
}

static int next(int set)
{
	struct epoll_event ev;

	if (epoll_wait(set, &ev, 1, -1) != 1)
		err(1, "epoll_wait");
	return ev.data.fd;
}

static void serve(int listener)
{
	int set = new_set(), fd;

	watch(set, listener);
	for (;;) {
		fd = next(set);
		if (fd == listener) {
			fd = accept(listener, NULL, NULL);
			if (fd < 0)
				err(1, "accept");
			watch(set, fd);
		} else {
			whole(fd, recv);
			whole(fd, put);
		}
	}
}

/* The first event afterwards is the end of the pipe `leave`: what exs run
 * reports of idle connections is written when their process ends, while its
 * peer lives. */
static void drive(const union address *to, socklen_t len, int connections,
		  int trips, int ready, int leave)
{
	int set = new_set(), *fds = calloc((size_t)connections, sizeof(*fds));

	if (!fds)
		err(1, "memory");
	for (int i = 0; i < connections; i++) {
		fds[i] = socket(to->any.sa_family, SOCK_STREAM, 0);
		if (fds[i] < 0 || connect(fds[i], &to->any, len))
			err(1, "connect");
	}
	for (int t = 0; t < trips; t++) {
		for (int i = 0; i < connections; i++) {
			whole(fds[i], put);
			whole(fds[i], recv);
		}
	}
	for (int i = 0; i < connections; i++)
		watch(set, fds[i]);
	free(fds);
	watch(set, leave);
	if (write(ready, "", 1) != 1)
		err(1, "write");
	next(set);
	exit(0);
}

static pid_t child(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			exit(1);
	}
	return pid;
}

static void add_thread(pid_t pid, const char *id, struct work *w)
{
	char name[300];
	long long ns, waited, runs;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/task/%s/schedstat", pid, id);
	f = fopen(name, "r");
	if (!f)
		return;
	if (fscanf(f, "%lld %lld %lld", &ns, &waited, &runs) == 3) {
		w->runs += (double)runs;
		w->ms += (double)ns / 1e6;
	}
	fclose(f);
}

static void add(pid_t pid, struct work *w)
{
	char name[64];
	struct dirent *d;
	DIR *tasks;

	snprintf(name, sizeof(name), "/proc/%d/task", pid);
	tasks = opendir(name);
	if (!tasks)
		err(1, "%s", name);
	while ((d = readdir(tasks)))
		if (d->d_name[0] != '.')
			add_thread(pid, d->d_name, w);
	closedir(tasks);
}

static void rest_for(double s)
{
	struct timespec t = { (time_t)s,
			      (long)((s - (double)(time_t)s) * 1e9) };

	nanosleep(&t, NULL);
}

static int listen_as(const char *kind, union address *a, socklen_t *len)
{
	bool tcp = !strcmp(kind, "tcp");
	int fd;

	memset(a, 0, sizeof(*a));
	a->any.sa_family = tcp ? AF_INET : AF_UNIX;
	if (tcp)
		a->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	/* The system chooses a port, or a name. */
	*len = tcp ? sizeof(a->in) : sizeof(sa_family_t);
	fd = socket(a->any.sa_family, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, &a->any, *len) || listen(fd, 128))
		err(1, "listen");
	*len = sizeof(*a);
	if (getsockname(fd, &a->any, len))
		err(1, "getsockname");
	return fd;
}

int main(int argc, char **argv)
{
	struct work before = { 0 }, after = { 0 };
	int connections, trips, listener, status, ready[2], leave[2];
	union address a;
	pid_t pids[2];
	socklen_t len;
	double s;
	char c;

	if (argc != 6)
		errx(2, "usage: idle KIND CONNECTIONS TRIPS SETTLE SECONDS");
	connections = atoi(argv[2]);
	trips = atoi(argv[3]);
	s = atof(argv[5]);
	listener = listen_as(argv[1], &a, &len);
	pids[0] = child();
	if (!pids[0])
		serve(listener);
	if (pipe(ready) || pipe(leave))
		err(1, "pipe");
	pids[1] = child();
	if (!pids[1]) {
		close(listener);
		close(ready[0]);
		close(leave[1]);
		drive(&a, len, connections, trips, ready[1], leave[0]);
	}
	close(listener);
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		errx(1, "a process failed");
	rest_for(atof(argv[4]));
	for (int i = 0; i < 2; i++)
		add(pids[i], &before);
	rest_for(s);
	for (int i = 0; i < 2; i++)
		add(pids[i], &after);
	close(leave[1]);
	if (waitpid(pids[1], &status, 0) != pids[1] || status)
		errx(1, "the client failed");
	kill(pids[0], SIGKILL);
	printf("%.2f %.3f\n", (after.runs - before.runs) / s,
	       (after.ms - before.ms) / s);
	return 0;
}
