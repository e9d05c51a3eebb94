/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of fork, clone, exec and exit. A connection that another program gets
 * leaves the library first. */
#include <alloca.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/exs_ext.h>
#include <unistd.h>

#include "core/base/cancel.h"
#include "core/life/core.h"
#include "core/life/exit.h"
#include "core/link/control.h"
#include "core/meet/latent.h"
#include "core/sock/names.h"
#include "core/sock/table.h"
#include "preload/handed.h"
#include "preload/shim.h"
#include "preload/target.h"

/* The number by which the next program has the connection. */
static int kept_name(struct exi_sock *sk, void *arg)
{
	int fd = exi_name_next(sk, 0), fl;

	for (; fd >= 0 && shim_sock(fd); fd = exi_name_next(sk, fd + 1)) {
		fl = native.fcntl64(fd, F_GETFD);
		if (fl >= 0 && !(fl & FD_CLOEXEC))
			return fd;
	}
	return -1;
}

static void list_one(struct exi_sock *sk, void *arg)
{
	int fd = kept_name(sk, NULL);

	if (fd >= 0)
		shim_handed_add(sk, fd);
	else
		exi_holders_exec(&exi_sock_shared(sk)->holders, true);
}

static void stay_one(struct exi_sock *sk, void *arg)
{
	exi_holders_exec(&exi_sock_shared(sk)->holders, false);
}

/* Cleans up after an exec that failed; returns its result. */
static int exec_over(struct shim_target *t, int ret)
{
	if (shim_ready())
		exi_sock_each(stay_one, NULL);
	return shim_target_over(t, ret);
}

static void before_exec(struct shim_target *t)
{
	t->handed = NULL;
	if (!shim_ready())
		return;
	/* Latent connections that no fork has promoted. */
	exi_latent_share_all();
	shim_handed_begin();
	exi_sock_each(list_one, NULL);
	t->handed = shim_handed_entry();
	shim_plain_each(EXS_X_REASON_EXEC, kept_name, NULL);
	exi_link_before_exec();
	shim_report();
}

HOOK int execve(const char *path, char *const *argv, char *const *env)
{
	struct shim_target t;

	before_exec(&t);
	env = shim_target_env(AT_FDCWD, path, env, &t);
	return exec_over(&t, native.execve(path, argv, env));
}

HOOK int execvpe(const char *file, char *const *argv, char *const *env)
{
	struct shim_target t;

	before_exec(&t);
	env = shim_target_env_of_name(file, env, &t);
	return exec_over(&t, native.execvpe(file, argv, env));
}

HOOK int execv(const char *path, char *const *argv)
{
	return execve(path, argv, environ);
}

HOOK int execvp(const char *file, char *const *argv)
{
	return execvpe(file, argv, environ);
}

HOOK int fexecve(int fd, char *const *argv, char *const *env)
{
	struct shim_target t;

	before_exec(&t);
	env = shim_target_env(fd, NULL, env, &t);
	return exec_over(&t, native.fexecve(fd, argv, env));
}

HOOK int execveat(int dir, const char *path, char *const *argv,
		  char *const *env, int flags)
{
	struct shim_target t;

	before_exec(&t);
	env = shim_target_env(dir, path, env, &t);
	return exec_over(&t, native.execveat(dir, path, argv, env, flags));
}

/* The number of arguments of a list up to its null, and the arguments after
 * it. */
#define COUNT(n, ap, first)                                                    \
	for (n = 1, va_start(ap, first); va_arg(ap, char *); n++)              \
		;                                                              \
	va_end(ap)

#define COLLECT(argv, ap, first, n)                                            \
	do {                                                                   \
		argv[0] = (char *)(uintptr_t)first;                            \
		va_start(ap, first);                                           \
		for (size_t i = 1; i <= n; i++)                                \
			argv[i] = va_arg(ap, char *);                          \
	} while (0)

HOOK int execl(const char *path, const char *arg, ...)
{
	char **argv;
	va_list ap;
	size_t n;

	COUNT(n, ap, arg);
	argv = alloca((n + 1) * sizeof(*argv));
	COLLECT(argv, ap, arg, n);
	va_end(ap);
	return execve(path, argv, environ);
}

HOOK int execlp(const char *file, const char *arg, ...)
{
	char **argv;
	va_list ap;
	size_t n;

	COUNT(n, ap, arg);
	argv = alloca((n + 1) * sizeof(*argv));
	COLLECT(argv, ap, arg, n);
	va_end(ap);
	return execvpe(file, argv, environ);
}

HOOK int execle(const char *path, const char *arg, ...)
{
	char **argv, *const *env;
	va_list ap;
	size_t n;

	COUNT(n, ap, arg);
	argv = alloca((n + 1) * sizeof(*argv));
	COLLECT(argv, ap, arg, n);
	env = va_arg(ap, char *const *);
	va_end(ap);
	return execve(path, argv, env);
}

/* The end of a fork: the handlers run after a failure as after a success. */
static pid_t fork_over(pid_t pid)
{
	int saved = errno;

	exi_core_fork_over(pid);
	errno = saved;
	return pid;
}

HOOK pid_t fork(void)
{
	return fork_over(native.fork());
}
ALIAS(__fork, fork);

/* The failure may be that of the fork. */
HOOK int forkpty(int *terminal, char *name, const struct termios *t,
		 const struct winsize *size)
{
	return fork_over(native.forkpty(terminal, name, t, size));
}

HOOK int daemon(int here, int loud)
{
	return fork_over(native.daemon(here, loud));
}

/* The child of a vfork would run the shim in its parent's memory: it becomes a
 * fork. */
HOOK pid_t vfork(void)
{
	return fork();
}
ALIAS(__vfork, vfork);

/* The C library runs no fork handlers for these calls. */
HOOK pid_t _Fork(void)
{
	shim_fork_begins();
	return (pid_t)shim_forked(native._Fork());
}

struct child {
	int (*f)(void *);
	void *arg;
};

static int begin_child(void *arg)
{
	struct child *c = arg;

	shim_forked(0);
	return c->f(c->arg);
}

/* Whether the child is like one of vfork(). Until it starts another program,
 * such a child has its parent's memory but a descriptor table of its own: notes
 * of the shim about one of the two would be wrong for the other. */
static bool is_vfork(int flags)
{
	const int vm = CLONE_VM | CLONE_VFORK,
		  more = CLONE_FILES | CLONE_SIGHAND;

	return (flags & (vm | more)) == vm;
}

/* A child of clone() with its own memory is treated like one of fork. */
HOOK int clone(int (*f)(void *), void *stack, int flags, void *arg, ...)
{
	struct child c = { f, arg };
	void *parent_tid, *tls, *child_tid;
	va_list ap;

	va_start(ap, arg);
	parent_tid = va_arg(ap, void *);
	tls = va_arg(ap, void *);
	child_tid = va_arg(ap, void *);
	va_end(ap);
	if (is_vfork(flags))
		flags &= ~(CLONE_VM | CLONE_VFORK);
	if ((flags & CLONE_VM) || !f || !stack)
		return native.clone(f, stack, flags, arg, parent_tid, tls,
				    child_tid);
	shim_fork_begins();
	return (int)shim_forked(native.clone(begin_child, stack, flags, &c,
					     parent_tid, tls, child_tid));
}
ALIAS(__clone, clone);

/* The end runs no destructors. */
HOOK void _exit(int status)
{
	shim_report();
	exi_sock_exit();
	native._exit(status);
	__builtin_unreachable();
}

HOOK void _Exit(int status)
{
	_exit(status);
}

HOOK int pthread_cancel(pthread_t thread)
{
	atomic_store(&exi_cancels, true);
	return native.pthread_cancel(thread);
}
