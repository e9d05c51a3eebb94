/* SPDX-License-Identifier: BSD-2-Clause */
/* The service thread: one epoll set, level-triggered. A watched descriptor is
 * named by its socket's place in the pool and the generation it had, so an
 * event that was queued for a socket that is gone finds no socket. */
#include "core/sock/service.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "core/base/diag.h"
#include "core/base/fds.h"
#include "core/base/heap.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

#define DAY_NS	86400000000000u
#define SOON_NS 4000000u /* sleeps up to this end to the nanosecond */
#define EVENTS	64
#define TIMERS	16 /* overdue ones of a round, between its events */
#define STOP_NS 5000000000u
#define LATE_NS 200000000u

/* The kinds of events, in the low bits of their data. */
#define DATA_SELF    0xffffffffffffffffull
#define DATA_FAMILY  0xfffffffffffffffeull
#define DATA_TOLD    0xfffffffffffffffdull
#define DATA_CONTROL 0xfffffffffffffffcull
#define DATA_DOMAIN  0x8000000000000000ull

static const struct exi_service_work *work;
static pthread_mutex_t service_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool running;
static _Atomic bool ticking;
static _Atomic bool stopping;
static _Atomic pid_t tid; /* the thread's id; 0 until it runs */
static int epoll_fd = -1;
static int wake_fd = -1;
static int told_fd = -1;
static int control_fd = -1;
static pthread_t thread;
static int tick_ms = 1; /* the thread's */
static _Thread_local bool self;

/* Timers, sockets that want progress; guarded by service_lock,
 * as are their nodes. */
static struct exi_heap *timed;
/* When the thread looks at the timers again, woken or not. */
static uint64_t looks_at = UINT64_MAX;
static struct exi_list todo = EXI_LIST_INIT(todo);

uint64_t exi_service_data(struct exi_sock *sk, unsigned int what)
{
	return (uint64_t)sk->index << 32 | (sk->generation & 0xffffffu) << 8 |
	       what;
}

void exi_service_dispatch(uint64_t data, uint32_t events)
{
	struct exi_sock *sk = exi_sock_by_index((uint32_t)(data >> 32));
	unsigned int what = data & 0xff;

	if (!sk || (sk->generation & 0xffffffu) != ((data >> 8) & 0xffffffu) ||
	    atomic_load(&sk->fd) < 0)
		return;
	work->event(sk, what, events);
}

void exi_service_serve(const struct exi_service_work *w)
{
	work = w;
}

static bool domains_busy; /* the thread's */

/* A timer that is over. Its link may go away at any time, the socket stays. */
struct overdue {
	void (*expired)(struct exi_sock *sk); /* null: none */
	struct exi_sock *sk;
};

/* The next timer; null: none. A node has not moved if its deadline has become
 * later. */
static struct exi_timer *next_timer_locked(uint64_t now)
{
	EXI_MUTEX_LOCKED(&service_lock);
	while (timed) {
		struct exi_timer *t =
			exi_container(timed, struct exi_timer, node);
		uint64_t deadline = atomic_load(&t->deadline);

		if (t->node.key > now || deadline <= now)
			return t;
		exi_heap_put(&timed, &t->node, deadline);
	}
	return NULL;
}

/* Calls timers that were overdue at now. */
static void expire(uint64_t now)
{
	unsigned int i;

	for (i = 0; i < TIMERS; i++) {
		struct overdue o = { 0 };
		struct exi_timer *t;

		exi_mutex_lock(&service_lock);
		t = next_timer_locked(now);
		if (t && t->node.key <= now) {
			o = (struct overdue){ t->expired, t->sk };
			/* If it stays overdue its turn comes after all that
			 * are now. */
			exi_heap_put(&timed, &t->node, now + 1);
		}
		exi_mutex_unlock(&service_lock);
		if (!o.expired)
			return;
		o.expired(o.sk);
	}
}

/* How long to sleep, in ns; 0 while timers are overdue. Other work is due in
 * whole milliseconds. */
static uint64_t time_left(uint64_t now)
{
	uint64_t least = work->due(now), ns;
	struct exi_timer *t;

	if (least != UINT64_MAX)
		least = (least > now ? least : now) + 1000000;
	exi_mutex_lock(&service_lock);
	t = next_timer_locked(now);
	if (t && t->node.key < least)
		least = t->node.key > now ? t->node.key : now;
	/* Where each of many short connections has a timer for a while, the
	 * thread is woken for the first of them, not for each. */
	if (looks_at > now && looks_at < least)
		least = looks_at;
	looks_at = least;
	exi_mutex_unlock(&service_lock);
	ns = least < now + DAY_NS ? least - now : DAY_NS;
	if (atomic_load(&ticking) && ns > (uint64_t)tick_ms * 1000000)
		ns = (uint64_t)tick_ms * 1000000;
	return ns;
}

/* A peer that has just connected is looked for in less than a millisecond, the
 * unit of epoll_wait(2). Long sleeps need not end so exactly. */
static int await(struct epoll_event *ev, uint64_t ns)
{
	static bool refused; /* before Linux 5.11, or by a filter */

	if (ns && ns < SOON_NS && !refused) {
		struct timespec t = exi_ns_timespec(ns);
		int n = epoll_pwait2(epoll_fd, ev, EVENTS, &t, NULL);

		if (n >= 0 || errno == EINTR)
			return n;
		refused = true;
	}
	return epoll_wait(epoll_fd, ev, EVENTS,
			  ns ? (int)(ns / 1000000) + 1 : 0);
}

/* Does the work that was listed when this began. Work that is added meanwhile
 * waits for the next round: it may wait for a message that only a fabric's
 * events bring. wake_fd was written for it. */
static void do_todo(void)
{
	struct exi_list now = EXI_LIST_INIT(now);
	struct exi_list *node;

	exi_mutex_lock(&service_lock);
	if (!exi_list_empty(&todo))
		exi_list_move(&todo, todo.prev, &now);
	exi_mutex_unlock(&service_lock);
	for (;;) {
		struct exi_sock *sk;
		uint32_t dirs;

		exi_mutex_lock(&service_lock);
		node = exi_list_pop(&now);
		if (!node) {
			exi_mutex_unlock(&service_lock);
			return;
		}
		sk = exi_container(node, struct exi_sock, todo);
		dirs = sk->todo_dirs;
		sk->todo_dirs = 0;
		exi_mutex_unlock(&service_lock);
		work->progress(sk, dirs);
	}
}

int exi_service_progress(struct exi_sock *sk, enum exi_dir dir)
{
	int ret = exi_service_start();

	if (ret)
		return ret;
	exi_mutex_lock(&service_lock);
	if (!sk->todo_dirs)
		exi_list_add_tail(&todo, &sk->todo);
	sk->todo_dirs |= 1u << dir;
	exi_mutex_unlock(&service_lock);
	eventfd_write(wake_fd, 1);
	return 0;
}

/* What exi_service_later() asked for; the thread's own. */
static _Thread_local void (*later)(void);

void exi_service_later(void (*fn)(void))
{
	later = fn;
}

static void do_later(void)
{
	void (*fn)(void) = later;

	later = NULL;
	if (exi_unlikely(fn != NULL))
		fn();
}

static void *run(void *arg)
{
	struct epoll_event ev[EVENTS];
	eventfd_t drained;
	uint64_t next_tick = 0;
	bool domains;
	int i, n;

	self = true;
	prctl(PR_SET_NAME, "libexs");
	atomic_store(&tid, gettid());
	while (!atomic_load(&stopping)) {
		uint64_t now = exi_now_ns();
		uint64_t ns = time_left(now);

		work->outside();
		exi_fds_begin();
		expire(now);
		do_later();
		exi_fds_end();
		n = await(ev, domains_busy ? 0 : ns);
		/* Comes before a wait for a thread that freezes descriptors,
		 * and that waits for what was lent to be closed. */
		work->outside();
		exi_fds_begin();
		domains = domains_busy;
		for (i = 0; i < n; i++) {
			if (ev[i].data.u64 == DATA_SELF)
				eventfd_read(wake_fd, &drained);
			else if (ev[i].data.u64 == DATA_FAMILY)
				work->family();
			else if (ev[i].data.u64 == DATA_TOLD)
				work->told();
			else if (ev[i].data.u64 == DATA_CONTROL)
				work->control();
			else if (ev[i].data.u64 & DATA_DOMAIN)
				domains = true;
			else
				exi_service_dispatch(ev[i].data.u64,
						     ev[i].events);
		}
		domains_busy = domains && work->domains();
		do_todo();
		work->round_over();
		exi_fds_end();
		if (atomic_load(&ticking) && exi_now_ns() >= next_tick) {
			/* The flag is cleared before the look: a thread that
			 * asks after the look sets it again. */
			atomic_store(&ticking, false);
			tick_ms = work->tick();
			if (tick_ms)
				atomic_store(&ticking, true);
			else
				tick_ms = 1;
			next_tick = exi_now_ns() + (uint64_t)tick_ms * 1000000u;
		}
	}
	do_later();
	return NULL;
}

/* For edges: it is written to and never read. */
static int watch_told_locked(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET,
				  .data.u64 = DATA_TOLD };

	EXI_MUTEX_LOCKED(&service_lock);
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 &&
			       errno != EEXIST
		       ? -errno
		       : 0;
}

static int watch_control_locked(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = DATA_CONTROL };

	EXI_MUTEX_LOCKED(&service_lock);
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int open_locked(void)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = DATA_SELF };
	int ret;

	EXI_MUTEX_LOCKED(&service_lock);
	epoll_fd = exi_fd_keep(epoll_create1(EPOLL_CLOEXEC));
	wake_fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	ret = epoll_fd < 0 ? epoll_fd : wake_fd < 0 ? wake_fd : 0;
	if (ret == 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &ev) < 0)
		ret = -errno;
	if (ret == 0 && told_fd >= 0)
		ret = watch_told_locked(told_fd);
	if (ret == 0 && control_fd >= 0)
		ret = watch_control_locked(control_fd);
	if (ret == 0)
		return 0;
	exi_fd_close(epoll_fd);
	exi_fd_close(wake_fd);
	epoll_fd = wake_fd = -1;
	return ret;
}

/* Starts the thread. Watches outlive a thread that was stopped. */
static int start_locked(void)
{
	int ret = !work ? -EPERM : epoll_fd < 0 ? open_locked() : 0;

	EXI_MUTEX_LOCKED(&service_lock);
	if (ret == 0)
		ret = exi_thread_start(&thread, run, NULL);
	if (ret == 0)
		atomic_store(&running, true);
	return ret;
}

int exi_service_start(void)
{
	static _Atomic bool warned;
	bool started = false;
	int ret = 0;

	if (exi_likely(atomic_load_explicit(&running, memory_order_acquire)))
		return 0;
	exi_mutex_lock(&service_lock);
	if (!atomic_load(&running)) {
		ret = start_locked();
		started = ret == 0;
	}
	exi_mutex_unlock(&service_lock);
	if (started)
		exi_diag_threaded(true);
	if (ret && !atomic_exchange(&warned, true))
		exi_warn("the service thread does not start: %s; connections "
			 "stay on TCP",
			 strerror(-ret));
	return ret;
}

/* Waits for a thread that was made, and has not begun. */
static pid_t begun(uint64_t end)
{
	pid_t t;

	while (!(t = atomic_load(&tid)) && exi_now_ns() < end)
		sched_yield();
	return t;
}

void exi_service_begun(void)
{
	if (atomic_load_explicit(&running, memory_order_acquire) &&
	    !atomic_load(&tid))
		begun(exi_now_ns() + STOP_NS);
}

/* Stops the thread. Asks the kernel whether the thread still exists. */
bool exi_service_stop(void)
{
	uint64_t end = exi_now_ns() + STOP_NS;
	pid_t t;

	exi_diag_threaded(false);
	if (!atomic_load_explicit(&running, memory_order_acquire))
		return false;
	t = begun(end);
	atomic_store(&stopping, true);
	eventfd_write(wake_fd, 1);
	while (tgkill(getpid(), t, 0) == 0 && exi_now_ns() < end)
		sched_yield();
	exi_mutex_lock(&service_lock);
	if (tgkill(getpid(), t, 0) != 0) {
		atomic_store(&running, false);
		atomic_store(&tid, 0);
	}
	atomic_store(&stopping, false);
	exi_mutex_unlock(&service_lock);
	return true;
}

static int watch(int op, int fd, uint64_t data, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };
	int ret = exi_service_start();

	if (ret)
		return ret;
	return epoll_ctl(epoll_fd, op, fd, &ev) < 0 ? -errno : 0;
}

int exi_service_watch(struct exi_sock *sk, int fd, unsigned int what,
		      uint32_t events)
{
	return watch(EPOLL_CTL_ADD, fd, exi_service_data(sk, what), events);
}

int exi_service_rewatch(struct exi_sock *sk, int fd, unsigned int what,
			uint32_t events)
{
	return watch(EPOLL_CTL_MOD, fd, exi_service_data(sk, what), events);
}

void exi_service_unwatch(int fd)
{
	int saved = errno;

	if (epoll_fd >= 0)
		epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	errno = saved;
}

int exi_service_watch_family(int fd)
{
	return watch(EPOLL_CTL_ADD, fd, DATA_FAMILY, EPOLLIN);
}

void exi_service_watch_told(int fd)
{
	exi_mutex_lock(&service_lock);
	told_fd = fd;
	if (epoll_fd >= 0) /* or as it is made */
		watch_told_locked(fd);
	exi_mutex_unlock(&service_lock);
}

void exi_service_watch_control(int fd)
{
	exi_mutex_lock(&service_lock);
	control_fd = fd;
	if (epoll_fd >= 0)
		watch_control_locked(fd);
	exi_mutex_unlock(&service_lock);
}

int exi_service_watch_capture(int fd)
{
	return watch(EPOLL_CTL_ADD, fd, DATA_CONTROL, 0);
}

int exi_service_domain(struct exi_domain *d)
{
	int fd, ret;

	if (exi_likely(atomic_load_explicit(&d->watched, memory_order_relaxed)))
		return 0;
	fd = d->ops.event_fd(d);
	ret = fd == -EOPNOTSUPP ? 0 : fd;
	if (fd >= 0)
		ret = watch(EPOLL_CTL_ADD, fd, DATA_DOMAIN, EPOLLIN);
	if (ret == 0 || ret == -EEXIST)
		atomic_store(&d->watched, true);
	return ret == -EEXIST ? 0 : ret;
}

/* The thread sleeps until `looks_at` at most: it stores that with the list's
 * lock held, after a look at all timers, and so either sees this one or comes
 * back in time for it. Mostly it does the latter, since a handshake that begins
 * later ends later. */
void exi_service_timed(struct exi_timer *t)
{
	bool early;

	exi_mutex_lock(&service_lock);
	exi_heap_put(&timed, &t->node, atomic_load(&t->deadline));
	early = t->node.key < looks_at;
	if (early)
		looks_at = t->node.key;
	exi_mutex_unlock(&service_lock);
	if (early && !self)
		eventfd_write(wake_fd, 1);
}

void exi_service_untimed(struct exi_timer *t)
{
	exi_mutex_lock(&service_lock);
	exi_heap_del(&timed, &t->node);
	exi_mutex_unlock(&service_lock);
}

bool exi_service_is_late(void)
{
	bool ret;

	exi_mutex_lock(&service_lock);
	ret = timed && timed->key + LATE_NS < exi_now_ns();
	exi_mutex_unlock(&service_lock);
	return ret;
}

void exi_service_tick(void)
{
	if (atomic_load_explicit(&ticking, memory_order_relaxed))
		return;
	if (exi_service_start() || atomic_exchange(&ticking, true))
		return;
	if (!self)
		eventfd_write(wake_fd, 1);
}

void exi_service_reschedule(void)
{
	eventfd_write(wake_fd, 1);
}

bool exi_service_runs(void)
{
	return atomic_load_explicit(&running, memory_order_acquire);
}

bool exi_service_self(void)
{
	return self;
}

void exi_service_forked(void)
{
	pthread_mutex_init(&service_lock, NULL);
	timed = NULL;
	looks_at = UINT64_MAX;
	exi_list_init(&todo);
	exi_fd_close(epoll_fd);
	exi_fd_close(wake_fd);
	epoll_fd = wake_fd = control_fd = -1;
	atomic_store(&running, false);
	atomic_store(&ticking, false);
	atomic_store(&stopping, false);
	atomic_store(&tid, 0);
	domains_busy = false;
	self = false;
}
