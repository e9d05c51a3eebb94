/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for a direction of a socket: spin for a bounded, adaptive time, say
 * that we wait, look again, sleep. The argument why no wake-up is lost stands
 * at the head of wait.c and in models/bell.pml. */
#ifndef EXI_CORE_CALL_WAIT_H
#define EXI_CORE_CALL_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/futex.h"
#include "core/fabric/provider.h"

struct exi_sock;

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

/* After an attempt that found nothing, its lock still held: looks for a moment
 * if a spin is worth it now. A reply that comes at once is taken with the lock
 * held, which giving it back and taking it again would delay. True: it came. */
bool exi_look_held_locked(struct exi_sock *sk, enum exi_dir dir);
/* After an attempt that found nothing, its lock still held: begins a look if
 * a spin is worth it now. */
void exi_look_begin_locked(struct exi_sock *sk, enum exi_dir dir,
			   struct exi_look *l);
/* Spins. No lock held. */
void exi_look_spin(struct exi_sock *sk, enum exi_dir dir, struct exi_look *l);
/* Ends the look. The lock is held; the socket may have been forgotten, and is
 * kept until this. */
void exi_look_end_locked(struct exi_sock *sk, enum exi_dir dir,
			 struct exi_look *l);

/* Sleeps until the direction may move, or its state changed. 0: look again;
 * -ETIMEDOUT after the deadline (CLOCK_MONOTONIC ns, 0 for ever); -EINTR;
 * -EBADF when the socket is not fd's any more. No lock held. */
int exi_wait(struct exi_sock *sk, int fd, enum exi_dir dir, uint64_t deadline);
/* exi_wait() until more bytes may be received than the `seen` ones that are
 * there. */
int exi_wait_more(struct exi_sock *sk, int fd, size_t seen, uint64_t deadline);

#endif
