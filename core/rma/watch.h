/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that the service thread watches for a device, and the time at
 * which it looks. */
#ifndef EXI_CORE_RMA_WATCH_H
#define EXI_CORE_RMA_WATCH_H

#include <pthread.h>
#include <stdint.h>

struct exi_host;
struct exi_rma_event;

/* The calls that the library gave the module; set before any other call. */
extern const struct exi_host *exi_rma_host;

/* Guards what the service does: meetings, links that come and go. Taken inside
 * the core's locks, so the core is not called with it held. */
extern pthread_mutex_t exi_rma_service_lock;

/* Watches a descriptor until exi_rma_unwatch(): e is called while it is
 * readable. 0 or -errno. */
int exi_rma_watch(int fd, struct exi_rma_event *e);
/* Watches edge-triggered: e is called only when more comes. */
int exi_rma_watch_edge(int fd, struct exi_rma_event *e);
/* Watches for EPOLLIN or EPOLLOUT: one event for each call. */
int exi_rma_watch_once(int fd, struct exi_rma_event *e, uint32_t events);

/* Stops watching; before the descriptor is closed. */
void exi_rma_unwatch(int fd);

/* Has exi_rma_work.look and the fabric's look called by the time `when`. The
 * service lock is held. */
void exi_rma_tick_at(uint64_t when);

#endif
