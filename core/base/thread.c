/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's threads: started with signals blocked, except those for their
 * own faults. */
#include "core/base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#define STACK_BYTES (128u << 10)

/* If they were blocked, they would end the process silently: no handler of the
 * program, or of a sanitizer, would report where. */
static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };

int exi_thread_start(pthread_t *ret, void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* A refusal (sanitizers need more) leaves the default. */
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigdelset(&all, faults[i]);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = -pthread_create(ret, &attr, run, arg);
	/* The stack holds the program's thread-local memory, and that may be
	 * larger. */
	if (err == -EINVAL) {
		pthread_attr_destroy(&attr);
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		err = -pthread_create(ret, &attr, run, arg);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return err;
}
