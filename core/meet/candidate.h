/* SPDX-License-Identifier: BSD-2-Clause */
/* Candidates: strangers who connect to the meeting name of A, until one has
 * proved to be the peer. */
#ifndef EXI_CORE_MEET_CANDIDATE_H
#define EXI_CORE_MEET_CANDIDATE_H

#include "core/base/util.h"

struct exi_sock;

/* Descriptors are short: gives up the meetings that are under way. How many. */
EXI_SHIM int exi_link_reclaim(void);

/* A's listener is readable: takes those who connected to the meeting name in as
 * candidates. The service calls it, without locks. */
void exi_link_listener_event(struct exi_sock *sk);
void exi_link_candidate_event(struct exi_sock *sk, unsigned int slot);

/* The program is about to read or set an option of the socket: if a meeting
 * uses it just now, that is over, and the option is what it was. No lock
 * held. */
void exi_link_option(struct exi_sock *sk, int level, int name);

/* Ends a meeting that is not done: says NO with the reason told to the peer, or
 * to each who may be it, and gives up. link_lock held. */
void exi_candidate_part_locked(struct exi_sock *sk, int told, int reason);

/* Gives up a meeting that is not done, so that descriptors become free; arg
 * points to an int that counts them. For exi_sock_each(), without locks. */
void exi_candidate_give_up(struct exi_sock *sk, void *arg);

#endif
