/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that one process hands to another: by a message (SCM_RIGHTS), or
 * by exec. Before, the connection is on TCP, where nothing is lost whoever gets
 * it. It may move again when only the receiver uses it. The kernel tells nobody
 * who else has a descriptor, so the library of the giver does:
 *
 * - exec: the giver was the only process that had the connection, and names it
 *   in the environment of the program that takes its place. Where other
 *   processes have it at that time, too, the last of them that closes it says
 *   so by a name, libexs/1/over/<cookie>/<process>.
 * - A message: the giver, which had it alone, passed it once, and has closed it
 *   since. It says so by a name, libexs/1/done/<cookie>/<inode>: the cookie of
 *   the connection, and the inode of the socket by which it was passed. The
 *   receiver knows the first, and asks the kernel for the second: the other end
 *   of the socket by which the connection came. So a process that is no user of
 *   the library, and passed the connection on, is noticed: its socket is
 *   another.
 *
 * What is not known to be so stays on TCP: a giver without the library, one
 * that is killed or forks meanwhile, passes it twice or does not close it. */
#ifndef EXI_CORE_MEET_HANDED_H
#define EXI_CORE_MEET_HANDED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_sock;

/* The giver passes fd, of this cookie, by the socket `by'. again: true where
 * there is a note already, for nobody took it before, or there can be none;
 * add: makes one, for a connection that no other process uses. */
bool exi_handed_again(int fd, int by, uint64_t cookie);
void exi_handed_add(int fd, int by, uint64_t cookie, uint32_t forks);
/* How often a child may have got what there was: read before it is known that
 * no other process uses the connection. */
EXI_SHIM uint32_t exi_handed_forked_times(void);
/* Nobody is told any more that fd's connection was closed here: this process
 * has it again, or passes it once more. */
void exi_handed_retract(int fd);
/* It was passed. */
EXI_SHIM void exi_handed_passed(int fd);

/* Whether the giver keeps notes at all: a hint, for calls that close. */
EXI_SHIM extern _Atomic uint32_t exi_handed_notes;

/* Whose program the connection is now, in place of a socket that gave it. */
#define EXI_HEIR(pid) (UINT64_C(1) << 32 | (uint32_t)(pid))

struct exi_handed_note {
	uint64_t cookie; /* of the connection; 0: no note */
	uint64_t by;	 /* inode of the UNIX socket; or EXI_HEIR() */
	int fd;
	uint32_t forks;
	bool passed;
	bool spoilt; /* others may have it */
};

/* Takes out the note of a number that is about to be closed; false: there is
 * none that allows to say that it was the last use. */
EXI_SHIM bool exi_handed_closes(int fd, struct exi_handed_note *ret);
/* The number is closed; says so, unless a child may have the connection. Keeps
 * errno. */
EXI_SHIM void exi_handed_done(const struct exi_handed_note *n);
/* The number got another one: its close will not be the last. */
EXI_SHIM void exi_handed_copied(int fd);
/* A fork, in the parent before it and in the child, and a spawn, at its end:
 * children may have whatever was noted. */
void exi_handed_forks(void);
void exi_handed_forked(void);
/* The receiver: whether the other end of `by' is of this user or of root, as
 * who closed a connection must be to be believed. */
bool exi_handed_by_ours(int by);
/* The giver's socket, if something came by `by'; 0: it cannot be told. */
uint32_t exi_handed_giver(int by);
/* Descriptors that came by `by' were looked at (MSG_PEEK), which gives the
 * process numbers of its own; fd is one. Nothing that comes is known to have
 * one number only. */
EXI_SHIM void exi_handed_peeked(int fd, int by);

/* Whether only this process uses the connection, which was handed to it: one
 * look, which finds out where it is not known yet. link_lock held. */
bool exi_handed_over_locked(struct exi_sock *sk);
/* The reason to stay on TCP while that is not known. link_lock held. */
int exi_handed_reason_locked(const struct exi_sock *sk);

#endif
