/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's stream on which a connection begins, and to which it can go back
 * at any time: the core's questions to the kernel about it, and its actions on
 * it. One table for each kind of stream; each socket has the table of its
 * kind. */
#ifndef EXI_CORE_SOCK_BASE_H
#define EXI_CORE_SOCK_BASE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

enum exi_role;
struct exi_sock;

struct exi_base {
	/* is: whether a socket of this domain, type (without flags) and
	 * protocol is of this kind; protocol 0: the domain's usual one. */
	bool (*is)(int domain, int type, int protocol);
	/* forbidden: why this socket is never upgraded (EXS_X_REASON_*), or
	 * EXS_X_REASON_NONE. */
	int (*forbidden)(int fd);
	/* role: which end of its connection this is; EXI_ROLE_NONE: the kernel
	 * does not show it, or there is no connection. */
	enum exi_role (*role)(int fd);
	/* same: the descriptor is still the connection of sk, as far as the
	 * kernel shows: plain calls may have closed it, and reused the
	 * number. */
	bool (*same)(struct exi_sock *sk, int fd);
	/* written: the bytes ever written to the stream; the peer gets all of
	 * them before bytes that are written later. The TX lock is held. 0,
	 * -errno. */
	int (*written)(struct exi_sock *sk, uint64_t *ret);
	/* read: the bytes ever read from the stream, to which the peer has
	 * written `written` bytes, and writes no more. The RX lock is held. 0;
	 * -EAGAIN: they change too fast; another error. */
	int (*read)(struct exi_sock *sk, uint64_t written, uint64_t *ret);
	/* counts: both numbers, for reports; after a FIN and then a reset, the
	 * count of bytes read is one too small. 0, -errno. */
	int (*counts)(struct exi_sock *sk, uint64_t *ret_rx, uint64_t *ret_tx);
	/* push: sends the bytes that the kernel holds back in expectation of
	 * more. Bytes that only the peer's window holds back flow when the peer
	 * reads. 0, -errno. */
	int (*push)(int fd);
	/* disconnect: resets the connection and leaves the descriptor open. */
	bool (*disconnect)(int fd);
	/* sign: makes the sign of proof.h on a new end; sign_used: on an end
	 * that the program may have changed; returns the argument for unsign,
	 * or 0; unsign: removes it before the descriptor leaves the library for
	 * a place where it would be visible. */
	void (*sign)(int fd);
	int (*sign_used)(int fd);
	void (*unsign)(int fd, int before);
	/* An accepted socket has the options of its listener, such as the sign
	 * and times. */
	bool options_inherited;
	/* An end gets the sign when it has moved enough bytes for a meeting,
	 * because most ends close before. A peer that finds none looks again
	 * when it gets an answer. */
	bool sign_waits;
	/* A listener has a port, and the library holds its marker. */
	bool ports;
	/* Fabrics between hosts can carry it. */
	bool between_hosts;
	/* The last close of one end ends both directions of the other at once,
	 * and a close, or death, with bytes unread is one ECONNRESET behind the
	 * bytes that the other end has not read. Otherwise a close ends one
	 * direction, and is a reset if SO_LINGER or unread bytes make it
	 * one. */
	bool ends_both;
	/* The kernel counts nothing: written and read are the library's counts
	 * since the connection began, which agree at both ends at the first
	 * switch. */
	bool counted_here;
	/* most: the largest ring for what fd sends: a program that the kernel
	 * holds up is held up by the ring, too, and the stream has space for
	 * the bytes when they are taken back, also while no end reads. null: no
	 * limit. */
	uint32_t (*most)(int fd);
	/* beside: with a ring of this size, the number of further bytes for
	 * which the stream has space; a direction with more bytes queued goes
	 * to the fabric later. Set if most is. */
	int64_t (*beside)(uint32_t ring);
	/* One end is connected, and sends, before the other is accepted and can
	 * be asked for. */
	bool early;
	/* MSG_TRUNC discards bytes, and MSG_ERRQUEUE and MSG_ZEROCOPY have a
	 * meaning. */
	bool tcp_flags;
	/* poll looks at SO_RCVLOWAT. */
	bool lowat_polled;
	/* Messages have the peer's address, if it has one, and may carry more
	 * than bytes. poll reports that any end that can send can send
	 * out-of-band data. */
	bool messages;
	/* SOCK_SEQPACKET: each send is a message, and counts as
	 * exi_seq_unit() (seqpacket.h), in the kernel, too. */
	bool packets;
	/* admits: null, or the unread bytes from which the kernel admits no
	 * more of what fd sends. */
	uint32_t (*admits)(int fd);
	/* option: why a connection that gets this option leaves the fabric, or
	 * EXS_X_REASON_NONE. */
	int (*option)(int level, int name);
};

/* tcp.c, unix.c */
extern const struct exi_base exi_base_tcp, exi_base_unix, exi_base_packets;

/* For a UNIX stream whose SO_SNDBUF may become most_room: the size of a ring,
 * and the value of beside. */
uint32_t exi_unix_ring(uint32_t most_room);
int64_t exi_unix_beside(uint32_t most_room, uint32_t ring);

/* The reason for which no socket of any kind with these options is upgraded, or
 * EXS_X_REASON_NONE. */
int exi_base_forbidden(int fd);

/* The table for a socket of this kind; null: the kind is never upgraded. */
EXI_SHIM const struct exi_base *exi_base_for(int domain, int type,
					     int protocol);

/* The same for an open descriptor. */
const struct exi_base *exi_base_of(int fd);

#endif
