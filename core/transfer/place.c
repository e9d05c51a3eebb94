/* SPDX-License-Identifier: BSD-2-Clause */
/* Lending operations to a fabric's device, and taking them back. */
#include "core/sock/capture.h"
#include "core/transfer/place.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/config.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/transfer/drain.h"
#include "core/transfer/finish.h"
#include "core/transfer/half.h"
#include "core/transfer/mem.h"
#include "core/transfer/op.h"
#include "core/transfer/packet.h"
#include "core/transfer/parts.h"

static const struct exi_place_ops *ops_of(const struct exi_sock *sk)
{
	return sk->fab ? sk->fab->pops : NULL;
}

struct exi_op *exi_place_first(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_list *pos;

	exi_list_for_each (pos, &sk->ops[dir]) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (op->holds)
			break;
		if (!op->sent && (!op->lent || (dir == EXI_TX && op->run)))
			return op;
	}
	return NULL;
}

bool exi_place_lent(struct exi_sock *sk, enum exi_dir dir)
{
	return sk->n_lent[dir] > 0;
}

bool exi_place_waits(struct exi_sock *sk, enum exi_dir dir)
{
	const struct exi_op *first = exi_place_first(sk, dir);

	return first ? first->waits : exi_place_lent(sk, dir);
}

/* Operations of a size and kind that the device is asked about. The head of a
 * message is not for the operation's buffer. */
static bool fit(const struct exi_sock *sk, const struct exi_op *op)
{
	return (op->queue || op->whole) && !op->parts && op->run &&
	       (!sk->framed || op->begun) &&
	       op->run >= exi_config()->zcopy_threshold;
}

static struct exi_lent describe(struct exi_op *op)
{
	return (struct exi_lent){
		.buf = op->buf,
		.len = op->run,
		.waitall = op->flags & MSG_WAITALL,
		.memory = exi_mem_of(op->region),
		.owner = op,
	};
}

static int lend_one(struct exi_sock *sk, struct exi_op *op)
{
	struct exi_lent r = describe(op);
	int ret = sk->fab->pops->lend(sk->fab, &r);

	if (ret == 0) {
		op->lent = r.len;
		sk->n_lent[EXI_RX]++;
	}
	return ret;
}

bool exi_place_lend(struct exi_sock *sk)
{
	struct exi_list *pos;
	bool ret = false;

	if (!ops_of(sk) || sk->sh->half[EXI_RX].mode != EXI_MODE_RING ||
	    sk->sh->half[EXI_RX].leaving || atomic_load(&sk->sh->gone))
		return false;
	exi_list_for_each (pos, &sk->ops[EXI_RX]) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (op->lent)
			continue;
		if (op->cancelled || !fit(sk, op) || lend_one(sk, op))
			break;
		ret = true;
	}
	return ret;
}

ssize_t exi_place_give(struct exi_sock *sk, struct exi_op *op)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	struct exi_lent s;
	ssize_t n;

	op->waits = false;
	if (!ops_of(sk) || h->mode != EXI_MODE_RING || h->ended || h->broken ||
	    h->err || atomic_load(&sk->sh->gone) || op->cancelled ||
	    !fit(sk, op))
		return -EAGAIN;
	s = describe(op);
	n = sk->fab->pops->give(sk->fab, &s);
	op->waits = n == -EALREADY;
	if (n <= 0)
		return op->waits ? n : -EAGAIN;
	sk->n_lent[EXI_TX] += !op->lent;
	op->lent += (size_t)n;
	op->run -= (size_t)n;
	op->buf = (char *)op->buf + n;
	if (sk->framed)
		exi_packet_note(sk, op);
	return n;
}

bool exi_place_welcome(struct exi_sock *sk)
{
	return ops_of(sk) && sk->sh->half[EXI_TX].mode == EXI_MODE_RING &&
	       sk->fab->pops->welcome(sk->fab);
}

/* Sends that waited until those before them were reported. */
static void finish_sent_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	while (!exi_list_empty(&sk->ops[EXI_TX])) {
		struct exi_op *op = exi_container(sk->ops[EXI_TX].next,
						  struct exi_op, node);

		if (!op->sent)
			return;
		exi_flow_finish_locked(sk, EXI_TX, op, 0);
	}
}

/* Counts bytes that were lent, and publishes how many were placed in all. */
static void account_locked(struct exi_sock *sk, enum exi_dir dir, size_t n)
{
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_stats_dir *s = exi_stats_of(h);

	EXI_LOCKED(&h->lock);
	exi_flow_account_locked(sk, dir, n);
	if (s)
		EXI_STATS_SET(&s->direct_bytes, exi_place_bytes(sk, dir));
}

/* A piece of a send is over. */
static void gave_locked(struct exi_sock *sk, struct exi_op *op, ssize_t n)
{
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (n < 0) {
		op->lent = 0;
		sk->n_lent[EXI_TX]--;
		exi_flow_finish_locked(sk, EXI_TX, op, (int)-n);
		return;
	}
	/* What was given and is not over lies before the rest. */
	exi_capture_tell_one(sk->fab, EXI_TX, (char *)op->buf - op->lent, n, 0);
	op->lent -= (size_t)n;
	op->done += (size_t)n;
	account_locked(sk, EXI_TX, (size_t)n);
	if (op->lent)
		return;
	sk->n_lent[EXI_TX]--;
	if (!op->run)
		exi_flow_finish_locked(sk, EXI_TX, op, 0);
}

/* A receive is its owner's again. */
static void got_locked(struct exi_sock *sk, struct exi_op *op, ssize_t n)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	op->lent = 0;
	sk->n_lent[EXI_RX]--;
	exi_capture_tell_one(sk->fab, EXI_RX, op->buf, n, 0);
	exi_parts_moved(op, (size_t)n);
	if (sk->framed)
		exi_packet_placed(sk, (size_t)n);
	account_locked(sk, EXI_RX, (size_t)n);
	if (op->done == op->len || (n && !(op->flags & MSG_WAITALL)))
		exi_flow_finish_locked(sk, EXI_RX, op, 0);
	else if (op->cancelled)
		exi_flow_cancelled_locked(sk, EXI_RX, op);
}

void exi_place_reap_locked(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_op *op;
	ssize_t n;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (!exi_place_lent(sk, dir))
		return;
	/* While it is drained, TCP shows whether the peer reads. */
	if (atomic_load(&sk->sh->gone) &&
	    sk->sh->half[dir].mode != EXI_MODE_DRAIN)
		sk->fab->pops->cut(sk->fab, dir);
	while ((op = sk->fab->pops->reap(sk->fab, dir, &n))) {
		if (dir == EXI_RX) {
			got_locked(sk, op, n);
			continue;
		}
		gave_locked(sk, op, n);
		finish_sent_locked(sk);
	}
}

void exi_place_recall_locked(struct exi_sock *sk, enum exi_dir dir,
			     struct exi_op *op)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (dir == EXI_RX)
		sk->fab->pops->recall(sk->fab, op);
	else {
		op->len = op->done + op->lent;
		op->run = 0;
	}
}

bool exi_place_quiet_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (!ops_of(sk) || !sk->fab->pops->quiet(sk->fab))
		return !ops_of(sk);
	exi_place_reap_locked(sk, EXI_RX);
	return true;
}

void exi_place_forsake_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (!exi_place_lent(sk, EXI_TX))
		return;
	sk->fab->pops->cut(sk->fab, EXI_TX);
	exi_place_reap_locked(sk, EXI_TX);
}

uint64_t exi_place_bytes(struct exi_sock *sk, enum exi_dir dir)
{
	/* Before its first byte the service may still be making it: the lock of
	 * the direction, under which bytes are counted, is all that we hold. */
	if (!ops_of(sk) || !sk->sh->half[dir].fabric_bytes)
		return 0;
	return sk->fab->pops->placed(sk->fab, dir);
}

void exi_place_answer_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];

	EXI_LOCKED(&sk->link_lock);
	if (!ops_of(sk))
		return;
	exi_lock(&h->lock);
	sk->fab->pops->answer(sk->fab);
	exi_unlock(&h->lock);
}

/* One look at a direction; whether something is lent. */
static bool look(struct exi_sock *sk, enum exi_dir dir, bool late)
{
	bool ret;

	exi_lock(&sk->sh->half[dir].lock);
	if (late && exi_place_lent(sk, dir))
		sk->fab->pops->cut(sk->fab, dir);
	else if (dir == EXI_TX && sk->sh->half[dir].mode == EXI_MODE_DRAIN)
		exi_flow_drain_locked(sk);
	exi_place_reap_locked(sk, dir);
	ret = exi_place_lent(sk, dir);
	exi_unlock(&sk->sh->half[dir].lock);
	return ret;
}

void exi_place_stop(struct exi_sock *sk, uint64_t patience)
{
	uint64_t deadline = 0;
	bool late = false;

	while (look(sk, EXI_RX, late) || look(sk, EXI_TX, late)) {
		uint64_t now = exi_now_ns();

		if (!deadline)
			deadline = now + patience;
		late = now >= deadline;
		sched_yield();
	}
}
