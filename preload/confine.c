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
 * other threads go on with another table of descriptors, the library leaves.
 *
 * A process that gives up its user is a stranger to the processes with which it
 * shares connections since a fork. The state of such a connection is in memory
 * that all of them write, and trust. So the process goes on without the library
 * with these connections, and shares no such memory from then on. */
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
#include "core/sock/memory.h"
#include "core/sock/names.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
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
	return native.stat("/proc/self/task", &st) < 0 || st.st_nlink != 3;
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

/* --- users --------------------------------------------------------------- */

#define CLOSES_NS     10000000u
#define CLOSES_NAP_NS 200000

/* The real, the effective and the saved user; with forks, of a process that may
 * share connections. Others are not asked: a filter of the program may allow
 * its own calls only. */
struct users {
	bool forks;
	uid_t id[3];
};

static struct users users_now(void)
{
	struct users u = { .forks = atomic_load(&exi_sock_forks) &&
				    shim_ready() };

	if (u.forks)
		getresuid(&u.id[0], &u.id[1], &u.id[2]);
	return u;
}

static bool has_user(const struct users *u, uid_t id)
{
	return u->id[0] == id || u->id[1] == id || u->id[2] == id;
}

/* Whether a user is given up for good. Root that has come back, and has given
 * up a user meanwhile, can become that user again. */
static bool gave_up(const struct users *was, const struct users *now)
{
	if (has_user(was, 0))
		return !has_user(now, 0);
	return !has_user(now, was->id[0]) || !has_user(now, was->id[1]) ||
	       !has_user(now, was->id[2]);
}

/* A child has the state of a listener for itself. */
static int shared_name(struct exi_sock *sk, void *arg)
{
	return sk->role == EXI_ROLE_LISTEN ||
			       exi_holders_alone(&exi_sock_shared(sk)->holders)
		       ? -1
		       : exi_name_next(sk, 0);
}

static void look_shared(struct exi_sock *sk, void *arg)
{
	if (shared_name(sk, NULL) >= 0)
		*(bool *)arg = true;
}

/* A server that forks for each connection closes its own copy about now. */
static void await_closes(void)
{
	const struct timespec nap = { .tv_nsec = CLOSES_NAP_NS };
	uint64_t until = exi_now_ns() + CLOSES_NS;
	bool shared;

	do {
		shared = false;
		exi_sock_each(look_shared, &shared);
	} while (shared && exi_now_ns() < until && !nanosleep(&nap, NULL));
}

/* After a call that may have changed the user: the process still runs the
 * program that its former user trusted. */
static int user_over(const struct users *was, int ret)
{
	EXI_CANCEL_OFF(false);
	struct users now;
	int saved = errno;

	if (ret || !was->forks)
		return ret;
	now = users_now();
	if (gave_up(was, &now)) {
		await_closes();
		shim_plain_each(EXS_X_REASON_SHARED, shared_name, NULL);
		exi_memory_apart();
	}
	errno = saved;
	return ret;
}

HOOK int setuid(uid_t user)
{
	struct users was = users_now();

	return user_over(&was, native.setuid(user));
}

HOOK int seteuid(uid_t user)
{
	struct users was = users_now();

	return user_over(&was, native.seteuid(user));
}

HOOK int setreuid(uid_t real, uid_t effective)
{
	struct users was = users_now();

	return user_over(&was, native.setreuid(real, effective));
}

HOOK int setresuid(uid_t real, uid_t effective, uid_t saved)
{
	struct users was = users_now();

	return user_over(&was, native.setresuid(real, effective, saved));
}

/* Of this thread alone, as by number. */
long shim_set_user(long number, const long *a)
{
	struct users was = users_now();
	long ret = native.syscall(number, a[0], a[1], a[2]);

	return user_over(&was, (int)ret);
}
