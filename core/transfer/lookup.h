/* SPDX-License-Identifier: BSD-2-Clause */
/* The socket that a transfer is for, and whether it is to meet its peer. */
#ifndef EXI_CORE_TRANSFER_LOOKUP_H
#define EXI_CORE_TRANSFER_LOOKUP_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/meet/find.h"
#include "core/sock/memory.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"

/* Calls before len bytes are sent, and after some were received. No lock is
 * held. */
void exi_flow_before_send(struct exi_sock *sk, int fd, size_t len);
void exi_flow_after_recv(struct exi_sock *sk, int fd);

/* Notes that the socket was used now; the time (exi_ticks()). */
uint64_t exi_lookup_note_use(struct exi_sock *sk);

/* Checks, where the socket rested for a while, that plain calls did not close
 * and reuse its number. The socket of the number, which may be another; null:
 * none. No lock is held. */
struct exi_sock *exi_lookup_again(struct exi_sock *sk, int fd);

/* The socket that a call on the descriptor is for, where *ret is what
 * exi_sock_find() gave for the number a moment ago. */
static inline int exi_look_on(int fd, struct exi_sock **ret)
{
	struct exi_sock *sk = *ret;

	if (exi_unlikely(!sk || !exi_sock_used_here(sk))) {
		int err = exi_sock_use(fd, ret);

		if (err)
			return err;
		sk = *ret;
	}
	*ret = exi_likely(exi_closes_seen) ? sk : exi_lookup_again(sk, fd);
	return exi_likely(*ret) ? 0 : -EBADF;
}

/* The socket that a call on the descriptor is for. */
static inline int exi_look_up(int fd, struct exi_sock **ret)
{
	*ret = exi_sock_find(fd);
	return exi_look_on(fd, ret);
}

/* The socket that an operation on the descriptor is for: also where the number
 * was reused behind the library's back. As exi_sock_use(). */
static inline int exi_flow_addressed(int fd, struct exi_sock **ret)
{
	int err = exi_look_up(fd, ret);

	if (err)
		return err;
	if (exi_unlikely(exi_family_elsewhere(*ret)))
		exi_family_ask(*ret); /* a failure is told by the attempt */
	return 0;
}

#endif
