/* SPDX-License-Identifier: BSD-2-Clause */
/* Assertions for any thread and any process of a test: the first that fails
 * prints its place and ends its process with status 1. */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <errno.h>
#include <stdbool.h>

/* Prints the message on stderr, with the name of the row and of the error, and
 * ends the process. If T_FAIL_COMMAND is set, that command runs before, while
 * the process still exists: 'gdb -p $PPID -batch -ex "thread apply all bt"'. */
__attribute__((noreturn, format(printf, 3, 4))) void
t_fail(const char *file, int line, const char *fmt, ...);

/* "EAGAIN" for EAGAIN, "0" for none. */
const char *t_errname(int err);

/* The list ends with 0. */
bool t_one_of(int err, const int *list);

/* The factor by which this build may be slower than usual (sanitizers). */
int t_slow(void);

/* For a feature that an emulator of another architecture may lack: returns
 * whether it is there. If it is missing and T_MAY_SKIP is set, this is reported
 * and the row is to be skipped; otherwise the process fails. */
bool t_can(bool there, const char *what);

/* Sets a sentence that t_fail() adds, such as the seed; null: none. */
void t_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The functions of the macros. */
void t_equal(const char *file, int line, const char *a, long long a_value,
	     const char *b, long long b_value);
long long t_ok(const char *file, int line, const char *call, long long value);
void t_error(const char *file, int line, const char *call, long long value,
	     int want);

#define T(cond)                                                                \
	do {                                                                   \
		if (!(cond))                                                   \
			t_fail(__FILE__, __LINE__, "false: %s", #cond);        \
	} while (0)

#define T_MSG(cond, ...)                                                       \
	do {                                                                   \
		if (!(cond))                                                   \
			t_fail(__FILE__, __LINE__, __VA_ARGS__);               \
	} while (0)

#define T_EQ(a, b)                                                             \
	t_equal(__FILE__, __LINE__, #a, (long long)(a), #b, (long long)(b))

/* The call's value; the test fails if it is negative. */
#define T_OK(call) t_ok(__FILE__, __LINE__, #call, (long long)(call))

/* The call returns -1 with this error. */
#define T_ERR(call, want)                                                      \
	t_error(__FILE__, __LINE__, #call, (errno = 0, (long long)(call)), want)

/* The call returns -1 with one of these errors. */
#define T_FAILS(call, ...)                                                     \
	do {                                                                   \
		static const int wants_[] = { __VA_ARGS__, 0 };                \
		long long r_;                                                  \
		errno = 0;                                                     \
		r_ = (long long)(call);                                        \
		if (r_ != -1 || !t_one_of(errno, wants_))                      \
			t_fail(__FILE__, __LINE__,                             \
			       "%s gave %lld (%s), wanted -1 (%s)", #call, r_, \
			       t_errname(errno), #__VA_ARGS__);                \
	} while (0)

#endif
