/* SPDX-License-Identifier: BSD-2-Clause */
/* Signal handlers: they run, sigaction() returns them as they were installed,
 * and they end calls that wait, at any moment of the call. */
#include "behave.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

/* Old programs call what new ones are warned of. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

typedef void (*handler)(int sig);
handler bsd_signal(int sig, handler h);
handler ssignal(int sig, handler h);
handler sysv_signal(int sig, handler h);
handler __sysv_signal(int sig, handler h);
handler sigset(int sig, handler h);
int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);

static atomic_int ran, code;

static void one(int sig)
{
	ran += sig == SIGUSR1 ? 1 : 1000;
}

static void other(int sig)
{
	ran += 10;
}

static void informed(int sig, siginfo_t *info, void *context)
{
	ran += context ? 100 : 1000;
	code = info->si_code;
}

static void call_it(const char *what, handler h)
{
	say("%s=%s", what,
	    h == SIG_DFL			? "default"
	    : h == SIG_IGN			? "ignored"
	    : h == SIG_ERR			? "error"
	    : h == one				? "one"
	    : h == other			? "other"
	    : h == (handler)(uintptr_t)informed ? "informed"
						: "?");
}

/* What is installed, and what it does. */
static void tell(void)
{
	struct sigaction a;

	ran = 0;
	is("asked", sigaction(SIGUSR1, NULL, &a));
	call_it("is", a.sa_handler);
	say("flags %x", (unsigned int)a.sa_flags & ~0x04000000u);
	if (a.sa_handler != SIG_DFL)
		raise(SIGUSR1);
	say("ran %d", ran);
}

static void by(const char *name, handler (*set)(int sig, handler h))
{
	say("%s", name);
	sigaction(SIGUSR1, &(struct sigaction){ 0 }, NULL);
	call_it("was", set(SIGUSR1, one));
	call_it("was", set(SIGUSR1, other));
	tell();
	call_it("was", set(SIGUSR1, SIG_IGN));
	tell();
	call_it("was", set(SIGUSR1, one));
	call_it("was", set(SIGUSR1, SIG_DFL));
	call_it("wrong", set(SIGKILL, one));
	call_it("wrong", set(0, one));
	call_it("fault", set(SIGSEGV, one));
	call_it("fault", set(SIGSEGV, SIG_DFL));
}

ROW(handlers_are_told)
{
	struct sigaction a = { .sa_handler = one, .sa_flags = SA_RESTART };
	struct sigaction old;

	is("install", sigaction(SIGUSR1, &a, NULL));
	tell();
	a = (struct sigaction){ .sa_sigaction = informed,
				.sa_flags = SA_SIGINFO | SA_NODEFER };
	is("install", __sigaction(SIGUSR1, &a, &old));
	call_it("was", old.sa_handler);
	tell();
	say("code %d", code == SI_TKILL);
	a = (struct sigaction){ .sa_handler = other, .sa_flags = SA_RESETHAND };
	is("install", sigaction(SIGUSR1, &a, &old));
	call_it("was", old.sa_handler);
	say("flags %x", (unsigned int)old.sa_flags & ~0x04000000u);
	tell();
	tell();
	is("wrong", sigaction(SIGKILL, &a, NULL));
	is("wrong", sigaction(65, &a, NULL));
	is("wrong", sigaction(-1, NULL, &a));
	by("signal", signal);
	by("bsd_signal", bsd_signal);
	by("ssignal", ssignal);
	by("sysv_signal", sysv_signal);
	by("__sysv_signal", __sysv_signal);
	by("sigset", sigset);
	signal(SIGUSR1, one);
	is("siginterrupt", siginterrupt(SIGUSR1, 1));
	tell();
	is("again", siginterrupt(SIGUSR1, 0));
	tell();
}

/* --- calls that wait ------------------------------------------------------ */

#define ROUNDS 50

static atomic_int round_now; /* a call waits in it, or is about to */
static pthread_t waiter;
static int lost;
static bool answers; /* a byte comes after the signal */

static void busy_us(int us)
{
	int64_t end = now_ns() + us * 1000;

	while (now_ns() < end)
		;
}

/* Answers a byte at once, so that whoever looks for a moment before it sleeps
 * goes on to do so; then sends a signal at some moment of that. One that is
 * lost is sent again. */
static void *disturb(void *arg)
{
	for (int i = 1; i <= ROUNDS; i++) {
		int64_t again;
		char c;

		if (read(peer, &c, 1) != 1 || write(peer, &c, 1) != 1)
			die("answer");
		while (atomic_load(&round_now) != i)
			;
		busy_us(5 + i * 7 % 40);
		pthread_kill(waiter, SIGUSR1);
		if (answers)
			put_text(peer, "y");
		again = now_ns() + 30000000;
		while (atomic_load(&round_now) == i)
			if (now_ns() > again) {
				lost++;
				pthread_kill(waiter, SIGUSR1);
				again = now_ns() + 30000000;
			}
	}
	return NULL;
}

static void disturbed(int (*wait)(void), int flags, int want)
{
	struct sigaction a = { .sa_handler = one, .sa_flags = flags };
	int others = 0, wrong = 0;
	pthread_t t;
	char c;

	pair();
	waiter = pthread_self();
	sigaction(SIGUSR1, &a, NULL);
	pthread_create(&t, NULL, disturb, NULL);
	for (int i = 1; i <= ROUNDS; i++) {
		put_text(here, "x");
		while (read(here, &c, 1) < 0) /* one that was sent again */
			if (errno != EINTR)
				die("ask");
		atomic_store(&round_now, i);
		errno = 0;
		wrong = wait();
		others += wrong != want || (want < 0 && errno != EINTR);
		atomic_store(&round_now, 0);
	}
	pthread_join(t, NULL);
	/* Natively one may come just before the call. */
	say("%s, %d others", lost > 3 ? "lost" : "told", others);
}

static int in_poll(void)
{
	struct pollfd p = { .fd = here, .events = POLLIN };

	return poll(&p, 1, -1);
}

ROW(handlers_end_a_poll)
{
	disturbed(in_poll, SA_RESTART, -1);
}

static int in_select(void)
{
	fd_set r;

	FD_ZERO(&r);
	FD_SET(here, &r);
	return select(here + 1, &r, NULL, NULL, NULL);
}

ROW(handlers_end_a_select)
{
	disturbed(in_select, 0, -1);
}

static int set = -1;

static int in_epoll(void)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (set < 0) {
		set = epoll_create1(0);
		epoll_ctl(set, EPOLL_CTL_ADD, here, &ev);
	}
	return epoll_wait(set, &ev, 1, -1);
}

ROW(handlers_end_an_epoll_wait)
{
	disturbed(in_epoll, 0, -1);
}

static int in_recv(void)
{
	return (int)recv(here, (char[2]){ 0 }, 1, 0);
}

ROW(handlers_end_a_receive)
{
	disturbed(in_recv, 0, -1);
}

ROW(handlers_end_no_receive_that_they_restart)
{
	answers = true;
	disturbed(in_recv, SA_RESTART, 1);
}
