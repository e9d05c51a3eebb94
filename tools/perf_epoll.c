/* SPDX-License-Identifier: BSD-2-Clause */
/* Many connections in one thread: the usual level-triggered server on epoll,
 * and a client that keeps one message on each of some of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tools/perf_lane.h"

#define EVENTS 256

struct peer {
	int fd;
	size_t have;	/* of the message in buf */
	size_t sent;	/* of the answer */
	bool blocked;	/* server: waits for room to answer */
	uint64_t since; /* client: when the message left; 0: idle */
	char *buf;
};

static int watch(int ep, int op, struct peer *p, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = p };

	return epoll_ctl(ep, op, p->fd, &ev) ? -errno : 0;
}

struct server {
	const struct perf_plan *plan;
	struct perf_guests *guests;
	int ep;
	uint64_t to_come; /* connections; counted down at their end */
	size_t sink_len;
	char *sink;
};

static void drop(struct server *sv, struct peer *p)
{
	close(p->fd);
	free(p->buf);
	free(p);
	sv->to_come--;
}

/* 0: sent. -EAGAIN: the set will report when there is room. */
static int answer(struct server *sv, struct peer *p)
{
	ssize_t n;
	int ret;

	while (p->sent < p->have) {
		n = send(p->fd, p->buf + p->sent, p->have - p->sent, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			return -errno;
		if (n < 0) {
			p->blocked = true;
			ret = watch(sv->ep, EPOLL_CTL_MOD, p, EPOLLOUT);
			return ret ? ret : -EAGAIN;
		}
		p->sent += n;
	}
	p->sent = 0;
	p->have = 0;
	if (!p->blocked)
		return 0;
	p->blocked = false;
	return watch(sv->ep, EPOLL_CTL_MOD, p, EPOLLIN);
}

static int echo(struct server *sv, struct peer *p)
{
	size_t size = sv->plan->size;
	ssize_t n;
	int ret;

	if (p->have < size) {
		n = recv(p->fd, p->buf + p->have, size - p->have, 0);
		if (n <= 0)
			return n ? -errno : -EPIPE;
		p->have += n;
		if (p->have < size)
			return 0;
	}
	ret = answer(sv, p);
	if (!ret && sv->plan->test == PERF_CONN)
		return -EPIPE;
	return ret;
}

static int sink(struct server *sv, struct peer *p)
{
	ssize_t n;

	if (!p->blocked) {
		n = recv(p->fd, sv->sink, sv->sink_len, 0);
		if (n <= 0)
			return n ? -errno : -EPIPE;
		if (sv->sink[n - 1] != PERF_LAST_BYTE)
			return 0;
		p->buf[0] = PERF_LAST_BYTE;
		p->have = 1;
	}
	return answer(sv, p);
}

/* An error other than the end of one connection is returned, and ends the
 * server. */
static int handle(struct server *sv, struct peer *p)
{
	bool echoes = sv->plan->test == PERF_LAT || sv->plan->test == PERF_CONN;
	int ret = echoes ? echo(sv, p) : sink(sv, p);

	if (!ret || ret == -EAGAIN || ret == -EINTR)
		return 0;
	drop(sv, p);
	return perf_is_end(ret) ? 0 : ret;
}

static int take_in(struct server *sv, int fd)
{
	struct peer *p = calloc(1, sizeof(*p));
	int ret = -ENOMEM;

	if (p) {
		p->fd = fd;
		p->buf = malloc(sv->plan->size);
	}
	if (p && p->buf)
		ret = watch(sv->ep, EPOLL_CTL_ADD, p, EPOLLIN);
	if (ret) {
		free(p ? p->buf : NULL);
		free(p);
		close(fd);
	}
	return ret;
}

static int accept_all(struct server *sv, int listener)
{
	int fd, ret = 0;

	while (!ret) {
		fd = accept4(listener, NULL, NULL,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return errno == EAGAIN || errno == ECONNABORTED
				       ? 0
				       : -errno;
		if (sv->plan->test == PERF_LAT)
			perf_io(sv->plan)->set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
		perf_guest(sv->guests, fd);
		ret = take_in(sv, fd);
	}
	return ret;
}

static int serve(struct server *sv, struct peer *listener)
{
	struct epoll_event ev[EVENTS];
	int n, ret = 0;

	while (sv->to_come && !ret) {
		n = epoll_wait(sv->ep, ev, EVENTS, -1);
		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < n && !ret; i++) {
			if (ev[i].data.ptr == listener)
				ret = accept_all(sv, listener->fd);
			else
				ret = handle(sv, ev[i].data.ptr);
		}
	}
	return ret;
}

int perf_epoll_serve(int listener, const struct perf_plan *plan,
		     struct perf_guests *guests)
{
	struct peer door = { .fd = listener };
	struct server sv = {
		.plan = plan,
		.guests = guests,
		.ep = epoll_create1(EPOLL_CLOEXEC),
		.to_come = plan->test == PERF_CONN
				   ? UINT64_MAX
				   : plan->connections + plan->idle,
		.sink_len = perf_sink_size(plan),
		.sink = perf_buffer(perf_sink_size(plan)),
	};
	int ret = sv.ep < 0 ? -errno : sv.sink ? 0 : -ENOMEM;

	if (!ret && fcntl(listener, F_SETFL, O_NONBLOCK))
		ret = -errno;
	if (!ret)
		ret = watch(sv.ep, EPOLL_CTL_ADD, &door, EPOLLIN);
	if (!ret)
		ret = serve(&sv, &door);
	perf_buffer_free(sv.sink, sv.sink_len);
	if (sv.ep >= 0)
		close(sv.ep);
	return ret;
}

struct client {
	struct perf_lane *lane;
	int ep;
	uint64_t left; /* messages to be sent */
	uint64_t flying;
	uint64_t start;
	struct peer *peers;
};

static int launch(struct client *c, struct peer *p, uint64_t now)
{
	if (!c->left)
		return 0;
	c->left--;
	c->flying++;
	p->since = now;
	p->have = 0;
	return perf_send_all(c->lane->io, p->fd, c->lane->buf,
			     c->lane->plan->size);
}

/* The connection without a message if all others have one, else any. */
static struct peer *pick(struct client *c, struct peer *last)
{
	unsigned int n = c->lane->n_fds;
	struct peer *p = last;

	if (c->lane->plan->depth == n)
		return last;
	do
		p = &c->peers[random() % n];
	while (p->since);
	return p;
}

static int landed(struct client *c, struct peer *p)
{
	struct perf_lane *l = c->lane;
	ssize_t n = l->io->recv(p->fd, l->buf, l->plan->size - p->have);
	uint64_t now;

	if (n <= 0)
		return n ? (int)n : -EPIPE;
	p->have += n;
	if (p->have < l->plan->size)
		return 0;
	now = perf_now();
	hist_add(&l->meter->rtt, now - p->since);
	l->meter->iters++;
	p->since = 0;
	c->flying--;
	if (l->goal.ns && now - c->start >= l->goal.ns)
		c->left = 0;
	return launch(c, pick(c, p), now);
}

static int juggle(struct client *c)
{
	struct epoll_event ev[EVENTS];
	int n, ret = 0;

	for (unsigned int i = 0; i < c->lane->n_fds && !ret; i++) {
		c->peers[i].fd = c->lane->fds[i];
		ret = watch(c->ep, EPOLL_CTL_ADD, &c->peers[i], EPOLLIN);
	}
	for (unsigned int i = 0; i < c->lane->plan->depth && !ret; i++)
		ret = launch(c, &c->peers[i], perf_now());
	while (c->flying && !ret) {
		n = epoll_wait(c->ep, ev, EVENTS, -1);
		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < n && !ret; i++)
			ret = landed(c, ev[i].data.ptr);
	}
	return ret;
}

int perf_epoll_lat(struct perf_lane *l)
{
	struct client c = {
		.lane = l,
		.ep = epoll_create1(EPOLL_CLOEXEC),
		.left = l->goal.iters ? l->goal.iters : UINT64_MAX,
		.start = perf_now(),
		.peers = calloc(l->n_fds, sizeof(struct peer)),
	};
	int ret = c.ep < 0 || !c.peers ? -ENOMEM : juggle(&c);

	l->meter->ns += perf_now() - c.start;
	free(c.peers);
	if (c.ep >= 0)
		close(c.ep);
	return ret;
}
