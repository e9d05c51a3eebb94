/* SPDX-License-Identifier: BSD-2-Clause */
/* The process is a copy of this one, made past the C library, whose locks other
 * threads may hold: it makes system calls and nothing else. */
#include "core/base/feeder.h"

#include <errno.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/util.h"

/* Copies the process; no signal tells of the copy's end. */
static pid_t copy_process(void)
{
	return (pid_t)syscall(SYS_clone, 0L, NULL, NULL, NULL, NULL);
}

static void close_all_but_first(void)
{
	struct rlimit limit;
	int fd;

	if (syscall(SYS_close_range, 1u, ~0u, 0u) == 0 ||
	    getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	/* Linux before 5.9 */
	for (fd = 1; fd < (int)limit.rlim_cur; fd++)
		close(fd);
}

/* The feeders under way: those that finish connections, and those that hold
 * bytes for a reader that takes its time. Feeders, and whatever this process
 * forks, write these words, too. */
#define FEEDERS	 16
#define TAKES_NS 60000000000u
struct slot {
	_Atomic uint64_t until; /* when it ends, unless it says more */
	_Atomic size_t bytes;
};
struct slots {
	struct slot finish[FEEDERS], hold[FEEDERS];
};
static _Atomic(struct slots *) under_way;

static uint64_t alive_until(void)
{
	return exi_now_ns() + TAKES_NS;
}

static struct slots *slots(void)
{
	struct slots *ret = atomic_load(&under_way), *none = NULL;

	if (ret)
		return ret;
	ret = mmap(NULL, sizeof(*ret), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ret == MAP_FAILED)
		return NULL;
	if (atomic_compare_exchange_strong(&under_way, &none, ret))
		return ret;
	munmap(ret, sizeof(*ret));
	return none;
}

/* Whether the slot is free. A feeder that was killed is over, too, when its
 * time is. */
static bool is_over(struct slot *s)
{
	return atomic_load(&s->until) < exi_now_ns();
}

static struct slot *take_slot(struct slot *of, size_t n)
{
	for (int i = 0; of && i < FEEDERS; i++) {
		uint64_t was = atomic_load(&of[i].until);

		if (was < exi_now_ns() &&
		    atomic_compare_exchange_strong(&of[i].until, &was,
						   alive_until())) {
			atomic_store(&of[i].bytes, n);
			return &of[i];
		}
	}
	return NULL;
}

size_t exi_feeder_room(void)
{
	size_t limit = (size_t)exi_config()->memory_limit_mb << 20, held = 0;
	size_t most = FEEDERS * (size_t)exi_config()->ring_kb * 1024;
	struct slots *s = slots();
	bool found = false;

	most = most < limit ? most : limit;
	for (int i = 0; s && i < FEEDERS; i++) {
		if (is_over(&s->hold[i]))
			found = true;
		else
			held += atomic_load(&s->hold[i].bytes);
	}
	return found && held < most ? most - held : 0;
}

/* False: the time is over. The descriptor may be non-blocking. */
static bool await_room(struct slot *slot, bool holds)
{
	struct pollfd p = { .fd = 0, .events = POLLOUT };
	int ms = (int)(TAKES_NS / 1000000) / (holds ? 2 : 1), ret;

	do {
		ret = poll(&p, 1, ms);
		if (holds)
			atomic_store(&slot->until, alive_until());
	} while ((ret < 0 && errno == EINTR) || (ret == 0 && holds));
	return ret > 0;
}

static void feed(int fd, const char *bytes, size_t n, struct slot *slot,
		 bool holds)
{
	struct linger none = { 0 };
	ssize_t ret;

	syscall(SYS_prctl, PR_SET_NAME, "exs-feeder", 0L, 0L, 0L);
	if (fd != 0)
		dup3(fd, 0, 0);
	close_all_but_first();
	while (n > 0) {
		ret = send(0, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (ret < 0 && errno == EAGAIN && await_room(slot, holds))
			continue;
		if (ret < 0)
			break;
		bytes += ret;
		n -= (size_t)ret;
		atomic_store(&slot->until, alive_until());
	}
	if (!holds && n == 0)
		setsockopt(0, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	atomic_store(&slot->until, 0);
}

static int start(int fd, const char *bytes, size_t n, struct slot *slot,
		 bool holds)
{
	sigset_t all, before;
	int ret, status = 0;
	pid_t pid;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler runs there */
	pid = copy_process();
	if (pid == 0) {
		pid = copy_process(); /* a stranger to the program */
		status = pid < 0 ? errno : 0;
		if (pid == 0)
			feed(fd, bytes, n, slot, holds);
		syscall(SYS_exit_group, (long)status);
	}
	ret = pid < 0 ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return ret;
	while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

static int begin(int fd, const char *bytes, size_t n, struct slot *of,
		 bool holds)
{
	struct slot *slot = take_slot(of, n);
	int ret = slot ? start(fd, bytes, n, slot, holds) : -EAGAIN;

	if (slot && ret)
		atomic_store(&slot->until, 0);
	return ret;
}

int exi_feeder_start(int fd, const char *bytes, size_t n)
{
	if (n > exi_feeder_room())
		return -ENOBUFS;
	return begin(fd, bytes, n, slots()->hold, true);
}

int exi_feeder_finish(int fd, const char *bytes, size_t n)
{
	struct slots *s = slots();

	return begin(fd, bytes, n, s ? s->finish : NULL, false);
}
