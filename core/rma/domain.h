/* SPDX-License-Identifier: BSD-2-Clause */
/* What the service of the process waits for. */
#ifndef EXI_CORE_RMA_DOMAIN_H
#define EXI_CORE_RMA_DOMAIN_H

#include <stdint.h>

#include "core/base/list.h"
#include "core/fabric/provider.h"

struct exi_rma_event;
struct exi_rma_work;

/* Stops watching for a tenth of a second. What it tells of cannot be taken, as a
 * connection for which there is no descriptor, and would be told of again and
 * again. */
void exi_rma_rest(int fd, struct exi_rma_event *e);

extern const struct exi_domain_ops exi_rma_domain_ops;
int exi_rma_domain_open(const struct exi_rma_work *w, struct exi_domain **ret);
void exi_rma_domain_close(struct exi_domain *d);

extern int exi_domain_epoll_fd;

extern struct exi_list exi_domain_resting;

extern int exi_domain_timer_fd;

extern uint64_t exi_domain_next_look;

#endif
