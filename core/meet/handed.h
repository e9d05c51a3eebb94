/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that one process hands to another: by a message (SCM_RIGHTS), or
 * by exec. Before that, the connection goes to TCP, where nothing is lost
 * whichever process gets it. It may move again when only the receiver uses it.
 * The kernel does not report who else has a descriptor, so the giver's library
 * does:
 *
 * - exec: the giver was the only process that had the connection, and names it
 *   in the environment of the program that replaces it. If other processes have
 *   it at that time, too, the last of them to close it announces that by a
 *   name, libexs/1/over/<cookie>/<process>. A spawn does the same: the giver
 *   keeps the connection, and has closed it by then or will announce that.
 * - A message: the giver, which had the connection alone, passed it once, and
 *   has closed it since. It announces that by a name,
 *   libexs/1/done/<cookie>/<inode>: the cookie of the connection, and the inode
 *   of the socket by which it was passed. The receiver knows the cookie, and
 *   asks the kernel for the inode of the other end of the socket by which the
 *   connection came. So a process without the library that passed the
 *   connection on is noticed: its socket is another.
 *
 * A connection for which this is not known stays on TCP: its giver has no
 * library, was killed or forked meanwhile, passed it twice, or did not close
 * it. */
#ifndef EXI_CORE_MEET_HANDED_H
#define EXI_CORE_MEET_HANDED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_sock;

/* Called when the giver passes fd, which has this cookie, by the socket `by'.
 * again: returns true if there is a note already, because no process took the
 * connection before, or if there can be none. add: makes a note, for a
 * connection that no other process uses. */
bool exi_handed_again(int fd, int by, uint64_t cookie);
void exi_handed_add(int fd, int by, uint64_t cookie, uint32_t forks);
/* The same after a spawn of `pid', which got the connection. */
EXI_SHIM void exi_handed_spawned(int fd, int pid, uint64_t cookie,
				 uint32_t forks);
/* A count of the times when a child may have got this process's descriptors.
 * Read before it is known that no other process uses the connection. */
EXI_SHIM uint32_t exi_handed_forked_times(void);
/* Withdraws the announcement that fd's connection was closed here: this process
 * has it again, or passes it once more. */
void exi_handed_retract(int fd);
/* Marks the note of fd: it was passed. */
EXI_SHIM void exi_handed_passed(int fd);

/* Whether there are any notes: a hint, for calls that close. */
EXI_SHIM extern _Atomic uint32_t exi_handed_notes;
/* How many closes were announced: a hint, for calls that pass descriptors. */
EXI_SHIM extern _Atomic unsigned int exi_handed_announced;

/* The process that has the connection now, in place of the socket of a
 * giver. */
#define EXI_HEIR(pid) (UINT64_C(1) << 32 | (uint32_t)(pid))

struct exi_handed_note {
	uint64_t cookie; /* of the connection; 0: no note */
	uint64_t by;	 /* inode of the UNIX socket; or EXI_HEIR() */
	int fd;
	uint32_t forks;
	bool passed;
	bool spoilt; /* others may have it */
};

/* Removes the note of a number that is about to be closed. Returns false if
 * there is none that shows this to be the last use. */
EXI_SHIM bool exi_handed_closes(int fd, struct exi_handed_note *ret);
/* Announces that the number is closed, unless a child may have the connection.
 * Keeps errno. */
EXI_SHIM void exi_handed_done(const struct exi_handed_note *n);
/* Called when the number got a duplicate: its close will not be the last. */
EXI_SHIM void exi_handed_copied(int fd);
/* Called at a fork, in the parent before it (forks) and in the child (forked),
 * and at the end of a spawn (forks): children may have every connection
 * noted. */
void exi_handed_forks(void);
void exi_handed_forked(void);
/* In the receiver: whether the other end of `by' belongs to this user or to
 * root. Only then an announcement that the connection was closed is
 * believed. */
bool exi_handed_by_ours(int by);
/* The inode of the giver's socket, if a descriptor came by `by'; 0: unknown. */
uint32_t exi_handed_giver(int by);
/* Called when fd was received with MSG_PEEK, which gives this process a number
 * for it. From then on no received connection is known to have only one
 * number. */
EXI_SHIM void exi_handed_peeked(int fd);

/* What the kernel says of a descriptor that was handed over: the role of the
 * connection; NONE: it is none that may move. Waits for the socket's lock,
 * which another process may keep; so does exi_handed_begin(). */
enum exi_role exi_handed_role(int fd);
/* Begins the life of such a connection, as one that meets again. giver: 0, or
 * what exi_handed_over_locked() asks for. No lock held, or sk is not in the
 * table yet. */
void exi_handed_begin(struct exi_sock *sk, int fd, uint64_t giver);

/* Whether only this process uses the connection, which was handed to it; looks
 * once if that is not known yet. link_lock held. */
bool exi_handed_over_locked(struct exi_sock *sk);
/* The reason for staying on TCP while that is unknown. link_lock held. */
int exi_handed_reason_locked(const struct exi_sock *sk);

#endif
