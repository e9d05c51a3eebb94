/* SPDX-License-Identifier: BSD-2-Clause */
/* What is asked for from outside the program. */
#ifndef EXI_CORE_LIFE_CONTROL_H
#define EXI_CORE_LIFE_CONTROL_H

/* Does what was asked for through the control channel. The service thread. */
void exi_control_event(void);

#endif
