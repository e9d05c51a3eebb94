/* SPDX-License-Identifier: BSD-2-Clause */
/* Event queues.
 *
 * A queue owns the memory of its operations. While threads are in
 * exs_qdequeue() they make the progress of the sockets that the queue waits for
 * ("hot"), and no wake-up is needed. When no thread is there, the service
 * thread notices within a tick, asks the peers for wake-ups, and makes the
 * progress itself. */
#ifndef EXI_CORE_TRANSFER_QUEUE_H
#define EXI_CORE_TRANSFER_QUEUE_H

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>

#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/spin.h"
#include "core/fabric/provider.h"

struct exi_hot;
struct exi_op;
struct exi_region;
struct exi_sock;

#define EXI_QUEUE_HOT 16

/* A buffer of the program for any bytes that come. */
struct exi_buffer {
	void *at;
	size_t len;
};

#define EXI_LANES_MAX  7  /* and the root */
#define EXI_LANES_LOOK 16 /* visits */

struct exi_queue {
	/* See lanes.h. What threads of all lanes read; seldom written, in its
	 * own line of the cache. */
	struct {
		_Atomic int n_lanes;
		_Atomic bool flat; /* no lanes are to be made */
		_Atomic(struct exi_queue *) lane[EXI_LANES_MAX];
	} family;
	_Alignas(64) struct exi_lock
		lock;	    /* guards what follows; the last in the order */
	_Atomic int handle; /* 0: free */
	int depth;
	int n_done;
	int n_used;	      /* outstanding, kept, and done */
	_Atomic int sleepers; /* changed under the lock */
	int qfd;	      /* -1: never asked for */
	int watchers;	      /* threads that poll it: the last closes
			       * that of a deleted queue */
	int wait;	      /* EXS_WAIT_* */
	/* See multi.h. The buffers that can be taken, the last first. There is
	 * room for those that may come back, too. */
	struct exi_buffer *buffers;
	int n_buffers;
	int n_taken;
	int buffers_room;
	exs_signal_t signal;
	struct exi_list free;
	struct exi_list done;
	struct exi_op *ops;
	struct exi_spin spin;
	_Atomic uint32_t word; /* counts completions; slept on */
	_Atomic int ready;     /* n_done, to look at without the lock */
	_Atomic int users;     /* threads inside; deletion waits for none */
	_Atomic int attended;  /* threads in dequeue, which are not in users */
	_Atomic uint32_t visits; /* changes with each dequeue */
	uint32_t visits_seen;	 /* by the last tick that found no thread */
	uint32_t visits_ticked;	 /* by the last one that found a thread */
	_Atomic bool deleted;
	struct exi_queue *root;	     /* never changes; of a root: itself */
	_Atomic uint32_t owner;	     /* of a lane: its thread */
	_Atomic uint32_t last_taker; /* that found the lock taken */
	int joins; /* operations that could not change to another member */
	_Atomic uint32_t
		visits_left[EXI_LANES_MAX + 1]; /* by the owner's last look */
	struct exi_hot {
		struct exi_sock *sk;
		int fd;
		enum exi_dir dir;
	} hot[EXI_QUEUE_HOT];
	_Atomic int n_hot;
	_Atomic int n_hot_rx;	      /* of these, directions to receive from */
	_Atomic uint32_t hot_changes; /* of hot, and calls to let go */
};

/* Makes a queue with room for depth operations. 0; -EINVAL: not 1 to
 * EXS_QDEPTH_MAX; -EMFILE: EXI_QUEUES_MAX queues exist; -ENOMEM. */
int exi_queue_create(int depth, exs_qhandle_t *ret);
int exi_queue_delete(exs_qhandle_t q);
/* The queue of a handle, kept until exi_queue_put(); null: EINVAL. */
struct exi_queue *exi_queue_get(exs_qhandle_t q);
void exi_queue_put(struct exi_queue *q);

/* Reserves a slot, cleared but for its queue and the region of m, which must
 * cover the buffer (EXS_MHANDLE_UNREGISTERED: there is none); until its event
 * is dequeued neither can be deleted. -EAGAIN when all slots are used, -EINVAL
 * when there is no such queue or region. */
int exi_queue_reserve(exs_qhandle_t q, exs_mhandle_t m, const void *buf,
		      size_t len, struct exi_op **ret);
/* Slots for several transfers of one buffer each, reserved with one lock and
 * not cleared. Returns for how many, and in *ret_err why not for more. */
int exi_queue_reserve_some(exs_qhandle_t q, const exs_x_op_t *o, int n,
			   struct exi_op **ret, int *ret_err);
/* exi_queue_reserve_some() for one. 0 or -errno. */
int exi_queue_reserve_one(exs_qhandle_t q, const exs_x_op_t *o,
			  struct exi_op **ret);
/* For a transfer that may be over at once: locks the calling thread's member q
 * of the queue, and returns a slot for it, with its region, that is free still.
 * One of the next two follows, which unlock. Null: nothing is locked;
 * exi_queue_reserve_one() waits for the lock, or tells why there is no slot. */
struct exi_op *exi_queue_begin(struct exi_queue *q, exs_qhandle_t h,
			       const exs_x_op_t *o);
/* The slot is reserved, as by exi_queue_reserve_one(). */
void exi_queue_take_slot_unlock(struct exi_queue *q, struct exi_op *op);
/* The slot is that of an operation that is over: its event is there. */
void exi_queue_over_unlock(struct exi_queue *q, struct exi_op *op);
/* Gives a slot back without an event. */
void exi_queue_unreserve(struct exi_op *op);

/* Puts an event of the user's into the queue. -EAGAIN, -EINVAL. */
int exi_queue_post(exs_qhandle_t q, exs_ahandle_t a);

/* Reserves a slot whose event may be completed any number of times, until it is
 * let go; while an event of it is not dequeued, further ones are lost. */
int exi_queue_keep(exs_qhandle_t q, struct exi_op **ret);
void exi_queue_let_go(struct exi_op *op);

/* Reads an attribute (EXS_QATTR_*) into val; *len: the room, then the size. 0,
 * -EFAULT or -EINVAL. */
int exi_queue_status(struct exi_queue *q, int attr, void *val, size_t *len);

/* The queue's next events come from this direction: let dequeuers poll it.
 * False when the peer must ring instead. The direction's lock is held. */
bool exi_queue_heat_locked(struct exi_queue *q, struct exi_sock *sk, int fd,
			   enum exi_dir dir);
/* Whether dequeuers also poll another direction from which the queue receives.
 * A hint. */
static inline bool exi_queue_receives_elsewhere(const struct exi_queue *q,
						const struct exi_queue *hot_in)
{
	return atomic_load_explicit(&q->n_hot_rx, memory_order_relaxed) >
	       (hot_in == q);
}

/* A deleted queue polls no direction any more. */
void exi_queue_forget_hot_locked(struct exi_queue *q);

/* Threads that sleep at the queue look again: something changed. */
static inline void exi_queue_wake_locked(struct exi_queue *q)
{
	EXI_LOCKED(&q->lock);
	/* Under the lock, like the sleeper's load: no read-modify-write. */
	atomic_store_explicit(
		&q->word,
		atomic_load_explicit(&q->word, memory_order_relaxed) + 1,
		memory_order_release);
	if (q->sleepers)
		exi_futex_wake((const uint32_t *)&q->word, INT_MAX);
}

/* Changes the depth; -EBUSY while slots are in use. */
int exi_queue_deepen(struct exi_queue *q, int depth);

/* A socket goes away: no queue polls the direction any more. */
void exi_queue_cool(struct exi_sock *sk, enum exi_dir dir);
/* A socket goes away: makes dequeuers release it. */
void exi_queue_wake_all(void);

/* Whether an operation of any queue uses the region. */
bool exi_queue_uses(const struct exi_region *r);

/* The child after fork: its queues are empty, since operations are the
 * parent's. */
void exi_queue_forked(void);

/* A reserved slot becomes a transfer of one buffer. */
void exi_op_describe(struct exi_op *op, const exs_x_op_t *o);

/* The operation has its result: puts it into its queue, or wakes its thread.
 * Called with the socket's locks held, after it left the socket's list. */
void exi_op_complete(struct exi_op *op);
/* exi_op_complete() for a list of transfers, in its order; the list is empty
 * then. */
void exi_op_complete_all(struct exi_list *ops);

#define EXI_QUEUES_MAX 4096

/* Operations that a thread in dequeue completes by its own progress go straight
 * to the place where it wants its events, if nothing came before. */
struct exi_queue_taker {
	struct exi_queue *q; /* null: this thread takes nothing now */
	exs_qhandle_t handle;
	exs_event_t *ev;
	int max;
	int n;
};

/* The queues, by the low bits of their handles; never freed. */
extern _Atomic(struct exi_queue *) exi_queues[EXI_QUEUES_MAX];

/* The queue in a handle's place, which may have another handle by now; null. */
static inline struct exi_queue *exi_queue_at(exs_qhandle_t h)
{
	return exi_likely(h > 0)
		       ? atomic_load_explicit(
				 &exi_queues[h & (EXI_QUEUES_MAX - 1)],
				 memory_order_acquire)
		       : NULL;
}

/* The calling thread's place for events. */
extern _Thread_local struct exi_queue_taker exi_queue_taker;

/* Takes up to max events out of the queue, in order; how many, none when the
 * queue does not have the handle (any more). No lock of a queue is held. */
int exi_queue_take_events(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
			  int max);

/* Events of the other members of q's family (lanes.h): of all, or (`left`) of
 * those whose thread has not come since the last look. */
int exi_queue_take_others(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
			  int max, bool left);

/* The queue's only hot direction, read without the lock: members of two may be
 * mixed while it changes, which exi_sock_lock() finds out. Null: there is none,
 * or several. */
static inline struct exi_sock *exi_queue_lone_hot(const struct exi_queue *q,
						  int *ret_fd,
						  enum exi_dir *ret_dir)
{
	const struct exi_hot *h = q->hot;

	if (atomic_load_explicit(&q->n_hot, memory_order_acquire) != 1)
		return NULL;
	*ret_fd = __atomic_load_n(&h->fd, __ATOMIC_RELAXED);
	*ret_dir = __atomic_load_n(&h->dir, __ATOMIC_RELAXED);
	/* Pairs with the release in put_hot_locked(): the socket is whole. */
	return __atomic_load_n(&h->sk, __ATOMIC_ACQUIRE);
}

/* Copies the queue's hot directions; how many. clear: they are hot no more. */
int exi_queue_copy_hot(struct exi_queue *q, struct exi_hot *ret, bool clear);

#endif
