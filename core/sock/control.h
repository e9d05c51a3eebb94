/* SPDX-License-Identifier: BSD-2-Clause */
/* The control channel: a pipe of the process, through which exs downgrade, exs
 * log and others send requests (docs/design/stats.md). The kernel lets only the
 * process's user and root open it. */
#ifndef EXI_CORE_SOCK_CONTROL_H
#define EXI_CORE_SOCK_CONTROL_H

#include <stdint.h>

#include "core/sock/stats_page.h"

/* Sets how the service comes to watch the pipe. Called once, where the core
 * starts. */
void exi_control_serve(void (*watch)(int fd));

/* Makes the pipe. Returns its inode, or 0. */
uint64_t exi_control_make(void);
/* Has the service watch it, if there is one. No innermost lock is held. */
void exi_control_watch(void);

/* Takes the next request. 1; 0: no more. An incomplete request is discarded,
 * with all that came with it. */
int exi_control_next(struct exi_control_ask *ret);

/* The child after fork: the pipe is the parent's. */
void exi_control_forked(void);

#endif
