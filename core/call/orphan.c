/* SPDX-License-Identifier: BSD-2-Clause */
/* Orphans: sets up the feed of the pair, and moves the bytes that the call may
 * move. */
#include "core/call/orphan.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/feeder.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/call/feed.h"
#include "core/call/ready.h"
#include "core/call/recv.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/sock/base.h"
#include "core/sock/names.h"
#include "core/sock/table.h"
#include "core/transfer/attempt.h"
#include "core/transfer/half.h"
#include "core/transfer/progress.h"
#include "core/transfer/seqpacket.h"
#include "core/transfer/switch.h"

/* --- names ---------------------------------------------------------------- */

#define KEPT 64

struct name {
	struct sockaddr_storage addr;
	socklen_t len;
	int err;
};

struct orphan {
	uint64_t cookie;
	struct name name[2]; /* its own, the peer's */
};

static struct exi_lock lock; /* guards orphans */
static struct orphan orphans[KEPT];
static _Atomic unsigned int n_orphans; /* ever */

static void remember(int tcp_fd, int pair_fd)
{
	struct orphan o = { .cookie = exi_sock_cookie(pair_fd) };

	for (int i = 0; i < 2; i++) {
		struct sockaddr *addr = (struct sockaddr *)&o.name[i].addr;

		o.name[i].len = sizeof(o.name[i].addr);
		if ((i ? getpeername(tcp_fd, addr, &o.name[i].len)
		       : getsockname(tcp_fd, addr, &o.name[i].len)) < 0)
			o.name[i].err = -errno;
	}
	exi_lock(&lock);
	orphans[atomic_load(&n_orphans) % KEPT] = o;
	atomic_fetch_add(&n_orphans, 1);
	exi_unlock(&lock);
}

static bool find(int fd, struct orphan *ret)
{
	uint64_t cookie = exi_sock_cookie(fd);
	bool found = false;

	exi_lock(&lock);
	for (int i = 0; cookie && !found && i < KEPT; i++) {
		found = orphans[i].cookie == cookie;
		if (found)
			*ret = orphans[i];
	}
	exi_unlock(&lock);
	return found;
}

int exi_orphan_name(int fd, bool peer, struct sockaddr *addr, socklen_t *len)
{
	struct orphan o;
	const struct name *n = &o.name[peer];

	if (exi_likely(
		    !atomic_load_explicit(&n_orphans, memory_order_relaxed)) ||
	    !addr || !len || !find(fd, &o))
		return 1;
	if (n->err)
		return n->err;
	if ((int)*len < 0)
		return -EINVAL;
	memcpy(addr, &n->addr, *len < n->len ? *len : n->len);
	*len = n->len;
	return 0;
}

/* --- bytes ---------------------------------------------------------------- */

/* The unread bytes of a gone peer. Another thread may close the socket
 * meanwhile: then the number is another file's, and the memory another
 * socket's. */
struct left {
	int fd;
	uint32_t generation;
	struct exi_feed f;
	bool marked; /* this thread alone receives: exi_half.gathered is set */
};

/* Whether the next bytes are on TCP: the peer's kernel may still have them. */
static bool is_on_tcp(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	bool ret;

	exi_lock(&rx->lock);
	ret = rx->mode == EXI_MODE_LEFT;
	exi_unlock(&rx->lock);
	return ret;
}

static bool more_comes(struct exi_sock *sk, const struct left *l,
		       uint64_t until)
{
	struct pollfd p = { .fd = l->fd, .events = POLLIN };
	uint64_t now = exi_now_ns();

	return now < until && is_on_tcp(sk) &&
	       poll(&p, 1, exi_ms_between(now, until)) > 0;
}

static size_t in_ring(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	size_t ret = 0;

	exi_lock(&rx->lock);
	if (sk->fab)
		ret = exi_half_heard_locked(rx, sk->fab->rops->unread(sk->fab));
	exi_unlock(&rx->lock);
	return ret;
}

/* More bytes than the kernels at both ends of a connection hold. */
#define ON_TCP_MAX ((size_t)16 << 20)

/* From here on no other thread receives, because it would get bytes from behind
 * the gathered ones. Waiting operations come first. Messages, and bytes for
 * which another process must be asked, come by the program's own calls. */
static int mark(struct exi_sock *sk, struct left *l)
{
	struct exi_half *rx = &exi_sock_shared(sk)->half[EXI_RX];
	int ret = 0;

	exi_flow_progress(sk, EXI_RX);
	exi_lock(&rx->lock);
	if (!exi_sock_lasts(sk, l->generation))
		ret = -EBADF;
	else if (rx->gathered)
		ret = -EALREADY;
	else
		l->marked = !sk->framed && exi_list_empty(&sk->ops[EXI_RX]) &&
			    !exi_half_elsewhere_locked(sk, rx);
	if (l->marked)
		rx->gathered = 1;
	exi_unlock(&rx->lock);
	return ret;
}

/* One attempt: returns bytes, 0 at the end, -errno. */
static ssize_t take_some(struct exi_sock *sk, const struct left *l, char *buf,
			 size_t len)
{
	struct exi_half *rx = &exi_sock_shared(sk)->half[EXI_RX];
	ssize_t n;

	if (!l->marked)
		return exi_flow_recv(l->fd, buf, len, MSG_DONTWAIT);
	for (;;) {
		exi_lock(&rx->lock);
		if (!exi_sock_lasts(sk, l->generation)) {
			exi_unlock(&rx->lock);
			return -EBADF;
		}
		rx->gathered = 0;
		n = exi_flow_try_recv_locked(sk, rx, buf, len, MSG_DONTWAIT);
		rx->gathered = 1;
		exi_half_unlock(rx);
		if (n != -ESTALE)
			return n;
		exi_link_read(sk);
	}
}

/* Gathers the bytes as the program would have read them: those that can be
 * unread, and no more, because a peer that hung up may still write to TCP and
 * to the ring. The end of the ring was set when it hung up
 * (exi_flow_deafen_locked()). Bytes on TCP are gathered up to the memory limit,
 * because there may be many such peers. */
static int gather(struct exi_sock *sk, struct left *l, uint64_t until)
{
	struct exi_feed *f = &l->f;
	size_t on_tcp = exi_feeder_room();
	size_t most = (on_tcp < ON_TCP_MAX ? on_tcp : ON_TCP_MAX) +
		      in_ring(sk) + 1; /* or the end */
	size_t size = 0;
	ssize_t n = 1;
	char *more;

	while (f->n < most && exi_sock_lasts(sk, l->generation)) {
		if (f->n == size) {
			size = size ? 2 * size : 65536;
			size = size < most ? size : most;
			more = realloc(f->bytes, size);
			if (!more)
				return -ENOMEM;
			f->bytes = more;
		}
		n = take_some(sk, l, f->bytes + f->n, size - f->n);
		f->n += n > 0 ? (size_t)n : 0;
		if (n <= 0 && (n != -EAGAIN || !more_comes(sk, l, until)))
			break;
	}
	/* Missing bytes end in a reset. */
	f->reset = n > 0 || (n < 0 && (n != -EAGAIN || is_on_tcp(sk)));
	return 0;
}

/* Makes the feed read the ring itself, from where recv would. The end of the
 * ring was set when the peer hung up. */
static int from_ring_locked(struct exi_sock *sk, struct exi_half *rx,
			    struct exi_feed *f)
{
	int ret = sk->fab->aops->begin(sk->fab, &f->ring);

	EXI_LOCKED(&rx->lock);
	if (ret)
		return ret;
	f->ops = sk->fab->aops;
	f->heard = rx->deaf_after - rx->fabric_bytes;
	return 0;
}

/* Makes the feed read TCP, too, and keep it. */
static int from_tcp_locked(struct exi_sock *sk, struct exi_half *rx,
			   struct left *l)
{
	struct exi_feed *f = &l->f;

	EXI_LOCKED(&rx->lock);
	f->from = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
	if (f->from < 0)
		return -errno;
	f->reset = rx->err;
	f->asks = rx->deaf != EXI_DEAF_END;
	if (rx->mode == EXI_MODE_LEFT) {
		exi_switch_recount_locked(sk);
		f->left = rx->left;
		return 0;
	}
	f->all = true;
	f->left = UINT64_MAX;
	f->heard = UINT64_MAX;
	f->returned = exi_attempt_came_back_locked(sk, rx);
	return 0;
}

/* Makes the feed read the unread bytes itself if it can: 0. -EOPNOTSUPP. */
static int read_by_itself(struct exi_sock *sk, struct left *l)
{
	struct exi_half *rx = &exi_sock_shared(sk)->half[EXI_RX];
	int ret = -EOPNOTSUPP;

	exi_lock(&rx->lock);
	if (!exi_sock_lasts(sk, l->generation)) {
		ret = -EBADF;
		goto unlock;
	}
	if (!l->marked || !sk->fab || !sk->fab->aops || !rx->deaf ||
	    rx->broken || rx->ended || rx->fin || sk->n_kept ||
	    !atomic_load(&sk->sh->gone))
		goto unlock;
	ret = from_ring_locked(sk, rx, &l->f);
	if (!ret && rx->mode != EXI_MODE_RING)
		ret = from_tcp_locked(sk, rx, l);
	else if (!ret && rx->deaf != EXI_DEAF_END)
		l->f.reset = exi_half_recv_ended_locked(sk, rx) < 0;
unlock:
	exi_unlock(&rx->lock);
	return ret;
}

static int take_unread(struct exi_sock *sk, struct left *l, uint64_t until)
{
	int ret = mark(sk, l);

	if (!ret)
		ret = read_by_itself(sk, l);
	return ret == -EOPNOTSUPP ? gather(sk, l, until) : ret;
}

/* Copies bytes before the ring; other processes keep the originals. */
static int copy_bytes(struct exi_sock *sk, struct left *l)
{
	struct exi_feed *f = &l->f;
	int unread = exi_ready_unread(sk, l->fd);
	ssize_t n;

	if (unread <= 0)
		return 0;
	f->bytes = malloc((size_t)unread);
	if (!f->bytes)
		return -ENOMEM;
	n = exi_flow_recv(l->fd, f->bytes, (size_t)unread,
			  MSG_PEEK | MSG_DONTWAIT);
	f->n = n > 0 ? (size_t)n : 0;
	return 0;
}

/* Copies the unread bytes, which stay unread. Nothing sends any more; but bytes
 * for which TCP has no room cannot be seen, nor those in the ring behind
 * them. */
static int copy_unread(struct exi_sock *sk, struct left *l)
{
	int fd = l->fd, ret = -EOPNOTSUPP;
	struct exi_half *rx = &exi_sock_shared(sk)->half[EXI_RX];
	struct pollfd p = { .fd = fd };
	bool all;

	l->f.reset = poll(&p, 1, 0) > 0 && (p.revents & POLLERR);
	exi_lock(&rx->lock);
	if (!exi_sock_lasts(sk, l->generation)) {
		exi_unlock(&rx->lock);
		return -EBADF;
	}
	l->f.reset = l->f.reset || rx->err || rx->broken == EXI_BROKEN_UNTOLD;
	all = rx->mode != EXI_MODE_LEFT ||
	      sk->tcp->rops->unread(sk->tcp) >= rx->left;
	if (rx->mode == EXI_MODE_RING && rx->deaf && !sk->framed &&
	    sk->fab->aops)
		ret = from_ring_locked(sk, rx, &l->f);
	exi_unlock(&rx->lock);
	if (!all) {
		exi_warn("%s: bytes for which TCP has no room yet are not in "
			 "the copy of the unread bytes",
			 EXI_CONN(fd));
		l->f.reset = true;
	}
	return ret == -EOPNOTSUPP ? copy_bytes(sk, l) : ret;
}

static int replace(int with, int fd)
{
	int flags = fcntl(fd, F_GETFD);

	return dup3(with, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0 ? -errno
								      : 0;
}

/* Under the lock, so that no thread closes one of the numbers, which could then
 * be another file's a moment later. */
static int replace_all(struct exi_sock *sk, int fd, uint32_t generation,
		       int with)
{
	int n, ret = -EBADF;

	exi_lock(&sk->link_lock);
	if (!exi_sock_lasts(sk, generation))
		goto unlock;
	ret = 0;
	exi_sock_exchange(sk);
	for (n = exi_name_next(sk, 0); n >= 0 && !ret;
	     n = exi_name_next(sk, n + 1))
		ret = replace(with, n);
	if (sk->named && !ret)
		ret = replace(with, atomic_load(&sk->fd));
	exi_sock_mark(sk, fd);
unlock:
	exi_unlock(&sk->link_lock);
	return ret;
}

/* Makes a pair; if no descriptor is free, first releases those of waiting
 * feeds. */
static int make_pair(const struct exi_sock *sk, int *pair)
{
	int type = (sk->base->packets ? SOCK_SEQPACKET : SOCK_STREAM) |
		   SOCK_CLOEXEC;
	int room = 2 << 20, ret;

	ret = socketpair(AF_UNIX, type, 0, pair);
	if (ret < 0 && errno == EMFILE) {
		exi_feed_rest();
		ret = socketpair(AF_UNIX, type, 0, pair);
	}
	if (ret < 0)
		return -errno;
	if (setsockopt(pair[1], SOL_SOCKET, SO_SNDBUFFORCE, &room,
		       sizeof(room)) < 0)
		setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	return 0;
}

static void put_message(struct left *l, const void *from, size_t n)
{
	if (send(l->f.to, from, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		l->f.reset = true;
}

/* The first unread message: its length, or as a receive. */
static ssize_t length_locked(struct exi_sock *sk, struct exi_half *rx,
			     struct exi_seq_end *end)
{
	struct msghdr none = { 0 };

	EXI_LOCKED(&rx->lock);
	return exi_seq_recv_locked(sk, rx, &none, 0, MSG_PEEK | MSG_TRUNC, end);
}

static int move_messages_locked(struct exi_sock *sk, struct exi_half *rx,
				struct left *l)
{
	struct exi_seq_end end = { 0 };
	struct iovec v = { .iov_base = NULL };
	ssize_t n;

	EXI_LOCKED(&rx->lock);
	l->f.reset = exi_half_cut_locked(sk, rx);
	while ((n = length_locked(sk, rx, &end)) >= 0 && !end.over) {
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
		char *more = realloc(v.iov_base, (size_t)n + 1);

		if (!more) {
			free(v.iov_base);
			return -ENOMEM;
		}
		v.iov_base = more;
		v.iov_len = (size_t)n;
		n = exi_seq_recv_locked(sk, rx, &m, (size_t)n, 0, &end);
		if (n < 0 || end.over)
			break;
		put_message(l, v.iov_base, (size_t)n);
	}
	free(v.iov_base);
	l->f.reset = l->f.reset || (n < 0 && n != -EAGAIN);
	return 0;
}

/* Those in the kernel are not copied. */
static int copy_messages_locked(struct exi_sock *sk, struct exi_half *rx,
				struct left *l)
{
	size_t n, len = 0, at = 0;
	const char *next;
	char *buf;

	EXI_LOCKED(&rx->lock);
	l->f.reset = rx->mode != EXI_MODE_RING;
	buf = exi_seq_copy_locked(sk, rx, &n);
	if (!buf)
		return -ENOMEM;
	while ((next = exi_seq_next(buf, n, &at, &len)))
		put_message(l, next, len);
	free(buf);
	return 0;
}

/* Moves the unread messages, or copies them: they were admitted to a queue that
 * is no larger. A message that finds no room, and an error that was not
 * reported, end in a reset. */
static int put_messages(struct exi_sock *sk, struct left *l, bool keep)
{
	struct exi_half *rx = &exi_sock_shared(sk)->half[EXI_RX];
	int ret = -EBADF;

	exi_lock(&rx->lock);
	if (exi_sock_lasts(sk, l->generation))
		ret = keep ? copy_messages_locked(sk, rx, l)
			   : move_messages_locked(sk, rx, l);
	exi_unlock(&rx->lock);
	return ret;
}

int exi_orphan_make(struct exi_sock *sk, int fd, uint32_t generation, bool keep,
		    uint64_t deadline)
{
	struct left l = { .fd = fd,
			  .generation = generation,
			  .f = { .from = -1 } };
	int pair[2], fl, ret = make_pair(sk, pair);
	bool rest = false;

	if (ret)
		return ret;
	l.f.to = pair[1];
	ret = sk->base->packets ? put_messages(sk, &l, keep)
	      : keep		? copy_unread(sk, &l)
				: take_unread(sk, &l, deadline);
	/* The mark of feed.c. */
	if (!ret && send(pair[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		ret = -errno;
	rest = !ret && exi_feed_begin(&l.f) == -EAGAIN;
	if (exi_half_take_cut(&sk->sh->half[EXI_RX]))
		l.f.reset = true;
	remember(fd, pair[0]);
	fl = fcntl(fd, F_GETFL);
	if (fl >= 0)
		fcntl(pair[0], F_SETFL, fl & O_NONBLOCK);
	if (!ret)
		ret = replace_all(sk, fd, generation, pair[0]);
	close(pair[0]);
	if (rest && !ret)
		exi_feed_later(&l.f);
	else
		exi_feed_end(&l.f);
	return ret;
}
