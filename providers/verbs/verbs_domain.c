/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric's part of the process: rdma_cm's events, and the devices that are
 * open. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct rdma_event_channel *verbsp_channel;

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

int verbsp_fd_keep(int *fd)
{
	*fd = exi_rma_host->fd_keep(*fd);
	if (*fd < 0)
		return *fd;
	if (fcntl(*fd, F_SETFL, fcntl(*fd, F_GETFL) | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

void verbsp_fd_close(int *fd)
{
	exi_rma_host->fd_close(*fd);
	*fd = -1;
}

static void close_net(struct exi_rma_net *net)
{
	struct verbsp_net *n = verbsp_net(net);

	verbsp_fd_close(&n->channel->fd);
	exi_rma_host->fd_close(n->timer);
	for (unsigned int i = 0; i < VERBSP_SLOTS; i++)
		if (n->slot[i].link)
			exi_rma_host->fd_close(n->slot[i].link->rma.pair);
}

/* A device does not fork: queue pairs stay the parent's, and the parent takes
 * back to TCP the connections that the child uses. The child closes the
 * descriptors, so that connections end when the parent does, and the state that
 * the libraries still have cannot reach the parent's. The child loads the
 * libraries anew. */
void verbsp_domain_forked(void)
{
	verbsp_nets_forked();
	verbsp_nets_each(close_net);
	for (unsigned int i = 0; i < n_devices; i++) {
		close(devices[i]->cmd_fd);
		close(devices[i]->async_fd);
	}
	verbsp_fd_close(&verbsp_channel->fd);
}

static void on_channel(struct exi_rma_event *e)
{
	while (verbsp_meet_event())
		;
}

static struct exi_rma_event channel_event = { .call = on_channel };

int verbsp_domain_open(void)
{
	int err;

	verbsp_channel = rdma_create_event_channel();
	if (!verbsp_channel)
		return -errno;
	err = verbsp_fd_keep(&verbsp_channel->fd);
	return err ? err : exi_rma_watch(verbsp_channel->fd, &channel_event);
}

void verbsp_domain_close(void)
{
	if (verbsp_channel) {
		verbsp_fd_close(&verbsp_channel->fd);
		rdma_destroy_event_channel(verbsp_channel);
	}
	verbsp_channel = NULL;
}
