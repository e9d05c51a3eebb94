/* SPDX-License-Identifier: BSD-2-Clause */
/* Events that report transfers which take long, without ending them
 * (SO_ASYNC_SEND_TIMEOUT, SO_ASYNC_RECV_TIMEOUT).
 *
 * The time of a direction begins when an operation becomes its first, and again
 * with each event. A thread that submits or finishes notes the time, under the
 * direction's lock; the service looks once in that time, so that no transfer
 * wakes it. */
#ifndef EXI_CORE_TRANSFER_TIMEOUT_H
#define EXI_CORE_TRANSFER_TIMEOUT_H

#include <stdint.h>
#include <sys/exs.h>

#include "core/base/list.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

struct exi_op;

struct exi_timeout {
	struct exi_list node;
	struct exi_sock *sk;
	struct exi_op
		*op; /* the slot for the event, reserved as long as it is set */
	exs_timeout_t asked;
	uint64_t ns;
	uint64_t since; /* guarded by the direction's lock */
	uint64_t look;	/* the service's: when to look next */
	enum exi_dir dir;
};

/* The first operation of the direction is another one; its lock is held. */
static inline void exi_timeout_begins_locked(struct exi_sock *sk,
					     enum exi_dir dir)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (exi_unlikely(sk->timeout[dir]))
		sk->timeout[dir]->since = exi_now_ns();
}

/* Sets the time-out, or with no time removes it. -EINVAL, -EAGAIN, ... */
int exi_timeout_set(int fd, enum exi_dir dir, const exs_timeout_t *t);
int exi_timeout_get(int fd, enum exi_dir dir, exs_timeout_t *ret);

/* Called by the service: makes the events that are due. Returns when to call
 * again (ns); UINT64_MAX: never. */
uint64_t exi_timeout_tick(uint64_t now);

/* The socket goes away; no lock is held. */
void exi_timeout_drop(struct exi_sock *sk);
void exi_timeout_forked(void);

#endif
