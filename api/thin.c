/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that the kernel serves, and what the library notes about them. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "core/call/orphan.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/life/dup.h"
#include "core/life/open.h"
#include "core/life/plain.h"
#include "core/meet/find.h"
#include "core/meet/marker.h"
#include "core/sock/base.h"
#include "core/sock/keepalive.h"
#include "core/sock/table.h"
#include "core/transfer/packet.h"
#include "core/transfer/timeout.h"

#define FLAGS (SOCK_CLOEXEC | SOCK_NONBLOCK)

EXI_PUBLIC int exs_socket(int domain, int type, int protocol)
{
	/* Messages, over a TCP connection. */
	bool framed = (domain == AF_INET || domain == AF_INET6) &&
		      (protocol == 0 || protocol == IPPROTO_TCP) &&
		      (type & ~FLAGS) == SOCK_SEQPACKET;
	struct exi_sock *sk;
	int fd, ret;

	EXI_NEEDS_INIT();
	/* Datagrams may be lost and have addresses: no call here supports
	 * that. */
	if ((type & ~FLAGS) == SOCK_DGRAM)
		return (int)exi_result(-ESOCKTNOSUPPORT);
	fd = socket(domain, framed ? SOCK_STREAM | (type & FLAGS) : type,
		    protocol);
	if (fd < 0)
		return -1;
	if (!framed && ((type & ~FLAGS) == SOCK_SEQPACKET ||
			!exi_base_for(domain, type & ~FLAGS, protocol)))
		return fd;
	ret = exi_sock_make(fd, EXI_ROLE_NONE, true, &sk);
	if (ret) {
		close(fd);
		return (int)exi_result(ret);
	}
	sk->framed = framed;
	return fd;
}

EXI_PUBLIC int exs_bind(int s, const struct sockaddr *addr, socklen_t len)
{
	EXI_NEEDS_INIT();
	return bind(s, addr, len);
}

EXI_PUBLIC int exs_listen(int s, int backlog)
{
	EXI_NEEDS_INIT();
	int ret = exi_listen(s, backlog);

	/* The marker is there before a peer connects. If a child accepts, both
	 * processes can be asked. */
	if (ret == 0)
		exi_marker_reach(s);
	return (int)exi_result(ret);
}

/* A listener by another number: connections that are accepted there are of the
 * same kind. */
static int listens_too(const struct exi_sock *sk, int fd)
{
	struct exi_sock *other;
	int err =
		sk->framed ? exi_sock_make(fd, EXI_ROLE_NONE, true, &other) : 0;

	if (sk->framed && !err)
		other->framed = true;
	return err;
}

/* Bytes that are sent by the new number go where the connection is. */
static int duplicate(int s, int cmd, int least)
{
	struct exi_sock *sk = exi_sock_find(s);
	int fd = fcntl(s, cmd, least), err;

	if (fd < 0)
		return -errno;
	if (!sk || !exi_sock_is(sk, s) || !sk->adopted)
		return fd;
	err = sk->role == EXI_ROLE_LISTEN ? listens_too(sk, fd)
					  : exi_name_add(sk, s, fd);
	if (!err)
		return fd;
	close(fd);
	return err;
}

EXI_PUBLIC int exs_fcntl(int s, int cmd, ...)
{
	va_list ap;
	void *arg;

	EXI_NEEDS_INIT();
	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (cmd == F_SETFL) {
		int ret = exi_before_flags(s, (int)(intptr_t)arg);

		if (ret)
			return (int)exi_result(ret);
	}
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return (int)exi_result(duplicate(s, cmd, (int)(intptr_t)arg));
	return fcntl(s, cmd, arg);
}

/* --- options ------------------------------------------------------------ */

static bool ours(int level, int name)
{
	return level == SOL_SOCKET &&
	       (name == SO_ASYNC_SEND_TIMEOUT ||
		name == SO_ASYNC_RECV_TIMEOUT || name == SO_ASYNC_RECV_ORDERED);
}

static enum exi_dir dir_of(int name)
{
	return name == SO_ASYNC_RECV_TIMEOUT ? EXI_RX : EXI_TX;
}

static int get_own(int s, int name, void *val, socklen_t *len)
{
	const int ordered = 1;
	struct exi_sock *sk;
	exs_timeout_t t;
	int ret;

	if (!val || !len)
		return -EFAULT;
	if (*len <
	    (name == SO_ASYNC_RECV_ORDERED ? sizeof(ordered) : sizeof(t)))
		return -EINVAL;
	if (name == SO_ASYNC_RECV_ORDERED) {
		ret = exi_sock_get(s, &sk);
		if (ret)
			return ret;
		memcpy(val, &ordered, sizeof(ordered));
		*len = sizeof(ordered);
		return 0;
	}
	ret = exi_timeout_get(s, dir_of(name), &t);
	if (ret)
		return ret;
	memcpy(val, &t, sizeof(t));
	*len = sizeof(t);
	return 0;
}

static int set_own(int s, int name, const void *val, socklen_t len)
{
	struct exi_sock *sk;
	exs_timeout_t t;

	if (!val)
		return -EFAULT;
	if (len != (name == SO_ASYNC_RECV_ORDERED ? sizeof(int) : sizeof(t)))
		return -EINVAL;
	if (name == SO_ASYNC_RECV_ORDERED)
		return exi_sock_get(s, &sk);
	memcpy(&t, val, sizeof(t));
	return exi_timeout_set(s, dir_of(name), &t);
}

EXI_PUBLIC int exs_getsockopt(int s, int level, int name, void *val,
			      socklen_t *len)
{
	struct exi_sock *sk;
	int ret;

	EXI_NEEDS_INIT();
	if (ours(level, name))
		return (int)exi_result(get_own(s, name, val, len));
	exi_before_reading(s, level, name);
	ret = getsockopt(s, level, name, val, len);
	sk = ret == 0 ? exi_sock_find(s) : NULL;
	if (sk && exi_sock_is(sk, s))
		exi_keepalive_tell(sk, level, name, val, *len);
	/* For the kernel it is a stream. */
	if (ret == 0 && level == SOL_SOCKET && name == SO_TYPE &&
	    exi_packet_is(s))
		memcpy(val, &(int){ SOCK_SEQPACKET },
		       *len < sizeof(int) ? *len : sizeof(int));
	return ret;
}

EXI_PUBLIC int exs_setsockopt(int s, int level, int name, const void *val,
			      socklen_t len)
{
	struct exi_sock *sk;
	int ret;

	EXI_NEEDS_INIT();
	if (ours(level, name))
		return (int)exi_result(set_own(s, name, val, len));
	ret = exi_before_option(s, level, name);
	if (ret)
		return (int)exi_result(ret);
	sk = exi_sock_find(s);
	ret = sk && exi_sock_is(sk, s)
		      ? exi_keepalive_set(sk, s, level, name, val, len)
		      : 1;
	if (ret <= 0)
		return (int)exi_result(ret);
	ret = setsockopt(s, level, name, val, len);
	if (ret == 0 && level == SOL_SOCKET && name == SO_RCVLOWAT && sk &&
	    exi_sock_is(sk, s))
		exi_ready_lowat_set(sk, s);
	return ret;
}

EXI_PUBLIC int exs_getsockname(int s, struct sockaddr *addr, socklen_t *len)
{
	int ret;

	EXI_NEEDS_INIT();
	ret = exi_orphan_name(s, false, addr, len);
	return ret > 0 ? getsockname(s, addr, len) : (int)exi_result(ret);
}

EXI_PUBLIC int exs_getpeername(int s, struct sockaddr *addr, socklen_t *len)
{
	int ret;

	EXI_NEEDS_INIT();
	ret = exi_orphan_name(s, true, addr, len);
	return ret > 0 ? getpeername(s, addr, len) : (int)exi_result(ret);
}
