/* SPDX-License-Identifier: BSD-2-Clause */
/* The loop fabric: both ends in one process, plain locks, no cleverness. It is
 * the reference for what a fabric does, and a double for tests. */
#ifndef EXI_LOOP_INT_H
#define EXI_LOOP_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/list.h"
#include "core/fabric/provider.h"

/* A pipe: one direction. Positions are bytes, counted without wrap. */
struct loopp_pipe {
	pthread_mutex_t lock; /* guards what follows */
	unsigned char *buf;
	uint64_t size;
	uint64_t head;	/* written */
	uint64_t tail;	/* read */
	uint64_t drain; /* the writer sends again from here */
	bool ended;	/* the end follows head */
	bool want[2];	/* EXI_WAKE_WORD asked by the reader, the writer */
	bool bell[2];	/* EXI_WAKE_BELL asked */
	_Atomic uint32_t seq[2]; /* counts writes; counts reads */
};

/* A pair: both directions; lives until both ends are gone. */
struct loopp_pair {
	struct loopp_pipe pipe[2]; /* offering end writes 0, reads 1 */
	_Atomic int users;
	uint64_t key;
	struct exi_list offered;
};

struct loopp_priv {
	struct loopp_pair *pair;
	struct loopp_pipe *out;
	struct loopp_pipe *in;
};

static inline struct loopp_priv *loopp_priv(struct exi_conn *c)
{
	return (struct loopp_priv *)c->priv;
}

extern const struct exi_provider exi_provider_loop;
extern const struct exi_conn_ops loopp_conn_ops;
extern const struct exi_switch_ops loopp_switch_ops;

void loopp_pair_unref(struct loopp_pair *p);

#endif
