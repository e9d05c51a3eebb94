/* SPDX-License-Identifier: BSD-2-Clause */
/* Closing descriptors where no thread of the program waits.
 *
 * close(2) of the last reference to a file takes as long as the maker of the
 * file likes: a TCP socket with unsent bytes and SO_LINGER {1, N} sleeps N
 * seconds, and a file of FUSE waits for its server. The same happens to
 * close(2) of a UNIX socket in whose queue such a descriptor lies unread. So no
 * thread of the program, and not the service thread, closes what came from
 * elsewhere, or a socket that others can send descriptors to, before it knows
 * that nothing of the kind is in it.
 *
 * Such descriptors go to threads that do nothing else (exi_closing_work()).
 * These are bounded, and so is what waits for them; beyond that a descriptor
 * stays open, and the process meets nobody new (exi_closing_full()). */
#ifndef EXI_CORE_SOCK_CLOSING_H
#define EXI_CORE_SOCK_CLOSING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

/* A descriptor that came in a message, of whatever kind. -1 is fine. False: it
 * is no memory, and a closing thread has to close it. Keeps errno. */
bool exi_closing_file(int fd);

/* A connected UNIX socket or one for datagrams, which exi_fd_keep() gave; -1 is
 * fine. sole: no other process has it, so it may be shut down first. Keeps
 * errno. */
void exi_closing_socket(int fd, bool sole);

/* Accepts at a UNIX socket that strangers can connect to: the library's number,
 * by exi_fd_keep() or exi_fd_spare(); or -errno. -ENOSPC: the library has no
 * number free, and what was accepted is closed where nobody waits, for
 * something may have been sent to it already. */
int exi_closing_accept(int s, bool spare);

/* Closes a UNIX socket that listens, likewise. */
void exi_closing_listener(int fd, bool sole);

/* True: so much waits to be closed that nothing may be received which may have
 * to be closed, too. */
bool exi_closing_full(void);

/* The service thread: starts threads for what waits. */
void exi_closing_work(void);

/* Waits until nothing waits to be closed and the threads are gone, for 100 ms
 * at most: before an exec, which would close descriptors itself, and before
 * calls that want a process of one thread. */
EXI_SHIM void exi_closing_settle(void);

/* The child after fork: what waits to be closed is the child's, too; threads
 * for that are made when there is more. */
void exi_closing_forked(void);

#endif
