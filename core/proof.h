/* SPDX-License-Identifier: BSD-2-Clause */
/* Possession of a TCP end, proved without giving it away: an O_PATH reference
 * to the socket, checked against what the kernel says of the other end. */
#ifndef EXI_CORE_PROOF_H
#define EXI_CORE_PROOF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Both addresses of a connection in one form: IPv6, IPv4 as v4-mapped. */
struct exi_tuple {
	uint8_t local[16];
	uint8_t peer[16];
	uint16_t local_port; /* host order */
	uint16_t peer_port;
	uint32_t scope;
};

int exi_tuple_of(int fd, struct exi_tuple *ret);
/* Both ends have the same address and port. */
bool exi_tuple_is_self(const struct exi_tuple *t);

/* A reference to show. -errno. */
int exi_proof_make(int fd);
/* 0: ref is the other end of the connection. -EPERM: it is not. Others: it
 * cannot be told here. */
int exi_proof_check(const struct exi_tuple *t, int ref);
/* 0: the user of the process at the other end of a UNIX connection owns the
 * other end of the TCP connection, which is established, and the user's number
 * names no other user here. -EPERM. Others: it cannot be told here. */
int exi_proof_same_user(const struct exi_tuple *t, int unix_fd);
/* 0: the other end is a socket of this network namespace. -ENOENT. */
int exi_proof_peer_here(const struct exi_tuple *t);

/* What the kernel holds unread for our end, a FIN counting as one: unlike
 * SIOCINQ it does not stop at an urgent mark. */
int exi_proof_unread(const struct exi_tuple *t, uint32_t *ret);

#endif
