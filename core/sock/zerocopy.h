/* SPDX-License-Identifier: BSD-2-Clause */
/* The numbers of sends with MSG_ZEROCOPY.
 *
 * The kernel counts such sends of a socket, if they moved anything, and reports
 * in the socket's error queue, by ranges of these numbers, which of them no
 * longer use their buffers. A send that a fabric carries is copied, so it is
 * done when it returns; the kernel does not count it, and the library reports
 * it. The program counts both kinds in one sequence. This file keeps that
 * sequence as runs: sends in a row of one kind, of which some have not been
 * reported yet. The program's number of a send is the kernel's number plus the
 * number of copied sends before it.
 *
 * The lock of half[EXI_TX] is held, except where stated. */
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
	EXI_ZEROCOPY_DUE = 1,	 /* the library has something to report */
	EXI_ZEROCOPY_KERNEL = 2, /* the kernel has, or will have */
};

struct exi_zerocopy {
	_Atomic uint32_t state; /* the bits above; without the lock: a hint */
	uint32_t next;		/* the program's number of the next send */
	uint32_t kernel;	/* the kernel's */
	/* the kernel's sends that were reported before they returned */
	uint32_t early;
	/* some of the kernel's last range is not reported yet: */
	bool rests;
	struct exi_zerocopy_note rest; /* in the kernel's numbers */
	uint32_t n_runs;
	struct exi_zerocopy_run runs[EXI_ZEROCOPY_RUNS]; /* oldest first */
};

/* SO_ZEROCOPY is served: error queues are read through the library, and a
 * thread that waits for EPOLLERR waits through it. False in a program that
 * calls the library by name and reads the kernel's error queue: there, a
 * connection with the option stays on TCP. Set before the first connection. */
EXI_SHIM extern bool exi_zerocopy_served;

/* SO_ZEROCOPY is on. No lock is needed. */
bool exi_zerocopy_on(int fd);

/* Nothing was sent yet. */
void exi_zerocopy_clear(struct exi_zerocopy *z);

/* Whether the kernel may carry the next send: the number of unreported changes
 * between the kinds is limited, and one place is reserved for a copied send. */
bool exi_zerocopy_has_room(const struct exi_zerocopy *z);

/* A send that moved something returned: the kernel carried it (by_kernel), or
 * it was copied (copied). */
void exi_zerocopy_by_kernel(struct exi_zerocopy *z);
void exi_zerocopy_copied(struct exi_zerocopy *z);

/* Takes the library's next report; false: the kernel must be asked first.
 * asked: it was asked, and has none. */
bool exi_zerocopy_take(struct exi_zerocopy *z, bool asked,
		       struct exi_zerocopy_note *ret);

/* The kernel's report in the program's numbers, as far as these are in one
 * range: exi_zerocopy_take() has the rest. */
struct exi_zerocopy_note exi_zerocopy_told(struct exi_zerocopy *z,
					   struct exi_zerocopy_note kernels);

#endif
