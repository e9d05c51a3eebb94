/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads of the library's own: detached, with all signals blocked but faults,
 * for the program's handlers are not to run there, and with a small stack. */
#ifndef EXI_CORE_BASE_THREAD_H
#define EXI_CORE_BASE_THREAD_H

#include <pthread.h>

/* -errno. */
int exi_thread_start(pthread_t *ret, void *(*run)(void *), void *arg);

#endif
