/* SPDX-License-Identifier: BSD-2-Clause */
/* What a connection could do now, in the terms of poll(2): for calls that wait
 * for several descriptors. The kernel answers for directions on TCP, the
 * fabric for the others. */
#ifndef EXI_CORE_CALL_READY_H
#define EXI_CORE_CALL_READY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

struct exi_ready {
	short now;    /* hold now, as far as the library knows */
	short kernel; /* of those asked for, the kernel's to report */
	bool hung_up;
	bool error; /* the kernel's POLLERR and POLLHUP count, too */
	/* Asked for, with POLLIN, of a fabric that supports it; else zero. */
	struct exi_first first;
};

/* No lock held. False when sk is not fd's any more. */
EXI_SHIM bool exi_ready_look(struct exi_sock *sk, int fd, short events,
			     struct exi_ready *ret);

/* The whole answer, the kernel asked; POLLNVAL when sk is not fd's. */
EXI_SHIM short exi_ready_events(struct exi_sock *sk, int fd, short events);

/* What a look found nothing to receive by. While none of it changes, a look
 * finds nothing again, and need not be taken. */
struct exi_glance {
	const _Atomic uint32_t *kick; /* null: it takes a look */
	uint32_t kicked; /* changes with the state of the direction */
	int peer_cpu;	 /* as exi_ready_peer_cpu() */
	struct exi_nothing nothing;
};

/* Whether all is unchanged. No lock of the socket is held; but this thread is
 * among the waiters for EXI_RX, so the memory that is compared is there:
 * close.c waits for the socket's lookers before the fabric goes. */
static inline bool exi_glance_same(const struct exi_glance *g)
{
	return g->kick && exi_nothing_still(&g->nothing) &&
	       atomic_load_explicit(g->kick, memory_order_relaxed) == g->kicked;
}

/* exi_ready_events(), what comes first, and whether a glance will do next time;
 * now: about exi_ticks(). */
EXI_SHIM short exi_ready_first(struct exi_sock *sk, int fd, short events,
			       uint64_t now, struct exi_first *ret,
			       struct exi_glance *ret_glance);

/* The peer is to say when it sends what comes from now on. */
EXI_SHIM void exi_ready_want_times(struct exi_sock *sk, int fd);

/* Has the waiters of the socket woken when one of the events that do not hold
 * now may hold, if the kernel does not report that: directions on a fabric.
 * False: one may hold already, look again. With fresh, bytes that were there
 * before do not count. Until exi_ready_disarm() with the same events. sleep:
 * the sleep that the doorbell ends, or 0. No lock held. */
EXI_SHIM bool exi_ready_arm(struct exi_sock *sk, int fd, short events,
			    bool fresh, uint64_t sleep);

/* Takes back what exi_ready_arm() asked for. No lock is held. */
EXI_SHIM void exi_ready_disarm(struct exi_sock *sk, int fd, short events);

/* The kernel's poll reported this for its descriptor, and the caller will
 * report it: its next call knows of a reset, too. */
void exi_ready_told(struct exi_sock *sk, short revents);

/* About how many bytes of the ring the peer has not read. */
EXI_SHIM int exi_ready_unsent(struct exi_sock *sk, int fd);

/* Bytes that a receive would return now, as SIOCINQ counts them; -errno. */
EXI_SHIM int exi_ready_unread(struct exi_sock *sk, int fd);

/* SO_RCVLOWAT was set now: waiters look again. True: what lies there is
 * enough. */
EXI_SHIM bool exi_ready_lowat_set(struct exi_sock *sk, int fd);

/* The peer has ended its direction, whether all of it was read or not. */
bool exi_ready_peer_ended(struct exi_sock *sk, int fd);

/* The CPU the peer last worked on, -1 when unknown. A hint. */
EXI_SHIM int exi_ready_peer_cpu(struct exi_sock *sk, int fd);

/* A descriptor is about to be closed, and another process keeps its socket
 * open: the kernel would continue to report it in sets. */
EXI_SHIM extern void (*exi_ready_owes)(int fd);

/* The connection of fd (again): its directions may be on a fabric now or soon.
 * A hint without locks. */
static inline bool exi_ready_ours(const struct exi_sock *sk)
{
	return atomic_load_explicit(&sk->sh->linked, memory_order_acquire);
}

#endif
