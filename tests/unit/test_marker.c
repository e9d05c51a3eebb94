/* SPDX-License-Identifier: BSD-2-Clause */
/* The marker of a port, in a directory for meetings that cannot be written. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/life/core.h"
#include "core/meet/marker.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/run.h"

static int tries;

/* The library's calls come here: those for a name in a directory are
 * counted. */
int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	const struct sockaddr_un *name = (const void *)addr;

	tries += name->sun_family == AF_UNIX && name->sun_path[0];
	return (int)syscall(SYS_bind, fd, addr, len);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	T_OK(clock_gettime(CLOCK_MONOTONIC, &t));
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Each accept of a listener without a marker looks whether it can have one. */
static void a_name_that_cannot_be_made_is_tried_seldom(void **state)
{
	struct t_addr at;
	uint64_t began;
	int fd;

	T_EQ(exi_core_init(), 0);
	fd = t_plain_listener(&at);
	began = now_ns();
	exi_marker_hold(fd);
	T_EQ(tries, 1);
	for (int i = 0; i < 1000; i++)
		T(!exi_marker_refresh(fd));
	T(tries <= 2 + (int)((now_ns() - began) / 100000000u));
	/* It is tried again. */
	while (tries < 3)
		T(!exi_marker_refresh(fd));
	exi_marker_release(fd);
	close(fd);
}

/* A key is needed to name what is made there. */
static const char line[] =
	"exs-key-1 4d5f69e9112782eab8e1bd1639ce632e"
	"b39748488b8489d4bd804145c9972bc7 2495b75464160b26\n";

static int write_key(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ssize_t n = write(fd, line, sizeof(line) - 1);

	close(fd);
	return n == (ssize_t)sizeof(line) - 1 ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_that_cannot_be_made_is_tried_seldom),
	};
	char folder[] = "/tmp/exs-marker-XXXXXX", key[64];
	int ret;

	if (!t_can(t_has_sock_diag(), "sock_diag"))
		return T_SKIP;
	if (!mkdtemp(folder))
		return 1;
	snprintf(key, sizeof(key), "%s/key", folder);
	if (write_key(key))
		return 1;
	setenv("EXS_KEY_FILE", key, 1);
	/* Where no file can be made by anybody. */
	setenv("EXS_MEET_DIR", "/proc/self", 1);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(key);
	rmdir(folder);
	return ret;
}
