/* SPDX-License-Identifier: BSD-2-Clause */
/* The rendezvous: from the first look for the peer until both ends have a
 * fabric. */
#include "core/meet/meet.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/abstract.h"
#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/rights.h"
#include "core/base/shun.h"
#include "core/base/user.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/meet/again.h"
#include "core/meet/bound.h"
#include "core/meet/marks.h"
#include "core/meet/pair.h"
#include "core/meet/way.h"
#include "core/sock/base.h"
#include "core/sock/closing.h"
#include "core/sock/holders.h"
#include "core/sock/memory.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"

socklen_t exi_meeting_name(const struct exi_tuple *t, bool connects,
			   struct sockaddr_un *ret)
{
	char a[33], b[33];

	exi_hex(a, connects ? t->local : t->peer, 16);
	exi_hex(b, connects ? t->peer : t->local, 16);
	return exi_abstract(ret, "libexs/1/meet/%s:%u/%s:%u", a,
			    connects ? t->local_port : t->peer_port, b,
			    connects ? t->peer_port : t->local_port);
}

struct exi_link *exi_meet_link_new(struct exi_sock *sk,
				   enum exi_link_state state, uint64_t patience,
				   void (*expired)(struct exi_sock *sk))
{
	struct exi_link *l = calloc(1, sizeof(*l));
	unsigned int i;

	if (!l)
		return NULL;
	l->state = state;
	l->fd = -1;
	l->listener = -1;
	l->prover = -1;
	l->sk = sk;
	l->since = exi_now_ns();
	l->timer.deadline = l->since + patience;
	l->timer.sk = sk;
	l->timer.expired = expired;
	for (i = 0; i < EXI_LINK_CANDIDATES; i++)
		l->candidates[i] = -1;
	return l;
}

/* A forked process may have it, too. */
static bool is_sole(const struct exi_link *l)
{
	return exi_holders_count(&l->sk->sh->holders) <= 1;
}

static void unwatch(const struct exi_link *l, int fd)
{
	if (fd >= 0 && !l->taken)
		exi_service_unwatch(fd);
}

void exi_meet_forget_fd(struct exi_link *l, int *fd)
{
	if (*fd < 0)
		return;
	unwatch(l, *fd);
	exi_closing_socket(*fd, is_sole(l));
	*fd = -1;
}

/* The name belongs to its maker, of all processes that share the listener. */
static void unname(struct exi_link *l)
{
	if (l->keyed && l->keyed->process == exi_use_token())
		exi_meetdir_unbind(&l->keyed->name);
	if (l->keyed)
		l->keyed->process = 0;
}

void exi_meet_exit(struct exi_sock *sk, void *arg)
{
	if (!exi_trylock(&sk->link_lock))
		return;
	if (sk->link)
		unname(sk->link);
	exi_unlock(&sk->link_lock);
}

void exi_meet_stop_listening(struct exi_link *l)
{
	unsigned int i;

	l->prover = -1;
	unname(l);
	if (l->listener >= 0) {
		unwatch(l, l->listener);
		exi_closing_listener(l->listener, is_sole(l));
		l->listener = -1;
	}
	for (i = 0; i < EXI_LINK_CANDIDATES; i++)
		exi_meet_forget_fd(l, &l->candidates[i]);
}

struct exi_link *exi_link_take_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;
	unsigned int i;

	EXI_LOCKED(&sk->link_lock);
	if (!l)
		return NULL;
	exi_link_clear_locked(sk);
	sk->link = NULL;
	exi_service_untimed(&l->timer);
	exi_service_untimed(&l->rest);
	atomic_store(&sk->link_rests, false);
	unwatch(l, l->fd);
	unwatch(l, l->listener);
	for (i = 0; i < EXI_LINK_CANDIDATES; i++)
		unwatch(l, l->candidates[i]);
	l->taken = true;
	return l;
}

void exi_link_end(struct exi_link *l)
{
	if (!l)
		return;
	exi_meet_stop_listening(l);
	exi_meet_forget_fd(l, &l->fd);
	free(l->keyed);
	free(l);
}

void exi_link_drop_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	exi_link_end(exi_link_take_locked(sk));
}

void exi_link_clear_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	if (sk->link)
		exi_bound_end(&sk->link->bound, sk->tcp->fd);
}

void exi_meet_lock_halves(struct exi_sock *sk)
{
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
}

void exi_meet_unlock_halves(struct exi_sock *sk)
{
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
}

/* own: the meeting is this process's; else the parent's, which continues. */
static void drop_fabric_locked(struct exi_sock *sk, bool own)
{
	struct exi_conn *fab;

	EXI_LOCKED(&sk->link_lock);
	exi_meet_lock_halves(sk);
	fab = sk->fab;
	__atomic_store_n(&sk->fab, NULL, __ATOMIC_RELAXED);
	atomic_store(&sk->remote, false);
	if (own) { /* no DOWN is answered any more */
		sk->sh->half[EXI_TX].told = 0;
		atomic_store(&sk->sh->down_wait, 0);
	}
	exi_meet_unlock_halves(sk);
	exi_sock_conn_free(fab);
}

/* The peer has left the meeting, and may have sent the reason, or that it is
 * put off. Its unread data causes an error here, before what it sent. */
static int last_words(int fd, bool *ret_not_now)
{
	struct exi_pair_msg m;
	ssize_t n;

	for (unsigned int i = 0; i < EXI_LINK_CANDIDATES; i++) {
		n = exi_rights_none(fd, &m, sizeof(m));
		if (n == 0 || n == -EAGAIN || n == -EPROTO)
			break;
		*ret_not_now = exi_pair_is_not_now(&m, n);
		if (n > 0 && exi_pair_well_formed(&m, n) &&
		    m.type == EXI_PAIR_NO)
			return exi_meet_told_reason(&m);
	}
	return EXS_X_REASON_PEER_LOST;
}

static bool has_shut_down(struct exi_sock *sk)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	bool ret;

	exi_lock(&tx->lock);
	ret = tx->fin;
	exi_unlock(&tx->lock);
	return ret;
}

/* The reason for a meeting that failed. If the connection may have ended, it is
 * undecided: a peer that is gone does not answer, and the kernel cannot
 * identify it. A peer that has read the end of all that this end sends may
 * leave in order before its own end is here. */
static int while_it_lasted(struct exi_sock *sk, int reason)
{
	switch (reason) {
	case EXS_X_REASON_PEER_LOST:
	case EXS_X_REASON_PEER_REQUEST:
	case EXS_X_REASON_REFUSED:
	case EXS_X_REASON_TIMEOUT:
		return exi_tcp_ended(sk)   ? EXS_X_REASON_UNDECIDED
		       : has_shut_down(sk) ? EXS_X_REASON_HALF_CLOSED
					   : reason;
	default:
		return reason;
	}
}

/* A has a name, and takes it back for good: says so on its socket, before the
 * name goes, for a B that comes later. The proof by boards uses the same
 * options, and ends first. */
static void leave_name_locked(struct exi_sock *sk, int reason)
{
	EXI_LOCKED(&sk->link_lock);
	if (!sk->link || sk->link->state != EXI_LINK_LISTEN || sk->again ||
	    reason == EXS_X_REASON_UNDECIDED || exi_again_by_another(reason) ||
	    sk->base != &exi_base_tcp || !sk->base->same(sk, sk->tcp->fd))
		return;
	exi_link_clear_locked(sk);
	exi_proof_leave(sk->tcp->fd);
}

bool exi_meet_is_over(const struct exi_link *l)
{
	return l->timer.deadline && exi_now_ns() >= l->timer.deadline;
}

void exi_meet_give_up_locked(struct exi_sock *sk, int reason)
{
	/* B may come later, or has said so. */
	bool later = reason == EXS_X_REASON_PLAIN_PEER ||
		     (sk->link &&
		      (reason == sk->link->kept || exi_meet_is_over(sk->link)));
	bool not_now = false;

	EXI_LOCKED(&sk->link_lock);
	if (reason == EXS_X_REASON_PEER_LOST && sk->link && sk->link->fd >= 0)
		reason = last_words(sk->link->fd, &not_now);
	if (not_now) {
		exi_meet_put_off_locked(sk, reason);
		return;
	}
	reason = while_it_lasted(sk, reason);
	leave_name_locked(sk, reason);
	if (reason == EXS_X_REASON_PLAIN_PEER && sk->link &&
	    sk->link->state == EXI_LINK_REMOTE && sk->role == EXI_ROLE_CONNECT)
		exi_marks_later_locked(sk);
	if (sk->fab)
		drop_fabric_locked(sk, true);
	exi_link_drop_locked(sk);
	atomic_store(&sk->sh->linked, 0);
	if (later && sk->again)
		exi_again_later_locked(sk);
	/* The process that was there, and left or fell silent, has forked: it
	 * leaves the connection to another. */
	if ((reason == EXS_X_REASON_PEER_LOST ||
	     reason == EXS_X_REASON_TIMEOUT) &&
	    sk->again && exi_again_later_locked(sk))
		reason = EXS_X_REASON_UNDECIDED;
	if (reason == EXS_X_REASON_UNDECIDED)
		sk->cut = true;
	exi_sock_reason(sk, reason);
}

void exi_meet_put_off_locked(struct exi_sock *sk, int reason)
{
	EXI_LOCKED(&sk->link_lock);
	exi_meet_give_up_locked(sk, EXS_X_REASON_UNDECIDED);
	sk->again = true;
	if (!exi_again_later_locked(sk))
		exi_sock_reason(sk, reason);
}

void exi_link_disown_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	if (!sk->link || sk->link->state == EXI_LINK_UP)
		return;
	drop_fabric_locked(sk, false);
	exi_link_drop_locked(sk);
}

int exi_meet_unproved(int err)
{
	switch (err) {
	case -EMFILE:
	case -ENFILE:
		return EXS_X_REASON_DESCRIPTORS;
	case -EPIPE:
	case -ECONNRESET: /* the peer has left since */
	case -ENOTCONN:
	case -ENOENT:
		return EXS_X_REASON_PEER_LOST;
	case -EPERM:
		return EXS_X_REASON_REFUSED;
	case -EXDEV:
		return EXS_X_REASON_REMOTE;
	case -ETIMEDOUT:
		return EXS_X_REASON_TIMEOUT;
	default:
		return EXS_X_REASON_NO_PROOF;
	}
}

int exi_meet_unmade(int err)
{
	switch (err) {
	case -EMFILE:
	case -ENFILE:
		return EXS_X_REASON_DESCRIPTORS;
	case -EPROTO:
		return EXS_X_REASON_PROTOCOL;
	default:
		return EXS_X_REASON_MEMORY;
	}
}

bool exi_meet_is_ours(int reason)
{
	return reason == EXS_X_REASON_NO_PROOF ||
	       reason == EXS_X_REASON_DESCRIPTORS;
}

bool exi_meet_shunned(int link)
{
	return exi_shunned(exi_user_of(link), exi_now_ns());
}

/* The fabrics within a host that the connection may use. */
static uint64_t fabrics(const struct exi_sock *sk)
{
	struct exi_config_way w = exi_way_of(sk);

	return exi_registry_wire_ids_of(&w);
}

struct exi_pair_msg exi_meet_hello(const struct exi_sock *sk, bool known)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_HELLO);

	if (known) {
		m.a = fabrics(sk);
		m.b = exi_process_token();
	} else {
		m.c = EXI_HELLO_SHOW;
	}
	return m;
}

int exi_meet_fabric_new(struct exi_sock *sk, const struct exi_provider *p)
{
	struct exi_conn *c = exi_sock_conn_new(sk, p, sk->tcp->fd);

	if (!c)
		return -ENOMEM;
	exi_meet_lock_halves(sk);
	if (sk->base->most)
		c->most = sk->base->most(sk->tcp->fd);
	/* Under the lock: SO_SNDBUF may be set meanwhile. */
	atomic_store_explicit(
		&c->whole, sk->base->admits ? sk->base->admits(sk->tcp->fd) : 0,
		memory_order_relaxed);
	atomic_store(&sk->remote, p->caps & EXI_CAP_REMOTE);
	__atomic_store_n(&sk->fab, c, __ATOMIC_RELAXED);
	exi_meet_unlock_halves(sk);
	return 0;
}

int exi_meet_offer(struct exi_sock *sk, struct exi_pair_msg *m)
{
	struct exi_link *l = sk->link;
	const struct exi_provider *p;
	struct exi_blob blob = { .fd = -1 };
	struct exi_pair_msg out = exi_pair_message(EXI_PAIR_OFFER);
	int ret;

	p = exi_registry_choose(m->a & fabrics(sk),
				l->peer_token == exi_process_token());
	if (!p)
		return -EXS_X_REASON_NO_PROVIDER;
	ret = exi_meet_fabric_new(sk, p);
	if (!ret)
		ret = p->meet_ops->offer(sk->fab, &blob);
	if (ret)
		return -exi_meet_unmade(ret);
	out.a = p->wire_id;
	memcpy(out.blob, blob.bytes, sizeof(out.blob));
	ret = exi_pair_send(l->fd, &out, blob.fd);
	if (blob.fd >= 0)
		close(blob.fd);
	return ret ? -EXS_X_REASON_PEER_LOST : 0;
}

int exi_meet_answer(struct exi_sock *sk, const struct exi_pair_msg *m, int fd)
{
	const struct exi_provider *p = exi_registry_by_wire_id(m->a);
	struct exi_blob in = { .fd = fd }, blob = { .fd = -1 };
	struct exi_pair_msg out = exi_pair_message(EXI_PAIR_ANSWER);
	int ret;

	if (!p || !(p->wire_id & fabrics(sk)))
		return -EXS_X_REASON_NO_PROVIDER;
	memcpy(in.bytes, m->blob, sizeof(in.bytes));
	ret = exi_meet_fabric_new(sk, p);
	if (!ret)
		ret = p->meet_ops->answer(sk->fab, &in, &blob);
	if (ret)
		return -exi_meet_unmade(ret);
	memcpy(out.blob, blob.bytes, sizeof(out.blob));
	ret = exi_pair_send(sk->link->fd, &out, blob.fd);
	if (blob.fd >= 0)
		close(blob.fd);
	return ret ? -EXS_X_REASON_PEER_LOST : 0;
}

void exi_meet_await_segment(struct exi_link *l, enum exi_link_state state)
{
	l->state = state;
	exi_rights_allow(l->fd, true);
}

int exi_meet_prove(struct exi_sock *sk, int link, unsigned int slot, bool a,
		   const struct exi_pair_msg *said, uint8_t ret[EXI_SHA256])
{
	const struct exi_keyed *k = sk->link->keyed;
	struct exi_tuple t;
	struct exi_meetdir_claim c = {
		.connects = sk->role == EXI_ROLE_CONNECT,
		.t = &t,
		.own = k->own,
		.peer = k->peer[slot],
		.said = { said ? said->a : 0, said ? said->b : 0 },
	};
	int err = exi_tuple_of(sk->tcp->fd, &t);

	if (err)
		return err;
	t.peer_cookie = k->peer_cookie;
	return exi_meetdir_proof(&c, link, a, ret);
}

/* The peer is known: sends what HELLO left out. */
static int proved(struct exi_sock *sk)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_PROVED);
	struct exi_link *l = sk->link;
	int err = 0;

	m.a = fabrics(sk);
	m.b = exi_process_token();
	if (l->keyed)
		err = exi_meet_prove(sk, l->fd, 0, false, &m, m.blob);
	if (err)
		return -exi_meet_unproved(err);
	exi_meet_await_segment(l, EXI_LINK_OFFER);
	l->timer.deadline = exi_now_ns() + EXI_MEET_STEP_NS;
	exi_service_timed(&l->timer);
	return exi_pair_send(l->fd, &m, -1) ? -EXS_X_REASON_PEER_LOST : 0;
}

/* B, of a peer in another namespace: A's nonce and its proof. */
static int on_keyed_hello(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_link *l = sk->link;
	uint8_t mac[EXI_SHA256];
	int err;

	if (!(m->c & EXI_HELLO_KEY))
		return -EXS_X_REASON_PROTOCOL;
	memcpy(l->keyed->peer[0], m->blob, EXI_MEETDIR_NONCE);
	err = exi_meet_prove(sk, l->fd, 0, true, NULL, mac);
	if (err)
		return -exi_meet_unproved(err);
	return exi_meetdir_same(mac, m->blob + EXI_MEETDIR_NONCE)
		       ? proved(sk)
		       : -EXS_X_REASON_REFUSED;
}

int exi_meet_show(struct exi_sock *sk, int link, struct exi_pair_msg *m)
{
	struct exi_bound *p = &sk->link->bound;
	int err = exi_bound_show(p, sk->tcp->fd, (unsigned int)m->a);

	return err ? err : exi_pair_send(link, m, -1);
}

int exi_meet_on_hello(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = exi_pair_message(EXI_PAIR_SHOWN);
	struct exi_link *l = sk->link;
	struct exi_tuple t;
	int err;

	if (l->keyed)
		return on_keyed_hello(sk, m);
	if (!(m->c & EXI_HELLO_SHOW))
		return l->known ? proved(sk) : -EXS_X_REASON_REFUSED;
	err = exi_tuple_of(sk->tcp->fd, &t);
	if (!err)
		err = exi_bound_open(&l->bound, sk->tcp->fd, l->fd, &t, m->blob,
				     out.blob);
	if (!err)
		err = exi_meet_show(sk, l->fd, &out);
	l->state = EXI_LINK_SHOW;
	return err ? -exi_meet_unproved(err) : 0;
}

int exi_meet_on_shown(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = exi_pair_message(EXI_PAIR_SHOWN);
	struct exi_link *l = sk->link;
	struct exi_tuple t;
	int err;

	if (m->a != l->bound.looked)
		return -EXS_X_REASON_PROTOCOL;
	err = exi_tuple_of(sk->tcp->fd, &t);
	if (!err)
		err = exi_bound_check(&l->bound, &t);
	if (!err && l->bound.looked == EXI_BOUND_SYMBOLS) {
		exi_bound_end(&l->bound, sk->tcp->fd);
		return proved(sk);
	}
	out.a = l->bound.looked;
	if (!err)
		err = exi_meet_show(sk, l->fd, &out);
	return err ? -exi_meet_unproved(err) : 0;
}

int exi_meet_told_reason(const struct exi_pair_msg *m)
{
	return m->a > 0 && m->a < EXS_X_REASON_MAX_ ? (int)m->a
						    : EXS_X_REASON_REFUSED;
}

void exi_meet_refuse_locked(struct exi_sock *sk, int reason)
{
	bool stranger = sk->link->state == EXI_LINK_HELLO ||
			sk->link->state == EXI_LINK_SHOW;

	EXI_LOCKED(&sk->link_lock);
	if (sk->link->fd >= 0 && (!stranger || exi_meet_is_ours(reason)))
		exi_pair_send_no(sk->link->fd, reason);
	exi_meet_give_up_locked(sk, reason);
}
