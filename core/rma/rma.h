/* SPDX-License-Identifier: BSD-2-Clause */
/* Fabrics whose device writes into the memory of another host: the code they
 * share, and the calls that each must supply. docs/design/wire-verbs.md
 * describes the wire, docs/design/stream.md the stream engine above it.
 *
 * A module that links these files is one fabric, and defines exi_rma_fabric;
 * the tables of its struct exi_provider are those of this folder.
 *
 * Objects: a net is what connections of one device share (queues, receive
 * buffers); a link is one connection's queue pair, or what stands for it, and
 * what arrived on it. The fabric has a structure of its own around each.
 *
 * Locks, in order: the core's locks of a socket; the service lock; a net's lock
 * (taking completions); a link's `post` (posting, credits). No lock of the core
 * is taken here. */
#ifndef EXI_CORE_RMA_RMA_H
#define EXI_CORE_RMA_RMA_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/list.h"
#include "core/base/proof.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/rma/lock.h"
#include "core/rma/stream.h"
#include "core/rma/watch.h"
#include "core/trust/auth.h"

struct exi_auth_reject;
struct exi_rma_link;
struct exi_rma_meeting;
struct exi_rma_msg;
struct exi_rma_net;
struct exi_rma_places;

#define exi_rma_log(level, fmt, ...)                                           \
	do {                                                                   \
		if ((level) <= __atomic_load_n(exi_rma_host->log_level,        \
					       __ATOMIC_RELAXED))              \
			exi_rma_host->log((level), "%s: " fmt,                 \
					  exi_rma_fabric.provider->name,       \
					  ##__VA_ARGS__);                      \
	} while (0)

#define EXI_RMA_WHY 256

/* --- what a fabric gives ------------------------------------------------ */

/* Requests that a link takes; a note without immediate data counts as two. */
#define EXI_RMA_SEND_DEPTH 256u
/* One request in this many reports its completion, and with it the completion
 * of all before it. */
#define EXI_RMA_SIGNAL_EVERY 16u

/* Registered memory, which the device may use. */
struct exi_rma_mr {
	void *handle;	/* the fabric's; null: none */
	uint64_t key;	/* what the other end shows to write there */
	uint64_t shift; /* what is added to an address for the other end */
};

enum exi_rma_access {
	EXI_RMA_READ,	/* this end sends from there */
	EXI_RMA_FILL,	/* this end receives there, too */
	EXI_RMA_REMOTE, /* the other end may write there, too */
};

enum exi_rma_op {
	EXI_RMA_SEND,
	EXI_RMA_WRITE,
	EXI_RMA_WRITE_NOTE, /* a write that also carries the note */
};

/* A request. A buffer of up to net.inline_max bytes is the caller's again at
 * once, and needs no mr. */
struct exi_rma_req {
	enum exi_rma_op op;
	bool urgent; /* wakes the other end's service */
	bool tell;   /* the device reports completion, soon */
	bool last;   /* done: when it arrived, and all before it */
	uint32_t len;
	uint32_t note;
	const void *from;
	const struct exi_rma_mr *mr; /* from's */
	uint64_t to, key;
};

struct exi_rma_fabric {
	const struct exi_provider *provider;
	/* The size of the fabric's structure, which begins with the link. */
	size_t link_size;

	/* Registers memory at a net that the link has joined. 0 or -errno. */
	int (*reg)(struct exi_rma_net *n, void *addr, size_t len,
		   enum exi_rma_access access, struct exi_rma_mr *ret);
	void (*dereg)(struct exi_rma_mr *m);

	/* Posts one request, or two that follow each other, with the post lock
	 * held. l->posted counts them, and l->done when they are over. -EAGAIN:
	 * none was taken, or not the last, and the call may be repeated; other
	 * errors end the link. */
	int (*post)(struct exi_rma_link *l, const struct exi_rma_req *r,
		    unsigned int n);
	/* Takes what arrived for every link of the net, and calls
	 * exi_rma_link_heard() and _noted(). Returns how much. The net's lock
	 * is held. */
	int (*take)(struct exi_rma_net *n);
	/* Counts requests that are over. A post lock may be held. */
	void (*reap)(struct exi_rma_net *n);
	/* A link sleeps: the next message that arrives must make the service
	 * poll. */
	void (*request)(struct exi_rma_net *n);
	/* Ends the link: nothing arrives or is taken any more. Any lock. */
	void (*kill)(struct exi_rma_link *l);

	void (*each_net)(void (*f)(struct exi_rma_net *n));
	/* The net's lock is held. */
	void (*each_link)(struct exi_rma_net *n,
			  void (*f)(struct exi_rma_link *l));

	/* The handshake; the service lock is held. port_for: the fabric's port
	 * for a TCP port. */
	uint16_t (*port_for)(uint16_t tcp);
	const char *port_setting; /* the setting that port_for() goes by */
	/* A listener cannot be bound to one address of the host. */
	bool any_address;
	/* Listens at an address and a port of the fabric; 0: a free one. Every
	 * REQUEST there comes to exi_rma_meet_request(). 0 or -errno. */
	int (*listen)(const struct exi_listening *at, void **ret_listener);
	void (*unlisten)(void *listener);
	uint16_t (*port_of)(const void *listener);
	/* Begins to ask for l->meeting's connection at its port. -errno: there
	 * is no memory; other errors are reported later, by exi_rma_meet_fail()
	 * and the like. */
	int (*ask)(struct exi_rma_link *l);
	/* Undoes ask(), as if it had not been called. */
	void (*part)(struct exi_rma_link *l);
	/* Accepts the asker, which belongs to the link from here on. */
	void (*accept)(struct exi_rma_link *l, void *asker);
	/* Sends the asker the refusal, and destroys it. */
	void (*reject)(void *asker, const struct exi_auth_reject *r);
	/* CONFIRM or READY came over the link. The net's lock is held. */
	void (*proof)(struct exi_rma_link *l, const struct exi_rma_msg *m,
		      const void *extra, uint32_t len);
	/* Destroys the queue pair, after which nothing can arrive.
	 * Idempotent. */
	void (*sever)(struct exi_rma_link *l);
	/* Nothing of the link uses its net any more; may be null. */
	void (*quit)(struct exi_rma_link *l);
	void (*look)(uint64_t now); /* see exi_rma_tick_at(); may be null */

	/* The domain's calls, as in struct exi_provider; each may be null. */
	int (*open)(void);
	void (*close)(void);
	/* Before the service sleeps: as in struct exi_domain_ops; may be
	 * null. */
	int (*arm)(void);
	void (*forked)(void);
};

/* The calls of the device: verbs or ofi. */
extern const struct exi_rma_fabric exi_rma_fabric;

/* The common part of a net, with which the fabric's begins. */
struct exi_rma_net {
	bool notes; /* there is no immediate data: notes are messages */
	bool early; /* requests are over before they have arrived */
	/* Up to this many bytes travel in one message with their note and
	 * credits; at most EXI_RMA_EAGER. 0: none. */
	uint32_t eager;
	/* Several links share the queue: the memory of requests in flight when
	 * a link leaves may still be read or written for a while, and this must
	 * not fail. */
	bool lingers;
	bool software; /* the kernel emulates the device */
	bool quick;    /* a look at the device costs no more than a lock */
	unsigned int inline_max;
	uint32_t write_max; /* bytes of one request */
	/* Large sends that are copied go out in pieces of at most this size, so
	 * that the device works on one while the next is copied. */
	uint32_t piece_max;
	/* Flags of links that any arrival must wake; without a flag, only
	 * messages that their sender marked as urgent wake. */
	_Atomic unsigned int armed;
	struct exi_rma_lock lock; /* taking what arrived, and slots of links */
	/* The link of this net that owes credits which are not urgent; under
	 * lock. */
	struct exi_rma_link *debtor;
	bool reminded; /* the service will look at debtor; under lock */
	/* Debts since the reminder; and the reminder's delay, in units of
	 * DEBT_NS. Under lock. */
	unsigned int debts, debt_wait;
	struct exi_list reminder;
	pthread_mutex_t memory_lock;
	struct exi_list memory; /* registered with the device: place.c */
};

/* A watched descriptor. call() is called when it is readable, with the service
 * lock held. */
struct exi_rma_event {
	void (*call)(struct exi_rma_event *e);
	struct exi_list resting; /* exi_rma_pause() */
	int fd;
	uint64_t until;
};

/* Whether an error of accept(2) leaves the connection in the queue. */
static inline bool exi_rma_starved(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOBUFS ||
	       err == ENOMEM;
}

/* The calls that the domain makes to the rest of core/rma. */
struct exi_rma_work {
	/* A time that was passed to exi_rma_tick_at() has come. */
	void (*look)(uint64_t now);
	/* In a forked child, before the fabric learns of the fork. */
	void (*forked)(void);
};

/* --- links (link.c, post.c, engine.c) ----------------------------------- */

/* Messages that arrived for one of the engines, and wait for its lock: put
 * there with the net's lock held, taken with the engine's. */
#define EXI_RMA_INBOX 128u /* more than credits allow */
struct exi_rma_inbox {
	_Atomic uint32_t put, taken; /* messages */
	/* Bytes of the ring are added to a message of such bytes that still
	 * waits: its length may grow until it is taken. */
	_Atomic uint32_t len[EXI_RMA_INBOX];
	struct exi_stream_msg msg[EXI_RMA_INBOX];
};

/* The place of a request in the order of its link. */
struct exi_rma_sent {
	uint32_t number; /* the number of the note among the messages sent */
	uint32_t posted; /* number among the requests posted */
};

struct exi_rma_mem {
	unsigned char *at;
	uint32_t bytes;
	struct exi_rma_mr mr;
};

/* The address of the other end's ring. */
struct exi_rma_ring {
	uint64_t addr, key;
	uint32_t bytes;
};

/* How soon a received message must be acknowledged, before credits are due
 * anyway. */
enum exi_rma_owe {
	EXI_RMA_OWE_NOT,
	EXI_RMA_OWE_SOON,
	EXI_RMA_OWE_NOW,
};

/* The common part of a link, with which the fabric's begins. */
struct exi_rma_link {
	struct exi_rma_net *net;      /* null: no net is joined */
	int pair;		      /* our end of the pair link */
	struct exi_rma_event on_pair; /* pair is readable */
	/* The name by which the other end knows the link; 0: its queue pair. */
	uint32_t name;
	bool connects;			 /* the end that asked */
	struct exi_rma_meeting *meeting; /* until both ends are up, then null */
	struct exi_auth_bond bond;	 /* from when both ends are up */
	/* Among links that wait for an advert, until hope. */
	struct exi_list hoping;
	uint64_t hope;

	pthread_mutex_t forward; /* locks forwarding from the pair link */
	_Atomic bool stuck;	 /* forwarding waits for a credit */

	struct exi_rma_inbox inbox[2]; /* by enum exi_dir: for whose engine */
	_Atomic uint32_t received;     /* messages */
	uint64_t arrived;	       /* bytes for the ring; the net's lock */
	_Atomic uint32_t stir;	       /* changes with every arrival */
	_Atomic uint32_t sleepers[2];  /* on stir */
	_Atomic bool bell[2]; /* the next message is to ring the pair link */
	_Atomic int err;      /* -errno: nothing arrives any more */
	_Atomic bool owes;    /* bytes came that the other end waits for */
	/* The debt once the messages count as received; the net's lock. */
	enum exi_rma_owe will_owe;
	_Atomic bool unsaid;	 /* the receiver's message waits for a credit */
	_Atomic bool unanswered; /* the sender's message waits for a credit */
	_Atomic bool dead;	 /* the queue pair takes nothing any more */
	_Atomic bool closed;	 /* the other end has sent that it leaves */

	struct exi_rma_lock post;
	struct exi_rma_mem out; /* messages under way, by number */
	uint32_t sent;		/* messages sent */
	/* Messages sent that the other end received. */
	_Atomic uint32_t credited;
	uint32_t end;	 /* the number of END, or of the message with CLOSES, */
	bool said_end;	 /* if it was sent */
	uint32_t given;	 /* the count of received that the other end knows */
	uint32_t posted; /* requests posted */
	_Atomic uint32_t done; /* requests that are over */

	/* The engines; under the core's locks of the directions. */
	struct exi_stream_tx tx;
	struct exi_stream_rx rx;
	struct exi_rma_mem mirror; /* a copy of the other end's ring */
	struct exi_rma_mem ring;
	struct exi_rma_ring peer;
	bool leaves; /* this end leaves, and has not sent so yet */
	/* Null until first used; the halves are under the directions' locks. */
	_Atomic(struct exi_rma_places *) places;
	/* The last request from the program's memory. */
	_Atomic uint32_t placed;
	uint32_t held; /* bytes of the program's memory to be drained */
	bool forsaken; /* the held bytes are lost */
};

/* Whether the inbox is empty, as seen by the thread that takes. */
static inline bool exi_rma_inbox_empty(struct exi_rma_inbox *b)
{
	return atomic_load(&b->put) ==
	       atomic_load_explicit(&b->taken, memory_order_relaxed);
}

/* --- connections (conn.c) ----------------------------------------------- */

/* The part of a link that the core's connection has. */
struct exi_rma_conn {
	struct exi_rma_link *link; /* null before the handshake */
};

/* The link of the core's connection; null before the handshake. */
static inline struct exi_rma_link *exi_rma_link_of(struct exi_conn *c)
{
	return ((struct exi_rma_conn *)c->priv)->link;
}

/* --- meeting (meet.c) --------------------------------------------------- */

/* The state of a handshake; under the service lock, unless stated otherwise. */
struct exi_rma_meeting {
	struct exi_tuple tuple;
	struct exi_auth auth;
	/* Used only by the end that connects. */
	uint16_t port; /* where this end asks */
	bool redirected;
	unsigned int tries;
	uint64_t again;
	struct exi_list waiting; /* until `again` */
	struct exi_rma_link *link;
};

#endif
