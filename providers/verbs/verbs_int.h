/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the verbs fabric share.
 *
 * Objects: a net is one device's protection domain with the queues that up to
 * VERBSP_SLOTS connections share (completion queues, receive queue, completion
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
#include "core/pact.h"
#include "core/proof.h"
#include "core/stream.h"
#include "providers/verbs/verbs_wire.h"

/* What the library gave the module; set before any other call. */
extern const struct exi_host *verbsp_host;
extern const struct exi_provider verbsp_provider;

#define verbsp_log(level, ...)                                                 \
	do {                                                                   \
		if ((level) <= *verbsp_host->log_level)                        \
			verbsp_host->log((level), __VA_ARGS__);                \
	} while (0)

#define VERBSP_WHY 256

/* --- devices (verbs_device.c) ------------------------------------------- */

/* A device that was opened, or why it was not. */
struct verbsp_device {
	const char *name;
	struct ibv_context *ctx; /* null: err */
	int err;		 /* of opening, asking or trying: -errno */
	char why[VERBSP_WHY];	 /* in words; "" when it can be used */
	struct ibv_device_attr attr;
	/* The kernel imitates the device: its TCP is faster, so such a one is
	 * used only where EXS_VERBS_DEVICE names it. */
	bool software;
	bool iwarp;
};

/* Every device of the host, in the order of its names: opened, judged, told to
 * look(), closed. look() returns false to end. -ENOENT: there is none, or no
 * support for them; why says which. */
int verbsp_each_device(bool (*look)(struct verbsp_device *d, void *arg),
		       void *arg, char *why, size_t len);

/* A name of EXS_VERBS_DEVICE that no device has; false: each is one's. */
bool verbsp_misnamed(char *ret, size_t len);

/* The configuration leaves it out: -ENODEV, and why. */
int verbsp_forbidden(const struct ibv_device *dev, char *why, size_t len);

/* By the index that EXS_VERBS_GID_INDEX names, or without it the one that
 * carries IP addresses and routes: RoCE v2 before v1. -ENOENT; -EAFNOSUPPORT:
 * the one named is no IP address. */
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

/* What an end of a connection locks. */
size_t verbsp_footprint(void);

/* --- nets (verbs_net.c) ------------------------------------------------- */

#define VERBSP_SLOTS 64u
/* Requests that a queue pair takes; a note of iWARP is two. */
#define VERBSP_SEND_DEPTH 256u
/* One of so many requests tells when it is over, and so are those before. */
#define VERBSP_SIGNAL_EVERY 16u

struct verbsp_link;

struct verbsp_slot {
	struct verbsp_link *link; /* null: free */
	uint32_t qp_num;
	uint32_t generation; /* 24 bits */
	/* VERBSP_CREDITS receive buffers, made when the slot is used first. */
	unsigned char *buffers;
	struct ibv_mr *mr;
};

struct verbsp_net {
	struct exi_list node;
	struct ibv_context *ctx;
	bool iwarp;
	unsigned int inline_max;
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct ibv_cq *received, *sent;
	struct ibv_comp_channel *channel;
	int timer; /* iWARP; -1 */
	/* Flags of links that want to be woken by whatever arrives; without any
	 * only by what its sender marked as urgent. */
	_Atomic unsigned int armed;
	_Atomic bool requested; /* the next completion, whatever it is */
	pthread_mutex_t lock;	/* taking from received, and the slots */
	pthread_mutex_t reap;	/* taking from sent, and the slots */
	struct verbsp_slot slot[VERBSP_SLOTS];
	unsigned int last;  /* slot of the last completion: a hint */
	uint32_t write_max; /* bytes of one request */
	pthread_mutex_t memory_lock;
	struct exi_list memory; /* registered with the device: verbs_place.c */
};

/* Gives the link of id a net of its device, a slot and a queue pair. -errno. */
int verbsp_net_join(struct verbsp_link *l, struct rdma_cm_id *id);
/* Takes the slot away: nobody comes to the link by the net any more. */
void verbsp_net_leave(struct verbsp_link *l);

/* Takes what arrived for every link of the net. None of the locks is held, but
 * perhaps the core's. How much it was. */
int verbsp_net_poll(struct verbsp_net *n);
/* The same, unless another thread is at it. */
int verbsp_net_try_poll(struct verbsp_net *n);
/* Requests of the net that are over. A post lock may be held. */
void verbsp_net_reap(struct verbsp_net *n);
/* A link sleeps: the next completion makes the channel readable. */
void verbsp_net_request(struct verbsp_net *n);
/* Each one; in a forked child. */
void verbsp_nets_each(void (*f)(struct verbsp_net *n));
/* The channel was readable. */
void verbsp_net_event(struct verbsp_net *n);

/* --- the domain (verbs_domain.c) ---------------------------------------- */

/* Guards what the service does: events of rdma_cm, links that come and go. Taken
 * inside the core's locks, so the core is not called with it. */
extern pthread_mutex_t verbsp_service_lock;
extern struct rdma_event_channel *verbsp_channel;

/* Events of a descriptor go to a net's channel, or a link's pair, or are called,
 * with the service lock held. */
enum verbsp_watch {
	VERBSP_WATCH_CM,
	VERBSP_WATCH_NET,
	VERBSP_WATCH_PAIR,
	VERBSP_WATCH_DEVICE,
	VERBSP_WATCH_CALL
};
struct verbsp_event {
	void (*call)(struct verbsp_event *e);
};
int verbsp_watch(int fd, enum verbsp_watch what, const void *whose);
void verbsp_unwatch(int fd);

/* verbsp_meet_look() and verbsp_doors_look() are called then, at the latest. The
 * service lock is held. */
void verbsp_look_at(uint64_t when);

/* rdma_cm has the device open: a forked child must not. */
void verbsp_device_seen(struct ibv_context *ctx);

extern const struct exi_domain_ops verbsp_domain_ops;
int verbsp_domain_open(struct exi_domain **ret);
void verbsp_domain_close(struct exi_domain *d);

/* --- links (verbs_link.c) ----------------------------------------------- */

/* What arrived for one of the engines, and waits for its lock. */
#define VERBSP_INBOX 128u /* more than credits allow */
struct verbsp_inbox {
	_Atomic unsigned int n;
	unsigned int first;
	struct exi_stream_msg msg[VERBSP_INBOX];
};

/* Where a request is in its order. */
struct verbsp_sent {
	uint32_t number; /* of the messages sent, its note's */
	uint32_t posted; /* of the requests posted */
};

struct verbsp_places;

struct verbsp_mem {
	unsigned char *at;
	uint32_t bytes;
	struct ibv_mr *mr;
};

struct verbsp_link {
	struct verbsp_net *net;
	unsigned int slot;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	int pair;			/* our end of the pair link */
	struct verbsp_meeting *meeting; /* until both ends are up; null */
	struct exi_pact_bond bond;	/* from then on */
	struct exi_list nudging;	/* A's: at that time, if not yet up */
	uint64_t nudge;

	pthread_mutex_t forward; /* from the pair link */
	_Atomic bool stuck;	 /* it waits for a credit */

	pthread_mutex_t in;
	struct verbsp_inbox inbox[2]; /* by enum exi_dir: whose engine */
	_Atomic uint32_t received;    /* messages */
	uint64_t arrived;	      /* bytes for the ring; the net's lock */
	_Atomic uint32_t stir;	      /* changes with whatever arrives */
	_Atomic uint32_t sleepers[2]; /* on stir */
	_Atomic bool bell[2];	      /* the next is to ring the pair link */
	_Atomic int err;	      /* -errno: nothing arrives any more */
	_Atomic bool owes;	 /* bytes came that the other end waits for */
	_Atomic bool unsaid;	 /* the receiver waits for a credit, */
	_Atomic bool unanswered; /* the sender */
	_Atomic bool dead;	 /* the queue pair takes nothing any more */

	pthread_mutex_t post;
	struct verbsp_mem out;	   /* messages, by number */
	uint32_t sent;		   /* of them */
	_Atomic uint32_t credited; /* of them, received there */
	uint32_t given;		   /* of received, what the other end knows */
	uint32_t posted;	   /* requests */
	_Atomic uint32_t done;	   /* of them, over */

	/* Under the core's locks of the directions. */
	struct exi_stream_tx tx;
	struct exi_stream_rx rx;
	struct verbsp_mem mirror; /* of the other end's ring */
	struct verbsp_mem ring;
	uint64_t peer_addr;
	uint32_t peer_rkey;
	struct verbsp_places *places; /* null until used first; both locks */
	_Atomic uint32_t placed; /* the last request from a program's memory */
	uint32_t held;		 /* bytes of it that the core sends anew */
};

/* Of a ring: what the configuration says, but not more than the largest. */
uint32_t verbsp_ring_bytes(void);
/* Memory for a device, that no forked child has. Null. */
void *verbsp_map(size_t len);
/* Without a queue pair; pair is its own from here on. Null. */
struct verbsp_link *verbsp_link_new(int pair);
/* With one: its ring. -errno. */
int verbsp_link_open(struct verbsp_link *l);
/* The other end's ring is known: bytes can move. -EPROTO, -errno. */
int verbsp_link_up(struct verbsp_link *l, const struct verbsp_ring *theirs);
/* Without one: its memory is gone, for another queue pair. */
void verbsp_link_close(struct verbsp_link *l);
/* Waits until what was posted has arrived. */
void verbsp_link_drain(struct verbsp_link *l, uint64_t deadline);
/* Its queue pair is gone: no device uses its memory. */
void verbsp_link_unpin(struct verbsp_link *l);
void verbsp_link_free(struct verbsp_link *l);

/* Under the core's lock of the direction: gives the engine what arrived. -EPROTO.
 */
int verbsp_link_take(struct verbsp_link *l, enum exi_dir dir);
/* The same: what lies in the ring goes into the receives that are posted. */
void verbsp_link_copy(struct verbsp_link *l);
/* The sender's messages without bytes. */
void verbsp_link_answer(struct verbsp_link *l);
/* The receiver's. */
void verbsp_link_report(struct verbsp_link *l, bool idle);

/* A message, with extra bytes after its header; credits are filled in. -EAGAIN:
 * no credit but for the reserve's users. */
int verbsp_link_say(struct verbsp_link *l, struct verbsp_msg *m,
		    const void *extra, bool urgent, bool reserve);
/* Bytes and their note. -EAGAIN as above. ret is null, or says which it was, and
 * the device tells when it is done. */
int verbsp_link_write(struct verbsp_link *l, const void *from, uint32_t lkey,
		      uint64_t to, uint32_t rkey, uint32_t len, uint32_t kind,
		      struct verbsp_sent *ret);
/* A write would find a credit. */
bool verbsp_link_writable(struct verbsp_link *l);
/* Whatever arrives for the direction wakes who sleeps on stir, or rings the
 * pair link once. */
void verbsp_link_want(struct verbsp_link *l, enum exi_dir dir, bool word);
void verbsp_link_want_no_more(struct verbsp_link *l, enum exi_dir dir,
			      bool word);
/* From the net, with its lock held: a note; a message. */
void verbsp_link_noted(struct verbsp_link *l, uint32_t note);
void verbsp_link_heard(struct verbsp_link *l, const struct verbsp_msg *m,
		       uint32_t len);
/* Gives credits back, when there are enough. */
void verbsp_link_give(struct verbsp_link *l);
/* Nothing arrives any more; the pair link hangs up. Any lock. */
void verbsp_link_fail(struct verbsp_link *l, int err, const char *why);
/* The queue pair takes and sends nothing any more, from here on. Any lock. */
void verbsp_link_kill(struct verbsp_link *l);
/* Our end of the pair link is readable. */
void verbsp_link_pair_event(struct verbsp_link *l);

/* --- connections (verbs_conn.c) ----------------------------------------- */

/* What the core's connection has of it. */
struct verbsp_conn {
	struct verbsp_link *link; /* null before it meets */
};

static inline struct verbsp_conn *verbsp_conn(struct exi_conn *c)
{
	return (struct verbsp_conn *)c->priv;
}

extern const struct exi_conn_ops verbsp_conn_ops;
extern const struct exi_switch_ops verbsp_switch_ops;

/* --- transfers without a copy (verbs_place.c) --------------------------- */

extern const struct exi_place_ops verbsp_place_ops;

/* The first of the sends that are under way was received. TX lock. */
bool verbsp_place_over(struct verbsp_link *l);
/* The queue pair is gone, and what was sent before is not repeated by it: memory
 * that was registered for transfers. */
void verbsp_place_unpin(struct verbsp_link *l);
void verbsp_place_free(struct verbsp_link *l);
/* The same: sends that were not received, and are the last of the stream, are
 * the core's again, l->held bytes. -ECONNRESET: others followed, and it may lack
 * those before them. TX lock. */
int verbsp_place_forgo(struct verbsp_link *l);

/* --- doors (verbs_door.c) ----------------------------------------------- */

/* This process can be asked for connections to the port of TCP, by itself or
 * through who came first. Counted. */
int verbsp_door_listen(struct exi_domain *domain, uint16_t port);
void verbsp_door_unlisten(struct exi_domain *domain, uint16_t port);

/* With the service lock held. Which port a listener of ours is for; 0. *ret_front:
 * A asked there by itself, and was not sent. */
uint16_t verbsp_door_port(const struct rdma_cm_id *listener, bool *ret_front);
/* Asks the other processes of the port for the connection of a REQUEST that was
 * taken. True: id and pact are its own from here on. */
bool verbsp_door_ask(uint16_t port, struct rdma_cm_id *id,
		     const struct verbsp_asked *asked, struct exi_pact *pact);
void verbsp_doors_look(uint64_t now);

void verbsp_doors_forked(void);

/* --- meeting (verbs_meet.c) --------------------------------------------- */

extern const struct exi_remote_ops verbsp_remote_ops;

/* With the domain. */
void verbsp_meet_open(void);
void verbsp_meet_close(void);

/* With the service lock held. The key; null. */
const struct exi_key *verbsp_meet_key(void);
/* Whether REQUEST was written by a holder of the key, for which ends; the pact is
 * ready to answer it. 0, or the enum exi_pact_why to refuse it with. */
int verbsp_meet_check(const struct verbsp_asked *asked, struct exi_tuple *ret,
		      struct exi_pact *ret_pact);
/* Rejects, and destroys the id. The pact may be null. */
void verbsp_meet_refuse(struct rdma_cm_id *id, struct exi_pact *pact, int why);
void verbsp_meet_reject(struct rdma_cm_id *id, const struct exi_pact_reject *r);
/* Links that are to ask again. */
void verbsp_meet_look(uint64_t now);

void verbsp_sockaddr(const uint8_t ip[16], uint16_t port, uint32_t scope,
		     struct sockaddr_storage *ret);
bool verbsp_is_four(const uint8_t ip[16]);
/* Where the fabric listens for a port of TCP. */
uint16_t verbsp_port_for(uint16_t tcp);

/* An event of rdma_cm, if there is one. False: none. The service lock is held,
 * and let go for calls of the core. */
bool verbsp_meet_event(void);
/* Its queue pair goes, and with it all that could arrive. Twice is once. */
void verbsp_meet_sever(struct verbsp_link *l);
/* The connection is over, and the link goes, too. */
void verbsp_meet_end(struct verbsp_link *l);
/* CONFIRM or READY. With the net's lock held. */
void verbsp_meet_heard(struct verbsp_link *l, const struct verbsp_msg *m,
		       const void *extra, uint32_t len);

/* --- failing (verbs_fail.c) --------------------------------------------- */

/* The device tells of its events from now on. -errno. */
int verbsp_fail_watch(struct ibv_context *ctx);
/* It has some. The service lock is held. */
void verbsp_fail_event(struct ibv_context *ctx);

/* Of struct exi_remote_ops. */
int verbsp_fail_sever(struct exi_conn *c);
uint32_t verbsp_fail_position(struct exi_conn *c, enum exi_dir dir);
uint32_t verbsp_fail_resend(struct exi_conn *c);
void verbsp_fail_resume(struct exi_conn *c, enum exi_dir dir, uint32_t epoch,
			uint64_t position, uint8_t ret[EXI_RESUME]);

#endif
