/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's word on the other end of a UNIX stream connection: what proof.c
 * asks where a tuple is of one. */
#ifndef EXI_CORE_BASE_PROOF_UNIX_H
#define EXI_CORE_BASE_PROOF_UNIX_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_tuple;

/* Fills all of the tuple but what every socket has. -ENOTCONN. */
int exi_unix_tuple(int fd, struct exi_tuple *ret);

/* As the functions of proof.h. */
int exi_unix_same_user(const struct exi_tuple *t, int link);
int exi_unix_peer_here(const struct exi_tuple *t);
int exi_unix_signed(const struct exi_tuple *t);

/* The sign is a size of the receive buffer, which the kernel uses for nothing
 * on such a socket. sign: of a new socket. sign_used: of one that the program
 * may have set; returns what the option was, 0: it has the sign already, or
 * cannot be asked. unsign: what the option was before, for a value that was
 * read; others are left as they are. before: what sign_used returned, 0 after
 * sign. */
void exi_unix_sign(int fd);
int exi_unix_sign_used(int fd);
void exi_unix_unsign(int fd, int before);
EXI_SHIM int exi_unix_unsigned(int value, int before);

#endif
