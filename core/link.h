/* SPDX-License-Identifier: BSD-2-Clause */
/* Meeting the peer's library, and the pair link that remains: sections 1 and 2
 * of docs/design/wire-shm.md. The service thread of each process is the only
 * reader of links; any thread may send on one. */
#ifndef EXI_CORE_LINK_H
#define EXI_CORE_LINK_H

#include "core/bound.h"
#include "core/provider.h"
#include "core/service.h"
#include "core/sock.h"

#define EXI_PAIR_MAGIC	 0x50535845u /* "EXSP" */
#define EXI_PAIR_VERSION 2u

enum exi_pair_type {
	EXI_PAIR_HELLO = 1,
	EXI_PAIR_PROVED = 2,
	EXI_PAIR_OFFER = 3,
	EXI_PAIR_ANSWER = 4,
	EXI_PAIR_GO = 5,
	EXI_PAIR_SWITCH = 6,
	EXI_PAIR_DOWN = 7,
	EXI_PAIR_DOWN_ACK = 8,
	EXI_PAIR_TAKEBACK = 9,
	EXI_PAIR_UP = 10,
	EXI_PAIR_FINSEEN = 11,
	EXI_PAIR_NO = 12,
	EXI_PAIR_TAKEN = 13,
	EXI_PAIR_MET = 14, /* from a fabric, of a peer on another host */
	EXI_PAIR_SHOWN = 15,
	EXI_PAIR_TYPE_MAX
};

/* HELLO's c: the kernel does not say that the peer's user owns its end, so both
 * ends show their boards (bound.h). */
#define EXI_HELLO_SHOW 1u

/* What FINSEEN wants, or is. */
enum exi_pair_finseen {
	EXI_FINSEEN_ASK = 1,	/* look, and say if you still have it */
	EXI_FINSEEN_ANSWER = 2, /* I do */
};

struct exi_pair_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint64_t a;
	uint64_t b;
	uint64_t c;
	uint8_t blob[EXI_BLOB_MAX];
};
_Static_assert(sizeof(struct exi_pair_msg) == 96, "struct exi_pair_msg");

enum exi_link_state {
	EXI_LINK_LOOK,	 /* B, eager: looks again at the deadline */
	EXI_LINK_LISTEN, /* A: the meeting name is bound */
	EXI_LINK_HELLO,	 /* B: HELLO sent, the peer's awaited */
	EXI_LINK_SHOW,	 /* B: SHOWN sent, the peer's awaited */
	EXI_LINK_PROVED, /* A: HELLO sent, PROVED awaited */
	EXI_LINK_OFFER,	 /* B: PROVED sent, OFFER awaited */
	EXI_LINK_ANSWER, /* A: OFFER sent, ANSWER awaited */
	EXI_LINK_REMOTE, /* a fabric meets the peer: MET awaited */
	EXI_LINK_UP,
};

#define EXI_LINK_CANDIDATES 8

struct exi_link {
	enum exi_link_state state;
	int fd;	      /* the pair link; -1 while listening */
	int listener; /* -1 */
	int candidates[EXI_LINK_CANDIDATES]; /* connected, not proved; -1 */
	uint64_t candidate_since[EXI_LINK_CANDIDATES];
	struct exi_timer timer; /* of what the state waits for */
	uint64_t peer_token;
	uint64_t peer_providers;
	uint64_t delay; /* of the next look */
	uint64_t until; /* looks end */
	/* TCP has ended, the ring has not: the peer is asked at the deadline, and
	 * is lost if it was not heard of until then. */
	uint64_t patience;
	uint32_t came; /* bytes of the ring, when it was asked last */
	bool go_sent;
	bool parts; /* ends as soon as it is not needed, see exi_link_leave() */
	bool look;  /* FINSEEN came */
	bool proposed;	 /* someone connected without proof */
	bool refuses;	 /* descriptors, by the kernel, since it is up */
	bool clean;	 /* and none lies there that came before */
	bool starved;	 /* a reference came for which no descriptor was free */
	bool unprovable; /* there is someone, and it cannot be told who */
	bool known;	 /* B: the peer's user owns A's end */
	int prover;	 /* A: the candidate that sees the board; -1 */
	uint64_t prover_since;
	unsigned int provers; /* so far */
	struct exi_bound bound;
	struct exi_sock *sk;
};

/* TX or RX traffic passed half.meet_at: do what the rendezvous wants. No lock
 * held. */
void exi_link_meet(struct exi_sock *sk, int fd);

/* Arms the triggers of a new connection. eager: both ends were told to meet,
 * whatever the traffic. */
void exi_link_expect(struct exi_sock *sk, bool eager);

/* Sends a control message on the pair link. -ENOTCONN when it is gone. */
int exi_link_send(struct exi_sock *sk, enum exi_pair_type type, uint64_t a,
		  uint64_t b, uint64_t c);

/* Says GO if it can be said now. No lock held. */
void exi_link_go(struct exi_sock *sk);

/* Both directions are on TCP for good, and this process forgets the connection:
 * the link ends also where a forked process has it, which would not answer the
 * peer before it uses the connection. No lock held. */
EXI_SHIM void exi_link_over(struct exi_sock *sk);

/* The reason of a connection that ends now; link_lock held. Who is undecided as long
 * as the peer may come, or as it may look for the peer again, is so no more. */
EXI_SHIM int exi_link_last_reason_locked(struct exi_sock *sk, int fd);

/* Where both directions are on TCP the link ends though the peer says nothing: what
 * it said before is read first, and it can say nothing more. False: it moved a
 * direction, or one had not come back. No lock held. */
bool exi_link_part(struct exi_sock *sk);

/* Where that is false, and the peer was silent for as long as a call waits: a reset.
 * No lock held. */
EXI_SHIM void exi_link_unanswered(struct exi_sock *sk);

/* The connection goes to TCP for good, and nobody waits: the link ends when it is
 * there. Where it is not after a second (15 between hosts) the peer is silent, and
 * the connection is reset. -ENOTCONN: it has none, or ends as it is. No lock held. */
EXI_SHIM int exi_link_leave(struct exi_sock *sk, int reason);

/* Descriptors are short: gives up the meetings that are under way. How many. */
EXI_SHIM int exi_link_reclaim(void);

/* An exec closes what is left, and would wait for what strangers left there:
 * gives up the meetings that are under way, and lets the closing threads end. */
EXI_SHIM void exi_link_before_exec(void);

/* A watch of the link in front of the service's own: an exclusive one in the
 * epoll set of a thread, which reads the link (exi_link_event()) when it is
 * woken there; the service is woken when no such thread sleeps. The link lock
 * is held. Its descriptor, or -errno. */
EXI_SHIM int exi_link_share(struct exi_sock *sk,
			    int (*watch)(int fd, void *arg), void *arg);

/* Events of the service thread; with 0 for events, a look without one. */
EXI_SHIM void exi_link_event(struct exi_sock *sk, uint32_t events);
/* Another process read a bell of the link: for those who wait for it here. */
void exi_link_rung(struct exi_sock *sk);
/* Reads the link until it is empty, for who saw the end of TCP: a SWITCH is
 * sent before it, and inside a host lies there. No lock held. */
void exi_link_read(struct exi_sock *sk);
/* The peer said the end: reads the link if it has hung up, and is true then. No
 * lock held. */
bool exi_link_ended(struct exi_sock *sk, int fd);
void exi_link_listener_event(struct exi_sock *sk);
void exi_link_candidate_event(struct exi_sock *sk, unsigned int slot);
void exi_link_tcp_event(struct exi_sock *sk);

/* The program is about to read or set an option of the socket: if a meeting uses
 * it just now, that is over, and the option is what it was. No lock held. */
void exi_link_option(struct exi_sock *sk, int level, int name);
/* The same for all of them: TCP is about to be closed. link_lock held. */
void exi_link_clear_locked(struct exi_sock *sk);

/* Lets go of everything; link_lock held. */
void exi_link_drop_locked(struct exi_sock *sk);

/* A forked child: a meeting under way is its parent's, and so is the fabric,
 * which the parent maps, and may use, from now on; link_lock held. */
void exi_link_disown_locked(struct exi_sock *sk);

/* Resets the connection and hangs up, or bytes would be missing; says why. Any
 * of the socket's locks may be held. */
EXI_SHIM void exi_link_reset(struct exi_sock *sk, int reason, const char *what);
/* The same, because the peer broke the protocol. */
void exi_link_violation(struct exi_sock *sk, const char *what);

/* Bytes that the connecting end receives, when it sends little, after which it
 * tries to meet. */
#define EXI_LINK_DOWNLOAD 32768u

/* Bytes went to a peer by the kernel: for who finds later ones on a fabric that is as
 * a ring. Not counted before a first link of this process was up. */
extern _Atomic bool exi_link_any;
static inline void exi_link_by_kernel(void)
{
	if (!atomic_load_explicit(&exi_link_any, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&exi_conn_rings, 1, memory_order_relaxed);
	atomic_store_explicit(&exi_conn_sent, exi_ticks(),
			      memory_order_relaxed);
}

#endif
