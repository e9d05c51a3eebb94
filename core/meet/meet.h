/* SPDX-License-Identifier: BSD-2-Clause */
/* The rendezvous: from the first look for a peer until both ends have a fabric. */
#ifndef EXI_CORE_MEET_MEET_H
#define EXI_CORE_MEET_MEET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/meet/bound.h"
#include "core/meet/pair.h"
#include "core/sock/service.h"

struct exi_provider;
struct exi_sock;
struct exi_tuple;

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
	bool shunned;	 /* someone connected whose user is not met */
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

/* The same for all of them: TCP is about to be closed. link_lock held. */
void exi_link_clear_locked(struct exi_sock *sk);

/* Lets go of everything; link_lock held. */
void exi_link_drop_locked(struct exi_sock *sk);

/* A forked child: a meeting under way is its parent's, and so is the fabric,
 * which the parent maps, and may use, from now on; link_lock held. */
void exi_link_disown_locked(struct exi_sock *sk);

/* Bytes that the connecting end receives, when it sends little, after which it
 * tries to meet. */
#define EXI_LINK_DOWNLOAD 32768u

#define EXI_MEET_GREETING_NS 5000000000u /* between messages of a meeting */

/* Bytes both ways by which a peer that waits to meet has come. */
#define EXI_MEET_WAITED 131072u

socklen_t exi_meeting_name(const struct exi_tuple *t, bool connects,
			   struct sockaddr_un *ret);

struct exi_link *exi_meet_link_new(struct exi_sock *sk,
				   enum exi_link_state state,
				   uint64_t patience);

void exi_meet_forget_fd(struct exi_link *l, int *fd);

void exi_meet_stop_listening(struct exi_link *l);

void exi_meet_lock_halves(struct exi_sock *sk);

void exi_meet_unlock_halves(struct exi_sock *sk);

void exi_meet_give_up_locked(struct exi_sock *sk, int reason);

int exi_meet_unproved(int err);

/* The user at the link's other end kept a call waiting not long ago. */
bool exi_meet_shunned(int link);

struct exi_pair_msg exi_meet_hello(bool known);

int exi_meet_fabric_new(struct exi_sock *sk, const struct exi_provider *p);

int exi_meet_offer(struct exi_sock *sk, struct exi_pair_msg *m);

int exi_meet_answer(struct exi_sock *sk, const struct exi_pair_msg *m, int fd);

void exi_meet_await_segment(struct exi_link *l, enum exi_link_state state);

int exi_meet_show(struct exi_sock *sk, int link, struct exi_pair_msg *m);

int exi_meet_on_hello(struct exi_sock *sk, const struct exi_pair_msg *m);

int exi_meet_on_shown(struct exi_sock *sk, const struct exi_pair_msg *m);

int exi_meet_told_reason(const struct exi_pair_msg *m);

void exi_meet_refuse(struct exi_sock *sk, int reason);

#endif
