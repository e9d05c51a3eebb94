/* SPDX-License-Identifier: BSD-2-Clause */
/* exs stat: descriptors of other processes may be any files; they are opened
 * only if they are known to be memfds. */
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/stat.h"

long stat_mount_of(int fd)
{
	char path[64], text[512];
	const char *at;
	ssize_t n;
	int f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = open(path, O_RDONLY | O_CLOEXEC);
	if (f < 0)
		return -1;
	n = read(f, text, sizeof(text) - 1);
	close(f);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "mnt_id:");
	return at ? strtol(at + strlen("mnt_id:"), NULL, 10) : -1;
}

/* The kernel's internal mount, which has every memfd, and no file that could
 * make its opener wait. */
static long memfd_mount(void)
{
	static long known;
	int fd;

	if (known)
		return known;
	fd = memfd_create("exs-stat", MFD_CLOEXEC);
	known = fd < 0 ? -1 : stat_mount_of(fd);
	if (fd >= 0)
		close(fd);
	return known;
}

/* Only a descriptor that is known to be a memfd is opened: to open another file
 * could wait, or have effects that its owner chose. */
int stat_open_memfd(int fds, const char *number)
{
	int path = openat(fds, number, O_PATH | O_CLOEXEC), ret = -1, err;
	char self[64];

	if (path < 0)
		return -1;
	errno = EINVAL;
	if (memfd_mount() >= 0 && stat_mount_of(path) == memfd_mount()) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", path);
		ret = open(self, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	}
	err = errno;
	close(path);
	errno = err;
	return ret;
}

struct claim {
	uint64_t inode;
	uint32_t uid;
};

static int by_claim(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;

	if (x->inode != y->inode)
		return x->inode < y->inode ? -1 : 1;
	return x->uid < y->uid ? -1 : x->uid > y->uid;
}

bool stat_claim(struct stat_view *v, uint64_t inode, uint32_t uid)
{
	struct claim *c = malloc(sizeof(*c)), **found;

	if (!c)
		return false;
	*c = (struct claim){ .inode = inode, .uid = uid };
	found = tsearch(c, &v->claims, by_claim);
	if (found && *found == c)
		return true;
	free(c);
	return false;
}

void stat_claims_free(struct stat_view *v)
{
	tdestroy(v->claims, free);
	v->claims = NULL;
}
