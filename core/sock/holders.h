/* SPDX-License-Identifier: BSD-2-Clause */
/* Which processes have a connection, after forks: counted, and named as far as
 * they can be, so that one that ended without a close is found out by whoever
 * has to know. Lives in memory that these processes share.
 *
 * The count is what holds: a name may be missing (of more processes than there
 * is room for, and in another PID namespace), and then its process counts until
 * it closes. A name goes before its count, and both only once: whoever
 * exchanges the name for 0 takes one from the count. */
#ifndef EXI_CORE_SOCK_HOLDERS_H
#define EXI_CORE_SOCK_HOLDERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

#define EXI_HOLDERS_NAMED 7

struct exi_holders {
	_Atomic uint32_t n; /* 0: the memory around it is free */
	/* 0: none; negative: exi_holders_exec(), exi_holders_heir() */
	_Atomic int32_t pid[EXI_HOLDERS_NAMED];
	/* Processes that have it, while their library has it no more. */
	_Atomic uint32_t strays;
	_Atomic int32_t heir; /* one of these, which is another program */
};

/* Makes this process a holder if there is none. True when it is now. */
bool exi_holders_claim(struct exi_holders *h);

/* This process, which is counted, is a holder no more. */
void exi_holders_leave(struct exi_holders *h);

/* prefork comes before a fork, for each connection that the child will have;
 * then, in the child, forked once, and inherit for each of them. */
void exi_holders_prefork(struct exi_holders *h);
/* Undoes prefork where there is no child. */
void exi_holders_unfork(struct exi_holders *h);
void exi_holders_forked(void);
void exi_holders_inherit(struct exi_holders *h);

/* Takes out those that have ended: how many are left. */
uint32_t exi_holders_count(struct exi_holders *h);

/* Whether this process has the connection, and no other. */
EXI_SHIM bool exi_holders_alone(struct exi_holders *h);

/* An exec that closes the connection is about to begin (leaves), or has failed.
 * The process is counted until it ends: no call tells that an exec succeeded,
 * and another would free memory that this process goes on with if it did
 * not. */
EXI_SHIM void exi_holders_exec(struct exi_holders *h, bool leaves);

/* Whether no other process can use the connection: as alone, but those that are
 * at an exec which closes it, or past that, do not count, and strays do. */
bool exi_holders_sole(struct exi_holders *h);

/* This process goes on with the connection without the library, which leaves it
 * afterwards. */
EXI_SHIM void exi_holders_stray(struct exi_holders *h);

/* The program of an exec that is about to begin has the connection: a stray,
 * and the heir. True when no other process can use it: else whoever closes it
 * later is told of the heir. */
bool exi_holders_bequeath(struct exi_holders *h);

/* This process is about to close the connection, and uses it no more. The
 * process whose program has it alone then; 0: there is none.
 *
 * Pairing: bequeath counts the stray, then looks who has the connection; heir
 * takes this process out, then looks for strays. All are in one order, so one
 * of the two sees the other, and perhaps both do. */
int32_t exi_holders_heir(struct exi_holders *h);

/* While a program is spawned, which other threads do not wait for, what begins
 * may be that program's, too, and gets a stray: made comes when the connection
 * is in the table. What has begun before is the caller's to look at, between
 * spawns and spawned.
 *
 * Pairing: spawns counts, then the caller walks the table; what is put into the
 * table asks for the count afterwards. All are in one order, so one of the two
 * sees the other. */
EXI_SHIM void exi_holders_spawns(void);
void exi_holders_spawned(void);
bool exi_holders_spawning(void);
void exi_holders_made(struct exi_holders *h);

/* Whether this process was forked: others may have what it made. */
bool exi_holders_shared(void);

#endif
