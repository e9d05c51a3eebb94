/* SPDX-License-Identifier: BSD-2-Clause */
/* posix_spawn: a connection that the new program gets leaves the library first.
 * The C library carries out file actions itself, by calls that are not
 * intercepted, so the shim notes what each action does to a number when it is
 * added. The new program gets a connection by an action, or because no action
 * closed it.
 *
 * system, popen, wordexp: a shell merely inherits connections. They stay on
 * their fabric, but this process no longer has them alone. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/exs_ext.h>
#include <wordexp.h>

#include "core/base/cancel.h"
#include "core/base/lock.h"
#include "core/life/hand.h"
#include "core/meet/latent.h"
#include "core/sock/holders.h"
#include "core/sock/names.h"
#include "core/sock/table.h"
#include "preload/handed.h"
#include "preload/shim.h"
#include "preload/target.h"

struct action {
	enum {
		GIVEN,
		GONE,
		GONE_FROM
	} what;
	int fd;
};

struct notes {
	const posix_spawn_file_actions_t *of;
	struct notes *next;
	struct action *list;
	size_t n, room;
};

static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct notes *all_notes;

static struct notes **find_locked(const posix_spawn_file_actions_t *of)
{
	struct notes **at = &all_notes;

	EXI_MUTEX_LOCKED(&notes_lock);
	while (*at && (*at)->of != of)
		at = &(*at)->next;
	return at;
}

static void forget(const posix_spawn_file_actions_t *of)
{
	struct notes **at, *n;

	exi_mutex_lock(&notes_lock);
	at = find_locked(of);
	n = *at;
	if (n) {
		*at = n->next;
		free(n->list);
		free(n);
	}
	exi_mutex_unlock(&notes_lock);
}

static bool grow(struct notes *n)
{
	size_t room = n->room ? 2 * n->room : 8;
	struct action *list = reallocarray(n->list, room, sizeof(*list));

	if (!list)
		return false;
	n->list = list;
	n->room = room;
	return true;
}

/* Notes an action. If there is no memory for it, the safe case is assumed: the
 * connection counts as given to the program, now, or as not closed. */
static void note(const posix_spawn_file_actions_t *of, struct action a)
{
	struct notes **at, *n;
	bool noted = false;

	exi_mutex_lock(&notes_lock);
	at = find_locked(of);
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (*at)
			(*at)->of = of;
	}
	n = *at;
	if (n && (n->n < n->room || grow(n))) {
		n->list[n->n++] = a;
		noted = true;
	}
	exi_mutex_unlock(&notes_lock);
	if (!noted && a.what == GIVEN)
		shim_plain(a.fd, EXS_X_REASON_EXEC);
}

static bool given_locked(const posix_spawn_file_actions_t *of, int fd)
{
	struct notes *n = of ? *find_locked(of) : NULL;
	int fl;

	EXI_MUTEX_LOCKED(&notes_lock);
	for (size_t i = 0; n && i < n->n; i++) {
		const struct action *a = &n->list[i];

		if (a->what == GIVEN && a->fd == fd)
			return true;
		if ((a->what == GONE && a->fd == fd) ||
		    (a->what == GONE_FROM && a->fd <= fd))
			return false;
	}
	fl = native.fcntl64(fd, F_GETFD);
	return fl >= 0 && !(fl & FD_CLOEXEC);
}

/* The number by which the new program gets the connection. */
static int given_name(struct exi_sock *sk, void *arg)
{
	const posix_spawn_file_actions_t *const *of = arg;
	int fd = exi_name_next(sk, 0);
	bool given;

	for (; fd >= 0 && shim_sock(fd); fd = exi_name_next(sk, fd + 1)) {
		exi_mutex_lock(&notes_lock);
		given = given_locked(*of, fd);
		exi_mutex_unlock(&notes_lock);
		if (given)
			return fd;
	}
	return -1;
}

/* What a spawn is about to do. */
struct spawn {
	const posix_spawn_file_actions_t *of;
	struct shim_spawn handed;
	struct shim_target target;
};

static bool has_actions(const posix_spawn_file_actions_t *of, int fd)
{
	struct notes *n;
	bool ret = false;

	exi_mutex_lock(&notes_lock);
	n = of ? *find_locked(of) : NULL;
	for (size_t i = 0; n && i < n->n; i++)
		ret = ret || n->list[i].fd == fd;
	exi_mutex_unlock(&notes_lock);
	return ret;
}

/* A connection that the program inherits by the same number. */
static void hand_one(struct exi_sock *sk, void *arg)
{
	struct spawn *s = arg;
	int fd = given_name(sk, &s->of);

	if (fd >= 0 && !has_actions(s->of, fd))
		shim_spawn_add(&s->handed, sk, fd);
}

/* hands: the pid of the program will be known. */
static void before_spawn(struct spawn *s, const posix_spawn_file_actions_t *of,
			 bool hands)
{
	EXI_CANCEL_OFF(false);

	s->of = of;
	s->target.handed = NULL;
	if (shim_ready())
		exi_latent_promote_all();
	exi_holders_spawns();
	shim_spawn_begin(&s->handed);
	if (!shim_ready())
		return;
	if (hands)
		exi_sock_each(hand_one, s);
	if (s->handed.n)
		s->target.handed = s->handed.list;
	shim_plain_each(EXS_X_REASON_EXEC, given_name, &s->of);
}

static int spawn_over(struct spawn *s, int pid, int ret)
{
	exi_hand_spawned();
	shim_spawn_over(&s->handed, ret ? 0 : pid);
	return shim_target_over(&s->target, ret);
}

HOOK int posix_spawn(pid_t *pid, const char *path,
		     const posix_spawn_file_actions_t *actions,
		     const posix_spawnattr_t *attr, char *const *argv,
		     char *const *env)
{
	struct spawn s;
	pid_t child = 0;
	int ret;

	before_spawn(&s, actions, true);
	env = shim_target_env(AT_FDCWD, path, env, &s.target);
	ret = native.posix_spawn(&child, path, actions, attr, argv, env);
	if (!ret && pid)
		*pid = child;
	return spawn_over(&s, child, ret);
}

HOOK int posix_spawnp(pid_t *pid, const char *file,
		      const posix_spawn_file_actions_t *actions,
		      const posix_spawnattr_t *attr, char *const *argv,
		      char *const *env)
{
	struct spawn s;
	pid_t child = 0;
	int ret;

	before_spawn(&s, actions, true);
	env = shim_target_env_of_name(file, env, &s.target);
	ret = native.posix_spawnp(&child, file, actions, attr, argv, env);
	if (!ret && pid)
		*pid = child;
	return spawn_over(&s, child, ret);
}

/* glibc 2.39 and later have these. With an older one, a program that finds them
 * here gets ENOSYS. */
typedef int spawn_call(int *pidfd, const char *path,
		       const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attr, char *const *argv,
		       char *const *env);
spawn_call pidfd_spawn, pidfd_spawnp;

static spawn_call *newer(const char *name)
{
	return (spawn_call *)dlsym(RTLD_NEXT, name);
}

HOOK int pidfd_spawn(int *pidfd, const char *path,
		     const posix_spawn_file_actions_t *actions,
		     const posix_spawnattr_t *attr, char *const *argv,
		     char *const *env)
{
	spawn_call *call = newer("pidfd_spawn");
	struct spawn s;

	if (!call)
		return ENOSYS;
	before_spawn(&s, actions, false);
	env = shim_target_env(AT_FDCWD, path, env, &s.target);
	return spawn_over(&s, 0, call(pidfd, path, actions, attr, argv, env));
}

HOOK int pidfd_spawnp(int *pidfd, const char *file,
		      const posix_spawn_file_actions_t *actions,
		      const posix_spawnattr_t *attr, char *const *argv,
		      char *const *env)
{
	spawn_call *call = newer("pidfd_spawnp");
	struct spawn s;

	if (!call)
		return ENOSYS;
	before_spawn(&s, actions, false);
	env = shim_target_env_of_name(file, env, &s.target);
	return spawn_over(&s, 0, call(pidfd, file, actions, attr, argv, env));
}

/* The C library starts a shell by a call that is not intercepted. For good,
 * because the shim cannot see when the last of the shell's programs ends. */
static void stray_one(struct exi_sock *sk, void *arg)
{
	const posix_spawn_file_actions_t *none = NULL;

	if (given_name(sk, &none) >= 0)
		exi_holders_stray(&exi_sock_shared(sk)->holders);
}

static void shell_over(void *arg)
{
	exi_hand_spawned();
}

/* A thread may be cancelled in these calls, or jump out of them. */
static void before_shell(struct exi_section *r)
{
	EXI_CANCEL_OFF(false);

	if (shim_ready())
		exi_latent_share_all();
	exi_holders_spawns();
	exi_section_begin(r, shell_over, NULL);
	if (shim_ready())
		exi_sock_each(stray_one, NULL);
}

HOOK int system(const char *command)
{
	struct exi_section r;
	int ret;

	before_shell(&r);
	ret = native.system(command);
	exi_section_end(&r, true);
	return ret;
}

HOOK FILE *popen(const char *command, const char *mode)
{
	struct exi_section r;
	FILE *ret;

	before_shell(&r);
	ret = native.popen(command, mode);
	exi_section_end(&r, true);
	return ret;
}
ALIAS(_IO_popen, popen);

HOOK int wordexp(const char *words, wordexp_t *expansion, int flags)
{
	struct exi_section r;
	int ret;

	before_shell(&r);
	ret = native.wordexp(words, expansion, flags);
	exi_section_end(&r, true);
	return ret;
}

HOOK int posix_spawn_file_actions_init(posix_spawn_file_actions_t *actions)
{
	forget(actions); /* notes of actions that were never destroyed */
	return native.posix_spawn_file_actions_init(actions);
}

HOOK int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *actions)
{
	forget(actions);
	return native.posix_spawn_file_actions_destroy(actions);
}

HOOK int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions,
					  int from, int to)
{
	int ret = native.posix_spawn_file_actions_adddup2(actions, from, to);

	if (ret)
		return ret;
	note(actions, (struct action){ GIVEN, from });
	note(actions, (struct action){ GONE, to });
	return 0;
}

HOOK int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t *actions,
					   int fd)
{
	int ret = native.posix_spawn_file_actions_addclose(actions, fd);

	if (!ret)
		note(actions, (struct action){ GONE, fd });
	return ret;
}

HOOK int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *a,
						  int from)
{
	int ret = native.posix_spawn_file_actions_addclosefrom_np(a, from);

	if (!ret)
		note(a, (struct action){ GONE_FROM, from });
	return ret;
}

HOOK int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *actions,
					  int fd, const char *path, int flags,
					  mode_t mode)
{
	int ret = native.posix_spawn_file_actions_addopen(actions, fd, path,
							  flags, mode);

	if (!ret)
		note(actions, (struct action){ GONE, fd });
	return ret;
}

void shim_spawn_forked(void)
{
	pthread_mutex_init(&notes_lock, NULL);
}
