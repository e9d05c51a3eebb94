/* SPDX-License-Identifier: BSD-2-Clause */
/* Which users are not met, and for how long; the clock is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
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

/* Subordinate users: all that begin processes in user namespaces have them. */
static void four_numbers_of_one_person_are_one_user(void **state)
{
	struct exi_uids all = exi_user_uids(EXI_SUBUID, 3000000000u);
	uint64_t now = 500 * HOUR;
	unsigned int i;

	assert_true(all.last - all.first >= 4);
	for (i = 0; i < 4; i++) {
		assert_false(exi_shunned(all.last, now));
		exi_shun(all.first + i, now);
		assert_true(exi_shunned(all.first + i, now));
	}
	assert_true(exi_shunned(all.last, now + MINUTE - 1));
	assert_false(exi_shunned(all.first - 1, now));
	assert_false(exi_shunned(all.last + 1, now));
	/* Each is silent for all of them from now on. */
	now += MINUTE;
	assert_false(exi_shunned(all.first, now));
	exi_shun(all.last, now);
	assert_true(exi_shunned(all.first, now + 2 * MINUTE - 1));
	assert_false(exi_shunned(all.first, now + 2 * MINUTE));
}

static void numbers_of_several_people_are_as_many_users(void **state)
{
	uint64_t now = 600 * HOUR;
	unsigned int i;

	for (i = 0; i < 8; i++)
		exi_shun(stranger(2000 + i), now);
	assert_false(exi_shunned(stranger(2008), now));
	/* And four that were silent at times long before each other. */
	for (i = 0; i < 4; i++)
		exi_shun(3500000000u + i, now + 2 * i * HOUR);
	assert_false(exi_shunned(3500000004u, now + 6 * HOUR));
}

static void assert_uids(const char *path, uid_t uid, uid_t first, uid_t last)
{
	struct exi_uids all = exi_user_uids(path, uid);

	assert_int_equal(all.first, first);
	assert_int_equal(all.last, last);
}

static void a_range_of_the_file_belongs_to_one_person(void **state)
{
	static const char text[] =
		"ann:100000:65536\n# a line of no range\nbob:x:1\n"
		"cat:4294967000:4294967295\n:165536:0\n"
		"an-unusually-long-name-an-unusually-long-name:165536:65536\n"
		"dan:20000:1000";
	char path[] = "/tmp/exs-test-XXXXXX";
	int fd = mkstemp(path);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	assert_uids(path, 100000, 100000, 165535);
	assert_uids(path, 165535, 100000, 165535);
	assert_uids(path, 165536, 165536, 231071);
	assert_uids(path, 20999, 20000, 20999);
	assert_uids(path, 21000, 21000, 21000);
	assert_uids(path, 4294967001u, 4294967000u, UINT32_MAX);
	assert_uids(path, 231072, 0x30000, 0x3ffff);
	assert_int_equal(unlink(path), 0);
	/* Without a file, by blocks. */
	assert_uids(path, 0x30005, 0x30000, 0x3ffff);
	assert_uids(path, 0xffff, 0xffff, 0xffff);
	assert_uids(path, 0x10000, 0x10000, 0x1ffff);
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
		cmocka_unit_test(four_numbers_of_one_person_are_one_user),
		cmocka_unit_test(numbers_of_several_people_are_as_many_users),
		cmocka_unit_test(a_range_of_the_file_belongs_to_one_person),
		cmocka_unit_test(a_user_is_who_the_kernel_says),
	};

	return cmocka_run_group_tests_name("shun", tests, NULL, NULL);
}
