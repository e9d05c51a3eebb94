/* SPDX-License-Identifier: BSD-2-Clause */
/* The program that exec starts, as its file has it. Calls that the child of a
 * fork may make: they take no lock and no memory. */
#ifndef EXI_CORE_BASE_TARGET_H
#define EXI_CORE_BASE_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/util.h"

/* The file that execvp() starts for the name. -EACCES: no file of the name can
 * be executed. -ENOENT, -ENAMETOOLONG. */
EXI_SHIM int exi_target_find(const char *name, char *ret, size_t len);

/* Opens the file of a program; dir and path are those of execveat(2), and a
 * null path means the file that dir is. -errno. */
EXI_SHIM int exi_target_open(int dir, const char *path);
EXI_SHIM void exi_target_close(int fd);

/* Why the shim cannot be loaded into the program, or, of a script, into what
 * runs it. Null: it can be, or the file does not say. The loader of a program
 * for another C library may end the program rather than leave the shim out.
 * *asked: there is such a loader. A program without one ignores LD_PRELOAD. */
EXI_SHIM const char *exi_target_refusal(int fd, bool *asked);

/* Whether it is a program in Go, which makes its system calls itself. */
EXI_SHIM bool exi_target_is_go(int fd);

#endif
