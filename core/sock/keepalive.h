/* SPDX-License-Identifier: BSD-2-Clause */
/* Keepalive on the TCP connection beneath a fabric between hosts. TCP is silent
 * while its bytes go elsewhere, and firewalls forget silent connections, after
 * 350 seconds often: then neither the end of the peer comes through nor what
 * goes back to TCP.
 *
 * The program's own options are kept, told where the shim sees that it asks,
 * and restored when the last direction has left the fabric. What is stricter
 * than ours stands; nor does ours end a connection sooner than the program's
 * would. */
#ifndef EXI_CORE_SOCK_KEEPALIVE_H
#define EXI_CORE_SOCK_KEEPALIVE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/lock.h"
#include "core/base/util.h"

struct exi_sock;

/* SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT. */
#define EXI_KEEP_OPTIONS 5

/* The options of a socket, for all processes that share it. */
struct exi_keepalive {
	struct exi_lock lock;
	_Atomic uint32_t stands; /* ours does */
	int own[EXI_KEEP_OPTIONS];
	int ours[EXI_KEEP_OPTIONS];
};

/* Seconds of silence before a probe is sent. Constant but in tests. */
extern int exi_keepalive_idle;

/* A direction came to the fabric, or has left it. Its lock is held. */
void exi_keepalive_settle_locked(struct exi_sock *sk);

/* setsockopt(2) of the program, where ours stands. 1: it does not, or not for
 * this option; ask the kernel. 0, -errno. */
EXI_SHIM int exi_keepalive_set(struct exi_sock *sk, int fd, int level, int name,
			       const void *val, socklen_t len);
/* Corrects what getsockopt(2) read into the buffer, len bytes, where the kernel
 * has the library's option and not the program's. */
EXI_SHIM void exi_keepalive_tell(struct exi_sock *sk, int level, int name,
				 void *val, socklen_t len);

#endif
