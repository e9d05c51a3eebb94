/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls on a latent connection, which is too young to be a socket
 * (core/meet/latent.h). */
#ifndef EXI_CORE_CALL_LATENT_CALL_H
#define EXI_CORE_CALL_LATENT_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

struct exi_latent_call;
struct exi_sock;

/* Ends a call that began while the connection, now sk, was latent. */
void exi_flow_latent_over(struct exi_sock *sk, const struct exi_latent_call *c,
			  ssize_t n);
/* Promotes the latent connection fd, which received enough bytes. */
void exi_flow_latent_promoted(int fd);

/* Counts the thread as inside, before a system call that moves up to n bytes of
 * a latent connection. *c is for exi_latent_leave(). Returns false if the
 * connection is not latent, or must become a socket first. */
EXI_SHIM bool exi_latent_enter(struct exi_latent_call *c, int fd,
			       enum exi_dir dir, size_t n);
EXI_SHIM void exi_latent_leave(const struct exi_latent_call *c, ssize_t n);

#endif
