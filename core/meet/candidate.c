/* SPDX-License-Identifier: BSD-2-Clause */
/* Candidates: strangers that connect to A's meeting name, until one of them has
 * proved to be the peer. */
#include "core/meet/candidate.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/rights.h"
#include "core/base/util.h"
#include "core/meet/again.h"
#include "core/meet/bound.h"
#include "core/meet/meet.h"
#include "core/meet/pair.h"
#include "core/sock/base.h"
#include "core/sock/closing.h"
#include "core/sock/holders.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"

#define PROVE_NS 1000000000u /* until another candidate may see the board */
#define PROVERS	 8u	     /* candidates that may see it */

/* Reads earlier messages first: if a socket is closed with something unread,
 * its peer gets an error before all that was sent. */
static void tell(int fd, int reason, bool not_now)
{
	struct exi_pair_msg m;

	for (unsigned int i = 0; i < EXI_LINK_CANDIDATES; i++)
		if (exi_rights_none(fd, &m, sizeof(m)) <= 0)
			break;
	if (not_now)
		exi_pair_send_not_now(fd, reason);
	else
		exi_pair_send_no(fd, reason);
}

/* Sends NO to all that are at the link. */
static void tell_all_locked(struct exi_sock *sk, int told, bool not_now)
{
	struct exi_link *l = sk->link;
	unsigned int i;
	int fd;

	EXI_LOCKED(&sk->link_lock);
	if (l->fd >= 0)
		tell(l->fd, told, not_now);
	for (i = 0; i < EXI_LINK_CANDIDATES; i++)
		if (l->candidates[i] >= 0)
			tell(l->candidates[i], told, not_now);
	/* From here on no other candidate comes: all of them get the
	 * message. */
	if (l->listener >= 0 && exi_holders_count(&sk->sh->holders) <= 1)
		shutdown(l->listener, SHUT_RDWR);
	/* The kernel's queue has one more than listen() asked for. */
	for (i = 0; l->listener >= 0 && i <= EXI_LINK_CANDIDATES; i++) {
		fd = exi_closing_accept(l->listener, true);
		if (fd < 0)
			break;
		tell(fd, told, not_now);
		exi_closing_socket(fd, true);
	}
}

void exi_candidate_part_locked(struct exi_sock *sk, int told, int reason)
{
	EXI_LOCKED(&sk->link_lock);
	tell_all_locked(sk, told, exi_again_by_another(reason));
	exi_meet_give_up_locked(sk, reason);
}

/* Whether a meeting is under way that a fork would split. A look needs no
 * peer yet, and the child makes it (exi_look_inherited_locked()). A fabric
 * between hosts stays with this process. */
static bool is_split_locked(const struct exi_sock *sk)
{
	const struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	return l && !sk->foreign_link && !sk->closing &&
	       l->state != EXI_LINK_LOOK && l->state != EXI_LINK_REMOTE &&
	       l->state != EXI_LINK_UP;
}

void exi_candidate_fork(struct exi_sock *sk)
{
	if (exi_lock_held(&sk->link_lock))
		return;
	exi_fds_begin();
	exi_lock(&sk->link_lock);
	if (is_split_locked(sk)) {
		tell_all_locked(sk, EXS_X_REASON_SHARED, true);
		exi_meet_put_off_locked(sk, EXS_X_REASON_SHARED);
	}
	exi_unlock(&sk->link_lock);
	exi_fds_end();
}

void exi_candidate_give_up(struct exi_sock *sk, void *arg)
{
	int *n = arg;

	exi_lock(&sk->link_lock);
	if (sk->link && sk->link->state != EXI_LINK_UP &&
	    sk->link->state != EXI_LINK_LOOK && !sk->foreign_link) {
		exi_meet_give_up_locked(sk, EXS_X_REASON_DESCRIPTORS);
		++*n;
	}
	exi_unlock(&sk->link_lock);
}

int exi_link_reclaim(void)
{
	int n = 0;

	exi_fds_ran_out();
	exi_sock_each(exi_candidate_give_up, &n);
	return n;
}

/* Sends a candidate away; another one may still be the peer. */
static void dismiss_locked(struct exi_sock *sk, unsigned int slot)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	if (l->prover == (int)slot) {
		exi_link_clear_locked(sk);
		l->prover = -1;
	}
	exi_meet_forget_fd(l, &l->candidates[slot]);
}

/* The candidate is the peer. */
static void adopt_candidate_locked(struct exi_sock *sk, unsigned int slot,
				   const struct exi_pair_msg *m)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	exi_link_clear_locked(sk);
	l->fd = l->candidates[slot];
	l->candidates[slot] = -1;
	exi_meet_stop_listening(l);
	l->peer_token = m->b;
	l->peer_providers = m->a;
	l->timer.deadline = exi_now_ns() + EXI_MEET_STEP_NS;
	exi_service_timed(&l->timer);
	atomic_store(&sk->sh->linked, 1);
	exi_service_rewatch(sk, l->fd, EXI_WATCH_LINK, EPOLLIN);
}

/* Each end knows the other's user. */
static void known_candidate_locked(struct exi_sock *sk, unsigned int slot,
				   const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = exi_meet_hello(sk, true);
	int err;

	EXI_LOCKED(&sk->link_lock);
	adopt_candidate_locked(sk, slot, m);
	sk->link->state = EXI_LINK_PROVED;
	err = exi_pair_send(sk->link->fd, &out, -1);
	if (err)
		exi_meet_refuse_locked(sk, exi_meet_unproved(err));
}

/* The candidate saw all symbols, and showed its own. */
static void proved_candidate_locked(struct exi_sock *sk, unsigned int slot,
				    struct exi_pair_msg *m)
{
	int ret;

	EXI_LOCKED(&sk->link_lock);
	adopt_candidate_locked(sk, slot, m);
	exi_meet_await_segment(sk->link, EXI_LINK_ANSWER);
	ret = exi_meet_offer(sk, m);
	if (ret)
		exi_meet_refuse_locked(sk, -ret);
}

/* One candidate at a time may see the board, and not many in all. A candidate
 * of the peer's user (known) waits for no other, because the board may hide A's
 * sign from it while a stranger sees it. */
static int begin_proof_locked(struct exi_sock *sk, unsigned int slot,
			      const struct exi_pair_msg *m, bool known)
{
	struct exi_pair_msg out = exi_meet_hello(sk, false);
	struct exi_link *l = sk->link;
	uint64_t now = exi_now_ns();
	int err;

	EXI_LOCKED(&sk->link_lock);
	if (!known && (l->provers == PROVERS ||
		       (l->prover >= 0 && now - l->prover_since < PROVE_NS)))
		return -EPERM;
	if (l->prover >= 0)
		dismiss_locked(sk, (unsigned int)l->prover);
	l->provers++;
	l->prover = (int)slot;
	l->prover_since = now;
	err = exi_bound_answer(&l->bound, sk->tcp->fd, m->blob, out.blob);
	return err ? err : exi_pair_send(l->candidates[slot], &out, -1);
}

/* A: B shows a symbol; the first one comes with its nonce. */
static int see(struct exi_sock *sk, int link, const struct exi_tuple *t,
	       const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = exi_pair_message(EXI_PAIR_SHOWN);
	struct exi_bound *p = &sk->link->bound;
	int err = 0;

	if (m->a != p->looked || p->looked == EXI_BOUND_SYMBOLS)
		return -EPERM;
	if (m->a == 0)
		err = exi_bound_opened(p, link, t, m->blob);
	if (!err)
		err = exi_bound_check(p, t);
	out.a = m->a;
	return err ? err : exi_meet_show(sk, link, &out);
}

/* Whether the candidate's user is shunned. If the link is known to be the
 * peer's, no other candidate comes. */
static int shunned_candidate_locked(struct exi_sock *sk, unsigned int slot,
				    bool known)
{
	EXI_LOCKED(&sk->link_lock);
	sk->link->shunned = true;
	if (!known)
		return -ETIMEDOUT;
	exi_pair_send_no(sk->link->candidates[slot], EXS_X_REASON_TIMEOUT);
	exi_meet_give_up_locked(sk, EXS_X_REASON_TIMEOUT);
	return 0;
}

/* A candidate from another namespace: first its nonce, then its proof. */
static int hear_keyed_locked(struct exi_sock *sk, unsigned int slot,
			     struct exi_pair_msg *m)
{
	struct exi_pair_msg out = exi_pair_message(EXI_PAIR_HELLO);
	struct exi_link *l = sk->link;
	int fd = l->candidates[slot], err;
	uint8_t mac[EXI_SHA256];

	EXI_LOCKED(&sk->link_lock);
	if (m->type == EXI_PAIR_HELLO && (m->c & EXI_HELLO_KEY)) {
		if (exi_meet_shunned(fd))
			return shunned_candidate_locked(sk, slot, false);
		memcpy(l->keyed->peer[slot], m->blob, EXI_MEETDIR_NONCE);
		out.c = EXI_HELLO_KEY;
		memcpy(out.blob, l->keyed->own, EXI_MEETDIR_NONCE);
		err = exi_meet_prove(sk, fd, slot, true, NULL,
				     out.blob + EXI_MEETDIR_NONCE);
		return err ? err : exi_pair_send(fd, &out, -1);
	}
	if (m->type != EXI_PAIR_PROVED)
		return -EPERM;
	err = exi_meet_prove(sk, fd, slot, false, m, mac);
	if (err)
		return err;
	if (!exi_meetdir_same(mac, m->blob))
		return -EPERM;
	proved_candidate_locked(sk, slot, m);
	return 0;
}

/* B, whose user is known, stays on TCP: for good, or so far. */
static void refused_locked(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	int reason = exi_meet_told_reason(m);

	EXI_LOCKED(&sk->link_lock);
	if (m->type == EXI_PAIR_NO)
		exi_meet_give_up_locked(sk, reason);
	else
		sk->link->kept = reason;
}

/* Whether the peer has closed its end, so that the kernel may know no more of
 * it. */
static bool has_left(struct exi_sock *sk)
{
	return sk->base == &exi_base_tcp && (exi_tcp_ended(sk) & POLLRDHUP);
}

/* 0, or the reason to send the candidate away. */
static int hear_candidate_locked(struct exi_sock *sk, unsigned int slot,
				 struct exi_pair_msg *m)
{
	struct exi_link *l = sk->link;
	bool prover = l->prover == (int)slot, refuses;
	int fd = l->candidates[slot], err;
	struct exi_tuple t;

	EXI_LOCKED(&sk->link_lock);
	if (l->keyed)
		return hear_keyed_locked(sk, slot, m);
	err = exi_tuple_of(sk->tcp->fd, &t);
	if (err)
		return err;
	if (prover && m->type == EXI_PAIR_SHOWN)
		return see(sk, fd, &t, m);
	if (prover && m->type == EXI_PAIR_PROVED &&
	    l->bound.looked == EXI_BOUND_SYMBOLS) {
		proved_candidate_locked(sk, slot, m);
		return 0;
	}
	refuses = m->type == EXI_PAIR_NO || m->type == EXI_PAIR_KEPT;
	if (prover || (m->type != EXI_PAIR_HELLO && !refuses))
		return refuses ? -EOPNOTSUPP : -EPERM;
	err = exi_proof_peers_user(&t, sk->tcp->fd, fd);
	/* The farewell took the place of the sign. */
	if (err && exi_proof_left(&t)) {
		exi_meet_give_up_locked(sk, EXS_X_REASON_PEER_REQUEST);
		return 0;
	}
	if (refuses && !err)
		refused_locked(sk, m);
	/* One that has left since is not unknown. */
	if (refuses)
		return err && (err == -EPERM || !has_left(sk)) ? -EOPNOTSUPP
							       : err;
	if (err && err != -EPERM)
		return err;
	if (exi_meet_shunned(fd))
		return shunned_candidate_locked(sk, slot, err == 0);
	if (err || (m->c & EXI_HELLO_SHOW))
		return begin_proof_locked(sk, slot, m, !err);
	known_candidate_locked(sk, slot, m);
	return 0;
}

void exi_link_candidate_event(struct exi_sock *sk, unsigned int slot)
{
	struct exi_pair_msg m;
	struct exi_link *l;
	int err, reason;
	ssize_t n;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (!l || l->state != EXI_LINK_LISTEN || l->candidates[slot] < 0)
		goto unlock;
	n = exi_rights_none(l->candidates[slot], &m, sizeof(m));
	if (n == -EAGAIN)
		goto unlock;
	/* A candidate that only connects and leaves claims nothing. */
	l->proposed = l->proposed || n > 0;
	if (exi_pair_is_not_now(&m, n)) { /* it, or its child, comes again */
		l->proposed = false;
		dismiss_locked(sk, slot);
		goto unlock;
	}
	err = n > 0 && exi_pair_well_formed(&m, n)
		      ? hear_candidate_locked(sk, slot, &m)
		      : -EPERM;
	if (!err)
		goto unlock;
	/* This candidate cannot be identified: it is taken for the peer if no
	 * other one comes. */
	reason = exi_meet_unproved(err);
	if (exi_meet_is_ours(reason)) {
		l->unprovable |= reason == EXS_X_REASON_NO_PROOF;
		l->starved |= reason == EXS_X_REASON_DESCRIPTORS;
		exi_pair_send_no(l->candidates[slot], reason);
	}
	dismiss_locked(sk, slot);
unlock:
	exi_unlock(&sk->link_lock);
}

void exi_link_option(struct exi_sock *sk, int level, int name)
{
	struct exi_link *l;

	if (!exi_bound_uses(level, name))
		return;
	exi_lock(&sk->link_lock);
	l = sk->link;
	if (l && l->bound.taken && l->prover >= 0)
		dismiss_locked(sk, (unsigned int)l->prover);
	else if (l && l->bound.taken)
		exi_meet_give_up_locked(sk, EXS_X_REASON_NO_PROOF);
	exi_unlock(&sk->link_lock);
}

static unsigned int candidate_slot_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;
	unsigned int i, oldest = 0;

	EXI_LOCKED(&sk->link_lock);
	for (i = 0; i < EXI_LINK_CANDIDATES; i++) {
		if (l->candidates[i] < 0)
			return i;
		if (l->candidate_since[i] < l->candidate_since[oldest])
			oldest = i;
	}
	dismiss_locked(sk, oldest);
	return oldest;
}

void exi_link_listener_event(struct exi_sock *sk)
{
	struct exi_link *l;
	unsigned int i, slot;
	int fd;

	exi_lock(&sk->link_lock);
	l = sk->link;
	/* Accepts only as many as there is space for: the event comes again for
	 * the rest. */
	for (i = 0; l && l->listener >= 0 && i < EXI_LINK_CANDIDATES; i++) {
		fd = exi_closing_accept(l->listener, true);
		if (fd == -EMFILE || fd == -ENFILE) {
			/* Otherwise the event would come again and again; and
			 * giving up frees a descriptor. */
			exi_meet_give_up_locked(sk, EXS_X_REASON_DESCRIPTORS);
			break;
		}
		if (fd < 0) {
			l->starved = l->starved || fd == -ENOSPC;
			break;
		}
		slot = candidate_slot_locked(sk);
		l->candidates[slot] = fd;
		l->candidate_since[slot] = exi_now_ns();
		if (exi_service_watch(sk, fd, EXI_WATCH_CANDIDATE + slot,
				      EPOLLIN))
			exi_meet_forget_fd(l, &l->candidates[slot]);
	}
	exi_unlock(&sk->link_lock);
}
