/* SPDX-License-Identifier: BSD-2-Clause */
/* The environment of a program that exec or posix_spawn starts. If the shim
 * cannot be loaded into the program, its loader (musl's, or an older glibc's)
 * may end it, so LD_PRELOAD then does not name the shim. */
#include "preload/target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/target.h"
#include "preload/handed.h"
#include "preload/shim.h"

#define VARIABLE "LD_PRELOAD="
#define SHIM	 "libexs-preload.so"
#define BETWEEN	 " :"

/* Iterates over the names of a list: returns the length of the next name, at
 * *at. */
static size_t next_name(const char **at)
{
	*at += strspn(*at, BETWEEN);
	return strcspn(*at, BETWEEN);
}

static bool is_shim(const char *name, size_t len)
{
	const char *last = memrchr(name, '/', len);

	if (last) {
		len -= (size_t)(last + 1 - name);
		name = last + 1;
	}
	return len == strlen(SHIM) && !memcmp(name, SHIM, len);
}

static bool is_variable(const char *entry)
{
	return !strncmp(entry, VARIABLE, strlen(VARIABLE));
}

/* The name of the shim in an entry of the environment, or null. */
static const char *shim_in(const char *entry, size_t *ret)
{
	const char *at = entry + strlen(VARIABLE);
	size_t len;

	if (!is_variable(entry))
		return NULL;
	for (; (len = next_name(&at)) > 0; at += len)
		if (is_shim(at, len)) {
			*ret = len;
			return at;
		}
	return NULL;
}

static const char *find_shim(char *const *env, size_t *ret)
{
	const char *found = NULL;

	for (; env && *env && !found; env++)
		found = shim_in(*env, ret);
	return found;
}

/* Whether the program has put other libraries in the place of the shim, as
 * trickle does. */
static bool is_displaced(char *const *env)
{
	for (; env && *env; env++) {
		const char *at = *env + strlen(VARIABLE);

		if (is_variable(*env) && next_name(&at) > 0)
			return true;
	}
	return false;
}

/* Whether the library is at its path for the program's loader: in a changed
 * root it may be missing. */
static bool is_there(const char *name, size_t len)
{
	char path[PATH_MAX];

	if (*name != '/' || len >= sizeof(path))
		return true;
	memcpy(path, name, len);
	path[len] = '\0';
	return access(path, F_OK) == 0;
}

/* Writes the entry without the shim. Returns the end of it; it is empty if no
 * name is left. */
static char *without(const char *entry, char *ret)
{
	const char *at = entry + strlen(VARIABLE);
	char *to = stpcpy(ret, VARIABLE), *begin = to;
	size_t len;

	for (; (len = next_name(&at)) > 0; at += len) {
		if (is_shim(at, len))
			continue;
		if (to > begin)
			*to++ = ':';
		to = mempcpy(to, at, len);
	}
	if (to == begin)
		to = ret;
	*to = '\0';
	return to;
}

/* The environment for a program with the shim: it includes the list of
 * connections that the program gets. */
static char *const *listed(char *const *env, struct shim_target *t)
{
	const char *entry = t->handed;
	char **to;
	size_t n;

	if (!entry)
		return env;
	for (n = 0; env[n]; n++)
		;
	t->size = (n + 2) * sizeof(*env);
	to = mmap(NULL, t->size, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (to == MAP_FAILED)
		return env;
	t->memory = to;
	for (; *env; env++)
		if (!shim_handed_is(*env))
			*to++ = *env;
	*to++ = (char *)(uintptr_t)entry;
	*to = NULL;
	return t->memory;
}

static void copy(char *const *env, size_t n, char **ret)
{
	char *text = (char *)(ret + n + 1);

	for (; *env; env++) {
		if (!is_variable(*env)) {
			*ret++ = *env;
			continue;
		}
		*ret = text;
		text = without(*env, text) + 1;
		ret += **ret != '\0';
	}
	*ret = NULL;
}

static char *const *stripped(char *const *env, struct shim_target *t)
{
	size_t n = 0, room = 0;
	void *p;

	for (; env[n]; n++)
		if (is_variable(env[n]))
			room += strlen(env[n]) + 1;
	t->size = (n + 1) * sizeof(*env) + room;
	p = mmap(NULL, t->size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return env;
	t->memory = p;
	copy(env, n, p);
	return p;
}

char *const *shim_target_env(int dir, const char *path, char *const *env,
			     struct shim_target *t)
{
	int saved = errno, fd;
	const char *shim, *why;
	bool asked;
	size_t len = 0;

	t->memory = NULL;
	/* Under a filter, only the program's own system calls may be made. */
	if (atomic_load(&shim_leaving))
		return env;
	shim = find_shim(env, &len);
	if (!shim && is_displaced(env))
		shim_report_target(path, "LD_PRELOAD names others instead");
	if (!shim)
		return env;
	fd = exi_target_open(dir, path);
	if (fd >= 0) {
		why = exi_target_refusal(fd, &asked);
		if (!why && !is_there(shim, len))
			why = "the library is not in its root directory";
		exi_target_close(fd);
		if (why) {
			/* A static program may start others: valgrind's own, or
			 * a shell of a small system. */
			if (asked)
				env = stripped(env, t);
			shim_report_target(path, why);
		} else {
			env = listed(env, t);
		}
	}
	errno = saved;
	return env;
}

char *const *shim_target_env_of_name(const char *name, char *const *env,
				     struct shim_target *t)
{
	char path[PATH_MAX];
	int saved = errno;

	t->memory = NULL;
	if (exi_target_find(name, path, sizeof(path)) == 0)
		env = shim_target_env(AT_FDCWD, path, env, t);
	errno = saved;
	return env;
}

int shim_target_over(struct shim_target *t, int ret)
{
	int saved = errno;

	if (t->memory)
		munmap(t->memory, t->size);
	errno = saved;
	return ret;
}
