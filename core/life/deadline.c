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

/* Guards what follows, and the deadlines of sockets, which change under their
 * link locks, too. */
static pthread_mutex_t deadlines_lock = PTHREAD_MUTEX_INITIALIZER;
static struct exi_list deadlines = EXI_LIST_INIT(deadlines);
static uint64_t polls_at; /* the earliest of polls; 0: none was noted */

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
		*ret = 1; /* past, and not: none */
	return exi_service_start();
}

/* Whether it is sooner than what was known. */
static bool sooner(uint64_t *at, uint64_t until)
{
	if (*at && *at <= until)
		return false;
	*at = until;
	return true;
}

static bool note_locked(int fd, uint64_t until)
{
	struct exi_sock *sk;
	bool first, ret = false;

	EXI_MUTEX_LOCKED(&deadlines_lock);
	if (fd < 0)
		return sooner(&polls_at, until);
	sk = exi_sock_find(fd);
	if (!sk)
		return false;
	exi_lock(&sk->link_lock);
	if (exi_sock_is(sk, fd) && !sk->closing) {
		first = !sk->deadline.at;
		ret = sooner(&sk->deadline.at, until);
		if (first)
			exi_list_add_tail(&deadlines, &sk->deadline.node);
	}
	exi_unlock(&sk->link_lock);
	return ret;
}

/* The operation is in its list already: a look at the list that did not find it
 * came before this, which is then found by the next. */
void exi_deadline_note(int fd, uint64_t until)
{
	bool news;

	if (exi_likely(!until))
		return;
	pthread_mutex_lock(&deadlines_lock);
	news = note_locked(fd, until);
	pthread_mutex_unlock(&deadlines_lock);
	if (news)
		exi_service_reschedule();
}

static void set_locked(struct exi_sock *sk, uint64_t at)
{
	EXI_MUTEX_LOCKED(&deadlines_lock);
	if (!at)
		exi_list_del(&sk->deadline.node);
	exi_lock(&sk->link_lock);
	sk->deadline.at = at;
	exi_unlock(&sk->link_lock);
}

/* Cancels what is late on a socket; when the next is, UINT64_MAX: none. */
static uint64_t expire(struct exi_sock *sk, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	exi_flow_expire(sk, EXI_RX, now, &next);
	exi_flow_expire(sk, EXI_TX, now, &next);
	exi_lifecycle_expire(sk, now, &next);
	return next;
}

/* Without the lock, which is none that polls' own comes after: the time is
 * noted anew. */
static uint64_t polls_tick(uint64_t now)
{
	uint64_t next = UINT64_MAX, ret;
	bool due;

	pthread_mutex_lock(&deadlines_lock);
	due = polls_at && polls_at <= now;
	if (due)
		polls_at = 0;
	pthread_mutex_unlock(&deadlines_lock);
	if (due)
		exi_poll_expire(now, &next);
	pthread_mutex_lock(&deadlines_lock);
	if (next != UINT64_MAX)
		sooner(&polls_at, next);
	ret = polls_at ? polls_at : UINT64_MAX;
	pthread_mutex_unlock(&deadlines_lock);
	return ret;
}

uint64_t exi_deadline_tick(uint64_t now)
{
	uint64_t ret = polls_tick(now), next;
	struct exi_list *pos, *tmp;

	pthread_mutex_lock(&deadlines_lock);
	exi_list_for_each_safe (pos, tmp, &deadlines) {
		struct exi_sock *sk =
			exi_container(pos, struct exi_sock, deadline.node);

		next = sk->deadline.at;
		if (next <= now) {
			next = expire(sk, now);
			set_locked(sk, next == UINT64_MAX ? 0 : next);
		}
		if (next < ret)
			ret = next;
	}
	pthread_mutex_unlock(&deadlines_lock);
	return ret;
}

/* With the lock under which it is noted: who noted before is seen, who comes
 * after sees that the socket closes. */
void exi_deadline_drop(struct exi_sock *sk)
{
	bool noted;

	exi_lock(&sk->link_lock);
	noted = sk->deadline.at;
	exi_unlock(&sk->link_lock);
	if (!noted)
		return;
	pthread_mutex_lock(&deadlines_lock);
	if (sk->deadline.at) /* the last may just have passed */
		set_locked(sk, 0);
	pthread_mutex_unlock(&deadlines_lock);
}

void exi_deadline_forked(void)
{
	pthread_mutex_init(&deadlines_lock, NULL);
	exi_list_init(&deadlines);
	polls_at = 0;
}
