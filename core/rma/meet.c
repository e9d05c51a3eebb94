/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake with the peer: the part that does not depend on what carries
 * the messages. docs/design/wire-verbs.md describes them.
 *
 *	A: REQUEST	B: REQUEST -> ANSWER
 *	   -> ANSWER -> CONFIRM -> READY	   -> CONFIRM -> READY
 */
#include "core/rma/meet.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>

#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/rma/door.h"
#include "core/rma/ends.h"
#include "core/rma/fail.h"
#include "core/rma/link.h"
#include "core/rma/lock.h"
#include "core/rma/post.h"
#include "core/rma/request.h"
#include "core/rma/rma.h"
#include "core/rma/sever.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"
#include "core/trust/key.h"
#include "core/trust/auth.h"
#include "core/trust/auth_wire.h"

/* TRIES is how often A asks while no process on the other host has the
 * connection yet: it may lie unaccepted, or its process has not come to it.
 * Each wait is four times the last. */
#define TRIES	 6
#define AGAIN_NS 10000000u

/* Meetings that ask again; under the service lock. */
static struct exi_list waiting = EXI_LIST_INIT(waiting);

/* --- the end that connects ---------------------------------------------- */

void exi_rma_meet_fail(struct exi_rma_link *l, int reason, const char *why)
{
	exi_rma_log(EXI_LOG_DEBUG, "no handshake: %s", why);
	exi_rma_host->met(l->pair, reason);
}

/* A handshake ends under the net's lock, in the thread that takes what the
 * other end sends. */
void exi_rma_meet_lost(struct exi_rma_link *l, int reason, const char *why)
{
	struct exi_rma_net *n = l->net;

	if (n) {
		exi_rma_net_poll(n);
		exi_rma_lock(&n->lock);
	}
	if (l->meeting)
		exi_rma_meet_fail(l, reason, why);
	else
		exi_rma_link_fail(l, -ECONNRESET, why);
	if (n)
		exi_rma_unlock(&n->lock);
}

void exi_rma_meet_untaken(struct exi_rma_link *l, int err)
{
	exi_rma_meet_fail(l, exi_auth_reason(exi_auth_why(err)),
			  strerror(-err));
}

void exi_rma_meet_complain(const char *why)
{
	static bool said;

	if (!said)
		exi_rma_log(EXI_LOG_WARN, "a connection stays on TCP: %s", why);
	said = true;
}

static int pair_of(int ret[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       0, ret) < 0)
		return -errno;
	ret[0] = exi_rma_host->fd_spare(ret[0]);
	ret[1] = exi_rma_host->fd_spare(ret[1]);
	if (ret[0] >= 0 && ret[1] >= 0)
		return 0;
	exi_rma_host->fd_close(ret[0]);
	exi_rma_host->fd_close(ret[1]);
	return -EMFILE;
}

static struct exi_rma_link *new_link(int pair, bool connects,
				     const struct exi_tuple *t)
{
	struct exi_rma_link *l = exi_rma_link_new(pair);

	if (!l)
		return NULL;
	l->meeting = calloc(1, sizeof(*l->meeting));
	if (!l->meeting) {
		exi_rma_link_free(l);
		return NULL;
	}
	l->connects = connects;
	l->meeting->tuple = *t;
	exi_list_init(&l->meeting->waiting);
	return l;
}

static int meet_connect(struct exi_conn *c, const struct exi_tuple *t,
			int *ret_link)
{
	struct exi_rma_link *l;
	int pair[2], err = pair_of(pair);

	if (err)
		return err;
	l = new_link(pair[1], true, t);
	if (!l) {
		exi_rma_host->fd_close(pair[0]);
		exi_rma_host->fd_close(pair[1]);
		return -ENOMEM;
	}
	l->meeting->port = exi_rma_fabric.port_for(t->peer_port);
	pthread_mutex_lock(&exi_rma_service_lock);
	err = exi_rma_fabric.ask(l);
	pthread_mutex_unlock(&exi_rma_service_lock);
	if (err) {
		exi_rma_host->fd_close(pair[0]);
		exi_rma_meet_end(l);
		return err;
	}
	((struct exi_rma_conn *)c->priv)->link = l;
	*ret_link = pair[0];
	return 0;
}

/* Goes back to the state before the other end was asked. */
static void part(struct exi_rma_link *l)
{
	exi_rma_fabric.part(l);
	exi_rma_link_close(l);
}

static void ask_at(struct exi_rma_link *l, uint16_t port)
{
	int err;

	l->meeting->port = port;
	err = exi_rma_fabric.ask(l);
	if (err)
		exi_rma_meet_fail(l, EXS_X_REASON_MEMORY, strerror(-err));
}

/* Asks at m->port, after so long. */
static void ask_after(struct exi_rma_link *l, uint64_t ns)
{
	struct exi_rma_meeting *m = l->meeting;

	part(l);
	m->link = l;
	m->again = exi_now_ns() + ns;
	exi_list_add_tail(&waiting, &m->waiting);
	exi_rma_tick_at(m->again);
}

static void ask_later(struct exi_rma_link *l)
{
	struct exi_rma_meeting *m = l->meeting;

	if (m->tries == TRIES) {
		exi_rma_meet_fail(l, EXS_X_REASON_PLAIN_PEER,
				  "no process has the connection");
		return;
	}
	m->port = exi_rma_fabric.port_for(m->tuple.peer_port);
	m->redirected = false;
	ask_after(l, (uint64_t)AGAIN_NS << 2 * m->tries++);
}

void exi_rma_meet_taken(struct exi_rma_link *l)
{
	ask_after(l, AGAIN_NS);
}

void exi_rma_meet_nobody(struct exi_rma_link *l)
{
	uint16_t port = l->meeting->tuple.peer_port;
	char why[EXI_RMA_WHY];

	/* The process that had the connection has gone, or its listener;
	 * another may come. */
	if (l->meeting->redirected || l->meeting->tries) {
		ask_later(l);
		return;
	}
	snprintf(why, sizeof(why),
		 "the port does not answer: TCP's port %u is %u here (does %s "
		 "have the same value there?)",
		 port, exi_rma_fabric.port_for(port),
		 exi_rma_fabric.port_setting);
	exi_rma_meet_fail(l, EXS_X_REASON_PLAIN_PEER, why);
}

int exi_rma_meet_ask(struct exi_rma_link *l, const struct sockaddr *local,
		     const struct sockaddr *peer, struct exi_auth_request *ret)
{
	const struct exi_tuple *t = &l->meeting->tuple;
	const struct exi_key *key = exi_rma_meet_key();
	uint8_t from[16], to[16];
	int err;

	if (!key) {
		exi_rma_meet_fail(l, EXS_X_REASON_NO_KEY, "no key");
		return -ENOKEY;
	}
	exi_rma_from_sockaddr(local, from);
	exi_rma_from_sockaddr(peer, to);
	err = exi_rma_request_begin(&l->meeting->auth, key, EXI_AUTH_A, t, from,
				    to);
	if (!err) /* B knows all four of the connection by this */
		err = exi_auth_request(&l->meeting->auth, t->local_port, ret);
	if (err)
		exi_rma_meet_untaken(l, err);
	return err;
}

void exi_rma_meet_tick(uint64_t now)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &waiting) {
		struct exi_rma_meeting *m =
			exi_container(pos, struct exi_rma_meeting, waiting);

		if (m->again > now) {
			exi_rma_tick_at(m->again);
			continue;
		}
		exi_list_del(&m->waiting);
		ask_at(m->link, m->port);
	}
}

/* Follows a redirect, once; else fails, or asks later. */
static void on_refusal(struct exi_rma_link *l,
		       const struct exi_auth_refusal *no)
{
	struct exi_rma_meeting *m = l->meeting;

	if (no->why == EXI_AUTH_WHY_REDIRECT && !m->redirected) {
		part(l);
		m->redirected = true;
		ask_at(l, no->port);
	} else if (no->why == EXI_AUTH_WHY_REDIRECT ||
		   no->why == EXI_AUTH_WHY_UNKNOWN ||
		   no->why == EXI_AUTH_WHY_BUSY) {
		ask_later(l);
	} else {
		exi_rma_meet_fail(l, exi_auth_reason(no->why),
				  "the other end refuses");
	}
}

static bool silent(const unsigned char *data, size_t len)
{
	while (len && !data[len - 1])
		len--;
	return !len;
}

void exi_rma_meet_rejected(struct exi_rma_link *l, const void *data, size_t len,
			   bool listens)
{
	struct exi_rma_meeting *m = l->meeting;
	struct exi_auth_refusal no;

	if (!m || !l->connects)
		exi_rma_meet_fail(l, EXS_X_REASON_PEER_LOST, "rejected");
	else if (!exi_auth_take_reject(&m->auth, data, len, &no))
		on_refusal(l, &no);
	else if (listens && silent(data, len))
		ask_later(l);
	else
		exi_rma_meet_nobody(l);
}

/* --- the end that accepts ----------------------------------------------- */

struct request {
	void *asker;	      /* null once taken */
	int pair;	      /* -1 once taken */
	struct exi_auth auth; /* the link's once taken */
};

static void meet_requested(struct exi_conn *c, const struct exi_tuple *t,
			   void *arg)
{
	struct request *r = arg;
	struct exi_rma_link *l;

	pthread_mutex_lock(&exi_rma_service_lock);
	l = new_link(r->pair, false, t);
	if (l) {
		((struct exi_rma_conn *)c->priv)->link = l;
		r->pair = -1;
		l->meeting->auth = r->auth;
		exi_rma_fabric.accept(l, r->asker);
		r->asker = NULL;
	}
	pthread_mutex_unlock(&exi_rma_service_lock);
}

/* The reason with which this process refuses the connection. If the reason may
 * pass, A may try again. */
static int why_not(int reason)
{
	switch (reason) {
	case EXS_X_REASON_NOT_CONNECTED:
	case EXS_X_REASON_SHARED:
		return EXI_AUTH_WHY_UNKNOWN;
	case EXS_X_REASON_NONE:
	case EXS_X_REASON_REFUSED:
		return EXI_AUTH_WHY_BUSY;
	default:
		return EXI_AUTH_WHY_FABRIC;
	}
}

/* Answers a REQUEST. front: other processes may have its connection. The
 * service lock is held, and released while the core is asked. */
static void take_request(void *asker, const struct exi_rma_asked *asked,
			 bool front)
{
	struct request r = { .asker = asker };
	struct exi_tuple t;
	int why, reason, pair[2];

	why = exi_rma_meet_check(asked, &t, &r.auth);
	if (why)
		return exi_rma_meet_refuse(asker, NULL, why);
	if (pair_of(pair))
		return exi_rma_meet_refuse(asker, &r.auth, EXI_AUTH_WHY_BUSY);
	r.pair = pair[1];
	pthread_mutex_unlock(&exi_rma_service_lock);
	reason =
		exi_rma_host->request(exi_rma_fabric.provider, &t, pair[0], &r);
	pthread_mutex_lock(&exi_rma_service_lock);
	exi_rma_host->fd_close(r.pair);
	why = why_not(reason);
	if (r.asker && !(front && why == EXI_AUTH_WHY_UNKNOWN &&
			 exi_rma_door_ask(asker, asked, &r.auth)))
		exi_rma_meet_refuse(asker, &r.auth, why);
	exi_auth_fini(&r.auth);
}

void exi_rma_meet_request(void *asker, uint16_t port, bool front,
			  const struct sockaddr *local,
			  const struct sockaddr *peer, const void *data,
			  size_t len)
{
	struct exi_rma_asked asked = { .port = port };

	if (!port)
		return exi_rma_meet_refuse(asker, NULL, EXI_AUTH_WHY_UNKNOWN);
	if (len != sizeof(asked.request))
		return exi_rma_meet_refuse(asker, NULL, exi_auth_why(-EBADMSG));
	memcpy(asked.request, data, len);
	exi_rma_from_sockaddr(local, asked.local);
	exi_rma_from_sockaddr(peer, asked.peer);
	take_request(asker, &asked, front);
}

/* --- both --------------------------------------------------------------- */

int exi_rma_meet_prove(struct exi_rma_link *l,
		       const struct exi_auth_payload *place,
		       struct exi_auth_proof *ret)
{
	struct exi_auth *auth = &l->meeting->auth;

	return l->connects ? exi_auth_confirm(auth, place, ret)
			   : exi_auth_grant(auth, place, ret);
}

int exi_rma_meet_proved(struct exi_rma_link *l, const void *proof, size_t len,
			struct exi_auth_payload *ret)
{
	struct exi_auth *auth = &l->meeting->auth;

	return l->connects ? exi_auth_take_grant(auth, proof, len, ret)
			   : exi_auth_take_confirm(auth, proof, len, ret);
}

void exi_rma_meet_done(struct exi_rma_link *l)
{
	int err = exi_rma_watch_edge(l->pair, &l->on_pair);

	if (err) {
		exi_rma_meet_fail(l, EXS_X_REASON_MEMORY, strerror(-err));
		return;
	}
	exi_auth_bond(&l->meeting->auth, &l->bond);
	exi_auth_fini(&l->meeting->auth);
	free(l->meeting);
	/* The link is up, and stays so until its connection ends. */
	__atomic_store_n(&l->meeting, NULL, __ATOMIC_RELEASE);
	exi_rma_host->met(l->pair, 0);
}

const struct exi_remote_ops exi_rma_remote_ops = {
	.listen = exi_rma_door_listen,
	.unlisten = exi_rma_door_unlisten,
	.connect = meet_connect,
	.requested = meet_requested,
	.sever = exi_rma_fail_sever,
	.leave = exi_rma_fail_leave,
	.left = exi_rma_fail_left,
	.position = exi_rma_fail_position,
	.resend = exi_rma_fail_resend,
	.resume = exi_rma_fail_resume,
};
