/* SPDX-License-Identifier: BSD-2-Clause */
/* What runs in the service thread. service.c knows sockets and descriptors only; what
 * it calls for links, operations, timeouts and queues is handed to it here. */
#ifndef EXI_CORE_WORK_H
#define EXI_CORE_WORK_H

/* Before the first socket. */
void exi_work_begin(void);

#endif
