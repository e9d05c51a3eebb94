/* SPDX-License-Identifier: BSD-2-Clause */
/* What the conformance programs share. Each takes the name of a provider and
 * expects every connection on it, between processes too. Two exceptions: loop
 * lives in one process, so its connections between two stay on tcp with the
 * reason no-provider; so do all connections if only tcp is allowed. */
#ifndef TESTS_CONFORMANCE_CONF_H
#define TESTS_CONFORMANCE_CONF_H

#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

/* Usage: PROGRAM PROVIDER [PATTERN]. Runs the rows with EXS_PROVIDER set;
 * --list prints their names as GROUP:ROW. Returns the status for main; T_SKIP:
 * these programs do not know the provider. */
int conf_main(int argc, char **argv, const char *group,
	      const struct t_row *rows, size_t n);

/* The provider under test. */
bool conf_is(const char *name);
/* Whether the fabric is one between hosts. */
bool conf_between(void);

/* Where a connection is expected: its ends in one process, or in two. */
struct t_want conf_here(void);
struct t_want conf_apart(void);

/* Receives the end of the stream of a killed peer: between hosts a reset comes
 * first, because bytes on their way are lost. */
void conf_recv_dead_end(int s);

/* exs_init() and a connected, settled pair in this process. */
void conf_pair(int fd[2]);

/* One side of a row for two sides; it closes s. The sides synchronize over
 * ctl. */
typedef void conf_side(int s, int ctl);

enum conf_mode {
	CONF_HERE,  /* two threads, after the switch to the fabric */
	CONF_APART, /* two processes, after the switch */
	CONF_FRESH, /* two processes, from the first byte */
};

/* Side a connects, side b accepts. */
void conf_duo(enum conf_mode mode, conf_side *a, conf_side *b);

/* Three rows for a pair of sides, and their place in the list. */
#define CONF_DUO(name, a, b)                                                   \
	static void name##_in_one_process(void)                                \
	{                                                                      \
		conf_duo(CONF_HERE, a, b);                                     \
	}                                                                      \
	static void name##_in_two_processes(void)                              \
	{                                                                      \
		conf_duo(CONF_APART, a, b);                                    \
	}                                                                      \
	static void name##_from_the_start(void)                                \
	{                                                                      \
		conf_duo(CONF_FRESH, a, b);                                    \
	}

#define CONF_ROWS(name)                                                        \
	T_ROW(name##_in_one_process), T_ROW(name##_in_two_processes),          \
		T_ROW(name##_from_the_start)

#define CONF_ROWS_LONG(name, s)                                                \
	T_ROW_LONG(name##_in_one_process, s),                                  \
		T_ROW_LONG(name##_in_two_processes, s),                        \
		T_ROW_LONG(name##_from_the_start, s)

#endif
