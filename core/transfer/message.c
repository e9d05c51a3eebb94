/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving the bytes of one message. */
#include "core/transfer/message.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/attempt.h"
#include "core/transfer/finish.h"
#include "core/transfer/op.h"
#include "core/transfer/packet.h"
#include "core/transfer/parts.h"

int exi_message_run_locked(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_op *op, struct exi_xfer *x)
{
	ssize_t n;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	x->flags = 0;
	if (dir == EXI_TX) {
		x->len = exi_packet_run(sk, op, &x->buf);
		if (!exi_packet_headed(op) && op->len)
			x->flags = MSG_MORE;
		return 0;
	}
	n = exi_packet_want(sk, op, &x->buf);
	x->len = (size_t)n;
	return n > 0 ? 0 : n ? (int)n : -EAGAIN;
}

/* The peer's bytes are not those of a socket of messages: nothing is read or
 * sent any more. */
static void misread_locked(struct exi_sock *sk, ssize_t err)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	exi_warn("%s: the peer sends %s", EXI_CONN(sk->tcp->fd),
		 err == -EPROTOTYPE
			 ? "no messages: it is not a SOCK_SEQPACKET socket"
			 : "a message that is too long");
	exi_sock_wake_all_locked(sk, EXI_RX);
	exi_sock_wake_all(sk, EXI_TX);
	exi_service_progress(sk, EXI_TX);
}

static ssize_t came_locked(struct exi_sock *sk, struct exi_op *op, size_t n)
{
	int ret = exi_packet_came(sk, op, n);

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (exi_unlikely(ret == -EPROTOTYPE || ret == -EPROTO))
		misread_locked(sk, ret);
	return ret;
}

/* Reads the bytes that did not fit, as far as they are there: at the end the
 * rest would be unread. */
static void skip_message_locked(struct exi_sock *sk, struct exi_half *h,
				struct exi_op *op)
{
	ssize_t n;
	void *to;

	EXI_LOCKED(&h->lock);
	while ((n = exi_packet_skip(sk, &to)) > 0) {
		n = exi_flow_try_recv_locked(sk, h, to, (size_t)n, 0);
		if (n <= 0)
			break; /* for the next receive to find */
		exi_packet_came(sk, op, (size_t)n);
	}
	if (n < 0 && n != -EAGAIN && n != -ESTALE && n != -EREMOTE)
		h->err = (int)-n;
}

/* 1: the operation has its message, or the end. */
static ssize_t recv_message_locked(struct exi_sock *sk, struct exi_half *h,
				   struct exi_op *op)
{
	ssize_t n;
	void *to;

	EXI_LOCKED(&h->lock);
	do {
		n = exi_packet_want(sk, op, &to);
		if (n == 0 && op->begun)
			skip_message_locked(sk, h, op);
		if (n <= 0)
			return n ? n : 1;
		n = exi_flow_try_recv_locked(sk, h, to, (size_t)n, 0);
		if (n < 0)
			return n;
		n = came_locked(sk, op, (size_t)n);
	} while (n == 0);
	return n;
}

/* n bytes went of a message, and of those behind it. */
static ssize_t went_locked(struct exi_sock *sk, struct exi_op *op, size_t n)
{
	struct exi_op *first = op;

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	for (;;) {
		struct exi_list *next = op->node.next;

		n -= exi_packet_went(sk, op, n);
		exi_packet_note(sk, op);
		if (!n)
			break;
		exi_finish_in_turn_locked(sk, EXI_TX, op);
		op = exi_container(next, struct exi_op, node);
	}
	if (op == first)
		return exi_packet_sent(op);
	if (exi_packet_sent(op))
		exi_finish_in_turn_locked(sk, EXI_TX, op);
	return 0;
}

/* 1: the message was sent, 0: some of it. */
static ssize_t send_message_locked(struct exi_sock *sk, struct exi_half *h,
				   struct exi_op *op)
{
	char room[EXI_PACKET_ROOM];
	bool more;
	ssize_t n = exi_packet_turn(sk);

	EXI_LOCKED(&h->lock);
	if (!n && exi_parts_wants(op))
		n = exi_parts_read(op);
	if (n)
		return n;
	if (!exi_packet_headed(op)) {
		size_t len = exi_packet_gather(sk, op, room, &more);

		n = exi_flow_try_send_locked(sk, h, room, len,
					     more ? MSG_MORE : 0);
	} else {
		n = exi_flow_try_send_locked(sk, h, op->buf, op->run, 0);
	}
	return n > 0 ? went_locked(sk, op, (size_t)n) : n;
}

ssize_t exi_message_move_locked(struct exi_sock *sk, enum exi_dir dir,
				struct exi_op *op)
{
	struct exi_half *h = &sk->sh->half[dir];

	EXI_LOCKED(&sk->sh->half[dir].lock);
	return dir == EXI_RX ? recv_message_locked(sk, h, op)
			     : send_message_locked(sk, h, op);
}

void exi_message_posted_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op, size_t n)
{
	ssize_t ret =
		dir == EXI_RX ? came_locked(sk, op, n) : went_locked(sk, op, n);

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (ret < 0)
		exi_flow_finish_locked(sk, dir, op, (int)-ret);
	else if (ret)
		exi_finish_in_turn_locked(sk, dir, op);
}
