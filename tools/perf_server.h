/* SPDX-License-Identifier: BSD-2-Clause */
/* What client and server of a measurement both need. */
#ifndef EXS_TOOLS_PERF_SERVER_H
#define EXS_TOOLS_PERF_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "tools/perf_io.h"

struct perf_used {
	int64_t cpu_us;
	int64_t user_us; /* of cpu_us, outside the kernel */
	int64_t bells;	 /* rung by this end */
	int64_t sent;	 /* bytes */
	int64_t direct;	 /* of them, not copied */
};

/* What this process used so far, with the bells of n connections. */
void perf_used(const struct perf_io *io, const int *fds, unsigned int n,
	       struct perf_used *ret);

/* The address of the control connection's end, with another port; a UNIX pair
 * means loopback, and IPv4 in IPv6 is IPv4. */
int perf_address(int ctl, bool peer, uint16_t port,
		 struct sockaddr_storage *ret, socklen_t *ret_len);

/* All descriptors the system grants; a peer that left is an error, not a
 * signal. */
void perf_raise_limits(void);

#endif
