/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a pair link, and the loss of its peer. */
#include "core/link/ending.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>

#include "core/base/futex.h"
#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/meet/again.h"
#include "core/meet/begin.h"
#include "core/meet/look.h"
#include "core/meet/meet.h"
#include "core/meet/pair.h"
#include "core/meet/why.h"
#include "core/sock/base.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "core/sock/wake.h"
#include "core/sock/watch.h"
#include "core/transfer/half.h"
#include "core/transfer/progress.h"
#include "core/transfer/resume.h"

/* Says on the socket that nobody meets there, for a peer that this end has not
 * found yet: another program may have the socket when the peer comes. */
static void say_farewell_locked(struct exi_sock *sk)
{
	const struct exi_link *l = sk->foreign_link ? NULL : sk->link;
	int fd = atomic_load(&sk->fd);

	EXI_LOCKED(&sk->link_lock);
	if ((!l || l->state == EXI_LINK_LOOK || l->state == EXI_LINK_LISTEN) &&
	    sk->base == &exi_base_tcp && sk->adopted &&
	    !exi_again_by_another((int)atomic_load(&sk->sh->reason)) &&
	    sk->base->same(sk, fd))
		exi_proof_leave(fd);
}

void exi_link_over(struct exi_sock *sk, uint32_t generation)
{
	exi_fds_begin(); /* parting before a meeting may make some */
	exi_lock(&sk->link_lock);
	if (!exi_sock_lasts(sk, generation)) {
		; /* somebody closed it meanwhile */
	} else if (sk->link && sk->link->state == EXI_LINK_UP) {
		shutdown(sk->link->fd, SHUT_RDWR);
	} else {
		say_farewell_locked(sk);
		if (!sk->foreign_link)
			exi_begin_part_locked(sk);
	}
	exi_unlock(&sk->link_lock);
	exi_fds_end();
}

void exi_link_unanswered(struct exi_sock *sk, uint32_t generation)
{
	struct exi_shared *sh = exi_sock_shared(sk);

	exi_lock(&sk->link_lock);
	if (!exi_sock_lasts(sk, generation))
		; /* somebody closed it meanwhile */
	/* The peer has answered, and its program does not read. */
	else if (!atomic_load(&sh->down_wait) &&
		 sh->half[EXI_TX].mode == EXI_MODE_DRAIN)
		exi_link_reset(sk, (int)atomic_load(&sh->reason),
			       "TCP has no room for what the peer's program "
			       "did not read in time");
	else
		exi_link_reset(sk, EXS_X_REASON_PEER_LOST,
			       "the peer's library did not answer in time");
	exi_unlock(&sk->link_lock);
}

void exi_ending_wake_all(struct exi_sock *sk)
{
	enum exi_dir d;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_sock_wake_all(sk, d);
		exi_flow_progress(sk, d);
	}
}

void exi_ending_bell(struct exi_sock *sk)
{
	enum exi_dir d;

	exi_unseen_bell(sk);
	if (!exi_futex_waitv_works()) { /* sleepers requested bells, too */
		exi_ending_wake_all(sk);
		return;
	}
	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_sock_wake_waiters(sk, d);
		if (atomic_load(&sk->n_ops[d]))
			exi_flow_progress(sk, d);
	}
}

/* Whether the peer, if it is gone, did not close and left unread bytes. If its
 * library closes, TCP has reported that. The halves are locked. */
static bool left_unread_locked(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&rx->lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	return sk->fab && sk->fab->rops->left_unread && !exi_sock_remote(sk) &&
	       sk->sh->half[EXI_TX].mode == EXI_MODE_RING &&
	       rx->mode == EXI_MODE_RING && !rx->ended && !rx->fin &&
	       !sk->fab->rops->over(sk->fab) &&
	       sk->fab->rops->left_unread(sk->fab);
}

/* The peer's kernel knew of no unread bytes, and sent an end: puts TCP here
 * into the state after a reset. Bytes in the ring are read before the reset is
 * reported. */
static void take_for_reset(struct exi_sock *sk)
{
	if (!(exi_tcp_ended(sk) & POLLHUP) && exi_wake_disconnect(sk))
		shutdown(atomic_load(&sk->fd), SHUT_RDWR); /* as a reset does */
}

/* Called when the peer, which handed its end on, hung up, and both directions
 * are on TCP. */
static void meet_again_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;

	EXI_LOCKED(&sk->link_lock);
	if (atomic_load(&sh->handed) && !atomic_load(&sh->hold_here) &&
	    !atomic_load(&sh->gone) && sh->lives < EXI_LIVES)
		exi_begin_again(sk);
}

/* Whether bytes can be in a ring that only the peer's process could move. */
static bool is_in_use(const struct exi_shared *sh)
{
	return sh->half[EXI_TX].mode == EXI_MODE_RING ||
	       sh->half[EXI_RX].mode == EXI_MODE_LEFT ||
	       sh->half[EXI_RX].mode == EXI_MODE_RING;
}

#define DYING_NS 1000000000u

bool exi_ending_waits_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;
	bool in_use;

	EXI_LOCKED(&sk->link_lock);
	if (!sk->base->ends_both || l->state != EXI_LINK_UP ||
	    atomic_load(&sk->sh->gone) || atomic_load(&sk->fd) < 0 ||
	    (exi_tcp_ended(sk) & POLLHUP))
		return false;
	exi_meet_lock_halves(sk);
	in_use = is_in_use(sk->sh);
	exi_meet_unlock_halves(sk);
	if (!l->dying)
		l->dying = exi_now_ns() + DYING_NS;
	if (!in_use || exi_now_ns() >= l->dying)
		return false;
	/* The kernel would report the hang-up again and again; a forked process
	 * watches it anew. */
	exi_service_unwatch(l->fd);
	l->timer.deadline = l->dying;
	exi_service_timed(&l->timer);
	return true;
}

void exi_ending_hung_up_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	bool in_use, resumes, said_end, in_order;
	int reason, err = 0;

	EXI_LOCKED(&sk->link_lock);
	exi_meet_lock_halves(sk);
	said_end = exi_control_said_end_locked(sk);
	/* Giving back no longer needs the peer: bytes that do not come over TCP
	 * are read from the ring when TCP has ended. */
	in_use = is_in_use(sh);
	/* The peer has all that this end sends, and may leave before its own
	 * end of TCP is here. */
	in_order = said_end || (!in_use && sh->half[EXI_TX].fin);
	/* A TAKEBACK may be lost, too, even from a peer that is known to be
	 * gone because TCP was reset first: a reader waits for the bytes behind
	 * the TAKEBACK, and must get TCP's error instead. */
	resumes = exi_sock_remote(sk) && !sh->half[EXI_RX].broken &&
		  ((in_use && !atomic_load(&sh->gone)) ||
		   atomic_load(&sh->half[EXI_RX].untaken));
	if (sk->fab)
		sk->fab->bell = -1;
	atomic_store(&sh->may_switch, 0);
	resumes = resumes && !exi_resume_closed_locked(sk);
	if (resumes)
		err = exi_resume_begin_locked(sk);
	resumes = resumes && !err;
	/* Before the code below reports the peer as gone, without an error. */
	if (err == -ECONNRESET)
		exi_link_reset(sk, EXS_X_REASON_FABRIC_LOST,
			       "a device failed, and bytes are lost");
	else if (err)
		exi_link_violation(sk, "an invalid message");
	if (in_use && !resumes) {
		if (!sk->base->ends_both && left_unread_locked(sk))
			take_for_reset(sk);
		/* Release: what the peer wrote earlier is in its segment. */
		atomic_store_explicit(&sh->gone, 1, memory_order_seq_cst);
		exi_flow_deafen_locked(sk);
		exi_flow_bereft_locked(sk);
	}
	exi_meet_unlock_halves(sk);
	exi_link_drop_locked(sk);
	atomic_store(&sh->down_wait, 0);
	if (!in_use && !said_end)
		meet_again_locked(sk);
	reason = (int)atomic_load(&sh->reason);
	if (!resumes && (reason == EXS_X_REASON_UNDECIDED ||
			 (in_use && reason != EXS_X_REASON_PROTOCOL &&
			  reason != EXS_X_REASON_FABRIC_LOST)))
		exi_sock_reason(sk, in_order ? EXS_X_REASON_HALF_CLOSED
					     : EXS_X_REASON_PEER_LOST);
}

void exi_ending_violated_locked(struct exi_sock *sk,
				const struct exi_pair_msg *m)
{
	char what[120];

	EXI_LOCKED(&sk->link_lock);
	snprintf(what, sizeof(what),
		 "an invalid message, %d (%" PRIu64 " %" PRIu64 " %" PRIu64 ")",
		 m->type, m->a, m->b, m->c);
	exi_link_violation(sk, what);
	exi_ending_hung_up_locked(sk);
}

void exi_ending_ask_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	exi_link_send(sk, EXI_PAIR_FINSEEN, EXI_FINSEEN_ASK, 0, 0);
}

#define PATIENCE_NS 15000000000u

void exi_ending_be_patient(struct exi_link *l)
{
	l->patience = exi_now_ns() + PATIENCE_NS;
}

/* The peer is alive, so the end of TCP is the end of the stream. */
static void lives_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	sk->link->timer.deadline = 0;
	exi_service_untimed(&sk->link->timer);
	atomic_store(&sk->sh->rx_fin, 1);
}

int exi_ending_on_finseen(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	if (m->a == EXI_FINSEEN_ANSWER) {
		/* Everything that it sent before its end of TCP came before
		 * this. */
		exi_lock(&rx->lock);
		rx->link_read = 1;
		exi_unlock(&rx->lock);
		exi_ending_be_patient(sk->link);
		if (!exi_sock_remote(sk) && sk->link->timer.deadline &&
		    !sk->link->leaves)
			lives_locked(sk);
		return 0;
	}
	if (m->a == EXI_FINSEEN_ASK &&
	    exi_sock_current(sk, atomic_load(&sk->fd)))
		exi_link_send(sk, EXI_PAIR_FINSEEN, EXI_FINSEEN_ANSWER, 0, 0);
	sk->link->look = true;
	return 0;
}

/* Whether the ring may still bring bytes, and how many came. */
static bool awaits_end(struct exi_sock *sk, uint32_t *ret_came)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	bool ret;

	exi_lock(&h->lock);
	ret = sk->fab && h->mode == EXI_MODE_RING && !h->ended &&
	      !atomic_load(&sk->sh->gone) && !sk->fab->rops->over(sk->fab);
	ret = ret ||
	      (h->mode != EXI_MODE_RING && !exi_resume_end_counts_locked(sk));
	if (ret)
		*ret_came = sk->fab->provider->remote_ops->position(sk->fab,
								    EXI_RX) +
			    (uint32_t)sk->fab->rops->unread(sk->fab);
	exi_unlock(&h->lock);
	return ret;
}

void exi_ending_ask_again_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;
	uint32_t came;

	EXI_LOCKED(&sk->link_lock);
	if (!exi_sock_remote(sk)) {
		lives_locked(sk);
		exi_ending_wake_all(sk);
		return;
	}
	l->timer.deadline = 0;
	exi_service_untimed(&l->timer);
	if (!awaits_end(sk, &came))
		return;
	if (came != l->came)
		exi_ending_be_patient(l);
	l->came = came;
	if (exi_now_ns() >= l->patience) {
		exi_debug("%s: TCP has ended, and the peer is silent",
			  EXI_CONN(atomic_load(&sk->fd)));
		shutdown(l->fd, SHUT_RDWR); /* the service sees it */
		return;
	}
	exi_ending_ask_locked(sk);
	l->timer.deadline = exi_now_ns() + EXI_CONTROL_ASK_NS;
	exi_service_timed(&l->timer);
}

bool exi_ending_fabric_left_locked(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	bool called, resumes;

	EXI_LOCKED(&sk->link_lock);
	exi_lock(&rx->lock);
	called = exi_resume_called_locked(sk);
	resumes = rx->resume;
	if (resumes && rx->back >= rx->left)
		exi_resume_read_locked(sk, 1);
	exi_unlock(&rx->lock);
	if (called && sk->link && sk->link->state == EXI_LINK_UP)
		exi_ending_hung_up_locked(sk);
	return called || resumes;
}

bool exi_ending_may_be_dying_locked(struct exi_sock *sk, short ended)
{
	bool ret;

	EXI_LOCKED(&sk->link_lock);
	if ((ended & POLLHUP) || sk->base->ends_both ||
	    atomic_load(&sk->sh->rx_fin) || !sk->link ||
	    sk->link->state != EXI_LINK_UP)
		return false;
	exi_meet_lock_halves(sk);
	ret = left_unread_locked(sk);
	exi_meet_unlock_halves(sk);
	return ret;
}

/* Whether a peer that seems lost has closed the connection in order before any
 * byte was on a fabric: the end of the link may arrive before that of TCP. */
static bool closed_as_it_met(struct exi_sock *sk)
{
	const struct exi_half *half = sk->sh->half;

	return !__atomic_load_n(&half[EXI_RX].fabric_bytes, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&half[EXI_TX].fabric_bytes, __ATOMIC_RELAXED) &&
	       (exi_tcp_ended(sk) & (POLLRDHUP | POLLERR)) == POLLRDHUP;
}

int exi_link_reason(struct exi_sock *sk)
{
	int reason = (int)atomic_load(&sk->sh->reason);

	return reason == EXS_X_REASON_PEER_LOST && closed_as_it_met(sk)
		       ? EXS_X_REASON_UNDECIDED
		       : reason;
}

static bool is_connected(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return getpeername(fd, (struct sockaddr *)&peer, &len) == 0;
}

int exi_link_last_reason_locked(struct exi_sock *sk, int fd)
{
	const struct exi_half *rx = &sk->sh->half[EXI_RX];
	const struct exi_half *tx = &sk->sh->half[EXI_TX];
	const struct exi_link *l = sk->link;
	uint64_t in = __atomic_load_n(&rx->bytes, __ATOMIC_RELAXED);
	uint64_t out = __atomic_load_n(&tx->bytes, __ATOMIC_RELAXED);
	int reason = exi_link_reason(sk);

	EXI_LOCKED(&sk->link_lock);
	if (reason != (int)atomic_load(&sk->sh->reason))
		return reason; /* the connection is over */
	if (reason != EXS_X_REASON_UNDECIDED)
		return reason;
	if (l && l->state == EXI_LINK_LISTEN)
		return exi_why_in_vain(l, in + out,
				       exi_tcp_ended(sk) & POLLRDHUP);
	if ((l && l->state != EXI_LINK_LOOK) || sk->cut ||
	    !exi_look_done_locked(sk))
		return EXS_X_REASON_UNDECIDED;
	/* Nobody was looked for: the connect failed, or is in progress. */
	if (!in && !is_connected(fd))
		return EXS_X_REASON_UNDECIDED;
	return exi_why_nobody_of(fd);
}
