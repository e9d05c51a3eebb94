/* SPDX-License-Identifier: BSD-2-Clause */
/* Small things without a home: time, pauses, descriptors of the library. */
#ifndef EXI_CORE_BASE_UTIL_H
#define EXI_CORE_BASE_UTIL_H

#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/rseq.h>
#include <sys/time.h>
#include <time.h>

#define EXI_LINE 128 /* two cache lines: they are fetched in pairs */

/* Marks what preload/, a library of its own, calls too: named in api/exs.map,
 * under a version that no other program uses. */
#define EXI_SHIM __attribute__((visibility("default")))

/* Marks a word of the library that hot code reads and preload/ does not: it is
 * read where it lies, not through a table. */
#define EXI_HERE __attribute__((visibility("hidden")))

/* What the caller knows; asserted where asserts are. */
#define exi_assume(x)                                                          \
	do {                                                                   \
		assert(x);                                                     \
		if (!(x))                                                      \
			__builtin_unreachable();                               \
	} while (0)

#define exi_likely(x)	__builtin_expect(!!(x), 1)
#define exi_unlikely(x) __builtin_expect(!!(x), 0)

/* The time, CLOCK_MONOTONIC in ns. */
static inline uint64_t exi_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A time that is longer, of 146 years, counts as this: added to now it has not
 * passed. */
#define EXI_NS_MAX (UINT64_MAX / 4)

/* Seconds and a part of one, none of them negative, in ns. */
static inline uint64_t exi_seconds_ns(time_t seconds, uint64_t part)
{
	uint64_t most = EXI_NS_MAX - (part < EXI_NS_MAX ? part : EXI_NS_MAX);

	return (uint64_t)seconds > most / 1000000000u
		       ? EXI_NS_MAX
		       : (uint64_t)seconds * 1000000000u + part;
}

static inline uint64_t exi_timespec_ns(const struct timespec *t)
{
	return exi_seconds_ns(t->tv_sec, (uint64_t)t->tv_nsec);
}

static inline uint64_t exi_timeval_ns(const struct timeval *t)
{
	return exi_seconds_ns(t->tv_sec, (uint64_t)t->tv_usec * 1000u);
}

/* As the kernel takes it. */
static inline bool exi_timespec_valid(const struct timespec *t)
{
	return t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < 1000000000;
}

/* A time in ns as a timespec. */
static inline struct timespec exi_ns_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u),
				  .tv_nsec = (long)(ns % 1000000000u) };
}

static inline uint64_t exi_ns_between(uint64_t now, uint64_t deadline)
{
	return deadline > now ? deadline - now : 0;
}

/* What is left until the deadline, for a call that sleeps. */
static inline struct timespec exi_time_left(uint64_t deadline)
{
	return exi_ns_timespec(exi_ns_between(exi_now_ns(), deadline));
}

/* The same in ms, rounded up: a sleep of so long does not end before the
 * deadline. */
static inline int exi_ms_between(uint64_t now, uint64_t deadline)
{
	uint64_t ms = (exi_ns_between(now, deadline) + 999999) / 1000000;

	return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* exi_copies() says whether exi_copy() of so many bytes needs no call: then a
 * function that copies no others saves no registers. */
#define EXI_COPIES_MIN sizeof(uint64_t)
#define EXI_COPIES_MAX 64u
static inline bool exi_copies(size_t n)
{
	return n - EXI_COPIES_MIN <= EXI_COPIES_MAX - EXI_COPIES_MIN;
}

/* Of n bytes the first and the last size, which overlap. All are read before
 * one is written. */
#define EXI_COPY_ENDS(to, from, n, size)                                       \
	do {                                                                   \
		struct {                                                       \
			char bytes[size];                                      \
		} first_, last_;                                               \
		memcpy(&first_, from, size);                                   \
		memcpy(&last_, (const char *)(from) + (n) - (size), size);     \
		memcpy(to, &first_, size);                                     \
		memcpy((char *)(to) + (n) - (size), &last_, size);             \
	} while (0)

/* memcpy(), without a call for what exi_copies(). */
static inline void exi_copy(void *to, const void *from, size_t n)
{
	if (!exi_copies(n))
		memcpy(to, from, n);
	else if (exi_likely(n <= 16))
		EXI_COPY_ENDS(to, from, n, 8);
	else if (n <= 32)
		EXI_COPY_ENDS(to, from, n, 16);
	else
		EXI_COPY_ENDS(to, from, n, 32);
}

#if defined(__x86_64__) || defined(__i386__)
static inline void exi_pause(void)
{
	__builtin_ia32_pause();
}
#elif defined(__aarch64__)
static inline void exi_pause(void)
{
	__asm__ __volatile__("isb" ::: "memory");
}
#else
static inline void exi_pause(void)
{
	__asm__ __volatile__("" ::: "memory");
}
#endif

/* What was read so far is read anew where it is needed again, rather than kept
 * in registers, which a function would have to save. */
static inline void exi_forget(void)
{
	__asm__ __volatile__("" ::: "memory");
}

/* Stores v to *w, and orders what was stored before it before, and the loads
 * that follow after it: what a seq_cst store followed by seq_cst loads does. */
#if defined(__x86_64__)
/* Publishes v with a plain store and a locked instruction on our own stack: the
 * line of w is written in one go with what precedes it. The exchange that
 * compilers make of it waits for the line, during which a polling reader can
 * take it away again. */
static inline void exi_publish(_Atomic uint32_t *w, uint32_t v)
{
	atomic_store_explicit(w, v, memory_order_release);
	__asm__ __volatile__("lock; orl $0,-8(%%rsp)" ::: "memory", "cc");
}
#else
static inline void exi_publish(_Atomic uint32_t *w, uint32_t v)
{
	atomic_store_explicit(w, v, memory_order_seq_cst);
}
#endif

/* Between a seq_cst read-modify-write and loads that must come after its store:
 * C11 keeps only seq_cst loads there. Nothing where it is a full barrier
 * anyway. */
#if defined(__x86_64__)
static inline void exi_fence_after_rmw(void)
{
	__asm__ __volatile__("" ::: "memory");
}
#else
static inline void exi_fence_after_rmw(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}
#endif

/* A count that grows by about one to four thousand a microsecond, cheap to
 * read; only good for "a moment ago". */
#if defined(__x86_64__)
static inline uint64_t exi_ticks(void)
{
	return __builtin_ia32_rdtsc();
}
#else
static inline uint64_t exi_ticks(void)
{
	return exi_now_ns() * 2;
}
#endif

/* The word that has the number of this thread's CPU, so far from the thread's
 * pointer: rseq's, which the kernel writes, where the C library registers one;
 * else what exi_cpu_ask() found last. */
EXI_HERE extern ptrdiff_t exi_cpu_at;
/* The kernel's answer. */
int exi_cpu_ask(void);

/* exi_cpu_lately() is the CPU that this thread ran on when exi_cpu_refresh() or
 * exi_cpu() was called last, or runs on: a weaker hint than exi_cpu(), and two
 * instructions. */
static inline void exi_cpu_refresh(void)
{
	if (exi_unlikely(!__rseq_size))
		exi_cpu_ask();
}
static inline uint32_t exi_cpu_lately(void)
{
#if defined(__x86_64__) && defined(__LP64__)
	uint32_t ret;

	__asm__ __volatile__("movl %%fs:(%1), %0"
			     : "=r"(ret)
			     : "r"(exi_cpu_at));
	return ret;
#else
	const uint32_t *at =
		(const void *)((const char *)__builtin_thread_pointer() +
			       exi_cpu_at);

	return __atomic_load_n(at, __ATOMIC_RELAXED);
#endif
}

/* The CPU this thread runs on; a hint. */
static inline int exi_cpu(void)
{
	int cpu = exi_likely(__rseq_size > 0) ? (int)exi_cpu_lately() : -1;

	return exi_likely(cpu >= 0) ? cpu : exi_cpu_ask();
}

/* A few numbers are held for the moment in which the application finds none
 * left: what connections have that go to TCP for it comes back later, when
 * their peers have answered. Holds as many as it may. */
void exi_fds_hold_some(void);
/* Closes all: how many they were. */
EXI_SHIM unsigned int exi_fds_let_go(void);

/* Counts a thread that closes what was lent: a freeze waits for that thread,
 * which therefore does not wait for the freeze. */
void exi_fds_join(void);
/* A descriptor with a low number that another thread is to close counts from
 * exi_fds_lent(), within the above, to exi_fds_returned(). */
void exi_fds_lent(void);
void exi_fds_returned(void);

#endif
