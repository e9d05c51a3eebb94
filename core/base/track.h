/* SPDX-License-Identifier: BSD-2-Clause */
/* The descriptor numbers that the library tracks. A hook of the shim first
 * reads the number's word, which lies beside everything else that hooks read
 * (preload/native.h).
 *
 * A word is a count of what was put at the number, and three flags. ANY:
 * something of the library's is there. BYTES: calls that move bytes, or poll
 * for them, must know of it. NAMES: duplicates of the number must be known (of
 * an epoll set that may get connections). A flag may be set for a number where
 * nothing is, but never clear where something is. What is put at a number can
 * be found before the count changes. A thread that finds nothing there has read
 * the count before it looked, and clears the flags only if the count is
 * unchanged. A hook reads the word relaxed: a thread that got the number from
 * the call that put something there, or from a thread that did, sees the word
 * as it was then, or a later one. */
#ifndef EXI_CORE_BASE_TRACK_H
#define EXI_CORE_BASE_TRACK_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/util.h"

#define EXI_TRACKED 512u /* numbers that have a word: all others are tracked */

enum {
	EXI_TRACK_BYTES = 1,
	EXI_TRACK_ANY = 2,
	EXI_TRACK_NAMES = 4,
	EXI_TRACK_COUNT = 8,
};

#define EXI_TRACK_ALL (EXI_TRACK_BYTES | EXI_TRACK_ANY | EXI_TRACK_NAMES)

/* The shim's words; null without it. */
EXI_SHIM extern _Atomic uint32_t *exi_track;

/* Called once something of the library's is at the number: counts, and sets the
 * bits for which the number is tracked. */
EXI_SHIM void exi_track_put(int fd, uint32_t bits);

/* The number's word, read before one looks what is at the number; 0: not
 * tracked. */
static inline uint32_t exi_track_at(int fd)
{
	return exi_track && (uint32_t)fd < EXI_TRACKED
		       ? atomic_load(&exi_track[fd])
		       : 0;
}

/* Clears the bits, for which there was no reason since the word `was` was
 * read. */
EXI_SHIM void exi_track_clear(int fd, uint32_t was, uint32_t bits);

#endif
