/* SPDX-License-Identifier: BSD-2-Clause */
/* A lane is one thread of the client with its connections, and the matching
 * functions of the server. A one-way stream marks its own end: all bytes are 0,
 * but the last message ends in a 1, which the server answers with one byte. The
 * server looks only at the last byte of each call. */
#ifndef EXS_TOOLS_PERF_LANE_H
#define EXS_TOOLS_PERF_LANE_H

#include <errno.h>
#include <stdbool.h>
#include <sys/exs.h>
#include <sys/socket.h>

#include "tools/perf.h"
#include "tools/perf_io.h"
#include "tools/perf_meter.h"

#define PERF_LAST_BYTE 1

struct perf_lane;
/* Runs a lane until it reaches its goal. */
typedef int perf_drive(struct perf_lane *l);

struct perf_lane {
	perf_drive *drive;
	const struct perf_plan *plan;
	const struct perf_io *io;
	const int *fds;
	unsigned int n_fds;
	struct sockaddr_storage to; /* for new connections */
	socklen_t to_len;
	struct perf_local *local;
	char *buf;	      /* a message */
	char *last;	      /* the message that ends a stream */
	exs_qhandle_t q;      /* asynchronous lanes only */
	exs_mhandle_t mem[2]; /* of buf and last */
	struct perf_goal goal;
	struct perf_meter *meter;
	exs_x_sockinfo_t info; /* of the last connection, for --test conn */
	uint64_t asked;	       /* how often info was to be filled in */
	int result;
};

/* Whether an error means that the other end closed the connection. */
static inline bool perf_is_end(int err)
{
	return err == -EPIPE || err == -ECONNRESET || err == -ECONNREFUSED;
}

/* perf_stream.c: synchronous calls. */
perf_drive perf_stream_lat, perf_stream_bw, perf_stream_conn;
/* Serve one connection until it ends, or a listener for ever. 0, or the error
 * that ended them. */
int perf_stream_echo(const struct perf_io *io, int s,
		     const struct perf_plan *plan);
int perf_stream_sink(const struct perf_io *io, int s,
		     const struct perf_plan *plan);
int perf_stream_respond(const struct perf_io *io, int listener,
			const struct perf_plan *plan);
/* The size of one receive of a one-way stream. */
size_t perf_sink_size(const struct perf_plan *plan);

/* perf_async.c: operations outstanding on event queues. */
perf_drive perf_async_lat, perf_async_bw;
int perf_async_open(struct perf_lane *l);
void perf_async_close(struct perf_lane *l);
int perf_async_echo(int s, const struct perf_plan *plan);
int perf_async_sink(int s, const struct perf_plan *plan);

/* perf_epoll.c: many connections in one thread. */
perf_drive perf_epoll_lat;
/* The connections of a server; other threads read their counters meanwhile. */
struct perf_guests {
	_Atomic unsigned int n;
	unsigned int room;
	int *fds;
};
void perf_guest(struct perf_guests *g, int fd);
/* Accepts connections; returns when all connections of the plan have ended. */
int perf_epoll_serve(int listener, const struct perf_plan *plan,
		     struct perf_guests *guests);

/* perf_raw.c: bare shared memory. */
perf_drive perf_raw_lat, perf_raw_bw;
int perf_raw_serve(struct perf_local *local, const struct perf_plan *plan);

/* What both ends of a local API share; made before the fork. */
struct perf_local {
	int fds[2];	      /* a UNIX pair, or -1 */
	struct perf_raw *raw; /* or null */
};
int perf_local_open(struct perf_local *l, const struct perf_plan *plan);
void perf_local_close(struct perf_local *l);
int perf_raw_open(struct perf_raw **ret);
void perf_raw_free(struct perf_raw *r);

#endif
