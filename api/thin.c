/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls that are the kernel's, and what the library keeps beside them. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <unistd.h>

#include "api/api.h"
#include "core/lifecycle.h"
#include "core/link.h"
#include "core/orphan.h"
#include "core/sock.h"

EXI_PUBLIC int exs_socket(int domain, int type, int protocol)
{
	struct exi_sock *sk;
	int fd, ret;

	EXI_NEEDS_INIT();
	fd = socket(domain, type, protocol);
	if (fd < 0)
		return -1;
	if ((domain != AF_INET && domain != AF_INET6) ||
	    (type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) != SOCK_STREAM ||
	    (protocol != 0 && protocol != IPPROTO_TCP))
		return fd;
	ret = exi_sock_make(fd, EXI_ROLE_NONE, true, &sk);
	if (ret) {
		close(fd);
		return (int)exi_result(ret);
	}
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

	/* Who connects at once finds it. A child may accept: then both can be
	 * asked. */
	if (ret == 0)
		exi_marker_reach(s);
	return (int)exi_result(ret);
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
	return fcntl(s, cmd, arg);
}

EXI_PUBLIC int exs_getsockopt(int s, int level, int name, void *val,
			      socklen_t *len)
{
	EXI_NEEDS_INIT();
	return getsockopt(s, level, name, val, len);
}

EXI_PUBLIC int exs_setsockopt(int s, int level, int name, const void *val,
			      socklen_t len)
{
	int ret;

	EXI_NEEDS_INIT();
	ret = exi_before_option(s, level, name);
	if (ret)
		return (int)exi_result(ret);
	return setsockopt(s, level, name, val, len);
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
