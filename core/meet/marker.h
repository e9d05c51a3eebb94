/* SPDX-License-Identifier: BSD-2-Clause */
/* The marker of a port: a name that shows that libexs serves the port. */
#ifndef EXI_CORE_MEET_MARKER_H
#define EXI_CORE_MEET_MARKER_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_tuple;

/* Binds the marker of the port on which listen_fd listens, if it has one, and
 * holds it until exi_marker_release(). If another process holds the marker,
 * that one is enough, and a later accept tries again. An accepted connection
 * may outlive its listener, and is recognized by a sign (proof.h), which it
 * inherits from the listener from this call on; if this process can meet nobody
 * there, the sign is the farewell. */
void exi_marker_hold(int listen_fd);
/* Whether the port of the other end has a marker, or that end has the sign.
 * EXI_SIGNED_AFAR: a process in another network namespace has that end.
 * -EACCES: not permitted. */
int exi_marker_present(const struct exi_tuple *t);
/* Called at an accept on the descriptor: binds the marker if it became free.
 * Returns true if this process holds it. */
bool exi_marker_refresh(int listen_fd);
void exi_marker_release(int listen_fd);
/* Informs fabrics between hosts, once, that connections to the local port of
 * the descriptor are, or will be, in this process. Called before an accept, for
 * a connection that another process accepted, and in a forked child. A process
 * that only listens opens no device. */
EXI_SHIM void exi_marker_reach(int fd);
/* Counts accepted connections: while there are any, fabrics between hosts know
 * the last few ports on which no process listens any more. */
void exi_marker_connection(void);
void exi_marker_disconnection(void);
void exi_marker_forked(void);
/* Called when the process ends: removes names that would outlive it. */
void exi_marker_exit(void);

#endif
