/* SPDX-License-Identifier: BSD-2-Clause */
/* The move of a connection to TCP after its queue pair, port or device failed:
 * what is sent again, and from where. */
#ifndef EXI_CORE_RMA_FAIL_H
#define EXI_CORE_RMA_FAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/fabric/provider.h"

/* The calls of struct exi_remote_ops (core/fabric/provider.h). */
int exi_rma_fail_sever(struct exi_conn *c);
void exi_rma_fail_leave(struct exi_conn *c);
bool exi_rma_fail_left(struct exi_conn *c);
uint32_t exi_rma_fail_position(struct exi_conn *c, enum exi_dir dir);
uint32_t exi_rma_fail_resend(struct exi_conn *c);
void exi_rma_fail_resume(struct exi_conn *c, enum exi_dir dir, uint32_t epoch,
			 uint64_t position, uint8_t ret[EXI_RESUME]);

#endif
