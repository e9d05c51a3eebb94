/* SPDX-License-Identifier: BSD-2-Clause */
/* How a command sends a request to a running process (docs/design/stats.md). */
#ifndef EXS_TOOLS_CONTROL_H
#define EXS_TOOLS_CONTROL_H

#include <stdint.h>
#include <sys/types.h>

#include "core/sock/stats_page.h"
#include "tools/stat.h"

/* Sends the request what->what to the process; the caller fills in the other
 * members. Returns an exit code; an error is printed on stderr. *ret is the
 * answer. */
int control_ask(pid_t pid, struct exi_control_ask *what, int64_t *ret);

/* Opens the process's pipe with this inode for writing, without waiting. -1:
 * there is none that its own library made. */
int control_open_pipe(int fds, const struct stat_page *p, uint64_t inode);

#endif
