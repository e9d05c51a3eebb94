/* SPDX-License-Identifier: BSD-2-Clause */
/* The process is a copy of this one, made past the C library, whose locks other
 * threads may hold: it makes system calls and nothing else. */
#include "core/feeder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util.h"

/* Whose end is told by no signal. */
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

/* Those that finish connections, each until when it lives unless the peer takes
 * something, 0: none. Feeders, and whatever this process forks, write it, too. */
#define FINISHING 16
#define TAKES_NS  60000000000u
static _Atomic(_Atomic uint64_t *) finishing;

static uint64_t alive_until(void)
{
	return exi_now_ns() + TAKES_NS;
}

static _Atomic uint64_t *take_slot(void)
{
	_Atomic uint64_t *slots = atomic_load(&finishing), *none = NULL;
	size_t size = FINISHING * sizeof(*slots);

	if (!slots) {
		slots = mmap(NULL, size, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (slots == MAP_FAILED)
			return NULL;
		if (!atomic_compare_exchange_strong(&finishing, &none, slots)) {
			munmap(slots, size);
			slots = none;
		}
	}
	for (int i = 0; i < FINISHING; i++) {
		uint64_t was = atomic_load(&slots[i]);

		/* One that was killed is over, too, when its time is. */
		if (was < exi_now_ns() &&
		    atomic_compare_exchange_strong(&slots[i], &was,
						   alive_until()))
			return &slots[i];
	}
	return NULL;
}

/* False: the time is over. The descriptor may be non-blocking. */
static bool await_room(_Atomic uint64_t *slot)
{
	struct pollfd p = { .fd = 0, .events = POLLOUT };
	int ret;

	do
		ret = poll(&p, 1, slot ? (int)(TAKES_NS / 1000000) : -1);
	while (ret < 0 && errno == EINTR);
	return ret > 0;
}

static void feed(int fd, const char *bytes, size_t n, _Atomic uint64_t *slot)
{
	struct linger none = { 0 };
	ssize_t ret;

	syscall(SYS_prctl, PR_SET_NAME, "exs-feeder", 0L, 0L, 0L);
	if (fd != 0)
		dup3(fd, 0, 0);
	close_all_but_first();
	while (n > 0) {
		ret = send(0, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (ret < 0 && errno == EAGAIN && await_room(slot))
			continue;
		if (ret < 0)
			break;
		bytes += ret;
		n -= (size_t)ret;
		if (slot)
			atomic_store(slot, alive_until());
	}
	if (slot && n == 0)
		setsockopt(0, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	if (slot)
		atomic_store(slot, 0);
}

static int start(int fd, const char *bytes, size_t n, _Atomic uint64_t *slot)
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
			feed(fd, bytes, n, slot);
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

int exi_feeder_start(int fd, const char *bytes, size_t n)
{
	return start(fd, bytes, n, NULL);
}

int exi_feeder_finish(int fd, const char *bytes, size_t n)
{
	_Atomic uint64_t *slot = take_slot();
	int ret = slot ? start(fd, bytes, n, slot) : -EAGAIN;

	if (slot && ret)
		atomic_store(slot, 0);
	return ret;
}
