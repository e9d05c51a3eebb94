/* SPDX-License-Identifier: BSD-2-Clause */
/* How B looks whether A waits for it: when, and its first messages. */
#ifndef EXI_CORE_MEET_LOOK_H
#define EXI_CORE_MEET_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct exi_sock;

/* Called when a mark was passed: leaves the look to the service thread, so that
 * the program's call does not make the up to forty system calls of a look.
 * Returns false if the caller is to look, by exi_look_locked(), because
 * - no service thread runs: a process that meets no peer needs none;
 * - the caller is that thread;
 * - the service is late, or the calling thread is under a filter of system
 *   calls, which the service's look would not notice;
 * - the connection was handed on, or this process does not own it.
 *
 * If the connection is closed before the look, or its number reused, the look
 * finds nothing to do, because it compares the kernel's name of the socket. If
 * another mark is passed, this look serves both, unless the service is late
 * with it. After a fork the look waits until a process uses the connection.
 * link_lock held. */
bool exi_look_note_locked(struct exi_sock *sk);

/* Looks, when a mark was passed. Returns EXS_X_REASON_NONE if A is there, else
 * the reason for not meeting. UNDECIDED: A may come, and B looks again at the
 * next mark. After the last mark B looks by time, although the reason is then
 * that the peer is plain. link_lock held. */
int exi_look_locked(struct exi_sock *sk);

/* The first look of an eager B, now or soon; the service repeats it while A is
 * not there. link_lock held. */
void exi_look_first_locked(struct exi_sock *sk, bool now);

/* Called when a forked child uses a connection and becomes its owner, while the
 * parent was to look for the peer: the child looks instead. link_lock held. */
void exi_look_inherited_locked(struct exi_sock *sk);

/* Called when the time of a look has come. link_lock held. */
void exi_look_expired_locked(struct exi_sock *sk);

/* Whether this end has looked as often as it takes to find a peer that has the
 * library. link_lock held. */
bool exi_look_done_locked(const struct exi_sock *sk);

/* Called when B cannot meet: informs A of the reason, so that A need not wait,
 * if the other end is A. */
void exi_look_decline(int fd, int reason);

/* Called when B does not meet for this reason, but may later: informs A, which
 * goes on to wait, once. Does nothing for an end that connected. link_lock
 * held. */
void exi_look_kept_locked(struct exi_sock *sk, int reason);

#endif
