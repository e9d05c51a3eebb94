/* SPDX-License-Identifier: BSD-2-Clause */
/* A fork of the process: what becomes of its connections. */
#ifndef EXI_CORE_LIFE_FORK_H
#define EXI_CORE_LIFE_FORK_H

#include <stdint.h>

/* Before a fork, and after it in the child. */
void exi_sock_prefork(void);
void exi_sock_forked(void);
/* There is no child of this thread's last fork. */
void exi_sock_fork_failed(void);

#endif
