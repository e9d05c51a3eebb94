/* SPDX-License-Identifier: BSD-2-Clause */
/* The socket table and the memory of sockets. */
#include "core/sock/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "core/base/config.h"
#include "core/base/track.h"
#include "core/base/ids.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/probe.h"
#include "core/base/proof.h"
#include "core/fabric/provider.h"
#include "core/sock/holders.h"
#include "core/sock/names.h"
#include "core/sock/stats.h"

_Atomic uint32_t exi_table_exit_tid;

struct exi_table exi_table;

_Atomic uint64_t exi_sock_forks;

struct exi_lock exi_table_pool_lock;
struct exi_sock **exi_table_chunks;
_Atomic uint32_t exi_table_n_socks;

int exi_sock_init(void)
{
	uint32_t size = 1u << 16;
	struct rlimit rl;
	void *t, *names, *c;
	int ret = 0;

	exi_lock(&exi_table_pool_lock);
	if (exi_table.socks)
		goto unlock;
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0)
		while (size < rl.rlim_max && size < EXI_TABLE_MAX)
			size *= 2;
	t = mmap(NULL, size * sizeof(*exi_table.socks), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	names = mmap(NULL, size * sizeof(*exi_table.names),
		     PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	c = calloc(EXI_TABLE_CHUNKS_MAX, sizeof(*exi_table_chunks));
	if (t == MAP_FAILED || names == MAP_FAILED || !c) {
		ret = -ENOMEM;
		goto unlock;
	}
	exi_table_chunks = c;
	exi_table.socks = t;
	exi_table.names = names;
	exi_table.size = size;
	exi_stats_init(size);
unlock:
	exi_unlock(&exi_table_pool_lock);
	return ret;
}

struct exi_sock *exi_sock_by_index(uint32_t index)
{
	if (index >=
	    atomic_load_explicit(&exi_table_n_socks, memory_order_acquire))
		return NULL;
	return &exi_table_chunks[index / EXI_TABLE_CHUNK]
				[index % EXI_TABLE_CHUNK];
}

void exi_sock_each(void (*f)(struct exi_sock *sk, void *arg), void *arg)
{
	uint32_t i, n = atomic_load_explicit(&exi_table_n_socks,
					     memory_order_acquire);

	for (i = 0; i < n; i++) {
		struct exi_sock *sk = exi_sock_by_index(i);

		if (atomic_load_explicit(&sk->fd, memory_order_acquire) >= 0)
			f(sk, arg);
	}
}

void exi_sock_put(int fd, struct exi_sock *sk)
{
	uint32_t high = atomic_load(&exi_table.high);

	while ((uint32_t)fd >= high &&
	       !atomic_compare_exchange_weak(&exi_table.high, &high,
					     (uint32_t)fd + 1))
		;
	/* Release: pairs with exi_sock_find(). */
	atomic_store_explicit(&exi_table.socks[fd], sk, memory_order_release);
	exi_track_put(fd, EXI_TRACK_BYTES | EXI_TRACK_ANY);
}

static _Atomic bool named_calls;

/* Whether the connection stays on TCP: no handshake is under way, and none will
 * be. The link lock is held. */
static bool stays_on_tcp_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	enum exi_dir d;

	EXI_LOCKED(&sk->link_lock);
	for (d = EXI_RX; d <= EXI_TX; d++)
		if (atomic_load(&sh->half[d].meet_at) != UINT64_MAX ||
		    atomic_load(&sh->half[d].mode) != EXI_MODE_TCP ||
		    __atomic_load_n(&sh->half[d].fabric_bytes,
				    __ATOMIC_RELAXED) ||
		    atomic_load(&sk->n_ops[d]))
			return false;
	return !sk->link && !sk->fab && !sk->closing && !sk->framed &&
	       !sk->tcp->capture && !sk->named &&
	       sk->process == exi_use_token() &&
	       exi_holders_alone(&sh->holders);
}

bool exi_sock_settle(struct exi_sock *sk, int fd)
{
	uint32_t reason = atomic_load_explicit(&exi_sock_shared(sk)->reason,
					       memory_order_relaxed);
	uint32_t was;
	bool ret;

	if (reason == EXS_X_REASON_UNDECIDED || reason == EXS_X_REASON_NONE ||
	    exi_lock_held(&sk->link_lock))
		return false;
	/* The word is read before the looks, see track.h. */
	was = exi_track_at(fd);
	if (!was || !exi_trylock(&sk->link_lock))
		return false;
	ret = !atomic_load(&named_calls) && atomic_load(&sk->fd) == fd &&
	      exi_sock_peek(fd) == sk && stays_on_tcp_locked(sk);
	if (ret) {
		atomic_store(&sk->settled, true);
		exi_track_clear(fd, was, EXI_TRACK_BYTES);
	}
	exi_unlock(&sk->link_lock);
	return ret;
}

void exi_table_track_each(void)
{
	uint32_t fd, high = atomic_load(&exi_table.high);

	for (fd = 0; fd < high; fd++)
		if (atomic_load(&exi_table.socks[fd]))
			exi_track_put((int)fd, EXI_TRACK_BYTES | EXI_TRACK_ANY);
}

void exi_sock_track_all(void)
{
	if (!atomic_exchange(&named_calls, true))
		exi_table_track_each();
}

static void (*forget)(struct exi_sock *sk, int fd, uint32_t generation);

void exi_sock_forgets(void (*f)(struct exi_sock *sk, int fd,
				uint32_t generation))
{
	forget = f;
}

void exi_sock_forget(struct exi_sock *sk, int fd, uint32_t generation)
{
	forget(sk, fd, generation);
}

struct exi_lock exi_table_promote_lock;

void exi_sock_mark(struct exi_sock *sk, int fd)
{
	sk->cookie = exi_sock_cookie(fd);
}

void exi_sock_exchange(struct exi_sock *sk)
{
	atomic_store(&sk->cookie, 0);
}

bool exi_sock_current(struct exi_sock *sk, int fd)
{
	uint64_t was = atomic_load(&sk->cookie);

	/* Exchanged meanwhile: was is from before, the kernel's from after. */
	return !was || was == exi_sock_cookie(fd) ||
	       atomic_load(&sk->cookie) != was;
}

void exi_sock_unlist_locked(struct exi_sock *sk)
{
	int fd = atomic_load(&sk->fd);
	struct exi_sock *old = sk;

	EXI_LOCKED(&sk->link_lock);
	atomic_compare_exchange_strong(&exi_table.socks[fd], &old, NULL);
	exi_stats_end(sk);
	if (!sk->named)
		return;
	exi_lock(&exi_table_pool_lock);
	exi_names_forget(sk, fd);
	exi_unlock(&exi_table_pool_lock);
}

/* EXS_REQUIRE: a connection that will not get there logs that and fails. */
static void check_require(struct exi_sock *sk, int reason)
{
	const char *require = exi_config()->require;

	/* One that was handed on was there, or may come to be. */
	if (!require[0] || strcmp(require, "tcp") == 0 || sk->again)
		return;
	switch (reason) {
	case EXS_X_REASON_NONE:
	case EXS_X_REASON_UNDECIDED:
	case EXS_X_REASON_PLAIN_SOCKET:
	case EXS_X_REASON_REQUESTED:
	case EXS_X_REASON_OPERATOR:
	case EXS_X_REASON_PEER_REQUEST:
	case EXS_X_REASON_ORPHAN:
	case EXS_X_REASON_PEER_LOST:
	case EXS_X_REASON_FABRIC_LOST:
	case EXS_X_REASON_PROTOCOL:
		return; /* it was there, or may come to be */
	case EXS_X_REASON_HALF_CLOSED:
		if (exi_sock_met(sk))
			return;
		break;
	default:
		break;
	}
	exi_error("EXS_REQUIRE is %s, but %s stays on TCP: %s", require,
		  EXI_CONN(atomic_load(&sk->fd)), exs_x_reason_text(reason));
	atomic_store(&sk->sh->half[EXI_RX].err, EPROTONOSUPPORT);
	atomic_store(&sk->sh->half[EXI_TX].err, EPROTONOSUPPORT);
}

void exi_sock_reason(struct exi_sock *sk, int reason)
{
	struct exi_shared *sh = sk->sh;
	uint32_t was = atomic_load(&sh->reason);

	/* A peer's violation breaks the connection, and is set after that: an
	 * end that other threads find then is a consequence. */
	do {
		if (was == EXS_X_REASON_PROTOCOL &&
		    atomic_load(&sh->half[EXI_RX].broken))
			return;
	} while (!atomic_compare_exchange_weak(&sh->reason, &was,
					       (uint32_t)reason));
	check_require(sk, reason);
	if (reason > EXS_X_REASON_UNDECIDED)
		EXI_PROBE2(error, atomic_load(&sk->fd), reason);
	exi_stats_note(sk);
	exi_debug("%s: %s", EXI_CONN(atomic_load(&sk->fd)),
		  exs_x_reason_name(reason));
}

void (*exi_ready_met)(struct exi_sock *sk, bool again);

void exi_ready_times_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	/* Before it is up, a fabric may be without its memory: while the
	 * provider makes the offer, no lock of the halves is held. */
	if (sk->fab && sk->fab->bell >= 0 && sk->fab->rops->first &&
	    atomic_load_explicit(&sk->times, memory_order_relaxed))
		sk->fab->rops->want_times(sk->fab);
}

uint64_t exi_ready_sleep(void)
{
	return exi_number();
}

int exi_ready_bell(struct exi_sock *sk, int fd)
{
	struct exi_shared *sh;
	int ret = -1;

	if (!exi_sock_lock(sk, fd, EXI_RX, &sh))
		return -1;
	if (sk->fab)
		ret = sk->fab->bell;
	exi_half_unlock(&sh->half[EXI_RX]);
	return ret;
}
