/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers: exs_send and exs_recv. */
#include <limits.h>

#include "api/api.h"
#include "core/flow.h"
#include "core/mem.h"
#include "core/queue.h"

#define SEND_FLAGS (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL | MSG_OOB)
#define RECV_FLAGS (MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_OOB)
/* Of asynchronous transfers: the rest asks about the moment of the call. */
#define ASYNC_SEND_FLAGS (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL)
#define ASYNC_RECV_FLAGS (MSG_DONTWAIT | MSG_WAITALL)

struct transfer {
	int fd;
	int type;
	void *buf;
	size_t len;
	int flags;
	exs_ahandle_t ahandle;
	exs_mhandle_t mhandle;
};

static int check(const struct transfer *t, int allowed)
{
	if (t->flags & ~allowed)
		return -EINVAL;
	if (t->len > SSIZE_MAX)
		return -EINVAL;
	if (!t->buf && t->len)
		return -EFAULT;
	return 0;
}

static ssize_t submit(const struct transfer *t, exs_qhandle_t q)
{
	struct exi_op *op;
	int ret = exi_queue_reserve(q, t->mhandle, t->buf, t->len, &op);

	if (ret)
		return ret;
	op->type = t->type;
	op->fd = t->fd;
	op->ahandle = t->ahandle;
	op->buf = t->buf;
	op->len = t->len;
	op->flags = t->flags;
	ret = exi_flow_submit(op);
	if (ret)
		exi_queue_unreserve(op);
	return ret;
}

EXI_PUBLIC ssize_t exs_send(int s, const void *buf, size_t len, int flags,
			    exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m)
{
	struct transfer t = { .fd = s,
			      .type = EXS_EVT_SEND,
			      .buf = (void *)(uintptr_t)buf,
			      .len = len,
			      .flags = flags,
			      .ahandle = a,
			      .mhandle = m };
	struct exi_region *region;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check(&t,
		    q == EXS_QHANDLE_INVALID ? SEND_FLAGS : ASYNC_SEND_FLAGS);
	if (exi_unlikely(ret))
		return exi_result(ret);
	if (q != EXS_QHANDLE_INVALID)
		return exi_result(submit(&t, q));
	ret = exi_mem_get(m, buf, len, &region);
	if (exi_unlikely(ret))
		return exi_result(ret);
	ret = exi_flow_send(s, buf, len, flags);
	exi_mem_put(region);
	return exi_result(ret);
}

EXI_PUBLIC ssize_t exs_recv(int s, void *buf, size_t len, int flags,
			    exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m)
{
	struct transfer t = { .fd = s,
			      .type = EXS_EVT_RECV,
			      .buf = buf,
			      .len = len,
			      .flags = flags,
			      .ahandle = a,
			      .mhandle = m };
	struct exi_region *region;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check(&t,
		    q == EXS_QHANDLE_INVALID ? RECV_FLAGS : ASYNC_RECV_FLAGS);
	if (exi_unlikely(ret))
		return exi_result(ret);
	if (q != EXS_QHANDLE_INVALID)
		return exi_result(submit(&t, q));
	ret = exi_mem_get(m, buf, len, &region);
	if (exi_unlikely(ret))
		return exi_result(ret);
	ret = exi_flow_recv(s, buf, len, flags);
	exi_mem_put(region);
	return exi_result(ret);
}
