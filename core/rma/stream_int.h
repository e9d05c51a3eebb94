/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the two ends of the stream engine. */
#ifndef EXI_CORE_RMA_STREAM_INT_H
#define EXI_CORE_RMA_STREAM_INT_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes go to the ring in an odd phase, past it in an even one. */
static inline bool exi_stream_odd(uint32_t phase)
{
	return phase & 1;
}

/* The smaller one. */
static inline uint32_t exi_stream_min(uint64_t a, uint32_t b)
{
	return a < b ? (uint32_t)a : b;
}

/* The offset of a byte in the ring, computed for each message. A division takes
 * as long as all the rest, and rings are powers of two except in tests. */
static inline uint32_t exi_stream_place(uint64_t byte, uint32_t ring)
{
	return (uint32_t)(ring & (ring - 1) ? byte % ring : byte & (ring - 1));
}

#endif
