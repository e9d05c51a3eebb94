/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a connection: shutdown and close. */
#include "core/life/close.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/base/util.h"
#include "core/call/downgrade.h"
#include "core/call/feed.h"
#include "core/call/loan.h"
#include "core/call/message_call.h"
#include "core/call/ready.h"
#include "core/fabric/provider.h"
#include "core/life/cancel.h"
#include "core/life/deadline.h"
#include "core/life/open.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/meet/marker.h"
#include "core/meet/meet.h"
#include "core/meet/worth.h"
#include "core/sock/base.h"
#include "core/sock/capture.h"
#include "core/sock/holders.h"
#include "core/sock/memory.h"
#include "core/sock/names.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/cancel.h"
#include "core/transfer/half.h"
#include "core/transfer/op.h"
#include "core/transfer/progress.h"
#include "core/transfer/queue.h"
#include "core/transfer/resume.h"
#include "core/transfer/switch.h"
#include "core/transfer/timeout.h"

/* SHUT_WR or SHUT_RDWR on the sending side. */
static int end_sending(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	int ret = 0;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return -EBADF;
	if (exi_list_empty(&sk->ops[EXI_TX]))
		ret = exi_flow_end_locked(sk);
	else
		sh->half[EXI_TX].end_wanted |= EXI_END_SAID;
	atomic_fetch_add(&sk->cramped, 1);
	exi_half_unlock(&sh->half[EXI_TX]);
	exi_sock_wake_all(sk, EXI_TX);
	exi_flow_progress(sk, EXI_TX);
	return ret;
}

static int end_receiving(struct exi_sock *sk, int fd)
{
	int ret = shutdown(fd, SHUT_RD) < 0 ? -errno : 0;

	if (ret == 0) {
		atomic_store(&sk->sh->rx_fin, 1);
		exi_sock_wake_all(sk, EXI_RX);
		exi_flow_progress(sk, EXI_RX);
	}
	return ret;
}

bool exi_over(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	struct exi_half *tx;
	bool ended;

	/* The kernel of a UNIX socket knows the peer for as long as it
	 * exists. */
	if (sk->base->ends_both || !exi_sock_lock(sk, fd, EXI_TX, &sh))
		return false;
	tx = &sh->half[EXI_TX];
	ended = tx->mode == EXI_MODE_RING && tx->ended && !tx->fin;
	exi_half_unlock(tx);
	return ended && exi_ready_peer_ended(sk, fd);
}

/* Whether the connection is over, in the ring or in the kernel. */
static bool is_over(struct exi_sock *sk, int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return exi_over(sk, fd) ||
	       (!sk->base->ends_both &&
		sk->sh->half[EXI_TX].mode == EXI_MODE_RING &&
		atomic_load(&sk->sh->gone) &&
		getpeername(fd, (struct sockaddr *)&peer, &len) < 0);
}

/* If both directions ended here, and the peer has not ended its own: nothing
 * reads what it sends. As at a close the peer learns that by the link,
 * continues over TCP, and gets the kernel's own answer. */
static void end_both(struct exi_sock *sk, int fd)
{
	struct exi_half *rx, *tx;
	bool ends;

	/* If the service is late, another socket may be getting this one's
	 * memory. */
	exi_lock(&sk->link_lock);
	rx = &sk->sh->half[EXI_RX];
	tx = &sk->sh->half[EXI_TX];
	exi_lock(&rx->lock);
	exi_lock(&tx->lock);
	ends = sk->fab && !exi_sock_remote(sk) &&
	       atomic_load(&sk->sh->rx_fin) && rx->mode == EXI_MODE_RING &&
	       !rx->ended && !sk->fab->rops->over(sk->fab) &&
	       tx->mode == EXI_MODE_RING && tx->ended && !sk->closing &&
	       exi_sock_is(sk, fd) && exi_sock_current(sk, fd);
	if (ends && !tx->fin) {
		tx->fin = 1;
		shutdown(fd, SHUT_WR);
	}
	if (ends) {
		rx->deaf_after =
			rx->fabric_bytes + sk->fab->rops->unread(sk->fab);
		rx->deaf = EXI_DEAF_CUT;
		/* A later send rings the doorbell, and finds that no
		 * process hears it. */
		sk->fab->wops->arm(sk->fab, EXI_RX, EXI_WAKE_NEXT);
		sk->fab->bell = -1;
		atomic_store(&sk->sh->may_switch, 0);
		atomic_store(&sk->sh->gone, 1);
	}
	exi_unlock(&tx->lock);
	exi_unlock(&rx->lock);
	/* Another process may have the link, too. */
	if (ends && sk->link)
		shutdown(sk->link->fd, SHUT_RDWR);
	if (ends) {
		exi_link_drop_locked(sk);
		/* The doorbell that was not heard may have been for others,
		 * too. */
		exi_sock_wake_all(sk, EXI_RX);
		exi_sock_wake_all(sk, EXI_TX);
	}
	exi_unlock(&sk->link_lock);
}

void exi_lifecycle_ended(struct exi_sock *sk)
{
	int fd = atomic_load(&sk->fd);

	if (fd >= 0)
		end_both(sk, fd);
}

int exi_shutdown(int fd, int how)
{
	struct exi_sock *sk = exi_sock_find(fd);
	int ret = 0;

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return -EINVAL;
	if (!sk || !exi_sock_is(sk, fd))
		return shutdown(fd, how) < 0 ? -errno : 0;
	if (is_over(sk, fd))
		return -ENOTCONN;
	/* A thread that the end of receiving wakes sees both ends. */
	if (how != SHUT_RD)
		ret = end_sending(sk, fd);
	if (ret)
		return ret;
	/* From then on the peer's sends are refused, which only its kernel can
	 * do. */
	if (sk->base->ends_both && how != SHUT_WR)
		exi_open_go_plain_or_reset(fd, EXS_X_REASON_ANCILLARY);
	if (how != SHUT_WR)
		ret = end_receiving(sk, fd);
	if (ret == 0)
		end_both(sk, fd);
	/* TCP is closed where the peer ended before. */
	return how == SHUT_RDWR && ret == -ENOTCONN ? 0 : ret;
}

/* Whether the ring has unread bytes of the peer. */
static bool ring_unread_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (sk->n_kept)
		return true;
	return h->mode != EXI_MODE_TCP && h->mode != EXI_MODE_BACK && sk->fab &&
	       !h->ended && !h->broken && exi_half_heard_locked(h, 1) &&
	       sk->fab->ops->recv(sk->fab, &(char){ 0 }, 1, MSG_PEEK) > 0;
}

bool exi_close_resets(int fd)
{
	struct linger l = { 0 };
	socklen_t len = sizeof(l);

	return getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0 &&
	       l.l_onoff && l.l_linger == 0;
}

/* SO_LINGER has no effect on a UNIX socket. */
static bool asks_for_reset(const struct exi_sock *sk, int fd)
{
	return !sk->base->ends_both && exi_close_resets(fd);
}

/* Sends the end at a close. For a UNIX socket, the peer's kernel learns of the
 * close before the peer reads the end, and the peer sees what was left unread:
 * a look of the peer that comes after the close finds it. */
static void end_by_close(struct exi_sock *sk, int fd)
{
	if (sk->base->ends_both)
		shutdown(fd, SHUT_RDWR);
	sk->fab->ops->end(sk->fab);
}

/* Called when the last user closes: the contents of the ring, and an end sent
 * there, decide what TCP sends, as its own queues would. */
static void close_ring_locked(struct exi_sock *sk, int fd)
{
	struct linger reset = { .l_onoff = 1 }, none = { 0 };
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	bool ended = tx->mode == EXI_MODE_RING && tx->ended;
	bool over = ended && rx->mode == EXI_MODE_RING &&
		    sk->fab->rops->over(sk->fab);

	EXI_LOCKED(&rx->lock);
	EXI_LOCKED(&tx->lock);
	/* A later send rings the doorbell, and finds that no process hears it.
	 * Before the peer sends here there may be no ring yet. */
	if (rx->mode == EXI_MODE_LEFT || rx->mode == EXI_MODE_RING)
		sk->fab->wops->arm(sk->fab, EXI_RX, EXI_WAKE_NEXT);
	if (ended && !tx->fin)
		shutdown(fd, SHUT_WR);
	if (!over && exi_sock_remote(sk))
		sk->fab->provider->remote_ops->leave(sk->fab);
	if (over)
		/* Nothing is left to be reset. */
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	else if (!sk->base->ends_both && ring_unread_locked(sk))
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	else if (tx->mode == EXI_MODE_RING && !ended &&
		 !atomic_load(&sk->sh->gone) && !asks_for_reset(sk, fd) &&
		 !sk->tcp->rops->unread(sk->tcp)) /* as the kernel does */
		end_by_close(sk, fd);
}

/* Called when other processes have the connection, and perhaps only the kernel
 * closes it for them. TCP's end must come after the end that was sent here, if
 * nothing could be taken back. */
static void part_from_ring_locked(struct exi_sock *sk, int fd)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];

	EXI_LOCKED(&tx->lock);
	if (tx->mode != EXI_MODE_RING || !tx->ended || tx->fin ||
	    exi_sock_remote(sk) || !sk->fab->rops->left_unread ||
	    sk->fab->rops->left_unread(sk->fab))
		return;
	tx->fin = 1;
	shutdown(fd, SHUT_WR);
}

/* The last close of a connection with bytes on their way from a ring to TCP,
 * which has no room for them. As with bytes in TCP, the close waits only if
 * SO_LINGER says so, and the bytes are sent after it. With unread bytes of the
 * peer, or SO_LINGER with a time of 0, all is dropped, and the peer gets a
 * reset; over a UNIX socket nothing is ever dropped. */
static void finish_drain(struct exi_sock *sk, int fd)
{
	struct linger l = exi_open_linger_of(sk, fd);
	uint64_t wait = l.l_onoff && l.l_linger > 0
				? (uint64_t)l.l_linger * 1000000000u
				: 0;
	int ret;

	if (l.l_onoff && !l.l_linger)
		return;
	ret = exi_open_drain_until(sk, fd, exi_now_ns() + wait);
	if (ret != -EAGAIN ||
	    (!sk->base->ends_both && sk->tcp->rops->unread(sk->tcp)))
		return;
	ret = exi_open_owe(sk, fd);
	if (ret)
		exi_warn("%s: closed while the peer does not read, and the "
			 "rest cannot be sent (%s); connection reset",
			 EXI_CONN(fd), strerror(-ret));
}

bool exi_close_is_last(struct exi_sock *sk)
{
	return exi_holders_alone(&sk->sh->holders);
}

static void lock_all(struct exi_sock *sk)
{
	exi_lock(&sk->link_lock);
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
}

static void unlock_all(struct exi_sock *sk)
{
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	exi_unlock(&sk->link_lock);
}

/* Whether nothing is under way that a close would end or wait for; as the
 * socket is closing, nothing begins. Most connections are short. */
static bool at_rest_locked(const struct exi_sock *sk)
{
	bool ret = !sk->fab && !sk->link && !sk->framed &&
		   exi_list_empty(&sk->poll_ops);
	enum exi_dir d;

	EXI_LOCKED(&sk->link_lock);
	for (d = EXI_RX; d <= EXI_TX; d++)
		ret = ret && exi_list_empty(&sk->ops[d]) && !sk->posted[d] &&
		      !sk->loans[d] && !sk->timeout[d];
	return ret && !atomic_load(&sk->deadline.at);
}

static void come_to_rest(struct exi_sock *sk, int fd, bool close_fd, bool last,
			 struct exi_patience *p)
{
	struct linger reset = { .l_onoff = 1 };
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	struct exi_patience alone = { 0 };
	struct exi_patience *all = p ? p : &alone;
	uint64_t patience, repeats;

	/* Only this process can send it, whichever others have the
	 * connection. */
	if (close_fd && (sk->framed || sk->loans[EXI_TX]) &&
	    !asks_for_reset(sk, fd) &&
	    !exi_flow_flush(sk, exi_switch_patience(sk, all))) {
		exi_link_shun(sk, atomic_load(&sk->generation));
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	}
	exi_flow_stop(sk);
	exi_timeout_drop(sk);
	exi_deadline_drop(sk);
	exi_lifecycle_cancel(sk, true, NULL);
	if (close_fd && exi_open_is_handed_over(sk, last)) {
		exi_switch_down(sk, fd, EXS_X_REASON_SHARED, all);
		if (!p)
			exi_feed_rest();
	}
	/* A SWITCH under way shows that bytes are unread. */
	if (close_fd && exi_sock_met(sk))
		exi_link_event(sk, 0);
	if (last && close_fd && tx->mode == EXI_MODE_DRAIN)
		finish_drain(sk, fd);
	if (last && close_fd && exi_sock_met(sk)) {
		patience = exi_switch_patience(sk, all);
		repeats = exi_now_ns() + EXI_OPEN_REPEATS_NS;
		exi_resume_finish(sk, repeats < patience ? repeats : patience);
	}
}

/* Closes the number, whatever close(2) returns, or replaces it by dup3(2) of
 * heir. */
static int end_number(int fd, const struct exi_close_heir *heir)
{
	int ret;

	if (!heir)
		return close(fd) < 0 ? -errno : 0;
	ret = dup3(heir->fd, fd, heir->flags);
	if (ret >= 0)
		return ret;
	ret = -errno;
	close(fd);
	return ret;
}

/* close(2) may take as long as others decide: SO_LINGER waits for the peer, and
 * descriptors that a UNIX peer has sent and no process has received are closed,
 * too. No thread may wait for this one meanwhile, least of all the service, so
 * it holds no lock. The number is given up first: for any thread that then
 * takes a lock, the socket is gone. TCP ends before the link, so that the peer
 * finds TCP's result when the link hangs up. */
static int end_unlocked(struct exi_sock *sk, bool close_fd,
			const struct exi_close_heir *heir)
{
	int fd = atomic_load(&sk->fd), ret = 0;
	struct exi_link *l = exi_link_take_locked(sk);
	bool named = sk->named;

	atomic_store_explicit(&sk->fd, -1, memory_order_release);
	unlock_all(sk);
	if (named) /* the library's; the names are the caller's */
		exi_fd_close(fd);
	else if (close_fd)
		ret = end_number(fd, heir);
	exi_link_end(l);
	lock_all(sk);
	return ret;
}

int exi_close_leave(struct exi_sock *sk, bool close_fd, bool last,
		    const struct exi_close_heir *heir, struct exi_patience *p)
{
	int fd = atomic_load(&sk->fd), ret;

	lock_all(sk);
	if (!at_rest_locked(sk)) {
		unlock_all(sk);
		come_to_rest(sk, fd, close_fd, last, p);
		lock_all(sk);
	}
	if (sk->lingers)
		sk->lingers = false;
	exi_worth_over_locked(sk);
	if (sk->watched || sk->poll_events)
		exi_service_unwatch(fd);
	if (sk->role == EXI_ROLE_LISTEN)
		exi_marker_release(fd);
	if (sk->counted)
		exi_marker_disconnection();
	if (last && close_fd && sk->fab)
		close_ring_locked(sk, fd);
	else if (close_fd && sk->fab)
		part_from_ring_locked(sk, fd);
	exi_link_clear_locked(sk);
	exi_capture_end(sk);
	exi_sock_unlist_locked(sk);
	/* Withdraws requests to the kernel by this number, which may be another
	 * file's a moment later. */
	if (close_fd || sk->named)
		sk->tcp->ops->close(sk->tcp);
	ret = end_unlocked(sk, close_fd, heir);
	if (sk->fab)
		sk->fab->bell = -1;
	/* Sleepers of this process look again and find the socket gone. */
	atomic_fetch_add(&sk->sh->kick[EXI_RX], 1);
	atomic_fetch_add(&sk->sh->kick[EXI_TX], 1);
	exi_sock_drop_locked(sk);
	return ret;
}

/* *ret: the socket that the caller is to leave, or null. Returns the result of
 * end_number(), if the number is not the socket's own. */
static int begin_close(int fd, const struct exi_close_heir *heir,
		       struct exi_sock **ret)
{
	struct exi_sock *sk = exi_sock_find(fd);
	int others, ended = 0;

	*ret = NULL;
	if (!sk)
		return end_number(fd, heir);
	others = exi_name_remove(sk, fd);
	exi_lock(&sk->link_lock);
	/* Not while the service adds a socket that has met to a set by this
	 * number. */
	if (others >= 0)
		ended = end_number(fd, heir);
	if (others == 0)
		fd = atomic_load(&sk->fd);
	if (others > 0 || atomic_load(&sk->fd) != fd || sk->closing) {
		exi_unlock(&sk->link_lock);
		return others > 0 ? ended : -EBADF;
	}
	/* Seen by every thread that takes one of its locks later. */
	atomic_store_explicit(&sk->closing, true, memory_order_relaxed);
	exi_unlock(&sk->link_lock);
	*ret = sk;
	return ended;
}

int exi_close_with(int fd, const struct exi_close_heir *heir,
		   struct exi_patience *p)
{
	struct exi_sock *sk;
	int ret = begin_close(fd, heir, &sk), left = 0;

	if (sk)
		left = exi_close_leave(sk, true, exi_close_is_last(sk), heir,
				       p);
	/* The other call closed the library's own number, or nothing. */
	return ret ? ret : left;
}

int exi_close(int fd)
{
	return exi_close_with(fd, NULL, NULL);
}

int exi_close_over(int fd, int from, int flags)
{
	return exi_close_with(
		fd, &(struct exi_close_heir){ .fd = from, .flags = flags },
		NULL);
}

/* Whether exi_close_leave() may wait: for what the library still has to send,
 * for a connection that goes to TCP for others, or, between hosts, for the
 * peer's answer that it does not write to memory any more, or has received what
 * was sent. */
static bool may_wait(struct exi_sock *sk, bool last)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	bool ret;

	exi_lock(&tx->lock);
	ret = (last && tx->mode == EXI_MODE_DRAIN) ||
	      (!exi_list_empty(&sk->ops[EXI_TX]) &&
	       exi_container(sk->ops[EXI_TX].next, struct exi_op, node)
		       ->ours) ||
	      (!last && sk->fab && atomic_load(&sk->sh->keeper)) ||
	      exi_sock_remote(sk);
	exi_unlock(&tx->lock);
	return ret;
}

static void *close_slowly(void *arg)
{
	struct exi_open_closing c = *(struct exi_open_closing *)arg;

	free(arg);
	prctl(PR_SET_NAME, "libexs close");
	c.op->err = -exi_close_leave(c.sk, true, c.last, NULL, NULL);
	exi_op_complete(c.op);
	return NULL;
}

/* Starts a thread that leaves the socket. */
static int start_close(struct exi_sock *sk, struct exi_op *op, bool last)
{
	struct exi_open_closing *c = malloc(sizeof(*c));
	pthread_t t;
	int ret;

	if (!c)
		return -ENOMEM;
	*c = (struct exi_open_closing){ .sk = sk, .op = op, .last = last };
	sk->lingers = true;
	ret = exi_thread_start(&t, close_slowly, c);
	if (ret)
		free(c);
	return ret;
}

int exi_close_submit(struct exi_op *op)
{
	struct exi_sock *sk;
	int ret = begin_close(op->fd, NULL, &sk);
	bool last = sk && exi_close_is_last(sk);

	if (ret == -EBADF)
		return ret;
	/* If no thread can be started, the caller waits. */
	if (sk && may_wait(sk, last) && start_close(sk, op, last) == 0)
		return 0;
	op->err = -(sk ? exi_close_leave(sk, true, last, NULL, NULL) : ret);
	exi_op_complete(op);
	return 0;
}

#define LET_GO_NS 20000000u /* for lookers at a closed socket */

void exi_sock_drop_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	uint64_t until = 0;

	EXI_LOCKED(&sk->link_lock);
	EXI_LOCKED(&sh->half[EXI_RX].lock);
	EXI_LOCKED(&sh->half[EXI_TX].lock);
	sk->left_tcp = sk->tcp;
	sk->left_fab = sk->fab;
	sk->tcp = NULL;
	exi_memory_no_fabric(sk);
	free(sk->kept);
	sk->kept = NULL;
	sk->n_kept = sk->kept_room = 0;
	exi_loan_drop_locked(sk);
	atomic_store_explicit(&sk->fd, -1, memory_order_release);
	exi_unlock(&sh->half[EXI_TX].lock);
	exi_unlock(&sh->half[EXI_RX].lock);
	exi_unlock(&sk->link_lock);
	exi_queue_cool(sk, EXI_RX);
	exi_queue_cool(sk, EXI_TX);
	/* Threads that look at the socket's words, or sleep on them, are
	 * kicked, see that the socket is gone, and stop. */
	while (exi_memory_is_looked_at(sk)) {
		if (!until)
			until = exi_now_ns() + LET_GO_NS;
		if (exi_now_ns() > until) {
			exi_memory_retire(sk);
			return;
		}
		exi_sock_wake_all(sk, EXI_RX);
		exi_sock_wake_all(sk, EXI_TX);
		exi_queue_wake_all();
		sched_yield();
	}
	exi_memory_free(sk);
}
