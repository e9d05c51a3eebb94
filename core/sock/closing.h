/* SPDX-License-Identifier: BSD-2-Clause */
/* Closing descriptors where no thread of the program waits.
 *
 * close(2) of the last reference to a file takes as long as the maker of the
 * file likes: a TCP socket with unsent bytes and SO_LINGER {1, N} sleeps N
 * seconds, and a file of FUSE waits for its server. The same happens to
 * close(2) of a UNIX socket in whose queue such a descriptor lies unread. So
 * neither a thread of the program nor the service thread closes a file that
 * came from elsewhere, or a socket to which others can send descriptors, before
 * it knows that nothing of the kind is in it.
 *
 * Such descriptors go to threads that do nothing else (exi_closing_work()). The
 * number of these threads is bounded, and so is the number of descriptors that
 * wait for them; beyond that a descriptor stays open, and the process makes no
 * new handshakes (exi_closing_full()). */
#ifndef EXI_CORE_SOCK_CLOSING_H
#define EXI_CORE_SOCK_CLOSING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

/* Closes a descriptor of any kind that came in a message; -1 is allowed. False:
 * it is not memory, and a closing thread closes it. Keeps errno. */
bool exi_closing_file(int fd);

/* Closes a connected or datagram UNIX socket that exi_fd_keep() returned; -1 is
 * allowed. sole: no other process has it, so it may be shut down first, and its
 * queue emptied. Keeps errno. */
void exi_closing_socket(int fd, bool sole);

/* Accepts at a UNIX socket to which strangers can connect. Returns the
 * library's number, from exi_fd_keep() or exi_fd_spare(), or -errno. -ENOSPC:
 * the library has no number free; a closing thread closes the accepted socket,
 * since a descriptor may have been sent to it already. */
int exi_closing_accept(int s, bool spare);

/* Closes a listening UNIX socket in the same way. */
void exi_closing_listener(int fd, bool sole);

/* True: so many descriptors wait to be closed that the process must not receive
 * more that may have to be closed. */
bool exi_closing_full(void);

/* The service thread: starts threads for the descriptors that wait. */
void exi_closing_work(void);

/* Waits until nothing waits to be closed and the threads are gone, for 100 ms
 * at most: before an exec, which would close descriptors itself, and before
 * calls that need a process of one thread. */
EXI_SHIM void exi_closing_settle(void);

/* The child after fork: descriptors that wait to be closed are the child's,
 * too; it makes threads for them when there are more. */
void exi_closing_forked(void);

#endif
