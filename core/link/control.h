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

/* Says GO if it can be said now: no thread receives by the kernel's call, and
 * no epoll set has the connection that nobody was seen to wait for. No lock
 * held. */
EXI_SHIM void exi_link_go(struct exi_sock *sk);

/* The reason of a connection that ends now; link_lock held. Who is undecided as
 * long as the peer may come, or as it may look for the peer again, is so no
 * more. */
EXI_SHIM int exi_link_last_reason_locked(struct exi_sock *sk, int fd);

/* Where both directions are on TCP the link ends though the peer says nothing:
 * what it said before is read first, and it can say nothing more. False: it
 * moved a direction, or one had not come back. The generation is the socket's
 * from before the wait; true where another socket has its place by now. No lock
 * held. */
bool exi_link_part(struct exi_sock *sk, uint32_t generation);

/* A call waited in vain for the peer of that generation's socket: its user is
 * not met for a while (core/base/shun.h). Nothing where a link of another host
 * has no user. No lock held. */
void exi_link_shun(struct exi_sock *sk, uint32_t generation);

/* The connection goes to TCP for good, and nobody waits: the link ends when it
 * is there. Where it is not after a second (15 between hosts) the peer is
 * silent, and the connection is reset. -ENOTCONN: it has none, or ends as it
 * is. No lock held. */
EXI_SHIM int exi_link_leave(struct exi_sock *sk, int reason);

/* An exec closes what is left, and would wait for what strangers left there:
 * gives up the meetings that are under way, and lets the closing threads
 * end. */
EXI_SHIM void exi_link_before_exec(void);

/* A watch of the link in front of the service's own: an exclusive one in the
 * epoll set of a thread, which reads the link (exi_link_event()) when it is
 * woken there; the service is woken when no such thread sleeps. The link lock
 * is held. Its descriptor, or -errno. */
EXI_SHIM int exi_link_share_locked(struct exi_sock *sk,
				   int (*watch)(int fd, void *arg), void *arg);

/* Events of the service thread; with 0 for events, a look without one. */
EXI_SHIM void exi_link_event(struct exi_sock *sk, uint32_t events);
/* Reads what lies in the link, if something does: what the peer said before is
 * heard when this returns, also where another thread is reading it. For who
 * found that exi_switch_may_come(): false when nothing was said since. No lock
 * held. */
EXI_SHIM bool exi_link_hear(struct exi_sock *sk);
/* Another process read a bell of the link: for those who wait for it here. */
void exi_link_bell(struct exi_sock *sk);
/* Reads the link until it is empty, for who saw the end of TCP: a SWITCH is
 * sent before it, and inside a host lies there. No lock held. */
void exi_link_read(struct exi_sock *sk);
/* The peer said the end: reads the link if it has hung up, and is true then. No
 * lock held. */
bool exi_link_ended(struct exi_sock *sk, int fd);

/* TCP is readable, ended or failed: reads the link first, then asks the peer
 * about an end that may be a crash, and wakes sleepers. The service calls it,
 * without locks. */
void exi_link_tcp_event(struct exi_sock *sk);

/* Another process told: for the service thread. */
void exi_family_told(void);

/* From another host the end of TCP may come before what was sent before it: who
 * closes ends TCP, and then waits, not for ever, until its queue pair is empty.
 * So neither the end of TCP nor some time after it is the end of the stream.
 * That is END, or that the link hangs up; and neither comes if the peer's host
 * is gone, its process has stopped, or what should tell is lost.
 *
 * So the peer is asked, again and again. A queue pair that has no other end any
 * more fails for it. A library that finds the descriptor closed lets go, and
 * the link hangs up. One that still has it says so, and the wait goes on, for
 * the peer may send as long as it likes. Only who is silent for longer than a
 * library may take to let go, and of whom no byte arrives meanwhile, is lost:
 * what did arrive is read, then the connection is reset, as of one that was
 * killed. */
#define EXI_CONTROL_ASK_NS 1000000000u

/* Whether the peer said that its stream ends, where its bytes are. link_lock
 * and both halves are locked. */
bool exi_control_said_end_locked(struct exi_sock *sk);

#endif
