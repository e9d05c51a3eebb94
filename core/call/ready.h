/* SPDX-License-Identifier: BSD-2-Clause */
/* The readiness of a connection, in the terms of poll(2), for calls that wait
 * for several descriptors. The kernel reports on directions on TCP, the fabric
 * on the others. */
#ifndef EXI_CORE_CALL_READY_H
#define EXI_CORE_CALL_READY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

struct exi_ready {
	short now;    /* events that hold, as far as the library knows */
	short kernel; /* requested events that the kernel reports */
	bool hung_up;
	bool error; /* the kernel's POLLERR and POLLHUP count, too */
	/* With POLLIN, of a fabric that supports it; else zero. */
	struct exi_first first;
};

/* Looks at the events. Returns false if sk is no longer fd's. No lock held. */
EXI_SHIM bool exi_ready_look(struct exi_sock *sk, int fd, short events,
			     struct exi_ready *ret);

/* The events, the kernel's included; POLLNVAL if sk is not fd's. */
EXI_SHIM short exi_ready_events(struct exi_sock *sk, int fd, short events);

/* The state by which a look found nothing to receive. While none of it changes,
 * another look would find nothing, too, and can be left out. */
struct exi_glance {
	const _Atomic uint32_t *kick; /* null: a look is needed */
	uint32_t kicked; /* changes with the state of the direction */
	int peer_cpu;	 /* as exi_ready_peer_cpu() */
	struct exi_nothing nothing;
};

/* Whether the state is unchanged. No lock of the socket is held, but this
 * thread is among the waiters for EXI_RX, so the memory compared is valid:
 * close.c waits for the socket's lookers before it frees the fabric. */
static inline bool exi_glance_same(const struct exi_glance *g)
{
	return g->kick && exi_nothing_still(&g->nothing) &&
	       atomic_load_explicit(g->kick, memory_order_relaxed) == g->kicked;
}

/* exi_ready_events(); also what comes first, and whether a glance will be
 * enough next time. now: about exi_ticks(). */
EXI_SHIM short exi_ready_first(struct exi_sock *sk, int fd, short events,
			       uint64_t now, struct exi_first *ret,
			       struct exi_glance *ret_glance);

/* Asks the peer to state when it sends, from now on. */
EXI_SHIM void exi_ready_want_times(struct exi_sock *sk, int fd);

/* Makes sure that the socket's waiters are woken when an event that does not
 * hold now may hold and the kernel does not report it: on fabrics. Returns
 * false if one may hold already; then look again. With fresh, bytes that were
 * there before do not count. Lasts until exi_ready_disarm() with the same
 * events. sleep: the sleep that the doorbell ends, or 0. No lock held. */
EXI_SHIM bool exi_ready_arm(struct exi_sock *sk, int fd, short events,
			    bool fresh, uint64_t sleep);

/* Withdraws the requests of exi_ready_arm(). No lock is held. */
EXI_SHIM void exi_ready_disarm(struct exi_sock *sk, int fd, short events);

/* The kernel's poll reported these events for the descriptor, and the caller
 * will report them: then the socket's next call knows of a reset, too. Returns
 * what to report: the kernel of a UNIX socket does not know that its peer
 * closed with bytes of a ring unread. No lock is held. */
short exi_ready_told(struct exi_sock *sk, short revents);

/* About how many bytes of the ring the peer has not read. */
EXI_SHIM int exi_ready_unsent(struct exi_sock *sk, int fd);

/* The number of bytes that a receive would return now, as SIOCINQ counts them;
 * -errno. */
EXI_SHIM int exi_ready_unread(struct exi_sock *sk, int fd);
/* The same for the program: of messages, without what a ring has beside them.
 */
EXI_SHIM int exi_ready_inq(struct exi_sock *sk, int fd);

/* SO_RCVLOWAT was set: makes waiters look again. Returns true if the bytes
 * there are enough. */
EXI_SHIM bool exi_ready_lowat_set(struct exi_sock *sk, int fd);

/* Whether the peer has ended its direction, even if bytes are unread. */
bool exi_ready_peer_ended(struct exi_sock *sk, int fd);

/* The CPU the peer last worked on; -1: unknown. A hint. */
EXI_SHIM int exi_ready_peer_cpu(struct exi_sock *sk, int fd);

/* Called when a descriptor is about to be closed while another process keeps
 * its socket open: the kernel would continue to report it in epoll sets. */
EXI_SHIM extern void (*exi_ready_owes)(int fd);

/* Whether directions of the connection may be on a fabric, now or soon. A hint
 * without locks. */
static inline bool exi_ready_ours(const struct exi_sock *sk)
{
	return atomic_load_explicit(&sk->sh->linked, memory_order_acquire);
}

#endif
