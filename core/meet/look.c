/* SPDX-License-Identifier: BSD-2-Clause */
/* How B looks whether A waits for it: when, and its first messages. */
#include "core/meet/look.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/base/config.h"
#include "core/base/ids.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/meet/again.h"
#include "core/meet/begin.h"
#include "core/meet/bound.h"
#include "core/meet/marker.h"
#include "core/meet/marks.h"
#include "core/meet/meet.h"
#include "core/meet/meetdir.h"
#include "core/meet/pair.h"
#include "core/meet/remote.h"
#include "core/meet/surroundings.h"
#include "core/meet/way.h"
#include "core/meet/why.h"
#include "core/meet/worth.h"
#include "core/sock/base.h"
#include "core/sock/closing.h"
#include "core/sock/holders.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"

#define LOOKS_NS 10000000000u /* B looks by time */
#define LOOK_NS	 100000u      /* its first wait, then doubled */

/* Where the sign waits: receives after B's answers at which B looks. A finds
 * the sign at the answer, and waits for B when it sends the next request. */
#define AFTER_ANSWERS 2

/* Checks the process that waits at the name: -ENOENT if there is none; or why
 * it is unknown. */
static int reach_a(const struct exi_tuple *t)
{
	struct sockaddr_un name;
	socklen_t len = exi_meeting_name(t, false, &name);
	int fd = t->afar ? -ENOENT : exi_pair_socket(t);

	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&name, len) == 0)
		return fd;
	exi_closing_socket(fd, true);
	return -ENOENT;
}

/* Tells A why B does not meet, by NO or KEPT. Returns false if A is not there,
 * or not known. */
static bool decline(int fd, enum exi_pair_type type, int reason)
{
	struct exi_tuple t;
	bool told;
	int to;

	/* Or the number is another connection's, or A may be. */
	if (reason == EXS_X_REASON_PLAIN_SOCKET ||
	    reason == EXS_X_REASON_REDIRECTED || exi_tuple_of(fd, &t))
		return false;
	to = reach_a(&t);
	if (to < 0)
		return false;
	told = exi_proof_peers_user(&t, fd, to) == 0 &&
	       exi_pair_send_reason(to, type, reason) == 0;
	exi_closing_socket(to, true);
	return told;
}

void exi_look_decline(int fd, int reason)
{
	decline(fd, EXI_PAIR_NO, reason);
}

void exi_look_kept_locked(struct exi_sock *sk, int reason)
{
	EXI_LOCKED(&sk->link_lock);
	if (sk->role == EXI_ROLE_ACCEPT && !sk->told)
		sk->told = decline(atomic_load(&sk->fd), EXI_PAIR_KEPT, reason);
}

/* B stays on TCP. An A that has not bound its name yet is told at a later mark,
 * unless the mark may be another process's: that one would meet. Returns the
 * reason, the first time. */
static int keep_locked(struct exi_sock *sk, int reason)
{
	const int fd = atomic_load(&sk->fd);
	const bool first = !sk->keeps;

	EXI_LOCKED(&sk->link_lock);
	sk->keeps = reason;
	sk->told = reason == EXS_X_REASON_PLAIN_SOCKET ||
		   reason == EXS_X_REASON_REDIRECTED ||
		   !sk->base->same(sk, fd) || decline(fd, EXI_PAIR_NO, reason);
	/* Without a descriptor it can be told on the socket only. */
	if (!sk->told && reason == EXS_X_REASON_DESCRIPTORS &&
	    sk->base == &exi_base_tcp && sk->base->same(sk, fd) &&
	    exi_holders_sole(&sk->sh->holders))
		exi_proof_leave(fd);
	if (sk->told || !exi_holders_sole(&sk->sh->holders))
		exi_marks_none(sk->sh);
	return first ? reason : EXS_X_REASON_NONE;
}

/* Looks for an A in another network namespace. */
static int reach_keyed_a(const struct exi_sock *sk, const struct exi_tuple *t,
			 struct exi_keyed **ret)
{
	struct exi_keyed *k;
	int fd;

	if (exi_meetdir_state() || !exi_registry_wire_ids() ||
	    (t->family == AF_UNIX && !t->afar))
		return -ENOENT;
	k = exi_begin_keyed(t, false);
	fd = k ? exi_begin_keyed_socket() : -ENOENT;
	if (fd >= 0 && exi_meetdir_connect(fd, &k->name) == 0 &&
	    (t->afar || exi_begin_is_remote(sk, t) > 0)) {
		*ret = k;
		return fd;
	}
	free(k);
	if (fd >= 0)
		exi_closing_socket(fd, true);
	return -ENOENT;
}

static int greet_keyed_a(struct exi_link *l)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_HELLO);

	if (exi_meet_shunned(l->fd))
		return -ETIMEDOUT;
	m.c = EXI_HELLO_KEY;
	memcpy(m.blob, l->keyed->own, sizeof(l->keyed->own));
	return exi_pair_send(l->fd, &m, -1);
}

/* B, on a new link: 0, or the reason for not sending HELLO. */
static int greet_a(struct exi_sock *sk, const struct exi_tuple *t)
{
	struct exi_link *l = sk->link;
	struct exi_pair_msg m;
	int err;

	if (l->keyed)
		return greet_keyed_a(l);
	err = exi_proof_peers_user(t, sk->tcp->fd, l->fd);
	l->known = err == 0;
	if (err && err != -EPERM)
		return err;
	if (exi_meet_shunned(l->fd))
		return -ETIMEDOUT;
	m = exi_meet_hello(sk, l->known);
	err = exi_bound_promise(&l->bound, m.blob);
	if (!err)
		err = exi_pair_send(l->fd, &m, -1);
	return err;
}

/* Whether A's end is over, with what it said on its socket: a look in vain does
 * not mean that nobody was there. */
static bool has_closed(struct exi_sock *sk, const struct exi_tuple *t)
{
	struct inet_diag_sockopt o;

	return sk->base == &exi_base_tcp && (exi_tcp_ended(sk) & POLLRDHUP) &&
	       !exi_tuple_elsewhere(t) && exi_proof_options(t, &o);
}

/* B looks whether A waits. UNDECIDED: it does not. PEER_REQUEST: it said on its
 * socket that it does not meet. */
static int meet_as_b_locked(struct exi_sock *sk, const struct exi_tuple *t)
{
	const struct exi_half *half = sk->sh->half;
	struct exi_keyed *keyed = NULL;
	struct exi_link *l;
	uint64_t in, out;
	int fd, ret, err;

	EXI_LOCKED(&sk->link_lock);
	/* Before it looks: of bytes that come meanwhile, A may wait. */
	in = __atomic_load_n(&half[EXI_RX].bytes, __ATOMIC_RELAXED);
	out = __atomic_load_n(&half[EXI_TX].bytes, __ATOMIC_RELAXED);
	exi_worth_paid_locked(sk);
	fd = reach_a(t);
	if (fd == -ENOENT)
		fd = reach_keyed_a(sk, t, &keyed);
	if (fd == -ENOENT || (fd == -EXDEV && exi_remote_possible())) {
		/* By then A has decided. */
		if (in > EXI_UPGRADE_BYTES && exi_proof_left(t))
			return EXS_X_REASON_PEER_REQUEST;
		sk->young = !t->afar && exi_proof_signed(t) > 0;
		if (!sk->young && !has_closed(sk, t)) {
			sk->vain_in = in;
			sk->vain_out = out;
		}
		return EXS_X_REASON_UNDECIDED;
	}
	if (fd < 0) {
		ret = exi_meet_unproved(fd);
		return exi_meet_is_ours(ret) ? keep_locked(sk, ret) : ret;
	}
	err = exi_service_start();
	l = err ? NULL
		: exi_meet_link_new(sk, EXI_LINK_HELLO, EXI_MEET_STEP_NS,
				    exi_begin_expired);
	if (!l) {
		free(keyed);
		ret = exi_meet_unmade(err);
		if (exi_proof_peers_user(t, sk->tcp->fd, fd) == 0)
			exi_pair_send_no(fd, ret);
		exi_closing_socket(fd, true);
		return ret;
	}
	l->keyed = keyed;
	l->fd = fd;
	sk->link = l;
	atomic_store(&sk->sh->linked, 1);
	ret = greet_a(sk, t);
	if (!ret)
		ret = exi_service_watch(sk, fd, EXI_WATCH_LINK, EPOLLIN);
	if (ret) {
		int reason = exi_meet_unproved(ret);

		if (l->known || exi_meet_is_ours(reason))
			exi_pair_send_no(fd, reason);
		/* Sets the reason, which may be that the connection has
		 * ended. */
		exi_meet_give_up_locked(sk, reason);
		return EXS_X_REASON_NONE;
	}
	exi_service_timed(&l->timer);
	return EXS_X_REASON_NONE;
}

/* The count of received bytes at which B looks again, after it did not find A
 * at one. */
static uint64_t next_received_locked(struct exi_sock *sk)
{
	const struct exi_half *rx = &sk->sh->half[EXI_RX];
	uint64_t bytes = __atomic_load_n(&rx->bytes, __ATOMIC_RELAXED);
	uint64_t at = atomic_load(&rx->meet_at);

	EXI_LOCKED(&sk->link_lock);
	if (!sk->base->sign_waits)
		return bytes > at ? exi_marks_next(bytes) : at;
	/* A found no sign before it sent the bytes of this mark. If it gets no
	 * answers, it looks at its marks, before it sends their bytes. */
	return sk->answers++ < AFTER_ANSWERS ? bytes : exi_marks_next(bytes);
}

/* Sets B's next mark after one where A was not there: also for bytes from the
 * peer, until it has sent enough to wait for B. */
static void next_mark_locked(struct exi_sock *sk)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	uint64_t at = atomic_load(&tx->meet_at);
	uint64_t sent = __atomic_load_n(&tx->bytes, __ATOMIC_RELAXED);

	/* Skips marks that a large send has passed since. */
	if (at < sent)
		at = sent;
	EXI_LOCKED(&sk->link_lock);
	atomic_store(&sk->sh->half[EXI_RX].meet_at, next_received_locked(sk));
	atomic_store(&tx->meet_at, exi_marks_next(at));
}

/* Whether the peer's address is not of this network namespace, and nothing
 * reaches beyond it: no peer will ever be met. */
static bool is_out_of_reach(const struct exi_tuple *t)
{
	return !exi_remote_possible() && exi_meetdir_state() &&
	       exi_tuple_elsewhere(t);
}

static int meet_b_locked(struct exi_sock *sk, int fd, bool eager)
{
	struct exi_shared *sh = sk->sh;
	struct exi_tuple t;
	int reason =
		sk->keeps ? sk->keeps : exi_begin_may_meet(sk, fd, NULL, &t);

	EXI_LOCKED(&sk->link_lock);
	if (reason)
		return keep_locked(sk, reason);
	/* Another process may have accepted it. */
	if (exi_remote_possible() && exi_begin_is_remote(sk, &t) > 0)
		exi_marker_reach(fd);
	reason = meet_as_b_locked(sk, &t);
	if (reason == EXS_X_REASON_UNDECIDED && !eager && is_out_of_reach(&t))
		reason = exi_why_elsewhere();
	/* A process that was there has left the connection to another. */
	if (reason == EXS_X_REASON_PEER_LOST && sk->again &&
	    exi_again_later_locked(sk))
		return EXS_X_REASON_UNDECIDED;
	if (reason != EXS_X_REASON_UNDECIDED) {
		/* A that was there, and is to be met later, has its mark. */
		if (!sk->keeps && (reason || sk->link || !sk->again))
			exi_marks_none(sh);
		return reason;
	}
	if (eager)
		return reason;
	if (sk->again)
		return exi_again_later_locked(sk) ? reason
						  : exi_why_nobody(&t, fd);
	return reason;
}

/* Makes the service thread look for A after this time. Returns whether it
 * will. */
static bool look_later_locked(struct exi_sock *sk, uint64_t in, uint64_t delay,
			      uint64_t until)
{
	struct exi_link *l = exi_now_ns() < until && exi_service_start() == 0
				     ? exi_meet_link_new(sk, EXI_LINK_LOOK, in,
							 exi_begin_expired)
				     : NULL;

	EXI_LOCKED(&sk->link_lock);
	if (!l)
		return false;
	l->delay = delay;
	l->until = until;
	sk->link = l;
	exi_service_timed(&l->timer);
	return true;
}

/* B looks for A now and, if it is not there, again a little later; at last,
 * when A sends something. */
static void look_locked(struct exi_sock *sk, uint64_t delay, uint64_t until)
{
	int reason = meet_b_locked(sk, atomic_load(&sk->fd), true);
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&sk->link_lock);
	if (sk->keeps) {
		if (reason)
			exi_sock_reason(sk, reason);
		if (!sk->told && exi_service_runs() &&
		    !exi_surroundings_filters())
			look_later_locked(sk, delay, delay * 2, until);
		return;
	}
	if (reason == EXS_X_REASON_UNDECIDED) {
		if (look_later_locked(sk, delay, delay * 2, until))
			return;
		reason = exi_why_nobody_of(atomic_load(&sk->fd));
		atomic_store(&rx->meet_at,
			     __atomic_load_n(&rx->bytes, __ATOMIC_RELAXED));
	}
	if (reason)
		exi_sock_reason(sk, reason);
	else if (atomic_load(&sk->sh->reason) == EXS_X_REASON_PLAIN_PEER)
		exi_sock_reason(sk, EXS_X_REASON_UNDECIDED); /* it is not */
}

/* Called when a mark was passed. After the last one the peer counts as plain,
 * because A meets before it has received as much. But A's thread may be delayed
 * while the kernel takes all bytes: so B also looks by time, once in its
 * life. */
static int look_at_mark_locked(struct exi_sock *sk)
{
	const struct exi_half *tx = &sk->sh->half[EXI_TX];
	int fd = atomic_load(&sk->fd);
	int reason = meet_b_locked(sk, fd, false);

	EXI_LOCKED(&sk->link_lock);
	if (reason != EXS_X_REASON_UNDECIDED || sk->again ||
	    atomic_load(&tx->meet_at) != UINT64_MAX)
		return reason;
	reason = exi_why_nobody_of(fd);
	if (reason == EXS_X_REASON_PLAIN_PEER && !sk->looked) {
		sk->looked = true;
		look_later_locked(sk, LOOK_NS, 2 * LOOK_NS,
				  exi_now_ns() + LOOKS_NS);
	}
	return reason;
}

int exi_look_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	next_mark_locked(sk);
	return look_at_mark_locked(sk);
}

/* Whether the caller must look: the service thread's look could not see or do
 * all. */
static bool looks_itself(const struct exi_sock *sk)
{
	return sk->fab || sk->closing || sk->again || sk->giver ||
	       atomic_load(&sk->sh->owner) != sk->process ||
	       !exi_service_runs() || exi_service_self() ||
	       exi_surroundings_filters() || exi_service_is_late();
}

bool exi_look_note_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	if (sk->role != EXI_ROLE_ACCEPT)
		return false;
	if (!sk->link) {
		if (looks_itself(sk) ||
		    !look_later_locked(sk, exi_worth_left(sk), LOOK_NS,
				       exi_now_ns() + LOOKS_NS))
			return false;
		sk->link->marked = true;
		exi_sock_mark(sk, atomic_load(&sk->fd));
	} else if (sk->link->state != EXI_LINK_LOOK) {
		return false;
	} else if (sk->link->marked && exi_service_is_late()) {
		exi_link_drop_locked(sk);
		return false;
	}
	next_mark_locked(sk);
	return true;
}

/* Up to a limit, bytes that B has sent may all be in the kernel, unread by a
 * peer that will meet. */
#define HELD_BYTES 16777216u

/* Whether enough bytes have moved for an A that meets to have bound its name,
 * and B has looked since A had reason to. */
static bool is_looked_for_locked(const struct exi_sock *sk, uint64_t in,
				 uint64_t out)
{
	uint64_t bytes = exi_way_of(sk).upgrade_bytes;

	EXI_LOCKED(&sk->link_lock);
	if (sk->vain_out > HELD_BYTES)
		return true;
	if (bytes)
		return sk->vain_in > bytes;
	return sk->vain_in > EXI_UPGRADE_BYTES &&
	       (in > EXI_LINK_COME_BYTES || out > HELD_BYTES);
}

/* With a sign that waits, A looks at more than one answer, and notes what it
 * found. */
bool exi_look_done_locked(const struct exi_sock *sk)
{
	const struct exi_half *h = sk->sh->half;
	uint64_t in = __atomic_load_n(&h[EXI_RX].bytes, __ATOMIC_RELAXED);
	uint64_t out = __atomic_load_n(&h[EXI_TX].bytes, __ATOMIC_RELAXED);
	uint64_t at = atomic_load(&h[EXI_RX].meet_at);

	EXI_LOCKED(&sk->link_lock);
	if (sk->role == EXI_ROLE_CONNECT)
		return at == EXI_LINK_ANSWERED && !sk->base->sign_waits;
	if (sk->base->sign_waits)
		return sk->answers > AFTER_ANSWERS && !sk->young &&
		       (out || in > EXI_MARKS_SIGNED);
	return is_looked_for_locked(sk, in, out);
}

void exi_look_first_locked(struct exi_sock *sk, bool now)
{
	uint64_t until = exi_now_ns() + LOOKS_NS;

	EXI_LOCKED(&sk->link_lock);
	/* An accept does not wait for the thirty system calls of a look, but
	 * accepts are no faster than looks can be made. A may be there by
	 * then. */
	if (now || exi_surroundings_filters() || exi_service_is_late() ||
	    !look_later_locked(sk, 0, LOOK_NS, until))
		look_locked(sk, LOOK_NS, until);
	else /* remembers the descriptor's socket until the look */
		exi_sock_mark(sk, atomic_load(&sk->fd));
}

void exi_look_inherited_locked(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&sk->link_lock);
	if (exi_surroundings_reason() ||
	    !look_later_locked(sk, 0, LOOK_NS, exi_now_ns() + LOOKS_NS))
		atomic_store(&rx->meet_at,
			     __atomic_load_n(&rx->bytes, __ATOMIC_RELAXED));
}

void exi_look_expired_locked(struct exi_sock *sk)
{
	const struct exi_half *half = sk->sh->half;
	uint64_t delay = sk->link->delay, until = sk->link->until;
	uint64_t was = sk->link->moved, owner;
	uint64_t moved =
		1 + __atomic_load_n(&half[EXI_RX].bytes, __ATOMIC_RELAXED) +
		__atomic_load_n(&half[EXI_TX].bytes, __ATOMIC_RELAXED);
	uint64_t late = exi_now_ns() - atomic_load(&sk->link->timer.deadline);
	bool marked = sk->link->marked;
	int reason;

	EXI_LOCKED(&sk->link_lock);
	/* A service that is overloaded looks less often. */
	if (delay < late)
		delay = late;
	exi_link_drop_locked(sk);
	/* Another thread may be closing it, or plain calls closed it and its
	 * number may be another file's. */
	if (sk->closing || !exi_sock_current(sk, atomic_load(&sk->fd)))
		return;
	owner = atomic_load(&sk->sh->owner);
	/* After a fork the first user is to look or, if that is this process,
	 * to report that it is shared: a child owns it before it moves
	 * bytes. */
	if (owner == sk->process && marked) {
		reason = look_at_mark_locked(sk);
		if (reason)
			exi_sock_reason(sk, reason);
	} else if (owner == sk->process || (!owner && was && moved != was))
		look_locked(sk, delay, until);
	else if (!owner && look_later_locked(sk, delay, delay * 2, until))
		sk->link->moved = moved;
}
