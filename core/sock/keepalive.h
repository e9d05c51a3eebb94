/* SPDX-License-Identifier: BSD-2-Clause */
/* Keepalive on the TCP connection beneath a fabric between hosts. TCP is silent
 * while its bytes go elsewhere, and firewalls forget silent connections, often
 * after 350 seconds. Then neither the peer's end nor bytes that go back to TCP
 * come through.
 *
 * The program's own options are kept, returned where the shim intercepts the
 * program's question, and restored when the last direction has left the fabric.
 * An option stricter than the library's stands, and the library's options do
 * not end a connection sooner than the program's would. */
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
	_Atomic uint32_t stands; /* the library's options are set */
	int own[EXI_KEEP_OPTIONS];
	int ours[EXI_KEEP_OPTIONS];
};

/* Seconds of silence before a probe is sent. Constant but in tests. */
extern int exi_keepalive_idle;

/* A direction came to the fabric, or has left it. Its lock is held. */
void exi_keepalive_settle_locked(struct exi_sock *sk);

/* setsockopt(2) of the program, while the library's options are set. 1: they
 * are not, or not this option; ask the kernel. 0, -errno. */
EXI_SHIM int exi_keepalive_set(struct exi_sock *sk, int fd, int level, int name,
			       const void *val, socklen_t len);
/* Corrects what getsockopt(2) read into the buffer, len bytes, where the kernel
 * has the library's option and not the program's. */
EXI_SHIM void exi_keepalive_tell(struct exi_sock *sk, int level, int name,
				 void *val, socklen_t len);

#endif
