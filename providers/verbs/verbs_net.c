/* SPDX-License-Identifier: BSD-2-Clause */
/* What the connections of a device share. Devices slow down beyond some hundred
 * queue pairs and as many queues: connections have a queue pair each and
 * nothing more, and VERBSP_SLOTS of them one set of queues. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TAKE	16
#define BUFFERS (VERBSP_CREDITS * VERBSP_MSG_MAX) /* bytes, for a slot */

static struct exi_list nets = EXI_LIST_INIT(nets);
static pthread_mutex_t nets_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- completions -------------------------------------------------------- */

static struct verbsp_link *link_of(struct verbsp_net *n, uint32_t qp_num)
{
	unsigned int i, at;

	for (i = 0; i < VERBSP_SLOTS; i++) {
		at = (n->last + i) % VERBSP_SLOTS;
		if (n->slot[at].link && n->slot[at].qp_num == qp_num) {
			n->last = at;
			return n->slot[at].link;
		}
	}
	return NULL;
}

/* Buffers are named by slot and number. */
static unsigned char *buffer(struct verbsp_net *n, uint64_t id)
{
	return n->slot[id / VERBSP_CREDITS].buffers +
	       id % VERBSP_CREDITS * VERBSP_MSG_MAX;
}

static int post_buffer(struct verbsp_net *n, uint64_t id)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer(n, id),
		.length = VERBSP_MSG_MAX,
		.lkey = n->slot[id / VERBSP_CREDITS].mr->lkey,
	};
	struct ibv_recv_wr *bad,
		wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	return -abs(ibv_post_srq_recv(n->srq, &wr, &bad));
}

static void hear(struct verbsp_link *l, const struct ibv_wc *wc,
		 const struct verbsp_msg *m)
{
	/* Flushed with its queue pair: the buffer is free again. */
	if (wc->status != IBV_WC_SUCCESS)
		verbsp_link_fail(l, -ECONNRESET, ibv_wc_status_str(wc->status));
	else if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		verbsp_link_noted(l, be32toh(wc->imm_data));
	else
		verbsp_link_heard(l, m, wc->byte_len);
}

/* The buffer is there again before what came in it counts: whatever is sent from
 * then on, by any thread, gives its credit back, and without a buffer for the next
 * message iWARP ends the connection. */
static void take(struct verbsp_net *n, const struct ibv_wc *wc)
{
	struct verbsp_link *l = link_of(n, wc->qp_num);
	_Alignas(struct verbsp_msg) unsigned char bytes[VERBSP_MSG_MAX];
	int err;

	if (wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV)
		memcpy(bytes, buffer(n, wc->wr_id),
		       wc->byte_len < sizeof(bytes) ? wc->byte_len
						    : sizeof(bytes));
	err = post_buffer(n, wc->wr_id);
	if (!l)
		return;
	hear(l, wc, (const struct verbsp_msg *)bytes);
	if (err)
		verbsp_link_fail(l, -ENOMEM, "a receive buffer is refused");
	else
		verbsp_link_give(l);
}

static int poll_locked(struct verbsp_net *n)
{
	struct ibv_wc wc[TAKE];
	int total = 0, got;

	do {
		got = ibv_poll_cq(n->received, TAKE, wc);
		for (int i = 0; i < got; i++)
			take(n, &wc[i]);
		total += got > 0 ? got : 0;
	} while (got == TAKE);
	return total;
}

int verbsp_net_poll(struct verbsp_net *n)
{
	int ret;

	pthread_mutex_lock(&n->lock);
	ret = poll_locked(n);
	pthread_mutex_unlock(&n->lock);
	return ret;
}

int verbsp_net_try_poll(struct verbsp_net *n)
{
	int ret;

	if (pthread_mutex_trylock(&n->lock))
		return 0;
	ret = poll_locked(n);
	pthread_mutex_unlock(&n->lock);
	return ret;
}

/* The name of a request: slot, generation, number. */
void verbsp_net_reap(struct verbsp_net *n)
{
	struct ibv_wc wc[TAKE];
	int got;

	pthread_mutex_lock(&n->reap);
	do {
		got = ibv_poll_cq(n->sent, TAKE, wc);
		for (int i = 0; i < got; i++) {
			struct verbsp_slot *s =
				&n->slot[(wc[i].wr_id >> 32) % VERBSP_SLOTS];

			if (!s->link || s->generation != wc[i].wr_id >> 40)
				continue;
			if (wc[i].status == IBV_WC_SUCCESS)
				atomic_store(&s->link->done,
					     (uint32_t)wc[i].wr_id);
			else
				verbsp_link_fail(
					s->link, -ECONNRESET,
					ibv_wc_status_str(wc[i].status));
		}
	} while (got == TAKE);
	pthread_mutex_unlock(&n->reap);
}

void verbsp_net_request(struct verbsp_net *n)
{
	if (atomic_exchange(&n->requested, true))
		return;
	ibv_req_notify_cq(n->received, 0);
	/* A queue pair that fails says so to who sends on it, nowhere else. */
	ibv_req_notify_cq(n->sent, 0);
	verbsp_net_reap(n);
}

/* While nobody sleeps: urgent messages only. Soft iWARP does not tell which
 * those are, so whatever comes is looked at, now and then. */
#define NOW_AND_THEN_NS 1000000

static int request_urgent(struct verbsp_net *n)
{
	struct itimerspec soon = { .it_value.tv_nsec = NOW_AND_THEN_NS };

	if (n->timer < 0)
		return -ibv_req_notify_cq(n->received, 1);
	return timerfd_settime(n->timer, 0, &soon, NULL) < 0 ? -errno : 0;
}

void verbsp_net_event(struct verbsp_net *n)
{
	struct ibv_cq *cq;
	unsigned int events = 0, sent = 0;
	uint64_t ticks;
	bool timed;
	void *arg;

	while (!ibv_get_cq_event(n->channel, &cq, &arg))
		*(cq == n->sent ? &sent : &events) += 1;
	if (events)
		ibv_ack_cq_events(n->received, events);
	if (sent)
		ibv_ack_cq_events(n->sent, sent);
	timed = n->timer >= 0 && read(n->timer, &ticks, sizeof(ticks)) > 0;
	atomic_store(&n->requested, false);
	verbsp_net_poll(n);
	/* What arrives from here on tells, and what came before is taken. */
	if (timed || atomic_load(&n->armed))
		verbsp_net_request(n);
	else
		request_urgent(n);
	verbsp_net_reap(n);
	verbsp_net_poll(n);
}

/* --- making them -------------------------------------------------------- */

static void destroy(struct verbsp_net *n)
{
	if (n->srq)
		ibv_destroy_srq(n->srq);
	if (n->received)
		ibv_destroy_cq(n->received);
	if (n->sent)
		ibv_destroy_cq(n->sent);
	if (n->channel) {
		verbsp_unwatch(n->channel->fd);
		ibv_destroy_comp_channel(n->channel);
	}
	if (n->pd)
		ibv_dealloc_pd(n->pd);
	verbsp_host->fd_close(n->timer);
	free(n);
}

static int fill(struct verbsp_net *n)
{
	int err = 0, got = (int)(VERBSP_SLOTS * VERBSP_CREDITS);
	struct ibv_srq_init_attr srq = {
		.attr = { .max_wr = (uint32_t)got, .max_sge = 1 },
	};

	err = verbsp_fail_watch(n->ctx);
	if (err)
		return err;
	n->pd = ibv_alloc_pd(n->ctx);
	n->channel = ibv_create_comp_channel(n->ctx);
	if (!n->pd || !n->channel)
		return -errno;
	if (fcntl(n->channel->fd, F_SETFL,
		  fcntl(n->channel->fd, F_GETFL) | O_NONBLOCK) < 0)
		return -errno;
	n->received = ibv_create_cq(n->ctx, got, n, n->channel, 0);
	n->sent = ibv_create_cq(
		n->ctx,
		(int)(VERBSP_SLOTS * (VERBSP_SEND_DEPTH / VERBSP_SIGNAL_EVERY +
				      1 + VERBSP_CREDITS)),
		n, n->channel, 0);
	n->srq = ibv_create_srq(n->pd, &srq);
	if (!n->received || !n->sent || !n->srq)
		return -errno;
	if (n->iwarp) {
		n->timer = verbsp_host->fd_keep(timerfd_create(
			CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
		if (n->timer < 0)
			return n->timer;
		err = verbsp_watch(n->timer, VERBSP_WATCH_NET, n);
	}
	if (!err)
		err = request_urgent(n);
	return err ? err : verbsp_watch(n->channel->fd, VERBSP_WATCH_NET, n);
}

static int make(struct ibv_context *ctx, struct verbsp_net **ret)
{
	struct verbsp_net *n = calloc(1, sizeof(*n));
	int err;

	if (!n)
		return -ENOMEM;
	n->ctx = ctx;
	n->timer = -1;
	n->iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	pthread_mutex_init(&n->lock, NULL);
	pthread_mutex_init(&n->reap, NULL);
	pthread_mutex_init(&n->memory_lock, NULL);
	exi_list_init(&n->memory);
	exi_list_init(&n->node);
	err = fill(n);
	if (err)
		destroy(n);
	else
		*ret = n;
	return err;
}

static int free_slot(const struct verbsp_net *n)
{
	for (unsigned int i = 0; i < VERBSP_SLOTS; i++)
		if (!n->slot[i].link)
			return (int)i;
	return -1;
}

static int slot_buffers(struct verbsp_net *n, unsigned int slot)
{
	struct verbsp_slot *s = &n->slot[slot];
	int err = 0;

	if (s->buffers)
		return 0;
	s->buffers = verbsp_map(BUFFERS);
	if (!s->buffers)
		return -ENOMEM;
	s->mr = ibv_reg_mr(n->pd, s->buffers, BUFFERS, IBV_ACCESS_LOCAL_WRITE);
	if (!s->mr) {
		err = -errno;
		munmap(s->buffers, BUFFERS);
		s->buffers = NULL;
		return err;
	}
	for (uint64_t i = 0; i < VERBSP_CREDITS && !err; i++)
		err = post_buffer(n, slot * VERBSP_CREDITS + i);
	return err;
}

/* As many bytes inline as the device takes. What a device refuses is told as the
 * end of the meeting is, and attr then says what it would have given: more than it
 * was asked for, so that is not what the next try goes by. */
static int make_qp(struct verbsp_net *n, struct verbsp_link *l)
{
	uint32_t least = VERBSP_MSG_MAX;

	for (;;) {
		struct ibv_qp_init_attr attr = {
			.send_cq = n->sent,
			.recv_cq = n->received,
			.srq = n->srq,
			.cap = { .max_send_wr = VERBSP_SEND_DEPTH,
				 .max_send_sge = 1,
				 .max_inline_data = least },
			.qp_type = IBV_QPT_RC,
		};

		if (!rdma_create_qp(l->id, n->pd, &attr)) {
			n->inline_max = attr.cap.max_inline_data;
			l->qp = l->id->qp;
			return 0;
		}
		if (!least)
			return -errno;
		least /= 2;
	}
}

static uint32_t write_max(struct rdma_cm_id *id)
{
	struct ibv_port_attr port;

	if (ibv_query_port(id->verbs, id->port_num, &port) ||
	    port.max_msg_sz > EXI_STREAM_LEN_MAX)
		return EXI_STREAM_LEN_MAX;
	return port.max_msg_sz;
}

static int join(struct verbsp_net *n, struct verbsp_link *l, unsigned int slot)
{
	struct verbsp_slot *s = &n->slot[slot];
	int err = slot_buffers(n, slot);

	if (!err)
		err = make_qp(n, l);
	if (err)
		return err;
	l->net = n;
	l->slot = slot;
	n->write_max = write_max(l->id);
	pthread_mutex_lock(&n->reap);
	s->generation = (s->generation + 1) & 0xffffffu;
	s->qp_num = l->qp->qp_num;
	s->link = l;
	pthread_mutex_unlock(&n->reap);
	return 0;
}

int verbsp_net_join(struct verbsp_link *l, struct rdma_cm_id *id)
{
	struct verbsp_net *n = NULL;
	struct exi_list *pos;
	int slot = -1, err = 0;

	l->id = id;
	pthread_mutex_lock(&nets_lock);
	exi_list_for_each (pos, &nets) {
		n = exi_container(pos, struct verbsp_net, node);
		slot = n->ctx == id->verbs ? free_slot(n) : -1;
		if (slot >= 0)
			break;
	}
	if (slot < 0) {
		err = make(id->verbs, &n);
		if (!err)
			exi_list_add_tail(&nets, &n->node);
		slot = 0;
	}
	if (!err) {
		pthread_mutex_lock(&n->lock);
		err = join(n, l, (unsigned int)slot);
		pthread_mutex_unlock(&n->lock);
	}
	pthread_mutex_unlock(&nets_lock);
	return err;
}

void verbsp_net_leave(struct verbsp_link *l)
{
	struct verbsp_net *n = l->net;

	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	poll_locked(n);
	if (n->slot[l->slot].link != l) /* it left before */
		goto unlock;
	verbsp_link_want_no_more(l, EXI_RX, false);
	verbsp_link_want_no_more(l, EXI_TX, false);
	pthread_mutex_lock(&n->reap);
	n->slot[l->slot].link = NULL;
	pthread_mutex_unlock(&n->reap);
unlock:
	pthread_mutex_unlock(&n->lock);
}

void verbsp_nets_each(void (*f)(struct verbsp_net *n))
{
	struct exi_list *pos;

	exi_list_for_each (pos, &nets)
		f(exi_container(pos, struct verbsp_net, node));
}
