/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether to meet, and the first step. */
#ifndef EXI_CORE_MEET_BEGIN_H
#define EXI_CORE_MEET_BEGIN_H

#include <stdbool.h>

struct exi_link;
struct exi_shared;
struct exi_sock;
struct exi_tuple;

/* TX or RX traffic passed half.meet_at: do what the rendezvous wants. No lock
 * held. */
void exi_link_meet(struct exi_sock *sk, int fd);

/* Arms the triggers of a new connection. eager: both ends were told to meet,
 * whatever the traffic. */
void exi_link_expect(struct exi_sock *sk, bool eager);

bool exi_begin_is_over(const struct exi_link *l);

void exi_begin_later_locked(struct exi_sock *sk);

int exi_begin_await_remote(struct exi_sock *sk, int fd);

int exi_begin_nobody(const struct exi_tuple *t);

int exi_begin_may_meet(struct exi_sock *sk, int fd, struct exi_tuple *ret);

void exi_begin_no_marks(struct exi_shared *sh);

void exi_begin_meeting_expired(struct exi_sock *sk);

#endif
