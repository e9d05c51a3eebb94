/* SPDX-License-Identifier: BSD-2-Clause */
/* How a command asks a running process (docs/design/stats.md). */
#ifndef EXS_TOOLS_CONTROL_H
#define EXS_TOOLS_CONTROL_H

#include <stdint.h>
#include <sys/types.h>

#include "core/sock/stats_page.h"
#include "tools/stat.h"

/* Asks the process for what->what; the rest of the request is the caller's. An
 * exit code: a failure is told on stderr. *ret is the answer. */
int control_ask(pid_t pid, struct exi_control_ask *what, int64_t *ret);

/* Opens the pipe of the process that has this inode to write, without a wait.
 * -1: it has none that its own library made. */
int control_open_pipe(int fds, const struct stat_page *p, uint64_t inode);

#endif
