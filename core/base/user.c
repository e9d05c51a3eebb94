/* SPDX-License-Identifier: BSD-2-Clause */
/* SO_PEERCRED, and the first user namespace. */
#include "core/base/user.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
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

/* kernel.overflowuid, as everybody leaves it: in a user namespace every user
 * who has no number there reads as this one. */
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

/* The map of this process's user namespace is that of the first one. */
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

/* Asked each time: a process may have gone to another namespace since. */
bool exi_user_is_one(uid_t uid)
{
	int first;

	if (uid != OVERFLOW_UID)
		return true;
	first = namespace_by_pidfd();
	return first < 0 ? maps_every_user() : first;
}
