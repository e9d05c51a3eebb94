/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides whether to meet, and takes A's first step: it binds the meeting
 * name. */
#include "core/meet/begin.h"

#include <errno.h>
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
#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/ids.h"
#include "core/base/proof.h"
#include "core/base/proof_unix.h"
#include "core/base/rights.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/meet/again.h"
#include "core/meet/bound.h"
#include "core/meet/candidate.h"
#include "core/meet/handed.h"
#include "core/meet/look.h"
#include "core/meet/marker.h"
#include "core/meet/marks.h"
#include "core/meet/meet.h"
#include "core/meet/meetdir.h"
#include "core/meet/pair.h"
#include "core/meet/remote.h"
#include "core/meet/surroundings.h"
#include "core/meet/unseen_search.h"
#include "core/meet/way.h"
#include "core/meet/why.h"
#include "core/meet/worth.h"
#include "core/sock/base.h"
#include "core/sock/closing.h"
#include "core/sock/service.h"
#include "core/sock/table.h"

#define LISTEN_NS 10000000000u /* how long A waits for B */
#define REMOTE_NS 15000000000u /* for a meeting by a fabric */

int exi_begin_await_remote_locked(struct exi_sock *sk, int fd)
{
	struct exi_link *l = exi_meet_link_new(sk, EXI_LINK_REMOTE, REMOTE_NS,
					       exi_begin_expired);

	EXI_LOCKED(&sk->link_lock);
	if (!l) {
		exi_fd_close(fd);
		exi_meet_give_up_locked(sk, EXS_X_REASON_MEMORY);
		return EXS_X_REASON_MEMORY;
	}
	l->fd = fd;
	sk->link = l;
	atomic_store(&sk->sh->linked, 1);
	if (exi_service_watch(sk, fd, EXI_WATCH_LINK, EPOLLIN)) {
		exi_meet_give_up_locked(sk, EXS_X_REASON_DESCRIPTORS);
		return EXS_X_REASON_DESCRIPTORS;
	}
	exi_service_timed(&l->timer);
	return EXS_X_REASON_NONE;
}

/* A: the peer is on another host. */
static int meet_remote_locked(struct exi_sock *sk, const struct exi_tuple *t)
{
	const struct exi_provider *p;
	struct exi_config_way w;
	int why, fd, err;

	EXI_LOCKED(&sk->link_lock);
	p = exi_remote_provider(&why);
	if (!p)
		return why == EXS_X_REASON_REMOTE ? exi_why_elsewhere() : why;
	w = exi_way_of(sk);
	if (!exi_registry_allows(&w, p))
		return EXS_X_REASON_NO_PROVIDER;
	err = exi_service_start();
	if (!err)
		err = exi_meet_fabric_new(sk, p);
	if (!err)
		err = exi_service_domain(sk->fab->domain);
	if (!err)
		err = p->remote_ops->connect(sk->fab, t, &fd);
	if (err) {
		why = exi_meet_unmade(err);
		exi_meet_give_up_locked(sk, why);
		return why;
	}
	return exi_begin_await_remote_locked(sk, fd);
}

int exi_begin_is_remote(const struct exi_sock *sk, const struct exi_tuple *t)
{
	struct exi_config_way w = exi_way_of(sk);
	int err =
		exi_registry_wire_ids_of(&w) ? exi_proof_peer_here(t) : -ENOENT;

	return err == -ENOENT ? 1 : err;
}

/* Makes A wait for candidates at fd, which has its name. */
static int listen_locked(struct exi_sock *sk, int fd, struct exi_keyed *keyed)
{
	struct exi_link *l = exi_meet_link_new(sk, EXI_LINK_LISTEN, LISTEN_NS,
					       exi_begin_expired);
	int err = l ? 0 : EXS_X_REASON_MEMORY;

	EXI_LOCKED(&sk->link_lock);
	if (!err && listen(fd, EXI_LINK_CANDIDATES) < 0)
		err = EXS_X_REASON_REFUSED;
	if (err) {
		if (keyed)
			exi_meetdir_unbind(&keyed->name);
		free(keyed);
		free(l);
		exi_fd_close(fd);
		return err;
	}
	l->keyed = keyed;
	l->listener = fd;
	sk->link = l;
	if (exi_service_watch(sk, fd, EXI_WATCH_LISTENER, EPOLLIN)) {
		exi_link_drop_locked(sk);
		return EXS_X_REASON_DESCRIPTORS;
	}
	exi_service_timed(&l->timer);
	return EXS_X_REASON_NONE;
}

int exi_begin_keyed_socket(void)
{
	int fd = exi_fd_spare(socket(
		AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0)
		return fd == -EMFILE || fd == -ENFILE ? fd : -EACCES;
	exi_rights_allow(fd, false);
	return fd;
}

struct exi_keyed *exi_begin_keyed(const struct exi_tuple *t, bool connects)
{
	struct exi_keyed *k = calloc(1, sizeof(*k));

	if (k && exi_meetdir_nonce(k->own) == 0) {
		exi_meetdir_meeting(t, connects, &k->name);
		k->peer_cookie = t->peer_cookie;
		return k;
	}
	free(k);
	return NULL;
}

/* A: the peer is in another network namespace of this host. */
static int meet_keyed_locked(struct exi_sock *sk, const struct exi_tuple *t)
{
	struct exi_keyed *k;
	int fd, err = exi_service_start();

	EXI_LOCKED(&sk->link_lock);
	if (err)
		return exi_meet_unmade(err);
	if (!exi_fd_room(3))
		return EXS_X_REASON_DESCRIPTORS;
	fd = exi_begin_keyed_socket();
	if (fd < 0)
		return exi_meet_unproved(fd);
	k = exi_begin_keyed(t, true);
	err = k ? exi_meetdir_bind(fd, &k->name, sizeof(k->name)) : -ENOMEM;
	if (err) {
		free(k);
		exi_fd_close(fd);
		return !k		    ? EXS_X_REASON_MEMORY
		       : err == -EADDRINUSE ? EXS_X_REASON_REFUSED
					    : EXS_X_REASON_REMOTE;
	}
	k->process = exi_use_token();
	return listen_locked(sk, fd, k);
}

/* The same, where the connection is of UNIX sockets. The accepted end is of
 * this network namespace, and its process is not. */
static int meet_afar_locked(struct exi_sock *sk, const struct exi_tuple *t)
{
	struct exi_tuple named = *t;
	int err;

	EXI_LOCKED(&sk->link_lock);
	if (exi_meetdir_state() || !exi_registry_wire_ids())
		return exi_why_elsewhere();
	err = exi_unix_peer_cookie(t, &named.peer_cookie);
	return err ? exi_meet_unproved(err) : meet_keyed_locked(sk, &named);
}

/* A binds the meeting name if there is a peer to meet. Returns the reason if
 * not, or NONE. */
static int meet_as_a_locked(struct exi_sock *sk, const struct exi_tuple *t,
			    bool eager)
{
	struct sockaddr_un name;
	socklen_t len = exi_meeting_name(t, true, &name);
	int marked = eager && t->family != AF_UNIX ? 1 : exi_marker_present(t);
	int fd, remote, err, before;

	EXI_LOCKED(&sk->link_lock);
	if (marked == EXI_SIGNED_AFAR)
		return meet_afar_locked(sk, t);
	if (eager && marked <= 0)
		marked = 1;
	if (!marked && !exi_remote_possible())
		return exi_why_nobody(t, atomic_load(&sk->fd));
	remote = exi_begin_is_remote(sk, t);
	if (remote > 0 && exi_tuple_redirected(t, atomic_load(&sk->fd)))
		return EXS_X_REASON_REDIRECTED;
	if (remote > 0 && exi_tuple_hidden(t))
		return EXS_X_REASON_NO_PROOF;
	if (remote > 0)
		return exi_registry_wire_ids() &&
				       exi_meetdir_marked(t->peer_port)
			       ? meet_keyed_locked(sk, t)
			       : meet_remote_locked(sk, t);
	if (remote < 0 || marked < 0)
		return exi_meet_unproved(remote ? remote : marked);
	if (!marked)
		return EXS_X_REASON_PLAIN_PEER;
	err = exi_service_start();
	if (err)
		return exi_meet_unmade(err);
	/* Descriptors for the name, for the process that connects to it, and
	 * for the peer's end, which may be in this process: it could not report
	 * that it has none, and this end would wait for it in vain. */
	if (!exi_fd_room(3))
		return EXS_X_REASON_DESCRIPTORS;
	fd = exi_pair_socket(t);
	if (fd < 0)
		return exi_meet_unproved(fd);
	if (bind(fd, (struct sockaddr *)&name, len) < 0) {
		exi_fd_close(fd);
		return EXS_X_REASON_REFUSED;
	}
	/* Before B can look: a process that connects to the name checks the
	 * sign. */
	before = sk->base->sign_used(sk->tcp->fd);
	if (before)
		atomic_store(&sk->sh->size, before);
	err = listen_locked(sk, fd, NULL);
	exi_worth_paid_locked(sk);
	/* A peer that leaves says so on its socket, then looks for this end. If
	 * the program asks, its peer may be asked a little later. */
	if (!err && !sk->asks && exi_proof_left(t))
		exi_meet_give_up_locked(sk, EXS_X_REASON_PEER_REQUEST);
	return err;
}

void exi_begin_part_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;
	int reason = (int)atomic_load(&sk->sh->reason);

	EXI_LOCKED(&sk->link_lock);
	if (l && l->state == EXI_LINK_REMOTE)
		return;
	if (l && l->state != EXI_LINK_LOOK)
		exi_candidate_part_locked(sk, EXS_X_REASON_PEER_REQUEST,
					  reason);
	else if (exi_again_by_another(reason))
		exi_look_kept_locked(sk, reason);
	else if (sk->role == EXI_ROLE_ACCEPT && sk->adopted)
		exi_look_decline(atomic_load(&sk->fd),
				 EXS_X_REASON_PEER_REQUEST);
}

int exi_begin_may_meet(struct exi_sock *sk, int fd,
		       const struct exi_tuple *asked, struct exi_tuple *ret)
{
	int reason = atomic_load(&sk->sh->owner) != sk->process
			     ? EXS_X_REASON_SHARED
		     : exi_closing_full() ? EXS_X_REASON_DESCRIPTORS
					  : exi_surroundings_reason();
	int err;

	if (!reason && exi_unseen_waits(fd))
		reason = EXS_X_REASON_UNSEEN_WAIT;
	if (!reason)
		reason = sk->base->forbidden(fd);
	err = reason || asked ? 0 : exi_tuple_of(fd, ret);
	if (!reason && asked)
		*ret = *asked;
	/* What was accepted was connected, and has ended. */
	if (err)
		reason = err == -EACCES ? EXS_X_REASON_NO_PROOF
			 : sk->role == EXI_ROLE_ACCEPT
				 ? EXS_X_REASON_HALF_CLOSED
				 : EXS_X_REASON_NOT_CONNECTED;
	else if (!reason && !atomic_load(&sk->met_port)) {
		memcpy(sk->met_addr, ret->peer, sizeof(sk->met_addr));
		atomic_store(&sk->met_port, ret->peer_port);
	}
	/* The end that connects asks about the other one. */
	if (!reason && ret->afar && sk->role != EXI_ROLE_ACCEPT)
		reason = EXS_X_REASON_REMOTE;
	if (!reason && exi_tuple_is_self(ret))
		reason = EXS_X_REASON_SELF;
	/* A process with the other end's addresses need not be the peer. */
	if (!reason && sk->role == EXI_ROLE_ACCEPT &&
	    exi_tuple_redirected(ret, fd))
		reason = EXS_X_REASON_REDIRECTED;
	/* Plain calls may have closed the number and reused it for another
	 * connection. */
	if (!reason && !sk->base->same(sk, fd))
		reason = EXS_X_REASON_PLAIN_SOCKET;
	if (!reason)
		exi_sock_mark(sk, fd);
	return reason;
}

/* Answers after which A looks again. Some of them may answer bytes that A sent
 * before the peer had received enough for its sign. */
#define ANSWERS 8

/* Whether it may be too early to judge the peer: it may not be accepted yet, or
 * not have received the bytes after which the library of its process, if it
 * has one, makes the sign. The peer makes the sign before it answers those
 * bytes. */
static bool too_early(const struct exi_sock *sk, int reason)
{
	const struct exi_half *h = sk->sh->half;

	return sk->base->early &&
	       (reason == EXS_X_REASON_NOT_CONNECTED ||
		(reason == EXS_X_REASON_PLAIN_PEER &&
		 __atomic_load_n(&h[EXI_RX].bytes, __ATOMIC_RELAXED) +
				 __atomic_load_n(&h[EXI_TX].bytes,
						 __ATOMIC_RELAXED) <
			 EXI_MARKS_SIGNED));
}

/* Makes A look again, at the next answer or mark. Returns the reason until
 * then. */
static int look_again_locked(struct exi_sock *sk, int reason)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&sk->link_lock);
	exi_marks_later_locked(sk);
	atomic_store(&sk->sh->met, 0);
	if (reason == EXS_X_REASON_PLAIN_PEER &&
	    __atomic_load_n(&rx->bytes, __ATOMIC_RELAXED))
		sk->answers++;
	if (sk->answers < ANSWERS)
		atomic_store(&rx->meet_at, EXI_LINK_ANSWERED);
	return sk->answers > 1 || atomic_load(&sk->sh->half[EXI_TX].meet_at) ==
					  UINT64_MAX
		       ? reason
		       : EXS_X_REASON_UNDECIDED;
}

/* Whether this end stays on TCP for a reason of its own: not because of the
 * peer, of its end, or of another process that has the connection. */
static bool is_own(int reason)
{
	switch (reason) {
	case EXS_X_REASON_NONE:
	case EXS_X_REASON_UNDECIDED:
	case EXS_X_REASON_PLAIN_PEER:
	case EXS_X_REASON_PLAIN_SOCKET:
	case EXS_X_REASON_REMOTE:
	case EXS_X_REASON_REFUSED:
	case EXS_X_REASON_TIMEOUT:
	case EXS_X_REASON_PEER_REQUEST:
	case EXS_X_REASON_PEER_LOST:
	case EXS_X_REASON_HALF_CLOSED:
	case EXS_X_REASON_NOT_CONNECTED:
	case EXS_X_REASON_SELF:
	case EXS_X_REASON_SHARED:
	case EXS_X_REASON_PASSED:
		return false;
	default:
		return true;
	}
}

/* A does not meet: says so on its socket, for B, which looks for it in vain. */
static void stay(struct exi_sock *sk, int fd, int reason)
{
	if (is_own(reason) && sk->role == EXI_ROLE_CONNECT &&
	    sk->base == &exi_base_tcp && sk->base->same(sk, fd))
		exi_proof_leave(fd);
}

/* A meets, once in a connection's life, in any process. */
static int meet_a_locked(struct exi_sock *sk, int fd, bool eager,
			 const struct exi_tuple *asked)
{
	struct exi_tuple t;
	int reason;

	EXI_LOCKED(&sk->link_lock);
	exi_marks_none(sk->sh);
	if (atomic_exchange(&sk->sh->met, 1))
		return EXS_X_REASON_NONE;
	reason = exi_begin_may_meet(sk, fd, asked, &t);
	if (!reason)
		reason = meet_as_a_locked(sk, &t, eager);
	stay(sk, fd, reason);
	return too_early(sk, reason) ? look_again_locked(sk, reason) : reason;
}

/* Why a connection meets: it has moved enough bytes, or the settings or the
 * program want it at once. */
enum cause {
	BYTES,
	SETTING,
	PROGRAM
};

static void meet_locked(struct exi_sock *sk, int fd, enum cause cause,
			const struct exi_tuple *asked)
{
	const bool eager = cause != BYTES;
	int reason;

	EXI_LOCKED(&sk->link_lock);
	if (sk->fab && !sk->link && atomic_load(&sk->sh->handed) &&
	    !exi_again_begin_locked(sk))
		return;
	if (sk->link || sk->fab || sk->closing)
		return;
	if (!exi_handed_over_locked(sk)) {
		exi_again_later_locked(sk);
		reason = exi_handed_reason_locked(sk);
		exi_sock_reason(sk, reason);
		exi_look_kept_locked(sk, reason);
		return;
	}
	reason = (int)atomic_load(&sk->sh->reason);
	if (sk->again &&
	    (reason == EXS_X_REASON_PASSED || reason == EXS_X_REASON_SHARED))
		exi_sock_reason(sk, EXS_X_REASON_UNDECIDED);
	if (sk->role == EXI_ROLE_ACCEPT && eager) {
		exi_look_first_locked(sk, cause == PROGRAM);
		return;
	}
	reason = sk->role == EXI_ROLE_CONNECT
			 ? meet_a_locked(sk, fd, eager, asked)
			 : exi_look_locked(sk);
	if (reason)
		exi_sock_reason(sk, reason);
}

/* The addresses of a connection in this use of its socket's memory. */
struct asked {
	struct exi_tuple t;
	uint32_t generation;
};

static void meet(struct exi_sock *sk, int fd, enum cause cause,
		 const struct asked *asked)
{
	bool same;

	exi_fds_begin();
	exi_lock(&sk->link_lock);
	same = asked && asked->generation == atomic_load(&sk->generation);
	if (atomic_load(&sk->fd) == fd &&
	    (cause != BYTES || !exi_look_note_locked(sk)))
		meet_locked(sk, fd, cause, same ? &asked->t : NULL);
	exi_unlock(&sk->link_lock);
	exi_fds_end();
}

void exi_link_meet(struct exi_sock *sk, int fd)
{
	meet(sk, fd, BYTES, NULL);
}

/* A found no peer: the peer's process may just be starting its library. If it
 * gets one, it has it when it answers, so A looks once more then, or when it
 * has sent a little. */
static void expect_answer(struct exi_shared *sh)
{
	atomic_store(&sh->half[EXI_RX].meet_at, EXI_LINK_ANSWERED);
	atomic_store(&sh->half[EXI_TX].meet_at, EXI_UPGRADE_BYTES);
}

/* Whether the peer's port has a marker, and the addresses. If not, the
 * connection will look again, as does one whose connect is in progress, or gets
 * the reason why it meets no peer. */
static bool marked(struct exi_sock *sk, struct asked *ret_asked)
{
	int fd, ret, reason = EXS_X_REASON_PLAIN_PEER;

	exi_fds_begin();
	ret_asked->generation = atomic_load(&sk->generation);
	fd = atomic_load(&sk->fd);
	ret = exi_tuple_of(fd, &ret_asked->t);
	if (!ret)
		ret = exi_marker_present(&ret_asked->t);
	if (!ret)
		reason = exi_why_nobody(&ret_asked->t, fd);
	else if (ret == -EACCES)
		reason = exi_meet_unproved(ret);
	exi_fds_end();
	if (ret > 0)
		return true;
	if (ret == -ENOTCONN || (!ret && reason == EXS_X_REASON_PLAIN_PEER)) {
		expect_answer(sk->sh);
	} else {
		stay(sk, fd, reason);
		exi_sock_reason(sk, reason);
	}
	return false;
}

/* Whether the connection is to meet; sets the reason if not. */
static bool is_wanted(struct exi_sock *sk)
{
	struct exi_config_way w;
	int reason;

	if (!sk->adopted)
		return false;
	w = exi_way_of(sk);
	if (exi_way_leads(&w, sk->base->between_hosts))
		return true;
	reason = w.upgrade ? EXS_X_REASON_NO_PROVIDER : EXS_X_REASON_CONFIG;
	stay(sk, atomic_load(&sk->fd), reason);
	exi_sock_reason(sk, reason);
	return false;
}

void exi_link_expect_later(struct exi_sock *sk)
{
	struct exi_half *half = sk->sh->half;
	uint64_t bytes = exi_way_of(sk).upgrade_bytes;
	uint64_t download = exi_link_download(bytes);

	if (!is_wanted(sk))
		return;
	if (sk->role == EXI_ROLE_CONNECT) {
		atomic_store(&half[EXI_TX].meet_at, bytes);
		atomic_store(&half[EXI_RX].meet_at, download);
	} else if (sk->role == EXI_ROLE_ACCEPT) {
		atomic_store(&half[EXI_RX].meet_at, bytes);
		/* When the other end has received half of that. */
		atomic_store(&half[EXI_TX].meet_at, download * 2);
	}
}

void exi_begin_again(struct exi_sock *sk)
{
	sk->again = true;
	sk->looks = 0;
	exi_marks_none(sk->sh);
	exi_link_expect_later(sk);
	/* Otherwise it is not to meet. */
	if (atomic_load(&sk->sh->half[EXI_RX].meet_at) != UINT64_MAX)
		exi_again_after(sk, exi_way_of(sk).upgrade_bytes);
}

void exi_link_expect(struct exi_sock *sk, bool eager)
{
	struct asked a;
	bool asks;

	if (!eager && exi_way_of(sk).upgrade_bytes) {
		exi_link_expect_later(sk);
		return;
	}
	/* A plain peer need not be asked twice: looks for the marker, unless
	 * the program says that there is a peer. */
	if (!is_wanted(sk))
		return;
	asks = !eager && sk->role != EXI_ROLE_ACCEPT;
	if (!asks || marked(sk, &a))
		meet(sk, atomic_load(&sk->fd), eager ? PROGRAM : SETTING,
		     asks ? &a : NULL);
}

/* Reasons that last until somebody asks. */
static bool is_asked(int reason)
{
	return reason == EXS_X_REASON_PEER_REQUEST ||
	       reason == EXS_X_REASON_REQUESTED ||
	       reason == EXS_X_REASON_OPERATOR;
}

void exi_link_ask(struct exi_sock *sk)
{
	bool asks;

	exi_lock(&sk->link_lock);
	asks = !sk->link && !sk->fab && !sk->closing && !sk->keeps &&
	       is_asked((int)atomic_load(&sk->sh->reason));
	if (asks) {
		sk->asks = true;
		sk->cut = false;
		atomic_store(&sk->sh->met, 0);
		exi_sock_reason(sk, EXS_X_REASON_UNDECIDED);
	}
	exi_unlock(&sk->link_lock);
	if (!asks)
		return;
	/* This end may have said that it does not meet. */
	if (sk->base == &exi_base_tcp)
		exi_proof_sign(atomic_load(&sk->fd));
	exi_link_expect(sk, true);
}

/* Why nobody came in time; if the program asked for a peer that had left, it
 * has not asked in turn. */
static int why_over_locked(const struct exi_sock *sk)
{
	int reason = exi_why_nobody_came(sk->link);

	EXI_LOCKED(&sk->link_lock);
	return sk->asks && (reason == EXS_X_REASON_PLAIN_PEER ||
			    reason == EXS_X_REASON_TIMEOUT)
		       ? EXS_X_REASON_PEER_REQUEST
		       : reason;
}

void exi_begin_expired(struct exi_sock *sk)
{
	struct exi_link *l;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (!l || l->state == EXI_LINK_UP || !exi_meet_is_over(l))
		goto unlock;
	if (l->state == EXI_LINK_LOOK)
		exi_look_expired_locked(sk);
	else
		exi_meet_give_up_locked(sk, why_over_locked(sk));
unlock:
	exi_unlock(&sk->link_lock);
}
