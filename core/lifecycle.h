/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections from birth to end: listen, accept, connect, shutdown, close. */
#ifndef EXI_CORE_LIFECYCLE_H
#define EXI_CORE_LIFECYCLE_H

#include "core/op.h"
#include "core/sock.h"

EXI_SHIM int exi_listen(int fd, int backlog);
/* Synchronous: the new descriptor, or -errno. */
EXI_SHIM int exi_accept(int fd, struct sockaddr *addr, socklen_t *len,
			int flags);
EXI_SHIM int exi_connect(int fd, const struct sockaddr *to, socklen_t len);

/* Takes an EXS_EVT_ACCEPT or EXS_EVT_CONNECT operation. */
int exi_lifecycle_submit(struct exi_op *op);
/* Cancels those of a socket; how many. */
int exi_lifecycle_cancel(struct exi_sock *sk, bool any, exs_ahandle_t a);
/* Cancels operations of a descriptor, or with the handle on all; how many were
 * asked. */
int exi_cancel_fd(int fd, bool any, exs_ahandle_t a);
int exi_cancel_all(exs_ahandle_t a);
/* The descriptor is ready; from the service thread. */
void exi_lifecycle_event(struct exi_sock *sk);

/* Both directions ended in the ring: the kernel would say of its own that it is
 * not connected. */
EXI_SHIM bool exi_over(struct exi_sock *sk, int fd);
/* Half-closes after the sends that were accepted before. */
EXI_SHIM int exi_shutdown(int fd, int how);
/* An end that was to follow queued sends was said. */
void exi_lifecycle_ended(struct exi_sock *sk);
EXI_SHIM int exi_close(int fd);
/* The same of a call that closes more: after exi_close_tell() for each, what they
 * wait for peers is p, together. */
struct exi_patience;
EXI_SHIM void exi_close_tell(int fd);
EXI_SHIM int exi_close_of(int fd, struct exi_patience *p);
/* The same where dup3(2) closes it: from then on, with no moment between, the
 * number names what from names. The number, or -errno: it is closed then. */
EXI_SHIM int exi_close_over(int fd, int from, int flags);
/* What exi_sock_forget() does. */
void exi_close_forgotten(struct exi_sock *sk, int fd, uint32_t generation);
/* Takes an EXS_EVT_CLOSE operation, and does not wait. -EBADF: not taken. */
int exi_close_submit(struct exi_op *op);

/* Upgrades are wanted for a descriptor that plain calls made, or again. */
int exi_adopt(int fd);
EXI_SHIM int exi_downgrade(int fd);

/* A connection goes to TCP and stays there, for the reason. 0 also when fd is
 * none of the library's. p: see exi_switch_patience(). */
EXI_SHIM int exi_go_plain(int fd, int reason, struct exi_patience *p);
/* It will: its peer is told, and nobody waits. First of all that go in one call,
 * so that they answer while one is waited for. */
EXI_SHIM void exi_tell_plain(int fd, int reason);

/* An option or flag that keeps a connection on TCP is about to be set: moves
 * it there first, or resets it where the peer is silent. */
EXI_SHIM int exi_before_option(int fd, int level, int name);
/* An option is about to be read: that of the program. */
EXI_SHIM void exi_before_reading(int fd, int level, int name);
EXI_SHIM int exi_before_flags(int fd, int flags);

/* What kind of descriptor it is, when that is why it is on TCP; else
 * reason. */
int exi_basic_reason(int fd, int reason);

#endif
