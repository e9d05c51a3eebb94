/* SPDX-License-Identifier: BSD-2-Clause */
/* What is posted on a link, and the credits for it. */
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

/* Takes what arrived. None of the locks is held, but perhaps the core's. How much
 * it was. */
int exi_rma_net_poll(struct exi_rma_net *n);
/* Gives back credits that are owed. The net's lock is held. */
void exi_rma_net_pay(struct exi_rma_net *n);
/* With the net's lock. */
static inline int exi_rma_net_take(struct exi_rma_net *n)
{
	int ret = exi_rma_fabric.take(n);

	if (!ret && exi_unlikely(n->debtor))
		exi_rma_net_pay(n);
	return ret;
}
/* The same, unless another thread is at it; up to so many times, until there is
 * something. */
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

/* What nets owe, at the latest now. The service lock is held. */
void exi_rma_debts_look(void);

/* A message, with extra bytes after its header; credits are filled in. -EAGAIN:
 * no credit but for the reserve's users. */
int exi_rma_link_say(struct exi_rma_link *l, struct exi_rma_msg *m,
		     const void *extra, bool urgent, bool reserve);
/* Bytes and their note. -EAGAIN as above. ret is null, or says which it was, and
 * the device tells when it is done. */
int exi_rma_link_write(struct exi_rma_link *l, const void *from,
		       const struct exi_rma_mr *mr, uint64_t to, uint64_t key,
		       uint32_t len, uint32_t kind, struct exi_rma_sent *ret);
/* A write would find a credit. */
bool exi_rma_link_writable(struct exi_rma_link *l);
/* Whatever arrives for the direction wakes who sleeps on stir, or rings the
 * pair link once. */
void exi_rma_link_want(struct exi_rma_link *l, enum exi_dir dir, bool word);
void exi_rma_link_want_no_more(struct exi_rma_link *l, enum exi_dir dir,
			       bool word);
/* As if something had. */
void exi_rma_link_stir(struct exi_rma_link *l, enum exi_dir dir);

/* So many of them are received: the buffers they came in are there again, those of
 * all that was noted and heard. Gives credits back, when there are enough or the
 * other end waits for them. The same lock. */
void exi_rma_link_give(struct exi_rma_link *l, uint32_t n);
/* It has left its net. The same lock. */
void exi_rma_link_left(struct exi_rma_link *l);
/* Nothing arrives any more; the pair link hangs up. Any lock. */
void exi_rma_link_fail(struct exi_rma_link *l, int err, const char *why);
/* The queue pair takes and sends nothing any more, from here on. Any lock. */
void exi_rma_link_kill(struct exi_rma_link *l);

void exi_post_ring(struct exi_rma_link *l);

void exi_post_wake(struct exi_rma_link *l, enum exi_dir dir);

unsigned int exi_post_room(struct exi_rma_link *l);

int exi_post(struct exi_rma_link *l, const struct exi_rma_req *r,
	     unsigned int n);

bool exi_post_asked(_Atomic bool *what);

#endif
