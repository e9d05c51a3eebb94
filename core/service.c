/* SPDX-License-Identifier: BSD-2-Clause */
/* The service thread: one epoll set, level-triggered. A watched descriptor is
 * named by its socket's place in the pool and the generation it had, so an
 * event that was queued for a socket that is gone finds nobody. */
#include "core/service.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/closing.h"
#include "core/family.h"
#include "core/flow.h"
#include "core/lifecycle.h"
#include "core/link.h"
#include "core/log.h"
#include "core/queue.h"
#include "core/registry.h"
#include "core/thread.h"
#include "core/timeout.h"
#include "core/unseen.h"

#define DAY_MS	86400000
#define EVENTS	64
#define STOP_NS 5000000000u

/* What an event is, in the low bits of its data. */
#define DATA_SELF   0xffffffffffffffffull
#define DATA_FAMILY 0xfffffffffffffffeull
#define DATA_TOLD   0xfffffffffffffffdull
#define DATA_DOMAIN 0x8000000000000000ull

static pthread_mutex_t service_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool running;
static _Atomic bool ticking;
static _Atomic bool stopping;
static _Atomic pid_t tid; /* of the thread; 0 until it runs */
static int epoll_fd = -1;
static int wake_fd = -1;
static pthread_t thread;
static int tick_ms = 1; /* the thread's */
static _Thread_local bool self;

/* Links with a deadline, sockets that want progress; guarded by service_lock,
 * as are their nodes. */
static struct exi_list timed = EXI_LIST_INIT(timed);
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
	switch (what) {
	case EXI_WATCH_LINK:
		exi_link_event(sk, events);
		break;
	case EXI_WATCH_LISTENER:
		exi_link_listener_event(sk);
		break;
	case EXI_WATCH_TCP:
		exi_link_tcp_event(sk);
		break;
	case EXI_WATCH_OPS:
		exi_lifecycle_event(sk, events);
		break;
	default:
		exi_link_candidate_event(sk, what - EXI_WATCH_CANDIDATE);
		break;
	}
}

/* Bounded, for a large transfer makes one completion after the other, and what a
 * link says meanwhile may be that it is to move: more work waits for the next
 * round. */
#define ROUNDS 4

static bool domains_busy; /* the thread's */

static void domain_progress(struct exi_domain *d, void *arg)
{
	const struct exi_domain_ops *ops = d->provider->domain_ops;

	for (int i = 0; i < ROUNDS; i++) {
		ops->progress(d);
		if (ops->arm(d) != -EBUSY)
			return;
	}
	domains_busy = true;
}

static void progress_domains(void)
{
	domains_busy = false;
	exi_registry_each_domain(domain_progress, NULL);
}

/* How long to sleep, and which links are overdue. */
static int time_left(struct exi_sock **overdue)
{
	uint64_t now = exi_now_ns(), least = exi_timeout_look(now);
	uint64_t watch = exi_unseen_due();
	struct exi_list *pos;
	int ms = -1;

	if (watch < least)
		least = watch > now ? watch : now;

	*overdue = NULL;
	pthread_mutex_lock(&service_lock);
	exi_list_for_each (pos, &timed) {
		struct exi_link *l = exi_container(pos, struct exi_link, timed);

		if (l->deadline <= now)
			*overdue = l->sk;
		else if (l->deadline < least)
			least = l->deadline;
	}
	pthread_mutex_unlock(&service_lock);
	if (*overdue)
		ms = 0;
	else if (least != UINT64_MAX)
		ms = least - now < DAY_MS * 1000000ul
			     ? (int)((least - now) / 1000000) + 1
			     : DAY_MS;
	if (atomic_load(&ticking) && (ms < 0 || ms > tick_ms))
		ms = tick_ms;
	return ms;
}

static void expire(struct exi_sock *sk)
{
	if (sk)
		exi_link_expired(sk);
}

/* What comes again meanwhile waits for the next time: it may wait for a message that
 * only a fabric's events bring. wake_fd was written for it. */
static void do_todo(void)
{
	struct exi_list now = EXI_LIST_INIT(now);
	struct exi_list *node;

	pthread_mutex_lock(&service_lock);
	if (!exi_list_empty(&todo))
		exi_list_move(&todo, todo.prev, &now);
	pthread_mutex_unlock(&service_lock);
	for (;;) {
		struct exi_sock *sk;
		uint32_t dirs;

		pthread_mutex_lock(&service_lock);
		node = exi_list_pop(&now);
		if (!node) {
			pthread_mutex_unlock(&service_lock);
			return;
		}
		sk = exi_container(node, struct exi_sock, todo);
		dirs = sk->todo_dirs;
		sk->todo_dirs = 0;
		pthread_mutex_unlock(&service_lock);
		if (dirs & (1u << EXI_RX)) {
			exi_link_read(sk);
			exi_flow_meet(sk, EXI_RX);
			exi_flow_progress(sk, EXI_RX);
		}
		if (dirs & (1u << EXI_TX)) {
			exi_flow_meet(sk, EXI_TX);
			exi_flow_progress(sk, EXI_TX);
		}
		exi_lifecycle_ended(sk);
	}
}

int exi_service_progress(struct exi_sock *sk, enum exi_dir dir)
{
	int ret = exi_service_start();

	if (ret)
		return ret;
	pthread_mutex_lock(&service_lock);
	if (!sk->todo_dirs)
		exi_list_add_tail(&todo, &sk->todo);
	sk->todo_dirs |= 1u << dir;
	pthread_mutex_unlock(&service_lock);
	eventfd_write(wake_fd, 1);
	return 0;
}

static void *run(void *arg)
{
	struct epoll_event ev[EVENTS];
	struct exi_sock *overdue;
	eventfd_t drained;
	uint64_t next_tick = 0;
	bool domains;
	int i, n;

	self = true;
	prctl(PR_SET_NAME, "libexs");
	atomic_store(&tid, gettid());
	while (!atomic_load(&stopping)) {
		int ms = time_left(&overdue);

		exi_closing_work();
		exi_fds_begin();
		expire(overdue);
		exi_fds_end();
		n = epoll_wait(epoll_fd, ev, EVENTS, domains_busy ? 0 : ms);
		/* Before a wait for whoever freezes, who waits for what was
		 * lent to be closed. */
		exi_closing_work();
		exi_fds_begin();
		domains = domains_busy;
		for (i = 0; i < n; i++) {
			if (ev[i].data.u64 == DATA_SELF)
				eventfd_read(wake_fd, &drained);
			else if (ev[i].data.u64 == DATA_FAMILY)
				exi_family_event();
			else if (ev[i].data.u64 == DATA_TOLD)
				exi_family_told();
			else if (ev[i].data.u64 & DATA_DOMAIN)
				domains = true;
			else
				exi_service_dispatch(ev[i].data.u64,
						     ev[i].events);
		}
		if (domains)
			progress_domains();
		do_todo();
		if (exi_unlikely(exi_now_ns() >= exi_unseen_due()))
			exi_unseen_tick();
		exi_fds_end();
		if (atomic_load(&ticking) && exi_now_ns() >= next_tick) {
			/* Cleared before the look: who asks after it sets it
			 * again. */
			atomic_store(&ticking, false);
			tick_ms = exi_queue_tick();
			if (tick_ms)
				atomic_store(&ticking, true);
			else
				tick_ms = 1;
			next_tick = exi_now_ns() + (uint64_t)tick_ms * 1000000u;
		}
	}
	return NULL;
}

/* For edges: it is written to and never read. */
static int watch_told_locked(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET,
				  .data.u64 = DATA_TOLD };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 &&
			       errno != EEXIST
		       ? -errno
		       : 0;
}

static int open_locked(void)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = DATA_SELF };
	int ret;

	epoll_fd = exi_fd_keep(epoll_create1(EPOLL_CLOEXEC));
	wake_fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	ret = epoll_fd < 0 ? epoll_fd : wake_fd < 0 ? wake_fd : 0;
	if (ret == 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &ev) < 0)
		ret = -errno;
	if (ret == 0 && exi_family_fd() >= 0)
		ret = watch_told_locked(exi_family_fd());
	if (ret == 0)
		return 0;
	exi_fd_close(epoll_fd);
	exi_fd_close(wake_fd);
	epoll_fd = wake_fd = -1;
	return ret;
}

/* What is watched outlives a thread that was stopped. */
static int start_locked(void)
{
	int ret = epoll_fd < 0 ? open_locked() : 0;

	if (ret == 0)
		ret = exi_thread_start(&thread, run, NULL);
	if (ret == 0)
		atomic_store(&running, true);
	return ret;
}

int exi_service_start(void)
{
	static _Atomic bool warned;
	int ret = 0;

	if (exi_likely(atomic_load_explicit(&running, memory_order_acquire)))
		return 0;
	pthread_mutex_lock(&service_lock);
	if (!atomic_load(&running))
		ret = start_locked();
	pthread_mutex_unlock(&service_lock);
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

/* Gone is gone from the kernel, which looks for itself who is alone. */
bool exi_service_stop(void)
{
	uint64_t end = exi_now_ns() + STOP_NS;
	pid_t t;

	if (!atomic_load_explicit(&running, memory_order_acquire))
		return false;
	t = begun(end);
	atomic_store(&stopping, true);
	eventfd_write(wake_fd, 1);
	while (tgkill(getpid(), t, 0) == 0 && exi_now_ns() < end)
		sched_yield();
	pthread_mutex_lock(&service_lock);
	if (tgkill(getpid(), t, 0) != 0) {
		atomic_store(&running, false);
		atomic_store(&tid, 0);
	}
	atomic_store(&stopping, false);
	pthread_mutex_unlock(&service_lock);
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

int exi_service_watch_told(int fd)
{
	int ret;

	pthread_mutex_lock(&service_lock);
	ret = epoll_fd < 0 ? 0 : watch_told_locked(fd); /* or as it is made */
	pthread_mutex_unlock(&service_lock);
	return ret;
}

int exi_service_domain(struct exi_domain *d)
{
	int fd, ret;

	if (exi_likely(atomic_load_explicit(&d->watched, memory_order_relaxed)))
		return 0;
	fd = d->provider->domain_ops->event_fd(d);
	ret = fd == -EOPNOTSUPP ? 0 : fd;
	if (fd >= 0)
		ret = watch(EPOLL_CTL_ADD, fd, DATA_DOMAIN, EPOLLIN);
	if (ret == 0 || ret == -EEXIST)
		atomic_store(&d->watched, true);
	return ret == -EEXIST ? 0 : ret;
}

void exi_service_timed(struct exi_link *l)
{
	pthread_mutex_lock(&service_lock);
	exi_list_del(&l->timed);
	exi_list_add_tail(&timed, &l->timed);
	pthread_mutex_unlock(&service_lock);
	if (!self)
		eventfd_write(wake_fd, 1);
}

void exi_service_untimed(struct exi_link *l)
{
	pthread_mutex_lock(&service_lock);
	exi_list_del(&l->timed);
	pthread_mutex_unlock(&service_lock);
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

void exi_service_look(void)
{
	eventfd_write(wake_fd, 1);
}

bool exi_service_self(void)
{
	return self;
}

void exi_service_forked(void)
{
	pthread_mutex_init(&service_lock, NULL);
	exi_list_init(&timed);
	exi_list_init(&todo);
	exi_fd_close(epoll_fd);
	exi_fd_close(wake_fd);
	epoll_fd = wake_fd = -1;
	atomic_store(&running, false);
	atomic_store(&ticking, false);
	atomic_store(&stopping, false);
	atomic_store(&tid, 0);
	domains_busy = false;
	self = false;
	exi_unseen_forked();
}
