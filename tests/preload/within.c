/* SPDX-License-Identifier: BSD-2-Clause */
/* Signal handlers that use the same connection as the interrupted call, at any
 * moment of that call: no byte is lost, and no call hangs. */
#include "behave.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

typedef void (*handler)(int sig);
handler sysv_signal(int sig, handler h);

/* How many signals a row has; BEHAVE_SIGNALS says otherwise. */
static int signals_in_all = 100;

static atomic_int handled; /* signals */
static pthread_t caller;
static void (*inside)(void); /* a handler's call */
static atomic_long sent, taken, wrong;

/* --- who disturbs ------------------------------------------------------- */

__attribute__((constructor)) static void ask(void)
{
	const char *n = getenv("BEHAVE_SIGNALS");

	if (n)
		signals_in_all = atoi(n);
}

static void on(int sig)
{
	int saved = errno;

	inside();
	atomic_fetch_add(&handled, 1);
	errno = saved;
}

/* The next signal comes when the last was handled: none is lost. */
static void *disturb(void *arg)
{
	int (*kill)(int i) = arg;

	for (int i = 0; i < signals_in_all; i++) {
		int64_t end = now_ns() + 20000000000;

		if (kill(i))
			die("kill");
		while (atomic_load(&handled) <= i) {
			if (now_ns() > end)
				die("a handler does not run");
			sched_yield();
		}
	}
	return NULL;
}

static int by_thread(int i)
{
	return pthread_kill(caller, SIGUSR1);
}

static pthread_t disturbed_by(int (*kill)(int i))
{
	pthread_t t;

	caller = pthread_self();
	pthread_create(&t, NULL, disturb, (void *)(uintptr_t)kill);
	return t;
}

static pthread_t begin(void (*f)(void))
{
	struct sigaction a = { .sa_handler = on, .sa_flags = SA_RESTART };

	inside = f;
	sigaction(SIGUSR1, &a, NULL);
	return disturbed_by(by_thread);
}

static bool goes_on(void)
{
	return atomic_load(&handled) < signals_in_all;
}

/* --- the other end ------------------------------------------------------ */

static void quiet(void)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
}

/* Takes all that comes until the end. */
static void *drains(void *arg)
{
	char buf[4096];
	ssize_t n;

	quiet();
	while ((n = recv(peer, buf, sizeof(buf), 0)) > 0)
		atomic_fetch_add(&taken, n);
	return NULL;
}

/* Sends until the signals end. */
static void *feeds(void *arg)
{
	char buf[16] = { 0 };
	ssize_t n;

	quiet();
	while (goes_on() && (n = send(peer, buf, sizeof(buf), 0)) > 0)
		atomic_fetch_add(&sent, n);
	shutdown(peer, SHUT_WR);
	return NULL;
}

static pthread_t other_end(void *(*f)(void *arg))
{
	pthread_t t;

	pthread_create(&t, NULL, f, NULL);
	return t;
}

static void told(void)
{
	say("%s of what was sent", sent == taken ? "all" : "a part");
	say("%ld wrong", (long)wrong);
}

/* --- handlers' calls ----------------------------------------------------- */

static void sends(void)
{
	ssize_t n = send(here, "h", 1, MSG_DONTWAIT);

	if (n > 0)
		atomic_fetch_add(&sent, n);
	else
		atomic_fetch_add(&wrong, errno != EAGAIN);
}

static void receives(void)
{
	ssize_t n = recv(here, (char[3]){ 0 }, 3, MSG_DONTWAIT);

	if (n > 0)
		atomic_fetch_add(&taken, n);
	else if (n < 0)
		atomic_fetch_add(&wrong, errno != EAGAIN);
}

/* As an event loop's: the other end is this process's. */
static void wakes_up(void)
{
	ssize_t n = send(peer, "w", 1, MSG_DONTWAIT);

	if (n > 0)
		atomic_fetch_add(&sent, n);
	else
		atomic_fetch_add(&wrong, errno != EAGAIN);
}

/* --- calls that are interrupted ------------------------------------------ */

static ssize_t by_send(void)
{
	return send(here, "mm", 2, 0);
}

static ssize_t by_sendmsg(void)
{
	char text[] = "mmore";
	struct iovec v[2] = { { text, 1 }, { text + 1, 4 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	return sendmsg(here, &m, 0);
}

static ssize_t by_recv(void)
{
	return recv(here, (char[100]){ 0 }, 100, 0);
}

static ssize_t by_readv(void)
{
	char a[3], b[40];
	struct iovec v[2] = { { a, sizeof(a) }, { b, sizeof(b) } };

	return readv(here, v, 2);
}

static void sending(ssize_t (*put)(void), void (*f)(void))
{
	pthread_t other, signals;
	ssize_t n;

	pair();
	other = other_end(drains);
	signals = begin(f);
	while (goes_on()) {
		n = put();
		if (n > 0)
			atomic_fetch_add(&sent, n);
		else
			atomic_fetch_add(&wrong, 1);
	}
	pthread_join(signals, NULL);
	shutdown(here, SHUT_WR);
	pthread_join(other, NULL);
	told();
}

static void receiving(ssize_t (*get)(void), void (*f)(void))
{
	pthread_t other, signals;
	ssize_t n;

	pair();
	signals = begin(f);
	other = other_end(feeds);
	while ((n = get()) > 0)
		atomic_fetch_add(&taken, n);
	wrong += n < 0;
	pthread_join(signals, NULL);
	pthread_join(other, NULL);
	told();
}

ROW(within_send_sends)
{
	sending(by_send, sends);
}

ROW(within_sendmsg_sends)
{
	sending(by_sendmsg, sends);
}

ROW(within_recv_receives)
{
	receiving(by_recv, receives);
}

ROW(within_readv_receives)
{
	receiving(by_readv, receives);
}

static void nothing_comes(void)
{
	if (recv(here, (char[1]){ 0 }, 1, MSG_DONTWAIT) != -1)
		atomic_fetch_add(&wrong, 1);
}

ROW(within_send_receives)
{
	sending(by_send, nothing_comes);
}

static void *feeds_and_drains(void *arg)
{
	pthread_t t = other_end(drains);

	feeds(NULL);
	pthread_join(t, NULL);
	return NULL;
}

ROW(within_recv_sends)
{
	pthread_t other, signals;
	long came = 0;
	ssize_t n;

	pair();
	signals = begin(sends);
	other = other_end(feeds_and_drains);
	while ((n = by_recv()) > 0)
		came += n;
	pthread_join(signals, NULL);
	shutdown(here, SHUT_WR);
	pthread_join(other, NULL);
	say("%ld", came + (long)taken - (long)sent);
	say("%ld wrong", (long)wrong);
}

/* --- calls that wait for events ------------------------------------------ */

static int in_poll(void)
{
	struct pollfd p = { .fd = here, .events = POLLIN };

	return poll(&p, 1, -1);
}

static int in_select(void)
{
	fd_set r;

	FD_ZERO(&r);
	FD_SET(here, &r);
	return select(here + 1, &r, NULL, NULL, NULL);
}

static int set = -1;

static int in_epoll(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	if (set < 0) {
		set = epoll_create1(0);
		epoll_ctl(set, EPOLL_CTL_ADD, here, &ev);
	}
	return epoll_wait(set, &ev, 1, -1);
}

/* An event loop that handlers wake by a byte. It waits for ever: a byte that a
 * handler sent at any moment before the wait ends the wait. */
static void woken(int (*wait)(void))
{
	pthread_t signals;
	char buf[16];
	ssize_t n;

	pair();
	nonblock(here, true);
	put_text(peer, "first");
	wait();
	get_now("first", here, sizeof(buf));
	signals = begin(wakes_up);
	while (goes_on() || atomic_load(&taken) < atomic_load(&sent)) {
		if (wait() < 0 && errno != EINTR)
			atomic_fetch_add(&wrong, 1);
		while ((n = read(here, buf, sizeof(buf))) > 0)
			atomic_fetch_add(&taken, n);
	}
	pthread_join(signals, NULL);
	told();
}

ROW(within_poll_wakes_up)
{
	woken(in_poll);
}

ROW(within_select_wakes_up)
{
	woken(in_select);
}

ROW(within_epoll_wakes_up)
{
	woken(in_epoll);
}

/* --- how they run --------------------------------------------------------- */

/* A timer, and the handler's own signal. */
static void on_alarm(int sig)
{
	if (sig == SIGALRM)
		raise(SIGUSR1);
}

ROW(within_send_of_a_timer)
{
	struct sigaction a = { .sa_handler = on, .sa_flags = SA_RESTART };
	struct itimerval each = { { 0, 1000 }, { 0, 1000 } };
	pthread_t other;

	pair();
	other = other_end(drains);
	inside = sends;
	sigaction(SIGUSR1, &a, NULL);
	a.sa_handler = on_alarm;
	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	while (atomic_load(&handled) < 100)
		if (by_send() == 2)
			atomic_fetch_add(&sent, 2);
	signal(SIGALRM, SIG_IGN);
	shutdown(here, SHUT_WR);
	pthread_join(other, NULL);
	told();
}

static char stack[1 << 16];

/* With what it was sent with, on its stack, and with its mask. */
static void on_info(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	char *at = (char *)&saved;
	sigset_t mask;

	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	if (info->si_value.sival_int != atomic_load(&handled) ||
	    info->si_code != SI_QUEUE || info->si_pid != getpid() || !context ||
	    at < stack || at >= stack + sizeof(stack) ||
	    !sigismember(&mask, sig) || !sigismember(&mask, SIGUSR2) ||
	    sigismember(&mask, SIGHUP))
		atomic_fetch_add(&wrong, 1);
	on(sig);
	errno = saved;
}

static int by_queue(int i)
{
	return pthread_sigqueue(caller, SIGRTMIN + 1,
				(union sigval){ .sival_int = i });
}

static void send_until_over(pthread_t signals)
{
	pthread_t other = other_end(drains);

	while (goes_on())
		if (by_send() == 2)
			atomic_fetch_add(&sent, 2);
	pthread_join(signals, NULL);
	shutdown(here, SHUT_WR);
	pthread_join(other, NULL);
	told();
}

ROW(within_send_as_installed)
{
	struct sigaction a = { .sa_sigaction = on_info,
			       .sa_flags =
				       SA_RESTART | SA_SIGINFO | SA_ONSTACK };
	stack_t alt = { .ss_sp = stack, .ss_size = sizeof(stack) };

	pair();
	inside = sends;
	sigaltstack(&alt, NULL);
	sigaddset(&a.sa_mask, SIGUSR2);
	sigaction(SIGRTMIN + 1, &a, NULL);
	send_until_over(disturbed_by(by_queue));
}

/* For one signal: it installs itself again. */
static void once(int sig)
{
	struct sigaction a;

	sigaction(sig, NULL, &a);
	if (a.sa_handler != SIG_DFL)
		atomic_fetch_add(&wrong, 1);
	sysv_signal(sig, once);
	on(sig);
}

ROW(within_send_once)
{
	pair();
	inside = sends;
	sysv_signal(SIGUSR1, once);
	send_until_over(disturbed_by(by_thread));
}

static sigjmp_buf out;
static atomic_bool may_jump;

static void jump(int sig)
{
	atomic_fetch_add(&handled, 1);
	if (atomic_exchange(&may_jump, false))
		siglongjmp(out, 1);
}

/* What a call has done that is left is not known; the connection goes on. */
static void jumping(void *(*other)(void *arg), ssize_t (*call)(void))
{
	struct sigaction a = { .sa_handler = jump, .sa_flags = SA_RESTART };
	pthread_t t, signals;

	pair();
	t = other_end(other);
	sigaction(SIGUSR1, &a, NULL);
	signals = disturbed_by(by_thread);
	sigsetjmp(out, 1);
	while (goes_on()) {
		atomic_store(&may_jump, true);
		call();
		atomic_store(&may_jump, false);
	}
	pthread_join(signals, NULL);
	shutdown(here, SHUT_WR);
	while (other == feeds && call() > 0)
		;
	pthread_join(t, NULL);
	is("close", close(here));
}

ROW(within_send_jumps)
{
	jumping(drains, by_send);
}

ROW(within_recv_jumps)
{
	jumping(feeds, by_recv);
}

void __longjmp_chk(jmp_buf env, int value) __attribute__((noreturn));

static void (*const jumps[])(jmp_buf env, int value) = { longjmp, _longjmp,
							 siglongjmp,
							 __longjmp_chk };
static _Atomic int by;

static void jump_by(int sig)
{
	jumps[atomic_load(&by)](out, 1);
}

/* Each leaves a handler, and calls go on as before. */
ROW(within_jumps_by_name)
{
	struct sigaction a = { .sa_handler = jump_by, .sa_flags = SA_NODEFER };

	pair();
	sigaction(SIGUSR1, &a, NULL);
	for (size_t i = 0; i < sizeof(jumps) / sizeof(*jumps); i++) {
		atomic_store(&by, (int)i);
		if (sigsetjmp(out, 1) == 0) {
			raise(SIGUSR1);
			die("jump");
		}
		put_text(here, "hello");
		settle(peer, POLLIN);
		get_now("peer", peer, 5);
	}
}
