/* SPDX-License-Identifier: BSD-2-Clause */
/* Plain connections: made by plain calls, or forced to TCP. */
#ifndef EXI_CORE_LIFE_PLAIN_H
#define EXI_CORE_LIFE_PLAIN_H

#include "core/base/util.h"

struct exi_patience;

/* Upgrades are wanted for a descriptor that plain calls made, or again. */
int exi_adopt(int fd);
EXI_SHIM int exi_downgrade(int fd);

/* A connection goes to TCP and stays there, for the reason. 0 also when fd is
 * none of the library's. p: as of exi_switch_down(). */
EXI_SHIM int exi_go_plain(int fd, int reason, struct exi_patience *p);

/* An option or flag that keeps a connection on TCP is about to be set: moves
 * it there first, or resets it where the peer is silent. */
EXI_SHIM int exi_before_option(int fd, int level, int name);

/* Before fcntl(F_SETFL, flags): O_ASYNC forces TCP. 0 or -errno. */
EXI_SHIM int exi_before_flags(int fd, int flags);

/* The kind of the descriptor, when that is why it is on TCP; else reason. */
int exi_basic_reason(int fd, int reason);

#endif
