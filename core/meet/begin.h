/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether to meet, and A's first step. */
#ifndef EXI_CORE_MEET_BEGIN_H
#define EXI_CORE_MEET_BEGIN_H

#include <stdbool.h>
#include <stdint.h>

struct exi_keyed;
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

/* exi_link_expect() for a connection whose first bytes may have moved already:
 * it meets when more of them pass a mark, and not in this call. Any of its
 * locks may be held. */
void exi_link_expect_later(struct exi_sock *sk);

/* The connection looks for a peer anew (again.h), when as many bytes have
 * passed as a new one has before it meets. Any of its locks may be held. */
void exi_begin_again(struct exi_sock *sk);

/* Whether the time of the link's present step is over. link_lock held. */
bool exi_begin_is_over(const struct exi_link *l);

/* Waits for the peer on fd, the link that a fabric between hosts gave, which
 * belongs to the connection from here on. The reason (EXS_X_REASON_*) of a
 * failure, else EXS_X_REASON_NONE. link_lock held. */
int exi_begin_await_remote_locked(struct exi_sock *sk, int fd);

/* Whether the connection may try to meet, and between which addresses (*ret):
 * 0, or the reason (EXS_X_REASON_*). */
int exi_begin_may_meet(struct exi_sock *sk, int fd, struct exi_tuple *ret);

/* The connection is the program's from here on, and no link is up: a peer that
 * meets us just now, or waits for us, is told so, and a meeting is over.
 * link_lock held. */
void exi_begin_part_locked(struct exi_sock *sk);

/* 0: the peer is on this host, or 1: on another, or every fabric within a host
 * is left out. -errno: it cannot be told. */
int exi_begin_is_remote(const struct exi_sock *sk, const struct exi_tuple *t);

/* A socket for a meeting by the key, wherever its other end is. -errno. */
int exi_begin_keyed_socket(void);

/* Such a meeting; null without memory. connects: t is A's view. */
struct exi_keyed *exi_begin_keyed(const struct exi_tuple *t, bool connects);

/* The timer of a meeting ended: looks again, or gives up. Does nothing if the
 * link came up meanwhile. No lock is held. */
void exi_begin_expired(struct exi_sock *sk);

#endif
