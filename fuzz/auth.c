/* SPDX-License-Identifier: BSD-2-Clause */
/* core/trust/auth.c: a handshake in which the input changes one message, cuts
 * it, or replaces it. A changed message is refused, an unchanged one is
 * accepted; and every function that takes a message gets any bytes, in every
 * state. */
#include "core/trust/auth.h"

#include <errno.h>
#include <netinet/in.h>

#include "core/base/proof.h"
#include "fuzz/fuzz.h"

enum step {
	REQUEST,
	ANSWER,
	CONFIRM,
	GRANT,
	REJECT,
	REDIRECT,
	ANYTHING,
	N_STEPS,
};

static struct exi_key *key, *other;
static struct exi_tuple tuple[2];
static struct sockaddr_in addr[2];

static struct exi_auth_ends ends(int i)
{
	return (struct exi_auth_ends){
		.tcp = &tuple[i],
		.fabric_local = (struct sockaddr *)&addr[i],
		.fabric_local_len = sizeof(addr[i]),
		.fabric_peer = (struct sockaddr *)&addr[1 - i],
		.fabric_peer_len = sizeof(addr[i]),
	};
}

static void setup(void)
{
	if (key)
		return;
	FUZZ_TRUE(exi_key_new(&key) == 0 && exi_key_new(&other) == 0);
	tuple[0].local[15] = tuple[1].peer[15] = 1;
	tuple[0].peer[15] = tuple[1].local[15] = 2;
	tuple[0].local_port = tuple[1].peer_port = 1000;
	tuple[0].peer_port = tuple[1].local_port = 80;
	addr[0].sin_family = addr[1].sin_family = AF_INET;
	addr[0].sin_addr.s_addr = htonl(0x0a000001);
	addr[1].sin_addr.s_addr = htonl(0x0a000002);
}

/* A message on its way. */
struct way {
	struct fuzz_in *in;
	enum step step;
	uint8_t bytes[512];
	size_t len;
	bool changed, replaced;
};

static void touch(struct way *w, size_t len)
{
	size_t i, n;

	switch (fuzz_byte(w->in) & 3) {
	case 0: /* from the beginning */
		for (i = 0; i < len && w->in->left; i++)
			w->bytes[i] ^= fuzz_byte(w->in);
		break;
	case 1: /* anywhere */
		while (w->in->left) {
			i = fuzz_below(w->in, (uint32_t)len);
			w->bytes[i] ^= fuzz_byte(w->in);
		}
		break;
	case 2:
		n = w->in->left < 300 ? w->in->left : 300;
		fuzz_copy(w->in, w->bytes, n);
		w->len = n;
		w->replaced = true;
		break;
	default:
		if (w->in->left)
			w->len = fuzz_byte(w->in) % (len + 1);
	}
}

static void carry(struct way *w, enum step step, const void *m, size_t len)
{
	memcpy(w->bytes, m, len);
	w->len = len;
	w->changed = w->replaced = false;
	if (w->step != step)
		return;
	touch(w, len);
	w->changed = w->len != len || memcmp(w->bytes, m, len);
}

/* Any bytes, to any taker. */
static void say_anything(struct exi_auth *a, struct exi_auth *b,
			 struct fuzz_in *in)
{
	uint8_t *raw = malloc(in->left + 1);
	struct exi_auth_refusal refusal;
	struct exi_auth_payload got;
	struct exi_auth_claim claim;
	size_t n = in->left;
	uint16_t flags;

	FUZZ_TRUE(raw);
	fuzz_copy(in, raw, n);
	exi_auth_read_claim(raw, n, &claim);
	exi_auth_take_answer(a, raw, n, &got);
	exi_auth_take_grant(a, raw, n, &got);
	exi_auth_take_reject(a, raw, n, &refusal);
	exi_auth_take_request(b, raw, n, &flags);
	exi_auth_take_confirm(b, raw, n, &got);
	exi_auth_check_redirect(b, raw, n);
	free(raw);
}

/* True: the handshake goes on. */
static bool taken(const struct way *w, int err)
{
	FUZZ_TRUE(!err == !w->changed);
	return !err;
}

static void refuse(struct exi_auth *a, struct exi_auth *b, struct way *w)
{
	struct exi_auth_refusal no = { .why = EXI_AUTH_WHY_BUSY, .port = 99 };
	struct exi_auth_refusal heard;
	struct exi_auth_reject out;
	int err;

	if (w->step == REDIRECT)
		no.why = EXI_AUTH_WHY_REDIRECT;
	exi_auth_reject(b, &no, &out);
	carry(w, w->step, &out, sizeof(out));
	err = exi_auth_take_reject(a, w->bytes, w->len, &heard);
	if (err)
		FUZZ_TRUE(w->changed);
	else
		FUZZ_TRUE(heard.proved ? !w->changed : !heard.port);
}

static void same_bond(struct exi_auth *a, struct exi_auth *b)
{
	struct exi_auth_bond bond[2];
	struct exi_auth_resume r[2];

	FUZZ_TRUE(exi_auth_bond(a, &bond[0]) == 0);
	FUZZ_TRUE(exi_auth_bond(b, &bond[1]) == 0);
	exi_auth_resume(&bond[0], true, 7, 12345, &r[0]);
	exi_auth_resume(&bond[1], false, 7, 12345, &r[1]);
	FUZZ_TRUE(!memcmp(&r[0], &r[1], sizeof(r[0])));
}

static void meet(struct exi_auth *a, struct exi_auth *b, struct way *w)
{
	struct exi_auth_payload p = { .flags = 3, .len = 10 }, got;
	struct exi_auth_request request;
	struct exi_auth_answer answer;
	struct exi_auth_proof proof;
	struct exi_auth_claim claim;
	uint16_t flags;
	int err;

	FUZZ_TRUE(exi_auth_request(a, 5, &request) == 0);
	carry(w, REQUEST, &request, sizeof(request));
	exi_auth_read_claim(w->bytes, w->len, &claim);
	err = exi_auth_take_request(b, w->bytes, w->len, &flags);
	/* A replayed REQUEST is taken, as security.md says: a fuzzer learns
	 * them from what is compared. */
	if ((w->replaced && !err) || !taken(w, err))
		return;
	if (w->step == REJECT || w->step == REDIRECT)
		return refuse(a, b, w);
	FUZZ_TRUE(exi_auth_answer(b, &p, &answer) == 0);
	carry(w, ANSWER, &answer, sizeof(answer));
	if (!taken(w, exi_auth_take_answer(a, w->bytes, w->len, &got)))
		return;
	FUZZ_TRUE(exi_auth_confirm(a, &p, &proof) == 0);
	carry(w, CONFIRM, &proof, sizeof(proof));
	if (!taken(w, exi_auth_take_confirm(b, w->bytes, w->len, &got)))
		return;
	FUZZ_TRUE(exi_auth_grant(b, &p, &proof) == 0);
	carry(w, GRANT, &proof, sizeof(proof));
	if (taken(w, exi_auth_take_grant(a, w->bytes, w->len, &got)))
		same_bond(a, b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	uint8_t first = fuzz_byte(&in);
	struct way w = { .in = &in, .step = first % N_STEPS };
	bool stranger = w.step == ANYTHING && first & 128;
	struct exi_auth_ends at[2];
	struct exi_auth a, b;

	setup();
	at[0] = ends(0);
	at[1] = ends(1);
	FUZZ_TRUE(exi_auth_init(&a, stranger ? other : key, EXI_AUTH_A,
				&at[0]) == 0);
	FUZZ_TRUE(exi_auth_init(&b, key, EXI_AUTH_B, &at[1]) == 0);
	if (w.step == ANYTHING)
		say_anything(&a, &b, &in);
	else
		meet(&a, &b, &w);
	exi_auth_fini(&a);
	exi_auth_fini(&b);
	return 0;
}
