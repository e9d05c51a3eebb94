/* SPDX-License-Identifier: BSD-2-Clause */
/* Making connections: listen, accept, connect. Closing several, and going to
 * TCP. */
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
/* The two ends of a fresh socketpair(2), streams of this kind, are known from
 * their birth. Where there is no memory for that they are the kernel's. */
struct exi_base;
EXI_SHIM void exi_open_pair(const struct exi_base *base, const int fds[2]);

/* Takes an EXS_EVT_ACCEPT or EXS_EVT_CONNECT operation. */
int exi_lifecycle_submit(struct exi_op *op);

/* The descriptor is ready; from the service thread. */
void exi_lifecycle_event(struct exi_sock *sk);

/* exi_close() for a call that closes several: after exi_close_tell() for each,
 * all waits for peers share the patience p. */
EXI_SHIM void exi_close_tell(int fd);
EXI_SHIM int exi_close_of(int fd, struct exi_patience *p);

/* The close of a forgotten socket, called by exi_sock_forget(). */
void exi_close_forgotten(struct exi_sock *sk, int fd, uint32_t generation);

/* The connection will go to TCP (exi_go_plain()): its peer is told, and nobody
 * waits. A call that moves several tells all peers first, so that they answer
 * while one is waited for. */
EXI_SHIM void exi_tell_plain(int fd, int reason);

/* An option is about to be read: that of the program. */
EXI_SHIM void exi_before_reading(int fd, int level, int name);

/* What a close waits for the bytes that a peer on another host repeats. */
#define EXI_OPEN_REPEATS_NS 5000000000u

struct exi_open_closing {
	struct exi_sock *sk;
	struct exi_op *op;
	bool last;
};

/* SO_LINGER as the application set it, nothing where it means
 * nothing: while bytes drain the kernel has the library's. */
struct linger exi_open_linger_of(struct exi_sock *sk, int fd);

/* Sends what a drain owes until nothing is left or the time (CLOCK_MONOTONIC
 * ns) comes: 0, -EAGAIN, or another error. No half is locked. */
int exi_open_drain_until(struct exi_sock *sk, int fd, uint64_t until);

/* Gives the bytes that a drain owes to a process that sends them
 * (core/base/feeder.c). 0; else the caller's close resets the connection. No
 * half is locked. */
int exi_open_owe(struct exi_sock *sk, int fd);

/* Whether other processes go on with the connection and have no fabric, so that
 * it must go to TCP first. */
bool exi_open_is_handed_over(struct exi_sock *sk, bool last);

/* The socket of a number that is a connection; null: none, or a listener. */
struct exi_sock *exi_open_connection(int fd);

/* Moves the connection to TCP for this reason, before a call of the kernel that
 * never waits. A peer that does not answer in time costs the connection: it is
 * reset. 0 or -errno. */
int exi_open_go_plain_or_reset(int fd, int reason);

#endif
