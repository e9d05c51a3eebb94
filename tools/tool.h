/* SPDX-License-Identifier: BSD-2-Clause */
/* What the subcommands of exs share: entry points, exit codes, messages, and
 * numbers as text. */
#ifndef EXS_TOOLS_TOOL_H
#define EXS_TOOLS_TOOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes. */
enum {
	TOOL_OK = 0,
	TOOL_FAILED = 1, /* tried, and failed */
	TOOL_USAGE = 2,	 /* invalid arguments */
};

/* Subcommands; argv[0] is "exs NAME". They return an exit code. */
int tool_check(int argc, char **argv);
int tool_downgrade(int argc, char **argv);
int tool_info(int argc, char **argv);
int tool_key(int argc, char **argv);
int tool_log(int argc, char **argv);
int tool_perf(int argc, char **argv);
int tool_report(int argc, char **argv);
int tool_run(int argc, char **argv);
int tool_stat(int argc, char **argv);
int tool_trace(int argc, char **argv);
int tool_upgrade(int argc, char **argv);

/* Prints one line, "exs NAME: text", on stderr, and returns TOOL_FAILED. */
__attribute__((format(printf, 1, 2))) int tool_fail(const char *fmt, ...);

/* Whether fd is a terminal that understands escape sequences. */
bool tool_is_screen(int fd);

/* Parse a number of things ("200000", "200k") or of bytes ("64k" is 65536). 0,
 * or -EINVAL. */
int tool_parse_count(const char *text, uint64_t *ret);
int tool_parse_bytes(const char *text, uint64_t *ret);
/* "2", "0.25", "300ms". */
int tool_parse_seconds(const char *text, uint64_t *ret_ns);

/* For people: write three digits and a unit to buf, and return it. */
#define TOOL_TEXT 32
/* "-" for 0, which is no time. */
const char *tool_text_ns(char buf[TOOL_TEXT], double ns);
const char *tool_text_bytes(char buf[TOOL_TEXT], uint64_t bytes);
/* "12.3 M"; the name of what is counted follows. */
const char *tool_text_count(char buf[TOOL_TEXT], double count);

/* Makes a JSON string. A text from outside, such as a path, need not be UTF-8,
 * but JSON must be: invalid bytes become "?". */
json_t *tool_json_text(const char *text);

#endif
