/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages over the bytes of a connection (SOCK_SEQPACKET): their framing, the
 * same on every fabric, and the part of a message that is kept between two
 * calls.
 *
 * Nothing is moved here. message.c asks what comes next, moves it like the
 * bytes of any stream, and reports how many went or came. So a message is whole
 * wherever its bytes go: on TCP, on a fabric, or on the way from one to the
 * other.
 *
 * A message that has begun belongs to the operation that began it until it is
 * over, and is never given up halfway. If a receive ends before its message,
 * the bytes that came are kept for the next one (exi_packet_keep()); if a call
 * that sends may not wait, the library sends the rest (exi_packet_rest()).
 *
 * The peer is not trusted: a length is trusted only as far as bytes come, and
 * no memory is allocated for it in advance.
 *
 * All calls are for a framed socket, with the lock of the direction held,
 * unless stated otherwise. */
#ifndef EXI_CORE_TRANSFER_PACKET_H
#define EXI_CORE_TRANSFER_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/transfer/op.h"

struct exi_sock;

/* The bytes of framed short messages that one call of the fabric sends. */
#define EXI_PACKET_ROOM 4096

/* Whether fd is a socket of messages. No lock is held. */
EXI_SHIM bool exi_packet_is(int fd);

/* Called before an operation is taken. -EMSGSIZE: it is too long; -EOPNOTSUPP:
 * its flags are for streams; -EPROTOTYPE, -EPROTO: the peer sends no messages.
 * No lock is needed. */
int exi_packet_check(struct exi_sock *sk, struct exi_op *op);

/* --- receiving ---------------------------------------------------------- */

/* Returns where bytes go next, and how many at most. 0: the operation has its
 * message. -EBUSY: another process is within one. -ENOMEM. -EPROTOTYPE,
 * -EPROTO. */
ssize_t exi_packet_want(struct exi_sock *sk, struct exi_op *op, void **ret);

/* The room for bytes that did not fit and are discarded, as exi_packet_want().
 * 0: nothing of the message is left. */
ssize_t exi_packet_skip(struct exi_sock *sk, void **ret);

/* n bytes of the message came; n == 0: the end of the stream. 0: call
 * exi_packet_want() again. 1: the operation is over without a message, for
 * there are no more. -ECONNRESET: the end came within a message. -EPROTOTYPE:
 * the peer sends no messages, -EPROTO: bytes that cannot be one; both last. */
int exi_packet_came(struct exi_sock *sk, struct exi_op *op, size_t n);

/* n bytes were put into the operation without these calls. */
void exi_packet_placed(struct exi_sock *sk, size_t n);

/* The operation is to end before its message has come: keeps the bytes that
 * came. False: there is no memory, and the operation must continue. */
bool exi_packet_keep(struct exi_sock *sk, struct exi_op *op);

/* Whether the next receive finds a whole message that was kept, or fails. */
bool exi_packet_there(const struct exi_sock *sk);

/* --- sending ------------------------------------------------------------ */

/* Whether the operation's head was sent: its bytes follow like those of a
 * stream. */
static inline bool exi_packet_headed(const struct exi_op *op)
{
	return op->head_len && op->head == op->head_len;
}

/* Puts the rest of a head, the message if it fits, and waiting messages behind
 * it if they fit, side by side. Returns how many bytes; *ret_more: the
 * message's own bytes follow. */
size_t exi_packet_gather(struct exi_sock *sk, struct exi_op *op,
			 char room[EXI_PACKET_ROOM], bool *ret_more);

/* What the kernel can send by itself: at most len bytes that stay where they
 * are. */
size_t exi_packet_run(struct exi_sock *sk, struct exi_op *op, void **ret);

/* n bytes went. Returns how many of them were the operation's. */
size_t exi_packet_went(struct exi_sock *sk, struct exi_op *op, size_t n);

/* Whether all of it was sent. */
static inline bool exi_packet_sent(const struct exi_op *op)
{
	return exi_packet_headed(op) && op->done == op->len;
}

/* -EBUSY: another process is within a message; otherwise 0. */
int exi_packet_turn(const struct exi_sock *sk);
/* Notes whether this process is now within a message. */
void exi_packet_note(struct exi_sock *sk, const struct exi_op *op);

/* Makes an operation of the library's own of what is left; it takes the other's
 * place in its list. -ENOMEM: nothing has changed. Other errors come from
 * reading a file: the message cannot be sent. */
int exi_packet_rest(struct exi_op *op);

/* --- both --------------------------------------------------------------- */

/* The operation ends with err, or 0: sets what its event reports. True: it was
 * within a message that it sent, and the direction can no longer be used. */
bool exi_packet_over_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err);

#endif
