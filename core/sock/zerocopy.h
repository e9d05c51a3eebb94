/* SPDX-License-Identifier: BSD-2-Clause */
/* The numbers of sends with MSG_ZEROCOPY.
 *
 * The kernel counts such sends of a socket, each that moved something, and
 * tells in the socket's error queue, by ranges of these numbers, which of them
 * are done with their buffers. A send that a fabric carries is copied, so it is
 * done when it returns; the kernel does not count it, and the library tells of
 * it. The program counts both kinds in one sequence. This is that sequence, as
 * runs: sends in a row of one kind of which some are still to be told. The
 * program's number of a send is the kernel's plus the copied sends before it.
 *
 * The lock of half[EXI_TX] is held, except where said. */
#ifndef EXI_CORE_SOCK_ZEROCOPY_H
#define EXI_CORE_SOCK_ZEROCOPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

/* From `first` to `last`; numbers wrap. */
struct exi_zerocopy_note {
	uint32_t first, last;
	uint8_t code; /* SO_EE_CODE_ZEROCOPY_COPIED, or 0 */
};

struct exi_zerocopy_run {
	bool copied;
	uint32_t first;	 /* as the program counts */
	uint32_t kernel; /* as the kernel counts, unless copied */
	uint32_t n;
	uint32_t untold;
};

#define EXI_ZEROCOPY_RUNS 8

enum {
	EXI_ZEROCOPY_DUE = 1,	 /* the library has something to tell */
	EXI_ZEROCOPY_KERNEL = 2, /* the kernel has, or will have */
};

struct exi_zerocopy {
	_Atomic uint32_t state; /* the bits above; without the lock: a hint */
	uint32_t next;		/* the program's number of the next send */
	uint32_t kernel;	/* the kernel's */
	uint32_t early; /* the kernel's that were told before they returned */
	bool rests;	/* of the kernel's last range some is to be told: */
	struct exi_zerocopy_note rest; /* in the kernel's numbers */
	uint32_t n_runs;
	struct exi_zerocopy_run runs[EXI_ZEROCOPY_RUNS]; /* oldest first */
};

/* SO_ZEROCOPY is served: error queues are read through the library, and who
 * waits for EPOLLERR waits through it. False in a program that calls the
 * library by name, and has the kernel's error queue: then a connection with the
 * option stays on TCP. Set before the first connection. */
EXI_SHIM extern bool exi_zerocopy_served;

/* SO_ZEROCOPY is on. No lock is needed. */
bool exi_zerocopy_on(int fd);

/* Nothing was sent yet. */
void exi_zerocopy_clear(struct exi_zerocopy *z);

/* Whether the kernel may carry the next send: so many changes between the kinds
 * may wait to be told, and one place is kept for a copied send. */
bool exi_zerocopy_has_room(const struct exi_zerocopy *z);

/* A send returned that moved something: the kernel carried it; it was
 * copied. */
void exi_zerocopy_by_kernel(struct exi_zerocopy *z);
void exi_zerocopy_copied(struct exi_zerocopy *z);

/* Takes what the library is to tell next; false: the kernel is to be asked
 * before. asked: it was, and has nothing. */
bool exi_zerocopy_take(struct exi_zerocopy *z, bool asked,
		       struct exi_zerocopy_note *ret);

/* What the kernel told, in the program's numbers, as far as these are in one
 * range: exi_zerocopy_take() has the rest. */
struct exi_zerocopy_note exi_zerocopy_told(struct exi_zerocopy *z,
					   struct exi_zerocopy_note kernels);

#endif
