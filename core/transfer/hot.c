/* SPDX-License-Identifier: BSD-2-Clause */
/* The directions that the threads at a queue poll themselves. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/base/futex.h"
#include "core/base/lock.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/transfer/queue.h"

static void forget_hot(struct exi_hot *h)
{
	atomic_store(&h->sk->hot_in[h->dir], NULL);
}

/* Each member by itself, for exi_queue_lone_hot(). */
static void put_hot_locked(struct exi_queue *q, int at, const struct exi_hot *h)
{
	struct exi_hot *to = &q->hot[at];

	EXI_LOCKED(&q->lock);
	__atomic_store_n(&to->sk, h->sk, __ATOMIC_RELEASE);
	__atomic_store_n(&to->fd, h->fd, __ATOMIC_RELAXED);
	__atomic_store_n(&to->dir, h->dir, __ATOMIC_RELAXED);
}

/* The first n of hot[] are hot from now on. */
static void count_hot_locked(struct exi_queue *q, int n)
{
	int rx = 0;

	EXI_LOCKED(&q->lock);
	for (int i = 0; i < n; i++)
		rx += q->hot[i].dir == EXI_RX;
	atomic_store(&q->n_hot, n);
	atomic_store(&q->n_hot_rx, rx);
}

void exi_queue_forget_hot_locked(struct exi_queue *q)
{
	EXI_LOCKED(&q->lock);
	for (int i = 0; i < atomic_load(&q->n_hot); i++)
		forget_hot(&q->hot[i]);
	count_hot_locked(q, 0);
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
			put_hot_locked(q, i--, &q->hot[--n]);
	count_hot_locked(q, n);
	atomic_store(&sk->hot_in[dir], NULL);
	exi_unlock(&q->lock);
}

/* Makes room: removes directions that wait for nothing. */
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
		put_hot_locked(q, i, &q->hot[--n]);
	}
	count_hot_locked(q, n);
	atomic_fetch_add(&q->hot_changes, 1);
}

/* A dequeuer may have passed over this direction when it had nothing to wait
 * for. It compares the count after it announced its sleep; we look for sleepers
 * after we changed the count: one sees the other. (Without a dequeuer, there is
 * none to wake: the next takes the direction's lock after us.) */
static void view_changed(struct exi_queue *q)
{
	atomic_fetch_add_explicit(&q->hot_changes, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&q->sleepers, memory_order_seq_cst) == 0)
		return;
	exi_lock(&q->lock);
	exi_queue_wake_locked(q);
	exi_unlock(&q->lock);
}

bool exi_queue_heat_locked(struct exi_queue *q, struct exi_sock *sk, int fd,
			   enum exi_dir dir)
{
	bool hot = false;
	int n;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	/* The service gives a direction back as soon as a thread dequeues. The
	 * thread that leaves last looks for hot directions after it counted
	 * itself out, and the service looks for the thread again, below, after
	 * it made the direction hot: one of the two ticks. */
	if (!exi_futex_waitv_works() ||
	    (exi_service_self() && !atomic_load(&q->attended)))
		return false;
	/* The tick clears it before it takes the direction's lock: a direction
	 * that is seen here is progressed after us. */
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
		put_hot_locked(
			q, n,
			&(struct exi_hot){ .sk = sk, .fd = fd, .dir = dir });
		atomic_store(&sk->hot_in[dir], q);
		count_hot_locked(q, n + 1);
		atomic_fetch_add(&q->hot_changes, 1);
		hot = true;
		/* Sleepers must sleep on this direction too. */
		if (q->sleepers)
			exi_queue_wake_locked(q);
	}
unlock:
	exi_unlock(&q->lock);
tick:
	if (hot && atomic_load(&q->attended) == 0)
		exi_service_tick();
	return hot;
}

int exi_queue_copy_hot(struct exi_queue *q, struct exi_hot *ret, bool clear)
{
	int n;

	if (atomic_load_explicit(&q->n_hot, memory_order_relaxed) == 0)
		return 0;
	exi_lock(&q->lock);
	n = atomic_load(&q->n_hot);
	memcpy(ret, q->hot, (size_t)n * sizeof(*ret));
	if (clear)
		exi_queue_forget_hot_locked(q);
	exi_unlock(&q->lock);
	return n;
}
