/* SPDX-License-Identifier: BSD-2-Clause */
/* Plain connections: made by plain calls, or forced to TCP. */
#ifndef EXI_CORE_LIFE_PLAIN_H
#define EXI_CORE_LIFE_PLAIN_H

#include "core/base/util.h"

struct exi_patience;

/* Allows upgrades for a descriptor that plain calls made, or allows them
 * again. */
int exi_adopt(int fd);
EXI_SHIM int exi_downgrade(int fd);

/* Moves a connection to TCP for good, for this reason. 0 also if fd is not the
 * library's. p: see exi_switch_down(). */
EXI_SHIM int exi_go_plain(int fd, int reason, struct exi_patience *p);

/* Called before an option is set that keeps a connection on TCP: moves it there
 * first, or resets it if the peer does not answer. */
EXI_SHIM int exi_before_option(int fd, int level, int name);

/* Before fcntl(F_SETFL, flags): O_ASYNC forces TCP. 0 or -errno. */
EXI_SHIM int exi_before_flags(int fd, int flags);

/* The reason that the descriptor's kind gives for being on TCP, if it gives
 * one; else `reason'. */
int exi_basic_reason(int fd, int reason);

#endif
