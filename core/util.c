/* SPDX-License-Identifier: BSD-2-Clause */
/* Small things without a home. */
#include "core/util.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <unistd.h>

#include "core/heed.h"
#include "core/lock.h"

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
static _Atomic uint64_t process_token;

static unsigned int soft_limit(void)
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
	       soft_limit() / 4;
}

unsigned int exi_fd_kept(void)
{
	return atomic_load_explicit(&fds_kept, memory_order_relaxed);
}

/* Asking for the limit would be a system call for each new connection: that it
 * was lowered is seen a few later. */
bool exi_fd_scarce(int fd)
{
	static _Atomic unsigned int known, calls;
	unsigned int used = (unsigned int)fd + exi_fd_kept();
	unsigned int soft = atomic_load_explicit(&known, memory_order_relaxed);

	unsigned int n = atomic_load_explicit(&calls, memory_order_relaxed);

	atomic_store_explicit(&calls, n + 1, memory_order_relaxed); /* or so */
	if (used >= soft - soft / 16 || n % 16 == 0) {
		soft = soft_limit();
		atomic_store_explicit(&known, soft, memory_order_relaxed);
	}
	return used >= soft - soft / 16;
}

/* room: how many of the lowest numbers must be free, or the application's. */
static int keep(int fd, unsigned int room)
{
	unsigned int soft, base, held;
	int high;

	if (fd < 0)
		return -errno;
	soft = soft_limit();
	held = atomic_fetch_add_explicit(&fds_kept, 1, memory_order_relaxed);
	/* fd was the lowest free number: it tells what the application has. */
	if (held >= soft / 4 ||
	    (room && (unsigned int)fd + held >= soft - soft / room))
		goto refuse;
	base = soft - soft / 4;
	if (base > FD_BASE_MAX)
		base = FD_BASE_MAX;
	if ((unsigned int)fd >= base) {
		mark(fd, true);
		exi_heed_put(fd, EXI_HEED_BYTES | EXI_HEED_ANY);
		return fd;
	}
	high = fcntl(fd, F_DUPFD_CLOEXEC, (int)base);
	if (high < 0)
		goto refuse;
	close(fd);
	mark(high, true);
	exi_heed_put(high, EXI_HEED_BYTES | EXI_HEED_ANY);
	return high;
refuse:
	atomic_fetch_sub_explicit(&fds_kept, 1, memory_order_relaxed);
	close(fd);
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

/* A thread that makes descriptors counts itself, then looks whether somebody
 * freezes; who freezes says so, then looks whether somebody is counted: one sees
 * the other. No lock of the C library: a forked child could not give it back. */
static _Atomic int fds_makers, fds_frozen;
static _Thread_local int fds_depth;
#define FREEZE_NS 100000000u

void exi_fds_begin(void)
{
	if (fds_depth++)
		return;
	while (atomic_fetch_add(&fds_makers, 1), atomic_load(&fds_frozen)) {
		atomic_fetch_sub(&fds_makers, 1);
		while (atomic_load(&fds_frozen))
			sched_yield();
	}
}

void exi_fds_join(void)
{
	if (!fds_depth++)
		atomic_fetch_add(&fds_makers, 1);
}

void exi_fds_end(void)
{
	if (--fds_depth == 0)
		atomic_fetch_sub(&fds_makers, 1);
}

void exi_fds_lent(void)
{
	atomic_fetch_add(&fds_makers, 1);
}

void exi_fds_returned(void)
{
	atomic_fetch_sub(&fds_makers, 1);
}

/* From where it is to where it is marked. */
static int keep_whole(int fd, unsigned int room)
{
	int ret;

	exi_fds_begin();
	ret = keep(fd, room);
	exi_fds_end();
	return ret;
}

int exi_fd_keep(int fd)
{
	return keep_whole(fd, 0);
}

/* What the library gave back leaves holes among its numbers: the lowest free one
 * does not tell then what the application has above it. */
static _Atomic bool fds_ran_out;

void exi_fds_ran_out(void)
{
	atomic_store_explicit(&fds_ran_out, true, memory_order_relaxed);
}

bool exi_fds_short(void)
{
	return atomic_load_explicit(&fds_ran_out, memory_order_relaxed);
}

int exi_fd_spare(int fd)
{
	bool out = exi_fds_short();
	int ret = keep_whole(fd, out ? 4 : 8);

	if (out && ret >= 0)
		atomic_store_explicit(&fds_ran_out, false,
				      memory_order_relaxed);
	return ret;
}

#define HELD_MAX 8

/* What stands for the others; fd + 1. */
static _Atomic int blank;
static _Atomic int held[HELD_MAX];

/* An eighth of what the library may have, at most. */
static unsigned int held_most(void)
{
	unsigned int most = soft_limit() / 32;

	return most < HELD_MAX ? most : HELD_MAX;
}

static int find_blank(void)
{
	int fd, none = 0;

	if (!atomic_load(&blank)) {
		exi_fds_begin();
		fd = exi_fd_keep(eventfd(0, EFD_CLOEXEC));
		exi_fds_end();
		if (fd >= 0 &&
		    !atomic_compare_exchange_strong(&blank, &none, fd + 1))
			exi_fd_close(fd);
	}
	return atomic_load(&blank) - 1;
}

static bool hold(int fd)
{
	unsigned int i, most = held_most();

	for (i = 0; fd >= 0 && i < most; i++) {
		int none = 0;

		if (atomic_compare_exchange_strong(&held[i], &none, fd + 1))
			return true;
	}
	return false;
}

static unsigned int held_now(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < HELD_MAX; i++)
		n += atomic_load_explicit(&held[i], memory_order_relaxed) != 0;
	return n;
}

/* Numbers that a call has just asked for are the program's to take. */
#define AGAIN_NS 100000000u
static _Atomic uint64_t asked_at;

void exi_fds_hold_some(void)
{
	int from, fd;

	if (exi_now_ns() - atomic_load(&asked_at) < AGAIN_NS)
		return;
	while (held_now() < held_most() && (from = find_blank()) >= 0) {
		exi_fds_begin();
		fd = exi_fd_keep(fcntl(from, F_DUPFD_CLOEXEC, 0));
		exi_fds_end();
		if (fd < 0)
			return;
		if (!hold(fd))
			exi_fd_close(fd);
	}
}

unsigned int exi_fds_let_go(void)
{
	unsigned int i, n = 0;

	atomic_store(&asked_at, exi_now_ns());
	for (i = 0; i < HELD_MAX; i++) {
		int fd = atomic_exchange(&held[i], 0) - 1;

		n += fd >= 0;
		exi_fd_close(fd);
	}
	return n;
}

bool exi_fds_freeze(void)
{
	uint64_t until = exi_now_ns() + FREEZE_NS;

	while (atomic_exchange(&fds_frozen, 1)) {
		if (exi_now_ns() > until)
			return false;
		sched_yield();
	}
	while (atomic_load(&fds_makers)) {
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
	atomic_store(&fds_frozen, 0);
}

void exi_fds_forked(void)
{
	atomic_store(&fds_makers, 0);
	atomic_store(&fds_frozen, 0);
	fds_depth = 0;
}

uint64_t exi_random(void)
{
	uint64_t r = 0;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = exi_now_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
	return r;
}

static _Atomic uint64_t numbers; /* the next; 0: the first is to come */
static _Atomic uint64_t secret;

/* What *v is, or if it is 0, random and not 0. */
static uint64_t seeded(_Atomic uint64_t *v)
{
	uint64_t ret = atomic_load_explicit(v, memory_order_relaxed), none = 0;

	if (exi_likely(ret))
		return ret;
	ret = exi_random() | 1;
	return atomic_compare_exchange_strong(v, &none, ret) ? ret : none;
}

uint64_t exi_number(void)
{
	uint64_t ret;

	seeded(&numbers);
	do
		ret = atomic_fetch_add_explicit(&numbers, 1,
						memory_order_relaxed);
	while (exi_unlikely(!ret));
	return ret;
}

uint64_t exi_secret(uint64_t n)
{
	n ^= seeded(&secret);
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
	n = (n ^ n >> 27) * 0x94d049bb133111ebu;
	return n ^ n >> 31;
}

uint64_t exi_process_token(void)
{
	return seeded(&process_token);
}

uint64_t exi_use_token_now = 1;

void exi_process_forked(bool child)
{
	__atomic_store_n(&exi_use_token_now, exi_random() | 1,
			 __ATOMIC_RELAXED);
	if (!child)
		return;
	exi_tid_cache = 0;
	atomic_store(&process_token, 0);
	atomic_store(&numbers, 0);
}
