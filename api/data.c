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

static int check(const void *buf, size_t len, int flags, int allowed)
{
	if (exi_unlikely(flags & ~allowed))
		return -EINVAL;
	if (exi_unlikely(len > SSIZE_MAX))
		return -EINVAL;
	if (exi_unlikely(!buf && len))
		return -EFAULT;
	return 0;
}

static ssize_t submit(int type, int s, void *buf, size_t len, int flags,
		      exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m)
{
	struct exi_op *op;
	int ret = exi_queue_reserve(q, m, buf, len, &op);

	if (ret)
		return ret;
	op->type = type;
	op->fd = s;
	op->ahandle = a;
	op->buf = buf;
	op->len = len;
	op->flags = flags;
	ret = exi_flow_submit(op);
	if (ret)
		exi_queue_unreserve(op);
	return ret;
}

EXI_PUBLIC ssize_t exs_send(int s, const void *buf, size_t len, int flags,
			    exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m)
{
	struct exi_region *region;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check(buf, len, flags,
		    q == EXS_QHANDLE_INVALID ? SEND_FLAGS : ASYNC_SEND_FLAGS);
	if (exi_unlikely(ret))
		return exi_result(ret);
	if (q != EXS_QHANDLE_INVALID)
		return exi_result(submit(EXS_EVT_SEND, s,
					 (void *)(uintptr_t)buf, len, flags, q,
					 a, m));
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
	struct exi_region *region;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check(buf, len, flags,
		    q == EXS_QHANDLE_INVALID ? RECV_FLAGS : ASYNC_RECV_FLAGS);
	if (exi_unlikely(ret))
		return exi_result(ret);
	if (q != EXS_QHANDLE_INVALID)
		return exi_result(
			submit(EXS_EVT_RECV, s, buf, len, flags, q, a, m));
	ret = exi_mem_get(m, buf, len, &region);
	if (exi_unlikely(ret))
		return exi_result(ret);
	ret = exi_flow_recv(s, buf, len, flags);
	exi_mem_put(region);
	return exi_result(ret);
}
