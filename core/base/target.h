/* SPDX-License-Identifier: BSD-2-Clause */
/* Examines the file of a program that exec is to start. The child of a fork may
 * make these calls: they take no lock and no memory. */
#ifndef EXI_CORE_BASE_TARGET_H
#define EXI_CORE_BASE_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/util.h"

/* Finds the file that execvp() would start for the name. -EACCES: no file of
 * that name can be executed. -ENOENT, -ENAMETOOLONG. */
EXI_SHIM int exi_target_find(const char *name, char *ret, size_t len);

/* Opens the file of a program; dir and path are those of execveat(2), and a
 * null path means the file dir itself. -errno. */
EXI_SHIM int exi_target_open(int dir, const char *path);
EXI_SHIM void exi_target_close(int fd);

/* Returns why the shim cannot be loaded into the program or, for a script, into
 * its interpreter. Null: it can be, or the file does not show it. The loader of
 * a program for another C library may end the program instead of leaving the
 * shim out. *asked: the program has a loader. A program without one ignores
 * LD_PRELOAD. */
EXI_SHIM const char *exi_target_refusal(int fd, bool *asked);

/* Whether it is a program in Go, which makes its system calls itself. */
EXI_SHIM bool exi_target_is_go(int fd);

#endif
