/* SPDX-License-Identifier: BSD-2-Clause */
/* The messages of the pair link: those of the meeting, and those that move a
 * live connection. A is the end that connected, B the one that accepted.
 *
 * 	A: LISTEN -> PROVED -> ANSWER -> UP	B: HELLO -> OFFER -> UP */
#include "core/link/control.h"

#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/probe.h"
#include "core/base/proof.h"
#include "core/base/rights.h"
#include "core/base/shun.h"
#include "core/base/user.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/link/ending.h"
#include "core/link/watch.h"
#include "core/meet/begin.h"
#include "core/meet/candidate.h"
#include "core/meet/find.h"
#include "core/meet/meet.h"
#include "core/meet/pair.h"
#include "core/meet/unseen_search.h"
#include "core/sock/base.h"
#include "core/sock/capture.h"
#include "core/sock/closing.h"
#include "core/sock/memory.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "core/sock/wake.h"
#include "core/transfer/drain.h"
#include "core/transfer/family.h"
#include "core/transfer/half.h"
#include "core/transfer/place.h"
#include "core/transfer/resume.h"
#include "core/transfer/switch.h"

static void up_expired(struct exi_sock *sk);

void exi_link_shun(struct exi_sock *sk, uint32_t generation)
{
	uid_t user = (uid_t)-1;

	exi_lock(&sk->link_lock);
	if (exi_sock_lasts(sk, generation) && sk->fab && !exi_sock_remote(sk))
		user = sk->fab->user;
	exi_unlock(&sk->link_lock);
	exi_shun(user, exi_now_ns());
}

bool exi_link_part(struct exi_sock *sk, uint32_t generation)
{
	bool lasts, ends;

	exi_lock(&sk->link_lock);
	lasts = exi_sock_lasts(sk, generation);
	ends = lasts && sk->link && sk->link->state == EXI_LINK_UP &&
	       exi_switch_on_tcp(sk->sh, false);
	if (ends)
		shutdown(sk->link->fd, SHUT_RDWR);
	exi_unlock(&sk->link_lock);
	if (!ends)
		return !lasts;
	exi_link_event(sk, 0);
	return !exi_sock_lasts(sk, generation) ||
	       exi_switch_done(exi_sock_shared(sk));
}

int exi_link_leave(struct exi_sock *sk, int reason)
{
	struct exi_link *l;
	int ret = -ENOTCONN;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (l && l->state == EXI_LINK_UP && !l->timer.deadline) {
		l->leaves = true;
		l->timer.deadline = exi_switch_patience(sk, NULL);
		exi_service_timed(&l->timer);
		/* A message that cannot be sent gets no answer. */
		exi_switch_leave(sk, reason);
		ret = 0;
	}
	exi_unlock(&sk->link_lock);
	return ret;
}

bool exi_control_said_end_locked(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&rx->lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (rx->mode == EXI_MODE_RING || rx->mode == EXI_MODE_LEFT)
		return rx->ended || (sk->fab && sk->fab->rops->over(sk->fab));
	return exi_tcp_ended(sk) != 0;
}

/* --- meeting: the conversation ------------------------------------------ */

/* Bytes after which a connection in an epoll set for which no thread was seen
 * to wait reports that as the reason why it stays on TCP. */
#define UNAWAITED_BYTES 65536u

static void await_wait(struct exi_shared *sh)
{
	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sh->half[d];

		if (atomic_load(&h->meet_at) == UINT64_MAX)
			atomic_store(
				&h->meet_at,
				__atomic_load_n(&h->bytes, __ATOMIC_RELAXED) +
					UNAWAITED_BYTES);
	}
}

static void go_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	struct exi_half *rx = &sh->half[EXI_RX];

	EXI_LOCKED(&sk->link_lock);
	exi_switch_awaited(sk);
	if (!sk->link || sk->link->state != EXI_LINK_UP || sk->link->go_sent)
		return;
	if (!atomic_load(&sh->hold_here) &&
	    exi_unseen_waits(atomic_load(&sk->fd)))
		exi_switch_leave(sk, EXS_X_REASON_UNSEEN_WAIT);
	exi_lock(&rx->lock);
	if (atomic_load(&sh->hold_here) ||
	    atomic_load(&sh->owner) != sk->process)
		; /* it may not move here */
	else if (exi_sock_idlers_locked(sk, EXI_RX))
		await_wait(sh);
	/* linked is set: a thread that enters recv from here on can be
	 * woken. */
	else if (rx->in_kernel == 0 &&
		 exi_link_send(sk, EXI_PAIR_GO, 0, 0, 0) == 0)
		sk->link->go_sent = true;
	exi_unlock(&rx->lock);
}

void exi_link_go(struct exi_sock *sk)
{
	exi_lock(&sk->link_lock);
	go_locked(sk);
	exi_unlock(&sk->link_lock);
}

static void up_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	sk->fab->user = exi_user_of(l->fd);
	sk->fab->salt = exi_secret(sk->fab->user); /* secret */
	exi_meet_lock_halves(sk);
	sk->fab->bell = l->fd;
	exi_ready_times_locked(sk);
	exi_meet_unlock_halves(sk);
	exi_stats_fabric(sk);
	exi_capture_add(sk);
	l->state = EXI_LINK_UP;
	EXI_PROBE2(meeting, sk->tcp->fd, sk->fab->provider->name);
	/* Earlier bytes were not counted. */
	if (!atomic_exchange(&exi_link_any, true))
		exi_link_by_kernel(0, 0);
	l->timer.deadline = 0;
	l->refuses = exi_rights_allow(l->fd, false);
	l->clean = exi_sock_remote(sk); /* this process has both ends */
	atomic_store(&sk->hearer, 0);
	exi_family_keep(sk);
	exi_family_expect();
	if (exi_closes_seen)
		exi_fds_hold_some();
	exi_ready_lowat(sk);
	exi_service_untimed(&l->timer);
	l->timer.expired = up_expired; /* the service does not read it now */
	if (exi_ready_met)
		exi_ready_met(sk, false);
	if (exi_service_watch(sk, sk->tcp->fd, EXI_WATCH_TCP,
			      EPOLLRDHUP | EPOLLET) == 0)
		sk->watched = true;
	exi_lock(&sk->sh->half[EXI_TX].lock);
	exi_switch_held_locked(sk);
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	go_locked(sk);
	/* The end of TCP may have been reported before. */
	if (exi_sock_remote(sk) && exi_tcp_ended(sk))
		exi_ending_ask_locked(sk);
}

/* Handles a message of the meeting: 0, or minus the reason to give up. */
static int greet_locked(struct exi_sock *sk, struct exi_pair_msg *m, int fd)
{
	struct exi_link *l = sk->link;
	struct exi_blob blob;
	int ret;

	EXI_LOCKED(&sk->link_lock);
	/* A stranger must not keep the board for longer. */
	if (l->state != EXI_LINK_SHOW) {
		l->timer.deadline = exi_now_ns() + EXI_MEET_STEP_NS;
		exi_service_timed(&l->timer);
	}
	if (m->type == EXI_PAIR_NO)
		return -exi_meet_told_reason(m);
	if (l->state == EXI_LINK_REMOTE && m->type == EXI_PAIR_MET) {
		up_locked(sk);
		return 0;
	}
	if (l->state == EXI_LINK_HELLO && m->type == EXI_PAIR_HELLO)
		return exi_meet_on_hello(sk, m);
	if (l->state == EXI_LINK_SHOW && m->type == EXI_PAIR_SHOWN)
		return exi_meet_on_shown(sk, m);
	if (l->state == EXI_LINK_PROVED && m->type == EXI_PAIR_PROVED) {
		m->a = l->peer_providers;
		exi_meet_await_segment(l, EXI_LINK_ANSWER);
		return exi_meet_offer(sk, m);
	}
	if (l->state == EXI_LINK_OFFER && m->type == EXI_PAIR_OFFER) {
		ret = exi_meet_answer(sk, m, fd);
		if (ret == 0)
			up_locked(sk);
		return ret;
	}
	if (l->state == EXI_LINK_ANSWER && m->type == EXI_PAIR_ANSWER) {
		memcpy(blob.bytes, m->blob, sizeof(blob.bytes));
		blob.fd = fd;
		ret = sk->fab->provider->meet_ops->accepted(sk->fab, &blob);
		if (ret)
			return -exi_meet_unmade(ret);
		up_locked(sk);
		return 0;
	}
	return -EXS_X_REASON_PROTOCOL;
}

/* --- messages of a link that is up -------------------------------------- */

static int on_down(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_shared *sh = sk->sh;
	int ret;

	exi_lock(&sh->half[EXI_TX].lock);
	atomic_store(&sh->hold_there, 1);
	atomic_store(&sh->handed, m->a == EXI_DOWN_HANDED);
	if (atomic_load(&sh->reason) == EXS_X_REASON_UNDECIDED)
		exi_sock_reason(sk, EXS_X_REASON_PEER_REQUEST);
	exi_unlock(&sh->half[EXI_TX].lock);
	exi_lock(&sh->half[EXI_RX].lock);
	exi_switch_giveback_locked(sk);
	ret = exi_link_send(sk, EXI_PAIR_DOWN_ACK, 0, 0, 0);
	exi_unlock(&sh->half[EXI_RX].lock);
	return ret == -ENOTCONN ? 0 : ret;
}

static int on_down_ack(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;

	if (atomic_load(&sh->down_wait) == 0)
		return -EPROTO;
	exi_lock(&sh->half[EXI_RX].lock);
	exi_switch_giveback_locked(sk);
	exi_unlock(&sh->half[EXI_RX].lock);
	atomic_fetch_sub(&sh->down_wait, 1);
	go_locked(sk);
	return 0;
}

static int on_switch(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	int ret;

	exi_lock(&rx->lock);
	ret = exi_switch_arrived_locked(sk, m->a, m->b, m->c);
	exi_unlock(&rx->lock);
	return ret;
}

static int on_takeback(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	int ret;

	exi_lock(&tx->lock);
	ret = exi_switch_takeback_locked(sk, m->a, m->b, m->c);
	/* The peer may look into TCP at once when it learns of the move. */
	if (ret == 0 && tx->mode == EXI_MODE_DRAIN)
		exi_flow_drain_locked(sk);
	if (ret == 0)
		exi_link_send(sk, EXI_PAIR_TAKEN, m->a, 0, 0);
	exi_unlock(&tx->lock);
	return ret;
}

static void try_up(struct exi_sock *sk)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];

	exi_lock(&tx->lock);
	exi_switch_up_locked(sk);
	exi_unlock(&tx->lock);
}

static int converse_locked(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	EXI_LOCKED(&sk->link_lock);
	switch (m->type) {
	case EXI_PAIR_GO:
		atomic_store(&sk->sh->may_switch, 1);
		try_up(sk);
		return 0;
	case EXI_PAIR_SWITCH:
		return on_switch(sk, m);
	case EXI_PAIR_DOWN:
		return on_down(sk, m);
	case EXI_PAIR_DOWN_ACK:
		return on_down_ack(sk);
	case EXI_PAIR_TAKEBACK:
		return on_takeback(sk, m);
	case EXI_PAIR_TAKEN:
		if (m->a == sk->sh->half[EXI_RX].epoch)
			atomic_store(&sk->sh->half[EXI_RX].untaken, 0);
		return 0;
	case EXI_PAIR_UP:
		atomic_store(&sk->sh->hold_there, 0);
		atomic_store(&sk->sh->handed, 0);
		go_locked(sk);
		try_up(sk);
		return 0;
	case EXI_PAIR_FINSEEN:
		return exi_ending_on_finseen(sk, m);
	default:
		return -EPROTO;
	}
}

/* Whether the peer was never ready to have a direction switched. */
static bool untouched(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;

	return !atomic_load(&sh->may_switch) &&
	       sh->half[EXI_RX].mode == EXI_MODE_TCP &&
	       sh->half[EXI_TX].mode == EXI_MODE_TCP;
}

/* Handles one packet of the link. Returns false if the link is gone. */
static bool packet_locked(struct exi_sock *sk, struct exi_pair_msg *m,
			  ssize_t n, int fd)
{
	int ret;

	EXI_LOCKED(&sk->link_lock);
	if (n == 1 && sk->link->state == EXI_LINK_UP) {
		__atomic_fetch_add(&sk->sh->bells_received, 1,
				   __ATOMIC_RELAXED);
		exi_stats_woken(sk);
		return true;
	}
	if (exi_pair_is_not_now(m, n) &&
	    (sk->link->state != EXI_LINK_UP || untouched(sk))) {
		exi_meet_put_off_locked(sk, exi_meet_told_reason(m));
		return false;
	}
	if (sk->link->state != EXI_LINK_UP) {
		ret = exi_pair_well_formed(m, n) ? greet_locked(sk, m, fd)
						 : -EXS_X_REASON_PROTOCOL;
		if (ret)
			exi_meet_refuse_locked(sk, -ret);
		return ret == 0;
	}
	/* The peer could not accept our answer: its link is not up, and nothing
	 * was switched. */
	if (exi_pair_well_formed(m, n) && m->type == EXI_PAIR_NO &&
	    untouched(sk)) {
		exi_meet_give_up_locked(sk, exi_meet_told_reason(m));
		return false;
	}
	ret = exi_pair_well_formed(m, n) ? converse_locked(sk, m) : -EPROTO;
	if (ret == -EPROTO)
		exi_ending_violated_locked(sk, m);
	return ret != -EPROTO;
}

/* Handles the end of the link, or an unexpected descriptor. */
static void no_packet_locked(struct exi_sock *sk, ssize_t n)
{
	const struct exi_link *l = sk->link;
	bool was_up = l->state == EXI_LINK_UP;
	/* B: the process that hung up has not proved to be the peer. */
	bool stranger = (l->state == EXI_LINK_HELLO && !l->known) ||
			l->state == EXI_LINK_SHOW;

	EXI_LOCKED(&sk->link_lock);
	if (n == -EPROTO && was_up)
		exi_link_violation(sk, "an invalid descriptor");
	if (was_up)
		exi_ending_hung_up_locked(sk);
	else if (n == -EPROTO)
		exi_meet_refuse_locked(sk, EXS_X_REASON_PROTOCOL);
	else if (n == -EMFILE)
		exi_meet_refuse_locked(sk, EXS_X_REASON_DESCRIPTORS);
	else
		exi_meet_give_up_locked(sk, stranger ? EXS_X_REASON_REFUSED
						     : EXS_X_REASON_PEER_LOST);
}

/* How much of the link one call reads. A peer can write as fast as this end
 * reads: so an event handles at most this many packets. A look must see what
 * was sent before it, so it reads the bytes that were there when it began. */
#define PACKETS 16

struct reading {
	bool event;
	ssize_t budget;	   /* packets or bytes */
	bool news;	   /* a message other than WAKE came */
	unsigned int load; /* of the packets; see watch.h */
	bool was_up, gone;
};

static struct reading begin_reading(struct exi_sock *sk, bool event)
{
	struct reading r = { .event = event,
			     .budget = PACKETS,
			     .news = !event };
	int bytes = 0;

	if (!event && sk->link && sk->link->fd >= 0) {
		ioctl(sk->link->fd, FIONREAD, &bytes);
		r.budget = bytes + 1; /* and sees that it is empty, or over */
	}
	return r;
}

/* A segment may come with the next message. */
static bool passes(const struct exi_link *l)
{
	return l->state == EXI_LINK_OFFER || l->state == EXI_LINK_ANSWER;
}

/* A file that is no memory may delay a closing thread: its user is shunned for
 * a while. */
static ssize_t recv_segment(struct exi_link *l, struct exi_pair_msg *ret,
			    int *ret_fd)
{
	ssize_t n = exi_pair_recv_passing(l->fd, ret, ret_fd);

	if (n == -EPROTO)
		exi_shun(exi_user_of(l->fd), exi_now_ns());
	return n;
}

/* Reads and handles one packet. Returns false if there is none, or the link is
 * gone. */
static bool read_locked(struct exi_sock *sk, struct reading *r)
{
	struct exi_link *l = sk->link;
	struct exi_pair_msg m;
	uid_t user;
	ssize_t n;
	int fd = -1;

	EXI_LOCKED(&sk->link_lock);
	if (!l || l->fd < 0)
		return false;
	r->was_up = l->state == EXI_LINK_UP;
	if (r->was_up)
		n = exi_pair_recv_up(l, &m);
	else if (passes(l))
		n = recv_segment(l, &m, &fd);
	else
		n = exi_rights_none(l->fd, &m, sizeof(m));
	if (n == -EAGAIN)
		return false;
	r->gone = n == -EPROTO || (n <= 0 && !exi_ending_waits_locked(sk));
	if (r->gone)
		no_packet_locked(sk, n);
	if (n <= 0)
		return false;
	r->budget -= r->event ? 1 : n;
	r->load += n == 1 ? 1 : EXI_WATCH_MESSAGE;
	r->news = r->news || n != 1;
	if (n != 1)
		atomic_fetch_add_explicit(&sk->said, 1, memory_order_relaxed);
	user = fd < 0 ? (uid_t)-1 : exi_user_of(l->fd);
	r->gone = !packet_locked(sk, &m, n, fd);
	if (!exi_closing_file(fd))
		exi_shun(user, exi_now_ns());
	return true;
}

/* Ends the link if it was to end when both directions are on TCP, and both are.
 * Bytes still on their way to TCP need no link. */
static bool leaves_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	if (!l || !l->leaves || atomic_load(&sk->sh->down_wait) ||
	    !exi_switch_on_tcp(sk->sh, true))
		return false;
	shutdown(l->fd, SHUT_RDWR); /* another process may have it, too */
	exi_ending_hung_up_locked(sk);
	exi_fds_hold_some();
	return true;
}

void exi_link_event(struct exi_sock *sk, uint32_t events)
{
	bool was_up, gone, look, news;
	struct reading r;
	uint32_t generation;
	int fd;

	exi_fds_begin();
	exi_lock(&sk->link_lock);
	if (exi_unlikely(events && exi_watch_rests_locked(sk))) {
		exi_unlock(&sk->link_lock);
		exi_fds_end();
		return;
	}
	generation = atomic_load(&sk->generation);
	r = begin_reading(sk, events != 0);
	while (r.budget > 0 && read_locked(sk, &r))
		;
	if (r.event)
		exi_watch_loaded_locked(sk, r.load);
	if (r.event && r.budget <= 0)
		exi_watch_leave_locked(sk);
	gone = r.gone || leaves_locked(sk);
	news = r.news;
	was_up = r.was_up || (sk->link && sk->link->state == EXI_LINK_UP);
	look = sk->link && sk->link->look;
	if (look)
		sk->link->look = false;
	fd = atomic_load(&sk->fd);
	if (was_up && !gone)
		exi_place_answer_locked(sk);
	/* Under the lock: until it is released, the memory is not another
	 * socket's. */
	if (fd >= 0 && (gone || (was_up && news)))
		exi_ending_wake_all(sk);
	else if (fd >= 0 && was_up) {
		exi_ending_bell(sk);
		exi_family_tell(sk);
	}
	exi_unlock(&sk->link_lock);
	exi_fds_end();
	/* The peer saw the end of TCP: checks that the descriptor is still the
	 * same socket. */
	if (look && !exi_sock_current(sk, fd))
		exi_sock_forget(sk, fd, generation);
}

bool exi_link_hear(struct exi_sock *sk)
{
	struct pollfd p = { .fd = -1, .events = POLLIN };
	bool said;

	if (exi_unlikely(!exi_sock_used_here(sk)))
		exi_sock_inherit(sk);
	/* A reading thread holds the lock until the messages are carried
	 * out. */
	exi_lock(&sk->link_lock);
	if (sk->link && sk->link->state == EXI_LINK_UP)
		p.fd = sk->link->fd;
	said = p.fd >= 0 && poll(&p, 1, 0) > 0;
	exi_unlock(&sk->link_lock);
	if (said)
		exi_link_event(sk, 0);
	/* Or another thread read it just before. */
	return said || !exi_switch_may_come(sk);
}

void exi_link_bell(struct exi_sock *sk)
{
	exi_lock(&sk->link_lock);
	if (sk->link && atomic_load(&sk->fd) >= 0)
		exi_ending_bell(sk);
	exi_unlock(&sk->link_lock);
}

void exi_link_before_exec(void)
{
	int n = 0;

	exi_sock_each(exi_candidate_give_up, &n);
	exi_closing_settle();
}

bool exi_link_ended(struct exi_sock *sk, int fd)
{
	struct pollfd p[] = { { .fd = exi_ready_bell(sk, fd) },
			      { .fd = exi_sock_base(sk)->ends_both ? fd
								   : -1 } };

	if (poll(p, 2, 0) <= 0)
		return false;
	if (p[0].revents & POLLHUP) {
		exi_link_event(sk, 0);
		return true;
	}
	/* A peer that closes shuts the stream down before it sends END, and
	 * closes the link afterwards: bytes sent in between are refused. */
	if (!(p[1].revents & POLLHUP) ||
	    atomic_load(&exi_sock_shared(sk)->gone))
		return false;
	exi_link_tcp_event(sk);
	return true;
}

void exi_link_read(struct exi_sock *sk)
{
	struct exi_half *rx = &exi_sock_shared(sk)->half[EXI_RX];
	bool wanted;

	exi_lock(&rx->lock);
	wanted = rx->end_seen && !rx->link_read;
	exi_unlock(&rx->lock);
	if (!wanted)
		return;
	exi_link_event(sk, 0);
	if (exi_sock_remote(sk))
		return; /* it answers, and may have answered by now */
	exi_lock(&rx->lock);
	rx->link_read = 1;
	exi_unlock(&rx->lock);
}

/* Notes the peer's close before an end is reported, because the two may
 * differ. */
static void closed_at_once(struct exi_sock *sk, short ended)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];

	exi_lock(&tx->lock);
	if ((ended & POLLHUP) && !tx->fin && tx->mode == EXI_MODE_RING) {
		atomic_store(&sk->sh->gone, 1);
		exi_flow_bereft_locked(sk);
	}
	exi_unlock(&tx->lock);
}

void exi_link_tcp_event(struct exi_sock *sk)
{
	bool called, waits, asks = false;
	struct exi_shared *sh;
	short ended;

	/* A SWITCH or an END that came earlier must be seen earlier. */
	exi_link_event(sk, 0);
	exi_lock(&sk->link_lock);
	/* The event may be of an earlier socket in this memory, so only the
	 * state of this one counts; and before it connects, the kernel reports
	 * an end. A socket without a fabric finds its end behind its bytes. */
	ended = sk->fab ? exi_tcp_ended(sk) : 0;
	called = exi_ending_fabric_left_locked(sk);
	if (ended && sk->base->ends_both)
		closed_at_once(sk, ended);
	if (ended) {
		sh = sk->sh;
		/* From another host the end may come before bytes that were
		 * sent earlier: there END counts, or the hang-up of the
		 * link. */
		waits = exi_sock_remote(sk) ||
			exi_ending_may_be_dying_locked(sk, ended);
		if (!waits)
			atomic_store_explicit(&sh->rx_fin, 1,
					      memory_order_seq_cst);
		exi_lock(&sh->half[EXI_RX].lock);
		if (sh->half[EXI_RX].mode == EXI_MODE_RING ||
		    (exi_sock_remote(sk) &&
		     !exi_resume_end_counts_locked(sk))) {
			exi_ending_ask_locked(sk);
			asks = waits && sk->link &&
			       sk->link->state == EXI_LINK_UP &&
			       !sk->link->timer.deadline;
		}
		exi_unlock(&sh->half[EXI_RX].lock);
		if (asks) {
			exi_ending_be_patient(sk->link);
			sk->link->timer.deadline =
				exi_now_ns() + EXI_CONTROL_ASK_NS;
			exi_service_timed(&sk->link->timer);
		}
		/* A reset. The link will hang up, or has. */
		exi_lock(&sh->half[EXI_TX].lock);
		if ((ended & POLLHUP) && !sk->base->ends_both &&
		    sh->half[EXI_TX].mode == EXI_MODE_RING) {
			atomic_store(&sh->gone, 1);
			exi_flow_bereft_locked(sk);
		}
		exi_unlock(&sh->half[EXI_TX].lock);
	}
	if (ended || called)
		exi_ending_wake_all(sk);
	exi_unlock(&sk->link_lock);
}

/* The timer of a link that is up: no more messages came from the peer. */
static void up_expired(struct exi_sock *sk)
{
	struct exi_link *l;
	uint32_t generation;
	bool leaves = false, dying = false;

	exi_lock(&sk->link_lock);
	generation = atomic_load(&sk->generation);
	l = sk->link;
	if (l && l->state == EXI_LINK_UP && exi_meet_is_over(l)) {
		dying = l->dying;
		leaves = l->leaves && !dying;
		if (dying) {
			; /* read below */
		} else if (leaves) {
			l->timer.deadline = 0;
			exi_service_untimed(&l->timer);
		} else {
			exi_ending_ask_again_locked(sk);
		}
	}
	exi_unlock(&sk->link_lock);
	if (dying)
		exi_link_event(sk, 0);
	if (!leaves)
		return;
	exi_link_shun(sk, generation);
	if (!exi_link_part(sk, generation))
		exi_link_unanswered(sk, generation);
}

static void told(struct exi_sock *sk, void *arg)
{
	if (atomic_load(&exi_sock_shared(sk)->several) &&
	    exi_sock_used_here(sk))
		exi_link_bell(sk);
}

void exi_family_told(void)
{
	exi_sock_each(told, NULL);
}
