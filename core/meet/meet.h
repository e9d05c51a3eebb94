/* SPDX-License-Identifier: BSD-2-Clause */
/* The rendezvous: from the first look for the peer until both ends have a
 * fabric. */
#ifndef EXI_CORE_MEET_MEET_H
#define EXI_CORE_MEET_MEET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/meet/bound.h"
#include "core/meet/meetdir.h"
#include "core/meet/pair.h"
#include "core/sock/service.h"

struct exi_provider;
struct exi_sock;
struct exi_tuple;

enum exi_link_state {
	EXI_LINK_LOOK,	 /* B: the service looks at the deadline */
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
	uint64_t since;		/* when it was made */
	struct exi_timer timer; /* the time limit of the state */
	struct exi_timer rest;	/* the end of one; see link/watch.h */
	uint64_t loaded_since;
	uint32_t load;
	uint64_t peer_token;
	uint64_t peer_providers;
	uint64_t delay; /* before the next look */
	uint64_t until; /* looks end */
	bool marked;	/* LOOK: for a mark that was passed */
	uint64_t moved; /* LOOK: bytes both ways, + 1, since no link owns it */
	/* TCP has ended, but the ring has not: at the deadline this end asks
	 * the peer, which counts as lost if nothing has arrived from it
	 * since. */
	uint64_t patience;
	uint32_t came; /* bytes of the ring, when it was asked last */
	/* The peer hung up, and its stream has not ended: it counts as gone
	 * from then on; 0. */
	uint64_t dying;
	bool go_sent;
	bool leaves;	 /* ends once it is not needed, see exi_link_leave() */
	bool look;	 /* FINSEEN came */
	bool proposed;	 /* a process claimed to be the peer, without proof */
	bool shunned;	 /* someone connected whose user is not met */
	bool refuses;	 /* descriptors, by the kernel, since it is up */
	bool clean;	 /* and none lies there that came before */
	bool starved;	 /* a reference came for which no descriptor was free */
	bool unprovable; /* a process is there, but it cannot be identified */
	bool known;	 /* B: the peer's user owns A's end of TCP */
	int kept;	 /* A: why B keeps the connection on TCP so far */
	int prover;	 /* A: the candidate that sees the board; -1 */
	uint64_t prover_since;
	unsigned int provers; /* so far */
	struct exi_bound bound;
	struct exi_keyed *keyed; /* null: the peer is in this namespace */
	bool taken;		 /* from the socket: it is not watched */
	struct exi_sock *sk;
};

/* A meeting in EXS_MEET_DIR. */
struct exi_keyed {
	struct sockaddr_un name; /* A's, bound by the process */
	uint64_t process;	 /* exi_use_token(); 0: not bound */
	uint64_t peer_cookie;	 /* A, of a UNIX connection */
	uint8_t own[EXI_MEETDIR_NONCE];
	uint8_t peer[EXI_LINK_CANDIDATES][EXI_MEETDIR_NONCE];
};

/* Clears the board (bound.h) of the TCP socket, which is about to be closed.
 * link_lock held. */
void exi_link_clear_locked(struct exi_sock *sk);

/* Frees everything; link_lock held. */
void exi_link_drop_locked(struct exi_sock *sk);

/* The same in two steps. The first removes the link from the socket; it belongs
 * to the caller then, and is not watched. The second, which needs no lock,
 * closes it. Null is allowed. The socket keeps its memory until then. */
struct exi_link *exi_link_take_locked(struct exi_sock *sk);
void exi_link_end(struct exi_link *l);

/* Called in a forked child: forgets a meeting under way, and the fabric, which
 * is mapped, and may be used, by the parent alone from now on; link_lock
 * held. */
void exi_link_disown_locked(struct exi_sock *sk);

/* The bytes that a connecting end which sends little receives before it tries
 * to meet; more if EXS_UPGRADE asks for more. */
#define EXI_LINK_DOWNLOAD 32768u

static inline uint64_t exi_link_download(uint64_t upgrade_bytes)
{
	return upgrade_bytes > EXI_LINK_DOWNLOAD ? upgrade_bytes
						 : EXI_LINK_DOWNLOAD;
}

/* By then a peer that meets has made itself known, whatever its settings
 * usually are. */
#define EXI_LINK_COME_BYTES 131072u

/* RX bytes after which A looks again for a peer whose library was not there
 * when A connected. */
#define EXI_LINK_ANSWERED 0u

#define EXI_MEET_STEP_NS 5000000000u /* between messages of a meeting */

/* Writes the name of a meeting's UNIX socket, and returns its length. connects:
 * t is the connecting end's view. */
socklen_t exi_meeting_name(const struct exi_tuple *t, bool connects,
			   struct sockaddr_un *ret);

/* Makes a link in this state; expired() (exi_begin_expired()) is called after
 * `patience' ns. Null without memory. The link has no descriptor yet, and is
 * not in sk. */
struct exi_link *exi_meet_link_new(struct exi_sock *sk,
				   enum exi_link_state state, uint64_t patience,
				   void (*expired)(struct exi_sock *sk));

/* Closes a descriptor of the link that came from a stranger, in the closing
 * thread; *fd is -1 then. Does nothing for -1. link_lock held. */
void exi_meet_forget_fd(struct exi_link *l, int *fd);

/* Closes the meeting name and all candidates. link_lock held. */
void exi_meet_stop_listening(struct exi_link *l);

/* Called when the process ends, and with it the meeting: removes its name,
 * which would stay in the directory. Does nothing if a thread has link_lock,
 * which may be this one, interrupted. No lock held. */
void exi_meet_exit(struct exi_sock *sk, void *arg);

/* Locks both halves, in the order of locks. */
void exi_meet_lock_halves(struct exi_sock *sk);

/* Unlocks both halves. */
void exi_meet_unlock_halves(struct exi_sock *sk);

/* Whether the time of the link's present step is over. link_lock held. */
bool exi_meet_is_over(const struct exi_link *l);

/* Ends a meeting without a result: the connection stays on TCP for this reason,
 * unless it meets again at a later mark. An A at its name leaves a farewell.
 * link_lock held. */
void exi_meet_give_up_locked(struct exi_sock *sk, int reason);

/* Ends a meeting that the connection's next user makes again, at a mark of
 * bytes; for this reason it stays on TCP after many of them. link_lock held. */
void exi_meet_put_off_locked(struct exi_sock *sk, int reason);

/* The reason (EXS_X_REASON_*) for an error in finding the other end. */
int exi_meet_unproved(int err);

/* The reason for an error in making what a connection needs to leave TCP: the
 * service thread, the fabric's end, the peer's memory. */
int exi_meet_unmade(int err);

/* Whether the reason is a lack at this end, so that the other end cannot be
 * identified: then a stranger may learn the reason, too. */
bool exi_meet_is_ours(int reason);

/* Whether the user at the link's other end kept a call waiting not long ago. */
bool exi_meet_shunned(int link);

/* Makes a HELLO. known false: the other end may be a stranger, and learns
 * nothing about this process. */
struct exi_pair_msg exi_meet_hello(const struct exi_sock *sk, bool known);

/* Makes the connection's fabric. The link becomes its doorbell when both ends
 * are up: before that, only messages of the meeting may be sent. 0 or -ENOMEM.
 * link_lock held. */
int exi_meet_fabric_new(struct exi_sock *sk, const struct exi_provider *p);

/* Chooses a fabric by A's HELLO, and sends OFFER with its memory. 0, or the
 * reason as -EXS_X_REASON_*. link_lock held. */
int exi_meet_offer(struct exi_sock *sk, struct exi_pair_msg *m);

/* Takes OFFER m with its descriptor fd (-1: none), and sends ANSWER. 0, or the
 * reason as -EXS_X_REASON_*. link_lock held. */
int exi_meet_answer(struct exi_sock *sk, const struct exi_pair_msg *m, int fd);

/* Puts the link into this state, in which the peer, whose identity is known,
 * may pass a segment: a descriptor is accepted until the link is up. */
void exi_meet_await_segment(struct exi_link *l, enum exi_link_state state);

/* Shows symbol m->a on the board, and sends m over this link. 0 or -errno. */
int exi_meet_show(struct exi_sock *sk, int link, struct exi_pair_msg *m);

/* B takes A's HELLO: begins the proof or, if A is known, the offer. 0, or the
 * reason as -EXS_X_REASON_*. link_lock held. */
int exi_meet_on_hello(struct exi_sock *sk, const struct exi_pair_msg *m);

/* B takes A's SHOWN: checks the symbol, and shows its own next one only if that
 * was correct. 0, or the reason as -EXS_X_REASON_*. link_lock held. */
int exi_meet_on_shown(struct exi_sock *sk, const struct exi_pair_msg *m);

/* Makes the MAC of an end (a: the one that connected) over this link, for a
 * meeting in EXS_MEET_DIR with the candidate of a slot, 0 at B. said: further
 * bytes that the MAC covers, in PROVED. 0 or -errno. link_lock held. */
int exi_meet_prove(struct exi_sock *sk, int link, unsigned int slot, bool a,
		   const struct exi_pair_msg *said, uint8_t ret[EXI_SHA256]);

/* The reason in a NO; EXS_X_REASON_REFUSED for a value not known here. */
int exi_meet_told_reason(const struct exi_pair_msg *m);

/* Sends NO and gives up. A stranger learns only that no peer is known here.
 * link_lock held. */
void exi_meet_refuse_locked(struct exi_sock *sk, int reason);

#endif
