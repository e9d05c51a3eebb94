/* SPDX-License-Identifier: BSD-2-Clause */
/* Cancels the operations of a descriptor, or of all. */
#ifndef EXI_CORE_LIFE_CANCEL_H
#define EXI_CORE_LIFE_CANCEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/exs.h>

struct exi_sock;

/* Cancels operations of a socket; returns how many. any: whatever their
 * handle. */
int exi_lifecycle_cancel(struct exi_sock *sk, bool any, exs_ahandle_t a);
/* Cancels the operations whose deadline is at or before now; sets *next to the
 * earliest other deadline if that is sooner. */
void exi_lifecycle_expire(struct exi_sock *sk, uint64_t now, uint64_t *next);
/* Cancels operations of a descriptor, or those with the handle on all
 * descriptors; returns how many cancellations were requested. */
int exi_cancel_fd(int fd, bool any, exs_ahandle_t a);
int exi_cancel_all(exs_ahandle_t a);

#endif
