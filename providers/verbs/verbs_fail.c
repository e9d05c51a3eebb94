/* SPDX-License-Identifier: BSD-2-Clause */
/* Failures of a queue pair, a port or a device, which the device reports. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "core/rma/post.h"

static struct {
	struct ibv_context *ctx;
	unsigned int port; /* 0: all */
	uint32_t qp_num;   /* 0: all */
	const char *why;
} failed; /* under the service lock */

static void fail_slot(struct verbsp_slot *s)
{
	if (!s->link || (failed.qp_num && failed.qp_num != s->qp_num) ||
	    (failed.port && failed.port != s->link->id->port_num))
		return;
	exi_rma_link_fail(&s->link->rma, -ECONNRESET, failed.why);
}

static void fail_net(struct exi_rma_net *net)
{
	struct verbsp_net *n = verbsp_net(net);

	if (n->ctx != failed.ctx)
		return;
	exi_rma_net_poll(net); /* what came before it */
	exi_rma_lock(&n->rma.lock);
	for (unsigned int i = 0; i < VERBSP_SLOTS; i++)
		fail_slot(&n->slot[i]);
	exi_rma_unlock(&n->rma.lock);
}

static void device_event(struct ibv_context *ctx)
{
	struct ibv_async_event ev;

	while (!ibv_get_async_event(ctx, &ev)) {
		failed.ctx = ctx;
		failed.port = failed.qp_num = 0;
		failed.why = ibv_event_type_str(ev.event_type);
		switch (ev.event_type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
			failed.qp_num = ev.element.qp->qp_num;
			break;
		case IBV_EVENT_PORT_ERR:
			failed.port = (unsigned int)ev.element.port_num;
			break;
		case IBV_EVENT_DEVICE_FATAL:
		case IBV_EVENT_CQ_ERR:
		case IBV_EVENT_SRQ_ERR:
			break;
		case IBV_EVENT_PORT_ACTIVE:
			verbsp_meet_unpark();
			failed.ctx = NULL;
			break;
		default:
			failed.ctx = NULL;
		}
		ibv_ack_async_event(&ev);
		if (failed.ctx)
			verbsp_nets_each(fail_net);
	}
}

/* A watched device; the list stays, as the devices do. */
struct watched {
	struct watched *next;
	struct ibv_context *ctx;
	struct exi_rma_event event;
};

static struct watched *watched;

static void on_device(struct exi_rma_event *e)
{
	device_event(exi_container(e, struct watched, event)->ctx);
}

int verbsp_fail_watch(struct ibv_context *ctx)
{
	struct watched *w;
	int err;

	for (w = watched; w; w = w->next)
		if (w->ctx == ctx) /* watched for another net of the device */
			return 0;
	if (fcntl(ctx->async_fd, F_SETFL,
		  fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK) < 0)
		return -errno;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->ctx = ctx;
	w->event.call = on_device;
	err = exi_rma_watch(ctx->async_fd, &w->event);
	if (err) {
		free(w);
		return err;
	}
	w->next = watched;
	watched = w;
	return 0;
}
