/* SPDX-License-Identifier: BSD-2-Clause */
/* The C library's own calls. In libexs.so the linker directs the calls of the
 * whole library here (--wrap), so that they bypass any code that interposes the
 * names: the shim, which would lead them back to the library, and libraries
 * like fakeroot's, which ask a server about files, by a socket and with a lock
 * held. */

#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/* Defined by the shim; null without it. */
extern const char exs_preload __attribute__((weak));

/* Finds a function of the C library. Without the shim: the one that the program
 * itself would call, which may be a sanitizer's. With it: the C library's own,
 * because the library's place in the symbol order depends on how the program
 * loaded it. */
static void *find(const char *name)
{
	static void *libc;

	if (!&exs_preload)
		return dlsym(RTLD_DEFAULT, name);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	/* Which keeps count of descriptors. */
	char theirs[64];
	void *ret;

	snprintf(theirs, sizeof(theirs), "__interceptor_%s", name);
	ret = dlsym(RTLD_DEFAULT, theirs);
	if (ret)
		return ret;
#endif
	if (!libc)
		libc = dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD);
	return dlsym(libc, name);
}

/* Looked up at the first call, by any number of threads. */
#define CALL(name)                                                             \
	({                                                                     \
		name##_call *f = atomic_load_explicit(&native_##name,          \
						      memory_order_relaxed);   \
                                                                               \
		if (__builtin_expect(!f, 0)) {                                 \
			f = (name##_call *)find(#name);                        \
			atomic_store_explicit(&native_##name, f,               \
					      memory_order_relaxed);           \
		}                                                              \
		f;                                                             \
	})

#define NATIVE(ret, name, params, args)                                        \
	typedef ret name##_call params;                                        \
	static _Atomic(name##_call *) native_##name;                           \
	name##_call __wrap_##name;                                             \
	ret __wrap_##name params                                               \
	{                                                                      \
		return CALL(name) args;                                        \
	}

NATIVE(int, accept4, (int fd, struct sockaddr *a, socklen_t *l, int flags),
       (fd, a, l, flags))
NATIVE(int, bind, (int fd, const struct sockaddr *a, socklen_t l), (fd, a, l))
NATIVE(int, close, (int fd), (fd))
NATIVE(int, connect, (int fd, const struct sockaddr *a, socklen_t l),
       (fd, a, l))
NATIVE(int, dup3, (int from, int to, int flags), (from, to, flags))
NATIVE(int, epoll_create1, (int flags), (flags))
NATIVE(int, epoll_ctl, (int ep, int op, int fd, struct epoll_event *ev),
       (ep, op, fd, ev))
NATIVE(int, epoll_pwait2,
       (int ep, struct epoll_event *ev, int n, const struct timespec *t,
	const sigset_t *s),
       (ep, ev, n, t, s))
NATIVE(int, epoll_wait, (int ep, struct epoll_event *ev, int n, int ms),
       (ep, ev, n, ms))
NATIVE(int, fstat64, (int fd, struct stat64 *st), (fd, st))
NATIVE(int, fstatat64,
       (int dir, const char *path, struct stat64 *st, int flags),
       (dir, path, st, flags))
NATIVE(int, getpeername, (int fd, struct sockaddr *addr, socklen_t *len),
       (fd, addr, len))
NATIVE(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *len),
       (fd, addr, len))
NATIVE(int, getsockopt, (int fd, int level, int name, void *v, socklen_t *l),
       (fd, level, name, v, l))
NATIVE(int, listen, (int fd, int backlog), (fd, backlog))
NATIVE(int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
NATIVE(int, ppoll,
       (struct pollfd * p, nfds_t n, const struct timespec *t,
	const sigset_t *s),
       (p, n, t, s))
NATIVE(ssize_t, pwritev64v2,
       (int fd, const struct iovec *v, int n, off64_t at, int flags),
       (fd, v, n, at, flags))
NATIVE(ssize_t, read, (int fd, void *buf, size_t n), (fd, buf, n))
NATIVE(ssize_t, recv, (int fd, void *buf, size_t n, int flags),
       (fd, buf, n, flags))
NATIVE(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
NATIVE(ssize_t, send, (int fd, const void *buf, size_t n, int flags),
       (fd, buf, n, flags))
NATIVE(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags),
       (fd, m, flags))
NATIVE(ssize_t, sendto,
       (int fd, const void *buf, size_t n, int flags, const struct sockaddr *a,
	socklen_t l),
       (fd, buf, n, flags, a, l))
NATIVE(int, setsockopt,
       (int fd, int level, int name, const void *v, socklen_t l),
       (fd, level, name, v, l))
NATIVE(int, shutdown, (int fd, int how), (fd, how))
NATIVE(int, socket, (int domain, int type, int protocol),
       (domain, type, protocol))
NATIVE(int, socketpair, (int domain, int type, int protocol, int *pair),
       (domain, type, protocol, pair))
NATIVE(int, stat64, (const char *path, struct stat64 *st), (path, st))
NATIVE(int, statx,
       (int dir, const char *path, int flags, unsigned int mask,
	struct statx *st),
       (dir, path, flags, mask, st))
NATIVE(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n))

/* NATIVE_VARIADIC() is for a function with one argument of any kind, as the C
 * library takes it. */
#define NATIVE_VARIADIC(name, type)                                            \
	typedef int name##_call(int fd, type request, ...);                    \
	static _Atomic(name##_call *) native_##name;                           \
	name##_call __wrap_##name;                                             \
	int __wrap_##name(int fd, type request, ...)                           \
	{                                                                      \
		va_list ap;                                                    \
		void *arg;                                                     \
                                                                               \
		va_start(ap, request);                                         \
		arg = va_arg(ap, void *);                                      \
		va_end(ap);                                                    \
		return CALL(name)(fd, request, arg);                           \
	}

NATIVE_VARIADIC(fcntl64, int)
NATIVE_VARIADIC(ioctl, unsigned long)

typedef long syscall_call(long number, ...);
static _Atomic(syscall_call *) native_syscall;
syscall_call __wrap_syscall;
long __wrap_syscall(long number, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return CALL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
