/* SPDX-License-Identifier: BSD-2-Clause */
/* Event queues: slots, completions, waiting for them.
 *
 * Queues are found by handle without a lock; their memory is never given back,
 * so a stale handle finds a queue with another handle. A thread in dequeue
 * polls the hot directions, then sleeps on the queue's word and on the words of
 * the hot directions at once: whichever peer writes wakes it directly. */
#include "core/transfer/queue.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/spin.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/transfer/lanes.h"
#include "core/transfer/mem.h"
#include "core/transfer/op.h"
#include "core/transfer/parts.h"

#define INDEX_BITS 12

static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic(struct exi_queue *) exi_queues[EXI_QUEUES_MAX];
static int generation;

/* --- handles ------------------------------------------------------------ */

static void set_slots(struct exi_queue *q, struct exi_op *ops, int depth)
{
	q->ops = ops;
	q->depth = depth;
	exi_list_init(&q->free);
	for (int i = 0; i < depth; i++) {
		ops[i].queue = q;
		ops[i].region = NULL;
		exi_list_add_tail(&q->free, &ops[i].node);
	}
}

static struct exi_op *slots_new(int depth)
{
	return exi_lanes_memory((size_t)depth * sizeof(struct exi_op));
}

static int setup(struct exi_queue *q, int depth, int index)
{
	struct exi_op *ops = slots_new(depth);

	if (!ops)
		return -ENOMEM;
	exi_lock(&q->lock);
	q->n_done = q->n_used = 0;
	atomic_store(&q->sleepers, 0);
	q->qfd = -1;
	q->wait = EXS_WAIT_ADAPTIVE;
	q->signal = (exs_signal_t){ 0 };
	q->spin = (struct exi_spin){ 0 };
	exi_list_init(&q->done);
	set_slots(q, ops, depth);
	atomic_store(&q->ready, 0);
	atomic_store(&q->n_hot, 0);
	atomic_store(&q->n_hot_rx, 0);
	atomic_store(&q->deleted, false);
	atomic_store(&q->family.flat, false);
	q->joins = 0;
	generation = (generation + 1) & ((1 << 18) - 1);
	if (!generation)
		generation = 1;
	atomic_store(&q->handle, generation << INDEX_BITS | index);
	exi_unlock(&q->lock);
	return 0;
}

/* It has no handle, and no thread looks at it or at a lane. */
static bool is_free(const struct exi_queue *q)
{
	const struct exi_queue *m;

	if (atomic_load(&q->handle) || atomic_load(&q->users) ||
	    atomic_load(&q->attended))
		return false;
	for (int i = 1; (m = exi_lanes_member(q, i)); i++)
		if (atomic_load(&m->attended))
			return false;
	return true;
}

int exi_queue_create(int depth, exs_qhandle_t *ret)
{
	struct exi_queue *q = NULL;
	int i, err = -EMFILE;

	if (depth <= 0 || depth > EXS_QDEPTH_MAX)
		return -EINVAL;
	exi_mutex_lock(&queues_lock);
	for (i = 0; i < EXI_QUEUES_MAX; i++) {
		q = atomic_load(&exi_queues[i]);
		if (!q) {
			q = exi_lanes_memory(sizeof(*q));
			err = -ENOMEM;
			if (!q)
				break;
			q->root = q;
			atomic_store(&exi_queues[i], q);
		}
		if (is_free(q)) {
			err = setup(q, depth, i);
			if (!err)
				*ret = atomic_load(&q->handle);
			break;
		}
	}
	exi_mutex_unlock(&queues_lock);
	return err;
}

struct exi_queue *exi_queue_get(exs_qhandle_t h)
{
	struct exi_queue *q = exi_queue_at(h);

	if (exi_unlikely(!q))
		return NULL;
	atomic_fetch_add(&q->users, 1);
	if (exi_likely(atomic_load(&q->handle) == h))
		return q;
	atomic_fetch_sub(&q->users, 1);
	return NULL;
}

void exi_queue_put(struct exi_queue *q)
{
	atomic_fetch_sub_explicit(&q->users, 1, memory_order_release);
}

int exi_queue_delete(exs_qhandle_t h)
{
	struct exi_queue *q = exi_queue_get(h);
	struct exi_buffer *buffers;
	struct exi_op *ops;
	int qfd;

	if (!q)
		return -EINVAL;
	exi_lanes_lock_all(q);
	if (!exi_lanes_end_idle_locked(q, false) || atomic_load(&q->deleted)) {
		bool deleted = atomic_load(&q->deleted);

		exi_lanes_unlock_all(q);
		exi_queue_put(q);
		return deleted ? -EINVAL : -EBUSY;
	}
	atomic_store(&q->deleted, true);
	exi_list_init(&q->done);
	q->n_done = q->n_used = 0;
	atomic_store(&q->ready, 0);
	exi_queue_forget_hot_locked(q);
	qfd = q->watchers ? -1 : q->qfd;
	if (q->watchers)
		eventfd_write(q->qfd, 1); /* the last of them closes it */
	else
		q->qfd = -1;
	ops = q->ops;
	q->ops = NULL;
	buffers = q->buffers;
	q->buffers = NULL;
	q->n_buffers = q->buffers_room = 0;
	exi_list_init(&q->free);
	atomic_store(&q->handle, 0);
	exi_queue_wake_locked(q);
	exi_lanes_unlock_all(q);
	exi_fd_close(qfd);
	free(ops);
	free(buffers);
	exi_queue_put(q);
	return 0;
}

/* --- slots and completions ---------------------------------------------- */

/* In two pieces, which become stores: for all of it at once, compilers make a
 * string instruction that takes longer than the rest of the call. */
static void clear(struct exi_op *op)
{
	exi_list_init(&op->node);
	memset(&op->type, 0,
	       offsetof(struct exi_op, buf) - offsetof(struct exi_op, type));
	memset(&op->buf, 0,
	       offsetof(struct exi_op, to_len) - offsetof(struct exi_op, buf));
}

void exi_op_describe(struct exi_op *op, const exs_x_op_t *o)
{
	clear(op);
	op->type = o->exs_x_type;
	op->fd = o->exs_x_socket;
	op->ahandle = o->exs_x_ahandle;
	op->arg = op->buf = o->exs_x_buffer;
	op->run = op->len = o->exs_x_length;
	op->flags = o->exs_x_flags;
}

/* Locks the calling thread's member of the queue. */
static inline struct exi_queue *lock_own(struct exi_queue *root,
					 exs_qhandle_t h)
{
	return exi_likely(!atomic_load_explicit(&root->family.n_lanes,
						memory_order_relaxed) &&
			  exi_trylock(&root->lock))
		       ? root
		       : exi_lanes_lock_own(root, h);
}

/* The operation has moved from q, which is locked: locks where it is. */
static __attribute__((noinline)) struct exi_queue *
follow_locked(struct exi_queue *q, const struct exi_op *op)
{
	struct exi_queue *now;

	EXI_LOCKED(&q->lock);
	while ((now = atomic_load_explicit(&op->queue, memory_order_relaxed)) !=
	       q) {
		exi_unlock(&q->lock);
		q = now;
		exi_lock(&q->lock);
	}
	return q;
}

/* Locks the member that has the operation, or the event in its slot; it was
 * in q. */
static inline struct exi_queue *lock_of(struct exi_queue *q,
					const struct exi_op *op)
{
	exi_lock(&q->lock);
	return exi_likely(atomic_load_explicit(&op->queue,
					       memory_order_relaxed) == q)
		       ? q
		       : follow_locked(q, op);
}

/* For how many of them there is a slot, and a region. */
static int reserve_locked(struct exi_queue *q, const exs_x_op_t *o, int n,
			  struct exi_op **ret, int *ret_err)
{
	struct exi_list *node = q->free.next;
	struct exi_region *region = NULL;
	const struct exi_memory *mem = NULL;
	int i;

	EXI_LOCKED(&q->lock);
	for (i = 0; i < n; i++, node = node->next) {
		/* Mostly of the region of the one before. */
		if (!mem || o[i].exs_x_mhandle != o[i - 1].exs_x_mhandle ||
		    !exi_mem_covers(mem, o[i].exs_x_buffer,
				    o[i].exs_x_length)) {
			*ret_err = exi_mem_find(o[i].exs_x_mhandle,
						o[i].exs_x_buffer,
						o[i].exs_x_length, &region);
			if (exi_unlikely(*ret_err))
				break;
			mem = exi_mem_of(region);
		}
		*ret_err = -EAGAIN;
		if (exi_unlikely(node == &q->free))
			break;
		ret[i] = exi_container(node, struct exi_op, node);
		ret[i]->region = region;
	}
	if (i == n)
		*ret_err = 0;
	q->free.next = node;
	node->prev = &q->free;
	q->n_used += i;
	return i;
}

int exi_queue_reserve_some(exs_qhandle_t h, const exs_x_op_t *o, int n,
			   struct exi_op **ret, int *ret_err)
{
	struct exi_queue *root = exi_queue_at(h), *q, *first = NULL;
	int i = 0;

	*ret_err = -EINVAL;
	if (exi_unlikely(!root))
		return 0;
	do {
		q = lock_own(root, h);
		if (!first || atomic_load_explicit(&first->handle,
						   memory_order_relaxed) != h)
			first = q;
		if (exi_unlikely(atomic_load_explicit(&q->handle,
						      memory_order_relaxed) !=
				 h))
			*ret_err = -EINVAL; /* the queue was deleted */
		else if (exi_likely(q == first))
			i += reserve_locked(q, o + i, n - i, ret + i, ret_err);
		exi_unlock(&q->lock);
	} while (exi_unlikely(*ret_err == -EAGAIN) && q == first &&
		 exi_lanes_gather(q, h, n - i));
	return i;
}

/* The first of the free slots is used. */
static inline void take_first_locked(struct exi_queue *q, struct exi_op *op)
{
	EXI_LOCKED(&q->lock);
	q->free.next = op->node.next;
	op->node.next->prev = &q->free;
	q->n_used++;
}

/* The member has no slot. */
static __attribute__((noinline)) int reserve_rare(struct exi_queue *q,
						  exs_qhandle_t h,
						  const exs_x_op_t *o,
						  struct exi_op **ret)
{
	return exi_lanes_gather(q, h, 1) ? exi_queue_reserve_one(h, o, ret)
					 : -EAGAIN;
}

int exi_queue_reserve_one(exs_qhandle_t h, const exs_x_op_t *o,
			  struct exi_op **ret)
{
	struct exi_queue *root = exi_queue_at(h), *q;
	struct exi_region *region = NULL;
	struct exi_list *node;
	int err = -EINVAL;

	if (exi_unlikely(!root))
		return err;
	q = lock_own(root, h);
	node = q->free.next;
	if (exi_likely(atomic_load_explicit(&q->handle, memory_order_relaxed) ==
		       h))
		err = exi_mem_find(o->exs_x_mhandle, o->exs_x_buffer,
				   o->exs_x_length, &region);
	if (exi_likely(!err) && exi_unlikely(node == &q->free))
		err = -EAGAIN;
	if (exi_likely(!err)) {
		*ret = exi_container(node, struct exi_op, node);
		(*ret)->region = region;
		take_first_locked(q, *ret);
	}
	exi_unlock(&q->lock);
	return exi_likely(err != -EAGAIN) ? err : reserve_rare(q, h, o, ret);
}

struct exi_op *exi_queue_begin(struct exi_queue *q, exs_qhandle_t h,
			       const exs_x_op_t *o)
{
	struct exi_region *region;
	struct exi_list *node;
	struct exi_op *op;

	if (exi_unlikely(!exi_trylock(&q->lock)))
		return NULL;
	node = q->free.next;
	if (exi_unlikely(atomic_load_explicit(&q->handle,
					      memory_order_relaxed) != h ||
			 node == &q->free ||
			 exi_mem_find(o->exs_x_mhandle, o->exs_x_buffer,
				      o->exs_x_length, &region))) {
		exi_unlock(&q->lock);
		return NULL;
	}
	op = exi_container(node, struct exi_op, node);
	op->region = region;
	return op;
}

void exi_queue_take_slot_unlock(struct exi_queue *q, struct exi_op *op)
{
	take_first_locked(q, op);
	exi_unlock(&q->lock);
}

int exi_queue_reserve(exs_qhandle_t h, exs_mhandle_t m, const void *buf,
		      size_t len, struct exi_op **ret)
{
	exs_x_op_t o = { .exs_x_mhandle = m,
			 .exs_x_buffer = (void *)(uintptr_t)buf,
			 .exs_x_length = len };
	int err = exi_queue_reserve_one(h, &o, ret);

	if (!err)
		clear(*ret);
	return err;
}

static void end_slot(struct exi_op *op)
{
	op->region = NULL;
	op->queued = false;
	if (exi_unlikely(op->parts))
		exi_parts_release(op);
}

static void free_slot_locked(struct exi_queue *q, struct exi_op *op)
{
	EXI_LOCKED(&q->lock);
	end_slot(op);
	q->n_used--;
	exi_list_add_head(&q->free, &op->node);
}

void exi_queue_unreserve(struct exi_op *op)
{
	struct exi_queue *q = lock_of(op->queue, op);

	free_slot_locked(q, op);
	exi_unlock(&q->lock);
}

int exi_queue_post(exs_qhandle_t q, exs_ahandle_t a)
{
	struct exi_op *op;
	int err = exi_queue_reserve(q, EXS_MHANDLE_UNREGISTERED, NULL, 0, &op);

	if (err)
		return err;
	op->type = EXS_X_EVT_USER;
	op->fd = -1;
	op->ahandle = a;
	exi_op_complete(op);
	return 0;
}

int exi_queue_keep(exs_qhandle_t q, struct exi_op **ret)
{
	int err = exi_queue_reserve(q, EXS_MHANDLE_UNREGISTERED, NULL, 0, ret);

	if (!err)
		(*ret)->kept = true;
	return err;
}

/* The slot counts once, its event once more. */
void exi_queue_let_go(struct exi_op *op)
{
	struct exi_queue *q = lock_of(op->queue, op);

	op->kept = false;
	if (op->queued)
		q->n_used--; /* it goes with the event */
	else
		free_slot_locked(q, op);
	exi_unlock(&q->lock);
}

_Thread_local struct exi_queue_taker exi_queue_taker;

/* The event of an operation that is in no list; its slot is free. */
static void take_locked(struct exi_queue *q, struct exi_op *op, exs_event_t *ev)
{
	EXI_LOCKED(&q->lock);
	exi_op_event(op, ev);
	if (exi_unlikely(op->kept)) {
		op->queued = false;
		q->n_used--;
	} else {
		free_slot_locked(q, op);
	}
}

static void complete_locked(struct exi_queue *q, struct exi_op *op)
{
	EXI_LOCKED(&q->lock);
	if (exi_unlikely(op->kept)) {
		if (op->queued)
			return;
		op->queued = true;
		q->n_used++;
	}
	if (exi_queue_taker.q == q && exi_queue_taker.n < exi_queue_taker.max &&
	    exi_queue_taker.handle ==
		    atomic_load_explicit(&q->handle, memory_order_relaxed) &&
	    q->n_done == 0 && !q->signal.exs_enable) {
		take_locked(q, op, &exi_queue_taker.ev[exi_queue_taker.n++]);
		return;
	}
	exi_list_add_tail(&q->done, &op->node);
	q->n_done++;
}

/* Reports the events that came since there were so many; unlocks. */
static void tell_unlock(struct exi_queue *q, int before)
{
	int signo = 0;

	if (q->n_done > before) {
		atomic_store_explicit(&q->ready, q->n_done,
				      memory_order_release);
		exi_queue_wake_locked(q);
		if (exi_unlikely(q->qfd >= 0) && before == 0)
			eventfd_write(q->qfd, 1);
		if (before == 0 && q->signal.exs_enable)
			signo = q->signal.exs_signo;
	}
	exi_unlock(&q->lock);
	if (exi_unlikely(signo))
		kill(getpid(), signo);
}

void exi_queue_over_unlock(struct exi_queue *q, struct exi_op *op)
{
	int before = q->n_done;

	take_first_locked(q, op);
	exi_list_add_tail(&q->done, &op->node);
	q->n_done++;
	tell_unlock(q, before);
}

void exi_op_complete(struct exi_op *op)
{
	struct exi_queue *q =
		atomic_load_explicit(&op->queue, memory_order_relaxed);
	int before;

	if (!q) {
		/* On a stack: not ours any more after the store. */
		const uint32_t *word = (const uint32_t *)&op->finished;

		atomic_store_explicit(&op->finished, 1, memory_order_release);
		exi_futex_wake(word, 1);
		return;
	}
	q = lock_of(q, op);
	before = q->n_done;
	complete_locked(q, op);
	tell_unlock(q, before);
}

/* The first of ops, and those behind it that are of the same queue. */
static void complete_some(struct exi_list *ops)
{
	struct exi_op *first = exi_container(ops->next, struct exi_op, node);
	struct exi_queue *q = lock_of(first->queue, first);
	struct exi_list *pos;
	int before = q->n_done, n = 0;

	exi_list_for_each (pos, ops) {
		if (atomic_load_explicit(
			    &exi_container(pos, struct exi_op, node)->queue,
			    memory_order_relaxed) != q)
			break;
		n++;
	}
	if (exi_queue_taker.q == q) {
		while (n--)
			complete_locked(q, exi_container(exi_list_pop(ops),
							 struct exi_op, node));
	} else {
		exi_list_move(ops, pos->prev, &q->done);
		q->n_done += n;
	}
	tell_unlock(q, before);
}

void exi_op_complete_all(struct exi_list *ops)
{
	while (!exi_list_empty(ops)) {
		struct exi_op *op =
			exi_container(ops->next, struct exi_op, node);

		if (op->queue) {
			complete_some(ops);
		} else {
			exi_list_del(&op->node);
			exi_op_complete(op);
		}
	}
}

/* As many as there are whose slots end with their events: those go together. */
static int take_run(struct exi_queue *q, exs_event_t *ev, int max)
{
	struct exi_list *pos;
	int n = 0;

	exi_list_for_each (pos, &q->done) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (n == max || op->kept)
			break;
		exi_op_event(op, &ev[n++]);
		end_slot(op);
	}
	if (n)
		exi_list_move(&q->done, pos->prev, q->free.next);
	q->n_used -= n;
	return n;
}

int exi_queue_take_events(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
			  int max)
{
	struct exi_list *node;
	eventfd_t drained;
	int n;

	if (exi_unlikely(!exi_trylock(&q->lock))) {
		exi_lanes_crowded(q, h, EXI_LANES_TAKES);
		exi_lock(&q->lock);
	}
	if (exi_unlikely(atomic_load_explicit(&q->handle,
					      memory_order_relaxed) != h))
		max = 0;
	n = take_run(q, ev, max);
	while (n < max && (node = exi_list_pop(&q->done)))
		take_locked(q, exi_container(node, struct exi_op, node),
			    &ev[n++]);
	q->n_done -= n;
	atomic_store_explicit(&q->ready, q->n_done, memory_order_release);
	if (exi_unlikely(q->qfd >= 0) && n && q->n_done == 0)
		eventfd_read(q->qfd, &drained);
	exi_unlock(&q->lock);
	return n;
}

/* Whether nobody came to the member since the last look. */
static bool is_left(struct exi_queue *q, const struct exi_queue *m, int i)
{
	uint32_t visits =
		atomic_load_explicit(&m->visits, memory_order_relaxed);

	return atomic_exchange_explicit(&q->visits_left[i], visits,
					memory_order_relaxed) == visits;
}

int exi_queue_take_others(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
			  int max, bool left)
{
	struct exi_queue *m;
	int n = 0;

	for (int i = 0; n < max && (m = exi_lanes_member(q, i)); i++)
		if (m != q && (!left || is_left(q, m, i)) &&
		    atomic_load_explicit(&m->ready, memory_order_relaxed))
			n += exi_queue_take_events(m, h, ev + n, max - n);
	return n;
}

void exi_queue_wake_all(void)
{
	struct exi_queue *m;
	int i;

	for (i = 0; i < EXI_QUEUES_MAX; i++) {
		struct exi_queue *q = atomic_load(&exi_queues[i]);

		if (!q)
			break;
		for (int k = 0; (m = exi_lanes_member(q, k)); k++) {
			exi_lock(&m->lock);
			atomic_fetch_add(&m->hot_changes, 1);
			exi_queue_wake_locked(m);
			exi_unlock(&m->lock);
		}
	}
}

/* The slots are moved to a larger or smaller array; nothing may be in use. */
int exi_queue_deepen(struct exi_queue *q, int depth)
{
	struct exi_op *ops, *old;

	if (depth <= 0 || depth > EXS_QDEPTH_MAX)
		return -EINVAL;
	ops = slots_new(depth);
	if (!ops)
		return -ENOMEM;
	exi_lanes_lock_all(q);
	if (!exi_lanes_end_idle_locked(q, true)) {
		exi_lanes_unlock_all(q);
		free(ops);
		return -EBUSY;
	}
	old = q->ops;
	set_slots(q, ops, depth);
	exi_lanes_unlock_all(q);
	free(old);
	return 0;
}

int exi_queue_status(struct exi_queue *q, int attr, void *val, size_t *len)
{
	int v;

	if (!val || !len)
		return -EFAULT;
	if (attr == EXS_QATTR_SIGNAL) {
		if (*len < sizeof(q->signal))
			return -EINVAL;
		exi_lock(&q->lock);
		memcpy(val, &q->signal, sizeof(q->signal));
		exi_unlock(&q->lock);
		*len = sizeof(q->signal);
		return 0;
	}
	if (*len < sizeof(int))
		return -EINVAL;
	if (attr == EXS_QATTR_DEPTH)
		v = q->depth;
	else if (attr == EXS_QATTR_EVENTS)
		v = exi_lanes_count_ready(q);
	else if (attr == EXS_QATTR_WAIT)
		v = q->wait;
	else
		return -EINVAL;
	memcpy(val, &v, sizeof(v));
	*len = sizeof(v);
	return 0;
}

bool exi_queue_uses(const struct exi_region *r)
{
	struct exi_queue *m;
	bool found = false;
	int used;

	for (int i = 0; i < EXI_QUEUES_MAX && !found; i++) {
		struct exi_queue *q = atomic_load(&exi_queues[i]);

		if (!q)
			break;
		exi_lanes_lock_all(q);
		used = 0;
		for (int k = 0; (m = exi_lanes_member(q, k)); k++)
			used += m->n_used;
		for (int k = 0; used && k < q->depth && !found; k++)
			found = q->ops[k].region == r;
		exi_lanes_unlock_all(q);
	}
	return found;
}

void exi_queue_forked(void)
{
	int i;

	pthread_mutex_init(&queues_lock, NULL);
	/* Operations belong to the parent: the child's queues are empty. */
	for (i = 0; i < EXI_QUEUES_MAX; i++) {
		struct exi_queue *q = atomic_load(&exi_queues[i]);

		if (!q)
			break;
		if (atomic_load(&q->handle) == 0)
			continue;
		atomic_store(&q->lock.word, 0);
		atomic_store(&q->users, 0);
		atomic_store(&q->attended, 0);
		q->sleepers = 0;
		q->watchers = 0;
		q->n_done = q->n_used = q->n_taken = 0;
		atomic_store(&q->ready, 0);
		atomic_store(&q->n_hot, 0);
		atomic_store(&q->n_hot_rx, 0);
		exi_lanes_forked(q);
		exi_list_init(&q->done);
		for (int k = 0; k < q->depth; k++)
			exi_parts_release(&q->ops[k]);
		set_slots(q, q->ops, q->depth);
		if (q->qfd >= 0)
			q->qfd = exi_fd_keep(
				eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	}
}
