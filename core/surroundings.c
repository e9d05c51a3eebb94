/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings and filters, read from /proc. */
#include "core/surroundings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <unistd.h>

#include "core/registry.h"
#include "core/util.h"

/* How long what was seen stands: also so long that looking, which takes longer
 * the more descriptors there are, is a small part of the time. */
#define LOOK_NS	  100000000u
#define LOOK_PART 32

static int filters_at_start;
static _Atomic uint64_t look_at;
static _Atomic int found;

/* How many filters this thread is under; -1 when that cannot be read. */
static int filters(void)
{
	char line[2048], *at;
	int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	line[n] = 0;
	at = strstr(line, "\nSeccomp_filters:");
	if (!at)
		at = strstr(line, "\nSeccomp:"); /* before Linux 5.9 */
	return at ? atoi(strchr(at, ':') + 1) : 0;
}

static void is_ours(struct exi_domain *d, void *arg)
{
	int *fd = arg;

	if (d->provider->domain_ops->event_fd(d) == *fd)
		*fd = -1;
}

static bool ring_of_the_program(DIR *dir, const char *name)
{
	char target[32];
	ssize_t n = readlinkat(dirfd(dir), name, target, sizeof(target) - 1);
	int fd = atoi(name);

	if (n <= 0)
		return false;
	target[n] = 0;
	if (strcmp(target, "anon_inode:[io_uring]") != 0)
		return false;
	exi_registry_each_domain(is_ours, &fd);
	return fd >= 0;
}

static bool has_rings(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	bool ret = false;

	if (!dir)
		return false;
	while (!ret && (e = readdir(dir)))
		ret = ring_of_the_program(dir, e->d_name);
	closedir(dir);
	return ret;
}

void exi_surroundings_init(void)
{
	filters_at_start = filters();
}

int exi_surroundings_reason(void)
{
	uint64_t now = exi_now_ns();
	uint64_t took;
	int n, reason;

	if (now < atomic_load(&look_at))
		return atomic_load(&found);
	atomic_store(&look_at, now + LOOK_NS);
	n = filters();
	reason = n < 0 && errno == EMFILE ? EXS_X_REASON_DESCRIPTORS
		 : n != filters_at_start  ? EXS_X_REASON_SECCOMP
		 : has_rings()		  ? EXS_X_REASON_IO_URING
					  : EXS_X_REASON_NONE;
	atomic_store(&found, reason);
	took = exi_now_ns() - now;
	if (took > LOOK_NS / LOOK_PART)
		atomic_store(&look_at, now + took * LOOK_PART);
	return reason;
}
