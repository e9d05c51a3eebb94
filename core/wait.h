/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for a direction of a socket: spin for a bounded, adaptive time, say
 * that we wait, look again, sleep. The argument why no wake-up is lost stands
 * at the head of wait.c and in models/bell.pml. */
#ifndef EXI_CORE_WAIT_H
#define EXI_CORE_WAIT_H

#include "core/sock.h"

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

/* After an attempt that found nothing, its lock still held: looks for a moment if
 * a spin is worth it now. A reply that comes at once is taken with the lock held,
 * which giving it back and taking it again would delay. True: it came. */
bool exi_look_held(struct exi_sock *sk, enum exi_dir dir);
/* After an attempt that found nothing, its lock still held: begins a look if
 * a spin is worth it now. */
void exi_look_begin(struct exi_sock *sk, enum exi_dir dir, struct exi_look *l);
/* Spins. No lock held. */
void exi_look_spin(struct exi_sock *sk, enum exi_dir dir, struct exi_look *l);
/* Ends the look. The lock is held; the socket may have been forgotten, and is
 * kept until this. */
void exi_look_end(struct exi_sock *sk, enum exi_dir dir, struct exi_look *l);

/* Sleeps until the direction may move, or its state changed. 0: look again;
 * -ETIMEDOUT after the deadline (CLOCK_MONOTONIC ns, 0 for ever); -EINTR;
 * -EBADF when the socket is not fd's any more. No lock held. */
int exi_wait(struct exi_sock *sk, int fd, enum exi_dir dir, uint64_t deadline);
/* The same until more than `seen` bytes may be received, which are there. */
int exi_wait_more(struct exi_sock *sk, int fd, size_t seen, uint64_t deadline);

/* How long (ns) the next wait may spin: 0 when that failed lately or is off;
 * EXI_SPIN_YIELD when the peer shares our CPU: give it the CPU instead. Where
 * others want this CPU (busy.h) a spin is short, and a peer that shares it gets it
 * by our sleep. */
#define EXI_SPIN_YIELD 1
EXI_SHIM uint64_t exi_spin_budget(struct exi_spin *s, int peer_cpu);
EXI_SHIM void exi_spin_result(struct exi_spin *s, bool success);
/* A spin that may last for so long (ns) and until the deadline (0: none).
 * Between looks exi_spin_goes_on() says whether to look again. Whoever wants
 * this CPU gets it every few microseconds, unless it is known that some keep it
 * for whole turns (busy.h). A spin is over when it lost the CPU for that long. */
struct exi_spinner {
	uint64_t end;
	uint64_t yield;
	uint64_t looked; /* at the clock */
	uint32_t looks;
	uint32_t away; /* how often somebody took the CPU */
	/* Not 0: a device is looked at, whose replies take so many times as long
	 * as those within a host. Who took the CPU may be who does the work
	 * that is waited for: the kernel, for the device. Then the spin goes
	 * on. */
	unsigned int patience;
};
static inline void exi_spin_begin(struct exi_spinner *s)
{
	s->end = 0;
	s->looks = 0;
	s->away = 0;
	s->patience = 0;
}
EXI_SHIM bool exi_spin_clock(struct exi_spinner *s, uint64_t budget,
			     uint64_t deadline);
/* Looks between looks at the clock: the first comes after the first of them,
 * for it takes as long as a quick reply. */
#define EXI_SPIN_BATCH 64
static inline bool exi_spin_goes_on(struct exi_spinner *s, uint64_t budget,
				    uint64_t deadline)
{
	/* A look at a device takes as long. */
	if (!s->patience)
		exi_pause();
	return exi_likely(++s->looks % EXI_SPIN_BATCH) ||
	       exi_spin_clock(s, budget, deadline);
}

/* Lets others run, as often as it may help; look in between. False when it
 * took so long that somebody else wants this CPU, which is known from then on. */
EXI_SHIM bool exi_spin_yield(bool (*done)(void *arg), void *arg,
			     bool *ret_done);

#endif
