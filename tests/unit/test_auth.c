/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends on different hosts meet if they hold one key and mean the same ends; and
 * nobody else does, whatever he sends, again, elsewhere or back. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>

#include "core/base/proof.h"
#include "core/trust/key.h"
#include "core/trust/auth.h"
#include "core/trust/auth_wire.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/run.h"

/* One end, and what it was told of itself. */
struct end {
	struct exi_auth m;
	struct exi_tuple tcp;
	struct sockaddr_in local, peer;
};

struct messages {
	struct exi_auth_request request;
	struct exi_auth_answer answer;
	struct exi_auth_proof confirm, grant;
	struct exi_auth_reject reject;
};

static struct exi_key *key;

static void use_key(void)
{
	T_EQ(exi_key_new(&key), 0);
}

static void drop_key(void)
{
	exi_key_free(key);
	key = NULL;
}

static struct sockaddr_in address(const char *text, uint16_t port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };

	T_EQ(inet_pton(AF_INET, text, &sa.sin_addr), 1);
	sa.sin_port = htons(port);
	return sa;
}

static void tuple_set(uint8_t to[16], const char *text)
{
	memset(to, 0, 10);
	memset(to + 10, 0xff, 2);
	T_EQ(inet_pton(AF_INET, text, to + 12), 1);
}

static int end_init(struct end *e, const struct exi_key *k,
		    enum exi_auth_side side)
{
	struct exi_auth_ends ends = {
		.tcp = &e->tcp,
		.fabric_local = (const struct sockaddr *)&e->local,
		.fabric_local_len = sizeof(e->local),
		.fabric_peer = (const struct sockaddr *)&e->peer,
		.fabric_peer_len = sizeof(e->peer),
	};

	return exi_auth_init(&e->m, k, side, &ends);
}

/* As both see it: 192.0.2.1 connected to 192.0.2.2. */
static struct end end_a(void)
{
	struct end e = { .tcp = { .local_port = 40000, .peer_port = 6379 } };

	tuple_set(e.tcp.local, "192.0.2.1");
	tuple_set(e.tcp.peer, "192.0.2.2");
	e.local = address("198.51.100.1", 50000);
	e.peer = address("198.51.100.2", 7471);
	return e;
}

static struct end end_b(void)
{
	struct end e = { .tcp = { .local_port = 6379, .peer_port = 40000 } };

	tuple_set(e.tcp.local, "192.0.2.2");
	tuple_set(e.tcp.peer, "192.0.2.1");
	e.local = address("198.51.100.2", 7471);
	e.peer = address("198.51.100.1", 50000);
	return e;
}

static void ends_begin(struct end *a, struct end *b)
{
	*a = end_a();
	*b = end_b();
	T_EQ(end_init(a, key, EXI_AUTH_A), 0);
	T_EQ(end_init(b, key, EXI_AUTH_B), 0);
}

static struct exi_auth_payload payload(uint16_t flags, uint16_t len, int seed)
{
	struct exi_auth_payload p = { .flags = flags, .len = len };

	t_fill(p.bytes, len, (uint64_t)seed, 0);
	return p;
}

static bool same_payload(const struct exi_auth_payload *a,
			 const struct exi_auth_payload *b)
{
	return a->flags == b->flags && a->len == b->len &&
	       !memcmp(a->bytes, b->bytes, a->len);
}

/* --- one table of what is taken --- */

enum kind {
	REQUEST,
	ANSWER,
	CONFIRM,
	GRANT,
	REJECT,
	N_KINDS,
};

static const size_t sizes[N_KINDS] = {
	[REQUEST] = sizeof(struct exi_auth_request),
	[ANSWER] = sizeof(struct exi_auth_answer),
	[CONFIRM] = sizeof(struct exi_auth_proof),
	[GRANT] = sizeof(struct exi_auth_proof),
	[REJECT] = sizeof(struct exi_auth_reject),
};

static int take(struct exi_auth *m, enum kind kind, const void *buf, size_t len)
{
	struct exi_auth_refusal refusal;
	struct exi_auth_payload p;
	uint16_t flags;

	switch (kind) {
	case REQUEST:
		return exi_auth_take_request(m, buf, len, &flags);
	case ANSWER:
		return exi_auth_take_answer(m, buf, len, &p);
	case CONFIRM:
		return exi_auth_take_confirm(m, buf, len, &p);
	case GRANT:
		return exi_auth_take_grant(m, buf, len, &p);
	default:
		return exi_auth_take_reject(m, buf, len, &refusal);
	}
}

static const void *message(const struct messages *all, enum kind kind)
{
	const void *const at[N_KINDS] = {
		[REQUEST] = &all->request, [ANSWER] = &all->answer,
		[CONFIRM] = &all->confirm, [GRANT] = &all->grant,
		[REJECT] = &all->reject,
	};

	return at[kind];
}

/* A whole meeting. Before each message is taken, who takes it is kept. */
static void meet(struct exi_auth *a, struct exi_auth *b, struct messages *all,
		 struct exi_auth before[N_KINDS])
{
	const struct exi_auth_payload terms = payload(1, 64, 1),
				      place_a = payload(2, 100, 2),
				      place_b = payload(3, 200, 3);
	struct exi_auth_refusal why = { .why = EXI_AUTH_WHY_REDIRECT,
					.port = 4711,
					.token = 0x0123456789abcdef };
	struct exi_auth other;

	T_EQ(exi_auth_request(a, 7, &all->request), 0);
	before[REQUEST] = *b;
	before[ANSWER] = before[REJECT] = *a;
	T_EQ(take(b, REQUEST, &all->request, sizeof(all->request)), 0);
	other = *b;
	exi_auth_reject(&other, &why, &all->reject);
	T_EQ(exi_auth_answer(b, &terms, &all->answer), 0);
	before[CONFIRM] = *b;
	T_EQ(take(a, ANSWER, &all->answer, sizeof(all->answer)), 0);
	T_EQ(exi_auth_confirm(a, &place_a, &all->confirm), 0);
	before[GRANT] = *a;
	T_EQ(take(b, CONFIRM, &all->confirm, sizeof(all->confirm)), 0);
	T_EQ(exi_auth_grant(b, &place_b, &all->grant), 0);
	T_EQ(take(a, GRANT, &all->grant, sizeof(all->grant)), 0);
}

static void one_meeting(struct messages *all, struct exi_auth before[N_KINDS])
{
	struct end a, b;

	ends_begin(&a, &b);
	meet(&a.m, &b.m, all, before);
}

/* Not taken, and the meeting is over. */
static void refuses(const struct exi_auth *before, enum kind kind,
		    const void *buf, size_t len, int want)
{
	struct exi_auth m = *before;
	int err = take(&m, kind, buf, len);

	T_MSG(want ? err == want : err < 0, "%s, not %s", t_errname(-err),
	      t_errname(-want));
	for (int k = 0; k < N_KINDS; k++)
		T_EQ(take(&m, (enum kind)k, buf, len), -EPROTO);
}

/* --- rows --- */

static void two_ends_with_one_key_meet(void)
{
	static const uint16_t lengths[] = { 0, 1, EXI_AUTH_TERMS,
					    EXI_AUTH_PLACE };
	struct exi_auth_payload sent, got;
	struct exi_auth_claim claim;
	struct messages all;
	struct end a, b;
	uint16_t flags, len;
	uint8_t tag[8];

	use_key();
	for (size_t i = 0; i < T_COUNT(lengths); i++) {
		ends_begin(&a, &b);
		T_EQ(exi_auth_request(&a.m, 0xabcd, &all.request), 0);
		T_EQ(exi_auth_read_claim(&all.request, sizeof(all.request),
					 &claim),
		     0);
		exi_auth_tag(key, EXI_AUTH_B, &b.tcp, tag);
		T(!memcmp(claim.tag, tag, sizeof(tag)));
		T(!memcmp(claim.key_id, key->id, sizeof(key->id)));
		T_EQ(claim.flags, 0xabcd);
		T_EQ(exi_auth_take_request(&b.m, &all.request,
					   sizeof(all.request), &flags),
		     0);
		T_EQ(flags, 0xabcd);
		len = lengths[i] < EXI_AUTH_TERMS ? lengths[i] : EXI_AUTH_TERMS;
		sent = payload(0xffff, len, 1);
		T_EQ(exi_auth_answer(&b.m, &sent, &all.answer), 0);
		T_EQ(exi_auth_take_answer(&a.m, &all.answer, sizeof(all.answer),
					  &got),
		     0);
		T(same_payload(&sent, &got));
		sent = payload(5, lengths[i], 2);
		T_EQ(exi_auth_confirm(&a.m, &sent, &all.confirm), 0);
		T_EQ(exi_auth_take_confirm(&b.m, &all.confirm,
					   sizeof(all.confirm), &got),
		     0);
		T(same_payload(&sent, &got));
		sent = payload(6, lengths[i], 3);
		T_EQ(exi_auth_grant(&b.m, &sent, &all.grant), 0);
		T_EQ(exi_auth_take_grant(&a.m, &all.grant, sizeof(all.grant),
					 &got),
		     0);
		T(same_payload(&sent, &got));
		exi_auth_fini(&a.m);
		exi_auth_fini(&b.m);
		T_EQ(exi_auth_request(&a.m, 0, &all.request), -EPROTO);
	}
	drop_key();
}

static void what_does_not_fit_is_not_sent(void)
{
	struct exi_auth_payload p = payload(0, EXI_AUTH_TERMS, 1);
	struct exi_auth before[N_KINDS], b;
	struct messages all, none = { 0 };

	use_key();
	one_meeting(&all, before);
	b = before[REQUEST];
	T_EQ(take(&b, REQUEST, &all.request, sizeof(all.request)), 0);
	p.len = EXI_AUTH_TERMS + 1;
	T_EQ(exi_auth_answer(&b, &p, &none.answer), -EMSGSIZE);
	p.len = UINT16_MAX;
	T_EQ(take(&before[ANSWER], ANSWER, &all.answer, sizeof(all.answer)), 0);
	T_EQ(exi_auth_confirm(&before[ANSWER], &p, &none.confirm), -EMSGSIZE);
	T_EQ(take(&before[CONFIRM], CONFIRM, &all.confirm, sizeof(all.confirm)),
	     0);
	T_EQ(exi_auth_grant(&before[CONFIRM], &p, &none.grant), -EMSGSIZE);
	T_EQ(none.answer.head.kind + none.confirm.head.kind +
		     none.grant.head.kind,
	     0);
	drop_key();
}

static void every_flipped_bit_is_refused(void)
{
	uint8_t bytes[sizeof(struct exi_auth_proof)];
	struct exi_auth before[N_KINDS], m;
	struct messages all;

	use_key();
	one_meeting(&all, before);
	for (int kind = 0; kind < N_KINDS; kind++) {
		memcpy(bytes, message(&all, kind), sizes[kind]);
		for (size_t bit = 0; bit < 8 * sizes[kind]; bit++) {
			bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
			refuses(&before[kind], kind, bytes, sizes[kind], 0);
			bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		m = before[kind];
		T_EQ(take(&m, kind, bytes, sizes[kind]), 0);
	}
	drop_key();
}

/* As auth_wire.h tells it; the message's own MAC is zero. */
static void sign(const struct exi_auth *m, const void *msg, size_t len,
		 uint8_t mac[EXI_AUTH_MAC])
{
	static const uint8_t label[16] = "exs meeting mac";
	uint8_t text[16 + 32 + 16 + 16 + 256], full[32];

	memcpy(text, label, 16);
	memcpy(text + 16, m->ends, 32);
	memcpy(text + 48, m->nonce_a, 16);
	memcpy(text + 64, m->nonce_b, 16);
	memcpy(text + 80, msg, len);
	crypto_auth_hmacsha256(full, text, 80 + len, m->key->bytes);
	memcpy(mac, full, EXI_AUTH_MAC);
}

/* A holder of the key may be broken, or worse. */
static void a_holder_of_the_key_is_checked_too(void)
{
	struct exi_auth before[N_KINDS], m;
	struct messages all;

	use_key();
	one_meeting(&all, before);
	all.confirm.head.len = htole16(EXI_AUTH_PLACE);
	memset(all.confirm.mac, 0, EXI_AUTH_MAC);
	sign(&before[CONFIRM], &all.confirm, sizeof(all.confirm),
	     all.confirm.mac);
	m = before[CONFIRM];
	T_EQ(take(&m, CONFIRM, &all.confirm, sizeof(all.confirm)), 0);
	all.confirm.head.len = htole16(EXI_AUTH_PLACE + 1);
	memset(all.confirm.mac, 0, EXI_AUTH_MAC);
	sign(&before[CONFIRM], &all.confirm, sizeof(all.confirm),
	     all.confirm.mac);
	refuses(&before[CONFIRM], CONFIRM, &all.confirm, sizeof(all.confirm),
		-EBADMSG);
	m = before[ANSWER];
	memcpy(m.nonce_b, all.answer.nonce, sizeof(m.nonce_b));
	all.answer.head.len = htole16(EXI_AUTH_TERMS + 1);
	memset(all.answer.mac, 0, EXI_AUTH_MAC);
	sign(&m, &all.answer, sizeof(all.answer), all.answer.mac);
	refuses(&before[ANSWER], ANSWER, &all.answer, sizeof(all.answer),
		-EBADMSG);
	all.request.head.len = htole16(1);
	memset(all.request.mac, 0, EXI_AUTH_MAC);
	sign(&before[ANSWER], &all.request, sizeof(all.request),
	     all.request.mac);
	refuses(&before[REQUEST], REQUEST, &all.request, sizeof(all.request),
		-EBADMSG);
	drop_key();
}

/* In memory of just that size: a look beyond is seen by a sanitizer. */
static void every_other_length_is_refused(void)
{
	struct exi_auth before[N_KINDS];
	struct exi_auth_claim claim;
	struct messages all;
	uint8_t *bytes;

	use_key();
	one_meeting(&all, before);
	for (int kind = 0; kind < N_KINDS; kind++) {
		for (size_t len = 0; len < sizes[kind] + 64; len++) {
			if (len == sizes[kind])
				continue;
			bytes = calloc(1, len ? len : 1);
			T(bytes);
			memcpy(bytes, message(&all, kind),
			       len < sizes[kind] ? len : sizes[kind]);
			refuses(&before[kind], kind, bytes, len, -EBADMSG);
			if (kind == REQUEST)
				T_EQ(exi_auth_read_claim(bytes, len, &claim),
				     -EBADMSG);
			free(bytes);
		}
	}
	drop_key();
}

static void another_version_says_so(void)
{
	uint8_t bytes[sizeof(struct exi_auth_proof)];
	struct exi_auth before[N_KINDS];
	struct exi_auth_claim claim;
	struct messages all;

	use_key();
	one_meeting(&all, before);
	for (int kind = 0; kind < N_KINDS; kind++) {
		memcpy(bytes, message(&all, kind), sizes[kind]);
		bytes[offsetof(struct exi_auth_head, version)]++;
		refuses(&before[kind], kind, bytes, sizes[kind],
			-EPROTONOSUPPORT);
		/* Which may have another length, too. */
		refuses(&before[kind], kind, bytes, sizes[kind] - 1,
			-EPROTONOSUPPORT);
		if (kind == REQUEST)
			T_EQ(exi_auth_read_claim(bytes, sizes[kind], &claim),
			     -EPROTONOSUPPORT);
	}
	drop_key();
}

static void no_message_is_taken_for_another(void)
{
	uint8_t bytes[2 * sizeof(struct exi_auth_proof)];
	struct exi_auth before[N_KINDS];
	struct messages all;

	use_key();
	one_meeting(&all, before);
	for (int kind = 0; kind < N_KINDS; kind++) {
		for (int as = 0; as < N_KINDS; as++) {
			if (as == kind)
				continue;
			refuses(&before[as], as, message(&all, kind),
				sizes[kind], -EBADMSG);
			/* Dressed up as what is waited for. */
			memset(bytes, 0, sizeof(bytes));
			memcpy(bytes, message(&all, kind), sizes[kind]);
			bytes[offsetof(struct exi_auth_head, kind)] =
				(uint8_t)(as + 1);
			refuses(&before[as], as, bytes, sizes[as], 0);
		}
	}
	drop_key();
}

/* What A says is brought back to A, which would serve as B, too. */
static void nothing_can_be_reflected(void)
{
	struct exi_auth before[N_KINDS];
	struct exi_auth_proof proof;
	struct messages all, back;
	struct end mirror = end_a();

	use_key();
	one_meeting(&all, before);
	T_EQ(end_init(&mirror, key, EXI_AUTH_B), 0);
	refuses(&mirror.m, REQUEST, &all.request, sizeof(all.request), -EACCES);
	/* Even with the tag that A would know the connection by. */
	back.request = all.request;
	exi_auth_tag(key, EXI_AUTH_B, &mirror.tcp, back.request.tag);
	refuses(&mirror.m, REQUEST, &back.request, sizeof(back.request),
		-EACCES);
	proof = all.confirm;
	proof.head.kind = EXI_AUTH_GRANT;
	refuses(&before[GRANT], GRANT, &proof, sizeof(proof), -EACCES);
	proof = all.grant;
	proof.head.kind = EXI_AUTH_CONFIRM;
	refuses(&before[CONFIRM], CONFIRM, &proof, sizeof(proof), -EACCES);
	drop_key();
}

/* All of a meeting was recorded. Another between the same ends goes as far as
 * the ANSWER, which tells nothing, for whoever repeats the REQUEST. */
static void a_replay_gets_an_answer_and_no_further(void)
{
	struct exi_auth before[N_KINDS], old[N_KINDS];
	const struct exi_auth_payload terms = payload(0, 0, 1);
	struct messages all, recorded;
	struct exi_auth_payload secret = payload(0, 100, 9);
	struct exi_auth_proof grant;
	struct end a, b;

	use_key();
	ends_begin(&a, &b);
	meet(&a.m, &b.m, &recorded, old);
	ends_begin(&a, &b);
	T_EQ(take(&b.m, REQUEST, &recorded.request, sizeof(recorded.request)),
	     0);
	T_EQ(exi_auth_answer(&b.m, &terms, &all.answer), 0);
	T(memcmp(all.answer.nonce, recorded.answer.nonce, EXI_AUTH_NONCE));
	T_EQ(exi_auth_grant(&b.m, &secret, &grant), -EPROTO);
	refuses(&b.m, CONFIRM, &recorded.confirm, sizeof(recorded.confirm),
		-EACCES);
	/* Nor does what B says now help to pose as B: A's nonce is another. */
	T_EQ(exi_auth_request(&a.m, 0, &all.request), 0);
	refuses(&a.m, ANSWER, &recorded.answer, sizeof(recorded.answer),
		-EACCES);
	refuses(&a.m, ANSWER, &all.answer, sizeof(all.answer), -EACCES);
	refuses(&a.m, REJECT, &recorded.reject, sizeof(recorded.reject),
		-EACCES);
	one_meeting(&all, before);
	refuses(&before[CONFIRM], CONFIRM, &recorded.confirm,
		sizeof(recorded.confirm), -EACCES);
	refuses(&before[GRANT], GRANT, &recorded.grant, sizeof(recorded.grant),
		-EACCES);
	drop_key();
}

/* Each of these ends is another in one respect. */
static void change(struct end *e, int what)
{
	struct exi_tuple t = e->tcp;

	switch (what) {
	case 0:
		e->tcp.local[15] ^= 1;
		break;
	case 1:
		e->tcp.peer[15] ^= 1;
		break;
	case 2:
		e->tcp.local_port++;
		break;
	case 3:
		e->tcp.peer_port++;
		break;
	case 4:
		e->local.sin_addr.s_addr ^= htonl(1);
		break;
	case 5:
		e->peer.sin_addr.s_addr ^= htonl(1);
		break;
	case 6:
		e->local.sin_port ^= htons(1);
		break;
	case 7:
		e->peer.sin_port ^= htons(1);
		break;
	case 8: /* who connects */
		memcpy(e->tcp.local, t.peer, 16);
		memcpy(e->tcp.peer, t.local, 16);
		e->tcp.local_port = t.peer_port;
		e->tcp.peer_port = t.local_port;
		break;
	case 9:
		e->local.sin_family = AF_INET6 + 17;
		break;
	default:
		break;
	}
}

#define CHANGES 10

static void a_message_for_other_ends_is_refused(void)
{
	struct exi_auth before[N_KINDS];
	struct messages all;
	struct end a, b;

	use_key();
	for (int what = 0; what < CHANGES; what++) {
		one_meeting(&all, before);
		a = end_a();
		b = end_b();
		change(&a, what);
		change(&b, what);
		T_EQ(end_init(&a, key, EXI_AUTH_A), 0);
		T_EQ(end_init(&b, key, EXI_AUTH_B), 0);
		for (int kind = 0; kind < N_KINDS; kind++) {
			/* The same meeting, but for the ends. */
			memcpy(before[kind].ends,
			       before[kind].side == EXI_AUTH_A ? a.m.ends
							       : b.m.ends,
			       sizeof(a.m.ends));
			refuses(&before[kind], kind, message(&all, kind),
				sizes[kind], -EACCES);
		}
	}
	drop_key();
}

static void the_ends_are_the_same_however_they_are_written(void)
{
	struct exi_auth before[N_KINDS];
	struct sockaddr_in6 six = { .sin6_family = AF_INET6,
				    .sin6_port = htons(7471),
				    .sin6_scope_id = 3 };
	struct messages all;
	struct end a = end_a(), b = end_b();
	struct exi_auth_ends ends = {
		.tcp = &b.tcp,
		.fabric_local = (const struct sockaddr *)&six,
		.fabric_local_len = sizeof(six),
		.fabric_peer = (const struct sockaddr *)&b.peer,
		.fabric_peer_len = sizeof(b.peer),
	};

	use_key();
	tuple_set(six.sin6_addr.s6_addr, "198.51.100.2");
	/* Numbers of interfaces are each host's own. */
	a.tcp.scope = 1;
	b.tcp.scope = 2;
	T_EQ(end_init(&a, key, EXI_AUTH_A), 0);
	T_EQ(exi_auth_init(&b.m, key, EXI_AUTH_B, &ends), 0);
	meet(&a.m, &b.m, &all, before);
	drop_key();
}

static void fabrics_have_addresses_of_their_own(void)
{
	struct exi_auth before[N_KINDS];
	struct sockaddr_storage one = { .ss_family = AF_UNSPEC }, two = one;
	struct end a = end_a(), b = end_b();
	struct exi_auth_ends of_a = {
		.tcp = &a.tcp,
		.fabric_local = (const struct sockaddr *)&one,
		.fabric_local_len = 126,
		.fabric_peer = (const struct sockaddr *)&two,
		.fabric_peer_len = 34,
	}, of_b = {
		.tcp = &b.tcp,
		.fabric_local = of_a.fabric_peer,
		.fabric_local_len = of_a.fabric_peer_len,
		.fabric_peer = of_a.fabric_local,
		.fabric_peer_len = of_a.fabric_local_len,
	};
	struct messages all;

	use_key();
	memset((char *)&one + 2, 1, 124);
	memset((char *)&two + 2, 2, 32);
	T_EQ(exi_auth_init(&a.m, key, EXI_AUTH_A, &of_a), 0);
	T_EQ(exi_auth_init(&b.m, key, EXI_AUTH_B, &of_b), 0);
	meet(&a.m, &b.m, &all, before);
	of_b.fabric_local_len++;
	T_EQ(exi_auth_init(&b.m, key, EXI_AUTH_B, &of_b), 0);
	refuses(&b.m, REQUEST, &all.request, sizeof(all.request), -EACCES);
	of_b.fabric_peer_len = 127;
	T_EQ(exi_auth_init(&b.m, key, EXI_AUTH_B, &of_b), -EINVAL);
	of_b.fabric_peer_len = 1;
	T_EQ(exi_auth_init(&b.m, key, EXI_AUTH_B, &of_b), -EINVAL);
	drop_key();
}

static void who_has_another_key_is_told_apart_from_a_liar(void)
{
	struct exi_key *other = NULL;
	struct exi_auth before[N_KINDS];
	struct messages all;
	struct end b = end_b();

	use_key();
	T_EQ(exi_key_new(&other), 0);
	one_meeting(&all, before);
	T_EQ(end_init(&b, other, EXI_AUTH_B), 0);
	refuses(&b.m, REQUEST, &all.request, sizeof(all.request),
		-EKEYREJECTED);
	/* An end that claims to have the key. */
	memcpy(all.request.key_id, other->id, sizeof(other->id));
	exi_auth_tag(other, EXI_AUTH_B, &b.tcp, all.request.tag);
	refuses(&b.m, REQUEST, &all.request, sizeof(all.request), -EACCES);
	/* All other messages, under another key. */
	for (int kind = ANSWER; kind < N_KINDS; kind++) {
		before[kind].key = other;
		refuses(&before[kind], kind, message(&all, kind), sizes[kind],
			-EACCES);
	}
	exi_key_free(other);
	drop_key();
}

static void tags_name_a_connection_for_holders_of_the_key(void)
{
	struct exi_key *other = NULL;
	struct end a = end_a(), b = end_b();
	uint8_t tag[8], again[8];

	use_key();
	T_EQ(exi_key_new(&other), 0);
	exi_auth_tag(key, EXI_AUTH_A, &a.tcp, tag);
	exi_auth_tag(key, EXI_AUTH_B, &b.tcp, again);
	T(!memcmp(tag, again, sizeof(tag)));
	exi_auth_tag(key, EXI_AUTH_A, &b.tcp, again);
	T(memcmp(tag, again, sizeof(tag)));
	exi_auth_tag(other, EXI_AUTH_A, &a.tcp, again);
	T(memcmp(tag, again, sizeof(tag)));
	for (int what = 0; what < 4; what++) {
		a = end_a();
		change(&a, what);
		exi_auth_tag(key, EXI_AUTH_A, &a.tcp, again);
		T(memcmp(tag, again, sizeof(tag)));
	}
	exi_key_free(other);
	drop_key();
}

static void calls_out_of_turn_do_nothing(void)
{
	const struct exi_auth_payload p = payload(0, 8, 1);
	struct exi_auth before[N_KINDS], m[6];
	struct messages all, none = { 0 };
	bool can[6][4] = { { false } };
	size_t i;

	use_key();
	one_meeting(&all, before);
	/* A begun, asked, answered; B begun, asked, confirmed. */
	struct end a, b;
	ends_begin(&a, &b);
	m[0] = a.m;
	m[1] = before[ANSWER];
	m[2] = before[ANSWER];
	T_EQ(take(&m[2], ANSWER, &all.answer, sizeof(all.answer)), 0);
	m[3] = b.m;
	m[4] = before[REQUEST];
	T_EQ(take(&m[4], REQUEST, &all.request, sizeof(all.request)), 0);
	m[5] = before[CONFIRM];
	T_EQ(take(&m[5], CONFIRM, &all.confirm, sizeof(all.confirm)), 0);
	can[0][0] = can[2][1] = can[4][2] = can[5][3] = true;
	for (i = 0; i < 6; i++) {
		struct exi_auth copy = m[i];

		T_EQ(exi_auth_request(&copy, 0, &none.request),
		     can[i][0] ? 0 : -EPROTO);
		copy = m[i];
		T_EQ(exi_auth_confirm(&copy, &p, &none.confirm),
		     can[i][1] ? 0 : -EPROTO);
		copy = m[i];
		T_EQ(exi_auth_answer(&copy, &p, &none.answer),
		     can[i][2] ? 0 : -EPROTO);
		copy = m[i];
		T_EQ(exi_auth_grant(&copy, &p, &none.grant),
		     can[i][3] ? 0 : -EPROTO);
	}
	/* Nothing twice; nothing after the end, or before the beginning. */
	T_EQ(exi_auth_confirm(&m[2], &p, &none.confirm), 0);
	T_EQ(exi_auth_confirm(&m[2], &p, &none.confirm), -EPROTO);
	T_EQ(exi_auth_grant(&m[5], &p, &none.grant), 0);
	T_EQ(exi_auth_grant(&m[5], &p, &none.grant), -EPROTO);
	T_EQ(take(&m[5], CONFIRM, &all.confirm, sizeof(all.confirm)), -EPROTO);
	memset(&m[0], 0, sizeof(m[0]));
	T_EQ(exi_auth_request(&m[0], 0, &none.request), -EPROTO);
	exi_auth_fini(&m[0]);
	drop_key();
}

/* Where its memory is, each end says to whom has proved himself alone. */
static void nothing_is_revealed_before_the_proof(void)
{
	const struct exi_auth_payload secret = payload(0, 100, 1);
	struct messages all, out = { 0 }, none = { 0 };
	struct exi_auth before[N_KINDS], m;

	use_key();
	one_meeting(&all, before);
	T_EQ(exi_auth_confirm(&before[ANSWER], &secret, &out.confirm), -EPROTO);
	T_EQ(exi_auth_grant(&before[CONFIRM], &secret, &out.grant), -EPROTO);
	m = before[ANSWER];
	all.answer.mac[3] ^= 1;
	T_EQ(take(&m, ANSWER, &all.answer, sizeof(all.answer)), -EACCES);
	T_EQ(exi_auth_confirm(&m, &secret, &out.confirm), -EPROTO);
	m = before[CONFIRM];
	all.confirm.mac[3] ^= 1;
	T_EQ(take(&m, CONFIRM, &all.confirm, sizeof(all.confirm)), -EACCES);
	T_EQ(exi_auth_grant(&m, &secret, &out.grant), -EPROTO);
	T(!memcmp(&out, &none, sizeof(out)));
	drop_key();
}

static void a_refusal_proves_itself_where_it_can(void)
{
	struct exi_auth_refusal why = { .why = EXI_AUTH_WHY_REDIRECT,
					.port = 4711,
					.token = 0x0123456789abcdef },
				got;
	struct exi_auth before[N_KINDS], a, b;
	struct exi_auth_reject msg;
	struct messages all;

	use_key();
	one_meeting(&all, before);
	a = before[REJECT];
	T_EQ(exi_auth_take_reject(&a, &all.reject, sizeof(all.reject), &got),
	     0);
	T(got.proved && got.why == EXI_AUTH_WHY_REDIRECT);
	T(got.port == 4711 && got.token == 0x0123456789abcdef);
	T(!memcmp(got.key_id, key->id, sizeof(got.key_id)));
	/* That was the end, for both. */
	T_EQ(take(&a, ANSWER, &all.answer, sizeof(all.answer)), -EPROTO);
	b = before[REQUEST];
	T_EQ(take(&b, REQUEST, &all.request, sizeof(all.request)), 0);
	exi_auth_reject(&b, &why, &msg);
	T_EQ(exi_auth_answer(&b, &(struct exi_auth_payload){ 0 }, &all.answer),
	     -EPROTO);

	/* A redirect that anybody may have written leads nowhere. */
	exi_auth_reject(NULL, &why, &msg);
	refuses(&before[REJECT], REJECT, &msg, sizeof(msg), -EACCES);
	msg = all.reject;
	memset(msg.mac, 0, sizeof(msg.mac));
	refuses(&before[REJECT], REJECT, &msg, sizeof(msg), -EACCES);

	/* Before the REQUEST holds, B can prove nothing; A stays on TCP. */
	b = before[REQUEST];
	why.why = EXI_AUTH_WHY_KEY;
	exi_auth_reject(&b, &why, &msg);
	a = before[REJECT];
	T_EQ(exi_auth_take_reject(&a, &msg, sizeof(msg), &got), 0);
	T(!got.proved && got.why == EXI_AUTH_WHY_KEY);
	T(!got.port && !got.token);
	T(!memcmp(got.key_id, key->id, sizeof(got.key_id)));
	exi_auth_reject(NULL, &why, &msg);
	msg.port = 1;
	a = before[REJECT];
	T_EQ(exi_auth_take_reject(&a, &msg, sizeof(msg), &got), 0);
	T(!got.proved && !got.port);
	/* Without a reason it is none; with one of the future it is. */
	msg.why = 0;
	refuses(&before[REJECT], REJECT, &msg, sizeof(msg), -EBADMSG);
	msg.why = 200;
	a = before[REJECT];
	T_EQ(exi_auth_take_reject(&a, &msg, sizeof(msg), &got), 0);
	T_EQ(exi_auth_reason(got.why), EXS_X_REASON_NO_PROVIDER);
	drop_key();
}

/* The owner of a port does not write the redirect: what a process of its host
 * gives it for that goes through this. */
static void a_redirect_is_checked_before_it_is_passed_on(void)
{
	struct exi_auth_refusal to = { .why = EXI_AUTH_WHY_REDIRECT,
				       .port = 4711 };
	struct exi_auth before[N_KINDS], owner, worker, a;
	struct exi_auth_refusal got;
	struct exi_auth_reject msg, bad;
	struct messages all, other;
	size_t i;

	use_key();
	one_meeting(&all, before);
	worker = owner = before[REQUEST];
	/* Not before the REQUEST was taken. */
	T_EQ(exi_auth_check_redirect(&owner, &all.reject, sizeof(all.reject)),
	     -EPROTO);
	T_EQ(take(&owner, REQUEST, &all.request, sizeof(all.request)), 0);
	T_EQ(take(&worker, REQUEST, &all.request, sizeof(all.request)), 0);
	exi_auth_reject(&worker, &to, &msg);
	for (i = 0; i < 2; i++) /* it changes nothing */
		T_EQ(exi_auth_check_redirect(&owner, &msg, sizeof(msg)), 0);
	for (i = 0; i < sizeof(msg) * 8; i++) {
		bad = msg;
		((uint8_t *)&bad)[i / 8] ^= (uint8_t)(1 << i % 8);
		T(exi_auth_check_redirect(&owner, &bad, sizeof(bad)) < 0);
	}
	T_EQ(exi_auth_check_redirect(&owner, &msg, sizeof(msg) - 1), -EBADMSG);
	/* What proves nothing, and what is proved but leads nowhere. */
	exi_auth_reject(NULL, &to, &bad);
	T_EQ(exi_auth_check_redirect(&owner, &bad, sizeof(bad)), -EACCES);
	worker = before[REQUEST];
	T_EQ(take(&worker, REQUEST, &all.request, sizeof(all.request)), 0);
	exi_auth_reject(
		&worker,
		&(struct exi_auth_refusal){ .why = EXI_AUTH_WHY_UNKNOWN },
		&bad);
	T_EQ(exi_auth_check_redirect(&owner, &bad, sizeof(bad)), -EBADMSG);
	/* A REJECT of another meeting of the same ends. */
	one_meeting(&other, before);
	T_EQ(exi_auth_check_redirect(&owner, &other.reject,
				     sizeof(other.reject)),
	     -EACCES);
	/* A believes what the owner lets through. */
	one_meeting(&all, before);
	owner = before[REQUEST];
	T_EQ(take(&owner, REQUEST, &all.request, sizeof(all.request)), 0);
	T_EQ(exi_auth_check_redirect(&owner, &all.reject, sizeof(all.reject)),
	     0);
	a = before[REJECT];
	T_EQ(exi_auth_take_reject(&a, &all.reject, sizeof(all.reject), &got),
	     0);
	T(got.proved && got.why == EXI_AUTH_WHY_REDIRECT);
	drop_key();
}

static void ports_have_names_for_holders_of_the_key(void)
{
	uint8_t one[16], two[16], at[16] = { 0 };
	struct exi_key *open = NULL;

	use_key();
	exi_auth_door(key, at, 26000, one);
	exi_auth_door(key, at, 26000, two);
	T(!memcmp(one, two, sizeof(one)));
	exi_auth_door(key, at, 26001, two);
	T(memcmp(one, two, sizeof(one)));
	at[15] = 1;
	exi_auth_door(key, at, 26000, two);
	T(memcmp(one, two, sizeof(one)));
	at[15] = 0;
	T_EQ(exi_key_open(&open), 0);
	exi_auth_door(open, at, 26000, two);
	T(memcmp(one, two, sizeof(one)));
	exi_key_free(open);
	drop_key();
}

static void everybodys_key_is_for_the_host_at_the_other_end(void)
{
	struct exi_key *open = NULL;
	struct exi_auth before[N_KINDS];
	struct messages all;
	struct end a = end_a(), b = end_b();
	struct sockaddr_storage raw = { .ss_family = AF_UNSPEC };
	struct exi_auth_ends ends = {
		.tcp = &a.tcp,
		.fabric_local = (const struct sockaddr *)&a.local,
		.fabric_local_len = sizeof(a.local),
		.fabric_peer = (const struct sockaddr *)&raw,
		.fabric_peer_len = 34,
	};

	use_key();
	T_EQ(exi_key_open(&open), 0);
	T_EQ(end_init(&a, open, EXI_AUTH_A), -EACCES);
	T_EQ(end_init(&b, open, EXI_AUTH_B), -EACCES);
	T_EQ(exi_auth_init(&a.m, open, EXI_AUTH_A, &ends), -EACCES);
	a.local = b.peer = address("192.0.2.1", 50000);
	a.peer = b.local = address("192.0.2.2", 7471);
	T_EQ(end_init(&a, open, EXI_AUTH_A), 0);
	T_EQ(end_init(&b, open, EXI_AUTH_B), 0);
	meet(&a.m, &b.m, &all, before);
	/* An end that requires a key does not accept the public one. */
	T_EQ(end_init(&b, key, EXI_AUTH_B), 0);
	refuses(&b.m, REQUEST, &all.request, sizeof(all.request),
		-EKEYREJECTED);
	exi_key_free(open);
	drop_key();
}

/* Made by another program, from the words of auth_wire.h. */
static void the_messages_are_what_they_always_were(void)
{
	static const uint8_t request[] = {
		0x78, 0x73, 0x02, 0x01, 0x34, 0x12, 0x00, 0x00, 0x97, 0xc4,
		0x2c, 0x30, 0xa5, 0xde, 0xec, 0xe3, 0xde, 0xcb, 0xaf, 0xd4,
		0x5c, 0x70, 0x3e, 0x6e, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45,
		0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f,
		0x72, 0xa9, 0x0f, 0xbd, 0x6f, 0x3d, 0xde, 0x58, 0x48, 0xc8,
		0x2f, 0xc1, 0x1d, 0xbb, 0x6e, 0xb7
	};
	static const char line[] =
		"exs-key-1 000102030405060708090a0b0c0d0e0f"
		"101112131415161718191a1b1c1d1e1f 97c42c30a5deece3\n";
	char why[EXI_KEY_WHY];
	uint16_t flags;
	struct end b = end_b();

	T_EQ(exi_key_parse(line, sizeof(line) - 1, &key, why), 0);
	T_EQ(end_init(&b, key, EXI_AUTH_B), 0);
	T(!memcmp(b.m.tag, request + 16, sizeof(b.m.tag)));
	T_EQ(exi_auth_take_request(&b.m, request, sizeof(request), &flags), 0);
	T_EQ(flags, 0x1234);
	drop_key();
}

/* Both ends of a meeting make the same record of a direction; nobody else does,
 * nor of the other direction or another epoch. */
static void a_record_of_resuming_is_for_one_direction_of_one_meeting(void)
{
	struct exi_auth_resume a_sends, b_hears, other;
	struct exi_auth before[N_KINDS];
	struct exi_auth_bond ba, bb, later;
	struct messages all;
	struct end a, b;

	use_key();
	ends_begin(&a, &b);
	T_EQ(exi_auth_bond(&a.m, &ba), -EPROTO);
	meet(&a.m, &b.m, &all, before);
	T_EQ(exi_auth_bond(&before[GRANT], &ba), -EPROTO);
	T_EQ(exi_auth_bond(&a.m, &ba), 0);
	T_EQ(exi_auth_bond(&b.m, &bb), 0);
	exi_auth_resume(&ba, true, 3, 0x123456789a, &a_sends);
	exi_auth_resume(&bb, false, 3, 0x123456789a, &b_hears);
	T(!memcmp(&a_sends, &b_hears, sizeof(a_sends)));
	T(!memcmp(a_sends.position, "\x9a\x78\x56\x34\x12\0\0\0", 8));

	exi_auth_resume(&bb, false, 3, 1, &other);
	T(!memcmp(&a_sends.tag, other.tag, sizeof(other.tag)));
	T(memcmp(&a_sends.mac, other.mac, sizeof(other.mac)) != 0);
	exi_auth_resume(&bb, true, 3, 0x123456789a, &other);
	T(memcmp(&a_sends.tag, other.tag, sizeof(other.tag)) != 0);
	exi_auth_resume(&bb, false, 4, 0x123456789a, &other);
	T(memcmp(&a_sends.tag, other.tag, sizeof(other.tag)) != 0);

	ends_begin(&a, &b);
	meet(&a.m, &b.m, &all, before);
	T_EQ(exi_auth_bond(&b.m, &later), 0);
	exi_auth_resume(&later, false, 3, 0x123456789a, &other);
	T(memcmp(&a_sends.tag, other.tag, sizeof(other.tag)) != 0);
	drop_key();
}

#define BURSTS 200000

/* Bytes of chance, most of them with a head that is right. */
static void random_bytes_are_refused(void)
{
	struct t_rng rng = { .state = 20261122 };
	struct exi_auth before[N_KINDS], m;
	struct exi_auth_claim claim;
	struct messages all;
	enum kind kind;
	size_t len, i;
	uint8_t *bytes;

	use_key();
	one_meeting(&all, before);
	for (int burst = 0; burst < BURSTS / t_slow(); burst++) {
		kind = (enum kind)t_below(&rng, N_KINDS);
		len = t_below(&rng, 4) ? sizes[kind] : t_below(&rng, 300);
		bytes = malloc(len ? len : 1);
		T(bytes);
		for (i = 0; i < len; i++)
			bytes[i] = (uint8_t)t_rand(&rng);
		if (len >= 8 && t_below(&rng, 8)) {
			memcpy(bytes, message(&all, kind), 4);
			if (t_below(&rng, 2))
				bytes[6] = bytes[7] = 0;
			else
				bytes[7] = 0;
		}
		/* A real message, from some byte on another. */
		if (len == sizes[kind] && !t_below(&rng, 3)) {
			i = t_below(&rng, len);
			memcpy(bytes, message(&all, kind), i + 1);
			bytes[i] ^= (uint8_t)(1 + t_below(&rng, 255));
		}
		m = before[kind];
		T(take(&m, kind, bytes, len) < 0);
		exi_auth_read_claim(bytes, len, &claim);
		free(bytes);
	}
	drop_key();
}

static void every_error_has_a_reason(void)
{
	T_EQ(exi_auth_reason(exi_auth_why(-EKEYREJECTED)),
	     EXS_X_REASON_KEY_MISMATCH);
	T_EQ(exi_auth_reason(exi_auth_why(-ENOKEY)), EXS_X_REASON_NO_KEY);
	T_EQ(exi_auth_reason(exi_auth_why(-EPROTONOSUPPORT)),
	     EXS_X_REASON_VERSION);
	T_EQ(exi_auth_reason(exi_auth_why(-EACCES)), EXS_X_REASON_REFUSED);
	T_EQ(exi_auth_reason(exi_auth_why(-EBADMSG)), EXS_X_REASON_REFUSED);
	T_EQ(exi_auth_reason(EXI_AUTH_WHY_UNKNOWN), EXS_X_REASON_PLAIN_PEER);
	T_EQ(exi_auth_reason(EXI_AUTH_WHY_BUSY), EXS_X_REASON_TIMEOUT);
	T_EQ(exi_auth_reason(EXI_AUTH_WHY_FABRIC), EXS_X_REASON_NO_PROVIDER);
}

int main(int argc, char **argv)
{
	static const struct t_row rows[] = {
		T_ROW(two_ends_with_one_key_meet),
		T_ROW(what_does_not_fit_is_not_sent),
		T_ROW(every_flipped_bit_is_refused),
		T_ROW(a_holder_of_the_key_is_checked_too),
		T_ROW(every_other_length_is_refused),
		T_ROW(another_version_says_so),
		T_ROW(no_message_is_taken_for_another),
		T_ROW(nothing_can_be_reflected),
		T_ROW(a_replay_gets_an_answer_and_no_further),
		T_ROW(a_message_for_other_ends_is_refused),
		T_ROW(the_ends_are_the_same_however_they_are_written),
		T_ROW(fabrics_have_addresses_of_their_own),
		T_ROW(who_has_another_key_is_told_apart_from_a_liar),
		T_ROW(tags_name_a_connection_for_holders_of_the_key),
		T_ROW(calls_out_of_turn_do_nothing),
		T_ROW(nothing_is_revealed_before_the_proof),
		T_ROW(a_refusal_proves_itself_where_it_can),
		T_ROW(a_redirect_is_checked_before_it_is_passed_on),
		T_ROW(ports_have_names_for_holders_of_the_key),
		T_ROW(everybodys_key_is_for_the_host_at_the_other_end),
		T_ROW(a_record_of_resuming_is_for_one_direction_of_one_meeting),
		T_ROW(the_messages_are_what_they_always_were),
		T_ROW(random_bytes_are_refused),
		T_ROW(every_error_has_a_reason),
	};

	return t_run("auth", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
