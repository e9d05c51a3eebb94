/* SPDX-License-Identifier: BSD-2-Clause */
/* The wait of a synchronous call: lock, attempt, look, sleep, repeat. */
#include "core/call/patience.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/futex.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/signals.h"
#include "core/base/util.h"
#include "core/call/wait.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/sock/memory.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/finish.h"
#include "core/transfer/half.h"
#include "core/transfer/lookup.h"
#include "core/transfer/op.h"
#include "core/transfer/progress.h"
#include "core/transfer/submit.h"

bool exi_flow_error_waits(int fd, enum exi_dir dir)
{
	struct exi_sock *sk = exi_sock_find(fd);
	struct exi_shared *sh;
	bool ret;

	if (!sk || !exi_sock_lock(sk, fd, dir, &sh))
		return false;
	ret = exi_half_error_waits_locked(sk, dir);
	exi_half_unlock(&sh->half[dir]);
	return ret;
}

void exi_flow_broken(bool quiet)
{
	exi_sock_outlive();
	if (!quiet)
		raise(SIGPIPE);
}

int exi_flow_error(int fd)
{
	struct exi_sock *sk = exi_sock_find(fd);

	return sk && (sk->sh->half[EXI_RX].mode != EXI_MODE_RING ||
		      atomic_load(&sk->sh->gone))
		       ? exi_half_take_so_error(fd)
		       : 0;
}

/* What a process knows of a connection that it shared, of which it is the only
 * holder now: nothing yet. *was is the word.
 *
 * Pairing: a fork counts the child, then changes the word; this has read the
 * word, then reads the count, then exchanges the word. All accesses are in one
 * order: if the word is the fork's, the count has the child; if it is older,
 * the exchange fails, or comes first and the fork marks it again. */
static void own_again(struct exi_sock *sk, uint32_t *was)
{
	uint32_t ask = *was & ~(uint32_t)EXI_BLOCKING_KNOWN;

	if (exi_holders_one(&sk->sh->holders) &&
	    atomic_compare_exchange_strong(&sk->blocking, was, ask))
		*was = ask;
}

bool exi_flow_nonblocking(struct exi_sock *sk, int fd, int flags)
{
	uint32_t was =
		atomic_load_explicit(&sk->blocking, memory_order_relaxed);
	uint32_t known = was & EXI_BLOCKING_MASK;
	int fl;

	if (flags & MSG_DONTWAIT)
		return true;
	if (known == EXI_BLOCKING_YES || known == EXI_BLOCKING_NO)
		return known == EXI_BLOCKING_NO;
	if (known == EXI_BLOCKING_SHARED) {
		was = atomic_load(&sk->blocking);
		own_again(sk, &was);
		known = was & EXI_BLOCKING_MASK;
	}
	fl = fcntl(fd, F_GETFL);
	/* Unless a change came meanwhile. */
	if (fl >= 0 && exi_closes_seen && known == EXI_BLOCKING_ASK)
		atomic_compare_exchange_strong(
			&sk->blocking, &was,
			was | (fl & O_NONBLOCK ? EXI_BLOCKING_NO
					       : EXI_BLOCKING_YES));
	return fl >= 0 && (fl & O_NONBLOCK);
}

/* The time at which the socket's own time-out ends the wait; 0: never. */
uint64_t exi_flow_deadline(struct exi_sock *sk, int fd, enum exi_dir dir)
{
	int option = dir == EXI_RX ? SO_RCVTIMEO : SO_SNDTIMEO;
	uint32_t was = atomic_load(&sk->blocking),
		 forever = EXI_BLOCKING_FOREVER << dir;
	bool known = exi_closes_seen &&
		     (was & EXI_BLOCKING_MASK) != EXI_BLOCKING_SHARED;
	struct timeval tv = { 0 };
	socklen_t len = sizeof(tv);

	if (exi_unlikely(atomic_load(&sk->sh->no_time) & 1u << dir))
		return 1;
	if ((known && was & forever) ||
	    getsockopt(fd, SOL_SOCKET, option, &tv, &len) < 0)
		return 0;
	if (tv.tv_sec == 0 && tv.tv_usec == 0) {
		/* Unless a change came meanwhile. */
		if (known)
			atomic_compare_exchange_strong(&sk->blocking, &was,
						       was | forever);
		return 0;
	}
	return exi_now_ns() + exi_timeval_ns(&tv);
}

static void begin_waiting(struct exi_call *c)
{
	if (!c->begun)
		exi_signals_begin();
	c->begun = true;
}

/* After a failed spin the call sleeps: it arms for the sleep while it holds the
 * lock of the attempt. */
void exi_call_pause_locked(struct exi_call *c)
{
	EXI_LOCKED(&c->sk->sh->half[c->dir].lock);
	if (c->spun)
		exi_wait_arm_locked(c);
	if (c->spun || !exi_patience_may_wait(c->sk, c->flags))
		return;
	begin_waiting(c);
	exi_look_begin_locked(c);
}

/* A sender that waits for room publishes what it has read, for which the peer
 * may wait, as when both send much before they read. If another thread has the
 * lock, it reads, and will publish that. */
static void tell_taken(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	if (!exi_trylock(&rx->lock))
		return;
	if (rx->mode == EXI_MODE_RING && sk->fab)
		sk->fab->rops->full(sk->fab);
	exi_unlock(&rx->lock);
}

static int may_not_wait(const struct exi_call *c)
{
	return c->dir == EXI_TX && exi_flow_no_room &&
			       exi_flow_no_room(c->sk, c->fd)
		       ? 0
		       : -EAGAIN;
}

/* Finds out whether the call may wait, and until when. */
static bool may_sleep(struct exi_call *c)
{
	struct exi_sock *sk = c->sk;

	if (c->known)
		return true;
	c->known = !exi_flow_nonblocking(sk, c->fd, c->flags);
	if (atomic_load(&sk->blocks) != c->known)
		atomic_store(&sk->blocks, c->known);
	if (c->known)
		c->deadline = exi_flow_deadline(sk, c->fd, c->dir);
	return c->known;
}

int exi_call_wait(struct exi_call *c, size_t seen)
{
	int ret;

	if (c->flags & MSG_DONTWAIT)
		return may_not_wait(c);
	if (c->look.on) {
		exi_look_spin(c);
		c->spun = !c->look.hit;
		if (!exi_closes_seen) /* a spinning call counts as use */
			exi_lookup_note_use(c->sk);
		if (c->spun) /* the next attempt is the last before a sleep */
			may_sleep(c);
		return 0;
	}
	c->spun = false;
	if (!may_sleep(c))
		return may_not_wait(c);
	begin_waiting(c);
	if (c->dir == EXI_TX)
		tell_taken(c->sk);
	if (exi_signals_came(!c->deadline))
		ret = -EINTR;
	else
		ret = seen ? exi_wait_more(c, seen) : exi_wait(c);
	if (ret)
		exi_wait_quit(c);
	return ret == -ETIMEDOUT ? -EAGAIN : ret;
}

ssize_t exi_patience_in_turn(int fd, int type, void *buf, size_t len, int flags)
{
	struct exi_op op = { .type = type,
			     .fd = fd,
			     .buf = buf,
			     .run = len,
			     .len = len,
			     .flags = flags };
	enum exi_dir dir = exi_op_dir(&op);
	struct exi_word w = { .addr = (const uint32_t *)&op.finished };
	struct exi_sock *sk = exi_sock_find(fd);
	int ret;

	if (sk && exi_flow_nonblocking(sk, fd, flags))
		return -EAGAIN;
	exi_list_init(&op.node);
	ret = exi_flow_submit(&op);
	if (ret)
		return ret;
	while (!atomic_load_explicit(&op.finished, memory_order_acquire)) {
		ret = exi_futex_wait(&w, 1, NULL);
		if (ret == -EINTR && sk) {
			struct exi_half *h = &sk->sh->half[dir];

			exi_lock(&h->lock);
			if (!op.finished && sk->posted[dir] != &op)
				exi_flow_finish_locked(sk, dir, &op, EINTR);
			exi_unlock(&h->lock);
		}
	}
	return op.err ? -op.err : (ssize_t)op.done;
}

void exi_patience_keep_error(struct exi_call *c, int err)
{
	struct exi_shared *sh;

	if (err == EAGAIN || err == EINTR || err == EBADF ||
	    !exi_call_lock(c, &sh))
		return;
	sh->half[c->dir].err = err;
	exi_half_unlock(&sh->half[c->dir]);
}
