/* SPDX-License-Identifier: BSD-2-Clause */
/* core/transfer/packet.c: bytes of the peer of a SOCK_SEQPACKET connection, in
 * pieces of any size, for receives of any size that peek, are too short or end
 * early; and the headers of messages that are sent. A separate parser computes
 * what each receive must return. */
#include "core/transfer/packet.h"

#include <errno.h>

#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/transfer/parts.h"
#include "fuzz/fuzz.h"

#define TURNS 400

/* The peer's stream, and how far it was received. */
static uint8_t *stream;
static size_t stream_len, come;
/* What the parser here expects next: the first byte after a length. */
static size_t expected;

struct receive {
	struct exi_op op;
	char *buf;
	size_t len;
	uint8_t fate;
};

static struct exi_sock *sock_new(void)
{
	struct exi_sock *sk = calloc(1, sizeof(*sk));

	FUZZ_TRUE(sk);
	sk->sh = aligned_alloc(_Alignof(struct exi_shared), sizeof(*sk->sh));
	FUZZ_TRUE(sk->sh);
	memset(sk->sh, 0, sizeof(*sk->sh));
	exi_list_init(&sk->ops[EXI_RX]);
	exi_list_init(&sk->ops[EXI_TX]);
	sk->base = &exi_base_tcp;
	sk->framed = true;
	/* Asserts of locks ask for them. */
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
	return sk;
}

static void sock_free(struct exi_sock *sk)
{
	free(sk->kept);
	free(sk->sh);
	free(sk);
}

/* Most streams begin as they must. */
static void take_stream(struct fuzz_in *in, uint8_t how)
{
	size_t head = how % 8 ? sizeof(EXI_PACKET_HELLO) - 1 : 0;

	stream_len = head + in->left;
	stream = malloc(stream_len + 4);
	FUZZ_TRUE(stream);
	memcpy(stream, EXI_PACKET_HELLO, head);
	fuzz_copy(in, stream + head, in->left);
	come = 0;
	expected = sizeof(EXI_PACKET_HELLO) - 1 + 4;
}

static void begin(struct receive *r, struct fuzz_in *ctl)
{
	size_t third;

	memset(r, 0, sizeof(*r));
	r->len = fuzz_byte(ctl);
	if (r->len % 16 == 0)
		r->len = (size_t)fuzz_byte(ctl) * 64;
	r->fate = fuzz_byte(ctl);
	r->buf = malloc(r->len ? r->len : 1);
	FUZZ_TRUE(r->buf);
	exi_list_init(&r->op.node);
	r->op.type = EXS_EVT_RECV;
	r->op.fd = -1;
	r->op.flags = r->fate % 5 == 1 ? MSG_PEEK : 0;
	third = r->len / 3;
	if (r->fate % 3 || !third) {
		r->op.buf = r->buf;
		r->op.run = r->op.len = r->len;
	} else {
		exs_iovec_t v[3] = {
			{ r->buf, third, EXS_MHANDLE_UNREGISTERED },
			{ r->buf + third, third, EXS_MHANDLE_UNREGISTERED },
			{ r->buf + 2 * third, r->len - 2 * third,
			  EXS_MHANDLE_UNREGISTERED },
		};

		FUZZ_TRUE(exi_parts_take(&r->op, v, 3) == 0);
	}
}

static void end(struct exi_sock *sk, struct receive *r)
{
	exi_parts_release(&r->op);
	free(r->buf);
}

/* The receive has its message. */
static void check(const struct receive *r)
{
	const uint8_t *l = stream + expected - 4;
	size_t len = l[0] | l[1] << 8 | l[2] << 16 | (size_t)l[3] << 24;

	FUZZ_TRUE(expected <= come);
	FUZZ_TRUE(len <= EXS_X_MESSAGE_MAX);
	FUZZ_TRUE(r->op.done == r->op.len);
	FUZZ_TRUE(r->op.len == (len < r->len ? len : r->len));
	FUZZ_TRUE(!memcmp(r->buf, stream + expected, r->op.len));
	FUZZ_TRUE(!!(r->op.event_flags & MSG_TRUNC) == (len > r->len));
	if (!(r->op.flags & MSG_PEEK))
		expected += len + 4;
}

/* 1: the receive has a message. 0: it ended without one, and the next may go
 * on. -1: the stream is at its end, or broken. */
static int receive(struct exi_sock *sk, struct receive *r, struct fuzz_in *ctl,
		   int turn)
{
	void *to;

	for (;;) {
		bool early = r->fate > 200 && turn % 7 == 3 && come % 5 == 2;
		ssize_t want;
		size_t n;

		if (early) {
			FUZZ_TRUE(!r->op.begun || exi_packet_keep(sk, &r->op));
			return 0;
		}
		want = exi_packet_want(sk, &r->op, &to);
		if (want < 0)
			return -1;
		if (!want) {
			FUZZ_TRUE(r->op.begun || r->op.flags & MSG_PEEK);
			return 1;
		}
		n = 1 + (size_t)fuzz_byte(ctl) % (size_t)want;
		if (n > stream_len - come)
			n = stream_len - come;
		memcpy(to, stream + come, n);
		come += n;
		if (exi_packet_came(sk, &r->op, n) || !n)
			return -1;
	}
}

/* Heads of messages of any length, taken away in pieces. */
static void send_some(struct exi_sock *sk, struct fuzz_in *ctl)
{
	static char buf[8192];
	char room[EXI_PACKET_ROOM];
	struct exi_op op = { .type = EXS_EVT_SEND, .fd = -1, .buf = buf };
	size_t n, went;
	bool more;

	exi_list_init(&op.node);
	op.len = op.run = fuzz_below(ctl, sizeof(buf));
	while (!exi_packet_sent(&op)) {
		n = exi_packet_gather(sk, &op, room, &more);
		FUZZ_TRUE(n <= sizeof(room) && (n || more));
		if (n) {
			went = 1 + fuzz_byte(ctl) % n;
		} else {
			void *run;

			n = exi_packet_run(sk, &op, &run);
			FUZZ_TRUE(n);
			went = 1 + fuzz_below(ctl, 4096) % n;
		}
		exi_packet_went(sk, &op, went);
	}
	exi_packet_over_locked(sk, EXI_TX, &op, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n_ctl = size ? data[0] % 64 : 0;
	struct fuzz_in ctl = { data + 1, n_ctl }, again = ctl;
	struct fuzz_in in = { data + 1 + n_ctl, size - 1 - n_ctl };
	struct exi_sock *sk;
	int turn, ret = 0;

	if (size < 1 + n_ctl || !n_ctl)
		return 0;
	take_stream(&in, data[1]);
	sk = sock_new();
	if (data[1] & 64)
		send_some(sk, &ctl);
	for (turn = 0; turn < TURNS && ret >= 0; turn++) {
		struct receive r;

		if (!ctl.left)
			ctl = again;
		begin(&r, &ctl);
		ret = exi_packet_check(sk, &r.op) ? -1
						  : receive(sk, &r, &ctl, turn);
		if (ret > 0)
			check(&r);
		exi_packet_over_locked(sk, EXI_RX, &r.op, 0);
		end(sk, &r);
	}
	sock_free(sk);
	free(stream);
	return 0;
}
