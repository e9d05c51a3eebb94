/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes of a connection that end with and without a word. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/sock/holders.h"

#define MANY (EXI_HOLDERS_NAMED + 3)

static struct exi_holders *made(void)
{
	struct exi_holders *h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(h != MAP_FAILED);
	assert_true(exi_holders_claim(h));
	return h;
}

/* Waits, when it has it, for its end; leaves first if that is said. */
static pid_t child(struct exi_holders *h, bool leaves)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	exi_holders_prefork(h);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		exi_holders_forked();
		exi_holders_inherit(h);
		if (leaves)
			exi_holders_leave(h);
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void who_was_killed_has_it_no_more(void **state)
{
	struct exi_holders *h = made();
	pid_t pid = child(h, false);

	assert_false(exi_holders_alone(h));
	end(pid);
	assert_true(exi_holders_alone(h));
	exi_holders_leave(h);
	assert_true(exi_holders_claim(h));
}

/* Its end is not counted twice. */
static void who_left_has_it_no_more(void **state)
{
	struct exi_holders *h = made();
	pid_t stays = child(h, false), leaves = child(h, true);

	assert_int_equal(exi_holders_count(h), 2);
	end(leaves);
	assert_int_equal(exi_holders_count(h), 2);
	end(stays);
	assert_true(exi_holders_alone(h));
}

/* The memory is free when the last has ended, though nobody has it here. */
static void who_left_first_leaves_it_to_the_child(void **state)
{
	struct exi_holders *h = made();
	pid_t pid = child(h, false);

	exi_holders_leave(h);
	assert_int_equal(exi_holders_count(h), 1);
	assert_false(exi_holders_claim(h));
	end(pid);
	assert_int_equal(exi_holders_count(h), 0);
	assert_true(exi_holders_claim(h));
}

/* Those for whom there is no name have it until they say otherwise. */
static void more_than_can_be_named_are_never_too_few(void **state)
{
	struct exi_holders *h = made();
	pid_t pid[MANY];

	for (int i = 0; i < MANY; i++)
		pid[i] = child(h, false);
	assert_int_equal(exi_holders_count(h), MANY + 1);
	for (int i = 0; i < MANY; i++) {
		end(pid[i]);
		assert_true(exi_holders_count(h) >= (uint32_t)(MANY - i));
	}
	assert_int_equal(exi_holders_count(h),
			 MANY + 1 - (EXI_HOLDERS_NAMED - 1));
}

/* No call tells that it succeeded, so it is counted; a failure is taken
 * back. */
static void who_is_at_an_exec_does_not_use_it(void **state)
{
	struct exi_holders *h = made();
	pid_t pid = child(h, false), last;

	assert_false(exi_holders_sole(h));
	last = atomic_load(&h->pid[1]);
	assert_int_equal(last, pid);
	atomic_store(&h->pid[1], -pid); /* as the child would do it */
	assert_true(exi_holders_sole(h));
	assert_int_equal(exi_holders_count(h), 2);
	exi_holders_exec(h, true);
	assert_false(exi_holders_sole(h)); /* nobody is left */
	exi_holders_exec(h, false);
	assert_true(exi_holders_sole(h));
	end(pid);
	assert_int_equal(exi_holders_count(h), 1);
	assert_true(exi_holders_sole(h));
}

/* In a PID namespace of its own a number is another process here. */
static void who_is_in_another_namespace_counts(void **state)
{
	struct exi_holders *h = made();
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		exi_holders_forked();
		if (unshare(CLONE_NEWPID) < 0 &&
		    unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
			_exit(2); /* a container that has none */
		exi_holders_leave(h);
		if (!exi_holders_claim(h))
			_exit(3);
		end(child(h, false));
		/* Its number there was not believed. */
		_exit(exi_holders_count(h) == 2 ? 0 : 4);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Of a child whose next program has it. */
static pid_t heir(struct exi_holders *h, bool was_alone)
{
	int status;
	pid_t pid;

	exi_holders_prefork(h);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		exi_holders_forked();
		exi_holders_inherit(h);
		status = exi_holders_bequeath(h) != was_alone;
		exi_holders_stray(h); /* the same one */
		exi_holders_leave(h);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return pid;
}

static void who_closes_last_is_told_of_the_heir(void **state)
{
	struct exi_holders *h = made();
	pid_t pid = heir(h, false);

	assert_true(exi_holders_alone(h));
	assert_false(exi_holders_sole(h)); /* the heir has it, too */
	assert_int_equal(exi_holders_heir(h), pid);
	exi_holders_leave(h);
	assert_true(exi_holders_claim(h));
	assert_true(exi_holders_sole(h)); /* the next connection's */
}

static void who_closed_before_is_no_heirs_concern(void **state)
{
	struct exi_holders *h = made();

	assert_int_equal(exi_holders_heir(h), 0);
	heir(h, true);
}

static void two_heirs_are_none(void **state)
{
	struct exi_holders *h = made();

	heir(h, false);
	heir(h, false);
	assert_int_equal(exi_holders_heir(h), 0);
}

static void a_heir_is_none_while_others_have_it(void **state)
{
	struct exi_holders *h = made();
	pid_t other = child(h, false);

	heir(h, false);
	assert_int_equal(exi_holders_heir(h), 0);
	end(other);
}

static void what_the_library_left_is_still_had(void **state)
{
	struct exi_holders *h = made();
	pid_t other = child(h, false);

	exi_holders_stray(h);
	exi_holders_leave(h);
	assert_true(exi_holders_alone(h));
	assert_false(exi_holders_sole(h));
	end(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_was_killed_has_it_no_more),
		cmocka_unit_test(who_left_has_it_no_more),
		cmocka_unit_test(who_left_first_leaves_it_to_the_child),
		cmocka_unit_test(who_is_at_an_exec_does_not_use_it),
		cmocka_unit_test(more_than_can_be_named_are_never_too_few),
		cmocka_unit_test(who_is_in_another_namespace_counts),
		cmocka_unit_test(who_closes_last_is_told_of_the_heir),
		cmocka_unit_test(who_closed_before_is_no_heirs_concern),
		cmocka_unit_test(two_heirs_are_none),
		cmocka_unit_test(a_heir_is_none_while_others_have_it),
		cmocka_unit_test(what_the_library_left_is_still_had),
	};

	return cmocka_run_group_tests_name("holders", tests, NULL, NULL);
}
