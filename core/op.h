/* SPDX-License-Identifier: BSD-2-Clause */
/* An operation: from its acceptance to the moment its event is dequeued. It is
 * a slot of its queue, so a queue cannot overflow; a synchronous call that
 * must wait its turn behind others has one on its stack. */
#ifndef EXI_CORE_OP_H
#define EXI_CORE_OP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/exs.h>
#include <sys/socket.h>

#include "core/list.h"

struct exi_queue;
struct exi_region;
struct exi_sock;

struct exi_op {
	struct exi_list node;	 /* in the socket's list, then the queue's */
	struct exi_queue *queue; /* null: on a stack */
	struct exi_region *region;
	int type; /* EXS_EVT_* */
	int fd;
	exs_ahandle_t ahandle;
	void *buf;
	size_t len;
	size_t done;
	size_t lent; /* bytes of buf that the fabric's device has: place.h */
	int flags;
	int err; /* positive errno of the event */
	int event_flags;
	int newfd;
	bool cancelled;
	bool sent;    /* all of it, and others before it are lent */
	bool started; /* connect: under way */
	exs_acceptaddr_t *addr;
	_Atomic uint32_t finished; /* on a stack: futex, 1 when done */
	/* What follows is set for a connect only. */
	socklen_t to_len;
	struct sockaddr_storage to;
};

/* The operation has its result: to its queue, or wakes its thread. Called
 * with the socket's locks held, after it left the socket's list. */
void exi_op_complete(struct exi_op *op);

#endif
