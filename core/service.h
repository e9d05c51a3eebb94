/* SPDX-License-Identifier: BSD-2-Clause */
/* The service thread: one per process, made at first need, remade after fork.
 * It reads the pair links, accepts meetings, finishes drains, serves
 * operations that wait for readiness, and makes the progress of asynchronous
 * operations while the program is elsewhere. */
#ifndef EXI_CORE_SERVICE_H
#define EXI_CORE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sock.h"

/* What a watched descriptor is to its socket. */
enum exi_watch {
	EXI_WATCH_LINK,
	EXI_WATCH_LISTENER,
	EXI_WATCH_TCP,	     /* end of the connection underneath */
	EXI_WATCH_OPS,	     /* accept and connect operations; one shot */
	EXI_WATCH_CANDIDATE, /* + slot */
};

/* Starts the thread if need be. -errno. */
EXI_SHIM int exi_service_start(void);

/* Ends the thread, for calls that only a process with one thread can make, or
 * that it must not outlive; it is started again when it is needed. True when
 * there was one. Not from the thread itself. */
EXI_SHIM bool exi_service_stop(void);

/* The thread, if there is one, runs. Before a fork that the C library does not
 * see: its calls that are for all threads, like setuid(3), wait for one that was
 * made to begin, and the child has no thread that could. */
void exi_service_begun(void);

/* Watches fd for the socket; events as epoll's. */
int exi_service_watch(struct exi_sock *sk, int fd, unsigned int what,
		      uint32_t events);
int exi_service_rewatch(struct exi_sock *sk, int fd, unsigned int what,
			uint32_t events);
void exi_service_unwatch(int fd);

/* What names a watched descriptor in an epoll set, and what is done when that
 * tells of it. No lock held. */
uint64_t exi_service_data(struct exi_sock *sk, unsigned int what);
void exi_service_dispatch(uint64_t data, uint32_t events);

/* Watches the keeper's descriptor (family.h). */
int exi_service_watch_family(int fd);
/* The one by which processes of a family tell each other. */
int exi_service_watch_told(int fd);

/* Watches a domain's event descriptor, once; before anything is posted or
 * armed there. */
int exi_service_domain(struct exi_domain *d);

/* Puts the socket's link among those with a deadline, or takes it off. */
void exi_service_timed(struct exi_link *l);
void exi_service_untimed(struct exi_link *l);

/* Has the service thread call exi_flow_progress() for the direction soon.
 * Any lock of the socket may be held. */
int exi_service_progress(struct exi_sock *sk, enum exi_dir dir);

/* Unattended progress may be needed soon: makes the thread tick. */
void exi_service_tick(void);

/* A time-out was set: the thread looks when to come. */
void exi_service_look(void);

/* True in the service thread. */
bool exi_service_self(void);

void exi_service_forked(void);

#endif
