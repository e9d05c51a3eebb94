/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that the service of the process watches for a device. */
#ifndef EXI_CORE_RMA_WATCH_H
#define EXI_CORE_RMA_WATCH_H

#include <pthread.h>
#include <stdint.h>

struct exi_host;
struct exi_rma_event;

/* What the library gave the module; set before any other call. */
extern const struct exi_host *exi_rma_host;

/* Guards what the service does: meetings, links that come and go. Taken inside
 * the core's locks, so the core is not called with it. */
extern pthread_mutex_t exi_rma_service_lock;

int exi_rma_watch(int fd, struct exi_rma_event *e);
/* Only when more comes. */
int exi_rma_watch_edge(int fd, struct exi_rma_event *e);
/* Once, by EPOLLIN or EPOLLOUT, until this is called again. */
int exi_rma_watch_once(int fd, struct exi_rma_event *e, uint32_t events);

void exi_rma_unwatch(int fd);

/* exi_rma_work.look and the fabric's look are called then, at the latest. The
 * service lock is held. */
void exi_rma_look_at(uint64_t when);

#endif
