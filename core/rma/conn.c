/* SPDX-License-Identifier: BSD-2-Clause */
/* The data path of a connection over a device: sending, receiving, loans,
 * waiting, switching; and the tables that the core calls. */
#include "core/rma/conn.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/futex.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/rma/domain.h"
#include "core/rma/door.h"
#include "core/rma/engine.h"
#include "core/rma/link.h"
#include "core/rma/meet.h"
#include "core/rma/memory.h"
#include "core/rma/place.h"
#include "core/rma/post.h"
#include "core/rma/rma.h"
#include "core/rma/sever.h"
#include "core/rma/stream.h"
#include "core/rma/wire.h"

#define DRAIN_NS 5000000000u

/* The error where nothing moves. Only a protocol error of the peer is reported
 * here: the core learns from the pair link that the peer is gone, and
 * decides. */
static int lost(struct exi_rma_link *l)
{
	return atomic_load(&l->err) == -EPROTO ? -EPROTO : -EAGAIN;
}

/* --- sending ------------------------------------------------------------ */

/* Sends so few bytes that the device takes them with the request. */
static int send_direct(struct exi_rma_link *l, struct exi_stream_msg *m,
		       const void *buf)
{
	/* A ring that was read empty has room, but the peer must report it. */
	if (m->len > l->net->inline_max)
		return -EAGAIN;
	return exi_rma_link_write(l, buf, NULL, m->addr, m->key, m->len,
				  EXI_RMA_NOTE_DIRECT, NULL);
}

static int send_indirect(struct exi_rma_link *l, struct exi_stream_msg *m,
			 const void *buf)
{
	unsigned char *at = l->mirror.at + m->addr;

	if (m->len > l->net->piece_max)
		m->len = l->net->piece_max;
	memcpy(at, buf, m->len);
	return exi_rma_link_write(l, at, &l->mirror.mr, l->peer.addr + m->addr,
				  l->peer.key, m->len, EXI_RMA_NOTE_INDIRECT,
				  NULL);
}

/* Copies one piece and sends it. Its length, or -errno. */
static ssize_t send_piece(struct exi_rma_link *l, const void *buf, size_t len)
{
	enum exi_stream_how how =
		len <= l->net->inline_max ? EXI_STREAM_NOW : EXI_STREAM_RING;
	struct exi_stream_msg m;
	int err;

	switch (exi_stream_tx_next(&l->tx, len, how, &m)) {
	case EXI_STREAM_DIRECT:
		err = send_direct(l, &m, buf);
		break;
	case EXI_STREAM_INDIRECT:
		err = send_indirect(l, &m, buf);
		break;
	default:
		return -EAGAIN;
	}
	if (err)
		return err;
	exi_stream_tx_sent(&l->tx, &m, m.len);
	return m.len;
}

static ssize_t conn_send(struct exi_conn *c, const void *buf, size_t len,
			 int flags)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	size_t done = 0;
	ssize_t n = 0;

	if (exi_rma_link_take(l, EXI_TX) || atomic_load(&l->err))
		return lost(l);
	while (done < len) {
		n = send_piece(l, (const char *)buf + done, len - done);
		if (n == -EAGAIN) {
			/* A sender that never waits hears here that its link
			 * failed. */
			exi_rma_fabric.reap(l->net);
			if (exi_rma_net_try_poll(l->net) &&
			    exi_rma_link_take(l, EXI_TX) == 0)
				n = send_piece(l, (const char *)buf + done,
					       len - done);
		}
		if (n < 0)
			break;
		done += (size_t)n;
	}
	return done ? (ssize_t)done : n;
}

static int conn_end(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	exi_stream_tx_end(&l->tx);
	exi_rma_link_take(l, EXI_TX);
	exi_rma_link_answer(l);
	return 0;
}

/* --- receiving ---------------------------------------------------------- */

static size_t read_ring(struct exi_rma_link *l, void *buf, size_t len,
			bool peek)
{
	size_t done = 0;
	uint32_t at, n;

	while (done < len) {
		n = exi_stream_rx_run(&l->rx, peek ? (uint32_t)done : 0, &at);
		if (!n)
			break;
		if (n > len - done)
			n = (uint32_t)(len - done);
		memcpy((char *)buf + done, l->ring.at + at, n);
		if (!peek)
			exi_stream_rx_take(&l->rx, n);
		done += n;
	}
	return done;
}

static ssize_t conn_recv(struct exi_conn *c, void *buf, size_t len, int flags)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	bool peek = flags & MSG_PEEK;
	size_t done;

	if (exi_rma_link_take(l, EXI_RX))
		return -EPROTO;
	done = read_ring(l, buf, len, peek);
	/* A receive that does not wait must find all that came before the call,
	 * and another thread may just be taking that: so this is not
	 * try_poll(). */
	if (!done && !(flags & EXI_MSG_POLLED)) {
		exi_rma_net_poll(l->net);
		if (exi_rma_link_take(l, EXI_RX))
			return -EPROTO;
		done = read_ring(l, buf, len, peek);
	}
	/* The program's answer goes before an ACK: there is time to report room
	 * when the program calls again and nothing is there. */
	if (!done || exi_stream_rx_untold(&l->rx) >= l->ring.bytes / 2)
		exi_rma_link_report(l, false);
	if (done)
		return (ssize_t)done;
	if (exi_stream_rx_over(&l->rx) ||
	    (!len && exi_stream_rx_unread(&l->rx) > 0))
		return 0;
	return lost(l);
}

/* --- loans -------------------------------------------------------------- */

static size_t loan_look(struct exi_conn *c, const void **ret)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	uint32_t at, n = exi_stream_rx_run(&l->rx, 0, &at);

	*ret = l->ring.at + at;
	return n;
}

static void loan_took(struct exi_conn *c, size_t n)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	exi_stream_rx_take(&l->rx, (uint32_t)n);
	exi_rma_link_report(l, false);
}

/* --- waiting ------------------------------------------------------------ */

static bool ready(struct exi_rma_link *l, enum exi_dir dir)
{
	/* A failed link is not an event here: the core learns of it from the
	 * pair link, and wakes the waiters. A waiter that looked again and
	 * again would keep the lock from the core. */
	if (exi_rma_link_take(l, dir) || atomic_load(&l->err) == -EPROTO)
		return true;
	if (dir == EXI_RX) {
		if (exi_stream_rx_unread(&l->rx) > 0 ||
		    exi_stream_rx_over(&l->rx) || l->rx.n_done > 0)
			return true;
		/* The bytes may have gone into a receive that is not full yet:
		 * that wakes no thread, but the sender may wait for the
		 * room. */
		exi_rma_link_report(l, false);
		return false;
	}
	return exi_stream_tx_ready(&l->tx) && exi_rma_link_writable(l);
}

static bool conn_ready(struct exi_conn *c, enum exi_dir dir)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	if (ready(l, dir))
		return true;
	return exi_rma_net_try_poll(l->net) && ready(l, dir);
}

/* The order is flag, request, look: what comes after the look finds the flag.
 * Pairs with exi_rma_link_wake(). */
static int conn_arm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	bool word = how == EXI_WAKE_WORD || how == EXI_WAKE_WORD_REAP;
	struct exi_rma_link *l = exi_rma_link_of(c);
	uint32_t unread = 0;
	bool busy;

	/* Read here only: a sender does not have the receiver's lock. */
	if (how == EXI_WAKE_NEXT)
		unread = exi_stream_rx_unread(&l->rx);
	if (dir == EXI_RX)
		exi_rma_link_report(l, true);
	exi_rma_link_want(l, dir, word);
	exi_rma_net_poll(l->net);
	busy = ready(l, dir);
	if (how == EXI_WAKE_NEXT)
		busy = exi_stream_rx_unread(&l->rx) != unread || l->rx.ended;
	else if (dir == EXI_TX && how != EXI_WAKE_WORD && how != EXI_WAKE_BELL)
		busy = false; /* a link that failed, too: as in ready() */
	busy = busy || (dir == EXI_TX && exi_rma_place_over(l));
	if (dir == EXI_RX && !busy) /* this look may have taken bytes */
		exi_rma_link_report(l, true);
	if (busy && word)
		exi_rma_link_want_no_more(l, dir, true);
	return busy ? -EBUSY : 0;
}

static void conn_disarm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	exi_rma_link_want_no_more(exi_rma_link_of(c), dir,
				  how == EXI_WAKE_WORD);
}

/* A change that another thread took before counts, too: it is not reported
 * again. What is put after the second look stirs after the first. */
static int conn_word(struct exi_conn *c, enum exi_dir dir, struct exi_word *ret)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	uint32_t now = atomic_load(&l->stir);

	ret->addr = (const uint32_t *)&l->stir;
	ret->value = exi_rma_inbox_empty(&l->inbox[dir]) ? now : ~now;
	return 0;
}

/* A message that another thread took counts, too. */
static void conn_poll(struct exi_conn *c, unsigned int looks)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	uint32_t was = atomic_load_explicit(&l->stir, memory_order_relaxed);
	struct exi_rma_net *n = l->net;
	unsigned int held = n->quick ? looks : 1;

	while (!exi_rma_net_look(n, held) && (looks -= held) &&
	       atomic_load_explicit(&l->stir, memory_order_relaxed) == was)
		;
}

/* FAR is how much longer a reply takes between hosts. With software devices,
 * above all while the other end sleeps, a reply takes longer still, and must
 * not seem too late: from then on both ends would sleep, each waiting for the
 * other. */
#define FAR	     4
#define FAR_SOFTWARE 16

static unsigned int conn_patience(struct exi_conn *c)
{
	return exi_rma_link_of(c)->net->software ? FAR_SOFTWARE : FAR;
}

static size_t conn_unread(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	exi_rma_link_take(l, EXI_RX);
	return exi_stream_rx_unread(&l->rx);
}

static bool conn_full(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	exi_rma_link_report(l, true);
	return conn_unread(c) >= l->rx.ring - l->rx.ring / 4;
}

static bool conn_over(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	exi_rma_link_take(l, EXI_RX);
	return l->rx.ended;
}

static int conn_peer_cpu(struct exi_conn *c)
{
	return -1;
}

/* --- switching ---------------------------------------------------------- */

static int switch_head(struct exi_conn *c, uint64_t *ret)
{
	*ret = exi_stream_tx_head(&exi_rma_link_of(c)->tx);
	return 0;
}

static int switch_start(struct exi_conn *c, uint64_t head)
{
	return exi_stream_rx_start(&exi_rma_link_of(c)->rx, head);
}

static void switch_cursor(struct exi_conn *c, uint64_t *ret_pos,
			  uint64_t *ret_used)
{
	/* The direction is quiet. */
	*ret_pos = exi_stream_rx_cursor(&exi_rma_link_of(c)->rx);
	*ret_used = 0;
}

static int switch_takeback(struct exi_conn *c, uint64_t pos, uint64_t used)
{
	return used ? -EPROTO
		    : exi_stream_tx_takeback(&exi_rma_link_of(c)->tx, pos);
}

static size_t switch_drain(struct exi_conn *c, const void **ret)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	uint32_t at;
	size_t n = exi_rma_place_drain(l, ret);

	if (n)
		return n;
	n = exi_stream_tx_drain(&l->tx, &at);
	*ret = l->mirror.at + at;
	return n;
}

static void switch_drained(struct exi_conn *c, size_t n)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	if (l->held)
		exi_rma_place_drained(l, n);
	else
		exi_stream_tx_drained(&l->tx, (uint32_t)n);
}

/* --- the table ---------------------------------------------------------- */

static void conn_close(struct exi_conn *c)
{
}

/* Bytes that were sent are delivered even if the program continues or ends, as
 * with TCP. */
static void conn_stop(struct exi_conn *c)
{
	if (exi_rma_link_of(c))
		exi_rma_link_drain(exi_rma_link_of(c), exi_now_ns() + DRAIN_NS);
}

static void conn_fini(struct exi_conn *c)
{
	if (exi_rma_link_of(c))
		exi_rma_meet_end(exi_rma_link_of(c));
	((struct exi_rma_conn *)c->priv)->link = NULL;
}

static const struct exi_wait_ops wait_ops = {
	.arm = conn_arm,
	.disarm = conn_disarm,
	.word = conn_word,
	.peer_cpu = conn_peer_cpu,
	.poll = conn_poll,
	.patience = conn_patience,
};

static const struct exi_ready_ops ready_ops = {
	.ready = conn_ready,
	.unread = conn_unread,
	.full = conn_full,
	.over = conn_over,
};

const struct exi_conn_ops exi_rma_conn_ops = {
	.priv_size = sizeof(struct exi_rma_conn),
	.wait_ops = &wait_ops,
	.ready_ops = &ready_ops,
	.switch_ops = &exi_rma_switch_ops,
	.place_ops = &exi_rma_place_ops,
	.loan_ops = &exi_rma_loan_ops,
	.close = conn_close,
	.stop = conn_stop,
	.fini = conn_fini,
	.send = conn_send,
	.recv = conn_recv,
	.end = conn_end,
};

const struct exi_switch_ops exi_rma_switch_ops = {
	.head = switch_head,
	.start = switch_start,
	.cursor = switch_cursor,
	.takeback = switch_takeback,
	.drain = switch_drain,
	.drained = switch_drained,
};

const struct exi_loan_ops exi_rma_loan_ops = {
	.look = loan_look,
	.took = loan_took,
};

/* --- the domain --------------------------------------------------------- */

static void look(uint64_t now)
{
	exi_rma_meet_tick(now);
	exi_rma_doors_tick(now);
	exi_rma_links_tick(now);
	exi_rma_place_tick(now);
	exi_rma_debts_tick();
}

int exi_rma_open(struct exi_domain **ret)
{
	static const struct exi_rma_work work = {
		.look = look,
		.forked = exi_rma_doors_forked,
	};

	return exi_rma_domain_open(&work, ret);
}
