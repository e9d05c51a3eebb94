/* SPDX-License-Identifier: BSD-2-Clause */
/* Waking the threads and processes that wait for a socket. */
#include "core/sock/wake.h"

#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/futex.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/base.h"
#include "core/sock/holders.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/watch.h"

/* Made once, inherited by every descendant. */
static _Atomic int told_fd = -1;

void exi_family_expect(void)
{
	int fd, none = -1;

	if (exi_likely(atomic_load(&told_fd) >= 0))
		return;
	fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (fd < 0)
		return;
	if (atomic_compare_exchange_strong(&told_fd, &none, fd))
		exi_service_watch_told(fd);
	else
		exi_fd_close(fd); /* another thread made one */
}

void exi_family_tell_all(struct exi_sock *sk)
{
	int saved = errno;

	/* The write comes after the change that it reports, and before the look
	 * of the process that it wakes. */
	if (!exi_holders_alone(&sk->sh->holders))
		eventfd_write(atomic_load(&told_fd), 1);
	errno = saved;
}

bool exi_wake_disconnect(struct exi_sock *sk)
{
	int fd = atomic_load(&sk->fd);

	return fd >= 0 && exi_sock_current(sk, fd) && sk->base->disconnect(fd);
}

void exi_link_reset(struct exi_sock *sk, int reason, const char *what)
{
	struct exi_shared *sh = sk->sh;
	enum exi_dir d;

	EXI_LOCKED_ONE(exi_lock_held(&sk->link_lock) ||
		       exi_lock_held(&sh->half[EXI_RX].lock) ||
		       exi_lock_held(&sh->half[EXI_TX].lock));

	exi_error("%s: %s%s; connection reset", EXI_CONN(atomic_load(&sk->fd)),
		  reason == EXS_X_REASON_PROTOCOL
			  ? "the peer violated the protocol: "
			  : "",
		  what);
	for (d = EXI_RX; d <= EXI_TX; d++)
		exi_half_break(&sh->half[d]);
	exi_sock_reason(sk, reason);
	exi_wake_disconnect(sk);
	/* Our service sees the hang-up and cleans up. */
	if (sk->fab && sk->fab->bell >= 0)
		shutdown(sk->fab->bell, SHUT_RDWR);
}

void exi_link_violation(struct exi_sock *sk, const char *what)
{
	exi_link_reset(sk, EXS_X_REASON_PROTOCOL, what);
}

void exi_sock_outlive(void)
{
	uint32_t tid;

	atomic_thread_fence(memory_order_acquire);
	tid = atomic_load(&exi_table_exit_tid);
	while (tid && tid != exi_tid())
		pause();
}

static void ring_locked(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_waiter *w, *next;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	for (w = sk->waiters[dir]; w; w = next) {
		next = w->next;
		w->wake(w);
	}
}

void exi_sock_wake_waiters(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &exi_sock_shared(sk)->half[dir];

	exi_lock(&h->lock);
	ring_locked(sk, dir);
	exi_unlock(&h->lock);
}

/* Pairs with the load before the last look in a waiter: it sees the new state,
 * or its sleep ends at once. */
static void kick_word(struct exi_shared *sh, enum exi_dir dir)
{
	atomic_fetch_add_explicit(&sh->kick[dir], 1, memory_order_seq_cst);
	exi_futex_wake((const uint32_t *)&sh->kick[dir], INT_MAX);
}

void exi_sock_wake_all(struct exi_sock *sk, enum exi_dir dir)
{
	kick_word(exi_sock_shared(sk), dir);
	exi_sock_wake_waiters(sk, dir);
	exi_family_tell(sk);
}

void exi_sock_wake_all_locked(struct exi_sock *sk, enum exi_dir dir)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	kick_word(sk->sh, dir);
	ring_locked(sk, dir);
	exi_family_tell(sk);
}

void exi_sock_wait_locked(struct exi_sock *sk, enum exi_dir dir,
			  struct exi_waiter *w)
{
	EXI_LOCKED(&exi_sock_shared(sk)->half[dir].lock);
	w->idle = false;
	w->next = sk->waiters[dir];
	sk->waiters[dir] = w;
	exi_sock_look_locked(sk, dir, 1);
}

void exi_sock_idle_locked(struct exi_sock *sk, enum exi_dir dir,
			  struct exi_waiter *w)
{
	bool awaited = dir == EXI_RX && sk->awaited;

	EXI_LOCKED(&exi_sock_shared(sk)->half[dir].lock);
	exi_sock_wait_locked(sk, dir, w);
	w->idle = true;
	if (dir == EXI_RX)
		sk->awaited = awaited;
}

uint32_t exi_sock_idlers_locked(const struct exi_sock *sk, enum exi_dir dir)
{
	const struct exi_waiter *w;
	uint32_t ret = 0;

	EXI_LOCKED(&exi_sock_shared(sk)->half[dir].lock);
	for (w = sk->waiters[dir]; w; w = w->next)
		ret += w->idle;
	return ret;
}

void exi_sock_unwait_locked(struct exi_sock *sk, enum exi_dir dir,
			    struct exi_waiter *w)
{
	struct exi_waiter **at = &sk->waiters[dir];

	EXI_LOCKED(&exi_sock_shared(sk)->half[dir].lock);
	while (*at && *at != w)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = w->next;
	exi_sock_look_locked(sk, dir, -1);
	exi_unseen_restart();
}
