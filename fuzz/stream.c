/* SPDX-License-Identifier: BSD-2-Clause */
/* core/rma/stream_tx.c, stream_rx.c: one end, with a caller that keeps the
 * rules, and a peer that sends anything in any order. Checked is what the
 * engine has the caller do: only advertised memory is written to, runs lie in
 * the ring, and buffers get no more than they hold. */
#include "core/rma/stream.h"

#include "fuzz/fuzz.h"

#define RING	4096u
#define ADVERTS 4096
#define BUFS	256
#define BUF	512u
#define ADDRESS 1000u /* of a buffer, from that of the one before */

/* --- the sender --------------------------------------------------------- */

struct sender {
	struct exi_stream_tx t;
	struct {
		uint64_t addr, len;
	} advert[ADVERTS];
	unsigned int adverts;
	bool ended, drained;
};

static void send_next(struct sender *s, struct fuzz_in *in)
{
	struct exi_stream_tx *t = &s->t;
	uint32_t want = t->draining || t->ending || s->drained
				? 0
				: (uint32_t)fuzz_number(in) % 100000;
	enum exi_stream_how how = fuzz_byte(in) % 3;
	struct exi_stream_msg m;
	enum exi_stream_kind kind = exi_stream_tx_next(t, want, how, &m);
	uint32_t n;

	if (kind == EXI_STREAM_NONE)
		return;
	if (kind == EXI_STREAM_WAIT) {
		if (fuzz_byte(in) & 1)
			exi_stream_tx_in_vain(t);
		return;
	}
	n = m.len ? 1 + (uint32_t)fuzz_number(in) % m.len : 0;
	if (kind == EXI_STREAM_DIRECT) {
		FUZZ_TRUE(m.key && m.key <= s->adverts);
		FUZZ_TRUE(m.addr >= s->advert[m.key - 1].addr);
		FUZZ_TRUE(m.addr - s->advert[m.key - 1].addr + n <=
			  s->advert[m.key - 1].len);
	}
	FUZZ_TRUE(kind != EXI_STREAM_INDIRECT || m.addr + m.len <= RING);
	exi_stream_tx_sent(t, &m, n);
	s->ended = s->ended || kind == EXI_STREAM_END;
}

static void hear(struct sender *s, struct fuzz_in *in)
{
	struct exi_stream_tx *t = &s->t;
	struct exi_stream_msg m = { .kind = fuzz_byte(in) % 10 };
	uint8_t near = fuzz_byte(in);

	m.phase = near & 1 ? t->phase + fuzz_byte(in) % 4 - 1
			   : (uint32_t)fuzz_number(in);
	if (!(near & 2))
		m.seq = (uint32_t)fuzz_number(in);
	else if (m.kind == EXI_STREAM_ACK)
		m.seq = (uint32_t)(t->heard + fuzz_number(in));
	else
		m.seq = (near & 4 ? t->seq : t->began) - fuzz_byte(in) % 3;
	m.len = (uint32_t)fuzz_number(in);
	m.addr = fuzz_number(in) << fuzz_byte(in) % 33;
	m.key = s->adverts + 1;
	m.waitall = near & 8;
	if (s->adverts == ADVERTS || exi_stream_tx_got(t, &m) ||
	    m.kind != EXI_STREAM_ADVERT)
		return;
	s->advert[s->adverts].addr = m.addr;
	s->advert[s->adverts++].len = m.len;
}

/* Until drain() has no more. */
static void drain(struct sender *s, struct fuzz_in *in, bool all)
{
	uint32_t at, n;

	while ((n = exi_stream_tx_drain(&s->t, &at))) {
		FUZZ_TRUE(at <= RING && n <= RING - at);
		exi_stream_tx_drained(&s->t, 1 + (uint32_t)fuzz_number(in) % n);
		if (!all)
			return;
	}
}

static void send_all(struct fuzz_in *in)
{
	static struct sender s;

	memset(&s, 0, sizeof(s));
	exi_stream_tx_init(&s.t, RING, &exi_stream_policy_default);
	while (in->left) {
		switch (fuzz_byte(in) % 8) {
		case 0:
		case 1:
			send_next(&s, in);
			break;
		case 2:
		case 3:
		case 4:
			hear(&s, in);
			break;
		case 5:
			if (!s.t.ending && !s.t.draining &&
			    fuzz_byte(in) % 8 == 0)
				exi_stream_tx_end(&s.t);
			break;
		case 6:
			if (!s.ended)
				exi_stream_tx_takeback(
					&s.t,
					fuzz_byte(in) & 1
						? s.t.head -
							  fuzz_below(in, 5000)
						: fuzz_number(in));
			exi_stream_tx_ready(&s.t);
			exi_stream_tx_welcome(&s.t);
			break;
		default:
			drain(&s, in, false);
			if (fuzz_byte(in) != 77)
				break;
			exi_stream_tx_cut(&s.t);
			exi_stream_tx_position(&s.t);
			drain(&s, in, true);
			return;
		}
	}
}

/* --- the receiver ------------------------------------------------------- */

struct receiver {
	struct exi_stream_rx r;
	struct {
		char mem[BUF];
		uint32_t len;
		bool lent;
	} buf[BUFS];
	unsigned int next;
	uint64_t head;
};

static void come(struct receiver *x, struct fuzz_in *in)
{
	struct exi_stream_msg m = { .kind = fuzz_byte(in) % 10 };
	uint8_t near = fuzz_byte(in);

	m.len = (uint32_t)fuzz_number(in);
	if (near & 1)
		m.len %= 600;
	m.seq = near & 2 ? x->r.seq : (uint32_t)fuzz_number(in);
	m.phase = (uint32_t)fuzz_number(in);
	m.addr = fuzz_number(in);
	exi_stream_rx_got(&x->r, &m);
}

static void post(struct receiver *x, struct fuzz_in *in)
{
	unsigned int i = x->next;
	struct exi_stream_recv v = {
		.buf = x->buf[i].mem,
		.addr = ADDRESS * (i + 1),
		.key = i,
		.len = 1 + fuzz_below(in, BUF),
		.owner = &x->buf[i],
	};
	uint8_t how = fuzz_byte(in);

	v.waitall = how & 1;
	v.may_advertise = how & 6;
	if (x->buf[i].lent || exi_stream_rx_post(&x->r, &v))
		return;
	x->buf[i].lent = true;
	x->buf[i].len = v.len;
	x->next = (i + 1) % BUFS;
}

static void say(struct receiver *x, struct fuzz_in *in)
{
	struct exi_stream_msg m;
	uint64_t first;

	if (exi_stream_rx_next(&x->r, fuzz_byte(in) & 1, &m) == EXI_STREAM_NONE)
		return;
	if (m.kind == EXI_STREAM_ADVERT) {
		FUZZ_TRUE(m.key < BUFS && x->buf[m.key].lent);
		first = ADDRESS * (m.key + 1);
		FUZZ_TRUE(m.addr >= first &&
			  m.addr + m.len <= first + x->buf[m.key].len);
	}
	exi_stream_rx_sent(&x->r, &m);
}

static void copy(struct receiver *x)
{
	uint32_t at, n;
	void *to;

	while ((n = exi_stream_rx_copy(&x->r, &at, &to))) {
		size_t i = (size_t)((char *)to - x->buf[0].mem) /
			   sizeof(x->buf[0]);

		FUZZ_TRUE(at <= RING && n <= RING - at);
		FUZZ_TRUE(i < BUFS && x->buf[i].lent);
		FUZZ_TRUE((char *)to + n <= x->buf[i].mem + x->buf[i].len);
		memset(to, 1, n);
		exi_stream_rx_copied(&x->r, n);
	}
}

static void read_some(struct receiver *x, struct fuzz_in *in)
{
	uint32_t at, n;

	if (x->r.posted)
		return;
	n = exi_stream_rx_run(&x->r, fuzz_below(in, 5000), &at);
	FUZZ_TRUE(!n || (at <= RING && n <= RING - at));
	n = exi_stream_rx_unread(&x->r);
	FUZZ_TRUE(n <= RING);
	if (n)
		exi_stream_rx_take(&x->r, 1 + (uint32_t)fuzz_number(in) % n);
}

static void move(struct receiver *x, struct fuzz_in *in)
{
	switch (fuzz_byte(in) % 4) {
	case 0:
		if (x->r.state == EXI_STREAM_OPEN)
			exi_stream_rx_stop(&x->r);
		break;
	case 1:
		if (exi_stream_rx_quiet(&x->r))
			x->head = exi_stream_rx_cursor(&x->r);
		break;
	case 2:
		exi_stream_rx_start(&x->r, x->head + fuzz_below(in, 9000));
		break;
	default:
		if (fuzz_byte(in) == 9)
			exi_stream_rx_cut(&x->r);
		exi_stream_rx_position(&x->r);
		exi_stream_rx_over(&x->r);
	}
}

static void take_back(struct receiver *x)
{
	struct exi_stream_done d;

	while (exi_stream_rx_done(&x->r, &d)) {
		size_t i = (size_t)((char *)d.owner - x->buf[0].mem) /
			   sizeof(x->buf[0]);

		FUZZ_TRUE(i < BUFS && x->buf[i].lent);
		FUZZ_TRUE(d.filled <= x->buf[i].len);
		x->buf[i].lent = false;
	}
}

static void receive(struct fuzz_in *in)
{
	static struct receiver x;

	memset(&x, 0, sizeof(x));
	exi_stream_rx_init(&x.r, RING, &exi_stream_policy_default);
	x.r.policy.advert_min = fuzz_byte(in) % 64;
	x.r.policy.hold = fuzz_byte(in) * 16;
	FUZZ_TRUE(exi_stream_rx_start(&x.r, 0) == 0);
	while (in->left) {
		switch (fuzz_byte(in) % 9) {
		case 0:
		case 1:
		case 2:
			come(&x, in);
			break;
		case 3:
			post(&x, in);
			break;
		case 4:
			exi_stream_rx_cancel(&x.r, &x.buf[fuzz_byte(in)]);
			break;
		case 5:
			say(&x, in);
			break;
		case 6:
			copy(&x);
			break;
		case 7:
			read_some(&x, in);
			break;
		default:
			move(&x, in);
		}
		take_back(&x);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };

	if (fuzz_byte(&in) & 1)
		send_all(&in);
	else
		receive(&in);
	return 0;
}
