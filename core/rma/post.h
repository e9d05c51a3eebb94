/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting on a link, its credits, and the credits that a net owes. */
#ifndef EXI_CORE_RMA_POST_H
#define EXI_CORE_RMA_POST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/rma/lock.h"
#include "core/rma/rma.h"

struct exi_rma_msg;

/* Takes what arrived for the net's links; returns how much. No lock of a net or
 * link is held; locks of the core may be. */
int exi_rma_net_poll(struct exi_rma_net *n);
/* Gives back the credits that are owed. The net's lock is held. */
void exi_rma_net_pay(struct exi_rma_net *n);
/* Takes what arrived; if nothing did, gives back the credits that are owed. The
 * net's lock is held. */
static inline int exi_rma_net_take(struct exi_rma_net *n)
{
	int ret = exi_rma_fabric.take(n);

	if (!ret && exi_unlikely(n->debtor))
		exi_rma_net_pay(n);
	return ret;
}
/* Looks up to `looks` times, until something has arrived; 0 also if another
 * thread has the net's lock. */
static inline int exi_rma_net_look(struct exi_rma_net *n, unsigned int looks)
{
	int ret;

	if (!exi_rma_trylock(&n->lock))
		return 0;
	do
		ret = exi_rma_net_take(n);
	while (!ret && --looks);
	exi_rma_unlock(&n->lock);
	return ret;
}
static inline int exi_rma_net_try_poll(struct exi_rma_net *n)
{
	return exi_rma_net_look(n, 1);
}

/* Gives back the credits that the reminded nets owe. The service lock is
 * held. */
void exi_rma_debts_tick(void);

/* Sends a message, with m->extra bytes after its header; credits are filled in.
 * reserve: the message may use the reserved credits. -EAGAIN: no credit, or no
 * room. */
int exi_rma_link_say(struct exi_rma_link *l, struct exi_rma_msg *m,
		     const void *extra, bool urgent, bool reserve);
/* Writes bytes and sends their note. -EAGAIN: no credit, or no room. If ret is
 * not null, it receives the request's place, and the device reports when that
 * request is done. */
int exi_rma_link_write(struct exi_rma_link *l, const void *from,
		       const struct exi_rma_mr *mr, uint64_t to, uint64_t key,
		       uint32_t len, uint32_t kind, struct exi_rma_sent *ret);
/* Whether a write would find a credit. */
bool exi_rma_link_writable(struct exi_rma_link *l);
/* Asks that anything that arrives for the direction wakes the sleepers on stir
 * (word), or sends one WAKE over the pair link. */
void exi_rma_link_want(struct exi_rma_link *l, enum exi_dir dir, bool word);
void exi_rma_link_want_no_more(struct exi_rma_link *l, enum exi_dir dir,
			       bool word);
/* Wakes the direction as if something had arrived. */
void exi_rma_link_wake(struct exi_rma_link *l, enum exi_dir dir);

/* Counts n messages as received; the buffers of all that was noted and heard
 * are posted again. Gives credits back when enough are due, or when the other
 * end waits for them. The net's lock is held. */
void exi_rma_link_give(struct exi_rma_link *l, uint32_t n);
/* The link has left its net: its bells and debts are dropped. The net's lock is
 * held. */
void exi_rma_link_forget(struct exi_rma_link *l);
/* Fails the link: nothing arrives any more, and the pair link hangs up. Any
 * lock. */
void exi_rma_link_fail(struct exi_rma_link *l, int err, const char *why);
/* Stops the queue pair: from here on it takes and sends nothing. Any lock. */
void exi_rma_link_kill(struct exi_rma_link *l);

/* Rings the pair link, so that the core looks. */
void exi_rma_post_bell(struct exi_rma_link *l);

/* Sends the wake-ups that this direction's waiters asked for: to sleepers, and
 * by the doorbell. */
void exi_rma_post_wake(struct exi_rma_link *l, enum exi_dir dir);

/* How many requests the queue pair takes now. The post lock is held. */
unsigned int exi_rma_post_room(struct exi_rma_link *l);

/* Posts n requests, one or two, with one call of the device. 0; -EAGAIN: no
 * room, or the link failed now. The post lock is held. */
int exi_rma_post(struct exi_rma_link *l, const struct exi_rma_req *r,
		 unsigned int n);

/* Clears another thread's request; returns whether there was one. Loads before
 * it exchanges: mostly there is no request, and an exchange costs more. */
bool exi_rma_post_asked(_Atomic bool *what);

#endif
