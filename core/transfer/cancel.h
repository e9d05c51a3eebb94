/* SPDX-License-Identifier: BSD-2-Clause */
/* Cancelling transfers of a socket. */
#ifndef EXI_CORE_TRANSFER_CANCEL_H
#define EXI_CORE_TRANSFER_CANCEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/exs.h>

#include "core/fabric/provider.h"

struct exi_sock;

/* Marks operations of a direction (all, or those with the handle) to be
 * cancelled; returns how many. */
int exi_flow_cancel(struct exi_sock *sk, enum exi_dir dir, bool any,
		    exs_ahandle_t a);

/* Cancels operations whose deadline is not after now; *next becomes the
 * earliest deadline of the others, if that is sooner. */
void exi_flow_expire(struct exi_sock *sk, enum exi_dir dir, uint64_t now,
		     uint64_t *next);

/* Cancels everything and waits until no transfer is in flight. */
void exi_flow_stop(struct exi_sock *sk);

#endif
