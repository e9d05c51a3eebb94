/* SPDX-License-Identifier: BSD-2-Clause */
/* Small utilities: time, pauses, copies, the CPU, spare descriptors. */
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

/* Marks a function or variable that preload/, which is a library of its own,
 * uses, too. It is listed in api/exs.map, under a version that no other program
 * uses. */
#define EXI_SHIM __attribute__((visibility("default")))

/* Marks a variable that hot code of the library reads and preload/ does not: it
 * is accessed directly, not through a table. */
#define EXI_HERE __attribute__((visibility("hidden")))

/* A condition that the compiler may assume; asserted in debug builds. */
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

/* The longest time, 146 years; longer times count as this. Added to now it does
 * not overflow. */
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

/* Whether the kernel accepts it. */
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

/* The time left until the deadline, for a call that sleeps. */
static inline struct timespec exi_time_left(uint64_t deadline)
{
	return exi_ns_timespec(exi_ns_between(exi_now_ns(), deadline));
}

/* The same in ms, rounded up, so that a sleep does not end before the
 * deadline. */
static inline int exi_ms_between(uint64_t now, uint64_t deadline)
{
	uint64_t ms = (exi_ns_between(now, deadline) + 999999) / 1000000;

	return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Whether exi_copy() of this many bytes needs no call; then a function without
 * other copies saves no registers. */
#define EXI_COPIES_MIN sizeof(uint64_t)
#define EXI_COPIES_MAX 64u
static inline bool exi_copies(size_t n)
{
	return n - EXI_COPIES_MIN <= EXI_COPIES_MAX - EXI_COPIES_MIN;
}

/* Copies the first and the last `size` of n bytes, which overlap. Both are read
 * before one is written. */
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

/* memcpy(), without a call if exi_copies(). */
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

/* Makes the compiler read memory again rather than keep values in registers,
 * which a function would have to save. */
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

/* A counter that grows by about one to four thousand per microsecond and is
 * cheap to read; precise enough only for "a moment ago". */
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

/* The offset, from the thread pointer, of the word with this thread's CPU: the
 * kernel writes rseq's word, if the C library registers one; else exi_cpu_ask()
 * stores its result there. */
EXI_HERE extern ptrdiff_t exi_cpu_at;
/* Asks the kernel. */
int exi_cpu_ask(void);

/* The CPU that this thread ran on at its last exi_cpu_refresh() or exi_cpu(),
 * or runs on now: a weaker hint than exi_cpu(), in two instructions. */
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

/* Reserves a few descriptor numbers for when the application finds none free:
 * connections that then go to TCP release their descriptors only after their
 * peers have answered. Reserves as many as allowed. */
void exi_fds_hold_some(void);
/* Closes all reserved ones; returns how many there were. */
EXI_SHIM unsigned int exi_fds_let_go(void);

/* Counts a thread that closes descriptors for others: a freeze waits for that
 * thread, which therefore does not wait for the freeze. */
void exi_fds_join(void);
/* A descriptor with a low number that another thread is to close counts from
 * exi_fds_lent(), called between exi_fds_begin() and exi_fds_end(), to
 * exi_fds_returned(). */
void exi_fds_lent(void);
void exi_fds_returned(void);

#endif
