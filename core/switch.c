/* SPDX-License-Identifier: BSD-2-Clause */
/* Switch points: the kernel counts the bytes of each direction for us, so both
 * ends agree on the byte at which the fabric begins. */
#include "core/switch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/config.h"
#include "core/family.h"
#include "core/flow.h"
#include "core/futex.h"
#include "core/holders.h"
#include "core/link.h"
#include "core/loan.h"
#include "core/log.h"
#include "core/orphan.h"
#include "core/place.h"
#include "core/proof.h"
#include "core/registry.h"
#include "core/resume.h"
#include "core/unseen.h"

/* States of TCP, as tcp_info has them; <netinet/tcp.h> and <linux/tcp.h> do not
 * mix. */
enum {
	TCP_FIN_WAIT1 = 4,
	TCP_TIME_WAIT = 6,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_CLOSING = 11,
};

#define PROTOCOL_MPTCP 262 /* IPPROTO_MPTCP, which old headers lack */

/* Looks at counts that must be of one moment: with traffic both ways, where calls are
 * slow, nine of ten are in vain. */
#define TRIES 1000

/* See exi_switch_patience(). */
#define LOCAL_NS  1000000000u
#define REMOTE_NS 15000000000u

static int tcp_info(int fd, struct tcp_info *ret)
{
	socklen_t len = sizeof(*ret);

	memset(ret, 0, sizeof(*ret));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, ret, &len) < 0)
		return -errno;
	/* Both counters came with Linux 4.1. */
	if (len < offsetof(struct tcp_info, tcpi_bytes_received) +
			  sizeof(ret->tcpi_bytes_received))
		return -EOPNOTSUPP;
	return 0;
}

static uint64_t bytes_begun(const struct tcp_info *i)
{
	return i->tcpi_bytes_sent - i->tcpi_bytes_retrans +
	       i->tcpi_notsent_bytes;
}

/* Two counts of the bytes ever written to TCP, of one moment: what was
 * acknowledged and what waits for that, and what was or will be sent, which
 * bytes_begun() has of *ret. The end that connected counts its SYN in the
 * first. */
static int counts_written(int fd, uint64_t *ret_acked, struct tcp_info *ret)
{
	struct tcp_info before, after;
	int queued, tries, err;

	for (tries = 0; tries < TRIES; tries++) {
		err = tcp_info(fd, &before);
		if (err)
			return err;
		if (ioctl(fd, SIOCOUTQ, &queued) < 0)
			return -errno;
		err = tcp_info(fd, &after);
		if (err)
			return err;
		if (before.tcpi_bytes_acked == after.tcpi_bytes_acked &&
		    bytes_begun(&before) == bytes_begun(&after)) {
			*ret_acked = after.tcpi_bytes_acked + (uint64_t)queued;
			*ret = after;
			return 0;
		}
	}
	return -EAGAIN;
}

/* Bytes ever written to TCP. */
static int bytes_written(struct exi_sock *sk, uint64_t *ret)
{
	struct tcp_info i;
	uint64_t acked;
	int err = counts_written(sk->tcp->fd, &acked, &i);

	if (!err)
		*ret = acked - (sk->role == EXI_ROLE_CONNECT);
	return err;
}

/* The kernel counts a FIN as a byte received, and as one unread until the end
 * was told. One that came ahead of its SWITCH must not count. */
static unsigned int fin_received(uint8_t state)
{
	return state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK ||
	       state == TCP_CLOSING || state == TCP_TIME_WAIT;
}

/* The queue is asked from sock_diag: SIOCINQ stops at an urgent mark, also when
 * the urgent byte itself was read. */
static int unread_bytes(int fd, uint32_t *ret)
{
	struct exi_tuple t;
	int err = exi_tuple_of(fd, &t);

	return err ? err : exi_proof_unread(&t, ret);
}

/* Bytes ever read from TCP that was reset, of which so many were written: what
 * is unread stays, but sock_diag knows the connection no more. SIOCINQ leaves a
 * FIN out; that it was counted shows in one byte too many. */
static int bytes_read_reset(int fd, uint64_t received, uint64_t written,
			    uint64_t *ret)
{
	int unread;

	if (ioctl(fd, SIOCINQ, &unread) < 0)
		return -errno;
	*ret = received - (received == written + 1) - (uint64_t)unread;
	return 0;
}

/* Bytes ever read from TCP, of which so many were written. */
static int bytes_read(struct exi_sock *sk, uint64_t written, uint64_t *ret)
{
	int fd = sk->tcp->fd, tries, err, unknown;
	struct tcp_info before, after;
	uint32_t unread = 0;

	for (tries = 0; tries < TRIES; tries++) {
		err = tcp_info(fd, &before);
		if (err)
			return err;
		if (before.tcpi_state == TCP_CLOSE)
			return bytes_read_reset(fd, before.tcpi_bytes_received,
						written, ret);
		unknown = unread_bytes(fd, &unread);
		err = tcp_info(fd, &after);
		if (err)
			return err;
		if (after.tcpi_state == TCP_CLOSE)
			continue;
		if (unknown)
			return unknown;
		if (before.tcpi_bytes_received == after.tcpi_bytes_received) {
			*ret = after.tcpi_bytes_received - unread -
			       (unread == 0 && fin_received(after.tcpi_state));
			return 0;
		}
	}
	return -EAGAIN;
}

/* A FIN that was not sent yet, as one that waits its turn behind bytes or for the
 * pace of BBR, counts as a byte that was not. */
static unsigned int fin_waits(const struct tcp_info *i)
{
	return i->tcpi_notsent_bytes &&
	       (i->tcpi_state == TCP_FIN_WAIT1 ||
		i->tcpi_state == TCP_LAST_ACK || i->tcpi_state == TCP_CLOSING);
}

/* Of TCP that is closed. Where its own FIN was acknowledged, the peer's came, too,
 * unless it reset the connection after that. */
static int counts_closed(struct exi_sock *sk, uint64_t *ret_rx,
			 uint64_t *ret_tx)
{
	int fd = sk->tcp->fd, err, unread;
	struct tcp_info i;
	uint64_t acked;

	err = counts_written(fd, &acked, &i);
	if (err)
		return err;
	if (ioctl(fd, SIOCINQ, &unread) < 0)
		return -errno;
	*ret_tx = bytes_begun(&i);
	*ret_rx = i.tcpi_bytes_received - (uint64_t)unread -
		  (acked - (sk->role == EXI_ROLE_CONNECT) == *ret_tx + 1);
	return 0;
}

int exi_switch_counts(struct exi_sock *sk, uint64_t *ret_rx, uint64_t *ret_tx)
{
	struct tcp_info i;
	uint64_t acked;
	int err = counts_written(sk->tcp->fd, &acked, &i);

	if (err)
		return err;
	*ret_tx = bytes_begun(&i) - fin_waits(&i);
	if (i.tcpi_state != TCP_CLOSE)
		err = bytes_read(sk, 0, ret_rx);
	/* It may close meanwhile, and stays so: nothing more comes then. */
	if (!err)
		err = tcp_info(sk->tcp->fd, &i);
	return !err && i.tcpi_state == TCP_CLOSE
		       ? counts_closed(sk, ret_rx, ret_tx)
		       : err;
}

/* Only the end that connected sent a SYN that was counted. */
enum exi_role exi_switch_role(int fd)
{
	struct tcp_info i;
	uint64_t acked, begun;

	if (counts_written(fd, &acked, &i))
		return EXI_ROLE_NONE;
	begun = bytes_begun(&i);
	return acked == begun + 1 ? EXI_ROLE_CONNECT
	       : acked == begun	  ? EXI_ROLE_ACCEPT
				  : EXI_ROLE_NONE;
}

static bool option_set(int fd, int level, int name)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, level, name, &v, &len) == 0 && v != 0;
}

int exi_switch_forbidden(int fd)
{
	char ulp[16] = "";
	socklen_t len = sizeof(int);
	int fl, v;

	/* First, for MPTCP is a ULP of its subflows, too. */
	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &v, &len) == 0 &&
	    v != IPPROTO_TCP)
		return v == PROTOCOL_MPTCP ? EXS_X_REASON_MPTCP
					   : EXS_X_REASON_NOT_TCP;
	len = sizeof(ulp);
	if (getsockopt(fd, IPPROTO_TCP, TCP_ULP, ulp, &len) == 0 && len > 0 &&
	    ulp[0])
		return EXS_X_REASON_KERNEL_TLS;
	if (option_set(fd, SOL_SOCKET, SO_ZEROCOPY))
		return EXS_X_REASON_ZEROCOPY;
	if (option_set(fd, SOL_SOCKET, SO_TIMESTAMPING) ||
	    option_set(fd, SOL_SOCKET, SO_TIMESTAMP) ||
	    option_set(fd, SOL_SOCKET, SO_TIMESTAMPNS))
		return EXS_X_REASON_TIMESTAMPS;
	len = sizeof(v);
	if (getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &v, &len) == 0 && v >= 0)
		return EXS_X_REASON_PEEK_OFF;
	if (option_set(fd, IPPROTO_TCP, TCP_REPAIR))
		return EXS_X_REASON_REPAIR;
	len = 0;
	/* A length query of the classic filter: its instructions. */
	if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, NULL, &len) == 0 &&
	    len > 0)
		return EXS_X_REASON_BPF;
	fl = fcntl(fd, F_GETFL);
	if (fl >= 0 && (fl & O_ASYNC))
		return EXS_X_REASON_O_ASYNC;
	return EXS_X_REASON_NONE;
}

/* TCP_NODELAY flushes, tcp(7), also what is corked; and what the window holds
 * back goes out corked or not until something else is queued behind it. */
int exi_switch_push(int fd)
{
	int nodelay = 0, on = 1, off = 0, held = 0;
	socklen_t len = sizeof(int);

	if (ioctl(fd, SIOCOUTQNSD, &held) < 0)
		return -errno;
	if (!held)
		return 0;
	if (getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &len) < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!nodelay)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off));
	return 0;
}

static uint32_t position(struct exi_sock *sk, enum exi_dir dir)
{
	return exi_sock_remote(sk)
		       ? sk->fab->provider->remote_ops->position(sk->fab, dir)
		       : 0;
}

/* A peer takes its direction back as often as it likes, and each time what lies in
 * the ring goes to TCP, which has room made for it: so that this does not grow for
 * ever, a direction that came back goes up again when TCP holds a ring at most. */
static bool is_crowded(const struct exi_half *h, int fd)
{
	int queued;

	return h->downs && ioctl(fd, SIOCOUTQ, &queued) == 0 &&
	       queued > (int)exi_config()->ring_kb * 1024;
}

int exi_switch_up_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	struct exi_half *h = &sh->half[EXI_TX];
	uint64_t written, head;
	int ret;

	EXI_LOCKED(&h->lock);
	if (!sk->fab || sk->fab->bell < 0 || h->mode != EXI_MODE_TCP ||
	    !exi_switch_wanted(sh) || atomic_load(&sh->gone) || h->bare ||
	    exi_loan_in_place(sk, EXI_TX))
		return -EAGAIN;
	/* Its operation goes on when the kernel has given the transfer back, and
	 * switches first. */
	if (sk->posted[EXI_TX]) {
		sk->tcp->ops->cancel(sk->tcp, &sk->xfer[EXI_TX]);
		return -EAGAIN;
	}
	if (h->ended || h->fin) {
		exi_sock_reason(sk, EXS_X_REASON_HALF_CLOSED);
		return -EPIPE;
	}
	if (h->urgent) {
		exi_sock_reason(sk, EXS_X_REASON_URGENT);
		return -EOPNOTSUPP;
	}
	if (is_crowded(h, sk->tcp->fd))
		return -EAGAIN;
	ret = exi_switch_forbidden(sk->tcp->fd);
	if (ret) {
		exi_sock_reason(sk, ret);
		atomic_store(&sh->hold_here, 1);
		return -EOPNOTSUPP;
	}
	ret = sk->fab->swops->head(sk->fab, &head);
	if (ret) {
		exi_sock_reason(sk, EXS_X_REASON_MEMORY);
		atomic_store(&sh->hold_here, 1);
		return ret;
	}
	ret = exi_switch_push(sk->tcp->fd);
	if (ret)
		return ret;
	ret = bytes_written(sk, &written);
	if (ret)
		return ret;
	ret = exi_link_send(sk, EXI_PAIR_SWITCH, h->epoch + 1, written, head);
	if (ret)
		return ret;
	h->epoch++;
	h->ups++;
	h->origin = position(sk, EXI_TX);
	h->mode = EXI_MODE_RING;
	exi_keepalive_settle(sk);
	exi_debug("descriptor %d: sends on %s after byte %llu", sk->tcp->fd,
		  sk->fab->provider->name, (unsigned long long)written);
	return 0;
}

/* The kernel's counts are off while urgent data is pending, so a direction
 * that shows any is given back at once. */
static bool urgent_pending(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLPRI };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLPRI);
}

static void set_left(struct exi_sock *sk, uint64_t left)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	h->left = left;
	h->mode = left ? EXI_MODE_LEFT : EXI_MODE_RING;
	if (left)
		return;
	atomic_store(&sk->guarded, false);
	exi_unseen_stir();
}

int exi_switch_refuse_locked(struct exi_sock *sk, int reason)
{
	int ret;

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	exi_sock_reason(sk, reason);
	exi_switch_giveback_locked(sk);
	atomic_store(&sk->sh->hold_here, 1);
	atomic_fetch_add(&sk->sh->down_wait, 1);
	ret = exi_link_send(sk, EXI_PAIR_DOWN, 0, 0, 0);
	if (ret)
		atomic_fetch_sub(&sk->sh->down_wait, 1);
	return ret;
}

/* A direction that has just arrived goes back, and stays there. */
static int send_back(struct exi_sock *sk, enum exi_mode mode, int reason)
{
	sk->sh->half[EXI_RX].mode = mode;
	return exi_switch_refuse_locked(sk, reason);
}

int exi_switch_arrived_locked(struct exi_sock *sk, uint64_t epoch,
			      uint64_t offset, uint64_t head)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	uint64_t got;
	int ret;

	EXI_LOCKED(&h->lock);
	if ((h->mode != EXI_MODE_TCP && h->mode != EXI_MODE_BACK) ||
	    epoch != h->epoch + 1)
		return -EPROTO;
	ret = sk->fab->swops->start(sk->fab, head);
	if (ret)
		return ret;
	h->epoch++;
	h->target = offset;
	h->origin = position(sk, EXI_RX);
	if (urgent_pending(sk->tcp->fd)) {
		h->urgent = 1;
		return send_back(sk, EXI_MODE_LEFT, EXS_X_REASON_URGENT);
	}
	ret = bytes_read(sk, offset, &got);
	if (ret) /* where the ring begins cannot be told */
		return send_back(sk, EXI_MODE_RING, EXS_X_REASON_NO_PROOF);
	if (got > offset)
		return -EPROTO;
	set_left(sk, offset - got);
	h->ups++;
	exi_keepalive_settle(sk);
	/* Held by one that has no link, and could not tell the peer. */
	if (atomic_load(&sk->sh->hold_here) && !atomic_load(&sk->sh->down_wait))
		return send_back(sk, h->mode,
				 (int)atomic_load(&sk->sh->reason));
	exi_resume_watch_locked(sk);
	/* No byte of TCP follows: a receive that waits for one must move. Nor
	 * may it take what follows should the fabric fail. */
	if ((h->mode == EXI_MODE_RING || exi_sock_remote(sk)) &&
	    sk->posted[EXI_RX])
		sk->tcp->ops->cancel(sk->tcp, &sk->xfer[EXI_RX]);
	return 0;
}

static void left_is_locked(struct exi_sock *sk, uint64_t left)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	set_left(sk, left);
	if (left)
		return;
	exi_resume_watch_locked(sk);
	exi_sock_kick_locked(sk, EXI_RX);
}

void exi_switch_read_locked(struct exi_sock *sk, size_t n)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	left_is_locked(sk, sk->sh->half[EXI_RX].left - n);
}

void exi_switch_left_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	uint64_t got;

	EXI_LOCKED(&h->lock);
	if (bytes_read(sk, h->target, &got) == 0 && got <= h->target)
		left_is_locked(sk, h->target - got);
}

int exi_switch_came_locked(struct exi_sock *sk, int64_t *ret)
{
	uint64_t target = sk->sh->half[EXI_RX].target, got;
	int err = bytes_read(sk, target, &got);

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (!err)
		*ret = (int64_t)(got - target);
	return err;
}

void exi_switch_giveback_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	uint64_t pos, used;

	EXI_LOCKED(&h->lock);
	if ((h->mode != EXI_MODE_LEFT && h->mode != EXI_MODE_RING) || !sk->fab)
		return;
	h->leaving = !exi_place_quiet(sk) || exi_loan_in_place(sk, EXI_RX);
	if (h->leaving)
		return; /* the last receive, or loan, that comes back goes on here */
	sk->fab->swops->cursor(sk->fab, &pos, &used);
	if (h->mode == EXI_MODE_RING)
		h->left = 0;
	h->back = 0;
	h->mode = EXI_MODE_BACK;
	h->downs++;
	exi_keepalive_settle(sk);
	atomic_store(&h->untaken, 1);
	exi_resume_watch_locked(sk);
	exi_link_send(sk, EXI_PAIR_TAKEBACK, h->epoch, pos, used);
}

/* The rest of the ring must fit into TCP though the peer's program may not
 * read: else two ends that leave could wait for each other. */
static void make_room(struct exi_sock *sk)
{
	int fd = sk->tcp->fd, queued = 0, room = 0, want;
	socklen_t len = sizeof(room);

	if (ioctl(fd, SIOCOUTQ, &queued) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &len) < 0)
		return;
	/* The kernel charges overhead; twice the bytes covers it. */
	want = 2 * (queued + (int)exi_config()->ring_kb * 1024);
	if (room >= want)
		return;
	want /= 2; /* it doubles what it is given */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &want, sizeof(want)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &want, sizeof(want));
}

/* While the rest is on its way, dying must look like a reset to a reader of
 * TCP, not like an orderly end. */
static void linger_locked(struct exi_sock *sk, struct exi_half *h)
{
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	socklen_t len = sizeof(h->linger);

	EXI_LOCKED(&h->lock);
	if (h->lingers || getsockopt(sk->tcp->fd, SOL_SOCKET, SO_LINGER,
				     &h->linger, &len) < 0)
		return;
	h->lingers = 1;
	setsockopt(sk->tcp->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

void exi_switch_drain_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];

	EXI_LOCKED(&h->lock);
	h->mode = EXI_MODE_DRAIN;
	h->downs++;
	exi_keepalive_settle(sk);
	make_room(sk);
	linger_locked(sk, h);
}

int exi_switch_takeback_locked(struct exi_sock *sk, uint64_t epoch,
			       uint64_t pos, uint64_t used)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	int ret;

	EXI_LOCKED(&h->lock);
	if (epoch > h->epoch)
		return -EPROTO;
	if (epoch < h->epoch || h->mode != EXI_MODE_RING)
		return 0;
	ret = sk->fab->swops->takeback(sk->fab, pos, used);
	if (ret)
		return ret;
	exi_switch_drain_locked(sk);
	return 0;
}

/* --- leaving and coming back -------------------------------------------- */

bool exi_switch_on_tcp(struct exi_shared *sh, bool drains)
{
	struct exi_half *rx = &sh->half[EXI_RX];
	uint32_t tx = sh->half[EXI_TX].mode;

	return (tx == EXI_MODE_TCP || (drains && tx == EXI_MODE_DRAIN)) &&
	       (rx->mode == EXI_MODE_TCP || rx->mode == EXI_MODE_BACK) &&
	       !atomic_load(&rx->untaken);
}

bool exi_switch_left(struct exi_shared *sh)
{
	return atomic_load(&sh->down_wait) == 0 && exi_switch_on_tcp(sh, false);
}

/* One look: 0 when done, -ENOTCONN when it never will be, for the peer is gone,
 * -EAGAIN to sleep on the kick word, -ENOBUFS to wait for room in TCP; -EBADF:
 * another thread has let the socket go, and its place may be another's. */
static int look_left(struct exi_sock *sk, struct exi_shared *sh)
{
	struct exi_half *tx = &sh->half[EXI_TX];
	int ret = 0;
	bool linked, resumes;

	exi_lock(&sh->half[EXI_RX].lock);
	resumes = sh->half[EXI_RX].resume;
	exi_unlock(&sh->half[EXI_RX].lock);
	exi_lock(&tx->lock);
	if (atomic_load(&sk->fd) < 0 || exi_sock_shared(sk) != sh) {
		exi_unlock(&tx->lock);
		return -EBADF;
	}
	if (tx->mode == EXI_MODE_DRAIN)
		ret = exi_flow_drain_locked(sk);
	linked = sk->fab && sk->fab->bell >= 0;
	exi_unlock(&tx->lock);
	if (ret == -EAGAIN)
		return -ENOBUFS;
	if (exi_switch_left(sh))
		return 0;
	return ret || !(linked || resumes) ? -ENOTCONN : -EAGAIN;
}

/* Waits until the handshake is over. Its steps kick the TX side. -ECANCELED when
 * it was, and then another thread allowed the fabric again: exi_switch_allow()
 * clears the hold after it waited itself, then kicks. */
static int await_tcp(struct exi_sock *sk, uint64_t deadline)
{
	struct timespec until = exi_ns_timespec(deadline);
	struct exi_shared *sh = exi_sock_shared(sk);

	for (;;) {
		struct exi_word w = {
			.addr = (const uint32_t *)&sh->kick[EXI_TX],
			.value = atomic_load(&sh->kick[EXI_TX]),
		};
		struct pollfd p = { .fd = atomic_load(&sk->fd),
				    .events = POLLOUT };
		int ret = look_left(sk, sh);

		if (ret == 0 || ret == -ENOTCONN || ret == -EBADF)
			return ret;
		if (!atomic_load(&sh->hold_here))
			return -ECANCELED;
		if (exi_now_ns() >= deadline)
			return -ETIMEDOUT;
		if (ret == -ENOBUFS)
			poll(&p, 1, 10);
		else
			exi_futex_wait(&w, 1, &until);
	}
}

static int orphan(struct exi_sock *sk, int fd, uint64_t deadline)
{
	int ret = exi_orphan_make(sk, fd, false, deadline);

	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
	/* The pair speaks for itself from here on. */
	sk->sh->half[EXI_RX].mode = EXI_MODE_TCP;
	sk->sh->half[EXI_TX].mode = EXI_MODE_TCP;
	sk->sh->half[EXI_RX].ended = sk->sh->half[EXI_RX].fin = 0;
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	exi_sock_reason(sk, EXS_X_REASON_ORPHAN);
	return ret;
}

/* Nothing is unread, and TCP itself says the end. */
static bool tcp_says_all_locked(struct exi_sock *sk, struct exi_half *rx)
{
	struct pollfd p = { .fd = sk->tcp->fd, .events = POLLRDHUP };

	EXI_LOCKED(&rx->lock);
	return rx->mode == EXI_MODE_RING && sk->fab && !sk->n_kept &&
	       !rx->err && !rx->broken && !exi_sock_remote(sk) &&
	       sk->fab->ops->unread(sk->fab) == 0 && poll(&p, 1, 0) > 0;
}

/* The peer left before the handshake was over. */
static int left_alone(struct exi_sock *sk, int fd, uint64_t deadline)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	bool orphaned;

	exi_lock(&rx->lock);
	if (tcp_says_all_locked(sk, rx))
		rx->mode = EXI_MODE_TCP;
	orphaned = rx->mode != EXI_MODE_TCP &&
		   !(rx->mode == EXI_MODE_BACK && !atomic_load(&rx->untaken));
	exi_unlock(&rx->lock);
	if (orphaned) /* to other processes that have it it stays as it is */
		return exi_holders_alone(&sk->sh->holders)
			       ? orphan(sk, fd, deadline)
			       : 0;
	/* What the peer did not read it never will. */
	exi_lock(&sk->sh->half[EXI_TX].lock);
	if (!exi_flow_bereft_locked(sk) &&
	    sk->sh->half[EXI_TX].mode == EXI_MODE_RING)
		sk->sh->half[EXI_TX].mode = EXI_MODE_TCP;
	exi_keepalive_settle(sk);
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	return 0;
}

void exi_switch_part(struct exi_sock *sk, int fd)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	bool unread;
	int ret;

	exi_lock(&rx->lock);
	unread = (rx->mode == EXI_MODE_RING || rx->mode == EXI_MODE_LEFT) &&
		 sk->fab && atomic_load(&sk->sh->gone);
	exi_unlock(&rx->lock);
	ret = unread ? exi_orphan_make(sk, fd, true, 0) : 0;
	if (ret)
		exi_error("descriptor %d: its unread bytes cannot be copied "
			  "(%s); who gets it does not see them",
			  fd, strerror(-ret));
}

int exi_switch_leave_locked(struct exi_sock *sk, int reason)
{
	struct exi_shared *sh = sk->sh;
	int ret;

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	atomic_store(&sh->hold_here, 1);
	exi_sock_reason(sk, reason);
	if (!sk->fab || sk->fab->bell < 0)
		return 0;
	/* An answer to that one is an answer to this. */
	if (sh->half[EXI_TX].told && atomic_load(&sh->down_wait))
		return 0;
	atomic_fetch_add(&sh->down_wait, 1);
	ret = exi_link_send(sk, EXI_PAIR_DOWN, 0, 0, 0);
	if (ret)
		atomic_fetch_sub(&sh->down_wait, 1);
	else
		sh->half[EXI_TX].told = 1;
	return ret;
}

int exi_switch_leave(struct exi_sock *sk, int reason)
{
	struct exi_shared *sh;
	int ret;

	if (!exi_sock_lock(sk, atomic_load(&sk->fd), EXI_TX, &sh))
		return -EBADF;
	ret = exi_switch_leave_locked(sk, reason);
	exi_half_unlock(&sh->half[EXI_TX]);
	return ret;
}

uint64_t exi_switch_patience(const struct exi_sock *sk, struct exi_patience *p)
{
	uint64_t since = p ? p->since : 0;

	if (!since)
		since = exi_now_ns();
	if (p)
		p->since = since;
	return since + (exi_sock_remote(sk) ? REMOTE_NS : LOCAL_NS);
}

int exi_switch_down(struct exi_sock *sk, int fd, int reason, uint64_t deadline)
{
	int ret;

	if (exi_family_elsewhere(sk))
		return exi_family_ask_until(sk, deadline);
	if (!exi_sock_is(sk, fd) || exi_switch_leave(sk, reason) == -EBADF)
		return -EBADF;
	ret = await_tcp(sk, deadline);
	/* Met since we looked, and seen to be so only now that it is held. */
	if (ret == -ENOTCONN && exi_family_elsewhere(sk))
		return exi_family_ask_until(sk, deadline);
	return ret == -ENOTCONN ? left_alone(sk, fd, deadline) : ret;
}

static int await_down(struct exi_sock *sk)
{
	int ret;

	if (atomic_load(&sk->sh->down_wait) == 0)
		return 0;
	ret = await_tcp(sk, exi_switch_patience(sk, NULL));
	return ret == -ENOTCONN || ret == -ECANCELED ? 0 : ret;
}

int exi_switch_allow(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	int ret = 0;

	/* A downgrade under way comes first: DOWN, then UP. */
	ret = await_down(sk);
	if (ret)
		return ret;
	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return -EBADF;
	if (atomic_load(&sh->hold_here) && !sh->half[EXI_TX].urgent &&
	    !sh->half[EXI_RX].urgent) {
		atomic_store(&sh->hold_here, 0);
		sh->half[EXI_TX].told = 0;
		exi_sock_reason(sk, EXS_X_REASON_UNDECIDED);
		if (sk->fab && sk->fab->bell >= 0)
			ret = exi_link_send(sk, EXI_PAIR_UP, 0, 0, 0);
	}
	if (ret == 0)
		exi_switch_up_locked(sk);
	if (!exi_registry_wire_ids())
		exi_sock_reason(sk, EXS_X_REASON_NO_PROVIDER);
	exi_sock_kick_locked(sk, EXI_TX);
	exi_half_unlock(&sh->half[EXI_TX]);
	return 0;
}
