/* SPDX-License-Identifier: BSD-2-Clause */
/* What the client and the server of a measurement share. */
#ifndef EXS_TOOLS_PERF_SERVER_H
#define EXS_TOOLS_PERF_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "tools/perf_io.h"

struct perf_used {
	int64_t cpu_us;
	int64_t user_us; /* of cpu_us, outside the kernel */
	int64_t bells;	 /* doorbells that this end sent */
	int64_t sent;	 /* bytes */
	int64_t direct;	 /* of these, not copied */
};

/* What this process has used so far, with the doorbells of n connections. */
void perf_used(const struct perf_io *io, const int *fds, unsigned int n,
	       struct perf_used *ret);

/* The address of an end of the control connection, with another port. A UNIX
 * pair gives the loopback address; an IPv4 address in IPv6 becomes IPv4. */
int perf_address(int ctl, bool peer, uint16_t port,
		 struct sockaddr_storage *ret, socklen_t *ret_len);

/* Raises the limit of descriptors to what the system allows, and ignores
 * SIGPIPE: a peer that left is an error. */
void perf_raise_limits(void);

#endif
