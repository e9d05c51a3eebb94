/* SPDX-License-Identifier: BSD-2-Clause */
/* Events that report transfers which take long. */
#include "core/transfer/timeout.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/transfer/op.h"
#include "core/transfer/queue.h"

/* The longest time that can be asked for, and the shortest that is kept. */
#define SECONDS_MAX INT32_MAX
#define SHORTEST_NS 1000000u

/* Guards the list, and the members that a direction's lock does not guard;
 * comes before that lock in the order. */
static pthread_mutex_t timeouts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct exi_list timeouts = EXI_LIST_INIT(timeouts);

/* Off, if it is there. */
static void clear_locked(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &exi_sock_shared(sk)->half[dir];
	struct exi_timeout *t;

	EXI_MUTEX_LOCKED(&timeouts_lock);
	exi_lock(&h->lock);
	t = sk->timeout[dir];
	sk->timeout[dir] = NULL;
	exi_unlock(&h->lock);
	if (!t)
		return;
	exi_list_del(&t->node);
	exi_queue_let_go(t->op);
	free(t);
}

static int check(const exs_timeout_t *t)
{
	const struct timeval *tv = &t->exs_to_time;

	return t->exs_to_flags & ~EXS_TIMEOUT_ONCE || tv->tv_sec < 0 ||
			       tv->tv_sec > SECONDS_MAX || tv->tv_usec < 0 ||
			       tv->tv_usec >= 1000000
		       ? -EINVAL
		       : 0;
}

static int make(const exs_timeout_t *asked, int fd, enum exi_dir dir,
		struct exi_timeout **ret)
{
	struct exi_timeout *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	err = exi_queue_keep(asked->exs_to_queue, &t->op);
	if (err) {
		free(t);
		return err;
	}
	t->op->type = dir == EXI_RX ? EXS_EVT_RECVTIMEOUT : EXS_EVT_SENDTIMEOUT;
	t->op->fd = fd;
	t->op->ahandle = asked->exs_to_ahandle;
	t->asked = *asked;
	t->dir = dir;
	t->ns = exi_timeval_ns(&asked->exs_to_time);
	if (t->ns < SHORTEST_NS)
		t->ns = SHORTEST_NS;
	t->since = exi_now_ns();
	t->look = t->since + t->ns;
	exi_list_init(&t->node);
	*ret = t;
	return 0;
}

int exi_timeout_set(int fd, enum exi_dir dir, const exs_timeout_t *asked)
{
	bool off = asked->exs_to_time.tv_sec == 0 &&
		   asked->exs_to_time.tv_usec == 0;
	struct exi_timeout *t = NULL;
	struct exi_shared *sh;
	struct exi_sock *sk;
	int ret = check(asked);

	if (!ret)
		ret = exi_sock_get(fd, &sk);
	if (!ret && !off)
		ret = exi_service_start();
	if (!ret && !off)
		ret = make(asked, fd, dir, &t);
	if (ret)
		return ret;
	exi_mutex_lock(&timeouts_lock);
	clear_locked(sk, dir);
	ret = -EBADF;
	if (t && exi_sock_lock(sk, fd, dir, &sh)) {
		if (!sk->closing) {
			t->sk = sk;
			sk->timeout[dir] = t;
			exi_list_add_tail(&timeouts, &t->node);
			ret = 0;
		}
		exi_half_unlock(&sh->half[dir]);
	}
	exi_mutex_unlock(&timeouts_lock);
	if (off)
		return 0;
	if (ret) {
		exi_queue_let_go(t->op);
		free(t);
		return ret;
	}
	exi_service_reschedule();
	return 0;
}

int exi_timeout_get(int fd, enum exi_dir dir, exs_timeout_t *ret)
{
	struct exi_shared *sh;
	struct exi_sock *sk;
	int err = exi_sock_get(fd, &sk);

	if (err)
		return err;
	if (!exi_sock_lock(sk, fd, dir, &sh))
		return -EBADF;
	*ret = sk->timeout[dir]
		       ? sk->timeout[dir]->asked
		       : (exs_timeout_t){ .exs_to_queue = EXS_QHANDLE_INVALID };
	exi_half_unlock(&sh->half[dir]);
	return 0;
}

/* Whether operations are pending; a loan does not count. */
static bool pending(const struct exi_list *ops)
{
	const struct exi_list *pos;

	exi_list_for_each (pos, ops)
		if (!exi_container(pos, struct exi_op, node)->holds)
			return true;
	return false;
}

/* Whether the time is over, and begins again; sets when to look next. */
static bool due(struct exi_timeout *t, uint64_t now)
{
	struct exi_half *h = &exi_sock_shared(t->sk)->half[t->dir];
	bool ret;

	exi_lock(&h->lock);
	if (!pending(&t->sk->ops[t->dir]))
		t->since = now;
	ret = now - t->since >= t->ns;
	if (ret)
		t->since = now;
	t->look = t->since + t->ns;
	exi_unlock(&h->lock);
	return ret;
}

uint64_t exi_timeout_tick(uint64_t now)
{
	struct exi_list *pos, *tmp;
	uint64_t ret = UINT64_MAX;

	exi_mutex_lock(&timeouts_lock);
	exi_list_for_each_safe (pos, tmp, &timeouts) {
		struct exi_timeout *t =
			exi_container(pos, struct exi_timeout, node);

		if (t->look <= now && due(t, now)) {
			exi_op_complete(t->op);
			if (t->asked.exs_to_flags & EXS_TIMEOUT_ONCE) {
				clear_locked(t->sk, t->dir);
				continue;
			}
		}
		if (t->look < ret)
			ret = t->look;
	}
	exi_mutex_unlock(&timeouts_lock);
	return ret;
}

/* Read with the lock with which it is set: a time-out set before is seen, and a
 * thread that comes later sees that the socket closes. */
static bool is_set(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &exi_sock_shared(sk)->half[dir];
	bool ret;

	exi_lock(&h->lock);
	ret = sk->timeout[dir];
	exi_unlock(&h->lock);
	return ret;
}

void exi_timeout_drop(struct exi_sock *sk)
{
	if (!is_set(sk, EXI_RX) && !is_set(sk, EXI_TX))
		return;
	exi_mutex_lock(&timeouts_lock);
	clear_locked(sk, EXI_RX);
	clear_locked(sk, EXI_TX);
	exi_mutex_unlock(&timeouts_lock);
}

void exi_timeout_forked(void)
{
	pthread_mutex_init(&timeouts_lock, NULL);
	exi_list_init(&timeouts);
}
