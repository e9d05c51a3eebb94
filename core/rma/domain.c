/* SPDX-License-Identifier: BSD-2-Clause */
/* The domain: one epoll set with the fabric's events, our ends of pair links
 * and a timer, which the service thread serves. */
#include "core/rma/domain.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "core/base/list.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"

int exi_rma_epoll_fd = -1;
static const struct exi_rma_work *work;

/* --- rest --------------------------------------------------------------- */

#define REST_NS 100000000u

struct exi_list exi_rma_paused = EXI_LIST_INIT(exi_rma_paused);

static void change(int fd, struct exi_rma_event *e, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = e };

	epoll_ctl(exi_rma_epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

void exi_rma_pause(int fd, struct exi_rma_event *e)
{
	e->fd = fd;
	e->until = exi_now_ns() + REST_NS;
	exi_list_add_tail(&exi_rma_paused, &e->resting);
	change(fd, e, 0);
	exi_rma_tick_at(e->until);
}

/* All pauses are equally long: the first to begin is the first to end. */
static void end_rests(uint64_t now)
{
	while (!exi_list_empty(&exi_rma_paused)) {
		struct exi_rma_event *e = exi_container(
			exi_rma_paused.next, struct exi_rma_event, resting);

		if (e->until > now) {
			exi_rma_tick_at(e->until);
			break;
		}
		exi_list_del(&e->resting);
		change(e->fd, e, EPOLLIN);
	}
}

/* --- time --------------------------------------------------------------- */

int exi_rma_timer_fd = -1;
uint64_t exi_rma_next_tick = UINT64_MAX;

static void time_passed(struct exi_rma_event *e)
{
	uint64_t ticks, now;

	if (read(exi_rma_timer_fd, &ticks, sizeof(ticks)) < 0)
		return;
	now = exi_now_ns();
	exi_rma_next_tick = UINT64_MAX;
	end_rests(now);
	work->look(now);
	if (exi_rma_fabric.look)
		exi_rma_fabric.look(now);
}

static struct exi_rma_event on_time = { .call = time_passed };

/* --- events ------------------------------------------------------------- */

/* Events served before others get the lock: a peer may cause more events than
 * it should. */
#define SERVED 64

/* Serves one event. Events are taken one at a time: an event may free what the
 * next one is about. */
static bool serve(void)
{
	struct epoll_event ev;
	struct exi_rma_event *e;

	if (epoll_wait(exi_rma_epoll_fd, &ev, 1, 0) != 1)
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
	return exi_rma_epoll_fd < 0 ? -EOPNOTSUPP : exi_rma_epoll_fd;
}

/* The set stays readable while there is work that descriptors report. */
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

/* The child closes the descriptors, so that connections end when the parent
 * does, and loads the fabric anew. */
static void forked(struct exi_domain *d)
{
	work->forked();
	exi_rma_fabric.forked();
	exi_rma_host->fd_close(exi_rma_timer_fd);
	exi_rma_host->fd_close(exi_rma_epoll_fd);
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
	exi_rma_epoll_fd = exi_rma_host->fd_keep(epoll_create1(EPOLL_CLOEXEC));
	exi_rma_timer_fd = exi_rma_host->fd_keep(
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (exi_rma_epoll_fd < 0 || exi_rma_timer_fd < 0)
		err = -EMFILE;
	if (!err)
		err = exi_rma_watch(exi_rma_timer_fd, &on_time);
	if (!err && exi_rma_fabric.open)
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
	if (exi_rma_fabric.close)
		exi_rma_fabric.close();
	exi_rma_host->fd_close(exi_rma_timer_fd);
	exi_rma_host->fd_close(exi_rma_epoll_fd);
	exi_rma_timer_fd = exi_rma_epoll_fd = -1;
	free(d);
}
