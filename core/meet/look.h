/* SPDX-License-Identifier: BSD-2-Clause */
/* B looks whether A waits for it: when, and its first words. */
#ifndef EXI_CORE_MEET_LOOK_H
#define EXI_CORE_MEET_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct exi_sock;

/* A mark was passed: has the service thread look, so that the program's call
 * makes none of the forty calls of the kernel that a look may take. False: the
 * caller is to look, by exi_look_locked(), because
 * - no service thread runs: a process that meets nobody needs none;
 * - the caller is that thread;
 * - the service is late, or the calling thread is under a filter of system
 *   calls, which the service's look would not notice;
 * - the connection was handed on, or this process does not own it.
 * In between the connection is closed, or its number reused: the look finds
 * nothing to do, as it compares the kernel's name of the socket. Another mark
 * is passed: this look serves both, unless the service is late with it. A fork:
 * the look waits until a process uses the connection. link_lock held. */
bool exi_look_note_locked(struct exi_sock *sk);

/* A mark was passed: looks. The reason why nobody is met, or NONE: A is there.
 * UNDECIDED: it may come, and B looks again at the next mark. After the last
 * one it looks by time, though the reason is that the peer is plain. link_lock
 * held. */
int exi_look_locked(struct exi_sock *sk);

/* The first look of an eager B, now or soon; the service looks again and again
 * if nobody is there. link_lock held. */
void exi_look_first_locked(struct exi_sock *sk, bool now);

/* A forked child uses a connection, and became its owner, whose peer its parent
 * was to look for: the child looks instead. link_lock held. */
void exi_look_inherited_locked(struct exi_sock *sk);

/* The time of a look has come. link_lock held. */
void exi_look_expired_locked(struct exi_sock *sk);

/* B cannot meet: so A need not wait for it, and is told why, if the other end
 * is A. */
void exi_look_decline(int fd, int reason);

#endif
