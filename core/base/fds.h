/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's own descriptors: their numbers, and what happens when none is
 * free. */
#ifndef EXI_CORE_BASE_FDS_H
#define EXI_CORE_BASE_FDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/rseq.h>

#include "core/base/util.h"

/* Moves a descriptor of the library to a number in the top quarter of the soft
 * limit, with CLOEXEC, so that the application gets the numbers that it would
 * get without the library. Takes over fd, and returns it or a copy (fd is
 * closed then). -EMFILE if the library already holds a quarter of the limit; fd
 * is closed then, too. */
EXI_SHIM int exi_fd_keep(int fd);
/* exi_fd_keep() for a descriptor that the connection does not need: also
 * -EMFILE if less than an eighth of the limit would be left to the
 * application. */
int exi_fd_spare(int fd);
/* The same two calls, but on failure fd stays open, because closing it may be
 * slow (core/sock/closing.h). */
int exi_fd_keep_open(int fd);
int exi_fd_spare_open(int fd);
/* The application ran out of descriptors: from now on a quarter of the limit
 * must stay free for it, until that much is free. */
void exi_fds_ran_out(void);
bool exi_fds_short(void);
/* Whether the library keeps this number; unknown from EXI_FD_MARKS on. */
#define EXI_FD_MARKS 65536u
EXI_SHIM bool exi_fd_ours(int fd);
/* Whether the library could keep n more descriptors. */
bool exi_fd_room(unsigned int n);
/* The number of descriptors that the library keeps. */
EXI_SHIM unsigned int exi_fd_kept(void);
/* Whether less than a sixteenth of the limit is left, judged by a number that
 * was the lowest free one. */
EXI_SHIM bool exi_fd_scarce(int fd);
/* Closes a descriptor from exi_fd_keep(); -1 is allowed. Keeps errno. */
EXI_SHIM void exi_fd_close(int fd);

/* A descriptor that the library makes has a low number until it is moved up or
 * closed. A thread encloses the making in these two calls, which may be
 * nested. */
void exi_fds_begin(void);
void exi_fds_end(void);

/* Stops other threads from making descriptors: around a call that puts a
 * descriptor on a number of the application's choice, which could be the low
 * number of one that is being made, and around fork, whose child would inherit
 * it. Returns false, after a while, if a thread is still making one; then there
 * is nothing to thaw. */
EXI_SHIM bool exi_fds_freeze(void);
EXI_SHIM void exi_fds_thaw(void);
void exi_fds_forked(void);

/* The soft limit of descriptors (RLIMIT_NOFILE), at most INT_MAX. */
unsigned int exi_fds_soft_limit(void);

/* The threads that make descriptors now; whether making them is frozen. */
extern _Atomic int exi_fds_makers, exi_fds_frozen;

/* The calling thread's depth of exi_fds_begin() without exi_fds_end(). */
extern _Thread_local int exi_fds_depth;

#endif
