/* SPDX-License-Identifier: BSD-2-Clause */
/* The hook of syscall(): a call that the shim intercepts by name is intercepted
 * by number, too; any other goes to the kernel unchanged. It is no cancellation
 * point. */
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cancel.h"
#include "core/base/util.h"
#include "core/meet/find.h"
#include "preload/shim.h"

#define KERNEL_SIGSET 8 /* bytes of a signal set, to the kernel */

/* Converts the kernel's signal set to the C library's; false: it is invalid. */
static bool mask_of(long set, long size, sigset_t *ret)
{
	sigemptyset(ret);
	if (set && size != KERNEL_SIGSET)
		return false;
	if (set)
		memcpy(ret, (const void *)set, KERNEL_SIGSET);
	return true;
}

/* Subtracts the time since start from a time-out. */
static void spend(struct timespec *t, uint64_t start)
{
	*t = exi_time_left(start + exi_timespec_ns(t));
}

static long raw_ppoll(const long *a)
{
	struct timespec *t = (struct timespec *)a[2], copy;
	uint64_t start = exi_now_ns();
	sigset_t mask;
	long ret;

	if (!mask_of(a[3], a[4], &mask))
		return native.syscall(SYS_ppoll, a[0], a[1], a[2], a[3], a[4]);
	if (t)
		copy = *t;
	ret = ppoll((struct pollfd *)a[0], (nfds_t)a[1], t ? &copy : NULL,
		    a[3] ? &mask : NULL);
	if (t && (ret >= 0 || errno == EINTR))
		spend(t, start);
	return ret;
}

static long raw_pselect(const long *a)
{
	const long *sixth = (const long *)a[5];
	struct timespec *t = (struct timespec *)a[4], copy;
	uint64_t start = exi_now_ns();
	sigset_t mask;
	long ret;

	if (!mask_of(sixth ? sixth[0] : 0, sixth ? sixth[1] : 0, &mask))
		return native.syscall(SYS_pselect6, a[0], a[1], a[2], a[3],
				      a[4], a[5]);
	if (t)
		copy = *t;
	ret = pselect((int)a[0], (fd_set *)a[1], (fd_set *)a[2], (fd_set *)a[3],
		      t ? &copy : NULL, sixth && sixth[0] ? &mask : NULL);
	if (t && (ret >= 0 || errno == EINTR))
		spend(t, start);
	return ret;
}

static long raw_epoll_pwait(const long *a)
{
	sigset_t mask;

	if (!mask_of(a[4], a[5], &mask))
		return native.syscall(SYS_epoll_pwait, a[0], a[1], a[2], a[3],
				      a[4], a[5]);
	return epoll_pwait((int)a[0], (struct epoll_event *)a[1], (int)a[2],
			   (int)a[3], a[4] ? &mask : NULL);
}

static long raw_epoll_pwait2(const long *a)
{
	sigset_t mask;

	if (!mask_of(a[4], a[5], &mask))
		return native.syscall(SYS_epoll_pwait2, a[0], a[1], a[2], a[3],
				      a[4], a[5]);
	return epoll_pwait2((int)a[0], (struct epoll_event *)a[1], (int)a[2],
			    (const struct timespec *)a[3], a[4] ? &mask : NULL);
}

/* Whether a clone is a fork: it does not share memory. On another stack, it
 * could not return from here. */
static bool forks(uint64_t flags, uint64_t stack)
{
	return !(flags & CLONE_VM) && !stack;
}

static bool any_fork(long number, const long *a)
{
	const struct clone_args *c = (const struct clone_args *)a[0];

	return number == SYS_clone    ? forks((uint64_t)a[0], (uint64_t)a[1])
	       : number == SYS_clone3 ? c && forks(c->flags, c->stack)
				      : false;
}

/* Calls on one descriptor that matter only on connections of the library. */
static bool on_socket(long number, const long *a, long *ret)
{
	int fd = (int)a[0];
	void *p = (void *)a[1];
	size_t n = (size_t)a[2];

	switch (number) {
	case SYS_read:
		*ret = read(fd, p, n);
		return true;
	case SYS_write:
		*ret = write(fd, p, n);
		return true;
	case SYS_readv:
		*ret = readv(fd, p, (int)n);
		return true;
	case SYS_writev:
		*ret = writev(fd, p, (int)n);
		return true;
	case SYS_preadv2:
		*ret = preadv2(fd, p, (int)n, a[3], (int)a[5]);
		return true;
	case SYS_pwritev2:
		*ret = pwritev2(fd, p, (int)n, a[3], (int)a[5]);
		return true;
	case SYS_recvfrom:
		*ret = recvfrom(fd, p, n, (int)a[3], (struct sockaddr *)a[4],
				(socklen_t *)a[5]);
		return true;
	case SYS_sendto:
		*ret = sendto(fd, p, n, (int)a[3],
			      (const struct sockaddr *)a[4], (socklen_t)a[5]);
		return true;
	case SYS_recvmsg:
		*ret = recvmsg(fd, p, (int)a[2]);
		return true;
	case SYS_recvmmsg:
		*ret = recvmmsg(fd, p, (unsigned int)n, (int)a[3],
				(struct timespec *)a[4]);
		return true;
	case SYS_shutdown:
		*ret = shutdown(fd, (int)a[1]);
		return true;
	case SYS_setsockopt:
		*ret = setsockopt(fd, (int)a[1], (int)a[2], (const void *)a[3],
				  (socklen_t)a[4]);
		return true;
	case SYS_ioctl:
		*ret = ioctl(fd, (unsigned long)a[1], a[2]);
		return true;
	case SYS_connect:
		*ret = connect(fd, p, (socklen_t)a[2]);
		return true;
	default:
		return false;
	}
}

/* Calls that make, duplicate, close or pass on descriptors of any kind. */
static bool on_descriptors(long number, const long *a, long *ret)
{
	int fd = (int)a[0];
	void *p = (void *)a[1];

	switch (number) {
	case SYS_socket:
		*ret = socket(fd, (int)a[1], (int)a[2]);
		return true;
	case SYS_socketpair:
		*ret = socketpair(fd, (int)a[1], (int)a[2], (int *)a[3]);
		return true;
	case SYS_listen:
		*ret = listen(fd, (int)a[1]);
		return true;
	case SYS_accept:
		*ret = accept(fd, p, (socklen_t *)a[2]);
		return true;
	case SYS_accept4:
		*ret = accept4(fd, p, (socklen_t *)a[2], (int)a[3]);
		return true;
	case SYS_close:
		*ret = close(fd);
		return true;
	case SYS_close_range:
		*ret = close_range((unsigned int)a[0], (unsigned int)a[1],
				   (int)a[2]);
		return true;
	case SYS_dup:
		*ret = dup(fd);
		return true;
	case SYS_dup3:
		*ret = dup3(fd, (int)a[1], (int)a[2]);
		return true;
	case SYS_fcntl:
		*ret = fcntl(fd, (int)a[1], a[2]);
		return true;
	case SYS_getsockname:
		*ret = getsockname(fd, p, (socklen_t *)a[2]);
		return true;
	case SYS_getpeername:
		*ret = getpeername(fd, p, (socklen_t *)a[2]);
		return true;
	case SYS_getsockopt:
		*ret = getsockopt(fd, (int)a[1], (int)a[2], (void *)a[3],
				  (socklen_t *)a[4]);
		return true;
	case SYS_sendmsg: /* descriptors may go with it */
		*ret = sendmsg(fd, p, (int)a[2]);
		return true;
	case SYS_sendmmsg:
		*ret = sendmmsg(fd, p, (unsigned int)a[2], (int)a[3]);
		return true;
	case SYS_sendfile:
		*ret = sendfile(fd, (int)a[1], (off_t *)a[2], (size_t)a[3]);
		return true;
	case SYS_splice:
		*ret = splice(fd, p, (int)a[2], (off64_t *)a[3], (size_t)a[4],
			      (unsigned int)a[5]);
		return true;
	default:
		return false;
	}
}

/* Calls that wait for several descriptors. */
static bool on_waits(long number, const long *a, long *ret)
{
	int fd = (int)a[0];

	switch (number) {
	case SYS_ppoll:
		*ret = raw_ppoll(a);
		return true;
	case SYS_pselect6:
		*ret = raw_pselect(a);
		return true;
	case SYS_epoll_create1:
		*ret = epoll_create1(fd);
		return true;
	case SYS_epoll_ctl:
		*ret = epoll_ctl(fd, (int)a[1], (int)a[2],
				 (struct epoll_event *)a[3]);
		return true;
	case SYS_epoll_pwait:
		*ret = raw_epoll_pwait(a);
		return true;
	case SYS_epoll_pwait2:
		*ret = raw_epoll_pwait2(a);
		return true;
	default:
		return false;
	}
}

/* Calls that change the process. */
static bool on_process(long number, const long *a, long *ret)
{
	int fd = (int)a[0];
	void *p = (void *)a[1];

	switch (number) {
	case SYS_prctl:
		*ret = prctl((int)a[0], a[1], a[2], a[3], a[4]);
		return true;
	case SYS_seccomp:
		*ret = shim_seccomp((unsigned long)a[0], (unsigned long)a[1],
				    (void *)a[2]);
		return true;
	case SYS_unshare:
		*ret = unshare(fd);
		return true;
	case SYS_setns:
		*ret = setns(fd, (int)a[1]);
		return true;
	case SYS_setuid:
	case SYS_setreuid:
	case SYS_setresuid:
		*ret = shim_set_user(number, a);
		return true;
	case SYS_execve:
		*ret = execve((const char *)a[0], p, (char *const *)a[2]);
		return true;
	case SYS_execveat:
		*ret = execveat(fd, p, (char *const *)a[2], (char *const *)a[3],
				(int)a[4]);
		return true;
	default:
		return false;
	}
}

/* Calls that matter whatever their descriptors are. */
static bool on_any(long number, const long *a, long *ret)
{
	return on_descriptors(number, a, ret) || on_waits(number, a, ret) ||
	       on_process(number, a, ret);
}

/* Numbers that newer machines do not have. */
#ifdef SYS_poll
static bool of_old(long number, const long *a, long *ret)
{
	switch (number) {
	case SYS_poll:
		*ret = poll((struct pollfd *)a[0], (nfds_t)a[1], (int)a[2]);
		return true;
	case SYS_select:
		*ret = select((int)a[0], (fd_set *)a[1], (fd_set *)a[2],
			      (fd_set *)a[3], (struct timeval *)a[4]);
		return true;
	case SYS_epoll_wait:
		*ret = epoll_wait((int)a[0], (struct epoll_event *)a[1],
				  (int)a[2], (int)a[3]);
		return true;
	case SYS_epoll_create:
		*ret = epoll_create((int)a[0]);
		return true;
	case SYS_dup2:
		*ret = dup2((int)a[0], (int)a[1]);
		return true;
	case SYS_fork:
	case SYS_vfork:
		*ret = fork();
		return true;
	default:
		return false;
	}
}
#else
static bool of_old(long number, const long *a, long *ret)
{
	return false;
}
#endif

/* Passes on six words, however many the caller gave, as the C library does. The
 * last is on the stack, where a sanitizer may have marks of its own. */
HOOK __attribute__((no_sanitize_address)) long syscall(long number, ...)
{
	bool taken, cancels = atomic_load(&exi_cancels);
	long a[6], ret = 0;
	va_list ap;
	int was;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_exit_group)
		_exit((int)a[0]);
	if (any_fork(number, a)) {
		shim_fork_begins();
		return shim_forked(
			native.syscall(number, a[0], a[1], a[2], a[3], a[4]));
	}
	if (exi_unlikely(cancels))
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	taken = (exi_sock_find((int)a[0]) && on_socket(number, a, &ret)) ||
		on_any(number, a, &ret) || of_old(number, a, &ret);
	if (exi_unlikely(cancels))
		pthread_setcancelstate(was, NULL);
	if (taken)
		return ret;
	return native.syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
