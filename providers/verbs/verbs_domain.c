/* SPDX-License-Identifier: BSD-2-Clause */
/* What the service of the process waits for: rdma_cm, completions that somebody
 * asked to be told of, and the core's ends of pair links. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

pthread_mutex_t vrb_service_lock = PTHREAD_MUTEX_INITIALIZER;
struct rdma_event_channel *vrb_channel;
static int epoll_fd = -1;

#define WHAT_BITS 2

int vrb_watch(int fd, enum vrb_watch what, const void *whose)
{
	struct epoll_event ev = {
		.events = EPOLLIN | (what == VRB_WATCH_PAIR ? EPOLLET : 0),
		.data.u64 = (uintptr_t)whose | what,
	};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void vrb_unwatch(int fd)
{
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* One at a time: what it is about may go with the event before it. */
static bool serve(void)
{
	struct epoll_event ev;
	void *whose;

	if (epoll_wait(epoll_fd, &ev, 1, 0) != 1)
		return false;
	whose = (void *)(uintptr_t)(ev.data.u64 >> WHAT_BITS << WHAT_BITS);
	switch (ev.data.u64 & ((1u << WHAT_BITS) - 1)) {
	case VRB_WATCH_CM:
		while (vrb_meet_event())
			;
		break;
	case VRB_WATCH_NET:
		vrb_net_event(whose);
		break;
	default:
		vrb_link_pair_event(whose);
		break;
	}
	return true;
}

static int progress(struct exi_domain *d)
{
	int n = 0;

	pthread_mutex_lock(&vrb_service_lock);
	while (!vrb_forked && serve())
		n++;
	pthread_mutex_unlock(&vrb_service_lock);
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

bool vrb_forked;

static void close_net(struct vrb_net *n)
{
	close(n->ctx->cmd_fd);
	close(n->ctx->async_fd);
	close(n->channel->fd);
	for (unsigned int i = 0; i < VRB_SLOTS; i++)
		if (n->slot[i].link)
			vrb_host->fd_close(n->slot[i].link->pair);
}

/* A device does not fork: queue pairs stay the parent's, and what the child uses
 * of them its parent takes back to TCP. The descriptors are closed, so that
 * connections end when the parent does; so the child can use no device. */
static void forked(struct exi_domain *d)
{
	pthread_mutex_init(&vrb_service_lock, NULL);
	vrb_forked = true;
	vrb_nets_each(close_net);
	close(vrb_channel->fd);
	vrb_host->fd_close(epoll_fd);
	epoll_fd = -1;
}

const struct exi_domain_ops vrb_domain_ops = {
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.forked = forked,
};

int vrb_domain_open(struct exi_domain **ret)
{
	struct exi_domain *d = calloc(1, sizeof(*d));
	int err = 0;

	if (!d)
		return -ENOMEM;
	d->provider = &vrb_provider;
	epoll_fd = vrb_host->fd_keep(epoll_create1(EPOLL_CLOEXEC));
	vrb_channel = rdma_create_event_channel();
	if (epoll_fd < 0 || !vrb_channel)
		err = -errno;
	else if (fcntl(vrb_channel->fd, F_SETFL,
		       fcntl(vrb_channel->fd, F_GETFL) | O_NONBLOCK) < 0)
		err = -errno;
	else
		err = vrb_watch(vrb_channel->fd, VRB_WATCH_CM, NULL);
	if (!err) {
		*ret = d;
		return 0;
	}
	vrb_domain_close(d);
	return err;
}

void vrb_domain_close(struct exi_domain *d)
{
	if (vrb_channel)
		rdma_destroy_event_channel(vrb_channel);
	vrb_channel = NULL;
	vrb_host->fd_close(epoll_fd);
	epoll_fd = -1;
	free(d);
}
