/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides whether to meet, and takes A's first step. */
#ifndef EXI_CORE_MEET_BEGIN_H
#define EXI_CORE_MEET_BEGIN_H

#include <stdbool.h>
#include <stdint.h>

struct exi_keyed;
struct exi_link;
struct exi_shared;
struct exi_sock;
struct exi_tuple;

/* Called when TX or RX traffic passed half.meet_at: does what is due then. No
 * lock held. */
void exi_link_meet(struct exi_sock *sk, int fd);

/* Arms the triggers of a new connection. eager: the program asked both ends to
 * meet, whatever the traffic. */
void exi_link_expect(struct exi_sock *sk, bool eager);

/* The program asks for a connection again that stayed on TCP because one of its
 * ends was asked to keep it there, before any meeting: it meets if the peer
 * asks, too, within ten seconds. No lock held. */
void exi_link_ask(struct exi_sock *sk);

/* exi_link_expect() for a connection whose first bytes may have moved already:
 * it meets when more bytes pass a mark, not in this call. Any of its locks may
 * be held. */
void exi_link_expect_later(struct exi_sock *sk);

/* Makes the connection look for a peer again (again.h), after as many bytes as
 * a new one moves before it meets. Any of its locks may be held. */
void exi_begin_again(struct exi_sock *sk);

/* Begins to wait for the peer on fd, the link from a fabric between hosts,
 * which belongs to the connection from here on. Returns EXS_X_REASON_NONE, or
 * the reason (EXS_X_REASON_*) of a failure. link_lock held. */
int exi_begin_await_remote_locked(struct exi_sock *sk, int fd);

/* Whether the connection may try to meet, and between which addresses (*ret):
 * 0, or the reason (EXS_X_REASON_*). asked: its addresses, if they were asked
 * for just before; null: not asked. */
int exi_begin_may_meet(struct exi_sock *sk, int fd,
		       const struct exi_tuple *asked, struct exi_tuple *ret);

/* Called when the program takes over the connection and no link is up: informs
 * a peer that is meeting this end or waits for it, and ends the meeting.
 * link_lock held. */
void exi_begin_part_locked(struct exi_sock *sk);

/* Whether the peer is remote. 0: it is on this host. 1: it is on another, or
 * every fabric within a host is excluded. -errno: unknown. */
int exi_begin_is_remote(const struct exi_sock *sk, const struct exi_tuple *t);

/* Makes a socket for a meeting by the key, in any network namespace. -errno. */
int exi_begin_keyed_socket(void);

/* Makes the state of such a meeting; null without memory. connects: t is A's
 * view. */
struct exi_keyed *exi_begin_keyed(const struct exi_tuple *t, bool connects);

/* Called when the timer of a meeting expires: looks again, or gives up. Does
 * nothing if the link came up meanwhile. No lock is held. */
void exi_begin_expired(struct exi_sock *sk);

#endif
