/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous sends. */
#include "core/call/send.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "core/base/cancel.h"
#include "core/base/config.h"
#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/pieces.h"
#include "core/base/util.h"
#include "core/call/downgrade.h"
#include "core/call/message_call.h"
#include "core/call/patience.h"
#include "core/call/recv.h"
#include "core/call/seqpacket_call.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/link/ending.h"
#include "core/meet/find.h"
#include "core/meet/pair.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/transfer/attempt.h"
#include "core/transfer/family.h"
#include "core/transfer/half.h"
#include "core/transfer/lookup.h"
#include "core/transfer/op.h"
#include "core/transfer/parts.h"
#include "core/transfer/place.h"
#include "core/transfer/progress.h"
#include "core/transfer/ring_io.h"
#include "core/transfer/submit.h"
#include "core/transfer/switch.h"

/* A long send that the C library makes itself goes in pieces of this size while
 * the direction may move, because the direction stays on TCP until a system
 * call is over. */
#define NATIVE_PIECE ((size_t)256 << 10)

/* Returns true if the operation was removed, and its rest moves as in any other
 * call; else it ends soon, with err as the reason. */
static bool leave_locked(struct exi_sock *sk, struct exi_op *op, int err)
{
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (op->finished || sk->posted[EXI_TX] == op)
		return false;
	if (op->lent) {
		if (err)
			exi_place_recall_locked(sk, EXI_TX, op);
		return false;
	}
	if (op->waits && !err)
		return false;
	exi_list_del(&op->node);
	exi_flow_count_ops_locked(sk, EXI_TX, -1);
	exi_flow_progress_locked(sk, EXI_TX);
	return true;
}

/* Waits for a send of a whole buffer, which the device reads in place while the
 * peer has buffers for it. If the socket is closed meanwhile, that finishes the
 * operation. */
static int await_whole(struct exi_call *c, struct exi_op *op)
{
	uint64_t deadline = exi_flow_deadline(c->sk, c->fd, EXI_TX);
	struct exi_word w = { .addr = (const uint32_t *)&op->finished };
	struct timespec until = exi_ns_timespec(deadline);
	struct exi_shared *sh;
	int err = 0;

	while (!atomic_load_explicit(&op->finished, memory_order_acquire)) {
		if (exi_call_lock(c, &sh)) {
			bool left = leave_locked(c->sk, op, err);

			exi_half_unlock(&sh->half[EXI_TX]);
			if (left)
				return err;
		}
		if (err) /* soon; too late for others */
			exi_futex_wait(&w, 1, NULL);
		else
			err = exi_futex_wait(&w, 1, deadline ? &until : NULL);
	}
	return err;
}

/* Whether it is worth it, and the peer has posted receives. */
static bool may_go_whole(const struct exi_call *c, size_t len)
{
	return len >= exi_config()->zcopy_threshold &&
	       exi_place_welcome(c->sk) &&
	       !exi_flow_nonblocking(c->sk, c->fd, c->flags);
}

/* Makes a large blocking send, as an operation. *done: the bytes moved. 0: the
 * rest moves as in any other call. */
static int send_whole(struct exi_call *c, const void *buf, size_t len,
		      struct exi_region *region, size_t *done)
{
	struct exi_op op = { .type = EXS_EVT_SEND,
			     .fd = c->fd,
			     .region = region,
			     .buf = (void *)(uintptr_t)buf,
			     .run = len,
			     .len = len,
			     .flags = c->flags,
			     .whole = true };
	int ret;

	exi_list_init(&op.node);
	ret = exi_flow_submit(&op);
	if (ret)
		return ret;
	ret = await_whole(c, &op);
	*done += op.done;
	return op.err ? -op.err : ret == -ETIMEDOUT ? -EAGAIN : ret;
}

/* Urgent data needs TCP: the direction goes back there and stays. If the peer
 * is silent, the connection is reset, unless it is back by then, and the send
 * continues. */
static int before_urgent(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	uint32_t generation;
	bool bereft;
	int ret;

	exi_link_ended(sk, fd);
	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return -EBADF;
	generation = atomic_load(&sk->generation);
	sh->half[EXI_TX].urgent = 1;
	bereft = atomic_load(&sh->gone) && exi_flow_bereft_locked(sk);
	exi_half_unlock(&sh->half[EXI_TX]);
	if (bereft) /* its unread bytes stay where they are */
		return 0;
	ret = exi_switch_down(sk, fd, EXS_X_REASON_URGENT, NULL);
	if (ret != -ETIMEDOUT)
		return ret;
	if (!exi_link_part(sk, generation))
		exi_link_unanswered(sk, generation);
	return 0;
}

static ssize_t send_failed(ssize_t n, int flags)
{
	if (n == -EPIPE)
		exi_flow_broken(flags & MSG_NOSIGNAL);
	return n;
}

/* *ret_len: the bytes that the kernel was given; if fewer moved, the call is
 * over. Called with the lock held; releases it. */
static ssize_t kernel_send(const struct exi_call *c, struct exi_half *h,
			   struct exi_pieces *p, size_t *ret_len)
{
	int flags = c->flags | MSG_NOSIGNAL;
	struct exi_recv_kernel b = { .sk = c->sk,
				     .generation = c->generation,
				     .p = p,
				     .dir = EXI_TX,
				     .counts = p->left > 0,
				     .n = -ECANCELED };
	struct iovec room[EXI_PIECES_COPIED];
	struct msghdr m = { 0 };
	struct exi_section ends;
	void *buf;
	size_t len = exi_pieces_next(p, &buf);
	uint64_t began;
	int err = c->sk->tcp->kops->error(c->sk->tcp);

	if (err) {
		exi_half_unlock(h);
		*ret_len = 1;
		return -err;
	}
	if (p->n > 1)
		len = exi_pieces_cut(p, EXI_RECV_KERNEL_MAX, room,
				     (const struct iovec **)&m.msg_iov,
				     &m.msg_iovlen);
	else if (len > EXI_RECV_KERNEL_MAX)
		len = EXI_RECV_KERNEL_MAX;
	*ret_len = len;
	b.in = exi_half_enter_locked(h);
	exi_unlock(&h->lock);
	exi_section_begin(&ends, exi_recv_kernel_end, &b);
	exi_cancel_allow();
	began = exi_link_sends();
	b.n = m.msg_iovlen ? sendmsg(c->fd, &m, flags)
			   : send(c->fd, buf, len, flags);
	if (b.n < 0)
		b.n = -errno;
	else
		exi_link_by_kernel(began, b.n);
	exi_cancel_forbid();
	exi_section_end(&ends, true);
	return b.n;
}

/* Sends the next piece, or all that stay together, behind the operations that
 * are queued already: another may be queued before the next turn. Returns true
 * if the call is over, with *ret. */
static bool send_in_turn(const struct exi_call *c, struct exi_pieces *from,
			 size_t *done, ssize_t *ret)
{
	void *buf;
	size_t len = exi_pieces_next(from, &buf);
	char *copy = from->n > 1 && from->left <= EXI_PARTS_GATHER
			     ? malloc(from->left)
			     : NULL; /* a piece at a time */

	if (copy)
		len = exi_pieces_gather(*from, copy, from->left);
	*ret = exi_patience_in_turn(c->fd, EXS_EVT_SEND, copy ? copy : buf, len,
				    c->flags);
	free(copy);
	if (*ret < (ssize_t)len || from->left == len)
		return true;
	*done += len;
	exi_pieces_moved(from, len);
	return false;
}

/* The kernel sends the next bytes, and waits for room. Returns true if the call
 * is over, with *ret. Called with the lock held; releases it. */
static bool send_by_kernel(const struct exi_call *c, struct exi_half *h,
			   struct exi_pieces *from, size_t *done, ssize_t *ret)
{
	size_t len;

	*ret = kernel_send(c, h, from, &len);
	if (*ret > 0)
		exi_pieces_moved(from, (size_t)*ret);
	if (*ret < (ssize_t)len || !from->left)
		return true; /* it has waited */
	*done += len;
	/* The next bytes, not all: a mark is worth a look when the bytes pass
	 * it. */
	exi_flow_before_send(c->sk, c->fd,
			     from->left < EXI_RECV_KERNEL_MAX
				     ? from->left
				     : EXI_RECV_KERNEL_MAX);
	return false;
}

/* The slow path of a send that has sent `done' bytes. */
static __attribute__((noinline)) ssize_t send_on(struct exi_call *c,
						 struct exi_pieces *from,
						 struct exi_region *region,
						 size_t done)
{
	const char *tried = NULL; /* a piece tried in place */
	struct exi_sock *sk = c->sk;
	struct exi_shared *sh;
	bool waited = false;
	ssize_t n;

	for (;;) {
		struct exi_half *h;
		size_t len, moved = 0;
		void *buf;

		if (!exi_call_lock(c, &sh))
			return done ? (ssize_t)done : -EBADF;
		h = &sh->half[EXI_TX];
		len = exi_pieces_next(from, &buf);
		if (exi_unlikely(!exi_list_empty(&sk->ops[EXI_TX]))) {
			exi_half_unlock(h);
			if (send_in_turn(c, from, &done, &n))
				break;
			continue;
		}
		if (exi_unlikely(sk->fab && sk->fab->pops) &&
		    tried != (char *)buf - from->at && may_go_whole(c, len)) {
			exi_half_unlock(h);
			tried = (char *)buf - from->at;
			n = send_whole(c, buf, len, region, &moved);
			done += moved;
			exi_pieces_moved(from, moved);
			if (n || !from->left)
				break;
			continue;
		}
		if (exi_unlikely(done) &&
		    exi_half_error_waits_locked(sk, EXI_TX)) {
			exi_half_unlock(h);
			return (ssize_t)done;
		}
		if (exi_progress_kernel_sends_locked(sk, h, c->flags)) {
			if (send_by_kernel(c, h, from, &done, &n))
				break;
			continue;
		}
		n = exi_attempt_send_pieces_locked(sk, h, from, c->flags);
		if (n == -EAGAIN)
			exi_call_pause_locked(c);
		exi_half_unlock(h);
		if (n >= 0) {
			done += (size_t)n;
			exi_pieces_moved(from, (size_t)n);
			if (exi_likely(!from->left))
				return (ssize_t)done;
			exi_flow_before_send(sk, c->fd, 1);
			continue;
		}
		if (n == -EREMOTE) {
			exi_family_ask(sk);
			continue;
		}
		if (n != -EAGAIN)
			break;
		n = exi_call_wait(c, 0);
		if (n)
			break;
		waited = true;
	}
	if (n > 0)
		done += (size_t)n;
	/* A call that waited for room returns how the peer closed. */
	if (n == -EPIPE && waited && exi_half_take_cut(&sk->sh->half[EXI_RX]))
		n = -ECONNRESET;
	return done ? (ssize_t)done : send_failed(n, c->flags);
}

static ssize_t send_rest(struct exi_call *c, const void *buf, size_t len,
			 struct exi_region *region, size_t done)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct exi_pieces p = {
		.v = &v, .n = 1, .at = done, .left = len - done
	};

	return send_on(c, &p, region, done);
}

static int before_long_way(struct exi_sock *sk, int fd, size_t len, int flags)
{
	int ret = exi_unlikely(flags & MSG_OOB) ? before_urgent(sk, fd) : 0;

	if (ret)
		return ret;
	if (exi_unlikely(exi_family_elsewhere(sk)))
		exi_family_ask(sk); /* the attempt returns a failure */
	exi_flow_before_send(sk, fd, len);
	return 0;
}

/* The rest of a call whose attempt in the ring returned n. Called with the lock
 * held; releases it. */
static __attribute__((noinline)) ssize_t
send_more_unlock(struct exi_sock *sk, int fd, const void *buf, size_t len,
		 int flags, struct exi_region *region, ssize_t n)
{
	struct exi_call c = exi_call_begin(sk, fd, EXI_TX, flags);

	exi_half_unlock(&sk->sh->half[EXI_TX]);
	if (n < 0 && n != -EAGAIN)
		return send_failed(n, flags);
	return send_rest(&c, buf, len, region, n > 0 ? (size_t)n : 0);
}

/* A call for which the fast path is not enough. */
static __attribute__((noinline)) ssize_t send_long(struct exi_sock *sk, int fd,
						   const void *buf, size_t len,
						   int flags,
						   struct exi_region *region)
{
	struct exi_call c;
	int ret;

	if (sk->framed && sk->base->packets)
		return exi_seq_send_one(fd, buf, len, flags);
	if (sk->framed)
		return exi_message_call_one(EXS_EVT_SEND, fd,
					    (void *)(uintptr_t)buf, len, flags);
	c = exi_call_begin(sk, fd, EXI_TX, flags);
	ret = before_long_way(sk, fd, len, flags);
	return ret ? ret : send_rest(&c, buf, len, region, 0);
}

ssize_t exi_flow_send_on(struct exi_sock *sk, int fd, const void *buf,
			 size_t len, int flags, struct exi_region *region)
{
	struct exi_shared *sh;
	ssize_t n;
	int ret = exi_look_on(fd, &sk);

	if (exi_unlikely(ret))
		return ret;
	if (exi_unlikely(flags & MSG_OOB) ||
	    exi_unlikely(!(sh = exi_enter_ring(sk, fd, EXI_TX, len))))
		return send_long(sk, fd, buf, len, flags, region);
	n = exi_send_ring_locked(sk, &sh->half[EXI_TX], buf, len);
	if (exi_unlikely(n != (ssize_t)len))
		return send_more_unlock(sk, fd, buf, len, flags, region, n);
	exi_half_unlock(&sh->half[EXI_TX]);
	return n;
}

ssize_t exi_flow_sendv(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags)
{
	struct exi_pieces p = { .v = v, .n = n, .left = bytes };
	struct exi_sock *sk;
	struct exi_call c;
	int ret = exi_look_up(fd, &sk);

	if (ret)
		return ret;
	c = exi_call_begin(sk, fd, EXI_TX, flags);
	ret = sk->framed ? -EBADF : before_long_way(sk, fd, bytes, flags);
	return ret ? ret : send_on(&c, &p, NULL, 0);
}

bool exi_flow_native_send(int fd, size_t *len, struct exi_inside *in)
{
	struct exi_half *h = NULL;
	struct exi_shared *sh;
	struct exi_sock *sk;
	size_t piece;

	if (exi_sock_use(fd, &sk))
		return false;
	if (sk->framed)
		return false;
	piece = *len < NATIVE_PIECE ? *len : NATIVE_PIECE;
	exi_flow_before_send(sk, fd, piece);
	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return false;
	/* A capture must see the bytes. */
	if (sh->half[EXI_TX].mode == EXI_MODE_TCP &&
	    exi_list_empty(&sk->ops[EXI_TX]) && !sh->half[EXI_TX].ended &&
	    !exi_switch_wanted(sh) && !sk->tcp->capture) {
		h = &sh->half[EXI_TX];
		*in = exi_half_enter_locked(h);
		if (*len > NATIVE_PIECE && exi_progress_may_move(sk, h))
			*len = NATIVE_PIECE;
	}
	exi_half_unlock(&sh->half[EXI_TX]);
	return h != NULL;
}

void exi_flow_native_sent(const struct exi_inside *in, ssize_t moved)
{
	if (exi_half_leave_lock(in) && moved > 0)
		exi_half_account_locked(in->h, moved, false);
	exi_half_unlock(in->h);
}
