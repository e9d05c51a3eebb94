/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages that arrived on a net, and requests on it. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/rma/link.h"
#include "core/rma/post.h"
#include "core/rma/rma.h"
#include "core/rma/wire.h"

#define TAKE 16

/* A thread of the provider's has sent by then, also where the other end stands
 * still. */
#define SEE_OFF_NS 10000000u

/* --- what arrived ------------------------------------------------------- */

static struct ofip_link *link_named(struct ofip_net *n, uint32_t name)
{
	struct ofip_slot *s = &n->slot[name % OFIP_SLOTS];

	return name && s->link && s->name == name ? s->link : NULL;
}

ssize_t ofip_post_buffer(struct ofip_net *n, struct ofip_buffer *b)
{
	struct ofip_slot *s = &n->slot[b->slot];
	struct fid_ep *ep = n->rdm ? n->ep : s->link ? s->link->ep : NULL;

	if (!ep)
		return 0; /* the endpoint has gone */
	return fi_recv(ep, b->bytes, sizeof(b->bytes),
		       s->mr ? fi_mr_desc(s->mr) : NULL, FI_ADDR_UNSPEC, b);
}

/* The buffer is posted again before the message in it counts, as over verbs. */
static void take(struct ofip_net *n, const struct fi_cq_data_entry *e)
{
	struct ofip_buffer *b = e->op_context;
	bool noted = e->flags & FI_REMOTE_CQ_DATA;
	_Alignas(struct exi_rma_msg) unsigned char bytes[EXI_RMA_MSG_MAX];
	struct exi_rma_msg head;
	struct ofip_link *l = NULL;
	size_t len = e->len < sizeof(bytes) ? e->len : sizeof(bytes);
	ssize_t err = 0;

	/* A write with data uses up a buffer, or does not: FI_RX_CQ_DATA. */
	if (noted && !(n->info->mode & FI_RX_CQ_DATA))
		b = NULL;
	if (b && !noted)
		memcpy(bytes, b->bytes, len);
	if (b)
		err = ofip_post_buffer(n, b);
	if (b && !n->rdm) {
		l = n->slot[b->slot].link;
	} else if (noted) {
		l = link_named(n, (uint32_t)(e->data >> 32));
	} else if (len >= sizeof(head)) {
		memcpy(&head, bytes, sizeof(head));
		l = link_named(n, le32toh(head.name));
	}
	if (!l)
		return;
	if (noted)
		exi_rma_link_noted(&l->rma, (uint32_t)e->data);
	else
		exi_rma_link_heard(&l->rma, (const struct exi_rma_msg *)bytes,
				   (uint32_t)len);
	if (err)
		exi_rma_link_fail(&l->rma, -ENOMEM,
				  "a receive buffer is refused");
	else
		exi_rma_link_give(&l->rma, 1);
}

/* A receive that failed. A closed endpoint gives its receives back in this
 * way. */
static void take_error(struct ofip_net *n)
{
	struct fi_cq_err_entry e = { 0 };
	struct ofip_buffer *b;

	if (fi_cq_readerr(n->received, &e, 0) < 1)
		return;
	b = e.op_context;
	if (e.err == FI_ECANCELED || !b)
		return;
	exi_rma_log(EXI_LOG_DEBUG, "a receive failed: %s", fi_strerror(e.err));
	if (n->rdm)
		ofip_post_buffer(n, b);
	else if (n->slot[b->slot].link)
		exi_rma_link_fail(&n->slot[b->slot].link->rma, -ECONNRESET,
				  fi_strerror(e.err));
}

int ofip_net_take(struct exi_rma_net *net)
{
	struct ofip_net *n = ofip_net(net);
	struct fi_cq_data_entry e[TAKE];
	int total = 0;
	ssize_t got;

	atomic_fetch_add_explicit(&n->takes, 1, memory_order_relaxed);
	do {
		got = fi_cq_read(n->received, e, TAKE);
		for (ssize_t i = 0; i < got; i++)
			take(n, &e[i]);
		if (got == -FI_EAVAIL)
			take_error(n);
		total += got > 0 ? (int)got : 0;
	} while (got == TAKE || got == -FI_EAVAIL);
	return total;
}

/* The handle of memory that needs none. */
static char unregistered;

/* --- requests ----------------------------------------------------------- */

/* Counts a request as over. Requests may end in another order than they were
 * posted in. */
static void over(struct ofip_net *n, struct ofip_op *op)
{
	struct ofip_slot *s = &n->slot[op->slot];
	struct ofip_op *next;

	op->over = true;
	while ((next = &s->ops[(s->done + 1) % EXI_RMA_SEND_DEPTH])->over) {
		next->over = false;
		s->done++;
	}
	if (s->link)
		atomic_store(&s->link->rma.done, s->done);
}

static void over_badly(struct ofip_net *n)
{
	struct fi_cq_err_entry e = { 0 };
	struct ofip_op *op;
	struct ofip_link *l;

	if (fi_cq_readerr(n->sent, &e, 0) < 1 || !e.op_context)
		return;
	op = e.op_context;
	l = n->slot[op->slot].link;
	if (l)
		exi_rma_link_fail(&l->rma, -ECONNRESET, fi_strerror(e.err));
	if (!op->counted)
		over(n, op);
}

void ofip_net_reap_locked(struct ofip_net *n)
{
	struct fi_cq_data_entry e[TAKE];
	ssize_t got;

	EXI_MUTEX_LOCKED(&n->reap);
	do {
		got = fi_cq_read(n->sent, e, TAKE);
		for (ssize_t i = 0; i < got; i++)
			if (e[i].op_context)
				over(n, e[i].op_context);
		if (got == -FI_EAVAIL)
			over_badly(n);
	} while (got == TAKE || got == -FI_EAVAIL);
}

void ofip_net_reap(struct exi_rma_net *net)
{
	struct ofip_net *n = ofip_net(net);

	pthread_mutex_lock(&n->reap);
	ofip_net_reap_locked(n);
	pthread_mutex_unlock(&n->reap);
}

/* Whether a request is injected: it is over when it is taken, and only errors
 * are reported. A completion costs a system call where a thread can sleep on
 * it. */
static bool injected(const struct exi_rma_net *n, const struct exi_rma_req *r)
{
	return r->len <= n->inline_max && !r->tell && !r->last;
}

static ssize_t post_one(struct ofip_link *l, const struct exi_rma_req *r)
{
	struct ofip_net *n = ofip_net(l->rma.net);
	struct iovec iov = { .iov_base = (void *)(uintptr_t)r->from,
			     .iov_len = r->len };
	struct fi_rma_iov to = { .addr = r->to, .len = r->len, .key = r->key };
	struct ofip_op *op =
		&n->slot[l->slot].ops[(l->rma.posted + 1) % EXI_RMA_SEND_DEPTH];
	void *desc = r->mr && r->mr->handle && r->mr->handle != &unregistered
			     ? fi_mr_desc(r->mr->handle)
			     : NULL;
	/* If there is an array, the verbs provider looks into its entry. */
	void **descs = desc ? &desc : NULL;
	uint64_t flags, data = r->note;
	fi_addr_t at = l->peer ? l->peer->at : FI_ADDR_UNSPEC;

	op->counted = injected(l->rma.net, r);
	flags = op->counted	     ? FI_INJECT
		: r->last && !n->shm ? FI_COMPLETION | FI_DELIVERY_COMPLETE
				     : FI_COMPLETION;
	if (n->info->domain_attr->cq_data_size >= 8)
		data |= (uint64_t)l->peer_name << 32;
	op->slot = (uint16_t)l->slot;
	if (r->op == EXI_RMA_SEND) {
		const struct fi_msg m = { .msg_iov = &iov,
					  .desc = descs,
					  .iov_count = 1,
					  .addr = at,
					  .context = op };

		return fi_sendmsg(l->ep, &m, flags);
	}
	const struct fi_msg_rma w = { .msg_iov = &iov,
				      .desc = descs,
				      .iov_count = 1,
				      .addr = at,
				      .rma_iov = &to,
				      .rma_iov_count = 1,
				      .context = op,
				      .data = data };

	ssize_t err;

	if (r->op == EXI_RMA_WRITE_NOTE)
		flags |= FI_REMOTE_CQ_DATA;
	if (n->shm)
		ofip_shm_write_failed(); /* forgets an earlier failure */
	err = fi_writemsg(l->ep, &w, flags);
	return n->shm && !err && ofip_shm_write_failed() ? -FI_EIO : err;
}

static void over_at_once(struct ofip_link *l)
{
	struct ofip_net *n = ofip_net(l->rma.net);

	pthread_mutex_lock(&n->reap);
	over(n, &n->slot[l->slot].ops[l->rma.posted % EXI_RMA_SEND_DEPTH]);
	pthread_mutex_unlock(&n->reap);
}

/* Waits until what was posted is sent: it is to outlive this process. */
static void see_off(struct exi_rma_link *l)
{
	uint64_t until = exi_now_ns() + SEE_OFF_NS;

	while (atomic_load(&l->done) != l->posted && !atomic_load(&l->err) &&
	       exi_now_ns() < until) {
		ofip_net_reap(l->net);
		sched_yield();
	}
}

/* Requests were posted: over a net without descriptors this wakes the other
 * end, and the service looks for their completion. */
static void posted(struct ofip_link *l, ssize_t err)
{
	struct ofip_net *n = ofip_net(l->rma.net);

	if (err)
		atomic_store(&n->refused, true);
	ofip_doze_posted(l);
	if (atomic_load(&n->dozes) &&
	    (err || atomic_load(&l->rma.done) != l->rma.posted))
		eventfd_write(n->poke, 1);
}

int ofip_net_post(struct exi_rma_link *link, const struct exi_rma_req *r,
		  unsigned int n)
{
	struct ofip_link *l = ofip_link(link);
	ssize_t err = 0;

	for (unsigned int i = 0; i < n && !err; i++) {
		for (int tries = 0; tries < OFIP_TRIES; tries++) {
			err = l->ep ? post_one(l, &r[i]) : -FI_ENOTCONN;
			if (err != -FI_EAGAIN)
				break;
			ofip_net_reap(link->net);
		}
		if (err)
			break;
		link->posted++;
		if (injected(link->net, &r[i]))
			over_at_once(l);
	}
	if (ofip_net(link->net)->later)
		see_off(link);
	if (ofip_net(link->net)->polled)
		posted(l, err);
	return err == -FI_EAGAIN ? -EAGAIN : (int)err;
}

void ofip_net_kill(struct exi_rma_link *link)
{
	struct ofip_link *l = ofip_link(link);

	if (l->ep && !ofip_net(link->net)->rdm)
		fi_shutdown(l->ep, 0);
}

int ofip_net_reg(struct exi_rma_net *net, void *addr, size_t len,
		 enum exi_rma_access access, struct exi_rma_mr *ret)
{
	struct ofip_net *n = ofip_net(net);
	int mode = n->info->domain_attr->mr_mode;
	uint64_t flags = FI_SEND | FI_WRITE, key = 0;
	struct fid_mr *mr;
	int err;

	if (access != EXI_RMA_REMOTE && !(mode & FI_MR_LOCAL)) {
		*ret = (struct exi_rma_mr){ .handle = &unregistered };
		return 0;
	}
	if (access == EXI_RMA_REMOTE)
		flags |= FI_REMOTE_WRITE;
	/* The key cannot be guessed, where we choose it. */
	if (!(mode & FI_MR_PROV_KEY)) {
		if (getrandom(&key, sizeof(key), 0) != sizeof(key))
			return -EIO;
		if (n->info->domain_attr->mr_key_size < sizeof(key))
			key &= (1ull << 8 * n->info->domain_attr->mr_key_size) -
			       1;
	}
	err = fi_mr_reg(n->domain, addr, len, flags, 0, key, 0, &mr, NULL);
	if (err)
		return err;
	*ret = (struct exi_rma_mr){
		.handle = mr,
		.key = fi_mr_key(mr),
		.shift =
			mode & FI_MR_VIRT_ADDR ? 0 : -(uint64_t)(uintptr_t)addr,
	};
	return 0;
}

void ofip_net_dereg(struct exi_rma_mr *m)
{
	if (m->handle != &unregistered)
		fi_close(&((struct fid_mr *)m->handle)->fid);
}
