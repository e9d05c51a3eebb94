/* SPDX-License-Identifier: BSD-2-Clause */
/* From a descriptor to its socket. */
#include "core/meet/find.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "core/base/ids.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/begin.h"
#include "core/meet/handed.h"
#include "core/meet/latent.h"
#include "core/meet/look.h"
#include "core/meet/marker.h"
#include "core/meet/meet.h"
#include "core/sock/base.h"
#include "core/sock/capture.h"
#include "core/sock/holders.h"
#include "core/sock/memory.h"
#include "core/sock/names.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"

int exi_sock_use(int fd, struct exi_sock **ret)
{
	int err = exi_sock_get(fd, ret);

	if (!err && exi_unlikely(!exi_sock_used_here(*ret)))
		exi_sock_inherit(*ret);
	return err;
}

void exi_sock_inherit(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	uint64_t token = exi_use_token(), nobody = 0;
	bool owns, looks = false;

	exi_lock(&sk->link_lock);
	if (sk->process == token)
		goto unlock;
	sk->process = token;
	sk->unused = false;
	exi_stats_begin(sk);
	exi_capture_add(sk);
	if (sk->foreign_link) {
		looks = sk->link && sk->link->state == EXI_LINK_LOOK;
		exi_link_disown_locked(sk);
	}
	/* The first user after a fork owns the connection. A second one keeps
	 * it on TCP, unless both have the fabric mapped. */
	owns = atomic_compare_exchange_strong(&sh->owner, &nobody, token);
	if (!owns && !sk->fab) {
		atomic_store(&sh->half[EXI_RX].meet_at, UINT64_MAX);
		atomic_store(&sh->half[EXI_TX].meet_at, UINT64_MAX);
		atomic_store(&sh->hold_here, 1);
		exi_sock_reason(sk, EXS_X_REASON_SHARED);
	}
	if (!sk->foreign_link)
		goto unlock;
	sk->foreign_link = false;
	if (owns && looks)
		exi_look_inherited_locked(sk);
	if (!sk->link || looks) /* had not met then, or hung up before */
		goto unlock;
	/* The mark comes before the watch: from here on this process hears some
	 * bells. */
	atomic_store(&sh->several, 1);
	exi_service_watch(sk, sk->link->fd, EXI_WATCH_LINK, EPOLLIN);
	exi_service_watch(sk, sk->tcp->fd, EXI_WATCH_TCP, EPOLLRDHUP | EPOLLET);
unlock:
	exi_unlock(&sk->link_lock);
}

int exi_sock_make(int fd, enum exi_role role, bool adopted,
		  struct exi_sock **ret)
{
	struct exi_sock *old = exi_sock_peek(fd), *sk;
	int err, others;

	if ((uint32_t)fd >= exi_table.size)
		return -EMFILE;
	if (exi_latent(fd)) /* closed without the library */
		exi_latent_end(fd, NULL);
	/* One name was closed without the library, but there are others. */
	others = old ? exi_name_remove(old, fd) : 1;
	if (others <= 0)
		exi_sock_forget(old, others < 0 ? fd : atomic_load(&old->fd),
				atomic_load(&old->generation));
	err = exi_memory_new(fd, role, adopted, &sk);
	if (err)
		return err;
	exi_lock(&exi_table_pool_lock);
	atomic_store_explicit(&sk->fd, fd, memory_order_release);
	exi_sock_put(fd, sk);
	*ret = sk;
	exi_unlock(&exi_table_pool_lock);
	exi_holders_made(&sk->sh->holders);
	exi_stats_begin(sk);
	exi_capture_add(sk);
	exi_unlock(&sk->link_lock);
	return 0;
}

/* Turns the word into the socket, with its counts: both halves are locked.
 * Returns false if the descriptor was closed meanwhile. */
static bool take_word_locked(struct exi_sock *sk, int fd)
{
	struct exi_sock *word = atomic_load(&exi_table.socks[fd]);
	uintptr_t w;
	enum exi_dir d;

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	do {
		w = (uintptr_t)word;
		if (!(w & EXI_LATENT))
			return false;
		EXI_TABLE_RESET(&sk->role, exi_latent_role(w));
	} while (!atomic_compare_exchange_strong(&exi_table.socks[fd], &word,
						 sk));
	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sk->sh->half[d];

		__atomic_store_n(&h->bytes, exi_latent_moved(w, d),
				 __ATOMIC_RELAXED);
		h->in_kernel = exi_latent_inside(w, d);
	}
	sk->sh->half[EXI_RX].fin = exi_latent_over(w);
	exi_stats_young(fd, 0);
	sk->latent_life = exi_latent_life(w);
	sk->counted = sk->role == EXI_ROLE_ACCEPT;
	return true;
}

/* Before a thread can answer the peer by the socket: the peer then looks for
 * the sign. */
static void sign(struct exi_sock *sk, int fd)
{
	int before = sk->role == EXI_ROLE_ACCEPT && sk->base->sign_waits
			     ? sk->base->sign_used(fd)
			     : 0;

	if (before)
		atomic_store(&sk->sh->size, before);
}

/* The first use of a connection that came with a message. Nobody finds sk
 * before it is in the table, so nobody waits for its lock while the kernel is
 * asked. A thread that shares the connection later changes the word, or finds
 * the socket. */
static __attribute__((noinline)) struct exi_sock *look_at_come(int fd,
							       uintptr_t word)
{
	/* A descriptor from a program without the library stays the
	 * kernel's. */
	enum exi_role role =
		exi_proof_bears_sign(fd) ? exi_handed_role(fd) : EXI_ROLE_NONE;
	struct exi_sock *sk;
	uintptr_t now = word;
	bool put;

	if (role == EXI_ROLE_NONE || exi_memory_new(fd, role, true, &sk)) {
		while (exi_latent_is_come(now) &&
		       exi_latent_life(now) == exi_latent_life(word) &&
		       !exi_latent_replace(fd, &now, 0))
			;
		return exi_sock_peek(fd);
	}
	exi_handed_begin(sk, fd, (uint32_t)(word >> EXI_LATENT_GIVER));
	atomic_store_explicit(&sk->fd, fd, memory_order_release);
	do {
		put = exi_latent_replace(fd, &now, (uintptr_t)sk);
	} while (!put && exi_latent_is_come(now) &&
		 exi_latent_life(now) == exi_latent_life(word));
	if (put) {
		if (now & EXI_LATENT_SHARED)
			exi_holders_stray(&sk->sh->holders);
		exi_holders_made(&sk->sh->holders);
		exi_stats_begin(sk);
		exi_capture_add(sk);
		exi_latent_promoted(sk, fd);
	} else {
		atomic_store_explicit(&sk->fd, -1, memory_order_release);
		if (sk->counted)
			exi_marker_disconnection();
		exi_memory_abandon(sk);
	}
	exi_unlock(&sk->link_lock);
	return exi_sock_peek(fd);
}

struct exi_sock *exi_sock_promote(int fd)
{
	struct exi_sock *sk;
	struct exi_half *h;
	uintptr_t word = exi_latent_word_of(fd);
	bool taken;

	/* No lock is held while that waits. */
	if (exi_unlikely(exi_latent_is_come(word)))
		return look_at_come(fd, word);
	exi_lock(&exi_table_promote_lock);
	if (!exi_latent(fd)) {
		exi_unlock(&exi_table_promote_lock);
		return exi_sock_peek(fd);
	}
	if (exi_memory_new(fd, EXI_ROLE_NONE, true, &sk)) {
		exi_latent_end(fd, NULL);
		exi_unlock(&exi_table_promote_lock);
		return NULL;
	}
	h = sk->sh->half;
	exi_lock(&h[EXI_RX].lock);
	exi_lock(&h[EXI_TX].lock);
	/* A thread that finds the socket in the table must find that it is the
	 * descriptor's. */
	atomic_store_explicit(&sk->fd, fd, memory_order_release);
	taken = take_word_locked(sk, fd);
	if (taken) {
		sign(sk, fd);
		exi_link_expect_later(sk);
	} else
		atomic_store_explicit(&sk->fd, -1, memory_order_release);
	exi_unlock(&h[EXI_TX].lock);
	exi_unlock(&h[EXI_RX].lock);
	if (taken) {
		exi_holders_made(&sk->sh->holders);
		exi_stats_begin(sk);
		exi_capture_add(sk);
		exi_latent_promoted(sk, fd);
	} else
		exi_memory_abandon(sk);
	exi_unlock(&sk->link_lock);
	exi_unlock(&exi_table_promote_lock);
	return exi_sock_peek(fd);
}

int exi_sock_get(int fd, struct exi_sock **ret)
{
	struct exi_sock *sk = exi_sock_find(fd);
	int type;
	socklen_t len = sizeof(type);

	if (sk && exi_sock_is(sk, fd)) {
		*ret = sk;
		return 0;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return -errno;
	return exi_sock_make(fd, EXI_ROLE_NONE, false, ret);
}

int exi_sock_stream(int fd)
{
	const struct exi_sock *sk = exi_sock_find(fd);
	socklen_t len = sizeof(int);
	int type;

	if (sk && (sk->role == EXI_ROLE_CONNECT || sk->role == EXI_ROLE_ACCEPT))
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return -errno;
	return type == SOCK_STREAM ? 0 : -EOPNOTSUPP;
}
