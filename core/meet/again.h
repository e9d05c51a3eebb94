/* SPDX-License-Identifier: BSD-2-Clause */
/* Meeting again: a connection meets once more because another process has one
 * of its ends now (handed.h). Both that end and the other, which had met the
 * former process, look again. Neither knows when the other looks, so both look
 * at marks that are further and further apart. */
#ifndef EXI_CORE_MEET_AGAIN_H
#define EXI_CORE_MEET_AGAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/exs_ext.h>

struct exi_sock;

/* Whether an end that leaves for this reason goes to another process, which may
 * meet the peer again. */
static inline bool exi_again_by_another(int reason)
{
	return reason == EXS_X_REASON_PASSED || reason == EXS_X_REASON_EXEC;
}

/* Sets marks this many bytes from here, in each direction. Any lock of the
 * socket may be held. */
void exi_again_after(struct exi_sock *sk, uint64_t bytes);

/* Sets the next mark; returns false if none is left. link_lock held. */
bool exi_again_later_locked(struct exi_sock *sk);

/* Frees the fabric that the connection had with the process that handed it on.
 * Returns false if a part of it is still in use; try again later. link_lock
 * held. */
bool exi_again_begin_locked(struct exi_sock *sk);

#endif
