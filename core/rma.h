/* SPDX-License-Identifier: BSD-2-Clause */
/* Fabrics whose device writes into the memory of another host: what they share,
 * and what each of them gives. docs/design/wire-verbs.md tells of the wire,
 * docs/design/stream.md of the engine that rides on it.
 *
 * A module that links these files is one fabric, and defines exi_rma_fabric; the
 * tables of its struct exi_provider are those of this header.
 *
 * Objects: a net is what connections of one device share (queues, receive
 * buffers); a link is one connection's queue pair, or what stands for it, and
 * what arrived on it. The fabric has a structure of its own around each.
 *
 * Locks, in their order: the core's of a socket; the service lock; a net's
 * (taking completions); a link's `post` (posting, credits). No lock of the core is
 * taken here. */
#ifndef EXI_CORE_RMA_H
#define EXI_CORE_RMA_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "core/list.h"
#include "core/log.h"
#include "core/module.h"
#include "core/pact.h"
#include "core/proof.h"
#include "core/rma_lock.h"
#include "core/rma_wire.h"
#include "core/stream.h"

/* What the library gave the module; set before any other call. */
extern const struct exi_host *exi_rma_host;

#define exi_rma_log(level, fmt, ...)                                           \
	do {                                                                   \
		if ((level) <= *exi_rma_host->log_level)                       \
			exi_rma_host->log((level), "%s: " fmt,                 \
					  exi_rma_fabric.provider->name,       \
					  ##__VA_ARGS__);                      \
	} while (0)

#define EXI_RMA_WHY 256

struct exi_rma_link;
struct exi_rma_net;

/* --- what a fabric gives ------------------------------------------------ */

/* Requests that a link takes; a note without immediate data is two. */
#define EXI_RMA_SEND_DEPTH 256u
/* One of so many requests tells when it is over, and so are those before. */
#define EXI_RMA_SIGNAL_EVERY 16u

/* Memory that the device may use. */
struct exi_rma_mr {
	void *handle;	/* the fabric's; null: none */
	uint64_t key;	/* what the other end shows to write there */
	uint64_t shift; /* what is added to an address for the other end */
};

enum exi_rma_access {
	EXI_RMA_READ,	/* it sends from there */
	EXI_RMA_FILL,	/* it receives there, too */
	EXI_RMA_REMOTE, /* and the other end may write there */
};

enum exi_rma_op {
	EXI_RMA_SEND,
	EXI_RMA_WRITE,
	EXI_RMA_WRITE_NOTE, /* and tells the note */
};

/* A request. Up to net.inline_max bytes are the caller's again at once, and need
 * no mr. */
struct exi_rma_req {
	enum exi_rma_op op;
	bool urgent; /* wakes the other end's service */
	bool tell;   /* the device says when it is done, soon */
	bool last;   /* done: when it arrived, and all before it */
	uint32_t len;
	uint32_t note;
	const void *from;
	const struct exi_rma_mr *mr; /* of from */
	uint64_t to, key;
};

struct exi_rma_fabric {
	const struct exi_provider *provider;
	size_t link_size; /* of its structure, which begins with the core's */

	/* -errno. The net is the link's, which has joined it. */
	int (*reg)(struct exi_rma_net *n, void *addr, size_t len,
		   enum exi_rma_access access, struct exi_rma_mr *ret);
	void (*dereg)(struct exi_rma_mr *m);

	/* One request, or two that follow each other, with the post lock held:
	 * counted by l->posted, and told of by l->done when they are over.
	 * -EAGAIN: none was taken, or not the last, and it may be repeated; other
	 * errors end the link. */
	int (*post)(struct exi_rma_link *l, const struct exi_rma_req *r,
		    unsigned int n);
	/* Takes what arrived for every link of the net, and calls
	 * exi_rma_link_heard() and _noted(). The net's lock is held. How much it
	 * was. */
	int (*take)(struct exi_rma_net *n);
	/* Requests that are over. A post lock may be held. */
	void (*reap)(struct exi_rma_net *n);
	/* A link sleeps: the next that arrives is polled by the service. */
	void (*request)(struct exi_rma_net *n);
	/* Nothing arrives any more, nor is taken. Any lock. */
	void (*kill)(struct exi_rma_link *l);

	void (*each_net)(void (*f)(struct exi_rma_net *n));
	/* With the net's lock held. */
	void (*each_link)(struct exi_rma_net *n,
			  void (*f)(struct exi_rma_link *l));

	/* Meeting, with the service lock held. The fabric's port for one of
	 * TCP. */
	uint16_t (*port_for)(uint16_t tcp);
	const char *port_setting; /* that it goes by */
	bool any_address; /* it cannot listen at one of the host's alone */
	/* Listens at an address and a port of the fabric's, 0: one that is free.
	 * What is asked there comes to exi_rma_meet_request(). -errno. */
	int (*listen)(const struct exi_listening *at, void **ret_listener);
	void (*unlisten)(void *listener);
	uint16_t (*port_of)(const void *listener);
	/* Begins to ask for l->meeting's connection at its port. -errno: there
	 * is no memory; all else is told later, by exi_rma_meet_fail() and the
	 * like. */
	int (*ask)(struct exi_rma_link *l);
	/* As if nobody was asked. */
	void (*part)(struct exi_rma_link *l);
	/* Who asked is the link's from here on, and gets its ANSWER. */
	void (*accept)(struct exi_rma_link *l, void *asker);
	/* Tells who asked, and destroys it. */
	void (*reject)(void *asker, const struct exi_pact_reject *r);
	/* CONFIRM or READY came over the link. With the net's lock held. */
	void (*proof)(struct exi_rma_link *l, const struct exi_rma_msg *m,
		      const void *extra, uint32_t len);
	/* Its queue pair goes, and with it all that could arrive. Twice is
	 * once. */
	void (*sever)(struct exi_rma_link *l);
	/* Nothing of the link uses its net any more; may be null. */
	void (*quit)(struct exi_rma_link *l);
	void (*look)(uint64_t now); /* as exi_rma_look_at() said; may be null */

	/* The domain, as in struct exi_provider. */
	int (*open)(void);
	void (*close)(void);
	/* Before the service sleeps: as in struct exi_domain_ops; may be null. */
	int (*arm)(void);
	void (*forked)(void);
};

extern const struct exi_rma_fabric exi_rma_fabric;

/* Begins the fabric's. */
struct exi_rma_net {
	bool notes; /* there is no immediate data: notes are messages */
	bool early; /* requests are over before they have arrived */
	/* So few bytes come with their note, in a message, and credits with them;
	 * at most EXI_RMA_EAGER. 0: none. */
	uint32_t eager;
	/* Its queue is not the link's alone: what was under way when a link
	 * left may still be read or written, for a while, and must not fail. */
	bool lingers;
	bool software; /* the kernel imitates the device */
	bool quick;    /* it is asked as quickly as a lock is taken */
	unsigned int inline_max;
	uint32_t write_max; /* bytes of one request */
	/* Large sends that are copied go out in pieces of at most this, so that
	 * the device works while the next is copied. */
	uint32_t piece_max;
	/* Flags of links that want to be woken by whatever arrives; without any
	 * only by what its sender marked as urgent. */
	_Atomic unsigned int armed;
	struct exi_rma_lock lock; /* taking what arrived, and slots of links */
	/* Of its links, one that owes credits which are not urgent; the lock. */
	struct exi_rma_link *debtor;
	bool reminded; /* the service will look at it; the lock */
	/* Since it was reminded; and how long it takes, in DEBT_NS. The lock. */
	unsigned int debts, debt_wait;
	struct exi_list reminder;
	pthread_mutex_t memory_lock;
	struct exi_list memory; /* registered with the device: rma_place.c */
};

void exi_rma_net_init(struct exi_rma_net *n);
/* Takes what arrived. None of the locks is held, but perhaps the core's. How much
 * it was. */
int exi_rma_net_poll(struct exi_rma_net *n);
/* Gives back credits that are owed. The net's lock is held. */
void exi_rma_net_pay(struct exi_rma_net *n);
/* With the net's lock. */
static inline int exi_rma_net_take(struct exi_rma_net *n)
{
	int ret = exi_rma_fabric.take(n);

	if (!ret && exi_unlikely(n->debtor))
		exi_rma_net_pay(n);
	return ret;
}
/* The same, unless another thread is at it; up to so many times, until there is
 * something. */
static inline int exi_rma_net_look(struct exi_rma_net *n, unsigned int looks)
{
	int ret;

	if (!exi_rma_trylock(&n->lock))
		return 0;
	do
		ret = exi_rma_net_take(n);
	while (!ret && --looks);
	exi_rma_unlock(&n->lock);
	return ret;
}
static inline int exi_rma_net_try_poll(struct exi_rma_net *n)
{
	return exi_rma_net_look(n, 1);
}
/* No link has it: what of the program's memory it knows is forgotten, and of links
 * that were. The service lock is held. */
void exi_rma_net_fini(struct exi_rma_net *n);

/* --- the domain (rma_domain.c) ------------------------------------------ */

/* Guards what the service does: meetings, links that come and go. Taken inside
 * the core's locks, so the core is not called with it. */
extern pthread_mutex_t exi_rma_service_lock;

/* Called when a descriptor is readable, with the service lock held. */
struct exi_rma_event {
	void (*call)(struct exi_rma_event *e);
	struct exi_list resting; /* exi_rma_rest() */
	int fd;
	uint64_t until;
};
int exi_rma_watch(int fd, struct exi_rma_event *e);
/* Only when more comes. */
int exi_rma_watch_edge(int fd, struct exi_rma_event *e);
/* Once, by EPOLLIN or EPOLLOUT, until this is called again. */
int exi_rma_watch_once(int fd, struct exi_rma_event *e, uint32_t events);
/* Stops watching for a tenth of a second. What it tells of cannot be taken, as a
 * connection for which there is no descriptor, and would be told of again and
 * again. */
void exi_rma_rest(int fd, struct exi_rma_event *e);
void exi_rma_unwatch(int fd);
/* An error of accept(2) after which what waits stays there. */
static inline bool exi_rma_starved(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOBUFS ||
	       err == ENOMEM;
}

/* exi_rma_work.look and the fabric's look are called then, at the latest. The
 * service lock is held. */
void exi_rma_look_at(uint64_t when);

/* What the domain calls of those that stand on it. */
struct exi_rma_work {
	/* A time that exi_rma_look_at() named has come. */
	void (*look)(uint64_t now);
	/* In a forked child, before the fabric hears of it. */
	void (*forked)(void);
};

extern const struct exi_domain_ops exi_rma_domain_ops;
int exi_rma_domain_open(const struct exi_rma_work *w, struct exi_domain **ret);
void exi_rma_domain_close(struct exi_domain *d);

/* Opens the domain with the work of all that is in these files (rma_conn.c). */
int exi_rma_open(struct exi_domain **ret);

/* --- links (rma_link.c) ------------------------------------------------- */

/* What arrived for one of the engines, and waits for its lock: put there with the
 * net's lock held, taken with the engine's. */
#define EXI_RMA_INBOX 128u /* more than credits allow */
struct exi_rma_inbox {
	_Atomic uint32_t put, taken; /* messages */
	/* Bytes of the ring join those that wait before them: a message's length
	 * may grow until it is taken. */
	_Atomic uint32_t len[EXI_RMA_INBOX];
	struct exi_stream_msg msg[EXI_RMA_INBOX];
};

/* Where a request is in its order. */
struct exi_rma_sent {
	uint32_t number; /* of the messages sent, its note's */
	uint32_t posted; /* of the requests posted */
};

struct exi_rma_places;

struct exi_rma_mem {
	unsigned char *at;
	uint32_t bytes;
	struct exi_rma_mr mr;
};

/* Where the other end's ring is. */
struct exi_rma_ring {
	uint64_t addr, key;
	uint32_t bytes;
};

/* What is heard may have to be acknowledged, before the credits that are due. */
enum exi_rma_owe {
	EXI_RMA_OWE_NOT,
	EXI_RMA_OWE_SOON,
	EXI_RMA_OWE_NOW,
};

/* Begins the fabric's. */
struct exi_rma_link {
	struct exi_rma_net *net;      /* null: it has not joined one */
	int pair;		      /* our end of the pair link */
	struct exi_rma_event on_pair; /* it is readable */
	uint32_t name; /* what the other end knows the link by; 0: it does */
	bool connects; /* the end that asked */
	struct exi_rma_meeting *meeting; /* until both ends are up; null */
	struct exi_pact_bond bond;	 /* from then on */
	struct exi_list hoping;		 /* for an advert, until then */
	uint64_t hope;

	pthread_mutex_t forward; /* from the pair link */
	_Atomic bool stuck;	 /* it waits for a credit */

	struct exi_rma_inbox inbox[2]; /* by enum exi_dir: whose engine */
	_Atomic uint32_t received;     /* messages */
	uint64_t arrived;	       /* bytes for the ring; the net's lock */
	_Atomic uint32_t stir;	       /* changes with whatever arrives */
	_Atomic uint32_t sleepers[2];  /* on stir */
	_Atomic bool bell[2];	       /* the next is to ring the pair link */
	_Atomic int err;	       /* -errno: nothing arrives any more */
	_Atomic bool owes; /* bytes came that the other end waits for */
	/* When they count as received; the net's lock. */
	enum exi_rma_owe will_owe;
	_Atomic bool unsaid;	 /* the receiver waits for a credit, */
	_Atomic bool unanswered; /* the sender */
	_Atomic bool dead;	 /* the queue pair takes nothing any more */
	_Atomic bool closed;	 /* the other end said so */

	struct exi_rma_lock post;
	struct exi_rma_mem out;	   /* messages, by number */
	uint32_t sent;		   /* of them */
	_Atomic uint32_t credited; /* of them, received there */
	uint32_t end;		   /* the number of END, or what closes, */
	bool said_end;		   /* if it was sent */
	uint32_t given;		   /* of received, what the other end knows */
	uint32_t posted;	   /* requests */
	_Atomic uint32_t done;	   /* of them, over */

	/* Under the core's locks of the directions. */
	struct exi_stream_tx tx;
	struct exi_stream_rx rx;
	struct exi_rma_mem mirror; /* of the other end's ring */
	struct exi_rma_mem ring;
	struct exi_rma_ring peer;
	bool leaves; /* and has yet to say so */
	/* Null until used first; its halves are under the directions' locks. */
	_Atomic(struct exi_rma_places *) places;
	_Atomic uint32_t placed; /* the last request from a program's memory */
	uint32_t held;		 /* bytes of it that are to be drained */
	bool forsaken;		 /* or are lost */
};

/* Of a ring: what the configuration says, but not more than the largest. */
uint32_t exi_rma_ring_bytes(void);
/* What an end of a connection locks: its ring, the other's mirror, messages
 * that it sends and buffers for those that come. */
size_t exi_rma_footprint(void);
/* Memory for a device, that no forked child has. Null. */
void *exi_rma_map(size_t len);
/* Without a queue pair; pair is its own from here on. Null. */
struct exi_rma_link *exi_rma_link_new(int pair);
/* With one: its ring. -errno. */
int exi_rma_link_open(struct exi_rma_link *l);
/* What the other end is to call our ring. */
struct exi_rma_ring exi_rma_link_ring(const struct exi_rma_link *l);
/* The other end's ring is known: bytes can move. -EPROTO, -errno. */
int exi_rma_link_up(struct exi_rma_link *l, const struct exi_rma_ring *theirs);
/* Without one: its memory is gone, for another queue pair. The service lock is
 * held. */
void exi_rma_link_close(struct exi_rma_link *l);
/* Waits until what was posted has arrived. */
void exi_rma_link_drain(struct exi_rma_link *l, uint64_t deadline);
/* Memory of those that lingers, at the end of that while. The service lock is
 * held. */
void exi_rma_links_look(uint64_t now);
/* What nets owe, at the latest now. The service lock is held. */
void exi_rma_debts_look(void);
void exi_rma_links_net_ends(struct exi_rma_net *n);
/* Its queue pair is gone: no device uses its memory, unless the net lingers. */
void exi_rma_link_unpin(struct exi_rma_link *l);
/* The same. */
void exi_rma_link_free(struct exi_rma_link *l);

static inline bool exi_rma_inbox_empty(struct exi_rma_inbox *b)
{
	return atomic_load(&b->put) ==
	       atomic_load_explicit(&b->taken, memory_order_relaxed);
}

/* Under the core's lock of the direction: gives the engine what arrived. -EPROTO.
 */
int exi_rma_link_take_some(struct exi_rma_link *l, enum exi_dir dir);
static inline int exi_rma_link_take(struct exi_rma_link *l, enum exi_dir dir)
{
	/* Most often nothing did. */
	if (exi_rma_inbox_empty(&l->inbox[dir]) &&
	    (dir == EXI_RX || !exi_stream_tx_due(&l->tx)))
		return 0;
	return exi_rma_link_take_some(l, dir);
}
/* The same: what lies in the ring goes into the receives that are posted. */
void exi_rma_link_copy(struct exi_rma_link *l);
/* The sender's messages without bytes. */
void exi_rma_link_answer(struct exi_rma_link *l);
/* The receiver's. */
void exi_rma_link_report(struct exi_rma_link *l, bool idle);

/* What found no room is said again: there is some, or the device may have it. */
void exi_rma_link_retry(struct exi_rma_link *l);
/* A message, with extra bytes after its header; credits are filled in. -EAGAIN:
 * no credit but for the reserve's users. */
int exi_rma_link_say(struct exi_rma_link *l, struct exi_rma_msg *m,
		     const void *extra, bool urgent, bool reserve);
/* Bytes and their note. -EAGAIN as above. ret is null, or says which it was, and
 * the device tells when it is done. */
int exi_rma_link_write(struct exi_rma_link *l, const void *from,
		       const struct exi_rma_mr *mr, uint64_t to, uint64_t key,
		       uint32_t len, uint32_t kind, struct exi_rma_sent *ret);
/* A write would find a credit. */
bool exi_rma_link_writable(struct exi_rma_link *l);
/* Whatever arrives for the direction wakes who sleeps on stir, or rings the
 * pair link once. */
void exi_rma_link_want(struct exi_rma_link *l, enum exi_dir dir, bool word);
void exi_rma_link_want_no_more(struct exi_rma_link *l, enum exi_dir dir,
			       bool word);
/* As if something had. */
void exi_rma_link_stir(struct exi_rma_link *l, enum exi_dir dir);
/* From the net, with its lock held: a note; a message. */
void exi_rma_link_noted(struct exi_rma_link *l, uint32_t note);
void exi_rma_link_heard(struct exi_rma_link *l, const struct exi_rma_msg *m,
			uint32_t len);
/* So many of them are received: the buffers they came in are there again, those of
 * all that was noted and heard. Gives credits back, when there are enough or the
 * other end waits for them. The same lock. */
void exi_rma_link_give(struct exi_rma_link *l, uint32_t n);
/* It has left its net. The same lock. */
void exi_rma_link_left(struct exi_rma_link *l);
/* Nothing arrives any more; the pair link hangs up. Any lock. */
void exi_rma_link_fail(struct exi_rma_link *l, int err, const char *why);
/* The queue pair takes and sends nothing any more, from here on. Any lock. */
void exi_rma_link_kill(struct exi_rma_link *l);

/* --- connections (rma_conn.c) ------------------------------------------- */

/* What the core's connection has of it. */
struct exi_rma_conn {
	struct exi_rma_link *link; /* null before it meets */
};

static inline struct exi_rma_link *exi_rma_link_of(struct exi_conn *c)
{
	return ((struct exi_rma_conn *)c->priv)->link;
}

extern const struct exi_conn_ops exi_rma_conn_ops;
extern const struct exi_switch_ops exi_rma_switch_ops;
extern const struct exi_loan_ops exi_rma_loan_ops;

/* --- transfers without a copy (rma_place.c) ----------------------------- */

extern const struct exi_place_ops exi_rma_place_ops;

/* The first of the sends that are under way was received, or one that waits for
 * an advert does not any more; if not, what is armed is woken for it. TX
 * lock. */
bool exi_rma_place_over(struct exi_rma_link *l);
/* Links that waited long enough. The service lock is held. */
void exi_rma_place_look(uint64_t now);
/* The queue pair is gone, and what was sent before is not repeated by it: memory
 * that was registered for transfers. */
void exi_rma_place_unpin(struct exi_rma_link *l);
void exi_rma_place_free(struct exi_rma_link *l);
/* The same: sends that were not received are drained before what the mirror holds,
 * l->held bytes. -ECONNRESET: others are between them. TX lock. */
int exi_rma_place_hold(struct exi_rma_link *l);
/* A run of what is held; 0: nothing is, any more. So many of its bytes were sent. */
size_t exi_rma_place_drain(struct exi_rma_link *l, const void **ret);
void exi_rma_place_drained(struct exi_rma_link *l, size_t n);

/* --- doors (rma_door.c) ------------------------------------------------- */

/* This process can be asked for connections to the port of TCP, by itself or
 * through who came first. Counted. */
int exi_rma_door_listen(struct exi_domain *domain,
			const struct exi_listening *at);
void exi_rma_door_unlisten(struct exi_domain *domain,
			   const struct exi_listening *at);

/* With the service lock held. Which port a listener of ours is for; 0. *ret_front:
 * A asked there by itself, and was not sent. */
uint16_t exi_rma_door_port(const void *listener, bool *ret_front);
/* Asks the other processes of the port for the connection of a REQUEST that was
 * taken. True: asker and pact are its own from here on. */
bool exi_rma_door_ask(void *asker, const struct exi_rma_asked *asked,
		      struct exi_pact *pact);
void exi_rma_doors_look(uint64_t now);

void exi_rma_doors_forked(void);

/* --- meeting (rma_meet.c) ----------------------------------------------- */

/* All with the service lock held, unless said otherwise. */
struct exi_rma_meeting {
	struct exi_tuple tuple;
	struct exi_pact pact;
	/* Of the end that connects. */
	uint16_t port; /* where it asks */
	bool redirected;
	unsigned int tries;
	uint64_t again;
	struct exi_list waiting; /* until then */
	struct exi_rma_link *link;
};

extern const struct exi_remote_ops exi_rma_remote_ops;

/* The key; null. */
const struct exi_key *exi_rma_meet_key(void);
/* Whether REQUEST was written by a holder of the key, for which ends; the pact is
 * ready to answer it. 0, or the enum exi_pact_why to refuse it with. */
int exi_rma_meet_check(const struct exi_rma_asked *asked, struct exi_tuple *ret,
		       struct exi_pact *ret_pact);
/* What to reject with. The pact may be null. */
void exi_rma_meet_no(struct exi_pact *pact, int why,
		     struct exi_pact_reject *ret);
/* Rejects, and destroys who asked. The pact may be null. */
void exi_rma_meet_refuse(void *asker, struct exi_pact *pact, int why);
/* Links that are to ask again. */
void exi_rma_meet_look(uint64_t now);

/* As bytes: IPv6, or IPv4 as v4-mapped. */
void exi_rma_sockaddr(const uint8_t ip[16], uint16_t port, uint32_t scope,
		      struct sockaddr_storage *ret);
void exi_rma_from_sockaddr(const struct sockaddr *a, uint8_t ret[16]);
bool exi_rma_is_four(const uint8_t ip[16]);

/* A. The fabric's addresses of the connection are known: REQUEST. -errno: there
 * will be nothing. */
int exi_rma_meet_ask(struct exi_rma_link *l, const struct sockaddr *local,
		     const struct sockaddr *peer, struct exi_pact_request *ret);
/* A. Nobody is there. */
void exi_rma_meet_nobody(struct exi_rma_link *l);
/* The address of this end was taken: asks again, soon, from another one. */
void exi_rma_meet_taken(struct exi_rma_link *l);
/* It was refused, with these bytes. Nobody's are a listener's that had no time to
 * look, if somebody listens: asks again, later. */
void exi_rma_meet_rejected(struct exi_rma_link *l, const void *data, size_t len,
			   bool listens);
/* B. REQUEST came, at the listener that exi_rma_door_port() tells of: accept is
 * called, or reject. The service lock is let go meanwhile. */
void exi_rma_meet_request(void *asker, uint16_t port, bool front,
			  const struct sockaddr *local,
			  const struct sockaddr *peer, const void *data,
			  size_t len);

/* The proof that says where our memory is, and that of the other end; either end.
 * Net's lock. -errno. */
int exi_rma_meet_prove(struct exi_rma_link *l,
		       const struct exi_pact_payload *place,
		       struct exi_pact_proof *ret);
int exi_rma_meet_proved(struct exi_rma_link *l, const void *proof, size_t len,
			struct exi_pact_payload *ret);
/* Both ends are up. Net's lock. */
void exi_rma_meet_done(struct exi_rma_link *l);
/* There will be nothing, and why. Any lock. */
void exi_rma_meet_fail(struct exi_rma_link *l, int reason, const char *why);
/* The other end is gone, as the fabric tells: what came before is taken before, and
 * a link that is up ends, for it is not told that it was not met. The net's lock is
 * not held. */
void exi_rma_meet_lost(struct exi_rma_link *l, int reason, const char *why);
/* The same, for a message that was not taken. */
void exi_rma_meet_untaken(struct exi_rma_link *l, int err);
/* Aloud once: every connection after this one may meet the same. */
void exi_rma_meet_complain(const char *why);
/* The queue pair goes, and with it all that could arrive. Twice is once. No lock
 * of these. */
void exi_rma_meet_sever(struct exi_rma_link *l);
/* The connection is over, and the link goes, too. The same. */
void exi_rma_meet_end(struct exi_rma_link *l);

/* --- failing (rma_fail.c) ----------------------------------------------- */

/* Of struct exi_remote_ops. */
int exi_rma_fail_sever(struct exi_conn *c);
void exi_rma_fail_leave(struct exi_conn *c);
bool exi_rma_fail_left(struct exi_conn *c);
uint32_t exi_rma_fail_position(struct exi_conn *c, enum exi_dir dir);
uint32_t exi_rma_fail_resend(struct exi_conn *c);
void exi_rma_fail_resume(struct exi_conn *c, enum exi_dir dir, uint32_t epoch,
			 uint64_t position, uint8_t ret[EXI_RESUME]);

#endif
