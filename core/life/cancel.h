/* SPDX-License-Identifier: BSD-2-Clause */
/* Cancelling operations of a descriptor, or of all. */
#ifndef EXI_CORE_LIFE_CANCEL_H
#define EXI_CORE_LIFE_CANCEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/exs.h>

struct exi_sock;

/* Cancels those of a socket; how many. */
int exi_lifecycle_cancel(struct exi_sock *sk, bool any, exs_ahandle_t a);
/* Those whose deadline is not after now; *next becomes when that of the others
 * comes, if it is sooner. */
void exi_lifecycle_expire(struct exi_sock *sk, uint64_t now, uint64_t *next);
/* Cancels operations of a descriptor, or with the handle on all; how many were
 * asked. */
int exi_cancel_fd(int fd, bool any, exs_ahandle_t a);
int exi_cancel_all(exs_ahandle_t a);

#endif
