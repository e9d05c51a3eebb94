/* SPDX-License-Identifier: BSD-2-Clause */
/* SO_PEERCRED, the first user namespace, and subordinate users. */
#include "core/base/user.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

uid_t exi_user_of(int link)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(link, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0
		       ? (uid_t)-1
		       : cred.uid;
}

/* kernel.overflowuid, at its default: in a user namespace, every user without a
 * number there reads as this one. */
#define OVERFLOW_UID 65534

/* The kernel gives the first user namespace this inode (PROC_USER_INIT_INO),
 * and no other namespace may have it. */
#define FIRST_NAMESPACE 0xEFFFFFFDu

#ifndef PIDFD_GET_USER_NAMESPACE
#define PIDFD_GET_USER_NAMESPACE _IO(0xFF, 9)
#endif

/* Needs no /proc. Since Linux 6.11; -errno before. */
static int namespace_by_pidfd(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), ns;
	struct stat st;

	if (pidfd < 0)
		return -errno;
	ns = ioctl(pidfd, PIDFD_GET_USER_NAMESPACE, 0);
	close(pidfd);
	if (ns < 0)
		return -errno;
	if (fstat(ns, &st) < 0)
		st.st_ino = 0;
	close(ns);
	return st.st_ino == FIRST_NAMESPACE;
}

/* Whether the map of this process's user namespace is that of the first one. */
static bool maps_every_user(void)
{
	int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	unsigned int inside, outside, count;
	struct statfs fs;
	char line[64];
	ssize_t n = -1;

	if (fd < 0)
		return false;
	if (fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC)
		n = read(fd, line, sizeof(line) - 1);
	close(fd);
	if (n <= 0)
		return false;
	line[n] = 0;
	return sscanf(line, "%u %u %u", &inside, &outside, &count) == 3 &&
	       inside == 0 && outside == 0 && count == UINT32_MAX;
}

/* Read each time: the process may have changed its namespace since. */
bool exi_user_is_one(uid_t uid)
{
	int first;

	if (uid != OVERFLOW_UID)
		return true;
	first = namespace_by_pidfd();
	return first < 0 ? maps_every_user() : first;
}

/* Whether a line of subuid(5), "name:first:count", includes the number. */
static bool line_has(const char *line, uid_t uid, struct exi_uids *ret)
{
	unsigned long first, count;

	if (sscanf(line, "%*[^:]:%10lu:%10lu", &first, &count) != 2 ||
	    uid < first || uid - first >= count)
		return false;
	ret->first = (uid_t)first;
	ret->last = count > UINT32_MAX - first ? UINT32_MAX
					       : (uid_t)(first + count - 1);
	return true;
}

static bool file_has(const char *path, uid_t uid, struct exi_uids *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	if (!in) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && getline(&line, &size, in) > 0)
		found = line_has(line, uid, ret);
	free(line);
	fclose(in);
	return found;
}

struct exi_uids exi_user_uids(const char *path, uid_t uid)
{
	uid_t lower = uid > UINT16_MAX ? UINT16_MAX : 0;
	struct exi_uids ret = { uid & ~lower, uid | lower };

	file_has(path, uid, &ret);
	return ret;
}
