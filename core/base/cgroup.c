/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits of control groups, read from the usual places. */
#include "core/base/cgroup.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Reads as much of a file as fits, less one byte for the final NUL. Returns its
 * length; -1: it cannot be read. */
static ssize_t read_file(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, buf, len - 1);
	close(fd);
	if (n >= 0)
		buf[n] = '\0';
	return n;
}

/* The limit of one directory; "max", or text that is no number, is none. */
static uint64_t limit_in(const char *dir, const char *file)
{
	char path[4096], text[32];
	uint64_t n;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >=
		    (int)sizeof(path) ||
	    read_file(path, text, sizeof(text)) <= 0 ||
	    sscanf(text, "%" SCNu64, &n) != 1)
		return UINT64_MAX;
	return n;
}

/* The smallest limit of the group and its ancestors, up to where they are
 * mounted, which in a container may be the group itself. Missing directories
 * are skipped. */
static uint64_t limit_along(const char *mount, const char *group,
			    const char *file)
{
	size_t root = strlen(mount);
	uint64_t least, n;
	char dir[4096];
	char *slash;

	if (snprintf(dir, sizeof(dir), "%s%s", mount, group) >=
	    (int)sizeof(dir))
		return UINT64_MAX;
	least = limit_in(dir, file);
	while ((slash = strrchr(dir, '/')) && slash >= dir + root) {
		*slash = '\0';
		n = limit_in(dir, file);
		least = n < least ? n : least;
	}
	return least;
}

/* Beyond memory.high the kernel makes each thread of the group sleep. */
static uint64_t limit_in_v2(const char *mount, const char *group)
{
	uint64_t max = limit_along(mount, group, "memory.max");
	uint64_t high = limit_along(mount, group, "memory.high");

	return max < high ? max : high;
}

/* A line is NUMBER:CONTROLLERS:PATH; version 2 has no controllers. */
static uint64_t limit_of_line(char *line, const char *mounts)
{
	char *controllers = strchr(line, ':'), *group, *name;
	char mount[1024];
	uint64_t n, m;

	group = controllers ? strchr(++controllers, ':') : NULL;
	if (!group)
		return UINT64_MAX;
	*group++ = '\0';
	if (!*controllers) {
		n = limit_in_v2(mounts, group);
		snprintf(mount, sizeof(mount), "%s/unified", mounts);
		m = limit_in_v2(mount, group);
		return n < m ? n : m;
	}
	while ((name = strsep(&controllers, ",")))
		if (!strcmp(name, "memory"))
			break;
	if (!name)
		return UINT64_MAX;
	snprintf(mount, sizeof(mount), "%s/memory", mounts);
	return limit_along(mount, group, "memory.limit_in_bytes");
}

uint64_t exi_cgroup_memory(const char *list, const char *mounts)
{
	uint64_t least = UINT64_MAX, n;
	char text[8192];
	char *at = text, *line;

	if (read_file(list, text, sizeof(text)) <= 0)
		return UINT64_MAX;
	while ((line = strsep(&at, "\n"))) {
		n = limit_of_line(line, mounts);
		least = n < least ? n : least;
	}
	return least;
}
