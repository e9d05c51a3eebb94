/* SPDX-License-Identifier: BSD-2-Clause */
/* The domain: its engine, the outcome of transfers, and the upcalls. */
#include "providers/tcp/tcp_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "core/base/config.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"

static int start_locked(struct tcpp_domain *d)
{
	static bool told; /* each use tries again, and the first one says so */
	char why[128] = "";
	void *state = NULL;
	int ret;

	EXI_LOCKED(&d->lock);
	ret = d->engine->open(&state, why, sizeof(why));
	if (ret < 0 && d->engine != &tcpp_epoll) {
		exi_warn("tcp uses epoll, io_uring is refused: %s", why);
		d->engine = &tcpp_epoll;
		ret = d->engine->open(&state, why, sizeof(why));
	}
	if (ret < 0) {
		if (!told)
			exi_error("the library cannot start: %s", why);
		told = true;
		return ret;
	}
	d->base.post_from_service = d->engine != &tcpp_epoll;
	exi_debug("tcp engine %s", d->engine->name);
	/* Release: pairs with tcpp_domain_state(). */
	atomic_store_explicit(&d->state, state, memory_order_release);
	return 0;
}

int tcpp_domain_start(struct tcpp_domain *d)
{
	int ret = 0;

	if (exi_likely(tcpp_domain_state(d)))
		return 0;
	exi_lock(&d->lock);
	if (!tcpp_domain_state(d))
		ret = start_locked(d);
	exi_unlock(&d->lock);
	return ret;
}

/* epoll keeps the order of connections: the thread that submits passes the
 * receive to the kernel itself. io_uring's requests are the service thread's,
 * which is informed of them. */
static const struct tcpp_engine *first_engine(void)
{
	if (exi_config()->tcp_engine == EXI_TCP_ENGINE_IO_URING)
		return &tcpp_uring;
	return &tcpp_epoll;
}

int tcpp_domain_open(struct exi_domain **ret)
{
	struct tcpp_domain *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	d->base.provider = &exi_provider_tcp;
	d->engine = first_engine();
	d->generation = 1;
	exi_list_init(&d->finished);
	err = tcpp_domain_start(d);
	if (err) {
		free(d);
		return err;
	}
	*ret = &d->base;
	return 0;
}

/* Puts the state out of sight and frees it. */
static void drop_state(struct tcpp_domain *d)
{
	void *state = tcpp_domain_state(d);

	atomic_store_explicit(&d->state, NULL, memory_order_relaxed);
	if (state)
		d->engine->close(state);
}

void tcpp_domain_close(struct exi_domain *base)
{
	if (!base)
		return;
	drop_state(tcpp_domain(base));
	free(base);
}

/* The lock and the lists are as some thread of the parent left them, perhaps
 * half-way: they are made anew, and connections do the same when they see the
 * generation. The engine starts again at first need. */
static void forked(struct exi_domain *base)
{
	struct tcpp_domain *d = tcpp_domain(base);

	atomic_store_explicit(&d->lock.word, 0, memory_order_relaxed);
	exi_list_init(&d->finished);
	d->generation++;
	drop_state(d);
}

void tcpp_op_finish_locked(struct tcpp_domain *d, struct tcpp_op *op,
			   ssize_t result)
{
	EXI_LOCKED(&d->lock);
	assert(op->state != TCPP_IDLE && op->state != TCPP_FINISHED);
	op->state = TCPP_FINISHED;
	op->result = result;
	exi_list_add_tail(&d->finished, &op->node);
}

void tcpp_op_cancelled_locked(struct tcpp_domain *d, struct tcpp_op *op)
{
	ssize_t moved = (ssize_t)op->moved;

	EXI_LOCKED(&d->lock);
	if (op->watch)
		op->state = TCPP_IDLE;
	else
		tcpp_op_finish_locked(d, op, moved ? moved : -ECANCELED);
}

/* A watch reports that bytes can move: the call that follows gets the error. */
void tcpp_op_fail_locked(struct tcpp_domain *d, struct tcpp_op *op, int err)
{
	EXI_LOCKED(&d->lock);
	if (op->cancel)
		tcpp_op_cancelled_locked(d, op);
	else if (op->watch || op->moved)
		tcpp_op_finish_locked(d, op, (ssize_t)op->moved);
	else
		tcpp_op_finish_locked(d, op, err);
}

/* Whether all that was asked for has moved. */
static bool satisfied(const struct tcpp_op *op)
{
	const struct exi_xfer *x = op->xfer;

	if (op->moved == x->len)
		return true;
	return op->dir == EXI_RX &&
	       (!(x->flags & MSG_WAITALL) || (x->flags & MSG_PEEK));
}

/* Whether the same call may do better later, as nothing moved. The kernel
 * cancels an io_uring request when the thread that made it ends. */
static bool is_passing(ssize_t n)
{
	return n == -EAGAIN || n == -EINTR || n == -ECANCELED;
}

/* Errors of one call, or that each call finds anew. Others are the
 * connection's: the kernel reports one once, and forgets it. */
static bool is_lasting(int err)
{
	switch (-err) {
	case EPIPE:
	case EFAULT:
	case EINVAL:
	case EBADF:
	case ENOTSOCK:
	case EOPNOTSUPP:
	case ENOMEM:
	case ENOBUFS:
		return false;
	default:
		return true;
	}
}

/* Bytes that moved are reported before an error. The error must be kept, or a
 * reset would look like an orderly end. */
static void transfer_fail_locked(struct tcpp_domain *d, struct tcpp_op *op,
				 ssize_t err)
{
	struct tcpp_conn *p = tcpp_priv(op->conn);
	ssize_t moved = (ssize_t)op->moved;

	EXI_LOCKED(&d->lock);
	if (moved && is_lasting((int)err))
		atomic_store_explicit(&p->error, (int)-err,
				      memory_order_relaxed);
	tcpp_op_finish_locked(d, op, moved ? moved : err);
}

bool tcpp_op_step_locked(struct tcpp_domain *d, struct tcpp_op *op, ssize_t n)
{
	EXI_LOCKED(&d->lock);
	if (n > 0)
		op->moved += (size_t)n;
	if (n == 0 || (n > 0 && satisfied(op)))
		tcpp_op_finish_locked(d, op, (ssize_t)op->moved);
	else if (n < 0 && !is_passing(n))
		transfer_fail_locked(d, op, n);
	else if (op->cancel)
		tcpp_op_cancelled_locked(d, op);
	return op->state == TCPP_FINISHED;
}

/* The lock is given up for the upcall, and the slot may be in use again when
 * it returns; conn is there until upcalls is 0 again: stop() waits. */
static void upcall_locked(struct tcpp_domain *d, struct tcpp_op *op)
{
	struct exi_conn *c = op->conn;
	struct exi_xfer *x = op->xfer;
	enum exi_dir dir = op->dir;
	ssize_t result = op->result;

	EXI_LOCKED(&d->lock);
	op->xfer = NULL;
	op->state = TCPP_IDLE;
	tcpp_priv(c)->upcalls++;
	exi_unlock(&d->lock);
	if (x)
		x->done(x, result);
	else
		exi_conn_ready(c, dir);
	exi_lock(&d->lock);
	tcpp_priv(c)->upcalls--;
}

int tcpp_domain_deliver(struct tcpp_domain *d)
{
	struct exi_list *node;
	int n = 0;

	exi_lock(&d->lock);
	while (n < TCPP_PROGRESS_MAX &&
	       (node = exi_list_pop(&d->finished)) != NULL) {
		upcall_locked(d, exi_container(node, struct tcpp_op, node));
		n++;
	}
	exi_unlock(&d->lock);
	return n;
}

static int progress(struct exi_domain *base)
{
	struct tcpp_domain *d = tcpp_domain(base);
	int saved = errno, n;

	if (!tcpp_domain_state(d))
		return 0;
	n = d->engine->progress(d);
	errno = saved;
	return n;
}

/* A child's differs from its parent's: ask for it again after forked(). */
static int event_fd(struct exi_domain *base)
{
	struct tcpp_domain *d = tcpp_domain(base);
	int ret = tcpp_domain_start(d);

	return ret < 0 ? ret : d->engine->event_fd(d);
}

static int arm(struct exi_domain *base)
{
	struct tcpp_domain *d = tcpp_domain(base);

	return tcpp_domain_state(d) ? d->engine->arm(d) : 0;
}

const struct exi_domain_ops tcpp_domain_ops = {
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.forked = forked,
};
