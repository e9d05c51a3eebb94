/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections from birth to end. */
#include "core/lifecycle.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/cancel.h"
#include "core/family.h"
#include "core/feeder.h"
#include "core/flow.h"
#include "core/latent.h"
#include "core/link.h"
#include "core/log.h"
#include "core/marker.h"
#include "core/names.h"
#include "core/poll.h"
#include "core/proof.h"
#include "core/ready.h"
#include "core/resume.h"
#include "core/service.h"
#include "core/switch.h"
#include "core/thread.h"
#include "core/timeout.h"

/* What a close waits for the bytes that a peer on another host repeats. */
#define REPEATS_NS 5000000000u

static bool is_tcp(int fd)
{
	int domain, type, protocol;
	socklen_t len = sizeof(int);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return false;
	len = sizeof(int);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return false;
	len = sizeof(int);
	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) < 0)
		return false;
	return (domain == AF_INET || domain == AF_INET6) &&
	       type == SOCK_STREAM && protocol == IPPROTO_TCP;
}

static bool is_listening(int fd)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &len) == 0 && v;
}

/* --- beginnings --------------------------------------------------------- */

int exi_listen(int fd, int backlog)
{
	bool fresh = !is_listening(fd);
	struct exi_sock *sk;

	/* The marker comes before the first connection can. */
	if (is_tcp(fd))
		exi_marker_hold(fd);
	if (listen(fd, backlog) < 0) {
		int err = errno;

		if (is_tcp(fd))
			exi_marker_release(fd);
		return -err;
	}
	/* Bound by listen itself: the name is known only now. */
	/* A second listen() holds it once. */
	if (is_tcp(fd) && exi_sock_get(fd, &sk) == 0) {
		if (sk->role == EXI_ROLE_LISTEN)
			exi_marker_release(fd);
		sk->role = EXI_ROLE_LISTEN;
		sk->signs = sk->signs || fresh;
		sk->marked = exi_marker_refresh(fd);
	}
	return 0;
}

/* A connection that was accepted: what the library keeps for it. Or -errno, and
 * it is closed: a stream it cannot be. */
static int accepted(int listener, int fd)
{
	struct exi_sock *l = exi_sock_find(listener), *sk;
	int ret;

	/* A connection is what its listener is. */
	if (!l || l->role != EXI_ROLE_LISTEN)
		return fd;
	if (exi_unlikely(!l->signs)) /* it may have come before */
		exi_proof_sign(fd);
	if (!l->framed && !atomic_load(&l->sh->no_time) &&
	    exi_latent_begin(fd, EXI_ROLE_ACCEPT))
		return fd;
	ret = exi_sock_make(fd, EXI_ROLE_ACCEPT, true, &sk);
	if (ret && l->framed) {
		close(fd);
		return ret;
	}
	if (ret)
		return fd;
	/* Nobody else knows of it yet. */
	atomic_store_explicit(&sk->framed, l->framed, memory_order_relaxed);
	atomic_store_explicit(&sk->sh->no_time, atomic_load(&l->sh->no_time),
			      memory_order_relaxed);
	sk->counted = true;
	exi_marker_connection();
	exi_link_expect(sk, false);
	return fd;
}

/* Before an accept: whoever connects must find the marker, which may have
 * become free, or be due to a listener that another process made. */
static void mark_listener(int fd)
{
	struct exi_sock *l = exi_sock_find(fd);

	if (!l || l->role != EXI_ROLE_LISTEN) {
		if (!is_tcp(fd) || !is_listening(fd) || exi_sock_get(fd, &l))
			return;
		l->role = EXI_ROLE_LISTEN;
		exi_marker_hold(fd);
	}
	if (!l->marked)
		l->marked = exi_marker_refresh(fd);
	/* Again in a forked child, whose listener it is, too. */
	if (l->reached != exi_use_token()) {
		l->reached = exi_use_token();
		exi_marker_reach(fd);
	}
}

/* The kernel counts in ticks, and the first is a part of one. */
#define TICK_NS 10000000u

/* SO_RCVTIMEO of a listener is over for who accepts since then. */
static bool out_of_time(int fd, uint64_t since)
{
	struct exi_sock *l = exi_sock_find(fd);
	struct timeval t = { 0 };
	socklen_t len = sizeof(t);
	uint64_t ns;

	/* A time before the first is none to the kernel when it is asked. */
	if (l && (atomic_load(&exi_sock_shared(l)->no_time) & (1u << EXI_RX)))
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, &len) < 0)
		return true;
	ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
	return ns && exi_now_ns() - since + TICK_NS >= ns;
}

int exi_accept(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	uint64_t since = exi_now_ns();
	int ret, fl;

	mark_listener(fd);
	for (;;) {
		exi_cancel_rest();
		ret = accept4(fd, addr, len, flags);
		exi_cancel_rested();
		if (ret >= 0)
			break;
		if (errno != EAGAIN)
			return -errno;
		fl = fcntl(fd, F_GETFL);
		if (fl < 0 || (fl & O_NONBLOCK) || out_of_time(fd, since))
			return -EAGAIN;
		/* Another thread's accept_now() had the flag set. */
	}
	return accepted(fd, ret);
}

/* accept4(2) that never blocks, whatever the descriptor's flags say: others
 * may have taken the connection that was there. */
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
	exi_link_expect(sk, false);
	exi_link_by_kernel();
}

int exi_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	struct exi_sock *sk = exi_sock_find(fd);
	int ret;

	exi_cancel_rest();
	ret = connect(fd, to, len) < 0 ? -errno : 0;
	exi_cancel_rested();

	/* A non-blocking connect that goes on is watched for nothing: the
	 * rendezvous begins with the first bytes, when it is done. */
	if (sk && sk->adopted &&
	    (ret == 0 || ret == -EINPROGRESS || ret == -EALREADY ||
	     ret == -EISCONN) &&
	    sk->role == EXI_ROLE_NONE)
		connected(sk);
	return ret;
}

/* --- operations that wait for readiness --------------------------------- */

static bool step_accept(struct exi_op *op)
{
	struct pollfd p = { .fd = op->fd, .events = POLLIN };
	int fd;

	if (poll(&p, 1, 0) == 0)
		return false;
	fd = accept_now(op);
	if (fd == -EAGAIN || fd == -EINTR || fd == -ECONNABORTED)
		return false;
	if (fd >= 0)
		fd = accepted(op->fd, fd);
	op->err = fd < 0 ? -fd : 0;
	op->newfd = fd < 0 ? -1 : fd;
	return true;
}

/* connect(2) without blocking, whatever the descriptor's flags say. */
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

/* What became of it is asked by a second connect(2), not of SO_ERROR: only so
 * does the kernel see that we know, and lets the socket connect again. */
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
	/* Another call was told first. */
	if (op->started && ret == -EISCONN)
		ret = 0;
	op->err = -ret;
	if (op->err == 0 && sk->adopted)
		op->newfd = 1; /* tell the caller to begin the rendezvous */
	return true;
}

/* Serves what can be served; watches for the rest. */
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

int exi_lifecycle_cancel(struct exi_sock *sk, bool any, exs_ahandle_t a)
{
	struct exi_list *pos, *tmp;
	int n = 0;

	exi_lock(&sk->link_lock);
	exi_list_for_each_safe (pos, tmp, &sk->poll_ops) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (!any && op->ahandle != a)
			continue;
		exi_list_del(&op->node);
		op->err = ECANCELED;
		op->newfd = -1;
		exi_op_complete(op);
		n++;
	}
	exi_unlock(&sk->link_lock);
	return n;
}

static int cancel_sock(struct exi_sock *sk, bool any, exs_ahandle_t a)
{
	return exi_flow_cancel(sk, EXI_RX, any, a) +
	       exi_flow_cancel(sk, EXI_TX, any, a) +
	       exi_lifecycle_cancel(sk, any, a);
}

int exi_cancel_fd(int fd, bool any, exs_ahandle_t a)
{
	struct exi_sock *sk;
	int ret = exi_sock_get(fd, &sk);

	return ret ? ret
		   : cancel_sock(sk, any, a) + exi_poll_cancel(fd, any, a);
}

struct cancel_all {
	exs_ahandle_t a;
	int n;
};

static void cancel_one(struct exi_sock *sk, void *arg)
{
	struct cancel_all *c = arg;

	c->n += cancel_sock(sk, false, c->a);
}

int exi_cancel_all(exs_ahandle_t a)
{
	struct cancel_all c = { .a = a };

	exi_sock_each(cancel_one, &c);
	return c.n + exi_poll_cancel(-1, false, a);
}

/* --- ends --------------------------------------------------------------- */

/* SHUT_WR or SHUT_RDWR on the sending side. */
static int end_sending(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	int ret = 0;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return -EBADF;
	if (exi_list_empty(&sk->ops[EXI_TX]))
		ret = exi_flow_end_locked(sk);
	else
		sh->half[EXI_TX].end_wanted |= EXI_END_SAID;
	atomic_fetch_add(&sk->cramped, 1);
	exi_half_unlock(&sh->half[EXI_TX]);
	exi_sock_kick(sk, EXI_TX);
	exi_flow_progress(sk, EXI_TX);
	return ret;
}

static int end_receiving(struct exi_sock *sk, int fd)
{
	int ret = shutdown(fd, SHUT_RD) < 0 ? -errno : 0;

	if (ret == 0) {
		atomic_store(&sk->sh->rx_fin, 1);
		exi_sock_kick(sk, EXI_RX);
		exi_flow_progress(sk, EXI_RX);
	}
	return ret;
}

bool exi_over(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	struct exi_half *tx;
	bool ended;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return false;
	tx = &sh->half[EXI_TX];
	ended = tx->mode == EXI_MODE_RING && tx->ended && !tx->fin;
	exi_half_unlock(tx);
	return ended && exi_ready_peer_ended(sk, fd);
}

/* In the ring, or in the kernel. */
static bool is_over(struct exi_sock *sk, int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return exi_over(sk, fd) ||
	       (sk->sh->half[EXI_TX].mode == EXI_MODE_RING &&
		atomic_load(&sk->sh->gone) &&
		getpeername(fd, (struct sockaddr *)&peer, &len) < 0);
}

/* If both have, and the peer has not: what it sends is nobody's. As at a close it
 * hears that by the link, goes on over TCP, and gets the kernel's own answer. */
static void end_both(struct exi_sock *sk, int fd)
{
	struct exi_half *rx, *tx;
	bool ends;

	/* The service comes late: its place may be becoming another socket's. */
	exi_lock(&sk->link_lock);
	rx = &sk->sh->half[EXI_RX];
	tx = &sk->sh->half[EXI_TX];
	exi_lock(&rx->lock);
	exi_lock(&tx->lock);
	ends = sk->fab && !exi_sock_remote(sk) &&
	       atomic_load(&sk->sh->rx_fin) && rx->mode == EXI_MODE_RING &&
	       !rx->ended && !sk->fab->ops->over(sk->fab) &&
	       tx->mode == EXI_MODE_RING && tx->ended && !sk->closing &&
	       exi_sock_is(sk, fd) && exi_sock_current(sk, fd);
	if (ends && !tx->fin) {
		tx->fin = 1;
		shutdown(fd, SHUT_WR);
	}
	if (ends) {
		rx->deaf_after =
			rx->fabric_bytes + sk->fab->ops->unread(sk->fab);
		rx->deaf = EXI_DEAF_CUT;
		/* A send after this rings, and finds that nobody hears. */
		sk->fab->ops->arm(sk->fab, EXI_RX, EXI_WAKE_NEXT);
		sk->fab->bell = -1;
		atomic_store(&sk->sh->may_switch, 0);
		atomic_store(&sk->sh->gone, 1);
	}
	exi_unlock(&tx->lock);
	exi_unlock(&rx->lock);
	/* Another process may have it, too. */
	if (ends && sk->link)
		shutdown(sk->link->fd, SHUT_RDWR);
	if (ends) {
		exi_link_drop_locked(sk);
		/* A ring that nobody reads now may have been for others, too. */
		exi_sock_kick(sk, EXI_RX);
		exi_sock_kick(sk, EXI_TX);
	}
	exi_unlock(&sk->link_lock);
}

void exi_lifecycle_ended(struct exi_sock *sk)
{
	int fd = atomic_load(&sk->fd);

	if (fd >= 0)
		end_both(sk, fd);
}

int exi_shutdown(int fd, int how)
{
	struct exi_sock *sk = exi_sock_find(fd);
	int ret = 0;

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return -EINVAL;
	if (!sk || !exi_sock_is(sk, fd))
		return shutdown(fd, how) < 0 ? -errno : 0;
	if (is_over(sk, fd))
		return -ENOTCONN;
	/* Who is woken by the end of receiving sees both. */
	if (how != SHUT_RD)
		ret = end_sending(sk, fd);
	if (ret)
		return ret;
	if (how != SHUT_WR)
		ret = end_receiving(sk, fd);
	if (ret == 0)
		end_both(sk, fd);
	/* TCP is closed where the peer ended before. */
	return how == SHUT_RDWR && ret == -ENOTCONN ? 0 : ret;
}

/* Bytes of the peer lie unread in the ring. */
static bool ring_unread(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	if (sk->n_kept)
		return true;
	return h->mode != EXI_MODE_TCP && h->mode != EXI_MODE_BACK && sk->fab &&
	       !h->ended && !h->broken && exi_half_heard(h, 1) &&
	       sk->fab->ops->recv(sk->fab, &(char){ 0 }, 1, MSG_PEEK) > 0;
}

/* The application asked for a reset at close. */
static bool resets(int fd)
{
	struct linger l = { 0 };
	socklen_t len = sizeof(l);

	return getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0 &&
	       l.l_onoff && l.l_linger == 0;
}

/* The last user closes: what lies in the ring, or was said there, decides what
 * TCP says, as its own queues would. */
static void close_ring_locked(struct exi_sock *sk, int fd)
{
	struct linger reset = { .l_onoff = 1 }, none = { 0 };
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	bool ended = tx->mode == EXI_MODE_RING && tx->ended;
	bool over = ended && rx->mode == EXI_MODE_RING &&
		    sk->fab->ops->over(sk->fab);

	EXI_LOCKED(&rx->lock);
	EXI_LOCKED(&tx->lock);
	/* A send after this rings, and finds that nobody hears. Before the peer
	 * sends here there may be no ring yet. */
	if (rx->mode == EXI_MODE_LEFT || rx->mode == EXI_MODE_RING)
		sk->fab->ops->arm(sk->fab, EXI_RX, EXI_WAKE_NEXT);
	if (ended && !tx->fin)
		shutdown(fd, SHUT_WR);
	if (!over && exi_sock_remote(sk))
		sk->fab->provider->remote_ops->leave(sk->fab);
	if (over)
		/* Nothing is left that could be reset. */
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	else if (ring_unread(sk))
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	else if (tx->mode == EXI_MODE_RING && !ended &&
		 !atomic_load(&sk->sh->gone) && !resets(fd) &&
		 !sk->tcp->ops->unread(sk->tcp)) /* as the kernel does */
		sk->fab->ops->end(sk->fab);
}

/* Others have it, and perhaps only the kernel closes it for them. What that says
 * comes after the end that was said here, if nothing could be taken back. */
static void part_from_ring_locked(struct exi_sock *sk, int fd)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];

	EXI_LOCKED(&tx->lock);
	if (tx->mode != EXI_MODE_RING || !tx->ended || tx->fin ||
	    exi_sock_remote(sk) || !sk->fab->ops->left_unread ||
	    sk->fab->ops->left_unread(sk->fab))
		return;
	tx->fin = 1;
	shutdown(fd, SHUT_WR);
}

/* What the application asked for: while bytes drain the option is the library's. */
static struct linger linger_of(struct exi_sock *sk, int fd)
{
	const struct exi_half *h = &sk->sh->half[EXI_TX];
	struct linger l = { 0 };
	socklen_t len = sizeof(l);

	if (h->lingers && resets(fd))
		return h->linger;
	getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len);
	return l;
}

/* Sends until nothing is left, or the time is over: -EAGAIN, another error. */
static int drain_until(struct exi_sock *sk, int fd, uint64_t until)
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

/* The rest goes to a process that sends it. Where that cannot be, the close resets
 * the connection. */
static int owe(struct exi_sock *sk, int fd)
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

/* The last close of a connection with bytes on their way from a ring to TCP, for
 * which TCP has no room: as with those that lie in TCP the close waits only if
 * SO_LINGER says so, and they are sent after it. With bytes of the peer unread, or
 * SO_LINGER with no time, all is thrown away, and the peer hears of a reset. */
static void finish_drain(struct exi_sock *sk, int fd)
{
	struct linger l = linger_of(sk, fd);
	uint64_t wait = l.l_onoff && l.l_linger > 0
				? (uint64_t)l.l_linger * 1000000000u
				: 0;
	int ret;

	if (l.l_onoff && !l.l_linger)
		return;
	ret = drain_until(sk, fd, exi_now_ns() + wait);
	if (ret != -EAGAIN || sk->tcp->ops->unread(sk->tcp))
		return;
	ret = owe(sk, fd);
	if (ret)
		exi_warn("descriptor %d: closed while the peer did not read, "
			 "and what is left cannot be sent (%s): it is reset",
			 fd, strerror(-ret));
}

/* No other process has it. Asked when the close begins: to one that is forked
 * later it is closed. */
static bool is_last(struct exi_sock *sk)
{
	return exi_holders_alone(&sk->sh->holders);
}

static void lock_all(struct exi_sock *sk)
{
	exi_lock(&sk->link_lock);
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
}

static void unlock_all(struct exi_sock *sk)
{
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	exi_unlock(&sk->link_lock);
}

/* Nothing is under way that a close would end or wait for, and as it is closing
 * nothing begins: most connections are short. */
static bool at_rest_locked(const struct exi_sock *sk)
{
	bool ret = !sk->fab && !sk->link && !sk->framed &&
		   exi_list_empty(&sk->poll_ops);
	enum exi_dir d;

	EXI_LOCKED(&sk->link_lock);
	for (d = EXI_RX; d <= EXI_TX; d++)
		ret = ret && exi_list_empty(&sk->ops[d]) && !sk->posted[d] &&
		      !sk->loans[d] && !sk->timeout[d];
	return ret;
}

/* Others go on with it, and have no fabric: it goes to TCP first. */
static bool is_handed_over(struct exi_sock *sk, bool last)
{
	return !last && exi_sock_met(sk) && atomic_load(&sk->sh->keeper);
}

static void come_to_rest(struct exi_sock *sk, int fd, bool close_fd, bool last,
			 struct exi_patience *p)
{
	struct linger reset = { .l_onoff = 1 };
	struct exi_half *tx = &sk->sh->half[EXI_TX];

	/* This process alone can send it, whoever else has the connection. */
	if (close_fd && (sk->framed || sk->loans[EXI_TX]) && !resets(fd) &&
	    !exi_flow_flush(sk, exi_switch_patience(sk, p)))
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	exi_flow_stop(sk);
	exi_timeout_drop(sk);
	exi_lifecycle_cancel(sk, true, NULL);
	if (close_fd && is_handed_over(sk, last))
		exi_switch_down(sk, fd, EXS_X_REASON_SHARED,
				exi_switch_patience(sk, p));
	/* A SWITCH that is under way tells of bytes that are unread. */
	if (close_fd && exi_sock_met(sk))
		exi_link_event(sk, 0);
	if (last && close_fd && tx->mode == EXI_MODE_DRAIN)
		finish_drain(sk, fd);
	if (last && close_fd && exi_sock_met(sk))
		exi_resume_finish(sk, exi_now_ns() + REPEATS_NS);
}

/* The descriptor whose file the number names from now on. */
struct heir {
	int fd, flags; /* of dup3(2) */
};

/* Closes it, whatever the result of close(2), or with an heir of dup3(2). */
static int end_number(int fd, const struct heir *heir)
{
	int ret;

	if (!heir)
		return close(fd) < 0 ? -errno : 0;
	ret = dup3(heir->fd, fd, heir->flags);
	if (ret >= 0)
		return ret;
	ret = -errno;
	close(fd);
	return ret;
}

/* Lets go of everything, in the order the peer should see it. What
 * end_number() gave. */
static int leave(struct exi_sock *sk, bool close_fd, bool last,
		 const struct heir *heir, struct exi_patience *p)
{
	int fd = atomic_load(&sk->fd), ret = 0;

	lock_all(sk);
	if (!at_rest_locked(sk)) {
		unlock_all(sk);
		come_to_rest(sk, fd, close_fd, last, p);
		lock_all(sk);
	}
	if (sk->lingers)
		sk->lingers = false;
	if (sk->watched || sk->poll_events)
		exi_service_unwatch(fd);
	if (sk->role == EXI_ROLE_LISTEN)
		exi_marker_release(fd);
	if (sk->counted)
		exi_marker_disconnection();
	if (last && close_fd && sk->fab)
		close_ring_locked(sk, fd);
	else if (close_fd && sk->fab)
		part_from_ring_locked(sk, fd);
	exi_link_clear_locked(sk);
	exi_sock_unlist(sk);
	/* TCP first, so that the peer finds its verdict there when the link
	 * hangs up. */
	if (sk->named) /* the library's; the names are the caller's */
		exi_fd_close(fd);
	else if (close_fd)
		ret = end_number(fd, heir);
	exi_link_drop_locked(sk);
	if (sk->fab)
		sk->fab->bell = -1;
	/* Sleepers of this process look again and find the socket gone. */
	atomic_fetch_add(&sk->sh->kick[EXI_RX], 1);
	atomic_fetch_add(&sk->sh->kick[EXI_TX], 1);
	exi_sock_drop_locked(sk);
	return ret;
}

/* The socket that is the caller's to leave, or null; and what end_number() gave,
 * if the number is not the socket's own. */
static int begin_close(int fd, const struct heir *heir, struct exi_sock **ret)
{
	struct exi_sock *sk = exi_sock_find(fd);
	int others, ended = 0;

	*ret = NULL;
	if (!sk)
		return end_number(fd, heir);
	others = exi_name_remove(sk, fd);
	exi_lock(&sk->link_lock);
	/* Not while the service puts what has met into a set by this name. */
	if (others >= 0)
		ended = end_number(fd, heir);
	if (others == 0)
		fd = atomic_load(&sk->fd);
	if (others > 0 || atomic_load(&sk->fd) != fd || sk->closing) {
		exi_unlock(&sk->link_lock);
		return others > 0 ? ended : -EBADF;
	}
	/* Seen by who takes one of its locks after us. */
	atomic_store_explicit(&sk->closing, true, memory_order_relaxed);
	exi_unlock(&sk->link_lock);
	*ret = sk;
	return ended;
}

static int close_with(int fd, const struct heir *heir, struct exi_patience *p)
{
	struct exi_sock *sk;
	int ret = begin_close(fd, heir, &sk), left = 0;

	if (sk)
		left = leave(sk, true, is_last(sk), heir, p);
	/* The other closed the library's name, or nothing. */
	return ret ? ret : left;
}

int exi_close(int fd)
{
	return close_with(fd, NULL, NULL);
}

int exi_close_of(int fd, struct exi_patience *p)
{
	return close_with(fd, NULL, p);
}

void exi_close_tell(int fd)
{
	struct exi_sock *sk = exi_sock_find(fd);

	if (sk && !exi_name_others(sk, fd) && is_handed_over(sk, is_last(sk)))
		exi_switch_leave(sk, EXS_X_REASON_SHARED);
}

int exi_close_over(int fd, int from, int flags)
{
	return close_with(fd, &(struct heir){ .fd = from, .flags = flags },
			  NULL);
}

/* What leave() may wait for: what the library still has to send, a connection that
 * goes to TCP for others, and, between hosts, whatever the peer has to say to it:
 * of memory it may write to, or that it has what was sent. */
static bool may_wait(struct exi_sock *sk, bool last)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	bool ret;

	exi_lock(&tx->lock);
	ret = (last && tx->mode == EXI_MODE_DRAIN) ||
	      (!exi_list_empty(&sk->ops[EXI_TX]) &&
	       exi_container(sk->ops[EXI_TX].next, struct exi_op, node)
		       ->ours) ||
	      (!last && sk->fab && atomic_load(&sk->sh->keeper)) ||
	      exi_sock_remote(sk);
	exi_unlock(&tx->lock);
	return ret;
}

struct closing {
	struct exi_sock *sk;
	struct exi_op *op;
	bool last;
};

static void *close_slowly(void *arg)
{
	struct closing c = *(struct closing *)arg;

	free(arg);
	prctl(PR_SET_NAME, "libexs close");
	c.op->err = -leave(c.sk, true, c.last, NULL, NULL);
	exi_op_complete(c.op);
	return NULL;
}

/* Leaves it in a thread of its own. */
static int start_close(struct exi_sock *sk, struct exi_op *op, bool last)
{
	struct closing *c = malloc(sizeof(*c));
	pthread_t t;
	int ret;

	if (!c)
		return -ENOMEM;
	*c = (struct closing){ .sk = sk, .op = op, .last = last };
	sk->lingers = true;
	ret = exi_thread_start(&t, close_slowly, c);
	if (ret)
		free(c);
	return ret;
}

int exi_close_submit(struct exi_op *op)
{
	struct exi_sock *sk;
	int ret = begin_close(op->fd, NULL, &sk);
	bool last = sk && is_last(sk);

	if (ret == -EBADF)
		return ret;
	/* Where there can be no thread the caller waits. */
	if (sk && may_wait(sk, last) && start_close(sk, op, last) == 0)
		return 0;
	op->err = -(sk ? leave(sk, true, last, NULL, NULL) : ret);
	exi_op_complete(op);
	return 0;
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
	leave(sk, false, is_last(sk), NULL, NULL);
}

/* --- plain calls around ------------------------------------------------- */

int exi_adopt(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	struct exi_sock *sk;
	int ret;

	ret = exi_sock_get(fd, &sk);
	if (ret)
		return ret;
	if (!is_tcp(fd) || is_listening(fd))
		return -EOPNOTSUPP;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return -errno;
	ret = exi_switch_forbidden(fd);
	if (ret) {
		exi_sock_reason(sk, ret);
		return -EOPNOTSUPP;
	}
	exi_sock_inherit(sk);
	if (!sk->adopted || sk->role == EXI_ROLE_NONE) {
		sk->adopted = true;
		if (sk->role == EXI_ROLE_NONE)
			sk->role = exi_switch_role(fd);
		if (sk->role == EXI_ROLE_ACCEPT && !sk->counted) {
			sk->counted = true;
			exi_marker_connection();
		}
		exi_sock_reason(sk, EXS_X_REASON_UNDECIDED);
		exi_link_expect(sk, true);
	}
	ret = exi_switch_allow(sk, fd);
	exi_link_go(sk);
	return ret;
}

int exi_downgrade(int fd)
{
	struct exi_sock *sk;
	int ret = exi_sock_use(fd, &sk);

	if (ret)
		return ret;
	if (atomic_load(&sk->n_ops[EXI_RX]) || atomic_load(&sk->n_ops[EXI_TX]))
		return -EBUSY;
	return exi_switch_down(sk, fd, EXS_X_REASON_REQUESTED,
			       exi_switch_patience(sk, NULL));
}

static struct exi_sock *connection(int fd)
{
	struct exi_sock *sk = exi_sock_find(fd);

	return sk && sk->role != EXI_ROLE_NONE && sk->role != EXI_ROLE_LISTEN
		       ? sk
		       : NULL;
}

int exi_go_plain(int fd, int reason, struct exi_patience *p)
{
	struct exi_sock *sk = connection(fd);
	int ret;

	if (!sk)
		return 0;
	ret = exi_switch_down(sk, fd, reason, exi_switch_patience(sk, p));
	return ret == -EBADF || (ret == -ETIMEDOUT && exi_link_part(sk)) ? 0
									 : ret;
}

/* For a call of the kernel's that never waits: then it goes on, with a connection that
 * was reset. */
static int go_plain_or_reset(int fd, int reason)
{
	struct exi_sock *sk = connection(fd);
	int ret = exi_go_plain(fd, reason, NULL);

	if (!sk || ret != -ETIMEDOUT)
		return ret;
	exi_link_unanswered(sk);
	return 0;
}

void exi_tell_plain(int fd, int reason)
{
	struct exi_sock *sk = connection(fd);

	if (!sk)
		return;
	if (exi_family_elsewhere(sk))
		exi_family_request(sk);
	else
		exi_switch_leave(sk, reason);
}

static int option_reason(int level, int name)
{
	if (level == IPPROTO_TCP)
		return name == TCP_ULP		      ? EXS_X_REASON_KERNEL_TLS
		       : name == TCP_REPAIR	      ? EXS_X_REASON_REPAIR
		       : name == TCP_ZEROCOPY_RECEIVE ? EXS_X_REASON_ZEROCOPY
						      : EXS_X_REASON_NONE;
	if (level != SOL_SOCKET)
		return EXS_X_REASON_NONE;
	switch (name) {
	case SO_ZEROCOPY:
		return EXS_X_REASON_ZEROCOPY;
	case SO_PEEK_OFF:
		return EXS_X_REASON_PEEK_OFF;
	case SO_TIMESTAMP_OLD:
	case SO_TIMESTAMPNS_OLD:
	case SO_TIMESTAMPING_OLD:
	case SO_TIMESTAMP_NEW:
	case SO_TIMESTAMPNS_NEW:
	case SO_TIMESTAMPING_NEW:
		return EXS_X_REASON_TIMESTAMPS;
	case SO_ATTACH_FILTER:
	case SO_ATTACH_BPF:
		return EXS_X_REASON_BPF;
	default:
		return EXS_X_REASON_NONE;
	}
}

void exi_before_reading(int fd, int level, int name)
{
	struct exi_sock *sk =
		exi_bound_uses(level, name) ? exi_sock_find(fd) : NULL;

	if (sk)
		exi_link_option(sk, level, name);
}

int exi_before_option(int fd, int level, int name)
{
	int reason = option_reason(level, name);

	exi_before_reading(fd, level, name);
	return reason ? go_plain_or_reset(fd, reason) : 0;
}

int exi_before_flags(int fd, int flags)
{
	return flags & O_ASYNC ? go_plain_or_reset(fd, EXS_X_REASON_O_ASYNC)
			       : 0;
}

int exi_basic_reason(int fd, int reason)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int forbidden;

	if (!is_tcp(fd)) {
		forbidden = exi_switch_forbidden(fd);
		return forbidden == EXS_X_REASON_MPTCP ? forbidden
						       : EXS_X_REASON_NOT_TCP;
	}
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return EXS_X_REASON_NOT_CONNECTED;
	return reason;
}

/* --- fork --------------------------------------------------------------- */

int exi_sock_use(int fd, struct exi_sock **ret)
{
	int err = exi_sock_get(fd, ret);

	if (!err && exi_unlikely(!exi_sock_used_here(*ret)))
		exi_sock_inherit(*ret);
	return err;
}

void exi_sock_inherit(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	uint64_t token = exi_use_token(), nobody = 0;

	exi_lock(&sk->link_lock);
	if (sk->process == token)
		goto unlock;
	sk->process = token;
	sk->unused = false;
	if (sk->foreign_link)
		exi_link_disown_locked(sk);
	/* The first user after a fork owns the connection. A second keeps it
	 * on TCP, unless both have the fabric mapped. */
	if (!atomic_compare_exchange_strong(&sh->owner, &nobody, token) &&
	    !sk->fab) {
		atomic_store(&sh->half[EXI_RX].meet_at, UINT64_MAX);
		atomic_store(&sh->half[EXI_TX].meet_at, UINT64_MAX);
		atomic_store(&sh->hold_here, 1);
		exi_sock_reason(sk, EXS_X_REASON_SHARED);
	}
	if (!sk->foreign_link)
		goto unlock;
	sk->foreign_link = false;
	if (!sk->link) /* not met then, or it hung up before */
		goto unlock;
	/* Before the watch: from here on some bells are heard here. */
	atomic_store(&sh->several, 1);
	exi_service_watch(sk, sk->link->fd, EXI_WATCH_LINK, EPOLLIN);
	exi_service_watch(sk, sk->tcp->fd, EXI_WATCH_TCP, EPOLLRDHUP | EPOLLET);
unlock:
	exi_unlock(&sk->link_lock);
}
