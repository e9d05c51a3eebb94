/* SPDX-License-Identifier: BSD-2-Clause */
/* The pipe of the control channel. */
#include "core/sock/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/log.h"

static _Atomic int control = -1;
static void (*watch)(int fd);

void exi_control_serve(void (*f)(int fd))
{
	watch = f;
}

/* One descriptor that reads and writes: a pipe that no process has open for
 * writing is readable for ever. */
static int open_both(const int ends[2])
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

uint64_t exi_control_make(void)
{
	struct stat st;
	int ends[2], fd;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return 0;
	fd = open_both(ends);
	close(ends[0]);
	close(ends[1]);
	if (fd >= 0)
		fd = exi_fd_spare(fd);
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0) {
		exi_fd_close(fd);
		return 0;
	}
	control = fd;
	return st.st_ino;
}

void exi_control_watch(void)
{
	if (control >= 0 && watch)
		watch(control);
}

int exi_control_next(struct exi_control_ask *ret)
{
	char rest[4096];
	ssize_t n = read(control, ret, sizeof(*ret));

	if (n <= 0)
		return 0;
	if (n == sizeof(*ret) && ret->magic == EXI_CONTROL_MAGIC && ret->token)
		return 1;
	exi_warn("the control channel had %zd bytes that are no request", n);
	/* It is unknown where the next request begins. A pipe holds a megabyte
	 * at most, unless its writer continues. */
	for (int i = 0; i < 256 && read(control, rest, sizeof(rest)) > 0; i++)
		;
	return 0;
}

void exi_control_forked(void)
{
	exi_fd_close(control);
	control = -1;
}
