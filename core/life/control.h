/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests from outside the program (exs-downgrade(1) and others). */
#ifndef EXI_CORE_LIFE_CONTROL_H
#define EXI_CORE_LIFE_CONTROL_H

#include <stddef.h>

#include "core/base/util.h"

/* Sets the function that writes this process's report: a text of less than
 * `room' bytes, whose length it returns. The service thread calls it. Called
 * once, when the program starts; without it there is no report. */
EXI_SHIM void exi_control_reports(size_t (*write)(char *ret, size_t room));

/* Carries out the requests on the control channel. The service thread calls
 * it. */
void exi_control_event(void);

#endif
