/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections: connect, accept, poll, cancel, shutdown, close. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/api.h"
#include "core/call/poll.h"
#include "core/life/cancel.h"
#include "core/life/close.h"
#include "core/life/deadline.h"
#include "core/life/open.h"
#include "core/transfer/op.h"
#include "core/transfer/queue.h"

/* Reserves a slot, and fills in what all operations have. */
static int reserve(exs_qhandle_t q, const exs_x_op_t *o, struct exi_op **ret)
{
	uint64_t until;
	int err = exi_deadline_read(o->exs_x_until, &until);

	if (!err)
		err = exi_queue_reserve(q, o->exs_x_mhandle, NULL, 0, ret);
	if (err)
		return err;
	(*ret)->newfd = -1;
	(*ret)->type = o->exs_x_type;
	(*ret)->fd = o->exs_x_socket;
	(*ret)->flags = o->exs_x_flags;
	(*ret)->ahandle = o->exs_x_ahandle;
	(*ret)->until = until;
	return 0;
}

static int submit(struct exi_op *op, int (*how)(struct exi_op *op))
{
	uint64_t until = op->until;
	int fd = op->fd; /* the operation belongs to its list from now on */
	int err = how(op);

	if (err)
		exi_queue_unreserve(op);
	else
		exi_deadline_note(fd, until);
	return err;
}

/* The shortest length of an address of this family; the kernel would refuse a
 * shorter one later. */
static socklen_t shortest(const struct sockaddr *to, socklen_t len)
{
	if (len < sizeof(to->sa_family))
		return sizeof(to->sa_family);
	return to->sa_family == AF_INET ? sizeof(struct sockaddr_in)
	       : to->sa_family == AF_INET6
		       ? offsetof(struct sockaddr_in6, sin6_scope_id)
		       : sizeof(to->sa_family);
}

int exi_api_connect(exs_qhandle_t q, const exs_x_op_t *o)
{
	const struct sockaddr *to = o->exs_x_buffer;
	size_t len = o->exs_x_length;
	struct exi_op *op;
	int err;

	if (!to)
		return -EFAULT;
	if (o->exs_x_flags || len > sizeof(op->to) ||
	    len < shortest(to, (socklen_t)len))
		return -EINVAL;
	err = reserve(q, o, &op);
	if (err)
		return err;
	memcpy(&op->to, to, len);
	op->to_len = (socklen_t)len;
	return submit(op, exi_lifecycle_submit);
}

EXI_PUBLIC int exs_connect(int s, const struct sockaddr *to, socklen_t len,
			   int flags, exs_qhandle_t q, exs_ahandle_t a)
{
	exs_x_op_t o = { .exs_x_type = EXS_EVT_CONNECT,
			 .exs_x_socket = s,
			 .exs_x_buffer = (void *)(uintptr_t)to,
			 .exs_x_length = len,
			 .exs_x_flags = flags,
			 .exs_x_ahandle = a };

	EXI_NEEDS_INIT();
	if (q != EXS_QHANDLE_INVALID)
		return (int)exi_result(exi_api_connect(q, &o));
	if (!to)
		return (int)exi_result(-EFAULT);
	if (flags || len > sizeof(struct sockaddr_storage))
		return (int)exi_result(-EINVAL);
	return (int)exi_result(exi_connect(s, to, len));
}

#define ACCEPT_FLAGS (SOCK_CLOEXEC | SOCK_NONBLOCK)

int exi_api_accept(exs_qhandle_t q, const exs_x_op_t *o)
{
	int err, v = 0;
	socklen_t len = sizeof(v);
	struct exi_op *op;

	bool multi = o->exs_x_flags & EXS_X_MULTI;

	if (o->exs_x_flags & ~(ACCEPT_FLAGS | EXS_X_MULTI) || o->exs_x_length ||
	    (multi && o->exs_x_buffer))
		return -EINVAL;
	if (getsockopt(o->exs_x_socket, SOL_SOCKET, SO_ACCEPTCONN, &v, &len) <
	    0)
		return -errno;
	err = v ? reserve(q, o, &op) : -EINVAL;
	if (err)
		return err;
	op->addr = o->exs_x_buffer;
	op->multi = multi;
	op->flags &= ACCEPT_FLAGS;
	return submit(op, exi_lifecycle_submit);
}

EXI_PUBLIC int exs_accept(int s, exs_acceptaddr_t *addr, int flags,
			  exs_qhandle_t q, exs_ahandle_t a)
{
	exs_x_op_t o = { .exs_x_type = EXS_EVT_ACCEPT,
			 .exs_x_socket = s,
			 .exs_x_buffer = addr,
			 .exs_x_flags = flags,
			 .exs_x_ahandle = a };

	EXI_NEEDS_INIT();
	if (q != EXS_QHANDLE_INVALID)
		return (int)exi_result(exi_api_accept(q, &o));
	if (flags & ~ACCEPT_FLAGS)
		return (int)exi_result(-EINVAL);
	return (int)exi_result(exi_accept(
		s, addr ? addr->exs_addr : NULL,
		addr && addr->exs_addr ? &addr->exs_addrlen : NULL, flags));
}

_Static_assert(EXS_POLLIN == POLLIN && EXS_POLLOUT == POLLOUT &&
		       EXS_POLLERR == POLLERR && EXS_POLLHUP == POLLHUP &&
		       EXS_POLLNVAL == POLLNVAL,
	       "as poll(2) has them");

/* Checks the arguments: at least one descriptor must be waited for. 0 or
 * -errno. */
static int check_poll(exs_pollfd_t *fds, int nfds, int flags)
{
	bool any = false;

	if (flags & ~MSG_DONTWAIT || nfds <= 0 || nfds > EXS_POLL_MAX)
		return -EINVAL;
	if (!fds)
		return -EFAULT;
	for (int i = 0; i < nfds; i++) {
		if (fds[i].exs_events & ~(EXS_POLLIN | EXS_POLLOUT))
			return -EINVAL;
		any = any || fds[i].exs_fd >= 0;
	}
	return any ? 0 : -EINVAL;
}

int exi_api_poll(exs_qhandle_t q, const exs_x_op_t *o)
{
	size_t n = o->exs_x_length;
	struct exi_op *op;
	int err = n > EXS_POLL_MAX
			  ? -EINVAL
			  : check_poll(o->exs_x_buffer, (int)n, o->exs_x_flags);

	if (!err)
		err = reserve(q, o, &op);
	if (err)
		return err;
	op->fd = -1;
	op->arg = o->exs_x_buffer;
	op->len = n;
	return submit(op, exi_poll_submit);
}

EXI_PUBLIC int exs_poll(exs_pollfd_t *fds, int nfds, int flags, exs_qhandle_t q,
			exs_ahandle_t a)
{
	exs_x_op_t o = { .exs_x_type = EXS_EVT_POLL,
			 .exs_x_buffer = fds,
			 .exs_x_length = (size_t)nfds,
			 .exs_x_flags = flags,
			 .exs_x_ahandle = a };
	int ret;

	EXI_NEEDS_INIT();
	ret = check_poll(fds, nfds, flags);
	if (ret)
		return (int)exi_result(ret);
	if (q != EXS_QHANDLE_INVALID)
		return (int)exi_result(exi_api_poll(q, &o));
	return (int)exi_result(
		exi_poll_now(fds, nfds, !(flags & MSG_DONTWAIT)));
}

EXI_PUBLIC int exs_cancel(int s, exs_ahandle_t a, int flags)
{
	bool by_fd = flags & EXS_CAF_FILDES, any = !(flags & EXS_CAF_AHANDLE);

	EXI_NEEDS_INIT();
	if (!flags || (flags & ~(EXS_CAF_FILDES | EXS_CAF_AHANDLE)))
		return (int)exi_result(-EINVAL);
	return (int)exi_result(by_fd ? exi_cancel_fd(s, any, a)
				     : exi_cancel_all(a));
}

/* Returns the result now, or makes an event if a queue was given. */
static int finish(int ret, struct exi_op *op)
{
	if (!op)
		return (int)exi_result(ret);
	op->err = ret < 0 ? -ret : 0;
	exi_op_complete(op);
	return 0;
}

static int prepare(int type, int s, exs_qhandle_t q, exs_ahandle_t a,
		   struct exi_op **op)
{
	int ret;

	if (q == EXS_QHANDLE_INVALID)
		return 0;
	ret = exi_queue_reserve(q, EXS_MHANDLE_UNREGISTERED, NULL, 0, op);
	if (ret)
		return ret;
	(*op)->type = type;
	(*op)->fd = s;
	(*op)->ahandle = a;
	return 0;
}

EXI_PUBLIC int exs_shutdown(int s, int how, exs_qhandle_t q, exs_ahandle_t a)
{
	struct exi_op *op = NULL;
	socklen_t len = sizeof(int);
	int ret, type;

	EXI_NEEDS_INIT();
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return (int)exi_result(-EINVAL);
	ret = getsockopt(s, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ? -errno : 0;
	if (!ret)
		ret = prepare(EXS_EVT_SHUTDOWN, s, q, a, &op);
	if (ret)
		return (int)exi_result(ret);
	return finish(exi_shutdown(s, how), op);
}

EXI_PUBLIC int exs_close(int s, exs_qhandle_t q, exs_ahandle_t a)
{
	struct exi_op *op = NULL;
	int ret;

	EXI_NEEDS_INIT();
	if (q == EXS_QHANDLE_INVALID)
		return (int)exi_result(exi_close(s));
	/* An error changes nothing. But a socket that was closed by a call that
	 * the library did not see is forgotten all the same. */
	if (fcntl(s, F_GETFD) < 0)
		return (int)exi_result(exi_close(s));
	ret = prepare(EXS_EVT_CLOSE, s, q, a, &op);
	if (ret)
		return (int)exi_result(ret);
	ret = exi_close_submit(op);
	if (ret)
		exi_queue_unreserve(op);
	return (int)exi_result(ret);
}
