/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of signal handlers: handlers are called by way of the shim, which
 * counts them for calls that wait, see core/base/signals.h. Handlers of faults
 * are left alone: no call waits while one runs, and a program that has one
 * looks at everything. The kernel has one of two functions of ours, by the
 * handler's kind, so that neither calls one of the other kind while handlers
 * are exchanged. */
#include "core/base/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "preload/shim.h"

static _Atomic(sighandler_t) plain[NSIG];
static void (*_Atomic with_info[NSIG])(int sig, siginfo_t *info, void *context);

/* The action says now whether it restarts calls, whoever changed that. */
static void count(int sig)
{
	struct sigaction a;

	exi_signals_count(native.sigaction(sig, NULL, &a) < 0 ||
			  !(a.sa_flags & SA_RESTART));
}

/* What the handler waits for itself is no part of what it interrupted. */
static void on_signal(int sig)
{
	struct exi_signals before = exi_signals_before;

	count(sig);
	atomic_load (&plain[sig])(sig);
	exi_signals_before = before;
}

static void on_info(int sig, siginfo_t *info, void *context)
{
	struct exi_signals before = exi_signals_before;

	count(sig);
	atomic_load (&with_info[sig])(sig, info, context);
	exi_signals_before = before;
}

static bool counts(int sig)
{
	return sig > 0 && sig < NSIG && sig != SIGSEGV && sig != SIGBUS &&
	       sig != SIGFPE && sig != SIGILL && sig != SIGTRAP &&
	       sig != SIGSYS;
}

/* A handler with three arguments, as signal(3) has it. */
static sighandler_t as_plain(void (*f)(int, siginfo_t *, void *))
{
	return (struct sigaction){ .sa_sigaction = f }.sa_handler;
}

/* The signals that end services and programs at a terminal. */
static const int enders[] = { SIGTERM, SIGINT, SIGHUP };
static bool reports; /* set once, before the program runs */

/* A signal that the program has left at its default: the process reports, and
 * ends by the signal. A second one does not wait for that. */
static void end_by_signal(int sig)
{
	static _Atomic bool ending;
	struct sigaction usual = { .sa_handler = SIG_DFL };
	sigset_t set;

	if (!atomic_exchange(&ending, true))
		shim_report();
	native.sigaction(sig, &usual, NULL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	kill(getpid(), sig);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static bool is_ender(int sig)
{
	for (size_t i = 0; i < sizeof(enders) / sizeof(enders[0]); i++)
		if (enders[i] == sig)
			return reports;
	return false;
}

void shim_signals_report(void)
{
	struct sigaction ours = { .sa_handler = end_by_signal }, a;

	reports = true;
	for (size_t i = 0; i < sizeof(enders) / sizeof(enders[0]); i++)
		if (native.sigaction(enders[i], NULL, &a) == 0 &&
		    a.sa_handler == SIG_DFL)
			native.sigaction(enders[i], &ours, NULL);
}

static bool is_ours(sighandler_t h)
{
	return h == on_signal || h == as_plain(on_info);
}

static bool is_handler(sighandler_t h)
{
	return h != SIG_DFL && h != SIG_IGN && h != SIG_HOLD && h != SIG_ERR;
}

HOOK int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	void (*info_before)(int, siginfo_t *, void *);
	sighandler_t before;
	struct sigaction a;
	int ret;

	/* Ours comes from a library that takes signal(3) over, too, and makes
	 * this of it: the call that came to us first goes on. */
	if (!counts(sig) || (act && is_ours(act->sa_handler)))
		return native.sigaction(sig, act, old);
	before = atomic_load(&plain[sig]);
	info_before = atomic_load(&with_info[sig]);
	if (act && is_handler(act->sa_handler)) {
		a = *act;
		if (a.sa_flags & SA_SIGINFO) {
			atomic_store(&with_info[sig], a.sa_sigaction);
			a.sa_sigaction = on_info;
		} else {
			atomic_store(&plain[sig], a.sa_handler);
			a.sa_handler = on_signal;
		}
		act = &a;
	} else if (act && act->sa_handler == SIG_DFL && is_ender(sig)) {
		a = *act;
		a.sa_handler = end_by_signal;
		act = &a;
	}
	ret = native.sigaction(sig, act, old);
	if (ret == 0 && old && old->sa_handler == on_signal)
		old->sa_handler = before;
	else if (ret == 0 && old && old->sa_sigaction == on_info)
		old->sa_sigaction = info_before;
	else if (ret == 0 && old && old->sa_handler == end_by_signal)
		old->sa_handler = SIG_DFL;
	return ret;
}
ALIAS(__sigaction, sigaction);

static sighandler_t exchange(int sig, sighandler_t h,
			     sighandler_t (*set)(int sig, sighandler_t h))
{
	void (*info_before)(int, siginfo_t *, void *);
	sighandler_t before, ret;

	if (!counts(sig))
		return set(sig, h);
	before = atomic_load(&plain[sig]);
	info_before = atomic_load(&with_info[sig]);
	if (is_handler(h)) {
		atomic_store(&plain[sig], h);
		h = on_signal;
	} else if (h == SIG_DFL && is_ender(sig)) {
		h = end_by_signal;
	}
	ret = set(sig, h);
	return ret == on_signal		  ? before
	       : ret == end_by_signal	  ? SIG_DFL
	       : ret == as_plain(on_info) ? as_plain(info_before)
					  : ret;
}

HOOK sighandler_t signal(int sig, sighandler_t h)
{
	return exchange(sig, h, native.signal);
}
ALIAS(bsd_signal, signal);
ALIAS(ssignal, signal);

HOOK sighandler_t sysv_signal(int sig, sighandler_t h)
{
	return exchange(sig, h, native.sysv_signal);
}
ALIAS(__sysv_signal, sysv_signal);

HOOK sighandler_t sigset(int sig, sighandler_t h)
{
	return exchange(sig, h, native.sigset);
}
