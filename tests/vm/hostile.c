/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer that holds the key, and lies over the queue pair: after it was met, or
 * instead of its proof. It is our own library with its hand on the queue pair.
 * It may break its own connection, and not another one of the same process, on
 * the same queues. Needs the emulated machine. */
#include <dlfcn.h>
#include <endian.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/fabric/provider.h"
#include "core/meet/pair.h"
#include "core/rma/wire.h"
#include "providers/verbs/verbs_wire.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"
#include "tests/vm/qp.h"

static const struct t_want on_verbs = { "verbs", EXS_X_REASON_NONE };

struct lie {
	const char *name;
	struct exi_rma_msg m;
	uint32_t len;	/* of the message; 0: its header and what it says */
	uint32_t times; /* 0: once */
	bool as_note;	/* m.note, by a write of nothing on RoCE */
	bool harmless;
	struct exi_pair_msg pair; /* if it has a magic, it follows */
};

/* A message of the pair link, forged. */
#define PAIR_OF(v, t, ...)                                                     \
	.m = { .kind = EXI_RMA_TELL, .extra = sizeof(struct exi_pair_msg) },   \
	.pair = { .magic = EXI_PAIR_MAGIC,                                     \
		  .version = (v),                                              \
		  .type = (t),                                                 \
		  __VA_ARGS__ }
#define PAIR(...) PAIR_OF(EXI_PAIR_VERSION, __VA_ARGS__)

static const struct lie lies[] = {
	{ "no kind", { .kind = 0 } },
	{ "a kind that is not known", { .kind = 77 } },
	{ "half a header", { .kind = EXI_RMA_CREDIT }, .len = 20 },
	{ "one byte", { .kind = EXI_RMA_CREDIT }, .len = 1 },
	{ "more than it says",
	  { .kind = EXI_RMA_TELL, .extra = 8 },
	  .len = 60 },
	{ "less than it says",
	  { .kind = EXI_RMA_TELL, .extra = 200 },
	  .len = 60 },
	{ "fewer bytes than it says",
	  { .kind = EXI_RMA_BYTES, .extra = 200 },
	  .len = EXI_RMA_BRIEF + 64 },
	{ "bytes of which there are none",
	  { .kind = EXI_RMA_BYTES },
	  .len = EXI_RMA_BRIEF },
	{ "half a brief header",
	  { .kind = EXI_RMA_BYTES },
	  .len = EXI_RMA_BRIEF / 2 },
	{ "bytes after END", { .kind = EXI_RMA_END, .extra = 4 } },
	{ "bytes after ACK", { .kind = EXI_RMA_ACK, .extra = 4 } },
	{ "credits for what was not sent",
	  { .kind = EXI_RMA_CREDIT, .credits = 1u << 20 } },
	{ "credits that shrink",
	  { .kind = EXI_RMA_CREDIT, .credits = 1u << 31 } },
	{ "END of another stream", { .kind = EXI_RMA_END, .seq = 12345 } },
	{ "an ADVERT of no bytes", { .kind = EXI_RMA_ADVERT, .addr = 1 } },
	{ "an ADVERT of a phase to come",
	  { .kind = EXI_RMA_ADVERT, .phase = 9, .note = 100 } },
	{ "ACK of what was not sent",
	  { .kind = EXI_RMA_ACK, .seq = 1u << 24 } },
	{ "REVOKE of an odd phase", { .kind = EXI_RMA_REVOKE, .phase = 7 } },
	{ "CONFIRM again", { .kind = EXI_RMA_CONFIRM, .extra = 256 } },
	{ "READY again", { .kind = EXI_RMA_READY, .extra = 256 } },
	{ "more bytes than the ring has",
	  { .kind = EXI_RMA_NOTE, .note = 1u << 29 },
	  .as_note = true },
	{ "bytes for no advert",
	  { .kind = EXI_RMA_NOTE, .note = EXI_RMA_NOTE_DIRECT << 30 | 10 },
	  .as_note = true },
	{ "a note of kind 2",
	  { .kind = EXI_RMA_NOTE, .note = 2u << 30 | 10 },
	  .as_note = true },
	{ "a note of kind 3",
	  { .kind = EXI_RMA_NOTE, .note = 3u << 30 },
	  .as_note = true },
	{ "TELL of nothing that is known",
	  { .kind = EXI_RMA_TELL, .extra = 96 } },
	{ "TELL of many bytes", { .kind = EXI_RMA_TELL, .extra = 472 } },
	{ "a NOTE of more bytes than follow",
	  { .kind = EXI_RMA_NOTE, .extra = 50, .note = 100 } },
	{ "a NOTE of fewer bytes than follow",
	  { .kind = EXI_RMA_NOTE, .extra = 50, .note = 10 } },
	{ "a NOTE of bytes for an advert, which follow",
	  { .kind = EXI_RMA_NOTE,
	    .extra = 50,
	    .note = EXI_RMA_NOTE_DIRECT << 30 | 50 } },
	{ "an ADVERT that wraps",
	  { .kind = EXI_RMA_ADVERT, .addr = UINT64_MAX - 5, .note = 100 } },
	{ "an ADVERT of the phase before, from another place",
	  { .kind = EXI_RMA_ADVERT, .seq = 12345, .addr = 1, .note = 100 },
	  .harmless = true },
	{ "ACK of what was before the stream",
	  { .kind = EXI_RMA_ACK, .seq = UINT32_MAX } },
	{ "a HELLO of those that have met", PAIR(EXI_PAIR_HELLO) },
	{ "an OFFER of another fabric", PAIR(EXI_PAIR_OFFER, .a = 1) },
	{ "an ANSWER to no OFFER", PAIR(EXI_PAIR_ANSWER, .a = 1) },
	{ "that the fabric has met", PAIR(EXI_PAIR_MET) },
	{ "NO where bytes move", PAIR(EXI_PAIR_NO, .a = 1) },
	{ "SWITCH of what was switched", PAIR(EXI_PAIR_SWITCH, .a = 1) },
	{ "SWITCH of an epoch to come",
	  PAIR(EXI_PAIR_SWITCH, .a = UINT64_MAX, .b = UINT64_MAX) },
	{ "DOWN_ACK of no DOWN", PAIR(EXI_PAIR_DOWN_ACK) },
	{ "TAKEBACK of an epoch to come", PAIR(EXI_PAIR_TAKEBACK, .a = 77) },
	{ "TAKEBACK of bytes that were not sent",
	  PAIR(EXI_PAIR_TAKEBACK, .a = 1, .b = 1u << 30) },
	{ "TAKEBACK of half a record",
	  PAIR(EXI_PAIR_TAKEBACK, .a = 1, .c = 8) },
	{ "a type that the pair link has not", PAIR(EXI_PAIR_TYPE_MAX) },
	{ "the pair link of another version",
	  PAIR_OF(EXI_PAIR_VERSION + 1, EXI_PAIR_GO) },
	{ "TAKEN of an epoch to come", PAIR(EXI_PAIR_TAKEN, .a = 77),
	  .times = 8, .harmless = true },
	{ "GO again", PAIR(EXI_PAIR_GO), .times = 8, .harmless = true },
	{ "UP of what is up", PAIR(EXI_PAIR_UP), .times = 8, .harmless = true },
	{ "FINSEEN of no known kind", PAIR(EXI_PAIR_FINSEEN, .a = 77),
	  .times = 8, .harmless = true },
	{ "bells",
	  { .kind = EXI_RMA_TELL, .extra = 1 },
	  .times = 8,
	  .harmless = true },
	{ "idle talk",
	  { .kind = EXI_RMA_CREDIT },
	  .times = 8,
	  .harmless = true },
};

/* --- the liar ----------------------------------------------------------- */

/* Credits are counted from what was received, which the liar does not know: the
 * ones it claims are those that its library would, or wild. */
static uint32_t honest_credits;

static void post(struct ibv_qp *qp, struct ibv_sge *sge, const struct lie *l)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = UINT64_MAX, /* of no connection */
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SOLICITED,
	};

	if (l->as_note &&
	    qp->context->device->transport_type == IBV_TRANSPORT_IB) {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htobe32(l->m.note);
		wr.num_sge = 0;
	}
	/* A victim that broke off is one that noticed; then our library has let
	 * go of the queue pair, too. */
	if (!vm_qp_hold(qp))
		return;
	(void)ibv_post_send(qp, &wr, &bad);
	vm_qp_let_go();
}

static void tell_lie(const struct lie *l)
{
	static unsigned char bytes[1024];
	static struct ibv_mr *mr; /* of all: they share a net */
	struct ibv_qp *qp = vm_last_qp();
	struct exi_rma_msg m = l->m;
	struct ibv_sge sge = { .addr = (uintptr_t)bytes,
			       .length = l->len ? l->len
						: sizeof(m) + l->m.extra };

	if (!mr)
		mr = ibv_reg_mr(qp->pd, bytes, sizeof(bytes),
				IBV_ACCESS_LOCAL_WRITE);
	T(mr && mr->pd == qp->pd);
	sge.lkey = mr->lkey;
	memset(bytes, 0xa5, sizeof(bytes));
	if (!m.credits)
		m.credits = honest_credits;
	m.extra = htole16(m.extra);
	memcpy(bytes, &m, sizeof(m));
	if (l->pair.magic)
		memcpy(bytes + sizeof(m), &l->pair, sizeof(l->pair));
	for (uint32_t i = 0; i < (l->times ? l->times : 1); i++)
		post(qp, &sge, l);
}

/* What our own library sends tells how many it has received. */
static _Atomic int proof_lie = -1; /* what the first message is instead */

static void change(struct ibv_send_wr *wr)
{
	struct exi_rma_msg *m;

	for (; wr; wr = wr->next) {
		if (wr->opcode != IBV_WR_SEND || wr->wr_id == UINT64_MAX)
			continue;
		m = (struct exi_rma_msg *)(uintptr_t)wr->sg_list->addr;
		honest_credits = m->credits;
		if (proof_lie < 0 ||
		    (m->kind != EXI_RMA_CONFIRM && m->kind != EXI_RMA_READY))
			continue;
		if (proof_lie == 0)
			((unsigned char *)(m + 1))[20] ^= 1; /* in its MAC */
		else
			m->kind = (uint8_t)proof_lie;
	}
}

static int post_changed(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad)
{
	change(wr);
	return vm_qp_post(qp, wr, bad);
}

static void stand_between(struct ibv_qp *qp)
{
	vm_qp_stand_between(qp, post_changed);
}

static void lie_to(const struct t_addr *at, int ctl, const struct lie *l)
{
	int s = t_connect(at);

	t_expect(ctl, 3); /* who has not accepted knows of nothing */
	t_settle(s, on_verbs);
	t_expect(ctl, 1);
	tell_lie(l);
	t_expect(ctl, 2);
	t_close(s);
}

static void liar(int ctl, void *arg)
{
	struct t_addr at;

	vm_qp_made = stand_between;
	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	for (size_t i = 0; i < T_COUNT(lies); i++)
		do
			lie_to(&at, ctl, &lies[i]);
		while (t_ask(ctl));
}

#define AGAIN 40

static void liar_again(int ctl, void *arg)
{
	struct t_addr at;

	vm_qp_made = stand_between;
	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	for (int i = 0; i < AGAIN; i++)
		lie_to(&at, ctl, &lies[0]);
}

#define FLOODS 20
#define FLOOD  200 /* messages: more than the queue of two connections has */

/* With one call, for our own library gives up with the first credit that it did
 * not wait for. */
static void post_flood(void)
{
	static unsigned char bytes[sizeof(struct exi_rma_msg)];
	static struct ibv_mr *mr; /* of all: they share a net */
	struct exi_rma_msg m = { .kind = EXI_RMA_CREDIT,
				 .credits = honest_credits };
	struct ibv_qp *qp = vm_last_qp();
	struct ibv_sge sge = { .addr = (uintptr_t)bytes,
			       .length = sizeof(bytes) };
	struct ibv_send_wr wr[FLOOD] = { 0 }, *bad;

	if (!mr)
		mr = ibv_reg_mr(qp->pd, bytes, sizeof(bytes),
				IBV_ACCESS_LOCAL_WRITE);
	T(mr && mr->pd == qp->pd);
	sge.lkey = mr->lkey;
	memcpy(bytes, &m, sizeof(m));
	for (int i = 0; i < FLOOD; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = UINT64_MAX,
			.next = i + 1 < FLOOD ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SOLICITED,
		};
	T(vm_qp_hold(qp));
	T_EQ(ibv_post_send(qp, wr, &bad), 0);
	vm_qp_let_go();
}

static void flooder(int ctl, void *arg)
{
	struct t_addr at;
	int s;

	vm_qp_made = stand_between;
	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	for (int i = 0; i < FLOODS; i++) {
		s = t_connect(&at);
		t_expect(ctl, 3);
		t_settle(s, on_verbs);
		t_expect(ctl, 1);
		post_flood();
		t_expect(ctl, 2);
		t_close(s);
	}
}

/* --- the victim --------------------------------------------------------- */

/* A device without a buffer for a message has it repeated, as InfiniBand's; an
 * iWARP one ends the connection that it came by. */
static bool repeats(void)
{
	return vm_last_qp()->context->device->transport_type ==
	       IBV_TRANSPORT_IB;
}

static void honest(int ctl, void *arg)
{
	struct t_addr at;
	uint64_t round;
	bool stays;
	int s;

	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	s = t_connect(&at);
	t_expect(ctl, 3);
	t_settle(s, on_verbs);
	stays = repeats();
	while ((round = t_ask(ctl))) {
		t_send_stream(s, round, 0, 20000, 3000);
		t_recv_stream(s, round + 1, 0, 20000, 3000);
		t_tell(ctl, round);
	}
	T(!stays || t_is(s, on_verbs));
	t_close(s);
}

static void goes_on(int s, int ctl, uint64_t round)
{
	t_tell(ctl, round);
	t_recv_stream(s, round, 0, 20000, 3000);
	t_send_stream(s, round + 1, 0, 20000, 3000);
	t_expect(ctl, round);
	T_MSG(t_is(s, on_verbs), "%s", t_where(s));
}

/* Nothing moves any more, and the first call that cannot says why. What is said
 * to the sender is looked at when something is to be sent. */
static bool moves(int s)
{
	char byte;
	ssize_t n = t_recv(s, &byte, 1, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		n = t_send(s, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n == 1 || (n < 0 && errno == EAGAIN);
}

static int why_broken(int s)
{
	struct t_deadline d;
	char byte;
	int why;

	T_UNTIL(!moves(s));
	T_EQ(errno, ECONNRESET);
	while (t_recv(s, &byte, 1, 0) < 0)
		T_EQ(errno, ECONNRESET);
	do
		T_FAILS(t_send(s, "x", 1, MSG_NOSIGNAL), ECONNRESET, EPIPE);
	while (errno != EPIPE);
	d = t_deadline_ms(20000);
	while ((why = t_info(s).exs_x_reason) != EXS_X_REASON_PROTOCOL &&
	       why != EXS_X_REASON_PEER_LOST)
		T_MSG(t_tick(&d), "%s", exs_x_reason_name(why));
	return why;
}

static int begin(struct t_peer *good, struct t_peer *bad,
		 void (*f)(int ctl, void *arg), int *ret_good)
{
	struct t_addr at;
	int l;

	t_peer_start(good, honest, NULL);
	t_peer_start(bad, f, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(good->ctl, (uint64_t)t_port_of(l));
	*ret_good = t_accept(l);
	t_tell(good->ctl, 3);
	t_settle(*ret_good, on_verbs);
	t_tell(bad->ctl, (uint64_t)t_port_of(l));
	return l;
}

static void finish(struct t_peer *good, struct t_peer *bad, int g, int l)
{
	t_peer_join(bad);
	t_tell(good->ctl, 0);
	t_recv_end(g);
	t_peer_join(good);
	t_close(g);
	t_close(l);
}

/* A liar's own library knows nothing of the lie, and may leave before the lie
 * is read, because of what its device says of it: then the peer was lost, and
 * the lie is told again. */
#define LIES_AT_MOST 4

static void every_lie_breaks_the_liars_connection_only(void)
{
	struct t_peer good, bad;
	int g, s, l = begin(&good, &bad, liar, &g), why = 0, times = 0;

	for (size_t i = 0; i < T_COUNT(lies); i += !times) {
		t_note("lie: %s", lies[i].name);
		s = t_accept(l);
		t_tell(bad.ctl, 3);
		t_settle(s, on_verbs);
		t_tell(bad.ctl, 1);
		if (!lies[i].harmless)
			why = why_broken(s);
		goes_on(g, good.ctl, 2 * i + 2);
		if (lies[i].harmless)
			T_MSG(t_is(s, on_verbs), "%s", t_where(s));
		t_tell(bad.ctl, 2);
		t_close(s);
		times = !lies[i].harmless && why == EXS_X_REASON_PEER_LOST
				? times + 1
				: 0;
		T(times < LIES_AT_MOST);
		t_tell(bad.ctl, times > 0);
	}
	finish(&good, &bad, g, l);
}

static void *receive(void *arg)
{
	char byte;

	T_FAILS(t_recv(*(int *)arg, &byte, 1, 0), ECONNRESET);
	return NULL;
}

/* Each direction says it once, also to who looks while the library finds that
 * the link is over. */
static void both_directions_are_told(void)
{
	struct t_peer good, bad;
	int g, s, l = begin(&good, &bad, liar_again, &g);
	pthread_t t;
	char byte;

	for (int i = 0; i < AGAIN; i++) {
		t_note("time %d", i);
		s = t_accept(l);
		t_tell(bad.ctl, 3);
		t_settle(s, on_verbs);
		T_EQ(pthread_create(&t, NULL, receive, &s), 0);
		t_tell(bad.ctl, 1);
		while (t_info(s).exs_x_paired)
			;
		T_FAILS(t_send(s, "x", 1, MSG_NOSIGNAL), ECONNRESET);
		T_FAILS(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
		T_EQ(pthread_join(t, NULL), 0);
		T_EQ(t_recv(s, &byte, 1, 0), 0);
		t_tell(bad.ctl, 2);
		t_close(s);
	}
	finish(&good, &bad, g, l);
}

static void liar_before_proof(int ctl, void *arg)
{
	struct t_addr at;
	int s;

	vm_qp_made = stand_between;
	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	/* 0 is a proof that does not hold. */
	for (int kind = 0; kind <= EXI_RMA_TELL + 1; kind++) {
		proof_lie = kind;
		if (kind == EXI_RMA_CONFIRM)
			continue;
		s = t_connect(&at);
		t_expect(ctl, 3);
		t_send_stream(s, 3, 0, 20000, 3000);
		t_recv_stream(s, 4, 0, 20000, 3000);
		T_UNTIL(t_info(s).exs_x_reason != EXS_X_REASON_UNDECIDED);
		T(t_is(s, T_TCP(T_ANY)));
		t_send_stream(s, 5, 0, 20000, 3000);
		t_close(s);
	}
}

static void what_comes_instead_of_a_proof_leaves_tcp_untouched(void)
{
	struct t_peer good, bad;
	int g, s, l = begin(&good, &bad, liar_before_proof, &g);

	for (int kind = 0; kind <= EXI_RMA_TELL + 1; kind++) {
		if (kind == EXI_RMA_CONFIRM)
			continue;
		t_note("instead of the proof: %d", kind);
		s = t_accept(l);
		t_tell(bad.ctl, 3);
		t_recv_stream(s, 3, 0, 20000, 3000);
		t_send_stream(s, 4, 0, 20000, 3000);
		t_recv_stream(s, 5, 0, 20000, 3000);
		T(t_is(s, T_TCP(T_ANY)));
		t_recv_end(s);
		goes_on(g, good.ctl, 2 * (uint64_t)kind + 2);
		t_close(s);
	}
	finish(&good, &bad, g, l);
}

/* --- what rdma_cm carries ------------------------------------------------- */

/* What is wrong with REQUEST or ANSWER. 0: it is empty; 1: it is shorter; 2: it
 * is longer; then a bit of every fifth byte is changed. */
static _Atomic int letter_lie = -1;
#define LETTER_LIES (3 + 50 / 5)

static struct rdma_conn_param *changed(const struct rdma_conn_param *p)
{
	static unsigned char bytes[256];
	static struct rdma_conn_param ret;

	ret = *p;
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, p->private_data, p->private_data_len);
	ret.private_data = bytes;
	if (letter_lie == 0)
		ret.private_data_len = 0;
	else if (letter_lie == 1)
		ret.private_data_len = 24; /* no MAC; zeros end ANSWER anyway */
	else if (letter_lie == 2)
		ret.private_data_len++;
	else if (letter_lie > 2)
		bytes[5 * (letter_lie - 3)] ^= 0x10;
	return &ret;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *);

	*(void **)&next =
		dlsym(dlopen("librdmacm.so.1", RTLD_NOW), "rdma_connect");
	return next(id, changed(p));
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *);

	*(void **)&next =
		dlsym(dlopen("librdmacm.so.1", RTLD_NOW), "rdma_accept");
	return next(id, changed(p));
}

static void tcp_is_untouched(int s, bool asks)
{
	t_send_stream(s, 3, 0, 20000, 3000);
	t_recv_stream(s, 3, 0, 20000, 3000);
	/* The accepting end may not have learned of it. */
	T_UNTIL(!asks || t_info(s).exs_x_reason != EXS_X_REASON_UNDECIDED);
	t_send_stream(s, 4, 0, 20000, 3000);
	t_recv_stream(s, 4, 0, 20000, 3000);
	T_MSG(!strcmp(t_info(s).exs_x_tx_fabric, "tcp"), "%s", t_where(s));
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
}

static void lies_by_letter(int ctl, void *arg)
{
	struct t_addr at, mine;
	int l;

	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	l = t_listener(T_IPV4, &mine);
	t_tell(ctl, (uint64_t)t_port_of(l));
	for (int i = 0; i < LETTER_LIES; i++) {
		letter_lie = i;
		tcp_is_untouched(t_connect(&at), true);
		tcp_is_untouched(t_accept(l), false);
	}
	t_close(l);
}

static void a_request_or_an_answer_that_lies_leaves_tcp_untouched(void)
{
	struct t_peer good, bad;
	int g, l = begin(&good, &bad, lies_by_letter, &g);
	struct t_addr at = t_loopback(T_IPV4, (int)t_ask(bad.ctl));

	for (int i = 0; i < LETTER_LIES; i++) {
		t_note("letter %d", i);
		tcp_is_untouched(t_accept(l), false);
		tcp_is_untouched(t_connect(&at), true);
		goes_on(g, good.ctl, 2 * (uint64_t)i + 2);
	}
	finish(&good, &bad, g, l);
}

/* In front of the C library's, for where the liar's library goes on over
 * TCP. */
static _Atomic bool spoils;

ssize_t send(int s, const void *buf, size_t len, int flags)
{
	ssize_t (*next)(int, const void *, size_t, int);
	unsigned char record[EXI_RESUME];

	*(void **)&next = dlsym(RTLD_NEXT, "send");
	if (!spoils || len != sizeof(record))
		return next(s, buf, len, flags);
	memcpy(record, buf, len);
	record[len - 1] ^= 1;
	return next(s, record, len, flags);
}

/* Rings before it, so that the receiver has acknowledged some of it. */
#define BEFORE 300000

static void liar_who_goes_on(int ctl, void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct t_addr at;
	int s;

	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	s = t_connect(&at);
	t_expect(ctl, 3);
	t_settle(s, on_verbs);
	t_send_stream(s, 3, 0, BEFORE, 30000);
	t_expect(ctl, 1);
	spoils = true;
	T_EQ(ibv_modify_qp(vm_last_qp(), &attr, IBV_QP_STATE), 0);
	T_UNTIL(!moves(s) || t_info(s).exs_x_reason != EXS_X_REASON_NONE);
	t_expect(ctl, 2);
	t_close(s);
}

/* The record of where the stream goes on is none: also when nobody receives as
 * the library finds that, both directions are told. */
static void who_goes_on_without_a_record_is_broken(void)
{
	struct t_peer good, bad;
	int g, s, l = begin(&good, &bad, liar_who_goes_on, &g);
	char byte;

	s = t_accept(l);
	t_tell(bad.ctl, 3);
	t_settle(s, on_verbs);
	t_recv_stream(s, 3, 0, BEFORE, 30000);
	t_tell(bad.ctl, 1);
	T_UNTIL(t_info(s).exs_x_reason == EXS_X_REASON_PROTOCOL);
	T_FAILS(t_recv(s, &byte, 1, 0), ECONNRESET);
	T_EQ(t_recv(s, &byte, 1, 0), 0);
	T_FAILS(t_send(s, "x", 1, MSG_NOSIGNAL), ECONNRESET);
	T_FAILS(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_tell(bad.ctl, 2);
	t_close(s);
	finish(&good, &bad, g, l);
}

/* They empty the queue of buffers that both connections share. Where that ends
 * the other one's queue pair its bytes go on over TCP. */
static void floods_lose_no_byte_of_others(void)
{
	struct t_peer good, bad;
	int g, s, l = begin(&good, &bad, flooder, &g);
	bool stays = repeats();

	for (int i = 0; i < FLOODS; i++) {
		uint64_t round = 2 * (uint64_t)i + 2;

		t_note("flood %d", i);
		s = t_accept(l);
		t_tell(bad.ctl, 3);
		t_settle(s, on_verbs);
		t_tell(good.ctl, round);
		t_tell(bad.ctl, 1);
		t_recv_stream(g, round, 0, 20000, 3000);
		t_send_stream(g, round + 1, 0, 20000, 3000);
		t_expect(good.ctl, round);
		T_MSG(!stays || t_is(g, on_verbs), "%s", t_where(g));
		t_tell(bad.ctl, 2);
		t_close(s);
	}
	finish(&good, &bad, g, l);
}

static const struct t_row rows[] = {
	T_ROW_LONG(every_lie_breaks_the_liars_connection_only, 400),
	T_ROW_LONG(both_directions_are_told, 300),
	T_ROW_LONG(what_comes_instead_of_a_proof_leaves_tcp_untouched, 300),
	T_ROW_LONG(a_request_or_an_answer_that_lies_leaves_tcp_untouched, 300),
	T_ROW_LONG(who_goes_on_without_a_record_is_broken, 120),
	T_ROW_LONG(floods_lose_no_byte_of_others, 300),
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "verbs,tcp", 1);
	setenv("EXS_RING_KB", "64", 1);
	/* Each lie is worth an error: not here. */
	setenv("EXS_LOG", "off", 0);
	return t_run("hostile", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
