/* SPDX-License-Identifier: BSD-2-Clause */
/* The drain: sending over TCP the bytes that the fabric holds. */
#ifndef EXI_CORE_TRANSFER_DRAIN_H
#define EXI_CORE_TRANSFER_DRAIN_H

#include <stddef.h>

struct exi_sock;

/* One step of sending over TCP what the fabric holds, sends that are lent
 * included: 0 when done, -EAGAIN, -errno. */
int exi_flow_drain_locked(struct exi_sock *sk);
/* After -EAGAIN: 0 if the service will continue, -EAGAIN to continue at
 * once. */
int exi_flow_await_drain_locked(struct exi_sock *sk);

/* Sender in EXI_MODE_DRAIN, TX lock held: what it has not sent goes into memory
 * that the caller frees, and the direction is on TCP; SO_LINGER stays what it
 * is in a drain. -ENOMEM: nothing has changed. */
int exi_flow_owed_locked(struct exi_sock *sk, char **ret, size_t *ret_n);

#endif
