/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that the service thread watches for a device, and the time at
 * which it looks. */
#include "core/rma/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "core/base/list.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/rma/domain.h"
#include "core/rma/rma.h"

pthread_mutex_t exi_rma_service_lock = PTHREAD_MUTEX_INITIALIZER;
const struct exi_host *exi_rma_host;

static int watch(int fd, struct exi_rma_event *e, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = e };

	return epoll_ctl(exi_rma_epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno
								       : 0;
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

	if (!epoll_ctl(exi_rma_epoll_fd, EPOLL_CTL_MOD, fd, &ev))
		return 0;
	return watch(fd, e, ev.events);
}

void exi_rma_unwatch(int fd)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &exi_rma_paused)
		if (exi_container(pos, struct exi_rma_event, resting)->fd == fd)
			exi_list_del(pos);
	epoll_ctl(exi_rma_epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void exi_rma_tick_at(uint64_t when)
{
	struct timespec t = exi_ns_timespec(when);
	struct itimerspec at = { .it_value = t };

	if (when >= exi_rma_next_tick)
		return;
	exi_rma_next_tick = when;
	timerfd_settime(exi_rma_timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}
