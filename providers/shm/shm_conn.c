/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of a connection, and what both directions do. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "core/base/futex.h"
#include "core/fabric/provider.h"

SHMP_RARE void shmp_wake_peer(struct exi_conn *c, uint32_t wait,
			      const _Atomic uint32_t *word, uint64_t sleep)
{
	if (wait & SHMP_WAIT_WORD) {
		exi_futex_wake(shmp_plain(word), INT_MAX);
		exi_conn_rang(c);
	}
	if (wait & SHMP_WAIT_BELL)
		atomic_fetch_add_explicit(&shmp_priv(c)->rang,
					  exi_conn_wake(c, sleep),
					  memory_order_relaxed);
}

static void conn_fini(struct exi_conn *c)
{
	struct shmp_priv *p = shmp_priv(c);

	shmp_segment_unmap(p);
	memset(p, 0, sizeof(*p));
}

const struct exi_conn_ops shmp_conn_ops = {
	.priv_size = sizeof(struct shmp_priv),
	.shared_size = sizeof(struct shmp_shared),
	.wait_ops = &shmp_wait_ops,
	.ready_ops = &shmp_ready_ops,
	.switch_ops = &shmp_switch_ops,
	.loan_ops = &shmp_loan_ops,
	.apart_ops = &shmp_apart_ops,
	.fini = conn_fini,
	.send = shmp_conn_send,
	.recv = shmp_conn_recv,
	.end = shmp_conn_end,
};

const struct exi_loan_ops shmp_loan_ops = {
	.look = shmp_loan_look,
	.took = shmp_loan_took,
	.room = shmp_loan_room,
	.whole = shmp_send_whole,
	.put = shmp_loan_put,
};
