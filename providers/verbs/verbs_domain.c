/* SPDX-License-Identifier: BSD-2-Clause */
/* What the service of the process waits for: rdma_cm, completions that somebody
 * asked to be told of, and the core's ends of pair links. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/util.h"

pthread_mutex_t verbsp_service_lock = PTHREAD_MUTEX_INITIALIZER;
struct rdma_event_channel *verbsp_channel;
static int epoll_fd = -1;

#define WHAT_BITS 3

int verbsp_watch(int fd, enum verbsp_watch what, const void *whose)
{
	struct epoll_event ev = {
		.events = EPOLLIN | (what == VERBSP_WATCH_PAIR ? EPOLLET : 0),
		.data.u64 = (uintptr_t)whose | what,
	};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void verbsp_unwatch(int fd)
{
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* --- time --------------------------------------------------------------- */

static int timer_fd = -1;
static uint64_t next_look = UINT64_MAX;

void verbsp_look_at(uint64_t when)
{
	struct timespec t = exi_ns_timespec(when);
	struct itimerspec at = { .it_value = t };

	if (when >= next_look)
		return;
	next_look = when;
	timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void time_passed(struct verbsp_event *e)
{
	uint64_t ticks, now;

	if (read(timer_fd, &ticks, sizeof(ticks)) < 0)
		return;
	now = exi_now_ns();
	next_look = UINT64_MAX;
	verbsp_meet_look(now);
	verbsp_doors_look(now);
}

static struct verbsp_event on_time = { .call = time_passed };

/* --- events ------------------------------------------------------------- */

/* One at a time: what it is about may go with the event before it. */
static bool serve(void)
{
	struct epoll_event ev;
	void *whose;

	if (epoll_wait(epoll_fd, &ev, 1, 0) != 1)
		return false;
	whose = (void *)(uintptr_t)(ev.data.u64 >> WHAT_BITS << WHAT_BITS);
	switch (ev.data.u64 & ((1u << WHAT_BITS) - 1)) {
	case VERBSP_WATCH_CM:
		while (verbsp_meet_event())
			;
		break;
	case VERBSP_WATCH_NET:
		verbsp_net_event(whose);
		break;
	case VERBSP_WATCH_DEVICE:
		verbsp_fail_event(whose);
		break;
	case VERBSP_WATCH_CALL:
		((struct verbsp_event *)whose)->call(whose);
		break;
	default:
		verbsp_link_pair_event(whose);
		break;
	}
	return true;
}

static int progress(struct exi_domain *d)
{
	int n = 0;

	pthread_mutex_lock(&verbsp_service_lock);
	while (serve())
		n++;
	pthread_mutex_unlock(&verbsp_service_lock);
	return n;
}

static int event_fd(struct exi_domain *d)
{
	return epoll_fd < 0 ? -EOPNOTSUPP : epoll_fd;
}

/* The set stays readable while there is work. */
static int arm(struct exi_domain *d)
{
	return 0;
}

/* --- fork --------------------------------------------------------------- */

#define DEVICES 32
static struct ibv_context *devices[DEVICES];
static unsigned int n_devices;

void verbsp_device_seen(struct ibv_context *ctx)
{
	for (unsigned int i = 0; i < n_devices; i++)
		if (devices[i] == ctx)
			return;
	if (n_devices < DEVICES)
		devices[n_devices++] = ctx;
}

static void close_net(struct verbsp_net *n)
{
	close(n->channel->fd);
	verbsp_host->fd_close(n->timer);
	for (unsigned int i = 0; i < VERBSP_SLOTS; i++)
		if (n->slot[i].link)
			verbsp_host->fd_close(n->slot[i].link->pair);
}

/* A device does not fork: queue pairs stay the parent's, and what the child uses
 * of them its parent takes back to TCP. The descriptors are closed, so that
 * connections end when the parent does, and nothing that the libraries still
 * have of them reaches the parent's. The child loads them anew. */
static void forked(struct exi_domain *d)
{
	verbsp_nets_each(close_net);
	verbsp_doors_forked();
	for (unsigned int i = 0; i < n_devices; i++) {
		close(devices[i]->cmd_fd);
		close(devices[i]->async_fd);
	}
	close(verbsp_channel->fd);
	verbsp_host->fd_close(timer_fd);
	verbsp_host->fd_close(epoll_fd);
}

const struct exi_domain_ops verbsp_domain_ops = {
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.forked = forked,
};

int verbsp_domain_open(struct exi_domain **ret)
{
	struct exi_domain *d = calloc(1, sizeof(*d));
	int err = 0;

	if (!d)
		return -ENOMEM;
	d->provider = &verbsp_provider;
	epoll_fd = verbsp_host->fd_keep(epoll_create1(EPOLL_CLOEXEC));
	timer_fd = verbsp_host->fd_keep(
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	verbsp_channel = rdma_create_event_channel();
	if (epoll_fd < 0 || timer_fd < 0 || !verbsp_channel)
		err = -errno;
	else if (fcntl(verbsp_channel->fd, F_SETFL,
		       fcntl(verbsp_channel->fd, F_GETFL) | O_NONBLOCK) < 0)
		err = -errno;
	else
		err = verbsp_watch(verbsp_channel->fd, VERBSP_WATCH_CM, NULL);
	if (!err)
		err = verbsp_watch(timer_fd, VERBSP_WATCH_CALL, &on_time);
	if (!err) {
		verbsp_meet_open();
		*ret = d;
		return 0;
	}
	verbsp_domain_close(d);
	return err;
}

void verbsp_domain_close(struct exi_domain *d)
{
	if (verbsp_channel)
		rdma_destroy_event_channel(verbsp_channel);
	verbsp_channel = NULL;
	verbsp_host->fd_close(timer_fd);
	verbsp_host->fd_close(epoll_fd);
	timer_fd = epoll_fd = -1;
	verbsp_meet_close();
	free(d);
}
