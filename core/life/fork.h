/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens to connections when the process forks. */
#ifndef EXI_CORE_LIFE_FORK_H
#define EXI_CORE_LIFE_FORK_H

#include <stdint.h>

/* Called before a fork, and after it in the child. */
void exi_sock_prefork(void);
void exi_sock_forked(void);
/* Called if this thread's last fork made no child. */
void exi_sock_fork_failed(void);

#endif
