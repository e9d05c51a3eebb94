/* SPDX-License-Identifier: BSD-2-Clause */
/* The marker of a port: a name that says that libexs serves the port. */
#ifndef EXI_CORE_MEET_MARKER_H
#define EXI_CORE_MEET_MARKER_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_tuple;

/* Binds the marker of the port on which listen_fd listens, and holds it until
 * exi_marker_release(). Where another process holds it that one is relied on,
 * and a later accept tries again. A connection that was accepted outlives its
 * listener and is known by a sign (proof.h), which a listener hands down to all
 * that comes to it from this call on. */
void exi_marker_hold(int listen_fd);
/* The port of the other end has a marker, or that end has the sign. -EACCES:
 * that cannot be asked here. */
int exi_marker_present(const struct exi_tuple *t);
/* An accept on the descriptor: binds the marker if it became free. True when
 * this process holds it. */
bool exi_marker_refresh(int listen_fd);
void exi_marker_release(int listen_fd);
/* Connections to the local port of the descriptor are, or will be, of this
 * process: fabrics between hosts are told, once. Before an accept, for one that
 * another process accepted, and in a forked child. No device is opened for a
 * process that only listens. */
EXI_SHIM void exi_marker_reach(int fd);
/* Counts connections that were accepted: while there are some, fabrics between
 * hosts are told of the last few ports that nobody listens on any more. */
void exi_marker_connection(void);
void exi_marker_disconnection(void);
void exi_marker_forked(void);
/* The process ends: removes names that would outlive it. */
void exi_marker_exit(void);

#endif
