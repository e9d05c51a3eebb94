/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a process: what becomes of its connections. */
#ifndef EXI_CORE_LIFE_EXIT_H
#define EXI_CORE_LIFE_EXIT_H

#include <stdint.h>

#include "core/base/util.h"

/* The process ends: what it sent to other hosts, and its end, is delivered as
 * the kernel's TCP would; connections that forked processes have, too, go back
 * to TCP. */
EXI_SHIM void exi_sock_exit(void);

#endif
