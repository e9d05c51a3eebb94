/* SPDX-License-Identifier: BSD-2-Clause */
/* The queue pair of a connection: posting with credits, and what arrives.
 *
 * Credits. Each end has VERBSP_CREDITS buffers ready for the other, counts the
 * messages it sent, and knows how many of them were received: every message
 * says so, and one with nothing else does after VERBSP_GIVE. What carries bytes
 * leaves VERBSP_RESERVE, so that a message that gives credits back can always be
 * sent: for VERBSP_CREDITS messages that came, at most VERBSP_CREDITS / VERBSP_GIVE of
 * those are due, and the engine's few ACKs. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- waking ------------------------------------------------------------- */

/* The bell is not wanted any more; whether it was. */
static bool silence(struct verbsp_link *l, enum exi_dir dir)
{
	if (!atomic_load(&l->bell[dir]) ||
	    !atomic_exchange(&l->bell[dir], false))
		return false;
	atomic_fetch_sub(&l->net->armed, 1);
	return true;
}

/* The core is to look. One ring that it has not heard is enough. */
static void ring(struct verbsp_link *l)
{
	char byte = 1;

	send(l->pair, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Something came that the direction waits for. */
static void wake(struct verbsp_link *l, enum exi_dir dir)
{
	if (atomic_load(&l->sleepers[dir]))
		verbsp_host->futex_wake((uint32_t *)&l->stir, INT_MAX);
	if (silence(l, dir))
		ring(l);
}

/* After what came was stored. Pairs with the flag, then the look, of arm(). */
static void stir(struct verbsp_link *l, enum exi_dir dir)
{
	atomic_fetch_add(&l->stir, 1);
	wake(l, dir);
}

void verbsp_link_want(struct verbsp_link *l, enum exi_dir dir, bool word)
{
	if (word)
		atomic_fetch_add(&l->sleepers[dir], 1);
	if (word || !atomic_exchange(&l->bell[dir], true))
		atomic_fetch_add(&l->net->armed, 1);
	verbsp_net_request(l->net);
}

void verbsp_link_want_no_more(struct verbsp_link *l, enum exi_dir dir,
			      bool word)
{
	if (!word) {
		silence(l, dir);
		return;
	}
	atomic_fetch_sub(&l->sleepers[dir], 1);
	atomic_fetch_sub(&l->net->armed, 1);
}

void verbsp_link_fail(struct verbsp_link *l, int err, const char *why)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&l->err, &none, err))
		return;
	verbsp_log(EXI_LOG_DEBUG, "verbs: a queue pair ends: %s", why);
	stir(l, EXI_RX);
	stir(l, EXI_TX);
	if (l->pair >= 0)
		shutdown(l->pair, SHUT_RDWR);
}

void verbsp_link_kill(struct verbsp_link *l)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (atomic_exchange(&l->dead, true))
		return;
	if (l->qp)
		ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
	verbsp_link_fail(l, -ECONNRESET, "given up");
}

/* --- posting ------------------------------------------------------------ */

/* Requests that the queue pair would take. The post lock is held. */
static unsigned int room(struct verbsp_link *l)
{
	unsigned int under_way = l->posted - atomic_load(&l->done);

	if (under_way + 2 * VERBSP_SIGNAL_EVERY > VERBSP_SEND_DEPTH) {
		verbsp_net_reap(l->net);
		under_way = l->posted - atomic_load(&l->done);
	}
	return VERBSP_SEND_DEPTH - under_way;
}

static bool may_send(struct verbsp_link *l, bool reserve)
{
	unsigned int under_way = l->sent - atomic_load(&l->credited);

	return !atomic_load(&l->err) && room(l) >= 2 &&
	       under_way + (reserve ? 0 : VERBSP_RESERVE) < VERBSP_CREDITS;
}

/* A request, or two, with one call of the device. */
static int post(struct verbsp_link *l, struct ibv_send_wr *first)
{
	struct ibv_send_wr *bad;
	int err;

	for (struct ibv_send_wr *wr = first; wr; wr = wr->next) {
		l->posted++;
		wr->wr_id = (uint64_t)l->net->slot[l->slot].generation << 40 |
			    (uint64_t)l->slot << 32 | l->posted;
		if (l->posted % VERBSP_SIGNAL_EVERY == 0)
			wr->send_flags |= IBV_SEND_SIGNALED;
	}
	err = -abs(ibv_post_send(l->qp, first, &bad)); /* siw's is negative */
	if (err)
		verbsp_link_fail(l, -ECONNRESET, strerror(-err));
	return err;
}

/* The other end would stop before it gives credits back by itself: its service
 * is to look. */
static bool urges(const struct verbsp_link *l)
{
	return l->sent - atomic_load(&l->credited) >= VERBSP_CREDITS / 2;
}

/* After another request, or null. */
static int say_locked(struct verbsp_link *l, struct verbsp_msg *m,
		      const void *extra, bool urgent, struct ibv_send_wr *after)
{
	/* Free again: what was sent so many messages ago was received. */
	unsigned char *bytes =
		l->out.at + l->sent % VERBSP_CREDITS * VERBSP_MSG_MAX;
	struct ibv_sge sge = { .addr = (uintptr_t)bytes,
			       .length = (uint32_t)sizeof(*m) + m->extra,
			       .lkey = l->out.mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags =
			sge.length <= l->net->inline_max ? IBV_SEND_INLINE : 0,
	};

	l->sent++;
	if (urgent || urges(l))
		wr.send_flags |= IBV_SEND_SOLICITED;
	atomic_store(&l->owes, false);
	__atomic_store_n(&l->given, atomic_load(&l->received),
			 __ATOMIC_RELAXED);
	m->credits = htole32(l->given);
	m->phase = htole32(m->phase);
	m->seq = htole32(m->seq);
	m->note = htole32(m->note);
	m->addr = htole64(m->addr);
	m->key = htole64(m->key);
	memcpy(bytes, m, sizeof(*m));
	if (m->extra)
		memcpy(bytes + sizeof(*m), extra, m->extra);
	m->extra = htole16(m->extra);
	memcpy(bytes + offsetof(struct verbsp_msg, extra), &m->extra,
	       sizeof(m->extra));
	if (after)
		after->next = &wr;
	return post(l, after ? after : &wr);
}

bool verbsp_link_writable(struct verbsp_link *l)
{
	bool ret;

	pthread_mutex_lock(&l->post);
	ret = may_send(l, false);
	pthread_mutex_unlock(&l->post);
	return ret;
}

int verbsp_link_say(struct verbsp_link *l, struct verbsp_msg *m,
		    const void *extra, bool urgent, bool reserve)
{
	int ret = -EAGAIN;

	pthread_mutex_lock(&l->post);
	if (may_send(l, reserve))
		ret = say_locked(l, m, extra, urgent, NULL);
	pthread_mutex_unlock(&l->post);
	return ret;
}

static int write_locked(struct verbsp_link *l, struct ibv_send_wr *wr,
			const void *from, uint32_t note)
{
	struct verbsp_msg m = { .kind = VERBSP_NOTE, .note = note };
	uint32_t len = note & VERBSP_NOTE_LEN;

	if (l->net->iwarp && len <= VERBSP_EAGER &&
	    note >> VERBSP_NOTE_SHIFT == VERBSP_NOTE_INDIRECT) {
		m.extra = (uint16_t)len;
		return say_locked(l, &m, from, false, NULL);
	}
	if (l->net->iwarp) {
		wr->opcode = IBV_WR_RDMA_WRITE;
		return say_locked(l, &m, NULL, false, wr);
	}
	wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->imm_data = htobe32(note);
	l->sent++;
	if (urges(l))
		wr->send_flags |= IBV_SEND_SOLICITED;
	return post(l, wr);
}

int verbsp_link_write(struct verbsp_link *l, const void *from, uint32_t lkey,
		      uint64_t to, uint32_t rkey, uint32_t len, uint32_t kind,
		      struct verbsp_sent *ret_sent)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)from,
		.length = len,
		.lkey = lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = len ? 1 : 0,
		.send_flags = len <= l->net->inline_max ? IBV_SEND_INLINE : 0,
		.wr.rdma = { .remote_addr = to, .rkey = rkey },
	};
	int ret = -EAGAIN;

	if (ret_sent)
		wr.send_flags |= IBV_SEND_SIGNALED;
	pthread_mutex_lock(&l->post);
	if (may_send(l, false))
		ret = write_locked(l, &wr, from,
				   kind << VERBSP_NOTE_SHIFT | len);
	if (ret_sent)
		*ret_sent = (struct verbsp_sent){ .number = l->sent,
						  .posted = l->posted };
	pthread_mutex_unlock(&l->post);
	return ret;
}

static bool due(struct verbsp_link *l)
{
	uint32_t n = atomic_load(&l->received) -
		     __atomic_load_n(&l->given, __ATOMIC_RELAXED);

	return n >= VERBSP_GIVE || (n && atomic_load(&l->owes));
}

void verbsp_link_give(struct verbsp_link *l)
{
	struct verbsp_msg m = { .kind = VERBSP_CREDIT };

	if (!due(l))
		return;
	pthread_mutex_lock(&l->post);
	if (due(l) && may_send(l, true))
		say_locked(l, &m, NULL, false, NULL);
	pthread_mutex_unlock(&l->post);
}

/* --- what arrives ------------------------------------------------------- */

static void put(struct verbsp_link *l, enum exi_dir dir,
		const struct exi_stream_msg *m)
{
	struct verbsp_inbox *b = &l->inbox[dir];
	unsigned int n;

	pthread_mutex_lock(&l->in);
	n = atomic_load(&b->n);
	if (n && m->kind == EXI_STREAM_INDIRECT) {
		struct exi_stream_msg *last =
			&b->msg[(b->first + n - 1) % VERBSP_INBOX];

		/* Bytes of the ring follow each other. */
		if (last->kind == m->kind &&
		    last->len + m->len <= EXI_STREAM_LEN_MAX) {
			last->len += m->len;
			pthread_mutex_unlock(&l->in);
			stir(l, dir);
			return;
		}
	}
	if (n < VERBSP_INBOX) {
		b->msg[(b->first + n) % VERBSP_INBOX] = *m;
		atomic_store(&b->n, n + 1);
	}
	pthread_mutex_unlock(&l->in);
	if (n < VERBSP_INBOX)
		stir(l, dir);
	else
		verbsp_link_fail(l, -EPROTO, "more messages than credits");
}

static void note(struct verbsp_link *l, uint32_t note)
{
	uint32_t kind = note >> VERBSP_NOTE_SHIFT;
	struct exi_stream_msg m = {
		.kind = kind == VERBSP_NOTE_DIRECT ? EXI_STREAM_DIRECT
						   : EXI_STREAM_INDIRECT,
		.len = note & VERBSP_NOTE_LEN,
	};

	if (kind > VERBSP_NOTE_DIRECT) {
		verbsp_link_fail(l, -EPROTO, "a note of no known kind");
		return;
	}
	if (kind == VERBSP_NOTE_INDIRECT)
		l->arrived += m.len;
	else
		atomic_store(&l->owes, true);
	put(l, EXI_RX, &m);
}

/* Bytes that came with their note go where a write would have put them. What is
 * written over, if the other end has no room there, is its own stream; and the
 * engine tells. */
static bool place(struct verbsp_link *l, const void *bytes, uint32_t len,
		  uint32_t note)
{
	uint32_t at = (uint32_t)l->arrived & (l->ring.bytes - 1);

	if (!len)
		return true;
	if (note != (VERBSP_NOTE_INDIRECT << VERBSP_NOTE_SHIFT | len) ||
	    len > l->ring.bytes - at)
		return false;
	memcpy(l->ring.at + at, bytes, len);
	return true;
}

void verbsp_link_noted(struct verbsp_link *l, uint32_t n)
{
	if (l->meeting)
		return verbsp_link_fail(l, -EPROTO, "bytes before the proof");
	atomic_fetch_add(&l->received, 1);
	note(l, n);
}

/* Credits never shrink, and are for messages that were sent: more would call
 * buffers free that the device still reads. */
static void take_credits(struct verbsp_link *l, uint32_t credits)
{
	uint32_t before = atomic_load(&l->credited), sent;

	if (credits == before)
		return;
	pthread_mutex_lock(&l->post);
	sent = l->sent;
	pthread_mutex_unlock(&l->post);
	if (credits - before > sent - before) {
		verbsp_link_fail(l, -EPROTO, "credits for what was not sent");
		return;
	}
	atomic_store(&l->credited, credits);
	if (atomic_exchange(&l->stuck, false))
		verbsp_link_pair_event(l);
	if (atomic_exchange(&l->unsaid, false))
		stir(l, EXI_RX);
	if (atomic_exchange(&l->unanswered, false))
		ring(l);
	stir(l, EXI_TX);
}

static void told(struct verbsp_link *l, const void *bytes, size_t len)
{
	/* Who hung up does not listen any more. */
	if (send(l->pair, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
	    errno == EAGAIN)
		verbsp_link_fail(l, -EPROTO,
				 "more messages than anybody reads");
}

void verbsp_link_heard(struct verbsp_link *l, const struct verbsp_msg *in,
		       uint32_t len)
{
	struct exi_stream_msg m = { 0 };
	struct verbsp_msg h;
	const void *extra = in + 1;

	if (len < sizeof(h) || len > VERBSP_MSG_MAX)
		return verbsp_link_fail(l, -EPROTO, "a message of no length");
	memcpy(&h, in, sizeof(h));
	if (len != sizeof(h) + le16toh(h.extra))
		return verbsp_link_fail(l, -EPROTO,
					"a message of another length");
	len -= sizeof(h);
	if (len && h.kind != VERBSP_TELL && h.kind != VERBSP_CONFIRM &&
	    h.kind != VERBSP_READY && h.kind != VERBSP_NOTE)
		return verbsp_link_fail(l, -EPROTO, "bytes after a message");
	/* Who has not proved himself says nothing else. */
	if (l->meeting && h.kind != VERBSP_CONFIRM && h.kind != VERBSP_READY &&
	    h.kind != VERBSP_CREDIT)
		return verbsp_link_fail(l, -EPROTO,
					"a message before the proof");
	atomic_fetch_add(&l->received, 1);
	take_credits(l, le32toh(h.credits));
	m.phase = le32toh(h.phase);
	m.seq = le32toh(h.seq);
	m.len = le32toh(h.note);
	m.addr = le64toh(h.addr);
	m.key = le64toh(h.key);
	m.waitall = h.flags & VERBSP_FLAG_WAITALL;
	switch (h.kind) {
	case VERBSP_NOTE:
		if (!place(l, extra, len, m.len))
			return verbsp_link_fail(l, -EPROTO,
						"bytes that do not fit");
		return note(l, m.len);
	case VERBSP_END:
		m.kind = EXI_STREAM_END;
		return put(l, EXI_RX, &m);
	case VERBSP_ADVERT:
		m.kind = EXI_STREAM_ADVERT;
		return put(l, EXI_TX, &m);
	case VERBSP_ACK:
		m.kind = EXI_STREAM_ACK;
		return put(l, EXI_TX, &m);
	case VERBSP_REVOKE:
		m.kind = EXI_STREAM_REVOKE;
		put(l, EXI_TX, &m);
		/* It is answered though nobody sends. */
		return ring(l);
	case VERBSP_CREDIT:
		return;
	case VERBSP_TELL:
		return told(l, extra, len);
	case VERBSP_CONFIRM:
	case VERBSP_READY:
		return verbsp_meet_heard(l, &h, extra, len);
	default:
		verbsp_link_fail(l, -EPROTO, "a message of no known kind");
	}
}

/* One message; false when there is none, or no credit for it. */
static bool forward(struct verbsp_link *l)
{
	unsigned char bytes[VERBSP_MSG_MAX - sizeof(struct verbsp_msg)];
	ssize_t n =
		recv(l->pair, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_PEEK);
	struct verbsp_msg m = { .kind = VERBSP_TELL, .extra = (uint16_t)n };

	if (n <= 0)
		return false;
	if (verbsp_link_say(l, &m, bytes, true, true) == -EAGAIN) {
		atomic_store(&l->stuck, true);
		return false;
	}
	recv(l->pair, bytes, sizeof(bytes), MSG_DONTWAIT);
	return true;
}

void verbsp_link_pair_event(struct verbsp_link *l)
{
	pthread_mutex_lock(&l->forward);
	while (forward(l))
		;
	pthread_mutex_unlock(&l->forward);
}

/* --- beginning and end -------------------------------------------------- */

uint32_t verbsp_ring_bytes(void)
{
	uint32_t bytes = verbsp_host->config()->ring_kb * 1024;

	return bytes < VERBSP_RING_MAX ? bytes : VERBSP_RING_MAX;
}

void *verbsp_map(size_t len)
{
	void *ret = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (ret == MAP_FAILED)
		return NULL;
	/* A forked child must not see, nor have copied, what a device writes. */
	madvise(ret, len, MADV_DONTFORK);
	return ret;
}

static int make_ring(struct verbsp_link *l, struct verbsp_mem *m,
		     uint32_t bytes, int access)
{
	m->bytes = bytes;
	m->at = verbsp_map(bytes);
	if (!m->at)
		return -ENOMEM;
	m->mr = ibv_reg_mr(l->net->pd, m->at, m->bytes, access);
	return m->mr ? 0 : -errno;
}

static void unpin(struct verbsp_mem *m)
{
	if (m->mr)
		ibv_dereg_mr(m->mr);
	m->mr = NULL;
}

static void drop_ring(struct verbsp_mem *m)
{
	unpin(m);
	if (m->at)
		munmap(m->at, m->bytes);
	*m = (struct verbsp_mem){ 0 };
}

/* What is worth an advert, the configuration says. */
static struct exi_stream_policy policy(void)
{
	struct exi_stream_policy ret = exi_stream_policy_default;
	uint64_t least = verbsp_host->config()->zcopy_threshold;

	if (least < ret.direct_min)
		ret.direct_min = (uint32_t)least;
	if (least < ret.advert_min)
		ret.advert_min = (uint32_t)least;
	return ret;
}

int verbsp_link_open(struct verbsp_link *l)
{
	const struct exi_stream_policy p = policy();
	int err = make_ring(l, &l->ring, verbsp_ring_bytes(),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!err)
		err = make_ring(l, &l->out, VERBSP_CREDITS * VERBSP_MSG_MAX,
				IBV_ACCESS_LOCAL_WRITE);
	if (!err)
		exi_stream_rx_init(&l->rx, l->ring.bytes, &p);
	return err;
}

int verbsp_link_up(struct verbsp_link *l, const struct verbsp_ring *theirs)
{
	const struct exi_stream_policy p = policy();
	int err;

	if (theirs->bytes < VERBSP_RING_MIN ||
	    theirs->bytes > VERBSP_RING_MAX ||
	    (theirs->bytes & (theirs->bytes - 1)))
		return -EPROTO;
	err = make_ring(l, &l->mirror, theirs->bytes, IBV_ACCESS_LOCAL_WRITE);
	if (err)
		return err;
	l->peer_addr = theirs->addr;
	l->peer_rkey = theirs->rkey;
	exi_stream_tx_init(&l->tx, theirs->bytes, &p);
	return 0;
}

struct verbsp_link *verbsp_link_new(int pair)
{
	struct verbsp_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->pair = pair;
	exi_list_init(&l->nudging);
	pthread_mutex_init(&l->in, NULL);
	pthread_mutex_init(&l->post, NULL);
	pthread_mutex_init(&l->forward, NULL);
	return l;
}

/* A write of nothing, which needs no credit and tells when it is over. */
static void post_last(struct verbsp_link *l)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = l->peer_addr,
			     .rkey = l->peer_rkey },
	};

	pthread_mutex_lock(&l->post);
	if (!atomic_load(&l->err) && room(l) > 1)
		post(l, &wr);
	pthread_mutex_unlock(&l->post);
}

void verbsp_link_drain(struct verbsp_link *l, uint64_t deadline)
{
	if (!l->mirror.at)
		return;
	post_last(l);
	while (!atomic_load(&l->err) && atomic_load(&l->done) != l->posted &&
	       exi_now_ns() < deadline) {
		verbsp_net_reap(l->net);
		sched_yield();
	}
}

void verbsp_link_unpin(struct verbsp_link *l)
{
	unpin(&l->ring);
	unpin(&l->mirror);
	unpin(&l->out);
	verbsp_place_unpin(l);
}

void verbsp_link_close(struct verbsp_link *l)
{
	drop_ring(&l->ring);
	drop_ring(&l->mirror);
	drop_ring(&l->out);
}

void verbsp_link_free(struct verbsp_link *l)
{
	verbsp_link_close(l);
	verbsp_place_free(l);
	free(l);
}

/* --- the engines' messages ---------------------------------------------- */

static bool next(struct verbsp_link *l, enum exi_dir dir,
		 struct exi_stream_msg *ret)
{
	struct verbsp_inbox *b = &l->inbox[dir];
	unsigned int n;

	if (!atomic_load(&b->n))
		return false;
	pthread_mutex_lock(&l->in);
	n = atomic_load(&b->n);
	*ret = b->msg[b->first];
	b->first = (b->first + 1) % VERBSP_INBOX;
	atomic_store(&b->n, n - 1);
	pthread_mutex_unlock(&l->in);
	return true;
}

int verbsp_link_take(struct verbsp_link *l, enum exi_dir dir)
{
	struct exi_stream_msg m;
	int err = 0;

	while (!err && next(l, dir, &m))
		err = dir == EXI_RX ? exi_stream_rx_got(&l->rx, &m)
				    : exi_stream_tx_got(&l->tx, &m);
	if (err)
		verbsp_link_fail(l, err, "a message that cannot be");
	else if (dir == EXI_TX)
		verbsp_link_answer(l);
	else
		verbsp_link_copy(l);
	return err;
}

void verbsp_link_copy(struct verbsp_link *l)
{
	uint32_t at, n;
	void *to;

	while ((n = exi_stream_rx_copy(&l->rx, &at, &to))) {
		memcpy(to, l->ring.at + at, n);
		exi_stream_rx_copied(&l->rx, n);
	}
}

static int say_engine(struct verbsp_link *l, const struct exi_stream_msg *m)
{
	struct verbsp_msg out = {
		.kind = m->kind == EXI_STREAM_END      ? VERBSP_END
			: m->kind == EXI_STREAM_ADVERT ? VERBSP_ADVERT
			: m->kind == EXI_STREAM_ACK    ? VERBSP_ACK
						       : VERBSP_REVOKE,
		.flags = m->waitall ? VERBSP_FLAG_WAITALL : 0,
		.phase = m->phase,
		.seq = m->seq,
		.note = m->len,
		.addr = m->addr,
		.key = m->key,
	};

	/* A REVOKE is answered by who need not be waiting for anything. */
	return verbsp_link_say(l, &out, NULL, m->kind == EXI_STREAM_REVOKE,
			       true);
}

void verbsp_link_answer(struct verbsp_link *l)
{
	struct exi_stream_msg m;
	int err = atomic_load(&l->err);

	while (!err && exi_stream_tx_next(&l->tx, 0, EXI_STREAM_NOW, &m) !=
			       EXI_STREAM_NONE) {
		err = m.kind == EXI_STREAM_END
			      ? say_engine(l, &m)
			      : verbsp_link_write(l, l->mirror.at,
						  l->mirror.mr->lkey,
						  l->peer_addr, l->peer_rkey, 0,
						  VERBSP_NOTE_INDIRECT, NULL);
		if (!err)
			exi_stream_tx_sent(&l->tx, &m, 0);
	}
	if (err == -EAGAIN)
		atomic_store(&l->unanswered, true);
}

void verbsp_link_report(struct verbsp_link *l, bool idle)
{
	struct exi_stream_msg m;
	int err = 0;

	while (!err &&
	       exi_stream_rx_next(&l->rx, idle, &m) != EXI_STREAM_NONE) {
		err = say_engine(l, &m);
		if (!err)
			exi_stream_rx_sent(&l->rx, &m);
	}
	if (err == -EAGAIN)
		atomic_store(&l->unsaid, true);
}
