/* SPDX-License-Identifier: BSD-2-Clause */
/* A feeder is a copy of this process, made without the C library, whose locks
 * other threads may hold: it only makes system calls. */
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
#include "core/base/log.h"
#include "core/base/util.h"

/* Copies the process; its end sends no signal. */
static pid_t copy_process(void)
{
	return (pid_t)syscall(SYS_clone, 0L, NULL, NULL, NULL, NULL);
}

static void close_span(unsigned int from, unsigned int to)
{
	struct rlimit limit;

	if (from > to || syscall(SYS_close_range, from, to, 0u) == 0 ||
	    getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	/* Linux before 5.9 */
	for (; from <= to && from < limit.rlim_cur; from++)
		close((int)from);
}

/* Closes all descriptors but these. */
static void close_others(const int *fds, size_t n)
{
	unsigned int from = 0;

	for (;;) {
		unsigned int next = ~0u;

		for (size_t i = 0; i < n; i++)
			if (fds[i] >= 0 && (unsigned int)fds[i] >= from &&
			    (unsigned int)fds[i] < next)
				next = (unsigned int)fds[i];
		if (next == ~0u)
			break;
		if (next > from)
			close_span(from, next - 1);
		from = next + 1;
	}
	close_span(from, ~0u);
}

/* The running feeders: those that finish connections, and those that hold bytes
 * for slow readers. Feeders, and all forked children of this process, write
 * these words, too. */
#define FEEDERS	 16
#define TAKES_NS 60000000000u
struct exi_feeder {
	_Atomic uint64_t until; /* when it counts as over, unless renewed */
	_Atomic size_t bytes;
};
struct slots {
	struct exi_feeder finish[FEEDERS], hold[FEEDERS];
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

/* Whether the slot is free. A feeder that was killed is over when its time
 * is. */
static bool is_over(struct exi_feeder *s)
{
	return atomic_load(&s->until) < exi_now_ns();
}

static struct exi_feeder *take_slot(struct exi_feeder *of, size_t n)
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
	struct slots *s = slots();
	bool found = false;

	for (int i = 0; s && i < FEEDERS; i++) {
		if (is_over(&s->hold[i]))
			found = true;
		else
			held += atomic_load(&s->hold[i].bytes);
	}
	return found && held < limit ? limit - held : 0;
}

void exi_feeder_lives(struct exi_feeder *self, size_t holds)
{
	atomic_store(&self->bytes, holds);
	atomic_store(&self->until, alive_until());
}

/* Returns false if the time is over. The descriptor may be non-blocking. */
static bool await_room(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int ret;

	do
		ret = poll(&p, 1, (int)(TAKES_NS / 1000000));
	while (ret < 0 && errno == EINTR);
	return ret > 0;
}

/* The unsent bytes of a connection that closes. */
struct owed {
	int fd;
	const char *bytes;
	size_t n;
};

static void finish(struct exi_feeder *self, const void *arg)
{
	const struct owed *o = arg;
	struct linger none = { 0 };
	size_t done = 0;
	ssize_t ret;

	while (done < o->n) {
		ret = send(o->fd, o->bytes + done, o->n - done,
			   MSG_DONTWAIT | MSG_NOSIGNAL);
		if (ret < 0 && errno == EAGAIN && await_room(o->fd))
			continue;
		if (ret < 0)
			return;
		done += (size_t)ret;
		exi_feeder_lives(self, o->n - done);
	}
	setsockopt(o->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

static void feed(const struct exi_feeder_work *w, struct exi_feeder *self)
{
	syscall(SYS_prctl, PR_SET_NAME, "exs-feeder", 0L, 0L, 0L);
	/* A log line would need locks. */
	__atomic_store_n(&exi_log_level, EXI_LOG_OFF, __ATOMIC_RELAXED);
	close_others(w->fds, w->n_fds);
	w->run(self, w->arg);
	atomic_store(&self->until, 0);
}

static int start(const struct exi_feeder_work *w, struct exi_feeder *self)
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
			feed(w, self);
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

static int begin(const struct exi_feeder_work *w, struct exi_feeder *of)
{
	struct exi_feeder *self = take_slot(of, w->holds);
	int ret = self ? start(w, self) : -EAGAIN;

	if (self && ret)
		atomic_store(&self->until, 0);
	return ret;
}

int exi_feeder_start(const struct exi_feeder_work *w)
{
	struct slots *s = slots();

	return begin(w, s ? s->hold : NULL);
}

int exi_feeder_finish(int fd, const char *bytes, size_t n)
{
	struct owed o = { .fd = fd, .bytes = bytes, .n = n };
	struct exi_feeder_work w = {
		.run = finish, .arg = &o, .fds = &fd, .n_fds = 1, .holds = n
	};
	struct slots *s = slots();

	return begin(&w, s ? s->finish : NULL);
}
