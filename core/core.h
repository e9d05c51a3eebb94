/* SPDX-License-Identifier: BSD-2-Clause */
/* Starting the core of a process. */
#ifndef EXI_CORE_CORE_H
#define EXI_CORE_CORE_H

#include <stdbool.h>

/* Idempotent, thread-safe. -ENOMEM. */
int exi_core_init(void);
bool exi_core_ready(void);

#endif
