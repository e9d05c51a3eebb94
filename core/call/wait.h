/* SPDX-License-Identifier: BSD-2-Clause */
/* A synchronous call on one direction of a socket, and how it waits: it spins
 * for a bounded, adaptive time, publishes that it waits, looks again, sleeps.
 * The argument why no wake-up is lost stands at the head of wait.c and in
 * models/bell.pml. */
#ifndef EXI_CORE_CALL_WAIT_H
#define EXI_CORE_CALL_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/futex.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

/* A spin between two attempts on a fabric. */
struct exi_look {
	bool on;  /* begun, not ended */
	bool hit; /* something changed: the next attempt may find it */
	bool good;
	bool stream; /* much has come since the last look, in this host */
	bool away;   /* somebody took the CPU meanwhile */
	unsigned int patience; /* as in struct exi_spinner */
	uint64_t budget;
	struct exi_word words[2]; /* the kick word, the peer's word */
	struct exi_conn *poll;	  /* what changes that only when polled; null */
};

/* A synchronous call. The direction's lock is held from exi_call_lock() on
 * through one attempt; between two attempts the call looks, or sleeps. */
struct exi_call {
	struct exi_sock *sk;
	/* The number that the caller gave, for what the kernel is asked. */
	int fd;
	/* Of sk when the call began. A close by another thread frees both the
	 * number and the memory, and one new connection may get both while the
	 * call waits: it differs then. */
	uint32_t generation;
	enum exi_dir dir;
	int flags;
	bool known;   /* the call may wait, until the deadline */
	bool begun;   /* handlers of signals are counted, see signals.h */
	bool spun;    /* in vain, since it slept last */
	bool resting; /* armed, and among the lookers: to sleep on words */
	bool heard;   /* RX: the link said something, and that was heard */
	bool more;    /* RX: and bytes may lie behind those that were got */
	struct exi_conn *armed; /* by `resting' */
	uint64_t deadline;	/* CLOCK_MONOTONIC ns; 0: none */
	struct exi_look look;
};

/* A call on sk, which has been found to be fd's. With a lock of the socket held
 * no close can come between. */
static inline struct exi_call exi_call_begin(struct exi_sock *sk, int fd,
					     enum exi_dir dir, int flags)
{
	return (struct exi_call){
		.sk = sk,
		.fd = fd,
		.generation = atomic_load_explicit(&sk->generation,
						   memory_order_relaxed),
		.dir = dir,
		.flags = flags,
	};
}

/* Takes the direction's lock for the next attempt, and ends a look or a sleep
 * of the call. False: the socket was closed, or the number is not its own any
 * more; nothing is locked then. */
bool exi_call_lock(struct exi_call *c, struct exi_shared **ret);

/* After an attempt that found nothing, its lock still held: looks for a moment
 * if a spin is worth it now. A reply that comes at once is taken with the lock
 * held, which giving it back and taking it again would delay. True: it came. */
bool exi_look_held_locked(struct exi_sock *sk, enum exi_dir dir);
/* After an attempt that found nothing, its lock still held: begins a look if
 * a spin is worth it now. */
void exi_look_begin_locked(struct exi_call *c);
/* Spins. No lock held. */
void exi_look_spin(struct exi_call *c);

/* After an attempt that found nothing, its lock still held: arms, so that the
 * exi_wait() that follows only sleeps, where the sleep is on words. */
void exi_wait_arm_locked(struct exi_call *c);
/* Sleeps until the direction may move, or its state changed. 0: call
 * exi_call_lock() and look again; -ETIMEDOUT after the deadline; -EINTR; -EBADF
 * as exi_call_lock() false. No lock held. */
int exi_wait(struct exi_call *c);
/* exi_wait() until more bytes may be received than the `seen` ones that are
 * there. */
int exi_wait_more(struct exi_call *c, size_t seen);
/* Ends what exi_wait_arm_locked() and exi_wait() left for exi_call_lock() to
 * end: the call is over. No lock held. */
void exi_wait_quit(struct exi_call *c);

#endif
