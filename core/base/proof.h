/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's information about the other end of a TCP connection, and about
 * the user at the other end of a UNIX connection. */
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
	uint32_t device; /* the socket is bound to; 0: none */
	/* UNIX: the addresses are inode numbers, the ports 0. */
	uint32_t family; /* AF_UNIX, or else TCP's */
	uint32_t maker;	 /* UNIX: the user who made the other end */
	/* The socket's network namespace need not be the thread's: */
	uint64_t netns;	 /* SO_NETNS_COOKIE; 0: before Linux 5.14, then */
	uint64_t cookie; /* SO_COOKIE */
	/* UNIX: both ends are of a network namespace that is not the thread's,
	 * where the kernel answers no question: the peer's number is 0. */
	bool afar;
	/* UNIX, of the end that connected: the peer's SO_COOKIE, for a meeting
	 * in EXS_MEET_DIR; 0 until exi_unix_peer_cookie(). */
	uint64_t peer_cookie;
};

/* Reads the addresses of fd's connection. An exi_proof_*() call with this tuple
 * is answered for that connection alone. In another network namespace, where a
 * process may have made a connection with the same addresses, the call returns
 * -ENOENT. If the ends are not bound to the same device (a VRF is one), and
 * there may be two connections with the same addresses, it returns -EOPNOTSUPP
 * or -ENOENT. */
int exi_tuple_of(int fd, struct exi_tuple *ret);
/* Whether fd, a socket of this process, is of the same network namespace. */
bool exi_tuple_here(const struct exi_tuple *t, int fd);
/* Whether both ends have the same address and port. */
bool exi_tuple_is_self(const struct exi_tuple *t);

/* Whether a packet filter changed an address of fd's connection on the way
 * (REDIRECT, DNAT). Then another connection may have these two addresses at its
 * other end, and an exi_proof_*() call may be about that one. The end that
 * accepted always knows; the end that connected knows if the peer's address is
 * one of this network namespace. */
bool exi_tuple_redirected(const struct exi_tuple *t, int fd);

/* Whether the peer's address is of this network namespace, but the kernel does
 * not show the peer's socket: one of the ends is bound to a device. */
bool exi_tuple_hidden(const struct exi_tuple *t);

/* Whether no program has accepted the peer's end of a TCP connection yet. */
bool exi_tuple_unaccepted(const struct exi_tuple *t);

/* Whether the peer's address is not of this network namespace: the peer is on
 * another host or in another namespace. */
bool exi_tuple_elsewhere(const struct exi_tuple *t);

/* 0: the user of the process at the other end of a UNIX connection also owns
 * the other end of the TCP connection. That end is established and has the sign
 * of one of its holders (below; not checked before Linux 5.10). The user's
 * number means no other user here, and the process has an id here. -EPERM: this
 * is not so. -ENOTCONN, -ENOENT: that end no longer exists. Others: the kernel
 * gives no answer here. */
int exi_proof_same_user(const struct exi_tuple *t, int unix_fd);

/* The same for the connection of s, whose addresses *t were: -ENOTCONN, too, if
 * s has been reset by the time of the answer. From then on, another process may
 * have made a connection with these addresses, and the answer may be about its
 * socket. While s is no more than half-closed, the kernel lets nobody have
 * them. */
int exi_proof_peers_user(const struct exi_tuple *t, int s, int unix_fd);
/* Reads options of the other end. -ENOTCONN, -ENOENT: it is not established.
 * -EOPNOTSUPP: the kernel does not return them. */
int exi_proof_options(const struct exi_tuple *t, struct inet_diag_sockopt *ret);
/* 0: the other end is a socket of this network namespace. -ENOENT: it is not.
 * Others: the kernel gives no answer here. */
int exi_proof_peer_here(const struct exi_tuple *t);

/* Puts a sign on a TCP socket that only holders of the socket can make and
 * everybody in the network namespace can read. It grants nothing: it is the
 * value of two options that only multicast uses. A connection accepted from a
 * listener with the sign has it, too. */
void exi_proof_sign(int fd);
/* Whether this end has the sign: a user of the library had this socket, or its
 * listener. */
bool exi_proof_bears_sign(int fd);
/* Puts a farewell in its place: a user of the library had this socket, and does
 * not meet on it. For a peer that comes to meet when nobody is left who could
 * answer. exi_proof_sign() ends that. */
void exi_proof_leave(int fd);
/* Whether the other end has the farewell, if the kernel returns it. */
bool exi_proof_left(const struct exi_tuple *t);
/* 1: the other end has the sign or the farewell. EXI_SIGNED_AFAR: it has the
 * sign of a process in another network namespace (UNIX). 0: it has none, or
 * Linux is older than 5.10. -EACCES: not permitted. */
#define EXI_SIGNED_AFAR 2
int exi_proof_signed(const struct exi_tuple *t);

/* The number of unread bytes that the kernel holds for this end, where a FIN
 * counts as one. Unlike SIOCINQ it does not stop at an urgent mark. */
int exi_proof_unread(const struct exi_tuple *t, uint32_t *ret);

/* The kernel's name of a descriptor's socket, never reused; 0: it has none. */
EXI_SHIM uint64_t exi_sock_cookie(int fd);

#endif
