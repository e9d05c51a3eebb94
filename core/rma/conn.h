/* SPDX-License-Identifier: BSD-2-Clause */
/* One connection over a device: its tables for the core. */
#ifndef EXI_CORE_RMA_CONN_H
#define EXI_CORE_RMA_CONN_H

#include "core/fabric/provider.h"

/* Opens the domain with the work of all that is in these files (rma_conn.c). */
int exi_rma_open(struct exi_domain **ret);

extern const struct exi_conn_ops exi_rma_conn_ops;
extern const struct exi_switch_ops exi_rma_switch_ops;
extern const struct exi_loan_ops exi_rma_loan_ops;

#endif
