/* SPDX-License-Identifier: BSD-2-Clause */
/* The descriptor numbers that the library heeds. A hook of the shim asks for
 * the number's word first, which lies beside all else that hooks read
 * (preload/native.h).
 *
 * A word is a count of what came to the number, and three flags: ANY, something
 * of the library's is there still; BYTES, calls that move bytes, or ask whether
 * they would, must know of it; NAMES, a second number must be known (of an
 * epoll set that may get connections). A flag may be set for a number where
 * nothing is, never the other way round. What is put at a number can be found
 * before the count changes; a thread that finds nothing there has read the
 * count before it looked, and clears the flags only where the count is that
 * still. A hook reads the word relaxed: a thread that got the number from the
 * call that put something there, or from a thread that did, sees the word as it
 * was then, or a later one. */
#ifndef EXI_CORE_BASE_HEED_H
#define EXI_CORE_BASE_HEED_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/util.h"

#define EXI_HEEDED 512u /* numbers that have a word: all others are heeded */

enum {
	EXI_HEED_BYTES = 1,
	EXI_HEED_ANY = 2,
	EXI_HEED_NAMES = 4,
	EXI_HEED_COUNT = 8,
};

#define EXI_HEED_ALL (EXI_HEED_BYTES | EXI_HEED_ANY | EXI_HEED_NAMES)

/* The shim's words; null without it. */
EXI_SHIM extern _Atomic uint32_t *exi_heed;

/* Something of the library's is at the number, from before the call; the bits
 * that it is heeded for. */
EXI_SHIM void exi_heed_put(int fd, uint32_t bits);

/* The word, to be read before one looks what is at the number; 0: not
 * heeded. */
static inline uint32_t exi_heed_at(int fd)
{
	return exi_heed && (uint32_t)fd < EXI_HEEDED
		       ? atomic_load(&exi_heed[fd])
		       : 0;
}

/* For the bits there was no reason since the word was read. */
EXI_SHIM void exi_heed_clear(int fd, uint32_t was, uint32_t bits);

#endif
