/* SPDX-License-Identifier: BSD-2-Clause */
/* What is asked for from outside the program. */
#ifndef EXI_CORE_LIFE_CONTROL_H
#define EXI_CORE_LIFE_CONTROL_H

#include <stddef.h>

#include "core/base/util.h"

/* What writes the report of this process: a text of less than `room' bytes,
 * whose length it returns. The service thread calls it. Once, where the program
 * starts; without it there is no report to ask for. */
EXI_SHIM void exi_control_reports(size_t (*write)(char *ret, size_t room));

/* Does what was asked for through the control channel. The service thread. */
void exi_control_event(void);

#endif
