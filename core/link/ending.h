/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a pair link, and of its peer. */
#ifndef EXI_CORE_LINK_ENDING_H
#define EXI_CORE_LINK_ENDING_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_link;
struct exi_pair_msg;
struct exi_sock;

/* Both directions are on TCP for good, and this process forgets the connection:
 * the link ends also where a forked process has it, which would not answer the
 * peer before it uses the connection. A peer that meets us just now, or waits
 * for us, is told. The link of that generation's socket, and of no other. No
 * lock held. */
EXI_SHIM void exi_link_over(struct exi_sock *sk, uint32_t generation);

/* Where exi_link_part() is false, and the connection is not on TCP after as
 * long as a call waits: a reset of that socket, and of no other that has its
 * place. The peer was silent, or TCP had no room for what its program did not
 * read. No lock held. */
EXI_SHIM void exi_link_unanswered(struct exi_sock *sk, uint32_t generation);

/* Wakes every sleeper of both directions and moves operations. No half is
 * locked. */
void exi_ending_wake_all(struct exi_sock *sk);

/* The peer's doorbell was heard: wakes those who asked for it, and moves
 * operations. Sleepers on words are woken by the peer itself. No half is
 * locked. */
void exi_ending_bell(struct exi_sock *sk);

/* The pair link hung up: the connection goes on over TCP, or the peer is gone.
 * link_lock held, no half is locked. */
void exi_ending_hung_up_locked(struct exi_sock *sk);

/* An invalid message resets the connection, and what else the peer says is not
 * heard. As exi_ending_hung_up_locked(). */
void exi_ending_violated_locked(struct exi_sock *sk,
				const struct exi_pair_msg *m);

/* TCP has ended and the link is up: asks the peer (FINSEEN) whether it lives.
 * link_lock held. */
void exi_ending_ask_locked(struct exi_sock *sk);

/* Gives the peer the whole time again for its next answer. The connection's
 * link_lock is held. */
void exi_ending_be_patient(struct exi_link *l);

/* Takes a FINSEEN, a question or an answer. Always 0. link_lock held. */
int exi_ending_on_finseen(struct exi_sock *sk, const struct exi_pair_msg *m);

/* The time for an answer is over: within a host the peer lives; between hosts
 * asks again, or hangs up on a peer that was silent for too long. link_lock
 * held. */
void exi_ending_ask_again_locked(struct exi_sock *sk);

/* TCP is readable: whether sleepers are to look, since the peer has left a
 * fabric between hosts that still stands here, or goes on over TCP since this
 * end left. link_lock held, no half is locked. */
bool exi_ending_fabric_left_locked(struct exi_sock *sk);

/* Whether the peer may have died with bytes unread, which a reset tells: a peer
 * that lives answers, the link of a dead one hangs up in a moment. ended: of
 * exi_tcp_ended(). link_lock held, no half is locked. */
bool exi_ending_may_be_dying_locked(struct exi_sock *sk, short ended);

#endif
