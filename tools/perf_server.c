/* SPDX-License-Identifier: BSD-2-Clause */
/* The server of one test. One thread reads the control connection, so that
 * "start" and "stop" take effect at once; others serve the test. */
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/perf_ctl.h"
#include "tools/perf_lane.h"
#include "tools/perf_server.h"

#define BACKLOG 4096

struct server {
	struct perf_ctl ctl;
	struct perf_plan plan;
	struct perf_local *local;
	const struct perf_io *io;
	int listener;
	uint16_t port;
	struct perf_used since;
	struct perf_guests guests;
};

/* A connection and the server it belongs to, for its thread. */
struct guest {
	struct server *server;
	int fd;
};

void perf_raise_limits(void)
{
	struct rlimit lim;

	signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &lim))
		return;
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}

static int64_t microseconds(const struct timeval *t)
{
	return t->tv_sec * INT64_C(1000000) + t->tv_usec;
}

void perf_used(const struct perf_io *io, const int *fds, unsigned int n,
	       struct perf_used *ret)
{
	exs_x_sockinfo_t info;
	struct rusage u;

	*ret = (struct perf_used){ 0 };
	if (!getrusage(RUSAGE_SELF, &u)) {
		ret->user_us = microseconds(&u.ru_utime);
		ret->cpu_us = ret->user_us + microseconds(&u.ru_stime);
	}
	for (unsigned int i = 0; i < n; i++) {
		if (io->info(fds[i], &info))
			continue;
		ret->bells += (int64_t)info.exs_x_bells_sent;
		ret->sent += (int64_t)info.exs_x_tx_bytes;
		ret->direct += (int64_t)info.exs_x_tx_direct_bytes;
	}
}

/* Called by serving threads when they end. An error is printed, and then the
 * process ends, and with it every connection, because the client waits for
 * them. */
static void served(struct server *sv, int err)
{
	if (!err || perf_is_end(err))
		return;
	perf_say(&sv->ctl, "error the server cannot continue: %s",
		 strerror(-err));
	_exit(EXIT_FAILURE);
}

static int serve_guest(struct server *sv, int fd)
{
	const struct perf_plan *p = &sv->plan;
	int ret;

	if (p->test == PERF_LAT && p->mode == PERF_ASYNC)
		ret = perf_async_echo(fd, p);
	else if (p->test == PERF_LAT)
		ret = perf_stream_echo(sv->io, fd, p);
	else if (p->mode == PERF_ASYNC || p->receives)
		ret = perf_async_sink(fd, p);
	else
		ret = perf_stream_sink(sv->io, fd, p);
	sv->io->close(fd);
	return ret;
}

static void *guest_thread(void *arg)
{
	struct guest g = *(struct guest *)arg;

	free(arg);
	served(g.server, serve_guest(g.server, g.fd));
	return NULL;
}

static int start_guest_thread(struct server *sv, int fd)
{
	struct guest *g = malloc(sizeof(*g));
	pthread_t thread;
	int ret;

	if (!g)
		return -ENOMEM;
	g->server = sv;
	g->fd = fd;
	ret = -pthread_create(&thread, NULL, guest_thread, g);
	if (ret)
		free(g);
	else
		pthread_detach(thread);
	return ret;
}

void perf_guest(struct perf_guests *g, int fd)
{
	unsigned int n = atomic_load_explicit(&g->n, memory_order_relaxed);

	if (n == g->room) /* --test conn has no end of them */
		return;
	g->fds[n] = fd;
	/* Pairs with the acquire in now_used(): the number is there. */
	atomic_store_explicit(&g->n, n + 1, memory_order_release);
}

static int serve_guests(struct server *sv)
{
	uint64_t n = sv->plan.connections + sv->plan.idle;
	int fd, ret = 0;

	for (uint64_t i = 0; i < n && !ret; i++) {
		fd = sv->io->accept(sv->listener);
		if (fd < 0)
			return fd;
		if (sv->plan.test == PERF_LAT)
			sv->io->set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
		perf_guest(&sv->guests, fd);
		ret = n == 1 ? serve_guest(sv, fd) : start_guest_thread(sv, fd);
	}
	return ret;
}

static int serve(struct server *sv)
{
	if (sv->plan.api == PERF_RAW)
		return perf_raw_serve(sv->local, &sv->plan);
	if (sv->plan.api == PERF_UNIX)
		return serve_guest(sv, sv->local->fds[PERF_SERVER]);
	if (sv->plan.api == PERF_EPOLL)
		return perf_epoll_serve(sv->listener, &sv->plan, &sv->guests);
	if (sv->plan.test == PERF_CONN)
		return perf_stream_respond(sv->io, sv->listener, &sv->plan);
	return serve_guests(sv);
}

static void *work(void *arg)
{
	served(arg, serve(arg));
	return NULL;
}

int perf_address(int ctl, bool peer, uint16_t port,
		 struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_storage a = { 0 };
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;
	struct sockaddr_in *four = (struct sockaddr_in *)&a;
	socklen_t len = sizeof(a);

	if (peer ? getpeername(ctl, (struct sockaddr *)&a, &len)
		 : getsockname(ctl, (struct sockaddr *)&a, &len))
		return -errno;
	if (a.ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
		six->sin6_port = htons(port);
		*ret = a;
		*ret_len = sizeof(*six);
		return 0;
	}
	if (a.ss_family == AF_INET6)
		memcpy(&four->sin_addr, &six->sin6_addr.s6_addr[12], 4);
	else if (a.ss_family != AF_INET)
		four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	four->sin_family = AF_INET;
	four->sin_port = htons(port);
	*ret = a;
	*ret_len = sizeof(*four);
	return 0;
}

/* Listens on the address that the client reached, on a port for this test. */
static int open_listener(struct server *sv)
{
	struct sockaddr_storage a;
	socklen_t len;
	int ret;

	ret = perf_address(sv->ctl.fd, false, 0, &a, &len);
	if (ret)
		return ret;
	sv->listener = sv->io->socket(a.ss_family);
	if (sv->listener < 0)
		return sv->listener;
	ret = sv->io->bind(sv->listener, (struct sockaddr *)&a, len);
	if (!ret)
		ret = sv->io->listen(sv->listener, BACKLOG);
	if (!ret && getsockname(sv->listener, (struct sockaddr *)&a, &len))
		ret = -errno;
	sv->port = ntohs(((struct sockaddr_in *)&a)->sin_port);
	return ret;
}

/* ret_what: the action that failed. */
static int prepare(struct server *sv, const char **ret_what)
{
	pthread_t worker;
	int ret;

	if (sv->plan.providers[0])
		setenv("EXS_PROVIDER", sv->plan.providers, 1);
	*ret_what = "run on the second CPU of --pin";
	ret = perf_run_on(sv->plan.cpu[PERF_SERVER]);
	if (ret)
		return ret;
	*ret_what = "start the library";
	sv->io = perf_io(&sv->plan);
	ret = sv->io->start();
	if (ret)
		return ret;
	*ret_what = "keep a list of connections";
	if (sv->plan.test != PERF_CONN)
		sv->guests.room = sv->plan.connections + sv->plan.idle;
	sv->guests.fds = calloc(sv->guests.room + 1, sizeof(int));
	if (!sv->guests.fds)
		return -ENOMEM;
	*ret_what = "listen";
	if (!perf_api_is_local(sv->plan.api))
		ret = open_listener(sv);
	if (ret)
		return ret;
	*ret_what = "start a thread";
	ret = -pthread_create(&worker, NULL, work, sv);
	if (!ret)
		pthread_detach(worker);
	return ret;
}

static void now_used(struct server *sv, struct perf_used *ret)
{
	/* Pairs with the release in perf_guest(). */
	perf_used(sv->io, sv->guests.fds,
		  atomic_load_explicit(&sv->guests.n, memory_order_acquire),
		  ret);
}

static int report(struct server *sv)
{
	struct perf_used u;

	now_used(sv, &u);
	return perf_say(&sv->ctl,
			"report %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
			" %" PRId64,
			u.cpu_us - sv->since.cpu_us,
			u.user_us - sv->since.user_us,
			u.bells - sv->since.bells, u.sent - sv->since.sent,
			u.direct - sv->since.direct);
}

static int obey(struct server *sv)
{
	char line[PERF_LINE];
	int ret = 0;

	while (!ret) {
		ret = perf_hear(&sv->ctl, line);
		if (ret)
			break;
		if (!strcmp(line, "start")) {
			now_used(sv, &sv->since);
			ret = perf_say(&sv->ctl, "go");
		} else if (!strcmp(line, "stop")) {
			ret = report(sv);
		} else {
			ret = -EPROTO;
		}
	}
	return ret == -EPIPE ? 0 : ret;
}

void perf_serve(int ctl, struct perf_local *local)
{
	static struct server sv = { .listener = -1 };
	char line[PERF_LINE];
	const char *what;
	int ret;

	perf_raise_limits();
	sv.ctl.fd = ctl;
	sv.local = local;
	ret = perf_hear(&sv.ctl, line);
	if (!ret)
		ret = perf_plan_parse(line, &sv.plan);
	if (ret || (perf_api_is_local(sv.plan.api) && !local)) {
		perf_say(&sv.ctl, "error the server does not understand; both "
				  "ends need the same version of exs");
		_exit(EXIT_FAILURE);
	}
	ret = prepare(&sv, &what);
	if (ret) {
		perf_say(&sv.ctl, "error the server cannot %s: %s", what,
			 strerror(-ret));
		_exit(EXIT_FAILURE);
	}
	ret = perf_say(&sv.ctl, "ready %u", sv.port);
	if (!ret)
		ret = obey(&sv);
	/* Threads may still be serving a client that is gone. */
	_exit(ret ? EXIT_FAILURE : EXIT_SUCCESS);
}
