/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for a direction of a socket: spin for a bounded, adaptive time, say
 * that we wait, look again, sleep. The argument why no wake-up is lost stands
 * at the head of wait.c and in models/bell.pml. */
#ifndef EXI_CORE_WAIT_H
#define EXI_CORE_WAIT_H

#include "core/sock.h"

/* Spins for a while, if that is worth it now. True: look again. */
bool exi_wait_spin(struct exi_sock *sk, int fd, enum exi_dir dir);

/* Sleeps until the direction may move, or its state changed. 0: look again;
 * -ETIMEDOUT after the deadline (CLOCK_MONOTONIC ns, 0 for ever); -EINTR;
 * -EBADF when the socket is not fd's any more. No lock held. */
int exi_wait(struct exi_sock *sk, int fd, enum exi_dir dir, uint64_t deadline);

/* How long (ns) the next wait may spin: 0 when that failed lately or is off;
 * EXI_SPIN_YIELD when the peer shares our CPU: give it the CPU instead. */
#define EXI_SPIN_YIELD 1
uint64_t exi_spin_budget(struct exi_spin *s, int peer_cpu);
void exi_spin_result(struct exi_spin *s, bool success);
/* Lets others run, as often as it may help; look in between. False when it
 * took so long that somebody else must want this CPU. */
bool exi_spin_yield(bool (*done)(void *arg), void *arg, bool *ret_done);

#endif
