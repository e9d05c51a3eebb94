/* SPDX-License-Identifier: BSD-2-Clause */
/* exs trace: reads the capture of a process, and writes it as pcapng. */
#ifndef EXS_TOOLS_TRACE_H
#define EXS_TOOLS_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/sock/capture_page.h"

/* What to capture. */
struct trace_wish {
	pid_t pid;
	int fd;	       /* -1: all */
	uint16_t port; /* 0: all */
	uint32_t snap;
	uint32_t ring;
};

/* The capture of a process, while it is read. */
struct trace_reader {
	int file;
	int life; /* the pipe whose end here keeps the capture alive */
	uint64_t ring_bytes;
	uint64_t at;	 /* the next record */
	uint64_t number; /* the number that it should have */
	uint64_t lost;
	unsigned char *buf;
	/* If set, only the records that are there now are read, though a
	 * program that writes without a pause never lets the ring become
	 * empty. */
	bool last;
	uint64_t stop; /* where these end, once last is set */
};

/* Begins the capture. Returns an exit code; an error is printed on stderr. */
int trace_begin(const struct trace_wish *w, struct trace_reader *ret);
/* Calls f for every record that is there now; lost: the number of records that
 * are missing before it. Returns the number of records, or -errno: the process
 * wrote invalid data, or f() failed. A record is checked only as far as its
 * size; its other members may have any value. */
int trace_read(struct trace_reader *r,
	       int (*f)(const struct exi_capture_record *rec,
			const unsigned char *bytes, uint64_t lost, void *arg),
	       void *arg);
/* Waits for a short time. True: the process has ended the capture. */
bool trace_over(struct trace_reader *r);
void trace_end(struct trace_reader *r);

/* A pcapng stream. */
#define TRACE_FABRICS 8
#define TRACE_BUFFER  (1u << 20)
struct trace_writer {
	int out;
	const _Atomic int *interrupted; /* if set, no write waits */
	unsigned char *buf;
	size_t n;
	pid_t pid;
	char name[32];			 /* of the program */
	char fabrics[TRACE_FABRICS][16]; /* that have an interface */
	uint32_t n_fabrics;
	uint16_t id; /* of the next packet of IPv4 */
	uint64_t packets;
	uint64_t most; /* packets that are written; 0: all */
	uint64_t lost;
};

/* 0, or -errno of the output; -EINTR: the output takes nothing now, and the
 * command was interrupted. */
int trace_write_head(struct trace_writer *w);
int trace_write(struct trace_writer *w, const struct exi_capture_record *r,
		const unsigned char *bytes, uint64_t lost);
int trace_write_end(struct trace_writer *w);
/* Writes what is buffered. */
int trace_write_flush(struct trace_writer *w);

#endif
