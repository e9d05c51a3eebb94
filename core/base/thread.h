/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's own threads: detached, with a small stack, and with all signals
 * except faults blocked, so that the program's handlers do not run there. */
#ifndef EXI_CORE_BASE_THREAD_H
#define EXI_CORE_BASE_THREAD_H

#include <pthread.h>

/* -errno. */
int exi_thread_start(pthread_t *ret, void *(*run)(void *), void *arg);

#endif
