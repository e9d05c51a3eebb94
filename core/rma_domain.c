/* SPDX-License-Identifier: BSD-2-Clause */
/* What the service of the process waits for: the fabric's events, and our ends of
 * pair links. */
#include "core/rma.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/util.h"

pthread_mutex_t exi_rma_service_lock = PTHREAD_MUTEX_INITIALIZER;
const struct exi_host *exi_rma_host;
static int epoll_fd = -1;
static const struct exi_rma_work *work;

static int watch(int fd, struct exi_rma_event *e, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = e };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

int exi_rma_watch(int fd, struct exi_rma_event *e)
{
	return watch(fd, e, EPOLLIN);
}

int exi_rma_watch_edge(int fd, struct exi_rma_event *e)
{
	return watch(fd, e, EPOLLIN | EPOLLET);
}

int exi_rma_watch_once(int fd, struct exi_rma_event *e, uint32_t events)
{
	struct epoll_event ev = { .events = events | EPOLLONESHOT,
				  .data.ptr = e };

	if (!epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &ev))
		return 0;
	return watch(fd, e, ev.events);
}

/* --- rest --------------------------------------------------------------- */

#define REST_NS 100000000u

static struct exi_list resting = EXI_LIST_INIT(resting);

static void change(int fd, struct exi_rma_event *e, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = e };

	epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

void exi_rma_rest(int fd, struct exi_rma_event *e)
{
	e->fd = fd;
	e->until = exi_now_ns() + REST_NS;
	exi_list_add_tail(&resting, &e->resting);
	change(fd, e, 0);
	exi_rma_look_at(e->until);
}

/* All rest equally long: the first is over first. */
static void end_rests(uint64_t now)
{
	while (!exi_list_empty(&resting)) {
		struct exi_rma_event *e = exi_container(
			resting.next, struct exi_rma_event, resting);

		if (e->until > now) {
			exi_rma_look_at(e->until);
			break;
		}
		exi_list_del(&e->resting);
		change(e->fd, e, EPOLLIN);
	}
}

void exi_rma_unwatch(int fd)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &resting)
		if (exi_container(pos, struct exi_rma_event, resting)->fd == fd)
			exi_list_del(pos);
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* --- time --------------------------------------------------------------- */

static int timer_fd = -1;
static uint64_t next_look = UINT64_MAX;

void exi_rma_look_at(uint64_t when)
{
	struct timespec t = exi_ns_timespec(when);
	struct itimerspec at = { .it_value = t };

	if (when >= next_look)
		return;
	next_look = when;
	timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void time_passed(struct exi_rma_event *e)
{
	uint64_t ticks, now;

	if (read(timer_fd, &ticks, sizeof(ticks)) < 0)
		return;
	now = exi_now_ns();
	next_look = UINT64_MAX;
	end_rests(now);
	work->look(now);
	if (exi_rma_fabric.look)
		exi_rma_fabric.look(now);
}

static struct exi_rma_event on_time = { .call = time_passed };

/* --- events ------------------------------------------------------------- */

/* Before others have the lock: a peer may have more of them than it should. */
#define SERVED 64

/* One at a time: what it is about may go with the event before it. */
static bool serve(void)
{
	struct epoll_event ev;
	struct exi_rma_event *e;

	if (epoll_wait(epoll_fd, &ev, 1, 0) != 1)
		return false;
	e = ev.data.ptr;
	e->call(e);
	return true;
}

static int progress(struct exi_domain *d)
{
	int n = 0;

	pthread_mutex_lock(&exi_rma_service_lock);
	while (n < SERVED && serve())
		n++;
	pthread_mutex_unlock(&exi_rma_service_lock);
	return n;
}

static int event_fd(struct exi_domain *d)
{
	return epoll_fd < 0 ? -EOPNOTSUPP : epoll_fd;
}

/* The set stays readable while there is work that descriptors tell of. */
static int arm(struct exi_domain *d)
{
	int ret;

	if (!exi_rma_fabric.arm)
		return 0;
	pthread_mutex_lock(&exi_rma_service_lock);
	ret = exi_rma_fabric.arm();
	pthread_mutex_unlock(&exi_rma_service_lock);
	return ret;
}

/* --- fork --------------------------------------------------------------- */

/* The descriptors are closed, so that connections end when the parent does. The
 * child loads the fabric anew. */
static void forked(struct exi_domain *d)
{
	work->forked();
	exi_rma_fabric.forked();
	exi_rma_host->fd_close(timer_fd);
	exi_rma_host->fd_close(epoll_fd);
	free(d);
}

const struct exi_domain_ops exi_rma_domain_ops = {
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.forked = forked,
};

int exi_rma_domain_open(const struct exi_rma_work *w, struct exi_domain **ret)
{
	struct exi_domain *d = calloc(1, sizeof(*d));
	int err = 0;

	if (!d)
		return -ENOMEM;
	d->provider = exi_rma_fabric.provider;
	work = w;
	epoll_fd = exi_rma_host->fd_keep(epoll_create1(EPOLL_CLOEXEC));
	timer_fd = exi_rma_host->fd_keep(
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (epoll_fd < 0 || timer_fd < 0)
		err = -EMFILE;
	if (!err)
		err = exi_rma_watch(timer_fd, &on_time);
	if (!err)
		err = exi_rma_fabric.open();
	if (!err) {
		*ret = d;
		return 0;
	}
	exi_rma_domain_close(d);
	return err;
}

void exi_rma_domain_close(struct exi_domain *d)
{
	exi_rma_fabric.close();
	exi_rma_host->fd_close(timer_fd);
	exi_rma_host->fd_close(epoll_fd);
	timer_fd = epoll_fd = -1;
	free(d);
}
