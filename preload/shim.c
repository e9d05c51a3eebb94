/* SPDX-License-Identifier: BSD-2-Clause */
/* The shim's life in a process: its start, how connections and the process
 * leave the library, and how descriptors are given back. */
#include "core/base/cancel.h"
#include "core/base/fds.h"
#include "core/base/track.h"
#include "core/base/util.h"
#include "core/call/downgrade.h"
#include "core/call/feed.h"
#include "core/call/loan.h"
#include "core/fabric/provider.h"
#include "core/life/core.h"
#include "core/life/open.h"
#include "core/life/plain.h"
#include "core/link/control.h"
#include "core/link/ending.h"
#include "core/meet/candidate.h"
#include "core/meet/find.h"
#include "core/meet/latent.h"
#include "core/sock/memory.h"
#include "core/sock/names.h"
#include "core/sock/service.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/transfer/switch.h"
#include "preload/handed.h"
#include "preload/shim.h"

#include <pthread.h>
#include <sys/exs_ext.h>

/* The library recognizes the shim by this symbol. */
extern const char exs_preload;
HOOK const char exs_preload = 1;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	shim_epoll_forked();
	shim_spawn_forked();
	shim_uring_forked();
	shim_report_forked();
}

void shim_fork_begins(void)
{
	exi_core_fork_begins();
}

long shim_forked(long pid)
{
	int saved = errno;

	exi_core_forked(pid == 0);
	if (pid == 0)
		forked();
	exi_core_fork_over(pid);
	errno = saved;
	return pid;
}

static void start(void)
{
	bool works;

	exi_track = shim_near.track;
	shim_signals_begin();
	shim_epoll_init();
	shim_uring_init();
	exi_closes_seen = true;
	exi_zerocopy_served = true;
	/* After a failure, which is reported, every call goes to the C
	 * library. */
	works = exi_core_init() == 0;
	if (works) {
		shim_report_init();
		atomic_store(&exi_latent_on, true);
		pthread_atfork(NULL, NULL, forked);
	}
	shim_handed_start(works);
}

_Atomic bool shim_gone, shim_leaving;

bool shim_ready(void)
{
	if (exi_unlikely(!exi_core_ready()))
		pthread_once(&once, start);
	return exi_core_ready() &&
	       !atomic_load_explicit(&shim_gone, memory_order_relaxed);
}

__attribute__((constructor)) static void load(void)
{
	shim_ready();
}

/* Whether the kernel serves calls that move bytes at fd. sk is the connection
 * found at the number, or null. */
bool shim_settled(struct exi_sock *sk, int fd)
{
	uint32_t was;

	if (sk)
		return exi_sock_settle(sk, fd);
	/* The word is read before the looks, see core/base/track.h. */
	was = exi_track_at(fd);
	if (was && (uint32_t)fd < exi_table.size &&
	    !atomic_load(&exi_table.socks[fd]) && !exi_fd_ours(fd) &&
	    !shim_epoll_known(fd))
		exi_track_clear(fd, was, EXI_TRACK_BYTES | EXI_TRACK_ANY);
	return true;
}

void shim_plain_of(int fd, int reason, struct exi_patience *p)
{
	EXI_CANCEL_OFF(false);
	struct exi_sock *sk = shim_sock(fd);
	uint32_t generation;

	if (!sk)
		return;
	generation = atomic_load(&sk->generation);
	exi_sock_inherit(sk);
	exi_loan_cancel(sk); /* it would wait for a loan in vain */
	/* Bytes that stay in the rings would be a gap in the stream. */
	if (exi_go_plain(fd, reason, p)) {
		exi_link_unanswered(sk, generation);
	} else {
		exi_switch_part(sk, fd, generation);
		exi_link_over(sk, generation);
	}
	/* Another thread closed it meanwhile. */
	if (!exi_sock_lasts(sk, generation))
		return;
	exi_holders_stray(&exi_sock_shared(sk)->holders);
	shim_report_connection(fd);
	shim_epoll_forget(sk, fd);
	sk->base->unsign(fd, atomic_load(&exi_sock_shared(sk)->size));
	if (!sk->cookie) /* for calls that wait, see left_us() */
		exi_sock_mark(sk, fd);
	exi_sock_forget(sk, fd, generation);
}

void shim_plain(int fd, int reason)
{
	shim_plain_of(fd, reason, NULL);
	exi_feed_rest();
}

struct leaving {
	int reason;
	int (*pick)(struct exi_sock *sk, void *arg);
	void *arg;
	struct exi_patience p;
};

void shim_tell(int fd, int reason)
{
	EXI_CANCEL_OFF(false);
	struct exi_sock *sk = shim_sock(fd);

	if (!sk)
		return;
	exi_sock_inherit(sk);
	exi_loan_cancel(sk); /* its memory could not be given back */
	exi_tell_plain(fd, reason);
}

static void tell_one(struct exi_sock *sk, void *arg)
{
	const struct leaving *l = arg;
	int fd = l->pick(sk, l->arg);

	if (fd >= 0)
		shim_tell(fd, l->reason);
}

static void leave_one(struct exi_sock *sk, void *arg)
{
	struct leaving *l = arg;
	int fd = l->pick(sk, l->arg);

	if (fd >= 0)
		shim_plain_of(fd, l->reason, &l->p);
}

void shim_plain_each(int reason, int (*pick)(struct exi_sock *sk, void *arg),
		     void *arg)
{
	EXI_CANCEL_OFF(false);
	struct leaving l = { .reason = reason, .pick = pick, .arg = arg };

	exi_sock_each(tell_one, &l);
	exi_sock_each(leave_one, &l);
	exi_feed_rest();
}

static int any_name(struct exi_sock *sk, void *arg)
{
	return exi_name_next(sk, 0);
}

/* Listeners, and what is not connected yet. */
static void forget_one(struct exi_sock *sk, void *arg)
{
	uint32_t generation = atomic_load(&sk->generation);
	int fd = exi_name_next(sk, 0);

	if (fd < 0 || exi_sock_peek(fd) != sk)
		return;
	shim_epoll_forget(sk, fd);
	exi_sock_forget(sk, fd, generation);
}

static void leave_all(int reason)
{
	shim_plain_each(reason, any_name, NULL);
	exi_sock_each(forget_one, NULL);
}

void shim_leave(int reason)
{
	EXI_CANCEL_OFF(false);

	if (!shim_ready())
		return;
	atomic_store(&shim_leaving, true);
	atomic_store(&exi_latent_on, false);
	exi_latent_promote_all();
	leave_all(reason);
	shim_report();
	atomic_store(&shim_gone, true);
	/* What other threads began meanwhile. */
	exi_latent_promote_all();
	exi_latent_forget_all();
	leave_all(reason);
	shim_epoll_leave();
	exi_service_stop();
}

void shim_return(void)
{
	atomic_store(&shim_gone, false);
	atomic_store(&shim_leaving, false);
	atomic_store(&exi_latent_on, true);
}

#define RECLAIM 16 /* connections that go back to TCP at a time */

/* How long a call that finds no free number waits for peers: running peers
 * answer within this time, and silent ones cost no more. */
#define ANSWER_NS 50000000u
#define NAP_NS	  200000

struct reclaim {
	int n;		/* given back, or on their way */
	bool used;	/* also connections used since the last time */
	bool under_way; /* a peer has yet to answer */
};

static bool is_on_its_way(struct exi_sock *sk)
{
	return atomic_load(&exi_sock_shared(sk)->hold_here);
}

static void reclaim_one(struct exi_sock *sk, void *arg)
{
	const struct exi_half *h = exi_sock_shared(sk)->half;
	int fd = atomic_load(&sk->fd);
	struct reclaim *r = arg;
	uint64_t moved;
	bool idle;

	if (r->n >= RECLAIM || fd < 0 || !shim_sock(fd) ||
	    exi_ready_bell(sk, fd) < 0)
		return;
	if (is_on_its_way(sk)) {
		r->under_way = true;
		r->n += !r->used;
		return;
	}
	moved = __atomic_load_n(&h[EXI_RX].bytes, __ATOMIC_RELAXED) +
		__atomic_load_n(&h[EXI_TX].bytes, __ATOMIC_RELAXED);
	idle = sk->seen == moved;
	sk->seen = moved;
	if (!idle && !r->used)
		return;
	exi_sock_inherit(sk);
	exi_loan_cancel(sk);
	if (exi_link_leave(sk, EXS_X_REASON_DESCRIPTORS))
		return;
	r->under_way = true;
	r->n++;
}

/* Gives descriptors back; a connection whose peer has yet to answer gives its
 * own back later. */
static struct reclaim give_back(bool used)
{
	struct reclaim r = { .used = used };
	int saved = errno;

	r.n = exi_link_reclaim();
	if (!r.n)
		exi_sock_each(reclaim_one, &r);
	r.used = true;
	if (!r.n && !used)
		exi_sock_each(reclaim_one, &r);
	errno = saved;
	return r;
}

bool shim_reclaim(void)
{
	EXI_CANCEL_OFF(false);
	const struct timespec nap = { .tv_nsec = NAP_NS };
	unsigned int kept = exi_fd_kept();
	uint64_t until = exi_now_ns() + ANSWER_NS;
	int saved = errno;
	bool waits;

	exi_fds_let_go();
	waits = give_back(false).under_way;
	/* The service thread keeps descriptors that become free, for calls like
	 * this one. */
	while (waits && exi_fd_kept() >= kept && exi_now_ns() < until) {
		nanosleep(&nap, NULL);
		exi_fds_let_go();
	}
	/* The peers that were asked are silent: takes descriptors from
	 * connections whose peers answer. */
	if (waits && exi_fd_kept() >= kept)
		give_back(true);
	errno = saved;
	return exi_fd_kept() < kept;
}

void shim_room(int fd)
{
	/* The number of kept descriptors when there was nothing to give
	 * back. */
	static _Atomic unsigned int needed;
	unsigned int kept = exi_fd_kept();

	if (kept <= atomic_load(&needed) || !exi_fd_scarce(fd) ||
	    give_back(false).n)
		return;
	/* The program may need them for calls that the shim does not see
	 * fail. */
	exi_fds_let_go();
	atomic_store(&needed, exi_fd_kept());
}
