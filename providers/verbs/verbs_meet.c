/* SPDX-License-Identifier: BSD-2-Clause */
/* Meeting the peer through rdma_cm, whose addresses are those of TCP: the kernel
 * finds the device that has them. docs/design/wire-verbs.md tells of the
 * messages.
 *
 *	A: address -> route -> REQUEST		B: REQUEST -> ANSWER
 *	   -> ANSWER -> CONFIRM -> READY	   -> CONFIRM -> READY
 */
#include "providers/verbs/verbs_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>

#include "core/pact.h"
#include "core/util.h"

#define RESOLVE_MS 2000

/* While nobody on the other host has the connection yet: it may lie unaccepted,
 * or its process has not come to it. Each wait is four times the last. */
#define TRIES	 6
#define AGAIN_NS 10000000u
/* Soft iWARP does not look at what comes while it finishes accepting, until
 * more comes: so more does, after that long without READY. */
#define NUDGE_NS 50000000u

struct verbsp_meeting {
	bool connects;
	struct exi_tuple tuple;
	struct exi_pact pact;
	/* Of the end that connects. */
	uint16_t port; /* where it asks */
	bool redirected;
	unsigned int tries;
	uint64_t again;
	struct exi_list waiting; /* until then */
	struct verbsp_link *link;
};

/* Meetings that ask again, and links that nudge; under the service lock. */
static struct exi_list waiting = EXI_LIST_INIT(waiting);
static struct exi_list nudging = EXI_LIST_INIT(nudging);

/* --- addresses ---------------------------------------------------------- */

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

bool verbsp_is_four(const uint8_t ip[16])
{
	return !memcmp(ip, mapped, sizeof(mapped));
}

void verbsp_sockaddr(const uint8_t ip[16], uint16_t port, uint32_t scope,
		     struct sockaddr_storage *ret)
{
	struct sockaddr_in *four = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (verbsp_is_four(ip)) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
		memcpy(&four->sin_addr, ip + 12, 4);
		return;
	}
	six->sin6_family = AF_INET6;
	six->sin6_port = htons(port);
	six->sin6_scope_id = scope;
	memcpy(&six->sin6_addr, ip, 16);
}

static void from_sockaddr(const struct sockaddr *a, uint8_t ret[16])
{
	if (a->sa_family == AF_INET) {
		memcpy(ret, mapped, sizeof(mapped));
		memcpy(ret + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
		return;
	}
	memcpy(ret, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
}

/* Where the fabric listens for a port of TCP: iWARP's ports are TCP's own. */
uint16_t verbsp_port_for(uint16_t tcp)
{
	uint32_t port = tcp + verbsp_host->config()->verbs_port_offset;

	return (uint16_t)(port > UINT16_MAX ? port - 64512 : port);
}

/* --- the key ------------------------------------------------------------ */

/* Where the environment had it when the fabric was opened: servers clear theirs
 * before anybody comes. */
static struct exi_key_search search;

static const char *keep(const char *text)
{
	return text ? strdup(text) : NULL;
}

void verbsp_meet_open(void)
{
	exi_key_search_init(&search, verbsp_host->config()->key_file);
	search.config_home = keep(search.config_home);
	search.home = keep(search.home);
}

void verbsp_meet_close(void)
{
	free((char *)search.config_home);
	free((char *)search.home);
	search = (struct exi_key_search){ 0 };
}

/* Read when it is first needed, and again while there is none. The service lock
 * is held. */
const struct exi_key *verbsp_meet_key(void)
{
	const struct exi_config *cfg = verbsp_host->config();
	static struct exi_key *key;
	char why[EXI_KEY_WHY] = "";
	int err;

	if (key)
		return key;
	err = cfg->trust == EXI_TRUST_HOSTS ? exi_key_open(&key)
					    : exi_key_load(&search, &key, why);
	if (!err)
		return key;
	verbsp_log(EXI_LOG_WARN, "verbs: no key: %s",
		   why[0] ? why : strerror(-err));
	return NULL;
}

/* rdma_cm's addresses; its ports are nobody's business. */
static int begin(struct exi_pact *p, const struct exi_key *key,
		 enum exi_pact_side side, const struct exi_tuple *t,
		 const uint8_t local_ip[16], const uint8_t peer_ip[16])
{
	struct sockaddr_storage local, peer;
	const struct exi_pact_ends ends = {
		.tcp = t,
		.fabric_local = (struct sockaddr *)&local,
		.fabric_local_len = sizeof(struct sockaddr_in6),
		.fabric_peer = (struct sockaddr *)&peer,
		.fabric_peer_len = sizeof(struct sockaddr_in6),
	};

	verbsp_sockaddr(local_ip, 0, 0, &local);
	verbsp_sockaddr(peer_ip, 0, 0, &peer);
	return exi_pact_init(p, key, side, &ends);
}

static int reason_of(int err)
{
	return exi_pact_reason(exi_pact_why(err));
}

/* Until the other end has proved itself it writes nowhere: an rkey can be
 * guessed. */
static int let_in(struct verbsp_link *l, bool in)
{
	struct ibv_qp_attr attr = {
		.qp_access_flags = in ? IBV_ACCESS_REMOTE_WRITE : 0,
	};

	return -abs(ibv_modify_qp(l->qp, &attr, IBV_QP_ACCESS_FLAGS));
}

/* --- the end that connects ---------------------------------------------- */

static void give_up(struct verbsp_link *l, int reason, const char *why)
{
	verbsp_log(EXI_LOG_DEBUG, "verbs: no meeting: %s", why);
	verbsp_host->met(l->pair, reason);
}

/* Aloud once: every connection after this one may meet the same. The service lock
 * is held. */
static void complain(const char *why)
{
	static bool said;

	if (!said)
		verbsp_log(EXI_LOG_WARN, "verbs: a connection stays on TCP: %s",
			   why);
	said = true;
}

/* There is no queue pair: the device takes no more memory, or the other end has
 * gone meanwhile. */
static void no_link(struct verbsp_link *l, int err)
{
	char why[VERBSP_WHY];

	if (err != -ENOMEM) {
		give_up(l, EXS_X_REASON_REMOTE, strerror(-err));
		return;
	}
	verbsp_memory_why(err, why, sizeof(why));
	complain(why);
	give_up(l, EXS_X_REASON_MEMORY, why);
}

static int pair_of(int ret[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       0, ret) < 0)
		return -errno;
	ret[0] = verbsp_host->fd_keep(ret[0]);
	ret[1] = verbsp_host->fd_keep(ret[1]);
	if (ret[0] >= 0 && ret[1] >= 0)
		return 0;
	verbsp_host->fd_close(ret[0]);
	verbsp_host->fd_close(ret[1]);
	return -EMFILE;
}

static int resolve(struct verbsp_link *l, const struct exi_tuple *t)
{
	struct sockaddr_storage from, to;

	verbsp_sockaddr(t->local, 0, t->scope, &from);
	verbsp_sockaddr(t->peer, l->meeting->port, t->scope, &to);
	if (rdma_create_id(verbsp_channel, &l->id, l, RDMA_PS_TCP))
		return -errno;
	if (rdma_resolve_addr(l->id, (struct sockaddr *)&from,
			      (struct sockaddr *)&to, RESOLVE_MS)) {
		/* No device has the address: told like all the rest. */
		give_up(l, EXS_X_REASON_REMOTE, strerror(errno));
	}
	return 0;
}

static struct verbsp_link *new_link(int pair, bool connects,
				    const struct exi_tuple *t)
{
	struct verbsp_link *l = verbsp_link_new(pair);

	if (!l)
		return NULL;
	l->meeting = calloc(1, sizeof(*l->meeting));
	if (!l->meeting) {
		verbsp_link_free(l);
		return NULL;
	}
	l->meeting->connects = connects;
	l->meeting->tuple = *t;
	exi_list_init(&l->meeting->waiting);
	return l;
}

static int meet_connect(struct exi_conn *c, const struct exi_tuple *t,
			int *ret_link)
{
	struct verbsp_link *l;
	int pair[2], err = pair_of(pair);

	if (err)
		return err;
	l = new_link(pair[1], true, t);
	if (!l) {
		verbsp_host->fd_close(pair[0]);
		verbsp_host->fd_close(pair[1]);
		return -ENOMEM;
	}
	l->meeting->port = verbsp_port_for(t->peer_port);
	pthread_mutex_lock(&verbsp_service_lock);
	err = resolve(l, t);
	pthread_mutex_unlock(&verbsp_service_lock);
	if (err) {
		verbsp_host->fd_close(pair[0]);
		verbsp_meet_end(l);
		return err;
	}
	verbsp_conn(c)->link = l;
	*ret_link = pair[0];
	return 0;
}

/* The other end finds a connection by its addresses, so a GID that the
 * configuration names must be the connection's own. */
static int check_gid(struct verbsp_link *l, char *why, size_t len)
{
	struct sockaddr *at = rdma_get_local_addr(l->id);

	return verbsp_gid_check(l->id->verbs, l->id->port_num, at, why, len);
}

static void on_address(struct verbsp_link *l)
{
	char why[VERBSP_WHY];

	verbsp_device_seen(l->id->verbs);
	if (verbsp_forbidden(l->id->verbs->device, why, sizeof(why))) {
		give_up(l, EXS_X_REASON_REMOTE, why);
	} else if (check_gid(l, why, sizeof(why))) {
		complain(why);
		give_up(l, EXS_X_REASON_REMOTE, why);
	} else if (rdma_resolve_route(l->id, RESOLVE_MS)) {
		give_up(l, EXS_X_REASON_REMOTE, strerror(errno));
	}
}

static int open_link(struct verbsp_link *l, struct rdma_cm_id *id)
{
	int err = verbsp_net_join(l, id);

	if (!err)
		err = let_in(l, false);
	return err ? err : verbsp_link_open(l);
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

/* Back to where nobody was asked. */
static void part(struct verbsp_link *l)
{
	verbsp_net_leave(l);
	l->net = NULL;
	if (l->qp)
		rdma_destroy_qp(l->id);
	l->qp = NULL;
	rdma_destroy_id(l->id);
	l->id = NULL;
	verbsp_link_close(l);
}

static void ask_at(struct verbsp_link *l, uint16_t port)
{
	struct verbsp_meeting *m = l->meeting;
	int err;

	m->port = port;
	err = resolve(l, &m->tuple);
	if (err)
		give_up(l, EXS_X_REASON_MEMORY, strerror(-err));
}

static void ask_later(struct verbsp_link *l)
{
	struct verbsp_meeting *m = l->meeting;

	if (m->tries == TRIES) {
		give_up(l, EXS_X_REASON_PLAIN_PEER, "nobody has it");
		return;
	}
	part(l);
	m->redirected = false;
	m->link = l;
	m->again = exi_now_ns() + ((uint64_t)AGAIN_NS << 2 * m->tries++);
	exi_list_add_tail(&waiting, &m->waiting);
	verbsp_look_at(m->again);
}

/* Nobody listens there. */
static void nobody(struct verbsp_link *l)
{
	uint16_t port = l->meeting->tuple.peer_port;
	char why[VERBSP_WHY];

	if (l->meeting->redirected) { /* who had it has gone */
		ask_later(l);
		return;
	}
	snprintf(why, sizeof(why),
		 "nobody is there: TCP's port %u is %u here (is "
		 "EXS_VERBS_PORT_OFFSET the same there?)",
		 port, verbsp_port_for(port));
	give_up(l, EXS_X_REASON_PLAIN_PEER, why);
}

/* iWARP's connection is one of TCP, and says so like that. */
static void not_connected(struct verbsp_link *l, int err)
{
	if (err == -ECONNREFUSED || err == -ECONNRESET)
		nobody(l);
	else
		give_up(l, EXS_X_REASON_REMOTE, strerror(-err));
}

static void on_route(struct verbsp_link *l)
{
	const struct exi_tuple *t = &l->meeting->tuple;
	struct exi_pact *pact = &l->meeting->pact;
	const struct exi_key *key = verbsp_meet_key();
	struct exi_pact_request r;
	uint8_t local[16], peer[16];
	struct rdma_conn_param p = params(&r, sizeof(r));
	int err;

	if (!key) {
		give_up(l, EXS_X_REASON_NO_KEY, "no key");
		return;
	}
	err = open_link(l, l->id);
	if (err) {
		no_link(l, err);
		return;
	}
	from_sockaddr(rdma_get_local_addr(l->id), local);
	from_sockaddr(rdma_get_peer_addr(l->id), peer);
	err = begin(pact, key, EXI_PACT_A, t, local, peer);
	if (!err) /* so B knows all four of the connection */
		err = exi_pact_request(pact, t->local_port, &r);
	if (err)
		give_up(l, reason_of(err), strerror(-err));
	else if (rdma_connect(l->id, &p))
		not_connected(l, -errno);
}

/* CONFIRM or READY: the proof, and where our ring is. */
static void say_ring(struct verbsp_link *l, uint8_t kind)
{
	const struct verbsp_ring mine = {
		.addr = htole64((uintptr_t)l->ring.at),
		.rkey = htole32(l->ring.mr->rkey),
		.bytes = htole32(l->ring.bytes),
	};
	struct exi_pact_payload place = { .len = sizeof(mine) };
	struct verbsp_msg m = { .kind = kind,
				.extra = sizeof(struct exi_pact_proof) };
	struct exi_pact *pact = &l->meeting->pact;
	struct exi_pact_proof proof;
	int err;

	memcpy(place.bytes, &mine, sizeof(mine));
	err = kind == VERBSP_CONFIRM ? exi_pact_confirm(pact, &place, &proof)
				     : exi_pact_grant(pact, &place, &proof);
	if (!err)
		err = verbsp_link_say(l, &m, &proof, true, true);
	if (err)
		give_up(l, EXS_X_REASON_PEER_LOST, strerror(-err));
}

static void nudge_at(struct verbsp_link *l, uint64_t when)
{
	l->nudge = when;
	exi_list_add_tail(&nudging, &l->nudging);
	verbsp_look_at(when);
}

/* Whoever takes completions ends the meeting, without this lock: that there is
 * none any more is all that is asked. */
static void look_at_nudging(uint64_t now)
{
	struct verbsp_msg m = { .kind = VERBSP_CREDIT };
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &nudging) {
		struct verbsp_link *l =
			exi_container(pos, struct verbsp_link, nudging);

		if (l->nudge > now) {
			verbsp_look_at(l->nudge);
			continue;
		}
		exi_list_del(&l->nudging);
		if (!__atomic_load_n(&l->meeting, __ATOMIC_RELAXED))
			continue;
		verbsp_link_say(l, &m, NULL, true, true);
		nudge_at(l, now + NUDGE_NS);
	}
}

static void on_answer(struct verbsp_link *l, const void *data, size_t len)
{
	struct exi_pact_payload terms;
	int err = exi_pact_take_answer(&l->meeting->pact, data, len, &terms);

	if (!err)
		err = let_in(l, true);
	if (err)
		give_up(l, reason_of(err), strerror(-err));
	else
		say_ring(l, VERBSP_CONFIRM);
	if (!err && l->net->iwarp)
		nudge_at(l, exi_now_ns() + NUDGE_NS);
}

void verbsp_meet_look(uint64_t now)
{
	struct exi_list *pos, *tmp;

	look_at_nudging(now);
	exi_list_for_each_safe (pos, tmp, &waiting) {
		struct verbsp_meeting *m =
			exi_container(pos, struct verbsp_meeting, waiting);

		if (m->again > now) {
			verbsp_look_at(m->again);
			continue;
		}
		exi_list_del(&m->waiting);
		ask_at(m->link, verbsp_port_for(m->tuple.peer_port));
	}
}

/* A redirect is followed once. */
static void on_refusal(struct verbsp_link *l, const struct exi_pact_refusal *no)
{
	struct verbsp_meeting *m = l->meeting;

	if (no->why == EXI_PACT_WHY_REDIRECT && !m->redirected) {
		part(l);
		m->redirected = true;
		ask_at(l, no->port);
	} else if (no->why == EXI_PACT_WHY_REDIRECT ||
		   no->why == EXI_PACT_WHY_UNKNOWN ||
		   no->why == EXI_PACT_WHY_BUSY) {
		ask_later(l);
	} else {
		give_up(l, exi_pact_reason(no->why), "the other end refuses");
	}
}

static void on_rejected(struct verbsp_link *l, const void *data, size_t len)
{
	struct verbsp_meeting *m = l->meeting;
	struct exi_pact_refusal no;

	if (!m || !m->connects)
		give_up(l, EXS_X_REASON_PEER_LOST, "rejected");
	else if (!exi_pact_take_reject(&m->pact, data, len, &no))
		on_refusal(l, &no);
	else
		nobody(l);
}

/* --- the end that accepts ----------------------------------------------- */

struct request {
	struct rdma_cm_id *id; /* taken: null */
	int pair;	       /* taken: -1 */
	struct exi_pact pact;  /* the same */
};

static void refuse(struct rdma_cm_id *id, struct exi_pact *pact, int why)
{
	const struct exi_key *key = verbsp_meet_key();
	struct exi_pact_refusal no = { .why = why };
	struct exi_pact_reject out;

	if (key)
		memcpy(no.key_id, key->id, sizeof(no.key_id));
	exi_pact_reject(pact, &no, &out);
	rdma_reject(id, &out, sizeof(out));
}

static void accept_it(struct verbsp_link *l)
{
	struct exi_pact_payload none = { 0 };
	struct exi_pact_answer answer;
	struct rdma_conn_param p = params(&answer, sizeof(answer));
	int err = open_link(l, l->id);

	if (!err)
		err = exi_pact_answer(&l->meeting->pact, &none, &answer);
	if (err) {
		refuse(l->id, &l->meeting->pact, EXI_PACT_WHY_FABRIC);
		no_link(l, err);
	} else if (rdma_accept(l->id, &p)) { /* who asked has gone */
		give_up(l, EXS_X_REASON_PEER_LOST, strerror(errno));
	}
}

static void meet_requested(struct exi_conn *c, const struct exi_tuple *t,
			   void *arg)
{
	struct request *r = arg;
	struct verbsp_link *l;

	pthread_mutex_lock(&verbsp_service_lock);
	l = new_link(r->pair, false, t);
	if (l) {
		verbsp_conn(c)->link = l;
		r->pair = -1;
		l->id = r->id;
		l->id->context = l;
		r->id = NULL;
		l->meeting->pact = r->pact;
		accept_it(l);
	}
	pthread_mutex_unlock(&verbsp_service_lock);
}

int verbsp_meet_check(const struct verbsp_asked *asked, struct exi_tuple *ret,
		      struct exi_pact *ret_pact)
{
	const struct exi_key *key = verbsp_meet_key();
	struct exi_pact_claim claim;
	uint16_t flags;
	int err;

	if (!key)
		return EXI_PACT_WHY_NO_KEY;
	err = exi_pact_look(asked->request, sizeof(asked->request), &claim);
	if (!err && memcmp(claim.key_id, key->id, sizeof(key->id)))
		err = -EKEYREJECTED;
	if (err)
		return exi_pact_why(err);
	*ret = (struct exi_tuple){ .local_port = asked->port,
				   .peer_port = claim.flags };
	memcpy(ret->local, asked->local, sizeof(ret->local));
	memcpy(ret->peer, asked->peer, sizeof(ret->peer));
	err = begin(ret_pact, key, EXI_PACT_B, ret, asked->local, asked->peer);
	if (!err)
		err = exi_pact_take_request(ret_pact, asked->request,
					    sizeof(asked->request), &flags);
	if (err)
		exi_pact_fini(ret_pact);
	return err ? exi_pact_why(err) : 0;
}

void verbsp_meet_reject(struct rdma_cm_id *id, const struct exi_pact_reject *r)
{
	rdma_reject(id, r, sizeof(*r));
	rdma_destroy_id(id);
}

void verbsp_meet_refuse(struct rdma_cm_id *id, struct exi_pact *pact, int why)
{
	refuse(id, pact, why);
	rdma_destroy_id(id);
}

/* Why this process does not take its connection. What passes is worth another
 * try of A's. */
static int why_not(int reason)
{
	switch (reason) {
	case EXS_X_REASON_NOT_CONNECTED:
	case EXS_X_REASON_SHARED:
		return EXI_PACT_WHY_UNKNOWN;
	case EXS_X_REASON_NONE:
	case EXS_X_REASON_REFUSED:
		return EXI_PACT_WHY_BUSY;
	default:
		return EXI_PACT_WHY_FABRIC;
	}
}

/* The service lock is held, and let go while the core is asked. front: other
 * processes may have it. */
static void take_request(struct rdma_cm_id *id,
			 const struct verbsp_asked *asked, bool front)
{
	struct request r = { .id = id };
	struct exi_tuple t;
	int why, reason, pair[2];

	why = verbsp_meet_check(asked, &t, &r.pact);
	if (why)
		return verbsp_meet_refuse(id, NULL, why);
	if (pair_of(pair))
		return verbsp_meet_refuse(id, &r.pact, EXI_PACT_WHY_BUSY);
	r.pair = pair[1];
	pthread_mutex_unlock(&verbsp_service_lock);
	reason = verbsp_host->request(&verbsp_provider, &t, pair[0], &r);
	pthread_mutex_lock(&verbsp_service_lock);
	verbsp_host->fd_close(r.pair);
	why = why_not(reason);
	if (r.id && !(front && why == EXI_PACT_WHY_UNKNOWN &&
		      verbsp_door_ask(asked->port, id, asked, &r.pact)))
		verbsp_meet_refuse(id, &r.pact, why);
	exi_pact_fini(&r.pact);
}

static void on_request(struct rdma_cm_id *id, uint16_t port, bool front,
		       const void *data, size_t len)
{
	struct verbsp_asked asked = { .port = port };
	char why[VERBSP_WHY];

	verbsp_device_seen(id->verbs);
	if (!port)
		return verbsp_meet_refuse(id, NULL, EXI_PACT_WHY_UNKNOWN);
	if (verbsp_forbidden(id->verbs->device, why, sizeof(why)))
		return verbsp_meet_refuse(id, NULL, EXI_PACT_WHY_FABRIC);
	if (len != sizeof(asked.request))
		return verbsp_meet_refuse(id, NULL, exi_pact_why(-EBADMSG));
	memcpy(asked.request, data, len);
	from_sockaddr(rdma_get_local_addr(id), asked.local);
	from_sockaddr(rdma_get_peer_addr(id), asked.peer);
	take_request(id, &asked, front);
}

/* --- both --------------------------------------------------------------- */

static int take_ring(struct verbsp_link *l, const void *proof, size_t len)
{
	struct exi_pact *pact = &l->meeting->pact;
	struct exi_pact_payload place;
	struct verbsp_ring theirs;
	int err = l->meeting->connects
			  ? exi_pact_take_grant(pact, proof, len, &place)
			  : exi_pact_take_confirm(pact, proof, len, &place);

	if (err)
		return err;
	if (place.len != sizeof(theirs))
		return -EPROTO;
	memcpy(&theirs, place.bytes, sizeof(theirs));
	theirs.addr = le64toh(theirs.addr);
	theirs.rkey = le32toh(theirs.rkey);
	theirs.bytes = le32toh(theirs.bytes);
	return verbsp_link_up(l, &theirs);
}

void verbsp_meet_heard(struct verbsp_link *l, const struct verbsp_msg *m,
		       const void *extra, uint32_t len)
{
	bool connects = l->meeting && l->meeting->connects;
	int err;

	if (!l->meeting ||
	    m->kind != (connects ? VERBSP_READY : VERBSP_CONFIRM)) {
		verbsp_link_fail(l, -EPROTO, "a meeting out of turn");
		return;
	}
	err = take_ring(l, extra, len);
	if (!err && !connects)
		err = let_in(l, true);
	if (!err)
		err = verbsp_watch(l->pair, VERBSP_WATCH_PAIR, l);
	if (err) {
		give_up(l, reason_of(err), strerror(-err));
		return;
	}
	if (!connects)
		say_ring(l, VERBSP_READY);
	exi_pact_bond(&l->meeting->pact, &l->bond);
	exi_pact_fini(&l->meeting->pact);
	free(l->meeting);
	__atomic_store_n(&l->meeting, NULL, __ATOMIC_RELAXED);
	verbsp_host->met(l->pair, 0);
}

static void lost(struct verbsp_link *l, const char *why)
{
	/* What came before it is taken before. */
	if (l->net)
		verbsp_net_poll(l->net);
	if (l->meeting)
		give_up(l, EXS_X_REASON_PEER_LOST, why);
	else
		verbsp_link_fail(l, -ECONNRESET, why);
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
	verbsp_log(EXI_LOG_TRACE, "verbs: %s, status %d", rdma_event_str(type),
		   ev->status);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		port = verbsp_door_port(ev->listen_id, &front);
	rdma_ack_cm_event(ev);
	l = id->context;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(id, port, front, data, len);
		return true;
	}
	if (!l) /* a listener's device went */
		return true;
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		on_address(l);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		on_route(l);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (l->meeting && l->meeting->connects)
			on_answer(l, data, len);
		break;
	case RDMA_CM_EVENT_REJECTED:
		on_rejected(l, data, len);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		if (l->meeting && l->meeting->connects)
			not_connected(l, status);
		else
			give_up(l, EXS_X_REASON_PEER_LOST,
				rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		give_up(l, EXS_X_REASON_REMOTE, rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		lost(l, rdma_event_str(type));
		break;
	default:
		break;
	}
	return true;
}

void verbsp_meet_sever(struct verbsp_link *l)
{
	pthread_mutex_lock(&verbsp_service_lock);
	verbsp_unwatch(l->pair);
	exi_list_del(&l->nudging);
	if (l->meeting)
		exi_list_del(&l->meeting->waiting);
	/* Before the queue pair: who takes completions posts on it. */
	verbsp_net_leave(l);
	if (l->qp) {
		rdma_disconnect(l->id);
		rdma_destroy_qp(l->id);
	}
	if (l->id)
		rdma_destroy_id(l->id);
	l->qp = NULL;
	l->id = NULL;
	pthread_mutex_unlock(&verbsp_service_lock);
}

void verbsp_meet_end(struct verbsp_link *l)
{
	verbsp_meet_sever(l);
	verbsp_host->fd_close(l->pair);
	if (l->meeting)
		exi_pact_fini(&l->meeting->pact);
	free(l->meeting);
	verbsp_link_free(l);
}

const struct exi_remote_ops verbsp_remote_ops = {
	.listen = verbsp_door_listen,
	.unlisten = verbsp_door_unlisten,
	.connect = meet_connect,
	.requested = meet_requested,
	.sever = verbsp_fail_sever,
	.position = verbsp_fail_position,
	.resend = verbsp_fail_resend,
	.resume = verbsp_fail_resume,
};
