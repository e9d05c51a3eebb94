/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a transfer: finished, or cancelled. */
#include "core/transfer/finish.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/half.h"
#include "core/transfer/op.h"
#include "core/transfer/packet.h"
#include "core/transfer/place.h"
#include "core/transfer/queue.h"
#include "core/transfer/timeout.h"

/* The last of finishing a message's operation. */
static void finish_message_locked(struct exi_sock *sk, enum exi_dir dir,
				  struct exi_op *op, int err)
{
	bool waits = !op->queue && !op->ours;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (err == ECANCELED)
		err = exi_op_cancel_error(op);
	if (exi_packet_over_locked(sk, dir, op, err ? err : op->err) &&
	    !sk->closing)
		exi_flow_end_locked(sk);
	if (op->ours)
		free(op);
	else
		exi_op_complete(op);
	if (waits) /* its thread may sleep until bytes can move */
		exi_sock_wake_all_locked(sk, dir);
}

void exi_flow_finish_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	exi_list_del(&op->node);
	exi_flow_count_ops_locked(sk, dir, -1);
	exi_timeout_begins_locked(sk, dir);
	if ((op->flags & EXS_SHUT_WR) && (err || op->err || op->done < op->len))
		sk->sh->half[dir].end_wanted &= ~EXI_END_AFTER;
	if (exi_unlikely(op->ended)) {
		op->ended(sk, dir, op, err);
		return;
	}
	if (exi_unlikely(sk->framed)) {
		finish_message_locked(sk, dir, op, err);
		return;
	}
	/* Bytes that moved before an error are reported; the error comes next,
	 * unless it is the operation's own. */
	op->err = op->done	     ? op->err
		  : err == ECANCELED ? exi_op_cancel_error(op)
				     : err;
	if (op->done && err && err != ECANCELED && err != EINTR)
		sk->sh->half[dir].err = err;
	exi_op_complete(op);
}

void exi_finish_in_turn_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	op->sent = exi_place_lent(sk, dir);
	if (!op->sent)
		exi_flow_finish_locked(sk, dir, op, 0);
}

/* A cancelled operation within a message: received bytes are kept for the next
 * receive, the library completes a message that a call has begun to send, and
 * an operation of a queue continues. False: the operation continues. */
static bool leave_message_locked(struct exi_sock *sk, enum exi_dir dir,
				 struct exi_op *op)
{
	int err = 0;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (dir == EXI_RX && !exi_packet_keep(sk, op))
		return false;
	if (dir == EXI_TX) {
		err = op->queue ? -ENOMEM : exi_packet_rest(op);
		if (err == -ENOMEM)
			return false;
		if (!err) {
			exi_op_complete(op);
			exi_sock_wake_all_locked(sk, dir);
			return true;
		}
	}
	exi_flow_finish_locked(sk, dir, op, err ? -err : ECANCELED);
	return true;
}

void exi_flow_cancelled_locked(struct exi_sock *sk, enum exi_dir dir,
			       struct exi_op *op)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (exi_likely(!op->begun) || sk->closing)
		exi_flow_finish_locked(sk, dir, op, ECANCELED);
	else if (!leave_message_locked(sk, dir, op))
		op->cancelled = op->late = false;
}
