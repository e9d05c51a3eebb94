/* SPDX-License-Identifier: BSD-2-Clause */
/* Loans: see loan.h. */
#include "core/call/loan.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include "core/base/cancel.h"
#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/patience.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/sock/holders.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/attempt.h"
#include "core/transfer/family.h"
#include "core/transfer/finish.h"
#include "core/transfer/half.h"
#include "core/transfer/lookup.h"
#include "core/transfer/op.h"
#include "core/transfer/progress.h"
#include "core/transfer/switch.h"

/* Called when the operation of a loan is over. If the loan was repaid, err or
 * op->err is its result. */
static void ended_locked(struct exi_sock *sk, enum exi_dir dir,
			 struct exi_op *op, int err)
{
	struct exi_loan *l = exi_container(op, struct exi_loan, op);
	struct exi_half *h = &sk->sh->half[dir];
	bool in_place = exi_loan_in_place(sk, dir);

	EXI_LOCKED(&h->lock);
	op->err = err ? err : op->err;
	if (op->err && l->state == EXI_LOAN_REPAID && !l->told &&
	    op->err != ECANCELED)
		h->err = op->err;
	l->state = EXI_LOAN_NONE;
	atomic_store(&sk->lent_in_place[dir], false);
	free(l->copy);
	l->copy = NULL;
	if (in_place && dir == EXI_RX && h->leaving)
		exi_flow_give_back_locked(sk);
	if (sk->waiters[dir]) /* they may be waiting for the loan */
		exi_sock_wake_all_locked(sk, dir);
}

/* A call that asks for a loan. Its operation is in the list while others are
 * before it, and from then on until it has the loan. */
struct borrower {
	struct exi_call call;
	struct exi_half *h;
	size_t want;
	struct exi_op turn;
	bool listed;
	bool waits; /* may wait for its turn */
};

/* Whether the fabric has loans, and only this process has the connection. */
static bool place_locked(struct exi_sock *sk, enum exi_dir dir)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (sk->sh->half[dir].mode != EXI_MODE_RING ||
	    sk->sh->half[dir].gathered || !sk->fab || !sk->fab->lops ||
	    (dir == EXI_TX && !sk->fab->lops->room))
		return false;
	/* Before the look at other processes: a fork adds one, then looks at
	 * this. */
	atomic_store(&sk->lent_in_place[dir], true);
	if (exi_holders_alone(&sk->sh->holders))
		return true;
	atomic_store(&sk->lent_in_place[dir], false);
	return false;
}

static int need_buffer(struct exi_loan *l)
{
	if (!l->buffer)
		l->buffer = malloc(EXI_LOAN_BUFFER);
	l->at = l->buffer;
	return l->buffer ? 0 : -ENOMEM;
}

/* The bytes that came, or the end. */
static ssize_t borrow_came_locked(struct exi_sock *sk, struct exi_half *h,
				  struct exi_loan *l)
{
	const void *at;
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (h->in_kernel) /* a thread in the kernel's recv takes the bytes */
		return -EAGAIN;
	if (place_locked(sk, EXI_RX)) {
		n = exi_flow_try_recv_locked(sk, h, &(char){ 0 }, 1, MSG_PEEK);
		if (n <= 0)
			return n;
		n = (ssize_t)sk->fab->lops->look(sk->fab, &at);
		l->at = (char *)(uintptr_t)at;
		return n;
	}
	if (need_buffer(l))
		return -ENOMEM;
	return exi_flow_try_recv_locked(sk, h, l->buffer, EXI_LOAN_BUFFER,
					MSG_PEEK);
}

static ssize_t borrow_in_place_locked(struct exi_sock *sk, struct exi_half *h,
				      struct exi_loan *l, size_t want)
{
	void *at;
	ssize_t n = sk->fab->lops->room(sk->fab, want, &at);

	EXI_LOCKED(&h->lock);
	if (n > 0)
		l->at = at;
	else if (n == -EPROTO)
		return exi_flow_fabric_failed_locked(sk, h);
	else if (n == -ENOBUFS) {
		exi_switch_leave_locked(sk, EXS_X_REASON_MEMORY);
		return -EAGAIN;
	}
	return n;
}

/* The room that a send would find. */
static ssize_t borrow_room_locked(struct exi_sock *sk, struct exi_half *h,
				  struct exi_loan *l, size_t want)
{
	struct exi_conn *c;
	ssize_t n;

	EXI_LOCKED(&h->lock);
	if (h->end_wanted)
		return -EPIPE;
	n = exi_flow_try_send_locked(sk, h, &(char){ 0 }, 0, MSG_NOSIGNAL);
	if (n)
		return n;
	if (place_locked(sk, EXI_TX))
		return borrow_in_place_locked(sk, h, l, want);
	c = h->mode == EXI_MODE_RING ? sk->fab : sk->tcp;
	if (!c->rops->ready(c, EXI_TX))
		return -EAGAIN;
	if (need_buffer(l))
		return -ENOMEM;
	return want < EXI_LOAN_BUFFER ? (ssize_t)want : EXI_LOAN_BUFFER;
}

static void leave_turn_locked(struct borrower *b)
{
	EXI_LOCKED(&b->h->lock);
	if (b->listed && !b->turn.err) {
		exi_list_del(&b->turn.node);
		exi_flow_count_ops_locked(b->call.sk, b->call.dir, -1);
	}
	b->listed = false;
}

static void list_turn_locked(struct borrower *b)
{
	EXI_LOCKED(&b->h->lock);
	b->turn = (struct exi_op){
		.type = b->call.dir == EXI_RX ? EXS_EVT_RECV : EXS_EVT_SEND,
		.holds = true,
	};
	exi_list_add_tail(&b->call.sk->ops[b->call.dir], &b->turn.node);
	exi_flow_count_ops_locked(b->call.sk, b->call.dir, 1);
	b->listed = true;
}

static struct exi_loan *loan_of(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_loan *l = sk->loans[dir];

	if (!l) {
		l = calloc(1, sizeof(*l));
		sk->loans[dir] = l;
	}
	return l;
}

/* -EINPROGRESS: it is not its turn. */
static ssize_t borrow_locked(struct borrower *b)
{
	struct exi_sock *sk = b->call.sk;
	struct exi_loan *l = loan_of(sk, b->call.dir);
	ssize_t n;

	EXI_LOCKED(&b->h->lock);
	if (!l)
		return -ENOMEM;
	if (sk->closing || (b->listed && b->turn.err))
		return -EBADF;
	if (l->state == EXI_LOAN_OUT)
		return -EBUSY;
	if (b->listed ? sk->ops[b->call.dir].next != &b->turn.node
		      : !exi_list_empty(&sk->ops[b->call.dir])) {
		if (!b->listed && b->waits)
			list_turn_locked(b);
		return -EINPROGRESS;
	}
	n = b->call.dir == EXI_RX ? borrow_came_locked(sk, b->h, l)
				  : borrow_room_locked(sk, b->h, l, b->want);
	if (n == -EAGAIN)
		exi_call_pause_locked(&b->call);
	if (n <= 0) {
		atomic_store(&sk->lent_in_place[b->call.dir], false);
		return n;
	}
	leave_turn_locked(b);
	l->op = (struct exi_op){
		.type = b->call.dir == EXI_RX ? EXS_EVT_RECV : EXS_EVT_SEND,
		.holds = true,
		.ended = ended_locked,
	};
	exi_list_add_head(&sk->ops[b->call.dir], &l->op.node);
	exi_flow_count_ops_locked(sk, b->call.dir, 1);
	l->len = (size_t)n;
	l->state = EXI_LOAN_OUT;
	return n;
}

static void leave_turn(void *arg)
{
	struct borrower *b = arg;

	if (!b->listed)
		return;
	exi_lock(&b->h->lock);
	/* A cancelled one may have no socket any more. */
	if (!b->turn.err) {
		leave_turn_locked(b);
		exi_flow_progress_locked(b->call.sk, b->call.dir);
	}
	exi_unlock(&b->h->lock);
}

static int await_turn(struct borrower *b)
{
	struct exi_word w = { .addr = (const uint32_t *)&b->turn.finished };
	uint64_t end;
	struct timespec till;
	int ret = 0;

	if (!b->listed) {
		b->waits = !exi_flow_nonblocking(b->call.sk, b->call.fd,
						 b->call.flags);
		return b->waits ? 0 : -EAGAIN;
	}
	end = exi_flow_deadline(b->call.sk, b->call.fd, b->call.dir);
	till = exi_ns_timespec(end);
	while (!atomic_load_explicit(&b->turn.finished, memory_order_acquire) &&
	       ret == 0)
		ret = exi_futex_wait(&w, 1, end ? &till : NULL);
	return ret == -ETIMEDOUT ? -EAGAIN : ret;
}

static ssize_t borrow(struct borrower *b, void **ret_at)
{
	struct exi_shared *sh;
	ssize_t n;
	char *at;

	for (;;) {
		if (!exi_call_lock(&b->call, &sh))
			return -EBADF;
		b->h = &sh->half[b->call.dir];
		n = borrow_locked(b);
		at = n > 0 ? b->call.sk->loans[b->call.dir]->at : NULL;
		exi_half_unlock(b->h);
		if (n == -ESTALE)
			exi_link_read(b->call.sk);
		else if (n == -EREMOTE)
			exi_family_ask(b->call.sk);
		else if (n == -EINPROGRESS || n == -EAGAIN) {
			n = n == -EAGAIN ? exi_call_wait(&b->call, 0)
					 : await_turn(b);
			if (n)
				return n;
		} else {
			break;
		}
	}
	if (n > 0)
		*ret_at = at;
	return n;
}

ssize_t exi_loan_borrow(int fd, enum exi_dir dir, size_t want, int flags,
			void **ret)
{
	struct borrower b = { .want = want };
	struct exi_sock *sk;
	struct exi_section ends;
	ssize_t n = exi_sock_stream(fd);

	if (!n)
		n = exi_flow_addressed(fd, &sk);
	if (n)
		return n;
	b.call = exi_call_begin(sk, fd, dir, flags);
	if (sk->framed)
		return -EOPNOTSUPP;
	if (dir == EXI_TX)
		exi_flow_before_send(sk, fd, want);
	exi_section_begin(&ends, leave_turn, &b);
	n = borrow(&b, ret);
	exi_section_end(&ends, true);
	if (exi_unlikely(n == 0))
		exi_link_ended(sk, fd);
	return n;
}

/* The operation that receives or sends the bytes of the loan. */
static int move_repaid(struct exi_sock *sk, enum exi_dir dir,
		       struct exi_loan *l, size_t len)
{
	if (exi_loan_in_place(sk, dir)) {
		l->copy = malloc(len);
		if (!l->copy)
			return -ENOMEM;
		if (dir == EXI_TX)
			memcpy(l->copy, l->at, len);
		atomic_store(&sk->lent_in_place[dir], false);
	}
	l->state = EXI_LOAN_REPAID;
	l->op.buf = l->copy ? l->copy : l->buffer;
	l->op.run = l->op.len = len;
	/* Bytes that were seen need not be copied again. */
	l->op.flags = dir == EXI_RX ? MSG_WAITALL | MSG_TRUNC : 0;
	l->op.holds = false;
	l->op.ours = true;
	return 0;
}

/* Whether the loan is in place, where storing a word sends its bytes. */
static bool still_there(const struct exi_sock *sk, const struct exi_half *h)
{
	return exi_loan_in_place(sk, EXI_TX) && h->mode == EXI_MODE_RING &&
	       !(h->ended | h->broken | (uint32_t)h->err) &&
	       !atomic_load(&sk->sh->gone);
}

static int repay_locked(struct exi_sock *sk, enum exi_dir dir, size_t len)
{
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_loan *l = sk->loans[dir];
	int ret = 0;

	EXI_LOCKED(&h->lock);
	if (!l || l->state != EXI_LOAN_OUT || len > l->len)
		return -EINVAL;
	if (!len) {
		exi_flow_finish_locked(sk, dir, &l->op, 0);
	} else if (dir == EXI_RX && exi_loan_in_place(sk, dir) &&
		   h->mode == EXI_MODE_RING) {
		sk->fab->lops->took(sk->fab, len);
		exi_flow_account_locked(sk, dir, len);
		exi_flow_finish_locked(sk, dir, &l->op, 0);
	} else if (dir == EXI_TX && still_there(sk, h)) {
		sk->fab->lops->put(sk->fab, len);
		exi_flow_account_locked(sk, dir, len);
		if (exi_unlikely(atomic_load(&sk->fab->unheard)))
			exi_flow_unheard_locked(sk);
		exi_flow_finish_locked(sk, dir, &l->op, 0);
	} else {
		ret = move_repaid(sk, dir, l, len);
		if (ret)
			return ret;
	}
	l->told = dir == EXI_TX;
	exi_flow_progress_locked(sk, dir);
	l->told = false;
	return l->state == EXI_LOAN_NONE && dir == EXI_TX ? -l->op.err : 0;
}

int exi_loan_repay(int fd, enum exi_dir dir, size_t len, int flags)
{
	struct exi_shared *sh;
	struct exi_sock *sk;
	int ret = exi_sock_stream(fd);

	if (!ret)
		ret = exi_flow_addressed(fd, &sk);
	if (ret)
		return ret;
	if (sk->framed)
		return -EOPNOTSUPP;
	if (!exi_sock_lock(sk, fd, dir, &sh))
		return -EBADF;
	ret = repay_locked(sk, dir, len);
	exi_half_unlock(&sh->half[dir]);
	if (dir == EXI_RX)
		exi_flow_after_recv(sk, fd);
	if (ret == -EPIPE)
		exi_flow_broken(flags & MSG_NOSIGNAL);
	return ret;
}

void exi_loan_cancel(struct exi_sock *sk)
{
	enum exi_dir d;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sk->sh->half[d];

		exi_lock(&h->lock);
		if (sk->loans[d] && sk->loans[d]->state == EXI_LOAN_OUT) {
			exi_flow_finish_locked(sk, d, &sk->loans[d]->op,
					       ECANCELED);
			exi_flow_progress_locked(sk, d);
		}
		exi_unlock(&h->lock);
	}
}

/* A child that is forked meanwhile finds no loan, or a whole one. */
void exi_loan_drop_locked(struct exi_sock *sk)
{
	enum exi_dir d;

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_loan *l = sk->loans[d];

		if (!l)
			continue;
		__atomic_store_n(&sk->loans[d], NULL, __ATOMIC_SEQ_CST);
		atomic_store(&sk->lent_in_place[d], false);
		free(l->copy);
		free(l->buffer);
		free(l);
	}
}

void exi_loan_forked(struct exi_sock *sk, enum exi_dir dir)
{
	atomic_store(&sk->lent_in_place[dir], false);
	if (sk->loans[dir])
		sk->loans[dir]->state = EXI_LOAN_NONE;
}
