/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream of the kernel on which a connection begins, and to which it can go
 * back at any time: what the core asks the kernel about it, and does to it. One
 * table for each kind of stream; each socket has that of its kind. */
#ifndef EXI_CORE_SOCK_BASE_H
#define EXI_CORE_SOCK_BASE_H

#include <stdbool.h>
#include <stdint.h>

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
};

/* tcp.c */
extern const struct exi_base exi_base_tcp;

/* The table for such a socket; null: its kind is never upgraded. */
const struct exi_base *exi_base_for(int domain, int type, int protocol);

/* The same for an open descriptor. */
const struct exi_base *exi_base_of(int fd);

#endif
