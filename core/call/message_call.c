/* SPDX-License-Identifier: BSD-2-Clause */
/* A call that sends or receives one message. */
#include "core/call/message_call.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include "core/base/cancel.h"
#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/call/patience.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"
#include "core/transfer/finish.h"
#include "core/transfer/half.h"
#include "core/transfer/lookup.h"
#include "core/transfer/message.h"
#include "core/transfer/op.h"
#include "core/transfer/packet.h"
#include "core/transfer/progress.h"
#include "core/transfer/timeout.h"

/* A synchronous call on a message. Its operation is in the list only while
 * others wait before it, or while it is within the message: then later ones
 * wait behind it. */
struct message {
	struct exi_op *op;
	struct exi_call call;
	bool listed;
	bool follows; /* others move it */
};

static void list_message_locked(struct message *m)
{
	struct exi_sock *sk = m->call.sk;
	enum exi_dir dir = m->call.dir;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	exi_list_add_tail(&sk->ops[dir], &m->op->node);
	exi_flow_count_ops_locked(sk, dir, 1);
	if (sk->ops[dir].next == &m->op->node)
		exi_timeout_begins_locked(sk, dir);
	m->listed = true;
}

static void end_message_locked(struct message *m, int err)
{
	struct exi_sock *sk = m->call.sk;
	enum exi_dir dir = m->call.dir;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (m->listed)
		exi_flow_finish_locked(sk, dir, m->op, err);
	else if (exi_packet_over_locked(sk, dir, m->op, err))
		exi_flow_end_locked(sk);
}

static ssize_t try_message_locked(struct message *m)
{
	struct exi_sock *sk = m->call.sk;
	enum exi_dir dir = m->call.dir;
	ssize_t n;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (m->op->finished)
		return 1;
	if (!m->listed && !exi_list_empty(&sk->ops[dir])) {
		m->follows = true;
		list_message_locked(m);
	}
	if (m->follows || sk->posted[dir])
		return -EAGAIN;
	do
		n = exi_message_move_locked(sk, dir, m->op);
	while (n == 0);
	if (n == -EAGAIN) {
		if (!m->listed && m->op->begun)
			list_message_locked(m);
		exi_call_pause_locked(&m->call);
	} else if (n > 0 || (n != -ESTALE && n != -EREMOTE && n != -EINTR)) {
		end_message_locked(m, n < 0 ? (int)-n : 0);
		n = 1;
	}
	return n;
}

/* 1: the call is over, and the operation has the result. */
static ssize_t try_message(struct message *m)
{
	struct exi_shared *sh;
	ssize_t n;

	if (!exi_call_lock(&m->call, &sh))
		return m->listed ? 1 : -EBADF;
	n = try_message_locked(m);
	if (n == 1 && m->listed)
		exi_flow_progress_locked(m->call.sk, m->call.dir);
	exi_half_unlock(&sh->half[m->call.dir]);
	return n;
}

static bool over(const struct message *m)
{
	return atomic_load_explicit(&m->op->finished, memory_order_acquire);
}

static int await_message(const struct message *m)
{
	struct exi_word w = { .addr = (const uint32_t *)&m->op->finished };
	uint64_t end = exi_flow_deadline(m->call.sk, m->call.fd, m->call.dir);
	struct timespec till = exi_ns_timespec(end);
	int ret = 0;

	if (exi_flow_nonblocking(m->call.sk, m->call.fd, m->call.flags))
		return -EAGAIN;
	while (!over(m) && ret == 0)
		ret = exi_futex_wait(&w, 1, end ? &till : NULL);
	return over(m) ? 0 : ret == -ETIMEDOUT ? -EAGAIN : ret;
}

/* The call ends before its message does; err is the reason. */
static void quit_message(struct message *m, int err)
{
	struct exi_sock *sk = m->call.sk;
	enum exi_dir dir = m->call.dir;
	struct exi_half *h = &sk->sh->half[dir];
	struct exi_op *op = m->op;
	struct exi_word w = { .addr = (const uint32_t *)&op->finished };

	if (!m->listed) {
		op->err = err;
		return;
	}
	exi_lock(&h->lock);
	if (!op->finished) {
		op->cancelled = true;
		if (sk->posted[dir] == op)
			sk->tcp->kops->cancel(sk->tcp, &sk->xfer[dir]);
		else
			exi_flow_cancelled_locked(sk, dir, op);
		exi_flow_progress_locked(sk, dir);
	}
	exi_unlock(&h->lock);
	while (!over(m))
		exi_futex_wait(&w, 1, NULL);
	if (op->err == ECANCELED)
		op->err = err;
}

/* The thread is cancelled, and its stack is freed. */
static void message_cancelled(void *arg)
{
	quit_message(arg, ECANCELED);
}

static ssize_t wait_message(struct message *m)
{
	struct exi_section ends;
	ssize_t ret;

	exi_section_begin(&ends, message_cancelled, m);
	ret = m->follows ? await_message(m) : exi_call_wait(&m->call, 0);
	exi_section_end(&ends, false);
	return ret;
}

static void move_whole(struct message *m)
{
	ssize_t n;

	while ((n = try_message(m)) != 1) {
		if (n == -ESTALE) {
			exi_link_read(m->call.sk);
			continue;
		}
		if (n == -EREMOTE) {
			exi_family_ask(m->call.sk);
			continue;
		}
		if (n == -EAGAIN)
			n = wait_message(m);
		if (n) {
			quit_message(m, (int)-n);
			return;
		}
	}
}

ssize_t exi_flow_message(struct exi_op *op)
{
	struct message m = { .op = op };
	enum exi_dir dir = exi_op_dir(op);
	bool quiet = op->flags & MSG_NOSIGNAL;
	struct exi_sock *sk;
	int fd = op->fd;
	int ret = exi_flow_addressed(fd, &sk);

	if (ret)
		return ret;
	m.call = exi_call_begin(sk, fd, dir, op->flags);
	if (!sk->framed || sk->closing)
		return -EBADF;
	ret = exi_packet_check(sk, op);
	if (ret)
		return ret;
	exi_list_init(&op->node);
	if (dir == EXI_TX)
		exi_flow_before_send(sk, fd, op->len);
	move_whole(&m);
	if (op->err == EPIPE && dir == EXI_TX)
		exi_flow_broken(quiet);
	if (dir == EXI_RX && !op->err && !(op->event_flags & MSG_EOR))
		exi_link_ended(sk, fd);
	if (dir == EXI_RX)
		exi_flow_after_recv(sk, fd);
	return op->err ? -op->err : (ssize_t)op->done;
}

ssize_t exi_message_call_one(int type, int fd, void *buf, size_t len, int flags)
{
	struct exi_op op = { .type = type,
			     .fd = fd,
			     .buf = buf,
			     .run = len,
			     .len = len,
			     .flags = flags };

	return exi_flow_message(&op);
}

/* A call that did not wait, or not long enough, returned that its message is
 * sent. */
bool exi_flow_flush(struct exi_sock *sk, uint64_t deadline)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	bool left = true;

	while (left && exi_now_ns() < deadline) {
		exi_lock(&h->lock);
		exi_flow_progress_locked(sk, EXI_TX);
		left = !exi_list_empty(&sk->ops[EXI_TX]) &&
		       exi_container(sk->ops[EXI_TX].next, struct exi_op, node)
			       ->ours;
		exi_unlock(&h->lock);
		if (left)
			poll(NULL, 0, 1); /* the service moves it, too */
	}
	if (left)
		exi_warn("%s: closed in the middle of a message that the peer "
			 "does not read",
			 EXI_CONN(atomic_load(&sk->fd)));
	return !left;
}
