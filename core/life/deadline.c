/* SPDX-License-Identifier: BSD-2-Clause */
/* Deadlines of operations. */
#include "core/life/deadline.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/poll.h"
#include "core/fabric/provider.h"
#include "core/life/cancel.h"
#include "core/meet/find.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/transfer/cancel.h"

/* Guards the following and the deadlines of sockets. Innermost, because it is
 * taken with other sockets' locks held. */
static pthread_mutex_t deadlines_lock = PTHREAD_MUTEX_INITIALIZER;
static struct exi_list deadlines = EXI_LIST_INIT(deadlines);
static uint64_t polls_at; /* the earliest of polls; 0: none known */

int exi_deadline_read(const struct timespec *until, uint64_t *ret)
{
	if (exi_likely(!until)) {
		*ret = 0;
		return 0;
	}
	if (!exi_timespec_valid(until))
		return -EINVAL;
	*ret = exi_timespec_ns(until);
	if (!*ret)
		*ret = 1; /* past; 0 would be none */
	return exi_service_start();
}

/* Notes a poll's deadline; returns whether it is sooner than the known one. */
static bool note_poll(uint64_t until)
{
	bool ret;

	exi_mutex_lock(&deadlines_lock);
	ret = !polls_at || until < polls_at;
	if (ret)
		polls_at = until;
	exi_mutex_unlock(&deadlines_lock);
	return ret;
}

/* The same for a socket of this generation. A closing socket gets none: either
 * it began to close earlier, and this sees that, or later, and
 * exi_deadline_drop() finds this deadline. */
static bool note(struct exi_sock *sk, uint32_t generation, uint64_t until)
{
	uint64_t was;
	bool ret = false;

	exi_lock(&sk->link_lock);
	if (exi_sock_lasts(sk, generation) && !sk->closing) {
		exi_mutex_lock(&deadlines_lock);
		was = atomic_load(&sk->deadline.at);
		ret = !was || until < was;
		if (ret)
			atomic_store(&sk->deadline.at, until);
		if (!was)
			exi_list_add_tail(&deadlines, &sk->deadline.node);
		exi_mutex_unlock(&deadlines_lock);
	}
	exi_unlock(&sk->link_lock);
	return ret;
}

/* The operation is in its list already: a look at the list that did not find it
 * came before this deadline, which the next look finds. */
void exi_deadline_note(int fd, uint64_t until)
{
	struct exi_sock *sk;
	uint32_t generation;
	bool news;

	if (exi_likely(!until))
		return;
	if (fd < 0) {
		news = note_poll(until);
	} else {
		sk = exi_sock_find(fd);
		generation = sk ? atomic_load(&sk->generation) : 0;
		news = sk && exi_sock_is(sk, fd) && note(sk, generation, until);
	}
	if (news)
		exi_service_reschedule();
}

/* Cancels late operations of a socket; returns its next deadline, or
 * UINT64_MAX. */
static uint64_t expire(struct exi_sock *sk, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	exi_flow_expire(sk, EXI_RX, now, &next);
	exi_flow_expire(sk, EXI_TX, now, &next);
	exi_lifecycle_expire(sk, now, &next);
	return next;
}

/* Without the lock, as for sockets: the next deadline is noted again. */
static void polls_tick(uint64_t now)
{
	uint64_t next = UINT64_MAX;
	bool due;

	exi_mutex_lock(&deadlines_lock);
	due = polls_at && polls_at <= now;
	if (due)
		polls_at = 0;
	exi_mutex_unlock(&deadlines_lock);
	if (due)
		exi_poll_expire(now, &next);
	if (next != UINT64_MAX)
		note_poll(next);
}

static void forget_locked(struct exi_sock *sk)
{
	EXI_MUTEX_LOCKED(&deadlines_lock);
	exi_list_del(&sk->deadline.node);
	atomic_store(&sk->deadline.at, 0);
}

/* Removes a socket that is due. Null: there is none, and *ret_next is the next
 * deadline. */
static struct exi_sock *take_due(uint64_t now, uint64_t *ret_next,
				 uint32_t *ret_generation)
{
	struct exi_sock *ret = NULL;
	struct exi_list *pos, *tmp;
	uint64_t at;

	exi_mutex_lock(&deadlines_lock);
	*ret_next = polls_at ? polls_at : UINT64_MAX;
	exi_list_for_each_safe (pos, tmp, &deadlines) {
		struct exi_sock *sk =
			exi_container(pos, struct exi_sock, deadline.node);

		at = atomic_load(&sk->deadline.at);
		if (at <= now) {
			forget_locked(sk);
			*ret_generation = atomic_load(&sk->generation);
			ret = sk;
			break;
		}
		if (at < *ret_next)
			*ret_next = at;
	}
	exi_mutex_unlock(&deadlines_lock);
	return ret;
}

/* How many sockets a tick looks at: the service has other work. */
#define SOCKETS 64

/* A deadline noted for a socket after its removal is for the next look. A
 * socket that was closed or reused meanwhile only gets its late operations
 * cancelled, too. */
uint64_t exi_deadline_tick(uint64_t now)
{
	struct exi_sock *sk;
	uint32_t generation;
	uint64_t ret, next;

	polls_tick(now);
	for (int i = 0; i < SOCKETS; i++) {
		sk = take_due(now, &ret, &generation);
		if (!sk)
			return ret;
		next = expire(sk, now);
		if (next != UINT64_MAX)
			note(sk, generation, next > now ? next : now + 1);
	}
	return now + 1;
}

void exi_deadline_drop(struct exi_sock *sk)
{
	if (!atomic_load(&sk->deadline.at))
		return;
	exi_mutex_lock(&deadlines_lock);
	if (atomic_load(&sk->deadline.at)) /* it may just have passed */
		forget_locked(sk);
	exi_mutex_unlock(&deadlines_lock);
}

void exi_deadline_forked(void)
{
	pthread_mutex_init(&deadlines_lock, NULL);
	exi_list_init(&deadlines);
	polls_at = 0;
}
