/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations whose buffers the fabric's device has: it places the peer's bytes
 * into a receive, and sends bytes from the program's memory, without a copy.
 * For fabrics with EXI_CAP_PLACE; others never get a buffer.
 *
 * An operation stays in its socket's list until its buffer belongs to it again,
 * whatever happens to the connection (exi_op.lent). Receives are lent from the
 * first on. Called with the direction's lock held, unless stated otherwise. */
#ifndef EXI_CORE_TRANSFER_PLACE_H
#define EXI_CORE_TRANSFER_PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/fabric/provider.h"

struct exi_op;
struct exi_sock;

/* The first operation with bytes that neither the device nor the peer has;
 * null. */
struct exi_op *exi_place_first(struct exi_sock *sk, enum exi_dir dir);

/* Whether some operation of the direction is lent. */
bool exi_place_lent(struct exi_sock *sk, enum exi_dir dir);

/* The direction could move more, but no operation would: all are lent, or the
 * first that is not waits for a place. Only what exi_place_reap_locked() and
 * exi_place_give() look for ends a wait. */
bool exi_place_waits(struct exi_sock *sk, enum exi_dir dir);

/* Nothing has come: lends more receives, from the first on, while they are
 * worth it. Returns whether it lent any. */
bool exi_place_lend(struct exi_sock *sk);

/* Sends from the operation's buffer, if it is large and the peer has a place
 * for it: returns the number of bytes. -EAGAIN: it is not, or has none.
 * -EALREADY: the operation waits for a place, and does not move in another way
 * meanwhile; progress will be called when the place came, or did not come in
 * time. */
ssize_t exi_place_give(struct exi_sock *sk, struct exi_op *op);

/* Whether the peer has a place for the bytes that are sent next, or is likely
 * to soon. */
bool exi_place_welcome(struct exi_sock *sk);

/* Finishes operations that are complete. */
void exi_place_reap_locked(struct exi_sock *sk, enum exi_dir dir);

/* A lent operation was cancelled: a receive comes back, with ECANCELED or the
 * bytes that came before; of a send, the bytes in flight are sent, and no
 * more. */
void exi_place_recall_locked(struct exi_sock *sk, enum exi_dir dir,
			     struct exi_op *op);

/* The receiver releases everything. True: the direction may be given back. */
bool exi_place_quiet_locked(struct exi_sock *sk);

/* Bytes of the direction that were not copied. */
uint64_t exi_place_bytes(struct exi_sock *sk, enum exi_dir dir);

/* The peer rang the doorbell: perhaps it wants a buffer back. The link's lock
 * is held. */
void exi_place_answer_locked(struct exi_sock *sk);

/* The fabric has failed, and the bytes that it holds cannot be sent another way
 * either: every send that is lent ends. TX lock held. */
void exi_place_forsake_locked(struct exi_sock *sk);

/* Waits, for patience_ns at most, until nothing of the socket is lent, then
 * makes sure of it. No lock is held. */
void exi_place_stop(struct exi_sock *sk, uint64_t patience_ns);

#endif
