/* SPDX-License-Identifier: BSD-2-Clause */
/* The watch over directions for which no thread is seen to wait, and the search
 * for waits that are not seen. */
#include "core/call/unseen.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/select.h>
#include <time.h>

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/downgrade.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/link/ending.h"
#include "core/meet/surroundings.h"
#include "core/meet/unseen_search.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/sock/watch.h"
#include "core/transfer/progress.h"
#include "core/transfer/switch.h"

#define IDLE_TICKS 3
#define TICKS_MAX  8
/* For bytes for which no thread was ever seen to wait, while they are
 * unread. */
#define FORGOTTEN_TICKS 30
/* The watch, and sends that find no room, use at most this part of a CPU for
 * searches. Time without the CPU does not count: on a busy host the next search
 * would be a minute late. */
#define WATCH_PART 32
#define SEND_PART  256

static int idle_ticks;		    /* of the service */
static uint64_t search_at;	    /* of the service */
static _Atomic uint64_t no_room_at; /* of sends: the next search */

/* The state in which a look finds a direction. */
enum glance {
	ATTENDED, /* or its doorbell would report all that can come */
	IN_USE,
	NEGLECTED, /* unread bytes since the last look */
};

static enum glance glance_locked(struct exi_sock *sk, struct exi_half *h)
{
	bool moved = sk->glanced != h->bytes;

	EXI_LOCKED(&h->lock);
	/* The kernel reports a peer that is gone. */
	if (h->mode != EXI_MODE_RING || !sk->fab || h->ended || h->broken ||
	    atomic_load(&sk->sh->gone) || atomic_load(&sk->sh->rx_fin) ||
	    atomic_load(&sk->sh->hold_here))
		return ATTENDED;
	sk->glanced = h->bytes;
	if (moved)
		sk->neglected = 0;
	/* A thread that looks for a moment before it sleeps sees bytes that
	 * come. */
	if (atomic_load(&sk->lookers[EXI_RX]) >
		    exi_sock_idlers_locked(sk, EXI_RX) ||
	    atomic_load(&sk->n_ops[EXI_RX]))
		return moved ? IN_USE : ATTENDED;
	if (moved)
		return IN_USE;
	if (sk->fab->rops->ready(sk->fab, EXI_RX))
		return NEGLECTED;
	sk->neglected = 0;
	if (!atomic_load(&sk->guarded)) {
		/* Before the request: the wake-up may come at once. */
		atomic_store(&sk->guarded, true);
		if (!exi_flow_arm_locked(sk, EXI_RX)) {
			/* It came just now, perhaps before the request. */
			atomic_store(&sk->guarded, false);
			return IN_USE;
		}
	}
	return ATTENDED;
}

struct round {
	struct exi_unseen_suspects s;
	bool searches;
	bool active;
};

/* Whether a search for it is due: after a whole tick, then less and less
 * often. */
static bool search_due(struct exi_sock *sk)
{
	uint32_t n = ++sk->neglected;

	return n < TICKS_MAX ? n > 1 && (n & (n - 1)) == 0 : n % TICKS_MAX == 0;
}

/* Whether no thread was ever seen to wait for its bytes, which are unread for
 * long; the reason to leave. */
static int forgotten_locked(const struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	if (sk->awaited || sk->neglected < FORGOTTEN_TICKS)
		return EXS_X_REASON_NONE;
	return exi_sock_idlers_locked(sk, EXI_RX)
		       ? EXS_X_REASON_UNSEEN_WAIT | EXI_UNTIL_SEEN
		       : EXS_X_REASON_UNSEEN_WAIT;
}

static void glance(struct exi_sock *sk, void *arg)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *h = &sh->half[EXI_RX];
	int fd = atomic_load(&sk->fd);
	struct round *r = arg;
	enum glance g = IN_USE;
	int forgotten = EXS_X_REASON_NONE;
	uint32_t generation = 0;

	if (!exi_sock_met(sk) || !exi_sock_used_here(sk))
		return;
	/* If a thread has the lock, it moves bytes. Non-atomic members are read
	 * while the connection is still this one: its memory is reused for
	 * another only after a close, which takes the lock. */
	if (exi_trylock(&h->lock)) {
		if (exi_sock_is(sk, fd) && exi_sock_shared(sk) == sh) {
			g = sk->adopted ? glance_locked(sk, h) : ATTENDED;
			forgotten = forgotten_locked(sk);
			generation = atomic_load(&sk->generation);
		}
		exi_half_unlock(h);
	}
	r->active = r->active || g != ATTENDED;
	if (g != NEGLECTED)
		return;
	if (forgotten)
		exi_switch_leave_of(sk, generation, forgotten);
	else if (r->searches && search_due(sk) &&
		 !exi_unseen_search_add(&r->s, sk, generation, fd))
		sk->neglected--; /* in the next one */
}

static uint64_t cpu_ns(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return exi_timespec_ns(&t);
}

void exi_unseen_search(struct exi_unseen_suspects *s)
{
	uint64_t began = cpu_ns();

	exi_surroundings_each(exi_unseen_search_descriptor, s);
	exi_unseen_search_threads(s);
	for (int i = 0; i < s->n; i++)
		if (s->s[i].reason)
			exi_switch_leave_of(s->s[i].sk, s->s[i].generation,
					    s->s[i].reason);
	search_at = exi_now_ns() + (cpu_ns() - began) * WATCH_PART;
}

void exi_unseen_tick(void)
{
	struct round r = { .searches = exi_now_ns() >= search_at };

	/* Before the last look, so that any change after it restarts the
	 * watch. */
	if (idle_ticks == IDLE_TICKS - 1) {
		atomic_store(&exi_watch_due, UINT64_MAX);
		atomic_store(&exi_unseen_watching, false);
	}
	exi_sock_each(glance, &r);
	if (r.s.n)
		exi_unseen_search(&r.s);
	idle_ticks = r.active ? 0 : idle_ticks + 1;
	if (idle_ticks == IDLE_TICKS) {
		idle_ticks = 0;
		return;
	}
	atomic_store(&exi_unseen_watching, true);
	atomic_store(&exi_watch_due, exi_now_ns() + EXI_WATCH_TICK_NS);
}

/* --- sends -------------------------------------------------------------- */

/* Whether a thread is seen to wait for room, or does not need to be. */
static bool room_awaited(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	bool ret;

	if (!atomic_load(&sk->lookers[EXI_TX]))
		return false;
	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return true;
	ret = atomic_load(&sk->lookers[EXI_TX]) >
	      exi_sock_idlers_locked(sk, EXI_TX);
	exi_half_unlock(&sh->half[EXI_TX]);
	return ret;
}

/* exi_flow_no_room: if a wait is found that is not seen, the connection first
 * goes to TCP, so that the kernel returns -EAGAIN, and reports room. */
static bool no_room(struct exi_sock *sk, int fd)
{
	struct exi_half *h = &exi_sock_shared(sk)->half[EXI_TX];
	struct exi_unseen_suspects s = { .n = 0 };
	uint32_t generation = atomic_load(&sk->generation);
	uint64_t began;
	int err;

	if (h->mode != EXI_MODE_RING || !sk->adopted || room_awaited(sk, fd))
		return false;
	if (exi_now_ns() < atomic_load(&no_room_at) ||
	    !exi_unseen_search_add(&s, sk, generation, fd))
		return false;
	began = cpu_ns();
	atomic_store(&no_room_at, UINT64_MAX);
	exi_surroundings_each(exi_unseen_search_descriptor, &s);
	atomic_store(&no_room_at,
		     s.s[0].reason ? 0
				   : exi_now_ns() + EXI_WATCH_TICK_NS +
					     (cpu_ns() - began) * SEND_PART);
	if (!s.s[0].reason)
		return false;
	err = exi_switch_down(sk, fd, s.s[0].reason, NULL);
	if (err == -ETIMEDOUT && !exi_link_part(sk, s.s[0].generation))
		exi_link_unanswered(sk, s.s[0].generation);
	return err == 0 || err == -ETIMEDOUT;
}

/* --- the process -------------------------------------------------------- */

void exi_unseen_begin(bool (*knows)(int epfd, bool awaited))
{
	exi_unseen_search_shim_knows = knows;
	exi_flow_no_room = no_room;
	atomic_store(&exi_unseen_watching, false);
}

void exi_unseen_forked(void)
{
	exi_surroundings_forked();
	atomic_store(&exi_watch_due, UINT64_MAX);
	idle_ticks = 0;
	search_at = 0;
	atomic_store(&no_room_at, 0);
	if (exi_unseen_search_shim_knows)
		atomic_store(&exi_unseen_watching, false);
}
