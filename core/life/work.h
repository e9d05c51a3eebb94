/* SPDX-License-Identifier: BSD-2-Clause */
/* The upcalls that lower parts of the core make to higher ones, handed over
 * before the first socket: the work of the service thread, which knows sockets
 * and descriptors only, the upcalls of modules, and the end of a socket that
 * was closed behind the library's back. */
#ifndef EXI_CORE_LIFE_WORK_H
#define EXI_CORE_LIFE_WORK_H

/* Registers the upward calls: the work of the service, what modules may ask,
 * how a socket is forgotten. Once, where the core starts. */
void exi_work_begin(void);

#endif
