/* SPDX-License-Identifier: BSD-2-Clause */
/* Between inbox and stream engine: passes the messages that arrived to the
 * engine, and sends the engine's messages. */
#include "core/rma/engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/fabric/provider.h"
#include "core/rma/link.h"
#include "core/rma/post.h"
#include "core/rma/rma.h"
#include "core/rma/stream.h"
#include "core/rma/wire.h"

int exi_rma_link_take_some(struct exi_rma_link *l, enum exi_dir dir)
{
	struct exi_stream_msg m;
	bool some = false;
	int err = 0;

	while (!err && exi_rma_inbox_next(&l->inbox[dir], &m)) {
		some = true;
		err = dir == EXI_RX ? exi_stream_rx_got(&l->rx, &m)
				    : exi_stream_tx_got(&l->tx, &m);
	}
	if (err)
		exi_rma_link_fail(l, err, "an invalid message");
	else if (dir == EXI_TX && exi_stream_tx_due(&l->tx))
		exi_rma_link_answer(l);
	else if (dir == EXI_RX && some && l->rx.posted)
		exi_rma_link_copy(l);
	return err;
}

void exi_rma_link_copy(struct exi_rma_link *l)
{
	uint32_t at, n;
	void *to;

	while ((n = exi_stream_rx_copy(&l->rx, &at, &to))) {
		memcpy(to, l->ring.at + at, n);
		exi_stream_rx_copied(&l->rx, n);
	}
}

static int say_engine(struct exi_rma_link *l, const struct exi_stream_msg *m)
{
	bool closes = m->kind == EXI_STREAM_END && l->leaves;
	struct exi_rma_msg out = {
		.kind = m->kind == EXI_STREAM_END      ? EXI_RMA_END
			: m->kind == EXI_STREAM_ADVERT ? EXI_RMA_ADVERT
			: m->kind == EXI_STREAM_ACK    ? EXI_RMA_ACK
						       : EXI_RMA_REVOKE,
		.flags = (m->waitall ? EXI_RMA_FLAG_WAITALL : 0) |
			 (closes ? EXI_RMA_FLAG_CLOSES : 0),
		.phase = m->phase,
		.seq = m->seq,
		.note = m->len,
		.addr = m->addr,
		.key = m->key,
	};

	/* A REVOKE is urgent: the end that answers it need not be waiting for
	 * anything. */
	int err = exi_rma_link_say(l, &out, NULL, m->kind == EXI_STREAM_REVOKE,
				   true);

	if (closes && !err)
		l->leaves = false;
	return err;
}

void exi_rma_link_answer(struct exi_rma_link *l)
{
	struct exi_stream_msg m;
	int err = atomic_load(&l->err);

	while (!err && exi_stream_tx_next(&l->tx, 0, EXI_STREAM_NOW, &m) !=
			       EXI_STREAM_NONE) {
		err = m.kind == EXI_STREAM_END
			      ? say_engine(l, &m)
			      : exi_rma_link_write(l, l->mirror.at,
						   &l->mirror.mr, l->peer.addr,
						   l->peer.key, 0,
						   EXI_RMA_NOTE_INDIRECT, NULL);
		if (!err)
			exi_stream_tx_sent(&l->tx, &m, 0);
	}
	if (err == -EAGAIN)
		atomic_store(&l->unanswered, true);
}

void exi_rma_link_report(struct exi_rma_link *l, bool idle)
{
	struct exi_stream_msg m;
	int err = 0;

	while (!err &&
	       exi_stream_rx_next(&l->rx, idle, &m) != EXI_STREAM_NONE) {
		err = say_engine(l, &m);
		if (!err)
			exi_stream_rx_sent(&l->rx, &m);
	}
	if (err == -EAGAIN)
		atomic_store(&l->unsaid, true);
}
