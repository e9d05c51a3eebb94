/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations whose buffers the fabric's device has: it places what the peer
 * sends into a receive, and takes what is sent from where it lies, without a
 * copy. For fabrics with EXI_CAP_PLACE; of others nothing is ever lent.
 *
 * An operation stays in its socket's list until its buffer is its own again,
 * whatever becomes of the connection (exi_op.lent). Receives are lent from the
 * first on. Called with the direction's lock held, unless said otherwise. */
#ifndef EXI_CORE_TRANSFER_PLACE_H
#define EXI_CORE_TRANSFER_PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/fabric/provider.h"

struct exi_op;
struct exi_sock;

/* The first operation that has bytes which nobody has. Null. */
struct exi_op *exi_place_first(struct exi_sock *sk, enum exi_dir dir);

/* Some operation of the direction is lent. */
bool exi_place_lent(struct exi_sock *sk, enum exi_dir dir);

/* The direction could move more, but no operation would: all are lent, or the
 * first that is not waits for a place. Only what exi_place_reap_locked() and
 * exi_place_give() look for ends a wait. */
bool exi_place_waits(struct exi_sock *sk, enum exi_dir dir);

/* Nothing has come: lends more receives, from the first on, while they are
 * worth it. Whether it did. */
bool exi_place_lend(struct exi_sock *sk);

/* Sends from the operation's buffer, when it is large and the peer has a place
 * for it: so many bytes. -EAGAIN: not so. -EALREADY: it waits for one, and
 * moves no other way meanwhile; somebody will call progress when it came, or
 * did not in time. */
ssize_t exi_place_give(struct exi_sock *sk, struct exi_op *op);

/* The peer has a place for what is sent next, or is likely to soon. */
bool exi_place_welcome(struct exi_sock *sk);

/* Finishes what is over. */
void exi_place_reap_locked(struct exi_sock *sk, enum exi_dir dir);

/* A lent operation was cancelled: a receive comes back, with ECANCELED or what
 * came before; of a send what is under way is sent, and no more. */
void exi_place_recall_locked(struct exi_sock *sk, enum exi_dir dir,
			     struct exi_op *op);

/* The receiver lets go of everything. True: the direction may be given back. */
bool exi_place_quiet_locked(struct exi_sock *sk);

/* Bytes of the direction that were not copied. */
uint64_t exi_place_bytes(struct exi_sock *sk, enum exi_dir dir);

/* The peer's doorbell was heard: perhaps it wants something back. The link's
 * lock is held. */
void exi_place_answer_locked(struct exi_sock *sk);

/* The fabric has failed, and what it holds cannot be sent another way either:
 * every send that is lent ends. TX lock held. */
void exi_place_forsake_locked(struct exi_sock *sk);

/* Waits until nothing of the socket is lent, then makes sure of it. No lock is
 * held. */
void exi_place_stop(struct exi_sock *sk, uint64_t patience_ns);

#endif
