/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's word on the other end of a TCP connection, and on the user at
 * the other end of a UNIX connection. */
#ifndef EXI_CORE_BASE_PROOF_H
#define EXI_CORE_BASE_PROOF_H

#include <linux/inet_diag.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

/* The two addresses of a connection, in one form: IPv6, IPv4 as v4-mapped. */
struct exi_tuple {
	uint8_t local[16];
	uint8_t peer[16];
	uint16_t local_port; /* host order */
	uint16_t peer_port;
	uint32_t scope;
	uint32_t device; /* to which the socket is bound; 0: to none */
	/* UNIX: the addresses are inode numbers, the ports 0. */
	uint32_t family; /* AF_UNIX, or else TCP's */
	uint32_t maker;	 /* UNIX: the user who made the other end */
	/* The socket's network namespace need not be the thread's: */
	uint64_t netns;	 /* SO_NETNS_COOKIE; 0: before Linux 5.14, then */
	uint64_t cookie; /* SO_COOKIE */
};

/* Reads the addresses of fd's connection. An exi_proof_*() call with this tuple
 * is answered for that connection alone: in another network namespace, where a
 * process may have made one with the same addresses, it is -ENOENT; where the
 * ends are not bound to the same device (a VRF is one), and there may be two of
 * the same addresses, it is -EOPNOTSUPP or -ENOENT. */
int exi_tuple_of(int fd, struct exi_tuple *ret);
/* A socket of this process is of the same network namespace. */
bool exi_tuple_here(const struct exi_tuple *t, int fd);
/* Whether both ends have the same address and port. */
bool exi_tuple_is_self(const struct exi_tuple *t);

/* A packet filter changed an address of fd's connection on the way (REDIRECT,
 * DNAT). Then another connection may have these two addresses at its other end,
 * and what an exi_proof_*() call says may be about that one. The end that
 * accepted always knows; the end that connected, if the peer's address is one
 * of this network namespace. */
bool exi_tuple_redirected(const struct exi_tuple *t, int fd);

/* The peer's address is none of this network namespace: it is on another host
 * or in another namespace. */
bool exi_tuple_elsewhere(const struct exi_tuple *t);

/* 0: the user of the process at the other end of a UNIX connection owns the
 * other end of the TCP connection, which is established and has the sign of one
 * of its holders (below; before Linux 5.10 that is not asked); the user's
 * number names no other user here, and the process has one, too. -EPERM.
 * -ENOTCONN, -ENOENT: there is no such end any more. Others: it cannot be told
 * here. */
int exi_proof_same_user(const struct exi_tuple *t, int unix_fd);
/* Options of the other end, which is established. -ENOTCONN, -ENOENT: it is
 * not. -EOPNOTSUPP: the kernel does not tell them. */
int exi_proof_options(const struct exi_tuple *t, struct inet_diag_sockopt *ret);
/* 0: the other end is a socket of this network namespace. -ENOENT: it is none.
 * Others: it cannot be told here. */
int exi_proof_peer_here(const struct exi_tuple *t);

/* A sign on a TCP socket that only its holders can make and everybody in the
 * network namespace can read. It gives nothing: two options that only multicast
 * looks at. What is accepted from a listener with the sign has it, too. */
void exi_proof_sign(int fd);
/* Whether our own end has it: a user of the library had this socket, or its
 * listener. */
bool exi_proof_bears_sign(int fd);
/* Whether the other end has it. Since Linux 5.10; 0 before. -EACCES: that
 * cannot be asked here. */
int exi_proof_signed(const struct exi_tuple *t);

/* How much the kernel holds unread for our end, a FIN counting as one: unlike
 * SIOCINQ it does not stop at an urgent mark. */
int exi_proof_unread(const struct exi_tuple *t, uint32_t *ret);

/* The kernel's name of a descriptor's socket, never reused; 0: it has none. */
EXI_SHIM uint64_t exi_sock_cookie(int fd);

#endif
