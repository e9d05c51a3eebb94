/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting on a link, its credits, and the credits that a net owes. */
#include "core/rma/post.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/rma/lock.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"

/* DEBT_NS is how long placed bytes may go without credit at their sender, while
 * their receiver sends nothing and looks for nothing. */
#define DEBT_NS 1000000u
/* If the receiver's own messages paid PAID_OFTEN debts in that time, the
 * service, which would find nothing to pay, comes later: up to DEBT_MAX
 * times. */
#define PAID_OFTEN 32u
#define DEBT_MAX   4u

/* Nets at which the service is to look for debts; under the service lock. */
static struct exi_list reminders = EXI_LIST_INIT(reminders);

/* Takes the wish for the bell back; whether there was one. */
static bool silence(struct exi_rma_link *l, enum exi_dir dir)
{
	if (!atomic_load(&l->bell[dir]) ||
	    !atomic_exchange(&l->bell[dir], false))
		return false;
	atomic_fetch_sub(&l->net->armed, 1);
	return true;
}

void exi_rma_post_bell(struct exi_rma_link *l)
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
		exi_rma_post_bell(l);
}

void exi_rma_post_wake(struct exi_rma_link *l, enum exi_dir dir)
{
	if (exi_unlikely(atomic_load(&l->sleepers[dir]) ||
			 atomic_load(&l->bell[dir])))
		wake_them(l, dir);
}

/* Called after the arrived messages were stored. Pairs with the flag, then the
 * look, of conn_arm(). */
void exi_rma_link_wake(struct exi_rma_link *l, enum exi_dir dir)
{
	atomic_fetch_add(&l->stir, 1);
	exi_rma_post_wake(l, dir);
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
	exi_rma_link_wake(l, EXI_RX);
	exi_rma_link_wake(l, EXI_TX);
	if (l->pair >= 0)
		shutdown(l->pair, SHUT_RDWR);
}

void exi_rma_link_kill(struct exi_rma_link *l)
{
	if (atomic_exchange(&l->dead, true))
		return;
	exi_rma_fabric.kill(l);
	exi_rma_link_fail(l, -ECONNRESET, "abandoned");
}

unsigned int exi_rma_post_room(struct exi_rma_link *l)
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

	return !atomic_load(&l->err) && exi_rma_post_room(l) >= 2 &&
	       under_way + (reserve ? 0 : EXI_RMA_RESERVE) < EXI_RMA_CREDITS;
}

int exi_rma_post(struct exi_rma_link *l, const struct exi_rma_req *r,
		 unsigned int n)
{
	int err = exi_rma_fabric.post(l, r, n);

	/* The core hears by the pair link, whatever the device calls the
	 * error. */
	if (err && err != -EAGAIN)
		exi_rma_link_fail(l, -ECONNRESET, strerror(-err));
	return err ? -EAGAIN : 0;
}

/* Half of the credits are used: the other end might stop before it gives
 * credits back by itself, so its service is to look. */
static bool urges(const struct exi_rma_link *l)
{
	return l->sent - atomic_load(&l->credited) >= EXI_RMA_CREDITS / 2;
}

bool exi_rma_post_asked(_Atomic bool *what)
{
	return atomic_load(what) && atomic_exchange(what, false);
}

/* Counts messages sent, with the post lock held; readers of credits read the
 * count without. */
static void count_sent(struct exi_rma_link *l, uint32_t n)
{
	__atomic_store_n(&l->sent, l->sent + n, __ATOMIC_RELAXED);
}

/* The length of what comes before a message's extra bytes. */
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

/* Sends a message as r[n - 1], after other requests. m is not used any more. */
static inline __attribute__((always_inline)) int
say_locked(struct exi_rma_link *l, struct exi_rma_msg *m, const void *extra,
	   bool urgent, struct exi_rma_req *r, unsigned int n)
{
	EXI_RMA_LOCKED(&l->post);
	/* The place is free: the message that had it before was received. */
	unsigned char *bytes =
		l->out.at + l->sent % EXI_RMA_CREDITS * EXI_RMA_MSG_MAX;
	uint32_t given = l->given;
	bool owed;
	int err;

	count_sent(l, 1);
	owed = exi_rma_post_asked(&l->owes);
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
	err = exi_rma_post(l, r, n);
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

/* Sends so few bytes that they go with their note, as BYTES. */
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

/* Sends a write, r[0], and its note, for which there is room. */
static int write_locked(struct exi_rma_link *l, struct exi_rma_req *r,
			uint32_t note)
{
	struct exi_rma_msg m = { .kind = EXI_RMA_NOTE, .note = note };
	uint32_t len = note & EXI_RMA_NOTE_LEN;
	int err;

	EXI_RMA_LOCKED(&l->post);
	if (len <= l->net->eager &&
	    note >> EXI_RMA_NOTE_SHIFT == EXI_RMA_NOTE_INDIRECT) {
		/* A link that no queue pair identifies needs its name in the
		 * message. */
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
	err = exi_rma_post(l, r, 1);
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

/* Sends CREDIT, if credits are due. owed: the other end waits for credits that
 * were not sent yet. */
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

/* Notes a debt: the sender of placed bytes waits for their credits. The program
 * that received them mostly posts its next receive at once, and that message
 * takes the credits along. Otherwise the first look that finds nothing pays, or
 * the service, which is reminded. For messages that it takes itself, the
 * service pays at once, unless it was reminded already. */
static void pay_soon(struct exi_rma_link *l)
{
	struct exi_rma_net *n = l->net;

	if (n->debtor != l)
		exi_rma_net_pay(n);
	n->debtor = l;
	n->debts++;
	if (n->reminded)
		return;
	/* The service lock comes before the net's, so it is only tried. */
	if (pthread_mutex_trylock(&exi_rma_service_lock)) {
		exi_rma_net_pay(n);
		return;
	}
	n->reminded = true;
	exi_list_add_tail(&reminders, &n->reminder);
	exi_rma_tick_at(exi_now_ns() + n->debt_wait * DEBT_NS);
	pthread_mutex_unlock(&exi_rma_service_lock);
}

void exi_rma_debts_tick(void)
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

	/* One thread at a time counts. Release: a thread that sends the count
	 * sends it of buffers that are there. */
	n += atomic_load_explicit(&l->received, memory_order_relaxed);
	atomic_store_explicit(&l->received, n, memory_order_release);
	/* The debt is noted after the count: any thread that sends a message
	 * meanwhile takes the debt, and would pay with a count without these
	 * messages. */
	if (l->will_owe == EXI_RMA_OWE_NOW)
		atomic_store(&l->owes, true);
	l->will_owe = EXI_RMA_OWE_NOT;
	if (due(l))
		say_credits(l, false);
	else if (soon)
		pay_soon(l);
}

void exi_rma_link_forget(struct exi_rma_link *l)
{
	silence(l, EXI_RX);
	silence(l, EXI_TX);
	if (l->net->debtor == l)
		l->net->debtor = NULL;
}

int exi_rma_net_poll(struct exi_rma_net *n)
{
	int ret;

	exi_rma_lock(&n->lock);
	ret = exi_rma_net_take(n);
	exi_rma_unlock(&n->lock);
	return ret;
}
