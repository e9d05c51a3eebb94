/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls on a connection that has not lasted yet. */
#ifndef EXI_CORE_CALL_LATENT_CALL_H
#define EXI_CORE_CALL_LATENT_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

struct exi_latent_call;
struct exi_sock;

/* The end of a call that began while the connection, now sk, was latent. */
void exi_flow_latent_over(struct exi_sock *sk, const struct exi_latent_call *c,
			  ssize_t n);
/* The latent connection fd is to wake, for enough was received. */
void exi_flow_latent_promoted(int fd);

/* Counts the thread in, before a call of the kernel that moves up to n bytes of
 * a latent connection; *c is for exi_latent_leave(). False: the connection is
 * not latent, or must become a socket before the call. */
EXI_SHIM bool exi_latent_enter(struct exi_latent_call *c, int fd,
			       enum exi_dir dir, size_t n);
EXI_SHIM void exi_latent_leave(const struct exi_latent_call *c, ssize_t n);

#endif
