/* SPDX-License-Identifier: BSD-2-Clause */
/* Takes a connection back to TCP, and waits until it is there. */
#ifndef EXI_CORE_CALL_DOWNGRADE_H
#define EXI_CORE_CALL_DOWNGRADE_H

#include <stdint.h>

#include "core/base/util.h"

struct exi_patience;
struct exi_sock;

/* Takes both directions to TCP, and waits until this end is done. DOWN is not
 * sent again if exi_switch_leave() has sent it. -ETIMEDOUT; -EBADF, also if
 * another thread closed the connection meanwhile, whatever uses its number now;
 * -ECANCELED if another thread allowed the fabric again. p: see
 * exi_switch_patience(). A call with p calls exi_feed_rest() after the last
 * connection that it takes back. */
int exi_switch_down(struct exi_sock *sk, int fd, int reason,
		    struct exi_patience *p);
/* The same until a deadline; the caller then calls exi_feed_rest(). */
int exi_switch_down_until(struct exi_sock *sk, int fd, int reason,
			  uint64_t deadline_ns);

/* Called after a downgrade, if this process forgets a connection that other
 * processes keep. If the peer is gone and left unread bytes, the other
 * processes keep those bytes, and the descriptor gets a copy. The generation is
 * the one before the wait: another socket that has the memory since is left
 * alone. The caller then calls exi_feed_rest(). */
EXI_SHIM void exi_switch_part(struct exi_sock *sk, int fd, uint32_t generation);

/* Allows the directions to use a fabric, or to use it again. */
int exi_switch_allow(struct exi_sock *sk, int fd);
/* The same for a connection that is on TCP for this reason (-EPERM: for
 * another), without a wait: -EAGAIN while a downgrade is under way. */
int exi_switch_allow_now(struct exi_sock *sk, int fd, int reason);

#endif
