/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous receives. */
#include "core/call/recv.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/ancillary.h"
#include "core/base/cancel.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/pieces.h"
#include "core/base/signals.h"
#include "core/base/util.h"
#include "core/call/message_call.h"
#include "core/call/patience.h"
#include "core/call/ready.h"
#include "core/call/seqpacket_call.h"
#include "core/call/wait.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/sock/base.h"
#include "core/sock/capture.h"
#include "core/sock/table.h"
#include "core/transfer/attempt.h"
#include "core/transfer/family.h"
#include "core/transfer/half.h"
#include "core/transfer/lookup.h"
#include "core/transfer/parts.h"
#include "core/transfer/progress.h"
#include "core/transfer/ring_io.h"
#include "core/transfer/switch.h"

void exi_recv_kernel_end(void *arg)
{
	struct exi_recv_kernel *b = arg;
	struct exi_half *h = b->in.h;
	bool ours = exi_half_leave_lock(&b->in);

	if (ours && b->n > 0 && b->counts) {
		/* Closed here, the connection may live in a child. */
		if (exi_sock_lasts(b->sk, b->generation))
			exi_capture_tell(b->sk->tcp, b->dir, b->p, b->n,
					 b->flags);
		exi_half_account_locked(h, b->n, false);
	} else if (ours && b->n == 0 && b->counts)
		h->fin = 1;
	b->go = ours && h->in_kernel == 0;
	exi_unlock(&h->lock);
}

static ssize_t kernel_recv(const struct exi_call *c, struct exi_half *h,
			   struct exi_pieces *p, size_t *ret_len)
{
	int fd = c->fd, flags = c->flags;
	struct exi_recv_kernel b = { .sk = c->sk,
				     .generation = c->generation,
				     .p = p,
				     .dir = EXI_RX,
				     .flags = flags,
				     .counts = p->left &&
					       !(flags & (MSG_PEEK | MSG_OOB)),
				     .n = -ECANCELED };
	struct iovec room[EXI_PIECES_COPIED];
	bool all = (flags & (MSG_PEEK | MSG_WAITALL)) == MSG_WAITALL;
	struct msghdr m = { 0 };
	struct exi_section ends;
	struct iovec one;
	void *buf;
	size_t len = exi_pieces_next(p, &buf);

	if (p->n > 1)
		len = exi_pieces_cut(p, all ? EXI_RECV_KERNEL_MAX : SSIZE_MAX,
				     room, (const struct iovec **)&m.msg_iov,
				     &m.msg_iovlen);
	else if (all && len > EXI_RECV_KERNEL_MAX)
		len = EXI_RECV_KERNEL_MAX;
	if (exi_unlikely(p->beside)) {
		flags |= p->beside->flags;
		exi_beside_give(p->beside, &m);
		if (!m.msg_iovlen) {
			one = (struct iovec){ buf, len };
			m.msg_iov = &one;
			m.msg_iovlen = 1;
		}
	}
	*ret_len = len;
	b.in = exi_half_enter_locked(h);
	exi_unlock(&h->lock);
	exi_section_begin(&ends, exi_recv_kernel_end, &b);
	exi_cancel_allow();
	b.n = m.msg_iovlen ? recvmsg(fd, &m, flags) : recv(fd, buf, len, flags);
	if (b.n < 0)
		b.n = -errno;
	exi_beside_take(p->beside, &m, b.n);
	exi_cancel_forbid();
	exi_section_end(&ends, true);
	if (b.go && atomic_load(&c->sk->sh->linked))
		exi_link_go(c->sk);
	return b.n;
}

/* The call waits while it has fewer bytes than this. */
static size_t enough(const struct exi_shared *sh, size_t len, int flags)
{
	uint32_t lowat = atomic_load_explicit(&sh->lowat, memory_order_relaxed);

	return flags & MSG_WAITALL || lowat > len ? len : lowat;
}

/* The kernel returns bytes before and behind urgent data in separate calls. */
static bool at_mark(int fd)
{
	int at = 0;

	return ioctl(fd, SIOCATMARK, &at) == 0 && at;
}

/* Where a peek begins, by SO_PEEK_OFF; -1: at the first byte, each time. */
static int peek_offset(int fd)
{
	int off = -1;
	socklen_t len = sizeof(off);

	return getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) < 0 ? -1
								       : off;
}

/* The number of bytes before the start of a peek, for which poll(2) reports the
 * socket as readable all the same. */
static size_t passed_over(const struct exi_call *c)
{
	int unread;

	if (exi_likely(!(c->flags & MSG_PEEK)) || peek_offset(c->fd) <= 0)
		return 0;
	unread = exi_ready_unread(c->sk, c->fd);
	return unread > 0 ? (size_t)unread : 0;
}

/* Called when n bytes were seen, and are not enough; 0: look again. */
static int look_for_more(struct exi_call *c, size_t n)
{
	return exi_ready_events(c->sk, c->fd, POLLRDHUP) ? -ENODATA
							 : exi_call_wait(c, n);
}

/* Receives into the next pieces, behind the operations that are queued already,
 * in one turn: another may be queued before the next. Returns true if the call
 * is over, with *ret. */
static bool recv_in_turn(struct exi_call *c, struct exi_pieces *to,
			 size_t *done, ssize_t *ret)
{
	size_t most = to->left < EXI_PARTS_GATHER ? to->left : EXI_PARTS_GATHER;
	char *copy = to->n > 1 ? malloc(most) : NULL;
	void *buf;
	size_t len = exi_pieces_next(to, &buf);

	if (copy)
		len = most;
	*ret = exi_patience_in_turn(c->fd, EXS_EVT_RECV, copy ? copy : buf, len,
				    c->flags);
	if (*ret > 0) {
		if (copy)
			exi_pieces_scatter(to, copy, (size_t)*ret);
		else
			exi_pieces_moved(to, (size_t)*ret);
		*done += (size_t)*ret;
	}
	free(copy);
	if (*ret < (ssize_t)len || !to->left || c->flags & MSG_PEEK)
		return true;
	c->flags |= c->flags & MSG_WAITALL ? 0 : MSG_DONTWAIT;
	return false;
}

/* Whether TCP had only n bytes (or -EAGAIN) for a receive that asked for more.
 * The next bytes of the peer may be in the ring, where this end does not look
 * yet; the kernel's receive would have returned them, too. Once per call, or a
 * peer that sends messages all the time would delay it. */
static bool may_be_cut(const struct exi_call *c, const struct exi_pieces *to,
		       ssize_t n)
{
	return exi_switch_may_come(c->sk) && !c->heard &&
	       !(c->flags & MSG_OOB) &&
	       (n == -EAGAIN || (n > 0 && (size_t)n < to->left));
}

/* One attempt, by the kernel, which is given *ret_len bytes, or on the fabric.
 * Returns false if another is to follow. Called with the lock held; releases
 * it. */
static inline bool recv_once(struct exi_call *c, struct exi_half *h,
			     struct exi_pieces *to, size_t *ret_len,
			     ssize_t *ret)
{
	struct exi_sock *sk = c->sk;
	bool cut;

	if (h->mode == EXI_MODE_TCP && !atomic_load(&sk->sh->linked) &&
	    !h->err && !h->broken) {
		*ret = kernel_recv(c, h, to, ret_len);
		return true;
	}
	*ret = exi_attempt_recv_pieces_locked(sk, h, to, c->flags);
	cut = may_be_cut(c, to, *ret);
	if (*ret == -EAGAIN)
		exi_call_pause_locked(c);
	exi_half_unlock(h);
	if (exi_unlikely(cut)) {
		c->heard = exi_link_hear(sk);
		/* A look begins again, as if nothing was there. */
		if (c->heard && (*ret < 0 || c->flags & MSG_PEEK))
			return false;
		c->more = c->heard;
	}
	if (*ret == -ESTALE) {
		exi_link_read(sk);
		return false;
	}
	if (*ret == -EREMOTE) {
		exi_family_ask(sk);
		return false;
	}
	if (*ret != -EAGAIN)
		return true;
	*ret = exi_call_wait(c, passed_over(c));
	return *ret != 0;
}

/* What a receive returns that met the end behind so many bytes. */
static ssize_t at_end(const struct exi_call *c, size_t done)
{
	exi_link_ended(c->sk, c->fd);
	return done ? 0 : exi_half_end(&exi_sock_shared(c->sk)->half[EXI_RX]);
}

/* The slow path of a receive that has `done' bytes. A look may have begun. */
static __attribute__((noinline)) ssize_t
recv_on(struct exi_call *c, struct exi_pieces *to, size_t done)
{
	const struct exi_pieces all = *to; /* of a peek, which starts again */
	struct exi_sock *sk = c->sk;
	size_t whole = to->left + done;
	struct exi_shared *sh;
	ssize_t n;

	if (c->look.on)
		exi_call_wait(c, 0);
	for (;;) {
		size_t len = SIZE_MAX; /* given to the kernel */
		struct exi_half *h;

		if (!exi_call_lock(c, &sh))
			return done ? (ssize_t)done : -EBADF;
		h = &sh->half[EXI_RX];
		if (exi_unlikely(!exi_list_empty(&sk->ops[EXI_RX]))) {
			exi_half_unlock(h);
			if (recv_in_turn(c, to, &done, &n))
				break;
			continue;
		}
		if (done && ((h->mode != EXI_MODE_RING && at_mark(c->fd)) ||
			     exi_half_error_waits_locked(sk, EXI_RX))) {
			exi_half_unlock(h);
			n = (ssize_t)done;
			break;
		}
		if (!recv_once(c, h, to, &len, &n))
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
		exi_pieces_moved(to, (size_t)n);
		if (exi_unlikely(exi_beside_came(to->beside)))
			break;
		if (exi_unlikely(c->more)) {
			c->more = false;
			c->flags |= c->flags & MSG_WAITALL ? 0 : MSG_DONTWAIT;
			continue;
		}
		if (exi_likely(done >= enough(sh, whole, c->flags)))
			break;
		if (len != SIZE_MAX) {
			if ((size_t)n < len || (c->flags & MSG_PEEK))
				break; /* the kernel has waited for enough */
			exi_flow_after_recv(sk, c->fd);
		}
		if (!(c->flags & MSG_PEEK) || peek_offset(c->fd) >= 0)
			continue;
		if (look_for_more(c, done))
			break;
		done = 0;
		*to = all;
	}
	/* A UNIX socket drops an error that a receive for all of its bytes
	 * met. */
	if (done && n < 0 && !(sk->base->ends_both && (c->flags & MSG_WAITALL)))
		exi_patience_keep_error(c, (int)-n);
	if (exi_unlikely(n == 0 && whole))
		n = at_end(c, done);
	exi_flow_after_recv(sk, c->fd);
	return done ? (ssize_t)done : n;
}

/* The same. A receive that waits for more than a byte ends at a message with
 * more than bytes, as in the kernel, also if there is no room for the rest. */
static ssize_t recv_to_end(struct exi_call *c, struct exi_pieces *to,
			   size_t done)
{
	struct exi_beside none = { 0 };

	if (exi_unlikely(c->sk->base->messages) && !to->beside &&
	    !(c->flags & MSG_PEEK) &&
	    enough(exi_sock_shared(c->sk), to->left + done, c->flags) > 1)
		to->beside = &none;
	return recv_on(c, to, done);
}

ssize_t exi_flow_recv_beside(int fd, const struct iovec *v, size_t n,
			     size_t bytes, int flags, struct exi_beside *beside)
{
	struct exi_pieces p = {
		.v = v, .n = n, .left = bytes, .beside = beside
	};
	struct exi_sock *sk;
	struct exi_call c;
	int ret = exi_look_up(fd, &sk);

	if (ret || sk->framed)
		return ret ? ret : -EBADF;
	if (exi_unlikely(exi_family_elsewhere(sk)))
		exi_family_ask(sk); /* the attempt returns a failure */
	c = exi_call_begin(sk, fd, EXI_RX, flags);
	return recv_to_end(&c, &p, 0);
}

ssize_t exi_flow_recvv(int fd, const struct iovec *v, size_t n, size_t bytes,
		       int flags)
{
	return exi_flow_recv_beside(fd, v, n, bytes, flags, NULL);
}

static ssize_t recv_rest(struct exi_call *c, void *buf, size_t len, size_t done)
{
	struct iovec v = { .iov_base = buf, .iov_len = len };
	struct exi_pieces p = {
		.v = &v, .n = 1, .at = done, .left = len - done
	};

	return recv_to_end(c, &p, done);
}

/* The rest of a call that found less than enough in the ring: n bytes, the end,
 * or -errno. Called with the lock held; releases it. */
static __attribute__((noinline)) ssize_t recv_more_unlock(struct exi_sock *sk,
							  int fd, void *buf,
							  size_t len, int flags,
							  ssize_t n)
{
	struct exi_shared *sh = sk->sh;
	struct exi_call c;

	/* If there was no memory for the next bytes, the attempt has given the
	 * direction back. */
	if (n == -EAGAIN && exi_patience_may_wait(sk, flags) &&
	    sh->half[EXI_RX].mode == EXI_MODE_RING &&
	    exi_look_held_locked(sk, EXI_RX))
		n = exi_recv_ring_locked(sk, &sh->half[EXI_RX], buf, len,
					 flags);
	if (exi_likely(n > 0 && (n == (ssize_t)len ||
				 (size_t)n >= enough(sh, len, flags)))) {
		exi_half_unlock(&sh->half[EXI_RX]);
		return n;
	}
	c = exi_call_begin(sk, fd, EXI_RX, flags);
	if (n == -EAGAIN)
		exi_call_pause_locked(&c);
	exi_half_unlock(&sh->half[EXI_RX]);
	if (n > 0)
		return recv_rest(&c, buf, len, (size_t)n);
	if (n == 0 && len)
		n = at_end(&c, 0);
	/* A call that could wait last time spins before it checks whether it
	 * may. */
	if (n != -EAGAIN ||
	    (!c.look.on && !exi_patience_may_wait(c.sk, c.flags) &&
	     exi_flow_nonblocking(c.sk, c.fd, c.flags)))
		return n;
	return recv_rest(&c, buf, len, 0);
}

/* A call for which the fast path is not enough. */
static __attribute__((noinline)) ssize_t
recv_long(struct exi_sock *sk, int fd, void *buf, size_t len, int flags)
{
	struct exi_call c;

	if (sk->framed && sk->base->packets)
		return exi_seq_recv_one(fd, buf, len, flags);
	if (sk->framed)
		return exi_message_call_one(EXS_EVT_RECV, fd, buf, len, flags);
	if (exi_unlikely(exi_family_elsewhere(sk)))
		exi_family_ask(sk); /* the attempt returns a failure */
	c = exi_call_begin(sk, fd, EXI_RX, flags);
	return recv_rest(&c, buf, len, 0);
}

ssize_t exi_flow_recv_on(struct exi_sock *sk, int fd, void *buf, size_t len,
			 int flags)
{
	struct exi_shared *sh;
	ssize_t n;
	int ret = exi_look_on(fd, &sk);

	if (exi_unlikely(ret))
		return ret;
	if (exi_unlikely(flags & (MSG_PEEK | MSG_OOB)) ||
	    exi_unlikely(!(sh = exi_enter_ring(sk, fd, EXI_RX, len))))
		return recv_long(sk, fd, buf, len, flags);
	n = exi_recv_ring_locked(sk, &sh->half[EXI_RX], buf, len, flags);
	/* All requested bytes are enough, whatever the low-water mark. */
	if (exi_likely(n == (ssize_t)len && n > 0)) {
		exi_half_unlock(&sh->half[EXI_RX]);
		return n;
	}
	return recv_more_unlock(sk, fd, buf, len, flags, n);
}
