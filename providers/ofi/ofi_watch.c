/* SPDX-License-Identifier: BSD-2-Clause */
/* When a net is looked at: on events of its queues' descriptors, or by time. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "core/base/list.h"
#include "core/base/util.h"
#include "core/rma/link.h"
#include "core/rma/lock.h"
#include "core/rma/post.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"

/* NOW_AND_THEN_NS is how often a net is looked at while no thread sleeps:
 * libfabric does not report what is urgent. */
#define NOW_AND_THEN_NS 1000000u
/* BUSY_NS is the same while another thread looks all the time: the two hinder
 * each other, and a look cost that thread some 100 us. */
#define BUSY_NS 4000000u

/* A provider without descriptors is looked at this often while a thread waits,
 * and now and then while none does. */
#define POLL_NS 50000u

void ofip_net_poll_in(struct ofip_net *n, uint64_t ns)
{
	n->due = exi_now_ns() + ns;
	exi_rma_tick_at(n->due);
}

void ofip_net_hold(struct ofip_net *n)
{
	exi_rma_lock(&n->rma.lock);
	pthread_mutex_lock(&n->reap);
}

void ofip_net_let_go(struct ofip_net *n)
{
	pthread_mutex_unlock(&n->reap);
	exi_rma_unlock(&n->rma.lock);
}

int ofip_net_ask_waits(struct ofip_net *n, struct ofip_waits *ret)
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

/* Closed descriptors have left the sets, or their numbers are another's
 * there. */
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

/* Whether the descriptor is a connection's: both queues wait for it. */
static bool is_connection(const struct ofip_waits *w, int fd)
{
	unsigned int times = 0;

	for (size_t i = 0; i < w->n; i++)
		times += w->fd[i].fd == fd;
	return times > 1;
}

/* What arrives is reported until it is taken. Reported once are: that a queue
 * has something, which the look before the sleep finds, after which some
 * descriptors stay readable; and that there is room, whether libfabric waits
 * for it or not, for any thread may make it wait and the list does not show
 * that. */
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
	int err = ofip_net_ask_waits(n, &now);

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

/* What is reported once was reported. */
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

/* Libfabric has nothing that its descriptors do not report, and the sets have
 * them. */
static bool may_sleep(struct ofip_net *n)
{
	struct fid *fids[2] = { &n->received->fid, &n->sent->fid };
	bool changed = false, ret;

	if (!n->few)
		return !fi_trywait(n->fabric, fids, 2);
	ofip_net_hold(n);
	drain(n);
	ret = !fi_trywait(n->fabric, fids, 2);
	if (ret && fill_sets(n, &changed))
		atomic_store(&n->blind, true);
	ofip_net_let_go(n);
	return ret && !changed;
}

/* The descriptors report what comes from here on; what came before is taken.
 * False: it keeps coming. */
static bool watch_net(struct ofip_net *n)
{
	for (int i = 0; i < OFIP_TRIES; i++) {
		if (may_sleep(n)) {
			watch_fds(n);
			return true;
		}
		ofip_net_reap(&n->rma);
		exi_rma_net_poll(&n->rma);
	}
	return false;
}

void ofip_net_watch(struct ofip_net *n)
{
	if (n->polled)
		ofip_net_poll_in(n, POLL_NS);
	else if (!watch_net(n)) /* the service will look, at once */
		watch_fds(n);
}

/* The service lock is held. */
static void see(struct ofip_net *n)
{
	if (atomic_exchange(&n->blind, false))
		ofip_net_poll_in(n, POLL_NS);
}

void ofip_net_request(struct exi_rma_net *net)
{
	struct ofip_net *n = ofip_net(net);

	/* Messages from here on ring, and earlier ones are looked for next. */
	if (atomic_load(&n->dozes) || atomic_exchange(&n->requested, true))
		return;
	if (!n->polled)
		ofip_net_watch(n);
	if (!n->polled && !atomic_load(&n->blind))
		return;
	pthread_mutex_lock(&exi_rma_service_lock);
	if (n->polled && !atomic_load(&n->dozes))
		ofip_net_watch(n);
	see(n);
	pthread_mutex_unlock(&exi_rma_service_lock);
}

void ofip_net_unwatch(int fd)
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
		ofip_net_watch(n);
}

/* Looks later: no thread waits. A thread that begins to wait meanwhile, and was
 * watched for, is seen by the look at armed; one that begins after that finds
 * that nothing is requested. */
static void look_later(struct ofip_net *n, bool busy)
{
	ofip_net_unwatch(n->received_fd);
	ofip_net_unwatch(n->sent_fd);
	ofip_net_hold(n);
	empty_sets(n);
	ofip_net_let_go(n);
	atomic_store(&n->requested, false);
	if (atomic_load(&n->rma.armed))
		request_now(n);
	else
		ofip_net_poll_in(n, busy ? BUSY_NS : NOW_AND_THEN_NS);
}

/* Whether another thread took what came, since this was asked last. */
static bool taken_by_others(struct ofip_net *n)
{
	unsigned int takes = atomic_load(&n->takes);
	bool ret = takes != n->takes_seen;

	n->takes_seen = takes;
	return ret;
}

/* Whether the net may doze. A thread that posts after the second look, by the
 * post lock, finds that the net dozes. */
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

/* No descriptor reports when the provider would take it. */
static void retry(struct ofip_net *n)
{
	for (unsigned int i = 0; i < n->slots; i++)
		if (n->slot[i].link)
			exi_rma_link_retry(&n->slot[i].link->rma);
}

/* Takes what came. *ret_all: there was no more. Without descriptors, it looks
 * until there is nothing, since a thread that finds a queue empty makes
 * libfabric fetch what came; and once more, since another thread may just be
 * fetching it, to read the other queue. */
static int look(struct ofip_net *n, bool *ret_all)
{
	int took = 0, found;

	*ret_all = false;
	for (int looks = 0; looks < OFIP_TRIES && !*ret_all; looks++) {
		ofip_net_reap(&n->rma);
		found = exi_rma_net_poll(&n->rma);
		took += found;
		*ret_all = !n->polled || (!found && looks);
	}
	return took;
}

void ofip_net_look_at(struct ofip_net *n, bool timed)
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

void ofip_net_on_received(struct exi_rma_event *e)
{
	ofip_net_look_at(exi_container(e, struct ofip_net, on_received), false);
}

void ofip_net_on_sent(struct exi_rma_event *e)
{
	ofip_net_look_at(exi_container(e, struct ofip_net, on_sent), false);
}

void ofip_net_on_poke(struct exi_rma_event *e)
{
	struct ofip_net *n = exi_container(e, struct ofip_net, on_poke);
	eventfd_t times;

	eventfd_read(n->poke, &times);
	ofip_net_look_at(n, true);
}

/* Called before the service sleeps on libfabric's descriptors. */
int ofip_nets_arm(void)
{
	struct exi_list *pos;
	int ret = 0;

	exi_list_for_each (pos, &ofip_nets) {
		struct ofip_net *n = exi_container(pos, struct ofip_net, node);

		/* The event queue comes first: an endpoint that connects here
		 * must be watched. */
		if (n->eq)
			n->on_eq.call(&n->on_eq);
		if (!n->polled && atomic_load(&n->requested) && !watch_net(n))
			ret = -EBUSY;
		see(n);
	}
	return ret;
}

void ofip_net_wake(struct ofip_net *n)
{
	ofip_net_look_at(n, true);
}
