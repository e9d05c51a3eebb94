/* SPDX-License-Identifier: BSD-2-Clause */
/* Taking asynchronous transfers. */
#include "core/transfer/submit.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "core/transfer/attempt.h"
#include "core/transfer/half.h"
#include "core/transfer/lanes.h"
#include "core/transfer/lookup.h"
#include "core/transfer/op.h"
#include "core/transfer/packet.h"
#include "core/transfer/parts.h"
#include "core/transfer/place.h"
#include "core/transfer/progress.h"
#include "core/transfer/queue.h"
#include "core/transfer/ring_io.h"
#include "core/transfer/timeout.h"

#define PIECES 64 /* sends in one record */

/* Locks the direction, when it takes operations. */
static inline __attribute__((always_inline)) int
lock_for_ops(struct exi_sock *sk, int fd, enum exi_dir dir,
	     struct exi_shared **ret)
{
	int err;

	if (!exi_sock_lock(sk, fd, dir, ret))
		return -EBADF;
	err = sk->closing				      ? -EBADF
	      : dir == EXI_TX && (*ret)->half[dir].end_wanted ? -EPIPE
							      : 0;
	if (err)
		exi_half_unlock(&(*ret)->half[dir]);
	return err;
}

/* The operations go to the member of the queue that has the direction's. */
static inline void keep_turn_locked(struct exi_sock *sk, enum exi_dir dir,
				    struct exi_op **ops, int n)
{
	EXI_LOCKED(&exi_sock_shared(sk)->half[dir].lock);
	if (exi_unlikely(
		    sk->turn[dir] !=
		    atomic_load_explicit(&ops[0]->queue, memory_order_relaxed)))
		exi_lanes_turn_locked(sk, dir, ops, n);
}

/* The connection's bytes may have been sent after those of other connections
 * from which the queue receives. */
static bool others_go_first(const struct exi_sock *sk,
			    const struct exi_queue *q)
{
	return sk->fab->rops->first &&
	       exi_queue_receives_elsewhere(q,
					    atomic_load(&sk->hot_in[EXI_RX]));
}

/* The operation does not move at once, because of what others have: the thread
 * that dequeues moves all in order, and is informed of this one. */
static bool waits_in_order_locked(struct exi_sock *sk, enum exi_dir dir,
				  const struct exi_op *op)
{
	const struct exi_half *h = &sk->sh->half[dir];

	EXI_LOCKED(&h->lock);
	return dir == EXI_RX && op->queue && !op->holds &&
	       h->mode == EXI_MODE_RING && sk->fab &&
	       others_go_first(sk, op->queue) &&
	       exi_queue_heat_locked(op->queue, sk, op->fd, dir);
}

static void list_locked(struct exi_sock *sk, enum exi_dir dir,
			struct exi_op **ops, int n)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	for (int i = 0; i < n; i++)
		exi_list_add_tail(&sk->ops[dir], &ops[i]->node);
	exi_flow_count_ops_locked(sk, dir, n);
}

static void enlist_locked(struct exi_sock *sk, enum exi_dir dir,
			  struct exi_op **ops, int n)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	list_locked(sk, dir, ops, n);
	/* Behind others they wait their turn, which all that is lent has
	 * had. */
	if (sk->ops[dir].next == &ops[0]->node) {
		exi_timeout_begins_locked(sk, dir);
		if (!waits_in_order_locked(sk, dir, ops[0]))
			exi_flow_progress_locked(sk, dir);
	} else if (exi_place_lent(sk, dir) &&
		   exi_progress_next_locked(sk, dir) == ops[0]) {
		exi_flow_progress_locked(sk, dir);
	}
}

static int submit_to(struct exi_sock *sk, struct exi_op **ops, int n)
{
	enum exi_dir dir = exi_op_dir(ops[0]);
	struct exi_shared *sh;
	size_t len = 0;
	int fd = ops[0]->fd; /* an op is the queue's from when it is listed */
	int ret;

	for (int i = 0; i < n; i++) {
		ret = sk->framed ? exi_packet_check(sk, ops[i]) : 0;
		if (ret)
			return ret;
		len += ops[i]->len;
	}
	if (dir == EXI_TX)
		exi_flow_before_send(sk, fd, len);
	ret = lock_for_ops(sk, fd, dir, &sh);
	if (ret)
		return ret;
	for (int i = 0; i < n; i++) /* lanes may have changed meanwhile */
		if (sk->turn[dir] != ops[i]->queue)
			exi_lanes_turn_locked(sk, dir, ops, n);
	if (ops[0]->flags & EXS_SHUT_WR) /* which comes alone */
		sh->half[dir].end_wanted |= EXI_END_AFTER;
	enlist_locked(sk, dir, ops, n);
	exi_half_unlock(&sh->half[dir]);
	if (dir == EXI_RX)
		exi_flow_after_recv(sk, fd);
	return 0;
}

int exi_flow_submit_all(struct exi_op **ops, int n)
{
	struct exi_sock *sk;
	int ret = exi_flow_addressed(ops[0]->fd, &sk);

	return ret ? ret : submit_to(sk, ops, n);
}

/* Nothing is before what comes now, and the ring may take it. */
static inline __attribute__((always_inline)) bool
straight_to_ring(struct exi_sock *sk, const struct exi_half *h)
{
	return h->mode == EXI_MODE_RING && sk->fab &&
	       exi_list_empty(&sk->ops[EXI_TX]) && !sk->posted[EXI_TX] &&
	       !(__atomic_load_n(&h->ended, __ATOMIC_RELAXED) | h->broken |
		 (uint32_t)h->err |
		 atomic_load_explicit(&sk->sh->gone, memory_order_relaxed));
}

/* Sends the first few short sends side by side, with no more of an operation
 * than its event needs. Returns how many were sent whole, and in *ret_part how
 * many bytes of the next. */
static int send_at_once_locked(struct exi_sock *sk, const exs_x_op_t *o,
			       struct exi_op **ops, int n, size_t *ret_part)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	struct exi_list over = EXI_LIST_INIT(over);
	char together[EXI_PROGRESS_TOGETHER];
	const char *from = n == 1 ? o->exs_x_buffer : together;
	size_t len = 0;
	ssize_t ret;
	int i;

	EXI_LOCKED(&h->lock);
	for (i = 0; i < n && o[i].exs_x_length <= EXI_PROGRESS_TOGETHER - len &&
		    !(o[i].exs_x_flags & MSG_MORE);
	     i++) {
		if (n > 1)
			exi_progress_copy(together + len, o[i].exs_x_buffer,
					  o[i].exs_x_length);
		len += o[i].exs_x_length;
	}
	ret = len ? exi_attempt_send_ring_locked(sk, h, from, len) : 0;
	if (ret < 0 && ret != -EAGAIN && ret != -EINTR)
		h->err = (int)-ret; /* the next attempt says it */
	*ret_part = ret > 0 ? (size_t)ret : 0;
	for (i = 0; i < n && *ret_part && o[i].exs_x_length <= *ret_part; i++) {
		exi_op_moved(ops[i], &o[i], o[i].exs_x_length);
		exi_list_add_tail(&over, &ops[i]->node);
		*ret_part -= o[i].exs_x_length;
	}
	if (i)
		exi_op_complete_all(&over);
	return i;
}

/* A send that may go beside others. */
static bool joins(const exs_x_op_t *o)
{
	return o->exs_x_length && o->exs_x_length <= EXI_ATTEMPT_TOGETHER / 2 &&
	       !(o->exs_x_flags & MSG_MORE);
}

/* The next of n sends that go into one record: how many. */
static int next_pieces(const exs_x_op_t *o, int n, size_t most,
		       struct iovec *ret)
{
	int i;

	for (i = 0;
	     i < n && i < PIECES && joins(&o[i]) && o[i].exs_x_length <= most;
	     i++) {
		ret[i] = (struct iovec){ .iov_base = o[i].exs_x_buffer,
					 .iov_len = o[i].exs_x_length };
		most -= o[i].exs_x_length;
	}
	return i;
}

/* send_at_once_locked() where these are more than a little: a few in each
 * record. */
static int send_in_records_locked(struct exi_sock *sk, const exs_x_op_t *o,
				  struct exi_op **ops, int n, size_t *ret_part)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	size_t most = exi_attempt_together_locked(sk, h);
	struct exi_list over = EXI_LIST_INIT(over);
	struct iovec v[PIECES];
	int i = 0, end = 0, few;
	ssize_t ret = 1;

	EXI_LOCKED(&h->lock);
	*ret_part = 0;
	while (i == end && (few = next_pieces(o + i, n - i, most, v)) > 0) {
		end += few;
		ret = exi_attempt_send_together_locked(sk, h, v, (size_t)few);
		*ret_part = ret > 0 ? (size_t)ret : 0;
		for (; i < end && *ret_part >= o[i].exs_x_length && *ret_part;
		     i++) {
			exi_op_moved(ops[i], &o[i], o[i].exs_x_length);
			exi_list_add_tail(&over, &ops[i]->node);
			*ret_part -= o[i].exs_x_length;
		}
	}
	if (ret < 0 && ret != -EAGAIN && ret != -EINTR)
		h->err = (int)-ret; /* the next attempt says it */
	if (i)
		exi_op_complete_all(&over);
	return i;
}

static void describe_all(struct exi_op **ops, const exs_x_op_t *o, int n)
{
	for (int i = 0; i < n; i++)
		exi_op_describe(ops[i], &o[i]);
}

static int submit_sends(struct exi_sock *sk, const exs_x_op_t *o,
			struct exi_op **ops, int n)
{
	struct exi_shared *sh;
	size_t part = 0, len = 0;
	int sent = 0, ret;

	for (int i = 0; i < n; i++)
		len += o[i].exs_x_length;
	exi_flow_before_send(sk, o->exs_x_socket, len);
	ret = lock_for_ops(sk, o->exs_x_socket, EXI_TX, &sh);
	if (ret)
		return ret;
	keep_turn_locked(sk, EXI_TX, ops, n);
	if (straight_to_ring(sk, &sh->half[EXI_TX]))
		sent = len > EXI_PROGRESS_TOGETHER
			       ? send_in_records_locked(sk, o, ops, n, &part)
			       : send_at_once_locked(sk, o, ops, n, &part);
	if (sent < n) {
		describe_all(ops + sent, o + sent, n - sent);
		if (part)
			exi_parts_moved(ops[sent], part);
		enlist_locked(sk, EXI_TX, ops + sent, n - sent);
	}
	exi_half_unlock(&sh->half[EXI_TX]);
	return 0;
}

/* No receive is before what comes now, and what the ring has is theirs. */
static inline __attribute__((always_inline)) bool
straight_from_ring(const struct exi_sock *sk, const struct exi_half *h,
		   const struct exi_queue *q)
{
	return h->mode == EXI_MODE_RING && !h->gathered && sk->fab &&
	       exi_list_empty(&sk->ops[EXI_RX]) && !sk->posted[EXI_RX] &&
	       !others_go_first(sk, q);
}

/* The first few receives find their bytes in the ring, with no more of an
 * operation than its event needs. Returns how many are over, and in *ret_next
 * the result of the attempt for the next one. */
static int recv_at_once_locked(struct exi_sock *sk, const exs_x_op_t *o,
			       struct exi_op **ops, int n, ssize_t *ret_next)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	struct exi_list over = EXI_LIST_INIT(over);
	ssize_t ret = 0;
	int i;

	EXI_LOCKED(&h->lock);
	for (i = 0; i < n; i++) {
		ret = exi_recv_ring_locked(sk, h, o[i].exs_x_buffer,
					   o[i].exs_x_length, o[i].exs_x_flags);
		if (ret <= 0 || ((o[i].exs_x_flags & MSG_WAITALL) &&
				 (size_t)ret < o[i].exs_x_length))
			break;
		exi_op_moved(ops[i], &o[i], (size_t)ret);
		exi_list_add_tail(&over, &ops[i]->node);
	}
	*ret_next = ret;
	if (i)
		exi_op_complete_all(&over);
	return i;
}

static int submit_recvs(struct exi_sock *sk, const exs_x_op_t *o,
			struct exi_op **ops, int n)
{
	struct exi_shared *sh;
	ssize_t came;
	int ret, got;

	ret = lock_for_ops(sk, o->exs_x_socket, EXI_RX, &sh);
	if (ret)
		return ret;
	keep_turn_locked(sk, EXI_RX, ops, n);
	if (straight_from_ring(sk, &sh->half[EXI_RX], ops[0]->queue)) {
		got = recv_at_once_locked(sk, o, ops, n, &came);
		if (got < n) {
			describe_all(ops + got, o + got, n - got);
			list_locked(sk, EXI_RX, ops + got, n - got);
			exi_timeout_begins_locked(sk, EXI_RX);
			exi_progress_tried_locked(sk, EXI_RX, came);
		}
	} else {
		describe_all(ops, o, n);
		enlist_locked(sk, EXI_RX, ops, n);
	}
	exi_half_unlock(&sh->half[EXI_RX]);
	exi_flow_after_recv(sk, o->exs_x_socket);
	return 0;
}

int exi_flow_submit_plain(const exs_x_op_t *o, struct exi_op **ops, int n)
{
	struct exi_sock *sk;
	int ret = exi_flow_addressed(o->exs_x_socket, &sk);

	if (ret)
		return ret;
	/* Sockets without a role may not be streams. */
	if (!sk->framed && sk->role != EXI_ROLE_NONE)
		return o->exs_x_type == EXS_EVT_SEND
			       ? submit_sends(sk, o, ops, n)
			       : submit_recvs(sk, o, ops, n);
	describe_all(ops, o, n);
	return submit_to(sk, ops, n);
}

/* The rest of a send that is alone, of which n bytes were sent, or -errno. */
static void send_rest_locked(struct exi_sock *sk, struct exi_half *h,
			     const exs_x_op_t *o, struct exi_op *op, ssize_t n)
{
	EXI_LOCKED(&h->lock);
	if (exi_likely(n > 0 && n == (ssize_t)o->exs_x_length)) {
		exi_op_moved(op, o, o->exs_x_length);
		exi_op_complete(op);
		return;
	}
	if (n < 0 && n != -EAGAIN && n != -EINTR)
		h->err = (int)-n; /* the next attempt says it */
	exi_op_describe(op, o);
	if (n > 0)
		exi_parts_moved(op, (size_t)n);
	enlist_locked(sk, EXI_TX, &op, 1);
}

/* The rest of a receive that is alone, of which an attempt had this result. */
static void recv_rest_locked(struct exi_sock *sk, struct exi_half *h,
			     const exs_x_op_t *o, struct exi_op *op, ssize_t n)
{
	EXI_LOCKED(&h->lock);
	if (exi_likely(n > 0 && (n == (ssize_t)o->exs_x_length ||
				 !(o->exs_x_flags & MSG_WAITALL)))) {
		exi_op_moved(op, o, (size_t)n);
		exi_op_complete(op);
		return;
	}
	exi_op_describe(op, o);
	list_locked(sk, EXI_RX, &op, 1);
	exi_timeout_begins_locked(sk, EXI_RX);
	exi_progress_tried_locked(sk, EXI_RX, n);
}

static inline bool sends_straight(struct exi_sock *sk, const struct exi_half *h,
				  const exs_x_op_t *o)
{
	return straight_to_ring(sk, h) &&
	       o->exs_x_length - 1 < EXI_PROGRESS_TOGETHER &&
	       !(o->exs_x_flags & MSG_MORE);
}

/* The fabric may be called with the queue's lock held, if these are few bytes;
 * not through the table of a capture, which has a lock. */
static inline bool is_lock_free(const struct exi_sock *sk)
{
	const struct exi_provider *p = sk->fab->provider;

	return (p->caps & EXI_CAP_LOCK_FREE) && sk->fab->ops == p->conn_ops;
}

/* A send, after exi_queue_begin(). */
static inline __attribute__((always_inline)) void
send_begun_locked(struct exi_sock *sk, struct exi_half *h, const exs_x_op_t *o,
		  struct exi_queue *q, struct exi_op *op)
{
	struct exi_conn *fab = sk->fab;
	ssize_t n = 0, len = (ssize_t)o->exs_x_length;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(!sends_straight(sk, h, o))) {
		exi_queue_take_slot_unlock(q, op);
	} else if (exi_unlikely(!is_lock_free(sk))) {
		exi_queue_take_slot_unlock(q, op);
		n = exi_send_ring_locked(sk, h, o->exs_x_buffer, (size_t)len);
	} else {
		n = fab->ops->send(fab, o->exs_x_buffer, (size_t)len, 0);
		if (exi_likely(n == len &&
			       !atomic_load_explicit(&fab->unheard,
						     memory_order_relaxed))) {
			exi_half_account_locked(h, n, true);
			exi_op_moved(op, o, (size_t)len);
			exi_queue_over_unlock(q, op);
			return;
		}
		exi_queue_take_slot_unlock(q, op);
		n = exi_sent_ring_locked(sk, h, o->exs_x_buffer, (size_t)len,
					 n);
	}
	send_rest_locked(sk, h, o, op, n);
}

/* A receive, after exi_queue_begin(). */
static inline __attribute__((always_inline)) void
recv_begun_locked(struct exi_sock *sk, struct exi_half *h, const exs_x_op_t *o,
		  struct exi_queue *q, struct exi_op *op)
{
	struct exi_conn *fab = sk->fab;
	ssize_t n, len = (ssize_t)o->exs_x_length;

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(!straight_from_ring(sk, h, q))) {
		exi_queue_take_slot_unlock(q, op);
		exi_op_describe(op, o);
		enlist_locked(sk, EXI_RX, &op, 1);
		return;
	}
	if (exi_unlikely(len > EXI_PROGRESS_TOGETHER || !is_lock_free(sk) ||
			 exi_recv_barred_locked(sk->sh, h))) {
		exi_queue_take_slot_unlock(q, op);
		n = exi_recv_ring_locked(sk, h, o->exs_x_buffer, (size_t)len,
					 o->exs_x_flags);
	} else {
		n = fab->ops->recv(fab, o->exs_x_buffer, (size_t)len,
				   o->exs_x_flags);
		if (exi_likely(n > 0 &&
			       (n == len || !(o->exs_x_flags & MSG_WAITALL)))) {
			exi_half_account_locked(h, n, true);
			exi_op_moved(op, o, (size_t)n);
			exi_queue_over_unlock(q, op);
			return;
		}
		exi_queue_take_slot_unlock(q, op);
		n = exi_recvd_ring_locked(sk, h, (size_t)len, o->exs_x_flags,
					  n);
	}
	recv_rest_locked(sk, h, o, op, n);
}

/* The slot first: the queue may have another member for the thread, the
 * direction another one, or either no room. */
static __attribute__((noinline)) int submit_reserved(exs_qhandle_t h,
						     const exs_x_op_t *o)
{
	struct exi_op *op;
	int err = exi_queue_reserve_one(h, o, &op);

	if (err)
		return err;
	err = exi_flow_submit_plain(o, &op, 1);
	if (err)
		exi_queue_unreserve(op);
	return err;
}

/* The stream that the transfer is for, and the calling thread's member of the
 * queue. False: submit_reserved() tells why. */
static inline bool find_both(exs_qhandle_t h, const exs_x_op_t *o,
			     struct exi_sock **ret_sk, struct exi_queue **ret_q)
{
	struct exi_queue *root = exi_queue_at(h);
	struct exi_sock *sk;

	if (exi_unlikely(!root || exi_flow_addressed(o->exs_x_socket, &sk)))
		return false;
	*ret_sk = sk;
	*ret_q = exi_lanes_own(root, h);
	return exi_likely(!sk->framed && sk->role != EXI_ROLE_NONE);
}

int exi_flow_submit_send(exs_qhandle_t h, const exs_x_op_t *o)
{
	struct exi_op *op = NULL;
	struct exi_shared *sh;
	struct exi_sock *sk;
	struct exi_queue *q;

	if (exi_unlikely(!find_both(h, o, &sk, &q) ||
			 atomic_load_explicit(&sk->sh->half[EXI_TX].meet_at,
					      memory_order_relaxed) !=
				 UINT64_MAX ||
			 lock_for_ops(sk, o->exs_x_socket, EXI_TX, &sh)))
		return submit_reserved(h, o);
	if (exi_likely(sk->turn[EXI_TX] == q) &&
	    exi_likely((op = exi_queue_begin(q, h, o)) != NULL))
		send_begun_locked(sk, &sh->half[EXI_TX], o, q, op);
	exi_half_unlock(&sh->half[EXI_TX]);
	return exi_likely(op) ? 0 : submit_reserved(h, o);
}

int exi_flow_submit_recv(exs_qhandle_t h, const exs_x_op_t *o)
{
	struct exi_op *op = NULL;
	struct exi_shared *sh;
	struct exi_sock *sk;
	struct exi_queue *q;

	if (exi_unlikely(!find_both(h, o, &sk, &q) ||
			 lock_for_ops(sk, o->exs_x_socket, EXI_RX, &sh)))
		return submit_reserved(h, o);
	if (exi_likely(sk->turn[EXI_RX] == q) &&
	    exi_likely((op = exi_queue_begin(q, h, o)) != NULL))
		recv_begun_locked(sk, &sh->half[EXI_RX], o, q, op);
	exi_half_unlock(&sh->half[EXI_RX]);
	if (exi_unlikely(!op))
		return submit_reserved(h, o);
	exi_flow_after_recv(sk, o->exs_x_socket);
	return 0;
}

int exi_flow_submit(struct exi_op *op)
{
	return exi_flow_submit_all(&op, 1);
}
