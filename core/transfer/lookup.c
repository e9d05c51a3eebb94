/* SPDX-License-Identifier: BSD-2-Clause */
/* The socket that a transfer is for, and whether it is to meet its peer. */
#include "core/transfer/lookup.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/signals.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/begin.h"
#include "core/meet/find.h"
#include "core/meet/meet.h"
#include "core/meet/worth.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"
#include "core/transfer/switch.h"

/* Not in a handler: the next call finds the mark passed, too. */
static void at_mark(struct exi_sock *sk, int fd, enum exi_dir dir, uint64_t at,
		    size_t len)
{
	if (exi_signals_within())
		return;
	if (exi_sock_met(sk) && !atomic_load(&sk->sh->handed))
		exi_switch_unawaited(sk, fd);
	else if (!exi_worth_later(sk, fd, dir, at, len))
		exi_link_meet(sk, fd);
}

void exi_flow_after_recv(struct exi_sock *sk, int fd)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	uint64_t at = atomic_load_explicit(&h->meet_at, memory_order_relaxed);

	if (exi_unlikely(__atomic_load_n(&h->bytes, __ATOMIC_RELAXED) > at))
		at_mark(sk, fd, EXI_RX, at, 0);
}

/* Between hosts a round trip is no rest. */
#define REST_REMOTE 800000

struct exi_sock *exi_lookup_again(struct exi_sock *sk, int fd, uint64_t rest)
{
	uint32_t generation;

	if (rest < REST_REMOTE && exi_sock_remote(sk))
		return sk;
	generation = atomic_load(&sk->generation);
	if (exi_sock_current(sk, fd))
		return sk;
	exi_sock_forget(sk, fd, generation);
	/* The service may have been first, and not be done: until it is, the
	 * number still leads to the old socket. */
	while (exi_sock_is(sk, fd) &&
	       atomic_load(&sk->generation) == generation)
		sched_yield();
	return exi_sock_get(fd, &sk) ? NULL : sk;
}

/* How far ahead of the bytes sent a mark is passed, where the receiver of those
 * bytes is looked for. */
#define LOOK_AHEAD ((size_t)64 << 10)

/* Bytes that the connecting end has queued pass a mark, too. The other end only
 * looks whether a peer waits for it, which each mark is worth once, and no peer
 * waits before it has received so much, unless that end meets at connect: then
 * the next send finds it. A send may be offered far more than the kernel
 * takes. */
static bool passes(const struct exi_sock *sk, uint64_t at, size_t len)
{
	const struct exi_half *h = &sk->sh->half[EXI_TX];
	uint64_t sent = __atomic_load_n(&h->bytes, __ATOMIC_RELAXED);

	if (sk->role == EXI_ROLE_ACCEPT && sent < EXI_LINK_DOWNLOAD)
		return sent > at;
	if (sk->role == EXI_ROLE_ACCEPT && len > LOOK_AHEAD)
		len = LOOK_AHEAD;
	return sent + len > at ||
	       (sk->role == EXI_ROLE_CONNECT &&
		atomic_load_explicit(&sk->n_ops[EXI_TX], memory_order_relaxed));
}

/* The rendezvous must come before the bytes that pass its mark. */
void exi_flow_before_send(struct exi_sock *sk, int fd, size_t len)
{
	const struct exi_half *h = &sk->sh->half[EXI_TX];
	uint64_t at = atomic_load_explicit(&h->meet_at, memory_order_relaxed);

	if (exi_unlikely(at != UINT64_MAX && passes(sk, at, len)))
		at_mark(sk, fd, EXI_TX, at, len);
}
