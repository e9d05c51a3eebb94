/* SPDX-License-Identifier: BSD-2-Clause */
/* The descriptor and the attributes of a queue, and waits with a mask of
 * signals. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/dequeue.h"
#include "core/transfer/lanes.h"
#include "core/transfer/queue.h"

int exi_queue_fd(struct exi_queue *q)
{
	int fd;

	/* One member for all events: it shows whether there are any. */
	exi_lanes_end(q);
	exi_lock(&q->lock);
	if (q->qfd < 0) {
		fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		if (fd < 0) {
			exi_unlock(&q->lock);
			return fd;
		}
		q->qfd = fd;
		if (q->n_done)
			eventfd_write(fd, 1);
	}
	fd = q->qfd;
	exi_unlock(&q->lock);
	exi_queue_leave_hot(q);
	return fd;
}

/* The calling thread polls the queue's descriptor, which exists: it stays open
 * until the thread is done, even if the queue is deleted, which makes the
 * descriptor readable. The queue stays valid (exi_queue_get()) meanwhile. */
static int watch(struct exi_queue *q)
{
	int fd;

	exi_lock(&q->lock);
	fd = q->qfd;
	q->watchers++;
	exi_unlock(&q->lock);
	return fd;
}

static void watched(struct exi_queue *q)
{
	int fd = -1;

	exi_lock(&q->lock);
	if (--q->watchers == 0 && atomic_load(&q->deleted)) {
		fd = q->qfd;
		q->qfd = -1;
	}
	exi_unlock(&q->lock);
	exi_fd_close(fd);
}

/* Sleeps with the mask until the queue has events or is deleted; 0 or -errno. A
 * signal that the mask lets through, and that came before, is still pending, so
 * it ends the sleep at once. Only the kernel can change the mask and sleep in
 * one step, and of its sleeps only those on descriptors. */
static int sleep_masked(struct exi_queue *q, const struct timespec *until,
			const sigset_t *mask)
{
	struct timespec left = { 0 };
	struct pollfd p = { .events = POLLIN };
	int ret;

	p.fd = watch(q);
	if (until)
		left = exi_time_left(exi_timespec_ns(until));
	ret = atomic_load(&q->deleted)			     ? -EINVAL
	      : ppoll(&p, 1, until ? &left : NULL, mask) < 0 ? -errno
							     : 0;
	watched(q);
	return ret;
}

/* Events are taken as usual: the descriptor only shows whether there are
 * any. */
static int dequeue_masked(struct exi_queue *q, exs_qhandle_t h, exs_event_t *ev,
			  int want, const struct timespec *until,
			  const sigset_t *mask)
{
	int need = want < 0 ? -want : 1, max = want < 0 ? -want : want, n, ret;
	static const struct timeval no_time;

	n = exi_queue_dequeue(h, ev, want, &no_time);
	if (n < 0 || n >= need || !max)
		return n;
	ret = exi_queue_fd(q);
	if (ret >= 0)
		ret = 0;
	while (!ret && n < need) {
		int more = exi_queue_dequeue(h, ev + n, max - n, &no_time);

		if (more < 0) {
			ret = more;
		} else if (more) {
			n += more;
		} else if (until && exi_now_ns() >= exi_timespec_ns(until)) {
			break;
		} else {
			ret = sleep_masked(q, until, mask);
		}
	}
	return n ? n : ret;
}

int exi_queue_dequeue_until(exs_qhandle_t h, exs_event_t *ev, int want,
			    const struct timespec *until, const sigset_t *mask)
{
	struct exi_queue *q;
	struct timeval tv;
	uint64_t us;
	int ret;

	if (until && !exi_timespec_valid(until))
		return -EINVAL;
	if (mask) {
		q = exi_queue_get(h);
		if (!q)
			return -EINVAL;
		ret = dequeue_masked(q, h, ev, want, until, mask);
		exi_queue_put(q);
		return ret;
	}
	if (!until)
		return exi_queue_dequeue(h, ev, want, NULL);
	us = exi_ns_between(exi_now_ns(), exi_timespec_ns(until));
	us = us / 1000 + (us % 1000 != 0);
	tv = (struct timeval){ .tv_sec = (time_t)(us / 1000000),
			       .tv_usec = (suseconds_t)(us % 1000000) };
	return exi_queue_dequeue(h, ev, want, &tv);
}

int exi_queue_set(struct exi_queue *q, int attr, const void *val, size_t len)
{
	const exs_signal_t *sig = val;
	struct exi_queue *m;
	int v;

	if (!val)
		return -EFAULT;
	if (attr == EXS_QATTR_SIGNAL) {
		if (len != sizeof(*sig) ||
		    (sig->exs_enable != EXS_SIG_ENABLE &&
		     sig->exs_enable != EXS_SIG_DISABLE) ||
		    (sig->exs_enable &&
		     (sig->exs_signo <= 0 || sig->exs_signo > SIGRTMAX)))
			return -EINVAL;
		exi_lanes_end(q);
		exi_lock(&q->lock);
		q->signal = *sig;
		exi_unlock(&q->lock);
		if (sig->exs_enable)
			exi_queue_leave_hot(q);
		return 0;
	}
	if (len != sizeof(int))
		return -EINVAL;
	memcpy(&v, val, sizeof(v));
	switch (attr) {
	case EXS_QATTR_DEPTH:
		return exi_queue_deepen(q, v);
	case EXS_QATTR_WAIT:
		if (v < EXS_WAIT_ADAPTIVE || v > EXS_WAIT_BUSY_POLL)
			return -EINVAL;
		for (int i = 0; (m = exi_lanes_member(q, i)); i++)
			m->wait = v;
		return 0;
	default:
		return -EINVAL;
	}
}
