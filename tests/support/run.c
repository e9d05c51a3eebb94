/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of CMocka tests, each in a process group of its own. */
#include "tests/support/run.h"

#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/wait.h"

/* CMocka catches these and jumps; a row's process wants what was there
 * before: the default, or a sanitizer's. */
static const int caught[] = { SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS };
static struct sigaction before[T_COUNT(caught)];

/* Where it was: modules and offsets. The signal's default ends it after us. */
static void crashed(int sig)
{
	void *at[64];

	backtrace_symbols_fd(at, backtrace(at, T_COUNT(at)), STDERR_FILENO);
	raise(sig);
}

/* With T_BACKTRACE, unless a sanitizer tells: of a crash that is seen once in a
 * hundred runs nothing else is left. */
static void tell_crashes(void)
{
	struct sigaction act = { .sa_handler = crashed,
				 .sa_flags = SA_RESETHAND };
	void *first;

	if (!getenv("T_BACKTRACE"))
		return;
	backtrace(&first, 1); /* which loads what it needs */
	for (size_t i = 0; i < T_COUNT(caught); i++)
		if (before[i].sa_handler == SIG_DFL)
			sigaction(caught[i], &act, NULL);
}

static const char *row_name = "";
static pid_t row_pid;

const char *t_row_name(void)
{
	return row_name;
}

static void too_late(int sig)
{
	static const char text[] = "guard: time is up, killing the group\n";

	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(1);
	t_stuck(row_pid > 0 ? row_pid : getpid());
	if (row_pid > 0)
		kill(-row_pid, SIGKILL);
	kill(0, SIGKILL);
}

void t_guard(unsigned int seconds)
{
	struct sigaction act = { .sa_handler = too_late };

	/* Fails for the leader of a session, which leads its group. */
	setpgid(0, 0);
	sigaction(SIGALRM, &act, NULL);
	alarm(seconds * t_slow());
}

__attribute__((noreturn)) static void child(const struct t_row *row)
{
	struct t_fds start;
	size_t i;

	setpgid(0, 0);
	row_pid = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < T_COUNT(caught); i++)
		sigaction(caught[i], &before[i], NULL);
	tell_crashes();
	signal(SIGALRM, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	t_fds_take(&start);
	row->run();
	t_unlisten();
	t_no_children();
	t_fds_settled(&start);
	exit(0);
}

/* Reaps and counts what the row left in its group. */
static bool group_gone(pid_t group)
{
	while (waitpid(-group, NULL, WNOHANG) > 0)
		;
	return kill(-group, 0) < 0 && errno == ESRCH;
}

static bool clear_group(pid_t group)
{
	/* What was killed with devices open takes its time. */
	struct t_deadline d = t_deadline_ms(5000);
	bool clean = group_gone(group);

	while (!clean && t_tick(&d))
		clean = group_gone(group);
	if (!clean)
		kill(-group, SIGKILL);
	d = t_deadline_ms(5000);
	while (!group_gone(group) && t_tick(&d))
		;
	return clean;
}

static void run_row(void **state)
{
	const struct t_row *row = *state;
	unsigned int limit = (row->limit_s ? row->limit_s : 60) * t_slow();
	bool in_time, clean;
	int status = 0;
	pid_t pid;

	row_name = row->name;
	fflush(NULL);
	t_guard(limit + 30);
	pid = fork();
	if (pid == 0)
		child(row);
	assert_true(pid > 0);
	setpgid(pid, pid);
	row_pid = pid;
	in_time = t_exited_within(pid, limit * 1000);
	if (!in_time) {
		t_stuck(pid);
		kill(-pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	clean = clear_group(pid);
	row_pid = 0;
	alarm(0);
	row_name = "";
	if (!in_time)
		fail_msg("hangs: killed after %u s", limit);
	if (WIFSIGNALED(status))
		fail_msg("died of SIG%s", sigabbrev_np(WTERMSIG(status)));
	if (WEXITSTATUS(status) == T_SKIP)
		skip();
	if (WEXITSTATUS(status) != 0)
		fail_msg("exit status %d", WEXITSTATUS(status));
	if (!clean)
		fail_msg("left processes behind");
}

int t_run(const char *group, const struct t_row *rows, size_t n,
	  const char *only)
{
	struct CMUnitTest *tests = calloc(n, sizeof(*tests));
	size_t i;
	int failed;

	if (!tests)
		return 1;
	for (i = 0; i < T_COUNT(caught); i++)
		sigaction(caught[i], NULL, &before[i]);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (i = 0; i < n; i++) {
		tests[i].name = rows[i].name;
		tests[i].test_func = run_row;
		tests[i].initial_state = (void *)(uintptr_t)&rows[i];
	}
	if (only)
		cmocka_set_test_filter(only);
	/* A pattern, as only is: rows that this run leaves out. */
	if (getenv("T_WITHOUT"))
		cmocka_set_skip_filter(getenv("T_WITHOUT"));
	failed = _cmocka_run_group_tests(group, tests, n, NULL, NULL);
	free(tests);
	return failed ? 1 : 0;
}
