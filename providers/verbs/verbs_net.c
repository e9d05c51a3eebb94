/* SPDX-License-Identifier: BSD-2-Clause */
/* Nets, which the connections of a device share. Devices slow down beyond some
 * hundred queue pairs and as many queues: each connection has only a queue pair
 * of its own, and VERBSP_SLOTS connections share one set of queues. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/rma/link.h"
#include "core/rma/memory.h"
#include "core/rma/post.h"

#define BUFFERS (EXI_RMA_CREDITS * EXI_RMA_MSG_MAX) /* bytes, for a slot */

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
	return n->slot[id / EXI_RMA_CREDITS].buffers +
	       id % EXI_RMA_CREDITS * EXI_RMA_MSG_MAX;
}

/* Buffers that are posted with one call. */
static int post_used(struct verbsp_net *n)
{
	struct ibv_recv_wr wr[VERBSP_TAKE], *bad;
	struct ibv_sge sge[VERBSP_TAKE];

	for (unsigned int i = 0; i < n->n_used; i++) {
		uint64_t id = n->used[i].id;

		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)buffer(n, id),
			.length = EXI_RMA_MSG_MAX,
			.lkey = n->slot[id / EXI_RMA_CREDITS].mr->lkey,
		};
		wr[i] = (struct ibv_recv_wr){ .wr_id = id,
					      .sg_list = &sge[i],
					      .num_sge = 1 };
		if (i)
			wr[i - 1].next = &wr[i];
	}
	return -abs(ibv_post_srq_recv(n->srq, wr, &bad));
}

/* Counts the used buffers of a link, from the first; afterwards they belong to
 * no link. */
static uint32_t count_used(struct verbsp_net *n, unsigned int i,
			   const struct verbsp_link *l)
{
	uint32_t count = 0;

	for (; i < n->n_used; i++)
		if (n->used[i].link == l) {
			n->used[i].link = NULL;
			count++;
		}
	return count;
}

/* The buffers are posted again before the messages in them count: any message
 * sent from then on, by any thread, gives their credits back, and without a
 * buffer for the next message iWARP ends the connection. */
static int give_back(struct verbsp_net *n)
{
	int err = n->n_used ? post_used(n) : 0;

	for (unsigned int i = 0; i < n->n_used; i++) {
		struct verbsp_link *l = n->used[i].link;
		uint32_t count = l ? count_used(n, i, l) : 0;

		if (l && err)
			exi_rma_link_fail(&l->rma, -ENOMEM,
					  "a receive buffer is refused");
		else if (l)
			exi_rma_link_give(&l->rma, count);
	}
	n->n_used = 0;
	if (err)
		atomic_store(&n->poor, true);
	return err;
}

static void hear(struct exi_rma_link *l, const struct ibv_wc *wc,
		 const struct exi_rma_msg *m)
{
	/* Flushed with its queue pair: the buffer is free again. */
	if (wc->status != IBV_WC_SUCCESS)
		exi_rma_link_fail(l, -ECONNRESET,
				  ibv_wc_status_str(wc->status));
	else if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		exi_rma_link_noted(l, be32toh(wc->imm_data));
	else
		exi_rma_link_heard(l, m, wc->byte_len);
}

/* Bytes for the ring are not kept waiting for their buffer. Other messages are:
 * their sender may wait for the credit. */
static bool may_wait(const struct ibv_wc *wc, const struct exi_rma_msg *m)
{
	uint32_t note;

	if (wc->status != IBV_WC_SUCCESS)
		return false;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		note = be32toh(wc->imm_data);
	else if (wc->byte_len >= EXI_RMA_BRIEF && m->kind == EXI_RMA_BYTES)
		return true;
	else if (wc->byte_len >= sizeof(*m) && m->kind == EXI_RMA_NOTE)
		note = le32toh(m->note);
	else
		return false;
	return note >> EXI_RMA_NOTE_SHIFT == EXI_RMA_NOTE_INDIRECT;
}

/* Nothing else writes into the buffer before it is posted again. */
static void take(struct verbsp_net *n, const struct ibv_wc *wc)
{
	const struct exi_rma_msg *m = (const void *)buffer(n, wc->wr_id);
	struct verbsp_link *l = link_of(n, wc->qp_num);

	n->used[n->n_used++] =
		(struct verbsp_used){ .id = wc->wr_id, .link = l };
	if (l)
		hear(&l->rma, wc, m);
	if (n->n_used == VERBSP_TAKE || !may_wait(wc, m))
		give_back(n);
}

/* Waiting buffers are posted by the first look that finds nothing: by then the
 * thread that was waiting has its bytes. */
int verbsp_net_take(struct exi_rma_net *net)
{
	struct verbsp_net *n = verbsp_net(net);
	struct ibv_wc wc[VERBSP_TAKE];
	int total = 0, got;

	n->looks++;
	do {
		got = ibv_poll_cq(n->received, VERBSP_TAKE, wc);
		for (int i = 0; i < got; i++)
			take(n, &wc[i]);
		total += got > 0 ? got : 0;
	} while (got == VERBSP_TAKE);
	if (!total && n->n_used)
		give_back(n);
	return total;
}

/* The name of a request: slot, generation, number. */
void verbsp_net_reap(struct exi_rma_net *net)
{
	struct verbsp_net *n = verbsp_net(net);
	struct ibv_wc wc[VERBSP_TAKE];
	int got;

	exi_rma_lock(&n->reap);
	do {
		got = ibv_poll_cq(n->sent, VERBSP_TAKE, wc);
		for (int i = 0; i < got; i++) {
			struct verbsp_slot *s =
				&n->slot[(wc[i].wr_id >> 32) % VERBSP_SLOTS];

			if (!s->link || s->generation != wc[i].wr_id >> 40)
				continue;
			if (wc[i].status == IBV_WC_SUCCESS)
				atomic_store(&s->link->rma.done,
					     (uint32_t)wc[i].wr_id);
			else
				exi_rma_link_fail(
					&s->link->rma, -ECONNRESET,
					ibv_wc_status_str(wc[i].status));
		}
	} while (got == VERBSP_TAKE);
	exi_rma_unlock(&n->reap);
}

void verbsp_net_request(struct exi_rma_net *net)
{
	struct verbsp_net *n = verbsp_net(net);

	if (atomic_exchange(&n->requested, true))
		return;
	ibv_req_notify_cq(n->received, 0);
	/* A failed queue pair reports its failure to a send on it, nowhere
	 * else. */
	ibv_req_notify_cq(n->sent, 0);
	verbsp_net_reap(net);
}

/* While no thread sleeps: urgent messages only. Soft iWARP does not report
 * which those are, so all that comes is looked at, now and then: more rarely
 * while threads of the program look themselves, for they wait for this CPU
 * then. */
#define PAUSE_MIN_NS 1000000
#define PAUSE_MAX_NS 8000000

static int request_urgent(struct verbsp_net *n, bool others)
{
	struct itimerspec soon = { 0 };

	if (n->timer < 0)
		return -ibv_req_notify_cq(n->received, 1);
	n->pause = others ? 2 * n->pause : PAUSE_MIN_NS;
	if (n->pause > PAUSE_MAX_NS)
		n->pause = PAUSE_MAX_NS;
	soon.it_value.tv_nsec = n->pause;
	return timerfd_settime(n->timer, 0, &soon, NULL) < 0 ? -errno : 0;
}

/* The service looks; whether others did since it looked last. */
static bool look(struct verbsp_net *n)
{
	bool others;

	exi_rma_lock(&n->rma.lock);
	others = n->looks != n->looked;
	verbsp_net_take(&n->rma);
	n->looked = n->looks;
	exi_rma_unlock(&n->rma.lock);
	return others;
}

static void net_event(struct verbsp_net *n)
{
	struct ibv_cq *cq;
	unsigned int events = 0, sent = 0;
	bool timed, others;
	uint64_t ticks;
	void *arg;

	while (!ibv_get_cq_event(n->channel, &cq, &arg))
		*(cq == n->sent ? &sent : &events) += 1;
	if (events)
		ibv_ack_cq_events(n->received, events);
	if (sent)
		ibv_ack_cq_events(n->sent, sent);
	timed = n->timer >= 0 && read(n->timer, &ticks, sizeof(ticks)) > 0;
	atomic_store(&n->requested, false);
	others = look(n);
	/* What arrives from here on is reported, and what came before is
	 * taken. */
	if ((timed && !others) || atomic_load(&n->rma.armed))
		verbsp_net_request(&n->rma);
	else
		request_urgent(n, others);
	verbsp_net_reap(&n->rma);
	look(n);
}

static void on_channel(struct exi_rma_event *e)
{
	net_event(exi_container(e, struct verbsp_net, on_channel));
}

static void on_timer(struct exi_rma_event *e)
{
	net_event(exi_container(e, struct verbsp_net, on_timer));
}

/* --- requests ----------------------------------------------------------- */

int verbsp_net_reg(struct exi_rma_net *n, void *addr, size_t len,
		   enum exi_rma_access access, struct exi_rma_mr *ret)
{
	static const int flags[] = {
		[EXI_RMA_FILL] = IBV_ACCESS_LOCAL_WRITE,
		[EXI_RMA_REMOTE] =
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_mr *mr =
		ibv_reg_mr(verbsp_net(n)->pd, addr, len, flags[access]);

	if (!mr)
		return -errno;
	*ret = (struct exi_rma_mr){ .handle = mr, .key = mr->rkey };
	return 0;
}

void verbsp_net_dereg(struct exi_rma_mr *m)
{
	ibv_dereg_mr(m->handle);
}

static void request_of(struct verbsp_link *l, const struct exi_rma_req *r,
		       struct ibv_sge *sge, struct ibv_send_wr *wr)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[EXI_RMA_SEND] = IBV_WR_SEND,
		[EXI_RMA_WRITE] = IBV_WR_RDMA_WRITE,
		[EXI_RMA_WRITE_NOTE] = IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	const struct ibv_mr *mr = r->mr ? r->mr->handle : NULL;

	*sge = (struct ibv_sge){ .addr = (uintptr_t)r->from,
				 .length = r->len,
				 .lkey = mr ? mr->lkey : 0 };
	l->rma.posted++;
	/* Members that its operation does not use stay as they are: clearing
	 * them takes longer than the rest. */
	wr->wr_id = (uint64_t)verbsp_net(l->rma.net)->slot[l->slot].generation
			    << 40 |
		    (uint64_t)l->slot << 32 | l->rma.posted;
	wr->next = NULL;
	wr->sg_list = sge;
	wr->num_sge = r->len ? 1 : 0;
	wr->opcode = opcodes[r->op];
	wr->send_flags = 0;
	wr->imm_data = htobe32(r->note);
	wr->wr.rdma.remote_addr = r->to;
	wr->wr.rdma.rkey = (uint32_t)r->key;
	if (r->len <= l->rma.net->inline_max)
		wr->send_flags |= IBV_SEND_INLINE;
	if (r->urgent)
		wr->send_flags |= IBV_SEND_SOLICITED;
	if (r->tell || l->rma.posted % EXI_RMA_SIGNAL_EVERY == 0)
		wr->send_flags |= IBV_SEND_SIGNALED;
}

int verbsp_net_post(struct exi_rma_link *link, const struct exi_rma_req *r,
		    unsigned int n)
{
	struct verbsp_link *l = verbsp_link(link);
	struct ibv_send_wr wr[2], *bad;
	struct ibv_sge sge[2];

	request_of(l, &r[0], &sge[0], &wr[0]);
	if (n == 2) {
		request_of(l, &r[1], &sge[1], &wr[1]);
		wr[0].next = &wr[1];
	}
	/* siw's is negative */
	return -abs(ibv_post_send(l->qp, wr, &bad));
}

void verbsp_net_kill(struct exi_rma_link *link)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct verbsp_link *l = verbsp_link(link);

	if (l->qp)
		ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
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
		exi_rma_unwatch(n->channel->fd);
		verbsp_fd_close(&n->channel->fd);
		ibv_destroy_comp_channel(n->channel);
	}
	if (n->pd)
		ibv_dealloc_pd(n->pd);
	exi_rma_host->fd_close(n->timer);
	free(n);
}

static int fill(struct verbsp_net *n)
{
	int err = 0, got = (int)(VERBSP_SLOTS * EXI_RMA_CREDITS);
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
	err = verbsp_fd_keep(&n->channel->fd);
	if (err)
		return err;
	n->received = ibv_create_cq(n->ctx, got, n, n->channel, 0);
	n->sent =
		ibv_create_cq(n->ctx,
			      (int)(VERBSP_SLOTS *
				    (EXI_RMA_SEND_DEPTH / EXI_RMA_SIGNAL_EVERY +
				     1 + EXI_RMA_CREDITS)),
			      n, n->channel, 0);
	n->srq = ibv_create_srq(n->pd, &srq);
	if (!n->received || !n->sent || !n->srq)
		return -errno;
	if (n->iwarp) {
		n->timer = exi_rma_host->fd_keep(timerfd_create(
			CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
		if (n->timer < 0)
			return n->timer;
		err = exi_rma_watch(n->timer, &n->on_timer);
	}
	if (!err)
		err = request_urgent(n, false);
	return err ? err : exi_rma_watch(n->channel->fd, &n->on_channel);
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
	exi_rma_net_init(&n->rma);
	n->rma.notes = n->iwarp;
	/* A request over iWARP is over when TCP has it; TCP drops it if the
	 * peer sends something to a connection that was closed. */
	n->rma.early = n->iwarp;
	n->rma.software = verbsp_software(ctx->device);
	n->rma.quick = true; /* the device's queues are in this process */
	n->rma.eager = EXI_RMA_EAGER;
	n->on_channel.call = on_channel;
	n->on_timer.call = on_timer;
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
	if (atomic_load(&n->poor))
		return -1;
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
	s->buffers = exi_rma_map(BUFFERS);
	if (!s->buffers)
		return -ENOMEM;
	s->mr = ibv_reg_mr(n->pd, s->buffers, BUFFERS, IBV_ACCESS_LOCAL_WRITE);
	if (!s->mr) {
		err = -errno;
		munmap(s->buffers, BUFFERS);
		s->buffers = NULL;
		return err;
	}
	for (uint64_t i = 0; i < EXI_RMA_CREDITS && !err; i++) {
		err = n->n_used == VERBSP_TAKE ? give_back(n) : 0;
		n->used[n->n_used++] =
			(struct verbsp_used){ .id = slot * EXI_RMA_CREDITS +
						    i };
	}
	return err ? err : give_back(n);
}

/* A queue pair may get more than was asked for: soft iWARP reports that only
 * when it is asked again. */
static uint32_t inline_of(struct ibv_qp *qp, uint32_t told)
{
	struct ibv_qp_init_attr init = { 0 };
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) ||
	    init.cap.max_inline_data < told)
		return told;
	return init.cap.max_inline_data;
}

/* Makes a queue pair, with as many bytes inline as the device takes. A device's
 * refusal is reported like the end of the handshake, and attr then has what the
 * device would have given: more than was asked for, so the next try does not
 * use it. */
static int make_qp(struct verbsp_net *n, struct verbsp_link *l)
{
	uint32_t least = EXI_RMA_MSG_MAX;

	for (;;) {
		struct ibv_qp_init_attr attr = {
			.send_cq = n->sent,
			.recv_cq = n->received,
			.srq = n->srq,
			.cap = { .max_send_wr = EXI_RMA_SEND_DEPTH,
				 .max_send_sge = 1,
				 .max_inline_data = least },
			.qp_type = IBV_QPT_RC,
		};

		if (!rdma_create_qp(l->id, n->pd, &attr)) {
			l->qp = l->id->qp;
			n->rma.inline_max =
				inline_of(l->qp, attr.cap.max_inline_data);
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
	/* The queue pair may have the number of one that is gone, for which
	 * completions came after it left; the device has no more of them. */
	verbsp_net_take(&n->rma);
	give_back(n);
	l->rma.net = &n->rma;
	l->slot = slot;
	n->rma.write_max = write_max(l->id);
	exi_rma_lock(&n->reap);
	s->generation = (s->generation + 1) & 0xffffffu;
	s->qp_num = l->qp->qp_num;
	s->link = l;
	exi_rma_unlock(&n->reap);
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
		exi_rma_lock(&n->rma.lock);
		err = join(n, l, (unsigned int)slot);
		exi_rma_unlock(&n->rma.lock);
	}
	pthread_mutex_unlock(&nets_lock);
	return err;
}

void verbsp_net_leave(struct verbsp_link *l)
{
	struct verbsp_net *n;

	if (!l->rma.net)
		return;
	n = verbsp_net(l->rma.net);
	exi_rma_lock(&n->rma.lock);
	verbsp_net_take(&n->rma);
	give_back(n);
	if (n->slot[l->slot].link != l) /* the link left before */
		goto unlock;
	exi_rma_link_forget(&l->rma);
	exi_rma_lock(&n->reap);
	n->slot[l->slot].link = NULL;
	exi_rma_unlock(&n->reap);
unlock:
	exi_rma_unlock(&n->rma.lock);
}

void verbsp_net_links(struct exi_rma_net *net,
		      void (*f)(struct exi_rma_link *l))
{
	struct verbsp_net *n = verbsp_net(net);

	exi_rma_lock(&n->rma.lock);
	for (unsigned int i = 0; i < VERBSP_SLOTS; i++)
		if (n->slot[i].link)
			f(&n->slot[i].link->rma);
	exi_rma_unlock(&n->rma.lock);
}

/* Nets come and stay. */
static struct exi_list *net_after(struct exi_list *at)
{
	struct exi_list *ret;

	pthread_mutex_lock(&nets_lock);
	ret = at->next;
	pthread_mutex_unlock(&nets_lock);
	return ret;
}

void verbsp_nets_each(void (*f)(struct exi_rma_net *n))
{
	struct exi_list *pos = net_after(&nets);

	for (; pos != &nets; pos = net_after(pos))
		f(&exi_container(pos, struct verbsp_net, node)->rma);
}

void verbsp_nets_forked(void)
{
	pthread_mutex_init(&nets_lock, NULL);
}
