/* SPDX-License-Identifier: BSD-2-Clause */
/* Event queues. */
#include <limits.h>

#include "core/call/dequeue.h"
#include "core/transfer/multi.h"
#include "core/transfer/queue.h"

#include "api/api.h"

EXI_PUBLIC exs_qhandle_t exs_qcreate(int depth)
{
	exs_qhandle_t q = EXS_QHANDLE_INVALID;
	int ret;

	EXI_NEEDS_INIT();
	ret = exi_queue_create(depth, &q);
	return ret ? (int)exi_result(ret) : q;
}

EXI_PUBLIC int exs_qdelete(exs_qhandle_t q)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_queue_delete(q));
}

/* Runs f on the queue of a handle. */
#define WITH_QUEUE(handle, var, call)                                          \
	do {                                                                   \
		struct exi_queue *var;                                         \
		int ret_;                                                      \
                                                                               \
		EXI_NEEDS_INIT();                                              \
		var = exi_queue_get(handle);                                   \
		if (!var)                                                      \
			return (int)exi_result(-EINVAL);                       \
		ret_ = (call);                                                 \
		exi_queue_put(var);                                            \
		return (int)exi_result(ret_);                                  \
	} while (0)

EXI_PUBLIC int exs_qmodify(exs_qhandle_t q, int attr, const void *val,
			   size_t len)
{
	WITH_QUEUE(q, queue, exi_queue_set(queue, attr, val, len));
}

EXI_PUBLIC int exs_qstatus(exs_qhandle_t q, int attr, void *val, size_t *len)
{
	WITH_QUEUE(q, queue, exi_queue_status(queue, attr, val, len));
}

EXI_PUBLIC int exs_qdequeue(exs_qhandle_t q, exs_event_t *evtvec, int evtcnt,
			    const struct timeval *timeout)
{
	if (!evtvec && evtcnt)
		return (int)exi_result(-EFAULT);
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_queue_dequeue(q, evtvec, evtcnt, timeout));
}

EXI_PUBLIC int exs_x_qfd(exs_qhandle_t q)
{
	WITH_QUEUE(q, queue, exi_queue_fd(queue));
}

EXI_PUBLIC int exs_x_dequeue(exs_qhandle_t q, exs_event_t *evtvec, int evtcnt,
			     const struct timespec *until, const sigset_t *mask)
{
	if (!evtvec && evtcnt)
		return (int)exi_result(-EFAULT);
	EXI_NEEDS_INIT();
	return (int)exi_result(
		exi_queue_dequeue_until(q, evtvec, evtcnt, until, mask));
}

EXI_PUBLIC int exs_x_provide(exs_qhandle_t q, void *mem, size_t len, int n)
{
	if (!mem)
		return (int)exi_result(-EFAULT);
	if (n < 0 || !len || len > SSIZE_MAX / ((size_t)n + 1))
		return (int)exi_result(-EINVAL);
	WITH_QUEUE(q, queue, exi_multi_provide(queue, q, mem, len, n));
}

EXI_PUBLIC int exs_x_post(exs_qhandle_t q, exs_ahandle_t a)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_queue_post(q, a));
}
