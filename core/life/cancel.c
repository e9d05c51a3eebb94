/* SPDX-License-Identifier: BSD-2-Clause */
/* Cancels the operations of a descriptor, or of all. */
#include "core/life/cancel.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/time.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/call/poll.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/sock/table.h"
#include "core/transfer/cancel.h"
#include "core/transfer/op.h"
#include "core/transfer/queue.h"

static void cancel_locked(struct exi_sock *sk, struct exi_op *op)
{
	EXI_LOCKED(&sk->link_lock);
	exi_list_del(&op->node);
	op->err = exi_op_cancel_error(op);
	op->newfd = -1;
	exi_op_complete(op);
}

void exi_lifecycle_expire(struct exi_sock *sk, uint64_t now, uint64_t *next)
{
	struct exi_list *pos, *tmp;

	exi_lock(&sk->link_lock);
	exi_list_for_each_safe (pos, tmp, &sk->poll_ops) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (!exi_op_is_late(op, now, next))
			continue;
		op->late = true;
		cancel_locked(sk, op);
	}
	exi_unlock(&sk->link_lock);
}

int exi_lifecycle_cancel(struct exi_sock *sk, bool any, exs_ahandle_t a)
{
	struct exi_list *pos, *tmp;
	int n = 0;

	exi_lock(&sk->link_lock);
	exi_list_for_each_safe (pos, tmp, &sk->poll_ops) {
		struct exi_op *op = exi_container(pos, struct exi_op, node);

		if (!any && op->ahandle != a)
			continue;
		cancel_locked(sk, op);
		n++;
	}
	exi_unlock(&sk->link_lock);
	return n;
}

static int cancel_sock(struct exi_sock *sk, bool any, exs_ahandle_t a)
{
	return exi_flow_cancel(sk, EXI_RX, any, a) +
	       exi_flow_cancel(sk, EXI_TX, any, a) +
	       exi_lifecycle_cancel(sk, any, a);
}

int exi_cancel_fd(int fd, bool any, exs_ahandle_t a)
{
	struct exi_sock *sk;
	int ret = exi_sock_get(fd, &sk);

	return ret ? ret
		   : cancel_sock(sk, any, a) + exi_poll_cancel(fd, any, a);
}

struct cancel_all {
	exs_ahandle_t a;
	int n;
};

static void cancel_one(struct exi_sock *sk, void *arg)
{
	struct cancel_all *c = arg;

	c->n += cancel_sock(sk, false, c->a);
}

int exi_cancel_all(exs_ahandle_t a)
{
	struct cancel_all c = { .a = a };

	exi_sock_each(cancel_one, &c);
	return c.n + exi_poll_cancel(-1, false, a);
}
