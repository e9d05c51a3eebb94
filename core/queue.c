/* SPDX-License-Identifier: BSD-2-Clause */
/* Event queues: slots, completions, waiting for them.
 *
 * Queues are found by handle without a lock; their memory is never given back,
 * so a stale handle meets a queue with another handle. A thread in dequeue
 * polls the hot directions, then sleeps on the queue's word and on the words
 * of the hot directions at once: whichever peer writes wakes it directly. */
#include "core/queue.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/busy.h"
#include "core/flow.h"
#include "core/futex.h"
#include "core/mem.h"
#include "core/parts.h"
#include "core/place.h"
#include "core/service.h"
#include "core/sock.h"
#include "core/wait.h"

#define QUEUES_MAX 4096
#define INDEX_BITS 12
/* Ticks without anything unattended until they stop: to begin again costs a
 * message as much as one of them. */
#define IDLE_TICKS 3
/* Milliseconds between ticks, at most; and how often in one who comes to his queue
 * all the time does. */
#define TICK_MAX 4
#define OFTEN	 32

static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct exi_queue *) queues[QUEUES_MAX];
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

static int setup(struct exi_queue *q, int depth, int index)
{
	struct exi_op *ops = calloc((size_t)depth, sizeof(*ops));

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
	atomic_store(&q->deleted, false);
	generation = (generation + 1) & ((1 << 18) - 1);
	if (!generation)
		generation = 1;
	atomic_store(&q->handle, generation << INDEX_BITS | index);
	exi_unlock(&q->lock);
	return 0;
}

int exi_queue_create(int depth, exs_qhandle_t *ret)
{
	struct exi_queue *q = NULL;
	int i, err = -EMFILE;

	if (depth <= 0 || depth > EXS_QDEPTH_MAX)
		return -EINVAL;
	pthread_mutex_lock(&queues_lock);
	for (i = 0; i < QUEUES_MAX; i++) {
		q = atomic_load(&queues[i]);
		if (!q) {
			q = calloc(1, sizeof(*q));
			err = -ENOMEM;
			if (!q)
				break;
			atomic_store(&queues[i], q);
		}
		/* Free when it has no handle and nobody looks at it. */
		if (atomic_load(&q->handle) == 0 &&
		    atomic_load(&q->users) == 0 &&
		    atomic_load(&q->attended) == 0) {
			err = setup(q, depth, i);
			if (!err)
				*ret = atomic_load(&q->handle);
			break;
		}
	}
	pthread_mutex_unlock(&queues_lock);
	return err;
}

/* The queue in a handle's place; it may have another handle. */
static struct exi_queue *place_of(exs_qhandle_t h)
{
	return exi_likely(h > 0)
		       ? atomic_load_explicit(&queues[h & (QUEUES_MAX - 1)],
					      memory_order_acquire)
		       : NULL;
}

struct exi_queue *exi_queue_get(exs_qhandle_t h)
{
	struct exi_queue *q = place_of(h);

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

static void wake_sleepers(struct exi_queue *q)
{
	/* Under the lock, like the sleeper's load: no read-modify-write. */
	atomic_store_explicit(
		&q->word,
		atomic_load_explicit(&q->word, memory_order_relaxed) + 1,
		memory_order_release);
	if (q->sleepers)
		exi_futex_wake((const uint32_t *)&q->word, INT_MAX);
}

static void forget_hot(struct exi_hot *h)
{
	atomic_store(&h->sk->hot_in[h->dir], NULL);
}

void exi_queue_cool(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_queue *q = atomic_load(&sk->hot_in[dir]);
	int i, n;

	if (!q)
		return;
	exi_lock(&q->lock);
	n = atomic_load(&q->n_hot);
	for (i = 0; i < n; i++)
		if (q->hot[i].sk == sk && q->hot[i].dir == dir)
			q->hot[i--] = q->hot[--n];
	atomic_store(&q->n_hot, n);
	atomic_store(&sk->hot_in[dir], NULL);
	exi_unlock(&q->lock);
}

int exi_queue_delete(exs_qhandle_t h)
{
	struct exi_queue *q = exi_queue_get(h);
	struct exi_op *ops;
	int qfd, i;

	if (!q)
		return -EINVAL;
	exi_lock(&q->lock);
	if (q->n_used > q->n_done || atomic_load(&q->deleted)) {
		bool deleted = atomic_load(&q->deleted);

		exi_unlock(&q->lock);
		exi_queue_put(q);
		return deleted ? -EINVAL : -EBUSY;
	}
	atomic_store(&q->deleted, true);
	exi_list_init(&q->done);
	q->n_done = q->n_used = 0;
	atomic_store(&q->ready, 0);
	for (i = 0; i < atomic_load(&q->n_hot); i++)
		forget_hot(&q->hot[i]);
	atomic_store(&q->n_hot, 0);
	qfd = q->qfd;
	q->qfd = -1;
	ops = q->ops;
	q->ops = NULL;
	exi_list_init(&q->free);
	atomic_store(&q->handle, 0);
	wake_sleepers(q);
	exi_unlock(&q->lock);
	exi_fd_close(qfd);
	free(ops);
	exi_queue_put(q);
	return 0;
}

/* --- slots and completions ---------------------------------------------- */

/* In two pieces, which are stores: of all of it at once compilers make a
 * string instruction that takes longer than what the call does besides. */
static void clear(struct exi_op *op)
{
	exi_list_init(&op->node);
	memset(&op->type, 0,
	       offsetof(struct exi_op, flags) - offsetof(struct exi_op, type));
	memset(&op->flags, 0,
	       offsetof(struct exi_op, to_len) -
		       offsetof(struct exi_op, flags));
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
	struct exi_queue *q = place_of(h);
	int i = 0;

	*ret_err = -EINVAL;
	if (exi_unlikely(!q))
		return 0;
	exi_lock(&q->lock);
	if (exi_likely(atomic_load_explicit(&q->handle, memory_order_relaxed) ==
		       h))
		i = reserve_locked(q, o, n, ret, ret_err);
	exi_unlock(&q->lock);
	return i;
}

int exi_queue_reserve(exs_qhandle_t h, exs_mhandle_t m, const void *buf,
		      size_t len, struct exi_op **ret)
{
	exs_x_op_t o = { .exs_x_mhandle = m,
			 .exs_x_buffer = (void *)(uintptr_t)buf,
			 .exs_x_length = len };
	int err;

	if (exi_queue_reserve_some(h, &o, 1, ret, &err))
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

static void free_slot_locked(struct exi_op *op)
{
	EXI_LOCKED(&op->queue->lock);
	end_slot(op);
	op->queue->n_used--;
	exi_list_add_head(&op->queue->free, &op->node);
}

void exi_queue_unreserve(struct exi_op *op)
{
	struct exi_queue *q = op->queue;

	exi_lock(&q->lock);
	free_slot_locked(op);
	exi_unlock(&q->lock);
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
	struct exi_queue *q = op->queue;

	exi_lock(&q->lock);
	op->kept = false;
	if (op->queued)
		q->n_used--; /* it goes with the event */
	else
		free_slot_locked(op);
	exi_unlock(&q->lock);
}

/* What a thread in dequeue completes by its own progress goes straight to the
 * place where it wants its events, if nothing came before. */
static _Thread_local struct taker {
	struct exi_queue *q; /* null: this thread takes nothing now */
	exs_event_t *ev;
	int max;
	int n;
} taker;

static inline void fill_event(const struct exi_op *op, exs_event_t *ev)
{
	*ev = (exs_event_t){
		.exs_evt_type = op->type,
		.exs_evt_socket = op->fd,
		.exs_evt_ahandle = op->ahandle,
		.exs_errno = op->err,
	};
	switch (op->type) {
	case EXS_EVT_SEND:
	case EXS_EVT_RECV:
		ev->exs_evt_un.exs_evt_xfer.exs_evt_buffer = op->arg;
		ev->exs_evt_un.exs_evt_xfer.exs_evt_length = op->done;
		ev->exs_evt_un.exs_evt_xfer.exs_evt_flags = op->event_flags;
		break;
	case EXS_EVT_RECVMSG:
		((exs_msghdr_t *)op->arg)->exs_msg_flags = op->event_flags;
		/* fallthrough */
	case EXS_EVT_SENDMSG:
		ev->exs_evt_un.exs_evt_xfermsg.exs_evt_msg = op->arg;
		ev->exs_evt_un.exs_evt_xfermsg.exs_evt_length = op->done;
		ev->exs_evt_un.exs_evt_xfermsg.exs_evt_flags = op->event_flags;
		break;
	case EXS_EVT_SENDFILE:
		ev->exs_evt_un.exs_evt_xferfile.exs_evt_files = op->arg;
		ev->exs_evt_un.exs_evt_xferfile.exs_evt_length = op->done;
		break;
	case EXS_EVT_ACCEPT:
		ev->exs_evt_un.exs_evt_accept.exs_evt_newfd = op->newfd;
		ev->exs_evt_un.exs_evt_accept.exs_evt_addr = op->addr;
		break;
	case EXS_EVT_POLL:
		ev->exs_evt_un.exs_evt_poll.exs_evt_fds = op->arg;
		ev->exs_evt_un.exs_evt_poll.exs_evt_nfds = (int)op->len;
		ev->exs_evt_un.exs_evt_poll.exs_evt_ready = (int)op->done;
		break;
	default:
		break;
	}
}

/* The event of an operation that is in no list; its slot is free. */
static void take_locked(struct exi_op *op, exs_event_t *ev)
{
	EXI_LOCKED(&op->queue->lock);
	fill_event(op, ev);
	if (exi_unlikely(op->kept)) {
		op->queued = false;
		op->queue->n_used--;
	} else {
		free_slot_locked(op);
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
	if (taker.q == q && taker.n < taker.max && q->n_done == 0 &&
	    !q->signal.exs_enable) {
		take_locked(op, &taker.ev[taker.n++]);
		return;
	}
	exi_list_add_tail(&q->done, &op->node);
	q->n_done++;
}

/* Tells of what came since there were so many; unlocks. */
static void tell_unlock(struct exi_queue *q, int before)
{
	int signo = 0;

	if (q->n_done > before) {
		atomic_store_explicit(&q->ready, q->n_done,
				      memory_order_release);
		wake_sleepers(q);
		if (exi_unlikely(q->qfd >= 0) && before == 0)
			eventfd_write(q->qfd, 1);
		if (before == 0 && q->signal.exs_enable)
			signo = q->signal.exs_signo;
	}
	exi_unlock(&q->lock);
	if (exi_unlikely(signo))
		kill(getpid(), signo);
}

void exi_op_complete(struct exi_op *op)
{
	struct exi_queue *q = op->queue;
	int before;

	if (!q) {
		/* On a stack: not ours any more after the store. */
		const uint32_t *word = (const uint32_t *)&op->finished;

		atomic_store_explicit(&op->finished, 1, memory_order_release);
		exi_futex_wake(word, 1);
		return;
	}
	exi_lock(&q->lock);
	before = q->n_done;
	complete_locked(q, op);
	tell_unlock(q, before);
}

/* The first of ops, and those behind it that are of the same queue. */
static void complete_some(struct exi_queue *q, struct exi_list *ops)
{
	struct exi_list *pos;
	int before, n = 0;

	exi_list_for_each (pos, ops) {
		if (exi_container(pos, struct exi_op, node)->queue != q)
			break;
		n++;
	}
	exi_lock(&q->lock);
	before = q->n_done;
	if (taker.q == q) {
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
			complete_some(op->queue, ops);
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
		fill_event(op, &ev[n++]);
		end_slot(op);
	}
	if (n)
		exi_list_move(&q->done, pos->prev, q->free.next);
	q->n_used -= n;
	return n;
}

static int take_events(struct exi_queue *q, exs_event_t *ev, int max)
{
	struct exi_list *node;
	eventfd_t drained;
	int n;

	exi_lock(&q->lock);
	n = take_run(q, ev, max);
	while (n < max && (node = exi_list_pop(&q->done)))
		take_locked(exi_container(node, struct exi_op, node), &ev[n++]);
	q->n_done -= n;
	atomic_store_explicit(&q->ready, q->n_done, memory_order_release);
	if (exi_unlikely(q->qfd >= 0) && n && q->n_done == 0)
		eventfd_read(q->qfd, &drained);
	exi_unlock(&q->lock);
	return n;
}

/* --- hot directions ----------------------------------------------------- */

/* Makes room: what waits for nothing goes. */
static void evict_locked(struct exi_queue *q)
{
	int i, n = atomic_load(&q->n_hot);

	EXI_LOCKED(&q->lock);
	for (i = 0; i < n;) {
		struct exi_hot *h = &q->hot[i];

		if (atomic_load(&h->sk->n_ops[h->dir]) != 0 &&
		    atomic_load(&h->sk->fd) == h->fd) {
			i++;
			continue;
		}
		forget_hot(h);
		*h = q->hot[--n];
	}
	atomic_store(&q->n_hot, n);
	atomic_fetch_add(&q->hot_changes, 1);
}

/* A dequeuer may have passed over this direction when it had nothing to wait
 * for. It compares the count after it said that it sleeps; we look for
 * sleepers after we changed it: one of us sees the other. (Without a dequeuer
 * there is nobody to tell: the next takes the direction's lock after us.) */
static void view_changed(struct exi_queue *q)
{
	atomic_fetch_add_explicit(&q->hot_changes, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&q->sleepers, memory_order_seq_cst) == 0)
		return;
	exi_lock(&q->lock);
	wake_sleepers(q);
	exi_unlock(&q->lock);
}

bool exi_queue_heat(struct exi_queue *q, struct exi_sock *sk, int fd,
		    enum exi_dir dir)
{
	bool hot = false;
	int n;

	if (exi_service_self() || !exi_futex_waitv_works())
		return false;
	/* The tick clears it before it takes the direction's lock: who is seen
	 * here is progressed after us. */
	if (atomic_load_explicit(&sk->hot_in[dir], memory_order_relaxed) == q) {
		hot = true;
		if (atomic_load(&q->attended))
			view_changed(q);
		goto tick;
	}
	exi_lock(&q->lock);
	if (q->qfd >= 0 || q->signal.exs_enable)
		goto unlock;
	if (atomic_load(&q->n_hot) == EXI_QUEUE_HOT)
		evict_locked(q);
	n = atomic_load(&q->n_hot);
	if (n < EXI_QUEUE_HOT) {
		q->hot[n] = (struct exi_hot){ .sk = sk, .fd = fd, .dir = dir };
		atomic_store(&sk->hot_in[dir], q);
		atomic_store(&q->n_hot, n + 1);
		atomic_fetch_add(&q->hot_changes, 1);
		hot = true;
		/* Who sleeps must sleep on this one too. */
		if (q->sleepers)
			wake_sleepers(q);
	}
unlock:
	exi_unlock(&q->lock);
tick:
	if (hot &&
	    atomic_load_explicit(&q->attended, memory_order_relaxed) == 0)
		exi_service_tick();
	return hot;
}

static int copy_hot(struct exi_queue *q, struct exi_hot *ret, bool clear)
{
	int i, n;

	if (atomic_load_explicit(&q->n_hot, memory_order_relaxed) == 0)
		return 0;
	exi_lock(&q->lock);
	n = atomic_load(&q->n_hot);
	memcpy(ret, q->hot, (size_t)n * sizeof(*ret));
	for (i = 0; clear && i < n; i++)
		forget_hot(&q->hot[i]);
	if (clear)
		atomic_store(&q->n_hot, 0);
	exi_unlock(&q->lock);
	return n;
}

static void poll_hot(struct exi_queue *q)
{
	struct exi_hot hot[EXI_QUEUE_HOT];
	int i, n = copy_hot(q, hot, false);

	for (i = 0; i < n; i++)
		if (atomic_load_explicit(&hot[i].sk->n_ops[hot[i].dir],
					 memory_order_relaxed) &&
		    atomic_load(&hot[i].sk->fd) == hot[i].fd)
			exi_flow_progress(hot[i].sk, hot[i].dir);
}

/* The program waits elsewhere from now on: the service makes the progress. */
static void leave_to_service(struct exi_queue *q)
{
	struct exi_hot hot[EXI_QUEUE_HOT];
	int n;

	for (n = copy_hot(q, hot, true); n > 0; n--)
		exi_flow_progress(hot[n - 1].sk, hot[n - 1].dir);
}

static int idle_ticks;
static int tick_ms = 1;

/* Each takes tens of microseconds from a program that uses all CPUs, and finds
 * nothing while it comes to its queues all the time: it is twice as long then until
 * the next. Who did so for a while, and computes then, has his progress made after
 * about that while, or twice TICK_MAX. On a CPU that others want each tick also ends
 * a turn before its time, so there are few: progress waits for turns anyway. */
int exi_queue_tick(void)
{
	struct exi_hot hot[EXI_QUEUE_HOT];
	bool active = false, seldom = false;
	int i, k, n, cpu = exi_cpu();
	uint32_t visits;

	for (i = 0; i < QUEUES_MAX; i++) {
		struct exi_queue *q = atomic_load(&queues[i]);

		if (!q)
			break;
		if (atomic_load(&q->n_hot) == 0)
			continue;
		visits = atomic_load(&q->visits);
		/* A sleeper that was elsewhere since the last tick will be
		 * elsewhere again. */
		if (atomic_load(&q->attended)) {
			active = active || q->sleepers == 0 ||
				 visits != q->visits_ticked;
			q->visits_ticked = visits;
			continue;
		}
		active = true;
		seldom = seldom ||
			 visits - q->visits_seen < (uint32_t)(OFTEN * tick_ms);
		if (visits != q->visits_seen) {
			q->visits_seen = visits;
			continue;
		}
		n = copy_hot(q, hot, true);
		/* In this thread progress asks the peers to ring. */
		for (k = 0; k < n; k++)
			exi_flow_progress(hot[k].sk, hot[k].dir);
	}
	idle_ticks = active ? 0 : idle_ticks + 1;
	tick_ms = seldom || !active ? 1 : tick_ms * 2;
	if (tick_ms > TICK_MAX || exi_busy_wanted(cpu) || exi_busy_dear(cpu))
		tick_ms = TICK_MAX;
	return idle_ticks < IDLE_TICKS ? tick_ms : 0;
}

/* --- waiting ------------------------------------------------------------ */

/* A hot direction that a dequeuer looks at without its lock; its socket's
 * lookers count us. */
struct held {
	struct exi_hot hot;
	struct exi_shared *sh;
	struct exi_word word;
	struct exi_conn *poll; /* for the word to change; null */
	bool armed;
};

struct view {
	struct held held[EXI_QUEUE_HOT];
	int n;
	int idle; /* others that have nothing to wait for */
	int peer_cpu;
	unsigned int patience; /* of the farthest; 0: all are near */
	uint32_t changes;
};

/* Takes hold of the hot directions that wait on a fabric. */
static void hold(struct exi_queue *q, struct view *v)
{
	struct exi_hot hot[EXI_QUEUE_HOT];
	int i, n;

	v->changes = atomic_load(&q->hot_changes);
	v->peer_cpu = -1;
	v->patience = 0;
	v->n = v->idle = 0;
	n = copy_hot(q, hot, false);
	for (i = 0; i < n; i++) {
		struct held *h = &v->held[v->n];
		struct exi_sock *sk = hot[i].sk;
		enum exi_dir dir = hot[i].dir;

		if (!exi_sock_lock(sk, hot[i].fd, dir, &h->sh))
			continue;
		if (exi_list_empty(&sk->ops[dir])) {
			v->idle++;
		} else if (h->sh->half[dir].mode == EXI_MODE_RING && sk->fab) {
			exi_sock_look(sk, dir, 1);
			sk->fab->ops->word(sk->fab, dir, &h->word);
			/* Who looks before it sleeps sees what is there. */
			if (q->wait == EXS_WAIT_BUSY_POLL &&
			    sk->fab->ops->ready(sk->fab, dir))
				h->word.value = ~__atomic_load_n(
					h->word.addr, __ATOMIC_RELAXED);
			h->poll = sk->fab->ops->poll ? sk->fab : NULL;
			if (h->poll &&
			    sk->fab->ops->patience(sk->fab) > v->patience)
				v->patience = sk->fab->ops->patience(sk->fab);
			v->peer_cpu = sk->fab->ops->peer_cpu(sk->fab);
			h->hot = hot[i];
			h->armed = false;
			v->n++;
		}
		exi_half_unlock(&h->sh->half[dir]);
	}
}

/* Words that change only when they are polled. Kept by their lookers. */
static void poll_far(const struct view *v)
{
	for (int i = 0; i < v->n; i++)
		if (exi_unlikely(v->held[i].poll))
			v->held[i].poll->ops->poll(v->held[i].poll, 1);
}

static bool word_changed(const struct exi_word *w)
{
	return __atomic_load_n(w->addr, __ATOMIC_RELAXED) != w->value;
}

/* Something is there, or the view is out of date. */
static bool stirred(struct exi_queue *q, const struct view *v, int need)
{
	int i;

	for (i = 0; i < v->n; i++)
		if (word_changed(&v->held[i].word))
			return true;
	return atomic_load_explicit(&q->ready, memory_order_relaxed) >= need ||
	       atomic_load_explicit(&q->hot_changes, memory_order_relaxed) !=
		       v->changes ||
	       atomic_load_explicit(&q->deleted, memory_order_relaxed);
}

struct look {
	struct exi_queue *q;
	const struct view *v;
	int need;
};

static bool look_again(void *arg)
{
	struct look *l = arg;

	return stirred(l->q, l->v, l->need);
}

/* ns; UINT64_MAX: as long as it takes. */
static uint64_t spin_budget(struct exi_queue *q, const struct view *v)
{
	if (q->wait == EXS_WAIT_NOTIFY)
		return 0;
	if (q->wait == EXS_WAIT_BUSY_POLL)
		return UINT64_MAX;
	return v->n ? exi_spin_budget(&q->spin, v->peer_cpu) : 0;
}

static bool spin(struct exi_queue *q, const struct view *v, int need,
		 uint64_t deadline)
{
	uint64_t budget = spin_budget(q, v);
	struct exi_spinner s;

	if (!budget)
		return false;
	if (budget == EXI_SPIN_YIELD) {
		struct look look = { .q = q, .v = v, .need = need };
		bool hit, good = exi_spin_yield(look_again, &look, &hit);

		exi_spin_result(&q->spin, good && hit);
		return hit;
	}
	exi_spin_begin(&s);
	s.patience = v->patience;
	if (v->patience && budget != UINT64_MAX)
		budget *= v->patience;
	do {
		poll_far(v);
		if (stirred(q, v, need)) {
			exi_spin_result(&q->spin, true);
			return true;
		}
	} while (exi_spin_goes_on(&s, budget, deadline));
	exi_spin_result(&q->spin, false);
	return false;
}

/* Asks the peers to wake us. -EBUSY: something can move already. */
static int arm(struct view *v, struct exi_word *words)
{
	int i, ret = 0;

	for (i = 0; i < v->n && !ret; i++) {
		struct held *h = &v->held[i];
		struct exi_sock *sk = h->hot.sk;
		enum exi_dir dir = h->hot.dir;
		struct exi_shared *sh;

		words[i] = h->word;
		if (!exi_sock_lock(sk, h->hot.fd, dir, &sh))
			return -EBUSY;
		/* It may have left the fabric since, where what lies next can be
		 * of its return, of which it has not heard. */
		ret = sh != h->sh || !sk->fab ||
				      sh->half[dir].mode != EXI_MODE_RING
			      ? -EBUSY
			      : sk->fab->ops->arm(sk->fab, dir,
						  exi_place_waits(sk, dir)
							  ? EXI_WAKE_WORD_REAP
							  : EXI_WAKE_WORD);
		if (ret == 0) {
			h->armed = true;
			sh->half[dir].sleeps++;
			if (atomic_load(&sh->gone) || atomic_load(&sh->rx_fin))
				ret = -EBUSY;
		}
		exi_half_unlock(&sh->half[dir]);
	}
	return ret;
}

static int sleep_once(struct exi_queue *q, struct view *v, int need,
		      uint64_t deadline)
{
	struct timespec until = exi_ns_timespec(deadline);
	struct exi_word words[EXI_QUEUE_HOT + 1];
	int ret;

	exi_lock(&q->lock);
	q->sleepers++;
	words[v->n].addr = (const uint32_t *)&q->word;
	/* Before the last looks: every completion, every new hot direction
	 * and every call to let go changes it. */
	words[v->n].value =
		atomic_load_explicit(&q->word, memory_order_seq_cst);
	exi_unlock(&q->lock);
	ret = arm(v, words);
	if (ret == 0 && !stirred(q, v, need))
		ret = exi_futex_wait(words, (unsigned int)v->n + 1,
				     deadline ? &until : NULL);
	exi_lock(&q->lock);
	q->sleepers--;
	exi_unlock(&q->lock);
	return ret == -EBUSY ? 0 : ret;
}

/* Lets go of the view; what changed there is progressed. */
static void let_go(struct view *v)
{
	int i;

	for (i = 0; i < v->n; i++) {
		struct held *h = &v->held[i];
		struct exi_sock *sk = h->hot.sk;
		enum exi_dir dir = h->hot.dir;

		exi_lock(&h->sh->half[dir].lock);
		if (h->armed && sk->fab)
			sk->fab->ops->disarm(sk->fab, dir, EXI_WAKE_WORD);
		if (word_changed(&h->word) &&
		    atomic_load_explicit(&sk->fd, memory_order_relaxed) ==
			    h->hot.fd)
			exi_flow_progress_polled_locked(sk, dir);
		/* Last: until here the socket is kept. */
		exi_sock_look(sk, dir, -1);
		exi_unlock(&h->sh->half[dir].lock);
	}
}

/* Everything that is hot is in the view, or idle: an operation more changes it. */
static bool complete(struct exi_queue *q, const struct view *v)
{
	return v->n + v->idle ==
		       atomic_load_explicit(&q->n_hot, memory_order_relaxed) &&
	       v->changes == atomic_load(&q->hot_changes);
}

static int await(struct exi_queue *q, int need, uint64_t deadline)
{
	struct view v;
	bool hit;
	int ret = 0;

	for (;;) {
		if (taker.n >= need ||
		    atomic_load_explicit(&q->ready, memory_order_acquire) >=
			    need)
			return 0;
		if (atomic_load(&q->deleted))
			return -EINVAL;
		if (ret)
			return ret;
		if (deadline && exi_now_ns() >= deadline)
			return -ETIMEDOUT;
		hold(q, &v);
		hit = spin(q, &v, need, deadline);
		if (!hit)
			ret = sleep_once(q, &v, need, deadline);
		let_go(&v);
		if (!hit || !complete(q, &v))
			poll_hot(q);
	}
}

void exi_queue_wake_all(void)
{
	int i;

	for (i = 0; i < QUEUES_MAX; i++) {
		struct exi_queue *q = atomic_load(&queues[i]);

		if (!q)
			break;
		exi_lock(&q->lock);
		atomic_fetch_add(&q->hot_changes, 1);
		wake_sleepers(q);
		exi_unlock(&q->lock);
	}
}

static int attend(struct exi_queue *q, exs_event_t *ev, int want,
		  const struct timeval *timeout)
{
	int need = want < 0 ? -want : 1, max = want < 0 ? -want : want;
	uint64_t deadline = 0;
	int ret;

	if (need > q->depth)
		return -EINVAL;
	if (max == 0)
		return 0;
	/* Of several at once, each leaves what comes to the others too. */
	taker = (struct taker){ .q = need == 1 ? q : NULL,
				.ev = ev,
				.max = max };
	if (timeout)
		deadline = exi_now_ns() + 1 +
			   (uint64_t)timeout->tv_sec * 1000000000u +
			   (uint64_t)timeout->tv_usec * 1000u;
	if (timeout && timeout->tv_sec == 0 && timeout->tv_usec == 0) {
		poll_hot(q);
		ret = atomic_load(&q->deleted) ? -EINVAL : 0;
	} else {
		ret = await(q, need, deadline);
	}
	taker.q = NULL;
	if (ret && ret != -ETIMEDOUT)
		return taker.n ? taker.n : ret;
	if (taker.n &&
	    atomic_load_explicit(&q->ready, memory_order_relaxed) == 0)
		return taker.n;
	return taker.n + take_events(q, ev + taker.n, max - taker.n);
}

int exi_queue_dequeue(exs_qhandle_t h, exs_event_t *ev, int want,
		      const struct timeval *timeout)
{
	struct exi_queue *q = place_of(h);
	int ret = -EINVAL;

	if (!q || want > EXS_EVTVEC_MAX || want < -EXS_EVTVEC_MAX)
		return -EINVAL;
	if (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0 ||
			timeout->tv_usec >= 1000000))
		return -EINVAL;
	atomic_fetch_add(&q->attended, 1);
	atomic_store_explicit(
		&q->visits,
		atomic_load_explicit(&q->visits, memory_order_relaxed) + 1,
		memory_order_relaxed);
	if (exi_likely(atomic_load(&q->handle) == h))
		ret = attend(q, ev, want, timeout);
	/* What stays hot is the service's from here on. */
	if (atomic_fetch_sub(&q->attended, 1) == 1 &&
	    atomic_load_explicit(&q->n_hot, memory_order_relaxed))
		exi_service_tick();
	return ret;
}

/* --- attributes --------------------------------------------------------- */

int exi_queue_fd(struct exi_queue *q)
{
	int fd;

	exi_lock(&q->lock);
	if (q->qfd < 0) {
		fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		if (fd < 0) {
			exi_unlock(&q->lock);
			return fd;
		}
		q->qfd = fd;
		if (q->n_done)
			eventfd_write(fd, 1);
	}
	fd = q->qfd;
	exi_unlock(&q->lock);
	leave_to_service(q);
	return fd;
}

int exi_queue_set(struct exi_queue *q, int attr, const void *val, size_t len)
{
	const exs_signal_t *sig = val;
	int v;

	if (!val)
		return -EFAULT;
	if (attr == EXS_QATTR_SIGNAL) {
		if (len != sizeof(*sig) ||
		    (sig->exs_enable != EXS_SIG_ENABLE &&
		     sig->exs_enable != EXS_SIG_DISABLE) ||
		    (sig->exs_enable &&
		     (sig->exs_signo <= 0 || sig->exs_signo > SIGRTMAX)))
			return -EINVAL;
		exi_lock(&q->lock);
		q->signal = *sig;
		exi_unlock(&q->lock);
		if (sig->exs_enable)
			leave_to_service(q);
		return 0;
	}
	if (len != sizeof(int))
		return -EINVAL;
	memcpy(&v, val, sizeof(v));
	switch (attr) {
	case EXS_QATTR_DEPTH:
		return exi_queue_deepen(q, v);
	case EXS_QATTR_WAIT:
		if (v < EXS_WAIT_ADAPTIVE || v > EXS_WAIT_BUSY_POLL)
			return -EINVAL;
		q->wait = v;
		return 0;
	default:
		return -EINVAL;
	}
}

/* The slots are moved to a larger or smaller array; nothing may be in use. */
int exi_queue_deepen(struct exi_queue *q, int depth)
{
	struct exi_op *ops, *old;

	if (depth <= 0 || depth > EXS_QDEPTH_MAX)
		return -EINVAL;
	ops = calloc((size_t)depth, sizeof(*ops));
	if (!ops)
		return -ENOMEM;
	exi_lock(&q->lock);
	if (q->n_used) {
		exi_unlock(&q->lock);
		free(ops);
		return -EBUSY;
	}
	old = q->ops;
	set_slots(q, ops, depth);
	exi_unlock(&q->lock);
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
		v = atomic_load(&q->ready);
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
	bool found = false;

	for (int i = 0; i < QUEUES_MAX && !found; i++) {
		struct exi_queue *q = atomic_load(&queues[i]);

		if (!q)
			break;
		exi_lock(&q->lock);
		for (int k = 0; q->n_used && k < q->depth && !found; k++)
			found = q->ops[k].region == r;
		exi_unlock(&q->lock);
	}
	return found;
}

void exi_queue_forked(void)
{
	int i;

	pthread_mutex_init(&queues_lock, NULL);
	/* Operations belong to the parent: the child's queues are empty. */
	for (i = 0; i < QUEUES_MAX; i++) {
		struct exi_queue *q = atomic_load(&queues[i]);

		if (!q)
			break;
		if (atomic_load(&q->handle) == 0)
			continue;
		atomic_store(&q->lock.word, 0);
		atomic_store(&q->users, 0);
		atomic_store(&q->attended, 0);
		q->sleepers = 0;
		q->n_done = q->n_used = 0;
		atomic_store(&q->ready, 0);
		atomic_store(&q->n_hot, 0);
		exi_list_init(&q->done);
		for (int k = 0; k < q->depth; k++)
			exi_parts_release(&q->ops[k]);
		set_slots(q, q->ops, q->depth);
		if (q->qfd >= 0)
			q->qfd = exi_fd_keep(
				eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	}
}
