/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's own descriptors: where they are, and what to do when none is
 * free. */
#ifndef EXI_CORE_BASE_FDS_H
#define EXI_CORE_BASE_FDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/rseq.h>

#include "core/base/util.h"

/* Gives a descriptor of the library a number in the top quarter of the soft
 * limit, CLOEXEC, so that the application's numbers stay what they would be.
 * Takes fd over; returns it (or a copy, fd closed); -EMFILE when the library
 * already holds a quarter of the limit, fd closed then too. */
EXI_SHIM int exi_fd_keep(int fd);
/* exi_fd_keep() for a descriptor that the connection can do without: -EMFILE,
 * too, when less than an eighth of the limit would be left to the
 * application. */
int exi_fd_spare(int fd);
/* The same two, but what is refused stays open: it may be slow to close
 * (core/sock/closing.h). */
int exi_fd_keep_open(int fd);
int exi_fd_spare_open(int fd);
/* The application needs what the library has: from here on a quarter must be
 * left, until it is. */
void exi_fds_ran_out(void);
bool exi_fds_short(void);
/* Whether the number is one that it keeps; from EXI_FD_MARKS on it is not
 * known. */
#define EXI_FD_MARKS 65536u
EXI_SHIM bool exi_fd_ours(int fd);
/* Whether it would keep n more. */
bool exi_fd_room(unsigned int n);
/* How many it keeps. */
EXI_SHIM unsigned int exi_fd_kept(void);
/* Whether less than a sixteenth of the limit is left, by a number that was the
 * lowest free one. */
EXI_SHIM bool exi_fd_scarce(int fd);
/* Closes one that exi_fd_keep() gave; -1 is fine. Keeps errno. */
EXI_SHIM void exi_fd_close(int fd);

/* Descriptors that the library makes have a low number for a moment, until they
 * are moved up or closed. A thread that makes some says so; it may do that
 * twice. */
void exi_fds_begin(void);
void exi_fds_end(void);

/* Stops the making of descriptors: around a call that puts a descriptor on a
 * number of the application's choice, which could be the low number of one that
 * is being made, and around fork, whose child would keep that. False, after a
 * while, when a thread makes one nevertheless: then there is nothing to
 * thaw. */
EXI_SHIM bool exi_fds_freeze(void);
EXI_SHIM void exi_fds_thaw(void);
void exi_fds_forked(void);

/* The soft limit of descriptors (RLIMIT_NOFILE), at most INT_MAX. */
unsigned int exi_fds_soft_limit(void);

/* The threads that make descriptors now; whether making them is frozen. */
extern _Atomic int exi_fds_makers, exi_fds_frozen;

/* How often the calling thread is between exi_fds_begin() and exi_fds_end(). */
extern _Thread_local int exi_fds_depth;

#endif
