/* SPDX-License-Identifier: BSD-2-Clause */
/* The environment of the program that exec or posix_spawn starts. */
#ifndef EXI_PRELOAD_TARGET_H
#define EXI_PRELOAD_TARGET_H

#include <stddef.h>

struct shim_target {
	/* The list of connections that the program gets; null: none. */
	const char *handed;
	void *memory; /* of a changed environment; null: unchanged */
	size_t size;
};

/* The caller has set t->handed. Return the environment that the program gets:
 * without the shim in LD_PRELOAD
 * if its loader would fail to load the shim. The report names a program that
 * runs without the shim for that reason, or because the caller has put other
 * libraries in its place. dir and path are those of execveat(2); a null path
 * means the file that dir refers to. The second function finds the program as
 * execvp(3) does. */
char *const *shim_target_env(int dir, const char *path, char *const *env,
			     struct shim_target *t);
char *const *shim_target_env_of_name(const char *name, char *const *env,
				     struct shim_target *t);
/* Called after the call; frees what was allocated. Returns ret, and keeps
 * errno. */
int shim_target_over(struct shim_target *t, int ret);

#endif
