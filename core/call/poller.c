/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that sleep on descriptors of their own. */
#include "core/call/poller.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "core/base/fds.h"
#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/link/watch.h"
#include "core/meet/meet.h"
#include "core/sock/holders.h"
#include "core/sock/service.h"
#include "core/sock/table.h"

#define KICKED UINT64_MAX /* no data of the service */
#define HEARD  8
#define SETS   64 /* threads that can have one */

struct poller {
	int event_fd;
	uint64_t process; /* the process that it belongs to */
	int epoll_fd;	  /* -1: none */
	uint32_t name;	  /* of the thread, since its process forked last */
	uint64_t forks;
	int n;	   /* links that rang, and are not read yet */
	bool more; /* may have */
	struct epoll_event heard[2 * HEARD];
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct poller self = { .event_fd = -1, .epoll_fd = -1 };
_Thread_local unsigned int exi_poller_drains;
static _Atomic uint32_t names;
static _Atomic int sets[SETS]; /* descriptors, and 1 */
static _Atomic bool refused;   /* the kernel has no epoll_pwait2() */

static bool enlist(int fd)
{
	for (int i = 0; i < SETS; i++)
		if (atomic_compare_exchange_strong(&sets[i], &(int){ 0 },
						   fd + 1))
			return true;
	return false;
}

static void deaf(void)
{
	for (int i = 0; self.epoll_fd >= 0 && i < SETS; i++)
		atomic_compare_exchange_strong(&sets[i],
					       &(int){ self.epoll_fd + 1 }, 0);
	exi_fd_close(self.epoll_fd);
	self.epoll_fd = -1;
	self.n = 0;
	self.more = false;
}

static void leave(void *arg)
{
	deaf();
	exi_fd_close(self.event_fd);
	self.event_fd = -1;
}

static void setup(void)
{
	pthread_key_create(&key, leave);
}

int exi_poller_fd(void)
{
	int fd;

	if (self.event_fd >= 0 && self.process == exi_process_token())
		return self.event_fd;
	deaf();
	if (self.event_fd >= 0)
		exi_fd_close(self.event_fd);
	self.event_fd = -1;
	fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (fd >= 0)
		exi_poller_adopt(fd);
	return fd;
}

void exi_poller_adopt(int fd)
{
	pthread_once(&once, setup);
	pthread_setspecific(key, &key);
	self.event_fd = fd;
	self.process = exi_process_token();
}

void exi_poller_wake(struct exi_waiter *w)
{
	eventfd_write(exi_container(w, struct exi_poller, w)->event_fd, 1);
}

/* --- bells -------------------------------------------------------------- */

static uint32_t new_name(void)
{
	uint32_t ret;

	do
		ret = atomic_fetch_add(&names, 1) + 1;
	while (!ret);
	return ret;
}

static bool has_set(void)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = KICKED };

	if (self.epoll_fd >= 0)
		return true;
	if (atomic_load_explicit(&refused, memory_order_relaxed))
		return false;
	self.epoll_fd = exi_fd_keep(epoll_create1(EPOLL_CLOEXEC));
	if (self.epoll_fd < 0)
		return false;
	if (epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, self.event_fd, &ev) < 0 ||
	    !enlist(self.epoll_fd)) {
		deaf();
		return false;
	}
	self.name = new_name();
	return true;
}

static int watch(int fd, void *arg)
{
	struct exi_sock *sk = arg;
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLET | EPOLLEXCLUSIVE,
		.data.u64 = exi_service_data(sk, EXI_WATCH_LINK),
	};

	if (epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0)
		return 0;
	return errno == EEXIST ? 0 : -errno;
}

/* A link is for a thread that sleeps on it again and again. */
#define SLEEPS 8

/* The link lock is held. The socket is marked as heard before its link is in
 * the set, and checked after that. A concurrent fork counts the child first,
 * then copies: so either this sees the child, or the child finds the mark. */
static bool hear_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	atomic_store(&sk->unheard, 0);
	atomic_store(&sk->hearer, self.name);
	if (exi_link_share_locked(sk, watch, sk) >= 0 &&
	    exi_holders_alone(&sk->sh->holders))
		return true;
	if (sk->link && sk->link->fd >= 0)
		epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, sk->link->fd, NULL);
	atomic_store(&sk->hearer, 0);
	return false;
}

bool exi_poller_hears(struct exi_sock *sk)
{
	uint64_t forks =
		atomic_load_explicit(&exi_sock_forks, memory_order_relaxed);
	bool ret;

	if (!exi_holders_alone(&sk->sh->holders))
		return false;
	/* A link that was heard may not be heard any more. */
	if (self.forks != forks) {
		self.forks = forks;
		self.name = new_name();
	}
	if (self.epoll_fd >= 0 &&
	    atomic_load_explicit(&sk->hearer, memory_order_relaxed) ==
		    self.name)
		return true;
	if (atomic_fetch_add_explicit(&sk->unheard, 1, memory_order_relaxed) <
		    SLEEPS ||
	    !has_set())
		return false;
	exi_lock(&sk->link_lock);
	ret = hear_locked(sk);
	exi_unlock(&sk->link_lock);
	return ret;
}

void exi_poller_inherited(struct exi_sock *sk, int link)
{
	if (!atomic_exchange(&sk->hearer, 0))
		return;
	for (int i = 0; i < SETS; i++)
		if (atomic_load(&sets[i]))
			epoll_ctl(atomic_load(&sets[i]) - 1, EPOLL_CTL_DEL,
				  link, NULL);
}

void exi_poller_forked(void)
{
	for (int i = 0; i < SETS; i++)
		exi_fd_close(atomic_exchange(&sets[i], 0) - 1);
	self.epoll_fd = -1;
	deaf();
}

void exi_poller_drain(void)
{
	eventfd_t drained;

	exi_poller_drains++;
	eventfd_read(self.event_fd, &drained);
}

void exi_poller_rouse(void)
{
	if (self.event_fd >= 0)
		eventfd_write(self.event_fd, 1);
}

static int sleep_in_poll(struct pollfd *p, nfds_t n,
			 const struct timespec *timeout, const sigset_t *mask)
{
	int ret;

	p[n] = (struct pollfd){ .fd = self.event_fd, .events = POLLIN };
	ret = ppoll(p, n + 1, timeout, mask);
	if (ret < 0)
		return -errno;
	if (p[n].revents)
		exi_poller_drain();
	return ret == 0 ? -ETIMEDOUT : p[n].revents ? 0 : 1;
}

/* Adds links that are not read yet to the list; drains the eventfd for other
 * events. A signal handler, which would use the list, too, is deferred
 * meanwhile: exi_held_begin(). */
static void sort_held(const struct epoll_event *ev, int n)
{
	self.more = n == HEARD;
	for (int i = 0; i < n; i++) {
		if (ev[i].data.u64 == KICKED)
			exi_poller_drain();
		else if (self.n < 2 * HEARD)
			self.heard[self.n++] = ev[i];
	}
}

static int sleep_in_set(const struct timespec *timeout, const sigset_t *mask)
{
	/* Not directly into the list: the handler of a signal that came during
	 * the sleep runs before this continues. */
	struct epoll_event ev[HEARD];
	int n = epoll_pwait2(self.epoll_fd, ev, HEARD, timeout, mask);

	if (n > 0) {
		exi_held_begin();
		sort_held(ev, n);
		exi_held_end();
	}
	if (n >= 0)
		return n ? 0 : -ETIMEDOUT;
	if (errno == EINTR)
		return -EINTR;
	/* As on a kernel without the call: the service is behind this thread at
	 * each link. */
	atomic_store(&refused, true);
	deaf();
	return 0;
}

int exi_poller_sleep(struct pollfd *p, nfds_t n, bool hears,
		     const struct timespec *timeout, const sigset_t *mask)
{
	if (exi_unlikely(self.n)) { /* a handler jumped out before that */
		exi_poller_serve();
		return 0;
	}
	return hears ? sleep_in_set(timeout, mask)
		     : sleep_in_poll(p, n, timeout, mask);
}

/* As with a lock: a call in a handler would use the list, too. */
void exi_poller_serve(void)
{
	struct epoll_event ev[HEARD];
	int n;

	if (exi_likely(!self.n && !self.more))
		return;
	exi_held_begin();
	for (;;) {
		n = self.n;
		self.n = 0;
		for (int i = 0; i < n; i++)
			exi_service_dispatch(self.heard[i].data.u64,
					     self.heard[i].events);
		if (!self.more)
			break;
		/* No other thread was woken for these. */
		sort_held(ev, epoll_wait(self.epoll_fd, ev, HEARD, 0));
	}
	exi_held_end();
}
