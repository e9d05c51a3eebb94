/* SPDX-License-Identifier: BSD-2-Clause */
/* The socket that a transfer is for, and whether it is to meet its peer. */
#ifndef EXI_CORE_TRANSFER_LOOKUP_H
#define EXI_CORE_TRANSFER_LOOKUP_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/meet/find.h"
#include "core/sock/memory.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"

/* Called before len bytes are sent, and after some were received. No lock is
 * held. */
void exi_flow_before_send(struct exi_sock *sk, int fd, size_t len);
void exi_flow_after_recv(struct exi_sock *sk, int fd);

/* Notes that the socket is used now; returns for how long, in exi_ticks(), it
 * was not. */
static inline uint64_t exi_lookup_note_use(struct exi_sock *sk)
{
	uint64_t last = atomic_load_explicit(&sk->used, memory_order_relaxed);
	uint64_t now = exi_ticks();

	atomic_store_explicit(&sk->used, now, memory_order_relaxed);
	return now - last;
}

/* Plain close(2) bypasses the table, so the number may be another socket's by
 * now. This is checked on the first submission after a rest of this length,
 * where bytes would go into a ring. */
#define EXI_LOOKUP_REST 20000

/* Checks, if the socket rested for so long, that plain calls did not close and
 * reuse its number. Returns the number's socket, which may be another; null:
 * none. No lock is held. */
struct exi_sock *exi_lookup_again(struct exi_sock *sk, int fd, uint64_t rest);

/* The socket that a call on the descriptor is for, where *ret is what
 * exi_sock_find() gave for the number a moment ago. */
static inline int exi_look_on(int fd, struct exi_sock **ret)
{
	struct exi_sock *sk = *ret;

	if (exi_unlikely(!sk || !exi_sock_used_here(sk))) {
		struct exi_sock *used;
		int err = exi_sock_use(fd, &used);

		if (err)
			return err;
		sk = used;
	}
	if (!exi_closes_seen) {
		uint64_t rest = exi_lookup_note_use(sk);

		if (exi_unlikely(rest >= EXI_LOOKUP_REST))
			sk = exi_lookup_again(sk, fd, rest);
		if (!sk)
			return -EBADF;
	}
	exi_assume(fd >= 0); /* it is in the table */
	*ret = sk;
	return 0;
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
		exi_family_ask(*ret); /* the attempt reports a failure */
	return 0;
}

#endif
