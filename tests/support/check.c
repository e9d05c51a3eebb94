/* SPDX-License-Identifier: BSD-2-Clause */
/* How a test reports a failure, from any thread and process. */
#include "tests/support/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/support/run.h"

static char note[160];

const char *t_errname(int err)
{
	const char *name = err ? strerrorname_np(err) : "0";

	return name ? name : "an unknown error";
}

bool t_one_of(int err, const int *list)
{
	while (*list && *list != err)
		list++;
	return *list != 0;
}

void t_note(const char *fmt, ...)
{
	va_list ap;

	if (!fmt) {
		note[0] = '\0';
		return;
	}
	va_start(ap, fmt);
	vsnprintf(note, sizeof(note), fmt, ap);
	va_end(ap);
}

void t_fail(const char *file, int line, const char *fmt, ...)
{
	const char *command;
	char text[1024];
	size_t at = 0;
	va_list ap;

	at += snprintf(text, sizeof(text), "[%d] %s: %s:%d: ", getpid(),
		       t_row_name(), file, line);
	va_start(ap, fmt);
	at += vsnprintf(text + at, sizeof(text) - at, fmt, ap);
	va_end(ap);
	if (at < sizeof(text))
		snprintf(text + at, sizeof(text) - at, "%s%s\n",
			 note[0] ? "; " : "", note);
	text[sizeof(text) - 2] = '\n';
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		abort();
	command = getenv("T_FAIL_COMMAND");
	if (command && system(command))
		fprintf(stderr, "%s fails\n", command);
	_exit(1);
}

void t_equal(const char *file, int line, const char *a, long long a_value,
	     const char *b, long long b_value)
{
	if (a_value != b_value)
		t_fail(file, line, "%s is %lld, %s is %lld", a, a_value, b,
		       b_value);
}

long long t_ok(const char *file, int line, const char *call, long long value)
{
	if (value < 0)
		t_fail(file, line, "%s gave %lld (%s)", call, value,
		       t_errname(errno));
	return value;
}

void t_error(const char *file, int line, const char *call, long long value,
	     int want)
{
	int err = errno;

	if (value != -1 || err != want)
		t_fail(file, line, "%s gave %lld (%s), wanted -1 (%s)", call,
		       value, t_errname(err), t_errname(want));
}

#if defined(__SANITIZE_THREAD__)
#define SLOW 8
#elif defined(__SANITIZE_ADDRESS__)
#define SLOW 4
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOW 8
#elif __has_feature(address_sanitizer)
#define SLOW 4
#endif
#endif
#ifndef SLOW
#define SLOW 1
#endif

int t_slow(void)
{
	const char *env = getenv("T_SLOW");
	int more = env ? atoi(env) : 1;

	return SLOW * (more > 0 ? more : 1);
}

bool t_can(bool there, const char *what)
{
	if (there)
		return true;
	T_MSG(getenv("T_MAY_SKIP"), "this cannot be here: there is no %s",
	      what);
	printf("%s %s: skipped, there is no %s here\n",
	       program_invocation_short_name, t_row_name(), what);
	return false;
}
