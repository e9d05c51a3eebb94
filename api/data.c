/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers: one buffer, several, files. */
#include <limits.h>
#include <stdlib.h>

#include "api/api.h"
#include "core/flow.h"
#include "core/lifecycle.h"
#include "core/mem.h"
#include "core/parts.h"
#include "core/queue.h"
#include "core/sock.h"

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

static inline int make(int type, int s, void *buf, size_t len, int flags,
		       exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m,
		       struct exi_op **ret)
{
	struct exi_op *op;
	int err = exi_queue_reserve(q, m, buf, len, &op);

	if (err)
		return err;
	op->type = type;
	op->fd = s;
	op->ahandle = a;
	op->arg = op->buf = buf;
	op->run = op->len = len;
	op->flags = flags;
	*ret = op;
	return 0;
}

static ssize_t submit(int type, int s, void *buf, size_t len, int flags,
		      exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m)
{
	struct exi_op *op;
	int ret = make(type, s, buf, len, flags, q, a, m, &op);

	if (ret)
		return ret;
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

/* An operation that will have parts. */
static int reserve(int type, int s, int flags, exs_qhandle_t q, exs_ahandle_t a,
		   struct exi_op **ret)
{
	int err = exi_queue_reserve(q, EXS_MHANDLE_UNREGISTERED, NULL, 0, ret);

	if (err)
		return err;
	(*ret)->type = type;
	(*ret)->fd = s;
	(*ret)->ahandle = a;
	(*ret)->flags = flags;
	return 0;
}

/* Its parts were taken, or err says why not. */
static int submit_parts(struct exi_op *op, int err)
{
	if (!err)
		err = exi_flow_submit(op);
	if (err)
		exi_queue_unreserve(op);
	return err;
}

static int submit_message(int type, int s, exs_msghdr_t *msg, int flags,
			  exs_qhandle_t q, exs_ahandle_t a)
{
	struct exi_op *op;
	int ret = reserve(type, s, flags, q, a, &op);

	if (ret)
		return ret;
	op->arg = msg;
	return submit_parts(
		op, exi_parts_take(op, msg->exs_msg_iov, msg->exs_msg_iovlen));
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

static int check_message(int s, const exs_msghdr_t *msg, int flags, int allowed)
{
	if (!msg)
		return -EFAULT;
	if (flags & ~allowed)
		return -EINVAL;
	if (msg->exs_msg_name || msg->exs_msg_namelen || msg->exs_msg_control ||
	    msg->exs_msg_controllen)
		return -EOPNOTSUPP;
	return exi_sock_stream(s);
}

EXI_PUBLIC ssize_t exs_sendmsg(int s, const exs_msghdr_t *msg, int flags,
			       exs_qhandle_t q, exs_ahandle_t a)
{
	bool now = q == EXS_QHANDLE_INVALID;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check_message(s, msg, flags, now ? SEND_FLAGS : ASYNC_SEND_FLAGS);
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
	ret = check_message(s, msg, flags, now ? RECV_FLAGS : ASYNC_RECV_FLAGS);
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

/* --- files -------------------------------------------------------------- */

#define SHORT_PART 4096

static int submit_files(int s, const exs_xferfile_t *xf, int n, int flags,
			exs_qhandle_t q, exs_ahandle_t a)
{
	struct exi_op *op;
	int ret = reserve(EXS_EVT_SENDFILE, s, flags, q, a, &op);

	if (ret)
		return ret;
	op->arg = (exs_xferfile_t *)(uintptr_t)xf;
	return submit_parts(op, exi_parts_take_files(op, xf, n));
}

/* A short part is held back for what follows. */
static ssize_t send_part(int s, const struct exi_part *p, int flags, bool last)
{
	if (!last && p->len < SHORT_PART)
		flags |= MSG_MORE;
	return p->fd >= 0 ? exi_parts_send_file(exi_flow_send, s, p->fd, p->at,
						p->len, flags)
			  : exi_flow_send(s, p->base, p->len, flags);
}

static ssize_t move_files(int s, const exs_xferfile_t *xf, int n, int flags)
{
	struct exi_op op = { .type = EXS_EVT_SENDFILE };
	size_t done = 0;
	ssize_t ret;

	ret = exi_parts_take_files(&op, xf, n);
	if (ret)
		return ret;
	if (!op.len) /* says what a send of nothing does */
		ret = exi_flow_send(s, &(char){ 0 }, 0, flags & ~EXS_SHUT_WR);
	for (size_t i = 0; i < op.n_parts && ret >= 0; i++) {
		size_t len = op.parts[i].len;

		if (!len)
			continue;
		ret = send_part(s, &op.parts[i], flags & ~EXS_SHUT_WR,
				done + len == op.len);
		if (ret > 0)
			done += (size_t)ret;
		if (ret != (ssize_t)len)
			break;
	}
	if (done == op.len && ret >= 0 && (flags & EXS_SHUT_WR))
		ret = exi_shutdown(s, SHUT_WR);
	exi_parts_release(&op);
	return done ? (ssize_t)done : ret;
}

EXI_PUBLIC ssize_t exs_sendfile(int s, const exs_xferfile_t *xf, int n,
				int flags, exs_qhandle_t q, exs_ahandle_t a)
{
	int err;

	EXI_NEEDS_INIT();
	err = flags & ~(ASYNC_SEND_FLAGS | EXS_SHUT_WR) ? -EINVAL
							: exi_sock_stream(s);
	if (err)
		return exi_result(err);
	return exi_result(q == EXS_QHANDLE_INVALID
				  ? move_files(s, xf, n, flags)
				  : submit_files(s, xf, n, flags, q, a));
}

/* --- several operations ------------------------------------------------- */

/* So many are listed with one lock. */
#define AT_ONCE 64

static int build_message(const exs_x_op_t *o, bool tx, exs_qhandle_t q,
			 struct exi_op **ret)
{
	exs_msghdr_t *msg = o->exs_x_buffer;
	int err = o->exs_x_length || o->exs_x_mhandle
			  ? -EINVAL
			  : check_message(o->exs_x_socket, msg, o->exs_x_flags,
					  tx ? ASYNC_SEND_FLAGS
					     : ASYNC_RECV_FLAGS);

	if (!err)
		err = reserve(o->exs_x_type, o->exs_x_socket, o->exs_x_flags, q,
			      o->exs_x_ahandle, ret);
	if (err)
		return err;
	(*ret)->arg = msg;
	err = exi_parts_take(*ret, msg->exs_msg_iov, msg->exs_msg_iovlen);
	if (err)
		exi_queue_unreserve(*ret);
	return err;
}

static int build(const exs_x_op_t *o, exs_qhandle_t q, struct exi_op **ret)
{
	bool tx = false;
	int err;

	switch (o->exs_x_type) {
	case EXS_EVT_SENDMSG:
		tx = true;
		/* fallthrough */
	case EXS_EVT_RECVMSG:
		return build_message(o, tx, q, ret);
	case EXS_EVT_SEND:
		tx = true;
		/* fallthrough */
	case EXS_EVT_RECV:
		err = check(o->exs_x_buffer, o->exs_x_length, o->exs_x_flags,
			    tx ? ASYNC_SEND_FLAGS : ASYNC_RECV_FLAGS);
		return err ? err
			   : make(o->exs_x_type, o->exs_x_socket,
				  o->exs_x_buffer, o->exs_x_length,
				  o->exs_x_flags, q, o->exs_x_ahandle,
				  o->exs_x_mhandle, ret);
	default:
		return -EINVAL;
	}
}

static bool akin(const struct exi_op *a, const struct exi_op *b)
{
	return a->fd == b->fd && exi_op_dir(a) == exi_op_dir(b);
}

/* The next few of one socket and direction; how many were accepted, and in
 * *ret_err why not more. */
static int submit_some(exs_qhandle_t q, const exs_x_op_t *o, int n,
		       int *ret_err)
{
	struct exi_op *ops[AT_ONCE];
	int i, err = 0;

	for (i = 0; i < n && i < AT_ONCE; i++) {
		err = build(&o[i], q, &ops[i]);
		if (err)
			break;
		if (i && !akin(ops[i], ops[0])) {
			exi_queue_unreserve(ops[i]);
			break;
		}
	}
	*ret_err = err;
	if (!i)
		return 0;
	err = exi_flow_submit_all(ops, i);
	if (!err)
		return i;
	*ret_err = err;
	while (i)
		exi_queue_unreserve(ops[--i]);
	return 0;
}

static int submit_several(exs_qhandle_t q, const exs_x_op_t *o, int n)
{
	int done = 0, err = 0;

	if (n < 0 || q == EXS_QHANDLE_INVALID)
		return -EINVAL;
	if (!o && n)
		return -EFAULT;
	while (done < n && !err)
		done += submit_some(q, o + done, n - done, &err);
	return done ? done : err;
}

EXI_PUBLIC int exs_x_submit(exs_qhandle_t q, const exs_x_op_t *ops, int n)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(submit_several(q, ops, n));
}
