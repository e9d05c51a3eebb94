/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations that continue (EXS_X_MULTI). */
#include "core/transfer/multi.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/types.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "core/transfer/attempt.h"
#include "core/transfer/finish.h"
#include "core/transfer/half.h"
#include "core/transfer/lanes.h"
#include "core/transfer/op.h"
#include "core/transfer/queue.h"
#include "core/transfer/timeout.h"

/* Makes room for that many more, allocated without the lock; *spare is what
 * must be freed. */
static int grow_locked(struct exi_queue *q, int n, struct exi_buffer **spare)
{
	int need;
	void *more;

	EXI_LOCKED(&q->lock);
	while ((need = q->n_buffers + q->n_taken + n) > q->buffers_room) {
		int room = need > INT_MAX / 2 ? need : 2 * need;

		exi_unlock(&q->lock);
		free(*spare);
		more = *spare = calloc((size_t)room, sizeof(**spare));
		exi_lock(&q->lock);
		if (!more)
			return -ENOMEM;
		if (q->n_buffers + q->n_taken + n > room ||
		    room <= q->buffers_room)
			continue; /* others gave some meanwhile */
		if (q->n_buffers)
			memcpy(more, q->buffers,
			       (size_t)q->n_buffers * sizeof(**spare));
		*spare = q->buffers;
		q->buffers = more;
		q->buffers_room = room;
	}
	return 0;
}

int exi_multi_provide(struct exi_queue *q, exs_qhandle_t h, void *mem,
		      size_t len, int n)
{
	struct exi_buffer *spare = NULL;
	int ret;

	/* The buffers are the root's. */
	exi_lanes_end(q);
	exi_lock(&q->lock);
	ret = n > INT_MAX / 4 - q->n_buffers - q->n_taken
		      ? -ENOMEM
		      : grow_locked(q, n, &spare);
	if (!ret && atomic_load(&q->handle) != h)
		ret = -EINVAL;
	/* The first is taken first. */
	while (!ret && n--)
		q->buffers[q->n_buffers++] = (struct exi_buffer){
			.at = (char *)mem + (size_t)n * len, .len = len
		};
	exi_unlock(&q->lock);
	free(spare);
	return ret;
}

static bool take(struct exi_queue *q, struct exi_buffer *ret)
{
	bool any;

	exi_lock(&q->lock);
	any = q->n_buffers > 0;
	if (any) {
		*ret = q->buffers[--q->n_buffers];
		q->n_taken++;
	}
	exi_unlock(&q->lock);
	return any;
}

static void keep(struct exi_queue *q, const struct exi_buffer *b)
{
	exi_lock(&q->lock);
	q->n_taken--;
	if (b)
		q->buffers[q->n_buffers++] = *b;
	exi_unlock(&q->lock);
}

/* A slot for an event that is not the last. */
static struct exi_op *spare(const struct exi_op *op)
{
	struct exi_op *ret;

	/* The queue stays as long as it has the operation. */
	if (exi_queue_reserve(atomic_load(&op->queue->handle),
			      EXS_MHANDLE_UNREGISTERED, NULL, 0, &ret))
		return NULL;
	ret->type = op->type;
	ret->fd = op->fd;
	ret->ahandle = op->ahandle;
	ret->event_flags = EXS_X_MORE;
	return ret;
}

bool exi_multi_accepted(struct exi_op *op)
{
	struct exi_op *event = op->multi && !op->err ? spare(op) : NULL;

	if (!event)
		return false;
	event->newfd = op->newfd;
	op->newfd = -1;
	exi_op_complete(event);
	return true;
}

/* The receive left its list. Without an error, and not for good: because the
 * kernel has something, which the next attempt takes. */
static void left_locked(struct exi_sock *sk, enum exi_dir dir,
			struct exi_op *op, int err)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (!err && op->cancelled)
		err = ECANCELED; /* no thread is left to try again */
	if (!err && op->multi) {
		exi_list_add_head(&sk->ops[dir], &op->node);
		exi_flow_count_ops_locked(sk, dir, 1);
		return;
	}
	op->err = err == ECANCELED ? exi_op_cancel_error(op) : err;
	exi_op_complete(op);
}

void exi_multi_receive(struct exi_op *op)
{
	op->multi = true;
	op->ended = left_locked;
	op->flags = 0;
	op->arg = NULL;
}

/* Its last event, with so many bytes in the buffer. */
static void last_locked(struct exi_sock *sk, struct exi_op *op, void *at,
			size_t n, int err)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	op->multi = false;
	op->arg = at;
	op->done = n;
	exi_flow_finish_locked(sk, EXI_RX, op, err);
}

bool exi_multi_try_locked(struct exi_sock *sk, struct exi_half *h,
			  struct exi_op *op, int flags, ssize_t *ret)
{
	struct exi_buffer b = { 0 };
	bool has = take(op->queue, &b);
	struct exi_op *event;

	EXI_LOCKED(&h->lock);
	*ret = exi_flow_try_recv_locked(sk, h, b.at, b.len, flags);
	if (has)
		keep(op->queue, *ret <= 0 ? &b : NULL);
	if (*ret < 0)
		return false;
	if (*ret == 0) { /* the end, or there is no buffer for what came */
		last_locked(sk, op, NULL, 0, has ? 0 : ENOBUFS);
		return true;
	}
	event = spare(op);
	if (!event) {
		last_locked(sk, op, b.at, (size_t)*ret, 0);
		return true;
	}
	event->arg = b.at;
	event->done = (size_t)*ret;
	exi_timeout_begins_locked(sk, EXI_RX);
	exi_op_complete(event);
	return true;
}
