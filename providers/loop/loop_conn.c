/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of the loop provider: bytes through a locked buffer. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/futex.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "providers/loop/loop_int.h"

/* Which sleeper of a pipe: by the direction it sleeps for. */
#define READER EXI_RX
#define WRITER EXI_TX

/* Wakes the waiters that asked; the pipe's lock is held. Returns whether to
 * ring. */
static bool wake(struct loopp_pipe *p, enum exi_dir who)
{
	bool ring = p->bell[who];

	atomic_fetch_add(&p->seq[who], 1);
	if (p->want[who])
		exi_futex_wake((const uint32_t *)&p->seq[who], INT_MAX);
	p->want[who] = p->bell[who] = false;
	return ring;
}

/* Copies between the ring at a position and flat memory. */
static void copy(struct loopp_pipe *p, uint64_t pos, void *flat, size_t len,
		 bool in)
{
	size_t offset = pos % p->size, first = p->size - offset;

	if (first > len)
		first = len;
	if (in) {
		memcpy(p->buf + offset, flat, first);
		memcpy(p->buf, (char *)flat + first, len - first);
	} else {
		memcpy(flat, p->buf + offset, first);
		memcpy((char *)flat + first, p->buf, len - first);
	}
}

static ssize_t conn_send(struct exi_conn *c, const void *buf, size_t len,
			 int flags)
{
	struct loopp_pipe *p = loopp_priv(c)->out;
	bool ring = false;
	uint64_t room;

	pthread_mutex_lock(&p->lock);
	room = p->size - (p->head - p->tail);
	if (len > room)
		len = room;
	if (len) {
		copy(p, p->head, (void *)(uintptr_t)buf, len, true);
		p->head += len;
		ring = wake(p, READER);
	}
	pthread_mutex_unlock(&p->lock);
	if (ring)
		exi_conn_wake(c, 0);
	return len || !room ? (len ? (ssize_t)len : -EAGAIN) : 0;
}

static int conn_end(struct exi_conn *c)
{
	struct loopp_pipe *p = loopp_priv(c)->out;
	bool ring;

	pthread_mutex_lock(&p->lock);
	p->ended = true;
	ring = wake(p, READER);
	pthread_mutex_unlock(&p->lock);
	if (ring)
		exi_conn_wake(c, 0);
	return 0;
}

static bool ready_locked(struct loopp_pipe *p, enum exi_dir dir)
{
	EXI_MUTEX_LOCKED(&p->lock);
	return dir == EXI_RX ? p->head != p->tail || p->ended
			     : p->head - p->tail < p->size - p->size / 8;
}

static ssize_t conn_recv(struct exi_conn *c, void *buf, size_t len, int flags)
{
	struct loopp_pipe *p = loopp_priv(c)->in;
	bool ring = false, ready;

	pthread_mutex_lock(&p->lock);
	ready = ready_locked(p, EXI_RX);
	if (len > p->head - p->tail)
		len = p->head - p->tail;
	if (len) {
		copy(p, p->tail, buf, len, false);
		if (!(flags & MSG_PEEK)) {
			p->tail += len;
			ring = wake(p, WRITER);
		}
	}
	pthread_mutex_unlock(&p->lock);
	if (ring)
		exi_conn_wake(c, 0);
	return ready ? (ssize_t)len : -EAGAIN;
}

/* The pipe whose state a direction waits for. */
static struct loopp_pipe *pipe_of(struct exi_conn *c, enum exi_dir dir)
{
	return dir == EXI_RX ? loopp_priv(c)->in : loopp_priv(c)->out;
}

static int conn_arm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	struct loopp_pipe *p = pipe_of(c, dir);
	bool ready;

	pthread_mutex_lock(&p->lock);
	ready = how != EXI_WAKE_NEXT && ready_locked(p, dir);
	if (!ready && how == EXI_WAKE_WORD)
		p->want[dir] = true;
	if (!ready && how != EXI_WAKE_WORD)
		p->bell[dir] = true;
	pthread_mutex_unlock(&p->lock);
	return ready ? -EBUSY : 0;
}

static bool conn_ready(struct exi_conn *c, enum exi_dir dir)
{
	struct loopp_pipe *p = pipe_of(c, dir);
	bool ret;

	pthread_mutex_lock(&p->lock);
	ret = ready_locked(p, dir);
	pthread_mutex_unlock(&p->lock);
	return ret;
}

static bool conn_over(struct exi_conn *c)
{
	struct loopp_pipe *p = loopp_priv(c)->in;
	bool ret;

	pthread_mutex_lock(&p->lock);
	ret = p->ended;
	pthread_mutex_unlock(&p->lock);
	return ret;
}

static size_t conn_unread(struct exi_conn *c)
{
	struct loopp_pipe *p = loopp_priv(c)->in;
	size_t ret;

	pthread_mutex_lock(&p->lock);
	ret = p->head - p->tail;
	pthread_mutex_unlock(&p->lock);
	return ret;
}

static bool conn_full(struct exi_conn *c)
{
	struct loopp_pipe *p = loopp_priv(c)->in;

	return conn_unread(c) >= p->size - p->size / 4;
}

static void conn_disarm(struct exi_conn *c, enum exi_dir dir, enum exi_wake how)
{
	struct loopp_pipe *p = pipe_of(c, dir);

	/* A word is woken once, and does not mind. */
	if (how == EXI_WAKE_WORD)
		return;
	pthread_mutex_lock(&p->lock);
	p->bell[dir] = false;
	pthread_mutex_unlock(&p->lock);
}

static int conn_word(struct exi_conn *c, enum exi_dir dir, struct exi_word *ret)
{
	struct loopp_pipe *p = pipe_of(c, dir);

	ret->addr = (const uint32_t *)&p->seq[dir];
	ret->value = atomic_load(&p->seq[dir]);
	return 0;
}

static int conn_peer_cpu(struct exi_conn *c)
{
	return -1;
}

/* --- switching ---------------------------------------------------------- */

static int switch_head(struct exi_conn *c, uint64_t *ret)
{
	*ret = loopp_priv(c)->out->head;
	return 0;
}

static int switch_start(struct exi_conn *c, uint64_t head)
{
	struct loopp_pipe *p = loopp_priv(c)->in;
	int ret = 0;

	pthread_mutex_lock(&p->lock);
	if (head < p->tail || head > p->head)
		ret = -EPROTO;
	else
		p->tail = head;
	pthread_mutex_unlock(&p->lock);
	return ret;
}

static void switch_cursor(struct exi_conn *c, uint64_t *ret_pos,
			  uint64_t *ret_used)
{
	*ret_pos = loopp_priv(c)->in->tail;
	*ret_used = 0;
}

static int switch_takeback(struct exi_conn *c, uint64_t pos, uint64_t used)
{
	struct loopp_pipe *p = loopp_priv(c)->out;

	if (pos > p->head || p->head - pos > p->size || used)
		return -EPROTO;
	p->drain = pos;
	return 0;
}

static size_t switch_drain(struct exi_conn *c, const void **ret)
{
	struct loopp_pipe *p = loopp_priv(c)->out;
	uint64_t offset = p->drain % p->size;
	uint64_t len = p->head - p->drain;

	*ret = p->buf + offset;
	return len < p->size - offset ? len : p->size - offset;
}

static void switch_drained(struct exi_conn *c, size_t n)
{
	loopp_priv(c)->out->drain += n;
}

/* --- the table ---------------------------------------------------------- */

static void conn_fini(struct exi_conn *c)
{
	loopp_pair_unref(loopp_priv(c)->pair);
	loopp_priv(c)->pair = NULL;
}

static const struct exi_wait_ops wait_ops = {
	.arm = conn_arm,
	.disarm = conn_disarm,
	.word = conn_word,
	.peer_cpu = conn_peer_cpu,
};

static const struct exi_ready_ops ready_ops = {
	.ready = conn_ready,
	.unread = conn_unread,
	.full = conn_full,
	.over = conn_over,
};

const struct exi_conn_ops loopp_conn_ops = {
	.priv_size = sizeof(struct loopp_priv),
	.wait_ops = &wait_ops,
	.ready_ops = &ready_ops,
	.switch_ops = &loopp_switch_ops,
	.fini = conn_fini,
	.send = conn_send,
	.recv = conn_recv,
	.end = conn_end,
};

const struct exi_switch_ops loopp_switch_ops = {
	.head = switch_head,
	.start = switch_start,
	.cursor = switch_cursor,
	.takeback = switch_takeback,
	.drain = switch_drain,
	.drained = switch_drained,
};
