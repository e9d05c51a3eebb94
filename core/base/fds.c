/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's own descriptors: their numbers, their limit, and what happens
 * when none is free. */
#include "core/base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <unistd.h>

#include "core/base/track.h"
#include "core/base/util.h"

#define FD_BASE_MAX 0xc000

static _Atomic unsigned int fds_kept;

/* Which numbers are the library's own. */
static _Atomic uint64_t fd_marks[EXI_FD_MARKS / 64];

static void mark(int fd, bool ours)
{
	uint64_t bit = UINT64_C(1) << ((unsigned int)fd % 64);
	_Atomic uint64_t *word = &fd_marks[(unsigned int)fd / 64];

	if ((unsigned int)fd >= EXI_FD_MARKS)
		return;
	if (ours)
		atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
	else
		atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed);
}

bool exi_fd_ours(int fd)
{
	return (unsigned int)fd < EXI_FD_MARKS &&
	       atomic_load_explicit(&fd_marks[fd / 64], memory_order_relaxed) >>
			       (fd % 64) &
		       1;
}

unsigned int exi_fds_soft_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return 1024;
	return rl.rlim_cur > 0x7fffffff ? 0x7fffffff
					: (unsigned int)rl.rlim_cur;
}

bool exi_fd_room(unsigned int n)
{
	return atomic_load_explicit(&fds_kept, memory_order_relaxed) + n <=
	       exi_fds_soft_limit() / 4;
}

unsigned int exi_fd_kept(void)
{
	return atomic_load_explicit(&fds_kept, memory_order_relaxed);
}

/* Reads the limit only sometimes, because that would be a system call per new
 * connection: a lower limit is noticed a few calls later. */
bool exi_fd_scarce(int fd)
{
	static _Atomic unsigned int known, calls;
	unsigned int used = (unsigned int)fd + exi_fd_kept();
	unsigned int soft = atomic_load_explicit(&known, memory_order_relaxed);

	unsigned int n = atomic_load_explicit(&calls, memory_order_relaxed);

	atomic_store_explicit(&calls, n + 1, memory_order_relaxed); /* or so */
	if (used >= soft - soft / 16 || n % 16 == 0) {
		soft = exi_fds_soft_limit();
		atomic_store_explicit(&known, soft, memory_order_relaxed);
	}
	return used >= soft - soft / 16;
}

/* room: how many of the lowest numbers must be free or the application's. On
 * failure fd stays open. */
static int keep(int fd, unsigned int room)
{
	unsigned int soft, base, held;
	int high;

	if (fd < 0)
		return -errno;
	soft = exi_fds_soft_limit();
	held = atomic_fetch_add_explicit(&fds_kept, 1, memory_order_relaxed);
	/* fd was the lowest free number: it shows how many the application
	 * has. */
	if (held >= soft / 4 ||
	    (room && (unsigned int)fd + held >= soft - soft / room))
		goto refuse;
	base = soft - soft / 4;
	if (base > FD_BASE_MAX)
		base = FD_BASE_MAX;
	if ((unsigned int)fd >= base) {
		mark(fd, true);
		exi_track_put(fd, EXI_TRACK_BYTES | EXI_TRACK_ANY);
		return fd;
	}
	high = fcntl(fd, F_DUPFD_CLOEXEC, (int)base);
	if (high < 0)
		goto refuse;
	close(fd);
	mark(high, true);
	exi_track_put(high, EXI_TRACK_BYTES | EXI_TRACK_ANY);
	return high;
refuse:
	atomic_fetch_sub_explicit(&fds_kept, 1, memory_order_relaxed);
	return -EMFILE;
}

void exi_fd_close(int fd)
{
	int saved = errno;

	if (fd < 0)
		return;
	atomic_fetch_sub_explicit(&fds_kept, 1, memory_order_relaxed);
	mark(fd, false);
	close(fd);
	errno = saved;
}

_Atomic int exi_fds_makers, exi_fds_frozen;
_Thread_local int exi_fds_depth;
#define FREEZE_NS 100000000u

void exi_fds_begin(void)
{
	if (exi_fds_depth++)
		return;
	while (atomic_fetch_add(&exi_fds_makers, 1),
	       atomic_load(&exi_fds_frozen)) {
		atomic_fetch_sub(&exi_fds_makers, 1);
		while (atomic_load(&exi_fds_frozen))
			sched_yield();
	}
}

void exi_fds_end(void)
{
	if (--exi_fds_depth == 0)
		atomic_fetch_sub(&exi_fds_makers, 1);
}

/* Moves a descriptor to its marked number. */
static int keep_whole(int fd, unsigned int room)
{
	int ret;

	exi_fds_begin();
	ret = keep(fd, room);
	exi_fds_end();
	return ret;
}

int exi_fd_keep_open(int fd)
{
	return keep_whole(fd, 0);
}

static int or_close(int fd, int kept)
{
	if (fd >= 0 && kept < 0)
		close(fd);
	return kept;
}

int exi_fd_keep(int fd)
{
	return or_close(fd, exi_fd_keep_open(fd));
}

/* The library's closed descriptors leave holes among its numbers: then the
 * lowest free number does not show what the application has above it. */
static _Atomic bool fds_ran_out;

void exi_fds_ran_out(void)
{
	atomic_store_explicit(&fds_ran_out, true, memory_order_relaxed);
}

bool exi_fds_short(void)
{
	return atomic_load_explicit(&fds_ran_out, memory_order_relaxed);
}

int exi_fd_spare_open(int fd)
{
	bool out = exi_fds_short();
	int ret = keep_whole(fd, out ? 4 : 8);

	if (out && ret >= 0)
		atomic_store_explicit(&fds_ran_out, false,
				      memory_order_relaxed);
	return ret;
}

int exi_fd_spare(int fd)
{
	return or_close(fd, exi_fd_spare_open(fd));
}

bool exi_fds_freeze(void)
{
	uint64_t until = exi_now_ns() + FREEZE_NS;

	while (atomic_exchange(&exi_fds_frozen, 1)) {
		if (exi_now_ns() > until)
			return false;
		sched_yield();
	}
	while (atomic_load(&exi_fds_makers)) {
		if (exi_now_ns() > until) {
			exi_fds_thaw();
			return false;
		}
		sched_yield();
	}
	return true;
}

void exi_fds_thaw(void)
{
	atomic_store(&exi_fds_frozen, 0);
}

void exi_fds_forked(void)
{
	atomic_store(&exi_fds_makers, 0);
	atomic_store(&exi_fds_frozen, 0);
	exi_fds_depth = 0;
}
