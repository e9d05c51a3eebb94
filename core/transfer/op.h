/* SPDX-License-Identifier: BSD-2-Clause */
/* An operation: from its acceptance to the moment its event is dequeued. It is
 * a slot of its queue, so a queue cannot overflow; a synchronous call that
 * must wait its turn behind others has one on its stack. */
#ifndef EXI_CORE_TRANSFER_OP_H
#define EXI_CORE_TRANSFER_OP_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/list.h"
#include "core/fabric/provider.h"
#include "core/sock/packet_wire.h"

struct exi_queue;
struct exi_region;
struct exi_sock;

/* A piece of an operation's bytes. */
struct exi_part {
	union {
		void *base;
		off_t at; /* in the file */
	};
	size_t len;
	struct exi_region *region; /* held; null */
	int fd;			   /* of a file; -1: memory */
};

#define EXI_PARTS_FEW 4 /* that need no allocation */

struct exi_op {
	struct exi_list node; /* in the socket's list, then the queue's */
	/* Null: on a stack. Of a slot: the member of the family that has it,
	 * see lanes.h. */
	_Atomic(struct exi_queue *) queue;
	struct exi_region *region;
	int type; /* EXS_EVT_* */
	int fd;
	exs_ahandle_t ahandle;
	void *arg; /* the caller's buffer, message, ... for the event */
	size_t done;
	/* Up to here, one line of the cache: what each event has. */
	int err; /* positive errno of the event */
	int event_flags;
	/* Pieces of an operation on more than one buffer; see parts.h. */
	struct exi_part *parts;
	int flags;
	int newfd;
	bool kept;   /* by the queue's lock: the slot outlives its event, */
	bool queued; /* which is there */
	bool cancelled;
	bool multi;   /* it continues after an event: multi.h */
	bool late;    /* by its deadline: it ends with ETIMEDOUT */
	bool sent;    /* all of it, and others before it are lent */
	bool waits;   /* the peer may have a place for it soon: place.h */
	bool whole;   /* on a stack: its caller waits until all is moved */
	bool started; /* connect: under way */
	bool begun;   /* a message has; see packet.h */
	bool ours;    /* the rest of a message; to be freed. Or a loan's */
	bool holds;   /* on a stack, or a loan: nothing passes it, see loan.h */
	/* From here on, a second line: what operations need that complete at
	 * once. */
	void *buf;    /* next to move, */
	size_t run;   /* so many bytes; then */
	size_t next;  /* the next part, of a file what is left of it */
	size_t len;   /* in all */
	size_t lent;  /* bytes of buf that the fabric's device has: place.h */
	uint8_t head; /* bytes sent of what goes before a message: */
	uint8_t head_len;
	uint8_t heading[EXI_PACKET_FIRST];
	exs_acceptaddr_t *addr;
	uint64_t until; /* ns: when it is cancelled; 0: never */
	/* Null, or called instead of the usual completion of an operation that
	 * is over, with err or op->err. The operation has left the socket's
	 * list; the list's lock is held. */
	void (*ended)(struct exi_sock *sk, enum exi_dir dir, struct exi_op *op,
		      int err);
	_Atomic uint32_t finished; /* on a stack: futex, 1 when done */
	size_t n_parts;		   /* of parts */
	char *chunk;		   /* what was read of a file */
	/* What follows is not cleared. */
	socklen_t to_len; /* connect */
	union {
		struct sockaddr_storage to;
		struct exi_part few[EXI_PARTS_FEW];
	};
	unsigned char room[40]; /* slots in a row begin lines of the cache */
};

/* The event of an operation that is over. */
static inline void exi_op_event(const struct exi_op *op, exs_event_t *ev)
{
	*ev = (exs_event_t){
		.exs_evt_type = op->type,
		.exs_evt_socket = op->fd,
		.exs_evt_ahandle = op->ahandle,
		.exs_errno = op->err,
	};
	switch (op->type) {
	case EXS_EVT_SEND:
	case EXS_EVT_RECV:
		ev->exs_evt_un.exs_evt_xfer.exs_evt_buffer = op->arg;
		ev->exs_evt_un.exs_evt_xfer.exs_evt_length = op->done;
		ev->exs_evt_un.exs_evt_xfer.exs_evt_flags = op->event_flags;
		break;
	case EXS_EVT_RECVMSG:
		((exs_msghdr_t *)op->arg)->exs_msg_flags = op->event_flags;
		/* fallthrough */
	case EXS_EVT_SENDMSG:
		ev->exs_evt_un.exs_evt_xfermsg.exs_evt_msg = op->arg;
		ev->exs_evt_un.exs_evt_xfermsg.exs_evt_length = op->done;
		ev->exs_evt_un.exs_evt_xfermsg.exs_evt_flags = op->event_flags;
		break;
	case EXS_EVT_SENDFILE:
		ev->exs_evt_un.exs_evt_xferfile.exs_evt_files = op->arg;
		ev->exs_evt_un.exs_evt_xferfile.exs_evt_length = op->done;
		break;
	case EXS_EVT_ACCEPT:
		ev->exs_evt_un.exs_evt_accept.exs_evt_newfd = op->newfd;
		ev->exs_evt_un.exs_evt_accept.exs_evt_flags = op->event_flags;
		ev->exs_evt_un.exs_evt_accept.exs_evt_addr = op->addr;
		break;
	case EXS_EVT_POLL:
		ev->exs_evt_un.exs_evt_poll.exs_evt_fds = op->arg;
		ev->exs_evt_un.exs_evt_poll.exs_evt_nfds = (int)op->len;
		ev->exs_evt_un.exs_evt_poll.exs_evt_ready = (int)op->done;
		break;
	default:
		break;
	}
}

/* The direction that an operation moves. */
static inline enum exi_dir exi_op_dir(const struct exi_op *op)
{
	return op->type == EXS_EVT_RECV || op->type == EXS_EVT_RECVMSG ? EXI_RX
								       : EXI_TX;
}

/* The error in the event of a cancelled operation. */
static inline int exi_op_cancel_error(const struct exi_op *op)
{
	return op->late ? ETIMEDOUT : ECANCELED;
}

/* Whether its deadline has passed. If not, *next is then at most the
 * deadline. */
static inline bool exi_op_is_late(const struct exi_op *op, uint64_t now,
				  uint64_t *next)
{
	if (!op->until)
		return false;
	if (op->until <= now)
		return true;
	if (op->until < *next)
		*next = op->until;
	return false;
}

/* Makes the slot an operation that is over, with `done` bytes moved: sets only
 * what its event needs. A free slot is neither kept nor queued, and has no
 * parts. */
static inline void exi_op_moved(struct exi_op *op, const exs_x_op_t *o,
				size_t done)
{
	op->type = o->exs_x_type;
	op->fd = o->exs_x_socket;
	op->ahandle = o->exs_x_ahandle;
	op->arg = o->exs_x_buffer;
	op->done = done;
	op->err = 0;
	op->event_flags = 0;
}

#endif
