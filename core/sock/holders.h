/* SPDX-License-Identifier: BSD-2-Clause */
/* The processes that have a connection, after forks: counted, and named if
 * possible, so that a process that must know can find another that ended
 * without a close. The structure lies in memory that these processes share.
 *
 * The count decides: a name may be missing (if there are more processes than
 * places, or in another PID namespace), and then its process counts until it
 * closes. A name goes before its count, and both only once: the thread that
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
	/* Processes that use it although their library has left it. */
	_Atomic uint32_t strays;
	_Atomic int32_t heir; /* one of these, which is another program */
};

/* Makes this process a holder unless it is one. True if it became one. */
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

/* Removes holders that have ended; returns how many are left. */
uint32_t exi_holders_count(struct exi_holders *h);

/* Whether this process has the connection, and no other. */
EXI_SHIM bool exi_holders_alone(struct exi_holders *h);

/* The same, and no stray: false also for a process that has ended without a
 * close. Makes no system call. */
static inline bool exi_holders_one(const struct exi_holders *h)
{
	return atomic_load(&h->n) == 1 && !atomic_load(&h->strays);
}

/* An exec that closes the connection is about to begin (leaves), or has failed.
 * The process counts until it ends: no call reports that an exec succeeded, and
 * another process would free memory that this process still uses if it did
 * not. */
EXI_SHIM void exi_holders_exec(struct exi_holders *h, bool leaves);

/* Whether no other process can use the connection: as exi_holders_alone(), but
 * processes at or past an exec that closes it do not count, and strays do. */
bool exi_holders_sole(struct exi_holders *h);

/* This process continues to use the connection without the library, which
 * leaves it afterwards. */
EXI_SHIM void exi_holders_stray(struct exi_holders *h);

/* The program of an exec that is about to begin has the connection: a stray,
 * and the heir. True when no other process can use the connection; otherwise
 * the process that closes it later learns of the heir. */
bool exi_holders_bequeath(struct exi_holders *h);

/* This process is about to close the connection, and uses it no more. Returns
 * the process whose program has it alone then; 0: there is none.
 *
 * Pairing: bequeath counts the stray, then looks which processes have the
 * connection; heir takes this process out, then looks for strays. All accesses
 * are in one order, so one of the two sees the other, and perhaps both do. */
int32_t exi_holders_heir(struct exi_holders *h);

/* While a program is spawned, for which other threads do not wait, a connection
 * that begins may belong to that program, too, and gets a stray: made is called
 * when the connection is in the table. Connections that began before are the
 * caller's to look at, between spawns and spawned.
 *
 * Pairing: spawns counts, then the caller walks the table; a thread that puts a
 * connection into the table reads the count afterwards. All accesses are in one
 * order, so one of the two sees the other. */
EXI_SHIM void exi_holders_spawns(void);
void exi_holders_spawned(void);
/* How many threads spawn a program now. */
uint32_t exi_holders_spawning(void);
void exi_holders_made(struct exi_holders *h);

/* Whether this process was forked: others may share its objects. */
bool exi_holders_shared(void);

#endif
