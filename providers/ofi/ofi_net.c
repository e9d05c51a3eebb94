/* SPDX-License-Identifier: BSD-2-Clause */
/* What connections share: a domain of libfabric, its queues, receive buffers; and
 * requests on them. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/exs_ext.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/rma/link.h"
#include "core/rma/lock.h"
#include "core/rma/meet.h"
#include "core/rma/memory.h"
#include "core/rma/place.h"
#include "core/rma/post.h"
#include "core/rma/request.h"
#include "core/rma/rma.h"
#include "core/rma/stream.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"

#define TAKE 16
/* Software sends while we call it, so no other piece is copied meanwhile; two fit
 * the largest ring. */
#define SOFT_PIECE_MAX (EXI_RMA_RING_MAX / 2)
/* While nobody sleeps, whatever comes is looked at now and then: libfabric does
 * not tell what is urgent. */
#define NOW_AND_THEN_NS 1000000u
/* More seldom while another thread looks all the time: the two get in each other's
 * way, and a look cost it some 100 us. */
#define BUSY_NS 4000000u
/* Looks before it is believed that work keeps coming. */
#define TRIES 16
/* A provider without descriptors is looked at so often while somebody waits, and
 * now and then while nobody does. */
#define POLL_NS 50000u
/* Who makes one connection after the other does not open a domain for each. */
#define IDLE_NS 100000000u
/* Unless the program needs what the net holds. */
#define SHORT_NS 10000000u
/* Nor a connection of rdm's to the same process, which may still have to tell
 * something about the last. */
#define PEER_NS 1000000000u
/* A thread of the provider's has sent by then, also where the other end stands
 * still. */
#define SEE_OFF_NS 10000000u

static struct exi_list nets = EXI_LIST_INIT(nets);
static pthread_mutex_t nets_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- what arrived ------------------------------------------------------- */

static struct ofip_link *link_named(struct ofip_net *n, uint32_t name)
{
	struct ofip_slot *s = &n->slot[name % OFIP_SLOTS];

	return name && s->link && s->name == name ? s->link : NULL;
}

static ssize_t post_buffer(struct ofip_net *n, struct ofip_buffer *b)
{
	struct ofip_slot *s = &n->slot[b->slot];
	struct fid_ep *ep = n->rdm ? n->ep : s->link ? s->link->ep : NULL;

	if (!ep)
		return 0; /* its endpoint has gone */
	return fi_recv(ep, b->bytes, sizeof(b->bytes),
		       s->mr ? fi_mr_desc(s->mr) : NULL, FI_ADDR_UNSPEC, b);
}

/* The buffer is there again before what came in it counts, as over verbs. */
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
		err = post_buffer(n, b);
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

/* A receive that failed. An endpoint that was closed gives its own back so. */
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
		post_buffer(n, b);
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

/* They may end in another order than they were posted in. */
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

static void reap_locked(struct ofip_net *n)
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
	reap_locked(n);
	pthread_mutex_unlock(&n->reap);
}

/* It is over when it is taken, and nothing is heard of it but errors: a completion
 * costs a system call where it can be slept on. */
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
	/* Verbs looks into the one that there is. */
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
		ofip_shm_write_failed(); /* another */
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

/* What is sent is to outlive this process. */
static void see_off(struct exi_rma_link *l)
{
	uint64_t until = exi_now_ns() + SEE_OFF_NS;

	while (atomic_load(&l->done) != l->posted && !atomic_load(&l->err) &&
	       exi_now_ns() < until) {
		ofip_net_reap(l->net);
		sched_yield();
	}
}

/* Of a net without descriptors: the other end hears of it, and somebody looks at what
 * comes of it. */
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
		for (int tries = 0; tries < TRIES; tries++) {
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
	/* Nobody guesses it, where it is ours to choose. */
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

/* --- waking ------------------------------------------------------------- */

static void poll_in(struct ofip_net *n, uint64_t ns)
{
	n->due = exi_now_ns() + ns;
	exi_rma_look_at(n->due);
}

/* Nobody else reads a queue, or lets libfabric ask its links. */
static void hold(struct ofip_net *n)
{
	exi_rma_lock(&n->rma.lock);
	pthread_mutex_lock(&n->reap);
}

static void let_go(struct ofip_net *n)
{
	pthread_mutex_unlock(&n->reap);
	exi_rma_unlock(&n->rma.lock);
}

/* Held, or nobody knows the net yet: libfabric copies what poll(2) writes to, and who
 * reads a queue may move. */
static int ask_waits(struct ofip_net *n, struct ofip_waits *ret)
{
	struct fid *fids[2] = { &n->received->fid, &n->sent->fid };
	int err;

	memset(ret, 0, sizeof(*ret));
	for (int i = 0; i < 2; i++) {
		struct fi_wait_pollfd w = {
			.nfds = sizeof(ret->fd) / sizeof(*ret->fd) - ret->n,
			.fd = &ret->fd[ret->n],
		};

		err = fi_control(fids[i], FI_GETWAIT, &w);
		if (err)
			return err;
		ret->change[i] = w.change_index;
		ret->n += w.nfds;
	}
	for (size_t i = 0; i < ret->n; i++)
		ret->fd[i].events = ret->fd[i].revents = 0;
	return 0;
}

/* Numbers of what was closed have left the sets, or are another's there. */
static void empty_sets(struct ofip_net *n)
{
	for (size_t i = 0; i < n->waits.n; i++) {
		epoll_ctl(n->received_fd, EPOLL_CTL_DEL, n->waits.fd[i].fd,
			  NULL);
		epoll_ctl(n->sent_fd, EPOLL_CTL_DEL, n->waits.fd[i].fd, NULL);
	}
	memset(&n->waits, 0, sizeof(n->waits));
}

static int into_set(int set, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events };

	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

/* Both queues wait for a connection. */
static bool is_connection(const struct ofip_waits *w, int fd)
{
	unsigned int times = 0;

	for (size_t i = 0; i < w->n; i++)
		times += w->fd[i].fd == fd;
	return times > 1;
}

/* What arrives is told until it is taken. Else once: that a queue has something,
 * which the look before the sleep finds, after which some descriptors stay
 * readable; and that there is room, whether libfabric waits for it or not, for
 * any thread may make it wait and the list does not tell then. */
static int watch_one(struct ofip_net *n, int fd)
{
	int err;

	if (fd < 0)
		return 0;
	if (!is_connection(&n->waits, fd))
		return into_set(n->sent_fd, fd, EPOLLIN | EPOLLET);
	err = into_set(n->received_fd, fd, EPOLLIN);
	return err ? err : into_set(n->sent_fd, fd, EPOLLOUT | EPOLLET);
}

/* *ret_changed: the sets are not what they were. -errno. */
static int fill_sets(struct ofip_net *n, bool *ret_changed)
{
	struct ofip_waits now;
	int err = ask_waits(n, &now);

	*ret_changed = false;
	if (err || !memcmp(&now, &n->waits, sizeof(now)))
		return err;
	*ret_changed = true;
	empty_sets(n);
	n->waits = now;
	for (size_t i = 0; i < now.n && !err; i++)
		err = watch_one(n, now.fd[i].fd);
	if (err) {
		empty_sets(n);
		*ret_changed = false;
	}
	return err;
}

/* What is told once was told. */
static void drain(struct ofip_net *n)
{
	struct epoll_event ev[4 * OFIP_FEW];

	epoll_wait(n->sent_fd, ev, 4 * OFIP_FEW, 0);
}

static void watch_fds(struct ofip_net *n)
{
	exi_rma_watch_once(n->received_fd, &n->on_received, EPOLLIN);
	exi_rma_watch_once(n->sent_fd, &n->on_sent, EPOLLIN);
}

/* Libfabric has nothing that its descriptors do not tell, and the sets have
 * them. */
static bool may_sleep(struct ofip_net *n)
{
	struct fid *fids[2] = { &n->received->fid, &n->sent->fid };
	bool changed = false, ret;

	if (!n->few)
		return !fi_trywait(n->fabric, fids, 2);
	hold(n);
	drain(n);
	ret = !fi_trywait(n->fabric, fids, 2);
	if (ret && fill_sets(n, &changed))
		atomic_store(&n->blind, true);
	let_go(n);
	return ret && !changed;
}

/* The descriptors tell of what comes from here on; what came before is taken.
 * False: it keeps coming. */
static bool watch_net(struct ofip_net *n)
{
	for (int i = 0; i < TRIES; i++) {
		if (may_sleep(n)) {
			watch_fds(n);
			return true;
		}
		ofip_net_reap(&n->rma);
		exi_rma_net_poll(&n->rma);
	}
	return false;
}

static void request(struct ofip_net *n)
{
	if (n->polled)
		poll_in(n, POLL_NS);
	else if (!watch_net(n)) /* the service will look, at once */
		watch_fds(n);
}

/* The service lock is held. */
static void see(struct ofip_net *n)
{
	if (atomic_exchange(&n->blind, false))
		poll_in(n, POLL_NS);
}

void ofip_net_request(struct exi_rma_net *net)
{
	struct ofip_net *n = ofip_net(net);

	/* What comes from here on rings, and what came is looked for next. */
	if (atomic_load(&n->dozes) || atomic_exchange(&n->requested, true))
		return;
	if (!n->polled)
		request(n);
	if (!n->polled && !atomic_load(&n->blind))
		return;
	pthread_mutex_lock(&exi_rma_service_lock);
	if (n->polled && !atomic_load(&n->dozes))
		request(n);
	see(n);
	pthread_mutex_unlock(&exi_rma_service_lock);
}

/* Not only disarmed: in a set it costs every message, also when the program takes
 * them all. */
static void unwatch(int fd)
{
	if (fd >= 0)
		exi_rma_unwatch(fd);
}

/* The service, which arms before it sleeps. */
static void request_now(struct ofip_net *n)
{
	n->due = 0;
	atomic_store(&n->requested, true);
	if (n->polled)
		request(n);
}

/* Nobody waits. Who begins to meanwhile, and was watched for, is seen by the look
 * at armed; who begins after it finds that nothing is requested. */
static void look_later(struct ofip_net *n, bool busy)
{
	unwatch(n->received_fd);
	unwatch(n->sent_fd);
	hold(n);
	empty_sets(n);
	let_go(n);
	atomic_store(&n->requested, false);
	if (atomic_load(&n->rma.armed))
		request_now(n);
	else
		poll_in(n, busy ? BUSY_NS : NOW_AND_THEN_NS);
}

/* Another thread took what came, since this was asked last. */
static bool taken_by_others(struct ofip_net *n)
{
	unsigned int takes = atomic_load(&n->takes);
	bool ret = takes != n->takes_seen;

	n->takes_seen = takes;
	return ret;
}

/* Who posts after the second look, by the post lock, finds that the net dozes. */
static bool may_doze(struct ofip_net *n)
{
	atomic_store(&n->dozes, true);
	if (ofip_doze_agreed(n) && !atomic_load(&n->refused)) {
		n->due = 0;
		return true;
	}
	atomic_store(&n->dozes, false);
	return false;
}

/* No descriptor tells when the provider would take it. */
static void retry(struct ofip_net *n)
{
	for (unsigned int i = 0; i < n->slots; i++)
		if (n->slot[i].link)
			exi_rma_link_retry(&n->slot[i].link->rma);
}

/* What came. *ret_all: there was no more; without descriptors it is asked for until
 * there is nothing, as who finds a queue empty makes libfabric fetch what came; and
 * once more, for another may just be fetching it, to read the other queue. */
static int look(struct ofip_net *n, bool *ret_all)
{
	int took = 0, found;

	*ret_all = false;
	for (int looks = 0; looks < TRIES && !*ret_all; looks++) {
		ofip_net_reap(&n->rma);
		found = exi_rma_net_poll(&n->rma);
		took += found;
		*ret_all = !n->polled || (!found && looks);
	}
	return took;
}

/* The service: something may have come. timed: nobody waits, but it was long
 * enough. */
static void look_at(struct ofip_net *n, bool timed)
{
	bool busy = taken_by_others(n), all;
	bool agreed = n->polled && ofip_doze_agreed(n);
	int took;

	atomic_store(&n->dozes, false);
	atomic_store(&n->requested, false);
	took = look(n, &all);
	if (n->polled && atomic_exchange(&n->refused, false))
		retry(n);
	taken_by_others(n);
	if (agreed && all && may_doze(n))
		return;
	if (n->polled)
		ofip_doze_ask(n, !took && !busy);
	if (atomic_load(&n->rma.armed) || (timed && !busy && !n->polled))
		request_now(n);
	else if (timed || !n->due)
		look_later(n, busy);
}

static void on_received(struct exi_rma_event *e)
{
	look_at(exi_container(e, struct ofip_net, on_received), false);
}

static void on_sent(struct exi_rma_event *e)
{
	look_at(exi_container(e, struct ofip_net, on_sent), false);
}

static void on_poke(struct exi_rma_event *e)
{
	struct ofip_net *n = exi_container(e, struct ofip_net, on_poke);
	eventfd_t times;

	eventfd_read(n->poke, &times);
	look_at(n, true);
}

/* Before the service sleeps on what libfabric's descriptors tell. */
int ofip_nets_arm(void)
{
	struct exi_list *pos;
	int ret = 0;

	exi_list_for_each (pos, &nets) {
		struct ofip_net *n = exi_container(pos, struct ofip_net, node);

		/* First: what connects here is to be watched. */
		if (n->eq)
			n->on_eq.call(&n->on_eq);
		if (!n->polled && atomic_load(&n->requested) && !watch_net(n))
			ret = -EBUSY;
		see(n);
	}
	return ret;
}

/* --- the connection manager --------------------------------------------- */

static struct ofip_link *link_with(struct ofip_net *n, const struct fid *ep)
{
	for (unsigned int i = 0; i < n->slots; i++)
		if (n->slot[i].link && n->slot[i].link->ep &&
		    &n->slot[i].link->ep->fid == ep)
			return n->slot[i].link;
	return NULL;
}

static void eq_error(struct ofip_net *n)
{
	struct fi_eq_err_entry e = { 0 };
	struct ofip_link *l;

	if (fi_eq_readerr(n->eq, &e, 0) < 0)
		return;
	l = link_with(n, e.fid);
	if (l)
		exi_rma_meet_lost(&l->rma, EXS_X_REASON_PEER_LOST,
				  fi_strerror(e.err));
}

static bool eq_event(struct ofip_net *n)
{
	unsigned char bytes[sizeof(struct fi_eq_cm_entry) + 64];
	struct fi_eq_cm_entry *e = (struct fi_eq_cm_entry *)bytes;
	struct ofip_link *l;
	uint32_t event;
	ssize_t got = fi_eq_read(n->eq, &event, bytes, sizeof(bytes), 0);

	if (got == -FI_EAVAIL) {
		eq_error(n);
		return true;
	}
	if (got < (ssize_t)sizeof(*e))
		return false;
	if (event == FI_CONNREQ) {
		ofip_meet_connected_by(n, e->info, e->data,
				       (size_t)got - sizeof(*e));
		return true;
	}
	l = link_with(n, e->fid);
	if (l && event == FI_CONNECTED)
		ofip_meet_connected(l);
	else if (l && event == FI_SHUTDOWN)
		exi_rma_meet_lost(&l->rma, EXS_X_REASON_PEER_LOST,
				  "the other end left");
	return true;
}

static void on_eq(struct exi_rma_event *e)
{
	struct ofip_net *n = exi_container(e, struct ofip_net, on_eq);
	struct fid *eq = &n->eq->fid;

	/* Else the descriptor stays readable. */
	for (int i = 0; i < TRIES; i++) {
		while (eq_event(n))
			;
		if (fi_trywait(n->fabric, &eq, 1) != -FI_EAGAIN)
			break;
	}
}

/* --- making them -------------------------------------------------------- */

static void close_fid(struct fid *f)
{
	if (f)
		fi_close(f);
}

static void close_sets(struct ofip_net *n)
{
	exi_rma_host->fd_close(n->received_fd);
	exi_rma_host->fd_close(n->sent_fd);
	n->received_fd = n->sent_fd = -1;
}

#define BUFFERS	      (EXI_RMA_CREDITS * sizeof(struct ofip_buffer))
#define CLOSE(object) close_fid((object) ? &(object)->fid : NULL)

static void destroy(struct ofip_net *n)
{
	struct exi_list *pos, *tmp;

	exi_rma_net_fini(&n->rma);
	unwatch(n->eq_fd);
	unwatch(n->received_fd);
	unwatch(n->sent_fd);
	unwatch(n->poke);
	exi_rma_host->fd_close(n->poke);
	CLOSE(n->pep);
	CLOSE(n->ep);
	for (unsigned int i = 0; i < n->slots; i++)
		CLOSE(n->slot[i].mr);
	CLOSE(n->received);
	CLOSE(n->sent);
	if (n->few)
		close_sets(n);
	CLOSE(n->av);
	exi_list_for_each_safe (pos, tmp, &n->peers)
		free(exi_container(pos, struct ofip_peer, node));
	CLOSE(n->eq);
	CLOSE(n->domain);
	CLOSE(n->fabric);
	for (unsigned int i = 0; i < n->slots; i++) {
		if (n->slot[i].buffers)
			munmap(n->slot[i].buffers, BUFFERS);
		free(n->slot[i].ops);
	}
	fi_freeinfo(n->info);
	free(n);
}

/* Libfabric tells what it waits for itself, and then asks that by poll(2), which is
 * quicker than an epoll set of its own is, for a few connections. False: it does
 * not. */
static bool make_few(struct ofip_net *n)
{
	struct fi_cq_attr attr = { .size = OFIP_FEW * EXI_RMA_CREDITS * 2,
				   .format = FI_CQ_FORMAT_DATA,
				   .wait_obj = FI_WAIT_POLLFD };
	struct ofip_waits w;

	if (n->rdm || ofip_hardware(n->info))
		return false;
	n->received_fd = exi_rma_host->fd_keep(epoll_create1(EPOLL_CLOEXEC));
	n->sent_fd = exi_rma_host->fd_keep(epoll_create1(EPOLL_CLOEXEC));
	if (n->received_fd >= 0 && n->sent_fd >= 0 &&
	    !fi_cq_open(n->domain, &attr, &n->received, NULL)) {
		attr.size = OFIP_FEW * EXI_RMA_SEND_DEPTH;
		if (!fi_cq_open(n->domain, &attr, &n->sent, NULL) &&
		    !ask_waits(n, &w)) {
			n->slots = OFIP_FEW;
			return true;
		}
	}
	CLOSE(n->received);
	CLOSE(n->sent);
	n->received = n->sent = NULL;
	close_sets(n);
	return false;
}

static int make_cq(struct ofip_net *n, size_t size, struct fid_cq **ret,
		   int *ret_fd)
{
	struct fi_cq_attr attr = { .size = size,
				   .format = FI_CQ_FORMAT_DATA,
				   .wait_obj = FI_WAIT_FD };
	int err = n->polled ? -FI_ENOSYS
			    : fi_cq_open(n->domain, &attr, ret, NULL);

	if (!err)
		return fi_control(&(*ret)->fid, FI_GETWAIT, ret_fd);
	if (err != -FI_ENOSYS && err != -FI_EINVAL)
		return err;
	n->polled = true;
	attr.wait_obj = FI_WAIT_NONE;
	return fi_cq_open(n->domain, &attr, ret, NULL);
}

/* MSG: events of the connection manager, and where others connect to. */
static int make_pep(struct ofip_net *n)
{
	struct fi_eq_attr attr = { .size = 256, .wait_obj = FI_WAIT_FD };
	size_t len = sizeof(n->name);
	int err = fi_eq_open(n->fabric, &attr, &n->eq, NULL);

	if (!err)
		err = fi_control(&n->eq->fid, FI_GETWAIT, &n->eq_fd);
	if (!err)
		err = fi_passive_ep(n->fabric, n->info, &n->pep, NULL);
	if (!err)
		err = fi_pep_bind(n->pep, &n->eq->fid, 0);
	if (!err)
		err = fi_listen(n->pep);
	if (!err)
		err = fi_getname(&n->pep->fid, n->name, &len);
	n->name_len = (uint16_t)len;
	return err ? err : exi_rma_watch(n->eq_fd, &n->on_eq);
}

/* RDM: the one endpoint of all its connections. */
static int make_ep(struct ofip_net *n)
{
	struct fi_av_attr attr = { .type = n->info->domain_attr->av_type };
	size_t len = sizeof(n->name);
	int err;

	if (attr.type == FI_AV_UNSPEC)
		attr.type = FI_AV_TABLE;
	err = fi_av_open(n->domain, &attr, &n->av, NULL);
	if (!err)
		err = fi_endpoint(n->domain, n->info, &n->ep, NULL);
	if (!err && n->shm)
		err = ofip_shm_name(n->ep);
	if (!err)
		err = fi_ep_bind(n->ep, &n->av->fid, 0);
	if (!err)
		err = fi_ep_bind(n->ep, &n->sent->fid,
				 FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
	if (!err)
		err = fi_ep_bind(n->ep, &n->received->fid, FI_RECV);
	if (!err)
		err = fi_enable(n->ep);
	if (!err)
		err = fi_getname(&n->ep->fid, n->name, &len);
	n->name_len = (uint16_t)len;
	return err;
}

/* Without descriptors of libfabric's: by which a thread wakes the service. */
static int make_poke(struct ofip_net *n)
{
	n->poke = exi_rma_host->fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	return n->poke < 0 ? -EMFILE : exi_rma_watch(n->poke, &n->on_poke);
}

/* What comes in a message tells credits, which are messages of their own where
 * all that comes is written. A message that is injected costs no more than a
 * write, where both are taken in order. */
static uint32_t eager(const struct ofip_net *n)
{
	size_t inject = n->info->tx_attr->inject_size;
	size_t head = sizeof(struct exi_rma_msg);

	if (n->rma.notes)
		return EXI_RMA_EAGER;
	if (n->rdm || !(n->info->tx_attr->msg_order & FI_ORDER_WAS) ||
	    inject <= head)
		return 0;
	return inject - head < EXI_RMA_EAGER ? (uint32_t)(inject - head)
					     : EXI_RMA_EAGER;
}

static int fill(struct ofip_net *n, bool few)
{
	const struct fi_info *i = n->info;
	int err = fi_fabric(i->fabric_attr, &n->fabric, NULL);

	n->rdm = i->ep_attr->type == FI_EP_RDM;
	n->rma.lingers = n->rdm;
	n->shm = ofip_shm(i);
	n->slots = OFIP_SLOTS;
	if (n->rdm && i->rx_attr->size / EXI_RMA_CREDITS < n->slots)
		n->slots = (unsigned int)(i->rx_attr->size / EXI_RMA_CREDITS);
	/* Each message may come with a write, and its queue of both is as long. */
	if (n->shm)
		n->slots = n->slots > 3 ? n->slots / 2 - 1 : 1;
	n->later = ofip_later(i);
	if (!n->later)
		n->rma.inline_max = (unsigned int)i->tx_attr->inject_size;
	n->rma.write_max = i->ep_attr->max_msg_size < EXI_STREAM_LEN_MAX
				   ? (uint32_t)i->ep_attr->max_msg_size
				   : EXI_STREAM_LEN_MAX;
	/* A note names its link, unless the endpoint does. */
	n->rma.notes = n->shm || (i->domain_attr->cq_data_size < 8 &&
				  (n->rdm || !(i->mode & FI_RX_CQ_DATA)));
	n->rma.eager = eager(n);
	if (!ofip_hardware(i))
		n->rma.piece_max = SOFT_PIECE_MAX;
	if (!err)
		err = fi_domain(n->fabric, n->info, &n->domain, NULL);
	if (!err)
		n->few = few && make_few(n);
	if (!err && !n->few)
		err = make_cq(n, n->slots * EXI_RMA_CREDITS * 2, &n->received,
			      &n->received_fd);
	if (!err && !n->few)
		err = make_cq(n, n->slots * EXI_RMA_SEND_DEPTH, &n->sent,
			      &n->sent_fd);
	if (!err && n->polled)
		err = make_poke(n);
	if (!err)
		err = n->rdm ? make_ep(n) : make_pep(n);
	return err;
}

static int make(struct fi_info *info, const uint8_t at[16], bool few,
		struct ofip_net **ret)
{
	struct ofip_net *n = calloc(1, sizeof(*n));
	int err;

	if (!n) {
		fi_freeinfo(info);
		return -ENOMEM;
	}
	exi_rma_net_init(&n->rma);
	exi_list_init(&n->node);
	exi_list_init(&n->peers);
	n->info = info;
	memcpy(n->at, at, sizeof(n->at));
	n->eq_fd = n->received_fd = n->sent_fd = n->poke = -1;
	n->on_eq.call = on_eq;
	n->on_poke.call = on_poke;
	n->on_received.call = on_received;
	n->on_sent.call = on_sent;
	pthread_mutex_init(&n->reap, NULL);
	err = fill(n, few);
	if (err) {
		destroy(n);
		return err;
	}
	exi_list_add_tail(&nets, &n->node);
	*ret = n;
	atomic_store(&n->requested, true);
	request(n);
	return 0;
}

static int free_slot(const struct ofip_net *n)
{
	for (unsigned int i = 0; i < n->slots; i++)
		if (!n->slot[i].link && n->slot[i].done == n->slot[i].posted)
			return (int)i;
	return -1;
}

static int post_buffers(struct ofip_net *n, struct ofip_slot *s)
{
	ssize_t err = 0;

	for (unsigned int i = 0; i < EXI_RMA_CREDITS && !err; i++)
		err = post_buffer(n, &s->buffers[i]);
	return (int)err;
}

static int slot_buffers(struct ofip_net *n, unsigned int slot)
{
	struct ofip_slot *s = &n->slot[slot];
	int err = 0;

	if (s->buffers)
		return 0;
	s->ops = calloc(EXI_RMA_SEND_DEPTH, sizeof(*s->ops));
	s->buffers = s->ops ? exi_rma_map(BUFFERS) : NULL;
	if (!s->buffers) {
		free(s->ops);
		s->ops = NULL;
		return -ENOMEM;
	}
	for (unsigned int i = 0; i < EXI_RMA_CREDITS; i++)
		s->buffers[i].slot = (uint16_t)slot;
	if (n->info->domain_attr->mr_mode & FI_MR_LOCAL)
		err = fi_mr_reg(n->domain, s->buffers, BUFFERS, FI_RECV, 0, 0,
				0, &s->mr, NULL);
	if (!err && n->rdm)
		err = post_buffers(n, s);
	return err;
}

static int join(struct ofip_net *n, struct ofip_link *l, unsigned int slot)
{
	struct ofip_slot *s = &n->slot[slot];
	int err = slot_buffers(n, slot);

	if (err)
		return err;
	/* Which slot, and what a stranger would have to guess. */
	do {
		if (getrandom(&s->name, sizeof(s->name), 0) != sizeof(s->name))
			return -EIO;
		s->name = s->name / OFIP_SLOTS * OFIP_SLOTS + slot;
	} while (!s->name);
	for (unsigned int i = 0; i < EXI_RMA_SEND_DEPTH; i++)
		s->ops[i].over = false;
	s->done = s->posted = 0;
	s->link = l;
	l->slot = slot;
	l->ep = n->ep;
	l->rma.net = &n->rma;
	n->links++;
	n->idle = 0;
	return 0;
}

/* One that is open here is what libfabric would find again. *ret_few: there is one
 * for few, which is full or is it. */
static struct ofip_net *net_for(const struct sockaddr *at,
				const struct sockaddr *peer, int *ret_slot,
				bool *ret_few)
{
	struct exi_list *pos;
	uint8_t ip[16];
	int slot;

	exi_rma_from_sockaddr(at, ip);
	exi_list_for_each (pos, &nets) {
		struct ofip_net *n = exi_container(pos, struct ofip_net, node);

		if (memcmp(n->at, ip, sizeof(ip)) ||
		    !ofip_reaches(n->info, at, peer))
			continue;
		*ret_few = *ret_few || n->few;
		slot = n->spoiled ? -1 : free_slot(n);
		if (slot < 0)
			continue;
		*ret_slot = slot;
		return n;
	}
	return NULL;
}

/* What the error of libfabric does not tell of a provider on top of another. */
static const char *advice(bool layered, int err)
{
	return layered && (err == -FI_EINVAL || err == -FI_ENOMEM)
		       ? "; perhaps its queues, for FI_UNIVERSE_SIZE peers "
			 "(256), are too long for the device"
		       : "";
}

static int open_net(const struct sockaddr *at, const struct sockaddr *peer,
		    bool few, struct ofip_net **ret, char *why, size_t len)
{
	struct fi_info *info;
	uint8_t ip[16];
	bool layered;
	int err = ofip_info(at, peer, &info, why, len);

	if (err)
		return err;
	exi_rma_from_sockaddr(at, ip);
	snprintf(why, len, "%s does not open", info->fabric_attr->prov_name);
	layered = strstr(info->fabric_attr->prov_name, "ofi_rxm");
	exi_rma_host->fds_begin();
	err = make(info, ip, few, ret);
	exi_rma_host->fds_end();
	if (err)
		snprintf(why + strlen(why), len - strlen(why), ": %s%s",
			 fi_strerror(-err), advice(layered, err));
	return err;
}

int ofip_net_join(struct ofip_link *l, const struct sockaddr *at,
		  const struct sockaddr *peer)
{
	char why[EXI_RMA_WHY];
	struct ofip_net *n;
	bool few = false;
	int slot = 0, err = 0;

	pthread_mutex_lock(&nets_lock);
	n = net_for(at, peer, &slot, &few);
	if (!n)
		err = open_net(at, peer, !few, &n, why, sizeof(why));
	if (!err) {
		hold(n);
		err = join(n, l, (unsigned int)slot);
		let_go(n);
		if (n->polled)
			poll_in(n, 0);
		if (err)
			snprintf(why, sizeof(why), "no more connections: %s",
				 fi_strerror(-err));
	}
	pthread_mutex_unlock(&nets_lock);
	if (err)
		exi_rma_meet_complain(why);
	return err;
}

void ofip_net_wake(struct ofip_net *n)
{
	look_at(n, true);
}

int ofip_net_endpoint(struct ofip_link *l, struct fi_info *info)
{
	struct ofip_net *n = ofip_net(l->rma.net);
	int err = fi_endpoint(n->domain, info, &l->ep, NULL);

	if (!err)
		err = fi_ep_bind(l->ep, &n->eq->fid, 0);
	if (!err)
		err = fi_ep_bind(l->ep, &n->sent->fid,
				 FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
	if (!err)
		err = fi_ep_bind(l->ep, &n->received->fid, FI_RECV);
	if (!err)
		err = fi_enable(l->ep);
	return err ? err : post_buffers(n, &n->slot[l->slot]);
}

void ofip_net_leave(struct ofip_link *l)
{
	struct ofip_net *n;
	struct ofip_slot *s;

	if (!l->rma.net)
		return;
	n = ofip_net(l->rma.net);
	s = &n->slot[l->slot];
	exi_rma_lock(&n->rma.lock);
	if (s->link != l) /* it left before */
		goto unlock;
	ofip_net_take(&n->rma);
	exi_rma_link_left(&l->rma);
	pthread_mutex_lock(&n->reap);
	s->link = NULL;
	s->posted = l->rma.posted;
	if (!n->rdm && l->ep) {
		fi_close(&l->ep->fid);
		/* What it gives back is taken before the slot is used again. */
		reap_locked(n);
		s->done = s->posted;
	}
	l->ep = NULL;
	pthread_mutex_unlock(&n->reap);
	ofip_net_take(&n->rma);
unlock:
	exi_rma_unlock(&n->rma.lock);
}

/* --- the other ends of rdm ---------------------------------------------- */

/* Once for all its links: where an address is known twice, rxm ends what goes there
 * when it is forgotten once. */
static struct ofip_peer *find_peer(struct ofip_net *n, const void *name)
{
	struct exi_list *pos;

	exi_list_for_each (pos, &n->peers) {
		struct ofip_peer *p =
			exi_container(pos, struct ofip_peer, node);

		if (!memcmp(p->name, name, n->name_len))
			return p;
	}
	return NULL;
}

/* Shm keeps a name that it could not map, and takes it for mapped the next time; and
 * with the first whom it cannot write to it gives up writing to anybody. */
static int insert(struct ofip_net *n, const void *name, fi_addr_t *ret)
{
	bool ok;

	if (n->shm)
		ofip_shm_write_failed(); /* another */
	ok = fi_av_insert(n->av, name, 1, ret, 0, NULL) == 1;
	if (n->shm && ofip_shm_write_failed())
		ok = false;
	n->spoiled = n->spoiled || (n->shm && !ok);
	return ok ? 0 : -EPROTO;
}

static int make_peer(struct ofip_net *n, const void *name,
		     struct ofip_peer **ret)
{
	struct ofip_peer *p;
	int err = n->shm ? ofip_shm_reach(name, n->name_len) : 0;

	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	memcpy(p->name, name, n->name_len);
	err = insert(n, name, &p->at);
	if (err) {
		free(p);
		return err;
	}
	exi_list_add_tail(&n->peers, &p->node);
	*ret = p;
	return 0;
}

int ofip_net_know(struct ofip_link *l, const void *name)
{
	struct ofip_net *n = ofip_net(l->rma.net);
	struct ofip_peer *p = find_peer(n, name);
	int err = p ? 0 : make_peer(n, name, &p);

	if (err)
		return err;
	p->links++;
	p->idle = 0;
	l->peer = p;
	return 0;
}

static void leave_peer(struct ofip_link *l)
{
	struct ofip_peer *p = l->peer;

	if (!p)
		return;
	l->peer = NULL;
	if (--p->links)
		return;
	p->idle = exi_now_ns() + PEER_NS;
	exi_rma_look_at(p->idle);
}

static void forget_peer(struct ofip_net *n, struct ofip_peer *p)
{
	fi_av_remove(n->av, &p->at, 1, 0);
	exi_list_del(&p->node);
	free(p);
}

static void look_at_peers(struct ofip_net *n, uint64_t now)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &n->peers) {
		struct ofip_peer *p =
			exi_container(pos, struct ofip_peer, node);

		if (p->idle && p->idle <= now)
			forget_peer(n, p);
		else if (p->idle)
			exi_rma_look_at(p->idle);
	}
}

/* --- the end ------------------------------------------------------------ */

void ofip_net_quit(struct exi_rma_link *l)
{
	struct ofip_net *n = ofip_net(l->net);

	leave_peer(ofip_link(l));
	if (--n->links)
		return;
	n->idle =
		exi_now_ns() + (exi_rma_host->fds_short() ? SHORT_NS : IDLE_NS);
	exi_rma_look_at(n->idle);
}

static void look_again(struct ofip_net *n, uint64_t now)
{
	look_at_peers(n, now);
	if (n->due && n->due <= now)
		look_at(n, true);
	else if (n->due)
		exi_rma_look_at(n->due);
	if (n->idle > now)
		exi_rma_look_at(n->idle);
}

void ofip_nets_look(uint64_t now)
{
	struct exi_list *pos, *tmp;

	pthread_mutex_lock(&nets_lock);
	exi_list_for_each_safe (pos, tmp, &nets) {
		struct ofip_net *n = exi_container(pos, struct ofip_net, node);

		if (n->idle && n->idle <= now) {
			exi_list_del(&n->node);
			destroy(n);
		} else {
			look_again(n, now);
		}
	}
	pthread_mutex_unlock(&nets_lock);
}

void ofip_net_links(struct exi_rma_net *net, void (*f)(struct exi_rma_link *l))
{
	struct ofip_net *n = ofip_net(net);

	exi_rma_lock(&n->rma.lock);
	for (unsigned int i = 0; i < n->slots; i++)
		if (n->slot[i].link)
			f(&n->slot[i].link->rma);
	exi_rma_unlock(&n->rma.lock);
}

void ofip_nets_each(void (*f)(struct exi_rma_net *n))
{
	struct exi_list *pos;

	pthread_mutex_lock(&nets_lock);
	exi_list_for_each (pos, &nets)
		f(&exi_container(pos, struct ofip_net, node)->rma);
	pthread_mutex_unlock(&nets_lock);
}

/* Single-threaded. */
void ofip_nets_forked(void)
{
	struct exi_list *pos;

	exi_list_for_each (pos, &nets) {
		struct ofip_net *n = exi_container(pos, struct ofip_net, node);

		if (n->few)
			close_sets(n);
		exi_rma_host->fd_close(n->poke);
		for (unsigned int i = 0; i < n->slots; i++) {
			if (!n->slot[i].link)
				continue;
			exi_rma_host->fd_close(n->slot[i].link->rma.pair);
			exi_rma_host->fd_close(n->slot[i].link->sock);
		}
	}
}
