/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of poll and select, for connections of the library and all other
 * descriptors. core/call/poll.c does the waiting. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "core/base/cancel.h"
#include "core/base/fds.h"
#include "core/base/track.h"
#include "core/base/signals.h"
#include "core/base/spin.h"
#include "core/base/util.h"
#include "core/call/poll.h"
#include "core/call/ready.h"
#include "preload/shim.h"

#define FEW 16 /* up to so many descriptors need no allocation */

struct call {
	struct exi_poll p;
	bool sets; /* some are epoll sets with connections in them */
};

static _Thread_local struct exi_spin thread_spin;

static bool look_again(void *arg)
{
	struct call *c = arg;

	return exi_poll_look(&c->p) > 0;
}

/* Spins while that may pay: true when a fabric has something. */
static bool spin(struct call *c, uint64_t deadline)
{
	const struct exi_poll *p = &c->p;
	struct exi_spinner s;
	int i = p->on_fabric;

	if (i < 0)
		return false;
	exi_spin_begin(&s);
	return exi_spin_look(
		&thread_spin, &s,
		exi_spin_budget(&thread_spin, exi_ready_peer_cpu(p->slots[i].sk,
								 p->fds[i].fd)),
		deadline, look_again, c);
}

static int run(struct call *c, uint64_t deadline, bool at_once,
	       const sigset_t *mask)
{
	struct exi_poll *p = &c->p;
	int ret, n;

	exi_signals_begin();
	for (;;) {
		int ready;

		for (nfds_t i = 0; c->sets && i < p->n; i++)
			if (p->fds[i].fd >= 0 && !p->slots[i].sk)
				shim_epoll_outer(p->fds[i].fd);
		ready = exi_poll_look(p);
		if (!ready && !at_once && spin(c, deadline))
			ready = 1;
		ret = exi_poll_ask(p);
		if (ret)
			return ret;
		n = exi_poll_gather(p);
		if (n || at_once)
			return n;
		if (exi_signals_came(false))
			return -EINTR;
		ret = exi_poll_sleep(p, deadline, mask);
		/* A set may have been stirred for nothing, so it is looked
		 * at. */
		if (ret == 1 && !c->sets) {
			n = exi_poll_gather(p);
			if (n)
				return n;
		}
		if (ret == -ETIMEDOUT) /* a last look */
			at_once = true;
		else if (ret < 0)
			return ret;
		else if (deadline && exi_now_ns() >= deadline)
			at_once = true;
	}
}

/* Whether n is above the limit: the kernel then returns the error, and nothing
 * is read. */
static bool too_many(nfds_t n)
{
	struct rlimit r;

	return n > FEW && getrlimit(RLIMIT_NOFILE, &r) == 0 && n > r.rlim_cur;
}

/* Finds the connections of the call; false if there are none, and nothing else
 * that the kernel does not know. */
static bool ours(const struct pollfd *fds, nfds_t n, bool *ret_sets)
{
	bool ret = false;

	*ret_sets = false;
	for (nfds_t i = 0; i < n; i++) {
		if (fds[i].fd < 0 || !shim_tracks(fds[i].fd, EXI_TRACK_BYTES))
			continue;
		if (shim_sock(fds[i].fd))
			ret = true;
		else if (shim_epoll_outer(fds[i].fd))
			*ret_sets = true;
	}
	return ret || *ret_sets;
}

static int mixed(struct pollfd *fds, nfds_t n, bool sets,
		 const struct timespec *timeout, const sigset_t *mask)
{
	EXI_CANCEL_OFF(true);
	struct pollfd few_kernel[FEW + 1];
	struct exi_poll_slot few_slots[FEW];
	struct call c = { .p = { .fds = fds,
				 .n = n,
				 .kernel = few_kernel,
				 .slots = few_slots },
			  .sets = sets };
	uint64_t deadline = 0;
	bool at_once = false;
	int ret;

	if (n > FEW) {
		c.p.kernel = calloc(n + 1, sizeof(*c.p.kernel));
		c.p.slots = calloc(n, sizeof(*c.p.slots));
	}
	if (timeout) {
		at_once = timeout->tv_sec == 0 && timeout->tv_nsec == 0;
		deadline = exi_now_ns() + exi_timespec_ns(timeout);
	}
	if (c.p.kernel && c.p.slots) {
		for (nfds_t i = 0; i < n; i++)
			c.p.slots[i] = (struct exi_poll_slot){
				.sk = fds[i].fd < 0 ? NULL
						    : shim_sock(fds[i].fd)
			};
		ret = run(&c, deadline, at_once, mask);
	} else {
		ret = -ENOMEM;
	}
	if (n > FEW) {
		free(c.p.kernel);
		free(c.p.slots);
	}
	return ret;
}

static int any_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t,
		     const sigset_t *mask)
{
	bool sets;

	if (exi_likely(!fds || too_many(n) || !ours(fds, n, &sets)) ||
	    (t && !exi_timespec_valid(t)))
		return native.ppoll(fds, n, t, mask);
	return (int)shim_result(mixed(fds, n, sets, t, mask));
}

static int any_poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec t =
		exi_ns_timespec((uint64_t)(ms > 0 ? ms : 0) * 1000000u);
	bool sets;

	/* The C library declares that these calls only write to the array. */
	__asm__("" : "+r"(fds));
	if (exi_likely(!fds || too_many(n) || !ours(fds, n, &sets)))
		return native.poll(fds, n, ms);
	return (int)shim_result(mixed(fds, n, sets, ms < 0 ? NULL : &t, NULL));
}

HOOK int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t,
	       const sigset_t *mask)
{
	return any_ppoll(fds, n, t, mask);
}

HOOK int poll(struct pollfd *fds, nfds_t n, int ms)
{
	return any_poll(fds, n, ms);
}
ALIAS(__poll, poll);

HOOK int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size);
extern void __chk_fail(void) __attribute__((noreturn));
HOOK int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size)
{
	if (size / sizeof(*fds) < n)
		__chk_fail();
	return any_poll(fds, n, ms);
}

HOOK int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *t,
		     const sigset_t *mask, size_t size);
HOOK int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *t,
		     const sigset_t *mask, size_t size)
{
	if (size / sizeof(*fds) < n)
		__chk_fail();
	return any_ppoll(fds, n, t, mask);
}

/* --- select ------------------------------------------------------------- */

#define SELECT_READ   (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define SELECT_WRITE  (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define SELECT_EXCEPT POLLPRI

static bool in_set(const fd_set *set, int fd)
{
	/* Sets may be larger than their type. */
	const unsigned long *bits = (const unsigned long *)set;

	return set && bits[(unsigned int)fd / (8 * sizeof(long))] >>
				      ((unsigned int)fd % (8 * sizeof(long))) &
			      1;
}

static void put_in_set(fd_set *set, int fd, bool in)
{
	unsigned long *bits = (unsigned long *)set;
	unsigned long bit = 1ul << ((unsigned int)fd % (8 * sizeof(long)));

	if (!set)
		return;
	if (in)
		bits[(unsigned int)fd / (8 * sizeof(long))] |= bit;
	else
		bits[(unsigned int)fd / (8 * sizeof(long))] &= ~bit;
}

/* reach() without the list of descriptors in /proc: tests each descriptor. */
static int reach_without_proc(int n)
{
	struct pollfd p[256];
	int ret = FD_SETSIZE, first, i;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && (rlim_t)n > r.rlim_cur)
		n = (int)r.rlim_cur;
	for (first = FD_SETSIZE; first < n; first += 256) {
		for (i = 0; i < 256; i++)
			p[i] = (struct pollfd){ .fd = first + i };
		if (native.poll(p, 256, 0) < 0)
			continue;
		for (i = 0; i < 256; i++)
			if (!(p[i].revents & POLLNVAL) &&
			    !exi_fd_ours(first + i))
				ret = first + i + 1;
	}
	return ret;
}

/* How far the kernel would look into the sets: to the end of its descriptor
 * table, which with the library's numbers is larger than the program's would
 * be. */
static int reach(int n)
{
	int ret = FD_SETSIZE, saved = errno, fd;
	struct dirent *e;
	DIR *dir;

	if (exi_likely(n <= FD_SETSIZE) ||
	    (!exi_fd_ours(n - 1) && native.fcntl64(n - 1, F_GETFD, NULL) >= 0))
		return n;
	dir = opendir("/proc/self/fd");
	if (!dir)
		ret = reach_without_proc(n);
	while (dir && (e = readdir(dir))) {
		fd = atoi(e->d_name);
		if (fd >= ret && !exi_fd_ours(fd))
			ret = fd + 1;
	}
	if (dir)
		closedir(dir);
	errno = saved;
	return ret < n ? ret : n;
}

/* -1: none of them is ours. */
static int by_poll(int n, fd_set *r, fd_set *w, fd_set *x,
		   const struct timespec *timeout, const sigset_t *mask)
{
	struct pollfd few[FEW], *p = few;
	nfds_t count = 0, i = 0;
	bool any = false;
	int fd, ret, bits = 0;

	for (fd = 0; fd < n; fd++) {
		if (!in_set(r, fd) && !in_set(w, fd) && !in_set(x, fd))
			continue;
		count++;
		any = any || shim_sock(fd) || shim_epoll_outer(fd);
	}
	if (!any)
		return -1;
	if (count > FEW)
		p = calloc(count, sizeof(*p));
	if (!p)
		return (int)shim_result(-ENOMEM);
	for (fd = 0; fd < n; fd++) {
		short events = (short)((in_set(r, fd) ? POLLIN : 0) |
				       (in_set(w, fd) ? POLLOUT : 0) |
				       (in_set(x, fd) ? POLLPRI : 0));

		if (events)
			p[i++] = (struct pollfd){ .fd = fd, .events = events };
	}
	ret = any_ppoll(p, count, timeout, mask);
	for (i = 0; ret >= 0 && i < count; i++)
		if (p[i].revents & POLLNVAL)
			ret = (int)shim_result(-EBADF);
	for (i = 0; ret >= 0 && i < count; i++) {
		bool is_r = in_set(r, p[i].fd) && (p[i].revents & SELECT_READ);
		bool is_w = in_set(w, p[i].fd) && (p[i].revents & SELECT_WRITE);
		bool is_x =
			in_set(x, p[i].fd) && (p[i].revents & SELECT_EXCEPT);

		put_in_set(r, p[i].fd, is_r);
		put_in_set(w, p[i].fd, is_w);
		put_in_set(x, p[i].fd, is_x);
		bits += is_r + is_w + is_x;
	}
	if (p != few)
		free(p);
	return ret < 0 ? -2 : bits;
}

HOOK int select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *t)
{
	struct timespec ts;
	uint64_t end = 0;
	int ret;

	if (n < 0 || (t && (t->tv_sec < 0 || t->tv_usec < 0)))
		return native.select(n, r, w, x, t);
	n = reach(n);
	if (t) {
		ts = exi_ns_timespec(exi_timeval_ns(t));
		end = exi_now_ns() + exi_timeval_ns(t);
	}
	ret = by_poll(n, r, w, x, t ? &ts : NULL, NULL);
	if (ret == -1)
		return native.select(n, r, w, x, t);
	if (t) { /* the time that is left */
		ts = exi_time_left(end);
		t->tv_sec = ts.tv_sec;
		t->tv_usec = (suseconds_t)(ts.tv_nsec / 1000);
	}
	return ret < 0 ? -1 : ret;
}
ALIAS(__select, select);

HOOK int pselect(int n, fd_set *r, fd_set *w, fd_set *x,
		 const struct timespec *t, const sigset_t *mask)
{
	int ret = -1;

	n = n < 0 ? n : reach(n);
	if (n >= 0 && !(t && (t->tv_sec < 0 || t->tv_nsec < 0)))
		ret = by_poll(n, r, w, x, t, mask);
	if (ret == -1)
		return native.pselect(n, r, w, x, t, mask);
	return ret < 0 ? -1 : ret;
}
