/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream of the kernel on which a connection begins, and to which it can go
 * back at any time: what the core asks the kernel about it, and does to it. One
 * table for each kind of stream; each socket has that of its kind. */
#ifndef EXI_CORE_SOCK_BASE_H
#define EXI_CORE_SOCK_BASE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"

enum exi_role;
struct exi_sock;

struct exi_base {
	/* is: a socket of this domain, type (without flags) and protocol is
	 * one; protocol 0: the usual one of the domain. */
	bool (*is)(int domain, int type, int protocol);
	/* forbidden: why this socket is never upgraded (EXS_X_REASON_*), or
	 * EXS_X_REASON_NONE. */
	int (*forbidden)(int fd);
	/* role: which end of its connection this is; EXI_ROLE_NONE: it cannot
	 * be told, or there is no connection. */
	enum exi_role (*role)(int fd);
	/* same: the descriptor is still the connection of sk, as far as it can
	 * be told: plain calls may have closed it, and reused the number. */
	bool (*same)(struct exi_sock *sk, int fd);
	/* written: the bytes ever written to the stream, all of which the peer
	 * gets before what is written later. The TX lock is held. 0, -errno. */
	int (*written)(struct exi_sock *sk, uint64_t *ret);
	/* read: the bytes ever read from the stream, of which the peer has
	 * written so many, and writes no more. The RX lock is held. 0; -EAGAIN:
	 * they change too fast; another error. */
	int (*read)(struct exi_sock *sk, uint64_t written, uint64_t *ret);
	/* counts: both, to be reported; of a connection that was reset after
	 * its FIN, one read too few. 0, -errno. */
	int (*counts)(struct exi_sock *sk, uint64_t *ret_rx, uint64_t *ret_tx);
	/* push: sends what the kernel holds back for more bytes to come. What
	 * only the peer's window holds back flows when the peer reads. 0,
	 * -errno. */
	int (*push)(int fd);
	/* disconnect: resets the connection and leaves the descriptor open. */
	bool (*disconnect)(int fd);
	/* sign: makes the sign of proof.h on a new end; sign_used: on one that
	 * the program may have changed, and returns what unsign is to be given
	 * (else 0); unsign: takes it back before the descriptor leaves the
	 * library, where it can be seen. */
	void (*sign)(int fd);
	int (*sign_used)(int fd);
	void (*unsign)(int fd, int before);
	/* What is accepted has the options of its listener, such as the sign
	 * and times. */
	bool options_inherited;
	/* Fabrics between hosts can carry it. */
	bool between_hosts;
	/* The last close of one end ends both directions of the other at once,
	 * and a close, or death, with bytes unread is one ECONNRESET behind
	 * what the other has not read. Else a close ends one direction, and is
	 * a reset if SO_LINGER or unread bytes make it one. */
	bool ends_both;
	/* The kernel counts nothing: written and read are what the library
	 * counts since the connection began, and agree at both ends of it at
	 * the first switch. */
	bool counted_here;
	/* most: the most bytes of a ring for which the stream has room when
	 * they are taken back, also while nobody reads; null: it has for
	 * any. */
	uint32_t (*most)(void);
	/* beside: of such a ring of this size, for how many bytes more; a
	 * direction for which more are queued goes up later. Where most is. */
	int64_t (*beside)(uint32_t ring);
	/* An end is connected, and sends, before the other is accepted and can
	 * be asked for. */
	bool early;
	/* Calls: MSG_TRUNC discards, and MSG_ERRQUEUE and MSG_ZEROCOPY mean
	 * something. */
	bool tcp_flags;
	/* poll looks at SO_RCVLOWAT. */
	bool lowat_polled;
	/* Messages have the peer's address, if it has one, and may carry more
	 * than bytes. Whoever can send can do so out of band, poll says. */
	bool messages;
	/* option: why a connection that gets this option leaves the fabric, or
	 * EXS_X_REASON_NONE. */
	int (*option)(int level, int name);
};

/* tcp.c, unix.c */
extern const struct exi_base exi_base_tcp, exi_base_unix;

/* Of a UNIX stream whose SO_SNDBUF may become so much: how large a ring is, and
 * beside. */
uint32_t exi_unix_ring(uint32_t most_room);
int64_t exi_unix_beside(uint32_t most_room, uint32_t ring);

/* Why no socket of whatever kind with these options is upgraded, or
 * EXS_X_REASON_NONE. */
int exi_base_forbidden(int fd);

/* The table for such a socket; null: its kind is never upgraded. */
EXI_SHIM const struct exi_base *exi_base_for(int domain, int type,
					     int protocol);

/* The same for an open descriptor. */
const struct exi_base *exi_base_of(int fd);

#endif
