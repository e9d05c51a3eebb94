/* SPDX-License-Identifier: BSD-2-Clause */
/* The epoll set and the timer of a fabric, which the service thread serves. */
#ifndef EXI_CORE_RMA_DOMAIN_H
#define EXI_CORE_RMA_DOMAIN_H

#include <stdint.h>

#include "core/base/list.h"
#include "core/fabric/provider.h"

struct exi_rma_event;
struct exi_rma_work;

/* Stops watching fd for a tenth of a second. It is for an event that cannot be
 * handled yet, such as a connection for which no descriptor is free: the set
 * would stay readable all the time. The service lock is held. */
void exi_rma_pause(int fd, struct exi_rma_event *e);

/* The table through which the core calls a domain, and the calls that open and
 * close one. */
extern const struct exi_domain_ops exi_rma_domain_ops;
int exi_rma_domain_open(const struct exi_rma_work *w, struct exi_domain **ret);
void exi_rma_domain_close(struct exi_domain *d);

/* The epoll set; -1: the domain is not open. */
extern int exi_rma_epoll_fd;

/* Paused events (exi_rma_pause()), the one that resumes first at the head. */
extern struct exi_list exi_rma_paused;

/* The timer in the epoll set; -1: none. */
extern int exi_rma_timer_fd;

/* The time the timer is set to (CLOCK_MONOTONIC ns); UINT64_MAX: not set. */
extern uint64_t exi_rma_next_tick;

#endif
