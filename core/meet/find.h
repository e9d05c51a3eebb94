/* SPDX-License-Identifier: BSD-2-Clause */
/* From a descriptor to its socket. */
#ifndef EXI_CORE_MEET_FIND_H
#define EXI_CORE_MEET_FIND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/sock/table.h"

/* Promotes the latent connection of fd to a socket. Returns the socket that fd
 * has now, or null: without memory it stays the kernel's. No lock is held. */
EXI_SHIM struct exi_sock *exi_sock_promote(int fd);

/* The socket of a number, or null; promotes a latent connection. The result is
 * not locked, and may be stale. No lock is held. */
static inline struct exi_sock *exi_sock_find(int fd)
{
	struct exi_sock *sk;

	if (exi_unlikely((uint32_t)fd >= exi_table.size))
		return NULL;
	sk = atomic_load_explicit(&exi_table.socks[fd], memory_order_acquire);
	return exi_likely(!((uintptr_t)sk & EXI_LATENT)) ? sk
							 : exi_sock_promote(fd);
}

/* The socket of fd; a plain one is made if the library did not know fd. -EBADF,
 * -ENOTSOCK, -ENOMEM, -EMFILE. If the number was reused without a call of the
 * library, the old socket is dropped first. */
EXI_SHIM int exi_sock_get(int fd, struct exi_sock **ret);

/* 0: a stream, whose bytes can be moved piece by piece; -EOPNOTSUPP, -EBADF,
 * -ENOTSOCK. */
int exi_sock_stream(int fd);

/* Makes a socket for a descriptor that the library made. Replaces what was in
 * the table. */
EXI_SHIM int exi_sock_make(int fd, enum exi_role role, bool adopted,
			   struct exi_sock **ret);

/* exi_sock_get() for a caller that uses the socket: the first use of an
 * inherited socket in a forked child makes it the child's. */
int exi_sock_use(int fd, struct exi_sock **ret);
EXI_SHIM void exi_sock_inherit(struct exi_sock *sk);

#endif
