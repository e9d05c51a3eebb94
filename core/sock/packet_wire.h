/* SPDX-License-Identifier: BSD-2-Clause */
/* The framing of messages (SOCK_SEQPACKET), on every fabric, in each direction;
 * see docs/design/wire-packet.md:
 *
 *	hello	once, before the first message
 *	head	before each message
 *	...	its bytes
 */
#ifndef EXI_CORE_SOCK_PACKET_WIRE_H
#define EXI_CORE_SOCK_PACKET_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/exs_ext.h>

/* No text begins with these bytes, in UTF-8 either. The last byte is the
 * version. */
#define EXI_PACKET_HELLO                                                       \
	"\x89"                                                                 \
	"EXSMSG"                                                               \
	"\x01"
#define EXI_PACKET_HELLO_LEN 8

struct exi_packet_head {
	uint32_t len; /* little-endian, at most EXS_X_MESSAGE_MAX */
};

#define EXI_PACKET_HEAD	 ((uint32_t)sizeof(struct exi_packet_head))
#define EXI_PACKET_FIRST (EXI_PACKET_HELLO_LEN + EXI_PACKET_HEAD)

_Static_assert(sizeof(EXI_PACKET_HELLO) - 1 == EXI_PACKET_HELLO_LEN,
	       "the hello is eight bytes");
_Static_assert(sizeof(struct exi_packet_head) == 4, "no padding");
_Static_assert(offsetof(struct exi_packet_head, len) == 0, "as documented");
_Static_assert(EXS_X_MESSAGE_MAX < 1u << 30, "two bits of the length are zero");

#endif
