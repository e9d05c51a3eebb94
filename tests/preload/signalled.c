/* SPDX-License-Identifier: BSD-2-Clause */
/* Handlers of many signals, and handlers that jump out, in a program with a
 * connection on a fabric. signalled ROW, under exs run. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "moved.h"

#define BURST  40 /* signals */
#define BURSTS 200

static int here = -1;
static pthread_t caller;
static sigjmp_buf out;
static atomic_bool over;
static atomic_int handled, others, wrong;

static void quiet(void)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static void wait_for(atomic_int *n, int at_least)
{
	time_t end = time(NULL) + LIMIT / 1000;

	while (atomic_load(n) < at_least) {
		if (time(NULL) > end) {
			fprintf(stderr, "handler %d of %d does not run\n",
				atomic_load(n), at_least);
			_exit(1);
		}
		sched_yield();
	}
}

static void sends(void)
{
	int saved = errno;

	send(here, "h", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	errno = saved;
}

/* Sends while another thread disturbs it. The other end takes it all. */
static int disturbed_by(void *(*disturb)(void *arg))
{
	char buf[8] = { 0 };
	pthread_t t;

	caller = pthread_self();
	if (pthread_create(&t, NULL, disturb, NULL))
		errx(1, "pthread_create");
	while (!atomic_load(&over))
		if (send(here, buf, sizeof(buf), MSG_DONTWAIT) < 0) {
			tell(TAKE);
			told(TAKE);
		}
	pthread_join(t, NULL);
	if (atomic_load(&wrong))
		errx(1, "%d came out of order", atomic_load(&wrong));
	return 0;
}

/* --- many --------------------------------------------------------------- */

static void in_order(int sig, siginfo_t *info, void *context)
{
	if (info->si_value.sival_int != atomic_fetch_add(&handled, 1))
		atomic_fetch_add(&wrong, 1);
	sends();
}

static void *bursts(void *arg)
{
	int sig = SIGRTMIN + 1, n = 0;

	quiet();
	for (int i = 0; i < BURSTS; i++) {
		for (int k = 0; k < BURST; k++, n++)
			while (pthread_sigqueue(
				caller, sig, (union sigval){ .sival_int = n }))
				sched_yield();
		wait_for(&handled, n);
	}
	atomic_store(&over, true);
	return NULL;
}

static int a_burst_in_order(void)
{
	struct sigaction a = { .sa_sigaction = in_order,
			       .sa_flags = SA_RESTART | SA_SIGINFO };

	here = moved();
	sigaction(SIGRTMIN + 1, &a, NULL);
	return disturbed_by(bursts);
}

static void counted(int sig)
{
	sends();
	atomic_fetch_add(sig == SIGUSR1 ? &handled : &others, 1);
}

static void *storm(void *arg)
{
	quiet();
	while (!atomic_load(&over))
		pthread_kill(caller, SIGUSR1);
	return NULL;
}

static void *two(void *arg)
{
	pthread_t t;

	quiet();
	if (pthread_create(&t, NULL, storm, NULL))
		errx(1, "pthread_create");
	for (int i = 1; i <= 2000; i++) {
		pthread_kill(caller, SIGUSR2);
		wait_for(&others, i);
	}
	atomic_store(&over, true);
	pthread_join(t, NULL);
	return NULL;
}

static int two_numbers(void)
{
	struct sigaction a = { .sa_handler = counted, .sa_flags = SA_RESTART };

	here = moved();
	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGUSR2, &a, NULL);
	return disturbed_by(two);
}

/* --- jumps -------------------------------------------------------------- */

static void jump(int sig)
{
	siglongjmp(out, 1);
}

static void counts(int sig)
{
	atomic_fetch_add(&handled, 1);
}

/* Deeper than the handler was. */
static __attribute__((noinline)) int moves_later(void)
{
	char room[8192];

	explicit_bzero(room, sizeof(room));
	here = moved();
	tell(SEND);
	return finish(here);
}

static int a_jump_and_a_connection(void)
{
	signal(SIGALRM, jump);
	signal(SIGUSR1, counts);
	if (sigsetjmp(out, 1) == 0) {
		raise(SIGALRM);
		errx(1, "no jump");
	}
	raise(SIGUSR1);
	return moves_later();
}

static int a_fault_and_signals(void)
{
	char *nothing =
		mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	here = moved();
	signal(SIGSEGV, jump);
	signal(SIGUSR1, counts);
	tell(SEND);
	told(SEND);
	/* EFAULT, or the fault; the connection is not used again. */
	if (sigsetjmp(out, 1) == 0)
		recv(here, nothing, 5, 0);
	for (int i = 0; i < 5; i++)
		raise(SIGUSR1);
	if (atomic_load(&handled) != 5)
		errx(1, "%d of 5 handled", atomic_load(&handled));
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct row rows[] = {
		{ "a_burst_in_order", a_burst_in_order },
		{ "two_numbers", two_numbers },
		{ "a_jump_and_a_connection", a_jump_and_a_connection },
		{ "a_fault_and_signals", a_fault_and_signals },
	};

	return run_row(rows, sizeof(rows) / sizeof(*rows), argc, argv);
}
