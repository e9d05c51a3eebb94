/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits for several descriptors. */
#include "core/call/poll.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>

#include "core/base/cancel.h"
#include "core/base/fds.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/thread.h"
#include "core/base/util.h"
#include "core/call/poller.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/op.h"
#include "core/transfer/queue.h"
#include "core/transfer/switch.h"

#define WRITE_EVENTS (POLLOUT | POLLWRNORM | POLLWRBAND)

/* --- one wait ----------------------------------------------------------- */

int exi_poll_look(struct exi_poll *p)
{
	int ready = 0;

	p->on_fabric = -1;
	p->may_move = false;
	for (nfds_t i = 0; i < p->n; i++) {
		struct exi_poll_slot *s = &p->slots[i];
		struct exi_ready r;

		p->kernel[i] = p->fds[i];
		p->kernel[i].revents = 0;
		s->now = 0;
		if (!s->sk ||
		    !exi_ready_look(s->sk, p->fds[i].fd, p->fds[i].events, &r))
			continue;
		s->now = r.now;
		ready += r.now != 0;
		p->may_move |= exi_switch_may_come(s->sk);
		p->kernel[i].events = r.kernel;
		if (r.kernel != p->fds[i].events)
			p->on_fabric = (int)i;
		/* On a fabric the kernel's result does not count: it includes
		 * ends that lie behind unread bytes. */
		if (!r.kernel && !r.error && p->fds[i].events)
			p->kernel[i].fd = -1;
	}
	return ready;
}

int exi_poll_gather(struct exi_poll *p)
{
	int n = 0;

	for (nfds_t i = 0; i < p->n; i++) {
		short kernels = p->kernel[i].fd < 0 ? 0 : p->kernel[i].revents;

		if (p->slots[i].sk)
			kernels = exi_ready_told(p->slots[i].sk, kernels);
		p->fds[i].revents = p->slots[i].now | kernels;
		n += p->fds[i].revents != 0;
	}
	return n;
}

/* The kernel has an event of one of them. */
static bool kernels(const struct exi_poll *p)
{
	for (nfds_t i = 0; i < p->n; i++)
		if (p->kernel[i].fd >= 0)
			return true;
	return false;
}

static int ask_kernel(struct exi_poll *p)
{
	static const struct timespec now;

	if (!kernels(p))
		return 0;
	return ppoll(p->kernel, p->n, &now, NULL) < 0 ? -errno : 0;
}

/* Reads the links of those that have nothing to read on TCP and may have moved;
 * returns true if a message had come. */
static bool hear(struct exi_poll *p)
{
	bool ret = false;

	for (nfds_t i = 0; i < p->n; i++)
		if (p->slots[i].sk && exi_switch_may_come(p->slots[i].sk) &&
		    !(p->kernel[i].revents & (POLLIN | POLLRDNORM)))
			ret |= exi_link_hear(p->slots[i].sk);
	return ret;
}

int exi_poll_ask(struct exi_poll *p)
{
	int ret = ask_kernel(p);

	if (ret || exi_likely(!p->may_move) || !hear(p))
		return ret;
	exi_poll_look(p);
	return ask_kernel(p);
}

static void wait_on(struct exi_poll *p, int event_fd, bool on)
{
	for (nfds_t i = 0; i < p->n; i++) {
		struct exi_poll_slot *s = &p->slots[i];

		for (enum exi_dir d = EXI_RX; s->sk && d <= EXI_TX; d++) {
			struct exi_shared *sh;
			struct exi_poller *w = &s->waiter[d];

			if (on) {
				s->waits[d] =
					(d == EXI_RX ||
					 (p->fds[i].events & WRITE_EVENTS)) &&
					exi_sock_lock(s->sk, p->fds[i].fd, d,
						      &sh);
				if (!s->waits[d])
					continue;
				w->event_fd = event_fd;
				w->w.wake = exi_poller_wake;
				exi_sock_wait_locked(s->sk, d, &w->w);
				exi_half_unlock(&sh->half[d]);
			} else if (s->waits[d]) {
				/* Valid until this, gone or not. */
				sh = exi_sock_shared(s->sk);
				exi_lock(&sh->half[d].lock);
				exi_sock_unwait_locked(s->sk, d, &w->w);
				exi_half_unlock(&sh->half[d]);
			}
		}
	}
}

static bool arm(struct exi_poll *p, nfds_t *ret_armed)
{
	nfds_t i;

	for (i = 0; i < p->n; i++)
		if (p->slots[i].sk &&
		    !exi_ready_arm(p->slots[i].sk, p->fds[i].fd,
				   p->fds[i].events, false, 0))
			break;
	*ret_armed = i;
	return i == p->n;
}

static void disarm(struct exi_poll *p, nfds_t armed)
{
	for (nfds_t i = 0; i < armed; i++)
		if (p->slots[i].sk)
			exi_ready_disarm(p->slots[i].sk, p->fds[i].fd,
					 p->fds[i].events);
}

/* Undoes the state of a sleep, also when the thread is cancelled. */
struct rest {
	struct exi_poll *p;
	int event_fd;
	nfds_t armed;
};

static void rest_ends(void *arg)
{
	struct rest *r = arg;

	disarm(r->p, r->armed);
	wait_on(r->p, r->event_fd, false);
}

/* Whether all that it waits for is on fabrics, and wakes this thread. */
static bool hears(const struct exi_poll *p)
{
	if (kernels(p))
		return false;
	for (nfds_t i = 0; i < p->n; i++)
		if (p->slots[i].sk && !exi_poller_hears(p->slots[i].sk))
			return false;
	return true;
}

/* Without an eventfd, it looks again now and then. */
static int nap(struct exi_poll *p, uint64_t deadline, const sigset_t *mask)
{
	uint64_t now = exi_now_ns(), end = now + EXI_UNKICKED_NS;
	bool last = deadline && deadline <= end;
	struct timespec t;
	int ret;

	if (last)
		end = deadline > now ? deadline : now;
	t = exi_ns_timespec(end - now);
	exi_cancel_allow();
	ret = ppoll(p->kernel, p->n, &t, mask);
	ret = ret < 0 ? -errno : ret > 0 ? 1 : last ? -ETIMEDOUT : 0;
	exi_cancel_forbid();
	return ret;
}

int exi_poll_sleep(struct exi_poll *p, uint64_t deadline, const sigset_t *mask)
{
	struct rest r = { .p = p, .event_fd = exi_poller_fd() };
	struct exi_section ends;
	struct timespec left, *timeout = NULL;
	int ret = 0;

	if (r.event_fd < 0)
		return nap(p, deadline, mask);
	if (deadline) {
		left = exi_time_left(deadline);
		timeout = &left;
	}
	exi_section_begin(&ends, rest_ends, &r);
	wait_on(p, r.event_fd, true);
	if (exi_poll_look(p) == 0 && arm(p, &r.armed)) {
		bool all = hears(p);

		exi_cancel_allow();
		ret = exi_poller_sleep(p->kernel, p->n, all, timeout, mask);
		exi_cancel_forbid();
	}
	exi_section_end(&ends, true);
	exi_poller_serve();
	/* As many as there may be, without the eventfd. */
	return ret == -EINVAL ? nap(p, deadline, mask) : ret;
}

/* --- operations --------------------------------------------------------- */

/* A waiting poll. */
struct ask {
	struct exi_list node;
	struct exi_op *op;
	nfds_t n;
	nfds_t first; /* its index among all descriptors, once set */
	struct known {
		struct exi_sock *sk;
		uint32_t generation;
	} known[];
};

/* Guards the following. Waiting polls share it, transfers do not. */
static pthread_mutex_t asks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct exi_list asks = EXI_LIST_INIT(asks);
static bool changed; /* since the thread looked */
static bool running;
static int wake_fd = -1;

static exs_pollfd_t *theirs(const struct ask *a)
{
	return a->op->arg;
}

/* The connections of the library among the descriptors. */
static void know(const exs_pollfd_t *fds, nfds_t n, struct known *ret)
{
	for (nfds_t i = 0; i < n; i++) {
		struct exi_sock *sk = exi_sock_find(fds[i].exs_fd);

		ret[i] = (struct known){ 0 };
		/* Looks it up again: the number may be another socket's. */
		if (!sk || exi_sock_use(fds[i].exs_fd, &sk))
			continue;
		ret[i].sk = sk;
		ret[i].generation = atomic_load(&sk->generation);
	}
}

/* The connection was closed, and its number is something else's now. */
static bool gone(const struct known *k, int fd)
{
	return k->sk && (!exi_sock_is(k->sk, fd) ||
			 atomic_load(&k->sk->generation) != k->generation);
}

/* Room for n descriptors in all. */
static int resize(struct exi_poll *p, nfds_t n)
{
	struct pollfd *fds = calloc(n + 1, sizeof(*fds));
	struct pollfd *kernel = calloc(n + 1, sizeof(*kernel));
	struct exi_poll_slot *slots = calloc(n + 1, sizeof(*slots));

	if (!fds || !kernel || !slots) {
		free(fds);
		free(kernel);
		free(slots);
		return -ENOMEM;
	}
	free(p->fds);
	free(p->kernel);
	free(p->slots);
	*p = (struct exi_poll){
		.fds = fds, .kernel = kernel, .slots = slots, .n = n
	};
	return 0;
}

static void place(struct exi_poll *p, const exs_pollfd_t *fds,
		  const struct known *known, nfds_t first, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		p->fds[first + i] =
			(struct pollfd){ .fd = fds[i].exs_fd,
					 .events = fds[i].exs_events };
		p->slots[first + i].sk = known[i].sk;
	}
}

/* Looks at everything once; returns how many descriptors are ready, or
 * -errno. */
static int look_once(struct exi_poll *p)
{
	int ret;

	exi_poll_look(p);
	ret = exi_poll_ask(p);
	return ret ? ret : exi_poll_gather(p);
}

/* The results of a poll whose descriptors begin at first; returns how many. */
static int answer(const struct exi_poll *p, nfds_t first,
		  const struct known *known, exs_pollfd_t *fds, nfds_t n)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++) {
		fds[i].exs_revents = gone(&known[i], fds[i].exs_fd)
					     ? POLLNVAL
					     : p->fds[first + i].revents;
		ready += fds[i].exs_revents != 0;
	}
	return ready;
}

int exi_poll_now(exs_pollfd_t *fds, int n, bool wait)
{
	struct known *known = calloc((size_t)n, sizeof(*known));
	struct exi_poll p = { 0 };
	int ret = known ? resize(&p, (nfds_t)n) : -ENOMEM;

	if (!ret) {
		know(fds, (nfds_t)n, known);
		place(&p, fds, known, 0, (nfds_t)n);
	}
	while (ret >= 0) {
		ret = look_once(&p);
		if (ret < 0)
			break;
		ret = answer(&p, 0, known, fds, (nfds_t)n);
		if (ret > 0 || !wait)
			break;
		ret = exi_poll_sleep(&p, 0, NULL);
	}
	free(p.fds);
	free(p.kernel);
	free(p.slots);
	free(known);
	return ret;
}

/* Puts the descriptors of all waiting polls side by side; the lock is held. */
static int build_locked(struct exi_poll *p)
{
	struct exi_list *pos;
	nfds_t n = 0;
	int ret;

	EXI_MUTEX_LOCKED(&asks_lock);
	exi_list_for_each (pos, &asks)
		n += exi_container(pos, struct ask, node)->n;
	ret = resize(p, n);
	if (ret)
		return ret;
	n = 0;
	exi_list_for_each (pos, &asks) {
		struct ask *a = exi_container(pos, struct ask, node);

		a->first = n;
		place(p, theirs(a), a->known, n, a->n);
		n += a->n;
	}
	changed = false;
	return 0;
}

static void complete(struct exi_list *done)
{
	struct exi_list *node;

	while ((node = exi_list_pop(done))) {
		struct ask *a = exi_container(node, struct ask, node);

		exi_op_complete(a->op);
		free(a);
	}
}

/* Ends the polls with results; with err, all. */
static void harvest(struct exi_poll *p, int err)
{
	struct exi_list done = EXI_LIST_INIT(done), *pos, *tmp;

	exi_mutex_lock(&asks_lock);
	/* The set of polls changed: look again. */
	if (changed && !err)
		goto unlock;
	exi_list_for_each_safe (pos, tmp, &asks) {
		struct ask *a = exi_container(pos, struct ask, node);
		int n = err ? 0
			    : answer(p, a->first, a->known, theirs(a), a->n);

		if (!n && !err)
			continue;
		a->op->err = err;
		a->op->done = (size_t)n;
		exi_list_del(&a->node);
		exi_list_add_tail(&done, &a->node);
		changed = true;
	}
unlock:
	exi_mutex_unlock(&asks_lock);
	complete(&done);
}

static void *serve(void *arg)
{
	struct exi_poll p = { 0 };

	prctl(PR_SET_NAME, "libexs-poll");
	/* A change by another thread ends the sleep, even one that is about to
	 * begin. */
	exi_poller_adopt(wake_fd);
	for (;;) {
		int ret = 0;

		exi_mutex_lock(&asks_lock);
		if (changed)
			ret = build_locked(&p);
		exi_mutex_unlock(&asks_lock);
		if (!ret)
			ret = look_once(&p);
		if (ret > 0)
			harvest(&p, 0);
		else if (!ret)
			ret = exi_poll_sleep(&p, 0, NULL);
		if (ret < 0 && ret != -EINTR)
			harvest(&p, -ret);
	}
	return NULL;
}

static int start_locked(void)
{
	pthread_t t;
	int ret;

	EXI_MUTEX_LOCKED(&asks_lock);
	if (running)
		return 0;
	if (wake_fd < 0) {
		ret = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		if (ret < 0)
			return ret;
		wake_fd = ret;
	}
	ret = exi_thread_start(&t, serve, NULL);
	running = ret == 0;
	return ret;
}

/* A poll whose deadline has passed gets one look. */
static int look_late(struct exi_op *op)
{
	int n = exi_poll_now(op->arg, (int)op->len, false);

	if (n < 0)
		return n;
	op->done = (size_t)n;
	op->late = true;
	op->err = n ? 0 : exi_op_cancel_error(op);
	exi_op_complete(op);
	return 0;
}

int exi_poll_submit(struct exi_op *op)
{
	nfds_t n = (nfds_t)op->len;
	struct ask *a;
	int ret;

	if (op->until && op->until <= exi_now_ns())
		return look_late(op);
	a = calloc(1, sizeof(*a) + n * sizeof(a->known[0]));
	if (!a)
		return -ENOMEM;
	a->op = op;
	a->n = n;
	know(op->arg, n, a->known);
	exi_mutex_lock(&asks_lock);
	ret = start_locked();
	if (!ret) {
		exi_list_add_tail(&asks, &a->node);
		changed = true;
		eventfd_write(wake_fd, 1);
	}
	exi_mutex_unlock(&asks_lock);
	if (ret)
		free(a);
	return ret;
}

static bool names(const struct ask *a, int fd)
{
	for (nfds_t i = 0; i < a->n; i++)
		if (fd < 0 || theirs(a)[i].exs_fd == fd)
			return true;
	return false;
}

/* Removes one of the waiting polls, to be completed; the lock is held. */
static void quit_locked(struct ask *a, struct exi_list *done)
{
	EXI_MUTEX_LOCKED(&asks_lock);
	a->op->err = exi_op_cancel_error(a->op);
	exi_list_del(&a->node);
	exi_list_add_tail(done, &a->node);
	if (!changed)
		eventfd_write(wake_fd, 1);
	changed = true;
}

void exi_poll_expire(uint64_t now, uint64_t *next)
{
	struct exi_list done = EXI_LIST_INIT(done), *pos, *tmp;

	exi_mutex_lock(&asks_lock);
	exi_list_for_each_safe (pos, tmp, &asks) {
		struct ask *a = exi_container(pos, struct ask, node);

		if (!exi_op_is_late(a->op, now, next))
			continue;
		a->op->late = true;
		quit_locked(a, &done);
	}
	exi_mutex_unlock(&asks_lock);
	complete(&done);
}

int exi_poll_cancel(int fd, bool any, exs_ahandle_t h)
{
	struct exi_list done = EXI_LIST_INIT(done), *pos, *tmp;
	int n = 0;

	exi_mutex_lock(&asks_lock);
	exi_list_for_each_safe (pos, tmp, &asks) {
		struct ask *a = exi_container(pos, struct ask, node);

		if (!names(a, fd) || (!any && a->op->ahandle != h))
			continue;
		quit_locked(a, &done);
		n++;
	}
	exi_mutex_unlock(&asks_lock);
	complete(&done);
	return n;
}

void exi_poll_forked(void)
{
	pthread_mutex_init(&asks_lock, NULL);
	exi_list_init(&asks);
	changed = running = false;
	exi_fd_close(wake_fd);
	wake_fd = -1;
}
