/* SPDX-License-Identifier: BSD-2-Clause */
/* The rings by themselves: two ends in one process, without the core. Streams
 * with switches to and fro, rings that grow, and a peer that writes
 * nonsense. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/futex.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "providers/shm/shm_int.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define CHUNK_MAX 60000
#define STEPS	  60000
#define SEEDS	  (1 + 7 / t_slow())

static const struct exi_conn_ops *ops = &shmp_conn_ops;
static const struct exi_wait_ops *wops = &shmp_wait_ops;
static const struct exi_ready_ops *rops = &shmp_ready_ops;
static const struct exi_switch_ops *swops = &shmp_switch_ops;
static const struct exi_meet_ops *meet = &shmp_meet_ops;

static struct exi_conn *ends[2];
static struct exi_shared counted;
static int rings;	  /* calls for the peer's library, */
static uint64_t rung_for; /* and the sleep that the last one was to end */

/* In place of the core's, which the linker then leaves out, with what goes
 * with connections made by exs_ calls. */
uint32_t exi_conn_wake(struct exi_conn *c, uint64_t sleep)
{
	rings++;
	rung_for = sleep;
	return 1;
}

_Atomic uint32_t exi_conn_wakes;
_Atomic uint64_t exi_conn_sent;

void t_unlisten(void)
{
}

static struct exi_conn *end_new(void)
{
	struct exi_conn *c;
	size_t size = sizeof(*c) + ops->priv_size;

	c = aligned_alloc(64, (size + 63) & ~(size_t)63);
	T(c);
	memset(c, 0, size);
	c->provider = &exi_provider_shm;
	c->ops = ops;
	c->wops = wops;
	c->rops = rops;
	c->swops = swops;
	c->shared = aligned_alloc(EXI_LINE, sizeof(struct shmp_shared));
	T(c->shared);
	memset(c->shared, 0, sizeof(struct shmp_shared));
	c->sh = &counted;
	return c;
}

/* The ring of the end that is made next. */
static void set_ring(uint32_t kb)
{
	((struct exi_config *)(uintptr_t)exi_config())->ring_kb = kb;
}

static void end_free(struct exi_conn *c)
{
	ops->fini(c);
	free(c->shared);
	free(c);
}

static void begin_between(uint32_t kb0, uint32_t kb1)
{
	struct exi_blob offer, answer;

	ends[0] = end_new();
	ends[1] = end_new();
	set_ring(kb0);
	T_EQ(meet->offer(ends[0], &offer), 0);
	set_ring(kb1);
	T_EQ(meet->answer(ends[1], &offer, &answer), 0);
	set_ring(kb0);
	T_EQ(meet->accepted(ends[0], &answer), 0);
	close(offer.fd);
	close(answer.fd);
}

static void begin(const char *ring_kb)
{
	begin_between((uint32_t)atoi(ring_kb), (uint32_t)atoi(ring_kb));
}

static void end(void)
{
	end_free(ends[0]);
	end_free(ends[1]);
}

/* --- streams ------------------------------------------------------------ */

struct stream {
	struct t_rng rng;
	uint64_t seed;
	uint64_t sent;
	uint64_t received;
	uint64_t grown; /* how often */
	/* What was taken back and lies in "TCP". */
	unsigned char *tcp;
	size_t tcp_len;
	size_t tcp_read;
};

static unsigned char buf[CHUNK_MAX];

static uint32_t ring_now(void)
{
	return shmp_shared(ends[0])->tx.bytes;
}

static void send_some(struct stream *s)
{
	size_t len = t_chunk(&s->rng, CHUNK_MAX);
	uint32_t before = ring_now();
	ssize_t n;

	t_fill(buf, len, s->seed, s->sent);
	n = ops->send(ends[0], buf, len, 0);
	T(n == -EAGAIN || (n > 0 && (size_t)n <= len));
	if (n > 0)
		s->sent += (size_t)n;
	s->grown += ring_now() > before;
}

static void recv_some(struct stream *s, int flags)
{
	size_t len = t_chunk(&s->rng, CHUNK_MAX);
	ssize_t n;

	if (s->tcp_read < s->tcp_len) {
		n = s->tcp_len - s->tcp_read < len
			    ? (ssize_t)(s->tcp_len - s->tcp_read)
			    : (ssize_t)len;
		t_check_bytes(s->tcp + s->tcp_read, (size_t)n, s->seed,
			      s->received);
		if (flags & MSG_PEEK)
			return;
		s->tcp_read += (size_t)n;
	} else {
		n = ops->recv(ends[1], buf, len, flags);
		if (n == -EAGAIN) {
			T_EQ(s->received, s->sent);
			return;
		}
		T(n > 0 && (size_t)n <= len);
		t_check_bytes(buf, (size_t)n, s->seed, s->received);
	}
	if (!(flags & MSG_PEEK))
		s->received += (size_t)n;
}

static void begin_again(void)
{
	uint64_t head;

	T_EQ(swops->head(ends[0], &head), 0);
	T_EQ(swops->start(ends[1], head), 0);
}

#define RUNS 6

/* What the sender is to send again: runs that are not more than so many
 * bytes. */
static size_t runs_of(struct stream *s, struct iovec v[RUNS])
{
	size_t most = t_chunk(&s->rng, 20000),
	       want = 1 + t_below(&s->rng, RUNS);
	size_t n = swops->runs(ends[0], v, want, most), bytes = 0, i;
	const void *run;

	T(n <= want);
	for (i = 0; i < n; i++)
		bytes += v[i].iov_len;
	T(bytes <= most);
	if (n) {
		T(swops->drain(ends[0], &run) >= v[0].iov_len);
		T(run == v[0].iov_base);
	}
	return n;
}

/* The receiver gives back, the sender sends the rest over TCP, and both begin
 * anew. */
static void there_and_back(struct stream *s)
{
	struct iovec v[RUNS];
	uint64_t pos, used;
	size_t n, k, i;

	if (s->tcp_read < s->tcp_len)
		return;
	s->tcp_read = s->tcp_len = 0;
	swops->cursor(ends[1], &pos, &used);
	T_EQ(swops->takeback(ends[0], pos, used), 0);
	while ((k = runs_of(s, v)) > 0) {
		for (i = n = 0; i < k; i++)
			n += v[i].iov_len;
		n = n > 1000 ? t_chunk(&s->rng, n) : n;
		swops->drained(ends[0], n);
		s->tcp = realloc(s->tcp, s->tcp_len + n);
		T(s->tcp);
		for (i = 0; n; i++) {
			size_t part = v[i].iov_len < n ? v[i].iov_len : n;

			memcpy(s->tcp + s->tcp_len, v[i].iov_base, part);
			s->tcp_len += part;
			n -= part;
		}
	}
	T_EQ(s->received + s->tcp_len, s->sent);
	begin_again();
	T(!rops->ready(ends[1], EXI_RX));
	T_EQ(rops->unread(ends[1]), 0);
}

static void sleep_or_not(void)
{
	struct exi_word w;

	if (wops->arm(ends[1], EXI_RX, EXI_WAKE_WORD) == 0) {
		T_EQ(wops->word(ends[1], EXI_RX, &w), 0);
		T_EQ(*w.addr, w.value);
		T_EQ(ops->recv(ends[1], buf, 1, 0), -EAGAIN);
		wops->disarm(ends[1], EXI_RX, EXI_WAKE_WORD);
	}
	if (wops->arm(ends[0], EXI_TX, EXI_WAKE_WORD) == 0) {
		T(!rops->ready(ends[0], EXI_TX));
		wops->disarm(ends[0], EXI_TX, EXI_WAKE_WORD);
	}
}

/* One who waits for room is rung when room comes, in whatever part. */
static void a_full_ring_rings(struct stream *s)
{
	int before = rings;

	do
		send_some(s);
	while (wops->arm(ends[0], EXI_TX, EXI_WAKE_BELL));
	while (s->received < s->sent)
		recv_some(s, 0);
	T(rings > before);
}

#define GROWN 18 /* binary logarithm */

static uint64_t grown_at;

/* In the midst of a reader's request to be rung: the writer gets as far as the
 * GROW, and is held up before the record that follows. */
static void grow_meanwhile(int sig)
{
	struct shmp_priv *p = shmp_priv(ends[0]);
	struct shmp_tx *tx = &shmp_shared(ends[0])->tx;
	struct shmp_record *r = shmp_out(p, tx, tx->head);

	grown_at = shmp_grown_at(tx->head + shmp_record_bytes(0), tx->bytes,
				 1u << GROWN);
	atomic_store(&r->word,
		     shmp_word(SHMP_GROW, GROWN, tx->head, tx->bytes));
	mprotect(shmp_priv(ends[1])->mine, sizeof(struct shmp_segment),
		 PROT_READ | PROT_WRITE);
}

static void who_waits_while_a_ring_grows_waits_behind_it(void)
{
	static const enum exi_wake ways[] = { EXI_WAKE_BELL, EXI_WAKE_NEXT };
	struct sigaction sa = { .sa_handler = grow_meanwhile }, old;
	struct shmp_segment *mine;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		begin("1024");
		mine = shmp_priv(ends[1])->mine;
		T_EQ(sigaction(SIGSEGV, &sa, &old), 0);
		/* The store of the request is where it happens. */
		T_EQ(mprotect(mine, sizeof(*mine), PROT_READ), 0);
		T_EQ(wops->arm(ends[1], EXI_RX, ways[i]), 0);
		T_EQ(sigaction(SIGSEGV, &old, NULL), 0);
		T(grown_at > 0);
		T_EQ(atomic_load(&mine->data_wait),
		     SHMP_WAIT_AT(grown_at) | SHMP_WAIT_BELL);
		end();
	}
}

#define FILLER 8176

/* A look passes a GROW, and then the larger ring is full up to the word where
 * there was nothing, which is zero again: as many bytes were received as then,
 * and yet there is something. */
static void a_ring_that_grew_up_to_an_old_word_has_something(void)
{
	struct shmp_tx *tx;
	struct exi_nothing n;
	uint32_t left;

	begin("1024");
	tx = &shmp_shared(ends[0])->tx;
	T(rops->nothing(ends[1], &n));
	T(exi_nothing_still(&n));
	left = tx->bytes;
	T(ops->send(ends[0], buf, left, 0) > 0);
	T(tx->bytes > left);
	T(!exi_nothing_still(&n));
	T(rops->ready(ends[1], EXI_RX));
	T(!rops->full(ends[1])); /* tells the sender where it is */
	while ((left = -(uint32_t)tx->head & (tx->bytes - 1))) {
		uint32_t len = shmp_fits(left);

		len = len < FILLER ? len : FILLER; /* one record */
		T_EQ(ops->send(ends[0], buf, len, 0), len);
	}
	T_EQ(*n.word, n.value);
	T(!exi_nothing_still(&n));
	T(!rops->nothing(ends[1], &n));
	end();
}

#define HALF 32768

static unsigned char *halves; /* of what is sent, and of what comes */
static ssize_t came;

/* In the midst of a sender's copy: what it copied can be received. */
static void receive_meanwhile(int sig)
{
	came = ops->recv(ends[1], halves + (size_t)2 * HALF, 2 * HALF, 0);
	mprotect(halves + HALF, HALF, PROT_READ | PROT_WRITE);
}

static void a_long_send_is_received_while_it_is_copied(void)
{
	struct sigaction sa = { .sa_handler = receive_meanwhile }, old;
	unsigned char *to;
	ssize_t n;

	halves = mmap(NULL, (size_t)4 * HALF, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T(halves != MAP_FAILED);
	to = halves + (size_t)2 * HALF;
	t_fill(halves, 2 * HALF, 7, 0);
	begin("1024");
	T_EQ(sigaction(SIGSEGV, &sa, &old), 0);
	T_EQ(mprotect(halves + HALF, HALF, PROT_NONE), 0);
	T_EQ(ops->send(ends[0], halves, 2 * HALF, 0), 2 * HALF);
	T_EQ(sigaction(SIGSEGV, &old, NULL), 0);
	T(came >= HALF / 2 && came <= HALF);
	n = ops->recv(ends[1], to + came, (size_t)(2 * HALF - came), 0);
	T_EQ(came + n, 2 * HALF);
	T(memcmp(halves, to, 2 * HALF) == 0);
	end();
	munmap(halves, (size_t)4 * HALF);
}

static void ask(enum exi_wake how, uint64_t sleep)
{
	ends[1]->sleep = sleep;
	T_EQ(wops->arm(ends[1], EXI_RX, how), 0);
	ends[1]->sleep = 0;
}

static void rings_for(uint64_t sleep)
{
	int before = rings;
	char c = 0;

	T_EQ(ops->send(ends[0], &c, 1, 0), 1);
	T_EQ(rings, before + 1);
	T_EQ(rung_for, sleep);
	T_EQ(ops->recv(ends[1], &c, 1, 0), 1);
}

/* A request without a sleep is for every doorbell, whoever else asks. */
static void a_bell_is_for_the_sleep_that_asked(void)
{
	begin("64");
	for (int i = 0; i < 2; i++) {
		enum exi_wake how = i ? EXI_WAKE_NEXT : EXI_WAKE_BELL;

		ask(how, 7);
		rings_for(7);
		ask(how, 7);
		ask(how, 8);
		rings_for(8);
		ask(how, 9);
		ask(how, 0);
		rings_for(0);
		ask(how, 0);
		ask(how, 9);
		rings_for(0);
		/* Nobody's any more. */
		ask(how, 0);
		wops->disarm(ends[1], EXI_RX, EXI_WAKE_BELL);
		ask(how, 9);
		rings_for(9);
		ask(how, 9);
		T_EQ(wops->arm(ends[1], EXI_RX, EXI_WAKE_WORD), 0);
		rings_for(9);
		wops->disarm(ends[1], EXI_RX, EXI_WAKE_WORD);
	}
	end();
}

/* As who is left finds it, were the reader to die now. */
static void says_what_it_read(const struct stream *s)
{
	size_t on_tcp = s->tcp_len - s->tcp_read;

	T_EQ(rops->left_unread(ends[0]) > 0, s->received + on_tcp < s->sent);
}

static void stream(uint64_t seed, const char *ring_kb, bool may_grow)
{
	struct stream s = { .rng = { seed }, .seed = seed };
	int steps = STEPS / t_slow();
	int i;

	t_note("seed %llu, %s KiB", (unsigned long long)seed, ring_kb);
	begin(ring_kb);
	for (i = 0; i < steps; i++) {
		switch (t_below(&s.rng, 64)) {
		case 0:
			there_and_back(&s);
			break;
		case 1 ... 4:
			recv_some(&s, MSG_PEEK);
			break;
		case 5 ... 8:
			sleep_or_not();
			break;
		case 9:
			a_full_ring_rings(&s);
			break;
		case 10 ... 38:
			send_some(&s);
			break;
		default:
			recv_some(&s, 0);
			break;
		}
		says_what_it_read(&s);
	}
	T_EQ(ops->end(ends[0]), 0);
	says_what_it_read(&s);
	while (s.received < s.sent)
		recv_some(&s, 0);
	says_what_it_read(&s);
	T_EQ(ops->recv(ends[1], buf, 1, 0), 0);
	T(may_grow ? s.grown > 10 : s.grown == 0);
	free(s.tcp);
	end();
}

static void rings_that_grow_lose_nothing(void)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		stream(seed, "64", true);
}

static void rings_that_are_small_lose_nothing(void)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		stream(seed, "16", false);
}

static void rings_of_any_size_lose_nothing(void)
{
	static const char *const sizes[] = { "32", "128", "256", "1024",
					     "8192" };
	/* To fill the last one takes most of the time: minutes in slow
	 * builds. */
	size_t n = t_slow() > 1 ? T_COUNT(sizes) - 1 : T_COUNT(sizes);

	for (size_t i = 0; i < n; i++)
		stream(100 + i, sizes[i], true);
}

/* Also where the ring is almost full, so that nothing of another thread's comes
 * in between. */
static void a_short_send_is_whole_or_not_at_all(void)
{
	struct t_rng rng = { 5 };
	int refused = 0;
	ssize_t n;

	begin("16");
	for (int i = 0; i < STEPS; i++) {
		size_t len = t_chunk(&rng, 2000);
		bool ready = rops->ready(ends[0], EXI_TX);

		n = ops->send(ends[0], buf, len, 0);
		T_EQ(n, n < 0 ? -EAGAIN : (ssize_t)len);
		T(n > 0 || !ready);
		refused += n < 0;
		len = t_below(&rng, 3) ? 0 : t_chunk(&rng, 8000);
		T(!len || ops->recv(ends[1], buf, len, 0) != 0);
	}
	T(refused > 100);
	end();
}

/* Small messages that nobody takes get room as in the kernel's buffers; those
 * that somebody takes get none, however many they are. */
#define PARTED 40 /* no part of a ring */

static void *send_many(void *arg)
{
	char message[PARTED] = "";

	while (!atomic_load((_Atomic bool *)arg))
		ops->send(ends[0], message, sizeof(message), 0);
	return NULL;
}

/* Also where the ring's end parts it, for a reader who looks all the time. */
static void a_small_send_is_never_seen_in_part(void)
{
	struct t_deadline d = t_deadline_ms(3000 / t_slow());
	_Atomic bool over = false;
	pthread_t sender;
	char message[PARTED];

	begin("16");
	T_EQ(pthread_create(&sender, NULL, send_many, &over), 0);
	for (int got = 0; got < 1000000 && !t_over(&d);) {
		ssize_t n = ops->recv(ends[1], message, sizeof(message), 0);

		T_MSG(n == -EAGAIN || n == PARTED, "%zd", n);
		got += n > 0;
	}
	atomic_store(&over, true);
	T_EQ(pthread_join(sender, NULL), 0);
	end();
}

/* Wherever in a line of the cache its record begins, the ring's end included;
 * what follows the record is nothing. */
static void a_send_of_some_lines_is_whole_wherever_it_begins(void)
{
	unsigned char got[8192];
	uint64_t pos = 0;
	ssize_t n;

	begin("16");
	for (size_t len = 200; len < 4500; len += 1 + len % 7) {
		for (int shift = 0; shift < 5; shift++) {
			t_fill(buf, len + 8, 9, pos);
			/* Of 16 bytes: the next begins elsewhere. */
			T_EQ(ops->send(ends[0], buf, 8, 0), 8);
			T_EQ(ops->send(ends[0], buf + 8, len, 0), len);
			for (size_t all = 0; all < len + 8; all += (size_t)n) {
				n = ops->recv(ends[1], got, sizeof(got), 0);
				T(n > 0);
				t_check_bytes(got, (size_t)n, 9, pos + all);
			}
			pos += len + 8;
			T_EQ(ops->recv(ends[1], got, sizeof(got), 0), -EAGAIN);
		}
	}
	end();
}

/* Room that counts as none for a long send has none for a byte, wherever the
 * records end. */
static void a_ring_that_is_full_is_so_for_a_byte(void)
{
	for (size_t shift = 1; shift < 600; shift++) {
		begin("256");
		T_EQ(ops->send(ends[0], buf, shift * 32, 0), shift * 32);
		while (ops->send(ends[0], buf, CHUNK_MAX, 0) > 0)
			;
		T_EQ(ops->send(ends[0], buf, 1, 0), -EAGAIN);
		end();
	}
}

static void what_nobody_takes_gets_room(void)
{
	struct stream s = { .seed = 1 };
	uint64_t i;
	ssize_t n;

	begin("2048");
	for (i = 0; i < 100000; i++) {
		t_fill(buf, 64, 1, s.sent);
		T_EQ(ops->send(ends[0], buf, 64, 0), 64);
		s.sent += 64;
		if (i % 100 == 0)
			while (s.received < s.sent)
				recv_some(&s, 0);
	}
	T_EQ(ring_now(), shmp_priv(ends[0])->out_start);
	while (s.sent - s.received < (1 << 20)) {
		t_fill(buf, 64, 1, s.sent);
		n = ops->send(ends[0], buf, 64, 0);
		if (n > 0)
			s.sent += (uint64_t)n;
		else
			T(rops->ready(ends[0], EXI_TX));
	}
	while (s.received < s.sent)
		recv_some(&s, 0);
	end();
}

/* So do large ones, whose ring has grown once and grows before anything of the
 * one before is taken; and who takes finds all, whether the reader from the
 * rings or the sender that sends it again. */
static void what_nobody_takes_gets_room_by_large_sends(void)
{
	for (int way = 0; way < 2; way++) {
		struct stream s = { .rng = { 1 }, .seed = 1 };
		const struct shmp_tx *tx;
		ssize_t n;

		begin("2048");
		tx = &shmp_shared(ends[0])->tx;
		for (int i = 0; i < 100; i++) {
			T_EQ(ops->send(ends[0], buf, 500, 0), 500);
			T_EQ(ops->recv(ends[1], buf, 500, 0), 500);
		}
		s.sent = s.received = 50000;
		while (s.sent < 1900000) {
			t_fill(buf, sizeof(buf), 1, s.sent);
			n = ops->send(ends[0], buf, sizeof(buf), 0);
			if (n > 0)
				s.sent += (uint64_t)n;
			else
				T(rops->ready(ends[0], EXI_TX));
		}
		T_EQ(tx->bytes, 2 << 20);
		T(tx->taken < tx->before_at);
		if (way)
			there_and_back(&s);
		while (s.received < s.sent)
			recv_some(&s, 0);
		free(s.tcp);
		end();
	}
}

/* Neither end uses more of its ring than the other one has itself. */
static void ends_of_other_sizes_lose_nothing(void)
{
	static const uint32_t kb[][2] = {
		{ 16, 2048 }, { 2048, 16 }, { 64, 65536 }, { 65536, 256 }
	};
	unsigned int i, k;

	for (i = 0; i < T_COUNT(kb); i++) {
		struct stream s = { .rng = { i + 1 }, .seed = i + 1 };
		uint32_t least = kb[i][0] < kb[i][1] ? kb[i][0] : kb[i][1];

		begin_between(kb[i][0], kb[i][1]);
		for (k = 0; k < 2; k++) {
			T_EQ(shmp_priv(ends[k])->out_bytes, least * 1024);
			T_EQ(shmp_priv(ends[k])->in_bytes, least * 1024);
			T_EQ(shmp_priv(ends[k])->in_map,
			     SHMP_RING_OFFSET + least * 1024);
		}
		for (k = 0; k < 4000; k++) {
			if (t_below(&s.rng, 3))
				send_some(&s);
			else
				recv_some(&s, 0);
			if (!t_below(&s.rng, 500))
				there_and_back(&s);
		}
		while (s.received < s.sent)
			recv_some(&s, 0);
		T(least == 16 ? !s.grown : s.grown);
		free(s.tcp);
		end();
	}
}

static void without_memory_a_ring_stays_small(void)
{
	struct stream s = { .seed = 1 };
	ssize_t n;

	setenv("EXS_MEMORY_LIMIT_MB", "1", 1);
	begin("2048");
	do {
		t_fill(buf, sizeof(buf), 1, s.sent);
		n = ops->send(ends[0], buf, sizeof(buf), 0);
		s.sent += n > 0 ? (uint64_t)n : 0;
	} while (wops->arm(ends[0], EXI_TX, EXI_WAKE_BELL));
	T(ring_now() < shmp_priv(ends[0])->out_bytes);
	T(s.sent < (512 << 10));
	while (s.received < s.sent)
		recv_some(&s, 0);
	end();
}

/* --- a peer that writes nonsense ---------------------------------------- */

static struct shmp_segment *their_segment(void)
{
	return shmp_priv(ends[1])->mine;
}

/* Behind the peer's segment lies nothing that can be read. */
static void begin_guarded(void)
{
	struct shmp_priv *p;
	size_t size, page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *at;

	begin("64");
	p = shmp_priv(ends[0]);
	size = SHMP_RING_OFFSET + p->in_bytes;
	at = mmap(NULL, size + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		  0);
	T(at != MAP_FAILED);
	T(mremap((void *)(uintptr_t)p->theirs, size, size,
		 MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
	p->theirs = (struct shmp_segment *)at;
	p->in = at + SHMP_RING_OFFSET;
}

static void end_guarded(void)
{
	struct shmp_priv *p = shmp_priv(ends[0]);

	munmap((char *)(uintptr_t)p->theirs + SHMP_RING_OFFSET + p->in_bytes,
	       (size_t)sysconf(_SC_PAGESIZE));
	end();
}

static void scribble_ring(struct t_rng *r)
{
	struct shmp_priv *p = shmp_priv(ends[1]);
	uint32_t *w = (uint32_t *)p->out;
	int n = 1 + (int)t_below(r, 200);

	while (n--) {
		uint32_t kind = (uint32_t)t_below(r, 16);
		uint32_t len =
			(uint32_t)(t_below(r, 4) ? t_chunk(r, p->out_bytes * 2)
						 : t_rand(r));

		w[t_below(r, p->out_bytes / 16) * 4] =
			kind << SHMP_KIND_SHIFT | (len & SHMP_LEN_MASK);
		/* And where it is looked at next. */
		*(uint32_t *)(p->out + (shmp_shared(ends[0])->rx.pos &
					(shmp_shared(ends[0])->rx.bytes - 1))) =
			(uint32_t)(1 + t_below(r, 3)) << SHMP_KIND_SHIFT |
			(uint32_t)t_chunk(r, p->out_bytes * 2);
	}
}

static unsigned char large[1 << 18];

/* Records from end to end, and no end: whoever wrote them need do nothing
 * more. */
static void fill_ring(void)
{
	struct shmp_priv *p = shmp_priv(ends[1]);
	const uint32_t len = 4096 - SHMP_LARGE_HEAD;

	for (uint32_t at = 0; at < p->out_start; at += 4096)
		atomic_store(&((struct shmp_record *)(p->out + at))->word,
			     shmp_word(SHMP_DATA, len, at, p->out_start));
}

static void a_ring_full_of_records_is_read_once(void)
{
	size_t all;
	ssize_t n;

	begin("256");
	fill_ring();
	all = rops->unread(ends[0]);
	T(all > 0 && all < shmp_priv(ends[1])->out_start);
	T_EQ(ops->recv(ends[0], large, sizeof(large), MSG_PEEK), all);
	T_EQ(ops->recv(ends[0], large, sizeof(large), 0), all);
	/* Now it is seen to be none that a writer could have made. */
	T_EQ(ops->recv(ends[0], large, sizeof(large), 0), -EPROTO);
	T_EQ(ops->recv(ends[0], large, 1, 0), -EPROTO);
	T(rops->ready(ends[0], EXI_RX));
	T_EQ(rops->unread(ends[0]), 0);
	n = ops->recv(ends[0], large, sizeof(large), MSG_PEEK);
	T_EQ(n, -EPROTO);
	end();
}

static void a_ring_full_of_garbage_does_no_harm(void)
{
	struct t_rng r = { 7 };

	for (int i = 0; i < 300; i++) {
		begin_guarded();
		for (int k = 0; k < 30; k++) {
			size_t len = t_chunk(&r, sizeof(large));
			ssize_t n;

			scribble_ring(&r);
			n = ops->recv(ends[0], large, len,
				      t_below(&r, 3) ? 0 : MSG_PEEK);
			T(n == -EAGAIN || n == -EPROTO ||
			  (n >= 0 && (size_t)n <= len));
			n = wops->arm(ends[0], EXI_RX, EXI_WAKE_BELL);
			T(n == 0 || n == -EBUSY);
			rops->ready(ends[0], EXI_RX);
			rops->unread(ends[0]);
			rops->over(ends[0]);
			n = wops->arm(ends[0], EXI_RX, EXI_WAKE_NEXT);
			T(n == 0 || n == -EBUSY);
		}
		end_guarded();
	}
}

static void impossible_progress_is_refused(void)
{
	struct t_rng r = { 8 };

	for (int i = 0; i < 300; i++) {
		begin("64");
		for (int k = 0; k < 30; k++) {
			size_t len = t_chunk(&r, CHUNK_MAX);
			ssize_t n;

			/* Also what lies a few bytes beside what can be. */
			atomic_store(&their_segment()->taken,
				     t_below(&r, 4) == 0 ? t_rand(&r)
				     : t_below(&r, 2)
					     ? t_chunk(&r, 200000)
					     : shmp_shared(ends[0])->tx.head -
						       t_below(&r, 40));
			n = ops->send(ends[0], buf, len, 0);
			T(n == -EAGAIN || n == -EPROTO ||
			  (n > 0 && (size_t)n <= len));
			wops->arm(ends[0], EXI_TX, EXI_WAKE_WORD);
			wops->disarm(ends[0], EXI_TX, EXI_WAKE_WORD);
		}
		end();
	}
}

/* In a full ring, of which a little more was taken than a record allows. */
static void progress_between_records_is_refused(void)
{
	struct t_rng r = { 10 };

	for (int i = 0; i < 4000; i++) {
		uint64_t taken = 48 + t_below(&r, 4000), room;
		size_t len;
		ssize_t n;

		begin("16");
		while (ops->send(ends[0], buf, CHUNK_MAX, 0) > 0)
			;
		atomic_store(&their_segment()->taken, taken);
		room = taken - SHMP_RESERVE;
		len = room - t_below(&r, room < 40 ? room : 40);
		n = ops->send(ends[0], buf, len, 0);
		T(taken % SHMP_ALIGN ? n == -EPROTO
				     : n > 0 && (size_t)n <= len);
		end();
	}
}

static void impossible_cursors_do_no_harm(void)
{
	struct t_rng r = { 9 };

	for (int i = 0; i < 2000; i++) {
		struct shmp_priv *p;
		const void *run;
		size_t n;
		int turns = 0;

		begin("64");
		p = shmp_priv(ends[0]);
		for (int k = 0; k < 12; k++)
			ops->send(ends[0], buf, t_chunk(&r, CHUNK_MAX), 0);
		n = t_below(&r, 2) ? t_rand(&r) : t_chunk(&r, 100000);
		if (swops->takeback(ends[0], n & ~(size_t)15,
				    t_rand(&r) % 70000))
			goto next;
		while ((n = swops->drain(ends[0], &run)) > 0) {
			T((const unsigned char *)run >= p->out);
			T((const unsigned char *)run + n <=
			  p->out + p->out_bytes);
			swops->drained(ends[0], n);
			T(++turns < 100000);
		}
next:
		n = t_below(&r, 2) ? t_rand(&r) : t_chunk(&r, 300000);
		if (swops->start(ends[0], n & ~(size_t)15) == 0)
			ops->recv(ends[0], buf, sizeof(buf), 0);
		end();
	}
}

#define SEALED (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE)

static int forged(size_t size, int seals)
{
	int fd = T_OK(memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));

	T_OK(ftruncate(fd, (off_t)size));
	T_OK(fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

#define FORGED 65536u

static const struct shmp_blob good = { .magic = SHMP_MAGIC,
				       .version = SHMP_VERSION,
				       .ring_bytes = FORGED,
				       .start_bytes = 16384,
				       .takes_bytes = FORGED };

/* An end whose peer made a segment by hand, with a ring of so many bytes of
 * which start are used at once: *ret. */
static int try_against(uint32_t ring, uint32_t start, struct shmp_segment **ret,
		       struct exi_conn **ret_conn)
{
	size_t size = SHMP_RING_OFFSET + ring;
	struct exi_blob offer, answer = { .fd = -1 };
	struct exi_conn *c = end_new();
	struct shmp_blob b = good;
	int err;

	b.ring_bytes = ring;
	b.start_bytes = start;
	memcpy(offer.bytes, &b, sizeof(b));
	offer.fd = forged(size, F_SEAL_SHRINK);
	*ret = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, offer.fd,
		    0);
	T(*ret != MAP_FAILED);
	T_OK(fcntl(offer.fd, F_ADD_SEALS, SEALED));
	err = meet->answer(c, &offer, &answer);
	close(offer.fd);
	if (err)
		end_free(c);
	else
		*ret_conn = c;
	if (!err)
		close(answer.fd);
	return err;
}

static struct exi_conn *end_against(uint32_t ring, uint32_t start,
				    struct shmp_segment **ret)
{
	struct exi_conn *c = NULL;

	T_EQ(try_against(ring, start, ret, &c), 0);
	return c;
}

static void put_word(struct shmp_segment *s, size_t at, uint32_t kind,
		     uint32_t len)
{
	struct shmp_record *r = (void *)((char *)s + SHMP_RING_OFFSET + at);

	atomic_store(&r->word, kind << SHMP_KIND_SHIFT | len);
}

static size_t status_kb(const char *field)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[200];
	size_t ret = 0, n = strlen(field);

	T(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, field, n) && line[n] == ':')
			ret = strtoul(line + n + 1, NULL, 10);
	fclose(f);
	return ret;
}

/* One word in a ring of holes: the reader's look would fill them. */
static void holes_cost_no_more_than_the_limit(void)
{
	struct shmp_segment *theirs[16];
	struct exi_conn *c[16];
	size_t i, taken = 0, before = status_kb("RssShmem");

	setenv("EXS_MEMORY_LIMIT_MB", "4", 1);
	for (i = 0; i < T_COUNT(c); i++) {
		ssize_t n;

		c[i] = end_against(1 << 20, 16384, &theirs[i]);
		put_word(theirs[i], 0, SHMP_GROW, 20);
		for (n = 16384; n + 65552 < 1 << 20; n += 65552)
			put_word(theirs[i], (size_t)n, SHMP_DATA, 65536);
		while ((n = ops->recv(c[i], large, sizeof(large), 0)) > 0)
			taken += (size_t)n;
		T(n == -EAGAIN || n == -ENOBUFS);
		T_EQ(n == -ENOBUFS, i >= 3);
		T(rops->ready(c[i], EXI_RX) == (n == -ENOBUFS));
		T_EQ(ops->recv(c[i], large, 1, MSG_PEEK), n);
	}
	T(taken > 2 << 20);
	T(status_kb("RssShmem") - before < 5 << 10);
	for (i = 0; i < T_COUNT(c); i++) {
		end_free(c[i]);
		munmap(theirs[i], SHMP_RING_OFFSET + (1 << 20));
	}
	/* And what is gone does not count. */
	c[0] = end_against(1 << 20, 1 << 20, &theirs[0]);
	end_free(c[0]);
}

static void a_start_over_the_limit_is_left(void)
{
	struct shmp_segment *theirs;

	setenv("EXS_MEMORY_LIMIT_MB", "1", 1);
	end_free(end_against(1 << 19, 1 << 19, &theirs));
	T_EQ(try_against(1 << 20, 1 << 20, &theirs, NULL), -ENOMEM);
}

static void a_longer_record_than_a_sender_writes_is_refused(void)
{
	struct shmp_segment *theirs;
	struct exi_conn *c = end_against(1 << 20, 1 << 20, &theirs);

	put_word(theirs, 0, SHMP_DATA, SHMP_PIECE_MAX + 1);
	T_EQ(ops->recv(c, large, sizeof(large), 0), -EPROTO);
	end_free(c);
	c = end_against(1 << 20, 1 << 20, &theirs);
	put_word(theirs, 0, SHMP_DATA, SHMP_PIECE_MAX);
	T_EQ(ops->recv(c, large, sizeof(large), 0), SHMP_PIECE_MAX);
	end_free(c);
}

/* Before Linux 5.14. */
static bool no_populate;
static _Atomic int madvised;

int madvise(void *at, size_t len, int advice)
{
	madvised++;
	if (no_populate && (advice == 22 || advice == 23)) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_madvise, at, len, advice);
}

/* The ring from its second page on, which ends with the first: as a page that
 * no memory is left for. */
/* Emulators say that they populated what is not there. */
static void needs_populate(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = forged(page, F_SEAL_SHRINK), err;
	char *at = mmap(NULL, 2 * page, PROT_READ, MAP_SHARED, fd, 0);

	T(at != MAP_FAILED);
	no_populate = false;
	err = madvise(at + page, page, MADV_POPULATE_READ);
	T_OK(munmap(at, 2 * page));
	close(fd);
	if (!t_can(err < 0, "madvise(MADV_POPULATE_READ)"))
		exit(T_SKIP);
}

static void a_page_that_cannot_be_made_is_no_signal(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct shmp_segment *theirs;

	needs_populate();
	for (int i = 0; i < 2; i++) {
		struct exi_conn *c = end_against(FORGED, FORGED, &theirs);
		struct shmp_priv *p = shmp_priv(c);
		int fd = forged(page, F_SEAL_SHRINK);

		no_populate = i;
		T(mmap((char *)(uintptr_t)p->theirs + page, p->in_map - page,
		       PROT_READ, MAP_SHARED | MAP_FIXED, fd,
		       (off_t)page) != MAP_FAILED);
		put_word(theirs, 0, SHMP_DATA, 1000);
		put_word(theirs, 1024, SHMP_DATA, 8000);
		T_EQ(ops->recv(c, large, 1000, 0), 1000);
		T_EQ(ops->recv(c, large, sizeof(large), 0), -ENOBUFS);
		T_EQ(ops->recv(c, large, sizeof(large), MSG_PEEK), -ENOBUFS);
		T_EQ(rops->unread(c), 0);
		T(rops->ready(c, EXI_RX));
		close(fd);
		end_free(c);
	}
}

/* In one ring, and over the records that say that it grows: whoever asks how
 * much is unread, and then reads, looks for each page once. */
static void a_page_is_looked_for_once(void)
{
	size_t all = 0, first;
	ssize_t n;

	no_populate = false;
	begin("1024");
	first = ring_now();
	while (all < 2 * sizeof(large)) {
		n = ops->send(ends[0], large, 3000, 0);
		T(n > 0 || n == -EAGAIN);
		all += n > 0 ? (size_t)n : 0;
	}
	T(ring_now() > first);
	madvised = 0;
	T_EQ(rops->unread(ends[1]), all);
	T(madvised > 0);
	madvised = 0;
	T_EQ(rops->unread(ends[1]), all);
	T(!rops->over(ends[1]));
	T_EQ(ops->recv(ends[1], large, sizeof(large), MSG_PEEK), sizeof(large));
	for (size_t got = 0; got < all; got += (size_t)n) {
		n = ops->recv(ends[1], large, sizeof(large), 0);
		T(n > 0);
		T_EQ(rops->unread(ends[1]), all - got - (size_t)n);
	}
	T_EQ(madvised, 0);
	end();
}

/* The sender's own ring from byte `from` of the segment on. */
static void leave_no_memory(size_t from)
{
	struct shmp_priv *p = shmp_priv(ends[0]);
	int fd = forged(from, F_SEAL_SHRINK);

	T(mmap((char *)p->mine + from, p->out_map - from,
	       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
	       (off_t)from) != MAP_FAILED);
	close(fd);
}

static size_t fill(size_t len)
{
	size_t sent = 0;
	int full = 0;
	ssize_t n;

	/* A ring that cannot grow is left when nothing was taken since. */
	while ((n = ops->send(ends[0], large, len, 0)) > 0 ||
	       (n == -EAGAIN && !full++))
		sent += n > 0 ? (size_t)n : 0;
	T_EQ(n, -ENOBUFS);
	T_EQ(ops->send(ends[0], large, len, 0), -EAGAIN);
	T(!rops->ready(ends[0], EXI_TX));
	return sent;
}

/* Small sends and large ones; in the first ring, and where it would grow. */
static void a_page_of_its_own_that_cannot_be_made_is_no_signal(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), sent;
	static const size_t lens[] = { 40, 1000, sizeof(large) };

	needs_populate();
	for (size_t i = 0; i < 4 * T_COUNT(lens); i++) {
		size_t from = i & 2 ? page : 5 * page, got = 0;
		ssize_t n;

		no_populate = i & 1;
		begin("1024");
		leave_no_memory(from);
		sent = fill(lens[i / 4]);
		T(sent < from);
		T(sent > from / 2 || lens[i / 4] > from);
		T_EQ(ops->end(ends[0]), 0);
		while ((n = ops->recv(ends[1], large, sizeof(large), 0)) > 0)
			got += (size_t)n;
		T_EQ(n, 0);
		T_EQ(got, sent);
		end();
	}
}

/* What cannot be had is told before the peer is told to read there. */
static void a_switch_to_a_page_that_cannot_be_made_is_refused(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t head;

	needs_populate();
	begin("64");
	T_EQ(ops->send(ends[0], large, page, 0), page);
	leave_no_memory(page);
	T_EQ(swops->head(ends[0], &head), -ENOBUFS);
	end();
}

static void mappings_leave_address_space(void)
{
	struct rlimit l = { .rlim_cur = 512u << 20, .rlim_max = RLIM_INFINITY };
	struct rlimit now;
	struct shmp_segment *theirs;
	struct exi_conn *c[64];
	int n = 0, err = 0;

	/* A sanitizer maps terabytes, an eighth of which nothing here fills. */
	if (status_kb("VmSize") >= 1 << 20)
		return;
	set_ring(1024);
	T_OK(getrlimit(RLIMIT_AS, &l));
	l.rlim_cur = (rlim_t)status_kb("VmSize") * 1024 + (512u << 20);
	T_OK(setrlimit(RLIMIT_AS, &l));
	T_OK(getrlimit(RLIMIT_AS, &now));
	if (!t_can(now.rlim_cur == l.rlim_cur, "RLIMIT_AS"))
		exit(T_SKIP);
	while (!err && n < 64)
		err = try_against(1 << 20, 16384, &theirs, &c[n++]);
	T_EQ(err, -ENOMEM);
	T((n - 1) * (2u << 20) <= l.rlim_cur / 8);
	l.rlim_cur = l.rlim_max;
	T_OK(setrlimit(RLIMIT_AS, &l));
	T_EQ(try_against(1 << 20, 16384, &theirs, &c[n - 1]), 0);
	while (n)
		end_free(c[--n]);
}

static int map_count(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	int c, n = 0;

	T(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* The most mappings a process may have. */
static int most_maps(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
	int n = 0;

	T(f);
	T_EQ(fscanf(f, "%d", &n), 1);
	fclose(f);
	return n;
}

static void mappings_leave_some_to_others(void)
{
	int i, n = 0, err = 0, most = most_maps(), before = map_count();
	struct exi_conn **c = calloc((size_t)most, sizeof(*c));
	struct exi_blob offer;

	T(c);
	set_ring(16);
	/* A machine that allows many has the limit of memory first. */
	while (!err && n < most) {
		c[n] = end_new();
		offer.fd = -1;
		err = meet->offer(c[n++], &offer);
		close(offer.fd);
	}
	T_EQ(err, -ENOMEM);
	T(map_count() - before <= most / 2 + 100); /* and malloc's own */
	for (i = 0; i < most / 4; i++)
		T(mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	while (n)
		end_free(c[--n]);
	free(c);
}

/* A blob that describes size bytes of ring, after change(). */
static void is_refused(struct shmp_blob b, int fd)
{
	struct exi_blob offer = { .fd = fd }, answer = { .fd = -1 };
	struct exi_conn *c = end_new();

	memcpy(offer.bytes, &b, sizeof(b));
	T_EQ(meet->answer(c, &offer, &answer), -EPROTO);
	T_EQ(answer.fd, -1);
	end_free(c);
	if (fd >= 0)
		close(fd);
}

/* A reader that goes back behind what it said it took would be sent that
 * again. */
static void what_was_taken_is_not_taken_back(void)
{
	uint64_t pos, used;
	int i;

	begin("16");
	for (i = 0; i < 20; i++) {
		T_EQ(ops->send(ends[0], buf, 1000, 0), 1000);
		T_EQ(ops->recv(ends[1], buf, 1000, 0), 1000);
	}
	swops->cursor(ends[1], &pos, &used);
	T_EQ(ops->send(ends[0], buf, 1000, 0), 1000);
	T_EQ(swops->takeback(ends[0], 0, 0), -EPROTO);
	T_EQ(swops->takeback(ends[0], pos, used), 0);
	end();
}

/* A program that was told of bytes may receive without fear of a wait. */
static void what_a_look_found_is_not_taken_back(void)
{
	static const size_t sizes[] = { 1, 8, 20, 64, 100, 1000 };
	struct shmp_record *r;
	size_t i;
	char *out;

	begin("16");
	out = (char *)shmp_priv(ends[0])->out;
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		r = (void *)(out + shmp_shared(ends[0])->tx.head);
		T_EQ(ops->send(ends[0], buf, sizes[i], 0), sizes[i]);
		T(rops->ready(ends[1], EXI_RX));
		atomic_store(&r->word, 0);
		T_EQ(ops->recv(ends[1], buf, sizeof(buf), 0), sizes[i]);
	}
	end();
}

static void impossible_offers_are_refused(void)
{
	const size_t size = SHMP_RING_OFFSET + FORGED;
	struct shmp_blob b = good;
	int fd = T_OK(open("/dev/null", O_RDWR | O_CLOEXEC));

	exi_config_load();
	is_refused(good, fd);
	is_refused(good, -1);
	for (int bit = 1; bit <= SEALED; bit <<= 1)
		if (SEALED & bit)
			is_refused(good, forged(size, SEALED & ~bit));
	is_refused(good, forged(size - 1, SEALED));
	is_refused(good, forged(size + 1, SEALED));
	is_refused(good, forged(0, SEALED));
	b.magic++;
	is_refused(b, forged(size, SEALED));
	b = good;
	b.version++;
	is_refused(b, forged(size, SEALED));
	b = good;
	b.start_bytes = 0;
	is_refused(b, forged(size, SEALED));
	b.start_bytes = 16383;
	is_refused(b, forged(size, SEALED));
	b.start_bytes = 131072;
	is_refused(b, forged(size, SEALED));
	b = good;
	b.ring_bytes = 65537;
	is_refused(b, forged(SHMP_RING_OFFSET + 65537, SEALED));
	b.ring_bytes = 0;
	is_refused(b, forged(SHMP_RING_OFFSET, SEALED));
	b.ring_bytes = UINT32_MAX;
	is_refused(b, forged(size, SEALED));
	b = good;
	b.takes_bytes = 0;
	is_refused(b, forged(size, SEALED));
	b.takes_bytes = 8192;
	is_refused(b, forged(size, SEALED));
	b.takes_bytes = 20000;
	is_refused(b, forged(size, SEALED));
	b.takes_bytes = UINT32_MAX;
	is_refused(b, forged(size, SEALED));
	b = good;
	b.start_bytes = FORGED;
	set_ring(32);
	is_refused(b, forged(size, SEALED));
}

/* --- times -------------------------------------------------------------- */

static struct exi_first first(void)
{
	struct exi_first ret;

	rops->first(ends[1], exi_ticks(), &ret);
	return ret;
}

static void send_one(void)
{
	T_EQ(ops->send(ends[0], "x", 1, 0), 1);
}

static void a_record_says_when_it_was_sent(void)
{
	uint64_t before, after;
	char c;

	begin("64");
	send_one();
	T_EQ(first().sent, 0u);
	rops->want_times(ends[1]);
	T_EQ(ops->recv(ends[1], &c, 1, 0), 1);
	for (int i = 0; i < 1000; i++) {
		before = exi_ticks();
		send_one();
		after = exi_ticks();
		T(first().sent + SHMP_UNIT > before);
		/* The first unit of an epoch reads as the second, and the next
		 * one is later than that. */
		T(first().sent <= after + 2 * SHMP_UNIT);
		/* The later one changes nothing of the first. */
		send_one();
		T(first().sent <= after + 2 * SHMP_UNIT);
		T_EQ(ops->recv(ends[1], &c, 1, 0), 1);
		T(first().sent + SHMP_UNIT > after);
		T_EQ(ops->recv(ends[1], &c, 1, 0), 1);
	}
	end();
}

/* Which of two connections was sent to first is told by this alone. */
static void a_later_record_has_a_later_time(void)
{
	uint64_t before = 0, equal = 0;
	char c;

	begin("64");
	rops->want_times(ends[1]);
	for (int i = 0; i < 200000; i++) {
		send_one();
		send_one();
		for (int k = 0; k < 2; k++) {
			equal += first().sent < before + SHMP_UNIT;
			before = first().sent;
			T_EQ(ops->recv(ends[1], &c, 1, 0), 1);
		}
	}
	T_EQ(equal, 0u);
	end();
}

static void a_time_is_right_in_the_epoch_after(void)
{
	const uint64_t epoch = UINT64_C(1) << SHMP_EPOCH_SHIFT;
	uint64_t sent;

	begin("64");
	rops->want_times(ends[1]);
	send_one();
	sent = first().sent;
	/* Another record, in the next epoch. */
	while (exi_ticks() < sent + epoch)
		exi_pause();
	send_one();
	T_EQ(first().sent, sent);
	end();
}

static void a_peer_may_say_any_time(void)
{
	struct shmp_segment *theirs;

	begin("64");
	theirs = shmp_priv(ends[0])->mine;
	rops->want_times(ends[1]);
	send_one();
	for (uint32_t i = 0; i < 64; i++) {
		theirs->epoch = theirs->epoch_before = 0x9e3779b9u * i;
		theirs->epoch_at = i % 2 ? UINT64_MAX : 0;
		first();
	}
	end();
}

static void a_record_counts_what_went_by_the_kernel(void)
{
	uint32_t before;
	char c;

	begin("64");
	send_one();
	before = first().rings;
	T(before > 0);
	exi_conn_wakes++;
	T_EQ(ops->recv(ends[1], &c, 1, 0), 1);
	send_one();
	T(first().rings != before);
	end();
}

static void a_record_says_when_the_kernel_had_something(void)
{
	char c;

	begin("64");
	rops->want_times(ends[1]);
	exi_conn_sent = 5;
	send_one();
	send_one();
	T_EQ(first().kernel, 5u);
	exi_conn_sent = 7;
	send_one();
	/* What comes first was sent before that. */
	T_EQ(first().kernel, 5u);
	T_EQ(ops->recv(ends[1], &c, 1, 0), 1);
	T_EQ(first().kernel, 5u);
	T_EQ(ops->recv(ends[1], &c, 1, 0), 1);
	T_EQ(first().kernel, 7u);
	exi_conn_sent = 0;
	end();
}

static void bytes_on_tcp_have_their_times(void)
{
	uint64_t before[SHMP_TCP + 1], after[SHMP_TCP + 1];

	begin("64");
	/* Nobody wants to know. */
	rops->tcp_sends(ends[0], 0);
	T_EQ(rops->tcp_sent(ends[1], 0), 0u);
	rops->want_times(ends[1]);
	for (uint64_t i = 0; i <= SHMP_TCP; i++) {
		before[i] = exi_ticks();
		rops->tcp_sends(ends[0], 100 * i);
		after[i] = exi_ticks();
	}
	/* The first is not said any more, and no byte is before it. */
	T_EQ(rops->tcp_sent(ends[1], 99), 0u);
	for (uint64_t i = 1; i <= SHMP_TCP; i++)
		for (uint64_t at = 100 * i; at < 100 * i + 100; at += 99) {
			T(rops->tcp_sent(ends[1], at) >= before[i]);
			T(rops->tcp_sent(ends[1], at) <= after[i]);
		}
	/* What goes over TCP then was sent before. */
	T_OK(swops->takeback(ends[0], 0, 0));
	T_EQ(rops->tcp_sent(ends[1], 100), 0u);
	end();
}

static const struct t_row rows[] = {
	T_ROW_LONG(rings_that_grow_lose_nothing, 120),
	T_ROW_LONG(rings_that_are_small_lose_nothing, 120),
	T_ROW_LONG(rings_of_any_size_lose_nothing, 120),
	T_ROW(a_short_send_is_whole_or_not_at_all),
	T_ROW(a_small_send_is_never_seen_in_part),
	T_ROW(a_send_of_some_lines_is_whole_wherever_it_begins),
	T_ROW(a_ring_that_is_full_is_so_for_a_byte),
	T_ROW(what_nobody_takes_gets_room),
	T_ROW(what_nobody_takes_gets_room_by_large_sends),
	T_ROW(who_waits_while_a_ring_grows_waits_behind_it),
	T_ROW(a_ring_that_grew_up_to_an_old_word_has_something),
	T_ROW(a_long_send_is_received_while_it_is_copied),
	T_ROW(a_bell_is_for_the_sleep_that_asked),
	T_ROW(ends_of_other_sizes_lose_nothing),
	T_ROW(without_memory_a_ring_stays_small),
	T_ROW(a_ring_full_of_records_is_read_once),
	T_ROW_LONG(a_ring_full_of_garbage_does_no_harm, 120),
	T_ROW_LONG(impossible_progress_is_refused, 120),
	T_ROW_LONG(progress_between_records_is_refused, 120),
	T_ROW_LONG(impossible_cursors_do_no_harm, 120),
	T_ROW(what_was_taken_is_not_taken_back),
	T_ROW(what_a_look_found_is_not_taken_back),
	T_ROW(impossible_offers_are_refused),
	T_ROW(holes_cost_no_more_than_the_limit),
	T_ROW(a_start_over_the_limit_is_left),
	T_ROW(a_longer_record_than_a_sender_writes_is_refused),
	T_ROW(a_page_that_cannot_be_made_is_no_signal),
	T_ROW(a_page_is_looked_for_once),
	T_ROW(a_page_of_its_own_that_cannot_be_made_is_no_signal),
	T_ROW(a_switch_to_a_page_that_cannot_be_made_is_refused),
	T_ROW(mappings_leave_address_space),
	T_ROW(mappings_leave_some_to_others),
	T_ROW(a_record_says_when_it_was_sent),
	T_ROW(a_later_record_has_a_later_time),
	T_ROW(a_time_is_right_in_the_epoch_after),
	T_ROW(a_peer_may_say_any_time),
	T_ROW(a_record_counts_what_went_by_the_kernel),
	T_ROW(a_record_says_when_the_kernel_had_something),
	T_ROW(bytes_on_tcp_have_their_times),
};

int main(int argc, char **argv)
{
	return t_run("shm", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
