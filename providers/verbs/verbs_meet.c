/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake with the peer through rdma_cm, whose addresses are those of
 * TCP: the kernel finds the device that has them. docs/design/wire-verbs.md
 * describes the messages.
 *
 *	A: address -> route -> REQUEST		B: REQUEST -> ANSWER
 *	   -> ANSWER -> CONFIRM -> READY	   -> CONFIRM -> READY  */
#include "providers/verbs/verbs_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>

#include "core/base/config.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/rma/door.h"
#include "core/rma/link.h"
#include "core/rma/meet.h"
#include "core/rma/post.h"
#include "core/rma/request.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"
#include "core/trust/auth.h"
#include "core/trust/auth_wire.h"

#define RESOLVE_MS 2000
#define BACKLOG	   1024

/* Soft iWARP does not look at messages that come while it finishes accepting,
 * until more come: so this end sends another one after that long without
 * READY. */
#define NUDGE_NS 50000000u

/* Links that nudge; under the service lock. */
static struct exi_list nudging = EXI_LIST_INIT(nudging);

/* The port at which the fabric listens for a port of TCP: iWARP's ports are
 * TCP's own. */
uint16_t verbsp_port_for(uint16_t tcp)
{
	uint32_t port = tcp + exi_rma_host->config()->verbs_port_offset;

	return (uint16_t)(port > UINT16_MAX ? port - 64512 : port);
}

/* --- letting go ---------------------------------------------------------- */

/* A connection that waits for its port before it is released. While the port is
 * down, the kernel cannot inform the other end that the connection is over.
 * Soft RoCE fails for good when it tries: its connection manager receives
 * nothing any more, even when the port is up again, and may keep the thread
 * that releases a connection until it has something else to send. */
struct parked {
	struct exi_list node;
	struct rdma_cm_id *id;
};

/* Under the service lock. */
static struct exi_list parked = EXI_LIST_INIT(parked);

static bool interface_is_up(const struct sockaddr *at)
{
	uint8_t wanted[16], ip[16];
	struct ifaddrs *all, *i;
	bool up = false;

	if (getifaddrs(&all))
		return true;
	exi_rma_from_sockaddr(at, wanted);
	for (i = all; i && !up; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != at->sa_family)
			continue;
		exi_rma_from_sockaddr(i->ifa_addr, ip);
		up = i->ifa_flags & IFF_UP && !memcmp(ip, wanted, sizeof(ip));
	}
	freeifaddrs(all);
	return up;
}

/* Sends fail as soon as the interface is down, and the port is down a moment
 * later. False for a device that is gone, and for iWARP, where TCP informs the
 * other end. */
static bool port_is_down(struct rdma_cm_id *id)
{
	struct ibv_port_attr port;

	if (!id->verbs ||
	    id->verbs->device->transport_type == IBV_TRANSPORT_IWARP ||
	    ibv_query_port(id->verbs, id->port_num, &port))
		return false;
	if (port.state != IBV_PORT_ACTIVE &&
	    port.state != IBV_PORT_ACTIVE_DEFER)
		return true;
	return !interface_is_up(rdma_get_local_addr(id));
}

static void let_go(struct rdma_cm_id *id)
{
	struct parked *p = port_is_down(id) ? malloc(sizeof(*p)) : NULL;

	if (!p) {
		rdma_destroy_id(id);
		return;
	}
	id->context = NULL;
	p->id = id;
	exi_list_add_tail(&parked, &p->node);
}

void verbsp_meet_unpark(void)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &parked) {
		struct parked *p = exi_container(pos, struct parked, node);

		if (port_is_down(p->id))
			continue;
		exi_list_del(&p->node);
		rdma_destroy_id(p->id);
		free(p);
	}
}

/* Lets the other end write, or not. Until it has proved itself it writes
 * nowhere: an rkey can be guessed. */
static int let_in(struct verbsp_link *l, bool in)
{
	struct ibv_qp_attr attr = {
		.qp_access_flags = in ? IBV_ACCESS_REMOTE_WRITE : 0,
	};

	return -abs(ibv_modify_qp(l->qp, &attr, IBV_QP_ACCESS_FLAGS));
}

/* --- the end that connects ---------------------------------------------- */

/* There is no queue pair: the device takes no more memory, or the other end has
 * left meanwhile. */
static void no_link(struct verbsp_link *l, int err)
{
	char why[EXI_RMA_WHY];

	if (err != -ENOMEM) {
		exi_rma_meet_fail(&l->rma, EXS_X_REASON_REMOTE, strerror(-err));
		return;
	}
	verbsp_memory_why(err, why, sizeof(why));
	exi_rma_meet_complain(why);
	exi_rma_meet_fail(&l->rma, EXS_X_REASON_MEMORY, why);
}

int verbsp_meet_ask(struct exi_rma_link *r)
{
	const struct exi_tuple *t = &r->meeting->tuple;
	struct verbsp_link *l = verbsp_link(r);
	struct sockaddr_storage from, to;

	exi_rma_sockaddr(t->local, 0, t->scope, &from);
	exi_rma_sockaddr(t->peer, r->meeting->port, t->scope, &to);
	exi_list_init(&l->nudging);
	if (rdma_create_id(verbsp_channel, &l->id, l, RDMA_PS_TCP))
		return -errno;
	if (rdma_resolve_addr(l->id, (struct sockaddr *)&from,
			      (struct sockaddr *)&to, RESOLVE_MS)) {
		/* No device has the address: reported like all other errors. */
		exi_rma_meet_fail(r, EXS_X_REASON_REMOTE, strerror(errno));
	}
	return 0;
}

/* Checks that a GID which the configuration names is the connection's own: the
 * other end finds a connection by its addresses. */
static int check_gid(struct verbsp_link *l, char *why, size_t len)
{
	struct sockaddr *at = rdma_get_local_addr(l->id);

	return verbsp_gid_check(l->id->verbs, l->id->port_num, at, why, len);
}

static void on_address(struct verbsp_link *l)
{
	char why[EXI_RMA_WHY];

	verbsp_device_seen(l->id->verbs);
	if (verbsp_forbidden(l->id->verbs->device, why, sizeof(why))) {
		exi_rma_meet_fail(&l->rma, EXS_X_REASON_REMOTE, why);
	} else if (check_gid(l, why, sizeof(why))) {
		exi_rma_meet_complain(why);
		exi_rma_meet_fail(&l->rma, EXS_X_REASON_REMOTE, why);
	} else if (rdma_resolve_route(l->id, RESOLVE_MS)) {
		exi_rma_meet_fail(&l->rma, EXS_X_REASON_REMOTE,
				  strerror(errno));
	}
}

static int open_link(struct verbsp_link *l, struct rdma_cm_id *id)
{
	int err = verbsp_net_join(l, id);

	if (!err)
		err = let_in(l, false);
	return err ? err : exi_rma_link_open(&l->rma);
}

static struct rdma_conn_param params(const void *data, size_t len)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = (uint8_t)len,
		.retry_count = 6, /* soft RoCE takes 7 for ever */
		.rnr_retry_count = 7,
	};
}

void verbsp_meet_part(struct exi_rma_link *r)
{
	struct verbsp_link *l = verbsp_link(r);

	verbsp_net_leave(l);
	if (l->qp)
		rdma_destroy_qp(l->id);
	l->qp = NULL;
	let_go(l->id);
	l->id = NULL;
}

/* iWARP's connection is one of TCP, and reports the error as TCP does; rdma_cm
 * gave it a port without asking TCP, where it may be in use, and gives another
 * one the next time. */
static void not_connected(struct verbsp_link *l, int err)
{
	if (err == -ECONNREFUSED || err == -ECONNRESET)
		exi_rma_meet_nobody(&l->rma);
	else if (err == -EADDRINUSE || err == -EADDRNOTAVAIL)
		exi_rma_meet_taken(&l->rma);
	else
		exi_rma_meet_fail(&l->rma, EXS_X_REASON_REMOTE, strerror(-err));
}

/* InfiniBand's "invalid service ID". */
#define REJECT_NO_LISTENER 8

/* The kernel rejects, without bytes of the library, for a listener that has too
 * many requests to answer, or that goes away; and it reports whether there is a
 * listener. */
static bool listens(const struct verbsp_link *l, int status)
{
	return status !=
	       (l->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP
			? -ECONNREFUSED
			: REJECT_NO_LISTENER);
}

static void on_route(struct verbsp_link *l)
{
	struct exi_auth_request r;
	struct rdma_conn_param p = params(&r, sizeof(r));
	int err;

	if (exi_rma_meet_ask(&l->rma, rdma_get_local_addr(l->id),
			     rdma_get_peer_addr(l->id), &r))
		return;
	err = open_link(l, l->id);
	if (err)
		no_link(l, err);
	else if (rdma_connect(l->id, &p))
		not_connected(l, -errno);
}

/* CONFIRM or READY: the proof, and where our ring is. */
static void say_ring(struct verbsp_link *l, uint8_t kind)
{
	const struct exi_rma_ring ring = exi_rma_link_ring(&l->rma);
	const struct verbsp_ring mine = {
		.addr = htole64(ring.addr),
		.rkey = htole32((uint32_t)ring.key),
		.bytes = htole32(ring.bytes),
	};
	struct exi_auth_payload place = { .len = sizeof(mine) };
	struct exi_rma_msg m = { .kind = kind,
				 .extra = sizeof(struct exi_auth_proof) };
	struct exi_auth_proof proof;
	int err;

	memcpy(place.bytes, &mine, sizeof(mine));
	err = exi_rma_meet_prove(&l->rma, &place, &proof);
	if (!err)
		err = exi_rma_link_say(&l->rma, &m, &proof, true, true);
	if (err)
		exi_rma_meet_fail(&l->rma, EXS_X_REASON_PEER_LOST,
				  strerror(-err));
}

static void nudge_at(struct verbsp_link *l, uint64_t when)
{
	l->nudge = when;
	exi_list_add_tail(&nudging, &l->nudging);
	exi_rma_tick_at(when);
}

/* Nudges the links that still meet. A thread that takes completions ends a
 * meeting without this lock, so all that is asked here is whether there is
 * one. */
void verbsp_meet_tick(uint64_t now)
{
	struct exi_rma_msg m = { .kind = EXI_RMA_CREDIT };
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &nudging) {
		struct verbsp_link *l =
			exi_container(pos, struct verbsp_link, nudging);

		if (l->nudge > now) {
			exi_rma_tick_at(l->nudge);
			continue;
		}
		exi_list_del(&l->nudging);
		if (!__atomic_load_n(&l->rma.meeting, __ATOMIC_RELAXED))
			continue;
		exi_rma_link_say(&l->rma, &m, NULL, true, true);
		nudge_at(l, now + NUDGE_NS);
	}
}

static void on_answer(struct verbsp_link *l, const void *data, size_t len)
{
	struct exi_auth_payload terms;
	int err =
		exi_auth_take_answer(&l->rma.meeting->auth, data, len, &terms);

	if (!err)
		err = let_in(l, true);
	if (err)
		exi_rma_meet_untaken(&l->rma, err);
	else
		say_ring(l, EXI_RMA_CONFIRM);
	if (!err && verbsp_net(l->rma.net)->iwarp)
		nudge_at(l, exi_now_ns() + NUDGE_NS);
}

/* --- the end that accepts ----------------------------------------------- */

static int listen_at(struct rdma_cm_id *id, const struct exi_listening *l)
{
	struct sockaddr_storage at;
	int on = 1;

	exi_rma_sockaddr(l->addr, l->port, l->scope, &at);
	if (at.ss_family == AF_INET6)
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on,
				sizeof(on));
	if (rdma_bind_addr(id, (struct sockaddr *)&at) ||
	    rdma_listen(id, BACKLOG))
		return -errno;
	return 0;
}

int verbsp_meet_listen(const struct exi_listening *at, void **ret)
{
	struct rdma_cm_id *id;
	int err;

	if (rdma_create_id(verbsp_channel, &id, NULL, RDMA_PS_TCP))
		return -errno;
	err = listen_at(id, at);
	if (err)
		rdma_destroy_id(id);
	else
		*ret = id;
	return err;
}

void verbsp_meet_unlisten(void *listener)
{
	rdma_destroy_id(listener);
}

uint16_t verbsp_meet_port_of(const void *listener)
{
	return ntohs(rdma_get_src_port((struct rdma_cm_id *)listener));
}

void verbsp_meet_reject(void *asker, const struct exi_auth_reject *r)
{
	rdma_reject(asker, r, sizeof(*r));
	let_go(asker);
}

/* Refuses a connection. Its id stays with the link, which goes when the core
 * was informed. */
static void refuse(struct verbsp_link *l)
{
	struct exi_auth_reject r;

	exi_rma_meet_no(&l->rma.meeting->auth, EXI_AUTH_WHY_FABRIC, &r);
	rdma_reject(l->id, &r, sizeof(r));
}

void verbsp_meet_accept(struct exi_rma_link *r, void *asker)
{
	struct verbsp_link *l = verbsp_link(r);
	struct exi_auth_payload none = { 0 };
	struct exi_auth_answer answer;
	struct rdma_conn_param p = params(&answer, sizeof(answer));
	int err;

	exi_list_init(&l->nudging);
	l->id = asker;
	l->id->context = l;
	err = open_link(l, l->id);
	if (!err)
		err = exi_auth_answer(&r->meeting->auth, &none, &answer);
	if (err) {
		refuse(l);
		no_link(l, err);
	} else if (rdma_accept(l->id, &p)) { /* the asker has gone */
		exi_rma_meet_fail(r, EXS_X_REASON_PEER_LOST, strerror(errno));
	}
}

static void on_request(struct rdma_cm_id *id, uint16_t port, bool front,
		       const void *data, size_t len)
{
	char why[EXI_RMA_WHY];

	verbsp_device_seen(id->verbs);
	if (verbsp_forbidden(id->verbs->device, why, sizeof(why)))
		exi_rma_meet_refuse(id, NULL, EXI_AUTH_WHY_FABRIC);
	else
		exi_rma_meet_request(id, port, front, rdma_get_local_addr(id),
				     rdma_get_peer_addr(id), data, len);
}

/* --- both --------------------------------------------------------------- */

static int take_ring(struct verbsp_link *l, const void *proof, size_t len)
{
	struct exi_auth_payload place;
	struct verbsp_ring theirs;
	struct exi_rma_ring ring;
	int err = exi_rma_meet_proved(&l->rma, proof, len, &place);

	if (err)
		return err;
	if (place.len != sizeof(theirs))
		return -EPROTO;
	memcpy(&theirs, place.bytes, sizeof(theirs));
	ring.addr = le64toh(theirs.addr);
	ring.key = le32toh(theirs.rkey);
	ring.bytes = le32toh(theirs.bytes);
	return exi_rma_link_up(&l->rma, &ring);
}

void verbsp_meet_proof(struct exi_rma_link *r, const struct exi_rma_msg *m,
		       const void *extra, uint32_t len)
{
	struct verbsp_link *l = verbsp_link(r);
	bool connects = r->connects;
	int err;

	if (!r->meeting ||
	    m->kind != (connects ? EXI_RMA_READY : EXI_RMA_CONFIRM)) {
		exi_rma_link_fail(r, -EPROTO,
				  "a handshake message out of turn");
		return;
	}
	err = take_ring(l, extra, len);
	if (!err && !connects)
		err = let_in(l, true);
	if (err) {
		exi_rma_meet_untaken(r, err);
		return;
	}
	if (!connects)
		say_ring(l, EXI_RMA_READY);
	exi_rma_meet_done(r);
}

/* Messages that came before are taken first, and may have ended the
 * handshake. */
static bool meets(const struct verbsp_link *l)
{
	if (l->rma.net)
		exi_rma_net_poll(l->rma.net);
	return l->rma.meeting;
}

/* A connection was rejected, or closed: a close looks like this if the kernel
 * of the closing end does not know yet that its answer came. By then the queue
 * pair may have carried all messages. */
static void rejected(struct verbsp_link *l, const void *data, size_t len,
		     int status)
{
	if (meets(l) && l->rma.connects)
		exi_rma_meet_rejected(&l->rma, data, len, listens(l, status));
	else
		exi_rma_meet_lost(&l->rma, EXS_X_REASON_PEER_LOST, "rejected");
}

bool verbsp_meet_event(void)
{
	unsigned char data[256];
	bool front = false;
	uint16_t port = 0;
	struct rdma_cm_event *ev;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	struct verbsp_link *l;
	size_t len;
	int status;

	if (rdma_get_cm_event(verbsp_channel, &ev))
		return false;
	type = ev->event;
	id = ev->id;
	status = ev->status;
	len = ev->param.conn.private_data ? ev->param.conn.private_data_len : 0;
	if (len)
		memcpy(data, ev->param.conn.private_data, len);
	exi_rma_log(EXI_LOG_TRACE, "%s, status %d", rdma_event_str(type),
		    ev->status);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		port = exi_rma_door_port(ev->listen_id, &front);
	rdma_ack_cm_event(ev);
	l = id->context;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(id, port, front, data, len);
		return true;
	}
	if (!l) { /* the device of a listener, or of a released id, is gone */
		verbsp_meet_unpark();
		return true;
	}
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		on_address(l);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		on_route(l);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (l->rma.meeting && l->rma.connects)
			on_answer(l, data, len);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rejected(l, data, len, status);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		if (meets(l) && l->rma.connects)
			not_connected(l, status);
		else
			exi_rma_meet_lost(&l->rma, EXS_X_REASON_PEER_LOST,
					  rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		exi_rma_meet_lost(&l->rma, EXS_X_REASON_REMOTE,
				  rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		exi_rma_meet_lost(&l->rma, EXS_X_REASON_PEER_LOST,
				  rdma_event_str(type));
		break;
	default:
		break;
	}
	return true;
}

void verbsp_meet_sever(struct exi_rma_link *r)
{
	struct verbsp_link *l = verbsp_link(r);

	exi_list_del(&l->nudging);
	/* The link leaves its net before the queue pair goes: threads that take
	 * completions post on it. */
	verbsp_net_leave(l);
	if (l->qp) {
		if (!port_is_down(l->id))
			rdma_disconnect(l->id);
		rdma_destroy_qp(l->id);
	}
	if (l->id)
		let_go(l->id);
	l->qp = NULL;
	l->id = NULL;
}
