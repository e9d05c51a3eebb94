/* SPDX-License-Identifier: BSD-2-Clause */
/* Cancelling transfers of a socket. */
#include "core/transfer/cancel.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "core/transfer/finish.h"
#include "core/transfer/op.h"
#include "core/transfer/place.h"
#include "core/transfer/progress.h"

/* The operations that are to be cancelled. */
struct which {
	bool calls; /* also those of synchronous calls */
	bool any;   /* or of the handle a */
	exs_ahandle_t a;
	/* Not null: those that are late. When the next of the others is. */
	uint64_t *next;
	uint64_t now;
};

static bool meant(const struct exi_op *op, const struct which *w)
{
	return !op->cancelled && !op->sent && (op->queue || w->calls) &&
	       (w->next ? exi_op_is_late(op, w->now, w->next)
			: w->any || op->ahandle == w->a);
}

static int cancel_some(struct exi_sock *sk, enum exi_dir dir,
		       const struct which *w)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *h = &sh->half[dir];
	struct exi_list *pos, *tmp;
	bool waited = false;
	int n = 0;

	exi_lock(&h->lock);
	/* Acquire: pairs with exi_sock_make(). A forgotten socket has none, and
	 * with its lock held no other socket takes its place. */
	if (atomic_load_explicit(&sk->fd, memory_order_acquire) < 0 ||
	    exi_sock_shared(sk) != sh) {
		exi_unlock(&h->lock);
		return 0;
	}
	exi_list_for_each_safe (pos, tmp, &sk->ops[dir]) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (!meant(op, w))
			continue;
		n++;
		/* A message that has begun is sent. */
		if (dir == EXI_TX && op->begun && op->queue && !w->calls)
			continue;
		waited = waited || op->waits;
		op->cancelled = true;
		op->late = w->next != NULL;
		if (op->lent)
			exi_place_recall_locked(sk, dir, op);
		else if (sk->posted[dir] != op)
			exi_flow_cancelled_locked(sk, dir, op);
		else
			sk->tcp->kops->cancel(sk->tcp, &sk->xfer[dir]);
	}
	if (exi_place_lent(sk, dir) || waited)
		exi_flow_progress_locked(sk, dir);
	exi_unlock(&h->lock);
	return n;
}

int exi_flow_cancel(struct exi_sock *sk, enum exi_dir dir, bool any,
		    exs_ahandle_t a)
{
	return cancel_some(sk, dir, &(struct which){ .any = any, .a = a });
}

void exi_flow_expire(struct exi_sock *sk, enum exi_dir dir, uint64_t now,
		     uint64_t *next)
{
	cancel_some(sk, dir, &(struct which){ .now = now, .next = next });
}

static bool in_flight(struct exi_sock *sk)
{
	enum exi_dir d;
	bool ret = false;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_lock(&sk->sh->half[d].lock);
		ret = ret || sk->posted[d];
		exi_unlock(&sk->sh->half[d].lock);
	}
	return ret;
}

/* Operations that a peer must release, or take. */
#define STOP_NS 5000000000u

void exi_flow_stop(struct exi_sock *sk)
{
	const struct which all = { .calls = true, .any = true };

	cancel_some(sk, EXI_RX, &all);
	cancel_some(sk, EXI_TX, &all);
	/* The kernel gives a cancelled transfer back at once or never had it:
	 * this ends. */
	while (in_flight(sk)) {
		struct exi_domain *d = sk->tcp->domain;
		struct pollfd p = { .events = POLLIN };

		p.fd = d->ops.event_fd(d);
		if (d->ops.progress(d) == 0)
			poll(&p, 1, 1); /* or another thread has it */
	}
	exi_place_stop(sk, STOP_NS);
}
