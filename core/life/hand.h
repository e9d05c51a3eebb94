/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that leave for another process, and those that come from one:
 * core/meet/handed.h. */
#ifndef EXI_CORE_LIFE_HAND_H
#define EXI_CORE_LIFE_HAND_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_sock;

/* The giver: fd is about to go to TCP, for it will be passed by the socket
 * `by'. Nothing where fd is no connection of the library's, or another process
 * may use it. No lock held. */
EXI_SHIM void exi_hand_note(int fd, int by);

/* Whether this process is the only one that uses the connection, of which fd is
 * the only number: then exec can hand it on. No lock held. */
EXI_SHIM bool exi_hand_alone(struct exi_sock *sk, int fd);

/* The receiver: fd came by a message on the socket `by'; or, by = -1, the giver
 * had the connection alone before exec. Where it is a connection of TCP, the
 * library has a socket for it from now on. */
EXI_SHIM void exi_hand_take(int fd, int by);

#endif
