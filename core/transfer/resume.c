/* SPDX-License-Identifier: BSD-2-Clause */
/* Back to TCP without the peer's consent.
 *
 * A direction's bytes of TCP end at the byte T of its last SWITCH. After a
 * failure, one of two things follows T:
 *
 *	the stream from T on		nothing of the ring was acknowledged
 *	a record, then the stream	from the position that the record has
 *
 * A receiver that does not know of the SWITCH, because it was lost, reads on:
 * it acknowledged nothing, so it gets the first. A receiver that knows T can
 * distinguish the two, for no program can write the tag of a record. */
#include "core/transfer/resume.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/probe.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/keepalive.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/place.h"
#include "core/transfer/switch.h"

static const struct exi_remote_ops *ops_of(const struct exi_sock *sk)
{
	return sk->fab->provider->remote_ops;
}

/* --- sender ------------------------------------------------------------- */

static void resend_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	uint32_t at;

	EXI_LOCKED(&h->lock);
	if (h->mode != EXI_MODE_RING)
		return;
	at = ops_of(sk)->resend(sk->fab);
	/* Something was acknowledged: the receiver knows of the SWITCH. */
	if (at != h->origin) {
		ops_of(sk)->resume(sk->fab, EXI_TX, h->epoch, at, sk->record);
		sk->record_left = EXI_RESUME;
	}
	exi_debug("%s: repeats byte %u of %s over TCP", EXI_CONN(sk->tcp->fd),
		  at - h->origin, sk->fab->provider->name);
	exi_switch_drain_locked(sk);
}

/* --- receiver ----------------------------------------------------------- */

static void await_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	if (h->mode == EXI_MODE_LEFT)
		exi_switch_recount_locked(sk);
	if (h->mode == EXI_MODE_LEFT || h->mode == EXI_MODE_RING) {
		if (h->mode == EXI_MODE_RING)
			h->left = 0;
		h->back = 0;
		exi_half_mode_locked(h, EXI_MODE_BACK);
		h->downs++;
		EXI_PROBE3(back, sk->tcp->fd, EXI_RX,
			   atomic_load(&sk->sh->reason));
		exi_keepalive_settle_locked(sk);
		h->resume = EXI_RESUME_AWAITED;
	} else if (h->mode == EXI_MODE_BACK && atomic_load(&h->untaken)) {
		h->resume = EXI_RESUME_UNSURE;
	} else {
		return;
	}
	atomic_store(&h->untaken, 1);
	h->link_read = 1; /* it was, until it hung up */
	exi_resume_watch_locked(sk);
}

/* The end of TCP, and nothing before it that is unread. */
static short ends_of(struct exi_sock *sk)
{
	struct pollfd p = { .fd = sk->tcp->fd, .events = POLLRDHUP };
	int unread = 1;

	if (!exi_sock_current(sk, p.fd) || poll(&p, 1, 0) <= 0 ||
	    ioctl(p.fd, FIONREAD, &unread) || unread)
		return 0;
	return p.revents;
}

bool exi_resume_early_end_locked(struct exi_sock *sk)
{
	const struct exi_half *h = &sk->sh->half[EXI_RX];
	short ends;

	EXI_LOCKED(&h->lock);
	if (h->mode == EXI_MODE_RING || h->ended || !exi_sock_remote(sk) ||
	    exi_resume_end_counts_locked(sk))
		return false;
	ends = ends_of(sk);
	/* An error must be read first. Behind an end, it is the error of bytes
	 * that were sent to a peer that has closed, and it is never read. */
	return ends && (h->end_seen || !(ends & POLLERR));
}

/* A peer that closes announces it, and ends TCP first; a killed peer could only
 * end TCP. A peer that goes on over TCP ends TCP behind a record, unless
 * nothing of the ring was read. */
bool exi_resume_closed_locked(struct exi_sock *sk)
{
	const struct exi_half *h = &sk->sh->half[EXI_RX];
	short ends;

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	/* The rest of a direction that was given back may be in the ring: the
	 * direction's end of TCP will show it. */
	if (!atomic_load(&h->untaken) && ops_of(sk)->left(sk->fab))
		return true;
	if (h->mode != EXI_MODE_RING)
		return false;
	ends = ends_of(sk);
	return ends & (POLLHUP | POLLERR) ||
	       (ends && (sk->fab->rops->unread(sk->fab) ||
			 ops_of(sk)->position(sk->fab, EXI_RX) != h->origin));
}

/* If TCP has ended before the program learned of it, and the direction is not
 * in the ring, the peer has probably closed, too. */
static int reason_of(struct exi_sock *sk)
{
	const struct exi_half *h = &sk->sh->half[EXI_RX];

	return h->mode == EXI_MODE_TCP && !h->fin && !h->ended && ends_of(sk)
		       ? EXS_X_REASON_PEER_LOST
		       : EXS_X_REASON_FABRIC_LOST;
}

int exi_resume_begin_locked(struct exi_sock *sk)
{
	int reason = reason_of(sk), err = ops_of(sk)->sever(sk->fab);

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	sk->sh->half[EXI_RX].leaving = 0;
	exi_place_reap_locked(sk, EXI_RX);
	exi_place_reap_locked(sk, EXI_TX);
	if (err)
		return err;
	exi_sock_reason(sk, reason);
	resend_locked(sk);
	await_locked(sk);
	return 0;
}

static void go_on_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	h->resume = EXI_RESUME_NONE;
	h->left = h->back = 0;
	atomic_store(&h->untaken, 0);
	exi_resume_watch_locked(sk);
	exi_debug("%s: reads on over TCP", EXI_CONN(sk->tcp->fd));
}

/* The sender continues at the byte `at`: bytes that we have already are
 * skipped. */
static int begin_skip_locked(struct exi_sock *sk, uint32_t at)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	h->skip = ops_of(sk)->position(sk->fab, EXI_RX) - at;
	/* The sender no longer holds what is missing here. */
	if (h->skip > INT32_MAX)
		return -ECONNRESET;
	h->resume = EXI_RESUME_SKIPS;
	return 0;
}

/* The stream from the SWITCH on follows, unless the sender has received our
 * TAKEBACK, and its TAKEN is lost: then the bytes that we asked for follow. */
static int no_record_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	if (h->resume == EXI_RESUME_UNSURE &&
	    ops_of(sk)->position(sk->fab, EXI_RX) != h->origin)
		return -ECONNRESET;
	return begin_skip_locked(sk, h->origin);
}

/* A recv of TCP: 0 is the end. */
static ssize_t ended_or(ssize_t n)
{
	return n ? n : -ENODATA;
}

static int read_record_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	uint8_t in[EXI_RESUME], want[EXI_RESUME];
	uint64_t at;
	ssize_t n = ended_or(sk->tcp->ops->recv(sk->tcp, in, sizeof(in),
						MSG_PEEK | MSG_DONTWAIT));

	EXI_LOCKED(&h->lock);
	if (n < 0)
		return (int)n;
	ops_of(sk)->resume(sk->fab, EXI_RX, h->epoch, 0, want);
	if (memcmp(in, want, n < EXI_RESUME_TAG ? (size_t)n : EXI_RESUME_TAG))
		return no_record_locked(sk);
	if (n < EXI_RESUME)
		return -EAGAIN;
	memcpy(&at, in + EXI_RESUME_AT, sizeof(at));
	at = le64toh(at);
	ops_of(sk)->resume(sk->fab, EXI_RX, h->epoch, at, want);
	if (memcmp(in, want, sizeof(in)) || at > UINT32_MAX)
		return -EPROTO;
	n = ended_or(sk->tcp->ops->recv(sk->tcp, in, sizeof(in), MSG_DONTWAIT));
	return n < 0 ? (int)n : begin_skip_locked(sk, (uint32_t)at);
}

static int skip_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	char scratch[4096];

	EXI_LOCKED(&h->lock);
	while (h->skip) {
		size_t len =
			h->skip < sizeof(scratch) ? h->skip : sizeof(scratch);
		ssize_t n = ended_or(sk->tcp->ops->recv(sk->tcp, scratch, len,
							MSG_DONTWAIT));

		if (n < 0)
			return (int)n;
		h->skip -= (uint32_t)n;
	}
	go_on_locked(sk);
	return 0;
}

/* The sender is gone, or cannot continue. */
static int lost_locked(struct exi_sock *sk, int err)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	h->resume = EXI_RESUME_NONE;
	atomic_store(&h->untaken, 0);
	exi_half_mode_locked(h, EXI_MODE_RING);
	h->err = err == -ENODATA ? 0 : -err;
	atomic_store(&sk->sh->gone, 1);
	atomic_store(&sk->sh->rx_fin, 1);
	exi_sock_reason(sk, EXS_X_REASON_PEER_LOST);
	return -ENODATA;
}

ssize_t exi_resume_read_locked(struct exi_sock *sk, size_t len)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	int err = 0;

	EXI_LOCKED(&h->lock);
	if (h->broken)
		return -EPROTO;
	if (!atomic_load(&h->untaken) || !exi_sock_remote(sk))
		return (ssize_t)len;
	if (h->back < h->left)
		return (ssize_t)(len < h->left - h->back ? len
							 : h->left - h->back);
	/* From here on a record may come. */
	if (h->resume == EXI_RESUME_NONE)
		return -EAGAIN;
	if (h->resume != EXI_RESUME_SKIPS)
		err = read_record_locked(sk);
	if (!err)
		err = skip_locked(sk);
	if (!err)
		return (ssize_t)len;
	if (err == -EAGAIN || err == -EINTR)
		return -EAGAIN;
	if (err != -EPROTO)
		return lost_locked(sk, err);
	exi_link_violation(sk, "an invalid record");
	return -EPROTO;
}

bool exi_resume_called_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	int unread;

	EXI_LOCKED(&h->lock);
	return exi_sock_remote(sk) && h->mode == EXI_MODE_RING &&
	       !atomic_load(&sk->sh->gone) &&
	       exi_sock_current(sk, sk->tcp->fd) &&
	       ioctl(sk->tcp->fd, FIONREAD, &unread) == 0 && unread > 0;
}

void exi_resume_finish(struct exi_sock *sk, uint64_t deadline)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	struct pollfd p = { .fd = sk->tcp->fd, .events = POLLIN };
	char scratch[4096];
	ssize_t n = -EAGAIN;

	exi_lock(&h->lock);
	if (!h->ended || h->mode != EXI_MODE_BACK ||
	    h->resume == EXI_RESUME_NONE)
		n = 0;
	exi_unlock(&h->lock);
	while ((n > 0 || n == -EAGAIN) && exi_now_ns() < deadline) {
		n = sk->tcp->ops->recv(sk->tcp, scratch, sizeof(scratch),
				       MSG_DONTWAIT);
		if (n == -EAGAIN)
			poll(&p, 1, 100);
	}
}
