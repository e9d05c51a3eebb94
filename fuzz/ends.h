/* SPDX-License-Identifier: BSD-2-Clause */
/* A socket of the library in this process, and the plain end of its connection,
 * at which a fuzz target plays the peer. The library's service thread does not
 * run, so that an input has the same effect each time; the target does the work
 * of that thread itself. */
#ifndef FUZZ_ENDS_H
#define FUZZ_ENDS_H

#include <stdbool.h>

struct exi_sock;

struct fuzz_ends {
	int s; /* the library's */
	struct exi_sock *sk;
	int peer; /* a descriptor of the kernel */
};

/* Connects the two, by TCP or by a UNIX stream; accepts: the library's end
 * accepts. It never starts to meet by itself. */
void fuzz_ends_begin(struct fuzz_ends *e, bool accepts, bool is_unix);

/* Closes both, the peer's end with a reset, which leaves no port in use. */
void fuzz_ends_end(struct fuzz_ends *e);

#endif
