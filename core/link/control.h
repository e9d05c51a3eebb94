/* SPDX-License-Identifier: BSD-2-Clause */
/* Meeting the peer's library, and the pair link that remains: sections 1 and 2
 * of docs/design/wire-shm.md. The service thread of each process is the only
 * reader of links; any thread may send on one. */
#ifndef EXI_CORE_LINK_CONTROL_H
#define EXI_CORE_LINK_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_sock;

/* Sends GO if that is possible now: no thread is in the kernel's receive call,
 * and the connection is in no epoll set for which no thread was seen to wait.
 * No lock held. */
EXI_SHIM void exi_link_go(struct exi_sock *sk);

/* The reason of a connection that ends now; link_lock held. Who is undecided as
 * long as the peer may come, or as it may look for the peer again, is so no
 * more. */
EXI_SHIM int exi_link_last_reason_locked(struct exi_sock *sk, int fd);

/* If both directions are on TCP, ends the link although the peer does not
 * answer: reads the peer's earlier messages first; no others can follow. False:
 * the peer moved a direction, or a direction had not come back. The generation
 * is that of the socket before the wait; true if another socket has its place
 * by now. No lock held. */
bool exi_link_part(struct exi_sock *sk, uint32_t generation);

/* A call waited in vain for the peer of that generation's socket: its user is
 * not met for a while (core/base/shun.h). Nothing where a link of another host
 * has no user. No lock held. */
void exi_link_shun(struct exi_sock *sk, uint32_t generation);

/* The connection goes to TCP permanently, and no call waits: the link ends when
 * both directions are there. If they are not after a second (15 between hosts),
 * the peer is silent, and the connection is reset. -ENOTCONN: there is no link,
 * or it is ending already. No lock held. */
EXI_SHIM int exi_link_leave(struct exi_sock *sk, int reason);

/* An exec closes the remaining descriptors, and would wait for files that
 * strangers left in them: gives up the handshakes in progress, and lets the
 * closing threads end. */
EXI_SHIM void exi_link_before_exec(void);

/* A watch of the link in front of the service's own: an exclusive one in the
 * epoll set of a thread, which reads the link (exi_link_event()) when it is
 * woken there; the service is woken when no such thread sleeps. The link lock
 * is held. Its descriptor, or -errno. */
EXI_SHIM int exi_link_share_locked(struct exi_sock *sk,
				   int (*watch)(int fd, void *arg), void *arg);

/* Events of the service thread; with 0 for events, a look without one. */
EXI_SHIM void exi_link_event(struct exi_sock *sk, uint32_t events);
/* Reads the messages in the link, if there are any: those that the peer sent
 * before have been carried out when this returns, also if another thread is
 * reading them. For a caller for which exi_switch_may_come() was true; false
 * when no message has come since. No lock held. */
EXI_SHIM bool exi_link_hear(struct exi_sock *sk);
/* Another process read a doorbell of the link: wakes those who wait for it
 * here. */
void exi_link_bell(struct exi_sock *sk);
/* Reads the link until it is empty, for a caller that saw the end of TCP: a
 * SWITCH is sent before that, and within a host it is in the link. No lock
 * held. */
void exi_link_read(struct exi_sock *sk);
/* The peer has sent END: reads the link if it has hung up, or if the kernel's
 * stream says that the peer closed, and returns true then. No lock held. */
bool exi_link_ended(struct exi_sock *sk, int fd);

/* TCP is readable, ended or failed: reads the link first, then asks the peer
 * about an end that may be a crash, and wakes sleepers. The service calls it,
 * without locks. */
void exi_link_tcp_event(struct exi_sock *sk);

/* Another process reported it: for the service thread. */
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
