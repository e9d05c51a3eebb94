/* SPDX-License-Identifier: BSD-2-Clause */
/* The messages of the handshake with the peer's library, and the pair link
 * after it: sections 1 and 2 of docs/design/wire-shm.md. The service thread of
 * each process reads links, and so do callers of some functions below; any
 * thread may send on one. */
#ifndef EXI_CORE_LINK_CONTROL_H
#define EXI_CORE_LINK_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_sock;

/* Sends GO if possible now: no thread is in the kernel's receive call, and the
 * connection is in no epoll set for which no thread was seen to wait. No lock
 * held. */
EXI_SHIM void exi_link_go(struct exi_sock *sk);

/* Ends the link if both directions are on TCP, although the peer does not
 * answer. Reads the peer's earlier messages first; no others can follow.
 * Returns false if the peer moved a direction, or a direction had not come
 * back. The generation is that of the socket before the wait; returns true if
 * another socket has its memory since. No lock held. */
bool exi_link_part(struct exi_sock *sk, uint32_t generation);

/* Called after a call waited in vain for the peer of that generation's socket:
 * shuns the peer's user for a while (core/base/shun.h). Does nothing for a link
 * to another host, which has no user. No lock held. */
void exi_link_shun(struct exi_sock *sk, uint32_t generation);

/* Moves the connection to TCP permanently, without a wait: the link ends when
 * both directions are there. If they are not after a second (15 between hosts),
 * the peer is silent, and the connection is reset. -ENOTCONN: there is no link,
 * or it is ending already. No lock held. */
EXI_SHIM int exi_link_leave(struct exi_sock *sk, int reason);

/* Called before an exec, which closes the remaining descriptors, and would wait
 * for files that strangers left in them: gives up the handshakes in progress,
 * and lets the closing threads end. */
EXI_SHIM void exi_link_before_exec(void);

/* Handles events of the link, for who watches it (watch.h); events 0: looks
 * without one. */
EXI_SHIM void exi_link_event(struct exi_sock *sk, uint32_t events);
/* Reads the messages in the link, if there are any. When it returns, those that
 * the peer sent before have been carried out, even if another thread reads
 * them. For a caller for which exi_switch_may_come() was true; returns false if
 * no message has come since. No lock held. */
EXI_SHIM bool exi_link_hear(struct exi_sock *sk);
/* Called when another process read a doorbell of the link: wakes the waiters
 * here. */
void exi_link_bell(struct exi_sock *sk);
/* Reads the link until it is empty, for a caller that saw the end of TCP: the
 * peer sends SWITCH before that, and within a host the message is then in the
 * link. No lock held. */
void exi_link_read(struct exi_sock *sk);
/* For a stream whose peer has sent END: reads the link if it has hung up, or if
 * the kernel reports that the peer closed, and returns true then. No lock
 * held. */
bool exi_link_ended(struct exi_sock *sk, int fd);

/* TCP is readable, ended or failed: reads the link first, then asks the peer
 * about an end that may be a crash, and wakes sleepers. The service calls it,
 * without locks. */
void exi_link_tcp_event(struct exi_sock *sk);

/* Called by the service thread when another process has reported an event. */
void exi_family_told(void);

/* From another host, the end of TCP may come before bytes that were sent
 * earlier: a process that closes ends TCP, and then waits, for a limited time,
 * until its queue pair is empty. So neither the end of TCP nor some time after
 * it is the end of the stream. That is END, or the hang-up of the link; and
 * neither comes if the peer's host is gone, its process has stopped, or the
 * message was lost.
 *
 * So this end asks the peer, again and again. If the other end of the queue
 * pair is gone, the request fails. A library that finds the descriptor closed
 * releases the connection, and the link hangs up. A library that still has the
 * descriptor answers so, and the wait continues, because the peer may send as
 * long as it likes. Only a peer that does not answer for longer than a library
 * may take to release a connection, and from which no byte arrives meanwhile,
 * counts as lost: the bytes that arrived are read, then the connection is
 * reset, as if the peer had been killed. */
#define EXI_CONTROL_ASK_NS 1000000000u

/* Whether the peer has sent END for its stream, in the place of its bytes.
 * link_lock and both halves are locked. */
bool exi_control_said_end_locked(struct exi_sock *sk);

#endif
