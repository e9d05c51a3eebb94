/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake between hosts: makes and checks its messages, and enforces
 * their order. */
#include "core/trust/auth.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>

#include "core/base/proof.h"
#include "core/trust/key.h"
#include "core/trust/auth_wire.h"

/* The last step of a handshake, the same for both sides. */
enum state {
	OVER, /* ended, or never begun */
	BEGUN,
	REQUESTED,
	ANSWERED,
	CONFIRMED,
	GRANTED,
};

#define LABEL 16
#define TAG   8

/* The first bytes of each text under a MAC, so that a MAC of one kind is not
 * taken for one of another. */
static const uint8_t label_ends[LABEL] = "exs meeting ends";
static const uint8_t label_tag[LABEL] = "exs meeting tag";
static const uint8_t label_mac[LABEL] = "exs meeting mac";
static const uint8_t label_bond[LABEL] = "exs meetingbond";
static const uint8_t label_from[LABEL] = "exs resumed from";
static const uint8_t label_at[LABEL] = "exs resumed at";
static const uint8_t label_door[LABEL] = "exs meeting door";

/* --- the ends --- */

/* The text has bytes only, so that there is no padding; A's before B's. */
struct tcp_text {
	uint8_t label[LABEL];
	uint8_t a[16], a_port[2];
	uint8_t b[16], b_port[2];
};

enum {
	FABRIC_IP = 1,
	FABRIC_OTHER = 2,
};

struct fabric_text {
	uint8_t kind;
	uint8_t len;
	uint8_t bytes[126];
};

struct ends_text {
	struct tcp_text tcp;
	struct fabric_text a, b;
};

_Static_assert(sizeof(struct tcp_text) == 52, "no padding");
_Static_assert(sizeof(struct ends_text) == 52 + 2 * 128, "no padding");

static void put_port(uint8_t to[2], uint16_t port)
{
	to[0] = (uint8_t)(port >> 8);
	to[1] = (uint8_t)port;
}

static void tcp_write(const uint8_t label[LABEL], enum exi_auth_side side,
		      const struct exi_tuple *t, struct tcp_text *ret)
{
	bool a = side == EXI_AUTH_A;

	memcpy(ret->label, label, LABEL);
	memcpy(ret->a, a ? t->local : t->peer, sizeof(ret->a));
	memcpy(ret->b, a ? t->peer : t->local, sizeof(ret->b));
	put_port(ret->a_port, a ? t->local_port : t->peer_port);
	put_port(ret->b_port, a ? t->peer_port : t->local_port);
}

static void ip_write(const struct sockaddr *sa, struct fabric_text *ret)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_in6 six;
	struct sockaddr_in four;

	ret->kind = FABRIC_IP;
	ret->len = 18;
	if (sa->sa_family == AF_INET6) {
		memcpy(&six, sa, sizeof(six));
		memcpy(ret->bytes, &six.sin6_addr, 16);
		memcpy(ret->bytes + 16, &six.sin6_port, 2);
	} else {
		memcpy(&four, sa, sizeof(four));
		memcpy(ret->bytes, mapped, 12);
		memcpy(ret->bytes + 12, &four.sin_addr, 4);
		memcpy(ret->bytes + 16, &four.sin_port, 2);
	}
}

static int fabric_write(const struct sockaddr *sa, socklen_t len,
			struct fabric_text *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (len < sizeof(sa->sa_family) || len > sizeof(ret->bytes))
		return -EINVAL;
	if ((sa->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) ||
	    (sa->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6))) {
		ip_write(sa, ret);
		return 0;
	}
	ret->kind = FABRIC_OTHER;
	ret->len = (uint8_t)len;
	memcpy(ret->bytes, sa, len);
	return 0;
}

static int ends_write(enum exi_auth_side side, const struct exi_auth_ends *e,
		      struct ends_text *ret)
{
	bool a = side == EXI_AUTH_A;
	int err = fabric_write(e->fabric_local, e->fabric_local_len,
			       a ? &ret->a : &ret->b);

	if (!err)
		err = fabric_write(e->fabric_peer, e->fabric_peer_len,
				   a ? &ret->b : &ret->a);
	tcp_write(label_ends, side, e->tcp, &ret->tcp);
	return err;
}

/* Whether the fabric address is the TCP peer's: if everybody has the key, only
 * the address shows which host the peer is. */
static bool same_host(enum exi_auth_side side, const struct ends_text *t)
{
	const struct fabric_text *fabric = side == EXI_AUTH_A ? &t->b : &t->a;

	return fabric->kind == FABRIC_IP &&
	       !memcmp(fabric->bytes, side == EXI_AUTH_A ? t->tcp.b : t->tcp.a,
		       16);
}

void exi_auth_tag(const struct exi_key *key, enum exi_auth_side side,
		  const struct exi_tuple *tcp, uint8_t ret[8])
{
	uint8_t mac[crypto_auth_hmacsha256_BYTES];
	struct tcp_text text;

	tcp_write(label_tag, side, tcp, &text);
	crypto_auth_hmacsha256(mac, (const uint8_t *)&text, sizeof(text),
			       key->bytes);
	memcpy(ret, mac, TAG);
}

void exi_auth_door(const struct exi_key *key, const uint8_t addr[16],
		   uint16_t port, uint8_t ret[16])
{
	uint8_t mac[crypto_auth_hmacsha256_BYTES], text[LABEL + 2 + 16];

	memcpy(text, label_door, LABEL);
	put_port(text + LABEL, port);
	memcpy(text + LABEL + 2, addr, 16);
	crypto_auth_hmacsha256(mac, text, sizeof(text), key->bytes);
	memcpy(ret, mac, 16);
}

int exi_auth_init(struct exi_auth *m, const struct exi_key *key,
		  enum exi_auth_side side, const struct exi_auth_ends *ends)
{
	struct ends_text text;
	int err = ends_write(side, ends, &text);

	if (err)
		return err;
	if (key->open && !same_host(side, &text))
		return -EACCES;
	*m = (struct exi_auth){ .key = key, .side = side, .state = BEGUN };
	crypto_auth_hmacsha256(m->ends, (const uint8_t *)&text, sizeof(text),
			       key->bytes);
	exi_auth_tag(key, side, ends->tcp, m->tag);
	return 0;
}

void exi_auth_fini(struct exi_auth *m)
{
	sodium_memzero(m, sizeof(*m));
}

/* --- one message --- */

/* The MAC of a message whose MAC field is zero. */
static void mac_of(const struct exi_auth *m, const void *msg, size_t len,
		   uint8_t ret[EXI_AUTH_MAC])
{
	crypto_auth_hmacsha256_state h;
	uint8_t mac[crypto_auth_hmacsha256_BYTES];

	crypto_auth_hmacsha256_init(&h, m->key->bytes, EXI_KEY_BYTES);
	crypto_auth_hmacsha256_update(&h, label_mac, LABEL);
	crypto_auth_hmacsha256_update(&h, m->ends, sizeof(m->ends));
	crypto_auth_hmacsha256_update(&h, m->nonce_a, sizeof(m->nonce_a));
	crypto_auth_hmacsha256_update(&h, m->nonce_b, sizeof(m->nonce_b));
	crypto_auth_hmacsha256_update(&h, msg, len);
	crypto_auth_hmacsha256_final(&h, mac);
	memcpy(ret, mac, EXI_AUTH_MAC);
	sodium_memzero(&h, sizeof(h));
}

/* Whether a message's MAC is right. mac points to it, inside the message; it is
 * zeroed. */
static bool mac_holds(const struct exi_auth *m, const void *msg, size_t len,
		      uint8_t mac[EXI_AUTH_MAC])
{
	uint8_t got[EXI_AUTH_MAC], want[EXI_AUTH_MAC];

	memcpy(got, mac, sizeof(got));
	memset(mac, 0, sizeof(got));
	mac_of(m, msg, len, want);
	return sodium_memcmp(got, want, sizeof(got)) == 0;
}

static struct exi_auth_head head_of(enum exi_auth_kind kind, uint16_t flags,
				    uint16_t len)
{
	return (struct exi_auth_head){
		.magic = { EXI_AUTH_MAGIC_0, EXI_AUTH_MAGIC_1 },
		.version = EXI_AUTH_VERSION,
		.kind = kind,
		.flags = htole16(flags),
		.len = htole16(len),
	};
}

/* Copies a message of that kind and length, and checks its head. room: the most
 * bytes of its payload. */
static int copy_in(const void *buf, size_t len, enum exi_auth_kind kind,
		   size_t room, void *to, size_t want)
{
	struct exi_auth_head h;

	if (len < sizeof(h))
		return -EBADMSG;
	memcpy(&h, buf, sizeof(h));
	if (h.magic[0] != EXI_AUTH_MAGIC_0 || h.magic[1] != EXI_AUTH_MAGIC_1)
		return -EBADMSG;
	if (h.version != EXI_AUTH_VERSION)
		return -EPROTONOSUPPORT;
	if (h.kind != kind || len != want || le16toh(h.len) > room)
		return -EBADMSG;
	memcpy(to, buf, want);
	memcpy(to, &h, sizeof(h));
	return 0;
}

/* Whether it is this side's turn, in this state: 0 or -EPROTO. */
static int turn(struct exi_auth *m, enum exi_auth_side side, enum state from)
{
	return m->side == side && m->state == (int)from ? 0 : -EPROTO;
}

/* Moves on after a message was taken: to the next state, or to the end. */
static int taken(struct exi_auth *m, int err, enum state next)
{
	m->state = err ? OVER : next;
	return err;
}

static void payload_out(const struct exi_auth_head *h, const uint8_t *bytes,
			struct exi_auth_payload *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->flags = le16toh(h->flags);
	ret->len = le16toh(h->len);
	memcpy(ret->bytes, bytes, ret->len);
}

/* --- REQUEST --- */

int exi_auth_request(struct exi_auth *m, uint16_t flags,
		     struct exi_auth_request *ret)
{
	int err = turn(m, EXI_AUTH_A, BEGUN);

	if (err)
		return err;
	randombytes_buf(m->nonce_a, sizeof(m->nonce_a));
	*ret = (struct exi_auth_request){
		.head = head_of(EXI_AUTH_REQUEST, flags, 0),
	};
	memcpy(ret->key_id, m->key->id, sizeof(ret->key_id));
	memcpy(ret->tag, m->tag, sizeof(ret->tag));
	memcpy(ret->nonce, m->nonce_a, sizeof(ret->nonce));
	mac_of(m, ret, sizeof(*ret), ret->mac);
	m->state = REQUESTED;
	return 0;
}

int exi_auth_read_claim(const void *buf, size_t len, struct exi_auth_claim *ret)
{
	struct exi_auth_request msg;
	int err = copy_in(buf, len, EXI_AUTH_REQUEST, 0, &msg, sizeof(msg));

	if (err)
		return err;
	ret->flags = le16toh(msg.head.flags);
	memcpy(ret->tag, msg.tag, sizeof(ret->tag));
	memcpy(ret->key_id, msg.key_id, sizeof(ret->key_id));
	return 0;
}

static int check_request(struct exi_auth *m, struct exi_auth_request *msg)
{
	if (memcmp(msg->key_id, m->key->id, sizeof(msg->key_id)) != 0)
		return -EKEYREJECTED;
	memcpy(m->nonce_a, msg->nonce, sizeof(m->nonce_a));
	return mac_holds(m, msg, sizeof(*msg), msg->mac) ? 0 : -EACCES;
}

int exi_auth_take_request(struct exi_auth *m, const void *buf, size_t len,
			  uint16_t *ret_flags)
{
	struct exi_auth_request msg;
	int err = turn(m, EXI_AUTH_B, BEGUN);

	if (!err)
		err = copy_in(buf, len, EXI_AUTH_REQUEST, 0, &msg, sizeof(msg));
	if (!err)
		err = check_request(m, &msg);
	if (!err)
		*ret_flags = le16toh(msg.head.flags);
	return taken(m, err, REQUESTED);
}

/* --- ANSWER --- */

int exi_auth_answer(struct exi_auth *m, const struct exi_auth_payload *terms,
		    struct exi_auth_answer *ret)
{
	int err = turn(m, EXI_AUTH_B, REQUESTED);

	if (err)
		return err;
	if (terms->len > EXI_AUTH_TERMS)
		return -EMSGSIZE;
	randombytes_buf(m->nonce_b, sizeof(m->nonce_b));
	*ret = (struct exi_auth_answer){
		.head = head_of(EXI_AUTH_ANSWER, terms->flags, terms->len),
	};
	memcpy(ret->nonce, m->nonce_b, sizeof(ret->nonce));
	memcpy(ret->terms, terms->bytes, terms->len);
	mac_of(m, ret, sizeof(*ret), ret->mac);
	m->state = ANSWERED;
	return 0;
}

int exi_auth_take_answer(struct exi_auth *m, const void *buf, size_t len,
			 struct exi_auth_payload *ret)
{
	struct exi_auth_answer msg;
	int err = turn(m, EXI_AUTH_A, REQUESTED);

	if (!err)
		err = copy_in(buf, len, EXI_AUTH_ANSWER, EXI_AUTH_TERMS, &msg,
			      sizeof(msg));
	if (err)
		return taken(m, err, OVER);
	memcpy(m->nonce_b, msg.nonce, sizeof(m->nonce_b));
	if (!mac_holds(m, &msg, sizeof(msg), msg.mac))
		return taken(m, -EACCES, OVER);
	payload_out(&msg.head, msg.terms, ret);
	return taken(m, 0, ANSWERED);
}

/* --- CONFIRM and GRANT --- */

static int prove(struct exi_auth *m, enum exi_auth_kind kind,
		 const struct exi_auth_payload *place,
		 struct exi_auth_proof *ret)
{
	if (place->len > EXI_AUTH_PLACE)
		return -EMSGSIZE;
	*ret = (struct exi_auth_proof){
		.head = head_of(kind, place->flags, place->len),
	};
	memcpy(ret->place, place->bytes, place->len);
	mac_of(m, ret, sizeof(*ret), ret->mac);
	return 0;
}

static int take_proof(const struct exi_auth *m, enum exi_auth_kind kind,
		      const void *buf, size_t len, struct exi_auth_payload *ret)
{
	struct exi_auth_proof msg;
	int err = copy_in(buf, len, kind, EXI_AUTH_PLACE, &msg, sizeof(msg));

	if (err)
		return err;
	if (!mac_holds(m, &msg, sizeof(msg), msg.mac))
		return -EACCES;
	payload_out(&msg.head, msg.place, ret);
	return 0;
}

int exi_auth_confirm(struct exi_auth *m, const struct exi_auth_payload *place,
		     struct exi_auth_proof *ret)
{
	int err = turn(m, EXI_AUTH_A, ANSWERED);

	if (!err)
		err = prove(m, EXI_AUTH_CONFIRM, place, ret);
	if (!err)
		m->state = CONFIRMED;
	return err;
}

int exi_auth_take_confirm(struct exi_auth *m, const void *buf, size_t len,
			  struct exi_auth_payload *ret)
{
	int err = turn(m, EXI_AUTH_B, ANSWERED);

	if (!err)
		err = take_proof(m, EXI_AUTH_CONFIRM, buf, len, ret);
	return taken(m, err, CONFIRMED);
}

int exi_auth_grant(struct exi_auth *m, const struct exi_auth_payload *place,
		   struct exi_auth_proof *ret)
{
	int err = turn(m, EXI_AUTH_B, CONFIRMED);

	if (!err)
		err = prove(m, EXI_AUTH_GRANT, place, ret);
	if (!err)
		m->state = GRANTED;
	return err;
}

int exi_auth_take_grant(struct exi_auth *m, const void *buf, size_t len,
			struct exi_auth_payload *ret)
{
	int err = turn(m, EXI_AUTH_A, CONFIRMED);

	if (!err)
		err = take_proof(m, EXI_AUTH_GRANT, buf, len, ret);
	return taken(m, err, GRANTED);
}

/* --- REJECT --- */

void exi_auth_reject(struct exi_auth *m, const struct exi_auth_refusal *why,
		     struct exi_auth_reject *ret)
{
	uint64_t token = htole64(why->token);

	*ret = (struct exi_auth_reject){
		.head = head_of(EXI_AUTH_REJECT, 0, 0),
		.why = (uint8_t)why->why,
	};
	if (why->why == EXI_AUTH_WHY_REDIRECT) {
		ret->port = htole16(why->port);
		memcpy(ret->token, &token, sizeof(ret->token));
	}
	if (!m)
		return;
	memcpy(ret->key_id, m->key->id, sizeof(ret->key_id));
	if (m->side == EXI_AUTH_B && m->state == REQUESTED)
		mac_of(m, ret, sizeof(*ret), ret->mac);
	m->state = OVER;
}

static int check_reject(const struct exi_auth *m, struct exi_auth_reject *msg,
			bool *ret_proved)
{
	bool proved = !sodium_is_zero(msg->mac, sizeof(msg->mac));

	if (!msg->why)
		return -EBADMSG;
	if (proved && !mac_holds(m, msg, sizeof(*msg), msg->mac))
		return -EACCES;
	if (!proved && msg->why == EXI_AUTH_WHY_REDIRECT)
		return -EACCES;
	*ret_proved = proved;
	return 0;
}

int exi_auth_check_redirect(const struct exi_auth *m, const void *buf,
			    size_t len)
{
	struct exi_auth_reject msg;
	bool proved;
	int err = m->side == EXI_AUTH_B && m->state == REQUESTED ? 0 : -EPROTO;

	if (!err)
		err = copy_in(buf, len, EXI_AUTH_REJECT, 0, &msg, sizeof(msg));
	if (!err && msg.why != EXI_AUTH_WHY_REDIRECT)
		err = -EBADMSG;
	return err ? err : check_reject(m, &msg, &proved);
}

int exi_auth_take_reject(struct exi_auth *m, const void *buf, size_t len,
			 struct exi_auth_refusal *ret)
{
	struct exi_auth_reject msg;
	uint64_t token;
	bool proved;
	int err = turn(m, EXI_AUTH_A, REQUESTED);

	if (!err)
		err = copy_in(buf, len, EXI_AUTH_REJECT, 0, &msg, sizeof(msg));
	if (!err)
		err = check_reject(m, &msg, &proved);
	taken(m, err, OVER);
	if (err)
		return err;
	memcpy(&token, msg.token, sizeof(token));
	*ret = (struct exi_auth_refusal){
		.why = msg.why,
		.port = proved ? le16toh(msg.port) : 0,
		.token = proved ? le64toh(token) : 0,
		.proved = proved,
	};
	memcpy(ret->key_id, msg.key_id, sizeof(ret->key_id));
	return 0;
}

/* --- after it --- */

int exi_auth_bond(const struct exi_auth *m, struct exi_auth_bond *ret)
{
	crypto_auth_hmacsha256_state h;

	if (m->state != GRANTED)
		return -EPROTO;
	ret->side = m->side;
	crypto_auth_hmacsha256_init(&h, m->key->bytes, EXI_KEY_BYTES);
	crypto_auth_hmacsha256_update(&h, label_bond, LABEL);
	crypto_auth_hmacsha256_update(&h, m->ends, sizeof(m->ends));
	crypto_auth_hmacsha256_update(&h, m->nonce_a, sizeof(m->nonce_a));
	crypto_auth_hmacsha256_update(&h, m->nonce_b, sizeof(m->nonce_b));
	crypto_auth_hmacsha256_final(&h, ret->key);
	sodium_memzero(&h, sizeof(h));
	return 0;
}

/* The text has bytes only, so that there is no padding. */
struct resume_text {
	uint8_t label[LABEL];
	uint8_t from_a;
	uint8_t epoch[4];
	uint8_t position[8];
};

_Static_assert(sizeof(struct resume_text) == LABEL + 13, "no padding");

static void resume_mac(const struct exi_auth_bond *b, const uint8_t *label,
		       struct resume_text *t, uint8_t ret[EXI_AUTH_MAC])
{
	uint8_t mac[crypto_auth_hmacsha256_BYTES];

	memcpy(t->label, label, LABEL);
	crypto_auth_hmacsha256(mac, (const uint8_t *)t, sizeof(*t), b->key);
	memcpy(ret, mac, EXI_AUTH_MAC);
}

void exi_auth_resume(const struct exi_auth_bond *b, bool sends, uint32_t epoch,
		     uint64_t position, struct exi_auth_resume *ret)
{
	struct resume_text t = { .from_a = sends == (b->side == EXI_AUTH_A) };

	epoch = htole32(epoch);
	position = htole64(position);
	memcpy(t.epoch, &epoch, sizeof(t.epoch));
	resume_mac(b, label_from, &t, ret->tag);
	memcpy(t.position, &position, sizeof(t.position));
	memcpy(ret->position, &position, sizeof(ret->position));
	resume_mac(b, label_at, &t, ret->mac);
}

/* --- words for it --- */

int exi_auth_why(int err)
{
	switch (err) {
	case -EPROTONOSUPPORT:
		return EXI_AUTH_WHY_VERSION;
	case -ENOKEY:
		return EXI_AUTH_WHY_NO_KEY;
	case -EKEYREJECTED:
		return EXI_AUTH_WHY_KEY;
	default:
		return EXI_AUTH_WHY_PROOF;
	}
}

int exi_auth_reason(int why)
{
	switch (why) {
	case EXI_AUTH_WHY_VERSION:
		return EXS_X_REASON_VERSION;
	case EXI_AUTH_WHY_NO_KEY:
		return EXS_X_REASON_NO_KEY;
	case EXI_AUTH_WHY_KEY:
		return EXS_X_REASON_KEY_MISMATCH;
	case EXI_AUTH_WHY_PROOF:
		return EXS_X_REASON_REFUSED;
	case EXI_AUTH_WHY_UNKNOWN:
		return EXS_X_REASON_PLAIN_PEER;
	case EXI_AUTH_WHY_BUSY:
		return EXS_X_REASON_TIMEOUT;
	default:
		return EXS_X_REASON_NO_PROVIDER;
	}
}
