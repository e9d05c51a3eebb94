/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds rings and filters: from /proc, and by queries to the kernel if the
 * program changed its root and has no /proc. */
#include "core/meet/surroundings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/exs_ext.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/track.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/sock/memory.h"
#include "core/sock/service.h"
#include "core/sock/table.h"

/* How long a finding is valid. Longer if a look takes long, which it does with
 * many descriptors, so that looks are a small part of the time. */
#define LOOK_NS	  100000000u
#define LOOK_PART 32

struct seen {
	bool rings;
	int n; /* number of sets */
	int sets[EXI_SETS];
};

/* A bit for each number that is a stranger's file. */
static _Atomic uint32_t foreign[EXI_FD_MARKS / 32];

static int filters_at_start;
/* The filters of a thread of the program, and those of the service. */
static struct {
	_Atomic uint64_t look_at;
	_Atomic int found;
} filtered[2];
static struct exi_lock seen_lock;
static struct seen seen; /* under its lock */
static _Atomic uint64_t look_at;
static _Atomic int found;

/* The number of filters on this thread. UNKNOWN: there are some, but the number
 * cannot be read, as in a root without /proc. -EMFILE. */
#define UNKNOWN (-1)
static int filters(void)
{
	char line[2048], *at;
	int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return -EMFILE;
	if (fd >= 0) {
		n = read(fd, line, sizeof(line) - 1);
		close(fd);
	}
	if (n <= 0)
		return prctl(PR_GET_SECCOMP) ? UNKNOWN : 0;
	line[n] = 0;
	at = strstr(line, "\nSeccomp_filters:");
	if (!at)
		at = strstr(line, "\nSeccomp:"); /* before Linux 5.9 */
	return at ? atoi(strchr(at, ':') + 1) : 0;
}

/* The reason for filters of system calls. Those of the start do not count;
 * unknown ones may be new. */
static int filters_reason(void)
{
	int n = filters();

	if (n == -EMFILE)
		return EXS_X_REASON_DESCRIPTORS;
	if (n == UNKNOWN && filters_at_start)
		return EXS_X_REASON_NO_PROOF;
	return n != filters_at_start ? EXS_X_REASON_SECCOMP : EXS_X_REASON_NONE;
}

bool exi_surroundings_is_foreign(int fd)
{
	return (uint32_t)fd < EXI_FD_MARKS &&
	       (atomic_load_explicit(&foreign[(uint32_t)fd / 32],
				     memory_order_relaxed) >>
			((uint32_t)fd % 32) &
		1);
}

void exi_surroundings_foreign(int fd)
{
	if ((uint32_t)fd >= EXI_FD_MARKS)
		return;
	exi_track_put(fd, EXI_TRACK_NAMES);
	atomic_fetch_or(&foreign[(uint32_t)fd / 32], 1u << ((uint32_t)fd % 32));
}

void exi_surroundings_closed(int fd)
{
	if (exi_unlikely(exi_surroundings_is_foreign(fd)))
		atomic_fetch_and(&foreign[(uint32_t)fd / 32],
				 ~(1u << ((uint32_t)fd % 32)));
}

void exi_surroundings_named(int fd, int also)
{
	if (exi_unlikely(exi_surroundings_is_foreign(fd)))
		exi_surroundings_foreign(also);
}

static void is_ours(struct exi_domain *d, void *arg)
{
	int *fd = arg;

	if (d->ops.event_fd(d) == *fd)
		*fd = -1;
}

/* The type of a descriptor's file; the files searched for have none, 0, and
 * others may have none, too. Returns false if it is unknown. Waits for no file
 * system. */
static bool type_of(int fd, unsigned int *ret)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) <
	    0)
		return false;
	*ret = st.stx_mode & S_IFMT;
	return true;
}

/* Whether this kernel returns no type for a file like those searched for. */
static bool is_typeless(void)
{
	static _Atomic int known;
	unsigned int type = 1;
	int fd, ret = atomic_load(&known);

	if (ret)
		return ret > 0;
	fd = eventfd(0, EFD_CLOEXEC);
	if (fd < 0)
		return false;
	ret = type_of(fd, &type) && !type ? 1 : -1;
	close(fd);
	atomic_store(&known, ret);
	return ret > 0;
}

/* Whether the number is a file of one of the two kinds searched for; false:
 * neither, or the library's. Reads the file's name last: it costs ten times as
 * much as the type. */
static bool is_anonymous(DIR *dir, const char *name, bool typeless,
			 bool *ret_ring)
{
	unsigned int type;
	char target[32];
	ssize_t n;
	int fd = atoi(name);

	/* Most descriptors are connections. */
	if (*name == '.' || exi_surroundings_is_foreign(fd) ||
	    (exi_closes_seen && (uint32_t)fd < exi_table.size &&
	     atomic_load(&exi_table.socks[fd])))
		return false;
	if (typeless && type_of(fd, &type) && type)
		return false;
	n = readlinkat(dirfd(dir), name, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = 0;
	*ret_ring = strcmp(target, "anon_inode:[io_uring]") == 0;
	/* Without a table it is unknown whether a set with this number is the
	 * library's. */
	if (!*ret_ring && (strcmp(target, "anon_inode:[eventpoll]") != 0 ||
			   (unsigned int)fd >= EXI_FD_MARKS))
		return false;
	exi_registry_each_domain(is_ours, &fd);
	return fd >= 0 && !exi_fd_ours(fd);
}

/* A request that no ring accepts; a file that is no ring returns -EOPNOTSUPP.
 * If rings are denied or unknown to the kernel, there are none. */
static bool is_ring(int fd)
{
	return syscall(SYS_io_uring_register, fd, IORING_REGISTER_PROBE, NULL,
		       0) < 0 &&
	       errno == EINVAL;
}

/* other: a descriptor that is in no set of the program's. */
static bool is_set(int fd, int other)
{
	return epoll_ctl(fd, EPOLL_CTL_DEL, other, NULL) < 0 && errno == ENOENT;
}

/* Without /proc. Programs use the lowest numbers. */
#define NUMBERS 1024
static void each_number(void (*f)(int fd, bool ring, void *arg), void *arg)
{
	int other = eventfd(0, EFD_CLOEXEC), i;
	struct pollfd p[NUMBERS] = { 0 };

	for (i = 0; i < NUMBERS; i++)
		p[i].fd = exi_surroundings_is_foreign(i) ? -1 : i;
	if (poll(p, NUMBERS, 0) < 0)
		memset(p, 0, sizeof(p));
	for (i = 0; i < NUMBERS; i++) {
		bool ring;
		int fd = i;

		if ((p[i].revents & POLLNVAL) || exi_fd_ours(i) ||
		    exi_surroundings_is_foreign(i))
			continue;
		ring = is_ring(i);
		if (!ring && !is_set(i, other))
			continue;
		exi_registry_each_domain(is_ours, &fd);
		if (fd >= 0)
			f(i, ring, arg);
	}
	if (other >= 0)
		close(other);
}

void exi_surroundings_each(void (*f)(int fd, bool ring, void *arg), void *arg)
{
	DIR *dir = opendir("/proc/self/fd");
	bool typeless = is_typeless(), ring;
	struct dirent *e;

	if (!dir) {
		each_number(f, arg);
		return;
	}
	while ((e = readdir(dir)))
		if (is_anonymous(dir, e->d_name, typeless, &ring))
			f(atoi(e->d_name), ring, arg);
	closedir(dir);
}

bool (*exi_surroundings_ring_seen)(int fd);

bool exi_surroundings_ring_matters(int fd)
{
	enum exi_io_uring rings = exi_config()->io_uring;

	return rings == EXI_IO_URING_ANY ||
	       (rings == EXI_IO_URING_AUTO &&
		(fd < 0 || !exi_surroundings_ring_seen ||
		 !exi_surroundings_ring_seen(fd)));
}

static void note(int fd, bool ring, void *arg)
{
	struct seen *s = arg;

	if (ring)
		s->rings = s->rings || exi_surroundings_ring_matters(fd);
	else if (s->n < EXI_SETS)
		s->sets[s->n++] = fd;
}

/* Returns whether there are rings; notes the sets. */
static bool look_around(void)
{
	struct seen now = { .n = 0 };

	exi_surroundings_each(note, &now);
	exi_lock(&seen_lock);
	seen = now;
	exi_unlock(&seen_lock);
	return now.rings;
}

void exi_surroundings_init(void)
{
	filters_at_start = filters();
}

int exi_surroundings_filters(void)
{
	const bool self = exi_service_self();
	uint64_t now = exi_now_ns();
	int ret;

	if (now >= atomic_load(&filtered[self].look_at)) {
		atomic_store(&filtered[self].look_at, now + LOOK_NS);
		atomic_store(&filtered[self].found, filters_reason());
	}
	ret = atomic_load(&filtered[false].found);
	return ret ? ret : atomic_load(&filtered[self].found);
}

int exi_surroundings_reason(void)
{
	uint64_t now = exi_now_ns();
	uint64_t took;
	int reason;

	if (now < atomic_load(&look_at))
		return atomic_load(&found);
	atomic_store(&look_at, now + LOOK_NS);
	reason = exi_surroundings_filters();
	if (!reason && look_around())
		reason = EXS_X_REASON_IO_URING;
	atomic_store(&found, reason);
	took = exi_now_ns() - now;
	if (took > LOOK_NS / LOOK_PART)
		atomic_store(&look_at, now + took * LOOK_PART);
	return reason;
}

int exi_surroundings_sets(int ret[EXI_SETS])
{
	int n;

	exi_surroundings_reason();
	exi_lock(&seen_lock);
	n = seen.n;
	memcpy(ret, seen.sets, (size_t)n * sizeof(*ret));
	exi_unlock(&seen_lock);
	return n;
}

void exi_surroundings_forked(void)
{
	atomic_store(&seen_lock.word, 0);
}
