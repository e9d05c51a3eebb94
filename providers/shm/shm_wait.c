/* SPDX-License-Identifier: BSD-2-Clause */
/* Asking for wake-ups, and what can be done without waiting. */
#include "providers/shm/shm_int.h"

#include <errno.h>

#include "core/base/futex.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

/* shmp_look(), where a small record is likely. It is opened: so a peer that
 * takes its word back cannot make a program wait after bytes were reported to
 * it. */
static inline int open_next(struct shmp_priv *p, struct shmp_rx *rx)
{
	uint32_t n = rx->len ? 0 : shmp_small(shmp_in(p, rx), rx);

	if (exi_unlikely(!n))
		return shmp_look(p, rx);
	rx->used = 0;
	rx->len = n;
	return 1;
}

static bool readable(struct shmp_priv *p, struct shmp_rx *rx)
{
	return open_next(p, rx) != -EAGAIN;
}

/* Whether there is room for more than a little, as in the kernel's buffers: a
 * program that writes some KB when the ring is reported writable, and would
 * wait, may keep its peer waiting. A ring that can grow, or is to be left,
 * counts as writable: a program that asks before each send never finds that
 * there is no room, so the question counts as that. */
static bool writable(struct exi_conn *c, struct shmp_tx *tx)
{
	struct shmp_priv *p = shmp_priv(c);
	int64_t room = shmp_refresh_limit(tx, p);

	/* The connection goes to TCP. */
	if (exi_unlikely(p->starved) && room >= 0)
		return false;
	/* Sleepers are woken for a quarter of the ring. */
	if (exi_unlikely(shmp_whole(c)) && room >= 0)
		return tx->head - tx->taken <= shmp_whole(c) / 4;
	if (exi_likely(room - (int64_t)SHMP_RESERVE >= tx->bytes / 8))
		return true;
	if (!shmp_can_grow(p, tx) && (!p->small || p->gave_up))
		return false;
	tx->full_at = tx->taken;
	return true;
}

/* Asks for a wake-up when pos is passed; keeps other requests for it. */
static void request(_Atomic uint32_t *word, uint64_t pos, uint32_t bits)
{
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

	if ((now & ~SHMP_WAIT_MASK) == SHMP_WAIT_AT(pos))
		bits |= now & SHMP_WAIT_MASK;
	/* Read-modify-write: before the look that follows. Pairs with
	 * publish() and the add in shmp_publish_taken(). */
	atomic_exchange_explicit(word, SHMP_WAIT_AT(pos) | bits,
				 memory_order_seq_cst);
	exi_fence_after_rmw();
}

/* A whole message is admitted sooner than a waiter for room is told of it: a
 * call that was refused, and now waits, must not sleep if something was taken
 * since, because nothing more may be. True once for each refusal. */
static bool was_admitted(struct shmp_tx *tx)
{
	bool ret = tx->full_at != SHMP_NEVER && tx->full_at != tx->taken;

	if (ret)
		tx->full_at = SHMP_NEVER;
	return ret;
}

/* 0: the peer sends a wake-up when it takes something, from what it has taken
 * now. */
static int request_space(struct exi_conn *c, struct shmp_tx *tx, uint32_t bits)
{
	uint64_t taken;

	do {
		if (writable(c, tx))
			return -EBUSY;
		taken = tx->taken;
		if (exi_unlikely(shmp_whole(c)) && was_admitted(tx))
			return -EBUSY;
		request(&shmp_priv(c)->mine->space_wait, taken, bits);
		if (writable(c, tx))
			return -EBUSY;
	} while (taken != tx->taken);
	return 0;
}

/* Publishes for which sleep a bell is asked, before the request. A bell that
 * was asked for without a sleep is for another waiter, too. */
static void name_sleep(struct exi_conn *c, uint64_t pos)
{
	struct shmp_segment *mine = shmp_priv(c)->mine;
	uint32_t now =
		atomic_load_explicit(&mine->data_wait, memory_order_relaxed);
	bool others = (now & SHMP_WAIT_BELL) &&
		      (now & ~SHMP_WAIT_MASK) == SHMP_WAIT_AT(pos) &&
		      !atomic_load_explicit(&mine->sleep, memory_order_relaxed);

	atomic_store_explicit(&mine->sleep, others ? 0 : c->sleep,
			      memory_order_relaxed);
}

static int request_data(struct exi_conn *c, uint32_t bits)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	uint64_t pos;

	do {
		if (readable(p, rx))
			return -EBUSY;
		/* The peer may wait for the rest of what we took. */
		if (rx->published != rx->pos)
			shmp_publish_taken(c);
		pos = rx->pos;
		if (bits & SHMP_WAIT_BELL)
			name_sleep(c, pos);
		request(&p->mine->data_wait, pos, bits);
		if (readable(p, rx))
			return -EBUSY;
		/* A GROW came just then: the next record is elsewhere. */
	} while (pos != rx->pos);
	return 0;
}

/* What follows all that is there. -EBUSY: something came just now. */
static int request_next(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx, end;
	uint64_t pos;

	if (rx->published != rx->pos) /* as in request_data() */
		shmp_publish_taken(c);
	end = *rx;
	do {
		shmp_pass_all(p, &end);
		if (end.ended)
			return 0;
		pos = end.pos;
		name_sleep(c, pos);
		request(&p->mine->data_wait, pos, SHMP_WAIT_BELL);
		if (shmp_look(p, &end) != -EAGAIN)
			return -EBUSY;
	} while (pos != end.pos); /* as in request_data() */
	return 0;
}

static int conn_arm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	struct shmp_shared *s = shmp_shared(c);
	uint32_t bits = how == EXI_WAKE_WORD ? SHMP_WAIT_WORD : SHMP_WAIT_BELL;
	int ret;

	if (how == EXI_WAKE_NEXT)
		return request_next(c);
	ret = dir == EXI_RX ? request_data(c, bits)
			    : request_space(c, &s->tx, bits);

	/* A request that is left behind costs at most one needless ring. */
	if (ret == 0 && how == EXI_WAKE_WORD)
		++*(dir == EXI_RX ? &s->rx.sleepers : &s->tx.sleepers);
	return ret;
}

static void conn_disarm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_shared *s = shmp_shared(c);
	uint32_t *sleepers = dir == EXI_RX ? &s->rx.sleepers : &s->tx.sleepers;
	_Atomic uint32_t *word =
		dir == EXI_RX ? &p->mine->data_wait : &p->mine->space_wait;

	if (how != EXI_WAKE_WORD)
		atomic_fetch_and_explicit(word, ~SHMP_WAIT_BELL,
					  memory_order_relaxed);
	else if (*sleepers && --*sleepers == 0)
		atomic_fetch_and_explicit(word, ~SHMP_WAIT_WORD,
					  memory_order_relaxed);
}

static int conn_word(struct exi_conn *c, enum exi_dir dir, struct exi_word *ret)
{
	struct shmp_priv *p = shmp_priv(c);

	if (dir == EXI_RX) {
		ret->addr = shmp_plain(&shmp_in(p, &shmp_shared(c)->rx)->word);
		ret->value = 0;
	} else {
		ret->addr = shmp_plain(&p->theirs->taken_seq);
		ret->value = atomic_load_explicit(&p->theirs->taken_seq,
						  memory_order_relaxed);
	}
	return 0;
}

static bool conn_ready(struct exi_conn *c, enum exi_dir dir)
{
	struct shmp_shared *s = shmp_shared(c);

	return dir == EXI_RX ? readable(shmp_priv(c), &s->rx)
			     : writable(c, &s->tx);
}

static bool conn_nothing(struct exi_conn *c, struct exi_nothing *ret)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx;

	if (readable(p, rx))
		return false;
	ret->word = shmp_plain(&shmp_in(p, rx)->word);
	ret->value = 0;
	ret->pos = &rx->pos;
	ret->at = rx->pos;
	return true;
}

static bool conn_over(struct exi_conn *c)
{
	struct shmp_rx rx = shmp_shared(c)->rx;

	/* Asked at each receive of a message: not before the peer says so. */
	if (shmp_whole(c) && !atomic_load_explicit(&shmp_priv(c)->theirs->ends,
						   memory_order_relaxed))
		return false;
	shmp_pass_all(shmp_priv(c), &rx);
	return rx.ended;
}

static size_t conn_unread(struct exi_conn *c)
{
	struct shmp_rx rx = shmp_shared(c)->rx;

	return shmp_pass_all(shmp_priv(c), &rx);
}

/* The sender's sum, from what we took. If its ring can grow, the sender grows
 * or leaves it. */
static bool conn_full(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_rx *rx = &shmp_shared(c)->rx, end = *rx;
	uint64_t limit = rx->pos;

	if (rx->published != rx->pos)
		shmp_publish_taken(c);
	shmp_pass_all(p, &end);
	if (rx->pos < end.grown_at)
		limit = end.grown_at - end.before;
	return end.bytes == p->in_bytes &&
	       (int64_t)(limit + end.bytes - end.pos) <= end.bytes / 4;
}

/* What the peer left unread, if the kernel has reported that the peer is gone:
 * what it wrote is there; otherwise what it has not yet published as read. What
 * it published before the last switch does not count. */
static size_t conn_left_unread(struct exi_conn *c)
{
	const struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint64_t end = tx->head - (tx->ended ? shmp_record_bytes(0) : 0);
	uint64_t read = atomic_load_explicit(&shmp_priv(c)->theirs->read,
					     memory_order_relaxed);

	if (read >= end || tx->taken >= end)
		return 0;
	return (size_t)(end - (read < tx->taken ? tx->taken : read));
}

static int conn_peer_cpu(struct exi_conn *c)
{
	int cpu = __atomic_load_n(&shmp_shared(c)->rx.cpu, __ATOMIC_RELAXED);

	/* The peer's CPU is this thread's number if the low bits are the
	 * same. */
	return cpu < 0 ? cpu : (exi_cpu() & ~(int)SHMP_CPU_MASK) | cpu;
}

/* When the peer's process had sent something through the kernel, before the
 * record at pos. */
static uint64_t by_kernel(const struct shmp_segment *theirs, uint64_t pos)
{
	/* Pair with the releases in sent_by_kernel(). */
	uint64_t ret =
		atomic_load_explicit(&theirs->kernel, memory_order_acquire);
	uint64_t at =
		atomic_load_explicit(&theirs->kernel_at, memory_order_acquire);

	return pos < at ? atomic_load_explicit(&theirs->kernel_before,
					       memory_order_relaxed)
			: ret;
}

static void conn_first(struct exi_conn *c, uint64_t now, struct exi_first *ret)
{
	const struct shmp_segment *theirs = shmp_priv(c)->theirs;
	struct shmp_rx *rx = &shmp_shared(c)->rx;
	uint32_t made, epoch;
	uint64_t at;

	*ret = (struct exi_first){ 0 };
	if (open_next(shmp_priv(c), rx) < 0)
		return;
	made = __atomic_load_n(&shmp_in(shmp_priv(c), rx)->made,
			       __ATOMIC_RELAXED);
	ret->rings = (made >> SHMP_RINGS_SHIFT & SHMP_RINGS_MASK) + 1;
	if (!(made >> SHMP_TIME_SHIFT))
		return;
	/* Pair with the releases in begin_epoch(). */
	epoch = atomic_load_explicit(&theirs->epoch, memory_order_acquire);
	at = atomic_load_explicit(&theirs->epoch_at, memory_order_acquire);
	if (rx->pos < at)
		epoch = atomic_load_explicit(&theirs->epoch_before,
					     memory_order_relaxed);
	if (epoch)
		ret->sent = shmp_made_at(made, epoch, now);
	ret->kernel = by_kernel(theirs, rx->pos);
}

static void conn_want_times(struct exi_conn *c)
{
	atomic_store_explicit(&shmp_priv(c)->mine->timed, 1,
			      memory_order_relaxed);
}

static void conn_tcp_sends(struct exi_conn *c, uint64_t from)
{
	const struct shmp_priv *p = shmp_priv(c);
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	struct shmp_tcp *t = &p->mine->tcp[tx->n_tcp % SHMP_TCP];

	if (!atomic_load_explicit(&p->theirs->timed, memory_order_relaxed))
		return;
	tx->n_tcp++;
	/* Pair with the loads in conn_tcp_sent(): `from` changes while `when`
	 * is 0. All is stored before the call that sends. */
	atomic_store_explicit(&t->when, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&t->from, from, memory_order_relaxed);
	atomic_store_explicit(&t->when, exi_ticks(), memory_order_release);
}

static uint64_t conn_tcp_sent(struct exi_conn *c, uint64_t at)
{
	const struct shmp_tcp *tcp = shmp_priv(c)->theirs->tcp;
	uint64_t ret = 0;

	for (unsigned int i = 0; i < SHMP_TCP; i++) {
		uint64_t when = atomic_load_explicit(&tcp[i].when,
						     memory_order_acquire);
		uint64_t from = atomic_load_explicit(&tcp[i].from,
						     memory_order_relaxed);

		atomic_thread_fence(memory_order_acquire);
		if (from <= at && when > ret &&
		    when == atomic_load_explicit(&tcp[i].when,
						 memory_order_relaxed))
			ret = when;
	}
	return ret;
}

const struct exi_wait_ops shmp_wait_ops = {
	.arm = conn_arm,
	.disarm = conn_disarm,
	.word = conn_word,
	.peer_cpu = conn_peer_cpu,
};

const struct exi_ready_ops shmp_ready_ops = {
	.ready = conn_ready,
	.unread = conn_unread,
	.full = conn_full,
	.over = conn_over,
	.nothing = conn_nothing,
	.left_unread = conn_left_unread,
	.first = conn_first,
	.want_times = conn_want_times,
	.tcp_sends = conn_tcp_sends,
	.tcp_sent = conn_tcp_sent,
};
