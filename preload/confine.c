/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls by which a process gives up rights or moves to other namespaces.
 *
 * A program that installs a filter of system calls knows which calls it will
 * make. The filter may kill the process for the library's own calls (futex,
 * epoll, sendmsg, reading /proc). So the library leaves the process first, and
 * each later call is the one that the program would make without it.
 *
 * The kernel allows some namespaces, and a separate table of descriptors, only
 * to a process with one thread: the library ends its own thread before, and
 * starts it again afterwards. If no thread can be started afterwards, or if
 * other threads go on with another table of descriptors, the library leaves. */
#include <linux/nsfs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/cancel.h"
#include "core/sock/closing.h"
#include "core/sock/service.h"
#include "preload/shim.h"

/* --- filters ------------------------------------------------------------ */

/* Whether the library leaves before the call. It stays if the call only asks
 * what the kernel can do. */
static bool leave_for_filter(unsigned long operation, const void *args)
{
	if (operation != SECCOMP_SET_MODE_STRICT &&
	    (operation != SECCOMP_SET_MODE_FILTER || !args))
		return false;
	if (!shim_ready())
		return false;
	shim_leave(EXS_X_REASON_SECCOMP);
	return true;
}

long shim_seccomp(unsigned long operation, unsigned long flags, void *args)
{
	bool left = leave_for_filter(operation, args);
	long ret = native.syscall(SYS_seccomp, operation, flags, args);

	if (ret < 0 && left)
		shim_return();
	return ret;
}

HOOK int prctl(int option, ...)
{
	unsigned long a[4];
	bool left = false;
	va_list ap;
	int ret;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (option == PR_SET_SECCOMP)
		left = leave_for_filter(
			a[0] == SECCOMP_MODE_STRICT   ? SECCOMP_SET_MODE_STRICT
			: a[0] == SECCOMP_MODE_FILTER ? SECCOMP_SET_MODE_FILTER
						      : ~0ul,
			(void *)a[1]);
	ret = native.prctl(option, a[0], a[1], a[2], a[3]);
	if (ret && left)
		shim_return();
	return ret;
}

/* --- namespaces --------------------------------------------------------- */

/* For these flags the kernel requires a single thread, or the caller gets
 * something that its other threads do not share. */
#define ALONE                                                                  \
	(CLONE_NEWUSER | CLONE_NEWTIME | CLONE_NEWNS | CLONE_FILES |           \
	 CLONE_VM | CLONE_SIGHAND | CLONE_THREAD)

static bool has_other_threads(void)
{
	struct stat st;

	/* The link count is two more than the number of threads. */
	return stat("/proc/self/task", &st) < 0 || st.st_nlink != 3;
}

struct apart {
	bool stopped, left;
};

static struct apart step_aside(int types)
{
	struct apart a = { 0 };

	if (!(types & ALONE) || !shim_ready())
		return a;
	if (types & CLONE_NEWPID) {
		a.left = true;
	} else {
		exi_closing_settle();
		a.stopped = exi_service_stop();
		a.left = (types & CLONE_FILES) && has_other_threads();
		if (a.left && a.stopped) /* leaving needs it */
			exi_service_start();
	}
	if (a.left)
		shim_leave(EXS_X_REASON_NAMESPACE);
	return a;
}

static void come_back(struct apart a, int ret)
{
	int saved = errno;

	if (a.left && ret)
		shim_return();
	if (a.stopped && (!a.left || ret))
		exi_service_start();
	errno = saved;
}

HOOK int unshare(int flags)
{
	EXI_CANCEL_OFF(false);
	struct apart a = step_aside(flags);
	int ret = native.unshare(flags);

	come_back(a, ret);
	return ret;
}

HOOK int setns(int fd, int type)
{
	EXI_CANCEL_OFF(false);
	int of_fd = type ? type : native.ioctl(fd, NS_GET_NSTYPE), ret;
	struct apart a = step_aside(of_fd < 0 ? 0 : of_fd);

	ret = native.setns(fd, type);
	come_back(a, ret);
	return ret;
}
