/* SPDX-License-Identifier: BSD-2-Clause */
/* The control connection: lines of text, of at most 255 bytes. */
#ifndef EXS_TOOLS_PERF_CTL_H
#define EXS_TOOLS_PERF_CTL_H

#include <stddef.h>

#define PERF_LINE 256

struct perf_ctl {
	int fd;
	size_t have;
	char ahead[PERF_LINE]; /* read beyond the last line */
};

__attribute__((format(printf, 2, 3))) int perf_say(struct perf_ctl *c,
						   const char *fmt, ...);
/* The next line, without its end. -EPIPE: the other end is gone. */
int perf_hear(struct perf_ctl *c, char line[PERF_LINE]);
/* perf_hear() of a line that has come already. -EAGAIN: none has. */
int perf_heard(struct perf_ctl *c, char line[PERF_LINE]);

#endif
