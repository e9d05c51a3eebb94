/* SPDX-License-Identifier: BSD-2-Clause */
/* The service thread: one per process, made at first need, remade after fork.
 * It reads the pair links, accepts meetings, finishes drains, serves
 * operations that wait for readiness, and makes the progress of asynchronous
 * operations while the program is elsewhere. */
#ifndef EXI_CORE_SOCK_SERVICE_H
#define EXI_CORE_SOCK_SERVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/heap.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

struct exi_sock;

/* The kind of a watched descriptor. */
enum exi_watch {
	EXI_WATCH_LINK,
	EXI_WATCH_LISTENER,
	EXI_WATCH_TCP,	     /* end of the connection underneath */
	EXI_WATCH_OPS,	     /* accept and connect operations; one shot */
	EXI_WATCH_CANDIDATE, /* + slot */
};

/* The thread's work, as callbacks, so that the thread does not depend on the
 * code it serves. Only the thread calls them, except for event; no lock is held
 * then. */
struct exi_service_work {
	/* A watched descriptor of the socket is ready. what: enum exi_watch;
	 * events: epoll's. Also from exi_service_dispatch(). */
	void (*event)(struct exi_sock *sk, unsigned int what, uint32_t events);
	/* exi_service_progress() asked for these directions, 1 << enum
	 * exi_dir. */
	void (*progress)(struct exi_sock *sk, uint32_t dirs);
	/* A descriptor of exi_service_watch_family() or
	 * exi_service_watch_told() is readable. */
	void (*family)(void);
	void (*told)(void);
	/* The descriptor of exi_service_watch_control() is readable, or that of
	 * exi_service_watch_capture() hung up. */
	void (*control)(void);
	/* A domain is readable. True: work is left, and the thread comes again
	 * before it sleeps. */
	bool (*domains)(void);
	/* Called before the thread sleeps: does what is due at now. Returns
	 * when to come again, in ns of exi_now_ns(); UINT64_MAX: nothing is
	 * awaited. */
	uint64_t (*due)(uint64_t now);
	/* Called at the end of each round of events. */
	void (*round_over)(void);
	/* Called between rounds, outside exi_fds_begin(). */
	void (*outside)(void);
	/* exi_service_tick() was called. Returns in how many ms to call again;
	 * 0: when exi_service_tick() is called again. */
	int (*tick)(void);
};

/* Sets the work, once, where the core starts, before exi_service_start(). All
 * members are set. */
void exi_service_serve(const struct exi_service_work *w);

/* A timer: the thread calls expired() at the deadline, and again until the
 * deadline is later or the timer is off. exi_service_untimed() may remove the
 * timer before that, while the socket's memory stays, so expired() takes the
 * socket. Overdue timers are called in the order of their deadlines, and none
 * twice before another that was overdue then. */
struct exi_timer {
	struct exi_heap node;
	_Atomic uint64_t deadline; /* exi_now_ns(); 0, off: none */
	struct exi_sock *sk;
	void (*expired)(struct exi_sock *sk);
};

/* Starts the thread if need be. -errno; -EPERM before exi_service_serve(). */
EXI_SHIM int exi_service_start(void);

/* Ends the thread, for calls that only a process with one thread can make, or
 * that it must not outlive; it is started again when it is needed. True when
 * there was one. Not from the thread itself. */
EXI_SHIM bool exi_service_stop(void);

/* Waits until the thread, if there is one, runs. Called before a fork that the
 * C library does not see: those of its calls that act on all threads, like
 * setuid(3), wait for a thread that was made to begin, and the child has no
 * such thread. */
void exi_service_begun(void);

/* Watches fd for the socket; events as epoll's. */
int exi_service_watch(struct exi_sock *sk, int fd, unsigned int what,
		      uint32_t events);
int exi_service_rewatch(struct exi_sock *sk, int fd, unsigned int what,
			uint32_t events);
void exi_service_unwatch(int fd);

/* The data that names a watched descriptor in an epoll set, and the call for an
 * event with that data. No lock held. */
uint64_t exi_service_data(struct exi_sock *sk, unsigned int what);
void exi_service_dispatch(uint64_t data, uint32_t events);

/* Watches the keeper's descriptor (family.h). */
int exi_service_watch_family(int fd);
/* Watches the descriptor by which processes of a family notify each other,
 * edge-triggered: from the beginning, and in every child. */
void exi_service_watch_told(int fd);

/* Watches the pipe of control.h, while there is a thread: none is started for
 * it. */
void exi_service_watch_control(int fd);

/* Watches the pipe that a reader of a capture holds open, for its hang-up. */
int exi_service_watch_capture(int fd);

/* Watches a domain's event descriptor, once; before anything is posted or
 * armed there. */
int exi_service_domain(struct exi_domain *d);

/* Have the thread wait for the timer, or no longer. Call exi_service_timed()
 * again if the deadline may have become earlier. */
void exi_service_timed(struct exi_timer *t);
void exi_service_untimed(struct exi_timer *t);

/* True: timers expire late, and work that needs none is better done without. */
bool exi_service_is_late(void);

/* Has the service thread make the progress of the direction soon. Any lock of
 * the socket may be held. */
int exi_service_progress(struct exi_sock *sk, enum exi_dir dir);

/* Unattended progress may be needed soon: makes the thread tick. */
void exi_service_tick(void);

/* Has the thread call fn with no lock held before it waits again. Called by the
 * thread itself, and always with the same function. */
EXI_SHIM void exi_service_later(void (*fn)(void));

/* A time-out was set: the thread computes anew when to wake. */
void exi_service_reschedule(void);

/* Whether there is a thread: for work that only a process with one leaves to
 * it. */
bool exi_service_runs(void);

/* True in the service thread. */
EXI_SHIM bool exi_service_self(void);

/* The child after fork: has no service thread, and starts one when there is
 * work. */
void exi_service_forked(void);

#endif
