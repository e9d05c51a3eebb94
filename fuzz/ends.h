/* SPDX-License-Identifier: BSD-2-Clause */
/* A socket of the library, in this process, and the plain end of its
 * connection, which a fuzz target plays the peer at. The library's service
 * thread is left out: an input has the same effect each time, and what the
 * service would do the target does itself. */
#ifndef FUZZ_ENDS_H
#define FUZZ_ENDS_H

#include <stdbool.h>

struct exi_sock;

struct fuzz_ends {
	int s; /* the library's */
	struct exi_sock *sk;
	int peer; /* a descriptor of the kernel */
};

/* Connects the two; accepts: the library's end does. It never tries to meet by
 * itself. */
void fuzz_ends_begin(struct fuzz_ends *e, bool accepts);

/* Closes both, the peer's with a reset: it leaves no port behind. */
void fuzz_ends_end(struct fuzz_ends *e);

#endif
