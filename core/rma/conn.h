/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables through which the core calls a connection over a device; see
 * conn.c. */
#ifndef EXI_CORE_RMA_CONN_H
#define EXI_CORE_RMA_CONN_H

#include "core/fabric/provider.h"

/* Opens the fabric's domain, with the timed work of all files of this folder. 0
 * or -errno. */
int exi_rma_open(struct exi_domain **ret);

/* The tables: moving bytes, switching, loans. */
extern const struct exi_conn_ops exi_rma_conn_ops;
extern const struct exi_switch_ops exi_rma_switch_ops;
extern const struct exi_loan_ops exi_rma_loan_ops;

#endif
