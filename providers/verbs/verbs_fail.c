/* SPDX-License-Identifier: BSD-2-Clause */
/* What is left of a connection whose queue pair, port or device failed. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* --- the device tells --------------------------------------------------- */

int verbsp_fail_watch(struct ibv_context *ctx)
{
	int err;

	if (fcntl(ctx->async_fd, F_SETFL,
		  fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK) < 0)
		return -errno;
	err = verbsp_watch(ctx->async_fd, VERBSP_WATCH_DEVICE, ctx);
	return err == -EEXIST ? 0 : err; /* another net of the device */
}

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
	verbsp_link_fail(s->link, -ECONNRESET, failed.why);
}

static void fail_net(struct verbsp_net *n)
{
	if (n->ctx != failed.ctx)
		return;
	verbsp_net_poll(n); /* what came before it */
	pthread_mutex_lock(&n->lock);
	for (unsigned int i = 0; i < VERBSP_SLOTS; i++)
		fail_slot(&n->slot[i]);
	pthread_mutex_unlock(&n->lock);
}

void verbsp_fail_event(struct ibv_context *ctx)
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
		default:
			failed.ctx = NULL;
		}
		ibv_ack_async_event(&ev);
		if (failed.ctx)
			verbsp_nets_each(fail_net);
	}
}

/* --- the core asks ------------------------------------------------------ */

static struct verbsp_link *link_of(struct exi_conn *c)
{
	return verbsp_conn(c)->link;
}

int verbsp_fail_sever(struct exi_conn *c)
{
	struct verbsp_link *l = link_of(c);
	int err;

	/* Nothing is posted from here on. */
	verbsp_link_fail(l, -ECONNRESET, "the other end left");
	verbsp_meet_sever(l);
	atomic_store(&l->dead, true);
	verbsp_link_unpin(l);
	err = verbsp_link_take(l, EXI_RX);
	if (!err)
		err = verbsp_link_take(l, EXI_TX);
	exi_stream_rx_cut(&l->rx);
	if (err || atomic_load(&l->err) == -EPROTO)
		return -EPROTO;
	return verbsp_place_forgo(l);
}

uint32_t verbsp_fail_position(struct exi_conn *c, enum exi_dir dir)
{
	struct verbsp_link *l = link_of(c);

	return dir == EXI_RX ? exi_stream_rx_position(&l->rx)
			     : exi_stream_tx_position(&l->tx);
}

uint32_t verbsp_fail_resend(struct exi_conn *c)
{
	struct verbsp_link *l = link_of(c);

	return exi_stream_tx_cut(&l->tx) - l->held;
}

void verbsp_fail_resume(struct exi_conn *c, enum exi_dir dir, uint32_t epoch,
			uint64_t position, uint8_t ret[EXI_RESUME])
{
	struct exi_pact_resume r;

	exi_pact_resume(&link_of(c)->bond, dir == EXI_TX, epoch, position, &r);
	memcpy(ret, &r, sizeof(r));
}

_Static_assert(sizeof(struct exi_pact_resume) == EXI_RESUME &&
		       offsetof(struct exi_pact_resume, position) ==
			       EXI_RESUME_AT,
	       "the record of resume");
