/* SPDX-License-Identifier: BSD-2-Clause */
/* The move of a connection to TCP after its queue pair, port or device failed:
 * cuts it off, and determines what is sent again, and from where. */
#include "core/rma/fail.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/fabric/provider.h"
#include "core/rma/ends.h"
#include "core/rma/engine.h"
#include "core/rma/place.h"
#include "core/rma/post.h"
#include "core/rma/rma.h"
#include "core/rma/sever.h"
#include "core/rma/stream.h"
#include "core/trust/auth_wire.h"

int exi_rma_fail_sever(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);
	int err;

	/* Nothing is posted from here on. */
	exi_rma_link_fail(l, -ECONNRESET, "the other end left");
	exi_rma_meet_sever(l);
	atomic_store(&l->dead, true);
	exi_rma_link_unpin(l);
	err = exi_rma_link_take(l, EXI_RX);
	if (!err)
		err = exi_rma_link_take(l, EXI_TX);
	exi_stream_rx_cut(&l->rx);
	if (err || atomic_load(&l->err) == -EPROTO)
		err = -EPROTO;
	else
		err = exi_rma_place_hold(l);
	l->forsaken = err;
	return err;
}

void exi_rma_fail_leave(struct exi_conn *c)
{
	exi_rma_link_of(c)->leaves = true;
}

bool exi_rma_fail_left(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	/* The message that the other end leaves came before the hang-up, and
	 * may not have been taken. */
	exi_rma_net_poll(l->net);
	return atomic_load(&l->closed);
}

uint32_t exi_rma_fail_position(struct exi_conn *c, enum exi_dir dir)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	return dir == EXI_RX ? exi_stream_rx_position(&l->rx)
			     : exi_stream_tx_position(&l->tx);
}

uint32_t exi_rma_fail_resend(struct exi_conn *c)
{
	struct exi_rma_link *l = exi_rma_link_of(c);

	return exi_stream_tx_cut(&l->tx) - l->held;
}

void exi_rma_fail_resume(struct exi_conn *c, enum exi_dir dir, uint32_t epoch,
			 uint64_t position, uint8_t ret[EXI_RESUME])
{
	struct exi_auth_resume r;

	exi_auth_resume(&exi_rma_link_of(c)->bond, dir == EXI_TX, epoch,
			position, &r);
	memcpy(ret, &r, sizeof(r));
}

_Static_assert(sizeof(struct exi_auth_resume) == EXI_RESUME &&
		       offsetof(struct exi_auth_resume, position) ==
			       EXI_RESUME_AT,
	       "an invalid resume record");
