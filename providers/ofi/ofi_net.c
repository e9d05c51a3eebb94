/* SPDX-License-Identifier: BSD-2-Clause */
/* Nets, which connections share: a domain of libfabric, its queues, and receive
 * buffers. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/exs_ext.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "core/base/list.h"
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

/* A software provider sends while we call it, so no other piece is copied
 * meanwhile; two pieces fit the largest ring. */
#define SOFT_PIECE_MAX (EXI_RMA_RING_MAX / 2)

/* IDLE_NS is how long a net without links stays: a program that makes one
 * connection after another does not open a domain for each. */
#define IDLE_NS 100000000u
/* SHORT_NS is that time where the program needs what the net holds. */
#define SHORT_NS 10000000u
/* PEER_NS is how long the endpoint of another process stays without links, over
 * rdm: it may still have to report something about the last. */
#define PEER_NS 1000000000u

struct exi_list ofip_nets = EXI_LIST_INIT(ofip_nets);
static pthread_mutex_t nets_lock = PTHREAD_MUTEX_INITIALIZER;

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

	/* The descriptor stays readable until fi_trywait() has agreed. */
	for (int i = 0; i < OFIP_TRIES; i++) {
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
	ofip_net_unwatch(n->eq_fd);
	ofip_net_unwatch(n->received_fd);
	ofip_net_unwatch(n->sent_fd);
	ofip_net_unwatch(n->poke);
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

/* Opens queues for which libfabric lists the descriptors that it waits for, and
 * asks them itself by poll(2), which for a few connections is quicker than an
 * epoll set of its own. False: it does not. */
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
		    !ofip_net_ask_waits(n, &w)) {
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

/* Makes the eventfd by which a thread wakes the service, for a net without
 * descriptors of libfabric's. */
static int make_poke(struct ofip_net *n)
{
	n->poke = exi_rma_host->fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	return n->poke < 0 ? -EMFILE : exi_rma_watch(n->poke, &n->on_poke);
}

/* Bytes in a message carry credits along, which are messages of their own where
 * all bytes are written. A message that is injected costs no more than a write,
 * where both are taken in order. */
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
	/* Each message may come with a write, and its queue of both is as
	 * long. */
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
	n->on_poke.call = ofip_net_on_poke;
	n->on_received.call = ofip_net_on_received;
	n->on_sent.call = ofip_net_on_sent;
	pthread_mutex_init(&n->reap, NULL);
	err = fill(n, few);
	if (err) {
		destroy(n);
		return err;
	}
	exi_list_add_tail(&ofip_nets, &n->node);
	*ret = n;
	atomic_store(&n->requested, true);
	ofip_net_watch(n);
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
		err = ofip_post_buffer(n, &s->buffers[i]);
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

/* The open net that libfabric would find again, with a free slot; null.
 * *ret_few: there is a net for few, which is full or the one returned. */
static struct ofip_net *net_for(const struct sockaddr *at,
				const struct sockaddr *peer, int *ret_slot,
				bool *ret_few)
{
	struct exi_list *pos;
	uint8_t ip[16];
	int slot;

	exi_rma_from_sockaddr(at, ip);
	exi_list_for_each (pos, &ofip_nets) {
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

/* What libfabric's error does not show for a provider on top of another. */
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
	snprintf(why, len, "%s cannot be opened", info->fabric_attr->prov_name);
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
		ofip_net_hold(n);
		err = join(n, l, (unsigned int)slot);
		ofip_net_let_go(n);
		if (n->polled)
			ofip_net_poll_in(n, 0);
		if (err)
			snprintf(why, sizeof(why), "no more connections: %s",
				 fi_strerror(-err));
	}
	pthread_mutex_unlock(&nets_lock);
	if (err)
		exi_rma_meet_complain(why);
	return err;
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
	if (s->link != l) /* the link left before */
		goto unlock;
	ofip_net_take(&n->rma);
	exi_rma_link_forget(&l->rma);
	pthread_mutex_lock(&n->reap);
	s->link = NULL;
	s->posted = l->rma.posted;
	if (!n->rdm && l->ep) {
		fi_close(&l->ep->fid);
		/* Requests that it gives back are taken before the slot is used
		 * again. */
		ofip_net_reap_locked(n);
		s->done = s->posted;
	}
	l->ep = NULL;
	pthread_mutex_unlock(&n->reap);
	ofip_net_take(&n->rma);
unlock:
	exi_rma_unlock(&n->rma.lock);
}

/* --- the other ends of rdm ---------------------------------------------- */

/* The peer of that name. A peer is inserted once for all its links: if an
 * address is inserted twice, rxm ends all traffic to it when it is removed
 * once. */
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

/* Shm keeps a name that it could not map, and takes it for mapped the next
 * time; and after the first endpoint that it cannot write to, it gives up
 * writing to any. */
static int insert(struct ofip_net *n, const void *name, fi_addr_t *ret)
{
	bool ok;

	if (n->shm)
		ofip_shm_write_failed(); /* forgets an earlier failure */
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
	exi_rma_tick_at(p->idle);
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
			exi_rma_tick_at(p->idle);
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
	exi_rma_tick_at(n->idle);
}

static void look_again(struct ofip_net *n, uint64_t now)
{
	look_at_peers(n, now);
	if (n->due && n->due <= now)
		ofip_net_look_at(n, true);
	else if (n->due)
		exi_rma_tick_at(n->due);
	if (n->idle > now)
		exi_rma_tick_at(n->idle);
}

void ofip_nets_tick(uint64_t now)
{
	struct exi_list *pos, *tmp;

	pthread_mutex_lock(&nets_lock);
	exi_list_for_each_safe (pos, tmp, &ofip_nets) {
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
	exi_list_for_each (pos, &ofip_nets)
		f(&exi_container(pos, struct ofip_net, node)->rma);
	pthread_mutex_unlock(&nets_lock);
}

/* Single-threaded. */
void ofip_nets_forked(void)
{
	struct exi_list *pos;

	exi_list_for_each (pos, &ofip_nets) {
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
