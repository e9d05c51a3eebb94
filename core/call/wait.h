/* SPDX-License-Identifier: BSD-2-Clause */
/* A synchronous call on one direction of a socket, and its wait: it spins for a
 * bounded, adaptive time, announces that it waits, looks again, and sleeps. The
 * head of wait.c and models/bell.pml show that no wake-up is lost. */
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
	bool hit; /* something changed, try again */
	bool good;
	bool stream; /* many bytes came since the last look, in this host */
	bool away;   /* another thread took the CPU */
	unsigned int patience; /* as in struct exi_spinner */
	uint64_t budget;
	struct exi_word words[2]; /* the kick word, the peer's word */
	struct exi_conn *poll;	  /* changes words only when polled; null */
};

/* A synchronous call. The direction's lock is held from exi_call_lock() on
 * through one attempt; between two attempts the call looks, or sleeps. */
struct exi_call {
	struct exi_sock *sk;
	/* The caller's number, for system calls. */
	int fd;
	/* sk's generation when the call began. A close by another thread frees
	 * both the number and the memory, and one new connection may get both
	 * while the call waits; then the generation differs. */
	uint32_t generation;
	enum exi_dir dir;
	int flags;
	bool known;   /* the call may wait, until the deadline */
	bool begun;   /* handlers of signals are counted, see signals.h */
	bool spun;    /* in vain, since the last sleep */
	bool resting; /* armed, and among the lookers: to sleep on words */
	bool heard;   /* RX: a message of the link was carried out */
	bool more;    /* RX: more bytes may follow those received */
	struct exi_conn *armed; /* by `resting' */
	uint64_t deadline;	/* CLOCK_MONOTONIC ns; 0: none */
	struct exi_look look;
};

/* A call on sk, which has been found to be fd's. While a lock of the socket is
 * held, no close can come between. */
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

/* Takes the direction's lock for the next attempt, and ends the call's look or
 * sleep. Returns false, with nothing locked, if the socket was closed or the
 * number is no longer its own. */
bool exi_call_lock(struct exi_call *c, struct exi_shared **ret);

/* Called after an attempt that found nothing, with its lock held: spins for a
 * moment if that is worth it now. A reply that comes at once is thus taken
 * without an unlock and a lock. Returns true if one came. */
bool exi_look_held_locked(struct exi_sock *sk, enum exi_dir dir);
/* Called after an attempt that found nothing, with its lock held: begins a look
 * if a spin is worth it now. */
void exi_look_begin_locked(struct exi_call *c);
/* Spins. No lock held. */
void exi_look_spin(struct exi_call *c);

/* Called after an attempt that found nothing, with its lock held: arms, if the
 * sleep is on words, so that the exi_wait() that follows only sleeps. */
void exi_wait_arm_locked(struct exi_call *c);
/* Sleeps until the direction may move, or its state changed. 0: call
 * exi_call_lock() and look again. -ETIMEDOUT after the deadline; -EINTR; -EBADF
 * where exi_call_lock() would return false. No lock held. */
int exi_wait(struct exi_call *c);
/* exi_wait() until more bytes than `seen` may be received. */
int exi_wait_more(struct exi_call *c, size_t seen);
/* Called when the call is over: ends what exi_wait_arm_locked() and exi_wait()
 * leave to exi_call_lock(). No lock held. */
void exi_wait_quit(struct exi_call *c);

#endif
