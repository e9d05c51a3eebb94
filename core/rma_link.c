/* SPDX-License-Identifier: BSD-2-Clause */
/* The queue pair of a connection: posting with credits, and what arrives.
 *
 * Credits. Each end has EXI_RMA_CREDITS buffers ready for the other, counts the
 * messages it sent, and knows how many of them were received: every message
 * says so, and one with nothing else does after EXI_RMA_GIVE. What carries bytes
 * leaves EXI_RMA_RESERVE, so that a message that gives credits back can always be
 * sent: for EXI_RMA_CREDITS messages that came, at most EXI_RMA_CREDITS / EXI_RMA_GIVE of
 * those are due, and the engine's few ACKs. */
#include "core/rma.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long what was placed may count for nothing at its sender, while its
 * receiver says nothing and looks for nothing. */
#define DEBT_NS 1000000u
/* Where it has said something each time, and so often in that while, the service,
 * which finds nothing to pay, comes later, up to so many times. */
#define PAID_OFTEN 32u
#define DEBT_MAX   4u

/* Nets of which the service is to look whether they owe. The service lock. */
static struct exi_list reminders = EXI_LIST_INIT(reminders);

/* --- locks ---------------------------------------------------------------- */

void exi_rma_lock_slow(struct exi_rma_lock *l)
{
	int saved = errno;

	/* Who had to wait marks it again: there may be others. */
	while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire))
		syscall(SYS_futex, &l->word, FUTEX_WAIT, 2, NULL, NULL, 0);
	errno = saved;
}

void exi_rma_unlock_slow(struct exi_rma_lock *l)
{
	exi_rma_host->futex_wake((const uint32_t *)&l->word, 1);
}

/* --- waking ------------------------------------------------------------- */

/* The bell is not wanted any more; whether it was. */
static bool silence(struct exi_rma_link *l, enum exi_dir dir)
{
	if (!atomic_load(&l->bell[dir]) ||
	    !atomic_exchange(&l->bell[dir], false))
		return false;
	atomic_fetch_sub(&l->net->armed, 1);
	return true;
}

/* The core is to look. One ring that it has not heard is enough. */
static void ring(struct exi_rma_link *l)
{
	char byte = 1;

	send(l->pair, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static __attribute__((noinline)) void wake_them(struct exi_rma_link *l,
						enum exi_dir dir)
{
	if (atomic_load(&l->sleepers[dir]))
		exi_rma_host->futex_wake((uint32_t *)&l->stir, INT_MAX);
	if (silence(l, dir))
		ring(l);
}

/* Something came that the direction waits for. */
static void wake(struct exi_rma_link *l, enum exi_dir dir)
{
	if (exi_unlikely(atomic_load(&l->sleepers[dir]) ||
			 atomic_load(&l->bell[dir])))
		wake_them(l, dir);
}

/* After what came was stored. Pairs with the flag, then the look, of
 * conn_arm(). */
void exi_rma_link_stir(struct exi_rma_link *l, enum exi_dir dir)
{
	atomic_fetch_add(&l->stir, 1);
	wake(l, dir);
}

void exi_rma_link_want(struct exi_rma_link *l, enum exi_dir dir, bool word)
{
	if (word)
		atomic_fetch_add(&l->sleepers[dir], 1);
	if (word || !atomic_exchange(&l->bell[dir], true))
		atomic_fetch_add(&l->net->armed, 1);
	exi_rma_fabric.request(l->net);
}

void exi_rma_link_want_no_more(struct exi_rma_link *l, enum exi_dir dir,
			       bool word)
{
	if (!word) {
		silence(l, dir);
		return;
	}
	atomic_fetch_sub(&l->sleepers[dir], 1);
	atomic_fetch_sub(&l->net->armed, 1);
}

void exi_rma_link_fail(struct exi_rma_link *l, int err, const char *why)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&l->err, &none, err))
		return;
	exi_rma_log(EXI_LOG_DEBUG, "a queue pair ends: %s", why);
	exi_rma_link_stir(l, EXI_RX);
	exi_rma_link_stir(l, EXI_TX);
	if (l->pair >= 0)
		shutdown(l->pair, SHUT_RDWR);
}

void exi_rma_link_kill(struct exi_rma_link *l)
{
	if (atomic_exchange(&l->dead, true))
		return;
	exi_rma_fabric.kill(l);
	exi_rma_link_fail(l, -ECONNRESET, "given up");
}

/* --- posting ------------------------------------------------------------ */

/* Requests that the queue pair would take. The post lock is held. */
static unsigned int room(struct exi_rma_link *l)
{
	unsigned int under_way = l->posted - atomic_load(&l->done);

	if (under_way + 2 * EXI_RMA_SIGNAL_EVERY > EXI_RMA_SEND_DEPTH) {
		exi_rma_fabric.reap(l->net);
		under_way = l->posted - atomic_load(&l->done);
	}
	return EXI_RMA_SEND_DEPTH - under_way;
}

static bool may_send(struct exi_rma_link *l, bool reserve)
{
	unsigned int under_way = l->sent - atomic_load(&l->credited);

	return !atomic_load(&l->err) && room(l) >= 2 &&
	       under_way + (reserve ? 0 : EXI_RMA_RESERVE) < EXI_RMA_CREDITS;
}

/* A request, or two, with one call of the device. */
static int post(struct exi_rma_link *l, const struct exi_rma_req *r,
		unsigned int n)
{
	int err = exi_rma_fabric.post(l, r, n);

	/* Whatever the device calls it, the core hears by the pair link. */
	if (err && err != -EAGAIN)
		exi_rma_link_fail(l, -ECONNRESET, strerror(-err));
	return err ? -EAGAIN : 0;
}

/* The other end would stop before it gives credits back by itself: its service
 * is to look. */
static bool urges(const struct exi_rma_link *l)
{
	return l->sent - atomic_load(&l->credited) >= EXI_RMA_CREDITS / 2;
}

/* What another thread asked for, once. Mostly nobody did: a look is cheaper than an
 * exchange. */
static bool asked(_Atomic bool *what)
{
	return atomic_load(what) && atomic_exchange(what, false);
}

/* The post lock is held; who takes credits reads it without. */
static void count_sent(struct exi_rma_link *l, uint32_t n)
{
	__atomic_store_n(&l->sent, l->sent + n, __ATOMIC_RELAXED);
}

/* What comes before a message's extra bytes. */
static uint32_t head(uint8_t kind)
{
	return kind == EXI_RMA_BYTES ? EXI_RMA_BRIEF
				     : (uint32_t)sizeof(struct exi_rma_msg);
}

static void fill(unsigned char *to, struct exi_rma_msg *m, const void *extra)
{
	uint16_t len = m->extra;

	m->extra = htole16(len);
	m->credits = htole32(m->credits);
	m->name = htole32(m->name);
	m->phase = htole32(m->phase);
	m->seq = htole32(m->seq);
	m->note = htole32(m->note);
	m->addr = htole64(m->addr);
	m->key = htole64(m->key);
	if (m->kind == EXI_RMA_BYTES)
		memcpy(to, m, EXI_RMA_BRIEF);
	else
		memcpy(to, m, sizeof(*m));
	if (extra && len)
		memcpy(to + head(m->kind), extra, len);
}

/* In r[n - 1], after other requests. m is not used any more. */
static inline __attribute__((always_inline)) int
say_locked(struct exi_rma_link *l, struct exi_rma_msg *m, const void *extra,
	   bool urgent, struct exi_rma_req *r, unsigned int n)
{
	EXI_RMA_LOCKED(&l->post);
	/* Free again: what was sent so many messages ago was received. */
	unsigned char *bytes =
		l->out.at + l->sent % EXI_RMA_CREDITS * EXI_RMA_MSG_MAX;
	uint32_t given = l->given;
	bool owed;
	int err;

	count_sent(l, 1);
	owed = asked(&l->owes);
	__atomic_store_n(&l->given, atomic_load(&l->received),
			 __ATOMIC_RELAXED);
	r[n - 1] = (struct exi_rma_req){
		.op = EXI_RMA_SEND,
		.urgent = urgent || urges(l),
		.from = bytes,
		.mr = &l->out.mr,
		.len = head(m->kind) + m->extra,
	};
	m->credits = l->given;
	m->name = l->name;
	fill(bytes, m, extra);
	err = post(l, r, n);
	if (err == -EAGAIN) {
		count_sent(l, UINT32_MAX);
		__atomic_store_n(&l->given, given, __ATOMIC_RELAXED);
		if (owed)
			atomic_store(&l->owes, true);
	} else if (m->kind == EXI_RMA_END || m->flags & EXI_RMA_FLAG_CLOSES) {
		l->end = l->sent;
		l->said_end = true;
	}
	return err;
}

bool exi_rma_link_writable(struct exi_rma_link *l)
{
	bool ret;

	exi_rma_lock(&l->post);
	ret = may_send(l, false);
	exi_rma_unlock(&l->post);
	return ret;
}

int exi_rma_link_say(struct exi_rma_link *l, struct exi_rma_msg *m,
		     const void *extra, bool urgent, bool reserve)
{
	struct exi_rma_req r;
	int ret = -EAGAIN;

	exi_rma_lock(&l->post);
	if (may_send(l, reserve))
		ret = say_locked(l, m, extra, urgent, &r, 1);
	exi_rma_unlock(&l->post);
	return ret;
}

/* So few that they go with their note. */
static int bytes_locked(struct exi_rma_link *l, const void *from, uint32_t len)
{
	struct exi_rma_msg m = {
		.kind = EXI_RMA_BYTES,
		.extra = (uint16_t)len,
	};
	struct exi_rma_req r;

	EXI_RMA_LOCKED(&l->post);
	return say_locked(l, &m, from, false, &r, 1);
}

/* r[0] is the write; there is room for its note. */
static int write_locked(struct exi_rma_link *l, struct exi_rma_req *r,
			uint32_t note)
{
	struct exi_rma_msg m = { .kind = EXI_RMA_NOTE, .note = note };
	uint32_t len = note & EXI_RMA_NOTE_LEN;
	int err;

	EXI_RMA_LOCKED(&l->post);
	if (len <= l->net->eager &&
	    note >> EXI_RMA_NOTE_SHIFT == EXI_RMA_NOTE_INDIRECT) {
		/* Where a queue pair does not tell the link, its name does. */
		if (len && !l->name)
			return bytes_locked(l, r->from, len);
		if (l->net->eager) {
			m.extra = (uint16_t)len;
			return say_locked(l, &m, r->from, false, r, 1);
		}
	}
	if (l->net->notes) {
		r->op = EXI_RMA_WRITE;
		return say_locked(l, &m, NULL, false, r, 2);
	}
	r->op = EXI_RMA_WRITE_NOTE;
	r->note = note;
	count_sent(l, 1);
	r->urgent = urges(l);
	err = post(l, r, 1);
	if (err == -EAGAIN)
		count_sent(l, UINT32_MAX);
	return err;
}

int exi_rma_link_write(struct exi_rma_link *l, const void *from,
		       const struct exi_rma_mr *mr, uint64_t to, uint64_t key,
		       uint32_t len, uint32_t kind,
		       struct exi_rma_sent *ret_sent)
{
	struct exi_rma_req r[2];
	int ret = -EAGAIN;

	r[0] = (struct exi_rma_req){
		.tell = ret_sent != NULL,
		.from = from,
		.len = len,
		.mr = mr,
		.to = to,
		.key = key,
	};

	exi_rma_lock(&l->post);
	if (may_send(l, false))
		ret = write_locked(l, r, kind << EXI_RMA_NOTE_SHIFT | len);
	if (ret_sent)
		*ret_sent = (struct exi_rma_sent){ .number = l->sent,
						   .posted = l->posted };
	exi_rma_unlock(&l->post);
	return ret;
}

static bool due(struct exi_rma_link *l)
{
	uint32_t n = atomic_load(&l->received) -
		     __atomic_load_n(&l->given, __ATOMIC_RELAXED);

	return n >= EXI_RMA_GIVE || (n && atomic_load(&l->owes));
}

/* owed: the other end waits for what it has not been told of. */
static void say_credits(struct exi_rma_link *l, bool owed)
{
	struct exi_rma_msg m = { .kind = EXI_RMA_CREDIT };
	struct exi_rma_req r;

	exi_rma_lock(&l->post);
	if (owed && atomic_load(&l->received) != l->given)
		atomic_store(&l->owes, true);
	if (due(l) && may_send(l, true))
		say_locked(l, &m, NULL, false, &r, 1);
	exi_rma_unlock(&l->post);
}

void exi_rma_net_pay(struct exi_rma_net *n)
{
	struct exi_rma_link *l = n->debtor;

	n->debtor = NULL;
	if (l)
		say_credits(l, true);
}

/* What was placed its sender waits to hear of. The program that received it
 * mostly says something at once, its next receive, which takes the credits along.
 * Else the first look that finds nothing pays, or the service, which is asked to.
 * What it takes itself it pays at once, unless it was asked already. */
static void pay_soon(struct exi_rma_link *l)
{
	struct exi_rma_net *n = l->net;

	if (n->debtor != l)
		exi_rma_net_pay(n);
	n->debtor = l;
	n->debts++;
	if (n->reminded)
		return;
	/* Tried, for it comes before the net's lock. */
	if (pthread_mutex_trylock(&exi_rma_service_lock)) {
		exi_rma_net_pay(n);
		return;
	}
	n->reminded = true;
	exi_list_add_tail(&reminders, &n->reminder);
	exi_rma_look_at(exi_now_ns() + n->debt_wait * DEBT_NS);
	pthread_mutex_unlock(&exi_rma_service_lock);
}

void exi_rma_debts_look(void)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &reminders) {
		struct exi_rma_net *n =
			exi_container(pos, struct exi_rma_net, reminder);

		exi_list_del(&n->reminder);
		exi_rma_lock(&n->lock);
		n->reminded = false;
		if (n->debts < n->debt_wait * PAID_OFTEN)
			n->debt_wait = 1;
		else if (n->debt_wait < DEBT_MAX)
			n->debt_wait *= 2;
		n->debts = 0;
		exi_rma_net_pay(n);
		exi_rma_unlock(&n->lock);
	}
}

void exi_rma_link_give(struct exi_rma_link *l, uint32_t n)
{
	bool soon = l->will_owe == EXI_RMA_OWE_SOON;

	/* One thread at a time counts. Release: whoever says the count says it
	 * of buffers that are there. */
	n += atomic_load_explicit(&l->received, memory_order_relaxed);
	atomic_store_explicit(&l->received, n, memory_order_release);
	/* Not before: what is said meanwhile, by any thread, takes the debt and
	 * pays it with a count without this. */
	if (l->will_owe == EXI_RMA_OWE_NOW)
		atomic_store(&l->owes, true);
	l->will_owe = EXI_RMA_OWE_NOT;
	if (due(l))
		say_credits(l, false);
	else if (soon)
		pay_soon(l);
}

void exi_rma_link_left(struct exi_rma_link *l)
{
	silence(l, EXI_RX);
	silence(l, EXI_TX);
	if (l->net->debtor == l)
		l->net->debtor = NULL;
}

/* --- from the pair link ------------------------------------------------ */

/* One message; false when there is none, or no credit for it. */
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

/* Of a message in the inbox, instead of its length. */
#define TAKEN UINT32_MAX
_Static_assert(EXI_STREAM_LEN_MAX < TAKEN, "a length is not the mark");

/* Bytes of the ring follow each other: they join what waits, unless it is being
 * taken. The last message is ours to read: only its length changes. */
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

/* One thread puts, another takes. Release, in the store of put: pairs with the
 * load in next(); the load of taken with its store there, after which the place
 * is free. The store is before stir() in the order of all, for conn_arm(). */
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
		exi_rma_link_stir(l, dir);
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
		exi_rma_link_fail(l, -EPROTO, "a note of no known kind");
		return;
	}
	if (kind == EXI_RMA_NOTE_INDIRECT)
		l->arrived += m.len;
	else if (!l->will_owe)
		l->will_owe = EXI_RMA_OWE_SOON;
	put(l, EXI_RX, &m);
}

/* Bytes that came with their note go where a write would have put them. What is
 * written over, if the other end has no room there, is its own stream; and the
 * engine tells. */
static bool place(struct exi_rma_link *l, const void *bytes, uint32_t len)
{
	uint32_t at = (uint32_t)l->arrived & (l->ring.bytes - 1);

	if (len > l->ring.bytes - at)
		return false;
	/* A compiler that knows how many there are at most repeats an instruction
	 * for each word, which is slow to begin. */
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
	if (asked(&l->stuck))
		forward_all(l);
	if (asked(&l->unsaid))
		exi_rma_link_stir(l, EXI_RX);
	if (asked(&l->unanswered))
		ring(l);
}

/* Credits never shrink, and are for messages that were sent: more would call
 * buffers free that the device still reads. Relaxed: a message is counted before
 * the device has it, and so before its answer. True: there are more, and the sender
 * is to be stirred. */
static bool more_credits(struct exi_rma_link *l, uint32_t credits)
{
	uint32_t before = atomic_load(&l->credited), sent;

	if (credits == before)
		return false;
	sent = __atomic_load_n(&l->sent, __ATOMIC_RELAXED);
	if (credits - before > sent - before) {
		exi_rma_link_fail(l, -EPROTO, "credits for what was not sent");
		return false;
	}
	atomic_store(&l->credited, credits);
	exi_rma_link_retry(l);
	return true;
}

/* The message that comes most often. */
static void heard_bytes(struct exi_rma_link *l, const struct exi_rma_msg *in,
			uint32_t len)
{
	struct exi_stream_msg m = { .kind = EXI_STREAM_INDIRECT, .len = len };
	bool more;

	if (l->meeting)
		return exi_rma_link_fail(l, -EPROTO, "bytes before the proof");
	if (!len || len != le16toh(in->extra))
		return exi_rma_link_fail(l, -EPROTO, "bytes of another length");
	more = more_credits(l, le32toh(in->credits));
	if (!place(l, (const char *)in + EXI_RMA_BRIEF, len))
		return exi_rma_link_fail(l, -EPROTO, "bytes that do not fit");
	l->arrived += len;
	put(l, EXI_RX, &m);
	if (more) /* the word has changed, once for both */
		wake(l, EXI_TX);
}

static void told(struct exi_rma_link *l, const void *bytes, size_t len)
{
	/* Who hung up does not listen any more. */
	if (send(l->pair, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
	    errno == EAGAIN)
		exi_rma_link_fail(l, -EPROTO,
				  "more messages than anybody reads");
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
		return exi_rma_link_fail(l, -EPROTO, "a message of no length");
	memcpy(&h, in, sizeof(h));
	if (len != sizeof(h) + le16toh(h.extra))
		return exi_rma_link_fail(l, -EPROTO,
					 "a message of another length");
	len -= sizeof(h);
	if (len && h.kind != EXI_RMA_TELL && h.kind != EXI_RMA_CONFIRM &&
	    h.kind != EXI_RMA_READY && h.kind != EXI_RMA_NOTE)
		return exi_rma_link_fail(l, -EPROTO, "bytes after a message");
	/* Who has not proved himself says nothing else. */
	if (l->meeting && h.kind != EXI_RMA_CONFIRM &&
	    h.kind != EXI_RMA_READY && h.kind != EXI_RMA_CREDIT)
		return exi_rma_link_fail(l, -EPROTO,
					 "a message before the proof");
	if (more_credits(l, le32toh(h.credits)))
		exi_rma_link_stir(l, EXI_TX);
	m.phase = le32toh(h.phase);
	m.seq = le32toh(h.seq);
	m.len = le32toh(h.note);
	m.addr = le64toh(h.addr);
	m.key = le64toh(h.key);
	m.waitall = h.flags & EXI_RMA_FLAG_WAITALL;
	/* Who closes waits to hear that it has come. */
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
		/* It is answered though nobody sends. */
		return ring(l);
	case EXI_RMA_CREDIT:
		return;
	case EXI_RMA_TELL:
		return told(l, extra, len);
	case EXI_RMA_CONFIRM:
	case EXI_RMA_READY:
		return exi_rma_fabric.proof(l, &h, extra, len);
	default:
		exi_rma_link_fail(l, -EPROTO, "a message of no known kind");
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

int exi_rma_net_poll(struct exi_rma_net *n)
{
	int ret;

	exi_rma_lock(&n->lock);
	ret = exi_rma_net_take(n);
	exi_rma_unlock(&n->lock);
	return ret;
}

uint32_t exi_rma_ring_bytes(void)
{
	uint32_t bytes = exi_rma_host->config()->ring_kb * 1024;

	return bytes < EXI_RMA_RING_MAX ? bytes : EXI_RMA_RING_MAX;
}

size_t exi_rma_footprint(void)
{
	return 2 * exi_rma_ring_bytes() + 2 * EXI_RMA_CREDITS * EXI_RMA_MSG_MAX;
}

void *exi_rma_map(size_t len)
{
	void *ret = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (ret == MAP_FAILED)
		return NULL;
	/* A forked child must not see, nor have copied, what a device writes. */
	madvise(ret, len, MADV_DONTFORK);
	return ret;
}

static int make_ring(struct exi_rma_link *l, struct exi_rma_mem *m,
		     uint32_t bytes, enum exi_rma_access access)
{
	m->bytes = bytes;
	m->at = exi_rma_map(bytes);
	if (!m->at)
		return -ENOMEM;
	return exi_rma_fabric.reg(l->net, m->at, bytes, access, &m->mr);
}

static void unpin(struct exi_rma_mem *m)
{
	if (m->mr.handle)
		exi_rma_fabric.dereg(&m->mr);
	m->mr.handle = NULL;
}

/* Longer than anything is under way, but where the other end has stopped: then
 * it lasts until its own end closes what carries it. */
#define LINGER_NS 10000000000u

struct grave {
	struct exi_list node;
	struct exi_rma_net *net; /* where it is registered; null */
	struct exi_rma_mem mem;
	uint64_t until;
};

/* Under the service lock. */
static struct exi_list graves = EXI_LIST_INIT(graves);

/* It stays registered, too: who writes where nothing is may lose what it shares
 * with other links. */
static void bury(struct exi_rma_net *n, struct exi_rma_mem *m)
{
	struct grave *g = calloc(1, sizeof(*g));

	if (!g) { /* it stays mapped */
		unpin(m);
		return;
	}
	g->net = n;
	g->mem = *m;
	g->until = exi_now_ns() + LINGER_NS;
	exi_list_add_tail(&graves, &g->node);
	exi_rma_look_at(g->until);
}

void exi_rma_links_look(uint64_t now)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &graves) {
		struct grave *g = exi_container(pos, struct grave, node);

		if (g->until > now) {
			exi_rma_look_at(g->until);
			break;
		}
		exi_list_del(&g->node);
		unpin(&g->mem);
		munmap(g->mem.at, g->mem.bytes);
		free(g);
	}
}

void exi_rma_links_net_ends(struct exi_rma_net *n)
{
	struct exi_list *pos;

	exi_list_del(&n->reminder);
	exi_list_for_each (pos, &graves) {
		struct grave *g = exi_container(pos, struct grave, node);

		if (g->net == n)
			unpin(&g->mem);
	}
}

static void drop_ring(struct exi_rma_link *l, struct exi_rma_mem *m,
		      bool lingers)
{
	if (m->at && lingers) {
		bury(l->net, m);
	} else {
		unpin(m);
		if (m->at)
			munmap(m->at, m->bytes);
	}
	*m = (struct exi_rma_mem){ 0 };
}

/* What is worth an advert, the configuration says. */
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
	int err = make_ring(l, &l->ring, exi_rma_ring_bytes(), EXI_RMA_REMOTE);

	if (!err)
		err = make_ring(l, &l->out, EXI_RMA_CREDITS * EXI_RMA_MSG_MAX,
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
	err = make_ring(l, &l->mirror, theirs->bytes, EXI_RMA_FILL);
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

/* A write of nothing, which needs no credit and tells when it is over. */
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
	if (!atomic_load(&l->err) && room(l) > 1)
		post(l, &r, 1);
	exi_rma_unlock(&l->post);
}

/* All that was posted is over, and where that says too little the other end has
 * received END, and so what was posted before it. */
static bool drained(struct exi_rma_link *l)
{
	bool ret;

	/* The service may still say what came from the pair link. */
	exi_rma_lock(&l->post);
	ret = atomic_load(&l->done) == l->posted &&
	      (!l->net->early || !l->said_end ||
	       (int32_t)(atomic_load(&l->credited) - l->end) >= 0);
	exi_rma_unlock(&l->post);
	return ret;
}

/* END did not say it. If there is no credit for it the other end goes on over TCP,
 * and finds nobody there. */
static void say_leaving(struct exi_rma_link *l)
{
	struct exi_rma_msg m = { .kind = EXI_RMA_CREDIT,
				 .flags = EXI_RMA_FLAG_CLOSES };

	if (l->leaves && exi_rma_link_say(l, &m, NULL, false, true) == 0)
		l->leaves = false;
}

void exi_rma_link_drain(struct exi_rma_link *l, uint64_t deadline)
{
	/* What meets has nothing under way, and its net may change. Pairs with
	 * the end of exi_rma_meet_done(). */
	if (__atomic_load_n(&l->meeting, __ATOMIC_ACQUIRE))
		return;
	/* What the core said last; or the service is at it. */
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
		/* This thread may have been interrupted with the lock. */
		if (l->net->early)
			exi_rma_net_try_poll(l->net);
		sched_yield();
	}
}

void exi_rma_link_unpin(struct exi_rma_link *l)
{
	if (!l->net || !l->net->lingers) {
		unpin(&l->ring);
		unpin(&l->mirror);
		unpin(&l->out);
	}
	exi_rma_place_unpin(l);
}

void exi_rma_link_close(struct exi_rma_link *l)
{
	bool lingers = l->net && l->net->lingers;
	bool busy = atomic_load(&l->done) != l->posted;

	drop_ring(l, &l->ring, lingers);
	drop_ring(l, &l->mirror, lingers && busy);
	drop_ring(l, &l->out, lingers && busy);
	if (l->net && exi_rma_fabric.quit)
		exi_rma_fabric.quit(l);
	l->net = NULL;
}

void exi_rma_link_free(struct exi_rma_link *l)
{
	exi_rma_place_free(l);
	exi_rma_link_close(l);
	free(l);
}

/* --- the engines' messages ---------------------------------------------- */

/* The other side of put_in(). */
static bool next(struct exi_rma_inbox *b, struct exi_stream_msg *ret)
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

int exi_rma_link_take_some(struct exi_rma_link *l, enum exi_dir dir)
{
	struct exi_stream_msg m;
	bool some = false;
	int err = 0;

	while (!err && next(&l->inbox[dir], &m)) {
		some = true;
		err = dir == EXI_RX ? exi_stream_rx_got(&l->rx, &m)
				    : exi_stream_tx_got(&l->tx, &m);
	}
	if (err)
		exi_rma_link_fail(l, err, "a message that cannot be");
	else if (dir == EXI_TX && exi_stream_tx_due(&l->tx))
		exi_rma_link_answer(l);
	else if (dir == EXI_RX && some && l->rx.posted)
		exi_rma_link_copy(l);
	return err;
}

void exi_rma_link_copy(struct exi_rma_link *l)
{
	uint32_t at, n;
	void *to;

	while ((n = exi_stream_rx_copy(&l->rx, &at, &to))) {
		memcpy(to, l->ring.at + at, n);
		exi_stream_rx_copied(&l->rx, n);
	}
}

static int say_engine(struct exi_rma_link *l, const struct exi_stream_msg *m)
{
	bool closes = m->kind == EXI_STREAM_END && l->leaves;
	struct exi_rma_msg out = {
		.kind = m->kind == EXI_STREAM_END      ? EXI_RMA_END
			: m->kind == EXI_STREAM_ADVERT ? EXI_RMA_ADVERT
			: m->kind == EXI_STREAM_ACK    ? EXI_RMA_ACK
						       : EXI_RMA_REVOKE,
		.flags = (m->waitall ? EXI_RMA_FLAG_WAITALL : 0) |
			 (closes ? EXI_RMA_FLAG_CLOSES : 0),
		.phase = m->phase,
		.seq = m->seq,
		.note = m->len,
		.addr = m->addr,
		.key = m->key,
	};

	/* A REVOKE is answered by who need not be waiting for anything. */
	int err = exi_rma_link_say(l, &out, NULL, m->kind == EXI_STREAM_REVOKE,
				   true);

	if (closes && !err)
		l->leaves = false;
	return err;
}

void exi_rma_link_answer(struct exi_rma_link *l)
{
	struct exi_stream_msg m;
	int err = atomic_load(&l->err);

	while (!err && exi_stream_tx_next(&l->tx, 0, EXI_STREAM_NOW, &m) !=
			       EXI_STREAM_NONE) {
		err = m.kind == EXI_STREAM_END
			      ? say_engine(l, &m)
			      : exi_rma_link_write(l, l->mirror.at,
						   &l->mirror.mr, l->peer.addr,
						   l->peer.key, 0,
						   EXI_RMA_NOTE_INDIRECT, NULL);
		if (!err)
			exi_stream_tx_sent(&l->tx, &m, 0);
	}
	if (err == -EAGAIN)
		atomic_store(&l->unanswered, true);
}

void exi_rma_link_report(struct exi_rma_link *l, bool idle)
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
