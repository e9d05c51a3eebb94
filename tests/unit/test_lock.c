/* SPDX-License-Identifier: BSD-2-Clause */
/* The lock that forked processes share, and handlers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "core/base/lock.h"

static struct exi_lock lock;
static pthread_t waits;
static atomic_bool is_held, ran;

/* A handler that the shim would run at once, while the thread waits: the word
 * says so since. */
static void look(int sig)
{
	if ((atomic_load(&lock.word) & EXI_LOCK_CONTENDED) && !exi_held())
		atomic_store(&ran, true);
}

/* Has the lock until a handler could run in the thread that waits for it. */
static void *hold(void *arg)
{
	time_t end = time(NULL) + 60;

	exi_lock(&lock);
	atomic_store(&is_held, true);
	while (!atomic_load(&ran) && time(NULL) < end) {
		pthread_kill(waits, SIGUSR1);
		sched_yield();
	}
	exi_unlock(&lock);
	return NULL;
}

/* As where a stopped process has it. */
static void who_waits_keeps_no_handler_away(void **state)
{
	pthread_t t;

	signal(SIGUSR1, look);
	waits = pthread_self();
	assert_int_equal(pthread_create(&t, NULL, hold, NULL), 0);
	while (!atomic_load(&is_held))
		sched_yield();
	exi_lock(&lock);
	assert_int_equal(exi_held(), 1);
	exi_unlock(&lock);
	pthread_join(t, NULL);
	assert_true(atomic_load(&ran));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_waits_keeps_no_handler_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
