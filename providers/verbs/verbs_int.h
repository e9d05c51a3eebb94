/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the verbs fabric share.
 *
 * Objects: a net is one device's protection domain with the queues that up to
 * VRB_SLOTS connections share (completion queues, receive queue, completion
 * channel); a link is the queue pair of one connection and what arrived on it.
 *
 * Locks, in their order: the core's of a socket; a net's `lock` (taking
 * completions, the slots); a link's `in` (what arrived); a link's `post`
 * (posting, credits). No lock of the core is taken here. */
#ifndef EXI_PROVIDERS_VERBS_INT_H
#define EXI_PROVIDERS_VERBS_INT_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/list.h"
#include "core/log.h"
#include "core/module.h"
#include "core/proof.h"
#include "core/stream.h"
#include "providers/verbs/verbs_wire.h"

/* What the library gave the module; set before any other call. */
extern const struct exi_host *vrb_host;
extern const struct exi_provider vrb_provider;

#define vrb_log(level, ...)                                                    \
	do {                                                                   \
		if ((level) <= *vrb_host->log_level)                           \
			vrb_host->log((level), __VA_ARGS__);                   \
	} while (0)

#define VRB_WHY 256

/* --- devices (verbs_device.c) ------------------------------------------- */

/* A device that was opened, or why it was not. */
struct vrb_device {
	const char *name;
	struct ibv_context *ctx; /* null: err */
	int err;		 /* of opening, asking or trying: -errno */
	char why[VRB_WHY];	 /* in words; "" when it can be used */
	struct ibv_device_attr attr;
	/* The kernel imitates the device: its TCP is faster, so such a one is
	 * used only where EXS_VERBS_DEVICE names it. */
	bool software;
	bool iwarp;
};

/* Every device of the host, in the order of its names: opened, judged, told to
 * look(), closed. look() returns false to end. -ENOENT: there is none, or no
 * support for them; why says which. */
int vrb_each_device(bool (*look)(struct vrb_device *d, void *arg), void *arg,
		    char *why, size_t len);

/* The configuration leaves it out: -ENODEV, and why. */
int vrb_forbidden(const struct ibv_device *dev, char *why, size_t len);

/* By the index that EXS_VERBS_GID_INDEX names, or without it the one that
 * carries IP addresses and routes: RoCE v2 before v1. -ENOENT. */
int vrb_gid(struct vrb_device *d, unsigned int port, struct ibv_gid_entry *ret);

/* Reads all GIDs of the device; the caller frees them. How many, or -errno. */
int vrb_gids(struct vrb_device *d, struct ibv_gid_entry **ret);

/* --- nets (verbs_net.c) ------------------------------------------------- */

#define VRB_SLOTS 64u
/* Requests that a queue pair takes; a note of iWARP is two. */
#define VRB_SEND_DEPTH 256u
/* One of so many requests tells when it is over, and so are those before. */
#define VRB_SIGNAL_EVERY 16u

struct vrb_link;

struct vrb_slot {
	struct vrb_link *link; /* null: free */
	uint32_t qp_num;
	uint32_t generation; /* 24 bits */
	/* VRB_CREDITS receive buffers, made when the slot is used first. */
	unsigned char *buffers;
	struct ibv_mr *mr;
};

struct vrb_net {
	struct exi_list node;
	struct ibv_context *ctx;
	bool iwarp;
	unsigned int inline_max;
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct ibv_cq *received, *sent;
	struct ibv_comp_channel *channel;
	/* Flags of links that want to be woken by whatever arrives; without any
	 * only by what its sender marked as urgent. */
	_Atomic unsigned int armed;
	_Atomic bool requested; /* the next completion, whatever it is */
	pthread_mutex_t lock;	/* taking from received, and the slots */
	pthread_mutex_t reap;	/* taking from sent, and the slots */
	struct vrb_slot slot[VRB_SLOTS];
	unsigned int last; /* slot of the last completion: a hint */
};

/* Gives the link of id a net of its device, a slot and a queue pair. -errno. */
int vrb_net_join(struct vrb_link *l, struct rdma_cm_id *id);
/* Takes the slot away; the queue pair is gone. */
void vrb_net_leave(struct vrb_link *l);

/* Takes what arrived for every link of the net. None of the locks is held, but
 * perhaps the core's. How much it was. */
int vrb_net_poll(struct vrb_net *n);
/* The same, unless another thread is at it. */
int vrb_net_try_poll(struct vrb_net *n);
/* Requests of the net that are over. A post lock may be held. */
void vrb_net_reap(struct vrb_net *n);
/* A link sleeps: the next completion makes the channel readable. */
void vrb_net_request(struct vrb_net *n);
/* Each one; in a forked child. */
void vrb_nets_each(void (*f)(struct vrb_net *n));
/* The channel was readable. */
void vrb_net_event(struct vrb_net *n);

/* --- the domain (verbs_domain.c) ---------------------------------------- */

/* Guards what the service does: events of rdma_cm, links that come and go. Taken
 * inside the core's locks, so the core is not called with it. */
extern pthread_mutex_t vrb_service_lock;
extern struct rdma_event_channel *vrb_channel;
/* In a child of the process that has the devices: nothing works. */
extern bool vrb_forked;

/* Events of a descriptor go to a net's channel, or a link's pair. */
enum vrb_watch {
	VRB_WATCH_CM,
	VRB_WATCH_NET,
	VRB_WATCH_PAIR
};
int vrb_watch(int fd, enum vrb_watch what, const void *whose);
void vrb_unwatch(int fd);

extern const struct exi_domain_ops vrb_domain_ops;
int vrb_domain_open(struct exi_domain **ret);
void vrb_domain_close(struct exi_domain *d);

/* --- links (verbs_link.c) ----------------------------------------------- */

/* What arrived for one of the engines, and waits for its lock. */
#define VRB_INBOX 128u /* more than credits allow */
struct vrb_inbox {
	_Atomic unsigned int n;
	unsigned int first;
	struct exi_stream_msg msg[VRB_INBOX];
};

struct vrb_mem {
	unsigned char *at;
	uint32_t bytes;
	struct ibv_mr *mr;
};

struct vrb_link {
	struct vrb_net *net;
	unsigned int slot;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	int pair;		     /* our end of the pair link */
	struct vrb_meeting *meeting; /* until both ends are up; null */

	pthread_mutex_t forward; /* from the pair link */
	_Atomic bool stuck;	 /* it waits for a credit */

	pthread_mutex_t in;
	struct vrb_inbox inbox[2];    /* by enum exi_dir: whose engine */
	_Atomic uint32_t received;    /* messages */
	_Atomic uint32_t stir;	      /* changes with whatever arrives */
	_Atomic uint32_t sleepers[2]; /* on stir */
	_Atomic bool bell[2];	      /* the next is to ring the pair link */
	_Atomic int err;	      /* -errno: nothing arrives any more */

	pthread_mutex_t post;
	struct vrb_mem out;	   /* messages, by number */
	uint32_t sent;		   /* of them */
	_Atomic uint32_t credited; /* of them, received there */
	uint32_t given;		   /* of received, what the other end knows */
	uint32_t posted;	   /* requests */
	_Atomic uint32_t done;	   /* of them, over */

	/* Under the core's locks of the directions. */
	struct exi_stream_tx tx;
	struct exi_stream_rx rx;
	struct vrb_mem mirror; /* of the other end's ring */
	struct vrb_mem ring;
	uint64_t peer_addr;
	uint32_t peer_rkey;
};

/* Without a queue pair; pair is its own from here on. Null. */
struct vrb_link *vrb_link_new(int pair);
/* With one: its ring. -errno. */
int vrb_link_open(struct vrb_link *l);
/* The other end's ring is known: bytes can move. -EPROTO, -errno. */
int vrb_link_up(struct vrb_link *l, const struct vrb_ring *theirs);
/* Waits until what was posted has arrived. */
void vrb_link_drain(struct vrb_link *l, uint64_t deadline);
/* Its queue pair is gone. */
void vrb_link_free(struct vrb_link *l);

/* Under the core's lock of the direction: gives the engine what arrived. -EPROTO.
 */
int vrb_link_take(struct vrb_link *l, enum exi_dir dir);
/* The sender's messages without bytes. */
void vrb_link_answer(struct vrb_link *l);
/* The receiver's. */
void vrb_link_report(struct vrb_link *l, bool idle);

/* A message, with extra bytes after its header; credits are filled in. -EAGAIN:
 * no credit but for the reserve's users. */
int vrb_link_say(struct vrb_link *l, struct vrb_msg *m, const void *extra,
		 bool urgent, bool reserve);
/* Bytes at an offset of the mirror, and their note. -EAGAIN as above. */
int vrb_link_write(struct vrb_link *l, const void *from, uint32_t lkey,
		   uint64_t to, uint32_t rkey, uint32_t len, uint32_t kind);
/* A write would find a credit. */
bool vrb_link_writable(struct vrb_link *l);
/* Whatever arrives for the direction wakes who sleeps on stir, or rings the
 * pair link once. */
void vrb_link_want(struct vrb_link *l, enum exi_dir dir, bool word);
void vrb_link_want_no_more(struct vrb_link *l, enum exi_dir dir, bool word);
/* From the net, with its lock held: a note; a message. */
void vrb_link_noted(struct vrb_link *l, uint32_t note);
void vrb_link_heard(struct vrb_link *l, const struct vrb_msg *m, uint32_t len);
/* Gives credits back, when there are enough. */
void vrb_link_give(struct vrb_link *l);
/* Nothing arrives any more; the pair link hangs up. Any lock. */
void vrb_link_fail(struct vrb_link *l, int err, const char *why);
/* Our end of the pair link is readable. */
void vrb_link_pair_event(struct vrb_link *l);

/* --- connections (verbs_conn.c) ----------------------------------------- */

/* What the core's connection has of it. */
struct vrb_conn {
	struct vrb_link *link; /* null before it meets */
};

static inline struct vrb_conn *vrb_conn(struct exi_conn *c)
{
	return (struct vrb_conn *)c->priv;
}

extern const struct exi_conn_ops vrb_conn_ops;
extern const struct exi_switch_ops vrb_switch_ops;

/* --- meeting (verbs_meet.c) --------------------------------------------- */

extern const struct exi_remote_ops vrb_remote_ops;

/* An event of rdma_cm, if there is one. False: none. The service lock is held,
 * and let go for calls of the core. */
bool vrb_meet_event(void);
/* The connection is over: its queue pair goes, and the link with it. */
void vrb_meet_end(struct vrb_link *l);
/* CONFIRM or READY. With the net's lock held. */
void vrb_meet_heard(struct vrb_link *l, const struct vrb_msg *m,
		    const void *extra, uint32_t len);

#endif
