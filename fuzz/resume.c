/* SPDX-License-Identifier: BSD-2-Clause */
/* core/transfer/resume.c: bytes on TCP after a fabric between hosts failed: a
 * record, valid or not, in pieces, and the stream after it. The reader gets
 * each byte of the stream once and in order, or no more bytes; behind a record
 * that only looks like one, it gets none.
 *
 * core/transfer/drain.c: the other direction, to a peer that reads when it
 * likes, or resets the connection. It gets the record and the stream. */
#include "core/transfer/resume.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "core/transfer/drain.h"
#include "core/trust/auth.h"
#include "fuzz/ends.h"
#include "fuzz/fuzz.h"
#include "tests/support/check.h"

#define BUF 9000

/* Both ends make the same record of a direction: here it is this end's RX. */
static const struct exi_auth_bond bond = { .key = { 1, 2, 3 } };

/* --- the fabric that failed --------------------------------------------- */

static uint32_t position;

static uint32_t position_of(struct exi_conn *c, enum exi_dir dir)
{
	return position;
}

static void resume(struct exi_conn *c, enum exi_dir dir, uint32_t epoch,
		   uint64_t at, uint8_t ret[EXI_RESUME])
{
	struct exi_auth_resume r;

	exi_auth_resume(&bond, dir == EXI_TX, epoch, at, &r);
	memcpy(ret, &r, sizeof(r));
}

static bool left_already;

static bool left(struct exi_conn *c)
{
	return left_already;
}

static size_t unread(struct exi_conn *c)
{
	return 0;
}

static bool over(struct exi_conn *c)
{
	return false;
}

/* What the fabric holds, in runs as they would be in a ring. */
#define HELD   60000
#define FILLED 60000
#define RUN    7000

static uint8_t held[HELD];
static size_t held_from, held_to;

static size_t drain(struct exi_conn *c, const void **ret)
{
	size_t n = held_to - held_from;

	*ret = held + held_from;
	return n < RUN ? n : RUN;
}

static void drained(struct exi_conn *c, size_t n)
{
	FUZZ_TRUE(n <= RUN && n <= held_to - held_from);
	held_from += n;
}

static const struct exi_switch_ops switch_ops = {
	.drain = drain,
	.drained = drained,
};
static const struct exi_remote_ops remote_ops = {
	.position = position_of,
	.resume = resume,
	.left = left,
};
static const struct exi_ready_ops ready_ops = {
	.unread = unread,
	.over = over,
};
static const struct exi_provider provider = {
	.name = "failed",
	.caps = EXI_CAP_REMOTE,
	.remote_ops = &remote_ops,
};

/* --- the reader --------------------------------------------------------- */

struct scene {
	struct fuzz_ends e;
	uint32_t next; /* the position of the stream that is read next */
	bool honest;   /* what came up to now is what an honest peer sends */
	uint8_t first[EXI_RESUME]; /* bytes that came */
	size_t n_first;
};

/* Whether the stream begins with the tag of a record, and the rest of it is not
 * what a holder of the key makes. */
static bool forged(const struct scene *s)
{
	uint32_t epoch = s->e.sk->sh->half[EXI_RX].epoch;
	uint8_t made[EXI_RESUME];
	uint64_t at;

	if (s->n_first < sizeof(s->first))
		return false;
	resume(NULL, EXI_RX, epoch, 0, made);
	if (memcmp(s->first, made, EXI_RESUME_TAG))
		return false;
	memcpy(&at, s->first + EXI_RESUME_AT, sizeof(at));
	resume(NULL, EXI_RX, epoch, le64toh(at), made);
	return le64toh(at) > UINT32_MAX || memcmp(s->first, made, sizeof(made));
}

static uint8_t byte_at(uint32_t at)
{
	return (uint8_t)(at * 2654435761u >> 24);
}

/* What TCP's state says of the peer; how: what the library knows of it. */
static void ask_ends(struct scene *s, uint8_t how)
{
	struct exi_sock *sk = s->e.sk;
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	unsigned int mode;

	exi_lock(&rx->lock);
	exi_lock(&tx->lock);
	mode = rx->mode;
	rx->mode = how & 1 ? EXI_MODE_RING : mode;
	rx->end_seen = !!(how & 2);
	left_already = how & 4;
	atomic_store(&rx->untaken, !!(how & 8));
	exi_resume_called_locked(sk);
	exi_resume_early_end_locked(sk);
	exi_resume_closed_locked(sk);
	rx->mode = mode;
	rx->end_seen = 0;
	left_already = false;
	atomic_store(&rx->untaken, 1);
	exi_unlock(&tx->lock);
	exi_unlock(&rx->lock);
}

/* Reads all that may be read. False: it is over. */
static bool read_on(struct scene *s)
{
	struct exi_sock *sk = s->e.sk;
	struct exi_half *h = &sk->sh->half[EXI_RX];
	static uint8_t buf[BUF];
	ssize_t n, i;

	for (;;) {
		exi_lock(&h->lock);
		n = exi_resume_read_locked(sk, sizeof(buf));
		if (n > 0)
			n = sk->tcp->ops->recv(sk->tcp, buf, (size_t)n,
					       MSG_DONTWAIT);
		exi_unlock(&h->lock);
		if (n <= 0)
			break;
		FUZZ_TRUE(!forged(s));
		for (i = 0; i < n; i++)
			FUZZ_TRUE(!s->honest || buf[i] == byte_at(s->next++));
	}
	FUZZ_TRUE(n == -EAGAIN || !s->honest);
	return n == -EAGAIN;
}

static uint8_t begin(struct scene *s, struct fuzz_in *in)
{
	struct exi_sock *sk;
	struct exi_half *h;
	uint8_t how = fuzz_byte(in);

	memset(s, 0, sizeof(*s));
	fuzz_ends_begin(&s->e, how & 1, false);
	sk = s->e.sk;
	h = &sk->sh->half[EXI_RX];
	sk->fab = calloc(1, sizeof(*sk->fab));
	FUZZ_TRUE(sk->fab);
	sk->fab->provider = &provider;
	sk->fab->rops = &ready_ops;
	sk->fab->swops = &switch_ops;
	sk->fab->bell = -1;
	atomic_store(&sk->remote, true);
	exi_lock(&h->lock);
	h->mode = EXI_MODE_BACK;
	h->resume = how & 2 ? EXI_RESUME_AWAITED : EXI_RESUME_UNSURE;
	h->epoch = (uint32_t)fuzz_number(in);
	h->origin = (uint32_t)fuzz_number(in);
	atomic_store(&h->untaken, 1);
	h->link_read = 1;
	exi_unlock(&h->lock);
	position = h->origin + fuzz_below(in, BUF);
	s->next = position;
	return how;
}

static void end(struct scene *s)
{
	struct exi_sock *sk = s->e.sk;
	struct exi_conn *fab = sk->fab;
	struct exi_half *h = &sk->sh->half[EXI_RX];

	exi_lock(&h->lock);
	sk->fab = NULL;
	atomic_store(&sk->remote, false);
	h->mode = EXI_MODE_TCP;
	h->resume = EXI_RESUME_NONE;
	atomic_store(&h->untaken, 0);
	exi_unlock(&h->lock);
	free(fab);
	h = &sk->sh->half[EXI_TX];
	exi_lock(&h->lock);
	h->mode = EXI_MODE_TCP;
	h->ended = 0;
	sk->record_left = 0;
	exi_unlock(&h->lock);
	fuzz_ends_end(&s->e);
}

/* --- this end sends ----------------------------------------------------- */

/* A peer that reads, and compares with what it must get. */
static size_t read_at_peer(struct scene *s, const uint8_t *want, size_t left,
			   size_t most)
{
	static uint8_t buf[HELD];
	ssize_t n =
		recv(s->e.peer, buf, most < HELD ? most : HELD, MSG_DONTWAIT);

	if (n <= 0)
		return 0;
	FUZZ_TRUE((size_t)n <= left && !memcmp(buf, want, (size_t)n));
	return (size_t)n;
}

static int drain_on(struct scene *s)
{
	struct exi_sock *sk = s->e.sk;
	struct exi_half *h = &sk->sh->half[EXI_TX];
	int ret, waits = 0;

	exi_lock(&h->lock);
	ret = exi_flow_drain_locked(sk);
	FUZZ_TRUE(ret || (h->mode == EXI_MODE_TCP && held_from == held_to));
	/* There may be room again. */
	if (ret == -EAGAIN)
		waits = exi_flow_await_drain_locked(sk);
	exi_unlock(&h->lock);
	FUZZ_TRUE(!waits || waits == -EAGAIN);
	return ret;
}

/* What TCP had before, up to all that it has room for. */
static size_t fill(struct scene *s)
{
	struct exi_sock *sk = s->e.sk;
	size_t len = 0;
	ssize_t n;

	while (len < FILLED) {
		n = sk->tcp->ops->send(sk->tcp, held, FILLED - len, 0);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	return len;
}

static void begin_drain(struct scene *s, uint8_t *want, uint8_t how)
{
	struct exi_sock *sk = s->e.sk;
	struct exi_half *h = &sk->sh->half[EXI_TX];

	exi_lock(&h->lock);
	h->mode = EXI_MODE_DRAIN;
	h->ended = !!(how & 2);
	h->lingers = !!(how & 8);
	h->linger = (struct linger){ 0 };
	resume(NULL, EXI_TX, h->epoch, position, sk->record);
	memcpy(want, sk->record, EXI_RESUME);
	sk->record_left = EXI_RESUME;
	exi_unlock(&h->lock);
	for (size_t i = 0; i < held_to; i++)
		held[i] = want[EXI_RESUME + i] = byte_at((uint32_t)i);
}

/* False: the peer has reset the connection, or reads no more. */
static bool send_on(struct scene *s, struct fuzz_in *in)
{
	static uint8_t want[FILLED + EXI_RESUME + HELD];
	static const struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct pollfd p = { .fd = s->e.peer, .events = POLLIN };
	uint8_t how = fuzz_byte(in);
	size_t got = 0, len;
	int err, little = 1;

	held_from = 0;
	held_to = fuzz_below(in, HELD);
	memset(held, 0, sizeof(held));
	memset(want, 0, FILLED);
	if (how & 1) {
		T_OK(setsockopt(s->e.s, SOL_SOCKET, SO_SNDBUF, &little,
				sizeof(little)));
		T_OK(setsockopt(s->e.peer, SOL_SOCKET, SO_RCVBUF, &little,
				sizeof(little)));
	}
	len = how & 16 ? fill(s) : 0;
	begin_drain(s, want + len, how);
	len += EXI_RESUME + held_to;
	while ((err = drain_on(s)) == -EAGAIN && in->left) {
		if (how & 4 && fuzz_byte(in) % 4 == 1) {
			T_OK(connect(s->e.peer, &none, sizeof(none)));
			FUZZ_TRUE(drain_on(s) != -EAGAIN);
			return false;
		}
		got += read_at_peer(s, want + got, len - got,
				    1 + fuzz_below(in, HELD));
	}
	FUZZ_TRUE(!err || err == -EAGAIN);
	/* Without memory, the kernel takes 200 ms for the rest. */
	while (!err && !(how & 1) && got < len) {
		FUZZ_TRUE(poll(&p, 1, 10000) == 1);
		got += read_at_peer(s, want + got, len - got, HELD);
	}
	return !err;
}

/* --- the sender --------------------------------------------------------- */

static void keep_first(struct scene *s, const uint8_t *bytes, size_t n)
{
	size_t room = sizeof(s->first) - s->n_first;

	n = n < room ? n : room;
	memcpy(s->first + s->n_first, bytes, n);
	s->n_first += n;
}

/* In pieces, between which the reader looks. */
static bool say(struct scene *s, struct fuzz_in *in, const uint8_t *bytes,
		size_t len)
{
	size_t done = 0, n;

	while (done < len) {
		n = in->left ? 1 + fuzz_byte(in) * 37 % (len - done)
			     : len - done;
		if (send(s->e.peer, bytes + done, n,
			 MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n)
			return false;
		keep_first(s, bytes + done, n);
		done += n;
		if (!read_on(s))
			return false;
	}
	return true;
}

static bool say_stream(struct scene *s, struct fuzz_in *in, uint32_t at)
{
	static uint8_t buf[2 * BUF];
	size_t len = position - at + fuzz_below(in, BUF), i;

	for (i = 0; i < len; i++)
		buf[i] = byte_at(at + (uint32_t)i);
	return say(s, in, buf, len);
}

/* A record of a byte that the reader may have, and the stream from there. */
static bool go_on(struct scene *s, struct fuzz_in *in)
{
	struct exi_half *h = &s->e.sk->sh->half[EXI_RX];
	uint8_t record[EXI_RESUME];
	uint32_t at = position - fuzz_below(in, BUF);

	s->honest = true;
	resume(NULL, EXI_RX, h->epoch, at, record);
	return say(s, in, record, sizeof(record)) && say_stream(s, in, at);
}

static bool lie(struct scene *s, struct fuzz_in *in)
{
	struct exi_half *h = &s->e.sk->sh->half[EXI_RX];
	uint8_t bytes[EXI_RESUME + 200];
	size_t len;

	resume(NULL, fuzz_byte(in) % 8 ? EXI_RX : EXI_TX,
	       h->epoch + fuzz_byte(in) % 3, fuzz_number(in), bytes);
	for (len = fuzz_byte(in) % 4; len; len--)
		bytes[fuzz_byte(in) % EXI_RESUME] ^= fuzz_byte(in);
	len = 1 + fuzz_byte(in) % sizeof(bytes);
	if (len > EXI_RESUME)
		fuzz_copy(in, bytes + EXI_RESUME, len - EXI_RESUME);
	return say(s, in, bytes, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	struct scene s;
	bool lasts;
	uint8_t how;

	how = begin(&s, &in);
	lasts = !(how & 4) || send_on(&s, &in);
	how = fuzz_byte(&in);
	if (lasts && how % 4 == 0) {
		/* A sender of which nothing was acknowledged. */
		struct exi_half *h = &s.e.sk->sh->half[EXI_RX];

		s.honest = h->resume == EXI_RESUME_AWAITED;
		lasts = say_stream(&s, &in, h->origin);
	} else if (lasts && how % 4 == 1) {
		lasts = go_on(&s, &in);
	}
	s.honest = false;
	while (lasts && in.left)
		lasts = lie(&s, &in);
	ask_ends(&s, how >> 2);
	shutdown(s.e.peer, SHUT_WR);
	ask_ends(&s, how >> 2);
	read_on(&s);
	ask_ends(&s, how >> 2);
	end(&s);
	return 0;
}
