/* SPDX-License-Identifier: BSD-2-Clause */
/* The C library's own functions, as they are without the shim, and the data
 * that hooks read first. */
#ifndef EXI_PRELOAD_NATIVE_H
#define EXI_PRELOAD_NATIVE_H

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <wordexp.h>

#include "core/base/track.h"

struct aiocb;
struct termios;
struct winsize;
struct mmsghdr;

/* F(return type, name, parameters, arguments) */
#define NATIVE_CALLS(F)                                                        \
	F(pid_t, _Fork, (void), ())                                            \
	F(void, _exit, (int n), (n))                                           \
	F(int, accept, (int s, struct sockaddr *a, socklen_t *l), (s, a, l))   \
	F(int, accept4, (int s, struct sockaddr *a, socklen_t *l, int f),      \
	  (s, a, l, f))                                                        \
	F(int, aio_read, (struct aiocb * c), (c))                              \
	F(int, aio_write, (struct aiocb * c), (c))                             \
	F(int, close, (int s), (s))                                            \
	F(int, close_range, (unsigned int a, unsigned int b, int f),           \
	  (a, b, f))                                                           \
	F(int, connect, (int s, const struct sockaddr *a, socklen_t l),        \
	  (s, a, l))                                                           \
	F(int, daemon, (int h, int l), (h, l))                                 \
	F(int, dup, (int s), (s))                                              \
	F(int, dup2, (int s, int t), (s, t))                                   \
	F(int, dup3, (int s, int t, int f), (s, t, f))                         \
	F(int, epoll_create, (int n), (n))                                     \
	F(int, epoll_create1, (int f), (f))                                    \
	F(int, epoll_ctl, (int s, int op, int t, struct epoll_event *e),       \
	  (s, op, t, e))                                                       \
	F(int, epoll_pwait,                                                    \
	  (int s, struct epoll_event *e, int n, int ms, const sigset_t *m),    \
	  (s, e, n, ms, m))                                                    \
	F(int, epoll_pwait2,                                                   \
	  (int s, struct epoll_event *e, int n, const struct timespec *t,      \
	   const sigset_t *m),                                                 \
	  (s, e, n, t, m))                                                     \
	F(int, epoll_wait, (int s, struct epoll_event *e, int n, int ms),      \
	  (s, e, n, ms))                                                       \
	F(int, execve, (const char *p, char *const *a, char *const *e),        \
	  (p, a, e))                                                           \
	F(int, execvpe, (const char *p, char *const *a, char *const *e),       \
	  (p, a, e))                                                           \
	F(int, execveat,                                                       \
	  (int s, const char *p, char *const *a, char *const *e, int f),       \
	  (s, p, a, e, f))                                                     \
	F(int, fexecve, (int s, char *const *a, char *const *e), (s, a, e))    \
	F(pid_t, fork, (void), ())                                             \
	F(int, forkpty,                                                        \
	  (int *s, char *n, const struct termios *t, const struct winsize *w), \
	  (s, n, t, w))                                                        \
	F(FILE *, fdopen, (int s, const char *m), (s, m))                      \
	F(int, fstat, (int s, struct stat *t), (s, t))                         \
	F(int, lio_listio,                                                     \
	  (int m, struct aiocb *const *l, int n, struct sigevent *e),          \
	  (m, l, n, e))                                                        \
	F(int, listen, (int s, int n), (s, n))                                 \
	F(int, ppoll,                                                          \
	  (struct pollfd * p, nfds_t n, const struct timespec *t,              \
	   const sigset_t *m),                                                 \
	  (p, n, t, m))                                                        \
	F(int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))        \
	F(int, pselect,                                                        \
	  (int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *t,   \
	   const sigset_t *m),                                                 \
	  (n, r, w, x, t, m))                                                  \
	F(int, select,                                                         \
	  (int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *t),         \
	  (n, r, w, x, t))                                                     \
	F(int, posix_spawn,                                                    \
	  (pid_t * i, const char *p, const posix_spawn_file_actions_t *a,      \
	   const posix_spawnattr_t *t, char *const *v, char *const *e),        \
	  (i, p, a, t, v, e))                                                  \
	F(int, posix_spawnp,                                                   \
	  (pid_t * i, const char *p, const posix_spawn_file_actions_t *a,      \
	   const posix_spawnattr_t *t, char *const *v, char *const *e),        \
	  (i, p, a, t, v, e))                                                  \
	F(FILE *, popen, (const char *c, const char *m), (c, m))               \
	F(int, stat, (const char *p, struct stat *t), (p, t))                  \
	F(int, system, (const char *c), (c))                                   \
	F(int, wordexp, (const char *s, wordexp_t *w, int f), (s, w, f))       \
	F(int, posix_spawn_file_actions_addclose,                              \
	  (posix_spawn_file_actions_t * a, int s), (a, s))                     \
	F(int, posix_spawn_file_actions_addclosefrom_np,                       \
	  (posix_spawn_file_actions_t * a, int s), (a, s))                     \
	F(int, posix_spawn_file_actions_adddup2,                               \
	  (posix_spawn_file_actions_t * a, int s, int t), (a, s, t))           \
	F(int, posix_spawn_file_actions_addopen,                               \
	  (posix_spawn_file_actions_t * a, int s, const char *p, int f,        \
	   mode_t m),                                                          \
	  (a, s, p, f, m))                                                     \
	F(int, posix_spawn_file_actions_destroy,                               \
	  (posix_spawn_file_actions_t * a), (a))                               \
	F(int, posix_spawn_file_actions_init,                                  \
	  (posix_spawn_file_actions_t * a), (a))                               \
	F(int, pthread_cancel, (pthread_t t), (t))                             \
	F(ssize_t, read, (int s, void *b, size_t n), (s, b, n))                \
	F(ssize_t, preadv2,                                                    \
	  (int s, const struct iovec *v, int n, off_t o, int f),               \
	  (s, v, n, o, f))                                                     \
	F(ssize_t, pwritev2,                                                   \
	  (int s, const struct iovec *v, int n, off_t o, int f),               \
	  (s, v, n, o, f))                                                     \
	F(int, vdprintf, (int s, const char *m, va_list ap), (s, m, ap))       \
	F(ssize_t, readv, (int s, const struct iovec *v, int n), (s, v, n))    \
	F(ssize_t, recv, (int s, void *b, size_t n, int f), (s, b, n, f))      \
	F(ssize_t, recvfrom,                                                   \
	  (int s, void *b, size_t n, int f, struct sockaddr *a, socklen_t *l), \
	  (s, b, n, f, a, l))                                                  \
	F(ssize_t, recvmsg, (int s, struct msghdr *m, int f), (s, m, f))       \
	F(int, recvmmsg,                                                       \
	  (int s, struct mmsghdr *m, unsigned int n, int f,                    \
	   struct timespec *t),                                                \
	  (s, m, n, f, t))                                                     \
	F(ssize_t, send, (int s, const void *b, size_t n, int f),              \
	  (s, b, n, f))                                                        \
	F(ssize_t, sendto,                                                     \
	  (int s, const void *b, size_t n, int f, const struct sockaddr *a,    \
	   socklen_t l),                                                       \
	  (s, b, n, f, a, l))                                                  \
	F(ssize_t, sendmsg, (int s, const struct msghdr *m, int f), (s, m, f)) \
	F(int, sendmmsg, (int s, struct mmsghdr *m, unsigned int n, int f),    \
	  (s, m, n, f))                                                        \
	F(ssize_t, sendfile, (int s, int t, off_t *o, size_t n), (s, t, o, n)) \
	F(int, getpeername, (int s, struct sockaddr *a, socklen_t *l),         \
	  (s, a, l))                                                           \
	F(int, getsockname, (int s, struct sockaddr *a, socklen_t *l),         \
	  (s, a, l))                                                           \
	F(int, getsockopt, (int s, int l, int o, void *v, socklen_t *n),       \
	  (s, l, o, v, n))                                                     \
	F(int, setsockopt, (int s, int l, int o, const void *v, socklen_t n),  \
	  (s, l, o, v, n))                                                     \
	F(int, seteuid, (uid_t u), (u))                                        \
	F(int, setns, (int s, int t), (s, t))                                  \
	F(int, setresuid, (uid_t r, uid_t e, uid_t s), (r, e, s))              \
	F(int, setreuid, (uid_t r, uid_t e), (r, e))                           \
	F(int, setuid, (uid_t u), (u))                                         \
	F(int, shutdown, (int s, int how), (s, how))                           \
	F(int, sigaction,                                                      \
	  (int n, const struct sigaction *a, struct sigaction *b), (n, a, b))  \
	F(sighandler_t, signal, (int n, sighandler_t h), (n, h))               \
	F(sighandler_t, sigset, (int n, sighandler_t h), (n, h))               \
	F(sighandler_t, sysv_signal, (int n, sighandler_t h), (n, h))          \
	F(void, longjmp, (jmp_buf env, int v), (env, v))                       \
	F(void, __longjmp_chk, (jmp_buf env, int v), (env, v))                 \
	F(int, socket, (int d, int t, int p), (d, t, p))                       \
	F(int, socketpair, (int d, int t, int p, int *s), (d, t, p, s))        \
	F(ssize_t, splice,                                                     \
	  (int s, off64_t *o, int t, off64_t *p, size_t n, unsigned int f),    \
	  (s, o, t, p, n, f))                                                  \
	F(int, unshare, (int f), (f))                                          \
	F(ssize_t, write, (int s, const void *b, size_t n), (s, b, n))         \
	F(ssize_t, writev, (int s, const struct iovec *v, int n), (s, v, n))

/* F(return type, name, parameters, the name of the last fixed parameter,
 * arguments: a[] are the words that follow it) */
#define NATIVE_VARIADIC(F)                                                     \
	F(int, clone,                                                          \
	  (int (*f)(void *), void *stack, int flags, void *arg, ...), arg,     \
	  (f, stack, flags, arg, a[0], a[1], a[2]))                            \
	F(int, fcntl64, (int s, int cmd, ...), cmd, (s, cmd, a[0]))            \
	F(int, ioctl, (int s, unsigned long request, ...), request,            \
	  (s, request, a[0]))                                                  \
	F(int, prctl, (int option, ...), option,                               \
	  (option, a[0], a[1], a[2], a[3]))                                    \
	F(long, syscall, (long number, ...), number,                           \
	  (number, a[0], a[1], a[2], a[3], a[4], a[5]))

#define NATIVE_MEMBER(ret, name, params, ...) ret(*name) params;
struct native {
	NATIVE_CALLS(NATIVE_MEMBER)
	NATIVE_VARIADIC(NATIVE_MEMBER)
};
#undef NATIVE_MEMBER

#define SHIM_STRANGERS 256u

/* The words that hooks read for numbers at which the library has nothing, in
 * one page. On kernels with separate page tables a system call flushes the TLB,
 * so each further page would cost a page walk. */
struct near {
	/* Callable at any time: a function that is called before it was looked
	 * up is looked up then. */
	struct native calls;
	_Atomic uint32_t track[EXI_TRACKED]; /* see core/base/track.h */
	/* Threads that sleep in an epoll set as if it had no connections, by
	 * the set's number. Several numbers share a place. */
	_Atomic int strangers[SHIM_STRANGERS];
};
extern struct near shim_near;
#define native shim_near.calls

#endif
