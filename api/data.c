/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers: one buffer, several. */
#include <limits.h>
#include <stdlib.h>

#include "api/api.h"
#include "core/flow.h"
#include "core/mem.h"
#include "core/parts.h"
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
	op->arg = op->buf = buf;
	op->run = op->len = len;
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

/* --- several buffers ---------------------------------------------------- */

static ssize_t submit_message(int type, int s, exs_msghdr_t *msg, int flags,
			      exs_qhandle_t q, exs_ahandle_t a)
{
	struct exi_op *op;
	int ret = exi_queue_reserve(q, EXS_MHANDLE_UNREGISTERED, NULL, 0, &op);

	if (ret)
		return ret;
	op->type = type;
	op->fd = s;
	op->ahandle = a;
	op->arg = msg;
	op->flags = flags;
	ret = exi_parts_take(op, msg->exs_msg_iov, msg->exs_msg_iovlen);
	if (!ret)
		ret = exi_flow_submit(op);
	if (ret)
		exi_queue_unreserve(op);
	return ret;
}

/* Of no bytes at all a receive says what one of a single buffer does. */
static ssize_t move_parts(const struct exi_op *op, int s, int flags,
			  const struct iovec *v)
{
	if (exi_op_dir(op) == EXI_TX)
		return exi_parts_send(exi_flow_send, s, v, op->n_parts, flags);
	if (!op->len)
		return exi_flow_recv(s, NULL, 0, flags);
	return exi_parts_recv(exi_flow_recv, s, v, op->n_parts, flags);
}

static ssize_t move_message(int type, int s, const exs_msghdr_t *msg, int flags)
{
	struct exi_op op = { .type = type };
	struct iovec few[EXI_PARTS_FEW], *v = few;
	ssize_t ret;

	ret = exi_parts_take(&op, msg->exs_msg_iov, msg->exs_msg_iovlen);
	if (ret)
		return ret;
	if (op.n_parts > EXI_PARTS_FEW)
		v = calloc(op.n_parts, sizeof(*v));
	for (size_t i = 0; v && i < op.n_parts; i++)
		v[i] = (struct iovec){ .iov_base = op.parts[i].base,
				       .iov_len = op.parts[i].len };
	ret = v ? move_parts(&op, s, flags, v) : -ENOMEM;
	if (v != few)
		free(v);
	exi_parts_release(&op);
	return ret;
}

static int check_message(const exs_msghdr_t *msg, int flags, int allowed)
{
	if (!msg)
		return -EFAULT;
	if (flags & ~allowed)
		return -EINVAL;
	if (msg->exs_msg_name || msg->exs_msg_namelen || msg->exs_msg_control ||
	    msg->exs_msg_controllen)
		return -EOPNOTSUPP;
	return 0;
}

EXI_PUBLIC ssize_t exs_sendmsg(int s, const exs_msghdr_t *msg, int flags,
			       exs_qhandle_t q, exs_ahandle_t a)
{
	bool now = q == EXS_QHANDLE_INVALID;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check_message(msg, flags, now ? SEND_FLAGS : ASYNC_SEND_FLAGS);
	if (ret)
		return exi_result(ret);
	if (now)
		return exi_result(move_message(EXS_EVT_SENDMSG, s, msg, flags));
	return exi_result(submit_message(EXS_EVT_SENDMSG, s,
					 (exs_msghdr_t *)(uintptr_t)msg, flags,
					 q, a));
}

EXI_PUBLIC ssize_t exs_recvmsg(int s, exs_msghdr_t *msg, int flags,
			       exs_qhandle_t q, exs_ahandle_t a)
{
	bool now = q == EXS_QHANDLE_INVALID;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check_message(msg, flags, now ? RECV_FLAGS : ASYNC_RECV_FLAGS);
	if (ret)
		return exi_result(ret);
	if (!now)
		return exi_result(
			submit_message(EXS_EVT_RECVMSG, s, msg, flags, q, a));
	ret = move_message(EXS_EVT_RECVMSG, s, msg, flags);
	if (ret >= 0)
		msg->exs_msg_flags = 0;
	return exi_result(ret);
}
