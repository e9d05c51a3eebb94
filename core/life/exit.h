/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens to connections when the process ends. */
#ifndef EXI_CORE_LIFE_EXIT_H
#define EXI_CORE_LIFE_EXIT_H

#include <stdint.h>

#include "core/base/util.h"

/* Called when the process ends. Bytes for other hosts, and the end of the
 * stream, are delivered as the kernel's TCP would deliver them; connections
 * that forked processes share go back to TCP. */
EXI_SHIM void exi_sock_exit(void);

#endif
