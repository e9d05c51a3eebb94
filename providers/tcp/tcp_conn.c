/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of the tcp provider: plain calls, and the four slots that an
 * engine serves. */
#include "providers/tcp/tcp_int.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

/* How long stop() sleeps at most before it looks again: the slot that it waits
 * for may be with another thread, which makes no event. */
#define STOP_LOOK_MS 10

ssize_t tcpp_send(int fd, const void *buf, size_t len, int flags)
{
	int saved = errno;
	ssize_t n = send(fd, buf, len, flags | MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0) {
		n = -errno;
		errno = saved;
	}
	return n;
}

ssize_t tcpp_recv(int fd, void *buf, size_t len, int flags)
{
	int saved = errno;
	ssize_t n = recv(fd, buf, len, flags | MSG_DONTWAIT);

	if (n < 0) {
		n = -errno;
		errno = saved;
	}
	return n;
}

/* The error that an earlier transfer kept back, once; 0 when there is none. */
static int take_error(struct tcpp_conn *p)
{
	if (exi_likely(!atomic_load_explicit(&p->error, memory_order_relaxed)))
		return 0;
	return atomic_exchange_explicit(&p->error, 0, memory_order_relaxed);
}

static ssize_t conn_send(struct exi_conn *c, const void *buf, size_t len,
			 int flags)
{
	int err = take_error(tcpp_priv(c));

	return err ? -err : tcpp_send(c->fd, buf, len, flags);
}

static ssize_t conn_recv(struct exi_conn *c, void *buf, size_t len, int flags)
{
	int err = take_error(tcpp_priv(c));

	return err ? -err : tcpp_recv(c->fd, buf, len, flags);
}

static ssize_t move_parts(struct exi_conn *c, enum exi_dir d,
			  const struct iovec *v, size_t n, int flags)
{
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)v,
			    .msg_iovlen = n };
	int err = take_error(tcpp_priv(c)), saved = errno;
	ssize_t ret;

	if (err)
		return -err;
	flags |= MSG_DONTWAIT;
	ret = d == EXI_TX ? sendmsg(c->fd, &m, flags | MSG_NOSIGNAL)
			  : recvmsg(c->fd, &m, flags);
	if (ret < 0)
		ret = -errno;
	errno = saved;
	return ret;
}

static ssize_t conn_sendv(struct exi_conn *c, const struct iovec *v, size_t n,
			  int flags)
{
	return move_parts(c, EXI_TX, v, n, flags);
}

static ssize_t conn_recvv(struct exi_conn *c, const struct iovec *v, size_t n,
			  int flags)
{
	return move_parts(c, EXI_RX, v, n, flags);
}

static int conn_error(struct exi_conn *c)
{
	return take_error(tcpp_priv(c));
}

static int conn_end(struct exi_conn *c)
{
	int saved = errno, ret = 0;

	if (shutdown(c->fd, SHUT_WR) < 0) {
		ret = -errno;
		errno = saved;
	}
	return ret;
}

static void op_init(struct tcpp_op *op, struct exi_conn *c, enum exi_dir dir,
		    bool watch)
{
	*op = (struct tcpp_op){ .conn = c, .dir = dir, .watch = watch };
	exi_list_init(&op->node);
}

struct tcpp_conn *tcpp_conn_locked(struct exi_conn *c)
{
	struct tcpp_domain *d = tcpp_domain(c->domain);
	struct tcpp_conn *p = tcpp_priv(c);
	enum exi_dir dir;

	EXI_LOCKED(&d->lock);
	if (exi_likely(p->generation == d->generation))
		return p;
	for (dir = EXI_RX; dir <= EXI_TX; dir++) {
		op_init(&p->xfer[dir], c, dir, false);
		op_init(&p->watch[dir], c, dir, true);
	}
	p->generation = d->generation;
	p->upcalls = 0;
	p->id = 0;
	p->armed = 0;
	p->added = false;
	return p;
}

/* Takes x into its slot. A kept error finishes it at once: *ret_kept. */
static int take_locked(struct exi_conn *c, struct exi_xfer *x, enum exi_dir dir,
		       bool *ret_kept)
{
	struct tcpp_conn *p = tcpp_conn_locked(c);
	struct tcpp_op *op = &p->xfer[dir];
	int err;

	EXI_LOCKED(&tcpp_domain(c->domain)->lock);
	if (p->closed)
		return -EBADF;
	if (op->state != TCPP_IDLE)
		return -EBUSY;
	op->xfer = x;
	op->moved = 0;
	op->cancel = false;
	op->poll_first = false;
	op->state = TCPP_WAITING;
	err = take_error(p);
	if (err)
		tcpp_op_finish_locked(tcpp_domain(c->domain), op, -err);
	*ret_kept = err != 0;
	return 0;
}

/* The engine did not take it. */
static void untake(struct tcpp_domain *d, struct tcpp_op *op)
{
	exi_lock(&d->lock);
	op->xfer = NULL;
	op->state = TCPP_IDLE;
	exi_unlock(&d->lock);
}

static int post(struct exi_conn *c, struct exi_xfer *x, enum exi_dir dir)
{
	struct tcpp_domain *d = tcpp_domain(c->domain);
	struct tcpp_op *op = &tcpp_priv(c)->xfer[dir];
	bool kept = false;
	int ret = tcpp_domain_start(d);

	if (ret < 0)
		return ret;
	exi_lock(&d->lock);
	ret = take_locked(c, x, dir, &kept);
	exi_unlock(&d->lock);
	if (ret < 0)
		return ret;
	if (kept) {
		d->engine->kick(d);
		return 0;
	}
	ret = d->engine->post(d, op);
	if (ret < 0)
		untake(d, op);
	return ret;
}

static int conn_post_send(struct exi_conn *c, struct exi_xfer *x)
{
	return post(c, x, EXI_TX);
}

static int conn_post_recv(struct exi_conn *c, struct exi_xfer *x)
{
	return post(c, x, EXI_RX);
}

/* The engine has the slot. */
static bool in_flight(const struct tcpp_op *op)
{
	return op->state != TCPP_IDLE && op->state != TCPP_FINISHED;
}

/* Cancels x, or with null whatever the slot has. */
static void cancel_slot(struct exi_conn *c, enum exi_dir dir,
			struct exi_xfer *x)
{
	struct tcpp_domain *d = tcpp_domain(c->domain);
	struct tcpp_op *op;
	bool ask;

	exi_lock(&d->lock);
	op = &tcpp_conn_locked(c)->xfer[dir];
	ask = in_flight(op) && (!x || op->xfer == x);
	if (ask)
		op->cancel = true;
	exi_unlock(&d->lock);
	if (ask)
		d->engine->cancel(d, op);
}

static void conn_cancel(struct exi_conn *c, struct exi_xfer *x)
{
	cancel_slot(c, EXI_RX, x);
	cancel_slot(c, EXI_TX, x);
}

static void conn_disarm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	struct tcpp_domain *d = tcpp_domain(c->domain);
	struct tcpp_op *op;
	bool ask = false;

	exi_lock(&d->lock);
	op = &tcpp_conn_locked(c)->watch[dir];
	if (op->state == TCPP_FINISHED) {
		exi_list_del(&op->node);
		op->state = TCPP_IDLE;
	} else if (op->state == TCPP_WAITING) {
		op->cancel = true;
		ask = true;
	}
	exi_unlock(&d->lock);
	if (ask)
		d->engine->cancel(d, op);
}

static bool can_move(int fd, enum exi_dir dir)
{
	struct pollfd p = { .fd = fd,
			    .events = dir == EXI_RX ? POLLIN : POLLOUT };
	int saved = errno;
	bool can = poll(&p, 1, 0) > 0;

	errno = saved;
	return can;
}

/* 1: the engine must be notified; 0: it knows. */
static int watch_locked(struct exi_conn *c, enum exi_dir dir)
{
	struct tcpp_conn *p = tcpp_conn_locked(c);
	struct tcpp_op *op = &p->watch[dir];
	bool idle = op->state == TCPP_IDLE;

	EXI_LOCKED(&tcpp_domain(c->domain)->lock);
	if (p->closed)
		return -EBADF;
	/* Asked for again while the engine is still giving it back: what it
	 * reports may be older than this call. */
	op->stale = !idle && (op->cancel || op->stale);
	op->cancel = false;
	if (idle)
		op->state = TCPP_WAITING;
	return idle;
}

static int conn_arm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	struct tcpp_domain *d = tcpp_domain(c->domain);
	struct tcpp_op *op = &tcpp_priv(c)->watch[dir];
	int ret;

	if (how != EXI_WAKE_BELL)
		return -EOPNOTSUPP;
	ret = tcpp_domain_start(d);
	if (ret < 0)
		return ret;
	/* The engine sees what comes after this look, since it looks itself
	 * when the watch begins. */
	if (can_move(c->fd, dir)) {
		conn_disarm(c, dir, EXI_WAKE_BELL);
		return -EBUSY;
	}
	exi_lock(&d->lock);
	ret = watch_locked(c, dir);
	exi_unlock(&d->lock);
	if (ret <= 0)
		return ret;
	ret = d->engine->post(d, op);
	if (ret < 0)
		untake(d, op);
	return ret;
}

static int conn_word(struct exi_conn *c, enum exi_dir dir, struct exi_word *ret)
{
	return -EOPNOTSUPP;
}

static bool conn_ready(struct exi_conn *c, enum exi_dir dir)
{
	struct pollfd p = { .fd = c->fd,
			    .events = dir == EXI_RX ? POLLIN : POLLOUT };

	return poll(&p, 1, 0) > 0;
}

static bool conn_over(struct exi_conn *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0;
}

static size_t conn_unread(struct exi_conn *c)
{
	int n = 0;

	return ioctl(c->fd, SIOCINQ, &n) == 0 && n > 0 ? (size_t)n : 0;
}

/* The kernel sees to it. */
static bool conn_full(struct exi_conn *c)
{
	return false;
}

static int conn_peer_cpu(struct exi_conn *c)
{
	return -1;
}

static bool slot_is_quiet(const struct tcpp_op *op)
{
	return op->state == TCPP_IDLE && !op->cancelling;
}

static bool is_quiet_locked(const struct tcpp_conn *p)
{
	EXI_LOCKED(&tcpp_domain(p->xfer[EXI_RX].conn->domain)->lock);
	return p->upcalls == 0 && slot_is_quiet(&p->xfer[EXI_RX]) &&
	       slot_is_quiet(&p->xfer[EXI_TX]) &&
	       slot_is_quiet(&p->watch[EXI_RX]) &&
	       slot_is_quiet(&p->watch[EXI_TX]);
}

static bool is_quiet(struct exi_conn *c)
{
	struct tcpp_domain *d = tcpp_domain(c->domain);
	bool quiet;

	exi_lock(&d->lock);
	quiet = is_quiet_locked(tcpp_conn_locked(c));
	exi_unlock(&d->lock);
	return quiet;
}

static void conn_close(struct exi_conn *c)
{
	struct tcpp_domain *d = tcpp_domain(c->domain);
	struct tcpp_conn *p;
	enum exi_dir dir;
	bool quiet;

	exi_lock(&d->lock);
	p = tcpp_conn_locked(c);
	p->closed = true; /* the connection stays quiet */
	quiet = is_quiet_locked(p);
	exi_unlock(&d->lock);
	for (dir = EXI_RX; dir <= EXI_TX && !quiet; dir++) {
		cancel_slot(c, dir, NULL);
		conn_disarm(c, dir, EXI_WAKE_BELL);
	}
	if (tcpp_domain_state(d) && d->engine->part)
		d->engine->part(d, c);
}

/* Waits for the engine to give the slots back. Not to be called from an upcall
 * of c, for which it waits. Closes again each time for an engine that could not
 * take a cancellation. */
static void conn_stop(struct exi_conn *c)
{
	struct tcpp_domain *d = tcpp_domain(c->domain);
	struct pollfd p = { .events = POLLIN };
	int saved = errno;

	if (!tcpp_domain_state(d))
		return;
	p.fd = d->engine->event_fd(d);
	while (!is_quiet(c)) {
		if (d->engine->progress(d) == 0 && !is_quiet(c))
			poll(&p, 1, STOP_LOOK_MS);
		conn_close(c);
	}
	d->engine->release(d, c);
	errno = saved;
}

const struct exi_wait_ops tcpp_wait_ops = {
	.arm = conn_arm,
	.disarm = conn_disarm,
	.word = conn_word,
	.peer_cpu = conn_peer_cpu,
};

const struct exi_ready_ops tcpp_ready_ops = {
	.ready = conn_ready,
	.unread = conn_unread,
	.full = conn_full,
	.over = conn_over,
};

const struct exi_kernel_ops tcpp_kernel_ops = {
	.sendv = conn_sendv,
	.recvv = conn_recvv,
	.error = conn_error,
	.post_send = conn_post_send,
	.post_recv = conn_post_recv,
	.cancel = conn_cancel,
};

const struct exi_conn_ops tcpp_conn_ops = {
	.priv_size = sizeof(struct tcpp_conn),
	.wait_ops = &tcpp_wait_ops,
	.ready_ops = &tcpp_ready_ops,
	.kernel_ops = &tcpp_kernel_ops,
	.close = conn_close,
	.stop = conn_stop,
	.send = conn_send,
	.recv = conn_recv,
	.end = conn_end,
};
