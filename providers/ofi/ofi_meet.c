/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake with the peer: over a TCP connection of the two libraries,
 * until both have shown that they hold the key; then the endpoints connect, and
 * READY is the first message between them. docs/design/wire-ofi.md.
 *
 *	A: REQUEST	B: REQUEST -> ANSWER, with its endpoint's name
 *	   -> ANSWER -> CONFIRM, connects	   -> CONFIRM -> READY  */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "core/base/config.h"
#include "core/base/list.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/rma/link.h"
#include "core/rma/lock.h"
#include "core/rma/meet.h"
#include "core/rma/post.h"
#include "core/rma/request.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"
#include "core/trust/auth.h"
#include "core/trust/auth_wire.h"

/* READY is tried again: an endpoint for datagrams connects when it is first
 * sent to. */
#define LATER_NS 2000000u
/* How long READY is tried: an end with a different endpoint refuses it each
 * time. */
#define READY_NS 5000000000u

/* Under the service lock. */
static struct exi_list later = EXI_LIST_INIT(later);

uint16_t ofip_meet_port_for(uint16_t tcp)
{
	uint32_t port = tcp + exi_rma_host->config()->ofi_port_offset;

	return (uint16_t)(port > UINT16_MAX ? port - 64512 : port);
}

static void give_up(struct ofip_link *l, int reason, const char *why)
{
	exi_rma_meet_fail(&l->rma, reason, why);
}

static void no_link(struct ofip_link *l, int err)
{
	give_up(l,
		err == -ENOMEM	 ? EXS_X_REASON_MEMORY
		: err == -EMFILE ? EXS_X_REASON_DESCRIPTORS
				 : EXS_X_REASON_REMOTE,
		fi_strerror(-err));
}

/* --- both --------------------------------------------------------------- */

static struct ofip_net *net_of(struct ofip_link *l)
{
	return ofip_net(l->rma.net);
}

static int open_link(struct ofip_link *l)
{
	struct sockaddr_storage local, peer;
	socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
	int err;

	if (getsockname(l->sock, (struct sockaddr *)&local, &local_len) < 0 ||
	    getpeername(l->sock, (struct sockaddr *)&peer, &peer_len) < 0)
		return -errno;
	err = ofip_net_join(l, (struct sockaddr *)&local,
			    (struct sockaddr *)&peer);
	return err ? err : exi_rma_link_open(&l->rma);
}

/* The place for CONFIRM or READY: where our ring is, and our endpoint where it
 * is known by its name. */
static void describe(struct ofip_link *l, struct exi_auth_payload *ret)
{
	const struct exi_rma_ring ring = exi_rma_link_ring(&l->rma);
	struct ofip_net *n = net_of(l);
	struct ofip_place p = {
		.addr = htole64(ring.addr),
		.key = htole64(ring.key),
		.bytes = htole32(ring.bytes),
		.link = htole32(n->slot[l->slot].name),
		.format = htole32(n->info->addr_format),
	};

	if (n->rdm) {
		p.len = htole16(n->name_len);
		memcpy(p.name, n->name, n->name_len);
	}
	*ret = (struct exi_auth_payload){ .len = sizeof(p) };
	memcpy(ret->bytes, &p, sizeof(p));
}

static int know(struct ofip_link *l, uint32_t format, const void *name,
		uint16_t len)
{
	struct ofip_net *n = net_of(l);

	if (format != n->info->addr_format || len > OFIP_NAME_MAX ||
	    len != n->name_len)
		return -EPROTO;
	return ofip_net_know(l, name);
}

/* The proof's place: the other end's ring, and its endpoint. */
static int take_place(struct ofip_link *l, const void *proof, size_t len)
{
	struct exi_auth_payload place;
	struct exi_rma_ring ring;
	struct ofip_place p;
	int err = exi_rma_meet_proved(&l->rma, proof, len, &place);

	if (err)
		return err;
	if (place.len != sizeof(p))
		return -EPROTO;
	memcpy(&p, place.bytes, sizeof(p));
	ring.addr = le64toh(p.addr);
	ring.key = le64toh(p.key);
	ring.bytes = le32toh(p.bytes);
	l->peer_name = l->rma.name = le32toh(p.link);
	if (net_of(l)->rdm && !l->rma.connects)
		err = know(l, le32toh(p.format), p.name, le16toh(p.len));
	return err ? err : exi_rma_link_up(&l->rma, &ring);
}

/* Closes the rendezvous, with the post lock: a thread that posts may send a
 * wake-up there. */
static void end_rendezvous(struct ofip_link *l)
{
	exi_rma_lock(&l->rma.post);
	ofip_sock_close(&l->sock);
	exi_rma_unlock(&l->rma.post);
}

/* Closes the rendezvous of an endpoint that reports by itself when the other
 * end leaves. */
static void drop_rendezvous(struct ofip_link *l)
{
	if (!net_of(l)->rdm)
		end_rendezvous(l);
}

/* --- the end that connects ---------------------------------------------- */

static void on_sock(struct exi_rma_event *e);

static void prepare(struct ofip_link *l)
{
	l->on_sock.call = on_sock;
	exi_list_init(&l->later);
}

int ofip_meet_ask(struct exi_rma_link *r)
{
	const struct exi_tuple *t = &r->meeting->tuple;
	struct ofip_link *l = ofip_link(r);
	struct sockaddr_storage from, to;
	int err;

	prepare(l);
	l->sock = -1;
	l->stage = OFIP_CONNECTING;
	l->fill = 0;
	exi_rma_sockaddr(t->local, 0, t->scope, &from);
	exi_rma_sockaddr(t->peer, r->meeting->port, t->scope, &to);
	err = ofip_sock_connect((struct sockaddr *)&from,
				(struct sockaddr *)&to, &l->sock);
	if (err == -ENOMEM || err == -EMFILE)
		return err;
	if (!err)
		err = exi_rma_watch_once(l->sock, &l->on_sock, EPOLLOUT);
	if (err == -ECONNREFUSED)
		exi_rma_meet_nobody(r);
	else if (err)
		give_up(l, EXS_X_REASON_REMOTE, strerror(-err));
	return 0;
}

static void say_request(struct ofip_link *l)
{
	struct sockaddr_storage local, peer;
	socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
	struct exi_auth_request r;
	int err = 0;
	socklen_t len = sizeof(err);

	getsockopt(l->sock, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err == ECONNREFUSED || err == ECONNRESET)
		return exi_rma_meet_nobody(&l->rma);
	if (!err &&
	    (getsockname(l->sock, (struct sockaddr *)&local, &local_len) < 0 ||
	     getpeername(l->sock, (struct sockaddr *)&peer, &peer_len) < 0))
		err = errno;
	if (err)
		return give_up(l, EXS_X_REASON_REMOTE, strerror(err));
	if (exi_rma_meet_ask(&l->rma, (struct sockaddr *)&local,
			     (struct sockaddr *)&peer, &r))
		return;
	err = open_link(l);
	if (err)
		return no_link(l, err);
	l->stage = OFIP_ASKED;
	err = ofip_sock_say(l->sock, &r, sizeof(r));
	if (!err)
		err = exi_rma_watch_once(l->sock, &l->on_sock, EPOLLIN);
	if (err)
		give_up(l, EXS_X_REASON_PEER_LOST, strerror(-err));
}

/* An endpoint that connects to the one with which B listens. */
static int connect_to(struct ofip_link *l, const struct ofip_terms *t)
{
	struct ofip_net *n = net_of(l);
	struct fi_info *info = fi_dupinfo(n->info);
	int err;

	if (!info)
		return -ENOMEM;
	free(info->dest_addr);
	info->dest_addr = malloc(le16toh(t->len));
	if (!info->dest_addr) {
		fi_freeinfo(info);
		return -ENOMEM;
	}
	info->dest_addrlen = le16toh(t->len);
	memcpy(info->dest_addr, t->name, info->dest_addrlen);
	err = ofip_net_endpoint(l, info);
	if (!err)
		err = fi_connect(l->ep, info->dest_addr, t->token,
				 sizeof(t->token));
	fi_freeinfo(info);
	return err;
}

static int reach(struct ofip_link *l, const struct exi_auth_payload *terms)
{
	struct ofip_net *n = net_of(l);
	struct ofip_terms t;

	if (terms->len != sizeof(t))
		return -EPROTO;
	memcpy(&t, terms->bytes, sizeof(t));
	if (t.rdm != n->rdm || le32toh(t.format) != n->info->addr_format ||
	    le16toh(t.len) != n->name_len)
		return -EOPNOTSUPP;
	if (n->rdm)
		return know(l, le32toh(t.format), t.name, le16toh(t.len));
	return connect_to(l, &t);
}

static void on_answer(struct ofip_link *l, size_t len)
{
	struct exi_auth_payload terms, place;
	struct exi_auth_proof proof;
	int err =
		exi_auth_take_answer(&l->rma.meeting->auth, l->in, len, &terms);

	if (err)
		return exi_rma_meet_untaken(&l->rma, err);
	/* The other end is reached first: it sends to this one once it has
	 * CONFIRM. */
	err = reach(l, &terms);
	l->stage = OFIP_PROVED;
	if (!err) {
		describe(l, &place);
		err = exi_rma_meet_prove(&l->rma, &place, &proof);
	}
	if (!err)
		err = ofip_sock_say(l->sock, &proof, sizeof(proof));
	if (err == -EOPNOTSUPP)
		give_up(l, EXS_X_REASON_REMOTE,
			"the other end uses another provider of libfabric");
	else if (err)
		give_up(l, EXS_X_REASON_PEER_LOST, fi_strerror(-err));
}

/* READY. */
void ofip_meet_proof(struct exi_rma_link *r, const struct exi_rma_msg *m,
		     const void *extra, uint32_t len)
{
	struct ofip_link *l = ofip_link(r);
	int err;

	if (!r->meeting || !r->connects || l->stage != OFIP_PROVED ||
	    m->kind != EXI_RMA_READY) {
		exi_rma_link_fail(r, -EPROTO,
				  "a handshake message out of turn");
		return;
	}
	err = take_place(l, extra, len);
	if (err) {
		exi_rma_meet_untaken(r, err);
		return;
	}
	l->stage = OFIP_UP;
	exi_rma_meet_done(r);
}

/* --- the end that accepts ----------------------------------------------- */

void ofip_meet_reject(void *asker, const struct exi_auth_reject *r)
{
	struct ofip_asker *a = asker;

	ofip_sock_say(a->sock, r, sizeof(*r));
	ofip_asker_free(a);
}

static int say_answer(struct ofip_link *l)
{
	struct ofip_net *n = net_of(l);
	struct exi_auth_payload terms = { .len = sizeof(struct ofip_terms) };
	struct ofip_terms t = {
		.format = htole32(n->info->addr_format),
		.len = htole16(n->name_len),
		.rdm = n->rdm,
	};
	struct exi_auth_answer answer;
	int err;

	if (getrandom(l->token, sizeof(l->token), 0) != sizeof(l->token))
		return -EIO;
	memcpy(t.token, l->token, sizeof(t.token));
	memcpy(t.name, n->name, n->name_len);
	memcpy(terms.bytes, &t, sizeof(t));
	err = exi_auth_answer(&l->rma.meeting->auth, &terms, &answer);
	return err ? err : ofip_sock_say(l->sock, &answer, sizeof(answer));
}

void ofip_meet_accept(struct exi_rma_link *r, void *asker)
{
	struct ofip_asker *a = asker;
	struct ofip_link *l = ofip_link(r);
	struct exi_auth_reject no;
	int err;

	prepare(l);
	l->sock = a->sock;
	a->sock = -1;
	ofip_asker_free(a);
	l->stage = OFIP_ANSWERED;
	err = open_link(l);
	if (!err)
		err = say_answer(l);
	if (!err)
		err = exi_rma_watch_once(l->sock, &l->on_sock, EPOLLIN);
	if (!err)
		return;
	exi_rma_meet_no(&r->meeting->auth, EXI_AUTH_WHY_FABRIC, &no);
	ofip_sock_say(l->sock, &no, sizeof(no));
	no_link(l, err);
}

/* The first message. Nothing of A's is taken between it and being up. */
static int say_ready(struct ofip_link *l)
{
	struct exi_rma_msg m = { .kind = EXI_RMA_READY,
				 .extra = sizeof(struct exi_auth_proof) };
	struct ofip_net *n = net_of(l);
	int err;

	exi_rma_lock(&n->rma.lock);
	err = exi_rma_link_say(&l->rma, &m, l->in, true, true);
	if (!err) {
		l->stage = OFIP_UP;
		exi_rma_meet_done(&l->rma);
	}
	exi_rma_unlock(&n->rma.lock);
	return err;
}

static const char unreachable[] = "the other end's endpoint accepts nothing: "
				  "are libfabric's settings the same there?";

static void try_ready(struct ofip_link *l)
{
	int err = say_ready(l);
	uint64_t now = exi_now_ns();

	if (err == -EAGAIN && now < l->ready_by) {
		exi_list_add_tail(&later, &l->later);
		exi_rma_tick_at(now + LATER_NS);
	} else if (err == -EAGAIN) {
		exi_rma_meet_complain(unreachable);
		give_up(l, EXS_X_REASON_REMOTE, unreachable);
	} else if (err) {
		give_up(l, EXS_X_REASON_PEER_LOST, fi_strerror(-err));
	} else {
		drop_rendezvous(l);
	}
}

void ofip_meet_tick(uint64_t now)
{
	struct exi_list *pos, *tmp, due = EXI_LIST_INIT(due);

	ofip_nets_tick(now);
	ofip_socks_tick(now);
	exi_list_for_each_safe (pos, tmp, &later) {
		exi_list_del(pos);
		exi_list_add_tail(&due, pos);
	}
	exi_list_for_each_safe (pos, tmp, &due) {
		struct ofip_link *l =
			exi_container(pos, struct ofip_link, later);

		exi_list_del(&l->later);
		try_ready(l);
	}
}

static void accept_by(struct ofip_link *l)
{
	struct fi_info *info = l->by;
	int err;

	l->by = NULL;
	err = ofip_net_endpoint(l, info);
	if (!err)
		err = fi_accept(l->ep, NULL, 0);
	fi_freeinfo(info);
	if (err)
		give_up(l, EXS_X_REASON_PEER_LOST, fi_strerror(-err));
}

void ofip_meet_connected_by(struct ofip_net *n, struct fi_info *info,
			    const uint8_t *token, size_t len)
{
	for (unsigned int i = 0; i < n->slots; i++) {
		struct ofip_link *l = n->slot[i].link;

		if (!l || l->rma.connects || l->ep || l->by ||
		    !l->rma.meeting || len < sizeof(l->token) ||
		    memcmp(l->token, token, sizeof(l->token)))
			continue;
		l->by = info;
		if (l->stage == OFIP_PROVED)
			accept_by(l);
		return;
	}
	fi_reject(n->pep, info->handle, NULL, 0);
	fi_freeinfo(info);
}

/* MSG. A waits for READY, and the thread that takes it ends A's handshake. */
void ofip_meet_connected(struct ofip_link *l)
{
	if (l->rma.connects || !l->rma.meeting)
		return;
	try_ready(l);
}

static void on_confirm(struct ofip_link *l, size_t len)
{
	struct exi_auth_payload place;
	struct exi_auth_proof grant;
	int err = take_place(l, l->in, len);

	if (err)
		return exi_rma_meet_untaken(&l->rma, err);
	l->stage = OFIP_PROVED;
	describe(l, &place);
	err = exi_rma_meet_prove(&l->rma, &place, &grant);
	if (err)
		return exi_rma_meet_untaken(&l->rma, err);
	memcpy(l->in, &grant, sizeof(grant)); /* to be said */
	l->ready_by = exi_now_ns() + READY_NS;
	if (net_of(l)->rdm)
		try_ready(l);
	else if (l->by)
		accept_by(l);
}

/* --- the rendezvous ----------------------------------------------------- */

static void on_message(struct ofip_link *l, size_t len)
{
	uint8_t kind = l->in[offsetof(struct exi_auth_head, kind)];

	if (l->stage == OFIP_ASKED && kind == EXI_AUTH_ANSWER)
		on_answer(l, len);
	else if (l->stage == OFIP_ASKED && kind == EXI_AUTH_REJECT)
		exi_rma_meet_rejected(&l->rma, l->in, len, false);
	else if (l->stage == OFIP_ANSWERED && kind == EXI_AUTH_CONFIRM)
		on_confirm(l, len);
	else
		exi_rma_meet_lost(&l->rma, EXS_X_REASON_PEER_LOST,
				  "a handshake message out of turn");
}

/* The rendezvous has ended: B is gone, or, over FI_EP_MSG, no longer needs
 * it. */
static void on_end(struct ofip_link *l)
{
	bool over = l->rma.net && !net_of(l)->rdm && l->stage >= OFIP_PROVED;

	end_rendezvous(l);
	if (!over)
		exi_rma_meet_lost(&l->rma, EXS_X_REASON_PEER_LOST,
				  "the rendezvous has ended");
}

/* Takes a message after the handshake. A net with descriptors has no use for
 * one. */
static int on_call(struct ofip_link *l)
{
	int n = ofip_doze_heard(l);

	if (n > 0 && net_of(l)->polled)
		ofip_net_wake(net_of(l));
	return n < 0 ? n : 0;
}

static void on_sock(struct exi_rma_event *e)
{
	struct ofip_link *l = exi_container(e, struct ofip_link, on_sock);
	int sock = l->sock;
	ssize_t n;

	if (l->stage == OFIP_CONNECTING)
		return say_request(l);
	if (l->stage >= OFIP_PROVED)
		n = on_call(l);
	else
		n = ofip_sock_take(sock, l->in, &l->fill, sizeof(l->in));
	if (n < 0)
		on_end(l);
	else if (n)
		on_message(l, (size_t)n);
	if (l->sock == sock && sock >= 0 && l->stage != OFIP_CONNECTING)
		exi_rma_watch_once(sock, &l->on_sock, EPOLLIN);
}

/* --- the end ------------------------------------------------------------ */

void ofip_meet_part(struct exi_rma_link *r)
{
	struct ofip_link *l = ofip_link(r);

	end_rendezvous(l);
	ofip_net_leave(l);
}

void ofip_meet_sever(struct exi_rma_link *r)
{
	struct ofip_link *l = ofip_link(r);

	exi_list_del(&l->later);
	if (l->by) {
		fi_reject(net_of(l)->pep, l->by->handle, NULL, 0);
		fi_freeinfo(l->by);
		l->by = NULL;
	}
	ofip_net_leave(l);
	end_rendezvous(l);
}
