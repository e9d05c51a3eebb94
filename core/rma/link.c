/* SPDX-License-Identifier: BSD-2-Clause */
/* The queue pair of a connection: posting with credits, and what arrives.
 *
 * Credits. Each end has EXI_RMA_CREDITS buffers ready for the other, counts the
 * messages it sent, and knows how many of them were received: every message
 * carries that count, and after EXI_RMA_GIVE messages one carries nothing else.
 * Messages with bytes leave EXI_RMA_RESERVE credits, so that a message that
 * gives credits back can always be sent: for EXI_RMA_CREDITS messages that
 * came, at most EXI_RMA_CREDITS / EXI_RMA_GIVE of those are due, and the
 * engine's few ACKs. */
#include "core/rma/link.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/config.h"
#include "core/base/list.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/rma/lock.h"
#include "core/rma/memory.h"
#include "core/rma/post.h"
#include "core/rma/rma.h"
#include "core/rma/stream.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"

/* --- from the pair link ------------------------------------------------ */

/* Forwards one message; false when there is none, or no credit for one. */
static bool forward(struct exi_rma_link *l)
{
	unsigned char bytes[EXI_RMA_MSG_MAX - sizeof(struct exi_rma_msg)];
	ssize_t n =
		recv(l->pair, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_PEEK);
	struct exi_rma_msg m = { .kind = EXI_RMA_TELL, .extra = (uint16_t)n };

	if (n <= 0)
		return false;
	if (exi_rma_link_say(l, &m, bytes, true, true) == -EAGAIN) {
		atomic_store(&l->stuck, true);
		return false;
	}
	recv(l->pair, bytes, sizeof(bytes), MSG_DONTWAIT);
	return true;
}

static void forward_all(struct exi_rma_link *l)
{
	pthread_mutex_lock(&l->forward);
	while (forward(l))
		;
	pthread_mutex_unlock(&l->forward);
}

static void on_pair(struct exi_rma_event *e)
{
	forward_all(exi_container(e, struct exi_rma_link, on_pair));
}

/* --- what arrives ------------------------------------------------------- */

/* Marks a message that was taken from the inbox; stands in place of its
 * length. */
#define TAKEN UINT32_MAX
_Static_assert(EXI_STREAM_LEN_MAX < TAKEN, "no length is the mark");

/* Joins bytes of the ring to those that wait before them, unless these are
 * being taken. Only the length of the last message changes, so the rest can be
 * read here. */
static bool join(struct exi_rma_inbox *b, uint32_t put, uint32_t len)
{
	uint32_t at = (put - 1) % EXI_RMA_INBOX, was;

	if (b->msg[at].kind != EXI_STREAM_INDIRECT)
		return false;
	was = atomic_load(&b->len[at]);
	do {
		if (was == TAKEN || was + len > EXI_STREAM_LEN_MAX)
			return false;
	} while (!atomic_compare_exchange_weak(&b->len[at], &was, was + len));
	return true;
}

/* One thread puts messages in, another takes them. Release, in the store of
 * put: pairs with the load in exi_rma_inbox_next(); the load of taken with its
 * store there, after which the place is free. The store of put is before stir()
 * in the order of all, for conn_arm(). */
static bool put_in(struct exi_rma_inbox *b, const struct exi_stream_msg *m)
{
	uint32_t put = atomic_load_explicit(&b->put, memory_order_relaxed);
	uint32_t waiting = put - atomic_load(&b->taken);
	uint32_t at = put % EXI_RMA_INBOX;

	if (waiting && m->kind == EXI_STREAM_INDIRECT && join(b, put, m->len))
		return true;
	if (waiting == EXI_RMA_INBOX)
		return false;
	b->msg[at] = *m;
	atomic_store_explicit(&b->len[at], m->len, memory_order_relaxed);
	atomic_store(&b->put, put + 1);
	return true;
}

static void put(struct exi_rma_link *l, enum exi_dir dir,
		const struct exi_stream_msg *m)
{
	if (put_in(&l->inbox[dir], m))
		exi_rma_link_wake(l, dir);
	else
		exi_rma_link_fail(l, -EPROTO, "more messages than credits");
}

static void note(struct exi_rma_link *l, uint32_t note)
{
	uint32_t kind = note >> EXI_RMA_NOTE_SHIFT;
	struct exi_stream_msg m = {
		.kind = kind == EXI_RMA_NOTE_DIRECT ? EXI_STREAM_DIRECT
						    : EXI_STREAM_INDIRECT,
		.len = note & EXI_RMA_NOTE_LEN,
	};

	if (kind > EXI_RMA_NOTE_DIRECT) {
		exi_rma_link_fail(l, -EPROTO, "an unknown note");
		return;
	}
	if (kind == EXI_RMA_NOTE_INDIRECT)
		l->arrived += m.len;
	else if (!l->will_owe)
		l->will_owe = EXI_RMA_OWE_SOON;
	put(l, EXI_RX, &m);
}

/* Puts bytes that came with their note where a write would have put them. If
 * the ring has no room for them, the other end overwrites its own stream, and
 * the engine returns -EPROTO. */
static bool place(struct exi_rma_link *l, const void *bytes, uint32_t len)
{
	uint32_t at = (uint32_t)l->arrived & (l->ring.bytes - 1);

	if (len > l->ring.bytes - at)
		return false;
	/* A compiler that knows the greatest length uses an instruction that
	 * repeats for each word, which is slow to begin. */
	__asm__("" : "+r"(len));
	memcpy(l->ring.at + at, bytes, len);
	return true;
}

void exi_rma_link_noted(struct exi_rma_link *l, uint32_t n)
{
	if (l->meeting)
		return exi_rma_link_fail(l, -EPROTO, "bytes before the proof");
	note(l, n);
}

void exi_rma_link_retry(struct exi_rma_link *l)
{
	if (exi_rma_post_asked(&l->stuck))
		forward_all(l);
	if (exi_rma_post_asked(&l->unsaid))
		exi_rma_link_wake(l, EXI_RX);
	if (exi_rma_post_asked(&l->unanswered))
		exi_rma_post_bell(l);
}

/* Takes new credits. True: there are more, and the sender must be woken.
 * Credits never shrink, and are for messages that were sent: more would free
 * buffers that the device still reads. Relaxed: a message is counted before the
 * device has it, and so before its answer. */
static bool more_credits(struct exi_rma_link *l, uint32_t credits)
{
	uint32_t before = atomic_load(&l->credited), sent;

	if (credits == before)
		return false;
	sent = __atomic_load_n(&l->sent, __ATOMIC_RELAXED);
	if (credits - before > sent - before) {
		exi_rma_link_fail(l, -EPROTO,
				  "credits for bytes that were not sent");
		return false;
	}
	atomic_store(&l->credited, credits);
	exi_rma_link_retry(l);
	return true;
}

/* Takes BYTES, the message that comes most often. */
static void heard_bytes(struct exi_rma_link *l, const struct exi_rma_msg *in,
			uint32_t len)
{
	struct exi_stream_msg m = { .kind = EXI_STREAM_INDIRECT, .len = len };
	bool more;

	if (l->meeting)
		return exi_rma_link_fail(l, -EPROTO, "bytes before the proof");
	if (!len || len != le16toh(in->extra))
		return exi_rma_link_fail(l, -EPROTO, "bytes of a wrong length");
	more = more_credits(l, le32toh(in->credits));
	if (!place(l, (const char *)in + EXI_RMA_BRIEF, len))
		return exi_rma_link_fail(l, -EPROTO, "bytes that do not fit");
	l->arrived += len;
	put(l, EXI_RX, &m);
	if (more) /* put() changed the word, for both directions */
		exi_rma_post_wake(l, EXI_TX);
}

static void told(struct exi_rma_link *l, const void *bytes, size_t len)
{
	/* A reader that hung up takes nothing any more. */
	if (send(l->pair, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
	    errno == EAGAIN)
		exi_rma_link_fail(l, -EPROTO, "more messages than can be read");
}

void exi_rma_link_heard(struct exi_rma_link *l, const struct exi_rma_msg *in,
			uint32_t len)
{
	struct exi_stream_msg m = { 0 };
	struct exi_rma_msg h;
	const void *extra = in + 1;

	if (len >= EXI_RMA_BRIEF && len <= EXI_RMA_MSG_MAX &&
	    in->kind == EXI_RMA_BYTES)
		return heard_bytes(l, in, len - EXI_RMA_BRIEF);
	if (len < sizeof(h) || len > EXI_RMA_MSG_MAX)
		return exi_rma_link_fail(l, -EPROTO,
					 "a message without a length");
	memcpy(&h, in, sizeof(h));
	if (len != sizeof(h) + le16toh(h.extra))
		return exi_rma_link_fail(l, -EPROTO,
					 "a message of a wrong length");
	len -= sizeof(h);
	if (len && h.kind != EXI_RMA_TELL && h.kind != EXI_RMA_CONFIRM &&
	    h.kind != EXI_RMA_READY && h.kind != EXI_RMA_NOTE)
		return exi_rma_link_fail(l, -EPROTO, "bytes after a message");
	/* A peer that has not proved itself sends nothing else. */
	if (l->meeting && h.kind != EXI_RMA_CONFIRM &&
	    h.kind != EXI_RMA_READY && h.kind != EXI_RMA_CREDIT)
		return exi_rma_link_fail(l, -EPROTO,
					 "a message before the proof");
	if (more_credits(l, le32toh(h.credits)))
		exi_rma_link_wake(l, EXI_TX);
	m.phase = le32toh(h.phase);
	m.seq = le32toh(h.seq);
	m.len = le32toh(h.note);
	m.addr = le64toh(h.addr);
	m.key = le64toh(h.key);
	m.waitall = h.flags & EXI_RMA_FLAG_WAITALL;
	/* The closing end waits to hear that its message has come. */
	if (l->net->early &&
	    (h.kind == EXI_RMA_END || h.flags & EXI_RMA_FLAG_CLOSES))
		l->will_owe = EXI_RMA_OWE_NOW;
	if (h.flags & EXI_RMA_FLAG_CLOSES && !l->meeting)
		atomic_store(&l->closed, true);
	switch (h.kind) {
	case EXI_RMA_NOTE:
		if (len &&
		    (m.len != (EXI_RMA_NOTE_INDIRECT << EXI_RMA_NOTE_SHIFT |
			       len) ||
		     !place(l, extra, len)))
			return exi_rma_link_fail(l, -EPROTO,
						 "bytes that do not fit");
		return note(l, m.len);
	case EXI_RMA_END:
		m.kind = EXI_STREAM_END;
		return put(l, EXI_RX, &m);
	case EXI_RMA_ADVERT:
		m.kind = EXI_STREAM_ADVERT;
		return put(l, EXI_TX, &m);
	case EXI_RMA_ACK:
		m.kind = EXI_STREAM_ACK;
		return put(l, EXI_TX, &m);
	case EXI_RMA_REVOKE:
		m.kind = EXI_STREAM_REVOKE;
		put(l, EXI_TX, &m);
		/* A REVOKE is answered even if no thread sends. */
		return exi_rma_post_bell(l);
	case EXI_RMA_CREDIT:
		return;
	case EXI_RMA_TELL:
		return told(l, extra, len);
	case EXI_RMA_CONFIRM:
	case EXI_RMA_READY:
		return exi_rma_fabric.proof(l, &h, extra, len);
	default:
		exi_rma_link_fail(l, -EPROTO, "an unknown message");
	}
}

/* --- beginning and end -------------------------------------------------- */

#define PIECE_MAX 65536u

void exi_rma_net_init(struct exi_rma_net *n)
{
	pthread_mutex_init(&n->memory_lock, NULL);
	exi_list_init(&n->memory);
	exi_list_init(&n->reminder);
	n->debt_wait = 1;
	n->piece_max = PIECE_MAX;
}

/* The policy of adverts; the configuration sets which sizes are worth one. */
static struct exi_stream_policy policy(void)
{
	struct exi_stream_policy ret = exi_stream_policy_default;
	uint64_t least = exi_rma_host->config()->zcopy_threshold;

	if (least < ret.direct_min)
		ret.direct_min = (uint32_t)least;
	if (least < ret.advert_min)
		ret.advert_min = (uint32_t)least;
	return ret;
}

int exi_rma_link_open(struct exi_rma_link *l)
{
	const struct exi_stream_policy p = policy();
	int err = exi_rma_ring_make(l, &l->ring, exi_rma_ring_bytes(),
				    EXI_RMA_REMOTE);

	if (!err)
		err = exi_rma_ring_make(l, &l->out,
					EXI_RMA_CREDITS * EXI_RMA_MSG_MAX,
					EXI_RMA_FILL);
	if (!err)
		exi_stream_rx_init(&l->rx, l->ring.bytes, &p);
	return err;
}

struct exi_rma_ring exi_rma_link_ring(const struct exi_rma_link *l)
{
	return (struct exi_rma_ring){
		.addr = (uintptr_t)l->ring.at + l->ring.mr.shift,
		.key = l->ring.mr.key,
		.bytes = l->ring.bytes,
	};
}

int exi_rma_link_up(struct exi_rma_link *l, const struct exi_rma_ring *theirs)
{
	const struct exi_stream_policy p = policy();
	int err;

	if (theirs->bytes < EXI_RMA_RING_MIN ||
	    theirs->bytes > EXI_RMA_RING_MAX ||
	    (theirs->bytes & (theirs->bytes - 1)))
		return -EPROTO;
	err = exi_rma_ring_make(l, &l->mirror, theirs->bytes, EXI_RMA_FILL);
	if (err)
		return err;
	l->peer = *theirs;
	exi_stream_tx_init(&l->tx, theirs->bytes, &p);
	return 0;
}

struct exi_rma_link *exi_rma_link_new(int pair)
{
	struct exi_rma_link *l = calloc(1, exi_rma_fabric.link_size);

	if (!l)
		return NULL;
	l->pair = pair;
	l->on_pair.call = on_pair;
	exi_list_init(&l->hoping);
	pthread_mutex_init(&l->forward, NULL);
	return l;
}

/* Posts a write of no bytes, which needs no credit and reports its
 * completion. */
static void post_last(struct exi_rma_link *l)
{
	const struct exi_rma_req r = {
		.op = EXI_RMA_WRITE,
		.tell = true,
		.last = true,
		.from = l->out.at,
		.mr = &l->out.mr,
		.to = l->peer.addr,
		.key = l->peer.key,
	};

	exi_rma_lock(&l->post);
	if (!atomic_load(&l->err) && exi_rma_post_room(l) > 1)
		exi_rma_post(l, &r, 1);
	exi_rma_unlock(&l->post);
}

/* Whether all requests are over; and where the device reports that too early,
 * whether the other end has received END, and so what was posted before it. */
static bool drained(struct exi_rma_link *l)
{
	bool ret;

	/* The service may still forward what came from the pair link. */
	exi_rma_lock(&l->post);
	ret = atomic_load(&l->done) == l->posted &&
	      (!l->net->early || !l->said_end ||
	       (int32_t)(atomic_load(&l->credited) - l->end) >= 0);
	exi_rma_unlock(&l->post);
	return ret;
}

/* Sends that this end leaves, where END did not. Without a credit, the other
 * end continues over TCP, and finds no peer there. */
static void say_leaving(struct exi_rma_link *l)
{
	struct exi_rma_msg m = { .kind = EXI_RMA_CREDIT,
				 .flags = EXI_RMA_FLAG_CLOSES };

	if (l->leaves && exi_rma_link_say(l, &m, NULL, false, true) == 0)
		l->leaves = false;
}

void exi_rma_link_drain(struct exi_rma_link *l, uint64_t deadline)
{
	/* A link in its handshake has nothing under way, and its net may
	 * change. Pairs with the end of exi_rma_meet_done(). */
	if (__atomic_load_n(&l->meeting, __ATOMIC_ACQUIRE))
		return;
	/* The core's last messages are forwarded here, or by the service. */
	if (!pthread_mutex_trylock(&l->forward)) {
		while (forward(l))
			;
		pthread_mutex_unlock(&l->forward);
	}
	say_leaving(l);
	post_last(l);
	while (!atomic_load(&l->err) && !drained(l) &&
	       exi_now_ns() < deadline) {
		exi_rma_fabric.reap(l->net);
		/* Only tries the net's lock: this thread may have been
		 * interrupted while it held the lock. */
		if (l->net->early)
			exi_rma_net_try_poll(l->net);
		sched_yield();
	}
}

void exi_rma_link_close(struct exi_rma_link *l)
{
	bool lingers = l->net && l->net->lingers;
	bool busy = atomic_load(&l->done) != l->posted;

	exi_rma_ring_drop(l, &l->ring, lingers);
	exi_rma_ring_drop(l, &l->mirror, lingers && busy);
	exi_rma_ring_drop(l, &l->out, lingers && busy);
	if (l->net && exi_rma_fabric.quit)
		exi_rma_fabric.quit(l);
	l->net = NULL;
}

/* --- the engines' messages ---------------------------------------------- */

bool exi_rma_inbox_next(struct exi_rma_inbox *b, struct exi_stream_msg *ret)
{
	uint32_t taken = atomic_load_explicit(&b->taken, memory_order_relaxed);
	uint32_t at = taken % EXI_RMA_INBOX;

	if (atomic_load(&b->put) == taken)
		return false;
	*ret = b->msg[at];
	if (ret->kind == EXI_STREAM_INDIRECT)
		ret->len = atomic_exchange(&b->len[at], TAKEN);
	atomic_store_explicit(&b->taken, taken + 1, memory_order_release);
	return true;
}
