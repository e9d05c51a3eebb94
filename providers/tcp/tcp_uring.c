/* SPDX-License-Identifier: BSD-2-Clause */
/* The io_uring engine: the kernel moves the bytes and reports when it is done.
 *
 * One ring for the process. Its descriptor is event_fd(): it polls readable
 * exactly while completions wait, with nothing to be cleared and no lost or
 * left-over signal, which an eventfd would need care for.
 *
 * Each slot has at most one request in the kernel, named by the slot's address;
 * a request to cancel it is named by the address with CANCEL set. The slot's
 * memory stays until both have completed: stop() waits.
 *
 * While some thread is in progress() requests are only put into the ring: that
 * thread submits them together.
 *
 * What the kernel does that has to be lived with: - A request belongs to the
 * thread that handed it in. It is cancelled when that thread ends; nobody asked
 * for it, so it is made again. - The rest of a request that had to wait is done
 * by that thread, which is interrupted for it: system calls that do not restart
 * (epoll_wait, a recv with a time-out) return EINTR there, without any signal.
 * - A request holds the file: a socket closed behind our back lives on until
 * the request is over. - Told to fill a buffer (MSG_WAITALL), it forgets an
 * error that comes after some bytes. So transfers are continued here. */
#include "providers/tcp/tcp_int.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/fds.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

#define SQ_ENTRIES 256u
#define CQ_ENTRIES 1024u /* more than that wait in the kernel */
#define BATCH	   64u
#define CANCEL	   1u
#define LEN_MAX	   ((size_t)1 << 30) /* a request's length is 32 bits */

/* Times that the kernel may be out of memory for a request in a row. */
#define TRIES_MAX 64

_Static_assert(_Alignof(struct tcpp_op) > CANCEL, "the bit is free");

/* A request: for a slot, or null. */
struct ask {
	struct tcpp_op *op;
	unsigned int what; /* 0: what the slot is for; CANCEL */
};

struct uring_engine {
	struct io_uring ring;
	/* Guards the submission side. The domain's lock may be taken under
	 * it. */
	struct exi_lock sq;
	unsigned int inside; /* threads in progress() */
	int dead;	     /* -errno: the kernel takes nothing any more */
	/* Requests put into the ring and those the kernel took, counted; and
	 * what the others are. */
	uint32_t produced;
	uint32_t consumed;
	struct ask asked[SQ_ENTRIES];
	/* Counts requests put into the ring, for its order only: reading a slot
	 * to make a request comes before its completion writes there. The
	 * kernel ensures that, but in a way that no checker can follow. */
	_Atomic uint32_t handed;
	/* Guards the completion side. No lock is taken under it. */
	struct exi_lock cq;
};

static struct uring_engine *engine_of(struct tcpp_domain *d)
{
	return tcpp_domain_state(d);
}

/* Gives up a request that is not in the kernel, and will not be. */
static void not_taken_locked(struct tcpp_domain *d, const struct ask *ask,
			     int err)
{
	EXI_LOCKED(&d->lock);
	if (ask->what == CANCEL)
		ask->op->cancelling = false;
	else if (ask->op)
		tcpp_op_fail_locked(d, ask->op, err);
}

/* The ring is lost: its descriptor was closed, or a filter of system calls came
 * later. Requests that it did not take are finished; those that it took run
 * on. */
static void die_locked(struct tcpp_domain *d, struct uring_engine *u, int err)
{
	EXI_LOCKED(&u->sq);
	u->dead = err;
	exi_lock(&d->lock);
	for (; u->consumed != u->produced; u->consumed++)
		not_taken_locked(d, &u->asked[u->consumed % SQ_ENTRIES], err);
	exi_unlock(&d->lock);
}

/* Short of memory, for the moment. */
static bool is_passing(int err)
{
	return err == 0 || err == -EAGAIN || err == -EBUSY || err == -EINTR ||
	       err == -ENOMEM;
}

/* Submits the requests in the ring. Short of memory, the kernel may leave some:
 * a later call submits them. */
static void submit_locked(struct tcpp_domain *d, struct uring_engine *u)
{
	int tries = 0, ret = 0;

	EXI_LOCKED(&u->sq);
	while (u->consumed != u->produced && tries < TRIES_MAX) {
		ret = io_uring_submit(&u->ring);
		if (ret > 0) {
			u->consumed += (uint32_t)ret;
		} else if (is_passing(ret)) {
			sched_yield();
			tries++;
		} else {
			die_locked(d, u, ret);
		}
	}
}

static void prepare_transfer(struct io_uring_sqe *sqe, const struct tcpp_op *op)
{
	const struct exi_xfer *x = op->xfer;
	char *buf = (char *)x->buf + op->moved;
	size_t len = x->len - op->moved;
	int flags = x->flags & ~(MSG_WAITALL | MSG_DONTWAIT);

	if (len > LEN_MAX)
		len = LEN_MAX;
	if (op->dir == EXI_TX)
		io_uring_prep_send(sqe, op->conn->fd, buf, len,
				   flags | MSG_NOSIGNAL);
	else
		io_uring_prep_recv(sqe, op->conn->fd, buf, len, flags);
	if (op->poll_first)
		sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
}

static void prepare(struct io_uring_sqe *sqe, const struct ask *ask)
{
	const struct tcpp_op *op = ask->op;
	uint64_t name = (uintptr_t)op;

	if (!op)
		io_uring_prep_nop(sqe);
	else if (ask->what == CANCEL)
		io_uring_prep_cancel64(sqe, name, 0);
	else if (op->watch)
		io_uring_prep_poll_add(sqe, op->conn->fd,
				       op->dir == EXI_RX ? POLLIN : POLLOUT);
	else
		prepare_transfer(sqe, op);
	sqe->user_data = name | ask->what;
}

static struct io_uring_sqe *get_sqe_locked(struct tcpp_domain *d,
					   struct uring_engine *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	EXI_LOCKED(&u->sq);
	if (exi_unlikely(!sqe)) {
		submit_locked(d, u);
		if (!u->dead)
			sqe = io_uring_get_sqe(&u->ring);
	}
	return sqe;
}

/* Hands in the last request of the ring, or takes it out again. */
static int submit_last_locked(struct tcpp_domain *d, struct uring_engine *u,
			      struct io_uring_sqe *sqe)
{
	uint32_t last = u->produced - 1;

	EXI_LOCKED(&u->sq);
	/* The caller ends this request, not die_locked(). */
	u->asked[last % SQ_ENTRIES] = (struct ask){ 0 };
	submit_locked(d, u);
	if (u->dead)
		return u->dead;
	if (exi_likely(u->consumed == u->produced))
		return 0;
	io_uring_prep_nop(sqe);
	sqe->user_data = 0;
	return -ENOMEM;
}

/* Makes a request; without a slot, one that does nothing but complete. */
static int request(struct tcpp_domain *d, struct ask ask)
{
	struct uring_engine *u = engine_of(d);
	struct io_uring_sqe *sqe = NULL;
	int ret = 0;

	exi_lock(&u->sq);
	if (!u->dead)
		sqe = get_sqe_locked(d, u);
	if (exi_unlikely(!sqe)) {
		ret = u->dead ? u->dead : -ENOMEM;
	} else {
		prepare(sqe, &ask);
		u->asked[u->produced++ % SQ_ENTRIES] = ask;
		/* Release: pairs with the acquire in complete_some(). */
		atomic_fetch_add_explicit(&u->handed, 1, memory_order_release);
		if (!u->inside)
			ret = submit_last_locked(d, u, sqe);
	}
	exi_unlock(&u->sq);
	return ret;
}

static int post(struct tcpp_domain *d, struct tcpp_op *op)
{
	return request(d, (struct ask){ .op = op });
}

static void kick(struct tcpp_domain *d)
{
	request(d, (struct ask){ 0 });
}

/* Makes a request that no caller waits for to be taken. When nothing is taken
 * any more, a slot the kernel has can only be got back by ending its direction
 * of the connection; that is right for one that is closed. */
static void request_or_fail(struct tcpp_domain *d, struct ask ask)
{
	int saved = errno, ret = request(d, ask);
	struct tcpp_op *op = ask.op;

	if (exi_likely(ret == 0))
		return;
	exi_lock(&d->lock);
	not_taken_locked(d, &ask, ret);
	if (ask.what == CANCEL && ret != -ENOMEM && tcpp_priv(op->conn)->closed)
		shutdown(op->conn->fd, op->dir == EXI_RX ? SHUT_RD : SHUT_WR);
	exi_unlock(&d->lock);
	errno = saved;
}

static void cancel(struct tcpp_domain *d, struct tcpp_op *op)
{
	bool ask;

	exi_lock(&d->lock);
	ask = op->cancel && op->state == TCPP_WAITING && !op->cancelling;
	op->cancel_again = op->cancelling;
	if (ask)
		op->cancelling = true;
	exi_unlock(&d->lock);
	if (ask)
		request_or_fail(d, (struct ask){ .op = op, .what = CANCEL });
}

struct completion {
	uint64_t name;
	int res;
};

static unsigned int reap(struct uring_engine *u, struct completion *ret)
{
	struct io_uring_cqe *cqe[BATCH];
	unsigned int n, i;

	exi_lock(&u->cq);
	n = io_uring_peek_batch_cqe(&u->ring, cqe, BATCH);
	for (i = 0; i < n; i++) {
		ret[i].name = cqe[i]->user_data;
		ret[i].res = cqe[i]->res;
	}
	io_uring_cq_advance(&u->ring, n);
	exi_unlock(&u->cq);
	return n;
}

/* A cancellation may have looked while the request was between two waits, and
 * missed it, or may have found one that was made again since: then it is to be
 * made again too. */
static bool cancel_done_locked(struct tcpp_op *op, int res)
{
	EXI_LOCKED(&tcpp_domain(op->conn->domain)->lock);
	op->cancelling = op->cancel && op->state == TCPP_WAITING &&
			 (op->cancel_again || res == -ENOENT);
	op->cancel_again = false;
	return op->cancelling;
}

static bool watch_done_locked(struct tcpp_domain *d, struct tcpp_op *op,
			      int res)
{
	EXI_LOCKED(&d->lock);
	if (op->cancel) {
		op->state = TCPP_IDLE;
		return false;
	}
	if (!op->stale && res != -ECANCELED) {
		tcpp_op_finish_locked(d, op, 0);
		return false;
	}
	op->stale = false;
	return true;
}

static bool transfer_done_locked(struct tcpp_domain *d, struct tcpp_op *op,
				 int res)
{
	EXI_LOCKED(&d->lock);
	/* Part of it moved, so just now there is no more to move. */
	op->poll_first = res != -ECANCELED;
	return !tcpp_op_step_locked(d, op, res);
}

/* Whether something is to be handed in again, and what. */
static bool completed_locked(struct tcpp_domain *d, const struct completion *c,
			     struct ask *ret)
{
	EXI_LOCKED(&d->lock);
	ret->op = (struct tcpp_op *)(uintptr_t)(c->name & ~(uint64_t)CANCEL);
	ret->what = c->name & CANCEL;
	if (!ret->op)
		return false;
	if (ret->what == CANCEL)
		return cancel_done_locked(ret->op, c->res);
	if (ret->op->watch)
		return watch_done_locked(d, ret->op, c->res);
	return transfer_done_locked(d, ret->op, c->res);
}

static unsigned int complete_some(struct tcpp_domain *d)
{
	struct completion c[BATCH];
	struct ask again[BATCH];
	struct uring_engine *u = engine_of(d);
	unsigned int n = reap(u, c), n_again = 0, i;

	if (n == 0)
		return 0;
	/* Acquire: pairs with the release in request(). */
	atomic_load_explicit(&u->handed, memory_order_acquire);
	exi_lock(&d->lock);
	for (i = 0; i < n; i++)
		n_again += completed_locked(d, &c[i], &again[n_again]);
	exi_unlock(&d->lock);
	for (i = 0; i < n_again; i++)
		request_or_fail(d, again[i]);
	return n;
}

static void flush(struct tcpp_domain *d, int change)
{
	struct uring_engine *u = engine_of(d);

	exi_lock(&u->sq);
	u->inside += (unsigned int)change;
	submit_locked(d, u);
	exi_unlock(&u->sq);
}

static int progress(struct tcpp_domain *d)
{
	unsigned int budget = TCPP_PROGRESS_MAX / BATCH, n;
	int upcalls = 0;

	flush(d, +1);
	do {
		n = complete_some(d);
		upcalls += tcpp_domain_deliver(d);
		flush(d, 0);
	} while (n > 0 && --budget > 0);
	flush(d, -1);
	return upcalls + tcpp_domain_deliver(d);
}

static int event_fd(struct tcpp_domain *d)
{
	return engine_of(d)->ring.ring_fd;
}

static int arm(struct tcpp_domain *d)
{
	struct uring_engine *u = engine_of(d);
	bool busy;

	exi_lock(&u->cq);
	busy = io_uring_cq_ready(&u->ring) ||
	       io_uring_cq_has_overflow(&u->ring);
	exi_unlock(&u->cq);
	exi_lock(&u->sq);
	busy = busy || u->consumed != u->produced;
	exi_unlock(&u->sq);
	exi_lock(&d->lock);
	busy = busy || !exi_list_empty(&d->finished);
	exi_unlock(&d->lock);
	return busy ? -EBUSY : 0;
}

static void release(struct tcpp_domain *d, struct exi_conn *c)
{
}

static bool ops_work(struct io_uring *ring)
{
	/* The last stands for Linux 5.19, whose POLL_FIRST and SUBMIT_ALL are
	 * used; older ones have had too many faults to be worth it. */
	static const int ops[] = { IORING_OP_NOP,	   IORING_OP_POLL_ADD,
				   IORING_OP_ASYNC_CANCEL, IORING_OP_SEND,
				   IORING_OP_RECV,	   IORING_OP_SOCKET };
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool work = probe != NULL;
	size_t i;

	for (i = 0; work && i < sizeof(ops) / sizeof(ops[0]); i++)
		work = io_uring_opcode_supported(probe, ops[i]);
	io_uring_free_probe(probe);
	return work;
}

static void close_engine(void *state)
{
	struct uring_engine *u = state;

	exi_fd_close(u->ring.ring_fd);
	u->ring.ring_fd = u->ring.enter_ring_fd = -1;
	io_uring_queue_exit(&u->ring);
	free(u);
}

static int make_ring(struct uring_engine *u, char *why, size_t len)
{
	struct io_uring_params p = { .flags = IORING_SETUP_CQSIZE |
					      IORING_SETUP_SUBMIT_ALL,
				     .cq_entries = CQ_ENTRIES };
	int ret = io_uring_queue_init_params(SQ_ENTRIES, &u->ring, &p);

	if (ret < 0)
		snprintf(why, len, "io_uring_setup: %s", strerror(-ret));
	return ret;
}

static int open_engine(void **ret, char *why, size_t len)
{
	const unsigned int needed = IORING_FEAT_NODROP | IORING_FEAT_FAST_POLL;
	struct uring_engine *u = calloc(1, sizeof(*u));
	int err;

	if (!u)
		return -ENOMEM;
	err = make_ring(u, why, len);
	if (err < 0) {
		free(u);
		return err;
	}
	err = exi_fd_keep(u->ring.ring_fd);
	u->ring.ring_fd = u->ring.enter_ring_fd = err;
	if (err < 0) {
		snprintf(why, len, "ring descriptor: %s", strerror(-err));
	} else if ((u->ring.features & needed) != needed ||
		   !ops_work(&u->ring)) {
		snprintf(why, len, "Linux 5.19 or newer is needed");
		err = -EOPNOTSUPP;
	}
	if (err < 0) {
		close_engine(u);
		return err;
	}
	*ret = u;
	return 0;
}

const struct tcpp_engine tcpp_uring = {
	.name = "io_uring",
	.open = open_engine,
	.close = close_engine,
	.post = post,
	.cancel = cancel,
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.kick = kick,
	.release = release,
};
