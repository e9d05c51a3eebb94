/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes: making them, moving slots between them, and their end. */
#include "core/transfer/lanes.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/transfer/op.h"
#include "core/transfer/queue.h"

#define LINE 64

/* How often a thread finds a lock taken before it gets a lane. */
#define CROWDED 16
/* The slots that a lane takes at least, if there are so many. */
#define SLOTS 128
/* Joins after which threads are taken to share sockets. */
#define JOINS_MAX 4096

/* The lane of the queue that the thread used last, and how often the thread
 * waited for a lock of it. */
static _Thread_local struct {
	exs_qhandle_t handle;
	struct exi_queue *lane;
	exs_qhandle_t crowd_handle;
	unsigned int crowd[2];
} mine;

void *exi_lanes_memory(size_t size)
{
	void *ret =
		aligned_alloc(LINE, (size + LINE - 1) & ~(size_t)(LINE - 1));

	if (ret)
		memset(ret, 0, size);
	return ret;
}

static bool is_mine(const struct exi_queue *lane, exs_qhandle_t h)
{
	return atomic_load_explicit(&lane->handle, memory_order_relaxed) == h &&
	       atomic_load_explicit(&lane->owner, memory_order_relaxed) ==
		       exi_tid();
}

struct exi_queue *exi_lanes_find(struct exi_queue *root, exs_qhandle_t h)
{
	struct exi_queue *m;

	if (exi_likely(mine.handle == h && mine.lane && is_mine(mine.lane, h)))
		return mine.lane;
	for (int i = 1; (m = exi_lanes_member(root, i)); i++) {
		if (!is_mine(m, h))
			continue;
		mine.handle = h;
		mine.lane = m;
		return m;
	}
	return root;
}

void exi_lanes_lock_all(struct exi_queue *root)
{
	struct exi_queue *m;

	/* Lanes are added under the root's lock. */
	for (int i = 0; (m = exi_lanes_member(root, i)); i++)
		exi_lock(&m->lock);
}

void exi_lanes_unlock_all(struct exi_queue *root)
{
	struct exi_queue *m;
	bool unattended = false;

	for (int i = 0; (m = exi_lanes_member(root, i)); i++)
		unattended = unattended || (!atomic_load(&m->handle) &&
					    atomic_load(&m->n_hot));
	for (int i = 0; (m = exi_lanes_member(root, i)); i++)
		if (m != root)
			exi_unlock(&m->lock);
	exi_unlock(&root->lock);
	if (unattended)
		exi_service_tick();
}

static bool is_dead(uint32_t tid)
{
	return syscall(SYS_tgkill, getpid(), (pid_t)tid, 0) < 0 &&
	       errno == ESRCH;
}

static void begin_locked(struct exi_queue *lane, struct exi_queue *root,
			 exs_qhandle_t h)
{
	EXI_LOCKED(&root->lock);
	lane->root = root;
	lane->depth = root->depth;
	lane->wait = root->wait;
	lane->qfd = -1;
	lane->n_done = lane->n_used = 0;
	exi_list_init(&lane->free);
	exi_list_init(&lane->done);
	atomic_store(&lane->ready, 0);
	atomic_store(&lane->deleted, false);
	atomic_store(&lane->handle, h);
}

/* Gives the calling thread a lane: a new one, one that ended, or that of a
 * thread that has ended. `room` is the memory of a new one; false: unused. */
static bool give_locked(struct exi_queue *root, exs_qhandle_t h,
			struct exi_queue *room)
{
	struct exi_queue *m;
	bool fresh = false;
	int i;

	EXI_LOCKED(&root->lock);
	for (i = 1; (m = exi_lanes_member(root, i)); i++) {
		bool lives = atomic_load(&m->handle) == h;

		if (lives ? is_dead(atomic_load(&m->owner))
			  : !atomic_load(&m->attended) && !m->sleepers)
			break;
	}
	if (!m && (i > EXI_LANES_MAX || !room))
		return false;
	if (!m) {
		m = room;
		fresh = true;
		exi_lock(&m->lock);
	}
	if (atomic_load(&m->handle) != h) {
		begin_locked(m, root, h);
		atomic_fetch_add(&root->family.n_lanes, 1);
	}
	atomic_store(&m->owner, exi_tid());
	if (fresh)
		atomic_store_explicit(&root->family.lane[i - 1], m,
				      memory_order_release);
	return fresh;
}

static void make(struct exi_queue *root, exs_qhandle_t h)
{
	struct exi_queue *room;

	/* A sleeper needs the words of all members. */
	if (!exi_futex_waitv_works())
		return;
	room = exi_lanes_memory(sizeof(*room));
	exi_lanes_lock_all(root);
	if (atomic_load(&root->handle) == h && !root->family.flat &&
	    root->qfd < 0 && !root->signal.exs_enable &&
	    exi_lanes_find(root, h) == root) {
		if (give_locked(root, h, room))
			room = NULL;
		/* Sleepers must sleep on the lane's word, too. */
		atomic_fetch_add(&root->hot_changes, 1);
		exi_queue_wake_locked(root);
	}
	exi_lanes_unlock_all(root);
	free(room);
}

void exi_lanes_crowded(struct exi_queue *q, exs_qhandle_t h,
		       enum exi_lanes_use use)
{
	struct exi_queue *root = q->root;

	if (q != root ||
	    atomic_load_explicit(&root->family.flat, memory_order_relaxed))
		return;
	/* A single thread that takes events keeps the order of all. */
	if (use == EXI_LANES_TAKES &&
	    atomic_exchange_explicit(&root->last_taker, exi_tid(),
				     memory_order_relaxed) == exi_tid())
		return;
	if (mine.crowd_handle != h) {
		mine.crowd_handle = h;
		mine.crowd[0] = mine.crowd[1] = 0;
	}
	mine.crowd[use]++;
	if (mine.crowd[EXI_LANES_SUBMITS] < CROWDED ||
	    mine.crowd[EXI_LANES_TAKES] < CROWDED)
		return;
	mine.crowd[0] = mine.crowd[1] = 0;
	make(root, h);
}

struct exi_queue *exi_lanes_lock_own(struct exi_queue *root, exs_qhandle_t h)
{
	struct exi_queue *q = exi_lanes_own(root, h);

	if (!exi_trylock(&q->lock)) {
		exi_lanes_crowded(q, h, EXI_LANES_SUBMITS);
		exi_lock(&q->lock);
	}
	if (q == root ||
	    atomic_load_explicit(&q->handle, memory_order_relaxed) == h)
		return q;
	exi_unlock(&q->lock); /* the lane has ended */
	exi_lock(&root->lock);
	return root;
}

/* Moves free slots; how many. */
static int move_free_locked(struct exi_queue *from, struct exi_queue *to, int n)
{
	int i;

	EXI_LOCKED(&from->lock);
	for (i = 0; i < n; i++) {
		struct exi_list *node = exi_list_pop(&from->free);

		if (!node)
			break;
		exi_container(node, struct exi_op, node)->queue = to;
		exi_list_add_tail(&to->free, node);
	}
	return i;
}

bool exi_lanes_gather(struct exi_queue *q, exs_qhandle_t h, int n)
{
	struct exi_queue *root = q->root, *m;
	int some = root->depth / 8 < SLOTS ? root->depth / 8 : SLOTS;
	int want = n > some ? n : some, got;

	if (q == root &&
	    !atomic_load_explicit(&root->family.n_lanes, memory_order_relaxed))
		return false;
	exi_lanes_lock_all(root);
	/* Since the caller looked, the lane may have ended, and then the root
	 * has its slots; or another thread has taken an event of the lane. */
	got = atomic_load(&q->handle) != h || !exi_list_empty(&q->free);
	for (int i = 0; atomic_load(&q->handle) == h && got < want &&
			(m = exi_lanes_member(root, i));
	     i++)
		if (m != q && atomic_load(&m->handle) == h)
			got += move_free_locked(m, q, want - got);
	exi_lanes_unlock_all(root);
	return got > 0;
}

/* --- the end ------------------------------------------------------------ */

static void append_locked(struct exi_queue *root, struct exi_list *from,
			  struct exi_list *to)
{
	EXI_LOCKED(&root->lock);
	if (!exi_list_empty(from))
		exi_list_move(from, from->prev, to);
}

static void end_locked(struct exi_queue *root)
{
	struct exi_queue *m;

	EXI_LOCKED(&root->lock);
	if (!root->family.n_lanes)
		return;
	for (int i = 1; (m = exi_lanes_member(root, i)); i++) {
		if (!atomic_load(&m->handle))
			continue;
		append_locked(root, &m->done, &root->done);
		append_locked(root, &m->free, &root->free);
		root->n_done += m->n_done;
		root->n_used += m->n_used;
		m->n_done = m->n_used = 0;
		atomic_store(&m->ready, 0);
		atomic_store(&m->deleted, true);
		atomic_store(&m->owner, 0);
		atomic_store(&m->handle, 0);
		atomic_fetch_add(&m->hot_changes, 1);
		exi_queue_wake_locked(m);
	}
	for (int i = 0; i < root->depth; i++)
		if (root->ops[i].queue != root)
			root->ops[i].queue = root;
	root->family.n_lanes = 0;
	atomic_store_explicit(&root->ready, root->n_done, memory_order_release);
	exi_queue_wake_locked(root);
}

bool exi_lanes_end_idle_locked(struct exi_queue *root, bool all)
{
	struct exi_queue *m;
	int used = 0;

	EXI_LOCKED(&root->lock);
	for (int i = 0; (m = exi_lanes_member(root, i)); i++)
		used += all ? m->n_used : m->n_used - m->n_done;
	if (!used)
		end_locked(root);
	return !used;
}

void exi_lanes_end(struct exi_queue *root)
{
	if (atomic_load(&root->family.flat))
		return; /* there are none */
	exi_lanes_lock_all(root);
	root->family.flat = true;
	end_locked(root);
	exi_lanes_unlock_all(root);
}

/* --- one member for each direction -------------------------------------- */

/* Whether the direction's next operation has to go to `old`: the direction has
 * operations or events there. */
static bool stays_locked(const struct exi_sock *sk, enum exi_dir dir,
			 const struct exi_queue *old, const struct exi_queue *q)
{
	EXI_LOCKED(&exi_sock_shared(sk)->half[dir].lock);
	return old && old != q && old->root == q->root &&
	       atomic_load_explicit(&old->handle, memory_order_relaxed) ==
		       atomic_load_explicit(&q->root->handle,
					    memory_order_relaxed) &&
	       (!exi_list_empty(&sk->ops[dir]) || sk->posted[dir] ||
		atomic_load_explicit(&old->ready, memory_order_acquire) != 0);
}

static void join_locked(struct exi_queue *root, struct exi_queue *to,
			struct exi_op **ops, int n)
{
	EXI_LOCKED(&root->lock);
	for (int i = 0; i < n; i++) {
		struct exi_queue *q = ops[i]->queue;

		if (!q || q == to || q->root != root)
			continue;
		q->n_used--;
		to->n_used++;
		ops[i]->queue = to;
	}
	if (++root->joins > JOINS_MAX) {
		root->family.flat = true;
		end_locked(root);
	}
}

void exi_lanes_turn_locked(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_op **ops, int n)
{
	struct exi_queue *q = ops[0]->queue, *old = sk->turn[dir];
	bool mixed = false;

	EXI_LOCKED(&exi_sock_shared(sk)->half[dir].lock);
	if (!q)
		return;
	if (old && old->root != q->root &&
	    (!exi_list_empty(&sk->ops[dir]) || sk->posted[dir] ||
	     atomic_load_explicit(&old->ready, memory_order_acquire)))
		exi_lanes_end(old->root);
	for (int i = 1; i < n; i++)
		mixed = mixed || ops[i]->queue != q;
	if (stays_locked(sk, dir, old, q)) {
		mixed = true;
	} else {
		old = q;
		/* Nothing of it is left where it was hot. */
		if (exi_list_empty(&sk->ops[dir]))
			exi_queue_cool(sk, dir);
	}
	if (mixed) {
		struct exi_queue *root = q->root;

		exi_lanes_lock_all(root);
		/* It may have ended meanwhile: everything is the root's. */
		if (atomic_load(&old->handle) != atomic_load(&root->handle))
			old = root;
		join_locked(root, old, ops, n);
		old = ops[0]->queue;
		exi_lanes_unlock_all(root);
	}
	sk->turn[dir] = old;
}

void exi_lanes_forked(struct exi_queue *root)
{
	struct exi_queue *m;

	for (int i = 1; (m = exi_lanes_member(root, i)); i++) {
		atomic_store(&m->lock.word, 0);
		atomic_store(&m->handle, 0);
		atomic_store(&m->owner, 0);
		atomic_store(&m->attended, 0);
		atomic_store(&m->n_hot, 0);
		atomic_store(&m->n_hot_rx, 0);
		atomic_store(&m->ready, 0);
		m->sleepers = 0;
		m->n_done = m->n_used = 0;
		exi_list_init(&m->done);
		exi_list_init(&m->free);
	}
	root->family.n_lanes = 0;
}

/* --- events ------------------------------------------------------------- */

bool exi_lanes_ready(const struct exi_queue *q)
{
	const struct exi_queue *m;

	for (int i = 0; (m = exi_lanes_member(q, i)); i++)
		if (atomic_load_explicit(&m->ready, memory_order_acquire))
			return true;
	return false;
}

int exi_lanes_count_ready(const struct exi_queue *root)
{
	const struct exi_queue *m;
	int ret = 0;

	for (int i = 0; (m = exi_lanes_member(root, i)); i++)
		ret += atomic_load(&m->ready);
	return ret;
}
