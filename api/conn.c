/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections: connect, accept, poll, cancel, shutdown, close. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include "api/api.h"
#include "core/call/poll.h"
#include "core/life/cancel.h"
#include "core/life/close.h"
#include "core/life/open.h"
#include "core/transfer/op.h"
#include "core/transfer/queue.h"

static int submit(exs_qhandle_t q, const struct exi_op *what)
{
	struct exi_op *op;
	int ret = exi_queue_reserve(q, EXS_MHANDLE_UNREGISTERED, NULL, 0, &op);

	if (ret)
		return ret;
	op->newfd = -1;
	op->type = what->type;
	op->fd = what->fd;
	op->flags = what->flags;
	op->ahandle = what->ahandle;
	op->addr = what->addr;
	op->to = what->to;
	op->to_len = what->to_len;
	ret = exi_lifecycle_submit(op);
	if (ret)
		exi_queue_unreserve(op);
	return ret;
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

EXI_PUBLIC int exs_connect(int s, const struct sockaddr *to, socklen_t len,
			   int flags, exs_qhandle_t q, exs_ahandle_t a)
{
	struct exi_op op = { .type = EXS_EVT_CONNECT, .fd = s, .ahandle = a };

	EXI_NEEDS_INIT();
	if (!to)
		return (int)exi_result(-EFAULT);
	if (flags || len > sizeof(op.to))
		return (int)exi_result(-EINVAL);
	if (q == EXS_QHANDLE_INVALID)
		return (int)exi_result(exi_connect(s, to, len));
	if (len < shortest(to, len))
		return (int)exi_result(-EINVAL);
	memcpy(&op.to, to, len);
	op.to_len = len;
	return (int)exi_result(submit(q, &op));
}

EXI_PUBLIC int exs_accept(int s, exs_acceptaddr_t *addr, int flags,
			  exs_qhandle_t q, exs_ahandle_t a)
{
	struct exi_op op = { .type = EXS_EVT_ACCEPT,
			     .fd = s,
			     .flags = flags,
			     .ahandle = a,
			     .addr = addr };
	int v = 0;
	socklen_t len = sizeof(v);

	EXI_NEEDS_INIT();
	if (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK))
		return (int)exi_result(-EINVAL);
	if (q == EXS_QHANDLE_INVALID)
		return (int)exi_result(exi_accept(
			s, addr ? addr->exs_addr : NULL,
			addr && addr->exs_addr ? &addr->exs_addrlen : NULL,
			flags));
	if (getsockopt(s, SOL_SOCKET, SO_ACCEPTCONN, &v, &len) < 0)
		return -1;
	if (!v)
		return (int)exi_result(-EINVAL);
	return (int)exi_result(submit(q, &op));
}

_Static_assert(EXS_POLLIN == POLLIN && EXS_POLLOUT == POLLOUT &&
		       EXS_POLLERR == POLLERR && EXS_POLLHUP == POLLHUP &&
		       EXS_POLLNVAL == POLLNVAL,
	       "as poll(2) has them");

/* Something can be waited for. */
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

EXI_PUBLIC int exs_poll(exs_pollfd_t *fds, int nfds, int flags, exs_qhandle_t q,
			exs_ahandle_t a)
{
	struct exi_op *op;
	int ret;

	EXI_NEEDS_INIT();
	ret = check_poll(fds, nfds, flags);
	if (ret)
		return (int)exi_result(ret);
	if (q == EXS_QHANDLE_INVALID)
		return (int)exi_result(
			exi_poll_now(fds, nfds, !(flags & MSG_DONTWAIT)));
	ret = exi_queue_reserve(q, EXS_MHANDLE_UNREGISTERED, NULL, 0, &op);
	if (ret)
		return (int)exi_result(ret);
	op->type = EXS_EVT_POLL;
	op->fd = -1;
	op->ahandle = a;
	op->arg = fds;
	op->len = (size_t)nfds;
	ret = exi_poll_submit(op);
	if (ret)
		exi_queue_unreserve(op);
	return (int)exi_result(ret);
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

/* A result now, or an event when a queue was given. */
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
	/* Refused before anything is taken; a socket that was closed behind
	 * our back is forgotten all the same. */
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
