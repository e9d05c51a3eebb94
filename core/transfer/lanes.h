/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes: what a thread has of a queue that several threads share.
 *
 * A queue begins as one struct exi_queue, the root. When several threads take
 * events and submit at the same time, and wait for each other's locks, all but
 * one of them get a lane each: a struct exi_queue with own slots, events, hot
 * directions and lock. An operation belongs to the lane of the thread that
 * submitted it. A thread takes the events of its lane first, and those of the
 * others when it has none, or at every EXI_LANES_LOOK-th visit if the owner has
 * not come meanwhile. So threads that work on their own connections share no
 * lock and write no common line.
 *
 * Why it is right (models/lanes.pml searches the order and the sleep):
 * - Members. The root and its lanes are the members of a family. A slot and its
 *   event belong to the member in op->queue, which changes only while the
 *   locks of all members are held (family lock: root first, then the lanes by
 *   index; no other code holds two). So a thread that locked a member, and
 *   finds it in op->queue, has the right lock; otherwise it looks again.
 * - Order. The operations of one direction, and their events, are in one member
 *   at a time: exi_lanes_turn_locked() compares under the direction's lock. The
 *   direction changes to another member only when no operation of it is listed
 *   and the old member has no event. (`ready` of the old member is stored under
 *   the direction's lock by what completed there; 0 therefore means that the
 *   event was taken.) Otherwise the new operation joins the old member. If that
 *   happens often, threads share sockets: the lanes end for good. So they do
 *   when a direction whose operations or events a queue has goes on with
 *   another queue, since sk->turn names one member only.
 * - Sleep. A thread sleeps on the words of all members. It counts itself among
 *   the sleepers of each, under the member's lock, and then looks at `ready` of
 *   each. A completion, under that lock, puts the event and looks at the
 *   sleepers. Whichever is second sees the other. A thread that registered
 *   before a lane was made is in the root's sleepers, which exi_lanes_crowded()
 *   wakes after it made the lane, under the root's lock.
 * - The end. exi_lanes_end() moves all slots and events to the root under the
 *   family lock, for good: a lane that began later might be the one that
 *   sk->turn still names, while the root has the direction's operations. Only
 *   an idle queue can have lanes again. A lane that ended has no handle: a
 *   thread that finds it so goes to the root. Hot directions stay with the lane
 *   until the next tick of the service, since nobody attends it. The memory of
 *   lanes is kept, as that of queues is. */
#ifndef EXI_CORE_TRANSFER_LANES_H
#define EXI_CORE_TRANSFER_LANES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/exs.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/transfer/queue.h"

struct exi_op;
struct exi_sock;

enum exi_lanes_use {
	EXI_LANES_SUBMITS,
	EXI_LANES_TAKES
};

/* Cleared memory that begins a line of the cache; null: there is none. */
void *exi_lanes_memory(size_t size);

struct exi_queue *exi_lanes_find(struct exi_queue *root, exs_qhandle_t h);

/* The calling thread's member of the family. The lane may have ended when it is
 * locked: then it does not have the handle, and the root may. */
static inline struct exi_queue *exi_lanes_own(struct exi_queue *root,
					      exs_qhandle_t h)
{
	return exi_likely(!atomic_load_explicit(&root->family.n_lanes,
						memory_order_relaxed))
		       ? root
		       : exi_lanes_find(root, h);
}

/* exi_lanes_own(), locked. */
struct exi_queue *exi_lanes_lock_own(struct exi_queue *root, exs_qhandle_t h);

/* The calling thread found the member's lock taken. Makes a lane for the thread
 * if that happens often, in both uses, among several threads that take
 * events; none where a thread cannot sleep on several words (Linux before
 * 5.16). No lock of a queue is held. */
void exi_lanes_crowded(struct exi_queue *q, exs_qhandle_t h,
		       enum exi_lanes_use use);

/* Moves free slots of other members to q, which had too few of the n that it
 * needs. Returns false if there are none; true: look again, at the thread's
 * member, which is the root if q has ended. No lock of a queue is held. */
bool exi_lanes_gather(struct exi_queue *q, exs_qhandle_t h, int n);

/* The operations are submitted to the direction, whose lock is held: makes
 * ops[i]->queue the member that has the direction's operations. */
void exi_lanes_turn_locked(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_op **ops, int n);

/* The family lock. Unlocking also makes the service look at directions that are
 * hot in a lane that ended. */
void exi_lanes_lock_all(struct exi_queue *root);
void exi_lanes_unlock_all(struct exi_queue *root);

/* Everything is the root's again, and the queue gets no lanes any more. */
void exi_lanes_end(struct exi_queue *root);

/* Ends the lanes if no operation is outstanding and, with `all`, no event
 * waits; otherwise does nothing. Returns whether it ended them, or there were
 * none. The family lock is held. */
bool exi_lanes_end_idle_locked(struct exi_queue *root, bool all);

/* Whether a member has events; and how many all have. */
bool exi_lanes_ready(const struct exi_queue *q);
int exi_lanes_count_ready(const struct exi_queue *root);

/* The child after fork, with the root's slots in place. */
void exi_lanes_forked(struct exi_queue *root);

/* The i-th member of the family, from 0, the root; null when there are no
 * more. Members that ended are among them. */
static inline struct exi_queue *exi_lanes_member(const struct exi_queue *q,
						 int i)
{
	struct exi_queue *root = q->root;

	return !i ? root
	       : i <= EXI_LANES_MAX
		       ? atomic_load_explicit(&root->family.lane[i - 1],
					      memory_order_acquire)
		       : NULL;
}

#endif
