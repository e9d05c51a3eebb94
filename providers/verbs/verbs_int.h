/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the verbs fabric share: devices, nets, the domain, the
 * handshake, failures.
 *
 * Objects, as in core/rma/rma.h: a net is one device's protection domain with
 * the queues that up to VERBSP_SLOTS connections share (completion queues,
 * receive queue, completion channel); a link is the queue pair of one
 * connection. */
#ifndef EXI_PROVIDERS_VERBS_INT_H
#define EXI_PROVIDERS_VERBS_INT_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/list.h"
#include "core/fabric/provider.h"
#include "core/rma/lock.h"
#include "core/rma/rma.h"
#include "core/rma/wire.h"
#include "core/trust/auth_wire.h"
#include "providers/verbs/verbs_wire.h"

extern const struct exi_provider verbsp_provider;

/* --- devices (verbs_device.c) ------------------------------------------- */

/* A device that was opened, or why it was not. */
struct verbsp_device {
	const char *name;
	struct ibv_context *ctx; /* null: err */
	int err;		 /* -errno of opening, asking or trying */
	char why[EXI_RMA_WHY];	 /* in words; "" when it can be used */
	struct ibv_device_attr attr;
	bool software;
	bool iwarp;
};

/* Opens every device of the host, in the order of names, judges it, passes it
 * to look(), and closes it. look() returns false to end. -ENOENT: there is no
 * device, or no support for devices; why says which. */
int verbsp_each_device(bool (*look)(struct verbsp_device *d, void *arg),
		       void *arg, char *why, size_t len);

/* Whether the kernel emulates the device: its TCP is faster, so such a device
 * is used only where EXS_VERBS_DEVICE names it. */
bool verbsp_software(const struct ibv_device *dev);

/* Finds a name in EXS_VERBS_DEVICE that no device has; false: there is none. */
bool verbsp_misnamed(char *ret, size_t len);

/* Whether the configuration leaves the device out: -ENODEV, and why; else 0. */
int verbsp_forbidden(const struct ibv_device *dev, char *why, size_t len);

/* Finds the GID whose index EXS_VERBS_GID_INDEX names, or without it the one
 * that carries IP addresses and routes: RoCE v2 before v1. -ENOENT;
 * -EAFNOSUPPORT: the one named is no IP address. */
int verbsp_gid(struct ibv_context *ctx, unsigned int port,
	       struct ibv_gid_entry *ret);

/* Reads all GIDs of the device; the caller frees them. How many, or -errno. */
int verbsp_gids(struct ibv_context *ctx, struct ibv_gid_entry **ret);

/* Whether a connection from this address is one of the GID that
 * EXS_VERBS_GID_INDEX names, if it names any. -errno, and why not. */
int verbsp_gid_check(struct ibv_context *ctx, unsigned int port,
		     const struct sockaddr *at, char *why, size_t len);

/* Why memory was refused to a device, in words: the limit, and its cure. */
void verbsp_memory_why(int err, char *why, size_t len);

/* --- nets (verbs_net.c) ------------------------------------------------- */

#define VERBSP_SLOTS 64u

struct verbsp_link;

struct verbsp_slot {
	struct verbsp_link *link; /* null: free */
	uint32_t qp_num;
	uint32_t generation; /* 24 bits */
	/* EXI_RMA_CREDITS receive buffers, made when the slot is used first. */
	unsigned char *buffers;
	struct ibv_mr *mr;
};

/* Completions that are taken, and buffers that are posted, at once. */
#define VERBSP_TAKE 16

/* A buffer in which something came. */
struct verbsp_used {
	uint64_t id;
	struct verbsp_link *link; /* for which it came; null: none */
};

struct verbsp_net {
	struct exi_rma_net rma;
	struct exi_list node;
	struct ibv_context *ctx;
	bool iwarp;
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct ibv_cq *received, *sent;
	struct ibv_comp_channel *channel;
	int timer;  /* iWARP; -1 */
	long pause; /* what timer was set to, ns; the service's */
	struct exi_rma_event on_channel, on_timer;
	_Atomic bool requested;	  /* the next completion, whatever it is */
	struct exi_rma_lock reap; /* taking from sent, and the slots */
	struct verbsp_slot slot[VERBSP_SLOTS];
	unsigned int last; /* slot of the last completion: a hint */
	/* Looks at what arrived, by any thread; and their count when the
	 * service looked. Under the net's lock. */
	uint32_t looks, looked;
	/* Buffers to be posted again; under the net's lock. */
	struct verbsp_used used[VERBSP_TAKE];
	unsigned int n_used;
	/* The device refused some memory: no link joins any more. */
	_Atomic bool poor;
};

static inline struct verbsp_net *verbsp_net(struct exi_rma_net *n)
{
	return exi_container(n, struct verbsp_net, rma);
}

struct verbsp_link {
	struct exi_rma_link rma;
	unsigned int slot;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	/* A's: among links to nudge, at `nudge`, if not yet up. */
	struct exi_list nudging;
	uint64_t nudge;
};

static inline struct verbsp_link *verbsp_link(struct exi_rma_link *l)
{
	return exi_container(l, struct verbsp_link, rma);
}

/* Gives the link of id a net of its device, a slot and a queue pair. -errno. */
int verbsp_net_join(struct verbsp_link *l, struct rdma_cm_id *id);
/* Takes the slot away: the net no longer leads to the link. */
void verbsp_net_leave(struct verbsp_link *l);

/* The calls of struct exi_rma_fabric (core/rma/rma.h). */
int verbsp_net_reg(struct exi_rma_net *n, void *addr, size_t len,
		   enum exi_rma_access access, struct exi_rma_mr *ret);
void verbsp_net_dereg(struct exi_rma_mr *m);
int verbsp_net_post(struct exi_rma_link *l, const struct exi_rma_req *r,
		    unsigned int n);
void verbsp_net_kill(struct exi_rma_link *l);
int verbsp_net_take(struct exi_rma_net *n);
void verbsp_net_reap(struct exi_rma_net *n);
void verbsp_net_request(struct exi_rma_net *n);
void verbsp_net_links(struct exi_rma_net *n, void (*f)(struct exi_rma_link *l));
/* No lock is held while f is called: it may wait. */
void verbsp_nets_each(void (*f)(struct exi_rma_net *n));
/* A child: another thread of its parent may have held the lock of the list. */
void verbsp_nets_forked(void);

/* --- the domain (verbs_domain.c) ---------------------------------------- */

extern struct rdma_event_channel *verbsp_channel;

/* rdma_cm has the device open: a forked child must not. */
void verbsp_device_seen(struct ibv_context *ctx);

/* Make a channel's descriptor, in its struct, one of the library's that does
 * not block; close it. A closed one is -1, for the code that frees the
 * channel. */
int verbsp_fd_keep(int *fd);
void verbsp_fd_close(int *fd);

int verbsp_domain_open(void);
void verbsp_domain_close(void);
void verbsp_domain_forked(void);

/* --- meeting (verbs_meet.c) --------------------------------------------- */

/* Takes an event of rdma_cm, if there is one; false: none. The service lock is
 * held, and released for calls of the core. */
bool verbsp_meet_event(void);

/* Releases what waited for a port or a device: it is up, or gone. The service
 * lock is held. */
void verbsp_meet_unpark(void);

/* The calls of struct exi_rma_fabric (core/rma/rma.h). */
uint16_t verbsp_port_for(uint16_t tcp);
int verbsp_meet_listen(const struct exi_listening *at, void **ret);
void verbsp_meet_unlisten(void *listener);
uint16_t verbsp_meet_port_of(const void *listener);
int verbsp_meet_ask(struct exi_rma_link *l);
void verbsp_meet_part(struct exi_rma_link *l);
void verbsp_meet_accept(struct exi_rma_link *l, void *asker);
void verbsp_meet_reject(void *asker, const struct exi_auth_reject *r);
void verbsp_meet_proof(struct exi_rma_link *l, const struct exi_rma_msg *m,
		       const void *extra, uint32_t len);
void verbsp_meet_sever(struct exi_rma_link *l);
void verbsp_meet_tick(uint64_t now);

/* --- failing (verbs_fail.c) --------------------------------------------- */

/* Makes the device report its events from now on. 0 or -errno. */
int verbsp_fail_watch(struct ibv_context *ctx);

#endif
