/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes connections: listen, accept, connect. */
#include "core/life/open.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cancel.h"
#include "core/base/diag.h"
#include "core/base/feeder.h"
#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/life/close.h"
#include "core/life/hand.h"
#include "core/life/plain.h"
#include "core/link/control.h"
#include "core/link/ending.h"
#include "core/meet/begin.h"
#include "core/meet/bound.h"
#include "core/meet/candidate.h"
#include "core/meet/find.h"
#include "core/meet/handed.h"
#include "core/meet/latent.h"
#include "core/meet/marker.h"
#include "core/meet/pair.h"
#include "core/sock/base.h"
#include "core/sock/names.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "core/transfer/drain.h"
#include "core/transfer/family.h"
#include "core/transfer/multi.h"
#include "core/transfer/op.h"
#include "core/transfer/progress.h"
#include "core/transfer/queue.h"
#include "core/transfer/switch.h"

/* --- beginnings --------------------------------------------------------- */

int exi_listen(int fd, int backlog)
{
	bool fresh = !exi_tcp_is_listening(fd);
	struct exi_sock *sk;

	/* The marker comes before the first connection can. */
	if (exi_base_of(fd))
		exi_marker_hold(fd);
	if (listen(fd, backlog) < 0) {
		int err = errno;

		if (exi_base_of(fd))
			exi_marker_release(fd);
		return -err;
	}
	/* listen(2) itself bound the socket: its name is only known now. */
	/* A second listen() holds the marker once. */
	if (exi_base_of(fd) && exi_sock_get(fd, &sk) == 0) {
		if (sk->role == EXI_ROLE_LISTEN)
			exi_marker_release(fd);
		sk->role = EXI_ROLE_LISTEN;
		exi_stats_note(sk);
		sk->signs = sk->signs || (fresh && sk->base->options_inherited);
		sk->marked = exi_marker_refresh(fd);
	}
	return 0;
}

static int accepted_known(int listener, int fd)
{
	struct exi_sock *l = exi_sock_find(listener), *sk;
	uint32_t no_time = 0;
	int ret;

	/* A connection inherits its listener's kind. */
	if (!l || l->role != EXI_ROLE_LISTEN)
		return fd;
	if (l->base->sign_waits)
		exi_diag_expect(); /* the sign says where the process is */
	if (exi_unlikely(!l->signs) && !l->base->sign_waits)
		l->base->sign(fd); /* it may be older than the sign */
	if (l->base->options_inherited)
		no_time = atomic_load(&l->sh->no_time);
	if (!l->framed && !no_time && exi_latent_begin(fd, EXI_ROLE_ACCEPT))
		return fd;
	if (l->base->sign_waits)
		l->base->sign(fd);
	ret = exi_sock_make(fd, EXI_ROLE_ACCEPT, true, &sk);
	if (ret && l->framed && !l->base->packets) {
		close(fd);
		return ret;
	}
	if (ret)
		return fd;
	/* No other thread knows of it yet. */
	atomic_store_explicit(&sk->framed, l->framed, memory_order_relaxed);
	atomic_store_explicit(&sk->sh->no_time, no_time, memory_order_relaxed);
	sk->counted = true;
	exi_marker_connection();
	exi_link_expect(sk, false);
	return fd;
}

/* Sets up an accepted connection. forked: the count of forks when the accepting
 * call began. Returns its descriptor, or -errno with the descriptor closed: it
 * cannot be used as a stream. */
static int accepted(int listener, int fd, uint32_t forked)
{
	int ret = accepted_known(listener, fd);

	if (ret >= 0)
		exi_hand_born(ret, forked);
	return ret;
}

/* Called before an accept: a connecting process must find the marker, which may
 * have become free, or be missing for a listener that another process made. */
static void mark_listener(int fd)
{
	struct exi_sock *l = exi_sock_find(fd);

	if (!l || l->role != EXI_ROLE_LISTEN) {
		if (!exi_base_of(fd) || !exi_tcp_is_listening(fd) ||
		    exi_sock_get(fd, &l))
			return;
		l->role = EXI_ROLE_LISTEN;
		exi_stats_note(l);
		exi_marker_hold(fd);
	}
	if (!l->marked)
		l->marked = !l->base->ports || exi_marker_refresh(fd);
	/* Again in a forked child, whose listener it is, too. */
	if (l->reached != exi_use_token()) {
		l->reached = exi_use_token();
		exi_marker_reach(fd);
	}
}

/* The kernel counts in ticks, and the first is a part of one. */
#define TICK_NS 10000000u

/* The time at the last tick: exi_now_ns() would cost each accept more, and few
 * ask how long they took. */
static uint64_t tick_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether SO_RCVTIMEO of the listener is over for an accept that began then. */
static bool out_of_time(int fd, uint64_t since)
{
	struct exi_sock *l = exi_sock_find(fd);
	struct timeval t = { 0 };
	socklen_t len = sizeof(t);
	uint64_t ns;

	/* The kernel reports a negative time-out as none. */
	if (l && (atomic_load(&exi_sock_shared(l)->no_time) & (1u << EXI_RX)))
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, &len) < 0)
		return true;
	ns = exi_timeval_ns(&t);
	return ns && exi_now_ns() - since + TICK_NS >= ns;
}

int exi_accept(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	uint64_t since = tick_now();
	uint32_t forked;
	int ret, fl;

	mark_listener(fd);
	for (;;) {
		forked = exi_handed_forked_times();
		exi_cancel_allow();
		ret = accept4(fd, addr, len, flags);
		exi_cancel_forbid();
		if (ret >= 0)
			break;
		if (errno != EAGAIN)
			return -errno;
		fl = fcntl(fd, F_GETFL);
		if (fl < 0 || (fl & O_NONBLOCK) || out_of_time(fd, since))
			return -EAGAIN;
		/* Another thread's accept_now() had the flag set. */
	}
	return accepted(fd, ret, forked);
}

/* accept4(2) that never blocks, whatever the descriptor's flags are: others may
 * have taken the connection. */
static int accept_now(struct exi_op *op)
{
	exs_acceptaddr_t *a = op->addr;
	int fl = fcntl(op->fd, F_GETFL);
	int ret;

	if (fl < 0)
		return -errno;
	if (!(fl & O_NONBLOCK))
		fcntl(op->fd, F_SETFL, fl | O_NONBLOCK);
	ret = accept4(op->fd, a ? a->exs_addr : NULL,
		      a && a->exs_addr ? &a->exs_addrlen : NULL, op->flags);
	if (ret < 0)
		ret = -errno;
	if (!(fl & O_NONBLOCK))
		fcntl(op->fd, F_SETFL, fl);
	return ret;
}

static void connected(struct exi_sock *sk)
{
	sk->role = EXI_ROLE_CONNECT;
	exi_stats_note(sk);
	exi_link_expect(sk, false);
	exi_link_by_kernel(0, 0);
}

int exi_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	struct exi_sock *sk = exi_sock_find(fd);
	int ret;

	exi_cancel_allow();
	ret = connect(fd, to, len) < 0 ? -errno : 0;
	exi_cancel_forbid();

	/* A non-blocking connect in progress is not watched: the rendezvous
	 * begins with the first bytes, when it is done. */
	if (sk && sk->adopted &&
	    (ret == 0 || ret == -EINPROGRESS || ret == -EALREADY ||
	     ret == -EISCONN) &&
	    sk->role == EXI_ROLE_NONE)
		connected(sk);
	return ret;
}

/* Begins one end of a pair. It never meets at once, whatever EXS_UPGRADE says:
 * the process that will have the other end may not have been forked yet. */
static bool begin_end(const struct exi_base *base, int fd, enum exi_role role)
{
	struct exi_sock *sk;

	if (!base->packets && exi_latent_begin(fd, role))
		return true;
	if (exi_sock_make(fd, role, true, &sk))
		return false;
	if (role == EXI_ROLE_ACCEPT) {
		sk->counted = true;
		exi_marker_connection();
	}
	exi_link_expect_later(sk);
	return true;
}

void exi_open_pair(const struct exi_base *base, const int fds[2])
{
	if (begin_end(base, fds[1], EXI_ROLE_ACCEPT) &&
	    begin_end(base, fds[0], EXI_ROLE_CONNECT) &&
	    !(base->sign_waits && exi_latent(fds[1])))
		base->sign(fds[1]);
}

/* --- operations that wait for readiness --------------------------------- */

static bool step_accept(struct exi_op *op)
{
	struct pollfd p = { .fd = op->fd, .events = POLLIN };
	uint32_t forked = exi_handed_forked_times();
	int fd;

	if (poll(&p, 1, 0) == 0)
		return false;
	fd = accept_now(op);
	if (fd == -EAGAIN || fd == -EINTR || fd == -ECONNABORTED)
		return false;
	if (fd >= 0)
		fd = accepted(op->fd, fd, forked);
	op->err = fd < 0 ? -fd : 0;
	op->newfd = fd < 0 ? -1 : fd;
	return true;
}

/* connect(2) without blocking, whatever the descriptor's flags are. */
static int connect_now(struct exi_op *op)
{
	int fl = fcntl(op->fd, F_GETFL);
	int ret;

	if (fl < 0)
		return -errno;
	if (!(fl & O_NONBLOCK))
		fcntl(op->fd, F_SETFL, fl | O_NONBLOCK);
	ret = connect(op->fd, (struct sockaddr *)&op->to, op->to_len) < 0
		      ? -errno
		      : 0;
	if (!(fl & O_NONBLOCK))
		fcntl(op->fd, F_SETFL, fl);
	return ret;
}

/* Gets the result by a second connect(2), not by SO_ERROR: only so the kernel
 * considers it reported, and lets the socket connect again. */
static bool step_connect(struct exi_sock *sk, struct exi_op *op)
{
	struct pollfd p = { .fd = op->fd, .events = POLLOUT };
	int ret;

	if (op->started && poll(&p, 1, 0) == 0)
		return false;
	ret = connect_now(op);
	if (ret == -EINPROGRESS || (op->started && ret == -EALREADY)) {
		op->started = true;
		return false;
	}
	/* Another call got the result first. */
	if (op->started && ret == -EISCONN)
		ret = 0;
	op->err = -ret;
	if (op->err == 0 && sk->adopted)
		op->newfd = 1; /* the caller begins the rendezvous */
	return true;
}

/* The most connections at a time: clients may come as fast as they are
 * accepted, and the service has other work. An event for the rest comes at
 * once. */
#define ACCEPTS 64

/* Serves the operations that are ready; watches for the rest. */
static void serve_locked(struct exi_sock *sk, bool *ret_connected)
{
	uint32_t events = 0;
	struct exi_list *pos, *tmp;
	int fd = atomic_load(&sk->fd), ret;

	EXI_LOCKED(&sk->link_lock);
	exi_list_for_each_safe (pos, tmp, &sk->poll_ops) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);
		bool done = op->type == EXS_EVT_ACCEPT ? step_accept(op)
						       : step_connect(sk, op);

		for (int i = 1; done && op->multi && exi_multi_accepted(op);
		     i++)
			done = i < ACCEPTS && step_accept(op);
		if (!done) {
			events |=
				op->type == EXS_EVT_ACCEPT ? EPOLLIN : EPOLLOUT;
			/* Later accepts wait for the same thing. */
			if (op->type == EXS_EVT_ACCEPT)
				break;
			continue;
		}
		if (op->type == EXS_EVT_CONNECT && op->newfd == 1)
			*ret_connected = true;
		exi_list_del(&op->node);
		exi_op_complete(op);
	}
	if (!events)
		return;
	events |= EPOLLONESHOT;
	ret = sk->poll_events
		      ? exi_service_rewatch(sk, fd, EXI_WATCH_OPS, events)
		      : exi_service_watch(sk, fd, EXI_WATCH_OPS, events);
	if (ret == 0) {
		sk->poll_events = events;
		return;
	}
	while ((pos = exi_list_pop(&sk->poll_ops))) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		op->err = -ret;
		op->newfd = -1;
		exi_op_complete(op);
	}
}

int exi_lifecycle_submit(struct exi_op *op)
{
	bool now_connected = false;
	struct exi_sock *sk;
	int ret = exi_sock_get(op->fd, &sk);

	if (ret)
		return ret;
	if (op->type == EXS_EVT_ACCEPT)
		mark_listener(op->fd);
	exi_lock(&sk->link_lock);
	if (!exi_sock_is(sk, op->fd) || sk->closing) {
		exi_unlock(&sk->link_lock);
		return -EBADF;
	}
	exi_list_add_tail(&sk->poll_ops, &op->node);
	serve_locked(sk, &now_connected);
	exi_unlock(&sk->link_lock);
	if (now_connected)
		connected(sk);
	return 0;
}

void exi_lifecycle_event(struct exi_sock *sk)
{
	bool now_connected = false;

	exi_lock(&sk->link_lock);
	if (atomic_load(&sk->fd) >= 0)
		serve_locked(sk, &now_connected);
	exi_unlock(&sk->link_lock);
	if (now_connected)
		connected(sk);
}

struct linger exi_open_linger_of(struct exi_sock *sk, int fd)
{
	const struct exi_half *h = &sk->sh->half[EXI_TX];
	struct linger l = { 0 };
	socklen_t len = sizeof(l);

	if (sk->base->ends_both)
		return l;
	if (h->lingers && exi_close_resets(fd))
		return h->linger;
	getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len);
	return l;
}

int exi_open_drain_until(struct exi_sock *sk, int fd, uint64_t until)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	int ret;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };

		exi_lock(&h->lock);
		ret = h->mode == EXI_MODE_DRAIN ? exi_flow_drain_locked(sk) : 0;
		exi_unlock(&h->lock);
		if (ret != -EAGAIN || exi_now_ns() >= until)
			return ret;
		poll(&p, 1, 100);
	}
}

int exi_open_owe(struct exi_sock *sk, int fd)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	char *bytes = NULL;
	size_t n = 0;
	int ret = 0;
	bool owes;

	exi_lock(&h->lock);
	owes = h->mode == EXI_MODE_DRAIN;
	if (owes)
		ret = exi_flow_owed_locked(sk, &bytes, &n);
	exi_unlock(&h->lock);
	if (owes && !ret && exi_ready_owes)
		exi_ready_owes(fd);
	if (owes && !ret)
		ret = exi_feeder_finish(fd, bytes, n);
	free(bytes);
	return ret;
}

bool exi_open_is_handed_over(struct exi_sock *sk, bool last)
{
	return !last && exi_sock_met(sk) && atomic_load(&sk->sh->keeper);
}

int exi_close_of(int fd, struct exi_patience *p)
{
	return exi_close_with(fd, NULL, p);
}

void exi_close_tell(int fd)
{
	struct exi_sock *sk = exi_sock_find(fd);

	if (sk && !exi_name_others(sk, fd) &&
	    exi_open_is_handed_over(sk, exi_close_is_last(sk)))
		exi_switch_leave(sk, EXS_X_REASON_SHARED);
}

void exi_close_forgotten(struct exi_sock *sk, int fd, uint32_t generation)
{
	exi_lock(&sk->link_lock);
	if (!exi_sock_is(sk, fd) || sk->closing ||
	    atomic_load(&sk->generation) != generation) {
		exi_unlock(&sk->link_lock);
		return;
	}
	sk->closing = true;
	exi_unlock(&sk->link_lock);
	exi_close_leave(sk, false, exi_close_is_last(sk), NULL, NULL);
}

struct exi_sock *exi_open_connection(int fd)
{
	struct exi_sock *sk = exi_sock_find(fd);

	return sk && sk->role != EXI_ROLE_NONE && sk->role != EXI_ROLE_LISTEN
		       ? sk
		       : NULL;
}

int exi_open_go_plain_or_reset(int fd, int reason)
{
	struct exi_sock *sk = exi_open_connection(fd);
	uint32_t generation = sk ? atomic_load(&sk->generation) : 0;
	int ret = exi_go_plain(fd, reason, NULL);

	if (!sk || ret != -ETIMEDOUT)
		return ret;
	exi_link_unanswered(sk, generation);
	return 0;
}

void exi_tell_plain(int fd, int reason)
{
	struct exi_sock *sk = exi_open_connection(fd);

	if (!sk)
		return;
	if (exi_family_elsewhere(sk))
		exi_family_request(sk);
	else
		exi_switch_leave(sk, reason);
}

void exi_before_reading(int fd, int level, int name)
{
	struct exi_sock *sk =
		exi_bound_uses(level, name) ? exi_sock_find(fd) : NULL;

	if (sk)
		exi_link_option(sk, level, name);
}
