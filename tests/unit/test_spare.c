/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that a connection can do without, where the program has few
 * left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/fds.h"

#define LIMIT 256
#define HOLE  (LIMIT * 3 / 4) /* where the library's own begin */

static bool spare(void)
{
	int fd = exi_fd_spare(open("/dev/null", O_RDONLY | O_CLOEXEC));

	assert_true(fd >= 0 || fd == -EMFILE);
	exi_fd_close(fd < 0 ? -1 : fd);
	return fd >= 0;
}

/* Takes what is free below to. */
static void fill(int to)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && fd < to - 1);
}

static void a_hole_is_no_room_after_descriptors_ran_out(void **state)
{
	struct rlimit was, now;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	now = (struct rlimit){ .rlim_cur = LIMIT, .rlim_max = was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	assert_true(spare());
	fill(LIMIT);
	close(HOLE);
	exi_fds_ran_out();
	assert_true(exi_fds_short());
	assert_false(spare());
	for (int fd = HOLE - 8; fd < LIMIT; fd++)
		close(fd);
	assert_true(spare());
	assert_false(exi_fds_short());
	for (int fd = HOLE / 2; fd < HOLE; fd++)
		close(fd);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hole_is_no_room_after_descriptors_ran_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
