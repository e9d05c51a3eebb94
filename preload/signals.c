/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of signal handlers: handlers are called by way of the shim, which
 * counts them for calls that wait, see core/base/signals.h, and does not run
 * them while the thread holds a lock of the library. Handlers of faults
 * are left alone: no call waits while one runs, and a program that has one
 * looks at everything. The kernel has one of two functions of ours, by the
 * handler's kind, so that neither calls one of the other kind while handlers
 * are exchanged. */
#include "core/base/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/call/poller.h"
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

/* --- handlers that are put off ------------------------------------------- */

/* The thread's signals that came while it held a lock (core/base/lock.h), in
 * their order: the kernel delivers them once more when it holds none, as it
 * does others: by the mask, on the stack and with the data that belong to
 * each. */
#define PUT_OFF 16

struct put_off {
	int sig;
	bool has_info;
	siginfo_t info;
};

static _Thread_local struct {
	uint32_t n;
	struct put_off list[PUT_OFF];
} late;

static void on_signal(int sig);
static void on_info(int sig, siginfo_t *info, void *context);

/* The kernel has reset an action that is for one signal. */
static void restore(int sig, bool has_info)
{
	struct sigaction a;

	if (native.sigaction(sig, NULL, &a) < 0 || a.sa_handler != SIG_DFL ||
	    !(a.sa_flags & (int)SA_RESETHAND))
		return;
	if (has_info)
		a.sa_sigaction = on_info;
	else
		a.sa_handler = on_signal;
	native.sigaction(sig, &a, NULL);
}

/* As the kernel does with a signal that is pending already. */
static bool is_there(int sig)
{
	for (uint32_t i = 0; i < PUT_OFF; i++)
		if (late.list[i].sig == sig)
			return sig < SIGRTMIN;
	return false;
}

/* The handler waits until the thread holds no lock: true. info: null for one
 * that is told nothing. A handler of another signal may interrupt this one, and
 * takes the next place. */
static bool put_off(int sig, const siginfo_t *info)
{
	uint32_t i;

	if (exi_likely(!exi_held()) || atomic_load(&shim_gone))
		return false;
	i = __atomic_fetch_add(&late.n, 1, __ATOMIC_RELAXED);
	if (i >= PUT_OFF) {
		__atomic_fetch_sub(&late.n, 1, __ATOMIC_RELAXED);
		return is_there(sig);
	}
	late.list[i].sig = sig;
	late.list[i].has_info = info != NULL;
	if (info)
		late.list[i].info = *info;
	restore(sig, info != NULL);
	exi_held_mark();
	return true;
}

static bool send_again(const struct put_off *p)
{
	return native.syscall(p->has_info ? SYS_rt_tgsigqueueinfo : SYS_tgkill,
			      getpid(), exi_tid(), p->sig, &p->info) == 0;
}

/* Called where the thread has let its last lock go. All signals are blocked
 * meanwhile, so that one handler, which may not return, does not keep the
 * others. */
static void deliver(void)
{
	struct put_off list[PUT_OFF];
	int saved = errno;
	ucontext_t none = { 0 };
	sigset_t all, mask;
	uint32_t n, i;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	n = late.n;
	memcpy(list, late.list, n * sizeof(list[0]));
	late.n = 0;
	exi_held_unmark();
	for (i = 0; i < n; i++)
		if (send_again(&list[i]))
			list[i].sig = 0;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	/* The user has too many pending. */
	for (i = 0; i < n; i++) {
		if (!list[i].sig)
			continue;
		if (list[i].has_info)
			on_info(list[i].sig, &list[i].info, &none);
		else
			on_signal(list[i].sig);
	}
	errno = saved;
}

/* --- handlers that run -------------------------------------------------- */

/* What a handler's calls change of the calling thread's, whose call it may have
 * interrupted. */
struct before {
	struct exi_signals signals;
	const char *frame;
	unsigned int drains;
};

static struct before begin(int sig, const char *frame)
{
	struct before ret = { exi_signals_before, exi_signals_frame,
			      exi_poller_drains };

	exi_signals_frame = frame;
	count(sig);
	return ret;
}

/* What the handler waits for itself is no part of what it interrupted. */
static void end(const struct before *b)
{
	if (exi_poller_drains != b->drains)
		exi_poller_rouse();
	exi_signals_frame = b->frame;
	exi_signals_before = b->signals;
}

static void on_signal(int sig)
{
	struct before b;

	if (exi_unlikely(put_off(sig, NULL)))
		return;
	b = begin(sig, __builtin_frame_address(0));
	atomic_load (&plain[sig])(sig);
	end(&b);
}

static void on_info(int sig, siginfo_t *info, void *context)
{
	struct before b;

	if (exi_unlikely(put_off(sig, info)))
		return;
	b = begin(sig, __builtin_frame_address(0));
	atomic_load (&with_info[sig])(sig, info, context);
	end(&b);
}

void shim_signals_begin(void)
{
	atomic_store(&exi_held_late, deliver);
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
