/* SPDX-License-Identifier: BSD-2-Clause */
/* Taking a connection back to TCP, and waiting until it is there. */
#ifndef EXI_CORE_CALL_DOWNGRADE_H
#define EXI_CORE_CALL_DOWNGRADE_H

#include <stdint.h>

#include "core/base/util.h"

struct exi_patience;
struct exi_sock;

/* Both directions to TCP, waiting until this end is done; DOWN is not said
 * again where exi_switch_leave() has said it. -ETIMEDOUT; -EBADF also when
 * another thread has closed it meanwhile, whatever has its place now;
 * -ECANCELED when one has allowed the fabric again. p: see
 * exi_switch_patience(); with p, exi_feed_rest() follows the last connection
 * that the call takes back. */
int exi_switch_down(struct exi_sock *sk, int fd, int reason,
		    struct exi_patience *p);
/* The same until a deadline, and exi_feed_rest() follows. */
int exi_switch_down_until(struct exi_sock *sk, int fd, int reason,
			  uint64_t deadline_ns);

/* After that, of a connection that this process forgets and others have: where
 * the peer is gone with bytes unread, the others keep them, and the descriptor
 * gets a copy. The generation is from before the wait: another socket that has
 * the place by now is left alone. exi_feed_rest() follows. */
EXI_SHIM void exi_switch_part(struct exi_sock *sk, int fd, uint32_t generation);

/* Lets the directions be switched (again). */
int exi_switch_allow(struct exi_sock *sk, int fd);
/* The same of one that is on TCP for this reason (-EPERM: it is not), without a
 * wait: -EAGAIN while a downgrade is under way. */
int exi_switch_allow_now(struct exi_sock *sk, int fd, int reason);

#endif
