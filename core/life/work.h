/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of the core that stand below others call of those, handed to them
 * before the first socket: the work of the service thread, which knows sockets and
 * descriptors only, the upcalls of modules, and the end of a socket that was closed behind the library's
 * back. */
#ifndef EXI_CORE_LIFE_WORK_H
#define EXI_CORE_LIFE_WORK_H

void exi_work_begin(void);

#endif
