/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers: one buffer, several, files. */
#include <limits.h>
#include <stdlib.h>

#include "api/api.h"
#include "core/base/util.h"
#include "core/call/message_call.h"
#include "core/call/recv.h"
#include "core/call/send.h"
#include "core/call/vector.h"
#include "core/fabric/provider.h"
#include "core/life/close.h"
#include "core/life/deadline.h"
#include "core/meet/find.h"
#include "core/transfer/mem.h"
#include "core/transfer/multi.h"
#include "core/transfer/op.h"
#include "core/transfer/packet.h"
#include "core/transfer/parts.h"
#include "core/transfer/queue.h"
#include "core/transfer/submit.h"

#define SEND_FLAGS (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL | MSG_OOB)
#define RECV_FLAGS (MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_OOB)
/* Flags of asynchronous transfers: the others concern the moment of the
 * call. */
#define ASYNC_SEND_FLAGS (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL)
#define ASYNC_RECV_FLAGS (MSG_DONTWAIT | MSG_WAITALL)

/* Checks the flags of a call. A send of a message may have MSG_EOR, which it
 * has anyway; a message has no urgent byte, in any call. */
static inline int check_flags(int s, int flags, int allowed)
{
	int others = flags & ~allowed;

	if (exi_likely(!others))
		return 0;
	if (!exi_packet_is(s))
		return -EINVAL;
	if (allowed & MSG_NOSIGNAL)
		others &= ~MSG_EOR;
	return !others ? 0 : others == MSG_OOB ? -EOPNOTSUPP : -EINVAL;
}

static inline int check(int s, const void *buf, size_t len, int flags,
			int allowed)
{
	int err = check_flags(s, flags, allowed);

	if (exi_unlikely(err))
		return err;
	if (exi_unlikely(len > SSIZE_MAX))
		return -EINVAL;
	if (exi_unlikely(!buf && len))
		return -EFAULT;
	return 0;
}

static int make(const exs_x_op_t *o, exs_qhandle_t q, struct exi_op **ret)
{
	int err;

	if (exi_queue_reserve_some(q, o, 1, ret, &err))
		exi_op_describe(*ret, o);
	return err;
}

/* Calls with a queue, and with nothing to refuse. */
static __attribute__((noinline)) ssize_t
send_queued(int s, const void *buf, size_t len, int flags, exs_qhandle_t q,
	    exs_ahandle_t a, exs_mhandle_t m)
{
	exs_x_op_t o = {
		.exs_x_type = EXS_EVT_SEND,
		.exs_x_socket = s,
		.exs_x_buffer = (void *)(uintptr_t)buf,
		.exs_x_length = len,
		.exs_x_flags = flags,
		.exs_x_mhandle = m,
		.exs_x_ahandle = a,
	};

	return exi_result(exi_flow_submit_send(q, &o));
}

static __attribute__((noinline)) ssize_t
recv_queued(int s, void *buf, size_t len, int flags, exs_qhandle_t q,
	    exs_ahandle_t a, exs_mhandle_t m)
{
	exs_x_op_t o = {
		.exs_x_type = EXS_EVT_RECV,
		.exs_x_socket = s,
		.exs_x_buffer = buf,
		.exs_x_length = len,
		.exs_x_flags = flags,
		.exs_x_mhandle = m,
		.exs_x_ahandle = a,
	};

	return exi_result(exi_flow_submit_recv(q, &o));
}

/* Whether there is nothing to refuse. */
static inline bool is_plain(const void *buf, size_t len, int refused)
{
	return exi_likely(exi_core_ready() && !refused && buf &&
			  len <= SSIZE_MAX);
}

/* The fast path of a call without a queue, without registered memory and with
 * nothing to refuse. Null: the slow path. */
static inline struct exi_sock *plain_call(int s, const void *buf, size_t len,
					  int refused, exs_mhandle_t m)
{
	return is_plain(buf, len, refused) &&
			       exi_likely(m == EXS_MHANDLE_UNREGISTERED)
		       ? exi_sock_peek(s)
		       : NULL;
}

static __attribute__((noinline)) ssize_t
send_long(int s, const void *buf, size_t len, int flags, exs_qhandle_t q,
	  exs_ahandle_t a, exs_mhandle_t m)
{
	struct exi_region *region;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check(s, buf, len, flags,
		    q == EXS_QHANDLE_INVALID ? SEND_FLAGS : ASYNC_SEND_FLAGS);
	if (exi_unlikely(ret))
		return exi_result(ret);
	if (q != EXS_QHANDLE_INVALID)
		return send_queued(s, buf, len, flags, q, a, m);
	ret = exi_mem_get(m, buf, len, &region);
	if (exi_unlikely(ret))
		return exi_result(ret);
	ret = exi_flow_send_on(exi_sock_find(s), s, buf, len, flags, region);
	exi_mem_put(region);
	return exi_result(ret);
}

EXI_PUBLIC ssize_t exs_send(int s, const void *buf, size_t len, int flags,
			    exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m)
{
	struct exi_sock *sk;

	if (q == EXS_QHANDLE_INVALID &&
	    (sk = plain_call(s, buf, len, flags & ~SEND_FLAGS, m)))
		return exi_result(
			exi_flow_send_on(sk, s, buf, len, flags, NULL));
	if (exi_likely(q != EXS_QHANDLE_INVALID &&
		       is_plain(buf, len, flags & ~ASYNC_SEND_FLAGS)))
		return send_queued(s, buf, len, flags, q, a, m);
	return send_long(s, buf, len, flags, q, a, m);
}

static int submit_multi(int s, void *buf, size_t len, int flags,
			exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m);

static __attribute__((noinline)) ssize_t recv_long(int s, void *buf, size_t len,
						   int flags, exs_qhandle_t q,
						   exs_ahandle_t a,
						   exs_mhandle_t m)
{
	struct exi_region *region;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = check(s, buf, len, flags,
		    q == EXS_QHANDLE_INVALID ? RECV_FLAGS : ASYNC_RECV_FLAGS);
	if (exi_unlikely(ret && (flags & EXS_X_MULTI) &&
			 q != EXS_QHANDLE_INVALID))
		return exi_result(submit_multi(s, buf, len, flags, q, a, m));
	if (exi_unlikely(ret))
		return exi_result(ret);
	if (q != EXS_QHANDLE_INVALID)
		return recv_queued(s, buf, len, flags, q, a, m);
	ret = exi_mem_get(m, buf, len, &region);
	if (exi_unlikely(ret))
		return exi_result(ret);
	ret = exi_flow_recv(s, buf, len, flags);
	exi_mem_put(region);
	return exi_result(ret);
}

EXI_PUBLIC ssize_t exs_recv(int s, void *buf, size_t len, int flags,
			    exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m)
{
	struct exi_sock *sk;

	if (q == EXS_QHANDLE_INVALID &&
	    (sk = plain_call(s, buf, len, flags & ~RECV_FLAGS, m)))
		return exi_result(exi_flow_recv_on(sk, s, buf, len, flags));
	if (exi_likely(q != EXS_QHANDLE_INVALID &&
		       is_plain(buf, len, flags & ~ASYNC_RECV_FLAGS)))
		return recv_queued(s, buf, len, flags, q, a, m);
	return recv_long(s, buf, len, flags, q, a, m);
}

/* --- several buffers ---------------------------------------------------- */

/* Reserves an operation that will have parts. */
static int reserve(const exs_x_op_t *o, exs_qhandle_t q, struct exi_op **ret)
{
	int err = exi_queue_reserve(q, EXS_MHANDLE_UNREGISTERED, NULL, 0, ret);

	if (err)
		return err;
	(*ret)->type = o->exs_x_type;
	(*ret)->fd = o->exs_x_socket;
	(*ret)->ahandle = o->exs_x_ahandle;
	(*ret)->flags = o->exs_x_flags;
	(*ret)->arg = o->exs_x_buffer;
	return 0;
}

/* Submits an operation after its parts were taken; err: the error if they were
 * not. */
static int submit_parts(struct exi_op *op, int err)
{
	if (!err)
		err = exi_flow_submit(op);
	if (err)
		exi_queue_unreserve(op);
	return err;
}

static int build_multi(const exs_x_op_t *o, exs_qhandle_t q,
		       struct exi_op **ret)
{
	int err = o->exs_x_flags != EXS_X_MULTI || o->exs_x_buffer ||
				  o->exs_x_length || o->exs_x_mhandle
			  ? -EINVAL
			  : exi_sock_stream(o->exs_x_socket);

	if (!err && exi_packet_is(o->exs_x_socket))
		err = -EOPNOTSUPP;
	if (!err)
		err = reserve(o, q, ret);
	if (!err)
		exi_multi_receive(*ret);
	return err;
}

static int submit_multi(int s, void *buf, size_t len, int flags,
			exs_qhandle_t q, exs_ahandle_t a, exs_mhandle_t m)
{
	exs_x_op_t o = { .exs_x_type = EXS_EVT_RECV,
			 .exs_x_socket = s,
			 .exs_x_buffer = buf,
			 .exs_x_length = len,
			 .exs_x_flags = flags,
			 .exs_x_mhandle = m,
			 .exs_x_ahandle = a };
	struct exi_op *op;
	int err = build_multi(&o, q, &op);

	return err ? err : submit_parts(op, 0);
}

static int submit_message(int type, int s, exs_msghdr_t *msg, int flags,
			  exs_qhandle_t q, exs_ahandle_t a)
{
	exs_x_op_t o = { .exs_x_type = type,
			 .exs_x_socket = s,
			 .exs_x_buffer = msg,
			 .exs_x_flags = flags,
			 .exs_x_ahandle = a };
	struct exi_op *op;
	int ret = reserve(&o, q, &op);

	if (ret)
		return ret;
	return submit_parts(
		op, exi_parts_take(op, msg->exs_msg_iov, msg->exs_msg_iovlen));
}

static const struct exi_parts_put put = { exi_flow_send, exi_flow_sendv };
static const struct exi_parts_get get = { exi_flow_recv, exi_flow_recvv };

/* Moves an operation of several parts. A receive of no bytes returns what a
 * receive of a single empty buffer does. */
static ssize_t move_parts(const struct exi_op *op, int s, int flags,
			  const struct iovec *v)
{
	if (exi_op_dir(op) == EXI_TX)
		return exi_parts_send(&put, s, v, op->n_parts, flags);
	if (!op->len)
		return exi_flow_recv(s, NULL, 0, flags);
	return exi_parts_recv(&get, s, v, op->n_parts, flags);
}

/* The operation has its parts. */
static ssize_t move_whole(struct exi_op *op, int s, int flags, int *ret_flags)
{
	ssize_t ret;

	op->fd = s;
	op->flags = flags;
	ret = exi_flow_message(op);
	*ret_flags = op->event_flags;
	exi_parts_release(op);
	return ret;
}

static ssize_t move_message(int type, int s, const exs_msghdr_t *msg, int flags,
			    int *ret_flags)
{
	struct exi_op op = { .type = type };
	struct iovec few[EXI_PARTS_FEW], *v = few;
	ssize_t ret;

	ret = exi_parts_take(&op, msg->exs_msg_iov, msg->exs_msg_iovlen);
	*ret_flags = 0;
	if (ret)
		return ret;
	if (exi_packet_is(s))
		return move_whole(&op, s, flags, ret_flags);
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
	int err = check_flags(s, flags, allowed);

	if (!msg)
		return -EFAULT;
	if (err)
		return err;
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
	int none;

	EXI_NEEDS_INIT();
	ret = check_message(s, msg, flags, now ? SEND_FLAGS : ASYNC_SEND_FLAGS);
	if (ret)
		return exi_result(ret);
	if (now)
		return exi_result(
			move_message(EXS_EVT_SENDMSG, s, msg, flags, &none));
	return exi_result(submit_message(EXS_EVT_SENDMSG, s,
					 (exs_msghdr_t *)(uintptr_t)msg, flags,
					 q, a));
}

EXI_PUBLIC ssize_t exs_recvmsg(int s, exs_msghdr_t *msg, int flags,
			       exs_qhandle_t q, exs_ahandle_t a)
{
	bool now = q == EXS_QHANDLE_INVALID;
	ssize_t ret;
	int got;

	EXI_NEEDS_INIT();
	ret = check_message(s, msg, flags, now ? RECV_FLAGS : ASYNC_RECV_FLAGS);
	if (ret)
		return exi_result(ret);
	if (!now)
		return exi_result(
			submit_message(EXS_EVT_RECVMSG, s, msg, flags, q, a));
	ret = move_message(EXS_EVT_RECVMSG, s, msg, flags, &got);
	if (ret >= 0)
		msg->exs_msg_flags = got;
	return exi_result(ret);
}

/* --- files -------------------------------------------------------------- */

#define SHORT_PART 4096

static int check_files(int s, int flags)
{
	int err = check_flags(s, flags, ASYNC_SEND_FLAGS | EXS_SHUT_WR);

	return err ? err : exi_sock_stream(s);
}

static int build_files(const exs_x_op_t *o, exs_qhandle_t q,
		       struct exi_op **ret)
{
	int n = o->exs_x_length > INT_MAX ? -1 : (int)o->exs_x_length;
	int err = check_files(o->exs_x_socket, o->exs_x_flags);

	if (!err)
		err = o->exs_x_mhandle ? -EINVAL : reserve(o, q, ret);
	if (err)
		return err;
	err = exi_parts_take_files(*ret, o->exs_x_buffer, n);
	if (err)
		exi_queue_unreserve(*ret);
	return err;
}

static int submit_files(int s, const exs_xferfile_t *xf, int n, int flags,
			exs_qhandle_t q, exs_ahandle_t a)
{
	exs_x_op_t o = { .exs_x_type = EXS_EVT_SENDFILE,
			 .exs_x_socket = s,
			 .exs_x_buffer = (exs_xferfile_t *)(uintptr_t)xf,
			 .exs_x_length = (size_t)n,
			 .exs_x_flags = flags,
			 .exs_x_ahandle = a };
	struct exi_op *op;
	int err = build_files(&o, q, &op);

	return err ? err : submit_parts(op, 0);
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
	int none;

	ret = exi_parts_take_files(&op, xf, n);
	if (ret)
		return ret;
	if (exi_packet_is(s)) {
		ret = move_whole(&op, s, flags & ~EXS_SHUT_WR, &none);
		if (ret >= 0 && (flags & EXS_SHUT_WR))
			exi_shutdown(s, SHUT_WR);
		return ret;
	}
	if (!op.len) /* returns what a send of nothing does */
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
	err = check_files(s, flags);
	if (err)
		return exi_result(err);
	return exi_result(q == EXS_QHANDLE_INVALID
				  ? move_files(s, xf, n, flags)
				  : submit_files(s, xf, n, flags, q, a));
}

/* --- several operations ------------------------------------------------- */

/* The number of operations that are listed under one lock. */
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
		err = reserve(o, q, ret);
	if (err)
		return err;
	err = exi_parts_take(*ret, msg->exs_msg_iov, msg->exs_msg_iovlen);
	if (err)
		exi_queue_unreserve(*ret);
	return err;
}

static int build_transfer(const exs_x_op_t *o, exs_qhandle_t q,
			  struct exi_op **ret)
{
	bool tx = false;
	int err;

	switch (o->exs_x_type) {
	case EXS_EVT_SENDFILE:
		return build_files(o, q, ret);
	case EXS_EVT_SENDMSG:
		tx = true;
		/* fallthrough */
	case EXS_EVT_RECVMSG:
		return build_message(o, tx, q, ret);
	case EXS_EVT_SEND:
		tx = true;
		/* fallthrough */
	case EXS_EVT_RECV:
		if (o->exs_x_flags & EXS_X_MULTI)
			return build_multi(o, q, ret);
		err = check(o->exs_x_socket, o->exs_x_buffer, o->exs_x_length,
			    o->exs_x_flags,
			    tx ? ASYNC_SEND_FLAGS : ASYNC_RECV_FLAGS);
		return err ? err : make(o, q, ret);
	default:
		return -EINVAL;
	}
}

static int build(const exs_x_op_t *o, exs_qhandle_t q, struct exi_op **ret)
{
	uint64_t until;
	int err = exi_deadline_read(o->exs_x_until, &until);

	if (!err)
		err = build_transfer(o, q, ret);
	if (!err)
		(*ret)->until = until;
	return err;
}

static bool akin(const struct exi_op *a, const struct exi_op *b)
{
	return a->fd == b->fd && exi_op_dir(a) == exi_op_dir(b) &&
	       !(a->flags & EXS_SHUT_WR) && !(b->flags & EXS_SHUT_WR);
}

/* Operations after the first `done` give their slots back. */
static int unreserve_rest(struct exi_op **ops, int done, int n)
{
	while (n > done)
		exi_queue_unreserve(ops[--n]);
	return done;
}

/* Returns how many were accepted, and in *ret_err the error that stopped it. A
 * message may be refused when those before it are not, so messages are
 * submitted one by one then. */
static int submit_these(struct exi_op **ops, int n, int *ret_err)
{
	int err, fd = ops[0]->fd, done = 0;
	uint64_t until = 0;

	for (int i = 0; i < n; i++)
		if (ops[i]->until && (!until || ops[i]->until < until))
			until = ops[i]->until;
	err = exi_flow_submit_all(ops, n);
	if (!err)
		done = n;
	for (; n > 1 && done < n; done++) {
		err = exi_flow_submit_all(&ops[done], 1);
		if (err)
			break;
	}
	if (err)
		*ret_err = err;
	if (done)
		exi_deadline_note(fd, until);
	return unreserve_rest(ops, done, n);
}

static bool is_transfer(const exs_x_op_t *o)
{
	return o->exs_x_type != EXS_EVT_CONNECT &&
	       o->exs_x_type != EXS_EVT_ACCEPT && o->exs_x_type != EXS_EVT_POLL;
}

/* Submits the next few operations of one socket and direction. Returns how many
 * were accepted, and in *ret_err the error that stopped it. */
static int submit_some(exs_qhandle_t q, const exs_x_op_t *o, int n,
		       int *ret_err)
{
	struct exi_op *ops[AT_ONCE];
	int i, err = 0;

	for (i = 0; i < n && i < AT_ONCE && is_transfer(&o[i]); i++) {
		err = build(&o[i], q, &ops[i]);
		if (err)
			break;
		if (i && !akin(ops[i], ops[0])) {
			exi_queue_unreserve(ops[i]);
			break;
		}
	}
	*ret_err = err;
	return i ? submit_these(ops, i, ret_err) : 0;
}

/* Submits the next few transfers of one buffer each, of one socket and
 * direction: they get their slots together. */
static int submit_run(exs_qhandle_t q, const exs_x_op_t *o, int n, int *ret_err)
{
	struct exi_op *ops[AT_ONCE];
	int done = 0, err;

	n = exi_queue_reserve_some(q, o, n, ops, ret_err);
	if (!n)
		return 0;
	err = exi_flow_submit_plain(o, ops, n);
	if (!err)
		return n;
	for (; n > 1 && done < n; done++) {
		err = exi_flow_submit_plain(&o[done], &ops[done], 1);
		if (err)
			break;
	}
	*ret_err = err;
	return unreserve_rest(ops, done, n);
}

/* Counts these transfers. */
static int count_plain(const exs_x_op_t *o, int n)
{
	bool tx = o->exs_x_type == EXS_EVT_SEND;
	int flags = tx ? ASYNC_SEND_FLAGS : ASYNC_RECV_FLAGS;
	int i = 0;

	if (!tx && o->exs_x_type != EXS_EVT_RECV)
		return 0;
	while (i < n && i < AT_ONCE && o[i].exs_x_type == o->exs_x_type &&
	       o[i].exs_x_socket == o->exs_x_socket && !o[i].exs_x_until &&
	       !check(o[i].exs_x_socket, o[i].exs_x_buffer, o[i].exs_x_length,
		      o[i].exs_x_flags, flags))
		i++;
	return i;
}

/* Submits an operation that is not a transfer, alone. 1, or 0 and the error in
 * *ret_err. */
static int submit_other(exs_qhandle_t q, const exs_x_op_t *o, int *ret_err)
{
	*ret_err = o->exs_x_mhandle		      ? -EINVAL
		   : o->exs_x_type == EXS_EVT_CONNECT ? exi_api_connect(q, o)
		   : o->exs_x_type == EXS_EVT_ACCEPT  ? exi_api_accept(q, o)
						      : exi_api_poll(q, o);
	return !*ret_err;
}

static int submit_several(exs_qhandle_t q, const exs_x_op_t *o, int n)
{
	int done = 0, err = 0;

	if (n < 0 || q == EXS_QHANDLE_INVALID)
		return -EINVAL;
	if (!o && n)
		return -EFAULT;
	while (done < n && !err) {
		int plain = count_plain(o + done, n - done);

		done += plain > 1 ? submit_run(q, o + done, plain, &err)
			: is_transfer(o + done)
				? submit_some(q, o + done, n - done, &err)
				: submit_other(q, o + done, &err);
	}
	return done ? done : err;
}

EXI_PUBLIC int exs_x_submit(exs_qhandle_t q, const exs_x_op_t *ops, int n)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(submit_several(q, ops, n));
}
