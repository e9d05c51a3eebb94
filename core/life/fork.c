/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens to connections when the process forks. */
#include "core/life/fork.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/heap.h"
#include "core/base/list.h"
#include "core/call/feed.h"
#include "core/call/loan.h"
#include "core/call/poller.h"
#include "core/fabric/provider.h"
#include "core/meet/candidate.h"
#include "core/meet/handed.h"
#include "core/meet/latent.h"
#include "core/meet/meet.h"
#include "core/sock/holders.h"
#include "core/sock/memory.h"
#include "core/sock/names.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"

/* Whether the fabric stays with the parent. */
static bool stays(const struct exi_sock *sk)
{
	return exi_sock_remote(sk) || exi_loan_in_place(sk, EXI_RX) ||
	       exi_loan_in_place(sk, EXI_TX);
}

/* Only sockets older than this thread's fork are counted for its child,
 * whatever other threads make or close meanwhile. */
static _Thread_local uint64_t my_fork;

static bool before_fork(const struct exi_sock *sk)
{
	return atomic_load(&sk->born) < my_fork;
}

/* The word changes even if it was shared before: own_again() in patience.c
 * pairs with this. */
static void share_blocking(struct exi_sock *sk)
{
	uint32_t was = atomic_load(&sk->blocking);

	while (!atomic_compare_exchange_weak(&sk->blocking, &was,
					     (was | EXI_BLOCKING_SHARED) +
						     EXI_BLOCKING_CHANGE))
		;
}

/* Another thread may close it, or make another in its memory. */
static void prefork_one(struct exi_sock *sk, void *arg)
{
	struct exi_shared *sh = exi_sock_shared(sk);

	if (!before_fork(sk))
		return;
	exi_candidate_fork(sk); /* while no other process has the link */
	exi_holders_prefork(&sh->holders);
	share_blocking(sk); /* after the count */
	atomic_store(&sh->owner, 0);
	/* The child cannot get a device, nor a loan: it will ask the parent. */
	if (stays(sk))
		exi_family_keep(sk);
}

void exi_sock_prefork(void)
{
	exi_latent_share_all();
	my_fork = atomic_fetch_add(&exi_sock_forks, 1) + 1;
	exi_sock_each(prefork_one, NULL);
	/* After the child was counted: a thread that makes a note now finds the
	 * child, or this finds the note. */
	exi_handed_forks();
}

static void unfork_one(struct exi_sock *sk, void *arg)
{
	if (!before_fork(sk))
		return;
	exi_holders_unfork(&sk->sh->holders);
	/* No other process can change O_NONBLOCK or a time-out. */
	if (exi_holders_alone(&sk->sh->holders))
		atomic_fetch_and(&sk->blocking, ~(uint32_t)EXI_BLOCKING_KNOWN);
}

void exi_sock_fork_failed(void)
{
	exi_sock_each(unfork_one, NULL);
}

static void fork_one(struct exi_sock *sk, void *arg)
{
	enum exi_dir d;

	sk->unused = true;
	if (!before_fork(sk)) {
		exi_holders_prefork(&sk->sh->holders);
		exi_memory_keep(sk->sh);
	}
	exi_holders_inherit(&sk->sh->holders);
	/* Its parent counts the child, which has it, until that ends. */
	if (sk->role == EXI_ROLE_LISTEN)
		exi_memory_own(sk->sh);
	/* The parent is about to close it: it is no descriptor of the child's.
	 * Descriptors are copied before memory: a descriptor that lingers here
	 * was open then. */
	if (sk->lingers)
		close(atomic_load(&sk->fd));
	sk->lingers = sk->closing = false;
	atomic_store(&sk->link_lock.word, 0);
	atomic_store(&sk->link_rests, false);
	exi_list_init(&sk->todo);
	sk->todo_dirs = 0;
	exi_list_init(&sk->poll_ops);
	sk->poll_events = 0;
	atomic_store(&sk->deadline.at, 0);
	if (sk->link)
		exi_poller_inherited(sk, sk->link->fd);
	if (stays(sk)) {
		/* The fabric's memory and its code stay the parent's; what the
		 * core allocated is a copy. */
		if (sk->link)
			exi_fd_close(sk->link->fd);
		free(sk->link);
		sk->link = NULL;
		free(sk->fab);
		exi_memory_no_fabric(sk);
	} else if (sk->link) {
		sk->foreign_link = true;
		sk->link->timer.node = (struct exi_heap){ 0 };
		sk->link->rest.node = (struct exi_heap){ 0 };
	}
	if (sk->fab)
		sk->fab->sleep = 0;
	atomic_store(&sk->guarded, false);
	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_list_init(&sk->ops[d]);
		atomic_store(&sk->n_ops[d], 0);
		sk->posted[d] = NULL;
		sk->n_lent[d] = 0;
		exi_loan_forked(sk, d);
		sk->waiters[d] = NULL;
		free(sk->timeout[d]);
		sk->timeout[d] = NULL;
		sk->armed[d] = 0;
		atomic_store(&sk->hot_in[d], NULL);
		atomic_store(&sk->lookers[d], 0);
	}
}

void exi_sock_forked(void)
{
	exi_latent_forget_all();
	exi_handed_forked();
	exi_feed_forked();
	atomic_store(&exi_table_promote_lock.word, 0);
	atomic_store(&exi_table_pool_lock.word, 0);
	exi_names_forked();
	exi_holders_forked();
	atomic_store(&exi_table_exit_tid, 0);
	exi_sock_each(fork_one, NULL);
	exi_memory_forked();
	exi_table_track_each(); /* notices the first use here */
	exi_poller_forked();
}
