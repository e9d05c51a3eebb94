/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of the wire format that only ofi uses: docs/design/wire-ofi.md.
 * Numbers are little-endian. */
#ifndef EXI_PROVIDERS_OFI_WIRE_H
#define EXI_PROVIDERS_OFI_WIRE_H

#include <stdint.h>

#define OFIP_NAME_MAX 128

/* The terms of ANSWER: how B is reached. They are not secret. */
struct ofip_terms {
	uint32_t format; /* the name's, as libfabric numbers them */
	uint16_t len;	 /* the name's */
	uint8_t rdm;	 /* the kind of endpoint */
	uint8_t zero;
	uint8_t token[16]; /* for the connection manager */
	uint8_t name[OFIP_NAME_MAX];
};
_Static_assert(sizeof(struct ofip_terms) == 152, "struct ofip_terms");

/* The place of CONFIRM and READY: where the ring of its sender is, and the
 * name by which its link is called in messages. */
struct ofip_place {
	uint64_t addr;
	uint64_t key;
	uint32_t bytes; /* a power of two */
	uint32_t link;
	uint32_t format; /* A's endpoint, for FI_EP_RDM */
	uint16_t len;
	uint8_t zero[2];
	uint8_t name[OFIP_NAME_MAX];
};
_Static_assert(sizeof(struct ofip_place) == 160, "struct ofip_place");

#endif
