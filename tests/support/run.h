/* SPDX-License-Identifier: BSD-2-Clause */
/* The runner. Each row of a program is a CMocka test, and its body runs in a
 * process and a process group of its own: a row may set EXS_* variables, crash
 * or hang without affecting the next. After the body the runner asserts that no
 * child and no TCP socket is left. */
#ifndef TESTS_SUPPORT_RUN_H
#define TESTS_SUPPORT_RUN_H

#include <stddef.h>

/* Exit status of a program, or of a row's process, that cannot run here. */
#define T_SKIP 77

struct t_row {
	const char *name; /* a sentence */
	void (*run)(void);
	unsigned int limit_s; /* 0: a minute; times t_slow() */
};

#define T_ROW(f)                                                               \
	{                                                                      \
		.name = #f, .run = (f)                                         \
	}
#define T_ROW_LONG(f, s)                                                       \
	{                                                                      \
		.name = #f, .run = (f), .limit_s = (s)                         \
	}

/* Runs all rows; if the pattern (* and ?) is not null, only those with a
 * matching name. Returns the exit status for main. */
int t_run(const char *group, const struct t_row *rows, size_t n,
	  const char *only);

/* The name of the current row, or "". */
const char *t_row_name(void);

/* For programs without rows: makes a process group, which is killed after so
 * many seconds (times t_slow()). */
void t_guard(unsigned int seconds);

#define T_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
