/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of signal handlers. The kernel calls handlers through the shim, which
 * counts them for calls that wait (core/base/signals.h), and does not run them
 * while the thread holds a lock of the library. Handlers of faults are left
 * alone: no call waits while one runs. The kernel has one of two functions of
 * the shim, by the kind of the handler, so that neither calls a handler of the
 * other kind while handlers are exchanged. */
/* With _FORTIFY_SOURCE, longjmp() is another name of __longjmp_chk(). */
#undef _FORTIFY_SOURCE

#include "core/base/signals.h"

#include <errno.h>
#include <setjmp.h>
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

/* Reads from the action whether it restarts calls: any call may have changed
 * that. */
static void count(int sig)
{
	struct sigaction a;

	exi_signals_count(native.sigaction(sig, NULL, &a) < 0 ||
			  !(a.sa_flags & SA_RESTART));
}

/* --- handlers that are put off ------------------------------------------- */

/* A signal that arrives while the thread holds a lock (core/base/lock.h) is
 * sent to the thread again, and stays pending in the kernel: in the interrupted
 * context, all signals except those of faults and of abort(3) are blocked until
 * the thread holds no lock. The kernel then delivers it by the mask, with its
 * stack and its data. A real-time signal would be queued behind later ones of
 * its number, and could exceed the user's limit: it is kept here instead, and
 * the shim calls its handler. There may be several, of different numbers:
 * signals that arrive together interrupt each other's handlers before the first
 * instruction. */
#define PUT_OFF 4

struct put_off {
	int sig;
	bool has_info;
	siginfo_t info;
};

static _Thread_local struct {
	uint64_t mask; /* of what was interrupted, as the kernel has it */
	uint32_t n;
	struct put_off list[PUT_OFF];
} late;

static void on_signal(int sig, siginfo_t *none, void *context);
static void on_info(int sig, siginfo_t *info, void *context);

/* A handler with three arguments, as signal(3) has it. */
static sighandler_t as_plain(void (*f)(int, siginfo_t *, void *))
{
	return (struct sigaction){ .sa_sigaction = f }.sa_handler;
}

/* The kernel passes the context to every handler, or only to those that ask for
 * it. */
#ifdef __x86_64__
#define ASKS 0
#else
#define ASKS SA_SIGINFO
#endif

/* Sets the shim's function again after the kernel has reset a SA_RESETHAND
 * action. */
static void restore(int sig, bool has_info)
{
	struct sigaction a;

	if (native.sigaction(sig, NULL, &a) < 0 || a.sa_handler != SIG_DFL ||
	    !(a.sa_flags & (int)SA_RESETHAND))
		return;
	a.sa_sigaction = has_info ? on_info : on_signal;
	native.sigaction(sig, &a, NULL);
}

/* Signals that are not put off: the code that raised one must not continue
 * before it is handled. */
static bool is_at_once(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE ||
	       sig == SIGILL || sig == SIGTRAP || sig == SIGSYS ||
	       sig == SIGABRT;
}

/* All signals except these and those of the C library, as a set of the
 * kernel. */
static uint64_t blockable(void)
{
	sigset_t set;
	uint64_t ret;

	sigfillset(&set);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		if (is_at_once(sig))
			sigdelset(&set, sig);
	memcpy(&ret, &set, sizeof(ret));
	return ret;
}

static bool send_again(int sig, const siginfo_t *info)
{
	return native.syscall(info ? SYS_rt_tgsigqueueinfo : SYS_tgkill,
			      getpid(), exi_tid(), sig, info) == 0;
}

static bool keep(int sig, const siginfo_t *info)
{
	struct put_off *p = &late.list[late.n];

	if (late.n == PUT_OFF)
		return false;
	p->sig = sig;
	p->has_info = info != NULL;
	if (info)
		p->info = *info;
	late.n++;
	return true;
}

/* Whether the signal is kept here first, and sent again only if there is no
 * room: a real-time signal. If its handler has its own stack, it gets that
 * stack rather than its order. */
static bool is_kept(int sig)
{
	struct sigaction a;

	return sig >= SIGRTMIN && native.sigaction(sig, NULL, &a) == 0 &&
	       !(a.sa_flags & SA_ONSTACK);
}

/* Puts the handler off until the thread holds no lock; true: it was put off.
 * info: null for a handler without siginfo. */
static bool put_off(int sig, const siginfo_t *info, ucontext_t *context)
{
	int saved = errno;
	sigset_t all, before;
	uint64_t mask;
	bool kept;

	if (exi_likely(!exi_self.held) || is_at_once(sig) ||
	    atomic_load(&shim_gone))
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	kept = is_kept(sig) ? keep(sig, info) || send_again(sig, info)
			    : send_again(sig, info) || keep(sig, info);
	if (exi_likely(kept)) {
		/* Of several signals, the last interrupted the code that holds
		 * the lock. */
		memcpy(&late.mask, &context->uc_sigmask, sizeof(late.mask));
		mask = late.mask | blockable();
		memcpy(&context->uc_sigmask, &mask, sizeof(mask));
		restore(sig, info != NULL);
		exi_held_mark();
	} else {
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	errno = saved;
	return kept;
}

/* Runs the handler here, as the kernel would, except for the stack. */
static void run_here(struct put_off *p, const sigset_t *mask)
{
	struct sigaction a, usual = { .sa_handler = SIG_DFL };
	ucontext_t context;
	sigset_t blocked;

	if (native.sigaction(p->sig, NULL, &a) < 0)
		return;
	if (a.sa_flags & (int)SA_RESETHAND)
		native.sigaction(p->sig, &usual, NULL);
	getcontext(&context);
	sigorset(&blocked, mask, &a.sa_mask);
	if (!(a.sa_flags & SA_NODEFER))
		sigaddset(&blocked, p->sig);
	pthread_sigmask(SIG_SETMASK, &blocked, NULL);
	if (p->has_info)
		on_info(p->sig, &p->info, &context);
	else
		on_signal(p->sig, NULL, &context);
}

/* A handler that does not return leaves the others to jumps(). */
static __attribute__((noinline)) void run_kept(const sigset_t *mask)
{
	struct put_off p;
	sigset_t all;

	sigfillset(&all);
	while (late.n) {
		pthread_sigmask(SIG_SETMASK, &all, NULL);
		if (!late.n)
			break;
		p = late.list[0];
		late.n--;
		memmove(&late.list[0], &late.list[1],
			late.n * sizeof(late.list[0]));
		run_here(&p, mask);
	}
}

/* Called when the thread has released its last lock. */
static void deliver(void)
{
	int saved = errno;
	sigset_t mask;

	sigemptyset(&mask);
	memcpy(&mask, &late.mask, sizeof(late.mask));
	exi_held_unmark();
	if (exi_unlikely(late.n))
		run_kept(&mask);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	errno = saved;
}

/* --- jumps ---------------------------------------------------------------- */

/* A jump may leave a handler. A fault's handler may leave a lock held that is
 * never released: the thread's signals do not wait for it. */
static void jumps(void)
{
	exi_signals_frame = NULL;
	if (exi_likely(!exi_self.held && !late.n))
		return;
	if ((exi_self.held & EXI_HELD_LATE) || late.n) {
		exi_self.held = EXI_HELD_LATE;
		deliver();
	}
	exi_self.held = 0;
}

HOOK void longjmp(jmp_buf env, int value)
{
	jumps();
	native.longjmp(env, value);
	__builtin_unreachable();
}
ALIAS(_longjmp, longjmp);
ALIAS(siglongjmp, longjmp);

void __longjmp_chk(jmp_buf env, int value);
HOOK void __longjmp_chk(jmp_buf env, int value)
{
	jumps();
	native.__longjmp_chk(env, value);
	__builtin_unreachable();
}

/* --- handlers that run -------------------------------------------------- */

/* The state of the interrupted thread, perhaps in a call, that calls of the
 * handler change. */
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

/* A wait of the handler itself is not part of the interrupted call. */
static void end(const struct before *b)
{
	int saved = errno;

	if (exi_poller_drains != b->drains) {
		exi_poller_rouse();
		errno = saved;
	}
	exi_signals_frame = b->frame;
	exi_signals_before = b->signals;
}

static bool is_ender(int sig);
static void end_by_signal(int sig);

/* A SA_RESETHAND action of a signal that ends processes: the next signal does
 * that, with a report. */
static void report_next(int sig)
{
	struct sigaction a;

	if (native.sigaction(sig, NULL, &a) < 0 || a.sa_handler != SIG_DFL)
		return;
	a.sa_handler = end_by_signal;
	native.sigaction(sig, &a, NULL);
}

static void on_signal(int sig, siginfo_t *none, void *context)
{
	struct before b;

	if (exi_unlikely(put_off(sig, NULL, context)))
		return;
	if (is_ender(sig))
		report_next(sig);
	b = begin(sig, __builtin_frame_address(0));
	atomic_load (&plain[sig])(sig);
	end(&b);
}

static void on_info(int sig, siginfo_t *info, void *context)
{
	struct before b;

	if (exi_unlikely(put_off(sig, info, context)))
		return;
	if (is_ender(sig))
		report_next(sig);
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
	return sig > 0 && sig < NSIG && (sig == SIGABRT || !is_at_once(sig));
}

/* The signals that end services and programs at a terminal. */
static const int enders[] = { SIGTERM, SIGINT, SIGHUP };
static bool reports; /* set once, before the program runs */

/* A signal whose action is the default: the process reports, and ends by the
 * signal. A second signal does not wait for the report. */
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
	return h == as_plain(on_signal) || h == as_plain(on_info);
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

	/* Our own function is passed in by a library that also intercepts
	 * signal(3) and implements it by this call; the call that reached us
	 * first continues. */
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
			a.sa_sigaction = on_signal;
			a.sa_flags |= ASKS;
		}
		act = &a;
	} else if (act && act->sa_handler == SIG_DFL && is_ender(sig)) {
		a = *act;
		a.sa_handler = end_by_signal;
		act = &a;
	}
	ret = native.sigaction(sig, act, old);
	if (ret == 0 && old && old->sa_sigaction == on_signal) {
		old->sa_handler = before;
		old->sa_flags &= ~ASKS;
	} else if (ret == 0 && old && old->sa_sigaction == on_info)
		old->sa_sigaction = info_before;
	else if (ret == 0 && old && old->sa_handler == end_by_signal)
		old->sa_handler = SIG_DFL;
	return ret;
}
ALIAS(__sigaction, sigaction);

/* signal(3) asks for no context. */
static void ask(int sig)
{
	struct sigaction a;

	if (native.sigaction(sig, NULL, &a) < 0 || a.sa_sigaction != on_signal)
		return;
	a.sa_flags |= ASKS;
	native.sigaction(sig, &a, NULL);
}

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
		h = as_plain(on_signal);
	} else if (h == SIG_DFL && is_ender(sig)) {
		h = end_by_signal;
	}
	ret = set(sig, h);
	if (ASKS && h == as_plain(on_signal) && ret != SIG_ERR)
		ask(sig);
	return ret == as_plain(on_signal) ? before
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
