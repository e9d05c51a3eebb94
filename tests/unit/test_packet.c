/* SPDX-License-Identifier: BSD-2-Clause */
/* The framing of messages by itself: a socket that is never connected, whose
 * bytes the tests move, in pieces of any size; and what a hostile peer says. */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/base.h"
#include "core/sock/packet_wire.h"
#include "core/sock/table.h"
#include "core/transfer/op.h"
#include "core/transfer/packet.h"
#include "core/transfer/parts.h"
#include "tests/support/bytes.h"

#define MOST   20000 /* bytes of a message */
#define COUNT  400
#define PIECES 3

static struct exi_sock *sock_new(void)
{
	struct exi_sock *sk = calloc(1, sizeof(*sk));

	sk->sh = aligned_alloc(_Alignof(struct exi_shared), sizeof(*sk->sh));
	memset(sk->sh, 0, sizeof(*sk->sh));
	exi_list_init(&sk->ops[EXI_RX]);
	exi_list_init(&sk->ops[EXI_TX]);
	sk->base = &exi_base_tcp;
	sk->framed = true;
	return sk;
}

static void sock_free(struct exi_sock *sk)
{
	free(sk->kept);
	free(sk->sh);
	free(sk);
}

static struct exi_framing *framing(struct exi_sock *sk, enum exi_dir dir)
{
	return &sk->sh->half[dir].framing;
}

/* An operation on one buffer, or on pieces of it. */
static struct exi_op *op_new(int type, void *buf, size_t len, struct t_rng *r)
{
	struct exi_op *op = calloc(1, sizeof(*op));
	exs_iovec_t v[PIECES];
	char *at = buf;

	exi_list_init(&op->node);
	op->type = type;
	if (t_below(r, 2)) {
		op->buf = buf;
		op->run = op->len = len;
		return op;
	}
	for (int i = 0; i < PIECES; i++) {
		size_t n = i == PIECES - 1 ? len : t_below(r, len + 1);

		v[i] = (exs_iovec_t){ at, n, 0 };
		at += n;
		len -= n;
	}
	assert_int_equal(exi_parts_take(op, v, PIECES), 0);
	return op;
}

static void op_free(struct exi_op *op)
{
	exi_parts_release(op);
	free(op);
}

/* A direction as it goes over a wire. */
struct wire {
	char *bytes;
	size_t room;
	size_t len;
	size_t at; /* read */
};

static size_t length_of(uint64_t i)
{
	struct t_rng r = { i + 1 };

	return t_below(&r, 4) ? t_below(&r, 50) : t_below(&r, MOST);
}

static void append(struct wire *w, const void *from, size_t n)
{
	while (w->room < w->len + n) {
		w->room = 2 * w->room + 4096;
		w->bytes = realloc(w->bytes, w->room);
	}
	memcpy(w->bytes + w->len, from, n);
	w->len += n;
}

/* --- sending ------------------------------------------------------------ */

/* Sends some of what waits; false: nothing does. */
static bool send_some(struct exi_sock *sk, struct wire *w, struct t_rng *r)
{
	struct exi_list *head = &sk->ops[EXI_TX];
	struct exi_op *op;
	char room[EXI_PACKET_ROOM];
	size_t n;
	void *run = room;
	bool more;

	if (exi_list_empty(head))
		return false;
	op = exi_container(head->next, struct exi_op, node);
	if (!exi_packet_headed(op) && t_below(r, 2))
		n = exi_packet_gather(sk, op, room, &more);
	else
		n = exi_packet_run(sk, op, &run);
	assert_true(n > 0);
	n = 1 + t_below(r, n);
	append(w, run, n);
	while (n) {
		op = exi_container(head->next, struct exi_op, node);
		n -= exi_packet_went(sk, op, n);
		exi_packet_note(sk, op);
		assert_int_equal(!!framing(sk, EXI_TX)->owner,
				 !exi_packet_sent(op));
		if (!exi_packet_sent(op))
			continue;
		exi_list_del(&op->node);
		if (op->ours)
			free(op);
		else
			op_free(op);
	}
	return true;
}

/* The rest becomes the library's, and the caller's memory is its own. */
static void leave_rest(struct exi_sock *sk)
{
	struct exi_op *op =
		exi_container(sk->ops[EXI_TX].next, struct exi_op, node);

	if (exi_list_empty(&sk->ops[EXI_TX]) || !op->begun || op->ours)
		return;
	assert_int_equal(exi_packet_rest(op), 0);
	assert_int_equal(op->done, op->len);
	op_free(op);
}

static struct wire send_all(struct exi_sock *sk, struct t_rng *r)
{
	char *buf = malloc(COUNT * MOST);
	struct wire w = { 0 };

	for (uint64_t i = 0; i < COUNT; i++) {
		char *at = buf + i * MOST;
		struct exi_op *op =
			op_new(t_below(r, 2) ? EXS_EVT_SEND : EXS_EVT_SENDMSG,
			       at, length_of(i), r);

		t_fill(at, op->len, 1, i * MOST);
		assert_int_equal(exi_packet_check(sk, op), 0);
		exi_list_add_tail(&sk->ops[EXI_TX], &op->node);
		while (t_below(r, 3) && send_some(sk, &w, r))
			if (!t_below(r, 10))
				leave_rest(sk);
	}
	while (send_some(sk, &w, r))
		;
	assert_true(!framing(sk, EXI_TX)->owner);
	free(buf);
	return w;
}

/* --- receiving ---------------------------------------------------------- */

/* Moves up to n bytes, or fewer; what came() or want() said, -EAGAIN: there are
 * no more. 1: the operation is over. */
static int recv_some(struct exi_sock *sk, struct exi_op *op, struct wire *w,
		     size_t most, struct t_rng *r)
{
	while (most) {
		void *to;
		ssize_t n = exi_packet_want(sk, op, &to);
		size_t have = w->len - w->at;
		int ret;

		if (n <= 0)
			return n ? (int)n : 1;
		if (!have)
			return -EAGAIN;
		n = n < (ssize_t)have ? n : (ssize_t)have;
		n = n < (ssize_t)most ? n : (ssize_t)most;
		n = 1 + (ssize_t)t_below(r, (uint64_t)n);
		memcpy(to, w->bytes + w->at, (size_t)n);
		w->at += (size_t)n;
		most -= (size_t)n;
		ret = exi_packet_came(sk, op, (size_t)n);
		if (ret)
			return ret;
	}
	return -EAGAIN;
}

static void ends(struct exi_sock *sk, struct exi_op *op, int err)
{
	struct exi_lock *lock = &sk->sh->half[EXI_RX].lock;

	exi_lock(lock);
	exi_packet_over_locked(sk, EXI_RX, op, err);
	exi_unlock(lock);
	op_free(op);
}

/* Receives message i, by as many tries as it takes. */
static void recv_one(struct exi_sock *sk, struct wire *w, uint64_t i,
		     struct t_rng *r)
{
	size_t len = length_of(i);
	char *buf = malloc(MOST + 1);
	bool over = false;

	while (!over) {
		size_t room = t_below(r, 4) ? MOST : t_below(r, len + 1);
		bool looks = !t_below(r, 4);
		size_t want = len < room ? len : room;
		struct exi_op *op =
			op_new(t_below(r, 2) ? EXS_EVT_RECV : EXS_EVT_RECVMSG,
			       buf, room, r);
		int ret;

		memset(buf, 0xa5, MOST + 1);
		op->flags = looks ? MSG_PEEK : 0;
		assert_int_equal(exi_packet_check(sk, op), 0);
		ret = recv_some(sk, op, w,
				t_below(r, 2) ? t_below(r, 60) : MOST, r);
		if (ret == -EAGAIN) {
			/* The operation ends early, and what it received
			 * stays. */
			if (op->begun)
				assert_true(exi_packet_keep(sk, op));
			op->done = 0;
			ends(sk, op, ECANCELED);
			continue;
		}
		assert_int_equal(ret, 1);
		assert_int_equal(op->done, want);
		assert_int_equal(op->event_flags,
				 MSG_EOR | (len > room ? MSG_TRUNC : 0));
		t_check_bytes(buf, want, 1, i * MOST);
		assert_int_equal((unsigned char)buf[want], 0xa5);
		ends(sk, op, 0);
		over = !looks;
	}
	free(buf);
}

static void the_end(struct exi_sock *sk, struct wire *w, struct t_rng *r)
{
	char byte;
	struct exi_op *op = op_new(EXS_EVT_RECV, &byte, 1, r);

	/* What did not fit of the last one is skipped. */
	assert_int_equal(recv_some(sk, op, w, MOST, r), -EAGAIN);
	assert_int_equal(w->at, w->len);
	assert_int_equal(exi_packet_came(sk, op, 0), 1);
	assert_int_equal(op->event_flags, 0);
	ends(sk, op, 0);
}

static void what_is_sent_is_received(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct exi_sock *a = sock_new(), *b = sock_new();
		struct t_rng r = { seed };
		struct wire w = send_all(a, &r);

		for (uint64_t i = 0; i < COUNT; i++)
			recv_one(b, &w, i, &r);
		the_end(b, &w, &r);
		free(w.bytes);
		sock_free(a);
		sock_free(b);
	}
}

/* --- a peer that lies --------------------------------------------------- */

static int told(struct exi_sock *sk, const char *bytes, size_t len,
		size_t *ret_at)
{
	struct wire w = { .bytes = (char *)(uintptr_t)bytes, .len = len };
	struct t_rng r = { 1 };
	char buf[10];
	struct exi_op *op = op_new(EXS_EVT_RECV, buf, sizeof(buf), &r);
	int ret;

	exi_packet_check(sk, op);
	ret = recv_some(sk, op, &w, len, &r);
	*ret_at = w.at;
	ends(sk, op, ret < 0 ? -ret : 0);
	return ret;
}

static void every_byte_of_the_hello_counts(void **state)
{
	for (size_t i = 0; i < EXI_PACKET_HELLO_LEN; i++) {
		char hello[EXI_PACKET_FIRST] = EXI_PACKET_HELLO "\1\0\0";
		struct exi_sock *sk = sock_new();
		struct exi_op next = { .type = EXS_EVT_SEND, .len = 1 };
		size_t at;

		hello[i] ^= 1;
		assert_int_equal(told(sk, hello, sizeof(hello), &at),
				 -EPROTOTYPE);
		/* At once, not when there are twelve. */
		assert_true(at >= i + 1);
		/* For good, and for what is sent. */
		assert_int_equal(exi_packet_check(sk, &next), -EPROTOTYPE);
		assert_int_equal(exi_packet_turn(sk), -EPROTOTYPE);
		assert_true(exi_packet_there(sk));
		sock_free(sk);
	}
}

static const struct {
	uint32_t len;
	int ret;
} lengths[] = {
	{ 0x40000000, -EPROTO },
	{ 0x80000000, -EPROTO },
	{ 0xffffffff, -EPROTO },
	{ 0x40000001, -EPROTO },
	{ 0x3fffffff, -EAGAIN },
	{ 0x3ffffffe, -EAGAIN },
	{ 0, 1 },
};

/* No memory is asked for by what a length says. */
static void a_length_is_only_believed_as_bytes_come(void **state)
{
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		char in[EXI_PACKET_FIRST + 8] = EXI_PACKET_HELLO;
		uint32_t len = htole32(lengths[i].len);
		struct exi_sock *sk = sock_new();
		size_t at;

		memcpy(in + EXI_PACKET_HELLO_LEN, &len, sizeof(len));
		assert_int_equal(told(sk, in, sizeof(in), &at), lengths[i].ret);
		assert_true(sk->kept_room <= 4096);
		sock_free(sk);
	}
}

/* A gigabyte that nobody asked for is skipped in small pieces. */
static void what_nobody_wants_takes_no_memory(void **state)
{
	static const char head[] = EXI_PACKET_HELLO "\xff\xff\xff\x3f"
						    "0123456789";
	struct exi_sock *sk = sock_new();
	size_t left = EXS_X_MESSAGE_MAX - 10, at;
	void *to;
	ssize_t n;

	assert_int_equal(told(sk, head, sizeof(head) - 1, &at), -EAGAIN);
	/* That was cancelled with all it wanted; the next takes it. */
	framing(sk, EXI_RX)->begun = 0;
	while ((n = exi_packet_skip(sk, &to)) > 0) {
		assert_true(n <= 4096 && sk->kept_room <= 4096);
		assert_int_equal(exi_packet_came(sk, NULL, (size_t)n), 0);
		left -= (size_t)n;
	}
	assert_int_equal(n, 0);
	assert_int_equal(left, 0);
	sock_free(sk);
}

static void an_end_within_a_message_is_a_reset(void **state)
{
	static const char in[] = EXI_PACKET_HELLO "\x02\x00\x00\x00x";

	for (size_t len = 0; len < sizeof(in); len++) {
		struct exi_sock *sk = sock_new();
		struct exi_op op = { .type = EXS_EVT_RECV };
		size_t at;

		assert_int_equal(told(sk, in, len, &at), -EAGAIN);
		assert_int_equal(exi_packet_came(sk, &op, 0),
				 len ? -ECONNRESET : 1);
		/* Once; then it is the end. */
		assert_int_equal(exi_packet_came(sk, &op, 0), 1);
		sock_free(sk);
	}
}

/* --- others ------------------------------------------------------------- */

static void flags_and_lengths_are_checked(void **state)
{
	struct exi_sock *sk = sock_new();
	struct exi_op op = { .type = EXS_EVT_SEND, .len = EXS_X_MESSAGE_MAX };

	assert_int_equal(exi_packet_check(sk, &op), 0);
	op.len++;
	assert_int_equal(exi_packet_check(sk, &op), -EMSGSIZE);
	op.type = EXS_EVT_RECV;
	assert_int_equal(exi_packet_check(sk, &op), 0);
	op = (struct exi_op){ .type = EXS_EVT_SENDFILE, .flags = MSG_MORE };
	assert_int_equal(exi_packet_check(sk, &op), -EOPNOTSUPP);
	op.flags = MSG_EOR | MSG_NOSIGNAL;
	assert_int_equal(exi_packet_check(sk, &op), 0);
	assert_int_equal(op.flags, MSG_NOSIGNAL);
	sock_free(sk);
}

static void a_message_is_of_one_process(void **state)
{
	struct exi_sock *sk = sock_new();
	struct exi_op op = { .type = EXS_EVT_RECV };
	void *to;

	framing(sk, EXI_RX)->owner = exi_process_token() + 1;
	framing(sk, EXI_TX)->owner = exi_process_token() + 1;
	assert_int_equal(exi_packet_want(sk, &op, &to), -EBUSY);
	assert_int_equal(exi_packet_turn(sk), -EBUSY);
	framing(sk, EXI_RX)->owner = exi_process_token();
	framing(sk, EXI_TX)->owner = exi_process_token();
	assert_int_equal(exi_packet_want(sk, &op, &to), EXI_PACKET_FIRST);
	assert_int_equal(exi_packet_turn(sk), 0);
	sock_free(sk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_sent_is_received),
		cmocka_unit_test(every_byte_of_the_hello_counts),
		cmocka_unit_test(a_length_is_only_believed_as_bytes_come),
		cmocka_unit_test(what_nobody_wants_takes_no_memory),
		cmocka_unit_test(an_end_within_a_message_is_a_reset),
		cmocka_unit_test(flags_and_lengths_are_checked),
		cmocka_unit_test(a_message_is_of_one_process),
	};

	return cmocka_run_group_tests_name("packet", tests, NULL, NULL);
}
