/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's information about the other end of a UNIX stream connection: the
 * part of proof.c for tuples of UNIX sockets. */
#ifndef EXI_CORE_BASE_PROOF_UNIX_H
#define EXI_CORE_BASE_PROOF_UNIX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_tuple;

/* Fills the parts of the tuple that are specific to UNIX sockets. -ENOTCONN,
 * -EACCES. */
int exi_unix_tuple(int fd, struct exi_tuple *ret);

/* A look by inode number passes all sockets of the namespace in the kernel, and
 * any user can make many. So a process whose looks take long rests: it makes no
 * new ones for ten seconds, and connections that would meet stay in the kernel.
 * looked: tells how much CPU time a look took, at what time. rests: whether the
 * process rests; exi_unix_tuple() is -EACCES then. */
void exi_unix_looked(uint64_t cpu_ns, uint64_t now);
bool exi_unix_rests(void);

/* As the functions of the same names in proof.h. */
int exi_unix_same_user(const struct exi_tuple *t, int link);
int exi_unix_peer_here(const struct exi_tuple *t);
int exi_unix_signed(const struct exi_tuple *t);

/* The SO_COOKIE of the other end, which no other socket has or will have: the
 * end that the kernel finds by the peer's number is the peer itself.
 * -EOPNOTSUPP: other sockets have that number, or the kernel's list is too
 * long. -ENOTCONN. */
int exi_unix_peer_cookie(const struct exi_tuple *t, uint64_t *ret);

/* The sign is a size of the receive buffer, which such a socket does not use.
 * sign: signs a new socket. sign_used: signs a socket whose option the program
 * may have set; returns the former value, or 0 if the socket has the sign
 * already or the option cannot be read. unsign: restores the former value, if
 * the option is still the sign. Both make another sign if the calling thread is
 * in another network namespace than the socket: the peer cannot be met where it
 * would wait otherwise. unsigned: returns the former value for a value
 * that was read and is the sign, and any other value unchanged. before: the
 * result of sign_used, 0 after sign. */
void exi_unix_sign(int fd);
int exi_unix_sign_used(int fd);
void exi_unix_unsign(int fd, int before);
EXI_SHIM int exi_unix_unsigned(int value, int before);

#endif
