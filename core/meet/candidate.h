/* SPDX-License-Identifier: BSD-2-Clause */
/* Candidates: strangers that connect to A's meeting name, until one of them has
 * proved to be the peer. */
#ifndef EXI_CORE_MEET_CANDIDATE_H
#define EXI_CORE_MEET_CANDIDATE_H

#include "core/base/util.h"

struct exi_sock;

/* Called when descriptors are short: gives up the meetings under way. Returns
 * how many. */
EXI_SHIM int exi_link_reclaim(void);

/* Called when A's listener is readable: accepts connections to the meeting name
 * as candidates. The service calls it, without locks. */
void exi_link_listener_event(struct exi_sock *sk);
void exi_link_candidate_event(struct exi_sock *sk, unsigned int slot);

/* Called before the program reads or sets an option of the socket: if a meeting
 * uses the option, ends the meeting and restores the option. No lock held. */
void exi_link_option(struct exi_sock *sk, int level, int name);

/* Ends a meeting that is not done: sends NO with the reason `told' to the peer,
 * or to each candidate, and gives up. Where another process gets this end, NO
 * says `not now', and the peer goes on waiting. link_lock held. */
void exi_candidate_part_locked(struct exi_sock *sk, int told, int reason);

/* Called before a fork: ends a meeting under way, which is put off at both ends
 * until a process uses the connection. The meeting would be lost if this
 * process closes its descriptor and leaves the connection to the child. No lock
 * held, except that a signal handler that forks may have interrupted one. */
void exi_candidate_fork(struct exi_sock *sk);

/* Gives up a meeting that is not done, to free descriptors. arg points to an
 * int that counts them. For exi_sock_each(), without locks. */
void exi_candidate_give_up(struct exi_sock *sk, void *arg);

#endif
