/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of sockets: creating and connecting them, their options, and shutting
 * them down. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <linux/sockios.h>
#include <unistd.h>

#include "core/base/cancel.h"
#include "core/base/util.h"
#include "core/call/orphan.h"
#include "core/call/ready.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/life/close.h"
#include "core/life/hand.h"
#include "core/life/open.h"
#include "core/life/plain.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/meet/handed.h"
#include "core/meet/latent.h"
#include "core/base/proof_unix.h"
#include "core/sock/base.h"
#include "core/sock/keepalive.h"
#include "core/sock/table.h"
#include "core/transfer/half.h"
#include "core/transfer/seqpacket.h"
#include "core/transfer/switch.h"
#include "preload/shim.h"

static int ask(int fd, int name)
{
	int v = -1;
	socklen_t len = sizeof(v);

	return native.getsockopt(fd, SOL_SOCKET, name, &v, &len) < 0 ? -1 : v;
}

/* Whether fd may be a listener that the library knows by another number only,
 * or not yet. Each question is a call of the kernel at each accept. */
static bool may_serve(int fd)
{
	int protocol = ask(fd, SO_PROTOCOL);

	return protocol == IPPROTO_TCP ||
	       (protocol == 0 && exi_base_for(AF_UNIX, SOCK_STREAM, 0) &&
		ask(fd, SO_DOMAIN) == AF_UNIX &&
		exi_base_for(AF_UNIX, ask(fd, SO_TYPE), 0));
}

/* Sockets of a fabric, or of its library: the kernel serves them for good. */
#define OF_A_MODULE exi_unlikely(exi_module_calls(__builtin_return_address(0)))

static const struct exi_base *base_for(int domain, int type, int protocol)
{
	return exi_base_for(domain, type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK),
			    protocol);
}

/* The library knows a socket from the start, because it may be added to epoll
 * sets before it connects. */
HOOK int socket(int domain, int type, int protocol)
{
	EXI_CANCEL_OFF(false);
	uint32_t forked = exi_handed_forked_times();
	int fd = native.socket(domain, type, protocol);
	const struct exi_base *base;
	struct exi_sock *sk;

	if (OF_A_MODULE)
		return fd;
	if (fd < 0 && errno == EMFILE && shim_reclaim())
		fd = native.socket(domain, type, protocol);
	if (fd >= 0)
		shim_room(fd);
	base = fd < 0 || !shim_ready() ? NULL
				       : base_for(domain, type, protocol);
	if (!base)
		return fd;
	/* Without memory for it, the kernel serves the socket. */
	if (base->packets || !exi_latent_begin(fd, EXI_ROLE_NONE))
		(void)exi_sock_make(fd, EXI_ROLE_NONE, true, &sk);
	exi_hand_born(fd, forked);
	return fd;
}

/* Moves the connection at a number of stdio to TCP: stdio reads and writes it
 * by calls that are not intercepted. */
static void leave_to_stdio(int fd)
{
	int saved = errno;

	if (exi_unlikely(fd >= 0 && fd <= STDERR_FILENO))
		shim_plain(fd, EXS_X_REASON_STDIO);
	errno = saved;
}

static bool disconnects(const struct sockaddr *addr, socklen_t len)
{
	return addr && len >= sizeof(addr->sa_family) &&
	       addr->sa_family == AF_UNSPEC;
}

/* The address is examined after the kernel has accepted it. */
static int connect_latent(int fd, const struct sockaddr *addr, socklen_t len)
{
	int ret = native.connect(fd, addr, len);

	if (ret == 0 && disconnects(addr, len))
		shim_plain(fd, EXS_X_REASON_NOT_CONNECTED);
	else if (ret == 0 || errno == EINPROGRESS || errno == EALREADY ||
		 errno == EISCONN)
		exi_latent_connected(fd);
	leave_to_stdio(fd);
	return ret;
}

HOOK int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	EXI_CANCEL_OFF(true);
	int ret;

	if (OF_A_MODULE)
		return native.connect(fd, addr, len);
	if (exi_latent(fd))
		return connect_latent(fd, addr, len);
	/* Gives the connection up. */
	if (shim_sock(fd) && disconnects(addr, len))
		shim_plain(fd, EXS_X_REASON_NOT_CONNECTED);
	ret = (int)shim_result(exi_connect(fd, addr, len));
	leave_to_stdio(fd);
	return ret;
}
ALIAS(__connect, connect);

HOOK int socketpair(int domain, int type, int protocol, int fds[2])
{
	EXI_CANCEL_OFF(false);
	int ret = native.socketpair(domain, type, protocol, fds);
	const struct exi_base *base;

	if (OF_A_MODULE)
		return ret;
	if (ret < 0 && errno == EMFILE && shim_reclaim())
		ret = native.socketpair(domain, type, protocol, fds);
	if (ret < 0)
		return ret;
	shim_room(fds[1]);
	base = shim_ready() ? base_for(domain, type, protocol) : NULL;
	if (!base)
		return ret;
	exi_open_pair(base, fds);
	leave_to_stdio(fds[0]);
	leave_to_stdio(fds[1]);
	return ret;
}

HOOK int listen(int fd, int backlog)
{
	EXI_CANCEL_OFF(false);

	if (!shim_ready() || OF_A_MODULE)
		return native.listen(fd, backlog);
	return (int)shim_result(exi_listen(fd, backlog));
}

static int accept_known(int fd, struct sockaddr *addr, socklen_t *len,
			int flags)
{
	int ret = exi_accept(fd, addr, len, flags);

	if (ret == -EMFILE && shim_reclaim())
		ret = exi_accept(fd, addr, len, flags);
	leave_to_stdio(ret);
	if (ret >= 0)
		shim_room(ret);
	return ret;
}

HOOK int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	EXI_CANCEL_OFF(true);
	int ret;

	if (OF_A_MODULE)
		return native.accept4(fd, addr, len, flags);
	if (!shim_ready() || (!exi_sock_find(fd) && !may_serve(fd))) {
		ret = native.accept4(fd, addr, len, flags);
		if (ret < 0 && errno == EMFILE && shim_reclaim())
			ret = native.accept4(fd, addr, len, flags);
		return ret;
	}
	return (int)shim_result(accept_known(fd, addr, len, flags));
}

HOOK int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return shim_ready() && !OF_A_MODULE ? accept4(fd, addr, len, 0)
					    : native.accept(fd, addr, len);
}

HOOK int shutdown(int fd, int how)
{
	EXI_CANCEL_OFF(false);
	struct exi_sock *sk = shim_sock(fd);
	int ret;

	if (!sk)
		return native.shutdown(fd, how);
	ret = exi_shutdown(fd, how);
	/* The edge comes as in the kernel, also where nothing is left to be
	 * shut down. */
	if (ret != -EINVAL)
		shim_epoll_bell(sk, fd, ~0u);
	return (int)shim_result(ret);
}

/* A negative time: waits end at once. The kernel accepts it, but reports it as
 * none. */
static void set_time(struct exi_sock *sk, int name, const void *val)
{
	bool rx = name == SO_RCVTIMEO_OLD || name == SO_RCVTIMEO_NEW;
	uint32_t bit = 1u << (rx ? EXI_RX : EXI_TX);
	int64_t s;

	if (!rx && name != SO_SNDTIMEO_OLD && name != SO_SNDTIMEO_NEW)
		return;
	memcpy(&s, val, sizeof(s));
	if (s < 0)
		atomic_fetch_or(&exi_sock_shared(sk)->no_time, bit);
	else
		atomic_fetch_and(&exi_sock_shared(sk)->no_time, ~bit);
	shim_blocking(sk);
}

/* A socket of messages may have room now, for which the kernel tells it. */
static void room_set(struct exi_sock *sk, int fd)
{
	if (!sk->base->admits)
		return;
	exi_seq_room_set(sk, fd);
	if (exi_ready_ours(sk) && (exi_ready_events(sk, fd, POLLOUT) & POLLOUT))
		shim_epoll_bell(sk, fd, EPOLLOUT | EPOLLWRNORM);
}

/* Options that the library need not know of. */
static bool is_tcps_own(int level, int name)
{
	return level == IPPROTO_TCP
		       ? name == TCP_NODELAY || name == TCP_KEEPIDLE ||
				 name == TCP_KEEPINTVL || name == TCP_KEEPCNT
		       : level == SOL_SOCKET &&
				 (name == SO_KEEPALIVE || name == SO_REUSEADDR);
}

HOOK int setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	EXI_CANCEL_OFF(false);
	struct exi_sock *sk;
	int ret, saved;

	if (exi_latent(fd) && is_tcps_own(level, name))
		return native.setsockopt(fd, level, name, val, len);
	sk = exi_sock_find(fd);
	if (shim_sock(fd)) {
		ret = exi_before_option(fd, level, name);
		if (ret)
			return (int)shim_result(ret);
	}
	ret = sk ? exi_keepalive_set(sk, fd, level, name, val, len) : 1;
	if (ret <= 0)
		return (int)shim_result(ret);
	if (sk && level == SOL_SOCKET && name == SO_RCVLOWAT &&
	    sk->base->lowat_polled)
		shim_epoll_hides(sk, fd);
	ret = native.setsockopt(fd, level, name, val, len);
	if (!sk || ret < 0 || level != SOL_SOCKET)
		return ret;
	saved = errno;
	if (name == SO_SNDBUF || name == SO_SNDBUFFORCE)
		room_set(sk, fd);
	else if (name != SO_RCVLOWAT)
		set_time(sk, name, val);
	else if (exi_ready_lowat_set(sk, fd))
		shim_epoll_bell(sk, fd, EPOLLIN | EPOLLRDNORM);
	errno = saved;
	return ret;
}

HOOK int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	int ret = exi_orphan_name(fd, false, addr, len);

	return ret > 0 ? native.getsockname(fd, addr, len)
		       : (int)shim_result(ret);
}

HOOK int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct exi_sock *sk = exi_latent(fd) ? NULL : shim_sock(fd);
	int ret = sk && exi_over(sk, fd) ? -ENOTCONN
					 : exi_orphan_name(fd, true, addr, len);

	return ret > 0 ? native.getpeername(fd, addr, len)
		       : (int)shim_result(ret);
}

/* TCP_ZEROCOPY_RECEIVE maps what was received. */
static int zerocopy_receive(int fd, void *val, socklen_t *len)
{
	EXI_CANCEL_OFF(false);
	int ret = exi_before_option(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE);

	if (ret)
		return (int)shim_result(ret);
	return native.getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, val,
				 len);
}

/* Adjusts options that the library uses, or answers itself, to what the program
 * must see. */
static void tell_unix(int fd, int name, void *val, const socklen_t *len)
{
	int v, now, domain = 0;
	socklen_t size = sizeof(domain);
	struct exi_sock *sk;

	if ((name != SO_ERROR && name != SO_RCVBUF) || *len < sizeof(v))
		return;
	memcpy(&v, val, sizeof(v));
	sk = exi_latent(fd) ? NULL : exi_sock_find(fd);
	if (name == SO_RCVBUF) {
		now = v;
		v = exi_unix_unsigned(
			v, sk ? atomic_load(&exi_sock_shared(sk)->size) : 0);
		if (exi_likely(v == now) ||
		    native.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain,
				      &size) < 0 ||
		    domain != AF_UNIX)
			return;
	} else {
		if (!v && sk &&
		    exi_half_take_cut(&exi_sock_shared(sk)->half[EXI_RX]))
			v = ECONNRESET;
	}
	memcpy(val, &v, sizeof(v));
}

HOOK int getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	struct exi_sock *sk;
	int ret;

	if (exi_unlikely(level == IPPROTO_TCP &&
			 name == TCP_ZEROCOPY_RECEIVE) &&
	    shim_sock(fd))
		return zerocopy_receive(fd, val, len);
	if (level == IPPROTO_IP || level == IPPROTO_IPV6)
		exi_before_reading(fd, level, name);
	ret = native.getsockopt(fd, level, name, val, len);
	if (ret == 0 && level == SOL_SOCKET && shim_tracks(fd, EXI_TRACK_ANY))
		tell_unix(fd, name, val, len);
	if (ret == 0 && (level == IPPROTO_TCP || name == SO_KEEPALIVE)) {
		sk = exi_latent(fd) ? NULL : exi_sock_find(fd);
		if (sk)
			exi_keepalive_tell(sk, level, name, val, *len);
	}
	return ret;
}

HOOK int ioctl(int fd, unsigned long request, ...)
{
	EXI_CANCEL_OFF(false);
	struct exi_sock *sk =
		request == FIONBIO && exi_latent(fd) ? NULL : exi_sock_find(fd);
	va_list ap;
	void *arg;
	int n;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (exi_likely(!sk))
		return native.ioctl(fd, request, arg);
	if (request == FIONBIO) {
		n = native.ioctl(fd, request, arg);
		shim_blocking(sk);
		return n;
	}
	if (!shim_sock(fd))
		return native.ioctl(fd, request, arg);
	if (request == FIONREAD && exi_ready_ours(sk)) {
		if (exi_unlikely(exi_switch_may_come(sk)))
			exi_link_hear(sk);
		n = exi_ready_inq(sk, fd);
		if (n < 0)
			return (int)shim_result(n);
		*(int *)arg = n;
		return 0;
	}
	if (request == SIOCOUTQ && sk->base->messages) {
		n = native.ioctl(fd, request, arg);
		if (n == 0)
			*(int *)arg += exi_ready_unsent(sk, fd);
		return n;
	}
	if (request == FIOASYNC && *(int *)arg) {
		n = exi_before_flags(fd, O_ASYNC);
		if (n)
			return (int)shim_result(n);
	}
	return native.ioctl(fd, request, arg);
}
