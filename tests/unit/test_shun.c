/* SPDX-License-Identifier: BSD-2-Clause */
/* Which users are not met, and for how long; the clock is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/shun.h"
#include "core/base/user.h"

#define SECOND 1000000000ull
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)

/* Not that of the process. */
static uid_t stranger(unsigned int i)
{
	return 40000 + i;
}

static void a_minute_and_each_time_twice_as_long(void **state)
{
	uint64_t now = HOUR, time = MINUTE;
	int i;

	assert_false(exi_shunned(stranger(0), now));
	for (i = 0; i < 6; i++) {
		exi_shun(stranger(0), now);
		assert_true(exi_shunned(stranger(0), now + time - 1));
		assert_false(exi_shunned(stranger(0), now + time));
		now += time + SECOND;
		time *= 2;
	}
	exi_shun(stranger(0), now); /* 64 minutes, but no more than an hour */
	assert_true(exi_shunned(stranger(0), now + HOUR - 1));
	assert_false(exi_shunned(stranger(0), now + HOUR));
}

static void many_silent_at_once_are_one(void **state)
{
	uint64_t now = 100 * HOUR;
	int i;

	for (i = 0; i < 60; i++)
		exi_shun(stranger(1), now + (uint64_t)i * SECOND / 2);
	assert_false(exi_shunned(stranger(1), now + MINUTE));
}

static void who_behaved_for_long_begins_anew(void **state)
{
	uint64_t now = 200 * HOUR;

	exi_shun(stranger(2), now);
	exi_shun(stranger(2), now + MINUTE);
	assert_true(exi_shunned(stranger(2), now + 2 * MINUTE));
	now += 3 * HOUR;
	exi_shun(stranger(2), now);
	assert_true(exi_shunned(stranger(2), now));
	assert_false(exi_shunned(stranger(2), now + MINUTE));
}

static void many_users_take_each_others_place_alone(void **state)
{
	uint64_t now = 300 * HOUR;
	unsigned int i;

	for (i = 0; i < 1000; i++) {
		exi_shun(stranger(100 + i), now + i);
		assert_true(exi_shunned(stranger(100 + i), now + i));
		assert_false(exi_shunned(stranger(99), now + i));
	}
}

/* They could do worse; and what several users read as names none of them. */
static void root_and_ourselves_are_not_left_out(void **state)
{
	const uid_t users[] = { 0, getuid(), geteuid(), (uid_t)-1 };
	unsigned int i;

	for (i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
		exi_shun(users[i], 400 * HOUR);
		assert_false(exi_shunned(users[i], 400 * HOUR));
	}
}

static void a_user_is_who_the_kernel_says(void **state)
{
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd), 0);
	assert_int_equal(exi_user_of(fd[0]), geteuid());
	close(fd[0]);
	close(fd[1]);
	assert_int_equal(exi_user_of(fd[0]), (uid_t)-1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_minute_and_each_time_twice_as_long),
		cmocka_unit_test(many_silent_at_once_are_one),
		cmocka_unit_test(who_behaved_for_long_begins_anew),
		cmocka_unit_test(many_users_take_each_others_place_alone),
		cmocka_unit_test(root_and_ourselves_are_not_left_out),
		cmocka_unit_test(a_user_is_who_the_kernel_says),
	};

	return cmocka_run_group_tests_name("shun", tests, NULL, NULL);
}
