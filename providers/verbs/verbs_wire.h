/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of the wire format that only verbs uses over a queue pair:
 * docs/design/wire-verbs.md. Numbers are little-endian. */
#ifndef EXI_PROVIDERS_VERBS_WIRE_H
#define EXI_PROVIDERS_VERBS_WIRE_H

#include <stdint.h>

/* What CONFIRM and READY prove: where the ring of their sender is. */
struct verbsp_ring {
	uint64_t addr;
	uint32_t rkey;
	uint32_t bytes; /* a power of two */
};
_Static_assert(sizeof(struct verbsp_ring) == 16, "struct verbsp_ring");

#endif
