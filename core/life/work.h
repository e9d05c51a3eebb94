/* SPDX-License-Identifier: BSD-2-Clause */
/* The upcalls from lower parts of the core to higher ones, registered before
 * the first socket exists: the work of the service thread, which itself knows
 * only sockets and descriptors, the upcalls of modules, and the end of a socket
 * that was closed without a call of the library. */
#ifndef EXI_CORE_LIFE_WORK_H
#define EXI_CORE_LIFE_WORK_H

/* Registers the upcalls. Called once, when the core starts. */
void exi_work_begin(void);

#endif
