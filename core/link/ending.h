/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a pair link, and the loss of its peer. */
#ifndef EXI_CORE_LINK_ENDING_H
#define EXI_CORE_LINK_ENDING_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_link;
struct exi_pair_msg;
struct exi_sock;

/* Called when both directions are on TCP for good, and this process forgets the
 * connection. Ends the link even if a forked process has it, which would not
 * answer the peer before it uses the connection. Informs a peer that is meeting
 * this end or waits for it. Applies only to the link of that generation's
 * socket. No lock held. */
EXI_SHIM void exi_link_over(struct exi_sock *sk, uint32_t generation);

/* Called if exi_link_part() returned false and the connection is still not on
 * TCP after a call's whole wait: the peer was silent, or TCP had no room for
 * bytes that the peer's program did not read. Resets the socket of that
 * generation, and no other in its place. No lock held. */
EXI_SHIM void exi_link_unanswered(struct exi_sock *sk, uint32_t generation);

/* Wakes every sleeper of both directions and moves operations. No half is
 * locked. */
void exi_ending_wake_all(struct exi_sock *sk);

/* Called when the peer's doorbell rang: wakes the threads that requested it,
 * and moves operations. The peer itself wakes sleepers on words. No half is
 * locked. */
void exi_ending_bell(struct exi_sock *sk);

/* Called when the pair link hung up: whether the peer is not to count as gone
 * yet. A process that ends closes its link and its stream one after the other,
 * in any order, and what it left unread is known when its stream has ended:
 * until then, for a second at most, nothing has changed for calls, as if the
 * hang-up came later. The end of the stream, or the link's timer, has the link
 * read again. Only of a stream that ends both directions. link_lock held, no
 * half is locked. */
bool exi_ending_waits_locked(struct exi_sock *sk);

/* Called when the pair link hung up: the connection continues over TCP, or the
 * peer is gone. link_lock held, no half is locked. */
void exi_ending_hung_up_locked(struct exi_sock *sk);

/* Called for an invalid message: resets the connection, and ignores the peer's
 * further messages. Locks as for exi_ending_hung_up_locked(). */
void exi_ending_violated_locked(struct exi_sock *sk,
				const struct exi_pair_msg *m);

/* Called when TCP has ended and the link is up: asks the peer (FINSEEN) whether
 * it is alive. link_lock held. */
void exi_ending_ask_locked(struct exi_sock *sk);

/* Restarts the time that the peer has for its next answer. The connection's
 * link_lock is held. */
void exi_ending_be_patient(struct exi_link *l);

/* Handles a FINSEEN, a question or an answer. Returns 0. link_lock held. */
int exi_ending_on_finseen(struct exi_sock *sk, const struct exi_pair_msg *m);

/* Called when the time for an answer is over: within a host the peer is alive;
 * between hosts asks again, or hangs up on a peer that was silent for too long.
 * link_lock held. */
void exi_ending_ask_again_locked(struct exi_sock *sk);

/* Called when TCP is readable. Returns whether sleepers are to look again: the
 * peer has left a fabric between hosts that this end still has, or continues
 * over TCP because this end left. link_lock held, no half is locked. */
bool exi_ending_fabric_left_locked(struct exi_sock *sk);

/* Whether the peer may have died with unread bytes, which a reset would report:
 * a peer that is alive answers, the link of a dead one hangs up in a moment.
 * ended: from exi_tcp_ended(). link_lock held, no half is locked. */
bool exi_ending_may_be_dying_locked(struct exi_sock *sk, short ended);

/* Why the connection is on TCP, as users are told: a peer that closed it in
 * order before a byte was on a fabric was not lost. No lock is needed. */
int exi_link_reason(struct exi_sock *sk);

/* The reason of a connection that ends now; link_lock held. It is no longer
 * EXS_X_REASON_UNDECIDED only because the peer may still come, or because this
 * end may look for it again. */
EXI_SHIM int exi_link_last_reason_locked(struct exi_sock *sk, int fd);

#endif
