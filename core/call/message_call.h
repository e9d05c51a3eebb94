/* SPDX-License-Identifier: BSD-2-Clause */
/* A call that sends or receives one message. */
#ifndef EXI_CORE_CALL_MESSAGE_CALL_H
#define EXI_CORE_CALL_MESSAGE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct exi_op;
struct exi_sock;

/* Moves one message on a socket of messages. op, on the caller's stack, has its
 * buffer or parts, and flags; its event_flags are set. Returns bytes or
 * -errno. */
ssize_t exi_flow_message(struct exi_op *op);

/* Waits until the rest of a message that a call left to the library is sent.
 * Returns false if it was not. No lock is held. */
bool exi_flow_flush(struct exi_sock *sk, uint64_t deadline_ns);

/* exi_flow_message() of one buffer; type: EXS_EVT_SEND or EXS_EVT_RECV. */
ssize_t exi_message_call_one(int type, int fd, void *buf, size_t len,
			     int flags);

#endif
