/* SPDX-License-Identifier: BSD-2-Clause */
/* core/rma: messages and notes of a peer on another host, through the link and
 * the engines, to a connection that sends, receives, lends buffers, moves and
 * fails. The device only reads the bytes of each post, and counts it. */
#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/rma/conn.h"
#include "core/rma/engine.h"
#include "core/rma/fail.h"
#include "core/rma/link.h"
#include "core/rma/meet.h"
#include "core/rma/place.h"
#include "core/rma/post.h"
#include "core/rma/rma.h"
#include "core/rma/wire.h"
#include "fuzz/device.h"
#include "fuzz/fuzz.h"

#define BUF   70000
#define RING  16384u
#define LOANS EXI_STREAM_RECVS

static char buf[BUF];
static struct exi_rma_net net;
static struct exi_rma_link *the_link;

/* --- the device --------------------------------------------------------- */

static int reg(struct exi_rma_net *n, void *addr, size_t len,
	       enum exi_rma_access access, struct exi_rma_mr *ret)
{
	*ret = (struct exi_rma_mr){ .handle = addr, .key = 7 };
	return 0;
}

static void dereg(struct exi_rma_mr *m)
{
}

static int post(struct exi_rma_link *l, const struct exi_rma_req *r,
		unsigned int n)
{
	unsigned int i, k, sum = 0;

	if (l->posted - atomic_load(&l->done) + n > EXI_RMA_SEND_DEPTH)
		return -EAGAIN;
	for (i = 0; i < n; i++) {
		const unsigned char *from = r[i].from;

		for (k = 0; k < r[i].len; k++)
			sum += from[k];
		l->posted++;
	}
	/* A device reads what it sends. */
	__asm__("" : : "r"(sum));
	return 0;
}

static int take(struct exi_rma_net *n)
{
	return 0;
}

static void reap(struct exi_rma_net *n)
{
	atomic_store(&the_link->done, the_link->posted);
}

static void request(struct exi_rma_net *n)
{
}

static void on_link(struct exi_rma_link *l)
{
}

static void each_net(void (*f)(struct exi_rma_net *n))
{
	f(&net);
}

static void each_link(struct exi_rma_net *n, void (*f)(struct exi_rma_link *l))
{
	f(the_link);
}

static void proof(struct exi_rma_link *l, const struct exi_rma_msg *m,
		  const void *extra, uint32_t len)
{
	if (l->meeting)
		exi_rma_meet_fail(l, 1, "no proof");
	else
		exi_rma_link_fail(l, -EPROTO, "a proof again");
}

static const struct exi_provider provider = {
	.name = "device",
	.remote_ops = &exi_rma_remote_ops,
};

const struct exi_rma_fabric exi_rma_fabric = {
	.provider = &provider,
	.link_size = sizeof(struct exi_rma_link),
	.reg = reg,
	.dereg = dereg,
	.post = post,
	.take = take,
	.reap = reap,
	.request = request,
	.kill = on_link,
	.each_net = each_net,
	.each_link = each_link,
	.proof = proof,
	.sever = on_link,
};

/* --- the connection ----------------------------------------------------- */

struct scene {
	struct exi_conn *c;
	struct exi_rma_link *l;
	int pair;
	bool sends, receives;
	bool stops; /* receives are to be given back */
	bool drains;
	bool ended;
	struct {
		char *buf;
		size_t len;
	} lent[2][LOANS]; /* by direction */
	unsigned int n_lent[2];
	uint64_t head;
};

static const struct exi_conn_ops *ops = &exi_rma_conn_ops;
static const struct exi_place_ops *pops = &exi_rma_place_ops;

static void setup(void)
{
	static struct exi_host host;
	struct exi_config *c;

	if (exi_rma_host)
		return;
	fuzz_device(&host);
	c = (struct exi_config *)(uintptr_t)exi_config();
	c->ring_kb = RING / 1024;
	c->zcopy_threshold = 64; /* small transfers are placed, too */
}

static void begin(struct scene *s, struct fuzz_in *in)
{
	const struct exi_rma_ring theirs = { .addr = 1 << 20,
					     .key = 5,
					     .bytes = RING };
	size_t size = sizeof(*s->c) + ops->priv_size;
	uint8_t how = fuzz_byte(in);
	int pair[2];

	setup();
	memset(s, 0, sizeof(*s));
	memset(&net, 0, sizeof(net));
	exi_rma_net_init(&net);
	net.notes = how & 1;
	net.early = how & 2;
	net.eager = how & 4 ? EXI_RMA_EAGER : 0;
	net.inline_max = how & 8 ? 64 : 0;
	net.write_max = how & 16 ? 1000 : 1 << 20;
	FUZZ_TRUE(!socketpair(AF_UNIX,
			      SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
			      pair));
	s->pair = pair[0];
	s->l = the_link = exi_rma_link_new(pair[1]);
	FUZZ_TRUE(s->l);
	s->l->net = &net;
	s->l->name = how & 32 ? 77 : 0;
	FUZZ_TRUE(!exi_rma_link_open(s->l) && !exi_rma_link_up(s->l, &theirs));
	s->c = aligned_alloc(64, (size + 63) & ~(size_t)63);
	FUZZ_TRUE(s->c);
	memset(s->c, 0, size);
	((struct exi_rma_conn *)s->c->priv)->link = s->l;
	if (how & 64) {
		s->l->meeting = calloc(1, sizeof(*s->l->meeting));
		FUZZ_TRUE(s->l->meeting);
		exi_list_init(&s->l->meeting->waiting);
	}
	s->receives = s->sends = true;
	FUZZ_TRUE(!exi_rma_switch_ops.start(s->c, 0));
}

static void give_back(struct scene *s, enum exi_dir dir)
{
	ssize_t n;
	char *b;
	unsigned int i;

	while ((b = pops->reap(s->c, dir, &n))) {
		for (i = 0; i < LOANS && s->lent[dir][i].buf != b; i++)
			;
		FUZZ_TRUE(i < LOANS && n <= (ssize_t)s->lent[dir][i].len);
		free(b);
		s->lent[dir][i].buf = NULL;
		s->n_lent[dir]--;
	}
}

static void lend(struct scene *s, struct fuzz_in *in, enum exi_dir dir)
{
	size_t len = 1 + fuzz_below(in, BUF);
	struct exi_lent t = { .len = len, .waitall = fuzz_byte(in) & 1 };
	unsigned int i;
	ssize_t n;

	if (dir == EXI_RX ? !s->receives || s->stops : !s->sends || s->ended)
		return;
	for (i = 0; i < LOANS && s->lent[dir][i].buf; i++)
		;
	if (i == LOANS)
		return;
	t.buf = t.owner = calloc(1, len);
	FUZZ_TRUE(t.buf);
	if (dir == EXI_RX)
		n = pops->lend(s->c, &t);
	else
		n = pops->welcome(s->c) ? pops->give(s->c, &t) : -EAGAIN;
	FUZZ_TRUE(n <= (ssize_t)len);
	if (dir == EXI_RX ? n < 0 : n <= 0) {
		free(t.buf);
		return;
	}
	s->lent[dir][i].buf = t.buf;
	s->lent[dir][i].len = len;
	s->n_lent[dir]++;
}

static void receive(struct scene *s, struct fuzz_in *in)
{
	size_t len = fuzz_below(in, BUF);
	uint8_t how = fuzz_byte(in);
	const void *at;
	char *to;
	ssize_t n;

	if (!s->receives || s->stops || s->n_lent[EXI_RX])
		return;
	if (how % 4 == 3 && !ops->recv(s->c, NULL, 0, 0) &&
	    !exi_stream_rx_over(&s->l->rx)) {
		size_t run = exi_rma_loan_ops.look(s->c, &at);

		FUZZ_TRUE((unsigned char *)at >= s->l->ring.at &&
			  (unsigned char *)at + run <=
				  s->l->ring.at + s->l->ring.bytes);
		if (run)
			exi_rma_loan_ops.took(s->c, 1 + len % run);
		return;
	}
	to = malloc(len ? len : 1);
	FUZZ_TRUE(to);
	n = ops->recv(s->c, to, len, how & 1 ? MSG_PEEK : 0);
	FUZZ_TRUE(n <= (ssize_t)len);
	free(to);
}

static void send_some(struct scene *s, struct fuzz_in *in)
{
	size_t len = 1 + fuzz_below(in, BUF);
	char *from;

	if (!s->sends || s->ended)
		return;
	from = calloc(1, len);
	FUZZ_TRUE(from);
	FUZZ_TRUE(ops->send(s->c, from, len, 0) <= (ssize_t)len);
	free(from);
}

static void ask(struct scene *s, struct fuzz_in *in)
{
	const struct exi_wait_ops *w = ops->wait_ops;
	const struct exi_ready_ops *r = ops->ready_ops;
	uint8_t what = fuzz_byte(in);
	enum exi_dir dir = what & 128 ? EXI_RX : EXI_TX;
	enum exi_wake how = what & 64 ? EXI_WAKE_WORD : EXI_WAKE_BELL;
	struct exi_word word;

	switch (what % 6) {
	case 0:
		w->word(s->c, dir, &word);
		if (!w->arm(s->c, dir, how) && how == EXI_WAKE_WORD)
			w->disarm(s->c, dir, how);
		break;
	case 1:
		w->disarm(s->c, dir, EXI_WAKE_BELL);
		break;
	case 2:
		w->poll(s->c, 2);
		w->patience(s->c);
		break;
	case 3:
		r->ready(s->c, dir);
		break;
	case 4:
		r->full(s->c);
		break;
	default:
		FUZZ_TRUE(r->unread(s->c) <= RING);
		r->over(s->c);
	}
}

static void move_rx(struct scene *s, struct fuzz_in *in)
{
	uint64_t used;

	if (!s->receives) {
		uint64_t head = s->head + fuzz_number(in);

		s->receives = !exi_rma_switch_ops.start(s->c, head);
		return;
	}
	s->stops = true;
	if (!pops->quiet(s->c))
		return;
	give_back(s, EXI_RX);
	if (s->n_lent[EXI_RX])
		return;
	exi_rma_switch_ops.cursor(s->c, &s->head, &used);
	s->receives = s->stops = false;
}

static void drain(struct scene *s, struct fuzz_in *in, bool all)
{
	const void *run;
	size_t n;

	while ((n = exi_rma_switch_ops.drain(s->c, &run))) {
		FUZZ_TRUE(n <= BUF);
		memcpy(buf, run, n);
		n = all ? n : 1 + fuzz_below(in, BUF) % n;
		exi_rma_switch_ops.drained(s->c, n);
		if (!all)
			return;
	}
	s->drains = false;
}

static void move_tx(struct scene *s, struct fuzz_in *in)
{
	uint64_t at;

	if (s->drains) {
		drain(s, in, false);
	} else if (!s->sends) {
		s->sends = !exi_rma_switch_ops.head(s->c, &at);
	} else if (!s->ended) {
		at = fuzz_byte(in) & 1 ? fuzz_number(in)
				       : s->l->tx.head - fuzz_below(in, RING);
		if (exi_rma_switch_ops.takeback(s->c, at, 0))
			return;
		s->sends = false;
		s->drains = true;
	}
}

/* --- the peer ----------------------------------------------------------- */

static void heard(struct scene *s, const struct exi_rma_msg *m, uint32_t len)
{
	/* As long as it came: what is read behind it is found. */
	struct exi_rma_msg *in = malloc(len ? len : 1);

	FUZZ_TRUE(in);
	memcpy(in, m, len);
	exi_rma_lock(&net.lock);
	exi_rma_link_heard(s->l, in, len);
	exi_rma_link_give(s->l, 1);
	exi_rma_unlock(&net.lock);
	free(in);
	/* Credits are for messages that were sent. */
	FUZZ_TRUE(atomic_load(&s->l->err) ||
		  s->l->sent - atomic_load(&s->l->credited) <= EXI_RMA_CREDITS);
}

static void say(struct scene *s, struct fuzz_in *in)
{
	union {
		struct exi_rma_msg m;
		uint8_t bytes[EXI_RMA_MSG_MAX + 8];
	} out = { .m.kind = fuzz_byte(in) % 12 };
	bool for_tx = out.m.kind == EXI_RMA_ADVERT ||
		      out.m.kind == EXI_RMA_ACK || out.m.kind == EXI_RMA_REVOKE;
	uint8_t how = fuzz_byte(in);
	uint32_t head =
		out.m.kind == EXI_RMA_BYTES ? EXI_RMA_BRIEF : sizeof(out.m);

	out.m.credits = how & 1 ? (uint32_t)fuzz_number(in)
				: s->l->sent - fuzz_byte(in) % 32;
	out.m.phase = how & 2 ? (uint32_t)fuzz_number(in)
			      : s->l->tx.phase + fuzz_byte(in) % 3;
	out.m.seq = how & 4  ? (uint32_t)fuzz_number(in)
		    : for_tx ? s->l->tx.seq - fuzz_byte(in) % 3
			     : s->l->rx.seq;
	if (out.m.kind == EXI_RMA_ACK && !(how & 4))
		out.m.seq = (uint32_t)s->l->tx.head - fuzz_below(in, RING);
	out.m.note = (uint32_t)fuzz_number(in);
	out.m.addr = fuzz_number(in);
	out.m.key = 9;
	out.m.flags = fuzz_byte(in) & 3;
	if (how & 8)
		out.m.extra = (uint16_t)(fuzz_number(in) %
					 (sizeof(out.bytes) - head + 1));
	if (out.m.kind == EXI_RMA_NOTE && !(how & 16))
		out.m.note = out.m.extra;
	if (how & 32)
		memcpy(out.bytes + head, in->at, in->left < 40 ? in->left : 40);
	heard(s, &out.m,
	      how & 64 ? fuzz_below(in, sizeof(out.bytes))
		       : head + out.m.extra);
}

static void note(struct scene *s, struct fuzz_in *in)
{
	uint32_t n = (uint32_t)fuzz_number(in);

	exi_rma_lock(&net.lock);
	exi_rma_link_noted(s->l, n);
	exi_rma_link_give(s->l, 1);
	exi_rma_unlock(&net.lock);
}

/* The core says something to the peer's. */
static void forward(struct scene *s, struct fuzz_in *in)
{
	size_t len = 1 + fuzz_byte(in) % 96;

	if (send(s->pair, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		s->l->on_pair.call(&s->l->on_pair);
	while (recv(s->pair, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

/* --- the end ------------------------------------------------------------ */

/* The link failed, or does now: what was not received goes another way. */
static void fail(struct scene *s)
{
	unsigned int i;

	exi_rma_fail_left(s->c);
	if (!exi_rma_fail_sever(s->c) && s->sends) {
		exi_rma_fail_resend(s->c);
		drain(s, NULL, true);
	}
	exi_rma_fail_position(s->c, EXI_RX);
	exi_rma_fail_position(s->c, EXI_TX);
	give_back(s, EXI_RX);
	give_back(s, EXI_TX);
	FUZZ_TRUE(!s->n_lent[EXI_RX]);
	for (i = 0; i < LOANS; i++)
		free(s->lent[EXI_TX][i].buf);
}

static void step(struct scene *s, struct fuzz_in *in)
{
	switch (fuzz_byte(in) % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
		say(s, in);
		break;
	case 4:
		note(s, in);
		break;
	case 5:
	case 6:
		receive(s, in);
		break;
	case 7:
		send_some(s, in);
		break;
	case 8:
		lend(s, in, EXI_RX);
		break;
	case 9:
		lend(s, in, EXI_TX);
		break;
	case 10:
		give_back(s, EXI_RX);
		give_back(s, EXI_TX);
		break;
	case 11:
		ask(s, in);
		break;
	case 12:
		move_rx(s, in);
		break;
	case 13:
		move_tx(s, in);
		break;
	case 14:
		forward(s, in);
		break;
	default:
		pops->answer(s->c);
		exi_rma_link_retry(s->l);
		if (fuzz_byte(in) % 8 || !s->sends || s->ended)
			break;
		ops->end(s->c);
		s->ended = true;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	struct scene s;

	begin(&s, &in);
	/* Before the proof the core has no connection to call. */
	while (in.left && s.l->meeting && !atomic_load(&s.l->err))
		if (fuzz_byte(&in) % 8)
			say(&s, &in);
		else
			note(&s, &in);
	while (in.left && !atomic_load(&s.l->err))
		step(&s, &in);
	if (!s.l->meeting)
		fail(&s);
	ops->fini(s.c);
	exi_rma_net_fini(&net);
	free(s.c);
	close(s.pair);
	return 0;
}
