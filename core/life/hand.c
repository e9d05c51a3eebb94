/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections handed to another process, and those received from one. */
#include "core/life/hand.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/ids.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/meet/find.h"
#include "core/meet/handed.h"
#include "core/meet/latent.h"
#include "core/meet/surroundings.h"
#include "core/sock/base.h"
#include "core/sock/holders.h"
#include "core/sock/names.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"

/* Whether it can be handed on, if no other process uses it. */
static bool may_go_locked(struct exi_sock *sk, int fd)
{
	EXI_LOCKED(&sk->link_lock);
	return exi_sock_is(sk, fd) && sk->adopted && !sk->closing &&
	       (sk->role == EXI_ROLE_CONNECT || sk->role == EXI_ROLE_ACCEPT) &&
	       sk->base == &exi_base_tcp &&
	       atomic_load(&sk->sh->owner) == exi_use_token() &&
	       !exi_name_others(sk, fd) && exi_handed_over_locked(sk);
}

static bool is_alone(struct exi_sock *sk, int fd)
{
	bool ret;

	exi_sock_inherit(sk); /* the first use after a fork, perhaps */
	exi_fds_begin();
	exi_lock(&sk->link_lock);
	ret = exi_holders_sole(&sk->sh->holders) && may_go_locked(sk, fd);
	exi_unlock(&sk->link_lock);
	exi_fds_end();
	return ret;
}

enum exi_hand exi_hand_by_exec(struct exi_sock *sk, int fd)
{
	enum exi_hand ret = EXI_HAND_NOT;

	exi_sock_inherit(sk);
	exi_fds_begin();
	exi_lock(&sk->link_lock);
	if (may_go_locked(sk, fd))
		ret = exi_holders_bequeath(&sk->sh->holders) ? EXI_HAND_ALONE
							     : EXI_HAND_LATER;
	exi_unlock(&sk->link_lock);
	exi_fds_end();
	return ret;
}

bool exi_hand_by_spawn(struct exi_sock *sk, int fd)
{
	return is_alone(sk, fd) && exi_holders_spawning() == 1;
}

/* Reads the count of forks first: a child that gets the connection from here on
 * is noticed. */
bool exi_hand_leaves(struct exi_sock *sk, int fd, struct exi_handed_note *ret)
{
	struct exi_holders *h = &exi_sock_shared(sk)->holders;
	int32_t heir;

	if (exi_likely(atomic_load(&h->n) == 1 && !atomic_load(&h->strays)))
		return false;
	*ret = (struct exi_handed_note){ .fd = fd,
					 .forks = exi_handed_forked_times() };
	if (!exi_sock_is(sk, fd) || exi_name_others(sk, fd))
		return false;
	heir = exi_holders_heir(h);
	if (heir) {
		ret->cookie = exi_sock_cookie(fd);
		ret->by = EXI_HEIR(heir);
	}
	return ret->cookie;
}

/* A spawn under way may have got the connection before or after the look at it;
 * one that is over has left a stray; one that begins later changes the count of
 * forks. */
void exi_hand_note(int fd, int by)
{
	struct exi_sock *sk = exi_sock_find(fd);
	/* Files need no system call, unless one has the number of a note. */
	uint64_t cookie =
		sk || atomic_load(&exi_handed_notes) ? exi_sock_cookie(fd) : 0;
	uint32_t forked = exi_handed_forked_times();

	exi_handed_retract(fd);
	if (cookie && !exi_handed_again(fd, by, cookie) && sk &&
	    !exi_holders_spawning() && is_alone(sk, fd)) {
		exi_handed_add(fd, by, cookie, forked);
		exi_proof_sign(fd); /* so the receiver looks for a giver */
	}
}

/* The library waits for no lock of a file that came by a message, which its
 * sender may keep, before the program uses it: the user at the other end of
 * `by' need not be the sender's (socketpair(2) names who made it). What kind of
 * socket it is takes no lock; it is asked first, because most files are
 * none. */
static bool came(int fd, int by)
{
	uint32_t giver;

	if (exi_base_of(fd) != &exi_base_tcp || !exi_handed_by_ours(by)) {
		exi_surroundings_foreign(fd);
		return false;
	}
	exi_handed_retract(fd);
	if (exi_tcp_is_listening(fd))
		return false;
	exi_fds_begin();
	giver = exi_handed_giver(by);
	exi_fds_end();
	return giver && exi_latent_came(fd, giver);
}

bool exi_hand_take(int fd, int by)
{
	enum exi_role role;
	struct exi_sock *sk;
	bool ret;

	if (by >= 0)
		return came(fd, by);
	exi_handed_retract(fd);
	exi_fds_begin();
	role = exi_handed_role(fd);
	ret = role != EXI_ROLE_NONE && exi_sock_make(fd, role, true, &sk) == 0;
	if (ret)
		exi_handed_begin(sk, fd,
				 by == EXI_BY_LATER ? EXI_HEIR(getpid()) : 0);
	exi_fds_end();
	return ret;
}

/* Notes made meanwhile are dropped before the spawn is over. */
void exi_hand_spawned(void)
{
	int saved = errno;

	exi_handed_forks();
	atomic_thread_fence(memory_order_seq_cst);
	exi_latent_share_all();
	exi_holders_spawned();
	errno = saved;
}

void exi_hand_born(int fd, uint32_t forked)
{
	struct exi_sock *sk;

	atomic_thread_fence(memory_order_seq_cst);
	if (exi_likely(exi_handed_forked_times() == forked))
		return;
	exi_latent_shared(fd);
	sk = exi_sock_peek(fd);
	if (!sk && !exi_latent_is_come(exi_latent_word_of(fd)))
		sk = exi_sock_find(fd);
	if (sk)
		exi_holders_stray(&exi_sock_shared(sk)->holders);
}
