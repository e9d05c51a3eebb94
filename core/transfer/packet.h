/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages over the bytes of a connection (SOCK_SEQPACKET): what goes around
 * each, on every fabric the same, and what is kept of one between two calls.
 *
 * Nothing is moved here. message.c asks what comes next, moves it as the bytes
 * of any stream, and says how many went or came. So a message is whole wherever
 * its bytes go: on TCP, on a fabric, or on the way from one to the other.
 *
 * A message that has begun belongs to the operation that began it until it is
 * over, and is never given up halfway. Of a receive that ends before, what came
 * is kept for the next one (exi_packet_keep()); of a call that sends and may
 * not wait, the library sends the rest (exi_packet_rest()).
 *
 * The peer is not trusted: a length is only believed as bytes come, and no
 * memory is asked for by it.
 *
 * All calls with the lock of the direction held, of a socket that is framed,
 * unless said otherwise. */
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

/* Before an operation is taken: -EMSGSIZE, it is too long; -EOPNOTSUPP, its
 * flags are for streams; -EPROTOTYPE, -EPROTO: the peer sends no messages. No
 * lock is needed. */
int exi_packet_check(struct exi_sock *sk, struct exi_op *op);

/* --- receiving ---------------------------------------------------------- */

/* Where bytes are to go next: how many at most. 0: the operation has its
 * message. -EBUSY: another process is within one. -ENOMEM. -EPROTOTYPE,
 * -EPROTO. */
ssize_t exi_packet_want(struct exi_sock *sk, struct exi_op *op, void **ret);

/* The room for what did not fit and nobody wants, as exi_packet_want(). 0:
 * nothing of the message is left. */
ssize_t exi_packet_skip(struct exi_sock *sk, void **ret);

/* n bytes of the message came; n == 0: the end of the stream. 0: ask again. 1:
 * the operation is over without a message, for there are no more. -ECONNRESET:
 * the end came within a message. -EPROTOTYPE: the peer sends no messages,
 * -EPROTO: bytes that cannot be one; both last. */
int exi_packet_came(struct exi_sock *sk, struct exi_op *op, size_t n);

/* n bytes were put into the operation without those. */
void exi_packet_placed(struct exi_sock *sk, size_t n);

/* The operation is to end before its message has come: keeps what did. False:
 * there is no memory, and it must go on. */
bool exi_packet_keep(struct exi_sock *sk, struct exi_op *op);

/* The next receive finds a whole message that was kept, or fails. */
bool exi_packet_there(const struct exi_sock *sk);

/* --- sending ------------------------------------------------------------ */

/* Whether the operation's head went: its bytes follow as those of a stream. */
static inline bool exi_packet_headed(const struct exi_op *op)
{
	return op->head_len && op->head == op->head_len;
}

/* Puts what is left of a head, and the message if it fits, side by side, and
 * more messages that wait behind it if they do. How many bytes; *ret_more: the
 * message's own follow. */
size_t exi_packet_gather(struct exi_sock *sk, struct exi_op *op,
			 char room[EXI_PACKET_ROOM], bool *ret_more);

/* What the kernel can send by itself: at most len bytes that stay where they
 * are. */
size_t exi_packet_run(struct exi_sock *sk, struct exi_op *op, void **ret);

/* Up to n bytes of it went: so many. */
size_t exi_packet_went(struct exi_sock *sk, struct exi_op *op, size_t n);

/* All of it did. */
static inline bool exi_packet_sent(const struct exi_op *op)
{
	return exi_packet_headed(op) && op->done == op->len;
}

/* Another process is within a message: -EBUSY; 0. */
int exi_packet_turn(const struct exi_sock *sk);
/* Notes whether this one is now. */
void exi_packet_note(struct exi_sock *sk, const struct exi_op *op);

/* Makes an operation of the library's own of what is left, which takes the
 * place of the other in its list. -ENOMEM: nothing has changed. Others are as
 * of reading a file: the message cannot be sent. */
int exi_packet_rest(struct exi_op *op);

/* --- both --------------------------------------------------------------- */

/* The operation ends, err is why or 0: sets what its event tells. True: it was
 * within a message that it sent, and the direction is of no use any more. */
bool exi_packet_over_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err);

#endif
