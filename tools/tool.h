/* SPDX-License-Identifier: BSD-2-Clause */
/* What the subcommands of exs share: how they are called, fail and speak. */
#ifndef EXS_TOOLS_TOOL_H
#define EXS_TOOLS_TOOL_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes. */
enum {
	TOOL_OK = 0,
	TOOL_FAILED = 1, /* tried, and it did not work */
	TOOL_USAGE = 2,	 /* asked for something that cannot be */
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

/* Says one line on stderr, "exs NAME: text", and returns TOOL_FAILED. */
__attribute__((format(printf, 1, 2))) int tool_fail(const char *fmt, ...);

/* Reads a number of things ("200000", "200k") or of bytes ("64k" is 65536).
 * 0, or -EINVAL. */
int tool_parse_count(const char *text, uint64_t *ret);
int tool_parse_bytes(const char *text, uint64_t *ret);
/* "2", "0.25", "300ms". */
int tool_parse_seconds(const char *text, uint64_t *ret_ns);

/* For people: three digits and a unit, into buf, which is returned. */
#define TOOL_TEXT 32
/* "-" of 0, which is no time. */
const char *tool_text_ns(char buf[TOOL_TEXT], double ns);
const char *tool_text_bytes(char buf[TOOL_TEXT], uint64_t bytes);
/* "12.3 M", to be followed by what is counted. */
const char *tool_text_count(char buf[TOOL_TEXT], double count);

/* A text from outside, such as a path, need not be UTF-8, but JSON must be: a
 * string with "?" for what is not. */
json_t *tool_json_text(const char *text);

#endif
