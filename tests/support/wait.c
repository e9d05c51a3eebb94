/* SPDX-License-Identifier: BSD-2-Clause */
/* Deadlines, and conditions to wait for. */
#include "tests/support/wait.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t t_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

struct t_deadline t_deadline_ms(int ms)
{
	return (struct t_deadline){
		.end_ns = t_now_ns() + ms * INT64_C(1000000) * t_slow(),
	};
}

bool t_over(const struct t_deadline *d)
{
	return t_now_ns() >= d->end_ns;
}

bool t_tick(const struct t_deadline *d)
{
	if (t_over(d))
		return false;
	poll(NULL, 0, 1);
	return true;
}

bool t_readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, ms);
	while (n < 0 && errno == EINTR);
	return n > 0;
}

/* The state letter behind the last ')' of a stat line, of a thread of that
 * name; null: any. '?': it is another, or gone. */
static char state_if(pid_t pid, pid_t tid, const char *name)
{
	char path[64], line[512], *end;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return '?';
	n = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[n] = '\0';
	end = strrchr(line, ')');
	if (!end || strlen(end) <= 2 || (name && !strstr(line, name)))
		return '?';
	return end[2];
}

static char state_of(pid_t pid, pid_t tid)
{
	return state_if(pid, tid, NULL);
}

void t_until_asleep(pid_t tid)
{
	int in_a_row = 0;
	struct t_deadline d = t_deadline_ms(20000);

	while (in_a_row < 5) {
		in_a_row = state_of(getpid(), tid) == 'S' ? in_a_row + 1 : 0;
		if (!t_tick(&d))
			t_fail(__FILE__, __LINE__, "thread %d never sleeps",
			       tid);
	}
}

void t_interrupt(pid_t tid, const _Atomic bool *over)
{
	t_until_asleep(tid);
	T_UNTIL(({
		int err = tgkill(getpid(), tid, SIGUSR1);

		T(!err || *over); /* it may be gone by then */
		(bool)*over;
	}));
}

/* Its threads; of those of a name the first: who is made by it has it, too. */
static bool all_in(pid_t pid, const char *name, char state)
{
	char path[64], s = '?';
	struct dirent *e;
	bool ret = true;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	T_MSG(dir != NULL, "no process %d", pid);
	while ((!name || s == '?') && (e = readdir(dir))) {
		if (e->d_name[0] == '.' || atoi(e->d_name) == gettid())
			continue;
		s = state_if(pid, atoi(e->d_name), name);
		ret &= s == state || s == '?';
	}
	closedir(dir);
	return ret;
}

void t_until_all(pid_t pid, char state)
{
	T_UNTIL(all_in(pid, NULL, state));
}

void t_until_served(pid_t pid)
{
	T_UNTIL(all_in(pid, "(libexs)", 'S'));
}

void t_spin_ns(int64_t ns)
{
	int64_t end = t_now_ns() + ns;

	while (t_now_ns() < end)
		;
}
