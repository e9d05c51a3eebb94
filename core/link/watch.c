/* SPDX-License-Identifier: BSD-2-Clause */
/* Who watches a link: the service, threads, or for a while nobody. */
#include "core/link/watch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/meet/begin.h"
#include "core/meet/meet.h"
#include "core/sock/service.h"
#include "core/sock/table.h"

bool exi_watch_rests_locked(const struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	return atomic_load_explicit(&sk->link_rests, memory_order_relaxed);
}

static int watch_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	/* The kernel wakes exclusive waiters in the order they came. */
	exi_service_unwatch(sk->link->fd);
	return exi_service_watch(sk, sk->link->fd, EXI_WATCH_LINK,
				 EPOLLIN | EPOLLEXCLUSIVE);
}

int exi_link_share_locked(struct exi_sock *sk, int (*watch)(int fd, void *arg),
			  void *arg)
{
	struct exi_link *l = sk->link;
	int ret;

	EXI_LOCKED(&sk->link_lock);
	if (!l || l->state != EXI_LINK_UP || l->fd < 0 ||
	    exi_watch_rests_locked(sk))
		return -ENOTCONN;
	ret = watch(l->fd, arg);
	if (ret)
		return ret;
	ret = watch_locked(sk);
	return ret ? ret : l->fd;
}

void exi_watch_leave_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	if (sk->link && sk->link->fd >= 0 && !exi_watch_rests_locked(sk) &&
	    !exi_service_self())
		watch_locked(sk);
}

/* A process without a service thread would not come back to the link. */
static void rest_locked(struct exi_sock *sk, uint64_t now)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	if (!exi_service_runs())
		return;
	exi_trace("descriptor %d: the peer writes to its link without end",
		  atomic_load(&sk->fd));
	atomic_store(&sk->link_rests, true);
	exi_service_unwatch(l->fd);
	l->rest.deadline = now + EXI_WATCH_REST_NS;
	l->rest.sk = sk;
	l->rest.expired = exi_watch_rested;
	exi_service_timed(&l->rest);
}

void exi_watch_loaded_locked(struct exi_sock *sk, unsigned int load)
{
	struct exi_link *l = sk->link;
	uint64_t now;

	EXI_LOCKED(&sk->link_lock);
	/* One doorbell costs no look at the clock. */
	if (exi_likely(load <= 1) || !l || l->state != EXI_LINK_UP ||
	    exi_watch_rests_locked(sk))
		return;
	now = exi_now_ns();
	if (now - l->loaded_since > EXI_WATCH_REST_NS) {
		l->loaded_since = now;
		l->load = 0;
	}
	l->load += load - 1;
	if (l->load > EXI_WATCH_LOAD)
		rest_locked(sk, now);
}

void exi_watch_rested(struct exi_sock *sk)
{
	struct exi_link *l;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (l && exi_watch_rests_locked(sk) &&
	    exi_now_ns() >= atomic_load(&l->rest.deadline)) {
		exi_service_untimed(&l->rest);
		atomic_store(&sk->link_rests, false);
		l->load = 0;
		watch_locked(sk);
		if (exi_ready_met)
			exi_ready_met(sk, true);
	}
	exi_unlock(&sk->link_lock);
}
