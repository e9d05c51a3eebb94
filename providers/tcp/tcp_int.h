/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations that the files of the tcp provider share.
 *
 * A connection has four slots: a transfer (post_send, post_recv) and a watch
 * (arm) for each direction. A slot in use is with the domain's engine until
 * something happened to it, then on the domain's list of finished slots, then
 * idle again, and its upcall is made.
 *
 *	IDLE --post, arm--> WAITING --> FINISHED --upcall--> IDLE
 *
 * The engine decides when a transfer is tried. What the outcome means is the
 * same for all engines: tcpp_op_step_locked(). */
#ifndef PROVIDERS_TCP_TCP_INT_H
#define PROVIDERS_TCP_TCP_INT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"

/* Upcalls, or events of the kernel, after which progress() returns though
 * there may be more. */
#define TCPP_PROGRESS_MAX 256

enum tcpp_state {
	TCPP_IDLE = 0,
	TCPP_WAITING,  /* with the engine, until the kernel reports something */
	TCPP_QUEUED,   /* epoll: to be tried by progress() */
	TCPP_RUNNING,  /* epoll: a thread is trying it */
	TCPP_FINISHED, /* result is there, the upcall is not yet made */
};

/* A slot. Guarded by the domain's lock, but that an engine reads xfer, moved
 * and conn of a slot it has to try. */
struct tcpp_op {
	struct exi_list node; /* in a list of the engine or the domain */
	struct exi_conn *conn;
	struct exi_xfer *xfer; /* null: a watch, or idle */
	size_t moved;
	ssize_t result;
	enum tcpp_state state;
	enum exi_dir dir;
	bool watch;
	bool cancel; /* the slot is wanted back */
	/* io_uring only: */
	bool stale; /* watch: what is in the kernel is from before disarm() */
	bool poll_first;   /* trying at once would be in vain */
	bool cancelling;   /* the kernel has a request to cancel this one */
	bool cancel_again; /* asked for since: that request may be too old */
};

/* exi_conn.priv. All zero: nothing was asked of the connection yet. */
struct tcpp_conn {
	/* An error of the connection, as a positive errno, that came after
	 * some bytes had moved: the next call, in either direction, reports
	 * it, as the kernel would. Any thread. */
	_Atomic int error;
	/* The rest is guarded by the domain's lock. */
	bool closed;
	uint32_t generation;	/* the domain's; another one: forget the rest */
	uint32_t upcalls;	/* being made now */
	struct tcpp_op xfer[2]; /* by enum exi_dir */
	struct tcpp_op watch[2];
	/* epoll only: */
	uint32_t id;	/* in the engine's table; 0: none */
	uint32_t armed; /* events that are registered and did not fire */
	bool added;	/* the set has the descriptor */
};

struct tcpp_domain;

/* A way to wait for the kernel. Calls come without the domain's lock, unless
 * stated otherwise. */
struct tcpp_engine {
	const char *name;
	/* Makes the engine's state for this process. -errno: it does not work
	 * here, and why has the reason in words. */
	int (*open)(void **ret, char *why, size_t len);
	/* Frees it; the kernel forgets what it had. In a forked child only
	 * the child's view of it goes. */
	void (*close)(void *state);
	/* Takes a slot in state WAITING. 0: it will be FINISHED. -errno: not
	 * taken. */
	int (*post)(struct tcpp_domain *d, struct tcpp_op *op);
	/* Gives the slot back soon, if its cancel is still set: a transfer
	 * gets FINISHED, a watch IDLE. */
	void (*cancel)(struct tcpp_domain *d, struct tcpp_op *op);
	/* The calls of exi_domain_ops. */
	int (*progress)(struct tcpp_domain *d);
	int (*event_fd)(struct tcpp_domain *d);
	int (*arm)(struct tcpp_domain *d);
	/* A slot became FINISHED outside progress(): makes event_fd()
	 * readable. */
	void (*kick)(struct tcpp_domain *d);
	/* Forgets c: all its slots are idle, and will not be used again. */
	void (*release)(struct tcpp_domain *d, struct exi_conn *c);
	/* The descriptor is about to be closed: drops now what the engine would
	 * name by its number later. Null: the engine names nothing by
	 * number. */
	void (*part)(struct tcpp_domain *d, struct exi_conn *c);
};

struct tcpp_domain {
	struct exi_domain base; /* first */
	/* Guards everything below and the slots of all connections. Nothing
	 * of the core's is taken under it. */
	struct exi_lock lock;
	/* Changes only while state is null. */
	const struct tcpp_engine *engine;
	/* The engine's; null until first need, in a child again. Written with
	 * release under lock after engine; read with acquire without it. */
	_Atomic(void *) state;
	uint32_t generation; /* counts forks, from 1 */
	struct exi_list finished;
};

extern const struct tcpp_engine tcpp_epoll;
/* The io_uring engine; without liburing its open() always refuses. */
extern const struct tcpp_engine tcpp_uring;

extern const struct exi_conn_ops tcpp_conn_ops;
extern const struct exi_wait_ops tcpp_wait_ops;
extern const struct exi_ready_ops tcpp_ready_ops;
extern const struct exi_kernel_ops tcpp_kernel_ops;
extern const struct exi_domain_ops tcpp_domain_ops;
extern const struct exi_provider exi_provider_tcp;

static inline struct tcpp_domain *tcpp_domain(struct exi_domain *d)
{
	return (struct tcpp_domain *)d;
}

static inline struct tcpp_conn *tcpp_priv(struct exi_conn *c)
{
	return (struct tcpp_conn *)c->priv;
}

/* tcp_domain.c */

int tcpp_domain_open(struct exi_domain **ret);
void tcpp_domain_close(struct exi_domain *d);

/* Makes the engine's state if there is none. -errno: no engine works. */
int tcpp_domain_start(struct tcpp_domain *d);

/* The state, or null when nothing was ever started in this process. */
static inline void *tcpp_domain_state(struct tcpp_domain *d)
{
	/* Pairs with the release in tcpp_domain_start(). */
	return atomic_load_explicit(&d->state, memory_order_acquire);
}

/* The slot has its result: puts it on the list of finished slots. */
void tcpp_op_finish_locked(struct tcpp_domain *d, struct tcpp_op *op,
			   ssize_t result);

/* The slot was given back as asked: a transfer ends with the bytes that it
 * moved. */
void tcpp_op_cancelled_locked(struct tcpp_domain *d, struct tcpp_op *op);

/* The slot cannot be tried: err is -errno. */
void tcpp_op_fail_locked(struct tcpp_domain *d, struct tcpp_op *op, int err);

/* A send or receive for the slot returned n (a count or -errno). True: it is
 * FINISHED. False: more is to be tried. */
bool tcpp_op_step_locked(struct tcpp_domain *d, struct tcpp_op *op, ssize_t n);

/* Makes the upcalls of finished slots; returns how many. */
int tcpp_domain_deliver(struct tcpp_domain *d);

/* tcp_conn.c */

/* c's slots, made anew when they are a parent's. */
struct tcpp_conn *tcpp_conn_locked(struct exi_conn *c);

/* send(2) and recv(2) without waiting and without SIGPIPE: a count or -errno,
 * errno stays. */
ssize_t tcpp_send(int fd, const void *buf, size_t len, int flags);
ssize_t tcpp_recv(int fd, void *buf, size_t len, int flags);

#endif
