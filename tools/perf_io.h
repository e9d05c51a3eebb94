/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous socket calls, of the kernel or of the ES-API, behind one table,
 * so that the same loops measure both. All return 0, a count or -errno. */
#ifndef EXS_TOOLS_PERF_IO_H
#define EXS_TOOLS_PERF_IO_H

#include <stddef.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "tools/perf.h"

struct perf_io {
	/* Once per process, before anything else. */
	int (*start)(void);
	int (*socket)(int domain);
	int (*bind)(int s, const struct sockaddr *addr, socklen_t len);
	int (*listen)(int s, int backlog);
	int (*connect)(int s, const struct sockaddr *to, socklen_t len);
	int (*accept)(int s);
	/* One call, which may move a part of len. recv: 0 is the end of the
	 * stream. */
	ssize_t (*send)(int s, const void *buf, size_t len);
	ssize_t (*recv)(int s, void *buf, size_t len);
	int (*set)(int s, int level, int name, int value);
	int (*close)(int s);
	/* -EOPNOTSUPP: the API has no such information. */
	int (*info)(int s, exs_x_sockinfo_t *ret);
};

/* The calls of the plan's API. Sockets that the process makes from now on are
 * of the plan's kind. */
const struct perf_io *perf_io(const struct perf_plan *plan);

/* Whether plain calls of this process go through exs run's library. */
bool perf_io_shim(void);
/* Whether info() is available in this process. */
bool perf_io_knows(enum perf_api api);

/* Send and receive all of len. perf_recv_all() returns len; 0: the stream ended
 * before the first byte; -ECONNRESET: it ended in between. */
static inline int perf_send_all(const struct perf_io *io, int s,
				const void *buf, size_t len)
{
	const char *p = buf;
	ssize_t n;

	while (len) {
		n = io->send(s, p, len);
		if (n < 0)
			return (int)n;
		p += n;
		len -= n;
	}
	return 0;
}

ssize_t perf_recv_more(const struct perf_io *io, int s, char *buf, size_t have,
		       size_t len);

static inline ssize_t perf_recv_all(const struct perf_io *io, int s, void *buf,
				    size_t len)
{
	ssize_t n = io->recv(s, buf, len);

	if (n <= 0 || (size_t)n == len)
		return n;
	return perf_recv_more(io, s, buf, n, len);
}

/* Memory for messages: zeroed, page-aligned, and touched. Null: no memory. */
void *perf_buffer(size_t len);
void perf_buffer_free(void *buf, size_t len);

#endif
