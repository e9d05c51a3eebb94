/* SPDX-License-Identifier: BSD-2-Clause */
/* Framing of messages. */
#include "core/transfer/packet.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/sock/base.h"
#include "core/sock/packet_wire.h"
#include "core/sock/table.h"
#include "core/transfer/op.h"
#include "core/transfer/parts.h"

/* The rest of a message that did not fit is read in pieces of this size. */
#define SKIP 4096

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static struct exi_framing *framing(const struct exi_sock *sk, enum exi_dir dir)
{
	return &sk->sh->half[dir].framing;
}

bool exi_packet_is(int fd)
{
	const struct exi_sock *sk = exi_sock_find(fd);

	return sk && atomic_load_explicit(&sk->framed, memory_order_relaxed) &&
	       exi_sock_is(sk, fd);
}

static int foreign(const struct exi_sock *sk)
{
	return -(int)atomic_load_explicit(&sk->sh->foreign,
					  memory_order_relaxed);
}

int exi_packet_check(struct exi_sock *sk, struct exi_op *op)
{
	enum exi_dir dir = exi_op_dir(op);

	if (sk->base->packets ||
	    op->flags & (dir == EXI_TX ? MSG_OOB | MSG_MORE : MSG_OOB))
		return -EOPNOTSUPP;
	if (dir == EXI_TX && op->len > EXS_X_MESSAGE_MAX)
		return -EMSGSIZE;
	op->flags &= ~MSG_EOR;
	/* A receive waits for all of a message. */
	if (dir == EXI_RX)
		op->flags |= MSG_WAITALL;
	return foreign(sk);
}

/* --- what is kept ------------------------------------------------------- */

/* Room for n bytes. */
static bool reserve(struct exi_sock *sk, size_t n)
{
	char *p;

	if (n <= sk->kept_room)
		return true;
	p = realloc(sk->kept, n);
	if (!p)
		return false;
	sk->kept = p;
	sk->kept_room = n;
	return true;
}

/* Large room is not held for long. */
static void forget(struct exi_sock *sk)
{
	sk->n_kept = 0;
	if (sk->kept_room <= SKIP)
		return;
	free(sk->kept);
	sk->kept = NULL;
	sk->kept_room = 0;
}

/* Moves n bytes into the operation. */
static void put(struct exi_op *op, const char *from, size_t n)
{
	while (n) {
		size_t part = min_size(op->run, n);

		memcpy(op->buf, from, part);
		exi_parts_moved(op, part);
		from += part;
		n -= part;
	}
}

bool exi_packet_keep(struct exi_sock *sk, struct exi_op *op)
{
	size_t left = op->done;
	char *to;

	if (!reserve(sk, left))
		return false;
	to = sk->kept;
	if (!op->parts && left)
		memcpy(to, (char *)op->buf - left, left);
	for (size_t i = 0; op->parts && left; i++) {
		size_t part = min_size(op->parts[i].len, left);

		if (part)
			to = mempcpy(to, op->parts[i].base, part);
		left -= part;
	}
	sk->n_kept = op->done;
	op->begun = false;
	return true;
}

bool exi_packet_there(const struct exi_sock *sk)
{
	const struct exi_framing *in = framing(sk, EXI_RX);

	return foreign(sk) || (in->begun && !in->left && sk->n_kept == in->len);
}

/* --- receiving ---------------------------------------------------------- */

static int misread(struct exi_sock *sk, int err)
{
	atomic_store_explicit(&sk->sh->foreign, (uint32_t)err,
			      memory_order_relaxed);
	return -err;
}

/* More of the head came. */
static int read_head(struct exi_sock *sk, struct exi_framing *in)
{
	uint32_t hello = in->greeted ? 0 : EXI_PACKET_HELLO_LEN;
	struct exi_packet_head head;

	if (memcmp(in->head, EXI_PACKET_HELLO, min_size(in->have, hello)))
		return misread(sk, EPROTOTYPE);
	if (in->have < hello + EXI_PACKET_HEAD)
		return 0;
	memcpy(&head, in->head + hello, sizeof(head));
	head.len = le32toh(head.len);
	if (head.len > EXS_X_MESSAGE_MAX)
		return misread(sk, EPROTO);
	in->have = 0;
	in->greeted = 1;
	in->begun = 1;
	in->len = in->left = head.len;
	in->owner = exi_process_token();
	return 0;
}

/* The operation has the message that has begun. */
static void begin(struct exi_sock *sk, struct exi_framing *in,
		  struct exi_op *op)
{
	op->begun = true;
	op->event_flags = MSG_EOR | (in->len > op->len ? MSG_TRUNC : 0);
	if (op->len > in->len)
		op->len = in->len;
	if (!op->parts && op->run > op->len)
		op->run = op->len;
	put(op, sk->kept, min_size(sk->n_kept, op->len));
	sk->n_kept = 0;
}

/* Looks, and leaves the message to the next one. */
static ssize_t peek(struct exi_sock *sk, const struct exi_framing *in,
		    struct exi_op *op, void **ret)
{
	size_t n = min_size(op->len, in->len);

	if (!reserve(sk, n))
		return -ENOMEM;
	if (sk->n_kept < n) {
		*ret = sk->kept + sk->n_kept;
		return (ssize_t)(n - sk->n_kept);
	}
	op->event_flags = MSG_EOR | (in->len > op->len ? MSG_TRUNC : 0);
	op->len = n;
	put(op, sk->kept, n);
	return 0;
}

ssize_t exi_packet_skip(struct exi_sock *sk, void **ret)
{
	size_t left = framing(sk, EXI_RX)->left;

	if (!left)
		return 0;
	if (!reserve(sk, SKIP))
		return -ENOMEM;
	*ret = sk->kept;
	return (ssize_t)min_size(left, SKIP);
}

/* Everything that the operation takes of its message came. */
static void complete(struct exi_framing *in)
{
	in->begun = 0;
	in->owner = 0;
}

ssize_t exi_packet_want(struct exi_sock *sk, struct exi_op *op, void **ret)
{
	struct exi_framing *in = framing(sk, EXI_RX);
	uint32_t all;

	if (exi_unlikely(foreign(sk)))
		return foreign(sk);
	if (exi_unlikely(in->owner && in->owner != exi_process_token()))
		return -EBUSY;
	if (!in->begun && exi_unlikely(in->left))
		return exi_packet_skip(sk, ret);
	if (!in->begun) {
		all = in->greeted ? EXI_PACKET_HEAD : EXI_PACKET_FIRST;
		*ret = in->head + in->have;
		return all - in->have;
	}
	if (exi_unlikely(op->flags & MSG_PEEK))
		return peek(sk, in, op, ret);
	if (!op->begun)
		begin(sk, in, op);
	if (op->done == op->len)
		complete(in);
	*ret = op->buf;
	return (ssize_t)min_size(op->run, op->len - op->done);
}

/* The end of the stream. */
static int ended(struct exi_sock *sk, struct exi_framing *in)
{
	bool within = in->begun || in->have || in->left;

	in->begun = in->have = in->left = 0;
	in->owner = 0;
	forget(sk);
	return within ? -ECONNRESET : 1;
}

int exi_packet_came(struct exi_sock *sk, struct exi_op *op, size_t n)
{
	struct exi_framing *in = framing(sk, EXI_RX);

	if (!n)
		return ended(sk, in);
	if (!in->begun && !in->left) {
		in->have += (uint32_t)n;
		return read_head(sk, in);
	}
	in->left -= (uint32_t)n;
	if (!in->begun)
		return 0;
	if (op->begun)
		exi_parts_moved(op, n);
	else
		sk->n_kept += n;
	return 0;
}

void exi_packet_placed(struct exi_sock *sk, size_t n)
{
	framing(sk, EXI_RX)->left -= (uint32_t)n;
}

/* --- sending ------------------------------------------------------------ */

/* Makes the head of the message; made anew as long as nothing of it was
 * sent. */
static void make_head(struct exi_op *op, bool first)
{
	struct exi_packet_head head = { htole32((uint32_t)op->len) };
	uint8_t *to = op->heading;

	if (op->head)
		return;
	if (first)
		to = mempcpy(to, EXI_PACKET_HELLO, EXI_PACKET_HELLO_LEN);
	to = mempcpy(to, &head, sizeof(head));
	op->head_len = (uint8_t)(to - op->heading);
}

/* All that is left of the bytes lies in memory. */
static bool in_memory(const struct exi_op *op)
{
	for (size_t i = op->next; i < op->n_parts; i++)
		if (op->parts[i].fd >= 0 && op->parts[i].len)
			return false;
	return true;
}

static char *copy_left(const struct exi_op *op, char *to)
{
	if (op->run)
		to = mempcpy(to, op->buf, op->run);
	for (size_t i = op->next; i < op->n_parts; i++)
		if (op->parts[i].len)
			to = mempcpy(to, op->parts[i].base, op->parts[i].len);
	return to;
}

static size_t left_of(const struct exi_op *op)
{
	return op->head_len - op->head + op->len - op->done;
}

size_t exi_packet_gather(struct exi_sock *sk, struct exi_op *op,
			 char room[EXI_PACKET_ROOM], bool *ret_more)
{
	bool first = !framing(sk, EXI_TX)->greeted;
	char *to = room, *end = room + EXI_PACKET_ROOM;
	const struct exi_list *pos = &op->node;

	*ret_more = false;
	do {
		struct exi_op *o = exi_container(pos, struct exi_op, node);

		if (o->cancelled && o != op)
			break;
		make_head(o, first && o == op);
		if (left_of(o) > (size_t)(end - to) || !in_memory(o)) {
			*ret_more = o == op;
			if (*ret_more)
				to = mempcpy(to, o->heading + o->head,
					     o->head_len - o->head);
			break;
		}
		to = mempcpy(to, o->heading + o->head, o->head_len - o->head);
		to = copy_left(o, to);
		pos = pos->next;
	} while (pos != &op->node && pos != &sk->ops[EXI_TX]);
	return (size_t)(to - room);
}

size_t exi_packet_run(struct exi_sock *sk, struct exi_op *op, void **ret)
{
	make_head(op, !framing(sk, EXI_TX)->greeted);
	if (op->head == op->head_len) {
		*ret = op->buf;
		return op->run;
	}
	*ret = op->heading + op->head;
	return op->head_len - op->head;
}

size_t exi_packet_went(struct exi_sock *sk, struct exi_op *op, size_t n)
{
	size_t head = min_size(op->head_len - op->head, n), left = n - head;

	if (head) {
		op->begun = true;
		op->head += (uint8_t)head;
		framing(sk, EXI_TX)->greeted = 1;
	}
	while (left && op->run) {
		size_t part = min_size(op->run, left);

		exi_parts_moved(op, part);
		left -= part;
	}
	return n - left;
}

int exi_packet_turn(const struct exi_sock *sk)
{
	const struct exi_framing *out = framing(sk, EXI_TX);

	if (exi_unlikely(foreign(sk)))
		return foreign(sk);
	return exi_unlikely(out->owner && out->owner != exi_process_token())
		       ? -EBUSY
		       : 0;
}

void exi_packet_note(struct exi_sock *sk, const struct exi_op *op)
{
	framing(sk, EXI_TX)->owner =
		exi_unlikely(op->begun && !(exi_packet_headed(op) &&
					    op->done + op->lent == op->len))
			? exi_process_token()
			: 0;
}

int exi_packet_rest(struct exi_op *op)
{
	size_t left = op->len - op->done;
	struct exi_op *rest = calloc(1, sizeof(*rest) + left);
	char *to = (char *)(rest + 1);

	if (!rest)
		return -ENOMEM;
	rest->buf = rest->arg = to;
	while (op->done < op->len) {
		int err = exi_parts_wants(op) ? exi_parts_read(op) : 0;

		if (err) {
			free(rest);
			return err == -ENOMEM ? -EIO : err;
		}
		to = mempcpy(to, op->buf, op->run);
		exi_parts_moved(op, op->run);
	}
	rest->ours = true;
	rest->type = op->type;
	rest->fd = op->fd;
	rest->newfd = -1;
	rest->begun = true;
	rest->run = left;
	rest->len = op->len;
	rest->done = op->len - left;
	rest->head = op->head;
	rest->head_len = op->head_len;
	memcpy(rest->heading, op->heading, sizeof(rest->heading));
	exi_list_add_tail(&op->node, &rest->node);
	exi_list_del(&op->node);
	return 0;
}

/* --- both --------------------------------------------------------------- */

bool exi_packet_over_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_op *op, int err)
{
	struct exi_framing *f = framing(sk, dir);
	bool begun = op->begun;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	op->begun = false;
	if (err) {
		op->err = err;
		op->done = 0;
		op->event_flags = 0;
	}
	if (dir == EXI_TX)
		return err && begun;
	if (begun) {
		complete(f);
		forget(sk);
	}
	return false;
}
