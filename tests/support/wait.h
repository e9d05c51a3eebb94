/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for a condition with a deadline; all times are multiplied by
 * t_slow(). */
#ifndef TESTS_SUPPORT_WAIT_H
#define TESTS_SUPPORT_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "tests/support/check.h"

struct t_deadline {
	int64_t end_ns;
};

/* The monotonic clock. */
int64_t t_now_ns(void);

struct t_deadline t_deadline_ms(int ms);
bool t_over(const struct t_deadline *d);

/* The pace of a loop that tests a condition: false if the time is over, else
 * true after a millisecond. */
bool t_tick(const struct t_deadline *d);

/* Whether fd is readable, or hung up, within so many milliseconds (not
 * multiplied). */
bool t_readable(int fd, int ms);

/* Waits until a thread of this process sleeps in the kernel. */
void t_until_asleep(pid_t tid);

/* Once the thread sleeps, sends it SIGUSR1 until *over is set: more than once,
 * because the thread may have been asleep for another reason. */
void t_interrupt(pid_t tid, const _Atomic bool *over);

/* Waits until each thread of a process, but the caller, is in this state, by
 * the letter in /proc: 'T' is stopped; of a killed process one thread in state
 * 'Z' is left when its descriptors are closed. */
void t_until_all(pid_t pid, char state);

/* Waits until the library's service thread in that process sleeps: it has then
 * done its work. */
void t_until_served(pid_t pid);

/* Keeps the CPU for about so many nanoseconds. */
void t_spin_ns(int64_t ns);

/* Waits until the condition holds, 20 seconds at most. */
#define T_UNTIL(cond)                                                          \
	do {                                                                   \
		struct t_deadline d_ = t_deadline_ms(20000);                   \
		while (!(cond)) {                                              \
			if (!t_tick(&d_))                                      \
				t_fail(__FILE__, __LINE__, "never: %s",        \
				       #cond);                                 \
		}                                                              \
	} while (0)

#endif
