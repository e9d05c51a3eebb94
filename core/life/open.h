/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes connections: listen, accept, connect. Also closes several, and moves
 * them to TCP. */
#ifndef EXI_CORE_LIFE_OPEN_H
#define EXI_CORE_LIFE_OPEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/util.h"

struct exi_op;
struct exi_patience;
struct exi_sock;

/* listen(2), and binds the marker of the port. 0 or -errno. */
EXI_SHIM int exi_listen(int fd, int backlog);
/* Synchronous: the new descriptor, or -errno. */
EXI_SHIM int exi_accept(int fd, struct sockaddr *addr, socklen_t *len,
			int flags);
EXI_SHIM int exi_connect(int fd, const struct sockaddr *to, socklen_t len);
/* Makes the library know the two ends of a new socketpair(2), which are streams
 * of this kind. Without memory for that they stay the kernel's. */
struct exi_base;
EXI_SHIM void exi_open_pair(const struct exi_base *base, const int fds[2]);

/* Takes an EXS_EVT_ACCEPT or EXS_EVT_CONNECT operation. */
int exi_lifecycle_submit(struct exi_op *op);

/* Called by the service thread when the descriptor is ready. */
void exi_lifecycle_event(struct exi_sock *sk);

/* exi_close() for a call that closes several: first exi_close_tell() for each,
 * then exi_close_of() for each. All waits for peers share the patience p. */
EXI_SHIM void exi_close_tell(int fd);
EXI_SHIM int exi_close_of(int fd, struct exi_patience *p);

/* Closes a forgotten socket; exi_sock_forget() calls it. */
void exi_close_forgotten(struct exi_sock *sk, int fd, uint32_t generation);

/* Informs the peer that the connection will go to TCP (exi_go_plain()), and
 * does not wait. A call that moves several connections informs all peers first,
 * so that they answer while it waits for one. */
EXI_SHIM void exi_tell_plain(int fd, int reason);

/* Called before the program reads an option: makes its value the program's. */
EXI_SHIM void exi_before_reading(int fd, int level, int name);

/* How long a close waits for bytes that a peer on another host sends again. */
#define EXI_OPEN_REPEATS_NS 5000000000u

struct exi_open_closing {
	struct exi_sock *sk;
	struct exi_op *op;
	bool last;
};

/* SO_LINGER as the application set it, or zero if it has no effect: while bytes
 * drain, the kernel has the library's value. */
struct linger exi_open_linger_of(struct exi_sock *sk, int fd);

/* Sends the rest of a drain until nothing is left or until the time
 * (CLOCK_MONOTONIC ns): 0, -EAGAIN, or another error. No half is locked. */
int exi_open_drain_until(struct exi_sock *sk, int fd, uint64_t until);

/* Gives the rest of a drain to a process that sends it (core/base/feeder.c). 0;
 * else the caller's close resets the connection. No half is locked. */
int exi_open_owe(struct exi_sock *sk, int fd);

/* Whether other processes continue to use the connection and have no fabric, so
 * that it must go to TCP first. */
bool exi_open_is_handed_over(struct exi_sock *sk, bool last);

/* The socket of a number that is a connection; null: none, or a listener. */
struct exi_sock *exi_open_connection(int fd);

/* Moves the connection to TCP for this reason, before a system call that never
 * waits. The connection is reset if the peer does not answer in time. 0 or
 * -errno. */
int exi_open_go_plain_or_reset(int fd, int reason);

#endif
