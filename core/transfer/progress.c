/* SPDX-License-Identifier: BSD-2-Clause */
/* Progress of transfers: the kernel moves the bytes when the direction is on
 * TCP, the fabric when it was switched. Queued operations are moved by single
 * attempts under the direction's lock (attempt.h). */
#include "core/sock/capture.h"
#include "core/transfer/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/pieces.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/begin.h"
#include "core/meet/find.h"
#include "core/meet/pair.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/attempt.h"
#include "core/transfer/drain.h"
#include "core/transfer/finish.h"
#include "core/transfer/half.h"
#include "core/transfer/lookup.h"
#include "core/transfer/message.h"
#include "core/transfer/multi.h"
#include "core/transfer/op.h"
#include "core/transfer/packet.h"
#include "core/transfer/parts.h"
#include "core/transfer/place.h"
#include "core/transfer/queue.h"
#include "core/transfer/resume.h"
#include "core/transfer/ring_io.h"
#include "core/transfer/switch.h"
#include "core/transfer/timeout.h"

/* --- asynchronous ------------------------------------------------------- */

static void posted_done(struct exi_xfer *x, ssize_t result);

/* A short run is held back for the operation's next part. */
#define SHORT_RUN (16u << 10)

static int send_flags(const struct exi_op *op)
{
	bool more = op->next < op->n_parts && op->run < SHORT_RUN;

	return (op->flags & ~EXS_SHUT_WR) | (more ? MSG_MORE : 0);
}

bool exi_progress_may_move(const struct exi_sock *sk, const struct exi_half *h)
{
	const struct exi_shared *sh = sk->sh;

	return h->meet_at != UINT64_MAX || atomic_load(&sh->linked) ||
	       atomic_load_explicit(&sh->reason, memory_order_relaxed) ==
		       EXS_X_REASON_UNDECIDED;
}

/* A transfer of the kernel's holds its direction on TCP until it is over, so a
 * long transfer goes in pieces while the direction may move. */
#define POSTED_PIECE ((size_t)64 << 10)

/* Hands what comes next of the first operation to the kernel. */
static int post_locked(struct exi_sock *sk, enum exi_dir dir, struct exi_op *op)
{
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_xfer *x = &sk->xfer[dir];
	int ret;

	EXI_LOCKED(&h->lock);
	x->buf = op->buf;
	x->len = op->run;
	x->flags = (dir == EXI_TX ? send_flags(op) : op->flags) &
		   ~(MSG_WAITALL | MSG_DONTWAIT);
	ret = sk->framed ? exi_message_run_locked(sk, dir, op, x) : 0;
	if (ret)
		return ret;
	if (dir == EXI_TX && x->len > POSTED_PIECE &&
	    exi_progress_may_move(sk, h))
		x->len = POSTED_PIECE;
	if (dir == EXI_RX && h->mode == EXI_MODE_LEFT && x->len > h->left)
		x->len = h->left;
	if (dir == EXI_RX && h->mode == EXI_MODE_BACK) {
		ssize_t n = exi_resume_read_locked(sk, x->len);

		if (n > 0)
			x->len = (size_t)n;
	}
	x->done = posted_done;
	x->conn = sk->tcp;
	x->owner = sk;
	x->dir = dir;
	ret = exi_service_domain(sk->tcp->domain);
	if (ret)
		return ret;
	sk->posted[dir] = op;
	ret = dir == EXI_RX ? sk->tcp->kops->post_recv(sk->tcp, x)
			    : sk->tcp->kops->post_send(sk->tcp, x);
	if (ret)
		sk->posted[dir] = NULL;
	return ret;
}

bool exi_flow_arm_locked(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &sk->sh->half[dir];
	enum exi_wake how = EXI_WAKE_BELL;

	EXI_LOCKED(&h->lock);
	if (!sk->fab || (h->mode != EXI_MODE_RING && !exi_place_lent(sk, dir)))
		return true;
	if (dir == EXI_TX && exi_place_waits(sk, dir))
		how = EXI_WAKE_BELL_REAP;
	if (sk->fab->wops->arm(sk->fab, dir, how))
		return false;
	/* After arming: a peer that left before it is seen here. */
	return !atomic_load(&sk->sh->gone) &&
	       !(dir == EXI_RX && atomic_load(&sk->sh->rx_fin));
}

/* 0: progress will be called when op can move, or, without op, when what is
 * lent is over. -EAGAIN: call it now. */
static int expect_locked(struct exi_sock *sk, enum exi_dir dir,
			 struct exi_op *op)
{
	struct exi_half *h = &sk->sh->half[dir];

	EXI_LOCKED(&h->lock);
	if (h->gathered) /* the thread that does calls progress then */
		return 0;
	if (h->mode == EXI_MODE_RING) {
		const struct exi_op *any =
			exi_container(sk->ops[dir].next, struct exi_op, node);

		if (any->queue &&
		    exi_queue_heat_locked(any->queue, sk, atomic_load(&sk->fd),
					  dir))
			return 0;
		return exi_flow_arm_locked(sk, dir) ? 0 : -EAGAIN;
	}
	if (h->mode == EXI_MODE_DRAIN) {
		int ret = exi_flow_await_drain_locked(sk);

		if (op || ret == 0 || ret == -EAGAIN)
			return ret;
		exi_place_forsake_locked(sk);
		return -EAGAIN;
	}
	if (!op)
		return exi_flow_arm_locked(sk, dir) ? 0 : -EAGAIN;
	/* The service reads on, or TAKEN comes, or what announces the end. */
	if (dir == EXI_RX && (exi_resume_keeps_locked(sk) ||
			      (atomic_load(&h->untaken) &&
			       exi_sock_remote(sk) && h->back >= h->left)))
		return 0;
	if (sk->tcp->domain->post_from_service && !exi_service_self())
		return exi_service_progress(sk, dir);
	return post_locked(sk, dir, op);
}

/* A receive has something, and does not wait for more. */
static bool content(const struct exi_op *op, enum exi_dir dir)
{
	return dir == EXI_RX && op->done && !(op->flags & MSG_WAITALL);
}

inline void exi_progress_copy(char *to, const char *from, size_t n)
{
	if (n >= 8 && n <= 16) {
		memcpy(to, from, 8);
		memcpy(to + n - 8, from + n - 8, 8);
	} else if (n) {
		memcpy(to, from, n);
	}
}

/* Puts the first few side by side. Returns how many bytes; 0: only one. */
static size_t gather(const struct exi_list *ops, char *buf)
{
	const struct exi_list *pos;
	size_t n = 0;
	int count = 0;

	if (ops->next->next == ops)
		return 0;
	exi_list_for_each (pos, ops) {
		const struct exi_op *op =
			exi_container(pos, struct exi_op, node);

		if (op->run > EXI_PROGRESS_TOGETHER - n || op->parts ||
		    op->holds || op->cancelled || (op->flags & MSG_MORE))
			break;
		exi_progress_copy(buf + n, op->buf, op->run);
		n += op->run;
		count++;
	}
	return count > 1 ? n : 0;
}

/* n bytes of theirs were sent: their events come with one lock. */
static void finish_together_locked(struct exi_sock *sk, size_t n)
{
	struct exi_list over = EXI_LIST_INIT(over);
	struct exi_list *pos;
	int count = 0;

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	exi_list_for_each (pos, &sk->ops[EXI_TX]) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (!n)
			break;
		if (op->run > n) {
			exi_parts_moved(op, n);
			break;
		}
		n -= op->run;
		op->done += op->run;
		op->run = 0;
		count++;
	}
	if (!count)
		return;
	exi_list_move(&sk->ops[EXI_TX], pos->prev, &over);
	exi_flow_count_ops_locked(sk, EXI_TX, -count);
	exi_timeout_begins_locked(sk, EXI_TX);
	exi_op_complete_all(&over);
}

/* The first few that go into one record: how many. */
static size_t pieces_together(const struct exi_list *ops, size_t most,
			      struct iovec room[EXI_PIECES_COPIED])
{
	const struct exi_list *pos;
	size_t n = 0;

	exi_list_for_each (pos, ops) {
		const struct exi_op *op =
			exi_container(pos, struct exi_op, node);

		if (n == EXI_PIECES_COPIED || !op->run || op->run > most ||
		    op->parts || op->holds || op->cancelled ||
		    (op->flags & MSG_MORE))
			break;
		room[n++] = (struct iovec){ .iov_base = op->buf,
					    .iov_len = op->run };
		most -= op->run;
	}
	return n;
}

/* send_together_locked() in the ring of a fabric that has room to write them
 * into. */
static __attribute__((noinline)) bool
send_in_record_locked(struct exi_sock *sk, struct exi_half *h, ssize_t *ret)
{
	struct iovec room[EXI_PIECES_COPIED];
	size_t n =
		pieces_together(&sk->ops[EXI_TX], EXI_ATTEMPT_TOGETHER, room);

	EXI_LOCKED(&h->lock);
	if (n < 2)
		return false;
	*ret = exi_attempt_send_together_locked(sk, h, room, n);
	if (*ret > 0)
		finish_together_locked(sk, (size_t)*ret);
	return true;
}

/* False: there is nothing to send together. *ret is as of an attempt for the
 * first, except that bytes which moved are accounted for. */
static bool send_together_locked(struct exi_sock *sk, struct exi_half *h,
				 ssize_t *ret)
{
	char buf[EXI_PROGRESS_TOGETHER];
	size_t left;

	EXI_LOCKED(&h->lock);
	/* Sockets without a role may not be streams. */
	if (sk->role == EXI_ROLE_NONE || exi_place_lent(sk, EXI_TX))
		return false;
	if (h->mode == EXI_MODE_RING && sk->fab &&
	    exi_attempt_together_locked(sk, h) > EXI_ATTEMPT_COPIED)
		return send_in_record_locked(sk, h, ret);
	left = gather(&sk->ops[EXI_TX], buf);
	if (!left)
		return false;
	*ret = exi_flow_try_send_locked(sk, h, buf, left, 0);
	if (*ret > 0)
		finish_together_locked(sk, (size_t)*ret);
	return true;
}

struct exi_op *exi_progress_next_locked(struct exi_sock *sk, enum exi_dir dir)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (exi_likely(!exi_place_lent(sk, dir)))
		return exi_container(sk->ops[dir].next, struct exi_op, node);
	return dir == EXI_RX || sk->sh->half[dir].mode == EXI_MODE_DRAIN
		       ? NULL
		       : exi_place_first(sk, dir);
}

/* What comes next of an operation on several pieces and lies in memory. */
static void pieces_of(const struct exi_op *op,
		      struct iovec room[EXI_PIECES_COPIED],
		      struct exi_pieces *ret)
{
	size_t n = 0, i;

	*ret = (struct exi_pieces){ .v = room, .left = op->run };
	room[n++] = (struct iovec){ .iov_base = op->buf, .iov_len = op->run };
	for (i = op->next; i < op->n_parts && n < EXI_PIECES_COPIED; i++) {
		const struct exi_part *p = &op->parts[i];

		if (p->fd >= 0)
			break;
		room[n++] = (struct iovec){ .iov_base = p->base,
					    .iov_len = p->len };
		ret->left += p->len;
	}
	ret->n = n;
}

/* One attempt for such an operation. *want: how many bytes it was for. */
static __attribute__((noinline)) ssize_t
try_parts_locked(struct exi_sock *sk, enum exi_dir dir, const struct exi_op *op,
		 int flags, size_t *want)
{
	struct iovec room[EXI_PIECES_COPIED];
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_pieces p;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	pieces_of(op, room, &p);
	*want = p.left;
	if (dir == EXI_RX)
		return exi_attempt_recv_pieces_locked(sk, h, &p, flags);
	flags &= ~EXS_SHUT_WR;
	if (op->done + p.left < op->len && p.left < SHORT_RUN)
		flags |= MSG_MORE;
	return exi_attempt_send_pieces_locked(sk, h, &p, flags);
}

/* Nothing more of it moves: n is why. */
static void give_up_op_locked(struct exi_sock *sk, enum exi_dir dir,
			      struct exi_op *op, ssize_t n)
{
	int err = n == -EREMOTE ? ECONNRESET : (int)-n;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (!op->lent) {
		exi_flow_finish_locked(sk, dir, op, err);
		return;
	}
	/* What is under way ends it. */
	op->len = op->done + op->lent;
	op->run = 0;
	sk->sh->half[dir].err = err;
	if (sk->framed)
		op->err = err;
}

static bool mark_passed(const struct exi_half *h)
{
	return __atomic_load_n(&h->bytes, __ATOMIC_RELAXED) >
	       atomic_load_explicit(&h->meet_at, memory_order_relaxed);
}

/* An operation passed a mark on TCP: the service must meet first, for which no
 * lock of a direction may be held, and then continues it. */
static bool stops_by(struct exi_sock *sk, enum exi_dir dir)
{
	return exi_unlikely(mark_passed(&sk->sh->half[dir])) &&
	       exi_service_progress(sk, dir) == 0;
}

/* So many bytes and steps of a direction at once. */
#define AT_ONCE	   ((size_t)1 << 20)
#define STEPS_ONCE 4096

/* A thread that has moved a direction this far since it began at `from' bytes
 * leaves it to the next look of a dequeuer, or to the service: a peer that is
 * always faster keeps neither a call beyond its time, nor the service from
 * other connections and from reading the links. */
static bool goes_round_locked(struct exi_sock *sk, enum exi_dir dir,
			      uint64_t from, int steps)
{
	const struct exi_half *h = &sk->sh->half[dir];
	const struct exi_op *op =
		exi_container(sk->ops[dir].next, struct exi_op, node);

	EXI_LOCKED(&h->lock);
	if (exi_likely(h->bytes - from < AT_ONCE && steps < STEPS_ONCE))
		return false;
	return (h->mode == EXI_MODE_RING && op->queue &&
		exi_queue_heat_locked(op->queue, sk, atomic_load(&sk->fd),
				      dir)) ||
	       exi_service_progress(sk, dir) == 0;
}

void exi_flow_meet(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &exi_sock_shared(sk)->half[dir];

	if (exi_likely(!mark_passed(h)))
		return;
	exi_link_meet(sk, atomic_load(&sk->fd));
	/* A meeting is under way, or the end: neither needs a mark. */
	if (mark_passed(h))
		atomic_store(&h->meet_at, UINT64_MAX);
}

/* No operation moves: there is none, or the first one holds all. */
static bool idle(const struct exi_sock *sk, enum exi_dir dir)
{
	const struct exi_list *first = sk->ops[dir].next;

	return first == &sk->ops[dir] ||
	       exi_container(first, struct exi_op, node)->holds;
}

/* The last of what was lent came back. */
void exi_flow_give_back_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	exi_switch_giveback_locked(sk);
	if (!sk->sh->half[EXI_RX].leaving)
		exi_sock_wake_all_locked(sk, EXI_RX);
}

/* The outcome of one look at the operations of a direction. */
enum step {
	STEP_AGAIN, /* look again */
	STEP_STOP,  /* nothing moves now */
	STEP_LEAVE, /* the service was asked to continue */
};

/* Takes what came back of the buffers that the fabric's device has. */
static void reap_lent_locked(struct exi_sock *sk, struct exi_half *h,
			     enum exi_dir dir)
{
	EXI_LOCKED(&h->lock);
	if (h->mode == EXI_MODE_DRAIN)
		exi_flow_drain_locked(sk);
	exi_place_reap_locked(sk, dir);
	if (dir == EXI_RX && h->leaving)
		exi_flow_give_back_locked(sk);
}

/* Tries to move bytes of an operation: *ret is the result, for the *ret_want
 * bytes that were tried. True: all that follows is done. op may be null: none
 * is to move. */
static bool try_op_locked(struct exi_sock *sk, struct exi_half *h,
			  enum exi_dir dir, struct exi_op *op, int flags,
			  size_t *ret_want, ssize_t *ret)
{
	EXI_LOCKED(&h->lock);
	*ret_want = 0;
	*ret = -EAGAIN;
	if (!op)
		return false;
	*ret_want = op->run;
	if (exi_unlikely(sk->framed)) {
		*ret = exi_message_move_locked(sk, dir, op);
		if (*ret == 1)
			exi_finish_in_turn_locked(sk, dir, op);
		return *ret >= 0;
	}
	if (exi_unlikely(op->multi))
		return exi_multi_try_locked(sk, h, op, flags, ret);
	if (op->next < op->n_parts && h->mode != EXI_MODE_RING)
		*ret = try_parts_locked(sk, dir, op, op->flags | flags,
					ret_want);
	else if (dir == EXI_RX)
		*ret = exi_flow_try_recv_locked(sk, h, op->buf, *ret_want,
						op->flags | flags);
	else if (send_together_locked(sk, h, ret))
		return *ret > 0;
	else
		*ret = exi_flow_try_send_locked(sk, h, op->buf, *ret_want,
						send_flags(op));
	return false;
}

/* Handles n, the result of an attempt to move want bytes of op. */
static enum step after_try_locked(struct exi_sock *sk, enum exi_dir dir,
				  struct exi_op *op, size_t want, ssize_t n)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (n == -EAGAIN && op && content(op, dir)) {
		exi_flow_finish_locked(sk, dir, op, 0);
		return STEP_AGAIN;
	}
	if (n == -EAGAIN && dir == EXI_RX && exi_place_lend(sk))
		return STEP_AGAIN;
	if (n == -EAGAIN) {
		n = expect_locked(sk, dir, op);
		if (n == 0)
			return STEP_STOP;
		if (n == -EAGAIN)
			return STEP_AGAIN;
	}
	if (n == -EINTR)
		return STEP_AGAIN;
	if (n == -ESTALE && exi_service_progress(sk, dir) == 0)
		return STEP_LEAVE; /* the service reads the link first */
	if (n < 0)
		give_up_op_locked(sk, dir, op, n);
	else if (exi_flow_moved(op, dir, (size_t)n, want))
		exi_finish_in_turn_locked(sk, dir, op);
	return STEP_AGAIN;
}

/* Moves the next operation of a direction that can move; the list is not
 * empty. */
static inline enum step step_locked(struct exi_sock *sk, enum exi_dir dir,
				    int flags)
{
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_op *op;
	size_t want;
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(h->mode == EXI_MODE_TCP) && stops_by(sk, dir))
		return STEP_LEAVE;
	if (exi_unlikely(exi_place_lent(sk, dir))) {
		reap_lent_locked(sk, h, dir);
		if (exi_list_empty(&sk->ops[dir]))
			return STEP_STOP;
	}
	op = exi_progress_next_locked(sk, dir);
	if (op && exi_unlikely(op->holds)) {
		if (!op->ended && !op->finished)
			exi_op_complete(op); /* its thread's turn */
		return STEP_STOP;
	}
	if (op && op->cancelled && !op->lent) {
		exi_flow_cancelled_locked(sk, dir, op);
		return STEP_AGAIN;
	}
	if (op && exi_unlikely(exi_parts_wants(op))) {
		op->err = -exi_parts_read(op);
		if (op->err) {
			give_up_op_locked(sk, dir, op, op->done ? 0 : -op->err);
			return STEP_AGAIN;
		}
	}
	if (op && dir == EXI_TX && (!sk->framed || exi_packet_headed(op))) {
		n = exi_place_give(sk, op);
		if (n > 0)
			return STEP_AGAIN;
		if (n == -EALREADY)
			op = NULL;
	}
	if (try_op_locked(sk, h, dir, op, flags, &want, &n))
		return STEP_AGAIN;
	return after_try_locked(sk, dir, op, want, n);
}

static void progress_locked(struct exi_sock *sk, enum exi_dir dir, int flags)
{
	struct exi_half *h = &sk->sh->half[dir];
	uint64_t from = h->bytes;
	enum step step = STEP_AGAIN;
	int n;

	EXI_LOCKED(&h->lock);
	for (n = 0; step == STEP_AGAIN && !exi_list_empty(&sk->ops[dir]) &&
		    !sk->posted[dir];
	     n++)
		step = goes_round_locked(sk, dir, from, n)
			       ? STEP_LEAVE
			       : step_locked(sk, dir, flags);
	if (step == STEP_LEAVE)
		return;
	if (h->end_wanted && exi_list_empty(&sk->ops[dir])) {
		exi_flow_end_locked(sk);
		/* Both directions have ended: the service knows what
		 * follows. */
		if (atomic_load(&sk->sh->rx_fin))
			(void)exi_service_progress(sk, EXI_TX);
	}
	while (idle(sk, dir) && h->mode == EXI_MODE_DRAIN &&
	       exi_flow_drain_locked(sk) == -EAGAIN &&
	       exi_flow_await_drain_locked(sk) == -EAGAIN)
		;
}

void exi_flow_progress_locked(struct exi_sock *sk, enum exi_dir dir)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	progress_locked(sk, dir, 0);
}

/* The first operation, if it is a receive into one buffer that needs nothing
 * else: the ring has its bytes, and no thread gathers them or has them on loan.
 * Otherwise null. */
static inline struct exi_op *plain_receive_locked(struct exi_sock *sk)
{
	struct exi_op *op =
		exi_container(sk->ops[EXI_RX].next, struct exi_op, node);

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	return exi_likely(exi_half_rings_locked(&sk->sh->half[EXI_RX]) &&
			  sk->fab && !sk->fab->pops && !sk->framed &&
			  !sk->posted[EXI_RX] &&
			  !exi_list_empty(&sk->ops[EXI_RX]) &&
			  op->type == EXS_EVT_RECV && !op->parts &&
			  !op->multi && !op->holds && !op->cancelled &&
			  op->run == op->len)
		       ? op
		       : NULL;
}

/* What step_locked() does for such an operation. */
static enum step receive_locked(struct exi_sock *sk, struct exi_op *op,
				int flags)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	size_t want = op->run;
	ssize_t n;

	EXI_LOCKED(&h->lock);
	n = exi_recv_ring_locked(sk, h, op->buf, want, op->flags | flags);
	if (exi_unlikely(n <= 0 || n != (ssize_t)want))
		return after_try_locked(sk, EXI_RX, op, want, n);
	op->done = want;
	op->run = 0;
	exi_flow_finish_locked(sk, EXI_RX, op, 0);
	return exi_list_empty(&sk->ops[EXI_RX]) ? STEP_STOP : STEP_AGAIN;
}

/* There is nothing for the next receive, as an attempt would find, and what
 * comes is found by a dequeuer, which looks again before it waits. */
static bool is_left_to_dequeuer_locked(struct exi_sock *sk, struct exi_op *op)
{
	struct exi_word w;

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	sk->fab->wops->word(sk->fab, EXI_RX, &w);
	return !sk->fab->wops->poll && w.addr && op->queue &&
	       __atomic_load_n(w.addr, __ATOMIC_RELAXED) == w.value &&
	       exi_queue_heat_locked(op->queue, sk, sk->fd, EXI_RX);
}

/* A dequeuer mostly finds what it waits for: it takes that first. */
void exi_flow_progress_polled_locked(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_op *op = dir == EXI_RX ? plain_receive_locked(sk) : NULL;
	uint64_t from = sk->sh->half[dir].bytes;
	int n = 0;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	while (op) {
		if (receive_locked(sk, op, EXI_MSG_POLLED) != STEP_AGAIN)
			return;
		op = plain_receive_locked(sk);
		if (op && (is_left_to_dequeuer_locked(sk, op) ||
			   goes_round_locked(sk, dir, from, ++n)))
			return;
	}
	progress_locked(sk, dir, EXI_MSG_POLLED);
}

void exi_progress_tried_locked(struct exi_sock *sk, enum exi_dir dir, ssize_t n)
{
	struct exi_op *op =
		exi_container(sk->ops[dir].next, struct exi_op, node);

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (after_try_locked(sk, dir, op, op->run, n) == STEP_AGAIN)
		progress_locked(sk, dir, 0);
}

void exi_flow_progress(struct exi_sock *sk, enum exi_dir dir)
{
	int fd = atomic_load(&sk->fd);
	struct exi_shared *sh;

	if (fd < 0 || !exi_sock_lock(sk, fd, dir, &sh))
		return;
	exi_flow_progress_locked(sk, dir);
	exi_half_unlock(&sh->half[dir]);
}

/* The kernel moved what post_locked() gave it. */
static void posted_done(struct exi_xfer *x, ssize_t result)
{
	struct exi_sock *sk = x->owner;
	enum exi_dir dir = x->dir;
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_op *op;

	exi_lock(&h->lock);
	op = sk->posted[dir];
	sk->posted[dir] = NULL;
	if (result > 0) {
		exi_capture_tell_one(sk->tcp, dir, x->buf, result, x->flags);
		exi_half_account_locked(h, result, false);
		if (dir == EXI_TX)
			exi_link_by_kernel(0, 0);
		/* Counted anew: a switch that came meanwhile may have counted
		 * these bytes already. */
		if (dir == EXI_RX && h->mode == EXI_MODE_LEFT)
			exi_switch_recount_locked(sk);
		if (dir == EXI_RX && h->mode == EXI_MODE_BACK)
			h->back += (uint64_t)result;
	}
	/* The end is found again, and judged, by the attempt that follows. */
	if (dir == EXI_RX && result == 0 && (op->len > op->done || sk->framed))
		result = -ECANCELED;
	if (result >= 0 && exi_unlikely(sk->framed))
		exi_message_posted_locked(sk, dir, op, (size_t)result);
	else if (result >= 0 && exi_flow_moved(op, dir, (size_t)result, x->len))
		exi_finish_in_turn_locked(sk, dir, op);
	else if (result < 0 && result != -ECANCELED)
		exi_flow_finish_locked(sk, dir, op, (int)-result);
	else if (op->cancelled)
		exi_flow_cancelled_locked(sk, dir, op);
	exi_flow_progress_locked(sk, dir);
	exi_unlock(&h->lock);
	if (dir == EXI_RX)
		exi_flow_after_recv(sk, atomic_load(&sk->fd));
}

void exi_conn_ready(struct exi_conn *c, enum exi_dir dir)
{
	struct exi_sock *sk = exi_sock_peek(c->fd);

	if (sk && (sk->tcp == c || sk->fab == c))
		exi_flow_progress(sk, dir);
}

bool (*exi_flow_no_room)(struct exi_sock *sk, int fd);

bool exi_progress_kernel_sends_locked(struct exi_sock *sk, struct exi_half *h,
				      int flags)
{
	EXI_LOCKED(&h->lock);
	return h->mode == EXI_MODE_TCP && !(flags & MSG_OOB) &&
	       !sk->posted[EXI_TX] && !exi_switch_wanted(sk->sh) &&
	       !__atomic_load_n(&h->ended, __ATOMIC_RELAXED) &&
	       !atomic_load(&h->broken) && !h->err && !sk->sh->half[EXI_RX].err;
}

bool exi_flow_on_tcp(int fd, enum exi_dir dir)
{
	struct exi_sock *sk = exi_sock_find(fd);

	return sk && exi_sock_shared(sk)->half[dir].mode != EXI_MODE_RING;
}
